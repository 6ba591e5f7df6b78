//! A command whose keys lie in several partitions, or that is about all keys: each partition does
//! its part, and the answers become one.
//!
//! Each part is sent for a client of its own that nobody sees, a session like that of the one who
//! asked: so it is read, retried, acknowledged and refused like any other command. All parts are
//! sent in one turn of the engine, and nothing comes between them: another command over several
//! partitions is before all of them or behind all of them. Each part is atomic, all together are
//! not: a partition that fails is an error of the whole, and the others have done their part.
//!
//! **Memory**: answers that wait for those of other partitions count as their client's.

use evenkeel_core::request::partition::ShardMap;

use super::Inner;
use super::types::{ClientId, ErrorReply, Form, ParsedCommand};
use evenkeel_stores::resp::commands::{self, Class, Command, Merge};
use evenkeel_stores::resp::locate::{self, Location, is_visible};
use evenkeel_stores::resp::request::RequestParser;
use evenkeel_stores::resp::{encode, merge, reply};

/// Keys that every duplicate has: our epoch and watermark.
const OWN_KEYS: i64 = 2;
/// How often `RANDOMKEY` draws anew what is no client's key. One key beside our two is missed so
/// often with a chance of 10⁻¹¹.
const DRAWS_MAX: u32 = 64;
const NO_KEY: &[u8] = b"_\r\n";

/// One command on its way to several partitions.
#[derive(Debug)]
pub(super) struct Gather {
    client: ClientId,
    slot: u64,
    form: Form,
    pub(super) join: Join,
    parts: Vec<Part>,
    /// Parts without an answer.
    waiting: usize,
    /// No further part comes.
    is_sent: bool,
}

#[derive(Debug)]
struct Part {
    /// In whose name it is sent.
    client: ClientId,
    partition: usize,
    answer: Vec<u8>,
    /// Of its keys: where they stand among all.
    places: Vec<usize>,
}

/// How answers become one.
#[derive(Debug)]
pub(super) enum Join {
    /// The first; the others say the same, or less.
    First,
    Sum,
    /// One value for each of so many keys.
    Values(usize),
    /// Of `KEYS`: all that are a client's, where they were when it was asked.
    Keys(Box<ShardMap>),
    /// Of `KEYS`: those of a slot. How many are listed; otherwise they are counted.
    Slot(u16, Option<usize>),
    /// Of `DBSIZE`: without our own.
    Count,
    /// The same for `RANDOMKEY`, which draws by it.
    Weigh,
    /// The last, if it is a client's key; else another is drawn. Keys by partition, and how often
    /// was drawn.
    Draw(Vec<(usize, u64)>, u32),
}

/// What is still to be asked.
enum Joined {
    Answer(Vec<u8>),
    /// Some key, by these numbers of keys.
    Draw(Vec<(usize, u64)>, u32),
}

impl Gather {
    /// Whose command it is.
    pub(super) const fn client(&self) -> ClientId {
        self.client
    }

    /// The same, with the place of its answer.
    pub(super) const fn place(&self) -> (ClientId, u64) {
        (self.client, self.slot)
    }
}

impl Inner {
    /// Begins a command in parts, at the client's next place.
    pub(super) fn begin_gather(&mut self, client: ClientId, form: Form, join: Join) -> usize {
        let (slot, parts) = (self.slot(client), Vec::new());
        let gather = Gather { client, slot, form, join, parts, waiting: 0, is_sent: false };
        self.gathers.insert(gather)
    }

    /// One part more: in whose name it is to be sent.
    pub(super) fn add_part(
        &mut self,
        key: usize,
        partition: usize,
        places: Vec<usize>,
    ) -> ClientId {
        let (parent, number) = (self.gathers[key].client, self.gathers[key].parts.len());
        let client = self.welcome_part(parent, (key, number));
        let gather = &mut self.gathers[key];
        gather.parts.push(Part { client, partition, answer: Vec::new(), places });
        gather.waiting += 1;
        client
    }

    /// All parts are sent: what they wrote the client has written. Where a part could see what the
    /// client writes behind it (`holds`), the client waits for the answer.
    pub(super) fn end_gather(&mut self, key: usize, holds: bool) {
        let gather = &mut self.gathers[key];
        gather.is_sent = true;
        let (client, slot) = (gather.client, gather.slot);
        self.advance_gather(key);
        if holds && self.client(client).is_some_and(|it| it.is_waiting(slot)) {
            self.hold_behind(client, slot);
        }
    }

    /// What parts have seen the client has.
    fn tell_seen(&mut self, key: usize) {
        let Gather { client, parts, .. } = &self.gathers[key];
        let parts = parts.iter().filter_map(|part| self.clients.get(part.client.key));
        if let (client, Some(seen)) = (*client, parts.map(|it| it.session.seen()).max())
            && let Some(client) = self.client(client)
        {
            client.session.saw(seen);
        }
    }

    /// A part was answered.
    pub(super) fn part_answered(&mut self, (key, number): (usize, usize), answer: &[u8]) {
        let gather = &mut self.gathers[key];
        gather.parts[number].answer = answer.to_vec();
        gather.waiting -= 1;
        let client = gather.client;
        if let Some(client) = self.client(client) {
            client.keep_bytes(answer.len());
        }
        self.advance_gather(key);
    }

    /// Tells the client, once nothing is waited for.
    fn advance_gather(&mut self, key: usize) {
        if !self.gathers[key].is_sent {
            return;
        }
        self.tell_seen(key);
        let Gather { client, waiting, .. } = self.gathers[key];
        if waiting > 0 {
            return;
        }
        let answer = match self.joined(&self.gathers[key]) {
            Joined::Answer(answer) => answer,
            Joined::Draw(counts, draws) if self.client(client).is_some() => {
                return self.draw_key(key, counts, draws);
            }
            Joined::Draw(..) => Vec::new(), // the client has left
        };
        let Gather { client, slot, form, parts, .. } = self.gathers.remove(key);
        for part in &parts {
            self.clients.try_remove(part.client.key);
        }
        if let Some(client) = self.client(client) {
            client.give_bytes(parts.iter().map(|part| part.answer.len()).sum());
        }
        self.reply(client, slot, &answer, &form);
    }

    /// Keys of ours in a client's database.
    fn own_keys(&self, id: ClientId) -> i64 {
        if self.database_of(id) == 0 { OWN_KEYS } else { 0 }
    }

    /// The answer of all parts: that of one that failed, if one did.
    fn joined(&self, gather: &Gather) -> Joined {
        let parts = &gather.parts;
        let failed = parts.iter().find(|part| matches!(part.answer.first(), Some(b'-' | b'!')));
        if let Some(failed) = failed {
            return Joined::Answer(failed.answer.clone());
        }
        let numbers = parts.iter().map(|part| reply::integer(&part.answer).unwrap_or_default());
        let mut out = Vec::new();
        match &gather.join {
            Join::First => return Joined::Answer(parts[0].answer.clone()),
            Join::Sum => encode::integer(&mut out, numbers.fold(0, i64::saturating_add)),
            Join::Count => {
                let own = self.own_keys(gather.client);
                let counts = numbers.map(|count| count.saturating_sub(own).max(0));
                encode::integer(&mut out, counts.fold(0, i64::saturating_add));
            }
            Join::Values(count) => {
                let parts = parts.iter().map(|part| (&*part.places, &*part.answer));
                merge::values(parts, *count, &mut out);
            }
            Join::Keys(map) => {
                let is_kept =
                    |number: usize, key: &[u8]| is_visible(map, parts[number].partition, key);
                merge::arrays(parts.iter().map(|part| &*part.answer), is_kept, &mut out);
            }
            Join::Slot(wanted, listed) => {
                merge::of_slot(&parts[0].answer, *wanted, *listed, &mut out);
            }
            Join::Weigh => {
                let own = self.own_keys(gather.client);
                let count =
                    |count: i64| u64::try_from(count.saturating_sub(own)).unwrap_or_default();
                let counts = parts.iter().zip(numbers);
                let counts = counts.map(|(part, number)| (part.partition, count(number)));
                let counts: Vec<_> = counts.filter(|&(_, count)| count > 0).collect();
                if !counts.is_empty() {
                    return Joined::Draw(counts, 0);
                }
                out.extend_from_slice(NO_KEY);
            }
            Join::Draw(counts, draws) => {
                let last = parts.last().filter(|part| {
                    let key = reply::payload(&part.answer);
                    key.is_some_and(|key| is_visible(&self.map, part.partition, key))
                });
                match last {
                    Some(part) => out.extend_from_slice(&part.answer),
                    None if *draws < DRAWS_MAX => {
                        return Joined::Draw(counts.clone(), *draws);
                    }
                    None => out.extend_from_slice(NO_KEY),
                }
            }
        }
        Joined::Answer(out)
    }

    /// Sends a part; `place` where its keys do not tell it.
    pub(super) fn send_part(&mut self, id: ClientId, place: Option<Location>, words: &[&[u8]]) {
        let mut buffer = Vec::new();
        encode::command(&mut buffer, words);
        let mut parser = RequestParser::new(self.config.limits);
        let (Ok(Some(length)), Some(command)) = (parser.parse(&buffer), commands::lookup(words[0]))
        else {
            return self.refuse(id, "ERR the command is too long");
        };
        let parsed = ParsedCommand { parser: &parser, buffer: &buffer, length };
        match (command.class, place) {
            (_, Some(place)) => self.read_at(id, place, command, parsed),
            (Class::Write(repeat), None) => self.write_one(id, command, repeat, parsed, &buffer),
            (_, None) => self.read(id, command, parsed),
        }
    }

    /// Whether the keys of a command are in several partitions, each of which can do its part.
    pub(super) fn is_in_parts(&self, command: &Command, parsed: ParsedCommand<'_>) -> bool {
        if command.merge.is_none() || self.map.partitions() == 1 {
            return false;
        }
        let keys = commands::keys(command, parsed.arguments()).into_iter().flatten();
        locate::is_in_parts(&self.map, keys.map(|at| parsed.argument(at)))
    }

    /// Has each partition do its part of a command.
    pub(super) fn split(&mut self, id: ClientId, command: &Command, parsed: ParsedCommand<'_>) {
        let parts = match self.parts_of(command, parsed) {
            Ok(parts) => parts,
            Err(reply) => return self.refuse(id, &reply.to_string()),
        };
        let join = match command.merge {
            Some(Merge::Sum) => Join::Sum,
            Some(Merge::Values) => Join::Values(parsed.len() - 1),
            Some(Merge::Same) | None => Join::First,
        };
        let form = Form::One(commands::shape(command, parsed.arguments()));
        let key = self.begin_gather(id, form, join);
        if command.class == Class::Read {
            self.note_read_order(id, command, parsed);
        }
        let length = if command.merge == Some(Merge::Same) { 2 } else { 1 }; // with its value
        for (partition, indices) in parts {
            let mut words = vec![parsed.argument(0)];
            words.extend(
                indices.iter().flat_map(|&at| at..at + length).map(|at| parsed.argument(at)),
            );
            let client = self.add_part(key, partition, indices.iter().map(|at| at - 1).collect());
            self.send_part(client, None, &words);
        }
        self.end_gather(key, false);
    }

    /// By partition, the arguments that are keys there; all of them can do their part, as far as is
    /// known now.
    fn parts_of(
        &self,
        command: &Command,
        parsed: ParsedCommand<'_>,
    ) -> Result<Vec<(usize, Vec<usize>)>, ErrorReply> {
        let keys = commands::keys(command, parsed.arguments())?;
        let parts = locate::parts(&self.map, keys.map(|at| (at, parsed.argument(at))))?;
        if command.class != Class::Read {
            for (partition, indices) in &parts {
                let place = self.locate_keys(indices.iter().map(|&at| parsed.argument(at)))?;
                place.map_or(Ok(0), Location::shard_to_write)?;
                self.can_write(*partition)?;
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::{ConnectionKind, Dropped, Session};

    use super::super::world::World;
    use super::ClientId;

    const ORDERED: ConnectionKind = ConnectionKind::Ordered;

    /// Two partitions of one; `a` and `b` are not in the same.
    fn world() -> World {
        World::start(2, |config| {
            let targets = config.partitions.remove(0);
            config.partitions = targets.chunks(1).map(<[_]>::to_vec).collect();
        })
    }

    /// The server that has a command of this name to do.
    fn one_asked(world: &mut World, command: &str) -> usize {
        let is_asked = |server: &usize| world.asked(*server, ORDERED).contains(&command.to_owned());
        (0..2).find(is_asked).unwrap_or_else(|| panic!("nobody was asked {command}"))
    }

    #[test]
    fn what_becomes_of_one_part_is_told_of_the_whole() {
        for is_lost in [false, true] {
            let mut world = world();
            let client = world.client();
            assert!(world.tell(client, &["MSET", "a", "1", "b", "2"]));
            let first = one_asked(&mut world, "MSET a 1");
            let second = one_asked(&mut world, "MSET b 2");
            assert_ne!(first, second);
            world.say(first, ORDERED, "+OK\r\n");
            assert_eq!(world.heard(client), "");
            match is_lost {
                true => world.lose(second, Dropped::Lost),
                false => drop(world.say(second, ORDERED, "+OK\r\n")),
            }
            let heard = world.heard(client);
            assert_eq!(heard.starts_with("-UNCERTAIN 0 of 1"), is_lost, "{heard}");
            assert_eq!(heard == "+OK\r\n", !is_lost, "{heard}");
            let inner = world.engine.borrow();
            assert!(inner.gathers.is_empty() && inner.clients.len() == 1, "something is left");
        }
    }

    #[test]
    fn a_log_that_fails_behind_the_parts_leaves_the_whole_uncertain() {
        let mut world = World::start(2, |config| {
            let targets = config.partitions.remove(0);
            config.partitions = targets.chunks(1).map(<[_]>::to_vec).collect();
            config.log.segment_bytes = 1_024; // one batch
        });
        let (client, long) = (world.client(), "1".repeat(1_024));
        assert!(world.tell(client, &["MSET", "a", &long, "b", "2"]));
        let directory = world.engine.borrow().config.log_directory.clone();
        world.fetch();
        world.engine.borrow().flush();
        (0..2).for_each(|server| drop(world.say(server, ORDERED, "+OK\r\n")));
        assert_eq!(world.heard(client), "+OK\r\n", "the log takes it");
        assert!(world.tell(client, &["MSET", "a", "3", "b", "4"]));
        std::fs::remove_dir_all(directory).unwrap();
        world.engine.borrow().flush();
        let heard = world.heard(client);
        assert!(heard.starts_with("-UNCERTAIN"), "{heard}");
        assert!((0..2).all(|server| world.asked(server, ORDERED).is_empty()), "it was sent");
        assert!(world.tell(client, &["MSET", "a", "5", "b", "6"]));
        let heard = world.heard(client);
        assert!(heard.starts_with("-UNAVAILABLE the log cannot be written"), "{heard}");
        let inner = world.engine.borrow();
        assert!(inner.gathers.is_empty() && inner.clients.len() == 1, "something is left");
    }

    /// Two partitions of two, where one of the first has not done a write that a client of level
    /// `eventual` saw with `WATCH`; that one owes less than the other.
    fn watching(copies: u8) -> (World, ClientId, usize) {
        let mut world = World::start(4, |config| {
            let targets = config.partitions.remove(0);
            config.partitions = targets.chunks(2).map(<[_]>::to_vec).collect();
            config.read_copies = copies;
        });
        let (client, other) = (world.client(), world.client());
        let is_first = |key: &&str| world.engine.borrow().partition_of(key.as_bytes()) == 0;
        let key = ["a", "b"].into_iter().find(is_first).unwrap();
        world.tell(client, &["EK.SESSION", "eventual"]);
        world.tell(other, &["SET", key, "1"]);
        world.tell(client, &["WATCH", key]);
        let question = |it: &String| it.contains("PEXPIRETIME");
        let mut servers = 0..4;
        let has_it = servers.find(|&it| world.asked(it, ORDERED).iter().any(question)).unwrap();
        world.say(has_it, ORDERED, "+OK\r\n");
        world.say(has_it, ORDERED, ":-1\r\n");
        assert_eq!(world.heard(client), "+OK\r\n+OK\r\n");
        (0..3).for_each(|_| assert!(world.tell(other, &["GET", key])));
        assert!(world.asked(has_it, ConnectionKind::Free).len() >= 3);
        let lacks_it = has_it ^ 1;
        assert_eq!(world.asked(lacks_it, ORDERED), [format!("SET {key} 1")]);
        (world, client, lacks_it)
    }

    #[test]
    fn parts_and_pages_are_not_older_than_what_their_client_watches() {
        for (words, copies) in [(&["MGET", "a", "b"][..], 2), (&["SCAN", "0"], 1)] {
            let (mut world, client, lacks_it) = watching(copies);
            assert!(world.tell(client, words));
            let asked = world.asked(lacks_it, ConnectionKind::Free);
            assert!(asked.is_empty(), "{asked:?} of one that lacks what was watched");
            // Without WATCH it may be asked.
            let (mut world, client, lacks_it) = watching(copies);
            world.tell(client, &["UNWATCH"]);
            world.engine.borrow().client(client).unwrap().session = Session::default();
            assert!(world.tell(client, words));
            assert_eq!(world.asked(lacks_it, ConnectionKind::Free).len(), 1, "{words:?}");
        }
    }

    #[test]
    fn a_part_is_no_client_that_could_be_listed_or_killed() {
        let mut world = world();
        let (client, other) = (world.client(), world.client());
        assert!(world.tell(client, &["DEL", "a", "b"]));
        assert_eq!(world.engine.borrow().clients.len(), 4, "two parts");
        assert!(world.tell(other, &["CLIENT", "LIST"]));
        assert_eq!(world.heard(other).matches("id=").count(), 2);
        assert!(world.tell(other, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]));
        assert_eq!(world.heard(other), ":1\r\n");
        for server in 0..2 {
            world.say(server, ORDERED, ":1\r\n");
        }
        let inner = world.engine.borrow();
        assert!(inner.gathers.is_empty() && inner.clients.len() == 1);
    }

    #[test]
    fn nothing_is_left_of_who_leaves_before_all_parts_are_answered() {
        let mut world = world();
        let client = world.client();
        assert!(world.tell(client, &["DEL", "a", "b"]));
        world.engine.borrow().dismiss(client);
        for server in 0..2 {
            world.say(server, ORDERED, ":1\r\n");
        }
        let inner = world.engine.borrow();
        assert!(inner.gathers.is_empty() && inner.clients.is_empty());
    }
}
