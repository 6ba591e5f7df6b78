//! Commands that depend on time, chance or the server (scripts, deliveries to consumer groups): one
//! live duplicate does them, the others get what it has done.
//!
//! 1. *Begun*: the replication stream of the **executor** is asked for, if it does not flow yet.
//!    Others go on meanwhile. Then the executor gets `MULTI`, the command, a watermark that names
//!    the attempt, `EXEC` on its ordered connection and is ahead of the log. No write of its
//!    partition is taken, no answer that could show what it did is passed on
//!    ([`Inner::holds_answers`]), nobody is copied from it.
//! 2. *Known*: its answer and its effects have come, these by its replication stream
//!    (`follow.rs`): plain commands, in a group that ends with that watermark.
//! 3. *Logged*: the effects get the next number, go to the log and to the others, as a client's
//!    transaction would. The executor has them already. The client is told what the executor
//!    answered when as many have them as `acknowledge` says.
//!
//! **Exactly once.** The watermark of an attempt is no position: a duplicate that returns with it
//! is nobody's and is filled anew, whoever leads then. So an attempt whose effects were not logged
//! never was, and the command is done again by another. Hence the rule that a partition has two
//! live duplicates when an attempt begins, or a log that has everything: somebody must be there to
//! fill the executor from. A command that has no effects is logged as a removal of nothing, so that
//! its answer, too, waits until a majority has what it saw.
//!
//! **What a script must not do** is known when it is done: such an executor is dropped and filled
//! anew, and the client gets an error. Only keys of another partition are let be: all duplicates
//! get them alike, then they are removed.

mod followed;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::{ConnectionKind, Dropped, Sequence, ServerSet};
use tokio::sync::Notify;
use xxhash_rust::xxh3::xxh3_128;

use followed::Stream;

use super::Inner;
use super::answers::single_of_exec;
use super::clients::Transaction;
use super::types::{ANOTHER_RUNS, ClientId, Done, Form, Owed, ParsedCommand, Pop, Write};
use super::watch::Watching;
use evenkeel_store_link::expiry;
use evenkeel_store_link::read_counts::{self, Read};
use evenkeel_stores::resp::commands::{self, Class, Command, Keys, Local, Repeat, Whole};
use evenkeel_stores::resp::replication::Group;
use evenkeel_stores::resp::{databases, encode, reply};
use evenkeel_stores::store::keys::AHEAD;

/// How often a command is begun, when who does it is lost each time.
const ATTEMPTS_MAX: u32 = 3;
/// How long the stream of an executor may take to begin: where it needs a snapshot, five seconds by
/// `repl-diskless-sync-delay` and the fork of a large server.
const ATTACH_MAX: Duration = Duration::from_secs(20);
/// How long effects may come after the answer.
const EFFECTS_MAX: Duration = Duration::from_secs(5);
/// How long others wait for a command that all partitions are ready for: its client may not read
/// its answers, and is not asked for its next command then.
const TAKE_MAX: Duration = Duration::from_secs(1);
/// Bytes that one command may change.
pub const EFFECTS_BYTES_MAX: usize = 64 << 20;

/// What is done by one duplicate at the moment.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// By partition.
    running: BTreeMap<usize, Effect>,
    /// By server.
    streams: BTreeMap<usize, Stream>,
    /// Rises with every attempt.
    attempts: u64,
    /// Those that wait until they may draw.
    pops: Vec<Pop>,
    wants_all: Option<WantsAll>,
    /// A stream is wanted.
    wanted: Rc<Notify>,
}

/// A client whose command needs all partitions at once: until it is taken no other of this kind
/// begins, or clients that send one script after the other would keep it out for ever.
#[derive(Debug)]
struct WantsAll {
    client: ClientId,
    /// Since when it could be taken.
    since: Option<Instant>,
    /// Clients whose commands wait for it, while none runs.
    waiting: Vec<ClientId>,
}

/// One command, from its coming until its effects are logged.
#[derive(Debug)]
struct Effect {
    request: Request,
    executor: usize,
    attempts: u32,
    /// The watermark of the attempt that was sent.
    mark: Option<Vec<u8>>,
    /// When it was begun, sent, and answered.
    since: Instant,
    answer: Option<Vec<u8>>,
    group: Option<Group>,
    /// Groups whose entries it may read.
    reads: Vec<Read>,
    /// Places of keys near a deadline, and once it is answered of those that had gone.
    near: Vec<Box<[u8]>>,
    /// What an `EXEC` depends on.
    watching: Option<Box<Watching>>,
    /// Clients whose commands wait.
    waiting: Vec<ClientId>,
}

/// What a client asks for.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) client: ClientId,
    pub(super) shard: usize,
    /// Commands, one after the other.
    pub(super) commands: Vec<u8>,
    pub(super) count: u32,
    pub(super) form: Form,
    /// Of an EXEC: the database where its client is if nothing of it is done.
    pub(super) home: Option<u8>,
    /// It is a try of a consumer that waits.
    pub(super) waiter: Option<u64>,
    /// What the transaction publishes besides.
    pub(super) published: Vec<u8>,
}

impl Effects {
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.wants_all.is_none()
    }

    /// Whether somebody is, or is about to be, ahead of the log there.
    pub(super) fn is_busy(&self, partition: usize) -> bool {
        self.running.contains_key(&partition)
    }

    /// Whether somebody is ahead of the log there: nothing else gets a place.
    pub(super) fn is_ahead(&self, partition: usize) -> bool {
        self.ahead_in(partition).is_some()
    }

    /// Who is ahead of the log there.
    #[inline]
    pub(super) fn ahead_in(&self, partition: usize) -> Option<usize> {
        let effect = self.running.get(&partition)?;
        effect.mark.is_some().then_some(effect.executor)
    }

    /// Whether this one is who is ahead.
    pub(super) fn is_executor(&self, server: usize) -> bool {
        self.running.values().any(|effect| effect.executor == server)
    }

    /// Whether the stream of this one flows.
    pub(super) fn is_followed(&self, server: usize) -> bool {
        self.streams.get(&server).is_some_and(|stream| stream.is_open)
    }

    /// Partitions where a command has been under way for so long.
    pub(super) fn late(&self, now: Instant, after: Duration) -> Vec<usize> {
        let is_late =
            |it: &Effect| it.mark.is_some() && it.answer.is_none() && now.since(it.since) >= after;
        self.running.iter().filter(|(_, it)| is_late(it)).map(|(&partition, _)| partition).collect()
    }

    /// Clients that wait for the command there, and not the one that it is of.
    pub(super) fn take_others_waiting(&mut self, partition: usize) -> Vec<ClientId> {
        let Some(effect) = self.running.get_mut(&partition) else { return Vec::new() };
        effect.waiting.split_off(usize::from(effect.request.waiter.is_none()))
    }

    /// Whether somebody waits for all partitions: nothing of this kind is begun.
    pub(super) const fn is_wanted_by_all(&self) -> bool {
        self.wants_all.is_some()
    }

    /// A client waits while somebody is ahead of the log there; whether anybody is.
    pub(super) fn wait_behind(&mut self, partition: usize, id: ClientId) -> bool {
        let ahead = self.running.get_mut(&partition).filter(|effect| effect.mark.is_some());
        ahead.map(|effect| effect.waiting.push(id)).is_some()
    }

    /// An `SPOP` has to wait until it may draw.
    pub(super) fn postpone(&mut self, pop: Pop) {
        self.pops.push(pop);
    }
}

impl Inner {
    /// Has a command wait while one of its partitions has a duplicate that is ahead; whether it
    /// waits. Where somebody waits for all partitions, nothing of this kind is begun before.
    #[must_use]
    pub(super) fn holds_behind_effects(
        &mut self,
        id: ClientId,
        command: &Command,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        if self.effects.is_idle() {
            return false;
        }
        let Some(client) = self.clients.get(id.key).filter(|it| it.is(id) && it.is_known()) else {
            return false;
        };
        let transaction = client.transaction.as_ref();
        let executed = transaction.filter(|_| class == Class::Local(Local::Exec));
        let mut partition = match (executed, transaction, class) {
            (Some(transaction), ..) => self.busy_for(transaction),
            (None, Some(_), _) | (.., Class::Local(_) | Class::Refused(_)) => None,
            _ => self.busy_before(id, command, class, parsed),
        };
        let is_effect = executed.map_or(class == Class::Effects, |it| it.is_effect);
        let is_of_all =
            matches!(class, Class::Whole(Whole::Flush | Whole::Libraries { changes: true }));
        let is_whole = is_of_all && transaction.is_none() || executed.is_some_and(|it| it.empties);
        let any = self.effects.running.keys().next().copied();
        match &mut self.effects.wants_all {
            None if is_whole && partition.is_some() => self.want_all(id),
            Some(other) if is_effect && other.client != id => match partition.or(any) {
                None => {
                    other.waiting.push(id);
                    self.hold(id);
                    return true;
                }
                waits_for => partition = waits_for,
            },
            Some(own) if own.client == id && partition.is_none() => self.wants_all_no_more(id),
            _ => {}
        }
        let effect = partition.and_then(|it| self.effects.running.get_mut(&it));
        let Some(effect) = effect else { return false };
        effect.waiting.push(id);
        self.hold(id);
        true
    }

    /// A client's command needs all partitions, and one of them is busy.
    pub(super) fn want_all(&mut self, id: ClientId) {
        let new = || WantsAll { client: id, since: None, waiting: Vec::new() };
        self.effects.wants_all.get_or_insert_with(new);
    }

    /// A client's command that needs all partitions is taken, or its client has gone.
    pub(super) fn wants_all_no_more(&mut self, id: ClientId) {
        if let Some(over) = self.effects.wants_all.take_if(|it| it.client == id) {
            over.waiting.iter().for_each(|&id| self.release(id));
        }
    }

    /// The partition that an `EXEC` waits for.
    pub(super) fn busy_for(&self, transaction: &Transaction) -> Option<usize> {
        if transaction.empties {
            return self.effects.running.keys().next().copied();
        }
        let partition = self.map.partition(transaction.shard?);
        self.keeps_out(partition, transaction.is_effect).then_some(partition)
    }

    /// Whether a command waits for who does another one in this partition: one of the same kind
    /// from the beginning, others only while somebody is ahead of the log.
    fn keeps_out(&self, partition: usize, is_effect: bool) -> bool {
        match is_effect {
            true => self.effects.is_busy(partition),
            false => self.effects.is_ahead(partition),
        }
    }

    /// The same of a command outside of `MULTI`. Reads that overtake writes do not see it.
    pub(super) fn busy_before(
        &self,
        id: ClientId,
        command: &Command,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) -> Option<usize> {
        let client = self.clients.get(id.key)?;
        let sees = |partition: usize| {
            let eligible = self.members.eligible(partition, client.consistency(), client.session);
            eligible.is_ok_and(|it| it.connection == ConnectionKind::Ordered)
        };
        let mut running = self.effects.running.keys().copied();
        let (is_read, is_effect) = match class {
            Class::Whole(
                Whole::Flush | Whole::Libraries { changes: true } | Whole::Sort { .. },
            ) => return running.next(),
            Class::Whole(_) => return running.find(|&it| self.effects.is_ahead(it) && sees(it)),
            class => (class == Class::Read, class == Class::Effects),
        };
        let keys = commands::keys(command, parsed.arguments()).ok()?;
        let of_keys = keys.map(|at| self.partition_of(parsed.argument(at)));
        let is_free = command.keys == Keys::Script && self.map.partitions() == 1;
        let mut partitions = of_keys.chain(is_free.then_some(0));
        partitions.find(|&it| self.keeps_out(it, is_effect) && (!is_read || sees(it)))
    }

    /// A command whose effects are not known beforehand.
    pub(super) fn take_effects(
        &mut self,
        id: ClientId,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let (mut commands, database) = (Vec::new(), self.database_of(id));
        databases::write_within(&mut commands, database, |out| parsed.write(out));
        if let Some(lacks) = self.lacks(parsed.argument(0)) {
            return self.refuse(id, &lacks);
        }
        let shard = match self.shard_of(command, parsed) {
            Ok(shard) => shard,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let (client, count, home) = (id, databases::count_within(database), None);
        let (waiter, published) = (None, Vec::new());
        self.run_effects(Request { client, shard, commands, count, form, home, waiter, published });
    }

    /// Has one duplicate do what a client asks for.
    pub(super) fn run_effects(&mut self, request: Request) {
        self.try_again(); // pops of clients that wait come before
        let (id, partition) = (request.client, self.map.partition(request.shard));
        let why = self.refuses_effects(partition);
        let executor = if why.is_none() { self.choose_executor(partition, None) } else { None };
        // Only EXEC depends on what its client watches, and ends that.
        let is_exec = request.home.is_some();
        let Some(executor) = executor else {
            request.home.into_iter().for_each(|home| self.end_in(id, home));
            self.refuse(id, why.as_deref().unwrap_or(NO_EXECUTOR));
            return request.waiter.into_iter().for_each(|order| self.end_group_try(order));
        };
        self.hold(id);
        // Who waits is released when it waits no more.
        let waiting = if request.waiter.is_some() { Vec::new() } else { vec![id] };
        let effect = Effect {
            request,
            executor,
            attempts: 1,
            mark: None,
            since: self.now,
            answer: None,
            group: None,
            reads: Vec::new(),
            near: Vec::new(),
            watching: self.client(id).filter(|_| is_exec).and_then(|it| it.watching.take()),
            waiting,
        };
        let before = self.effects.running.insert(partition, effect);
        assert!(before.is_none(), "its client was held");
        self.attach(partition);
    }

    /// Why nothing of this kind is begun in a partition now.
    pub(super) fn refuses_effects(&mut self, partition: usize) -> Option<String> {
        if let Some(failure) = &self.failure {
            return Some(format!("UNAVAILABLE {failure}"));
        }
        if !self.leads() {
            return Some(format!("UNAVAILABLE {}", self.why_deposed()));
        }
        if self.effects.is_busy(partition) {
            return Some(ANOTHER_RUNS.to_owned());
        }
        let is_end =
            |it: &super::Move| it.moving.from() == partition || it.moving.to() == partition;
        if self.moving.as_ref().is_some_and(is_end) {
            return Some("TRYAGAIN a shard moves from or to this partition: ask again".to_owned());
        }
        if let Err(refused) = self.make_room(partition) {
            return Some(format!("UNAVAILABLE {refused}"));
        }
        (!self.can_fill_anew(partition)).then(|| ALONE.to_owned())
    }

    /// Whether who is ahead could be filled without what it did.
    fn can_fill_anew(&self, partition: usize) -> bool {
        let live = self.members.live(partition).and(self.members.voters(partition));
        live.len() >= 2 || self.history.is_whole()
    }

    /// Whether somebody of a partition can do such a command.
    pub(super) fn has_executor(&self, partition: usize) -> bool {
        self.choose_executor(partition, None).is_some()
    }

    /// Who does it: not who others are filled from, rather one whose stream is followed already,
    /// and of these who owes least; not the one that has just failed.
    fn choose_executor(&self, partition: usize, failed: Option<usize>) -> Option<usize> {
        let voters = self.members.voters(partition);
        let able = self.members.live(partition).and(voters).iter().filter(|&server| {
            self.members.is_settled(server)
                && !self.members.is_full(server)
                && failed != Some(server)
                && !self.is_copied_from(server)
        });
        able.min_by_key(|server| {
            let is_open = self.effects.is_followed(*server);
            // It tells key events as they are, and not as others do what it did.
            (!self.tells_events(*server), !is_open, self.members.owed(*server))
        })
    }

    fn is_copied_from(&self, server: usize) -> bool {
        let fills =
            |it: &super::Server| it.bootstrap.as_ref().is_some_and(|it| it.source == server);
        self.servers.iter().any(fills)
            || self.state_pass.as_ref().is_some_and(|it| !it.is_broken && it.source == server)
            || self.moving.as_ref().is_some_and(|it| it.source == Some(server))
    }

    /// Sends an attempt, or asks for its executor's stream first.
    fn attach(&mut self, partition: usize) {
        let Some(effect) = self.effects.running.get_mut(&partition) else { return };
        effect.since = self.now;
        let (server, connection) = (effect.executor, self.servers[effect.executor].connection);
        let stream = self.effects.streams.get(&server);
        match stream.filter(|stream| stream.connection == connection) {
            Some(stream) if stream.is_open => self.send_effect(partition),
            Some(_) => {}
            None => {
                let stream =
                    Stream { connection, is_followed: false, is_open: false, is_placed: false };
                self.effects.streams.insert(server, stream);
                self.effects.wanted.notify_one();
            }
        }
        self.schedule();
    }

    fn send_effect(&mut self, partition: usize) {
        let Some(effect) = self.effects.running.get(&partition) else { return };
        let server = effect.executor;
        if !self.can_fill_anew(partition) {
            return self.refuse_effect(partition, ALONE);
        }
        let (client, text) = (effect.request.client, effect.request.commands.clone());
        self.remove_expired_of(client, &text);
        let effect = self.effects.running.get(&partition);
        let Some(effect) = effect.filter(|it| it.executor == server && it.mark.is_none()) else {
            return; // it was dropped meanwhile
        };
        // What has just been removed may be watched.
        if effect.watching.as_ref().is_some_and(|it| self.is_broken(it, self.due_unix_ms())) {
            return self.abort_effect(partition);
        }
        let stream = self.effects.streams.get_mut(&server);
        if stream.is_some_and(|stream| !std::mem::replace(&mut stream.is_placed, true)) {
            self.servers[server].marked = Sequence(0); // it is marked anew
        }
        // What it is told to have later would be more than it has by the log.
        self.mark(server);
        self.effects.attempts += 1;
        let (epoch, attempt) = (self.history.last().epoch.0, self.effects.attempts);
        let mark = [AHEAD, format!("{epoch} {attempt}").as_bytes()].concat();
        let Some(effect) = self.effects.running.get_mut(&partition) else { return };
        effect.reads = read_counts::of(&effect.request.commands);
        let now = (self.expiry.unix_ms)();
        effect.near = expiry::near(&effect.request.commands, &self.expiry.deadlines, now);
        let mut commands = Vec::new();
        let count = expiry::ask(&effect.near, &mut commands) + effect.request.count;
        commands.extend_from_slice(&effect.request.commands);
        let count = count + read_counts::ask(&effect.reads, &mut commands);
        let pending = &mut self.servers[server].ordered.pending;
        self.config.servers().write_marked(pending, &commands, None, &mark);
        let before = 2 + count;
        (effect.mark, effect.since) = (Some(mark), self.now);
        let owed = Owed::Effect { before, refusal: None };
        self.servers[server].ordered.owe(owed);
        self.members.sent(self.now, server, None);
        self.schedule();
    }

    /// The executor has answered.
    pub(super) fn effect_answered(&mut self, server: usize, refusal: Option<&[u8]>, reply: &[u8]) {
        self.members.answered(self.now, server, None);
        let partition = self.members.partition(server);
        let Some(effect) = self.effects.running.get_mut(&partition) else { return };
        effect.since = self.now;
        if reply.first() != Some(&b'*') {
            // A command of it cannot be done, so nothing was.
            let refusal = refusal.filter(|_| effect.request.home.is_none()).unwrap_or(reply);
            return self.end_effect(partition, refusal);
        }
        let reply = match effect.reads.is_empty() {
            true => Cow::Borrowed(reply),
            false => Cow::Owned(read_counts::take(&mut effect.reads, reply)),
        };
        let reply = expiry::take(&mut effect.near, reply);
        effect.answer = match effect.request.home.is_none() {
            true => single_of_exec(&reply),
            false => Some(reply::without_last(&reply)),
        };
        self.log_effects(partition);
    }

    /// A stream has brought what was done, in a group with this watermark.
    pub fn effects_came(&mut self, server: usize, connection: u64, group: Group) {
        let partition = self.members.partition(server);
        let is_current = self.servers[server].connection == connection;
        let Some(effect) = self.effects.running.get_mut(&partition).filter(|_| is_current) else {
            return;
        };
        if effect.executor == server && effect.mark.as_deref() == Some(&*group.mark) {
            effect.group = Some(group);
            self.log_effects(partition);
        }
    }

    /// Logs the effects and sends them to the others, once all is known.
    fn log_effects(&mut self, partition: usize) {
        let is_known = |effect: &Effect| effect.answer.is_some() && effect.group.is_some();
        if !self.effects.running.get(&partition).is_some_and(is_known) {
            return;
        }
        if !self.leads() {
            return self.abandon_deposed(partition);
        }
        // Of another partition: nothing was written in this one.
        let watching = self.effects.running.get(&partition).and_then(|it| it.watching.as_ref());
        if watching.is_some_and(|it| self.is_broken(it, 0)) {
            return self.abort_effect(partition);
        }
        let client = self.effects.running.get(&partition).map(|it| it.request.client);
        let databases = self.databases_for(client);
        let Some(effect) = self.effects.running.get_mut(&partition) else { return };
        let mut group = effect.group.take().unwrap_or_default();
        let keys = match group.keys(databases) {
            Ok(keys) => keys,
            Err(text) => return self.abandon_effect(partition, Dropped::Failed, text),
        };
        read_counts::restate(&effect.reads, &mut group);
        let gone = effect.near.iter().map(|place| &**place);
        let gone = gone.filter(|place| keys.iter().any(|key| **key == **place));
        expiry::remove_before(gone, &mut group);
        if group.count == 0 {
            encode::command(&mut group.commands, &[b"DEL", NOTHING]);
            group.count = 1;
        }
        self.restate_effects(&mut group);
        self.note_databases(&mut group);
        let hashes: Vec<u128> = keys.iter().map(|key| xxh3_128(key)).collect();
        let key_names: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        hashes.iter().for_each(|&hash| self.forget_last_id(hash));
        let strays = self.strays(partition, &key_names);
        let Some(effect) = self.take_effect(partition) else { return };
        let Effect { request, executor, answer, waiting, .. } = effect;
        if request.home.is_none() && !self.monitors.is_empty() {
            self.show_effects(&request.commands, &group.commands);
        }
        let write = Write {
            commands: &group.commands,
            count: group.count,
            shard: request.shard,
            repeat: Repeat::Once,
            keys: &hashes,
            key_names: &key_names,
            form: request.form,
            is_single: false,
        };
        let told = match strays.first() {
            Some(_) => Some(b"-".iter().chain(STRAYS).chain(b"\r\n").copied().collect()),
            None => answer,
        };
        let published = [request.published, group.published].concat();
        self.track_effects(request.client, &request.commands);
        let done = Done { server: executor, told, waiter: request.waiter, published };
        let call = self.place_effects(request.client, partition, done, &write);
        if !strays.is_empty()
            && let Err(error) = self.remove_keys(partition, request.shard, &strays)
        {
            tracing::warn!(%error, "keys of another partition stay where a script wrote them");
        }
        self.flush(); // before anybody is told: the executor alone may be enough
        match call {
            Some(call) => self.settle_logged(call),
            None => request.waiter.into_iter().for_each(|order| self.end_group_try(order)),
        }
        self.resume_behind_effects(partition, executor, &waiting);
    }

    fn place_effects(
        &mut self,
        id: ClientId,
        partition: usize,
        done: Done,
        write: &Write<'_>,
    ) -> Option<usize> {
        let executor = done.server;
        // It is done: also where too few are left it is logged, and in doubt.
        let mut to = match self.members.takers(partition) {
            Ok((to, full)) => {
                let full = full.without(ServerSet::only(executor));
                full.iter().for_each(|server| self.drop_server(server, Dropped::Full));
                to
            }
            Err(_) => self.members.live(partition),
        };
        to.insert(executor); // however much it owes: what it has must be known
        let call = self.place(id, partition, (to, Some(done)), write)?;
        self.mark(executor);
        Some(call)
    }

    /// A command ends with this answer, and nothing was done.
    fn end_effect(&mut self, partition: usize, answer: &[u8]) {
        let Some(effect) = self.take_effect(partition) else { return };
        let id = effect.request.client;
        effect.request.home.into_iter().for_each(|home| self.end_in(id, home));
        let slot = self.slot(id);
        self.reply(id, slot, answer, &effect.request.form);
        effect.request.waiter.into_iter().for_each(|order| self.end_group_try(order));
        self.resume_behind_effects(partition, effect.executor, &effect.waiting);
    }

    fn take_effect(&mut self, partition: usize) -> Option<Effect> {
        let mut effect = self.effects.running.remove(&partition)?;
        if let Some(watching) = effect.watching.take() {
            self.end_watching(&watching);
        }
        Some(effect)
    }

    /// A watched key was written, or may have expired: `EXEC` does nothing, and what was done is
    /// not to be.
    fn abort_effect(&mut self, partition: usize) {
        let Some(effect) = self.take_effect(partition) else { return };
        let id = effect.request.client;
        effect.request.home.into_iter().for_each(|home| self.end_in(id, home));
        self.reply_now(id, encode::null_array);
        self.resume_behind_effects(partition, effect.executor, &effect.waiting);
        if effect.mark.is_some() {
            self.drop_server(effect.executor, Dropped::Failed);
        }
    }

    fn refuse_effect(&mut self, partition: usize, text: &str) {
        self.counts.refused += 1;
        let mut answer = Vec::new();
        encode::error(&mut answer, text);
        self.end_effect(partition, &answer);
    }

    /// What was done is not to be: the executor is filled anew.
    fn abandon_effect(&mut self, partition: usize, why: Dropped, text: &str) {
        let Some(effect) = self.effects.running.get_mut(&partition) else { return };
        effect.attempts = ATTEMPTS_MAX;
        let server = effect.executor;
        tracing::warn!(server, text, "what a duplicate has done is not logged: it is filled anew");
        self.refuse_effect(partition, text);
        self.drop_server(server, why);
    }

    /// The lease ended before what was done could be logged: nobody has it. The client's connection
    /// ends, as where a Redis dies: most libraries try again then, and take an error for what the
    /// command itself came to. Clients of Redis Cluster are told, since they try again at that.
    fn abandon_deposed(&mut self, partition: usize) {
        let text = format!("UNAVAILABLE {}; it was not done", self.why_deposed());
        let request = self.effects.running.get(&partition).map(|it| &it.request);
        let id = request.filter(|it| it.waiter.is_none()).map(|it| it.client);
        if let Some(id) = id
            && self.client(id).is_some_and(|client| !client.is_of_cluster)
        {
            self.drop_client(id);
        }
        self.abandon_effect(partition, Dropped::Failed, &text);
    }

    /// A duplicate was dropped: another does what it did.
    pub(super) fn lose_effect_with(&mut self, server: usize) {
        self.effects.streams.remove(&server);
        let partition = self.members.partition(server);
        let Some(effect) = self.effects.running.get_mut(&partition) else { return };
        if effect.executor != server {
            return;
        }
        (effect.mark, effect.answer, effect.group) = (None, None, None);
        let failure = self.failure.as_ref().map(|it| format!("UNAVAILABLE {it}; it was not done"));
        if failure.is_none() && self.tries_another(partition) {
            return;
        }
        self.refuse_effect(partition, failure.as_deref().unwrap_or(LOST));
    }

    /// Has another do what an executor has not done.
    fn tries_another(&mut self, partition: usize) -> bool {
        let Some(effect) = self.effects.running.get(&partition) else { return false };
        let is_possible = effect.attempts < ATTEMPTS_MAX && self.members.takers(partition).is_ok();
        let executor = self.choose_executor(partition, Some(effect.executor));
        let Some(executor) = executor.filter(|_| is_possible) else { return false };
        if let Some(effect) = self.effects.running.get_mut(&partition) {
            (effect.executor, effect.attempts) = (executor, effect.attempts + 1);
        }
        self.attach(partition);
        true
    }

    /// Nobody is ahead any more: what waited goes on.
    fn resume_behind_effects(&mut self, partition: usize, executor: usize, waiting: &[ClientId]) {
        if let Some(wants_all) = &mut self.effects.wants_all {
            wants_all.since = self.effects.running.is_empty().then_some(self.now);
        }
        for kind in [ConnectionKind::Ordered, ConnectionKind::Free] {
            self.servers[executor].connection(kind).wake();
        }
        self.resume_checks(partition);
        for pop in std::mem::take(&mut self.effects.pops) {
            self.draw(Box::new(pop)); // one of another partition may wait again
        }
        // Whose it was comes last: who sends one script after the other would keep out all others.
        if let Some((&own, others)) = waiting.split_first() {
            others.iter().chain([&own]).for_each(|&id| self.release(id));
        }
        self.schedule();
    }

    /// Whether this one is, or is about to be, ahead of the log.
    pub fn is_executor(&self, server: usize) -> bool {
        self.effects.is_executor(server)
    }

    /// Whether this one is ahead of the log: it may take long, and its answers wait here.
    pub fn executes(&self, server: usize) -> bool {
        self.effects.ahead_in(self.members.partition(server)) == Some(server)
    }

    /// Whether answers on this connection wait until it is known what became of what the duplicate
    /// did: they may show it.
    pub fn holds_answers(&self, server: usize, kind: ConnectionKind) -> bool {
        self.effects.running.values().any(|effect| {
            let is_seen = kind == ConnectionKind::Free || effect.answer.is_some();
            effect.executor == server && effect.mark.is_some() && is_seen
        })
    }

    /// Once in a while: what takes too long is given up.
    pub(super) fn look_at_effects(&mut self) {
        let is_over = |it: &WantsAll| it.since.is_some_and(|at| self.now.since(at) >= TAKE_MAX);
        if let Some(own) = self.effects.wants_all.as_ref().filter(|it| is_over(it)) {
            self.wants_all_no_more(own.client);
        }
        self.release_behind_late();
        let over: Vec<usize> = self.effects.running.keys().copied().collect();
        for partition in over {
            let Some(effect) = self.effects.running.get(&partition) else { continue };
            let (server, took) = (effect.executor, self.now.since(effect.since));
            let command_max = self.config.members.command_max;
            match (&effect.mark, &effect.answer) {
                (None, _) if took >= ATTACH_MAX => {
                    let connection = self.servers[server].connection;
                    self.stream_failed((server, connection), "it did not begin", false);
                }
                (Some(_), None) if took >= command_max => {
                    let text = format!(
                        "UNAVAILABLE it took longer than {} s and was given up; it was not done",
                        command_max.as_secs()
                    );
                    self.abandon_effect(partition, Dropped::Silent, &text);
                }
                (Some(_), Some(_)) if took >= EFFECTS_MAX => {
                    self.drop_server(server, Dropped::Lost);
                }
                _ => {}
            }
        }
    }
}

const ALONE: &str = "UNAVAILABLE one duplicate is live: who does this must be filled from another \
    if it fails";
const LOST: &str = "UNAVAILABLE who did this is lost, and nobody else can; it was not done";
const NO_EXECUTOR: &str = "TRYAGAIN all live duplicates are being copied from: ask again";
const STRAYS: &[u8] = b"ERR undeclared key: a script has written keys of another partition, which \
    were removed; what else it did stays: name all keys, with one common {tag}";
/// What is removed where nothing was done.
const NOTHING: &[u8] = b"evenkeel:nothing";

#[cfg(test)]
mod tests;
