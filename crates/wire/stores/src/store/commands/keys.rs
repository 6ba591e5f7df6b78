//! Keys of any kind: whether they are there, until when, and moving them.

use super::super::codec::{dump, restore};
use super::{Call, Fault, Keys, Known, NO_INTEGER, Needs, Overlay, Run, SYNTAX, Value};
use super::{integer, integer_or_fault, known, whole};
use crate::resp::encode;

pub(super) const COMMANDS: [Known; 20] = [
    known("del", -2, Keys::All, Needs::Nothing, delete),
    known("unlink", -2, Keys::All, Needs::Nothing, delete),
    known("exists", -2, Keys::All, Needs::Nothing, exist),
    known("touch", -2, Keys::All, Needs::Nothing, exist),
    known("type", 2, Keys::First, Needs::Nothing, kind),
    known("dump", 2, Keys::First, Needs::Nothing, give),
    known("restore", -4, Keys::First, Needs::Nothing, take),
    known("expire", -3, Keys::First, Needs::Expiry, |call| expire(call, Unit::Seconds)),
    known("pexpire", -3, Keys::First, Needs::Expiry, |call| expire(call, Unit::Millis)),
    known("expireat", -3, Keys::First, Needs::Expiry, |call| expire(call, Unit::SecondsAt)),
    known("pexpireat", -3, Keys::First, Needs::Expiry, |call| expire(call, Unit::MillisAt)),
    known("persist", 2, Keys::First, Needs::Expiry, persist),
    // These three answer for stores without expiry too: that there is none.
    known("ttl", 2, Keys::First, Needs::Nothing, |call| when(call, Unit::Seconds)),
    known("pttl", 2, Keys::First, Needs::Nothing, |call| when(call, Unit::Millis)),
    known("expiretime", 2, Keys::First, Needs::Nothing, |call| when(call, Unit::SecondsAt)),
    known("pexpiretime", 2, Keys::First, Needs::Nothing, |call| when(call, Unit::MillisAt)),
    whole("scan", -2, Run::List),
    whole("dbsize", 1, Run::Count),
    // With or without ASYNC: it is done before it is answered.
    whole("flushall", -1, Run::Clear),
    whole("flushdb", -1, Run::Clear),
];

/// How a time is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    /// From now.
    Seconds,
    Millis,
    /// Since 1970.
    SecondsAt,
    MillisAt,
}

impl Unit {
    pub(super) fn of_option(word: &[u8]) -> Option<Self> {
        let units = [
            ("EX", Self::Seconds),
            ("PX", Self::Millis),
            ("EXAT", Self::SecondsAt),
            ("PXAT", Self::MillisAt),
        ];
        let found = units.iter().find(|(name, _)| word.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|&(_, unit)| unit)
    }

    const fn is_seconds(self) -> bool {
        matches!(self, Self::Seconds | Self::SecondsAt)
    }

    const fn is_from_now(self) -> bool {
        matches!(self, Self::Seconds | Self::Millis)
    }
}

/// A time that was said, in milliseconds since 1970; those before that are as 1970.
pub(super) fn expiry(
    call: &Call<'_>,
    text: &[u8],
    unit: Unit,
    time_min: i64,
) -> Result<u64, Fault> {
    let invalid = || Fault::from(format!("ERR invalid expire time in '{}' command", call.name));
    let said = integer_or_fault(text)?;
    if said < time_min {
        return Err(invalid());
    }
    let millis = if unit.is_seconds() { said.checked_mul(1000) } else { Some(said) };
    let now = if unit.is_from_now() { call.overlay.now_ms.cast_signed() } else { 0 };
    let at = millis.and_then(|millis| millis.checked_add(now)).ok_or_else(invalid)?;
    Ok(u64::try_from(at).unwrap_or(0))
}

impl Overlay {
    /// Lets a key that is there expire then.
    pub(super) fn expire(&mut self, key: &[u8], expires_ms: Option<u64>) {
        let bytes = self.entry(key).map_or(0, |entry| super::size(&entry.value));
        if let Some(entry) = &mut self.slot(key, bytes).entry {
            entry.expires_ms = expires_ms;
        }
    }
}

fn delete(call: &mut Call<'_>) -> Result<(), Fault> {
    let keys = call.arguments[1..].iter();
    let gone = keys.filter(|key| call.overlay.remove(key)).count();
    call.count(gone);
    Ok(())
}

fn exist(call: &mut Call<'_>) -> Result<(), Fault> {
    let keys = call.arguments[1..].iter();
    let there = keys.filter(|key| call.overlay.entry(key).is_some()).count();
    call.count(there);
    Ok(())
}

fn kind(call: &mut Call<'_>) -> Result<(), Fault> {
    let kind = match call.overlay.entry(call.at(1)).map(|entry| &entry.value) {
        None => "none",
        Some(Value::Text(_)) => "string",
        Some(Value::Hash(_)) => "hash",
        Some(Value::Set(_)) => "set",
    };
    encode::simple(call.out, kind);
    Ok(())
}

fn give(call: &mut Call<'_>) -> Result<(), Fault> {
    let dump = call.overlay.entry(call.at(1)).map(|entry| dump(&entry.value));
    call.bulk(dump.as_deref());
    Ok(())
}

/// `RESTORE key ttl value [REPLACE] [ABSTTL] [IDLETIME seconds] [FREQ frequency]`
fn take(call: &mut Call<'_>) -> Result<(), Fault> {
    let (key, time, value) = (call.at(1), call.at(2), call.at(3));
    let (mut replaces, mut unit) = (false, Unit::Millis);
    let mut words = call.arguments[4..].iter();
    while let Some(word) = words.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        if is("REPLACE") {
            replaces = true;
        } else if is("ABSTTL") {
            unit = Unit::MillisAt;
        } else if is("IDLETIME") || is("FREQ") {
            // For evictions, of which there are none.
            integer_or_fault(words.next().ok_or(SYNTAX)?)?;
        } else {
            return Err(SYNTAX.into());
        }
    }
    if !replaces && call.overlay.entry(key).is_some() {
        return Err("BUSYKEY Target key name already exists.".into());
    }
    let said = integer(time).ok_or(NO_INTEGER)?;
    if said < 0 {
        return Err("ERR Invalid TTL value, must be >= 0".into());
    }
    let value = restore(value).ok_or("ERR DUMP payload version or checksum are wrong")?;
    let abilities = call.overlay.abilities;
    if !abilities.has_collections && !matches!(value, Value::Text(_)) {
        return Err("ERR this store keeps only strings".into());
    }
    if said > 0 && !abilities.has_expiry {
        return Err("ERR this store keeps no expiry".into());
    }
    let expires_ms = if said == 0 { None } else { Some(expiry(call, time, unit, 0)?) };
    call.fitting(&value)?;
    if expires_ms.is_some_and(|at| at <= call.overlay.now_ms) {
        call.overlay.remove(key);
    } else {
        call.overlay.put(key, value, expires_ms);
    }
    call.ok();
    Ok(())
}

/// When a time is taken.
#[derive(Default)]
struct Conditions {
    is_if_none: bool,
    is_if_some: bool,
    is_if_later: bool,
    is_if_earlier: bool,
}

fn conditions(words: &[Vec<u8>]) -> Result<Conditions, Fault> {
    let mut conditions = Conditions::default();
    for word in words {
        let place = match word.to_ascii_uppercase().as_slice() {
            b"NX" => &mut conditions.is_if_none,
            b"XX" => &mut conditions.is_if_some,
            b"GT" => &mut conditions.is_if_later,
            b"LT" => &mut conditions.is_if_earlier,
            _ => {
                let word = String::from_utf8_lossy(word);
                return Err(format!("ERR Unsupported option {word}").into());
            }
        };
        *place = true;
    }
    let Conditions { is_if_none, is_if_some, is_if_later, is_if_earlier } = conditions;
    if is_if_none && (is_if_some || is_if_later || is_if_earlier) {
        let words = "ERR NX and XX, GT or LT options at the same time are not compatible";
        return Err(words.into());
    }
    if is_if_later && is_if_earlier {
        return Err("ERR GT and LT options at the same time are not compatible".into());
    }
    Ok(conditions)
}

/// `… key time [NX | XX | GT | LT]`
fn expire(call: &mut Call<'_>, unit: Unit) -> Result<(), Fault> {
    let key = call.at(1);
    let conditions = conditions(&call.arguments[3..])?;
    let at = expiry(call, call.at(2), unit, i64::MIN)?;
    let Some(entry) = call.overlay.entry(key) else {
        call.integer(0);
        return Ok(());
    };
    let before = entry.expires_ms;
    let is_wanted = (!conditions.is_if_none || before.is_none())
        && (!conditions.is_if_some || before.is_some())
        && (!conditions.is_if_later || before.is_some_and(|before| at > before))
        && (!conditions.is_if_earlier || before.is_none_or(|before| at < before));
    if is_wanted && at <= call.overlay.now_ms {
        call.overlay.remove(key);
    } else if is_wanted {
        call.overlay.expire(key, Some(at));
    }
    call.integer(i64::from(is_wanted));
    Ok(())
}

fn persist(call: &mut Call<'_>) -> Result<(), Fault> {
    let key = call.at(1);
    let has_expiry = call.expires(key).is_some();
    if has_expiry {
        call.overlay.expire(key, None);
    }
    call.integer(i64::from(has_expiry));
    Ok(())
}

/// -2: there is no such key; -1: it does not expire.
fn when(call: &mut Call<'_>, unit: Unit) -> Result<(), Fault> {
    let now = call.overlay.now_ms;
    let said = match call.overlay.entry(call.at(1)) {
        None => -2,
        Some(entry) => entry.expires_ms.map_or(-1, |at| {
            let millis = if unit.is_from_now() { at.saturating_sub(now) } else { at };
            let said = if unit.is_seconds() { millis.saturating_add(500) / 1000 } else { millis };
            i64::try_from(said).unwrap_or(i64::MAX)
        }),
    };
    call.integer(said);
    Ok(())
}
