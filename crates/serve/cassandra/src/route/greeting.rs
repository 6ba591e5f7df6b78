//! The beginning of a client's connection, which a node answers: `OPTIONS`, `STARTUP`, login.

use bytes::Bytes;
use evenkeel_cql::{Flags, Opcode, Version};

use super::Route;
use crate::front::{Conversation, Refusal};
use evenkeel_cql::client::{
    self as node, Answer, Ask, Dialect, Prepared, SendError, SendErrorKind,
};

/// A conversation of one client with one node.
#[derive(Debug)]
pub(crate) struct Greeting(node::Conversation);

impl Greeting {
    /// With the first node in turn that is up and can be reached.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn begin(route: &Route, version: Version) -> Result<Self, Refusal> {
        let mut reported = None;
        for node in route.ready() {
            match node.converse(version).await {
                Ok(conversation) => return Ok(Self(conversation)),
                Err(error) => reported = Some(refusal(&error)),
            }
        }
        Err(reported.unwrap_or_else(|| route.nobody()))
    }
}

/// Logs in as this client on a connection of requests, at the first node in turn that can be
/// reached.
///
/// # Errors
/// When the login cannot be replayed, or nobody can be reached.
pub(crate) async fn prove(route: &Route, dialect: &Dialect) -> Result<(), Refusal> {
    let mut reported = None;
    for node in route.ready() {
        let (flags, body) = (Flags::NONE, Bytes::new());
        let ask = Ask { opcode: Opcode::Options, flags, body, prepared: Prepared::None };
        match node.ask(dialect, ask).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == SendErrorKind::Authentication => {
                return Err(Refusal::bad_credentials(format!(
                    "the login is good for one connection and for no other ({error}). This proxy \
                     logs in to every node as its clients do, which it can where every node asks \
                     the same (PLAIN, as PasswordAuthenticator has it), and not with this mechanism"
                )));
            }
            Err(error) => reported = Some(refusal(&error)),
        }
    }
    Err(reported.unwrap_or_else(|| route.nobody()))
}

fn refusal(error: &SendError) -> Refusal {
    Refusal::overloaded(error.to_string())
}

impl Conversation for Greeting {
    async fn say(&mut self, opcode: Opcode, body: Bytes) -> Result<Answer, Refusal> {
        self.0.ask(opcode, Flags::NONE, body).await.map_err(|error| refusal(&error))
    }
}
