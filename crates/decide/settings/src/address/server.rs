//! Where a server is that connections go to.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use super::{ListenAddress, Mismatch, Target, check_socket_path};

/// Where a server is that connections go to, and who it is: one that is known by its name stays the
/// same server wherever the name leads.
///
/// It is copied as a number is. Its text is kept once, for as long as the process lives: only what
/// people write in files may become one, not what other servers tell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerAddress {
    /// An IP address with a port.
    Inet(SocketAddr),
    /// A host by its name, which is looked up whenever a connection is opened.
    Name {
        /// The name, in lower case.
        host: &'static str,
        /// The port, never 0.
        port: u16,
    },
    /// The path of a socket of this machine.
    Unix(&'static str),
}

impl ServerAddress {
    /// What [`ServerAddress::parse_anywhere`] expects.
    pub const EXPECTED: &'static str = "an address or name with a port to connect to, such as \
        127.0.0.1:9001 or shop.example:9001, or a path such as unix:/run/app.sock";

    /// A host by its name.
    pub fn name(host: &str, port: u16) -> Self {
        Self::Name { host: kept(host), port }
    }

    /// A socket of this machine.
    pub fn unix(path: &str) -> Self {
        Self::Unix(kept(path))
    }

    /// Reads an address or a name, either with a port to connect to.
    ///
    /// # Errors
    /// When it is neither, with the likely cause.
    pub fn parse(text: &str) -> Result<Self, Mismatch> {
        Ok(match Target::parse(text)? {
            Target::Address(address) => Self::Inet(address),
            Target::Name(name) => Self::name(&name.host, name.port),
        })
    }

    /// Reads an address, a name or a path.
    ///
    /// # Errors
    /// When it is none of them, with the likely cause.
    pub fn parse_anywhere(text: &str) -> Result<Self, Mismatch> {
        let Some(path) = text.strip_prefix(ListenAddress::UNIX) else { return Self::parse(text) };
        check_socket_path(path)?;
        Ok(Self::unix(path))
    }

    /// The IP address with a port, if that is what it is.
    pub const fn inet(self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(address),
            Self::Name { .. } | Self::Unix(_) => None,
        }
    }

    /// The port, if it has one.
    pub const fn port(self) -> Option<u16> {
        match self {
            Self::Inet(address) => Some(address.port()),
            Self::Name { port, .. } => Some(port),
            Self::Unix(_) => None,
        }
    }

    /// Its address, name or path without the port.
    pub fn host(self) -> String {
        match self {
            Self::Inet(address) => address.ip().to_canonical().to_string(),
            Self::Name { host, .. } => host.to_owned(),
            Self::Unix(path) => path.to_owned(),
        }
    }

    /// What requests of our own name as their host. A path is none; servers behind one are on
    /// this machine.
    pub fn authority(self) -> String {
        match self {
            Self::Inet(_) | Self::Name { .. } => self.to_string(),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

impl From<SocketAddr> for ServerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl PartialEq<SocketAddr> for ServerAddress {
    fn eq(&self, other: &SocketAddr) -> bool {
        self.inet() == Some(*other)
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}{path}", ListenAddress::UNIX),
        }
    }
}

impl fmt::Debug for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn kept(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text) {
        return known;
    }
    let new: &'static str = Box::leak(text.to_owned().into_boxed_str());
    kept.insert(new);
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_an_address_a_name_or_a_path_and_the_text_is_who_it_is() {
        let read = |text: &str| ServerAddress::parse_anywhere(text).map_err(|it| it.to_string());
        for text in ["127.0.0.1:80", "[::1]:80", "shop.test:80", "unix:/run/app.sock"] {
            assert_eq!(read(text).unwrap().to_string(), text);
            assert_eq!(read(text), read(text));
        }
        assert_eq!(read("Shop.test:80"), read("shop.test:80"));
        assert_ne!(read("shop.test:80"), read("shop.test:81"));
        let long = format!("unix:/{}", "a".repeat(200));
        for text in ["unix:run/app.sock", "unix:", "unix:/run/", &long] {
            let error = read(text).unwrap_err();
            assert!(error.contains("an absolute path of at most 107 bytes"), "{text}: {error}");
        }
        let error = ServerAddress::parse("unix:/run/app.sock").unwrap_err().to_string();
        assert!(error.contains("Unix sockets are for HTTP"), "{error}");
        assert_eq!(read("unix:/run/app.sock").unwrap().authority(), "localhost");
    }
}
