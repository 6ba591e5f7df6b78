//! Both engines of HTTP/1.1 are given the same bytes: whoever handles requests must be told the
//! same, and the client too. What one of them refuses and the other passes on is how requests are
//! smuggled.
//!
//! Millions of cases, in minutes: `PROPTEST_CASES=10000000 CARGO_PROFILE_CI_OPT_LEVEL=2 cargo test
//! --profile ci -p evenkeel-http --lib differential`.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_runtime::accept::{Listener, Stop};
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, ServerLimits, UpstreamLimits};
use evenkeel_runtime::stream::Stream;
use evenkeel_testkit::corpus::{self, Case};
use http::Method;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{Body, FieldName, FieldValue, Request, Response, Upstream, serve};

const LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 4096,
    body_bytes_max: 1000,
    connections_max: 10,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    write: Duration::from_secs(5),
    connection_age: Duration::MAX,
    drain: Duration::from_secs(5),
    engine: Engine::Hyper,
};

const UPSTREAM: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: 10,
    idle_connections_max: 10,
    idle: Duration::from_secs(5),
    head_bytes_max: 8192,
    body: BodyLimits::DEFAULT,
    http2: Http2::Never,
    engine: Engine::Hyper,
};

/// What came of a client's bytes.
#[derive(Debug, PartialEq, Eq, Default)]
struct Observed {
    /// Requests as they were handled, with their bodies.
    handled: Vec<String>,
    /// Answers, line by line.
    answers: Vec<String>,
}

/// What a future comes to, in virtual time. A thread's cases share a runtime: making one takes
/// longer than a case.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    thread_local! {
        static RUNTIME: tokio::runtime::LocalRuntime = {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            let runtime = builder.enable_time().start_paused(true).build_local(Default::default());
            runtime.expect("a runtime")
        };
    }
    RUNTIME.with(|runtime| runtime.block_on(future))
}

/// What comes of these bytes, written in pieces, behind which the client writes nothing more, and
/// maybe says so.
fn observe(engine: Engine, pieces: &[Vec<u8>], closes: bool) -> Observed {
    let handled = Rc::<RefCell<Vec<String>>>::default();
    let (seen, pieces) = (Rc::clone(&handled), pieces.to_vec());
    let answers = block_on(async move {
        let ((listener, dialer), stop) = (Listener::memory(), Stop::new());
        let handler = move |request, _| handle(request, Rc::clone(&seen));
        let limits = ServerLimits { engine, ..LIMITS };
        let serving = tokio::task::spawn_local(serve(listener, limits, handler, stop.signal()));
        let (mut reading, mut writing) = tokio::io::split(dialer.connect().expect("it listens"));
        let sender = tokio::task::spawn_local(async move {
            for piece in pieces {
                if writing.write_all(&piece).await.is_err() {
                    return;
                }
                tokio::task::yield_now().await;
            }
            if closes {
                let _ = writing.shutdown().await;
            }
            std::future::pending::<()>().await;
        });
        let mut answers = Vec::new();
        // A client that leaves ends its handlers: it waits until nothing more comes.
        let quiet = Duration::from_millis(20);
        while let Ok(Ok(1..)) = tokio::time::timeout(quiet, reading.read_buf(&mut answers)).await {}
        sender.abort();
        serving.abort();
        answers
    });
    let answers = String::from_utf8_lossy(&answers).into_owned();
    let handled = handled.take();
    Observed { handled, answers: normal(&answers) }
}

/// Writes down what came, and answers with its length.
async fn handle(request: Request<Body>, seen: Rc<RefCell<Vec<String>>>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut lines: Vec<String> = head
        .headers
        .iter()
        .map(line)
        .map(|line| match line.strip_prefix("content-length: ").map(str::parse::<u64>) {
            Some(Ok(length)) => format!("content-length: {length}"), // what it means
            _ => line,
        })
        .collect();
    lines.sort();
    let body = body.collect(u64::MAX).await;
    let text =
        body.as_ref().map_or_else(|_| "broken".to_owned(), |it| it.escape_ascii().to_string());
    let (method, uri, version) = (&head.method, &head.uri, head.version);
    seen.borrow_mut().push(format!("{method} {uri} {version:?} {lines:?} {text}"));
    match body {
        Ok(body) => Response::new(Body::full(format!("{} bytes", body.len()))),
        Err(_) => refused(400),
    }
}

/// A line of a head, its name in lower case: one engine keeps the case in which it came.
fn line((name, value): (FieldName<'_>, FieldValue<'_>)) -> String {
    let name = name.to_string().to_ascii_lowercase();
    format!("{name}: {}", value.as_bytes().escape_ascii())
}

fn refused(status: u16) -> Response<Body> {
    let response = http::Response::builder().status(status).body(Body::empty());
    response.expect("it is plain").into()
}

/// Without what may differ: the date, the order of lines, and whether a client whose request broke,
/// or of HTTP/1.0, is told whether the connection ends.
fn normal(answers: &str) -> Vec<String> {
    let mut normal = Vec::new();
    for part in answers.replace("HTTP/1.0 400", "HTTP/1.1 400").split("\r\n\r\n") {
        let mut lines: Vec<_> = part.split("\r\n").filter(|it| !it.starts_with("date:")).collect();
        lines[1..].sort_unstable();
        if lines[0].ends_with(" 400 Bad Request") || lines[0].contains("HTTP/1.0 ") {
            lines.retain(|line| !line.starts_with("connection:"));
        }
        normal.push(lines.join("\n"));
    }
    normal
}

fn a_line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => select(&["x-a: 1", "accept: */*", "X-B:2", "x-c:  spaces  ", "cookie: a=b"][..])
            .prop_map(str::to_owned),
        3 => select(&[
            "content-length: 5", "content-length: 0", "Content-Length: 05", "content-length: +5",
            "content-length: 5, 5", "content-length: 6", "content-length: -1", "content-length:",
            "content-length: 5 5", "content-length: 99999999999999999999", "content-length: 2000",
        ][..]).prop_map(str::to_owned),
        3 => select(&[
            "transfer-encoding: chunked", "Transfer-Encoding: Chunked", "transfer-encoding: gzip",
            "transfer-encoding: gzip, chunked", "transfer-encoding: chunked, gzip",
            "transfer-encoding: chunked, chunked", "transfer-encoding: identity",
            "transfer-encoding: xchunked", "transfer-encoding:", "transfer-encoding : chunked",
            "transfer-encoding: \u{e9}, chunked",
        ][..]).prop_map(str::to_owned),
        2 => select(&[
            "connection: close", "connection: keep-alive", "connection: close, keep-alive",
            "connection: x, Close", "connection: x-a", "expect: 100-continue",
            "Expect: 100-Continue", "te: trailers", "trailer: x-t", "upgrade: websocket", "host: b",
        ][..]).prop_map(str::to_owned),
        1 => select(&[
            " folded", "no colon", "bad name: 1", "x\u{e9}: 1", "x-d: \u{1}", "x-e: \u{e9}", ": 1",
        ][..]).prop_map(str::to_owned),
    ]
}

pub(crate) fn a_body() -> impl Strategy<Value = String> {
    select(
        &[
            "",
            "",
            "hello",
            "5\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\r\nx-t: 1\r\n\r\n",
            "5;a=b\r\nhello\r\n0\r\n\r\n",
            "5 \r\nhello\r\n0\r\n\r\n",
            "05\r\nhello\r\n00\r\n\r\n",
            "5\nhello\n0\n\n",
            "5\r\nhelloX\r\n0\r\n\r\n",
            "0x5\r\nhello\r\n0\r\n\r\n",
            "-5\r\nhello\r\n",
            "5\r\nhel",
            "0\r\n\r\n",
            "\r\n0\r\n\r\n",
            "g\r\n",
            "fffffffffffffffff\r\n",
            "5\r\nhello0\r\n\r\n",
            "5;\r\nhello\r\n0\r\n\r\n",
            "5\t;x\r\nhello\r\n0\r\n\r\n",
            "5;a\nb\r\nhello\r\n0\r\n\r\n",
            "5\r\nhello\r\n0\r\nbad name: 1\r\n\r\n",
            "5\r\nhello\r\n0\r\nx-t:1\r\n",
        ][..],
    )
    .prop_map(str::to_owned)
}

fn a_request() -> impl Strategy<Value = Vec<u8>> {
    let method =
        select(&["GET", "POST", "HEAD", "PUT", "OPTIONS", "DELETE", "G\u{e9}T", "get"][..]);
    let target =
        select(&["/", "/a?b=c", "*", "http://b/c", "b:80", "/\u{e9}", "/a b", "", "//x"][..]);
    let version =
        select(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1"][..]);
    let begin = select(&["", "", "", "", "\r\n", "\n", " "][..]);
    let end = select(&["\r\n", "\r\n", "\r\n", "\r\n", "\n"][..]);
    let lines = vec(a_line(), 0..5);
    (begin, method, target, version, end, lines, a_body()).prop_map(
        |(begin, method, target, version, end, lines, body)| {
            let lines: String = lines.iter().map(|line| format!("{line}{end}")).collect();
            let head = format!("{begin}{method} {target} {version}{end}host: a{end}{lines}{end}");
            format!("{head}{body}").into_bytes()
        },
    )
}

/// Requests one behind the other.
pub(crate) fn bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    // hyper looks at a head when its end is there.
    pieces(vec(a_request(), 1..4), "\r\n\r\n")
}

/// These messages, some of whose bytes are others, with this end, cut into pieces.
fn pieces(
    messages: impl Strategy<Value = Vec<Vec<u8>>>,
    end: &'static str,
) -> impl Strategy<Value = Vec<Vec<u8>>> {
    let spoilt = vec((any::<prop::sample::Index>(), 0..128_u8), 0..2);
    let spoilt = prop_oneof![3 => Just(Vec::new()), 1 => spoilt];
    let cuts = vec(any::<prop::sample::Index>(), 0..4);
    (messages, spoilt, cuts).prop_map(|(messages, spoilt, cuts)| {
        let mut all = messages.concat();
        spoilt.iter().for_each(|(at, byte)| *at.get_mut(&mut all) = *byte);
        all.extend_from_slice(end.as_bytes());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(all.len())).collect();
        cuts.extend([0, all.len()]);
        cuts.sort_unstable();
        cuts.windows(2).map(|ends| all[ends[0]..ends[1]].to_vec()).collect()
    })
}

/// What the engine of our own refuses and hyper passes on: trailers whose lines end with a line
/// feed alone, and a bad length behind a coding.
fn may_be_refused(sent: &[u8]) -> bool {
    let is_bare = |pair: &[u8]| pair[0] != b'\r' && pair[1] == b'\n';
    let text = String::from_utf8_lossy(sent).to_ascii_lowercase();
    let has_both = text.contains("transfer-encoding") && text.contains("content-length");
    has_both || sent.windows(2).any(is_bare)
}

/// Whether both are told the same of a client's bytes, or the engine of our own refuses what may
/// be: what it was told before is the same then.
fn is_as_by_hyper(pieces: &[Vec<u8>], closes: bool, may_be_refused: bool) -> Result<(), String> {
    let hyper = observe(Engine::Hyper, pieces, closes);
    let native = observe(Engine::Native, pieces, closes);
    let is_refused = native.answers.concat().contains(" 400 Bad Request");
    let whole = native.handled.iter().filter(|request| !request.ends_with(" broken"));
    let is_same = if is_refused && may_be_refused {
        let mut both = whole.zip(&hyper.handled);
        both.all(|(native, hyper)| native == hyper) && native.handled.len() <= hyper.handled.len()
    } else {
        hyper == native
    };
    let sent = pieces.concat();
    if is_same { Ok(()) } else { Err(format!("{hyper:?}\n{native:?}\nof {}", sent.escape_ascii())) }
}

/// The pieces of a case, and its bytes one by one.
fn ways(case: &Case) -> impl Iterator<Item = Vec<Vec<u8>>> {
    let bytes = case.pieces.concat();
    let single = (bytes.len() < 2_000).then(|| bytes.iter().map(|byte| vec![*byte]).collect());
    std::iter::once(case.pieces.clone()).chain(single)
}

#[test]
fn both_engines_understand_the_corpus_alike() {
    // Digits that a number does not need.
    let is_strict = |name: &str| name == "chunk-size-zeros-many";
    let mut wrong = Vec::new();
    let requests = corpus::read(corpus::REQUESTS);
    // No handler agrees to a tunnel.
    for case in requests.into_iter().filter(|case| case.name != "method-connect") {
        for mut pieces in ways(&case) {
            pieces.push(b"\r\n\r\n".to_vec());
            let may_be_refused = is_strict(&case.name) || may_be_refused(&pieces.concat());
            let is_same = is_as_by_hyper(&pieces, case.closes, may_be_refused);
            wrong.extend(is_same.map_err(|why| format!("{}: {why}", case.name)).err());
        }
    }
    for case in corpus::read(corpus::RESPONSES) {
        let method = if case.head { Method::HEAD } else { Method::GET };
        for pieces in ways(&case) {
            let [hyper, native] = [Engine::Hyper, Engine::Native]
                .map(|engine| observe_answer(engine, &method, &pieces));
            if hyper != native && !may_be_refused(&pieces.concat()) {
                wrong.push(format!("{}: {hyper:.300}\n{native:.300}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// A thousand cases, or as many as `PROPTEST_CASES` says.
fn many() -> ProptestConfig {
    let config = ProptestConfig::default();
    ProptestConfig { cases: config.cases.max(1_000), ..config }
}

proptest! {
    #![proptest_config(many())]

    #[test]
    fn both_engines_understand_a_client_alike(pieces in bytes(), closes in any::<bool>()) {
        let is_same = is_as_by_hyper(&pieces, closes, may_be_refused(&pieces.concat()));
        prop_assert!(is_same.is_ok(), "{}", is_same.unwrap_err());
    }

    #[test]
    fn both_engines_understand_a_replica_alike(method in a_method(), pieces in response_bytes()) {
        let hyper = observe_answer(Engine::Hyper, &method, &pieces);
        let native = observe_answer(Engine::Native, &method, &pieces);
        let sent = pieces.concat();
        if hyper != native {
            prop_assert!(may_be_refused(&sent), "{hyper}\n{native}\nof {}", sent.escape_ascii());
        }
    }
}

fn a_method() -> impl Strategy<Value = Method> {
    select(&[Method::GET, Method::GET, Method::POST, Method::HEAD][..])
}

/// A response, sometimes behind others, some of whose bytes are others, cut into pieces.
pub(crate) fn response_bytes() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let version =
        select(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTP/1.1"][..]);
    let status = select(
        &[
            "200 OK",
            "200 Fine",
            "200",
            "204 No Content",
            "304 Not Modified",
            "500 Oh no",
            "099 x",
            "100 Continue",
            "103 Early Hints",
            "101 Switching Protocols",
            "1000 x",
            "abc x",
        ][..],
    );
    let response = (version, status, vec(a_line(), 0..4), a_body()).prop_map(
        |(version, status, lines, body)| {
            let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
            format!("{version} {status}\r\n{lines}\r\n{body}").into_bytes()
        },
    );
    pieces(vec(response, 1..3), "")
}

/// What comes of these bytes of a replica, which then closes.
fn observe_answer(engine: Engine, method: &Method, pieces: &[Vec<u8>]) -> String {
    let (method, pieces) = (method.clone(), pieces.to_vec());
    block_on(async move {
        let (ours, mut stream) = tokio::io::duplex(64 << 10);
        let replica = tokio::task::spawn_local(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut request).await.expect("a request");
            }
            for piece in pieces {
                let _ = stream.write_all(&piece).await;
                tokio::task::yield_now().await;
            }
            let _ = stream.shutdown().await;
            let _ = stream.read_buf(&mut request).await;
        });
        let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
        let upstream = Upstream::new(nowhere, UpstreamLimits { engine, ..UPSTREAM });
        let request = http::Request::builder().method(method).uri("/").header("host", "a");
        let request = request.body(Body::empty()).expect("it is plain").into();
        let observed = match upstream.send_other(Some(Stream::Memory(ours)), request).await {
            Ok(response) => told(response).await,
            // A head that broke off may be seen to be none before it does.
            Err(_) => "no answer".to_owned(),
        };
        replica.abort();
        tokio::time::advance(UPSTREAM.idle).await; // so that nothing is left of this replica
        observed
    })
}

/// What a response says.
async fn told(response: Response<Body>) -> String {
    let (head, mut body) = response.into_parts();
    let mut lines: Vec<String> = head.headers.iter().map(line).collect();
    lines.sort();
    let (mut data, mut end) = (Vec::new(), String::new());
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(bytes)) => data.extend_from_slice(&bytes),
            Ok(Err(trailers)) => end = format!("{:?}", trailers.into_trailers()),
            Err(_) => end = "broken".to_owned(),
        }
    }
    format!("{} {lines:?} {} {end}", head.status, data.escape_ascii())
}
