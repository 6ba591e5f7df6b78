//! What the operating system knows: `/etc/hosts` and `/etc/resolv.conf`.
//!
//! Both are read for every lookup, which is once in a second at most: what changes counts at once,
//! as DHCP and containers change them.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// The port of DNS.
pub(crate) const PORT: u16 = 53;

/// Servers that are asked; the C library asks three.
const SERVERS_MAX: usize = 8;
/// Domains that are tried for a name.
const SEARCH_MAX: usize = 8;

/// What `resolv.conf` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conf {
    pub(crate) servers: Vec<SocketAddr>,
    pub(crate) search: Vec<String>,
    /// A name with fewer dots is looked for in `search` first.
    pub(crate) ndots: usize,
    /// How long a server may take to answer.
    pub(crate) timeout: Duration,
}

impl Conf {
    /// Servers that somebody named: names are what they are.
    pub(crate) fn of(servers: Vec<SocketAddr>) -> Self {
        Self { servers, search: Vec::new(), ndots: 1, timeout: Duration::from_secs(2) }
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut conf = Self::of(Vec::new());
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let ip = words.next().and_then(|ip| ip.parse::<IpAddr>().ok());
                    conf.servers.extend(ip.map(|ip| SocketAddr::new(ip, PORT)));
                }
                // The last of them counts.
                Some("search" | "domain") => {
                    conf.search = words.take(SEARCH_MAX).map(str::to_owned).collect();
                }
                Some("options") => words.for_each(|option| conf.option(option)),
                _ => {}
            }
        }
        conf.servers.truncate(SERVERS_MAX);
        if conf.servers.is_empty() {
            conf.servers.push((Ipv4Addr::LOCALHOST, PORT).into()); // as the C library does
        }
        conf
    }

    fn option(&mut self, option: &str) {
        match option.split_once(':') {
            Some(("ndots", number)) => {
                self.ndots = number.parse().map_or(1, |it: usize| it.min(15));
            }
            Some(("timeout", number)) => {
                let seconds = number.parse().unwrap_or(5_u64).clamp(1, 5);
                self.timeout = Duration::from_secs(seconds);
            }
            _ => {}
        }
    }

    /// The full names that a name may mean, in the order in which they are tried.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(whole) = name.strip_suffix('.') {
            return vec![whole.to_owned()];
        }
        let join = |domain: &String| {
            let domain = domain.trim_matches('.');
            if domain.is_empty() { name.to_owned() } else { format!("{name}.{domain}") }
        };
        let mut names: Vec<String> = self.search.iter().map(join).collect();
        let at = if name.matches('.').count() >= self.ndots { 0 } else { names.len() };
        names.insert(at, name.to_owned());
        names
    }
}

/// The addresses that `hosts` has for a name. Of `localhost` the IPv4 address where it has both:
/// one machine, and most servers listen there only.
pub(crate) fn hosts(text: &str, name: &str) -> BTreeSet<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let Some(Ok(ip)) = words.next().map(str::parse::<IpAddr>) else { continue };
        if words.any(|known| known.eq_ignore_ascii_case(name)) {
            found.insert(ip);
        }
    }
    if name.eq_ignore_ascii_case("localhost") {
        if found.is_empty() {
            found.insert(Ipv4Addr::LOCALHOST.into());
        }
        if found.iter().any(IpAddr::is_ipv4) {
            found.retain(IpAddr::is_ipv4);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn resolv_conf_is_read_as_the_c_library_reads_it() {
        let conf = Conf::parse(
            "# a comment\nnameserver 10.0.0.53\nnameserver 2001:db8::53\nnameserver what\n\
             search a.test b.test.\ndomain c.test\nsearch shop.svc.test svc.test\n\
             options ndots:2 timeout:9 rotate\n; another",
        );
        let servers = ["10.0.0.53:53", "[2001:db8::53]:53"].map(|it| it.parse().unwrap());
        assert_eq!(conf.servers, servers);
        assert_eq!((conf.ndots, conf.timeout), (2, Duration::from_secs(5)));
        assert_eq!(conf.candidates("cart"), ["cart.shop.svc.test", "cart.svc.test", "cart"]);
        let dotted = conf.candidates("a.b.c");
        assert_eq!(dotted, ["a.b.c", "a.b.c.shop.svc.test", "a.b.c.svc.test"]);
        assert_eq!(conf.candidates("cart."), ["cart"], "this name and no other");
        assert_eq!(Conf::parse("").servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn hosts_has_addresses_of_both_kinds_and_localhost_is_one_server() {
        let text = "127.0.0.1 localhost\n::1 localhost ip6-localhost # local\n\
                    10.0.0.1 Shop.test shop\n2001:db8::1 shop.test\nnothing shop.test\n\
                    # 1.2.3.4 shop";
        let both = ["10.0.0.1", "2001:db8::1"].map(|ip| ip.parse().unwrap());
        assert_eq!(hosts(text, "shop.test."), both.into());
        assert_eq!(hosts(text, "SHOP"), [both[0]].into());
        assert_eq!(hosts(text, "cart"), BTreeSet::new());
        let local: BTreeSet<IpAddr> = [Ipv4Addr::LOCALHOST.into()].into();
        assert_eq!(hosts(text, "localhost"), local);
        assert_eq!(hosts("", "localhost"), local);
        assert_eq!(hosts("::1 localhost", "localhost"), ["::1".parse().unwrap()].into());
    }

    proptest! {
        #[test]
        fn any_file_is_read(text in "(nameserver|search|options|[ -~]|\n| |:|ndots){0,60}") {
            let conf = Conf::parse(&text);
            prop_assert!((1..=SERVERS_MAX).contains(&conf.servers.len()));
            prop_assert!(conf.candidates("a.b").contains(&"a.b".to_owned()));
            hosts(&text, "shop");
        }
    }
}
