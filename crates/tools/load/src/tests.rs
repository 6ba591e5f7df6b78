//! Loads against small servers with known faults.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hyper::body::Bytes;

use super::{
    Arrivals, Expectation, Keys, Load, LoadError, Outcome, Progress, Stop, Target, Template,
};

/// A server with a thread for each connection; `answer` gets the path and writes the response.
struct Server {
    url: String,
    ended: Arc<AtomicBool>,
}

impl Server {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (answer, ended) = (Arc::new(answer), Arc::new(AtomicBool::new(false)));
        let seen = Arc::clone(&ended);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                let answer = Arc::clone(&answer);
                thread::spawn(move || serve(stream.unwrap(), &*answer));
            }
        });
        Self { url: format!("http://{address}"), ended }
    }

    fn load(&self, path: &str, rate: f64, duration_ms: u64) -> Load {
        let target = Target::new([format!("{}{path}", self.url).as_str()]).unwrap();
        let mut load = Load::new(target, Arrivals::constant(rate).unwrap());
        load.plan.duration = Some(Duration::from_millis(duration_ms));
        load
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&str, &mut TcpStream)) {
    stream.set_nodelay(true).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(first)) = lines.next() {
        let path = first.split(' ').nth(1).unwrap().to_owned();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        answer(&path, &mut stream);
    }
}

fn respond(stream: &mut TcpStream, head: &str, body: &str) {
    let length = body.len();
    // The client may have gone, which is its right.
    let _ = write!(stream, "HTTP/1.1 {head}\r\nContent-Length: {length}\r\n\r\n{body}");
}

fn run(load: Load) -> Outcome {
    load.run(&Stop::new(), |_| ()).unwrap()
}

#[test]
fn every_request_is_sent_answered_and_checked() {
    let server = Server::start(|path, stream| {
        respond(stream, "200 OK\r\nBrownout-Served: ?1", &format!("this is {path}"));
    });
    let mut load = server.load("/item/{n}?k={key}", 500.0, 1_000);
    load.target.keys = Keys { count: 10, skew: 0.99 };
    load.expectation = Expectation::Rendered(Template::lenient("this is /item/{n}?k={key}"));
    let parameters = load.parameters();
    let outcome = run(load);
    let report = &outcome.report;
    assert_eq!((report.requests, report.served, report.failed), (500, 500, 0), "{report:?}");
    assert_eq!((report.optional, report.statuses.success, report.mismatches), (500, 500, 0));
    let digits = (0..500_u32).map(|n| n.to_string().len() as u64).sum::<u64>();
    let constant = "this is /item/?k=".len() as u64 + 1;
    assert_eq!(report.bytes, 500 * constant + digits);
    assert_eq!(report.offered_rate, 500.0);
    assert_eq!(outcome.latency.count(), 500);
    assert!(outcome.latency.quantile_ms(0.5) >= outcome.service.quantile_ms(0.5));
    assert_eq!((parameters.rate, parameters.duration_s), (500.0, Some(1.0)));
}

/// The first 20 requests are slow and fail: nothing of them is told.
#[test]
fn a_warm_up_is_sent_and_not_counted() {
    let received = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&received);
    let server = Server::start(move |path, stream| {
        count.fetch_add(1, Ordering::Relaxed);
        if path[1..].parse::<u32>().is_ok_and(|n| n < 20) {
            thread::sleep(Duration::from_millis(50));
            respond(stream, "503 Service Unavailable", "");
        } else {
            respond(stream, "200 OK", "x");
        }
    });
    let mut load = server.load("/{n}", 100.0, 600);
    load.plan.warm_up = Duration::from_millis(200);
    let outcome = run(load);
    let report = &outcome.report;
    assert_eq!((report.requests, report.served, report.failed), (40, 40, 0), "{report:?}");
    assert_eq!((report.statuses.server_error, report.unfinished), (0, 0));
    assert_eq!((outcome.latency.count(), report.offered_rate), (40, 100.0));
    assert_eq!(received.load(Ordering::Relaxed), 60, "the warm-up was sent as well");
}

#[test]
fn the_json_has_the_stable_keys() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", ""));
    let mut load = server.load("/", 100.0, 100);
    load.plan.policy = "c3".into();
    load.plan.seed = 7;
    let json = serde_json::to_value(&run(load).report).unwrap();
    assert_eq!((&json["policy"], &json["seed"]), (&"c3".into(), &7.into()));
    for key in ["requests", "served", "failed", "timeouts", "optional"] {
        assert!(json[key].is_u64(), "{key}: {json}");
    }
    let figures = ["mean_ms", "p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms"];
    for key in figures.into_iter().chain(["offered_rate", "achieved_rate", "send_lag_p99_ms"]) {
        assert!(json[key].is_f64(), "{key}: {json}");
    }
    assert_eq!(json["statuses"]["2xx"], 10);
}

/// The server stalls once for 500 ms. A quarter of the requests due within 2 s was due in the
/// stall, so the 99th percentile must show nearly all of it; a clock started at sending, on the
/// one connection, sees a single slow request among 800.
#[test]
fn a_stall_is_seen_by_every_request_due_in_it() {
    let stalled = AtomicBool::new(false);
    let server = Server::start(move |path, stream| {
        if path == "/200" && !stalled.swap(true, Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(500));
        }
        respond(stream, "200 OK", "x");
    });
    let mut load = server.load("/{n}", 400.0, 2_000);
    load.connections_max = 1;
    let report = run(load).report;
    assert_eq!((report.requests, report.served), (800, 800), "{report:?}");
    // Waits fall linearly from 500 ms over the 200 requests due in the stall: the 1st percentile
    // from above (8 requests) waited at least 500 × (1 - 8/200) = 480 ms, the 12.5th 250 ms.
    let p99_ms = report.latency.p99_ms.unwrap();
    assert!((470.0..1_500.0).contains(&p99_ms), "{report:?}");
    assert!(report.latency.mean_ms.unwrap() > 0.9 * 500.0 / 2.0 * 0.25, "{report:?}");
    assert!(report.service_p99_ms.unwrap() < 0.5 * p99_ms, "{report:?}");
    assert_eq!(report.connections_opened, 1);
}

#[test]
fn timeouts_count_with_the_timeout_and_close_their_connection() {
    let server = Server::start(|path, stream| {
        let number = path[1..].parse::<u64>().unwrap();
        if number % 10 == 3 {
            thread::sleep(Duration::from_millis(1_500));
        }
        respond(stream, "200 OK", "x");
    });
    let mut load = server.load("/{n}", 100.0, 1_000);
    load.plan.timeout = Duration::from_millis(500);
    let started = Instant::now();
    let outcome = run(load);
    let report = &outcome.report;
    assert_eq!((report.requests, report.timeouts), (100, 10), "{report:?}");
    assert_eq!((report.served, report.failed), (90, 0), "{report:?}");
    assert_eq!(report.latency.max_ms, Some(500.0));
    assert_eq!(outcome.latency.count(), 100);
    assert_eq!(outcome.service.count(), 90);
    assert!(report.connections_opened > 10, "{report:?}");
    assert!(started.elapsed() < Duration::from_millis(3_000));
}

#[test]
fn a_timed_out_request_takes_its_connection_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.read_to_end(&mut Vec::new()).map_err(|error| error.kind())
    });
    let target = Target::new([url.as_str()]).unwrap();
    let mut load = Load::new(target, Arrivals::constant(1.0).unwrap());
    // The second request keeps the load running while the first has timed out.
    (load.plan.requests_max, load.connections_max) = (Some(2), 1);
    load.plan.timeout = Duration::from_millis(300);
    let loading = thread::spawn(move || run(load).report);
    let read = server.join().unwrap();
    assert!(matches!(read, Ok(length) if length > 0), "the connection stays open: {read:?}");
    assert_eq!(loading.join().unwrap().timeouts, 1);
}

/// One connection that never answers: everything behind it waits in the queue, whose end is near.
#[test]
fn waiting_requests_time_out_and_a_full_queue_drops() {
    let server = Server::start(|_, _| thread::sleep(Duration::from_secs(5)));
    let mut load = server.load("/", 100.0, 500);
    load.plan.timeout = Duration::from_secs(1);
    (load.connections_max, load.queue_max) = (1, 20);
    let report = run(load).report;
    // One in flight and 20 waiting; the 29 that came later found the queue full.
    assert_eq!((report.requests, report.timeouts, report.dropped), (50, 21, 29), "{report:?}");
    assert_eq!(report.failed, 29);
    assert!(report.failures[0].message.starts_with("dropped: "), "{report:?}");
}

#[test]
fn a_refused_connection_is_reported_and_ends() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = Target::new([format!("http://{free}/").as_str()]).unwrap();
    let mut load = Load::new(target, Arrivals::constant(200.0).unwrap());
    load.plan.requests_max = Some(50);
    let report = run(load).report;
    assert_eq!(
        (report.requests, report.failed, report.latency.p50_ms),
        (50, 50, None),
        "{report:?}"
    );
    let [failure] = report.failures.as_slice() else { panic!("{report:?}") };
    assert_eq!(failure.count, 50);
    let wanted = format!("connect {free}: Connection refused");
    assert!(failure.message.starts_with(&wanted), "{failure:?}");
    assert!(failure.message.ends_with("(is the server running?)"), "{failure:?}");
    assert!(report.duration_s < 2.0, "{report:?}");
}

#[test]
fn wrong_bodies_and_statuses_fail_with_details() {
    let server = Server::start(|path, stream| match path {
        "/5" => respond(stream, "200 OK", "body of /9"),
        "/6" => respond(stream, "503 Service Unavailable", "busy"),
        _ => respond(stream, "200 OK", &format!("body of {path}")),
    });
    let mut load = server.load("/{n}", 200.0, 100);
    load.expectation =
        Expectation::Computed(Box::new(|facts| Bytes::from(format!("body of {}", facts.path))));
    let report = run(load).report;
    assert_eq!((report.requests, report.served, report.failed), (20, 18, 2), "{report:?}");
    assert_eq!((report.mismatches, report.statuses.server_error), (1, 1), "{report:?}");
    let reasons: Vec<(u64, &str)> =
        report.failures.iter().map(|it| (it.count, it.message.as_str())).collect();
    let wrong = "answered with another body than expected";
    assert_eq!(reasons, [(1, "answered 503 Service Unavailable"), (1, wrong)]);
    let [mismatch] = report.mismatch_examples.as_slice() else { panic!("{report:?}") };
    assert_eq!((mismatch.number, mismatch.path.as_str(), mismatch.offset), (5, "/5", 9));
    assert_eq!((mismatch.expected.as_str(), mismatch.came.as_str()), ("\"5\"", "\"9\""));
}

/// A service behind a load balancer that sends everybody to HTTPS answers nothing fast.
#[test]
fn redirects_are_not_served() {
    let server = Server::start(|_, stream| {
        respond(stream, "301 Moved Permanently\r\nLocation: https://shop.test/", "");
    });
    let report = run(server.load("/", 100.0, 100)).report;
    assert_eq!((report.requests, report.served, report.failed), (10, 0, 10), "{report:?}");
    assert_eq!((report.statuses.redirection, report.latency.p50_ms), (10, None));
    let [reason] = report.failures.as_slice() else { panic!("{report:?}") };
    assert!(reason.message.starts_with("answered 301 Moved Permanently"), "{reason:?}");
}

#[test]
fn broken_responses_fail_one_request_each() {
    let server = Server::start(|path, stream| {
        let sent = match path {
            "/1" => write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            "/2" => write!(stream, "what is HTTP?\r\n\r\n"),
            "/3" => Ok(()),
            _ => return respond(stream, "200 OK\r\nConnection: close", "whole"),
        };
        sent.and_then(|()| stream.shutdown(std::net::Shutdown::Both)).unwrap();
    });
    let mut load = server.load("/{n}", 50.0, 200);
    load.plan.timeout = Duration::from_secs(2);
    let report = run(load).report;
    assert_eq!((report.requests, report.served, report.failed), (10, 7, 3), "{report:?}");
    assert_eq!(report.timeouts, 0);
    let messages = report.failures.iter().map(|failure| failure.message.as_str());
    assert!(messages.clone().any(|message| message.contains("no HTTP/1.1")), "{report:?}");
    assert!(
        messages.clone().any(|message| message.contains("closed the connection")),
        "{report:?}"
    );
}

/// A server may close an idle connection at any time; the next request takes another one.
#[test]
fn connections_closed_while_idle_cost_no_request() {
    let server = Server::start(|_, stream| {
        respond(stream, "200 OK", "x");
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    });
    let report = run(server.load("/", 5.0, 1_100)).report;
    assert_eq!((report.served, report.failed), (6, 0), "{report:?}");
    assert_eq!(report.connections_opened, 6, "{report:?}");
}

/// Whether a request was written before its connection was found closed is a matter of chance;
/// that each is decided is not.
#[test]
fn a_server_that_hangs_up_on_everyone_fails_every_request() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || listener.incoming().for_each(drop));
    let target = Target::new([url.as_str()]).unwrap();
    let mut load = Load::new(target, Arrivals::constant(200.0).unwrap());
    load.plan.requests_max = Some(40);
    let report = run(load).report;
    assert_eq!((report.requests, report.failed, report.timeouts), (40, 40, 0), "{report:?}");
    assert_eq!(report.failures.iter().map(|failure| failure.count).sum::<u64>(), 40);
    assert!(report.duration_s < 5.0, "{report:?}");
}

#[test]
fn a_load_stopped_before_it_starts_sends_nothing_for_long() {
    let server = Server::start(|_, stream| respond(stream, "200 OK", "x"));
    let stop = Stop::new();
    stop.stop();
    let report = server.load("/", 10.0, 60_000).run(&stop, |_| ()).unwrap().report;
    assert!(report.cancelled && report.duration_s < 5.0, "{report:?}");
}

#[test]
fn stopping_keeps_what_was_measured() {
    let server = Server::start(|path, stream| {
        if path == "/20" {
            thread::sleep(Duration::from_secs(5));
        }
        respond(stream, "200 OK", "x");
    });
    let load = server.load("/{n}", 100.0, 60_000);
    let (stop, started) = (Stop::new(), Instant::now());
    let mut reported: Vec<Progress> = Vec::new();
    let outcome = load.run(&stop, |progress| {
        reported.push(progress.clone());
        if progress.served >= 50 {
            stop.stop();
        }
    });
    let report = outcome.unwrap().report;
    assert!(started.elapsed() < Duration::from_secs(4));
    assert!(report.cancelled && report.served >= 50, "{report:?}");
    assert_eq!(report.requests, report.served);
    assert!(report.unfinished >= 1, "request 20 has no answer: {report:?}");
    assert!(report.latency.p50_ms.is_some());
    assert!((report.offered_rate - 100.0).abs() < 10.0, "{report:?}");
    assert!(reported.is_sorted_by_key(|progress| progress.served));
    assert_eq!(reported[0].end, Some(Duration::from_secs(60)));
}

#[test]
fn bounds_out_of_range_are_refused() {
    let with = |change: fn(&mut Load)| {
        let target = Target::new(["http://127.0.0.1:1/"]).unwrap();
        let mut load = Load::new(target, Arrivals::constant(1.0).unwrap());
        change(&mut load);
        load.run(&Stop::new(), |_| ()).unwrap_err().to_string()
    };
    assert!(with(|load| load.plan.timeout = Duration::ZERO).starts_with("timeout: got 0ns"));
    assert!(with(|load| load.plan.duration = Some(Duration::ZERO)).starts_with("duration: "));
    assert!(with(|load| load.connections_max = 0).starts_with("connections: got 0"));
    assert!(with(|load| load.plan.spin = Duration::from_millis(1)).starts_with("spin: got 1ms"));
    assert!(with(|load| load.target.keys.count = 0).starts_with("keys: got 0"));
    assert!(with(|load| load.target.keys.skew = -1.0).starts_with("key skew: got -1"));
}

#[test]
fn unknown_hosts_are_an_error_before_any_request() {
    let target = Target::new(["http://no-such-host.invalid/"]).unwrap();
    let load = Load::new(target, Arrivals::constant(1.0).unwrap());
    let error = load.run(&Stop::new(), |_| ()).unwrap_err();
    assert!(matches!(error, LoadError::Resolve { .. }), "{error}");
    assert!(error.to_string().contains("no-such-host.invalid:80"), "{error}");
}
