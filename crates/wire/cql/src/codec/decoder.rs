//! A connection's bytes cut into envelopes.

use bytes::{Buf, Bytes, BytesMut};

use super::super::envelope::{Envelope, Flags, HEADER_BYTES, Opcode, RESPONSE, Version};
use super::super::error::{Fault, WireError};
use super::compression::Compression;
use super::segment::{self, Format};
use super::{Limits, Side};

/// Cuts the bytes of one direction of one connection into envelopes.
///
/// After an error the connection cannot be read further: the same error comes again.
#[derive(Debug)]
pub struct Decoder {
    rules: Rules,
    compression: Option<Compression>,
    phase: Phase,
    error: Option<WireError>,
}

#[derive(Debug)]
enum Phase {
    /// Envelopes one after the other.
    Plain,
    /// A STARTUP came: what follows is read as its answer says.
    Held,
    /// A STARTUP of v5 was sent: segments follow a READY or AUTHENTICATE.
    Awaiting(Format),
    Segments(Segments),
}

#[derive(Debug)]
struct Segments {
    format: Format,
    /// Whole envelopes of the segment that is read.
    whole: Bytes,
    /// Parts of an envelope that is longer than a segment.
    parts: BytesMut,
}

/// What headers are checked against.
#[derive(Debug)]
struct Rules {
    side: Side,
    limits: Limits,
    /// What the connection is started with.
    version: Option<Version>,
    /// Whether all that comes has that version: a node that refuses STARTUP may do so in another.
    is_started: bool,
}

/// What an envelope's header says, checked.
struct Header {
    version: Version,
    is_response: bool,
    flags: Flags,
    stream: i16,
    opcode: Opcode,
    body_bytes: usize,
}

impl Decoder {
    /// For a connection that is not started.
    pub const fn new(side: Side, limits: Limits) -> Self {
        let rules = Rules { side, limits, version: None, is_started: false };
        Self { rules, compression: None, phase: Phase::Plain, error: None }
    }

    /// What the connection is started with.
    ///
    /// A server ([`Side::Client`] sends) says so when it answers STARTUP with READY or
    /// AUTHENTICATE; until then nothing after STARTUP is read. A client says so when it sends
    /// STARTUP: the answer of v5 still has no segment, and that READY or AUTHENTICATE came is seen
    /// here.
    ///
    /// # Panics
    /// When the version has no such compression.
    pub fn start(&mut self, version: Version, compression: Option<Compression>) {
        assert!(
            version == Version::V4 || compression != Some(Compression::Snappy),
            "v5 has no compression but LZ4"
        );
        self.rules.version = Some(version);
        self.rules.is_started = self.rules.side == Side::Client;
        self.compression = compression;
        let format = if compression.is_some() { Format::Lz4 } else { Format::Plain };
        self.phase = match (version, self.rules.side) {
            (Version::V4, _) => Phase::Plain,
            (Version::V5, Side::Client) => Phase::Segments(Segments::new(format)),
            (Version::V5, Side::Server) => Phase::Awaiting(format),
        };
    }

    /// STARTUP was answered with an ERROR: the client may try again.
    pub fn refuse(&mut self) {
        if matches!(self.phase, Phase::Held) {
            self.phase = Phase::Plain;
        }
    }

    /// Takes the next envelope from the front; `None` when more bytes are needed (or, after
    /// STARTUP, its answer).
    ///
    /// Call it until it says `None` after each read. Memory beyond the buffer's is bounded by
    /// the longest envelope and the longest segment.
    ///
    /// # Errors
    /// What came is not the protocol's, or more than accepted.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Envelope>, WireError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let decoded = match &mut self.phase {
            Phase::Plain | Phase::Awaiting(_) => self.take_plain(buffer),
            Phase::Segments(segments) => segments.take(buffer, &self.rules),
            Phase::Held if buffer.len() > self.rules.limits.envelope_bytes_max => {
                Err(self.rules.wrong(Fault::Impatient { came: buffer.len() }))
            }
            Phase::Held => Ok(None),
        };
        if let Err(error) = &decoded {
            self.error = Some(error.clone());
        }
        decoded
    }

    /// Bytes of an envelope that has not come to its end, beside those in the buffer.
    pub fn held_bytes(&self) -> usize {
        match &self.phase {
            Phase::Segments(segments) => segments.parts.len(),
            Phase::Plain | Phase::Held | Phase::Awaiting(_) => 0,
        }
    }

    fn take_plain(&mut self, buffer: &mut BytesMut) -> Result<Option<Envelope>, WireError> {
        let Some(header) = self.rules.read_header(buffer)? else { return Ok(None) };
        let length = HEADER_BYTES + header.body_bytes;
        if buffer.len() < length {
            return Ok(None);
        }
        let mut body = buffer.split_to(length).freeze();
        body.advance(HEADER_BYTES);
        let (version, stream) = (header.version, header.stream);
        if header.flags.has(Flags::COMPRESSED) && version == Version::V4 {
            let decompressed = self.decompress(&body);
            body = decompressed.map_err(|fault| WireError { stream, version, fault })?;
        }
        match (&self.phase, self.rules.side, header.opcode) {
            (_, Side::Client, Opcode::Startup) => self.phase = Phase::Held,
            (_, Side::Server, Opcode::Ready | Opcode::Authenticate) => self.see_started(version),
            _ => {}
        }
        Ok(Some(header.envelope(body)))
    }

    /// A node accepted STARTUP.
    fn see_started(&mut self, version: Version) {
        self.rules.version.get_or_insert(version);
        self.rules.is_started = true;
        if let Phase::Awaiting(format) = self.phase
            && version == Version::V5
        {
            self.phase = Phase::Segments(Segments::new(format));
        }
    }

    fn decompress(&self, body: &[u8]) -> Result<Bytes, Fault> {
        let compression = self.compression.ok_or(Fault::NoCompression)?;
        compression.decompress(body, self.rules.limits.envelope_bytes_max)
    }
}

impl Segments {
    fn new(format: Format) -> Self {
        Self { format, whole: Bytes::new(), parts: BytesMut::new() }
    }

    fn take(
        &mut self,
        buffer: &mut BytesMut,
        rules: &Rules,
    ) -> Result<Option<Envelope>, WireError> {
        loop {
            if let Some(envelope) = self.take_whole(rules)? {
                return Ok(Some(envelope));
            }
            let taken = segment::take(buffer, self.format);
            let Some(segment) = taken.map_err(|fault| rules.wrong(fault))? else {
                return Ok(None);
            };
            if !segment.is_self_contained {
                if let Some(envelope) = self.take_part(&segment.payload, rules)? {
                    return Ok(Some(envelope));
                }
            } else if self.parts.is_empty() {
                self.whole = segment.payload;
            } else {
                let problem = "a segment of whole envelopes came, expected the next part of one";
                return Err(rules.wrong(Fault::Segment(problem)));
            }
        }
    }

    /// The next envelope of the segment that is read.
    fn take_whole(&mut self, rules: &Rules) -> Result<Option<Envelope>, WireError> {
        if self.whole.is_empty() {
            return Ok(None);
        }
        let cut = Fault::Segment("a segment of whole envelopes ends inside one");
        let Some(header) = rules.read_header(&self.whole)? else {
            return Err(rules.wrong(cut));
        };
        if self.whole.len() - HEADER_BYTES < header.body_bytes {
            return Err(WireError { stream: header.stream, ..rules.wrong(cut) });
        }
        self.whole.advance(HEADER_BYTES);
        let body = self.whole.split_to(header.body_bytes);
        Ok(Some(header.envelope(body)))
    }

    /// Adds a part of an envelope, and gives the envelope when it was the last.
    fn take_part(&mut self, payload: &[u8], rules: &Rules) -> Result<Option<Envelope>, WireError> {
        if payload.is_empty() {
            return Err(rules.wrong(Fault::Segment("an empty part of an envelope came")));
        }
        self.parts.extend_from_slice(payload);
        let Some(header) = rules.read_header(&self.parts)? else { return Ok(None) };
        let (length, came) = (HEADER_BYTES + header.body_bytes, self.parts.len());
        if came < length {
            return Ok(None);
        }
        if came > length {
            let problem = "the last part of an envelope is longer than what was left of it";
            let error = rules.wrong(Fault::Segment(problem));
            return Err(WireError { stream: header.stream, ..error });
        }
        let mut body = core::mem::take(&mut self.parts).freeze();
        body.advance(HEADER_BYTES);
        Ok(Some(header.envelope(body)))
    }
}

impl Header {
    fn envelope(&self, body: Bytes) -> Envelope {
        Envelope {
            version: self.version,
            is_response: self.is_response,
            flags: self.flags.without(Flags::COMPRESSED),
            stream: self.stream,
            opcode: self.opcode,
            body,
        }
    }
}

impl Rules {
    /// Reads and checks the header at the front; `None` when it is not all there.
    fn read_header(&self, bytes: &[u8]) -> Result<Option<Header>, WireError> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let number = first & !RESPONSE;
        // Before v3 the stream has one byte, and the header is shorter than ours.
        if number < 3 {
            return Err(self.unsupported(0, number));
        }
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let &[_, flags, s0, s1, opcode, l0, l1, l2, l3] = header;
        let stream = i16::from_be_bytes([s0, s1]);
        let Some(version) = Version::of(number) else {
            return Err(self.unsupported(stream, number));
        };
        let answered_in = self.version.unwrap_or(version);
        let wrong = |fault| Err(WireError { stream, version: answered_in, fault });
        let is_response = first & RESPONSE != 0;
        if is_response != (self.side == Side::Server) {
            return wrong(Fault::WrongDirection { is_response });
        }
        if self.is_started && version != answered_in {
            return wrong(Fault::ChangedVersion { came: version, expected: answered_in });
        }
        let Some(opcode) = Opcode::of(opcode).filter(|code| code.is_request() != is_response)
        else {
            return wrong(Fault::Opcode { came: opcode, is_response });
        };
        let length = i32::from_be_bytes([l0, l1, l2, l3]);
        let Ok(body_bytes) = usize::try_from(length) else {
            return wrong(Fault::NegativeLength(length));
        };
        let max = self.limits.envelope_bytes_max;
        if body_bytes > max {
            return wrong(Fault::TooLong { came: body_bytes as u64, max });
        }
        Ok(Some(Header { version, is_response, flags: Flags(flags), stream, opcode, body_bytes }))
    }

    /// An error where the stream is not known.
    fn wrong(&self, fault: Fault) -> WireError {
        WireError { stream: 0, version: self.version.unwrap_or(Version::V5), fault }
    }

    fn unsupported(&self, stream: i16, came: u8) -> WireError {
        // A client of an older version is told in the oldest that is spoken here.
        let version = if came < 4 { Version::V4 } else { Version::V5 };
        let fault = Fault::UnsupportedVersion { came };
        WireError { stream, version: self.version.unwrap_or(version), fault }
    }
}
