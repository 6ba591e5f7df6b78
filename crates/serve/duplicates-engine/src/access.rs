//! A client's command becomes a read or a write of so many duplicates.

use std::borrow::Cow;
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Consistency, Copies, Dropped, Position, Refused, Sequence,
    ServerSet,
};
use xxhash_rust::xxh3::xxh3_128;

use super::types::{ANOTHER_RUNS, ClientId, Done, Form, Late, Owed, ParsedCommand, Write};
use super::{Call, Inner, IsLogged, cluster};
use evenkeel_stores::resp::commands::{
    self, Class, Command, Keys, Local, Repeat, Rewrite, Whole, refusals,
};
use evenkeel_stores::resp::locate::Location;
use evenkeel_stores::resp::rewrite;
use evenkeel_stores::resp::{databases, deadlines, encode};
use evenkeel_wal::{COMMAND_BYTES_MAX, LogError, RecordKind};

impl Inner {
    /// Takes one command of a client; false = not yet: it is to be asked again when the client is
    /// no longer held.
    #[must_use]
    pub fn submit(&mut self, id: ClientId, parsed: ParsedCommand<'_>) -> bool {
        if self.heed_users(None) && self.client(id).is_none() {
            return true; // its user was changed
        }
        let command = commands::lookup(parsed.argument(0));
        let is_taken = match command {
            Some(command) => self.submit_known(id, command, parsed),
            None => self.submit_unknown(id, parsed),
        };
        if is_taken && self.tracking.is_on() {
            self.end_caching(id, command);
        }
        is_taken
    }

    /// The same of a command that is known.
    pub(super) fn submit_known(
        &mut self,
        id: ClientId,
        command: &'static Command,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        if !command.accepts(parsed.len()) {
            self.refuse_as(id, |out| commands::wrong_arity(command, out));
            return true;
        }
        if self.is_denied(id, command, parsed) {
            return true;
        }
        if command.keys == Keys::Script
            && let Some(is_taken) = self.submit_script(id, command, parsed)
        {
            return is_taken;
        }
        self.submit_as(id, command, parsed)
    }

    /// The same for this command, whatever its name is.
    pub(super) fn submit_as(
        &mut self,
        id: ClientId,
        command: &'static Command,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let class = commands::classify(command, parsed.arguments());
        if self.answers_listener(id, (command, class), parsed.arguments()) {
            return true;
        }
        if self.answers_cluster(id, (command, class), parsed)
            || self.answers_monitor(id, class)
            || self.says_busy(id, (command, class), parsed)
        {
            return true;
        }
        if let Some(is_taken) = self.keeps_back(id, (command, class), parsed) {
            return is_taken;
        }
        if self.holds_behind_reads(id, command, class, parsed)
            || self.holds_behind_effects(id, command, class, parsed)
            || self.asks_deadlines(id, (command, class), parsed)
            || self.asks_last_id(id, (command, class), parsed)
            || self.holds_channels(id, class, parsed)
        {
            return false;
        }
        self.take(id, command, class, parsed);
        true
    }

    fn take(
        &mut self,
        id: ClientId,
        command: &'static Command,
        class: Class,
        parsed: ParsedCommand<'_>,
    ) {
        let now = self.now;
        let Some(client) = self.client(id) else { return };
        let (is_known, tracks) = (client.is_known(), client.tracks);
        let in_transaction = client.transaction.is_some();
        client.about.said(command.name, parsed.length, now);
        if is_known && !self.monitors.is_empty() {
            self.show_command(id, (command, class), parsed);
        }
        if tracks || self.tracking.has_prefixes() {
            self.track_command(id, (command, class), parsed);
        }
        match class {
            Class::Local(local) if in_transaction && is_known && is_outside_transactions(local) => {
                self.refuse(id, OUTSIDE_TRANSACTIONS);
            }
            Class::Local(local) if in_transaction && is_known && !ends_transaction(local) => {
                self.queue_here(id, command, local, parsed);
            }
            _ if is_known && self.refuses_front(id, class, parsed) => {}
            _ if is_known && self.refuses_database(id, command, parsed) => {}
            Class::Local(local) => self.local(id, (command, local), parsed),
            _ if !is_known => self.refuse(id, "NOAUTH Authentication required."),
            Class::Refused(_) if in_transaction && command.is_barred_in_multi() => {
                self.refuse(id, commands::NOT_IN_MULTI);
            }
            Class::Refused(why) => self.refuse(id, why),
            Class::Whole(Whole::Flush) if in_transaction => self.queue_flush(id, command, parsed),
            Class::Whole(_) if in_transaction => self.refuse(id, refusals::WHOLE_IN_MULTI),
            Class::Whole(whole) => self.whole(id, whole, command, parsed),
            _ if in_transaction => self.queue(id, command, class, parsed),
            Class::Waits(wait) => self.wait(id, (command, wait), parsed),
            Class::Read | Class::Write(_) if self.is_in_parts(command, parsed) => {
                self.split(id, command, parsed);
            }
            Class::Read => self.read(id, command, parsed),
            Class::Write(repeat) => {
                let mut commands = std::mem::take(&mut self.scratch);
                commands.clear();
                parsed.write(&mut commands);
                self.write_one(id, command, repeat, parsed, &commands);
                self.scratch = commands;
            }
            Class::Effects => self.take_effects(id, command, parsed),
            Class::Rewritten(Rewrite::Pop, _) => self.pop(id, command, parsed),
            Class::Rewritten(rewritten, repeat) => {
                let mut commands = std::mem::take(&mut self.scratch);
                commands.clear();
                let now_unix_ms = self.time_of(self.database_of(id), rewritten, parsed);
                match rewrite::rewrite(rewritten, parsed.arguments(), now_unix_ms, &mut commands) {
                    Ok(()) => self.write_one(id, command, repeat, parsed, &commands),
                    Err(refusal) => self.refuse(id, refusal.0),
                }
                self.scratch = commands;
            }
        }
    }

    /// An error of ours, in the command's turn; a transaction that it was part of does nothing.
    pub(super) fn refuse(&mut self, id: ClientId, text: &str) {
        let mut error = Vec::new();
        encode::error(&mut error, text);
        let is_of_cluster = self.is_of_cluster(id);
        self.refuse_as(id, |out| match is_of_cluster {
            true => out.extend_from_slice(&cluster::in_its_words(&error)),
            false => out.extend_from_slice(&error),
        });
    }

    pub(super) fn refuse_as(&mut self, id: ClientId, write: impl FnOnce(&mut Vec<u8>)) {
        self.counts.refused += 1;
        if let Some(client) = self.client(id)
            && let Some(transaction) = &mut client.transaction
        {
            transaction.is_spoiled = true;
        }
        self.reply_now(id, |out, _| write(out));
    }

    pub(super) fn read(&mut self, id: ClientId, command: &Command, parsed: ParsedCommand<'_>) {
        match self.locate(command, parsed) {
            Ok(place) => self.read_at(id, place, command, parsed),
            Err(reply) => self.refuse(id, &reply.to_string()),
        }
    }

    /// Reads where the keys are.
    pub(super) fn read_at(
        &mut self,
        id: ClientId,
        place: Location,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let Location { shard, partition, .. } = place;
        let Some(consistency) = self.consistency_of(id) else { return };
        let Some(client) = self.client(id) else { return };
        let session = client.session;
        let needs_leadership = consistency == Consistency::Strong;
        if needs_leadership && !self.leads() {
            return self.refuse_deposed(id);
        }
        let eligible = match self.eligible(partition, consistency, session) {
            Ok(eligible) => eligible,
            Err(refused) => return self.refuse_access(id, refused),
        };
        if eligible.needs == Acknowledge::One {
            return self.read_one(id, place, (consistency, eligible), command, parsed);
        }
        assert_eq!(
            eligible.connection,
            ConnectionKind::Ordered,
            "several answers are equal in one order only"
        );
        let copies = if place.is_whole { 1 } else { usize::from(self.config.read_copies) };
        let to = self.members.quorum(partition, &eligible, copies);
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let call = self.open(id, (shard, partition), None, to, form);
        let opened = &mut self.calls[call];
        (opened.level, opened.needs_leadership) = (eligible.needs, needs_leadership);
        let mut text = self.reads.text_of(parsed);
        let database = self.database_of(id);
        if database > 0 {
            text.clear();
            databases::write_within(&mut text, database, |out| parsed.write(out));
        }
        self.calls[call].text = text;
        for server in to.iter() {
            let place = (server, eligible.connection, database);
            self.ask_in(place, Owed::Access { call }, |out| parsed.write(out));
        }
        self.schedule();
    }

    pub(super) fn refuse_deposed(&mut self, id: ClientId) {
        let text = format!("UNAVAILABLE {}", self.why_deposed());
        self.refuse(id, &text);
    }

    pub(super) fn refuse_access(&mut self, id: ClientId, refused: Refused) {
        self.refuse(id, &format!("UNAVAILABLE {refused}"));
    }

    pub(super) fn open(
        &mut self,
        id: ClientId,
        (shard, partition): (usize, usize),
        write: Option<Sequence>,
        to: ServerSet,
        form: Form,
    ) -> usize {
        let slot = self.slot(id);
        let manager = self.manager.as_mut();
        let sample = manager.and_then(|it| it.sent(self.now, (shard, partition), to.len()));
        let of = self.counts.of(partition);
        let copies = if write.is_some() { &mut of.write_copies } else { &mut of.read_copies };
        *copies += to.len() as u64;
        let level = if write.is_some() { self.members.acknowledge() } else { Acknowledge::One };
        self.calls.insert(Call {
            copies: Copies::sent(to),
            level,
            needs_leadership: write.is_some(),
            write,
            partition,
            mirror: None,
            opened: self.now,
            client: Some((id, slot)),
            form,
            pop: None,
            waiter: None,
            told: None,
            done_before: None,
            removes_expired: false,
            sets: Vec::new(),
            late: None,
            answer: None,
            first_took: None,
            digest: None,
            others: Vec::new(),
            text: Vec::new(),
            sample,
        })
    }

    pub(super) fn write_one(
        &mut self,
        id: ClientId,
        command: &Command,
        repeat: Repeat,
        parsed: ParsedCommand<'_>,
        commands: &[u8],
    ) {
        let shard = match self.shard_of(command, parsed) {
            Ok(shard) => shard,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let (database, mut places) = (self.database_of(id), Vec::new());
        if self.needs_keys(shard) {
            places = databases::places(database, command, parsed.arguments());
        }
        let hashes: Vec<u128> = places.iter().map(|place| xxh3_128(place)).collect();
        let names: Vec<&[u8]> = places.iter().map(AsRef::as_ref).collect();
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let behind = self.deadline_behind(database, command, parsed);
        let (mut text, mut count) = (Cow::Borrowed(commands), 1);
        if let Some((place, at)) = &behind {
            deadlines::write_again(text.to_mut(), databases::key(place), *at);
            count += 1;
        }
        if database > 0 || databases::target_argument(command, parsed.arguments()).is_some() {
            let plain = std::mem::take(&mut text);
            databases::write_group(text.to_mut(), database, &plain);
            count += 2;
        }
        let once = if count > 1 { Repeat::Once } else { repeat };
        let write = Write {
            commands: &text,
            count,
            shard,
            repeat: once,
            keys: &hashes,
            key_names: &names,
            form,
            is_single: true,
        };
        let call = self.write(id, &write);
        if let (Some(call), Some((place, _))) = (call, behind) {
            let (commands, place) = (commands.to_vec(), Box::from(&*place));
            self.calls[call].late = Some(Box::new(Late { commands, repeat, shard, place }));
        }
        self.forget_last_ids(database, command, parsed);
    }

    /// Logs a write and sends it to everybody who is live; its call, or `None` when it was refused.
    pub(super) fn write(&mut self, id: ClientId, write: &Write<'_>) -> Option<usize> {
        self.try_again();
        if let Some(failure) = &self.failure {
            let text = format!("UNAVAILABLE {failure}");
            self.refuse(id, &text);
            return None;
        }
        if !self.leads() {
            self.refuse_deposed(id);
            return None;
        }
        let partition = self.map.partition(write.shard);
        if self.effects.is_ahead(partition) {
            self.refuse(id, ANOTHER_RUNS);
            return None;
        }
        if let Err(refused) =
            self.make_room(partition).and_then(|_| self.make_room_at_target(write.shard))
        {
            self.refuse_access(id, refused);
            return None;
        }
        // Whoever was dropped for the one may have been needed for the other.
        let to = match self.members.takers(partition) {
            Ok((to, _)) => to,
            Err(refused) => {
                self.refuse_access(id, refused);
                return None;
            }
        };
        if write.commands.len() > COMMAND_BYTES_MAX {
            self.refuse(id, "ERR the command is too long for the log");
            return None;
        }
        self.place(id, partition, (to, None), write)
    }

    /// Gives a write its place and sends it to these; one of them may have done it already.
    pub(super) fn place(
        &mut self,
        id: ClientId,
        partition: usize,
        (to, done): (ServerSet, Option<Done>),
        write: &Write<'_>,
    ) -> Option<usize> {
        self.begin_tracked_write(id, done.as_ref());
        let position = match self.append(partition, write) {
            Ok(position) => position,
            Err(error) => {
                self.refuse(id, &format!("UNAVAILABLE the log cannot be written: {error}"));
                return None;
            }
        };
        let sequence = position.sequence;
        let call = self.open(id, (write.shard, partition), Some(sequence), to, write.form.clone());
        self.calls[call].sets = std::mem::take(&mut self.expiry.set);
        let mut rest = to;
        if let Some(Done { server, told, waiter, published }) = done {
            let opened = &mut self.calls[call];
            (opened.told, opened.waiter) = (told, waiter);
            opened.done_before = Some(IsLogged(false));
            self.publish_behind(call, published);
            rest.remove(server);
            self.calls[call].copies.answer(server);
            self.members.sent(self.now, server, Some(sequence));
            self.members.answered(self.now, server, Some(sequence));
            // Its stream tells what it has done; the number of that must come next.
            self.mark(server);
        }
        self.send_write(rest, call, position, write);
        if let Some(client) = self.client(id) {
            client.session.saw(sequence);
        }
        self.note_last_write(id, partition, sequence);
        self.counts.writes += 1;
        self.tell_bootstrapping(partition, write);
        self.tell_pass(partition, write);
        if let Some(mirrored) = self.mirror(call, write)
            && let Some(client) = self.client(id)
        {
            client.session.saw(mirrored);
        }
        self.serve_waiters(write.commands);
        self.schedule();
        // Where the log failed meanwhile, it was told that nobody knows.
        self.calls.contains(call).then_some(call)
    }

    /// Drops those of a partition that owe too much, if others can take the next write; who takes
    /// it.
    ///
    /// # Errors
    /// When too few could take it.
    pub(super) fn make_room(&mut self, partition: usize) -> Result<ServerSet, Refused> {
        let (to, full) = self.members.takers(partition)?;
        for server in full.iter() {
            self.drop_server(server, Dropped::Full);
        }
        Ok(to)
    }

    /// Gives a write its place in the stream of a partition, in the log.
    ///
    /// # Errors
    /// When the log takes nothing any more.
    pub(super) fn append(
        &mut self,
        partition: usize,
        write: &Write<'_>,
    ) -> Result<Position, LogError> {
        self.note_write(write.commands);
        let position = self.history.advance();
        self.counts.of(partition).last = position.sequence;
        self.note_deadlines((partition, position.sequence), write.commands, write.count);
        self.note_keys_written(write.commands, position.sequence);
        self.note_tracked((partition, position.sequence), write.commands);
        let kind = match write.repeat {
            Repeat::Idempotent => RecordKind::Idempotent,
            // Whether keys have deadlines and writes fail is not known here.
            Repeat::Partial | Repeat::Once => RecordKind::Once,
        };
        let place = (write.shard as u16, partition as u16);
        let told = self.expiry.deadlines.take_passed().map_or(Ok(()), |at| self.log.tell_time(at));
        let append = |()| self.log.append(position.sequence.0, place, kind, write.commands);
        let appended = told.and_then(append);
        if let Err(error) = &appended {
            self.fail(error);
        }
        appended.map(|()| position)
    }

    /// Sends the copies of a client's write to these, which are of one partition.
    pub(super) fn send_write(
        &mut self,
        to: ServerSet,
        call: usize,
        position: Position,
        write: &Write<'_>,
    ) {
        let stamp = match write.repeat {
            Repeat::Idempotent => None,
            Repeat::Partial | Repeat::Once => self.stamp_behind(write.commands, write.is_single),
        };
        let servers = self.config.servers();
        for server in to.iter() {
            if write.repeat != Repeat::Idempotent {
                self.mark_before_group(server);
            }
            let connection = &mut self.servers[server].ordered;
            let owed = match write.repeat {
                Repeat::Idempotent => {
                    connection.pending.extend_from_slice(write.commands);
                    Owed::Access { call }
                }
                Repeat::Partial | Repeat::Once => {
                    let out = &mut connection.pending;
                    let (mark, stamp) = (position.numbers(), stamp.as_deref());
                    servers.write_group(out, write.commands, mark, stamp);
                    self.servers[server].marked = position.sequence;
                    let before = 2 + write.count;
                    let is_single = write.is_single;
                    Owed::Group { call, before, is_single, refusal: None }
                }
            };
            self.servers[server].ordered.owe(owed);
            self.members.sent(self.now, server, Some(position.sequence));
        }
    }
}

/// In words of ours: Redis takes these.
const OUTSIDE_TRANSACTIONS: &str = "ERR MONITOR and subscriptions are not taken within MULTI here: \
    send it before MULTI or after EXEC";

/// What has no place in a transaction here.
const fn is_outside_transactions(local: Local) -> bool {
    matches!(local, Local::Monitor | Local::Subscribe(_) | Local::Unsubscribe(_))
}

/// What may be said in a transaction, or says that it is over.
const fn ends_transaction(local: Local) -> bool {
    matches!(
        local,
        Local::Exec | Local::Discard | Local::Multi | Local::Reset | Local::Quit | Local::Watch
    )
}

/// The time of day, for expiries.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
