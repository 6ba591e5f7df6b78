//! A cluster for measurements (`cargo xtask bench cassandra`), which say what is done to its nodes.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_testkit::cassandra::{self, Cluster, Disturbed, Spec};

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
    for line in lines {
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

/// `start nodes=3 dynamic_snitch=true optimized=true heap_mib=512`
fn spec(line: &str) -> Result<Spec, String> {
    let mut spec = Spec::of(&[("dc1", 3)]);
    let problem = || format!("\"{line}\": expected start nodes=3 dynamic_snitch=true …");
    let words = line.strip_prefix("start").ok_or_else(problem)?;
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').ok_or_else(problem)?;
        let number = || value.parse::<usize>().map_err(|_| problem());
        match name {
            "nodes" => spec.places = Spec::of(&[("dc1", number()?)]).places,
            "dynamic_snitch" => spec.dynamic_snitch = value == "true",
            "optimized" => spec.optimized = value == "true",
            "heap_mib" => spec.heap_mib = number()?,
            _ => return Err(problem()),
        }
    }
    Ok(spec)
}

/// `pause NODE`, `resume NODE`, `quota NODE SHARE`, `unlimited NODE`, `nodetool NODE WORD…`
fn obeyed(cluster: &Cluster, disturbed: &Disturbed<'_>, line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let verb = words.next()?;
    let node = words.next()?.parse().ok().filter(|node| *node < cluster.nodes())?;
    match verb {
        "pause" => disturbed.pause(node),
        "resume" => disturbed.resume(node),
        "quota" => {
            let share = words.next()?.parse().ok().filter(|share| *share > 0.0)?;
            return Some(format!("{:?}", disturbed.quota(node, share)));
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
