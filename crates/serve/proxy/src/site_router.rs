//! Which data centre a request goes to, whatever its protocol.
//!
//! A worker has one [`Splitter`]. Every request of the site's own users asks it once, in
//! `SiteRouter::choose`: that is the only place where demand is counted. What another site sent
//! here is served at home, whatever the plan says, and is no demand: no request makes two hops, and
//! plans are made from what users ask for, not from what was sent round.
//!
//! **When home cannot serve it**, because none of its replicas can be reached and no plan knows it
//! yet, a request that was to stay is failed over: core says where to. One that has been elsewhere,
//! or came from there, is not.
//!
//! **When the other site does not serve it** (nobody there is healthy or can be reached, or all
//! who were asked refused), a request that may be sent again comes back home, once. The objective
//! is then missed more often than not; the request is not lost. Where that goes on, the site is no
//! longer chosen: health checks find its replicas down, or the dispatcher ejects them.
//!
//! **When the other site says nothing** (it stands still, or the way there is cut), such a request
//! comes home as soon as all who work on it have fallen silent, or when its [`Patience`] ends.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::dimmer::Inflow;
use evenkeel_core::request::Refusal;
use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::{SiteId, SiteSet};
use evenkeel_geo::split::patience::{Patience, Sent, Waits};
use evenkeel_geo::split::{SplitConfig, Splitter};
use evenkeel_geo::traffic::SplitSetup;

use crate::config::SiteSetup;
use crate::site_setup::Constraints;
use crate::upstream_state::{SiteCounts, SplitReport};
use evenkeel_geo::demand::SiteTally;
use evenkeel_geo::traffic::Directive;

/// One worker's split of an upstream's requests.
#[derive(Debug)]
pub struct SiteRouter {
    setup: SplitSetup,
    /// By site, its place among the data centres of the upstream; `None` for one we know no way to.
    datacenters: Vec<Option<usize>>,
    splitter: RefCell<Splitter>,
    patience: RefCell<Patience>,
    usable: Cell<SiteSet>,
    /// When `usable` must be looked up again.
    usable_until: Cell<Instant>,
    counted: RefCell<SplitReport>,
    epoch: Cell<Option<u64>>,
    /// Where requests may be hedged, and until when that is believed.
    hedges: Cell<(SiteSet, Instant)>,
    /// What the plan brings the replicas at home, and until when they are told.
    inflow: Cell<(Option<Inflow>, Instant)>,
    returns: Cell<Returns>,
}

/// How long after a plan its inflow is news: later the arrivals show it (the dimmers' period).
const NEWS: Duration = Duration::from_millis(250);

fn config_of(setup: &SplitSetup) -> SplitConfig {
    SplitConfig { writes_stay: setup.bound_stay, ..SplitConfig::default() }
}

/// Calls that were closed at one site to be opened again at another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Returns {
    /// Closed as refused.
    pub refused: u64,
    /// Closed as answered: with "unavailable".
    pub answered: u64,
    /// Closed while an answer was waited for.
    pub waiting: u64,
}

impl SiteRouter {
    /// Without a plan yet: all requests stay at home. `seed` is of the draws between sites.
    ///
    /// # Panics
    /// When there are not as many places as sites.
    pub fn new(SiteSetup { sites: setup, places }: &SiteSetup, seed: u64) -> Self {
        let sites = setup.names.len();
        assert_eq!(places.len(), sites, "every site has a place or none");
        Self {
            patience: RefCell::new(Patience::new(setup.home, sites, setup.objective)),
            setup: setup.clone(),
            datacenters: places.clone(),
            splitter: RefCell::new(Splitter::new(setup.home, sites, config_of(setup), seed)),
            usable: Cell::new(SiteSet::EMPTY),
            usable_until: Cell::new(Instant::ZERO),
            counted: RefCell::new(Self::nothing(sites)),
            epoch: Cell::new(None),
            hedges: Cell::new((SiteSet::first(sites), Instant::ZERO)),
            inflow: Cell::default(),
            returns: Cell::default(),
        }
    }

    fn nothing(sites: usize) -> SplitReport {
        SplitReport {
            epoch: None,
            windows: Vec::new(),
            by_site: vec![SiteCounts::default(); sites],
            returned: SiteTally::default(),
            inflow_unknown: 0,
            waiting: 0,
        }
    }

    /// The sites, and which of them this is.
    pub const fn setup(&self) -> &SplitSetup {
        &self.setup
    }

    /// The site of this process.
    pub(crate) const fn home(&self) -> SiteId {
        self.setup.home
    }

    /// The place of a site among the data centres of the upstream; `None` where no way is known.
    pub(crate) fn datacenter(&self, site: SiteId) -> Option<usize> {
        self.datacenters[site.index()]
    }

    /// The other sites, each with its place among the data centres of the upstream.
    pub fn others(&self) -> impl Iterator<Item = (SiteId, usize)> {
        let places = self.datacenters.iter().enumerate();
        places
            .filter_map(|(site, place)| Some((SiteId::new(site), (*place)?)))
            .filter(|(site, _)| *site != self.setup.home)
    }

    /// Takes over a plan.
    pub fn direct(&self, now: Instant, worker: usize, directive: &Directive) {
        let part = directive.parts.get(worker).copied().unwrap_or(Probability::ZERO);
        let Directive { row, good_until, spare_per_1000_s, hedges, inflow, .. } = directive;
        let mut splitter = self.splitter.borrow_mut();
        let window = splitter.window();
        self.counted.borrow_mut().windows.push((self.epoch.get(), window));
        match splitter.adopt(now, row, part, *good_until) {
            Ok(()) => {
                splitter.set_spare(now, spare_per_1000_s, part);
                self.hedges.set((*hedges, *good_until));
                self.inflow.set((*inflow, now + NEWS));
                self.epoch.set(Some(row.epoch));
            }
            Err(error) => tracing::warn!(%error, "a plan is not adopted"),
        }
    }

    /// Whether requests to this data centre of the upstream may be hedged by the plan; without a
    /// plan that is believed all may, as far as the hedges' own gate and budget go.
    pub(crate) fn may_hedge(&self, now: Instant, datacenter: usize) -> bool {
        let (hedges, good_until) = self.hedges.get();
        let place = self.datacenters.iter().position(|place| *place == Some(datacenter));
        now >= good_until || place.is_none_or(|site| hedges.contains(SiteId::new(site)))
    }

    /// What the replicas at home are to be told of the plan that has just taken force, each once.
    pub fn inflow(&self, now: Instant) -> Option<Inflow> {
        let (inflow, until) = self.inflow.get();
        inflow.filter(|_| now < until)
    }

    /// Chooses where one request of our own users goes, and counts it as demand.
    pub fn choose(&self, now: Instant, constraints: Constraints) -> Destination {
        let usable = self.usable_for(constraints.allowed);
        let mut splitter = self.splitter.borrow_mut();
        let route = match constraints.is_bound {
            true => splitter.choose_write(now, usable),
            false => splitter.choose(now, usable),
        };
        let home = self.setup.home;
        let is_lost = route.to == home && !self.is_home_usable();
        let others = self.usable_for(constraints.failover);
        let failed_over = is_lost.then(|| splitter.failover(now, others)).flatten();
        let failover = if failed_over.is_some() { SiteSet::EMPTY } else { constraints.failover };
        let to = failed_over.unwrap_or(route.to);
        if to != home {
            self.patience.borrow_mut().sent(now);
        }
        Destination { to, failover }
    }

    /// The usable sites among these and home.
    fn usable_for(&self, allowed: SiteSet) -> SiteSet {
        let usable = self.usable.get();
        let mut sites = SiteSet::from_bits(usable.bits() & allowed.bits());
        if usable.contains(self.setup.home) {
            sites.insert(self.setup.home);
        }
        sites
    }

    /// Where a request goes that home could not serve after all, if anywhere.
    pub(crate) fn failover(&self, now: Instant, allowed: SiteSet) -> Option<SiteId> {
        self.splitter.borrow_mut().failover(now, self.usable_for(allowed))
    }

    /// Whether home has a replica to send to, as it was last looked up.
    pub(crate) fn is_home_usable(&self) -> bool {
        self.usable.get().contains(self.setup.home)
    }

    /// Whether it must be looked up again which sites can be used.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.usable_until.get()
    }

    /// Notes that a replica of another site failed, or that health changed.
    pub fn look_again(&self) {
        self.usable_until.set(Instant::ZERO);
    }

    /// Notes which data centres have a healthy replica; each says until when that stands as it is.
    pub fn set_usable(&self, datacenter: impl Fn(usize) -> (bool, Instant)) {
        let mut usable = SiteSet::EMPTY;
        let mut until = Instant::FAR;
        for (site, known) in self.datacenters.iter().enumerate() {
            let Some(known) = *known else { continue };
            let (is_usable, stands_until) = datacenter(known);
            if is_usable {
                usable.insert(SiteId::new(site));
            }
            until = until.min(stands_until);
        }
        self.usable.set(usable);
        self.usable_until.set(until);
    }

    /// Counts a request that another site sent here: the one of that name, if there is one.
    pub fn welcome(&self, origin: Option<&[u8]>) {
        let place = self.setup.names.iter().position(|name| Some(name.as_bytes()) == origin);
        let counted = &mut *self.counted.borrow_mut();
        let count = match place {
            Some(site) => &mut counted.by_site[site].inflow,
            None => &mut counted.inflow_unknown,
        };
        *count += 1;
    }

    /// Takes what was counted since the last time; so many calls wait for a replica now.
    pub fn observe(&self, now: Instant, waiting: u64) -> SplitReport {
        let empty = Self::nothing(self.datacenters.len());
        let mut counted = std::mem::replace(&mut *self.counted.borrow_mut(), empty);
        let mut splitter = self.splitter.borrow_mut();
        counted.windows.push((self.epoch.get(), splitter.window()));
        counted.epoch = splitter.epoch(now);
        counted.waiting = waiting;
        counted
    }

    /// A call was closed with a refusal or an answer, and its request begins another one.
    pub(crate) fn note_return(&self, refusal: Option<Refusal>) {
        let mut returns = self.returns.get();
        match refusal {
            Some(_) => returns.refused += 1,
            None => returns.answered += 1,
        }
        self.returns.set(returns);
    }

    /// A call was closed while an answer was waited for, and its request begins another one.
    pub(crate) fn note_leave(&self) {
        let returns = self.returns.get();
        self.returns.set(Returns { waiting: returns.waiting + 1, ..returns });
    }

    /// Until when a request waits for another site; see [`Patience::waits`].
    pub(crate) fn waits(&self, now: Instant, sent: &mut Sent, silent_at: Option<Instant>) -> Waits {
        let is_home_usable = self.is_home_usable();
        self.patience.borrow_mut().waits(now, sent, silent_at, is_home_usable)
    }

    /// A request that was nowhere else got its answer from that site, so long after it came.
    pub(crate) fn note_reply(&self, site: SiteId, latency: Duration) {
        self.patience.borrow_mut().replied(site, latency);
    }

    /// A request that a site was given goes home.
    pub(crate) fn note_fallback(&self, site: SiteId) {
        self.counted.borrow_mut().by_site[site.index()].fallbacks += 1;
    }

    /// Notes how long a request of our own users waited for the head of its answer.
    pub(crate) fn record_latency(&self, site: SiteId, latency: Duration) {
        self.counted.borrow_mut().by_site[site.index()].latency.record(latency);
    }

    /// Counts a request of our own users that a site served; `has_returned` says whether it had
    /// been at another one before.
    pub(crate) fn count(&self, site: SiteId, one: SiteTally, has_returned: bool) {
        let counted = &mut *self.counted.borrow_mut();
        counted.by_site[site.index()].tally.add(one);
        if has_returned {
            counted.returned.add(one);
        }
    }

    /// Takes how many calls were followed by another one for the same request since the last time.
    pub fn take_returns(&self) -> Returns {
        self.returns.take()
    }
}

/// Where a request of our own users goes.
#[derive(Clone, Copy, Debug)]
pub struct Destination {
    /// The site that serves it.
    pub to: SiteId,
    /// The sites that may still take it over when home cannot serve it.
    pub failover: SiteSet,
}

#[cfg(test)]
mod tests {
    use evenkeel_geo::split::PlanRow;

    use super::*;

    #[test]
    fn what_a_plan_brings_is_news_for_a_moment_and_gone_with_the_next_plan() {
        let names = vec!["london".to_owned(), "ireland".to_owned()];
        let (home, objective) = (SiteId::new(0), Duration::from_millis(100));
        let sites = SplitSetup { home, names, objective, writes_stay: false, bound_stay: false };
        let router = SiteRouter::new(&SiteSetup { places: vec![Some(0), None], sites }, 1);
        let direct = |at_ms: u64, epoch: u64, factor: Option<f64>| {
            let rates_per_1000_s = vec![1_000, 0];
            let row = PlanRow { epoch, origin: home, demand_per_1000_s: 1_000, rates_per_1000_s };
            let directive = Directive {
                row,
                parts: vec![Probability::ONE],
                good_until: Instant::FAR,
                spare_per_1000_s: Vec::new(),
                hedges: SiteSet::first(2),
                inflow: factor.and_then(|factor| Inflow::new(epoch, factor)),
            };
            router.direct(Instant::from_millis(at_ms), 0, &directive);
        };
        let told = |at_ms: u64| router.inflow(Instant::from_millis(at_ms)).map(Inflow::epoch);
        assert_eq!(told(0), None);
        direct(1_000, 1, Some(2.0));
        assert_eq!([1_000, 1_249, 1_250].map(told), [Some(1), Some(1), None]);
        direct(2_000, 2, Some(2.0));
        direct(2_010, 3, Some(0.5));
        assert_eq!(told(2_010), Some(3), "a plan that is replaced at once is not told any more");
        direct(2_020, 2, Some(2.0));
        assert_eq!(told(2_020), Some(3), "nor is one that is not adopted");
        direct(2_030, 4, None);
        assert_eq!(told(2_030), None);
    }
}
