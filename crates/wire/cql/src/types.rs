//! CQL's types as metadata names them (`[option]` of section 4.2.5.2).

use bytes::BufMut;

use super::error::{Malformed, Problem};
use super::read::Reader;
use super::write;

/// Deeper types are refused; schemas that people write have four levels at most.
const DEPTH_MAX: usize = 32;

/// A type that is read: the checked bytes of its `[option]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TypeBytes<'a>(&'a [u8]);

impl<'a> TypeBytes<'a> {
    /// Reads a type.
    ///
    /// # Errors
    /// It is not all there, has no meaning or is too deep.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let start = reader.position();
        skip(reader, DEPTH_MAX)?;
        Ok(Self(reader.since(start)))
    }

    /// Its number.
    pub fn id(self) -> u16 {
        Reader::new(self.0).short("type").unwrap_or(0)
    }

    /// Its bytes, as metadata has them.
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }
}

fn skip(reader: &mut Reader<'_>, depth: usize) -> Result<(), Malformed> {
    let at = reader.position();
    let wrong = |problem| Err(Malformed { what: "type", at, problem });
    if depth == 0 {
        return wrong(Problem::TooDeep);
    }
    match reader.short("type")? {
        0x0000 => reader.string("name of a custom type").map(drop),
        0x0001..=0x0015 => Ok(()),
        0x0020 | 0x0022 => skip(reader, depth - 1),
        0x0021 => {
            skip(reader, depth - 1)?;
            skip(reader, depth - 1)
        }
        0x0030 => {
            reader.string("keyspace of a user's type")?;
            reader.string("name of a user's type")?;
            for _ in 0..reader.short("number of fields")? {
                reader.string("name of a field")?;
                skip(reader, depth - 1)?;
            }
            Ok(())
        }
        0x0031 => {
            for _ in 0..reader.short("number of fields")? {
                skip(reader, depth - 1)?;
            }
            Ok(())
        }
        other => wrong(Problem::Unknown(u32::from(other))),
    }
}

/// A type of a table that is answered here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Type {
    /// `ascii`.
    Ascii,
    /// `bigint`.
    Bigint,
    /// `blob`.
    Blob,
    /// `boolean`.
    Boolean,
    /// `double`.
    Double,
    /// `int`.
    Int,
    /// `timestamp`.
    Timestamp,
    /// `uuid`.
    Uuid,
    /// `varchar`, which is `text`.
    Text,
    /// `timeuuid`.
    Timeuuid,
    /// `inet`.
    Inet,
    /// `list<…>`.
    List(Box<Self>),
    /// `map<…, …>`.
    Map(Box<Self>, Box<Self>),
    /// `set<…>`.
    Set(Box<Self>),
    /// A tuple.
    Tuple(Vec<Self>),
    /// Any other: the bytes of its `[option]`, see [`TypeBytes::bytes`].
    Bytes(Vec<u8>),
}

impl Type {
    /// `set<text>` and the like.
    pub fn set(of: Self) -> Self {
        Self::Set(Box::new(of))
    }

    /// `map<text, text>` and the like.
    pub fn map(from: Self, to: Self) -> Self {
        Self::Map(Box::new(from), Box::new(to))
    }

    /// Writes it as metadata has it.
    ///
    /// # Panics
    /// When a tuple has more than 65,535 fields.
    pub fn write(&self, out: &mut impl BufMut) {
        match self {
            Self::Ascii => out.put_u16(0x01),
            Self::Bigint => out.put_u16(0x02),
            Self::Blob => out.put_u16(0x03),
            Self::Boolean => out.put_u16(0x04),
            Self::Double => out.put_u16(0x07),
            Self::Int => out.put_u16(0x09),
            Self::Timestamp => out.put_u16(0x0B),
            Self::Uuid => out.put_u16(0x0C),
            Self::Text => out.put_u16(0x0D),
            Self::Timeuuid => out.put_u16(0x0F),
            Self::Inet => out.put_u16(0x10),
            Self::List(of) => {
                out.put_u16(0x20);
                of.write(out);
            }
            Self::Map(from, to) => {
                out.put_u16(0x21);
                from.write(out);
                to.write(out);
            }
            Self::Set(of) => {
                out.put_u16(0x22);
                of.write(out);
            }
            Self::Tuple(fields) => {
                out.put_u16(0x31);
                out.put_u16(write::short_length(fields.len()));
                fields.iter().for_each(|field| field.write(out));
            }
            Self::Bytes(bytes) => out.put_slice(bytes),
        }
    }
}
