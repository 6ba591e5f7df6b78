//! What every command of Redis 7.0 does, and whether it may be duplicated.
//!
//! A command that is sent to several servers must do the same at each of them. [`lookup`] finds
//! what is known of a command by its name, [`classify`] looks at its options too, and [`keys`] says
//! which arguments are keys. The classes:
//!
//! * [`Class::Read`]: changes nothing; any server may answer.
//! * [`Class::Write`]: the same at every server that has the same data.
//! * [`Class::Rewritten`]: the same once [`super::rewrite`] has made it so: relative deadlines
//!   become absolute, stream ids get their time here.
//! * [`Class::Waits`]: who stands before the servers waits, and tries it when a key was written.
//! * [`Class::Effects`]: depends on time, chance or the server: one server does it, and the others
//!   get what it has done ([`super::replication`]).
//! * [`Class::Local`]: answered by who stands before the servers.
//! * [`Class::Whole`]: about more than the keys that it names; what is done depends on where keys
//!   are ([`Whole`]). Where the keys of another command are in several places, it may be done in
//!   parts ([`Command::merge`]).
//! * [`Class::Refused`]: differs between servers, or needs all of them. The text says which, and
//!   what to do instead.
//!
//! **What may be repeated** ([`Repeat`]). A server that was away gets the writes after its
//! watermark again, some of which it has done. Whether that ends in the same state is a question
//! about sequences, not about single commands. *State S is what writes 1..n made of a state; writes
//! m..n are done to S again; is the result S?*
//!
//! Yes when every write puts or removes **whole values** without looking (`SET`, `DEL`): of each
//! key the last write decides, in both runs.
//!
//! Almost when writes put or remove **parts** (`HSET`, `SREM`, `SETBIT`): the argument holds for
//! each part, as long as values appear and vanish by writes of the sequence alone. Two things break
//! it. A deadline: `HSET k a 1`, the deadline of `k` passes, `HSET k b 2` leaves `{b}`; repeated it
//! leaves `{a, b}`. And a write that failed: `HSET k g 1`, `HDEL k g` leave a `{f}` as it was, so
//! that `SADD k x` fails; once `HDEL k f` has ended `k`, the same four end in a set. Hence
//! [`Repeat::Partial`]. Deadlines themselves are never repeated: a value that loses its last part
//! loses its deadline unseen.
//!
//! No when a write looks at what is there (`INCR`, `SETNX`, `RPUSH`, `RENAME`, `SUNIONSTORE`).
//!
//! What servers have beyond this table is in [`newer`].
//!
//! **Source**: `COMMAND` of Redis 7.0.15, with which the tests compare each entry.

mod classes;
pub mod described;
#[cfg(test)]
pub(super) mod document;
mod keys;
pub mod newer;
pub mod refusals;
mod table;

use super::encode;
use super::reply::Shape;
use super::request::{Arguments, Limits, RequestParser};
use classes::Options;
pub use classes::classify;
pub(super) use keys::stream_option;
pub use keys::{KeyIndices, Keys, keys};
pub use refusals::NOT_IN_MULTI;
pub use table::{COMMANDS, lookup};

/// What is known of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Command {
    /// Its name in lower case.
    pub name: &'static str,
    /// How many arguments it takes, its name included; negative: so many or more.
    pub arity: i8,
    /// What it does when its options do not change that: ask [`classify`].
    pub class: Class,
    /// Where its keys are.
    pub keys: Keys,
    /// What its reply is for clients of RESP2: ask [`shape`].
    pub shape: Shape,
    /// How the replies to its parts become one, where its keys may be asked for in parts.
    pub merge: Option<Merge>,
    options: Options,
}

impl Command {
    /// Whether Redis refuses it within MULTI.
    pub fn is_barred_in_multi(&self) -> bool {
        matches!(self.name, "psync" | "save" | "shutdown" | "sync")
    }

    /// Whether it takes so many arguments, its name included.
    #[inline]
    pub fn accepts(&self, arguments: usize) -> bool {
        let least = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { arguments >= least } else { arguments == least }
    }
}

/// What is done with a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Any server that is up to date enough may answer.
    Read,
    /// It goes to every server as it is.
    Write(Repeat),
    /// It goes to every server in the form that [`super::rewrite::rewrite`] gives it; that form may
    /// be repeated so.
    Rewritten(Rewrite, Repeat),
    /// Waits until it finds something; [`super::waiting`] says what is tried.
    Waits(Wait),
    /// One server does it, the others get its effects.
    Effects,
    /// Answered here.
    Local(Local),
    /// It is about more than the keys that it names.
    Whole(Whole),
    /// Answered with this error.
    Refused(&'static str),
}

/// What a command waits for. A pop that is tried must not be done twice ([`Repeat::Once`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// An element of a list, which it takes.
    List,
    /// A member of a sorted set, which it takes.
    SortedSet,
    /// Entries of streams, which stay.
    Stream,
    /// Entries for a consumer of a group, which one server delivers.
    Group,
}

/// Whether a suffix of the writes may be done again; argued in the [module](self)'s documentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeat {
    /// It puts or removes whole values without looking: it may be repeated whenever all writes
    /// after it are repeated too, in order.
    Idempotent,
    /// It puts or removes parts of values without looking: it may be repeated like that as long as
    /// the service sets no deadlines and no write of the suffix was answered with an error. Where
    /// that is not known, take it for [`Once`](Self::Once).
    Partial,
    /// What it does depends on what is there: it must not be done twice.
    Once,
}

/// What is about more than the keys that it names, or goes on where an earlier command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// `FLUSHALL`, `FLUSHDB`: removes every key.
    Flush,
    /// `FUNCTION`: every server has the same libraries.
    Libraries {
        /// It changes them (`LOAD`, `DELETE`, `FLUSH`, `RESTORE`); else it shows them.
        changes: bool,
    },
    /// `KEYS`
    Keys,
    /// `DBSIZE`
    Count,
    /// `RANDOMKEY`
    Random,
    /// `SCAN`: its cursor is of one server.
    Scan,
    /// `HSCAN`, `SSCAN`, `ZSCAN`: the same within one key.
    ScanPart,
    /// `SORT` and `SORT_RO` with patterns: they read keys that they do not name.
    Sort {
        /// It has `STORE`.
        stores: bool,
    },
}

/// How the replies to the parts of a command become one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// All are the same.
    Same,
    /// They are numbers, which are added.
    Sum,
    /// They are arrays with one value for each key.
    Values,
}

/// How a command becomes one that does the same everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rewrite {
    /// `EXPIRE`, `PEXPIRE`, `EXPIREAT` → `PEXPIREAT`.
    Expire(Time),
    /// `SETEX`, `PSETEX` → `SET … PXAT`.
    SetWithExpiry(Time),
    /// The option at this index, and the number after it, → `PXAT`: of `SET` and `GETEX`.
    ExpiryOption(usize, Time),
    /// `RESTORE` with a time to live → with `ABSTTL`.
    Restore,
    /// `XADD key *` → `XADD key ms-*`, `MAXLEN ~` → `MAXLEN =`.
    StreamAdd,
    /// `XTRIM key MAXLEN ~` → `MAXLEN =`.
    StreamTrim,
    /// `SPOP` → `SREM` of the winners, which a server is asked for first: see
    /// [`super::rewrite::pop_question`].
    Pop,
}

/// What the number of a deadline counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// Seconds since 1970.
    UnixSeconds,
}

/// What is answered without asking a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "each is the command of that name")]
pub enum Local {
    Acl,
    /// Done by every duplicate as it is; the first answer counts.
    AskAll,
    /// Answered by one duplicate as it is.
    AskOne,
    Auth,
    /// `SUBSCRIBE`, `PSUBSCRIBE`, `SSUBSCRIBE`.
    Subscribe(Channels),
    /// The same with `UN`.
    Unsubscribe(Channels),
    /// `PUBLISH`, `SPUBLISH`.
    Publish(Channels),
    Pubsub,
    Client,
    Command,
    Config,
    Discard,
    Echo,
    Exec,
    /// `FUNCTION` as far as it is about a server and not about its libraries.
    Function,
    Hello,
    Info,
    Module,
    Monitor,
    Multi,
    /// `REPLICAOF NO ONE`: nobody is one.
    NoReplica,
    Ping,
    Quit,
    Reset,
    Role,
    Script,
    Select,
    Time,
    Wait,
    Unwatch,
    Watch,
    /// `EK.RELAYED`: another process passes a client on, which has this address.
    Relayed,
    /// `EK.SESSION`: takes the position in the writes that another connection had.
    Session,
    /// `EK.TOKEN`: says this connection's position in the writes.
    Token,
}

/// Names of one kind that messages are published to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Channels {
    /// Channels.
    Plain,
    /// Patterns of channels.
    Patterns,
    /// Channels of Redis Cluster's shards, which are others.
    Sharded,
}

/// Why a command is not done: the whole error, its code first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub &'static str);

/// What the reply to this command is for clients of RESP2, see [`super::reply::down_convert`].
pub fn shape(command: &Command, arguments: Arguments<'_>) -> Shape {
    match command.options {
        // Asked for several of nothing they answer with no array, not with no string.
        Options::ListPop if arguments.len() > 2 => Shape::NullArray,
        _ => command.shape,
    }
}

/// The command of this name, in upper or lower case: of our table, or one that servers have said.
#[inline]
pub fn known(name: &[u8]) -> Option<&'static Command> {
    lookup(name).or_else(|| newer::lookup(name))
}

/// Takes apart commands that were taken, one after the other; `None` is one that is not known, or
/// no command.
pub fn for_each(mut rest: &[u8], mut act: impl FnMut(Option<(&'static Command, Arguments<'_>)>)) {
    let mut parser = RequestParser::new(Limits::MAX);
    while !rest.is_empty() {
        let Ok(Some(length)) = parser.parse(rest) else { return act(None) };
        let arguments = parser.arguments(rest);
        let known = arguments.get(0).and_then(known);
        act(known.map(|command| (command, arguments)));
        rest = &rest[length..];
    }
}

/// Bytes of a client that an error repeats.
const REPEATED_BYTES_MAX: usize = 128;

/// Writes the error for a command that is not known, in Redis's words.
pub fn unknown(arguments: Arguments<'_>, out: &mut Vec<u8>) {
    let quoted = |text: &mut Vec<u8>, bytes: &[u8], room: usize| {
        text.push(b'\'');
        // Redis prints C strings: a NUL ends them.
        let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
        text.extend_from_slice(&bytes[..end.min(room)]);
        text.push(b'\'');
    };
    let mut text = b"ERR unknown command ".to_vec();
    quoted(&mut text, arguments.get(0).unwrap_or_default(), REPEATED_BYTES_MAX);
    text.extend_from_slice(b", with args beginning with: ");
    let start = text.len();
    for argument in arguments.iter().skip(1) {
        let used = text.len() - start;
        if used >= REPEATED_BYTES_MAX {
            break;
        }
        quoted(&mut text, argument, REPEATED_BYTES_MAX - used);
        text.push(b' ');
    }
    encode::line(out, b'-', &text);
}

/// Writes the error for a command with too few or too many arguments, in Redis's words.
pub fn wrong_arity(command: &Command, out: &mut Vec<u8>) {
    let name = command.name;
    encode::error(out, &format!("ERR wrong number of arguments for '{name}' command"));
}

/// Writes the error for a subcommand that its command does not have, in Redis's words.
pub fn unknown_subcommand(command: &str, came: &[u8], out: &mut Vec<u8>) {
    let came = String::from_utf8_lossy(&came[..came.len().min(REPEATED_BYTES_MAX)]);
    let help = command.to_ascii_uppercase();
    encode::error(out, &format!("ERR unknown subcommand '{came}'. Try {help} HELP."));
}

/// A whole number in the one way that Redis takes it: no `+`, no leading zeros.
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let is_canonical = match digits {
        [b'0'] => digits.len() == bytes.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    if !is_canonical {
        return None;
    }
    str::from_utf8(bytes).ok()?.parse().ok()
}
