//! Why a request brought no answer.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;

use super::ask::Answer;
use crate::{Malformed, WireError};

/// Why a request brought no answer.
#[derive(Clone, Debug)]
pub struct SendError {
    kind: SendErrorKind,
    address: SocketAddr,
    was_sent: bool,
    why: Rc<str>,
    answer: Option<Box<Answer>>,
}

/// How a connection ended.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) kind: SendErrorKind,
    pub(super) why: Rc<str>,
}

/// Kinds of failed requests. Only [`SendErrorKind::Busy`] is not the node's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// No connection could be opened.
    Connect,
    /// The connection, or what a node must say before it may be used, was not there in time.
    ConnectTimedOut,
    /// The node closed or reset the connection before it answered.
    Reset,
    /// The node said nothing any more, not even to a heartbeat.
    Silent,
    /// The node answered something that is not the protocol.
    Protocol,
    /// The node refused the login, or wants one that cannot be replayed.
    Authentication,
    /// The node refused the connection for another reason, such as a keyspace it does not have.
    Refused,
    /// As many requests are in flight, and wait, as may.
    Busy,
}

impl End {
    pub(super) fn new(kind: SendErrorKind, why: impl Into<Rc<str>>) -> Self {
        Self { kind, why: why.into() }
    }

    /// The error of a request to this node of which no byte was sent.
    pub(super) fn at(self, address: SocketAddr) -> SendError {
        SendError::unsent(self.kind, address, self.why)
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::new(SendErrorKind::Protocol, error.to_string())
    }
}

impl From<Malformed> for End {
    fn from(error: Malformed) -> Self {
        Self::new(SendErrorKind::Protocol, error.to_string())
    }
}

impl SendError {
    /// An error of a request of which no byte was sent.
    pub(super) fn unsent(
        kind: SendErrorKind,
        address: SocketAddr,
        why: impl Into<Rc<str>>,
    ) -> Self {
        Self { kind, address, was_sent: false, why: why.into(), answer: None }
    }

    /// The same for a request of which bytes may have reached the node.
    pub(super) fn sent(self) -> Self {
        Self { was_sent: true, ..self }
    }

    /// The same where what was sent does not matter.
    pub(super) fn not_sent(self) -> Self {
        Self { was_sent: false, ..self }
    }

    /// With the `ERROR` by which the node refused the connection.
    pub(super) fn with_answer(self, answer: Answer) -> Self {
        Self { answer: Some(Box::new(answer)), ..self }
    }

    /// What went wrong.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// The node that was asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the node may have seen some of the request; if not, any request is safe to send
    /// again, and exactly then it is `false`.
    pub fn was_sent(&self) -> bool {
        self.was_sent
    }

    /// The `ERROR` by which the node refused the login or the keyspace: the client's own mistake,
    /// in the node's words.
    pub fn answer(&self) -> Option<&Answer> {
        self.answer.as_deref()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "node {}: {}", self.address, self.why)?;
        let hint = match self.kind {
            SendErrorKind::Connect => " (is it running, and is this its native port?)",
            SendErrorKind::ConnectTimedOut => " (is it overloaded, or behind a firewall?)",
            SendErrorKind::Silent => " (is it paused, or gone without a goodbye?)",
            SendErrorKind::Protocol => " (is this a Cassandra node's native port?)",
            SendErrorKind::Busy => " (more connections or streams can be allowed)",
            SendErrorKind::Reset | SendErrorKind::Authentication | SendErrorKind::Refused => "",
        };
        formatter.write_str(hint)
    }
}

impl Error for SendError {}
