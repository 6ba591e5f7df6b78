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

use bytes::BytesMut;
use evenkeel_cql::request::{Query, QueryParameters};
use evenkeel_cql::response::Result as Told;
use evenkeel_cql::{Consistency, Flags, Opcode, Version, value};

use super::Route;
use crate::cassandra::node::{Answer, Ask, Dialect, Node, Prepared};

const LOCAL: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";
const PEERS: &str = "SELECT schema_version, host_id FROM system.peers_v2";
/// Before 4.0 there is no other.
const PEERS_BEFORE: &str = "SELECT schema_version, host_id FROM system.peers";

/// A schema's version, and the node that is said to have it where another one says so.
type Versions = Vec<([u8; 16], Option<[u8; 16]>)>;

/// The schema versions of all nodes that are up, without repetition.
pub(super) async fn versions(route: &Rc<Route>) -> Vec<[u8; 16]> {
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
        let answers = ask_all(route, &nodes[..at_home], ask_peers).await;
        let told = answers.into_iter().flatten();
        let told = told.filter(|(_, of)| of.is_some_and(|of| silent.contains(&of)));
        found.extend(told.map(|(version, _)| version));
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
    let query = Query { text, parameters: QueryParameters::new(Consistency::One) };
    let mut body = BytesMut::new();
    query.write(dialect.version, &mut body);
    let body = body.freeze();
    let ask = Ask { opcode: Opcode::Query, flags: Flags::NONE, body, prepared: Prepared::None };
    versions_in(&node.ask(dialect, ask).await.ok()?)
}

fn versions_in(answer: &Answer) -> Option<Versions> {
    if answer.opcode != Opcode::Result {
        return None;
    }
    let Told::Rows(rows) = Told::read(&answer.body, Version::V4).ok()? else { return None };
    let uuid = |cell: Option<&[u8]>| cell.and_then(value::uuid);
    // A node that is only just coming has told no version yet.
    let versions = rows.iter().filter_map(|row| Some((uuid(row.at(0))?, uuid(row.at(1)))));
    Some(versions.collect())
}
