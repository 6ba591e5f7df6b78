//! Probes in datagrams: what a proxy and an agent say to each other over UDP.
//!
//! `docs/probes.md` has the layout. A question asks an agent for its load report, an answer has
//! it. Both have the same length, so nobody gains by making an agent answer to somebody else. A
//! notice is what nobody asked for in a datagram: a request must wait for the application, and this
//! is the report of that moment. The request itself asks for it, in a header ([`NOTICE`]).
//!
//! **Why AES-128-GCM.** It is in the house (ring, for TLS) and compares tags in constant time. A
//! datagram costs it much less than the system call beside it; that reports are encrypted comes
//! free. No nonce may be used twice with a key in one direction: a proxy counts, an agent answers
//! a nonce once and gives one notice of a request; and each kind has nonces of its own.
//!
//! **The key** is of one worker of one proxy, so no client of an agent can speak for another. It
//! comes with the answer to a probe over HTTP that asked for it ([`HEADER`]), over TLS where the
//! agent has that.

use std::fmt;
use std::time::Duration;

use evenkeel_core::units::{Dimmer, Rate};
use evenkeel_core::{Feedback, Instant, time};
use evenkeel_http::Fields;
use http::{HeaderName, HeaderValue};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::orca;

/// Length of every datagram.
pub const BYTES: usize = 88;
/// By which a key is asked for and told.
pub const HEADER: HeaderName = HeaderName::from_static("evenkeel-probe");

/// By which a request asks for a notice: the key, what only its owners know, and a number.
pub const NOTICE: HeaderName = HeaderName::from_static("evenkeel-notice");

/// With which a key is asked for.
pub const WANTED: HeaderValue = HeaderValue::from_static("1");

const VERSION: u8 = 1;
const MAGIC: [u8; 3] = [b'E', b'K', VERSION];
/// What is readable.
const OPEN: usize = 16;
/// What is encrypted, without its tag.
const REPORT: usize = 56;
const SECRET: usize = 16;
const DAY: Duration = Duration::from_secs(86_400);
/// The bounds of [`orca`].
const COUNT_MAX: u32 = 10_000_000;
const AT_NANOS_MAX: u64 = 1_000_000_000_000_000_000;

/// Which way a datagram goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// To an agent.
    Question = 1,
    /// From an agent.
    Answer = 2,
    /// From an agent, of a request that waits.
    Notice = 3,
}

/// In the place of a kind, for the token of a key: no datagram is of this kind.
const TOKEN: u8 = 4;

/// Why a datagram is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// It has another length, version or kind, or is something else altogether.
    #[error("no datagram of this version and kind")]
    Malformed,
    /// Whoever made it does not have the key.
    #[error("a tag of another key")]
    Foreign,
    /// It is authentic, and no report can say this.
    #[error("a load report with an impossible number")]
    Absurd,
}

/// What everybody can read of a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The number of the key it says it was made with.
    pub key: u32,
    /// Of the question; in a notice the number of the request.
    pub nonce: u64,
}

impl Envelope {
    /// Reads what is not encrypted.
    ///
    /// # Errors
    /// [`Rejected::Malformed`].
    pub fn read(bytes: &[u8], kind: Kind) -> Result<Self, Rejected> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| Rejected::Malformed)?;
        if bytes[..3] != MAGIC || bytes[3] != kind as u8 {
            return Err(Rejected::Malformed);
        }
        let mut fields = Numbers(&bytes[4..]);
        Ok(Self { key: fields.u32(), nonce: fields.u64() })
    }
}

/// A key that a proxy and an agent share.
pub struct ProbeKey {
    id: u32,
    cipher: LessSafeKey,
    /// By which a request shows that its sender has the key.
    token: u64,
}

/// What a request says that wants a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wish {
    /// The number of the key.
    pub key: u32,
    token: u64,
    /// The number of the request.
    pub number: u64,
}

impl Wish {
    /// Takes it off a request, which the application gets without it. `None` if it has none, or one
    /// that cannot be read.
    pub fn take(headers: &mut Fields) -> Option<Self> {
        let value = headers.take(NOTICE)?;
        let mut words = value.to_str().ok()?.split(' ');
        let (key, token, number) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() {
            return None;
        }
        Some(Self {
            key: hexadecimal(key)?,
            token: hexadecimal(token)?,
            number: hexadecimal(number)?,
        })
    }
}

/// A number with all of its digits, and nothing else.
fn hexadecimal<T: TryFrom<u128>>(digits: &str) -> Option<T> {
    let is_one = digits.len() == 2 * size_of::<T>();
    if !is_one || !digits.bytes().all(|it| it.is_ascii_hexdigit()) {
        return None;
    }
    T::try_from(u128::from_str_radix(digits, 16).ok()?).ok()
}

impl fmt::Debug for ProbeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProbeKey({})", self.id)
    }
}

impl ProbeKey {
    /// A new one with this number, and how a proxy is told; `None` where the operating system has
    /// no randomness.
    pub fn generate(id: u32) -> Option<(Self, HeaderValue)> {
        let mut secret = [0; SECRET];
        SystemRandom::new().fill(&mut secret).ok()?;
        let secret = u128::from_be_bytes(secret);
        let words = HeaderValue::try_from(format!("{VERSION} {id:08x} {secret:032x}"));
        let mut words = words.expect("digits are a header value");
        words.set_sensitive(true);
        Some((Self::of(id, secret), words))
    }

    /// Whether a request asks for a key of this version.
    pub fn is_wanted(headers: &Fields) -> bool {
        headers.get(HEADER).is_some_and(|value| value == WANTED)
    }

    /// The key that an answer tells, if any.
    pub fn take(headers: &mut Fields) -> Option<Self> {
        let value = headers.take(HEADER)?;
        let mut words = value.to_str().ok()?.split(' ');
        let (version, id, secret) = (words.next()?, words.next()?, words.next()?);
        if version != WANTED || words.next().is_some() {
            return None;
        }
        Some(Self::of(hexadecimal(id)?, hexadecimal(secret)?))
    }

    fn of(id: u32, secret: u128) -> Self {
        let key = UnboundKey::new(&AES_128_GCM, &secret.to_be_bytes());
        let cipher = LessSafeKey::new(key.expect("16 bytes are a key of AES-128"));
        let (nonce, aad) = (of_cipher(TOKEN, 0), Aad::from(open(TOKEN, id, 0)));
        let tag = cipher.seal_in_place_separate_tag(nonce, aad, &mut []);
        let tag = tag.expect("nothing is not too long for a cipher");
        let token = Numbers(tag.as_ref()).u64();
        Self { id, cipher, token }
    }

    /// Asks for a notice of the request with this number. No number may come twice.
    pub fn wish(&self, number: u64) -> HeaderValue {
        let (id, token) = (self.id, self.token);
        let words = HeaderValue::try_from(format!("{id:08x} {token:016x} {number:016x}"));
        let mut words = words.expect("digits are a header value");
        words.set_sensitive(true); // nor does it come again: HTTP/2 is not to keep it
        words
    }

    /// Whether who wishes this has the key.
    pub const fn is_owners(&self, wish: &Wish) -> bool {
        wish.key == self.id && wish.token == self.token
    }

    /// Tells of the request with this number that it waits. No number may come twice.
    pub fn notice(&self, number: u64, report: &Feedback) -> [u8; BYTES] {
        self.seal(Kind::Notice, number, written(report))
    }

    /// Asks for a report. No nonce may come twice.
    pub fn question(&self, nonce: u64) -> [u8; BYTES] {
        self.seal(Kind::Question, nonce, [0; REPORT])
    }

    /// Whether a question was made with this key.
    pub fn is_authentic(&self, question: &[u8; BYTES]) -> bool {
        self.open(Kind::Question, question).is_some()
    }

    /// Answers a question with a report. No nonce may come twice.
    ///
    /// What no reader would accept is written as the nearest that one does.
    pub fn answer(&self, nonce: u64, report: &Feedback) -> [u8; BYTES] {
        self.seal(Kind::Answer, nonce, written(report))
    }

    /// The report of an answer or a notice.
    ///
    /// # Errors
    /// When it is not of this key and kind, or says what cannot be.
    pub fn read(&self, datagram: &[u8], kind: Kind) -> Result<Feedback, Rejected> {
        let bytes: &[u8; BYTES] = datagram.try_into().map_err(|_| Rejected::Malformed)?;
        if Envelope::read(datagram, kind)?.key != self.id {
            return Err(Rejected::Foreign);
        }
        let report = self.open(kind, bytes).ok_or(Rejected::Foreign)?;
        read(&report).map_err(|()| Rejected::Absurd)
    }

    fn seal(&self, kind: Kind, nonce: u64, mut report: [u8; REPORT]) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let (kind, open) = (kind as u8, open(kind as u8, self.id, nonce));
        let (nonce, aad) = (of_cipher(kind, nonce), Aad::from(open));
        let tag = self.cipher.seal_in_place_separate_tag(nonce, aad, &mut report);
        let tag = tag.expect("a datagram is not too long for a cipher");
        bytes[..OPEN].copy_from_slice(&open);
        bytes[OPEN..OPEN + REPORT].copy_from_slice(&report);
        bytes[OPEN + REPORT..].copy_from_slice(tag.as_ref());
        bytes
    }

    fn open(&self, kind: Kind, bytes: &[u8; BYTES]) -> Option<[u8; REPORT]> {
        let nonce = Numbers(&bytes[8..]).u64();
        let mut sealed = *bytes;
        let (open, sealed) = sealed.split_at_mut(OPEN);
        let nonce = of_cipher(kind as u8, nonce);
        let report = self.cipher.open_in_place(nonce, Aad::from(open), sealed);
        (*report.ok()?).try_into().ok()
    }
}

/// What everybody can read of a datagram, as it is authenticated.
fn open(kind: u8, id: u32, nonce: u64) -> [u8; OPEN] {
    let mut bytes = [0; OPEN];
    bytes[..3].copy_from_slice(&MAGIC);
    bytes[3] = kind;
    bytes[4..8].copy_from_slice(&id.to_be_bytes());
    bytes[8..].copy_from_slice(&nonce.to_be_bytes());
    bytes
}

fn of_cipher(kind: u8, nonce: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[3] = kind;
    bytes[4..].copy_from_slice(&nonce.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

/// Bits of what is present.
const HAS_SERVICE_TIME: u32 = 1;
const HAS_CONCURRENCY: u32 = 1 << 1;
const HAS_LATENCY: u32 = 1 << 2;
const HAS_ARRIVAL_RATE: u32 = 1 << 3;
const HAS_DIMMER: u32 = 1 << 4;
const HAS_REPORTED_AT: u32 = 1 << 5;

fn written(report: &Feedback) -> [u8; REPORT] {
    let bit = |is_there: bool, bit: u32| if is_there { bit } else { 0 };
    let present = bit(report.service_time.is_some(), HAS_SERVICE_TIME)
        | bit(report.concurrency.is_some(), HAS_CONCURRENCY)
        | bit(report.latency.is_some(), HAS_LATENCY)
        | bit(report.arrival_rate.is_some(), HAS_ARRIVAL_RATE)
        | bit(report.dimmer.is_some(), HAS_DIMMER)
        | bit(report.reported_at.is_some(), HAS_REPORTED_AT);
    let service_time = report.service_time.map(|it| it.clamp(Duration::from_nanos(1), DAY));
    let latency = report.latency.unwrap_or_default().min(DAY);
    let count = |count: u32| count.min(COUNT_MAX);
    let concurrency = report.concurrency.map_or(0, |slots| count(slots).max(1));
    let counts = [present, count(report.queue_length), count(report.in_service), concurrency];
    let numbers = [
        service_time.map_or(0, time::nanos),
        time::nanos(latency),
        report.arrival_rate.map_or(0, |rate| rate.value().to_bits()),
        report.dimmer.map_or(0, |dimmer| dimmer.value().to_bits()),
        report.reported_at.map_or(0, |at| at.as_nanos().min(AT_NANOS_MAX)),
    ];
    let mut bytes = [0; REPORT];
    let (of_counts, of_numbers) = bytes.split_at_mut(16);
    for (place, count) in of_counts.chunks_exact_mut(4).zip(counts) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    for (place, number) in of_numbers.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

/// A number that cannot be is worse than none, whoever tells it: see [`orca`].
fn read(bytes: &[u8; REPORT]) -> Result<Feedback, ()> {
    let mut fields = Numbers(bytes);
    let present = fields.u32();
    let (queue_length, in_service, concurrency) = (fields.u32(), fields.u32(), fields.u32());
    let (service_time, latency) = (fields.u64(), fields.u64());
    let (rate, dimmer) = (f64::from_bits(fields.u64()), f64::from_bits(fields.u64()));
    let reported_at = fields.u64();
    let has = |bit: u32| present & bit != 0;
    let rate = has(HAS_ARRIVAL_RATE).then(|| Rate::new(rate)).transpose();
    let dimmer = has(HAS_DIMMER).then(|| Dimmer::new(dimmer)).transpose();
    let report = Feedback {
        queue_length,
        in_service,
        concurrency: has(HAS_CONCURRENCY).then_some(concurrency),
        service_time: has(HAS_SERVICE_TIME).then_some(Duration::from_nanos(service_time)),
        latency: has(HAS_LATENCY).then_some(Duration::from_nanos(latency)),
        arrival_rate: rate.map_err(drop)?,
        dimmer: dimmer.map_err(drop)?,
        reported_at: has(HAS_REPORTED_AT).then_some(Instant::from_nanos(reported_at)),
    };
    orca::check(&report).map_err(drop)?;
    Ok(report)
}

/// Numbers in a row.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().expect("the length was checked");
        self.0 = rest;
        *first
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }
}

#[cfg(test)]
mod tests;
