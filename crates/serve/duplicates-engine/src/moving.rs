//! A shard that moves: its writes for the partition that it goes to, and keys on their way there.
//!
//! What the target gets is writes of its own stream, in the log and in one order, as
//! [`Moving`](evenkeel_ordered::Moving) says. A client's write that is *sent* there
//! has one call with copies in both partitions. A move that cannot go on is given up
//! ([`Inner::break_move`]): the source was the owner all along, and what the target has of the
//! shard is nobody's.

use evenkeel_ordered::{Copies, Hash, Moving, Phase, Position, Refused, Sequence, Treatment};

use super::bootstrap::{count_commands, restoring};
use super::late::TOO_LATE;
use super::types::{Copy, CopyTarget, Form, Owed, Write};
use super::{Call, Inner};
use evenkeel_store_link::compared::digest;
use evenkeel_stores::resp::commands::Repeat;
use evenkeel_stores::resp::hash::slot;
use evenkeel_stores::resp::reply::Shape;
use evenkeel_stores::resp::{databases, encode, reply};
use evenkeel_wal::LogError;
use xxhash_rust::xxh3::xxh3_128;

/// One move under way.
#[derive(Debug)]
pub struct Move {
    /// How far it is.
    pub moving: Moving,
    /// What was asked for in an earlier one is forgotten.
    pub number: u64,
    /// Whom keys are copied from.
    pub source: Option<usize>,
    /// The map with the new owner may be stored already: there is no way back.
    pub is_storing: bool,
}

/// Why a write of ours was not taken.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The service takes no writes any more.
    #[error("{0}")]
    OutOfService(String),
    /// Too few of the partition can take it.
    #[error("partition {partition}: {refused}")]
    Partition { partition: usize, refused: Refused },
    /// One of its duplicates is ahead of the log.
    #[error("partition {0}: a script runs there")]
    Busy(usize),
    #[error("{0}")]
    Log(LogError),
}

/// Copies of a client's write at the partition that its shard moves to.
#[derive(Debug)]
pub(super) struct Mirror {
    pub(super) partition: usize,
    pub(super) copies: Copies,
    sequence: Sequence,
    /// Whether its client waits for them.
    pub(super) is_needed: bool,
    /// As that of the call.
    pub(super) digest: Option<u64>,
}

impl Call {
    pub(super) fn is_mirrored_at(&self, partition: usize) -> bool {
        self.mirror.as_ref().is_some_and(|mirror| mirror.partition == partition)
    }

    pub(super) fn copies_at(&mut self, partition: usize) -> &mut Copies {
        match &mut self.mirror {
            Some(mirror) if mirror.partition == partition => &mut mirror.copies,
            _ => &mut self.copies,
        }
    }

    /// The place of the write in that partition's stream; `None` for a read.
    pub(super) fn write_at(&self, partition: usize) -> Option<Sequence> {
        match &self.mirror {
            Some(mirror) if mirror.partition == partition => Some(mirror.sequence),
            _ => self.write,
        }
    }

    /// Whether nobody owes an answer.
    pub(super) fn is_answered(&self) -> bool {
        let mirror = self.mirror.as_ref();
        self.copies.owed().is_empty() && mirror.is_none_or(|it| it.copies.owed().is_empty())
    }
}

impl Inner {
    /// Begins to move a shard; the number of the move.
    pub fn begin_move(&mut self, shard: usize, to: usize) -> u64 {
        self.serial += 1;
        let moving = Moving::begin(shard, self.map.partition(shard), to);
        let number = self.serial;
        self.moving = Some(Move { moving, number, source: None, is_storing: false });
        number
    }

    /// The target is empty: keys are copied from this server from now on.
    pub fn copy_shard_from(&mut self, source: usize) {
        if let Some(it) = &mut self.moving {
            it.moving.cleared();
            it.source = Some(source);
        }
    }

    /// A move cannot go on. Nothing happens where the map may have been stored: the target may be
    /// the owner then.
    pub fn break_move(&mut self, why: &str) {
        let is_possible =
            self.moving.as_ref().is_some_and(|it| !it.is_storing && it.phase() < Phase::Forgetting);
        if !is_possible {
            return;
        }
        tracing::warn!(why, "a move is given up");
        self.moving = None;
        self.changes.error = Some(why.to_owned());
        // Nobody waits for the target any more.
        let keys: Vec<usize> = self.calls.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(Call { mirror: Some(mirror), .. }) = self.calls.get_mut(key)
                && std::mem::take(&mut mirror.is_needed)
            {
                self.settle(key);
            }
        }
    }

    /// Whoever keys come from is gone.
    pub(super) fn end_move_from(&mut self, server: usize) {
        let is_source = self
            .moving
            .as_ref()
            .is_some_and(|it| it.source == Some(server) && it.phase() == Phase::Copying);
        if is_source {
            self.break_move("the duplicate that keys were copied from is gone");
        }
    }

    /// Whether the keys of a write to this shard must be known.
    pub(super) fn needs_keys(&self, shard: usize) -> bool {
        let is_moving = self.moving.as_ref().is_some_and(|it| it.moving.shard() == shard);
        is_moving || self.is_being_copied(self.map.partition(shard))
    }

    /// While a write to this shard needs both partitions, the target must be able to take it.
    pub(super) fn make_room_at_target(&mut self, shard: usize) -> Result<(), Refused> {
        match &self.moving {
            Some(it) if it.moving.shard() == shard && it.moving.needs_both() => {
                let target = it.moving.to();
                match self.make_room(target) {
                    Ok(_) => Ok(()),
                    Err(refused) => {
                        self.break_move(&format!("the target takes no writes: {refused}"));
                        // There was a way back.
                        if self.moving.is_none() { Ok(()) } else { Err(refused) }
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// The target's part of a client's write that was sent to the source; its place there, when it
    /// was sent on.
    pub(super) fn mirror(&mut self, call: usize, write: &Write<'_>) -> Option<Sequence> {
        let it = self.moving.as_mut().filter(|it| it.moving.shard() == write.shard)?;
        let (to, number, source) = (it.moving.to(), it.number, it.source);
        let is_needed = it.moving.needs_both();
        let held = if it.phase() == Phase::Copying { held(write) } else { Vec::new() };
        match it.moving.write(write.keys, &held)? {
            Treatment::Hold => return None,
            Treatment::Send => {}
            Treatment::Ask => {
                if let Some(source) = source {
                    for (&hash, &key) in write.keys.iter().zip(write.key_names) {
                        self.ask_for(source, CopyTarget::Move(number), key, hash);
                    }
                }
                return None;
            }
        }
        let servers = match self.make_room(to) {
            Ok(servers) => servers,
            Err(refused) => {
                self.break_move(&format!("the target takes no writes: {refused}"));
                return None;
            }
        };
        let position = self.append(to, write).ok()?;
        self.send_write(servers, call, position, write);
        self.calls[call].mirror = Some(Box::new(Mirror {
            partition: to,
            copies: Copies::sent(servers),
            sequence: position.sequence,
            is_needed,
            digest: None,
        }));
        self.tell_bootstrapping(to, write);
        self.tell_pass(to, write);
        Some(position.sequence)
    }

    /// Whether the two partitions answered a write differently. Where one was too late for it, the
    /// key goes at the other too.
    pub(super) fn is_mirror_different(&self, key: usize) -> bool {
        let call = &self.calls[key];
        let theirs = call.mirror.as_ref().and_then(|mirror| mirror.digest);
        let (Some(ours), Some(theirs)) = (call.digest, theirs) else { return false };
        let is_late = || [ours, theirs].contains(&digest(TOO_LATE));
        ours != theirs && !(call.late.is_some() && is_late())
    }

    /// What the target has is no copy.
    pub(super) fn tear_move(&mut self) {
        if self.is_past_return() {
            let to = self.moving.as_ref().map(|it| it.moving.to());
            self.counts.found(to.unwrap_or_default());
        }
        self.break_move("the target answered a write otherwise than the source");
    }

    /// Whether the shard that moves has a new owner already: it does not go back.
    pub fn is_past_return(&self) -> bool {
        self.moving.as_ref().is_none_or(|it| it.is_storing || it.phase() == Phase::Forgetting)
    }

    /// A write of ours in the stream of a partition.
    ///
    /// # Errors
    /// Why it was not taken.
    pub(super) fn stream(
        &mut self,
        partition: usize,
        write: &Write<'_>,
        is_key: bool,
    ) -> Result<(), StreamError> {
        if let Some(failure) = &self.failure {
            return Err(StreamError::OutOfService(failure.clone()));
        }
        if self.effects.is_ahead(partition) {
            return Err(StreamError::Busy(partition));
        }
        let to = self.make_room(partition);
        let to = to.map_err(|refused| StreamError::Partition { partition, refused })?;
        let position = self.append(partition, write).map_err(StreamError::Log)?;
        for server in to.iter() {
            let before = self.send_stream(server, position, write);
            let write = position.sequence;
            let owed = Owed::Moved { write, before, refusal: None, is_key };
            self.servers[server].ordered.owe(owed);
            self.members.sent(self.now, server, Some(write));
        }
        self.tell_bootstrapping(partition, write);
        self.tell_pass(partition, write);
        self.schedule();
        Ok(())
    }

    /// How many answers come before the last one.
    fn send_stream(&mut self, server: usize, position: Position, write: &Write<'_>) -> u32 {
        if write.repeat != Repeat::Idempotent {
            self.mark_before_group(server);
        }
        let state = &mut self.servers[server];
        if write.repeat == Repeat::Idempotent {
            state.ordered.pending.extend_from_slice(write.commands);
            return 0;
        }
        let out = &mut state.ordered.pending;
        self.config.servers().write_group(out, write.commands, position.numbers(), None);
        state.marked = position.sequence;
        2 + write.count
    }

    /// Removes these keys of a shard from a partition.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn remove_keys(
        &mut self,
        partition: usize,
        shard: usize,
        keys: &[&[u8]],
    ) -> Result<(), StreamError> {
        let mut commands = Vec::new();
        let servers = self.config.servers();
        let is_together = |one: &&[u8], next: &&[u8]| servers.take_together(one, next);
        for keys in keys.chunk_by(is_together) {
            let database = databases::at(keys[0]).0;
            let names = keys.iter().map(|place| databases::key(place));
            let words: Vec<&[u8]> = std::iter::once(&b"DEL"[..]).chain(names).collect();
            databases::write_within(&mut commands, database, |out| encode::command(out, &words));
        }
        let hashes: Vec<Hash> = keys.iter().map(|key| xxh3_128(key)).collect();
        self.stream(partition, &ours(&commands, shard, Repeat::Idempotent, &hashes, keys), false)
    }

    /// The source was seen to have this key.
    pub fn seen_in_move(&mut self, key: &[u8]) {
        let hash = xxh3_128(key);
        let Some(it) = &mut self.moving else { return };
        if self.map.shard(slot(databases::key(key))) == it.moving.shard()
            && it.moving.seen(hash)
            && let Some(source) = it.source
        {
            let to = CopyTarget::Move(it.number);
            self.ask_for(source, to, key, hash);
        }
    }

    /// A key has come from the source.
    pub(super) fn arrived(
        &mut self,
        number: u64,
        copy: &Copy,
        dump: Option<&[u8]>,
        expires_ms: i64,
    ) {
        let Some(it) = self.moving.as_mut().filter(|it| it.number == number) else { return };
        let (shard, to) = (it.moving.shard(), it.moving.to());
        let Some(held) = it.moving.arrived(copy.hash) else { return };
        let command = restoring(&copy.key, dump, expires_ms);
        let (hashes, keys) = (&[copy.hash], &[&*copy.key]);
        let key = ours(&command, shard, Repeat::Idempotent, hashes, keys);
        let mut streamed = self.stream(to, &key, true);
        for write in &held {
            let (repeat, commands) = unheld(write);
            let write = ours(commands, shard, repeat, hashes, keys);
            streamed = streamed.and_then(|()| self.stream(to, &write, false));
        }
        self.counts.moved_keys += 1;
        if let Err(why) = streamed {
            self.break_move(&why.to_string());
        }
    }

    /// A write of ours was answered.
    pub(super) fn moved_answered(
        &mut self,
        server: usize,
        write: Sequence,
        is_key: bool,
        reply: &[u8],
    ) {
        self.members.answered(self.now, server, Some(write));
        if is_key && reply::has_failed(reply) {
            let reply = String::from_utf8_lossy(reply);
            self.break_move(&format!("the target does not take a key: {}", reply.trim_end()));
        }
    }

    /// Whether a duplicate of one of these partitions is ahead of the log.
    pub fn is_ahead(&self, partitions: [usize; 2]) -> bool {
        partitions.iter().any(|&partition| self.effects.is_busy(partition))
    }

    /// Goes on to the next phase, if it may.
    pub fn advance_move(&mut self) {
        let last = self.history.last().sequence;
        if let Some(it) = &mut self.moving
            && it.moving.advance(&self.members, last)
        {
            tracing::info!(shard = it.moving.shard(), phase = it.phase().name(), "a move goes on");
        }
    }
}

impl Move {
    /// How far a move is.
    pub const fn phase(&self) -> Phase {
        self.moving.phase()
    }
}

/// A write of ours: the keys are of one shard.
fn ours<'w>(
    commands: &'w [u8],
    shard: usize,
    repeat: Repeat,
    keys: &'w [Hash],
    key_names: &'w [&'w [u8]],
) -> Write<'w> {
    let count = count_commands(commands);
    let repeat = if count > 1 { Repeat::Once } else { repeat }; // together, or not at all
    Write {
        commands,
        count,
        shard,
        repeat,
        keys,
        key_names,
        form: Form::One(Shape::Plain),
        is_single: false,
    }
}

/// A write that waits for its key, with whether it may be repeated.
fn held(write: &Write<'_>) -> Vec<u8> {
    let mut held = vec![u8::from(write.repeat == Repeat::Idempotent)];
    held.extend_from_slice(write.commands);
    held
}

fn unheld(held: &[u8]) -> (Repeat, &[u8]) {
    match held.split_first() {
        Some((1, commands)) => (Repeat::Idempotent, commands),
        Some((_, commands)) => (Repeat::Once, commands),
        None => (Repeat::Idempotent, held),
    }
}
