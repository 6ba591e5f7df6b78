//! Discovery and load reports over gRPC: ADS, EDS and LRS on one address.
//!
//! State of the world: whoever asks for clusters of ours gets all of them, at once and whenever
//! one changes. Nothing else is served: an Envoy that has its listeners, routes and clusters from
//! another server keeps them, and takes only the endpoints from here. The delta variants are not
//! served (`api_type: GRPC`, not `DELTA_GRPC`).
//!
//! A response an Envoy refuses (NACK) changes nothing there. That is our mistake or a difference
//! of versions, so it is an alarm, with Envoy's own words.

mod session;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::config::endpoint::v3::ClusterStats;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::envoy::service::endpoint::v3::endpoint_discovery_service_server::{
    EndpointDiscoveryService, EndpointDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::load_stats::v3::load_reporting_service_server::{
    LoadReportingService, LoadReportingServiceServer,
};
use envoy_types::pb::envoy::service::load_stats::v3::{LoadStatsRequest, LoadStatsResponse};
use envoy_types::pb::google::protobuf;
use tokio::sync::{mpsc, watch};
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::demand::{LocalityReport, Report};
use super::feed::{Feed, Nack, Plane};
use session::{Session, Verdict};

/// Envoys that are served at once; each has a stream for discovery and one for load reports.
const STREAMS_MAX: u64 = 4_096;
/// A peer that does not answer a ping within this is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// More requests than this in one report of one locality are nonsense.
const REPORTED_MAX: u64 = 1_000_000_000;

/// Serves Envoys on this address, for ever. Call it in a worker runtime.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(plane: Arc<Plane>, listener: std::net::TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener)?);
    let service = Service { plane, reporters: Arc::default() };
    Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(KEEP_ALIVE))
        .add_service(AggregatedDiscoveryServiceServer::new(service.clone()))
        .add_service(EndpointDiscoveryServiceServer::new(service.clone()))
        .add_service(LoadReportingServiceServer::new(service))
        .serve_with_incoming(incoming.with_nodelay(Some(true)))
        .await
        .map_err(io::Error::other)
}

#[derive(Clone)]
struct Service {
    plane: Arc<Plane>,
    /// How many load reporting streams there were: their numbers.
    reporters: Arc<AtomicU64>,
}

type Answers<T> = ReceiverStream<Result<T, Status>>;
type Opened<T> = Result<Response<Answers<T>>, Status>;
type Deltas = Answers<DeltaDiscoveryResponse>;

impl Service {
    fn discover(&self, requests: Streaming<DiscoveryRequest>) -> Opened<DiscoveryResponse> {
        if self.plane.counts().streams >= STREAMS_MAX {
            let full = format!("{STREAMS_MAX} Envoys are served already");
            return Err(Status::resource_exhausted(full));
        }
        // One response at a time: who is slow gets the newest assignment, not all there were.
        let (answers, stream) = mpsc::channel(1);
        let (plane, revisions) = (Arc::clone(&self.plane), self.plane.revisions());
        tokio::spawn(
            Discovery { plane, session: Session::default(), answers }.run(requests, revisions),
        );
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

const NO_DELTA: &str = "the delta variant is not served: write api_type: GRPC";

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Deltas;

    async fn stream_aggregated_resources(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Opened<DiscoveryResponse> {
        self.discover(requests.into_inner())
    }

    async fn delta_aggregated_resources(
        &self,
        _requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Opened<DeltaDiscoveryResponse> {
        Err(Status::unimplemented(NO_DELTA))
    }
}

#[tonic::async_trait]
impl EndpointDiscoveryService for Service {
    type StreamEndpointsStream = Answers<DiscoveryResponse>;
    type DeltaEndpointsStream = Deltas;

    async fn stream_endpoints(
        &self,
        requests: Request<Streaming<DiscoveryRequest>>,
    ) -> Opened<DiscoveryResponse> {
        self.discover(requests.into_inner())
    }

    async fn delta_endpoints(
        &self,
        _requests: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Opened<DeltaDiscoveryResponse> {
        Err(Status::unimplemented(NO_DELTA))
    }

    async fn fetch_endpoints(
        &self,
        _request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented("polling is not served: write api_type: GRPC"))
    }
}

#[tonic::async_trait]
impl LoadReportingService for Service {
    type StreamLoadStatsStream = Answers<LoadStatsResponse>;

    async fn stream_load_stats(
        &self,
        requests: Request<Streaming<LoadStatsRequest>>,
    ) -> Opened<LoadStatsResponse> {
        let (answers, stream) = mpsc::channel(1);
        let reporter = self.reporters.fetch_add(1, Ordering::Relaxed);
        let plane = Arc::clone(&self.plane);
        tokio::spawn(take_reports(plane, reporter, requests.into_inner(), answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

/// One Envoy's discovery stream.
struct Discovery {
    plane: Arc<Plane>,
    session: Session,
    answers: mpsc::Sender<Result<DiscoveryResponse, Status>>,
}

enum Event {
    Received(Option<Result<Box<DiscoveryRequest>, Status>>),
    Changed(bool),
}

impl Discovery {
    async fn run(
        mut self,
        mut requests: Streaming<DiscoveryRequest>,
        mut revisions: watch::Receiver<u64>,
    ) {
        self.plane.count(|counts| counts.streams += 1);
        loop {
            let is_due = match next(&mut requests, &mut revisions).await {
                Event::Received(Some(Ok(request))) => self.receive(&request),
                Event::Changed(true) => true,
                Event::Received(_) | Event::Changed(false) => break,
            };
            if is_due && !self.answer().await {
                break;
            }
        }
        self.plane.count(|counts| counts.streams -= 1);
    }

    /// Whether there may be something to answer.
    fn receive(&mut self, request: &DiscoveryRequest) -> bool {
        let heard = self.session.receive(request);
        match heard.verdict {
            Some(Verdict::Accepted) => self.plane.count(|counts| counts.accepted += 1),
            Some(Verdict::Refused { version, message }) => {
                let node = self.session.node().to_owned();
                tracing::error!(node, version, message, "Envoy refuses what it was told (NACK)");
                let nack = Nack { node, version, message };
                self.plane.count(|counts| {
                    counts.refused += 1;
                    counts.last_refusal = Some(nack);
                });
            }
            None => {}
        }
        let is_ours =
            |name: &str| self.plane.feeds().iter().any(|feed| feed.cluster().name == name);
        let stranger = self.session.names().find(|name| heard.asks && !is_ours(name));
        if let Some(unknown) = heard.unknown.as_deref().or(stranger) {
            let node = self.session.node();
            tracing::warn!(node, unknown, "Envoy asks for what is not served here");
        }
        heard.asks
    }

    /// Sends what is new to this Envoy; false when it is gone.
    async fn answer(&mut self) -> bool {
        let assignments = self.plane.feeds().iter().map(Feed::assignment);
        let Some(response) = self.session.answer(assignments) else { return true };
        if self.answers.send(Ok(response)).await.is_err() {
            return false;
        }
        self.plane.count(|counts| counts.sent += 1);
        true
    }
}

/// What comes first: a word from Envoy, or a change here.
async fn next(
    requests: &mut Streaming<DiscoveryRequest>,
    revisions: &mut watch::Receiver<u64>,
) -> Event {
    tokio::select! {
        biased;
        request = requests.message() => {
            Event::Received(request.transpose().map(|request| request.map(Box::new)))
        }
        changed = revisions.changed() => Event::Changed(changed.is_ok()),
    }
}

/// Asks one Envoy for reports, and takes them in until it is gone.
async fn take_reports(
    plane: Arc<Plane>,
    reporter: u64,
    mut requests: Streaming<LoadStatsRequest>,
    answers: mpsc::Sender<Result<LoadStatsResponse, Status>>,
) {
    let asked = LoadStatsResponse {
        clusters: plane.feeds().iter().map(|feed| feed.cluster().name.clone()).collect(),
        load_reporting_interval: Some(protobuf::Duration {
            seconds: i64::try_from(plane.interval().as_secs()).unwrap_or(i64::MAX),
            nanos: i32::try_from(plane.interval().subsec_nanos()).unwrap_or(0),
        }),
        ..LoadStatsResponse::default()
    };
    let mut asked = Some(asked); // once, when it has said hello
    while let Some(Ok(request)) = requests.next().await {
        if let Some(asked) = asked.take()
            && answers.send(Ok(asked)).await.is_err()
        {
            break;
        }
        for stats in &request.cluster_stats {
            let is_it = |feed: &&Feed| feed.cluster().name == name_of(stats);
            if let Some(feed) = plane.feeds().iter().find(is_it) {
                let (report, elsewhere) = read(feed, stats);
                plane.report(feed, reporter, &report);
                plane.count(|counts| counts.reported_elsewhere += elsewhere);
            }
        }
    }
    plane.forget(reporter);
}

/// The name by which the cluster asked for its endpoints.
fn name_of(stats: &ClusterStats) -> &str {
    let service = stats.cluster_service_name.as_str();
    if service.is_empty() { &stats.cluster_name } else { service }
}

/// A report by site, and requests in it for localities that are none of ours.
fn read(feed: &Feed, stats: &ClusterStats) -> (Report, u64) {
    let sites = &feed.cluster().localities;
    let mut report = Report {
        over: stats.load_report_interval.as_ref().and_then(duration).unwrap_or_default(),
        localities: vec![LocalityReport::default(); sites.len()],
        dropped: stats.total_dropped_requests.min(REPORTED_MAX),
    };
    let mut elsewhere = 0;
    for locality in &stats.upstream_locality_stats {
        let region = locality.locality.as_ref().map_or("", |locality| &locality.region);
        let issued = locality.total_issued_requests.min(REPORTED_MAX);
        match sites.iter().position(|site| site.name == region) {
            Some(site) => {
                let sum = &mut report.localities[site];
                sum.issued = (sum.issued + issued).min(REPORTED_MAX);
                let succeeded = locality.total_successful_requests.min(REPORTED_MAX);
                sum.succeeded = (sum.succeeded + succeeded).min(REPORTED_MAX);
                let failed = locality.total_error_requests.min(REPORTED_MAX);
                sum.failed = (sum.failed + failed).min(REPORTED_MAX);
            }
            None => elsewhere += issued,
        }
    }
    (report, elsewhere)
}

fn duration(read: &protobuf::Duration) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(read.seconds).ok()?, u32::try_from(read.nanos).ok()?);
    // An hour between two reports is no interval of anybody's.
    (seconds <= 3_600 && nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}
