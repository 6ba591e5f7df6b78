//! What tests of several rooms share.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_core::request::ring::Token;
use evenkeel_cql::client::testing::fake::limits;
use evenkeel_settings::Node;

use crate::cluster::{Cluster, Member, channel};
use crate::config::{CqlConfig, RemoteDatacenter};
use crate::members::Members;
use crate::route::Route;
use evenkeel_proxy::calls::DispatcherSeed;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_runtime::clock::Clock;

/// An upstream called `store` with these keys, and its cluster.
pub(crate) fn configured(text: &str) -> (UpstreamConfig, CqlConfig) {
    let node = Node::parse(text, "run.toml").unwrap();
    let read = node.read(|table| {
        let (common, _) = UpstreamConfig::read("store", table, true);
        (common, table.key("cql").section(CqlConfig::read))
    });
    read.unwrap()
}

/// A node of a cluster.
pub(crate) fn member(number: u8, address: SocketAddr, datacenter: &str) -> Member {
    Member {
        address,
        reported: address,
        host_id: [number; 16],
        datacenter: datacenter.to_owned(),
        rack: "r1".to_owned(),
        release_version: "5.0.9".to_owned(),
        tokens: vec![Token(i64::from(number))],
        is_up: true,
    }
}

/// A worker of `east` before these nodes, with more keys of the upstream. Those in `remote` are of
/// another site.
pub(crate) fn route_to(
    nodes: Vec<Member>,
    more: &str,
    remote: &[&str],
) -> (Rc<Route>, Arc<Cluster>) {
    let (route, cluster, members) = route_before(nodes, more, remote);
    route.adopt(members);
    (route, cluster)
}

/// The same that knows nothing of them yet, and what it will be told.
pub(crate) fn route_before(
    nodes: Vec<Member>,
    more: &str,
    remote: &[&str],
) -> (Rc<Route>, Arc<Cluster>, Arc<Members>) {
    let text = format!("replicas = ['{}']\n{more}\n[cql]\ndatacenter = 'east'\n", nodes[0].address);
    let mut config = configured(&text);
    let remote = remote.iter().map(|name| (*name).to_owned());
    let remote = remote.map(|name| RemoteDatacenter { site: name.clone(), datacenter: name });
    config.1.remote = remote.collect();
    let (_, view) = channel();
    let seed = DispatcherSeed { clients: 1, seed: 1, can_ask: false };
    let to_nodes = (limits(), None);
    let route = Route::new((&config.0, &config.1), to_nodes, view, Clock::start(), seed).unwrap();
    let cluster = Arc::new(Cluster { nodes, ..Cluster::default() });
    let members = Arc::new(Members::of(&config, Arc::clone(&cluster)));
    (route, cluster, members)
}
