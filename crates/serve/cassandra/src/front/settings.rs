//! What one process allows its clients, and what it tells them it is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::prepared::PreparedStatements;
use crate::system::{Proxies, Proxy};
use evenkeel_runtime::accept::{AcceptConfig, ListenerFilters};
use evenkeel_runtime::buffers::{self, BufferBudget};

/// What one worker allows its clients, and what it tells them it is.
#[derive(Clone, Debug)]
pub struct FrontSettings {
    /// Connections of clients at once, of this worker; more wait in the kernel's backlog.
    pub connections_max: usize,
    /// The longest request body in bytes; Cassandra's default is 16 MiB.
    pub frame_bytes_max: usize,
    /// Requests of one connection in flight, from 1 to 32,768: with as many nothing more is read.
    pub in_flight_max: usize,
    /// Bytes of requests of one connection in flight: with more nothing more is read.
    pub in_flight_bytes_max: usize,
    /// How long TLS, STARTUP and login together may take.
    pub handshake: Duration,
    /// How long a connection may say nothing while nothing is in flight.
    pub idle: Duration,
    /// How long a client may take nothing of what it has asked for.
    pub write: Duration,
    /// How long requests in flight may take to finish once the worker stops.
    pub drain: Duration,
    /// How long it is waited for nodes to agree on the schema, before an answer to a change of it,
    /// or an event that tells of one, passes all the same.
    pub settle: Duration,
    /// How long a driver's question whether nodes agree is kept until they do. Drivers ask for 10
    /// to 60 s in all. They take no answer for a no, and ask again after 2 to 20 s; an error makes
    /// Python's give up the connection of the application.
    pub agreement: Duration,
    /// What may be buffered for all clients of the process.
    pub buffers: &'static BufferBudget,
    /// With what clients are spoken to, if encrypted.
    pub filters: ListenerFilters,
    /// All proxies of this cluster, this process among them.
    pub(crate) proxies: Proxies,
    /// What this process is to clients that reached it at an address that is not in the list: its
    /// data centre, rack and, where clients know it by another address than it has (behind a
    /// translation), that address.
    pub(crate) own: Own,
    /// The prepared statements of all workers.
    pub(crate) statements: Arc<PreparedStatements>,
}

/// What this process is, where the list of proxies does not say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// The data centre it is at home in.
    pub datacenter: Arc<str>,
    /// Its rack.
    pub rack: Arc<str>,
    /// The address that clients know it by; `None` when it is the one they connect to.
    pub address: Option<SocketAddr>,
}

/// How long a client may be idle where nothing is configured. Drivers send a heartbeat on an idle
/// connection every 30 s, but not all of them and not always; nodes close none. So this only frees
/// the places of clients that are gone and did not say so.
pub const IDLE: Duration = Duration::from_secs(3_600);

impl FrontSettings {
    /// With this crate's defaults for a process that is alone.
    pub(crate) fn new(datacenter: &str) -> Self {
        Self {
            connections_max: 4_096,
            frame_bytes_max: 16 << 20,
            in_flight_max: 2_048,
            in_flight_bytes_max: 16 << 20,
            handshake: Duration::from_secs(10),
            idle: IDLE,
            write: Duration::from_secs(30),
            drain: Duration::from_secs(10),
            settle: Duration::from_secs(5),
            agreement: Duration::from_secs(60),
            buffers: buffers::of_process(),
            filters: ListenerFilters::NONE,
            proxies: Proxies::default(),
            own: Own { datacenter: datacenter.into(), rack: "evenkeel".into(), address: None },
            statements: Arc::new(PreparedStatements::new(64 << 20)),
        }
    }

    pub(super) fn accept_config(&self) -> AcceptConfig {
        AcceptConfig {
            connections_max: self.connections_max,
            handshake: self.handshake,
            first: self.handshake,
            idle: self.idle,
            write: self.write,
            age: Duration::MAX,
            drain: self.drain,
            filters: self.filters.clone(),
        }
    }

    /// Which proxy a client is connected to that reached this address.
    pub(crate) fn proxy_at(&self, local: SocketAddr) -> Proxy {
        let address = self.own.address.unwrap_or(local);
        self.proxies.at(address).cloned().unwrap_or_else(|| Proxy {
            datacenter: Arc::clone(&self.own.datacenter),
            address: SocketAddr::new(address.ip().to_canonical(), address.port()),
            rack: Arc::clone(&self.own.rack),
        })
    }
}
