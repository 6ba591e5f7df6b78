//! A connection to a replica by hyper, which the engine of our own is measured against.

use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use evenkeel_runtime::stream::Stream;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};

use super::answer::{Answer, Failure};
use super::body::{Body, BodyError};
use super::h2::inflow::Cause;
use super::head;
use super::message::Request;
use super::relay::Relay;
use super::send_error::find;
use super::wire::Wire;

type Sent =
    dyn Future<Output = Result<http::Response<Incoming>, TrySendError<http::Request<Body>>>>;

/// A connection to a replica.
pub(super) struct HyperConnection {
    sender: http1::SendRequest<Body>,
    /// `None` once it has closed.
    driver: Option<http1::Connection<Wire<Stream>, Body>>,
    relay: Relay,
    sent: Option<Pin<Box<Sent>>>,
    incoming: Option<Incoming>,
    /// Whether it may leave HTTP, and what is left when it has.
    may_upgrade: bool,
    upgraded: Option<http1::Parts<Wire<Stream>>>,
}

impl HyperConnection {
    pub(super) async fn open(stream: Stream, builder: &http1::Builder) -> hyper::Result<Self> {
        let (sender, driver) = builder.handshake(Wire::new(stream)).await?;
        let (driver, relay) = (Some(driver), Relay::new());
        let (sent, incoming, may_upgrade, upgraded) = (None, None, false, None);
        Ok(Self { sender, driver, relay, sent, incoming, may_upgrade, upgraded })
    }

    pub(super) fn begin(&mut self, request: Request<Body>) {
        self.may_upgrade = head::wants_upgrade(&request);
        self.sent = Some(Box::pin(self.sender.try_send_request(request.into())));
    }

    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Failure>> {
        let mut sent = self.sent.take().expect("a request was sent");
        let Poll::Ready(answered) = self.drive(cx, |cx| sent.as_mut().poll(cx)) else {
            self.sent = Some(sent);
            return Poll::Pending;
        };
        drop(sent);
        let (parts, incoming) = match answered {
            Ok(response) => {
                let (parts, incoming) = response.into_parts();
                (Box::new(parts.into()), incoming)
            }
            Err(error) => return Poll::Ready(Err(failure(error))),
        };
        let length = http_body::Body::size_hint(&incoming).exact();
        let Some(length) = length.filter(|_| self.is_reusable()) else {
            self.incoming = Some(incoming);
            return Poll::Ready(Ok(Answer { parts, whole: None }));
        };
        // Half an answer would be worse than none, though hyper says that all was read.
        let incomplete = || Failure::Malformed("its body is incomplete".into());
        let whole = arrived(incoming, length).ok_or_else(incomplete)?;
        Poll::Ready(Ok(Answer { parts, whole: Some(whole) }))
    }

    pub(super) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        let Some(mut incoming) = self.incoming.take() else { return Poll::Ready(None) };
        let frame = self.drive(cx, |cx| http_body::Body::poll_frame(Pin::new(&mut incoming), cx));
        self.incoming = Some(incoming);
        Poll::Ready(ready!(frame).map(|frame| frame.map_err(Into::into)))
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let incoming = self.incoming.as_ref();
        incoming.map_or(SizeHint::with_exact(0), http_body::Body::size_hint)
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.driver.is_some() && self.sender.is_ready()
    }

    pub(super) fn is_fit(&mut self) -> bool {
        let _ = self.drive(&Context::from_waker(Waker::noop()), |_| Poll::Ready(()));
        self.is_reusable()
    }

    pub(super) fn rest(&mut self) {
        self.relay.rest();
        self.incoming = None;
    }

    pub(super) async fn upgrade(mut self) -> Option<(Stream, Bytes)> {
        std::future::poll_fn(|cx| {
            let _ = self.drive(cx, |_| Poll::<()>::Pending);
            match self.upgraded.take() {
                None if self.driver.is_some() => Poll::Pending,
                ended => Poll::Ready(ended),
            }
        })
        .await
        .map(|parts| (parts.io.into_stream(), parts.read_buf))
    }

    /// Lets the connection read and write as far as it can, then looks with `poll` at what came
    /// of it.
    fn drive<T>(
        &mut self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Self { driver, relay, may_upgrade, upgraded, .. } = self;
        relay.poll(cx, |cx| {
            if driver.as_mut().is_some_and(|driver| Pin::new(driver).poll(cx).is_ready()) {
                let ended = driver.take(); // dropping it hands an unsent request back
                *upgraded = ended.filter(|_| *may_upgrade).map(http1::Connection::into_parts);
            }
            poll(cx)
        })
    }
}

fn failure(mut error: TrySendError<http::Request<Body>>) -> Failure {
    let request = error.take_message();
    let error = error.into_error();
    match request {
        Some(request) => Failure::Unsent(Box::new(request.into()), error.into()),
        None if find::<BodyError>(&error).is_some() => Failure::RequestBody(error.into()),
        None if error.is_parse() => Failure::Malformed(error.into()),
        None => Failure::Reset(error.into()),
    }
}

/// The body of a response that is through: hyper holds it in one piece.
fn arrived(mut incoming: Incoming, length_bytes: u64) -> Option<Bytes> {
    if length_bytes == 0 {
        return Some(Bytes::new());
    }
    let cx = &mut Context::from_waker(Waker::noop());
    match http_body::Body::poll_frame(Pin::new(&mut incoming), cx) {
        Poll::Ready(Some(Ok(frame))) => {
            frame.into_data().ok().filter(|data| data.len() as u64 == length_bytes)
        }
        _ => None,
    }
}
