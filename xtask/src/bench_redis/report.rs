//! What was measured, as tables for people and as one JSON document.

use std::fmt::Write;

use super::Options;
use super::load::{LOADS, Load};
use super::subjects::REFERENCE;
use crate::bench::statistics::{self, interval, spread};
use crate::bench::{list, load_average, quoted};

/// Proxies that the CPU of the others is compared with.
const RIVALS: [&str; 2] = ["envoy", "twemproxy"];

/// One subject under one load once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measurement {
    pub(super) commands_per_s: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// Of the proxy, for each command.
    pub(super) cpu_us: f64,
    /// Of its Redis servers together, for each command.
    pub(super) store_cpu_us: f64,
}

/// All rounds of one subject.
struct Series {
    subject: &'static str,
    version: String,
    /// For each load, in their order.
    rounds: [Vec<Measurement>; LOADS.len()],
}

/// A whole benchmark.
pub(super) struct Report {
    options: Options,
    file_system: String,
    load_average_before: String,
    cores: usize,
    series: Vec<Series>,
}

impl Report {
    /// `file_system` is the kind on which the logs are.
    pub(super) fn new(options: Options, file_system: String) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let load_average_before = load_average();
        Self { options, file_system, load_average_before, cores, series: Vec::new() }
    }

    /// Introduces a subject.
    pub(super) fn describe(&mut self, subject: &'static str, version: String) {
        self.series.push(Series { subject, version, rounds: Default::default() });
    }

    /// Adds the next round of a subject under the load with `number`.
    ///
    /// # Panics
    /// When the subject was not described.
    pub(super) fn add(&mut self, subject: &str, number: usize, measurement: Measurement) {
        let series = self.series.iter_mut().find(|series| series.subject == subject);
        series.expect("every subject is described first").rounds[number].push(measurement);
    }

    /// One table for each load, with reading aids.
    pub(super) fn tables(&self) -> String {
        let Self { options: Options { rounds, seconds, .. }, cores, file_system, .. } = self;
        let mut text = format!(
            "Duplicates of Redis beside other proxies: {rounds} rounds x {seconds} s, \
             closed loop, 100 000 keys, values of 100 bytes, load average {}\n",
            self.load_average_before
        );
        let loads = LOADS.iter().enumerate();
        for (number, load) in loads.filter(|(_, load)| self.options.loads.contains(&load.key)) {
            let _ = writeln!(text, "\n{}\n{}", load.name, head(load));
            for series in self.series.iter().filter(|series| !series.rounds[number].is_empty()) {
                let _ = writeln!(text, "{}", self.row(series, number));
            }
        }
        text.push('\n');
        for series in &self.series {
            if let Some(ratios) = of_scripts(series) {
                let ratios = interval(&ratios, 2);
                let _ = writeln!(text, "{}: p50 of EVAL / p50 of SET {ratios}", series.subject);
            }
        }
        for series in &self.series {
            let _ = writeln!(text, "{}: {}", series.subject, series.version);
        }
        let _ = writeln!(
            text,
            "ratios and added latency: median over rounds of the ratio or difference within a \
             round (95 % interval); an interval that holds 1.00 (or 0) is a tie\n\
             Redis keeps nothing on disk; the duplicates' log is on {file_system}"
        );
        if *cores < 3 {
            let _ = writeln!(
                text,
                "NOTE: {cores} cores for client, proxy and Redis: a proxy has no core of its own, \
                 so commands/s show what all of them cost together; compare the CPU"
            );
        }
        text
    }

    fn row(&self, series: &Series, number: usize) -> String {
        let rounds = &series.rounds[number];
        let is_proxy = series.subject != REFERENCE;
        let (cpu, store_cpu) =
            (values(rounds, |one| one.cpu_us), values(rounds, |one| one.store_cpu_us));
        let cost = if is_proxy { spread(&cpu) } else { "-".to_owned() };
        let mut row =
            format!("{:<11} {cost:>20} {:>9.2}", series.subject, statistics::median(&store_cpu));
        for rival in RIVALS {
            let ratio = self.within_rounds(series, rival, number, |one| one.cpu_us, |a, b| a / b);
            let ratio =
                ratio.filter(|_| is_proxy).map_or("-".to_owned(), |ratio| interval(&ratio, 2));
            let _ = write!(row, " {ratio:>18}");
        }
        if LOADS[number].is_latency() {
            let p99 = statistics::median(&values(rounds, |one| one.p99_us));
            let p50 = values(rounds, |one| one.p50_us);
            let added =
                self.within_rounds(series, REFERENCE, number, |one| one.p50_us, |a, b| a - b);
            let added = added.map_or("-".to_owned(), |added| interval(&added, 0));
            let p50 = statistics::median(&p50);
            let _ = write!(row, " {p50:>8.0} {added:>18} {p99:>8.0}");
        } else {
            let rate = statistics::median(&values(rounds, |one| one.commands_per_s));
            let of_rate = |one: &Measurement| one.commands_per_s;
            let ratio = self.within_rounds(series, REFERENCE, number, of_rate, |a, b| a / b);
            let ratio = ratio.map_or("-".to_owned(), |ratio| interval(&ratio, 3));
            let _ = write!(row, " {rate:>10.0} {ratio:>22}");
        }
        row
    }

    /// In each round, this subject's value and that of `other`; nothing if `other` was not asked.
    fn within_rounds(
        &self,
        series: &Series,
        other: &str,
        number: usize,
        value: fn(&Measurement) -> f64,
        compare: fn(f64, f64) -> f64,
    ) -> Option<Vec<f64>> {
        let other = self.series.iter().find(|series| series.subject == other)?;
        let pairs = series.rounds[number].iter().zip(&other.rounds[number]);
        Some(pairs.map(|(own, other)| compare(value(own), value(other))).collect())
    }

    /// One JSON document; every key carries its unit. It has every round: all else can be computed.
    pub(super) fn json(&self) -> String {
        let series: Vec<String> = self.series.iter().map(json_of).collect();
        format!(
            "{{\"benchmark\":\"redis\",\"rounds\":{},\"seconds\":{},\"cores\":{},\
             \"load_average_before\":{},\"log_file_system\":{},\"subjects\":[{}]}}",
            self.options.rounds,
            self.options.seconds,
            self.cores,
            quoted(&self.load_average_before),
            quoted(&self.file_system),
            series.join(",")
        )
    }
}

/// In each round, how much longer a lonely client waits for a script than for what it writes.
fn of_scripts(series: &Series) -> Option<Vec<f64>> {
    let rounds = |key: &str| {
        let number = LOADS.iter().position(|load| load.key == key)?;
        Some(&series.rounds[number]).filter(|rounds| !rounds.is_empty())
    };
    let pairs = rounds("eval_1x1")?.iter().zip(rounds("set_1x1")?);
    Some(pairs.map(|(script, write)| script.p50_us / write.p50_us).collect())
}

fn json_of(series: &Series) -> String {
    let loads = LOADS.iter().zip(&series.rounds).filter(|(_, rounds)| !rounds.is_empty());
    let loads: Vec<String> = loads
        .map(|(load, rounds)| {
            format!(
                "{}:{{\"commands_per_s\":{},\"cpu_us_per_command\":{},\
                 \"store_cpu_us_per_command\":{},\"p50_us\":{},\"p99_us\":{}}}",
                quoted(load.key),
                list(&values(rounds, |one| one.commands_per_s)),
                list(&values(rounds, |one| one.cpu_us)),
                list(&values(rounds, |one| one.store_cpu_us)),
                list(&values(rounds, |one| one.p50_us)),
                list(&values(rounds, |one| one.p99_us))
            )
        })
        .collect();
    format!(
        "{{\"subject\":{},\"version\":{},\"loads\":{{{}}}}}",
        quoted(series.subject),
        quoted(&series.version),
        loads.join(",")
    )
}

fn head(load: &Load) -> String {
    let mut head = format!("{:<11} {:>20} {:>9}", "", "CPU us/cmd (min-max)", "Redis CPU");
    for rival in RIVALS {
        let _ = write!(head, " {:>18}", format!("CPU / {rival}"));
    }
    if load.is_latency() {
        let _ = write!(head, " {:>8} {:>18} {:>8}", "p50 us", "added p50 us", "p99 us");
    } else {
        let _ = write!(head, " {:>10} {:>22}", "commands/s", format!("commands/s / {REFERENCE}"));
    }
    head
}

pub(super) fn values<T>(rounds: &[T], value: fn(&T) -> f64) -> Vec<f64> {
    rounds.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::super::subjects::SUBJECTS;
    use super::*;

    fn report() -> Report {
        let subjects = SUBJECTS.iter().map(|subject| subject.name).collect();
        let loads = LOADS.iter().map(|load| load.key).collect();
        let options = Options {
            rounds: 6,
            seconds: 1,
            subjects,
            loads,
            binary: None,
            json: false,
            is_stumbling: false,
        };
        let mut report = Report::new(options, "ext4".to_owned());
        for (subject, slower) in [("direct", 1.0), ("evenkeel-1", 1.5), ("envoy", 3.0)] {
            report.describe(subject, format!("{subject} \"x\""));
            for (number, load) in LOADS.iter().enumerate() {
                for round in 0..6 {
                    // The machine slows down round by round.
                    let script = if load.test == "eval" { 2.0 } else { 1.0 };
                    let time = f64::from(10 + round) * slower * script;
                    let one = Measurement {
                        commands_per_s: 1e6 / time,
                        p50_us: time,
                        p99_us: 2.0 * time,
                        cpu_us: time,
                        store_cpu_us: 1.0,
                    };
                    report.add(subject, number, one);
                }
            }
        }
        report.cores = 2;
        report
    }

    fn rows(text: &str, subject: &str) -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{subject} ")));
        lines.map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn ratios_are_taken_within_each_round() {
        let text = report().tables();
        let rows = rows(&text, "evenkeel-1");
        let expected = "18.75 (15.00-22.50) 1.00 0.50 (0.50-0.50) - 53419 0.667 (0.667-0.667)";
        assert_eq!(rows[0][1..].join(" "), expected);
        // 1.5 t - t, for t from 10 to 15.
        let expected = "18.75 (15.00-22.50) 1.00 0.50 (0.50-0.50) - 19 6 (5-8) 38";
        assert_eq!(rows[4][1..].join(" "), expected);
        let expected = "evenkeel-1: p50 of EVAL / p50 of SET 2.00 (2.00-2.00)\n";
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("NOTE: 2 cores for client, proxy and Redis"), "{text}");
        assert!(text.contains("log is on ext4"), "{text}");
    }

    #[test]
    fn redis_itself_has_no_proxy_whose_cpu_could_be_compared() {
        let rows = rows(&report().tables(), "direct");
        let row = rows[0][1..].join(" ");
        assert_eq!(row, "- 1.00 - - 80128 1.000 (1.000-1.000)");
    }

    #[test]
    fn json_has_every_round() {
        let json = report().json();
        for part in [
            "\"subject\":\"envoy\",\"version\":\"envoy \\\"x\\\"\",\"loads\":{\"set_50x16\":",
            "\"get_1x1\":{\"commands_per_s\":[100000.0000,90909.0909,",
            "\"cpu_us_per_command\":[10.0000,11.0000,12.0000,13.0000,14.0000,15.0000]",
        ] {
            assert!(json.contains(part), "{part} not in {json}");
        }
    }
}
