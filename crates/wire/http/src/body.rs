//! One body type for requests and responses, without a box on the common path.
//!
//! A body that has arrived whole with its head is plain bytes ([`Body::full`]) and its upstream
//! connection is already back in the pool. Only a body still on its way carries a box
//! (`replica_body.rs`), with the upstream connection inside.

use evenkeel_settings::address::ServerAddress;
use std::cell::Cell;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use evenkeel_runtime::limits::BodyLimits;
use http_body::{Frame, SizeHint};

use super::h2::inflow::Incoming;
use super::piece::{Piece, Takes};
use super::tunnel::Tunnel;

/// A message body, in either direction.
pub struct Body(Kind);

enum Kind {
    Empty,
    Full(Bytes),
    Client {
        incoming: Incoming,
        bytes_left: u64,
        bytes_max: u64,
        upload: Upload,
    },
    Resumed(Box<Resumed>),
    Replica(Box<dyn Streaming>),
    /// Of a 101: what follows it.
    Tunnel(Box<Tunnel>),
}

/// A client's body of which some was sent in vain.
struct Resumed {
    pieces: VecDeque<Bytes>,
    rest: Body,
}

/// A response body on its way from a replica. Dropping it cancels the attempt.
pub(super) trait Streaming {
    /// The next piece, as [`http_body::Body::poll_frame`].
    fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>>;

    /// As [`http_body::Body::is_end_stream`].
    fn is_end_stream(&self) -> bool;

    /// As [`http_body::Body::size_hint`].
    fn size_hint(&self) -> SizeHint;

    /// Takes what is to be done at the end; at once when it is over already.
    fn set_on_end(&mut self, action: Box<dyn FnOnce(End)>);
}

/// What a client's body waits for, wherever the body is meanwhile; see [`Body::upload`].
#[derive(Debug, Clone, Default)]
pub struct Upload(Rc<Progress>);

#[derive(Debug, Default)]
struct Progress {
    state: Cell<UploadState>,
    bytes: Cell<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum UploadState {
    /// It is the replica's turn to take what has come.
    #[default]
    Passing,
    WaitsForClient,
    Through,
    Broken,
}

impl Upload {
    /// Whether all that came from the client was passed on, and more is to come. False when the
    /// replica is the one that does not take it.
    pub fn waits_for_client(&self) -> bool {
        self.0.state.get() == UploadState::WaitsForClient
    }

    /// Whether the client broke off, or sent more than it may. The connection to the replica ends
    /// with it, in the middle of an answer that has begun.
    pub fn is_broken(&self) -> bool {
        self.0.state.get() == UploadState::Broken
    }

    /// Whether all of it came.
    pub(super) fn is_through(&self) -> bool {
        self.0.state.get() == UploadState::Through
    }

    /// The client does not go on.
    pub(super) fn break_off(&self) {
        self.0.state.set(UploadState::Broken);
    }

    /// So many bytes have come from the client.
    pub(super) fn note(&self, bytes: u64) {
        self.0.bytes.set(bytes);
    }

    /// Bytes that came from the client so far.
    pub(super) fn bytes(&self) -> u64 {
        self.0.bytes.get()
    }
}

/// How a response body from a replica ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All of it arrived from the replica and was handed on.
    Complete,
    /// The replica broke off in the middle.
    Broken,
    /// All of it arrived and was handed on, and its trailers have this `grpc-status`, which is not
    /// 0.
    GrpcStatus(u32),
    /// Nobody wanted the rest: the client went away, or the attempt was cancelled.
    Abandoned,
}

/// Why a body could not be read to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The client's body is longer than allowed.
    #[error("the body is longer than the limit of {bytes_max} bytes")]
    TooLarge {
        /// The limit in bytes.
        bytes_max: u64,
    },
    /// The client broke off, or sent a body that is not well-formed.
    #[error("the client's request body broke: {0}")]
    Client(#[source] Box<dyn Error + Send + Sync>),
    /// The replica broke off, or sent a body that is not well-formed.
    #[error("replica {address}: the response body broke: {source}")]
    Replica {
        /// The replica that answered.
        address: ServerAddress,
        /// What was wrong.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The body did not come on as it must; whose fault that is, [`Upload::is_broken`] tells.
    #[error("replica {address}: the response body stalled: {limits}")]
    Stalled {
        /// The replica that answered.
        address: ServerAddress,
        /// What it had to keep to.
        limits: Pace,
    },
}

/// How fast a body must come, as an error says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace(pub(super) BodyLimits);

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BodyLimits { idle, rate_min, .. } = self.0;
        match rate_min {
            0 => write!(f, "no byte within {idle:?}"),
            rate => write!(f, "less than {rate} bytes per second within {idle:?}"),
        }
    }
}

impl Body {
    /// A body of no bytes.
    pub const fn empty() -> Body {
        Body(Kind::Empty)
    }

    /// A body that is in memory.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        let bytes = bytes.into();
        Body(if bytes.is_empty() { Kind::Empty } else { Kind::Full(bytes) })
    }

    /// The same body once more, for a retry or a hedge: `None` if it still streams in.
    pub fn try_clone(&self) -> Option<Body> {
        match &self.0 {
            Kind::Empty => Some(Body::empty()),
            Kind::Full(bytes) => Some(Body(Kind::Full(bytes.clone()))),
            Kind::Client { .. } | Kind::Resumed(_) | Kind::Replica(_) | Kind::Tunnel(_) => None,
        }
    }

    /// Whether every byte is in memory, so that no upstream connection is held any more. What goes
    /// through a tunnel is not of the answer.
    pub fn is_complete(&self) -> bool {
        matches!(self.0, Kind::Empty | Kind::Full(_) | Kind::Tunnel(_))
    }

    /// What it says, if it is a text in memory.
    pub(super) fn text(&self) -> Option<&str> {
        match &self.0 {
            Kind::Full(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// Tells of a body that streams from a client whom to wait for.
    pub fn upload(&self) -> Option<Upload> {
        match &self.0 {
            Kind::Client { upload, .. } => Some(upload.clone()),
            Kind::Resumed(resumed) => resumed.rest.upload(),
            Kind::Empty | Kind::Full(_) | Kind::Replica(_) | Kind::Tunnel(_) => None,
        }
    }

    /// Runs `action` exactly once: when the body has come to its end, has failed or is dropped.
    ///
    /// A body that [is complete](Body::is_complete) has ended already, so the action runs now.
    /// A second action replaces the first, which then learns [`End::Abandoned`].
    #[must_use]
    pub fn on_end(mut self, action: impl FnOnce(End) + 'static) -> Body {
        match &mut self.0 {
            Kind::Empty | Kind::Full(_) | Kind::Tunnel(_) => action(End::Complete),
            Kind::Replica(body) => body.set_on_end(Box::new(action)),
            Kind::Client { .. } | Kind::Resumed(_) => {
                debug_assert!(false, "only a response from a replica has an end to report");
            }
        }
        self
    }

    /// Allows a client's body no more bytes than this, where more were allowed.
    ///
    /// # Errors
    /// When it is known to be longer already.
    pub fn limit(&mut self, limit: u64) -> Result<(), BodyError> {
        if http_body::Body::size_hint(self).lower() > limit {
            return Err(BodyError::TooLarge { bytes_max: limit });
        }
        if let Kind::Client { bytes_left, bytes_max, .. } = &mut self.0 {
            (*bytes_left, *bytes_max) = ((*bytes_left).min(limit), (*bytes_max).min(limit));
        }
        Ok(())
    }

    /// Reads the whole body into memory, or gives up with the error.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] when more than `bytes_max` bytes arrive, otherwise what the peer
    /// did wrong.
    pub async fn collect(mut self, bytes_max: u64) -> Result<Bytes, BodyError> {
        let mut all = Vec::new();
        while let Some(frame) = self.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            if (all.len() + data.len()) as u64 > bytes_max {
                return Err(BodyError::TooLarge { bytes_max });
            }
            if all.is_empty() && self.is_complete() {
                return Ok(data); // it was in memory already: no copy
            }
            all.extend_from_slice(&data);
        }
        Ok(all.into())
    }

    /// The next piece of the body, `None` at its end.
    pub async fn frame(&mut self) -> Option<Result<Frame<Bytes>, BodyError>> {
        std::future::poll_fn(|cx| http_body::Body::poll_frame(Pin::new(&mut *self), cx)).await
    }

    /// The next piece of the body, `None` at its end.
    pub(super) fn poll_piece(
        &mut self,
        takes: Takes,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece, BodyError>>> {
        match &mut self.0 {
            Kind::Replica(body) => body.poll_piece(takes, cx),
            _ => {
                let frame = ready!(http_body::Body::poll_frame(Pin::new(self), cx));
                Poll::Ready(frame.map(|frame| Ok(Piece::Frame(frame?))))
            }
        }
    }

    pub(super) fn from_client(incoming: Incoming, bytes_max: u64) -> Body {
        if incoming.is_end_stream() {
            return Body::empty();
        }
        let upload = Upload::default();
        Body(Kind::Client { incoming, bytes_left: bytes_max, bytes_max, upload })
    }

    /// One of which these pieces were sent in vain.
    pub(super) fn resumed(pieces: VecDeque<Bytes>, rest: Body) -> Body {
        Body(Kind::Resumed(Box::new(Resumed { pieces, rest })))
    }

    /// That of a 101, which carries the replica's half of the tunnel to the client's connection.
    pub(super) fn tunnel(tunnel: Tunnel) -> Body {
        Body(Kind::Tunnel(Box::new(tunnel)))
    }

    /// Takes the replica's half of a tunnel, if this is the body of a 101.
    pub(super) fn take_tunnel(&mut self) -> Option<Box<Tunnel>> {
        match std::mem::replace(&mut self.0, Kind::Empty) {
            Kind::Tunnel(tunnel) => Some(tunnel),
            other => {
                self.0 = other;
                None
            }
        }
    }

    pub(super) fn from_replica(stream: Box<impl Streaming + 'static>) -> Body {
        Body(Kind::Replica(stream))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Empty | Kind::Tunnel(_) => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            Kind::Client { incoming, bytes_left, bytes_max, upload } => {
                let frame = poll_client(incoming, bytes_left, *bytes_max, cx);
                upload.note(*bytes_max - *bytes_left);
                upload.0.state.set(match &frame {
                    Poll::Pending => UploadState::WaitsForClient,
                    Poll::Ready(Some(Err(_))) => UploadState::Broken,
                    Poll::Ready(None) => UploadState::Through,
                    Poll::Ready(Some(Ok(_))) if incoming.is_end_stream() => UploadState::Through,
                    Poll::Ready(Some(Ok(_))) => UploadState::Passing,
                });
                frame
            }
            Kind::Resumed(resumed) => match resumed.pieces.pop_front() {
                Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
                None => Pin::new(&mut resumed.rest).poll_frame(cx),
            },
            Kind::Replica(body) => {
                let piece = ready!(body.poll_piece(Takes::Frames, cx));
                Poll::Ready(piece.map(|piece| Ok(piece?.into_frame())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty | Kind::Tunnel(_) => true,
            Kind::Full(_) => false,
            Kind::Client { incoming, .. } => incoming.is_end_stream(),
            Kind::Resumed(resumed) => resumed.pieces.is_empty() && resumed.rest.is_end_stream(),
            Kind::Replica(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty | Kind::Tunnel(_) => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Client { incoming, .. } => incoming.size_hint(),
            Kind::Resumed(resumed) => resumed.size_hint(),
            Kind::Replica(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Empty => "empty",
            Kind::Full(_) => "full",
            Kind::Client { .. } | Kind::Resumed(_) => "streaming from the client",
            Kind::Tunnel(_) => "tunnel",
            Kind::Replica(_) => "streaming from the replica",
        };
        write!(f, "Body({kind})")
    }
}

impl Resumed {
    fn size_hint(&self) -> SizeHint {
        let again: usize = self.pieces.iter().map(Bytes::len).sum();
        let rest = http_body::Body::size_hint(&self.rest).exact();
        rest.map_or_else(SizeHint::new, |rest| SizeHint::with_exact(rest + again as u64))
    }
}

/// Hands on a client's body and counts it against its limit.
fn poll_client(
    incoming: &mut Incoming,
    bytes_left: &mut u64,
    bytes_max: u64,
    cx: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
    let frame = ready!(incoming.poll_frame(cx));
    Poll::Ready(frame.map(|frame| {
        let frame = frame.map_err(BodyError::Client)?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        *bytes_left = bytes_left.checked_sub(length).ok_or(BodyError::TooLarge { bytes_max })?;
        Ok(frame)
    }))
}
