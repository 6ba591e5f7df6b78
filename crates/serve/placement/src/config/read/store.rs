//! `[placement.databases.system]`: which store holds a database, and where its members are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_settings::common::{HOUR, MS, NAME_BYTES_MAX, SECOND, file};
use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Place, Setting, Table};

use super::tables::Tables;
use crate::act::nats::{self, Nats};
use crate::act::zookeeper::{self, ZooKeeper};
use crate::act::{StepError, etcd, patroni};
use crate::config::{PlacementTier, StoreConfig, SystemConfig};
use evenkeel_stores::clients::rest::url;

evenkeel_core::named! {
    /// A new store is a name here, an arm in [`settings`], [`form`] and [`most`], and its own
    /// `Settings`.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Kind {
        Etcd = "etcd",
        Patroni = "patroni",
        ZooKeeper = "zookeeper",
        Nats = "nats",
    }
}

/// Keys that only some stores have.
const OF_SOME: [(&str, &[Kind]); 7] = [
    ("hold", &[Kind::Etcd, Kind::ZooKeeper]),
    ("switchover", &[Kind::Patroni]),
    ("lock", &[Kind::Patroni, Kind::Nats]),
    ("stream", &[Kind::Nats]),
    ("ca_file", &[Kind::Etcd, Kind::Patroni]),
    ("certificate", &[Kind::Etcd, Kind::Patroni]),
    ("key", &[Kind::Etcd, Kind::Patroni]),
];

/// Further behind, a replica is not well unless something else is written: entries of the log in
/// etcd, transactions in ZooKeeper, messages in NATS, bytes of the log in PostgreSQL.
const LAG: u64 = 1_000;
const PATRONI_LAG: u64 = 16 << 20;

/// What can change of what is held there.
pub(super) const fn most(system: &SystemConfig) -> PlacementTier {
    match system.store {
        StoreConfig::Etcd(_) => PlacementTier::Replicas,
        // Nobody moves its leader; a server that is added must run already.
        StoreConfig::ZooKeeper(_) => PlacementTier::Voters,
        // Patroni makes no members, and chooses the synchronous standbys itself; NATS chooses where
        // replicas are, and all of them vote.
        StoreConfig::Patroni(_) | StoreConfig::Nats(_) => PlacementTier::Leader,
    }
}

/// How a place of a member is written.
#[derive(Clone, Copy)]
enum Form {
    Url,
    Address,
    Peer,
}

/// How a store's members are reached; `None` for keys that it does not have.
fn form(kind: Kind, key: &str) -> Option<Form> {
    match (kind, key) {
        (Kind::Etcd, "client" | "peer") | (Kind::Patroni, "api") => Some(Form::Url),
        (Kind::ZooKeeper | Kind::Nats, "client") => Some(Form::Address),
        (Kind::ZooKeeper, "peer") => Some(Form::Peer),
        _ => None,
    }
}

/// What stores have in common.
struct Common {
    request: Duration,
    user: Option<(String, String)>,
    authority: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

/// A member as it is written, with all that any store may want of it.
struct Member {
    pub name: String,
    client: Option<String>,
    peer: Option<String>,
    api: Option<String>,
    listen: Option<String>,
    pub id: Option<u32>,
    start: Vec<String>,
}

/// What a store has beside its members.
struct Own {
    hold: Duration,
    switchover: Duration,
    lock: PathBuf,
    stream: String,
}

/// Reads a system, and the sites of its members; `None` after a problem.
pub(super) fn read(
    table: &mut Table<'_>,
    database: &str,
    tables: &Tables<'_>,
) -> Option<(SystemConfig, Arc<[String]>)> {
    let kind: Option<Kind> = match table.key("kind").value() {
        Some(_) => table.key("kind").variant(&Kind::NAMED).optional(),
        None => {
            table.key("kind").variant(&Kind::NAMED).required();
            None
        }
    };
    let common = common(table);
    let has_authority = common.authority.is_some();
    let members = members(&table.key("members"), tables, kind, has_authority);
    let switchover = duration(table, "switchover", SECOND..=HOUR, 60 * SECOND);
    let step = duration(table, "step", SECOND..=HOUR, 60 * SECOND);
    // A switchover is answered when it is over, and must then still be seen.
    let step = match kind {
        Some(Kind::Patroni) => step.max(switchover + 30 * SECOND),
        _ => step,
    };
    let lag_max = table.key("lag_max").integer().between(0..=u64::MAX >> 1).optional();
    let hold = duration(table, "hold", 5 * SECOND..=HOUR, 30 * SECOND);
    let lock_at = table.key("lock");
    let lock = match lock_at.value() {
        Some(_) => file(lock_at.clone()),
        None => beside(&lock_at, &format!("{database}.lock")),
    };
    let password_file = table.key("password_file").value();
    let password_file = password_file.map(|_| file(table.key("password_file")));
    if common.user.is_some() != password_file.is_some() {
        let expected = "user and password_file together";
        table.problem("user", Mismatch::new("one of them alone", expected));
    }
    let stream = table.key("stream").text();
    let stream = stream.check("a name of 1 to 255 bytes without blanks and .*>/\\", |name| {
        evenkeel_stores::clients::nats::wire::check_name(name).is_ok()
    });
    let stream = stream.or(database.to_owned());
    let (sites, members) = members?;
    let kind = kind?;
    for (key, kinds) in OF_SOME {
        if !kinds.contains(&kind) && table.key(key).value().is_some() {
            table.problem(key, Mismatch::new(key, "another kind: this one has no such key"));
        }
    }
    let usual_lag = if kind == Kind::Patroni { PATRONI_LAG } else { LAG };
    let lag_max = lag_max.unwrap_or(usual_lag);
    let store = settings(kind, database, (common, Own { hold, switchover, lock, stream }), members);
    if table.is_sound()
        && let Err(error) = sound(&store)
    {
        table.problem("members", Mismatch::new(error.to_string(), "distinct members"));
    }
    Some((SystemConfig { store, step, lag_max, password_file }, sites))
}

/// What members have wrong together, for stores that say so without reading files.
fn sound(store: &StoreConfig) -> Result<(), StepError> {
    match store {
        StoreConfig::ZooKeeper(settings) => ZooKeeper::new(settings.clone()).map(drop),
        StoreConfig::Nats(settings) => Nats::new(settings.clone()).map(drop),
        StoreConfig::Etcd(_) | StoreConfig::Patroni(_) => Ok(()),
    }
}

fn common(table: &mut Table<'_>) -> Common {
    let path =
        |table: &mut Table<'_>, key: &str| table.key(key).value().map(|_| file(table.key(key)));
    let (certificate, key) = (path(table, "certificate"), path(table, "key"));
    if certificate.is_some() != key.is_some() {
        let expected = "certificate and key together";
        table.problem("certificate", Mismatch::new("one of them alone", expected));
    }
    Common {
        request: duration(table, "request", 100 * MS..=60 * SECOND, 5 * SECOND),
        user: table.key("user").text().optional().map(|user| (user, String::new())),
        authority: path(table, "ca_file"),
        identity: certificate.zip(key),
    }
}

type Members = (Arc<[String]>, Vec<Member>);

/// Members by the site where each is.
fn members(
    setting: &Setting<'_>,
    tables: &Tables<'_>,
    kind: Option<Kind>,
    has_authority: bool,
) -> Option<Members> {
    let known = tables.named();
    let read = setting.clone().named(|site, setting| {
        if !known.is_empty() && known.iter().all(|(name, _)| *name != site) {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let expected = format!("a site of round_trips: {}", names.join(", "));
            setting.problem(Mismatch::new(format!("the unknown site {site:?}"), expected));
        }
        setting.table(|table| member(table, site, kind, has_authority)).required()
    });
    let read = read.check("two or more members", |members| members.len() >= 2).required();
    let (sites, members): (Vec<String>, Vec<Member>) = read.into_iter().unzip();
    (!sites.is_empty()).then(|| (sites.into(), members))
}

fn member(table: &mut Table<'_>, site: &str, kind: Option<Kind>, has_authority: bool) -> Member {
    let is_short = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
    let name = table.key("name").text().check("a name of 1 to 64 bytes", is_short);
    let name = name.or(site.to_owned());
    let foreign = |setting: &Setting<'_>, key: &str| {
        if setting.value().is_some() {
            setting.problem(Mismatch::new(key, "another kind: this one has no such key"));
        }
    };
    let mut place = |key: &str| {
        let setting = table.key(key);
        let Some(kind) = kind else { return setting.text().optional() };
        match form(kind, key) {
            Some(Form::Url) => return Some(url(setting, has_authority)),
            Some(Form::Address) => return Some(address(setting)),
            Some(Form::Peer) => return Some(peer_address(setting)),
            None => foreign(&setting, key),
        }
        None
    };
    let (client, peer, api) = (place("client"), place("peer"), place("api"));
    let (listen, id, start) = (table.key("listen"), table.key("id"), table.key("start"));
    let is_zookeeper = kind.is_none_or(|kind| kind == Kind::ZooKeeper);
    if !is_zookeeper {
        foreign(&listen, "listen");
        foreign(&id, "id");
    }
    if kind.is_some_and(|kind| kind != Kind::Etcd) {
        foreign(&start, "start");
    }
    let listen = listen
        .text()
        .check("host:port, or a port", |text| !is_zookeeper || zookeeper::is_listen(text));
    let listen = listen.optional();
    let id = id.integer().between(1..=255);
    let id = if kind == Some(Kind::ZooKeeper) { Some(id.required()) } else { id.optional() };
    let start = start.list(|item| item.text().required()).or(Vec::new());
    Member { name, client, peer, api, listen, id, start }
}

fn address(setting: Setting<'_>) -> String {
    let expected = "host:port, such as \"10.0.1.1:2181\"";
    let parse = |text: &str| match zookeeper::is_address(text) {
        true => Ok(text.to_owned()),
        false => Err(Mismatch::new(format!("{text:?}"), expected)),
    };
    setting.parsed(expected, String::new(), parse).required()
}

fn peer_address(setting: Setting<'_>) -> String {
    let expected = "host:port:port, such as \"10.0.1.1:2888:3888\"";
    let parse = |text: &str| match zookeeper::is_peer(text) {
        true => Ok(text.to_owned()),
        false => Err(Mismatch::new(format!("{text:?}"), expected)),
    };
    setting.parsed(expected, String::new(), parse).required()
}

fn settings(
    kind: Kind,
    name: &str,
    (common, own): (Common, Own),
    members: Vec<Member>,
) -> StoreConfig {
    match kind {
        Kind::Etcd => etcd_store(name, common, members, own.hold),
        Kind::Patroni => patroni_store(name, common, members, (own.switchover, own.lock)),
        Kind::ZooKeeper => zookeeper_store(name, common, members, own.hold),
        Kind::Nats => nats_store(name, common, members, own),
    }
}

fn zookeeper_store(
    name: &str,
    common: Common,
    members: Vec<Member>,
    hold: Duration,
) -> StoreConfig {
    let site = |member: Member| {
        let client = member.client.unwrap_or_default();
        zookeeper::Site {
            name: member.name,
            id: member.id.unwrap_or_default(),
            peer: member.peer.unwrap_or_default(),
            listen: member.listen.unwrap_or_else(|| client.clone()),
            client,
        }
    };
    let Common { request, user, .. } = common;
    StoreConfig::ZooKeeper(zookeeper::Settings {
        name: name.to_owned(),
        sites: members.into_iter().map(site).collect(),
        request,
        user,
        hold,
    })
}

fn nats_store(name: &str, common: Common, members: Vec<Member>, own: Own) -> StoreConfig {
    let site = |member: Member| nats::Site {
        name: member.name,
        client: member.client.unwrap_or_default(),
    };
    let Common { request, user, .. } = common;
    StoreConfig::Nats(nats::Settings {
        name: name.to_owned(),
        stream: own.stream,
        sites: members.into_iter().map(site).collect(),
        request,
        user,
        lock: own.lock,
    })
}

fn etcd_store(name: &str, common: Common, members: Vec<Member>, hold: Duration) -> StoreConfig {
    let site = |member: Member| etcd::Site {
        name: member.name,
        client: member.client.unwrap_or_default(),
        peer: member.peer.unwrap_or_default(),
        start: member.start,
    };
    let Common { request, user, authority, identity } = common;
    StoreConfig::Etcd(etcd::Settings {
        name: name.to_owned(),
        sites: members.into_iter().map(site).collect(),
        request,
        user,
        authority,
        identity,
        hold,
    })
}

fn patroni_store(
    name: &str,
    common: Common,
    members: Vec<Member>,
    (switchover, lock): (Duration, PathBuf),
) -> StoreConfig {
    let site =
        |member: Member| patroni::Site { name: member.name, api: member.api.unwrap_or_default() };
    let Common { request, user, authority, identity } = common;
    StoreConfig::Patroni(patroni::Settings {
        name: name.to_owned(),
        sites: members.into_iter().map(site).collect(),
        request,
        switchover,
        user,
        authority,
        identity,
        lock,
    })
}

/// A file beside the one where the setting would be written.
fn beside(setting: &Setting<'_>, name: &str) -> PathBuf {
    match setting.place() {
        Place::File { file, .. } => {
            std::path::Path::new(&**file).parent().unwrap_or(std::path::Path::new("")).join(name)
        }
        Place::Flag(_) => name.into(),
    }
}
