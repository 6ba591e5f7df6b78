//! Cassandra's native protocol: clients on one side, nodes on the other.
//!
//! What stands on the wire and the connections to nodes are in `evenkeel-cql`; here is the proxy
//! between them.
//!
//! | room | does |
//! |---|---|
//! | [`config`] | `[upstream.NAME.cql]` |
//! | `front/`, `session/` | clients: connections, logins, what each message means |
//! | `prepared`, `system/`, `events` | what a client of several nodes needs and one proxy must know: statements, the tables that tell of the cluster, its events |
//! | `protocol` | what a request and its answer mean to the loop around core's dispatcher ([`calls`](evenkeel_proxy::calls)) |
//! | `route`, `backend` | the cluster as one worker sees it: calls, nodes, where a request may go |
//! | `members` | slots and groups for the dispatchers, from what the cluster tells |
//! | [`cluster`], `system_table` | who is there, watched on the control thread; the tables that say so |
//! | [`agent`], `poll` | how nodes tell what they are doing |
//! | `share` | what the threads of a process share of one cluster |
//! | [`cluster_state`], [`metrics`] | what workers counted of a cluster, for the admin address and Prometheus |

pub mod config;

pub mod agent;
mod backend;
pub mod cluster;
mod cluster_handle;
pub mod cluster_state;
mod events;
mod front;
mod members;
pub mod metrics;
mod poll;
mod prepared;
mod protocol;
mod route;
mod session;
mod span;
mod system;
mod system_table;
#[cfg(test)]
mod testing;

pub use backend::serve;
pub use cluster_handle::{ClusterHandle, Watcher, open};
pub use front::{FrontCounts, FrontSettings, IDLE};
pub use route::Route;
