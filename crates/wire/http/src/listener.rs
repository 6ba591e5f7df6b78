//! The client side of HTTP: hand requests to a handler, say a connection's phase, stop politely.
//!
//! Every worker binds a listener of its own to the same address (`SO_REUSEPORT`), so the kernel
//! spreads the connections and workers share nothing. Who is accepted, and how long each phase of
//! a connection may take, is [`accept`](evenkeel_runtime::accept)'s.

use std::cell::Cell;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Once};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderValue, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::{HttpService, service_fn};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;

use super::body::{Body, BodyError};
use super::client::Client;
use super::counts::{Counted, Side, count};
use super::h1;
use super::h2;
use super::head::Refusal;
use super::parting::{Parting, Serving, parting};
use super::wire::Wire;
use crate::message::{Request, Response};
use evenkeel_runtime::accept::{
    AcceptConfig, Linger, Link, Listener, ListenerFilters, Order, Peer, Phase, ServeConnection,
    Served, StopSignal, Stream, accept, begins_proxy_header, poll_leave,
};
use evenkeel_runtime::limits::{Engine, ServerLimits};

/// What is read at once of a client whose protocol is not known yet: most requests fit.
const GREETING_BYTES: usize = 1024;

/// Serves clients on this thread until told to stop, then finishes what is in flight.
///
/// A lame duck's answers carry `connection: close`; when it drains, idle connections are closed,
/// and what is not done after [`ServerLimits::drain`] is cut off.
/// The handler cannot fail: a failure is a response too. It is dropped in mid-air when the
/// client goes away, which must cancel its work.
///
/// # Errors
/// When the listener cannot be used; errors of single clients end only their connection.
///
/// # Panics
/// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
pub async fn serve<H, F>(
    listener: Listener,
    limits: ServerLimits,
    handler: H,
    stop: StopSignal,
) -> io::Result<Served>
where
    H: Fn(Request<Body>, Rc<Client>) -> F + 'static,
    F: Future<Output = Response<Body>> + 'static,
{
    serve_within(listener, &LiveLimits::new(limits, ListenerFilters::NONE), handler, stop).await
}

/// As [`serve`], behind filters, within limits that may change meanwhile.
///
/// # Errors
/// As [`serve`].
///
/// # Panics
/// As [`serve`].
pub async fn serve_within<H, F>(
    listener: Listener,
    limits: &LiveLimits,
    handler: H,
    stop: StopSignal,
) -> io::Result<Served>
where
    H: Fn(Request<Body>, Rc<Client>) -> F + 'static,
    F: Future<Output = Response<Body>> + 'static,
{
    let server = Server { limits: limits.clone(), handler };
    accept(listener, limits.0.accept.subscribe(), Rc::new(server), stop).await
}

fn accept_config(limits: &ServerLimits, filters: ListenerFilters) -> AcceptConfig {
    AcceptConfig {
        connections_max: limits.connections_max,
        handshake: limits.head,
        first: limits.head,
        idle: limits.idle,
        write: limits.write,
        age: limits.connection_age,
        drain: limits.drain,
        filters,
    }
}

/// What a listener allows its clients while it serves them. Clones are of the same listener.
#[derive(Debug, Clone)]
pub struct LiveLimits(Rc<InForce>);

#[derive(Debug)]
struct InForce {
    limits: Cell<ServerLimits>,
    accept: watch::Sender<Arc<AcceptConfig>>,
}

impl LiveLimits {
    /// These, until others are set; behind these filters.
    pub fn new(limits: ServerLimits, filters: ListenerFilters) -> Self {
        let accept = watch::Sender::new(Arc::new(accept_config(&limits, filters)));
        Self(Rc::new(InForce { limits: Cell::new(limits), accept }))
    }

    /// Changes them: those on connections and times at once, those on heads with the next
    /// connection, those on bodies with the next request. So do filters, with the next connection.
    pub fn set(&self, limits: ServerLimits, filters: ListenerFilters) {
        if self.0.limits.replace(limits) != limits || self.0.accept.borrow().filters != filters {
            self.0.accept.send_replace(Arc::new(accept_config(&limits, filters)));
        }
    }

    fn get(&self) -> ServerLimits {
        self.0.limits.get()
    }
}

/// What the connections of one worker share.
struct Server<H> {
    limits: LiveLimits,
    handler: H,
}

impl<H, F> ServeConnection for Server<H>
where
    H: Fn(Request<Body>, Rc<Client>) -> F + 'static,
    F: Future<Output = Response<Body>> + 'static,
{
    /// As nginx does: HTTP allows either side to close between requests.
    const MAY_EVICT: bool = true;

    async fn serve(self: Rc<Self>, mut stream: Stream, peer: Peer, link: Rc<Link>) {
        let is_certified = stream.is_certified();
        let client = Rc::new(Client { is_certified, ..Client::new(peer.address) });
        let greeting = match stream.alpn() {
            Some(b"h2") => Greeting::Streams(Vec::new()),
            _ if stream.is_tls() => Greeting::Messages(Vec::new()),
            _ => greet(&mut stream, &link).await,
        };
        let read = match greeting {
            Greeting::Messages(read) => read,
            Greeting::Streams(read) => {
                let limits = self.limits.get();
                let answer = |request| (self.handler)(request, Rc::clone(&client));
                // On the heap, so that clients of HTTP/1.1 do not carry the space for it.
                count(Side::Clients, Counted::Http2);
                return Box::pin(h2::server::serve((stream, read), &link, &limits, answer)).await;
            }
            Greeting::None => return,
        };
        count(Side::Clients, Counted::Http1);
        if self.limits.get().engine == Engine::Native {
            let answer = |request| (self.handler)(request, Rc::clone(&client));
            return h1::server::serve((stream, read), &link, || self.limits.get(), answer).await;
        }
        Box::pin(self.serve_by_hyper((stream, read), &client, &link)).await;
    }
}

impl<H, F> Server<H>
where
    H: Fn(Request<Body>, Rc<Client>) -> F + 'static,
    F: Future<Output = Response<Body>> + 'static,
{
    async fn serve_by_hyper(
        &self,
        (stream, read): (Stream, Vec<u8>),
        client: &Rc<Client>,
        link: &Rc<Link>,
    ) {
        let tunnel = Cell::new(None);
        let service = service_fn(|request: http::Request<Incoming>| {
            let request = Request::from(request);
            let wants_upgrade = request.extensions().get::<hyper::upgrade::OnUpgrade>().is_some();
            let tunnel = &tunnel;
            let serving = Serving::begin(link);
            let answer = self.answer(request, client);
            async move {
                let mut response = match answer {
                    Ok(handling) => handling.await,
                    Err(refusal) => refusal.into_response(),
                };
                let is_upgraded = wants_upgrade && {
                    tunnel.set(response.body_mut().take_tunnel());
                    response.status() == StatusCode::SWITCHING_PROTOCOLS
                };
                // Whoever has asked for another protocol may speak it by now: it is not HTTP.
                let is_last = !serving.takes_more() || wants_upgrade;
                if is_last && !is_upgraded {
                    response.headers_mut().insert(CONNECTION, &HeaderValue::from_static("close"));
                }
                let response = response.map(|body| Answer { body, _serving: serving });
                Ok::<_, Infallible>(http::Response::from(response))
            }
        });
        let keep_alive = link.order() == Order::Serve; // else it is good for one request
        let watched = Watched { wire: Wire::new(stream), read, link: Rc::clone(link) };
        let mut serving = self.builder(keep_alive).serve_connection(watched, service);
        until_done(&mut serving, link).await;
        if let Some(tunnel) = tunnel.take() {
            link.enter(Phase::Serving);
            let parts = serving.into_parts();
            let Watched { wire, read, .. } = parts.io;
            let read = [Bytes::from(read), parts.read_buf].concat();
            tunnel.run(wire.into_stream(), read.into()).await;
        }
    }

    fn answer(&self, request: Request<Incoming>, client: &Rc<Client>) -> Result<F, Refusal> {
        let bytes_max = self.limits.get().body_bytes_max;
        if http_body::Body::size_hint(request.body()).lower() > bytes_max {
            return Err(Refusal::body_too_large(bytes_max));
        }
        let request = request.map(|incoming| Body::from_client(incoming.into(), bytes_max));
        Ok((self.handler)(request, Rc::clone(client)))
    }

    fn builder(&self, keep_alive: bool) -> http1::Builder {
        let mut builder = http1::Builder::new();
        let head_bytes_max = self.limits.get().head_bytes_max;
        builder.max_header_size(head_bytes_max).max_buf_size(head_bytes_max.max(64 * 1024));
        builder.header_read_timeout(None).keep_alive(keep_alive);
        builder
    }
}

/// Polls a connection to its end, and lets it part when the link says so.
async fn until_done<S, B>(serving: &mut http1::Connection<Watched, S>, link: &Link)
where
    S: HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: http_body::Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut is_draining = false;
    std::future::poll_fn(|cx| {
        let order = link.order();
        if Pin::new(&mut *serving).poll(cx).is_ready() {
            return Poll::Ready(()); // the client has been told, or is gone
        }
        // After the poll: what has arrived by now counts as in flight.
        match parting(order, link.phase()) {
            Parting::None => Poll::Pending,
            Parting::AfterAnswer if is_draining => Poll::Pending,
            Parting::AfterAnswer => {
                is_draining = true;
                Pin::new(&mut *serving).graceful_shutdown();
                Pin::new(&mut *serving).poll(cx).map(drop)
            }
            Parting::Now => Poll::Ready(()),
        }
    })
    .await;
}

/// A response body that marks the end of serving when hyper is done with it.
struct Answer {
    body: Body,
    _serving: Serving,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// What a client begins with.
enum Greeting {
    /// HTTP/1.1; so much was read of it.
    Messages(Vec<u8>),
    /// HTTP/2; so much was read of it.
    Streams(Vec<u8>),
    /// It has left, or must.
    None,
}

/// Reads until it is known what a client speaks whom nobody asked.
async fn greet(stream: &mut Stream, link: &Link) -> Greeting {
    let mut read = Vec::new();
    std::future::poll_fn(|cx| {
        loop {
            let mut buffer = [0; GREETING_BYTES];
            let mut buffer = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {}
                Poll::Ready(_) => return Poll::Ready(Greeting::None),
                Poll::Pending => match parting(link.order(), link.phase()) {
                    Parting::Now => return Poll::Ready(Greeting::None),
                    _ => return Poll::Pending,
                },
            }
            link.enter(Phase::Reading);
            read.extend_from_slice(buffer.filled());
            let length = read.len().min(h2::PREFACE.len());
            if read[..length] != h2::PREFACE[..length] {
                hint_at_proxy_header(&read);
                if is_of_another_protocol(&read) {
                    return Poll::Ready(Greeting::None);
                }
                return Poll::Ready(Greeting::Messages(std::mem::take(&mut read)));
            }
            if length == h2::PREFACE.len() {
                return Poll::Ready(Greeting::Streams(std::mem::take(&mut read)));
            }
        }
    })
    .await
}

/// Says once that a load balancer sends what nobody here reads: clients only see that it fails.
fn hint_at_proxy_header(read: &[u8]) {
    static SAID: Once = Once::new();
    if begins_proxy_header(read) {
        SAID.call_once(|| {
            tracing::warn!(
                "a connection begins with the PROXY protocol, which its listener does not read: \
                 name the load balancer in [[listen]] proxy_protocol"
            );
        });
    }
}

/// Whether the first line is complete and of no HTTP at all: nobody would understand an answer.
fn is_of_another_protocol(read: &[u8]) -> bool {
    let Some(end) = read.iter().position(|byte| *byte == b'\n') else { return false };
    let version = read[..end].split(|byte| *byte == b' ').nth(2);
    version.is_some_and(|version| !version.starts_with(b"HTTP/"))
}

/// The client's stream, telling the connection's phase by what passes.
struct Watched {
    wire: Wire<Stream>,
    /// What was read before it was known to be HTTP/1.1.
    read: Vec<u8>,
    link: Rc<Link>,
}

impl Watched {
    fn read_again(&mut self, buffer: &mut ReadBufCursor<'_>) {
        let length = self.read.len().min(buffer.remaining());
        buffer.put_slice(&self.read[..length]);
        self.read.drain(..length);
        if self.read.is_empty() {
            self.read = Vec::new(); // its memory is not kept
        }
    }

    fn note_write(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.link.write_blocked(result.is_pending());
        result
    }
}

impl Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read.is_empty() {
            self.read_again(&mut buffer);
            return Poll::Ready(Ok(()));
        }
        let result = Pin::new(&mut self.wire).poll_read(cx, buffer);
        if result.is_ready() && matches!(self.link.phase(), Phase::New | Phase::Idle) {
            self.link.enter(Phase::Reading);
        }
        result
    }
}

impl Write for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.wire).poll_write(cx, bytes);
        self.note_write(result)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.wire).poll_write_vectored(cx, slices);
        self.note_write(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Watched { wire, link, .. } = &mut *self;
        poll_leave(wire.stream(), link, Linger::WhileSending, cx)
    }
}
