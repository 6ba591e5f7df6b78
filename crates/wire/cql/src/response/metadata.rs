//! What columns rows have, or variables a statement (section 4.2.5.2 of the specification).

use super::super::envelope::Version;
use super::super::error::{Malformed, Problem};
use super::super::read::Reader;
use super::super::types::TypeBytes;

/// More columns or variables than a table or a statement can have.
const COLUMNS_MAX: usize = 65_535;

pub(crate) const GLOBAL_TABLE: u32 = 0x01;
pub(crate) const HAS_MORE_PAGES: u32 = 0x02;
pub(crate) const NO_METADATA: u32 = 0x04;
pub(crate) const METADATA_CHANGED: u32 = 0x08;

/// Metadata of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata<'a> {
    /// How many columns.
    pub count: usize,
    /// Where the next page begins; `None` after the last.
    pub paging_state: Option<&'a [u8]>,
    /// The number of this metadata, if it is not what the client knows (v5).
    pub new_id: Option<&'a [u8]>,
    /// The columns; `None` where they are left out, because the client knows them.
    pub columns: Option<Columns<'a>>,
}

/// Columns or variables: a checked slice of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Columns<'a> {
    bytes: &'a [u8],
    count: usize,
    table: Option<(&'a str, &'a str)>,
}

/// A column or a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column<'a> {
    /// The keyspace of its table.
    pub keyspace: &'a str,
    /// Its table.
    pub table: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its type.
    pub kind: TypeBytes<'a>,
}

impl<'a> Metadata<'a> {
    /// Reads metadata of rows.
    ///
    /// # Errors
    /// It is not all there, or has flags without meaning.
    pub fn read(reader: &mut Reader<'a>, version: Version) -> Result<Self, Malformed> {
        let flags = read_flags(reader, version)?;
        let count = read_count(reader)?;
        let mut paging_state = None;
        if flags & HAS_MORE_PAGES != 0 {
            paging_state = reader.bytes("paging state")?;
        }
        let mut new_id = None;
        if flags & METADATA_CHANGED != 0 {
            new_id = Some(reader.short_bytes("id of the metadata")?);
        }
        let mut columns = None;
        if flags & NO_METADATA == 0 {
            columns = Some(Columns::read(reader, flags, count)?);
        }
        Ok(Self { count, paging_state, new_id, columns })
    }
}

pub(super) fn read_flags(reader: &mut Reader<'_>, version: Version) -> Result<u32, Malformed> {
    let at = reader.position();
    let flags = reader.int("flags of the metadata")?.cast_unsigned();
    let known = match version {
        Version::V4 => 0x07,
        Version::V5 => 0x0F,
    };
    if flags & !known != 0 {
        let problem = Problem::Unknown(flags);
        return Err(Malformed { what: "flags of the metadata", at, problem });
    }
    Ok(flags)
}

pub(super) fn read_count(reader: &mut Reader<'_>) -> Result<usize, Malformed> {
    let at = reader.position();
    let count = reader.count("number of columns")?;
    if count > COLUMNS_MAX {
        let problem = Problem::TooMany { count, max: COLUMNS_MAX };
        return Err(Malformed { what: "number of columns", at, problem });
    }
    Ok(count)
}

impl<'a> Columns<'a> {
    pub(super) fn read(
        reader: &mut Reader<'a>,
        flags: u32,
        count: usize,
    ) -> Result<Self, Malformed> {
        let mut table = None;
        if flags & GLOBAL_TABLE != 0 {
            table = Some((reader.string("keyspace")?, reader.string("table")?));
        }
        let start = reader.position();
        for _ in 0..count {
            Column::read(reader, table)?;
        }
        Ok(Self { bytes: reader.since(start), count, table })
    }

    /// How many.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each in its order.
    pub fn iter(&self) -> impl Iterator<Item = Column<'a>> + use<'a> {
        let (mut reader, table) = (Reader::new(self.bytes), self.table);
        (0..self.count).map_while(move |_| Column::read(&mut reader, table).ok())
    }

    /// The place of the column of this name, from 0.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.iter().position(|column| column.name == name)
    }

    /// Keyspace and table, of the first column where they differ.
    pub fn table(&self) -> Option<(&'a str, &'a str)> {
        self.table.or_else(|| self.iter().next().map(|column| (column.keyspace, column.table)))
    }
}

impl<'a> Column<'a> {
    fn read(reader: &mut Reader<'a>, table: Option<(&'a str, &'a str)>) -> Result<Self, Malformed> {
        let (keyspace, table) = match table {
            Some(table) => table,
            None => (reader.string("keyspace")?, reader.string("table")?),
        };
        let name = reader.string("name of a column")?;
        Ok(Self { keyspace, table, name, kind: TypeBytes::read(reader)? })
    }
}
