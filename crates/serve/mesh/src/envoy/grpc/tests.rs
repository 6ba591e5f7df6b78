//! The conversation by hand, and whole streams with clients of our own.

use std::net::{Ipv4Addr, SocketAddr};

use envoy_types::pb::envoy::config::core::v3::{Locality as Place, Node};
use envoy_types::pb::envoy::config::endpoint::v3::{ClusterLoadAssignment, UpstreamLocalityStats};
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client as ads;
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_client as lrs;
use envoy_types::pb::google::rpc;
use evenkeel_geo::epoch::SiteId;
use prost::Message as _;
use tonic::transport::Channel;

use super::session::Received;
use super::*;
use crate::envoy::assignment::{Assignment, Cluster, Locality, LocalityWeight, TYPE_URL};
use evenkeel_runtime::accept::worker_runtime;

fn assignment(cluster: &str, version: &str, weights: [u32; 2]) -> Arc<Assignment> {
    let locality = |(site, weight): (usize, u32)| LocalityWeight {
        name: format!("dc{site}"),
        weight,
        endpoints: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 9000 + site as u16))],
    };
    let localities = weights.into_iter().enumerate().map(locality).collect();
    let (cluster, version) = (cluster.to_owned(), version.to_owned());
    Arc::new(Assignment { cluster, version, localities })
}

fn asking(names: &[&str], nonce: &str) -> DiscoveryRequest {
    DiscoveryRequest {
        node: Some(Node { id: "edge-1".to_owned(), ..Node::default() }),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        type_url: TYPE_URL.to_owned(),
        response_nonce: nonce.to_owned(),
        ..DiscoveryRequest::default()
    }
}

fn refusing(nonce: &str, message: &str) -> DiscoveryRequest {
    let error = rpc::Status { message: message.to_owned(), ..rpc::Status::default() };
    DiscoveryRequest { error_detail: Some(error), ..asking(&["shop"], nonce) }
}

/// Clusters and weights of a response.
fn read_back(response: &DiscoveryResponse) -> Vec<(String, Vec<u32>)> {
    let read = |resource: &protobuf::Any| {
        let one = ClusterLoadAssignment::decode(resource.value.as_slice()).unwrap();
        let weight = one.endpoints.iter().map(|one| one.load_balancing_weight.unwrap().value);
        (one.cluster_name.clone(), weight.collect())
    };
    response.resources.iter().map(read).collect()
}

#[test]
fn who_asks_is_told_once_and_again_when_it_changes() {
    let mut session = Session::default();
    let (first, second) =
        (assignment("shop", "7.1", [90, 10]), assignment("shop", "8.2", [50, 50]));
    assert!(session.receive(&asking(&["shop"], "")).asks);
    let reported = session.answer([Arc::clone(&first)].into_iter()).unwrap();
    assert_eq!((reported.version_info.as_str(), reported.nonce.as_str()), ("7.1", "1"));
    assert_eq!(reported.type_url, TYPE_URL);
    assert_eq!(read_back(&reported), [("shop".to_owned(), vec![90, 10])]);
    let accepted = session.receive(&asking(&["shop"], "1"));
    assert_eq!(accepted.verdict, Some(Verdict::Accepted));
    assert!(!accepted.asks && session.answer([first].into_iter()).is_none());
    let reported = session.answer([second].into_iter()).unwrap();
    assert_eq!((reported.version_info.as_str(), reported.nonce.as_str()), ("8.2", "2"));
}

#[test]
fn a_refusal_is_heard_and_the_same_is_not_sent_again() {
    let mut session = Session::default();
    let shop = assignment("shop", "7.1", [90, 10]);
    let _ = session.receive(&asking(&["shop"], ""));
    let _ = session.answer([Arc::clone(&shop)].into_iter()).unwrap();
    let refused = session.receive(&refusing("1", "weight must be at least 1"));
    let (version, message) = ("7.1".to_owned(), "weight must be at least 1".to_owned());
    assert_eq!(refused.verdict, Some(Verdict::Refused { version, message }));
    assert_eq!(session.node(), "edge-1");
    assert!(session.answer([shop].into_iter()).is_none());
}

#[test]
fn an_answer_that_crossed_a_newer_response_is_passed_over() {
    let mut session = Session::default();
    let _ = session.receive(&asking(&["shop"], ""));
    let _ = session.answer([assignment("shop", "7.1", [90, 10])].into_iter()).unwrap();
    let _ = session.answer([assignment("shop", "8.2", [50, 50])].into_iter()).unwrap();
    assert_eq!(session.receive(&refusing("1", "late")), Received::default());
    assert_eq!(session.receive(&asking(&["shop"], "2")).verdict, Some(Verdict::Accepted));
}

#[test]
fn a_cluster_asked_for_later_is_told_with_the_first() {
    let mut session = Session::default();
    let both = || [assignment("shop", "7.1", [90, 10]), assignment("till", "7.4", [1, 1])];
    let _ = session.receive(&asking(&["shop"], ""));
    assert_eq!(session.answer(both().into_iter()).unwrap().resources.len(), 1);
    let more = session.receive(&asking(&["shop", "till"], "1"));
    assert_eq!((more.verdict, more.asks), (Some(Verdict::Accepted), true));
    let reported = session.answer(both().into_iter()).unwrap();
    assert_eq!((reported.resources.len(), reported.version_info.as_str()), (2, "7.1,7.4"));
    // One that is not ours is never answered, and what is no endpoint neither.
    assert!(session.receive(&asking(&["shop", "till", "other"], "2")).asks);
    let listeners = "type.googleapis.com/envoy.config.listener.v3.Listener";
    let mut request = asking(&[], "");
    listeners.clone_into(&mut request.type_url);
    assert_eq!(session.receive(&request).unknown.as_deref(), Some(listeners));
}

fn plane() -> Arc<Plane> {
    let locality = |site: usize| Locality {
        name: format!("dc{site}"),
        endpoints: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 9000 + site as u16))],
        slots: site..site + 1,
    };
    let localities = (0..2).map(locality).collect();
    let cluster = Cluster { name: "shop".to_owned(), home: SiteId::new(0), localities };
    let interval = Duration::from_millis(200);
    Plane::new(vec![Feed::new(cluster, interval, Box::new(|_, _| {}))], interval)
}

async fn connect(plane: &Arc<Plane>) -> Channel {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let plane = Arc::clone(plane);
    tokio::task::spawn_local(async move { serve(plane, listener).await.unwrap() });
    let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
    endpoint.connect().await.unwrap()
}

fn load(issued: [u64; 2], failed: u64, seconds: i64) -> LoadStatsRequest {
    let locality = |site: usize| UpstreamLocalityStats {
        locality: Some(Place { region: format!("dc{site}"), ..Place::default() }),
        total_issued_requests: issued[site],
        total_successful_requests: issued[site] - if site == 0 { failed } else { 0 },
        total_error_requests: if site == 0 { failed } else { 0 },
        ..UpstreamLocalityStats::default()
    };
    let cluster = |name: &str| ClusterStats {
        cluster_name: name.to_owned(),
        upstream_locality_stats: vec![locality(0), locality(1)],
        load_report_interval: Some(protobuf::Duration { seconds, nanos: 0 }),
        ..ClusterStats::default()
    };
    let cluster_stats = vec![cluster("shop"), cluster("xds")];
    LoadStatsRequest { node: None, cluster_stats }
}

#[test]
fn two_envoys_report_and_one_that_leaves_counts_no_more() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let channel = connect(&plane).await;
        let mut senders = Vec::new();
        for _ in 0..2 {
            let mut client = lrs::LoadReportingServiceClient::new(channel.clone());
            let (sender, requests) = mpsc::channel(8);
            sender.send(LoadStatsRequest::default()).await.unwrap();
            let answers = client.stream_load_stats(ReceiverStream::new(requests)).await.unwrap();
            let mut answers = answers.into_inner();
            let asked = answers.message().await.unwrap().unwrap();
            assert_eq!(asked.clusters, ["shop"]);
            assert_eq!(asked.load_reporting_interval.unwrap().nanos, 200_000_000);
            sender.send(load([90, 10], 9, 1)).await.unwrap();
            senders.push((sender, answers));
        }
        let rates = |now| plane.feeds()[0].rates(now).into_iter().map(|one| one.issued_per_s);
        let until = |wanted: [f64; 2]| async move {
            let waited = async {
                while !rates(std::time::Instant::now()).eq(wanted) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(Duration::from_secs(5), waited).await.expect("the rates come");
        };
        until([180.0, 20.0]).await;
        senders.pop();
        until([90.0, 10.0]).await;
        until([0.0, 0.0]).await; // silent for two intervals
        assert_eq!(plane.counts().reports, 2, "and none for the cluster of another");
    });
}

#[test]
fn a_refusal_is_counted_and_kept_in_the_envoys_own_words() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let mut client = ads::AggregatedDiscoveryServiceClient::new(connect(&plane).await);
        let (sender, requests) = mpsc::channel(8);
        sender.send(asking(&["shop"], "")).await.unwrap();
        let requests = ReceiverStream::new(requests);
        let mut answers = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
        let reported = answers.message().await.unwrap().unwrap();
        assert_eq!((reported.version_info.as_str(), reported.resources.len()), ("none.0", 1));
        assert_eq!(plane.counts().streams, 1);
        sender.send(refusing(&reported.nonce, "no such locality")).await.unwrap();
        drop(sender);
        assert!(matches!(answers.message().await, Ok(None)), "the same is not sent again");
        let counts = plane.counts();
        assert_eq!((counts.sent, counts.accepted, counts.refused), (1, 0, 1));
        let nack = counts.last_refusal.unwrap();
        assert_eq!((nack.node.as_str(), nack.version.as_str()), ("edge-1", "none.0"));
        assert_eq!(nack.message, "no such locality");
    });
}

#[test]
fn what_others_write_cannot_break_it() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let channel = connect(&plane).await;
        let mut client = lrs::LoadReportingServiceClient::new(channel.clone());
        let mut nonsense = load([u64::MAX, 3], 0, i64::MIN);
        nonsense.cluster_stats[0].total_dropped_requests = u64::MAX;
        nonsense.cluster_stats[0].upstream_locality_stats.push(UpstreamLocalityStats {
            total_issued_requests: 5,
            ..UpstreamLocalityStats::default()
        });
        let requests = tonic::codegen::tokio_stream::iter([nonsense.clone(), nonsense]);
        let mut answers = client.stream_load_stats(requests).await.unwrap().into_inner();
        while let Ok(Some(_)) = answers.message().await {}
        let counts = plane.counts();
        assert_eq!((counts.reports, counts.reported_elsewhere), (2, 10));

        let mut client = ads::AggregatedDiscoveryServiceClient::new(channel);
        let mut odd = asking(&["no such cluster"], "999");
        odd.node = None;
        let requests = tonic::codegen::tokio_stream::iter([odd, refusing("1", "never told")]);
        let mut answers = client.stream_aggregated_resources(requests).await.unwrap().into_inner();
        assert!(matches!(answers.message().await, Ok(None)), "nothing to say");
        assert_eq!((plane.counts().refused, plane.counts().streams), (0, 0));
    });
}
