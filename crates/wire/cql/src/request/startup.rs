//! STARTUP: what a client wants of the connection.

use bytes::BufMut;

use super::super::codec::Compression;
use super::super::envelope::Version;
use super::super::error::Malformed;
use super::super::read::Reader;
use super::super::write;

/// STARTUP's options, in the order they are written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Startup<'a> {
    /// Names and what they are set to.
    pub options: Vec<(&'a str, &'a str)>,
}

impl<'a> Startup<'a> {
    /// The version of CQL that all of these versions' nodes speak.
    pub const CQL_VERSION: (&'static str, &'static str) = ("CQL_VERSION", "3.0.0");

    /// Reads the message of a STARTUP.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let options = reader.string_map("options of STARTUP")?;
        Ok(Self { options })
    }

    /// Writes the message of a STARTUP.
    ///
    /// # Panics
    /// When a text is longer than 65,535 bytes.
    pub fn write(&self, out: &mut impl BufMut) {
        write::string_map(out, &self.options);
    }

    /// What an option is set to; names are compared whatever their case, as Cassandra does.
    pub fn option(&self, name: &str) -> Option<&'a str> {
        let found = self.options.iter().rev().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|&(_, value)| value)
    }

    /// The compression that is asked for.
    ///
    /// # Errors
    /// The name of a compression that this version does not have here.
    pub fn compression(&self, version: Version) -> Result<Option<Compression>, &'a str> {
        match self.option("COMPRESSION") {
            None | Some("") => Ok(None),
            Some(name) => Compression::of(name, version).map(Some).ok_or(name),
        }
    }
}
