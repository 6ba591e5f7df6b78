//! The text of `INFO`: what several servers say as if it were one.
//!
//! The text of one server is taken as it is, so that it has every section and line that its version
//! has; some lines are ours (who we are), some are added up over the servers (memory, keys), and
//! those that tell of the servers' own files and replication are left out. Clients parse it:
//! `redis_version`, `loading`, `role`, `maxmemory_policy` and the line of `db0`.

use std::collections::{BTreeMap, BTreeSet};

/// Where no server answers: what clients look for.
pub const TEMPLATE: &str = "# Server\r\nredis_version:7.0.0\r\nredis_mode:standalone\r\n\
    process_id:0\r\nrun_id:0\r\ntcp_port:0\r\nuptime_in_seconds:0\r\nuptime_in_days:0\r\n\r\n\
    # Clients\r\nconnected_clients:0\r\nmaxclients:0\r\nblocked_clients:0\r\n\r\n\
    # Persistence\r\nloading:0\r\n\r\n\
    # Replication\r\nrole:master\r\nconnected_slaves:0\r\nmaster_repl_offset:0\r\n\r\n\
    # Cluster\r\ncluster_enabled:0\r\n\r\n# Keyspace\r\n";

/// Lines that are about one server and nobody else's affair.
const HIDDEN: [&str; 8] = [
    "executable",
    "config_file",
    "master_host",
    "master_port",
    "slave0",
    "slave1",
    "slave2",
    "master_replid2",
];

/// What lines of errors that clients were told begin with: `errorstat_ERR:count=3`.
const ERROR: &str = "errorstat_";

/// Lines that are added up.
const SUMS: [&str; 8] = [
    "used_memory",
    "used_memory_rss",
    "used_memory_dataset",
    "maxmemory",
    "expired_keys",
    "evicted_keys",
    "keyspace_hits",
    "total_error_replies",
];

/// The section `# Server` is `server`, and so on.
pub fn has_section(text: &str, name: &str) -> bool {
    text.lines().filter_map(|line| line.strip_prefix("# ")).any(|it| it.eq_ignore_ascii_case(name))
}

/// Only these sections of a text; all where no name is given, or one that stands for all.
pub fn sections(text: &str, names: &[String]) -> String {
    if is_everything(names) {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut is_kept = false;
    for line in text.split_inclusive("\r\n") {
        if let Some(section) = line.trim_end().strip_prefix("# ") {
            is_kept = names.iter().any(|name| name.eq_ignore_ascii_case(section));
        }
        if is_kept {
            kept.push_str(line);
        }
    }
    kept
}

/// Whether these names of sections stand for all that are usual.
pub fn is_everything(names: &[String]) -> bool {
    let is_word = |name: &String| {
        ["default", "all", "everything"].iter().any(|word| name.eq_ignore_ascii_case(word))
    };
    names.is_empty() || names.iter().any(is_word)
}

/// One text of those of several servers, each of another part of the keys. `own` are lines that
/// stand in place of theirs; `reserved` is how many keys of each server are not its clients'.
pub fn merge(texts: &[&str], own: &[(&str, String)], reserved: u64) -> String {
    let Some((first, others)) = texts.split_first() else { return String::new() };
    let mut out = String::with_capacity(first.len());
    for line in first.split("\r\n") {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        if HIDDEN.contains(&name) || is_database(name) || name.starts_with(ERROR) {
            continue;
        }
        if let Some((_, value)) = own.iter().find(|(own, _)| *own == name) {
            out.push_str(&format!("{name}:{value}\r\n"));
        } else if SUMS.contains(&name) && !others.is_empty() {
            let sum = others
                .iter()
                .fold(number(value), |sum, text| sum.saturating_add(field(text, name)));
            out.push_str(&format!("{name}:{sum}\r\n"));
        } else {
            out.push_str(line);
            out.push_str("\r\n");
        }
        if line == "# Keyspace" {
            out.push_str(&keyspace(texts, reserved));
        } else if line == "# Errorstats" {
            out.push_str(&errors(texts));
        }
    }
    let length = out.trim_end().len();
    out.truncate(length);
    out.push_str(if out.is_empty() { "" } else { "\r\n" });
    out
}

/// A text with these lines of errors in place of those of a server.
pub fn with_errors(text: &str, errors: &str) -> String {
    let mut out = String::with_capacity(text.len() + errors.len());
    for line in text.split_inclusive("\r\n").filter(|line| !line.starts_with(ERROR)) {
        out.push_str(line);
        if line.trim_end() == "# Errorstats" {
            out.push_str(errors);
        }
    }
    out
}

/// The line of each error, by its first word.
fn errors(texts: &[&str]) -> String {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let lines = texts.iter().flat_map(|text| text.lines()).filter(|line| line.starts_with(ERROR));
    for (name, count) in lines.filter_map(|line| line.split_once(":count=")) {
        let sum = counts.entry(name).or_default();
        *sum = sum.saturating_add(number(count));
    }
    counts.into_iter().map(|(name, count)| format!("{name}:count={count}\r\n")).collect()
}

/// The line of each database: keys, those of them with a deadline, and how long they have on
/// average.
fn keyspace(texts: &[&str], reserved: u64) -> String {
    let names = texts.iter().flat_map(|text| text.lines()).filter_map(|line| line.split_once(':'));
    let numbers = names.filter(|(name, _)| is_database(name)).map(|(name, _)| number(&name[2..]));
    let databases: BTreeSet<u64> = numbers.collect();
    let reserved = |database| if database == 0 { reserved } else { 0 };
    databases.into_iter().map(|it| keyspace_of(texts, it, reserved(it))).collect()
}

fn keyspace_of(texts: &[&str], database: u64, reserved: u64) -> String {
    let (mut keys, mut expires, mut weighted) = (0_u64, 0_u64, 0_u128);
    let name = format!("db{database}:");
    for text in texts {
        let line = text.lines().find_map(|line| line.strip_prefix(&*name)).unwrap_or_default();
        let part = |name: &str| {
            let parts = line.split(',').filter_map(|part| part.split_once('='));
            number(parts.clone().find(|(found, _)| *found == name).map_or("0", |(_, value)| value))
        };
        keys = keys.saturating_add(part("keys").saturating_sub(reserved));
        expires = expires.saturating_add(part("expires"));
        weighted += u128::from(part("expires")) * u128::from(part("avg_ttl"));
    }
    if keys == 0 {
        return String::new(); // as Redis, which tells of no empty database
    }
    let average = weighted.checked_div(expires.into()).unwrap_or_default();
    format!("{name}keys={keys},expires={expires},avg_ttl={average}\r\n")
}

fn is_database(name: &str) -> bool {
    let digits = name.strip_prefix("db").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(text: &str) -> u64 {
    text.trim().parse().unwrap_or_default()
}

fn field(text: &str, name: &str) -> u64 {
    let value =
        |line: &str| line.strip_prefix(name).and_then(|rest| rest.strip_prefix(':')).map(number);
    text.lines().find_map(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Server\r\nredis_version:7.0.15\r\nexecutable:/usr/bin/x\r\n\r\n\
        # Memory\r\nused_memory:100\r\nused_memory_human:100B\r\n\r\n\
        # Keyspace\r\ndb0:keys=5,expires=2,avg_ttl=300\r\ndb1:keys=9,expires=0,avg_ttl=0\r\n";

    #[test]
    fn several_servers_are_as_one() {
        let other = TEXT.replace("100\r\n", "50\r\n").replace("expires=2", "expires=1");
        let own = [("redis_version", "7.0.1".to_owned())];
        let merged = merge(&[TEXT, &other], &own, 2);
        assert_eq!(
            merged,
            "# Server\r\nredis_version:7.0.1\r\n\r\n\
             # Memory\r\nused_memory:150\r\nused_memory_human:100B\r\n\r\n\
             # Keyspace\r\ndb0:keys=6,expires=3,avg_ttl=300\r\n\
             db1:keys=18,expires=0,avg_ttl=0\r\n"
        );
        let alone = merge(&[TEXT], &[], 5);
        assert!(alone.ends_with("# Keyspace\r\ndb1:keys=9,expires=0,avg_ttl=0\r\n"));
        assert!(alone.contains("used_memory:100\r\n"));
        assert_eq!((merge(&[], &[], 0), merge(&[""], &[], 0)), Default::default());
    }

    #[test]
    fn sections_are_taken_by_their_names() {
        let names = |all: &[&str]| all.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        assert_eq!(sections(TEXT, &[]), TEXT);
        assert_eq!(sections(TEXT, &names(&["nothing", "ALL"])), TEXT);
        let memory = sections(TEXT, &names(&["MEMORY"]));
        assert!(memory.starts_with("# Memory") && !memory.contains("redis_version"));
        assert_eq!(sections(TEXT, &names(&["nothing"])), "");
        assert!(has_section(TEXT, "keyspace") && !has_section(TEXT, "stats"));
    }

    #[test]
    fn errors_are_those_that_clients_were_told() {
        let text = "# Errorstats\r\nerrorstat_NOPERM:count=7\r\n\r\n# Cluster\r\nx:0\r\n";
        let told = with_errors(text, "errorstat_ERR:count=1\r\n");
        assert_eq!(told, "# Errorstats\r\nerrorstat_ERR:count=1\r\n\r\n# Cluster\r\nx:0\r\n");
        assert_eq!(with_errors("# Cluster\r\n", "errorstat_ERR:count=1\r\n"), "# Cluster\r\n");
    }

    #[test]
    fn errors_of_several_servers_are_added_up_by_their_words() {
        let text = |errors: &str| {
            format!("# Stats\r\ntotal_error_replies:3\r\n\r\n# Errorstats\r\n{errors}\r\n# X\r\n")
        };
        let first = text("errorstat_ERR:count=2\r\nerrorstat_OOM:count=1\r\n");
        let second = text("errorstat_ERR:count=40\r\nerrorstat_NOPERM:count=7\r\n");
        let merged = merge(&[&first, &second, &text("")], &[], 0);
        assert_eq!(
            merged,
            "# Stats\r\ntotal_error_replies:9\r\n\r\n# Errorstats\r\n\
             errorstat_ERR:count=42\r\nerrorstat_NOPERM:count=7\r\nerrorstat_OOM:count=1\r\n\
             \r\n# X\r\n"
        );
    }

    #[test]
    fn nonsense_is_no_number() {
        let text = "# Keyspace\r\ndb0:keys=x,expires=-1\r\n\r\n\
                    # Memory\r\nused_memory:99999999999999999999\r\n";
        let merged = merge(&[text, text], &[], 2);
        assert!(merged.contains("used_memory:0\r\n") && !merged.contains("db0"), "{merged}");
    }
}
