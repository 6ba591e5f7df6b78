//! The keys of a configuration file, their ranges and defaults.
//!
//! Every key is explained in `docs/configuration.md`; a test compares the two. What one key can
//! have wrong is checked where it is read, what several keys of a table can have wrong together
//! at the end of that table, and what concerns the process as a whole (who listens where, who
//! sends to whom) in [`addresses`].

mod addresses;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_geo::joint::Prices;
use evenkeel_planner::duplicates::policy;
use evenkeel_planner::model::Operation;
use evenkeel_settings::address::{Address, SOCKET_PATH_BYTES_MAX as PATH_BYTES_MAX, ServerAddress};
use evenkeel_settings::common::{
    HOUR, NAME_BYTES_MAX, SECOND, check_name, file, named_tables, tables,
};
use evenkeel_settings::prices::prices;
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Setting, Table, Value};

use super::{
    AdminConfig, AgentEntry, Config, ListenConfig, LogConfig, ProcessConfig, Protocol, PublicPath,
    RecordConfig, Source, TracesConfig, UpstreamEntry,
};
use addresses::OwnAddress;
use evenkeel_cassandra::config::{CqlConfig, RemoteDatacenter};
use evenkeel_duplicates::config::read::Duplicates;
use evenkeel_http_proxy::config::{AgentConfig, HttpListenConfig, RouteConfig, UNKNOWN};
use evenkeel_mesh::config::read::Redirect;
use evenkeel_mesh::config::{RedirectConfig, RedirectSite};
use evenkeel_mesh::envoy::config::read::Envoy;
use evenkeel_mesh::export::config::is_endpoint;
use evenkeel_placement::config::PlacementConfig;
use evenkeel_placement::config::read::Mesh;
use evenkeel_proxy::config::{CountedAs, SiteSetup, UpstreamConfig};
use evenkeel_proxy::site_setup::HOME;
use evenkeel_runtime::buffers::BYTES_MAX;
use evenkeel_runtime::limits::{Engine, ServerLimits};
use evenkeel_runtime::networks::Networks;
use evenkeel_runtime::tls::ServerTlsFiles;

/// Of `process.buffers_max`: from one long message upwards.
const BUFFERS_MAX: RangeInclusive<u64> = 16 << 20..=1 << 40;

const PROTOCOLS: [(&str, Protocol); 2] = [("http", Protocol::Http), ("cql", Protocol::Cql)];

/// Reads a whole configuration file.
pub(super) fn config(table: &mut Table<'_>) -> Config {
    let process = table.key("process").section(ProcessConfig::read);
    let drain = process.drain;
    let known = named_tables(table.key("upstream"), Upstream::read);
    let (are_known, upstreams) = (known.is_some(), known.unwrap_or_default());
    let known = are_known.then_some(upstreams.as_slice());
    let listens = tables(table.key("listen"), "[[listen]]", |item| {
        item.table(|table| Listen::read(table, known, drain)).required()
    });
    let agents = tables(table.key("agent"), "[[agent]]", |item| {
        item.table(|table| Agent::read(table, drain)).required()
    });
    let admin = table.key("admin").table(Admin::read).optional();
    let log = table.key("log").section(LogConfig::read);
    let traces = table.key("traces").table(TracesConfig::read).optional();
    let record = table.key("record").table(RecordConfig::read).optional();
    let shared = table.key("prices").table(|table| prices(table, &Prices::default())).optional();
    let redirect = table.key("redirect");
    let redirect = redirect.table(|table| read_redirect(table, known, shared.unwrap_or_default()));
    let redirect = redirect.optional();
    let planned = redirect.as_ref().map(|redirect| redirect.config.writes_stay);
    let envoy = table.key("envoy").table(move |table| Envoy::read(table, planned)).optional();
    let mesh = redirect.as_ref().map(|redirect| Mesh {
        sites: redirect.config.sites.iter().map(|site| site.name.clone()).collect(),
        is_follower: redirect.config.through.is_some(),
    });
    let placement = table.key("placement");
    let placement = placement.table(|table| PlacementConfig::read(table, mesh.as_ref())).optional();
    let of_duplicates = shared.map(prices_of_duplicates);
    let read = |name, setting| Duplicates::read(name, setting, drain, of_duplicates);
    let duplicates = named_tables(table.key("duplicates"), read).unwrap_or_default();
    evenkeel_duplicates::config::read::check_logs(table, &duplicates);
    check_prices(table, redirect.as_ref(), &duplicates);
    let reported = envoy.as_ref().and(redirect.as_ref()).map(|redirect| redirect.config.upstream);
    check_use(table, &upstreams, &listens, reported);
    if let Some(upstream) = reported.and_then(|index| upstreams.get(index)) {
        check_envoy(table, upstream);
    }
    check_buffers(process.buffers_max, &upstreams);
    let mesh = (redirect.as_ref(), envoy.as_ref());
    check_addresses(&upstreams, &listens, &agents, admin.as_ref(), mesh, &duplicates);
    check_sites(&upstreams, redirect.as_ref());
    if let Some(redirect) = &redirect
        && let Some(upstream) = upstreams.get(redirect.config.upstream)
    {
        check_known_sites(&redirect.config, upstream);
        if redirect.config.exports.kubernetes.is_some() {
            check_addresses_alone(upstream, "[redirect.kubernetes]");
            check_endpoints(upstream);
        }
        check_places(upstream);
    }
    let redirect = redirect.map(|redirect| redirect.config);
    let config = Config {
        process,
        listens: listens.into_iter().map(|listen| listen.config).collect(),
        upstreams: with_sites(upstreams, redirect.as_ref()),
        agents: agents.into_iter().map(|agent| agent.config).collect(),
        admin: admin.map(|admin| admin.config),
        log,
        traces,
        record,
        redirect,
        envoy: envoy.map(|envoy| envoy.config),
        placement,
        duplicates: duplicates.into_iter().map(|service| service.config).collect(),
        source: Source::default(),
    };
    with_engine(config)
}

/// `known` are the upstreams, where it is known which there are.
fn read_redirect<'a>(
    table: &mut Table<'a>,
    known: Option<&[Upstream<'_>]>,
    prices: Prices,
) -> Redirect<'a> {
    let upstream = upstream_named(table.key("upstream"), known);
    let behind = upstream.zip(known).and_then(|(index, upstreams)| upstreams.get(index));
    let is_cql = behind.is_some_and(|upstream| upstream.config.cql.is_some());
    Redirect::read(table, upstream.unwrap_or_default(), is_cql, prices)
}

/// Prices are for who goes by them.
fn check_prices(
    table: &mut Table<'_>,
    redirect: Option<&Redirect<'_>>,
    duplicates: &[Duplicates<'_>],
) {
    let plans = redirect.is_some_and(|redirect| redirect.config.prices.is_some());
    let is_used = plans || duplicates.iter().any(|service| service.config.manager.is_some());
    if table.key("prices").value().is_some() && !is_used {
        let expected = "[redirect] with aim = \"price\", or [duplicates.NAME] with an objective";
        table.problem("prices", Mismatch::new("prices that nobody goes by", expected));
    }
}

/// The same prices as the manager of duplicates takes them: those of nodes and late accesses.
fn prices_of_duplicates(prices: Prices) -> policy::Prices {
    policy::Prices { per_node: f64::from(prices.node_second) * 1e-6, per_violation: 1.0 }
}

/// The same, all of whose HTTP/1.1 is read and written by the engine of the process.
fn with_engine(mut config: Config) -> Config {
    let engine = config.process.engine;
    config.listens.iter_mut().for_each(|listen| listen.limits.engine = engine);
    config.upstreams.iter_mut().for_each(|upstream| upstream.common.limits.engine = engine);
    for agent in &mut config.agents {
        let AgentConfig { limits, upstream_limits, .. } = &mut agent.common;
        (limits.engine, upstream_limits.engine) = (engine, engine);
    }
    config
}

/// The upstreams, with what `[redirect]` says of the one that it shares.
fn with_sites(
    upstreams: Vec<Upstream<'_>>,
    redirect: Option<&RedirectConfig>,
) -> Vec<UpstreamEntry> {
    let split = |index: usize| redirect.filter(|redirect| redirect.upstream == index);
    let home = redirect.and_then(|redirect| redirect.sites.get(redirect.site.index()));
    let home = home.map(|site| site.name.as_str());
    let entry = |(index, upstream): (usize, Upstream<'_>)| {
        let operations = upstream.operations(home);
        let UpstreamEntry { common, cql } = upstream.config;
        let split = split(index).map(|redirect| site_setup(redirect, &common, cql.is_some()));
        let remote = split.as_ref().and(redirect).map(remote).unwrap_or_default();
        UpstreamEntry {
            common: UpstreamConfig { split, operations, ..common },
            cql: cql.map(|cql| CqlConfig { remote, ..cql }),
        }
    };
    upstreams.into_iter().enumerate().map(entry).collect()
}

/// `[[listen]]`, and what is checked against the other tables.
struct Listen<'a> {
    config: ListenConfig,
    address: Address<'a>,
    upstream: Option<usize>,
}

/// `[upstream.NAME]`, and what is checked against the other tables.
struct Upstream<'a> {
    config: UpstreamEntry,
    setting: Setting<'a>,
    replicas: Vec<Address<'a>>,
}

/// `[[agent]]`, and what is checked against the other tables.
struct Agent<'a> {
    config: AgentEntry,
    address: Address<'a>,
    app: Address<'a>,
}

/// `[admin]`, and what is checked against the other tables.
struct Admin<'a> {
    config: AdminConfig,
    address: Address<'a>,
}

/// Whether there is something to serve, and whether every upstream is of use.
/// `told` is the upstream that Envoys send requests to.
fn check_use(
    table: &mut Table<'_>,
    upstreams: &[Upstream<'_>],
    listens: &[Listen<'_>],
    reported: Option<usize>,
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
    let mut used: BTreeSet<Option<usize>> = listens.iter().flat_map(Listen::upstreams).collect();
    if used.is_empty() || used.contains(&None) {
        return; // the name that is wrong may have meant any of them
    }
    used.extend(reported.map(Some));
    for (index, upstream) in upstreams.iter().enumerate() {
        if !used.contains(&Some(index)) {
            let expected =
                format!("a [[listen]] with upstream = {:?}", upstream.config.common.name);
            let unused = Mismatch::new("an upstream that no [[listen]] names", expected);
            upstream.setting.problem(unused);
        }
    }
}

/// Envoys route requests, to where they are told by number.
fn check_envoy(table: &mut Table<'_>, upstream: &Upstream<'_>) {
    if upstream.config.cql.is_some() {
        let expected = "an HTTP upstream: Envoy routes requests, not coordinators";
        table.problem("envoy", Mismatch::new("[envoy] with a Cassandra upstream", expected));
    }
    check_addresses_alone(upstream, "[envoy]");
}

/// Who is told where requests go takes addresses, no names.
fn check_addresses_alone(upstream: &Upstream<'_>, table: &str) {
    for replica in upstream.replicas.iter().filter(|it| it.server.inet().is_none()) {
        let hint = format!("{table} tells others where requests go, and these take no others");
        replica.problem("an IP address with a port", hint);
    }
}

/// One address that Kubernetes refuses, and it refuses all of its slice.
fn check_endpoints(upstream: &Upstream<'_>) {
    for replica in &upstream.replicas {
        let of_this_machine = |at: SocketAddr| at.port() > 0 && !is_endpoint(at.ip());
        if replica.server.inet().is_some_and(of_this_machine) {
            let hint = "[redirect.kubernetes] makes it an endpoint, and Kubernetes takes none that \
                        is of one machine or link";
            replica.problem("an address that all nodes can reach", hint);
        }
    }
}

/// A client's message must fit into what is buffered for all of them.
fn check_buffers(buffers_max: u64, upstreams: &[Upstream<'_>]) {
    for upstream in upstreams {
        let Some(cql) = &upstream.config.cql else { continue };
        if cql.frame_bytes_max as u64 > buffers_max {
            let came = format!("cql.frame_bytes_max = {}", cql.frame_bytes_max);
            let expected = format!("at most process.buffers_max, which is {buffers_max}");
            upstream.setting.problem(Mismatch::new(came, expected));
        }
    }
}

/// Other data centres are of use to the upstream of `[redirect]` only.
fn check_sites(upstreams: &[Upstream<'_>], redirect: Option<&Redirect<'_>>) {
    let split = redirect.map(|redirect| redirect.config.upstream);
    for (index, upstream) in upstreams.iter().enumerate() {
        if split == Some(index) || upstream.config.common.sites.is_empty() {
            continue;
        }
        let came = "sites without [redirect] for this upstream";
        let expected = format!("[redirect] with upstream = {:?} too", upstream.config.common.name);
        upstream.setting.problem(Mismatch::new(came, expected));
    }
}

/// Other sites and Envoys know replicas by their places, which are those of the file.
fn check_places(upstream: &Upstream<'_>) {
    if let Some(source) = upstream.config.common.sources.first() {
        let came = format!("{source} as a source of replicas");
        let expected = "addresses only, in the upstream of [redirect]";
        upstream.setting.problem(Mismatch::new(came, expected));
    }
}

/// Every other site has a way to it, and every way a site.
fn check_known_sites(redirect: &RedirectConfig, upstream: &Upstream<'_>) {
    let (site, sites) = (redirect.site, &redirect.sites);
    if upstream.config.cql.is_some() {
        return; // its nodes tell of the others
    }
    for other in sites.iter().filter(|other| other.datacenter.is_some()) {
        let came = format!("a datacenter of the site {:?}", other.name);
        let expected = "an upstream with protocol = \"cql\": only clusters have data centre names";
        upstream.setting.problem(Mismatch::new(came, expected));
    }
    let known_sites = &upstream.config.common.sites;
    for (index, other) in sites.iter().enumerate().filter(|(_, site)| !site.name.is_empty()) {
        let is_known = known_sites.iter().any(|known| known.name == other.name);
        if index != site.index() && !is_known {
            let expected = format!("the proxies of the site {:?} in its sites", other.name);
            let came = "an upstream of [redirect] without its addresses";
            upstream.setting.problem(Mismatch::new(came, expected));
        }
    }
    for known in known_sites {
        let others = sites.iter().enumerate().filter(|(index, _)| *index != site.index());
        if !others.clone().any(|(_, other)| other.name == known.name) {
            let names: Vec<&str> = others.map(|(_, other)| other.name.as_str()).collect();
            let expected = format!("another site of [redirect]: {}", names.join(", "));
            let came = format!("addresses of a site {:?}", known.name);
            upstream.setting.problem(Mismatch::new(came, expected));
        }
    }
}

/// Between which sites an upstream's requests are split, and where those are among its data
/// centres: nodes of a cluster tell of all others, over HTTP there is a way to some.
fn site_setup(redirect: &RedirectConfig, upstream: &UpstreamConfig, is_cql: bool) -> SiteSetup {
    let home = redirect.site.index();
    let place = |(site, name): (usize, &String)| match is_cql {
        _ if site == home => Some(HOME),
        true => Some(site + usize::from(site < home)),
        false => upstream.sites.iter().position(|remote| remote.name == *name).map(|at| at + 1),
    };
    let sites = redirect.split();
    let places = sites.names.iter().enumerate().map(place).collect();
    SiteSetup { sites, places }
}

/// The data centres of the other sites, for an upstream that is a Cassandra cluster.
fn remote(redirect: &RedirectConfig) -> Vec<RemoteDatacenter> {
    let others = redirect.sites.iter().enumerate();
    let others = others.filter(|(site, _)| *site != redirect.site.index());
    let remote = |(_, site): (usize, &RedirectSite)| RemoteDatacenter {
        site: site.name.clone(),
        datacenter: site.datacenter.clone().unwrap_or_else(|| site.name.clone()),
    };
    others.map(remote).collect()
}

/// Who listens where, and who would send requests round in circles.
fn check_addresses(
    upstreams: &[Upstream<'_>],
    listens: &[Listen<'_>],
    agents: &[Agent<'_>],
    admin: Option<&Admin<'_>>,
    (redirect, envoy): (Option<&Redirect<'_>>, Option<&Envoy<'_>>),
    duplicates: &[Duplicates<'_>],
) {
    let listens = listens.iter().map(|listen| OwnAddress {
        of: "[[listen]]",
        address: &listen.address,
        nodes: listen.upstreams().flatten().collect(),
    });
    let of_agents = agents.iter().enumerate().map(|(index, agent)| {
        let nodes = vec![upstreams.len() + index];
        OwnAddress { of: "[[agent]]", address: &agent.address, nodes }
    });
    let admin =
        admin.map(|admin| OwnAddress { of: "[admin]", address: &admin.address, nodes: Vec::new() });
    let redirect = redirect.map(|redirect| OwnAddress {
        of: "[redirect]",
        address: &redirect.listen,
        nodes: Vec::new(),
    });
    let envoy = envoy.and_then(|envoy| envoy.listen.as_ref());
    let envoy = envoy.map(|address| OwnAddress { of: "[envoy]", address, nodes: Vec::new() });
    let first = upstreams.len() + agents.len();
    let services = (first..).zip(duplicates).map(|(node, service)| OwnAddress {
        of: "[duplicates]",
        address: &service.listen,
        nodes: vec![node],
    });
    let own_addresses = listens.chain(of_agents).chain(admin).chain(redirect).chain(envoy);
    let sentinels = duplicates
        .iter()
        .flat_map(|service| service.sentinel.iter().chain(service.cluster.as_ref()));
    let sentinels =
        sentinels.map(|address| OwnAddress { of: "[duplicates]", address, nodes: Vec::new() });
    let own_addresses = own_addresses.chain(services).chain(sentinels);
    let own_addresses: Vec<OwnAddress<'_>> = own_addresses.collect();
    let replicas = upstreams.iter().map(|upstream| upstream.replicas.as_slice());
    let apps = agents.iter().map(|agent| std::slice::from_ref(&agent.app));
    let servers = duplicates.iter().map(|service| service.servers.as_slice());
    let targets: Vec<&[Address<'_>]> = replicas.chain(apps).chain(servers).collect();
    addresses::check_addresses(&own_addresses);
    addresses::check_circles(&own_addresses, &targets);
}

fn resolvers(setting: Setting<'_>) -> Vec<SocketAddr> {
    let resolvers = setting.list(|item| Address::to_connect(item).address);
    let few = "1 to 8 addresses such as [\"10.0.0.53:53\"]";
    resolvers.check(few, |all| (1..=8).contains(&all.len())).or(Vec::new())
}

fn optional_path(setting: &Setting<'_>) -> Option<PathBuf> {
    setting.value().is_some().then(|| socket_path(setting))
}

/// The path of a socket, which the kernel can keep.
fn socket_path(setting: &Setting<'_>) -> PathBuf {
    let path = file(setting.clone());
    let length = path.as_os_str().len();
    if length > PATH_BYTES_MAX {
        let expected = format!("a path of at most {PATH_BYTES_MAX} bytes");
        let wrong = Mismatch::new(format!("{length} bytes: {}", path.display()), &expected);
        setting.problem(wrong.with_hint("the kernel keeps no more of the path of a socket"));
    }
    path
}

impl ProcessConfig {
    fn read(table: &mut Table<'_>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            workers: table.key("workers").integer().between(1..=1_024).or(cores),
            drain: duration(table, "drain", Duration::ZERO..=HOUR, 10 * SECOND),
            buffers_max: table.key("buffers_max").bytes().between(BUFFERS_MAX).or(BYTES_MAX),
            resolvers: resolvers(table.key("resolvers")),
            hand_over: optional_path(&table.key("hand_over")),
            engine: table.key("engine").variant(&Engine::NAMES).or(Engine::default()),
        }
    }
}

impl<'a> Listen<'a> {
    fn read(table: &mut Table<'a>, upstreams: Option<&[Upstream<'_>]>, drain: Duration) -> Self {
        let address = Address::to_listen_anywhere(table.key("address"), &table.key("mode"));
        let upstream = upstream_named(table.key("upstream"), upstreams);
        let behind = upstream.and_then(|index| upstreams?.get(index));
        if behind.is_some_and(|upstream| upstream.config.cql.is_some()) {
            evenkeel_cassandra::config::read::refuse(table, &HttpListenConfig::KEYS);
        }
        let named = upstreams.map(http_upstreams);
        let limits = table.key("limits");
        let is_cql = behind.is_some_and(|upstream| upstream.config.cql.is_some());
        let idle = if is_cql { evenkeel_cassandra::IDLE } else { ServerLimits::IDLE };
        let config = ListenConfig {
            tls: table.key("tls").table(ServerTlsFiles::read).optional(),
            proxy_protocol: Networks::read(table.key("proxy_protocol")),
            address: address.place.clone(),
            upstream: upstream.unwrap_or_default(),
            limits: limits.section(move |table| {
                if is_cql {
                    evenkeel_cassandra::config::read::refuse(table, &["connection_age"]);
                }
                ServerLimits::read(table, drain, idle)
            }),
            http: HttpListenConfig::read(table),
            routes: RouteConfig::read_all(table.key("routes"), named.as_deref()),
        };
        Self { config, address, upstream }
    }

    /// The upstreams behind it; `None` for a name that there is not.
    fn upstreams(&self) -> impl Iterator<Item = Option<usize>> {
        let routes = self.config.routes.iter().flat_map(RouteConfig::upstreams);
        let routes = routes.map(|place| (place != UNKNOWN).then_some(place));
        [self.upstream].into_iter().chain(routes)
    }
}

/// Upstreams of HTTP, with their places.
fn http_upstreams<'u>(upstreams: &'u [Upstream<'_>]) -> Vec<(&'u str, usize)> {
    let of_http = upstreams.iter().zip(0..).filter(|(it, _)| it.config.cql.is_none());
    of_http.map(|(it, place)| (it.config.common.name.as_str(), place)).collect()
}

/// `upstreams` is none where it is not known which there are.
fn upstream_named(setting: Setting<'_>, upstreams: Option<&[Upstream<'_>]>) -> Option<usize> {
    let upstreams = upstreams?;
    let names = upstreams.iter().map(|upstream| upstream.config.common.name.as_str());
    let named: Vec<(&str, usize)> = names.zip(0..).collect();
    if setting.value().is_none() {
        setting.problem(Mismatch::new("nothing", "the name of an [upstream.NAME]"));
        return None;
    }
    if named.is_empty() {
        let expected = "a table [upstream.NAME]: the file has none";
        setting.problem(Mismatch::new("the name of an upstream", expected));
        return None;
    }
    setting.variant(&named).optional()
}

impl<'a> Upstream<'a> {
    fn read(name: &'a str, setting: Setting<'a>) -> Self {
        check_name(name, "an upstream of this name", &setting);
        let read = |table: &mut Table<'a>| {
            let protocol = table.key("protocol").variant(&PROTOCOLS).or(Protocol::Http);
            let is_cql = protocol == Protocol::Cql;
            let (mut common, replicas) = UpstreamConfig::read(name, table, is_cql);
            let cql = table.key("cql").table(CqlConfig::read).optional();
            match protocol {
                Protocol::Cql => evenkeel_cassandra::config::read::refuse(
                    table,
                    &["discover", "sites", "replay_bytes_max", "pool", "http2"],
                ),
                Protocol::Http if cql.is_some() => {
                    let expected = "protocol = \"cql\" too: the default is http";
                    table.problem("cql", Mismatch::new("cql alone", expected));
                }
                Protocol::Http => {}
            }
            common.operations = table.key("operations").table(operations).optional();
            let cql = is_cql.then(|| cql.unwrap_or_default());
            (UpstreamEntry { common, cql }, replicas)
        };
        let (config, replicas) = setting.clone().table(read).required();
        Self { config, setting, replicas }
    }

    /// As what its requests are counted; `home` is the site of `[redirect]`.
    fn operations(&self, home: Option<&str>) -> Option<CountedAs> {
        let mut counted = self.config.common.operations.clone()?;
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

/// `[upstream.NAME.operations]`
fn operations(table: &mut Table<'_>) -> CountedAs {
    let named = Operation::ALL.map(|operation| (operation.name(), operation.name()));
    let database_at = table.key("database");
    let database = database_at.clone().text().required();
    if !database.is_empty() {
        check_name(&database, "a database of this name", &database_at);
    }
    let datacenter = table.key("datacenter").text();
    let is_short = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
    let datacenter = datacenter.check("a name of 1 to 64 bytes", is_short);
    CountedAs {
        database,
        datacenter: datacenter.or(String::new()), // until [redirect] is read
        reads: table.key("reads").variant(&named).or(Operation::WeakRead.name()),
        writes: table.key("writes").variant(&named).or(Operation::SingleGroup.name()),
    }
}

impl<'a> Agent<'a> {
    fn read(table: &mut Table<'a>, drain: Duration) -> Self {
        let (common, address, app) = AgentConfig::read(table, drain);
        let protocol = table.key("protocol").variant(&PROTOCOLS).or(Protocol::Http);
        if protocol == Protocol::Cql {
            evenkeel_cassandra::config::read::refuse(table, &AgentConfig::KEYS);
            if let ServerAddress::Unix(_) = app.server {
                let hint = "nodes of Cassandra listen on no path";
                app.problem("an address or name with a port", hint);
            }
        }
        Self { config: AgentEntry { common, protocol }, address, app }
    }
}

impl<'a> Admin<'a> {
    fn read(table: &mut Table<'a>) -> Self {
        let setting = table.key("address");
        let address = Address::to_listen_anywhere(setting.clone(), &table.key("mode"));
        let public = table.key("public").list(|item| item.variant(&PublicPath::NAMED).required());
        let mut config = AdminConfig {
            address: address.place.clone(),
            tls: table.key("tls").table(ServerTlsFiles::read).optional(),
            token_file: table
                .key("token_file")
                .value()
                .is_some()
                .then(|| file(table.key("token_file"))),
            public: public.or(Vec::new()),
        };
        let is_guarded = config.token_file.is_some() || config.asks_certificates();
        if !is_guarded && !config.is_near() {
            let expected = "a loopback address such as 127.0.0.1:9901, a path such as \
                            unix:/run/evenkeel/admin.sock, or token_file, or tls with client_ca";
            let wrong = Mismatch::new(config.address.to_string(), expected);
            setting.problem(wrong.with_hint("whoever reaches it can change settings"));
        }
        if let Some(tls) = &mut config.tls {
            // Who has no certificate may have a token, or ask for what is public.
            tls.is_client_optional = config.token_file.is_some() || !config.public.is_empty();
        }
        Self { config, address }
    }
}
