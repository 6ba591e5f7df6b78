//! What stories with real stores share: whether they can be told here, orders, and regions that are
//! as far from each other as real ones.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_core::placement::model::Layout;
use evenkeel_net::config::Config;
use evenkeel_net::distance::Lane;
use evenkeel_net::http::engine::worker_runtime;
use evenkeel_net::placement::PlacementState;
use evenkeel_net::placement::act::mover::{Mode, Order};
use evenkeel_net::process::Process;
use evenkeel_settings::Node;

/// Tells a story within a time that it never needs, or says what is missing on this machine.
pub(crate) fn story(possible: Result<(), String>, within: Duration, told: impl AsyncFnOnce()) {
    if let Err(missing) = possible {
        eprintln!("SKIPPED: {missing}");
        return;
    }
    worker_runtime().unwrap().block_on(async {
        tokio::time::timeout(within, told()).await.expect("the story hangs");
    });
}

/// Whether a program is there and ends well.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let done = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Whether processes can have an `/etc/hosts` of their own.
pub(crate) fn mount_namespaces() -> Result<(), String> {
    if succeeds("unshare", &["--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]) {
        return Ok(());
    }
    Err("no mount namespaces (only root makes them)".to_owned())
}

/// Kills a server that runs, at once.
pub(crate) fn kill(server: &mut Option<Child>) {
    let mut server = server.take().expect("it runs");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// What a test wants of whatever there is.
pub(crate) fn order<'a>(goal: &'a Layout, why: &'a str) -> Order<'a> {
    Order { from: None, goal, who: "a test", why, mode: Mode::Act }
}

/// A process with this placement alone, whose files are in a folder.
pub(crate) fn place(folder: &Path, placement: &str) -> Process {
    let file = folder.join("run.toml").display().to_string();
    let node = Node::parse(placement, &file).unwrap_or_else(|found| panic!("{found}"));
    Process::start(Config::read(&node).unwrap_or_else(|found| panic!("{found}"))).unwrap()
}

/// Waits until the placement of a process is as wanted.
pub(crate) async fn placed(
    process: &Process,
    wanted: impl Fn(&PlacementState) -> bool,
) -> Arc<PlacementState> {
    let ends = Instant::now() + Duration::from_secs(40);
    loop {
        let state = Arc::clone(&process.placement().unwrap().borrow());
        if wanted(&state) {
            return state;
        }
        assert!(Instant::now() < ends, "in vain: {state:#?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Where the member of a site is.
pub(crate) fn here(net: [u8; 2], site: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, net[0], net[1] + 8, site as u8 + 1)
}

/// Where it is seen from a site: a relay as long as the way, also within the site.
pub(crate) fn seen(net: [u8; 2], from: usize, to: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, net[0], net[1] + from as u8, to as u8 + 1)
}

/// The `/etc/hosts` of a member, in which the names of the others lead to relays.
pub(crate) fn hosts(net: [u8; 2], sites: &[&str], site: usize) -> String {
    let line = |(other, name): (usize, &&str)| {
        let address = if site == other { here(net, site) } else { seen(net, site, other) };
        format!("{address} {name}\n")
    };
    sites.iter().enumerate().map(line).collect()
}

/// Lanes for every ordered pair of sites, one for each port.
pub(crate) fn ways<const N: usize>(
    net: [u8; 2],
    round_trips_ms: &[[f64; N]; N],
    ports: [u16; 2],
) -> Vec<(SocketAddr, Lane)> {
    let mut ways = Vec::new();
    for (from, row) in round_trips_ms.iter().enumerate() {
        for (to, ms) in row.iter().enumerate() {
            let base = Duration::from_secs_f64(ms / 1e3);
            for port in ports {
                let target = SocketAddr::from((here(net, to), port));
                let begins = SocketAddr::from((seen(net, from, to), port));
                ways.push((begins, Lane { target, base, residual: None }));
            }
        }
    }
    ways
}
