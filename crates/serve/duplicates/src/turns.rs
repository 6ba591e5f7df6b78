//! The turns of this process at leading a service, or one group of it: it waits for one, begins,
//! serves until it is to stop, and gives the lease back.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::config::{Connector, DuplicatesConfig};
use super::control::{self, Asked};
use super::frontend::Frontend;
use super::member;
use super::members::Members;
use super::mover;
use super::nodes::{self, Doors};
use super::rejected::ChangeRejected;
use super::takeover::{self, Begun};
use super::{aside, backlog, follow, key_events, measured};
use evenkeel_duplicates_engine::{Engine, Inner, READ_RETRIES_MAX, SharedUsers};
use evenkeel_duplicates_state::{DuplicatesState, STANDS_BY};
use evenkeel_leadership::cluster::ClusterView;
use evenkeel_leadership::layout::{Layout, MapPlace, MapStore};
use evenkeel_leadership::{
    self as leadership, Door, EtcdStore, Holder, Known, Leadership, StandIn,
};
use evenkeel_record::like::Proxy;
use evenkeel_record::{BY_RUN, Recorder, Stream};
use evenkeel_runtime::accept::{AcceptConfig, StopSignal, first};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::timer::Timer;
use evenkeel_wal::{Log, LogPlace, Recovered};

/// How often silence and watermarks are looked at.
const KEEP_EVERY: Duration = Duration::from_millis(100);
/// How long after a state could not be written into the log it is tried again: twice as long every
/// time, since what does not fit costs a reading of everything.
const STATE_AGAIN_AFTER: Range<Duration> = Duration::from_secs(5)..Duration::from_secs(300);
/// How long a process that ends waits for answers of its duplicates.
const ANSWERED_WITHIN: Duration = Duration::from_millis(250);
/// How long clients wait, when the service begins, for duplicates to be there: most are reached in
/// milliseconds, and who is refused is not tried again by most libraries.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// How long a state for the log waits, when the service begins, for duplicates to be filled that
/// writes wait for: both read everything of the same duplicate.
const STATE_WAITS: Duration = Duration::from_secs(30);
/// How long a client of a process that stands by waits for somebody to lead, in leases: until one
/// has ended, and the next has begun.
pub(super) const HOLD_LEASES: u32 = 2;
/// How long after the layout could not be read it is tried again.
const LOAD_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// What a turn begins with.
pub(super) struct Opened {
    pub(super) log: Log,
    pub(super) recovered: Recovered,
    /// The duplicates of the configuration.
    pub(super) at: BTreeMap<String, Connector>,
}

impl Opened {
    /// For a turn after the first.
    pub(super) fn again(config: &DuplicatesConfig) -> io::Result<Self> {
        let (log, recovered) = open_log(config)?;
        Ok(Self { log, recovered, at: open_connectors(config)? })
    }
}

pub(super) fn open_log(config: &DuplicatesConfig) -> io::Result<(Log, Recovered)> {
    Log::open(&config.log_directory, config.log.clone()).map_err(io::Error::other)
}

pub(super) fn open_connectors(
    config: &DuplicatesConfig,
) -> io::Result<BTreeMap<String, Connector>> {
    config.targets().map(|target| Ok((target.place(), target.open()?))).collect()
}

/// What is there for all turns of this process: waiting for one, and leading.
pub(super) struct Turns {
    pub(super) config: DuplicatesConfig,
    pub(super) clock: Clock,
    pub(super) configured: Layout,
    pub(super) state: watch::Sender<Arc<DuplicatesState>>,
    pub(super) known: Arc<watch::Sender<Known>>,
    pub(super) holder: watch::Sender<Holder>,
    /// For people: where clients connect.
    pub(super) address: String,
    pub(super) doors: Doors,
    pub(super) accepting: watch::Sender<Arc<AcceptConfig>>,
    pub(super) cluster: Option<ClusterView>,
    /// Who clients may be, for all of this process.
    pub(super) users: SharedUsers,
    pub(super) changes: Rc<Mutex<UnboundedReceiver<Asked>>>,
    /// Who is told of copies of reads.
    pub(super) recorder: Option<Recorder>,
    /// Looks at a lease that nobody has which are left to others besides.
    pub(super) leaves: usize,
}

impl Turns {
    /// Waits for a turn and serves until told to stop; whether it has led.
    pub(super) async fn take(&mut self, opened: Opened, stop: StopSignal) -> io::Result<bool> {
        let Opened { log, recovered, at: mut connectors } = opened;
        let (mut config, mut leading) = (self.config.clone(), JoinSet::new());
        let lease = match &config.etcd {
            None => None,
            Some(settings) => {
                let settings = settings.of_group(config.group);
                let waits = || Some(self.waits());
                let lease = self.stand_by(&settings, waits, stop.clone()).await?;
                let Some(lease) = lease else { return Ok(false) };
                let lease = Rc::new(lease);
                leading.spawn_local(Rc::clone(&lease).keep());
                Some(lease)
            }
        };
        self.tell(nodes::itself(&config));
        let store = store_of(&config, lease.as_ref())?;
        let begun = async {
            let configured = self.configured.clone();
            let (layout, stored) = known_layout(&config, &*store, configured, &recovered).await?;
            let connectors = arrange(&mut config, &layout, &mut connectors)?;
            let held = lease.as_deref();
            let begun = takeover::begin(&config, &connectors, log, recovered, held).await?;
            Ok((note_layout(begun, &layout).await?, layout, stored, connectors))
        };
        let (begun, layout, stored, connectors) = match before(&stop, &mut leading, begun).await {
            Some(Ok(begun)) => begun,
            ended => {
                resign(lease.as_deref()).await;
                return ended.map_or(Ok(true), |begun| begun.map(|_| true));
            }
        };
        let (servers, timer) = (connectors.len(), Timer::new()?);
        self.load_users();
        let config = (config, Arc::clone(&self.users));
        let engine = Engine::new(config, connectors, self.clock, begun, layout, lease.clone());
        engine.borrow().cluster.clone_from(&self.cluster);
        if let Some(recorder) = &self.recorder {
            let stream = Arc::new(stream(&self.config, servers));
            engine.borrow().record_reads(recorder.sink(&stream, 0));
        }
        let members = Members::default();
        (0..servers).for_each(|server| members.keep(&engine, server));
        members.spawn(mover::keep(Rc::clone(&engine), store, stored, members.clone()));
        let mut keeping = JoinSet::new();
        engine.keep_going(&mut keeping, timer);
        keeping.spawn_local(keep(Rc::clone(&engine), self.state.clone(), members.clone()));
        keep_up(&engine, &mut keeping);
        if !self.config.group.is_whole() {
            let known = Arc::clone(&self.known);
            keeping.spawn_local(measured::measure(Rc::clone(&engine), known, self.config.group));
        }
        keeping.spawn_local(control::answer(Rc::clone(&engine), Rc::clone(&self.changes)));
        engine.borrow().accept_by(self.accepting.clone());
        let mut tasks = Tasks { members, keeping, leading };
        let result = tasks.serve(serve(&engine, &mut self.doors, stop)).await;
        if result.is_ok() {
            finish(&engine).await;
        }
        end(&engine, &tasks.members, lease.as_deref()).await;
        result.map(|()| true)
    }

    /// Has the users be as their file has them by now; as they are, where that cannot be read.
    fn load_users(&self) {
        match self.config.access.load() {
            Ok(users) => drop(self.users.send_if_modified(|known| {
                let differs = **known != users;
                if differs {
                    *known = Arc::new(users);
                }
                differs
            })),
            Err(error) => tracing::warn!(%error, "users stay as they are"),
        }
    }

    /// Waits for its turn; `None` when it is to stop before, and its clients have what they are
    /// owed. Clients that come meanwhile are passed on to whoever leads; changes that are given are
    /// refused.
    pub(super) async fn stand_by(
        &self,
        settings: &leadership::EtcdSettings,
        waits: impl Fn() -> Option<usize>,
        stop: StopSignal,
    ) -> io::Result<Option<Leadership>> {
        let config = &self.config;
        let who = nodes::own_name(config);
        let tell = |known: Holder| {
            self.show_standing(known.words.clone());
            self.tell(known);
        };
        let tls = config.load_relay_tls()?;
        let stand_in = |door| StandIn {
            holder: self.holder.subscribe(),
            tls: tls.clone(),
            // Who speaks TLS with clients does with this process.
            relays: config.tls.is_none() || config.relay_tls.is_some(),
            hold: settings.lease * HOLD_LEASES,
            door,
        };
        let refusing = async {
            // Not kept for its turn: nobody would expect it then.
            let mut changes = self.changes.lock().await;
            while let Some(asked) = changes.recv().await {
                asked.refuse(ChangeRejected::OutOfService(stand_in(Door::Plain).why()));
            }
            std::future::pending().await
        };
        let passing = async { self.doors.stand_in(config, stand_in, stop).await.map(|()| None) };
        let entering = leadership::enter(settings, &config.name, &who, waits, tell);
        first(async { entering.await.map(Some) }, first(refusing, passing)).await
    }

    /// Looks at a lease that nobody has which are left to others.
    fn waits(&self) -> usize {
        let own = nodes::doors_of(&self.config).filter(|_| !self.config.group.is_whole());
        own.map_or(0, |(_, first)| self.known.borrow().waits(&first) + self.leaves)
    }

    /// Shows that another process leads, or nobody.
    pub(super) fn show_standing(&self, why: String) {
        let (name, address) = (self.config.name.clone(), self.address.clone());
        let failure = Some(why);
        let leader = self.known.borrow().holders.get(self.config.group.number).and_then(|holder| {
            holder.address.as_ref().or(holder.cluster.as_ref()).map(ToString::to_string)
        });
        let shown = DuplicatesState {
            name,
            address,
            role: STANDS_BY,
            leader,
            failure,
            ..Default::default()
        };
        self.state.send_replace(Arc::new(shown));
    }

    /// Makes known who leads.
    pub(super) fn tell(&self, holder: Holder) {
        self.holder.send_replace(holder.clone());
        let number = self.config.group.number;
        self.known.send_if_modified(|known| {
            let Some(place) = known.holders.get_mut(number) else { return false };
            let differs = *place != holder;
            *place = holder;
            differs
        });
    }
}

/// What days say of a service that has so many servers.
fn stream(config: &DuplicatesConfig, replicas: usize) -> Stream {
    let hedged = if config.hedge.is_some() { "+hedge" } else { "" };
    let timeout = Duration::ZERO; // each client waits as long as it wants to
    let hedge = config.hedge.as_ref();
    let proxy = Proxy { cancels: false, hedge, retries_max: READ_RETRIES_MAX, timeout };
    Stream {
        name: format!("duplicates.{}", config.name),
        by: BY_RUN,
        policies: vec![format!("{}{hedged}", config.policy.text())],
        pairs: 0.0,
        like: proxy.like(),
        replicas: replicas.max(1),
    }
}

/// What ends a turn when it fails or ends.
struct Tasks {
    members: Members,
    keeping: JoinSet<()>,
    leading: JoinSet<io::Error>,
}

impl Tasks {
    /// What comes of serving, unless one of them fails before.
    async fn serve(&mut self, served: impl Future<Output = io::Result<()>>) -> io::Result<()> {
        let mut served = std::pin::pin!(served);
        std::future::poll_fn(|context| {
            if let Poll::Ready(failed) = self.members.poll_failed(context) {
                return Poll::Ready(Err(failed));
            }
            if let Poll::Ready(Some(Err(panicked))) = self.keeping.poll_join_next(context) {
                return Poll::Ready(Err(io::Error::other(panicked)));
            }
            if let Poll::Ready(Some(lost)) = self.leading.poll_join_next(context) {
                return Poll::Ready(Err(lost.unwrap_or_else(io::Error::other)));
            }
            served.as_mut().poll(context)
        })
        .await
    }
}

/// Where the layout is kept.
fn store_of(
    config: &DuplicatesConfig,
    lease: Option<&Rc<Leadership>>,
) -> io::Result<Rc<dyn MapStore>> {
    Ok(match lease {
        Some(lease) => Rc::new(EtcdStore::new(Rc::clone(lease))),
        None => config.map.open()?,
    })
}

/// What comes of a future, unless it is to stop before (`None`) or the lease is lost.
async fn before<T>(
    stop: &StopSignal,
    leading: &mut JoinSet<io::Error>,
    future: impl Future<Output = io::Result<T>>,
) -> Option<io::Result<T>> {
    let mut stop = stop.clone();
    tokio::select! {
        biased;
        () = stop.stopping() => None,
        Some(lost) = leading.join_next() => Some(Err(lost.unwrap_or_else(io::Error::other))),
        result = future => Some(result),
    }
}

/// Serves clients, from when every partition takes writes until told to stop.
async fn serve(engine: &Rc<Engine>, doors: &mut Doors, stop: StopSignal) -> io::Result<()> {
    let mut stopping = stop.clone();
    let opens = first(is_so(engine, takes_writes), fills_no_longer(engine));
    first(opens, stopping.stopping()).await;
    let group = engine.look().config.group;
    doors.serve(|door| Rc::new(Frontend::new(engine, door)), (stop, group)).await
}

/// Waits until no partition is about to take writes, as others were in time: those who answer or
/// may be filled are waited for as long as clients of a process that stands by wait.
async fn fills_no_longer(engine: &Engine) {
    sleep(OPEN_WITHIN).await;
    let held = engine.look().config.etcd.as_ref().map_or(OPEN_WITHIN, |it| it.lease * HOLD_LEASES);
    let ends = |inner: &Inner| {
        let mut partitions = 0..inner.map.partitions();
        !partitions.any(|it| !takes_writes_of(inner, it) && somebody_comes(inner, it))
    };
    first(is_so(engine, ends), sleep(held.saturating_sub(OPEN_WITHIN))).await;
}

/// Whether a duplicate of a partition that is not live has not failed yet, or has been reached: it
/// may wait for another one to be filled from.
fn somebody_comes(inner: &Inner, partition: usize) -> bool {
    let live = inner.members.live(partition);
    let others = inner.members.configured(partition).without(live);
    let comes = |server: usize| {
        inner.servers[server].error.is_none() || inner.servers[server].holds_data.is_some()
    };
    others.iter().any(comes)
}

/// Waits until something holds.
async fn is_so(engine: &Engine, holds: impl Fn(&Inner) -> bool) {
    const LOOK_EVERY: Duration = Duration::from_millis(2);
    while !holds(&engine.look()) {
        sleep(LOOK_EVERY).await;
    }
}

/// Whether every partition takes writes.
fn takes_writes(inner: &Inner) -> bool {
    (0..inner.map.partitions()).all(|partition| takes_writes_of(inner, partition))
}

fn takes_writes_of(inner: &Inner, partition: usize) -> bool {
    // One without duplicates was closed.
    inner.members.configured(partition).is_empty() || inner.members.takers(partition).is_ok()
}

/// Nobody writes any more: duplicates that do what they owe, and are found where their streams end,
/// need not be filled by whoever leads next.
async fn finish(engine: &Engine) {
    let owe_nothing = |inner: &Inner| {
        let mut servers = 0..inner.servers.len();
        servers.all(|it| inner.members.owed(it) == 0)
    };
    let _ = engine.borrow().keep(); // their watermarks
    first(is_so(engine, owe_nothing), sleep(ANSWERED_WITHIN)).await;
    backlog::note_all(engine).await;
}

/// What was sent and is not answered is in the log; watermarks tell what need not be replayed.
async fn end(engine: &Engine, members: &Members, lease: Option<&Leadership>) {
    engine.borrow().keep();
    sleep(Duration::from_millis(1)).await;
    members.end();
    resign(lease).await;
}

/// Nothing is written any more: whoever stands by need not wait for the end of the lease.
async fn resign(lease: Option<&Leadership>) {
    if let Some(lease) = lease {
        lease.resign().await;
    }
}

/// Looks after what has happened, no more often than [`KEEP_EVERY`] and only then: a service that
/// nobody asks anything sleeps.
async fn keep(engine: Rc<Engine>, state: watch::Sender<Arc<DuplicatesState>>, members: Members) {
    let mut seen = 0;
    loop {
        sleep(KEEP_EVERY).await;
        let within = {
            let mut inner = engine.look();
            for doubted in inner.keep().iter() {
                members.spawn(member::probe(Rc::clone(&engine), doubted));
            }
            state.send_replace(Arc::new(inner.state()));
            inner.keep_within()
        };
        engine.stirred(&mut seen, within).await;
    }
}

/// What is done for the life of the service beside its clients: states, streams of effects,
/// questions past scripts, and key events.
fn keep_up(engine: &Rc<Engine>, keeping: &mut JoinSet<()>) {
    // What is in memory is for those that lag; it need not tell everything.
    if engine.look().config.log.place == LogPlace::Disk {
        keeping.spawn_local(keep_whole(Rc::clone(engine)));
    }
    keeping.spawn_local(follow::keep(Rc::clone(engine)));
    keeping.spawn_local(aside::keep(Rc::clone(engine)));
    keeping.spawn_local(key_events::keep(Rc::clone(engine)));
}

/// Writes a state into the log whenever it has grown much, or does not tell everything.
async fn keep_whole(engine: Rc<Engine>) {
    let (mut pause, mut again, mut least) = (KEEP_EVERY, STATE_AGAIN_AFTER.start, 0);
    let mut seen = 0;
    first(is_so(&engine, takes_writes), sleep(STATE_WAITS)).await;
    loop {
        sleep(pause).await;
        let wants = {
            let mut inner = engine.look();
            inner.forget_gone();
            let is_long = inner.log.bytes() > long_from(inner.config.log.bytes_max, least);
            let is_there = |partition: usize| {
                // One without duplicates was closed.
                inner.members.configured(partition).is_empty()
                    || !inner.members.live(partition).is_empty()
            };
            let is_possible = (0..inner.map.partitions()).all(is_there);
            is_possible && (is_long || !inner.history.is_whole())
        };
        pause = KEEP_EVERY;
        if !wants {
            engine.stirred(&mut seen, None).await;
            continue;
        }
        match member::write_state(&engine).await {
            Ok(()) => (least, again) = (engine.look().log.bytes(), STATE_AGAIN_AFTER.start),
            Err(error) => {
                tracing::warn!(%error, "no state was written into the log");
                pause = again;
                again = (again * 2).min(STATE_AGAIN_AFTER.end);
            }
        }
    }
}

/// Length from which on the log gets a new state, when it was at `least` after the latest: at twice
/// that, so that a state that is long itself is not written again and again, but half-way to where
/// the log drops its oldest, which is that state.
fn long_from(bytes_max: u64, least: u64) -> u64 {
    let half_way = least.saturating_add(bytes_max.saturating_sub(least) / 2);
    (bytes_max / 2).max(least.saturating_mul(2)).min(half_way)
}

/// The layout in force: what is stored, or what the configuration says; and the version of what is
/// stored, 0 where nothing is.
async fn known_layout(
    config: &DuplicatesConfig,
    store: &dyn MapStore,
    configured: Layout,
    recovered: &Recovered,
) -> io::Result<(Layout, u64)> {
    let reported =
        |why: &dyn Display| io::Error::other(format!("duplicates.{}: {why}", config.name));
    let stored = loop {
        match store.load().await {
            Ok(stored) => break stored,
            Err(error) if config.etcd.is_none() => return Err(error),
            // Waiting does not mend it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) => {
                tracing::warn!(%error, place = store.place(), "waiting for the layout");
                sleep(LOAD_AGAIN_AFTER).await;
            }
        }
    };
    let found = stored.as_ref().map_or(0, Layout::version);
    if found < recovered.layout {
        return Err(reported(&format!(
            "{} has version {found} of the layout, but the log was written by version {} (was an \
             old one restored, or the file removed? shards have moved since)",
            store.place(),
            recovered.layout
        )));
    }
    if found == 0
        && config.etcd.is_some()
        && let Some(left) = config.map.open()?.load().await?
    {
        let MapPlace::File(path) = &config.map;
        return Err(reported(&format!(
            "{} has no layout, but {} has version {} of one, by which shards have moved: put that \
             file there as it is, under the key map (etcdctl put PREFIX/map < FILE)",
            store.place(),
            path.display(),
            left.version()
        )));
    }
    let layout = Layout::reconciled(stored, configured).map_err(|error| reported(&error))?;
    Ok((layout, found))
}

/// Tells the log which layout is in force, since what it said of that may be forgotten.
async fn note_layout((log, history): Begun, layout: &Layout) -> io::Result<Begun> {
    let version = layout.version();
    if version == 1 {
        return Ok((log, history)); // nothing was ever changed
    }
    let note = move |log: &mut Log| log.begin_layout(version).and_then(|()| log.commit());
    Ok((takeover::on_disk(log, note).await?.0, history))
}

/// The duplicates as the layout has them; those that the configuration does not name are opened.
fn arrange(
    config: &mut DuplicatesConfig,
    layout: &Layout,
    connectors: &mut BTreeMap<String, Connector>,
) -> io::Result<Vec<Connector>> {
    let mut partitions = Vec::new();
    let mut all = Vec::new();
    for partition in &layout.partitions {
        let mut targets = Vec::new();
        for place in &partition.duplicates {
            let target = config.target(place).map_err(io::Error::other)?;
            all.push(match connectors.remove(place) {
                Some(connector) => connector,
                None => target.open()?,
            });
            targets.push(target);
        }
        partitions.push(targets);
    }
    config.partitions = partitions;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_state_is_begun_before_the_log_drops_the_last() {
        for (least, expected) in [(0, 500), (100, 500), (300, 600), (400, 700), (900, 950)] {
            assert_eq!(long_from(1_000, least), expected, "{least}");
        }
        for least in 0..1_000 {
            let long = long_from(1_000, least);
            // Not at once, and not when it is too late; up to a third the next one fits beside it.
            assert!(long < 1_000 && (long > least || least == 999), "{least}");
            assert!(long + least <= 1_000 || least > 333, "{least}");
        }
    }
}
