//! The keys of `[upstream.NAME]` that every protocol has.

mod discover;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_core::request::redundancy::Budget;
use evenkeel_core::request::select::registry::{NAMES, Policy, PolicyError};
use evenkeel_geo::SITES_MAX;
use evenkeel_settings::address::{self, Address, HostPort, ServerAddress};
use evenkeel_settings::common::{HOUR, MS, REPLICAS_MAX, SECOND, at_most, check_name};
use evenkeel_settings::shared::{self, duration};
use evenkeel_settings::{Mismatch, Setting, Table, Value};
use http::uri::PathAndQuery;

use crate::config::{HealthConfig, ReplicaSource, SiteReplicas, Timeouts, UpstreamConfig};
use evenkeel_runtime::limits::{BodyLimits, Http2, UpstreamLimits};
use evenkeel_runtime::tls::ClientTlsFiles;

const POLICY_BYTES_MAX: usize = 256;

impl UpstreamConfig {
    /// Reads `[upstream.NAME]` apart from what only one protocol has; also says where its replicas
    /// are written. Whether the cluster tells who is in it is the protocol's.
    pub fn read<'a>(
        name: &str,
        table: &mut Table<'a>,
        is_discovered: bool,
    ) -> (Self, Vec<Address<'a>>) {
        let mut replicas = match is_discovered {
            true => replicas(table.key("replicas")),
            false => endpoints(table),
        };
        // Of HTTP all addresses of a name are replicas.
        let source = |server: ServerAddress| match server {
            ServerAddress::Name { host, port } if !is_discovered => {
                Some(ReplicaSource::Name(HostPort { host: host.to_owned(), port }))
            }
            _ => None,
        };
        let servers: Vec<ServerAddress> = replicas.iter().map(|it| it.server).collect();
        let sources = servers.iter().copied().filter_map(source);
        let mut sources: Vec<ReplicaSource> = sources.collect();
        sources.extend(table.key("discover").table(discover::read).optional().flatten());
        let (sites, remote) = sites(table.key("sites"));
        let times = table.key("timeouts").section(|table| timeouts(table, !is_discovered));
        let (timeouts, connect, body) = times;
        let limits =
            table.key("pool").section(move |table| UpstreamLimits::read(table, connect, body));
        let http2 = Http2::read(table.key("http2"));
        let retry_budget = table.key("retry_budget").probability().or(0.2);
        let config = Self {
            name: name.to_owned(),
            replicas: servers.into_iter().filter(|it| source(*it).is_none()).collect(),
            sources,
            is_discovered,
            sites,
            split: None, // until [redirect] is read
            policy: policy(table.key("policy"), "c3"),
            proxies: table.key("proxies").integer().between(1..=10_000).or(1),
            timeouts,
            retries_max: table.key("retries_max").integer().between(0..=6).or(1),
            retry_budget: Budget::of_retries(retry_budget),
            replay_bytes_max: table.key("replay_bytes_max").bytes().between(0..=1 << 24).or(65_536),
            hedge: table.key("hedge").table(shared::hedge).optional(),
            safeguards: table.key("safeguards").section(shared::safeguards),
            held_max: table.key("queue_max").integer().between(0..=1_000_000).or(1_024),
            health: table.key("health").table(HealthConfig::read).optional(),
            operations: None, // read by whoever knows the operations of databases
            limits: UpstreamLimits { http2, ..limits },
            tls: table.key("tls").table(ClientTlsFiles::read).optional(),
        };
        let config = config.named_in_tls(table);
        if config.tls.is_some() {
            replicas.iter().for_each(check_tls);
        }
        if let [only] = replicas.as_slice()
            && !is_discovered
            && config.sources.is_empty()
        {
            config.check_single(only, table);
        }
        replicas.extend(remote);
        address::check_repeated(&replicas);
        (config, replicas)
    }

    /// Certificates are of names. Where all replicas have one name it is that of their
    /// certificates, too.
    fn named_in_tls(mut self, table: &mut Table<'_>) -> Self {
        let Some(tls) = self.tls.as_mut().filter(|tls| tls.name.is_none()) else { return self };
        let hosts = self.sources.iter().filter_map(|source| match source {
            ReplicaSource::Name(name) => Some(name.host.trim_end_matches('.')),
            _ => None,
        });
        let hosts: BTreeSet<&str> = hosts.collect();
        let has_others = !self.replicas.is_empty() || !self.sources.iter().all(is_name);
        match (hosts.first(), hosts.len(), has_others) {
            (Some(only), 1, false) => tls.name = Some((*only).to_owned()),
            (None, _, _) if !self.sources.iter().any(is_service) => {} // by address
            _ => {
                let expected = "tls.name, the name in the certificates of all replicas";
                let came = "replicas of several names, with TLS";
                table.problem("tls", Mismatch::new(came, expected));
            }
        }
        self
    }

    /// Second copies go to other replicas; with one there is none.
    fn check_single(&self, only: &Address<'_>, table: &mut Table<'_>) {
        let alone = |what: &str| {
            let came = format!("{what} with {} as the only replica", only.server);
            Mismatch::new(came, "two or more replicas: a copy goes to another replica")
        };
        if self.hedge.is_some() {
            table.problem("hedge", alone("hedging"));
        }
        if self.retries_max > 0 && table.key("retries_max").value().is_some() {
            table.problem("retries_max", alone("retries"));
        }
    }
}

const fn is_name(source: &ReplicaSource) -> bool {
    matches!(source, ReplicaSource::Name(_))
}

const fn is_service(source: &ReplicaSource) -> bool {
    matches!(source, ReplicaSource::Service(_))
}

fn check_tls(replica: &Address<'_>) {
    if let ServerAddress::Unix(_) = replica.server {
        let expected = "a replica with a port: [upstream.NAME.tls] is for all of them";
        replica.problem(expected, "what goes over a Unix socket stays on this machine");
    }
}

/// `replicas` of HTTP: by address, name or path. It may be left out where others tell of replicas.
fn endpoints<'a>(table: &mut Table<'a>) -> Vec<Address<'a>> {
    let number = format!("1 to {REPLICAS_MAX} addresses or names such as [\"127.0.0.1:9001\"]");
    let written = table.key("replicas").list(Address::to_server_anywhere);
    let written = written.check(&number, |all| (1..=REPLICAS_MAX).contains(&all.len()));
    match table.key("discover").value() {
        Some(_) => written.or(Vec::new()),
        None => written.required(),
    }
}

fn replicas(setting: Setting<'_>) -> Vec<Address<'_>> {
    let replicas = setting.list(Address::to_server);
    let number = format!("1 to {REPLICAS_MAX} addresses such as [\"127.0.0.1:9001\"]");
    let replicas = replicas.check(&number, |all| (1..=REPLICAS_MAX).contains(&all.len()));
    replicas.required()
}

/// What is written of other data centres, and the ways there.
fn sites<'a>(setting: Setting<'a>) -> (Vec<SiteReplicas>, Vec<Address<'a>>) {
    let few = format!("at most {} other data centres", SITES_MAX - 1);
    let named = setting.named(|name, setting| {
        check_name(name, "a data centre of this name", &setting);
        replicas(setting)
    });
    let named = named.check(&few, |sites| sites.len() < SITES_MAX);
    let mut ways = Vec::new();
    let site = |(name, replicas): (String, Vec<Address<'a>>)| {
        let addresses = replicas.iter().map(|replica| replica.server).collect();
        ways.extend(replicas);
        SiteReplicas { name, replicas: addresses }
    };
    let sites = named.or(BTreeMap::new()).into_iter().map(site).collect();
    (sites, ways)
}

/// A load-balancing policy; `default` where nothing is written.
pub fn policy(setting: Setting<'_>, default: &str) -> Policy {
    let default = || default.parse::<Policy>().expect("the default is in the registry");
    if let Some(Value::Text(text)) = setting.value()
        && !text.contains(':')
    {
        let _ = setting.clone().choice(&NAMES).optional(); // for its problem: the list of names
        return text.parse().unwrap_or_else(|_| default());
    }
    let parsed = setting.parsed("a policy such as \"c3\"", default(), policy_with_parameters);
    parsed.or(default())
}

fn policy_with_parameters(text: &str) -> Result<Policy, Mismatch> {
    if text.len() > POLICY_BYTES_MAX {
        let came = format!("a text of {} bytes", text.len());
        return Err(Mismatch::new(came, "a policy such as \"c3:rate_control=on\""));
    }
    text.parse().map_err(|error| {
        let expected = match &error {
            PolicyError::UnknownName(_) => format!("one of {}", NAMES.join(", ")),
            PolicyError::UnknownParameter { known, .. } if known.is_empty() => {
                "no parameters".to_owned()
            }
            PolicyError::UnknownParameter { known, .. } => {
                format!("one of the parameters {}", known.join(", "))
            }
            PolicyError::BadValue { parameter, expected, .. } => {
                format!("for the parameter {parameter} {expected}")
            }
        };
        Mismatch::new(format!("{text:?}"), expected)
    })
}

/// The last two are the limits for connecting and of bodies, which belong to the connections.
///
/// Where the cluster tells who is in it, its protocol has only whole responses.
fn timeouts(table: &mut Table<'_>, has_bodies: bool) -> (Timeouts, Duration, BodyLimits) {
    let total = duration(table, "total", MS..=HOUR, 30 * SECOND);
    let attempt = duration(table, "attempt", MS..=HOUR, total.min(15 * SECOND));
    let connect = duration(table, "connect", MS..=HOUR, attempt.min(SECOND));
    if table.is_sound() {
        at_most(table, ("attempt", attempt), ("the total", total));
        at_most(table, ("connect", connect), ("the attempt", attempt));
    }
    let body = if has_bodies { BodyLimits::read(table) } else { BodyLimits::DEFAULT };
    (Timeouts { attempt, total }, connect, body)
}

impl HealthConfig {
    pub(super) fn read(table: &mut Table<'_>) -> Self {
        let is_path = |path: &String| path.starts_with('/') && path.parse::<PathAndQuery>().is_ok();
        let path = table.key("path").text().check("a path such as \"/healthz\"", is_path);
        Self {
            path: path.or("/".to_owned()),
            interval: duration(table, "interval", 10 * MS..=HOUR, SECOND),
            timeout: duration(table, "timeout", MS..=HOUR, SECOND),
            fall: table.key("fall").integer().between(1..=1_000).or(2),
            rise: table.key("rise").integer().between(1..=1_000).or(2),
        }
    }
}
