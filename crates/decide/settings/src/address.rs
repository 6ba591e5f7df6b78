//! Addresses in files: where somebody listens or connects to, with the place where it was written.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{Mismatch, Setting};

/// An address and where it was written. Port 0 is any port, and what stands in for an address
/// that could not be read; neither can meet another address.
#[derive(Clone)]
pub struct Address<'a> {
    /// The address; port 0 when it could not be read.
    pub address: SocketAddr,
    setting: Setting<'a>,
}

impl<'a> Address<'a> {
    /// An address to listen on.
    pub fn to_listen(setting: Setting<'a>) -> Self {
        let address = setting.clone().address().required();
        Self { address, setting }
    }

    /// An address to connect to: its port is not 0.
    pub fn to_connect(setting: Setting<'a>) -> Self {
        let expected = "an IP address with a port to connect to, such as 127.0.0.1:9001";
        let address = setting.clone().address().check(expected, |to| to.port() != 0).required();
        Self { address, setting }
    }

    /// No address, where one may be left out.
    pub fn nowhere(setting: Setting<'a>) -> Self {
        Self { address: (Ipv4Addr::UNSPECIFIED, 0).into(), setting }
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
    pub fn problem(&self, expected: &str, hint: String) {
        let wrong = Mismatch::new(self.address.to_string(), expected);
        self.setting.problem(wrong.with_hint(hint));
    }
}

/// Reports every address of a list that leads where another one does.
pub fn check_repeated(addresses: &[Address<'_>]) {
    let mut seen = BTreeSet::new();
    for one in addresses.iter().filter(|one| one.address.port() != 0) {
        if !seen.insert(one.destination()) {
            one.problem("each replica once", "the list already has it".to_owned());
        }
    }
}
