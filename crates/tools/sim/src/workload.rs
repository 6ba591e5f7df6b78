//! Open-loop arrivals: when each request comes, from whom, for which group.
//!
//! Everything is drawn from streams of the seed that no policy touches, so every policy meets the
//! same requests (common random numbers).

use std::sync::Arc;

use evenkeel_core::{Duration, Instant, Rng};
use evenkeel_twin::works::SCORE_MAX;

use crate::scenario::{Arrivals, Cluster, Hiccup, Scenario, ServiceLaw, Site, Work};
pub use crate::script::Arrival;
use crate::script::Script;

/// Draws the arrivals of one run.
#[derive(Debug)]
pub struct Arriving {
    arrivals: Arrivals,
    /// Mean gap between two arrivals of one generator, milliseconds, before phases.
    gap_ms: f64,
    gaps: Rng,
    who: Rng,
    clients_at_start: usize,
    clients: usize,
    rate_factor: f64,
    groups: usize,
    heavy_clients: usize,
    writes: f64,
    writes_joined: f64,
    read_repair: f64,
    /// The data centres' own arrivals; empty when there is but one.
    sites: Vec<SiteArrivals>,
    /// What was recorded, and how much of it has come.
    script: Option<(Arc<Script>, usize)>,
}

/// Arrivals of one data centre's users: a Poisson process whose rate is constant within each step.
#[derive(Debug)]
struct SiteArrivals {
    gaps: Rng,
    /// Mean gap in each step, nanoseconds; infinite when nobody comes.
    gap_ns: Vec<f64>,
    step_ns: u64,
    /// Its first client, and how many there are.
    clients: (usize, usize),
}

impl SiteArrivals {
    fn all(scenario: &Scenario, seed: u64) -> Vec<Self> {
        let Some(geography) = &scenario.geography else { return Vec::new() };
        let shares: f64 = geography.sites.iter().map(|site| site.share).sum();
        let mut first = 0;
        let site = |(number, site): (usize, &Site)| {
            let gap_ns = match &geography.rates {
                Some(rates) => rates.rates[number].iter().map(|rate| 1e9 / rate).collect(),
                None => vec![1e9 / (scenario.rate() * site.share / shares)],
            };
            let step = geography.rates.as_ref().map_or(Duration::from_secs(3_600), |of| of.step);
            let clients = (first, site.clients);
            first += site.clients;
            Self {
                gaps: Rng::stream(seed, &format!("arrivals at site {number}")),
                gap_ns,
                step_ns: evenkeel_core::time::nanos(step).max(1),
                clients,
            }
        };
        geography.sites.iter().enumerate().map(site).collect()
    }

    /// A gap that leaves its step is drawn anew from the step's end: the exponential has no
    /// memory.
    #[inline]
    fn next_after(&mut self, now: Instant, rate_factor: f64) -> Instant {
        let mut at = now;
        // After the last step the series begins anew; one in which nobody comes at all ends here.
        for _ in 0..=2 * self.gap_ns.len() {
            let number = at.as_nanos() / self.step_ns;
            let end = Instant::from_nanos((number + 1).saturating_mul(self.step_ns));
            let gap_ns = self.gap_ns[number as usize % self.gap_ns.len()];
            if gap_ns.is_finite() {
                let next = at.plus_nanos((self.gaps.exponential() * gap_ns / rate_factor) as u64);
                if next < end {
                    return next;
                }
            }
            at = end;
        }
        Instant::FAR
    }
}

/// Share of the requests that the heavy clients issue, when there are any (C3, section 6).
const HEAVY_SHARE: f64 = 0.8;

impl Arriving {
    /// The arrivals of a scenario at a seed.
    pub fn new(scenario: &Scenario, seed: u64) -> Self {
        let workload = &scenario.workload;
        let generators = match workload.arrivals {
            Arrivals::Ticks { generators } => f64::from(generators),
            Arrivals::Poisson | Arrivals::Trace { .. } => 1.0,
        };
        Self {
            arrivals: workload.arrivals.clone(),
            gap_ms: generators * 1e3 / scenario.rate(),
            gaps: Rng::stream(seed, "arrivals"),
            who: Rng::stream(seed, "requests"),
            clients_at_start: workload.clients,
            clients: workload.clients,
            rate_factor: 1.0,
            groups: scenario.cluster.servers,
            heavy_clients: (workload.skew * workload.clients as f64).ceil() as usize,
            writes: workload.writes,
            writes_joined: 0.0,
            read_repair: workload.read_repair,
            sites: SiteArrivals::all(scenario, seed),
            script: scenario.script.clone().map(|script| (script, 0)),
        }
    }

    /// How many generators there are, one for each data centre where there are several; each has a
    /// first arrival.
    pub fn generators(&self) -> u32 {
        if !self.sites.is_empty() {
            return self.sites.len() as u32;
        }
        match self.arrivals {
            Arrivals::Ticks { generators } => generators,
            Arrivals::Poisson | Arrivals::Trace { .. } => 1,
        }
    }

    /// The mean rate at which users of a data centre will come in the time from `now` on, per
    /// second.
    pub fn mean_rate(&self, site: usize, now: Instant, over: Duration) -> f64 {
        const PARTS: u32 = 10;
        let of = &self.sites[site];
        let rate = |part: u32| {
            let at = now + over * part / PARTS;
            let step = (at.as_nanos() / of.step_ns) as usize % of.gap_ns.len();
            self.rate_factor * 1e9 / of.gap_ns[step]
        };
        (0..PARTS).map(rate).sum::<f64>() / f64::from(PARTS)
    }

    /// When a generator's first request comes.
    pub fn first(&mut self, generator: u32) -> Instant {
        if let Some((script, _)) = &self.script {
            return script.arrives(0).unwrap_or(Instant::ZERO);
        }
        match self.arrivals {
            Arrivals::Ticks { .. } => Instant::ZERO,
            Arrivals::Poisson | Arrivals::Trace { .. } => self.next_after(Instant::ZERO, generator),
        }
    }

    /// When the generator's next request comes.
    #[inline]
    pub fn next_after(&mut self, now: Instant, generator: u32) -> Instant {
        if let Some(site) = self.sites.get_mut(generator as usize) {
            return site.next_after(now, self.rate_factor);
        }
        if let Some((script, come)) = &self.script {
            return script.arrives(come + 1).unwrap_or(now);
        }
        let load = self.clients as f64 * self.rate_factor;
        let gap_ms = self.gap_ms * self.clients_at_start as f64 / load;
        let rng = &mut self.gaps;
        match &self.arrivals {
            Arrivals::Poisson => now.plus_nanos((rng.exponential() * gap_ms * 1e6) as u64),
            Arrivals::Ticks { .. } => now.plus_nanos(rng.poisson(gap_ms) * 1_000_000),
            Arrivals::Trace { rates, step } => next_of_trace(rng, now, gap_ms, rates, *step),
        }
    }

    /// Clients join; those that do write this share of their requests.
    pub fn join(&mut self, clients: usize, writes: f64) {
        self.clients += clients;
        self.writes_joined = writes;
    }

    /// Multiplies the load of the start by this factor from now on.
    pub const fn set_rate_factor(&mut self, factor: f64) {
        self.rate_factor = factor;
    }

    /// Draws the request that arrives.
    #[inline]
    pub fn draw(&mut self, generator: u32) -> Arrival {
        if let Some(site) = self.sites.get(generator as usize) {
            let client = (site.clients.0 + self.who.below(site.clients.1)) as u32;
            let work_seed = self.who.bits();
            return Arrival { client, group: generator, work_seed, ..Arrival::default() };
        }
        if let Some((script, come)) = &mut self.script {
            *come += 1;
            return script.arrival(*come - 1);
        }
        let client = self.draw_client();
        let group = self.who.below(self.groups) as u32;
        let joined = client >= self.clients_at_start;
        let writes = if joined { self.writes_joined } else { self.writes };
        let coin = self.who.unit();
        let everywhere = coin < writes + (1.0 - writes) * self.read_repair;
        let work_seed = self.who.bits();
        Arrival { client: client as u32, group, everywhere, work_seed, ..Arrival::default() }
    }

    fn draw_client(&mut self) -> usize {
        if self.heavy_clients == 0 || self.heavy_clients >= self.clients {
            return self.who.below(self.clients);
        }
        if self.who.unit() < HEAVY_SHARE {
            self.who.below(self.heavy_clients)
        } else {
            self.heavy_clients + self.who.below(self.clients - self.heavy_clients)
        }
    }
}

/// The next arrival of a Poisson process whose rate is constant within each step: a gap that
/// leaves its step is drawn anew from the step's end (the exponential has no memory).
fn next_of_trace(
    rng: &mut Rng,
    now: Instant,
    gap_ms: f64,
    rates: &[f64],
    step: Duration,
) -> Instant {
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let step_nanos = evenkeel_core::time::nanos(step).max(1);
    let mut at = now;
    loop {
        let number = at.as_nanos() / step_nanos;
        let end = Instant::from_nanos((number + 1).saturating_mul(step_nanos));
        let relative = rates[number as usize % rates.len()] / mean;
        if relative > 0.0 {
            let next = at.plus_nanos((rng.exponential() * gap_ms / relative * 1e6) as u64);
            if next < end {
                return next;
            }
        }
        at = end;
    }
}

/// The work of the n-th copy of a request in a slot, as a multiple of the mean service time.
#[inline]
pub fn work_in_slot(cluster: &Cluster, work_seed: u64, copy: u32) -> f64 {
    let copy = if cluster.same_work { 0 } else { copy };
    match &cluster.service_law {
        None if cluster.work_shared > 0.0 => shared_work(cluster, work_seed, copy),
        None => work(work_seed, copy, cluster.service_cv),
        Some(law) => work_by(law, work_seed, copy),
    }
}

/// The same in a world that was recorded, of a request whose first copy has this normal score; with
/// all content, or with what may be left out left out.
pub(crate) fn recorded_work(
    script: &Script,
    score: f32,
    (work_seed, copy): (u64, u32),
    is_full: bool,
) -> f64 {
    let works = if is_full || script.lean.is_empty() { &script.works } else { &script.lean };
    let own = f64::from(score);
    let score = match copy {
        0 => own,
        _ => {
            let other = (1.0 - script.correlation * script.correlation).max(0.0).sqrt();
            script.correlation * own + other * normal(work_seed, copy)
        }
    };
    let share = (score + SCORE_MAX) * (0.5 / SCORE_MAX);
    let place = (share * works.len() as f64) as usize;
    f64::from(works[place.min(works.len() - 1)])
}

/// The same by a law.
pub fn work_by(law: &ServiceLaw, work_seed: u64, copy: u32) -> f64 {
    let second = unit(mix(work_seed.rotate_left(17) ^ u64::from(copy)));
    law.quantile(1.0 - uniform(work_seed, copy), second)
}

/// The copy that stands for what all copies of a request have in common.
const OWN: u32 = 255;

/// The same where a part of the variance is the request's own.
fn shared_work(cluster: &Cluster, work_seed: u64, copy: u32) -> f64 {
    let own = cluster.work_shared;
    let score = own.sqrt() * normal(work_seed, OWN) + (1.0 - own).sqrt() * normal(work_seed, copy);
    lognormal(score, cluster.service_cv)
}

/// Lognormal with mean 1 and this coefficient of variation, at a normal score.
fn lognormal(score: f64, cv: f64) -> f64 {
    let variance = cv.mul_add(cv, 1.0).ln();
    (variance.sqrt() * score - variance / 2.0).exp()
}

/// The same by its coefficient of variation.
pub fn work(work_seed: u64, copy: u32, cv: f64) -> f64 {
    if cv == 0.0 {
        return 1.0;
    }
    if cv == 1.0 {
        return -uniform(work_seed, copy).ln();
    }
    lognormal(normal(work_seed, copy), cv)
}

/// The kind of [`luck`] by which a share of requests fails.
pub const FAILS: u32 = 0;
/// The luck of hiccups, and the next kind that of their length.
const HICCUPS: u32 = 8;

/// The luck of the n-th copy of a request, in [0, 1), a number of its own for each kind of it.
pub fn luck(work_seed: u64, copy: u32, kind: u32) -> f64 {
    1.0 - uniform(work_seed.rotate_left(32) ^ u64::from(copy), kind)
}

/// Whether something outside its server makes a copy late, and by how much.
pub fn hiccup(of: &Hiccup, work_seed: u64, copy: u32) -> Duration {
    if luck(work_seed, copy, HICCUPS) >= of.share {
        return Duration::ZERO;
    }
    of.mean.mul_f64(-(1.0 - luck(work_seed, copy, HICCUPS + 1)).ln())
}

/// Core time of requests with and without optional content: lognormal, and a request that is large
/// with it is large without it.
#[derive(Clone, Copy, Debug)]
pub struct CoreTime {
    full: Lognormal,
    lean: Lognormal,
}

#[derive(Clone, Copy, Debug)]
struct Lognormal {
    log_median: f64,
    sigma: f64,
}

impl CoreTime {
    /// The core time that a scenario's `[work]` describes.
    pub fn new(work: &Work) -> Self {
        Self {
            full: Lognormal::new(work.optional, work.cv),
            lean: Lognormal::new(work.mandatory, work.cv_mandatory),
        }
    }

    /// Core time of the n-th copy of a request, in nanoseconds.
    #[inline]
    pub fn nanos(&self, work_seed: u64, copy: u32, is_full: bool) -> f64 {
        let law = if is_full { &self.full } else { &self.lean };
        let z = Rng::seeded(work_seed ^ (u64::from(copy) << 56)).normal();
        (law.sigma * z + law.log_median).exp()
    }
}

impl Lognormal {
    /// With mean m: exp(ln m − σ²/2 + σz), σ² = ln(1 + cv²).
    fn new(mean: Duration, cv: f64) -> Self {
        let variance = cv.mul_add(cv, 1.0).ln();
        let log_mean = (evenkeel_core::time::nanos(mean) as f64).ln();
        Self { log_median: log_mean - variance / 2.0, sigma: variance.sqrt() }
    }
}

/// A normal number that belongs to the n-th copy of a request (Box and Muller).
pub(crate) fn normal(work_seed: u64, copy: u32) -> f64 {
    let angle = core::f64::consts::TAU * unit(mix(work_seed.rotate_left(17) ^ u64::from(copy)));
    (-2.0 * uniform(work_seed, copy).ln()).sqrt() * angle.cos()
}

/// In (0, 1], and of the n-th copy of a request too.
fn uniform(work_seed: u64, copy: u32) -> f64 {
    1.0 - unit(mix(work_seed ^ (u64::from(copy) << 56)))
}

/// SplitMix64's finaliser: equal seeds give equal work whatever else was drawn.
fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_has_mean_one_and_the_asked_variation() {
        for cv in [0.0, 0.5, 1.0, 2.0] {
            let draws: Vec<_> = (0..200_000_u64).map(|n| work(mix(n), 0, cv)).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let square = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
            let deviation = (square / draws.len() as f64).sqrt();
            assert!((mean - 1.0).abs() < 0.03, "mean {mean} at cv {cv}");
            assert!((deviation - cv).abs() < 0.08 * cv.max(1.0), "{deviation} at cv {cv}");
        }
    }

    #[test]
    fn core_time_has_the_asked_means_and_variations() {
        let mean = Duration::from_millis(60);
        let work =
            Work { optional: mean, mandatory: mean / 5, cv: 1.5, cv_mandatory: 0.5, hiccup: None };
        let core_time = CoreTime::new(&work);
        for (is_full, mean_ms, cv) in [(true, 60.0, 1.5), (false, 12.0, 0.5)] {
            let draws: Vec<_> =
                (0..400_000_u64).map(|n| core_time.nanos(mix(n), 1, is_full) / 1e6).collect();
            let mean = draws.iter().sum::<f64>() / draws.len() as f64;
            let square = draws.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>();
            let deviation = (square / draws.len() as f64).sqrt();
            assert!((mean / mean_ms - 1.0).abs() < 0.01, "mean {mean} for {mean_ms}");
            assert!((deviation / mean - cv).abs() < 0.05 * cv, "{deviation} for {cv}");
        }
    }

    #[test]
    fn a_trace_is_followed() {
        let mut rng = Rng::seeded(1);
        let (rates, step) = ([1.0, 3.0, 0.0], Duration::from_secs(1));
        let mut counts = [0_u32; 3];
        let mut at = Instant::ZERO;
        while at < Instant::from_millis(30_000) {
            counts[(at.as_nanos() / 1_000_000_000) as usize % 3] += 1;
            at = next_of_trace(&mut rng, at, 1.0, &rates, step);
        }
        // 1 000 per second on average: 750, 2 250 and 0 in each of ten rounds.
        assert!((7_200..7_800).contains(&counts[0]), "{counts:?}");
        assert!((22_000..23_000).contains(&counts[1]), "{counts:?}");
        assert_eq!(counts[2], 0);
    }
}
