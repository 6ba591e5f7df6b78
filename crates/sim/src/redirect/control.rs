//! One site's control loop: what it measures becomes a row, what comes back a plan.

use evenkeel_core::site::redirect::curve::{
    Candidate, Conditions, Family, Measured, Verdict, Watch, WatchConfig, substitute,
};
use evenkeel_core::site::redirect::epoch::{
    DemandMeter, EpochConfig, Exchange, Path, Report, SiteId,
};
use evenkeel_core::site::redirect::planner::SiteCurves;
use evenkeel_core::site::redirect::wan::{Wan, WanConfig};
use evenkeel_core::time::nanos;
use evenkeel_core::units::Rate;
use evenkeel_core::{Duration, Instant};

use crate::redirect::Mode;
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

/// What a site counted since its last report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests of its users that came.
    pub(crate) arrived: u64,
    /// Requests of its users that ended.
    pub(crate) ended: u64,
    /// Of them too late or not served.
    pub(crate) missed: u64,
    /// Requests of its users that ended and were served at home.
    pub(crate) ended_home: u64,
    /// Of them too late or not served.
    pub(crate) missed_home: u64,
    /// Requests that were sent to its replicas, whoever's users they are.
    pub(crate) served: u64,
}

/// One site's part in the sharing of load.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) exchange: Exchange,
    pub(crate) counts: Counts,
    /// By other site.
    pub(crate) ways: Vec<Wan>,
    site: usize,
    meter: DemandMeter,
    slow: Option<Slow>,
    guard: Option<Guard>,
    version: u32,
    rtt_step: Duration,
    reported_at: Instant,
}

/// Demand as the slow planner sees it.
#[derive(Clone, Debug)]
struct Slow {
    period: Duration,
    began: Instant,
    arrived: u64,
    mean_per_1000_s: Option<f64>,
}

impl Slow {
    fn count(&mut self, now: Instant, arrived: u64) -> u64 {
        self.arrived += arrived;
        let over = now.since(self.began);
        let mean = self.arrived as f64 * 1e3 / over.as_secs_f64().max(1e-3);
        if self.mean_per_1000_s.is_none() {
            self.mean_per_1000_s = Some(mean);
        }
        if over >= self.period {
            let before = self.mean_per_1000_s.unwrap_or(mean);
            self.mean_per_1000_s = Some(SLOW_GAIN.mul_add(mean - before, before));
            (self.began, self.arrived) = (now, 0);
        }
        self.mean_per_1000_s.unwrap_or_default().round() as u64
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
            settings,
            ..EpochConfig::new(SiteId::new(site), sites)
        };
        let wan = Wan::new(CONNECTIONS, WanConfig::default()).expect("the defaults are possible");
        let slow = Slow {
            period: redirect.slow_period,
            began: Instant::ZERO,
            arrived: 0,
            mean_per_1000_s: None,
        };
        let own = own.filter(|_| redirect.watch);
        Self {
            exchange: Exchange::new(config).expect("the scenario's period was checked"),
            counts: Counts::default(),
            ways: vec![wan; sites],
            site,
            meter: DemandMeter::new(redirect.demand_over, Instant::ZERO),
            slow: (mode == Mode::KurmaSlow).then_some(slow),
            guard: own.map(|(curves, servers)| Guard::new(curves, servers)),
            version: 0,
            rtt_step: redirect.rtt_step,
            reported_at: Instant::ZERO,
        }
    }

    /// The wall clock of a moment.
    pub(crate) const fn unix_ns(now: Instant) -> u64 {
        BEGINS_UNIX_NS + now.as_nanos()
    }

    /// The version of its curves in force.
    pub(crate) const fn version(&self) -> u32 {
        self.version
    }

    /// Compares what happened with the curves; true when others are in force from now on.
    pub(crate) fn watch(&mut self, now: Instant) -> bool {
        let Some(guard) = &mut self.guard else { return false };
        let seconds = now.since(self.reported_at).as_secs_f64();
        let Ok(load) = Rate::new(self.counts.served as f64 / seconds) else { return false };
        let measured =
            Measured { load, requests: self.counts.ended_home, missed: self.counts.missed_home };
        let replacement = guard.observe(measured, self.version);
        self.version = replacement.unwrap_or(self.version);
        replacement.is_some()
    }

    /// What it tells the others, and begins counting anew.
    pub(crate) fn report(&mut self, now: Instant, capacity_per_1000_s: u64) -> Report {
        let counts = core::mem::take(&mut self.counts);
        self.reported_at = now;
        self.meter.count(now, counts.arrived);
        let demand_per_1000_s = match &mut self.slow {
            Some(slow) => slow.count(now, counts.arrived),
            None => self.meter.per_1000_s(),
        };
        Report {
            demand_per_1000_s,
            capacity_per_1000_s,
            backlog_requests: 0,
            writes_ppm: 0,
            ended_requests: counts.ended,
            violations: counts.missed,
            curve_version: self.version,
            paths: (0..self.ways.len()).map(|to| self.path(now, to)).collect(),
        }
    }

    fn path(&self, now: Instant, to: usize) -> Option<Path> {
        if to == self.site {
            return None;
        }
        let estimate = self.ways[to].estimate(now)?;
        let path = Path::of_ways(&estimate.ways)?;
        let step_us = nanos(self.rtt_step) / 1_000;
        if step_us == 0 {
            return Some(path);
        }
        let rounded = (u64::from(path.base_rtt_us) + step_us / 2) / step_us * step_us;
        Some(Path { base_rtt_us: rounded.max(1) as u32, ..path })
    }
}
