//! The conversation with one Envoy on a discovery stream, without its sockets.
//!
//! State of the world (xDS protocol, "ACK/NACK and resource type instance version"): Envoy repeats
//! all names it wants in every request, with the nonce of the response it answers. Without
//! `error_detail` that is an ACK, with it a NACK. A request with an older nonce crossed a newer
//! response and is passed over: Envoy will answer that one too. What was refused is not sent
//! again until it changes, else the two would go on for ever.

use std::collections::BTreeSet;
use std::sync::Arc;

use prost::Message as _;

use super::messages::{
    Address, Any, ClusterLoadAssignment, DiscoveryRequest, DiscoveryResponse, Endpoint, LbEndpoint,
    Locality, LocalityLbEndpoints, SocketAddress, UInt32Value,
};
use crate::envoy::assignment::{Assignment, LocalityWeight, TYPE_URL};

/// Names one Envoy may ask for; further ones are not heard.
const NAMES_MAX: usize = 4_096;
/// Of a name or message that others wrote, this much is kept.
const TEXT_CHARS_MAX: usize = 512;

/// What one Envoy wants, and what it has been told.
#[derive(Debug, Default)]
pub(super) struct Session {
    node: String,
    names: BTreeSet<String>,
    /// The number of the last response; 0 before the first.
    nonce: u64,
    /// What that response said, by version.
    reported: Vec<(String, String)>,
}

/// What a request says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Received {
    /// On the last response.
    pub(super) verdict: Option<Verdict>,
    /// Whether it asks for something it did not ask for before.
    pub(super) asks: bool,
    /// A type that is not served here.
    pub(super) unknown: Option<String>,
}

/// What an Envoy says of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// ACK.
    Accepted,
    /// NACK.
    Refused {
        /// What it was told.
        version: String,
        /// Why.
        message: String,
    },
}

impl Session {
    /// The Envoy's `node.id`; empty until it has said.
    pub(super) fn node(&self) -> &str {
        &self.node
    }

    /// The clusters it asks for.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Takes in a request.
    pub(super) fn receive(&mut self, request: &DiscoveryRequest) -> Received {
        if let Some(node) = &request.node {
            self.node = bounded(&node.id);
        }
        let type_url = request.type_url.as_str();
        if !type_url.is_empty() && type_url != TYPE_URL {
            return Received { unknown: Some(bounded(type_url)), ..Received::default() };
        }
        let nonce = request.response_nonce.as_str();
        if !nonce.is_empty() && nonce != self.nonce.to_string() {
            return Received::default();
        }
        let verdict = match &request.error_detail {
            _ if nonce.is_empty() => None,
            None => Some(Verdict::Accepted),
            Some(error) => {
                let (version, message) = (self.version(), bounded(&error.message));
                Some(Verdict::Refused { version, message })
            }
        };
        let names = request.resource_names.iter().take(NAMES_MAX);
        let names: BTreeSet<String> = names.cloned().collect();
        let asks = !names.is_subset(&self.names);
        if asks {
            self.reported.clear();
        }
        self.names = names;
        Received { verdict, asks, unknown: None }
    }

    /// What this Envoy has to be told now; `None` when it knows all it asked for.
    pub(super) fn answer(
        &mut self,
        assignments: impl Iterator<Item = Arc<Assignment>>,
    ) -> Option<DiscoveryResponse> {
        let asked: Vec<_> = assignments.filter(|one| self.names.contains(&one.cluster)).collect();
        let tell = asked.iter().map(|one| (one.cluster.clone(), one.version.clone()));
        let tell: Vec<_> = tell.collect();
        if tell == self.reported {
            return None;
        }
        self.reported = tell;
        self.nonce += 1;
        Some(DiscoveryResponse {
            version_info: self.version(),
            resources: asked.iter().map(|assignment| resource(assignment)).collect(),
            type_url: TYPE_URL.to_owned(),
            nonce: self.nonce.to_string(),
        })
    }

    /// One version for all that was told.
    fn version(&self) -> String {
        let versions: Vec<_> = self.reported.iter().map(|(_, version)| version.as_str()).collect();
        versions.join(",")
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

fn resource(assignment: &Assignment) -> Any {
    let value = ClusterLoadAssignment {
        cluster_name: assignment.cluster.clone(),
        endpoints: assignment.localities.iter().map(locality).collect(),
    };
    Any { type_url: TYPE_URL.to_owned(), value: value.encode_to_vec() }
}

fn locality(locality: &LocalityWeight) -> LocalityLbEndpoints {
    let endpoint = |to: &std::net::SocketAddr| {
        let (address, port_value) = (to.ip().to_string(), to.port().into());
        let address = Address { socket_address: Some(SocketAddress { address, port_value }) };
        LbEndpoint { endpoint: Some(Endpoint { address: Some(address) }) }
    };
    LocalityLbEndpoints {
        locality: Some(Locality { region: locality.name.clone() }),
        lb_endpoints: locality.endpoints.iter().map(endpoint).collect(),
        load_balancing_weight: (locality.weight > 0)
            .then_some(UInt32Value { value: locality.weight }),
    }
}
