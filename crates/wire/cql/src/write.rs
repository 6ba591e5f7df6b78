//! The protocol's notations, written.
//!
//! What is written here is Evenkeel's own: lengths that their field cannot hold are a defect of the
//! caller, and end the program rather than being cut.

use std::net::IpAddr;

use bytes::{BufMut, Bytes};

use super::envelope::{Envelope, Opcode};
use super::error::{ErrorCode, WireError};
use super::read::{Inet, Value};
use evenkeel_core::request::ring::Consistency;

pub(crate) fn short_length(length: usize) -> u16 {
    u16::try_from(length).expect("what is written fits its field of two bytes")
}

fn int_length(length: usize) -> i32 {
    i32::try_from(length).expect("what is written fits its field of four bytes")
}

/// `[string]`.
///
/// # Panics
/// Above 65,535 bytes.
pub fn string(out: &mut impl BufMut, text: &str) {
    short_bytes(out, text.as_bytes());
}

/// As much of a text as a `[string]` holds.
pub fn string_cut(out: &mut impl BufMut, text: &str) {
    let longest = text.len().min(usize::from(u16::MAX));
    let end = (0..=longest).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    string(out, &text[..end]);
}

/// `[long string]`.
///
/// # Panics
/// Above 2 GiB; so do all others whose length has four bytes.
pub fn long_string(out: &mut impl BufMut, text: &str) {
    bytes(out, Some(text.as_bytes()));
}

/// `[bytes]`.
///
/// # Panics
/// Above 2 GiB.
pub fn bytes(out: &mut impl BufMut, bytes: Option<&[u8]>) {
    match bytes {
        None => out.put_i32(-1),
        Some(bytes) => {
            out.put_i32(int_length(bytes.len()));
            out.put_slice(bytes);
        }
    }
}

/// `[value]`.
///
/// # Panics
/// Above 2 GiB.
pub fn value(out: &mut impl BufMut, value: Value<'_>) {
    match value {
        Value::Bytes(these) => bytes(out, Some(these)),
        Value::Null => out.put_i32(-1),
        Value::Unset => out.put_i32(-2),
    }
}

/// `[short bytes]`.
///
/// # Panics
/// Above 65,535 bytes.
pub fn short_bytes(out: &mut impl BufMut, bytes: &[u8]) {
    out.put_u16(short_length(bytes.len()));
    out.put_slice(bytes);
}

/// `[string list]`.
///
/// # Panics
/// Above 65,535 entries or bytes in one.
pub fn string_list(out: &mut impl BufMut, list: &[&str]) {
    out.put_u16(short_length(list.len()));
    list.iter().for_each(|text| string(out, text));
}

/// `[string map]`.
///
/// # Panics
/// Above 65,535 entries or bytes in one.
pub fn string_map(out: &mut impl BufMut, map: &[(&str, &str)]) {
    out.put_u16(short_length(map.len()));
    for (key, value) in map {
        string(out, key);
        string(out, value);
    }
}

/// `[string multimap]`.
///
/// # Panics
/// Above 65,535 entries or bytes in one.
pub fn string_multimap(out: &mut impl BufMut, map: &[(&str, Vec<&str>)]) {
    out.put_u16(short_length(map.len()));
    for (key, values) in map {
        string(out, key);
        string_list(out, values);
    }
}

/// `[inetaddr]`.
pub fn address(out: &mut impl BufMut, address: IpAddr) {
    match address {
        IpAddr::V4(address) => {
            out.put_u8(4);
            out.put_slice(&address.octets());
        }
        IpAddr::V6(address) => {
            out.put_u8(16);
            out.put_slice(&address.octets());
        }
    }
}

/// `[inet]`.
pub fn inet(out: &mut impl BufMut, inet: Inet) {
    address(out, inet.address);
    out.put_u32(inet.port);
}

/// `[consistency]`.
pub fn consistency(out: &mut impl BufMut, level: Consistency) {
    out.put_u16(level as u16);
}

/// The body of an ERROR that has no fields beside its message. Messages that are too long for
/// their field are cut.
pub fn error(code: ErrorCode, message: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(6 + message.len());
    body.put_u32(code.number());
    string_cut(&mut body, message);
    body
}

impl WireError {
    /// The ERROR for a client that sent it; the connection is closed after it.
    pub fn answer(&self) -> Envelope {
        let body = error(self.code(), &self.to_string());
        Envelope::new(self.version, self.stream, Opcode::Error, Bytes::from(body))
    }
}
