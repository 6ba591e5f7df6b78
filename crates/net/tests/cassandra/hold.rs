//! A cluster for whoever asks: for people, and for drivers' own suites (`cargo xtask drivers`).

use std::path::PathBuf;
use std::time::Duration;

use crate::cassandra;

/// Writes contact points to the file that `EVENKEEL_CASSANDRA_HOLD` names, and stays until that
/// file is gone.
#[test]
#[ignore = "holds a cluster until its file is removed"]
fn hold() {
    let file = std::env::var_os("EVENKEEL_CASSANDRA_HOLD").expect("EVENKEEL_CASSANDRA_HOLD=FILE");
    let file = PathBuf::from(file);
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let addresses = (0..cluster.nodes()).map(|node| format!("{}\n", cluster.address(node)));
    let part = file.with_extension("part");
    std::fs::write(&part, addresses.collect::<String>()).unwrap();
    std::fs::rename(part, &file).unwrap();
    while file.exists() {
        std::thread::sleep(Duration::from_millis(200));
    }
}
