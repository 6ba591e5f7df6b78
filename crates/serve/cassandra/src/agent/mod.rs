//! The agent beside a node: passes bytes between clients and the node, counts what is in flight,
//! and says with every answer how the node is doing, to those who asked for it.
//!
//! **Signal**: requests (`QUERY`, `PREPARE`, `EXECUTE`, `BATCH`) that went to the node and are not
//! answered, of all clients together, and the time from passing a request on until its answer has
//! come. **Cold start**: no report before a request was passed on. **When it misleads**: a node is
//! a coordinator too, so a request that waits for other nodes counts here; `ERROR`s are no
//! measurements, since a node that fails at once would look fast. With `concurrency` set, requests
//! beyond that many count as waiting, and the time of a request that found others waiting is
//! reported as the share of it that was service; without it, waiting inside the node shows as
//! service time and the queue is reported as empty.
//!
//! **Transparent.** A connection whose `STARTUP` did not ask for reports passes byte for byte; it
//! is looked at to count, and one that cannot be understood (another version, a damaged frame)
//! passes on uncounted. On a connection that asked ([`FEEDBACK_OPTION`], which the node never
//! sees), requests pass byte for byte and answers get one entry of custom payload
//! ([`FEEDBACK_KEY`]).
//!
//! **One thread.** The counts are those of the whole node, so one agent runs on one worker thread.
//!
//! **TLS** is its own on either side: it must read what passes. A client's certificate is not
//! passed on; where the node asks for one (`require_client_auth`), the agent shows its own.
//!
//! [`FEEDBACK_OPTION`]: evenkeel_cql::client::FEEDBACK_OPTION
//! [`FEEDBACK_KEY`]: evenkeel_cql::client::FEEDBACK_KEY

mod answers;
mod census;
mod requests;
mod session;
mod state;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Feedback;
use evenkeel_settings::address::ServerAddress;

use census::Census;
use evenkeel_runtime::accept::{
    AcceptConfig, Link, Listener, ListenerFilters, Peer, Phase, ServeConnection, StopSignal,
    Stream, accept,
};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::dial::dial;
use evenkeel_runtime::tls::{ClientTls, ServerTls};
use state::Session;

/// How an agent beside a node is set up.
#[derive(Clone, Debug)]
pub struct NodeAgentSettings {
    /// The node's native address.
    pub node: ServerAddress,
    /// Requests the node serves at once, if it is known (`native_transport_max_threads`, or what
    /// its disks and cores can do); only for what is reported, nothing is held back.
    pub concurrency: Option<u32>,
    /// Clients at once; more wait in the kernel's backlog.
    pub connections_max: usize,
    /// With what clients are spoken to, if encrypted.
    pub client_tls: Option<ServerTls>,
    /// With what the node is spoken to, if encrypted.
    pub node_tls: Option<ClientTls>,
    /// How long a client's TLS may take.
    pub handshake: Duration,
    /// How long connecting to the node may take, TLS with it.
    pub connect: Duration,
    /// The longest frame that is looked into, in bytes.
    pub frame_bytes_max: usize,
    /// How long clients may finish after the agent was told to stop.
    pub drain: Duration,
}

impl NodeAgentSettings {
    /// The usual settings for this node.
    pub fn new(node: impl Into<ServerAddress>) -> Self {
        Self {
            node: node.into(),
            concurrency: None,
            connections_max: 10_000,
            client_tls: None,
            node_tls: None,
            handshake: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            frame_bytes_max: 16 << 20,
            drain: Duration::from_secs(5),
        }
    }
}

/// How an agent before a node stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeAgentState {
    /// Requests that wait for the node.
    pub waiting: u32,
    /// Requests with the node.
    pub in_service: u32,
}

/// The agent beside one node.
pub struct NodeAgent {
    settings: NodeAgentSettings,
    census: Rc<Census>,
}

impl NodeAgent {
    /// An agent that has not heard of its node yet.
    pub fn new(settings: NodeAgentSettings, clock: Clock) -> Rc<Self> {
        let census = Rc::new(Census::new(settings.concurrency, clock));
        Rc::new(Self { settings, census })
    }

    /// Serves on this thread until told to stop; then clients are closed as soon as they wait for
    /// nothing.
    ///
    /// # Errors
    /// When the listener cannot be used.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
    pub async fn serve(self: Rc<Self>, listener: Listener, stop: StopSignal) -> io::Result<()> {
        let config = AcceptConfig {
            connections_max: self.settings.connections_max,
            handshake: self.settings.handshake,
            age: Duration::MAX,
            drain: self.settings.drain,
            filters: ListenerFilters::of_tls(self.settings.client_tls.clone()),
            ..AcceptConfig::unlimited()
        };
        accept(listener, config.fixed(), self, stop).await.map(drop)
    }

    /// How it stands.
    pub fn state(&self) -> NodeAgentState {
        let (waiting, in_service) = self.census.load();
        NodeAgentState { waiting, in_service }
    }

    /// The report of this moment; `None` before any request.
    pub fn report(&self) -> Option<Feedback> {
        Some(self.census.report(None))
    }
}

impl ServeConnection for NodeAgent {
    async fn serve(self: Rc<Self>, client: Stream, _peer: Peer, link: Rc<Link>) {
        let node = self.settings.node;
        link.enter(Phase::Serving); // how long it may idle is for the node to say
        let connecting = dial(node, self.settings.node_tls.as_ref());
        match tokio::time::timeout(self.settings.connect, connecting).await {
            Ok(Ok(stream)) => {
                let session = Session::new(&self.census, self.settings.frame_bytes_max);
                if let Err(error) = session::pass(&session, &link, client, stream).await {
                    tracing::debug!(%node, %error, "a client's connection ended");
                }
            }
            Ok(Err(error)) => tracing::debug!(%node, %error, "the node is not reached"),
            Err(_) => tracing::debug!(%node, "the node is not reached in time"),
        }
    }
}

impl fmt::Debug for NodeAgent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NodeAgent({}, {:?})", self.settings.node, self.state())
    }
}
