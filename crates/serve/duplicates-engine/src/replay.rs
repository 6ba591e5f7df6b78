//! What a duplicate needs that comes back, and how it gets what the log has.

use evenkeel_ordered::{Epoch, Position, Rejoin, Sequence};

use super::bootstrap::count_commands;
use super::{Inner, Owed};
use evenkeel_store_link::fencing::{self, FencingError, Look, NOBODYS, Us};
use evenkeel_stores::resp::{databases, functions};
use evenkeel_wal::{Record, RecordKind};

/// How a key's value begins in the log.
const RESTORE: &[u8] = b"*6\r\n$7\r\nRESTORE\r\n";

impl Inner {
    /// A server does not tell how it is set up: each is said once.
    pub fn is_unsure(&mut self, server: usize, unsure: &str) {
        if self.servers[server].is_unsure.insert(unsure.to_owned()) {
            tracing::warn!(server, "{unsure}");
        }
    }

    /// Who we are on the present connections to a server.
    pub fn us_to(&self, server: usize) -> Us {
        let number = self.servers[server].connection;
        Us { name: self.config.name.clone(), epoch: self.history.last().epoch, number }
    }

    /// What a server needs, or why it has to wait.
    pub fn needed(&mut self, server: usize, looked: Look) -> Result<Rejoin, FencingError> {
        let partition = self.members.partition(server);
        let live = self.members.live(partition);
        // What it says to have is not what it has.
        let lacks = looked.watermark.is_some_and(|mark| self.lacks_refused(server, mark));
        let is_diverged = lacks || self.servers[server].quarantine.is_some();
        let renamed = |mark| self.history.renamed(partition, mark).unwrap_or(NOBODYS);
        let watermark = looked.watermark.map(renamed);
        let watermark = if is_diverged { Some(NOBODYS) } else { watermark };
        let mut rejoin = self.history.rejoin(watermark, looked.holds_data, !live.is_empty());
        let is_alone = live.is_empty();
        // Of a partition that was opened later there is nothing before.
        let place = &self.layout.partitions[partition];
        let opened = Position { epoch: Epoch(place.epoch), sequence: Sequence(place.opened) };
        let is_new = place.opened > 0 && looked.watermark.is_none() && !looked.holds_data;
        // Unless it was in an earlier term, whose writes the log does not have.
        if is_new
            && self.history.is_ours(opened)
            && opened.sequence.next() >= self.history.held_from()
        {
            rejoin = Rejoin::Replay { after: opened.sequence };
        }
        if let Rejoin::Replay { after } = rejoin
            && !is_alone
            && (self.is_of_old_deadlines(after)
                || !self.can_follow(server, after)
                || self.has_undone(partition, after))
        {
            rejoin = self.filled_instead(partition)?;
        }
        let is_from_log = rejoin == Rejoin::Restore || (is_new && is_alone);
        let waits = |text: &str| Err(FencingError::Passing(text.to_owned()));
        let has_more = |other: usize| self.servers[other].holds_data == Some(true);
        let is_restored = |other: usize| other != server && self.servers[other].is_restored;
        match rejoin {
            // A deadline may pass between two that do the same writes again.
            _ if is_from_log && self.members.configured(partition).iter().any(is_restored) => {
                waits(
                    "it needs everything, and another one is being restored from the log: it is \
                     filled from that",
                )
            }
            Rejoin::Stranger => waits(
                "it holds data that did not come through this service, and the service has data \
                 already (empty it, or leave it out)",
            ),
            Rejoin::Adopt if self.map.partitions() > 1 => waits(
                "it holds data, and there is more than one partition: nobody knows which keys \
                 belong here (load them through the service instead)",
            ),
            Rejoin::Adopt if self.failure.is_some() => waits("the log cannot be written"),
            Rejoin::Wait => waits(
                "it needs a copy of everything, and no other duplicate of its partition is live",
            ),
            Rejoin::Replay { after: Sequence(0) }
                if self.history.last().sequence.0 == 0
                    && live.is_empty()
                    && !looked.holds_data
                    && self.members.configured(partition).iter().any(has_more) =>
            {
                waits("it is empty and waits for the one that holds data")
            }
            rejoin => {
                self.servers[server].is_restored = is_from_log;
                Ok(rejoin)
            }
        }
    }

    /// Of deadlines before our term nothing is known: who lost everything is filled.
    fn is_of_old_deadlines(&self, after: Sequence) -> bool {
        let first = self.history.position(Sequence(1)).epoch;
        after == Sequence(0) && first < self.history.last().epoch
    }

    /// Who would make keys anew that have expired for the others is filled from one of them, one
    /// after the other.
    fn filled_instead(&self, partition: usize) -> Result<Rejoin, FencingError> {
        if self.bootstrapping(partition).is_empty() {
            return Ok(Rejoin::Copy);
        }
        let text = "keys of writes that it lacks have expired, and another one is being filled: it \
                    keeps what it has until then";
        Err(FencingError::Passing(text.to_owned()))
    }

    /// A server has all there is: it is live from now on.
    pub fn is_up(&mut self, server: usize) {
        let last = self.history.last().sequence;
        let is_copied = self.servers[server].bootstrap.take().is_some();
        if self.servers[server].quarantine.take().is_some() {
            let of = self.counts.of(self.members.partition(server));
            if is_copied { of.copied_again += 1 } else { of.restored_again += 1 }
        }
        self.servers[server].is_restored = false;
        self.refusals.forget(server);
        self.members.caught_up(server, last);
        self.replan_reads();
        self.servers[server].error = None;
        self.ask_anew(server);
        self.read_clock_of(server);
        self.mark(server);
        self.schedule();
        tracing::info!(server, sequence = last.0, "a duplicate is live");
    }

    /// As it is and without a watermark. What it makes of writes whose beginnings are forgotten is
    /// overwritten by the state behind them.
    pub fn restore_one(&mut self, server: usize, record: &Record<'_>) {
        let count = count_commands(record.command);
        let (stamp, servers) = (self.stamp_behind(record.command, false), self.config.servers());
        let state = &mut self.servers[server];
        if let Some(stamp) = stamp {
            // It stays one that is being filled.
            let out = &mut state.ordered.pending;
            servers.write_marked(out, record.command, Some(&stamp), fencing::FILLING);
            let owed = Owed::Replayed { write: None, before: 2 + count, refusal: None };
            state.ordered.owe(owed);
            return self.members.sent(self.now, server, None);
        }
        state.ordered.pending.extend_from_slice(record.command);
        for _ in 0..count {
            let owed = match record.kind {
                RecordKind::State if count == 1 || databases::is_elsewhere(record.command) => {
                    let command = databases::within(record.command);
                    let is_libraries = command.starts_with(functions::RESTORE);
                    Owed::Given { is_key: is_libraries || command.starts_with(RESTORE) }
                }
                _ => Owed::Replayed { write: None, before: 0, refusal: None },
            };
            state.ordered.owe(owed);
            self.members.sent(self.now, server, None);
        }
    }

    /// A write of the log for a duplicate that lacks it.
    pub fn replay_one(&mut self, server: usize, record: &Record<'_>) {
        let position = self.history.position(Sequence(record.sequence));
        if record.kind == RecordKind::Once {
            self.mark_before_group(server);
        }
        let stamp = match record.kind {
            RecordKind::Once => self.stamp_behind(record.command, false),
            RecordKind::Idempotent | RecordKind::State => None,
        };
        // Without a log it has a write once it has the watermark behind it, as of a client's.
        let is_counted = !self.is_log_in_memory();
        let state = &mut self.servers[server];
        let connection = &mut state.ordered.pending;
        let sequence = Sequence(record.sequence);
        let owed = match record.kind {
            RecordKind::Idempotent => {
                connection.extend_from_slice(record.command);
                let write = is_counted.then_some(sequence);
                Owed::Replayed { write, before: 0, refusal: None }
            }
            RecordKind::Once => {
                let (servers, stamp) = (self.config.servers(), stamp.as_deref());
                servers.write_group(connection, record.command, position.numbers(), stamp);
                let count = count_commands(record.command);
                state.marked = sequence;
                Owed::Replayed { write: Some(sequence), before: 2 + count, refusal: None }
            }
            RecordKind::State => {
                connection.extend_from_slice(record.command);
                let before = count_commands(record.command).saturating_sub(1);
                Owed::Replayed { write: None, before, refusal: None }
            }
        };
        let write = (record.kind != RecordKind::State).then_some(sequence);
        state.ordered.owe(owed);
        self.members.sent(self.now, server, write);
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::Dropped;

    use super::super::world::World;
    use super::*;

    fn why_not(world: &World, server: usize) -> Option<String> {
        let watermark = Some(NOBODYS);
        let look = Look { epoch: Epoch(1), watermark, holds_data: true, database_last: 0 };
        match world.engine.borrow().needed(server, look) {
            Ok(rejoin) => {
                assert_eq!(rejoin, Rejoin::Restore);
                None
            }
            Err(FencingError::Passing(why) | FencingError::Fenced(why)) => Some(why),
        }
    }

    /// For it the key has expired, and `INCR` would make a new one.
    #[test]
    fn one_whose_clock_is_far_ahead_does_not_do_again_what_has_expired_for_it() {
        let mut world = World::start(3, |_| {});
        let client = world.client();
        assert!(world.tell(client, &["INCR", "k"]));
        assert!(world.tell(client, &["PEXPIRE", "k", "60000"]));
        world.lose(2, Dropped::Lost);
        assert!(world.tell(client, &["INCR", "k"]));
        let after = |world: &World, sequence| {
            let watermark = Some(Position { epoch: Epoch(1), sequence: Sequence(sequence) });
            let look = Look { epoch: Epoch(1), watermark, holds_data: true, database_last: 0 };
            world.engine.borrow().needed(2, look).ok()
        };
        let replayed = |sequence| Some(Rejoin::Replay { after: Sequence(sequence) });
        let tells = |world: &World, ahead_s: u64| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            let now = since.unwrap().as_secs();
            let told = format!("*2\r\n$10\r\n{}\r\n$1\r\n0\r\n", now + ahead_s);
            let sent = i64::try_from(now * 1_000_000).unwrap();
            world.engine.borrow().clock_told(2, sent, told.as_bytes());
        };
        tells(&world, 30);
        assert_eq!(after(&world, 2), replayed(2));
        tells(&world, 90);
        assert_eq!(after(&world, 2), Some(Rejoin::Copy));
        assert_eq!(after(&world, 3), replayed(3), "it lacks nothing");
    }

    /// Both would do all writes again, one before a key's deadline and the other behind it.
    #[test]
    fn one_is_restored_from_the_log_and_the_others_are_filled_from_it() {
        let mut world = World::start(3, |_| {});
        let client = world.client();
        assert!(world.tell(client, &["SET", "k", "1"]));
        (0..3).for_each(|server| world.lose(server, Dropped::Lost));
        assert_eq!(why_not(&world, 1), None);
        let why = why_not(&world, 0).expect("another one is restored");
        assert!(why.contains("filled from that"), "{why}");
        assert_eq!(why_not(&world, 1), None, "it begins again");
        // It is gone again: another one may be the first.
        world.engine.borrow().servers[1].is_restored = false;
        assert_eq!(why_not(&world, 0), None);
    }
}
