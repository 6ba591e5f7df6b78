//! One site's control loop: what it measures becomes a row, what comes back a plan.

use evenkeel_core::time::nanos;
use evenkeel_core::units::Probability;
use evenkeel_core::{Duration, Instant};
use evenkeel_geo::Learnt;
use evenkeel_geo::curve::{
    Candidate, Conditions, Family, Measured, Verdict, Watch, WatchConfig, substitute,
};
use evenkeel_geo::demand::{DemandMeter, DemandSpan, Lately, SiteTally, SplitTally};
use evenkeel_geo::epoch::{EpochConfig, EpochSync, Path, Report, SiteId};
use evenkeel_geo::planner::SiteCurves;
use evenkeel_geo::split::SplitWindow;
use evenkeel_geo::wan::{Wan, WanConfig};

use crate::redirect::Mode;
use crate::redirect::learning::Learning;
use crate::scenario::Redirect;

/// Unix time at which a run begins: a whole number of any usual period.
const BEGINS_UNIX_NS: u64 = 1_800_000_000_000_000_000;
/// Connections that probe each other site, and how often.
pub(crate) const CONNECTIONS: usize = 3;
/// Time between two probes on a connection.
pub(crate) const PROBE_EVERY: Duration = Duration::from_millis(200);
/// As how many independent requests those of a period count for the watch: they miss together,
/// whenever several servers are slow.
const WATCHED_REQUESTS_MAX: u64 = 20;
/// The weight of the last interval in the moving average of the slow planner (Kurma, 7.1.2).
const SLOW_GAIN: f64 = 0.8;

/// One site's part in the sharing of load.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) sync: EpochSync,
    /// Everything counted at this site; all its clients are one worker.
    counts: SplitTally,
    /// By other site.
    pub(crate) ways: Vec<Wan>,
    site: usize,
    meter: DemandMeter,
    lately: Lately,
    slow: Option<Slow>,
    /// Whether plans are for the next epoch, not for those before.
    foretells: bool,
    guard: Option<Guard>,
    pub(crate) learning: Option<Learning>,
    version: u32,
    rtt_step: Duration,
}

/// Demand as the slow planner sees it.
#[derive(Clone, Debug)]
struct Slow {
    period: Duration,
    began: Instant,
    /// Requests up to then.
    before: u64,
    mean: Option<f64>,
}

impl Slow {
    /// Requests per second, once so many came since the beginning.
    fn demand(&mut self, now: Instant, arrived: u64) -> f64 {
        let over = now.since(self.began);
        let mean = (arrived - self.before) as f64 / over.as_secs_f64().max(1e-3);
        let before = *self.mean.get_or_insert(mean);
        if over >= self.period {
            self.mean = Some(SLOW_GAIN.mul_add(mean - before, before));
            (self.began, self.before) = (now, arrived);
        }
        self.mean.unwrap_or(mean)
    }
}

/// A site's watch over its own curves.
#[derive(Debug)]
struct Guard {
    watch: Watch,
    families: Vec<Family>,
    conditions: Conditions,
}

impl Guard {
    fn new(curves: &SiteCurves, servers: u32) -> Self {
        let requests_max = WATCHED_REQUESTS_MAX;
        let config = WatchConfig { requests_max, ..WatchConfig::default() };
        let families = curves.versions.iter().map(|classes| Family::local(&classes[0].curves));
        Self {
            watch: Watch::new(config).expect("the default watch is possible"),
            families: families.collect(),
            conditions: Conditions::with_servers(servers).unbiased(),
        }
    }

    /// Another version of the curves, when the one in force no longer explains what is measured.
    fn observe(&mut self, measured: Measured, version: u32) -> Option<u32> {
        let family = &self.families[version as usize];
        let predicted = family.miss(Duration::ZERO, measured.load, &self.conditions);
        if self.watch.observe(measured, predicted) == Verdict::AsPredicted {
            return None;
        }
        let conditions = self.conditions;
        let candidate = |family| Candidate { family, conditions };
        let candidates: Vec<Candidate<'_>> = self.families.iter().map(candidate).collect();
        let choice = substitute(&candidates, self.watch.since_change())?;
        let chosen = choice.index as u32;
        if chosen == version {
            return None; // nothing explains it better; the evidence stands
        }
        self.watch.restart();
        Some(chosen)
    }
}

impl Control {
    /// The control loop of one of `sites` sites, all with the same settings.
    pub(crate) fn new(
        (site, sites): (usize, usize),
        mode: Mode,
        redirect: &Redirect,
        (settings, own): (u32, Option<(&SiteCurves, u32)>),
    ) -> Self {
        let config = EpochConfig {
            period: redirect.period,
            margin: Duration::from_millis(20).min(redirect.period / 4),
            clock_offset_max: Duration::from_millis(10).min(redirect.period / 16),
            settings,
            ..EpochConfig::new(SiteId::new(site), sites)
        };
        let wan = Wan::new(CONNECTIONS, WanConfig::default()).expect("the defaults are possible");
        let slow =
            Slow { period: redirect.slow_period, began: Instant::ZERO, before: 0, mean: None };
        let own = own.filter(|_| redirect.watch);
        let counts = SplitTally {
            workers: vec![SplitWindow::empty(sites)],
            by_site: vec![SiteTally::default(); sites],
            ..SplitTally::default()
        };
        let span = DemandSpan { epochs: 1, least: redirect.demand_over };
        let mut meter = DemandMeter::new(span, redirect.forecast);
        let lately = meter.note(Instant::ZERO, counts.clone(), site);
        Self {
            sync: EpochSync::new(config).expect("the scenario's period was checked"),
            counts,
            ways: vec![wan; sites],
            site,
            meter,
            lately,
            foretells: mode.foretells(),
            slow: (mode == Mode::KurmaSlow).then_some(slow),
            guard: own.map(|(curves, servers)| Guard::new(curves, servers)),
            learning: None,
            version: 0,
            rtt_step: redirect.rtt_step,
        }
    }

    /// The wall clock of a moment.
    pub(crate) const fn unix_ns(now: Instant) -> u64 {
        BEGINS_UNIX_NS + now.as_nanos()
    }

    /// When the plan of an epoch comes into force.
    pub(crate) fn begins(epoch: u64, period: Duration) -> Instant {
        let unix_ns = epoch.saturating_mul(nanos(period));
        Instant::from_nanos(unix_ns.saturating_sub(BEGINS_UNIX_NS))
    }

    /// The version of its curves in force.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// A request of its users came.
    #[inline]
    pub(crate) fn arrived(&mut self, is_write: bool) {
        let window = &mut self.counts.workers[0];
        window.arrived += 1;
        window.writes += u64::from(is_write);
    }

    /// A request was sent to its replicas, by its own users or another site's.
    #[inline]
    pub(crate) fn served(&mut self, is_own: bool) {
        match is_own {
            true => self.counts.workers[0].by_site[self.site].sent += 1,
            false => self.counts.inflow += 1,
        }
    }

    /// A request of its users ended that was served at this site.
    #[inline]
    pub(crate) fn ended(&mut self, at: usize, has_missed: bool) {
        self.counts.by_site[at].add(SiteTally { ended: 1, missed: has_missed.into() });
    }

    /// Ends an epoch: what was counted becomes what happened lately.
    pub(crate) fn measure(&mut self, now: Instant) {
        self.lately = self.meter.note(now, self.counts.clone(), self.site);
        if let Some(slow) = &mut self.slow {
            self.lately.demand = slow.demand(now, self.counts.workers[0].arrived);
        }
        if !self.foretells {
            self.lately.expected = self.lately.demand;
        }
    }

    /// Takes this for the demand, in requests per second, in place of what was measured.
    pub(crate) const fn foreknow(&mut self, demand: f64) {
        self.lately.demand = demand;
        self.lately.expected = demand;
    }

    /// The share of writes among its users' requests, as it is told.
    pub(crate) fn writes(&self) -> Probability {
        self.lately.writes()
    }

    /// Compares what happened with the curves; true when others are in force from now on.
    pub(crate) fn watch(&mut self) -> bool {
        let Some(guard) = &mut self.guard else { return false };
        let Lately { local_ended: requests, local_missed: missed, .. } = self.lately;
        let measured = Measured { load: self.lately.load(), requests, missed };
        let replacement = guard.observe(measured, self.version);
        self.version = replacement.unwrap_or(self.version);
        replacement.is_some()
    }

    /// Learns from what happened, with so many servers, its requests hedged or not.
    pub(crate) fn learn(&mut self, over: Duration, (servers, is_hedged): (u32, bool)) {
        if let Some(learning) = &mut self.learning {
            learning.learn(over, &self.lately, (servers, is_hedged));
        }
    }

    /// The curve in force: its version, and how it differs from that by now.
    pub(crate) fn curve(&self) -> (u32, Learnt) {
        let learnt = self.learning.as_ref().map_or(Learnt::AS_PROFILED, Learning::believed);
        (self.version, learnt)
    }

    /// What it tells the others.
    pub(crate) fn report(&self, now: Instant, capacity_per_1000_s: u64) -> Report {
        let paths = (0..self.ways.len()).map(|to| self.path(now, to)).collect();
        self.lately.report(capacity_per_1000_s, self.curve(), paths)
    }

    fn path(&self, now: Instant, to: usize) -> Option<Path> {
        if to == self.site {
            return None;
        }
        let estimate = self.ways[to].estimate(now)?;
        let path = Path::of_paths(&estimate.paths)?;
        let step_us = nanos(self.rtt_step) / 1_000;
        if step_us == 0 {
            return Some(path);
        }
        let rounded = (u64::from(path.base_rtt_us) + step_us / 2) / step_us * step_us;
        Some(Path { base_rtt_us: rounded.max(1) as u32, ..path })
    }
}
