//! Where a catalogue is written to: rows of cells, whichever database takes them.

use anyhow::Result;

use super::sql::Table;

/// A value on its way into a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell<'a> {
    Integer(i64),
    Text(&'a str),
}

/// Where a catalogue is written to.
pub(crate) trait Sink {
    /// Adds a row; `cells` are in the order of the table's columns.
    fn insert(&mut self, table: &'static Table, cells: &[Cell<'_>]) -> Result<()>;
}
