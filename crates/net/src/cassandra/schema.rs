//! Whether all nodes have one version of the schema, as one of them knows it.
//!
//! A node that has heard of a table and not made it yet drops what is written to it, and
//! *acknowledges* that (Cassandra 5.0: "Attempting to mutate non-existant table" in its log). So
//! whoever makes a table and then writes to it first waits until all nodes have it.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_cql::request::{Query, QueryParameters};
use evenkeel_cql::response::{Error, Result as Told};
use evenkeel_cql::rows::Row;
use evenkeel_cql::{Consistency, Envelope, Flags, Opcode, payload};
use tokio::time::{Instant, sleep, timeout};

use super::node::{Answer, Ask, Dialect, Node, Prepared};

/// How long nodes may take to agree; the usual default of drivers.
const AGREEMENT_MAX: Duration = Duration::from_secs(10);
/// Between two looks at whether they do.
const EVERY: Duration = Duration::from_millis(50);
/// How long the node that is asked may take for one answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until all nodes have one version of the schema. To be asked of the node that made the
/// change: it is the first to know the new version.
///
/// # Errors
/// In words, when they have several after ten seconds, as when one is down, or when this node
/// does not tell.
pub(crate) async fn agree(node: &Rc<Node>, dialect: &Dialect) -> Result<(), String> {
    agree_within(node, dialect, AGREEMENT_MAX).await
}

async fn agree_within(node: &Rc<Node>, dialect: &Dialect, wait: Duration) -> Result<(), String> {
    let until = Instant::now() + wait;
    loop {
        let mut versions = BTreeSet::new();
        for table in ["local", "peers"] {
            let text = format!("SELECT schema_version FROM system.{table}");
            // A node that has told no version is not known to have the table.
            let version = |row: Row<'_>| row.at(0).map(Bytes::copy_from_slice);
            versions.extend(ask(node, dialect, &text, version).await?);
        }
        if versions.len() <= 1 {
            return Ok(());
        }
        if Instant::now() > until {
            let untold = if versions.contains(&None) {
                "; a row of system.peers tells none, perhaps left over from a node that is gone"
            } else {
                ""
            };
            return Err(format!(
                "nodes have {} versions of the schema after {wait:?}, expected one (is a node \
                 down? `nodetool describecluster` says which{untold})",
                versions.len()
            ));
        }
        sleep(EVERY).await;
    }
}

/// What is read from each row of a table that only this node is asked for.
///
/// # Errors
/// In words, when it does not answer, or not with rows.
pub(super) async fn ask<T>(
    node: &Rc<Node>,
    dialect: &Dialect,
    text: &str,
    read: impl FnMut(Row<'_>) -> T,
) -> Result<Vec<T>, String> {
    let mut body = BytesMut::new();
    let parameters = QueryParameters::new(Consistency::One);
    Query { text, parameters }.write(dialect.version, &mut body);
    let body = body.freeze();
    let ask = Ask { opcode: Opcode::Query, flags: Flags::NONE, body, prepared: Prepared::None };
    let answer = timeout(PATIENCE, node.ask(dialect, ask)).await;
    let answer = answer.map_err(|_| format!("{text}: no answer within {PATIENCE:?}"))?;
    let Answer { opcode, flags, body, .. } = answer.map_err(|error| error.to_string())?;
    let envelope = Envelope { flags, ..Envelope::new(dialect.version, 0, opcode, body) };
    let message = payload::message(&envelope).map_err(|error| format!("{text}: {error}"))?;
    let wrong = match opcode {
        Opcode::Result => match Told::read(&message, dialect.version) {
            Ok(Told::Rows(rows)) => return Ok(rows.iter().map(read).collect()),
            Ok(_) => "a RESULT without rows came".to_owned(),
            Err(malformed) => format!("the RESULT cannot be read: {malformed}"),
        },
        Opcode::Error => match Error::read(&message, dialect.version) {
            Ok(error) => format!("the node answered: {error}"),
            Err(malformed) => format!("the ERROR cannot be read: {malformed}"),
        },
        other => format!("{other} came, expected RESULT or ERROR"),
    };
    Err(format!("{text}: {wrong}"))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use evenkeel_cql::rows::Writer;
    use evenkeel_cql::types::Type;
    use evenkeel_cql::{ErrorCode, Version};

    use super::*;
    use crate::cassandra::node::tests::fake::{Peer, dialect, fake, limits, node};
    use crate::cassandra::node::tests::run;

    /// A node whose peer has another version for some looks, and none for the same number before.
    async fn serve(mut peer: Peer, late: Rc<Cell<usize>>) {
        while let Some(request) = peer.work().await {
            let text = Query::read(&request.body, Version::V4).unwrap().text;
            let mut rows = Writer::new("system", "versions", &[("schema_version", Type::Uuid)]);
            if text == "SELECT schema_version FROM system.local" {
                rows.value(Some(&[1; 16])).end_row();
            } else if text == "SELECT schema_version FROM system.peers" {
                let left = late.get();
                late.set(left.saturating_sub(1));
                let version = [if left == 0 { 1 } else { 2 }; 16];
                rows.value((left < 3).then_some(&version)).end_row();
            } else {
                peer.error(&request, ErrorCode::Invalid, &[]).await;
                continue;
            }
            peer.answer(&request, Opcode::Result, &rows.finish()).await;
        }
    }

    #[test]
    fn one_waits_until_all_have_one_version_and_for_no_longer_than_that() {
        run(async {
            let late = Rc::new(Cell::new(5));
            let script = Rc::clone(&late);
            let (address, _) = fake(move |peer| serve(peer, Rc::clone(&script))).await;
            let (node, dialect) = (node(address, limits()), dialect(Version::V4));
            agree(&node, &dialect).await.unwrap();
            assert_eq!(late.get(), 0, "looked until then");
            late.set(usize::MAX);
            let wait = Duration::from_millis(120);
            let began = Instant::now();
            let refused = agree_within(&node, &dialect, wait).await.unwrap_err();
            assert!(began.elapsed() >= wait);
            assert!(refused.starts_with("nodes have 2 versions of the schema after 120ms"));
            let strange = ask(&node, &dialect, "SELECT 1", |_| ()).await.unwrap_err();
            assert!(strange.starts_with("SELECT 1: the node answered: "), "{strange}");
        });
    }
}
