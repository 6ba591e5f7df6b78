//! A service from its start to its end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_core::request::ordered::{Epoch, History, Position, Sequence};
use evenkeel_core::request::partition::ShardMap;
use tokio::io::DuplexStream;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::claim::{self, Look};
use super::client::{self, Entrance};
use super::config::{Door, DuplicatesConfig, Target};
use super::connect::connect;
use super::control::{self, Asked, Control};
use super::engine::Engine;
use super::front;
use super::layout::{Layout, MapPlace, MapStore};
use super::log::{Log, Recovered};
use super::member;
use super::mover;
use super::reign::{self, EtcdStore, Reign};
use super::state::DuplicatesState;
use crate::clock::Clock;
use crate::http::engine::Listener;
use crate::resp::encode;

/// How often silence and watermarks are looked at.
const KEEP_EVERY: Duration = Duration::from_millis(100);
/// How long after a state could not be written into the log it is tried again: twice as long every
/// time, since what does not fit costs a reading of everything.
const STATE_AGAIN_AFTER: Range<Duration> = Duration::from_secs(5)..Duration::from_secs(300);
/// How long the first start waits for duplicates that do not answer, when the log is gone.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long another duplicate is waited for when enough have answered.
const OTHERS_WITHIN: Duration = Duration::from_millis(250);

/// The tasks that end the service when they fail: one for each duplicate, and the mover.
pub(super) type Members = Rc<RefCell<JoinSet<io::Result<()>>>>;

/// `[duplicates.NAME]`, with its address bound and its log open, not yet running.
#[derive(Debug)]
pub struct Service {
    config: DuplicatesConfig,
    /// Those of the configuration.
    doors: BTreeMap<String, Door>,
    state: watch::Sender<Arc<DuplicatesState>>,
    listener: Listener,
    log: Log,
    recovered: Recovered,
    configured: Layout,
    control: Control,
    orders: UnboundedReceiver<Asked>,
    entrance: Entrance,
    within: UnboundedReceiver<DuplexStream>,
}

impl Service {
    /// Binds the address and opens the log.
    ///
    /// # Errors
    /// When the address is taken, the log is damaged or in use, or a store of ours cannot be
    /// opened.
    pub fn open(config: &DuplicatesConfig) -> io::Result<Self> {
        let configured = Layout::configured(config.shards, &config.places());
        let configured = configured.ok_or_else(|| {
            let (shards, partitions) = (config.shards, config.partitions.len());
            io::Error::other(format!(
                "duplicates.{}: {shards} shards for {partitions} partitions, expected one for each \
                 at least",
                config.name
            ))
        })?;
        let listener = Listener::bind(config.listen)?;
        let opened = Log::open(&config.log_directory, config.log.clone());
        let (log, recovered) = opened
            .map_err(|error| io::Error::other(format!("duplicates.{}: {error}", config.name)))?;
        let door = |target: &Target| Ok((target.place(), target.open()?));
        let doors = config.targets().map(door).collect::<io::Result<_>>()?;
        let listen = listener.address()?;
        let config = DuplicatesConfig { listen, ..config.clone() };
        let name = config.name.clone();
        let first = DuplicatesState { name, address: listen.to_string(), ..Default::default() };
        let (state, _) = watch::channel(Arc::new(first));
        let (entrance, within) = client::entrance();
        let (control, orders) = Control::new();
        Ok(Self {
            config,
            doors,
            state,
            listener,
            log,
            recovered,
            configured,
            control,
            orders,
            entrance,
            within,
        })
    }

    /// Where orders are given, while it runs.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Where clients within this process enter; before [`Service::run`] they wait.
    #[must_use]
    pub fn entrance(&self) -> Entrance {
        self.entrance.clone()
    }

    /// How it stands, several times a second.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Arc<DuplicatesState>> {
        self.state.subscribe()
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Where clients connect, with the port the system chose.
    ///
    /// # Errors
    /// As the operating system says.
    pub fn address(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.address()
    }

    /// Serves until `stop` resolves.
    ///
    /// # Errors
    /// When another process has taken over the duplicates, or the log fails at the start.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](crate::http::engine::worker_runtime).
    pub async fn run(self, clock: Clock, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut stop = std::pin::pin!(stop);
        let listener = tokio::net::TcpListener::from_std(self.listener.into_std())?;
        let Self { mut config, mut doors, state, mut log, recovered, configured, .. } = self;
        let (mut orders, within) = (self.orders, self.within);
        let mut reigning = JoinSet::new();
        let reign = match &config.etcd {
            None => None,
            Some(settings) => {
                let waiting = stand_by(&config, settings, &listener, &state, &mut orders);
                let Some(reign) = before(&mut stop, &mut reigning, waiting).await else {
                    return Ok(());
                };
                let reign = Rc::new(reign?);
                reigning.spawn_local(Rc::clone(&reign).keep());
                Some(reign)
            }
        };
        let store: Rc<dyn MapStore> = match &reign {
            Some(reign) => Rc::new(EtcdStore::new(Rc::clone(reign))),
            None => config.map.open()?,
        };
        let begun = async {
            let (layout, stored) = known_layout(&config, &*store, configured, &recovered).await?;
            let doors = arrange(&mut config, &layout, &mut doors)?;
            let history = begin(&config, &doors, &mut log, recovered, reign.as_deref()).await?;
            note_layout(&mut log, &layout)?;
            Ok((layout, stored, doors, history))
        };
        let (layout, stored, doors, history) = match before(&mut stop, &mut reigning, begun).await {
            Some(Ok(begun)) => begun,
            ended => {
                resign(reign.as_deref()).await;
                return ended.map_or(Ok(()), |begun| begun.map(drop));
            }
        };
        let servers = doors.len();
        let engine = Engine::new(config, doors, clock, log, history, layout, reign.clone());
        let members = keep_members(&engine, servers, store, stored);
        let mut keeping = JoinSet::new();
        keeping.spawn_local(Rc::clone(&engine).keep_flushing());
        keeping.spawn_local(keep(Rc::clone(&engine), state));
        keeping.spawn_local(keep_whole(Rc::clone(&engine)));
        keeping.spawn_local(control::answer(Rc::clone(&engine), orders));
        let mut served = std::pin::pin!(front::serve(Rc::clone(&engine), listener, within, stop));
        let result = std::future::poll_fn(|context| {
            if let Poll::Ready(failed) = poll_members(&members, context) {
                return Poll::Ready(Err(failed));
            }
            if let Poll::Ready(Some(Err(panicked))) = keeping.poll_join_next(context) {
                return Poll::Ready(Err(io::Error::other(panicked)));
            }
            if let Poll::Ready(Some(lost)) = reigning.poll_join_next(context) {
                return Poll::Ready(Err(lost.unwrap_or_else(io::Error::other)));
            }
            served.as_mut().poll(context)
        })
        .await;
        // What was sent and is not answered is in the log; watermarks tell what need not be
        // replayed.
        engine.borrow().keep();
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(members.take()); // one of them may add others
        resign(reign.as_deref()).await;
        result
    }
}

/// Begins to keep the duplicates there are, and to take orders that change them.
fn keep_members(
    engine: &Rc<Engine>,
    servers: usize,
    store: Rc<dyn MapStore>,
    stored: u64,
) -> Members {
    let members: Members = Rc::default();
    for server in 0..servers {
        members.borrow_mut().spawn_local(member::keep(Rc::clone(engine), server));
    }
    let moving = mover::keep(Rc::clone(engine), store, stored, Rc::clone(&members));
    members.borrow_mut().spawn_local(moving);
    members
}

/// The first that failed; those of duplicates that were removed just end.
fn poll_members(members: &Members, context: &mut Context<'_>) -> Poll<io::Error> {
    let mut members = members.borrow_mut();
    while let Poll::Ready(Some(ended)) = members.poll_join_next(context) {
        if let Err(failed) = ended.map_err(io::Error::other).and_then(|result| result) {
            return Poll::Ready(failed);
        }
    }
    Poll::Pending
}

/// What comes of a future, unless it is to stop before (`None`) or the lease is lost.
async fn before<T>(
    stop: &mut (impl Future<Output = ()> + Unpin),
    reigning: &mut JoinSet<io::Error>,
    future: impl Future<Output = io::Result<T>>,
) -> Option<io::Result<T>> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        if std::pin::Pin::new(&mut *stop).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(lost)) = reigning.poll_join_next(context) {
            return Poll::Ready(Some(Err(lost.unwrap_or_else(io::Error::other))));
        }
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Nothing is written any more: whoever stands by need not wait for the end of the lease.
async fn resign(reign: Option<&Reign>) {
    if let Some(reign) = reign {
        reign.resign().await;
    }
}

/// Waits for its turn; clients that come and orders that are given meanwhile are told who reigns.
async fn stand_by(
    config: &DuplicatesConfig,
    settings: &reign::EtcdSettings,
    listener: &tokio::net::TcpListener,
    state: &watch::Sender<Arc<DuplicatesState>>,
    orders: &mut UnboundedReceiver<Asked>,
) -> io::Result<Reign> {
    let who = format!("{} (process {})", config.listen, std::process::id());
    let tell = |holder: &str| {
        let mut standing = (**state.borrow()).clone();
        standing.role = "stands by";
        standing.failure = Some(holder.to_owned());
        state.send_replace(Arc::new(standing));
    };
    let mut entering = std::pin::pin!(reign::enter(settings, &config.name, &who, tell));
    let why = || {
        let holder = state.borrow().failure.clone().unwrap_or_default();
        format!("this process stands by: {holder}")
    };
    loop {
        let came = std::future::poll_fn(|context| {
            if let Poll::Ready(entered) = entering.as_mut().poll(context) {
                return Poll::Ready(Err(entered));
            }
            // Not kept for its turn: nobody would expect it then.
            while let Poll::Ready(Some(asked)) = orders.poll_recv(context) {
                asked.refuse(why());
            }
            listener.poll_accept(context).map(Ok)
        });
        match came.await {
            Err(entered) => return entered,
            Ok(Ok((stream, _))) => {
                let mut told = Vec::new();
                encode::error(&mut told, &format!("UNAVAILABLE {}", why()));
                // A new socket takes a line; what it does not take nobody misses.
                let _ = stream.try_write(&told);
            }
            Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn keep(engine: Rc<Engine>, state: watch::Sender<Arc<DuplicatesState>>) {
    loop {
        tokio::time::sleep(KEEP_EVERY).await;
        let mut inner = engine.borrow();
        inner.keep();
        state.send_replace(Arc::new(inner.state()));
    }
}

/// Writes a state into the log whenever it has grown much, or does not tell everything.
async fn keep_whole(engine: Rc<Engine>) {
    let (mut pause, mut again, mut least) = (KEEP_EVERY, STATE_AGAIN_AFTER.start, 0);
    loop {
        tokio::time::sleep(pause).await;
        let wants = {
            let mut inner = engine.borrow();
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
            continue;
        }
        match member::write_state(&engine).await {
            Ok(()) => (least, again) = (engine.borrow().log.bytes(), STATE_AGAIN_AFTER.start),
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
    let told = |why: String| io::Error::other(format!("duplicates.{}: {why}", config.name));
    let stored = loop {
        match store.load().await {
            Ok(stored) => break stored,
            Err(error) if config.etcd.is_none() => return Err(error),
            // Waiting does not mend it.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => return Err(error),
            Err(error) => {
                tracing::warn!(%error, place = store.place(), "waiting for the layout");
                tokio::time::sleep(LOOK_AGAIN_AFTER).await;
            }
        }
    };
    let found = stored.as_ref().map_or(0, Layout::version);
    if found < recovered.layout {
        return Err(told(format!(
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
        return Err(told(format!(
            "{} has no layout, but {} has version {} of one, by which shards have moved: put that \
             file there as it is, under the key map (etcdctl put PREFIX/map < FILE)",
            store.place(),
            path.display(),
            left.version()
        )));
    }
    let layout = Layout::reconciled(stored, configured).map_err(told)?;
    Ok((layout, found))
}

/// Tells the log which layout is in force, since what it said of that may be forgotten.
fn note_layout(log: &mut Log, layout: &Layout) -> io::Result<()> {
    if layout.version() == 1 {
        return Ok(()); // nothing was ever changed
    }
    let noted = log.begin_layout(layout.version()).and_then(|()| log.commit());
    noted.map_err(io::Error::other)
}

/// The duplicates as the layout has them; those that the configuration does not name are opened.
fn arrange(
    config: &mut DuplicatesConfig,
    layout: &Layout,
    doors: &mut BTreeMap<String, Door>,
) -> io::Result<Vec<Door>> {
    let mut partitions = Vec::new();
    let mut all = Vec::new();
    for partition in &layout.partitions {
        let mut targets = Vec::new();
        for place in &partition.duplicates {
            let target = config.target(place).map_err(io::Error::other)?;
            all.push(match doors.remove(place) {
                Some(door) => door,
                None => target.open()?,
            });
            targets.push(target);
        }
        partitions.push(targets);
    }
    config.partitions = partitions;
    Ok(all)
}

/// Who held each shard before shards could move.
pub(super) fn first_owners(layout: &Layout) -> Vec<u16> {
    let first = ShardMap::even(layout.map.shards(), layout.configured.len());
    first.map_or_else(Vec::new, |map| map.held_by().to_vec())
}

/// The history this reign begins with, in an epoch above every one that was ever seen.
///
/// The log says what was written. Where it is gone while duplicates have watermarks, one duplicate
/// of each partition is the history, the one that has most, and it is waited until enough answer
/// to be sure that one of them has everything that was acknowledged. *One*: watermarks are told
/// now and then, so two that say the same may differ in the writes since. It is named by the new
/// epoch, so that every other is copied anew, also one that is reached much later. And all are
/// fenced off *before* they are asked: whoever wrote before may be writing still.
///
/// A log that others have written after is an error, unless processes take turns: then it is set
/// aside, and the duplicates are asked.
async fn begin(
    config: &DuplicatesConfig,
    doors: &[Door],
    log: &mut Log,
    mut recovered: Recovered,
    reign: Option<&Reign>,
) -> io::Result<History> {
    let mut is_first = true;
    loop {
        let has_log = recovered.last_sequence > 0 || !recovered.epochs.is_empty();
        // Without a log their epochs are of no use where etcd gives them, unless there were some
        // before it did.
        let looks = match reign {
            Some(_) if !has_log && is_first => Vec::new(),
            _ => ask_all(config, doors, None).await,
        };
        is_first = false;
        let seen = looks.iter().flatten().flatten().map(|look| look.epoch);
        let seen = seen.max().unwrap_or_default();
        if has_log && seen.0 > log.epoch() {
            if reign.is_none() {
                return Err(stale(config, seen, log.epoch()));
            }
            tracing::info!(
                service = config.name,
                "the log is of an earlier reign: it is set aside"
            );
            recovered = log.set_aside().map_err(io::Error::other)?;
            continue;
        }
        let above = seen.0.max(log.epoch());
        let epoch = match reign {
            None => claim::epoch_above(above),
            Some(reign) => reign.epoch_above(above).await?,
        };
        // A machine that lost power may have lost the log's end, which duplicates still have.
        let is_beyond = |watermark: Position| {
            watermark.epoch.0 == log.epoch() && watermark.sequence.0 > recovered.last_sequence
        };
        let furthest = furthest(looks.iter().flatten());
        let has_all = has_log && !furthest.is_some_and(is_beyond);
        let is_new = furthest.is_none() && !looks.iter().flatten().flatten().any(is_filling);
        if has_all || is_new && reign.is_none() {
            return begin_with(log, of_log(&recovered)?, Epoch(epoch));
        }
        match take_over(config, doors, Epoch(epoch)).await {
            Ok(Taken::From(history)) => {
                log.begin_after(history.sequence.0).map_err(io::Error::other)?;
                log.begin_epoch(epoch).map_err(io::Error::other)?;
                log.commit().map_err(io::Error::other)?;
                return Ok(History::from_watermark(history));
            }
            Ok(Taken::Nothing) => return begin_with(log, of_log(&recovered)?, Epoch(epoch)),
            Ok(Taken::NotYet) => tracing::warn!(
                service = config.name,
                "the log or its end is gone; waiting for duplicates, one of which must have \
                 everything"
            ),
            Err(error) => tracing::warn!(service = config.name, %error, "it is begun anew"),
        }
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
    }
}

/// What the log tells goes on in a new epoch.
fn begin_with(log: &mut Log, mut history: History, epoch: Epoch) -> io::Result<History> {
    log.begin_epoch(epoch.0).map_err(io::Error::other)?;
    log.commit().map_err(io::Error::other)?;
    history.begin_epoch(epoch);
    Ok(history)
}

/// Another process has written since this log was: to go on from here would undo its writes.
fn stale(config: &DuplicatesConfig, theirs: Epoch, ours: u64) -> io::Error {
    io::Error::other(format!(
        "duplicates.{}: another process has taken over the duplicates since this log was written \
         (their epoch is {}, the log's {ours}), and the log in {} lacks its writes; to begin from \
         what the duplicates have, stop the other process and move the log away",
        config.name,
        theirs.0,
        config.log_directory.display(),
    ))
}

/// What came of taking over.
enum Taken {
    From(Position),
    /// Enough have answered, and none was ever written to by this service.
    Nothing,
    /// Too few have answered, or none is whole.
    NotYet,
}

/// Fences all duplicates off and chooses one of each partition as the history.
async fn take_over(config: &DuplicatesConfig, doors: &[Door], epoch: Epoch) -> io::Result<Taken> {
    let looks = ask_all(config, doors, Some(epoch)).await;
    if !enough(config, &looks) {
        return Ok(Taken::NotYet);
    }
    let Some(furthest) = furthest(looks.iter().flatten()) else {
        let is_new = !looks.iter().flatten().flatten().any(is_filling);
        return Ok(if is_new { Taken::Nothing } else { Taken::NotYet });
    };
    let history = Position { epoch, sequence: furthest.sequence };
    let mut first = 0;
    for partition in looks.iter().filter(|partition| !partition.is_empty()) {
        let of = |look: &Option<Look>| look.as_ref()?.watermark.filter(is_named);
        let is_empty = |look: &Option<Look>| look.as_ref().is_some_and(|look| !look.holds_data);
        let places = 0..partition.len();
        let most = places.clone().filter(|&place| of(&partition[place]).is_some());
        let most = most.max_by_key(|&place| (of(&partition[place]), partition.len() - place));
        let base = most.or_else(|| places.clone().find(|&place| is_empty(&partition[place])));
        let Some(base) = base else { return Ok(Taken::NotYet) };
        claim::found(&doors[first + base], &config.name, history).await?;
        first += partition.len();
    }
    Ok(Taken::From(history))
}

fn of_log(recovered: &Recovered) -> io::Result<History> {
    let epochs = recovered.epochs.iter();
    let epochs = epochs.map(|&(epoch, first)| (Epoch(epoch), Sequence(first))).collect();
    let held_from = Sequence(recovered.first_sequence);
    let history = History::of_log(epochs, held_from, Sequence(recovered.last_sequence));
    let mixed = || io::Error::other("the log's epochs do not ascend (two logs mixed up?)");
    let mut history = history.ok_or_else(mixed)?;
    if let Some(began) = recovered.state {
        history.record_state(Sequence(began));
    }
    Ok(history)
}

type Looks = Vec<Vec<Option<Look>>>;

/// What all duplicates have; with an epoch, after they are fenced off from those before it. Then
/// those that do not answer are not waited for long once enough have.
async fn ask_all(config: &DuplicatesConfig, doors: &[Door], epoch: Option<Epoch>) -> Looks {
    let (mut looking, mut doors) = (JoinSet::new(), doors.iter());
    for (partition, targets) in config.partitions.iter().enumerate() {
        for (place, door) in (0..targets.len()).zip(&mut doors) {
            let (door, name) = (door.clone(), config.name.clone());
            looking.spawn_local(async move {
                let looked = match epoch {
                    Some(epoch) => claim::claim(&door, &name, epoch).await,
                    None => look(&door, &name).await,
                };
                (partition, place, looked)
            });
        }
    }
    let mut looks: Looks =
        config.partitions.iter().map(|targets| vec![None; targets.len()]).collect();
    loop {
        let next = looking.join_next();
        let next = match epoch {
            Some(_) if enough(config, &looks) => {
                tokio::time::timeout(OTHERS_WITHIN, next).await.ok().flatten()
            }
            _ => next.await,
        };
        match next {
            None => return looks,
            Some(Err(_)) => {}
            Some(Ok((partition, place, looked))) => {
                let told = |error: &io::Error| tracing::info!(%error, "a duplicate is not asked");
                looks[partition][place] = looked.inspect_err(told).ok();
            }
        }
    }
}

async fn look(door: &Door, name: &str) -> io::Result<Look> {
    let mut link = connect(door, &format!("evenkeel-{name}-look")).await?;
    claim::look(&mut link, name).await
}

fn furthest<'a>(looks: impl Iterator<Item = &'a Option<Look>>) -> Option<Position> {
    looks.flatten().filter_map(|look| look.watermark).filter(is_named).max()
}

/// Not of one that is being filled.
const fn is_named(watermark: &Position) -> bool {
    watermark.epoch.0 != u64::MAX
}

/// Whether one of those that answered must have every write that was acknowledged.
fn enough(config: &DuplicatesConfig, looks: &Looks) -> bool {
    use evenkeel_core::request::ordered::Acknowledge;
    looks.iter().filter(|partition| !partition.is_empty()).all(|partition| {
        let (all, answered) = (partition.len(), partition.iter().flatten().count());
        // One that was emptied to be filled had perhaps acknowledged what was in it.
        let whole = partition.iter().flatten().filter(|look| !is_filling(look)).count();
        match config.members.acknowledge {
            Acknowledge::Majority => whole > all / 2 || answered == all,
            Acknowledge::One | Acknowledge::All => answered == all,
        }
    })
}

fn is_filling(look: &Look) -> bool {
    look.watermark.is_some_and(|watermark| !is_named(&watermark))
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
