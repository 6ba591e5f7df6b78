//! What nodes answer (section 4.2 of the specification), read without copying, as far as a proxy
//! must look at it; and what it answers itself, written.
//!
//! These read the message of an envelope: its body after tracing number, warnings and custom
//! payload, see [`crate::payload::split`]. Bytes after the last part are left aside, as the
//! specification asks.

mod error;
mod event;
mod metadata;
mod result;

pub use error::{Answered, Error, Failures, Fields};
pub use event::{Event, SchemaChange, SchemaTarget};
pub(crate) use metadata::GLOBAL_TABLE;
pub use metadata::{Column, Columns, Metadata};
pub(crate) use result::{PREPARED, ROWS};
pub use result::{Prepared, Result, Rows};

use bytes::BufMut;

use super::error::Malformed;
use super::read::Reader;
use super::write;

/// SUPPORTED: the options of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Supported<'a> {
    /// Names, and what they may be set to.
    pub options: Vec<(&'a str, Vec<&'a str>)>,
}

impl<'a> Supported<'a> {
    /// Reads the message of a SUPPORTED.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8]) -> core::result::Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let options = reader.string_multimap("options")?;
        Ok(Self { options })
    }

    /// Writes the message of a SUPPORTED.
    ///
    /// # Panics
    /// When a text is longer than 65,535 bytes.
    pub fn write(&self, out: &mut impl BufMut) {
        write::string_multimap(out, &self.options);
    }

    /// What an option may be set to.
    pub fn option(&self, name: &str) -> &[&'a str] {
        let found = self.options.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or(&[], |(_, values)| values)
    }
}

/// AUTHENTICATE: the authenticator that wants to know who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authenticate<'a> {
    /// The name of its class.
    pub authenticator: &'a str,
}

impl<'a> Authenticate<'a> {
    /// Reads the message of an AUTHENTICATE.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8]) -> core::result::Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let authenticator = reader.string("name of the authenticator")?;
        Ok(Self { authenticator })
    }

    /// Writes the message of an AUTHENTICATE.
    ///
    /// # Panics
    /// When the name is longer than 65,535 bytes.
    pub fn write(&self, out: &mut impl BufMut) {
        write::string(out, self.authenticator);
    }
}

/// AUTH_CHALLENGE and AUTH_SUCCESS: what the authenticator says.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AuthToken<'a> {
    /// In the words of the authenticator.
    pub token: Option<&'a [u8]>,
}

impl<'a> AuthToken<'a> {
    /// Reads the message of an AUTH_CHALLENGE or AUTH_SUCCESS.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8]) -> core::result::Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let token = reader.bytes("token")?;
        Ok(Self { token })
    }

    /// Writes the message of an AUTH_CHALLENGE or AUTH_SUCCESS.
    ///
    /// # Panics
    /// When the token is 2 GiB or longer.
    pub fn write(&self, out: &mut impl BufMut) {
        write::bytes(out, self.token);
    }
}

impl core::fmt::Debug for AuthToken<'_> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "AuthToken({} bytes)", self.token.map_or(0, <[u8]>::len))
    }
}
