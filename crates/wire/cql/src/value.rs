//! Values of CQL's types, as rows and variables hold them (section 6 of the specification).
//!
//! Readers say `None` for bytes that are no value of the type.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::BufMut;

use super::read::Reader;
use super::write;

/// `text`, `varchar`, `ascii`.
pub fn text(bytes: &[u8]) -> Option<&str> {
    core::str::from_utf8(bytes).ok()
}

/// `int`.
pub fn int(bytes: &[u8]) -> Option<i32> {
    bytes.try_into().ok().map(i32::from_be_bytes)
}

/// `bigint`; `timestamp` in milliseconds since 1970.
pub fn bigint(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

/// `double`.
pub fn double(bytes: &[u8]) -> Option<f64> {
    bytes.try_into().ok().map(f64::from_be_bytes)
}

/// `boolean`.
pub fn boolean(bytes: &[u8]) -> Option<bool> {
    match bytes {
        [byte] => Some(*byte != 0),
        _ => None,
    }
}

/// `uuid`, `timeuuid`.
pub fn uuid(bytes: &[u8]) -> Option<[u8; 16]> {
    bytes.try_into().ok()
}

/// `inet`.
pub fn inet(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => bytes.try_into().ok().map(|octets: [u8; 4]| IpAddr::V4(Ipv4Addr::from(octets))),
        16 => bytes.try_into().ok().map(|octets: [u8; 16]| IpAddr::V6(Ipv6Addr::from(octets))),
        _ => None,
    }
}

/// `set<…>`, `list<…>`: the bytes of each element.
pub fn list(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = Reader::new(bytes);
    let count = reader.count("").ok()?;
    let list = (0..count).map(|_| reader.bytes("").ok()?).collect::<Option<Vec<_>>>()?;
    reader.rest().is_empty().then_some(list)
}

/// `set<text>`, `list<text>`.
pub fn texts(bytes: &[u8]) -> Option<Vec<&str>> {
    list(bytes)?.into_iter().map(text).collect()
}

/// `map<text, text>`, in the order it is stored.
pub fn text_map(bytes: &[u8]) -> Option<Vec<(&str, &str)>> {
    let mut reader = Reader::new(bytes);
    let count = reader.count("").ok()?;
    let mut one = || text(reader.bytes("").ok()??);
    let map = (0..count).map(|_| Some((one()?, one()?))).collect::<Option<Vec<_>>>()?;
    reader.rest().is_empty().then_some(map)
}

/// The bytes of an `inet`.
pub fn write_inet(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The bytes of a `set<…>` or `list<…>` of these elements. A set's are written in the order they
/// are given: the type's.
///
/// # Panics
/// Above 2³¹ elements or 2 GiB in one.
pub fn write_list<'a>(elements: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_i32(i32::try_from(elements.len()).expect("there are fewer elements"));
    elements.for_each(|element| write::bytes(&mut out, Some(element)));
    out
}

/// The bytes of a `set<text>` or `list<text>`.
///
/// # Panics
/// As [`write_list`].
pub fn write_texts<T: AsRef<str>>(texts: &[T]) -> Vec<u8> {
    write_list(texts.iter().map(|text| text.as_ref().as_bytes()))
}

/// The bytes of a `map<text, text>`.
///
/// # Panics
/// As [`write_list`].
pub fn write_text_map<K: AsRef<str>, V: AsRef<str>>(map: &[(K, V)]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_i32(i32::try_from(map.len()).expect("there are fewer entries"));
    for (key, value) in map {
        write::bytes(&mut out, Some(key.as_ref().as_bytes()));
        write::bytes(&mut out, Some(value.as_ref().as_bytes()));
    }
    out
}
