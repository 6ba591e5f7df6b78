//! One request to a replica as a stream: its head, its bodies, and what becomes of it when nobody
//! wants it any more.

use evenkeel_settings::address::ServerAddress;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::Reason;
use h2::client::ResponseFuture;
use http::Version;
use http_body::{Body as _, SizeHint};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::heads;
use super::inflow::{Cause, Inflow};
use super::outflow::{Broken, Outflow};
use super::session::Session;
use crate::body::Body;
use crate::fields::Fields;
use crate::message::{Request, request, response};
use crate::piece::{Piece, Takes};
use crate::replica_body::Arrival;
use crate::send_error::{SendError, SendErrorKind};

/// What is read of an answer that nobody wants, before its stream is reset after all.
const UNWANTED_BYTES_MAX: usize = 256 * 1024;
const UNWANTED_TIME_MAX: Duration = Duration::from_secs(10);

/// One request on its way.
pub(crate) struct Call {
    session: Rc<Session>,
    address: ServerAddress,
    stream: u32,
    began: Instant,
    reads_before: u32,
    /// `None` once the head has come.
    head: Option<ResponseFuture>,
    /// `None` until then.
    inflow: Option<Inflow>,
    /// The request's body, until the head has come.
    outflow: Option<Outflow>,
    /// The rest of it after that.
    upload: Option<JoinHandle<()>>,
    is_complete: bool,
}

/// A request that was not answered.
pub(crate) struct Unanswered {
    pub(crate) error: SendError,
    /// Whether the replica said that it has processed nothing of it, and how.
    pub(crate) unprocessed: Option<Unprocessed>,
}

/// How a replica says that it has processed nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unprocessed {
    /// The connection ends: it goes to another one.
    GoAway,
    /// It was refused.
    Refused,
}

impl Call {
    /// Sends a request and waits for the head of the answer.
    ///
    /// # Errors
    /// When none comes. What was not processed comes back with the error, if it can.
    pub(crate) async fn exchange(
        session: Rc<Session>,
        address: ServerAddress,
        request: Request<Body>,
    ) -> Result<(response::Parts, Self), Unanswered> {
        let (parts, body) = request.into_parts();
        let again = Again { parts: parts.clone(), body: body.try_clone() };
        let head = heads::to_replica(parts, session.is_tls(), address);
        let is_over = body.is_end_stream();
        let sent = session.sender().send_request(head, is_over);
        let (answer, stream) = match sent {
            Ok(sent) => sent,
            Err(error) => {
                session.retire();
                return Err(not_sent(address, error, again.request(Some(body))));
            }
        };
        let mut call = Self::begin(session, address, answer);
        call.outflow = (!is_over).then(|| match again.body {
            Some(_) => Outflow::new(body, stream, None),
            None => Outflow::keeping(body, stream),
        });
        match call.head().await {
            Ok(response) => {
                call.session.note_answer();
                let (parts, stream) = response.into_parts();
                let mut parts = response::Parts::from(parts);
                parts.version = Version::HTTP_11;
                call.head = None;
                call.inflow = Some(Inflow::new(stream, &parts.headers));
                let rest = call.outflow.take().filter(|outflow| !outflow.is_done());
                call.upload = rest.map(go_on);
                Ok((parts, call))
            }
            Err(broken) => Err(call.unanswered(broken, again)),
        }
    }

    fn begin(session: Rc<Session>, address: ServerAddress, answer: ResponseFuture) -> Self {
        session.begin();
        Self {
            address,
            stream: answer.stream_id().as_u32(),
            began: Instant::now(),
            reads_before: session.reads(),
            head: Some(answer),
            inflow: None,
            outflow: None,
            upload: None,
            is_complete: false,
            session,
        }
    }

    /// Sends the body for as long as there is no answer.
    async fn head(&mut self) -> Result<http::Response<h2::RecvStream>, Broken> {
        let Self { head, outflow, .. } = self;
        let answer = head.as_mut().expect("a call begins without a head");
        let mut is_sending = outflow.is_some();
        std::future::poll_fn(|cx| {
            if let Some(outflow) = outflow.as_mut().filter(|_| is_sending) {
                match outflow.poll(cx, || {}) {
                    Poll::Pending => {}
                    Poll::Ready(Err(Broken::Body(error))) => {
                        outflow.reset(Reason::CANCEL);
                        return Poll::Ready(Err(Broken::Body(error)));
                    }
                    // Why the replica wants no more of it, the answer says.
                    Poll::Ready(_) => is_sending = false,
                }
            }
            std::pin::Pin::new(&mut *answer).poll(cx).map_err(Broken::Lost)
        })
        .await
    }

    fn unanswered(mut self, broken: Broken, again: Again) -> Unanswered {
        self.is_complete = true; // there is nothing to reset any more
        let failed = |kind| SendError::new(kind, self.address);
        let error = match broken {
            Broken::Body(error) => {
                self.session.note_reset();
                let error = failed(SendErrorKind::RequestBody).because(error);
                return Unanswered { error, unprocessed: None };
            }
            Broken::Lost(error) => error,
            Broken::Reset(reason) => reason.into(),
            Broken::Stalled => Reason::CANCEL.into(),
        };
        let unprocessed = self.unprocessed(&error);
        let kind = kind_of(&error);
        let failed = failed(kind).because(error);
        let failed = if self.session.was_used() { failed.on_reused() } else { failed };
        let request = unprocessed.and_then(|_| again.request_after(self.outflow.take()));
        Unanswered { error: failed.with_unsent(request), unprocessed }
    }

    fn unprocessed(&self, error: &h2::Error) -> Option<Unprocessed> {
        let is_refused =
            error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM);
        match is_refused {
            true => Some(Unprocessed::Refused),
            false => self.session.is_unprocessed(self.stream).then_some(Unprocessed::GoAway),
        }
    }
}

/// An error of a stream as a kind of failed attempt.
fn kind_of(error: &h2::Error) -> SendErrorKind {
    // What we found wrong in what came; our own mistakes do not come here.
    match error.is_library() && !error.is_io() {
        true => SendErrorKind::Malformed,
        false => SendErrorKind::Reset,
    }
}

/// The connection took no further stream.
fn not_sent(
    address: ServerAddress,
    error: h2::Error,
    request: Option<Request<Body>>,
) -> Unanswered {
    let error = SendError::new(SendErrorKind::Reset, address).because(error).with_unsent(request);
    Unanswered { error, unprocessed: Some(Unprocessed::GoAway) }
}

/// A request for another try.
struct Again {
    parts: Box<request::Parts>,
    /// If it was at hand.
    body: Option<Body>,
}

impl Again {
    fn request(self, body: Option<Body>) -> Option<Request<Body>> {
        let body = self.body.or(body)?;
        Some(Request::from_parts(self.parts, body))
    }

    fn request_after(self, outflow: Option<Outflow>) -> Option<Request<Body>> {
        let rest = if self.body.is_none() { outflow.and_then(Outflow::into_body) } else { None };
        self.request(rest)
    }
}

/// Sends the rest of a request's body beside its answer.
fn go_on(mut outflow: Outflow) -> JoinHandle<()> {
    outflow.settle();
    tokio::task::spawn_local(async move {
        if let Err(Broken::Body(error)) = std::future::poll_fn(|cx| outflow.poll(cx, || {})).await {
            tracing::debug!(%error, "a request breaks off after its answer began");
            outflow.reset(Reason::CANCEL);
        }
    })
}

impl Arrival for Call {
    fn poll_piece(
        &mut self,
        _takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, Cause>>> {
        let inflow = self.inflow.as_mut().expect("a body follows its head");
        let frame = ready!(inflow.poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(Piece::Frame).map_err(|error| {
                self.is_complete = true; // there is nothing to reset any more
                error.into()
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.inflow.as_ref().is_some_and(Inflow::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inflow.as_ref().map_or_else(SizeHint::new, Inflow::size_hint)
    }

    fn is_through(&self) -> bool {
        true
    }

    fn complete(mut self) {
        self.is_complete = true;
    }

    fn address(&self) -> ServerAddress {
        self.address
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let upload = self.upload.take().filter(|upload| !upload.is_finished());
        upload.iter().for_each(JoinHandle::abort);
        let outflow = self.outflow.take().filter(|outflow| !outflow.is_done());
        // A request that is cut off cannot come to its end.
        let is_cut_off = upload.is_some() || outflow.is_some();
        if self.is_complete {
            if is_cut_off {
                self.session.note_reset();
            }
            return self.session.end();
        }
        self.session.doubt(self.began, self.reads_before);
        if is_cut_off {
            self.session.note_reset();
        }
        if is_cut_off || self.session.may_reset() {
            return self.session.end();
        }
        let (session, head) = (Rc::clone(&self.session), self.head.take());
        let inflow = self.inflow.take();
        tokio::task::spawn_local(async move {
            let read = tokio::time::timeout(UNWANTED_TIME_MAX, discard(head, inflow));
            if !matches!(read.await, Ok(true)) {
                session.note_reset();
            }
            session.end();
        });
    }
}

/// Reads an answer that nobody wants; whether it came to its end.
async fn discard(head: Option<ResponseFuture>, inflow: Option<Inflow>) -> bool {
    let inflow = match (head, inflow) {
        (Some(head), _) => match head.await {
            Ok(response) => {
                let (parts, stream) = response.into_parts();
                Some(Inflow::new(stream, &Fields::from(&parts.headers)))
            }
            Err(_) => return true,
        },
        (None, inflow) => inflow,
    };
    match inflow {
        Some(mut inflow) => inflow.discard(UNWANTED_BYTES_MAX).await,
        None => true,
    }
}
