//! Keys at their deadlines: by what number they are known, what a write makes of them, and which of
//! them had gone at a duplicate before it did something for all.
//!
//! **An executor that is late** finds no key any more, and makes a new one. If the old one went
//! within its transaction, the stream says so (`DEL`). If it had gone before, the stream says that
//! apart, and the others may have it still, or would take the new one for the old. So the executor
//! is asked in the same transaction, before the commands, whether keys near a deadline are there;
//! of those that are not, the others are told.

use std::borrow::Cow;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

use evenkeel_ordered::{Deadlines, deadline_key};
use evenkeel_stores::resp::databases::{self, count_within, write_within};
use evenkeel_stores::resp::deadlines::Change;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::replication::Group;
use evenkeel_stores::resp::reply::{elements, integer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The number of a key of this database. Nobody outside can find another key that has the same one.
pub fn number_of(database: u8, key: &[u8]) -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let seed = *SEED.get_or_init(|| RandomState::new().hash_one(0));
    deadline_key(database, xxh3_64_with_seed(key, seed))
}

/// The number of the key at this place.
pub fn key_of(place: &[u8]) -> u64 {
    let (database, key) = databases::at(place);
    number_of(database, key)
}

/// A write makes this of the deadline of a key.
pub fn note_change(deadlines: &mut Deadlines, key: u64, change: Change<'_>, now_unix_ms: i64) {
    match change {
        Change::Set(at) => deadlines.set(key, at),
        Change::Moved(at) => deadlines.moved(key, at, now_unix_ms),
        Change::IfAbsent(at) => deadlines.if_absent(key, at, now_unix_ms),
        Change::Kept => deadlines.kept(key, now_unix_ms),
        Change::Perhaps(at) => deadlines.perhaps(key, at),
        Change::Cleared => deadlines.cleared(key),
        Change::Changed => deadlines.changed(key),
        Change::Carried(database, to) => deadlines.carried(key, number_of(database, to)),
    }
}

/// The places of keys that these commands name, and that may go before a duplicate comes to them.
pub fn near(commands: &[u8], deadlines: &Deadlines, now_unix_ms: i64) -> Vec<Box<[u8]>> {
    let mut near: Vec<Box<[u8]>> = Vec::new();
    let until = deadlines.until(now_unix_ms);
    databases::for_each(commands, |known| {
        let Some((database, command, arguments)) = known else { return };
        for place in databases::places(database, command, arguments) {
            let is_near = deadlines.first_of(key_of(&place)).is_some_and(|at| at <= until);
            if is_near && !near.iter().any(|it| **it == *place) {
                near.push(Box::from(&*place));
            }
        }
    });
    near
}

/// Asks whether they are there; how many answers come.
pub fn ask(places: &[Box<[u8]>], out: &mut Vec<u8>) -> u32 {
    for place in places {
        let (database, key) = databases::at(place);
        write_within(out, database, |out| encode::command(out, &[b"PEXPIRETIME", key]));
    }
    answers(places)
}

fn answers(places: &[Box<[u8]>]) -> u32 {
    places.iter().map(|place| count_within(databases::at(place).0)).sum()
}

/// Takes these answers out of that to `EXEC`, where they are the first; only places of keys that
/// had gone remain.
pub fn take<'r>(places: &mut Vec<Box<[u8]>>, reply: Cow<'r, [u8]>) -> Cow<'r, [u8]> {
    let (all, count) = (elements(&reply).collect::<Vec<_>>(), answers(places) as usize);
    if count == 0 || all.len() < count {
        return reply; // the latter is taken for what it is not, and given up
    }
    let mut at = 0;
    places.retain(|place| {
        let database = databases::at(place).0;
        let said = all[at + usize::from(database > 0)]; // behind SELECT
        at += count_within(database) as usize;
        integer(said) == Some(-2)
    });
    let mut out = Vec::with_capacity(reply.len());
    encode::array(&mut out, all.len() - count);
    all[count..].iter().for_each(|it| out.extend_from_slice(it));
    Cow::Owned(out)
}

/// Has the others remove keys that had gone before these effects.
pub fn remove_before<'p>(places: impl Iterator<Item = &'p [u8]>, group: &mut Group) {
    let mut commands = Vec::new();
    for place in places {
        let (database, key) = databases::at(place);
        write_within(&mut commands, database, |out| encode::command(out, &[b"DEL", key]));
        group.count += count_within(database);
    }
    if !commands.is_empty() {
        commands.append(&mut group.commands);
        group.commands = commands;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(all: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        for line in all {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            encode::command(&mut out, &words);
        }
        out
    }

    #[test]
    fn keys_near_a_deadline_are_asked_for_and_those_that_had_gone_are_removed_elsewhere() {
        let mut deadlines = Deadlines::of_one();
        deadlines.set(number_of(0, b"gone"), 10_500);
        deadlines.set(number_of(0, b"there"), 10_900);
        deadlines.set(number_of(0, b"far"), 90_000);
        deadlines.set(number_of(3, b"gone"), 10_000);
        let script = ["EVAL x 3 gone there far", "GET gone", "SELECT 3", "INCR gone", "INCR no"];
        let mut places = near(&commands(&script), &deadlines, 10_000);
        let mut asked = Vec::new();
        assert_eq!(ask(&places, &mut asked), 5);
        let expected =
            ["PEXPIRETIME gone", "PEXPIRETIME there", "SELECT 3", "PEXPIRETIME gone", "SELECT 0"];
        assert_eq!(asked, commands(&expected));
        let reply = b"*7\r\n:-2\r\n:10900\r\n+OK\r\n:-2\r\n+OK\r\n:1\r\n+OK\r\n";
        let rest = take(&mut places, Cow::Borrowed(reply));
        assert_eq!(&*rest, b"*2\r\n:1\r\n+OK\r\n");
        let mut group = Group { commands: commands(&["INCR gone"]), count: 1, ..Group::default() };
        remove_before(places.iter().map(|place| &**place), &mut group);
        let expected = ["DEL gone", "SELECT 3", "DEL gone", "SELECT 0", "INCR gone"];
        assert_eq!((group.commands, group.count), (commands(&expected), 5));
    }

    #[test]
    fn who_asked_nothing_or_is_answered_something_else_changes_nothing() {
        let reply = Cow::Borrowed(&b"*1\r\n:-2\r\n"[..]);
        assert_eq!(take(&mut Vec::new(), reply.clone()), reply);
        let mut places = vec![Box::from(&b"a"[..]), Box::from(&b"b"[..])];
        assert_eq!(take(&mut places, reply.clone()), reply);
        let mut group = Group { commands: commands(&["INCR a"]), count: 1, ..Group::default() };
        remove_before(std::iter::empty(), &mut group);
        assert_eq!((group.commands, group.count), (commands(&["INCR a"]), 1));
    }
}
