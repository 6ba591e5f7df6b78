//! A client that speaks HTTP/2: each of its streams is a request with a handler of its own.
//!
//! One task serves all streams of a connection, so that a client that leaves takes its handlers
//! with it.

use std::cell::Cell;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_runtime::accept::{Linger, Link, Order, Phase, Stream, poll_leave};
use evenkeel_runtime::limits::ServerLimits;
use futures_util::stream::{FuturesUnordered, Stream as _};
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::header::EXPECT;
use http::{Method, StatusCode};
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use super::flood::Flood;
use super::frames::{Watch, Watched};
use super::inflow::{Incoming, Inflow};
use super::outflow::{Broken, Outflow};
use super::wakes::{Part, Wakes};
use super::{CONNECTION_WINDOW, PREFACE, SEND_BUFFER, STREAM_WINDOW, heads};
use crate::body::Body;
use crate::counts::{Counted, Side, count};
use crate::fields::Fields;
use crate::grpc;
use crate::head::Refusal;
use crate::message::{Request, Response};

/// Requests of one connection at once.
const STREAMS_MAX: u32 = 100;

/// The longest list of headers in bytes, with 32 for each, unless heads are limited further.
const HEADERS_MAX: usize = 16 * 1024;

type Io = Watched<Client>;

/// What is noted of a client's bytes.
struct Client {
    link: Rc<Link>,
    flood: Rc<Flood>,
}

impl Watch for Client {
    fn read(&mut self, bytes: &[u8]) {
        self.flood.read(bytes);
    }

    fn may_read(&self) -> bool {
        !self.flood.is_over()
    }

    fn write_blocked(&mut self, is_blocked: bool) {
        self.link.write_blocked(is_blocked);
    }

    fn poll_leave(
        &mut self,
        stream: Pin<&mut Stream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        poll_leave(stream, &self.link, Linger::WhileSending, context)
    }
}

/// Serves a client from its preface to its last stream. `before` was read already.
pub(crate) async fn serve<A, F>(
    (stream, before): (Stream, Vec<u8>),
    link: &Rc<Link>,
    limits: &ServerLimits,
    answer: A,
) where
    A: Fn(Request<Body>) -> F,
    F: Future<Output = Response<Body>>,
{
    let flood = Flood::new(PREFACE.len());
    let client = Client { link: Rc::clone(link), flood: Rc::clone(&flood) };
    let io = Watched::new(stream, before, client);
    let mut greeting = pin!(builder(limits).handshake::<Io, Bytes>(io));
    let greeted = std::future::poll_fn(|cx| match greeting.as_mut().poll(cx) {
        Poll::Ready(greeted) => Poll::Ready(greeted.ok()),
        Poll::Pending if link.order() >= Order::Drain => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    });
    let Some(connection) = greeted.await else { return };
    // Many connect long before they ask.
    link.enter(Phase::Idle);
    let idle_since = Cell::new(Instant::now());
    let streams = Streams { link, flood: &flood, limits, active: Cell::new(0), idle_since };
    streams.serve(connection, answer).await;
}

fn builder(limits: &ServerLimits) -> h2::server::Builder {
    let mut builder = h2::server::Builder::new();
    builder
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(STREAMS_MAX as usize)
        .max_header_list_size(limits.head_bytes_max.min(HEADERS_MAX) as u32)
        .max_send_buffer_size(SEND_BUFFER);
    builder
}

/// The streams of one connection.
struct Streams<'a> {
    link: &'a Rc<Link>,
    flood: &'a Flood,
    limits: &'a ServerLimits,
    active: Cell<usize>,
    idle_since: Cell<Instant>,
}

impl Streams<'_> {
    async fn serve<A, F>(&self, mut connection: Connection<Io, Bytes>, answer: A)
    where
        A: Fn(Request<Body>) -> F,
        F: Future<Output = Response<Body>>,
    {
        let mut streams = FuturesUnordered::new();
        let mut farewell = Farewell::None;
        let mut idle = pin!(tokio::time::sleep(self.idle_max()));
        let wakes = Wakes::new();
        std::future::poll_fn(|cx| {
            if farewell == Farewell::None && self.poll_idle(idle.as_mut(), cx).is_ready() {
                farewell = Farewell::Said;
                count(Side::Clients, Counted::GoAwaysSent);
                connection.graceful_shutdown();
                wakes.note(Part::Connection);
            }
            wakes.turn(cx, || {
                if self.take_leave(&mut connection, &mut farewell) {
                    wakes.note(Part::Connection);
                }
                // Before the connection, which writes what all of them have to say at once.
                if let Some(mut cx) = wakes.take(Part::Streams) {
                    while let Poll::Ready(Some(())) = Pin::new(&mut streams).poll_next(&mut cx) {}
                }
                if let Some(mut cx) = wakes.take(Part::Connection) {
                    while let Poll::Ready(accepted) = connection.poll_accept(&mut cx) {
                        let Some(Ok((request, respond))) = accepted else { return Poll::Ready(()) };
                        self.flood.asked();
                        streams.push(self.one(request, respond, &answer));
                        wakes.note(Part::Streams);
                    }
                }
                if self.must_close(&connection, farewell) {
                    wakes.note(Part::Connection);
                }
                Poll::Pending
            })
        })
        .await;
    }

    /// Whether a connection on which nothing is under way has yet to be told to end.
    fn must_close(&self, connection: &Connection<Io, Bytes>, farewell: Farewell) -> bool {
        // An answer may still lie in a buffer.
        farewell != Farewell::Over && self.link.order() >= Order::Drain && !connection.has_streams()
    }

    /// A little less than the limit after which it is cut off: a client that is told in time loses
    /// no request that crosses the end on its way.
    fn idle_max(&self) -> Duration {
        self.limits.idle - self.limits.idle / 8
    }

    /// Ready when nothing was asked for so long.
    fn poll_idle(&self, mut timer: Pin<&mut Sleep>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            std::task::ready!(timer.as_mut().poll(cx));
            let until = match self.active.get() {
                0 => self.idle_since.get() + self.idle_max(),
                _ => Instant::now() + self.idle_max(),
            };
            if until <= Instant::now() {
                return Poll::Ready(());
            }
            timer.as_mut().reset(until);
        }
    }

    /// Tells the client to go, as it is due; whether there is something new to tell.
    fn take_leave(&self, connection: &mut Connection<Io, Bytes>, farewell: &mut Farewell) -> bool {
        if *farewell == Farewell::Over {
            return false;
        }
        if self.flood.is_over() {
            *farewell = Farewell::Over;
            tracing::debug!("a client makes work without progress: its connection ends");
            count(Side::Clients, Counted::Floods);
            count(Side::Clients, Counted::GoAwaysSent);
            connection.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        } else if self.must_close(connection, *farewell) {
            // What crosses this on its way was not processed, and the client knows that.
            if *farewell == Farewell::None {
                count(Side::Clients, Counted::GoAwaysSent);
            }
            *farewell = Farewell::Over;
            connection.abrupt_shutdown(Reason::NO_ERROR);
        } else if !self.link.takes_more() && *farewell == Farewell::None {
            *farewell = Farewell::Said;
            count(Side::Clients, Counted::GoAwaysSent);
            connection.graceful_shutdown();
        } else {
            return false;
        }
        true
    }

    /// One stream from its request to the end of its response.
    async fn one<A, F>(
        &self,
        request: http::Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        answer: &A,
    ) where
        A: Fn(Request<Body>) -> F,
        F: Future<Output = Response<Body>>,
    {
        let mut serving = Serving::begin(self);
        let request = Request::from(request);
        let is_head = request.method() == Method::HEAD;
        let is_grpc = grpc::is_grpc(request.headers());
        if waits_for_continue(request.headers()) {
            let mut go_on = http::Response::new(());
            *go_on.status_mut() = StatusCode::CONTINUE;
            let _ = respond.send_informational(go_on); // or it has left
        }
        let handling = async {
            match self.receive(request) {
                Ok(request) => answer(request).await,
                Err(refusal) if is_grpc => grpc::understood(refusal.into_response()),
                Err(refusal) => refusal.into_response(),
            }
        };
        let mut handling = pin!(handling);
        let response = std::future::poll_fn(|cx| match respond.poll_reset(cx) {
            Poll::Ready(_) => Poll::Ready(None), // perhaps before it began
            Poll::Pending => handling.as_mut().poll(cx).map(Some),
        });
        let Some(response) = response.await else { return };
        serving.was_answered = true;
        self.send(response, respond, is_head).await;
    }

    fn receive(&self, mut request: Request<RecvStream>) -> Result<Request<Body>, Refusal> {
        heads::from_client(&mut request)?;
        let (parts, stream) = request.into_parts();
        let incoming = Incoming::Stream(Inflow::new(stream, &parts.headers));
        let bytes_max = self.limits.body_bytes_max;
        if incoming.size_hint().lower() > bytes_max {
            return Err(Refusal::body_too_large(bytes_max));
        }
        Ok(Request::from_parts(parts, Body::from_client(incoming, bytes_max)))
    }

    async fn send(
        &self,
        response: Response<Body>,
        mut respond: SendResponse<Bytes>,
        is_head: bool,
    ) {
        let (mut parts, body) = response.into_parts();
        parts.version = http::Version::HTTP_2;
        heads::strip(&mut parts.headers);
        let has_none = matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        let is_over = is_head || has_none || body.is_end_stream();
        let sent = respond.send_response(Response::from_parts(parts, ()).into(), is_over);
        let Ok(stream) = sent else { return };
        if is_over {
            drain_empty(body).await;
            return;
        }
        let mut outflow = Outflow::new(body, stream, Some(self.limits.write));
        let sent = std::future::poll_fn(|cx| outflow.poll(cx, || self.flood.sent())).await;
        match sent {
            Ok(()) | Err(Broken::Reset(_) | Broken::Lost(_)) => {}
            Err(Broken::Body(error)) => {
                tracing::debug!(%error, "a response breaks off");
                count(Side::Clients, Counted::ResetsSent);
                outflow.reset(Reason::INTERNAL_ERROR);
            }
            Err(Broken::Stalled) => {
                count(Side::Clients, Counted::ResetsSent);
                outflow.reset(Reason::CANCEL);
            }
        }
    }
}

/// Whether a client sends no body before it is told to. We read it in any case.
fn waits_for_continue(headers: &Fields) -> bool {
    let expected = headers.get(EXPECT);
    expected.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// A body that has no bytes is over all the same only when it was asked for them.
async fn drain_empty(mut body: Body) {
    if body.is_end_stream() {
        let _ = body.frame().await;
    }
}

/// How far a connection is with its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Farewell {
    None,
    /// The client is told to open no stream any more; those on their way are served.
    Said,
    Over,
}

/// From the end of a request head to the end of its response.
struct Serving<'a> {
    streams: &'a Streams<'a>,
    began: Instant,
    was_answered: bool,
}

impl<'a> Serving<'a> {
    fn begin(streams: &'a Streams<'a>) -> Self {
        count(Side::Clients, Counted::Streams);
        let active = streams.active.get();
        streams.active.set(active + 1);
        if active == 0 {
            streams.link.enter(Phase::Serving);
        }
        Self { streams, began: Instant::now(), was_answered: false }
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let active = self.streams.active.get() - 1;
        self.streams.active.set(active);
        self.streams.flood.ended(self.began, self.was_answered);
        if active == 0 && self.streams.link.phase() == Phase::Serving {
            self.streams.link.enter(Phase::Idle);
            self.streams.idle_since.set(Instant::now());
        }
    }
}
