//! `CLIENT PAUSE`: what it says, and which commands are kept back.
//!
//! What greets a server (`AUTH`, `HELLO`) and `CLIENT UNPAUSE` pass in every pause. Redis keeps
//! these back too while all commands are: who has paused for too long can then only wait.
//!
//! **Source**: `clientCommand` and `processCommand` of Redis 7.0.15.

use std::time::Duration;

use super::commands::{Class, Command, Local, Refusal, Wait, Whole, integer};
use super::request::Arguments;

/// What is kept back; the later one includes the earlier.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kept {
    /// What changes data or tells others something: writes, scripts, messages.
    Writes,
    /// Every command.
    All,
}

const MODE: Refusal = Refusal("ERR CLIENT PAUSE mode must be WRITE or ALL");
const NOT_A_NUMBER: Refusal = Refusal("ERR timeout is not an integer or out of range");
const NEGATIVE: Refusal = Refusal("ERR timeout is negative");

/// Of `CLIENT PAUSE milliseconds [WRITE|ALL]`: what is kept back, and for how long.
///
/// # Errors
/// In Redis's words.
pub fn parse(arguments: Arguments<'_>) -> Result<(Kept, Duration), Refusal> {
    let kept = match arguments.len() {
        3 => Kept::All,
        _ if arguments.is(3, "write") => Kept::Writes,
        _ if arguments.is(3, "all") => Kept::All,
        _ => return Err(MODE),
    };
    let millis = arguments.get(2).and_then(integer).ok_or(NOT_A_NUMBER)?;
    let millis = u64::try_from(millis).map_err(|_| NEGATIVE)?;
    Ok((kept, Duration::from_millis(millis)))
}

/// Whether a command is kept back. `transaction`: between `MULTI` and `EXEC`, whether something
/// that was queued writes; there `EXEC` alone does something.
pub fn keeps(
    kept: Kept,
    (command, class): (&Command, Class),
    arguments: Arguments<'_>,
    transaction: Option<bool>,
) -> bool {
    let passes = match class {
        Class::Local(Local::Auth | Local::Hello | Local::Relayed) => true,
        Class::Local(Local::Client) => arguments.is(1, "unpause"),
        _ => false,
    };
    match (kept, transaction) {
        _ if passes => false,
        (Kept::All, _) => true,
        (Kept::Writes, Some(writes)) => writes && class == Class::Local(Local::Exec),
        (Kept::Writes, None) => writes(command, class),
    }
}

/// Whether it writes, as Redis sees it: to publish counts, and `PFCOUNT` may keep its estimate with
/// the key.
pub fn writes(command: &Command, class: Class) -> bool {
    match class {
        Class::Read => command.name == "pfcount",
        Class::Write(_) | Class::Rewritten(..) | Class::Effects => true,
        Class::Waits(wait) => wait != Wait::Stream,
        Class::Whole(whole) => matches!(
            whole,
            Whole::Flush | Whole::Sort { stores: true } | Whole::Libraries { changes: true }
        ),
        Class::Local(local) => matches!(local, Local::Publish(_)),
        Class::Refused(_) => false,
    }
}
