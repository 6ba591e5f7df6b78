//! One replica: its kept connections, and one attempt to get an answer from it.
//!
//! Connections are reused last in, first out, so that few stay warm and the rest time out. A
//! kept connection may have been closed by the replica in the meantime. That is noticed before
//! anything is written in all but one case: the close crosses our request on the wire. In the
//! first case the request is sent again on another connection without anyone noticing; in the
//! second the caller learns that it was sent ([`SendError::was_sent`]) on a kept connection
//! ([`SendError::was_reused`]), and only the caller knows whether the request is idempotent.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use tokio::net::TcpStream;

use super::body::{Body, BodyError};
use super::relay::Relay;
use super::wire::Wire;

/// How many times a kept connection is looked at during its idle time.
const SWEEPS_PER_IDLE_TIME: u32 = 4;

/// What one worker allows itself towards one replica.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamLimits {
    /// How long a connection may take to open.
    pub connect: Duration,
    /// Connections open at once, busy and idle together; one more is refused, never waited for
    /// (the dispatcher's backlog is the place to wait).
    pub connections_max: usize,
    /// Idle connections kept for reuse.
    pub idle_connections_max: usize,
    /// How long an idle connection is kept; give or take a quarter.
    pub idle: Duration,
    /// The longest response head in bytes; at least 8192, which is also the smallest buffer.
    pub head_bytes_max: usize,
}

/// One replica as one worker sees it. Clones share the connections.
///
/// Belongs to the worker's thread; the connections close when the last clone is dropped.
#[derive(Clone)]
pub struct Upstream(Rc<Pool>);

impl Upstream {
    /// A replica at `address`, without a connection yet.
    ///
    /// # Panics
    ///
    /// Outside a [`worker_runtime`](super::worker_runtime), whose tasks sweep idle connections.
    pub fn new(address: SocketAddr, limits: UpstreamLimits) -> Upstream {
        let mut builder = http1::Builder::new();
        builder.max_buf_size(limits.head_bytes_max.max(8192));
        let (idle, open) = (RefCell::default(), Cell::new(0));
        let pool = Rc::new(Pool { address, limits, builder, idle, open, sweep: Cell::new(0) });
        tokio::task::spawn_local(sweep(Rc::downgrade(&pool), limits.idle));
        Upstream(pool)
    }

    /// Where the replica listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address
    }

    /// Connections open at this moment, busy and idle together.
    pub fn connections(&self) -> usize {
        self.0.open.get()
    }

    /// Idle connections kept at this moment.
    pub fn connections_idle(&self) -> usize {
        self.0.idle.borrow().len()
    }

    /// Closes the idle connections, e.g. when the replica leaves the fleet.
    pub fn close_idle(&self) {
        let closing = self.0.idle.take();
        self.0.open.set(self.0.open.get() - closing.len());
    }

    /// Sends the request and waits for the head of the response; the body may still stream.
    ///
    /// The request must be in origin form with a `Host` (see [`super::head`]). Dropping the
    /// future, or later the response body, closes the connection and so cancels the attempt.
    /// Connecting has a limit of its own; all other waiting is limited by the caller.
    ///
    /// # Errors
    ///
    /// When no response head arrived; see [`SendErrorKind`].
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, SendError> {
        loop {
            let Some(lease) = Pool::reuse(&self.0) else { break };
            match lease.exchange(request).await {
                Err(SendError { request: Some(unsent), .. }) => request = *unsent,
                Err(error) => return Err(SendError { reused: true, ..error }),
                answer => return answer,
            }
        }
        match Pool::connect(&self.0).await {
            Ok(lease) => lease.exchange(request).await,
            Err(error) => Err(SendError { request: Some(Box::new(request)), ..error }),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, idle) = (self.connections(), self.connections_idle());
        write!(f, "Upstream({}, {open} connections, {idle} idle)", self.0.address)
    }
}

/// Why an attempt brought no response head.
#[derive(Debug)]
pub struct SendError {
    kind: SendErrorKind,
    address: SocketAddr,
    request: Option<Box<Request<Body>>>,
    reused: bool,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Kinds of failed attempts. Only [`SendErrorKind::Busy`] and [`SendErrorKind::RequestBody`]
/// are not the replica's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// The connection could not be opened.
    Connect,
    /// The connection did not open in time.
    ConnectTimeout,
    /// This worker has as many connections to the replica as it may.
    Busy,
    /// The replica closed or reset the connection before it answered.
    Reset,
    /// The replica answered something that is not an acceptable HTTP/1 response head.
    Malformed,
    /// The client's request body broke off or was too long.
    RequestBody,
}

impl SendError {
    /// What went wrong.
    pub fn kind(&self) -> SendErrorKind {
        self.kind
    }

    /// The replica that was asked.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Whether the replica may have seen some of the request; if not, any request is safe to
    /// send again.
    pub fn was_sent(&self) -> bool {
        self.request.is_none()
    }

    /// Whether a kept connection was used: a [`SendErrorKind::Reset`] is then most likely the
    /// end of that connection's idle time and says nothing about the replica's health.
    pub fn was_reused(&self) -> bool {
        self.reused
    }

    /// Whether nobody listens at the replica's address.
    pub fn is_refused(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| find::<io::Error>(source));
        self.kind == SendErrorKind::Connect
            && source.is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    }

    /// The request, if none of it was sent.
    pub fn into_request(self) -> Option<Request<Body>> {
        self.request.map(|request| *request)
    }

    /// The status that tells the client, if nobody else can answer.
    pub fn status(&self) -> StatusCode {
        match self.kind {
            SendErrorKind::ConnectTimeout => StatusCode::GATEWAY_TIMEOUT,
            SendErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            SendErrorKind::RequestBody => match self.body_error() {
                Some(BodyError::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
                _ => StatusCode::BAD_REQUEST,
            },
            SendErrorKind::Connect | SendErrorKind::Reset | SendErrorKind::Malformed => {
                StatusCode::BAD_GATEWAY
            }
        }
    }

    fn new(kind: SendErrorKind, address: SocketAddr) -> SendError {
        SendError { kind, address, request: None, reused: false, source: None }
    }

    fn because(self, source: impl Into<Box<dyn Error + Send + Sync>>) -> SendError {
        SendError { source: Some(source.into()), ..self }
    }

    fn from_hyper(error: hyper::Error, address: SocketAddr) -> SendError {
        let kind = if find::<BodyError>(&error).is_some() {
            SendErrorKind::RequestBody
        } else if error.is_parse() {
            SendErrorKind::Malformed
        } else {
            SendErrorKind::Reset
        };
        SendError::new(kind, address).because(error)
    }

    fn body_error(&self) -> Option<&BodyError> {
        find(self.source.as_deref()?)
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SendError { kind, address, source, .. } = self;
        let cause = source.as_deref().map(innermost);
        let cause = cause.as_deref().unwrap_or("no details");
        match kind {
            SendErrorKind::Connect => write!(f, "replica {address}: {cause} (is it running?)"),
            SendErrorKind::ConnectTimeout => {
                write!(f, "replica {address}: no connection {cause} (host down, or a firewall?)")
            }
            SendErrorKind::Busy => {
                write!(f, "replica {address}: all {cause} connections of this worker are in use")
            }
            SendErrorKind::Reset => {
                let when = if self.reused { "a kept connection" } else { "a new connection" };
                write!(f, "replica {address}: {when} broke before the answer: {cause}")
            }
            SendErrorKind::Malformed => {
                write!(f, "replica {address}: not an HTTP/1 response head: {cause}")
            }
            SendErrorKind::RequestBody => write!(f, "request to replica {address}: {cause}"),
        }
    }
}

impl Error for SendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The error and its causes, outermost first.
fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

/// The first error of type `E` among the causes.
fn find<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    chain(error).find_map(|error| error.downcast_ref())
}

/// What the last cause says; the ones before it mostly say "error".
fn innermost(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match find::<io::Error>(error).map(io::Error::kind) {
        Some(io::ErrorKind::ConnectionRefused) => "connection refused".to_owned(),
        Some(io::ErrorKind::ConnectionReset) => "connection reset".to_owned(),
        _ => chain(error).last().map_or_else(String::new, ToString::to_string),
    }
}

struct Pool {
    address: SocketAddr,
    limits: UpstreamLimits,
    builder: http1::Builder,
    #[expect(clippy::vec_box, reason = "a link is large and moves twice per request")]
    idle: RefCell<Vec<Box<Link>>>,
    open: Cell<usize>,
    /// Counts sweeps: a clock that costs the request path nothing.
    sweep: Cell<u32>,
}

/// One connection. `driver` is `None` once it has closed.
struct Link {
    sender: http1::SendRequest<Body>,
    driver: Option<http1::Connection<Wire, Body>>,
    relay: Relay,
    idle_since_sweep: u32,
}

impl Link {
    /// Lets the connection read and write as far as it can, then looks with `poll` at what came
    /// of it.
    fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Link { driver, relay, .. } = self;
        relay.poll(cx, |cx| {
            if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
                *driver = None; // dropping it hands an unsent request back
            }
            poll(cx)
        })
    }

    /// Whether request and response are both through and another request may follow.
    fn is_reusable(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }
}

impl Pool {
    /// Takes the connection that became idle last.
    fn reuse(pool: &Rc<Pool>) -> Option<Lease> {
        let link = pool.idle.borrow_mut().pop()?;
        Some(Lease { link: Some(link), pool: Rc::clone(pool), is_kept: false })
    }

    async fn connect(pool: &Rc<Pool>) -> Result<Lease, SendError> {
        let Pool { address, limits, builder, open, .. } = &**pool;
        let failed = |kind| SendError::new(kind, *address);
        if open.get() >= limits.connections_max {
            return Err(failed(SendErrorKind::Busy).because(limits.connections_max.to_string()));
        }
        open.set(open.get() + 1);
        let mut lease = Lease { link: None, pool: Rc::clone(pool), is_kept: false };
        let opening = tokio::time::timeout(limits.connect, TcpStream::connect(address));
        let stream = opening.await.map_err(|_| {
            failed(SendErrorKind::ConnectTimeout).because(format!("within {:?}", limits.connect))
        })?;
        let wire = stream.and_then(Wire::new);
        let wire = wire.map_err(|error| failed(SendErrorKind::Connect).because(error))?;
        let (sender, driver) = builder
            .handshake(wire)
            .await
            .map_err(|error| failed(SendErrorKind::Connect).because(error))?;
        let (driver, relay) = (Some(driver), Relay::new());
        lease.link = Some(Box::new(Link { sender, driver, relay, idle_since_sweep: 0 }));
        Ok(lease)
    }

    /// Drops idle connections that are too old, or that the replica has closed.
    fn drop_stale(&self) {
        let sweep = self.sweep.get().wrapping_add(1);
        self.sweep.set(sweep);
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain_mut(|link| {
            let _ = link.drive(&Context::from_waker(Waker::noop()), |_| Poll::Ready(()));
            let age = sweep.wrapping_sub(link.idle_since_sweep);
            link.is_reusable() && age <= SWEEPS_PER_IDLE_TIME
        });
        self.open.set(self.open.get() - (before - idle.len()));
    }
}

/// A connection in use by one attempt. Dropping it closes the connection.
pub(super) struct Lease {
    /// `None` while it opens, and after it went back to the pool.
    link: Option<Box<Link>>,
    pool: Rc<Pool>,
    is_kept: bool,
}

impl Lease {
    pub(super) fn address(&self) -> SocketAddr {
        self.pool.address
    }

    /// Lets the connection read and write as far as it can, then looks with `poll` at what came
    /// of it.
    pub(super) fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        self.link.as_mut().expect("a lease in use has a link").drive(cx, poll)
    }

    /// Keeps the connection for the next request, if it is fit for one.
    pub(super) fn give_back(mut self) {
        let Some(mut link) = self.link.take_if(|link| link.is_reusable()) else { return };
        let mut idle = self.pool.idle.borrow_mut();
        if idle.len() < self.pool.limits.idle_connections_max {
            link.relay.rest();
            link.idle_since_sweep = self.pool.sweep.get();
            idle.push(link);
            self.is_kept = true;
        }
    }

    async fn exchange(mut self, request: Request<Body>) -> Result<Response<Body>, SendError> {
        let link = self.link.as_mut().expect("a lease for an exchange has a link");
        let mut answer = pin!(link.sender.try_send_request(request));
        let answer = std::future::poll_fn(|cx| link.drive(cx, |cx| answer.as_mut().poll(cx)));
        match answer.await {
            Ok(response) => self.respond(response),
            Err(mut error) => {
                let request = error.take_message().map(Box::new);
                let error = SendError::from_hyper(error.into_error(), self.pool.address);
                Err(SendError { request, ..error })
            }
        }
    }

    /// Gives the connection back at once if the whole body came along with the head.
    fn respond(self, response: Response<Incoming>) -> Result<Response<Body>, SendError> {
        let (mut head, incoming) = response.into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            let error = SendError::new(SendErrorKind::Malformed, self.pool.address);
            return Err(error.because("101 Switching Protocols, which nobody asked for"));
        }
        head.version = Version::HTTP_11;
        let is_through = self.link.as_ref().is_some_and(|link| link.is_reusable());
        let length = http_body::Body::size_hint(&incoming).exact();
        let body = match length {
            Some(length) if is_through => {
                let lost = SendError::new(SendErrorKind::Malformed, self.pool.address);
                self.give_back();
                // Half an answer would be worse than none, though hyper says that all was read.
                arrived(incoming, length).ok_or_else(|| lost.because("its body is incomplete"))?
            }
            _ => Body::from_replica(incoming, self),
        };
        Ok(Response::from_parts(head, body))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_kept {
            self.pool.open.set(self.pool.open.get() - 1);
        }
    }
}

/// The body of a response that is through: hyper holds it in one piece.
fn arrived(mut incoming: Incoming, length_bytes: u64) -> Option<Body> {
    if length_bytes == 0 {
        return Some(Body::empty());
    }
    let cx = &mut Context::from_waker(Waker::noop());
    match http_body::Body::poll_frame(Pin::new(&mut incoming), cx) {
        Poll::Ready(Some(Ok(frame))) => {
            let data = frame.into_data().ok()?;
            (data.len() as u64 == length_bytes).then(|| Body::full(data))
        }
        _ => None,
    }
}

/// Looks after idle connections until the last user of the pool is gone.
async fn sweep(pool: Weak<Pool>, idle: Duration) {
    let period = (idle / SWEEPS_PER_IDLE_TIME).max(Duration::from_millis(1));
    loop {
        tokio::time::sleep(period).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.drop_stale();
    }
}
