//! One process: the whole configuration, the threads that run it, the admin address.
//!
//! | room | does |
//! |---|---|
//! | [`config`] | the whole file: reads each table with its own crate's reader, then checks them against each other |
//! | [`process`] | binds every address, starts the threads, ends them |
//! | `worker` | one thread: its listeners, its share of every upstream |
//! | `record` | what its dispatchers are given where days are recorded |
//! | `adapters` | what ties the mesh, Envoy and placement to upstreams, which none of them knows |
//! | `admin` | `/metrics`, `/readyz`, `/api/v1/…` |

mod adapters;
mod admin;
#[cfg(test)]
mod agent_tls_tests;
pub mod config;
pub mod process;
mod record;
mod worker;
