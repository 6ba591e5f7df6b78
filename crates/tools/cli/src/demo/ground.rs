//! What demos stand on: a folder of their own, and addresses that nobody has.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::Context as _;

/// A folder for a demo's files, removed at the end.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn make() -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("evenkeel-demo-{}", std::process::id()));
        std::fs::create_dir_all(&path)
            .with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // what stays is in the temporary folder
    }
}

/// Ports that no system hands out by itself, for listeners or connections: what is free among them
/// is still free a minute later.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Loopback addresses that nobody listens on, below the system's own range of ports.
pub(super) fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    // Where to begin differs, so that two demos at once seldom try the same.
    let first = std::process::id() as u16 % PORTS.len() as u16;
    let ports =
        (0..PORTS.len() as u16).map(|step| PORTS.start + (first + step) % PORTS.len() as u16);
    let listeners = ports.filter_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok());
    let held: Vec<TcpListener> = listeners.take(count).collect(); // together: none twice
    if held.len() < count {
        return Err(io::Error::other("too few free ports between 20000 and 32000"));
    }
    held.iter().map(TcpListener::local_addr).collect()
}
