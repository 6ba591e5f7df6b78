//! What writes make of the deadlines of keys.
//!
//! | written | the key |
//! |---|---|
//! | `SET k v PXAT ms` | has this deadline |
//! | `SET k v`, `DEL`, `GETDEL`, `PERSIST` | has none, or is not there |
//! | `PEXPIREAT k ms` | has this one, if it is there |
//! | the same with `NX`, `XX`, `GT`, `LT`; `GETEX`, `RESTORE` | may have it, or what it had |
//! | `SET k v NX` | has what it had, if it was there |
//! | `LMOVE`, `SMOVE`, … | the first may be gone, the second as with `SADD` |
//! | `RENAME`, `COPY`, `MOVE` | the second may have that of the first |
//! | `INCR`, `APPEND`, `HSET`, `SADD`, `SETNX`, … | keeps it, or is a new one without |
//! | everything else | may be gone, or another one without it |
//!
//! Times are absolute: commands are as [`super::rewrite`] makes them. A key is one of a database,
//! so both are told ([`databases`]).

use super::commands::{self, Command, integer};
use super::request::{Arguments, Limits, RequestParser};
use super::{databases, encode};

/// By how much deadlines are put off, in ms: a million years, so that no clock comes near.
const PUT_OFF_MS: i64 = 1 << 55;

/// What became of a key's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// It is this, in ms since 1970, and the key is there.
    Set(i64),
    /// It is this, if the key is there.
    Moved(i64),
    /// It may be this, or what it was.
    Perhaps(i64),
    /// It is this, or there is none, if the key was not there; else it is what it was.
    IfAbsent(Option<i64>),
    /// It is what it was, or the key is a new one without.
    Kept,
    /// There is none.
    Cleared,
    /// It may be gone.
    Changed,
    /// It may be at this key of this database too.
    Carried(u8, &'a [u8]),
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written<'a> {
    /// All keys are gone.
    Everything,
    /// All keys of this database are.
    Database(u8),
    /// Something became of the deadline of a key of a database.
    Key(u8, &'a [u8], Change<'a>),
}

/// Whether a command leaves a key that is there as it is, or there with its deadline.
pub fn keeps(command: &Command) -> bool {
    // A search of a list of names costs each write 160 instructions.
    matches!(
        command.name,
        "append"
            | "bitfield"
            | "decr"
            | "decrby"
            | "geoadd"
            | "hincrby"
            | "hincrbyfloat"
            | "hmset"
            | "hset"
            | "hsetnx"
            | "incr"
            | "incrby"
            | "incrbyfloat"
            | "linsert"
            | "lpush"
            | "lpushx"
            | "lset"
            | "pfadd"
            | "rpush"
            | "rpushx"
            | "sadd"
            | "setbit"
            | "setnx"
            | "setrange"
            | "xadd"
            | "zadd"
            | "zincrby"
            | "touch"
    )
}

/// Whether one command may give a key a deadline that had none: quick, since most do not.
#[inline]
pub fn may_set(command: &[u8]) -> bool {
    let [b'*', words, b'\r', b'\n', b'$', length, b'\r', b'\n', rest @ ..] = command else {
        return true; // a count of several digits: it may be anything
    };
    let is = |name: &str| {
        rest.get(..name.len()).is_some_and(|it| it.eq_ignore_ascii_case(name.as_bytes()))
    };
    match length {
        b'3' => *words > b'3' && is("set"),
        b'5' => is("getex"),
        b'7' => is("restore"),
        b'9' => is("pexpireat"),
        _ => false,
    }
}

/// Appends the command that says a deadline again behind one that [`keeps`] it, for a key that this
/// one has found no more, and has made anew. Its answer is 1 there, and 0 where the key was found.
pub fn write_again(out: &mut Vec<u8>, key: &[u8], unix_ms: i64) {
    let mut digits = itoa::Buffer::new();
    encode::command(out, &[b"PEXPIREAT", key, digits.format(unix_ms).as_bytes(), b"NX"]);
}

/// Appends these commands with all deadlines put off so far that none passes while they are done;
/// whether there was any. Which one is before which is the same. Deadlines of a hash's fields stay.
pub fn put_off(commands: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut parser, mut rest, mut is_any) = (RequestParser::new(Limits::MAX), commands, false);
    while let Ok(Some(length)) = parser.parse(rest) {
        let (command, later) = rest.split_at(length);
        let arguments = parser.arguments(command);
        rest = later;
        let Some((place, at)) = deadline_of(arguments) else {
            out.extend_from_slice(command);
            continue;
        };
        is_any = true;
        // What is farther away than that stays so.
        let at = at.clamp(0, PUT_OFF_MS - 1) + PUT_OFF_MS;
        let mut digits = itoa::Buffer::new();
        let mut words: Vec<&[u8]> = (0..arguments.len()).map(|at| arguments.at(at)).collect();
        words[place] = digits.format(at).as_bytes();
        encode::command(out, &words);
    }
    is_any
}

/// The deadline that [`put_off`] has made this one of, in ms since 1970, 0 if it was before;
/// `None` of one that was not put off.
pub fn put_back(unix_ms: i64) -> Option<i64> {
    (PUT_OFF_MS..2 * PUT_OFF_MS).contains(&unix_ms).then(|| unix_ms - PUT_OFF_MS)
}

/// Which argument of a command is a deadline, and which it is. What Redis refuses is none.
fn deadline_of(arguments: Arguments<'_>) -> Option<(usize, i64)> {
    let option = |from: usize, name: &str| {
        (from..arguments.len()).find(|&at| arguments.is(at, name)).map(|at| at + 1)
    };
    let name = arguments.get(0).and_then(commands::known)?.name;
    let place = match name {
        "set" => option(3, "pxat"),
        "getex" => option(2, "pxat"),
        "restore" => option(4, "absttl").map(|_| 2),
        "pexpireat" => Some(2),
        _ => None,
    }?;
    let at = arguments.get(place).and_then(integer)?;
    (at > 0 || name == "pexpireat").then_some((place, at))
}

/// Tells what these commands make of deadlines.
pub fn for_each(commands: &[u8], mut act: impl FnMut(Written<'_>)) {
    databases::for_each(commands, |known| {
        let Some((database, command, arguments)) = known else { return };
        match command.name {
            "flushall" => act(Written::Everything),
            "flushdb" => act(Written::Database(database)),
            _ if keeps(command) => {
                let key = arguments.get(1).unwrap_or_default();
                act(Written::Key(database, key, Change::Kept));
            }
            _ => changes(database, command, arguments, &mut act),
        }
    });
}

fn changes(
    database: u8,
    command: &Command,
    arguments: Arguments<'_>,
    act: &mut impl FnMut(Written<'_>),
) {
    let time = |at: usize| arguments.get(at).and_then(integer).unwrap_or(0);
    let argument = |at: usize| arguments.get(at).unwrap_or_default();
    let mut of_first = |change: Change<'_>| act(Written::Key(database, argument(1), change));
    match command.name {
        "set" if arguments.len() >= 3 => of_first(set(arguments)),
        "pexpireat" => of_first(match arguments.get(2).and_then(integer) {
            Some(at) if arguments.len() == 3 => Change::Moved(at),
            Some(at) => Change::Perhaps(at),
            None => Change::Changed, // it is refused
        }),
        "getex" => {
            let at = (2..arguments.len()).find(|&at| arguments.is(at, "pxat"));
            let at = at.and_then(|at| arguments.get(at + 1)).and_then(integer);
            // It fails on what is no string. Without a time it is PERSIST.
            of_first(at.map_or(Change::Changed, Change::Perhaps));
        }
        "restore" => {
            of_first(Change::Changed);
            if time(2) > 0 {
                of_first(Change::Perhaps(time(2)));
            }
        }
        "rename" | "renamenx" => of_first(Change::Carried(database, argument(2))),
        "lmove" | "rpoplpush" | "blmove" | "brpoplpush" | "smove" => {
            of_first(Change::Changed);
            act(Written::Key(database, argument(2), Change::Kept));
        }
        "copy" | "move" => {
            let target = databases::target_argument(command, arguments);
            let target = target.and_then(|at| databases::number(argument(at)));
            let to = argument(if command.name == "copy" { 2 } else { 1 });
            of_first(Change::Carried(target.unwrap_or(database), to));
        }
        name => {
            // The others may fail, or find the key: what they leave has what it had.
            let is_sure = matches!(name, "del" | "unlink" | "mset" | "persist");
            let change = if is_sure { Change::Cleared } else { Change::Changed };
            let keys = commands::keys(command, arguments).into_iter().flatten();
            keys.for_each(|at| act(Written::Key(database, arguments.at(at), change)));
        }
    }
}

fn set(arguments: Arguments<'_>) -> Change<'static> {
    let (mut at, mut is_sure, mut keeps) = (3, true, false);
    let (mut deadline, mut if_absent) = (None, false);
    while at < arguments.len() {
        if arguments.is(at, "pxat") {
            let Some(time) = arguments.get(at + 1).and_then(integer) else {
                return Change::Changed; // it is refused
            };
            deadline = Some(time);
            at += 1;
        } else if arguments.is(at, "keepttl") {
            keeps = true;
        } else if arguments.is(at, "nx") {
            if_absent = true;
        } else {
            is_sure = false; // XX; GET fails on what is no string
        }
        at += 1;
    }
    match (deadline, is_sure) {
        (deadline, true) if if_absent && !keeps => Change::IfAbsent(deadline),
        (Some(at), true) if at > 0 && !if_absent => Change::Set(at),
        (Some(at), _) => Change::Perhaps(at),
        (None, true) if !keeps => Change::Cleared,
        (None, _) => Change::Changed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::encode;

    fn of(line: &str) -> Vec<String> {
        let mut commands = Vec::new();
        let mut may_set = false;
        for line in line.split("; ") {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            let before = commands.len();
            encode::command(&mut commands, &words);
            may_set |= super::may_set(&commands[before..]);
        }
        let mut all = Vec::new();
        let shown = |database: u8, key: &[u8]| {
            let key = String::from_utf8_lossy(key);
            if database == 0 { key.into_owned() } else { format!("{key}@{database}") }
        };
        for_each(&commands, |written| match written {
            Written::Key(database, key, Change::Carried(other, to)) => {
                all.push(format!("{} to {}", shown(database, key), shown(other, to)));
            }
            Written::Key(database, key, change) => {
                all.push(format!("{} {change:?}", shown(database, key)));
            }
            Written::Database(database) => all.push(format!("all of {database}")),
            Written::Everything => all.push("all".to_owned()),
        });
        let sets =
            |it: &String| ["Set", "Moved", "Perhaps", "Some"].iter().any(|word| it.contains(word));
        assert!(may_set || !all.iter().any(sets), "{line}: it is overlooked");
        all
    }

    #[test]
    fn deadlines_are_put_off_and_back_and_nothing_else_is() {
        let text = |line: &str| {
            let mut commands = Vec::new();
            for line in line.split("; ") {
                let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
                encode::command(&mut commands, &words);
            }
            commands
        };
        let off = |line: &str| {
            let mut out = Vec::new();
            put_off(&text(line), &mut out).then_some(out)
        };
        // 2⁵⁵ ms later.
        for (line, expected) in [
            ("SET k v PXAT 9", "SET k v PXAT 36028797018963977"),
            ("set k v nx pxat 9 get", "set k v nx pxat 36028797018963977 get"),
            ("SET pxat v PXAT 9", "SET pxat v PXAT 36028797018963977"),
            ("GETEX k PXAT 9", "GETEX k PXAT 36028797018963977"),
            ("PEXPIREAT k 9 NX", "PEXPIREAT k 36028797018963977 NX"),
            ("PEXPIREAT k -9", "PEXPIREAT k 36028797018963968"),
            ("RESTORE k 9 dump REPLACE ABSTTL", "RESTORE k 36028797018963977 dump REPLACE ABSTTL"),
            ("PEXPIREAT k 9223372036854775807", "PEXPIREAT k 72057594037927935"),
            (
                "SELECT 3; INCR k; PEXPIREAT k 9; SELECT 0",
                "SELECT 3; INCR k; PEXPIREAT k 36028797018963977; SELECT 0",
            ),
        ] {
            assert_eq!(off(line), Some(text(expected)), "{line}");
        }
        for line in [
            "SET k v",
            "SET k pxat 9",
            "SET k v PXAT 0",
            "SET k v PXAT x",
            "SET k v PXAT",
            "GETEX k PERSIST",
            "RESTORE k 0 dump REPLACE ABSTTL",
            "RESTORE k 9 dump REPLACE",
            "PEXPIREAT k x",
            "NOSUCH k PXAT 9",
            "FUNCTION RESTORE dump",
        ] {
            assert_eq!(off(line), None, "{line}");
            let mut out = Vec::new();
            put_off(&text(line), &mut out);
            assert_eq!(out, text(line), "as it was");
        }
        assert_eq!(put_back(36_028_797_018_963_977), Some(9));
        assert_eq!(put_back(36_028_797_018_963_968), Some(0), "it has passed");
        for at in [-2, -1, 0, 9, 1_700_000_000_000, i64::MAX] {
            assert_eq!(put_back(at), None);
        }
    }

    #[test]
    fn what_becomes_of_deadlines() {
        for (line, expected) in [
            ("SET k v", "k Cleared"),
            ("set k v pxat 9", "k Set(9)"),
            ("SET k v NX PXAT 9", "k IfAbsent(Some(9))"),
            ("SET k v PXAT 9 NX GET", "k Perhaps(9)"),
            ("SET k v PXAT x", "k Changed"),
            ("SET k v PXAT 9 GET", "k Perhaps(9)"),
            ("SET k v KEEPTTL", "k Changed"),
            ("SET k v NX", "k IfAbsent(None)"),
            ("SET k PXAT", "k Cleared"),
            ("PEXPIREAT k 9", "k Moved(9)"),
            ("PEXPIREAT k 9 GT", "k Perhaps(9)"),
            ("PEXPIREAT k x", "k Changed"),
            ("GETEX k PXAT 9", "k Perhaps(9)"),
            ("GETEX pxat 9", "pxat Changed"),
            ("GETEX k PERSIST", "k Changed"),
            ("RESTORE k 0 dump REPLACE ABSTTL", "k Changed"),
            ("RESTORE k 9 dump ABSTTL", "k Changed, k Perhaps(9)"),
            ("DEL k l", "k Cleared, l Cleared"),
            ("MSET k 1 l 2", "k Cleared, l Cleared"),
            ("PERSIST k", "k Cleared"),
            ("GETDEL k", "k Changed"),
            ("RENAME k l", "k to l"),
            ("COPY k l REPLACE", "k to l"),
            ("SINTERSTORE d a b", "d Changed, a Changed, b Changed"),
            ("LPOP k", "k Changed"),
            ("BLMOVE k l LEFT LEFT 0", "k Changed, l Kept"),
            ("INCR k", "k Kept"),
            ("HSET k f v", "k Kept"),
            ("SETNX k v", "k Kept"),
            ("MOVE k 3", "k to k@3"),
            ("COPY k l DB 3 REPLACE", "k to l@3"),
            ("SELECT 3; SET k v PXAT 9; SELECT 0; DEL k", "k@3 Set(9), k Cleared"),
            ("SET k v NX GET KEEPTTL XX GET NX PXAT 9", "k Perhaps(9)"), // ten words
            (
                "SELECT 3; MOVE k 0; RENAME a b; COPY a b; SELECT 0",
                "k@3 to k, a@3 to b@3, a@3 to b@3",
            ),
            ("SELECT 3; LPOP k; INCR k; SELECT 0", "k@3 Changed, k@3 Kept"),
            ("SELECT 3; FLUSHDB; SELECT 0", "all of 3"),
            ("FLUSHDB", "all of 0"),
            ("FLUSHALL", "all"),
            ("NOSUCH k", ""),
        ] {
            assert_eq!(of(line).join(", "), expected, "{line}");
        }
    }
}
