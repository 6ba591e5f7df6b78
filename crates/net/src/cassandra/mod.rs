//! Cassandra's native protocol: clients on one side, nodes on the other.
//!
//! | room | does |
//! |---|---|
//! | `front/`, `session/` | clients: connections, logins, what each message means |
//! | `prepared`, `system/`, `events` | what a client of several nodes needs and one proxy must know: statements, the tables that tell of the cluster, its events |
//! | `exchange` | the life of one request: the loop around core's dispatcher |
//! | `route` | the cluster as one worker sees it: calls, nodes, where a request may go |
//! | `members` | seats and groups for the dispatchers, from what the cluster tells |
//! | [`node`] | connections to one node, shared by requests |
//! | [`cluster`] | who is there, watched on the control thread |
//! | `agent`, `feedback`, `poll` | how nodes tell what they are doing |
//! | `schema` | whether all nodes have one version of it |
//! | `share` | what the threads of a process share of one cluster |
//! | `tls` | which versions of it are spoken |

pub mod agent;
pub mod cluster;
mod events;
mod exchange;
pub mod feedback;
mod front;
mod members;
pub mod node;
mod poll;
mod prepared;
mod route;
pub(crate) mod schema;
mod session;
mod share;
mod system;
mod tls;

pub(crate) use front::serve;
pub(crate) use route::Route;
pub(crate) use share::{Keeper, Share, front_tls, node_tls, open_all};
#[cfg(test)]
pub(crate) use tls::tests::Certificate;
