//! A batch as it is journaled, so that whoever comes next can complete it.
//!
//! ```text
//! batch   version 1 | change…
//! change  key length 4 | key | entry length 4 (all ones: it is removed) | entry as stores keep it
//! ```
//!
//! All numbers have their lowest byte first.

use super::super::{Change, Entry, Value, codec};

const VERSION: u8 = 1;
const REMOVED: u32 = u32::MAX;
/// A watermark that says that not all is there.
const FILLING: &[u8] = b"filling";

/// What the last batch changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Record {
    pub(super) changes: Vec<Change>,
}

pub(super) fn encode(changes: &[Change]) -> Vec<u8> {
    let mut bytes = vec![VERSION];
    for (key, entry) in changes {
        part(&mut bytes, key);
        match entry {
            Some(entry) => part(&mut bytes, &codec::encode(entry)),
            None => bytes.extend_from_slice(&REMOVED.to_le_bytes()),
        }
    }
    bytes
}

fn part(bytes: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("keys and values are bounded");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(part);
}

/// `None`: nobody wrote that with [`encode`]. Nothing at all is no change.
pub(super) fn decode(bytes: &[u8]) -> Option<Record> {
    let mut record = Record::default();
    let Some((&version, mut rest)) = bytes.split_first() else { return Some(record) };
    if version != VERSION {
        return None;
    }
    while !rest.is_empty() {
        let key = take(&mut rest)??;
        let entry = match take(&mut rest)? {
            Some(entry) => Some(codec::decode(entry)?),
            None => None,
        };
        record.changes.push((key.to_vec(), entry));
    }
    Some(record)
}

/// `Some(None)`: it is removed.
fn take<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, behind) = rest.split_first_chunk()?;
    let length = u32::from_le_bytes(*length);
    if length == REMOVED {
        *rest = behind;
        return Some(None);
    }
    let (part, behind) = behind.split_at_checked(length as usize)?;
    *rest = behind;
    Some(Some(part))
}

/// Bytes that a change takes in the journal, at most.
pub(super) fn size((key, entry): &Change) -> usize {
    // Lengths, the kind, the expiry.
    const BESIDE: usize = 4 + 4 + 1 + 8 + 4;
    let value = entry.as_ref().map_or(0, |entry| match &entry.value {
        Value::Text(text) => text.len(),
        Value::Hash(fields) => {
            fields.iter().map(|(field, value)| field.len() + value.len() + 8).sum()
        }
        Value::Set(members) => members.iter().map(|member| member.len() + 4).sum(),
    });
    BESIDE + key.len() + value
}

/// The watermark while not all of what it counts is there: no history has writes of epoch 0, but
/// one that has more is still the better one. Before the first write there is none to be told.
pub(super) fn doubtful(watermark: &Entry) -> Entry {
    let sequence = match &watermark.value {
        Value::Text(text) => str::from_utf8(text).ok().and_then(|text| text.split_once(' ')),
        Value::Hash(_) | Value::Set(_) => None,
    };
    let sequence = sequence.and_then(|(_, sequence)| sequence.parse::<u64>().ok());
    let text = match sequence {
        Some(sequence @ 1..) => format!("0 {sequence}").into_bytes(),
        Some(0) | None => FILLING.to_vec(),
    };
    Entry { value: Value::Text(text), expires_ms: None }
}
