//! What the options of a command make of it.

use super::keys::stream_option;
use super::{Class, Command, Local, Repeat, Rewrite, Time, Wait, Whole, integer, refusals};
use crate::resp::request::Arguments;

/// Which options can change the class of a command, or its shape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Options {
    /// None can.
    Fixed,
    Bitfield,
    Copy,
    Flush,
    /// Of `FUNCTION`: some subcommands change libraries, some show them.
    Function,
    Geoadd,
    Getex,
    /// Of `LPOP` and `RPOP`: a count changes the null.
    ListPop,
    Memory,
    Object,
    /// Of what tells of one server: some subcommands concern all of them.
    OneServer,
    Radius,
    /// Of `REPLICAOF`: what makes no replica changes nothing.
    Replicaof,
    Restore,
    Set,
    Sort,
    Xinfo,
    Xgroup,
    Xread,
    Zadd,
}

/// What is done with this command, its options considered. The number of its arguments is assumed
/// to be right ([`Command::accepts`]).
#[inline]
pub fn classify(command: &Command, arguments: Arguments<'_>) -> Class {
    match command.options {
        Options::Fixed | Options::ListPop => command.class,
        Options::Set if arguments.len() == 3 => command.class,
        _ => classify_by_options(command, arguments),
    }
}

fn classify_by_options(command: &Command, arguments: Arguments<'_>) -> Class {
    match command.options {
        Options::Fixed | Options::ListPop => command.class,
        Options::Bitfield => bitfield(arguments),
        Options::Copy => copy(arguments),
        Options::Flush => flush(command.class, arguments),
        Options::Function => function(command.class, arguments),
        Options::Geoadd => added(arguments, &["nx", "xx"], &["ch"]),
        Options::Getex => getex(arguments),
        Options::Memory if arguments.is(1, "usage") => read_subcommand(arguments, &["usage"]),
        Options::Memory | Options::OneServer => one_server(arguments),
        Options::Object => {
            read_subcommand(arguments, &["encoding", "freq", "idletime", "refcount"])
        }
        Options::Radius => radius(arguments),
        Options::Replicaof if arguments.is(1, "no") && arguments.is(2, "one") => {
            Class::Local(Local::NoReplica)
        }
        Options::Replicaof => command.class,
        Options::Restore => restore(arguments),
        Options::Set => set(arguments),
        Options::Sort => sort(command.class, arguments),
        Options::Xinfo => read_subcommand(arguments, &["consumers", "groups", "stream"]),
        Options::Xgroup => xgroup(arguments),
        Options::Xread => xread(command.class, arguments),
        Options::Zadd => added(arguments, &["nx", "xx", "gt", "lt", "incr"], &["ch"]),
    }
}

const SYNTAX: Class = Class::Refused(refusals::SYNTAX);

/// The index of the first of these words that stands at this place.
fn position(arguments: Arguments<'_>, at: usize, words: &[&str]) -> Option<usize> {
    words.iter().position(|word| arguments.is(at, word))
}

/// What is asked of one duplicate as it is, and what must be done at all.
fn one_server(arguments: Arguments<'_>) -> Class {
    match position(arguments, 1, &["purge", "reset"]) {
        Some(_) => Class::Local(Local::AskAll),
        None => Class::Local(Local::AskOne),
    }
}

fn read_subcommand(arguments: Arguments<'_>, words: &[&str]) -> Class {
    match position(arguments, 1, words) {
        Some(_) if arguments.len() > 2 => Class::Read,
        _ if arguments.is(1, "help") => Class::Local(Local::AskOne),
        _ => Class::Refused(refusals::SUBCOMMAND),
    }
}

/// What an option with a deadline counts; `Some(None)` is `PXAT`, which needs no rewriting.
fn deadline(arguments: Arguments<'_>, at: usize) -> Option<Option<Time>> {
    const TIMES: [Option<Time>; 4] =
        [Some(Time::Seconds), Some(Time::Millis), Some(Time::UnixSeconds), None];
    position(arguments, at, &["ex", "px", "exat", "pxat"]).map(|index| TIMES[index])
}

fn set(arguments: Arguments<'_>) -> Class {
    let mut seen = [false; 4];
    let mut expiry: Option<(usize, Option<Time>)> = None;
    let mut at = 3;
    while at < arguments.len() {
        if let Some(word) = position(arguments, at, &["nx", "xx", "get", "keepttl"]) {
            seen[word] = true;
        } else if let Some(time) = deadline(arguments, at)
            && expiry.is_none()
            && at + 1 < arguments.len()
        {
            expiry = Some((at, time));
            at += 1;
        } else {
            return SYNTAX;
        }
        at += 1;
    }
    let [nx, xx, get, keepttl] = seen;
    if (nx && xx) || (keepttl && expiry.is_some()) {
        return SYNTAX;
    }
    let repeat = if nx || xx || get || keepttl { Repeat::Once } else { Repeat::Idempotent };
    match expiry {
        Some((at, Some(time))) => Class::Rewritten(Rewrite::ExpiryOption(at, time), repeat),
        _ => Class::Write(repeat),
    }
}

fn getex(arguments: Arguments<'_>) -> Class {
    match (arguments.len(), deadline(arguments, 2)) {
        (2, _) => Class::Read,
        (3, _) if arguments.is(2, "persist") => Class::Write(Repeat::Partial),
        (4, Some(None)) => Class::Write(Repeat::Once),
        (4, Some(Some(time))) => Class::Rewritten(Rewrite::ExpiryOption(2, time), Repeat::Once),
        _ => SYNTAX,
    }
}

/// `ZADD` and `GEOADD`: words before the first score may look at what is there.
fn added(arguments: Arguments<'_>, looking: &[&str], others: &[&str]) -> Class {
    let mut repeat = Repeat::Partial;
    for at in 2..arguments.len() {
        if position(arguments, at, looking).is_some() {
            repeat = Repeat::Once;
        } else if position(arguments, at, others).is_none() {
            break;
        }
    }
    Class::Write(repeat)
}

fn bitfield(arguments: Arguments<'_>) -> Class {
    let mut class = Class::Read;
    let mut at = 2;
    while at < arguments.len() {
        let length = match position(arguments, at, &["get", "set", "incrby", "overflow"]) {
            Some(0) => 3,
            Some(1) => {
                if class == Class::Read {
                    class = Class::Write(Repeat::Partial);
                }
                4
            }
            Some(2) => {
                class = Class::Write(Repeat::Once);
                4
            }
            Some(_) => 2,
            None => return SYNTAX,
        };
        at += length;
    }
    if at == arguments.len() { class } else { SYNTAX }
}

fn copy(arguments: Arguments<'_>) -> Class {
    let mut at = 3;
    while at < arguments.len() {
        at += match position(arguments, at, &["replace", "db"]) {
            Some(0) => 1,
            Some(_) if arguments.get(at + 1).is_none() => return SYNTAX,
            Some(_) if integer(arguments.at(at + 1)).is_none() => {
                return Class::Refused(refusals::NOT_AN_INTEGER);
            }
            Some(_) => 2,
            None => return SYNTAX,
        };
    }
    Class::Write(Repeat::Once)
}

fn flush(plain: Class, arguments: Arguments<'_>) -> Class {
    let is_known = || position(arguments, 1, &["sync", "async"]).is_some();
    if arguments.len() == 1 || (arguments.len() == 2 && is_known()) { plain } else { SYNTAX }
}

/// Which arguments a subcommand has is looked at by who does it.
fn function(plain: Class, arguments: Arguments<'_>) -> Class {
    match position(arguments, 1, &["load", "delete", "flush", "restore", "list", "dump"]) {
        Some(0..=3) => Class::Whole(Whole::Libraries { changes: true }),
        Some(_) => Class::Whole(Whole::Libraries { changes: false }),
        None => plain,
    }
}

fn restore(arguments: Arguments<'_>) -> Class {
    let mut repeat = Repeat::Once;
    let mut is_absolute = arguments.get(2).and_then(integer) == Some(0);
    let mut at = 4;
    while at < arguments.len() {
        match position(arguments, at, &["replace", "absttl", "idletime", "freq"]) {
            Some(0) => repeat = Repeat::Idempotent,
            Some(1) => is_absolute = true,
            Some(_) => at += 1,
            None => return SYNTAX,
        }
        at += 1;
    }
    if is_absolute { Class::Write(repeat) } else { Class::Rewritten(Rewrite::Restore, repeat) }
}

fn radius(arguments: Arguments<'_>) -> Class {
    let stores = |at| position(arguments, at, &["store", "storedist"]).is_some();
    match (5..arguments.len()).any(stores) {
        true => Class::Write(Repeat::Once),
        false => Class::Read,
    }
}

/// `SORT` and `SORT_RO`.
fn sort(plain: Class, arguments: Arguments<'_>) -> Class {
    let (mut class, mut has_patterns) = (Class::Read, false);
    let mut at = 2;
    while at < arguments.len() {
        let value = arguments.get(at + 1);
        at += match position(arguments, at, &["asc", "desc", "alpha", "limit", "by", "get"]) {
            Some(0..=2) => 1,
            Some(3) => 3,
            Some(4) if value.is_some_and(|pattern| !pattern.contains(&b'*')) => 2,
            Some(5) if value == Some(b"#") => 2,
            Some(_) if value.is_some() => {
                has_patterns = true;
                2
            }
            None if arguments.is(at, "store") && plain != Class::Read && value.is_some() => {
                class = Class::Write(Repeat::Once);
                2
            }
            _ => return SYNTAX,
        };
    }
    match has_patterns {
        _ if at != arguments.len() => SYNTAX,
        true => Class::Whole(Whole::Sort { stores: class != Class::Read }),
        false => class,
    }
}

/// `XREAD` and `XREADGROUP`.
fn xread(plain: Class, arguments: Arguments<'_>) -> Class {
    let (mut class, mut at) = (plain, 1);
    while at < arguments.len() {
        match position(arguments, at, &["streams", "block", "count", "group", "noack"]) {
            // What was delivered before is there at once.
            Some(0) if class == Class::Waits(Wait::Group) && !is_of_new(arguments, at) => {
                return plain;
            }
            Some(0) => return class,
            Some(1) if plain != Class::Read => (class, at) = (Class::Waits(Wait::Group), at + 2),
            Some(1) => (class, at) = (Class::Waits(Wait::Stream), at + 2),
            Some(3 | 4) if plain == Class::Read => return SYNTAX,
            Some(_) => at += stream_option(arguments, at),
            None => return SYNTAX,
        }
    }
    SYNTAX
}

/// Whether all ids of `XREADGROUP` are `>`, behind this word.
fn is_of_new(arguments: Arguments<'_>, streams: usize) -> bool {
    let first = streams + 1 + (arguments.len() - streams - 1) / 2;
    (first..arguments.len()).all(|at| arguments.is(at, ">"))
}

/// All servers have the same entries at this place in the order of writes, so `$` is the same id.
fn xgroup(arguments: Arguments<'_>) -> Class {
    let words = ["create", "setid", "destroy", "createconsumer", "delconsumer"];
    match position(arguments, 1, &words) {
        Some(_) if arguments.len() > 3 => Class::Write(Repeat::Once),
        _ if arguments.is(1, "help") => Class::Local(Local::AskOne),
        _ => Class::Refused(refusals::SUBCOMMAND),
    }
}
