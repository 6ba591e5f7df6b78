//! One Cassandra cluster as one worker sees it: its calls, its nodes, and where a request may go.

pub(super) mod greeting;
mod refusal;
pub(super) mod schema;

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::request::ring::{self, Stays};
use evenkeel_core::{Feedback, GroupId, Health};
use evenkeel_geo::epoch::SiteSet;
use tokio::sync::{Notify, broadcast, watch};

use super::cluster::{Cluster, Notice, View};
use super::cluster_state::{ClusterState, NodeState};
use super::front::{Asked, FrontCounts, Refusal};
use super::members::Members;
use crate::config::CqlConfig;
use evenkeel_cql::client::{FeedbackSource, Login, Node, NodeLimits};
use evenkeel_proxy::calls::{Calls, DispatcherSeed, OpenAttempt};
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::requests::context::Ids;
use evenkeel_proxy::requests::record::Place;
use evenkeel_proxy::site_setup::{Constraints, HOME};
use evenkeel_proxy::upstream_state::WorkerReport;
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::ServerAddress;

/// A client waits for so long to be let in where nothing is known of the cluster: nodes that are up
/// have told by then, and drivers wait for some seconds.
const KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// One Cassandra cluster as one worker sees it.
#[derive(Debug)]
pub struct Route {
    pub(crate) config: UpstreamConfig,
    /// What `[upstream.NAME.cql]` says.
    pub cql: CqlConfig,
    /// Its requests on their way: dispatchers, attempts, the clock.
    pub calls: Rc<Calls>,
    limits: Rc<NodeLimits>,
    /// As whom the process itself asks.
    login: Option<Arc<Login>>,
    view: View,
    members: RefCell<Arc<Members>>,
    /// Who waits for members is told of new ones.
    adopted: Notify,
    /// By data centre and slot.
    nodes: RefCell<Vec<Vec<Rc<Node>>>>,
    /// Requests that no other site may serve, by the first reason.
    stayed: Cell<[u64; Stays::ALL.len()]>,
    /// For conversations: the nodes take turns.
    turn: Cell<usize>,
    /// What its listeners count.
    fronts: RefCell<Vec<Rc<FrontCounts>>>,
    /// Of traces that begin here.
    ids: Ids,
}

impl Route {
    /// A route without connections yet. Must be made on the worker's thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub(crate) fn new(
        (config, cql): (&UpstreamConfig, &CqlConfig),
        (limits, login): (NodeLimits, Option<Arc<Login>>),
        view: View,
        clock: Clock,
        seed: DispatcherSeed,
    ) -> std::io::Result<Rc<Self>> {
        let members = Members::nobody(config, cql);
        let nobody = vec![0; members.datacenters.len()];
        Ok(Rc::new(Self {
            calls: Calls::new(config, &nobody, clock, seed)?,
            nodes: RefCell::new(vec![Vec::new(); nobody.len()]),
            members: RefCell::new(Arc::new(members)),
            adopted: Notify::new(),
            config: config.clone(),
            cql: cql.clone(),
            limits: Rc::new(limits),
            login,
            view,
            stayed: Cell::default(),
            turn: Cell::default(),
            fronts: RefCell::default(),
            ids: Ids::new(),
        }))
    }

    /// Takes over who is there, for as long as the worker runs.
    pub async fn follow(self: Rc<Self>, mut members: watch::Receiver<Arc<Members>>) {
        loop {
            let newest = Arc::clone(&members.borrow_and_update());
            self.adopt(newest);
            if members.changed().await.is_err() {
                return;
            }
        }
    }

    /// Takes over what nodes without an agent were found to be doing, for as long as the worker
    /// runs.
    pub async fn receive_reports(self: Rc<Self>) {
        let mut reports = self.view.reports();
        while reports.changed().await.is_ok() {
            let newest = Arc::clone(&reports.borrow_and_update());
            for node in self.nodes.borrow().iter().flatten() {
                if let Some(report) = newest.get(&node.address()) {
                    node.receive_report(FeedbackSource::Polled, *report);
                }
            }
        }
        std::future::pending::<()>().await; // nobody polls: that is no reason to end
    }

    /// What a node that does not report with its answers was last found to be doing.
    pub(crate) fn polled(&self, attempt: &OpenAttempt) -> Option<Feedback> {
        match self.node(attempt).feedback() {
            (FeedbackSource::Polled, report) => report,
            (FeedbackSource::None | FeedbackSource::Agent, _) => None,
        }
    }

    /// Dispatchers and the layout change in the same breath: a group of the new layout means
    /// nothing to a dispatcher that has the old plan.
    pub(crate) fn adopt(&self, members: Arc<Members>) {
        let mut nodes = self.nodes.borrow_mut();
        for (datacenter, nodes) in members.datacenters.iter().zip(nodes.iter_mut()) {
            for (slot, &address) in datacenter.slots.iter().enumerate() {
                if nodes.get(slot).is_some_and(|node| node.address() == address) {
                    continue;
                }
                let node = Node::new(address, Rc::clone(&self.limits));
                match nodes.get_mut(slot) {
                    Some(place) => *place = node, // the one before left long ago
                    None => nodes.push(node),
                }
            }
        }
        drop(nodes);
        for (place, datacenter) in members.datacenters.iter().enumerate() {
            self.calls.adopt(place, &datacenter.plan);
        }
        self.members.replace(members);
        self.adopted.notify_waiters();
    }

    /// Waits until the cluster is known, for a moment: a process that has just begun has asked its
    /// contact points, and a driver that is refused gives the proxy up.
    pub(crate) async fn known(&self) {
        let mut limit = pin!(self.calls.wait_until(self.calls.tick() + KNOWN_WITHIN));
        while !self.cluster().is_known() {
            tokio::select! {
                () = self.adopted.notified() => {}
                () = &mut limit => return,
            }
        }
    }

    /// What is known of the cluster.
    pub(crate) fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.members.borrow().cluster)
    }

    /// What happens in the cluster, from now on.
    pub(crate) fn events(&self) -> broadcast::Receiver<Notice> {
        self.view.events()
    }

    /// Which sites may coordinate a request.
    pub(crate) fn constraints(&self, asked: &Asked) -> Constraints {
        let is_write = asked.is_write;
        let Some(split) = self.calls.split() else { return Constraints::of_write(is_write, false) };
        let members = self.members.borrow();
        let traveller = ring::Asked {
            consistency: asked.consistency,
            serial: asked.serial,
            is_conditional: asked.is_conditional,
            is_write,
            writes_stay: split.setup().writes_stay,
        };
        let (mut allowed, mut others, mut reason) = (SiteSet::EMPTY, SiteSet::EMPTY, None);
        for (site, place) in split.others() {
            others.insert(site);
            let keyspace = asked.keyspace.as_deref().unwrap_or_default();
            let away = members.datacenters[place].layout.presence(keyspace, asked.token);
            match ring::travel(&traveller, away) {
                Ok(()) => allowed.insert(site),
                Err(why) => reason = reason.or(Some(why)),
            }
        }
        if let (true, Some(why)) = (allowed.is_empty(), reason) {
            let mut stayed = self.stayed.get();
            stayed[why.index()] += 1;
            self.stayed.set(stayed);
        }
        let failover = match allowed.is_empty() && ring::may_fail_over(&traveller) {
            true => others,
            false => allowed,
        };
        Constraints { is_bound: allowed.is_empty(), allowed, failover }
    }

    /// The replicas of a data centre that have what a request is about.
    pub(crate) fn group(&self, datacenter: usize, asked: &Asked) -> GroupId {
        let members = self.members.borrow();
        let keyspace = asked.keyspace.as_deref().unwrap_or_default();
        members.datacenters[datacenter].layout.group(keyspace, asked.token)
    }

    /// The node that an attempt goes to.
    pub(crate) fn node(&self, attempt: &OpenAttempt) -> Rc<Node> {
        let nodes = self.nodes.borrow();
        Rc::clone(&nodes[attempt.datacenter()][attempt.replica().index()])
    }

    /// The node in a place of records.
    pub(crate) fn address_at(&self, place: Place) -> Option<ServerAddress> {
        let nodes = self.nodes.borrow();
        let node = nodes.get(usize::from(place.datacenter))?.get(usize::from(place.slot))?;
        Some(node.address().into())
    }

    /// Makes the ids of traces that begin here.
    pub(crate) const fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Takes what was counted since the last time, and how the nodes at home stand.
    pub fn observe(&self) -> WorkerReport {
        self.calls.tick();
        let nodes = self.nodes.borrow();
        let home = nodes[HOME].iter().enumerate();
        let states = home.map(|(slot, node)| self.calls.replica(HOME, slot, node.connections()));
        let mut report = self.calls.observe(states.collect());
        report.window.replicas.truncate(nodes[HOME].len());
        report
    }

    /// How the cluster stands with this worker.
    pub fn cluster_state(&self) -> ClusterState {
        let nodes = self.nodes.borrow();
        let node = |node: &Rc<Node>| NodeState {
            orphans: node.orphans(),
            source: node.feedback().0,
            counts: node.counts(),
        };
        let mut state = ClusterState { stayed: self.stayed.get(), ..ClusterState::default() };
        self.fronts.borrow().iter().for_each(|counts| counts.add_to(&mut state));
        state.nodes = nodes[HOME].iter().map(node).collect();
        state
    }

    /// What one more listener counts.
    pub fn new_front(&self) -> Rc<FrontCounts> {
        let counts = Rc::<FrontCounts>::default();
        self.fronts.borrow_mut().push(Rc::clone(&counts));
        counts
    }

    /// What a client is told when no node at home is up.
    pub(crate) fn nobody(&self) -> Refusal {
        let members = self.members.borrow();
        let home = &members.datacenters[HOME];
        Refusal::overloaded(match (members.cluster.is_known(), home.slots.len()) {
            (false, _) => format!(
                "nothing is known of the cluster of {:?} yet: none of its contact points has \
                 answered ({})",
                self.config.name,
                self.view.watching()
            ),
            (true, 0) => format!("the cluster has no node in {:?}", home.name),
            (true, slots) => format!("none of the {slots} nodes in {:?} is up", home.name),
        })
    }

    /// All nodes that are up and that requests may go to, those at home first, with how many these
    /// are.
    fn reached(&self) -> (Vec<Rc<Node>>, usize) {
        let members = self.members.borrow();
        let nodes = self.nodes.borrow();
        let mut reached = Vec::new();
        let mut at_home = 0;
        for (place, datacenter) in members.datacenters.iter().enumerate() {
            let up = nodes[place].iter().zip(&datacenter.plan.health);
            let up = up.filter(|(_, health)| **health == Health::Up);
            reached.extend(up.map(|(node, _)| Rc::clone(node)));
            if place == HOME {
                at_home = reached.len();
            }
        }
        (reached, at_home)
    }

    /// Nodes that are up: those at home, the next in turn first, then those of other sites.
    fn ready(&self) -> Vec<Rc<Node>> {
        let (mut ready, at_home) = self.reached();
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        if at_home > 0 {
            ready[..at_home].rotate_left(turn % at_home);
        }
        ready
    }
}
