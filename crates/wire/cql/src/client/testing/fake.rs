//! A node of our own making: says what a test tells it to.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use crate::codec::{Compression, Decoder, Encoder, Limits, Side};
use crate::request::Startup;
use crate::{Envelope, ErrorCode, Flags, Opcode, Version, write};
use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::{Answer, Ask, Dialect, Node, NodeLimits, Prepared, SendError};

/// What the fake was told on all connections, in order.
pub type Seen = Rc<RefCell<Vec<Envelope>>>;

/// One connection as the fake sees it.
pub struct Peer {
    /// The connection's bytes.
    pub stream: TcpStream,
    /// Which of the fake's connections this is, from 0.
    pub number: usize,
    decoder: Decoder,
    /// Writes what the fake answers.
    pub encoder: Encoder,
    input: BytesMut,
    /// What the fake was told on all connections.
    pub seen: Seen,
}

/// Starts a fake that does this with every connection.
pub async fn fake<F: Future<Output = ()> + 'static>(
    script: impl Fn(Peer) -> F + 'static,
) -> (SocketAddr, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Seen::default();
    let all = Rc::clone(&seen);
    tokio::task::spawn_local(async move {
        for number in 0.. {
            let Ok((stream, _)) = listener.accept().await else { return };
            let decoder = Decoder::new(Side::Client, Limits::default());
            let (encoder, input, seen) = (Encoder::new(), BytesMut::new(), Rc::clone(&all));
            let peer = Peer { stream, number, decoder, encoder, input, seen };
            tokio::task::spawn_local(script(peer));
        }
    });
    (address, seen)
}

impl Peer {
    /// The next request; `None` at the end.
    pub async fn next(&mut self) -> Option<Envelope> {
        loop {
            if let Some(envelope) = self.decoder.decode(&mut self.input).unwrap() {
                self.seen.borrow_mut().push(envelope.clone());
                return Some(envelope);
            }
            match self.stream.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// The next request that is neither a heartbeat nor part of the beginning; those are answered.
    pub async fn work(&mut self) -> Option<Envelope> {
        loop {
            let request = self.next().await?;
            match request.opcode {
                Opcode::Startup => self.ready(&request).await,
                Opcode::Options => self.answer(&request, Opcode::Supported, &[0, 0]).await,
                Opcode::Query if request.body[4..].starts_with(b"USE ") => {
                    self.answer(&request, Opcode::Result, &[0, 0, 0, 3, 0, 1, b'k']).await;
                }
                _ => return Some(request),
            }
        }
    }

    /// Answers a STARTUP as it should be.
    pub async fn ready(&mut self, startup: &Envelope) {
        self.started(startup, Opcode::Ready, &[]).await;
    }

    /// Answers a STARTUP well.
    pub async fn started(&mut self, startup: &Envelope, opcode: Opcode, body: &[u8]) {
        let version = startup.version;
        let options = Startup::read(&startup.body).unwrap();
        let compression =
            options.option("COMPRESSION").map(|name| Compression::of(name, version).unwrap());
        self.answer(startup, opcode, body).await;
        self.decoder.start(version, compression);
        self.encoder.start(version, compression);
    }

    /// Answers a request; a driver that has gone is no error.
    pub async fn answer(&mut self, request: &Envelope, opcode: Opcode, body: &[u8]) {
        let bytes = self.encoded(request, opcode, body);
        let _ = self.stream.write_all(&bytes).await;
    }

    /// Answers with an `ERROR` of this code, with `more` behind its message.
    pub async fn error(&mut self, request: &Envelope, code: ErrorCode, more: &[u8]) {
        let mut body = write::error(code, "the fake says no");
        body.put_slice(more);
        self.answer(request, Opcode::Error, &body).await;
    }

    /// An answer as bytes.
    pub fn encoded(&mut self, request: &Envelope, opcode: Opcode, body: &[u8]) -> Bytes {
        let body = Bytes::copy_from_slice(body);
        let answer = Envelope::new(request.version, request.stream, opcode, body);
        let mut bytes = BytesMut::new();
        self.encoder.encode(&answer, &mut bytes);
        bytes.freeze()
    }

    /// Answers everything with its own body.
    pub async fn echo(mut self) {
        while let Some(request) = self.work().await {
            self.answer(&request, Opcode::Result, &request.body).await;
        }
    }
}

/// Limits that are quick to reach.
pub fn limits() -> NodeLimits {
    NodeLimits {
        connect: Duration::from_millis(500),
        connections_max: 2,
        streams_max: 8,
        waiting_max: 64,
        ..NodeLimits::default()
    }
}

/// The node at this address, which may be a fake's.
pub fn node(address: SocketAddr, limits: NodeLimits) -> Rc<Node> {
    Node::new(address, Rc::new(limits))
}

/// A version without keyspace and login.
pub fn dialect(version: Version) -> Dialect {
    Dialect { version, keyspace: None, login: None }
}

/// A request that is told from others by its body: the tag, and dots up to so many bytes.
pub fn tagged(tag: u64, bytes: usize) -> Ask {
    let mut body = BytesMut::with_capacity(bytes.max(8));
    body.put_u64(tag);
    body.resize(bytes.max(8), b'.');
    Ask { opcode: Opcode::Query, flags: Flags::NONE, body: body.freeze(), prepared: Prepared::None }
}

/// The tag at the beginning of a body.
pub fn tag(body: &[u8]) -> u64 {
    u64::from_be_bytes(body[..8].try_into().unwrap())
}

/// Asks in a task of its own.
pub fn spawn(
    node: &Rc<Node>,
    dialect: &Dialect,
    ask: Ask,
) -> tokio::task::JoinHandle<Result<Answer, SendError>> {
    let (node, dialect) = (Rc::clone(node), dialect.clone());
    tokio::task::spawn_local(async move { node.ask(&dialect, ask).await })
}

/// Lets all tasks of this thread go on that can, and waits for nothing from outside.
pub async fn turn() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
