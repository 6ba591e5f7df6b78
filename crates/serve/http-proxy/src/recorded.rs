//! The number of a request in the record of a proxy, as its agents are told it.
//!
//! Proxy and agent write it down, and a replay joins their rows by it: so nobody's clock matters.
//! It is told to the replicas of an upstream once one of them has reported its load, and agents
//! take it off. A proxy takes off what came; who makes one up and asks an agent by itself becomes a
//! stranger in that agent's record.

use evenkeel_http::{FieldValue, Fields};
use http::HeaderName;

/// Of a request: its number, 16 hexadecimal digits.
pub(crate) const NUMBER: HeaderName = HeaderName::from_static("evenkeel-number");

const DIGITS: usize = 16;

/// Tells it.
pub(crate) fn tell(headers: &mut Fields, number: u64) {
    let mut digits = [0; DIGITS];
    for (place, digit) in digits.iter_mut().rev().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (4 * place)) as usize & 0xf];
    }
    FieldValue::new(&digits).into_iter().for_each(|value| headers.insert(NUMBER, value));
}

/// Tells none.
pub(crate) fn forget(headers: &mut Fields) {
    headers.remove(NUMBER);
}

/// Takes it off; `None` where there is none, or what is no number of a record.
pub(crate) fn take(headers: &mut Fields) -> Option<u64> {
    let digits = headers.get(NUMBER)?.as_bytes();
    let is_one = digits.len() == DIGITS && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_one);
    let number = text.and_then(|text| u64::from_str_radix(text, 16).ok());
    headers.remove(NUMBER);
    number.filter(|number| i64::try_from(*number).is_ok())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_number_is_taken_off_as_it_was_told_and_whatever_else_is_taken_for_none() {
        for number in [1, 0xfedc_ba98, i64::MAX as u64] {
            let mut headers = Fields::new();
            headers.append(NUMBER, &HeaderValue::from_static("a client's"));
            tell(&mut headers, number);
            assert_eq!(take(&mut headers), Some(number));
            assert!(!headers.contains(NUMBER));
        }
        let mut headers = Fields::new();
        assert_eq!(take(&mut headers), None);
        for wrong in ["", "1", "+000000000000001", "ffffffffffffffff", "00000000000000010"] {
            headers.append(NUMBER, &HeaderValue::try_from(wrong).unwrap());
            assert_eq!(take(&mut headers), None, "{wrong}");
            assert!(!headers.contains(NUMBER), "{wrong}");
        }
        tell(&mut headers, 7);
        forget(&mut headers);
        assert_eq!(headers.len(), 0);
    }
}
