//! What the service manager is told: that the process is ready, reloads or stops.
//!
//! This is the protocol of `sd_notify(3)`: systemd names a datagram socket in `NOTIFY_SOCKET`, and
//! so do others who start services (podman, s6, launchers of tests). A unit with `Type=notify` is
//! started once [`Manager::ready`] was told, so units that are ordered after it find open ports.

use std::ffi::OsStr;
use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The service manager that has started this process, if there is one.
#[derive(Debug)]
pub struct Manager(Option<(UnixDatagram, SocketAddr)>);

impl Manager {
    /// The manager that `NOTIFY_SOCKET` names; without it nobody, and everything told is dropped.
    ///
    /// # Errors
    /// When the name is neither an absolute path nor, on Linux, an abstract name with `@`.
    pub fn of_environment() -> io::Result<Self> {
        match std::env::var_os("NOTIFY_SOCKET") {
            Some(name) if !name.is_empty() => Self::at(&name),
            _ => Ok(Self(None)),
        }
    }

    fn at(name: &OsStr) -> io::Result<Self> {
        let address = address(name.as_bytes()).map_err(|error| {
            let name = name.display();
            io::Error::new(
                error.kind(),
                format!(
                    "NOTIFY_SOCKET: got {name}, expected /a/path or @a-name of a Unix socket: \
                     {error}"
                ),
            )
        })?;
        Ok(Self(Some((UnixDatagram::unbound()?, address))))
    }

    /// Every address is open; `status` is what `systemctl status` shows.
    ///
    /// # Errors
    /// When the manager has gone; the process can go on.
    pub fn ready(&self, status: &str) -> io::Result<()> {
        self.tell(&format!("READY=1\n{}", shown(status)))
    }

    /// A reload begins; [`Manager::ready`] ends it, whatever came of it.
    ///
    /// # Errors
    /// As [`Manager::ready`].
    pub fn reloading(&self) -> io::Result<()> {
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"))
    }

    /// Another process of the service has replaced this one, and is the one to watch from now on.
    /// Only this one is believed that, as long as it is the one that is watched.
    ///
    /// # Errors
    /// As [`Manager::ready`].
    pub fn replaced_by(&self, process: u32) -> io::Result<()> {
        self.tell(&format!("MAINPID={process}\nREADY=1\nSTATUS=has replaced another process"))
    }

    /// The process stops once its requests in flight are answered.
    ///
    /// # Errors
    /// As [`Manager::ready`].
    pub fn stopping(&self) -> io::Result<()> {
        self.tell("STOPPING=1\nSTATUS=completing requests in flight")
    }

    fn tell(&self, words: &str) -> io::Result<()> {
        let Some((socket, address)) = &self.0 else { return Ok(()) };
        let told = socket.send_to_addr(words.as_bytes(), address);
        told.map(drop).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot tell the service manager: {error}"))
        })
    }
}

/// The first line of a status: a further one would be another variable.
fn shown(status: &str) -> String {
    format!("STATUS={}", status.lines().next().unwrap_or_default())
}

fn address(name: &[u8]) -> io::Result<SocketAddr> {
    match name {
        [b'/', ..] => SocketAddr::from_pathname(OsStr::from_bytes(name)),
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "another kind of address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 512];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_manager_with_an_abstract_name_is_told_everything() {
        let name = format!("evenkeel-manager-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        let manager = Manager::at(OsStr::new(&format!("@{name}"))).unwrap();
        manager.ready("4 workers\nMAINPID=1").unwrap();
        assert_eq!(told(&socket), "READY=1\nSTATUS=4 workers");
        manager.reloading().unwrap();
        let reloading = told(&socket);
        let since = reloading.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(since.parse::<u64>().unwrap() > 0, "{reloading}");
        manager.replaced_by(7).unwrap();
        assert!(told(&socket).starts_with("MAINPID=7\nREADY=1\n"));
        manager.stopping().unwrap();
        assert!(told(&socket).starts_with("STOPPING=1\n"));
        drop(socket);
        let gone = manager.ready("").unwrap_err().to_string();
        assert!(gone.starts_with("cannot tell the service manager"), "{gone}");
    }

    #[test]
    fn a_name_of_another_kind_is_refused_and_none_is_nobody() {
        Manager(None).ready("").unwrap();
        let long = format!("/{}", "x".repeat(200));
        for name in ["vsock:2:1234", "relative", long.as_str()] {
            let error = Manager::at(OsStr::new(name)).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("expected /a/path"), "{error}");
        }
    }
}
