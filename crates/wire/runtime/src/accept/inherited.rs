//! Sockets that whoever started this process has opened: `sd_listen_fds(3)`, socket activation.
//!
//! systemd opens ports below 1024 for a process without privileges, and keeps clients waiting while
//! the process restarts. A [`Listener`](super::Listener) whose address is that of such a socket
//! uses it. All workers may use one socket: whoever is free accepts. Where several sockets have one
//! address (`ReusePort=yes`), each worker has its own as far as they go.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use listenfd::ListenFd;
use rustix::io::{FdFlags, fcntl_setfd};

/// Of this process: sockets are inherited once. They stay open, for an address that a reload
/// removes and a later one brings back.
static SOCKETS: OnceLock<Vec<Inherited>> = OnceLock::new();

struct Inherited {
    address: SocketAddr,
    socket: TcpListener,
    uses: AtomicUsize,
}

/// Takes the sockets that `LISTEN_FDS` counts; to be called before anything listens.
///
/// # Errors
/// When one of them is no TCP socket that listens.
pub fn inherit() -> io::Result<()> {
    let mut sockets = ListenFd::from_env();
    let sockets = (0..sockets.len()).map(|number| {
        let wrong = |why: String| {
            io::Error::other(format!(
                "LISTEN_FDS: got a socket (number {number}) that is not usable, expected TCP \
                 sockets that listen (ListenStream=ADDRESS:PORT): {why}"
            ))
        };
        let socket = sockets.take_tcp_listener(number).map_err(|error| wrong(error.to_string()))?;
        let socket = socket.ok_or_else(|| wrong("it is gone".to_owned()))?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?; // not for programs that we start
        Ok(Inherited { address: socket.local_addr()?, socket, uses: AtomicUsize::new(0) })
    });
    let sockets = sockets.collect::<io::Result<Vec<Inherited>>>()?;
    SOCKETS.set(sockets).map_err(|_| io::Error::other("sockets are inherited once"))
}

/// Inherited addresses that nothing listens on: their clients wait for ever.
#[must_use]
pub fn unused() -> Vec<SocketAddr> {
    let sockets = SOCKETS.get().into_iter().flatten();
    let unused = sockets.filter(|socket| socket.uses.load(Ordering::Relaxed) == 0);
    unused.map(|socket| socket.address).collect()
}

/// An inherited socket of this address: of several the one that was used least.
pub(super) fn find(address: SocketAddr) -> Option<io::Result<TcpListener>> {
    let sockets = SOCKETS.get()?.iter().filter(|socket| socket.address == address);
    let least = sockets.min_by_key(|socket| socket.uses.load(Ordering::Relaxed))?;
    least.uses.fetch_add(1, Ordering::Relaxed);
    Some(least.socket.try_clone())
}
