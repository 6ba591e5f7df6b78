//! A response body on its way: reading it drives the connection, its end gives the connection back,
//! dropping it early closes the connection.

use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use super::body::{BodyError, End, Streaming};
use super::lease::Lease;

/// A response body on its way, with the connection it comes from.
pub(super) struct ReplicaBody {
    incoming: Incoming,
    lease: Option<Lease>,
    address: SocketAddr,
    on_end: Option<Box<dyn FnOnce(End)>>,
    ended: Option<End>,
}

impl ReplicaBody {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> ReplicaBody {
        let address = lease.address();
        ReplicaBody { incoming, lease: Some(lease), address, on_end: None, ended: None }
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
        let incoming = Pin::new(&mut self.incoming);
        let frame = match &mut self.lease {
            Some(lease) => lease.drive(cx, |cx| http_body::Body::poll_frame(incoming, cx)),
            None => http_body::Body::poll_frame(incoming, cx),
        };
        match std::task::ready!(frame) {
            Some(Ok(frame)) => {
                // A reader that knows the length does not ask again after the last byte.
                if frame.is_trailers() || http_body::Body::is_end_stream(&self.incoming) {
                    self.end(End::Complete);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.end(End::Broken);
                let source = error.into();
                Poll::Ready(Some(Err(BodyError::Replica { address: self.address, source })))
            }
            None => {
                self.end(End::Complete);
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        http_body::Body::is_end_stream(&self.incoming)
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.incoming)
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
