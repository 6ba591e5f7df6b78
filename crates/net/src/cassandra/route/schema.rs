//! Whether the nodes agree on the schema, asked of themselves.

use std::rc::Rc;

use bytes::BytesMut;
use evenkeel_cql::request::{Query, QueryParameters};
use evenkeel_cql::response::Result as Told;
use evenkeel_cql::{Consistency, Flags, Opcode, Version};

use super::Route;
use crate::cassandra::node::{Answer, Ask, Dialect, Node, Prepared};

const QUESTION: &str = "SELECT schema_version FROM system.local WHERE key = 'local'";

/// The schema versions of the nodes at home that are up, without repetition.
pub(super) async fn versions(route: &Rc<Route>) -> Vec<[u8; 16]> {
    let dialect = Dialect { version: Version::V4, keyspace: None, login: route.login.clone() };
    let limit = route.config.timeouts.attempt;
    let asked: Vec<_> = route
        .ready()
        .into_iter()
        .map(|node| {
            let dialect = dialect.clone();
            tokio::task::spawn_local(async move {
                tokio::time::timeout(limit, version(&node, &dialect)).await.ok().flatten()
            })
        })
        .collect();
    let mut versions = Vec::new();
    for node in asked {
        if let Ok(Some(version)) = node.await
            && !versions.contains(&version)
        {
            versions.push(version);
        }
    }
    versions
}

async fn version(node: &Rc<Node>, dialect: &Dialect) -> Option<[u8; 16]> {
    let query = Query { text: QUESTION, parameters: QueryParameters::new(Consistency::One) };
    let mut body = BytesMut::new();
    query.write(dialect.version, &mut body);
    let body = body.freeze();
    let ask = Ask { opcode: Opcode::Query, flags: Flags::NONE, body, prepared: Prepared::None };
    version_in(&node.ask(dialect, ask).await.ok()?)
}

fn version_in(answer: &Answer) -> Option<[u8; 16]> {
    if answer.opcode != Opcode::Result {
        return None;
    }
    let Told::Rows(rows) = Told::read(&answer.body, Version::V4).ok()? else { return None };
    let row = rows.iter().next()?;
    row.at(0)?.try_into().ok()
}
