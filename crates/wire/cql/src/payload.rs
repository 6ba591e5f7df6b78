//! What comes before the message in a body: the number of a tracing, warnings, and a map of the
//! parties' own use (custom payload).

use bytes::{BufMut, Bytes, BytesMut};

use super::envelope::{Envelope, Flags};
use super::error::Malformed;
use super::read::Reader;
use super::write;

/// A body in its parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parts<'a> {
    /// The number of the tracing.
    pub tracing_id: Option<[u8; 16]>,
    /// Warnings: the checked bytes of a `[string list]`.
    warnings: &'a [u8],
    /// The custom payload; empty where there is none.
    pub payload: Payload<'a>,
    /// The message.
    pub message: &'a [u8],
}

/// A custom payload: the checked bytes of a `[bytes map]` without its count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Payload<'a> {
    bytes: &'a [u8],
    count: u16,
}

/// Takes a body apart.
///
/// # Errors
/// It is not what the flags say.
pub fn split(envelope: &Envelope) -> Result<Parts<'_>, Malformed> {
    let (flags, is_response) = (envelope.flags, envelope.is_response);
    let mut reader = Reader::new(&envelope.body);
    let mut tracing_id = None;
    if is_response && flags.has(Flags::TRACING) {
        tracing_id = Some(reader.uuid("id of the tracing")?);
    }
    let start = reader.position();
    if is_response && flags.has(Flags::WARNING) {
        for _ in 0..reader.short("number of warnings")? {
            reader.string("warning")?;
        }
    }
    let warnings = reader.since(start);
    let mut payload = Payload::default();
    if flags.has(Flags::CUSTOM_PAYLOAD) {
        payload = Payload::read(&mut reader)?;
    }
    Ok(Parts { tracing_id, warnings, payload, message: reader.rest() })
}

impl<'a> Parts<'a> {
    /// The warnings.
    pub fn warnings(&self) -> Vec<&'a str> {
        Reader::new(self.warnings).string_list("warnings").unwrap_or_default()
    }
}

impl<'a> Payload<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let count = reader.short("number of entries of the custom payload")?;
        let start = reader.position();
        for _ in 0..count {
            reader.string("name in the custom payload")?;
            reader.bytes("bytes in the custom payload")?;
        }
        Ok(Self { bytes: reader.since(start), count })
    }

    /// How many entries.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each entry in its order.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, Option<&'a [u8]>)> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| Some((reader.string("").ok()?, reader.bytes("").ok()?)))
    }

    /// The bytes of this name.
    pub fn named(&self, name: &str) -> Option<&'a [u8]> {
        self.iter().find(|&(other, _)| other == name).and_then(|(_, bytes)| bytes)
    }
}

/// The message of an envelope's body, sharing its memory.
///
/// # Errors
/// The body is not what the flags say.
pub fn message(envelope: &Envelope) -> Result<Bytes, Malformed> {
    let length = split(envelope)?.message.len();
    Ok(envelope.body.slice(envelope.body.len() - length..))
}

/// Adds an entry to the custom payload, or replaces the one of this name.
///
/// # Errors
/// The body is not what the flags say, or has 65,535 entries already.
///
/// # Panics
/// When the name is longer than 65,535 bytes.
pub fn add(envelope: &Envelope, name: &str, bytes: &[u8]) -> Result<Envelope, Malformed> {
    rebuild(envelope, name, Some(bytes))
}

/// Removes the entry of this name from the custom payload, and the payload when nothing is left of
/// it. An envelope that has no such entry shares its memory with the one that is given.
///
/// # Errors
/// The body is not what the flags say.
pub fn strip(envelope: &Envelope, name: &str) -> Result<Envelope, Malformed> {
    if !split(envelope)?.payload.iter().any(|(other, _)| other == name) {
        return Ok(envelope.clone());
    }
    rebuild(envelope, name, None)
}

fn rebuild(envelope: &Envelope, name: &str, bytes: Option<&[u8]>) -> Result<Envelope, Malformed> {
    let parts = split(envelope)?;
    let kept = || parts.payload.iter().filter(|&(other, _)| other != name);
    let count = kept().count() + usize::from(bytes.is_some());
    let Ok(count) = u16::try_from(count) else {
        let problem = super::Problem::TooMany { count, max: usize::from(u16::MAX) };
        return Err(Malformed { what: "number of entries of the custom payload", at: 0, problem });
    };
    let mut flags = envelope.flags.without(Flags::CUSTOM_PAYLOAD);
    if count == 0 && parts.tracing_id.is_none() && parts.warnings.is_empty() {
        return Ok(Envelope { flags, body: message(envelope)?, ..envelope.clone() });
    }
    let added = bytes.map_or(0, |bytes| name.len() + bytes.len() + 8);
    let mut body = BytesMut::with_capacity(envelope.body.len() + added);
    if let Some(id) = parts.tracing_id {
        body.put_slice(&id);
    }
    body.put_slice(parts.warnings);
    if count > 0 {
        flags = flags.with(Flags::CUSTOM_PAYLOAD);
        body.put_u16(count);
        for (name, bytes) in kept().chain(bytes.map(|bytes| (name, Some(bytes)))) {
            write::string(&mut body, name);
            write::bytes(&mut body, bytes);
        }
    }
    body.put_slice(parts.message);
    Ok(Envelope { flags, body: body.freeze(), ..envelope.clone() })
}
