//! Plain clients of a service of several groups of partitions: whichever process a client comes
//! to, and whichever leads the group of a key, it is served as by one Redis.
//!
//! Each client has a session with the leader of every group that it has asked something of: in this
//! process by a pipe, in another one by a connection to the group's door there
//! ([`evenkeel_leadership::Ways`]). A command goes to the group of its keys (`client/taking.rs`),
//! answers go out in the order of the commands (`client.rs`).
//!
//! **All sessions of a client are alike**: who it is, its name, its database, its protocol
//! (`said.rs`). What is said of these is said to all that are open, once everything before it is
//! answered, and to each that is opened later.
//!
//! **Keys in several groups** are treated as keys in several partitions of one group: `MGET`,
//! `MSET`, `DEL` and their kin are done in parts, each of them atomic; what cannot be is refused
//! (`CROSSSLOT`), and before nodes of Redis Cluster all of it is. A transaction is of the group of
//! its first key, or of what it watches.
//!
//! **Channels**: who subscribes does so in every group, who publishes does in one. So a message
//! comes once, whoever publishes it: a client, a transaction or a script, at any process.
//!
//! **When a leader changes** (`backend.rs`): what was surely not done is sent to the next one. What
//! may be done, and what only the old leader knew of the client (a transaction, watched keys,
//! channels), is the end of the client's connection, as where a Redis dies.

mod backend;
mod client;
mod joined;
mod said;
#[cfg(test)]
mod tests;

use std::hash::{BuildHasher as _, RandomState};
use std::pin::Pin;
use std::rc::Rc;

use self::client::Client;
use super::config::{ClientAccess, DuplicatesConfig};
use evenkeel_duplicates_engine::SharedUsers;
use evenkeel_leadership::Ways;
use evenkeel_runtime::accept::{Link, Peer, ServeConnection, Stream};
use evenkeel_stores::resp::request::Limits;
use evenkeel_stores::store::keys::Servers;

/// Serves plain clients of all groups.
pub(super) struct Router {
    ways: Ways,
    users: SharedUsers,
    access: ClientAccess,
    limits: Limits,
    /// Where clients of Redis Cluster are served.
    door: String,
    /// What takes keys of several slots together.
    servers: Servers,
}

impl Router {
    pub(super) fn new(config: &DuplicatesConfig, ways: Ways, users: SharedUsers) -> Self {
        let door = config.cluster_address().map(|at| at.to_string()).unwrap_or_default();
        let (access, servers) = (config.access.clone(), config.servers());
        Self { ways, users, access, limits: config.limits, door, servers }
    }

    fn groups(&self) -> usize {
        self.ways.own.len()
    }

    /// A number to draw by.
    fn random(&self) -> u64 {
        RandomState::new().hash_one(()) // each is keyed anew
    }
}

impl ServeConnection for Router {
    async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, link: Rc<Link>) {
        let mut client = Client::new(self, peer, link);
        std::future::poll_fn(|context| client.poll(Pin::new(&mut stream), context)).await;
    }
}
