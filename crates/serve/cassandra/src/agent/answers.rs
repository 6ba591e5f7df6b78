//! From the node to a client: every byte as it came, or every envelope with a report.

use std::io;

use bytes::{Bytes, BytesMut};
use evenkeel_cql::codec::{Decoder, Encoder, Side};
use evenkeel_cql::{Envelope, Opcode, WireError, payload};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::state::{Phase, Session};
use evenkeel_cql::client::FEEDBACK_KEY;
use evenkeel_cql::client::feedback;

const READ_BYTES: usize = 16 << 10;

pub(super) async fn pass(
    session: &Session,
    mut node: impl AsyncRead + Unpin,
    mut client: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let mut input = BytesMut::new();
    let mut way = Way {
        decoder: Decoder::new(Side::Server, session.limits),
        encoder: Encoder::new(),
        seen: BytesMut::new(),
        is_told: false,
        is_started: false,
    };
    loop {
        input.reserve(READ_BYTES);
        if node.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
        let passed = way.through(session, input.split().freeze())?;
        if !passed.is_empty() {
            session.is_writing.set(true);
            client.write_all(&passed).await?;
            client.flush().await?;
            session.is_writing.set(false);
        }
    }
}

struct Way {
    decoder: Decoder,
    encoder: Encoder,
    /// What has come and is not understood yet; on a connection that is passed byte for byte, a
    /// copy.
    seen: BytesMut,
    /// The decoder knows what is agreed.
    is_told: bool,
    /// From the next byte on, all is passed as it comes, or with reports.
    is_started: bool,
}

impl Way {
    /// What to pass when these bytes have come.
    fn through(&mut self, session: &Session, bytes: Bytes) -> io::Result<Bytes> {
        match session.phase.get() {
            Phase::Blind => Ok(self.unheld(bytes)),
            Phase::Started(agreed) if !agreed.wants_reports => {
                self.seen.extend_from_slice(&bytes);
                if let Err(error) = self.count(session) {
                    tracing::debug!(%error, "a node's answers pass uncounted");
                    session.go_blind();
                    // Nothing of it is held here: it passes as it came.
                    self.seen.clear();
                }
                Ok(bytes)
            }
            Phase::Started(_) => {
                self.seen.extend_from_slice(&bytes);
                self.with_reports(session).map_err(io::Error::other)
            }
            Phase::Beginning | Phase::Starting(_) => {
                self.seen.extend_from_slice(&bytes);
                Ok(self.beginning(session))
            }
        }
    }

    /// What was held before nobody understood it any more, then this.
    fn unheld(&mut self, bytes: Bytes) -> Bytes {
        if self.seen.is_empty() || self.is_started {
            self.seen.clear();
            return bytes;
        }
        self.seen.extend_from_slice(&bytes);
        self.seen.split().freeze()
    }

    /// Answers before a connection is started, each as a whole.
    fn beginning(&mut self, session: &Session) -> Bytes {
        let mut out = BytesMut::new();
        loop {
            if let Phase::Starting(agreed) = session.phase.get()
                && !self.is_told
            {
                self.decoder.start(agreed.version, agreed.compression);
                self.is_told = true;
            }
            let held = self.seen.clone();
            match self.decoder.decode(&mut self.seen) {
                Ok(Some(answer)) => {
                    self.encoder.encode(&answer, &mut out);
                    self.note_start(session, answer.opcode);
                    if self.is_started {
                        // Whatever has come beside it is passed as it is from here on.
                        out.extend_from_slice(&self.rest(session));
                        return out.freeze();
                    }
                }
                Ok(None) => return out.freeze(),
                Err(error) => {
                    tracing::debug!(%error, "a node's answers pass uncounted");
                    session.go_blind();
                    self.seen.clear();
                    out.extend_from_slice(&held);
                    return out.freeze();
                }
            }
        }
    }

    /// What the answer to `STARTUP` changes.
    fn note_start(&mut self, session: &Session, opcode: Opcode) {
        let Phase::Starting(agreed) = session.phase.get() else { return };
        match opcode {
            Opcode::Ready | Opcode::Authenticate => {
                self.encoder.start(agreed.version, agreed.compression);
                self.is_started = true;
                session.become_phase(Phase::Started(agreed));
            }
            Opcode::Error => {
                // The client may try again.
                self.decoder = Decoder::new(Side::Server, session.limits);
                self.is_told = false;
                session.become_phase(Phase::Beginning);
            }
            _ => {}
        }
    }

    fn rest(&mut self, session: &Session) -> Bytes {
        let bytes = self.seen.split().freeze();
        self.through(session, bytes).unwrap_or_default()
    }

    /// Counts answers of which the bytes have passed.
    fn count(&mut self, session: &Session) -> Result<(), WireError> {
        while let Some(answer) = self.decoder.decode(&mut self.seen)? {
            let _ = ended(session, &answer);
        }
        Ok(())
    }

    fn with_reports(&mut self, session: &Session) -> Result<Bytes, WireError> {
        let mut out = BytesMut::new();
        let mut answers = Vec::new();
        let decoded = loop {
            match self.decoder.decode(&mut self.seen) {
                Ok(Some(answer)) => answers.push(reported(session, answer)),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        decoded?;
        self.encoder.encode_all(answers, &mut out);
        Ok(out.freeze())
    }
}

/// The answer with a report, if it is one that is counted.
fn reported(session: &Session, answer: Envelope) -> Envelope {
    match ended(session, &answer) {
        // An answer that cannot be taken apart is passed on as it came.
        Some(report) => payload::add(&answer, FEEDBACK_KEY, &report).unwrap_or(answer),
        None => answer,
    }
}

fn ended(session: &Session, answer: &Envelope) -> Option<Vec<u8>> {
    let is_measurement = answer.opcode == Opcode::Result;
    let report = session.residents.borrow_mut().end(answer.stream, is_measurement)?;
    Some(feedback::write(&report))
}
