//! The form of a command whose effect is the same at every server that has the same data.
//!
//! | comes | goes | because |
//! |---|---|---|
//! | `EXPIRE k 10`, `PEXPIRE`, `EXPIREAT` | `PEXPIREAT k ms` | "now" differs between servers, and when a write is repeated |
//! | `SETEX k 10 v`, `PSETEX` | `SET k v PXAT ms` | same |
//! | `SET k v EX 10`, `GETEX k PX 10` | `… PXAT ms` | same |
//! | `RESTORE k 1000 d` | `RESTORE k ms d ABSTTL` | same |
//! | `XADD k * …` | `XADD k ms-* …` | the time is ours; the number after it follows from what is in the stream, which is the same everywhere |
//! | `XADD k MAXLEN ~ n …`, `XTRIM` | `MAXLEN = n` | how much "about" leaves depends on how a server lays its stream out |
//! | `SPOP k` | `SREM k winner` | each server would draw another |
//!
//! **Time is an argument**: milliseconds since 1970. That of `XADD k *` must not be before the
//! stream's last id, or the server refuses it because ids only grow: whoever calls asks for it
//! ([`wants_id`]). `ms-*` needs Redis 7.
//!
//! **What is not rewritten** and needs servers that are alike: `INCRBYFLOAT` and `HINCRBYFLOAT`
//! count with the `long double` of the machine (one architecture for all duplicates), and a
//! server that evicts keys when memory is short does so by its own draw (`maxmemory-policy
//! noeviction`).
//!
//! **When it misleads**: an absolute deadline passes at each server by that server's own clock. A
//! write that looks at a key, or changes a part of it, right then finds it at one server and not at
//! another. No rewriting here can mend that: whoever sends removes the key first, see
//! [`super::deadlines`].

use super::commands::{Refusal, Rewrite, Time, integer, refusals};
use super::encode;
use super::request::Arguments;

/// Appends the deterministic form of a command to `out`; `rewrite` is what
/// [`super::commands::classify`] said of these arguments.
///
/// # Errors
/// When the command cannot be done at any server, in Redis's words, such as a deadline that is no
/// number. `SPOP` is always refused: it takes two steps, [`pop_question`] and [`pop_answer`]. Then
/// `out` is as it was.
pub fn rewrite(
    rewrite: Rewrite,
    arguments: Arguments<'_>,
    now_unix_ms: u64,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    match rewrite {
        Rewrite::Expire(time) => expire(time, arguments, now_unix_ms, out),
        Rewrite::SetWithExpiry(time) => set_with_expiry(time, arguments, now_unix_ms, out),
        Rewrite::ExpiryOption(at, time) => option(at, time, arguments, now_unix_ms, out),
        Rewrite::Restore => restore(arguments, now_unix_ms, out),
        Rewrite::StreamAdd => stream(arguments, Some(now_unix_ms), out),
        Rewrite::StreamTrim => stream(arguments, None, out),
        Rewrite::Pop => Err(Refusal(refusals::POP)),
    }
}

/// The moment that a number of a command means, in milliseconds since 1970.
///
/// What is not above zero is in the past, which only `EXPIRE` and its kin allow: there it deletes.
fn moment(
    number: &[u8],
    time: Time,
    now_unix_ms: u64,
    command: &[u8],
    allows_past: bool,
) -> Result<i64, Refusal> {
    let number = integer(number).ok_or(Refusal(refusals::NOT_AN_INTEGER))?;
    let invalid = Refusal(invalid_expire_time(command));
    if number <= 0 && !allows_past {
        return Err(invalid);
    }
    let scaled = match time {
        Time::Millis => Some(number),
        Time::Seconds | Time::UnixSeconds => number.checked_mul(1000),
    };
    let base = match time {
        Time::UnixSeconds => 0,
        Time::Seconds | Time::Millis => i64::try_from(now_unix_ms).unwrap_or(i64::MAX),
    };
    scaled.and_then(|scaled| scaled.checked_add(base)).ok_or(invalid)
}

fn invalid_expire_time(command: &[u8]) -> &'static str {
    const TEXTS: [(&str, &str); 8] = [
        ("set", "ERR invalid expire time in 'set' command"),
        ("setex", "ERR invalid expire time in 'setex' command"),
        ("psetex", "ERR invalid expire time in 'psetex' command"),
        ("getex", "ERR invalid expire time in 'getex' command"),
        ("expire", "ERR invalid expire time in 'expire' command"),
        ("pexpire", "ERR invalid expire time in 'pexpire' command"),
        ("expireat", "ERR invalid expire time in 'expireat' command"),
        ("restore", "ERR Invalid TTL value, must be >= 0"),
    ];
    let is_it = |(name, _): &&(&str, &str)| command.eq_ignore_ascii_case(name.as_bytes());
    TEXTS.iter().find(is_it).map_or(TEXTS[0].1, |(_, text)| text)
}

/// Milliseconds as an argument.
fn millis(out: &mut Vec<u8>, millis: i64) {
    encode::bulk(out, itoa::Buffer::new().format(millis).as_bytes());
}

fn expire(
    time: Time,
    arguments: Arguments<'_>,
    now_unix_ms: u64,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let at = moment(arguments.at(2), time, now_unix_ms, arguments.at(0), true)?;
    encode::array(out, arguments.len());
    encode::bulk(out, b"PEXPIREAT");
    encode::bulk(out, arguments.at(1));
    millis(out, at);
    arguments.iter().skip(3).for_each(|option| encode::bulk(out, option));
    Ok(())
}

fn set_with_expiry(
    time: Time,
    arguments: Arguments<'_>,
    now_unix_ms: u64,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let at = moment(arguments.at(2), time, now_unix_ms, arguments.at(0), false)?;
    encode::array(out, 5);
    encode::bulk(out, b"SET");
    encode::bulk(out, arguments.at(1));
    encode::bulk(out, arguments.at(3));
    encode::bulk(out, b"PXAT");
    millis(out, at);
    Ok(())
}

fn option(
    option: usize,
    time: Time,
    arguments: Arguments<'_>,
    now_unix_ms: u64,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let at = moment(arguments.at(option + 1), time, now_unix_ms, arguments.at(0), false)?;
    encode::array(out, arguments.len());
    for (index, argument) in arguments.iter().enumerate() {
        match index {
            _ if index == option => encode::bulk(out, b"PXAT"),
            _ if index == option + 1 => millis(out, at),
            _ => encode::bulk(out, argument),
        }
    }
    Ok(())
}

fn restore(arguments: Arguments<'_>, now_unix_ms: u64, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let at = moment(arguments.at(2), Time::Millis, now_unix_ms, arguments.at(0), false)?;
    encode::array(out, arguments.len() + 1);
    for (index, argument) in arguments.iter().enumerate() {
        match index {
            2 => millis(out, at),
            _ => encode::bulk(out, argument),
        }
    }
    encode::bulk(out, b"ABSTTL");
    Ok(())
}

/// Whether an `XADD` leaves its id to the server. What is no valid `XADD` may say either.
pub fn wants_id(arguments: Arguments<'_>) -> bool {
    let id = stream_options(arguments, true, |_| {}).ok();
    id.and_then(|at| arguments.get(at)).is_some_and(|id| id == b"*")
}

/// Reads the options of `XADD` or `XTRIM`, and hands over the words that stand for them everywhere;
/// the index of what follows.
fn stream_options<'a>(
    arguments: Arguments<'a>,
    is_add: bool,
    mut word: impl FnMut(&'a [u8]),
) -> Result<usize, Refusal> {
    const SYNTAX: Refusal = Refusal(refusals::SYNTAX);
    let (mut at, mut is_about, mut limit) = (2, None, None);
    loop {
        if arguments.is(at, "maxlen") || arguments.is(at, "minid") {
            word(arguments.at(at));
            at += 1;
            is_about = Some(arguments.get(at) == Some(b"~"));
            if arguments.get(at).is_some_and(|sign| sign == b"~" || sign == b"=") {
                at += 1;
            }
            word(b"=");
            word(arguments.get(at).ok_or(SYNTAX)?);
            at += 1;
        } else if arguments.is(at, "limit") && at + 1 < arguments.len() {
            let number = integer(arguments.at(at + 1));
            limit = Some(number.ok_or(Refusal(refusals::NOT_AN_INTEGER))?);
            at += 2;
        } else if is_add && arguments.is(at, "nomkstream") {
            word(arguments.at(at));
            at += 1;
        } else {
            break;
        }
    }
    match (limit, is_about) {
        (Some(..=-1), _) => Err(Refusal("ERR The LIMIT argument must be >= 0.")),
        (Some(1..), None) => Err(Refusal(
            "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
        )),
        (Some(_), None | Some(false)) => {
            Err(Refusal("ERR syntax error, LIMIT cannot be used without the special ~ option"))
        }
        _ => Ok(at),
    }
}

/// `XADD`, which has an id after its options, or `XTRIM`, which has none.
fn stream(
    arguments: Arguments<'_>,
    now_unix_ms: Option<u64>,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    const SYNTAX: Refusal = Refusal(refusals::SYNTAX);
    let mut words: Vec<&[u8]> = vec![arguments.at(0), arguments.at(1)];
    let mut at = stream_options(arguments, now_unix_ms.is_some(), |word| words.push(word))?;
    let id;
    if let Some(now_unix_ms) = now_unix_ms {
        let came = arguments.get(at).ok_or(SYNTAX)?;
        at += 1;
        id = if came == b"*" { format!("{now_unix_ms}-*").into_bytes() } else { came.to_vec() };
        words.push(&id);
        let pairs = arguments.len() - at;
        if pairs == 0 || pairs % 2 == 1 {
            return Err(Refusal("ERR wrong number of arguments for 'xadd' command"));
        }
    } else if at != arguments.len() {
        return Err(SYNTAX);
    }
    words.extend(arguments.iter().skip(at));
    encode::command(out, &words);
    Ok(())
}

/// `SPOP` in two steps, the first: appends the question which members a server would draw,
/// `SRANDMEMBER key [count]`. It is asked on an ordered lane; then the winners are removed with
/// [`pop_answer`], and if another write came between and fewer were removed, it is asked again.
///
/// # Errors
/// When the count is no number of members, in Redis's words.
pub fn pop_question(arguments: Arguments<'_>, out: &mut Vec<u8>) -> Result<(), Refusal> {
    const RANGE: Refusal = Refusal("ERR value is out of range, must be positive");
    if arguments.len() > 3 {
        return Err(Refusal(refusals::SYNTAX));
    }
    if let Some(count) = arguments.get(2) {
        // A negative count would allow one member to be drawn twice.
        integer(count).filter(|&count| count >= 0).ok_or(RANGE)?;
    }
    encode::array(out, arguments.len());
    encode::bulk(out, b"SRANDMEMBER");
    arguments.iter().skip(1).for_each(|argument| encode::bulk(out, argument));
    Ok(())
}

/// `SPOP` in two steps, the second: appends `SREM key winner…` for the whole reply to the question,
/// and says how many winners there are. When there are none nothing is appended, and the reply to
/// the question is the reply to the client.
///
/// # Panics
/// When this is no whole reply that [`super::reply::ReplyScanner`] found.
pub fn pop_answer(key: &[u8], reply: &[u8], out: &mut Vec<u8>) -> usize {
    let winners: Vec<&[u8]> = match reply.first() {
        Some(b'$') => super::reply::payload(reply).into_iter().collect(),
        _ => super::reply::elements(reply).filter_map(super::reply::payload).collect(),
    };
    if winners.is_empty() {
        return 0;
    }
    encode::array(out, 2 + winners.len());
    encode::bulk(out, b"SREM");
    encode::bulk(out, key);
    winners.iter().for_each(|winner| encode::bulk(out, winner));
    winners.len()
}
