//! Where workers hand up what they counted, and find the plans that come down.
//!
//! Nothing here is on the request path: workers come by five times a second.

mod cluster;
mod observation;
mod split;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use evenkeel_core::Health;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::HedgeStanding;
use evenkeel_core::site::redirect::split::SplitWindow;
use evenkeel_core::window::RequestWindow;
use tokio::sync::watch;

use crate::config::{AgentConfig, Config, Switch, UpstreamConfig};
use crate::envoy::Plane;
use crate::replica::AgentState;
use split::SplitEntry;

pub use cluster::{ClusterState, NodeState};
pub use observation::{BrownoutSeen, Observation, ReplicaState};
pub use split::{Directive, Ended, Lane, LaneTally, SplitObservation, SplitStanding, SplitTally};

/// What is known of all upstreams of the process.
#[derive(Debug)]
pub struct Board {
    upstreams: Vec<Entry>,
    agents: Vec<AgentEntry>,
    /// By worker, the CPU time of its thread, in nanoseconds.
    cpu_nanos: Vec<AtomicU64>,
    envoy: OnceLock<Arc<Plane>>,
}

#[derive(Debug)]
struct Entry {
    standing: Mutex<Standing>,
    plan: watch::Sender<Arc<RoutePlan>>,
    /// The replicas at home, by seat: as configured, or as a Cassandra cluster told.
    home: Mutex<Arc<[SocketAddr]>>,
    /// `None` where all requests stay at home.
    split: Option<SplitEntry>,
}

#[derive(Debug)]
struct AgentEntry {
    state: Mutex<AgentState>,
    switch: watch::Sender<Switch>,
}

/// How an upstream stands, over all workers.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Everything counted since the process began.
    pub total: RequestWindow,
    /// What answers said of brownout since the process began.
    pub seen: BrownoutSeen,
    /// Reads and writes of our own users since the process began: requests with a safe method, and
    /// all others.
    pub operations: [u64; 2],
    /// By worker: the replicas by seat, and the calls it holds.
    pub workers: Vec<(Vec<ReplicaState>, usize)>,
    /// By worker: how its hedges stand.
    pub hedges: Vec<Option<HedgeStanding>>,
    /// How its requests are split between data centres; `None` where all of them stay at home.
    pub split: Option<SplitStanding>,
    /// By worker: how the Cassandra cluster stands, where it is one.
    pub clusters: Vec<Option<ClusterState>>,
}

impl Standing {
    /// A replica's state over all workers: counts added, the newest dimmer, the worst of the rest.
    #[must_use]
    pub fn replica(&self, seat: usize) -> ReplicaState {
        let states = self.workers.iter().filter_map(|(replicas, _)| replicas.get(seat));
        states.fold(ReplicaState::default(), |sum, state| ReplicaState {
            in_flight: sum.in_flight + state.in_flight,
            connections: sum.connections + state.connections,
            failure_share: sum.failure_share.max(state.failure_share),
            is_ejected: sum.is_ejected || state.is_ejected,
            cost: sum.cost.into_iter().chain(state.cost).reduce(f64::max),
            queue_length: sum.queue_length.max(state.queue_length),
            service_time: sum.service_time.max(state.service_time),
            dimmer: sum.dimmer.into_iter().chain(state.dimmer).max_by_key(|(_, at)| *at),
        })
    }

    /// How hedges stand over all workers; `None` where there are none.
    #[must_use]
    pub fn hedge(&self) -> Option<HedgeStanding> {
        self.hedges.iter().copied().flatten().reduce(HedgeStanding::merged)
    }

    /// How the Cassandra cluster stands with all workers; empty where HTTP is spoken.
    #[must_use]
    pub fn cluster(&self) -> ClusterState {
        let mut sum = ClusterState::default();
        self.clusters.iter().flatten().for_each(|cluster| sum.merge(cluster));
        sum
    }

    /// Calls held for a sending rate.
    #[must_use]
    pub fn held(&self) -> usize {
        self.workers.iter().map(|(_, held)| held).sum()
    }
}

/// The nodes of a cluster are not known yet.
fn first_home(upstream: &UpstreamConfig) -> Arc<[SocketAddr]> {
    match upstream.cql {
        Some(_) => Arc::new([]),
        None => upstream.replicas.as_slice().into(),
    }
}

impl Board {
    /// An empty board for the upstreams of a configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let workers = config.process.workers.max(1);
        let entry = |upstream: &UpstreamConfig| Entry {
            standing: Mutex::default(),
            plan: watch::Sender::new(Arc::new(upstream.first_plan())),
            home: Mutex::new(first_home(upstream)),
            split: upstream.split.clone().map(|setup| SplitEntry::new(setup, workers)),
        };
        let agent = |agent: &AgentConfig| {
            let switch = agent.dimmer.as_ref().map(|dimmer| dimmer.switch).unwrap_or_default();
            AgentEntry { state: Mutex::default(), switch: watch::Sender::new(switch) }
        };
        Self {
            upstreams: config.upstreams.iter().map(entry).collect(),
            agents: config.agents.iter().map(agent).collect(),
            cpu_nanos: (0..config.process.workers).map(|_| AtomicU64::new(0)).collect(),
            envoy: OnceLock::new(),
        }
    }

    /// CPU time that all workers have used: listening, deciding, passing on.
    #[must_use]
    pub fn cpu(&self) -> Duration {
        let nanos = self.cpu_nanos.iter().map(|nanos| nanos.load(Ordering::Relaxed)).sum();
        Duration::from_nanos(nanos)
    }

    /// How an upstream stands.
    #[must_use]
    pub fn standing(&self, upstream: usize) -> Standing {
        let split = self.split_standing(upstream);
        Standing { split, ..self.lock(upstream).clone() }
    }

    /// The plan in force for an upstream.
    #[must_use]
    pub fn plan(&self, upstream: usize) -> Arc<RoutePlan> {
        Arc::clone(&self.upstreams[upstream].plan.borrow())
    }

    /// The replicas of an upstream at home, by seat.
    #[must_use]
    pub fn home(&self, upstream: usize) -> Arc<[SocketAddr]> {
        let home = self.upstreams[upstream].home.lock();
        Arc::clone(&home.unwrap_or_else(PoisonError::into_inner))
    }

    /// How many of its replicas at home are up.
    #[must_use]
    pub fn home_up(&self, upstream: usize) -> usize {
        let (home, plan) = (self.home(upstream), self.plan(upstream));
        let own = plan.health.iter().take(home.len());
        own.filter(|health| **health == Health::Up).count()
    }

    /// Publishes who is at home in a cluster that tells of its nodes, and how they are.
    pub(crate) fn set_home(&self, upstream: usize, seats: &[SocketAddr], plan: &RoutePlan) {
        let entry = &self.upstreams[upstream];
        *entry.home.lock().unwrap_or_else(PoisonError::into_inner) = seats.into();
        entry.plan.send_replace(Arc::new(plan.clone()));
    }

    /// The plans of an upstream as they come.
    #[must_use]
    pub fn plans(&self, upstream: usize) -> watch::Receiver<Arc<RoutePlan>> {
        self.upstreams[upstream].plan.subscribe()
    }

    /// Tells all workers of an upstream where the requests of its own users go from now on. Does
    /// nothing for an upstream without `[redirect]`.
    pub fn direct(&self, upstream: usize, directive: Directive) {
        if let Some(split) = &self.upstreams[upstream].split {
            split.direct(directive);
        }
    }

    /// The directives for an upstream as they come; `None` where all requests stay at home.
    pub(crate) fn directives(
        &self,
        upstream: usize,
    ) -> Option<watch::Receiver<Option<Arc<Directive>>>> {
        self.upstreams[upstream].split.as_ref().map(SplitEntry::directives)
    }

    /// What Envoys are told, and what they report; `None` without `[envoy]`.
    #[must_use]
    pub fn envoy(&self) -> Option<&Arc<Plane>> {
        self.envoy.get()
    }

    /// Says what Envoys are told; the first to say so is right.
    pub(crate) fn set_envoy(&self, plane: Arc<Plane>) {
        let _ = self.envoy.set(plane);
    }

    /// Adds requests of an upstream's own users that came through another data plane. Does nothing
    /// for an upstream without `[redirect]`.
    pub(crate) fn note_foreign(&self, upstream: usize, window: &SplitWindow, lanes: &[LaneTally]) {
        if let Some(split) = &self.upstreams[upstream].split {
            split.note_foreign(window, lanes);
        }
    }

    /// What workers counted of an upstream's own users since the process began; empty where all
    /// requests stay at home. This is where demand is read.
    #[must_use]
    pub fn split_tally(&self, upstream: usize) -> SplitTally {
        self.upstreams[upstream].split.as_ref().map(SplitEntry::tally).unwrap_or_default()
    }

    /// What workers did under the last plan of an upstream that is over; `None` before one is.
    #[must_use]
    pub fn split_ended(&self, upstream: usize) -> Option<Ended> {
        self.upstreams[upstream].split.as_ref().and_then(SplitEntry::ended)
    }

    /// How the split of an upstream stands; `None` where all requests stay at home.
    #[must_use]
    pub fn split_standing(&self, upstream: usize) -> Option<SplitStanding> {
        self.upstreams[upstream].split.as_ref().map(SplitEntry::standing)
    }

    /// How an agent stands, by its place in the configuration.
    #[must_use]
    pub fn agent(&self, agent: usize) -> AgentState {
        *self.agents[agent].state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the switch of an agent's brownout shall stand.
    #[must_use]
    pub fn switch(&self, agent: usize) -> Switch {
        *self.agents[agent].switch.borrow()
    }

    /// Sets the switch of an agent's brownout.
    pub fn set_switch(&self, agent: usize, switch: Switch) {
        self.agents[agent].switch.send_replace(switch);
    }

    /// The positions of an agent's switch as they come.
    pub(crate) fn switches(&self, agent: usize) -> watch::Receiver<Switch> {
        self.agents[agent].switch.subscribe()
    }

    /// Notes how an agent stands.
    pub(crate) fn note_agent(&self, agent: usize, state: AgentState) {
        *self.agents[agent].state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Publishes a new plan in which one replica's health is changed.
    pub fn set_health(&self, upstream: usize, seat: usize, health: Health) {
        self.upstreams[upstream].plan.send_if_modified(|plan| {
            if plan.health[seat] == health {
                return false;
            }
            let mut next = RoutePlan::clone(plan);
            next.version += 1;
            next.health[seat] = health;
            *plan = Arc::new(next);
            true
        });
    }

    /// Notes the CPU time of a worker's thread since it began.
    pub(crate) fn note_cpu(&self, worker: usize, used: Duration) {
        let nanos = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        self.cpu_nanos[worker].store(nanos, Ordering::Relaxed);
    }

    /// Adds what a worker counted.
    pub(crate) fn note(&self, upstream: usize, worker: usize, observation: Observation) {
        let mut standing = self.lock(upstream);
        standing.total.merge(&observation.window);
        standing.seen.merge(&observation.seen);
        for (sum, count) in standing.operations.iter_mut().zip(observation.operations) {
            *sum += count;
        }
        if standing.workers.len() <= worker {
            standing.workers.resize_with(worker + 1, Default::default);
            standing.hedges.resize(worker + 1, None);
            standing.clusters.resize(worker + 1, None);
        }
        standing.clusters[worker] = observation.cluster;
        standing.hedges[worker] = observation.hedge;
        standing.workers[worker] = (observation.replicas, observation.held);
        drop(standing);
        if let (Some(split), Some(seen)) = (&self.upstreams[upstream].split, &observation.split) {
            split.note(worker, seen);
        }
    }

    fn lock(&self, upstream: usize) -> MutexGuard<'_, Standing> {
        // A worker that panicked left whole numbers behind: they are still worth showing.
        self.upstreams[upstream].standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
