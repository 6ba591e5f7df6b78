//! A cluster for whoever asks: for people, and for drivers' own suites (`cargo xtask drivers`).

use std::path::PathBuf;
use std::time::Duration;

use crate::cassandra;
use crate::proxy::Proxy;

/// Writes the nodes' addresses and a proxy's to the file that `EVENKEEL_CASSANDRA_HOLD` names, and
/// stays until that file is gone.
#[test]
#[ignore = "holds a cluster until its file is removed"]
fn hold() {
    let file = std::env::var_os("EVENKEEL_CASSANDRA_HOLD").expect("EVENKEEL_CASSANDRA_HOLD=FILE");
    let file = PathBuf::from(file);
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let proxy = Proxy::start(cluster, "hedge = {}");
    let nodes = (0..cluster.nodes()).map(|node| cluster.address(node));
    let all = nodes.chain([proxy.address()]).map(|address| format!("{address}\n"));
    let part = file.with_extension("part");
    std::fs::write(&part, all.collect::<String>()).unwrap();
    std::fs::rename(part, &file).unwrap();
    while file.exists() {
        std::thread::sleep(Duration::from_millis(200));
    }
}
