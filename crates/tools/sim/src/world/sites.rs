//! Data centres in the virtual world: the way between them, and their control loops.

use core::ops::Range;

use evenkeel_core::dimmer::Inflow;
use evenkeel_core::request::Dispatcher;
use evenkeel_core::time::nanos;
use evenkeel_core::units::{Dimmer, Rate};
use evenkeel_core::{Duration, Instant, ReplicaId, Rng};
use evenkeel_geo::curve::{Conditions, Family, Residual};
use evenkeel_geo::epoch::{Rejection, SiteId, SiteSet, Snapshot, Step};
use evenkeel_geo::planner::{Inflows, Plan, Planner};
use evenkeel_geo::split::parts;
use evenkeel_geo::split::patience::{Patience, Sent, Waits};
use evenkeel_geo::wan;
use slab::Slab;

use crate::events::Lane;
use crate::peers::{Headroom, Sticky, waterfall};
use crate::redirect::control::{CONNECTIONS, Control, PROBE_EVERY};
use crate::redirect::spread::Spread;
use crate::redirect::tally::Tally;
use crate::redirect::{Mode, RedirectReport, SiteWindow, priced, profile};
use crate::scenario::{Geography, Scenario, Spelling};
use crate::server::{Discipline, Server};
use crate::world::{Event, World};

/// Time between two looks at who is busy.
const BUSY_EVERY: Duration = Duration::from_millis(100);
/// The share of what a site can serve that somebody who sets capacities by hand would write down:
/// where 5 % of its own users' requests miss the objective.
const CAPACITY_BY_HAND: f64 = 0.78;

/// A row on its way.
#[derive(Debug)]
struct Letter {
    from: usize,
    to: usize,
    bytes: Vec<u8>,
}

/// A probe on its way.
#[derive(Debug)]
struct Flying {
    from: usize,
    to: usize,
    connection: usize,
    sequence: u64,
    sent_at: Instant,
}

/// All data centres of a world.
#[derive(Debug)]
pub(super) struct Sites {
    mode: Mode,
    period: Duration,
    site_of_server: Vec<usize>,
    site_of_client: Vec<usize>,
    servers: Vec<Range<usize>>,
    clients: Vec<Range<usize>>,
    /// Base round trips now.
    base: Vec<Vec<Duration>>,
    /// Mean of what one direction takes beyond its base.
    residual: Duration,
    spreads: Vec<Spread>,
    /// By client, how long its requests wait at other sites; none where that is not our doing.
    patience: Vec<Patience>,
    usable: SiteSet,
    /// By site, its servers that are up as far as health checks have found.
    up: Vec<u32>,
    controls: Vec<Control>,
    planner: Option<Planner>,
    /// By site, whether requests are hedged there by the newest plan and those before; all before
    /// there is one, and where plans are not by price.
    hedges: Vec<bool>,
    /// By site, its plans one after the other.
    inflows: Vec<Inflows>,
    /// The newest plan, and the hash of the snapshot it was made from: those who have the same
    /// snapshot need not plan again.
    newest: Option<(u64, Plan)>,
    sticky: Option<(Vec<Sticky>, f64)>,
    headroom: Vec<Headroom>,
    busy: Vec<f64>,
    looks: u32,
    capacity_per_1000_s: Vec<u64>,
    letters: Slab<Letter>,
    flying: Slab<Flying>,
    probes_sent: u64,
    routes: Rng,
    delays: Rng,
    probes: Rng,
    coin: Rng,
    pub(super) tally: Tally,
}

/// The groups of replicas: each site's own, then those of all replicas together, as each server's
/// site sees them: beginning with this server and its site, then the other sites by distance. So a
/// policy that prefers what comes first prefers what is near, and not the same server for all
/// items.
pub(super) fn groups(geography: &Geography) -> Vec<Vec<ReplicaId>> {
    let sites = ranges(geography.sites.iter().map(|site| site.servers));
    let own = sites.iter().map(|range| range.clone().map(ReplicaId::new).collect());
    let all = (0..sites.len()).flat_map(|home| {
        let distance = |site: &usize| geography.round_trip(home, *site);
        let mut by_distance: Vec<usize> = (0..sites.len()).collect();
        by_distance.sort_by_key(distance);
        let seen_from = |turn: usize| {
            let turned = |site: &usize| {
                let range = sites[*site].clone();
                let first = range.start;
                let length = range.len();
                range.map(move |server| ReplicaId::new(first + (server - first + turn) % length))
            };
            by_distance.iter().flat_map(turned).collect()
        };
        sites[home]
            .clone()
            .map(|server| server - sites[home].start)
            .map(seen_from)
            .collect::<Vec<_>>()
    });
    own.chain(all).collect()
}

fn ranges(sizes: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
    let mut end = 0;
    let next = |size| {
        let start = end;
        end += size;
        start..end
    };
    sizes.map(next).collect()
}

/// The site of each member of these ranges.
fn owners(ranges: &[Range<usize>]) -> Vec<usize> {
    let of = |(site, range): (usize, &Range<usize>)| core::iter::repeat_n(site, range.len());
    ranges.iter().enumerate().flat_map(of).collect()
}

/// Core's planner for a mode, with the curves of its sites; `None` when it does not plan.
fn make_planner(
    scenario: &Scenario,
    geography: &Geography,
    mode: Mode,
    spelling: Spelling<'_>,
) -> Option<Planner> {
    let config = mode.planner(&geography.redirect)?;
    let curves = match mode {
        Mode::KurmaMmc => profile::markov(scenario, geography),
        _ => profile::curves(scenario, geography, spelling.policy),
    };
    let planner = Planner::new(config, curves).expect("the scenario's settings were checked");
    Some(match mode.is_priced() {
        true => priced::planner(scenario, geography, spelling, planner),
        false => planner,
    })
}

impl Sites {
    pub(super) fn new(scenario: &Scenario, spelling: Spelling<'_>, seed: u64) -> Option<Box<Self>> {
        let geography = scenario.geography.as_ref()?;
        let (mode, redirect) = (spelling.sharing.unwrap_or(Mode::Local), &geography.redirect);
        let count = geography.sites.len();
        let servers = ranges(geography.sites.iter().map(|site| site.servers));
        let clients = ranges(geography.sites.iter().map(|site| site.clients));
        let site_of_client = owners(&clients);
        let planner = make_planner(scenario, geography, mode, spelling);
        let fingerprint = planner.as_ref().map_or(0, Planner::fingerprint);
        let control = |site: usize| {
            let servers = |it| (it, geography.sites[site].servers as u32);
            let own = planner.as_ref().map(|it| servers(it.curves(SiteId::new(site))));
            let mut control = Control::new((site, count), mode, redirect, (fingerprint, own));
            let learns = planner.as_ref().filter(|_| redirect.learn);
            control.learning = learns.map(|it| priced::learning(scenario, redirect, it, site));
            control
        };
        let middle = |from: usize, to: usize| {
            let [low, high] = geography.round_trip(from, to).unwrap_or_default();
            low + (high - low) / 2
        };
        let sticky = || (0..count).map(|site| Sticky::new(site, count)).collect();
        let sticky_share = redirect.sticky_per_s * redirect.period.as_secs_f64();
        let hosts: Vec<f64> = geography.sites.iter().map(|site| site.servers as f64).collect();
        let spread = |(client, &site): (usize, &usize)| {
            Spread::new(mode, site, count, seed ^ (client as u64) << 32)
        };
        let patience =
            |&site: &usize| Patience::new(SiteId::new(site), count, scenario.workload.objective);
        let patient = site_of_client.iter().filter(|_| mode.comes_home());
        let names = geography.sites.iter().map(|site| site.name.clone());
        let capacity = |site: &crate::scenario::Site| {
            (profile::capacity(scenario, site.servers) * 1e3).round() as u64
        };
        Some(Box::new(Self {
            mode,
            period: redirect.period,
            site_of_server: owners(&servers),
            base: square(count, middle),
            residual: geography.wan.residual / 2,
            spreads: site_of_client.iter().enumerate().map(spread).collect(),
            patience: patient.map(patience).collect(),
            usable: SiteSet::first(count),
            up: servers.iter().map(|range| range.len() as u32).collect(),
            controls: (0..count).map(control).collect(),
            newest: None,
            sticky: (mode == Mode::KurmaDns).then(|| (sticky(), sticky_share)),
            headroom: (0..count).map(|site| Headroom::new(site, hosts.clone())).collect(),
            busy: vec![0.0; count],
            looks: 0,
            capacity_per_1000_s: geography.sites.iter().map(capacity).collect(),
            letters: Slab::new(),
            flying: Slab::new(),
            probes_sent: 0,
            routes: Rng::stream(seed, "routes"),
            delays: Rng::stream(seed, "wide area"),
            probes: Rng::stream(seed, "wide-area probes"),
            coin: Rng::stream(seed, "shares"),
            tally: Tally::new(names),
            planner,
            hedges: vec![true; count],
            inflows: vec![Inflows::default(); count],
            site_of_client,
            servers,
            clients,
        }))
    }

    fn count(&self) -> usize {
        self.servers.len()
    }

    /// What the run showed, and its windows.
    pub(super) fn into_report(mut self: Box<Self>) -> (RedirectReport, Vec<Vec<SiteWindow>>) {
        let disagreements = |control: &Control| control.sync.counts().disagreements;
        self.tally.report.disagreements = self.controls.iter().map(disagreements).sum();
        self.tally.into_report()
    }

    /// Chooses the group of replicas for a request of a client for this item.
    #[inline]
    pub(super) fn route(
        &mut self,
        now: Instant,
        client: usize,
        (item, is_write): (u64, bool),
        dispatcher: &mut Dispatcher,
    ) -> usize {
        let home = self.site_of_client[client];
        self.controls[home].arrived(is_write);
        let mut usable = self.usable;
        if self.patience.get(client).is_some() {
            let mut hears = |server| dispatcher.hears(now, ReplicaId::new(server)).0;
            for (site, servers) in self.servers.iter().enumerate() {
                if !servers.clone().any(&mut hears) {
                    usable.remove(SiteId::new(site));
                }
            }
        }
        let chosen = self.spreads[client].choose(now, usable, &mut self.coin);
        let chosen = chosen.map(|site| self.unless_down(site));
        if let Some(patience) = self.patience.get_mut(client).filter(|_| chosen != Some(home)) {
            patience.sent(now);
        }
        chosen.unwrap_or_else(|| {
            let servers = &self.servers[home];
            self.count() + servers.start + (item % servers.len() as u64) as usize
        })
    }

    /// This site, or in failover the nearest other one where it is down.
    fn unless_down(&self, site: usize) -> usize {
        if self.mode != Mode::Failover || self.usable.contains(SiteId::new(site)) {
            return site;
        }
        let others = (0..self.count()).filter(|other| self.usable.contains(SiteId::new(*other)));
        others.min_by_key(|&other| self.base[site][other]).unwrap_or(site)
    }

    /// Whether requests to this group of replicas may be hedged.
    #[inline]
    pub(super) fn may_hedge(&self, group: usize) -> bool {
        self.hedges.get(group).is_none_or(|is_hedged| *is_hedged)
    }

    /// A request leaves a client for a server.
    #[inline]
    pub(super) fn sent(&mut self, client: usize, server: usize) {
        let site = self.site_of_server[server];
        self.controls[site].served(site == self.site_of_client[client]);
    }

    /// A request that is no copy came to a server with this dimmer.
    #[inline]
    pub(super) fn came(&mut self, server: usize, dimmer: Option<Dimmer>, is_full: bool) {
        if let Some(learning) = &mut self.controls[self.site_of_server[server]].learning {
            learning.came(dimmer, is_full);
        }
    }

    /// Until when a request of a client waits for the site it was sent to, and the group at home.
    pub(super) fn waits(
        &mut self,
        now: Instant,
        client: usize,
        sent: &mut Sent,
        silent_at: Option<Instant>,
    ) -> Option<(Waits, usize)> {
        let home = self.site_of_client[client];
        let is_home_usable = self.usable.contains(SiteId::new(home));
        let patience = self.patience.get_mut(client)?;
        Some((patience.waits(now, sent, silent_at, is_home_usable), home))
    }

    /// A request of a client that was nowhere else was served by this server after so long.
    pub(super) fn replied(&mut self, client: usize, server: usize, latency: Duration) {
        let site = SiteId::new(self.site_of_server[server]);
        if let Some(patience) = self.patience.get_mut(client) {
            patience.replied(site, latency);
        }
    }

    /// A request of a client ended that was sent to this server, if to any.
    #[inline]
    pub(super) fn ended(
        &mut self,
        client: usize,
        server: Option<usize>,
        is_warm: bool,
        is_violation: bool,
    ) {
        let from = self.site_of_client[client];
        let to = server.map_or(from, |server| self.site_of_server[server]);
        self.tally.note(from, to, is_warm, is_violation);
        self.controls[from].ended(to, is_violation);
    }

    /// What the way between a client and a server takes beyond what it takes inside a site.
    #[inline]
    pub(super) fn delay(&mut self, client: usize, server: usize) -> Duration {
        let (a, b) = (self.site_of_client[client], self.site_of_server[server]);
        if a == b { Duration::ZERO } else { self.one_way(a, b) }
    }

    fn one_way(&mut self, from: usize, to: usize) -> Duration {
        let residual = nanos(self.residual) as f64 * self.delays.exponential();
        self.base[from][to] / 2 + Duration::from_nanos(residual as u64)
    }

    /// Health checks have found which servers live.
    pub(super) fn set_up(&mut self, servers: &[Server]) {
        let living = |range: &Range<usize>| {
            servers[range.clone()].iter().filter(|one| one.is_alive()).count() as u32
        };
        self.up = self.servers.iter().map(living).collect();
        let is_usable = |site: &usize| self.up[*site] > 0;
        self.usable = (0..self.count()).filter(is_usable).map(SiteId::new).collect();
    }

    /// Full requests per 1,000 s that a site's servers serve that are up. Without health checks
    /// that is all of them, as in a proxy.
    fn capacity_per_1000_s(&self, site: usize) -> u64 {
        let up = self.up[site];
        match &self.planner {
            Some(planner) => {
                let curve = self.controls[site].curve();
                let id = SiteId::new(site);
                let writes = self.controls[site].writes();
                planner.capacity_per_1000_s(id, curve, writes, up)
            }
            None => {
                let all = self.servers[site].len() as u64;
                self.capacity_per_1000_s[site] * u64::from(up) / all
            }
        }
    }

    /// Puts the plan of an epoch in force at one site.
    fn plan(&mut self, now: Instant, site: usize, snapshot: &Snapshot) {
        self.tally.report.plans += 1;
        match self.mode {
            Mode::Waterfall => self.plan_waterfall(site, snapshot),
            Mode::Away => self.predict_away(site, snapshot),
            _ => self.plan_by_curves(now, site, snapshot),
        }
    }

    fn plan_by_curves(&mut self, now: Instant, site: usize, snapshot: &Snapshot) {
        let Some(planner) = &self.planner else { return };
        let hash = snapshot.hash();
        if self.newest.as_ref().is_none_or(|(known, _)| *known != hash) {
            let is_apart = matches!(&self.newest, Some((_, plan)) if plan.epoch == snapshot.epoch);
            self.tally.report.plans_apart += u64::from(is_apart);
            let plan = planner.plan(snapshot);
            if let Some(planned) = &plan.priced {
                let hedges = self.hedges.iter().zip(&planned.hedging);
                self.hedges = hedges.map(|(was, plan)| plan.follow(*was)).collect();
            }
            self.newest = Some((hash, plan));
        }
        let Some((_, plan)) = &self.newest else { return };
        let sync = &mut self.controls[site].sync;
        sync.answered(plan.epoch, plan.hashes());
        let good_until = sync.good_until(now, Control::unix_ns(now), plan.epoch);
        let mut row = plan.row(SiteId::new(site));
        if let Some((sticky, share)) = &mut self.sticky {
            row = sticky[site].follow(&row, *share);
        }
        for (to, &rate) in row.rates_per_1000_s.iter().enumerate() {
            let ppm = plan.predicted_at(SiteId::new(site), SiteId::new(to));
            let requests = rate as f64 * 1e-3 * self.period.as_secs_f64();
            self.tally.predictions.add(to != site, requests, ppm);
        }
        let clients = &mut self.spreads[self.clients[site].clone()];
        let windows: Vec<_> = clients.iter_mut().filter_map(Spread::window).collect();
        let arrived: Vec<u64> = windows.iter().map(|window| window.arrived).collect();
        for (client, part) in clients.iter_mut().zip(parts(&arrived)) {
            if let Spread::Planned(splitter) = client {
                let adopted = splitter.adopt(now, &row, part, good_until);
                adopted.expect("a plan for this site, newer than the one in force");
            }
        }
    }

    /// What the plan by price that a site has just put in force brings it beyond the one before.
    fn inflow(&mut self, site: usize) -> Option<Inflow> {
        let (_, plan) = self.newest.as_ref().filter(|_| self.mode.is_priced())?;
        self.inflows[site].follow(plan, SiteId::new(site))
    }

    fn plan_waterfall(&mut self, site: usize, snapshot: &Snapshot) {
        let sites = 0..self.count();
        let report = |site: usize| snapshot.report(SiteId::new(site));
        let demand = |site: usize| report(site).map_or(0.0, |row| row.demand_per_1000_s as f64);
        let capacity = |site: usize| {
            report(site).map_or(0.0, |row| row.capacity_per_1000_s as f64 * CAPACITY_BY_HAND)
        };
        let demand: Vec<f64> = sites.clone().map(demand).collect();
        let capacity: Vec<f64> = sites.clone().map(capacity).collect();
        let base = self.base.iter().map(|row| row.iter().map(Duration::as_secs_f64).collect());
        let rates = waterfall(&demand, &capacity, &base.collect::<Vec<_>>());
        if demand[site] > 0.0 {
            let shares: Vec<f64> = rates[site].iter().map(|rate| rate / demand[site]).collect();
            self.set_shares(site, &shares);
        }
    }

    fn set_shares(&mut self, site: usize, shares: &[f64]) {
        for spread in &mut self.spreads[self.clients[site].clone()] {
            *spread = Spread::Shares(shares.to_vec());
        }
    }

    /// What the curves say of all requests of a site that are now served at the next one.
    fn predict_away(&mut self, site: usize, snapshot: &Snapshot) {
        let to = (site + 1) % self.count();
        let sender = (to + self.count() - 1) % self.count();
        let report = |site: usize| snapshot.report(SiteId::new(site));
        let (Some(planner), Some(own), Some(all)) = (&self.planner, report(site), report(sender))
        else {
            return;
        };
        let Some(path) = own.paths[to] else { return };
        let residual = Residual::new(path.residual_ppm(), path.beyond_ppm);
        let curves = &planner.curves(SiteId::new(to)).versions[0][0].curves;
        let (Ok(residual), Ok(load)) = (residual, Rate::new(all.demand_per_1000_s as f64 * 1e-3))
        else {
            return;
        };
        let Ok(family) = Family::new(curves, &residual, 1) else { return };
        let conditions = Conditions::with_servers(self.servers[to].len() as u32).unbiased();
        let base = Duration::from_micros(path.base_rtt_us.into());
        let missed = family.miss(base, load, &conditions).value();
        let requests = own.demand_per_1000_s as f64;
        self.tally.predictions.add(true, requests, (missed * 1e6) as u32);
    }
}

fn square<T>(count: usize, value: impl Fn(usize, usize) -> T) -> Vec<Vec<T>> {
    (0..count).map(|from| (0..count).map(|to| value(from, to)).collect()).collect()
}

/// What happens to data centres.
impl World<'_> {
    pub(super) fn begin_sites(&mut self) {
        let Some(sites) = &self.sites else { return };
        let (mode, count) = (sites.mode, sites.count() as u32);
        if mode.is_exchanged() {
            for site in 0..count {
                self.events.push(Lane::Mixed, Instant::ZERO, Event::Control(site));
                self.events.push(Lane::Mixed, Instant::ZERO, Event::ProbeWays(site));
            }
        }
        if mode == Mode::Headroom {
            self.events.push(Lane::Mixed, Instant::ZERO + BUSY_EVERY, Event::Busy);
        }
        let every = self.scenario.geography.as_ref().map(|geography| geography.wan.reroute_every);
        if every.is_some_and(|every| !every.is_zero()) {
            for pair in 0..count * count {
                self.reroute_later(pair);
            }
        }
    }

    fn reroute_later(&mut self, pair: u32) {
        let (Some(sites), Some(geography)) = (&mut self.sites, &self.scenario.geography) else {
            return;
        };
        let (from, to) = (pair as usize / sites.count(), pair as usize % sites.count());
        if from < to {
            let at = self.now + geography.wan.reroute_every.mul_f64(sites.routes.exponential());
            self.events.push(Lane::Mixed, at, Event::Reroute(pair));
        }
    }

    /// A way is routed anew: another base within its range.
    pub(super) fn reroute(&mut self, pair: u32) {
        if self.is_over() {
            return;
        }
        if let (Some(sites), Some(geography)) = (&mut self.sites, &self.scenario.geography) {
            let (from, to) = (pair as usize / sites.count(), pair as usize % sites.count());
            let [low, high] = geography.round_trip(from, to).unwrap_or_default();
            let base = low + (high - low).mul_f64(sites.routes.unit());
            sites.base[from][to] = base;
            sites.base[to][from] = base;
        }
        self.reroute_later(pair);
    }

    /// A site's control loop takes its steps.
    pub(super) fn control(&mut self, site: u32) {
        if self.is_over() {
            return;
        }
        let Some(mut sites) = self.sites.take() else { return };
        let (now, unix_ns) = (self.now, Control::unix_ns(self.now));
        let number = site as usize;
        loop {
            match sites.controls[number].sync.step(now, unix_ns) {
                Step::Publish { epoch } => self.publish(&mut sites, number, epoch),
                Step::Plan(snapshot) => {
                    sites.plan(now, number, &snapshot);
                    if let Some(inflow) = sites.inflow(number) {
                        let servers = sites.servers[number].clone();
                        self.guards[servers].iter_mut().for_each(|it| it.expect(now, inflow));
                    }
                }
                Step::Wait { until } => {
                    self.events.push(Lane::Mixed, until, Event::Control(site));
                    break;
                }
            }
        }
        self.sites = Some(sites);
    }

    fn publish(&mut self, sites: &mut Sites, site: usize, epoch: u64) {
        let now = self.now;
        sites.controls[site].measure(now);
        if sites.mode == Mode::Hindsight {
            let begins = Control::begins(epoch, sites.period);
            sites.controls[site].foreknow(self.arriving.mean_rate(site, begins, sites.period));
        }
        let seen = (sites.up[site], sites.hedges[site]);
        sites.controls[site].learn(sites.period, seen);
        if sites.controls[site].watch() {
            let version = sites.controls[site].version();
            sites.tally.report.curve_changes.push((now.as_secs_f64(), site, version));
        }
        let capacity = sites.capacity_per_1000_s(site);
        let report = sites.controls[site].report(now, capacity);
        let unix_ns = Control::unix_ns(now);
        let published = sites.controls[site].sync.publish(now, unix_ns, epoch, report);
        let bytes = published.expect("a report that was asked for, of numbers in their ranges");
        for to in (0..sites.count()).filter(|to| *to != site) {
            sites.tally.report.row_bytes += bytes.len() as u64;
            let letter = Letter { from: site, to, bytes: bytes.clone() };
            let letter = sites.letters.insert(letter) as u32;
            let at = now + sites.one_way(site, to);
            self.events.push(Lane::Mixed, at, Event::Letter(letter));
        }
    }

    /// A row arrives.
    pub(super) fn letter(&mut self, letter: u32) {
        let Some(sites) = &mut self.sites else { return };
        let Letter { from, to, bytes } = sites.letters.remove(letter as usize);
        let unix_ns = Control::unix_ns(self.now);
        let sync = &mut sites.controls[to].sync;
        let heard = sync.receive(self.now, unix_ns, SiteId::new(from), &bytes);
        // Late, where ways are longer than periods: it counts as rejected.
        let is_late = matches!(heard, Err(Rejection::Stale { .. }));
        assert!(heard.is_ok() || is_late, "the row of another site of this world: {heard:?}");
    }

    /// A site probes its ways to all others.
    pub(super) fn probe_ways(&mut self, site: u32) {
        if self.is_over() {
            return;
        }
        let Some(sites) = &mut self.sites else { return };
        let from = site as usize;
        for to in (0..sites.count()).filter(|to| *to != from) {
            for connection in 0..CONNECTIONS {
                sites.probes_sent += 1;
                let sequence = sites.probes_sent;
                let probe = Flying { from, to, connection, sequence, sent_at: self.now };
                let probe = sites.flying.insert(probe) as u32;
                let mut one_way = || sites.probes.exponential() * nanos(sites.residual) as f64;
                let residual = Duration::from_nanos((one_way() + one_way()) as u64);
                let at = self.now + sites.base[from][to] + residual;
                self.events.push(Lane::Mixed, at, Event::Echo(probe));
            }
        }
        self.events.push(Lane::Mixed, self.now + PROBE_EVERY, Event::ProbeWays(site));
    }

    /// The echo of a probe arrives.
    pub(super) fn echo(&mut self, probe: u32) {
        let Some(sites) = &mut self.sites else { return };
        let Flying { from, to, connection, sequence, sent_at } =
            sites.flying.remove(probe as usize);
        let received_at = self.now;
        let probe = wan::Probe { connection, sequence, sent_at, received_at };
        let _ = sites.controls[from].ways[to].observe(&probe);
    }

    /// Who is busy, as servers report it.
    pub(super) fn look_who_is_busy(&mut self) {
        if self.is_over() {
            return;
        }
        self.events.push(Lane::Mixed, self.now + BUSY_EVERY, Event::Busy);
        let Some(sites) = &mut self.sites else { return };
        for (site, range) in sites.servers.iter().enumerate() {
            let busy = self.servers[range.clone()].iter().map(busy_share);
            sites.busy[site] += busy.sum::<f64>() / range.len() as f64;
        }
        sites.looks += 1;
        if BUSY_EVERY * sites.looks < Headroom::PERIOD {
            return;
        }
        let looks = f64::from(core::mem::take(&mut sites.looks));
        let measured: Vec<f64> = sites.busy.iter().map(|sum| sum / looks).collect();
        sites.busy.fill(0.0);
        for site in 0..sites.count() {
            let shares = sites.headroom[site].update(&measured);
            sites.set_shares(site, &shares);
        }
    }
}

/// The share of a server's slots that are taken.
fn busy_share(server: &Server) -> f64 {
    match &server.discipline {
        Discipline::Slots(slots) => slots.busy(),
        Discipline::Sharing(_) => 0.0,
    }
}
