//! A cluster for measurements (`cargo xtask bench cassandra`, `bench sites`), which say what is
//! done to its nodes, and how far away they are.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::Version;
use evenkeel_testkit::cassandra::client::{Client, reported};
use evenkeel_testkit::cassandra::{self, Cluster, Disturbed, Spec};
use evenkeel_testkit::distance::{Lane, Lanes};

/// A cluster of its own that does what lines on standard input say, until that ends. Every line is
/// answered by one that begins with `held`, on standard output; [`obeyed`] has the words.
#[test]
#[ignore = "holds a cluster for whoever tells it what to do"]
fn obey() {
    let mut lines = std::io::stdin().lines().map(|line| line.expect("standard input"));
    let Some(first) = lines.next() else { return };
    if let Err(missing) = cassandra::possible() {
        return answer(&format!("error {missing}"));
    }
    let cluster = Cluster::start(&spec(&first).unwrap_or_else(|problem| panic!("{problem}")));
    let disturbed = cluster.disturb();
    let mut nodes = "nodes".to_owned();
    for node in 0..cluster.nodes() {
        let process = cluster.process(node).expect("it has just started");
        write!(nodes, " {}={process}", cluster.address(node)).expect("memory");
    }
    answer(&nodes);
    let mut ways = Vec::new();
    for line in lines {
        if let Some(words) = line.strip_prefix("lanes ") {
            let lanes = lanes(words).unwrap_or_else(|problem| panic!("{problem}"));
            answer(&begins(&lanes, words.split_whitespace().count()));
            ways.push(lanes);
            continue;
        }
        match obeyed(&cluster, &disturbed, &line) {
            Some(words) => answer(&words),
            None => answer(&format!("error \"{line}\": not understood")),
        }
    }
}

/// On a line of its own, whatever the test harness has written.
fn answer(words: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\nheld {words}").and_then(|()| out.flush()).expect("standard output");
}

/// `lanes 127.0.0.1:9042=120 …`: ways to these addresses, with round trips in milliseconds.
fn lanes(words: &str) -> Result<Lanes, String> {
    let lane = |word: &str| {
        let (target, ms) = word.split_once('=')?;
        let base = Duration::from_millis(ms.parse().ok()?);
        Some(Lane { target: target.parse().ok()?, base, residual: None })
    };
    let lanes: Option<Vec<Lane>> = words.split_whitespace().map(lane).collect();
    let lanes = lanes.ok_or_else(|| format!("\"{words}\": expected ADDRESS=MILLISECONDS …"))?;
    Lanes::start(lanes, 1).map_err(|problem| problem.to_string())
}

/// `lanes PROCESS ADDRESS …`: where they begin, and whose process carries what goes over them.
fn begins(lanes: &Lanes, count: usize) -> String {
    let mut words = format!("lanes {}", std::process::id());
    for lane in 0..count {
        write!(words, " {}", lanes.address(lane)).expect("memory");
    }
    words
}

/// `start nodes=3 dynamic_snitch=true optimized=true heap_mib=512`, `start data_centers=east,west`
fn spec(line: &str) -> Result<Spec, String> {
    let mut spec = Spec::of(&[("dc1", 3)]);
    let problem = || format!("\"{line}\": expected start nodes=3 dynamic_snitch=true …");
    let words = line.strip_prefix("start").ok_or_else(problem)?;
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or_else(problem)?;
        let number = || value.parse::<usize>().map_err(|_| problem());
        match name {
            "nodes" => spec.places = Spec::of(&[("dc1", number()?)]).places,
            "data_centers" => {
                let names: Vec<_> = value.split(',').map(|name| (name, 1)).collect();
                spec.places = Spec::of(&names).places;
            }
            "requests_per_s" => {
                let limit = number()?;
                spec.yaml = format!(
                    "native_transport_rate_limiting_enabled: true\n\
                     native_transport_max_requests_per_second: {limit}\n"
                );
            }
            "dynamic_snitch" => spec.dynamic_snitch = value == "true",
            "optimized" => spec.optimized = value == "true",
            "heap_mib" => spec.heap_mib = number()?,
            _ => return Err(problem()),
        }
    }
    Ok(spec)
}

/// `pause NODE`, `resume NODE`, `quota NODE SHARE [PERIOD_MS]`, `unlimited NODE`,
/// `nodetool NODE WORD…`, `cql NODE STATEMENT`
fn obeyed(cluster: &Cluster, disturbed: &Disturbed<'_>, line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let verb = words.next()?;
    let node = words.next()?.parse().ok().filter(|node| *node < cluster.nodes())?;
    match verb {
        "pause" => disturbed.pause(node),
        "resume" => disturbed.resume(node),
        "quota" => {
            let share = words.next()?.parse().ok().filter(|share| *share > 0.0)?;
            let period_ms = words.next().map_or(Some(100), |word| word.parse().ok())?;
            let period = Duration::from_millis(period_ms);
            return Some(format!("{:?}", disturbed.quota_each(node, share, period)));
        }
        "cql" => {
            let statement = words.collect::<Vec<_>>().join(" ");
            let mut client = Client::connect(cluster.address(node), Version::V4, None).ok()?;
            return Some(reported(&client.query(&statement, Consistency::All).ok()?));
        }
        "unlimited" => disturbed.unlimited(node),
        "nodetool" => {
            let said = cluster.nodetool(node, &words.collect::<Vec<_>>());
            return Some(said.lines().collect::<Vec<_>>().join("; "));
        }
        _ => return None,
    }
    Some("done".to_owned())
}
