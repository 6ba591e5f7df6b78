//! EndpointSlices as JSON, and whom they offer.
//!
//! A Service has several: a hundred endpoints are in one, those of IPv4 and IPv6 are apart, and
//! so are pods whose port of one name has other numbers. While the controller moves an endpoint
//! it is in two.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use evenkeel_settings::address::{HostPort, Target, check_host};
use serde::Deserialize;

/// Which port of the pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// By its name in the Service.
    Name(String),
    /// By the number at the pods.
    Number(u16),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// An EndpointSlice, as far as it matters here.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Slice {
    pub(crate) metadata: Metadata,
    #[serde(default)]
    endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    ports: Option<Vec<SlicePort>>,
}

/// Of any object and of lists.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Metadata {
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) resource_version: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    /// All of the same pod; clients use the first.
    addresses: Vec<String>,
    #[serde(default)]
    conditions: Option<Conditions>,
    #[serde(default)]
    target_ref: Option<TargetRef>,
}

/// `None` is unknown, which the API says to take for ready, serving and not terminating.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Conditions {
    ready: Option<bool>,
    serving: Option<bool>,
    terminating: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
struct TargetRef {
    #[serde(default)]
    uid: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct SlicePort {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    port: Option<u16>,
    #[serde(default)]
    protocol: Option<String>,
}

impl SlicePort {
    fn is_tcp(&self) -> bool {
        self.protocol.as_deref().is_none_or(|protocol| protocol == "TCP")
    }
}

impl fmt::Display for SlicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.port.map_or("any".to_owned(), |number| number.to_string());
        match self.name.as_deref().unwrap_or_default() {
            "" => f.write_str(&number),
            name => write!(f, "{name} ({number})"),
        }
    }
}

/// Whom a Service offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offer {
    /// These, and nobody else.
    These(BTreeSet<Target>),
    /// Nobody, with the reason.
    Nobody(String),
    /// There are ready endpoints, but not with the port: what was asked for, and what there is.
    NoPort {
        /// The port of the configuration.
        wanted: String,
        /// Those of the slices.
        known: String,
    },
}

/// All slices of a Service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slices(BTreeMap<String, Slice>);

impl FromIterator<Slice> for Slices {
    fn from_iter<I: IntoIterator<Item = Slice>>(slices: I) -> Self {
        Self(slices.into_iter().map(|slice| (slice.metadata.name.clone(), slice)).collect())
    }
}

impl Slices {
    pub(crate) fn put(&mut self, slice: Slice) {
        self.0.insert(slice.metadata.name.clone(), slice);
    }

    pub(crate) fn take(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// How many endpoints they have in all, each slice counted as one too.
    pub(crate) fn size(&self) -> usize {
        let count = |slice: &Slice| 1 + slice.endpoints.as_ref().map_or(0, Vec::len);
        self.0.values().map(count).sum()
    }

    /// Whom they offer: who is ready and not leaving. Where there is nobody of these, those that
    /// leave and still serve, as Kubernetes' own proxies do.
    pub(crate) fn offer(&self, port: Option<&Port>) -> Offer {
        let ready = |it: Conditions| it.ready.unwrap_or(true) && !it.terminating.unwrap_or(false);
        let last = |it: Conditions| {
            it.serving.or(it.ready).unwrap_or(true) && it.terminating.unwrap_or(false)
        };
        match self.those(port, ready) {
            Offer::Nobody(why) => match self.those(port, last) {
                Offer::Nobody(_) => Offer::Nobody(why),
                leaving => leaving,
            },
            ready => ready,
        }
    }

    fn those(&self, port: Option<&Port>, is_wanted: impl Fn(Conditions) -> bool) -> Offer {
        // A pod with IPv4 and IPv6 is one replica, known by the first of its addresses.
        let mut pods: BTreeMap<&str, BTreeSet<Target>> = BTreeMap::new();
        let (mut offered, mut is_lost, mut count) = (BTreeSet::new(), false, 0);
        for slice in self.0.values() {
            let number = number_of(slice.ports.as_deref().unwrap_or_default(), port);
            for endpoint in slice.endpoints.iter().flatten() {
                count += 1;
                if !is_wanted(endpoint.conditions.unwrap_or_default()) {
                    continue;
                }
                let Some(number) = number else {
                    is_lost = true;
                    continue;
                };
                let Some(at) = endpoint.addresses.first().and_then(|it| at(it, number)) else {
                    continue;
                };
                let uid = endpoint.target_ref.as_ref().and_then(|it| it.uid.as_deref());
                match uid {
                    Some(uid) => drop(pods.entry(uid).or_default().insert(at)),
                    None => drop(offered.insert(at)),
                }
            }
        }
        for addresses in pods.into_values() {
            let is_v4 = |at: &&Target| matches!(at, Target::Address(SocketAddr::V4(_)));
            match addresses.iter().find(is_v4) {
                Some(v4) => drop(offered.insert(v4.clone())),
                None => offered.extend(addresses.into_iter().next()),
            }
        }
        match (offered.is_empty(), is_lost) {
            (false, _) => Offer::These(offered),
            (true, true) => Offer::NoPort {
                wanted: port.map_or("of its own".to_owned(), ToString::to_string),
                known: self.ports(),
            },
            (true, false) if self.0.is_empty() => {
                Offer::Nobody("no such service, or one without EndpointSlices".to_owned())
            }
            (true, false) => Offer::Nobody(format!("none of its {count} endpoints is ready")),
        }
    }

    fn ports(&self) -> String {
        let all = self.0.values().flat_map(|slice| slice.ports.iter().flatten());
        let all: BTreeSet<String> = all.filter(|it| it.is_tcp()).map(ToString::to_string).collect();
        let all: Vec<String> = all.into_iter().take(10).collect();
        if all.is_empty() { "none".to_owned() } else { all.join(", ") }
    }
}

/// The number of a port in one slice.
fn number_of(ports: &[SlicePort], wanted: Option<&Port>) -> Option<u16> {
    let mut tcp = ports.iter().filter(|port| port.is_tcp());
    let number = match wanted {
        Some(Port::Name(name)) => {
            tcp.find(|port| port.name.as_deref().unwrap_or_default() == name)?.port
        }
        // A port without a number is every port.
        Some(Port::Number(number)) => {
            let is_it = |port: &SlicePort| port.port.is_none_or(|it| it == *number);
            tcp.any(is_it).then_some(*number)
        }
        None => match (tcp.next(), tcp.next()) {
            (Some(only), None) => only.port,
            _ => None,
        },
    };
    number.filter(|number| *number != 0)
}

fn at(address: &str, port: u16) -> Option<Target> {
    match address.parse::<IpAddr>() {
        Ok(ip) => Some(Target::Address(SocketAddr::new(ip.to_canonical(), port))),
        // Slices of the kind FQDN.
        Err(_) if check_host(address).is_ok() => {
            Some(Target::Name(HostPort { host: address.to_lowercase(), port }))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn slices(all: &[(&str, Value, Value)]) -> Slices {
        let slice = |(name, ports, endpoints): &(&str, Value, Value)| {
            let written = json!({
                "addressType": "IPv4", "apiVersion": "discovery.k8s.io/v1",
                "metadata": {"name": name, "resourceVersion": "7", "labels": {}},
                "ports": ports, "endpoints": endpoints,
            });
            serde_json::from_value::<Slice>(written).unwrap()
        };
        all.iter().map(slice).collect()
    }

    fn http() -> Value {
        json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
    }

    fn pod(ip: &str, uid: &str, conditions: Value) -> Value {
        let mut pod = json!({"addresses": [ip], "nodeName": "n",
                             "targetRef": {"kind": "Pod", "name": uid, "uid": uid}});
        pod["conditions"] = conditions;
        pod
    }

    fn offered(slices: &Slices, port: Option<&Port>) -> Vec<String> {
        match slices.offer(port) {
            Offer::These(who) => who.iter().map(ToString::to_string).collect(),
            Offer::Nobody(why) => vec![why],
            Offer::NoPort { wanted, known } => vec![format!("{wanted}? {known}")],
        }
    }

    #[test]
    fn who_is_ready_is_offered_and_who_leaves_only_where_nobody_is_ready() {
        let of = |all: Value| offered(&slices(&[("a", http(), all)]), None);
        let ready = pod("10.0.0.1", "a", json!({"ready": true}));
        let unknown = json!({"addresses": ["10.0.0.2"]});
        let starting = pod("10.0.0.3", "c", json!({"ready": false, "serving": false}));
        let leaving =
            pod("10.0.0.4", "d", json!({"ready": false, "serving": true, "terminating": true}));
        // `publishNotReadyAddresses` calls everybody ready.
        let published =
            pod("10.0.0.5", "e", json!({"ready": true, "serving": false, "terminating": true}));
        let all = json!([ready, unknown, starting, leaving, published]);
        assert_eq!(of(all), ["10.0.0.1:8080", "10.0.0.2:8080"]);
        assert_eq!(of(json!([starting, leaving, published])), ["10.0.0.4:8080"]);
        assert_eq!(of(json!([starting])), ["none of its 1 endpoints is ready"]);
        assert_eq!(of(Value::Null), ["none of its 0 endpoints is ready"]);
        let none = offered(&slices(&[]), None);
        assert_eq!(none, ["no such service, or one without EndpointSlices"]);
    }

    #[test]
    fn slices_are_merged_and_a_pod_with_ipv4_and_ipv6_is_one() {
        let ready = || json!({"ready": true});
        let first = json!([pod("10.0.0.1", "a", ready()), pod("10.0.0.2", "b", ready())]);
        let moved = json!([pod("10.0.0.2", "b", ready()), pod("10.0.0.3", "c", ready())]);
        let sixes = json!([pod("2001:db8::1", "a", ready()), pod("2001:db8::9", "z", ready())]);
        let names = json!([{"addresses": ["Far.test"]}, {"addresses": ["not a name"]}]);
        let mut all = slices(&[
            ("1", http(), first),
            ("2", http(), moved),
            ("3", http(), sixes),
            ("4", http(), names),
        ]);
        let both = ["10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "[2001:db8::9]:8080"];
        assert_eq!(offered(&all, None)[..4], both);
        assert_eq!(offered(&all, None)[4..], ["far.test:8080"]);
        all.take("1");
        all.take("nobody");
        assert_eq!(offered(&all, None)[0], "10.0.0.2:8080", "it is in the other one, too");
        assert_eq!(offered(&all, None)[2], "[2001:db8::1]:8080");
        assert_eq!(all.size(), 9);
    }

    #[test]
    fn a_port_has_its_number_in_each_slice() {
        let one = |ip: &str| json!([{"addresses": [ip]}]);
        let two = json!([{"name": "http", "port": 8080}, {"name": "metrics", "port": 9090},
                         {"name": "dns", "port": 53, "protocol": "UDP"}]);
        let other = json!([{"name": "http", "port": 3000}]);
        let all = slices(&[("1", two, one("10.0.0.1")), ("2", other, one("10.0.0.2"))]);
        let by = |port: Port| offered(&all, Some(&port));
        assert_eq!(by(Port::Name("http".to_owned())), ["10.0.0.1:8080", "10.0.0.2:3000"]);
        assert_eq!(by(Port::Number(3000)), ["10.0.0.2:3000"]);
        let known = "http (3000), http (8080), metrics (9090)";
        assert_eq!(by(Port::Name("dns".to_owned())), [format!("dns? {known}")]);
        assert_eq!(offered(&all, None), ["10.0.0.2:3000"], "the other has several");
        let bare = slices(&[("1", json!([{"name": ""}]), one("10.0.0.1"))]);
        assert_eq!(offered(&bare, Some(&Port::Number(7))), ["10.0.0.1:7"], "any port");
        assert_eq!(offered(&bare, None), ["of its own? any"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..100),
                "(\\{|\\}|\\[|\\]|\"(metadata|endpoints|ports|addresses)\":|null|,){0,30}"
                    .prop_map(String::into_bytes),
            ],
        ) {
            if let Ok(slice) = serde_json::from_slice::<Slice>(&bytes) {
                let _ = std::iter::once(slice).collect::<Slices>().offer(None);
            }
        }
    }
}
