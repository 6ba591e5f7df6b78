//! What was measured, as tables for people and as one JSON document.

use std::fmt::Write as _;

use super::Options;
use super::arms::{LOCAL, Profile, SITES, Shares, Sharing};
use super::turn::{Demand, Measurement};
use crate::bench::{list, load_average, processors, quoted, statistics};

/// What plans are held to: late requests as a ratio to those of another arm, in the middle of all
/// rounds.
const BARS: [(&str, f64); 2] = [(LOCAL, 0.25), ("uniform", 0.6)];

/// All rounds, and in what world.
pub(super) struct Report {
    options: Options,
    profile: Profile,
    pub(super) demand: Demand,
    pub(super) split: Shares,
    load_average: String,
    /// By round; each in the order of arms.
    rounds: Vec<Vec<Measurement>>,
}

/// A ratio between two arms in the rounds that count.
struct Ratio {
    values: Vec<f64>,
    /// Of all late requests of these rounds together, and its interval.
    pooled: f64,
    pooled_interval: Option<(f64, f64)>,
}

impl Report {
    pub(super) fn new(options: Options, profile: Profile, demand: Demand, split: Shares) -> Self {
        let load_average = load_average();
        Self { options, profile, demand, split, load_average, rounds: Vec::new() }
    }

    /// Adds a round, in the order of arms.
    pub(super) fn add(&mut self, round: Vec<Measurement>) {
        self.rounds.push(round);
    }

    /// The world: what is known before the first turn.
    pub(super) fn beginning(&self) -> String {
        let Options { objective_ms, near_ms, far_ms, share_percent, .. } = &self.options;
        let Options { quota_period_ms, epoch_ms, settle, seconds, .. } = &self.options;
        let mut text = format!(
            "{}, load {} at the beginning; three nodes of Cassandra 5.0.9, each {share_percent} % \
             of a processor in periods of {quota_period_ms} ms; {near_ms} ms between london and \
             ireland, {far_ms} ms to frankfurt; objective {objective_ms} ms; a plan each \
             {epoch_ms} ms; turns of {settle} + {seconds} s; 4 % writes, consistency ONE\n",
            processors(),
            self.load_average,
        );
        let _ =
            write!(text, "profile: one site can serve {:.0}/s; late:", self.profile.capacity_per_s);
        for (load, late) in &self.profile.curve {
            let _ = write!(text, " {load:.0}/s {:.2} %", 100.0 * late);
        }
        let _ = write!(text, "\ndemand:");
        for ((name, _), per_s) in SITES.iter().zip(self.demand.0) {
            let _ = write!(text, " {name} {per_s:.0}/s");
        }
        let _ = write!(text, "\nfixed split:");
        for ((name, _), row) in SITES.iter().zip(self.split) {
            let row = row.map(|share| format!("{:.0}", 100.0 * share)).join("/");
            let _ = write!(text, " {name} {row} %");
        }
        text.push('\n');
        text
    }

    /// Rounds in which the machine had room for every turn.
    fn quiet(&self) -> Vec<usize> {
        let had_room = |round: &usize| self.rounds[*round].iter().all(Measurement::had_room);
        (0..self.rounds.len()).filter(had_room).collect()
    }

    fn ratio(&self, rounds: &[usize], arm: usize, to: usize) -> Ratio {
        let one = |round: usize| {
            // Half a request where there was none: so few say no more.
            let late = |arm: usize| {
                let turn: &Measurement = &self.rounds[round][arm];
                let requests: f64 = turn.sites.iter().map(|site| site.requests).sum();
                turn.late().max(0.5 / requests.max(1.0))
            };
            (late(arm), late(to))
        };
        let pairs: Vec<(f64, f64)> = rounds.iter().map(|round| one(*round)).collect();
        let pooled = |drawn: &[usize]| {
            let sum = |value: fn(&(f64, f64)) -> f64| {
                drawn.iter().map(|place| value(&pairs[*place])).sum::<f64>()
            };
            sum(|pair| pair.0) / sum(|pair| pair.1)
        };
        Ratio {
            values: pairs.iter().map(|(late, to)| late / to).collect(),
            pooled: pooled(&(0..pairs.len()).collect::<Vec<_>>()),
            pooled_interval: statistics::bootstrap_interval(pairs.len(), pooled),
        }
    }

    /// The arms that plan, each beside each other arm.
    fn comparisons(&self) -> Vec<(usize, usize)> {
        let arms = || self.options.arms.iter().enumerate();
        let planned = arms().filter(|(_, arm)| arm.is_planned()).map(|(place, _)| place);
        planned
            .flat_map(|arm| arms().map(move |(to, _)| (arm, to)).filter(|(arm, to)| arm != to))
            .collect()
    }

    /// The middle and its interval of what each of `rounds` says.
    fn middle(values: &[f64], digits: usize) -> String {
        match statistics::median_interval(values) {
            Some(_) => statistics::interval(values, digits),
            None if values.is_empty() => "none".to_owned(),
            None => format!("{:.digits$}", statistics::median(values)),
        }
    }

    /// For people.
    pub(super) fn tables(&self) -> String {
        let mut text = self.beginning();
        let quiet = self.quiet();
        let _ = writeln!(
            text,
            "{} rounds, of which the machine had room in {}; medians (95 % interval), late in %\n\n\
             {:9} {:>20} {:>20} {:>18} {:>18} {:>7} {:>9} {:>11}",
            self.rounds.len(),
            quiet.len(),
            "arm",
            "late",
            SITES[0].0,
            SITES[1].0,
            SITES[2].0,
            "away",
            "foretold",
            "processors",
        );
        for (place, arm) in self.options.arms.iter().enumerate() {
            text += &self.line(place, arm.name);
        }
        text.push_str(&self.ratios("all rounds", &(0..self.rounds.len()).collect::<Vec<_>>()));
        if quiet.len() < self.rounds.len() {
            text.push_str(&self.ratios("rounds in which the machine had room", &quiet));
        }
        text
    }

    fn line(&self, place: usize, name: &str) -> String {
        let values = |value: &dyn Fn(&Measurement) -> f64| -> Vec<f64> {
            self.rounds.iter().map(|round| value(&round[place])).collect()
        };
        let late = Self::middle(&values(&|turn| 100.0 * turn.late()), 2);
        let of = |site: usize| Self::middle(&values(&|turn| 100.0 * turn.late_of(site)), 1);
        let away = statistics::median(&values(&|turn| 100.0 * turn.away));
        let foretold: Vec<f64> =
            self.rounds.iter().filter_map(|round| round[place].foretold).collect();
        let foretold = match foretold.is_empty() {
            true => "-".to_owned(),
            false => format!("{:.2}", 100.0 * statistics::median(&foretold)),
        };
        let busy = values(&|turn| turn.nodes_busy + turn.proxies_busy + turn.others_busy);
        format!(
            "{name:9} {late:>20} {:>20} {:>18} {:>18} {away:>7.1} {foretold:>9} {:>11.2}\n",
            of(0),
            of(1),
            of(2),
            statistics::median(&busy),
        )
    }

    fn ratios(&self, title: &str, rounds: &[usize]) -> String {
        let mut text = format!("\nratios of late requests, {title}:\n");
        if rounds.is_empty() {
            text.push_str("  none\n");
            return text;
        }
        for (arm, to) in self.comparisons() {
            let ratio = self.ratio(rounds, arm, to);
            let names = [arm, to].map(|place| self.options.arms[place].name);
            let together = ratio.pooled_interval.map_or(String::new(), |(low, high)| {
                format!(", together {:.3} ({low:.3}-{high:.3})", ratio.pooled)
            });
            let bar = bar(names[1], self.options.arms[arm].sharing).map_or(String::new(), |bar| {
                let middle = statistics::median(&ratio.values);
                format!(", bar {bar}: {}", if middle <= bar { "kept" } else { "missed" })
            });
            let middle = Self::middle(&ratio.values, 3);
            let _ = writeln!(text, "  {} / {}: {middle}{together}{bar}", names[0], names[1]);
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> String {
        let arms = self.options.arms.iter().enumerate().map(|(place, arm)| {
            let values = |value: &dyn Fn(&Measurement) -> f64| {
                list(&self.rounds.iter().map(|round| value(&round[place])).collect::<Vec<_>>())
            };
            let of_sites = SITES.iter().enumerate().map(|(site, (name, _))| {
                format!("{}:{}", quoted(name), values(&|turn| turn.late_of(site)))
            });
            format!(
                "{{\"arm\":{},\"late\":{},\"late_by_site\":{{{}}},\"requests\":{},\"failed\":{},\
                 \"away\":{},\"foretold\":{},\"nodes_busy\":{},\"proxies_busy\":{},\
                 \"others_busy\":{},\"stolen\":{},\"send_lag_p99_ms\":{}}}",
                quoted(arm.name),
                values(&Measurement::late),
                of_sites.collect::<Vec<_>>().join(","),
                values(&|turn| turn.sites.iter().map(|site| site.requests).sum()),
                values(&|turn| turn.sites.iter().map(|site| site.failed).sum()),
                values(&|turn| turn.away),
                // No number is not a number in JSON.
                values(&|turn| turn.foretold.unwrap_or(-1.0)),
                values(&|turn| turn.nodes_busy),
                values(&|turn| turn.proxies_busy),
                values(&|turn| turn.others_busy),
                values(&|turn| turn.stolen),
                values(&Measurement::lag_ms),
            )
        });
        let arms: Vec<String> = arms.collect();
        let all: Vec<usize> = (0..self.rounds.len()).collect();
        let ratios = self.comparisons().into_iter().map(|(arm, to)| {
            let names = [arm, to].map(|place| quoted(self.options.arms[place].name));
            let ratio = self.ratio(&all, arm, to);
            let (low, high) = ratio.pooled_interval.unwrap_or((-1.0, -1.0));
            format!(
                "{{\"arm\":{},\"to\":{},\"rounds\":{},\"together\":{:.4},\"interval\":{}}}",
                names[0],
                names[1],
                list(&ratio.values),
                ratio.pooled,
                list(&[low, high]),
            )
        });
        let quiet: Vec<f64> = self.quiet().into_iter().map(|round| round as f64).collect();
        format!(
            "{{\"world\":{},\"capacity_per_s\":{:.1},\"demand_per_s\":{},\"split\":[{}],\
             \"quiet_rounds\":{},\"arms\":[{}],\"ratios\":[{}]}}",
            quoted(self.beginning().trim()),
            self.profile.capacity_per_s,
            list(&self.demand.0),
            self.split.map(|row| list(&row)).join(","),
            list(&quiet),
            arms.join(","),
            ratios.collect::<Vec<_>>().join(","),
        )
    }
}

fn bar(to: &str, sharing: Sharing) -> Option<f64> {
    let is_held = matches!(sharing, Sharing::Plan | Sharing::Fixed);
    BARS.iter().find(|(name, _)| is_held && *name == to).map(|(_, bar)| *bar)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::bench_sites::turn::Outcome;

    fn turn(late: f64, lag_ms: f64) -> Measurement {
        let mut turn = Measurement::default();
        turn.add(0, Outcome { requests: 100.0, late, lag_ms, ..Outcome::default() });
        turn.add(1, Outcome { requests: 300.0, ..Outcome::default() });
        turn
    }

    /// Rounds by the late requests of local, uniform, split, plan and plan by the profile alone.
    fn report(rounds: &[[f64; 5]]) -> Report {
        let path = PathBuf::from("store.profile.toml");
        let profile = Profile { path, capacity_per_s: 700.0, curve: vec![(150.0, 0.0)] };
        let split = [[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
        let demand = Demand([735.0, 280.0, 280.0]);
        let mut report = Report::new(Options::default(), profile, demand, split);
        for (number, round) in rounds.iter().enumerate() {
            let lag_ms = if number == 0 { 9.0 } else { 0.1 };
            report.add(round.iter().map(|late| turn(*late, lag_ms)).collect());
        }
        report
    }

    /// Late requests of the arm at a place beside those of another, in the middle of all rounds.
    fn middle_ratio(report: &Report, arm: usize, to: usize) -> f64 {
        let all: Vec<usize> = (0..report.rounds.len()).collect();
        statistics::median(&report.ratio(&all, arm, to).values)
    }

    #[test]
    fn ratios_are_within_rounds_and_bars_are_held_against_their_middle() {
        let rounds =
            [[40.0, 10.0, 4.0, 8.0, 2.0], [80.0, 10.0, 4.0, 8.0, 2.0], [20.0, 10.0, 4.0, 4.0, 2.0]];
        let report = report(&rounds);
        let is = |ratio: f64, expected: f64| (ratio - expected).abs() < 1e-9;
        assert!(is(middle_ratio(&report, 3, 0), 0.2) && is(middle_ratio(&report, 3, 1), 0.8));
        let text = report.tables();
        assert!(text.contains("plan / local: 0.200, together 0.143"), "{text}");
        assert!(text.contains("bar 0.25: kept") && text.contains("bar 0.6: missed"), "{text}");
        assert!(text.contains("3 rounds, of which the machine had room in 2"), "{text}");
    }

    #[test]
    fn the_document_is_json_and_has_every_round() {
        let report = report(&[[40.0, 10.0, 4.0, 0.0, 2.0]; 6]);
        let document: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(document["arms"][3]["arm"], "plan");
        assert_eq!(document["arms"][0]["late"].as_array().unwrap().len(), 6);
        assert_eq!(document["quiet_rounds"].as_array().unwrap().len(), 5);
        // Half a request where none was late: an eightieth of 40.
        assert_eq!(document["ratios"][0]["rounds"][0], 0.0125);
    }
}
