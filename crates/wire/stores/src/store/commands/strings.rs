//! Strings, and numbers written as such.

use super::keys::{Unit, expiry};
use super::{Call, Fault, Keys, Known, Needs, OVERFLOW, SYNTAX, Value};
use super::{NO_INTEGER, integer, integer_or_fault, known};
use crate::resp::encode;

/// Redis's own bound on a string.
const TEXT_BYTES_MAX: usize = 512 << 20;

pub(super) const COMMANDS: [Known; 20] = [
    known("get", 2, Keys::First, Needs::Nothing, get),
    known("set", -3, Keys::First, Needs::Nothing, set),
    known("setnx", 3, Keys::First, Needs::Nothing, set_if_absent),
    known("setex", 4, Keys::First, Needs::Expiry, set_until_seconds),
    known("psetex", 4, Keys::First, Needs::Expiry, set_until_millis),
    known("getset", 3, Keys::First, Needs::Nothing, get_and_set),
    known("getdel", 2, Keys::First, Needs::Nothing, get_and_delete),
    known("mget", -2, Keys::All, Needs::Nothing, get_many),
    known("mset", -3, Keys::Pairs, Needs::Nothing, set_many),
    known("msetnx", -3, Keys::Pairs, Needs::Nothing, set_many_if_absent),
    known("append", 3, Keys::First, Needs::Nothing, append),
    known("strlen", 2, Keys::First, Needs::Nothing, length),
    known("getrange", 4, Keys::First, Needs::Nothing, range),
    known("substr", 4, Keys::First, Needs::Nothing, range),
    known("setrange", 4, Keys::First, Needs::Nothing, set_range),
    known("incr", 2, Keys::First, Needs::Nothing, |call| add(call, 1)),
    known("decr", 2, Keys::First, Needs::Nothing, |call| add(call, -1)),
    known("incrby", 3, Keys::First, Needs::Nothing, |call| {
        let by = integer_or_fault(call.at(2))?;
        add(call, by)
    }),
    known("decrby", 3, Keys::First, Needs::Nothing, |call| {
        let by = integer_or_fault(call.at(2))?;
        add(call, by.checked_neg().ok_or("ERR decrement would overflow")?)
    }),
    known("getex", -2, Keys::First, Needs::Expiry, get_and_expire),
];

fn get(call: &mut Call<'_>) -> Result<(), Fault> {
    match call.overlay.text(call.at(1))? {
        Some(text) => encode::bulk(call.out, text),
        None => call.null(),
    }
    Ok(())
}

/// What is said of SET behind the value.
#[derive(Default)]
struct Options {
    expires_ms: Option<u64>,
    keeps_expiry: bool,
    is_for_absent: bool,
    is_for_present: bool,
    gives: bool,
}

fn options(call: &Call<'_>) -> Result<Options, Fault> {
    let mut options = Options::default();
    let mut rest = call.arguments[3..].iter();
    while let Some(word) = rest.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let has_expiry = options.expires_ms.is_some() || options.keeps_expiry;
        if is("NX") && !options.is_for_present {
            options.is_for_absent = true;
        } else if is("XX") && !options.is_for_absent {
            options.is_for_present = true;
        } else if is("GET") {
            options.gives = true;
        } else if is("KEEPTTL") && options.expires_ms.is_none() {
            options.keeps_expiry = true;
        } else if let (Some(unit), false) = (Unit::of_option(word), has_expiry) {
            let time = rest.next().ok_or(SYNTAX)?;
            if !call.overlay.abilities.has_expiry {
                return Err("ERR this store keeps no expiry".into());
            }
            options.expires_ms = Some(expiry(call, time, unit, 1)?);
        } else {
            return Err(SYNTAX.into());
        }
    }
    Ok(options)
}

fn set(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, value) = (call.at(1), call.at(2));
    let options = options(call)?;
    let is_there = call.overlay.entry(key).is_some();
    let before = if options.gives { call.overlay.text(key)?.map(<[u8]>::to_vec) } else { None };
    let is_held_back = (options.is_for_absent && is_there) || (options.is_for_present && !is_there);
    if !is_held_back {
        let expires_ms = if options.keeps_expiry { call.expires(key) } else { options.expires_ms };
        call.put(key, Value::Text(value.to_vec()), expires_ms)?;
    }
    match (options.gives, is_held_back) {
        (true, _) => call.bulk(before.as_deref()),
        (false, true) => call.null(),
        (false, false) => call.ok(),
    }
    Ok(())
}

fn set_if_absent(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, value) = (call.at(1), call.at(2));
    let is_set = call.overlay.entry(key).is_none();
    if is_set {
        call.put(key, Value::Text(value.to_vec()), None)?;
    }
    call.integer(i64::from(is_set));
    Ok(())
}

fn set_until_seconds(call: &mut Call<'_>) -> Result<(), Fault> {
    set_until(call, Unit::Seconds)
}

fn set_until_millis(call: &mut Call<'_>) -> Result<(), Fault> {
    set_until(call, Unit::Millis)
}

fn set_until(call: &mut Call<'_>, unit: Unit) -> Result<(), Fault> {
    let expires_ms = expiry(call, call.at(2), unit, 1)?;
    call.put(call.at(1), Value::Text(call.at(3).to_vec()), Some(expires_ms))?;
    call.ok();
    Ok(())
}

fn get_and_set(call: &mut Call<'_>) -> Result<(), Fault> {
    let before = call.overlay.text(call.at(1))?.map(<[u8]>::to_vec);
    call.put(call.at(1), Value::Text(call.at(2).to_vec()), None)?;
    call.bulk(before.as_deref());
    Ok(())
}

fn get_and_delete(call: &mut Call<'_>) -> Result<(), Fault> {
    get(call)?;
    call.overlay.remove(call.at(1));
    Ok(())
}

/// `GETEX key [EX seconds | PX millis | EXAT seconds | PXAT millis | PERSIST]`
fn get_and_expire(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.at(1);
    let expires_ms = match call.rest() {
        [] => None,
        [word] if word.eq_ignore_ascii_case(b"PERSIST") => Some(None),
        [word, time] => {
            let unit = Unit::of_option(word).ok_or(SYNTAX)?;
            Some(Some(expiry(call, time, unit, 1)?))
        }
        _ => return Err(SYNTAX.into()),
    };
    get(call)?;
    if let (Some(expires_ms), true) = (expires_ms, call.overlay.entry(key).is_some()) {
        call.overlay.expire(key, expires_ms);
    }
    Ok(())
}

fn get_many(call: &mut Call<'_>) -> Result<(), Fault> {
    let keys = &call.arguments[1..];
    encode::array(call.out, keys.len());
    for key in keys {
        match call.overlay.text(key) {
            Ok(Some(text)) => encode::bulk(call.out, text),
            // Of another kind is as absent, says Redis.
            Ok(None) | Err(_) => encode::null(call.out, call.protocol),
        }
    }
    Ok(())
}

fn set_many(call: &mut Call<'_>) -> Result<(), Fault> {
    put_pairs(call)?;
    call.ok();
    Ok(())
}

fn put_pairs(call: &mut Call<'_>) -> Result<(), Fault> {
    let pairs = call.arguments[1..].chunks_exact(2);
    for pair in pairs.clone() {
        call.fitting(&Value::Text(pair[1].clone()))?;
    }
    for pair in pairs {
        call.overlay.put(&pair[0], Value::Text(pair[1].clone()), None);
    }
    Ok(())
}

fn set_many_if_absent(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut keys = call.arguments[1..].iter().step_by(2);
    let is_free = keys.all(|key| call.overlay.entry(key).is_none());
    if is_free {
        put_pairs(call)?;
    }
    call.integer(i64::from(is_free));
    Ok(())
}

fn length(call: &mut Call<'_>) -> Result<(), Fault> {
    let length = call.overlay.text(call.at(1))?.map_or(0, <[u8]>::len);
    call.count(length);
    Ok(())
}

/// Changes a string; what there is of it expires as before.
fn rewrite(call: &mut Call<'_>, text: Vec<u8>) -> Result<(), Fault> {
    let key = call.at(1);
    call.put(key, Value::Text(text), call.expires(key))
}

fn append(call: &mut Call<'_>) -> Result<(), Fault> {
    let mut text = call.overlay.text(call.at(1))?.unwrap_or_default().to_vec();
    if text.len() + call.at(2).len() > TEXT_BYTES_MAX {
        return Err("ERR string exceeds maximum allowed size (512MB)".into());
    }
    text.extend_from_slice(call.at(2));
    let length = text.len();
    rewrite(call, text)?;
    call.count(length);
    Ok(())
}

fn range(call: &mut Call<'_>) -> Result<(), Fault> {
    let (start, end) = (integer_or_fault(call.at(2))?, integer_or_fault(call.at(3))?);
    let text = call.overlay.text(call.at(1))?.unwrap_or_default();
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if start < 0 && end < 0 && start > end {
        encode::bulk(call.out, b"");
        return Ok(());
    }
    let from_start = |at: i64| if at < 0 { (length.saturating_add(at)).max(0) } else { at };
    let (start, end) = (from_start(start), from_start(end).min(length - 1));
    let part = if start > end { &[] } else { &text[start as usize..=end as usize] };
    encode::bulk(call.out, part);
    Ok(())
}

fn set_range(call: &mut Call<'_>) -> Result<(), Fault> {
    let (at, part) = (integer_or_fault(call.at(2))?, call.at(3));
    let Ok(at) = usize::try_from(at) else { return Err("ERR offset is out of range".into()) };
    let mut text = call.overlay.text(call.at(1))?.unwrap_or_default().to_vec();
    if !part.is_empty() {
        let end = at.saturating_add(part.len());
        if end > TEXT_BYTES_MAX {
            return Err("ERR string exceeds maximum allowed size (512MB)".into());
        }
        text.resize(text.len().max(end), 0);
        text[at..end].copy_from_slice(part);
        rewrite(call, text.clone())?;
    }
    call.count(text.len());
    Ok(())
}

fn add(call: &mut Call<'_>, by: i64) -> Result<(), Fault> {
    let value = match call.overlay.text(call.at(1))? {
        Some(text) => integer(text).ok_or(NO_INTEGER)?,
        None => 0,
    };
    let sum = value.checked_add(by).ok_or(OVERFLOW)?;
    rewrite(call, itoa::Buffer::new().format(sum).as_bytes().to_vec())?;
    call.integer(sum);
    Ok(())
}
