//! `[[listen]]` and `[[agent]]` where HTTP is spoken.

mod dimmer;
mod read;
mod routes;

use evenkeel_settings::address::ServerAddress;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_core::dimmer::BrownoutConfig;
use evenkeel_core::units::Dimmer;
use http::HeaderName;

pub use routes::{
    HostMatch, MirrorConfig, PathMatch, RouteAction, RouteConfig, RouteMatch, UNKNOWN,
};

use evenkeel_runtime::limits::{ServerLimits, UpstreamLimits};
use evenkeel_runtime::networks::Networks;
use evenkeel_runtime::tls::{ClientTlsFiles, ServerTlsFiles};

/// How requests of a `[[listen]]` are passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpListenConfig {
    /// Peers whose `X-Forwarded-*` and `Forwarded` are believed; `None` = everybody's are passed
    /// on.
    pub trusted_proxies: Option<Networks>,
    /// Whether the client's address is appended to `X-Forwarded-For`; default yes.
    pub forwarded_for: bool,
    /// Whether decisions of clients about optional content are passed on; default no.
    pub brownout: Edge,
    /// Whether requests that say another data centre sent them are believed; default no.
    pub redirected: Edge,
}

impl Default for HttpListenConfig {
    fn default() -> Self {
        let (brownout, redirected) = (Edge::Strip, Edge::Strip);
        Self { trusted_proxies: None, forwarded_for: true, brownout, redirected }
    }
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

/// `[[agent]]`: fronts one application on its own machine and reports its state.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    /// The address to accept proxies on.
    pub address: SocketAddr,
    /// The application.
    pub app: ServerAddress,
    /// Requests passed to the application at once; further ones wait in the agent, where they
    /// are counted. `None` = no limit: everything outstanding is with the application.
    pub concurrency: Option<u32>,
    /// Requests that may wait; further ones are answered 503. Default 10 000.
    pub queue_max: usize,
    /// How long a request may wait; then it is answered 503. Default the `timeout`.
    pub queue_timeout: Duration,
    /// Time limit for the application's answer; default 60 s.
    pub timeout: Duration,
    /// `[agent.dimmer]`; absent = no brownout.
    pub dimmer: Option<DimmerConfig>,
    /// Whether probes are answered over UDP, too; default yes.
    pub udp_probes: bool,
    /// What each worker allows the proxies.
    pub limits: ServerLimits,
    /// What each worker allows itself towards the application.
    pub upstream_limits: UpstreamLimits,
    /// Encryption towards the proxies; `None` = none.
    pub tls: Option<ServerTlsFiles>,
    /// Encryption towards the application; `None` = none.
    pub app_tls: Option<ClientTlsFiles>,
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
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }

    /// Where it holds the dimmer.
    pub const fn holds(self) -> Option<Dimmer> {
        match self {
            Self::Auto => None,
            Self::Full => Some(Dimmer::FULL),
            Self::Lean => Some(Dimmer::LEAN),
        }
    }
}
