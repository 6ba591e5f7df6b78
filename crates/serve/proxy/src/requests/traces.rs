//! Traces: which requests are exported, and the queue of those that have ended.
//!
//! Who serves requests hands over a record that is made anyway, and never waits: one that finds the
//! queue full is counted and lost. Whoever takes them out makes spans of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use evenkeel_settings::address::ServerAddress;
use tokio::sync::mpsc;

use super::record::{Place, RequestRecord};
use super::wanted::Rules;
use super::words::Names;

/// Requests that may wait for the exporter: about 2 MB.
const WAITING_MAX: usize = 2_048;

/// Which requests are exported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The share of traces that begin here and are sampled: 0 to 1.
    pub sample: f64,
    /// What takes longer is exported in any case; `None` = what is slow beside others.
    pub slow: Option<Duration>,
}

/// What is counted of traces, all in spans.
#[derive(Debug, Default)]
pub struct TraceCounts {
    /// A collector has them.
    pub exported: AtomicU64,
    /// They found the queue full.
    pub queue_full: AtomicU64,
    /// A collector did not want them.
    pub rejected: AtomicU64,
    /// They could not be delivered in time.
    pub undelivered: AtomicU64,
    /// Requests to the collector that failed.
    pub failures: AtomicU64,
}

/// For whoever has requests that ended.
#[derive(Clone, Debug)]
pub struct Traces {
    rules: Arc<Rules>,
    counts: Arc<TraceCounts>,
    finished: mpsc::Sender<Box<Finished>>,
}

/// To change which requests are exported.
#[derive(Debug)]
pub struct TracesControl {
    rules: Arc<Rules>,
    counts: Arc<TraceCounts>,
}

/// Its place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The request's own span.
    pub span: u64,
    /// The span of whoever sent it, where the trace was joined.
    pub parent: Option<u64>,
    /// Flags of W3C trace context.
    pub flags: u8,
}

impl SpanContext {
    /// The span of the attempt of this number, from 0: it follows from the request's own, so that
    /// nobody has to keep it.
    pub const fn attempt(self, number: u8) -> u64 {
        // The end of splitmix64, which gives no two attempts the same.
        let mut mixed =
            self.span.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        if mixed == 0 { 1 } else { mixed } // zero means none
    }
}

/// A request that has ended.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What became of it.
    pub record: RequestRecord,
    /// When it had.
    pub ended_at: SystemTime,
    /// Its place in its trace.
    pub context: SpanContext,
    /// Its upstream.
    pub upstream: String,
    /// The policy of that, as it is written.
    pub policy: String,
    /// Whether that is spoken to in TLS.
    pub is_upstream_tls: bool,
    /// What its message said.
    pub facts: Facts,
    /// The names of data centres, home first.
    pub datacenters: Vec<String>,
    /// Who was asked, and who else might have been.
    pub replicas: Vec<(Place, ServerAddress)>,
}

/// What a message says of a request, by its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// HTTP
    Http(HttpFacts),
    /// That of a store.
    Store(StoreFacts),
}

/// What a message to a store says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFacts {
    /// `db.system.name` of OpenTelemetry's conventions.
    pub system: &'static str,
    /// The operation as the protocol names it.
    pub operation: &'static str,
    /// Where it is done, such as a keyspace.
    pub namespace: Option<String>,
    /// Whether it changes anything, or may.
    pub is_write: bool,
    /// Further attributes, with their full names.
    pub further: Vec<(&'static str, String)>,
}

/// What a message of HTTP says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpFacts {
    /// The method as it came.
    pub method: String,
    /// The path without the query, which may have secrets.
    pub path: String,
    /// Whether the client spoke TLS.
    pub is_https: bool,
    /// The `Host`, where there was one.
    pub host: Option<String>,
    /// The user's address, as far as proxies before this one are believed.
    pub client: String,
    /// Who was connected.
    pub peer: SocketAddr,
    /// Such as `1.1`.
    pub version: &'static str,
    /// `x-request-id`.
    pub request_id: String,
}

impl Finished {
    /// How many spans it becomes: its own, and one for each attempt that its record tells of.
    pub fn spans(&self) -> u64 {
        1 + self.record.tries().len() as u64
    }
}

impl Names for Finished {
    fn replica(&self, place: Place) -> String {
        let known = self.replicas.iter().find(|(known, _)| *known == place);
        known.map_or_else(|| format!("replica {}", place.slot), |(_, address)| address.to_string())
    }

    fn datacenter(&self, datacenter: u8) -> String {
        let name = self.datacenters.get(usize::from(datacenter)).cloned();
        name.unwrap_or_else(|| format!("data centre {datacenter}"))
    }
}

/// The three ends of the traces of a process. They are off with `None`.
pub fn open(sampling: Option<Sampling>) -> (Traces, TracesControl, mpsc::Receiver<Box<Finished>>) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let (rules, counts) = (Arc::<Rules>::default(), Arc::<TraceCounts>::default());
    let control = TracesControl { rules: Arc::clone(&rules), counts: Arc::clone(&counts) };
    control.set(sampling);
    (Traces { rules, counts, finished: sender }, control, receiver)
}

impl TracesControl {
    /// Follows these rules from now on.
    pub fn set(&self, sampling: Option<Sampling>) {
        self.rules.set(sampling.map(|it| (it.sample, it.slow)));
    }

    /// What is counted.
    pub const fn counts(&self) -> &Arc<TraceCounts> {
        &self.counts
    }
}

impl Traces {
    /// Whether traces are exported at the moment.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.rules.is_on()
    }

    /// Whether a trace that begins here with this random id is to be sampled.
    pub fn samples(&self, trace_id: u128) -> bool {
        self.rules.draws_random(trace_id)
    }

    /// Whether a request that has ended is exported: its trace is sampled, or it was slow, or it
    /// failed.
    pub fn wants(&self, record: &RequestRecord) -> bool {
        self.rules.is_remarkable(record)
    }

    /// Hands a request over.
    pub fn push(&self, finished: Box<Finished>) {
        let spans = finished.spans();
        if self.finished.try_send(finished).is_err() {
            self.counts.queue_full.fetch_add(spans, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::{Instant, Rng};

    fn rules(sample: f64) -> Traces {
        open(Some(Sampling { sample, slow: None })).0
    }

    #[test]
    fn the_share_of_traces_is_sampled_and_none_or_all_of_them_are_exact() {
        let mut rng = Rng::seeded(7);
        let mut id = || (u128::from(rng.bits()) << 64) | u128::from(rng.bits());
        let percent = rules(0.01);
        let sampled = (0..100_000).filter(|_| percent.samples(id())).count();
        assert!((800..1_200).contains(&sampled), "1 % of 100,000: {sampled}");
        for id in [0, 1, u128::MAX, id()] {
            assert!(rules(1.0).samples(id) && !rules(0.0).samples(id), "{id:x}");
        }
        // A threshold of OpenTelemetry: half of the traces are those with the upper random bit.
        assert!(
            rules(0.5).samples(0x80_0000_0000_0000) && !rules(0.5).samples(0x7f_ffff_ffff_ffff)
        );
    }

    #[test]
    fn attempts_have_spans_of_their_own_that_follow_from_the_requests() {
        let context = SpanContext { span: 0x00f0_67aa_0ba9_02b7, parent: None, flags: 1 };
        let mut spans: Vec<u64> = (0..=u8::MAX).map(|number| context.attempt(number)).collect();
        spans.push(context.span);
        spans.sort_unstable();
        spans.dedup();
        assert_eq!(spans.len(), 257);
        assert_eq!(context.attempt(3), context.attempt(3));
    }

    #[test]
    fn who_has_a_request_never_waits() {
        let (traces, control, _receiver) = open(Some(Sampling { sample: 1.0, slow: None }));
        let finished = Finished {
            record: RequestRecord::new(Instant::ZERO, 0),
            ended_at: SystemTime::UNIX_EPOCH,
            context: SpanContext { span: 1, parent: None, flags: 1 },
            upstream: "shop".to_owned(),
            policy: "c3".to_owned(),
            is_upstream_tls: false,
            facts: Facts::Http(HttpFacts {
                method: "GET".to_owned(),
                path: "/".to_owned(),
                is_https: false,
                host: None,
                client: "10.0.0.9".to_owned(),
                peer: ([10, 0, 0, 9], 1_234).into(),
                version: "1.1",
                request_id: "a".to_owned(),
            }),
            datacenters: Vec::new(),
            replicas: Vec::new(),
        };
        for _ in 0..WAITING_MAX + 5 {
            traces.push(Box::new(finished.clone()));
        }
        assert_eq!(control.counts().queue_full.load(Ordering::Relaxed), 5);
    }
}
