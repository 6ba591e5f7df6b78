//! Servers for the suites of others: `cargo xtask redis-suites`.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::Redis;

use super::world::World;

/// A plain Redis and a front with three duplicates, until the file goes away that names their
/// ports.
#[test]
#[ignore = "holds servers for cargo xtask redis-suites"]
fn hold() {
    let Some(file) = std::env::var_os("EVENKEEL_DUPLICATES_HOLD").map(PathBuf::from) else {
        return;
    };
    let Some(world) = World::start("hold", 3, |_| {}) else { return };
    let folder = Folder::new("duplicates-hold-plain");
    let plain = Redis::new(folder.file("redis"));
    std::fs::write(&file, format!("{} {}\n", plain.address.port(), world.address.port())).unwrap();
    while file.exists() {
        std::thread::sleep(Duration::from_millis(200));
    }
}
