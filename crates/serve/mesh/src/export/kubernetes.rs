//! A plan for Kubernetes: which zones each endpoint serves, as hints in `EndpointSlice`s.
//!
//! **A share is a number of endpoints.** kube-proxy sends a zone's requests to all endpoints whose
//! hints name the zone, each as many. So a zone with a tenth of its requests to go elsewhere and
//! nine endpoints at home is given one of the other zone. A zone that keeps some of its requests
//! keeps all its endpoints: with fewer, one of them would get what the plan spreads over all. Of
//! all numbers of endpoints elsewhere the one is taken whose shares differ least from the plan, the
//! largest of equals. Endpoints of a zone that not all are needed of are chosen by what the others
//! left them.
//!
//! **When it misleads.** With few endpoints shares are coarse: two at home and two elsewhere make
//! thirds and halves, and a twentieth becomes nothing; nine at home and one elsewhere send a tenth
//! away, though the plan says a half. The plan does not know.
//!
//! **Endpoints of other zones** are what `[upstream.NAME.sites]` lists: here it must list
//! replicas. Proxies that trust forwarded requests would serve those of kube-proxy, which passed no
//! proxy of ours, without counting them as demand.
//!
//! **What is no more needed** is written empty: `kubectl apply` deletes nothing. So every port that
//! the configuration has has its slices, as many as all its endpoints would need.
//!
//! **An endpoint without hints** makes kube-proxy ignore all hints, so one that nobody is sent to
//! is left out; a zone that no endpoint names gets all of them. Kubernetes writes hints itself
//! for slices that its controller manages: these here are managed by Evenkeel, and belong to a
//! service without a selector.
//!
//! **Source**: kubernetes.io/docs/concepts/services-networking/topology-aware-routing; API
//! `discovery.k8s.io/v1`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;

use evenkeel_geo::epoch::SiteId;
use serde_json::{Value, json};

use super::Now;
use super::config::KubernetesConfig;

/// Endpoints of a slice, by the API.
const ENDPOINTS_MAX: usize = 1_000;
/// Shares are compared in millionths.
const PPM: u32 = 1_000_000;

/// The objects, as JSON.
pub(super) fn slices(config: &KubernetesConfig, now: &Now<'_>) -> String {
    let mut slices = Vec::new();
    for is_v6 in [false, true] {
        let of = |all: &[SocketAddr]| {
            // An IPv4 address in the words of IPv6 is refused.
            let plain = |at: &SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
            let of_family = all.iter().map(plain).filter(|address| address.is_ipv6() == is_v6);
            of_family.collect::<Vec<_>>()
        };
        let endpoints: Vec<Vec<SocketAddr>> = now.sites.iter().map(|site| of(&site.up)).collect();
        let counts: Vec<usize> = endpoints.iter().map(Vec::len).collect();
        let hints = hints(now, &counts);
        // By port, how many there could be, and those there are.
        let mut by_port: BTreeMap<u16, (usize, Vec<Value>)> = BTreeMap::new();
        for address in now.sites.iter().flat_map(|site| of(&site.all)) {
            by_port.entry(address.port()).or_default().0 += 1;
        }
        for (site, addresses) in endpoints.iter().enumerate() {
            for (address, zones) in addresses.iter().zip(&hints[site]) {
                if zones.is_empty() {
                    continue;
                }
                let name = |zone: &usize| json!({"name": config.zones[*zone]});
                let zones: Vec<Value> = zones.iter().map(name).collect();
                by_port.entry(address.port()).or_default().1.push(json!({
                    "addresses": [address.ip().to_string()],
                    "conditions": {"ready": true},
                    "zone": config.zones[site],
                    "hints": {"forZones": zones},
                }));
            }
        }
        for (port, (possible, endpoints)) in by_port {
            let mut chunks = endpoints.chunks(ENDPOINTS_MAX);
            for number in 1..=possible.max(endpoints.len()).div_ceil(ENDPOINTS_MAX) {
                let chunk = chunks.next().unwrap_or_default();
                slices.push(slice(config, is_v6, (port, number), chunk));
            }
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": slices});
    format!("{list:#}\n")
}

/// A slice of a port: which of its slices it is, from 1.
fn slice(
    config: &KubernetesConfig,
    is_v6: bool,
    (port, number): (u16, usize),
    endpoints: &[Value],
) -> Value {
    let (family, suffix) = if is_v6 { ("IPv6", "-v6") } else { ("IPv4", "") };
    let further = if number > 1 { format!("-{number}") } else { String::new() };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{}-evenkeel-{port}{suffix}{further}", config.service),
            "namespace": config.namespace,
            "labels": {
                "kubernetes.io/service-name": config.service,
                "endpointslice.kubernetes.io/managed-by": "evenkeel",
            },
        },
        "addressType": family,
        "ports": [{"name": config.port_name, "protocol": "TCP", "port": port}],
        "endpoints": endpoints,
    })
}

/// By site and endpoint, the zones it serves.
fn hints(now: &Now<'_>, counts: &[usize]) -> Vec<Vec<Vec<usize>>> {
    let mut hints: Vec<Vec<Vec<usize>>> =
        counts.iter().map(|count| vec![Vec::new(); *count]).collect();
    // What an endpoint is sent by the zones before, in requests per 1,000 s.
    let mut loads: Vec<Vec<u64>> = counts.iter().map(|count| vec![0; *count]).collect();
    for zone in 0..counts.len() {
        let origin = SiteId::new(zone);
        let whole = now.rows.and_then(|rows| rows.get(zone)).map_or(0, |row| row.demand_per_1000_s);
        let chosen = numbers(&now.parts(origin, PPM), counts, zone);
        let all = chosen.iter().sum::<usize>().max(1) as u64;
        for (site, count) in chosen.into_iter().enumerate() {
            let mut idle: Vec<usize> = (0..counts[site]).collect();
            idle.sort_by_key(|&endpoint| loads[site][endpoint]);
            for endpoint in idle.into_iter().take(count) {
                hints[site][endpoint].push(zone);
                loads[site][endpoint] += (whole / all).max(1);
            }
        }
    }
    hints
}

/// By site, how many of so many endpoints make these shares, in millionths, as nearly as possible:
/// all at home, where home has a share.
fn numbers(shares: &[u32], counts: &[usize], home: usize) -> Vec<usize> {
    // As many of one site as there could be, and of all others in the same ratio to their shares.
    let of = |(site, number): (usize, usize)| {
        let whole = u64::from(shares[site]);
        let ratio = |(share, count): (&u32, &usize)| {
            let nearest = (u64::from(*share) * number as u64 + whole / 2) / whole;
            (*count).min(nearest as usize)
        };
        shares.iter().zip(counts).map(ratio).collect::<Vec<_>>()
    };
    let error = |numbers: &[usize]| {
        let all = numbers.iter().sum::<usize>() as u64;
        let off = |(number, share): (&usize, &u32)| {
            (*number as u64 * u64::from(PPM))
                .checked_div(all)
                .map(|it| it.abs_diff((*share).into()))
        };
        numbers.iter().zip(shares).map(off).sum::<Option<u64>>().unwrap_or(u64::MAX)
    };
    let sites = (0..shares.len()).filter(|&site| shares[site] > 0);
    let candidates = sites.flat_map(|site| (1..=counts[site]).map(move |number| (site, number)));
    let is_whole = |numbers: &Vec<usize>| shares[home] == 0 || numbers[home] == counts[home];
    let best = candidates
        .map(of)
        .filter(is_whole)
        .min_by_key(|numbers| (error(numbers), Reverse(numbers.iter().sum::<usize>())));
    best.unwrap_or_else(|| {
        let mut alone = vec![0; counts.len()];
        alone[home] = counts[home];
        alone
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_of_endpoints_as_near_as_there_are_endpoints() {
        assert_eq!(numbers(&[900_000, 100_000], &[9, 9], 0), [9, 1]);
        assert_eq!(numbers(&[500_000, 500_000], &[4, 6], 0), [4, 4]);
        assert_eq!(numbers(&[PPM, 0], &[3, 3], 0), [3, 0]);
        assert_eq!(numbers(&[950_000, 50_000], &[2, 2], 0), [2, 0], "a twentieth of two is none");
        assert_eq!(numbers(&[400_000, 300_000, 300_000], &[4, 3, 3], 0), [4, 3, 3]);
        assert_eq!(numbers(&[PPM, 0], &[0, 3], 0), [0, 0]);
        assert_eq!(numbers(&[0, PPM], &[3, 2], 0), [0, 2], "who sends all away keeps none");
    }

    #[test]
    fn a_zone_that_keeps_some_of_its_requests_keeps_all_its_endpoints() {
        assert_eq!(numbers(&[500_000, 500_000], &[9, 1], 0), [9, 1]);
        assert_eq!(numbers(&[500_000, 500_000], &[1, 9], 1), [1, 9]);
        assert_eq!(numbers(&[10_000, 990_000], &[9, 9], 0), [9, 9]);
        assert_eq!(numbers(&[200_000, 400_000, 400_000], &[5, 2, 3], 0), [5, 2, 3]);
        assert_eq!(numbers(&[500_000, 500_000], &[9, 0], 0), [9, 0]);
    }
}
