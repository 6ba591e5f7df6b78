//! What a run would take, estimated before it begins: a scenario that multiplies to more than a
//! machine has is refused with the number, in place of an abort or a run without end.
//!
//! Every count has bounds where it is read, and every product of two of them has one here: clients
//! × servers, requests × overload, the run's length over each period. The length follows from the
//! arrivals and from what the replicas can serve at mean speed, so that this is an estimate; the
//! bounds leave a factor of a hundred to what the shipped scenarios take.

use std::time::Duration;

use evenkeel_settings::{Mismatch, Table};

use super::{Arrivals, Phase, Scenario};
use crate::fault::Target;

const REQUESTS_MAX: u64 = super::REQUESTS_MAX;
/// Pairs of client and server, which take 500 bytes each: 4 GB.
const PAIRS_MAX: f64 = 8e6;
/// Places in the groups of all clients, which take four bytes each: 2 GB.
const MEMBERS_MAX: f64 = 5e8;
/// Requests that wait at the same time, which take a kilobyte each: 4 GB.
const WAITING_MAX: f64 = 4e6;
/// Events beside those of requests: a million or so take a second.
const EVENTS_MAX: f64 = 1e9;
/// Windows that are reported, which take 150 bytes each: 1.5 GB.
const WINDOWS_MAX: f64 = 1e7;

/// A run as it is expected.
struct Course {
    /// To the last answer.
    length_s: f64,
    /// Requests that wait at the same time, at most.
    waiting: f64,
}

impl Scenario {
    /// Reports what would not fit into memory or not end.
    pub(super) fn check_size(&self, root: &mut Table<'_>) {
        let servers = self.cluster.servers as f64;
        let pairs = servers * (self.clients_max() + self.callers()) as f64;
        let each = "each takes about 500 bytes, in each run that goes on at the same time";
        too_many(root, "workload", "pairs of client and server", pairs, PAIRS_MAX, each);
        let members = pairs * self.cluster.replication_factor as f64;
        let each = "clients x servers x replication_factor, four bytes each, in each run";
        too_many(root, "cluster", "places in groups", members, MEMBERS_MAX, each);
        if self.workload.requests > REQUESTS_MAX {
            let came = format!("{} requests", self.workload.requests);
            let expected = format!("at most {REQUESTS_MAX} in rate × duration");
            root.problem("workload", Mismatch::new(came, expected));
        }
        let course = self.course();
        let each = "each takes about a kilobyte: the load is beyond what the replicas can serve";
        let waiting = course.waiting * self.parts_in_all() as f64;
        too_many(root, "workload", "requests that wait", waiting, WAITING_MAX, each);
        for (key, what, events) in self.repeated(course.length_s) {
            let each = "in a run of this length: a million or so take a second";
            too_many(root, key, what, events, EVENTS_MAX, each);
        }
        let sites = self.geography.as_ref().map_or(1.0, |it| it.sites.len() as f64);
        let windows = sites * per(course.length_s, self.run.window);
        let each = "in a run of this length: each takes about 150 bytes";
        too_many(root, "run", "windows (window)", windows, WINDOWS_MAX, each);
    }

    /// By key, what repeats itself, and how often in a run of this length.
    fn repeated(&self, length_s: f64) -> Vec<(&'static str, &'static str, f64)> {
        let servers = self.cluster.servers as f64;
        let of_fault = |fault: &crate::fault::Fault| {
            let struck = match fault.target {
                Target::Each | Target::EachRack => servers,
                Target::Rack(_) | Target::RandomRack => servers / self.cluster.racks.max(1) as f64,
                Target::Server(_) | Target::Random => 1.0,
            };
            struck * per((length_s - fault.at.as_secs_f64()).max(0.0), fault.every)
        };
        let faults = self.faults.iter().map(of_fault).sum();
        let speeds = servers * per(length_s, self.fluctuation.interval);
        let samples = servers * per(length_s, self.run.load_every);
        let steps = match &self.workload.arrivals {
            Arrivals::Trace { step, .. } => per(length_s, *step),
            Arrivals::Poisson | Arrivals::Ticks { .. } => 0.0,
        };
        let mut repeated = vec![
            ("faults", "faults (every)", faults),
            ("fluctuation", "changes of a server's speed (interval)", speeds),
            ("run", "samples of a server's load (load_every)", samples),
            ("workload", "steps of the rate (arrivals)", steps),
        ];
        if let Some(geography) = &self.geography {
            let pairs = (geography.sites.len() * geography.sites.len()) as f64;
            let routes = pairs / 2.0 * per(length_s, geography.wan.reroute_every);
            let plans = pairs * per(length_s, geography.redirect.period);
            let slow = pairs * per(length_s, geography.redirect.slow_period);
            repeated.push(("wan", "new routes (reroute_every)", routes));
            repeated.push(("redirect", "parts of plans (period)", plans));
            repeated.push(("redirect", "parts of plans (slow_period)", slow));
        }
        repeated
    }

    /// Follows the load from phase to phase until all requests have come and are served.
    fn course(&self) -> Course {
        let (workload, rate) = (&self.workload, self.rate());
        let capacity = self.capacity_max();
        let mut phases: Vec<&Phase> = workload.phases.iter().collect();
        phases.sort_by_key(|phase| phase.at);
        let (mut at_s, mut left, mut backlog) = (0.0, workload.requests as f64, 0.0_f64);
        let (mut waiting, mut factor, mut clients) = (0.0_f64, 1.0, workload.clients as f64);
        for number in 0..=phases.len() {
            let now = rate * factor * clients / workload.clients as f64;
            let ends_s = phases.get(number).map_or(f64::INFINITY, |it| it.at.as_secs_f64());
            let length_s = (ends_s - at_s).min(left / now);
            backlog = (backlog + (now - capacity) * length_s).max(0.0);
            waiting = waiting.max(self.kept(backlog, now));
            (at_s, left) = (at_s + length_s, left - now * length_s);
            let Some(phase) = phases.get(number).filter(|_| left > 0.5) else { break };
            factor = phase.rate_factor.unwrap_or(factor);
            clients += phase.clients_join as f64;
        }
        Course { length_s: at_s + backlog / capacity, waiting }
    }

    /// Of requests that wait, those that nobody has given up.
    fn kept(&self, backlog: f64, rate: f64) -> f64 {
        let Self { workload, .. } = self;
        match workload.cancel && !workload.timeout.is_zero() {
            true => backlog.min(rate * workload.timeout.as_secs_f64()),
            false => backlog,
        }
    }

    /// Requests per second that can be served, without optional content where there is some.
    fn capacity_max(&self) -> f64 {
        let lean = self.work.as_ref().filter(|_| !self.replicas.is_empty());
        let lean = lean.map(|work| work.optional.as_secs_f64() / work.mandatory.as_secs_f64());
        self.capacity() * lean.unwrap_or(1.0)
    }
}

/// How often something happens that happens so often; zero is never.
fn per(length_s: f64, every: Duration) -> f64 {
    if every.is_zero() { 0.0 } else { length_s / every.as_secs_f64() }
}

fn too_many(root: &mut Table<'_>, key: &str, what: &str, count: f64, max: f64, each: &str) {
    if count > max {
        let expected = format!("at most {max} ({each})");
        root.problem(key, Mismatch::new(format!("about {} {what}", rounded(count)), expected));
    }
}

/// Two digits of an estimate.
fn rounded(count: f64) -> String {
    let scale = 10_f64.powf(count.log10().floor() - 1.0);
    let number = (count / scale).round() * scale;
    if number < 1e15 { format!("{number:.0}") } else { format!("{number:.1e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_settings::Node;

    fn refused(text: &str) -> String {
        match Scenario::read(&Node::parse(text, "x.toml").unwrap()) {
            Ok(_) => panic!("taken:\n{text}"),
            Err(problems) => problems.to_string(),
        }
    }

    #[test]
    fn what_would_fill_the_memory_or_never_end_is_refused_with_its_estimate() {
        for (text, key, estimate) in [
            (
                "cluster = { servers = 100_000 }\nworkload = { clients = 500 }",
                "workload",
                "about 50000000 pairs of client and server, expected at most 8000000",
            ),
            (
                "cluster = { servers = 10_000, replication_factor = 10_000 }\n\
                 workload = { clients = 10 }",
                "cluster",
                "about 1000000000 places in groups, expected at most 500000000",
            ),
            (
                "fluctuation = { interval = '1ns' }\nworkload = { requests = 100_000 }",
                "fluctuation",
                "about 71000000000 changes of a server's speed (interval), expected at most",
            ),
            (
                "[[faults]]\nat = '0s'\nevery = '1ns'\npause = 'each'\nfor = '1ms'",
                "faults",
                "about 140000000000 faults (every), expected at most",
            ),
            (
                "[workload]\nrequests = 50_000_000\nutilisation = 10.0",
                "workload",
                "about 45000000 requests that wait, expected at most 4000000",
            ),
            (
                "[workload]\nrequests = 50_000_000\n\
                 phases = [{ at = '1s', rate_factor = 1000.0 }]",
                "workload",
                "requests that wait",
            ),
            (
                "cluster = { servers = 100_000 }\nworkload = { clients = 1, duration = '24h', \
                 rate = '1/s' }\nrun = { load_every = '10ms' }",
                "run",
                "about 860000000000 samples of a server's load",
            ),
            (
                "workload = { rate = 0.001, requests = 1_000_000 }\nrun = { window = '1s' }",
                "run",
                "about 1000000000 windows (window), expected at most 10000000",
            ),
            (
                "[workload]\nrate = 0.001\nrequests = 10_000\n\
                 arrivals = { rates = [1.0, 0.0], step = '1ms' }",
                "workload",
                "about 10000000000 steps of the rate",
            ),
        ] {
            let said = refused(text);
            assert!(said.contains(&format!("{key}: got ")), "{key}:\n{said}");
            assert!(said.contains(estimate), "{estimate}:\n{said}");
        }
    }

    #[test]
    fn what_gives_up_or_is_served_lean_does_not_wait() {
        let good = |text: &str| {
            let node = Node::parse(text, "x.toml").unwrap();
            Scenario::read(&node).unwrap_or_else(|problems| panic!("{problems}"))
        };
        let overload = "[workload]\nrequests = 50_000_000\nutilisation = 2.0\n";
        good(&format!("{overload}timeout = '10s'\ncancel = true"));
        let work = "replicas = [4, 4]\nwork = { optional = '10ms', mandatory = '4ms' }\n";
        good(&format!("{work}{overload}"));
        assert!(refused(overload).contains("requests that wait"));
    }
}
