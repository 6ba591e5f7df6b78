//! gRPC over HTTP/2, as far as streams of small messages need it: a length before each message,
//! and how a call ended in its trailers. ([PROTOCOL-HTTP2.md][1] of gRPC; no compression.)
//!
//! [1]: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md

use std::future::poll_fn;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, HeaderValue, Response};
use prost::Message;

/// The longest message that is read: as long as gRPC allows unless it is told otherwise.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// A flag whether it is compressed, and the length.
const PREFIX_BYTES: usize = 5;

/// How a call ended that did not go well; the codes are gRPC's.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    code: u16,
    words: &'static str,
}

impl Refusal {
    /// Nothing of that kind is served here.
    pub(super) const fn unimplemented(words: &'static str) -> Self {
        Self { code: 12, words }
    }

    /// There are too many, or it is too long.
    pub(super) const fn exhausted(words: &'static str) -> Self {
        Self { code: 8, words }
    }

    /// What came is no message.
    const fn nonsense(words: &'static str) -> Self {
        Self { code: 13, words }
    }

    /// The client is gone: nobody hears the words.
    const GONE: Self = Self { code: 1, words: "" };

    fn put_into(&self, headers: &mut HeaderMap) {
        headers.insert("grpc-status", self.code.into());
        headers.insert("grpc-message", HeaderValue::from_static(self.words));
    }
}

/// Messages of the client of one call.
#[derive(Debug)]
pub(super) struct Inbox {
    stream: RecvStream,
    read: BytesMut,
}

impl Inbox {
    pub(super) fn new(stream: RecvStream) -> Self {
        Self { stream, read: BytesMut::new() }
    }

    /// The next message; `None` when the client has said all. Nothing is lost where it is dropped
    /// in the middle.
    pub(super) async fn next<M: Message + Default>(&mut self) -> Result<Option<M>, Refusal> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match self.stream.data().await {
                Some(Ok(bytes)) => {
                    self.read.extend_from_slice(&bytes);
                    let _ = self.stream.flow_control().release_capacity(bytes.len()); // it came
                }
                Some(Err(_)) => return Err(Refusal::GONE),
                None if self.read.is_empty() => return Ok(None),
                None => return Err(Refusal::nonsense("the last message breaks off")),
            }
        }
    }

    /// A message that is there whole.
    fn take<M: Message + Default>(&mut self) -> Result<Option<M>, Refusal> {
        let Some((mut prefix, _)) = self.read.split_at_checked(PREFIX_BYTES) else {
            return Ok(None);
        };
        if prefix.get_u8() != 0 {
            return Err(Refusal::unimplemented("messages are not compressed here"));
        }
        let length = prefix.get_u32() as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Refusal::exhausted("a message has over 4 MiB"));
        }
        if self.read.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.read.advance(PREFIX_BYTES);
        let message = M::decode(self.read.split_to(length).freeze());
        message.map(Some).map_err(|_| Refusal::nonsense("a message cannot be read"))
    }
}

/// Messages to the client of one call.
#[derive(Debug)]
pub(super) struct Outbox(SendStream<Bytes>);

impl Outbox {
    /// Accepts a call; `None` when the client is gone.
    pub(super) fn open(mut respond: SendResponse<Bytes>) -> Option<Self> {
        respond.send_response(head(), false).ok().map(Self)
    }

    /// Sends a message as fast as the client takes it; false when it is gone.
    pub(super) async fn send(&mut self, message: &impl Message) -> bool {
        let mut bytes = BytesMut::with_capacity(PREFIX_BYTES + message.encoded_len());
        bytes.put_u8(0);
        bytes.put_u32(u32::try_from(message.encoded_len()).expect("what is told is short"));
        message.encode(&mut bytes).expect("there is room for it");
        let mut left = bytes.freeze();
        while !left.is_empty() {
            self.0.reserve_capacity(left.len());
            let room = match self.0.capacity() {
                0 => poll_fn(|cx| self.0.poll_capacity(cx)).await,
                room => Some(Ok(room)),
            };
            let Some(Ok(room)) = room else { return false };
            if self.0.send_data(left.split_to(room.min(left.len())), false).is_err() {
                return false;
            }
        }
        true
    }

    /// Ends the call.
    pub(super) fn end(mut self, refusal: Option<&Refusal>) {
        let mut trailers = HeaderMap::new();
        match refusal {
            Some(refusal) => refusal.put_into(&mut trailers),
            None => drop(trailers.insert("grpc-status", HeaderValue::from_static("0"))),
        }
        let _ = self.0.send_trailers(trailers); // or it is gone
    }
}

/// Refuses a call.
pub(super) fn refuse(mut respond: SendResponse<Bytes>, refusal: &Refusal) {
    let mut head = head();
    refusal.put_into(head.headers_mut());
    if respond.send_response(head, true).is_err() {
        respond.send_reset(Reason::CANCEL);
    }
}

fn head() -> Response<()> {
    let mut head = Response::new(());
    head.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    head
}
