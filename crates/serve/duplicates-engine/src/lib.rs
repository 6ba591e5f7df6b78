//! The state of one service: sessions, calls, connections, and what core decides about them.
//!
//! Everything of a service is on one thread, behind one `RefCell`, and nothing in here waits:
//! tasks around it (`frontend.rs`, `connection.rs`, `member.rs` of `evenkeel-duplicates`) read
//! sockets and call in.
//!
//! | file | what happens there |
//! |---|---|
//! | `access.rs` | a client's command becomes a read or a write of so many servers |
//! | `reading.rs` | a read goes to those that the dispatcher says |
//! | `answers.rs` | a server's answer becomes the client's, or is learnt from |
//! | `settling.rs` | when enough have answered, the client is told; when they cannot, why not |
//! | `places.rs` | in which partition keys are, and which may be used together |
//! | `gather.rs` | a command in several partitions: its parts, and one answer of theirs |
//! | `all_keys.rs` | commands about keys that they do not name |
//! | `flush.rs` | every key goes, in every partition |
//! | `scan.rs` | cursors, each of one duplicate |
//! | `read_order.rs` | a read does not see what its client wrote behind it |
//! | `strong.rs` | strong reads that one duplicate answers, as long as a lease is held |
//! | `spop.rs` | `SPOP`: drawn by one, removed from all |
//! | `effects.rs` | scripts and their like: done by one, the others get what it did |
//! | `expiry.rs`, `late.rs` | keys expire at one place in the order of writes, for the late too |
//! | `scripts.rs`, `functions.rs` | scripts by their names; libraries, the same everywhere |
//! | `function_flags.rs` | which functions write nothing |
//! | `busy.rs` | who would wait for a script that runs for too long is told |
//! | `checks.rs` | who holds something else than the others is found and filled again |
//! | `emptied.rs` | who was emptied by somebody else is known before its next answer |
//! | `silence.rs` | who owes an answer and says nothing: slow, or dead? |
//! | `streams.rs` | `XADD key *`: ids that never go back |
//! | `local.rs` | what the frontend answers itself |
//! | `newer.rs` | commands that our table does not have and all duplicates do |
//! | `users.rs` | who a client is, and what it may do |
//! | `answered_here.rs` | the same within `MULTI` |
//! | `asking.rs` | questions about servers, not about keys: one duplicate is asked, or all |
//! | `info.rs`, `config_command.rs`, `client_command.rs` | `INFO`, `CONFIG`, `CLIENT` |
//! | `wait_command.rs` | `WAIT`: until so many duplicates have a write |
//! | `cluster.rs` | what clients of Redis Cluster are answered otherwise |
//! | `front.rs` | what the next ones share |
//! | `databases.rs` | `SELECT`: which database a key is of |
//! | `watch.rs` | `WATCH`: when keys were written last |
//! | `tracking.rs`, `tracking_command.rs` | `CLIENT TRACKING`: who keeps what, and is told when it changes |
//! | `log_failed.rs` | the log cannot be written, and is tried again |
//! | `channels.rs` | `SUBSCRIBE`, `PUBLISH`: messages to who listens now |
//! | `key_events.rs` | what becomes of keys is told to who listens to that |
//! | `monitor.rs` | commands are shown to who watches |
//! | `pause.rs` | `CLIENT PAUSE`: commands that are kept back |
//! | `waiting.rs`, `group_waits.rs` | `BLPOP` and its kin, consumers of groups: who waits for what |
//! | `bootstrap.rs` | writes and keys for servers that are being filled |
//! | `state_pass.rs` | every key's value goes into the log, so that what is older may be forgotten |
//! | `moving.rs` | what another partition gets of a shard that moves there |
//! | `judge.rs` | which changes of the layout are taken |
//! | `replay.rs` | what a duplicate that comes back needs, and how it gets what the log has |
//! | `refused.rs` | who refused a write lacks it, whatever its watermark says |
//! | `layout.rs` | partitions and duplicates that come and go |
//! | `state.rs` | how everything stands, from what is counted ([`evenkeel_duplicates_state`]) |
//! | `clients.rs` | who asked, and the order of their answers |
//! | `connection_state.rs` | what waits to be sent to a server, and what it owes |
//! | `types.rs` | words that all of them share |

mod access;
mod all_keys;
mod answered_here;
mod answers;
mod asking;
mod bootstrap;
mod busy;
mod channels;
mod checks;
mod client_command;
mod clients;
mod cluster;
mod config_command;
mod connection_state;
mod databases;
mod effects;
mod emptied;
mod expiry;
mod flush;
mod front;
mod function_flags;
mod functions;
mod gather;
mod group_waits;
mod info;
mod judge;
mod key_events;
mod late;
mod layout;
mod local;
mod log_failed;
mod manage;
mod monitor;
mod moving;
mod newer;
mod pause;
mod places;
mod read_order;
mod reading;
mod refused;
mod replay;
mod scan;
mod scripts;
mod settling;
mod silence;
mod spop;
mod state;
mod state_pass;
mod streams;
mod strong;
mod tracking;
mod tracking_command;
mod types;
mod users;
mod wait_command;
mod waiting;
mod watch;
#[cfg(any(test, feature = "world"))]
#[expect(clippy::unwrap_used, reason = "it is for tests")]
#[cfg_attr(not(test), expect(dead_code, reason = "tests of other crates only begin one"))]
pub mod world;

use std::cell::{Cell, RefCell, RefMut};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::request::partition::ShardMap;
use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Copies, Copying, Dropped, History, Members, Position,
    ReplicaState, Sequence, ServerSet, Watches,
};
use slab::Slab;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use asking::Questions;
pub use asking::{Aside, BUSY_WITHIN};
pub use bootstrap::count_commands;
use checks::Checks;
pub use clients::Client;
pub use connection_state::ConnectionState;
pub use effects::EFFECTS_BYTES_MAX;
use effects::Effects;
use evenkeel_duplicates_config::changes::Changes;
use evenkeel_duplicates_config::{Connector, DuplicatesConfig};
use evenkeel_duplicates_state::counts::Counts;
use evenkeel_leadership::Leadership;
use evenkeel_leadership::cluster::ClusterView;
use evenkeel_leadership::layout::Layout;
use evenkeel_manager::{Manager, Sample};
use evenkeel_redis_acl::Users;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::timer::Timer;
use evenkeel_stores::resp::channels::Subscriptions;
use evenkeel_stores::resp::scripts::Scripts;
use evenkeel_stores::store::keys;
use evenkeel_wal::{Log, LogPlace};
use expiry::Expiry;
use function_flags::FunctionFlags;
use gather::Gather;
use key_events::KeyEvents;
use late::WasLate;
use monitor::Monitors;
pub use moving::Move;
use pause::Pause;
pub use reading::RETRIES_MAX as READ_RETRIES_MAX;
use reading::Reads;
use refused::Refusals;
use scan::Scans;
pub use state_pass::StatePass;
use streams::Streams;
use strong::Strong;
use tracking::Trackers;
use types::Owed;
pub use types::{ClientId, ParsedCommand};
use types::{Form, Late, Pop};
use users::Permissions;
pub use users::SharedUsers;
use wait_command::Wait;
use waiting::Waiting;

/// Writes after which a duplicate is told its watermark at the latest. Replaying this many again
/// takes a millisecond; telling it more often costs every one of them.
const UNMARKED_MAX: u64 = 512;
/// How often it is told whether the lease is valid, which it stops to be without an event.
const LEADERSHIP_EVERY: Duration = Duration::from_secs(1);

/// One service, shared by the tasks of its thread.
#[derive(Debug)]
pub struct Engine {
    inner: RefCell<Inner>,
    /// How often somebody may have changed something.
    stirs: Cell<u64>,
    /// Whether somebody waits for the next change.
    is_watched: Cell<bool>,
    stirred: Notify,
}

/// What a task sees of it.
#[derive(Debug)]
pub struct Inner {
    /// Its `[duplicates.NAME]`, with the duplicates as the layout has them.
    pub config: Rc<DuplicatesConfig>,
    /// By server.
    pub connectors: Vec<Connector>,
    pub(crate) clock: Clock,
    /// The time of the event that is being handled.
    pub now: Instant,
    /// That of the layout.
    pub map: ShardMap,
    /// Which partition has which shards and duplicates.
    pub layout: Layout,
    /// A shard on its way to another partition.
    pub moving: Option<Move>,
    /// What was asked for, and what became of it.
    pub changes: Changes,
    /// Which duplicates are live, and what each owes.
    pub members: Members,
    /// The last write, and how far back the log tells everything.
    pub history: History,
    /// Every write, before any duplicate has it.
    pub log: Log,
    /// Duplicates, by number.
    pub servers: Vec<Server>,
    /// Who clients may be.
    pub users: Arc<Users>,
    permissions: Permissions,
    pub(crate) clients: Slab<Client>,
    pub(crate) calls: Slab<Call>,
    reads: Reads,
    /// Those that were silent at the last look.
    silent: ServerSet,
    pub(crate) counts: Counts,
    /// Where an objective is given.
    pub(crate) manager: Option<Manager>,
    /// Why no write is taken at the moment.
    pub(crate) failure: Option<String>,
    /// When that may have passed.
    mend_at: Instant,
    /// Where processes take turns.
    pub(crate) leadership: Option<Rc<Leadership>>,
    /// Who serves which slots, where clients of Redis Cluster are served.
    pub cluster: Option<ClusterView>,
    flusher: Option<Waker>,
    is_scheduled: bool,
    serial: u64,
    scratch: Vec<u8>,
    /// A state of everything that is being written into the log.
    pub state_pass: Option<StatePass>,
    streams: Streams,
    strong: Strong,
    checks: Checks,
    /// Commands in several partitions.
    gathers: Slab<Gather>,
    scans: Scans,
    questions: Questions,
    wait_list: Vec<Wait>,
    watches: Watches,
    tracking: Trackers,
    waiting: Waiting,
    pause: Pause,
    subscriptions: Subscriptions<ClientId>,
    published: channels::Published,
    key_events: KeyEvents,
    monitors: Monitors,
    function_flags: FunctionFlags,
    effects: Effects,
    scripts: Scripts,
    expiry: Expiry,
    refusals: Refusals,
    /// What is done again.
    late: Vec<WasLate>,
    /// The last database that may have keys.
    pub database_last: u8,
}

/// One duplicate.
#[derive(Debug, Default)]
pub struct Server {
    /// Rises whenever another duplicate gets this number.
    pub generation: u64,
    /// Rises with every connection: what belongs to an earlier one is dead.
    pub connection: u64,
    /// Writes, and what must come in their order.
    pub ordered: ConnectionState,
    /// Reads that need no order.
    pub free: ConnectionState,
    /// While it is being filled.
    pub bootstrap: Option<Bootstrap>,
    /// It gets the whole log, as nobody is live who could tell what is there.
    pub is_restored: bool,
    /// The last write whose watermark it was told.
    pub(crate) marked: Sequence,
    /// Whoever brings it up to date waits for answers.
    pub progress: Option<Waker>,
    /// What it holds differed from what the others hold: it must be filled again.
    pub(crate) quarantine: Option<String>,
    /// Why it was dropped last, for people.
    pub error: Option<String>,
    /// What it said when it was reached last.
    pub holds_data: Option<bool>,
    /// What it does not tell of itself, as that was said.
    pub(crate) is_unsure: BTreeSet<String>,
    /// The version that it said to be.
    pub version: Option<String>,
    /// How many databases it had when it was reached last.
    pub databases: Option<u8>,
}

/// A server that is being filled from another.
#[derive(Debug)]
pub struct Bootstrap {
    /// The duplicate that its keys come from.
    pub source: usize,
    /// Which keys have come, and which are awaited.
    pub copying: Copying,
}

/// A write, or a read that needs several answers, from its sending to its last answer.
#[derive(Debug)]
pub(crate) struct Call {
    copies: Copies,
    /// How many must answer before the client is told.
    level: Acknowledge,
    /// Only whoever leads may tell the client: a write or a strong read.
    needs_leadership: bool,
    /// The write's place; `None` for a read.
    write: Option<Sequence>,
    partition: usize,
    /// Its copies at the partition that the shard moves to.
    mirror: Option<Box<moving::Mirror>>,
    opened: Instant,
    /// Whose it is, until that one is told.
    client: Option<(ClientId, u64)>,
    form: Form,
    /// It removes what an `SPOP` has drawn.
    pop: Option<Box<Pop>>,
    /// It is a try of a command that waits.
    waiter: Option<u64>,
    /// The answer, where it is not one of theirs: they got what another had done.
    told: Option<Vec<u8>>,
    /// One of them had done it before it had its place: whether the log has it by now.
    done_before: Option<IsLogged>,
    /// It removes a key that has expired: at some it is gone already, and their answers differ.
    removes_expired: bool,
    /// Keys whose deadlines it sets, by their numbers.
    sets: Vec<u64>,
    /// A deadline was said again behind it.
    late: Option<Box<Late>>,
    /// The first answer, until enough have come.
    answer: Option<Vec<u8>>,
    /// When it came, since the call was opened.
    first_took: Option<Duration>,
    /// The same in short: all duplicates must say the same.
    digest: Option<u64>,
    /// Answers that differ from it: whose, in short, and as they came.
    others: Vec<(usize, u64, Vec<u8>)>,
    /// The command, of a read.
    text: Vec<u8>,
    /// For the manager, when it is one of those.
    sample: Option<Box<Sample>>,
}

impl Engine {
    /// One service with a log that was recovered and a layout that is in force.
    pub fn new(
        (config, known_users): (DuplicatesConfig, SharedUsers),
        connectors: Vec<Connector>,
        clock: Clock,
        (log, history): (Log, History),
        layout: Layout,
        leadership: Option<Rc<Leadership>>,
    ) -> Rc<Self> {
        let (members, servers) = members_of(&config);
        let checks = Checks::new(config.check_rate);
        let reads = Reads::new(&config, servers, history.last().epoch.0);
        let mut inner = Inner {
            members,
            reads,
            silent: ServerSet::EMPTY,
            counts: Counts::new(servers, clock.now()),
            manager: None,
            users: users::now(&known_users),
            permissions: Permissions::of(known_users),
            config: Rc::new(config),
            connectors,
            clock,
            now: clock.now(),
            map: layout.map.clone(),
            layout,
            moving: None,
            changes: Changes::default(),
            strong: Strong::new(history.last().sequence),
            history,
            log,
            servers: (0..servers).map(|_| Server::default()).collect(),
            clients: Slab::new(),
            calls: Slab::new(),
            failure: None,
            mend_at: Instant::ZERO,
            leadership,
            cluster: None,
            flusher: None,
            is_scheduled: false,
            serial: 0,
            scratch: Vec::new(),
            state_pass: None,
            streams: Streams::default(),
            checks,
            gathers: Slab::new(),
            scans: Scans::default(),
            questions: Questions::default(),
            wait_list: Vec::new(),
            watches: Watches::default(),
            tracking: Trackers::default(),
            waiting: Waiting::default(),
            pause: Pause::default(),
            subscriptions: Subscriptions::default(),
            published: channels::Published::default(),
            key_events: KeyEvents::default(),
            monitors: Monitors::default(),
            function_flags: FunctionFlags::default(),
            effects: Effects::default(),
            scripts: Scripts::default(),
            expiry: Expiry::default(),
            refusals: Refusals::default(),
            late: Vec::new(),
            database_last: 0,
        };
        inner.replan_reads();
        inner.start_manager();
        let (stirs, is_watched) = (Cell::new(0), Cell::new(false));
        Rc::new(Self { inner: RefCell::new(inner), stirs, is_watched, stirred: Notify::new() })
    }

    /// The state, for as long as nothing is waited for.
    ///
    /// # Panics
    /// When somebody holds it: nobody may, across a wait.
    pub fn borrow(&self) -> RefMut<'_, Inner> {
        self.stirs.set(self.stirs.get().wrapping_add(1));
        if self.is_watched.replace(false) {
            self.stirred.notify_waiters();
        }
        self.inner.borrow_mut()
    }

    /// The same for whoever looks after what others change: it wakes nobody.
    pub fn look(&self) -> RefMut<'_, Inner> {
        self.inner.borrow_mut()
    }

    /// Waits until somebody may have changed something since `seen`, at the longest for so long:
    /// so a service that nobody asks anything sleeps.
    pub async fn stirred(&self, seen: &mut u64, at_most: Option<Duration>) {
        let stirred = async {
            while self.stirs.get() == *seen {
                self.is_watched.set(true);
                self.stirred.notified().await;
            }
        };
        match at_most {
            None => stirred.await,
            Some(at_most) => drop(tokio::time::timeout(at_most, stirred).await),
        }
        *seen = self.stirs.get();
    }

    /// What it does by itself, for the life of the service.
    pub fn keep_going(self: &Rc<Self>, tasks: &mut JoinSet<()>, timer: Timer) {
        tasks.spawn_local(Rc::clone(self).keep_flushing());
        tasks.spawn_local(Rc::clone(self).keep_time(timer));
        tasks.spawn_local(Rc::clone(self).keep_comparing());
        tasks.spawn_local(Rc::clone(self).keep_deadlines());
    }

    /// Writes the log, then lets the connections write, whenever something is pending: once for all
    /// that came in one turn of the event loop.
    async fn keep_flushing(self: Rc<Self>) {
        std::future::poll_fn(|context| {
            let mut inner = self.look();
            inner.flusher = Some(context.waker().clone());
            if std::mem::take(&mut inner.is_scheduled) {
                inner.try_groups();
                inner.flush();
            }
            Poll::<()>::Pending
        })
        .await;
    }
}

/// The duplicates of a configuration, and how many there are.
fn members_of(config: &DuplicatesConfig) -> (Members, usize) {
    let of_each = config.partitions.iter().enumerate();
    let of_each = of_each.flat_map(|(of, servers)| servers.iter().map(move |_| of));
    let partitions: Vec<usize> = of_each.collect();
    let mut members = Members::new(config.members, &partitions);
    while members.partitions() < config.partitions.len() {
        members.add_partition(); // closed
    }
    (members, partitions.len())
}

impl Inner {
    /// The present, read once for all that one read of a socket brought.
    pub fn read_clock(&mut self) {
        self.now = self.clock.now();
    }

    /// What is sent and owed on this connection, while it is the one in use.
    pub fn connection(
        &mut self,
        server: usize,
        connection: u64,
        kind: ConnectionKind,
    ) -> Option<&mut ConnectionState> {
        let server = &mut self.servers[server];
        let is_current = server.connection == connection;
        let state = server.connection(kind);
        (is_current && state.is_open).then_some(state)
    }

    /// Something is pending: flush at the end of this turn.
    pub fn schedule(&mut self) {
        if !self.is_scheduled {
            self.is_scheduled = true;
            if let Some(flusher) = &self.flusher {
                flusher.wake_by_ref();
            }
        }
    }

    /// The log first, then the duplicates.
    pub fn flush(&mut self) {
        self.exec_ready();
        self.redo_late();
        self.try_again();
        self.tell_key_events();
        self.tell_invalid();
        if self.log.is_dirty()
            && let Err(error) = self.log.commit()
        {
            self.fail(&error);
            return;
        }
        self.forget_gone();
        // A majority must be found without the log, so each has its watermark behind what it is
        // sent, in the same bytes; who relies on the log needs none.
        let unmarked_max = match self.members.acknowledge() {
            Acknowledge::One => UNMARKED_MAX,
            Acknowledge::Majority | Acknowledge::All => 1,
        };
        for server in 0..self.servers.len() {
            let position = self.members.sent_to(server);
            if position.0 >= self.servers[server].marked.0 + unmarked_max {
                self.mark(server);
            }
            let state = &mut self.servers[server];
            state.ordered.release();
            state.free.release();
        }
    }

    /// What the log has removed, to make room, cannot be had from it.
    pub fn forget_gone(&mut self) {
        self.history.forget_before(Sequence(self.log.first_sequence()));
        if self.log.state().is_none() {
            self.history.forget_state();
        }
    }

    /// Tells a live duplicate what it has.
    pub fn mark(&mut self, server: usize) {
        let position = self.members.sent_to(server);
        let state = &mut self.servers[server];
        if !state.ordered.is_open
            || position <= state.marked
            || self.members.state(server) == ReplicaState::Disconnected
            || state.bootstrap.is_some()
        {
            return;
        }
        write_mark(&mut state.ordered.pending, self.history.position(position));
        state.ordered.owe(Owed::Mark { watermark: position });
        state.marked = position;
        self.members.sent(self.now, server, None);
    }

    /// Whether the duplicates' watermarks are all that tells which writes there were.
    pub(crate) fn is_log_in_memory(&self) -> bool {
        self.config.log.place == LogPlace::Memory
    }

    /// A group that fails leaves no watermark, and what came before it waits for one.
    pub(crate) fn mark_before_group(&mut self, server: usize) {
        if self.is_log_in_memory() {
            self.mark(server);
        }
    }

    /// Tells all live duplicates of a partition what they have, so that they say it.
    pub fn mark_all(&mut self, partition: usize) {
        for server in self.members.live(partition).iter() {
            self.mark(server);
        }
        self.schedule();
    }

    /// Once in a while: who is silent, and who does not know what it has. Those that have begun to
    /// say nothing are to be probed.
    pub fn keep(&mut self) -> ServerSet {
        self.read_clock();
        if self.failure.is_some() && self.now >= self.mend_at {
            self.mend();
        }
        let doubted = self.look_at_silence();
        for server in 0..self.servers.len() {
            if self.members.state(server) == ReplicaState::InSync {
                self.mark(server);
            }
        }
        self.tick_manager();
        self.advance_move();
        self.look_at_effects();
        self.doubt_again();
        self.end_late_questions();
        self.look_at_newer();
        self.look_at_wait_list();
        self.look_at_key_events();
        self.look_at_tracked();
        self.tell_shown();
        self.look_after_waiters();
        self.end_pause_if_over();
        self.schedule();
        doubted
    }

    /// How long [`Self::keep`] may wait although nothing happens; `None`: until something does.
    pub fn keep_within(&self) -> Option<Duration> {
        let is_busy = self.members.deadline().is_some()
            || !self.effects.is_idle()
            || self.moving.is_some()
            || !self.wait_list.is_empty()
            || self.key_events.is_waiting()
            || !self.questions.is_empty()
            || self.changes.now.is_some();
        let busy = is_busy.then_some(Duration::ZERO).or_else(|| self.tracking.look_within());
        let manager = self.manager.as_ref().map(|manager| manager.tick_within(self.now));
        let leadership = self.leadership.as_ref().map(|_| LEADERSHIP_EVERY);
        let mending = self.failure.as_ref().map(|_| self.mend_at.since(self.now));
        [busy, manager, leadership, mending].into_iter().flatten().min()
    }

    /// A duplicate is given up: its connections close, what it owed is settled without it.
    pub fn drop_server(&mut self, server: usize, why: Dropped) {
        let state = &mut self.servers[server];
        if !state.ordered.is_open && !state.free.is_open {
            return;
        }
        state.connection += 1;
        state.bootstrap = None;
        state.marked = Sequence(0);
        state.error = Some(why.name().to_owned());
        let ordered = state.ordered.close();
        let free = state.free.close();
        state.wake();
        let partition = self.members.partition(server);
        let was_live = self.members.live(partition).contains(server);
        self.members.drop_server(server);
        self.replan_reads();
        if was_live {
            self.counts.dropped(server, why);
            tracing::warn!(server, why = why.name(), "a duplicate was dropped");
        }
        for owed in ordered.into_iter().chain(free) {
            self.lose(server, owed, why);
        }
        self.end_pass_from(server);
        self.end_move_from(server);
        self.end_round_with(server);
        // Whoever was filled from it starts again, from another.
        for other in 0..self.servers.len() {
            let bootstrap = self.servers[other].bootstrap.as_ref();
            if bootstrap.is_some_and(|bootstrap| bootstrap.source == server) {
                self.drop_server(other, Dropped::Lost);
            }
        }
        self.tell_shown();
        self.lose_effect_with(server);
        self.lose_source(server);
    }

    fn lose(&mut self, server: usize, owed: Owed, why: Dropped) {
        match owed {
            Owed::Access { call } | Owed::Group { call, .. } => {
                let partition = self.members.partition(server);
                self.calls[call].copies_at(partition).lose(server);
                self.settle(call);
            }
            Owed::Read { attempt } => self.lose_read(attempt, why),
            Owed::Draw { pop } => self.draw(pop),
            Owed::LastId { question } => self.last_id_lost(&question),
            Owed::Scan { number } => self.scan_lost(number),
            Owed::Asked { question, part } => self.question_lost(question, part),
            Owed::Inquiry { inquiry } => self.inquire(inquiry),
            Owed::Expiring { asking } => self.expiry_asked_lost(asking),
            Owed::Functions { generation } => self.functions_told(generation, None),
            _ => {}
        }
    }

    /// Those of a partition that are being filled.
    pub fn bootstrapping(&self, partition: usize) -> ServerSet {
        let configured = self.members.configured(partition);
        configured.iter().filter(|&server| self.servers[server].bootstrap.is_some()).collect()
    }
}

/// Whether the log has what was done before it had a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IsLogged(bool);

impl Server {
    /// One of its two connections.
    pub const fn connection(&mut self, kind: ConnectionKind) -> &mut ConnectionState {
        match kind {
            ConnectionKind::Ordered => &mut self.ordered,
            ConnectionKind::Free => &mut self.free,
        }
    }

    /// Whoever brings it up to date looks again.
    pub(crate) fn wake(&mut self) {
        if let Some(waker) = self.progress.take() {
            waker.wake();
        }
    }

    /// It was reached anew: both connections are empty.
    pub fn open(&mut self) -> u64 {
        self.connection += 1;
        for connection in [&mut self.ordered, &mut self.free] {
            debug_assert!(connection.owed.is_empty(), "closing returned what was owed");
            *connection = ConnectionState::default();
            connection.is_open = true;
        }
        self.connection
    }
}

/// `SET evenkeel:watermark "EPOCH SEQUENCE"`
pub fn write_mark(out: &mut Vec<u8>, position: Position) {
    keys::write_mark(out, position.numbers());
}
