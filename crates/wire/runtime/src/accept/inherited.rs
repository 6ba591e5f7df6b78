//! Sockets that another process has opened: whoever started this one (`sd_listen_fds(3)`, socket
//! activation), or the one that it replaces.
//!
//! systemd opens ports below 1024 for a process without privileges, and keeps clients waiting while
//! the process restarts. A [`Listener`](super::Listener) whose address is that of such a socket
//! uses it. Where several sockets have one address (`ReusePort=yes`, or one for each worker of the
//! process before), each worker has its own; all of them are accepted from, and of too few
//! whoever is free accepts.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use evenkeel_settings::address::ListenAddress;
use listenfd::ListenFd;
use rustix::io::{FdFlags, fcntl_setfd};

use super::socket::Socket;

static SOCKETS: Mutex<Vec<Inherited>> = Mutex::new(Vec::new());

struct Inherited {
    address: ListenAddress,
    socket: Arc<Socket>,
    /// They stay open, for an address that a reload removes and a later one brings back.
    is_for_ever: bool,
    is_used: bool,
}

/// Takes the sockets that `LISTEN_FDS` counts; to be called before anything listens.
///
/// # Errors
/// When one of them is no socket that listens.
pub fn inherit() -> io::Result<()> {
    let mut sockets = ListenFd::from_env();
    for number in 0..sockets.len() {
        let wrong = |why: String| {
            io::Error::other(format!(
                "LISTEN_FDS: got a socket (number {number}) that is not usable, expected \
                 sockets that listen (ListenStream=ADDRESS:PORT or /a/path): {why}"
            ))
        };
        let socket = match sockets.take_unix_listener(number) {
            Ok(socket) => socket.map(OwnedFd::from),
            Err(_) => sockets
                .take_tcp_listener(number)
                .map_err(|error| wrong(error.to_string()))?
                .map(OwnedFd::from),
        };
        let socket = socket.ok_or_else(|| wrong("it is gone".to_owned()))?;
        fcntl_setfd(&socket, FdFlags::CLOEXEC)?; // not for programs that we start
        take(socket, true).map_err(|error| wrong(error.to_string()))?;
    }
    Ok(())
}

/// Takes a socket of the process that this one replaces, until [`forget_received`].
///
/// # Errors
/// When it is no socket that listens.
pub fn receive(socket: OwnedFd) -> io::Result<()> {
    take(socket, false)
}

fn take(socket: OwnedFd, is_for_ever: bool) -> io::Result<()> {
    let socket = Socket::of_another(socket)?;
    let address = socket.address()?;
    lock().push(Inherited { address, socket, is_for_ever, is_used: false });
    Ok(())
}

/// Closes what was received and nothing listens on: its address is in the configuration no more.
pub fn forget_received() {
    lock().retain(|inherited| inherited.is_for_ever);
}

/// Inherited addresses that nothing listens on: their clients wait for ever.
#[must_use]
pub fn unused() -> Vec<ListenAddress> {
    let sockets = lock();
    let unused = sockets.iter().filter(|socket| socket.is_for_ever && !socket.is_used);
    unused.map(|socket| socket.address.clone()).collect()
}

/// The inherited sockets of this address.
pub(super) fn find(address: &ListenAddress) -> Vec<Arc<Socket>> {
    let mut sockets = lock();
    let of_it = sockets.iter_mut().filter(|socket| socket.address.is_same_place(address));
    let used = of_it.map(|socket| {
        socket.is_used = true;
        Arc::clone(&socket.socket)
    });
    used.collect()
}

/// Whether a socket of this port was received, in whatever spelling of the address.
pub(super) fn has_port(port: u16) -> bool {
    let is_it = |socket: &Inherited| socket.address.inet().is_some_and(|it| it.port() == port);
    lock().iter().any(|socket| !socket.is_for_ever && is_it(socket))
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Inherited>> {
    SOCKETS.lock().unwrap_or_else(PoisonError::into_inner)
}
