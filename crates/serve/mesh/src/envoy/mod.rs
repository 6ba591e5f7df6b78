//! Envoy as the data plane: the redirect rates of a site, as locality weights.
//!
//! Where a site's requests already pass through Envoy, they need not pass through our own proxy to
//! be redirected. Each data centre becomes a *locality* of an Envoy cluster, the rates of the plan
//! become `load_balancing_weight`, and Envoy's load reports (LRS) become the demand that plans are
//! made from. Weights reach Envoy by a file it watches (file EDS) or over gRPC (ADS or EDS).
//!
//! | room | does |
//! |---|---|
//! | `assignment` | plan and replicas into weights; a pure function |
//! | `feed` | what Envoy shall be told now, as plans come, grow stale, and replicas die |
//! | `file` | that, as a file |
//! | `demand` | what Envoys report, added up |
//! | `grpc` | discovery and load reports over gRPC |
//!
//! **What is lost** beside our own proxy: the cap of each destination (Envoy has no token bucket
//! for a locality, and circuit breakers count for a whole cluster, so a surge at the origin is
//! passed on in full until the next epoch), the second try at home when the other site fails, and
//! latencies (load reports have none, so only failures count as misses). `docs/envoy.md` says more.

pub mod config;

mod assignment;
mod demand;
mod feed;
mod file;
mod grpc;
pub mod metrics;

pub use assignment::{Assignment, Cluster, Locality, LocalityWeight, WEIGHT_TOTAL};
pub use demand::{Demand, LocalityRates, LocalityReport, Report};
pub use feed::{Counts, Feed, Nack, Plane, Sources, Tell};
pub use grpc::serve;
