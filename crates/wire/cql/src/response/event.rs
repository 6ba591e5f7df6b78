//! EVENT: what changed in the cluster; and SCHEMA_CHANGE, which is a result as well.

use bytes::BufMut;

use super::super::error::{Malformed, Problem};
use super::super::read::{Inet, Reader};
use super::super::write;

/// EVENT.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A node came, went or took other tokens.
    Topology {
        /// `NEW_NODE`, `REMOVED_NODE` or `MOVED_NODE`.
        change: &'a str,
        /// Its address for clients.
        node: Inet,
    },
    /// A node is up or down.
    Status {
        /// `UP` or `DOWN`.
        change: &'a str,
        /// Its address for clients.
        node: Inet,
    },
    /// The schema changed.
    Schema(SchemaChange<'a>),
}

/// A change of the schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SchemaChange<'a> {
    /// `CREATED`, `UPDATED` or `DROPPED`.
    pub change: &'a str,
    /// The keyspace that changed, or the one in which something did.
    pub keyspace: &'a str,
    /// What changed.
    pub target: SchemaTarget<'a>,
}

/// What changed of a schema.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SchemaTarget<'a> {
    /// The keyspace itself.
    Keyspace,
    /// A table of this name.
    Table(&'a str),
    /// A type of this name.
    Type(&'a str),
    /// A function of this name and these types of arguments.
    Function(&'a str, Vec<&'a str>),
    /// An aggregate of this name and these types of arguments.
    Aggregate(&'a str, Vec<&'a str>),
}

impl<'a> Event<'a> {
    /// The kind of a change of nodes.
    pub const TOPOLOGY_CHANGE: &'static str = "TOPOLOGY_CHANGE";
    /// The kind of a change of a node's status.
    pub const STATUS_CHANGE: &'static str = "STATUS_CHANGE";
    /// The kind of a change of the schema.
    pub const SCHEMA_CHANGE: &'static str = "SCHEMA_CHANGE";

    /// Its kind, as REGISTER names it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Topology { .. } => Self::TOPOLOGY_CHANGE,
            Self::Status { .. } => Self::STATUS_CHANGE,
            Self::Schema(_) => Self::SCHEMA_CHANGE,
        }
    }

    /// Reads the message of an EVENT.
    ///
    /// # Errors
    /// It is not one, or of a kind that is not known.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message);
        let event = match reader.string("kind of event")? {
            Self::TOPOLOGY_CHANGE => {
                let (change, node) = (reader.string("change")?, reader.inet("node")?);
                Self::Topology { change, node }
            }
            Self::STATUS_CHANGE => {
                let (change, node) = (reader.string("change")?, reader.inet("node")?);
                Self::Status { change, node }
            }
            Self::SCHEMA_CHANGE => Self::Schema(SchemaChange::read(&mut reader)?),
            _ => return Err(unknown("kind of event", 0)),
        };
        Ok(event)
    }

    /// Writes the message of an EVENT.
    ///
    /// # Panics
    /// When a text is longer than 65,535 bytes.
    pub fn write(&self, out: &mut impl BufMut) {
        write::string(out, self.kind());
        match self {
            Self::Topology { change, node } | Self::Status { change, node } => {
                write::string(out, change);
                write::inet(out, *node);
            }
            Self::Schema(change) => change.write(out),
        }
    }
}

/// A word that has no meaning has no number either.
const fn unknown(what: &'static str, at: usize) -> Malformed {
    Malformed { what, at, problem: Problem::UnknownWord }
}

impl<'a> SchemaChange<'a> {
    /// Reads it as EVENT and RESULT have it.
    ///
    /// # Errors
    /// It is not one, or of something that is not known.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, Malformed> {
        let change = reader.string("change")?;
        let at = reader.position();
        let target = reader.string("target of the change")?;
        let keyspace = reader.string("keyspace")?;
        let target = match target {
            "KEYSPACE" => SchemaTarget::Keyspace,
            "TABLE" => SchemaTarget::Table(reader.string("table")?),
            "TYPE" => SchemaTarget::Type(reader.string("type")?),
            "FUNCTION" => {
                let name = reader.string("function")?;
                SchemaTarget::Function(name, reader.string_list("types of arguments")?)
            }
            "AGGREGATE" => {
                let name = reader.string("aggregate")?;
                SchemaTarget::Aggregate(name, reader.string_list("types of arguments")?)
            }
            _ => return Err(unknown("target of the change", at)),
        };
        Ok(Self { change, keyspace, target })
    }

    /// Writes it as EVENT and RESULT have it.
    ///
    /// # Panics
    /// When a text is longer than 65,535 bytes.
    pub fn write(&self, out: &mut impl BufMut) {
        write::string(out, self.change);
        let (target, name, types) = match &self.target {
            SchemaTarget::Keyspace => ("KEYSPACE", None, None),
            SchemaTarget::Table(name) => ("TABLE", Some(name), None),
            SchemaTarget::Type(name) => ("TYPE", Some(name), None),
            SchemaTarget::Function(name, types) => ("FUNCTION", Some(name), Some(types)),
            SchemaTarget::Aggregate(name, types) => ("AGGREGATE", Some(name), Some(types)),
        };
        write::string(out, target);
        write::string(out, self.keyspace);
        if let Some(name) = name {
            write::string(out, name);
        }
        if let Some(types) = types {
            write::string_list(out, types);
        }
    }
}
