//! One reply of several: the parts of a command that went to several servers.

use super::encode;
use super::hash::slot;
use super::reply::{elements, payload};
use crate::store::keys::RESERVED;

/// Appends an array with one value for each of `count` keys. Each part says where its keys stand
/// among all; what no part tells is null.
pub fn values<'a>(
    parts: impl Iterator<Item = (&'a [usize], &'a [u8])>,
    count: usize,
    out: &mut Vec<u8>,
) {
    let mut values: Vec<&[u8]> = vec![b"_\r\n"; count];
    for (places, reply) in parts {
        for (&place, value) in places.iter().zip(elements(reply)) {
            if let Some(known) = values.get_mut(place) {
                *known = value;
            }
        }
    }
    encode::array(out, count);
    values.iter().for_each(|value| out.extend_from_slice(value));
}

/// Appends an array with the elements of all parts that are to be kept, by the number of the part
/// and what the element holds.
pub fn arrays<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    is_kept: impl Fn(usize, &[u8]) -> bool,
    out: &mut Vec<u8>,
) {
    let (mut all, mut count) = (Vec::new(), 0);
    for (number, reply) in parts.enumerate() {
        for element in elements(reply) {
            if payload(element).is_some_and(|held| is_kept(number, held)) {
                all.extend_from_slice(element);
                count += 1;
            }
        }
    }
    encode::array(out, count);
    out.append(&mut all);
}

/// Of an array of keys those of one slot: so many at most, or how many there are.
pub fn of_slot(keys: &[u8], wanted: u16, listed: Option<usize>, out: &mut Vec<u8>) {
    let is_its = |key: &&[u8]| {
        payload(key).is_some_and(|key| slot(key) == wanted && !key.starts_with(RESERVED))
    };
    let found = elements(keys).filter(is_its);
    let Some(most) = listed else { return encode::integer(out, found.count() as i64) };
    let found: Vec<&[u8]> = found.take(most).collect();
    encode::array(out, found.len());
    found.iter().for_each(|key| out.extend_from_slice(key));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_come_in_the_order_of_their_keys() {
        let parts: [(&[usize], &[u8]); 2] = [
            (&[1, 3], b"*2\r\n$1\r\nb\r\n$1\r\nd\r\n"),
            (&[0, 2, 9], b"*3\r\n$1\r\na\r\n_\r\n_\r\n"),
        ];
        let mut out = Vec::new();
        values(parts.into_iter(), 5, &mut out);
        assert_eq!(out, b"*5\r\n$1\r\na\r\n$1\r\nb\r\n_\r\n$1\r\nd\r\n_\r\n");
    }

    #[test]
    fn keys_of_one_slot_are_counted_or_listed_without_our_own() {
        let mut keys = b"*4\r\n$4\r\n{a}1\r\n$1\r\nb\r\n$4\r\n{a}2\r\n".to_vec();
        encode::bulk(&mut keys, b"evenkeel:epoch");
        let of = |slot: u16, listed: Option<usize>| {
            let mut out = Vec::new();
            of_slot(&keys, slot, listed, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(slot(b"a"), None), ":2\r\n");
        assert_eq!(of(slot(b"a"), Some(1)), "*1\r\n$4\r\n{a}1\r\n");
        assert_eq!(of(slot(b"a"), Some(9)), "*2\r\n$4\r\n{a}1\r\n$4\r\n{a}2\r\n");
        assert_eq!(of(slot(b"evenkeel:epoch"), None), ":0\r\n");
    }

    #[test]
    fn elements_of_all_parts_are_one_array_without_those_that_are_not_kept() {
        let parts: [&[u8]; 3] = [b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"*0\r\n", b"*1\r\n$1\r\na\r\n"];
        let mut out = Vec::new();
        arrays(parts.into_iter(), |number, held| (number, held) != (0, b"a"), &mut out);
        assert_eq!(out, b"*2\r\n$1\r\nb\r\n$1\r\na\r\n");
    }
}
