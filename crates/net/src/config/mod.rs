//! What people write for `evenkeel run`: listeners, upstreams, agents.
//!
//! The types are here; `read.rs` takes them out of the file and reports every problem at once.

mod read;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::request::redundancy::{Budget, HedgeConfig};
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::Policy;
use evenkeel_settings::{Node, Problems};

use crate::http::engine::{ServerLimits, UpstreamLimits};

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
}

/// `[upstream.NAME]`: replicas any of which can answer a request, and how to choose.
#[derive(Debug, Clone)]
pub struct UpstreamConfig {
    /// Its name in the file, in metrics and on the dashboard.
    pub name: String,
    /// The replicas, by seat.
    pub replicas: Vec<SocketAddr>,
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
    /// What each worker allows itself towards each replica.
    pub limits: UpstreamLimits,
}

/// `[upstream.NAME.timeouts]`
#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    /// One attempt, from sending to the head of the answer; default 15 s.
    pub attempt: Duration,
    /// The whole request, retries and waiting included, to the head of the answer; default 30 s.
    pub total: Duration,
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
    /// What each worker allows the proxies.
    pub limits: ServerLimits,
    /// What each worker allows itself towards the application.
    pub upstream_limits: UpstreamLimits,
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

    /// The number of dispatchers that share an upstream's replicas: C3's number of clients.
    #[must_use]
    pub fn clients(&self, upstream: &UpstreamConfig) -> u32 {
        upstream.proxies.saturating_mul(u32::try_from(self.process.workers).unwrap_or(u32::MAX))
    }
}
