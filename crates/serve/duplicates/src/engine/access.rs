//! A client's command becomes a read or a write of so many duplicates.

use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Consistency, Copies, Dropped, Position, Refused, Sequence,
    ServerSet,
};
use xxhash_rust::xxh3::xxh3_128;

use super::types::{ANOTHER_RUNS, ClientId, ErrorReply, Form, Owed, ParsedCommand, Write};
use super::{Call, Inner, write_mark};
use evenkeel_stores::resp::commands::{self, Class, Command, Keys, Local, Repeat, Rewrite};
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::rewrite;
use evenkeel_stores::store::keys::RESERVED;
use evenkeel_wal::{COMMAND_BYTES_MAX, LogError, RecordKind};

impl Inner {
    /// Takes one command of a client; false = not yet: it is to be asked again when the client is
    /// no longer held.
    #[must_use]
    pub(in super::super) fn submit(&mut self, id: ClientId, parsed: ParsedCommand<'_>) -> bool {
        let Some(command) = commands::lookup(parsed.argument(0)) else {
            self.refuse_as(id, |out| commands::unknown(parsed.arguments(), out));
            return true;
        };
        if !command.accepts(parsed.len()) {
            self.refuse_as(id, |out| commands::wrong_arity(command, out));
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
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> bool {
        let class = commands::classify(command, parsed.arguments());
        if self.holds_behind_reads(id, command, class, parsed)
            || self.holds_behind_effects(id, command, class, parsed)
            || self.asks_last_id(id, (command, class), parsed)
        {
            return false;
        }
        self.take(id, command, class, parsed);
        true
    }

    fn take(&mut self, id: ClientId, command: &Command, class: Class, parsed: ParsedCommand<'_>) {
        let Some(client) = self.client(id) else { return };
        let is_known = client.is_known;
        let in_transaction = client.transaction.is_some();
        match class {
            Class::Local(local) if in_transaction && !ends_transaction(local) => self.refuse(
                id,
                "ERR within MULTI only commands on keys are taken here, besides EXEC and DISCARD",
            ),
            Class::Local(local) => self.local(id, local, parsed),
            _ if !is_known => self.refuse(id, "NOAUTH Authentication required."),
            Class::Refused(why) => self.refuse(id, why),
            _ if in_transaction => self.queue(id, command, class, parsed),
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
                let now_unix_ms = self.time_of(rewritten, parsed);
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
        self.refuse_as(id, |out| encode::error(out, text));
    }

    fn refuse_as(&mut self, id: ClientId, write: impl FnOnce(&mut Vec<u8>)) {
        self.counts.refused += 1;
        if let Some(client) = self.client(id)
            && let Some(transaction) = &mut client.transaction
        {
            transaction.is_spoiled = true;
        }
        self.reply_now(id, |out, _| write(out));
    }

    /// The shard of all keys of a command.
    ///
    /// # Errors
    /// What the client is told when they are in several, or when a key is ours.
    pub(super) fn shard_of(
        &self,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> Result<usize, ErrorReply> {
        let mut shard = None;
        // Who has all keys may do anything with them.
        let is_free = command.keys == Keys::Script && self.map.partitions() == 1;
        let keys = commands::keys(command, parsed.arguments())?;
        for index in keys {
            let key = parsed.argument(index);
            if key.starts_with(RESERVED) {
                let message = "keys that begin with 'evenkeel:' are Evenkeel's own";
                return Err(ErrorReply::new("ERR", message));
            }
            let of_key = self.map.shard(evenkeel_stores::resp::hash::slot(key));
            if *shard.get_or_insert(of_key) != of_key && !is_free {
                let message = "keys of one command must be in one shard: give them a common {tag}";
                return Err(ErrorReply::new("CROSSSHARD", message));
            }
        }
        let shard = shard.or(is_free.then_some(0));
        shard.ok_or_else(|| {
            let text = format!("'{}' without a key: nobody knows its partition", command.name);
            ErrorReply::new("ERR", text)
        })
    }

    fn read(&mut self, id: ClientId, command: &Command, parsed: ParsedCommand<'_>) {
        let shard = match self.shard_of(command, parsed) {
            Ok(shard) => shard,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        self.read_at(id, shard, command, parsed);
    }

    /// A read of what a shard holds.
    pub(super) fn read_at(
        &mut self,
        id: ClientId,
        shard: usize,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        let partition = self.map.partition(shard);
        let Some(client) = self.client(id) else { return };
        let (consistency, session) = (client.consistency, client.session);
        let needs_leadership = consistency == Consistency::Strong;
        if needs_leadership && !self.leads() {
            return self.refuse_deposed(id);
        }
        let eligible = match self.members.eligible(partition, consistency, session) {
            Ok(eligible) => eligible,
            Err(refused) => return self.refuse_access(id, refused),
        };
        if eligible.needs == Acknowledge::One {
            let (place, who) = ((shard, partition), (consistency, eligible));
            return self.read_one(id, place, who, command, parsed);
        }
        assert_eq!(
            eligible.connection,
            ConnectionKind::Ordered,
            "several answers are equal in one order only"
        );
        let to = self.members.quorum(partition, &eligible, usize::from(self.config.read_copies));
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let call = self.open(id, (shard, partition), None, to, form);
        let opened = &mut self.calls[call];
        (opened.level, opened.needs_leadership) = (eligible.needs, needs_leadership);
        opened.text = self.reads.text_of(parsed);
        for server in to.iter() {
            let connection = self.servers[server].connection(eligible.connection);
            parsed.write(&mut connection.pending);
            connection.owe(Owed::Access { call });
            self.members.sent(self.now, server, None);
        }
        self.schedule();
    }

    fn refuse_deposed(&mut self, id: ClientId) {
        let text = format!("UNAVAILABLE {}", self.why_deposed());
        self.refuse(id, &text);
    }

    pub(super) fn refuse_access(&mut self, id: ClientId, refused: Refused) {
        self.refuse(id, &format!("UNAVAILABLE {refused}"));
    }

    fn open(
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
            told: None,
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
        let (mut hashes, mut names) = (Vec::new(), Vec::new());
        if self.needs_keys(shard) {
            let keys = commands::keys(command, parsed.arguments()).into_iter().flatten();
            names.extend(keys.map(|index| parsed.argument(index)));
            hashes.extend(names.iter().map(|key| xxh3_128(key)));
        }
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let (keys, key_names) = (&*hashes, &*names);
        let write =
            Write { commands, count: 1, shard, repeat, keys, key_names, form, is_single: true };
        self.write(id, &write);
        self.forget_last_ids(command, parsed);
    }

    /// Logs a write and sends it to everybody who is live; its call, or `None` when it was refused.
    pub(super) fn write(&mut self, id: ClientId, write: &Write<'_>) -> Option<usize> {
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
        if self.effects.is_busy(partition) {
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
        (to, done): (ServerSet, Option<usize>),
        write: &Write<'_>,
    ) -> Option<usize> {
        let position = match self.append(partition, write) {
            Ok(position) => position,
            Err(error) => {
                self.refuse(id, &format!("UNAVAILABLE the log cannot be written: {error}"));
                return None;
            }
        };
        let sequence = position.sequence;
        let call = self.open(id, (write.shard, partition), Some(sequence), to, write.form.clone());
        let mut rest = to;
        if let Some(server) = done {
            rest.remove(server);
            self.calls[call].copies.answer(server);
            self.members.sent(self.now, server, Some(sequence));
            self.members.answered(self.now, server, Some(sequence));
        }
        self.send_write(rest, call, position, write);
        if let Some(client) = self.client(id) {
            client.session.saw(sequence);
        }
        self.counts.writes += 1;
        self.tell_bootstrapping(partition, write);
        self.tell_pass(partition, write);
        if let Some(mirrored) = self.mirror(call, write)
            && let Some(client) = self.client(id)
        {
            client.session.saw(mirrored);
        }
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
        let position = self.history.advance();
        let kind = match write.repeat {
            Repeat::Idempotent => RecordKind::Idempotent,
            // Whether keys have deadlines and writes fail is not known here.
            Repeat::Partial | Repeat::Once => RecordKind::Once,
        };
        let place = (write.shard as u16, partition as u16);
        let appended = self.log.append(position.sequence.0, place, kind, write.commands);
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
        for server in to.iter() {
            let connection = &mut self.servers[server].ordered;
            let owed = match write.repeat {
                Repeat::Idempotent => {
                    connection.pending.extend_from_slice(write.commands);
                    Owed::Access { call }
                }
                Repeat::Partial | Repeat::Once => {
                    write_group(&mut connection.pending, write.commands, position);
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

/// What may be said in a transaction, or says that it is over.
const fn ends_transaction(local: Local) -> bool {
    matches!(local, Local::Exec | Local::Discard | Local::Multi | Local::Reset | Local::Quit)
}

/// `MULTI`, the commands, the watermark, `EXEC`: applied with its watermark or not at all.
pub(in super::super) fn write_group(out: &mut Vec<u8>, commands: &[u8], position: Position) {
    out.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
    out.extend_from_slice(commands);
    write_mark(out, position);
    out.extend_from_slice(b"*1\r\n$4\r\nEXEC\r\n");
}

/// The time of day, for expiries.
pub(super) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
