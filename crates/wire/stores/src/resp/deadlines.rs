//! What writes make of the deadlines of keys.
//!
//! | written | the key |
//! |---|---|
//! | `SET k v PXAT ms` | has this deadline |
//! | `SET k v`, `DEL`, `GETDEL`, `PERSIST` | has none, or is not there |
//! | `PEXPIREAT k ms`, `GETEX k PXAT ms` | has this one, if it is there |
//! | the same with `NX`, `XX`, `GT`, `LT`; `RESTORE` | may have it, or what it had |
//! | `RENAME`, `COPY` | the second may have that of the first |
//! | `INCR`, `APPEND`, `HSET`, `SADD`, … | keeps it |
//! | everything else | may be gone, or another one without it |
//!
//! Times are absolute: commands are as [`super::rewrite`] makes them.

use super::commands::{self, Command, integer};
use super::request::Arguments;

/// What became of a key's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// It is this, in ms since 1970, and the key is there.
    Set(i64),
    /// It is this, if the key is there.
    Moved(i64),
    /// It may be this, or what it was.
    Perhaps(i64),
    /// There is none.
    Cleared,
    /// It may be gone.
    Changed,
    /// It may be at this key too.
    Carried(&'a [u8]),
}

/// Commands that leave a key there, with its deadline.
const KEEPING: [&str; 27] = [
    "append",
    "bitfield",
    "decr",
    "decrby",
    "geoadd",
    "hincrby",
    "hincrbyfloat",
    "hmset",
    "hset",
    "hsetnx",
    "incr",
    "incrby",
    "incrbyfloat",
    "linsert",
    "lpush",
    "lpushx",
    "lset",
    "pfadd",
    "rpush",
    "rpushx",
    "sadd",
    "setbit",
    "setrange",
    "xadd",
    "zadd",
    "zincrby",
    "touch",
];

/// Whether a command leaves its key there, with the deadline that it has.
pub fn keeps(command: &Command) -> bool {
    KEEPING.contains(&command.name)
}

/// The name of the first of these commands, and how many words it has.
fn head(commands: &[u8]) -> Option<(usize, &[u8])> {
    let number = |text: &[u8]| str::from_utf8(text).ok()?.parse::<usize>().ok();
    let end = memchr::memchr(b'\r', commands)?;
    let words = number(commands.get(1..end)?)?;
    let rest = commands.get(end + 2..)?;
    let end = memchr::memchr(b'\r', rest)?;
    let length = number(rest.get(1..end)?)?;
    Some((words, rest.get(end + 2..)?.get(..length)?))
}

/// Whether one command may give a key a deadline that had none: quick, since most do not.
#[inline]
pub fn may_set(command: &[u8]) -> bool {
    let is = |name: &[u8], other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    match head(command) {
        Some((words, name)) if is(name, "set") => words > 3,
        Some((_, name)) => ["pexpireat", "getex", "restore"].iter().any(|it| is(name, it)),
        None => true,
    }
}

/// Tells what these commands make of deadlines; `None` = all keys are gone.
pub fn for_each(commands: &[u8], mut act: impl FnMut(Option<(&[u8], Change<'_>)>)) {
    commands::for_each(commands, |known| {
        let Some((command, arguments)) = known else { return };
        if matches!(command.name, "flushall" | "flushdb") {
            return act(None);
        }
        if keeps(command) {
            return;
        }
        let time = |at: usize| arguments.get(at).and_then(integer).unwrap_or(0);
        let option = |name: &str| (1..arguments.len()).find(|&at| arguments.is(at, name));
        let key = || arguments.get(1).unwrap_or_default();
        match command.name {
            "set" if arguments.len() >= 3 => act(Some((key(), set(arguments)))),
            "pexpireat" if arguments.len() == 3 => act(Some((key(), Change::Moved(time(2))))),
            "pexpireat" => act(Some((key(), Change::Perhaps(time(2))))),
            "getex" => act(Some((
                key(),
                match option("pxat") {
                    Some(at) => Change::Moved(time(at + 1)),
                    None => Change::Cleared, // PERSIST
                },
            ))),
            "restore" => {
                let at = time(2);
                act(Some((key(), Change::Changed)));
                if at > 0 {
                    act(Some((key(), Change::Perhaps(at))));
                }
            }
            "del" | "unlink" | "mset" | "getdel" | "getset" | "persist" | "setnx" => {
                // SETNX that found one kept its deadline.
                let change =
                    if command.name == "setnx" { Change::Changed } else { Change::Cleared };
                // GETSET and GETDEL may fail: what they leave has what it had.
                let may_fail = matches!(command.name, "getdel" | "getset");
                let change = if may_fail { Change::Changed } else { change };
                each(command, arguments, |key| act(Some((key, change))));
            }
            "rename" | "renamenx" | "copy" => {
                act(Some((key(), Change::Carried(arguments.get(2).unwrap_or_default()))));
            }
            _ => each(command, arguments, |key| act(Some((key, Change::Changed)))),
        }
    });
}

fn each(command: &Command, arguments: Arguments<'_>, mut act: impl FnMut(&[u8])) {
    let keys = commands::keys(command, arguments).into_iter().flatten();
    keys.for_each(|at| act(arguments.at(at)));
}

fn set(arguments: Arguments<'_>) -> Change<'static> {
    let (mut at, mut is_sure, mut keeps) = (3, true, false);
    let mut deadline = None;
    while at < arguments.len() {
        if arguments.is(at, "pxat") {
            deadline = arguments.get(at + 1).and_then(integer);
            at += 1;
        } else if arguments.is(at, "keepttl") {
            keeps = true;
        } else {
            is_sure = false; // NX, XX; GET fails on what is no string
        }
        at += 1;
    }
    match (deadline, is_sure) {
        (Some(at), true) if at > 0 => Change::Set(at),
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
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let mut command = Vec::new();
        encode::command(&mut command, &words);
        let mut all = Vec::new();
        for_each(&command, |change| match change {
            Some((key, Change::Carried(to))) => {
                let [key, to] = [key, to].map(String::from_utf8_lossy);
                all.push(format!("{key} to {to}"));
            }
            Some((key, change)) => {
                all.push(format!("{} {change:?}", String::from_utf8_lossy(key)));
            }
            None => all.push("all".to_owned()),
        });
        let sets = |it: &String| ["Set", "Moved", "Perhaps"].iter().any(|word| it.contains(word));
        assert!(may_set(&command) || !all.iter().any(sets), "{line}: it is overlooked");
        all
    }

    #[test]
    fn what_becomes_of_deadlines() {
        for (line, expected) in [
            ("SET k v", "k Cleared"),
            ("set k v pxat 9", "k Set(9)"),
            ("SET k v NX PXAT 9", "k Perhaps(9)"),
            ("SET k v PXAT 9 GET", "k Perhaps(9)"),
            ("SET k v KEEPTTL", "k Changed"),
            ("SET k v NX", "k Changed"),
            ("SET k PXAT", "k Cleared"),
            ("PEXPIREAT k 9", "k Moved(9)"),
            ("PEXPIREAT k 9 GT", "k Perhaps(9)"),
            ("GETEX k PXAT 9", "k Moved(9)"),
            ("GETEX k PERSIST", "k Cleared"),
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
            ("INCR k", ""),
            ("HSET k f v", ""),
            ("FLUSHALL", "all"),
            ("NOSUCH k", ""),
        ] {
            assert_eq!(of(line).join(", "), expected, "{line}");
        }
    }
}
