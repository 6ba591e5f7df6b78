//! What a run showed.

use core::mem::Discriminant;

use evenkeel_core::distribution::{Distribution, Recorder};
use evenkeel_core::time::millis;
use evenkeel_core::units::Probability;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Duration, Instant};
use serde::Serialize;

use crate::capacity::Outcome;
use crate::duplicates::layout::Layout;
use crate::duplicates::report::of_notes;
use crate::duplicates::{self, Deployment, DuplicatesReport};
use crate::ends::{End, Ends};
use crate::placement::day::{Day, PlacementReport, Strategy};
use crate::redirect::{RedirectReport, SiteWindow};
use crate::sampler::{LoadReport, Loads, WindowReport, Windows};
use crate::scenario::{Prices, Scenario};

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The result of one run: the keys that users script against, and more.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunReport {
    /// The policy, as the scenario wrote it.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// Requests that arrived after the warm-up.
    pub requests: u64,
    /// Of them answered without error.
    pub served: u64,
    /// Of them failed or refused.
    pub failed: u64,
    /// Of them given up by the caller.
    pub timeouts: u64,
    /// Of them served with all optional content (in slots there is none).
    pub optional: u64,
    /// `served` over `requests`.
    pub served_ratio: f64,
    /// `optional` over `requests`.
    pub optional_ratio: f64,
    /// Requests served later than the objective or not at all, where the scenario sets one
    /// (`workload.objective`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violations: Option<u64>,
    /// Mean latency of the served, from arrival, backlog included.
    pub mean_ms: f64,
    /// Quantiles of the same, to three significant digits.
    pub p50_ms: f64,
    /// 95th percentile.
    pub p95_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Calls that were held at the client for a sending rate.
    pub held: u64,
    /// Retries sent.
    pub retries: u64,
    /// Hedges sent.
    pub hedges: u64,
    /// Requests that moved as they had to wait for a slot.
    #[serde(skip_serializing_if = "is_zero")]
    pub moves: u64,
    /// Attempts sent in all, mirrors included.
    pub attempts: u64,
    /// Requests that arrived in all, in the warm-up too.
    pub arrived: u64,
    /// Probes sent in all.
    pub probes: u64,
    /// Work of copies that nobody waited for any more, over the work of answers; absent on shared
    /// cores and where nothing was answered. Mirrors are neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_work_ratio: Option<f64>,
    /// Virtual time the run took.
    pub virtual_s: f64,
    /// Events that happened.
    pub events: u64,
    /// Digest over the time and kind of every event and every choice of a replica: equal runs
    /// have equal digests.
    pub digest: String,
    /// Simulated requests (warm-up included) per second of CPU time; absent where equal runs
    /// must print equally.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_cpu_s: Option<f64>,
    /// The parts of each tier, where requests have parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<TierReport>,
    /// Latency over time, where the scenario asks for it (`run.window`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<WindowReport>,
    /// Load of the replicas, where the scenario asks for it (`run.load_every`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadReport>,
    /// Who served whom, where there are several data centres.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redirect: Option<RedirectReport>,
    /// What it cost by the scenario's prices, where it has some.
    #[serde(flatten)]
    pub priced: Option<Priced>,
    /// What it cost, where that was asked for in place of latencies.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bill: Option<Outcome>,
    /// What a strategy of placement came to, where databases were placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placement: Option<PlacementReport>,
    /// What partitions of duplicates came to, where stores were duplicated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<DuplicatesReport>,
}

/// What a run between data centres cost, by the scenario's prices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Priced {
    /// Violations, lost content, redirects and copies together: as many violations in 1,000
    /// requests.
    pub cost: f64,
    /// Share of the requests that missed the objective or were not served.
    pub late: f64,
    /// Share that was served without optional content.
    pub lean: f64,
    /// Share that another site served.
    pub away: f64,
    /// Node time that copies took, in seconds per 1,000 requests.
    pub copies_s: f64,
    /// Share of the windows in which more than 5 % were violations; absent without `run.window`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_windows: Option<f64>,
}

/// The parts of a tier that were answered, each by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TierReport {
    /// How many.
    pub served: u64,
    /// Quantiles of their latency, as their client saw it.
    pub p50_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
    /// 99.9th percentile.
    pub p999_ms: f64,
}

impl TierReport {
    fn of(parts: &Recorder) -> Self {
        let quantile = |p: f64| millis(parts.quantile(Probability::clamped(p)));
        Self {
            served: parts.count(),
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
        }
    }
}

impl RunReport {
    /// The report of a run that is a bill: what a strategy of capacity costs, by its name.
    pub fn of_bill(strategy: &str, seed: u64, bill: Outcome) -> Self {
        Self { policy: strategy.to_owned(), seed, bill: Some(bill), ..Self::default() }
    }

    /// The report of a day of a fleet under a strategy.
    ///
    /// # Panics
    /// When there is no strategy of that name.
    pub fn of_day(day: &Day, strategy: &str, seed: u64) -> Self {
        let named = Strategy::named(strategy).expect("strategies are checked when read");
        let placement = Some(day.run(named, seed));
        Self { policy: strategy.to_owned(), seed, placement, ..Self::default() }
    }

    /// The report of duplicated stores under a policy.
    ///
    /// # Panics
    /// When the policy is none: policies are checked when read.
    pub fn of_duplicates(deployment: &Deployment, policy: &str, seed: u64) -> Self {
        let layout = Layout::parse(policy, deployment.workload.shards);
        let layout = layout.expect("policies are checked when read");
        let notes = duplicates::world::run(deployment, &layout, seed);
        let latency = |p: f64| millis(notes.latency.quantile(Probability::clamped(p)));
        Self {
            policy: policy.to_owned(),
            seed,
            requests: notes.batches,
            served: notes.batches,
            served_ratio: 1.0,
            violations: Some(notes.violations),
            mean_ms: millis(notes.latency.mean()),
            p50_ms: latency(0.5),
            p95_ms: latency(0.95),
            p99_ms: latency(0.99),
            p999_ms: latency(0.999),
            max_ms: millis(notes.latency.max()),
            attempts: notes.served + notes.skipped,
            virtual_s: notes.end.as_secs_f64(),
            events: notes.events,
            digest: notes.digest(),
            duplicates: Some(of_notes(deployment, &layout, &notes, seed)),
            ..Self::default()
        }
    }
}

/// Counts while a run goes on.
#[derive(Debug)]
pub(crate) struct Tally {
    latency: Recorder,
    /// Of the parts of each tier.
    parts: Vec<Recorder>,
    ends: Ends,
    /// Later is a violation.
    objective: Option<Duration>,
    prices: Option<Prices>,
    /// Core time that hedges were, seconds; those of the warm-up too.
    pub(crate) copies_s: f64,
    window: RequestWindow,
    events: u64,
    digest: u64,
    windows: Option<Windows>,
    pub(crate) loads: Loads,
    pub(crate) arrived: u64,
    pub(crate) probes: u64,
    pub(crate) executed: Executed,
}

/// The time in slots that requests took.
#[derive(Debug, Default)]
pub(crate) struct Executed {
    /// Of copies that were answered to somebody who waited.
    pub(crate) answered: Duration,
    /// Of the others.
    pub(crate) extra: Duration,
}

impl Executed {
    fn extra_ratio(&self) -> Option<f64> {
        let is_known = !self.answered.is_zero();
        is_known.then(|| self.extra.as_secs_f64() / self.answered.as_secs_f64())
    }
}

fn recorder() -> Recorder {
    Recorder::new(3).expect("3 digits are possible")
}

impl Tally {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let objective = scenario.workload.objective;
        Self {
            latency: recorder(),
            parts: scenario.tiers.iter().map(|_| recorder()).collect(),
            ends: Ends::default(),
            objective: (!objective.is_zero()).then_some(objective),
            prices: scenario.geography.as_ref().and_then(|geography| geography.prices),
            copies_s: 0.0,
            window: RequestWindow::default(),
            events: 0,
            digest: 0xcbf2_9ce4_8422_2325,
            windows: Windows::new(scenario.run.window),
            loads: Loads::default(),
            arrived: 0,
            probes: 0,
            executed: Executed::default(),
        }
    }

    #[inline]
    pub(crate) fn note_event<E>(&mut self, at: Instant, kind: Discriminant<E>) {
        use core::hash::{Hash, Hasher};
        let mut kind_only = Fnv(self.digest ^ at.as_nanos());
        kind.hash(&mut kind_only);
        self.digest = kind_only.finish();
        self.events += 1;
    }

    /// A copy was sent to this replica.
    #[inline]
    pub(crate) fn note_choice(&mut self, replica: usize) {
        use core::hash::Hasher;
        let mut digest = Fnv(self.digest);
        digest.write_u64(replica as u64);
        self.digest = digest.0;
    }

    /// A call ended; true when that is a violation of the objective.
    #[inline]
    pub(crate) fn note_end(&mut self, warm: bool, latency: Duration, end: End) -> bool {
        let is_late = self.objective.is_some_and(|objective| latency > objective);
        let is_served = matches!(end, End::Served { .. });
        let is_violation = self.objective.is_some() && (is_late || !is_served);
        if let Some(windows) = &mut self.windows {
            windows.note(latency, end, is_violation);
        }
        if warm {
            self.ends.note(end, is_violation);
            if is_served {
                self.latency.record(latency);
            }
        }
        is_violation
    }

    /// A part of a tier ended.
    pub(crate) fn note_part(&mut self, tier: usize, warm: bool, latency: Duration, end: End) {
        if warm && matches!(end, End::Served { .. }) {
            self.parts[tier].record(latency);
        }
    }

    /// When the window that runs ends; never when nobody asked for windows.
    pub(crate) fn window_ends(&self) -> Instant {
        self.windows.as_ref().map_or(Instant::FAR, Windows::ends)
    }

    /// Ends the window that runs, at which the replicas had this dimmer on average.
    pub(crate) fn end_window(&mut self, dimmer: Option<f64>) {
        if let Some(windows) = &mut self.windows {
            windows.close(dimmer);
        }
    }

    pub(crate) fn add_window(&mut self, window: &RequestWindow) {
        self.window.merge(window);
    }

    /// The latencies of the served.
    pub(crate) fn into_latencies(self) -> Recorder {
        self.latency
    }

    /// What the run cost.
    fn priced(&self, redirect: &RedirectReport, windows: &[WindowReport]) -> Option<Priced> {
        let prices = self.prices?;
        let all = self.ends.all().max(1) as f64;
        let late = self.ends.violations as f64 / all;
        let lean = (self.ends.served - self.ends.optional) as f64 / all;
        let away = redirect.redirected_ratio;
        let copies_s = 1e3 * self.copies_s / self.arrived.max(1) as f64;
        let is_late = |window: &&WindowReport| window.violations * 20 > window.calls();
        let late_windows = windows.iter().filter(is_late).count() as f64;
        let each = prices.wan.mul_add(away, prices.optional.mul_add(lean, late));
        Some(Priced {
            cost: prices.node.mul_add(copies_s, 1e3 * each),
            late,
            lean,
            away,
            copies_s,
            late_windows: (!windows.is_empty()).then(|| late_windows / windows.len() as f64),
        })
    }

    pub(crate) fn into_report(
        mut self,
        policy: &str,
        seed: u64,
        end: Instant,
        sites: Option<(RedirectReport, Vec<Vec<SiteWindow>>)>,
    ) -> RunReport {
        let mut windows = self.windows.take().map(Windows::into_reports).unwrap_or_default();
        let (redirect, of_sites) = sites.unzip();
        for (window, of_sites) in windows.iter_mut().zip(of_sites.unwrap_or_default()) {
            window.sites = of_sites;
        }
        let priced = redirect.as_ref().and_then(|redirect| self.priced(redirect, &windows));
        let quantile = |p: f64| millis(self.latency.quantile(Probability::clamped(p)));
        let requests = self.ends.all();
        let share = |part: u64| part as f64 / requests.max(1) as f64;
        RunReport {
            policy: policy.to_owned(),
            seed,
            requests,
            served: self.ends.served,
            failed: self.ends.failed,
            timeouts: self.ends.timeouts,
            optional: self.ends.optional,
            served_ratio: share(self.ends.served),
            optional_ratio: share(self.ends.optional),
            violations: self.objective.map(|_| self.ends.violations),
            mean_ms: millis(self.latency.mean()),
            p50_ms: quantile(0.5),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            p999_ms: quantile(0.999),
            max_ms: millis(self.latency.max()),
            held: self.window.held,
            retries: self.window.retries,
            hedges: self.window.hedges,
            moves: self.window.moves,
            attempts: self.window.replicas.iter().map(|replica| replica.sent).sum(),
            arrived: self.arrived,
            probes: self.probes,
            extra_work_ratio: self.executed.extra_ratio(),
            virtual_s: end.as_secs_f64(),
            events: self.events,
            digest: format!("{:016x}", self.digest),
            requests_per_cpu_s: None,
            tiers: self.parts.iter().map(TierReport::of).collect(),
            windows,
            load: self.loads.into_report(),
            redirect,
            priced,
            bill: None,
            placement: None,
            duplicates: None,
        }
    }
}

/// FNV-1a over 64-bit words: fast, and good enough to tell two runs apart.
struct Fnv(u64);

impl core::hash::Hasher for Fnv {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }

    #[inline]
    fn write_isize(&mut self, word: isize) {
        self.write_u64(word as u64);
    }
}
