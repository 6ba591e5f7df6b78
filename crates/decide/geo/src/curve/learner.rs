//! Curves that learn: what a data centre's curve is now, from what it was told to be and from what
//! is seen.
//!
//! **Shape.** A curve that is wrong is so mostly in its load axis: servers are faster or slower
//! than profiled. So what is learnt are two numbers ([`Learnt`]): a *scale* of the load, and the
//! *odds* of a miss that no load explains. Two numbers are known from few points, and they fit
//! into a report, so that all data centres plan with the same curve.
//!
//! **Signals**, once per control period, of the site's own users: how many of those that were
//! served where they came missed the objective at the load there really was, in work of full
//! requests; and whether replicas dimmed. Copies do not count as load, nor do latencies choose a
//! plan: they choose a curve, and the plan goes by demand (joint study, F1 and F6). *Dimmed sites
//! are not late*, whatever they can serve, so that while they dim only the dimming counts: they
//! are at their capacity, which is then the work they did. What was served in time could be
//! served.
//!
//! **Statistic.** A Bayes filter over a grid of scales and odds, and one case more: that all is as
//! profiled. In every period a change is possible, once in `CHANGES_EVERY`; then everything is as
//! likely as at the beginning. That is change detection and fading memory in one: what contradicts
//! the past is believed after some periods, what agrees adds up. A period counts as
//! [`REQUESTS_MAX`] requests at most, since they miss together, and no period says more than that
//! what was believed is twenty times less likely than what explains it best: so it takes a few
//! periods to replace a curve, and never one.
//!
//! **Bound.** Plans use the lower quartile of the scale, with the odds that go with it: 5 % too
//! little capacity costs 2 %, 10 % too much 18 %. As long as the profile is more likely than not
//! plans use it as it is. Where more was late in the last minutes than that explains, at a load
//! that was seen in several periods, odds are raised until it does. Once the profile was
//! contradicted ([`CONTRADICTED`]) it is not the first thing that is tried after the next change.
//!
//! **Without a profile** ([`Prior::Guess`]) the scale is believed to be little, and more as more is
//! served in time.
//!
//! **After a server more** nothing is learnt for [`SETTLES`]: who returns gets its share only once
//! it has proven itself, and until then the others dim at a load that all can serve.
//!
//! **After an overload** periods of less load in which requests are late still are not learnt for
//! twice as long as it lasted ([`Backlog`]): they wait for those that came before.
//!
//! **When it misleads.** A site that collapsed, and is asked for little since, is believed again
//! after half an hour. A site that dims without telling it looks fast. Of several sizes the first
//! one counts. What never comes near the knee says little about where it is: until then the profile
//! stands.
//!
//! Source: the filter is the forward step of a hidden Markov model with restarts (fixed share,
//! Herbster and Warmuth 1998); what errors of the load axis cost is from the joint study, 3.3.

use std::collections::BTreeMap;

use super::backlog::Backlog;
use super::{Conditions, Family};
use crate::learnt::{LEARNT_PPM, Learnt, MISS_MIN, with_odds};
use evenkeel_core::time::Duration;
use evenkeel_core::units::{Probability, Rate};

/// As how many independent requests a period counts at most.
pub const REQUESTS_MAX: u64 = 200;
/// The profile is contradicted when its probability is less.
pub const CONTRADICTED: f64 = 0.01;

/// Ratio of neighbouring scales, and the least and most of those that are tried: of a profile and
/// of a guess.
const SCALE_STEP: f64 = 1.03;
const PROFILED: [f64; 2] = [0.1, 10.0];
const GUESSED: [f64; 2] = [0.1, 1_000.0];
/// Odds that are tried.
const ODDS: [f64; 11] = [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0, 1024.0, 4096.0];
/// Before anything is seen: standard deviation of the logarithm of the scale, and mean distance of
/// that of the odds.
const SPREAD: f64 = 0.7;
/// How likely a profile is right at first, and once it was contradicted.
const RIGHT: f64 = 0.9;
const RIGHT_AGAIN: f64 = 0.1;
/// Time between two changes.
const CHANGES_EVERY: Duration = Duration::from_secs(1_800);
/// No period surprises by more than this: then it counts as so much less, in logarithms.
const EVIDENCE_MAX: f64 = 3.0;
/// How well a site at its capacity tells it: standard deviation of the logarithm.
const CAPACITY_SPREAD: f64 = 0.08;
/// Share of requests that met a dimmer from which on lateness says nothing.
const DIMMED_MAX: f64 = 0.1;
/// Loads are told apart by this ratio, in logarithms; what was seen of one is forgotten by half in
/// this time, and altogether when less than this is left of a period.
const LEVEL_STEP: f64 = 0.1;
const LEVEL_HALF_LIFE: Duration = Duration::from_secs(60);
const LEVEL_FORGOTTEN: f64 = 0.1;
/// So much another scale, in logarithms, and what was seen before is of another site.
const LEVEL_CHANGE: f64 = 0.15;
/// Periods without which a load is not known, and standard errors below what was measured there.
const LEVEL_PERIODS_MIN: f64 = 3.0;
const LEVEL_SIGMAS: f64 = 3.0;
/// How long a site with a server more is not measured: as long as an ejection lasts, and a trial.
const SETTLES: Duration = Duration::from_secs(10);
/// Who comes again within this time is not waited for.
const SETTLES_EVERY: Duration = Duration::from_secs(60);
/// The quantile of the scale that plans use.
const BOUND: f64 = 0.25;

/// What is known before anything is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Prior {
    /// A profile, which is right or off by some factor.
    Profile,
    /// Nothing: the curve says only how misses rise with load.
    Guess,
}

/// What one period showed at a site, of its own users' requests that were served there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// The load of the whole site, all users' requests per second, without copies.
    pub load: Rate,
    /// The work of these, as a share of what they are with full content; 1 where nobody dims.
    pub work: Probability,
    /// The share of them that met a dimmer below full content.
    pub dimmed: Probability,
    /// Requests that ended.
    pub requests: u64,
    /// How many of them missed the objective.
    pub missed: u64,
}

/// What was seen lately about one load.
#[derive(Clone, Copy, Default, Debug)]
struct Level {
    periods: f64,
    load: f64,
    requests: f64,
    missed: f64,
}

impl Level {
    /// The odds of a miss that were surely met here; 0 where too little was seen.
    fn odds_least(&self) -> f64 {
        if self.periods < LEVEL_PERIODS_MIN {
            return 0.0;
        }
        let share = self.missed / self.requests;
        let error = libm::sqrt(share * (1.0 - share) / self.requests);
        let least = (share - LEVEL_SIGMAS * error).clamp(0.0, 1.0 - MISS_MIN);
        least / (1.0 - least)
    }
}

/// Learns one site's curve.
#[derive(Clone, Debug)]
pub struct Learner {
    kind: Prior,
    believed: Learnt,
    likely: Learnt,
    /// By load, in steps of its logarithm.
    levels: BTreeMap<i32, Level>,
    /// The scale that was likely when these began.
    levels_scale: f64,
    scales: Vec<f64>,
    /// By scale, then odds; behind them, that all is as profiled. Sums to one.
    prior: Vec<f64>,
    weights: Vec<f64>,
    is_contradicted: bool,
    /// The servers of the last period, how long ago there was one more, and how long it needs.
    servers: Option<u32>,
    grown_ago: Duration,
    settles: Duration,
    backlog: Backlog,
}

impl Learner {
    /// Nothing was seen yet.
    pub fn new(kind: Prior) -> Self {
        let [least, most] = match kind {
            Prior::Profile => PROFILED,
            Prior::Guess => GUESSED,
        };
        let count = (libm::log(most / least) / libm::log(SCALE_STEP)) as i32;
        let scales: Vec<f64> =
            (0..=count).map(|step| least * libm::pow(SCALE_STEP, step.into())).collect();
        let mut learner = Self {
            kind,
            scales,
            prior: Vec::new(),
            weights: Vec::new(),
            is_contradicted: false,
            believed: Learnt::AS_PROFILED,
            likely: Learnt::AS_PROFILED,
            levels: BTreeMap::new(),
            levels_scale: 1.0,
            servers: None,
            grown_ago: Duration::MAX,
            settles: Duration::ZERO,
            backlog: Backlog::NONE,
        };
        learner.restart();
        learner
    }

    /// Forgets everything: call it when another profile is in force.
    pub fn restart(&mut self) {
        self.is_contradicted = false;
        self.prior = self.prior_with(RIGHT);
        self.weights.clone_from(&self.prior);
        self.levels.clear();
        self.backlog = Backlog::NONE;
        (self.believed, self.likely) = (self.quantile(BOUND), self.quantile(0.5));
    }

    fn prior_with(&self, right: f64) -> Vec<f64> {
        let right = if self.kind == Prior::Guess { 0.0 } else { right };
        let normal = |log: f64| libm::exp(-log * log / (2.0 * SPREAD * SPREAD));
        let scale = |scale: f64| match self.kind {
            Prior::Profile => normal(libm::log(scale)),
            // More than was seen is possible, and the less likely the more it is.
            Prior::Guess => 1.0 / scale,
        };
        let cell =
            |of: f64| ODDS.map(|odds| scale(of) * libm::exp(-libm::log(odds).abs() / SPREAD));
        let mut prior: Vec<f64> = self.scales.iter().flat_map(|of| cell(*of)).collect();
        let sum: f64 = prior.iter().sum();
        prior.iter_mut().for_each(|weight| *weight *= (1.0 - right) / sum);
        prior.push(right);
        prior
    }

    /// Learns what a period of this length showed. `family` is the curve as profiled, from inside
    /// the site, hedged if requests were; `conditions` say how many servers served, without bias.
    ///
    /// A period without requests, load or servers, or with more misses than requests, says nothing,
    /// nor do those after a server has come, or an overload has gone.
    pub fn observe(
        &mut self,
        over: Duration,
        family: &Family,
        conditions: &Conditions,
        seen: &Seen,
    ) {
        if !self.is_settled(over, conditions.servers) {
            return;
        }
        let work = seen.load.value() * seen.work.value();
        let conditions = Conditions { learnt: Learnt::AS_PROFILED, ..*conditions };
        let Some(load) = family.profiled(work, &conditions) else { return };
        if seen.requests == 0 || seen.missed > seen.requests || !(load > 0.0 && load.is_finite()) {
            return;
        }
        if self.backlog.is_felt(over, load, [seen.requests, seen.missed]) {
            return;
        }
        let evidence = self.evidence(family, conditions.write_share, load, seen);
        let most = evidence.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let change = (over.as_secs_f64() / CHANGES_EVERY.as_secs_f64()).min(0.5);
        for (weight, prior) in self.weights.iter_mut().zip(&self.prior) {
            *weight = (1.0 - change) * *weight + change * prior;
        }
        let cells = self.weights.iter().zip(&evidence);
        let surprise: f64 = cells.map(|(of, log)| of * (most - log)).sum();
        let trusted = (EVIDENCE_MAX / surprise.max(EVIDENCE_MAX)).min(1.0);
        let mut sum = 0.0;
        for (weight, log) in self.weights.iter_mut().zip(&evidence) {
            *weight *= libm::exp(trusted * (log - most));
            sum += *weight;
        }
        self.weights.iter_mut().for_each(|weight| *weight /= sum);
        if self.right() < CONTRADICTED && !self.is_contradicted && self.kind == Prior::Profile {
            self.is_contradicted = true;
            self.prior = self.prior_with(RIGHT_AGAIN);
        }
        self.likely = self.quantile(0.5);
        self.note_level(over, load, seen);
        self.believed = self.raised(self.quantile(BOUND), family, conditions.write_share);
    }

    /// One that comes and goes again and again is not waited for each time.
    fn is_settled(&mut self, over: Duration, servers: u32) -> bool {
        let has_grown = self.servers.replace(servers).is_some_and(|before| before < servers);
        self.grown_ago = self.grown_ago.saturating_add(over);
        if has_grown && self.grown_ago >= SETTLES_EVERY {
            (self.settles, self.grown_ago) = (SETTLES, Duration::ZERO);
        } else {
            self.settles = self.settles.saturating_sub(over);
        }
        self.settles.is_zero()
    }

    fn note_level(&mut self, over: Duration, load: f64, seen: &Seen) {
        let scale = self.likely.scale();
        if libm::log(scale / self.levels_scale).abs() > LEVEL_CHANGE {
            self.levels.clear();
            self.levels_scale = scale;
        }
        let kept = libm::exp2(-over.as_secs_f64() / LEVEL_HALF_LIFE.as_secs_f64());
        for level in self.levels.values_mut() {
            level.periods *= kept;
            level.load *= kept;
            level.requests *= kept;
            level.missed *= kept;
        }
        self.levels.retain(|_, level| level.periods > LEVEL_FORGOTTEN);
        if seen.dimmed.value() > DIMMED_MAX {
            return;
        }
        let counts = 1.0_f64.min(REQUESTS_MAX as f64 / seen.requests as f64);
        let level = self.levels.entry(libm::floor(libm::log(load) / LEVEL_STEP) as i32);
        let level = level.or_default();
        level.periods += 1.0;
        level.load += load;
        level.requests += counts * seen.requests as f64;
        level.missed += counts * seen.missed as f64;
    }

    /// With odds that explain what was measured at every load; and with a smaller scale where no
    /// odds would.
    fn raised(&self, mut learnt: Learnt, family: &Family, writes: Probability) -> Learnt {
        let most = f64::from(*LEARNT_PPM.end()) * 1e-6;
        for level in self.levels.values() {
            let needed = |scale: f64| {
                let load = level.load / level.periods / scale;
                let miss = family.view(Duration::ZERO, writes).miss(load);
                let miss = miss.clamp(MISS_MIN, 1.0 - MISS_MIN);
                level.odds_least() * (1.0 - miss) / miss
            };
            let scales = core::iter::successors(Some(learnt.scale()), |it| Some(it / SCALE_STEP));
            let mut scales = scales.take_while(|scale| *scale > PROFILED[0]);
            let scale = scales.find(|scale| needed(*scale) <= most).unwrap_or(PROFILED[0]);
            let odds = needed(scale).max(learnt.odds());
            if scale < learnt.scale() || odds > learnt.odds() {
                learnt = Learnt::of(scale, odds);
            }
        }
        learnt
    }

    /// The logarithm of the likelihood of every case.
    fn evidence(&self, family: &Family, writes: Probability, load: f64, seen: &Seen) -> Vec<f64> {
        let mut view = family.view(Duration::ZERO, writes);
        let at_capacity = load / family.saturation(writes);
        let dimmed = seen.dimmed.value();
        let counts = (1.0 - dimmed / DIMMED_MAX).max(0.0)
            * 1.0_f64.min(REQUESTS_MAX as f64 / seen.requests as f64);
        let late = seen.missed as f64;
        let in_time = (seen.requests - seen.missed) as f64;
        let is_served = seen.missed <= seen.requests / 2;
        let of = |scale: f64, miss: f64| {
            let miss = miss.clamp(MISS_MIN, 1.0 - MISS_MIN);
            let misses = late * libm::log(miss) + in_time * libm::log1p(-miss);
            let off = libm::log(scale / at_capacity) / CAPACITY_SPREAD;
            let weight = if off < 0.0 { f64::from(u8::from(is_served)) } else { dimmed * dimmed };
            counts * misses - weight * off * off / 2.0
        };
        // Loads must not fall from call to call.
        let by_scale = self.scales.iter().rev().map(|&scale| (scale, view.miss(load / scale)));
        let mut by_scale: Vec<(f64, f64)> = by_scale.collect();
        by_scale.reverse();
        let mut view = family.view(Duration::ZERO, writes);
        let right = of(1.0, view.miss(load));
        let all = by_scale.into_iter();
        let cells = all.flat_map(|(scale, miss)| ODDS.map(|odds| of(scale, with_odds(miss, odds))));
        cells.chain(core::iter::once(right)).collect()
    }

    fn right(&self) -> f64 {
        self.weights.last().copied().unwrap_or(0.0)
    }

    /// How likely it is that all is as profiled; 0 without a profile.
    pub fn profile_holds(&self) -> Probability {
        Probability::clamped(self.right())
    }

    /// Whether the profile was once found wrong.
    pub const fn is_contradicted(&self) -> bool {
        self.is_contradicted
    }

    /// What plans use: the profile while it is more likely than not, a bound otherwise; with no
    /// fewer misses than were measured lately.
    pub const fn believed(&self) -> Learnt {
        self.believed
    }

    /// What is most likely: the median of the scale, with the odds that go with it.
    pub const fn likely(&self) -> Learnt {
        self.likely
    }

    /// This quantile of the scale, and the odds that are most likely with it; the profile while it
    /// is more likely than not.
    fn quantile(&self, share: f64) -> Learnt {
        let right = self.right();
        if right >= 0.5 {
            return Learnt::AS_PROFILED;
        }
        let rows = || self.weights.chunks_exact(ODDS.len()).zip(&self.scales);
        let mut below = 0.0;
        let mut is_right_counted = false;
        for (row, &scale) in rows() {
            below += row.iter().sum::<f64>();
            if scale >= 1.0 && !is_right_counted {
                is_right_counted = true;
                below += right;
            }
            if below >= share {
                let (sum, logs) =
                    row.iter().zip(ODDS).fold((0.0, 0.0), |(sum, logs), (of, odds)| {
                        (sum + of, logs + of * libm::log(odds))
                    });
                let odds = if sum > 0.0 { libm::exp(logs / sum) } else { 1.0 };
                return Learnt::of(scale, odds);
            }
        }
        Learnt::AS_PROFILED
    }
}
