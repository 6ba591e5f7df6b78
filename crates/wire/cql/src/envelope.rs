//! One message of the protocol: nine bytes of header and a body.

use core::fmt;
use core::ops::BitOr;

use bytes::Bytes;

/// Bytes of the header before the body.
pub(crate) const HEADER_BYTES: usize = 9;

/// The bit of the version's byte that responses have.
pub(crate) const RESPONSE: u8 = 0x80;

/// A version of the protocol that is spoken here.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Version {
    /// Cassandra 2.2 and later: envelopes one after the other.
    V4 = 4,
    /// Cassandra 4.0 and later: envelopes in checked segments, once a connection is started.
    V5 = 5,
}

impl Version {
    /// The version with this number.
    pub fn of(number: u8) -> Option<Self> {
        [Self::V4, Self::V5].into_iter().find(|version| version.number() == number)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "v{}", self.number())
    }
}

evenkeel_core::named! {
    /// What a message is.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u8)]
    pub enum Opcode {
        /// A request failed.
        Error = "ERROR" as 0x00,
        /// The first request: options of the connection.
        Startup = "STARTUP" as 0x01,
        /// The connection may be used.
        Ready = "READY" as 0x02,
        /// Who asks must be said first.
        Authenticate = "AUTHENTICATE" as 0x03,
        /// Asks which options there are.
        Options = "OPTIONS" as 0x05,
        /// The options there are.
        Supported = "SUPPORTED" as 0x06,
        /// A statement as text.
        Query = "QUERY" as 0x07,
        /// What a statement gave.
        Result = "RESULT" as 0x08,
        /// A statement to be prepared.
        Prepare = "PREPARE" as 0x09,
        /// A prepared statement.
        Execute = "EXECUTE" as 0x0A,
        /// Asks for events.
        Register = "REGISTER" as 0x0B,
        /// An event; its stream is negative.
        Event = "EVENT" as 0x0C,
        /// Several statements, with or without their text.
        Batch = "BATCH" as 0x0D,
        /// The next question of who asks.
        AuthChallenge = "AUTH_CHALLENGE" as 0x0E,
        /// Who asks.
        AuthResponse = "AUTH_RESPONSE" as 0x0F,
        /// Who asks is known.
        AuthSuccess = "AUTH_SUCCESS" as 0x10,
    }
}

impl Opcode {
    /// The opcode with this number.
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0x00 => Self::Error,
            0x01 => Self::Startup,
            0x02 => Self::Ready,
            0x03 => Self::Authenticate,
            0x05 => Self::Options,
            0x06 => Self::Supported,
            0x07 => Self::Query,
            0x08 => Self::Result,
            0x09 => Self::Prepare,
            0x0A => Self::Execute,
            0x0B => Self::Register,
            0x0C => Self::Event,
            0x0D => Self::Batch,
            0x0E => Self::AuthChallenge,
            0x0F => Self::AuthResponse,
            0x10 => Self::AuthSuccess,
            _ => return None,
        })
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether clients send it; what they do not send, nodes do.
    pub const fn is_request(self) -> bool {
        matches!(
            self,
            Self::Startup
                | Self::Options
                | Self::Query
                | Self::Prepare
                | Self::Execute
                | Self::Register
                | Self::Batch
                | Self::AuthResponse
        )
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// The flags of an envelope. Bits that have no meaning here are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The body is compressed (v4). Never seen in an [`Envelope`]: the codec takes and sets it.
    pub const COMPRESSED: Self = Self(0x01);
    /// A request asks for tracing; a response's body begins with the tracing's number.
    pub const TRACING: Self = Self(0x02);
    /// The body has a map of the parties' own use before the message.
    pub const CUSTOM_PAYLOAD: Self = Self(0x04);
    /// A response's body has warnings before the message.
    pub const WARNING: Self = Self(0x08);
    /// The client agrees to a version that is not final.
    pub const BETA: Self = Self(0x10);

    /// Whether all of these are set.
    pub const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// These and those.
    #[must_use]
    pub const fn with(self, flags: Self) -> Self {
        Self(self.0 | flags.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, flags: Self) -> Self {
        Self(self.0 & !flags.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Flags({:#04x})", self.0)
    }
}

/// One message, with its body uncompressed.
///
/// The body is a slice of what was read from the connection: it keeps that memory as long as it
/// lives. What is kept for long is copied (`Bytes::copy_from_slice`).
#[derive(Clone, PartialEq, Eq)]
pub struct Envelope {
    /// The version it is written in.
    pub version: Version,
    /// Whether a node sent it.
    pub is_response: bool,
    /// What comes before the message in the body, among others.
    pub flags: Flags,
    /// The number that request and response have in common. Negative: an event.
    pub stream: i16,
    /// What it is.
    pub opcode: Opcode,
    /// What [`Flags`] announce, then the message.
    pub body: Bytes,
}

impl Envelope {
    /// A request or a response, as the opcode says, without flags.
    pub const fn new(version: Version, stream: i16, opcode: Opcode, body: Bytes) -> Self {
        let is_response = !opcode.is_request();
        Self { version, is_response, flags: Flags::NONE, stream, opcode, body }
    }

    /// The header of a body of this many bytes.
    pub(crate) const fn header(&self, flags: Flags, body_bytes: u32) -> [u8; HEADER_BYTES] {
        let direction = if self.is_response { RESPONSE } else { 0 };
        let [s0, s1] = self.stream.to_be_bytes();
        let [l0, l1, l2, l3] = body_bytes.to_be_bytes();
        let version = self.version.number() | direction;
        [version, flags.0, s0, s1, self.opcode.number(), l0, l1, l2, l3]
    }
}

impl fmt::Debug for Envelope {
    /// Without the body: it may hold what must not be logged.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, flags, stream, opcode, body, .. } = self;
        let length = body.len();
        write!(formatter, "{opcode} {version} stream {stream} {flags:?} {length} bytes")
    }
}
