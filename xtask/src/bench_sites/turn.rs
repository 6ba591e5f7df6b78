//! One turn: the users of all sites at once, and what became of their requests.

use std::fmt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::Options;
use super::arms::{Profile, SITES};
use crate::bench::process;

/// Longer than any request takes that is of use to anybody.
const TIMEOUT: &str = "5s";

/// Requests per second of each site's users.
#[derive(Clone, Debug)]
pub(super) struct Demand(pub(super) [f64; 3]);

impl Demand {
    pub(super) fn of(options: &Options, profile: &Profile) -> Self {
        let of_site = |percent| f64::from(percent) / 100.0 * profile.capacity_per_s;
        Self(options.demand_percent.map(of_site))
    }
}

/// What `evenkeel load` is told besides address and rate: YCSB's table, small, at consistency ONE,
/// which may be asked of any data centre; 4 % updates, as in the paper.
pub(super) const TABLE: [&str; 12] = [
    "--records",
    "200",
    "--record-bytes",
    "100",
    "--popularity",
    "uniform",
    "--consistency",
    "ONE",
    "--read-share",
    "0.96",
    "--connections",
    "2",
];

/// A running load.
pub(super) struct Users {
    /// Whose they are.
    pub(super) site: usize,
    child: Child,
}

/// One load of users of a site.
pub(super) struct Asking<'a> {
    pub(super) site: usize,
    pub(super) address: &'a str,
    pub(super) per_s: f64,
    pub(super) seconds: u64,
    pub(super) seed: u64,
}

/// What came of the requests of one load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Outcome {
    pub(super) requests: f64,
    /// Failed or later than the objective.
    pub(super) late: f64,
    pub(super) failed: f64,
    /// By how much too late requests were sent, 99th percentile.
    pub(super) lag_ms: f64,
    /// Processor time of the load itself.
    pub(super) cpu_s: f64,
}

impl Users {
    pub(super) fn begin(binary: &Path, options: &Options, asking: &Asking<'_>) -> Result<Self> {
        let mut command = process::first_child(binary);
        let Asking { site, address, per_s, seconds, seed } = asking;
        command.args(["load", &format!("cql://{address}/everywhere")]).args(TABLE);
        command.args(["--rate", &format!("{per_s:.2}/s"), "--duration", &format!("{seconds}s")]);
        command.args(["--objective", &format!("{}ms", options.objective_ms)]);
        command.args(["--seed", &seed.to_string(), "--timeout", TIMEOUT, "--json"]);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        Ok(Self { site: *site, child: child.context("the load cannot be started")? })
    }

    pub(super) fn wait(self) -> Result<Outcome> {
        let output = self.child.wait_with_output().context("the load was lost")?;
        let text = String::from_utf8_lossy(&output.stdout);
        read(&text).with_context(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("the users of {}: {}: {said}{text}", SITES[self.site].0, output.status)
        })
    }
}

/// What `evenkeel load --json` says.
fn read(text: &str) -> Result<Outcome> {
    let document: Value = serde_json::from_str(text).context("no JSON")?;
    let run = &document["runs"][0];
    let number = |name: &str| run[name].as_f64().with_context(|| format!("no `{name}`"));
    let requests = number("requests")?;
    let failed = number("failed")? + number("timeouts")?;
    Ok(Outcome {
        requests,
        late: number("missed_share")? * requests,
        failed,
        lag_ms: run["send_lag_p99_ms"].as_f64().unwrap_or(0.0),
        cpu_s: number("generator_cpu_share")? * number("duration_s")?,
    })
}

/// Runs a program of ours to its end; its standard output.
pub(super) fn said(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} cannot be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}: {said}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// One arm in one round.
#[derive(Clone, Debug, Default)]
pub(super) struct Measurement {
    /// By the site of the users.
    pub(super) sites: [Outcome; 3],
    /// Which share of all requests was served at another site than its users'.
    pub(super) away: f64,
    /// Which share the plans in force foretold to be late; nothing where nobody plans.
    pub(super) foretold: Option<f64>,
    /// Processors that nodes, proxies and all else on this machine used.
    pub(super) nodes_busy: f64,
    pub(super) proxies_busy: f64,
    pub(super) others_busy: f64,
    /// The share of the processors' time that the machine's host gave to other machines.
    pub(super) stolen: f64,
}

/// With more of the time stolen, or requests sent later, it is the machine that is measured.
const STOLEN_MAX: f64 = 0.01;
const LAG_MS_MAX: f64 = 5.0;

impl Measurement {
    /// The share of all requests that were late or failed.
    pub(super) fn late(&self) -> f64 {
        let sum = |value: fn(&Outcome) -> f64| self.sites.iter().map(value).sum::<f64>();
        sum(|site| site.late) / sum(|site| site.requests).max(1.0)
    }

    pub(super) fn late_of(&self, site: usize) -> f64 {
        self.sites[site].late / self.sites[site].requests.max(1.0)
    }

    pub(super) fn lag_ms(&self) -> f64 {
        self.sites.iter().map(|site| site.lag_ms).fold(0.0, f64::max)
    }

    /// Whether the machine had room for what was measured.
    pub(super) fn had_room(&self) -> bool {
        self.stolen <= STOLEN_MAX && self.lag_ms() <= LAG_MS_MAX
    }

    /// Adds what came of one of several loads of a site.
    pub(super) fn add(&mut self, site: usize, outcome: Outcome) {
        let sum = &mut self.sites[site];
        sum.requests += outcome.requests;
        sum.late += outcome.late;
        sum.failed += outcome.failed;
        sum.cpu_s += outcome.cpu_s;
        sum.lag_ms = sum.lag_ms.max(outcome.lag_ms);
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: f64| 100.0 * share;
        write!(formatter, "{:5.2} % late (", percent(self.late()))?;
        for (site, (name, _)) in SITES.iter().enumerate() {
            let comma = if site == 0 { "" } else { ", " };
            write!(formatter, "{comma}{name} {:.2}", percent(self.late_of(site)))?;
        }
        write!(formatter, "), {:.1} % away", percent(self.away))?;
        if let Some(foretold) = self.foretold {
            write!(formatter, ", {:.2} % foretold", percent(foretold))?;
        }
        write!(
            formatter,
            "; processors: nodes {:.2}, proxies {:.2}, others {:.2}, stolen {:.1} %; sent {:.1} ms \
             late",
            self.nodes_busy,
            self.proxies_busy,
            self.others_busy,
            percent(self.stolen),
            self.lag_ms(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_load_says_is_read_and_added() {
        let text = r#"{"runs": [{"requests": 200, "failed": 3, "timeouts": 1, "missed_share": 0.25,
            "send_lag_p99_ms": 0.5, "generator_cpu_share": 0.1, "duration_s": 4.0}]}"#;
        let outcome = read(text).unwrap();
        assert_eq!((outcome.requests, outcome.late, outcome.failed), (200.0, 50.0, 4.0));
        let mut measured = Measurement::default();
        measured.add(0, outcome);
        measured.add(0, Outcome { lag_ms: 7.0, ..outcome });
        measured.add(2, Outcome { requests: 600.0, ..Outcome::default() });
        assert_eq!((measured.late(), measured.late_of(0), measured.late_of(1)), (0.1, 0.25, 0.0));
        assert!(!measured.had_room(), "one load was sent 7 ms late");
        let error = format!("{:#}", read(r#"{"runs": [{"requests": 200}]}"#).unwrap_err());
        assert_eq!(error, "no `failed`");
    }
}
