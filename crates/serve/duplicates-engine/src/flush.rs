//! `FLUSHALL` and `FLUSHDB`: every key goes, in every partition.
//!
//! In each partition it is a write of the stream like any other. But it also removes what a
//! duplicate knows of itself, so its group ends with our epoch and the watermark in one command
//! (`MSET`): a duplicate never is without. The log has `FLUSHALL` alone; whoever replays it, also
//! in a later term, signs with its own epoch.
//!
//! **Copies.** A key that was read before and arrives behind it would be back. So whoever is being
//! filled is emptied as well and what it was to get is forgotten (after `FLUSHDB` and within a
//! transaction it is filled again), a state that is written into the log is begun again, and so is
//! a move, unless the layout with the new owner may be stored already: then the target has every
//! key, gets every write, and this one too.
//!
//! All partitions' records are taken in one turn, so no other command is between them. If the
//! process ends in that turn, the log may have the first of them: then nobody was told, and some
//! partitions are emptied.

use super::Inner;
use super::bootstrap::count_commands;
use super::clients::Transaction;
use super::gather::Join;
use super::types::{ClientId, ErrorReply, Form, Write};
use evenkeel_stores::resp::commands::{Command, Repeat};
use evenkeel_stores::resp::locate::partitions_in_use;
use evenkeel_stores::resp::reply::Shape;
use evenkeel_stores::resp::whole;
use xxhash_rust::xxh3::xxh3_128;

const MOVING: &str = "a shard moves to another partition at this moment: ask again";

impl Inner {
    /// Whether a command empties the database of its client only: where there is one, both are one.
    pub(super) fn empties_one(&self, command: &Command) -> bool {
        command.name == "flushdb" && (self.database_last > 0 || self.databases() > 1)
    }

    /// `FLUSHALL` or `FLUSHDB`, with `ASYNC` or `SYNC`, alone.
    pub(super) fn empty_all(&mut self, id: ClientId, command: &Command, how: Option<&[u8]>) {
        let database = self.empties_one(command).then(|| self.database_of(id));
        let mut commands = Vec::new();
        whole::write_flush(database, how, &mut commands);
        let partitions = match self.prepare_to_empty(false) {
            Ok(partitions) => partitions,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let key = self.begin_gather(id, Form::One(Shape::Plain), Join::First);
        for partition in partitions {
            self.empty(key, partition, &commands, true);
        }
        self.end_gather(key, false);
    }

    /// A transaction with `FLUSHALL` in it: its own partition does all of it, the others are
    /// emptied.
    pub(super) fn empty_all_within(
        &mut self,
        id: ClientId,
        (shard, transaction): (usize, Transaction),
        form: Form,
    ) {
        let partitions = match self.prepare_to_empty(true) {
            Ok(partitions) => partitions,
            Err(reply) => {
                self.end_in(id, transaction.home);
                return self.refuse(id, &reply.to_string());
            }
        };
        let own = self.map.partition(shard);
        let key = self.begin_gather(id, form, Join::First);
        let keys: Vec<u128> = transaction.keys.iter().map(|key| xxh3_128(key)).collect();
        let key_names: Vec<&[u8]> = transaction.keys.iter().map(AsRef::as_ref).collect();
        let client = self.add_part(key, own, Vec::new()); // the first: its answer is told
        let write = Write {
            commands: &transaction.commands,
            count: transaction.count,
            shard,
            repeat: Repeat::Once,
            keys: &keys,
            key_names: &key_names,
            form: Form::One(Shape::Plain),
            is_single: false,
        };
        self.write(client, &write);
        for partition in partitions.into_iter().filter(|&partition| partition != own) {
            self.empty(key, partition, &transaction.flushes, false);
        }
        self.end_gather(key, false);
    }

    /// One partition's part.
    fn empty(&mut self, key: usize, partition: usize, commands: &[u8], is_single: bool) {
        // Noted for the shard that moves, it goes to the target as well.
        let moving = self.moving.as_ref().map(|it| it.moving.shard());
        let moving = moving.filter(|&shard| self.map.partition(shard) == partition);
        let shard = moving.or_else(|| self.map.shards_of(partition).next()).unwrap_or_default();
        let client = self.add_part(key, partition, Vec::new());
        let write = Write {
            commands,
            count: count_commands(commands),
            shard,
            repeat: Repeat::Once,
            keys: &[],
            key_names: &[],
            form: Form::One(Shape::Plain),
            is_single,
        };
        self.write(client, &write);
    }

    /// All partitions can be emptied, and no copy of what is there is under way any more: which
    /// hold something.
    ///
    /// # Errors
    /// What the client is told.
    fn prepare_to_empty(&mut self, is_transaction: bool) -> Result<Vec<usize>, ErrorReply> {
        let partitions = partitions_in_use(&self.map);
        for &partition in &partitions {
            self.can_write(partition)?;
        }
        self.break_move("all keys were removed meanwhile");
        if let Some(it) = &self.moving {
            let target = it.moving.needs_both().then(|| it.moving.to());
            target.map_or(Ok(()), |target| self.can_write(target))?;
            if is_transaction {
                return Err(ErrorReply::new("TRYAGAIN", MOVING));
            }
        }
        if let Some(pass) = &mut self.state_pass {
            pass.is_broken = true;
        }
        self.streams.forget_all();
        Ok(partitions)
    }

    /// What a duplicate must be signed with behind these commands: `None` where they leave its
    /// epoch.
    pub fn stamp_behind(&self, commands: &[u8], is_single: bool) -> Option<Vec<u8>> {
        whole::empties(commands, is_single).then(|| self.us_to(0).stamp())
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::{ConnectionKind, Copying, Dropped, Phase, Sequence};
    use evenkeel_stores::store::keys::FUNCTIONS;

    use super::super::world::World;
    use super::super::{Bootstrap, Move};
    use super::*;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;

    /// Two partitions of two.
    fn world() -> World {
        World::start(4, |config| {
            let targets = config.partitions.remove(0);
            config.partitions = targets.chunks(2).map(<[_]>::to_vec).collect();
        })
    }

    fn flushed(world: &mut World, server: usize) {
        let asked = world.asked(server, ORDERED);
        assert_eq!(asked[..2], ["MULTI", "FLUSHALL"], "{asked:?}");
        let words: Vec<&str> = asked[2].split(' ').collect();
        assert_eq!((words[0], words[1]), ("MSET", "evenkeel:epoch"), "{asked:?}");
        assert_eq!(asked[3], "EXEC");
        for reply in ["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", "*2\r\n+OK\r\n+OK\r\n"] {
            world.say(server, ORDERED, reply);
        }
    }

    #[test]
    fn it_is_told_when_every_partition_has_acknowledged() {
        let mut world = world();
        let client = world.client();
        assert!(world.tell(client, &["FLUSHALL"]));
        flushed(&mut world, 0);
        flushed(&mut world, 1);
        assert_eq!(world.heard(client), "");
        flushed(&mut world, 3);
        assert_eq!(world.heard(client), "+OK\r\n");
        flushed(&mut world, 2);
        let inner = world.engine.borrow();
        assert!(inner.gathers.is_empty() && inner.clients.len() == 1, "something is left");
    }

    #[test]
    fn copies_under_way_are_given_up() {
        let mut world = world();
        let client = world.client();
        world.lose(1, Dropped::Lost);
        {
            let mut inner = world.engine.borrow();
            assert_eq!(inner.begin_pass(0), Some(0));
            inner.members.reached(1, Sequence(0));
            inner.servers[1].open();
            inner.servers[1].bootstrap = Some(Bootstrap { source: 0, copying: Copying::new() });
            inner.begin_move(0, 1);
            inner.copy_shard_from(0);
            assert_eq!(inner.moving.as_ref().map(Move::phase), Some(Phase::Copying));
        }
        assert!(world.tell(client, &["FLUSHALL"]));
        {
            let inner = world.engine.borrow();
            assert!(inner.moving.is_none(), "the move is begun again");
            assert!(inner.state_pass.as_ref().is_some_and(|pass| pass.is_broken));
            assert!(!inner.servers[1].ordered.is_open, "it is filled again");
        }
        flushed(&mut world, 0);
        flushed(&mut world, 2);
        assert_eq!(world.heard(client), "+OK\r\n");
    }

    /// The second is filled from the first, which was asked for the functions.
    fn begin_filling(world: &mut World) {
        world.lose(1, Dropped::Lost);
        let mut inner = world.engine.borrow();
        inner.members.reached(1, Sequence(0));
        inner.servers[1].open();
        inner.servers[1].bootstrap = Some(Bootstrap { source: 0, copying: Copying::new() });
        inner.seen(1, FUNCTIONS, xxh3_128(FUNCTIONS));
    }

    /// However often: who would be filled again each time would never be live.
    #[test]
    fn who_is_being_filled_is_emptied_as_well_and_goes_on() {
        let mut world = world();
        let client = world.client();
        begin_filling(&mut world);
        world.engine.borrow().seen(1, b"k", xxh3_128(b"k"));
        let dumps = ["FUNCTION DUMP", "PEXPIRETIME evenkeel:functions", "DUMP k", "PEXPIRETIME k"];
        let asked = world.asked(0, ORDERED);
        assert_eq!(asked, dumps);
        assert!(world.tell(client, &["FLUSHALL"]));
        for reply in ["$1\r\nf\r\n", ":-2\r\n", "$1\r\nv\r\n", ":-1\r\n"] {
            world.say(0, ORDERED, reply);
        }
        flushed(&mut world, 0);
        flushed(&mut world, 2);
        assert_eq!(world.heard(client), "+OK\r\n");
        let asked = world.asked(1, ORDERED);
        assert_eq!(asked[..2], ["MULTI", "FLUSHALL"], "{asked:?}");
        assert!(asked[2].ends_with(" evenkeel:watermark filling"), "{asked:?}");
        assert!(asked[4].starts_with("FUNCTION RESTORE"), "{asked:?}");
        assert_eq!(asked.len(), 5, "k was removed: {asked:?}");
    }

    /// Keys of it may be on their way, and of others as well.
    #[test]
    fn who_is_being_filled_is_filled_again_where_one_of_several_databases_is_emptied() {
        let mut world = world();
        world.engine.borrow().servers.iter_mut().for_each(|it| it.databases = Some(16));
        let client = world.client();
        begin_filling(&mut world);
        assert!(world.tell(client, &["SELECT", "3"]));
        assert!(world.tell(client, &["FLUSHDB"]));
        assert!(!world.engine.borrow().servers[1].ordered.is_open, "it is filled again");
    }

    /// Either partition may be the owner already.
    #[test]
    fn the_target_of_a_move_that_may_be_stored_is_emptied_too() {
        let mut world = world();
        let client = world.client();
        {
            let mut inner = world.engine.borrow();
            inner.begin_move(0, 1);
            inner.copy_shard_from(0);
            if let Some(it) = &mut inner.moving {
                it.moving.enumerated();
            }
            (0..2).for_each(|_| inner.advance_move());
            let it = inner.moving.as_mut().expect("it goes on");
            assert_eq!(it.phase(), Phase::Both);
            it.is_storing = true;
        }
        assert!(world.tell(client, &["FLUSHALL"]));
        assert!(world.engine.borrow().moving.is_some());
        flushed(&mut world, 0);
        flushed(&mut world, 2); // as the target
        assert_eq!(world.heard(client), "");
        flushed(&mut world, 2); // as itself
        assert_eq!(world.heard(client), "+OK\r\n");
    }
}
