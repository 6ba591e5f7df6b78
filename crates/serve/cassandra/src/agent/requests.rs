//! From a client to the node: every byte as it came, but for one option of `STARTUP`.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_cql::codec::{Decoder, Encoder, Side};
use evenkeel_cql::request::Startup;
use evenkeel_cql::{Envelope, Opcode, Version, WireError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::state::{Agreed, Phase, Session};
use evenkeel_cql::client::FEEDBACK_OPTION;

/// How long a node may take to answer `STARTUP`.
const STARTING_MAX: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 16 << 10;
const HEADER_BYTES: usize = 9;
/// More than any `STARTUP` has; a longer beginning is not understood.
const BEGINNING_BYTES_MAX: usize = 1 << 20;

pub(super) async fn pass(
    session: &Session,
    mut client: impl AsyncRead + Unpin,
    mut node: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut input = BytesMut::new();
    let mut watcher = None;
    loop {
        let passed = match session.phase.get() {
            Phase::Beginning => begin(session, &mut input),
            // The client waits for an answer; if it does not, its bytes do.
            Phase::Starting(_) => {
                let changed = session.changed.notified();
                tokio::time::timeout(STARTING_MAX, changed).await?;
                continue;
            }
            Phase::Started(agreed) => {
                let watcher = watcher.get_or_insert_with(|| Watcher::new(session, agreed));
                let bytes = input.split().freeze();
                if let Err(error) = watcher.see(session, &bytes) {
                    if agreed.wants_reports {
                        return Err(io::Error::other(error));
                    }
                    tracing::debug!(%error, "a client's requests pass uncounted");
                    session.go_blind();
                }
                bytes
            }
            Phase::Blind => input.split().freeze(),
        };
        if !passed.is_empty() {
            node.write_all(&passed).await?;
            node.flush().await?;
            continue;
        }
        if session.phase.get() == Phase::Blind && !input.is_empty() {
            continue;
        }
        input.reserve(READ_BYTES);
        if client.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    }
}

/// The next bytes to pass of a connection that is not started; none when more must come first.
fn begin(session: &Session, input: &mut BytesMut) -> Bytes {
    let Some(&first) = input.first() else { return Bytes::new() };
    if Version::of(first).is_none() {
        session.go_blind();
        return Bytes::new();
    }
    let Some(header) = input.first_chunk::<HEADER_BYTES>() else { return Bytes::new() };
    let &[_, _, _, _, opcode, l0, l1, l2, l3] = header;
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    if length > BEGINNING_BYTES_MAX {
        session.go_blind();
        return Bytes::new();
    }
    if input.len() < HEADER_BYTES + length {
        return Bytes::new();
    }
    let bytes = input.split_to(HEADER_BYTES + length).freeze();
    if opcode == Opcode::Startup.number() { start(session, bytes) } else { bytes }
}

/// A `STARTUP`, without the option that is ours.
fn start(session: &Session, bytes: Bytes) -> Bytes {
    let mut decoder = Decoder::new(Side::Client, session.limits);
    let envelope = decoder.decode(&mut BytesMut::from(&bytes[..]));
    let Ok(Some(envelope)) = envelope else {
        session.go_blind();
        return bytes;
    };
    let version = envelope.version;
    let read = Startup::read(&envelope.body).ok();
    let agreed = read.as_ref().and_then(|startup| startup.compression(version).ok());
    let (Some(mut startup), Some(compression)) = (read, agreed) else {
        // The node will refuse it, or knows more than we do.
        session.go_blind();
        return bytes;
    };
    let wants_reports = startup.option(FEEDBACK_OPTION) == Some("1");
    session.become_phase(Phase::Starting(Agreed { version, compression, wants_reports }));
    let count = startup.options.len();
    startup.options.retain(|(name, _)| !name.eq_ignore_ascii_case(FEEDBACK_OPTION));
    if startup.options.len() == count {
        return bytes;
    }
    let mut body = BytesMut::new();
    startup.write(&mut body);
    let mut out = BytesMut::new();
    Encoder::new().encode(&Envelope { body: body.freeze(), ..envelope.clone() }, &mut out);
    out.freeze()
}

/// Sees which requests pass.
struct Watcher {
    decoder: Decoder,
    seen: BytesMut,
}

impl Watcher {
    fn new(session: &Session, agreed: Agreed) -> Self {
        let mut decoder = Decoder::new(Side::Client, session.limits);
        decoder.start(agreed.version, agreed.compression);
        Self { decoder, seen: BytesMut::new() }
    }

    fn see(&mut self, session: &Session, bytes: &[u8]) -> Result<(), WireError> {
        self.seen.extend_from_slice(bytes);
        while let Some(request) = self.decoder.decode(&mut self.seen)? {
            if is_counted(request.opcode) {
                session.residents.borrow_mut().begin(request.stream);
            }
        }
        Ok(())
    }
}

fn is_counted(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch)
}
