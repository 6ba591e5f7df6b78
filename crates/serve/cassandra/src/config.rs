//! `[upstream.NAME.cql]`: a Cassandra cluster behind an upstream.

pub mod read;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_cql::client::config::CqlUser;

/// `[upstream.NAME.cql]`: the cluster, and how this process speaks with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CqlConfig {
    /// The data centre of this process, by the cluster's own name; default: that of the first
    /// node that answers.
    pub datacenter: Option<String>,
    /// The data centre of each other site, in the order of the sites of `[redirect]`; empty
    /// without it.
    pub remote: Vec<RemoteDatacenter>,
    /// Where clients reach the Evenkeels of this data centre, this one included: all that drivers
    /// are told of the cluster. Empty: only the address they are connected to.
    pub proxies: Vec<SocketAddr>,
    /// Where nodes are reached, where that is not the address they tell: behind an agent, a relay
    /// or a network's border.
    pub reached_at: BTreeMap<SocketAddr, SocketAddr>,
    /// As whom the process itself logs in; `None` = without a login.
    pub user: Option<CqlUser>,
    /// Whether bodies between this process and the nodes are compressed (LZ4); default no.
    pub is_compressed: bool,
    /// Time between looks at the thread pools of nodes without an agent; `None` = never.
    pub poll: Option<Duration>,
    /// Connections a worker may have to one node for clients that speak alike; default 2.
    pub connections_max: usize,
    /// Requests in flight on one connection; default 1024.
    pub streams_max: usize,
    /// The longest message, in bytes, of clients and of nodes; default 16 MiB.
    pub frame_bytes_max: usize,
    /// Requests of one client's connection that may be in flight; default 1024.
    pub requests_max: usize,
    /// Bytes of requests and answers of one client's connection that may wait; default 32 MiB.
    pub waiting_bytes_max: usize,
    /// Silence after which a connection to a node is asked whether it lives; default 10 s.
    pub heartbeat: Duration,
    /// Bytes of the texts of prepared statements that are kept for the process; default 64 MiB.
    pub prepared_bytes_max: usize,
}

impl Default for CqlConfig {
    fn default() -> Self {
        Self {
            datacenter: None,
            remote: Vec::new(),
            proxies: Vec::new(),
            reached_at: BTreeMap::new(),
            user: None,
            is_compressed: false,
            poll: None,
            connections_max: 2,
            streams_max: 1_024,
            frame_bytes_max: 16 << 20,
            requests_max: 1_024,
            waiting_bytes_max: 32 << 20,
            heartbeat: Duration::from_secs(10),
            prepared_bytes_max: 64 << 20,
        }
    }
}

/// The data centre of another site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteDatacenter {
    /// The site, in `[redirect]`.
    pub site: String,
    /// The data centre, in the cluster.
    pub datacenter: String,
}
