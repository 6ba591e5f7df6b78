//! Addresses in files: where somebody listens or connects to, with the place where it was written.

mod server;

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use crate::problem::quoted;
use crate::reader::{ADDRESS, canonical, parse_address};
use crate::{Mismatch, Setting, Value};

pub use server::ServerAddress;

/// An address and where it was written. Port 0 is any port, and what stands in for an address
/// that could not be read; neither can meet another address.
#[derive(Clone)]
pub struct Address<'a> {
    /// The address; port 0 when it could not be read.
    pub address: SocketAddr,
    /// The same, or a path.
    pub place: ListenAddress,
    /// The same as somebody connects to it, or a name or path: then the address is nowhere.
    pub server: ServerAddress,
    setting: Setting<'a>,
}

impl<'a> Address<'a> {
    /// An address to listen on.
    pub fn to_listen(setting: Setting<'a>) -> Self {
        let hint = "a listener has an address of this machine, not a name: 127.0.0.1 is for \
                    clients on it, 0.0.0.0 and [::] are all its addresses";
        let stand_in = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let parse = |text: &str| address_only(text, hint);
        let address = setting.clone().parsed(ADDRESS, stand_in, parse).required();
        Self::of(address, setting)
    }

    fn of(address: SocketAddr, setting: Setting<'a>) -> Self {
        Self { address, place: address.into(), server: address.into(), setting }
    }

    /// An address to listen on, or a path, whose file gets these permissions.
    pub fn to_listen_anywhere(setting: Setting<'a>, mode: &Setting<'a>) -> Self {
        let expected = "such as \"0660\": three or four digits from 0 to 7";
        let stand_in = ListenAddress::MODE;
        let is_there = mode.value().is_some();
        let bits = mode.clone().parsed(expected, stand_in, |text| {
            let is_octal = (3..=4).contains(&text.len());
            let bits = u32::from_str_radix(text, 8).ok().filter(|_| is_octal);
            bits.ok_or_else(|| Mismatch::new(quoted(text), expected))
        });
        let bits = bits.or(stand_in);
        let written = match setting.value() {
            Some(Value::Text(text)) => Some(text.as_str()),
            _ => None,
        };
        let Some(path) = written.and_then(|text| text.strip_prefix(ListenAddress::UNIX)) else {
            if is_there {
                let wrong = Mismatch::new("mode", "an address unix:/a/path beside it");
                mode.problem(wrong.with_hint("only files have permissions"));
            }
            return Self::to_listen(setting);
        };
        if let Err(wrong) = check_socket_path(path) {
            setting.problem(wrong);
        }
        let place = ListenAddress::Unix { path: path.into(), mode: bits };
        Self { place, ..Self::nowhere(setting) }
    }

    /// An address to connect to, by number: its port is not 0.
    pub fn to_connect(setting: Setting<'a>) -> Self {
        let expected = "an IP address with a port to connect to, such as 127.0.0.1:9001";
        let hint = "names are not looked up here: write the address";
        let stand_in = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let address = setting.clone().parsed(ADDRESS, stand_in, |text| address_only(text, hint));
        let address = address.check(expected, |to| to.port() != 0).required();
        Self::of(address, setting)
    }

    /// An address or a name to connect to.
    pub fn to_server(setting: Setting<'a>) -> Self {
        Self::reached(setting, Target::EXPECTED, ServerAddress::parse)
    }

    /// An address, a name or a path to connect to.
    pub fn to_server_anywhere(setting: Setting<'a>) -> Self {
        Self::reached(setting, ServerAddress::EXPECTED, ServerAddress::parse_anywhere)
    }

    fn reached(
        setting: Setting<'a>,
        expected: &str,
        parse: fn(&str) -> Result<ServerAddress, Mismatch>,
    ) -> Self {
        let stand_in = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into();
        let server = setting.clone().parsed(expected, stand_in, parse).required();
        let address = match server {
            ServerAddress::Inet(address) => Self::of(address, setting),
            ServerAddress::Name { .. } => Self::nowhere(setting),
            ServerAddress::Unix(path) => {
                let place = ListenAddress::unix(path);
                Self { place, ..Self::nowhere(setting) }
            }
        };
        Self { server, ..address }
    }

    /// No address, where one may be left out.
    pub fn nowhere(setting: Setting<'a>) -> Self {
        Self::of((Ipv4Addr::UNSPECIFIED, 0).into(), setting)
    }

    /// Where a connection to the address goes: `0.0.0.0` and `[::]` lead to this machine.
    pub fn destination(&self) -> SocketAddr {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            _ => return self.address,
        };
        SocketAddr::new(ip, self.address.port())
    }

    /// Reports what is wrong with the address, at its place in the file.
    pub fn problem(&self, expected: &str, hint: impl Into<String>) {
        let came = match self.server {
            ServerAddress::Name { .. } => self.server.to_string(),
            ServerAddress::Inet(_) | ServerAddress::Unix(_) => self.place.to_string(),
        };
        self.setting.problem(Mismatch::new(came, expected).with_hint(hint));
    }
}

/// What the kernel keeps of the path of a socket, without the zero at its end.
pub const SOCKET_PATH_BYTES_MAX: usize = 107;

fn check_socket_path(path: &str) -> Result<(), Mismatch> {
    if path.starts_with('/') && !path.ends_with('/') && path.len() <= SOCKET_PATH_BYTES_MAX {
        return Ok(());
    }
    let expected = format!("unix: and an absolute path of at most {SOCKET_PATH_BYTES_MAX} bytes");
    let wrong = Mismatch::new(format!("{} ({} bytes)", quoted(path), path.len()), expected);
    Err(wrong.with_hint("the kernel keeps no longer path of a socket"))
}

/// Where a server listens: a port, or a socket in the file system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ListenAddress {
    /// An address with a port; 0 is any port.
    Inet(SocketAddr),
    /// A path, and the permissions of the file.
    Unix {
        /// The path.
        path: PathBuf,
        /// Such as `0o660`.
        mode: u32,
    },
}

impl ListenAddress {
    /// What begins a path where an address may be.
    pub const UNIX: &str = "unix:";

    /// The permissions of a socket where none are named: its user and group.
    pub const MODE: u32 = 0o660;

    /// A path, with the usual permissions.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::Unix { path: path.into(), mode: Self::MODE }
    }

    /// The address with a port, if it is one.
    pub const fn inet(&self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(*address),
            Self::Unix { .. } => None,
        }
    }

    /// Whether both are one place, whoever may connect to it.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unix { path, .. }, Self::Unix { path: other, .. }) => path == other,
            _ => self == other,
        }
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix { path, .. } => write!(f, "{}{}", Self::UNIX, path.display()),
        }
    }
}

/// Reads an address; a name gets a hint of its own.
fn address_only(text: &str, hint: &str) -> Result<SocketAddr, Mismatch> {
    parse_address(text).map_err(|wrong| match Target::parse(text) {
        Ok(Target::Name(_)) => wrong.with_hint(hint),
        _ => wrong,
    })
}

/// A host by its name, and a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostPort {
    /// The name, in lower case.
    pub host: String,
    /// The port, never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Who is connected to: by address, or by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A name, which may have several addresses.
    Name(HostPort),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

impl Target {
    /// What [`Target::parse`] expects.
    pub const EXPECTED: &'static str =
        "an address or name with a port to connect to, such as 127.0.0.1:9001 or shop.example:9001";

    /// Reads an address or a name, either with a port to connect to.
    ///
    /// # Errors
    /// When it is neither, with the likely cause.
    pub fn parse(text: &str) -> Result<Self, Mismatch> {
        let wrong = |hint: &str| Mismatch::new(quoted(text), Self::EXPECTED).with_hint(hint);
        if let Ok(address) = text.parse().map(canonical) {
            return match address.port() {
                0 => Err(wrong("nobody can connect to port 0")),
                _ => Ok(Self::Address(address)),
            };
        }
        if text.starts_with(ListenAddress::UNIX) {
            let words = "Unix sockets are for HTTP: `replicas` of [upstream.NAME] and `app` of \
                         [[agent]]";
            return Err(wrong(words));
        }
        if text.contains("://") {
            return Err(wrong("without a scheme, such as http://, and without a path"));
        }
        if text.parse::<IpAddr>().is_ok() || !text.contains(':') {
            return Err(wrong("the port is missing"));
        }
        let (host, port) = text.rsplit_once(':').expect("there is a colon");
        let Some(port) = port.parse().ok().filter(|port: &u16| *port != 0) else {
            return Err(wrong("a port is a number from 1 to 65535"));
        };
        check_host(host).map_err(wrong)?;
        Ok(Self::Name(HostPort { host: host.to_lowercase(), port }))
    }
}

/// Says why a text is no name of a host or service.
///
/// # Errors
/// The reason, as a hint.
pub fn check_host(host: &str) -> Result<(), &'static str> {
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.len() > 253 {
        return Err("a name has at most 253 bytes");
    }
    if name.split('.').any(|label| !(1..=63).contains(&label.len())) {
        return Err("a name has parts of 1 to 63 bytes between its dots");
    }
    if !name.split('.').flat_map(str::bytes).all(is_plain) {
        return Err("a name has letters, digits, hyphens and _ only");
    }
    let last = name.rsplit('.').next().unwrap_or_default();
    if last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("a name does not end in a number, and an IPv4 address has four of them");
    }
    Ok(())
}

/// Reports every address of a list that leads where another one does.
pub fn check_repeated(addresses: &[Address<'_>]) {
    let mut seen = BTreeSet::new();
    for one in addresses {
        let server = match one.server {
            ServerAddress::Inet(address) if address.port() == 0 => continue, // it was not read
            ServerAddress::Inet(_) => one.destination().into(),
            server => server,
        };
        if !seen.insert(server) {
            one.problem("each replica once", "the list already has it");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_address_or_a_name_is_read_and_a_slip_is_explained() {
        let read = |text: &str| Target::parse(text).map(|it| it.to_string());
        for (text, known) in [
            ("127.0.0.1:80", "127.0.0.1:80"),
            ("[::1]:80", "[::1]:80"),
            ("[::ffff:10.0.0.1]:80", "10.0.0.1:80"),
            ("Localhost:9000", "localhost:9000"),
            ("shop_1.internal.:9000", "shop_1.internal.:9000"),
        ] {
            assert_eq!(read(text).unwrap(), known);
        }
        for (text, hint) in [
            ("127.0.0.1", "the port is missing"),
            ("shop.internal", "the port is missing"),
            ("::1", "the port is missing"),
            ("shop:http", "from 1 to 65535"),
            ("shop:0", "from 1 to 65535"),
            ("127.0.0.1:0", "port 0"),
            ("http://shop:80", "without a scheme"),
            ("127.0.0.1.5:80", "four of them"),
            ("a..b:80", "1 to 63 bytes"),
            (":80", "1 to 63 bytes"),
            ("a b:80", "letters, digits"),
            ("caf\u{e9}.example:80", "letters, digits"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
        assert!(read(&format!("{}:80", ["abc"; 64].join("."))).is_err());
    }

    #[test]
    fn a_name_where_an_address_is_needed_is_explained() {
        let node = crate::Node::parse("at = 'localhost:80'", "a.toml").unwrap();
        let listens = node.read(|table| Address::to_listen(table.key("at")).address);
        let connects = node.read(|table| Address::to_connect(table.key("at")).address);
        let [listens, connects] = [listens, connects].map(|it| it.unwrap_err().to_string());
        assert!(listens.contains("a listener has an address of this machine"), "{listens}");
        assert!(connects.contains("names are not looked up here"), "{connects}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic_and_what_is_read_means_the_same(
            text in "[a-c0-9.:\\[\\]_-]{0,12}|.{0,12}",
        ) {
            if let Ok(target) = Target::parse(&text) {
                prop_assert_eq!(Target::parse(&target.to_string()).unwrap(), target);
            }
        }
    }
}
