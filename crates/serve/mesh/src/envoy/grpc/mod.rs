//! Discovery and load reports over gRPC: ADS, EDS and LRS on one address.
//!
//! State of the world: whoever asks for clusters of ours gets all of them, at once and whenever
//! one changes. Nothing else is served: an Envoy that has its listeners, routes and clusters from
//! another server keeps them, and takes only the endpoints from here. The delta variants are not
//! served (`api_type: GRPC`, not `DELTA_GRPC`).
//!
//! A response an Envoy refuses (NACK) changes nothing there. That is our mistake or a difference
//! of versions, so it is an alarm, with Envoy's own words.

mod calls;
mod messages;
mod session;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_runtime::accept::{
    AcceptConfig, Link, Listener, Peer, Phase, ServeConnection, StopSignal, Stream, accept,
};
use h2::server::SendResponse;
use h2::{Ping, PingPong, RecvStream};
use tokio::sync::watch;

use super::demand::{LocalityReport, Report};
use super::feed::{Feed, Nack, Plane};
use calls::{Inbox, Outbox, Refusal, refuse};
use messages::{ClusterStats, DiscoveryRequest, LoadStatsRequest, LoadStatsResponse};
use session::{Session, Verdict};

/// Envoys that are served at once; each has a stream for discovery and one for load reports.
const STREAMS_MAX: u64 = 4_096;
const STREAMS_FULL: Refusal = Refusal::exhausted("too many Envoys are served already");
/// Streams of one connection; an Envoy has two.
const CONNECTION_STREAMS_MAX: u32 = 16;
/// Of a request's headers.
const HEADERS_BYTES_MAX: u32 = 16 << 10;
/// A peer that does not answer a ping within this is gone, and so is one that says nothing first.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// More requests than this in one report of one locality are nonsense.
const REPORTED_MAX: u64 = 1_000_000_000;

const NO_DELTA: Refusal =
    Refusal::unimplemented("the delta variant is not served: write api_type: GRPC");
const NO_POLLING: Refusal = Refusal::unimplemented("polling is not served: write api_type: GRPC");
const UNKNOWN: Refusal = Refusal::unimplemented("only ADS, EDS and LRS are served here");

/// Serves Envoys on this address, for ever. Call it in a worker runtime.
///
/// # Errors
/// When the listener cannot be used.
pub async fn serve(plane: Arc<Plane>, listener: std::net::TcpListener) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let config = AcceptConfig {
        connections_max: STREAMS_MAX as usize,
        first: KEEP_ALIVE,
        ..AcceptConfig::unlimited()
    };
    let service = Rc::new(Service { plane, reporters: Cell::new(0) });
    let listener = Listener::from(listener);
    accept(listener, config.fixed(), service, StopSignal::never()).await.map(drop)
}

struct Service {
    plane: Arc<Plane>,
    /// How many load reporting streams there were: their numbers.
    reporters: Cell<u64>,
}

impl ServeConnection for Service {
    async fn serve(self: Rc<Self>, stream: Stream, _peer: Peer, link: Rc<Link>) {
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(CONNECTION_STREAMS_MAX);
        builder.max_header_list_size(HEADERS_BYTES_MAX);
        let Ok(mut connection) = builder.handshake(stream).await else { return };
        link.enter(Phase::Serving);
        let mut fell_silent = pin!(silence(connection.ping_pong()));
        loop {
            tokio::select! {
                biased;
                call = connection.accept() => {
                    let Some(Ok((request, respond))) = call else { return };
                    // It ends with the connection, whose streams break then.
                    tokio::task::spawn_local(Rc::clone(&self).call(request, respond));
                }
                () = &mut fell_silent => return,
            }
        }
    }
}

/// Ready when the peer does not answer a ping in time.
async fn silence(pings: Option<PingPong>) {
    let Some(mut pings) = pings else { return std::future::pending().await };
    loop {
        tokio::time::sleep(KEEP_ALIVE).await;
        match tokio::time::timeout(KEEP_ALIVE, pings.ping(Ping::opaque())).await {
            Ok(Ok(_)) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

impl Service {
    async fn call(
        self: Rc<Self>,
        request: http::Request<RecvStream>,
        respond: SendResponse<Bytes>,
    ) {
        const DISCOVERY: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService";
        const ENDPOINTS: &str = "/envoy.service.endpoint.v3.EndpointDiscoveryService";
        const LOAD: &str = "/envoy.service.load_stats.v3.LoadReportingService";
        let (head, body) = request.into_parts();
        let inbox = Inbox::new(body);
        match head.uri.path().rsplit_once('/') {
            Some((DISCOVERY, "StreamAggregatedResources") | (ENDPOINTS, "StreamEndpoints")) => {
                self.discover(inbox, respond).await;
            }
            Some((LOAD, "StreamLoadStats")) => self.load(inbox, respond).await,
            Some((DISCOVERY, "DeltaAggregatedResources") | (ENDPOINTS, "DeltaEndpoints")) => {
                refuse(respond, &NO_DELTA);
            }
            Some((ENDPOINTS, "FetchEndpoints")) => refuse(respond, &NO_POLLING),
            _ => refuse(respond, &UNKNOWN),
        }
    }

    async fn discover(&self, requests: Inbox, respond: SendResponse<Bytes>) {
        if self.plane.counts().streams >= STREAMS_MAX {
            return refuse(respond, &STREAMS_FULL);
        }
        let Some(answers) = Outbox::open(respond) else { return };
        let (plane, revisions) = (Arc::clone(&self.plane), self.plane.revisions());
        Discovery { plane, session: Session::default(), answers }.run(requests, revisions).await;
    }

    async fn load(&self, requests: Inbox, respond: SendResponse<Bytes>) {
        let Some(answers) = Outbox::open(respond) else { return };
        let reporter = self.reporters.get();
        self.reporters.set(reporter + 1);
        take_reports(&self.plane, reporter, requests, answers).await;
    }
}

/// One Envoy's discovery stream.
struct Discovery {
    plane: Arc<Plane>,
    session: Session,
    answers: Outbox,
}

enum Event {
    Received(Result<Option<DiscoveryRequest>, Refusal>),
    Changed(bool),
}

impl Discovery {
    async fn run(mut self, mut requests: Inbox, mut revisions: watch::Receiver<u64>) {
        self.plane.count(|counts| counts.streams += 1);
        let refusal = loop {
            let is_due = match next(&mut requests, &mut revisions).await {
                Event::Received(Ok(Some(request))) => self.receive(&request),
                Event::Changed(true) => true,
                Event::Received(Ok(None)) | Event::Changed(false) => break None,
                Event::Received(Err(refusal)) => break Some(refusal),
            };
            if is_due && !self.answer().await {
                break None;
            }
        };
        self.plane.count(|counts| counts.streams -= 1);
        self.answers.end(refusal.as_ref());
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
        // One at a time: who is slow gets the newest assignment, not all there were.
        if !self.answers.send(&response).await {
            return false;
        }
        self.plane.count(|counts| counts.sent += 1);
        true
    }
}

/// What comes first: a word from Envoy, or a change here.
async fn next(requests: &mut Inbox, revisions: &mut watch::Receiver<u64>) -> Event {
    tokio::select! {
        biased;
        request = requests.next() => Event::Received(request),
        changed = revisions.changed() => Event::Changed(changed.is_ok()),
    }
}

/// Asks one Envoy for reports, and takes them in until it is gone.
async fn take_reports(plane: &Plane, reporter: u64, mut requests: Inbox, mut answers: Outbox) {
    let interval = messages::Duration {
        seconds: i64::try_from(plane.interval().as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(plane.interval().subsec_nanos()).unwrap_or(0),
    };
    let asked = LoadStatsResponse {
        clusters: plane.feeds().iter().map(|feed| feed.cluster().name.clone()).collect(),
        load_reporting_interval: Some(interval),
    };
    let mut asked = Some(asked); // once, when it has said hello
    let refusal = loop {
        let request: LoadStatsRequest = match requests.next().await {
            Ok(Some(request)) => request,
            Ok(None) => break None,
            Err(refusal) => break Some(refusal),
        };
        if let Some(asked) = asked.take()
            && !answers.send(&asked).await
        {
            break None;
        }
        for stats in &request.cluster_stats {
            let is_it = |feed: &&Feed| feed.cluster().name == name_of(stats);
            if let Some(feed) = plane.feeds().iter().find(is_it) {
                let (report, elsewhere) = read(feed, stats);
                plane.report(feed, reporter, &report);
                plane.count(|counts| counts.reported_elsewhere += elsewhere);
            }
        }
    };
    plane.forget(reporter);
    answers.end(refusal.as_ref());
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

fn duration(read: &messages::Duration) -> Option<Duration> {
    let (seconds, nanos) = (u64::try_from(read.seconds).ok()?, u32::try_from(read.nanos).ok()?);
    // An hour between two reports is no interval of anybody's.
    (seconds <= 3_600 && nanos < 1_000_000_000).then(|| Duration::new(seconds, nanos))
}
