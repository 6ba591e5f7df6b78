//! A body on its way out in a stream, piece by piece as the peer makes room.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body as _;
use tokio::time::{Instant, Sleep};

use crate::body::{Body, BodyError};

/// What is kept of a request's body for another try, in bytes.
const KEPT_MAX: usize = 64 * 1024;

/// Why a body did not come to its end.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The peer ended the stream: it wants no more.
    Reset(Reason),
    /// The connection is gone.
    Lost(h2::Error),
    /// It did not come on.
    Body(BodyError),
    /// The peer made no room for too long.
    Stalled,
}

/// A body on its way out.
pub(crate) struct Outflow {
    body: Body,
    stream: SendStream<Bytes>,
    /// What the peer has no room for yet. What it has room for goes to the connection, so that at
    /// the end of a body no more is left than what can be written.
    piece: Bytes,
    /// How long the peer may make no room.
    patience: Option<Duration>,
    waited: Option<Pin<Box<Sleep>>>,
    is_waiting: bool,
    is_done: bool,
    kept: Option<Kept>,
}

/// What was sent already, for another try.
#[derive(Default)]
struct Kept {
    pieces: VecDeque<Bytes>,
    bytes: usize,
}

impl Outflow {
    /// Sends this body.
    pub(crate) fn new(body: Body, stream: SendStream<Bytes>, patience: Option<Duration>) -> Self {
        let (piece, waited, kept) = (Bytes::new(), None, None);
        Self { body, stream, piece, patience, waited, is_waiting: false, is_done: false, kept }
    }

    /// The same, with what is sent kept for another try.
    pub(crate) fn keeping(body: Body, stream: SendStream<Bytes>) -> Self {
        Self { kept: Some(Kept::default()), ..Self::new(body, stream, None) }
    }

    /// Whether all of it is with the connection.
    pub(crate) fn is_done(&self) -> bool {
        self.is_done
    }

    /// Nothing has to be sent again any more.
    pub(crate) fn settle(&mut self) {
        self.kept = None;
    }

    /// The body once more, if all that was sent of it was kept.
    pub(crate) fn into_body(self) -> Option<Body> {
        self.kept.map(|kept| Body::resumed(kept.pieces, self.body))
    }

    /// Ends the stream in the middle.
    pub(crate) fn reset(&mut self, reason: Reason) {
        self.stream.send_reset(reason);
    }

    /// Sends all of it. `sent` is called for every piece.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        mut sent: impl FnMut(),
    ) -> Poll<Result<(), Broken>> {
        // Nothing is read from the peer meanwhile, so that once is enough.
        if let Poll::Ready(reset) = self.stream.poll_reset(cx) {
            return Poll::Ready(Err(reset.map_or_else(Broken::Lost, Broken::Reset)));
        }
        while !self.is_done {
            // What is in memory already need not wait there for room.
            let is_at_hand = self.piece.is_empty() && self.body.is_complete();
            let room = if is_at_hand { 0 } else { ready!(self.poll_room(cx))? };
            if !self.piece.is_empty() {
                self.send(room)?;
                sent();
                continue;
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                Some(Err(error)) => return Poll::Ready(Err(Broken::Body(error))),
                None => {
                    self.is_done = true;
                    self.stream.send_data(Bytes::new(), true).map_err(Broken::Lost)?;
                    break;
                }
            };
            match frame.into_data() {
                Ok(data) => {
                    self.kept.take_if(|kept| !kept.keep(&data));
                    self.piece = data;
                    if self.piece.is_empty() && self.body.is_end_stream() {
                        self.send(0)?;
                    }
                    continue;
                }
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    self.is_done = true;
                    self.kept = None;
                    self.stream.send_trailers(trailers).map_err(Broken::Lost)?;
                }
            }
            sent();
        }
        Poll::Ready(Ok(()))
    }

    fn send(&mut self, room: usize) -> Result<(), Broken> {
        let fits = room.min(self.piece.len());
        let data = self.piece.split_to(fits);
        self.is_done = self.piece.is_empty() && self.body.is_end_stream();
        self.stream.send_data(data, self.is_done).map_err(Broken::Lost)
    }

    /// Waits until the peer takes something more, and how much: so long nothing is read for it.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<Result<usize, Broken>> {
        self.stream.reserve_capacity(self.piece.len().max(1));
        loop {
            let room = self.stream.capacity();
            if room > 0 {
                self.is_waiting = false;
                return Poll::Ready(Ok(room));
            }
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Broken::Lost(error))),
                Poll::Ready(None) => return Poll::Ready(Err(Broken::Reset(Reason::CANCEL))),
                Poll::Pending => return self.poll_patience(cx),
            }
        }
    }

    fn poll_patience<T>(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Broken>> {
        let Some(patience) = self.patience else { return Poll::Pending };
        let until = Instant::now() + patience;
        let waited = self.waited.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if !std::mem::replace(&mut self.is_waiting, true) {
            waited.as_mut().reset(until);
        }
        ready!(waited.as_mut().poll(cx));
        Poll::Ready(Err(Broken::Stalled))
    }
}

impl Kept {
    /// False when that is too much.
    fn keep(&mut self, data: &Bytes) -> bool {
        self.bytes += data.len();
        self.pieces.push_back(data.clone());
        self.bytes <= KEPT_MAX && self.pieces.len() <= KEPT_MAX / 64
    }
}
