//! The proxies that clients are told of in place of the nodes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_128;

/// One process of Evenkeel, as clients see it: a node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Proxy {
    /// The data centre in which clients are told it is.
    pub(crate) datacenter: Arc<str>,
    /// The address at which clients reach it.
    pub(crate) address: SocketAddr,
    /// The rack in which clients are told it is.
    pub(crate) rack: Arc<str>,
}

/// All proxies of a cluster, ordered by data centre and address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Proxies(Arc<[Proxy]>);

impl Proxies {
    /// From a list in any order, in which none is twice.
    pub(crate) fn new(mut all: Vec<Proxy>) -> Self {
        for proxy in &mut all {
            proxy.address = canonical(proxy.address);
        }
        all.sort();
        all.dedup_by_key(|proxy| proxy.address);
        Self(all.into())
    }

    /// These and one more, unless its address is among them. It is the one that a client is
    /// connected to, which may not have been listed.
    pub(crate) fn with(&self, proxy: Proxy) -> Self {
        if self.at(proxy.address).is_some() {
            return self.clone();
        }
        Self::new(self.0.iter().cloned().chain([proxy]).collect())
    }

    /// The proxy at an address.
    pub(crate) fn at(&self, address: SocketAddr) -> Option<&Proxy> {
        let address = canonical(address);
        self.0.iter().find(|proxy| proxy.address == address)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, Proxy> {
        self.0.iter()
    }

    /// Where on the ring a proxy is, in 2⁻⁶⁴ of the way around: those of a data centre are equally
    /// far apart, and no two of all are at the same place.
    ///
    /// Drivers that know tokens then spread requests evenly among the proxies of a data centre,
    /// and every request finds one whatever its keyspace's replication is. Which *node* answers is
    /// decided here, by the real tokens.
    pub(super) fn place(&self, proxy: &Proxy) -> u64 {
        let alike = |other: &&Proxy| other.datacenter == proxy.datacenter;
        let count = self.0.iter().filter(alike).count().max(1) as u128;
        let before = |other: &&Proxy| other.address < proxy.address;
        let rank = self.0.iter().filter(alike).filter(before).count() as u128;
        let mut datacenters: Vec<_> = self.0.iter().map(|other| &other.datacenter).collect();
        datacenters.dedup();
        let datacenter = datacenters.iter().position(|name| **name == proxy.datacenter);
        let place = ((2 * rank + 1) << 64) / (2 * count) + datacenter.unwrap_or(0) as u128;
        place as u64
    }
}

/// IPv4 in IPv6's clothes is IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The UUID of the proxy at this address: the same in every process and after every restart
/// (version 8 of RFC 9562, from a hash).
pub(super) fn host_id(address: SocketAddr) -> [u8; 16] {
    let mut text = match address.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    text.extend(address.port().to_be_bytes());
    text.extend(b"evenkeel");
    let mut id = xxh3_128(&text).to_be_bytes();
    id[6] = id[6] & 0x0F | 0x80;
    id[8] = id[8] & 0x3F | 0x80;
    id
}

/// A place as the partitioner of a cluster writes its tokens.
pub(super) fn token(place: u64, partitioner: &str) -> String {
    match partitioner.rsplit('.').next() {
        // From 0 to 2¹²⁷.
        Some("RandomPartitioner") => (u128::from(place) << 63).to_string(),
        // Bytes as they are.
        Some("ByteOrderedPartitioner") => format!("{place:016x}"),
        // From −2⁶³ to 2⁶³ − 1, of which the least stands for "before all".
        _ => (place.max(1).wrapping_sub(1 << 63) as i64).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(datacenter: &str, address: &str) -> Proxy {
        let address = address.parse().unwrap();
        Proxy { datacenter: datacenter.into(), address, rack: "r1".into() }
    }

    fn tokens(proxies: &Proxies) -> Vec<i64> {
        let of = |proxy| token(proxies.place(proxy), "org.apache.cassandra.dht.Murmur3Partitioner");
        proxies.iter().map(|proxy| of(proxy).parse().unwrap()).collect()
    }

    #[test]
    fn proxies_of_a_data_centre_share_the_ring_evenly() {
        let all = ["a:1", "a:2", "a:3", "b:1", "c:1", "c:2"].map(|name| {
            let (datacenter, port) = name.split_once(':').unwrap();
            proxy(datacenter, &format!("127.0.0.1:{}{port}", u32::from(datacenter.as_bytes()[0])))
        });
        let proxies = Proxies::new(all.to_vec());
        let tokens = tokens(&proxies);
        let third = (1_i128 << 64) / 3;
        let apart = |a: i64, b: i64| (i128::from(b) - i128::from(a) - third).abs();
        assert!(apart(tokens[0], tokens[1]) <= 1 && apart(tokens[1], tokens[2]) <= 1);
        assert_eq!(tokens[5].wrapping_sub(tokens[4]), i64::MIN, "half of the ring");
        let mut distinct = tokens.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), 6, "{tokens:?}");
    }

    #[test]
    fn one_more_proxy_is_none_when_its_address_is_known() {
        let proxies = Proxies::new(vec![proxy("a", "127.0.0.1:1"), proxy("b", "127.0.0.2:1")]);
        assert_eq!(proxies.with(proxy("x", "[::ffff:127.0.0.1]:1")).iter().count(), 2);
        assert_eq!(proxies.with(proxy("a", "127.0.0.3:1")).iter().count(), 3);
    }

    #[test]
    fn tokens_are_what_the_partitioner_has() {
        assert_eq!(token(1 << 63, "RandomPartitioner"), (1_u128 << 126).to_string());
        assert_eq!(token(0, "o.a.c.dht.ByteOrderedPartitioner"), "0000000000000000");
        assert_eq!(token(0, "Murmur3Partitioner"), (i64::MIN + 1).to_string());
    }

    #[test]
    fn a_host_id_is_a_uuid_of_its_address_alone() {
        let at = |address: &str| host_id(address.parse().unwrap());
        assert_eq!(at("127.0.0.1:9042"), at("127.0.0.1:9042"));
        assert_ne!(at("127.0.0.1:9042"), at("127.0.0.1:9043"));
        assert_ne!(at("127.0.0.1:9042"), at("127.0.0.2:9042"));
        assert_eq!((at("[::1]:1")[6] >> 4, at("[::1]:1")[8] >> 6), (8, 2));
    }
}
