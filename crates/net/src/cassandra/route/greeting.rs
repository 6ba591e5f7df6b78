//! The beginning of a client's connection, which a node answers: `OPTIONS`, `STARTUP`, login.

use std::rc::Rc;

use bytes::Bytes;
use evenkeel_cql::{Flags, Opcode, Version};

use super::Route;
use crate::cassandra::front::{Conversation, Refusal};
use crate::cassandra::node::{self, Answer, Node, SendError};

/// A conversation of one client with one node. The node is chosen when the first word is said: its
/// connection speaks the version that the client does.
#[derive(Debug)]
pub(crate) struct Greeting {
    /// Those that may be asked, the best first.
    nodes: Vec<Rc<Node>>,
    begun: Option<node::Conversation>,
}

impl Greeting {
    /// With the first node that is up and can be reached.
    ///
    /// # Errors
    /// When none is up.
    pub(super) fn new(route: &Route) -> Result<Self, Refusal> {
        let nodes = route.ready();
        if nodes.is_empty() {
            return Err(route.nobody());
        }
        Ok(Self { nodes, begun: None })
    }

    async fn begin(&mut self, version: Version) -> Result<&mut node::Conversation, Refusal> {
        if self.begun.is_none() {
            self.begun = Some(converse(&self.nodes, version).await.map_err(|error| refusal(&error))?);
        }
        Ok(self.begun.as_mut().expect("begun a line above"))
    }
}

/// The first of these nodes that can be reached.
async fn converse(nodes: &[Rc<Node>], version: Version) -> Result<node::Conversation, SendError> {
    let (last, others) = nodes.split_last().expect("a greeting has nodes");
    for node in others {
        if let Ok(conversation) = node.converse(version).await {
            return Ok(conversation);
        }
    }
    last.converse(version).await
}

fn refusal(error: &SendError) -> Refusal {
    Refusal::overloaded(error.to_string())
}

impl Conversation for Greeting {
    async fn say(
        &mut self,
        version: Version,
        opcode: Opcode,
        body: Bytes,
    ) -> Result<Answer, Refusal> {
        let conversation = self.begin(version).await?;
        conversation.ask(opcode, Flags::NONE, body).await.map_err(|error| refusal(&error))
    }
}
