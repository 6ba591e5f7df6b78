//! What Envoy is told: localities, their weights, their endpoints.
//!
//! **Weights** are whole parts of [`WEIGHT_TOTAL`] ([`parts`]). Their sum stays far below the
//! 2³² − 1 that Envoy allows for one priority. All localities have priority 0: with more than one
//! priority Envoy would fill the first and spill over, and weights would count for nothing between
//! them.
//!
//! **What gets nothing has no weight.** Envoy refuses a weight of 0 (its rule is "at least 1"), and
//! the whole assignment with it. A locality without a weight gets no requests, but it is there:
//! were it left out, Envoy would close its connections, and never report what it had sent there
//! since its last report, so that every change of the plan would look like a lull in demand.
//!
//! **Replicas that are down are left out** rather than marked unhealthy. Envoy scales the weight of
//! a locality down when less than 1 / 1.4 of its endpoints are healthy, and what it loses goes to
//! all others by weight. Our splitter keeps the plan's shares among those who can serve, and keeps
//! at home what no replica of a destination can: the same is done here, before Envoy sees it.

use std::net::SocketAddr;
use std::ops::Range;

use evenkeel_core::Health;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::PlanRow;
use serde_json::{Value, json};

use crate::shares::parts;

/// The sum of an assignment's weights: parts per million.
pub const WEIGHT_TOTAL: u32 = 1_000_000;

/// The type of what discovery is asked for and answers.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";

/// An upstream, as a cluster of Envoy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The name Envoy asks for: the upstream's.
    pub name: String,
    /// The site whose users' requests these are.
    pub home: SiteId,
    /// By [`SiteId`], every site of the plan.
    pub localities: Vec<Locality>,
}

/// A data centre.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locality {
    /// Its name: Envoy's `locality.region`.
    pub name: String,
    /// Who serves there; empty where we know no way.
    pub endpoints: Vec<SocketAddr>,
    /// The upstream's slots that these are, in the same order.
    pub slots: Range<usize>,
}

/// What Envoy is told of one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// The cluster's name.
    pub cluster: String,
    /// The plan's epoch (`none` before there is one, `stale` after one that is too old), a dot,
    /// and how often this process has changed its mind.
    pub version: String,
    /// Those with somebody to serve, in the order of their sites.
    pub localities: Vec<LocalityWeight>,
}

/// One locality of an assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalityWeight {
    /// Envoy's `locality.region`.
    pub name: String,
    /// In parts of [`WEIGHT_TOTAL`]; 0 for one that gets no requests, which is written without a
    /// weight.
    pub weight: u32,
    /// Who serves there; never empty.
    pub endpoints: Vec<SocketAddr>,
}

impl Cluster {
    /// What Envoy shall do by a plan; without one, all of it at home. `health` is by slot.
    ///
    /// Empty only when home has no endpoints at all.
    pub fn weigh(&self, row: Option<&PlanRow>, health: &[Health]) -> Vec<LocalityWeight> {
        let is_up = |slot: usize| health.get(slot).is_none_or(|health| *health == Health::Up);
        let endpoints = |(site, locality): (usize, &Locality)| {
            let slotted = locality.endpoints.iter().zip(locality.slots.clone());
            let up: Vec<_> = slotted.filter(|(_, slot)| is_up(*slot)).map(|(to, _)| *to).collect();
            // Nobody left at home: those who were there are tried all the same.
            let is_last = up.is_empty() && site == self.home.index();
            if is_last { locality.endpoints.clone() } else { up }
        };
        let endpoints: Vec<_> = self.localities.iter().enumerate().map(endpoints).collect();
        let is_usable: Vec<bool> =
            endpoints.iter().map(|endpoints| !endpoints.is_empty()).collect();
        let weights = parts(row, self.home, &is_usable, WEIGHT_TOTAL);
        let named = self.localities.iter().zip(endpoints).zip(weights);
        named
            .filter(|((_, endpoints), _)| !endpoints.is_empty())
            .map(|((locality, endpoints), weight)| LocalityWeight {
                name: locality.name.clone(),
                weight,
                endpoints,
            })
            .collect()
    }
}

impl Assignment {
    /// The text of a file that Envoy's file EDS reads: a `DiscoveryResponse` as JSON.
    pub fn to_json(&self) -> String {
        let endpoint = |to: &SocketAddr| {
            let address = json!({"address": to.ip().to_string(), "port_value": to.port()});
            json!({"endpoint": {"address": {"socket_address": address}}})
        };
        let locality = |locality: &LocalityWeight| -> Value {
            let mut value = json!({
                "locality": {"region": locality.name},
                "priority": 0,
                "lb_endpoints": locality.endpoints.iter().map(endpoint).collect::<Vec<_>>(),
            });
            if locality.weight > 0 {
                value["load_balancing_weight"] = locality.weight.into();
            }
            value
        };
        let resource = json!({
            "@type": TYPE_URL,
            "cluster_name": self.cluster,
            "endpoints": self.localities.iter().map(locality).collect::<Vec<_>>(),
        });
        let response = json!({"version_info": self.version, "resources": [resource]});
        format!("{response:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(demand: u64, rates: &[u64]) -> PlanRow {
        let origin = SiteId::new(0);
        let rates_per_1000_s = rates.to_vec();
        PlanRow { epoch: 7, origin, demand_per_1000_s: demand, rates_per_1000_s }
    }

    /// Two replicas in each of three sites.
    fn cluster() -> Cluster {
        let locality = |site: usize| Locality {
            name: format!("dc{site}"),
            endpoints: vec![
                SocketAddr::from(([127, 0, 0, 1], 9000 + 10 * site as u16)),
                SocketAddr::from(([127, 0, 0, 1], 9001 + 10 * site as u16)),
            ],
            slots: 2 * site..2 * site + 2,
        };
        let localities = (0..3).map(locality).collect();
        Cluster { name: "shop".to_owned(), home: SiteId::new(0), localities }
    }

    fn reported(localities: &[LocalityWeight]) -> Vec<(&str, u32, usize)> {
        let reported = localities.iter();
        reported.map(|one| (one.name.as_str(), one.weight, one.endpoints.len())).collect()
    }

    #[test]
    fn shares_become_weights_of_a_million() {
        let plan = row(1_000, &[700, 300, 0]);
        let localities = cluster().weigh(Some(&plan), &[]);
        assert_eq!(
            reported(&localities),
            [("dc0", 700_000, 2), ("dc1", 300_000, 2), ("dc2", 0, 2)]
        );
    }

    #[test]
    fn without_a_plan_or_demand_all_is_at_home() {
        for plan in [None, Some(row(0, &[0, 0, 0]))] {
            let localities = cluster().weigh(plan.as_ref(), &[]);
            let expected = [("dc0", WEIGHT_TOTAL, 2), ("dc1", 0, 2), ("dc2", 0, 2)];
            assert_eq!(reported(&localities), expected);
        }
    }

    #[test]
    fn what_has_no_rate_stays_at_home() {
        // Nobody can serve 200 of 1,000.
        let localities = cluster().weigh(Some(&row(1_000, &[500, 300, 0])), &[]);
        assert_eq!(
            reported(&localities),
            [("dc0", 700_000, 2), ("dc1", 300_000, 2), ("dc2", 0, 2)]
        );
    }

    #[test]
    fn a_replica_that_is_down_or_leaving_is_not_told() {
        let plan = row(1_000, &[500, 300, 200]);
        let (up, down, leaving) = (Health::Up, Health::Down, Health::Draining);
        let localities = cluster().weigh(Some(&plan), &[up, down, leaving, up, up, up]);
        let expected = [("dc0", 500_000, 1), ("dc1", 300_000, 1), ("dc2", 200_000, 2)];
        assert_eq!(reported(&localities), expected);
        assert_eq!(localities[1].endpoints, [cluster().localities[1].endpoints[1]]);
    }

    #[test]
    fn the_share_of_a_dead_site_stays_at_home() {
        let plan = row(1_000, &[500, 300, 200]);
        let (up, down) = (Health::Up, Health::Down);
        let localities = cluster().weigh(Some(&plan), &[up, up, down, down, up, up]);
        assert_eq!(reported(&localities), [("dc0", 800_000, 2), ("dc2", 200_000, 2)]);
    }

    #[test]
    fn a_dead_home_is_tried_all_the_same() {
        let plan = row(1_000, &[500, 300, 200]);
        let localities = cluster().weigh(Some(&plan), &[Health::Down; 6]);
        assert_eq!(reported(&localities), [("dc0", WEIGHT_TOTAL, 2)]);
    }

    #[test]
    fn thirds_go_to_the_lower_index_first() {
        let localities = cluster().weigh(Some(&row(3, &[1, 1, 1])), &[]);
        assert_eq!(reported(&localities).len(), 3);
        let weights: Vec<u32> = localities.iter().map(|one| one.weight).collect();
        assert_eq!(weights, [333_334, 333_333, 333_333]);
    }

    #[test]
    fn the_file_is_a_discovery_response() {
        let assignment = Assignment {
            cluster: "shop".to_owned(),
            version: "7.1".to_owned(),
            localities: cluster().weigh(Some(&row(10, &[9, 1, 0])), &[]),
        };
        let read: Value = serde_json::from_str(&assignment.to_json()).unwrap();
        assert_eq!(read["version_info"], "7.1");
        let resource = &read["resources"][0];
        assert_eq!(resource["@type"], TYPE_URL);
        assert_eq!(resource["cluster_name"], "shop");
        assert_eq!(resource["endpoints"].as_array().map(Vec::len), Some(3));
        assert!(resource["endpoints"][2].get("load_balancing_weight").is_none(), "0 is refused");
        let second = &resource["endpoints"][1];
        assert_eq!(second["locality"]["region"], "dc1");
        assert_eq!(second["load_balancing_weight"], 100_000);
        let address = &second["lb_endpoints"][0]["endpoint"]["address"]["socket_address"];
        assert_eq!(
            (&address["address"], &address["port_value"]),
            (&json!("127.0.0.1"), &json!(9010))
        );
    }
}
