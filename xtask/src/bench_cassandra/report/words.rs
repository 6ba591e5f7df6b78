//! The report's words and figures.

use std::fmt::Write;

use super::super::scenario::{Arrival, Disturbance};
use super::super::{HEAP_MIB, NODES};
use super::{Cell, Estimate, Measurement, Report, Series, TAIL, pooled};
use crate::bench::{ROUNDS_MIN, list, quoted, statistics};

/// Bars of issue 7.
const PAUSED_RATIO_MAX: f64 = 0.5;
const CALM_RATIO_MAX: f64 = 1.05;
const ADDED_US_MAX: f64 = 100.0;

impl Report {
    /// A table for each load, verdicts, and reading aids.
    pub(in super::super) fn tables(&self) -> String {
        let options = &self.options;
        let snitch = if options.dynamic_snitch { "on" } else { "off" };
        let mut text = format!(
            "Cassandra 5.0.9, {NODES} nodes that all have every record (Java 17, {HEAP_MIB} MiB, \
             serial collector), dynamic snitch {snitch}, consistency ONE, {} records of {} bytes, \
             zipfian\n{} rounds x {} s, {} requests/s in open loop; {}, load average {}\n",
            options.records,
            options.bytes,
            options.rounds,
            options.seconds,
            options.rate,
            self.processors,
            self.load_average_before
        );
        for cell in &self.cells {
            text.push_str(&self.table(cell));
        }
        text.push_str("\nBars\n");
        for line in self.cells.iter().flat_map(Cell::verdicts) {
            let _ = writeln!(text, "{line}");
        }
        text.push('\n');
        for way in &options.ways {
            let _ = writeln!(text, "{}: {}", way.name, way.about);
        }
        text.push_str(
            "CPU us: for each answered request, of the load's process with the driver, of the \
             proxy, of all nodes; busy: share of the machine's processors in use, by anybody\n\
             late: by how much too late requests were sent, p99.9, worst round; the load and the \
             proxy go before the nodes (SCHED_RR where allowed), as if they were elsewhere\n\
             ratios are to the same driver's default policy; in a round: median over rounds \
             (95 % interval of the sign test); pooled: of all rounds together (95 % by drawing \
             rounds anew, which covers less when rounds are few)\n\
             a bar is met when the whole interval is below it, missed when it is above\n",
        );
        text
    }

    /// One load.
    pub(in super::super) fn table(&self, cell: &Cell) -> String {
        let (scenario, mix) = (cell.scenario, cell.mix);
        let mut text = format!("\n{}, {}: {}", scenario.name, mix.name, scenario.about);
        if scenario.arrival == Arrival::Closed {
            let _ = write!(text, "; {} clients", self.options.users);
        }
        if let Some(note) = &cell.note {
            let _ = write!(text, "; {note}");
        }
        let _ = writeln!(
            text,
            "\n{:<20} {:>7} {:>8} {:>8} {:>9} {:>7} {:>7} {:>6} {:>6} {:>5} {:>7} {:>18} {:>18} \
             {:>18}",
            "way",
            "p50 ms",
            "p99 ms",
            "p99.9 ms",
            "answers/s",
            "errors",
            "CPU us",
            "proxy",
            "nodes",
            "busy",
            "late ms",
            "p50 ratio",
            "p99.9 in a round",
            "p99.9 pooled"
        );
        for series in &cell.series {
            text.push_str(&cell.row(series));
            text.push('\n');
        }
        for line in cell.remarks() {
            let _ = writeln!(text, "{line}");
        }
        text
    }

    /// One JSON document; every key carries its unit. It has every round.
    pub(in super::super) fn json(&self) -> String {
        let options = &self.options;
        let cells: Vec<String> = self.cells.iter().map(Cell::json).collect();
        let verdicts: Vec<String> =
            self.cells.iter().flat_map(Cell::verdicts).map(|line| quoted(&line)).collect();
        format!(
            "{{\"benchmark\":\"cassandra\",\"rounds\":{},\"seconds\":{},\"rate_per_s\":{},\
             \"users\":{},\"records\":{},\"record_bytes\":{},\"dynamic_snitch\":{},\
             \"processors\":{},\"load_average_before\":{},\"bars\":[{}],\"loads\":[{}]}}",
            options.rounds,
            options.seconds,
            options.rate,
            options.users,
            options.records,
            options.bytes,
            options.dynamic_snitch,
            quoted(&self.processors),
            quoted(&self.load_average_before),
            verdicts.join(","),
            cells.join(",")
        )
    }
}

impl Cell {
    fn row(&self, series: &Series) -> String {
        let ms = |share| series.quantile_us(share) / 1e3;
        let late_us = series.rounds.iter().map(|round| round.late_us).max().unwrap_or_default();
        let mut row = format!(
            "{:<20} {:>7.2} {:>8.2} {:>8.1} {:>9.1} {:>7} {:>7.0} {:>6.0} {:>6.0} {:>5.2} {:>7.1}",
            series.way.name,
            ms(0.5),
            ms(0.99),
            ms(TAIL),
            statistics::median(&series.values(Measurement::answered_per_s)),
            series.errors(),
            series.each(|round| round.driver_us),
            series.each(|round| round.cost.proxy_us),
            series.each(|round| round.cost.nodes_us),
            statistics::median(&series.values(|round| round.cost.busy)),
            late_us as f64 / 1e3
        );
        if !series.way.is_reference() {
            let ratio =
                |share| self.within_rounds(series, |round| round.quantile_us(share), |a, b| a / b);
            let pooled = self.pooled(series, &self.all_rounds(), TAIL);
            let estimates = [ratio(0.5), ratio(TAIL), pooled];
            for estimate in estimates {
                let _ = write!(row, " {:>18}", in_words(estimate, 2));
            }
        }
        row
    }

    /// What the table's columns do not show.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for series in &self.series {
            let name = series.way.name;
            if self.scenario.arrival == Arrival::Joining {
                let ms = |half| series.half_quantile_us(half, TAIL) / 1e3;
                remarks.push(format!("{name}: p99.9 {:.1} ms before, {:.1} after", ms(0), ms(1)));
            }
            if self.scenario.arrival == Arrival::Closed && !series.way.is_reference() {
                let rate = self.within_rounds(series, Measurement::answered_per_s, |a, b| a / b);
                let reference = series.way.reference;
                remarks.push(format!("{name}: {} of {reference}'s answers/s", in_words(rate, 3)));
            }
            if series.way.has_copies() {
                let percent = |value: fn(&Measurement) -> f64| 100.0 * series.each(value);
                remarks.push(format!(
                    "{name}: copies of {:.2} % of requests, {:.2} % answered first; {:.2} % were \
                     due and denied",
                    percent(|round| round.cost.copies.sent),
                    percent(|round| round.cost.copies.won),
                    percent(|round| round.cost.copies.denied)
                ));
            }
            let late = series.rounds.iter().filter(|round| round.was_late()).count();
            if late > 0 {
                let all = series.rounds.len();
                remarks.push(format!(
                    "NOTE: {name}: in {late} of {all} rounds requests were sent late: the machine \
                     was too busy to tell"
                ));
            }
            let stolen = series.values(|round| round.cost.stolen);
            let robbed = series.rounds.iter().filter(|round| round.was_robbed()).count();
            if robbed > 0 {
                remarks.push(format!(
                    "NOTE: {name}: in {robbed} of {} rounds the host gave processors to other \
                     machines (in the middle one {:.1} % of the time): the tail is theirs",
                    stolen.len(),
                    100.0 * statistics::median(&stolen)
                ));
            }
            let error = series.rounds.iter().find_map(|round| round.error.as_ref());
            remarks.extend(error.map(|error| format!("{name}: first error: {error}")));
        }
        remarks
    }

    /// What is to be said of the bars.
    fn verdicts(&self) -> Vec<String> {
        let ours = self.series.iter().filter(|series| series.way.is_ours());
        if self.scenario.arrival == Arrival::Lonely {
            return ours.filter(|it| it.way.is_proxied).flat_map(|it| self.added(it)).collect();
        }
        let pairs = ours.flat_map(|own| self.rivals(own).into_iter().map(move |it| (own, it)));
        pairs.filter_map(|(own, rival)| self.verdict(own, rival)).collect()
    }

    fn added(&self, series: &Series) -> Vec<String> {
        let (scenario, name) = (self.scenario.name, series.way.name);
        let estimates = self.added_us(series).into_iter();
        let lines = estimates.map(|(other, added)| {
            let (words, verdict) = (in_words(added, 0), judged(added, ADDED_US_MAX));
            let same = if series.way.reference == other { "" } else { ", which chooses alike" };
            format!(
                "{scenario}: {name} adds {words} us to the p50 of {other}{same}; 100: {verdict}"
            )
        });
        lines.collect()
    }

    fn verdict(&self, series: &Series, rival: &Series) -> Option<String> {
        let (scenario, name, other) = (self.scenario.name, series.way.name, rival.way.name);
        let bar = match (self.scenario.disturbance, self.scenario.arrival) {
            (Disturbance::None, Arrival::Open) => CALM_RATIO_MAX,
            (Disturbance::Pauses, Arrival::Open) => PAUSED_RATIO_MAX,
            _ => return None,
        };
        let (all, own) = (self.all_rounds(), self.own_rounds());
        let reported = |rounds: &[usize]| {
            let ratio = pooled(series, rival, rounds, TAIL);
            format!("{} of {other}'s; {bar}: {}", in_words(ratio, 2), judged(ratio, bar))
        };
        let mut line = format!("{scenario}, {}: p99.9 of {name} {}", self.mix.name, reported(&all));
        if (ROUNDS_MIN..all.len()).contains(&own.len()) {
            let (own, all, alone) = (own.len(), all.len(), reported(&own));
            let _ = write!(
                line,
                "; in the {own} of {all} rounds with no way sent late or robbed, {alone}"
            );
        }
        Some(line)
    }

    fn json(&self) -> String {
        let ways: Vec<String> = self.series.iter().map(|series| self.json_of(series)).collect();
        format!(
            "{{\"scenario\":{},\"mix\":{},\"note\":{},\"ways\":{{{}}}}}",
            quoted(self.scenario.name),
            quoted(self.mix.name),
            self.note.as_deref().map_or("null".to_owned(), quoted),
            ways.join(",")
        )
    }

    fn json_of(&self, series: &Series) -> String {
        let quantile = |share| list(&series.values(|round| round.quantile_us(share) / 1e3));
        let each = |value: fn(&Measurement) -> f64| {
            list(&series.values(|round| value(round) / round.answered()))
        };
        let mut text = format!(
            "{}:{{\"p50_ms\":{},\"p99_ms\":{},\"p999_ms\":{},\"p999_ms_of_all\":{:.4},\
             \"p999_ms_of_halves\":{},\"answered_per_s\":{},\"errors\":{},\
             \"driver_cpu_us_per_request\":{},\"proxy_cpu_us_per_request\":{},\
             \"nodes_cpu_us_per_request\":{},\"copies_per_request\":{},\
             \"copies_won_per_request\":{},\"copies_denied_per_request\":{},\"busy\":{},\
             \"stolen\":{},\"late_us\":{}",
            quoted(series.way.name),
            quantile(0.5),
            quantile(0.99),
            quantile(TAIL),
            series.quantile_us(TAIL) / 1e3,
            list(&[0, 1].map(|half| series.half_quantile_us(half, TAIL) / 1e3)),
            list(&series.values(Measurement::answered_per_s)),
            list(&series.values(|round| round.errors as f64)),
            each(|round| round.driver_us),
            each(|round| round.cost.proxy_us),
            each(|round| round.cost.nodes_us),
            each(|round| round.cost.copies.sent),
            each(|round| round.cost.copies.won),
            each(|round| round.cost.copies.denied),
            list(&series.values(|round| round.cost.busy)),
            list(&series.values(|round| round.cost.stolen)),
            list(&series.values(|round| round.late_us as f64)),
        );
        if !series.way.is_reference() {
            let ratio = self.pooled(series, &self.all_rounds(), TAIL);
            let _ = write!(
                text,
                ",\"reference\":{},\"p999_ratio_of_all\":{:.4},\"p999_ratio_of_all_95\":{}",
                quoted(series.way.reference),
                ratio.value,
                list(&[ratio.interval.0, ratio.interval.1])
            );
        }
        text.push('}');
        text
    }
}

fn in_words(estimate: Estimate, digits: usize) -> String {
    let Estimate { value, interval: (low, high) } = estimate;
    format!("{value:.digits$} ({low:.digits$}-{high:.digits$})")
}

fn judged(estimate: Estimate, bar: f64) -> &'static str {
    let (low, high) = estimate.interval;
    if high <= bar {
        "met"
    } else if low > bar {
        "missed"
    } else {
        "undecided"
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Options;
    use super::super::super::copies::Copies;
    use super::super::super::generator::Outcome;
    use super::super::super::scenario::{MIXES, SCENARIOS};
    use super::super::super::ways::WAYS;
    use super::super::Cost;
    use super::*;

    /// Latencies of 1 to 1000 units of `scale` us, the machine slower round by round.
    fn report(scenario: &'static str) -> Report {
        report_of(scenario, 6, |_, scale| (scale, 0.02))
    }

    /// So many rounds; `given` says of each with what scale and share of stolen time it ran, from
    /// the scale it has.
    fn report_of(
        scenario: &'static str,
        rounds: u64,
        given: impl Fn(u64, u64) -> (u64, f64),
    ) -> Report {
        let ways = ["default", "proxy", "default-speculative"]
            .map(|name| WAYS.iter().find(|way| way.name == name));
        let ways: Vec<_> = ways.into_iter().flatten().collect();
        let options = Options { ways, ..Options::default() };
        let mut report = Report::new(options.clone());
        let scenario = SCENARIOS.iter().find(|one| one.name == scenario).unwrap();
        let mut cell = Cell::new(scenario, &MIXES[0], &options.ways);
        for round in 0..rounds {
            for (place, scale) in [(0, 100), (1, 40), (2, 50)] {
                let (scale, stolen) = given(round, scale);
                let units = |range: std::ops::Range<u64>| {
                    range.map(|unit| unit * scale * (10 + round) / 10).collect::<Vec<_>>()
                };
                let outcome = Outcome {
                    halves_us: [units(1..501), units(501..1001)],
                    errors: 1,
                    error: Some("late".to_owned()),
                    elapsed_us: 2_000_000,
                    cpu_us: 50_000,
                    late_us: 70,
                    copies: Copies::default(),
                };
                let (proxy_us, nodes_us, busy) = (20_000.0, 900_000.0, 0.5);
                let copies = Copies { sent: 12.0, won: 5.0, denied: 1.0 };
                let cost = Cost { proxy_us, nodes_us, copies, busy, stolen };
                cell.add(place, Measurement::new(outcome, cost));
            }
        }
        report.add(cell);
        report
    }

    fn row(text: &str, way: &str) -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(&format!("{way} "))).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_row_has_percentiles_cost_and_ratios() {
        let text = report("paused").tables();
        // The middle of 6 x 1000 values; by hand of the scales 1.0 to 1.5: 0.4 of the default's.
        let row = row(&text, "proxy");
        assert_eq!(row[4..10].join(" "), "500.0 6 50 20 900 0.50", "{text}");
        assert_eq!(row[11..].join(" "), "0.40 (0.40-0.40) 0.40 (0.40-0.40) 0.40 (0.40-0.40)");
        assert!(text.contains("proxy: first error: late"), "{text}");
        assert!(text.contains("in 6 of 6 rounds the host gave"), "{text}");
        assert!(text.contains("(in the middle one 2.0 % of the time)"), "{text}");
        let copies = "proxy: copies of 1.20 % of requests, 0.50 % answered first; 0.10 % were";
        assert!(text.contains(copies), "{text}");
        let verdict = "paused, read-heavy: p99.9 of proxy 0.40 (0.40-0.40) of default's; 0.5: met";
        assert!(text.contains(verdict), "{text}");
        let verdict = "p99.9 of proxy 0.80 (0.80-0.80) of default-speculative's; 0.5: missed";
        assert!(text.contains(verdict), "{text}");
    }

    #[test]
    fn every_bar_has_its_verdict() {
        let verdict = "proxy adds -37500 (-45000--30000) us to the p50 of default; 100: met";
        assert!(report("lonely").tables().contains(verdict), "{}", report("lonely").tables());
        assert!(report("calm").tables().contains("0.40 (0.40-0.40) of default's; 1.05: met"));
        assert!(report("joining").tables().contains("proxy: p99.9 29.8 ms before, 59.8 after"));
        assert!(report("closed").tables().contains("proxy: 1.000 (1.000-1.000) of default's ans"));
    }

    #[test]
    fn rounds_that_the_machine_was_shared_in_are_judged_apart() {
        // The proxy's scale is ten times as great in four rounds, in which time was stolen.
        let given = |round, scale| match (round, scale) {
            (0..4, 40) => (400, 0.02),
            _ => (scale, 0.0),
        };
        let text = report_of("calm", 12, given).tables();
        let verdict = "; in the 8 of 12 rounds with no way sent late or robbed, 0.40 (0.40-0.40) \
                       of default's; 1.05: met";
        let line = text.lines().find(|line| line.starts_with("calm, read-heavy: p99.9")).unwrap();
        assert!(line.ends_with(verdict), "{line}");
        assert!(line.contains("of default's; 1.05: missed; in"), "{line}");
        let none = report_of("calm", 12, |_, scale| (scale, 0.0)).tables();
        assert!(!none.contains("rounds with no way"), "{none}");
    }

    #[test]
    fn bars_are_judged_by_intervals() {
        let estimate = |low, high| Estimate { value: 0.5, interval: (low, high) };
        assert_eq!(judged(estimate(0.3, 0.5), 0.5), "met");
        assert_eq!(judged(estimate(0.3, 0.6), 0.5), "undecided");
        assert_eq!(judged(estimate(0.51, 0.6), 0.5), "missed");
    }

    #[test]
    fn json_has_every_round() {
        let json = report("paused").json();
        for part in [
            "\"scenario\":\"paused\",\"mix\":\"read-heavy\",\"note\":null,\"ways\":{\"default\":",
            "\"errors\":[1.0000,1.0000,1.0000,1.0000,1.0000,1.0000]",
            "\"p999_ratio_of_all\":0.4000",
            "\"bars\":[\"paused, read-heavy: p99.9 of proxy",
        ] {
            assert!(json.contains(part), "{part} not in {json}");
        }
    }
}
