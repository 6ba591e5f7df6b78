//! A response body on its way: reading it drives what it comes by, its end gives that back,
//! dropping it early gives the attempt up.

use evenkeel_settings::address::ServerAddress;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use super::body::{BodyError, End, Pace, Streaming};
use super::grpc;
use super::h2::inflow::Cause;
use super::piece::{Piece, Takes};
use super::stall::Stall;

/// What a response body comes by: a connection of its own, or a stream. Dropping it before it is
/// [complete](Arrival::complete) gives the attempt up.
pub(super) trait Arrival {
    /// The next piece, as [`http_body::Body::poll_frame`].
    fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, Cause>>>;

    /// As [`http_body::Body::is_end_stream`].
    fn is_end_stream(&self) -> bool;

    /// As [`http_body::Body::size_hint`].
    fn size_hint(&self) -> SizeHint;

    /// Whether it can be given back now.
    fn is_through(&self) -> bool;

    /// Gives it back: all of the body was read.
    fn complete(self);

    /// The replica.
    fn address(&self) -> ServerAddress;
}

/// A response body on its way, with what it comes by.
pub(super) struct ReplicaBody<A: Arrival> {
    /// `None` at the end.
    arrival: Option<A>,
    /// What came before the head was passed on.
    first: Option<Frame<Bytes>>,
    stall: Stall,
    address: ServerAddress,
    on_end: Option<Box<dyn FnOnce(End)>>,
    ended: Option<End>,
    /// How it broke, until that is told. The HTTP server ends a connection at once when it hears of
    /// it: what came before, such as a head that has been counted, must have left by then.
    broke: Option<BodyError>,
}

impl<A: Arrival> ReplicaBody<A> {
    pub(super) fn new(arrival: A, stall: Stall) -> Self {
        let (address, arrival) = (arrival.address(), Some(arrival));
        let (first, on_end, ended, broke) = (None, None, None, None);
        Self { arrival, first, stall, address, on_end, ended, broke }
    }

    /// Waits until some of the body is here, without a time limit of its own.
    ///
    /// # Errors
    /// When the replica breaks off before.
    pub(super) async fn begin(&mut self) -> Result<(), Cause> {
        let first = std::future::poll_fn(|cx| self.poll_arrival(Takes::Beginning, cx)).await;
        self.first = first.transpose()?.map(Piece::into_frame);
        Ok(())
    }

    /// All of the body, if it is here; what it came by is given back then.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        let arrival = self.arrival.as_ref()?;
        let is_whole = arrival.is_end_stream() && arrival.is_through();
        let piece = self.first.take_if(|piece| is_whole && piece.is_data())?;
        self.end(End::Complete);
        piece.into_data().ok()
    }

    fn poll_arrival(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, Cause>>> {
        match &mut self.arrival {
            Some(arrival) => arrival.poll_piece(takes, cx),
            None => Poll::Ready(None),
        }
    }

    /// The next piece; or, when none came for too long, that.
    fn poll_next(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Piece::Frame(first))));
        }
        let address = self.address;
        match self.poll_arrival(takes, cx) {
            Poll::Ready(piece) => {
                let failed = |source| BodyError::Replica { address, source };
                Poll::Ready(piece.map(|piece| piece.map_err(failed)))
            }
            Poll::Pending => {
                std::task::ready!(self.stall.poll_wait(cx));
                let limits = Pace(self.stall.limits());
                Poll::Ready(Some(Err(BodyError::Stalled { address, limits })))
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.arrival.as_ref().is_none_or(Arrival::is_end_stream)
    }

    /// The first end counts; whatever happens to the body later changes nothing.
    fn end(&mut self, end: End) {
        self.ended.get_or_insert(end);
        if let (Some(arrival), End::Complete | End::GrpcStatus(_)) = (self.arrival.take(), end) {
            arrival.complete();
        }
        if let Some(action) = self.on_end.take() {
            action(end);
        }
    }
}

/// How a body ends that has these trailers.
fn end_of(trailers: &HeaderMap) -> End {
    match grpc::status_in_trailers(trailers) {
        None | Some(0) => End::Complete,
        Some(status) => End::GrpcStatus(status),
    }
}

impl<A: Arrival> Streaming for ReplicaBody<A> {
    fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(error) = self.broke.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match std::task::ready!(self.poll_next(takes, cx)) {
            Some(Ok(piece)) => {
                self.stall.moved(piece.len().max(1));
                // A reader that knows the length does not ask again after the last byte.
                if let Some(trailers) = piece.trailers() {
                    self.end(end_of(trailers));
                } else if self.has_ended() {
                    self.end(End::Complete);
                }
                Poll::Ready(Some(Ok(piece)))
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
        self.first.is_none() && self.broke.is_none() && self.has_ended()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.arrival.as_ref().map_or(SizeHint::with_exact(0), Arrival::size_hint);
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

impl<A: Arrival> Drop for ReplicaBody<A> {
    fn drop(&mut self) {
        self.end(End::Abandoned);
    }
}
