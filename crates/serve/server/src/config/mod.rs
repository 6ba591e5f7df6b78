//! What people write for `evenkeel run`: listeners, upstreams, agents.
//!
//! The types are here; `read.rs` takes them out of the file and reports every problem at once.

mod log;
mod read;
mod source;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_settings::address::ListenAddress;
use evenkeel_settings::{Node, Problems};

pub use evenkeel_cassandra::config::{CqlConfig, RemoteDatacenter};
pub use evenkeel_duplicates::DuplicatesConfig;
pub use evenkeel_http_proxy::config::{
    AgentConfig, DimmerConfig, Edge, HttpListenConfig, Inbound, RouteConfig, Session, Switch,
};
pub use evenkeel_mesh::config::{RedirectConfig, RedirectPair, RedirectSite};
pub use evenkeel_mesh::envoy::config::EnvoyConfig;
pub use evenkeel_placement::config::{
    DatabaseConfig, OperationsConfig, PlacementConfig, PlacementTier, StoreConfig, SystemConfig,
};
pub use evenkeel_proxy::config::{
    CountedAs, HealthConfig, ReplicaSource, SiteReplicas, SiteSetup, Timeouts, UpstreamConfig,
};
pub use evenkeel_record::RecordConfig;
use evenkeel_runtime::limits::{Engine, ServerLimits};
use evenkeel_runtime::networks::Networks;
use evenkeel_runtime::tls::ServerTlsFiles;
pub use evenkeel_traces::config::TracesConfig;
pub use log::{LogConfig, LogFormat};
pub use source::Source;

/// One process: what it listens on and where requests go.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[process]`
    pub process: ProcessConfig,
    /// `[[listen]]`
    pub listens: Vec<ListenConfig>,
    /// `[upstream.NAME]`
    pub upstreams: Vec<UpstreamEntry>,
    /// `[[agent]]`
    pub agents: Vec<AgentEntry>,
    /// `[admin]`; absent = no metrics, API or dashboard.
    pub admin: Option<AdminConfig>,
    /// `[log]`
    pub log: LogConfig,
    /// `[traces]`; absent = none are exported.
    pub traces: Option<TracesConfig>,
    /// `[record]`; absent = nothing is recorded.
    pub record: Option<RecordConfig>,
    /// `[redirect]`; absent = every request stays in this data centre.
    pub redirect: Option<RedirectConfig>,
    /// `[envoy]`; absent = only our own proxy follows the plan.
    pub envoy: Option<EnvoyConfig>,
    /// `[placement]`; absent = nobody asks where databases should be.
    pub placement: Option<PlacementConfig>,
    /// `[duplicates.NAME]`
    pub duplicates: Vec<DuplicatesConfig>,
    /// Where all of it comes from; default: from no file, so that it cannot be reloaded.
    pub source: Source,
}

/// `[process]`: what concerns the whole process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessConfig {
    /// Worker threads, each with sockets and dispatchers of its own; default: one per core.
    pub workers: usize,
    /// How long requests in flight may take once the process is told to stop; default 10 s.
    pub drain: Duration,
    /// Bytes that may be buffered for all clients; default 256 MiB.
    pub buffers_max: u64,
    /// DNS servers to ask, in this order; default: those of the operating system.
    pub resolvers: Vec<SocketAddr>,
    /// The path of the socket by which another process takes over; default: on Linux a name that is
    /// no file, made of user and configuration file.
    pub hand_over: Option<PathBuf>,
    /// Who reads and writes HTTP/1.1; default: the library hyper.
    pub engine: Engine,
}

/// `[[listen]]`: an address and the upstream behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListenConfig {
    /// The address to accept clients on.
    pub address: ListenAddress,
    /// Index into [`Config::upstreams`], for requests that no route takes.
    pub upstream: usize,
    /// Routes of an upstream of HTTP, the first that fits first.
    pub routes: Vec<RouteConfig>,
    /// What each worker allows its clients.
    pub limits: ServerLimits,
    /// How requests are passed on, before an upstream of HTTP.
    pub http: HttpListenConfig,
    /// Peers that say whose connection they pass on, by the PROXY protocol.
    pub proxy_protocol: Networks,
    /// Encryption towards clients; `None` = none.
    pub tls: Option<ServerTlsFiles>,
}

/// `[upstream.NAME]`: who serves, and what they speak.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamEntry {
    /// What is the same whatever they speak.
    pub common: UpstreamConfig,
    /// `[upstream.NAME.cql]`; `None` where HTTP is spoken.
    pub cql: Option<CqlConfig>,
}

/// `[[agent]]`: who is before an application, and what it speaks.
#[derive(Debug, Clone)]
pub struct AgentEntry {
    /// What is the same whatever it speaks.
    pub common: AgentConfig,
    /// What is spoken.
    pub protocol: Protocol,
}

/// What an upstream or an application speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Protocol {
    /// HTTP/1.1.
    #[default]
    Http,
    /// Cassandra's native protocol, versions 4 and 5.
    Cql,
}

/// `[admin]`: metrics, API, dashboard.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// The address; off this machine clients need a token or a certificate.
    pub address: ListenAddress,
    /// Encryption; `None` = none.
    pub tls: Option<ServerTlsFiles>,
    /// The file whose first line is the token that clients need.
    pub token_file: Option<PathBuf>,
    /// What is answered without; default nothing.
    pub public: Vec<PublicPath>,
}

impl AdminConfig {
    /// Open to everybody who reaches it: for an address of the loopback.
    pub const fn open(address: SocketAddr) -> Self {
        let address = ListenAddress::Inet(address);
        Self { address, tls: None, token_file: None, public: Vec::new() }
    }

    /// Whether only this machine reaches it.
    pub fn is_near(&self) -> bool {
        self.address.inet().is_none_or(|address| address.ip().to_canonical().is_loopback())
    }

    /// Whether a certificate of the client is asked for.
    pub fn asks_certificates(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some())
    }
}

evenkeel_core::named! {
    /// A path that `[admin]` may answer without a token or certificate.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum PublicPath {
        /// Whether the process lives.
        Healthz = "healthz",
        /// Whether it can serve.
        Readyz = "readyz",
        /// What it has counted.
        Metrics = "metrics",
    }
}

impl ListenConfig {
    /// The upstreams behind it, that of no route first.
    pub fn upstreams(&self) -> impl Iterator<Item = usize> {
        [self.upstream].into_iter().chain(self.routes.iter().flat_map(RouteConfig::upstreams))
    }
}

impl Config {
    /// Reads a configuration file.
    ///
    /// # Errors
    /// Every problem at once, each with file and line, what came and what was expected.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        Self::read(&Node::load(path)?)
    }

    /// Takes the configuration out of what was written.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn read(node: &Node) -> Result<Self, Problems> {
        let config = node.read(read::config)?;
        Ok(Self { source: Source::of(node), ..config })
    }

    /// What a reader of the file might not expect of it: a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let follower = self.redirect.iter().filter_map(|redirect| {
            let (through, site) = (redirect.through?, &redirect.sites[redirect.site.index()].name);
            Some(format!(
                "[redirect] controller {through}: this process is a follower of the controller of \
                 {site}; it makes no plans, reports its counts and enforces its part of the plan; \
                 without the controller all requests stay at {site}"
            ))
        });
        follower.collect()
    }

    /// What is sound and still seldom meant: a sentence each.
    pub fn doubts(&self) -> Vec<String> {
        let admin = self.admin.iter().filter(|admin| {
            let is_near = admin.is_near();
            !is_near && admin.token_file.is_some() && admin.tls.is_none()
        });
        let mut doubts: Vec<String> = admin
            .map(|admin| {
                let address = &admin.address;
                format!("[admin] {address} without tls: the token can be read on the network")
            })
            .collect();
        let Some(redirect) = &self.redirect else { return doubts };
        let upstream = &self.upstreams[redirect.upstream].common;
        let name = &upstream.name;
        if upstream.health.is_none() {
            doubts.push(format!(
                "[redirect] without [upstream.{name}.health]: replicas that are down count as \
                 capacity, and other sites send to them"
            ));
        }
        let is_door = |listen: &&ListenConfig| {
            listen.upstreams().any(|it| it == redirect.upstream)
                && listen.http.redirected == Edge::Trust
        };
        let has_door = self.listens.iter().any(|listen| is_door(&listen));
        match (&redirect.exports.kubernetes, has_door) {
            (Some(_), true) => doubts.push(format!(
                "[redirect.kubernetes] beside a [[listen]] with forwarded_requests = \"trust\": \
                 [upstream.{name}.sites] must list replicas of the other zones, not such proxies"
            )),
            (None, false) => doubts.push(format!(
                "[redirect] without a [[listen]] for {name} with forwarded_requests = \"trust\": \
                 requests from other sites count as local demand and may be forwarded again"
            )),
            _ => {}
        }
        doubts
    }

    /// What an upstream speaks.
    pub fn protocol_of(&self, upstream: usize) -> Protocol {
        match self.upstreams[upstream].cql {
            Some(_) => Protocol::Cql,
            None => Protocol::Http,
        }
    }
}
