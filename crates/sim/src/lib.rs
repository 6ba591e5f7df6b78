//! A virtual world around Evenkeel's decisions: same scenario, same seed, same run, to the byte.
//!
//! [`world`] is the loop; [`server`], [`guard`], [`peers`], [`workload`], [`fault`] and [`oracle`]
//! are what it is made of; [`scenario`] is what people write; [`report`] and [`sampler`] are what
//! they read; [`paper`] holds papers to their claims; [`trace`] has rates of
//! many sites over time, and [`capacity`] says what serving them costs.

pub mod capacity;
pub mod duplicates;
pub mod events;
pub mod fault;
pub mod guard;
mod millis;
pub mod oracle;
pub mod paper;
pub mod peers;
pub mod placement;
pub mod redirect;
pub mod report;
pub mod sampler;
pub mod scenario;
pub mod server;
pub mod trace;
pub mod workload;
pub mod world;

pub use report::RunReport;
pub use scenario::Scenario;
pub use world::run;
