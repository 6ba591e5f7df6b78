//! Who is in a cluster, as the dispatchers see it: a seat for every node, groups of replicas for
//! every key.
//!
//! Made on the control thread from what the cluster tells; workers adopt it whole. Seats are never
//! given back: a node that has left is draining, one that returns at the same address has its old
//! seat.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_core::Health;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::ring::{self, Layout, LayoutInputs, Ring};
use tokio::sync::watch;

use super::cluster::{Cluster, Member, View};
use crate::config::UpstreamConfig;

/// Everyone that an upstream's requests may go to.
#[derive(Debug)]
pub(crate) struct Members {
    /// What is known of the cluster.
    pub(crate) cluster: Arc<Cluster>,
    /// Home, then those of the other sites, in the order of the configuration.
    pub(crate) datacenters: Vec<Datacenter>,
}

/// The nodes of one data centre.
#[derive(Debug)]
pub(crate) struct Datacenter {
    /// Its name in the cluster; empty while home is not known.
    pub(crate) name: String,
    /// By seat, where the node is reached.
    pub(crate) seats: Vec<SocketAddr>,
    /// Which group of seats has a key.
    pub(crate) layout: Layout,
    /// Who may be used, and the groups.
    pub(crate) plan: RoutePlan,
}

/// Gives seats to nodes.
#[derive(Debug)]
struct Seating {
    /// The first nodes to be asked, and home where it is named.
    contact_points: Vec<SocketAddr>,
    home: Option<String>,
    remote: Vec<String>,
    /// By data centre.
    seats: Vec<Vec<SocketAddr>>,
    layouts: Vec<Layout>,
    version: u64,
}

/// Keeps the members of an upstream's cluster up to date. Runs for ever.
pub(crate) async fn keep(
    config: UpstreamConfig,
    view: View,
    publish: impl Fn(&Arc<Members>),
    members: watch::Sender<Arc<Members>>,
) {
    let mut seating = Seating::new(&config);
    let mut changes = view.changes();
    loop {
        let cluster = Arc::clone(&changes.borrow_and_update());
        if cluster.is_known() {
            let seated = Arc::new(seating.seat(cluster));
            publish(&seated);
            members.send_replace(seated);
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl Members {
    /// Nobody yet, in so many data centres.
    pub(crate) fn nobody(config: &UpstreamConfig) -> Self {
        let mut seating = Seating::new(config);
        seating.version = 0;
        seating.seat(Arc::default())
    }
}

impl Seating {
    fn new(config: &UpstreamConfig) -> Self {
        let cql = config.cql.clone().unwrap_or_default();
        let remote: Vec<String> = cql.remote.into_iter().map(|remote| remote.datacenter).collect();
        Self {
            contact_points: config.replicas.clone(),
            home: cql.datacenter,
            seats: vec![Vec::new(); remote.len() + 1],
            remote,
            layouts: Vec::new(),
            version: 0,
        }
    }

    /// Seats everyone: the next version of all plans.
    fn seat(&mut self, cluster: Arc<Cluster>) -> Members {
        if self.home.is_none() && cluster.is_known() {
            self.home = home_of(&cluster, &self.contact_points);
            tracing::info!(datacenter = ?self.home, "cql: home, by the first contact point");
        }
        let nodes: Vec<ring::Node> = cluster.nodes.iter().map(node).collect();
        let ring = Ring::new(&nodes);
        let home = self.home.clone().unwrap_or_default();
        let names: Vec<String> = std::iter::once(home).chain(self.remote.clone()).collect();
        self.warn_of_strangers(&cluster, &names);
        let first = self.layouts.is_empty();
        let mut datacenters = Vec::with_capacity(names.len());
        for (place, name) in names.into_iter().enumerate() {
            let numbers = self.numbers(place, &name, &cluster);
            let inputs = LayoutInputs {
                ring: &ring,
                keyspaces: &cluster.keyspaces,
                seats: &numbers,
                groups_max: ring::layout::GROUPS_MAX,
            };
            let layout = match self.layouts.get(place) {
                Some(earlier) => earlier.next(&inputs),
                None => Layout::new(&inputs),
            };
            let health = numbers.iter().map(|number| health(&cluster, *number)).collect();
            let plan = layout.plan(self.version, health);
            match first {
                true => self.layouts.push(layout.clone()),
                false => self.layouts[place] = layout.clone(),
            }
            let seats = self.seats[place].clone();
            datacenters.push(Datacenter { name, seats, layout, plan });
        }
        self.version += 1;
        Members { cluster, datacenters }
    }

    /// By seat of a data centre, the node's number in the cluster; new nodes get a seat.
    fn numbers(&mut self, place: usize, name: &str, cluster: &Cluster) -> Vec<Option<usize>> {
        let here = cluster.nodes.iter().enumerate().filter(|(_, node)| node.datacenter == name);
        let here: BTreeMap<SocketAddr, usize> =
            here.map(|(number, node)| (node.address, number)).collect();
        let seats = &mut self.seats[place];
        let seated: BTreeSet<SocketAddr> = seats.iter().copied().collect();
        seats.extend(here.keys().filter(|address| !seated.contains(address)));
        seats.iter().map(|address| here.get(address).copied()).collect()
    }

    /// Says which configured data centres the cluster does not have.
    fn warn_of_strangers(&self, cluster: &Cluster, names: &[String]) {
        let known: BTreeSet<&str> =
            cluster.nodes.iter().map(|node| node.datacenter.as_str()).collect();
        for name in names.iter().filter(|name| cluster.is_known() && !known.contains(name.as_str()))
        {
            tracing::warn!(
                datacenter = %name, ?known,
                "cql: the cluster has no node in this data centre (a slip of the pen?)"
            );
        }
    }
}

/// The data centre of the first contact point that is a node, or of the first node.
fn home_of(cluster: &Cluster, contact_points: &[SocketAddr]) -> Option<String> {
    let at = |address: &SocketAddr| {
        cluster.nodes.iter().find(|node| node.address == *address || node.told == *address)
    };
    let contact = contact_points.iter().find_map(at).or(cluster.nodes.first());
    contact.map(|node| node.datacenter.clone())
}

fn node(member: &Member) -> ring::Node {
    ring::Node {
        datacenter: member.datacenter.clone(),
        rack: member.rack.clone(),
        tokens: member.tokens.clone(),
    }
}

fn health(cluster: &Cluster, number: Option<usize>) -> Health {
    match number.map(|number| cluster.nodes[number].is_up) {
        Some(true) => Health::Up,
        Some(false) => Health::Down,
        None => Health::Draining,
    }
}
