//! The turns of one group of several: it is led, handed over and led again while the process goes
//! on, whatever becomes of the others.
//!
//! **Handed over** it is when this process has more than its share
//! ([`evenkeel_leadership::groups`]): clients have what they are owed, the lease is given up, and
//! the process stands by. **Lost**, by an error of whatever kind, it is the same, but others are
//! left the first attempts. **At the end of the process** doors stay open until somebody else
//! leads, so that clients are told where to go and need not find it out.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::config::DuplicatesConfig;
use super::nodes::{self, Here};
use super::router::Router;
use super::turns::{HOLD_LEASES, Opened, Turns};
use evenkeel_duplicates_engine::SharedUsers;
use evenkeel_leadership::groups::until_due;
use evenkeel_leadership::{Group, Holder, Known, Ways};
use evenkeel_runtime::accept::{
    AcceptConfig, Listener, Served, Stage, Stop, StopSignal, accept, first,
};

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

    /// Waits until this process has more than its share, and this group is the one to go.
    fn until_due(&self) -> impl Future<Output = ()> + use<> {
        let (known, group) = (self.known.subscribe(), self.config.group);
        let (own, settled) = (nodes::doors_of(&self.config), self.lease() * SETTLED_LEASES);
        let service = self.config.name.clone();
        async move {
            match own {
                Some((_, first)) => until_due(known, (group, &first), settled).await,
                None => std::future::pending().await,
            }
            tracing::info!(service, "this process has more than its share: a hand-over begins");
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

/// Serves plain clients of a service of several groups, as long as what it answers lives.
pub(super) fn serve_plain(
    config: &DuplicatesConfig,
    front: Option<(Listener, AcceptConfig)>,
    (known, here, users): (&watch::Sender<Known>, &Here, &SharedUsers),
    stop: &StopSignal,
) -> io::Result<JoinSet<io::Result<Served>>> {
    let mut serving = JoinSet::new();
    let Some((listener, accepting)) = front else { return Ok(serving) };
    let Group { number, of } = config.group;
    let own = |group: Group| {
        let door = config.cluster?.port().checked_sub(number as u16)? + group.number as u16;
        config.with_door(door).cluster_address()
    };
    let ways = Ways {
        service: config.service().to_owned(),
        known: known.subscribe(),
        here: here.subscribe(),
        own: Group::all(of).map(own).collect(),
        tls: config.load_relay_tls()?,
        relays: config.tls.is_none() || config.relay_tls.is_some(),
        hold: config.etcd.as_ref().map_or(Duration::ZERO, |etcd| etcd.lease * HOLD_LEASES),
    };
    let router = Rc::new(Router::new(config, ways, Arc::clone(users)));
    serving.spawn_local(accept(listener, accepting.fixed(), router, stop.clone()));
    Ok(serving)
}
