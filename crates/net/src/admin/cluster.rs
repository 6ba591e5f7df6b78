//! A Cassandra cluster at one moment, for `/metrics` and `/api/v1/status`.

use evenkeel_core::request::ring::Stays;
use serde::Serialize;
use std::collections::BTreeMap;

use super::view::View;
use crate::board::{ClusterState, NodeState};
use crate::exposition::{Exposition, Number, counter, gauge};

const OF_CLUSTERS: [Number<ClusterState>; 8] = [
    gauge("evenkeel_cql_clients", "Clients that are connected.", |cluster| {
        Some(cluster.clients as f64)
    }),
    counter("evenkeel_cql_clients_total", "Clients that were taken.", |cluster| {
        Some(cluster.accepted as f64)
    }),
    counter("evenkeel_cql_messages_total", "Messages of clients, of all kinds.", |cluster| {
        Some(cluster.requests as f64)
    }),
    counter(
        "evenkeel_cql_answered_here_total",
        "Questions about the cluster that were answered here: clients see proxies, not nodes.",
        |cluster| Some(cluster.answered_here as f64),
    ),
    counter(
        "evenkeel_cql_unprepared_total",
        "Executions of statements that nobody here knew: drivers prepare them again.",
        |cluster| Some(cluster.unprepared as f64),
    ),
    counter(
        "evenkeel_cql_protocol_errors_total",
        "Clients that were told a protocol error and closed.",
        |cluster| Some(cluster.protocol_errors as f64),
    ),
    counter(
        "evenkeel_cql_timeouts_total",
        "Clients closed because they took too long to begin, to read, or to say anything.",
        |cluster| Some(cluster.timeouts as f64),
    ),
    counter("evenkeel_cql_events_total", "Changes that clients were told of.", |cluster| {
        Some(cluster.events as f64)
    }),
];

const OF_NODES: [Number<NodeState>; 6] = [
    gauge(
        "evenkeel_cql_orphans",
        "Requests that were given up and that the node has not answered yet.",
        |node| Some(node.orphans as f64),
    ),
    counter("evenkeel_cql_connections_opened_total", "Connections that were opened.", |node| {
        Some(node.counts.opened as f64)
    }),
    counter(
        "evenkeel_cql_connections_failed_total",
        "Connections that could not be opened.",
        |node| Some(node.counts.failed as f64),
    ),
    counter(
        "evenkeel_cql_connections_retired_total",
        "Connections that were replaced because too many of their requests had been given up.",
        |node| Some(node.counts.retired as f64),
    ),
    counter(
        "evenkeel_cql_prepared_again_total",
        "Statements that the node did not know any more and was told again.",
        |node| Some(node.counts.prepared_again as f64),
    ),
    counter("evenkeel_cql_reports_total", "Reports that agents gave with answers.", |node| {
        Some(node.counts.reports as f64)
    }),
];

/// Writes the families of all clusters; none when there is no cluster.
pub(super) fn metrics(text: &mut Exposition<'_>, views: &[View<'_>]) {
    let clusters: Vec<(&str, &View<'_>, ClusterState)> = views
        .iter()
        .filter(|view| view.config.cql.is_some())
        .map(|view| (view.config.name.as_str(), view, view.standing.cluster()))
        .collect();
    if clusters.is_empty() {
        return;
    }
    let things: Vec<_> =
        clusters.iter().map(|(name, _, state)| ([("upstream", *name)], state)).collect();
    text.table(&OF_CLUSTERS, &things);
    let addresses: Vec<Vec<String>> = clusters
        .iter()
        .map(|(_, view, _)| view.home.iter().map(ToString::to_string).collect())
        .collect();
    let mut nodes = Vec::new();
    for ((name, _, state), addresses) in clusters.iter().zip(&addresses) {
        for (address, node) in addresses.iter().zip(&state.nodes) {
            nodes.push(([("upstream", *name), ("replica", address.as_str())], node));
        }
    }
    text.table(&OF_NODES, &nodes);
    sources(text, &nodes);
    let help = "Requests that no other site might serve, by the reason.";
    text.family("evenkeel_cql_stayed_total", "counter", help);
    for (name, _, state) in &clusters {
        for (why, count) in Stays::ALL.iter().zip(state.stayed) {
            let labels = [("upstream", *name), ("reason", why.name())];
            text.sample("evenkeel_cql_stayed_total", &labels, count as f64);
        }
    }
}

type NodeSample<'a> = ([(&'a str, &'a str); 2], &'a NodeState);

fn sources(text: &mut Exposition<'_>, nodes: &[NodeSample<'_>]) {
    let help = "Where a node's reports come from: an agent, its polled tables, nowhere; always 1.";
    text.family("evenkeel_cql_feedback", "gauge", help);
    for ([upstream, replica], node) in nodes {
        let labels = [*upstream, *replica, ("source", node.source.name())];
        text.sample("evenkeel_cql_feedback", &labels, 1.0);
    }
}

/// What `/api/v1/status` says of a cluster.
#[derive(Serialize)]
pub(super) struct Cluster {
    /// Clients that are connected.
    clients: usize,
    /// Messages of clients since the process began.
    messages: u64,
    answered_here: u64,
    unprepared: u64,
    protocol_errors: u64,
    /// Requests that no other site might serve, by the reason.
    stayed: BTreeMap<&'static str, u64>,
    /// By seat, as in `replicas`.
    nodes: Vec<Node>,
}

#[derive(Serialize)]
struct Node {
    /// Where its reports come from.
    feedback: &'static str,
    /// Requests that were given up and that it has not answered yet.
    orphans: usize,
    prepared_again: u64,
}

impl Cluster {
    /// `None` where HTTP is spoken.
    pub(super) fn of(view: &View<'_>) -> Option<Self> {
        view.config.cql.as_ref()?;
        let state = view.standing.cluster();
        let node = |node: &NodeState| Node {
            feedback: node.source.name(),
            orphans: node.orphans,
            prepared_again: node.counts.prepared_again,
        };
        let stayed = Stays::ALL.iter().zip(state.stayed).filter(|(_, count)| *count > 0);
        Some(Self {
            clients: state.clients,
            messages: state.requests,
            answered_here: state.answered_here,
            unprepared: state.unprepared,
            protocol_errors: state.protocol_errors,
            stayed: stayed.map(|(why, count)| (why.name(), count)).collect(),
            nodes: state.nodes.iter().map(node).collect(),
        })
    }
}
