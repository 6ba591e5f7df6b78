//! Which data centre a request goes to, whatever its protocol.
//!
//! A worker has one [`Splitter`]. Every request of the site's own users asks it once, in
//! `Split::choose`: that is the only place where demand is counted. What another site sent here is
//! served at home, whatever the plan says, and is no demand: no request makes two hops, and plans
//! are made from what users ask for, not from what was sent round.
//!
//! **When home cannot serve it**, because none of its replicas can be reached and no plan knows it
//! yet, a request that was to stay is rescued: core says where to. One that has been elsewhere, or
//! came from there, is not.
//!
//! **When the other site does not serve it** (nobody there is healthy or can be reached, or all
//! who were asked refused), a request that may be sent again comes back home, once. The objective
//! is then missed more often than not; the request is not lost. Where that goes on, the site is no
//! longer chosen: health checks find its replicas down, or the dispatcher ejects them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::request::{Failure, Refusal};
use evenkeel_core::site::redirect::epoch::{SiteId, SiteSet};
use evenkeel_core::site::redirect::split::{SplitConfig, Splitter};
use evenkeel_core::units::Probability;

use crate::board::{Directive, Lane, LaneTally, SplitObservation};
use crate::calls::{Calls, HOME};
use crate::config::UpstreamConfig;

/// The sites between which an upstream's requests are split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SplitSetup {
    /// The site of this process.
    pub home: SiteId,
    /// All sites, in the order of [`SiteId`].
    pub names: Vec<String>,
    /// A request whose answer begins later than this after its arrival missed the objective.
    pub objective: Duration,
    /// Whether requests that change something stay here whatever the plan.
    pub writes_stay: bool,
    /// Whether requests that are bound stay: writes that stay, or what no other site may serve.
    pub bound_stay: bool,
}

impl SplitSetup {
    /// The name of the site of this process.
    #[must_use]
    pub fn home_name(&self) -> &str {
        &self.names[self.home.index()]
    }
}

/// One worker's split of an upstream's requests.
#[derive(Debug)]
pub(crate) struct Split {
    setup: SplitSetup,
    /// By site, its place among the data centres of the upstream; `None` for one we know no way to.
    datacenters: Vec<Option<usize>>,
    splitter: RefCell<Splitter>,
    usable: Cell<SiteSet>,
    /// When `usable` must be looked up again.
    usable_until: Cell<Instant>,
    counted: RefCell<SplitObservation>,
    epoch: Cell<Option<u64>>,
    returns: Cell<Returns>,
}

/// What decides where a request may be served.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bonds {
    /// Whether it is one of those that a plan may be told to leave where they come: over HTTP one
    /// that may change something, over Cassandra's protocol one that no other site may serve.
    pub(crate) is_bound: bool,
    /// The sites that may serve it, by number; home always may.
    pub(crate) allowed: SiteSet,
}

impl Bonds {
    /// Of a request that any site may serve, unless writes stay.
    pub(crate) const fn of_write(is_write: bool) -> Self {
        Self { is_bound: is_write, allowed: SiteSet::from_bits(u64::MAX) }
    }
}

fn config_of(setup: &SplitSetup) -> SplitConfig {
    SplitConfig { writes_stay: setup.bound_stay, ..SplitConfig::default() }
}

/// Calls that were closed at one site to be opened again at another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Returns {
    /// Closed as refused.
    pub(crate) refused: u64,
    /// Closed as answered: with "unavailable".
    pub(crate) answered: u64,
}

impl Split {
    pub(crate) fn new(setup: &SplitSetup, config: &UpstreamConfig, seed: u64) -> Self {
        let sites = setup.names.len();
        let place = |(site, name): (usize, &String)| {
            if site == setup.home.index() { Some(HOME) } else { config.place(name) }
        };
        Self {
            setup: setup.clone(),
            datacenters: setup.names.iter().enumerate().map(place).collect(),
            splitter: RefCell::new(Splitter::new(setup.home, sites, config_of(setup), seed)),
            usable: Cell::new(SiteSet::EMPTY),
            usable_until: Cell::new(Instant::ZERO),
            counted: RefCell::new(Self::nothing(sites)),
            epoch: Cell::new(None),
            returns: Cell::default(),
        }
    }

    fn nothing(sites: usize) -> SplitObservation {
        SplitObservation {
            epoch: None,
            windows: Vec::new(),
            lanes: vec![Lane::default(); sites],
            returned: LaneTally::default(),
            inflow_unknown: 0,
            waiting: 0,
        }
    }

    pub(crate) const fn setup(&self) -> &SplitSetup {
        &self.setup
    }

    /// The other sites, each with its place among the data centres of the upstream.
    pub(crate) fn others(&self) -> impl Iterator<Item = (SiteId, usize)> {
        let places = self.datacenters.iter().enumerate();
        places
            .filter_map(|(site, place)| Some((SiteId::new(site), (*place)?)))
            .filter(|(site, _)| *site != self.setup.home)
    }

    /// Takes over a plan.
    pub(crate) fn direct(&self, now: Instant, worker: usize, directive: &Directive) {
        let part = directive.parts.get(worker).copied().unwrap_or(Probability::ZERO);
        let Directive { row, good_until, spare_per_1000_s, .. } = directive;
        let mut splitter = self.splitter.borrow_mut();
        let window = splitter.window();
        self.counted.borrow_mut().windows.push((self.epoch.get(), window));
        match splitter.adopt(now, row, part, *good_until) {
            Ok(()) => {
                splitter.set_spare(now, spare_per_1000_s, part);
                self.epoch.set(Some(row.epoch));
            }
            Err(error) => tracing::warn!(%error, "a plan is not adopted"),
        }
    }

    /// Chooses where one request of our own users goes, and counts it as demand.
    pub(crate) fn choose(&self, now: Instant, bonds: Bonds) -> Destination {
        let usable = self.usable_for(bonds.allowed);
        let mut splitter = self.splitter.borrow_mut();
        let route = match bonds.is_bound {
            true => splitter.choose_write(now, usable),
            false => splitter.choose(now, usable),
        };
        let home = self.setup.home;
        let may_leave = !(bonds.is_bound && self.setup.bound_stay);
        let is_lost = route.to == home && may_leave && !usable.contains(home);
        let rescued = is_lost.then(|| splitter.rescue(now, usable)).flatten();
        let may_leave = may_leave && rescued.is_none();
        let allowed = if may_leave { bonds.allowed } else { SiteSet::EMPTY };
        Destination { to: rescued.unwrap_or(route.to), allowed }
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
    fn rescue(&self, now: Instant, allowed: SiteSet) -> Option<SiteId> {
        self.splitter.borrow_mut().rescue(now, self.usable_for(allowed))
    }

    /// Whether home has a replica to send to, as it was last looked up.
    fn is_home_usable(&self) -> bool {
        self.usable.get().contains(self.setup.home)
    }

    /// Whether it must be looked up again which sites can be used.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.usable_until.get()
    }

    /// Notes that a replica of another site failed, or that health changed.
    pub(crate) fn look_again(&self) {
        self.usable_until.set(Instant::ZERO);
    }

    /// Notes which data centres have a healthy replica; each says until when that stands as it is.
    pub(crate) fn set_usable(&self, datacenter: impl Fn(usize) -> (bool, Instant)) {
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
    pub(crate) fn welcome(&self, origin: Option<&[u8]>) {
        let place = self.setup.names.iter().position(|name| Some(name.as_bytes()) == origin);
        let counted = &mut *self.counted.borrow_mut();
        let count = match place {
            Some(site) => &mut counted.lanes[site].inflow,
            None => &mut counted.inflow_unknown,
        };
        *count += 1;
    }

    /// Takes what was counted since the last time; so many calls wait for a replica now.
    pub(crate) fn observe(&self, now: Instant, waiting: u64) -> SplitObservation {
        let empty = Self::nothing(self.datacenters.len());
        let mut counted = std::mem::replace(&mut *self.counted.borrow_mut(), empty);
        let mut splitter = self.splitter.borrow_mut();
        counted.windows.push((self.epoch.get(), splitter.window()));
        counted.epoch = splitter.epoch(now);
        counted.waiting = waiting;
        counted
    }

    /// A call was closed with a refusal or an answer, and its request begins another one.
    fn note_return(&self, refusal: Option<Refusal>) {
        let mut returns = self.returns.get();
        match refusal {
            Some(_) => returns.refused += 1,
            None => returns.answered += 1,
        }
        self.returns.set(returns);
    }

    /// Takes how many calls were followed by another one for the same request since the last time.
    pub(crate) fn take_returns(&self) -> Returns {
        self.returns.take()
    }
}

/// Where a request of our own users goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Destination {
    to: SiteId,
    /// The sites that may still rescue it when home cannot serve it.
    allowed: SiteSet,
}

/// A request of our own users on its way, from its arrival to the head of its answer.
#[derive(Debug)]
pub(crate) struct Journey {
    calls: Rc<Calls>,
    to: SiteId,
    arrived_at: Instant,
    /// Whether it was at another site before it came home.
    has_returned: bool,
    /// The sites it may be sent to when home cannot serve it: once, and not when it was there
    /// already.
    allowed: SiteSet,
    is_over: bool,
}

impl Journey {
    const SPLIT: &str = "only a route that splits its requests begins journeys";

    /// Sets out.
    pub(crate) const fn begin(calls: Rc<Calls>, destination: Destination, now: Instant) -> Self {
        let Destination { to, allowed } = destination;
        Self { calls, to, arrived_at: now, has_returned: false, allowed, is_over: false }
    }

    /// Whether it goes to another site.
    pub(crate) fn is_away(&self) -> bool {
        self.to != self.split().setup.home
    }

    /// The data centre it goes to, among those of the upstream.
    pub(crate) fn datacenter(&self) -> usize {
        let place = self.split().datacenters[self.to.index()];
        place.expect("a site without a place is never usable")
    }

    /// Goes elsewhere with what home could not serve, or comes home with what another site did not:
    /// after a refusal there or (`None`) an answer of "unavailable". False when it can do neither.
    pub(crate) fn begin_again(&mut self, refusal: Option<Refusal>) -> bool {
        if self.is_lost(refusal) { self.rescue(refusal) } else { self.turn_back(refusal) }
    }

    /// Comes back home from a site that did not serve it, after a refusal there or (`None`) an
    /// answer of "unavailable". False when it is at home.
    fn turn_back(&mut self, refusal: Option<Refusal>) -> bool {
        let split = self.calls.split().expect(Self::SPLIT);
        if self.to == split.setup.home {
            return false;
        }
        split.counted.borrow_mut().lanes[self.to.index()].fallbacks += 1;
        split.note_return(refusal);
        self.to = split.setup.home;
        (self.has_returned, self.allowed) = (true, SiteSet::EMPTY);
        true
    }

    /// Whether home could not serve it, after a refusal there or (`None`) an answer of
    /// "unavailable", and it may go elsewhere.
    fn is_lost(&self, refusal: Option<Refusal>) -> bool {
        let split = self.split();
        if self.to != split.setup.home || self.allowed.is_empty() {
            return false;
        }
        self.calls.look_up_usable(split, self.calls.read_at());
        let is_out_of_reach = refusal.is_some_and(|refusal| {
            matches!(refusal, Refusal::NoReplica | Refusal::Failed(Failure::Unsent))
        });
        is_out_of_reach || !split.is_home_usable()
    }

    /// Goes to another site in place of home. False when there is none that has room.
    fn rescue(&mut self, refusal: Option<Refusal>) -> bool {
        let split = self.calls.split().expect(Self::SPLIT);
        let allowed = std::mem::replace(&mut self.allowed, SiteSet::EMPTY);
        let Some(to) = split.rescue(self.calls.read_at(), allowed) else { return false };
        split.note_return(refusal);
        self.to = to;
        true
    }

    /// Ends with an answer or a refusal.
    pub(crate) fn end(mut self, has_failed: bool) {
        self.is_over = true;
        let latency = self.calls.read_at().since(self.arrived_at);
        let split = self.split();
        let is_late = latency > split.setup.objective;
        self.count(is_late || has_failed);
        split.counted.borrow_mut().lanes[self.to.index()].latency.record(latency);
    }

    fn count(&self, has_missed: bool) {
        let counted = &mut *self.split().counted.borrow_mut();
        let one = LaneTally { ended: 1, missed: has_missed.into() };
        counted.lanes[self.to.index()].tally.add(one);
        if self.has_returned {
            counted.returned.add(one);
        }
    }

    /// Ends because of the client, which says nothing of any site.
    pub(crate) fn forget(mut self) {
        self.is_over = true;
    }

    fn split(&self) -> &Split {
        self.calls.split().expect(Self::SPLIT)
    }
}

impl Drop for Journey {
    /// The client has gone. When the objective had passed by then, that was missed; if not, nobody
    /// knows.
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let waited = self.calls.tick().since(self.arrived_at);
        if waited > self.split().setup.objective {
            self.count(true);
        }
    }
}
