//! Commands that wait until there is something: what they wait for, how long, and what is tried.
//!
//! The list of them is in [`super::commands`] ([`Class::Waits`](super::commands::Class::Waits)).
//! Redis does not let them wait between `MULTI` and `EXEC`, and so a try of a pop is the command
//! itself in a transaction. A try of `XREAD` is a read without `BLOCK`. When a key has been
//! written, a try is of this key alone, as Redis serves who waits: others may have another type.

use std::time::Duration;

use super::commands::{Command, Refusal, Wait, keys, stream_option};
use super::encode;
use super::request::{Arguments, Limits, RequestParser};

/// How long a command waits; `None` = for ever.
///
/// # Errors
/// What Redis says of a time that is none, or of words it does not know.
pub fn timeout(command: &Command, arguments: Arguments<'_>) -> Result<Option<Duration>, Refusal> {
    const SYNTAX: Refusal = Refusal(super::commands::refusals::SYNTAX);
    let is_end = |at: usize| arguments.is(at, "left") || arguments.is(at, "right");
    match command.name {
        "xread" => {
            let at = (1..arguments.len()).step_by(2).find(|&at| arguments.is(at, "block"));
            millis(at.and_then(|at| arguments.get(at + 1)).ok_or(SYNTAX)?)
        }
        "xreadgroup" => {
            let mut at = 1;
            while at < arguments.len() && !arguments.is(at, "block") {
                at += stream_option(arguments, at);
            }
            millis(arguments.get(at + 1).ok_or(SYNTAX)?)
        }
        "blmove" if !is_end(3) || !is_end(4) => Err(SYNTAX),
        "blmpop" | "bzmpop" => seconds(arguments.at(1)),
        _ => seconds(arguments.at(arguments.len() - 1)),
    }
}

const NEGATIVE: Refusal = Refusal("ERR timeout is negative");

fn millis(text: &[u8]) -> Result<Option<Duration>, Refusal> {
    const NOT_A_NUMBER: Refusal = Refusal("ERR timeout is not an integer or out of range");
    let millis = super::commands::integer(text).ok_or(NOT_A_NUMBER)?;
    Ok(within(u64::try_from(millis).map_err(|_| NEGATIVE)?))
}

fn seconds(text: &[u8]) -> Result<Option<Duration>, Refusal> {
    const NOT_A_NUMBER: Refusal = Refusal("ERR timeout is not a float or out of range");
    let text = str::from_utf8(text).map_err(|_| NOT_A_NUMBER)?;
    let seconds: f64 = text.parse().map_err(|_| NOT_A_NUMBER)?;
    if seconds.is_nan() {
        return Err(NOT_A_NUMBER);
    }
    let millis = (seconds * 1_000.0).ceil();
    // What is beyond a signed number becomes a negative one there.
    if millis < 0.0 || millis >= i64::MAX as f64 {
        return Err(NEGATIVE);
    }
    Ok(within(millis as u64))
}

fn within(millis: u64) -> Option<Duration> {
    (millis > 0).then(|| Duration::from_millis(millis))
}

/// The keys that a command waits for, each once.
pub fn waited_for(command: &Command, arguments: Arguments<'_>) -> Vec<Box<[u8]>> {
    let mut waited_for: Vec<Box<[u8]>> = Vec::new();
    for index in keys(command, arguments).into_iter().flatten() {
        let key = arguments.at(index);
        let is_meant = index == 1 || !is_move(command);
        if is_meant && !waited_for.iter().any(|it| **it == *key) {
            waited_for.push(key.into());
        }
    }
    waited_for
}

/// Whether its second key is filled by what it takes from the first.
pub fn is_move(command: &Command) -> bool {
    matches!(command.name, "lmove" | "rpoplpush" | "blmove" | "brpoplpush")
}

/// The group whose consumer a command is of.
pub fn group<'a>(command: &Command, arguments: Arguments<'a>) -> Option<&'a [u8]> {
    if command.name != "xreadgroup" {
        return None;
    }
    let mut at = 1;
    while at < arguments.len() && !arguments.is(at, "group") {
        at += stream_option(arguments, at);
    }
    arguments.get(at + 1)
}

/// The keys that a write may fill for who waits, with what (`None` = anything), and for how many.
/// Of each group one is tried, whatever comes.
pub fn fills<'a>(
    command: &Command,
    arguments: Arguments<'a>,
) -> Vec<(&'a [u8], Option<Wait>, usize)> {
    const ALL: usize = usize::MAX;
    let added = arguments.len().saturating_sub(2);
    let (wait, most) = match command.name {
        "lpush" | "rpush" => (Some(Wait::List), added),
        "lmove" | "rpoplpush" | "blmove" | "brpoplpush" => (Some(Wait::List), 1),
        "sort" => (Some(Wait::List), ALL),
        "zadd" | "geoadd" => (Some(Wait::SortedSet), added),
        "zincrby" => (Some(Wait::SortedSet), 1),
        "zunionstore" | "zinterstore" | "zdiffstore" | "zrangestore" | "geosearchstore"
        | "georadius" | "georadiusbymember" => (Some(Wait::SortedSet), ALL),
        "xadd" => (Some(Wait::Stream), ALL),
        "rename" | "renamenx" | "copy" | "restore" => (None, ALL),
        // Consumers of a group are told that it is gone, or its stream. Whatever is no command of
        // streams may have removed it or put another type in its place.
        "xgroup" if arguments.is(1, "destroy") => (Some(Wait::Group), 0),
        name if !name.starts_with('x') => (Some(Wait::Group), 0),
        _ => return Vec::new(),
    };
    let from = if is_move(command) { 2 } else { 0 };
    let indices = keys(command, arguments).into_iter().flatten();
    indices.filter(|&at| at >= from).map(|at| (arguments.at(at), wait, most)).collect()
}

/// Whether a group of this key that is gone behind this write is so because its stream is. Else
/// there is a stream, without that group.
pub fn leaves_no_stream(command: &Command, arguments: Arguments<'_>, key: &[u8]) -> bool {
    match command.name {
        "xadd" | "xgroup" | "copy" | "restore" => false,
        "rename" | "renamenx" => arguments.get(1) == Some(key),
        _ => true,
    }
}

/// The ids of `XREAD` that mean "what comes from now on", with the keys that they are of.
pub fn last_ids(command: &Command, arguments: Arguments<'_>) -> Vec<(usize, usize)> {
    if command.name != "xread" {
        return Vec::new();
    }
    let Ok(keys) = keys(command, arguments) else { return Vec::new() };
    let keys: Vec<usize> = keys.collect();
    let pairs = keys.iter().map(|&key| (key, key + keys.len()));
    pairs.filter(|&(_, id)| arguments.get(id) == Some(b"$")).collect()
}

/// What is tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Try {
    /// The command.
    pub text: Vec<u8>,
    /// Its keys.
    pub keys: Vec<Box<[u8]>>,
}

/// What is tried for a command that was taken: of this key alone, or else of all its keys.
pub fn attempt(command: &Command, text: &[u8], key: Option<&[u8]>) -> Try {
    let mut parser = RequestParser::new(Limits::MAX);
    let mut tried = Try { text: Vec::new(), keys: Vec::new() };
    let Ok(Some(_)) = parser.parse(text) else { return tried };
    let arguments = parser.arguments(text);
    let indices: Vec<usize> = keys(command, arguments).into_iter().flatten().collect();
    // A move is of both its keys.
    let one = key.filter(|_| !is_move(command));
    let one = one.and_then(|key| indices.iter().copied().find(|&at| arguments.at(at) == key));
    let chosen = indices.iter().copied().filter(|at| one.is_none_or(|one| one == *at));
    tried.keys.extend(chosen.clone().map(|at| Box::from(arguments.at(at))));
    let name = arguments.at(0);
    let mut words = vec![name];
    match (command.name, one) {
        ("xread", _) => {
            let options = (1..arguments.len()).step_by(2);
            let mut options = options.take_while(|&at| !arguments.is(at, "streams"));
            if let Some(at) = options.find(|&at| arguments.is(at, "count")) {
                words.extend([arguments.at(at), arguments.at(at + 1)]);
            }
            words.push(b"STREAMS");
            words.extend(chosen.clone().map(|at| arguments.at(at)));
            words.extend(chosen.map(|at| arguments.at(at + indices.len())));
        }
        ("blpop" | "brpop" | "bzpopmin" | "bzpopmax", Some(key)) => {
            words.extend([arguments.at(key), b"0"]);
        }
        ("blmpop" | "bzmpop", Some(key)) => {
            words.extend([b"0", b"1", arguments.at(key)]);
            words.extend(arguments.iter().skip(3 + indices.len()));
        }
        _ => words.extend(arguments.iter().skip(1)),
    }
    encode::command(&mut tried.text, &words);
    tried
}

/// Where an element is after a command that was to move it: there, or still here.
pub fn moved(text: &[u8], has_failed: bool) -> Option<Box<[u8]>> {
    let mut parser = RequestParser::new(Limits::MAX);
    parser.parse(text).ok()??;
    parser.arguments(text).get(if has_failed { 1 } else { 2 }).map(Box::from)
}

/// The command with another argument at this index.
pub fn with_argument(text: &[u8], at: usize, word: &[u8]) -> Vec<u8> {
    let mut parser = RequestParser::new(Limits::MAX);
    let Ok(Some(_)) = parser.parse(text) else { return text.to_vec() };
    let words = parser.arguments(text).iter().enumerate();
    let words: Vec<&[u8]> =
        words.map(|(index, came)| if index == at { word } else { came }).collect();
    let mut out = Vec::new();
    encode::command(&mut out, &words);
    out
}
