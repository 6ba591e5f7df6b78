//! Whether a Redis can be a duplicate: it must know what is sent to it, and forget nothing unasked.
//!
//! A server that evicts keys when its memory is full chooses them by chance, so it would differ
//! from the others without a word. One with `noeviction` refuses the write instead (`OOM`), is
//! dropped, and comes back equal. Version 7 is the first with `XADD … ms-*`, `PEXPIRETIME` and
//! other forms that writes are given here.
//!
//! A node of a Redis Cluster takes no transaction over two slots, but one with a script that sets
//! what is of other slots. So it is one where the configuration says so (`store_cluster`), since
//! commands with keys of several slots are then refused; what else it must be is in
//! `cluster_node.rs`. A replica takes no writes at all.
//!
//! **Valkey** is Redis 7.2.4 to whoever asks for `redis_version`, and has that one's settings. Its
//! own version (`valkey_version`) is not one of Redis: clients that go by it would send commands of
//! another server.
//!
//! It is asked when it is connected to; who sets `maxmemory-policy` later is not noticed until
//! then.

use std::io;

use crate::cluster_node;
use crate::connect::Link;
use evenkeel_duplicates_config::Connector;
use evenkeel_stores::resp::databases::{DATABASES, DATABASES_MAX};
use evenkeel_stores::resp::reply::{self, payload};

const VERSION_MIN: u64 = 7;

/// Asks a Redis how it is set up; what cannot be known of it, if it does not tell.
///
/// # Errors
/// When it must not be a duplicate, or does not answer.
pub async fn check(connector: &Connector, link: &mut Link) -> io::Result<Option<String>> {
    if !matches!(connector, Connector::Tcp { .. }) {
        return Ok(None); // ours
    }
    let unfit = |why: Unfit| io::Error::other(format!("{connector}: {why}"));
    let is_cluster = matches!(connector, Connector::Tcp { is_cluster: true, .. });
    check_version(link.hello())
        .and_then(|()| check_role(link.hello(), is_cluster))
        .map_err(unfit)?;
    if is_cluster {
        cluster_node::check(connector, link).await?;
    }
    let settings = link.ask(&[b"CONFIG", b"GET", b"maxmemory", b"maxmemory-policy"]).await?;
    check_eviction(&settings)
        .map_err(unfit)
        .map(|unsure| unsure.map(|why| format!("{connector}: {why}")))
}

/// Whether a Redis can be relied on where nothing is on a disk of ours: it keeps its own data, and
/// its replication stream, which is the log for whoever leads next. What cannot be known of it, or
/// is of harm only to speed, is told.
///
/// # Errors
/// When it must not be a duplicate then, or does not answer.
pub async fn check_backlog(connector: &Connector, link: &mut Link) -> io::Result<Option<String>> {
    let asked: [&[u8]; 5] =
        [b"CONFIG", b"GET", b"appendonly", b"repl-backlog-ttl", b"repl-backlog-size"];
    let settings = link.ask(&asked).await?;
    judge_backlog(&settings)
        .map_err(|why| io::Error::other(format!("{connector}: {why}")))
        .map(|unsure| unsure.map(|why| format!("{connector}: {why}")))
}

/// Has a Redis tell this connection when somebody empties it, in the order of its answers; what
/// that is for, if it does not.
///
/// # Errors
/// When it does not answer.
pub async fn track(connector: &Connector, link: &mut Link) -> io::Result<Option<String>> {
    if !matches!(connector, Connector::Tcp { .. }) {
        return Ok(None); // nobody else can
    }
    if own_version(link.hello()).is_some_and(|version| tells_within_answers(&version)) {
        return Ok(Some(format!(
            "{connector}: it does not tell when somebody empties it as it should (before version \
             7.0.5 it tells so in the middle of an answer): until that is found, up to a second, \
             reads may miss keys"
        )));
    }
    // With `OPTIN` it remembers no key of ours, and tells this alone.
    let tracked = link.ask(&[b"CLIENT", b"TRACKING", b"ON", b"OPTIN"]).await?;
    Ok((tracked != b"+OK\r\n").then(|| {
        let reply = String::from_utf8_lossy(&tracked);
        format!(
            "{connector}: it does not tell when somebody empties it ({}): until that is found, up \
             to a second, reads may miss keys; permit +client|tracking",
            reply.trim_end()
        )
    }))
}

/// Before 7.0.5 what `FLUSHALL` in a transaction invalidates is told within the transaction's
/// answer (redis/redis#11038).
fn tells_within_answers(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u64>().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next()) < (7, 0, 5)
}

/// The version of Redis that a server is for clients; `None` where it does not say one.
///
/// # Errors
/// When it does not answer.
pub async fn version(connector: &Connector, link: &mut Link) -> io::Result<Option<String>> {
    if !matches!(connector, Connector::Tcp { .. }) {
        return Ok(None);
    }
    if field(link.hello(), b"server") != Some(b"valkey") {
        return Ok(own_version(link.hello()));
    }
    let about = link.ask(&[b"INFO", b"server"]).await?;
    Ok(compatible_version(payload(&about).unwrap_or_default()))
}

/// By its answer to `HELLO`: the version of the server that it is.
fn own_version(hello: &[u8]) -> Option<String> {
    field(hello, b"version").and_then(plain_version)
}

/// By its answer to `INFO server`.
fn compatible_version(about: &[u8]) -> Option<String> {
    let mut lines = about.split(|&byte| byte == b'\n');
    lines
        .find_map(|line| line.strip_prefix(b"redis_version:"))
        .map(<[u8]>::trim_ascii)
        .and_then(plain_version)
}

/// Other words are no version: they go to clients as they are.
fn plain_version(version: &[u8]) -> Option<String> {
    let is_plain = version.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
    is_plain.then(|| String::from_utf8_lossy(version).into_owned())
}

/// How many databases clients may choose from at a Redis: none but 0 where it does not let us
/// choose.
///
/// # Errors
/// When it does not answer.
pub async fn databases(connector: &Connector, link: &mut Link) -> io::Result<u8> {
    if !matches!(connector, Connector::Tcp { .. }) {
        return Ok(1);
    }
    let settings = link.ask(&[b"CONFIG", b"GET", b"databases"]).await?;
    let count = count_databases(&settings);
    if count > 1 {
        let last = (count - 1).to_string();
        let chosen = link.ask(&[b"SELECT", last.as_bytes()]).await?;
        if chosen != b"+OK\r\n" {
            return Ok(1);
        }
        link.expect_ok(&[b"SELECT", b"0"]).await?;
    }
    Ok(count)
}

/// As many as it says, or as is usual.
fn count_databases(settings: &[u8]) -> u8 {
    let said = field(settings, b"databases").and_then(|count| str::from_utf8(count).ok());
    match said.and_then(|count| count.parse::<u64>().ok()) {
        Some(count) => u8::try_from(count).unwrap_or(DATABASES_MAX).clamp(1, DATABASES_MAX),
        None => DATABASES,
    }
}

/// Why a Redis must not be a duplicate.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum Unfit {
    /// It is older than [`VERSION_MIN`], or says no version.
    #[error("it says that its version is {0:?}, expected {VERSION_MIN} or later")]
    Version(String),
    /// It is a node of a Redis Cluster.
    #[error(
        "it is a node of a Redis Cluster (cluster-enabled yes), which refuses transactions over \
         two slots: a write and Evenkeel's note of it; expected cluster-enabled no (start it again \
         with that, on the same data; clients of Redis Cluster connect to the address of the key \
         `cluster`), or store_cluster = true if every duplicate is such a node and has all slots"
    )]
    ClusterNode,
    /// It is none where all should be.
    #[error(
        "it is no node of a Redis Cluster, and store_cluster = true says so; expected \
         cluster-enabled yes in its configuration (or no store_cluster)"
    )]
    NoClusterNode,
    /// It has no data.
    #[error("its mode is {0:?}, expected a server (a Sentinel tells where one is: name that)")]
    Mode(String),
    /// It follows another one.
    #[error(
        "its role is {0:?}: it takes writes of its master alone; expected a master (say REPLICAOF \
         NO ONE to it, or name its master)"
    )]
    Role(String),
    /// It removes keys by its own choice.
    #[error(
        "it evicts keys by its own choice (maxmemory {memory}, maxmemory-policy {policy}), and \
         would differ from the others; expected maxmemory-policy noeviction, or maxmemory 0"
    )]
    Evicts { memory: String, policy: String },
    /// It keeps nothing over its end.
    #[error(
        "it keeps no file of what was written (appendonly {0}), and with log = \"memory\" nobody \
         else does; expected appendonly yes (or log = \"disk\")"
    )]
    Forgets(String),
    /// It drops its stream while nobody follows it.
    #[error(
        "it drops its replication backlog {0} s after the last replica has left, and with \
         log = \"memory\" that is the log for who leads next; expected repl-backlog-ttl 0"
    )]
    DropsBacklog(String),
}

fn check_version(hello: &[u8]) -> Result<(), Unfit> {
    let version = field(hello, b"version").map(String::from_utf8_lossy).unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    if major.is_some_and(|major| major >= VERSION_MIN) {
        return Ok(());
    }
    Err(Unfit::Version(version.into_owned()))
}

/// By its answer to `HELLO`; who does not say is taken for a master without a cluster.
fn check_role(hello: &[u8], is_cluster: bool) -> Result<(), Unfit> {
    let other_than = |name: &[u8], expected: &[u8]| {
        let said = field(hello, name).filter(|&said| said != expected)?;
        Some(String::from_utf8_lossy(said).into_owned())
    };
    match (other_than(b"mode", b"standalone"), other_than(b"role", b"master")) {
        (Some(mode), _) if mode == "cluster" && !is_cluster => Err(Unfit::ClusterNode),
        (Some(mode), _) if mode != "cluster" => Err(Unfit::Mode(mode)),
        (None, _) if is_cluster => Err(Unfit::NoClusterNode),
        (_, Some(role)) => Err(Unfit::Role(role)),
        (_, None) => Ok(()),
    }
}

/// `Some` when it does not say.
fn check_eviction(settings: &[u8]) -> Result<Option<String>, Unfit> {
    let value = |name: &[u8]| field(settings, name).map(String::from_utf8_lossy);
    let (Some(memory), Some(policy)) = (value(b"maxmemory"), value(b"maxmemory-policy")) else {
        let came: String = String::from_utf8_lossy(settings).trim_end().chars().take(100).collect();
        return Ok(Some(format!(
            "it does not tell its maxmemory-policy ({came:?}); make sure that it is noeviction: a \
             server that evicts keys differs from the others"
        )));
    };
    if memory == "0" || policy == "noeviction" {
        return Ok(None);
    }
    Err(Unfit::Evicts { memory: memory.into_owned(), policy: policy.into_owned() })
}

/// Less is soon overwritten: who lags is filled from another one instead.
const BACKLOG_BYTES_MIN: u64 = 64 << 20;

/// `Some` when it does not say, or keeps little.
fn judge_backlog(settings: &[u8]) -> Result<Option<String>, Unfit> {
    let value = |name: &[u8]| field(settings, name).map(String::from_utf8_lossy);
    let said = (value(b"appendonly"), value(b"repl-backlog-ttl"), value(b"repl-backlog-size"));
    let (Some(appends), Some(ttl), Some(size)) = said else {
        return Ok(Some(
            "it does not tell its settings; with log = \"memory\" it needs appendonly yes, \
             repl-backlog-ttl 0 and repl-backlog-size 64mb or more"
                .to_owned(),
        ));
    };
    if appends != "yes" {
        return Err(Unfit::Forgets(appends.into_owned()));
    }
    if ttl != "0" {
        return Err(Unfit::DropsBacklog(ttl.into_owned()));
    }
    let is_long = size.parse::<u64>().is_ok_and(|size| size >= BACKLOG_BYTES_MIN);
    Ok((!is_long).then(|| {
        format!(
            "its repl-backlog-size is {size} bytes; with less than 64mb a duplicate that lags when \
             another process takes over is soon filled anew"
        )
    }))
}

/// What a field of an answer says.
fn field<'a>(map: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    reply::field(map, name).and_then(payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_stores::resp::encode;

    fn array(words: &[&str]) -> Vec<u8> {
        let mut out = Vec::new();
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        encode::command(&mut out, &words);
        out
    }

    #[test]
    fn who_evicts_is_not_taken() {
        let said = |memory, policy| {
            check_eviction(&array(&["maxmemory", memory, "maxmemory-policy", policy]))
        };
        assert_eq!(said("0", "allkeys-lru"), Ok(None));
        assert_eq!(said("1000", "noeviction"), Ok(None));
        assert!(said("1000", "volatile-ttl").unwrap_err().to_string().contains("volatile-ttl"));
        let forbidden = check_eviction(b"-NOPERM no\r\n").unwrap().unwrap();
        assert!(forbidden.contains("NOPERM"), "{forbidden}");
    }

    #[test]
    fn who_keeps_no_log_for_us_is_not_taken() {
        let said = |appends, ttl, size| {
            let names = ["appendonly", "repl-backlog-ttl", "repl-backlog-size"];
            judge_backlog(&array(&[names[0], appends, names[1], ttl, names[2], size]))
        };
        assert_eq!(said("yes", "0", "67108864"), Ok(None));
        assert!(said("no", "0", "67108864").unwrap_err().to_string().contains("appendonly yes"));
        let drops = said("yes", "3600", "67108864").unwrap_err().to_string();
        assert!(drops.contains("3600 s") && drops.contains("repl-backlog-ttl 0"), "{drops}");
        assert!(said("yes", "0", "1048576").unwrap().unwrap().contains("1048576"));
        let forbidden = judge_backlog(b"-NOPERM no\r\n").unwrap().unwrap();
        assert!(forbidden.contains("does not tell"), "{forbidden}");
    }

    #[test]
    fn a_server_has_as_many_databases_as_it_says() {
        for (said, expected) in
            [("16", 16), ("1", 1), ("64", 64), ("0", 1), ("128", 128), ("2147483647", 128)]
        {
            assert_eq!(count_databases(&array(&["databases", said])), expected, "{said}");
        }
        assert_eq!(count_databases(b"-NOPERM no\r\n"), 16, "then it is tried");
    }

    #[test]
    fn who_is_too_old_or_does_not_say_is_not_taken() {
        for (version, is_taken) in [("7.0.15", true), ("8.1", true), ("6.2.14", false), ("", false)]
        {
            let hello = array(&["server", "redis", "version", version]);
            assert_eq!(check_version(&hello).is_ok(), is_taken, "{version}");
        }
        assert!(check_version(b"%0\r\n").is_err());
    }

    #[test]
    fn nodes_of_clusters_sentinels_and_replicas_are_not_taken() {
        let said = |mode, role| {
            let hello = array(&["server", "redis", "mode", mode, "role", role, "modules", ""]);
            check_role(&hello, false).map_err(|why| why.to_string())
        };
        assert_eq!(said("standalone", "master"), Ok(()));
        for (mode, role, expected) in [
            ("cluster", "master", "expected cluster-enabled no"),
            ("cluster", "replica", "expected cluster-enabled no"),
            ("sentinel", "sentinel", "\"sentinel\", expected a server"),
            ("standalone", "replica", "\"replica\": it takes writes of its master"),
        ] {
            let why = said(mode, role).unwrap_err();
            assert!(why.contains(expected), "{mode} {role}: {why}");
        }
        assert_eq!(check_role(&array(&["version", "7.0.0"]), false), Ok(()), "it says nothing");
    }

    #[test]
    fn where_all_are_nodes_of_clusters_others_are_not_taken() {
        let said = |mode, role| {
            let hello = array(&["server", "redis", "mode", mode, "role", role]);
            check_role(&hello, true).map_err(|why| why.to_string())
        };
        assert_eq!(said("cluster", "master"), Ok(()));
        for (mode, role, expected) in [
            ("standalone", "master", "expected cluster-enabled yes"),
            ("cluster", "replica", "\"replica\": it takes writes of its master"),
            ("sentinel", "sentinel", "\"sentinel\", expected a server"),
        ] {
            let why = said(mode, role).unwrap_err();
            assert!(why.contains(expected), "{mode} {role}: {why}");
        }
        assert!(check_role(&array(&["version", "7.0.0"]), true).is_err(), "it says nothing");
    }

    /// As Valkey 8.1 answers.
    #[test]
    fn valkey_is_the_redis_that_it_says_to_be_compatible_with() {
        let hello =
            array(&["server", "valkey", "version", "8.1.8", "proto", "3", "role", "master"]);
        assert_eq!((check_version(&hello), check_role(&hello, false)), (Ok(()), Ok(())));
        assert_eq!(own_version(&hello).as_deref(), Some("8.1.8"));
        let about = b"# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\n\
                      valkey_version:8.1.8\r\n";
        assert_eq!(compatible_version(about).as_deref(), Some("7.2.4"));
        assert_eq!(compatible_version(b"redis_version:7.2\x01\r\n"), None);
        assert_eq!(compatible_version(b"NOPERM"), None);
    }

    #[test]
    fn who_tells_within_answers_is_known_by_its_version() {
        for (version, expected) in
            [("7.0.4", true), ("7.0", true), ("7.0.5", false), ("7.2.4", false), ("8.0", false)]
        {
            assert_eq!(tells_within_answers(version), expected, "{version}");
        }
    }
}
