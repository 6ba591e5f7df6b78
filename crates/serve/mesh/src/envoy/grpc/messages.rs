//! Of Envoy's messages, the fields that are written or read here; what else comes is passed over,
//! as Protocol Buffers have it. Written by hand: the generated code of all messages that these may
//! contain takes longer to compile than all else of this crate. `tests/envoy` has a real Envoy
//! read and write them.
//!
//! Source: data-plane-api of Envoy, `envoy/{config/core,config/endpoint,service}/…/v3`.

use prost::Message;

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(super) value: Vec<u8>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Duration {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}

/// `google.protobuf.UInt32Value`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct UInt32Value {
    #[prost(uint32, tag = "1")]
    pub(super) value: u32,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Status {
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

/// `envoy.config.core.v3.Node`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) id: String,
}

/// `envoy.config.core.v3.Locality`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Locality {
    #[prost(string, tag = "1")]
    pub(super) region: String,
}

/// `envoy.config.core.v3.SocketAddress`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(uint32, tag = "3")]
    pub(super) port_value: u32,
}

/// `envoy.config.core.v3.Address`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
}

/// `envoy.config.endpoint.v3.Endpoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Endpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
}

/// `envoy.config.endpoint.v3.LbEndpoint`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) endpoint: Option<Endpoint>,
}

/// `envoy.config.endpoint.v3.LocalityLbEndpoints`. Its priority is 0, which is not written.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LocalityLbEndpoints {
    #[prost(message, optional, tag = "1")]
    pub(super) locality: Option<Locality>,
    #[prost(message, repeated, tag = "2")]
    pub(super) lb_endpoints: Vec<LbEndpoint>,
    #[prost(message, optional, tag = "3")]
    pub(super) load_balancing_weight: Option<UInt32Value>,
}

/// `envoy.config.endpoint.v3.ClusterLoadAssignment`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ClusterLoadAssignment {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) endpoints: Vec<LocalityLbEndpoints>,
}

/// `envoy.service.discovery.v3.DiscoveryRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryRequest {
    #[prost(message, optional, tag = "2")]
    pub(super) node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub(super) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<Status>,
}

/// `envoy.service.discovery.v3.DiscoveryResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryResponse {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

/// `envoy.config.endpoint.v3.UpstreamLocalityStats`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct UpstreamLocalityStats {
    #[prost(message, optional, tag = "1")]
    pub(super) locality: Option<Locality>,
    #[prost(uint64, tag = "2")]
    pub(super) total_successful_requests: u64,
    #[prost(uint64, tag = "4")]
    pub(super) total_error_requests: u64,
    #[prost(uint64, tag = "8")]
    pub(super) total_issued_requests: u64,
}

/// `envoy.config.endpoint.v3.ClusterStats`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ClusterStats {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) upstream_locality_stats: Vec<UpstreamLocalityStats>,
    #[prost(uint64, tag = "3")]
    pub(super) total_dropped_requests: u64,
    #[prost(message, optional, tag = "4")]
    pub(super) load_report_interval: Option<Duration>,
    #[prost(string, tag = "6")]
    pub(super) cluster_service_name: String,
}

/// `envoy.service.load_stats.v3.LoadStatsRequest`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LoadStatsRequest {
    #[prost(message, repeated, tag = "2")]
    pub(super) cluster_stats: Vec<ClusterStats>,
}

/// `envoy.service.load_stats.v3.LoadStatsResponse`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct LoadStatsResponse {
    #[prost(string, repeated, tag = "1")]
    pub(super) clusters: Vec<String>,
    #[prost(message, optional, tag = "2")]
    pub(super) load_reporting_interval: Option<Duration>,
}
