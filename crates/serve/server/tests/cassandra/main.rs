//! Real clusters of Cassandra and unmodified drivers, beside Evenkeel and through it.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod agents;
mod altered;
mod differential;
mod drivers;
mod faults;
mod hold;
mod obey;
mod pairs;
mod proxy;
mod rig;
mod schema;
mod twice;

use evenkeel_testkit::cassandra::Spec;

/// The cluster of all tests here. Nodes send custom payloads back, so that it is seen that they
/// get through.
fn spec() -> Spec {
    let mirror = "org.apache.cassandra.cql3.CustomPayloadMirroringQueryHandler";
    let options = vec![format!("-Dcassandra.custom_query_handler_class={mirror}")];
    // More than the usual 10 MiB: a node with as many statements as it keeps forgets new ones, also
    // a hundred times in a row, and the differential test asks for thousands.
    // Nor shall a slow machine decide whether a conditional write was undecided.
    let yaml = "prepared_statements_cache_size: 64MiB\ncas_contention_timeout: 10s\n".to_owned();
    Spec { options, yaml, ..Spec::of(&[("east", 2), ("west", 1)]) }
}
