//! `CONFIG`: which settings of the servers clients may see, and which they may change.
//!
//! A client of several equal servers may change what is safe and the same at all of them: how
//! values are kept in memory, which events are told, what is slow. What decides about data
//! (`maxmemory-policy`), files, addresses and passwords belongs to whoever runs the servers.

use std::time::Duration;

use crate::resp::commands::integer;
use crate::resp::encode;
use crate::resp::reply::{elements, payload};

/// Which key events are told.
pub const EVENTS: &[u8] = b"notify-keyspace-events";

/// For how long a script may run, in ms, before others are told `BUSY`.
pub const BUSY_AFTER: &[u8] = b"busy-reply-threshold";

/// A setting's name, where it has two.
pub fn own_name(name: Vec<u8>) -> Vec<u8> {
    if name == b"lua-time-limit" { BUSY_AFTER.to_vec() } else { name }
}

/// Settings that may be changed.
const CHANGEABLE: [&str; 24] = [
    "busy-reply-threshold",
    "hash-max-listpack-entries",
    "hash-max-listpack-value",
    "hash-max-ziplist-entries",
    "hash-max-ziplist-value",
    "latency-monitor-threshold",
    "latency-tracking",
    "latency-tracking-info-percentiles",
    "list-compress-depth",
    "list-max-listpack-size",
    "list-max-ziplist-size",
    "lua-time-limit",
    "notify-keyspace-events",
    "set-max-intset-entries",
    "set-max-listpack-entries",
    "set-max-listpack-value",
    "slowlog-log-slower-than",
    "slowlog-max-len",
    "stream-node-max-bytes",
    "stream-node-max-entries",
    "zset-max-listpack-entries",
    "zset-max-listpack-value",
    "zset-max-ziplist-entries",
    "zset-max-ziplist-value",
];

/// Settings that Redis 7.0 does not change while it runs.
const IMMUTABLE: [&str; 24] = [
    "aclfile",
    "always-show-logo",
    "aof_rewrite_cpulist",
    "appenddirname",
    "appendfilename",
    "bgsave_cpulist",
    "bio_cpulist",
    "cluster-config-file",
    "cluster-enabled",
    "daemonize",
    "databases",
    "disable-thp",
    "io-threads",
    "io-threads-do-reads",
    "logfile",
    "pidfile",
    "rdbchecksum",
    "server_cpulist",
    "supervised",
    "syslog-enabled",
    "syslog-facility",
    "syslog-ident",
    "tcp-backlog",
    "unixsocket",
];

/// Whether Redis does not change this setting while it runs either.
pub fn is_immutable(name: &[u8]) -> bool {
    IMMUTABLE.iter().any(|known| name.eq_ignore_ascii_case(known.as_bytes()))
}

/// Settings whose values nobody is told: who knew them could pass us by.
const SECRET: [&str; 5] =
    ["requirepass", "masterauth", "masteruser", "tls-key-file-pass", "tls-client-key-file-pass"];

/// Whether clients may change this setting.
pub fn is_changeable(name: &[u8]) -> bool {
    let is_it = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    CHANGEABLE.iter().any(is_it)
}

/// How many keys are noted for clients that track them.
pub const TRACKED_KEYS: &[u8] = b"tracking-table-max-keys";

/// Whether a setting is one of who stands before the servers, whose clients they are: `timeout`,
/// and [`TRACKED_KEYS`].
pub fn is_own(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"timeout") || name.eq_ignore_ascii_case(TRACKED_KEYS)
}

/// Whether such a setting may have this value.
///
/// # Errors
/// Why not, in Redis's words.
pub fn check_own(name: &[u8], value: &[u8]) -> Result<(), &'static str> {
    match name.eq_ignore_ascii_case(TRACKED_KEYS) {
        true => keys_max(value).map(drop),
        false => idle_max(value).map(drop),
    }
}

/// A number of keys; 0 = any.
///
/// # Errors
/// Why it is none, in Redis's words.
pub fn keys_max(value: &[u8]) -> Result<usize, &'static str> {
    let number = integer(value).ok_or("argument couldn't be parsed into an integer")?;
    usize::try_from(number)
        .map_err(|_| "argument must be between 0 and 9223372036854775807 inclusive")
}

/// How long a connection may idle, as `timeout` says it; `None` = for ever.
///
/// # Errors
/// Why it says nothing, in Redis's words.
pub fn idle_max(value: &[u8]) -> Result<Option<Duration>, &'static str> {
    let seconds = integer(value).ok_or("argument couldn't be parsed into an integer")?;
    let seconds = u32::try_from(seconds).ok().filter(|seconds| i32::try_from(*seconds).is_ok());
    let seconds = seconds.ok_or("argument must be between 0 and 2147483647 inclusive")?;
    Ok((seconds > 0).then(|| Duration::from_secs(seconds.into())))
}

/// Writes the answer to `CONFIG GET` for a client, in RESP3: without secrets, and with our own
/// values in place of those of one server.
///
/// # Panics
/// When this is no whole reply that [`crate::resp::reply::ReplyScanner`] found.
pub fn shown(reply: &[u8], own: &[(&str, String)], out: &mut Vec<u8>) {
    let all: Vec<&[u8]> = elements(reply).collect();
    encode::counted(out, b'%', all.len() / 2);
    for pair in all.chunks_exact(2) {
        let name = payload(pair[0]).unwrap_or_default();
        let is_name = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        out.extend_from_slice(pair[0]);
        if SECRET.iter().any(|secret| is_name(secret)) {
            encode::bulk(out, b"");
        } else if let Some((_, value)) = own.iter().find(|(known, _)| is_name(known)) {
            encode::bulk(out, value.as_bytes());
        } else {
            out.extend_from_slice(pair[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_about_data_or_servers_is_not_for_clients() {
        for name in
            ["hash-max-listpack-entries", "NOTIFY-KEYSPACE-EVENTS", "zset-max-ziplist-value"]
        {
            assert!(is_changeable(name.as_bytes()), "{name}");
        }
        for name in
            ["maxmemory", "maxmemory-policy", "dir", "requirepass", "save", "appendonly", ""]
        {
            assert!(!is_changeable(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn secrets_are_not_told() {
        let mut reply = b"%3\r\n".to_vec();
        for text in ["requirepass", "secret", "port", "7000", "maxmemory", "0"] {
            encode::bulk(&mut reply, text.as_bytes());
        }
        let mut out = Vec::new();
        shown(&reply, &[("port", "6380".to_owned())], &mut out);
        let mut expected = b"%3\r\n".to_vec();
        for text in ["requirepass", "", "port", "6380", "maxmemory", "0"] {
            encode::bulk(&mut expected, text.as_bytes());
        }
        assert_eq!(out, expected);
        out.clear();
        shown(b"%0\r\n", &[], &mut out);
        assert_eq!(out, b"%0\r\n");
    }

    #[test]
    fn a_timeout_is_read_as_redis_reads_it() {
        assert!(is_own(b"Timeout") && !is_own(b"tcp-keepalive"));
        assert_eq!(idle_max(b"0"), Ok(None));
        assert_eq!(idle_max(b"2147483647"), Ok(Some(Duration::from_secs(2_147_483_647))));
        for wrong in ["x", "", "1.5", "-1", "2147483648", "99999999999"] {
            assert!(idle_max(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
