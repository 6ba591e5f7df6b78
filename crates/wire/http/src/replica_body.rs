//! A response body on its way: reading it drives the connection, its end gives the connection back,
//! dropping it early closes the connection.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::body::{BodyError, End, Pace, Streaming};
use super::lease::Lease;
use super::stall::Stall;

/// A response body on its way, with the connection it comes from.
pub(super) struct ReplicaBody {
    incoming: Incoming,
    /// What came before the head was passed on.
    first: Option<Frame<Bytes>>,
    stall: Stall,
    lease: Option<Lease>,
    address: SocketAddr,
    on_end: Option<Box<dyn FnOnce(End)>>,
    ended: Option<End>,
    /// How it broke, until that is told. The HTTP server ends a connection at once when it hears of
    /// it: what came before, such as a head that has been counted, must have left by then.
    broke: Option<BodyError>,
}

impl ReplicaBody {
    pub(super) fn new(incoming: Incoming, lease: Lease, stall: Stall) -> ReplicaBody {
        let (address, lease) = (lease.address(), Some(lease));
        let (first, on_end, ended, broke) = (None, None, None, None);
        ReplicaBody { incoming, first, stall, lease, address, on_end, ended, broke }
    }

    /// Waits until some of the body is here, without a time limit of its own.
    ///
    /// # Errors
    /// When the replica breaks off before.
    pub(super) async fn begin(&mut self) -> Result<(), hyper::Error> {
        let first = std::future::poll_fn(|cx| self.poll_incoming(cx)).await;
        self.first = first.transpose()?;
        Ok(())
    }

    /// All of the body, if it is here; the connection is given back then.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        let is_whole = http_body::Body::is_end_stream(&self.incoming);
        let is_through = self.lease.as_ref().is_some_and(Lease::is_reusable);
        let piece = self.first.take_if(|piece| is_whole && is_through && piece.is_data())?;
        self.end(End::Complete);
        piece.into_data().ok()
    }

    fn poll_incoming(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let incoming = Pin::new(&mut self.incoming);
        match &mut self.lease {
            Some(lease) => lease.drive(cx, |cx| http_body::Body::poll_frame(incoming, cx)),
            None => http_body::Body::poll_frame(incoming, cx),
        }
    }

    /// The next piece; or, when none came for too long, that.
    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(first)));
        }
        let address = self.address;
        match self.poll_incoming(cx) {
            Poll::Ready(piece) => {
                let failed =
                    |error: hyper::Error| BodyError::Replica { address, source: error.into() };
                Poll::Ready(piece.map(|piece| piece.map_err(failed)))
            }
            Poll::Pending => {
                std::task::ready!(self.stall.poll_wait(cx));
                let limits = Pace(self.stall.limits());
                Poll::Ready(Some(Err(BodyError::Stalled { address, limits })))
            }
        }
    }

    /// The first end counts; whatever happens to the body later changes nothing.
    fn end(&mut self, end: End) {
        self.ended.get_or_insert(end);
        if let (Some(lease), End::Complete) = (self.lease.take(), end) {
            lease.give_back();
        }
        if let Some(action) = self.on_end.take() {
            action(end);
        }
    }
}

impl Streaming for ReplicaBody {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(error) = self.broke.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match std::task::ready!(self.poll_piece(cx)) {
            Some(Ok(frame)) => {
                self.stall.moved(frame.data_ref().map_or(1, Bytes::len));
                // A reader that knows the length does not ask again after the last byte.
                if frame.is_trailers() || http_body::Body::is_end_stream(&self.incoming) {
                    self.end(End::Complete);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.end(End::Broken);
                // At an error hyper drops what it has not written, perhaps the head as well; while
                // a body waits it writes. So the client has what came, and sees that it broke off.
                self.broke = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => {
                self.end(End::Complete);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && http_body::Body::is_end_stream(&self.incoming)
    }

    fn size_hint(&self) -> SizeHint {
        let rest = http_body::Body::size_hint(&self.incoming);
        let first = self.first.as_ref().and_then(|first| first.data_ref());
        match (rest.exact(), first) {
            (Some(rest), Some(first)) => SizeHint::with_exact(rest + first.len() as u64),
            _ => rest, // only of a body of known length some comes before
        }
    }

    fn set_on_end(&mut self, action: Box<dyn FnOnce(End)>) {
        if let Some(end) = self.ended {
            return action(end);
        }
        if let Some(replaced) = self.on_end.replace(action) {
            replaced(End::Abandoned);
        }
    }
}

impl Drop for ReplicaBody {
    fn drop(&mut self) {
        self.end(End::Abandoned);
    }
}
