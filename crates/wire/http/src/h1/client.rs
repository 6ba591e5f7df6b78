//! A connection to a replica: one request, one response, and again.

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use evenkeel_runtime::pipe::Pipe;
use evenkeel_runtime::stream::Stream;
use http::Method;
use http_body::{Body as _, Frame, SizeHint};
use tokio::task::unconstrained;

use super::decoder::{Decoded, Decoder};
use super::framing::Framing;
use super::inbox::{FILLS_MAX, Inbox, Reads};
use super::outbox::Outbox;
use super::request_head;
use super::response_head::{self, BadHead};
use crate::answer::{Answer, Failure};
use crate::body::Body;
use crate::h2::inflow::Cause;
use crate::message::{Request, request};
use crate::piece::{Piece, Takes};

/// What is left of a body goes through a pipe if it is this long; to copy less costs less.
const PIPED_BYTES_MIN: u64 = 32 << 10;

/// A connection to a replica.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: Stream,
    inbox: Inbox,
    outbox: Outbox,
    /// What is to be sent as soon as the answer is waited for.
    request: Option<Request<Body>>,
    /// The body of what was sent, while it is on its way.
    upload: Option<(Body, Framing)>,
    /// What is left of the response; nothing before its head and after its body.
    download: Decoder,
    /// Whether the last body that came was a long one, as the next one may be.
    was_piped: bool,
    of_head_request: bool,
    /// Whether another request may follow the one in hand.
    keeps_alive: bool,
    /// Why nothing more can be written. The answer may be there all the same.
    broken: Option<io::Error>,
    head_bytes_max: usize,
}

impl Connection {
    /// One over which nothing was said yet.
    pub(crate) fn new(stream: Stream, head_bytes_max: usize) -> Self {
        Self {
            stream,
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            request: None,
            upload: None,
            download: Decoder::Length(0),
            was_piped: false,
            of_head_request: false,
            keeps_alive: true,
            broken: None,
            head_bytes_max,
        }
    }

    /// Takes a request, which is sent when the answer is first waited for.
    ///
    /// # Panics
    /// When another exchange is not over.
    pub(crate) fn begin(&mut self, request: Request<Body>) {
        assert!(self.is_reusable(), "a connection has one exchange at a time");
        self.request = Some(request);
    }

    /// Takes a copy of a request whose head stays with the caller. It is sent when the answer is
    /// first waited for. The body comes back if the replica has ended the connection.
    ///
    /// # Panics
    /// When another exchange is not over.
    pub(crate) fn begin_copy(&mut self, head: &request::Parts, body: Body) -> Result<(), Body> {
        assert!(self.is_reusable(), "a connection has one exchange at a time");
        if !self.is_fit() {
            return Err(body);
        }
        self.send(head, body);
        Ok(())
    }

    /// Waits for the head of the response.
    pub(crate) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Failure>> {
        if let Some(request) = self.request.take() {
            if let Err(cause) = self.look(cx) {
                self.keeps_alive = false;
                return Poll::Ready(Err(Failure::Unsent(Box::new(request), cause)));
            }
            let (head, body) = request.into_parts();
            self.send(&head, body);
        }
        if let Poll::Ready(Err(cause)) = self.poll_upload(cx) {
            return Poll::Ready(Err(Failure::RequestBody(cause)));
        }
        let reads = if self.was_piped { Reads::Beginning } else { Reads::Heads };
        for _ in 0..FILLS_MAX {
            let is_long = self.inbox.bytes().len() >= self.head_bytes_max;
            if !self.inbox.is_empty() && (is_long || self.inbox.may_end_a_head()) {
                let found = self.head();
                if let Some(answer) = found.map_err(|bad| Failure::Malformed(bad.into()))? {
                    return Poll::Ready(Ok(answer));
                }
            }
            let read = ready!(self.inbox.poll_fill(&mut self.stream, reads, cx));
            if !matches!(read, Ok(1..)) {
                let why = self.broken.take().or_else(|| read.err());
                let why = why.unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                return Poll::Ready(Err(Failure::Reset(why.into())));
            }
        }
        cx.waker().wake_by_ref(); // let others have their turn
        Poll::Pending
    }

    /// The next piece of the response's body.
    pub(crate) fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, Cause>>> {
        if let Poll::Ready(Err(cause)) = self.poll_upload(cx) {
            return Poll::Ready(Some(Err(cause)));
        }
        loop {
            let frame = match self.download.decode(&mut self.inbox)? {
                Decoded::Data(data) => Frame::data(data),
                Decoded::Trailers(fields) => Frame::trailers(fields),
                Decoded::End => return Poll::Ready(None),
                Decoded::NeedsMore => {
                    let (is_over, pipe) = ready!(self.poll_more(takes, cx))?;
                    if let Some(pipe) = pipe {
                        return Poll::Ready(Some(Ok(Piece::Pipe(pipe))));
                    }
                    if is_over {
                        self.keeps_alive = false;
                        self.download.close()?;
                    }
                    continue;
                }
            };
            return Poll::Ready(Some(Ok(Piece::Frame(frame))));
        }
    }

    /// Reads more of a body, to a pipe if that is taken and worth it. Also whether that was the end
    /// of the stream.
    fn poll_more(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<(bool, Option<Pipe>)>> {
        if takes == Takes::Pipes
            && let Decoder::Length(left) = &mut self.download
            && *left >= PIPED_BYTES_MIN
            && let Some(stream) = self.stream.tcp()
            && let Some(mut pipe) = Pipe::take()
        {
            let bytes_max = usize::try_from(*left).unwrap_or(usize::MAX);
            let count = ready!(pipe.poll_fill(stream, bytes_max, cx))?;
            *left -= count as u64;
            self.was_piped = true;
            return Poll::Ready(Ok((count == 0, (count > 0).then_some(pipe))));
        }
        let reads = match takes {
            Takes::Beginning => Reads::Heads,
            Takes::Frames | Takes::Pipes => Reads::Body,
        };
        let count = ready!(self.inbox.poll_fill(&mut self.stream, reads, cx))?;
        Poll::Ready(Ok((count == 0, None)))
    }

    /// As [`http_body::Body::is_end_stream`], of the response's body.
    pub(crate) const fn is_end_stream(&self) -> bool {
        self.download.is_done()
    }

    /// As [`http_body::Body::size_hint`], of the response's body.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.download {
            Decoder::Length(left) => SizeHint::with_exact(left),
            _ => SizeHint::new(),
        }
    }

    /// Whether request and response are both through and another request may follow.
    pub(crate) fn is_reusable(&self) -> bool {
        let is_quiet = self.inbox.is_empty() && self.outbox.is_empty() && self.upload.is_none();
        is_quiet && self.keeps_alive && self.download.is_done() && self.request.is_none()
    }

    /// Whether the replica has neither closed an idle connection nor said anything on it.
    pub(crate) fn is_fit(&mut self) -> bool {
        self.look(&mut Context::from_waker(Waker::noop())).is_ok()
    }

    /// What is left when the replica leaves HTTP, with what was read behind its head.
    pub(crate) fn into_parts(mut self) -> (Stream, Bytes) {
        let read = self.inbox.take(self.inbox.bytes().len());
        (self.stream, read)
    }

    /// Looks whether an idle connection has ended, without a system call if nothing came.
    fn look(&mut self, cx: &mut Context<'_>) -> Result<(), Cause> {
        // Also where the task has used up its turn: "not ready" must mean that nothing came.
        let (inbox, stream) = (&mut self.inbox, &mut self.stream);
        let reading = std::future::poll_fn(|cx| inbox.poll_fill(stream, Reads::Heads, cx));
        match pin!(unconstrained(reading)).poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(0)) => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
            Poll::Ready(Ok(_)) => Err(BadHead::Unasked.into()),
            Poll::Ready(Err(error)) => Err(error.into()),
        }
    }

    fn send(&mut self, head: &request::Parts, body: Body) {
        self.of_head_request = head.method == Method::HEAD;
        self.keeps_alive = false; // until the response says so
        self.download = Decoder::UntilClose;
        let mut bytes = Outbox::memory();
        let framing = request_head::encode(head, &body, &mut bytes);
        self.outbox.head(bytes);
        self.upload = (framing != Framing::Length(0)).then_some((body, framing));
    }

    /// Writes what there is of the request. Fails when the client's body does; that nothing can be
    /// written any more shows when the answer does not come.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cause>> {
        loop {
            // A head leaves together with what is there of the body, so it waits for one look.
            if self.upload.is_none() || self.outbox.is_under_way() {
                ready!(self.poll_write(cx));
            }
            let Some((body, framing)) = &mut self.upload else { return Poll::Ready(Ok(())) };
            let Poll::Ready(piece) = body.poll_piece(Takes::Frames, cx) else {
                ready!(self.poll_write(cx));
                return Poll::Pending;
            };
            let is_last = body.is_end_stream();
            let is_over = self.outbox.take(piece.transpose()?, is_last, framing)?;
            if is_over {
                self.upload = None;
            }
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        ready!(self.outbox.poll_turn(cx));
        if self.broken.is_none()
            && let Err(error) = ready!(self.outbox.poll_write(&mut self.stream, cx))
        {
            self.broken = Some(error);
        }
        if self.broken.is_some() {
            (self.upload, self.outbox) = (None, Outbox::default());
        }
        Poll::Ready(())
    }

    /// The head of the response, if all of it was read.
    fn head(&mut self) -> Result<Option<Answer>, BadHead> {
        let (used, head) =
            response_head::parse(self.inbox.bytes(), self.of_head_request, self.head_bytes_max)?;
        if used > 0 {
            self.inbox.take(used); // else it goes on to know what was searched
        }
        let Some(head) = head else { return Ok(None) };
        self.keeps_alive = head.keeps_alive && self.broken.is_none();
        self.was_piped = false; // until it is
        self.download = head.framing;
        let here = self.inbox.bytes().len() as u64;
        let whole = match self.download {
            Decoder::Length(length) if length <= here => {
                self.download = Decoder::Length(0);
                Some(self.inbox.take(length as usize))
            }
            _ => None,
        };
        Ok(Some(Answer { parts: head.parts, whole }))
    }
}
