//! A socket that listens: a port, or a file of the file system.
//!
//! All that are open in this process are known here, so that they can be handed to a process that
//! replaces this one.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use evenkeel_settings::address::ListenAddress;
use socket2::{Domain, Protocol, SockRef, Type};

use super::unix::{self, BACKLOG};

/// Those of this process, closed ones left out when one is next opened.
static OPEN: Mutex<Vec<Weak<Socket>>> = Mutex::new(Vec::new());

/// Whether another process serves with the same sockets: then their files stay.
static SHARED: AtomicBool = AtomicBool::new(false);

/// Who else may listen on an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// Nobody, ever.
    Alone,
    /// Nobody before; from now on those that ask for [`Sharing::Shared`], such as the other workers
    /// of this process. When two processes claim an address at once, one fails.
    Claimed,
    /// Everybody of the same user who claimed it or shares it.
    Shared,
}

/// See the module. Dropping the last owner closes it, and removes its file.
#[derive(Debug)]
pub(super) enum Socket {
    Inet(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Socket {
    /// One that listens there from now on.
    pub(super) fn bind(address: &ListenAddress, sharing: Sharing) -> io::Result<Arc<Self>> {
        let socket = match address {
            ListenAddress::Inet(address) => Self::Inet(bind_inet(*address, sharing)?),
            ListenAddress::Unix { path, mode } => {
                Self::Unix(unix::bind(path, *mode)?, path.clone())
            }
        };
        Ok(socket.opened())
    }

    /// One that another process has opened.
    ///
    /// # Errors
    /// When it is no stream socket that listens on a port or a path.
    pub(super) fn of_another(socket: OwnedFd) -> io::Result<Arc<Self>> {
        let of = SockRef::from(&socket);
        if !of.is_listener()? || of.r#type()? != Type::STREAM {
            return Err(io::Error::other("it does not listen for streams"));
        }
        let address = of.local_addr()?;
        let socket = match (address.as_socket(), address.as_pathname()) {
            (Some(_), _) => Self::Inet(TcpListener::from(socket)),
            (None, Some(path)) => Self::Unix(UnixListener::from(socket), path.to_owned()),
            (None, None) => return Err(io::Error::other("it has neither a port nor a path")),
        };
        Ok(socket.opened())
    }

    fn opened(self) -> Arc<Self> {
        let socket = Arc::new(self);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|other| other.strong_count() > 0);
        open.push(Arc::downgrade(&socket));
        socket
    }

    /// Where it listens.
    pub(super) fn address(&self) -> io::Result<ListenAddress> {
        match self {
            Self::Inet(socket) => socket.local_addr().map(ListenAddress::Inet),
            Self::Unix(_, path) => Ok(ListenAddress::unix(path)),
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let (Self::Unix(_, path), false) = (&*self, SHARED.load(Ordering::Relaxed)) {
            let _ = std::fs::remove_file(path); // who comes next replaces it all the same
        }
    }
}

/// All sockets that listen in this process, for one that replaces it.
///
/// # Errors
/// When the limit of open files does not allow it.
pub fn open_sockets() -> io::Result<Vec<OwnedFd>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let open = open.iter().filter_map(Weak::upgrade);
    let again = open.map(|socket| match &*socket {
        Socket::Inet(socket) => socket.as_fd().try_clone_to_owned(),
        Socket::Unix(socket, _) => socket.as_fd().try_clone_to_owned(),
    });
    again.collect()
}

/// Says whether another process serves with the same sockets: then their files stay when this
/// one closes them.
pub fn sockets_are_shared(are_shared: bool) {
    SHARED.store(are_shared, Ordering::Relaxed);
}

fn bind_inet(address: SocketAddr, sharing: Sharing) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(
        Domain::for_address(address),
        Type::STREAM.nonblocking().cloexec(),
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(sharing == Sharing::Shared)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    if sharing == Sharing::Claimed {
        // The kernel asks for it whenever another socket is bound, not only when this one was.
        // Until here nobody else could listen, so no two processes can believe that they were
        // first.
        socket.set_reuse_port(true)?;
    }
    Ok(socket.into())
}
