//! The HTTP proxy, and the agent beside an application.
//!
//! Messages are moved by `evenkeel-http`; here is what they mean to the loop around core's
//! dispatcher ([`calls`](evenkeel_proxy::calls)).
//!
//! | room | does |
//! |---|---|
//! | [`config`] | `[listen]` and `[agent]`, as far as they are of HTTP |
//! | [`proxy`], `protocol`, `access` | from a client's request to its answer; what an answer teaches; the access log |
//! | [`route`], [`health`] | an upstream as one worker sees it: its replicas, and their checks |
//! | [`brownout`], [`orca`], [`redirected`], [`inflow`], `hops`, `context`, `recorded` | headers: optional content, load reports, requests of other data centres, what a plan brings, loops, ids and traces, numbers of a record |
//! | [`datagram`], `prober` | probes over UDP: what is said, and how a proxy asks |
//! | [`replica`] | the agent: admission to an application, its dimmer |
//! | `switch` | brownout as an operator sets it on the admin address |
//! | [`agent_state`], `agent_view`, `agent_status`, `agent_series`, `agent_metrics`, [`agent_surface`] | how agents stand, for people and Prometheus |

mod access;
mod agent_metrics;
mod agent_series;
pub mod agent_state;
mod agent_status;
pub mod agent_surface;
mod agent_view;
pub mod config;
mod context;
pub mod health;
mod hops;
pub mod replica;
mod switch;

pub mod brownout;
pub mod datagram;
pub mod inflow;
mod mirror;
pub mod orca;
mod prober;
mod protocol;
pub mod proxy;
mod recorded;
pub mod redirected;
pub mod route;
pub mod routes;
