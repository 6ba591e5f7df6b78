//! What stands behind the clients: the route to the nodes, or a fake one in tests.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_core::request::Replay;
use evenkeel_core::request::ring::Consistency;
use evenkeel_core::request::ring::Token;
use evenkeel_cql::statement::Idempotence;
use evenkeel_cql::{Opcode, Version};
use tokio::sync::broadcast;

use super::Refusal;
use crate::cluster::{Cluster, Notice};
use evenkeel_cql::client::{Answer, Ask, Dialect};

/// One request of a client, with what its route must know.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// How the client speaks.
    pub dialect: Dialect,
    /// What is sent.
    pub ask: Ask,
    /// What can be told of it.
    pub what: Asked,
}

/// What can be told of a request without asking anybody.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The keyspace of its first table; `None` when it names none or none is known.
    pub keyspace: Option<Arc<str>>,
    /// Where its partition key is on the ring; `None` when it has none or none is known.
    pub token: Option<Token>,
    /// Its consistency level.
    pub consistency: Consistency,
    /// Its serial consistency level, where one came.
    pub serial: Option<Consistency>,
    /// Whether it is, or may be, a lightweight transaction.
    pub is_conditional: bool,
    /// Whether it changes anything, or may.
    pub is_write: bool,
    /// Whether it may be sent twice, and if not, why.
    pub idempotence: Idempotence,
    /// The same for the dispatcher.
    pub replay: Replay,
}

/// The route to the nodes.
pub(crate) trait Backend: 'static {
    /// A conversation of one client with one node, until the client is logged in.
    type Conversation: Conversation;

    /// What is known of the cluster.
    fn cluster(&self) -> Arc<Cluster>;

    /// What happens in the cluster, from now on.
    fn events(&self) -> broadcast::Receiver<Notice>;

    /// Sends one request to whoever answers best. There always is an answer: an ERROR at the
    /// worst.
    async fn ask(self: &Rc<Self>, request: Request) -> Answer;

    /// Opens a connection in this version, for one client, to any node that is up.
    ///
    /// # Errors
    /// What the client is told when there is none.
    async fn greet(self: &Rc<Self>, version: Version) -> Result<Self::Conversation, Refusal>;

    /// Logs in as this client on a connection that its requests will share.
    ///
    /// # Errors
    /// What the client is told when its login cannot be replayed.
    async fn prove(self: &Rc<Self>, dialect: &Dialect) -> Result<(), Refusal>;

    /// The schema versions of the nodes that are up, as they are now, without repetition: one
    /// when they agree. None when nobody could be asked.
    async fn schema_versions(self: &Rc<Self>) -> Vec<[u8; 16]>;
}

/// A connection to a node that only one client uses.
pub(crate) trait Conversation: 'static {
    /// Says something and waits for the answer: `OPTIONS`, `STARTUP` without a compression, or
    /// `AUTH_RESPONSE`.
    ///
    /// # Errors
    /// What the client is told when the node does not answer.
    async fn say(&mut self, opcode: Opcode, body: Bytes) -> Result<Answer, Refusal>;
}
