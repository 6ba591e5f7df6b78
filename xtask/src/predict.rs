//! `cargo xtask predict`: whether the simulator's word holds on sockets.
//!
//! `evenkeel demo` plays a scenario in both worlds: the same arrivals, costs of requests, speeds,
//! pauses and failures, drawn from the seed, and the same decision code. What differs is what this
//! measures: the real network, the operating system, the agent and the proxy themselves. Sites
//! (`redirect`) have the same laws in both worlds, but draws of their own.
//!
//! For each policy and figure there is one ratio a seed, measured over foretold, and the median of
//! the ratios with its 95 % interval. Three verdicts: `holds` when the whole interval is within a
//! tenth of 1; `wrong` when it is wholly outside, and then the command fails; `open` when the
//! interval is too wide, and the machine cannot tell. A generator that itself sends late bounds
//! what may be claimed: its lag is in the table, and a figure that it could explain is `open`.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::bench::number;
use crate::bench::statistics::{median, median_interval};
use crate::{UsageError, workspace};

const USAGE: &str = "\
usage: cargo xtask predict [OPTIONS] [SCENARIO]

  SCENARIO           what `evenkeel demo` can play: demo (the default), brownout, redirect or a file
  --seeds N          seeds, 6 to 1000; default 10
  --set PATH=VALUE   a parameter of the scenario; repeatable
  --json             print one JSON document instead of the table

example: cargo xtask predict --seeds 20 scenarios/nginx-paused.toml
         cargo xtask predict brownout";

/// How far from what was foretold counts as right.
const TOLERANCE: f64 = 0.1;

/// What is compared.
#[derive(Debug)]
struct Figure {
    name: &'static str,
    /// Where it is in what was measured, and in what was foretold.
    keys: [&'static str; 2],
}

impl Figure {
    const fn of(name: &'static str) -> Self {
        Self { name, keys: [name, name] }
    }

    /// Measured, and foretold.
    fn read(&self, run: &Value) -> Option<[f64; 2]> {
        let [measured, foretold] = self.keys.map(|key| format!("/{}", key.replace('.', "/")));
        if self.name == "served" {
            return Some([share_served(run)?, share_served(&run["simulated"])?]);
        }
        let foretold = run["simulated"].pointer(&foretold)?;
        Some([run.pointer(&measured)?.as_f64()?, foretold.as_f64()?])
    }

    /// What is no time cannot be explained by requests that were sent late.
    fn is_share(&self) -> bool {
        !self.name.ends_with("_ms")
    }
}

/// Services in slots.
const SLOTS: &[Figure] = &[
    Figure::of("p50_ms"),
    Figure::of("p95_ms"),
    Figure::of("p99_ms"),
    Figure::of("p999_ms"),
    Figure::of("served"),
];

/// Shops: latencies are those of the served, since timeouts are no latencies.
const SHOPS: &[Figure] = &[
    Figure { name: "p50_ms", keys: ["served_p50_ms", "p50_ms"] },
    Figure { name: "p95_ms", keys: ["served_p95_ms", "p95_ms"] },
    Figure { name: "p99_ms", keys: ["served_p99_ms", "p99_ms"] },
    Figure::of("served"),
    Figure { name: "in full", keys: ["optional_ratio", "optional_ratio"] },
];

/// Data centres.
const SITES: &[Figure] = &[
    Figure::of("p50_ms"),
    Figure::of("p95_ms"),
    Figure::of("p99_ms"),
    Figure::of("served"),
    Figure { name: "redirected", keys: ["redirected_ratio", "redirect.redirected_ratio"] },
];

/// What there is to compare in a run.
fn figures(run: &Value) -> &'static [Figure] {
    if run.get("optional_ratio").is_some() {
        SHOPS
    } else if run.get("sites").is_some() {
        SITES
    } else {
        SLOTS
    }
}

/// Measures, prints the result, and fails where the simulator was wrong.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    if matches!(words, ["--help" | "-h"]) {
        println!("{USAGE}");
        return Ok(());
    }
    let options = Options::parse(words)?;
    workspace::run_cargo(&["build", "--release", "--package=evenkeel"], &[])?;
    let policies = measure(&options)?;
    if options.json {
        let policies: Vec<_> = policies.iter().map(Foretold::json).collect();
        println!("{:#}", json!({ "scenario": options.scenario, "policies": policies }));
    } else {
        print!("{}", table(&policies));
    }
    let wrong: Vec<_> = policies.iter().flat_map(Foretold::wrong).collect();
    ensure!(wrong.is_empty(), "predict: the simulator is wrong about {}", wrong.join(", "));
    Ok(())
}

/// What a user may choose.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    scenario: String,
    seeds: u64,
    set: Vec<String>,
    json: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self, UsageError> {
        let mut options =
            Self { scenario: "demo".to_owned(), seeds: 10, set: Vec::new(), json: false };
        let mut words = words.iter();
        while let Some(&word) = words.next() {
            match word {
                "--json" => options.json = true,
                "--seeds" => {
                    let value = words.next().copied().unwrap_or_default();
                    options.seeds = number(word, value, 6, 1000)?;
                }
                "--set" => {
                    let missing = || UsageError::new("--set without a value: PATH=VALUE expected");
                    options.set.push(words.next().ok_or_else(missing)?.to_string());
                }
                _ if word.starts_with('-') => {
                    return Err(UsageError::new(format!("unknown option `{word}`\n\n{USAGE}")));
                }
                scenario => scenario.clone_into(&mut options.scenario),
            }
        }
        Ok(options)
    }
}

/// What was foretold of a policy, and what came, seed by seed.
#[derive(Debug)]
struct Foretold {
    policy: String,
    figures: &'static [Figure],
    /// By figure, the ratios of measured to foretold.
    ratios: Vec<Vec<f64>>,
    /// By figure, the foretold.
    foretold: Vec<Vec<f64>>,
    /// The generator's own lag: its 99th percentile, milliseconds.
    lag_ms: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    Open,
    Wrong,
}

impl Foretold {
    fn new(policy: &str, figures: &'static [Figure]) -> Self {
        Self {
            policy: policy.to_owned(),
            figures,
            ratios: vec![Vec::new(); figures.len()],
            foretold: vec![Vec::new(); figures.len()],
            lag_ms: Vec::new(),
        }
    }

    fn add(&mut self, run: &Value) -> Result<()> {
        for (place, figure) in self.figures.iter().enumerate() {
            let values = figure.read(run);
            let [measured, foretold] =
                values.with_context(|| format!("no {} was measured and foretold", figure.name))?;
            // Nothing where nothing was foretold is right.
            let ratio = if measured == foretold { 1.0 } else { measured / foretold };
            self.ratios[place].push(ratio);
            self.foretold[place].push(foretold);
        }
        self.lag_ms.push(run["send_lag_p99_ms"].as_f64().unwrap_or_default());
        Ok(())
    }

    /// What is to be said of a figure: the interval is that of the median ratio.
    fn verdict(&self, place: usize) -> Verdict {
        let (least, most) = interval(&self.ratios[place]);
        let within = (1.0 - TOLERANCE)..=(1.0 + TOLERANCE);
        if within.contains(&least) && within.contains(&most) {
            return Verdict::Holds;
        }
        // Who is sent late answers late: that much of the excess is the generator's.
        let lag = if self.figures[place].is_share() { 0.0 } else { median(&self.lag_ms) };
        let least = least - lag / median(&self.foretold[place]);
        if least > *within.end() || most < *within.start() { Verdict::Wrong } else { Verdict::Open }
    }

    fn wrong(&self) -> Vec<String> {
        let numbered = self.figures.iter().enumerate();
        let wrong = numbered.filter(|&(place, _)| self.verdict(place) == Verdict::Wrong);
        wrong.map(|(_, figure)| format!("{} of {}", figure.name, self.policy)).collect()
    }

    fn json(&self) -> Value {
        let figures = self.figures.iter().enumerate().map(|(place, figure)| {
            let (least, most) = interval(&self.ratios[place]);
            let facts = json!({
                "foretold": median(&self.foretold[place]),
                "ratio": median(&self.ratios[place]),
                "interval": [least, most],
                "verdict": self.verdict(place).word(),
                "ratios": self.ratios[place],
            });
            (figure.name.to_owned(), facts)
        });
        let figures: serde_json::Map<_, _> = figures.collect();
        json!({
            "policy": self.policy,
            "send_lag_p99_ms": median(&self.lag_ms),
            "figures": figures,
        })
    }
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Open => "open",
            Self::Wrong => "WRONG",
        }
    }
}

fn share_served(of: &Value) -> Option<f64> {
    Some(of["served"].as_f64()? / of["requests"].as_f64()?)
}

fn interval(ratios: &[f64]) -> (f64, f64) {
    median_interval(ratios).expect("there are six seeds or more")
}

/// Plays the scenario with every seed.
fn measure(options: &Options) -> Result<Vec<Foretold>> {
    let mut policies: Vec<Foretold> = Vec::new();
    for seed in 1..=options.seeds {
        let mut demo = Command::new(workspace::release_binary());
        demo.args(["demo", &options.scenario, "--json", "--seed", &seed.to_string()]);
        demo.args(options.set.iter().flat_map(|set| ["--set", set]));
        demo.current_dir(workspace::root());
        let output = demo.output().context("evenkeel demo cannot be started")?;
        // It ends with 1 when a request was not served, which is one of the figures here.
        let words = String::from_utf8_lossy(&output.stderr);
        let document: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("evenkeel demo --seed {seed}: {}", words.trim()))?;
        let runs = document["runs"].as_array().context("a demo without runs")?;
        for run in runs {
            let policy = run["policy"].as_str().context("a run without a policy")?;
            let place = policies.iter().position(|known| known.policy == policy);
            let place = place.unwrap_or_else(|| {
                policies.push(Foretold::new(policy, figures(run)));
                policies.len() - 1
            });
            policies[place].add(run).with_context(|| format!("{policy}, seed {seed}"))?;
        }
        eprintln!("seed {seed} of {}", options.seeds);
    }
    Ok(policies)
}

/// Measured over foretold by policy and figure.
fn table(policies: &[Foretold]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "policy                   figure      foretold  measured / foretold (95 %)  verdict  \
         send lag p99\n",
    );
    for foretold in policies {
        for (place, figure) in foretold.figures.iter().enumerate() {
            let (least, most) = interval(&foretold.ratios[place]);
            let line = format!(
                "{:<24} {:<10} {:>9.3}  {:>8.3} ({least:.3} to {most:.3})  {:>11}  {:>9.2} ms",
                foretold.policy,
                figure.name,
                median(&foretold.foretold[place]),
                median(&foretold.ratios[place]),
                foretold.verdict(place).word(),
                median(&foretold.lag_ms),
            );
            writeln!(text, "{line}").expect("a String takes everything");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foretold(ratio: impl Fn(u64) -> f64, lag_ms: f64) -> Foretold {
        let mut foretold = Foretold::new("c3", SLOTS);
        for seed in 1..=10 {
            let mut run = json!({ "requests": 100, "served": 100, "send_lag_p99_ms": lag_ms });
            run["simulated"] = json!({ "requests": 100, "served": 100 });
            for Figure { name, .. } in &SLOTS[..4] {
                run[*name] = json!(10.0 * ratio(seed));
                run["simulated"][*name] = json!(10.0);
            }
            foretold.add(&run).unwrap();
        }
        foretold
    }

    #[test]
    fn a_word_holds_is_wrong_or_cannot_be_told() {
        let near = foretold(|seed| 1.0 + 0.005 * (seed % 10) as f64, 0.1);
        assert_eq!(near.verdict(2), Verdict::Holds);
        assert_eq!(near.wrong(), Vec::<String>::new());
        let far = foretold(|seed| 1.3 + 0.01 * (seed % 10) as f64, 0.1);
        assert_eq!(far.wrong().len(), 4, "served is right");
        let wide = foretold(|seed| 0.5 + 0.1 * seed as f64, 0.1);
        assert_eq!((wide.verdict(2), wide.wrong().len()), (Verdict::Open, 0));
        // 3 ms of lag on 10 ms may be all of it.
        let late = foretold(|seed| 1.3 + 0.01 * (seed % 10) as f64, 3.0);
        assert_eq!((late.verdict(2), late.wrong().len()), (Verdict::Open, 0));
        let fast = foretold(|_| 0.7, 3.0);
        assert_eq!(fast.wrong().len(), 4, "a late generator makes nothing faster");
    }

    #[test]
    fn each_demo_has_figures_of_its_own() {
        let shops = json!({
            "requests": 10, "served": 9, "optional_ratio": 0.5, "served_p50_ms": 8.0,
            "served_p95_ms": 40.0, "served_p99_ms": 44.0, "p50_ms": 9.0,
            "simulated": {
                "requests": 10, "served": 10, "optional_ratio": 0.625, "p50_ms": 8.0,
                "p95_ms": 40.0, "p99_ms": 44.0,
            },
        });
        let mut foretold = Foretold::new("pibh", figures(&shops));
        foretold.add(&shops).unwrap();
        assert_eq!(foretold.ratios, [[1.0], [1.0], [1.0], [0.9], [0.8]]);
        let nobody = json!({ "redirected_ratio": 0.0 });
        let sites = json!({
            "requests": 10, "served": 10, "sites": [], "redirected_ratio": 0.0, "p50_ms": 9.0,
            "p95_ms": 9.0, "p99_ms": 9.0,
            "simulated": {
                "requests": 10, "served": 10, "p50_ms": 9.0, "p95_ms": 9.0, "p99_ms": 9.0,
                "redirect": nobody,
            },
        });
        let mut foretold = Foretold::new("local", figures(&sites));
        foretold.add(&sites).unwrap();
        assert_eq!(foretold.ratios.concat(), [1.0; 5], "nothing where nothing was foretold");
        let error = foretold.add(&shops).unwrap_err().to_string();
        assert!(error.contains("no p95_ms was measured"), "{error}");
    }

    #[test]
    fn options_are_read_and_what_is_not_one_is_refused() {
        let words = ["--seeds", "12", "--set", "a=1", "x.toml", "--json"];
        let expected = Options {
            scenario: "x.toml".to_owned(),
            seeds: 12,
            set: vec!["a=1".to_owned()],
            json: true,
        };
        assert_eq!(Options::parse(&words).unwrap(), expected);
        for words in [&["--seeds", "5"][..], &["--set"], &["--quick"]] {
            assert!(Options::parse(words).is_err(), "{words:?}");
        }
    }
}
