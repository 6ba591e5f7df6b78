//! A plan for Istio: how a locality's requests are distributed, in a `DestinationRule`.
//!
//! Istio's proxies split by whole percents that sum to 100; a locality that gets nothing is left
//! out, for a weight of 0 is refused. `distribute` does without `outlierDetection`, which failover
//! needs: what else a rule says of a host is the user's, and server-side apply keeps it.
//!
//! **Source**: istio.io/latest/docs/reference/config/networking/destination-rule,
//! `LocalityLoadBalancerSetting`.

use serde_json::{Map, json};

use super::Now;
use super::config::IstioConfig;

/// Weights of an origin sum to this.
const PERCENT: u32 = 100;

/// The object, as JSON, which `kubectl` takes as it takes YAML.
pub(super) fn rule(config: &IstioConfig, now: &Now<'_>) -> String {
    let parts = now.parts(now.home, PERCENT).into_iter().zip(&config.localities);
    let to: Map<_, _> = parts
        .filter(|(part, _)| *part > 0)
        .map(|(part, locality)| (locality.clone(), part.into()))
        .collect();
    let from = &config.localities[now.home.index()];
    let rule = json!({
        "apiVersion": "networking.istio.io/v1",
        "kind": "DestinationRule",
        "metadata": {"name": config.name, "namespace": config.namespace},
        "spec": {
            "host": config.host,
            "trafficPolicy": {"loadBalancer": {"localityLbSetting": {
                "enabled": true,
                "distribute": [{"from": from, "to": to}],
            }}},
        },
    });
    format!("{rule:#}\n")
}
