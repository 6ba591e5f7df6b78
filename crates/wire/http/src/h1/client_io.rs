//! A client's connection, as whoever answers a request and whoever reads its body share it.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use evenkeel_runtime::accept::{Linger, Link, Phase, poll_leave};
use evenkeel_runtime::stream::Stream;
use http::StatusCode;
use http_body::{Frame, SizeHint};

use super::decoder::{BadBody, Decoded, Decoder};
use super::framing::Framing;
use super::inbox::{FILLS_MAX, Inbox, Reads};
use super::outbox::Outbox;
use crate::piece::Takes;

/// A client's connection.
pub(super) struct ClientIo {
    /// `None` once nobody serves it any more: who still holds a request's body holds no socket.
    stream: Option<Stream>,
    inbox: Inbox,
    pub(super) outbox: Outbox,
    link: Rc<Link>,
    /// What is left of the body of the request in hand.
    upload: Decoder,
    /// Whether the client waits for a word before it sends that.
    expects_continue: bool,
    /// Requests so far: whoever still holds the body of an earlier one reads nothing of a later.
    requests: u64,
    /// Whether that word is on its way, and nothing of the answer.
    owes_continue: bool,
    /// Who serves, while somebody else reads the request's body.
    watcher: Option<Waker>,
}

/// What a client does next.
pub(super) enum Next<H> {
    Request(H),
    /// It asks nothing that can be understood, and is told this.
    Refused(StatusCode),
    /// Nothing more: it has to come back elsewhere.
    Parted,
    /// Nothing more: it has left.
    End,
}

impl ClientIo {
    /// One of which so much was read already.
    pub(super) fn new(stream: Stream, read: Vec<u8>, link: Rc<Link>) -> Self {
        let (inbox, outbox) = (Inbox::from(Bytes::from(read)), Outbox::default());
        let (stream, upload) = (Some(stream), Decoder::Length(0));
        Self {
            stream,
            inbox,
            outbox,
            link,
            upload,
            expects_continue: false,
            requests: 0,
            owes_continue: false,
            watcher: None,
        }
    }

    /// Reads until `parse` finds a head, or `has_to_end` says that none is waited for.
    pub(super) fn poll_head<H>(
        &mut self,
        cx: &mut Context<'_>,
        bytes_max: usize,
        parse: impl Fn(&Bytes) -> Result<Option<(usize, H)>, StatusCode>,
        has_to_end: impl FnOnce(&Link) -> bool,
    ) -> Poll<Next<H>> {
        for _ in 0..FILLS_MAX {
            if !self.inbox.is_empty() {
                if matches!(self.link.phase(), Phase::New | Phase::Idle) {
                    self.link.enter(Phase::Reading);
                }
                let is_long = self.inbox.bytes().len() >= bytes_max;
                let is_worth_it = is_long || self.inbox.may_end_a_head();
                match is_worth_it.then(|| parse(self.inbox.bytes())).transpose() {
                    Ok(Some(Some((length, head)))) => {
                        self.inbox.take(length);
                        return Poll::Ready(Next::Request(head));
                    }
                    Ok(_) => {}
                    Err(status) => return Poll::Ready(Next::Refused(status)),
                }
            }
            match self.poll_fill(Reads::Heads, cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Pending if has_to_end(&self.link) => return Poll::Ready(Next::Parted),
                Poll::Pending => return Poll::Pending,
                _ => return Poll::Ready(Next::End),
            }
        }
        cx.waker().wake_by_ref(); // let others have their turn
        Poll::Pending
    }

    /// A request begins whose body is framed like this.
    pub(super) fn begin(&mut self, upload: Decoder, expects_continue: bool) {
        (self.upload, self.expects_continue) = (upload, expects_continue);
        self.requests += 1;
    }

    /// The answer begins: from now on it is too late to ask for the body.
    pub(super) fn answer(&mut self) {
        (self.expects_continue, self.owes_continue) = (false, false);
    }

    /// Ready when the client has left, as far as that can be known without reading on in a body.
    pub(super) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.upload.is_done() && self.inbox.is_empty() {
            match ready!(self.poll_fill(Reads::Heads, cx)) {
                Ok(1..) => {} // the next request
                _ => return Poll::Ready(()),
            }
        }
        if !self.upload.is_done() {
            self.watcher = Some(cx.waker().clone()); // who reads the body may be another task
        }
        Poll::Pending
    }

    /// What is taken of a body that is framed like this.
    pub(super) fn takes(&self, framing: &Framing) -> Takes {
        let is_plain = || self.stream.as_ref().is_some_and(|stream| stream.tcp().is_some());
        match framing {
            Framing::Length(_) if is_plain() => Takes::Pipes,
            _ => Takes::Frames,
        }
    }

    /// Writes all that is to be written.
    pub(super) fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.outbox.is_empty() && self.outbox.is_flushed() {
            return Poll::Ready(Ok(()));
        }
        let Some(stream) = &mut self.stream else { return Poll::Ready(Err(closed())) };
        ready!(self.outbox.poll_turn(cx));
        let written = self.outbox.poll_write(stream, cx);
        if self.outbox.has_moved() {
            self.link.write_blocked(false);
        }
        // Not while TLS is flushed: whether that moves cannot be seen.
        self.link.write_blocked(written.is_pending() && !self.outbox.is_empty());
        written
    }

    /// Nobody reads the request's body any more: who still holds it is told that it broke off.
    pub(super) fn abandon_body(&mut self) {
        self.requests += 1;
    }

    /// Whether nothing of the request is left, once nobody reads its body: what came of that is
    /// forgotten, of what is still in the socket at most one read.
    pub(super) fn poll_through(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if !self.is_through() {
            let _ = self.poll_fill(Reads::Heads, cx);
        }
        Poll::Ready(self.is_through())
    }

    fn is_through(&mut self) -> bool {
        while !self.upload.is_done()
            && let Ok(Decoded::Data(_) | Decoded::Trailers(_)) = self.upload.decode(&mut self.inbox)
        {
        }
        self.upload.is_done()
    }

    /// Ends the connection so that the client can read what it was told last.
    pub(super) fn poll_leave(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(())) };
        poll_leave(Pin::new(stream), &self.link, Linger::WhileSending, cx)
    }

    /// Takes the stream, with what was read and is of no request: both sides leave HTTP, or the
    /// connection ends.
    pub(super) fn take_stream(&mut self) -> Option<(Stream, Bytes)> {
        Some((self.stream.take()?, self.inbox.take(self.inbox.bytes().len())))
    }

    fn poll_fill(&mut self, reads: Reads, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Some(stream) => self.inbox.poll_fill(stream, reads, cx),
            None => Poll::Ready(Err(closed())),
        }
    }
}

fn closed() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

/// The body of a client's request.
pub(crate) struct RequestBody {
    io: Rc<RefCell<ClientIo>>,
    of: u64,
}

impl RequestBody {
    /// That of the request which has just begun.
    pub(super) fn new(io: &Rc<RefCell<ClientIo>>) -> Self {
        let of = io.borrow().requests;
        Self { io: Rc::clone(io), of }
    }

    /// As [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let broken = |bad: BadBody| io::Error::new(io::ErrorKind::InvalidData, bad);
        let io = &mut *self.io.borrow_mut();
        if io.requests != self.of {
            return Poll::Ready(Some(Err(broken(BadBody::Incomplete))));
        }
        if std::mem::take(&mut io.expects_continue) {
            io.outbox.head(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec());
            io.owes_continue = true;
        }
        if io.owes_continue {
            io.owes_continue = io.poll_write(cx).is_pending();
        }
        loop {
            let decoded = io.upload.decode(&mut io.inbox);
            if let Some(watcher) = io.watcher.take_if(|_| io.upload.is_done())
                && !watcher.will_wake(cx.waker())
            {
                watcher.wake();
            }
            match decoded.map_err(broken)? {
                Decoded::Data(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Decoded::Trailers(fields) => {
                    return Poll::Ready(Some(Ok(Frame::trailers(fields))));
                }
                Decoded::End => return Poll::Ready(None),
                Decoded::NeedsMore => {}
            }
            if ready!(io.poll_fill(Reads::Body, cx))? == 0 {
                io.upload.close().map_err(broken)?;
            }
        }
    }

    /// As [`http_body::Body::is_end_stream`].
    pub(crate) fn is_end_stream(&self) -> bool {
        let io = self.io.borrow();
        io.requests == self.of && io.upload.is_done()
    }

    /// As [`http_body::Body::size_hint`].
    pub(crate) fn size_hint(&self) -> SizeHint {
        let io = self.io.borrow();
        match io.upload {
            Decoder::Length(left) if io.requests == self.of => SizeHint::with_exact(left),
            _ => SizeHint::new(),
        }
    }
}
