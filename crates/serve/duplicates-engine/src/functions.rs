//! `FUNCTION`: libraries are the same at all duplicates of all partitions.
//!
//! What changes them is a write of each partition, at one place in the order of writes of all, as
//! `FLUSHALL` is: every duplicate does it as it came. What shows them is a read of one duplicate
//! that has what the session has seen. `FCALL` is done as a script is (`effects.rs`).
//!
//! **Copies.** A duplicate that is filled gets the libraries of whom it is filled from, and so does
//! the log with a state: under the name [`FUNCTIONS`], as if they were one key. That key is asked
//! for at an exact place in the order of writes, and changes that come meanwhile are held. A shard
//! that moves takes no libraries along: before, the target gets those of the source (`mover.rs`),
//! and nothing changes them until the move is over.
//!
//! **Differences** are found as those of keys are, once in each pass over all keys.

use xxhash_rust::xxh3::xxh3_128;

use super::Inner;
use super::gather::Join;
use super::moving::StreamError;
use super::types::{ANOTHER_RUNS, ClientId, ErrorReply, Form, ParsedCommand, Write};
use evenkeel_ordered::Hash;
use evenkeel_stores::resp::commands::{Command, Refusal, Repeat};
use evenkeel_stores::resp::functions;
use evenkeel_stores::resp::locate::{Location, partitions_in_use};
use evenkeel_stores::resp::reply::Shape;
use evenkeel_stores::store::keys::FUNCTIONS;

const MOVING: &str = "a shard moves to another partition at this moment: ask again";

/// Under which libraries are copied.
fn libraries_hash() -> Hash {
    xxh3_128(FUNCTIONS)
}

/// A write of all libraries of a partition.
fn changing<'a>(commands: &'a [u8], shard: usize, keys: &'a [Hash], is_single: bool) -> Write<'a> {
    Write {
        commands,
        count: 1,
        shard,
        repeat: Repeat::Once,
        keys,
        key_names: &[FUNCTIONS],
        form: Form::One(Shape::Plain),
        is_single,
    }
}

impl Inner {
    /// `FUNCTION LOAD|DELETE|FLUSH|RESTORE …`, `FUNCTION LIST|DUMP …`
    pub(super) fn libraries(
        &mut self,
        id: ClientId,
        changes: bool,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) {
        if let Some(text) = functions::subcommand_error(parsed.arguments()) {
            return self.refuse(id, &text);
        }
        if let Err(refusal) = functions::check_text(parsed.arguments()) {
            return self.refuse(id, refusal.0);
        }
        match changes {
            true => self.change_libraries(id, parsed),
            false => self.show_libraries(id, command, parsed),
        }
    }

    fn change_libraries(&mut self, id: ClientId, parsed: ParsedCommand<'_>) {
        self.try_again(); // pops of clients that wait come before
        let partitions = match self.prepare_libraries() {
            Ok(partitions) => partitions,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let commands = parsed.to_vec();
        let key = self.begin_gather(id, Form::One(Shape::Plain), Join::First);
        for (partition, shard) in partitions {
            let client = self.add_part(key, partition, Vec::new());
            self.write(client, &changing(&commands, shard, &[libraries_hash()], true));
        }
        self.function_flags.forget();
        self.end_gather(key, false);
    }

    /// Every partition takes a change: which have one, each with a shard of it.
    ///
    /// # Errors
    /// What the client is told.
    fn prepare_libraries(&self) -> Result<Vec<(usize, usize)>, ErrorReply> {
        if partitions_in_use(&self.map).iter().any(|&it| self.effects.is_ahead(it)) {
            return Err(ErrorReply::from(Refusal(ANOTHER_RUNS)));
        }
        if self.moving.is_some() {
            return Err(ErrorReply::new("TRYAGAIN", MOVING));
        }
        let partitions = partitions_in_use(&self.map).into_iter();
        let place = |partition| {
            self.can_write(partition)?;
            Ok((partition, self.map.shards_of(partition).next().unwrap_or_default()))
        };
        partitions.map(place).collect()
    }

    fn show_libraries(&mut self, id: ClientId, command: &Command, parsed: ParsedCommand<'_>) {
        let first = partitions_in_use(&self.map).first().copied();
        let Some(place) = first.and_then(|it| Location::whole(&self.map, it)) else { return };
        let key = self.begin_gather(id, Form::One(Shape::Plain), Join::First);
        let client = self.add_part(key, place.partition, Vec::new());
        self.read_at(client, place, command, parsed);
        self.end_gather(key, true); // it must not see what its client changes behind it
    }

    /// Gives a partition these libraries, and no other ones.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn give_libraries(
        &mut self,
        partition: usize,
        shard: usize,
        commands: &[u8],
    ) -> Result<(), StreamError> {
        self.stream(partition, &changing(commands, shard, &[libraries_hash()], false), true)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::{ConnectionKind, Copying, Sequence};

    use super::super::Bootstrap;
    use super::super::world::World;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;
    const LOAD: [&str; 3] = ["FUNCTION", "LOAD", "text"];

    fn answered(world: &mut World, server: usize, reply: &str) {
        let asked = world.asked(server, ORDERED);
        assert_eq!(asked[..2], ["MULTI", "FUNCTION LOAD text"], "{asked:?}");
        let last = format!("*2\r\n{reply}+OK\r\n");
        for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", &last] {
            world.say(server, ORDERED, reply);
        }
    }

    #[test]
    fn a_change_is_told_when_every_partition_has_it_and_waits_for_moves() {
        let mut world = World::start(2, |config| {
            let targets = config.partitions.remove(0);
            config.partitions = targets.chunks(1).map(<[_]>::to_vec).collect();
        });
        let client = world.client();
        assert!(world.tell(client, &LOAD));
        answered(&mut world, 0, "$1\r\nx\r\n");
        assert_eq!(world.heard(client), "");
        answered(&mut world, 1, "$1\r\nx\r\n");
        assert_eq!(world.heard(client), "$1\r\nx\r\n");
        world.engine.borrow().begin_move(0, 1);
        assert!(world.tell(client, &LOAD));
        assert!(world.heard(client).starts_with("-TRYAGAIN"));
        assert!(world.tell(client, &["FUNCTION", "LOAD", "redis.set_repl(1)"]));
        assert!(world.heard(client).starts_with("-ERR redis.set_repl"));
        assert!((0..2).all(|server| world.asked(server, ORDERED).is_empty()));
    }

    /// They are asked for at one place, and what changes them behind it is given behind them.
    #[test]
    fn who_is_filled_gets_the_libraries_and_then_what_changed_them_meanwhile() {
        for dump in ["$4\r\ndump\r\n", "-NOPERM no\r\n"] {
            let mut world = World::start(2, |_| {});
            world.lose(1, evenkeel_ordered::Dropped::Lost);
            {
                let mut inner = world.engine.borrow();
                inner.members.reached(1, Sequence(0));
                inner.servers[1].open();
                inner.servers[1].bootstrap = Some(Bootstrap { source: 0, copying: Copying::new() });
                inner.seen(1, super::FUNCTIONS, super::libraries_hash());
            }
            let client = world.client();
            assert!(world.tell(client, &LOAD));
            assert!(world.asked(1, ORDERED).is_empty(), "it is held");
            assert_eq!(world.say(0, ORDERED, dump)[..2], ["FUNCTION", "DUMP"]);
            world.say(0, ORDERED, ":-2\r\n");
            let first = match dump.starts_with('$') {
                true => "FUNCTION RESTORE dump FLUSH",
                false => "DEL evenkeel:functions", // it says nothing of them: nothing is done
            };
            assert_eq!(world.asked(1, ORDERED), [first, "MULTI", "FUNCTION LOAD text", "EXEC"]);
        }
    }
}
