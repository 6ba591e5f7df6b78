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
//! [`FEEDBACK_OPTION`]: super::node::FEEDBACK_OPTION
//! [`FEEDBACK_KEY`]: super::node::FEEDBACK_KEY

mod answers;
mod census;
mod requests;
mod session;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use evenkeel_core::Feedback;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::node::{NodeTls, Transport};
use crate::clock::Clock;
use crate::replica::AgentState;
use census::Census;
use session::Session;

/// How an agent beside a node is set up.
#[derive(Clone, Debug)]
pub struct NodeAgentSettings {
    /// The node's native address.
    pub node: SocketAddr,
    /// Requests the node serves at once, if it is known (`native_transport_max_threads`, or what
    /// its disks and cores can do); only for what is reported, nothing is held back.
    pub concurrency: Option<u32>,
    /// Clients at once; one more is turned away.
    pub connections_max: usize,
    /// With what clients are spoken to, if encrypted.
    pub client_tls: Option<Arc<ServerConfig>>,
    /// With what the node is spoken to, if encrypted.
    pub node_tls: Option<NodeTls>,
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
    #[must_use]
    pub fn new(node: SocketAddr) -> Self {
        Self {
            node,
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

/// The agent beside one node.
pub struct NodeAgent {
    settings: NodeAgentSettings,
    census: Rc<Census>,
}

impl NodeAgent {
    /// An agent that has not heard of its node yet.
    #[must_use]
    pub fn new(settings: NodeAgentSettings, clock: Clock) -> Rc<Self> {
        let census = Rc::new(Census::new(settings.concurrency, clock));
        Rc::new(Self { settings, census })
    }

    /// Serves on this thread until `stop` resolves, then lets clients finish for a while.
    ///
    /// # Errors
    ///
    /// When the listener cannot be used.
    ///
    /// # Panics
    ///
    /// Outside a [`worker_runtime`](crate::http::engine::worker_runtime).
    pub async fn serve(
        self: Rc<Self>,
        listener: std::net::TcpListener,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let mut serving = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let mut accept = pin!(listener.accept());
            let next = std::future::poll_fn(|context| {
                while let Poll::Ready(Some(_)) = serving.poll_join_next(context) {}
                if stop.as_mut().poll(context).is_ready() {
                    return Poll::Ready(None);
                }
                accept.as_mut().poll(context).map(Some)
            });
            match next.await {
                None => break,
                Some(Ok((client, _))) if serving.len() < self.settings.connections_max => {
                    serving.spawn_local(Rc::clone(&self).attend(client));
                }
                Some(Ok(_)) => tracing::warn!(node = %self.settings.node, "too many clients"),
                Some(Err(error)) => {
                    // Such as too many open files: the next client finds it better.
                    tracing::warn!(%error, "a client could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
        drop(listener);
        let finish = async { while serving.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(self.settings.drain, finish).await;
        Ok(())
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self) -> AgentState {
        let (waiting, in_service) = self.census.load();
        AgentState { waiting, in_service, brownout: None }
    }

    /// The report of this moment; `None` before any request.
    #[must_use]
    pub fn report(&self) -> Option<Feedback> {
        self.census.report(None)
    }

    /// Greets one client and serves it to its end.
    async fn attend(self: Rc<Self>, client: TcpStream) {
        let node = self.settings.node;
        if client.set_nodelay(true).is_err() {
            return; // it is gone
        }
        let Some(tls) = &self.settings.client_tls else { return self.pass(client).await };
        let greeting = TlsAcceptor::from(Arc::clone(tls)).accept(client);
        match tokio::time::timeout(self.settings.handshake, greeting).await {
            Ok(Ok(client)) => self.pass(client).await,
            Ok(Err(error)) => tracing::debug!(%node, %error, "a client: no TLS"),
            Err(_) => tracing::debug!(%node, "a client: no TLS in time"),
        }
    }

    async fn pass(&self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let node = self.settings.node;
        let connecting = Transport::open(node, self.settings.node_tls.as_ref());
        match tokio::time::timeout(self.settings.connect, connecting).await {
            Ok(Ok(stream)) => {
                let session = Session::new(&self.census, self.settings.frame_bytes_max);
                if let Err(error) = session::pass(&session, client, stream).await {
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
