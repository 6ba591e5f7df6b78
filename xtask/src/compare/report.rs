//! What was measured, as tables for people and as one JSON document.

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Options;
use super::subjects::REFERENCE;
use crate::bench::{load_average, processors, statistics};

/// One proxy in one weather, once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
    requests: u64,
    /// Answered with an error, or not within the patience of users.
    failed: u64,
    cpu_us_per_request: f64,
}

impl Cell {
    /// From what `evenkeel load --json` says, and the CPU time of the proxy meanwhile.
    pub(super) fn read(document: &Value, cpu_ns: u64) -> Result<Self> {
        let run = &document["runs"][0];
        let count = |key: &str| run[key].as_u64().with_context(|| format!("no {key}: {run}"));
        let ms = |key: &str| run[key].as_f64().with_context(|| format!("no {key}: {run}"));
        let (requests, served) = (count("requests")?, count("served")?);
        ensure!(requests > 0, "no request was sent: {run}");
        Ok(Self {
            p50_ms: ms("p50_ms")?,
            p99_ms: ms("p99_ms")?,
            p999_ms: ms("p999_ms")?,
            requests,
            failed: requests - served,
            cpu_us_per_request: cpu_ns as f64 / 1e3 / requests as f64,
        })
    }
}

/// The rounds of one proxy in one weather.
struct Series {
    weather: String,
    proxy: &'static str,
    cells: Vec<Cell>,
}

pub(super) struct Report {
    options: Options,
    load_average_before: String,
    versions: Vec<(&'static str, String)>,
    series: Vec<Series>,
}

impl Report {
    pub(super) fn new(options: Options) -> Self {
        let load_average_before = load_average();
        Self { options, load_average_before, versions: Vec::new(), series: Vec::new() }
    }

    pub(super) fn describe(&mut self, proxy: &'static str, version: String) {
        self.versions.push((proxy, version));
    }

    /// Adds the next round of a proxy in a weather.
    pub(super) fn add(&mut self, weather: &str, proxy: &'static str, cell: Cell) {
        let found = self.series.iter_mut().find(|it| it.weather == weather && it.proxy == proxy);
        match found {
            Some(series) => series.cells.push(cell),
            None => {
                let weather = weather.to_owned();
                self.series.push(Series { weather, proxy, cells: vec![cell] });
            }
        }
    }

    /// A table for each weather, and who was measured.
    pub(super) fn tables(&self) -> String {
        let Options { rounds, seconds, rate, .. } = self.options;
        let mut text = format!(
            "Five replicas, {rate} requests/s: {rounds} rounds x {seconds} s, one worker each, {}, \
             load average {}\n",
            processors(),
            self.load_average_before
        );
        for weather in &self.options.weathers {
            let what = match *weather {
                "well" => "all replicas are well",
                "pauses" => "one replica pauses 100 to 300 ms, once a second",
                "slow" => "one replica is four times slower",
                _ => "one replica hangs",
            };
            let _ = write!(
                text,
                "\n{what}\n{:<18}{:>8}{:>27}{:>27}{:>22}{:>12}{:>24}{:>20}\n",
                "proxy",
                "p50 ms",
                "p99 ms (min-max)",
                "p99.9 ms (min-max)",
                format!("p99 / {REFERENCE}"),
                "failed",
                "CPU us/req (min-max)",
                format!("CPU / {REFERENCE}"),
            );
            for series in self.of(weather) {
                let _ = writeln!(text, "{}", self.row(series));
            }
        }
        text.push('\n');
        for (proxy, version) in &self.versions {
            let _ = writeln!(text, "{proxy}: {version}");
        }
        text.push_str(
            "figures: median over rounds; ratios: median of the ratio within a round (95 %), an \
             interval that holds 1.00 is a tie; failed: of all rounds, their latency does not \
             count\n",
        );
        text
    }

    fn of(&self, weather: &str) -> impl Iterator<Item = &Series> {
        self.series.iter().filter(move |series| series.weather == weather)
    }

    fn row(&self, series: &Series) -> String {
        let of = |value: fn(&Cell) -> f64| series.values(value);
        let ratio = |value| statistics::interval(&self.ratios(series, value), 2);
        let requests: u64 = series.cells.iter().map(|cell| cell.requests).sum();
        let failed: u64 = series.cells.iter().map(|cell| cell.failed).sum();
        format!(
            "{:<18}{:>8.2}{:>27}{:>27}{:>22}{:>12}{:>24}{:>20}",
            series.proxy,
            statistics::median(&of(|cell| cell.p50_ms)),
            statistics::spread(&of(|cell| cell.p99_ms)),
            statistics::spread(&of(|cell| cell.p999_ms)),
            ratio(|cell| cell.p99_ms),
            format!("{failed}/{requests}"),
            statistics::spread(&of(|cell| cell.cpu_us_per_request)),
            ratio(|cell| cell.cpu_us_per_request),
        )
    }

    /// To the reference, round by round.
    fn ratios(&self, series: &Series, value: fn(&Cell) -> f64) -> Vec<f64> {
        let reference = self.of(&series.weather).find(|it| it.proxy == REFERENCE);
        let reference = reference.expect("it is always measured");
        series.cells.iter().zip(&reference.cells).map(|(a, b)| value(a) / value(b)).collect()
    }

    /// One JSON document; every key carries its unit, every list has a value of each round.
    pub(super) fn json(&self) -> Value {
        let series = self.series.iter().map(|series| {
            let of = |value: fn(&Cell) -> f64| series.values(value);
            json!({
                "weather": series.weather,
                "proxy": series.proxy,
                "p50_ms": of(|cell| cell.p50_ms),
                "p99_ms": of(|cell| cell.p99_ms),
                "p999_ms": of(|cell| cell.p999_ms),
                "requests": of(|cell| cell.requests as f64),
                "failed": of(|cell| cell.failed as f64),
                "cpu_us_per_request": of(|cell| cell.cpu_us_per_request),
                "ratio_of_p99": self.ratios(series, |cell| cell.p99_ms),
                "ratio_of_cpu": self.ratios(series, |cell| cell.cpu_us_per_request),
            })
        });
        let series: Vec<Value> = series.collect();
        let versions = self.versions.iter();
        let versions: Vec<Value> = versions
            .map(|(proxy, version)| json!({ "proxy": proxy, "version": version }))
            .collect();
        json!({
            "comparison": "replicas",
            "reference": REFERENCE,
            "rounds": self.options.rounds,
            "seconds": self.options.seconds,
            "rate_per_s": self.options.rate,
            "processors": processors(),
            "load_average_before": self.load_average_before,
            "proxies": versions,
            "series": series,
        })
    }
}

impl Series {
    fn values(&self, value: fn(&Cell) -> f64) -> Vec<f64> {
        self.cells.iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(p99_ms: f64, served: u64) -> Value {
        let run = json!({
            "p50_ms": 2.0, "p99_ms": p99_ms, "p999_ms": 50.0, "requests": 1000, "served": served,
        });
        json!({ "runs": [run] })
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_what_failed_is_said() {
        let mut report = Report::new(Options::parse(&["--weather", "slow"]).unwrap());
        for round in 1..=6 {
            let slower = f64::from(round) * 10.0;
            report.add("slow", REFERENCE, Cell::read(&document(slower, 990), 2_000_000).unwrap());
            let half = Cell::read(&document(slower / 2.0, 1000), 3_000_000).unwrap();
            report.add("slow", "evenkeel", half);
        }
        let text = report.tables();
        for expected in ["0.50 (0.50-0.50)", "1.50 (1.50-1.50)", "60/6000", "0/6000"] {
            assert!(text.contains(expected), "{expected} in {text}");
        }
        assert_eq!(
            report.json()["series"][1]["ratio_of_p99"],
            json!([0.5, 0.5, 0.5, 0.5, 0.5, 0.5])
        );
    }

    #[test]
    fn what_the_load_does_not_say_is_an_error() {
        let error = Cell::read(&json!({ "runs": [{ "requests": 5 }] }), 1).unwrap_err();
        assert!(error.to_string().starts_with("no served"), "{error}");
    }
}
