//! Envelopes over a connection's bytes, without knowing who asked.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use crate::codec::segment::PAYLOAD_BYTES_MAX;
use crate::codec::{Compression, Decoder, Encoder, Limits, Side};
use crate::{Envelope, Flags, Opcode, Version};
use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};

use super::error::{End, SendErrorKind};
use super::limits::NodeLimits;
use super::streams::Outgoing;
use evenkeel_runtime::dial::dial;
use evenkeel_runtime::stream::Stream;

/// What is read at once at least.
const READ_BYTES: usize = 16 << 10;
/// Events that are kept while an answer is awaited; with more the connection is given up.
const EVENTS_MAX: usize = 1_024;

/// One connection to a node.
#[derive(Debug)]
pub(super) struct Wire {
    transport: Stream,
    version: Version,
    decoder: Decoder,
    encoder: Encoder,
    input: BytesMut,
    output: BytesMut,
    batch: Vec<Envelope>,
    batch_bytes: usize,
    /// Events that came while an answer was awaited.
    events: VecDeque<Envelope>,
}

impl Wire {
    /// Opens a connection on which nothing is said yet. The caller limits the time.
    pub(super) async fn open(
        address: SocketAddr,
        limits: &NodeLimits,
        version: Version,
    ) -> Result<Self, End> {
        let opened = dial(address, limits.tls.as_ref()).await;
        let transport =
            opened.map_err(|error| End::new(SendErrorKind::Connect, error.to_string()))?;
        let accepted = Limits { envelope_bytes_max: limits.frame_bytes_max };
        Ok(Self {
            transport,
            version,
            decoder: Decoder::new(Side::Server, accepted),
            encoder: Encoder::new(),
            input: BytesMut::new(),
            output: BytesMut::new(),
            batch: Vec::new(),
            batch_bytes: 0,
            events: VecDeque::new(),
        })
    }

    /// A `STARTUP` is about to be sent: how its answer is to be read.
    pub(super) fn starting(&mut self, compression: Option<Compression>) {
        self.decoder.start(self.version, compression);
    }

    /// The `STARTUP` was answered well: how everything after it is to be written.
    pub(super) fn started(&mut self, compression: Option<Compression>) {
        self.encoder.start(self.version, compression);
    }

    /// Sends one request and waits for its answer; for as long as nobody else uses the connection.
    pub(super) async fn exchange(
        &mut self,
        opcode: Opcode,
        flags: Flags,
        body: Bytes,
    ) -> Result<Envelope, End> {
        self.add(0, Outgoing { opcode, flags, body });
        self.encode();
        std::future::poll_fn(|context| {
            while !self.is_written() {
                ready!(self.poll_write(context))?;
            }
            Poll::Ready(Ok::<_, End>(()))
        })
        .await?;
        loop {
            let answer = self.read().await?;
            match answer.stream {
                0 => return Ok(answer),
                _ if answer.opcode == Opcode::Event => self.keep_event(answer)?,
                stream => {
                    let why = format!("{} on stream {stream}, expected 0", answer.opcode);
                    return Err(End::new(SendErrorKind::Protocol, why));
                }
            }
        }
    }

    /// The next event; nothing is lost when it is dropped. For as long as nothing is asked.
    pub(super) async fn event(&mut self) -> Result<Envelope, End> {
        if let Some(event) = self.kept_event() {
            return Ok(event);
        }
        let event = self.read().await?;
        if event.opcode != Opcode::Event {
            let why = format!("{} on stream {}, unasked", event.opcode, event.stream);
            return Err(End::new(SendErrorKind::Protocol, why));
        }
        Ok(event)
    }

    /// An event that came while an answer was awaited.
    pub(super) fn kept_event(&mut self) -> Option<Envelope> {
        self.events.pop_front()
    }

    fn keep_event(&mut self, event: Envelope) -> Result<(), End> {
        if self.events.len() == EVENTS_MAX {
            // Rather than to leave one out in silence.
            let why = format!("more than {EVENTS_MAX} events came before an answer");
            return Err(End::new(SendErrorKind::Silent, why));
        }
        self.events.push_back(event);
        Ok(())
    }

    async fn read(&mut self) -> Result<Envelope, End> {
        std::future::poll_fn(|context| {
            loop {
                if let Some(envelope) = self.decode()? {
                    return Poll::Ready(Ok(envelope));
                }
                ready!(self.poll_read(context))?;
            }
        })
        .await
    }

    /// Whether one more request of this size leaves at the same time as those that were added: in
    /// v5, within their segment.
    pub(super) fn has_room_for(&self, body_bytes: usize) -> bool {
        match self.version {
            Version::V4 => self.batch.is_empty(),
            Version::V5 => {
                self.batch.is_empty() || self.batch_bytes + size(body_bytes) <= PAYLOAD_BYTES_MAX
            }
        }
    }

    /// Adds a request to those that are encoded next.
    pub(super) fn add(&mut self, stream: i16, request: Outgoing) {
        let Outgoing { opcode, flags, body } = request;
        self.batch_bytes += size(body.len());
        self.batch.push(Envelope { flags, ..Envelope::new(self.version, stream, opcode, body) });
    }

    /// Encodes what was added; says how many bytes that were.
    pub(super) fn encode(&mut self) -> u64 {
        let before = self.output.len();
        self.encoder.encode_all(self.batch.drain(..), &mut self.output);
        self.batch_bytes = 0;
        (self.output.len() - before) as u64
    }

    /// Bytes that are encoded and not written.
    pub(super) fn unwritten(&self) -> usize {
        self.output.len()
    }

    pub(super) fn is_written(&self) -> bool {
        self.output.is_empty()
    }

    /// Writes once, as much as the socket takes.
    pub(super) fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<usize, End>> {
        let mut transport = Pin::new(&mut self.transport);
        let count = match ready!(transport.as_mut().poll_write(context, &self.output)) {
            Ok(0) => return Poll::Ready(Err(reset("it takes no bytes any more"))),
            Ok(count) => count,
            Err(error) => return Poll::Ready(Err(reset(&error.to_string()))),
        };
        self.output.advance(count);
        if self.output.is_empty() {
            self.output.clear();
        }
        Poll::Ready(Ok(count))
    }

    /// Hands on what TLS holds back.
    pub(super) fn poll_flush(&mut self, context: &mut Context<'_>) -> Result<(), End> {
        match Pin::new(&mut self.transport).poll_flush(context) {
            Poll::Ready(Err(error)) => Err(reset(&error.to_string())),
            Poll::Ready(Ok(())) | Poll::Pending => Ok(()),
        }
    }

    /// Reads once. An end of the stream is an error: nodes do not say goodbye.
    pub(super) fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<Result<(), End>> {
        self.input.reserve(READ_BYTES);
        let read: io::Result<usize> =
            ready!(pin!(self.transport.read_buf(&mut self.input)).poll(context));
        Poll::Ready(match read {
            Ok(0) => Err(reset("the node closed the connection")),
            Ok(_) => Ok(()),
            Err(error) => Err(reset(&error.to_string())),
        })
    }

    /// The next envelope of what was read.
    pub(super) fn decode(&mut self) -> Result<Option<Envelope>, End> {
        Ok(self.decoder.decode(&mut self.input)?)
    }
}

/// An envelope's bytes: a header of nine, and its body.
const fn size(body_bytes: usize) -> usize {
    9 + body_bytes
}

fn reset(why: &str) -> End {
    End::new(SendErrorKind::Reset, why)
}
