//! The body of a stream, as it comes in.

use std::error::Error;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::RecvStream;
use http::header::CONTENT_LENGTH;
use http_body::{Frame, SizeHint};

use crate::fields::{FieldValue, Fields};
use crate::h1::client_io::RequestBody;

/// What was wrong with a body.
pub(crate) type Cause = Box<dyn Error + Send + Sync>;

/// The body of a stream. What is handed on makes room for as much.
pub(crate) struct Inflow {
    stream: RecvStream,
    /// What is left of the length that was announced; that it is kept to, `h2` has checked.
    left: Option<u64>,
    is_in_trailers: bool,
}

impl Inflow {
    /// The body that belongs to this head.
    pub(crate) fn new(stream: RecvStream, headers: &Fields) -> Self {
        let length = headers.get(CONTENT_LENGTH).and_then(FieldValue::to_str);
        let left = length.and_then(|value| value.parse().ok());
        let left = if stream.is_end_stream() { Some(0) } else { left };
        Self { stream, left, is_in_trailers: false }
    }

    /// As [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        while !self.is_in_trailers {
            match ready!(self.stream.poll_data(cx)) {
                Some(Ok(data)) => {
                    let length = data.len();
                    let _ = self.stream.flow_control().release_capacity(length); // or it is over
                    self.left = self.left.map(|left| left.saturating_sub(length as u64));
                    if length > 0 || self.stream.is_end_stream() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                // Also with NO_ERROR: after the end of the stream `h2` does not tell of it, and
                // before that the body is not whole.
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => self.is_in_trailers = true,
            }
        }
        Poll::Ready(match ready!(self.stream.poll_trailers(cx)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => Some(Err(error)),
        })
    }

    /// As [`http_body::Body::is_end_stream`].
    pub(crate) fn is_end_stream(&self) -> bool {
        self.stream.is_end_stream()
    }

    /// As [`http_body::Body::size_hint`].
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::new, SizeHint::with_exact)
    }

    /// Reads and forgets up to so many bytes; whether that was all.
    pub(crate) async fn discard(&mut self, bytes_max: usize) -> bool {
        let mut bytes = 0;
        while let Some(frame) = std::future::poll_fn(|cx| self.poll_frame(cx)).await {
            let Ok(frame) = frame else { return true };
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > bytes_max {
                return false;
            }
        }
        true
    }
}

/// What a client's body comes in by.
pub(crate) enum Incoming {
    /// HTTP/1.1, by hyper
    Message(hyper::body::Incoming),
    /// HTTP/1.1
    Bytes(RequestBody),
    /// HTTP/2
    Stream(Inflow),
}

impl From<hyper::body::Incoming> for Incoming {
    fn from(incoming: hyper::body::Incoming) -> Self {
        Self::Message(incoming)
    }
}

impl Incoming {
    /// As [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cause>>> {
        match self {
            Self::Message(incoming) => {
                let frame = ready!(http_body::Body::poll_frame(std::pin::Pin::new(incoming), cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Bytes(body) => {
                let frame = ready!(body.poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Self::Stream(inflow) => {
                let frame = ready!(inflow.poll_frame(cx));
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    /// As [`http_body::Body::is_end_stream`].
    pub(crate) fn is_end_stream(&self) -> bool {
        match self {
            Self::Message(incoming) => http_body::Body::is_end_stream(incoming),
            Self::Bytes(body) => body.is_end_stream(),
            Self::Stream(inflow) => inflow.is_end_stream(),
        }
    }

    /// As [`http_body::Body::size_hint`].
    pub(crate) fn size_hint(&self) -> SizeHint {
        match self {
            Self::Message(incoming) => http_body::Body::size_hint(incoming),
            Self::Bytes(body) => body.size_hint(),
            Self::Stream(inflow) => inflow.size_hint(),
        }
    }
}
