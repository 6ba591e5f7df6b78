//! Whether the nodes agree on the schema.
//!
//! All nodes count that are up, as they do for drivers. Those that requests may go to are asked
//! themselves. Of the others (in a data centre that is not this proxy's) the nodes at home tell
//! what they have heard, as they tell drivers: each of them must have heard of the same version.
//!
//! **When it misleads**: gossip is late by a second or two, so nodes elsewhere seem to have an old
//! version for as long; a node that the proxies cannot reach is taken to be down and not counted.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_cql::{Version, value};

use super::Route;
use evenkeel_cql::client::schema::ask;
use evenkeel_cql::client::{Dialect, Node};

const LOCAL: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";
const PEERS: &str = "SELECT schema_version, host_id FROM system.peers_v2";
/// Before 4.0 there is no other.
const PEERS_BEFORE: &str = "SELECT schema_version, host_id FROM system.peers";

/// A schema's version, and the node that is said to have it where another one says so.
type Versions = Vec<([u8; 16], Option<[u8; 16]>)>;

/// The schema versions of all nodes that are up, without repetition.
pub(crate) async fn versions(route: &Rc<Route>) -> Vec<[u8; 16]> {
    let (nodes, at_home) = route.reached();
    let answers = ask_all(route, &nodes, ask_local).await;
    let mut found: BTreeSet<[u8; 16]> = BTreeSet::new();
    let mut said = BTreeSet::new();
    for (node, versions) in nodes.iter().zip(&answers) {
        if let Some(&(version, _)) = versions.first() {
            found.insert(version);
            said.insert(node.address());
        }
    }
    let cluster = route.members.borrow().cluster.clone();
    let silent = cluster.nodes.iter().filter(|node| node.is_up && !said.contains(&node.address));
    let silent: BTreeSet<[u8; 16]> = silent.map(|node| node.host_id).collect();
    // When these are not one already, nobody else makes them so.
    if found.len() == 1 && !silent.is_empty() {
        let at_home = nodes[..at_home].iter().filter(|node| said.contains(&node.address()));
        let at_home: Vec<_> = at_home.cloned().collect();
        let answers = ask_all(route, &at_home, ask_peers).await;
        let reported = answers.into_iter().flatten();
        let reported = reported.filter(|(_, of)| of.is_some_and(|of| silent.contains(&of)));
        found.extend(reported.map(|(version, _)| version));
    }
    found.into_iter().collect()
}

/// Asks these nodes at once; one that does not answer has told nothing.
async fn ask_all<F: Future<Output = Versions> + 'static>(
    route: &Route,
    nodes: &[Rc<Node>],
    ask: impl Fn(Rc<Node>, Dialect) -> F,
) -> Vec<Versions> {
    let dialect = Dialect { version: Version::V4, keyspace: None, login: route.login.clone() };
    let limit: Duration = route.config.timeouts.attempt;
    let asked: Vec<_> = nodes
        .iter()
        .map(|node| tokio::time::timeout(limit, ask(Rc::clone(node), dialect.clone())))
        .map(tokio::task::spawn_local)
        .collect();
    let mut answers = Vec::with_capacity(asked.len());
    for answer in asked {
        answers.push(answer.await.ok().and_then(Result::ok).unwrap_or_default());
    }
    answers
}

async fn ask_local(node: Rc<Node>, dialect: Dialect) -> Versions {
    query(&node, &dialect, LOCAL).await.unwrap_or_default()
}

async fn ask_peers(node: Rc<Node>, dialect: Dialect) -> Versions {
    match query(&node, &dialect, PEERS).await {
        Some(versions) => versions,
        None => query(&node, &dialect, PEERS_BEFORE).await.unwrap_or_default(),
    }
}

async fn query(node: &Rc<Node>, dialect: &Dialect, text: &str) -> Option<Versions> {
    let uuid = |cell: Option<&[u8]>| cell.and_then(value::uuid);
    let reported = ask(node, dialect, text, |row| (uuid(row.at(0)), uuid(row.at(1)))).await.ok()?;
    // A node that is only just coming has told no version yet.
    Some(reported.into_iter().filter_map(|(version, of)| Some((version?, of))).collect())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;

    use evenkeel_cql::request::Query;
    use evenkeel_cql::rows::Writer;
    use evenkeel_cql::types::Type;
    use evenkeel_cql::{ErrorCode, Opcode};

    use super::*;
    use crate::cluster::Cluster;
    use crate::members::Members;
    use crate::testing::{member, route_to};
    use evenkeel_cql::client::testing::fake::{Peer, fake};
    use evenkeel_cql::client::testing::run;

    /// What a node says of itself, and what it has heard of others by their numbers.
    #[derive(Clone, Default)]
    struct Says {
        own: Option<u8>,
        heard: Vec<(u8, Option<u8>)>,
        has_peers_v2: bool,
    }

    type Script = Rc<RefCell<Says>>;

    async fn serve(mut peer: Peer, script: Script) {
        while let Some(request) = peer.work().await {
            let says = script.borrow().clone();
            let text = Query::read(&request.body, Version::V4).unwrap().text;
            let mut rows = Writer::new(
                "system",
                "versions",
                &[("schema_version", Type::Uuid), ("host_id", Type::Uuid)],
            );
            let id = |number: u8| [number; 16];
            if text.contains("system.local") {
                let Some(own) = says.own else { continue };
                rows.value(Some(&id(own))).value(None).end_row();
            } else if text.ends_with("peers_v2") && !says.has_peers_v2 {
                peer.error(&request, ErrorCode::Invalid, &[]).await;
                continue;
            } else {
                for (host, version) in says.heard {
                    let version = version.map(id);
                    let version = version.as_ref().map(<[u8; 16]>::as_slice);
                    rows.value(version).value(Some(&id(host))).end_row();
                }
            }
            peer.answer(&request, Opcode::Result, &rows.finish()).await;
        }
    }

    /// Two nodes at home, and one elsewhere that nothing listens for.
    async fn route() -> (Rc<Route>, Arc<Cluster>, [Script; 2]) {
        let scripts = [Script::default(), Script::default()];
        let mut nodes = Vec::new();
        for (number, script) in (1..).zip(&scripts) {
            let script = Rc::clone(script);
            let (address, _) = fake(move |peer| serve(peer, Rc::clone(&script))).await;
            nodes.push(member(number, address, "east"));
        }
        nodes.push(member(3, "127.0.0.1:1".parse().unwrap(), "west"));
        let (route, cluster) = route_to(nodes, "[timeouts]\nattempt = '200ms'", &[]);
        (route, cluster, scripts)
    }

    #[test]
    fn nodes_elsewhere_count_by_what_those_at_home_have_heard() {
        run(async {
            let (route, cluster, [first, second]) = route().await;
            let set = |script: &Script, own, west, has_peers_v2| {
                let heard = vec![(1, Some(1)), (2, Some(1)), (3, west), (9, Some(7))];
                *script.borrow_mut() = Says { own, heard, has_peers_v2 };
            };
            let one = [[1; 16]];
            for is_new in [true, false] {
                set(&first, Some(1), Some(1), is_new);
                set(&second, Some(1), Some(1), is_new);
                assert_eq!(versions(&route).await, one, "9 is not known");
                set(&second, Some(1), Some(2), is_new);
                assert_eq!(versions(&route).await, [[1; 16], [2; 16]]);
                set(&second, Some(1), None, is_new);
                assert_eq!(versions(&route).await, one, "it is only just coming");
            }
            // Home alone is enough for a no.
            set(&second, Some(4), Some(1), true);
            assert_eq!(versions(&route).await, [[1; 16], [4; 16]]);
            // One that is silent counts by what the other has heard.
            set(&second, None, Some(2), true);
            assert_eq!(versions(&route).await, one);
            first.borrow_mut().heard[1].1 = Some(5);
            assert_eq!(versions(&route).await, [[1; 16], [5; 16]]);
            // Who is down does not count.
            set(&first, Some(1), Some(6), true);
            set(&second, Some(1), Some(6), true);
            let mut nodes = cluster.nodes.clone();
            nodes[2].is_up = false;
            let cluster = Arc::new(Cluster { nodes, ..Cluster::default() });
            route.members.replace(Arc::new(Members::of(
                &(route.config.clone(), route.cql.clone()),
                cluster,
            )));
            assert_eq!(versions(&route).await, one);
        });
    }
}
