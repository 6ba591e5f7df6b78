//! Commands that wait (`BLPOP`, `XREAD BLOCK`, …): tried, kept, and tried again behind what fills.
//!
//! A command that waits is tried at once, a pop as a write in its place. If nothing was there, its
//! client waits. Right behind each write that may fill a key, in the same turn, those are tried
//! whose turn it is ([`Waiters`]). What a duplicate replies decides: who gets nothing goes on
//! waiting, at its place.
//!
//! **Who leaves** while waiting is removed. While it is under way nobody can: what it takes then is
//! lost, as at Redis when a connection breaks in front of the reply. The same holds for a time that
//! is over meanwhile: it is told what was found, if something was.
//!
//! Nothing is sent within [`Inner::settle`], which may not be entered twice: what is to be tried
//! again is noted, and sent before the next flush.

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

use evenkeel_core::Instant;
use evenkeel_ordered::{ConnectionKind, Consistency, Waiters, Wanted};
use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::group_waits::{Kind, kind_of, why_gone};
use super::types::{Asked, ClientId, ErrorReply, Form, Inquiry, Owed, ParsedCommand, Write};
use evenkeel_stores::resp::commands::{Command, Repeat, Wait};
use evenkeel_stores::resp::reply::{elements, payload};
use evenkeel_stores::resp::request::Arguments;
use evenkeel_stores::resp::waiting::{self, Try, fills, is_move, leaves_no_stream};
use evenkeel_stores::resp::{databases, encode};

/// Bytes of all commands that wait.
const BYTES_MAX: usize = 64 << 20;
/// Keys of all commands that wait, each as often as it is waited for.
const KEYS_MAX: usize = 1 << 20;

const TOO_MANY: &str = "ERR too many commands wait already";
const UNBLOCKED: &str = "UNBLOCKED client unblocked via CLIENT UNBLOCK";
const REASON: &str = "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR";
const UNBLOCK_ARITY: &str = "ERR wrong number of arguments for 'client|unblock' command";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// The commands that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    pub(super) order: Waiters<Kind>,
    pub(super) commands: BTreeMap<u64, Waiter>,
    /// Consumers of groups that are to be tried.
    pub(super) groups: VecDeque<u64>,
    /// Keys of lists that a try has filled.
    filled: Vec<Box<[u8]>>,
    /// The write that is being sent is a try: it fills once it has found something.
    is_trying: bool,
    bytes: usize,
}

#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) client: ClientId,
    pub(super) command: &'static Command,
    kind: Kind,
    /// Of which its keys are.
    pub(super) database: u8,
    /// What it says; ids `$` of `XREAD` become ids.
    pub(super) text: Vec<u8>,
    /// Last ids that are asked for.
    asked: usize,
    pub(super) is_first: bool,
    /// By the last write of a key that it waits for, if its group is gone.
    pub(super) is_stream_gone: bool,
    /// What it is told once nothing was found.
    pub(super) end: Option<End>,
}

/// Why it waits no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Timeout,
    Unblocked,
    Gone,
}

impl Waiter {
    /// The places of its keys.
    pub(super) fn places(&self) -> Vec<Box<[u8]>> {
        let keys = waiting::attempt(self.command, &self.text, None).keys;
        keys.iter().map(|key| Box::from(&*databases::place(self.database, key))).collect()
    }
}

/// The places that a write may fill, as [`fills`] has keys; what goes to another database may be
/// anything.
fn filled<'a>(
    database: u8,
    command: &Command,
    arguments: Arguments<'a>,
) -> Vec<(Cow<'a, [u8]>, Option<Wait>, usize)> {
    if databases::target_argument(command, arguments).is_some() {
        let places = databases::places(database, command, arguments).into_iter();
        return places.map(|place| (place, None, usize::MAX)).collect();
    }
    let filled = fills(command, arguments).into_iter();
    filled.map(|(key, wait, most)| (databases::place(database, key), wait, most)).collect()
}

impl Waiting {
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.order.deadline()
    }

    /// Clients that wait, of whom nothing is under way.
    pub(super) const fn idle(&self) -> usize {
        self.order.idle()
    }

    /// A write was sent that may fill a key, with what and for how many: who is tried now.
    fn fill(
        &mut self,
        key: &[u8],
        (wait, most): (Option<Wait>, usize),
        is_stream_gone: bool,
    ) -> Vec<u64> {
        for order in self.order.of(key) {
            if let Some(waiter) = self.commands.get_mut(&order) {
                waiter.is_stream_gone = is_stream_gone;
            }
        }
        let mut found = self.order.fill(key, wait.map(|wait| (wait, 0)), most);
        // It may be no stream any more, whatever it is filled with. One of each group is tried, and
        // then the next.
        let groups = self.order.kinds(key).into_iter();
        for kind in groups.filter(|kind| wait.is_some() && kind.0 == Wait::Group) {
            found.extend(self.order.fill(key, Some(kind), 1));
        }
        found
    }

    /// All keys (of one database) are gone: who waits in a group and is to be tried, with the key.
    fn lose_groups(&mut self, database: Option<u8>) -> Vec<(u64, Vec<u8>)> {
        let mut tried = Vec::new();
        let waiters = self.commands.values_mut().filter(|it| it.kind.0 == Wait::Group);
        for waiter in waiters.filter(|it| database.is_none_or(|of| of == it.database)) {
            waiter.is_stream_gone = true;
            for place in waiter.places() {
                let found = self.order.fill(&place, Some(waiter.kind), 1);
                let key = databases::key(&place);
                tried.extend(found.into_iter().map(|it| (it, key.to_vec())));
            }
        }
        tried
    }
}

impl Inner {
    /// A command that waits, outside of `MULTI`.
    pub(super) fn wait(
        &mut self,
        id: ClientId,
        (command, wait): (&'static Command, Wait),
        parsed: ParsedCommand<'_>,
    ) {
        let arguments = parsed.arguments();
        let timeout = match waiting::timeout(command, arguments) {
            Ok(timeout) => timeout,
            Err(refusal) => return self.refuse(id, refusal.0),
        };
        if let Err(reply) = self.shard_of(command, parsed) {
            return self.refuse(id, &reply.to_string());
        }
        self.try_again();
        let database = self.database_of(id);
        let keys = waiting::waited_for(command, arguments).into_iter();
        let keys: Vec<Box<[u8]>> =
            keys.map(|key| Box::from(&*databases::place(database, &key))).collect();
        let mut text = Vec::new();
        arguments.write(&mut text);
        let waiting = &mut self.waiting;
        if waiting.bytes + text.len() > BYTES_MAX || waiting.order.keys() + keys.len() > KEYS_MAX {
            return self.refuse(id, TOO_MANY);
        }
        waiting.bytes += text.len();
        let due = timeout.map(|timeout| self.now + timeout);
        let takes = wait != Wait::Stream;
        let last_ids = waiting::last_ids(command, arguments);
        let kind = kind_of(wait, command, arguments);
        // Where the last ids of all keys are asked for, each is a stream or nothing as it comes.
        let is_first = last_ids.len() < keys.len();
        let wanted = Wanted { kind, takes, keys, due };
        let (order, is_tried) = waiting.order.join(wanted, !last_ids.is_empty());
        let (client, asked, end) = (id, last_ids.len(), None);
        let waiter = Waiter {
            client,
            command,
            kind,
            database,
            text,
            asked,
            is_first,
            is_stream_gone: false,
            end,
        };
        waiting.commands.insert(order, waiter);
        due.into_iter().for_each(|due| self.reads.arm(due));
        if let Some(client) = self.client(id) {
            (client.waits, client.is_idle) = (Some(order), !is_tried);
        }
        self.hold(id);
        for (key, at) in last_ids {
            let key = databases::place(database, arguments.at(key)).into();
            let asked = Asked::LastId(at);
            self.inquire(Box::new(Inquiry { client: id, number: order, key, asked }));
        }
        if is_tried && asked == 0 {
            self.attempt(order, None);
        }
    }

    /// Tries a command: of this key, or of all its keys.
    fn attempt(&mut self, order: u64, key: Option<&[u8]>) {
        let Some(waiter) = self.waiting.commands.get_mut(&order) else {
            return self.waiting.order.leave(order);
        };
        if key.is_none() {
            self.waiting.order.send(order);
        }
        waiter.is_first &= key.is_none();
        let (id, (wait, _), command) = (waiter.client, waiter.kind, waiter.command);
        let database = waiter.database;
        if wait == Wait::Group {
            if let Some(client) = self.client(id) {
                client.is_idle = true; // until it is begun
            }
            return self.note_group_try(order);
        }
        let Try { text, keys: names } = waiting::attempt(command, &waiter.text, key);
        let is_read = wait == Wait::Stream;
        // A shard may have moved since it came.
        let shard = match self.place_of_try(&names, is_read) {
            Ok(shard) => shard,
            Err(reply) => {
                self.refuse(id, &reply.to_string());
                self.waiting.order.failed(order);
                return self.stop_waiting(order);
            }
        };
        if let Some(client) = self.client(id) {
            client.is_idle = false;
        }
        let call = if is_read {
            self.read_for(id, (command, shard, database), &text)
        } else {
            let names = if self.needs_keys(shard) { &*names } else { &[] };
            let places: Vec<_> = names.iter().map(|key| databases::place(database, key)).collect();
            let keys: Vec<u128> = places.iter().map(|place| xxh3_128(place)).collect();
            let key_names: Vec<&[u8]> = places.iter().map(AsRef::as_ref).collect();
            let (repeat, form) = (Repeat::Once, Form::One(command.shape));
            let mut commands = Vec::new();
            databases::write_within(&mut commands, database, |out| out.extend_from_slice(&text));
            let (keys, key_names, commands) = (&*keys, &*key_names, &*commands);
            let (is_single, count) = (true, databases::count_within(database));
            self.waiting.is_trying = true;
            self.remove_expired_of(id, commands);
            let write = Write { commands, count, shard, repeat, keys, key_names, form, is_single };
            let call = self.write(id, &write);
            self.waiting.is_trying = false;
            call
        };
        match call {
            Some(call) => self.calls[call].waiter = Some(order),
            None => {
                self.waiting.order.failed(order); // it was told why
                self.stop_waiting(order);
            }
        }
    }

    /// The shard for a try of these keys.
    ///
    /// # Errors
    /// What the client is told where they are in one partition no longer, or one of them moves.
    pub(super) fn place_of_try(
        &self,
        keys: &[Box<[u8]>],
        is_read: bool,
    ) -> Result<usize, ErrorReply> {
        let place = self.locate_keys(keys.iter().map(AsRef::as_ref))?;
        let place = place.ok_or_else(|| ErrorReply::new("ERR", "a command without a key"))?;
        Ok(if is_read { place.shard } else { place.shard_to_write()? })
    }

    /// Sends a strong read; its call, or `None` when it was refused.
    fn read_for(
        &mut self,
        id: ClientId,
        (command, shard, database): (&Command, usize, u8),
        text: &[u8],
    ) -> Option<usize> {
        if !self.leads() {
            self.refuse_deposed(id);
            return None;
        }
        let partition = self.map.partition(shard);
        let session = self.client(id)?.session;
        let eligible = match self.members.eligible(partition, Consistency::Strong, session) {
            Ok(eligible) => eligible,
            Err(refused) => {
                self.refuse_access(id, refused);
                return None;
            }
        };
        let to = self.members.quorum(partition, &eligible, 1);
        let call = self.open(id, (shard, partition), None, to, Form::One(command.shape));
        let opened = &mut self.calls[call];
        (opened.level, opened.needs_leadership) = (eligible.needs, true);
        databases::write_within(&mut opened.text, database, |out| out.extend_from_slice(text));
        for server in to.iter() {
            let place = (server, ConnectionKind::Ordered, database);
            self.ask_in(place, Owed::Access { call }, |out| out.extend_from_slice(text));
        }
        self.schedule();
        Some(call)
    }

    /// A write was sent: those are tried, right behind it, for whom it may have filled a key.
    pub(super) fn serve_waiters(&mut self, commands: &[u8]) {
        if self.waiting.order.is_empty() || self.waiting.is_trying {
            return;
        }
        let mut tried = Vec::new();
        databases::for_each(commands, |known| {
            let Some((database, command, arguments)) = known else { return };
            match command.name {
                "flushall" => tried.extend(self.waiting.lose_groups(None)),
                "flushdb" => tried.extend(self.waiting.lose_groups(Some(database))),
                _ => {}
            }
            for (place, wait, most) in filled(database, command, arguments) {
                if self.waiting.order.is_waited_for(&place) {
                    let (at, key) = databases::at(&place);
                    // What comes from another database may be a stream.
                    let is_gone = at == database && leaves_no_stream(command, arguments, key);
                    let found = self.waiting.fill(&place, (wait, most), is_gone);
                    tried.extend(found.into_iter().map(|it| (it, key.to_vec())));
                }
            }
        });
        for (order, key) in tried {
            match self.is_paused(order) {
                true => self.waiting.order.repeat(order), // until that is over
                false => self.attempt(order, Some(&key)),
            }
        }
    }

    /// A try was answered, at this slot of its client.
    pub(super) fn tried(
        &mut self,
        order: u64,
        (id, slot): (ClientId, u64),
        (answer, form): (&[u8], &Form),
    ) {
        let Some(waiter) = self.waiting.commands.get_mut(&order) else { return };
        let moves = is_move(waiter.command);
        let kind = waiter.kind;
        // The stream may be gone between its first try and when it came.
        let has_waited = !waiter.is_first || waiter.is_stream_gone;
        let gone = (kind.0 == Wait::Group && has_waited)
            .then(|| why_gone(answer, waiter.is_stream_gone))
            .flatten();
        // Another type is there by now: at Redis nobody else is served with that.
        let is_served = waiter.is_first || moves || gone.is_some();
        let is_other = !is_served && answer.starts_with(b"-WRONGTYPE");
        // One that fails at once took nothing from anybody.
        let passes_on = moves && !(waiter.is_first && answer.starts_with(b"-"));
        let database = waiter.database;
        let waited_for = match kind.0 {
            Wait::Group => waiter.places(),
            _ => Vec::new(),
        };
        waiter.is_first = false;
        if answer.first() != Some(&b'_') && !is_other {
            if passes_on {
                // What could not be moved is for the next one.
                let moved = waiting::moved(&waiter.text, answer.starts_with(b"-"));
                let place = moved.map(|key| Box::from(&*databases::place(database, &key)));
                self.waiting.filled.extend(place);
                self.schedule();
            }
            let answer = gone.unwrap_or(answer);
            self.waiting.order.found(order);
            self.stop_waiting(order);
            if kind.0 == Wait::Group {
                self.pass_on_group(&waited_for, kind);
            }
            return self.reply(id, slot, answer, form);
        }
        let end = waiter.end;
        self.take_back_slot(id);
        self.waiting.order.found_nothing(order);
        match end {
            Some(end) => self.end_waiting(order, end),
            None => {
                if let Some(client) = self.client(id) {
                    client.is_idle = true;
                    client.waker.iter().for_each(std::task::Waker::wake_by_ref);
                }
                self.schedule_again();
            }
        }
    }

    /// Whether a duplicate of its partition is ahead of the log: nothing gets a place there.
    fn waits_for_effects(&self, order: u64) -> bool {
        let waiter = self.waiting.commands.get(&order).filter(|_| !self.effects.is_idle());
        let keys = waiter.map(|it| waiting::attempt(it.command, &it.text, None).keys);
        let mut keys = keys.iter().flatten();
        keys.any(|key| self.effects.is_ahead(self.partition_of(key)))
    }

    /// Whether it takes something, which nobody may while clients are paused.
    fn is_paused(&self, order: u64) -> bool {
        let waiter = self.waiting.commands.get(&order);
        self.pause.keeps_writes() && waiter.is_some_and(|it| it.kind.0 != Wait::Stream)
    }

    fn schedule_again(&mut self) {
        if self.waiting.order.has_again() {
            self.schedule();
        }
    }

    /// A read that was lost is sent again; whether this try was one.
    pub(super) fn reads_again(&mut self, order: u64, id: ClientId) -> bool {
        let waiter = self.waiting.commands.get(&order);
        let is_read = waiter.is_some_and(|it| it.kind.0 == Wait::Stream);
        if !is_read || !self.leads() || self.client(id).is_none() {
            return false;
        }
        self.waiting.order.repeat(order);
        self.take_back_slot(id);
        self.schedule();
        true
    }

    /// Tries those that are to be tried once more. Before the log is written,
    /// and before any other write.
    pub(super) fn try_again(&mut self) {
        if self.waiting.is_trying {
            return;
        }
        for key in std::mem::take(&mut self.waiting.filled) {
            let own = databases::key(&key);
            if self.effects.is_ahead(self.partition_of(own)) || self.pause.keeps_writes() {
                self.waiting.filled.push(key); // until that is done
                continue;
            }
            for order in self.waiting.order.fill(&key, Some((Wait::List, 0)), 1) {
                self.attempt(order, Some(own));
            }
        }
        let mut from = 0;
        while let Some(order) = self.waiting.order.next_again(from) {
            match self.waits_for_effects(order) || self.is_paused(order) {
                true => from = order + 1,
                false => self.attempt(order, None),
            }
        }
    }

    /// Those whose time is over.
    pub(super) fn end_overdue(&mut self) {
        while let Some(order) = self.waiting.order.next_overdue(self.now) {
            self.end_waiting(order, End::Timeout);
        }
    }

    /// Ends a wait, as soon as no try is under way.
    pub(super) fn end_waiting(&mut self, order: u64, end: End) {
        let is_under_way = self.waiting.order.is_under_way(order);
        let Some(waiter) = self.waiting.commands.get_mut(&order) else { return };
        if is_under_way {
            waiter.end = Some(end);
            return;
        }
        let id = waiter.client;
        self.stop_waiting(order);
        self.reply_now(id, |out, protocol| match end {
            End::Unblocked => encode::error(out, UNBLOCKED),
            End::Timeout | End::Gone => encode::null_array(out, protocol),
        });
    }

    /// It waits no more, and was told why or will be.
    pub(super) fn stop_waiting(&mut self, order: u64) {
        let Some(waiter) = self.waiting.commands.remove(&order) else { return };
        self.waiting.order.leave(order);
        self.waiting.bytes -= waiter.text.len();
        if let Some(client) = self.client(waiter.client) {
            (client.waits, client.is_idle) = (None, false);
        }
        self.release(waiter.client);
        self.schedule_again();
    }

    /// A client has gone.
    pub(super) fn leave_waiting(&mut self, id: ClientId) {
        if let Some(order) = self.client(id).and_then(|client| client.waits) {
            match self.waiting.order.is_under_way(order) {
                true => self.end_waiting(order, End::Gone),
                false => self.stop_waiting(order),
            }
        }
    }

    /// Whoever waits here is told that nothing will come: this process does not lead, or ends.
    pub fn refuse_waiting(&mut self, id: ClientId, why: &str) {
        let Some(client) = self.client(id).filter(|client| client.is_idle) else { return };
        if let Some(order) = client.waits {
            self.stop_waiting(order);
            self.refuse(id, &format!("UNAVAILABLE {why}"));
        }
    }

    /// Once in a while: where another process may lead, nobody is served here.
    pub(super) fn look_after_waiters(&mut self) {
        if !self.waiting.groups.is_empty() {
            self.schedule();
        }
        if self.waiting.order.is_empty() || self.leads() || self.awaits_lease() {
            return;
        }
        let why = self.why_deposed();
        let clients: Vec<ClientId> = self.waiting.commands.values().map(|it| it.client).collect();
        clients.into_iter().for_each(|id| self.refuse_waiting(id, &why));
    }

    /// `CLIENT UNBLOCK id [TIMEOUT|ERROR]`
    pub(super) fn unblock(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        let arguments = parsed.arguments();
        let end = match arguments.len() {
            3 => End::Timeout,
            4 if arguments.is(3, "timeout") => End::Timeout,
            4 if arguments.is(3, "error") => End::Unblocked,
            4 => return self.refuse(id, REASON),
            _ => return self.refuse(id, UNBLOCK_ARITY),
        };
        let number = str::from_utf8(arguments.at(2)).ok().and_then(|it| it.parse::<i64>().ok());
        let Some(number) = number else { return self.refuse(id, NOT_AN_INTEGER) };
        let of_number = |(_, client): &(usize, &super::Client)| client.number() == number;
        let order = self.clients.iter().find(of_number).and_then(|(_, client)| client.waits);
        order.into_iter().for_each(|order| self.end_waiting(order, end));
        self.reply_now(id, |out, _| encode::integer(out, order.is_some().into()));
    }

    /// A duplicate said what the last id of a stream is, for `$`.
    pub(super) fn last_id_known(&mut self, inquiry: &Inquiry, at: usize, reply: &[u8]) {
        let order = inquiry.number;
        if reply.starts_with(b"-") && !reply.starts_with(b"-ERR no such key") {
            return self.last_id_unknown(inquiry, reply);
        }
        let mut parts = elements(reply);
        let mut last: &[u8] = b"0-0";
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            if payload(name) == Some(b"last-generated-id") {
                last = payload(value).unwrap_or(last);
            }
        }
        let Some(waiter) = self.waiting.commands.get_mut(&order) else { return };
        let text = waiting::with_argument(&waiter.text, at, last);
        self.waiting.bytes = self.waiting.bytes - waiter.text.len() + text.len();
        waiter.text = text;
        waiter.asked -= 1;
        if waiter.asked > 0 {
        } else if self.waits_for_effects(order) {
            self.waiting.order.repeat(order); // tried when that is done
        } else {
            self.attempt(order, None);
        }
    }

    /// Nobody says it.
    pub(super) fn last_id_unknown(&mut self, inquiry: &Inquiry, error: &[u8]) {
        if self.waiting.commands.contains_key(&inquiry.number) {
            self.stop_waiting(inquiry.number);
            self.answer_held(inquiry.client, error);
        }
    }
}

#[cfg(test)]
mod tests;
