//! `[duplicates.NAME]`.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::request::call::ATTEMPTS_MAX;
use evenkeel_core::request::partition::SLOTS;
use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_core::units::Probability;
use evenkeel_ordered::{Acknowledge, Consistency, MembersConfig, SERVERS_MAX};
use evenkeel_planner::duplicates::policy::Prices;
use evenkeel_planner::duplicates::quiet::Settings as NightSettings;
use evenkeel_settings::address::{self, Address, ServerAddress};
use evenkeel_settings::common::{HOUR, MS, SECOND, check_name, file};
use evenkeel_settings::shared::{self, duration};
use evenkeel_settings::{Mismatch, Setting, Table, Value};

use crate::access::{ClientAccess, StoreLogin};
use crate::{DuplicatesConfig, ENSEMBLE_EXPECTED, OTHER_STORES, RedisAccess, Target, ensemble};
use evenkeel_cql::client::config::user;
use evenkeel_leadership::layout::MapPlace;
use evenkeel_leadership::{EtcdSettings, Group};
use evenkeel_manager::ManagerSettings;
use evenkeel_runtime::tls::{ClientTlsFiles, ServerTlsFiles};
use evenkeel_stores::clients::rest::url;
use evenkeel_stores::resp::request::Limits;
use evenkeel_stores::store::cassandra::{CassandraAccess, CassandraSettings};
use evenkeel_stores::store::embedded::EmbeddedSettings;
use evenkeel_stores::store::zookeeper::ZooKeeperSettings;
use evenkeel_wal::{LogPlace, LogSettings, Sync};

/// A read is sent to so many at once: as many as attempts that a call may make.
const COPIES: RangeInclusive<u8> = 1..=ATTEMPTS_MAX as u8;
const SEGMENT_BYTES: RangeInclusive<u64> = 65_536..=1 << 32;
const LOG_BYTES: RangeInclusive<u64> = 131_072..=1 << 42;
/// etcd grants no less with the election timeout of 1 s that it has by default.
const LEASE_MIN: Duration = Duration::from_secs(2);
const ARGUMENT_BYTES: RangeInclusive<u64> = 1_024..=512 << 20;

/// Whether the manager does what it advises.
const ACTS: [(&str, bool); 2] = [("advise", false), ("move", true)];

/// `[duplicates.NAME]`, and what is checked against the other tables.
pub struct Duplicates<'a> {
    /// What it says, in force once the whole file is sound.
    pub config: DuplicatesConfig,
    /// Where clients connect: no other listener may be there.
    pub listen: Address<'a>,
    /// Where clients ask who leads: none either.
    pub sentinel: Option<Address<'a>>,
    /// Where clients of Redis Cluster connect: none either.
    pub cluster: Option<Address<'a>>,
    /// Duplicates that are servers of other processes: no route to one may lead back to a listener
    /// of this process.
    pub servers: Vec<Address<'a>>,
}

evenkeel_core::named! {
    /// What stores there are; the default is in this process.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Store {
        Embedded = "embedded",
        Redis = "redis",
        Memcached = "memcached",
        ZooKeeper = "zookeeper",
        Cassandra = "cassandra",
    }
}

impl<'a> Duplicates<'a> {
    /// Reads the table of one service; `drain` is how long clients may take to finish once the
    /// process is told to stop.
    pub fn read(
        name: &'a str,
        setting: Setting<'a>,
        drain: Duration,
        prices: Option<Prices>,
    ) -> Self {
        check_name(name, "a service of this name", &setting);
        setting
            .table(move |table| Self::of(name, table, drain, prices.unwrap_or_default()))
            .required()
    }

    fn of(name: &str, table: &mut Table<'a>, drain: Duration, prices: Prices) -> Self {
        let listen = Address::to_listen(table.key("listen"));
        let sentinel = table.key("sentinel");
        let sentinel = sentinel.value().is_some().then(|| Address::to_listen(sentinel));
        let cluster = table.key("cluster");
        let cluster = cluster.value().is_some().then(|| Address::to_listen(cluster));
        let advertise = table.key("advertise");
        let advertise = advertise.value().is_some().then(|| Address::to_server(advertise).server);
        let store = store(table);
        let directory = PathBuf::from(table.key("directory").text().required());
        let redis = Arc::new(redis_access(table, store));
        let access = Arc::new(access(table, store));
        let tcp = |address| Target::Tcp { address, access: Arc::clone(&redis) };
        let (partitions, servers) = match store {
            Store::Redis => servers(table, tcp),
            Store::Memcached => servers(table, |address| Target::Memcached { address }),
            Store::ZooKeeper => (ensembles(table, name), Vec::new()),
            Store::Cassandra => (keyspaces(table, name, &access), Vec::new()),
            Store::Embedded => (embedded(table, &directory), Vec::new()),
        };
        let (spares, more) = spares(table, name, store, (&redis, &access));
        let servers: Vec<Address<'a>> = servers.into_iter().chain(more).collect();
        address::check_repeated(&servers);
        let count = partitions.len().max(1);
        let fewest = partitions.iter().map(Vec::len).min().unwrap_or(1) as u32;
        let is_single = spares.is_empty() && partitions.iter().all(|of| of.len() < 2);
        let shards = table.key("shards").integer().between(count..=SLOTS).or(64.max(count));
        let members = members(table);
        let consistency = table.key("consistency").variant(&Consistency::NAMED);
        let groups = table.key("groups").integer().between(1..=SERVERS_MAX).or(1);
        let config = DuplicatesConfig {
            name: name.to_owned(),
            listen: listen.address,
            tls: table.key("tls").table(ServerTlsFiles::read).optional(),
            advertise,
            sentinel: sentinel.as_ref().map(|sentinel| sentinel.address),
            cluster: cluster.as_ref().map(|cluster| cluster.address),
            group: Group { number: 0, of: groups },
            relay_tls: table.key("relay_tls").table(ClientTlsFiles::read).optional(),
            partitions,
            shards,
            consistency: consistency.or(Consistency::default()),
            read_copies: table.key("read_copies").integer().between(COPIES).or(*COPIES.end()),
            policy: evenkeel_proxy::config::read::policy(table.key("policy"), "least-outstanding"),
            hedge: hedge(table, is_single),
            safeguards: table.key("safeguards").section(shared::safeguards),
            log: log_settings(table, store, members.acknowledge),
            members,
            log_directory: directory.join("log"),
            map: MapPlace::File(directory.join("layout")),
            spares,
            access: ClientAccess::read(table),
            limits: limits(table),
            clients_max: table.key("clients_max").integer().between(1..=1_000_000).or(10_000),
            idle_max: table.key("idle_max").duration().between(SECOND..=24 * HOUR).optional(),
            drain,
            check_rate: table.key("check_rate").integer().between(0..=1_000).or(100),
            manager: manager(table, fewest, prices),
            etcd: etcd(table, name),
        };
        if config.cluster.is_some() && config.cluster_address().is_none() {
            let expected = "advertise too: the map of slots tells clients where each process is";
            table.problem("cluster", Mismatch::new("an address of every interface", expected));
        }
        if let Some(expected) = missing_for_groups(&config, store) {
            table.problem("groups", Mismatch::new(format!("{groups} groups"), expected));
        }
        Self { config, listen, sentinel, cluster, servers }
    }
}

/// `store`, if this program was built with it.
fn store(table: &mut Table<'_>) -> Store {
    let store = table.key("store").variant(&Store::NAMED).or(Store::Embedded);
    if !OTHER_STORES && !matches!(store, Store::Redis | Store::Embedded) {
        let expected = "redis or embedded: this program was built without the others (cargo \
                        feature other-stores)";
        table.problem("store", Mismatch::new(store.name(), expected));
    }
    store
}

/// What several groups need and this service does not have.
fn missing_for_groups(config: &DuplicatesConfig, store: Store) -> Option<String> {
    let of = config.group.of;
    let is_turns = config.etcd.as_ref().is_some_and(|etcd| etcd.standby);
    let last = config.cluster.map(|at| usize::from(at.port()) + of - 1);
    let missing = match last {
        _ if of == 1 => return None,
        _ if of > config.partitions.len() => {
            let partitions = config.partitions.len();
            return Some(format!("at most as many as partitions: {partitions}"));
        }
        _ if store != Store::Redis => "store = \"redis\": other processes reach only servers",
        _ if !is_turns => "coordination in etcd and standby = true: each group has a lease",
        None => "cluster too: each group has a door there, also for the service's processes",
        Some(last) if last < of || last > usize::from(u16::MAX) => {
            "a port of cluster with a free one behind it for each further group, at most 65535"
        }
        _ => return None,
    };
    Some(missing.to_owned())
}

/// Second copies go to other duplicates; with one for each partition there is none.
fn hedge(table: &mut Table<'_>, is_single: bool) -> Option<HedgeConfig> {
    let hedge = table.key("hedge").table(shared::hedge).optional();
    if hedge.is_some() && is_single {
        let expected = "two duplicates in a partition: a copy goes to another duplicate";
        table.problem("hedge", Mismatch::new("hedging with one duplicate per partition", expected));
    }
    hedge
}

/// `coordination = {store = "etcd", …}` and `standby`.
fn etcd(table: &mut Table<'_>, name: &str) -> Option<EtcdSettings> {
    let standby = table.key("standby").boolean().or(false);
    let of = name.to_owned();
    let etcd = table.key("coordination").section(move |table| map(table, &of));
    if standby && etcd.is_none() {
        let expected = "coordination = {store = \"etcd\", endpoints = [...]} too: a standby \
                        needs a lease";
        table.problem("standby", Mismatch::new("standby alone", expected));
    }
    etcd.map(|etcd| EtcdSettings { standby, ..etcd })
}

/// `None`: in a file.
fn map(table: &mut Table<'_>, name: &str) -> Option<EtcdSettings> {
    let is_etcd = table.key("store").variant(&[("file", false), ("etcd", true)]).or(false);
    let path =
        |table: &mut Table<'_>, key: &str| table.key(key).value().map(|_| file(table.key(key)));
    let (authority, password_file) = (path(table, "ca_file"), path(table, "password_file"));
    let (certificate, key) = (path(table, "certificate"), path(table, "key"));
    let user = table.key("user").text().optional();
    for (one, has_one, other, has_other) in [
        ("certificate", certificate.is_some(), "key", key.is_some()),
        ("user", user.is_some(), "password_file", password_file.is_some()),
    ] {
        if has_one != has_other {
            let expected = format!("{one} and {other} together");
            table.problem(one, Mismatch::new("one of them alone", expected));
        }
    }
    let has_authority = authority.is_some();
    let endpoints = table.key("endpoints").list(|item| url(item, has_authority));
    let endpoints = endpoints.check("at least one member", |all| !all.is_empty()).optional();
    let prefix = table.key("prefix").text().check("no slash at the end", |prefix| {
        !prefix.is_empty() && !prefix.ends_with('/') && prefix.len() <= 1_024
    });
    let prefix = prefix.or(format!("evenkeel/duplicates/{name}"));
    let lease = table.key("lease").duration().between(LEASE_MIN..=HOUR);
    let lease = lease.check("whole seconds, as in etcd", |lease| lease.subsec_nanos() == 0);
    let lease = lease.or(2 * LEASE_MIN);
    if is_etcd != endpoints.is_some() {
        let expected = "store = \"etcd\" and endpoints together";
        table.problem("endpoints", Mismatch::new("one of them alone", expected));
    }
    let identity = certificate.zip(key);
    let endpoints = endpoints.filter(|_| is_etcd)?;
    let standby = false;
    Some(EtcdSettings {
        endpoints,
        prefix,
        lease,
        user,
        password_file,
        authority,
        identity,
        standby,
    })
}

/// `objective`, and what makes sense with it only. `unsaid` are the prices that it leaves out.
fn manager(table: &mut Table<'_>, fewest: u32, unsaid: Prices) -> Option<ManagerSettings> {
    let objective = table.key("objective").duration().between(MS / 10..=HOUR).optional();
    let default = ManagerSettings::new(objective.unwrap_or(MS));
    let target = table.key("target").probability().between(0.0..=0.999_999_999);
    let target = Probability::clamped(target.or(default.target.value()));
    let prices = table.key("cost").section(|table| {
        let per_node = table.key("per_node").number().between(0.0..=1e12);
        let per_violation = table.key("per_violation").number().between(0.0..=1e12);
        Prices {
            per_node: per_node.or(unsaid.per_node),
            per_violation: per_violation.or(unsaid.per_violation),
        }
    });
    let acts = table.key("mode").variant(&ACTS).or(default.acts);
    let has_nights = table.key("night").boolean().or(false);
    let least = table.key("night_duplicates_min").integer().between(1..=SERVERS_MAX as u32);
    // As many as the smallest partition has, which is what was asked for, unless it is said.
    let least = NonZeroU32::new(least.or(fewest)).unwrap_or(NonZeroU32::MIN);
    if has_nights && !acts {
        let expected = "mode = \"move\" too: at night duplicates go and come back";
        table.problem("night", Mismatch::new("night = true without it", expected));
    }
    if has_nights && matches!(table.key("log").value(), Some(Value::Text(log)) if log == "memory") {
        // A node that was closed for hours is known by the log alone.
        let expected = "log = \"disk\": it tells what a node that returns has missed";
        table.problem("night", Mismatch::new("night = true with log = \"memory\"", expected));
    }
    if table.key("objective").value().is_none() {
        for key in ["target", "cost", "mode", "night"] {
            if table.key(key).value().is_some() {
                let expected = "objective too, such as objective = \"5ms\"";
                table.problem(key, Mismatch::new(format!("{key} without objective"), expected));
            }
        }
    }
    let night = has_nights.then(|| NightSettings::new(least));
    objective.map(|_| ManagerSettings { target, prices, acts, night, ..default })
}

fn members(table: &mut Table<'_>) -> MembersConfig {
    let default = MembersConfig::default();
    let silence_max = duration(table, "reply_timeout", 10 * MS..=HOUR, default.silence_max);
    let command_max = default.command_max.max(silence_max);
    MembersConfig {
        acknowledge: table.key("acknowledge").variant(&Acknowledge::NAMED).or(default.acknowledge),
        owed_max: table.key("pending_max").integer().between(16..=1_000_000).or(default.owed_max),
        silence_max,
        command_max: duration(table, "command_timeout", silence_max..=HOUR, command_max),
    }
}

/// What is kept in memory, by default: seconds of writes. It is made of so many segments.
const MEMORY_BYTES: u64 = 256 << 20;
const MEMORY_SEGMENTS: u64 = 16;

fn log_settings(table: &mut Table<'_>, store: Store, acknowledge: Acknowledge) -> LogSettings {
    let places = [("disk", LogPlace::Disk), ("memory", LogPlace::Memory)];
    let place = table.key("log").variant(&places).or(LogPlace::Disk);
    let missing = match (place, acknowledge, store) {
        (LogPlace::Disk, ..) => None,
        (_, Acknowledge::One, _) => Some(
            "acknowledge = \"majority\" or \"all\": what one duplicate alone has is lost with it, \
             if no log on a disk has it",
        ),
        (_, _, Store::Redis) => None,
        _ => Some("store = \"redis\": who leads next reads what servers have of their streams"),
    };
    if let Some(expected) = missing {
        table.problem("log", Mismatch::new("\"memory\"", expected));
    }
    let default = match place {
        LogPlace::Disk => LogSettings::default(),
        LogPlace::Memory => LogSettings {
            bytes_max: MEMORY_BYTES,
            segment_bytes: MEMORY_BYTES / MEMORY_SEGMENTS,
            sync: Sync::Never,
            place,
        },
    };
    let segment = table.key("log_segment_bytes").bytes().between(SEGMENT_BYTES);
    let segment = segment.optional();
    let whole = table.key("log_bytes_max").bytes().between(LOG_BYTES).optional();
    let of_whole = whole.filter(|_| place == LogPlace::Memory).map(|it| it / MEMORY_SEGMENTS);
    let of_whole = of_whole.map(|bytes| bytes.max(*SEGMENT_BYTES.start()));
    let segment_bytes = segment.or(of_whole).unwrap_or(default.segment_bytes);
    let bytes_max = whole.unwrap_or(default.bytes_max.max(2 * segment_bytes));
    if bytes_max < 2 * segment_bytes {
        let came = format!("{bytes_max} bytes");
        let expected = format!("at least two segments: {} bytes", 2 * segment_bytes);
        table.problem("log_bytes_max", Mismatch::new(came, expected));
    }
    LogSettings { segment_bytes, bytes_max, sync: log_sync(table, default.sync), place }
}

fn log_sync(table: &mut Table<'_>, default: Sync) -> Sync {
    let expected = "\"always\", \"never\" or a time such as \"1s\"";
    let parse = |text: &str| match text {
        "always" => Ok(Sync::Always),
        "never" => Ok(Sync::Never),
        text => evenkeel_settings::parse_duration(text)
            .ok()
            .filter(|every| (MS..=HOUR).contains(every))
            .map(Sync::Every)
            .ok_or_else(|| Mismatch::new(format!("{text:?}"), expected)),
    };
    table.key("log_sync").parsed(expected, default, parse).or(default)
}

fn limits(table: &mut Table<'_>) -> Limits {
    let default = Limits::default();
    let argument = table.key("argument_bytes_max").bytes().between(ARGUMENT_BYTES);
    let argument_bytes_max = argument.or(default.argument_bytes_max as u64) as usize;
    Limits {
        argument_bytes_max,
        command_bytes_max: default.command_bytes_max.max(2 * argument_bytes_max),
        ..default
    }
}

type Partitions = Vec<Vec<Target>>;

/// `partitions = [["127.0.0.1:7001", "127.0.0.1:7002"], …]`
fn servers<'a>(
    table: &mut Table<'a>,
    target: impl Fn(ServerAddress) -> Target,
) -> (Partitions, Vec<Address<'a>>) {
    let lists = lists(table, "a list of addresses", Address::to_server);
    let target = |way: &Address<'_>| target(way.server);
    let partitions = lists.iter().map(|list| list.iter().map(target).collect()).collect();
    (partitions, lists.into_iter().flatten().collect())
}

/// The duplicates of each partition, as many as there may be.
fn lists<'a, T: 'a>(
    table: &mut Table<'a>,
    expected: &str,
    mut item: impl FnMut(Setting<'a>) -> T,
) -> Vec<Vec<T>> {
    let few = format!("1 to {SERVERS_MAX} duplicates in all, one for each partition at least");
    let lists = table.key("partitions").list(|partition| {
        partition.list(&mut item).check(expected, |all| !all.is_empty()).required()
    });
    let lists = lists.check(&few, |lists| {
        let count: usize = lists.iter().map(Vec::len).sum();
        (1..=SERVERS_MAX).contains(&count)
    });
    lists.required()
}

/// `spares = ["10.0.1.4:6379", …]`: where the manager opens partitions and adds duplicates.
fn spares<'a>(
    table: &mut Table<'a>,
    name: &str,
    store: Store,
    (redis, access): (&Arc<RedisAccess>, &Arc<CassandraAccess>),
) -> (Vec<Target>, Vec<Address<'a>>) {
    let tcp = |address| Target::Tcp { address, access: Arc::clone(redis) };
    match store {
        Store::Redis | Store::Memcached => {
            let ways = table.key("spares").list(Address::to_server).or(Vec::new());
            let target = |way: &Address<'_>| match store {
                Store::Redis => tcp(way.server),
                _ => Target::Memcached { address: way.server },
            };
            (ways.iter().map(target).collect(), ways)
        }
        Store::ZooKeeper => {
            let read = |item: Setting<'_>| {
                let stand_in = ZooKeeperSettings { servers: Vec::new(), root: String::new() };
                let parse = |text: &str| {
                    let wrong = || Mismatch::new(format!("{text:?}"), ENSEMBLE_EXPECTED);
                    ensemble(text, name).ok_or_else(wrong)
                };
                let settings = item.parsed(ENSEMBLE_EXPECTED, stand_in, parse).required();
                Target::ZooKeeper { settings }
            };
            (table.key("spares").list(read).or(Vec::new()), Vec::new())
        }
        Store::Cassandra => {
            let read = |item: Setting<'_>| {
                let settings = keyspace(item, name, access, &[]);
                Target::Cassandra { settings }
            };
            (table.key("spares").list(read).or(Vec::new()), Vec::new())
        }
        Store::Embedded => {
            if table.key("spares").value().is_some() {
                let expected = "no such key: embedded duplicates are in the directory";
                table.problem("spares", Mismatch::new("spares", expected));
            }
            (Vec::new(), Vec::new())
        }
    }
}

/// `partitions = [["10.0.1.1:2181,10.0.1.2:2181", "10.0.2.1:2181/a/node"], …]`
fn ensembles(table: &mut Table<'_>, name: &str) -> Partitions {
    const EXPECTED: &str = ENSEMBLE_EXPECTED;
    let mut seen = Vec::new();
    lists(table, "a list of ensembles", |item| {
        let stand_in = ZooKeeperSettings { servers: Vec::new(), root: String::new() };
        let parse = |text: &str| {
            let settings = ensemble(text, name).filter(|settings| !seen.contains(settings));
            settings.ok_or_else(|| {
                let wrong = Mismatch::new(format!("{text:?}"), EXPECTED);
                wrong.with_hint("each node can be one duplicate")
            })
        };
        let settings = item.parsed(EXPECTED, stand_in, parse).required();
        seen.push(settings.clone());
        Target::ZooKeeper { settings }
    })
}

/// `store_user`, `store_password`, `store_tls` and `store_cluster`: the same for all servers.
fn redis_access(table: &mut Table<'_>, store: Store) -> RedisAccess {
    for (key, what) in [
        ("store_user", "a user"),
        ("store_password", "a password"),
        ("store_password_file", "a password"),
        ("store_tls", "TLS by this key"),
        ("store_cluster", "nodes of Redis Cluster"),
    ] {
        if table.key(key).value().is_some() && store != Store::Redis {
            let expected = format!("no such key: only store = \"redis\" has {what}");
            table.problem(key, Mismatch::new(key, expected));
        }
    }
    RedisAccess {
        login: StoreLogin::read(table),
        tls: table.key("store_tls").table(ClientTlsFiles::read).optional(),
        is_cluster: table.key("store_cluster").boolean().or(false),
    }
}

/// `[duplicates.NAME.cassandra]`: the same for all nodes.
fn access(table: &mut Table<'_>, store: Store) -> CassandraAccess {
    const REPLICAS_MAX: usize = 100;
    let levels = [("quorum", false), ("local_quorum", true)];
    if table.key("cassandra").value().is_some() && store != Store::Cassandra {
        let expected = "store = \"cassandra\" too: it is only for this store";
        table.problem("cassandra", Mismatch::new("cassandra with another store", expected));
    }
    table.key("cassandra").section(|table| CassandraAccess {
        user: user(table),
        tls: table.key("tls").table(ClientTlsFiles::read).optional(),
        replicas: table
            .key("replicas")
            .named(|_, count| count.integer().between(1..=REPLICAS_MAX).required())
            .or(BTreeMap::new()),
        is_local: table.key("consistency").variant(&levels).or(false),
    })
}

/// `partitions = [["10.0.1.1:9042,10.0.1.2:9042", "10.0.2.1:9042/keyspace"], …]`
fn keyspaces(table: &mut Table<'_>, name: &str, access: &Arc<CassandraAccess>) -> Partitions {
    let mut seen = Vec::new();
    lists(table, "a list of nodes or clusters", |item| {
        let settings = keyspace(item, name, access, &seen);
        seen.push(settings.clone());
        Target::Cassandra { settings }
    })
}

/// One of them, which none of these is.
fn keyspace(
    item: Setting<'_>,
    name: &str,
    access: &Arc<CassandraAccess>,
    seen: &[CassandraSettings],
) -> CassandraSettings {
    const EXPECTED: &str = CassandraSettings::EXPECTED;
    let parse = |text: &str| {
        let settings = CassandraSettings::parse(text, name, access);
        settings.filter(|settings| !seen.contains(settings)).ok_or_else(|| {
            let wrong = Mismatch::new(format!("{text:?}"), EXPECTED);
            wrong.with_hint("each keyspace can be one duplicate")
        })
    };
    let (contact_points, keyspace) = (Vec::new(), String::new());
    let stand_in = CassandraSettings { contact_points, keyspace, access: Arc::clone(access) };
    item.parsed(EXPECTED, stand_in, parse).required()
}

/// `partitions = 2` and `duplicates = 3`, in files of the directory.
fn embedded(table: &mut Table<'_>, directory: &Path) -> Partitions {
    if matches!(table.key("partitions").value(), Some(Value::List(_))) {
        let expected = "a number: embedded stores have no addresses";
        let wrong = Mismatch::new("a list of partitions", expected);
        table.problem("partitions", wrong.with_hint("write store = \"redis\" for servers"));
        return Vec::new();
    }
    let partitions = table.key("partitions").integer().between(1..=SERVERS_MAX).or(1);
    let duplicates = table.key("duplicates").integer().between(1..=SERVERS_MAX).or(2);
    if partitions * duplicates > SERVERS_MAX {
        let came = format!("{partitions} x {duplicates}");
        let expected = format!("at most {SERVERS_MAX} duplicates in all");
        table.problem("duplicates", Mismatch::new(came, expected));
    }
    let target = |partition: usize, duplicate: usize| Target::Embedded {
        settings: EmbeddedSettings::at(
            &directory.join(format!("store-{partition}-{duplicate}.redb")),
        ),
        pauses: None,
    };
    (0..partitions)
        .map(|partition| (0..duplicates).map(|duplicate| target(partition, duplicate)).collect())
        .collect()
}

/// Two services must not write one log.
pub fn check_logs(table: &mut Table<'_>, services: &[Duplicates<'_>]) {
    let mut seen = BTreeSet::new();
    for service in services {
        if !seen.insert(&service.config.log_directory) {
            let came = "one directory for two services".to_owned();
            table.problem(
                "duplicates",
                Mismatch::new(came, "a directory for each: each has its own log"),
            );
        }
    }
}
