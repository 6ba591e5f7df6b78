//! Commands that our table does not have, by what servers say of them (`COMMAND`).
//!
//! A newer server, or one with modules, has more commands than [`super::COMMANDS`]. What it says
//! of one is enough to have it done safely, or not at all: a command that only reads, and whose
//! keys are known, is a read. One that writes is done by one server, and the others get its
//! effects, since nobody says whether it would do the same at each of them. Whatever waits,
//! listens, administers, or does not say which keys it uses is refused.
//!
//! **Where they are known.** Those that may be done are noted for the process ([`lookup`]), so
//! that what a log or a stream of replication has of them can be read. Whether one is done for a
//! client is a question of its service: every server must have it.
//!
//! **Source**: the reply to `COMMAND` of Redis 7.0.15 (`addReplyCommandInfo`), and its flags.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::classes::Options;
use super::{Class, Command, Keys, Shape, refusals};
use crate::resp::reply::{elements, integer, payload};

/// What a server says of a command that our table does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    /// In lower case.
    name: String,
    arity: i8,
    class: Class,
    keys: Keys,
}

/// No name is longer.
const NAME_BYTES_MAX: usize = 64;
/// As many are noted of all servers that this process ever sees.
const PLACES: usize = 1024;
/// No server is heard about more commands than so many.
const COMMANDS_MAX: usize = 4096;

/// Deadlines of a hash's fields pass at each server by its own clock.
const OF_FIELDS: [&str; 6] = ["hexpire", "hexpireat", "hgetex", "hpexpire", "hpexpireat", "hsetex"];
/// It sets deadlines of keys in a way of its own.
const OF_KEYS: [&str; 1] = ["msetex"];
/// Flags of what cannot be done for several servers, or for a client of another connection.
const BARRED: [&str; 5] = ["admin", "blocking", "no_multi", "noscript", "pubsub"];

/// Those that were noted, each in the first free place behind that of its name.
static NOTED: [OnceLock<Command>; PLACES] = [const { OnceLock::new() }; PLACES];

/// What a server says (`COMMAND`) of commands that our table does not have, by their names. What
/// cannot be read is left out.
///
/// # Panics
/// When this is no whole reply that [`crate::resp::reply::ReplyScanner`] found.
pub fn read(reply: &[u8]) -> BTreeMap<String, Said> {
    let is_list = matches!(reply.first(), Some(b'*' | b'~'));
    let entries = is_list.then(|| elements(reply).take(COMMANDS_MAX));
    entries.into_iter().flatten().filter_map(said).collect()
}

/// What may be done with a command of which all servers say this.
///
/// # Errors
/// Why it is refused.
pub fn note(said: &Said) -> Result<&'static Command, &'static str> {
    if let Class::Refused(why) = said.class {
        return Err(why);
    }
    let is_it = |known: &Command| known.name == said.name;
    for place in places(said.name.as_bytes()) {
        let known = NOTED[place].get_or_init(|| Command {
            name: said.name.clone().leak(), // at most once for each place
            arity: said.arity,
            class: said.class,
            keys: said.keys,
            shape: Shape::Plain,
            merge: None,
            options: Options::Fixed,
        });
        if is_it(known) {
            let is_same =
                (known.arity, known.class, known.keys) == (said.arity, said.class, said.keys);
            return if is_same { Ok(known) } else { Err(refusals::NEWER_CHANGED) };
        }
    }
    Err(refusals::NEWER_MANY)
}

/// The command of this name that was noted, in upper or lower case.
pub fn lookup(name: &[u8]) -> Option<&'static Command> {
    let noted = places(name).map_while(|place| NOTED[place].get());
    let mut found = noted.filter(|it| it.name.as_bytes().eq_ignore_ascii_case(name));
    found.next()
}

/// Where a name is looked for, in upper or lower case.
fn places(name: &[u8]) -> impl Iterator<Item = usize> {
    let step = |hash: u32, byte: &u8| {
        (hash.rotate_left(5) ^ u32::from(byte | 0x20)).wrapping_mul(0x9E37_79B1)
    };
    let first = name.iter().take(NAME_BYTES_MAX).fold(0, step) as usize % PLACES;
    (0..PLACES).map(move |further| (first + further) % PLACES)
}

fn said(entry: &[u8]) -> Option<(String, Said)> {
    let parts: Vec<&[u8]> = elements(entry).take(16).collect();
    let name = str::from_utf8(payload(parts.first()?)?).ok()?.to_ascii_lowercase();
    let is_name = |byte: u8| byte.is_ascii_graphic() && byte != b'|';
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_name) {
        return None;
    }
    if super::lookup(name.as_bytes()).is_some() {
        return None;
    }
    let arity = i8::try_from(integer(parts.get(1)?)?).ok().filter(|arity| *arity != 0)?;
    let flags: BTreeSet<&[u8]> = elements(parts.get(2)?).filter_map(payload).collect();
    let keys = keys(&parts, &flags);
    let has_parts = parts.get(9).is_some_and(|parts| elements(parts).next().is_some());
    let class = match class(&name, &flags, has_parts) {
        Class::Refused(why) => Class::Refused(why),
        _ if keys.is_none() => Class::Refused(refusals::NEWER_KEYS),
        class => class,
    };
    let keys = keys.unwrap_or(Keys::None);
    Some((name.clone(), Said { name, arity, class, keys }))
}

fn class(name: &str, flags: &BTreeSet<&[u8]>, has_parts: bool) -> Class {
    let has = |flag: &&str| flags.contains(flag.as_bytes());
    match () {
        () if OF_FIELDS.contains(&name) => Class::Refused(refusals::FIELD_DEADLINES),
        () if OF_KEYS.contains(&name) => Class::Refused(refusals::KEY_DEADLINES),
        () if has_parts => Class::Refused(refusals::NEWER_PARTS),
        () if BARRED.iter().any(has) => Class::Refused(refusals::NEWER_BARRED),
        () if has(&"write") || has(&"may_replicate") => Class::Effects,
        () if has(&"readonly") => Class::Read,
        () => Class::Refused(refusals::NEWER_NEITHER),
    }
}

/// Where its keys are; `None` where that is not said exactly, or it has none.
fn keys(parts: &[&[u8]], flags: &BTreeSet<&[u8]>) -> Option<Keys> {
    let specs: Vec<&[u8]> = elements(parts.get(8)?).take(16).collect();
    let is_vague = |spec: &&[u8]| {
        let said = field(spec, "flags").into_iter().flat_map(elements).filter_map(payload);
        let mut said = said.map(<[u8]>::to_ascii_lowercase);
        said.any(|flag| flag == b"incomplete" || flag == b"not_key")
    };
    if specs.is_empty() || specs.iter().any(is_vague) {
        return None;
    }
    if !flags.contains(&b"movablekeys"[..]) {
        // Then these three numbers say it all.
        let number = |at: usize| parts.get(at).copied().and_then(integer);
        let first = u8::try_from(number(3)?).ok().filter(|first| *first > 0)?;
        let last = i8::try_from(number(4)?).ok()?;
        let step = u8::try_from(number(5)?).ok().filter(|step| *step > 0)?;
        return Some(Keys::Span { first, last, step });
    }
    let [spec] = specs[..] else { return None };
    let (begin, find) = (field(spec, "begin_search")?, field(spec, "find_keys")?);
    let is = |of: &[u8], kind: &str| field(of, "type").and_then(payload) == Some(kind.as_bytes());
    let number = |of: &[u8], name: &str| field(field(of, "spec")?, name).and_then(integer);
    let counts = is(begin, "index")
        && is(find, "keynum")
        && number(find, "keynumidx") == Some(0)
        && number(find, "firstkey") == Some(1)
        && number(find, "keystep") == Some(1);
    let at = u8::try_from(number(begin, "index")?).ok().filter(|at| counts && *at > 0)?;
    Some(Keys::Counted(at))
}

/// What a map has by this name.
fn field<'a>(map: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let all: Vec<&[u8]> = elements(map).take(32).collect();
    let mut pairs = all.chunks_exact(2);
    pairs.find(|pair| payload(pair[0]) == Some(name.as_bytes())).map(|pair| pair[1])
}
