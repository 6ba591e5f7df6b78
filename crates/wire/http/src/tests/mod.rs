//! Real sockets on 127.0.0.1: scripted replicas, a proxy of ten lines, clients that speak bytes.

mod clients;
mod drains;
mod head;
mod replicas;
mod sessions;
mod smuggling;
mod streams;

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::HeaderValue;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::head::{Forwarding, Refusal, prepare_request, prepare_response};
use super::message::{Request, Response};
use super::{Body, Client, End, LiveLimits, Outgoing, SendErrorKind, Upstream};
use super::{serve, serve_within};
use evenkeel_runtime::accept::{Listener, Served, Stop, worker_runtime};
use evenkeel_runtime::files::PIPES_MAX;
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, ServerLimits, UpstreamLimits};

/// That of the module which these tests are compiled into.
const ENGINE: Engine = match module_path!().as_bytes() {
    [.., b'n', b'a', b't', b'i', b'v', b'e'] => Engine::Native,
    _ => Engine::Hyper,
};

const SERVER: ServerLimits = ServerLimits {
    head_bytes_max: 8192,
    body_bytes_max: 1 << 20,
    connections_max: 100,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(5),
    write: Duration::from_secs(5),
    connection_age: Duration::MAX,
    drain: Duration::from_secs(5),
    engine: ENGINE,
};

const UPSTREAM: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: 100,
    idle_connections_max: 100,
    idle: Duration::from_secs(5),
    head_bytes_max: 8192,
    body: BodyLimits::DEFAULT,
    http2: Http2::Auto,
    engine: ENGINE,
};

/// Runs a test on a worker of its own, and fails it rather than let it hang.
fn run(test: impl Future<Output = ()>) {
    let limited = async { tokio::time::timeout(Duration::from_secs(20), test).await };
    worker_runtime().unwrap().block_on(limited).expect("the test ends within 20 s");
}

async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Waits until something becomes true, at most two seconds.
async fn until(what: &str, is_true: impl Fn() -> bool) {
    for _ in 0..400 {
        if is_true() {
            return;
        }
        pause(5).await;
    }
    panic!("still not true after 2 s: {what}");
}

/// A replica that follows a script for each connection.
struct Replica {
    address: SocketAddr,
    accepted: Rc<Cell<usize>>,
    task: JoinHandle<()>,
}

/// Starts a replica; the script is told which connection it serves, counted from 1.
async fn replica<F>(script: impl Fn(Peer, usize) -> F + 'static) -> Replica
where
    F: Future<Output = ()> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Rc::new(Cell::new(0));
    let count = Rc::clone(&accepted);
    let task = tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            count.set(count.get() + 1);
            tokio::task::spawn_local(script(Peer::new(stream), count.get()));
        }
    });
    Replica { address, accepted, task }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One end of a connection that speaks bytes.
struct Peer {
    stream: TcpStream,
    unread: Vec<u8>,
}

impl Peer {
    fn new(stream: TcpStream) -> Peer {
        stream.set_nodelay(true).unwrap();
        Peer { stream, unread: Vec::new() }
    }

    async fn connect(address: SocketAddr) -> Peer {
        Peer::new(TcpStream::connect(address).await.unwrap())
    }

    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads up to and including `end`; panics if the connection ends first.
    async fn read_to(&mut self, end: &str) -> String {
        loop {
            let found = self.unread.windows(end.len()).position(|part| part == end.as_bytes());
            if let Some(start) = found {
                let rest = self.unread.split_off(start + end.len());
                let taken = std::mem::replace(&mut self.unread, rest);
                return String::from_utf8(taken).unwrap();
            }
            let read = self.stream.read_buf(&mut self.unread).await;
            let so_far = String::from_utf8_lossy(&self.unread);
            assert!(matches!(read, Ok(1..)), "{read:?} before {end:?}, after {so_far:?}");
        }
    }

    async fn head(&mut self) -> String {
        self.read_to("\r\n\r\n").await
    }

    /// Everything until the connection ends, in whatever way.
    async fn rest(&mut self) -> String {
        while let Ok(1..) = self.stream.read_buf(&mut self.unread).await {}
        String::from_utf8(std::mem::take(&mut self.unread)).unwrap()
    }

    /// Sends a request and reads a response that ends with `end`.
    async fn ask(&mut self, request: &str, end: &str) -> String {
        self.send(request).await;
        self.read_to(end).await
    }

    /// Whether the peer has closed or reset the connection.
    async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.stream.read(&mut byte).await, Ok(0) | Err(_))
    }
}

const GET: &str = "GET /path?q=1 HTTP/1.1\r\nhost: service\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

/// A replica that answers every request with [`OK`] and keeps the connection.
async fn polite_replica() -> Replica {
    replica(|mut peer, _| async move {
        loop {
            peer.head().await;
            peer.send(OK).await;
        }
    })
    .await
}

/// A proxy in front of one replica, and what became of the response bodies.
struct Proxy {
    address: SocketAddr,
    upstream: Upstream,
    ends: Rc<RefCell<Vec<End>>>,
    stop: Stop,
    drain: Duration,
    task: JoinHandle<Served>,
}

impl Proxy {
    async fn stopped(self) -> Served {
        self.stop.stop(self.drain).await;
        self.task.await.unwrap()
    }

    async fn client(&self) -> Peer {
        Peer::connect(self.address).await
    }
}

fn proxy(replica: SocketAddr) -> Proxy {
    proxy_with(replica, SERVER, UPSTREAM)
}

fn proxy_with(replica: SocketAddr, server: ServerLimits, limits: UpstreamLimits) -> Proxy {
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.address().unwrap();
    let upstream = Upstream::new(replica, limits);
    let ends = Rc::<RefCell<Vec<End>>>::default();
    let (stop, drain) = (Stop::new(), server.drain);
    let (asked, signal, ended) = (upstream.clone(), stop.signal(), Rc::clone(&ends));
    let task = tokio::task::spawn_local(async move {
        let handler = move |request, client| {
            let (upstream, ended) = (asked.clone(), Rc::clone(&ended));
            async move { pass_on(request, client, upstream, ended).await }
        };
        serve(listener, server, handler, signal).await.unwrap()
    });
    Proxy { address, upstream, ends, stop, drain, task }
}

async fn pass_on(
    mut request: Request<Body>,
    client: Rc<Client>,
    upstream: Upstream,
    ends: Rc<RefCell<Vec<End>>>,
) -> Response<Body> {
    let host_default = HeaderValue::from_static("default");
    let forwarding = Forwarding {
        trusted_proxies: None,
        append_forwarded_for: true,
        is_https: false,
        host_default,
    };
    let passed = async {
        prepare_request(&mut request, &client, &forwarding)?;
        let sent = upstream.send(request).await;
        let mut response = sent.map_err(|error| Refusal::new(error.status(), error.to_string()))?;
        prepare_response(&mut response)?;
        Ok(response.map(|body| body.on_end(move |end| ends.borrow_mut().push(end))))
    };
    passed.await.unwrap_or_else(Refusal::into_response)
}

fn get() -> Request<Body> {
    http::Request::get("/").header("host", "service").body(Body::empty()).unwrap().into()
}
