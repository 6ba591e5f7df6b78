//! A cluster's tables, read into what is known of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use evenkeel_core::request::ring::{Replication, Token};
use evenkeel_cql::{Envelope, Opcode, value};

use super::{Cluster, ClusterSettings, Member};
use crate::system_table::{Named, SystemTable, SystemTableError, SystemTableErrorKind as Kind};
use evenkeel_cql::client::{SendError, Single};

const LOCAL: &str = "SELECT * FROM system.local WHERE key='local'";
const PEERS: &str = "SELECT * FROM system.peers_v2";
/// Before 4.0 there is no other.
const PEERS_BEFORE: &str = "SELECT * FROM system.peers";
const KEYSPACES: &str = "SELECT keyspace_name, replication FROM system_schema.keyspaces";

/// Reads everything there is to know from one node.
pub(super) async fn read(
    link: &mut Single,
    reached: SocketAddr,
    settings: &ClusterSettings,
) -> Result<Cluster, SendError> {
    let answer = link.query(LOCAL).await?;
    let local = read_local(&answer, reached);
    let (mut cluster, local) = local.map_err(|error| link.nonsense(error.to_string()))?;
    let port = local.reported.port();
    cluster.nodes.push(local);
    let mut answer = link.query(PEERS).await?;
    if answer.opcode == Opcode::Error {
        answer = link.query(PEERS_BEFORE).await?;
    }
    let peers = read_peers(&answer, port);
    cluster.nodes.extend(peers.map_err(|error| link.nonsense(error.to_string()))?);
    for member in &mut cluster.nodes {
        if let Some(address) = settings.reached_at.get(&member.reported) {
            member.address = *address;
        }
    }
    cluster.nodes.sort_by_key(|member| member.host_id);
    cluster.nodes.dedup_by_key(|member| member.host_id);
    let answer = link.query(KEYSPACES).await?;
    let keyspaces = read_keyspaces(&answer);
    cluster.keyspaces = keyspaces.map_err(|error| link.nonsense(error.to_string()))?;
    Ok(cluster)
}

/// The cluster without its other nodes, and the node that was asked.
fn read_local(
    answer: &Envelope,
    reached: SocketAddr,
) -> Result<(Cluster, Member), SystemTableError> {
    let table = SystemTable::of(LOCAL, answer)?;
    let row = table.rows().next().ok_or_else(|| table.error(None, Kind::NoRow))?;
    let port = row.port("rpc_port").unwrap_or(reached.port());
    let reported = row.address(&["rpc_address"], port).unwrap_or(reached);
    let member = row.member(reported)?;
    let cluster = Cluster {
        name: row.text("cluster_name")?.to_owned(),
        partitioner: row.text("partitioner")?.to_owned(),
        release_version: member.release_version.clone(),
        cql_version: row.text("cql_version").unwrap_or("3.4.0").to_owned(),
        schema_version: row.get("schema_version").and_then(value::uuid),
        nodes: Vec::new(),
        keyspaces: BTreeMap::new(),
    };
    Ok((cluster, member))
}

/// The other nodes; those about which a node knows only half (they are coming or going) are left
/// out, as all drivers do.
fn read_peers(answer: &Envelope, port: u16) -> Result<Vec<Member>, SystemTableError> {
    let table = SystemTable::of(PEERS, answer)?;
    let members = table.rows().filter_map(|row| {
        let port = row.port("native_port").unwrap_or(port);
        let reported = row.address(&["native_address", "rpc_address"], port)?;
        row.member(reported).ok()
    });
    Ok(members.collect())
}

/// Keyspaces with their replication; one that cannot be read is left out and said so.
fn read_keyspaces(answer: &Envelope) -> Result<BTreeMap<String, Replication>, SystemTableError> {
    let mut keyspaces = BTreeMap::new();
    for row in SystemTable::of(KEYSPACES, answer)?.rows() {
        let name = row.text("keyspace_name")?;
        let options = row.get("replication").and_then(value::text_map);
        let options = options.ok_or_else(|| row.error("replication", Kind::Not("map of texts")))?;
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        match Replication::parse(&options.into_iter().map(owned).collect()) {
            Ok(replication) => {
                keyspaces.insert(name.to_owned(), replication);
            }
            Err(error) => {
                tracing::debug!(keyspace = name, %error, "a keyspace's replication");
            }
        }
    }
    Ok(keyspaces)
}

impl Named<'_> {
    fn port(&self, column: &str) -> Option<u16> {
        u16::try_from(self.get(column).and_then(value::int)?).ok().filter(|&port| port != 0)
    }

    /// The first address that says where clients go; a node that listens everywhere is reached
    /// where its peers reach it.
    fn address(&self, columns: &[&str], port: u16) -> Option<SocketAddr> {
        let of = |column: &str| self.get(column).and_then(value::inet);
        let listens: Option<IpAddr> = columns.iter().copied().find_map(of);
        let address = match listens {
            Some(address) if address.is_unspecified() => {
                ["broadcast_address", "peer", "listen_address"].into_iter().find_map(of)?
            }
            other => other?,
        };
        Some(SocketAddr::new(address, port))
    }

    fn member(&self, reported: SocketAddr) -> Result<Member, SystemTableError> {
        let host_id = self.get("host_id").and_then(value::uuid);
        let wrong = |kind| self.error("tokens", kind);
        let tokens = self.get("tokens").and_then(value::texts);
        let tokens = tokens.ok_or_else(|| wrong(Kind::Not("set of texts")))?;
        let parse = |token: &str| token.parse().map_err(|_| wrong(Kind::Token(token.to_owned())));
        let mut tokens = tokens.into_iter().map(parse).collect::<Result<Vec<Token>, _>>()?;
        tokens.sort_unstable();
        if tokens.is_empty() {
            return Err(wrong(Kind::Empty));
        }
        Ok(Member {
            address: reported,
            reported,
            host_id: host_id.ok_or_else(|| self.error("host_id", Kind::Missing))?,
            datacenter: self.text("data_center")?.to_owned(),
            rack: self.text("rack")?.to_owned(),
            release_version: self.text("release_version").unwrap_or("unknown").to_owned(),
            tokens,
            is_up: true,
        })
    }
}
