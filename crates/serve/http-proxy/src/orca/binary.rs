//! The binary form: `OrcaLoadReport` in protobuf, in base64.
//!
//! Two of its fields are read, `rps_fractional` (6, double) and `named_metrics` (8, map of string
//! to double); the rest is stepped over. Reading two fields takes less code than a generated
//! message, and no code generator.

use super::{Metric, OrcaError, Report};

const RPS_FRACTIONAL: u64 = 6;
const NAMED_METRICS: u64 = 8;
const ENTRY_KEY: u64 = 1;
const ENTRY_VALUE: u64 = 2;

pub(super) fn parse(base64: &[u8]) -> Result<Report, OrcaError> {
    let message = decode_base64(base64.trim_ascii()).ok_or(malformed("not in base64"))?;
    let mut report = Report::default();
    for field in Fields(&message) {
        match field? {
            (RPS_FRACTIONAL, Value::Eight(bytes)) => report.set(Metric::ArrivalRate, bytes)?,
            (NAMED_METRICS, Value::Bytes(entry)) => read_entry(entry, &mut report)?,
            (RPS_FRACTIONAL | NAMED_METRICS, _) => return Err(malformed("a field of odd type")),
            _ => {}
        }
    }
    Ok(report)
}

/// An entry of the map. As everywhere in protobuf, what is left out is empty or zero.
fn read_entry(entry: &[u8], report: &mut Report) -> Result<(), OrcaError> {
    let (mut key, mut value): (&[u8], f64) = (b"", 0.0);
    for field in Fields(entry) {
        match field? {
            (ENTRY_KEY, Value::Bytes(bytes)) => key = bytes,
            (ENTRY_VALUE, Value::Eight(number)) => value = number,
            (ENTRY_KEY | ENTRY_VALUE, _) => return Err(malformed("a field of odd type")),
            _ => {}
        }
    }
    match std::str::from_utf8(key).ok().and_then(Metric::of_named) {
        Some(metric) => report.set(metric, value),
        None => Ok(()),
    }
}

/// The fields of a message, with their numbers.
struct Fields<'a>(&'a [u8]);

/// A field's value, as far as its type on the wire tells.
enum Value<'a> {
    Eight(f64),
    Bytes(&'a [u8]),
    Other,
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), OrcaError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field().ok_or(malformed("not a protobuf message, or cut off"));
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Value<'a>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => {
                self.varint()?;
                Value::Other
            }
            1 => Value::Eight(f64::from_le_bytes(self.take(8)?.try_into().ok()?)),
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).ok()?)?)
            }
            5 => {
                self.take(4)?;
                Value::Other
            }
            _ => return None, // groups are long gone
        };
        Some((tag >> 3, value))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }
}

/// Decodes the standard alphabet, with or without padding (gRPC for Go leaves it out).
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let digits = &text[..text.len() - padding];
    if digits.len() % 4 == 1 || padding > 2 || (padding > 0 && !text.len().is_multiple_of(4)) {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for digit in group {
            bits = bits << 6 | sextet(*digit)?;
        }
        bits <<= 6 * (4 - group.len());
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    Some(bytes)
}

fn sextet(digit: u8) -> Option<u32> {
    Some(u32::from(match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

fn malformed(what: &'static str) -> OrcaError {
    OrcaError::Malformed { form: "BIN", what }
}

#[cfg(test)]
mod tests {
    use super::decode_base64;

    #[test]
    fn base64_decodes_the_vectors_of_its_standard() {
        // RFC 4648, section 10.
        let vectors = [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ];
        for (text, bytes) in vectors {
            assert_eq!(decode_base64(text.as_bytes()).as_deref(), Some(bytes.as_bytes()));
            let bare = text.trim_end_matches('=');
            assert_eq!(decode_base64(bare.as_bytes()).as_deref(), Some(bytes.as_bytes()));
        }
        for wrong in ["Z", "Zg=", "Z===", "Zm9v=", "Zm-v", "Zm 9", "====", "Z=g="] {
            assert_eq!(decode_base64(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
