//! A table that a node tells of itself, as its rows or as what is wrong with them.

use std::fmt;

use evenkeel_cql::response::{Result as Answered, Rows};
use evenkeel_cql::rows::Row;
use evenkeel_cql::{Envelope, Malformed, Opcode, Reader, Version, payload, value};

/// Why a node's table cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SystemTableError {
    /// The query that asked for the table.
    pub(crate) table: &'static str,
    /// Where in a row it is; `None` when it is about the whole answer, or a whole row.
    pub(crate) column: Option<&'static str>,
    /// What is wrong.
    pub(crate) kind: SystemTableErrorKind,
}

/// What is wrong with a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SystemTableErrorKind {
    /// The node answered with an `ERROR`; its message, where that can be read.
    Refused(Option<String>),
    /// An answer of another kind came.
    NoResult(Opcode),
    /// The answer cannot be taken apart.
    Malformed(Malformed),
    /// A `RESULT` of another kind came.
    NoRows,
    /// The table is empty and must not be.
    NoRow,
    /// The table has no such column.
    NoColumn,
    /// The value is null.
    Missing,
    /// The value is null or of another type than this one.
    Not(&'static str),
    /// A token that the default partitioner cannot have made.
    Token(String),
    /// A set that is empty and must not be.
    Empty,
}

impl fmt::Display for SystemTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use SystemTableErrorKind as Kind;
        let column = self.column.unwrap_or("a row");
        write!(f, "{}: ", self.table)?;
        match &self.kind {
            Kind::Refused(message) => {
                let message = message.as_deref().unwrap_or("?");
                write!(f, "the node refused: {message}{}", self.hint())
            }
            Kind::NoResult(opcode) => write!(f, "{opcode} came, expected RESULT{}", self.hint()),
            Kind::Malformed(error) => error.fmt(f),
            Kind::NoRows => f.write_str("a RESULT without rows came"),
            Kind::NoRow => f.write_str("no row came, expected one"),
            Kind::NoColumn => write!(f, "no column {column}"),
            Kind::Missing => write!(f, "{column} is missing"),
            Kind::Not(what) => write!(f, "{column} is missing or no {what}"),
            Kind::Token(token) => write!(f, "{column}: {token:?} is no token of Murmur3"),
            Kind::Empty => write!(f, "{column} is empty"),
        }
    }
}

impl std::error::Error for SystemTableError {}

impl SystemTableError {
    /// The likely cause: Cassandra has virtual tables since 4.0.
    fn hint(&self) -> &'static str {
        if self.table.contains("system_views.") { " (is it 4.0 or later?)" } else { "" }
    }
}

/// The rows of a node's answer.
pub(crate) struct SystemTable<'a> {
    query: &'static str,
    pub(crate) rows: Rows<'a>,
}

impl<'a> SystemTable<'a> {
    /// Takes the answer to `query` apart.
    ///
    /// # Errors
    /// When it is no answer with rows.
    pub(crate) fn of(query: &'static str, answer: &'a Envelope) -> Result<Self, SystemTableError> {
        use SystemTableErrorKind as Kind;
        let refuse = |kind| SystemTableError { table: query, column: None, kind };
        let malformed = |error| refuse(Kind::Malformed(error));
        let message = payload::split(answer).map_err(malformed)?.message;
        if answer.opcode == Opcode::Error {
            let mut reader = Reader::new(message);
            let reported = reader.int("code").and_then(|_| reader.string("message"));
            return Err(refuse(Kind::Refused(reported.ok().map(str::to_owned))));
        }
        if answer.opcode != Opcode::Result {
            return Err(refuse(Kind::NoResult(answer.opcode)));
        }
        match Answered::read(message, Version::V4).map_err(malformed)? {
            Answered::Rows(rows) => Ok(Self { query, rows }),
            _ => Err(refuse(Kind::NoRows)),
        }
    }

    /// Its rows, whose values have names.
    pub(crate) fn rows<'t>(&'t self) -> impl Iterator<Item = Named<'t>> + use<'t, 'a> {
        self.rows.iter().map(|row| Named { table: self, row })
    }

    /// The place of a column that every version has.
    ///
    /// # Errors
    /// When the table has none of this name.
    pub(crate) fn place(&self, column: &'static str) -> Result<usize, SystemTableError> {
        let place = self.rows.position(column);
        place.ok_or_else(|| self.error(Some(column), SystemTableErrorKind::NoColumn))
    }

    /// This is wrong with it.
    pub(crate) fn error(
        &self,
        column: Option<&'static str>,
        kind: SystemTableErrorKind,
    ) -> SystemTableError {
        SystemTableError { table: self.query, column, kind }
    }
}

/// A row whose values have names.
pub(crate) struct Named<'t> {
    table: &'t SystemTable<'t>,
    row: Row<'t>,
}

impl<'t> Named<'t> {
    /// The value; `None` when it is null, or the table has no such column.
    pub(crate) fn get(&self, column: &str) -> Option<&'t [u8]> {
        self.row.at(self.table.rows.position(column)?)
    }

    /// A text that must be there.
    ///
    /// # Errors
    /// When it is not, or is none.
    pub(crate) fn text(&self, column: &'static str) -> Result<&'t str, SystemTableError> {
        let text = self.get(column).and_then(value::text);
        text.ok_or_else(|| self.error(column, SystemTableErrorKind::Not("text")))
    }

    /// This is wrong with a value.
    pub(crate) fn error(
        &self,
        column: &'static str,
        kind: SystemTableErrorKind,
    ) -> SystemTableError {
        self.table.error(Some(column), kind)
    }
}
