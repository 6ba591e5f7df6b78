//! Records of services that a server is told to have (RFC 2136), signed (RFC 8945).
//!
//! One message takes all SRV records of a name away and puts others in their place: a server does
//! all of it or nothing. It goes over TCP, where an answer cannot be lost without notice. Told
//! twice, it changes nothing the second time, so whoever is in doubt says it again.
//!
//! **Signatures** are HMAC-SHA-256, which every server has. With a key the answer must be signed
//! too: else whoever sits on the way could say that all went well. A refusal for another key or
//! another clock cannot be signed, and is believed as a refusal.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use ring::hmac;

use crate::{Service, over_tcp, random};

const SRV: u16 = 33;
const SOA: u16 = 6;
const TSIG: u16 = 250;
const CLASS_IN: u16 = 1;
const CLASS_ANY: u16 = 255;
/// The bits of a header that say "update", and the one that says "answer".
const OPCODE_UPDATE: u16 = 5 << 11;
const ANSWER: u16 = 1 << 15;
const OPCODE_MASK: u16 = 15 << 11;
const HEADER_BYTES: usize = 12;
/// How far the clocks of both ends may be apart: what RFC 8945 recommends.
const FUDGE_S: u16 = 300;
const ALGORITHM: &str = "hmac-sha256";
/// The longest name as bytes, with its lengths and the root.
const NAME_BYTES_MAX: usize = 255;

/// Which records a name has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The zone that the name is in: that of its SOA record.
    pub zone: String,
    /// Whose records these are, such as `_http._tcp.shop.example`.
    pub name: String,
    /// How long others may remember them.
    pub ttl: Duration,
    /// All SRV records that the name has afterwards.
    pub services: Vec<Service>,
}

/// A key that the server knows under the same name.
pub struct Key {
    name: String,
    secret: hmac::Key,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Key").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Key {
    /// A key for HMAC-SHA-256.
    pub fn new(name: &str, secret: &[u8]) -> Self {
        Self { name: name.to_owned(), secret: hmac::Key::new(hmac::HMAC_SHA256, secret) }
    }
}

/// Why it is not known that a server has the records.
#[derive(Debug, thiserror::Error)]
pub enum UpdateError {
    /// A zone, name, host or key can be no name.
    #[error("{0:?} is no name of DNS, expected labels of 1 to 63 bytes and 253 in all")]
    NoName(String),
    /// There is no answer in time: the server is dead or hangs, and may have done it or not.
    #[error("the DNS server {server} sent no answer within {} s", .within.as_secs_f64())]
    Timeout {
        /// Which.
        server: SocketAddr,
        /// The time it had.
        within: Duration,
    },
    /// It did not do it.
    #[error("the DNS server {server} refused the update: {why}")]
    Refused {
        /// Which.
        server: SocketAddr,
        /// What it said, and the likely cause.
        why: &'static str,
    },
    /// It sent what is no answer to this, or what the key did not sign.
    #[error("the DNS server {server} sent {what}")]
    Malformed {
        /// Which.
        server: SocketAddr,
        /// What came.
        what: &'static str,
    },
    /// It cannot be reached, or the connection broke off.
    #[error("the DNS server {server} cannot be told: {error}")]
    Unreachable {
        /// Which.
        server: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
}

/// Tells a server which records a name has, and waits until it says that it has them.
///
/// # Errors
/// When it does not say so within this time, or says that it does not.
pub async fn update(
    server: SocketAddr,
    update: &Update,
    key: Option<&Key>,
    within: Duration,
) -> Result<(), UpdateError> {
    let (id, at) = (random(&update.name), unix_s());
    let (message, mac) = message(id, update, key, at)?;
    let said = tokio::time::timeout(within, over_tcp(server, &message)).await;
    let answer = match said {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => return Err(UpdateError::Unreachable { server, error }),
        Err(_) => return Err(UpdateError::Timeout { server, within }),
    };
    let signed = key.map(|key| (key, mac.as_slice()));
    match read(&answer, id, signed, unix_s()) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(why)) => Err(UpdateError::Refused { server, why }),
        Err(what) => Err(UpdateError::Malformed { server, what }),
    }
}

fn unix_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The message, and the signature in it; none without a key.
fn message(
    id: u16,
    update: &Update,
    key: Option<&Key>,
    at: u64,
) -> Result<(Vec<u8>, Vec<u8>), UpdateError> {
    let (zone, name) = (wire(&update.zone)?, wire(&update.name)?);
    let ttl = update.ttl.as_secs().min(i32::MAX as u64) as u32;
    let mut bytes = Vec::new();
    let records = update.services.len() as u16 + 1;
    puts(&mut bytes, &[id, OPCODE_UPDATE, 1, 0, records, 0]);
    bytes.extend(&zone);
    puts(&mut bytes, &[SOA, CLASS_IN]);
    // Whatever was there goes.
    bytes.extend(&name);
    puts(&mut bytes, &[SRV, CLASS_ANY, 0, 0, 0]);
    for service in &update.services {
        let host = wire(&service.host)?;
        bytes.extend(&name);
        puts(&mut bytes, &[SRV, CLASS_IN]);
        bytes.extend(ttl.to_be_bytes());
        puts(&mut bytes, &[6 + host.len() as u16]);
        puts(&mut bytes, &[service.priority, service.weight, service.port]);
        bytes.extend(host);
    }
    let Some(key) = key else { return Ok((bytes, Vec::new())) };
    let tag = sign(key, &[], &bytes, &Times { at, fudge: FUDGE_S, error: 0, other: &[] })?;
    let (name, algorithm) = (wire(&key.name)?, wire(ALGORITHM)?);
    bytes[11] = 1; // one further record
    bytes.extend(name);
    puts(&mut bytes, &[TSIG, CLASS_ANY, 0, 0]);
    puts(&mut bytes, &[(algorithm.len() + 16 + tag.len()) as u16]);
    bytes.extend(algorithm);
    bytes.extend(&at.to_be_bytes()[2..]);
    puts(&mut bytes, &[FUDGE_S, tag.len() as u16]);
    bytes.extend(&tag);
    puts(&mut bytes, &[id, 0, 0]);
    Ok((bytes, tag))
}

/// What a signature has of its record beside the names.
struct Times<'a> {
    at: u64,
    fudge: u16,
    error: u16,
    other: &'a [u8],
}

/// The signature of a message; `before` is that of the request, for its answer.
fn sign(
    key: &Key,
    before: &[u8],
    message: &[u8],
    times: &Times<'_>,
) -> Result<Vec<u8>, UpdateError> {
    let signed = signed(key, before, message, times)?;
    Ok(hmac::sign(&key.secret, &signed).as_ref().to_vec())
}

/// The bytes that are signed (RFC 8945, 4.3).
fn signed(
    key: &Key,
    before: &[u8],
    message: &[u8],
    times: &Times<'_>,
) -> Result<Vec<u8>, UpdateError> {
    let mut bytes = Vec::new();
    if !before.is_empty() {
        puts(&mut bytes, &[before.len() as u16]);
        bytes.extend(before);
    }
    bytes.extend(message);
    bytes.extend(wire(&key.name)?);
    puts(&mut bytes, &[CLASS_ANY, 0, 0]);
    bytes.extend(wire(ALGORITHM)?);
    bytes.extend(&times.at.to_be_bytes()[2..]);
    puts(&mut bytes, &[times.fudge, times.error, times.other.len() as u16]);
    bytes.extend(times.other);
    Ok(bytes)
}

fn puts(bytes: &mut Vec<u8>, numbers: &[u16]) {
    numbers.iter().for_each(|number| bytes.extend(number.to_be_bytes()));
}

/// A name as bytes, in small letters as signatures want it, without compression.
fn wire(name: &str) -> Result<Vec<u8>, UpdateError> {
    let error = || UpdateError::NoName(name.to_owned());
    let mut bytes = Vec::new();
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        if !(1..=63).contains(&label.len()) || !label.is_ascii() {
            return Err(error());
        }
        bytes.push(label.len() as u8);
        bytes.extend(label.to_ascii_lowercase().into_bytes());
    }
    bytes.push(0);
    if bytes.len() > NAME_BYTES_MAX { Err(error()) } else { Ok(bytes) }
}

/// What an answer says: done, or why not. The error is what it is instead of an answer.
fn read(
    answer: &[u8],
    id: u16,
    signed_by: Option<(&Key, &[u8])>,
    now_s: u64,
) -> Result<Result<(), &'static str>, &'static str> {
    let mut reader = Reader { bytes: answer, at: 0 };
    let mut header = [0; 6];
    for number in &mut header {
        *number = reader.number().ok_or("what is no DNS message")?;
    }
    let [its_id, flags, ..] = header;
    if its_id != id || flags & ANSWER == 0 || flags & OPCODE_MASK != OPCODE_UPDATE {
        return Err("the answer to something else");
    }
    let Some((key, mac)) = signed_by else { return Ok(verdict(flags & 15)) };
    let tsig = reader.signature(&header).ok_or("what is no DNS message")?;
    let Some(tsig) = tsig else {
        // Who does not know the key cannot sign that it refuses.
        return match verdict(flags & 15) {
            Ok(()) => Err("an answer without a signature"),
            refused => Ok(refused),
        };
    };
    if tsig.error != 0 {
        return Ok(Err(key_error(tsig.error)));
    }
    let mut message = answer[..tsig.begins].to_vec();
    message[10..12].copy_from_slice(&(header[5] - 1).to_be_bytes());
    let times = Times { at: tsig.at, fudge: tsig.fudge, error: 0, other: &[] };
    let bytes = signed(key, mac, &message, &times).map_err(|_| "what is no DNS message")?;
    if hmac::verify(&key.secret, &bytes, tsig.mac).is_err() {
        return Err("an answer that the key did not sign");
    }
    if now_s.abs_diff(tsig.at) > tsig.fudge.into() {
        return Err("an answer of another time (are both clocks right?)");
    }
    Ok(verdict(flags & 15))
}

const fn verdict(code: u16) -> Result<(), &'static str> {
    match code {
        0 => Ok(()),
        1 => Err("FORMERR"),
        2 => Err("SERVFAIL (can it write the zone's journal?)"),
        4 => Err("NOTIMP: it takes no updates"),
        5 => Err("REFUSED (does the zone allow updates with this key, or from this address?)"),
        9 => Err("NOTAUTH (is it the primary of this zone, and does it know the key?)"),
        10 => Err("NOTZONE (is the name within the zone?)"),
        _ => Err("an unexpected RCODE"),
    }
}

const fn key_error(error: u16) -> &'static str {
    match error {
        16 => "BADSIG (is the secret the same at both ends?)",
        17 => "BADKEY (does it know the key by this name?)",
        18 => "BADTIME (are both clocks right?)",
        _ => "an unexpected error of the signature",
    }
}

/// A signature as it came.
struct Tsig<'a> {
    /// Where its record begins.
    begins: usize,
    at: u64,
    fudge: u16,
    mac: &'a [u8],
    error: u16,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        let bytes = self.take(2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    /// Passes over a name, whatever its compression leads to.
    fn name(&mut self) -> Option<()> {
        loop {
            let length = self.take(1)?[0];
            match length >> 6 {
                0 if length == 0 => return Some(()),
                0 => _ = self.take(length.into())?,
                3 => return self.take(1).map(|_| ()),
                _ => return None,
            }
        }
    }

    /// The last record, if it is a signature; `None` for what is no message.
    fn signature(&mut self, header: &[u16; 6]) -> Option<Option<Tsig<'a>>> {
        self.at = HEADER_BYTES;
        for _ in 0..header[2] {
            self.name()?;
            self.take(4)?;
        }
        let records: u32 = header[3..].iter().map(|count| u32::from(*count)).sum();
        for number in 0..records {
            let begins = self.at;
            self.name()?;
            let kind = self.number()?;
            self.take(6)?;
            let length = self.number()?;
            if number + 1 == records && header[5] > 0 && kind == TSIG {
                self.name()?;
                let at = self.take(6)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                let (fudge, size) = (self.number()?, self.number()?);
                let mac = self.take(size.into())?;
                self.number()?;
                return Some(Some(Tsig { begins, at, fudge, mac, error: self.number()? }));
            }
            self.take(length.into())?;
        }
        Some(None)
    }
}

#[cfg(test)]
mod tests;
