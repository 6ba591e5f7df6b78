//! The keys of `[[listen]]` and `[[agent]]` that HTTP has.

use std::time::Duration;

use evenkeel_settings::address::{Address, ServerAddress};
use evenkeel_settings::common::{HOUR, MS, SECOND};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Table};

use crate::config::{AgentConfig, DimmerConfig, Edge, HttpListenConfig};
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, ServerLimits, UpstreamLimits};
use evenkeel_runtime::networks::Networks;
use evenkeel_runtime::tls::{ClientTlsFiles, ServerTlsFiles};

pub(super) const EDGES: [(&str, Edge); 2] = [("strip", Edge::Strip), ("trust", Edge::Trust)];

/// What an agent allows the proxies. They have limited the body already.
const AGENT_LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 65_536,
    body_bytes_max: 1 << 40,
    connections_max: 10_000,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(120),
    write: Duration::from_secs(30),
    connection_age: Duration::MAX,
    drain: Duration::ZERO, // replaced by the process's
    engine: Engine::Hyper,
};

/// What an agent allows itself towards its application: never less than its clients may ask for.
const AGENT_UPSTREAM_LIMITS: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: AGENT_LIMITS.connections_max,
    idle_connections_max: 1_024,
    idle: Duration::from_secs(30),
    head_bytes_max: 65_536,
    body: BodyLimits::DEFAULT, // replaced by what the agent says
    http2: Http2::Never,
    engine: Engine::Hyper,
};

impl HttpListenConfig {
    /// The keys of a `[[listen]]` that only HTTP has.
    pub const KEYS: [&str; 5] =
        ["forwarded_for", "trusted_proxies", "brownout", "forwarded_requests", "routes"];

    /// Reads them.
    pub fn read(table: &mut Table<'_>) -> Self {
        let trusted = table.key("trusted_proxies");
        Self {
            trusted_proxies: trusted.value().is_some().then(|| Networks::read(trusted)),
            forwarded_for: table.key("forwarded_for").boolean().or(true),
            brownout: table.key("brownout").variant(&EDGES).or(Edge::Strip),
            redirected: table.key("forwarded_requests").variant(&EDGES).or(Edge::Strip),
        }
    }
}

impl AgentConfig {
    /// The keys of an `[[agent]]` that only HTTP has.
    pub const KEYS: [&str; 5] =
        ["queue_max", "queue_timeout", "idle_timeout", "dimmer", "udp_probes"];

    /// Reads `[[agent]]` apart from what only Cassandra's protocol has; also says where its two
    /// addresses are written. `drain` is the process's.
    pub fn read<'a>(table: &mut Table<'a>, drain: Duration) -> (Self, Address<'a>, Address<'a>) {
        let address = Address::to_listen(table.key("listen"));
        let app = Address::to_server_anywhere(table.key("app"));
        let concurrency = table.key("concurrency").integer().between(1..=1_000_000).optional();
        let timeout = duration(table, "timeout", MS..=HOUR, 60 * SECOND);
        let idle = duration(table, "idle_timeout", MS..=HOUR, timeout.min(60 * SECOND));
        let dimmer = table.key("dimmer");
        let dimmer = dimmer.table(move |table| DimmerConfig::read(table, concurrency, timeout));
        let config = Self {
            address: address.address,
            app: app.server,
            concurrency,
            queue_max: table.key("queue_max").integer().between(0..=1_000_000).or(10_000),
            queue_timeout: duration(table, "queue_timeout", MS..=HOUR, timeout),
            timeout,
            dimmer: dimmer.optional().flatten(),
            udp_probes: table.key("udp_probes").boolean().or(true),
            limits: ServerLimits { drain, ..AGENT_LIMITS },
            upstream_limits: UpstreamLimits {
                body: BodyLimits { idle, ..BodyLimits::DEFAULT },
                ..AGENT_UPSTREAM_LIMITS
            },
            tls: table.key("tls").table(ServerTlsFiles::read).optional(),
            app_tls: table.key("app_tls").table(ClientTlsFiles::read).optional(),
        };
        if let (Some(_), ServerAddress::Unix(_)) = (&config.app_tls, app.server) {
            let hint = "what goes over a Unix socket stays on this machine";
            app.problem("an address or name with a port: [agent.app_tls] is for it", hint);
        }
        let has_queue = table.key("concurrency").value().is_some();
        for key in ["queue_max", "queue_timeout"] {
            if !has_queue && table.key(key).value().is_some() {
                let expected = "concurrency too: without it the agent has no queue";
                table.problem(key, Mismatch::new(format!("{key} alone"), expected));
            }
        }
        (config, address, app)
    }
}
