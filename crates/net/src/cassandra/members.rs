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

    /// Those of a cluster that is known from the beginning.
    #[cfg(test)]
    pub(crate) fn of(config: &UpstreamConfig, cluster: Arc<Cluster>) -> Self {
        Seating::new(config).seat(cluster)
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
            version: 1,
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

#[cfg(test)]
mod tests {
    use evenkeel_core::request::ring::{Replication, Token};
    use evenkeel_settings::Node;

    use super::*;
    use crate::config::Config;

    const CONFIG: &str = "[[listen]]\naddress = '127.0.0.1:9042'\nupstream = 'store'\n\
        [upstream.store]\nprotocol = 'cql'\nreplicas = ['127.0.0.2:9042']\n";

    fn seating() -> Seating {
        let config = Node::parse(CONFIG, "run.toml").and_then(|node| Config::read(&node));
        Seating::new(&config.unwrap().upstreams[0])
    }

    fn member(host: u8, datacenter: &str, is_up: bool) -> Member {
        let address = SocketAddr::from(([127, 0, 0, host], 9042));
        Member {
            address,
            told: address,
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
    fn home_is_where_the_contact_point_is_and_others_have_no_seat() {
        let mut seating = seating();
        let nodes = [member(1, "west", true), member(2, "east", true), member(3, "east", false)];
        let members = seating.seat(cluster(&nodes));
        let [home] = members.datacenters.as_slice() else { panic!("{members:?}") };
        assert_eq!(home.name, "east");
        assert_eq!(home.seats, [nodes[1].address, nodes[2].address]);
        assert_eq!(home.plan.health, [Health::Up, Health::Down]);
    }

    #[test]
    fn a_node_that_left_drains_and_has_its_seat_when_it_returns() {
        let mut seating = seating();
        let nodes = [member(2, "east", true), member(3, "east", true), member(4, "east", true)];
        let first = seating.seat(cluster(&nodes));
        let second = seating.seat(cluster(&nodes[1..]));
        let home = &second.datacenters[0];
        assert_eq!(home.plan.health, [Health::Draining, Health::Up, Health::Up]);
        assert!(home.plan.version > first.datacenters[0].plan.version);
        let alone = |members: &Members, token| {
            let home = &members.datacenters[0];
            let group = home.layout.group("shop", Some(Token(token)));
            home.plan.groups[group.index()].iter().map(|seat| home.seats[seat.index()]).collect()
        };
        let before: Vec<SocketAddr> = alone(&first, 2 << 56);
        let after: Vec<SocketAddr> = alone(&second, 2 << 56);
        assert_eq!((before, after), (vec![nodes[0].address], vec![nodes[1].address]));
        let third = seating.seat(cluster(&nodes));
        assert_eq!(third.datacenters[0].seats, home.seats);
        assert_eq!(third.datacenters[0].plan.health, [Health::Up; 3]);
    }
}
