//! One replica: its kept connections, and one attempt to get an answer from it.
//!
//! Connections are reused last in, first out, so that few stay warm and the rest time out. A
//! kept connection may have been closed by the replica in the meantime. That is noticed before
//! anything is written in all but one case: the close crosses our request on the wire. In the
//! first case the request is sent again on another connection without anyone noticing; in the
//! second the caller learns that it was sent ([`SendError::was_sent`]) on a kept connection
//! ([`SendError::was_reused`]), and only the caller knows whether the request is idempotent.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::tls::{ClientTls, dial};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;

use super::body::{Body, BodyError, Upload};
use super::lease::{Lease, Pool};
use super::replica_body::ReplicaBody;
use super::stall::Stall;
use super::wire::Wire;

/// One replica as one worker sees it. Clones share the connections.
///
/// Belongs to the worker's thread; the connections close when the last clone is dropped.
#[derive(Clone)]
pub struct Upstream(Rc<Pool>);

impl Upstream {
    /// A replica at `address`, without TLS and without a connection yet.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime), whose tasks sweep
    /// idle connections.
    pub fn new(address: SocketAddr, limits: UpstreamLimits) -> Upstream {
        Self::with_tls(address, limits, None)
    }

    /// The same; with `tls` it must speak it, which has to be agreed on within the time for
    /// connecting.
    ///
    /// # Panics
    /// As [`Upstream::new`].
    pub fn with_tls(
        address: SocketAddr,
        limits: UpstreamLimits,
        tls: Option<ClientTls>,
    ) -> Upstream {
        Upstream(Pool::new(address, limits, tls))
    }

    /// Where the replica listens.
    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Connections open at this moment, busy and idle together.
    pub fn connections(&self) -> usize {
        self.0.connections()
    }

    /// Idle connections kept at this moment.
    pub fn connections_idle(&self) -> usize {
        self.0.connections_idle()
    }

    /// Closes the idle connections, e.g. when the replica leaves the fleet.
    pub fn close_idle(&self) {
        self.0.close_idle();
    }

    /// Sends the request and waits for the head of the response; the body may still stream.
    ///
    /// The request must be in origin form with a `Host` (see [`super::head`]). Dropping the
    /// future, or later the response body, closes the connection and so cancels the attempt.
    /// Connecting has a limit of its own; all other waiting is limited by the caller.
    ///
    /// # Errors
    /// When no response head arrived; see [`SendErrorKind`].
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, SendError> {
        loop {
            let Some(lease) = Lease::reuse(&self.0) else { break };
            match exchange(lease, request).await {
                Err(SendError { request: Some(unsent), .. }) => request = *unsent,
                Err(error) => return Err(SendError { reused: true, ..error }),
                answer => return answer,
            }
        }
        match connect(&self.0).await {
            Ok(lease) => exchange(lease, request).await,
            Err(error) => Err(SendError { request: Some(Box::new(request)), ..error }),
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, idle) = (self.connections(), self.connections_idle());
        write!(f, "Upstream({}, {open} connections, {idle} idle)", self.address())
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
    /// The replica broke off between the head of its response and the body.
    Body,
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

    /// Whether it is there, and TLS could not be agreed on.
    fn is_of_tls(&self) -> bool {
        let source = self.source.as_deref().and_then(|source| find::<io::Error>(source));
        source.is_some_and(|error| error.kind() == io::ErrorKind::InvalidData)
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
            SendErrorKind::Connect
            | SendErrorKind::Reset
            | SendErrorKind::Malformed
            | SendErrorKind::Body => StatusCode::BAD_GATEWAY,
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
            SendErrorKind::Connect if self.is_of_tls() => {
                write!(f, "replica {address}: no TLS: {cause}")
            }
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
            SendErrorKind::Body => {
                write!(f, "replica {address}: broke off after the response head: {cause}")
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

/// Opens a connection, if one more may be open.
async fn connect(pool: &Rc<Pool>) -> Result<Lease, SendError> {
    let limits = pool.limits();
    let failed = |kind| SendError::new(kind, pool.address());
    let Some(mut lease) = Lease::reserve(pool) else {
        return Err(failed(SendErrorKind::Busy).because(limits.connections_max.to_string()));
    };
    let opening = tokio::time::timeout(limits.connect, dial(pool.address(), pool.tls()));
    let stream = opening.await.map_err(|_| {
        failed(SendErrorKind::ConnectTimeout).because(format!("within {:?}", limits.connect))
    })?;
    let stream = stream.map_err(|error| failed(SendErrorKind::Connect).because(error))?;
    let opened = lease.open(Wire::new(stream)).await;
    opened.map_err(|error| failed(SendErrorKind::Connect).because(error))?;
    Ok(lease)
}

async fn exchange(mut lease: Lease, request: Request<Body>) -> Result<Response<Body>, SendError> {
    let upload = request.body().upload();
    match lease.exchange(request).await {
        Ok(response) => respond(lease, response, upload).await,
        Err(mut error) => {
            let request = error.take_message().map(Box::new);
            let error = SendError::from_hyper(error.into_error(), lease.address());
            Err(SendError { request, ..error })
        }
    }
}

/// Gives the connection back at once if the whole body came along with the head.
///
/// Of a body whose length is known the first bytes are waited for: where a replica breaks off
/// between its head and them, nothing was passed on yet and another one may answer. A body
/// without a length may be a stream of events, whose head is wanted at once; and while a request
/// is on its way, the rest of it may be what the replica waits for.
async fn respond(
    lease: Lease,
    response: Response<Incoming>,
    upload: Option<Upload>,
) -> Result<Response<Body>, SendError> {
    let (mut head, incoming) = response.into_parts();
    let failed = |kind| SendError::new(kind, lease.address());
    let (malformed, broke_off) = (failed(SendErrorKind::Malformed), failed(SendErrorKind::Body));
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return Err(malformed.because("101 Switching Protocols, which nobody asked for"));
    }
    head.version = Version::HTTP_11;
    let length = http_body::Body::size_hint(&incoming).exact();
    let body = match length {
        Some(length) if lease.is_reusable() => {
            lease.give_back();
            // Half an answer would be worse than none, though hyper says that all was read.
            arrived(incoming, length).ok_or_else(|| malformed.because("its body is incomplete"))?
        }
        _ => {
            let begins_soon = length.is_some() && upload.as_ref().is_none_or(Upload::is_through);
            let stall = Stall::new(lease.limits().body, upload);
            let mut body = ReplicaBody::new(incoming, lease, stall);
            if begins_soon {
                let begun = body.begin().await;
                begun.map_err(|error| broke_off.because(error))?;
            }
            body.take_whole().map_or_else(|| Body::from_replica(body), Body::full)
        }
    };
    Ok(Response::from_parts(head, body))
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
