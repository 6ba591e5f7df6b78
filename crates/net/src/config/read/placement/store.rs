//! `[placement.databases.system]`: which store holds a database, and where its members are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_settings::shared::duration;
use evenkeel_settings::{Mismatch, Place, Setting, Table};

use super::tables::Tables;
use super::{NAME_BYTES_MAX, file, url};
use crate::config::placement::{PlacementTier, StoreConfig, SystemConfig};
use crate::config::read::{HOUR, MS, SECOND};
use crate::placement::act::{etcd, patroni};

/// A new store is a name here, an arm in [`read`] and in [`most`], and its own `Settings`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Etcd,
    Patroni,
}

const KINDS: [(&str, Kind); 2] = [("etcd", Kind::Etcd), ("patroni", Kind::Patroni)];

/// Keys that only some stores have.
const OF_ETCD: [&str; 1] = ["hold"];
const OF_PATRONI: [&str; 2] = ["switchover", "lock"];

/// Further behind, a replica is not well unless something else is written: entries of the log in
/// etcd, bytes of it in PostgreSQL.
const ETCD_LAG: u64 = 1_000;
const PATRONI_LAG: u64 = 16 << 20;

/// What can change of what is held there.
pub(super) const fn most(system: &SystemConfig) -> PlacementTier {
    match system.store {
        StoreConfig::Etcd(_) => PlacementTier::Replicas,
        // Patroni makes no members, and chooses the synchronous standbys itself.
        StoreConfig::Patroni(_) => PlacementTier::Leader,
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
    name: String,
    client: Option<String>,
    peer: Option<String>,
    api: Option<String>,
    start: Vec<String>,
}

/// Reads a system, and the sites of its members; `None` after a problem.
pub(super) fn read(
    table: &mut Table<'_>,
    database: &str,
    tables: &Tables,
) -> Option<(SystemConfig, Arc<[String]>)> {
    let kind: Option<Kind> = match table.key("kind").value() {
        Some(_) => table.key("kind").variant(&KINDS).optional(),
        None => {
            table.key("kind").variant(&KINDS).required();
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
    let foreign: &[&str] = match kind {
        Some(Kind::Etcd) => &OF_PATRONI,
        Some(Kind::Patroni) => &OF_ETCD,
        None => &[],
    };
    for key in foreign {
        if table.key(key).value().is_some() {
            table.problem(key, Mismatch::new(*key, "another kind: it has no such key"));
        }
    }
    let (sites, members) = members?;
    let (store, usual_lag) = match kind? {
        Kind::Etcd => (etcd_store(database, common, members, hold), ETCD_LAG),
        Kind::Patroni => {
            (patroni_store(database, common, members, (switchover, lock)), PATRONI_LAG)
        }
    };
    let lag_max = lag_max.unwrap_or(usual_lag);
    Some((SystemConfig { store, step, lag_max, password_file }, sites))
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
        authority: path(table, "authority"),
        identity: certificate.zip(key),
    }
}

type Members = (Arc<[String]>, Vec<Member>);

/// Members by the site where each is.
fn members(
    setting: &Setting<'_>,
    tables: &Tables,
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
    let read = read.check("two members or more", |members| members.len() >= 2).required();
    let (sites, members): (Vec<String>, Vec<Member>) = read.into_iter().unzip();
    (!sites.is_empty()).then(|| (sites.into(), members))
}

fn member(table: &mut Table<'_>, site: &str, kind: Option<Kind>, has_authority: bool) -> Member {
    let is_short = |name: &String| (1..=NAME_BYTES_MAX).contains(&name.len());
    let name = table.key("name").text().check("a name of 1 to 64 bytes", is_short);
    let mut needed = |key: &str, of: Kind| {
        let setting = table.key(key);
        match (kind, setting.value()) {
            (Some(kind), _) if kind == of => Some(url(setting, has_authority)),
            (Some(_), Some(_)) => {
                setting.problem(Mismatch::new(key, "another kind: it has no such key"));
                None
            }
            (None, Some(_)) => Some(url(setting, true)),
            (_, None) => None,
        }
    };
    let (client, peer) = (needed("client", Kind::Etcd), needed("peer", Kind::Etcd));
    let api = needed("api", Kind::Patroni);
    let start = table.key("start").list(|item| item.text().required()).or(Vec::new());
    if !start.is_empty() && kind == Some(Kind::Patroni) {
        table.problem("start", Mismatch::new("start", "another kind: it makes no members"));
    }
    Member { name: name.or(site.to_owned()), client, peer, api, start }
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
