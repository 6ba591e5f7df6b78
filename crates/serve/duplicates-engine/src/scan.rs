//! `SCAN`, `HSCAN`, `SSCAN`, `ZSCAN`: page by page, each from one duplicate.
//!
//! A cursor of Redis means something to the process alone that gave it: the order of keys follows a
//! seed of its own. So all pages of a scan are asked of one duplicate, whose number, with that of
//! its connection, is in the cursor ([`Cursor`]); nothing is kept here between pages. **If that
//! duplicate was away since**, its partition is scanned from its beginning at another; if the
//! layout has changed, everything is, since a shard may have gone from a partition that was still
//! to come to one that was left behind. Keys then come twice, and Redis's promise holds: what is
//! there from the first page to the last comes at least once.
//!
//! A page is asked for behind what its session has written or seen, of a duplicate whose reads may
//! overtake if it has that, else on the ordered connection. With `strong` that is so always, and
//! who is deposed says nothing; but it is the word of one duplicate.

use std::collections::BTreeMap;

use evenkeel_ordered::{ConnectionKind, Consistency, ServerSet};
use xxhash_rust::xxh3::xxh3_64;

use super::Inner;
use super::reading::{GONE, cannot_serve};
use super::types::{ClientId, Form, Owed, ParsedCommand};
use evenkeel_stores::resp::locate::{is_visible, partitions_in_use};
use evenkeel_stores::resp::reply::{self, Shape};
use evenkeel_stores::resp::request::RequestParser;
use evenkeel_stores::resp::whole::{self, Cursor};
use evenkeel_stores::resp::{encode, merge};

const TOO_LARGE: &str = "ERR the cursor of this duplicate has more than 30 bits, which is what is \
                         left of 53 here: scan the duplicate itself";

/// Pages that are on their way, by number.
#[derive(Debug, Default)]
pub(super) struct Scans {
    open: BTreeMap<u64, Scan>,
    last: u64,
}

#[derive(Debug)]
struct Scan {
    client: ClientId,
    slot: u64,
    /// The command as it came; its cursor is argument `at`.
    text: Vec<u8>,
    at: usize,
    /// That of its key; `None` of `SCAN`.
    shard: Option<usize>,
    partition: usize,
    /// Of the layout, when it was sent.
    version: u64,
    /// Duplicates that cannot serve.
    avoided: ServerSet,
}

impl Inner {
    /// One page; of the key in this shard, or of all keys.
    pub(super) fn scan(&mut self, id: ClientId, shard: Option<usize>, parsed: ParsedCommand<'_>) {
        let at = 1 + usize::from(shard.is_some());
        let Some(cursor) = whole::cursor(parsed.argument(at)) else {
            return self.refuse(id, whole::INVALID_CURSOR);
        };
        let mut text = Vec::new();
        parsed.write(&mut text);
        let slot = self.slot(id);
        let scan = Scan {
            client: id,
            slot,
            text,
            at,
            shard,
            partition: 0,
            version: 0,
            avoided: ServerSet::EMPTY,
        };
        self.send_scan(scan, Cursor::unpack(cursor));
        // What it writes behind must not be seen by the page.
        if self.client(id).is_some_and(|client| client.is_waiting(slot)) {
            self.hold_behind(id, slot);
        }
    }

    /// Asks for the page after this cursor: of whom it is, or of another from the beginning.
    fn send_scan(&mut self, mut scan: Scan, cursor: Option<Cursor>) {
        let Some(consistency) = self.consistency_of(scan.client) else { return };
        let Some(client) = self.client(scan.client) else { return };
        let session = client.session;
        scan.version = self.map.version();
        let cursor = cursor.filter(|it| scan.shard.is_some() || it.is_of(scan.version));
        scan.partition = match scan.shard {
            Some(shard) => self.map.partition(shard),
            None => {
                let in_use = partitions_in_use(&self.map);
                let first = in_use.first().copied().unwrap_or_default();
                cursor.and_then(|it| in_use.get(it.partition).copied()).unwrap_or(first)
            }
        };
        if consistency == Consistency::Strong && !self.leads() {
            let text = format!("UNAVAILABLE {}", self.why_deposed());
            return self.end_scan(&scan, &text);
        }
        let eligible = match self.members.eligible(scan.partition, consistency, session) {
            Ok(eligible) => eligible,
            Err(refused) => return self.end_scan(&scan, &format!("UNAVAILABLE {refused}")),
        };
        let voters = self.members.voters(scan.partition);
        let live = self.members.live(scan.partition).and(voters).without(scan.avoided);
        let pinned = cursor.filter(|it| it.own > 0);
        let pinned = pinned.and_then(|it| {
            let server = live.iter().find(|&server| it.is_with(self.pin(server)))?;
            Some((server, it.own))
        });
        let others = eligible.from.without(scan.avoided);
        let least = || others.iter().min_by_key(|&server| self.members.owed(server));
        let Some((server, own)) = pinned.or_else(|| Some((least()?, 0))) else {
            return self.end_scan(&scan, GONE);
        };
        let kind = match eligible.from.contains(server) {
            true => eligible.connection,
            false => ConnectionKind::Ordered,
        };
        self.scans.last += 1;
        let number = self.scans.last;
        let mut parser = RequestParser::new(self.config.limits);
        let database = self.database_of(scan.client); // which is held
        self.ask_in((server, kind, database), Owed::Scan { number }, |out| {
            if let Ok(Some(_)) = parser.parse(&scan.text) {
                whole::write_scan(parser.arguments(&scan.text), scan.at, own, out);
            }
        });
        self.scans.open.insert(number, scan);
        self.schedule();
    }

    /// A duplicate on its present connection: another process of ours has another epoch.
    fn pin(&self, server: usize) -> u64 {
        let salt = xxh3_64(&self.history.last().epoch.0.to_le_bytes());
        (server as u64 & 63) << 6 | salt.wrapping_add(self.servers[server].connection) & 63
    }

    /// A page has come.
    pub(super) fn scan_answered(&mut self, server: usize, number: u64, reply: &[u8]) {
        self.members.answered(self.now, server, None);
        let Some(mut scan) = self.scans.open.remove(&number) else { return };
        let Some(client) = self.client(scan.client) else { return };
        if client.consistency == Consistency::Strong && !self.leads() {
            let text = format!("UNAVAILABLE {}", self.why_deposed());
            return self.end_scan(&scan, &text);
        }
        if cannot_serve(reply) {
            scan.avoided.insert(server);
            return self.send_again(scan);
        }
        let mut parts = reply::elements(reply);
        let (Some(next), Some(page)) = (parts.next().and_then(reply::payload), parts.next()) else {
            return self.reply(scan.client, scan.slot, reply, &Form::One(Shape::Plain));
        };
        let Some(own) = whole::cursor(next) else { return self.end_scan(&scan, GONE) };
        let Some(next) = self.next_cursor(&scan, server, own) else {
            return self.end_scan(&scan, TOO_LARGE);
        };
        let seen = self.members.sent_to(server);
        self.saw(scan.client, seen);
        let mut keys = Vec::new();
        match scan.shard {
            Some(_) => keys.extend_from_slice(page),
            None => {
                let is_kept = |_, key: &[u8]| is_visible(&self.map, scan.partition, key);
                merge::arrays(std::iter::once(page), is_kept, &mut keys);
            }
        }
        if own == 0 && next > 0 && keys == b"*0\r\n" {
            return self.send_scan(scan, Cursor::unpack(next)); // the last page told nothing
        }
        let mut answer = Vec::new();
        encode::array(&mut answer, 2);
        encode::bulk(&mut answer, next.to_string().as_bytes());
        answer.append(&mut keys);
        self.reply(scan.client, scan.slot, &answer, &Form::One(Shape::Plain));
    }

    /// What a client goes on with; 0 = it has everything.
    fn next_cursor(&self, scan: &Scan, server: usize, own: u64) -> Option<u64> {
        let in_use = partitions_in_use(&self.map);
        let (layout, pin) = (self.map.version(), self.pin(server));
        let next = match (scan.shard, own) {
            (Some(_), 0) => return Some(0),
            (Some(_), _) => Cursor { pin, own, ..Cursor::default() },
            _ if scan.version != layout => Cursor { layout, ..Cursor::default() },
            (None, own) => {
                let partition = in_use.iter().position(|&it| it == scan.partition)?;
                match own {
                    0 if partition + 1 == in_use.len() => return Some(0),
                    0 => Cursor { partition: partition + 1, layout, ..Cursor::default() },
                    own => Cursor { partition, layout, pin, own },
                }
            }
        };
        next.pack()
    }

    fn end_scan(&mut self, scan: &Scan, text: &str) {
        self.counts.refused += 1;
        let mut answer = Vec::new();
        encode::error(&mut answer, text);
        self.reply(scan.client, scan.slot, &answer, &Form::One(Shape::Plain));
    }

    /// Asks another for what one does not tell: its partition from the beginning.
    fn send_again(&mut self, scan: Scan) {
        let in_use = partitions_in_use(&self.map);
        let partition = in_use.iter().position(|&it| it == scan.partition);
        let layout = scan.version;
        let again = partition.map(|partition| Cursor { partition, layout, ..Cursor::default() });
        self.send_scan(scan, again);
    }

    /// Whoever was asked is gone.
    pub(super) fn scan_lost(&mut self, number: u64) {
        if let Some(scan) = self.scans.open.remove(&number) {
            self.send_again(scan);
        }
    }

    /// A duplicate says nothing: others are asked for the pages that it owes.
    pub(super) fn scan_elsewhere(&mut self, server: usize) {
        let state = &self.servers[server];
        let owed = state.ordered.owed.iter().chain(&state.free.owed);
        let numbers = owed.filter_map(|owed| match owed {
            Owed::Scan { number } => Some(*number),
            _ => None,
        });
        for number in numbers.collect::<Vec<_>>() {
            let Some(mut scan) = self.scans.open.remove(&number) else { continue };
            let mut others = self.members.live(scan.partition).without(scan.avoided);
            others.remove(server);
            if others.is_empty() {
                self.scans.open.insert(number, scan); // it is waited for
                continue;
            }
            scan.avoided.insert(server);
            self.send_again(scan);
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_ordered::Dropped;

    use super::super::world::World;
    use super::*;

    const FREE: ConnectionKind = ConnectionKind::Free;
    const PAGE: &str = "*2\r\n$2\r\n17\r\n*2\r\n$1\r\na\r\n$18\r\nevenkeel:watermark\r\n";

    fn one_asked(world: &mut World, command: &str) -> usize {
        let is_asked = |server: &usize| world.asked(*server, FREE) == [command];
        (0..2).find(is_asked).unwrap_or_else(|| panic!("nobody was asked {command}"))
    }

    /// The cursor of a page with one key.
    fn cursor(heard: &str) -> String {
        let lines: Vec<&str> = heard.split("\r\n").collect();
        assert_eq!((lines[0], &lines[3..]), ("*2", &["*1", "$1", "a", ""][..]), "{heard}");
        lines[2].to_owned()
    }

    #[test]
    fn a_page_goes_to_another_when_its_duplicate_is_gone() {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        assert!(world.tell(client, &["SCAN", "0"]));
        let first = one_asked(&mut world, "SCAN 0");
        world.lose(first, Dropped::Lost);
        let second = one_asked(&mut world, "SCAN 0");
        assert_ne!(first, second);
        world.say(second, FREE, PAGE);
        let next = cursor(&world.heard(client));
        // The next page is of the same one, whoever else is there.
        world.reach(first);
        assert!(world.tell(client, &["SCAN", &next, "COUNT", "5"]));
        assert_eq!(one_asked(&mut world, "SCAN 17 COUNT 5"), second);
        // It says nothing: another is asked, and what it says later is nobody's.
        world.engine.borrow().scan_elsewhere(second);
        assert_eq!(world.asked(first, FREE), ["SCAN 0 COUNT 5"]);
        world.say(second, FREE, PAGE);
        assert_eq!(world.heard(client), "");
        world.say(first, FREE, PAGE);
        let next = cursor(&world.heard(client));
        // It is another process when it is back.
        world.lose(first, Dropped::Lost);
        world.reach(first);
        assert!(world.tell(client, &["SCAN", &next]));
        let asked = one_asked(&mut world, "SCAN 0");
        world.say(asked, FREE, "*2\r\n$1\r\n0\r\n*0\r\n");
        assert_eq!(world.heard(client), "*2\r\n$1\r\n0\r\n*0\r\n");
        assert!(world.engine.borrow().scans.open.is_empty());
    }

    #[test]
    fn one_that_cannot_serve_is_not_asked_again() {
        let mut world = World::start(2, |_| {});
        let client = world.client();
        assert!(world.tell(client, &["HSCAN", "h", "0"]));
        let first = one_asked(&mut world, "HSCAN h 0");
        world.say(first, FREE, "-LOADING it reads its file\r\n");
        let second = one_asked(&mut world, "HSCAN h 0");
        assert_ne!(first, second);
        world.say(second, FREE, "-LOADING it reads its file\r\n");
        assert!(world.heard(client).starts_with("-UNAVAILABLE"));
        world.lose(first, Dropped::Lost);
        world.lose(second, Dropped::Lost);
        assert!(world.tell(client, &["SCAN", "0"]));
        assert!(world.heard(client).starts_with("-UNAVAILABLE none of 2"));
    }
}
