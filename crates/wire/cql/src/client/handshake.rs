//! From a fresh connection to one that requests can be put on: `STARTUP`, login, keyspace.

use std::rc::Rc;

use crate::codec::Compression;
use crate::request::{AuthResponse, Query, QueryParameters, Startup};
use crate::response::AuthToken;
use crate::{Envelope, ErrorCode, Flags, Opcode, Reader, Version};
use bytes::{Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;

use super::FEEDBACK_OPTION;
use super::dialect::Dialect;
use super::error::{End, SendError, SendErrorKind};
use super::ledger::Ledger;
use super::wire::Wire;

/// Opens a connection that speaks this dialect.
pub(super) async fn open(ledger: &Rc<Ledger>, dialect: &Dialect) -> Result<Wire, SendError> {
    let patience = ledger.limits().connect;
    let opening = Opening { ledger, dialect };
    match tokio::time::timeout(patience, opening.run()).await {
        Ok(opened) => opened,
        Err(_) => {
            let why = format!("a connection could not be used within {patience:?}");
            Err(SendError::unsent(SendErrorKind::ConnectTimedOut, ledger.address(), why))
        }
    }
}

struct Opening<'a> {
    ledger: &'a Ledger,
    dialect: &'a Dialect,
}

impl Opening<'_> {
    async fn run(&self) -> Result<Wire, SendError> {
        let (ledger, dialect) = (self.ledger, self.dialect);
        let limits = ledger.limits();
        let wire = Wire::open(ledger.address(), limits, dialect.version).await;
        let mut wire = wire.map_err(|end| self.failed(end))?;
        // What v5 has no room for is not asked for.
        let compression =
            limits.compression.and_then(|wish| Compression::of(wish.name(), dialect.version));
        wire.starting(compression);
        let answer = self.exchange(&mut wire, Opcode::Startup, self.startup(compression)).await?;
        match answer.opcode {
            Opcode::Ready => wire.started(compression),
            Opcode::Authenticate => {
                wire.started(compression);
                self.log_in(&mut wire, &answer).await?;
            }
            _ => return Err(self.unexpected("STARTUP", "READY or AUTHENTICATE", answer)),
        }
        if let Some(keyspace) = &dialect.keyspace {
            let body = use_keyspace(keyspace, dialect.version);
            let answer = self.exchange(&mut wire, Opcode::Query, body).await?;
            if answer.opcode != Opcode::Result {
                return Err(self.unexpected("USE", "RESULT", answer));
            }
        }
        Ok(wire)
    }

    fn startup(&self, compression: Option<Compression>) -> Bytes {
        let limits = self.ledger.limits();
        let mut options = vec![
            Startup::CQL_VERSION,
            ("DRIVER_NAME", "Evenkeel"),
            ("DRIVER_VERSION", env!("CARGO_PKG_VERSION")),
        ];
        if let Some(compression) = compression {
            options.push(("COMPRESSION", compression.name()));
        }
        if limits.throws_on_overload {
            options.push(("THROW_ON_OVERLOAD", "1"));
        }
        if limits.asks_for_feedback {
            options.push((FEEDBACK_OPTION, "1"));
        }
        let mut body = BytesMut::new();
        Startup { options }.write(&mut body);
        body.freeze()
    }

    async fn log_in(&self, wire: &mut Wire, asked: &Envelope) -> Result<(), SendError> {
        let wanted = Reader::new(&asked.body).string("authenticator").unwrap_or("?");
        let Some(login) = &self.dialect.login else {
            let why = format!("it wants a login ({wanted}), and the client gave none");
            return Err(self.error(SendErrorKind::Authentication, why));
        };
        let mut answer = self.respond(wire, &login.token).await?;
        let mut further = login.further.iter();
        while answer.opcode == Opcode::AuthChallenge {
            let known = further.next();
            let asked = AuthToken::read(&answer.body).ok().and_then(|asked| asked.token);
            let known = known.filter(|known| known.question == asked.unwrap_or_default());
            let Some(known) = known else {
                let why = format!(
                    "{wanted} asks what the login has no answer to: one is replayed where the \
                     same answers do on every connection"
                );
                return Err(self.error(SendErrorKind::Authentication, why));
            };
            answer = self.respond(wire, &known.answer).await?;
        }
        match answer.opcode {
            Opcode::AuthSuccess => Ok(()),
            _ => Err(self.unexpected("AUTH_RESPONSE", "AUTH_SUCCESS", answer)),
        }
    }

    async fn respond(&self, wire: &mut Wire, token: &Bytes) -> Result<Envelope, SendError> {
        let mut body = BytesMut::new();
        AuthResponse { token: Some(token) }.write(&mut body);
        self.exchange(wire, Opcode::AuthResponse, body.freeze()).await
    }

    async fn exchange(
        &self,
        wire: &mut Wire,
        opcode: Opcode,
        body: Bytes,
    ) -> Result<Envelope, SendError> {
        wire.exchange(opcode, Flags::NONE, body).await.map_err(|end| self.failed(end))
    }

    fn failed(&self, end: End) -> SendError {
        end.at(self.ledger.address())
    }

    fn error(&self, kind: SendErrorKind, why: String) -> SendError {
        SendError::unsent(kind, self.ledger.address(), why)
    }

    /// What came is an error in the node's words, or nonsense.
    fn unexpected(&self, asked: &str, expected: &str, answer: Envelope) -> SendError {
        if answer.opcode != Opcode::Error {
            let why = format!("{} came to {asked}, expected {expected}", answer.opcode);
            return self.error(SendErrorKind::Protocol, why);
        }
        let (code, message) = error_of(&answer);
        let kind = match code {
            Some(ErrorCode::BadCredentials) => SendErrorKind::Authentication,
            Some(ErrorCode::ProtocolError) => SendErrorKind::Protocol,
            _ => SendErrorKind::Refused,
        };
        let why = format!("it refused {asked}: {message}");
        self.error(kind, why).with_answer(answer.into())
    }
}

/// Code and message of an `ERROR`, as far as they can be read.
pub(super) fn error_of(answer: &Envelope) -> (Option<ErrorCode>, &str) {
    let mut reader = Reader::new(&answer.body);
    let code = reader.int("code").ok().and_then(|code| ErrorCode::of(code.cast_unsigned()));
    (code, reader.string("message").unwrap_or("an error that cannot be read"))
}

/// `USE`, with the keyspace's name letter by letter.
fn use_keyspace(keyspace: &str, version: Version) -> Bytes {
    let text = format!("USE \"{}\"", keyspace.replace('"', "\"\""));
    let mut body = BytesMut::new();
    let parameters = QueryParameters::new(Consistency::One);
    Query { text: &text, parameters }.write(version, &mut body);
    body.freeze()
}
