//! Whether a Redis can be a duplicate: it must know what is sent to it, and forget nothing unasked.
//!
//! A server that evicts keys when its memory is full chooses them by chance, so it would differ
//! from the others without a word. One with `noeviction` refuses the write instead (`OOM`), is
//! dropped, and comes back equal. Version 7 is the first with `XADD … ms-*`, `PEXPIRETIME` and
//! other forms that writes are given here.
//!
//! It is asked when it is connected to; who sets `maxmemory-policy` later is not noticed until
//! then.

use std::io;

use crate::connect::Link;
use evenkeel_duplicates_config::Connector;
use evenkeel_stores::resp::databases::{DATABASES, DATABASES_MAX};
use evenkeel_stores::resp::reply::{elements, payload};

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
    check_version(link.hello()).map_err(unfit)?;
    let settings = link.ask(&[b"CONFIG", b"GET", b"maxmemory", b"maxmemory-policy"]).await?;
    check_eviction(&settings)
        .map_err(unfit)
        .map(|unsure| unsure.map(|why| format!("{connector}: {why}")))
}

/// The version that a Redis says to be.
pub fn version(connector: &Connector, link: &Link) -> Option<String> {
    let is_redis = matches!(connector, Connector::Tcp { .. });
    let version = field(link.hello(), b"version").filter(|_| is_redis)?;
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
    /// It removes keys by its own choice.
    #[error(
        "it evicts keys by its own choice (maxmemory {memory}, maxmemory-policy {policy}), and \
         would differ from the others; expected maxmemory-policy noeviction, or maxmemory 0"
    )]
    Evicts { memory: String, policy: String },
}

fn check_version(hello: &[u8]) -> Result<(), Unfit> {
    let version = field(hello, b"version").map(String::from_utf8_lossy).unwrap_or_default();
    let major = version.split('.').next().and_then(|major| major.parse::<u64>().ok());
    if major.is_some_and(|major| major >= VERSION_MIN) {
        return Ok(());
    }
    Err(Unfit::Version(version.into_owned()))
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

/// A field of a map, or of an array of names and values in turn.
fn field<'a>(map: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let mut elements = elements(map);
    while let (Some(found), Some(value)) = (elements.next(), elements.next()) {
        if payload(found) == Some(name) {
            return payload(value);
        }
    }
    None
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
}
