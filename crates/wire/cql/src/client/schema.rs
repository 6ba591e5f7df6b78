//! Whether all nodes have one version of the schema, as one of them knows it.
//!
//! A node that has heard of a table and not made it yet drops what is written to it, and
//! *acknowledges* that (Cassandra 5.0: "Attempting to mutate non-existant table" in its log). So
//! whoever makes a table and then writes to it first waits until all nodes have it.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use crate::request::{Query, QueryParameters};
use crate::response::Result as QueryResult;
use crate::rows::Row;
use crate::{Flags, Opcode, Version};
use bytes::{Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use tokio::time::{Instant, sleep, timeout};

use crate::client::{Answer, AnswerError, Ask, Dialect, Node, Prepared, SendError};

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
/// When they have several after ten seconds, as when one is down, or when this node does not tell.
pub async fn agree(node: &Rc<Node>, dialect: &Dialect) -> Result<(), SchemaError> {
    agree_within(node, dialect, AGREEMENT_MAX).await
}

async fn agree_within(
    node: &Rc<Node>,
    dialect: &Dialect,
    wait: Duration,
) -> Result<(), SchemaError> {
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
            let (count, has_untold) = (versions.len(), versions.contains(&None));
            return Err(SchemaError::Disagreement { count, wait, has_untold });
        }
        sleep(EVERY).await;
    }
}

/// What is read from each row of a table that only this node is asked for.
///
/// # Errors
/// When it does not answer, or not with rows.
pub async fn ask<T>(
    node: &Rc<Node>,
    dialect: &Dialect,
    text: &str,
    read: impl FnMut(Row<'_>) -> T,
) -> Result<Vec<T>, SchemaError> {
    let mut body = BytesMut::new();
    let parameters = QueryParameters::new(Consistency::One);
    Query { text, parameters }.write(dialect.version, &mut body);
    let body = body.freeze();
    let ask = Ask { opcode: Opcode::Query, flags: Flags::NONE, body, prepared: Prepared::None };
    let asked = timeout(PATIENCE, node.ask(dialect, ask)).await;
    let asked = asked.map_err(|_| SchemaError::TimedOut { statement: text.to_owned() })?;
    let answered = rows_of(&asked?, dialect.version, read);
    answered.map_err(|error| SchemaError::Answer { statement: text.to_owned(), error })
}

fn rows_of<T>(
    answer: &Answer,
    version: Version,
    read: impl FnMut(Row<'_>) -> T,
) -> Result<Vec<T>, AnswerError> {
    match QueryResult::read(&answer.result(version)?, version)? {
        QueryResult::Rows(rows) => Ok(rows.iter().map(read).collect()),
        _ => Err(AnswerError::OtherResult { expected: "rows" }),
    }
}

/// Why the schema's version is not known, or is not one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Nodes still have several versions.
    #[error(
        "nodes have {count} versions of the schema after {wait:?}, expected one (is a node down? \
         `nodetool describecluster` says which{})",
        untold(*.has_untold)
    )]
    Disagreement {
        /// How many.
        count: usize,
        /// For how long they were asked.
        wait: Duration,
        /// Whether the table of peers has a row without a version.
        has_untold: bool,
    },
    /// The node did not answer in time.
    #[error("{statement}: no answer within {PATIENCE:?}")]
    TimedOut {
        /// What it was asked.
        statement: String,
    },
    /// The node could not be asked.
    #[error("{0}")]
    Send(#[from] SendError),
    /// The node answered without rows.
    #[error("{statement}: {error}")]
    Answer {
        /// What it was asked.
        statement: String,
        /// What it answered.
        #[source]
        error: AnswerError,
    },
}

const fn untold(has_untold: bool) -> &'static str {
    if has_untold {
        "; a row of system.peers tells none, perhaps left over from a node that is gone"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::ErrorCode;
    use crate::rows::Writer;
    use crate::types::Type;

    use super::*;
    use crate::client::testing::fake::{Peer, dialect, fake, limits, node};
    use crate::client::testing::run;

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
            let refused = agree_within(&node, &dialect, wait).await.unwrap_err().to_string();
            assert!(began.elapsed() >= wait);
            assert!(refused.starts_with("nodes have 2 versions of the schema after 120ms"));
            let strange = ask(&node, &dialect, "SELECT 1", |_| ()).await.unwrap_err().to_string();
            assert!(strange.starts_with("SELECT 1: the node answered: "), "{strange}");
        });
    }
}
