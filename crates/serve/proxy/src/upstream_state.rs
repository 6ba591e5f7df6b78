//! Where workers hand up what they counted, and find the plans that come down.
//!
//! Nothing here is on the request path: workers come by five times a second.

mod said;
mod sites;
mod sources;
mod worker_report;

use evenkeel_settings::address::ServerAddress;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::HedgeStats;
use evenkeel_core::request::siblings::Siblings;
use evenkeel_core::units::{Dimmer, Probability};
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Health, Instant};
use evenkeel_geo::demand::{SiteTally, SplitTally};
use evenkeel_geo::split::SplitWindow;
use evenkeel_geo::traffic::{Directive, Ended};
use tokio::sync::watch;

use crate::config::UpstreamConfig;
use crate::membership::Membership;
use said::Said;
use sites::SplitEntry;
use sources::Sources;

pub use sites::{SiteCounts, SplitReport, SplitStats};
pub use sources::{Heard, Query, SourceState};
pub use worker_report::{BrownoutSeen, ProbeCounts, ProbeResults, ReplicaState, WorkerReport};

/// What is known of all upstreams of the process.
#[derive(Debug)]
pub struct UpstreamStates {
    /// By place; a reload adds some and takes none away.
    upstreams: RwLock<Vec<Arc<Entry>>>,
    /// By worker, the CPU time of its thread, in nanoseconds.
    cpu_nanos: Vec<AtomicU64>,
    /// How often the replicas of any upstream, or those who tell of them, became others.
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct Entry {
    stats: Mutex<UpstreamStats>,
    plan: watch::Sender<Arc<RoutePlan>>,
    /// The slots of replicas that the configuration names; those of a Cassandra cluster are its
    /// watcher's.
    membership: Mutex<Membership>,
    /// Who tells of them; locked before `membership`.
    sources: Mutex<Sources>,
    /// Its name and whether it was last said to have a replica that may be used.
    said: Said,
    /// The replicas at home, by slot: as configured, or as a Cassandra cluster told.
    home: Mutex<Arc<[ServerAddress]>>,
    /// `None` where all requests stay at home.
    split: Option<SplitEntry>,
    /// What its workers learn, by data centre.
    siblings: Mutex<Vec<Arc<Siblings>>>,
}

/// How an upstream stands, over all workers.
#[derive(Clone, Debug, Default)]
pub struct UpstreamStats {
    /// Everything counted since the process began.
    pub total: RequestWindow,
    /// What answers said of brownout since the process began.
    pub seen: BrownoutSeen,
    /// Reads and writes of our own users since the process began: requests with a safe method, and
    /// all others.
    pub operations: [u64; 2],
    /// Responses to clients by class of status, 1xx first, since the process began.
    pub responses: [u64; 5],
    /// Copies of other upstreams' requests: sent, and left out.
    pub mirrored: [u64; 2],
    /// Questions to replicas since the process began.
    pub probes: ProbeCounts,
    /// By worker: the replicas by slot, and the calls it holds.
    pub workers: Vec<(Vec<ReplicaState>, usize)>,
    /// By worker: how its hedges stand.
    pub hedges: Vec<Option<HedgeStats>>,
    /// How its requests are split between data centres; `None` where all of them stay at home.
    pub split: Option<SplitStats>,
}

impl UpstreamStats {
    /// A replica's state over all workers: counts added, the newest dimmer, the worst of the rest.
    pub fn replica(&self, slot: usize) -> ReplicaState {
        let states = self.workers.iter().filter_map(|(replicas, _)| replicas.get(slot));
        states.fold(ReplicaState::default(), |sum, state| ReplicaState {
            in_flight: sum.in_flight + state.in_flight,
            connections: sum.connections + state.connections,
            failure_share: sum.failure_share.max(state.failure_share),
            is_ejected: sum.is_ejected || state.is_ejected,
            distrust: sum.distrust.or(state.distrust),
            cost: sum.cost.into_iter().chain(state.cost).reduce(f64::max),
            queue_length: sum.queue_length.max(state.queue_length),
            service_time: sum.service_time.max(state.service_time),
            dimmer: sum.dimmer.into_iter().chain(state.dimmer).max_by_key(|(_, at)| *at),
        })
    }

    /// Whether some worker has nothing against a replica, the health checks aside.
    pub fn is_trusted(&self, slot: usize) -> bool {
        let mut states = self.workers.iter().filter_map(|(replicas, _)| replicas.get(slot));
        self.workers.is_empty() || states.any(|state| state.distrust.is_none())
    }

    /// How hedges stand over all workers; `None` where there are none.
    pub fn hedge(&self) -> Option<HedgeStats> {
        self.hedges.iter().copied().flatten().reduce(HedgeStats::merged)
    }

    /// Calls held for a sending rate.
    pub fn held(&self) -> usize {
        self.workers.iter().map(|(_, held)| held).sum()
    }
}

impl Entry {
    fn new(upstream: &UpstreamConfig, workers: usize) -> Self {
        // The nodes of a cluster are not known yet.
        let home: &[ServerAddress] = if upstream.is_discovered { &[] } else { &upstream.replicas };
        let membership = match upstream.is_discovered {
            true => Membership::default(),
            false => Membership::of(upstream.slots()),
        };
        Self {
            stats: Mutex::default(),
            plan: watch::Sender::new(Arc::new(upstream.first_plan())),
            membership: Mutex::new(membership),
            sources: Mutex::new(Sources::of(upstream)),
            said: Said::new(&upstream.name),
            home: Mutex::new(home.into()),
            split: upstream.split.clone().map(|setup| SplitEntry::new(setup.sites, workers)),
            siblings: Mutex::default(),
        }
    }

    /// Whether some replica at home may be given requests.
    fn is_usable(&self, stats: &UpstreamStats) -> bool {
        let health = Arc::clone(&self.plan.borrow());
        let up = |slot: &usize| health.health.get(*slot) == Some(&Health::Up);
        (0..self.addresses().len()).filter(up).any(|slot| stats.is_trusted(slot))
    }

    fn addresses(&self) -> Arc<[ServerAddress]> {
        Arc::clone(&self.home.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, UpstreamStats> {
        // A worker that panicked left whole numbers behind: they are still worth showing.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_health(&self, slot: usize, health: Health) {
        self.plan.send_if_modified(|plan| {
            if plan.health[slot] == health {
                return false;
            }
            let mut next = RoutePlan::clone(plan);
            next.version += 1;
            next.health[slot] = health;
            *plan = Arc::new(next);
            true
        });
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sources(&self) -> MutexGuard<'_, Sources> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over who the replicas at home are from now on, by a reload or by what a source told;
    /// whether they have changed.
    fn follow(&self, now: Instant, sources: &mut Sources) -> bool {
        let mut membership = self.membership();
        let before: Vec<ServerAddress> = membership.members().map(|(_, at, _)| at).collect();
        let replicas = sources.members(&before);
        if !membership.follow(now, replicas.iter().copied()) {
            return false;
        }
        let joined = replicas.iter().filter(|at| !before.contains(at)).count();
        let (count, left) = (replicas.len(), before.len() + joined - replicas.len());
        let upstream = self.said.upstream();
        tracing::info!(upstream, count, joined, left, "its replicas have changed");
        let stay = membership.members().filter(|(_, at, _)| before.contains(at));
        let stay: Vec<usize> = stay.map(|(slot, ..)| slot).collect();
        // First who is in which slot, then the plan: a worker that has the plan finds them all.
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) =
            membership.addresses().collect();
        self.plan.send_modify(|plan| {
            // Who is checked gets requests once it has passed, unless nobody else does.
            let is_up = |slot: &usize| plan.health.get(*slot) == Some(&Health::Up);
            let is_served = stay.iter().any(is_up);
            let joining = if sources.has_checks() && is_served { Health::Down } else { Health::Up };
            *plan = Arc::new(membership.plan(plan, joining));
        });
        true
    }
}

impl UpstreamStates {
    /// Nothing known yet of these upstreams, and as many workers.
    pub fn new<'a>(upstreams: impl Iterator<Item = &'a UpstreamConfig>, workers: usize) -> Self {
        let workers = workers.max(1);
        let entry = |upstream: &UpstreamConfig| Arc::new(Entry::new(upstream, workers));
        Self {
            upstreams: RwLock::new(upstreams.map(entry).collect()),
            cpu_nanos: (0..workers).map(|_| AtomicU64::new(0)).collect(),
            changes: watch::Sender::new(0),
        }
    }

    /// Where the workers of an upstream tell each other what they learn: for so many data centres.
    pub fn siblings(&self, upstream: usize, datacenters: usize) -> Vec<Arc<Siblings>> {
        let entry = self.entry(upstream);
        let mut siblings = entry.siblings.lock().unwrap_or_else(PoisonError::into_inner);
        while siblings.len() < datacenters {
            siblings.push(Siblings::new(self.cpu_nanos.len()));
        }
        siblings[..datacenters].to_vec()
    }

    /// CPU time that all workers have used: listening, deciding, passing on.
    pub fn cpu(&self) -> Duration {
        let nanos = self.cpu_nanos.iter().map(|nanos| nanos.load(Ordering::Relaxed)).sum();
        Duration::from_nanos(nanos)
    }

    fn entry(&self, upstream: usize) -> Arc<Entry> {
        let upstreams = self.upstreams.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&upstreams[upstream])
    }

    /// Takes over the upstreams of another configuration, each in the place it has in this one:
    /// new ones, and who their replicas are. What was counted stays.
    pub fn adopt<'a>(
        &self,
        now: Instant,
        configs: impl ExactSizeIterator<Item = &'a UpstreamConfig>,
    ) {
        let mut upstreams = self.upstreams.write().unwrap_or_else(PoisonError::into_inner);
        assert!(configs.len() >= upstreams.len(), "an upstream keeps its place");
        for (place, upstream) in configs.enumerate() {
            let Some(entry) = upstreams.get(place) else {
                upstreams.push(Arc::new(Entry::new(upstream, self.cpu_nanos.len())));
                continue;
            };
            // A cluster tells of its nodes itself; replicas that other sites share have their
            // places among those of these.
            if !upstream.is_discovered && upstream.split.is_none() {
                let mut sources = entry.sources();
                sources.reconfigure(upstream);
                entry.follow(now, &mut sources);
            }
        }
        drop(upstreams);
        self.changes.send_modify(|count| *count += 1);
    }

    /// What is to be asked for these upstreams, and whether nothing has been heard of it yet.
    pub fn queries(&self, upstreams: impl Iterator<Item = usize>) -> BTreeMap<Query, bool> {
        let mut all = BTreeMap::new();
        for upstream in upstreams {
            for (query, is_unheard) in self.entry(upstream).sources().queries() {
                *all.entry(query).or_default() |= is_unheard;
            }
        }
        all
    }

    /// Takes in what was heard of a query, for every upstream that asks it; whether it should be
    /// confirmed soon.
    pub fn learn(&self, now: Instant, query: &Query, heard: &Heard) -> bool {
        let upstreams = self.upstreams.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (mut is_changed, mut is_unconfirmed) = (false, false);
        for entry in upstreams {
            let mut sources = entry.sources();
            if sources.queries().any(|(asked, _)| asked == *query) {
                let (has_others, is_open) = sources.learn(now, query, heard);
                is_changed |= entry.follow(now, &mut sources) | has_others;
                is_unconfirmed |= is_open;
            }
        }
        if is_changed {
            self.changes.send_modify(|count| *count += 1);
        }
        is_unconfirmed
    }

    /// Tells whenever replicas, or those who tell of them, may have become others.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// How those stand who tell of an upstream's replicas.
    pub fn sources(&self, upstream: usize) -> Vec<SourceState> {
        self.entry(upstream).sources().states()
    }

    /// The replicas of an upstream that the configuration names, each with its slot and how many
    /// had that before; none of those that left.
    pub fn members(&self, upstream: usize) -> Vec<(usize, ServerAddress, u32)> {
        self.entry(upstream).membership().members().collect()
    }

    /// Publishes what a check found of a replica, unless that has left its slot since.
    pub fn judge(&self, upstream: usize, (slot, generation): (usize, u32), health: Health) {
        let entry = self.entry(upstream);
        let membership = entry.membership();
        if membership.is_member(slot, generation) {
            entry.set_health(slot, health);
        }
    }

    /// How an upstream stands.
    pub fn stats(&self, upstream: usize) -> UpstreamStats {
        let split = self.split_stats(upstream);
        UpstreamStats { split, ..self.entry(upstream).lock().clone() }
    }

    /// The plan in force for an upstream.
    pub fn plan(&self, upstream: usize) -> Arc<RoutePlan> {
        Arc::clone(&self.entry(upstream).plan.borrow())
    }

    /// The replicas of an upstream at home, by slot.
    pub fn home(&self, upstream: usize) -> Arc<[ServerAddress]> {
        self.entry(upstream).addresses()
    }

    /// How many of its replicas at home are up.
    pub fn home_up(&self, upstream: usize) -> usize {
        let (home, plan) = (self.home(upstream), self.plan(upstream));
        let own = plan.health.iter().take(home.len());
        own.filter(|health| **health == Health::Up).count()
    }

    /// How much optional content its replicas at home serve, and which share of them leaves some
    /// out, as they told within the last seconds; `None` where nobody does.
    pub fn home_content(&self, upstream: usize) -> Option<(Probability, Probability)> {
        let home = self.home(upstream).len();
        let entry = self.entry(upstream);
        let stats = entry.lock();
        let told = (0..home).filter_map(|slot| stats.replica(slot).dimmer);
        let (mut count, mut content, mut dimmed) = (0.0, 0.0, 0.0);
        for (dimmer, _) in told {
            count += 1.0;
            content += dimmer.value();
            dimmed += f64::from(u8::from(dimmer < Dimmer::FULL));
        }
        (count > 0.0)
            .then(|| (Probability::clamped(content / count), Probability::clamped(dimmed / count)))
    }

    /// Publishes who is at home in a cluster that tells of its nodes, and how they are.
    pub fn set_home(&self, upstream: usize, slots: &[ServerAddress], plan: &RoutePlan) {
        let entry = self.entry(upstream);
        *entry.home.lock().unwrap_or_else(PoisonError::into_inner) = slots.into();
        entry.plan.send_replace(Arc::new(plan.clone()));
    }

    /// The plans of an upstream as they come.
    pub fn plans(&self, upstream: usize) -> watch::Receiver<Arc<RoutePlan>> {
        self.entry(upstream).plan.subscribe()
    }

    /// Tells all workers of an upstream where the requests of its own users go from now on. Does
    /// nothing for an upstream without `[redirect]`.
    pub fn direct(&self, upstream: usize, directive: Directive) {
        if let Some(split) = &self.entry(upstream).split {
            split.direct(directive);
        }
    }

    /// The directives for an upstream as they come; `None` where all requests stay at home.
    pub fn directives(&self, upstream: usize) -> Option<watch::Receiver<Option<Arc<Directive>>>> {
        self.entry(upstream).split.as_ref().map(SplitEntry::directives)
    }

    /// Adds requests of an upstream's own users that came through another data plane. Does nothing
    /// for an upstream without `[redirect]`.
    pub fn note_foreign(&self, upstream: usize, window: &SplitWindow, by_site: &[SiteTally]) {
        if let Some(split) = &self.entry(upstream).split {
            split.note_foreign(window, by_site);
        }
    }

    /// What workers counted of an upstream's own users since the process began; empty where all
    /// requests stay at home. This is where demand is read.
    pub fn split_tally(&self, upstream: usize) -> SplitTally {
        self.entry(upstream).split.as_ref().map(SplitEntry::tally).unwrap_or_default()
    }

    /// What workers did under the last plan of an upstream that is over; `None` before one is.
    pub fn split_ended(&self, upstream: usize) -> Option<Ended> {
        self.entry(upstream).split.as_ref().and_then(SplitEntry::ended)
    }

    /// How the split of an upstream stands; `None` where all requests stay at home.
    pub fn split_stats(&self, upstream: usize) -> Option<SplitStats> {
        self.entry(upstream).split.as_ref().map(SplitEntry::stats)
    }

    /// Publishes a new plan in which one replica's health is changed.
    pub fn set_health(&self, upstream: usize, slot: usize, health: Health) {
        self.entry(upstream).set_health(slot, health);
    }

    /// Notes the CPU time of a worker's thread since it began.
    pub fn note_cpu(&self, worker: usize, used: Duration) {
        let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        self.cpu_nanos[worker].store(nanos, Ordering::Relaxed);
    }

    /// Adds what a worker counted.
    pub fn note(&self, upstream: usize, worker: usize, report: WorkerReport) {
        let entry = self.entry(upstream);
        let mut stats = entry.lock();
        stats.total.merge(&report.window);
        stats.seen.merge(&report.seen);
        stats.probes.merge(&report.probes);
        let sums = stats.operations.iter_mut().zip(report.operations);
        sums.for_each(|(sum, count)| *sum += count);
        let sums = stats.responses.iter_mut().zip(report.responses);
        sums.for_each(|(sum, count)| *sum += count);
        let sums = stats.mirrored.iter_mut().zip(report.mirrored);
        sums.for_each(|(sum, count)| *sum += count);
        if stats.workers.len() <= worker {
            stats.workers.resize_with(worker + 1, Default::default);
            stats.hedges.resize(worker + 1, None);
        }
        stats.hedges[worker] = report.hedge;
        let before = std::mem::replace(&mut stats.workers[worker], (report.replicas, report.held));
        let changes = said::changes(&before.0, &stats.workers[worker].0);
        let is_usable = entry.is_usable(&stats);
        drop(stats);
        entry.said.tell(&entry.addresses(), &changes, is_usable);
        if let (Some(split), Some(seen)) = (&entry.split, &report.split) {
            split.note(worker, seen);
        }
    }
}
