//! One replica: its kept connections, and one attempt to get an answer from it.
//!
//! Connections are reused last in, first out, so that few stay warm and the rest time out. A
//! kept connection may have been closed by the replica in the meantime. That is noticed before
//! anything is written in all but one case: the close crosses our request on the wire. In the
//! first case the request is sent again on another connection without anyone noticing; in the
//! second the caller learns that it was sent ([`SendError::was_sent`]) on a kept connection
//! ([`SendError::was_reused`]), and only the caller knows whether the request is idempotent.

use evenkeel_settings::address::ServerAddress;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_runtime::dial::dial;
use evenkeel_runtime::limits::{BodyLimits, UpstreamLimits};
use evenkeel_runtime::stream::Stream;
use evenkeel_runtime::tls::ClientTls;
use http::{Extensions, StatusCode, Version};

use super::answer::Answer;
use super::body::{Body, Upload};
use super::h2::call::{Call, Unanswered, Unprocessed};
use super::h2::sessions::{ALPN, Found};
use super::head;
use super::lease::{Lease, Pool};
use super::message::{Request, Response, request, response};
use super::replica_body::{Arrival, ReplicaBody};
use super::send_error::{SendError, SendErrorKind};
use super::stall::Stall;
use super::tunnel::Tunnel;

/// Connections on which a request may find that they end, before that is an error.
const ENDED_MAX: usize = 3;

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
    pub fn new(address: impl Into<ServerAddress>, limits: UpstreamLimits) -> Upstream {
        Self::with_tls(address, limits, None)
    }

    /// The same; with `tls` it must speak it, which has to be agreed on within the time for
    /// connecting.
    ///
    /// # Panics
    /// As [`Upstream::new`].
    pub fn with_tls(
        address: impl Into<ServerAddress>,
        limits: UpstreamLimits,
        tls: Option<ClientTls>,
    ) -> Upstream {
        Upstream(Pool::new(address.into(), limits, tls))
    }

    /// Where the replica listens.
    pub fn address(&self) -> ServerAddress {
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
    /// future, or later the response body, cancels the attempt: it closes the connection, or of
    /// one that others share resets the stream.
    /// Connecting has a limit of its own; all other waiting is limited by the caller.
    ///
    /// # Errors
    /// When no response head arrived; see [`SendErrorKind`].
    pub fn send(
        &self,
        request: Request<Body>,
    ) -> impl Future<Output = Result<Response<Body>, SendError>> + use<> {
        self.send_out(Outgoing::Request(request))
    }

    /// The same for a request, or for a copy of one that may be sent again.
    ///
    /// # Errors
    /// As [`Upstream::send`].
    pub fn send_out(
        &self,
        outgoing: Outgoing<'_>,
    ) -> impl Future<Output = Result<Response<Body>, SendError>> + use<> {
        // Most requests leave on a kept connection. They are handed to it here: what follows has no
        // space for a request, nor for all that is rare, and is small enough to be moved about.
        let kept = match self.is_shared(outgoing.extensions()) {
            true => None,
            false => Lease::reuse(&self.0),
        };
        let begun = match (kept, outgoing) {
            (Some(lease), Outgoing::Request(request)) => Ok(Exchange::begin(lease, request)),
            (Some(lease), Outgoing::Copy(head, body)) => Exchange::begin_copy(lease, head, body),
            (None, outgoing) => Err(Box::new(outgoing.into_request())),
        };
        let upstream = self.clone();
        async move {
            let later = match begun {
                Ok(exchange) => match on_kept(exchange.answer().await) {
                    Ok(answer) => return answer,
                    Err(unsent) => unsent,
                },
                Err(request) => request,
            };
            Box::pin(upstream.send_later(later)).await
        }
    }

    /// Whether the request goes over a connection that others share.
    fn is_shared(&self, of_request: &Extensions) -> bool {
        self.0.sessions().are_wanted() && !head::asks_for_upgrade(of_request)
    }

    /// Sends a request that no kept connection has taken.
    async fn send_later(&self, request: Box<Request<Body>>) -> Result<Response<Body>, SendError> {
        match self.is_shared(request.extensions()) {
            true => Box::pin(self.send_in_stream(*request)).await,
            false => self.send_alone(*request).await,
        }
    }

    /// Sends the request on a connection of its own.
    async fn send_alone(&self, mut request: Request<Body>) -> Result<Response<Body>, SendError> {
        while let Some(lease) = Lease::reuse(&self.0) {
            match on_kept(Exchange::begin(lease, request).answer().await) {
                Ok(answer) => return answer,
                Err(unsent) => request = *unsent,
            }
        }
        let (connected, connecting) = timed(connect(&self.0)).await;
        match connected {
            Ok(Connected::Lease(lease)) => {
                told(Exchange::begin(lease, request).answer().await, connecting)
            }
            Ok(Connected::Streams(_)) if head::wants_upgrade(&request) => {
                let failed = SendError::new(SendErrorKind::Malformed, self.address());
                let words = "HTTP/2 was agreed on, in which WebSocket is not passed on";
                Err(failed.because(words).with_unsent(Some(request)))
            }
            Ok(Connected::Streams(stream)) => {
                self.0.sessions().adopt(stream);
                Box::pin(self.send_in_stream(request)).await
            }
            Err(error) => Err(error.with_unsent(Some(request))),
        }
    }

    /// Sends the request on a connection that others share.
    async fn send_in_stream(
        &self,
        mut request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        let (pool, mut refused) = (&self.0, false);
        for ended in 0.. {
            let (found, waited) = timed(pool.sessions().find(pool.leases())).await;
            let session = match found {
                Ok(Found::Session(session)) => session,
                Ok(Found::Other(stream)) => return self.send_other(stream, request).await,
                Err(error) => return Err(error.with_unsent(Some(request))),
            };
            let upload = request.body().upload();
            match Call::exchange(session, pool.address(), request).await {
                Ok((head, call)) => {
                    return told(respond_in_stream(pool, head, call, upload).await, waited);
                }
                Err(Unanswered { error, unprocessed: None }) => return Err(error),
                Err(Unanswered { error, unprocessed: Some(how) }) => {
                    let is_last = match how {
                        Unprocessed::GoAway => ended >= ENDED_MAX,
                        Unprocessed::Refused => std::mem::replace(&mut refused, true),
                    };
                    if is_last || error.was_sent() {
                        return Err(error);
                    }
                    request = error.into_request().expect("it was not sent, so it is there");
                }
            }
        }
        unreachable!("it ends after a few connections")
    }

    /// The replica has agreed on HTTP/1.1, perhaps just now.
    pub(super) async fn send_other(
        &self,
        stream: Option<Stream>,
        request: Request<Body>,
    ) -> Result<Response<Body>, SendError> {
        let Some((stream, mut lease)) = stream.zip(Lease::reserve(&self.0)) else {
            return Box::pin(self.send_alone(request)).await;
        };
        match lease.open(stream).await {
            Ok(()) => Exchange::begin(lease, request).answer().await,
            Err(error) => {
                let failed = SendError::new(SendErrorKind::Connect, self.address());
                Err(failed.because(error).with_unsent(Some(request)))
            }
        }
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, idle) = (self.connections(), self.connections_idle());
        write!(f, "Upstream({}, {open} connections, {idle} idle)", self.address())
    }
}

/// What is sent to a replica.
#[derive(Debug)]
pub enum Outgoing<'a> {
    /// A request.
    Request(Request<Body>),
    /// A copy: its head is written from where it is, and copied only where no kept connection takes
    /// it.
    Copy(&'a request::Parts, Body),
}

impl Outgoing<'_> {
    fn extensions(&self) -> &Extensions {
        match self {
            Self::Request(request) => request.extensions(),
            Self::Copy(head, _) => &head.extensions,
        }
    }

    fn into_request(self) -> Request<Body> {
        match self {
            Self::Request(request) => request,
            Self::Copy(head, body) => Request::from_parts(head.clone(), body),
        }
    }
}

/// In the extensions of a response: how long it was waited for a connection, TLS included. Absent
/// where there was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectTime(pub Duration);

/// A result and how long it was waited for; nothing, without a look at the clock, if it was there.
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let (mut future, mut since) = (pin!(future), None);
    let result = std::future::poll_fn(|cx| {
        let result = future.as_mut().poll(cx);
        if result.is_pending() {
            since.get_or_insert_with(Instant::now);
        }
        result
    });
    let result = result.await;
    (result, since.map_or(Duration::ZERO, |since| since.elapsed()))
}

fn told(
    mut response: Result<Response<Body>, SendError>,
    connecting: Duration,
) -> Result<Response<Body>, SendError> {
    if let (Ok(response), false) = (&mut response, connecting.is_zero()) {
        response.extensions_mut().insert(ConnectTime(connecting));
    }
    response
}

/// What a new connection speaks.
enum Connected {
    Lease(Lease),
    /// HTTP/2, though it was not expected.
    Streams(Stream),
}

/// Opens a connection, if one more may be open.
async fn connect(pool: &Rc<Pool>) -> Result<Connected, SendError> {
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
    if stream.alpn() == Some(ALPN) {
        return Ok(Connected::Streams(stream));
    }
    let opened = lease.open(stream).await;
    opened.map_err(|error| failed(SendErrorKind::Connect).because(error))?;
    Ok(Connected::Lease(lease))
}

/// What became of a request on a kept connection: its answer, or the request, of which nothing was
/// sent as the replica had closed that.
fn on_kept(
    answer: Result<Response<Body>, SendError>,
) -> Result<Result<Response<Body>, SendError>, Box<Request<Body>>> {
    match answer {
        Err(error) if error.was_sent() => Ok(Err(error.on_reused())),
        Err(error) => match error.into_request() {
            Some(unsent) => Err(Box::new(unsent)),
            None => unreachable!("what was not sent is there"),
        },
        answer => Ok(answer),
    }
}

/// A request that was handed to a connection.
struct Exchange {
    lease: Lease,
    upload: Option<Upload>,
    wants_upgrade: bool,
}

impl Exchange {
    #[inline]
    fn begin(mut lease: Lease, request: Request<Body>) -> Self {
        let upload = request.body().upload();
        let wants_upgrade = head::wants_upgrade(&request);
        lease.begin(request);
        Self { lease, upload, wants_upgrade }
    }

    /// The same for a copy; where the replica has ended the connection, that as a request.
    #[inline]
    fn begin_copy(
        mut lease: Lease,
        head: &request::Parts,
        body: Body,
    ) -> Result<Self, Box<Request<Body>>> {
        let wants_upgrade = head::asks_for_upgrade(&head.extensions);
        let upload = body.upload();
        match lease.begin_copy(head, body) {
            Ok(()) => Ok(Self { lease, upload, wants_upgrade }),
            Err(body) => Err(Box::new(Request::from_parts(head.clone(), body))),
        }
    }

    /// Sends it, and waits for the answer.
    async fn answer(self) -> Result<Response<Body>, SendError> {
        let Self { mut lease, upload, wants_upgrade } = self;
        let Answer { mut parts, whole } =
            lease.answer().await.map_err(|failure| SendError::of(failure, lease.address()))?;
        let is_switched = parts.status == StatusCode::SWITCHING_PROTOCOLS;
        if is_switched && wants_upgrade && head::agrees_to_upgrade(&parts.headers) {
            return Box::pin(switch(lease, parts)).await;
        }
        check(&parts, lease.address())?;
        parts.version = Version::HTTP_11;
        let body = match whole {
            Some(whole) => {
                lease.give_back();
                Body::full(whole)
            }
            None => {
                let limits = lease.limits().body;
                Box::pin(receive(lease, limits, upload)).await? // most answers come whole
            }
        };
        Ok(Response::from_parts(parts, body))
    }
}

/// The replica speaks another protocol from now on.
async fn switch(mut lease: Lease, head: Box<response::Parts>) -> Result<Response<Body>, SendError> {
    let broke_off = SendError::new(SendErrorKind::Body, lease.address());
    let (stream, read) =
        lease.upgrade().await.ok_or_else(|| broke_off.because("behind its 101"))?;
    let idle = lease.limits().body.tunnel;
    let tunnel = Tunnel { stream, read, idle, _place: Box::new(lease) };
    Ok(Response::from_parts(head, Body::tunnel(tunnel)))
}

async fn respond_in_stream(
    pool: &Pool,
    head: response::Parts,
    call: Call,
    upload: Option<Upload>,
) -> Result<Response<Body>, SendError> {
    check(&head, pool.address())?;
    let body = match call.is_end_stream() {
        true => {
            call.complete();
            Body::empty()
        }
        false => receive(call, pool.limits().body, upload).await?,
    };
    Ok(Response::from_parts(head, body))
}

fn check(head: &response::Parts, address: ServerAddress) -> Result<(), SendError> {
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(());
    }
    let malformed = SendError::new(SendErrorKind::Malformed, address);
    Err(malformed.because("101 Switching Protocols, which nobody asked for"))
}

/// A body that has yet to come.
///
/// Of a body whose length is known the first bytes are waited for: where a replica breaks off
/// between its head and them, nothing was passed on yet and another one may answer. A body
/// without a length may be a stream of events, whose head is wanted at once; and while a request
/// is on its way, the rest of it may be what the replica waits for.
async fn receive(
    arrival: impl Arrival + 'static,
    limits: BodyLimits,
    upload: Option<Upload>,
) -> Result<Body, SendError> {
    let is_sent = upload.as_ref().is_none_or(Upload::is_through);
    let begins_soon = arrival.size_hint().exact().is_some() && is_sent;
    let broke_off = SendError::new(SendErrorKind::Body, arrival.address());
    let mut body = Box::new(ReplicaBody::new(arrival, Stall::new(limits, upload)));
    if begins_soon {
        let begun = body.begin().await;
        begun.map_err(|error| broke_off.because(error))?;
    }
    Ok(body.take_whole().map_or_else(|| Body::from_replica(body), Body::full))
}
