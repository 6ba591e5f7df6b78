//! The keys of a configuration file, their ranges and defaults.
//!
//! Every key is explained in `docs/configuration.md`; a test compares the two. What one key can
//! have wrong is checked where it is read, what several keys of a table can have wrong together
//! at the end of that table, and what concerns the process as a whole (who listens where, who
//! sends to whom) in [`ways`].

mod cql;
mod dimmer;
mod duplicates;
mod envoy;
mod placement;
mod redirect;
mod ways;

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::time::Duration;

use evenkeel_core::placement::model::Operation;
use evenkeel_core::request::redundancy::Budget;
use evenkeel_core::request::select::registry::{NAMES, Policy, PolicyError};
use evenkeel_core::site::redirect::SITES_MAX;
use evenkeel_settings::shared::{self, duration};
use evenkeel_settings::{Mismatch, Setting, Table, Value, format_duration};
use http::uri::PathAndQuery;

use super::{
    AdminConfig, AgentConfig, Config, CountedAs, CqlAgentConfig, CqlConfig, CqlListenConfig,
    DimmerConfig, Edge, HealthConfig, ListenConfig, PlacementConfig, ProcessConfig, Protocol,
    RedirectConfig, SiteReplicas, Timeouts, UpstreamConfig,
};
use crate::http::engine::{ServerLimits, UpstreamLimits};
use duplicates::Duplicates;
use envoy::Envoy;
use placement::Mesh;
use redirect::Redirect;
use ways::{Door, Way};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);

/// Bounds on what a file may ask for, so that a slip of the pen does not fill the memory.
const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;
const TABLES_MAX: usize = 256;
const FEW: &str = "at most 256 tables";
const REPLICAS_MAX: usize = 1_000;
const NAME_BYTES_MAX: usize = 64;
const POLICY_BYTES_MAX: usize = 256;

/// Lengths of a message head, in bytes. The HTTP engine's smallest buffer for responses is 8 KiB.
const REQUEST_HEAD_BYTES: RangeInclusive<u64> = 1_024..=1_048_576;
const RESPONSE_HEAD_BYTES: RangeInclusive<u64> = 8_192..=1_048_576;

const PROTOCOLS: [(&str, Protocol); 2] = [("http", Protocol::Http), ("cql", Protocol::Cql)];

const EDGES: [(&str, Edge); 2] = [("strip", Edge::Strip), ("trust", Edge::Trust)];

/// What an agent allows the proxies. They have limited the body already.
const AGENT_LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 65_536,
    body_bytes_max: 1 << 40,
    connections_max: 10_000,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(120),
    write: Duration::from_secs(30),
    drain: Duration::ZERO, // replaced by the process's
};

/// What an agent allows itself towards its application: never less than its clients may ask for.
const AGENT_UPSTREAM_LIMITS: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: AGENT_LIMITS.connections_max,
    idle_connections_max: 1_024,
    idle: Duration::from_secs(30),
    head_bytes_max: 65_536,
};

/// Reads a whole configuration file.
pub(super) fn config(table: &mut Table<'_>) -> Config {
    let process = table.key("process").section(ProcessConfig::read);
    let drain = process.drain;
    let upstreams = table.key("upstream").named(Upstream::read);
    let upstreams = upstreams.check(FEW, |upstreams| upstreams.len() <= TABLES_MAX);
    let upstreams: Vec<Upstream<'_>> = upstreams.or(BTreeMap::new()).into_values().collect();
    let listens = tables(table.key("listen"), "[[listen]]", |item| {
        item.table(|table| Listen::read(table, &upstreams, drain)).required()
    });
    let agents = tables(table.key("agent"), "[[agent]]", |item| {
        item.table(|table| Agent::read(table, drain)).required()
    });
    let admin = table.key("admin").table(Admin::read).optional();
    let redirect = table.key("redirect").table(|table| Redirect::read(table, &upstreams));
    let redirect = redirect.optional();
    let planned = redirect.as_ref().map(|redirect| redirect.config.writes_stay);
    let envoy = table.key("envoy").table(move |table| Envoy::read(table, planned)).optional();
    let mesh = redirect.as_ref().map(|redirect| Mesh {
        sites: redirect.config.sites.iter().map(|site| site.name.clone()).collect(),
        is_companion: redirect.config.through.is_some(),
    });
    let placement = table.key("placement");
    let placement = placement.table(|table| PlacementConfig::read(table, mesh.as_ref())).optional();
    let duplicates = table.key("duplicates").named(Duplicates::read);
    let duplicates = duplicates.check(FEW, |services| services.len() <= TABLES_MAX);
    let duplicates: Vec<Duplicates<'_>> = duplicates.or(BTreeMap::new()).into_values().collect();
    duplicates::check_logs(table, &duplicates);
    let told = envoy.as_ref().and(redirect.as_ref()).map(|redirect| redirect.config.upstream);
    check_use(table, &upstreams, &listens, told);
    if let Some(upstream) = told.and_then(|index| upstreams.get(index))
        && upstream.config.cql.is_some()
    {
        let expected = "an upstream of HTTP: Envoy divides requests, not coordinators";
        table.problem("envoy", Mismatch::new("[envoy] of a Cassandra cluster", expected));
    }
    let mesh = (redirect.as_ref(), envoy.as_ref());
    check_ways(&upstreams, &listens, &agents, admin.as_ref(), mesh, &duplicates);
    check_sites(&upstreams, redirect.as_ref());
    if let Some(redirect) = &redirect
        && let Some(upstream) = upstreams.get(redirect.config.upstream)
    {
        redirect.check_ways(upstream);
    }
    let redirect = redirect.map(|redirect| redirect.config);
    let split = |index: usize| redirect.as_ref().filter(|redirect| redirect.upstream == index);
    let listens = listens.into_iter().map(|listen| listen.config).collect();
    let home = redirect.as_ref().and_then(|redirect| redirect.sites.get(redirect.site.index()));
    let home = home.map(|site| site.name.clone());
    let upstreams = upstreams.into_iter().enumerate().map(|(index, upstream)| UpstreamConfig {
        split: split(index).map(RedirectConfig::split),
        operations: upstream.operations(home.as_deref()),
        cql: upstream.config.cql.clone().map(|cql| CqlConfig {
            remote: split(index).map(RedirectConfig::remote).unwrap_or_default(),
            ..cql
        }),
        ..upstream.config
    });
    Config {
        process,
        listens,
        upstreams: upstreams.collect(),
        agents: agents.into_iter().map(|agent| agent.config).collect(),
        admin: admin.map(|admin| admin.config),
        redirect,
        envoy: envoy.map(|envoy| envoy.config),
        placement,
        duplicates: duplicates.into_iter().map(|service| service.config).collect(),
    }
}

/// `[[listen]]`, and what is checked against the other tables.
struct Listen<'a> {
    config: ListenConfig,
    address: Way<'a>,
    upstream: Option<usize>,
}

/// `[upstream.NAME]`, and what is checked against the other tables.
struct Upstream<'a> {
    config: UpstreamConfig,
    setting: Setting<'a>,
    replicas: Vec<Way<'a>>,
}

/// `[[agent]]`, and what is checked against the other tables.
struct Agent<'a> {
    config: AgentConfig,
    address: Way<'a>,
    app: Way<'a>,
}

/// `[admin]`, and what is checked against the other tables.
struct Admin<'a> {
    config: AdminConfig,
    address: Way<'a>,
}

/// A list of tables, each with a header of its own.
fn tables<'a, T: 'a>(
    setting: Setting<'a>,
    header: &str,
    item: impl FnMut(Setting<'a>) -> T,
) -> Vec<T> {
    if matches!(setting.value(), Some(Value::Table(_))) {
        let wrong = Mismatch::new("a table", "a list of tables");
        setting.problem(wrong.with_hint(format!("write {header}, in double brackets")));
        return Vec::new();
    }
    setting.list(item).check(FEW, |tables| tables.len() <= TABLES_MAX).or(Vec::new())
}

/// Whether there is something to serve, and whether every upstream is of use.
/// `told` is the upstream that Envoys send requests to.
fn check_use(
    table: &mut Table<'_>,
    upstreams: &[Upstream<'_>],
    listens: &[Listen<'_>],
    told: Option<usize>,
) {
    let is_left_out = |setting: Setting<'_>| match setting.value() {
        None => true,
        Some(Value::List(items)) => items.is_empty(),
        Some(_) => false,
    };
    if is_left_out(table.key("listen")) {
        let others = ["envoy", "placement", "duplicates"].map(|key| table.key(key).value());
        if is_left_out(table.key("agent")) && others == [None, None, None] {
            let expected = "at least one of them, or [duplicates.NAME], [placement] or \
                            [envoy]: there is nothing to serve";
            table.problem("listen", Mismatch::new("neither [[listen]] nor [[agent]]", expected));
        }
        return;
    }
    let mut used: BTreeSet<Option<usize>> = listens.iter().map(|listen| listen.upstream).collect();
    if used.is_empty() || used.contains(&None) {
        return; // the name that is wrong may have meant any of them
    }
    used.extend(told.map(Some));
    for (index, upstream) in upstreams.iter().enumerate() {
        if !used.contains(&Some(index)) {
            let expected = format!("a [[listen]] with upstream = {:?}", upstream.config.name);
            let unused = Mismatch::new("an upstream that no [[listen]] names", expected);
            upstream.setting.problem(unused);
        }
    }
}

/// Other data centres are of use to the upstream of `[redirect]` only.
fn check_sites(upstreams: &[Upstream<'_>], redirect: Option<&Redirect<'_>>) {
    let split = redirect.map(|redirect| redirect.config.upstream);
    for (index, upstream) in upstreams.iter().enumerate() {
        if split == Some(index) || upstream.config.sites.is_empty() {
            continue;
        }
        let came = "sites of an upstream whose requests all stay here";
        let expected = format!("[redirect] with upstream = {:?} too", upstream.config.name);
        upstream.setting.problem(Mismatch::new(came, expected));
    }
}

/// Who listens where, and who would send requests round in circles.
fn check_ways(
    upstreams: &[Upstream<'_>],
    listens: &[Listen<'_>],
    agents: &[Agent<'_>],
    admin: Option<&Admin<'_>>,
    (redirect, envoy): (Option<&Redirect<'_>>, Option<&Envoy<'_>>),
    duplicates: &[Duplicates<'_>],
) {
    let listens = listens.iter().map(|listen| Door {
        of: "[[listen]]",
        way: &listen.address,
        node: listen.upstream,
    });
    let agent_doors = agents.iter().enumerate().map(|(index, agent)| {
        let node = Some(upstreams.len() + index);
        Door { of: "[[agent]]", way: &agent.address, node }
    });
    let admin = admin.map(|admin| Door { of: "[admin]", way: &admin.address, node: None });
    let redirect =
        redirect.map(|redirect| Door { of: "[redirect]", way: &redirect.listen, node: None });
    let envoy = envoy.and_then(|envoy| envoy.listen.as_ref());
    let envoy = envoy.map(|way| Door { of: "[envoy]", way, node: None });
    let first = upstreams.len() + agents.len();
    let services = (first..).zip(duplicates).map(|(node, service)| Door {
        of: "[duplicates]",
        way: &service.listen,
        node: Some(node),
    });
    let doors = listens.chain(agent_doors).chain(admin).chain(redirect).chain(envoy);
    let doors = doors.chain(services);
    let doors: Vec<Door<'_>> = doors.collect();
    let replicas = upstreams.iter().map(|upstream| upstream.replicas.as_slice());
    let apps = agents.iter().map(|agent| std::slice::from_ref(&agent.app));
    let servers = duplicates.iter().map(|service| service.servers.as_slice());
    let targets: Vec<&[Way<'_>]> = replicas.chain(apps).chain(servers).collect();
    ways::check_addresses(&doors);
    ways::check_circles(&doors, &targets);
}

impl ProcessConfig {
    fn read(table: &mut Table<'_>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            workers: table.key("workers").integer().between(1..=1_024).or(cores),
            drain: duration(table, "drain", Duration::ZERO..=HOUR, 10 * SECOND),
        }
    }
}

impl<'a> Listen<'a> {
    fn read(table: &mut Table<'a>, upstreams: &[Upstream<'_>], drain: Duration) -> Self {
        let address = Way::read(table.key("address"));
        let upstream = upstream_named(table.key("upstream"), upstreams);
        let behind = upstream.and_then(|index| upstreams.get(index));
        let cql = table.key("cql");
        match behind.map(|upstream| upstream.config.cql.is_some()) {
            Some(true) => cql::refuse(table, &["forwarded_for", "brownout", "redirected"]),
            Some(false) if cql.value().is_some() => {
                let expected = "an upstream with protocol = \"cql\"";
                table.problem("cql", Mismatch::new("cql before an upstream of HTTP", expected));
            }
            Some(false) | None => {}
        }
        let config = ListenConfig {
            cql: cql.section(CqlListenConfig::read),
            address: address.address,
            upstream: upstream.unwrap_or_default(),
            limits: table.key("limits").section(move |table| server_limits(table, drain)),
            forwarded_for: table.key("forwarded_for").boolean().or(true),
            brownout: table.key("brownout").variant(&EDGES).or(Edge::Strip),
            redirected: table.key("redirected").variant(&EDGES).or(Edge::Strip),
        };
        Self { config, address, upstream }
    }
}

fn upstream_named(setting: Setting<'_>, upstreams: &[Upstream<'_>]) -> Option<usize> {
    let names = upstreams.iter().map(|upstream| upstream.config.name.as_str());
    let named: Vec<(&str, usize)> = names.zip(0..).collect();
    if setting.value().is_none() {
        setting.problem(Mismatch::new("nothing", "the name of an [upstream.NAME]"));
        return None;
    }
    if named.is_empty() {
        let expected = "a table [upstream.NAME] of that name: there is none at all";
        setting.problem(Mismatch::new("the name of an upstream", expected));
        return None;
    }
    setting.variant(&named).optional()
}

fn server_limits(table: &mut Table<'_>, drain: Duration) -> ServerLimits {
    let head_bytes = table.key("head_bytes_max").bytes().between(REQUEST_HEAD_BYTES);
    let body_bytes = table.key("body_bytes_max").bytes().between(0..=1 << 50);
    ServerLimits {
        head_bytes_max: head_bytes.or(32 * 1_024) as usize,
        body_bytes_max: body_bytes.or(1 << 30),
        connections_max: table.key("connections_max").integer().between(CONNECTIONS).or(10_000),
        head: duration(table, "head", MS..=HOUR, 10 * SECOND),
        idle: duration(table, "idle", MS..=DAY, 60 * SECOND),
        write: duration(table, "write", MS..=HOUR, 30 * SECOND),
        drain,
    }
}

impl<'a> Upstream<'a> {
    fn read(name: &'a str, setting: Setting<'a>) -> Self {
        check_name(name, "an upstream of this name", &setting);
        let (config, replicas) =
            setting.clone().table(|table| UpstreamConfig::read(name, table)).required();
        Self { config, setting, replicas }
    }

    /// As what its requests are counted; `home` is the site of `[redirect]`.
    fn operations(&self, home: Option<&str>) -> Option<CountedAs> {
        let mut counted = self.config.operations.clone()?;
        if counted.datacenter.is_empty() {
            let Some(home) = home else {
                let came = "operations without a datacenter";
                let expected = "operations.datacenter, where its users are: a row of the round \
                                trips (with [redirect] its site is taken)";
                self.setting.problem(Mismatch::new(came, expected));
                return None;
            };
            home.clone_into(&mut counted.datacenter);
        }
        Some(counted)
    }
}

fn check_name(name: &str, what: &str, setting: &Setting<'_>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let expected = format!("1 to {NAME_BYTES_MAX} letters, digits, hyphens, _ or .");
        let wrong = Mismatch::new(what, expected);
        setting.problem(wrong.with_hint("it is a label of metrics"));
    }
}

impl UpstreamConfig {
    fn read<'a>(name: &str, table: &mut Table<'a>) -> (Self, Vec<Way<'a>>) {
        let mut replicas = replicas(table.key("replicas"));
        let (sites, remote) = sites(table.key("sites"));
        let (timeouts, connect) = table.key("timeouts").section(timeouts);
        let retry_budget = table.key("retry_budget").probability().or(0.2);
        let cql = table.key("cql").table(CqlConfig::read).optional();
        let protocol = table.key("protocol").variant(&PROTOCOLS).or(Protocol::Http);
        match protocol {
            Protocol::Cql => cql::refuse(table, &["sites", "replay_bytes_max", "pool"]),
            Protocol::Http if cql.is_some() => {
                let expected = "protocol = \"cql\" too: HTTP is spoken else";
                table.problem("cql", Mismatch::new("cql alone", expected));
            }
            Protocol::Http => {}
        }
        let config = Self {
            name: name.to_owned(),
            cql: (protocol == Protocol::Cql).then(|| cql.unwrap_or_default()),
            replicas: replicas.iter().map(|replica| replica.address).collect(),
            sites,
            split: None, // until [redirect] is read
            policy: policy(table.key("policy")),
            proxies: table.key("proxies").integer().between(1..=10_000).or(1),
            timeouts,
            retries_max: table.key("retries_max").integer().between(0..=6).or(1),
            retry_budget: Budget::of_retries(retry_budget),
            replay_bytes_max: table.key("replay_bytes_max").bytes().between(0..=1 << 24).or(65_536),
            hedge: table.key("hedge").table(shared::hedge).optional(),
            safeguards: table.key("safeguards").section(shared::safeguards),
            held_max: table.key("held_max").integer().between(0..=1_000_000).or(1_024),
            health: table.key("health").table(HealthConfig::read).optional(),
            operations: table.key("operations").table(CountedAs::read).optional(),
            limits: table.key("pool").section(move |table| pool(table, connect)),
        };
        if let [only] = replicas.as_slice()
            && config.cql.is_none()
        {
            config.check_single(only, table);
        }
        replicas.extend(remote);
        ways::check_repeated(&replicas);
        (config, replicas)
    }

    /// Second copies go to other replicas; with one there is none.
    fn check_single(&self, only: &Way<'_>, table: &mut Table<'_>) {
        let alone = |what: &str| {
            let came = format!("{what} with {} as the only replica", only.address);
            Mismatch::new(came, "two replicas or more, since the same one is not asked twice")
        };
        if self.hedge.is_some() {
            table.problem("hedge", alone("hedging"));
        }
        if self.retries_max > 0 && table.key("retries_max").value().is_some() {
            table.problem("retries_max", alone("retries"));
        }
    }
}

fn replicas(setting: Setting<'_>) -> Vec<Way<'_>> {
    let replicas = setting.list(Way::to);
    let number = format!("1 to {REPLICAS_MAX} addresses such as [\"127.0.0.1:9001\"]");
    let replicas = replicas.check(&number, |all| (1..=REPLICAS_MAX).contains(&all.len()));
    replicas.required()
}

/// What is written of other data centres, and the ways there.
fn sites<'a>(setting: Setting<'a>) -> (Vec<SiteReplicas>, Vec<Way<'a>>) {
    let few = format!("at most {} other data centres", SITES_MAX - 1);
    let named = setting.named(|name, setting| {
        check_name(name, "a data centre of this name", &setting);
        replicas(setting)
    });
    let named = named.check(&few, |sites| sites.len() < SITES_MAX);
    let mut ways = Vec::new();
    let site = |(name, replicas): (String, Vec<Way<'a>>)| {
        let addresses = replicas.iter().map(|replica| replica.address).collect();
        ways.extend(replicas);
        SiteReplicas { name, replicas: addresses }
    };
    let sites = named.or(BTreeMap::new()).into_iter().map(site).collect();
    (sites, ways)
}

fn policy(setting: Setting<'_>) -> Policy {
    let c3 = || "c3".parse::<Policy>().expect("c3 is in the registry");
    if let Some(Value::Text(text)) = setting.value()
        && !text.contains(':')
    {
        let _ = setting.clone().choice(&NAMES).optional(); // for its problem: the list of names
        return text.parse().unwrap_or_else(|_| c3());
    }
    setting.parsed("a policy such as \"c3\"", c3(), policy_with_parameters).or(c3())
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

/// The last is the time limit for connecting, which belongs to the pool.
fn timeouts(table: &mut Table<'_>) -> (Timeouts, Duration) {
    let total = duration(table, "total", MS..=HOUR, 30 * SECOND);
    let attempt = duration(table, "attempt", MS..=HOUR, total.min(15 * SECOND));
    let connect = duration(table, "connect", MS..=HOUR, attempt.min(SECOND));
    if table.is_sound() {
        at_most(table, ("attempt", attempt), ("the total", total));
        at_most(table, ("connect", connect), ("the attempt", attempt));
    }
    (Timeouts { attempt, total }, connect)
}

fn at_most(table: &mut Table<'_>, part: (&str, Duration), whole: (&str, Duration)) {
    let ((key, part), (name, whole)) = (part, whole);
    if part > whole {
        let came = format_duration(part);
        let expected = format!("at most {name}, which is {}", format_duration(whole));
        table.problem(key, Mismatch::new(came, expected));
    }
}

impl CountedAs {
    fn read(table: &mut Table<'_>) -> Self {
        let named = Operation::ALL.map(|operation| (operation.name(), operation));
        let database_at = table.key("database");
        let database = database_at.clone().text().required();
        if !database.is_empty() {
            check_name(&database, "a database of this name", &database_at);
        }
        let datacenter = table.key("datacenter").text();
        let is_short = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
        let datacenter = datacenter.check("a name of 1 to 64 bytes", is_short);
        Self {
            database,
            datacenter: datacenter.or(String::new()), // until [redirect] is read
            reads: table.key("reads").variant(&named).or(Operation::WeakRead),
            writes: table.key("writes").variant(&named).or(Operation::SingleGroup),
        }
    }
}

impl HealthConfig {
    fn read(table: &mut Table<'_>) -> Self {
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

fn pool(table: &mut Table<'_>, connect: Duration) -> UpstreamLimits {
    let connections_max = table.key("connections_max").integer().between(CONNECTIONS).or(1_024);
    let idle_connections = table.key("idle_connections_max").integer().between(0..=1_000_000);
    let head_bytes = table.key("head_bytes_max").bytes().between(RESPONSE_HEAD_BYTES);
    let limits = UpstreamLimits {
        connect,
        connections_max,
        idle_connections_max: idle_connections.or(connections_max.min(256)),
        idle: duration(table, "idle", MS..=DAY, 30 * SECOND),
        head_bytes_max: head_bytes.or(64 * 1_024) as usize,
    };
    if table.is_sound() && limits.idle_connections_max > connections_max {
        let expected = format!("at most connections_max, which is {connections_max}");
        let wrong = Mismatch::new(limits.idle_connections_max.to_string(), expected);
        table.problem("idle_connections_max", wrong);
    }
    limits
}

impl<'a> Agent<'a> {
    fn read(table: &mut Table<'a>, drain: Duration) -> Self {
        let (address, app) = (Way::read(table.key("listen")), Way::to(table.key("app")));
        let concurrency = table.key("concurrency").integer().between(1..=1_000_000).optional();
        let timeout = duration(table, "timeout", MS..=HOUR, 60 * SECOND);
        let dimmer = table.key("dimmer");
        let dimmer = dimmer.table(move |table| DimmerConfig::read(table, concurrency, timeout));
        let protocol = table.key("protocol").variant(&PROTOCOLS).or(Protocol::Http);
        let cql = table.key("cql");
        match protocol {
            Protocol::Cql => cql::refuse(table, &["queue_max", "dimmer"]),
            Protocol::Http if cql.value().is_some() => {
                let expected = "protocol = \"cql\" too: HTTP is spoken else, without TLS";
                table.problem("cql", Mismatch::new("cql alone", expected));
            }
            Protocol::Http => {}
        }
        let config = AgentConfig {
            protocol,
            address: address.address,
            app: app.address,
            concurrency,
            queue_max: table.key("queue_max").integer().between(0..=1_000_000).or(10_000),
            timeout,
            dimmer: dimmer.optional().flatten(),
            cql: cql.section(CqlAgentConfig::read),
            limits: ServerLimits { drain, ..AGENT_LIMITS },
            upstream_limits: AGENT_UPSTREAM_LIMITS,
        };
        if table.key("concurrency").value().is_none() && table.key("queue_max").value().is_some() {
            let expected = "concurrency too: without it no request ever waits in the agent";
            table.problem("queue_max", Mismatch::new("queue_max alone", expected));
        }
        Self { config, address, app }
    }
}

impl<'a> Admin<'a> {
    fn read(table: &mut Table<'a>) -> Self {
        let setting = table.key("address");
        let address = Way::read(setting.clone());
        if !address.address.ip().to_canonical().is_loopback() {
            let expected = "an address of the loopback such as 127.0.0.1:9901";
            let wrong = Mismatch::new(address.address.to_string(), expected);
            setting.problem(wrong.with_hint("there is no password, so nobody else may reach it"));
        }
        Self { config: AdminConfig { address: address.address }, address }
    }
}
