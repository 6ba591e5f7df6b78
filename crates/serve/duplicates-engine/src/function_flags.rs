//! Which functions write nothing: `FCALL` of one is a read, as `FCALL_RO` is.
//!
//! One duplicate is asked for all of them, behind the last change of libraries, when the first is
//! called after that. Where it cannot say, `FCALL` is done by one duplicate as any script, and it
//! is asked again a second later.

use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_ordered::ConnectionKind;

use super::Inner;
use super::types::{ClientId, Owed};
use evenkeel_stores::resp::{encode, functions};

/// How long nobody is asked after an error.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What is known of functions.
#[derive(Debug, Default)]
pub(super) struct FunctionFlags {
    /// Those that write nothing; `None` = not known.
    reads: Option<BTreeSet<Box<[u8]>>>,
    is_asked: bool,
    /// When an error was the answer.
    failed_at: Option<Instant>,
    waiting: Vec<ClientId>,
    /// Rises with every change.
    generation: u64,
}

/// What is known of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flagged {
    Reads,
    MayWrite,
    /// Its client waits until it is known.
    Asked,
}

impl FunctionFlags {
    /// Libraries have changed, behind all that was asked before.
    pub(super) fn forget(&mut self) {
        self.generation += 1;
        (self.reads, self.failed_at) = (None, None);
        self.is_asked = false;
    }
}

impl Inner {
    /// Whether a function writes nothing.
    pub(super) fn flags_of_function(&mut self, id: ClientId, name: &[u8]) -> Flagged {
        let failed_at = self.function_flags.failed_at;
        if failed_at.is_some_and(|at| self.now.since(at) < AGAIN_AFTER) {
            return Flagged::MayWrite;
        }
        if let Some(reads) = &self.function_flags.reads {
            let name = name.to_ascii_lowercase();
            return if reads.contains(&*name) { Flagged::Reads } else { Flagged::MayWrite };
        }
        if !self.function_flags.is_asked {
            let partitions = 0..self.members.partitions();
            let live = partitions.map(|it| self.members.live(it)).find(|live| !live.is_empty());
            let able = live.into_iter().flat_map(|live| live.iter().collect::<Vec<_>>());
            // Who is ahead of the log may be so for long.
            let who = able.min_by_key(|&it| (self.executes(it), self.members.owed(it)));
            let Some(server) = who else { return Flagged::MayWrite }; // and is refused
            let generation = self.function_flags.generation;
            let place = (server, ConnectionKind::Ordered, 0);
            self.ask_in(place, Owed::Functions { generation }, |out| {
                encode::command(out, &[b"FUNCTION", b"LIST"]);
            });
            self.function_flags.is_asked = true;
            self.schedule();
        }
        self.function_flags.waiting.push(id);
        self.hold(id);
        Flagged::Asked
    }

    /// A duplicate has told its libraries; `None` where it was lost before: another is asked.
    pub(super) fn functions_told(&mut self, generation: u64, reply: Option<&[u8]>) {
        if generation == self.function_flags.generation {
            let is_error = reply.is_some_and(|reply| matches!(reply.first(), Some(b'-' | b'!')));
            self.function_flags.is_asked = false;
            self.function_flags.failed_at = is_error.then_some(self.now);
            self.function_flags.reads = reply.filter(|_| !is_error).map(|reply| {
                let reads = functions::without_writes(reply).into_iter();
                reads.map(|name| name.to_ascii_lowercase().into()).collect()
            });
        }
        for id in std::mem::take(&mut self.function_flags.waiting) {
            self.release(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::World;
    use super::*;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;
    const LIST: &str = "*1\r\n%3\r\n$12\r\nlibrary_name\r\n$1\r\nl\r\n$6\r\nengine\r\n$3\r\nLUA\r\n\
        $9\r\nfunctions\r\n*2\r\n%3\r\n$4\r\nname\r\n$1\r\nr\r\n$11\r\ndescription\r\n_\r\n\
        $5\r\nflags\r\n~1\r\n+no-writes\r\n%3\r\n$4\r\nname\r\n$1\r\nw\r\n$11\r\ndescription\r\n\
        _\r\n$5\r\nflags\r\n~0\r\n";

    #[test]
    fn an_error_is_believed_for_a_second_only() {
        let mut world = World::start(1, |_| {});
        let client = world.client();
        assert!(!world.tell(client, &["FCALL", "r", "0"]));
        assert_eq!(world.say(0, ORDERED, "-BUSY a script\r\n"), ["FUNCTION", "LIST"]);
        {
            let mut inner = world.engine.borrow();
            assert_eq!(inner.flags_of_function(client, b"r"), Flagged::MayWrite);
            inner.now += AGAIN_AFTER;
            assert_eq!(inner.flags_of_function(client, b"r"), Flagged::Asked);
        }
        assert_eq!(world.say(0, ORDERED, LIST), ["FUNCTION", "LIST"]);
        let mut inner = world.engine.borrow();
        assert_eq!(inner.flags_of_function(client, b"r"), Flagged::Reads);
    }

    #[test]
    fn a_function_that_writes_nothing_is_a_read_until_libraries_change() {
        let mut world = World::start(1, |_| {});
        let client = world.client();
        assert!(!world.tell(client, &["FCALL", "R", "0"]));
        assert_eq!(world.say(0, ORDERED, LIST), ["FUNCTION", "LIST"]);
        assert!(world.tell(client, &["FCALL", "R", "0"]));
        let asked = [world.asked(0, ORDERED), world.asked(0, ConnectionKind::Free)].concat();
        assert_eq!(asked, ["fcall_ro R 0"], "names are of upper or lower case");
        let mut inner = world.engine.borrow();
        assert_eq!(inner.flags_of_function(client, b"w"), Flagged::MayWrite);
        assert_eq!(inner.flags_of_function(client, b"unknown"), Flagged::MayWrite);
        inner.function_flags.forget();
        assert_eq!(inner.flags_of_function(client, b"r"), Flagged::Asked);
    }

    #[test]
    fn what_was_asked_before_a_change_is_not_believed_and_who_is_lost_is_replaced() {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        assert!(!world.tell(client, &["FCALL", "r", "0"]));
        world.engine.borrow().function_flags.forget();
        let first = (0..2).find(|&it| !world.asked(it, ORDERED).is_empty()).unwrap();
        world.say(first, ORDERED, LIST);
        assert!(world.would_take(client) && !world.tell(client, &["FCALL", "r", "0"]));
        let second = (0..2).find(|&it| !world.asked(it, ORDERED).is_empty()).unwrap();
        world.lose(second, evenkeel_ordered::Dropped::Lost);
        assert!(world.would_take(client) && !world.tell(client, &["FCALL", "r", "0"]));
        assert_eq!(world.say(1 - second, ORDERED, "-NOPERM no\r\n"), ["FUNCTION", "LIST"]);
        let flags = world.engine.borrow().flags_of_function(client, b"r");
        assert_eq!(flags, Flagged::MayWrite);
    }
}
