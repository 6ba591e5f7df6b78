//! Who is in a cluster, as the dispatchers see it: a slot for every node, groups of replicas for
//! every key.
//!
//! Made on the control thread from what the cluster tells; workers adopt it whole. Slots are those
//! of [`Membership`]: a node that has left is draining, one that returns at the same address has
//! its old slot, and one that is new may have the slot of one that left long ago.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::ring::{self, Layout, LayoutInputs, Ring};
use evenkeel_core::{Health, Instant};
use evenkeel_runtime::dial::last;
use evenkeel_settings::address::ServerAddress;
use tokio::sync::watch;

use super::cluster::{Cluster, Member, View};
use crate::config::CqlConfig;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::membership::Membership;

/// Everyone that an upstream's requests may go to.
#[derive(Debug)]
pub struct Members {
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
    /// By slot, where the node is reached.
    pub(crate) slots: Vec<SocketAddr>,
    /// Which group of slots has a key.
    pub(crate) layout: Layout,
    /// Who may be used, and the groups.
    pub(crate) plan: RoutePlan,
}

/// Gives slots to nodes.
#[derive(Debug)]
pub(crate) struct SlotAssigner {
    /// The first nodes to be asked, and home where it is named.
    contact_points: Vec<ServerAddress>,
    home: Option<String>,
    remote: Vec<String>,
    /// By data centre.
    slots: Vec<Membership>,
    layouts: Vec<Layout>,
    version: u64,
}

/// Keeps the members of an upstream's cluster up to date. Runs for ever.
pub(crate) async fn keep(
    mut assigner: SlotAssigner,
    view: View,
    publish: impl Fn(&Arc<Members>),
    members: watch::Sender<Arc<Members>>,
) {
    let began = std::time::Instant::now();
    let mut changes = view.changes();
    loop {
        let cluster = Arc::clone(&changes.borrow_and_update());
        if cluster.is_known() {
            let now = Instant::ZERO + began.elapsed();
            let placed = Arc::new(assigner.assign(now, cluster));
            publish(&placed);
            members.send_replace(placed);
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl Members {
    /// Nobody yet, in so many data centres.
    pub(crate) fn nobody(config: &UpstreamConfig, cql: &CqlConfig) -> Self {
        let mut assigner = SlotAssigner::new(config, cql);
        assigner.version = 0;
        assigner.assign(Instant::ZERO, Arc::default())
    }

    /// Those of a cluster that is known from the beginning.
    #[cfg(test)]
    pub(crate) fn of((config, cql): &(UpstreamConfig, CqlConfig), cluster: Arc<Cluster>) -> Self {
        SlotAssigner::new(config, cql).assign(Instant::ZERO, cluster)
    }
}

impl SlotAssigner {
    pub(crate) fn new(config: &UpstreamConfig, cql: &CqlConfig) -> Self {
        let remote = cql.remote.iter().map(|remote| remote.datacenter.clone());
        let remote: Vec<String> = remote.collect();
        Self {
            contact_points: config.replicas.clone(),
            home: cql.datacenter.clone(),
            slots: vec![Membership::default(); remote.len() + 1],
            remote,
            layouts: Vec::new(),
            version: 1,
        }
    }

    /// Assigns everyone a slot: the next version of all plans.
    fn assign(&mut self, now: Instant, cluster: Arc<Cluster>) -> Members {
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
            let numbers = self.numbers(now, place, &name, &cluster);
            let inputs = LayoutInputs {
                ring: &ring,
                keyspaces: &cluster.keyspaces,
                slots: &numbers,
                groups_max: ring::layout::GROUPS_MAX,
            };
            let layout = match self.layouts.get(place) {
                Some(earlier) => earlier.next(&inputs),
                None => Layout::new(&inputs),
            };
            let health = numbers.iter().map(|number| health(&cluster, *number)).collect();
            let generations = self.slots[place].generations().collect();
            let plan = RoutePlan { generations, ..layout.plan(self.version, health) };
            match first {
                true => self.layouts.push(layout.clone()),
                false => self.layouts[place] = layout.clone(),
            }
            let slots = self.slots[place].addresses().filter_map(ServerAddress::inet).collect();
            datacenters.push(Datacenter { name, slots, layout, plan });
        }
        self.version += 1;
        Members { cluster, datacenters }
    }

    /// By slot of a data centre, the node's number in the cluster; new nodes get a slot.
    fn numbers(
        &mut self,
        now: Instant,
        place: usize,
        name: &str,
        cluster: &Cluster,
    ) -> Vec<Option<usize>> {
        let here = cluster.nodes.iter().enumerate().filter(|(_, node)| node.datacenter == name);
        let here: BTreeMap<ServerAddress, usize> =
            here.map(|(number, node)| (node.address.into(), number)).collect();
        let slots = &mut self.slots[place];
        slots.follow(now, here.keys().copied());
        slots.addresses().map(|address| here.get(&address).copied()).collect()
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
fn home_of(cluster: &Cluster, contact_points: &[ServerAddress]) -> Option<String> {
    let at = |address: SocketAddr| {
        cluster.nodes.iter().find(|node| node.address == address || node.reported == address)
    };
    let mut addresses = contact_points.iter().copied().flat_map(last);
    let contact = addresses.find_map(at).or(cluster.nodes.first());
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

#[cfg(test)]
mod tests {
    use evenkeel_core::request::ring::{Replication, Token};

    use super::*;
    use crate::testing::configured;

    const NOW: Instant = Instant::from_millis(5);

    fn assigner() -> SlotAssigner {
        let (config, cql) = configured("replicas = ['127.0.0.2:9042']");
        SlotAssigner::new(&config, &cql)
    }

    fn member(host: u8, datacenter: &str, is_up: bool) -> Member {
        let address = SocketAddr::from(([127, 0, 0, host], 9042));
        Member {
            address,
            reported: address,
            host_id: [host; 16],
            datacenter: datacenter.to_owned(),
            rack: format!("r{host}"),
            release_version: "5.0.9".to_owned(),
            tokens: vec![Token(i64::from(host) << 56)],
            is_up,
        }
    }

    fn cluster(nodes: &[Member]) -> Arc<Cluster> {
        let replication = Replication::NetworkTopology([("east".to_owned(), 1)].into());
        let keyspaces = [("shop".to_owned(), replication)].into();
        Arc::new(Cluster { nodes: nodes.to_vec(), keyspaces, ..Cluster::default() })
    }

    #[test]
    fn home_is_where_the_contact_point_is_and_others_have_no_slot() {
        let mut assigner = assigner();
        let nodes = [member(1, "west", true), member(2, "east", true), member(3, "east", false)];
        let members = assigner.assign(NOW, cluster(&nodes));
        let [home] = members.datacenters.as_slice() else { panic!("{members:?}") };
        assert_eq!(home.name, "east");
        assert_eq!(home.slots, [nodes[1].address, nodes[2].address]);
        assert_eq!(home.plan.health, [Health::Up, Health::Down]);
    }

    #[test]
    fn a_node_that_left_drains_and_has_its_slot_when_it_returns() {
        let mut assigner = assigner();
        let nodes = [member(2, "east", true), member(3, "east", true), member(4, "east", true)];
        let first = assigner.assign(NOW, cluster(&nodes));
        let second = assigner.assign(NOW, cluster(&nodes[1..]));
        let home = &second.datacenters[0];
        assert_eq!(home.plan.health, [Health::Draining, Health::Up, Health::Up]);
        assert!(home.plan.version > first.datacenters[0].plan.version);
        let alone = |members: &Members, token| {
            let home = &members.datacenters[0];
            let group = home.layout.group("shop", Some(Token(token)));
            home.plan.groups[group.index()].iter().map(|slot| home.slots[slot.index()]).collect()
        };
        let before: Vec<SocketAddr> = alone(&first, 2 << 56);
        let after: Vec<SocketAddr> = alone(&second, 2 << 56);
        assert_eq!((before, after), (vec![nodes[0].address], vec![nodes[1].address]));
        let third = assigner.assign(NOW, cluster(&nodes));
        assert_eq!(third.datacenters[0].slots, home.slots);
        assert_eq!(third.datacenters[0].plan.health, [Health::Up; 3]);
    }

    #[test]
    fn a_node_that_left_long_ago_leaves_its_slot_to_a_new_one() {
        let mut assigner = assigner();
        let nodes = [member(2, "east", true), member(3, "east", true), member(4, "east", true)];
        assigner.assign(NOW, cluster(&nodes[..2]));
        assigner.assign(NOW, cluster(&nodes[..1]));
        let later = NOW + evenkeel_proxy::membership::REUSED_AFTER;
        let members = assigner.assign(later, cluster(&[nodes[0].clone(), nodes[2].clone()]));
        let home = &members.datacenters[0];
        assert_eq!(home.slots, [nodes[0].address, nodes[2].address]);
        assert_eq!(home.plan.generations, [0, 1]);
        assert_eq!(home.plan.health, [Health::Up; 2]);
    }
}
