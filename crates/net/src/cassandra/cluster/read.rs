//! A cluster's tables, read into what is known of it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use evenkeel_core::request::ring::{Replication, Token};
use evenkeel_cql::response::{Result as Answered, Rows};
use evenkeel_cql::rows::Row;
use evenkeel_cql::{Envelope, Opcode, Reader, Version, payload, value};

use super::{Cluster, ClusterSettings, Member};
use crate::cassandra::node::{SendError, Single};

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
    let (mut cluster, local) =
        read_local(&answer, reached).map_err(|why| link.nonsense(format!("{LOCAL}: {why}")))?;
    let port = local.told.port();
    cluster.nodes.push(local);
    let mut answer = link.query(PEERS).await?;
    if answer.opcode == Opcode::Error {
        answer = link.query(PEERS_BEFORE).await?;
    }
    let peers =
        read_peers(&answer, port).map_err(|why| link.nonsense(format!("{PEERS}: {why}")))?;
    cluster.nodes.extend(peers);
    for member in &mut cluster.nodes {
        if let Some(address) = settings.reached_at.get(&member.told) {
            member.address = *address;
        }
    }
    cluster.nodes.sort_by_key(|member| member.host_id);
    cluster.nodes.dedup_by_key(|member| member.host_id);
    let answer = link.query(KEYSPACES).await?;
    cluster.keyspaces =
        read_keyspaces(&answer).map_err(|why| link.nonsense(format!("{KEYSPACES}: {why}")))?;
    Ok(cluster)
}

/// The cluster without its other nodes, and the node that was asked.
pub(super) fn read_local(
    answer: &Envelope,
    reached: SocketAddr,
) -> Result<(Cluster, Member), String> {
    with_rows(answer, |rows| {
        let row = rows.iter().next().ok_or("no row came, expected one")?;
        let row = Named { rows: &rows, row };
        let port = row.port("rpc_port").unwrap_or(reached.port());
        let told = row.address(&["rpc_address"], port).unwrap_or(reached);
        let member = row.member(told)?;
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
    })
}

/// The other nodes; those about which a node knows only half (they are coming or going) are left
/// out, as all drivers do.
pub(super) fn read_peers(answer: &Envelope, port: u16) -> Result<Vec<Member>, String> {
    with_rows(answer, |rows| {
        let members = rows.iter().filter_map(|row| {
            let row = Named { rows: &rows, row };
            let port = row.port("native_port").unwrap_or(port);
            let told = row.address(&["native_address", "rpc_address"], port)?;
            row.member(told).ok()
        });
        Ok(members.collect())
    })
}

/// Keyspaces with their replication; one that cannot be read is left out and said so.
pub(super) fn read_keyspaces(answer: &Envelope) -> Result<BTreeMap<String, Replication>, String> {
    with_rows(answer, |rows| {
        let mut keyspaces = BTreeMap::new();
        for row in rows.iter() {
            let row = Named { rows: &rows, row };
            let name = row.text("keyspace_name")?;
            let options = row.get("replication").and_then(value::text_map);
            let options = options.ok_or("replication is not a map of texts")?;
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
    })
}

fn with_rows<T>(
    answer: &Envelope,
    read: impl FnOnce(Rows<'_>) -> Result<T, String>,
) -> Result<T, String> {
    let message = payload::split(answer).map_err(|error| error.to_string())?.message;
    if answer.opcode == Opcode::Error {
        let mut reader = Reader::new(message);
        let _code = reader.int("code");
        return Err(format!("the node refused: {}", reader.string("message").unwrap_or("?")));
    }
    if answer.opcode != Opcode::Result {
        return Err(format!("{} came, expected RESULT", answer.opcode));
    }
    match Answered::read(message, Version::V4).map_err(|error| error.to_string())? {
        Answered::Rows(rows) => read(rows),
        _ => Err("a RESULT without rows came".to_owned()),
    }
}

/// A row whose values have names.
struct Named<'a> {
    rows: &'a Rows<'a>,
    row: Row<'a>,
}

impl<'a> Named<'a> {
    fn get(&self, column: &str) -> Option<&'a [u8]> {
        self.row.at(self.rows.position(column)?)
    }

    fn text(&self, column: &str) -> Result<&'a str, String> {
        let text = self.get(column).and_then(value::text);
        text.ok_or_else(|| format!("{column} is missing or no text"))
    }

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

    fn member(&self, told: SocketAddr) -> Result<Member, String> {
        let host_id = self.get("host_id").and_then(value::uuid);
        let tokens = self.get("tokens").and_then(value::texts);
        let tokens = tokens.ok_or("tokens are missing or no set of texts")?;
        let mut tokens: Vec<Token> = tokens
            .into_iter()
            .map(|token| token.parse().map_err(|_| format!("{token:?} is no token of Murmur3")))
            .collect::<Result<_, _>>()?;
        tokens.sort_unstable();
        if tokens.is_empty() {
            return Err("it has no tokens".to_owned());
        }
        Ok(Member {
            address: told,
            told,
            host_id: host_id.ok_or("host_id is missing")?,
            datacenter: self.text("data_center")?.to_owned(),
            rack: self.text("rack")?.to_owned(),
            release_version: self.text("release_version").unwrap_or("unknown").to_owned(),
            tokens,
            is_up: true,
        })
    }
}
