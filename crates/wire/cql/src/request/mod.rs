//! What clients send (section 4.1 of the specification), read without copying.
//!
//! These read the message of an envelope: its body after the custom payload, see
//! [`crate::payload::split`]. A message that cannot be read here may still be forwarded as it came:
//! the node has the last word. Bytes after the last part are left aside, as nodes do.

mod batch;
mod parameters;
mod startup;

pub use batch::{Batch, BatchKind, Batched, Statement, Statements};
pub use parameters::{Bound, QueryFlags, QueryParameters, Values};
pub use startup::Startup;

use bytes::BufMut;

use super::envelope::Version;
use super::error::{Malformed, Problem};
use super::read::Reader;
use super::write;

/// QUERY: a statement as text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Query<'a> {
    /// The statement.
    pub text: &'a str,
    /// What is bound to it, and how it is to be done.
    pub parameters: QueryParameters<'a>,
}

impl<'a> Query<'a> {
    /// Reads the message of a QUERY.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let text = reader.long_string("statement")?;
        let parameters = QueryParameters::read(&mut reader, version)?;
        Ok(Self { text, parameters })
    }

    /// Writes the message of a QUERY.
    ///
    /// # Panics
    /// When the text is 2 GiB or longer.
    pub fn write(&self, version: Version, out: &mut impl BufMut) {
        write::long_string(out, self.text);
        self.parameters.write(version, out);
    }
}

/// PREPARE: a statement as text, to be executed later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prepare<'a> {
    /// The statement.
    pub text: &'a str,
    /// The keyspace of tables that name none (v5).
    pub keyspace: Option<&'a str>,
}

/// The only flag of a PREPARE.
const WITH_KEYSPACE: u32 = 0x01;

impl<'a> Prepare<'a> {
    /// Reads the message of a PREPARE.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let text = reader.long_string("statement")?;
        let mut keyspace = None;
        if version >= Version::V5 {
            let at = reader.position();
            let flags = reader.int("flags of a PREPARE")?.cast_unsigned();
            if flags & !WITH_KEYSPACE != 0 {
                let problem = Problem::Unknown(flags);
                return Err(Malformed { what: "flags of a PREPARE", at, problem });
            }
            if flags & WITH_KEYSPACE != 0 {
                keyspace = Some(reader.string("keyspace")?);
            }
        }
        Ok(Self { text, keyspace })
    }

    /// Writes the message of a PREPARE. v4 has no room for the keyspace.
    ///
    /// # Panics
    /// When the text is 2 GiB or longer, or the keyspace longer than 65,535 bytes.
    pub fn write(&self, version: Version, out: &mut impl BufMut) {
        write::long_string(out, self.text);
        if version >= Version::V5 {
            out.put_u32(if self.keyspace.is_some() { WITH_KEYSPACE } else { 0 });
            if let Some(keyspace) = self.keyspace {
                write::string(out, keyspace);
            }
        }
    }
}

/// EXECUTE: a prepared statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Execute<'a> {
    /// The number of the prepared statement.
    pub id: &'a [u8],
    /// The number of the metadata that the client knows (v5); empty in v4.
    pub result_metadata_id: &'a [u8],
    /// What is bound to it, and how it is to be done.
    pub parameters: QueryParameters<'a>,
}

impl<'a> Execute<'a> {
    /// Reads the message of an EXECUTE.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let id = reader.short_bytes("id of the prepared statement")?;
        let result_metadata_id = match version {
            Version::V4 => &[][..],
            Version::V5 => reader.short_bytes("id of the result's metadata")?,
        };
        let parameters = QueryParameters::read(&mut reader, version)?;
        Ok(Self { id, result_metadata_id, parameters })
    }

    /// Writes the message of an EXECUTE.
    ///
    /// # Panics
    /// When an id is longer than 65,535 bytes.
    pub fn write(&self, version: Version, out: &mut impl BufMut) {
        write::short_bytes(out, self.id);
        if version >= Version::V5 {
            write::short_bytes(out, self.result_metadata_id);
        }
        self.parameters.write(version, out);
    }
}

/// REGISTER: the kinds of events a client asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Register<'a> {
    /// `TOPOLOGY_CHANGE`, `STATUS_CHANGE`, `SCHEMA_CHANGE`; perhaps others.
    pub kinds: Vec<&'a str>,
}

impl<'a> Register<'a> {
    /// Reads the message of a REGISTER.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let kinds = reader.string_list("kinds of events")?;
        Ok(Self { kinds })
    }

    /// Writes the message of a REGISTER.
    ///
    /// # Panics
    /// Above 65,535 kinds.
    pub fn write(&self, out: &mut impl BufMut) {
        write::string_list(out, &self.kinds);
    }
}

/// AUTH_RESPONSE: who asks, in the words of an authenticator.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthResponse<'a> {
    /// What the authenticator reads; may hold a password.
    pub token: Option<&'a [u8]>,
}

impl<'a> AuthResponse<'a> {
    /// Reads the message of an AUTH_RESPONSE.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let token = reader.bytes("token")?;
        Ok(Self { token })
    }

    /// Writes the message of an AUTH_RESPONSE.
    ///
    /// # Panics
    /// When the token is 2 GiB or longer.
    pub fn write(&self, out: &mut impl BufMut) {
        write::bytes(out, self.token);
    }

    /// The token of a user and a password (SASL PLAIN, as `PasswordAuthenticator` reads it).
    pub fn plain(user: &str, password: &str) -> Vec<u8> {
        [b"\0", user.as_bytes(), b"\0", password.as_bytes()].concat()
    }
}

impl core::fmt::Debug for AuthResponse<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let length = self.token.map_or(0, <[u8]>::len);
        write!(formatter, "AuthResponse({length} bytes)")
    }
}
