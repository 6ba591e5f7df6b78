//! Errors that clients get from us, not from a node.

use std::fmt;

use bytes::{BufMut, Bytes};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::{ErrorCode, Flags, Opcode, Version, write};

use evenkeel_cql::client::Answer;

/// An error of our own: its code, and in words what was wrong and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    code: ErrorCode,
    message: String,
    /// What follows the words in the body, as the code has it.
    fields: Vec<u8>,
}

impl Refusal {
    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), fields: Vec::new() }
    }

    /// Nobody takes the request for now: drivers try another coordinator.
    pub(crate) fn overloaded(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Overloaded, message)
    }

    /// Something failed that is not the client's doing.
    pub(crate) fn server_error(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ServerError, message)
    }

    /// A read was not answered in time.
    pub(crate) fn read_timeout(
        consistency: Consistency,
        required: u32,
        message: impl Into<String>,
    ) -> Self {
        let mut fields = Vec::with_capacity(11);
        write::consistency(&mut fields, consistency);
        fields.put_u32(0); // replicas that answered
        fields.put_u32(required);
        fields.put_u8(0); // no data
        Self { fields, ..Self::new(ErrorCode::ReadTimeout, message) }
    }

    /// A write was not answered in time: it may have been done. `kind` is the protocol's word for
    /// it: `SIMPLE`, `BATCH` or `CAS`.
    pub(crate) fn write_timeout(
        consistency: Consistency,
        required: u32,
        kind: &str,
        version: Version,
        message: impl Into<String>,
    ) -> Self {
        let mut fields = Vec::with_capacity(20);
        write::consistency(&mut fields, consistency);
        fields.put_u32(0); // replicas that answered
        fields.put_u32(required);
        write::string(&mut fields, kind);
        if version >= Version::V5 && kind == "CAS" {
            fields.put_u16(0); // contentions
        }
        Self { fields, ..Self::new(ErrorCode::WriteTimeout, message) }
    }

    /// Messages in an order, or with contents, that the protocol does not have.
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ProtocolError, message)
    }

    /// A request that can be read but not done.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Invalid, message)
    }

    /// A login that cannot be.
    pub(crate) fn bad_credentials(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadCredentials, message)
    }

    /// A prepared statement that nobody here knows: drivers prepare it again.
    pub(crate) fn unprepared(id: &[u8]) -> Self {
        let message = format!(
            "the prepared statement {} is not known here (any more): prepare it again",
            hexadecimal(id)
        );
        let mut fields = Vec::with_capacity(2 + id.len());
        write::short_bytes(&mut fields, id);
        Self { fields, ..Self::new(ErrorCode::Unprepared, message) }
    }

    /// The body of the ERROR.
    pub(crate) fn body(&self) -> Bytes {
        let mut body = write::error(self.code, &self.message);
        body.extend_from_slice(&self.fields);
        body.into()
    }

    /// The same as an answer of a node.
    pub(crate) fn answer(&self) -> Answer {
        let body = self.body();
        Answer { opcode: Opcode::Error, flags: Flags::NONE, body, feedback: None }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.code, self.message)
    }
}

fn hexadecimal(id: &[u8]) -> String {
    use fmt::Write as _;
    let mut text = String::with_capacity(2 * id.len());
    for byte in id {
        let _ = write!(text, "{byte:02x}"); // a String takes everything
    }
    text
}
