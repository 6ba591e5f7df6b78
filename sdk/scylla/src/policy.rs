//! The driver's trait around the chooser.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::request::Failure;
use evenkeel_core::request::redundancy::{HedgeConfig, HedgeStats};
use evenkeel_core::request::select::{Policy, PolicyError};
use scylla::cluster::{ClusterState, NodeRef};
use scylla::errors::{DbError, RequestAttemptError};
use scylla::policies::load_balancing::{
    DefaultPolicy, FallbackPlan, LoadBalancingPolicy, RoutingInfo,
};
use scylla::policies::speculative_execution::{Context, SpeculativeExecutionPolicy};
use scylla::routing::Shard;

use crate::chooser::{Chooser, Counts, Limits, NodeId, RequestId};

/// A target as the driver has it.
type Target<'a> = (NodeRef<'a>, Option<Shard>);

/// Chooses among the replicas of a key by Evenkeel's policies; everything else (other data centres,
/// nodes that are not replicas, nodes that seem down, conditional requests) is left to the driver's
/// default policy and counted.
///
/// With [`AdaptivePolicyBuilder::hedge`] it also says when a request that takes long is given a
/// copy. For that, give it to the driver once more, as the profile's speculative execution policy.
///
/// One policy may serve several sessions of one cluster. It has one lock, held for about a
/// microsecond at each send and each end.
#[derive(Debug)]
pub struct AdaptivePolicy {
    chooser: Mutex<Chooser>,
    began: std::time::Instant,
    others: Arc<dyn LoadBalancingPolicy>,
    datacenter: Option<String>,
    name: String,
}

impl AdaptivePolicy {
    /// A policy to be set up: C3, alone, in no particular data centre.
    #[must_use]
    pub fn builder() -> AdaptivePolicyBuilder {
        AdaptivePolicyBuilder {
            policy: "c3".to_owned(),
            clients: 1,
            datacenter: None,
            may_leave_datacenter: false,
            hedge: None,
            limits: Limits { seed: seed_of_process(), ..Limits::default() },
        }
    }

    /// Requests in flight at a node, by its host id, as far as is known.
    #[must_use]
    pub fn in_flight(&self, host_id: u128) -> u32 {
        self.chooser().in_flight(NodeId(host_id))
    }

    /// What became of all requests so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.chooser().counts()
    }

    /// How the hedge stands; `None` without one.
    #[must_use]
    pub fn hedge(&self) -> Option<HedgeStats> {
        self.chooser().hedge()
    }

    fn chooser(&self) -> MutexGuard<'_, Chooser> {
        // Whoever panicked did so in an assert of the dispatcher's; its books are whole.
        self.chooser.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.began.elapsed().as_nanos() as u64)
    }

    /// Connected replicas of the key in the data centre; without a key, or when there are none,
    /// all connected nodes of it.
    fn candidates<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Vec<Target<'a>> {
        let preferred = request.node_location_preference.datacenter();
        let datacenter = self.datacenter.as_deref().or(preferred);
        if let (Some(token), Some(table)) = (request.token, request.table)
            && let Some(keyspace) = cluster.get_keyspace(table.ks_name())
        {
            let locator = cluster.replica_locator();
            let set = locator.replicas_for_token(token, &keyspace.strategy, datacenter, table);
            let alive = set.into_iter().filter(|&(node, _)| is_alive(node));
            let replicas: Vec<_> = alive.map(|(node, shard)| (node, Some(shard))).collect();
            if !replicas.is_empty() {
                return replicas;
            }
        }
        let is_here = |node: NodeRef<'_>| {
            datacenter.is_none_or(|name| node.datacenter.as_deref() == Some(name))
        };
        let nodes = cluster.get_nodes_info().iter();
        nodes.filter(|node| is_here(node) && is_alive(node)).map(|node| (node, None)).collect()
    }

    fn choose<'a>(&self, request: RequestId, candidates: &[Target<'a>]) -> Option<Target<'a>> {
        let nodes: Vec<_> = candidates.iter().map(|&(node, _)| node_id(node)).collect();
        let place = self.chooser().choose(self.now(), request, &nodes)?;
        candidates.get(place).copied()
    }

    fn copy<'a>(&self, request: RequestId, candidates: &[Target<'a>]) -> Option<Target<'a>> {
        let nodes: Vec<_> = candidates.iter().map(|&(node, _)| node_id(node)).collect();
        let place = self.chooser().copy(self.now(), request, &nodes)?;
        candidates.get(place).copied()
    }
}

/// A number that differs from process to process.
fn seed_of_process() -> u64 {
    RandomState::new().hash_one(0)
}

fn is_alive(node: NodeRef<'_>) -> bool {
    node.is_enabled() && node.is_connected()
}

fn node_id(node: NodeRef<'_>) -> NodeId {
    NodeId(node.host_id.as_u128())
}

/// The driver borrows a request's routing information for as long as the request lives, so where it
/// lies is a name for it that no other request has at the same time.
fn request_id(request: &RoutingInfo<'_>) -> RequestId {
    RequestId(std::ptr::from_ref(request).addr())
}

/// What a failure says about the node; `None` when it speaks of the request, or of other nodes.
fn failure(error: &RequestAttemptError) -> Option<Failure> {
    match error {
        RequestAttemptError::BrokenConnectionError(_) => Some(Failure::Broken),
        // Every stream of a connection is taken: it answers nothing.
        RequestAttemptError::UnableToAllocStreamId => Some(Failure::Unavailable),
        RequestAttemptError::DbError(error, _) => match error {
            DbError::Overloaded | DbError::IsBootstrapping | DbError::ServerError => {
                Some(Failure::Unavailable)
            }
            // A coordinator that holds the key asks itself first.
            DbError::ReadTimeout { .. }
            | DbError::WriteTimeout { .. }
            | DbError::ReadFailure { .. }
            | DbError::WriteFailure { .. } => Some(Failure::ErrorReply),
            _ => None,
        },
        _ => None,
    }
}

impl LoadBalancingPolicy for AdaptivePolicy {
    fn pick<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> Option<Target<'a>> {
        let id = request_id(request);
        self.chooser().begin(self.now(), id);
        if request.should_route_as_lwt() {
            let picked = self.others.pick(request, cluster)?;
            self.chooser().sent(self.now(), id, node_id(picked.0));
            return Some(picked);
        }
        let mut candidates = self.candidates(request, cluster);
        let tried: Vec<_> = self.chooser().tried(id).collect(); // a page's; hardly ever any
        candidates.retain(|&(node, _)| !tried.contains(&node_id(node)));
        self.choose(id, &candidates)
    }

    fn fallback<'a>(
        &'a self,
        request: &'a RoutingInfo<'_>,
        cluster: &'a ClusterState,
    ) -> FallbackPlan<'a> {
        let id = request_id(request);
        let mut tried = Vec::with_capacity(4);
        tried.extend(self.chooser().tried(id));
        let candidates = if request.should_route_as_lwt() {
            Vec::new() // in the order of the driver, which avoids rounds of Paxos that collide
        } else {
            self.candidates(request, cluster)
        };
        Box::new(Rest { policy: self, request, cluster, id, tried, candidates, others: None })
    }

    fn on_request_success(&self, request: &RoutingInfo<'_>, latency: Duration, node: NodeRef<'_>) {
        let now = self.now();
        self.chooser().answered(now, request_id(request), node_id(node), latency);
    }

    fn on_request_failure(
        &self,
        request: &RoutingInfo<'_>,
        latency: Duration,
        node: NodeRef<'_>,
        error: &RequestAttemptError,
    ) {
        let (now, failure) = (self.now(), failure(error));
        self.chooser().failed(now, request_id(request), node_id(node), latency, failure);
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

/// The driver asks once for each request that may be sent twice, before anything is sent. What it
/// is told here is when to come again: whether a copy leaves is decided then, in `Rest`.
impl SpeculativeExecutionPolicy for AdaptivePolicy {
    fn max_retry_count(&self, _: &Context) -> usize {
        self.chooser().copies_max()
    }

    fn retry_interval(&self, _: &Context) -> Duration {
        self.chooser().copy_due().unwrap_or(NEVER)
    }
}

/// A timer that rings when no request lives any more.
const NEVER: Duration = Duration::from_secs(3_600);

/// What a request may still try. Each target counts as sent to when it is taken.
struct Rest<'a> {
    policy: &'a AdaptivePolicy,
    request: &'a RoutingInfo<'a>,
    cluster: &'a ClusterState,
    id: RequestId,
    tried: Vec<NodeId>,
    candidates: Vec<Target<'a>>,
    others: Option<FallbackPlan<'a>>,
}

impl Rest<'_> {
    fn is_for_copy(&self) -> bool {
        let lost = self.tried.last().copied().filter(|last| {
            let mut nodes = self.cluster.get_nodes_info().iter();
            nodes.find(|node| node_id(node) == *last).is_none_or(|node| !is_alive(node))
        });
        self.policy.chooser().asks_for_copy(self.policy.now(), self.id, lost)
    }
}

/// For a copy that must not leave now there is no target: the driver takes that for the end of the
/// plan, starts no further copies of this request and waits for what is under way. A retry that
/// comes later is given targets again.
impl<'a> Iterator for Rest<'a> {
    type Item = Target<'a>;

    fn next(&mut self) -> Option<Target<'a>> {
        let is_for_copy = self.is_for_copy();
        let Self { policy, request, cluster, tried, .. } = self;
        self.candidates.retain(|&(node, _)| !tried.contains(&node_id(node)));
        if is_for_copy {
            // Rounds of Paxos have no candidates here, so they have no copies.
            let target = policy.copy(self.id, &self.candidates)?;
            tried.push(node_id(target.0));
            return Some(target);
        }
        if let Some(target) = policy.choose(self.id, &self.candidates) {
            tried.push(node_id(target.0));
            return Some(target);
        }
        let others = self.others.get_or_insert_with(|| policy.others.fallback(request, cluster));
        let target = others.find(|&(node, _)| !tried.contains(&node_id(node)))?;
        tried.push(node_id(target.0));
        if is_alive(target.0) {
            // Without a connection nothing is sent, and the driver would not tell.
            policy.chooser().sent(policy.now(), self.id, node_id(target.0));
        }
        Some(target)
    }
}

/// Sets up an [`AdaptivePolicy`].
#[derive(Clone, Debug)]
pub struct AdaptivePolicyBuilder {
    policy: String,
    clients: u32,
    datacenter: Option<String>,
    may_leave_datacenter: bool,
    hedge: Option<HedgeConfig>,
    limits: Limits,
}

impl AdaptivePolicyBuilder {
    /// A policy of Evenkeel's registry with its parameters: `c3`, `c3:weight=4`, `peak-ewma`,
    /// `least-outstanding`, `two-choices`. Policies that live on reports or probes of replicas
    /// have none here. One that holds requests back cannot: they are sent where least is in flight.
    #[must_use]
    pub fn policy(mut self, text: &str) -> Self {
        text.clone_into(&mut self.policy);
        self
    }

    /// How many processes like this one use the same nodes: C3 weights its own requests in flight
    /// by it. 1 unless set.
    #[must_use]
    pub const fn clients(mut self, clients: u32) -> Self {
        self.clients = clients;
        self
    }

    /// The data centre whose replicas are chosen among. Without it, the one that the session
    /// prefers; without that, all.
    #[must_use]
    pub fn prefer_datacenter(mut self, name: &str) -> Self {
        self.datacenter = Some(name.to_owned());
        self
    }

    /// Whether requests may go to other data centres when all else failed (never those at local
    /// consistency levels). Off unless set.
    #[must_use]
    pub const fn permit_datacenter_failover(mut self, permit: bool) -> Self {
        self.may_leave_datacenter = permit;
        self
    }

    /// When a request that takes long is given a copy, and how many requests may be. For statements
    /// that are marked idempotent, in profiles whose speculative execution policy this is, too.
    #[must_use]
    pub const fn hedge(mut self, config: HedgeConfig) -> Self {
        self.hedge = Some(config);
        self
    }

    /// After how long a request is given up whose end the driver never told: longer than the
    /// longest request timeout. 60 s unless set.
    #[must_use]
    pub const fn untold(mut self, after: Duration) -> Self {
        self.limits.untold = after;
        self
    }

    /// Seed of the policy's randomness. Without it each process has its own, so that many do not
    /// march in step.
    #[must_use]
    pub const fn seed(mut self, seed: u64) -> Self {
        self.limits.seed = seed;
        self
    }

    /// The policy, for `ExecutionProfile::builder().load_balancing_policy(…)`.
    ///
    /// # Errors
    /// When the registry has no such policy, or the policy no such parameter.
    pub fn build(self) -> Result<Arc<AdaptivePolicy>, PolicyError> {
        let policy: Policy = self.policy.parse()?;
        let others = DefaultPolicy::builder()
            .token_aware(true)
            .permit_dc_failover(self.may_leave_datacenter);
        let others = match &self.datacenter {
            Some(name) => others.prefer_datacenter(name.clone()),
            None => others,
        };
        let chooser = Chooser::new(&policy, self.clients, self.limits);
        let chooser = match self.hedge {
            Some(config) => chooser.with_hedge(config),
            None => chooser,
        };
        Ok(Arc::new(AdaptivePolicy {
            chooser: Mutex::new(chooser),
            began: std::time::Instant::now(),
            others: others.build(),
            datacenter: self.datacenter,
            name: format!("evenkeel {}", policy.text()),
        }))
    }
}
