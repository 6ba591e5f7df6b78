//! The turns of one group of several: it is led, handed over and led again while the process goes
//! on, whatever becomes of the others.
//!
//! **Handed over** it is when this process leads more than its share
//! ([`evenkeel_leadership::groups`]): clients have what they are owed, the lease is given up, and
//! the process stands by. **Lost**, by an error of whatever kind, it is the same, but others are
//! left the first attempts. **At the end of the process** doors stay open until somebody else
//! leads, so that clients are told where to go and need not find it out.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::config::DuplicatesConfig;
use super::nodes;
use super::turns::{Opened, Turns};
use evenkeel_leadership::groups::until_due;
use evenkeel_leadership::{Holder, Known};
use evenkeel_runtime::accept::{
    AcceptConfig, Link, Listener, Peer, ServeConnection, Served, Stage, Stop, StopSignal, Stream,
    accept, first,
};
use evenkeel_stores::resp::encode;

/// How long a hand-over must have been due, in leases: who dies soon after its start is seen to.
const SETTLED_LEASES: u32 = 2;
/// Looks at a lease that nobody has which are left to others after an error: a lease of them.
const LEFT_AFTER_ERROR: usize = 20;
/// How long, after somebody else leads, clients are still told so: as others hear of it.
const TOLD_FOR: Duration = Duration::from_millis(500);
/// How often, and at which intervals, the log is tried to be opened again: what has it open may be
/// about to end.
const OPENS: (u32, Duration) = (50, Duration::from_millis(100));

impl Turns {
    /// Takes one turn after another until told to stop.
    pub(super) async fn take_all(&mut self, opened: Opened, stop: StopSignal) -> io::Result<()> {
        let mut next = Some(opened);
        loop {
            let opened = match next.take() {
                Some(opened) => opened,
                None => open_again(&self.config).await?,
            };
            let turn = Stop::new();
            let signal = turn.signal();
            let (due, drain) = (self.until_due(), self.lease().min(self.config.drain));
            let ending = turn.stop_with(stop.clone(), due, drain);
            let (took, ()) = tokio::join!(self.take(opened, signal), ending);
            let has_led = !matches!(took, Ok(false));
            self.tell(Holder::default());
            self.leaves = 0;
            self.show_standing("nobody is known to lead".to_owned());
            if let Err(error) = took {
                tracing::warn!(service = self.config.name, %error, "the group waits for its turn");
                self.leaves = LEFT_AFTER_ERROR;
                // What it cannot begin with is not mended by asking at once.
                let mut stopping = stop.clone();
                first(sleep(self.lease() / 4), stopping.stopping()).await;
            }
            if stop.stage() > Stage::Running {
                if has_led {
                    self.stand_aside().await?;
                }
                return Ok(());
            }
        }
    }

    fn lease(&self) -> Duration {
        self.config.etcd.as_ref().map_or(Duration::ZERO, |etcd| etcd.lease)
    }

    /// Waits until this process leads more than its share, and this group is the one to go.
    fn until_due(&self) -> impl Future<Output = ()> + use<> {
        let (known, group) = (self.known.subscribe(), self.config.group);
        let (own, settled) = (nodes::doors_of(&self.config), self.lease() * SETTLED_LEASES);
        let service = self.config.name.clone();
        async move {
            match own {
                Some((_, first)) => until_due(known, (group, &first), settled).await,
                None => std::future::pending().await,
            }
            tracing::info!(service, "this process leads more than its share: a hand-over begins");
        }
    }

    /// Tells clients who leads once somebody else does, for as long as a lease at most.
    async fn stand_aside(&self) -> io::Result<()> {
        let Some(settings) = &self.config.etcd else { return Ok(()) };
        let (group, turn, mut known) = (self.config.group, Stop::new(), self.known.subscribe());
        let (settings, signal) = (settings.of_group(group), turn.signal());
        let is_led = |known: &Known| known.holders[group.number].cluster.is_some();
        let told = async {
            let led = known.wait_for(is_led);
            if timeout(self.lease(), led).await.is_ok() {
                sleep(TOLD_FOR).await;
            }
        };
        let ending = turn.stop_with(StopSignal::never(), told, TOLD_FOR);
        let (stood, ()) = tokio::join!(self.stand_by(&settings, || None, signal), ending);
        stood.map(drop)
    }
}

/// Opens the log and the duplicates for another turn.
async fn open_again(config: &DuplicatesConfig) -> io::Result<Opened> {
    let (attempts, pause) = OPENS;
    for _ in 1..attempts {
        let own = config.clone();
        match tokio::task::spawn_blocking(move || Opened::again(&own)).await? {
            Ok(opened) => return Ok(opened),
            Err(error) => tracing::info!(service = config.name, %error, "it is opened again"),
        }
        sleep(pause).await;
    }
    Opened::again(config)
}

/// Tells plain clients that a service of several groups is for clients of Redis Cluster, as long as
/// what it answers lives.
pub(super) fn turn_away(
    config: &DuplicatesConfig,
    front: Option<(Listener, AcceptConfig)>,
    stop: &StopSignal,
) -> JoinSet<io::Result<Served>> {
    let mut answering = JoinSet::new();
    if let Some((listener, accepting)) = front {
        let doors = nodes::doors_of(config).map(|(_, first)| first.to_string());
        let says = format!(
            "ERR the service {} has {} groups of partitions: plain clients are not served here, \
             expected a client of Redis Cluster at {}",
            config.service(),
            config.group.of,
            doors.unwrap_or_default(),
        );
        let away = Rc::new(Away(says));
        answering.spawn_local(accept(listener, accepting.fixed(), away, stop.clone()));
    }
    answering
}

/// Says this to whoever comes, and nothing else.
struct Away(String);

impl ServeConnection for Away {
    async fn serve(self: Rc<Self>, mut stream: Stream, _: Peer, _: Rc<Link>) {
        let mut said = Vec::new();
        encode::error(&mut said, &self.0);
        let _ = stream.write_all(&said).await; // who does not hear it has gone
        let _ = stream.shutdown().await;
    }
}
