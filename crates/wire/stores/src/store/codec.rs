//! Entries as bytes: how stores keep them, and what DUMP gives.
//!
//! ```text
//! entry   kind 1 (highest bit: it expires) | [expires, ms 8] | payload
//! dump    "EKV" | version 1 | kind 1 | payload | CRC-32 of all before 4
//! payload a string as it is; else number 4, then (length 4 | bytes) for each field, value, member
//! ```
//!
//! All numbers have their lowest byte first. A dump of Redis is not understood, and Redis does not
//! understand these: keys are copied between stores of one kind.

use std::collections::{BTreeMap, BTreeSet};

use super::{Entry, Value};

const EXPIRES: u8 = 0x80;
const DUMP: [u8; 4] = *b"EKV\x01";
const CRC_BYTES: usize = 4;

pub(super) fn encode(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    match entry.expires_ms {
        None => bytes.push(kind(&entry.value)),
        Some(at) => {
            bytes.push(kind(&entry.value) | EXPIRES);
            bytes.extend_from_slice(&at.to_le_bytes());
        }
    }
    write(&mut bytes, &entry.value);
    bytes
}

/// `None`: nobody wrote that with [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Option<Entry> {
    let (&first, mut rest) = bytes.split_first()?;
    let mut expires_ms = None;
    if first & EXPIRES != 0 {
        let (at, payload) = rest.split_first_chunk()?;
        expires_ms = Some(u64::from_le_bytes(*at));
        rest = payload;
    }
    Some(Entry { value: read(first & !EXPIRES, rest)?, expires_ms })
}

/// When bytes that [`encode`] wrote expire; the rest of them is not looked at.
pub(super) fn expiry(bytes: &[u8]) -> Option<u64> {
    let (&first, rest) = bytes.split_first()?;
    let at = rest.first_chunk().filter(|_| first & EXPIRES != 0)?;
    Some(u64::from_le_bytes(*at))
}

pub(super) fn dump(value: &Value) -> Vec<u8> {
    let mut bytes = DUMP.to_vec();
    bytes.push(kind(value));
    write(&mut bytes, value);
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

/// `None`: it is no dump of ours, or damaged.
pub(super) fn restore(dump: &[u8]) -> Option<Value> {
    let (body, crc) = dump.split_last_chunk::<CRC_BYTES>()?;
    if crc32fast::hash(body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (&kind, payload) = body.strip_prefix(&DUMP)?.split_first()?;
    read(kind, payload)
}

const fn kind(value: &Value) -> u8 {
    match value {
        Value::Text(_) => 0,
        Value::Hash(_) => 1,
        Value::Set(_) => 2,
    }
}

fn write(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Text(text) => bytes.extend_from_slice(text),
        Value::Hash(fields) => {
            number(bytes, fields.len());
            for (field, value) in fields {
                part(bytes, field);
                part(bytes, value);
            }
        }
        Value::Set(members) => {
            number(bytes, members.len());
            for member in members {
                part(bytes, member);
            }
        }
    }
}

fn number(bytes: &mut Vec<u8>, number: usize) {
    let number = u32::try_from(number).expect("arguments are bounded");
    bytes.extend_from_slice(&number.to_le_bytes());
}

fn part(bytes: &mut Vec<u8>, part: &[u8]) {
    number(bytes, part.len());
    bytes.extend_from_slice(part);
}

fn read(kind: u8, payload: &[u8]) -> Option<Value> {
    let mut parts = Parts(payload);
    let value = match kind {
        0 => return Some(Value::Text(payload.to_vec())),
        1 => {
            let mut fields = BTreeMap::new();
            for _ in 0..parts.number()? {
                fields.insert(parts.next()?, parts.next()?);
            }
            Value::Hash(fields)
        }
        2 => {
            let mut members = BTreeSet::new();
            for _ in 0..parts.number()? {
                members.insert(parts.next()?);
            }
            Value::Set(members)
        }
        _ => return None,
    };
    let is_empty = match &value {
        Value::Hash(fields) => fields.is_empty(),
        Value::Set(members) => members.is_empty(),
        Value::Text(_) => false,
    };
    (parts.0.is_empty() && !is_empty).then_some(value)
}

struct Parts<'a>(&'a [u8]);

impl Parts<'_> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number) as usize)
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let length = self.number()?;
        let (part, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(part.to_vec())
    }
}

/// `%20` and the like; `None` when a number is missing.
pub(super) fn decode_percent(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let Some((&first, behind)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = behind;
            continue;
        }
        let (digits, behind) = behind.split_first_chunk::<2>()?;
        let digit = |at: usize| char::from(digits[at]).to_digit(16);
        bytes.push(u8::try_from(digit(0)? << 4 | digit(1)?).ok()?);
        rest = behind;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_map, btree_set, vec};
    use proptest::prelude::{Strategy, any, prop_assert_eq, prop_oneof};
    use proptest::proptest;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let bytes = || vec(any::<u8>(), 0..20);
        prop_oneof![
            bytes().prop_map(Value::Text),
            btree_map(bytes(), bytes(), 1..9).prop_map(Value::Hash),
            btree_set(bytes(), 1..9).prop_map(Value::Set),
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(value in value(), expires_ms in any::<Option<u64>>()) {
            prop_assert_eq!(restore(&dump(&value)), Some(value.clone()));
            let entry = Entry { value, expires_ms };
            let bytes = encode(&entry);
            prop_assert_eq!(expiry(&bytes), expires_ms);
            prop_assert_eq!(decode(&bytes), Some(entry));
        }

        #[test]
        fn any_bytes_are_read(mut bytes in vec(any::<u8>(), 0..60), kind in 0..5_u8) {
            let _ = (decode(&bytes), restore(&bytes), decode_percent(&bytes));
            // A dump whose checksum is right, whatever it says.
            bytes.splice(..0, DUMP.into_iter().chain([kind]));
            bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
            if let Some(value) = restore(&bytes) {
                prop_assert_eq!(restore(&dump(&value)), Some(value));
            }
        }
    }

    #[test]
    fn percents_are_undone() {
        assert_eq!(decode_percent(b"a%20b%00%ff"), Some(b"a b\0\xff".to_vec()));
        assert_eq!(decode_percent(b"a%2"), None);
        assert_eq!(decode_percent(b"%zz"), None);
        assert_eq!(decode_percent(b"%+1"), None);
    }
}
