//! A client's connection: a request, its answer, and again.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use evenkeel_runtime::accept::Link;
use evenkeel_runtime::limits::ServerLimits;
use evenkeel_runtime::stream::Stream;
use http::{Method, StatusCode, Version};
use http_body::Body as _;

use super::client_io::{ClientIo, Next, RequestBody};
use super::framing::Framing;
use super::outbox::Outbox;
use super::request_head::{self, Head};
use super::response_head::{self, Asked};
use crate::body::Body;
use crate::h2::inflow::{Cause, Incoming};
use crate::head::Refusal;
use crate::message::{Request, Response};
use crate::parting::{Parting, Serving, parting};
use crate::tunnel::Tunnel;

/// A connection, as whoever answers and whoever reads the request's body share it.
type Shared = Rc<RefCell<ClientIo>>;

/// Serves a client, of which so much was read already, until it or the link ends that.
pub(crate) async fn serve<F: Future<Output = Response<Body>>>(
    (stream, read): (Stream, Vec<u8>),
    link: &Rc<Link>,
    limits: impl Fn() -> ServerLimits,
    answer: impl Fn(Request<Body>) -> F,
) {
    let head_bytes_max = limits().head_bytes_max;
    let parse = |bytes: &_| request_head::parse(bytes, head_bytes_max);
    let has_to_end = |link: &Link| !matches!(parting(link.order(), link.phase()), Parting::None);
    let served = Served(Rc::new(RefCell::new(ClientIo::new(stream, read, Rc::clone(link)))));
    let io = &served.0;
    loop {
        let next =
            poll_fn(|cx| io.borrow_mut().poll_head(cx, head_bytes_max, parse, has_to_end)).await;
        let serving = Serving::begin(link);
        let then = match next {
            Next::Request(head) => exchange(io, link, head, &limits, &answer).await,
            Next::Refused(status) => refuse(io, status).await,
            Next::Parted => Then::Leave,
            Next::End => Then::End,
        };
        match then {
            Then::Next => drop(serving),
            Then::Leave => {
                drop(serving);
                let _ = poll_fn(|cx| io.borrow_mut().poll_leave(cx)).await;
                return;
            }
            Then::Tunnel(tunnel) => {
                let parts = io.borrow_mut().take_stream();
                let (stream, read) = parts.expect("it is there while it is served");
                return Box::pin(tunnel.run(stream, read)).await; // it is rare and large
            }
            Then::End => return,
        }
    }
}

/// A connection that is served. Its stream ends with that, whoever still holds a request's body.
struct Served(Shared);

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.0.borrow_mut().take_stream());
    }
}

/// What follows an answer.
enum Then {
    /// The next request.
    Next,
    /// The end, once the client has read what it was told.
    Leave,
    /// Another protocol.
    Tunnel(Box<Tunnel>),
    /// The end, now.
    End,
}

async fn exchange<F: Future<Output = Response<Body>>>(
    io: &Shared,
    link: &Link,
    head: Head,
    limits: impl Fn() -> ServerLimits,
    answer: impl Fn(Request<Body>) -> F,
) -> Then {
    let mut asked = Asked {
        is_head: head.parts.method == Method::HEAD,
        is_new: head.parts.version == Version::HTTP_11,
        takes_trailers: head.takes_trailers,
        keeps_alive: head.keeps_alive,
    };
    let wants_upgrade = head.wants_upgrade;
    io.borrow_mut().begin(head.framing, head.expects_continue);
    let incoming = Incoming::Bytes(RequestBody::new(io));
    let bytes_max = limits().body_bytes_max;
    let mut response = if incoming.size_hint().lower() > bytes_max {
        drop(incoming); // nobody reads it
        Refusal::body_too_large(bytes_max).into_response()
    } else {
        let body = Body::from_client(incoming, bytes_max);
        // Here, not in a function: as an argument it would have its place twice, and be moved.
        let mut handling = pin!(answer(Request::from_parts(head.parts, body)));
        let handled = poll_fn(|cx| match handling.as_mut().poll(cx) {
            Poll::Ready(response) => Poll::Ready(Some(response)),
            // A client that leaves before ends that.
            Poll::Pending => io.borrow_mut().poll_gone(cx).map(|()| None),
        });
        match handled.await {
            Some(response) => response,
            None => return Then::End,
        }
    };
    let tunnel = response.body_mut().take_tunnel();
    let is_switched = wants_upgrade && response.status() == StatusCode::SWITCHING_PROTOCOLS;
    // Whoever has asked for another protocol may speak it by now: it is not HTTP.
    asked.keeps_alive &= link.takes_more() && !wants_upgrade;
    if Rc::strong_count(io) == 1 || response.body().is_complete() {
        // Nobody reads the rest of the request: if it is not here, the next one cannot be found.
        asked.keeps_alive &= pass_over_body(io).await;
    }
    if let Err(error) = send(io, response, &mut asked).await {
        tracing::debug!(%error, "a client's answer broke off");
        return Then::End;
    }
    match tunnel {
        Some(tunnel) if is_switched => Then::Tunnel(tunnel),
        _ if asked.keeps_alive && pass_over_body(io).await => Then::Next,
        _ => Then::Leave,
    }
}

/// Forgets what nobody has read of a request; whether that is all of it.
async fn pass_over_body(io: &Shared) -> bool {
    io.borrow_mut().abandon_body();
    poll_fn(|cx| io.borrow_mut().poll_through(cx)).await
}

/// Tells a client that what it sent is no request.
async fn refuse(io: &Shared, status: StatusCode) -> Then {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    let (is_head, takes_trailers) = (false, false);
    let mut asked = Asked { is_head, is_new: true, takes_trailers, keeps_alive: false };
    match send(io, response, &mut asked).await {
        Ok(()) => Then::Leave,
        Err(_) => Then::End,
    }
}

/// Writes the answer, with what that means for the connection.
fn send<'a>(
    io: &'a Shared,
    response: Response<Body>,
    asked: &mut Asked,
) -> impl Future<Output = Result<(), Cause>> + use<'a> {
    let (head, body) = response.into_parts();
    let mut bytes = Outbox::memory();
    let framing = response_head::encode(&head, &body, asked, &mut bytes);
    let (mut head, mut sending) = (Some(bytes), framing.map(|framing| (body, framing)));
    poll_fn(move |cx| {
        if head.is_some() {
            let io = &mut *io.borrow_mut();
            ready!(io.poll_write(cx))?; // a word for the request's body
            io.answer();
            head.take().into_iter().for_each(|head| io.outbox.head(head));
        }
        poll_send(io, &mut sending, cx)
    })
}

/// Writes what there is of an answer's body. What brings that may read the request's body
/// meanwhile, so the connection is not held then.
fn poll_send(
    io: &Shared,
    sending: &mut Option<(Body, Framing)>,
    cx: &mut Context<'_>,
) -> Poll<Result<(), Cause>> {
    loop {
        // A head leaves together with what is there of the body, so it waits for one look.
        if sending.is_none() || io.borrow().outbox.is_under_way() {
            ready!(io.borrow_mut().poll_write(cx))?;
        }
        let Some((body, framing)) = sending else { return Poll::Ready(Ok(())) };
        let takes = io.borrow().takes(framing);
        let Poll::Ready(piece) = body.poll_piece(takes, cx) else {
            let io = &mut *io.borrow_mut();
            ready!(io.poll_write(cx))?;
            ready!(io.poll_gone(cx));
            return Poll::Ready(Err("the client has left".into()));
        };
        let is_last = body.is_end_stream();
        let is_over = io.borrow_mut().outbox.take(piece.transpose()?, is_last, framing)?;
        if is_over {
            *sending = None;
        }
    }
}
