//! A Cassandra cluster at one moment, for the registry of metrics and `/api/v1/status`.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_core::request::ring::Stays;
use evenkeel_settings::address::ServerAddress;
use serde::Serialize;

use super::cluster_state::{ClusterState, NodeState};
use evenkeel_runtime::metrics::{Metric, Scrape, counter, counter_by, gauge, gauge_by};

const OF_CLUSTERS: [Metric<ClusterState>; 9] = [
    gauge("evenkeel_cql_clients", "Connected clients.", |it| it.clients.into()),
    counter("evenkeel_cql_clients_accepted_total", "Accepted clients.", |it| it.accepted.into()),
    counter("evenkeel_cql_messages_total", "Messages of clients, of all kinds.", |it| {
        it.requests.into()
    }),
    counter(
        "evenkeel_cql_answered_locally_total",
        "Queries of the system tables that were answered here: clients see proxies, not nodes.",
        |it| it.answered_here.into(),
    ),
    counter(
        "evenkeel_cql_unprepared_total",
        "Executions of unknown statements; drivers prepare them again.",
        |it| it.unprepared.into(),
    ),
    counter("evenkeel_cql_protocol_errors_total", "Clients closed for a protocol error.", |it| {
        it.protocol_errors.into()
    }),
    counter(
        "evenkeel_cql_timeouts_total",
        "Clients closed for a timeout: handshake, write or idle.",
        |it| it.timeouts.into(),
    ),
    counter("evenkeel_cql_events_total", "Events sent to clients.", |it| it.events.into()),
    counter_by(
        "evenkeel_cql_kept_local_total",
        "Requests that no other site may serve, by the reason.",
        "reason",
        |it| {
            let reasons = Stays::ALL.iter().zip(it.stayed);
            reasons.map(|(why, count)| (why.name(), count.into())).collect()
        },
    ),
];

const OF_NODES: [Metric<NodeState>; 7] = [
    gauge(
        "evenkeel_cql_orphans",
        "Requests that timed out and that the node has not answered yet.",
        |it| it.orphans.into(),
    ),
    counter("evenkeel_cql_connections_opened_total", "Connections that were opened.", |it| {
        it.counts.opened.into()
    }),
    counter("evenkeel_cql_connections_failed_total", "Failed attempts to connect.", |it| {
        it.counts.failed.into()
    }),
    counter(
        "evenkeel_cql_connections_retired_total",
        "Connections replaced for too many orphans.",
        |it| it.counts.retired.into(),
    ),
    counter(
        "evenkeel_cql_prepared_again_total",
        "Statements prepared again because the node had forgotten them.",
        |it| it.counts.prepared_again.into(),
    ),
    counter("evenkeel_cql_reports_total", "Reports of agents in answers.", |it| {
        it.counts.reports.into()
    }),
    gauge_by(
        "evenkeel_cql_feedback",
        "Source of a node's reports: agent, polled tables, or none; always 1.",
        "source",
        |it| vec![(it.source.name(), 1_u64.into())],
    ),
];

/// A cluster at one moment.
#[derive(Debug)]
pub struct ClusterView {
    /// The upstream it is behind.
    pub upstream: String,
    /// How it stands with all workers.
    pub state: ClusterState,
    /// The nodes at home, by slot.
    pub home: Arc<[ServerAddress]>,
}

/// Adds all clusters.
pub fn collect(scrape: &mut Scrape, clusters: &[ClusterView]) {
    let of = clusters.iter().map(|it| (vec![("upstream", &*it.upstream)], &it.state));
    scrape.table(&OF_CLUSTERS, of);
    for cluster in clusters {
        for (address, node) in cluster.home.iter().zip(&cluster.state.nodes) {
            let address = address.to_string();
            let labels = vec![("upstream", &*cluster.upstream), ("replica", &*address)];
            scrape.table(&OF_NODES, [(labels, node)]);
        }
    }
}

/// What `/api/v1/status` says of a cluster.
#[derive(Serialize)]
pub struct ClusterStatus {
    /// Clients that are connected.
    clients: usize,
    /// Messages of clients since the process began.
    messages: u64,
    answered_here: u64,
    unprepared: u64,
    protocol_errors: u64,
    /// Requests that no other site might serve, by the reason.
    stayed: BTreeMap<&'static str, u64>,
    /// By slot, as in `replicas`.
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

impl ClusterStatus {
    /// Of a cluster that stands so.
    #[must_use]
    pub fn of(state: &ClusterState) -> Self {
        let node = |node: &NodeState| Node {
            feedback: node.source.name(),
            orphans: node.orphans,
            prepared_again: node.counts.prepared_again,
        };
        let stayed = Stays::ALL.iter().zip(state.stayed).filter(|(_, count)| *count > 0);
        Self {
            clients: state.clients,
            messages: state.requests,
            answered_here: state.answered_here,
            unprepared: state.unprepared,
            protocol_errors: state.protocol_errors,
            stayed: stayed.map(|(why, count)| (why.name(), count)).collect(),
            nodes: state.nodes.iter().map(node).collect(),
        }
    }
}
