//! The proxy between clients and replicas that speak bytes: what passes, and what is retried.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod bodies;
mod chaos;
mod siblings;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_core::Health;
use evenkeel_http as engine;
use evenkeel_load::{Arrivals, Load, Stop, Target};
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_runtime::accept::{Listener, StopSignal};
use evenkeel_runtime::limits::ServerLimits;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::story::{LIMITS, nobody, story};
use evenkeel_testkit::wait::until;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf};
use tokio::task::JoinHandle;

/// One end of a connection that speaks bytes.
struct Peer {
    reader: OwnedReadHalf,
    /// `None` while a task of its own writes.
    writer: Option<OwnedWriteHalf>,
    unread: Vec<u8>,
}

impl Peer {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        let (reader, writer) = stream.into_split();
        Self { reader, writer: Some(writer), unread: Vec::new() }
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let writer = self.writer.as_mut().unwrap();
        let _ = writer.write_all(bytes.as_ref()).await; // the other end may have gone
    }

    /// Reads up to and including `end`; `None` if the connection ends first.
    async fn read_to(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let found = self.unread.windows(end.len()).position(|part| part == end);
            if let Some(start) = found {
                let rest = self.unread.split_off(start + end.len());
                return Some(std::mem::replace(&mut self.unread, rest));
            }
            if !matches!(self.reader.read_buf(&mut self.unread).await, Ok(1..)) {
                return None;
            }
        }
    }

    async fn head(&mut self) -> Option<String> {
        let head = self.read_to(b"\r\n\r\n").await?;
        Some(String::from_utf8(head).unwrap())
    }

    async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            let read = self.reader.read_buf(&mut self.unread).await;
            assert!(matches!(read, Ok(1..)), "{read:?} after {} bytes", self.unread.len());
        }
        let rest = self.unread.split_off(length);
        std::mem::replace(&mut self.unread, rest)
    }

    /// A response with a length or in chunks: its head and its body.
    async fn response(&mut self) -> (String, Vec<u8>) {
        let head = self.head().await.expect("the connection ends before a response");
        if let Some(length) = value_of(&head, "content-length") {
            let body = self.exactly(length.parse().unwrap()).await;
            return (head, body);
        }
        assert_eq!(value_of(&head, "transfer-encoding"), Some("chunked"), "{head}");
        let mut body = Vec::new();
        loop {
            let size = self.read_to(b"\r\n").await.expect("a chunk is cut off");
            let size = std::str::from_utf8(&size).unwrap().trim();
            let size = usize::from_str_radix(size, 16).unwrap();
            body.extend(self.exactly(size).await);
            assert_eq!(self.exactly(2).await, b"\r\n");
            if size == 0 {
                return (head, body);
            }
        }
    }

    async fn ask(&mut self, method: &str, path: &str) -> (u16, String) {
        let body = if method == "POST" { "content-length: 2\r\n\r\nhi" } else { "\r\n" };
        self.send(format!("{method} {path} HTTP/1.1\r\nhost: web\r\n{body}")).await;
        let (head, body) = self.response().await;
        (status(&head), String::from_utf8(body).unwrap())
    }

    async fn is_closed(&mut self) -> bool {
        !matches!(self.reader.read(&mut [0]).await, Ok(1..))
    }
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

fn value_of<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.into_iter().find(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// What a replica does with a request.
enum Act {
    /// Sends these bytes and keeps the connection.
    Send(String),
    /// Sends these bytes and closes the connection.
    Cut(String),
    /// Sends these bytes and waits until the connection ends.
    Stall(String),
    /// Closes the connection.
    Close,
}

fn ok(body: &str) -> Act {
    answer("200 OK", body)
}

fn answer(status: &str, body: &str) -> Act {
    Act::Send(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// A replica that notes the first line of every request it reads.
struct Replica {
    address: SocketAddr,
    seen: Rc<RefCell<Vec<String>>>,
    /// Connections that ended while a request stalled on them.
    cut_off: Rc<Cell<usize>>,
    task: JoinHandle<()>,
}

impl Replica {
    async fn start(act: impl Fn(&str) -> Act + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, cut_off) = (Rc::<RefCell<Vec<_>>>::default(), Rc::<Cell<_>>::default());
        let (seeing, cutting, act) = (Rc::clone(&seen), Rc::clone(&cut_off), Rc::new(act));
        let task = tokio::task::spawn_local(async move {
            loop {
                let peer = Peer::new(listener.accept().await.unwrap().0);
                let conversation = (Rc::clone(&seeing), Rc::clone(&cutting), Rc::clone(&act));
                tokio::task::spawn_local(async move {
                    let (seen, cut_off, act) = conversation;
                    converse(peer, &seen, &cut_off, &*act).await;
                });
            }
        });
        Self { address, seen, cut_off, task }
    }

    fn saw(&self, start: &str) -> usize {
        self.seen.borrow().iter().filter(|line| line.starts_with(start)).count()
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn converse(
    mut peer: Peer,
    seen: &RefCell<Vec<String>>,
    cut_off: &Cell<usize>,
    act: &impl Fn(&str) -> Act,
) {
    while let Some(head) = peer.head().await {
        if let Some(length) = value_of(&head, "content-length") {
            peer.exactly(length.parse().unwrap()).await;
        }
        let line = head.lines().next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
        seen.borrow_mut().push(line.clone());
        match act(&line) {
            Act::Send(bytes) => peer.send(bytes).await,
            Act::Cut(bytes) => return peer.send(bytes).await,
            Act::Close => return,
            Act::Stall(bytes) => {
                peer.send(bytes).await;
                assert!(peer.is_closed().await);
                cut_off.set(cut_off.get() + 1);
                return;
            }
        }
    }
}

/// Requests that came to all of them, once the proxy is quiet.
fn total(replicas: &[&Replica], start: &str) -> usize {
    replicas.iter().map(|replica| replica.saw(start)).sum()
}

/// A proxy of one worker, in a thread of its own as always.
struct Proxy(Process);

impl Proxy {
    /// `more` is TOML that follows the upstream's first lines.
    fn start(replicas: &[SocketAddr], more: &str) -> Self {
        Self::start_with("round-robin", replicas, more)
    }

    fn start_with(policy: &str, replicas: &[SocketAddr], more: &str) -> Self {
        let replicas: Vec<_> = replicas.iter().map(|replica| format!("'{replica}'")).collect();
        let text = format!(
            "[process]\nworkers = 1\ndrain = '3s'\n\
             [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
             [upstream.web]\npolicy = '{policy}'\nreplicas = [{}]\n{more}",
            replicas.join(", ")
        );
        let node = Node::parse(&text, "test.toml").unwrap_or_else(|p| panic!("{p}\n{text}"));
        let config = Config::read(&node).unwrap_or_else(|p| panic!("{p}\n{text}"));
        Self(Process::start(config).unwrap())
    }

    fn before(replicas: &[&Replica], more: &str) -> Self {
        Self::start(&replicas.iter().map(|replica| replica.address).collect::<Vec<_>>(), more)
    }

    async fn client(&self) -> Peer {
        Peer::new(TcpStream::connect(self.0.listens()[0]).await.unwrap())
    }

    fn upstreams(&self) -> &Arc<UpstreamStates> {
        self.0.upstreams()
    }

    /// Waits until nothing is in flight, as the proxy sees it.
    async fn is_quiet(&self, opened: u64) {
        until("nothing is in flight and all are counted", || {
            let stats = self.upstreams().stats(0);
            let slots = stats.workers.first().map_or(0, |(replicas, _)| replicas.len());
            let in_flight: u32 = (0..slots).map(|slot| stats.replica(slot).in_flight).sum();
            stats.total.opened == opened && in_flight == 0 && stats.held() == 0
        })
        .await;
        let total = self.upstreams().stats(0).total;
        assert_eq!(total.opened, total.answered + total.refused + total.abandoned, "{total:?}");
    }

    /// Stops beside the test's own tasks, which play the replicas.
    fn stop(self) -> JoinHandle<()> {
        tokio::task::spawn_blocking(move || self.0.stop().unwrap())
    }
}

/// Bytes that do not repeat within any buffer.
fn noise(length: usize) -> Vec<u8> {
    let mut rng = evenkeel_core::Rng::seeded(7);
    std::iter::repeat_with(|| rng.bits().to_le_bytes()).flatten().take(length).collect()
}

#[test]
fn large_bodies_stream_both_ways_byte_for_byte() {
    story(async {
        const LENGTH: usize = 6 << 20;
        let limits = ServerLimits { drain: Duration::ZERO, ..LIMITS };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let echo = listener.address().unwrap();
        let handler = |request: engine::Request<engine::Body>, _| async move {
            engine::Response::new(request.into_body()) // what comes goes back at once
        };
        tokio::task::spawn_local(engine::serve(listener, limits, handler, StopSignal::never()));
        let proxy = Proxy::start(&[echo], "");
        let sent = noise(LENGTH);
        for framing in ["transfer-encoding: chunked", &format!("content-length: {LENGTH}")] {
            let mut client = proxy.client().await;
            let mut writer = client.writer.take().unwrap();
            let head = format!("POST /echo HTTP/1.1\r\nhost: web\r\n{framing}\r\n\r\n");
            let (bytes, is_chunked) = (sent.clone(), framing.ends_with("chunked"));
            // The answer begins while the request still leaves.
            let writing = tokio::task::spawn_local(async move {
                writer.write_all(head.as_bytes()).await.unwrap();
                for part in bytes.chunks(70_001) {
                    let size = format!("{:x};by=hand\r\n", part.len());
                    let (before, after) = if is_chunked { (&*size, "\r\n") } else { ("", "") };
                    writer.write_all(before.as_bytes()).await.unwrap();
                    writer.write_all(part).await.unwrap();
                    writer.write_all(after.as_bytes()).await.unwrap();
                }
                let end = if is_chunked { "0\r\n\r\n" } else { "" };
                writer.write_all(end.as_bytes()).await.unwrap();
                writer
            });
            let (_, received) = client.response().await;
            assert!(received == sent, "{} bytes of {LENGTH}", received.len());
            drop(writing.await.unwrap());
        }
        proxy.is_quiet(2).await;
    });
}

#[test]
fn answers_without_a_body_keep_their_heads_and_the_connection() {
    story(async {
        let replica = Replica::start(|line| match line {
            "HEAD /long" => Act::Send("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n".into()),
            "HEAD /chunked" => {
                Act::Send("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".into())
            }
            "GET /same" => Act::Send(
                "HTTP/1.1 304 Not Modified\r\netag: \"x\"\r\ncontent-length: 1234\r\n\r\n".into(),
            ),
            "DELETE /it" => Act::Send("HTTP/1.1 204 No Content\r\n\r\n".into()),
            _ => ok("next"),
        })
        .await;
        let proxy = Proxy::before(&[&replica], "");
        let mut client = proxy.client().await;
        for (request, code, length) in [
            ("HEAD /long", 200, Some("1234")),
            ("HEAD /chunked", 200, None),
            ("GET /same", 304, None), // of a 304 the length may be left out
            ("DELETE /it", 204, None),
        ] {
            client.send(format!("{request} HTTP/1.1\r\nhost: web\r\n\r\n")).await;
            let head = client.head().await.unwrap();
            assert_eq!((status(&head), value_of(&head, "content-length")), (code, length));
            assert_eq!(client.ask("GET", "/").await, (200, "next".to_owned()), "{request}");
        }
        proxy.is_quiet(8).await;
        assert_eq!(proxy.upstreams().stats(0).replica(0).connections, 1, "it is kept, too");
    });
}

#[test]
fn load_reports_are_for_the_proxy_and_never_reach_a_client() {
    story(async {
        let replica = Replica::start(|_| {
            Act::Send(
                "HTTP/1.1 200 OK\r\nendpoint-load-metrics: TEXT named_metrics.evenkeel.queue=3, \
                 named_metrics.evenkeel.in_service=1, named_metrics.evenkeel.service_ms=2\r\n\
                 Endpoint-Load-Metrics-Bin: AAAA\r\nx-other: stays\r\ncontent-length: 0\r\n\r\n"
                    .into(),
            )
        })
        .await;
        let proxy = Proxy::before(&[&replica], "");
        let mut client = proxy.client().await;
        client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
        let (head, _) = client.response().await;
        assert!(!head.to_ascii_lowercase().contains("load-metrics"), "{head}");
        assert_eq!(value_of(&head, "x-other"), Some("stays"));
    });
}

#[test]
fn a_client_that_leaves_takes_its_attempt_along() {
    story(async {
        let replica = Replica::start(|line| match line {
            "GET /stream" => Act::Send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf".into()),
            _ => Act::Stall(String::new()),
        })
        .await;
        let proxy = Proxy::before(&[&replica], "");
        for (number, method) in ["GET", "POST"].into_iter().enumerate() {
            let mut client = proxy.client().await;
            let length = if method == "POST" { "content-length: 0\r\n" } else { "" };
            client.send(format!("{method} /wait HTTP/1.1\r\nhost: web\r\n{length}\r\n")).await;
            until("it is under way", || replica.saw(method) == 1).await;
            drop(client);
            until("the replica is told", || replica.cut_off.get() == number + 1).await;
        }
        let mut client = proxy.client().await;
        client.send("GET /stream HTTP/1.1\r\nhost: web\r\n\r\n").await;
        client.read_to(b"half").await.unwrap();
        drop(client);
        proxy.is_quiet(3).await;
        assert_eq!(proxy.upstreams().stats(0).replica(0).connections, 0, "none is kept");
        assert_eq!(proxy.upstreams().stats(0).total.abandoned, 2);
    });
}

#[test]
fn what_one_replica_refuses_another_answers() {
    story(async {
        let replica = Replica::start(ok).await;
        let proxy = Proxy::start(&[nobody(), replica.address], "");
        let mut client = proxy.client().await;
        for method in ["POST", "GET", "POST", "GET", "POST", "GET"] {
            assert_eq!(client.ask(method, "/").await, (200, format!("{method} /")));
        }
        proxy.is_quiet(6).await;
        assert_eq!(replica.seen.borrow().len(), 6);
        assert!(proxy.upstreams().stats(0).total.retries > 0);
    });
}

/// A request that was sent may have had its effect, whatever became of the connection.
#[test]
fn what_must_not_happen_twice_is_sent_once() {
    story(async {
        let act = |line: &str| if line.starts_with("POST") { Act::Close } else { ok("fine") };
        let (first, second) = (Replica::start(act).await, Replica::start(act).await);
        // Everybody stays in the game: a refused connection is followed by a kept one that breaks.
        let trusting = "retries_max = 6\nretry_budget = 1.0\n[upstream.web.safeguards]\n\
                        failure_ratio_max = 1.0\nejection_failures = 0\n";
        let proxy = Proxy::start(&[nobody(), first.address, second.address], trusting);
        let mut client = proxy.client().await;
        for number in 0..6 {
            for _ in 0..number + 4 {
                assert_eq!(client.ask("GET", "/").await.0, 200);
            }
            let path = format!("/once/{number}/");
            let (code, words) = client.ask("POST", &path).await;
            assert_eq!((code, &*words), (502, "the replica broke off before it answered\n"));
            proxy.is_quiet((number + 1) * (number + 10) / 2).await; // 5, 6, 7 and so on
            assert_eq!(total(&[&first, &second], &format!("POST {path}")), 1);
        }
    });
}

#[test]
fn a_replica_that_cannot_serve_is_replaced_for_what_may_be_sent_again() {
    story(async {
        let asked = Rc::new(Cell::new(0));
        let act = |asked: Rc<Cell<u32>>| {
            move |_: &str| {
                asked.set(asked.get() + 1);
                let is_first = asked.get() % 2 == 1;
                if is_first { answer("503 Service Unavailable", "busy") } else { ok("done") }
            }
        };
        let first = Replica::start(act(Rc::clone(&asked))).await;
        let second = Replica::start(act(Rc::clone(&asked))).await;
        let proxy = Proxy::before(&[&first, &second], "");
        let mut client = proxy.client().await;
        assert_eq!(client.ask("GET", "/").await, (200, "done".to_owned()));
        proxy.is_quiet(1).await;
        assert_eq!(total(&[&first, &second], "GET"), 2);
        assert_eq!(client.ask("POST", "/").await, (503, "busy".to_owned()));
        proxy.is_quiet(2).await;
        assert_eq!(total(&[&first, &second], "POST"), 1);
    });
}

#[test]
fn when_no_replica_can_be_reached_the_client_is_told() {
    story(async {
        let proxy = Proxy::start(&[nobody(), nobody()], "");
        let mut client = proxy.client().await;
        for method in ["GET", "POST"] {
            let reported = client.ask(method, "/").await;
            assert_eq!(reported, (502, "no replica could be reached\n".to_owned()));
        }
        proxy.is_quiet(2).await;
    });
}

/// Whoever leaves while held must neither keep the others waiting nor be sent.
#[test]
fn held_requests_have_their_turn_although_some_clients_leave() {
    story(async {
        let first = Replica::start(|_| ok("fine")).await;
        let second = Replica::start(|_| ok("fine")).await;
        let scarce = "c3:rate_control=on,tokens_max=1,rate_initial=10,step_max=0.1,rate_min=0.01";
        let replicas = [first.address, second.address];
        let proxy = Proxy::start_with(scarce, &replicas, "");
        let mut clients = Vec::new();
        for _ in 0..40 {
            let mut client = proxy.client().await;
            client.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
            clients.push(client);
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // held, but not for long
        let mut number = 0;
        clients.retain(|_| {
            number += 1;
            number % 3 > 0 || number < 10
        });
        for client in &mut clients {
            assert_eq!(status(&client.response().await.0), 200);
        }
        proxy.is_quiet(40).await;
        let total = proxy.upstreams().stats(0).total;
        assert!(total.held > 20 && total.abandoned > 0, "{total:?}");
        assert!(total.answered >= clients.len() as u64, "{total:?}");
        let sent = first.seen.borrow().len() + second.seen.borrow().len();
        // A few of those who left were not held any more but on their way.
        let answered = total.answered as usize;
        assert!((answered..answered + 4).contains(&sent), "{sent} sent, {total:?}");
    });
}

/// Stalls on the first "/stall" that any of the replicas sees.
fn stall_once(stalled: &Rc<Cell<bool>>) -> impl Fn(&str) -> Act + 'static {
    let stalled = Rc::clone(stalled);
    move |line| {
        if line == "GET /stall" && !stalled.replace(true) {
            Act::Stall(String::new())
        } else {
            ok("fast")
        }
    }
}

#[test]
fn a_hedge_overtakes_a_replica_that_stalls_and_the_loser_is_cancelled() {
    story(async {
        let stalled = Rc::new(Cell::new(false));
        let first = Replica::start(stall_once(&stalled)).await;
        let second = Replica::start(stall_once(&stalled)).await;
        let hedged = "[upstream.web.hedge]\nbudget = 1.0\ndelay_min = '40ms'\n";
        let proxy = Proxy::before(&[&first, &second], hedged);
        let mut client = proxy.client().await;
        for _ in 0..100 {
            client.ask("GET", "/teach").await;
        }
        let began = Instant::now();
        assert_eq!(client.ask("GET", "/stall").await, (200, "fast".to_owned()));
        let spent = began.elapsed();
        assert!((40..1_000).contains(&spent.as_millis()), "{spent:?}");
        until("the loser is told", || first.cut_off.get() + second.cut_off.get() == 1).await;
        proxy.is_quiet(101).await;
        assert_eq!(total(&[&first, &second], "GET /stall"), 2);
        let total = proxy.upstreams().stats(0).total;
        assert_eq!((total.hedges_won, total.answered, total.retries), (1, 101, 0));
    });
}

#[test]
fn an_attempt_that_takes_too_long_is_tried_elsewhere() {
    story(async {
        let stalled = Rc::new(Cell::new(false));
        let first = Replica::start(stall_once(&stalled)).await;
        let second = Replica::start(stall_once(&stalled)).await;
        let limits = "[upstream.web.timeouts]\nattempt = '100ms'\n";
        let proxy = Proxy::before(&[&first, &second], limits);
        let began = Instant::now();
        let reported = proxy.client().await.ask("GET", "/stall").await;
        assert_eq!(reported, (200, "fast".to_owned()));
        assert!((100..1_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        until("the replica is told", || first.cut_off.get() + second.cut_off.get() == 1).await;
        proxy.is_quiet(1).await;
    });
}

#[test]
fn a_request_that_takes_too_long_altogether_is_answered_504() {
    story(async {
        let first = Replica::start(|_| Act::Stall(String::new())).await;
        let second = Replica::start(|_| Act::Stall(String::new())).await;
        let limits = "[upstream.web.timeouts]\nattempt = '200ms'\ntotal = '300ms'\n";
        let proxy = Proxy::before(&[&first, &second], limits);
        let mut client = proxy.client().await;
        let began = Instant::now();
        let reported = client.ask("GET", "/").await;
        assert_eq!(reported, (504, "no replica answered in time\n".to_owned()));
        assert!((300..1_000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
        until("both are told", || first.cut_off.get() == 1 && second.cut_off.get() == 1).await;
        assert_eq!(client.ask("POST", "/").await.0, 504, "within the time of one attempt");
        proxy.is_quiet(2).await;
    });
}

/// A body that is kept for another try must come within the time of the whole request.
#[test]
fn a_client_that_never_sends_its_body_is_not_waited_for() {
    story(async {
        let replica = Replica::start(|_| ok("fine")).await;
        let proxy = Proxy::before(&[&replica], "[upstream.web.timeouts]\ntotal = '200ms'\n");
        let mut client = proxy.client().await;
        client.send("PUT / HTTP/1.1\r\nhost: web\r\ncontent-length: 10\r\n\r\nabc").await;
        let (head, words) = client.response().await;
        let words = String::from_utf8(words).unwrap();
        assert_eq!((status(&head), &*words), (408, "the request body did not arrive in time\n"));
        assert!(replica.seen.borrow().is_empty());
    });
}

/// Who does not send is to blame, not who waits for it; and the other way round.
#[test]
fn a_slow_upload_is_not_held_against_the_replica_and_a_slow_replica_is_not_excused() {
    story(async {
        let reading = Replica::start(|_| ok("fine")).await;
        let limits = "[upstream.web.timeouts]\nattempt = '150ms'\n";
        let proxy = Proxy::before(&[&reading], limits);
        let mut client = proxy.client().await;
        client.send("POST / HTTP/1.1\r\nhost: web\r\ncontent-length: 10\r\n\r\nabc").await;
        let (head, words) = client.response().await;
        let words = String::from_utf8(words).unwrap();
        assert_eq!((status(&head), &*words), (408, "the request body did not arrive in time\n"));
        proxy.is_quiet(1).await;
        let counts = proxy.upstreams().stats(0).total.replicas[0];
        assert_eq!((counts.failed, counts.cancelled), (0, 1));

        let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap(); // the kernel takes a little
        let proxy = Proxy::start(&[deaf.local_addr().unwrap()], limits);
        let mut client = proxy.client().await;
        let body = vec![b'x'; 16 << 20];
        let length = body.len();
        let mut writer = client.writer.take().unwrap();
        tokio::task::spawn_local(async move {
            let head = format!("POST / HTTP/1.1\r\nhost: web\r\ncontent-length: {length}\r\n\r\n");
            writer.write_all(head.as_bytes()).await.unwrap();
            let _ = writer.write_all(&body).await; // nobody reads it to its end
        });
        let (head, _) = client.response().await;
        assert_eq!(status(&head), 504);
        proxy.is_quiet(1).await;
        assert_eq!(proxy.upstreams().stats(0).total.replicas[0].failed, 1);
    });
}

#[test]
fn a_health_check_takes_a_replica_out_and_brings_it_back() {
    story(async {
        let is_well = Rc::new(Cell::new(true));
        let health = Rc::clone(&is_well);
        let patient = Replica::start(move |line| match line {
            "GET /health" if !health.get() => answer("500 Ill", ""),
            _ => ok("patient"),
        })
        .await;
        let sound = Replica::start(|_| ok("sound")).await;
        let checked = "[upstream.web.safeguards]\nslow_start = '0s'\n\
                       [upstream.web.health]\npath = '/health'\ninterval = '20ms'\nrise = 1\n";
        let proxy = Proxy::before(&[&patient, &sound], checked);
        let mut client = proxy.client().await;
        for (well, health) in [(true, Health::Up), (false, Health::Down), (true, Health::Up)] {
            is_well.set(well);
            until("the verdict is in", || proxy.upstreams().plan(0).health[0] == health).await;
            tokio::time::sleep(Duration::from_millis(20)).await; // the worker adopts the plan
            let mut patients = 0;
            for _ in 0..20 {
                let (code, body) = client.ask("GET", "/").await;
                assert_eq!(code, 200);
                patients += usize::from(body == "patient");
            }
            assert_eq!(patients, if well { 10 } else { 0 });
        }
    });
}

/// An error of the moment does not mean that the replica has no agent.
#[test]
fn a_probe_that_fails_is_asked_again_unless_nobody_knows_it() {
    story(async {
        for (refusal, is_asked_again) in [("503 Busy", true), ("404 Not Found", false)] {
            let replica = Replica::start(move |line| match line {
                "GET /.evenkeel/probe" => answer(refusal, ""),
                _ => ok("fine"),
            });
            let (first, second) = (replica.await, Replica::start(|_| ok("fine")).await);
            let addresses = [first.address, second.address];
            let proxy = Proxy::start_with("prequal", &addresses, "");
            let mut client = proxy.client().await;
            for _ in 0..60 {
                assert_eq!(client.ask("GET", "/").await.0, 200);
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let probes = first.saw("GET /.evenkeel/probe");
            assert_eq!(probes > 1, is_asked_again, "{refusal}: {probes} probes");
            assert!(probes > 0);
        }
    });
}

#[test]
fn stopping_lets_what_is_in_flight_finish() {
    story(async {
        let large = "x".repeat(4 << 20);
        let body = large.clone();
        let replica = Replica::start(move |line| match line {
            "GET /large" => ok(&body),
            _ => ok("fine"),
        })
        .await;
        let slow = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = slow.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            let mut peer = Peer::new(slow.accept().await.unwrap().0);
            peer.head().await;
            peer.send("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nfirst").await;
            tokio::time::sleep(Duration::from_millis(600)).await;
            peer.send(" last").await;
            pending::<()>().await;
        });
        let (proxy, trickling) = (Proxy::before(&[&replica], ""), Proxy::start(&[address], ""));
        let (mut kept, mut greedy) = (proxy.client().await, proxy.client().await);
        let mut patient = trickling.client().await;
        kept.ask("GET", "/").await;
        greedy.send("GET /large HTTP/1.1\r\nhost: web\r\n\r\n").await;
        patient.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
        until("the large answer is under way", || replica.saw("GET /large") == 1).await;
        patient.read_to(b"first").await.unwrap();
        let (stopping, stopping_too) = (proxy.stop(), trickling.stop());
        tokio::time::sleep(Duration::from_millis(50)).await;
        kept.send("GET / HTTP/1.1\r\nhost: web\r\n\r\n").await;
        let (head, last) = kept.response().await;
        assert_eq!((value_of(&head, "connection"), &*last), (Some("close"), &b"fine"[..]));
        assert_eq!(patient.exactly(5).await, b" last");
        let (_, received) = greedy.response().await; // it has read nothing so far
        assert!(received == large.as_bytes(), "{} bytes", received.len());
        stopping.await.unwrap();
        stopping_too.await.unwrap();
    });
}

/// Whatever was sent before the proxy stopped to listen is answered.
#[test]
fn stopping_under_load_breaks_no_request() {
    story(async {
        let replica = Replica::start(|_| ok("fine")).await;
        for seed in 0..3 {
            let proxy = Proxy::before(&[&replica], "");
            let url = format!("http://{}/", proxy.0.listens()[0]);
            let arrivals = Arrivals::poisson(1_500.0).unwrap();
            let mut load = Load::new(Target::new([url.as_str()]).unwrap(), arrivals);
            // Well beyond the quarter of a second in which a lame duck still accepts.
            load.plan.duration = Some(Duration::from_millis(1_500));
            load.plan.seed = seed;
            // So few that a lame duck answers on each and tells it to close: whoever asks on an
            // idle one just when it closes has to ask again, as with every server.
            load.connections_max = 50;
            let before = replica.saw("GET");
            let running = tokio::task::spawn_blocking(move || load.run(&Stop::new(), |_| ()));
            until("it is under load", || replica.saw("GET") > before + 400).await;
            proxy.stop().await.unwrap();
            let report = running.await.unwrap().unwrap().report;
            // On a busy machine it may stop only after the last request has come.
            assert!(report.served > 300, "{report:?}");
            for failure in &report.failures {
                assert!(failure.message.starts_with("connect "), "{failure:?}");
            }
        }
    });
}
