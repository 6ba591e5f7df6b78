//! `COMMAND`: what a server says of its commands, cut to those that are taken here.
//!
//! Clients ask for it when they connect (redis-cli for its hints, cluster clients for the places
//! of keys). A server knows more of a command than our table does, so its words are passed on; a
//! command that is refused here, or that we do not know, is left out of them. Where no server
//! answers, the table says what clients need: number of arguments, whether it writes, its keys.

use super::{COMMANDS, Class, Command, Keys, Whole, lookup};
use crate::resp::encode;
use crate::resp::reply::{elements, payload};

/// What was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Described {
    /// `COMMAND`, `COMMAND INFO`: all commands.
    All,
    /// `COMMAND INFO name…`: a null in the place of what is not taken.
    Named,
    /// `COMMAND DOCS`: names and what is said of them, in turn.
    Docs,
    /// `COMMAND LIST`
    Names,
    /// `COMMAND COUNT`, from the answer to `COMMAND LIST`.
    Count,
}

/// Whether a command of this name, or one of its subcommands (`config|get`), is taken by our table.
pub fn is_taken(name: &[u8]) -> bool {
    let container = name.split(|&byte| byte == b'|').next().unwrap_or_default();
    lookup(container).is_some_and(|it| !matches!(it.class, Class::Refused(_)))
}

/// Writes what is left of a server's answer, in RESP3: what our table takes, and what is `newer`.
///
/// # Panics
/// When this is no whole reply that [`crate::resp::reply::ReplyScanner`] found.
pub fn cut(reply: &[u8], described: Described, newer: impl Fn(&[u8]) -> bool, out: &mut Vec<u8>) {
    let is_own = |element: &[u8]| payload(element).is_some_and(|it| is_taken(it) || newer(it));
    let names_own = |entry: &[u8]| elements(entry).next().is_some_and(is_own);
    let all: Vec<&[u8]> = elements(reply).collect();
    let kept: Vec<&[u8]> = match described {
        Described::All => all.into_iter().filter(|entry| names_own(entry)).collect(),
        Described::Named => {
            let or_null = |entry| if names_own(entry) { entry } else { &b"_\r\n"[..] };
            all.into_iter().map(or_null).collect()
        }
        Described::Docs => {
            all.chunks_exact(2).filter(|pair| is_own(pair[0])).flatten().copied().collect()
        }
        Described::Names => all.into_iter().filter(|it| is_own(it)).collect(),
        Described::Count => {
            let is_whole = |name: &[u8]| !payload(name).unwrap_or_default().contains(&b'|');
            all.into_iter().filter(|it| is_own(it) && is_whole(it)).collect()
        }
    };
    if described == Described::Count {
        return encode::integer(out, kept.len() as i64);
    }
    let tag = reply.first().copied().unwrap_or(b'*');
    encode::counted(out, tag, if tag == b'%' { kept.len() / 2 } else { kept.len() });
    kept.into_iter().for_each(|element| out.extend_from_slice(element));
}

/// The same from our own table, of the commands that are named, or of all.
pub fn own(described: Described, names: &[&[u8]], out: &mut Vec<u8>) {
    let taken = COMMANDS.iter().filter(|command| is_taken(command.name.as_bytes()));
    match described {
        Described::All => {
            encode::array(out, taken.clone().count());
            taken.for_each(|command| entry(command, out));
        }
        Described::Named => {
            encode::array(out, names.len());
            for name in names {
                match lookup(name).filter(|command| is_taken(command.name.as_bytes())) {
                    Some(command) => entry(command, out),
                    None => out.extend_from_slice(b"_\r\n"),
                }
            }
        }
        Described::Docs => out.extend_from_slice(b"%0\r\n"),
        Described::Names => {
            encode::array(out, taken.clone().count());
            taken.for_each(|command| encode::bulk(out, command.name.as_bytes()));
        }
        Described::Count => encode::integer(out, taken.count() as i64),
    }
}

/// Name, arguments, flags, first key, last key, step; categories, hints, keys and subcommands are
/// left empty.
fn entry(command: &Command, out: &mut Vec<u8>) {
    encode::array(out, 10);
    encode::bulk(out, command.name.as_bytes());
    encode::integer(out, command.arity.into());
    let is_movable = !matches!(command.keys, Keys::None | Keys::Span { .. });
    let writes = match command.class {
        Class::Effects if command.keys == Keys::Script => None,
        Class::Write(_) | Class::Rewritten(..) | Class::Waits(_) | Class::Effects => Some("write"),
        Class::Whole(Whole::Flush | Whole::Sort { stores: true }) => Some("write"),
        Class::Read | Class::Whole(_) => Some("readonly"),
        Class::Local(_) | Class::Refused(_) => None,
    };
    let flags = [writes, is_movable.then_some("movablekeys")];
    encode::counted(out, b'~', flags.iter().flatten().count());
    flags.iter().flatten().for_each(|flag| encode::simple(out, flag));
    let places: [i64; 3] = match command.keys {
        Keys::Span { first, last, step } => [first.into(), last.into(), step.into()],
        Keys::Stored | Keys::Sort | Keys::Radius => [1, 1, 1],
        Keys::None | Keys::Counted(_) | Keys::Script | Keys::Streams => [0; 3],
    };
    places.into_iter().for_each(|place| encode::integer(out, place));
    out.extend_from_slice(b"~0\r\n*0\r\n*0\r\n*0\r\n");
}
