//! BATCH: several statements, done together.

use super::super::envelope::Version;
use super::super::error::{Malformed, Problem};
use super::super::read::Reader;
use super::super::write;
use super::{QueryParameters, Values};
use bytes::BufMut;

/// Whether and how a batch is all or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// Once it is logged it is done.
    Logged,
    /// Parts of it may be done.
    Unlogged,
    /// Of counters.
    Counter,
}

/// A statement of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Statement<'a> {
    /// As text.
    Text(&'a str),
    /// The number of a prepared one.
    Prepared(&'a [u8]),
}

/// A statement of a batch with what is bound to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batched<'a> {
    /// The statement.
    pub statement: Statement<'a>,
    /// What is bound.
    pub values: Values<'a>,
}

/// BATCH: a checked slice of the message, and how it is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch<'a> {
    /// Whether and how it is all or nothing.
    pub kind: BatchKind,
    statements: &'a [u8],
    count: u16,
    /// How it is to be done; its values and paging have no meaning.
    pub parameters: QueryParameters<'a>,
}

/// Statements of a batch that is made here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Statements {
    bytes: Vec<u8>,
    count: u16,
}

impl Statements {
    /// No statements.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next statement. Values in a batch have no names.
    ///
    /// # Panics
    /// When it is the 65,536th, its text is 2 GiB or longer or its id longer than 65,535 bytes.
    pub fn push(&mut self, statement: &Batched<'_>) -> &mut Self {
        self.count = self.count.checked_add(1).expect("a batch has fewer statements");
        statement.write(&mut self.bytes);
        self
    }

    /// The batch of these statements.
    pub fn batch<'a>(&'a self, kind: BatchKind, parameters: QueryParameters<'a>) -> Batch<'a> {
        Batch { kind, statements: &self.bytes, count: self.count, parameters }
    }
}

impl<'a> Batch<'a> {
    /// Reads the message of a BATCH.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(message: &'a [u8], version: Version) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let kind = match reader.byte("kind of batch")? {
            0 => BatchKind::Logged,
            1 => BatchKind::Unlogged,
            2 => BatchKind::Counter,
            other => {
                let problem = Problem::Unknown(u32::from(other));
                return Err(Malformed { what: "kind of batch", at: 0, problem });
            }
        };
        let count = reader.short("number of statements")?;
        let start = reader.position();
        for _ in 0..count {
            Batched::read(&mut reader)?;
        }
        let statements = reader.since(start);
        let parameters = QueryParameters::read(&mut reader, version)?;
        Ok(Self { kind, statements, count, parameters })
    }

    /// Writes the message of a BATCH.
    pub fn write(&self, version: Version, out: &mut impl BufMut) {
        out.put_u8(match self.kind {
            BatchKind::Logged => 0,
            BatchKind::Unlogged => 1,
            BatchKind::Counter => 2,
        });
        out.put_u16(self.count);
        out.put_slice(self.statements);
        self.parameters.write(version, out);
    }

    /// How many statements.
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Its statements in their order.
    pub fn iter(&self) -> impl Iterator<Item = Batched<'a>> + use<'a> {
        let mut reader = Reader::new(self.statements);
        (0..self.count).map_while(move |_| Batched::read(&mut reader).ok())
    }
}

impl<'a> Batched<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let at = reader.position();
        let statement = match reader.byte("kind of statement")? {
            0 => Statement::Text(reader.long_string("statement")?),
            1 => Statement::Prepared(reader.short_bytes("id of the prepared statement")?),
            other => {
                let problem = Problem::Unknown(u32::from(other));
                return Err(Malformed { what: "kind of statement", at, problem });
            }
        };
        Ok(Self { statement, values: Values::read(reader, false)? })
    }

    fn write(&self, out: &mut impl BufMut) {
        match self.statement {
            Statement::Text(text) => {
                out.put_u8(0);
                write::long_string(out, text);
            }
            Statement::Prepared(id) => {
                out.put_u8(1);
                write::short_bytes(out, id);
            }
        }
        self.values.write(out);
    }
}
