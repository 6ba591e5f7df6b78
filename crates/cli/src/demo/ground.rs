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

/// Loopback addresses that are free at the moment.
pub(super) fn free_addresses(count: usize) -> io::Result<Vec<SocketAddr>> {
    let bind = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = (0..count).map(bind).collect::<io::Result<Vec<_>>>()?; // together: none twice
    held.iter().map(TcpListener::local_addr).collect()
}
