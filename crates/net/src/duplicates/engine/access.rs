//! A client's command becomes a read or a write of so many duplicates.

use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_core::request::ordered::{
    Acknowledge, Consistency, Copies, Dropped, Hash, Lane, Position, Refused, Sequence, ServerSet,
};
use xxhash_rust::xxh3::xxh3_128;

use super::super::lane::Owed;
use super::super::log::{COMMAND_BYTES_MAX, LogError, RecordKind};
use super::clients::{ClientId, Form};
use super::{Call, Inner, RESERVED, write_mark};
use crate::resp::commands::{self, Class, Command, Local, Repeat, Rewrite};
use crate::resp::encode;
use crate::resp::request::{Arguments, RequestParser};
use crate::resp::rewrite;

/// One command as it came.
#[derive(Clone, Copy)]
pub(in super::super) struct Came<'a> {
    pub(in super::super) parser: &'a RequestParser,
    pub(in super::super) buffer: &'a [u8],
    /// Bytes of the buffer that are this command.
    pub(in super::super) length: usize,
}

impl<'a> Came<'a> {
    pub(super) fn arguments(&self) -> Arguments<'a> {
        self.parser.arguments(self.buffer)
    }

    pub(super) fn argument(&self, index: usize) -> &'a [u8] {
        self.parser.argument(self.buffer, index)
    }

    pub(super) fn len(&self) -> usize {
        self.parser.len()
    }

    /// The command as an array of bulk strings, at the end of `out`.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.parser.is_inline() {
            self.parser.write_canonical(self.buffer, out);
        } else {
            out.extend_from_slice(&self.buffer[..self.length]);
        }
    }
}

/// A write that is the same for every duplicate.
pub(super) struct Write<'a> {
    /// Commands, one after the other.
    pub(super) commands: &'a [u8],
    pub(super) count: u32,
    pub(super) shard: usize,
    pub(super) repeat: Repeat,
    pub(super) keys: &'a [Hash],
    pub(super) key_names: &'a [&'a [u8]],
    pub(super) form: Form,
    /// Whether its answer is that of its one command (and not that of an EXEC).
    pub(super) is_single: bool,
}

impl Inner {
    /// Takes one command of a client; false = not yet: it is to be asked again when the client is
    /// no longer held.
    #[must_use]
    pub(in super::super) fn submit(&mut self, id: ClientId, came: Came<'_>) -> bool {
        let Some(command) = commands::lookup(came.argument(0)) else {
            self.refuse_as(id, |out| commands::unknown(came.arguments(), out));
            return true;
        };
        if !command.accepts(came.len()) {
            self.refuse_as(id, |out| commands::wrong_arity(command, out));
            return true;
        }
        let class = commands::classify(command, came.arguments());
        if self.holds_behind_reads(id, command, class, came) {
            return false;
        }
        self.take(id, command, class, came);
        true
    }

    fn take(&mut self, id: ClientId, command: &Command, class: Class, came: Came<'_>) {
        let Some(client) = self.client(id) else { return };
        let is_known = client.is_known;
        let in_transaction = client.transaction.is_some();
        match class {
            Class::Local(local) if in_transaction && !ends_transaction(local) => self.refuse(
                id,
                "ERR within MULTI only commands on keys are taken here, besides EXEC and DISCARD",
            ),
            Class::Local(local) => self.local(id, local, came),
            _ if !is_known => self.refuse(id, "NOAUTH Authentication required."),
            Class::Refused(why) => self.refuse(id, why),
            _ if in_transaction => self.queue(id, command, class, came),
            Class::Read => self.read(id, command, came),
            Class::Write(repeat) => {
                let mut commands = std::mem::take(&mut self.scratch);
                commands.clear();
                came.write(&mut commands);
                self.write_one(id, command, repeat, came, &commands);
                self.scratch = commands;
            }
            Class::Rewritten(Rewrite::Pop, _) => self.pop(id, command, came),
            Class::Rewritten(rewritten, repeat) => {
                let mut commands = std::mem::take(&mut self.scratch);
                commands.clear();
                match rewrite::rewrite(rewritten, came.arguments(), unix_ms(), &mut commands) {
                    Ok(()) => self.write_one(id, command, repeat, came, &commands),
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
    pub(super) fn shard_of(&self, command: &Command, came: Came<'_>) -> Result<usize, String> {
        let mut shard = None;
        let keys = commands::keys(command, came.arguments()).map_err(|refusal| refusal.0)?;
        for index in keys {
            let key = came.argument(index);
            if key.starts_with(RESERVED) {
                return Err("ERR keys that begin with 'evenkeel:' are Evenkeel's own".to_owned());
            }
            let of_key = self.map.shard(crate::resp::hash::slot(key));
            if *shard.get_or_insert(of_key) != of_key {
                return Err("CROSSSHARD keys of one command must be in one shard: give them a \
                            common {tag}"
                    .to_owned());
            }
        }
        shard.ok_or_else(|| format!("ERR '{}' without a key", command.name))
    }

    fn read(&mut self, id: ClientId, command: &Command, came: Came<'_>) {
        let shard = match self.shard_of(command, came) {
            Ok(shard) => shard,
            Err(text) => return self.refuse(id, &text),
        };
        let partition = self.map.partition(shard);
        let Some(client) = self.client(id) else { return };
        let (consistency, session) = (client.consistency, client.session);
        let is_reigns = consistency == Consistency::Strong;
        if is_reigns && !self.reigns() {
            return self.refuse_deposed(id);
        }
        let copies_max = self.config.read_copies;
        let reading = match self.members.reading(partition, consistency, session, copies_max) {
            Ok(reading) => reading,
            Err(refused) => return self.refuse_access(id, refused),
        };
        let form = Form::One(commands::shape(command, came.arguments()));
        let call = self.open(id, (shard, partition), None, reading.to, form);
        let opened = &mut self.calls[call];
        (opened.level, opened.is_reigns) = (reading.needs, is_reigns);
        if reading.lane == Lane::Free {
            self.note_overtaking(id, command, came);
        }
        for server in reading.to.iter() {
            let lane = self.servers[server].lane(reading.lane);
            came.write(&mut lane.pending);
            lane.owed.push_back(Owed::Access { call });
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
            is_reigns: write.is_some(),
            write,
            partition,
            mirror: None,
            opened: self.now,
            client: Some((id, slot)),
            form,
            pop: None,
            answer: None,
            digest: None,
            sample,
        })
    }

    fn write_one(
        &mut self,
        id: ClientId,
        command: &Command,
        repeat: Repeat,
        came: Came<'_>,
        commands: &[u8],
    ) {
        let shard = match self.shard_of(command, came) {
            Ok(shard) => shard,
            Err(text) => return self.refuse(id, &text),
        };
        let (mut hashes, mut names) = (Vec::new(), Vec::new());
        if self.needs_keys(shard) {
            let keys = commands::keys(command, came.arguments()).into_iter().flatten();
            names.extend(keys.map(|index| came.argument(index)));
            hashes.extend(names.iter().map(|key| xxh3_128(key)));
        }
        let form = Form::One(commands::shape(command, came.arguments()));
        let (keys, key_names) = (&*hashes, &*names);
        let write =
            Write { commands, count: 1, shard, repeat, keys, key_names, form, is_single: true };
        self.write(id, &write);
    }

    /// Logs a write and sends it to everybody who is live; its call, or `None` when it was refused.
    pub(super) fn write(&mut self, id: ClientId, write: &Write<'_>) -> Option<usize> {
        if let Some(failure) = &self.failure {
            let text = format!("UNAVAILABLE {failure}");
            self.refuse(id, &text);
            return None;
        }
        if !self.reigns() {
            self.refuse_deposed(id);
            return None;
        }
        let partition = self.map.partition(write.shard);
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
        let position = match self.append(partition, write) {
            Ok(position) => position,
            Err(error) => {
                self.refuse(id, &format!("UNAVAILABLE the log cannot be written: {error}"));
                return None;
            }
        };
        let sequence = position.sequence;
        let call = self.open(id, (write.shard, partition), Some(sequence), to, write.form.clone());
        self.send_write(to, call, position, write);
        if let Some(client) = self.client(id) {
            client.session.saw(sequence);
        }
        self.counts.writes += 1;
        self.tell_joiners(partition, write);
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
            let lane = &mut self.servers[server].ordered;
            let owed = match write.repeat {
                Repeat::Idempotent => {
                    lane.pending.extend_from_slice(write.commands);
                    Owed::Access { call }
                }
                Repeat::Partial | Repeat::Once => {
                    write_group(&mut lane.pending, write.commands, position);
                    self.servers[server].marked = position.sequence;
                    let before = 2 + write.count;
                    let is_single = write.is_single;
                    Owed::Group { call, before, is_single, refusal: None }
                }
            };
            self.servers[server].ordered.owed.push_back(owed);
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
