//! Spans of requests for a collector of OpenTelemetry, by OTLP over HTTP (protobuf).
//!
//! | part | does |
//! |---|---|
//! | [`config`] | `[traces]` |
//! | `spans` | makes spans of a request that has ended: its own, and one for each attempt |
//! | [`exporter`] | sends them in batches, again where that may help; never in a request's way |
//!
//! Which requests are exported is decided where they end
//! ([`traces`](evenkeel_proxy::requests::traces)).

pub mod config;
pub mod exporter;
mod spans;
