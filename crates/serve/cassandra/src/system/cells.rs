//! What the tables hold: a row for each proxy, in the columns that Cassandra has.

use evenkeel_cql::statement::SystemTable;
use evenkeel_cql::types::Type;
use evenkeel_cql::value;

use super::proxies::{Proxies, Proxy, host_id, token};
use crate::cluster::Cluster;

/// The columns of `system.local`, in the order of `*`, and since which major release they are
/// there. Source: SystemKeyspace of Cassandra 3.11, 4.1 and 5.0.
const LOCAL: [(&str, u32); 20] = [
    ("key", 0),
    ("bootstrapped", 0),
    ("broadcast_address", 0),
    ("broadcast_port", 4),
    ("cluster_name", 0),
    ("cql_version", 0),
    ("data_center", 0),
    ("gossip_generation", 0),
    ("host_id", 0),
    ("listen_address", 0),
    ("listen_port", 4),
    ("native_protocol_version", 0),
    ("partitioner", 0),
    ("rack", 0),
    ("release_version", 0),
    ("rpc_address", 0),
    ("rpc_port", 4),
    ("schema_version", 0),
    ("tokens", 0),
    ("truncated_at", 0),
];

/// The columns of `system.peers`.
const PEERS: [(&str, u32); 9] = [
    ("peer", 0),
    ("data_center", 0),
    ("host_id", 0),
    ("preferred_ip", 0),
    ("rack", 0),
    ("release_version", 0),
    ("rpc_address", 0),
    ("schema_version", 0),
    ("tokens", 0),
];

/// The columns of `system.peers_v2`.
const PEERS_V2: [(&str, u32); 12] = [
    ("peer", 4),
    ("peer_port", 4),
    ("data_center", 4),
    ("host_id", 4),
    ("native_address", 4),
    ("native_port", 4),
    ("preferred_ip", 4),
    ("preferred_port", 4),
    ("rack", 4),
    ("release_version", 4),
    ("schema_version", 4),
    ("tokens", 4),
];

/// What drivers are told of the cluster, as seen by one client.
pub(crate) struct View<'a> {
    /// The real cluster.
    pub(crate) cluster: &'a Cluster,
    /// All proxies, `own` among them.
    pub(crate) proxies: &'a Proxies,
    /// The proxy that the client is connected to.
    pub(crate) own: &'a Proxy,
}

/// One row: a proxy.
#[derive(Clone, Copy)]
pub(super) struct Row<'a> {
    view: &'a View<'a>,
    proxy: &'a Proxy,
}

impl<'a> View<'a> {
    /// The major release of the cluster's nodes: 0 when it is not known.
    pub(super) fn release(&self) -> u32 {
        let major = self.cluster.release_version.split('.').next();
        major.and_then(|major| major.parse().ok()).unwrap_or(0)
    }

    /// The names of a table's columns, in the order of `*`. None: there is no such table.
    pub(crate) fn columns(&self, table: SystemTable) -> impl Iterator<Item = &'static str> {
        let columns: &'static [(&str, u32)] = match table {
            SystemTable::Local => &LOCAL,
            SystemTable::Peers => &PEERS,
            SystemTable::PeersV2 => &PEERS_V2,
        };
        let release = self.release();
        columns.iter().filter(move |&&(_, since)| since <= release).map(|&(name, _)| name)
    }

    /// The rows of a table.
    pub(super) fn rows(&'a self, table: SystemTable) -> Vec<Row<'a>> {
        let own = Row { view: self, proxy: self.own };
        if table == SystemTable::Local {
            return vec![own];
        }
        let mut rows: Vec<_> = self
            .proxies
            .iter()
            .filter(|proxy| proxy.address != self.own.address)
            .map(|proxy| Row { proxy, ..own })
            .collect();
        if table == SystemTable::Peers {
            // It has no ports: drivers take their own connection's, and an address is there once.
            let port = self.own.address.port();
            rows.retain(|row| row.proxy.address.port() == port);
            rows.retain(|row| row.proxy.address.ip() != self.own.address.ip());
        }
        rows
    }
}

impl Row<'_> {
    /// What the row has in a column; `None` for a null, and for columns that are not known here.
    pub(super) fn cell(&self, column: &str) -> Option<Vec<u8>> {
        let Proxy { datacenter, address, rack } = self.proxy;
        let cluster = self.view.cluster;
        let text = |text: &str| Some(text.as_bytes().to_vec());
        match column {
            "key" => text("local"),
            "bootstrapped" => text("COMPLETED"),
            "cluster_name" => text(&cluster.name),
            "cql_version" => text(&cluster.cql_version),
            "data_center" => text(datacenter),
            "native_protocol_version" => text("5"),
            "partitioner" => text(&cluster.partitioner),
            "rack" => text(rack),
            "release_version" => text(&cluster.release_version),
            "broadcast_address" | "listen_address" | "rpc_address" | "native_address" | "peer" => {
                Some(value::write_inet(address.ip()))
            }
            "broadcast_port" | "listen_port" | "rpc_port" | "native_port" | "peer_port" => {
                Some(i32::from(address.port()).to_be_bytes().to_vec())
            }
            "host_id" => Some(host_id(*address).to_vec()),
            "schema_version" => cluster.schema_version.map(Vec::from),
            "tokens" => {
                let place = self.view.proxies.place(self.proxy);
                Some(value::write_texts(&[token(place, &cluster.partitioner)]))
            }
            _ => None, // gossip_generation, truncated_at, preferred_…
        }
    }
}

/// The type of a column.
pub(super) fn type_of(column: &str) -> Type {
    match column {
        "broadcast_address" | "listen_address" | "rpc_address" | "native_address" | "peer"
        | "preferred_ip" => Type::Inet,
        "broadcast_port" | "listen_port" | "rpc_port" | "native_port" | "peer_port"
        | "preferred_port" | "gossip_generation" => Type::Int,
        "host_id" | "schema_version" => Type::Uuid,
        "tokens" => Type::set(Type::Text),
        "truncated_at" => Type::map(Type::Uuid, Type::Blob),
        _ => Type::Text,
    }
}
