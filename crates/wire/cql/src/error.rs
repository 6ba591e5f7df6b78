//! What is wrong with bytes that came, and how it is answered.

use core::fmt;

use super::envelope::Version;

evenkeel_core::named! {
    /// The number of an error, as ERROR bodies begin with.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    #[repr(u32)]
    pub enum ErrorCode {
        /// Something the server did not foresee.
        ServerError = "server error" as 0x0000,
        /// The bytes or their order are not the protocol's.
        ProtocolError = "protocol error" as 0x000A,
        /// Who asks is not known.
        BadCredentials = "bad credentials" as 0x0100,
        /// Too few replicas are up: nothing was done.
        Unavailable = "unavailable" as 0x1000,
        /// The coordinator does not take the request.
        Overloaded = "overloaded" as 0x1001,
        /// The coordinator is not ready yet.
        Bootstrapping = "bootstrapping" as 0x1002,
        /// A table was not truncated.
        TruncateError = "truncate error" as 0x1003,
        /// Too few replicas answered a write in time: it may have been done.
        WriteTimeout = "write timeout" as 0x1100,
        /// Too few replicas answered a read in time.
        ReadTimeout = "read timeout" as 0x1200,
        /// Replicas failed to read.
        ReadFailure = "read failure" as 0x1300,
        /// A function of the user failed.
        FunctionFailure = "function failure" as 0x1400,
        /// Replicas failed to write: it may have been done.
        WriteFailure = "write failure" as 0x1500,
        /// The log of changes is full (v5).
        CdcWriteFailure = "CDC write failure" as 0x1600,
        /// Whether a conditional write was done is not known (v5).
        CasWriteUnknown = "CAS write unknown" as 0x1700,
        /// The statement's text has an error.
        SyntaxError = "syntax error" as 0x2000,
        /// Who asks may not.
        Unauthorized = "unauthorized" as 0x2100,
        /// The statement can be read but not done.
        Invalid = "invalid request" as 0x2200,
        /// Something of the configuration forbids it.
        ConfigError = "configuration error" as 0x2300,
        /// What is to be created is there.
        AlreadyExists = "already exists" as 0x2400,
        /// The prepared statement is not known here.
        Unprepared = "unprepared" as 0x2500,
    }
}

impl ErrorCode {
    /// The code with this number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.number() == number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A body that is not what its opcode says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the {what} at byte {at} of the body {problem}")]
pub struct Malformed {
    /// Which part was read.
    pub what: &'static str,
    /// Where it begins, in bytes from the start of what was read.
    pub at: usize,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a part of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Problem {
    /// It is longer than what is left of the body.
    #[error("needs {needed} bytes and {left} are left")]
    Short {
        /// Bytes it needs.
        needed: usize,
        /// Bytes that are left.
        left: usize,
    },
    /// A length or a count below zero.
    #[error("is {0}, expected 0 or more")]
    Negative(i32),
    /// A count above what is accepted.
    #[error("is {count}, expected at most {max}")]
    TooMany {
        /// What came.
        count: usize,
        /// What is accepted.
        max: usize,
    },
    /// A number or a bit that has no meaning.
    #[error("is {0:#x}, which has no meaning")]
    Unknown(u32),
    /// A word that has no meaning.
    #[error("is a word that has no meaning")]
    UnknownWord,
    /// Text that is not UTF-8.
    #[error("is not UTF-8")]
    NotText,
    /// Types in types, deeper than any schema's.
    #[error("has types nested too deep")]
    TooDeep,
}

/// Why a connection's bytes cannot be read further: the connection is to be closed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{fault}")]
pub struct WireError {
    /// The stream to answer with; 0 where it is not known.
    pub stream: i16,
    /// The version to answer in.
    pub version: Version,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with a connection's bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    /// A version that is not spoken here. Drivers look for this text, which is Cassandra's, to try
    /// a lower one.
    #[error(
        "Invalid or unsupported protocol version ({came}); supported versions are (4/v4, 5/v5)"
    )]
    UnsupportedVersion {
        /// Its number.
        came: u8,
    },
    /// Another version than the connection was started with.
    #[error(
        "Invalid message version. Got {came} but previous messages on this connection had version \
         {expected}"
    )]
    ChangedVersion {
        /// What came.
        came: Version,
        /// What was expected.
        expected: Version,
    },
    /// A response where requests are expected, or the reverse.
    #[error(
        "a {} came where a {} was expected",
        direction(*.is_response),
        direction(!*.is_response)
    )]
    WrongDirection {
        /// Whether a response came.
        is_response: bool,
    },
    /// An opcode that has no meaning, or one that the other side sends.
    #[error("opcode {came:#04x} came, expected one of a {}", direction(*.is_response))]
    Opcode {
        /// Its number.
        came: u8,
        /// Whether responses were expected.
        is_response: bool,
    },
    /// A body longer than accepted, before or after decompression.
    #[error("a body of {came} bytes came, expected at most {max} (the bound on an envelope)")]
    TooLong {
        /// What its length says, bytes.
        came: u64,
        /// What is accepted, bytes.
        max: usize,
    },
    /// A length below zero.
    #[error("a length of {0} bytes came, expected 0 or more")]
    NegativeLength(i32),
    /// The checksum of a segment's header or payload differs.
    #[error(
        "the checksum {came:#x} came with a segment's {part}, whose bytes give {computed:#x}: \
         they were changed on the way, or are no segment"
    )]
    Checksum {
        /// Which of the two.
        part: &'static str,
        /// What came.
        came: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A segment that cannot follow the one before it, or ends inside an envelope.
    #[error("{0}")]
    Segment(&'static str),
    /// A compressed body, and no compression was agreed on.
    #[error("a compressed body came, and STARTUP agreed on no compression")]
    NoCompression,
    /// Compressed bytes that do not decompress to the length they claim.
    #[error(
        "{compressed} compressed bytes came that claim to be {claimed}, and are not (is it \
         another compression than STARTUP's?)"
    )]
    Compression {
        /// The length they claim, bytes.
        claimed: usize,
        /// How many there are, compressed.
        compressed: usize,
    },
    /// More than an envelope may hold came before STARTUP was answered.
    #[error("{came} bytes came before STARTUP was answered, expected to wait for the answer")]
    Impatient {
        /// Bytes that came.
        came: usize,
    },
}

impl WireError {
    /// The code of the ERROR that answers it.
    pub const fn code(&self) -> ErrorCode {
        ErrorCode::ProtocolError
    }
}

const fn direction(is_response: bool) -> &'static str {
    if is_response { "response" } else { "request" }
}
