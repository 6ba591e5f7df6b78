//! Requests that ended on their way to a collector that takes them, refuses them, breaks off, is
//! dead or says nothing.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use evenkeel_core::Instant as Moment;
use evenkeel_core::request::decision::{Candidate, HedgeFate, Standing};
use evenkeel_proxy::requests::record::{
    AttemptEnd, Place, Remarks, RequestEnd, RequestRecord, Try, Why,
};
use evenkeel_proxy::requests::traces::{
    Facts, Finished, HttpFacts, Sampling, SpanContext, StoreFacts, TraceCounts, Traces,
    TracesControl, open,
};
use evenkeel_runtime::accept::{Stage, Stop, worker_runtime};
use evenkeel_testkit::otlp::{Collector, answer, attribute};
use evenkeel_testkit::wait;
use evenkeel_traces::config::{Endpoint, TracesConfig};
use evenkeel_traces::exporter::{Exporter, Target};
use tokio::sync::watch;

const CONTEXT: SpanContext = SpanContext { span: 7, parent: Some(5), flags: 1 };

fn place(slot: u16) -> Place {
    Place { datacenter: 0, slot, generation: 0 }
}

fn told(slot: u16, cost: f32) -> Candidate {
    Candidate { slot, cost, in_flight: 6, standing: Standing::Ok, ..Candidate::NOBODY }
}

/// Sent to the first replica, hedged to the second after 41 ms, which answered.
fn hedged() -> Finished {
    let mut record = RequestRecord::new(Moment::ZERO, 0);
    record.trace_id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    (record.candidates[0], record.candidates[1]) = (told(0, 3.5), told(1, 8.25));
    (record.candidates_told, record.members) = (2, 2);
    let sent = |slot, why, end, (sent_us, ended_us)| Try {
        place: place(slot),
        why,
        end,
        sent_us,
        ended_us,
        cost: 3.5,
    };
    record.tries[0] = sent(0, Why::First, AttemptEnd::Lost, (100, 44_000));
    record.tries[1] = sent(1, Why::Hedge, AttemptEnd::Answered, (41_100, 44_000));
    (record.attempts, record.answered_by) = (2, 1);
    (record.hedge, record.hedge_delay_us, record.hedge_quantile) = (HedgeFate::Sent, 40_000, 950);
    (record.status, record.head_us, record.total_us) = (200, 44_000, 45_000);
    (record.bytes, record.end) = (12, RequestEnd::Complete);
    record.remarks.add(Remarks::SLOW);
    record.remarks.add(Remarks::HEDGED);
    Finished {
        record,
        ended_at: SystemTime::UNIX_EPOCH + Duration::from_millis(1_700_000_000_045),
        context: CONTEXT,
        upstream: "shop".to_owned(),
        policy: "c3".to_owned(),
        is_upstream_tls: false,
        facts: Facts::Http(HttpFacts {
            method: "GET".to_owned(),
            path: "/cart".to_owned(),
            is_https: true,
            host: Some("shop.example:8443".to_owned()),
            client: "198.51.100.7".to_owned(),
            peer: ([10, 0, 0, 9], 1_234).into(),
            version: "2",
            request_id: "order-7".to_owned(),
        }),
        datacenters: vec!["home".to_owned()],
        replicas: vec![
            (place(0), SocketAddr::from(([10, 0, 0, 1], 80)).into()),
            (place(1), SocketAddr::from(([10, 0, 0, 2], 80)).into()),
        ],
    }
}

/// An exporter on a thread of its own.
struct Exporting {
    traces: Traces,
    control: TracesControl,
    _target: watch::Sender<Option<Target>>,
    thread: std::thread::JoinHandle<()>,
    stop: Arc<Stop>,
}

fn export_to(address: SocketAddr) -> Exporting {
    let sampling = Sampling { sample: 1.0, slow: None };
    let (traces, control, finished) = open(Some(sampling));
    let (host, port) = (address.ip().to_string(), address.port());
    let otlp = Endpoint { host, port, is_tls: false, path: "/v1/traces".to_owned() };
    let config = TracesConfig { otlp, sampling, service: "edge".to_owned(), tls: None };
    let (sender, target) = watch::channel(Some(Target { config, tls: None }));
    let counts = Arc::clone(control.counts());
    let stop = Arc::new(Stop::new());
    let signal = stop.signal();
    let thread = std::thread::spawn(move || {
        let exporter = Exporter { finished, target, counts };
        worker_runtime().unwrap().block_on(exporter.run(signal));
    });
    Exporting { traces, control, _target: sender, thread, stop }
}

impl Exporting {
    fn counts(&self) -> Arc<TraceCounts> {
        Arc::clone(self.control.counts())
    }

    /// Delivers what there is.
    fn end(self) -> Arc<TraceCounts> {
        let counts = self.counts();
        drop(self.traces);
        self.thread.join().unwrap();
        counts
    }
}

fn of(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

#[test]
fn a_hedged_request_becomes_three_spans_with_the_names_of_the_conventions() {
    let collector = Collector::start();
    let exporting = export_to(collector.address());
    exporting.traces.push(Box::new(hedged()));
    let counts = exporting.end();
    assert_eq!((of(&counts.exported), of(&counts.failures)), (3, 0));
    let head = &collector.heads()[0].to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
    let message = &collector.messages()[0].resource_spans[0];
    let resource = message.resource.as_ref().unwrap();
    assert!(format!("{resource:?}").contains("edge"), "{resource:?}");
    let spans = collector.spans();
    let [own, first, hedge] = spans.as_slice() else { panic!("{spans:#?}") };
    assert_eq!(own.trace_id, hedged().record.trace_id.to_be_bytes());
    assert_eq!(
        (&own.span_id[..], &own.parent_span_id[..]),
        (&7_u64.to_be_bytes()[..], &5_u64.to_be_bytes()[..])
    );
    assert_eq!((own.name.as_str(), own.kind, own.flags), ("GET shop", 2, 0x301));
    assert_eq!(own.end_time_unix_nano, 1_700_000_000_045_000_000);
    assert_eq!(own.start_time_unix_nano, 1_700_000_000_000_000_000);
    assert!(own.status.is_none());
    let has = |span, pairs: &[(&str, &str)]| {
        for (name, value) in pairs {
            assert_eq!(attribute(span, name).as_deref(), Some(*value), "{name} in {span:#?}");
        }
    };
    has(
        own,
        &[
            ("http.request.method", "GET"),
            ("url.path", "/cart"),
            ("url.scheme", "https"),
            ("http.route", "shop"),
            ("server.address", "shop.example"),
            ("server.port", "8443"),
            ("client.address", "198.51.100.7"),
            ("network.peer.address", "10.0.0.9"),
            ("network.protocol.version", "2"),
            ("http.response.status_code", "200"),
            ("http.response.body.size", "12"),
            ("evenkeel.request_id", "order-7"),
            ("evenkeel.policy", "c3"),
            ("evenkeel.remarks", "slow, hedged"),
            ("evenkeel.hedge", "sent"),
            ("evenkeel.hedge.delay_ms", "40"),
            (
                "evenkeel.candidates",
                "10.0.0.1:80 cost=3.5 in_flight=6 state=ok, \
                 10.0.0.2:80 cost=8.25 in_flight=6 state=ok",
            ),
        ],
    );
    let words = attribute(own, "evenkeel.explained").unwrap();
    assert!(words.contains("hedged to 10.0.0.2:80 after 41 ms (p95 40 ms)"), "{words}");
    assert_eq!((first.name.as_str(), first.kind), ("GET shop first", 3));
    assert_eq!((hedge.name.as_str(), hedge.kind), ("GET shop hedge", 3));
    for (number, span) in [(0, first), (1, hedge)] {
        assert_eq!(span.span_id, CONTEXT.attempt(number).to_be_bytes());
        assert_eq!(span.parent_span_id, own.span_id);
        assert!(span.status.is_none(), "who loses has not failed: {span:#?}");
    }
    has(first, &[("server.address", "10.0.0.1"), ("evenkeel.attempt.end", "cancelled")]);
    assert_eq!(attribute(first, "http.response.status_code"), None);
    has(
        hedge,
        &[
            ("network.peer.address", "10.0.0.2"),
            ("network.peer.port", "80"),
            ("url.full", "http://10.0.0.2:80/cart"),
            ("http.response.status_code", "200"),
            ("evenkeel.attempt.why", "hedge"),
            ("evenkeel.attempt.cost", "3.5"),
        ],
    );
    let offset = |at: u64| at - own.start_time_unix_nano;
    assert_eq!(offset(hedge.start_time_unix_nano), 41_100_000);
    assert_eq!(offset(hedge.end_time_unix_nano), 45_000_000, "to the last byte of the answer");
}

#[test]
fn a_request_of_a_store_has_the_names_of_the_conventions_for_databases() {
    let collector = Collector::start();
    let exporting = export_to(collector.address());
    let facts = Facts::Store(StoreFacts {
        system: "cassandra",
        operation: "EXECUTE",
        namespace: Some("shop".to_owned()),
        is_write: false,
        further: vec![("cassandra.consistency.level", "QUORUM".to_owned())],
    });
    exporting.traces.push(Box::new(Finished { facts, upstream: "ring".to_owned(), ..hedged() }));
    exporting.end();
    let spans = collector.spans();
    let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["EXECUTE ring", "EXECUTE ring first", "EXECUTE ring hedge"]);
    for span in &spans {
        for (name, value) in [
            ("db.system.name", "cassandra"),
            ("db.operation.name", "EXECUTE"),
            ("db.namespace", "shop"),
            ("cassandra.consistency.level", "QUORUM"),
            ("evenkeel.is_write", "false"),
        ] {
            assert_eq!(attribute(span, name).as_deref(), Some(value), "{name} in {span:#?}");
        }
        assert_eq!(attribute(span, "http.request.method"), None);
    }
    assert_eq!(attribute(&spans[2], "server.address").as_deref(), Some("10.0.0.2"));
}

#[test]
fn failures_are_errors_of_the_span_and_of_the_attempt() {
    let collector = Collector::start();
    let exporting = export_to(collector.address());
    let mut finished = hedged();
    let record = &mut finished.record;
    (record.attempts, record.answered_by, record.status) = (1, u8::MAX, 502);
    (record.tries[0].end, record.end) = (AttemptEnd::Unsent, RequestEnd::Unsent);
    if let Facts::Http(http) = &mut finished.facts {
        http.method = "BREW".to_owned();
    }
    finished.context.parent = None;
    exporting.traces.push(Box::new(finished));
    exporting.end();
    let spans = collector.spans();
    for span in &spans {
        assert_eq!(attribute(span, "error.type").as_deref(), Some("unsent"), "{span:#?}");
        assert_eq!(span.status.as_ref().unwrap().code, 2, "{span:#?}");
        assert_eq!(attribute(span, "http.request.method").as_deref(), Some("_OTHER"));
        let original = attribute(span, "http.request.method_original");
        assert_eq!(original.as_deref(), Some("BREW"));
    }
    assert_eq!((spans.len(), spans[0].flags), (2, 0x101));
    assert!(spans[0].parent_span_id.is_empty(), "it is a root");
}

#[test]
fn what_may_be_sent_again_is_sent_until_it_is_there() {
    let collector = Collector::start();
    collector.answer_next(answer("503 Service Unavailable", "Retry-After: 1\r\n", "warming up"));
    collector.answer_next("this is not HTTP\r\n\r\n");
    collector.answer_next(answer("429 Too Many Requests", "Retry-After: 0\r\n", ""));
    let exporting = export_to(collector.address());
    let began = Instant::now();
    exporting.traces.push(Box::new(hedged()));
    let counts = exporting.end();
    assert!(began.elapsed() >= Duration::from_secs(1), "not before it was to be");
    assert_eq!((of(&counts.exported), of(&counts.failures)), (3, 3));
    assert_eq!((of(&counts.rejected), of(&counts.undelivered)), (0, 0));
    assert_eq!(collector.spans().len(), 3);
}

#[test]
fn what_a_collector_refuses_is_counted_and_not_sent_again() {
    let collector = Collector::start();
    collector.answer_next(answer("400 Bad Request", "", "no such tenant"));
    let exporting = export_to(collector.address());
    exporting.traces.push(Box::new(hedged()));
    let counts = exporting.counts();
    wait::block_until("it was refused", || of(&counts.rejected) == 3);
    // Field 1 of the answer: 2 spans rejected, "too old".
    let partial = "\n\u{b}\u{8}\u{2}\u{12}\u{7}too old";
    collector.answer_next(answer("200 OK", "", partial));
    exporting.traces.push(Box::new(hedged()));
    wait::block_until("some were refused", || of(&counts.rejected) == 5);
    // A server that knows nothing of OTLP says that all is well.
    collector.answer_next(answer("200 OK", "", "<html>welcome</html>"));
    exporting.traces.push(Box::new(hedged()));
    exporting.end();
    assert_eq!((of(&counts.exported), of(&counts.rejected)), (4, 5));
    assert_eq!((of(&counts.failures), collector.heads().len()), (1, 3), "each once");
}

#[test]
fn a_collector_that_asks_for_ages_gets_the_next_batch() {
    let collector = Collector::start();
    let ages = format!("Retry-After: {}\r\n", u64::MAX);
    collector.answer_next(answer("503 Service Unavailable", &ages, ""));
    let exporting = export_to(collector.address());
    exporting.traces.push(Box::new(hedged()));
    let counts = exporting.counts();
    wait::block_until("it was given up", || of(&counts.undelivered) == 3);
    exporting.traces.push(Box::new(hedged()));
    exporting.end();
    assert_eq!((of(&counts.exported), of(&counts.failures)), (3, 1));
}

#[test]
fn a_collector_that_says_nothing_holds_up_nobody_and_not_the_end() {
    let collector = Collector::start();
    collector.answer_next("");
    let exporting = export_to(collector.address());
    for _ in 0..4_000 {
        exporting.traces.push(Box::new(hedged())); // nobody waits here
    }
    let counts = exporting.counts();
    assert!(of(&counts.queue_full) > 0, "{counts:?}");
    wait::block_until("it was asked", || !collector.heads().is_empty());
    exporting.stop.enter(Stage::LameDuck);
    let all = 3 * 4_000;
    exporting.end();
    let told = of(&counts.exported) + of(&counts.queue_full) + of(&counts.undelivered);
    assert_eq!(told, all, "each is counted: {counts:?}");
}

#[test]
fn nobody_is_there_and_then_a_collector_is() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let exporting = export_to(address);
    exporting.traces.push(Box::new(hedged()));
    let counts = exporting.counts();
    wait::block_until("it was tried", || of(&counts.failures) > 0);
    let collector = Collector::at(address);
    exporting.end();
    assert_eq!((of(&counts.exported), collector.spans().len()), (3, 3));
}
