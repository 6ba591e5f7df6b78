//! One process replaces another without a client noticing: it gets the sockets that listen.
//!
//! | the process that runs ([`offer`]) | the one that replaces it ([`claim`]) |
//! |---|---|
//! | listens at a door of its own | has read its configuration, connects |
//! | sends all sockets that listen | opens everything, and is ready |
//! | goes on | accepts clients, says so |
//! | confirms, accepts nobody any more, drains, exits | opens what only one has: `[admin]` |
//!
//! The sockets are the same for both, so nobody who waits in the kernel's backlog is lost. Whoever
//! of the two ends before the last step leaves the other one serving: the first goes on until it
//! is told that clients are accepted, and the second one goes on alone when the first one is gone.
//! After that step there is one process, as ever.
//! Only processes of the same user are given anything.

mod claim;
mod link;
mod offer;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

pub(super) use claim::Claim;
pub use claim::Outcome;
use evenkeel_runtime::accept::unix;
pub(super) use offer::Offer;

/// Both speak it; another number is another protocol.
const GREETING: &str = "evenkeel take-over 1";

/// Where a process that replaces this one asks.
#[derive(Clone, Debug)]
pub(super) enum Door {
    /// `[process] hand_over`.
    Path(PathBuf),
    /// A name without a file, made of user and configuration file: nothing of it is left behind,
    /// and both processes find it.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "Linux has such names"))]
    Abstract(String),
}

impl Door {
    /// The door of the process of a configuration file. `None` where the operating system has no
    /// names without files, and none is configured.
    pub(super) fn of(file: &Path, configured: Option<&Path>) -> io::Result<Option<Self>> {
        if let Some(path) = configured {
            return Ok(Some(Self::Path(path.to_owned())));
        }
        if cfg!(not(target_os = "linux")) {
            return Ok(None);
        }
        let (file, user) = (std::path::absolute(file)?, user());
        let hash = fnv(file.as_os_str().as_encoded_bytes());
        Ok(Some(Self::Abstract(format!("evenkeel-hand-over-{user}-{hash:016x}"))))
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Path(path) => SocketAddr::from_pathname(path),
            #[cfg(target_os = "linux")]
            Self::Abstract(name) => {
                use std::os::linux::net::SocketAddrExt as _;
                SocketAddr::from_abstract_name(name)
            }
            #[cfg(not(target_os = "linux"))]
            Self::Abstract(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Listens there.
    pub(super) fn open(&self) -> io::Result<OpenDoor> {
        let listener = match self {
            Self::Path(path) => unix::bind(path, 0o600),
            Self::Abstract(_) => UnixListener::bind_addr(&self.address()?),
        };
        let listener = listener.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot listen at {self}: {error}"))
        })?;
        Ok(OpenDoor { door: self.clone(), listener, is_handed_over: false })
    }
}

impl std::fmt::Display for Door {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => path.display().fmt(f),
            Self::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// A door at which this process listens.
#[derive(Debug)]
pub(super) struct OpenDoor {
    door: Door,
    listener: UnixListener,
    /// The other process has it now.
    is_handed_over: bool,
}

impl OpenDoor {
    fn socket(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }
}

impl Drop for OpenDoor {
    fn drop(&mut self) {
        if let (Door::Path(path), false) = (&self.door, self.is_handed_over) {
            let _ = std::fs::remove_file(path); // who comes next replaces it all the same
        }
    }
}

fn user() -> u32 {
    rustix::process::getuid().as_raw()
}

/// FNV-1a: the same in every version of this program.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
