//! The tables by which drivers learn the cluster, answered here: they see proxies, no nodes.
//!
//! `system.local` is the proxy that the client is connected to, `system.peers` and
//! `system.peers_v2` are the others. What is true of the cluster itself (name, releases,
//! partitioner, the schema's version) is the nodes'. Everything else of `system` and its like goes
//! to a node: the schema is the same at all.
//!
//! *When it misleads.* Statements in forms that [`statement`](evenkeel_cql::statement) does not
//! read go to a node if they ask `system.local` (`SELECT now() FROM system.local` is a common
//! question for a sign of life), and are refused if they ask for peers, which clients must not
//! see.

mod cells;
mod proxies;
mod select;

pub(crate) use cells::View;
pub(crate) use proxies::{Proxies, Proxy};
pub(crate) use select::{ResultColumn, answer, awaits_agreement, result_columns};
