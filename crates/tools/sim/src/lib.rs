//! A virtual world around Evenkeel's decisions: same scenario, same seed, same run, to the byte.
//!
//! | room | does |
//! |---|---|
//! | [`scenario`] | what people write: everything a run depends on, apart from policy and seed |
//! | [`world`], [`events`] | the loop: clients, replicas and sites, event by event |
//! | [`server`], [`workload`] | what replicas do with requests, how these arrive |
//! | [`script`] | what was recorded and happens again, in place of what is drawn |
//! | [`fault`], [`weather`] | what goes wrong, and when: the same for every policy, and on sockets |
//! | [`guard`], [`peers`], [`oracle`] | what decisions are compared with: published rivals, and choices that know everything |
//! | [`redirect`] | load between data centres: what every site measures, exchanges and plans |
//! | [`report`], [`sampler`] | what people read: latencies, windows, loads |
//! | [`trace`], [`capacity`] | rates of many sites over time, and what serving them costs |
//! | [`placement`] | days of a fleet of databases whose leaders move |
//! | [`duplicates`] | partitions of stores whose accesses go to every duplicate |

pub mod capacity;
pub mod duplicates;
mod ends;
pub mod events;
pub mod fault;
pub mod guard;
mod millis;
pub mod oracle;
pub mod peers;
pub mod placement;
pub mod redirect;
pub mod report;
pub mod sampler;
pub mod scenario;
pub mod script;
pub mod server;
pub mod trace;
pub mod weather;
pub mod workload;
pub mod world;

pub use report::{Priced, RunReport};
pub use scenario::Scenario;
pub use world::run;
