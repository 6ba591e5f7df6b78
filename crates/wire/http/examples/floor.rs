//! The floor of the libraries: a proxy that only passes on, by the crates `h2` and `hyper` alone.
//! What it costs hardly any proxy on them can save.
//!
//! ```console
//! $ cargo run --release -p evenkeel-http --example floor -- LISTEN h1|h2 REPLICA…
//! ```
//!
//! Clients speak HTTP/2, replicas what the second word says; they take turns. One thread, the
//! sockets and windows of the proxy; no time limit, no check, no retry and no header of its own.
//!
//! Instructions of a request in user space (callgrind; `h2load -t1 -c64 -m4`, three replicas of
//! nginx with 150 bytes, profile `release`):
//!
//! | clients to replicas | HAProxy 2.6 | this | of HAProxy's |
//! |---|---|---|---|
//! | HTTP/2 to HTTP/1.1 | 35,745 | 43,687 | 1.22 |
//! | HTTP/2 to HTTP/2 | 38,731 | 52,807 | 1.36 |
//!
//! Optimised across crates (profile `dist`) it takes less; that was not counted.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue};
use http::{Request, Response, Uri, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;

/// As the packages have it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Failed = Box<dyn Error + Send + Sync>;

const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

struct Replicas {
    addresses: Vec<SocketAddr>,
    is_http2: bool,
    turn: Cell<usize>,
    /// Of HTTP/1.1, for each replica: idle ones.
    idle: Vec<RefCell<Vec<http1::SendRequest<NoBody>>>>,
    /// Of HTTP/2: one for each replica.
    shared: Vec<RefCell<Option<h2::client::SendRequest<Bytes>>>>,
}

/// Requests here have none.
struct NoBody;

impl http_body::Body for NoBody {
    type Data = Bytes;
    type Error = Failed;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Failed>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

fn main() -> Result<(), Failed> {
    const USAGE: &str = "expected: LISTEN h1|h2 REPLICA…, such as 127.0.0.1:80 h2 127.0.0.1:81";
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [listen, protocol, replicas @ ..] = &*words else { return Err(USAGE.into()) };
    let (listen, is_http2): (SocketAddr, _) = (listen.parse()?, protocol == "h2");
    let addresses = replicas.iter().map(|word| word.parse()).collect::<Result<Vec<_>, _>>()?;
    if addresses.is_empty() {
        return Err(USAGE.into());
    }
    let replicas = Rc::new(Replicas {
        is_http2,
        turn: Cell::new(0),
        idle: addresses.iter().map(|_| RefCell::default()).collect(),
        shared: addresses.iter().map(|_| RefCell::default()).collect(),
        addresses,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let listener = TcpListener::bind(listen).await?;
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            spawn_local(client(stream, Rc::clone(&replicas)));
        }
    })
}

async fn client(stream: TcpStream, replicas: Rc<Replicas>) -> Result<(), Failed> {
    let mut builder = h2::server::Builder::new();
    builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
    let mut connection = builder.max_concurrent_streams(100).handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, respond) = accepted?;
        spawn_local(pass_on(request, respond, Rc::clone(&replicas)));
    }
    Ok(())
}

async fn pass_on(
    request: Request<RecvStream>,
    respond: SendResponse<Bytes>,
    replicas: Rc<Replicas>,
) -> Result<(), Failed> {
    let number = replicas.turn.get();
    replicas.turn.set((number + 1) % replicas.addresses.len());
    match replicas.is_http2 {
        true => replicas.by_stream(number, request, respond).await,
        false => replicas.by_message(number, request, respond).await,
    }
}

impl Replicas {
    async fn by_message(
        &self,
        number: usize,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Result<(), Failed> {
        let mut request = request.map(|_| NoBody);
        if let Some(authority) = request.uri().authority() {
            let host = HeaderValue::from_str(authority.as_str())?;
            request.headers_mut().insert(HOST, host);
        }
        let path = request.uri().path_and_query().cloned().ok_or("no path")?;
        *request.uri_mut() = Uri::from(path);
        *request.version_mut() = Version::HTTP_11;
        let kept = self.idle[number].borrow_mut().pop();
        let mut sender = match kept {
            Some(sender) => sender,
            None => {
                let io = TokioIo::new(self.connect(number).await?);
                let (sender, connection) = http1::handshake(io).await?;
                spawn_local(connection);
                sender
            }
        };
        let (mut parts, mut body) = sender.send_request(request).await?.into_parts();
        parts.headers.remove(CONNECTION);
        parts.headers.remove(KEEP_ALIVE);
        parts.version = Version::HTTP_2;
        let mut stream = respond.send_response(Response::from_parts(parts, ()), false)?;
        while let Some(data) = next(&mut body).await {
            stream.send_data(data?, body.is_end_stream())?;
        }
        sender.ready().await?;
        self.idle[number].borrow_mut().push(sender);
        Ok(())
    }

    async fn by_stream(
        &self,
        number: usize,
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) -> Result<(), Failed> {
        let shared = self.shared[number].borrow().clone();
        let mut sender = match shared {
            Some(sender) => sender,
            None => {
                let mut builder = h2::client::Builder::new();
                builder.enable_push(false).initial_window_size(STREAM_WINDOW);
                builder.initial_connection_window_size(CONNECTION_WINDOW);
                let (sender, connection) = builder.handshake(self.connect(number).await?).await?;
                spawn_local(connection);
                *self.shared[number].borrow_mut() = Some(sender.clone());
                sender
            }
        };
        let (answer, _) = sender.send_request(request.map(|_| ()), true)?;
        let (parts, mut body) = answer.await?.into_parts();
        let response = Response::from_parts(parts, ());
        let mut stream = respond.send_response(response, false)?;
        while let Some(data) = body.data().await {
            let data = data?;
            body.flow_control().release_capacity(data.len())?;
            stream.send_data(data, body.is_end_stream())?;
        }
        Ok(())
    }

    async fn connect(&self, number: usize) -> Result<TcpStream, Failed> {
        let stream = TcpStream::connect(self.addresses[number]).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

async fn next(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    let frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()))
}
