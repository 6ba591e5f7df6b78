//! Who listens where and who sends to whom: addresses that are taken twice, requests that would
//! come back.
//!
//! An *own address* is one this process listens on, all others are those somebody sends to. A node
//! (an upstream or an agent) has addresses of its own, by which requests enter, and addresses of
//! others, by which they leave; where an address ends at one of these, they enter again. Only what
//! is certain from the file is reported: an address through another process or by another address
//! of this machine is not seen. Requests that loop that way end by their hops
//! (`evenkeel_http_proxy`'s `hops`).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use evenkeel_settings::address::{Address, ListenAddress};

/// An address this process listens on, the table it is of, and the nodes behind it.
pub(super) struct OwnAddress<'w> {
    pub(super) of: &'static str,
    pub(super) address: &'w Address<'w>,
    pub(super) nodes: Vec<usize>,
}

/// Reports every address that is listened on already, by itself or by one of all interfaces.
pub(super) fn check_addresses(own_addresses: &[OwnAddress<'_>]) {
    let paths: Vec<&OwnAddress<'_>> =
        own_addresses.iter().filter(|own| own.address.place.inet().is_none()).collect();
    for (number, own) in paths.iter().enumerate() {
        let is_same = |it: &&&OwnAddress<'_>| it.address.place.is_same_place(&own.address.place);
        if let Some(other) = paths[..number].iter().find(is_same) {
            let hint = format!("this process already listens there, for {}", other.of);
            own.address.problem("an address of its own", hint);
        }
    }
    let mut by_port: BTreeMap<u16, Vec<&OwnAddress<'_>>> = BTreeMap::new();
    for own in own_addresses.iter().filter(|own| own.address.address.port() != 0) {
        let others = by_port.entry(own.address.address.port()).or_default();
        let ip = own.address.address.ip();
        if let Some(other) = others.iter().find(|it| overlap(ip, it.address.address.ip())) {
            let (of, at) = (other.of, other.address.address);
            let hint = match at == own.address.address {
                true => format!("this process already listens there, for {of}"),
                false => format!("this process listens on {at} for {of}: the two overlap"),
            };
            own.address.problem("an address of its own", hint);
        }
        others.push(own);
    }
}

/// Whether a client may reach both by one address. `[::]` takes IPv4 too, unless the system forbids
/// it.
fn overlap(one: IpAddr, other: IpAddr) -> bool {
    let covers = |one: IpAddr, other: IpAddr| {
        one == other || (one.is_unspecified() && (one.is_ipv6() || other.is_ipv4()))
    };
    covers(one, other) || covers(other, one)
}

/// Reports every way that leads back to its own node. `targets` are the ways of each node.
pub(super) fn check_circles(own_addresses: &[OwnAddress<'_>], targets: &[&[Address<'_>]]) {
    let by_address: BTreeMap<SocketAddr, &OwnAddress<'_>> = own_addresses
        .iter()
        .map(|own_address| (own_address.address.address, own_address))
        .collect();
    let entered = |address: &Address<'_>| {
        if let ListenAddress::Unix { .. } = address.place {
            return own_addresses
                .iter()
                .find(|own| own.address.place.is_same_place(&address.place));
        }
        let own_address =
            reached_by(address.destination()).into_iter().find_map(|at| by_address.get(&at))?;
        Some(*own_address)
    };
    let steps = targets.iter().map(|addresses| {
        addresses.iter().filter_map(&entered).flat_map(|own| own.nodes.iter().copied())
    });
    let reaches = closure(steps.map(Iterator::collect).collect());
    for (node, addresses) in targets.iter().enumerate() {
        for address in *addresses {
            let Some(own_address) = entered(address) else { continue };
            let comes_back = |next: &usize| *next == node || reaches[*next].contains(&node);
            if own_address.nodes.iter().any(comes_back) {
                let own = format!("this process listens there for {}", own_address.of);
                let hint = format!("{own}: requests would loop");
                address.problem("the address of another server", hint);
            }
        }
    }
}

/// The addresses whose listener a connection to this address reaches, the most specific first.
fn reached_by(to: SocketAddr) -> Vec<SocketAddr> {
    if to.port() == 0 {
        return Vec::new();
    }
    let any = |ip: IpAddr| SocketAddr::new(ip, to.port());
    let (any_v4, any_v6) = (any(Ipv4Addr::UNSPECIFIED.into()), any(Ipv6Addr::UNSPECIFIED.into()));
    match to.ip() {
        ip if !ip.is_loopback() => vec![to],
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
