//! A read that one answer is enough for: who is asked says the dispatcher.
//!
//! Candidates are the duplicates of the partition that count, are live and have what the session
//! must see ([`Members::eligible`]); policy, safeguards, retries and hedges are those of all other
//! upstreams. There is no future for each read: its call waits in [`Reads`], its attempts wait in
//! the connections for their replies. Nothing is cancelled on such a connection: a copy that lost
//! is in flight until its reply comes, so a duplicate that stands still looks as busy as it is.
//!
//! **Sent again** is only what sees no more than it would have seen at first. A read on the free
//! connection holds back its client's later writes of the same keys (`read_order.rs`), so it may be
//! sent again whenever that helps; one on the ordered connection holds back nothing, so it may only
//! while its client has sent nothing behind it, and only on ordered connections.
//!
//! [`Members::eligible`]: evenkeel_ordered::Members::eligible

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::copies::CopySink;
use evenkeel_core::request::redundancy::Hedge;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Refusal,
    Replay, ReplicaSet, Request, Step,
};
use evenkeel_core::units::Probability;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Fleet, GroupId, Health, Instant, ReplicaId};
use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Consistency, Dropped, Eligible, ReplicaState, Sequence, ServerSet,
};
use slab::Slab;

use super::strong::{Told, only_key};
use super::types::{ClientId, Form, Owed, ParsedCommand};
use super::{Engine, Inner};
use evenkeel_duplicates_config::DuplicatesConfig;
use evenkeel_duplicates_state::ReadBalance;
use evenkeel_manager::Sample;
use evenkeel_proxy::calls::replica_state;
use evenkeel_runtime::timer::Timer;
use evenkeel_store_link::compared::digest;
use evenkeel_stores::resp::commands::{self, Command};
use evenkeel_stores::resp::locate::Location;
use evenkeel_stores::resp::reply::{self, Blame, Shape};
use evenkeel_stores::resp::{databases, encode};

/// A read is idempotent and asks no duplicate twice: only budget and duplicates bound its retries.
pub const RETRIES_MAX: u8 = 6;
/// Texts of reads kept for the next ones, and how long they may be, so that no read allocates.
const TEXTS_MAX: usize = 1_024;
const TEXT_BYTES_MAX: usize = 4_096;
/// Replies that are kept for comparison as they are; of longer ones only their digest is.
const REPLY_BYTES_MAX: usize = 256;
/// Deadlines that are over may be kept, whatever the number of reads.
const DUES_MIN: usize = 64;
pub(super) const GONE: &str = "UNAVAILABLE the duplicates that were asked are gone; ask again";
const TOO_MANY: &str = "UNAVAILABLE too many reads wait already, as the policy sends no faster";

/// The reads of a service that are on their way.
#[derive(Debug)]
pub(super) struct Reads {
    pub(super) dispatcher: Dispatcher,
    open: Slab<Read>,
    /// When hedges are due; those of reads that were answered meanwhile stay until they surface.
    dues: BinaryHeap<Reverse<(Instant, usize)>>,
    /// Until when the timekeeper sleeps; `None` = until it is told.
    armed: Option<Instant>,
    timekeeper: Option<Waker>,
    /// Room for commands.
    texts: Vec<Vec<u8>>,
    plan_version: u64,
    /// What was counted since the service began.
    total: RequestWindow,
}

/// One read, from its sending to its last reply.
#[derive(Debug)]
struct Read {
    /// Until its client is told.
    call: Option<Call>,
    client: ClientId,
    slot: u64,
    shape: Shape,
    consistency: Consistency,
    /// Of a strong read that one duplicate answers: its key's hash, where it has one key.
    key_hash: Option<u64>,
    shard: usize,
    partition: usize,
    database: u8,
    /// The layout that it is of, where more than this shard counts.
    version: Option<u64>,
    /// Its client's later writes of the same keys wait for it.
    holds_writes: bool,
    opened: Instant,
    /// Copies on their way.
    owed: usize,
    /// The command, and behind it its first reply in short, if replies are compared; empty where
    /// nobody needs either.
    text: Vec<u8>,
    /// Where the reply begins in it.
    first_reply: Option<usize>,
    /// It may be sent again.
    may_resend: bool,
    /// Whether its replies are of one position.
    place: Place,
    /// When its hedge is due.
    due: Option<Instant>,
    /// How long the first copy took that was answered.
    first_took: Option<Duration>,
    /// Why a duplicate cannot serve, in case no other can either.
    excuse: Option<Vec<u8>>,
    /// For the manager, when it is one of those.
    sample: Option<Box<Sample>>,
}

/// Where in the order of writes the copies of a read are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nobody knows, or there is one copy.
    Unknown,
    /// All behind the same write.
    Ordered,
    /// All here, as long as no later write is sent.
    At(Sequence),
}

impl Read {
    fn command(&self) -> &[u8] {
        &self.text[..self.first_reply.unwrap_or(self.text.len())]
    }

    /// Whether the reply to a copy is of the same position as the others.
    #[inline]
    fn is_comparable(&self, sent_at: Instant, sent_to: impl FnOnce() -> Sequence) -> bool {
        match self.place {
            Place::Unknown => false,
            Place::Ordered => sent_at == self.opened,
            Place::At(place) => sent_at == self.opened && sent_to() == place,
        }
    }

    /// Whether a reply differs from the first one, which this may be.
    #[inline]
    fn differs(&mut self, reply: &[u8]) -> bool {
        let hash;
        let short = if reply.len() <= REPLY_BYTES_MAX {
            reply
        } else {
            hash = digest(reply).to_le_bytes(); // no reply: its last byte is 0x80 or more
            &hash
        };
        let Some(start) = self.first_reply else {
            self.first_reply = Some(self.text.len());
            self.text.extend_from_slice(short);
            return false;
        };
        self.text[start..] != *short
    }
}

impl Reads {
    pub(super) fn new(config: &DuplicatesConfig, servers: usize, seed: u64) -> Self {
        let behaviour = DispatcherConfig {
            safeguards: config.safeguards.clone(),
            retries_max: RETRIES_MAX,
            seed,
            ..DispatcherConfig::default()
        };
        // All accesses of the service pass here: nobody else reads from its duplicates.
        let fleet = Fleet::new(servers, Vec::new());
        let dispatcher = Dispatcher::new(fleet, config.policy.make(1), behaviour);
        let dispatcher = match &config.hedge {
            Some(hedge) => dispatcher.with_redundancy(Box::new(Hedge::new(hedge.clone()))),
            None => dispatcher,
        };
        Self {
            dispatcher,
            open: Slab::new(),
            dues: BinaryHeap::new(),
            armed: None,
            timekeeper: None,
            texts: Vec::new(),
            plan_version: 0,
            total: RequestWindow::default(),
        }
    }

    fn is_due(&self, key: usize, at: Instant) -> bool {
        self.open.get(key).is_some_and(|read| read.due == Some(at))
    }

    /// Notes when a read is to be stepped again.
    fn wait(&mut self, key: usize, due: Option<Instant>) {
        self.open[key].due = due;
        if let Some(at) = due {
            if self.dues.len() > DUES_MIN + 2 * self.open.len() {
                let Self { dues, open, .. } = self;
                dues.retain(|Reverse((at, key))| {
                    open.get(*key).is_some_and(|read| read.due == Some(*at))
                });
            }
            self.dues.push(Reverse((at, key)));
        }
        let held = self.dispatcher.deadline().map(|deadline| deadline.at);
        if let Some(at) = due.into_iter().chain(held).min() {
            self.arm(at);
        }
    }

    /// The timekeeper is to wake then, if not before.
    pub(super) fn arm(&mut self, at: Instant) {
        if self.armed.is_none_or(|armed| at < armed) {
            self.armed = Some(at);
            if let Some(timekeeper) = &self.timekeeper {
                timekeeper.wake_by_ref();
            }
        }
    }

    /// When a read is to be stepped next.
    fn deadline(&mut self) -> Option<Instant> {
        while let Some(&Reverse((at, key))) = self.dues.peek()
            && !self.is_due(key, at)
        {
            self.dues.pop();
        }
        let due = self.dues.peek().map(|&Reverse((at, _))| at);
        due.into_iter().chain(self.dispatcher.deadline().map(|deadline| deadline.at)).min()
    }

    /// Ends a read whose last reply has come and whose client was told.
    fn forget(&mut self, key: usize) -> Option<Box<Sample>> {
        let read = &self.open[key];
        if read.owed > 0 || read.call.is_some() {
            return None;
        }
        let read = self.open.remove(key);
        self.keep_text(read.text);
        read.sample
    }

    /// Room for a command, with it.
    pub(super) fn text_of(&mut self, parsed: ParsedCommand<'_>) -> Vec<u8> {
        let mut text = self.texts.pop().unwrap_or_default();
        text.clear();
        parsed.write(&mut text);
        text
    }

    pub(super) fn keep_text(&mut self, text: Vec<u8>) {
        let is_worth_it = (1..=TEXT_BYTES_MAX).contains(&text.capacity());
        if is_worth_it && self.texts.len() < TEXTS_MAX {
            self.texts.push(text);
        }
    }
}

impl Engine {
    /// Runs for the life of the service: steps reads whose hedges are due or whose rates open.
    pub(super) async fn keep_time(self: Rc<Self>, timer: Timer) {
        loop {
            let armed = {
                let mut inner = self.borrow();
                let own = [inner.waiting.deadline(), inner.pause.deadline()];
                let due = inner.reads.deadline().into_iter().chain(own.into_iter().flatten()).min();
                inner.reads.armed = due;
                due.map(|at| (at, timer.at(inner.clock.std_instant(at))))
            };
            let (at, mut wait) = armed.unzip();
            std::future::poll_fn(|context| {
                let mut inner = self.borrow();
                inner.reads.timekeeper = Some(context.waker().clone());
                if inner.reads.armed != at {
                    return Poll::Ready(()); // an earlier one, or the first
                }
                drop(inner);
                let Some(wait) = &mut wait else { return Poll::Pending };
                std::pin::Pin::new(wait).poll(context)
            })
            .await;
            let mut inner = self.borrow();
            inner.read_clock();
            inner.wake_reads();
            inner.end_overdue();
            inner.end_pause_if_over();
        }
    }
}

impl Inner {
    /// Tells this one from now on what becomes of each copy of a read.
    pub fn record_reads(&mut self, sink: Box<dyn CopySink>) {
        self.reads.dispatcher.record(sink, Probability::clamped(0.0));
    }

    /// Sends a client's read to those that the dispatcher says.
    pub(super) fn read_one(
        &mut self,
        id: ClientId,
        location: Location,
        (consistency, eligible): (Consistency, Eligible),
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let (shard, partition) = (location.shard, location.partition);
        let to = (eligible.connection, self.database_of(id));
        let key = self.reads.open.vacant_key();
        let request = Request::new(GroupId::new(partition), Replay::Always);
        let copies = if location.is_whole { 1 } else { self.config.read_copies };
        let request = Request { among: Some(eligible.from), copies, ..request };
        let mut call = self.reads.dispatcher.open(self.now, CallId(key as u64), request);
        let mut owed = 0;
        let due = loop {
            match self.next_step(&mut call) {
                Step::Send(attempt) => {
                    owed += 1;
                    self.send_read(attempt, to, |out| parsed.write(out));
                }
                Step::Wait { until } => break until.map(|deadline| deadline.at),
                Step::Refused(_) => {
                    self.reads.dispatcher.close(self.now, call);
                    return self.refuse(id, TOO_MANY);
                }
                Step::Cancel(_) | Step::Answered(_) => unreachable!("no reply has come"),
            }
        };
        self.drop_probes();
        let slot = self.slot(id);
        // What is held is sent later than what comes behind it.
        let holds_writes = eligible.connection == ConnectionKind::Free || owed == 0;
        if holds_writes {
            self.note_read_order(id, command, parsed);
        }
        // Where everybody has a copy there is nobody to send another to, or to wake up for.
        let may_resend = owed == 0 || owed < self.members.voters(partition).len();
        let place = if owed > 1 { self.place_of(&eligible) } else { Place::Unknown };
        let is_kept = may_resend || place != Place::Unknown;
        let text = if is_kept { self.reads.text_of(parsed) } else { Vec::new() };
        let sample = self.sample_of((shard, partition), owed);
        let inserted = self.reads.open.insert(Read {
            call: Some(call),
            client: id,
            slot,
            shape: commands::shape(command, parsed.arguments()),
            consistency,
            key_hash: only_key(consistency, &location, command, parsed),
            shard,
            partition,
            database: to.1,
            version: location.version,
            holds_writes,
            opened: self.now,
            owed,
            text,
            may_resend,
            place,
            first_reply: None,
            due: None,
            first_took: None,
            excuse: None,
            sample,
        });
        assert_eq!(inserted, key, "its call has the number of its place");
        self.reads.wait(key, due.filter(|_| may_resend || self.config.hedge.is_some()));
        self.schedule();
    }

    /// What the manager, where there is one, wants to know of an access.
    fn sample_of(&mut self, of: (usize, usize), owed: usize) -> Option<Box<Sample>> {
        self.manager.as_mut().and_then(|it| it.sent(self.now, of, owed.max(1)))
    }

    fn next_step(&mut self, call: &mut Call) -> Step {
        self.reads.dispatcher.step(self.now, call)
    }

    /// Questions that a policy wants asked have no answer: a duplicate says nothing of its queue.
    fn drop_probes(&mut self) {
        while let Some(probe) = self.reads.dispatcher.probe(self.now) {
            self.reads.dispatcher.probe_is_unknown(self.now, &probe);
        }
    }

    fn send_read(
        &mut self,
        attempt: Attempt,
        (connection, database): (ConnectionKind, u8),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let server = attempt.replica().index();
        self.counts.of(self.members.partition(server)).read_copies += 1;
        self.ask_in((server, connection, database), Owed::Read { attempt }, write);
    }

    /// A duplicate has replied to a read.
    pub(super) fn read_answered(&mut self, server: usize, attempt: Attempt, reply: &[u8]) {
        let (key, sent_at) = (attempt.call().0 as usize, attempt.sent_at());
        self.members.answered(self.now, server, None);
        let took = self.now.since(sent_at);
        self.counts.answered(server, took);
        let read = &mut self.reads.open[key];
        read.first_took.get_or_insert(took);
        if let Some(manager) = &mut self.manager {
            manager.answered(self.now, server, sent_at, read.sample.as_deref_mut());
        }
        let outcome = if cannot_serve(reply) {
            Outcome::Failed(Failure::Unavailable)
        } else {
            if read.is_comparable(sent_at, || self.members.sent_to(server)) && read.differs(reply) {
                self.follow(key);
            }
            Outcome::Replied(None)
        };
        self.learn(attempt, &outcome, Some(reply));
    }

    /// Where the copies of a read are that leave now.
    fn place_of(&self, eligible: &Eligible) -> Place {
        if eligible.connection == ConnectionKind::Ordered {
            return Place::Ordered;
        }
        let Some(first) = eligible.from.first() else { return Place::Unknown };
        let place = self.members.applied(first);
        let is_there = |server: usize| {
            self.members.applied(server) == place && self.members.sent_to(server) == place
        };
        if eligible.from.iter().all(is_there) { Place::At(place) } else { Place::Unknown }
    }

    /// Replies to a read at one position are equal, most of the time; a key is compared where they
    /// are not.
    #[cold]
    fn follow(&mut self, key: usize) {
        if !self.follows() {
            return;
        }
        let read = &mut self.reads.open[key];
        read.place = Place::Unknown; // it is followed once
        let (partition, mut command) = (read.partition, Vec::new());
        databases::write_within(&mut command, read.database, |out| {
            out.extend_from_slice(read.command());
        });
        self.suspect_keys_of(partition, &command);
    }

    /// How long another duplicate took for a read.
    pub(super) fn read_took(&self, attempt: &Attempt) -> Option<Duration> {
        self.reads.open[attempt.call().0 as usize].first_took
    }

    /// A duplicate says nothing: others are asked beside it for the reads that only it owes. Each
    /// is asked beside once, so that a slow one does not keep all duplicates busy.
    pub(super) fn ask_beside(&mut self, server: usize) {
        let state = &self.servers[server];
        let owed = state.ordered.all_owed().chain(state.free.all_owed());
        let read = |owed: &Owed| match owed {
            Owed::Read { attempt } => Some(attempt.call().0 as usize),
            _ => None,
        };
        for key in owed.filter_map(read).collect::<Vec<_>>() {
            if self.reads.open[key].owed == 1
                && let Some(call) = &mut self.reads.open[key].call
            {
                call.doubt(self.now);
                self.advance(key);
                self.forget_read(key);
            }
        }
    }

    /// A duplicate was dropped that owed the reply to a read.
    pub(super) fn lose_read(&mut self, attempt: Attempt, why: Dropped) {
        let failure = match why {
            Dropped::Silent => Failure::TimedOut,
            Dropped::Lost | Dropped::Full | Dropped::Failed | Dropped::Diverged => Failure::Broken,
        };
        self.learn(attempt, &Outcome::Failed(failure), None);
    }

    /// Learns what became of an attempt, whether or not its read still waits for it.
    fn learn(&mut self, mut attempt: Attempt, outcome: &Outcome, reply: Option<&[u8]>) {
        let (key, server) = (attempt.call().0 as usize, attempt.replica().index());
        reply.iter().for_each(|reply| attempt.note_size(reply.len() as u64));
        let settled = self.reads.dispatcher.learn(self.now, &mut attempt, outcome);
        self.reads.dispatcher.finish(self.now, attempt, BodyEnd::Complete);
        let read = &mut self.reads.open[key];
        assert!(read.owed > 0, "a reply nobody waited for");
        read.owed -= 1;
        if let Some(call) = &mut read.call {
            call.settle(settled);
            match (outcome, reply) {
                (Outcome::Replied(_), Some(reply)) => self.tell(key, server, reply),
                (_, excuse) => {
                    if let Some(excuse) = excuse {
                        read.excuse = Some(excuse.to_vec());
                    }
                    self.advance(key);
                }
            }
        }
        self.forget_read(key);
        self.resume_reads();
    }

    fn forget_read(&mut self, key: usize) {
        if let Some(sample) = self.reads.forget(key)
            && let Some(manager) = &mut self.manager
        {
            manager.learn(*sample);
        }
    }

    /// Gives a read's client the reply of this duplicate.
    fn tell(&mut self, key: usize, server: usize, reply: &[u8]) {
        let read = &mut self.reads.open[key];
        // Those that lost are left behind: nobody is told to cancel them.
        let Some(call) = read.call.take() else { return };
        let (client, slot) = (read.client, read.slot);
        let (partition, key_hash) = (read.partition, read.key_hash);
        let is_strong = read.consistency == Consistency::Strong;
        let opened = call.opened_at();
        let told = Told { client, slot, shape: read.shape, opened, partition };
        if is_strong && !self.leads() {
            return self.refuse_read(key, call, Refusal::NoReplica);
        }
        let latency = self.now.since(call.opened_at());
        if let Some(sample) = &mut self.reads.open[key].sample {
            sample.client = Some(latency);
        }
        self.reads.dispatcher.close(self.now, call);
        let seen = self.members.sent_to(server);
        self.saw(client, seen);
        if is_strong && self.has_lease() {
            return self.show(partition, self.strong.leased.shows(key_hash, seen), &told, reply);
        }
        self.tell_read(&told, reply);
    }

    /// Goes on with a read: a copy of it failed, its hedge is due, or it is no longer held.
    fn advance(&mut self, key: usize) {
        let Some(mut call) = self.reads.open[key].call.take() else { return };
        self.reads.open[key].due = None;
        if self.client(self.reads.open[key].client).is_none() {
            return self.reads.dispatcher.close(self.now, call);
        }
        let (connection, among) = self.candidates(key);
        call.limit(among);
        if self.tracking.is_on() && !among.is_empty() {
            let read = &self.reads.open[key];
            let (place, database) = ((read.client, read.slot), read.database);
            let text = read.command().to_vec();
            self.track_again(place, (connection, among), database, &text);
        }
        loop {
            match self.next_step(&mut call) {
                Step::Send(attempt) => {
                    let read = &mut self.reads.open[key];
                    let (length, database) = (read.command().len(), read.database);
                    let text = std::mem::take(&mut read.text);
                    let write = |out: &mut Vec<u8>| out.extend_from_slice(&text[..length]);
                    self.send_read(attempt, (connection, database), write);
                    self.drop_probes();
                    let read = &mut self.reads.open[key];
                    (read.text, read.owed) = (text, read.owed + 1);
                    self.schedule();
                }
                Step::Cancel(_) => {} // left behind
                Step::Wait { until } => {
                    self.reads.open[key].call = Some(call);
                    return self.reads.wait(key, until.map(|deadline| deadline.at));
                }
                Step::Answered(_) => return self.excuse(key, call),
                Step::Refused(refusal) => return self.refuse_read(key, call, refusal),
            }
        }
    }

    /// Who may answer a read that waits, as things are now, and on which connection.
    fn candidates(&mut self, key: usize) -> (ConnectionKind, ReplicaSet) {
        const NOBODY: (ConnectionKind, ReplicaSet) = (ConnectionKind::Ordered, ServerSet::EMPTY);
        let read = &self.reads.open[key];
        let (id, slot, holds_writes) = (read.client, read.slot, read.holds_writes);
        let (shard, partition, consistency) = (read.shard, read.partition, read.consistency);
        let is_elsewhere = self.map.partition(shard) != partition
            || read.version.is_some_and(|version| version != self.map.version());
        if !read.may_resend || is_elsewhere {
            return NOBODY;
        }
        let Some(client) = self.client(id) else { return NOBODY };
        // A command that is under way without a slot may have written already.
        let is_last = client.slots().1 == slot && !client.is_held();
        let session = client.session;
        if !holds_writes && !is_last {
            return NOBODY; // a copy might see what its client wrote behind it
        }
        match self.eligible(partition, consistency, session) {
            Ok(eligible) if eligible.needs == Acknowledge::One => {
                let connection =
                    if holds_writes { eligible.connection } else { ConnectionKind::Ordered };
                (connection, eligible.from)
            }
            Ok(_) | Err(_) => NOBODY,
        }
    }

    /// The only answers were that duplicates cannot serve: the last of them is the client's.
    fn excuse(&mut self, key: usize, call: Call) {
        self.reads.dispatcher.close(self.now, call);
        let read = &mut self.reads.open[key];
        let (client, slot, form) = (read.client, read.slot, Form::One(read.shape));
        let excuse = read.excuse.take().expect("a reply said so");
        self.counts.given_up(false);
        self.reply(client, slot, &excuse, &form);
    }

    /// There is no answer.
    fn refuse_read(&mut self, key: usize, call: Call, refusal: Refusal) {
        self.reads.dispatcher.close(self.now, call);
        let read = &self.reads.open[key];
        let (client, slot) = (read.client, read.slot);
        let is_deposed = read.consistency == Consistency::Strong && !self.leads();
        let mut answer = Vec::new();
        match refusal {
            _ if is_deposed => {
                encode::error(&mut answer, &format!("UNAVAILABLE {}", self.why_deposed()));
            }
            Refusal::BacklogFull => encode::error(&mut answer, TOO_MANY),
            Refusal::NoReplica | Refusal::Failed(_) => encode::error(&mut answer, GONE),
        }
        self.counts.given_up(false);
        self.reply(client, slot, &answer, &Form::One(Shape::Plain));
    }

    /// Steps the reads whose time has come.
    pub(super) fn wake_reads(&mut self) {
        while let Some(&Reverse((at, key))) = self.reads.dues.peek()
            && at <= self.now
        {
            self.reads.dues.pop();
            if self.reads.is_due(key, at) {
                self.advance(key);
                self.forget_read(key);
            }
        }
        self.reads.dispatcher.wake(self.now);
        self.resume_reads();
    }

    /// Steps the reads that were held and are no longer.
    pub(super) fn resume_reads(&mut self) {
        while let Some(CallId(key)) = self.reads.dispatcher.resumed() {
            self.advance(key as usize);
            self.forget_read(key as usize);
        }
    }

    /// Duplicates have come, gone or changed: whoever is not live is down, and one that is live
    /// again is as good as new.
    pub fn replan_reads(&mut self) {
        let health = |server: usize| match self.members.state(server) {
            _ if !self.members.is_configured(server) => Health::Draining,
            ReplicaState::InSync => Health::Up,
            ReplicaState::Disconnected | ReplicaState::CatchingUp => Health::Down,
        };
        let group = |partition| {
            let configured = self.members.configured(partition);
            configured.iter().map(ReplicaId::new).collect()
        };
        self.reads.plan_version += 1;
        let plan = RoutePlan {
            version: self.reads.plan_version,
            health: (0..self.servers.len()).map(health).collect(),
            generations: Vec::new(),
            groups: (0..self.members.partitions()).map(group).collect(),
        };
        self.reads.dispatcher.adopt(self.now, &plan);
        self.resume_reads();
    }

    /// How reads are balanced, since the service began.
    pub fn read_balance(&mut self) -> ReadBalance {
        let window = self.reads.dispatcher.window();
        let total = &mut self.reads.total;
        total.merge(&window);
        let mut stats = evenkeel_proxy::upstream_state::UpstreamStats {
            total: total.clone(),
            ..Default::default()
        };
        // All of them, also those that asked a majority.
        stats.total.latency = Some(self.counts.reads());
        let dispatcher = &self.reads.dispatcher;
        let state = |server: usize| {
            let connections = [&self.servers[server].ordered, &self.servers[server].free];
            let connections = connections.iter().filter(|connection| connection.is_open).count();
            replica_state(dispatcher, self.now, ReplicaId::new(server), connections)
        };
        let states = (0..self.servers.len()).map(state).collect();
        stats.workers = vec![(states, dispatcher.held())];
        stats.hedges = vec![dispatcher.hedge()];
        let is_one = |server: &usize| self.members.is_configured(*server);
        let replica = |server: usize| {
            let health = dispatcher.fleet().replica(ReplicaId::new(server)).health();
            (server, self.connectors[server].to_string(), health)
        };
        let replicas = (0..self.servers.len()).filter(is_one).map(replica).collect();
        ReadBalance { policy: self.config.policy.text().to_owned(), stats, replicas }
    }
}

/// Whether a reply tells of the duplicate's condition, which another may not share. A command that
/// it does not know the others know as little.
pub(super) fn cannot_serve(reply: &[u8]) -> bool {
    reply.first() == Some(&b'-')
        && !reply.starts_with(b"-ERR ")
        && reply::blame(reply) == Some(Blame::Server)
}

#[cfg(test)]
mod tests;
