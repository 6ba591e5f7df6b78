//! Clients in this process before a cluster that is made up.

mod fake;
mod limits;
mod login;
mod serving;
mod tls;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_core::Rng;
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::codec::{Compression, Decoder, Encoder, Limits, Side};
use evenkeel_cql::request::{Query, QueryParameters, Startup};
use evenkeel_cql::response::Error;
use evenkeel_cql::{Envelope, ErrorCode, Opcode, Version};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};

use tokio::task::JoinHandle;

use super::worker::Worker;
use super::{FrontCounts, FrontSettings};
use evenkeel_runtime::accept::{Dialer, Listener, Served, Stage, Stop, StopSignal, accept};
use fake::Fake;

/// How long anything may take here.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client of its own making: it says what it is told to, in pieces of any length.
struct Client<S> {
    stream: S,
    version: Version,
    encoder: Encoder,
    decoder: Decoder,
    inbox: BytesMut,
    rng: Rng,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    fn new(stream: S, version: Version, seed: u64) -> Self {
        Self {
            stream,
            version,
            encoder: Encoder::new(),
            decoder: Decoder::new(Side::Server, Limits { envelope_bytes_max: 64 << 20 }),
            inbox: BytesMut::new(),
            rng: Rng::seeded(seed),
        }
    }

    /// Sends bytes in pieces.
    async fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let most = 1 << self.rng.below(16);
            let length = (self.rng.below(most) + 1).min(bytes.len());
            // The server may have closed: what it has said is still to be read.
            if self.stream.write_all(&bytes[..length]).await.is_err() {
                return;
            }
            self.stream.flush().await.unwrap();
            bytes = &bytes[length..];
            if self.rng.below(4) == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    async fn send(&mut self, envelopes: &[Envelope]) {
        let mut bytes = BytesMut::new();
        self.encoder.encode_all(envelopes, &mut bytes);
        self.push(&bytes).await;
    }

    /// The next message; `None` when the server has closed.
    async fn next(&mut self) -> Option<Envelope> {
        let next = async {
            loop {
                if let Some(envelope) = self.decoder.decode(&mut self.inbox).unwrap() {
                    return Some(envelope);
                }
                if self.stream.read_buf(&mut self.inbox).await.unwrap_or(0) == 0 {
                    return None;
                }
            }
        };
        tokio::time::timeout(PATIENCE, next).await.expect("an answer in time")
    }

    async fn ask(&mut self, envelope: Envelope) -> Envelope {
        self.send(&[envelope]).await;
        self.next().await.expect("an answer")
    }

    async fn start(&mut self, compression: Option<Compression>) {
        let reply = self.startup(compression).await;
        assert_eq!(reply.opcode, Opcode::Ready, "{:?}", reply.body);
    }

    async fn startup(&mut self, compression: Option<Compression>) -> Envelope {
        let mut options = vec![Startup::CQL_VERSION];
        options.extend(compression.map(|compression| ("COMPRESSION", compression.name())));
        let mut body = BytesMut::new();
        Startup { options }.write(&mut body);
        self.decoder.start(self.version, compression);
        let startup = Envelope::new(self.version, 0, Opcode::Startup, body.freeze());
        let reply = self.ask(startup).await;
        self.encoder.start(self.version, compression);
        reply
    }
}

fn query(version: Version, stream: i16, text: &str) -> Envelope {
    let parameters = QueryParameters::new(Consistency::One);
    let mut body = BytesMut::new();
    Query { text, parameters }.write(version, &mut body);
    Envelope::new(version, stream, Opcode::Query, body.freeze())
}

fn error_in(reply: &Envelope) -> (ErrorCode, String) {
    assert_eq!(reply.opcode, Opcode::Error, "{reply:?}");
    let error = Error::read(&reply.body, reply.version).unwrap();
    (error.code, error.message.to_owned())
}

/// One worker and its clients.
struct Front {
    worker: Rc<Worker<Fake>>,
    fake: Rc<Fake>,
    dialer: Dialer,
    stop: Stop,
    serving: JoinHandle<io::Result<Served>>,
}

impl Front {
    fn new(change: impl FnOnce(&mut FrontSettings)) -> Self {
        let mut settings = FrontSettings::new("east");
        change(&mut settings);
        let fake = Rc::new(Fake::default());
        let counts = Rc::new(FrontCounts::default());
        let config = settings.accept_config().fixed();
        let worker = Rc::new(Worker::new(Rc::new(settings), Rc::clone(&fake), counts));
        let (listener, dialer) = Listener::memory();
        let stop = Stop::new();
        let accepting = accept(listener, config, Rc::clone(&worker), stop.signal());
        let serving = tokio::task::spawn_local(accepting);
        Self { worker, fake, dialer, stop, serving }
    }

    /// Another client, connected.
    fn client(&self, version: Version, seed: u64) -> Client<DuplexStream> {
        Client::new(self.dialer.connect().unwrap(), version, seed)
    }

    fn counts(&self) -> &FrontCounts {
        &self.worker.counts
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = evenkeel_runtime::accept::worker_runtime().unwrap();
    runtime.block_on(async {
        tokio::time::timeout(3 * PATIENCE, test).await.expect("the test ends in time");
    });
}

/// In virtual time: it jumps to the next deadline whenever nobody has anything to do.
fn run_paused(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(Default::default());
    runtime.unwrap().block_on(test);
}

/// Every way in which a connection can be framed.
const FRAMINGS: [(Version, Option<Compression>); 5] = [
    (Version::V4, None),
    (Version::V4, Some(Compression::Lz4)),
    (Version::V4, Some(Compression::Snappy)),
    (Version::V5, None),
    (Version::V5, Some(Compression::Lz4)),
];

fn bytes(length: usize, fill: u8) -> Bytes {
    vec![fill; length].into()
}
