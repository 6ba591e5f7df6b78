//! Regions on one machine that are as far from each other as real ones, for real stores whose
//! members find each other by names: each has an `/etc/hosts` of its own, which leads to relays.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::distance::Lane;
use crate::story::Missing;

/// Whether a program is there and ends well.
#[must_use]
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let done = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// Whether processes can have an `/etc/hosts` of their own.
///
/// # Errors
/// What is missing.
pub fn mount_namespaces() -> Result<(), Missing> {
    if succeeds("unshare", &["--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"]) {
        return Ok(());
    }
    Err("no mount namespaces (only root makes them)".into())
}

/// Ends a process that is not a child of ours, by a signal such as `-9`, and waits a little until
/// it is gone.
pub fn end(signal: &str, process: &str) {
    let _ = Command::new("kill").args([signal, process]).status(); // it may have ended
    let began = Instant::now();
    while Path::new("/proc").join(process).exists() && began.elapsed() < Duration::from_secs(2) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Where the member of a site is.
#[must_use]
pub fn here(net: [u8; 2], site: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, net[0], net[1] + 8, site as u8 + 1)
}

/// Where it is seen from a site: a relay as long as the way, also within the site.
#[must_use]
pub fn seen(net: [u8; 2], from: usize, to: usize) -> Ipv4Addr {
    Ipv4Addr::new(127, net[0], net[1] + from as u8, to as u8 + 1)
}

/// The `/etc/hosts` of a member, in which the names of the others lead to relays.
#[must_use]
pub fn hosts(net: [u8; 2], sites: &[&str], site: usize) -> String {
    let line = |(other, name): (usize, &&str)| {
        let address = if site == other { here(net, site) } else { seen(net, site, other) };
        format!("{address} {name}\n")
    };
    sites.iter().enumerate().map(line).collect()
}

/// Lanes for every ordered pair of sites, one for each port.
#[must_use]
pub fn ways<const N: usize>(
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
