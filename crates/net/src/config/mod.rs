//! What people write for `evenkeel run`: listeners, upstreams, agents.
//!
//! The types are here; `read.rs` takes them out of the file and reports every problem at once.

mod cql;
mod envoy;
mod placement;
mod read;
mod redirect;

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::placement::model::Operation;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, HedgeConfig};
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::Policy;
use evenkeel_core::site::dimmer::BrownoutConfig;
use evenkeel_core::units::Dimmer;
use evenkeel_core::{Health, ReplicaId};
use evenkeel_settings::{Node, Problems};
use http::HeaderName;

pub use crate::duplicates::DuplicatesConfig;
use crate::http::engine::{ServerLimits, UpstreamLimits};
use crate::split::SplitSetup;
pub use cql::{
    CqlAgentConfig, CqlConfig, CqlListenConfig, CqlTls, CqlUser, Protocol, RemoteDatacenter,
};
pub use envoy::EnvoyConfig;
pub use placement::{
    DatabaseConfig, OperationsConfig, PlacementConfig, PlacementTier, StoreConfig, SystemConfig,
};
pub use redirect::{RedirectConfig, RedirectPair, RedirectSite};

/// One process: what it listens on and where requests go.
#[derive(Debug, Clone)]
pub struct Config {
    /// `[process]`
    pub process: ProcessConfig,
    /// `[[listen]]`
    pub listens: Vec<ListenConfig>,
    /// `[upstream.NAME]`
    pub upstreams: Vec<UpstreamConfig>,
    /// `[[agent]]`
    pub agents: Vec<AgentConfig>,
    /// `[admin]`; absent = no metrics, API or dashboard.
    pub admin: Option<AdminConfig>,
    /// `[redirect]`; absent = every request stays in this data centre.
    pub redirect: Option<RedirectConfig>,
    /// `[envoy]`; absent = only our own proxy follows the plan.
    pub envoy: Option<EnvoyConfig>,
    /// `[placement]`; absent = nobody asks where databases should be.
    pub placement: Option<PlacementConfig>,
    /// `[duplicates.NAME]`
    pub duplicates: Vec<DuplicatesConfig>,
}

/// `[process]`: what concerns the whole process.
#[derive(Debug, Clone)]
pub struct ProcessConfig {
    /// Worker threads, each with sockets and dispatchers of its own; default: one per core.
    pub workers: usize,
    /// How long requests in flight may take once the process is told to stop; default 10 s.
    pub drain: Duration,
}

/// `[[listen]]`: an address and the upstream behind it.
#[derive(Debug, Clone)]
pub struct ListenConfig {
    /// The address to accept clients on.
    pub address: SocketAddr,
    /// Index into [`Config::upstreams`].
    pub upstream: usize,
    /// What each worker allows its clients.
    pub limits: ServerLimits,
    /// Whether the client's address is appended to `X-Forwarded-For`; default yes.
    pub forwarded_for: bool,
    /// Whether decisions of clients about optional content are passed on; default no.
    pub brownout: Edge,
    /// Whether requests that say another data centre sent them are believed; default no.
    pub redirected: Edge,
    /// `[listen.cql]`, before an upstream that speaks it.
    pub cql: CqlListenConfig,
}

/// Whether a listener believes what its clients write on requests: decisions about optional
/// content, or where they come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Edge {
    /// No: it is removed.
    #[default]
    Strip,
    /// Yes, and it is passed on: they are services of our own, or another proxy.
    Trust,
}

/// `[upstream.NAME]`: replicas any of which can answer a request, and how to choose.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Its name in the file, in metrics and on the dashboard.
    pub name: String,
    /// `[upstream.NAME.cql]`; `None` where HTTP is spoken.
    pub cql: Option<CqlConfig>,
    /// The replicas at home: the first seats. Of a Cassandra cluster: nodes that tell of others.
    pub replicas: Vec<SocketAddr>,
    /// `[upstream.NAME.sites]`: who serves in other data centres, in the order of their names.
    pub sites: Vec<SiteReplicas>,
    /// Between which data centres requests are split, from `[redirect]`; `None` = all stay at home.
    pub split: Option<SplitSetup>,
    /// The policy; default `c3`.
    pub policy: Policy,
    /// Other Evenkeel processes before the same replicas, this one included; default 1. Times the
    /// workers it is C3's number of clients.
    pub proxies: u32,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries one request may make on other replicas: default 1.
    pub retries_max: u8,
    /// Retries as a share of requests: default 20 %.
    pub retry_budget: Budget,
    /// Bodies up to this many bytes are kept so that the request can be sent again; default 64 KiB.
    pub replay_bytes_max: u64,
    /// `[upstream.NAME.hedge]`; absent = no hedging.
    pub hedge: Option<HedgeConfig>,
    /// `[upstream.NAME.safeguards]`
    pub safeguards: Safeguards,
    /// Requests that may be held for a sending rate; default 1024 per worker.
    pub held_max: usize,
    /// `[upstream.NAME.health]`; absent = only failures of requests count.
    pub health: Option<HealthConfig>,
    /// `[upstream.NAME.operations]`; absent = its requests are no operations of a database.
    pub operations: Option<CountedAs>,
    /// What each worker allows itself towards each replica.
    pub limits: UpstreamLimits,
}

/// An entry of `[upstream.NAME.sites]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteReplicas {
    /// The data centre.
    pub name: String,
    /// Where requests for it go: its proxies, or its replicas.
    pub replicas: Vec<SocketAddr>,
}

impl UpstreamConfig {
    /// Everyone requests may be sent to, by seat: the replicas at home, then those of each site.
    pub fn seats(&self) -> impl Iterator<Item = SocketAddr> {
        let remote = self.sites.iter().flat_map(|site| &site.replicas);
        self.replicas.iter().chain(remote).copied()
    }

    /// The seats of each data centre: home, then the sites.
    #[must_use]
    pub fn groups(&self) -> Vec<Range<usize>> {
        let sites = self.sites.iter().map(|site| site.replicas.len());
        let lengths = std::iter::once(self.replicas.len()).chain(sites);
        let mut end = 0;
        let next = |length| {
            end += length;
            end - length..end
        };
        lengths.map(next).collect()
    }

    /// The place of a site of `[redirect]` among the data centres that requests go to: 0 is home.
    #[must_use]
    pub fn place(&self, site: &str) -> Option<usize> {
        let place = match &self.cql {
            Some(cql) => cql.remote.iter().position(|remote| remote.site == site),
            None => self.sites.iter().position(|remote| remote.name == site),
        };
        place.map(|place| place + 1)
    }

    /// The plan before anything is known: all up, in one group for each data centre.
    #[must_use]
    pub fn first_plan(&self) -> RoutePlan {
        let groups = self.groups().into_iter();
        RoutePlan {
            version: 0,
            health: vec![Health::Up; self.seats().count()],
            groups: groups.map(|seats| seats.map(ReplicaId::new).collect()).collect(),
        }
    }
}

/// `[upstream.NAME.timeouts]`
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// One attempt, from sending to the head of the answer; default 15 s.
    pub attempt: Duration,
    /// The whole request, retries and waiting included, to the head of the answer; default 30 s.
    pub total: Duration,
}

/// `[upstream.NAME.operations]`: as what operations of a database requests are counted, for
/// whoever places it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedAs {
    /// The database.
    pub database: String,
    /// Where the users of this process are.
    pub datacenter: String,
    /// What a request with a safe method waits for; default a weak read.
    pub reads: Operation,
    /// What any other request waits for; default a transaction within a group.
    pub writes: Operation,
}

/// `[upstream.NAME.health]`: active checks.
#[derive(Debug, Clone)]
pub struct HealthConfig {
    /// What to ask for; an answer below 500 is healthy. Default `/`.
    pub path: String,
    /// Time between checks of one replica; default 1 s.
    pub interval: Duration,
    /// Time limit of a check; default 1 s.
    pub timeout: Duration,
    /// Failures in a row before a replica counts as down; default 2.
    pub fall: u32,
    /// Successes in a row before it counts as up again; default 2.
    pub rise: u32,
}

/// `[[agent]]`: fronts one application on its own machine and reports its state.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// What the application speaks; default HTTP.
    pub protocol: Protocol,
    /// The address to accept proxies on.
    pub address: SocketAddr,
    /// The application.
    pub app: SocketAddr,
    /// Requests passed to the application at once; further ones wait in the agent, where they
    /// are counted. `None` = no limit: everything outstanding is with the application.
    pub concurrency: Option<u32>,
    /// Requests that may wait; further ones are answered 503. Default 10 000.
    pub queue_max: usize,
    /// Time limit for the application's answer; default 60 s.
    pub timeout: Duration,
    /// `[agent.dimmer]`; absent = no brownout.
    pub dimmer: Option<DimmerConfig>,
    /// `[agent.cql]`: encryption, where Cassandra's protocol is spoken.
    pub cql: CqlAgentConfig,
    /// What each worker allows the proxies.
    pub limits: ServerLimits,
    /// What each worker allows itself towards the application.
    pub upstream_limits: UpstreamLimits,
}

/// `[agent.dimmer]`: which requests of an application get their optional content.
#[derive(Debug, Clone, PartialEq)]
pub struct DimmerConfig {
    /// The law, its setpoint and what it knows of the application.
    pub brownout: BrownoutConfig,
    /// Names of the optional parts, the most important first; empty = one part without a name.
    pub parts: Vec<String>,
    /// What tells a session, all of whose requests are served alike; `None` = a coin for each
    /// request.
    pub session: Option<Session>,
    /// Whether a decision that came with a request counts.
    pub inbound: Inbound,
    /// How paths with optional content begin; empty = all of them have it.
    pub routes: Vec<String>,
    /// Where the dimmer is held at the start.
    pub switch: Switch,
}

/// What tells a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Session {
    /// The cookie of this name.
    Cookie(String),
    /// This header.
    Header(HeaderName),
}

/// What an agent does with a decision that came with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Inbound {
    /// Removes it and decides itself.
    #[default]
    Decide,
    /// Obeys it and passes it on: somebody at the edge has decided for the whole call tree.
    Obey,
}

/// A hand on the dimmer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Switch {
    /// The law decides.
    #[default]
    Auto,
    /// Everything is served: brownout is off.
    Full,
    /// No optional content is served.
    Lean,
}

impl Switch {
    /// Every position, with the name people write.
    pub const NAMES: [(&str, Self); 3] =
        [("auto", Self::Auto), ("full", Self::Full), ("lean", Self::Lean)];

    /// The name people write.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Where it holds the dimmer.
    #[must_use]
    pub const fn holds(self) -> Option<Dimmer> {
        match self {
            Self::Auto => None,
            Self::Full => Some(Dimmer::FULL),
            Self::Lean => Some(Dimmer::LEAN),
        }
    }
}

/// `[admin]`: metrics, API, dashboard.
#[derive(Debug, Clone)]
pub struct AdminConfig {
    /// The address; must be of the loopback (a token or mTLS come with remote administration).
    pub address: SocketAddr,
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
        node.read(read::config)
    }

    /// What a reader of the file might not expect of it: a sentence each.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let companion = self.redirect.iter().filter_map(|redirect| {
            let (seat, site) = (redirect.through?, &redirect.sites[redirect.site.index()].name);
            Some(format!(
                "[redirect] through {seat}: a companion of the process of {site} that listens \
                 there; it makes no plans of its own, tells that process what it counts and \
                 enforces its part of what is planned there; without it all requests stay at {site}"
            ))
        });
        companion.collect()
    }

    /// What is sound and still seldom meant: a sentence each.
    #[must_use]
    pub fn doubts(&self) -> Vec<String> {
        let Some(redirect) = &self.redirect else { return Vec::new() };
        let upstream = &self.upstreams[redirect.upstream];
        let name = &upstream.name;
        let mut doubts = Vec::new();
        if upstream.health.is_none() {
            doubts.push(format!(
                "[redirect] without [upstream.{name}.health]: replicas that are down count as \
                 capacity, and other sites send to them"
            ));
        }
        let is_door = |listen: &&ListenConfig| {
            listen.upstream == redirect.upstream && listen.redirected == Edge::Trust
        };
        if !self.listens.iter().any(|listen| is_door(&listen)) {
            doubts.push(format!(
                "[redirect] without a [[listen]] for {name} with redirected = \"trust\": what \
                 other sites send here counts as demand of this one's users, and may be sent on"
            ));
        }
        doubts
    }

    /// The number of dispatchers that share an upstream's replicas: C3's number of clients.
    #[must_use]
    pub fn clients(&self, upstream: &UpstreamConfig) -> u32 {
        upstream.proxies.saturating_mul(u32::try_from(self.process.workers).unwrap_or(u32::MAX))
    }
}
