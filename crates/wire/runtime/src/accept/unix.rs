//! Sockets in the file system.
//!
//! A process that was killed leaves its file. Whoever binds next asks whether somebody listens
//! there, and replaces the file only if nobody does. It holds the lock of the folder meanwhile, so
//! that of two that start at once one is refused.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use evenkeel_settings::address::SOCKET_PATH_BYTES_MAX as PATH_BYTES_MAX;
use rustix::fs::{FlockOperation, Mode, fchmod, flock};
use socket2::{Domain, SockAddr, Socket, Type};

/// Connections the kernel keeps waiting while a worker is busy or full.
pub(super) const BACKLOG: i32 = 4096;

/// Listens at a path, for whom the permissions of its file let in.
///
/// # Errors
/// When somebody listens there, something else has the path, or the folder cannot be written.
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let length = path.as_os_str().as_bytes().len();
    if length > PATH_BYTES_MAX {
        let message = format!("the path has {length} bytes, expected at most {PATH_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = File::open(folder.unwrap_or_else(|| Path::new(".")))?;
    flock(&folder, FlockOperation::LockExclusive)?;
    make_room(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
    // Linux gives the file these permissions at most: nobody comes in before they are set.
    fchmod(&socket, Mode::from_raw_mode(mode))?;
    socket.bind(&SockAddr::unix(path)?)?;
    fs::set_permissions(path, Permissions::from_mode(mode))?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Removes what a dead process has left.
fn make_room(path: &Path) -> io::Result<()> {
    let in_use = |message: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, message.to_owned()));
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Ok(what) if !what.file_type().is_socket() => return in_use("a file that is no socket"),
        _ => {}
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) => in_use("another process listens there"),
        // Its backlog is full, or it is not for us.
        Err(error) => in_use(&format!("another process seems to listen there ({error})")),
    }
}
