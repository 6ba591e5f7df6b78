//! What comes next of a body: bytes in memory, trailers, or a pipe in which the bytes are.

use bytes::Bytes;
use evenkeel_runtime::pipe::Pipe;
use http::HeaderMap;
use http_body::Frame;

/// The next of a body.
pub(super) enum Piece {
    Frame(Frame<Bytes>),
    /// Bytes that this process does not see.
    Pipe(Pipe),
}

/// What whoever asks for the next piece of a body takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// A little, to see that it begins.
    Beginning,
    /// What is there.
    Frames,
    /// The same, or a pipe in which it is.
    Pipes,
}

impl Piece {
    /// Bytes in it, 0 of trailers.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Frame(frame) => frame.data_ref().map_or(0, Bytes::len),
            Self::Pipe(pipe) => pipe.len(),
        }
    }

    pub(super) fn trailers(&self) -> Option<&HeaderMap> {
        match self {
            Self::Frame(frame) => frame.trailers_ref(),
            Self::Pipe(_) => None,
        }
    }

    /// # Panics
    /// For a pipe, which nobody gets who has not asked for one.
    pub(super) fn into_frame(self) -> Frame<Bytes> {
        match self {
            Self::Frame(frame) => frame,
            Self::Pipe(_) => unreachable!("nobody has asked for a pipe"),
        }
    }
}
