//! What a person writes to have a service profiled.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_geo::curve::OBJECTIVE_MAX;
use evenkeel_geo::epoch::StableHash;
use evenkeel_settings::profile::SERVERS_MAX;
use evenkeel_settings::{Mismatch, Node, Problems, Reading, Setting, Table, Value};
use http::Method;

use super::cassandra;
use super::search::SearchConfig;
use crate::{CassandraLoad, Keys, LATENCY_MAX, LoadError, Target};

const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

const METHOD: &str = "a method such as GET";
/// Write shares of one profile at most.
pub const WRITE_SHARES_MAX: usize = 8;
/// The lowest and the greatest load that a profile may begin or end with, in requests per second.
const RATES: std::ops::RangeInclusive<f64> = 0.01..=1_000_000.0;

/// What is profiled, and how.
#[derive(Clone, Debug)]
pub struct ProfileConfig {
    /// What the service is called.
    pub name: String,
    /// How many servers it has.
    pub servers: NonZeroU32,
    /// The objective that curves are shown for.
    pub objective: Option<Duration>,
    /// What is asked for.
    pub requests: Requests,
    /// How long, and within which bounds, each load is offered.
    pub steps: StepConfig,
    /// The write shares, each profiled by itself, in this order.
    pub write_shares: Vec<Probability>,
    /// Which loads are tried.
    pub search: SearchConfig,
    /// The seed of arrivals and keys; every step has its own.
    pub seed: u64,
    /// A hash of all that decides what is measured.
    pub hash: u64,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub enum Requests {
    /// Requests over HTTP.
    Http(Box<HttpRequests>),
    /// Records of a table of Cassandra; the share of writes, the arrivals and the bounds are those
    /// of each step.
    Cassandra(Box<CassandraLoad>),
}

/// Requests over HTTP.
#[derive(Clone, Debug)]
pub struct HttpRequests {
    /// Reads.
    pub read: Target,
    /// Writes, on the same host.
    pub write: Option<Target>,
}

/// How one load is offered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StepConfig {
    /// How long it is measured; longer where that would be fewer than `requests_min` requests.
    pub duration: Duration,
    /// How long it is offered before that.
    pub warm_up: Duration,
    /// How long after it was due a request may be answered.
    pub timeout: Duration,
    /// The most connections.
    pub connections_max: usize,
    /// The requests that a step measures at least, on average.
    pub requests_min: u32,
    /// A larger share of unanswered requests is saturation.
    pub unanswered_max: f64,
}

impl ProfileConfig {
    /// Loads a configuration, with `path=value` assignments on top of the file.
    ///
    /// # Errors
    /// Every problem at once, each with its place.
    pub fn load(path: &Path, assignments: &[String]) -> Result<Self, Problems> {
        Self::read(&Node::load_with(path, assignments)?)
    }

    /// Reads a configuration.
    ///
    /// # Errors
    /// Every problem at once, each with its place.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        let hash = hash(node);
        node.read(|root| config(root, hash))
    }
}

/// Of everything but what a profile is called and judged by: those may change later.
fn hash(node: &Node) -> u64 {
    let mut node = node.clone();
    if let Value::Table(entries) = &mut node.value {
        entries.remove("name");
        entries.remove("objective");
    }
    let text = serde_json::to_string(&node).expect("a tree of settings is plain data");
    let mut hash = StableHash::default();
    hash.bytes(text.as_bytes());
    hash.finish()
}

fn config(root: &mut Table<'_>, hash: u64) -> ProfileConfig {
    let is_name = |name: &String| {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=64).contains(&name.len()) && name.bytes().all(usual) && !name.starts_with('.')
    };
    let name = root.key("name").text();
    let name = name.check("a name of up to 64 letters, digits, -, _ and .", is_name).required();
    let servers = root.key("servers").integer().between(1..=SERVERS_MAX).required();
    let objective = root.key("objective").duration().between(MS..=OBJECTIVE_MAX).optional();
    let is_cassandra = root.key("cassandra").value().is_some();
    let steps = root.key("steps").section(move |table| steps(table, is_cassandra));
    let (write_shares, search) = root.key("loads").section(loads);
    let seed = root.key("seed").integer().or(1);
    let requests = if is_cassandra { cassandra(root, &steps) } else { http(root, &write_shares) };
    ProfileConfig {
        name,
        servers: NonZeroU32::new(servers).unwrap_or(NonZeroU32::MIN),
        objective,
        requests,
        steps,
        write_shares,
        search,
        seed,
        hash,
    }
}

fn http(root: &mut Table<'_>, write_shares: &[Probability]) -> Requests {
    let keys = root.key("keys").section(keys);
    let read = root.key("read").table(move |table| target(table, keys, "GET")).required();
    let write =
        root.key("write").table(move |table| target(table, keys, "POST")).optional().flatten();
    if root.is_sound() {
        check_writes(root, read.as_ref(), write.as_ref(), write_shares);
    }
    // Without a sound target there is a problem, and nobody sees this one.
    let nowhere = || Target::new(["http://127.0.0.1/"]).expect("that is a URL");
    Requests::Http(Box::new(HttpRequests { read: read.unwrap_or_else(nowhere), write }))
}

fn cassandra(root: &mut Table<'_>, steps: &StepConfig) -> Requests {
    for key in ["read", "write", "keys"] {
        if root.key(key).value().is_some() {
            let came = format!("[{key}] beside [cassandra]");
            root.problem(key, Mismatch::new(came, "either requests over HTTP or [cassandra]"));
        }
    }
    let mut load = root.key("cassandra").table(cassandra::load).required();
    load.plan.timeout = steps.timeout;
    Requests::Cassandra(Box::new(load))
}

fn check_writes(
    root: &mut Table<'_>,
    read: Option<&Target>,
    write: Option<&Target>,
    shares: &[Probability],
) {
    let writes = shares.iter().any(|share| share.value() > 0.0);
    match (read, write) {
        (Some(read), Some(write)) if read.authority() != write.authority() => {
            let expected = format!("the same host as the reads, {}", read.authority());
            let wrong = Mismatch::new(write.authority(), expected);
            root.problem("write", wrong.with_hint("put a proxy in front of several hosts"));
        }
        (_, None) if writes => {
            let expected = "a [write] table, because loads.write_shares asks for writes";
            root.problem("write", Mismatch::new("nothing", expected));
        }
        (_, Some(_)) if !writes => {
            let hint = "add a share such as \"10%\" to loads.write_shares";
            let expected = "a write share above 0 to use it in";
            root.problem("write", Mismatch::new("a [write] table", expected).with_hint(hint));
        }
        _ => {}
    }
}

fn keys(table: &mut Table<'_>) -> Keys {
    Keys {
        count: table.key("count").integer().between(1..=1_000_000_000).or(1),
        skew: table.key("skew").number().between(0.0..=10.0).or(0.0),
    }
}

/// `None` after a problem.
fn target(table: &mut Table<'_>, keys: Keys, usual_method: &str) -> Option<Target> {
    let urls = texts(table.key("urls"))
        .check("a list of one or more URLs", |urls| !urls.is_empty())
        .required();
    let method = table.key("method").parsed(METHOD, Method::GET, |text| {
        let problem = |_| Mismatch::new(format!("{text:?}"), METHOD);
        text.parse::<Method>().map_err(problem)
    });
    let usual = usual_method.parse().expect("a method is one of two");
    let method = method.or(usual);
    let headers = texts(table.key("headers")).or(Vec::new());
    let body = table.key("body").text().optional();
    if !table.is_sound() {
        return None;
    }
    let target = Target::new(urls.iter().map(String::as_str));
    let mut target = reported(table, "urls", target)?;
    target.method = method;
    target.keys = keys;
    for header in &headers {
        let added = target.header(header);
        reported(table, "headers", added)?;
    }
    if let Some(body) = &body {
        target.body(body);
    }
    Some(target)
}

fn texts(setting: Setting<'_>) -> Reading<'_, Vec<String>> {
    setting.list(|item| item.text().required())
}

/// Puts an error of the load generator on the list.
fn reported<T>(table: &mut Table<'_>, key: &str, result: Result<T, LoadError>) -> Option<T> {
    let what = match result {
        Ok(value) => return Some(value),
        Err(LoadError::Setting { came, expected, .. }) => Mismatch::new(came, expected),
        Err(error) => Mismatch::new(error.to_string(), "what the load generator accepts"),
    };
    table.problem(key, what);
    None
}

fn steps(table: &mut Table<'_>, is_cassandra: bool) -> StepConfig {
    let connections = if is_cassandra {
        refuse_connections(table);
        None
    } else {
        table.key("connections").integer().between(1..=50_000_u32).optional()
    };
    StepConfig {
        duration: table.key("duration").duration().between(S..=3_600 * S).or(10 * S),
        warm_up: table.key("warm_up").duration().between(Duration::ZERO..=600 * S).or(3 * S),
        timeout: table.key("timeout").duration().between(10 * MS..=LATENCY_MAX).or(5 * S),
        connections_max: connections.unwrap_or(1_000) as usize,
        requests_min: table.key("requests_min").integer().between(20..=1_000_000).or(100),
        unanswered_max: table.key("unanswered_max").probability().between(0.0..=0.5).or(0.01),
    }
}

/// Over HTTP a request has a connection to itself; Cassandra's share a few, which are not opened
/// as a step needs them.
fn refuse_connections(table: &mut Table<'_>) {
    if table.key("connections").value().is_some() {
        let expected = "no such key: it is for HTTP";
        let wrong = Mismatch::new("connections beside [cassandra]", expected);
        let hint = "use cassandra.connections";
        table.problem("connections", wrong.with_hint(hint));
    }
}

fn loads(table: &mut Table<'_>) -> (Vec<Probability>, SearchConfig) {
    let shares = table.key("write_shares").list(|item| item.probability().required());
    let count = |shares: &Vec<f64>| (1..=WRITE_SHARES_MAX).contains(&shares.len());
    let shares = shares.check("a list of 1 to 8 shares", count).or(vec![0.0]);
    let search = SearchConfig {
        rate_min: rate_or_auto(table, "rate_min"),
        rate_max: rate_or_auto(table, "rate_max"),
        per_decade: table.key("per_decade").integer().between(1..=20).or(5),
        precision: table.key("precision").probability().between(0.005..=0.5).or(0.03),
    };
    if table.is_sound() {
        if let Some(twice) = (1..shares.len()).find(|&at| shares[..at].contains(&shares[at])) {
            let came = format!("the share {} twice", shares[twice]);
            table.problem("write_shares", Mismatch::new(came, "each share once"));
        }
        if let (Some(min), Some(max)) = (search.rate_min, search.rate_max)
            && (min >= max || max / min > 1e6)
        {
            let expected = format!("a rate above rate_min ({min}/s), up to a million times");
            table.problem("rate_max", Mismatch::new(format!("{max}/s"), expected));
        }
    }
    // A negative zero is equal to zero and prints otherwise.
    (shares.into_iter().map(|share| Probability::clamped(share + 0.0)).collect(), search)
}

/// `None` is `"auto"`, which is also the default.
fn rate_or_auto(table: &mut Table<'_>, key: &str) -> Option<f64> {
    let setting = table.key(key);
    match setting.value() {
        Some(Value::Text(text)) if text == "auto" => None,
        _ => setting.rate().between(RATES).optional(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = "name = 'shop'\nservers = 4\nobjective = '30ms'\n\
                         [read]\nurls = ['http://127.0.0.1:81/item/{key}']\n";
    const WRITE: &str = "[write]\nurls = ['http://127.0.0.1:81/order']\nbody = '{n}'\n\
                         [loads]\nwrite_shares = [0, '10%']\n";

    fn read(text: &str) -> Result<ProfileConfig, Problems> {
        ProfileConfig::read(&Node::parse(text, "s.toml").unwrap())
    }

    #[test]
    fn little_is_enough_and_the_rest_has_defaults() {
        let config = read(SMALL).unwrap();
        assert_eq!((config.servers.get(), config.objective), (4, Some(30 * MS)));
        assert_eq!(config.write_shares, [Probability::ZERO]);
        assert_eq!(config.steps.duration, 10 * S);
        assert_eq!((config.search.rate_min, config.search.rate_max), (None, None));
        let config = read(&format!("{SMALL}{WRITE}")).unwrap();
        let Requests::Http(http) = config.requests else { panic!("it is over HTTP") };
        assert_eq!(http.write.unwrap().method, "POST");
    }

    #[test]
    fn the_documented_example_is_sound() {
        let config = read(include_str!("../../../../../docs/profile-example.toml")).unwrap();
        assert_eq!((config.name.as_str(), config.write_shares.len()), ("shop", 3));
    }

    #[test]
    fn only_what_changes_the_measurement_changes_the_hash() {
        let hash = |text: &str| read(text).unwrap().hash;
        let same = format!("# a remark\n{}", SMALL.replace("30ms", "40ms").replace("shop", "s2"));
        assert_eq!(hash(&same), hash(SMALL));
        assert_ne!(hash(&SMALL.replace("servers = 4", "servers = 5")), hash(SMALL));
        assert_ne!(hash(&format!("{SMALL}[steps]\nduration = '11s'")), hash(SMALL));
    }

    #[test]
    fn every_problem_is_told_with_its_line() {
        let text = "name = 'a b'\nservers = 0\n[read]\nurls = []\nmethod = 'G T'\n\
                    [write]\nurls = ['https://a/']\n[steps]\nduration = '10ms'\n\
                    [loads]\nwrite_shares = [0, 0]\nrate_min = 9\nrate_max = 8\nper_decad = 3\n";
        let reported = read(text).unwrap_err().to_string();
        let expected = [
            "s.toml:1:8: name: got \"a b\", expected a name of up to 64",
            "s.toml:2:11: servers: got 0",
            "s.toml:4:8: read.urls: got an empty list",
            "s.toml:5:10: read.method: got \"G T\", expected a method such as GET",
            "s.toml:7:8: write.urls: got `https://a/`, expected http:// (TLS is not spoken",
            "s.toml:9:12: steps.duration: got \"10ms\", expected a duration from 1s to 1h",
            "s.toml:11:16: loads.write_shares: got the share 0 twice",
            "s.toml:13:12: loads.rate_max: got 8/s, expected a rate above rate_min (9/s)",
            "s.toml:14:13: loads: got the unknown key \"per_decad\"",
        ];
        for expected in expected {
            assert!(reported.contains(expected), "{expected}\nis not in\n{reported}");
        }
    }

    #[test]
    fn reads_and_writes_must_fit_together() {
        let reported = |text: &str| read(text).unwrap_err().to_string();
        let none = reported(&format!("{SMALL}[loads]\nwrite_shares = [0.5]"));
        assert!(none.contains("expected a [write] table"), "{none}");
        let unused = reported(&format!("{SMALL}[write]\nurls = ['http://127.0.0.1:81/']"));
        assert!(unused.contains("s.toml:6:1: write: got a [write] table"), "{unused}");
        let elsewhere = reported(&format!("{SMALL}{}", WRITE.replace(":81", ":82")));
        assert!(elsewhere.contains("got 127.0.0.1:82, expected the same host"), "{elsewhere}");
        let empty = reported("");
        assert!(empty.contains("read: got nothing, expected a table"), "{empty}");
    }
}
