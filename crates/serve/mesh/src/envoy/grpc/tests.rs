//! The conversation by hand, and whole streams with clients of our own.

use std::net::{Ipv4Addr, SocketAddr};

use evenkeel_geo::epoch::SiteId;
use h2::SendStream;
use h2::client::{ResponseFuture, SendRequest};
use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::messages::{
    Any, ClusterLoadAssignment, DiscoveryResponse, Locality as Place, Node, Status,
    UpstreamLocalityStats,
};
use super::session::Received;
use super::*;
use crate::envoy::assignment::{Assignment, Cluster, Locality, LocalityWeight, TYPE_URL};
use evenkeel_runtime::accept::worker_runtime;

const ADS: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/";
const LRS: &str = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats";

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
        node: Some(Node { id: "edge-1".to_owned() }),
        resource_names: names.iter().map(|name| (*name).to_owned()).collect(),
        type_url: TYPE_URL.to_owned(),
        response_nonce: nonce.to_owned(),
        error_detail: None,
    }
}

fn refusing(nonce: &str, message: &str) -> DiscoveryRequest {
    let error = Status { message: message.to_owned() };
    DiscoveryRequest { error_detail: Some(error), ..asking(&["shop"], nonce) }
}

/// Clusters and weights of a response.
fn read_back(response: &DiscoveryResponse) -> Vec<(String, Vec<u32>)> {
    let read = |resource: &Any| {
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

type Client = SendRequest<Bytes>;

async fn listen(plane: &Arc<Plane>) -> TcpStream {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let plane = Arc::clone(plane);
    tokio::task::spawn_local(async move { serve(plane, listener).await.unwrap() });
    TcpStream::connect(address).await.unwrap()
}

async fn connect(plane: &Arc<Plane>) -> Client {
    let (client, connection) = h2::client::handshake(listen(plane).await).await.unwrap();
    tokio::task::spawn_local(connection);
    client
}

/// A call of a client that frames its messages by itself.
struct Call {
    sender: SendStream<Bytes>,
    opening: Option<ResponseFuture>,
    answers: Option<RecvStream>,
    read: Vec<u8>,
}

impl Call {
    async fn open(client: &Client, path: &str) -> Self {
        let mut client = client.clone().ready().await.unwrap();
        let request = http::Request::post(format!("http://evenkeel{path}"));
        let request = request.header("content-type", "application/grpc").body(()).unwrap();
        let (opening, sender) = client.send_request(request, false).unwrap();
        Self { sender, opening: Some(opening), answers: None, read: Vec::new() }
    }

    fn send(&mut self, message: &impl Message) {
        let body = message.encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        self.send_bytes([&[0], &length[..], &body].concat());
    }

    fn send_bytes(&mut self, bytes: Vec<u8>) {
        self.sender.send_data(bytes.into(), false).unwrap();
    }

    fn end(&mut self) {
        self.sender.send_data(Bytes::new(), true).unwrap();
    }

    /// The next message, or the status at the end of the call.
    async fn next<M: Message + Default>(&mut self) -> Result<M, String> {
        let status = |headers: &http::HeaderMap| {
            headers.get("grpc-status").map(|status| status.to_str().unwrap().to_owned())
        };
        if let Some(opening) = self.opening.take() {
            let (head, body) = opening.await.unwrap().into_parts();
            assert_eq!(head.headers["content-type"], "application/grpc");
            if let Some(status) = status(&head.headers) {
                return Err(status);
            }
            self.answers = Some(body);
        }
        let answers = self.answers.as_mut().unwrap();
        loop {
            if let Some((prefix, rest)) = self.read.split_first_chunk::<5>() {
                let length = u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize;
                if let Some(body) = rest.get(..length) {
                    let message = M::decode(body).unwrap();
                    self.read.drain(..5 + length);
                    return Ok(message);
                }
            }
            match answers.data().await {
                Some(bytes) => self.read.extend_from_slice(&bytes.unwrap()),
                None => return Err(status(&answers.trailers().await.unwrap().unwrap()).unwrap()),
            }
        }
    }

    async fn assert_ends(&mut self, status: &str) {
        assert_eq!(self.next::<DiscoveryResponse>().await, Err(status.to_owned()));
    }
}

fn load(issued: [u64; 2], failed: u64, seconds: i64) -> LoadStatsRequest {
    let locality = |site: usize| UpstreamLocalityStats {
        locality: Some(Place { region: format!("dc{site}") }),
        total_issued_requests: issued[site],
        total_successful_requests: issued[site] - if site == 0 { failed } else { 0 },
        total_error_requests: if site == 0 { failed } else { 0 },
    };
    let cluster = |name: &str| ClusterStats {
        cluster_name: name.to_owned(),
        upstream_locality_stats: vec![locality(0), locality(1)],
        load_report_interval: Some(messages::Duration { seconds, nanos: 0 }),
        ..ClusterStats::default()
    };
    let cluster_stats = vec![cluster("shop"), cluster("xds")];
    LoadStatsRequest { cluster_stats }
}

#[test]
fn two_envoys_report_and_one_that_leaves_counts_no_more() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let client = connect(&plane).await;
        let mut calls = Vec::new();
        for _ in 0..2 {
            let mut call = Call::open(&client, LRS).await;
            call.send(&LoadStatsRequest::default());
            let asked: LoadStatsResponse = call.next().await.unwrap();
            assert_eq!(asked.clusters, ["shop"]);
            assert_eq!(asked.load_reporting_interval.unwrap().nanos, 200_000_000);
            call.send(&load([90, 10], 9, 1));
            calls.push(call);
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
        calls.pop().unwrap().sender.send_reset(h2::Reason::CANCEL);
        until([90.0, 10.0]).await;
        until([0.0, 0.0]).await; // silent for two intervals
        assert_eq!(plane.counts().reports, 2, "and none for the cluster of another");
    });
}

#[test]
fn a_refusal_is_counted_and_kept_in_the_envoys_own_words() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let client = connect(&plane).await;
        let mut call = Call::open(&client, &format!("{ADS}StreamAggregatedResources")).await;
        call.send(&asking(&["shop"], ""));
        let reported: DiscoveryResponse = call.next().await.unwrap();
        assert_eq!((reported.version_info.as_str(), reported.resources.len()), ("none.0", 1));
        assert_eq!(plane.counts().streams, 1);
        call.send(&refusing(&reported.nonce, "no such locality"));
        call.end();
        call.assert_ends("0").await; // the same is not sent again
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
        let client = connect(&plane).await;
        let mut nonsense = load([u64::MAX, 3], 0, i64::MIN);
        nonsense.cluster_stats[0].total_dropped_requests = u64::MAX;
        nonsense.cluster_stats[0].upstream_locality_stats.push(UpstreamLocalityStats {
            total_issued_requests: 5,
            ..UpstreamLocalityStats::default()
        });
        let mut call = Call::open(&client, LRS).await;
        call.send(&nonsense);
        call.send(&nonsense);
        call.end();
        while call.next::<LoadStatsResponse>().await.is_ok() {}
        let counts = plane.counts();
        assert_eq!((counts.reports, counts.reported_elsewhere), (2, 10));

        let mut call = Call::open(&client, &format!("{ADS}StreamAggregatedResources")).await;
        let mut odd = asking(&["no such cluster"], "999");
        odd.node = None;
        call.send(&odd);
        call.send(&refusing("1", "never told"));
        call.end();
        call.assert_ends("0").await; // nothing to say
        assert_eq!((plane.counts().refused, plane.counts().streams), (0, 0));
    });
}

#[test]
fn what_is_no_message_or_no_call_of_ours_is_refused_and_other_calls_go_on() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let client = connect(&plane).await;
        let ads = format!("{ADS}StreamAggregatedResources");
        let mut good = Call::open(&client, &ads).await;
        good.send(&asking(&["shop"], ""));
        let _: DiscoveryResponse = good.next().await.unwrap();
        let (compressed, long, broken) =
            (vec![1, 0, 0, 0, 0], vec![0, 0xff, 0, 0, 0], vec![0, 0, 0, 0, 1, 0xff]);
        for (bytes, status) in [(compressed, "12"), (long, "8"), (broken, "13")] {
            for path in [&ads, LRS] {
                let mut call = Call::open(&client, path).await;
                call.send_bytes(bytes.clone());
                call.assert_ends(status).await;
            }
        }
        let mut half = Call::open(&client, &ads).await;
        half.send_bytes(vec![0, 0, 0]);
        half.end();
        half.assert_ends("13").await;
        for path in [&format!("{ADS}DeltaAggregatedResources"), "/", "/elsewhere/StreamEndpoints"] {
            Call::open(&client, path).await.assert_ends("12").await;
        }
        // In pieces, each of one byte.
        let mut slow = Call::open(&client, LRS).await;
        let body = load([7, 0], 0, 1).encode_to_vec();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        for byte in [&[0], &length[..], &body].concat() {
            slow.send_bytes(vec![byte]);
        }
        slow.end();
        while slow.next::<LoadStatsResponse>().await.is_ok() {}
        assert_eq!(plane.counts().reports, 1);
        good.send(&asking(&["shop"], "1"));
        good.end();
        good.assert_ends("0").await;
        assert_eq!((plane.counts().accepted, plane.counts().streams), (1, 0));
    });
}

/// A frozen process keeps its connections and answers nothing.
#[test]
fn who_answers_no_ping_is_gone_and_its_reports_with_it() {
    worker_runtime().unwrap().block_on(async {
        let plane = plane();
        let mut frozen = listen(&plane).await;
        frozen.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
        // Its settings and the acknowledgement of ours: it is served.
        let mut read = [0; 9];
        frozen.read_exact(&mut read).await.unwrap();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let _ = frozen.read_to_end(&mut Vec::new()).await; // or it was reset
        let lasted = began.elapsed();
        assert!((KEEP_ALIVE..=2 * KEEP_ALIVE + KEEP_ALIVE / 10).contains(&lasted), "{lasted:?}");
    });
}
