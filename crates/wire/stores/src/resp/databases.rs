//! Databases by their numbers: a key is one of a database.
//!
//! **Commands.** Between two commands of ours a connection to a server is always in database 0, so
//! who uses no other one pays nothing, and marks of ours need no thought. What another database is
//! for goes between `SELECT n` and `SELECT 0` ([`write_within`]): as one group where it writes, so
//! that a log, a replay and a stream of replication have it as it was done. Whatever concerns
//! another database than 0 begins with `SELECT` ([`is_elsewhere`]).
//!
//! **Keys.** Who keeps what is known of keys knows a key by its *place* ([`place`]): of database 0
//! the key itself, of others a name that no key of a client has, since it begins with the prefix
//! that is reserved.

use std::borrow::Cow;

use super::commands::{self, Command, integer, keys};
use super::request::{Arguments, Limits, RequestParser};

/// Databases that are served at most, whatever a server has: all are looked through when a server
/// is filled.
pub const DATABASES_MAX: u8 = 128;
/// As many as a Redis has unless its configuration says otherwise.
pub const DATABASES: u8 = 16;

/// How a command begins that chooses a database, as it is written here.
const SELECT: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$";
/// Back to database 0.
const BACK: &[u8] = b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n";
/// How the places of keys in other databases begin: the number follows as a byte, then the key.
const ELSEWHERE: &[u8] = b"evenkeel:db:";

/// Appends `SELECT n`.
pub fn write_select(out: &mut Vec<u8>, database: u8) {
    let mut digits = itoa::Buffer::new();
    super::encode::command(out, &[b"SELECT", digits.format(database).as_bytes()]);
}

/// Appends what `write` appends; of another database than 0 between `SELECT n` and `SELECT 0`.
#[inline]
pub fn write_within(out: &mut Vec<u8>, database: u8, write: impl FnOnce(&mut Vec<u8>)) {
    if database > 0 {
        write_select(out, database);
    }
    write(out);
    if database > 0 {
        out.extend_from_slice(BACK);
    }
}

/// How many commands [`write_within`] makes of one.
#[inline]
pub const fn count_within(database: u8) -> u32 {
    if database > 0 { 3 } else { 1 }
}

/// Appends these commands, of any database, between `SELECT n` and `SELECT 0`.
pub fn write_group(out: &mut Vec<u8>, database: u8, commands: &[u8]) {
    write_select(out, database);
    out.extend_from_slice(commands);
    out.extend_from_slice(BACK);
}

/// Whether these commands, as they are written here, concern another database than 0.
#[inline]
pub fn is_elsewhere(commands: &[u8]) -> bool {
    commands.starts_with(SELECT)
}

/// The one command that [`write_within`] has put into its database.
pub fn within(commands: &[u8]) -> &[u8] {
    let Some(rest) = commands.strip_prefix(SELECT) else { return commands };
    let mut lines = memchr::memchr_iter(b'\n', rest);
    let start = lines.nth(1).map_or(rest.len(), |end| end + 1); // its length, its digits
    let rest = &rest[start..];
    rest.strip_suffix(BACK).unwrap_or(rest)
}

/// The name of a key of this database that no other key has.
#[inline]
pub fn place(database: u8, key: &[u8]) -> Cow<'_, [u8]> {
    match database {
        0 => Cow::Borrowed(key),
        _ => Cow::Owned([ELSEWHERE, &[database], key].concat()),
    }
}

/// The database and the key of a [`place`].
#[inline]
pub fn at(place: &[u8]) -> (u8, &[u8]) {
    match place.strip_prefix(ELSEWHERE).and_then(<[u8]>::split_first) {
        Some((&database, key)) => (database, key),
        None => (0, place),
    }
}

/// The key of a [`place`].
#[inline]
pub fn key(place: &[u8]) -> &[u8] {
    at(place).1
}

/// A place for people.
pub fn shown(place: &[u8]) -> String {
    let (database, key) = at(place);
    let key = String::from_utf8_lossy(key);
    if database == 0 { format!("{key:?}") } else { format!("{key:?} of database {database}") }
}

/// The number of a database in a command.
pub fn number(text: &[u8]) -> Option<u8> {
    integer(text).and_then(|number| u8::try_from(number).ok())
}

/// Which argument of a command names another database that it puts a key into.
pub fn target_argument(command: &Command, arguments: Arguments<'_>) -> Option<usize> {
    match command.name {
        "move" => Some(2),
        "copy" => (4..arguments.len()).rfind(|&at| arguments.is(at - 1, "db")),
        _ => None,
    }
}

/// The places of the keys of a command that is done in this database, as far as it names them.
pub fn places<'a>(database: u8, command: &Command, arguments: Arguments<'a>) -> Vec<Cow<'a, [u8]>> {
    let indices = keys(command, arguments).into_iter().flatten();
    let target = target_argument(command, arguments).and_then(|at| number(arguments.at(at)));
    let mut places: Vec<Cow<'a, [u8]>> = Vec::new();
    for (nth, index) in indices.enumerate() {
        let key = arguments.at(index);
        match target {
            Some(target) if nth == 1 => places.push(place(target, key)), // of COPY
            _ => places.push(place(database, key)),
        }
        if let (Some(target), "move") = (target, command.name) {
            places.push(place(target, key));
        }
    }
    places
}

/// Takes apart commands that were taken, one after the other, with the database of each; `None` is
/// one that is not known, or no command. `SELECT` itself is none of them.
pub fn for_each(
    commands: &[u8],
    mut act: impl FnMut(Option<(u8, &'static Command, Arguments<'_>)>),
) {
    let mut database = 0;
    commands::for_each(commands, |known| match known {
        Some((command, arguments)) if command.name == "select" => {
            match arguments.get(1).and_then(number) {
                Some(number) => database = number,
                None => act(None),
            }
        }
        known => act(known.map(|(command, arguments)| (database, command, arguments))),
    });
}

/// The highest database that these commands choose or put keys into.
pub fn highest(commands: &[u8]) -> u8 {
    let mut highest = 0;
    let (mut parser, mut rest) = (RequestParser::new(Limits::MAX), commands);
    while let Ok(Some(length)) = parser.parse(rest) {
        let arguments = parser.arguments(rest);
        let command = arguments.get(0).and_then(commands::known);
        let at = command.and_then(|command| match command.name {
            "select" => Some(1),
            _ => target_argument(command, arguments),
        });
        let number = at.and_then(|at| arguments.get(at)).and_then(number);
        highest = highest.max(number.unwrap_or_default());
        rest = &rest[length..];
    }
    highest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(words: &[&str]) -> Vec<u8> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let mut out = Vec::new();
        super::super::encode::command(&mut out, &words);
        out
    }

    #[test]
    fn what_another_database_is_for_ends_in_database_0() {
        let command = written(&["APPEND", "a", "SELECT"]);
        for (database, is_other) in [(0, false), (1, true), (15, true), (127, true)] {
            let mut out = Vec::new();
            write_within(&mut out, database, |out| out.extend_from_slice(&command));
            assert_eq!(is_elsewhere(&out), is_other);
            assert_eq!(within(&out), command);
            assert_eq!(highest(&out), database);
            if is_other {
                let number = database.to_string();
                let all =
                    [written(&["SELECT", &number]), command.clone(), written(&["SELECT", "0"])];
                assert_eq!(out, all.concat());
            }
        }
        assert_eq!(within(b"*2\r\n$6\r\nSELECT\r\n$1"), b"", "half of one");
    }

    #[test]
    fn no_two_keys_have_one_place() {
        let keys: [&[u8]; 5] = [b"", b"a", b"\x01a", b"evenkeel", b"\xff\x00"];
        let mut seen = std::collections::BTreeSet::new();
        for database in [0, 1, 2, b'a', 127] {
            for key in keys {
                let place = place(database, key).into_owned();
                assert_eq!(at(&place), (database, key));
                assert!(seen.insert(place), "{key:?} of {database}");
            }
        }
    }

    #[test]
    fn keys_are_of_the_database_of_their_command() {
        let commands = [
            written(&["SET", "a", "1"]),
            written(&["SELECT", "3"]),
            written(&["MSET", "a", "1", "b", "2"]),
            written(&["MOVE", "c", "5"]),
            written(&["COPY", "d", "db", "DB", "7", "REPLACE"]),
            written(&["COPY", "d", "db", "REPLACE"]),
            written(&["SELECT", "0"]),
            written(&["DEL", "e"]),
        ];
        let mut found = Vec::new();
        for_each(&commands.concat(), |known| {
            let (database, command, arguments) = known.expect("it is known");
            let places = places(database, command, arguments);
            found.extend(places.iter().map(|place| {
                let (database, key) = at(place);
                (database, String::from_utf8_lossy(key).into_owned())
            }));
        });
        let found: Vec<(u8, &str)> = found.iter().map(|(it, key)| (*it, &**key)).collect();
        let expected = [
            (0, "a"),
            (3, "a"),
            (3, "b"),
            (3, "c"),
            (5, "c"),
            (3, "d"),
            (7, "db"),
            (3, "d"),
            (3, "db"),
            (0, "e"),
        ];
        assert_eq!(found, expected);
        assert_eq!(highest(&commands.concat()), 7);
    }

    #[test]
    fn a_number_that_is_none_is_nobodys_database() {
        for text in ["", "-1", "x", "256", "01", "1 "] {
            assert_eq!(number(text.as_bytes()), None, "{text}");
        }
        let mut unknown = 0;
        for_each(&written(&["SELECT", "x"]), |known| unknown += u32::from(known.is_none()));
        assert_eq!(unknown, 1, "whatever comes behind it may be anywhere");
    }
}
