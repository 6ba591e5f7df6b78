//! A connection to a replica, by either engine: one request, one response, and again.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use evenkeel_runtime::limits::{Engine, UpstreamLimits};
use evenkeel_runtime::stream::Stream;
use http_body::SizeHint;
use hyper::client::conn::http1;

use super::answer::{Answer, Failure};
use super::body::Body;
use super::h1::client::Connection as NativeConnection;
use super::h2::inflow::Cause;
use super::hyper_client::HyperConnection;
use super::message::{Request, request};
use super::piece::{Piece, Takes};

/// A connection to a replica.
pub(super) enum Connection {
    Native(Box<NativeConnection>),
    Hyper(Box<HyperConnection>),
}

/// The same of each engine.
macro_rules! on_each {
    ($self:ident, $connection:ident => $then:expr) => {
        match $self {
            Self::Native($connection) => $then,
            Self::Hyper($connection) => $then,
        }
    };
}

impl Connection {
    /// Speaks HTTP/1.1 on this stream from now on.
    pub(super) async fn open(
        stream: Stream,
        limits: &UpstreamLimits,
        builder: &http1::Builder,
    ) -> Result<Self, Cause> {
        Ok(match limits.engine {
            Engine::Native => {
                Self::Native(Box::new(NativeConnection::new(stream, limits.head_bytes_max)))
            }
            Engine::Hyper => Self::Hyper(Box::new(HyperConnection::open(stream, builder).await?)),
        })
    }

    /// Takes a request, which is sent when the answer is first waited for.
    #[inline]
    pub(super) fn begin(&mut self, request: Request<Body>) {
        on_each!(self, connection => connection.begin(request));
    }

    /// Takes a copy of a request whose head stays with the caller. It is sent when the answer is
    /// first waited for. The body comes back if the replica has ended the connection.
    #[inline]
    pub(super) fn begin_copy(&mut self, head: &request::Parts, body: Body) -> Result<(), Body> {
        match self {
            Self::Native(connection) => connection.begin_copy(head, body),
            Self::Hyper(connection) => {
                connection.begin(Request::from_parts(head.clone(), body));
                Ok(())
            }
        }
    }

    /// Waits for the head of the response.
    #[inline]
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answer, Failure>> {
        on_each!(self, connection => connection.poll_answer(cx))
    }

    /// The next piece of the response's body.
    #[inline]
    pub(super) fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, Cause>>> {
        match self {
            Self::Native(connection) => connection.poll_piece(takes, cx),
            Self::Hyper(connection) => {
                let frame = ready!(connection.poll_frame(cx));
                Poll::Ready(frame.map(|frame| Ok(Piece::Frame(frame?))))
            }
        }
    }

    /// As [`http_body::Body::is_end_stream`], of the response's body.
    pub(super) fn is_end_stream(&self) -> bool {
        on_each!(self, connection => connection.is_end_stream())
    }

    /// As [`http_body::Body::size_hint`], of the response's body.
    pub(super) fn size_hint(&self) -> SizeHint {
        on_each!(self, connection => connection.size_hint())
    }

    /// Whether request and response are both through and another request may follow.
    pub(super) fn is_reusable(&self) -> bool {
        on_each!(self, connection => connection.is_reusable())
    }

    /// Whether the replica has neither closed an idle connection nor said anything on it.
    pub(super) fn is_fit(&mut self) -> bool {
        on_each!(self, connection => connection.is_fit())
    }

    /// It is idle from now on: it wakes nobody, and holds no memory that it can do without.
    pub(super) fn rest(&mut self) {
        if let Self::Hyper(connection) = self {
            connection.rest();
        }
    }

    /// The replica has answered that it leaves HTTP: the connection as it is then, and what was
    /// read of it.
    pub(super) async fn upgrade(self) -> Option<(Stream, Bytes)> {
        match self {
            Self::Native(connection) => Some(connection.into_parts()),
            Self::Hyper(connection) => connection.upgrade().await,
        }
    }
}
