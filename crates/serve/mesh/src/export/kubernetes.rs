//! A plan for Kubernetes: which zones each endpoint serves, as hints in `EndpointSlice`s.
//!
//! **A share is a number of endpoints.** kube-proxy sends a zone's requests to all endpoints whose
//! hints name the zone, each as many. So a zone with a tenth of its requests to go elsewhere and
//! nine endpoints at home is given one of the other zone. Of all numbers of endpoints the one is
//! taken whose shares differ least from the plan, the largest of equals. Endpoints of a zone that
//! not all are needed of are chosen by what the others left them.
//!
//! **When it misleads.** With few endpoints shares are coarse: two at home and two elsewhere make
//! thirds and quarters, and a twentieth becomes nothing. The plan does not know.
//!
//! **An endpoint without hints** makes kube-proxy ignore all hints, so one that nobody is sent to
//! is left out; a zone that no endpoint names gets all of them. Kubernetes writes hints itself
//! for slices that its controller manages: these here are managed by Evenkeel, and belong to a
//! service without a selector.
//!
//! **Source**: kubernetes.io/docs/concepts/services-networking/topology-aware-routing; API
//! `discovery.k8s.io/v1`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use evenkeel_geo::epoch::SiteId;
use serde_json::{Value, json};

use super::config::KubernetesConfig;
use super::{ExportError, Now};

/// Endpoints of a slice, by the API.
const ENDPOINTS_MAX: usize = 1_000;
/// Shares are compared in millionths.
const PPM: u32 = 1_000_000;

/// The objects, as JSON. The error says why there can be none.
pub(super) fn slices(config: &KubernetesConfig, now: &Now<'_>) -> Result<String, ExportError> {
    let mut slices = Vec::new();
    for is_v6 in [false, true] {
        let of = |site: &super::Standing| {
            let up = site.up.iter().filter(|address| address.is_ipv6() == is_v6);
            up.copied().collect::<Vec<_>>()
        };
        let endpoints: Vec<Vec<SocketAddr>> = now.sites.iter().map(of).collect();
        let counts: Vec<usize> = endpoints.iter().map(Vec::len).collect();
        let hints = hints(now, &counts);
        let mut by_port: BTreeMap<u16, Vec<Value>> = BTreeMap::new();
        for (site, addresses) in endpoints.iter().enumerate() {
            for (address, zones) in addresses.iter().zip(&hints[site]) {
                if zones.is_empty() {
                    continue;
                }
                let name = |zone: &usize| json!({"name": config.zones[*zone]});
                let zones: Vec<Value> = zones.iter().map(name).collect();
                by_port.entry(address.port()).or_default().push(json!({
                    "addresses": [address.ip().to_string()],
                    "conditions": {"ready": true},
                    "zone": config.zones[site],
                    "hints": {"forZones": zones},
                }));
            }
        }
        for (port, endpoints) in by_port {
            if endpoints.len() > ENDPOINTS_MAX {
                return Err(ExportError::TooMany(endpoints.len()));
            }
            slices.push(slice(config, is_v6, port, &endpoints));
        }
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": slices});
    Ok(format!("{list:#}\n"))
}

fn slice(config: &KubernetesConfig, is_v6: bool, port: u16, endpoints: &[Value]) -> Value {
    let (family, suffix) = if is_v6 { ("IPv6", "-v6") } else { ("IPv4", "") };
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{}-evenkeel-{port}{suffix}", config.service),
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
        let chosen = numbers(&now.parts(origin, PPM), counts);
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

/// By site, how many of so many endpoints make these shares, in millionths, as nearly as possible.
fn numbers(shares: &[u32], counts: &[usize]) -> Vec<usize> {
    let most: usize = counts.iter().sum();
    let of = |total: usize| {
        let number = |(share, count): (&u32, &usize)| {
            let exact = f64::from(*share) / f64::from(PPM) * total as f64;
            (exact.round() as usize).min(*count)
        };
        shares.iter().zip(counts).map(number).collect::<Vec<_>>()
    };
    let error = |numbers: &Vec<usize>| {
        let all = numbers.iter().sum::<usize>() as u64;
        let off = |(number, share): (&usize, &u32)| {
            (*number as u64 * u64::from(PPM))
                .checked_div(all)
                .map(|it| it.abs_diff((*share).into()))
        };
        numbers.iter().zip(shares).map(off).sum::<Option<u64>>().unwrap_or(u64::MAX)
    };
    let candidates = (1..=most).rev().map(of);
    candidates.min_by_key(error).unwrap_or_else(|| vec![0; counts.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_of_endpoints_as_near_as_there_are_endpoints() {
        assert_eq!(numbers(&[900_000, 100_000], &[9, 9]), [9, 1]);
        assert_eq!(numbers(&[500_000, 500_000], &[4, 6]), [4, 4]);
        assert_eq!(numbers(&[PPM, 0], &[3, 3]), [3, 0]);
        assert_eq!(numbers(&[950_000, 50_000], &[2, 2]), [2, 0], "a twentieth of two is none");
        assert_eq!(numbers(&[400_000, 300_000, 300_000], &[4, 3, 3]), [4, 3, 3]);
        assert_eq!(numbers(&[PPM, 0], &[0, 3]), [0, 0]);
    }
}
