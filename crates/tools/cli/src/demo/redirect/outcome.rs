//! What was seen of the sites, for people and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use evenkeel_geo::demand::SplitTally;
use evenkeel_geo::epoch::SiteId;
use evenkeel_load::{Latencies, Outcome};
use evenkeel_mesh::RedirectState;
use evenkeel_sim::redirect::RedirectReport;
use evenkeel_sim::scenario::Geography;
use evenkeel_sim::{RunReport, Scenario};
use serde::Serialize;

use super::sites::Sites;
use crate::terminal::{Table, ms, ms_if_known, percent};

/// The whole demo.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    pub(super) runs: &'a [Run],
    pub(super) cut: Option<&'a Cut>,
    pub(super) scenario: &'a Scenario,
}

impl Document<'_> {
    /// Whether equal rows always made equal plans, and sites had the same rows most of the time:
    /// on a machine that is busy with something else some come too late.
    pub(super) fn all_agreed(&self) -> bool {
        let agreed = |run: &Run| run.epochs_broken == 0 && run.epochs_apart * 4 <= run.epochs;
        self.runs.iter().all(agreed)
    }
}

/// What was measured of one policy, and what the simulator had foretold.
#[derive(Debug, Serialize)]
pub(super) struct Run {
    pub(super) policy: String,
    seed: u64,
    requests: u64,
    served: u64,
    pub(super) failed: u64,
    pub(super) timeouts: u64,
    pub(super) p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    p999_ms: Option<f64>,
    /// Share of all requests that failed or took longer than the objective, seen by users.
    pub(super) violation_ratio: f64,
    /// Share of the served that had no optional content, where there is some.
    pub(super) lean_ratio: Option<f64>,
    /// Share of requests that another site served.
    pub(super) redirected_ratio: f64,
    /// Of requests that their own site served, as its proxy saw it: share of violations.
    home_violation_ratio: Option<f64>,
    /// What plans predicted of it.
    home_predicted_ratio: Option<f64>,
    /// The same of requests that another site served.
    away_violation_ratio: Option<f64>,
    /// What plans predicted of it.
    away_predicted_ratio: Option<f64>,
    /// Epochs in which more than one site planned.
    epochs: usize,
    /// Of these, those in which sites held different plans: a row came too late to one of them.
    epochs_apart: usize,
    /// Of these, those with different plans from the same rows, which must not be.
    epochs_broken: usize,
    /// Bytes sent over meshes per second and site.
    mesh_bytes_per_s: f64,
    pub(super) sites: Vec<Site>,
    pub(super) simulated: RunReport,
}

/// The users of one site.
#[derive(Debug, Serialize)]
pub(super) struct Site {
    name: String,
    requests: u64,
    violation_ratio: f64,
    p99_ms: Option<f64>,
    /// By the site that served: how many, as its proxy saw it.
    served_at: Vec<u64>,
    /// The last plan in words.
    flows: Vec<String>,
    pub(super) doubt: Option<String>,
}

/// Looks at sites while they are loaded.
pub(super) struct Watch<'a> {
    sites: &'a Sites,
    geography: &'a Geography,
    policy: &'a str,
    elapsed: Duration,
    before: Option<Vec<SplitTally>>,
    bytes_before: u64,
    warm_at: Duration,
    epochs: Vec<Option<u64>>,
    /// By epoch, how many sites planned, and from which rows to which plans.
    plans: BTreeMap<u64, (usize, BTreeSet<(String, String)>)>,
    /// Requests and violations that plans foretold, at home and away.
    predicted: [(f64, f64); 2],
}

impl<'a> Watch<'a> {
    pub(super) fn new(sites: &'a Sites, geography: &'a Geography, policy: &'a str) -> Self {
        Self {
            sites,
            geography,
            policy,
            elapsed: Duration::ZERO,
            before: None,
            bytes_before: 0,
            warm_at: Duration::ZERO,
            epochs: vec![None; geography.sites.len()],
            plans: BTreeMap::new(),
            predicted: [(0.0, 0.0); 2],
        }
    }

    /// Looks at all sites; what comes while it is not warm yet is not counted.
    pub(super) fn look(&mut self, elapsed: Duration, is_warm: bool) {
        self.elapsed = elapsed;
        if is_warm && self.before.is_none() {
            self.before = Some(self.tallies());
            self.bytes_before = self.mesh_bytes();
            self.warm_at = elapsed;
        }
        for site in 0..self.epochs.len() {
            let Some(state) = self.state(site) else { continue };
            let Some(plan) = &state.plan else { continue };
            if self.epochs[site] == Some(plan.epoch) {
                continue;
            }
            self.epochs[site] = Some(plan.epoch);
            if is_warm {
                let held = self.plans.entry(plan.epoch).or_default();
                held.0 += 1;
                held.1.insert((plan.inputs.clone(), plan.hash.clone()));
                let own = plan.pairs.iter().filter(|pair| pair.from == state.site);
                for pair in own {
                    let side = &mut self.predicted[usize::from(pair.to != pair.from)];
                    side.0 += pair.rate_per_s;
                    side.1 += pair.rate_per_s * pair.missed_share;
                }
            }
        }
    }

    pub(super) fn tallies(&self) -> Vec<SplitTally> {
        let tally_of = |site| self.sites.process(site).upstreams().split_tally(0);
        (0..self.epochs.len()).map(tally_of).collect()
    }

    pub(super) fn state(&self, site: usize) -> Option<std::sync::Arc<RedirectState>> {
        Some(self.sites.process(site).redirect()?.borrow().clone())
    }

    fn mesh_bytes(&self) -> u64 {
        let bytes = |site| self.state(site).map_or(0, |state| state.counts.bytes_sent);
        (0..self.epochs.len()).map(bytes).sum()
    }

    /// The live view.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines =
            vec![format!("\x1b[1m{}\x1b[0m  {:.0} s", self.policy, self.elapsed.as_secs_f64())];
        for (site, of) in self.geography.sites.iter().enumerate() {
            let state = self.state(site);
            let plan = state.as_ref().and_then(|state| state.plan.as_ref());
            let own = plan.into_iter().flat_map(|plan| &plan.pairs);
            let sent = own.filter(|pair| pair.from == of.name && pair.to != of.name);
            let sent: Vec<String> =
                sent.map(|pair| format!("{:.0}/s to {}", pair.rate_per_s, pair.to)).collect();
            let missed = state.and_then(|state| state.sites.get(site)?.missed_share);
            let missed = missed
                .map_or_else(String::new, |missed| format!("  {:>4.1} % late", missed * 100.0));
            let sent = match sent.is_empty() {
                true => String::new(),
                false => format!("  sends {}", sent.join(", ")),
            };
            lines.push(format!("  {:<12}{missed}{sent}", of.name));
        }
        let dashboard = self.sites.admin(0);
        lines.push(format!("  \x1b[2mdashboard: http://{dashboard}/\x1b[0m"));
        lines
    }

    /// What came of it.
    pub(super) fn end(
        self,
        scenario: &Scenario,
        outcomes: &[Outcome],
        simulated: RunReport,
    ) -> Run {
        std::thread::sleep(Duration::from_millis(250)); // the workers' last report
        let tallies = self.tallies();
        let before = self.before.clone().unwrap_or_default();
        let objective = scenario.workload.objective;
        let mut all = Latencies::default();
        outcomes.iter().for_each(|outcome| all.merge(&outcome.latency));
        let sum = |of: &dyn Fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
        let requests = sum(&|outcome| outcome.report.requests);
        let late = sum(&|outcome| missed(outcome, objective));
        let [home, away] = sides(&tallies, &before);
        let [home_predicted, away_predicted] = self.predicted;
        let shared = self.plans.values().filter(|(sites, _)| *sites > 1);
        let warm_s = (self.elapsed.saturating_sub(self.warm_at)).as_secs_f64();
        let bytes = self.mesh_bytes().saturating_sub(self.bytes_before) as f64;
        let site = |(number, outcome): (usize, &Outcome)| Site {
            name: self.geography.sites[number].name.clone(),
            requests: outcome.report.requests,
            violation_ratio: missed(outcome, objective) as f64
                / outcome.report.requests.max(1) as f64,
            p99_ms: outcome.report.latency.p99_ms,
            served_at: served_at(&tallies[number], before.get(number)),
            flows: self
                .state(number)
                .and_then(|state| Some(state.plan.as_ref()?.flows.clone()))
                .unwrap_or_default(),
            doubt: outcome.report.doubt(),
        };
        Run {
            policy: self.policy.to_owned(),
            seed: simulated.seed,
            requests,
            served: sum(&|outcome| outcome.report.served),
            failed: sum(&|outcome| outcome.report.failed),
            timeouts: sum(&|outcome| outcome.report.timeouts),
            p50_ms: all.quantile_ms(0.5),
            p95_ms: all.quantile_ms(0.95),
            p99_ms: all.quantile_ms(0.99),
            p999_ms: all.quantile_ms(0.999),
            violation_ratio: late as f64 / requests.max(1) as f64,
            lean_ratio: scenario.work.is_some().then(|| {
                let full = sum(&|outcome| outcome.report.optional) as f64;
                1.0 - full / sum(&|outcome| outcome.report.served).max(1) as f64
            }),
            redirected_ratio: ratio(away.0, home.0 + away.0).unwrap_or(0.0),
            home_violation_ratio: ratio(home.1, home.0),
            home_predicted_ratio: ratio(home_predicted.1, home_predicted.0),
            away_violation_ratio: ratio(away.1, away.0),
            away_predicted_ratio: ratio(away_predicted.1, away_predicted.0),
            epochs: shared.clone().count(),
            epochs_apart: shared.clone().filter(|(_, plans)| has_several(plans)).count(),
            epochs_broken: shared.filter(|(_, plans)| is_broken(plans)).count(),
            mesh_bytes_per_s: bytes / warm_s.max(1e-9) / self.epochs.len() as f64,
            sites: outcomes.iter().enumerate().map(site).collect(),
            simulated,
        }
    }
}

fn has_several(plans: &BTreeSet<(String, String)>) -> bool {
    plans.iter().map(|(_, plan)| plan).collect::<BTreeSet<_>>().len() > 1
}

fn is_broken(plans: &BTreeSet<(String, String)>) -> bool {
    plans.iter().map(|(rows, _)| rows).collect::<BTreeSet<_>>().len() < plans.len()
}

/// Requests of an outcome that failed or took longer than the objective.
fn missed(outcome: &Outcome, objective: Duration) -> u64 {
    let nanos = u64::try_from(objective.as_nanos()).unwrap_or(u64::MAX);
    let histogram = outcome.latency.histogram();
    let within = histogram.count_between(0, nanos);
    (histogram.len() - within) + outcome.report.failed
}

/// Requests and violations at home and away, of all sites' users.
fn sides(tallies: &[SplitTally], before: &[SplitTally]) -> [(f64, f64); 2] {
    let mut sides = [(0.0, 0.0); 2];
    for (from, tally) in tallies.iter().enumerate() {
        for (to, counts) in tally.by_site.iter().enumerate() {
            let earlier = before.get(from).and_then(|before| before.by_site.get(to));
            let earlier = earlier.copied().unwrap_or_default();
            let side = &mut sides[usize::from(from != to)];
            side.0 += (counts.ended - earlier.ended) as f64;
            side.1 += (counts.missed - earlier.missed) as f64;
        }
    }
    sides
}

fn served_at(tally: &SplitTally, before: Option<&SplitTally>) -> Vec<u64> {
    let earlier =
        |to: usize| before.and_then(|before| before.by_site.get(to)).map_or(0, |it| it.ended);
    tally.by_site.iter().enumerate().map(|(to, counts)| counts.ended - earlier(to)).collect()
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

/// A site that was cut off in the middle of a run.
#[derive(Debug, Serialize)]
pub(super) struct Cut {
    site: String,
    period_s: f64,
    /// When, in seconds since the load began.
    at_s: Option<f64>,
    /// How long after it another site last sent a request there, in seconds; workers say so every
    /// 0.2 s.
    last_sent_after_s: f64,
    /// How long after it all others planned without it, in seconds.
    planned_without_after_s: Option<f64>,
    /// Requests of all sites' users that failed, before and after.
    failed: u64,
    requests: u64,
    #[serde(skip)]
    sent: Option<u64>,
}

impl Cut {
    pub(super) fn new(site: &str, period: Duration) -> Self {
        Self {
            site: site.to_owned(),
            period_s: period.as_secs_f64(),
            at_s: None,
            last_sent_after_s: 0.0,
            planned_without_after_s: None,
            failed: 0,
            requests: 0,
            sent: None,
        }
    }

    /// Whether it is to be cut now: the first time it is asked for.
    pub(super) fn begin(&mut self, elapsed: Duration) -> bool {
        let is_first = self.at_s.is_none();
        self.at_s.get_or_insert(elapsed.as_secs_f64());
        is_first
    }

    pub(super) fn look(&mut self, elapsed: Duration, watch: &Watch<'_>, victim: SiteId) {
        let Some(at_s) = self.at_s else { return };
        let after_s = elapsed.as_secs_f64() - at_s;
        let tallies = watch.tallies();
        let counts = |tally: &SplitTally, to: usize| -> u64 {
            tally.workers.iter().map(|window| window.by_site[to].sent).sum()
        };
        let others = tallies.iter().enumerate().filter(|(from, _)| *from != victim.index());
        let sent: u64 = others.map(|(_, tally)| counts(tally, victim.index())).sum();
        if self.sent.replace(sent).is_none_or(|before| sent > before) {
            self.last_sent_after_s = after_s;
        }
        let is_without = |site: usize| {
            let state = watch.state(site);
            let plan = state.as_ref().and_then(|state| state.plan.as_ref());
            plan.is_some_and(|plan| !plan.members.contains(&self.site))
        };
        let all_without = (0..tallies.len()).filter(|site| *site != victim.index()).all(is_without);
        if all_without {
            self.planned_without_after_s.get_or_insert(after_s);
        }
    }

    pub(super) fn end(&mut self, outcomes: &[Outcome]) {
        let reports = || outcomes.iter().map(|outcome| &outcome.report);
        self.failed = reports().map(|report| report.failed + report.timeouts).sum();
        self.requests = reports().map(|report| report.requests).sum();
    }

    fn words(&self) -> String {
        let without = self.planned_without_after_s.map_or_else(
            || "the others never planned without it".to_owned(),
            |after| format!("the others planned without it {after:.1} s later"),
        );
        format!(
            "{} was cut off in the middle of a run (an epoch is {} s): {without}, the last request \
             was sent there {:.1} s later. {} of {} requests failed.\n",
            self.site, self.period_s, self.last_sent_after_s, self.failed, self.requests
        )
    }
}

pub(super) fn closing_words(document: &Document<'_>) -> String {
    let mut table = Table::of(
        "policy | late | p99 ms | redirected | home late | predicted | away late | predicted | \
         simulated late | redirected",
    );
    for run in document.runs {
        let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), percent);
        let simulated = run.simulated.redirect.as_ref();
        let mut cells = vec![run.policy.clone(), percent(run.violation_ratio)];
        cells.push(ms_if_known(run.p99_ms));
        cells.push(percent(run.redirected_ratio));
        let sides = [
            run.home_violation_ratio,
            run.home_predicted_ratio,
            run.away_violation_ratio,
            run.away_predicted_ratio,
        ];
        cells.extend(sides.map(optional));
        cells.push(optional(simulated.and_then(simulated_late)));
        cells.push(optional(simulated.map(|report| report.redirected_ratio)));
        table.row(cells);
    }
    let mut text = format!(
        "\n{} sites, {:.0} requests/s, the same arrivals for every policy. Late: longer than {:.0} \
         ms or failed.\nHome and away: served by the users' own site or by another, as its proxy \
         saw it, and what\nthe plans had predicted. The last two columns are the \
         simulator's results.\n\n{table}\n",
        document.scenario.geography.as_ref().map_or(0, |geography| geography.sites.len()),
        document.scenario.rate(),
        document.scenario.workload.objective.as_secs_f64() * 1e3,
    );
    for run in document.runs {
        text += &of_sites(run);
    }
    if let Some(cut) = document.cut {
        text += &cut.words();
    }
    text
}

fn of_sites(run: &Run) -> String {
    let mut text = format!("{}\n", run.policy);
    for site in &run.sites {
        let (late, p99) = (percent(site.violation_ratio), site.p99_ms.map_or(0.0, |p99| p99));
        text += &format!("  {:<12} {late:>7} late, p99 {} ms\n", site.name, ms(p99));
    }
    let flows = run.sites.first().map(|site| site.flows.as_slice()).unwrap_or_default();
    flows.iter().for_each(|flow| text += &format!("  {flow}\n"));
    if run.epochs > 0 {
        text += &format!(
            "  {} epochs, {} of them with different plans; {:.1} kB/s of mesh for each site\n",
            run.epochs,
            run.epochs_apart,
            run.mesh_bytes_per_s * 1e-3
        );
    }
    let doubt = run.sites.iter().find_map(|site| site.doubt.as_ref());
    text += &doubt.map_or_else(String::new, |doubt| format!("  Note: {doubt}\n"));
    text + "\n"
}

fn simulated_late(report: &RedirectReport) -> Option<f64> {
    let requests: u64 = report.sites.iter().map(|site| site.requests).sum();
    let late: u64 = report.sites.iter().map(|site| site.violations).sum();
    ratio(late as f64, requests as f64)
}
