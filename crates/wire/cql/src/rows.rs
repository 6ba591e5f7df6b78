//! Rows, read and written: what system tables hold.

use bytes::{BufMut, BytesMut};

use super::envelope::Version;
use super::read::Reader;
use super::response::{Column, GLOBAL_TABLE, PREPARED, ROWS, Rows};
use super::types::Type;
use super::write;

/// A row that is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row<'a> {
    bytes: &'a [u8],
    columns: usize,
}

impl<'a> Row<'a> {
    /// Its values in their order; nulls are `None`.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'a [u8]>> + use<'a> {
        let mut reader = Reader::new(self.bytes);
        (0..self.columns).map_while(move |_| reader.bytes("").ok())
    }

    /// The value at this place, from 0; `None` for a null and where there is none.
    pub fn at(&self, index: usize) -> Option<&'a [u8]> {
        self.iter().nth(index).flatten()
    }
}

impl<'a> Rows<'a> {
    /// Each row in its order. Rows without columns are left out.
    pub fn iter(&self) -> impl Iterator<Item = Row<'a>> + use<'a> {
        let columns = self.metadata.count;
        let mut reader = Reader::new(self.content);
        let count = if columns == 0 { 0 } else { self.count };
        (0..count).map_while(move |_| {
            let start = reader.position();
            for _ in 0..columns {
                reader.bytes("").ok()?;
            }
            Some(Row { bytes: reader.since(start), columns })
        })
    }

    /// The columns; none where the metadata is left out.
    pub fn columns(&self) -> impl Iterator<Item = Column<'a>> + use<'a> {
        self.metadata.columns.into_iter().flat_map(|columns| columns.iter())
    }

    /// The place of the column of this name, from 0.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.metadata.columns.and_then(|columns| columns.position(name))
    }
}

/// Writes the message of a RESULT with rows of one table.
#[derive(Debug)]
pub struct Writer {
    out: BytesMut,
    columns: usize,
    /// Where the number of rows is.
    count_at: usize,
    count: u32,
    /// Values of the row that is written.
    values: usize,
}

impl Writer {
    /// Rows of these columns.
    ///
    /// # Panics
    /// When a name is longer than 65,535 bytes.
    pub fn new(keyspace: &str, table: &str, columns: &[(&str, Type)]) -> Self {
        let mut out = BytesMut::new();
        out.put_i32(ROWS);
        write_metadata(keyspace, table, columns, &mut out);
        let count_at = out.len();
        out.put_u32(0);
        Self { out, columns: columns.len(), count_at, count: 0, values: 0 }
    }

    /// The next value of the row that is written; `None` is a null.
    ///
    /// # Panics
    /// When the row has all its values, or this one is 2 GiB or longer.
    pub fn value(&mut self, value: Option<&[u8]>) -> &mut Self {
        assert!(self.values < self.columns, "a row has one value for each column");
        write::bytes(&mut self.out, value);
        self.values += 1;
        self
    }

    /// Ends the row that is written.
    ///
    /// # Panics
    /// When values are missing.
    pub fn end_row(&mut self) {
        assert!(self.values == self.columns, "a row has one value for each column");
        self.values = 0;
        self.count += 1;
    }

    /// The message.
    ///
    /// # Panics
    /// When a row was begun and not ended.
    #[must_use]
    pub fn finish(mut self) -> BytesMut {
        assert!(self.values == 0, "the last row was ended");
        let count = i32::try_from(self.count).expect("there are fewer rows");
        self.out[self.count_at..][..4].copy_from_slice(&count.to_be_bytes());
        self.out
    }
}

fn write_metadata(keyspace: &str, table: &str, columns: &[(&str, Type)], out: &mut BytesMut) {
    out.put_u32(GLOBAL_TABLE);
    out.put_i32(i32::try_from(columns.len()).expect("there are fewer columns"));
    write::string(out, keyspace);
    write::string(out, table);
    for (name, kind) in columns {
        write::string(out, name);
        kind.write(out);
    }
}

/// Writes the message of a RESULT for a statement without variables that was prepared here: what
/// [`Writer`] answers when it is executed.
///
/// # Panics
/// When an id or a name is longer than 65,535 bytes.
pub fn write_prepared(
    version: Version,
    id: &[u8],
    result_metadata_id: &[u8],
    keyspace: &str,
    table: &str,
    columns: &[(&str, Type)],
) -> BytesMut {
    let mut out = BytesMut::new();
    out.put_i32(PREPARED);
    write::short_bytes(&mut out, id);
    if version >= Version::V5 {
        write::short_bytes(&mut out, result_metadata_id);
    }
    // No flags, no variables, no columns of the key among them.
    out.put_bytes(0, 12);
    write_metadata(keyspace, table, columns, &mut out);
    out
}
