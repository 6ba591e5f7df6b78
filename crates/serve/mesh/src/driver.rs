//! The loop around core's `EpochSync`: report, plan, direct.
//!
//! It has no decision of its own. Sockets go on while a plan is computed (on another thread):
//! an echo that waited for a solver would look like distance.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_core::Instant;
use evenkeel_core::dimmer::Inflow;
use evenkeel_core::units::Probability;
use evenkeel_geo::ALL_PPM;
use evenkeel_geo::demand::{DemandMeter, Lately};
use evenkeel_geo::epoch::{Path, Report, SiteEntry, SiteId, SiteLiveness, SiteSet, Snapshot, Step};
use evenkeel_geo::planner::{Inflows, Plan, Planner};
use evenkeel_geo::split::{Enforced, Flow, PlanRow, Predicted, SplitConfig, SplitWindow, enforced};
use tokio::sync::watch;

use super::Home;
use super::content::ContentMeter;
use super::export::{self, Exports};
use super::followers::{Follower, Gone, Unbelieved};
use super::frame::Frame;
use super::hour::LastHour;
use super::hub::{Hub, Refusal, Refusals, deadline, rejection_name, unix_ns};
use super::interference::Interference;
use super::message::PlanPart;
use super::state::{
    AlarmState, CountsState, DestinationState, EnforcedState, FollowerState, PairState, PathState,
    PlanState, PricedState, RedirectState, SiteState, ms, words,
};
use evenkeel_geo::traffic::{Directive, Ended};
use evenkeel_runtime::clock::thread_cpu;

/// Alarms kept for people.
const ALARMS_KEPT: usize = 64;
/// Rows kept: what an epoch came to is known when the next one is over.
const ROWS_KEPT: usize = 3;
/// How often people get a new picture, at least.
const PICTURE_EVERY: Duration = Duration::from_secs(1);
/// No timer is finer.
const PAUSE_MIN: Duration = Duration::from_millis(1);

/// The driver of one mesh.
pub(super) struct Driver {
    hub: Rc<Hub>,
    home: Rc<dyn Home>,
    planner: Arc<Planner>,
    state: watch::Sender<Arc<RedirectState>>,
    /// Who else is told.
    exports: Rc<Exports>,
    demand: DemandMeter,
    lately: Lately,
    interference: Interference,
    alarms: VecDeque<AlarmState>,
    alarms_raised: u64,
    unsent: u64,
    plans: u64,
    plans_cpu: Duration,
    last: Option<Planned>,
    /// What replicas leave out in this epoch.
    content: ContentMeter,
    hour: LastHour,
    /// Where requests are hedged by the plans so far.
    hedges: SiteSet,
    /// What plans bring this site, one after the other.
    inflows: Inflows,
    /// Workers of this process.
    workers: usize,
    /// The rows of the last plans, the newest last.
    rows: VecDeque<PlanRow>,
    enforced: Option<EnforcedState>,
}

/// The plan in force, and what it was made from.
struct Planned {
    snapshot: Snapshot,
    plan: Plan,
    flows: Vec<Flow>,
    predicted: Vec<Predicted>,
    inflow: Option<Inflow>,
    cpu: Duration,
}

impl Driver {
    pub(super) fn new(
        hub: Rc<Hub>,
        home: Rc<dyn Home>,
        planner: Planner,
        (state, exports): (watch::Sender<Arc<RedirectState>>, Rc<Exports>),
    ) -> Self {
        let me = hub.config.site;
        let (sites, period) = (hub.peers.len(), planner.config().period);
        let learns = hub.config.learns;
        let curves = (planner.curves(me), planner.hedged(me));
        let interference = Interference::new(curves, learns, period);
        let content = ContentMeter::new(hub.config.work);
        let mut driver = Self {
            hub,
            home,
            planner: Arc::new(planner),
            state,
            exports,
            demand: DemandMeter::default(),
            lately: Lately::default(),
            interference,
            alarms: VecDeque::new(),
            alarms_raised: 0,
            unsent: 0,
            plans: 0,
            plans_cpu: Duration::ZERO,
            last: None,
            content,
            hour: LastHour::new(period),
            hedges: SiteSet::first(sites),
            inflows: Inflows::default(),
            workers: 0,
            rows: VecDeque::new(),
            enforced: None,
        };
        driver.measure(); // where the first epoch's counts begin
        driver
    }

    /// Drives until a plan panics, which is an error of ours.
    pub(super) async fn run(mut self) -> io::Result<()> {
        loop {
            let now = self.hub.clock.now();
            self.content.look(now, self.home.content());
            let step = self.hub.sync.borrow_mut().step(now, unix_ns());
            self.collect_alarms();
            match step {
                Step::Publish { epoch } => self.publish(epoch),
                Step::Plan(snapshot) => {
                    self.plan(snapshot).await?;
                    self.picture();
                }
                Step::Wait { until } => {
                    self.picture();
                    let until = until.max(now + PAUSE_MIN).min(now + PICTURE_EVERY);
                    tokio::time::sleep_until(deadline(self.hub.clock, until)).await;
                }
            }
        }
    }

    fn measure(&mut self) {
        let home = self.hub.config.site.index();
        let now = self.hub.clock.now();
        for name in self.hub.followers.borrow_mut().drop_silent(now) {
            self.hub.tell(format!("the follower {name} was silent for an epoch and is removed"));
        }
        let mut counts = self.home.counts();
        self.workers = counts.workers.len();
        self.hub.followers.borrow_mut().add_to(&mut counts);
        self.lately = self.demand.note(now, counts, home);
    }

    fn publish(&mut self, epoch: u64) {
        self.measure();
        let replicas = self.home.replicas_up();
        let served = (replicas, self.hedges.contains(self.hub.config.site));
        if let Some(change) = self.interference.observe(&self.lately, served) {
            self.alarm(change);
        }
        let content = self.content.take();
        if let Some(words) = self.interference.learn(&self.lately, served, content) {
            self.alarm(words);
        }
        let report = self.report(replicas);
        let now = self.hub.clock.now();
        let row = self.hub.sync.borrow_mut().publish(now, unix_ns(), epoch, report);
        match row {
            Ok(row) => {
                self.hub.rows.send_replace(Bytes::from(Frame::Row(&row).bytes()));
            }
            Err(error) => {
                self.unsent += 1;
                self.alarm(format!("no report was sent: {error}"));
            }
        }
    }

    fn report(&self, replicas: u32) -> Report {
        let me = self.hub.config.site;
        let curve = (self.interference.version(), self.interference.believed());
        let now = self.hub.clock.now();
        let path = |site: usize| {
            let estimate = self.hub.peers[site].wan.borrow().estimate(now)?;
            Path::of_paths(&estimate.paths)
        };
        let sites = 0..self.hub.peers.len();
        let writes = self.lately.writes();
        let capacity = self.planner.capacity_per_1000_s(me, curve, writes, replicas);
        let paths = sites.map(|site| (site != me.index()).then(|| path(site)).flatten());
        self.lately.report(capacity, curve, paths.collect())
    }

    async fn plan(&mut self, snapshot: Snapshot) -> io::Result<()> {
        let planner = Arc::clone(&self.planner);
        let planning = tokio::task::spawn_blocking(move || {
            let before = thread_cpu();
            let plan = planner.plan(&snapshot);
            (snapshot, plan, thread_cpu().saturating_sub(before))
        });
        let (snapshot, plan, cpu) = planning.await.map_err(io::Error::other)?;
        let (me, epoch) = (self.hub.config.site, plan.epoch);
        let now = self.hub.clock.now();
        let row = plan.row(me);
        let good_until = {
            let mut sync = self.hub.sync.borrow_mut();
            sync.answered(epoch, plan.hashes());
            sync.good_until(now, unix_ns(), epoch)
        };
        self.look_back(now, &snapshot).await;
        self.hedges = hedges(self.hedges, &plan);
        let spare = spare(&self.planner, &snapshot, &plan, (me, self.sites()));
        // As in the simulator: dimmers are told by price alone.
        let inflow = self.inflows.follow(&plan, me).filter(|_| plan.priced.is_some());
        self.direct(&row, good_until, (spare, inflow));
        let rows = self.sites().map(|site| plan.row(site)).collect();
        self.exports.plan(export::Planned { rows, good_until });
        self.plans += 1;
        self.plans_cpu += cpu;
        if cpu > self.planner.config().period / 4 {
            self.alarm(format!(
                "the plan of epoch {epoch} took {cpu:?} of CPU, over a quarter of \
                                the period: take a larger quantum or a longer period"
            ));
        }
        self.last = Some(Planned {
            flows: plan.flows(&snapshot),
            predicted: self.sites().map(|site| plan.predicted(site)).collect(),
            inflow,
            snapshot,
            plan,
            cpu,
        });
        Ok(())
    }

    /// Prices the epoch that ends where this snapshot begins.
    async fn look_back(&mut self, now: Instant, came: &Snapshot) {
        if let Some(last) = &self.last {
            self.hour.note((&last.snapshot, &last.plan), self.hedges, came);
        }
        if let Err(error) = self.hour.go_on(now, &self.planner).await {
            self.alarm(format!("what the last minute cost is not known: {error}"));
        }
    }

    /// Hands every worker of the site, of this process or a follower's, its part of a plan.
    fn direct(
        &mut self,
        row: &PlanRow,
        good_until: Instant,
        (spare_per_1000_s, inflow): (Vec<u64>, Option<Inflow>),
    ) {
        if let Some(own) = self.home.ended() {
            let of = |row: &&PlanRow| row.epoch == own.epoch;
            if let Some(planned) = self.rows.iter().find(of) {
                let (window, processes) = self.hub.followers.borrow().ended(&own);
                self.enforced = Some(self.judge(planned, &own, &window, processes));
            }
        }
        let reported = |parts: Vec<Probability>| PlanPart {
            row: row.clone(),
            spare_per_1000_s: spare_per_1000_s.clone(),
            good_until,
            settings: self.hub.fingerprint,
            hedges: self.hedges,
            inflow,
            parts,
        };
        let mut followers = self.hub.followers.borrow_mut();
        let parts = followers.divide(&self.lately.arrived, self.workers, &reported);
        drop(followers);
        let row = row.clone();
        let hedges = self.hedges;
        let directed =
            Directive { row: row.clone(), parts, good_until, spare_per_1000_s, hedges, inflow };
        self.home.direct(directed);
        self.rows.push_back(row);
        if self.rows.len() > ROWS_KEPT {
            self.rows.pop_front();
        }
    }

    /// How well all processes of the site kept a plan.
    fn judge(
        &self,
        planned: &PlanRow,
        own: &Ended,
        window: &SplitWindow,
        processes: usize,
    ) -> EnforcedState {
        let destination = |destination: Enforced| DestinationState {
            name: self.hub.name(destination.to).to_owned(),
            planned_requests: destination.planned,
            due_requests: destination.due,
            sent_requests: destination.sent,
            error_requests: destination.sent as f64 - destination.planned,
            over_cap_requests: destination.over_cap,
            divided_requests: destination.divided,
            rescued_requests: destination.failed_over,
        };
        let destinations = enforced(planned, SplitConfig::default().slack, own.over, window);
        EnforcedState {
            epoch: own.epoch,
            processes,
            arrived_requests: window.arrived,
            to: destinations.into_iter().map(destination).collect(),
        }
    }

    fn followers(&self) -> Vec<FollowerState> {
        let (followers, now) = (self.hub.followers.borrow(), self.hub.clock.now());
        let state = |follower: &Follower| FollowerState {
            name: follower.name(),
            workers: follower.workers(),
            part_ratio: follower.part(),
            demand_per_s: follower.share() * self.lately.demand,
            epoch: follower.epoch(),
            heard_ms_ago: ms(now.since(follower.heard_at())),
        };
        followers.present().map(state).collect()
    }

    fn sites(&self) -> impl Iterator<Item = SiteId> + use<> {
        (0..self.hub.peers.len()).map(SiteId::new)
    }

    fn collect_alarms(&mut self) {
        let alarms = self.hub.sync.borrow_mut().take_alarms();
        for alarm in alarms {
            let words = words(&alarm, &self.hub.config.names);
            self.alarm(words);
        }
    }

    fn alarm(&mut self, words: String) {
        self.alarms_raised += 1;
        self.hub.tell(words);
    }

    /// Shows people how all stands.
    fn picture(&mut self) {
        for words in self.hub.take_events() {
            keep(&mut self.alarms, AlarmState { unix_ms: unix_ns() / 1_000_000, words });
        }
        let sync = self.hub.sync.borrow();
        let (epoch, lead) = (sync.epoch(), sync.lead());
        drop(sync);
        let state = RedirectState {
            site: self.hub.name(self.hub.config.site).to_owned(),
            epoch,
            period_ms: ms(self.planner.config().period),
            lead_ms: ms(lead),
            objective_ms: self.objective_ms(),
            sites: self.sites().map(|site| self.site(site)).collect(),
            plan: self.last.as_ref().map(|last| self.planned(last)),
            hour: self.hour.state(self.hub.clock.now()),
            curves: self.interference.verdict().name(),
            learnt: self.interference.learnt(),
            alarms: self.alarms.iter().cloned().collect(),
            followers: self.followers(),
            enforced: self.enforced.clone(),
            controller: None,
            counts: self.counts(),
            exports: self.exports.states(),
            paths: self.last.as_ref().map(|last| paths(&last.snapshot)).unwrap_or_default(),
        };
        self.state.send_replace(Arc::new(state));
    }

    /// The planner has checked that all curves are for the same one.
    fn objective_ms(&self) -> f64 {
        let mut classes = self.planner.curves(self.hub.config.site).versions.iter().flatten();
        classes.next().map_or(0.0, |class| ms(class.curves.objective()))
    }

    fn site(&self, site: SiteId) -> SiteState {
        let (peer, index) = (self.hub.peer(site), site.index());
        let entry = self.last.as_ref().map(|last| &last.snapshot.sites[index]);
        let report = entry.and_then(|entry| entry.last.as_ref()).map(|row| &row.report);
        // Who takes no part in the plan has no demand in it, and nothing is predicted of that.
        let in_plan = self.last.as_ref().filter(|last| last.plan.members.contains(site));
        let predicted = in_plan.map(|last| last.predicted[index]);
        let per_s = |per_1000_s: u64| per_1000_s as f64 * 1e-3;
        let share = |ppm: u32| f64::from(ppm) * 1e-6;
        let me = self.hub.config.site;
        let rates = self.last.as_ref().map(|last| last.plan.rates_per_1000_s(me));
        let rejected = self.hub.rejected(site);
        let rejected = rejected.iter().enumerate().filter(|(_, count)| **count > 0);
        SiteState {
            name: self.hub.name(site).to_owned(),
            standing: entry.map_or("unheard", |entry| entry.liveness.name()),
            demand_per_s: report.map(|report| per_s(report.demand_per_1000_s)),
            capacity_per_s: report.map(|report| per_s(report.capacity_per_1000_s)),
            writes_share: report.map(|report| share(report.writes_ppm)),
            waiting: report.map(|report| report.backlog_requests),
            curve_version: report.map(|report| report.curve_version),
            curve_scale: report.map(|report| report.learnt.scale()),
            curve_odds: report.map(|report| report.learnt.odds()),
            missed_share: report
                .filter(|report| report.ended_requests > 0)
                .map(|report| report.violations as f64 / report.ended_requests as f64),
            alone_share: predicted.map(|predicted| share(predicted.alone_ppm)),
            planned_share: predicted.map(|predicted| share(predicted.planned_ppm)),
            rate_per_s: rates.and_then(|rates| rates.get(index).copied()).map(per_s),
            path: if site == self.hub.config.site { None } else { self.path(site) },
            connections_to: peer.dialled.get(),
            connections_from: peer.accepted.get(),
            rows: peer.rows.get(),
            rejected: rejected.map(|(place, count)| (rejection_name(place), *count)).collect(),
            differs: peer.differs.borrow().clone(),
            throttled: peer.throttled.get(),
            unmade: by_refusal(peer.unmade.get(), false),
        }
    }

    fn path(&self, site: SiteId) -> Option<PathState> {
        let wan = self.hub.peer(site).wan.borrow();
        let estimate = wan.estimate(self.hub.clock.now())?;
        let path = Path::of_paths(&estimate.paths)?;
        let residual_ms = |place: usize| f64::from(path.residual_bins[place]) * 0.1;
        let rejected = wan.rejected();
        Some(PathState {
            base_ms: f64::from(path.base_rtt_us) * 1e-3,
            residual_p50_ms: residual_ms(0),
            residual_p99_ms: residual_ms(3),
            beyond_share: f64::from(path.beyond_ppm) * 1e-6,
            standing_ms: estimate.standing.map(ms),
            samples: estimate.samples,
            reroutes: wan.reroutes(),
            probes_rejected: rejected.negative
                + rejected.absurd
                + rejected.duplicate
                + rejected.reordered
                + rejected.connection,
        })
    }

    fn planned(&self, last: &Planned) -> PlanState {
        let names = &self.hub.config.names;
        let hashes = last.plan.hashes();
        PlanState {
            epoch: last.plan.epoch,
            members: last.plan.members.iter().map(|site| names[site.index()].clone()).collect(),
            flows: last.flows.iter().map(|flow| flow.sentence(names)).collect(),
            pairs: self.pairs(&last.plan),
            priced: PricedState::of(&last.plan, self.planner.prices(), (names, self.hedges)),
            answer: last.plan.answer.status.name().to_owned(),
            inflow_factor: last.inflow.map(Inflow::factor),
            wants_capacity: last.plan.wants_capacity(),
            inputs: format!("{:016x}", hashes.inputs),
            hash: format!("{:016x}", hashes.plan),
            cpu_ms: ms(last.cpu),
        }
    }

    fn pairs(&self, plan: &Plan) -> Vec<PairState> {
        let names = &self.hub.config.names;
        let of = |from: SiteId| {
            let rates = plan.rates_per_1000_s(from).into_iter().zip(self.sites());
            let pair = move |(rate, to): (u64, SiteId)| PairState {
                from: names[from.index()].clone(),
                to: names[to.index()].clone(),
                rate_per_s: rate as f64 * 1e-3,
                missed_share: f64::from(plan.predicted_at(from, to)) * 1e-6,
            };
            rates.filter(|(rate, _)| *rate > 0).map(pair)
        };
        self.sites().flat_map(of).collect()
    }

    fn counts(&self) -> CountsState {
        let counts = self.hub.sync.borrow().counts();
        let followers = self.hub.followers.borrow();
        let named = |names: &[&'static str], counts: &[u64]| {
            names.iter().copied().zip(counts.iter().copied()).collect()
        };
        CountsState {
            followers_joined: followers.joined,
            followers_gone: named(&Gone::ALL.map(Gone::name), &followers.gone),
            followers_rejected: named(&Unbelieved::NAMES, &followers.rejected),
            plans: self.plans,
            plans_cpu_ns: u64::try_from(self.plans_cpu.as_nanos()).unwrap_or(u64::MAX),
            rows_in_time: counts.in_time,
            rows_late: counts.late,
            rows_again: counts.again,
            rows_unsent: self.unsent,
            compared: counts.compared,
            disagreements: counts.disagreements,
            alarms: self.alarms_raised,
            refused: by_refusal(self.hub.refused.get(), true),
            bytes_sent: self.hub.traffic.sent.get(),
            bytes_received: self.hub.traffic.received.get(),
            certificates_replaced: self.hub.generation(),
            certificates_failed: self.hub.reloads_failed.get(),
            curves_replaced: self.interference.changes(),
            clock_steps: counts.clock_steps,
        }
    }
}

/// By site, what its replicas could serve beyond the plan, in requests per 1,000 s: nothing where
/// it has no part in the plan, or may serve only some of this site's requests.
fn spare(
    planner: &Planner,
    snapshot: &Snapshot,
    plan: &Plan,
    (me, sites): (SiteId, impl Iterator<Item = SiteId>),
) -> Vec<u64> {
    let rates: Vec<Vec<u64>> =
        plan.members.iter().map(|site| plan.rates_per_1000_s(site)).collect();
    let limits = planner.config().limits_ppm.as_ref().map(|limits| &limits[me.index()]);
    let of = |site: SiteId| {
        let is_limited = limits.is_some_and(|limits| limits[site.index()] < ALL_PPM);
        let row = snapshot.sites[site.index()].last.as_ref();
        let row = row.filter(|_| plan.members.contains(site) && !is_limited);
        let load: u64 = rates.iter().map(|rates| rates[site.index()]).sum();
        let most = plan.bound_per_1000_s[site.index()];
        row.map_or(0, |row| row.report.capacity_per_1000_s.min(most).saturating_sub(load))
    };
    sites.map(of).collect()
}

/// Where requests are hedged from a plan on that is by price; as before with other plans.
fn hedges(before: SiteSet, plan: &Plan) -> SiteSet {
    let Some(planned) = &plan.priced else { return before };
    let sites = planned.hedging.iter().enumerate().map(|(site, it)| (SiteId::new(site), it));
    sites.filter(|(site, it)| it.follow(before.contains(*site))).map(|(site, _)| site).collect()
}

/// Keeps the newest alarms. One that is raised again and again is kept once: a state that lasts
/// must not push everything else out.
fn keep(alarms: &mut VecDeque<AlarmState>, alarm: AlarmState) {
    alarms.retain(|kept| kept.words != alarm.words);
    if alarms.len() == ALARMS_KEPT {
        alarms.pop_front();
    }
    alarms.push_back(alarm);
}

/// The ways between sites, as those that are heard told them last.
fn paths(snapshot: &Snapshot) -> Vec<Vec<Option<Path>>> {
    let is_heard =
        |entry: &&SiteEntry| matches!(entry.liveness, SiteLiveness::Fresh | SiteLiveness::Held);
    let reported = |entry: &SiteEntry| {
        let row = Some(entry).filter(is_heard).and_then(|entry| entry.last.as_ref());
        row.map_or_else(Vec::new, |row| row.report.paths.clone())
    };
    snapshot.sites.iter().map(reported).collect()
}

fn by_refusal(counts: Refusals, with_none: bool) -> BTreeMap<&'static str, u64> {
    let counts = Refusal::ALL.map(Refusal::name).into_iter().zip(counts);
    counts.filter(|(_, count)| with_none || *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_that_lasts_pushes_no_other_out() {
        let mut alarms = VecDeque::new();
        let mut raise = |unix_ms: u64, words: &str| {
            keep(&mut alarms, AlarmState { unix_ms, words: words.to_owned() });
            alarms.len()
        };
        raise(0, "once");
        (1..=200).for_each(|at| assert_eq!(raise(at, "again"), 2));
        (201..=400).for_each(|at| assert!(raise(at, &at.to_string()) <= ALARMS_KEPT));
        assert_eq!(alarms.back().map(|last| last.unix_ms), Some(400));
    }
}
