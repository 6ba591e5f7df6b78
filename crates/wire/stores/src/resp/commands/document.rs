//! The table of commands for people: `docs/duplicates-commands.md`, which `cargo xtask commands`
//! writes and a test compares.
//!
//! It is made of what decides about a command: its row, what [`classify`] makes of its options, and
//! the errors that clients get. So it says of every command what is done with it.

use std::fmt::Write as _;

use super::refusals::{CLUSTER, SUBCOMMANDS};
use super::{COMMANDS, Class, Command, Local, Rewrite, Time, Wait, Whole, classify, lookup};
use crate::resp::encode;
use crate::resp::request::{Limits, RequestParser};

/// Commands whose options decide what is done with them: one line for each of these ways.
const BY_OPTIONS: &[&str] = &[
    "BITFIELD key GET type offset",
    "BITFIELD key SET type offset value",
    "FUNCTION DUMP",
    "FUNCTION KILL",
    "FUNCTION LOAD code",
    "GEORADIUS key x y radius m",
    "GEORADIUS key x y radius m STORE key",
    "GEORADIUSBYMEMBER key member radius m",
    "GEORADIUSBYMEMBER key member radius m STORE key",
    "GETEX key",
    "GETEX key EX 10",
    "GETEX key PXAT 1700000000000",
    "LATENCY HISTORY event",
    "LATENCY RESET",
    "MEMORY PURGE",
    "MEMORY STATS",
    "MEMORY USAGE key",
    "OBJECT ENCODING key",
    "OBJECT HELP",
    "REPLICAOF host port",
    "REPLICAOF NO ONE",
    "RESTORE key 0 value",
    "RESTORE key 1000 value",
    "SET key value",
    "SET key value EX 10",
    "SLAVEOF host port",
    "SLAVEOF NO ONE",
    "SLOWLOG GET",
    "SLOWLOG RESET",
    "SORT key",
    "SORT key BY pattern*",
    "SORT key BY pattern* STORE key",
    "SORT key STORE key",
    "SORT_RO key",
    "SORT_RO key BY pattern*",
    "XGROUP CREATE key group $",
    "XGROUP HELP",
    "XINFO HELP",
    "XINFO STREAM key",
    "XREAD BLOCK 0 STREAMS key $",
    "XREAD STREAMS key 0",
    "XREADGROUP GROUP group consumer BLOCK 0 STREAMS key >",
    "XREADGROUP GROUP group consumer STREAMS key >",
];

const HEAD: &str = "\
# Commands of duplicates

What becomes of each command of Redis 7.0, and of those of Evenkeel (`EK.…`), before duplicates
with `store = \"redis\"`. `cargo xtask commands` makes this page of the table by which Evenkeel
decides, and a test compares the two. [duplicates.md](duplicates.md) explains, and says what
becomes of [newer commands](duplicates.md#commands-that-are-newer-than-evenkeel).

| class | what is done |
|---|---|
| read | one duplicate or several answer, by `consistency` and `read_copies` \
    ([how](duplicates.md#consistency-of-reads)) |
| everywhere | all duplicates do it, in one order ([how](duplicates.md#writes)) |
| effects | one duplicate does it, the others get what it did \
    ([how](duplicates.md#scripts-functions-and-consumer-groups)) |
| front | Evenkeel does it itself, or asks duplicates past the order of writes \
    ([how](duplicates.md#commands-that-the-process-carries-out-itself)) |
| refused | an error of these words, behind `ERR` (of `cluster` more is said here than there) |
";

/// The whole page.
pub(in crate::resp) fn page() -> String {
    let mut rows: Vec<(String, &'static str, String)> = Vec::new();
    for command in COMMANDS {
        let lines = lines_of(command);
        rows.extend(lines.iter().map(|line| row(line)));
        if lines.is_empty() {
            let (class, how) = way(command, command.class);
            rows.push((command.name.to_ascii_uppercase(), class, how));
        }
    }
    for it in SUBCOMMANDS {
        let why: Vec<&str> = it.why.iter().map(|why| reason(why)).collect();
        let name = |name| format!("{} {name}", it.of).to_ascii_uppercase();
        rows.extend(it.names.iter().map(|it| (name(it), "refused", why.join("; or: "))));
    }
    rows.sort();
    let (refused, taken): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.1 == "refused");
    let mut page = HEAD.to_owned();
    page.push_str("\n## Taken\n\n| command | class | how |\n|---|---|---|\n");
    for (name, class, how) in taken {
        let _ = writeln!(page, "| `{name}` | {class} | {how} |");
    }
    page.push_str("\n## Refused\n\n| command | why, and what to do instead |\n|---|---|\n");
    for (name, _, why) in refused {
        let _ = writeln!(page, "| `{name}` | {why} |");
    }
    page
}

fn lines_of(command: &Command) -> Vec<&'static str> {
    let name = |line: &&str| line.split(' ').next().map(str::to_ascii_lowercase);
    BY_OPTIONS.iter().copied().filter(|line| name(line).as_deref() == Some(command.name)).collect()
}

fn row(line: &str) -> (String, &'static str, String) {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    let (mut bytes, mut parser) = (Vec::new(), RequestParser::new(Limits::MAX));
    encode::command(&mut bytes, &words);
    let known = lookup(words[0]).filter(|_| matches!(parser.parse(&bytes), Ok(Some(_))));
    let Some(command) = known else { return (line.to_owned(), "", String::new()) };
    let (class, how) = way(command, classify(command, parser.arguments(&bytes)));
    (line.to_owned(), class, how)
}

/// The class of a command for people, and how it is done.
pub(in crate::resp) fn way(command: &Command, class: Class) -> (&'static str, String) {
    let (name, how) = match class {
        Class::Read => ("read", ""),
        Class::Write(_) => ("everywhere", ""),
        Class::Rewritten(rewrite, _) => ("everywhere", rewritten(rewrite)),
        Class::Effects => ("effects", ""),
        Class::Waits(wait) => ("front", waits(wait)),
        Class::Local(local) => ("front", answered(local)),
        Class::Whole(whole) => ("front", of_all(whole)),
        Class::Refused(why) => ("refused", reason(why)),
    };
    let more = match (class, command.merge.is_some()) {
        (Class::Refused(CLUSTER), _) => ": it is done at the address of `cluster`",
        (_, true) => "in parts, where keys are in several partitions",
        _ => "",
    };
    (name, [how, more].concat())
}

/// The words of an error.
fn reason(error: &str) -> &str {
    error.strip_prefix("ERR ").unwrap_or(error)
}

const fn rewritten(rewrite: Rewrite) -> &'static str {
    match rewrite {
        Rewrite::Expire(_) => "as `PEXPIREAT`",
        Rewrite::SetWithExpiry(_) => "as `SET … PXAT`",
        Rewrite::ExpiryOption(_, Time::UnixSeconds | Time::Seconds | Time::Millis) => "with `PXAT`",
        Rewrite::Restore => "with `ABSTTL`",
        Rewrite::StreamAdd => "with an id instead of `*`, and `=` instead of `~`",
        Rewrite::StreamTrim => "with `=` instead of `~`",
        Rewrite::Pop => "as `SREM` of what one duplicate has drawn; within `MULTI` by effects",
    }
}

const fn waits(wait: Wait) -> &'static str {
    match wait {
        Wait::List | Wait::SortedSet => "waits; what it takes is taken everywhere",
        Wait::Stream => "waits; it is a strong read that is repeated",
        Wait::Group => "waits; each try is done by effects",
    }
}

const fn answered(local: Local) -> &'static str {
    match local {
        Local::AskAll => "all duplicates do it",
        Local::AskOne => "one duplicate answers",
        Local::Command | Local::Config | Local::Info => "by what duplicates say of themselves",
        Local::Function => "all duplicates are asked",
        Local::Publish(_) => "to those who listen at this service",
        _ => "it answers",
    }
}

const fn of_all(whole: Whole) -> &'static str {
    match whole {
        Whole::Flush | Whole::Libraries { changes: true } => {
            "all duplicates of all partitions, at one place in the order"
        }
        Whole::Libraries { changes: false } => "one duplicate answers",
        Whole::Count | Whole::Keys | Whole::Random => "one duplicate of each partition answers",
        Whole::Scan => "one duplicate of each partition, one after the other",
        Whole::ScanPart => "one duplicate, to which the cursor belongs",
        Whole::Sort { stores: false } => "a read, where all keys are in one partition",
        Whole::Sort { stores: true } => "everywhere, where all keys are in one partition",
    }
}
