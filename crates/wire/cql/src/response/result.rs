//! RESULT: what a statement gave.

use bytes::BufMut;

use super::super::envelope::Version;
use super::super::error::{Malformed, Problem};
use super::super::read::Reader;
use super::super::write;
use super::SchemaChange;
use super::metadata::{Columns, Metadata, read_count, read_flags};

/// RESULT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Result<'a> {
    /// Nothing.
    Void,
    /// Rows.
    Rows(Rows<'a>),
    /// The connection's keyspace is this one now.
    SetKeyspace(&'a str),
    /// A statement is prepared.
    Prepared(Prepared<'a>),
    /// The schema changed.
    SchemaChange(SchemaChange<'a>),
}

/// The number that a RESULT begins with.
pub(crate) const ROWS: i32 = 2;
pub(crate) const PREPARED: i32 = 4;

/// Rows: a checked slice of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rows<'a> {
    /// Their columns.
    pub metadata: Metadata<'a>,
    /// How many rows.
    pub count: usize,
    /// The values, row after row, each `[bytes]`.
    pub(crate) content: &'a [u8],
}

/// A prepared statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepared<'a> {
    /// Its number.
    pub id: &'a [u8],
    /// The number of its result's metadata (v5); empty in v4.
    pub result_metadata_id: &'a [u8],
    /// Which variables are the partition key's columns, in the key's order; empty where they are
    /// not all variables.
    pub partition_key: Vec<u16>,
    /// Its variables.
    pub variables: Columns<'a>,
    /// The columns of its result; of none, but for SELECT and conditional writes.
    pub result: Metadata<'a>,
}

impl<'a> Result<'a> {
    /// Reads the message of a RESULT.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8], version: Version) -> core::result::Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let kind = reader.int("kind of result")?;
        let result = match kind {
            1 => Self::Void,
            ROWS => Self::Rows(Rows::read(&mut reader, version)?),
            3 => Self::SetKeyspace(reader.string("keyspace")?),
            PREPARED => Self::Prepared(Prepared::read(&mut reader, version)?),
            5 => Self::SchemaChange(SchemaChange::read(&mut reader)?),
            _ => {
                let problem = Problem::Unknown(kind.cast_unsigned());
                return Err(Malformed { what: "kind of result", at: 0, problem });
            }
        };
        Ok(result)
    }

    /// The message of a RESULT that is nothing.
    pub fn void() -> Vec<u8> {
        1_i32.to_be_bytes().to_vec()
    }

    /// Appends the message of a RESULT that answers USE.
    ///
    /// # Panics
    /// When the name is longer than 65,535 bytes.
    pub fn write_set_keyspace(keyspace: &str, out: &mut impl BufMut) {
        out.put_i32(3);
        write::string(out, keyspace);
    }
}

impl<'a> Rows<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> core::result::Result<Self, Malformed> {
        let metadata = Metadata::read(reader, version)?;
        let count = reader.count("number of rows")?;
        let start = reader.position();
        // Rows without columns have no bytes: whatever their number says, there is nothing to read.
        for _ in 0..if metadata.count == 0 { 0 } else { count } {
            for _ in 0..metadata.count {
                reader.bytes("value of a row")?;
            }
        }
        Ok(Self { metadata, count, content: reader.since(start) })
    }
}

impl<'a> Prepared<'a> {
    fn read(reader: &mut Reader<'a>, version: Version) -> core::result::Result<Self, Malformed> {
        let id = reader.short_bytes("id of the prepared statement")?;
        let result_metadata_id = match version {
            Version::V4 => &[][..],
            Version::V5 => reader.short_bytes("id of the result's metadata")?,
        };
        let flags = read_flags(reader, version)?;
        let count = read_count(reader)?;
        let at = reader.position();
        let key_columns = read_count(reader)?;
        let partition_key = (0..key_columns)
            .map(|_| reader.short("place of a key's column"))
            .collect::<core::result::Result<Vec<_>, _>>()?;
        if let Some(&place) = partition_key.iter().find(|&&place| usize::from(place) >= count) {
            let problem = Problem::Unknown(u32::from(place));
            return Err(Malformed { what: "place of a key's column", at, problem });
        }
        let variables = Columns::read(reader, flags, count)?;
        let result = Metadata::read(reader, version)?;
        Ok(Self { id, result_metadata_id, partition_key, variables, result })
    }
}
