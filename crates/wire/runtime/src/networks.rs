//! Networks of peers that are believed: what they say of others counts.

use std::net::IpAddr;
use std::sync::Arc;

use evenkeel_settings::{Mismatch, Setting};
use ipnet::IpNet;

const EXPECTED: &str = "a network such as \"10.0.0.0/8\" or \"2001:db8::/32\", or an address";
const NETWORKS_MAX: usize = 1_024;

/// A list of networks; empty = nobody.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks(Option<Arc<[IpNet]>>);

impl Networks {
    /// Nobody.
    pub const NONE: Self = Self(None);

    /// Reads a list such as `["10.0.0.0/8", "192.0.2.7"]`.
    pub fn read(setting: Setting<'_>) -> Self {
        let item = |item: Setting<'_>| item.parsed(EXPECTED, IpNet::default(), parse).required();
        let few = format!("at most {NETWORKS_MAX} networks");
        let list = setting.list(item).check(&few, |all| all.len() <= NETWORKS_MAX).or(Vec::new());
        Self((!list.is_empty()).then(|| list.into()))
    }

    /// Whether an address is in one of them. IPv4 within IPv6 is IPv4.
    pub fn contain(&self, address: IpAddr) -> bool {
        let Some(networks) = &self.0 else { return false };
        let address = address.to_canonical();
        networks.iter().any(|network| network.contains(&address))
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

fn parse(text: &str) -> Result<IpNet, Mismatch> {
    let network = match text.contains('/') {
        true => text.parse::<IpNet>().ok(),
        false => text.parse::<IpAddr>().ok().map(IpNet::from),
    };
    let network = network.ok_or_else(|| Mismatch::new(format!("{text:?}"), EXPECTED))?;
    if network.addr() != network.network() {
        let expected = format!("the network itself: \"{}\"", network.trunc());
        return Err(Mismatch::new(format!("{text:?}"), expected));
    }
    Ok(network)
}

#[cfg(test)]
mod tests {
    use evenkeel_settings::Node;

    use super::*;

    fn read(list: &str) -> Result<Networks, String> {
        let node = Node::parse(&format!("from = {list}"), "test.toml").unwrap();
        node.read(|table| Networks::read(table.key("from"))).map_err(|it| it.to_string())
    }

    #[test]
    fn addresses_are_in_networks_of_their_kind() {
        let some = read("['10.0.0.0/8', '192.0.2.7', '2001:db8::/32']").unwrap();
        for inside in ["10.255.0.1", "::ffff:10.0.0.1", "192.0.2.7", "2001:db8:1::1"] {
            assert!(some.contain(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["11.0.0.1", "192.0.2.8", "::1", "2001:db9::1", "::10.0.0.1"] {
            assert!(!some.contain(outside.parse().unwrap()), "{outside}");
        }
        assert!(read("[]").unwrap().is_empty());
        assert!(read("['0.0.0.0/0']").unwrap().contain("127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_said() {
        for (text, says) in [
            ("'10.0.0.0/33'", "expected a network such as"),
            ("'10.0.0.1/8'", "expected the network itself: \"10.0.0.0/8\""),
            ("'localhost'", "expected a network such as"),
            ("10", "a text is written in quotes"),
        ] {
            let problem = read(&format!("[{text}]")).unwrap_err();
            assert!(problem.contains(says), "{problem}");
        }
    }
}
