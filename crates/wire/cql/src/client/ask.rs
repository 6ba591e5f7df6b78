//! One request to a node and its answer.

use std::rc::Rc;
use std::sync::Arc;

use crate::request::{Execute, QueryParameters};
use crate::{Envelope, Flags, Opcode, Version, payload};
use bytes::{Bytes, BytesMut};
use evenkeel_core::Feedback;

use super::result_columns::ResultColumns;
use super::streams::Arrived;

/// One request, as it goes to a node.
#[derive(Clone, Debug)]
pub struct Ask {
    /// What it is: `QUERY`, `PREPARE`, `EXECUTE` or `BATCH`; `OPTIONS` too.
    pub opcode: Opcode,
    /// Tracing and custom payload as the client set them; whether bytes are compressed is for the
    /// connection to say.
    pub flags: Flags,
    /// The body, not compressed.
    pub body: Bytes,
    /// The prepared statements that the body names.
    pub prepared: Prepared,
}

impl Ask {
    /// The same, but that rows come with their metadata, where that must be: the client does
    /// without it, and what it knows of the columns is not so any more.
    ///
    /// In version 5 the node sees by itself what the client does not know.
    pub(super) fn with_metadata(&self, version: Version) -> Option<Self> {
        let Prepared::One(statement) = &self.prepared else { return None };
        let is_meant = version == Version::V4 && self.opcode == Opcode::Execute;
        if !is_meant || !statement.result.has_changed() {
            return None;
        }
        let Self { opcode, flags, body, prepared } = self.clone();
        let envelope = Envelope { flags, ..Envelope::new(version, 0, opcode, body.clone()) };
        let message = payload::split(&envelope).ok()?.message;
        let execute = Execute::read(message, version).ok()?;
        if !execute.parameters.skip_metadata {
            return None;
        }
        let mut changed = BytesMut::from(&body[..body.len() - message.len()]);
        let parameters = QueryParameters { skip_metadata: false, ..execute.parameters };
        Execute { parameters, ..execute }.write(version, &mut changed);
        Some(Self { opcode, flags, body: changed.freeze(), prepared })
    }
}

/// The prepared statements of a request: what to prepare again when the node does not know one.
#[derive(Clone, Debug, Default)]
pub enum Prepared {
    /// None, or none that anybody here knows: `UNPREPARED` is then an answer like any other.
    #[default]
    None,
    /// That of an `EXECUTE`.
    One(Arc<Known>),
    /// Those of a `BATCH`.
    Several(Rc<[Arc<Known>]>),
}

impl Prepared {
    /// The statement with this id.
    pub(super) fn find(&self, id: &[u8]) -> Option<&Arc<Known>> {
        let statements = match self {
            Self::None => &[],
            Self::One(statement) => std::slice::from_ref(statement),
            Self::Several(statements) => statements,
        };
        statements.iter().find(|statement| statement.id == id)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Several(statements) => statements.len(),
        }
    }
}

/// A statement that has been prepared somewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What nodes call it: a digest of keyspace and text, the same at every node.
    pub id: Bytes,
    /// The text that was prepared, letter by letter.
    pub text: Arc<str>,
    /// The keyspace that was in force then.
    pub keyspace: Option<Arc<str>>,
    /// What its result looked like then.
    pub result: ResultColumns,
}

/// What a node answered: a `RESULT` or an `ERROR`.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What it is.
    pub opcode: Opcode,
    /// Tracing, custom payload and warnings: they say what the body begins with.
    pub flags: Flags,
    /// The body, not compressed, without the report.
    pub body: Bytes,
    /// What the node said of itself beside the answer.
    pub feedback: Option<Feedback>,
}

impl From<Envelope> for Answer {
    fn from(envelope: Envelope) -> Self {
        let Envelope { opcode, flags, body, .. } = envelope;
        Self { opcode, flags, body, feedback: None }
    }
}

impl From<Arrived> for Answer {
    fn from(arrived: Arrived) -> Self {
        Self { feedback: arrived.feedback, ..Self::from(arrived.envelope) }
    }
}
