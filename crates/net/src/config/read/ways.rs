//! Who listens where and who sends to whom: addresses that are taken twice, requests that would
//! come back.
//!
//! A *door* is an address this process listens on, a *way* an address somebody sends to. A node
//! (an upstream or an agent) has doors, by which requests enter, and ways, by which they leave;
//! where a way ends at a door, they enter again. Only what is certain from the file is reported:
//! a way through another process or by another address of this machine is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use evenkeel_settings::{Mismatch, Setting};

/// An address and where it was written. Port 0 is any port, and what stands in for an address
/// that could not be read; neither can meet another address.
pub(super) struct Way<'a> {
    pub(super) address: SocketAddr,
    setting: Setting<'a>,
}

/// An address this process listens on, the table it is of, and the node behind it.
pub(super) struct Door<'w> {
    pub(super) of: &'static str,
    pub(super) way: &'w Way<'w>,
    pub(super) node: Option<usize>,
}

impl<'a> Way<'a> {
    /// An address to listen on.
    pub(super) fn read(setting: Setting<'a>) -> Self {
        let address = setting.clone().address().required();
        Self { address, setting }
    }

    /// An address to connect to.
    pub(super) fn to(setting: Setting<'a>) -> Self {
        let expected = "an IP address with a port to connect to, such as 127.0.0.1:9001";
        let address = setting.clone().address().check(expected, |to| to.port() != 0).required();
        Self { address, setting }
    }

    /// No address, where one may be left out.
    pub(super) fn nowhere(setting: Setting<'a>) -> Self {
        Self { address: (Ipv4Addr::UNSPECIFIED, 0).into(), setting }
    }

    fn problem(&self, expected: &str, hint: String) {
        let wrong = Mismatch::new(self.address.to_string(), expected);
        self.setting.problem(wrong.with_hint(hint));
    }
}

/// Reports every address of a list that is there already.
pub(super) fn check_repeated(ways: &[Way<'_>]) {
    let mut seen = BTreeSet::new();
    for way in ways.iter().filter(|way| way.address.port() != 0) {
        if !seen.insert(way.address) {
            way.problem("each replica once", "it is in the list already".to_owned());
        }
    }
}

/// Reports every address that is listened on already.
pub(super) fn check_addresses(doors: &[Door<'_>]) {
    let mut taken = BTreeMap::new();
    for door in doors.iter().filter(|door| door.way.address.port() != 0) {
        if let Some(other) = taken.insert(door.way.address, door.of) {
            let hint = format!("this process listens there already, for {other}");
            door.way.problem("an address of its own", hint);
        }
    }
}

/// Reports every way that leads back to its own node. `targets` are the ways of each node.
pub(super) fn check_circles(doors: &[Door<'_>], targets: &[&[Way<'_>]]) {
    let by_address: BTreeMap<SocketAddr, &Door<'_>> =
        doors.iter().map(|door| (door.way.address, door)).collect();
    let entered = |way: &Way<'_>| {
        let door = entrances(way.address).into_iter().find_map(|at| by_address.get(&at))?;
        Some((*door, door.node?))
    };
    let steps = targets.iter().map(|ways| ways.iter().filter_map(&entered).map(|(_, node)| node));
    let reaches = closure(steps.map(Iterator::collect).collect());
    for (node, ways) in targets.iter().enumerate() {
        for way in *ways {
            let Some((door, next)) = entered(way) else { continue };
            if next == node || reaches[next].contains(&node) {
                let own = format!("this process listens there for {}", door.of);
                let hint = format!("{own}: requests would go round in circles");
                way.problem("the address of another server", hint);
            }
        }
    }
}

/// The addresses whose listener a connection to this address reaches, the most specific first.
fn entrances(to: SocketAddr) -> Vec<SocketAddr> {
    if to.port() == 0 {
        return Vec::new();
    }
    let any = |ip: std::net::IpAddr| SocketAddr::new(ip, to.port());
    let (any_v4, any_v6) = (any(Ipv4Addr::UNSPECIFIED.into()), any(Ipv6Addr::UNSPECIFIED.into()));
    match to.ip() {
        ip if !ip.to_canonical().is_loopback() && !ip.is_unspecified() => vec![to],
        ip if ip.is_ipv6() => vec![to, any_v6],
        _ => vec![to, any_v4, any_v6], // which takes IPv4 too, unless the system forbids it
    }
}

/// From the nodes reached in one step to those reached in any number of steps.
fn closure(mut reached: Vec<BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    for middle in 0..reached.len() {
        let beyond = reached[middle].clone();
        for set in reached.iter_mut().filter(|set| set.contains(&middle)) {
            set.extend(&beyond);
        }
    }
    reached
}
