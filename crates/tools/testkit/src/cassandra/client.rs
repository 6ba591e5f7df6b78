//! A client that says exactly what a test wants said, one request after the other or several at
//! once: no retries, no pool, no thread.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::codec::{Compression, Decoder, Encoder, Limits, Side};
use evenkeel_cql::request::{AuthResponse, Query, QueryParameters, Startup};
use evenkeel_cql::response::{Error, Result as Outcome};
use evenkeel_cql::{Envelope, Flags, Opcode, Version, payload};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};

use crate::wait::block_until;

/// Longer than any answer takes.
const ANSWER_MAX: Duration = Duration::from_secs(30);

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// One connection.
pub struct Client {
    stream: Box<dyn Stream>,
    /// Of the protocol.
    pub version: Version,
    encoder: Encoder,
    decoder: Decoder,
    heard: BytesMut,
    next: i16,
}

/// A row's values.
pub type Row = Vec<Option<Vec<u8>>>;

impl Client {
    /// Connects, starts, and logs in where that is asked for, as `cassandra`.
    pub fn connect(
        to: SocketAddr,
        version: Version,
        compression: Option<Compression>,
    ) -> io::Result<Self> {
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Self::start(Box::new(stream), version, compression)
    }

    /// The same over TLS, to a server whose certificate this authority has signed.
    pub fn connect_tls(to: SocketAddr, authority: &str, version: Version) -> io::Result<Self> {
        Self::connect_tls_of(rustls::ALL_VERSIONS, to, authority, version)
    }

    /// The same in one of these versions of TLS.
    pub fn connect_tls_of(
        versions: &[&'static rustls::SupportedProtocolVersion],
        to: SocketAddr,
        authority: &str,
        version: Version,
    ) -> io::Result<Self> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let config = rustls::ClientConfig::builder_with_protocol_versions(versions);
        let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        let name = ServerName::IpAddress(to.ip().into());
        let session = rustls::ClientConnection::new(config, name).map_err(io::Error::other)?;
        let stream = TcpStream::connect(to)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        Self::start(Box::new(rustls::StreamOwned::new(session, stream)), version, None)
    }

    fn start(
        stream: Box<dyn Stream>,
        version: Version,
        compression: Option<Compression>,
    ) -> io::Result<Self> {
        let decoder = Decoder::new(Side::Server, Limits::default());
        let (encoder, heard) = (Encoder::new(), BytesMut::new());
        let mut this = Self { stream, version, encoder, decoder, heard, next: 0 };
        let mut options = vec![Startup::CQL_VERSION];
        options.extend(compression.map(|compression| ("COMPRESSION", compression.name())));
        let mut body = Vec::new();
        Startup { options }.write(&mut body);
        this.send(Opcode::Startup, Flags::NONE, body.into())?;
        this.decoder.start(version, compression);
        let mut answer = this.receive()?;
        this.encoder.start(version, compression);
        if answer.opcode == Opcode::Authenticate {
            let token = AuthResponse::plain("cassandra", "cassandra");
            let mut body = Vec::new();
            AuthResponse { token: Some(&token) }.write(&mut body);
            answer = this.ask(Opcode::AuthResponse, Flags::NONE, body.into())?;
        }
        if matches!(answer.opcode, Opcode::Ready | Opcode::AuthSuccess) {
            return Ok(this);
        }
        Err(io::Error::other(format!("not started: {}", reported(&answer))))
    }

    /// Sends one request; answers its stream.
    pub fn send(&mut self, opcode: Opcode, flags: Flags, body: Bytes) -> io::Result<i16> {
        let stream = self.next;
        self.next = (self.next + 1) % 32_000;
        let mut envelope = Envelope::new(self.version, stream, opcode, body);
        envelope.flags = flags;
        let mut bytes = BytesMut::new();
        self.encoder.encode(&envelope, &mut bytes);
        self.stream.write_all(&bytes)?;
        self.stream.flush()?;
        Ok(stream)
    }

    /// The next envelope, an event too.
    pub fn receive(&mut self) -> io::Result<Envelope> {
        loop {
            if let Some(envelope) =
                self.decoder.decode(&mut self.heard).map_err(io::Error::other)?
            {
                return Ok(envelope);
            }
            let mut buffer = [0; 16 * 1_024];
            let read = self.stream.read(&mut buffer)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.heard.extend_from_slice(&buffer[..read]);
        }
    }

    /// Sends one request and waits for its answer.
    pub fn ask(&mut self, opcode: Opcode, flags: Flags, body: Bytes) -> io::Result<Envelope> {
        let stream = self.send(opcode, flags, body)?;
        let answer = self.receive()?;
        assert_eq!(answer.stream, stream, "the answer to something else: {}", reported(&answer));
        Ok(answer)
    }

    /// A statement as text; the answer as it came.
    pub fn query(&mut self, text: &str, consistency: Consistency) -> io::Result<Envelope> {
        let mut body = Vec::new();
        let parameters = QueryParameters::new(consistency);
        Query { text, parameters }.write(self.version, &mut body);
        self.ask(Opcode::Query, Flags::NONE, body.into())
    }

    /// A statement that must succeed, and its rows.
    #[track_caller]
    pub fn rows(&mut self, text: &str) -> Vec<Row> {
        let answer = self.query(text, Consistency::LocalQuorum).unwrap();
        assert_eq!(answer.opcode, Opcode::Result, "{text}: {}", reported(&answer));
        rows_of(&answer)
    }

    /// Changes the schema and waits, as drivers do, until all nodes have the change.
    #[track_caller]
    pub fn change(&mut self, text: &str) {
        self.rows(text);
        block_until(&format!("nodes agree on {text}"), || {
            let mut versions =
                self.rows("SELECT schema_version FROM system.local WHERE key='local'");
            versions.extend(self.rows("SELECT schema_version FROM system.peers"));
            versions.iter().all(|version| *version == versions[0])
        });
    }
}

/// The rows of an answer; none when it has none.
#[must_use]
pub fn rows_of(answer: &Envelope) -> Vec<Row> {
    let Outcome::Rows(rows) = Outcome::read(message(answer), answer.version).unwrap() else {
        return Vec::new();
    };
    rows.iter().map(|row| row.iter().map(|value| value.map(<[u8]>::to_vec)).collect()).collect()
}

/// The body after what its flags announce.
#[must_use]
pub fn message(envelope: &Envelope) -> &[u8] {
    payload::split(envelope).unwrap().message
}

/// An answer for people: an error's code and text.
#[must_use]
pub fn reported(answer: &Envelope) -> String {
    if answer.opcode != Opcode::Error {
        return format!("{}, {} bytes", answer.opcode.name(), answer.body.len());
    }
    match Error::read(message(answer), answer.version) {
        Ok(error) => format!("{}: {}", error.code.name(), error.message),
        Err(malformed) => format!("ERROR that cannot be read: {malformed}"),
    }
}
