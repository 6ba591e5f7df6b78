//! Which data centre serves a request: the plan's ratio, with a cap.
//!
//! **Ratio**: of the requests of an origin the plan sends a share λ to each destination, and the
//! same share of whatever comes is sent: when demand falls below the plan's, what is redirected
//! falls with it. **Cap**: each destination has a token bucket of 1.1 λ, so that a surge at the
//! origin is not passed on; what is over it stays local (Kurma study, 2.1 #9). The receiver planned
//! for λ, and the origin's own dimmer is there for the surge.
//!
//! **Why no coin.** A request's destination is the place of `n · φ mod 1` (φ the golden ratio)
//! among the shares laid end to end: of any run of requests every share gets its part to within
//! four requests, where a coin is off by the square root. Measured, standard deviation and
//! worst of 500 epochs of about 2,500 requests for a share of 0.11, and the worst error among 300
//! due when every n-th request is alike (n = 1 to 100):
//!
//! | way | error, requests | worst | of 300 alike | looks at |
//! |---|---|---|---|---|
//! | coin | 15.4 | 49 | 37 | its place |
//! | golden ratio | 0.7 | 2.1 | 19 | its place |
//! | smooth weighted round robin | 0.4 | 1.3 | 300 | every destination |
//!
//! Round robin is the most exact and has a rhythm: ten requests a page and shares in tenths, and
//! all pages go one way. The golden ratio has none. **When it misleads**: where arrivals themselves
//! vary by more than that (they do), the difference to a coin is seen in small shares only.
//!
//! **Without a plan**, with one that is two epochs old, or when no replica of a destination is
//! healthy, requests stay local, counted by cause.
//!
//! **When home has nobody** (all its replicas died at once, and no plan knows it yet), a request
//! that would stay is [failed over](Splitter::failover): it goes to a destination of the plan that
//! has not had its rate, or where the others have capacity to spare, within that. The next plan has
//! the site's capacity as it is then.
//!
//! | room | does |
//! |---|---|
//! | this file | [`Splitter`]: one request |
//! | `parts` | the parts of several proxies, and what became of the plan |
//! | `patience` | how long a request waits at another site before it comes home |
//! | `explain` | why requests of one site went to another, as data and as a sentence |

mod explain;
pub mod parts;
pub mod patience;

#[cfg(test)]
mod tests;

use arrayvec::ArrayVec;

use super::epoch::{OutsideOfRange, RATE_MAX, SITES_MAX, SiteId, SiteSet};
use evenkeel_core::time::Instant;
use evenkeel_core::units::Probability;

pub use explain::{Flow, Predicted};
pub use parts::{Enforced, enforced, parts};

/// What the plan of one epoch says of one origin: of those of its requests that a plan may move.
/// Where writes stay or go everywhere they are in none of the numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlanRow {
    /// The epoch the plan is for.
    pub epoch: u64,
    /// The site whose users' requests these are.
    pub origin: SiteId,
    /// The demand that was planned for, in requests per 1,000 s. What of it has no rate (nobody
    /// can serve it) stays local.
    pub demand_per_1000_s: u64,
    /// By destination, the origin itself among them: requests per 1,000 s.
    pub rates_per_1000_s: Vec<u64>,
}

impl PlanRow {
    /// What the shares are shares of: the demand, or the sum of the rates where that is more.
    pub fn whole_per_1000_s(&self) -> u64 {
        self.demand_per_1000_s.max(self.rates_per_1000_s.iter().sum())
    }

    /// The share of requests the plan sends to a destination. What has no rate is the origin's.
    pub fn share(&self, to: SiteId) -> Probability {
        let whole = self.whole_per_1000_s();
        let rates = &self.rates_per_1000_s;
        let rate = if to == self.origin {
            let others = rates.iter().enumerate().filter(|(index, _)| *index != to.index());
            whole - others.map(|(_, rate)| rate).sum::<u64>()
        } else {
            rates.get(to.index()).copied().unwrap_or(0)
        };
        Probability::clamped(if whole == 0 { 0.0 } else { rate as f64 / whole as f64 })
    }
}

/// How a splitter enforces.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SplitConfig {
    /// What a destination may get beyond its planned rate, as a share of it; default 0.1.
    pub slack: Probability,
    /// Whether writes stay where they come, whatever the plan; default no. The plan is then made
    /// with [`Writes::Home`](super::planner::Writes::Home) or
    /// [`Writes::Everywhere`](super::planner::Writes::Everywhere), and its rows are of reads.
    pub writes_stay: bool,
}

impl Default for SplitConfig {
    fn default() -> Self {
        Self { slack: Probability::clamped(0.1), writes_stay: false }
    }
}

/// Where one request goes, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Route {
    /// The data centre.
    pub to: SiteId,
    /// Why that one.
    pub because: Because,
}

/// Why a request goes where it goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// The plan says so.
    Planned,
    /// Local: there is no plan yet.
    NoPlan,
    /// Local: the plan is too old to be believed.
    Stale,
    /// Local: it is a write, and writes stay.
    Write,
    /// Local: the destination had its rate already.
    OverCap {
        /// That destination.
        wanted: SiteId,
    },
    /// Local: no replica of the destination is healthy.
    Unhealthy {
        /// That destination.
        wanted: SiteId,
    },
}

/// Why a plan is not adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unadopted {
    /// It is not newer than the one in force.
    #[error("the plan of epoch {came} is not newer than that of {in_force} in force")]
    NotNewer {
        /// The epoch it is for.
        came: u64,
        /// The epoch of the one in force.
        in_force: u64,
    },
    /// It is for another origin.
    #[error("the plan is for requests of site {}, not of this one", .came.index())]
    OtherOrigin {
        /// For this one.
        came: SiteId,
    },
    /// A number is not possible: a rate, or how many there are.
    #[error("{0}")]
    Range(OutsideOfRange),
}

/// What a splitter counted since its window was last taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SplitWindow {
    /// Requests that came: the demand at the origin.
    pub arrived: u64,
    /// Of these, the ones that change something.
    pub writes: u64,
    /// Of these, the ones that stayed local because writes stay.
    pub writes_kept: u64,
    /// Requests that stayed local for want of a plan.
    pub no_plan: u64,
    /// Requests that stayed local because the plan was stale.
    pub stale: u64,
    /// By destination, the origin among them.
    pub by_site: Vec<DestinationCounts>,
}

/// What became of requests to one destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DestinationCounts {
    /// Sent there, for whatever reason.
    pub sent: u64,
    /// Meant for it and kept local because it had its rate.
    pub over_cap: u64,
    /// Meant for it and kept local because no replica of it was healthy.
    pub unhealthy: u64,
    /// Meant for home, which had no replica to serve them, and sent there instead. Not in `sent`:
    /// each of these is in that of home.
    pub failed_over: u64,
}

impl SplitWindow {
    /// Nothing, between `sites` sites.
    pub fn empty(sites: usize) -> Self {
        let by_site = vec![DestinationCounts::default(); sites];
        Self { arrived: 0, writes: 0, writes_kept: 0, no_plan: 0, stale: 0, by_site }
    }

    /// Adds what another splitter of the same origin, or a later window, counted.
    pub fn merge(&mut self, other: &Self) {
        self.arrived += other.arrived;
        self.writes += other.writes;
        self.writes_kept += other.writes_kept;
        self.no_plan += other.no_plan;
        self.stale += other.stale;
        for (mine, theirs) in self.by_site.iter_mut().zip(&other.by_site) {
            mine.sent += theirs.sent;
            mine.over_cap += theirs.over_cap;
            mine.unhealthy += theirs.unhealthy;
            mine.failed_over += theirs.failed_over;
        }
    }
}

/// The fraction of the golden ratio, of 2⁶⁴.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;
/// Tokens of any bucket: a request may be late for its turn by one.
const BURST_BASE: f64 = 2.0;
/// Tokens more for a share of 1. Requests that come at random (Poisson) and are all sent need them,
/// with a slack of 0.1, to be stopped by chance no more often than once in a thousand: the backlog
/// of a bucket exceeds b with e^(−2·slack·b / share).
const BURST_SHARE: f64 = 35.0;
/// Time, in nanoseconds, whose worth of tokens is added: requests come off sockets in handfuls.
const BURST_NS: f64 = 10e6;

/// One destination's part of the shares: those up to `last`.
#[derive(Clone, Copy, Debug)]
struct Slice {
    last: u64,
    to: SiteId,
}

#[derive(Clone, Debug)]
struct Active {
    epoch: u64,
    good_until: Instant,
    /// Remote destinations with a rate, in order; what is beyond them is local.
    slices: ArrayVec<Slice, SITES_MAX>,
    /// Remote destinations with capacity to spare, in order; together they are everything.
    spares: ArrayVec<Slice, SITES_MAX>,
}

impl Active {
    #[inline]
    fn remote(&self, phase: u64) -> Option<SiteId> {
        self.slices.iter().find(|slice| phase <= slice.last).map(|slice| slice.to)
    }
}

/// The first of these destinations that will do, beginning at a place that the phase chooses in
/// proportion.
fn first_from(
    slices: &[Slice],
    phase: u64,
    mut will_do: impl FnMut(SiteId) -> bool,
) -> Option<SiteId> {
    let whole = u128::from(slices.last()?.last) + 1;
    let place = ((u128::from(phase) * whole) >> 64) as u64;
    let begin = slices.iter().position(|slice| place <= slice.last).unwrap_or(0);
    let (before, from) = slices.split_at(begin);
    from.iter().chain(before).map(|slice| slice.to).find(|to| will_do(*to))
}

/// A token bucket. It keeps its tokens from plan to plan: a new plan is no new burst.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    tokens_max: f64,
    per_ns: f64,
    filled_at: Instant,
}

impl Bucket {
    /// Infinitely full, until a plan says how much that is.
    const NEW: Self =
        Self { tokens: f64::INFINITY, tokens_max: 0.0, per_ns: 0.0, filled_at: Instant::ZERO };

    #[inline]
    fn fill(&mut self, now: Instant) {
        let more = now.nanos_since(self.filled_at) as f64 * self.per_ns;
        self.tokens = (self.tokens + more).min(self.tokens_max);
        self.filled_at = self.filled_at.max(now);
    }

    #[inline]
    fn take(&mut self, now: Instant) -> bool {
        self.fill(now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    /// A plan gives it another rate, and a share of the origin's requests.
    fn set(&mut self, now: Instant, per_ns: f64, share: f64) {
        if self.tokens.is_finite() {
            self.fill(now);
        }
        self.per_ns = per_ns;
        self.tokens_max = BURST_BASE + BURST_SHARE.mul_add(share, BURST_NS * per_ns);
        self.tokens = self.tokens.min(self.tokens_max);
        self.filled_at = now;
    }
}

/// Splits the requests that one proxy (or one worker of it) gets from the users of its site.
#[derive(Clone, Debug)]
pub struct Splitter {
    home: SiteId,
    config: SplitConfig,
    phase: u64,
    /// The same of failed over requests, so that the others keep their sequence.
    failovers: u64,
    plan: Option<Active>,
    buckets: Vec<Bucket>,
    /// By destination, what of its spare capacity may still be used.
    spares: Vec<Bucket>,
    window: SplitWindow,
}

impl Splitter {
    /// A splitter at site `home` of `sites` sites, without a plan: all stays local.
    ///
    /// `seed` is where the sequence begins; give each proxy its own, lest they all choose alike.
    ///
    /// # Panics
    /// When there are more than [`SITES_MAX`] sites or `home` is none of them: configuration is
    /// checked where it is read.
    pub fn new(home: SiteId, sites: usize, config: SplitConfig, seed: u64) -> Self {
        assert!(sites <= SITES_MAX && home.index() < sites, "home is one of the sites");
        Self {
            home,
            config,
            phase: evenkeel_core::rng::Rng::stream(seed, "split").bits(),
            failovers: evenkeel_core::rng::Rng::stream(seed, "rescue").bits(),
            plan: None,
            buckets: vec![Bucket::NEW; sites],
            spares: vec![Bucket::NEW; sites],
            window: SplitWindow::empty(sites),
        }
    }

    /// Where one request goes that changes nothing. `usable` are the sites with a healthy replica.
    ///
    /// Allocates nothing.
    #[inline]
    pub fn choose(&mut self, now: Instant, usable: SiteSet) -> Route {
        let route = self.route(now, usable, false);
        self.count(route)
    }

    /// Where one request goes that changes something: as any other, or home where writes stay.
    ///
    /// Allocates nothing.
    #[inline]
    pub fn choose_write(&mut self, now: Instant, usable: SiteSet) -> Route {
        let route = self.route(now, usable, true);
        self.window.writes += 1;
        self.count(route)
    }

    #[inline]
    fn count(&mut self, route: Route) -> Route {
        self.window.arrived += 1;
        self.window.by_site[route.to.index()].sent += 1;
        match route.because {
            Because::Planned => {}
            Because::NoPlan => self.window.no_plan += 1,
            Because::Stale => self.window.stale += 1,
            Because::Write => self.window.writes_kept += 1,
            Because::OverCap { wanted } => self.window.by_site[wanted.index()].over_cap += 1,
            Because::Unhealthy { wanted } => self.window.by_site[wanted.index()].unhealthy += 1,
        }
        route
    }

    /// Replaces the plan, whole. Ratios are those of `plan`, caps the `part` of them that this
    /// proxy is given (see [`parts()`]); in force until `good_until`.
    ///
    /// # Errors
    /// When it is not newer than a plan in force, or not a plan for this origin and these sites:
    /// then the one in force stays.
    pub fn adopt(
        &mut self,
        now: Instant,
        plan: &PlanRow,
        part: Probability,
        good_until: Instant,
    ) -> Result<(), Unadopted> {
        self.check(now, plan)?;
        let cap = part.value() * (1.0 + self.config.slack.value()) * 1e-12;
        let whole = u128::from(plan.whole_per_1000_s());
        let mut slices = ArrayVec::new();
        let mut sum: u128 = 0;
        for (index, &rate) in plan.rates_per_1000_s.iter().enumerate() {
            let to = SiteId::new(index);
            if to == self.home {
                continue;
            }
            self.buckets[index].set(now, rate as f64 * cap, plan.share(to).value());
            if rate > 0 {
                sum += u128::from(rate);
                // At least one of 2⁶⁴, and all of it when nothing stays local.
                let last = (sum << 64).div_ceil(whole) - 1;
                slices.push(Slice { last: last as u64, to });
            }
        }
        let spares = ArrayVec::new();
        self.plan = Some(Active { epoch: plan.epoch, good_until, slices, spares });
        Ok(())
    }

    /// What each destination could serve beyond the plan in force, in requests per 1,000 s, and
    /// this proxy's part of it. Home's own and sites that do not exist are passed over; without
    /// this, or with nothing to spare, only the plan's sites take over.
    pub fn set_spare(&mut self, now: Instant, spare_per_1000_s: &[u64], part: Probability) {
        let Some(plan) = &mut self.plan else { return };
        plan.spares.clear();
        let home = self.home;
        let others = || {
            let sites = spare_per_1000_s.iter().take(self.buckets.len()).enumerate();
            sites.filter(move |(index, _)| *index != home.index())
        };
        let whole: u128 = others().map(|(_, spare)| u128::from(*spare)).sum();
        let mut sum: u128 = 0;
        for (index, &spare) in others() {
            let per_ns = spare as f64 * part.value() * 1e-12;
            let share = if whole == 0 { 0.0 } else { spare as f64 / whole as f64 };
            // The room for chance is divided too: all proxies of a site fail over in one moment.
            self.spares[index].set(now, per_ns, share * part.value());
            if spare > 0 {
                sum += u128::from(spare);
                let last = ((sum << 64).div_ceil(whole) - 1) as u64;
                plan.spares.push(Slice { last, to: SiteId::new(index) });
            }
        }
    }

    /// Where a request goes that was to be served at home and that home cannot serve: all its
    /// replicas are down, ejected or out of reach. To a destination of the plan within its cap,
    /// else where there is capacity to spare; `None` when there is nobody, or no plan in force:
    /// then it fails at home. The caller sees to it that no request is sent on twice.
    ///
    /// Allocates nothing.
    pub fn failover(&mut self, now: Instant, usable: SiteSet) -> Option<SiteId> {
        let plan = self.plan.as_ref().filter(|plan| now < plan.good_until)?;
        self.failovers = self.failovers.wrapping_add(GOLDEN);
        let (phase, by_site, spares) = (self.failovers, &mut self.buckets, &mut self.spares);
        let planned = first_from(&plan.slices, phase, |to| {
            usable.contains(to) && by_site[to.index()].take(now)
        });
        let to = planned.or_else(|| {
            let will_do = |to: SiteId| usable.contains(to) && spares[to.index()].take(now);
            first_from(&plan.spares, phase, will_do)
        })?;
        self.window.by_site[to.index()].failed_over += 1;
        Some(to)
    }

    /// The epoch of the plan in force; `None` when there is none.
    pub fn epoch(&self, now: Instant) -> Option<u64> {
        self.plan.as_ref().filter(|plan| now < plan.good_until).map(|plan| plan.epoch)
    }

    /// What was counted since this was asked last.
    #[must_use]
    pub fn window(&mut self) -> SplitWindow {
        let empty = SplitWindow::empty(self.buckets.len());
        core::mem::replace(&mut self.window, empty)
    }

    #[inline]
    fn route(&mut self, now: Instant, usable: SiteSet, is_write: bool) -> Route {
        let home = |because| Route { to: self.home, because };
        let Some(plan) = &self.plan else { return home(Because::NoPlan) };
        if now >= plan.good_until {
            return home(Because::Stale);
        }
        if is_write && self.config.writes_stay {
            return home(Because::Write);
        }
        self.phase = self.phase.wrapping_add(GOLDEN);
        let Some(wanted) = plan.remote(self.phase) else { return home(Because::Planned) };
        if !usable.contains(wanted) {
            return home(Because::Unhealthy { wanted });
        }
        if !self.buckets[wanted.index()].take(now) {
            return home(Because::OverCap { wanted });
        }
        Route { to: wanted, because: Because::Planned }
    }

    fn check(&self, now: Instant, plan: &PlanRow) -> Result<(), Unadopted> {
        if plan.origin != self.home {
            return Err(Unadopted::OtherOrigin { came: plan.origin });
        }
        if let Some(in_force) = self.epoch(now)
            && plan.epoch <= in_force
        {
            return Err(Unadopted::NotNewer { came: plan.epoch, in_force });
        }
        let sites = self.buckets.len() as u64;
        let rates = &plan.rates_per_1000_s;
        OutsideOfRange::check("rates", rates.len() as u64, sites, sites)
            .and_then(|()| Self::check_rate(plan.demand_per_1000_s))
            .and_then(|()| rates.iter().copied().try_for_each(Self::check_rate))
            .map_err(Unadopted::Range)
    }

    fn check_rate(rate: u64) -> Result<(), OutsideOfRange> {
        OutsideOfRange::check("rate (requests per 1,000 s)", rate, 0, RATE_MAX)
    }
}
