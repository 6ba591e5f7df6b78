//! The streams of one connection: which request has which number, and how far it is.
//!
//! A number belongs to a request until its answer has come, also when nobody waits for it any
//! more: a node that answered a given-up request late would else be taken to answer another's.
//! Such a stream is an orphan.

use std::collections::VecDeque;
use std::task::Waker;

use crate::{Envelope, Flags, Opcode};
use bytes::Bytes;
use evenkeel_core::Feedback;

/// What is to be written.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) opcode: Opcode,
    pub(super) flags: Flags,
    pub(super) body: Bytes,
}

/// An answer, and the report that came with it.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) envelope: Envelope,
    pub(super) feedback: Option<Feedback>,
}

#[derive(Debug)]
enum Stream {
    Free,
    /// Nothing of it is encoded yet.
    Queued {
        request: Outgoing,
        waker: Option<Waker>,
    },
    /// Its first byte is this one of all that the connection has had to write.
    Sent {
        begins: u64,
        waker: Option<Waker>,
    },
    /// Its answer is there and not fetched.
    Answered(Arrived),
    /// Nobody waits for its answer.
    Orphan,
}

/// What the one who waits finds.
#[derive(Debug)]
pub(super) enum Found {
    Nothing,
    Answer(Arrived),
}

/// Why an answer cannot be delivered.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unasked;

/// What became of a stream whose owner went away.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    /// It is free again: nothing was sent, or all has come.
    Freed,
    /// Its answer is still to come.
    Orphaned,
}

/// The table of streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    streams: Vec<Stream>,
    free: Vec<i16>,
    queue: VecDeque<i16>,
    orphans: usize,
}

impl Streams {
    /// Streams that are taken, orphans too.
    pub(super) fn taken(&self) -> usize {
        self.streams.len() - self.free.len()
    }

    /// Streams that are taken by requests that nobody waits for.
    pub(super) fn orphans(&self) -> usize {
        self.orphans
    }

    /// Whether anything waits to be encoded.
    pub(super) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes a stream for a request.
    ///
    /// # Panics
    /// Beyond 32,767 streams: the caller has a limit below.
    pub(super) fn take(&mut self, request: Outgoing) -> i16 {
        let stream = self.free.pop().unwrap_or_else(|| {
            let next = i16::try_from(self.streams.len()).expect("streams have a limit of 15 bits");
            self.streams.push(Stream::Free);
            next
        });
        *self.at(stream) = Stream::Queued { request, waker: None };
        self.queue.push_back(stream);
        stream
    }

    /// The length of the next request to encode.
    pub(super) fn first_body_bytes(&self) -> Option<usize> {
        let first = usize::try_from(*self.queue.front()?).ok()?;
        match self.streams.get(first) {
            Some(Stream::Queued { request, .. }) => Some(request.body.len()),
            _ => None,
        }
    }

    /// The next request to encode; its first byte will be the one with this number.
    pub(super) fn next(&mut self, begins: u64) -> Option<(i16, Outgoing)> {
        let stream = self.queue.pop_front()?;
        let place = self.at(stream);
        match std::mem::replace(place, Stream::Free) {
            Stream::Queued { request, waker } => {
                *place = Stream::Sent { begins, waker };
                Some((stream, request))
            }
            other => unreachable!("a queued stream is not {other:?}"),
        }
    }

    /// An answer came: it is kept for the one who waits, if anybody does.
    pub(super) fn deliver(&mut self, answer: Arrived) -> Result<Option<Waker>, Unasked> {
        let index = usize::try_from(answer.envelope.stream).map_err(|_| Unasked)?;
        let place = self.streams.get_mut(index).ok_or(Unasked)?;
        match place {
            Stream::Sent { waker, .. } => {
                let waker = waker.take();
                *place = Stream::Answered(answer);
                Ok(waker)
            }
            Stream::Orphan => {
                *place = Stream::Free;
                self.orphans -= 1;
                self.free.push(answer.envelope.stream);
                Ok(None)
            }
            Stream::Free | Stream::Queued { .. } | Stream::Answered(_) => Err(Unasked),
        }
    }

    /// The answer, which frees the stream; or its waker is kept.
    pub(super) fn fetch(&mut self, stream: i16, context: &Waker) -> Found {
        match self.at(stream) {
            Stream::Queued { waker, .. } | Stream::Sent { waker, .. } => {
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(context)) {
                    *waker = Some(context.clone());
                }
                Found::Nothing
            }
            place @ Stream::Answered(_) => {
                let Stream::Answered(answer) = std::mem::replace(place, Stream::Free) else {
                    unreachable!("it was looked at in the line above")
                };
                self.free.push(stream);
                Found::Answer(answer)
            }
            other => unreachable!("a stream that somebody waits for is not {other:?}"),
        }
    }

    /// Its owner waits no more.
    pub(super) fn give_up(&mut self, stream: i16) -> GivenUp {
        let place = self.at(stream);
        match place {
            Stream::Sent { .. } => {
                *place = Stream::Orphan;
                self.orphans += 1;
                return GivenUp::Orphaned;
            }
            Stream::Queued { .. } => {
                *place = Stream::Free;
                self.queue.retain(|&queued| queued != stream);
            }
            Stream::Answered(_) => *place = Stream::Free,
            Stream::Free | Stream::Orphan => unreachable!("a stream has one owner"),
        }
        self.free.push(stream);
        GivenUp::Freed
    }

    /// Whether a byte of the request left, when so many of the connection's bytes did.
    pub(super) fn was_sent(&self, stream: i16, written: u64) -> bool {
        let place = usize::try_from(stream).ok().and_then(|index| self.streams.get(index));
        match place {
            Some(Stream::Sent { begins, .. }) => written > *begins,
            Some(Stream::Queued { .. }) => false,
            _ => true,
        }
    }

    /// Wakes everybody who waits.
    pub(super) fn wake_all(&mut self) {
        for stream in &mut self.streams {
            if let Stream::Queued { waker, .. } | Stream::Sent { waker, .. } = stream
                && let Some(waker) = waker.take()
            {
                waker.wake();
            }
        }
    }

    fn at(&mut self, stream: i16) -> &mut Stream {
        let index = usize::try_from(stream).expect("streams of requests are not negative");
        &mut self.streams[index]
    }
}
