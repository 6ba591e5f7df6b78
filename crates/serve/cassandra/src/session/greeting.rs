//! Before the first request: OPTIONS, STARTUP, the login, REGISTER.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use evenkeel_cql::request::{AuthResponse, Register, Startup};
use evenkeel_cql::response::{self, AuthToken, Authenticate, Event};
use evenkeel_cql::{Envelope, Opcode, Version};

use super::{Phase, Session, Step, World};
use crate::front::Refusal;
use evenkeel_cql::client::{Answer, Challenge, Login};

/// The versions that are spoken here, as SUPPORTED names them.
const VERSIONS: [&str; 2] = ["4/v4", "5/v5"];
/// The compressions that are spoken here.
const COMPRESSIONS: [&str; 2] = ["lz4", "snappy"];

/// What the node that a client logs in at is told for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    /// OPTIONS, on a connection that need not be kept.
    Options,
    /// STARTUP, on a new connection.
    Startup(Bytes),
    /// AUTH_RESPONSE, on the connection of STARTUP.
    AuthResponse(Bytes),
}

impl Says {
    /// The message.
    pub(crate) fn parts(&self) -> (Opcode, Bytes) {
        match self {
            Self::Options => (Opcode::Options, Bytes::new()),
            Self::Startup(body) => (Opcode::Startup, body.clone()),
            Self::AuthResponse(body) => (Opcode::AuthResponse, body.clone()),
        }
    }
}

/// What nodes support, as far as it is spoken here too: the message of a SUPPORTED.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Supported(Bytes);

impl Supported {
    /// From the message of a node's SUPPORTED. Options that are not known here are left out: they
    /// are promises of the node.
    fn of(message: &[u8]) -> Option<Self> {
        let node = response::Supported::read(message).ok()?;
        let both = |name: &str, ours: &[&'static str]| -> Vec<&str> {
            let theirs = node.option(name);
            theirs.iter().copied().filter(|value| ours.contains(value)).collect()
        };
        let options = vec![
            ("CQL_VERSION", node.option("CQL_VERSION").to_vec()),
            ("COMPRESSION", COMPRESSIONS.to_vec()),
            ("PROTOCOL_VERSIONS", both("PROTOCOL_VERSIONS", &VERSIONS)),
        ];
        let options = options.into_iter().filter(|(_, values)| !values.is_empty()).collect();
        let mut message = BytesMut::new();
        response::Supported { options }.write(&mut message);
        Some(Self(message.freeze()))
    }
}

impl Session {
    pub(super) fn options(&self, stream: i16, world: &World<'_>) -> Step {
        match (world.supported)() {
            Some(Supported(message)) => Step::Reply(self.reply(stream, Opcode::Supported, message)),
            None => Step::Say(stream, Says::Options),
        }
    }

    pub(super) fn startup(&mut self, stream: i16, message: Bytes) -> Step {
        let refused = |session: &Self, words: String| {
            Step::NotStarted(session.refused(stream, &Refusal::protocol(words)))
        };
        let startup = match Startup::read(&message) {
            Ok(startup) => startup,
            Err(malformed) => return refused(self, malformed.to_string()),
        };
        let compression = match startup.compression(self.dialect.version) {
            Ok(compression) => compression,
            Err(name) => {
                let known = match self.dialect.version {
                    Version::V4 => "lz4, snappy or none",
                    Version::V5 => "lz4 or none in v5",
                };
                return refused(self, format!("compression {name:?} came, expected {known}"));
            }
        };
        if startup.option("NO_COMPACT").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            let words = "NO_COMPACT came, which changes what statements mean for a connection: \
                         this proxy's connections to nodes are shared, and do not have it";
            return refused(self, words.to_owned());
        }
        self.phase = Phase::Starting(compression);
        Step::Say(stream, Says::Startup(message))
    }

    pub(super) fn auth_response(&mut self, stream: i16, message: Bytes) -> Step {
        let token = match AuthResponse::read(&message) {
            // A copy: what was read from the socket is not kept for as long as the login is.
            Ok(AuthResponse { token }) => Bytes::copy_from_slice(token.unwrap_or_default()),
            Err(malformed) => return self.malformed(stream, malformed),
        };
        if let Phase::Authenticating { token: said, .. } = &mut self.phase {
            *said = Some(token);
        }
        Step::Say(stream, Says::AuthResponse(message))
    }

    pub(super) fn register(&self, stream: i16, message: &[u8]) -> Step {
        let register = match Register::read(message) {
            Ok(register) => register,
            Err(malformed) => return self.malformed(stream, malformed),
        };
        let known = [Event::TOPOLOGY_CHANGE, Event::STATUS_CHANGE, Event::SCHEMA_CHANGE];
        // As nodes do: names in any case.
        let is = |kind: &str, name: &str| kind.eq_ignore_ascii_case(name);
        let is_known = |kind: &&&str| known.iter().any(|name| is(kind, name));
        if let Some(kind) = register.kinds.iter().find(|kind| !is_known(kind)) {
            let words = format!("events {kind:?} came, expected one of {}", known.join(", "));
            return Step::Reply(self.refused(stream, &Refusal::protocol(words)));
        }
        let ready = self.reply(stream, Opcode::Ready, Bytes::new());
        match register.kinds.iter().any(|kind| is(kind, Event::SCHEMA_CHANGE)) {
            true => Step::Registered(ready),
            false => Step::Reply(ready),
        }
    }

    /// What the node said, and what of it is to be remembered for other clients.
    pub(crate) fn said(
        &mut self,
        stream: i16,
        says: &Says,
        answer: Result<Answer, Refusal>,
    ) -> (Step, Option<Supported>) {
        let answer = answer.unwrap_or_else(|refusal| refusal.answer());
        let reply = self.passed(stream, answer);
        let (step, supported) = match says {
            Says::Options => self.supported(reply),
            Says::Startup(_) => (self.started(reply), None),
            Says::AuthResponse(_) => (self.authenticated(reply), None),
        };
        if !matches!(step, Step::Prove(..)) {
            self.leave(stream);
        }
        (step, supported)
    }

    /// Whether a login could be replayed that a node has found good.
    pub(crate) fn proven(
        &mut self,
        stream: i16,
        reply: Envelope,
        outcome: Result<(), Refusal>,
    ) -> Step {
        self.leave(stream);
        match outcome {
            Ok(()) => {
                self.phase = Phase::Ready;
                Step::Reply(reply)
            }
            Err(refusal) => self.end(stream, &refusal),
        }
    }

    fn supported(&self, reply: Envelope) -> (Step, Option<Supported>) {
        if reply.opcode == Opcode::Error {
            return (Step::Reply(reply), None);
        }
        let supported = (reply.opcode == Opcode::Supported).then(|| Supported::of(&reply.body));
        let Some(Some(supported)) = supported else {
            return (Step::Reply(self.unexpected(&reply, "SUPPORTED")), None);
        };
        let reply = self.reply(reply.stream, Opcode::Supported, supported.0.clone());
        (Step::Reply(reply), Some(supported))
    }

    fn started(&mut self, reply: Envelope) -> Step {
        let Phase::Starting(compression) = self.phase else {
            return Step::End(self.unexpected(&reply, "nothing"));
        };
        match reply.opcode {
            Opcode::Ready => self.phase = Phase::Ready,
            Opcode::Authenticate => match Authenticate::read(&reply.body) {
                Ok(Authenticate { authenticator }) => {
                    let authenticator = authenticator.to_owned();
                    let (token, said) = (None, Vec::new());
                    self.phase = Phase::Authenticating { authenticator, token, said };
                }
                Err(_) => return self.not_started(&reply),
            },
            Opcode::Error => {
                self.phase = Phase::New;
                return Step::NotStarted(reply);
            }
            _ => return self.not_started(&reply),
        }
        Step::Started(reply, self.dialect.version, compression)
    }

    fn not_started(&mut self, reply: &Envelope) -> Step {
        self.phase = Phase::New;
        Step::NotStarted(self.unexpected(reply, "READY or AUTHENTICATE"))
    }

    fn authenticated(&mut self, reply: Envelope) -> Step {
        let Phase::Authenticating { authenticator, token, said } = &mut self.phase else {
            return Step::End(self.unexpected(&reply, "nothing"));
        };
        let token = token.take().unwrap_or_default();
        match reply.opcode {
            Opcode::AuthSuccess => {
                let login = login(std::mem::take(authenticator), std::mem::take(said), token);
                let is_one_message = login.further.is_empty();
                self.dialect.login = Some(Arc::new(login));
                if is_one_message {
                    self.phase = Phase::Ready;
                    return Step::Reply(reply);
                }
                self.phase = Phase::Proving;
                Step::Prove(reply.stream, reply)
            }
            // It may try another password, from the beginning.
            Opcode::Error => {
                said.clear();
                Step::Reply(reply)
            }
            Opcode::AuthChallenge => match AuthToken::read(&reply.body) {
                Ok(AuthToken { token: question }) => {
                    let question = Bytes::copy_from_slice(question.unwrap_or_default());
                    said.push((token, question));
                    Step::Reply(reply)
                }
                Err(_) => Step::End(self.unexpected(&reply, "AUTH_CHALLENGE that can be read")),
            },
            _ => Step::End(self.unexpected(&reply, "AUTH_SUCCESS or AUTH_CHALLENGE")),
        }
    }

    fn unexpected(&self, reply: &Envelope, expected: &str) -> Envelope {
        let words = format!("the node answered {}, expected {expected}", reply.opcode);
        self.refused(reply.stream, &Refusal::server_error(words))
    }
}

/// What was said, each with what was asked then, and what was said last.
fn login(authenticator: String, said: Vec<(Bytes, Bytes)>, last: Bytes) -> Login {
    let (mut answers, questions): (Vec<_>, Vec<_>) = said.into_iter().unzip();
    answers.push(last);
    let mut answers = answers.into_iter();
    let token = answers.next().expect("something was said last");
    let challenge = |(question, answer)| Challenge { question, answer };
    Login {
        authenticator,
        token,
        further: questions.into_iter().zip(answers).map(challenge).collect(),
    }
}
