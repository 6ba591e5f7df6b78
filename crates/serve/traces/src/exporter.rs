//! Sends spans in batches. A batch that cannot be delivered now is sent again after a pause that
//! doubles, for a minute; meanwhile requests that end wait in a bounded queue, and what finds it
//! full is counted and lost. Nothing here can be waited for by a request.
//!
//! What a collector may answer, and what that means, is in the specification of OTLP 1.x:
//! 429, 502, 503 and 504 may be sent again (not before `Retry-After`), anything else that is no
//! success may not; a success may say how many spans it did not take.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_core::Rng;
use evenkeel_http::{Body, Fields, Request, Upstream};
use evenkeel_proxy::requests::traces::{Finished, TraceCounts};
use evenkeel_runtime::accept::StopSignal;
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, UpstreamLimits};
use evenkeel_runtime::tls::ClientTls;
use evenkeel_settings::address::ServerAddress;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Method};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::{Endpoint, TracesConfig};
use crate::spans;

/// Requests of a batch, and how long the first of it waits for others.
const BATCH_MAX: usize = 256;
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// One request to the collector, from looking up its name to the end of its answer.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a batch is tried.
const BATCH_TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// One request while the process stops.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: u64 = 64 * 1_024;
/// The port of OTLP over gRPC.
const GRPC_PORT: u16 = 4_317;

/// Where spans go now.
#[derive(Clone, Debug)]
pub struct Target {
    /// As configured.
    pub config: TracesConfig,
    /// For `https`.
    pub tls: Option<ClientTls>,
}

/// Takes requests that ended and delivers their spans.
#[derive(Debug)]
pub struct Exporter {
    /// What is to be delivered.
    pub finished: mpsc::Receiver<Box<Finished>>,
    /// Where to; `None`: it is dropped.
    pub target: watch::Receiver<Option<Target>>,
    /// What is counted.
    pub counts: Arc<TraceCounts>,
}

/// Why a request to the collector did not bring a batch there.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("{0}")]
    Send(String),
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("it answered {status}{}", said(.words))]
    Status { status: u16, words: String, retry_after: Option<Duration> },
}

impl ExportError {
    /// Whether it may go better later.
    const fn is_passing(&self) -> bool {
        match self {
            Self::Status { status, .. } => matches!(status, 429 | 502..=504),
            Self::Send(_) | Self::Late(_) => true,
        }
    }

    const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Status { retry_after, .. } => *retry_after,
            Self::Send(_) | Self::Late(_) => None,
        }
    }
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

impl Exporter {
    /// Delivers until nobody has requests any more: who serves them in the drain has spans, too.
    /// Must run on a worker's runtime.
    pub async fn run(mut self, mut stop: StopSignal) {
        let stopping = watch::Sender::new(false);
        let mut state = State {
            stopping: stopping.subscribe(),
            connection: None,
            rng: Rng::seeded(u64::from(std::process::id())),
            is_failing: false,
            gave_up: false,
        };
        // Whoever keeps the signal is waited for, and this has no place in the drain.
        tokio::task::spawn_local(async move {
            stop.stopping().await;
            let _ = stopping.send(true);
        });
        while let Some(batch) = self.batch(&state).await {
            let target = self.target.borrow_and_update().clone();
            let spans: Vec<_> = batch.iter().flat_map(|finished| spans::of(finished)).collect();
            let count = spans.len() as u64;
            match target.filter(|_| !state.gave_up) {
                Some(target) => {
                    let message = spans::message(&target.config.service, spans);
                    let bytes = message.encode_to_vec().into();
                    self.deliver(&mut state, &target, bytes, count).await;
                }
                None => add(&self.counts.undelivered, count),
            }
        }
    }

    /// The requests that ended within a moment; `None` at the end.
    async fn batch(&mut self, state: &State) -> Option<Vec<Box<Finished>>> {
        let mut batch = vec![self.finished.recv().await?];
        let until = Instant::now() + BATCH_DELAY;
        let mut stopping = state.stopping.clone();
        while batch.len() < BATCH_MAX && !*stopping.borrow() {
            tokio::select! {
                biased;
                next = self.finished.recv() => match next {
                    Some(next) => batch.push(next),
                    None => break,
                },
                () = tokio::time::sleep_until(until) => break,
                _ = stopping.wait_for(|is_stopping| *is_stopping) => break,
            }
        }
        while batch.len() < BATCH_MAX
            && let Ok(next) = self.finished.try_recv()
        {
            batch.push(next);
        }
        Some(batch)
    }

    async fn deliver(&self, state: &mut State, target: &Target, bytes: Bytes, count: u64) {
        let otlp = &target.config.otlp;
        let (until, mut pause) = (Instant::now() + BATCH_TIMEOUT, PAUSE_MIN);
        loop {
            let mut stopping = state.stopping.clone();
            let late = async {
                tokio::select! {
                    () = tokio::time::sleep(EXPORT_TIMEOUT) => EXPORT_TIMEOUT,
                    _ = stopping.wait_for(|is_stopping| *is_stopping) => {
                        tokio::time::sleep(LAST_TIMEOUT).await;
                        LAST_TIMEOUT
                    }
                }
            };
            let exported = tokio::select! {
                exported = state.export(target, bytes.clone()) => exported,
                limit = late => Err(ExportError::Late(limit)),
            };
            let error = match exported {
                Ok(answer) => return self.delivered(state, otlp, &answer, count),
                Err(error) => error,
            };
            let is_last = *state.stopping.borrow();
            state.connection = None; // the next one may be to another address
            add(&self.counts.failures, 1);
            state.say(otlp, &error);
            if !error.is_passing() {
                return add(&self.counts.rejected, count);
            }
            let wait = error.retry_after().unwrap_or_else(|| state.jitter(pause));
            // What it asks for may be longer than any clock can tell.
            let is_over = is_last || wait > until.saturating_duration_since(Instant::now());
            state.gave_up |= is_last;
            if is_over {
                return add(&self.counts.undelivered, count);
            }
            let mut stopping = state.stopping.clone();
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                _ = stopping.wait_for(|is_stopping| *is_stopping) => {}
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn delivered(&self, state: &mut State, otlp: &Endpoint, answer: &[u8], count: u64) {
        let Ok(answer) = ExportTraceServiceResponse::decode(answer) else {
            state.say(otlp, &"it answered 200 and no message of OTLP (is this the whole URL?)");
            return add(&self.counts.exported, count);
        };
        let partial = answer.partial_success.unwrap_or_default();
        let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0).min(count);
        add(&self.counts.rejected, rejected);
        add(&self.counts.exported, count - rejected);
        match rejected {
            0 => state.recovered(otlp),
            some => {
                let words = words_of(partial.error_message.as_bytes());
                state.say(
                    otlp,
                    &format_args!("it rejected {some} of {count} spans{}", said(&words)),
                );
            }
        }
    }
}

/// How deliveries go.
struct State {
    stopping: watch::Receiver<bool>,
    connection: Option<(Endpoint, Option<ClientTls>, Upstream)>,
    rng: Rng,
    /// Whether a failure was said since the last success.
    is_failing: bool,
    /// Whether a delivery failed while the process stopped: the rest is not tried.
    gave_up: bool,
}

impl State {
    /// Sends a batch once; the body of the answer.
    async fn export(&mut self, target: &Target, bytes: Bytes) -> Result<Bytes, ExportError> {
        let otlp = &target.config.otlp;
        let upstream = self.connect(target);
        let mut request = Request::new(Body::full(bytes));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = otlp.path.parse().map_err(unsent)?;
        let headers = request.headers_mut();
        headers.insert(HOST, &otlp.authority().parse().map_err(unsent)?);
        headers.insert(CONTENT_TYPE, &HeaderValue::from_static("application/x-protobuf"));
        let agent = concat!("evenkeel/", env!("CARGO_PKG_VERSION"));
        headers.insert(USER_AGENT, &HeaderValue::from_static(agent));
        let response = upstream.send(request).await.map_err(unsent)?;
        let (status, retry_after) = (response.status(), retry_after(response.headers()));
        let body = response.into_body().collect(ANSWER_BYTES_MAX).await;
        match status.is_success() {
            true => body.map_err(unsent),
            false => {
                let words = body.map(|body| words_of(&body)).unwrap_or_default();
                Err(ExportError::Status { status: status.as_u16(), words, retry_after })
            }
        }
    }

    /// The connection to a collector, which stays until something fails on it. Where a name leads
    /// is looked up as it is opened.
    fn connect(&mut self, target: &Target) -> Upstream {
        let Target { config: TracesConfig { otlp, .. }, tls } = target;
        if let Some((to, with, upstream)) = &self.connection
            && (to, with) == (otlp, tls)
        {
            return upstream.clone();
        }
        let server: ServerAddress = match otlp.host.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, otlp.port).into(),
            Err(_) => ServerAddress::name(&otlp.host, otlp.port),
        };
        let upstream = Upstream::with_tls(server, LIMITS, tls.clone());
        self.connection = Some((otlp.clone(), tls.clone(), upstream.clone()));
        upstream
    }

    /// Half of a pause to all of it.
    fn jitter(&mut self, pause: Duration) -> Duration {
        pause / 2 + pause.mul_f64(self.rng.bits() as f64 / u64::MAX as f64 / 2.0)
    }

    /// Says once what is wrong until it goes well again.
    fn say(&mut self, otlp: &Endpoint, error: &dyn Display) {
        if std::mem::replace(&mut self.is_failing, true) {
            return;
        }
        let hint = match otlp.port {
            GRPC_PORT => " (4317 is the port of OTLP over gRPC; over HTTP it is 4318)",
            _ => "",
        };
        tracing::warn!("traces cannot be exported to {otlp}: {error}{hint}; spans are counted");
    }

    fn recovered(&mut self, otlp: &Endpoint) {
        if std::mem::replace(&mut self.is_failing, false) {
            tracing::info!("traces are exported to {otlp} again");
        }
    }
}

const LIMITS: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(5),
    connections_max: 1,
    idle_connections_max: 1,
    idle: Duration::from_secs(60),
    head_bytes_max: 16 * 1_024,
    body: BodyLimits { idle: EXPORT_TIMEOUT, ..BodyLimits::DEFAULT },
    http2: Http2::Never,
    engine: Engine::Hyper,
};

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

fn unsent(error: impl Display) -> ExportError {
    ExportError::Send(error.to_string())
}

/// In seconds; as a date it is passed over.
fn retry_after(headers: &Fields) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The beginning of what a collector says, on one line: it is a message of protobuf or text.
fn words_of(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let plain = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    plain
        .filter(|it| *it != char::REPLACEMENT_CHARACTER)
        .take(200)
        .collect::<String>()
        .trim()
        .into()
}
