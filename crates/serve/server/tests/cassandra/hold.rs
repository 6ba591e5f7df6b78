//! A cluster for whoever asks: for people, and for drivers' own suites (`cargo xtask drivers`).

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::proxy::Proxy;
use evenkeel_testkit::cassandra::{self, PORT, Spec};

/// The nodes of a cluster for suites, as those expect it.
const SUITE_NODES: usize = 3;

/// Where suites look for them: some have these addresses in their text.
const SUITE_FIRST: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// What the suites' own clusters have. Their tests of materialized views, functions, transient
/// replicas and indexes need them, and their nodes wait longer, since several share a processor.
const SUITE_YAML: &str = "user_defined_functions_enabled: true
materialized_views_enabled: true
sasi_indexes_enabled: true
transient_replication_enabled: true
drop_compact_storage_enabled: true
read_request_timeout: 5000ms
write_request_timeout: 5000ms
";

/// Writes the nodes' addresses and those of proxies to the file that `EVENKEEL_CASSANDRA_HOLD`
/// names, and stays until that file is gone.
///
/// With `EVENKEEL_CASSANDRA_HOLD_FOR=nodes` or `=proxies` it is a cluster for suites, with as many
/// proxies as nodes: these, or those, are at 127.0.0.1 and the addresses after it.
#[test]
#[ignore = "holds a cluster until its file is removed"]
fn hold() {
    let file = std::env::var_os("EVENKEEL_CASSANDRA_HOLD").expect("EVENKEEL_CASSANDRA_HOLD=FILE");
    let file = PathBuf::from(file);
    let suites = std::env::var("EVENKEEL_CASSANDRA_HOLD_FOR").ok();
    let spec = || match suites.as_deref() {
        None => crate::spec(),
        Some(whom) => suite_spec(whom),
    };
    let Some(cluster) = cassandra::shared(spec) else { return };
    let proxies = match suites.as_deref() {
        None => vec![Proxy::start(cluster, "hedge = {}")],
        Some("proxies") => {
            let addresses = cassandra::following(SUITE_FIRST, SUITE_NODES);
            let addresses: Vec<_> =
                addresses.iter().map(|address| SocketAddr::from((*address, PORT))).collect();
            Proxy::start_all(&addresses, cluster, "hedge = {}")
        }
        Some(_) => Vec::new(),
    };
    let nodes = (0..cluster.nodes()).map(|node| cluster.address(node));
    let all = nodes.chain(proxies.iter().map(Proxy::address));
    let part = file.with_extension("part");
    std::fs::write(&part, all.map(|address| format!("{address}\n")).collect::<String>()).unwrap();
    std::fs::rename(part, &file).unwrap();
    while file.exists() {
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn suite_spec(whom: &str) -> Spec {
    assert!(["nodes", "proxies"].contains(&whom), "EVENKEEL_CASSANDRA_HOLD_FOR={whom}");
    let base = crate::spec();
    let mut options = base.options;
    // A keyspace in which every write fails, for tests of errors.
    options.push("-Dcassandra.test.fail_writes_ks=test".to_owned());
    // Suites change the schema all the time: none of it need survive a node.
    options.push("-Dcassandra.test.flush_local_schema_changes=false".to_owned());
    Spec {
        name: "TestCluster",
        options,
        yaml: SUITE_YAML.to_owned(),
        places: vec![("datacenter1".to_owned(), "rack1".to_owned()); SUITE_NODES],
        first: (whom == "nodes").then_some(SUITE_FIRST),
        optimized: true,
        ..base
    }
}
