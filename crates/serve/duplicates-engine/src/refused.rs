//! A duplicate that refuses a write which others do (out of memory, a right taken away, busy with a
//! script) lacks it from then on.
//!
//! **Its watermark may say otherwise.** Writes that may be repeated share the watermark behind
//! them, which is a command of its own: it may be taken although a write before it was refused. A
//! value was too long for what memory was left, and the next command is short; a user may `SET` and
//! not `HSET`; the script ended in between. And what was on its way when the refusal came is done
//! as well. So who refused is dropped, and a watermark that it says later is believed only below
//! the first write that it may lack: with a higher one it is filled anew. It is told so itself
//! (`evenkeel_store_link::fencing::disown`), for whoever leads next.
//!
//! **Nodes of Redis Cluster** refuse by slots, and the watermark has one too: what came behind a
//! refusal may be done without it. So such a node is filled anew, whatever its watermark says.
//!
//! **The last one** is not dropped, since the others could not do it either and all would be gone.
//! Its client is told the refusal, so that write is undone: who comes back and lacks it is filled
//! from the last one, and does not get it from the log.

use std::collections::BTreeMap;

use evenkeel_ordered::{Position, Sequence};

use super::Inner;
use super::types::Owed;
use evenkeel_stores::store::keys::Servers;

/// Who refused what.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The first write that a server may lack, by server.
    lacked: BTreeMap<usize, Sequence>,
    /// The last write that the last duplicate of a partition refused, by partition.
    undone: BTreeMap<usize, Sequence>,
}

impl Refusals {
    /// The server has everything, or is another one.
    pub(super) fn forget(&mut self, server: usize) {
        self.lacked.remove(&server);
    }
}

impl Inner {
    /// A server has refused what it was sent, for which it is dropped.
    pub(super) fn refused(&mut self, server: usize, owed: &Owed) {
        let partition = self.members.partition(server);
        let is_write = match owed {
            Owed::Access { call } if self.calls[*call].write_at(partition).is_some() => true,
            Owed::Group { .. }
            | Owed::Replayed { .. }
            | Owed::Moved { .. }
            | Owed::Given { .. } => true,
            // It may have lost a slot: what was on its way behind is done in others, and perhaps
            // without a watermark, whose slot is one as well.
            _ => self.are_nodes(),
        };
        if is_write {
            // Answers come in the order of the writes: what it has answered it has.
            let first = self.members.applied(server).next();
            let known = self.refusals.lacked.entry(server).or_insert(first);
            *known = first.min(*known);
        }
    }

    /// Whether the last duplicate of a partition is kept although it refuses this watermark: a node
    /// that has lost the slot of that may have done writes since, and would do them again from the
    /// log.
    pub(super) fn keeps_unmarked(&self, owed: &Owed) -> bool {
        matches!(owed, Owed::Mark { .. }) && self.are_nodes() && !self.is_log_in_memory()
    }

    /// The last one has refused this: if that was its watermark it is told it again, and is not
    /// believed before it has taken that.
    pub(super) fn refused_mark(&mut self, server: usize, owed: &Owed, reply: &[u8]) {
        let is_done = matches!(owed, Owed::Group { .. }) && reply.first() == Some(&b'*');
        let is_unmarked = is_done && self.are_nodes() && !self.is_log_in_memory();
        if is_unmarked || self.keeps_unmarked(owed) {
            let first = self.members.applied(server).next();
            self.refusals.lacked.entry(server).or_insert(first);
            self.servers[server].marked = Sequence(0);
        }
    }

    /// A live one has taken its watermark.
    pub(super) fn took_mark(&mut self, server: usize) {
        if self.are_nodes() {
            self.refusals.forget(server);
        }
    }

    fn are_nodes(&self) -> bool {
        self.config.servers() == Servers::Nodes
    }

    /// The last duplicate of a partition has refused a write, and its client is told so.
    pub(super) fn refused_by_last(&mut self, partition: usize, call: usize) {
        let call = &self.calls[call];
        if let Some(write) = call.write_at(partition).filter(|_| call.client.is_some()) {
            self.refusals.undone.insert(partition, write);
        }
    }

    /// The first write that a server may lack although its watermark says more.
    pub fn first_refused(&self, server: usize) -> Option<Sequence> {
        self.refusals.lacked.get(&server).copied()
    }

    /// Whether a server may lack a write that its watermark tells of.
    pub fn lacks_refused(&self, server: usize, watermark: Position) -> bool {
        let is_lower = |first| watermark.sequence < first && !self.are_nodes();
        self.first_refused(server).is_some_and(|first| !is_lower(first))
    }

    /// Whether the writes behind this one have one that was undone for those that are live.
    pub(super) fn has_undone(&self, partition: usize, after: Sequence) -> bool {
        self.refusals.undone.get(&partition).is_some_and(|&last| after < last)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_duplicates_config::{RedisAccess, Target};
    use evenkeel_ordered::{Acknowledge, ConnectionKind, Dropped, Epoch, Rejoin};
    use evenkeel_store_link::fencing::Look;

    use super::super::world::World;
    use super::*;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;
    const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.\r\n";

    fn needs(world: &World, server: usize, sequence: u64) -> Rejoin {
        let watermark = Some(Position { epoch: Epoch(1), sequence: Sequence(sequence) });
        let look = Look { epoch: Epoch(1), watermark, holds_data: true, database_last: 0 };
        let Ok(rejoin) = world.engine.borrow().needed(server, look) else { panic!("it waits") };
        rejoin
    }

    fn replayed(after: u64) -> Rejoin {
        Rejoin::Replay { after: Sequence(after) }
    }

    /// The second of three writes in the same bytes is refused, the third and the watermark not.
    #[test]
    fn who_refused_a_write_is_not_believed_to_have_it() {
        for refusal in [OOM, "-NOPERM no\r\n", "-BUSY\r\n", "-MISCONF no\r\n", "-READONLY\r\n"] {
            let mut world = World::start(3, |config| {
                config.members.acknowledge = Acknowledge::Majority;
            });
            let client = world.client();
            for key in ["a", "b", "c"] {
                assert!(world.tell(client, &["SET", key, "1"]));
            }
            world.say(2, ORDERED, "+OK\r\n");
            world.say(2, ORDERED, refusal);
            while (0..2).any(|server| world.serve(server, ORDERED)) {}
            assert_eq!(world.heard(client), "+OK\r\n".repeat(3));
            let is_live = |world: &World| world.engine.borrow().members.live(0).contains(2);
            assert!(!is_live(&world), "{refusal}");
            assert_eq!(needs(&world, 2, 3), Rejoin::Copy, "{refusal}");
            assert_eq!(needs(&world, 2, 2), Rejoin::Copy, "{refusal}");
            // Neither was the watermark written: it gets all of that from the log.
            assert_eq!(needs(&world, 2, 1), replayed(1), "{refusal}");
            world.reach(2);
            world.engine.borrow().refusals.forget(2); // as when it is live
            assert_eq!(needs(&world, 2, 3), replayed(3), "{refusal}");
        }
    }

    /// A read that one cannot serve tells nothing of what it has.
    #[test]
    fn who_refused_a_read_lacks_nothing() {
        let mut world = World::start(3, |config| {
            config.members.acknowledge = Acknowledge::Majority;
            config.consistency = evenkeel_ordered::Consistency::Strong;
        });
        let client = world.client();
        assert!(world.tell(client, &["GET", "a"]));
        let asked: Vec<usize> = (0..3).filter(|&server| world.waiting(server)[0] > 0).collect();
        world.say(asked[0], ORDERED, "-BUSY\r\n");
        assert_eq!(world.engine.borrow().first_refused(asked[0]), None);
    }

    /// Behind it writes may be done without their watermarks.
    #[test]
    fn a_node_of_a_cluster_that_refused_anything_is_filled_whatever_its_watermark_says() {
        let lost = "-CLUSTERDOWN Hash slot not served\r\n";
        for (commands, answers) in [
            (&[&["INCR", "a"][..]][..], &["+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", ""][..]),
            (&[&["SET", "a", "1"]], &["-MOVED 15495 127.0.0.1:9\r\n"]),
        ] {
            let mut world = World::start(3, |config| {
                config.members.acknowledge = Acknowledge::Majority;
                let access = RedisAccess { is_cluster: true, ..RedisAccess::default() };
                let access = std::sync::Arc::new(access);
                for target in config.partitions.iter_mut().flatten() {
                    let Target::Tcp { access: of, .. } = target else { panic!("a Redis") };
                    *of = std::sync::Arc::clone(&access);
                }
            });
            let client = world.client();
            commands.iter().for_each(|command| assert!(world.tell(client, command)));
            let without_mark = format!("*2\r\n:1\r\n{lost}");
            for answer in answers {
                let answer = if answer.is_empty() { &*without_mark } else { answer };
                world.say(2, ORDERED, answer);
            }
            assert!(!world.engine.borrow().members.live(0).contains(2), "{answers:?}");
            assert_eq!(needs(&world, 2, 0), Rejoin::Copy, "{answers:?}");
            assert_eq!(needs(&world, 2, 1), Rejoin::Copy, "{answers:?}");
        }
    }

    /// The client of the last one was told that it was not done.
    #[test]
    fn what_the_last_one_refused_is_undone_for_who_comes_back() {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        world.lose(1, Dropped::Lost);
        assert!(world.tell(client, &["SET", "a", "1"]));
        world.say(0, ORDERED, OOM);
        assert_eq!(world.heard(client), OOM);
        assert!(world.engine.borrow().members.live(0).contains(0), "all would be gone");
        assert_eq!(needs(&world, 1, 0), Rejoin::Copy);
        assert_eq!(needs(&world, 1, 1), replayed(1));
    }
}
