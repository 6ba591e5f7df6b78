//! One client's conversation, without its socket: messages in, what is to be done out.
//!
//! [`Session::receive`] takes a message and says what it needs: an answer that is known at once, a
//! request to the nodes ([`Step::Ask`]), a word to the node that the client logs in at
//! ([`Step::Say`]). What comes of those goes back in ([`Session::answered`], [`Session::said`])
//! and gives the answer for the client.
//!
//! *What clients are told is the nodes' word wherever there is one.* Made here are: what a
//! connection is (STARTUP's compression, versions, events), what drivers learn the cluster by
//! ([`system`](super::system)), and `USE`, which must not reach a connection that others share.

mod greeting;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use evenkeel_cql::codec::Compression;
use evenkeel_cql::response::{self, Rows};
use evenkeel_cql::{Envelope, Flags, Malformed, Opcode, Version, payload};

use super::cluster::Cluster;
use super::front::{Refusal, Request};
use super::prepared::StatementView;
use super::system::{Proxies, Proxy, View};
use evenkeel_cql::client::{Answer, Dialect};

pub(crate) use greeting::{Says, Supported};
use requests::Text;

/// What a session may look at.
pub(crate) struct World<'a> {
    /// The prepared statements.
    pub(crate) statements: &'a StatementView,
    /// What is known of the cluster; asked for only where it is needed.
    pub(crate) cluster: &'a dyn Fn() -> Arc<Cluster>,
    /// What nodes said last that they support, if one did lately.
    pub(crate) supported: &'a dyn Fn() -> Option<Supported>,
    /// Whether the cluster's tokens are those of the default partitioner: no others are made here.
    pub(crate) is_murmur: bool,
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Step {
    /// The answer to a request.
    Reply(Envelope),
    /// An answer after which the connection ends.
    End(Envelope),
    /// The answer to STARTUP, after which both directions are encoded like this.
    Started(Envelope, Version, Option<Compression>),
    /// The answer to a STARTUP that is refused: the client may try again.
    NotStarted(Envelope),
    /// READY for events: they may come from now on.
    Registered(Envelope),
    /// The nodes are to be asked.
    Ask(i16, Box<Request>, Then),
    /// The node that the client logs in at is to be told this.
    Say(i16, Says),
    /// The login is to be replayed on another connection before this, which says that it is good.
    Prove(i16, Envelope),
    /// The answer is to be made when the nodes agree on their schema.
    Agree(i16, Agreement),
    /// The answer, which tells of a change of the schema, is to be kept back until they do.
    Settle(i16, Envelope),
}

/// What becomes of the answer of nodes.
#[derive(Debug)]
pub(crate) enum Then {
    /// It is the client's.
    Pass,
    /// So it is, and what it tells of a prepared statement is taken down.
    Learn(Box<Text>),
    /// It says whether this keyspace exists, which the client wants to use.
    Enter(Arc<str>),
    /// Only its tracing is the client's; this is the message.
    Trace(Bytes),
}

/// The answer to a driver's question whether nodes agree on the schema.
#[derive(Debug)]
pub(crate) struct Agreement {
    /// The cluster as of the versions that were found, and what was asked of it.
    asked: requests::SystemAsked,
}

/// How far a client has come.
#[derive(Debug)]
enum Phase {
    /// It has not said STARTUP, or was refused.
    New,
    /// The node has not answered its STARTUP.
    Starting(Option<Compression>),
    /// It must say who it is.
    Authenticating {
        authenticator: String,
        /// What was said last and is not answered.
        token: Option<Bytes>,
        /// What was said before, each with what was asked then.
        said: Vec<(Bytes, Bytes)>,
    },
    /// It is found out whether its login, of several messages, can be replayed.
    Proving,
    /// It may ask.
    Ready,
}

/// One client's conversation.
#[derive(Debug)]
pub(crate) struct Session {
    own: Proxy,
    /// All proxies, its own among them.
    proxies: Proxies,
    phase: Phase,
    dialect: Dialect,
    /// The streams in flight, with the bytes of their requests.
    streams: BTreeMap<i16, usize>,
    bytes_in_flight: usize,
}

impl Session {
    /// Of a client that is connected to this proxy, which is among all of them.
    pub(crate) fn new(own: Proxy, proxies: Proxies) -> Self {
        let dialect = Dialect { version: Version::V5, keyspace: None, login: None };
        let (phase, streams) = (Phase::New, BTreeMap::new());
        Self { own, proxies, phase, dialect, streams, bytes_in_flight: 0 }
    }

    /// Whether the client may ask.
    pub(crate) const fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready)
    }

    /// How the client speaks.
    pub(crate) const fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// Requests that are not answered.
    pub(crate) fn in_flight(&self) -> usize {
        self.streams.len()
    }

    /// The bytes of these.
    pub(crate) const fn bytes_in_flight(&self) -> usize {
        self.bytes_in_flight
    }

    /// A message of the client.
    pub(crate) fn receive(&mut self, envelope: Envelope, world: &World<'_>) -> Step {
        let stream = envelope.stream;
        if matches!(self.phase, Phase::New) {
            self.dialect.version = envelope.version;
        }
        if stream < 0 {
            let words = format!("stream {stream} came, expected 0 to 32767 (below 0 are events)");
            return self.end(stream, &Refusal::protocol(words));
        }
        if self.streams.contains_key(&stream) {
            let words = format!(
                "{} came on stream {stream}, on which a request is not answered yet",
                envelope.opcode
            );
            return self.end(stream, &Refusal::protocol(words));
        }
        let size = envelope.body.len();
        let step = self.decide(envelope, world);
        if let Step::Ask(..) | Step::Say(..) | Step::Agree(..) = step {
            self.streams.insert(stream, size);
            self.bytes_in_flight += size;
        }
        step
    }

    fn decide(&mut self, envelope: Envelope, world: &World<'_>) -> Step {
        let stream = envelope.stream;
        let message = match payload::message(&envelope) {
            Ok(message) => message,
            Err(malformed) => return self.malformed(stream, malformed),
        };
        match (&self.phase, envelope.opcode) {
            (Phase::New | Phase::Ready, Opcode::Options) => self.options(stream, world),
            (Phase::New, Opcode::Startup) => self.startup(stream, message),
            (Phase::Authenticating { token: None, .. }, Opcode::AuthResponse) => {
                self.auth_response(stream, message)
            }
            (Phase::Ready, Opcode::Register) => self.register(stream, &message),
            (Phase::Ready, Opcode::Query | Opcode::Prepare | Opcode::Execute | Opcode::Batch) => {
                self.request(envelope, &message, world)
            }
            (phase, opcode) => {
                let expected = match phase {
                    Phase::New => "STARTUP or OPTIONS",
                    Phase::Starting(_) => "nothing until STARTUP is answered",
                    Phase::Authenticating { token: None, .. } => "AUTH_RESPONSE",
                    Phase::Authenticating { .. } | Phase::Proving => {
                        "nothing until AUTH_RESPONSE is answered"
                    }
                    Phase::Ready => "OPTIONS, QUERY, PREPARE, EXECUTE, BATCH or REGISTER",
                };
                let words = format!("{opcode} came, expected {expected}");
                self.end(stream, &Refusal::protocol(words))
            }
        }
    }

    /// What the nodes answered.
    pub(crate) fn answered(
        &mut self,
        stream: i16,
        then: Then,
        answer: Answer,
        world: &World<'_>,
    ) -> Step {
        let reply = self.reported(stream, then, answer, world);
        if has_kind(&reply, SCHEMA_CHANGE) {
            return Step::Settle(stream, reply);
        }
        self.leave(stream);
        Step::Reply(reply)
    }

    /// What told of a change of the schema is answered.
    pub(crate) fn settled(&mut self, stream: i16) {
        self.leave(stream);
    }

    fn reported(&mut self, stream: i16, then: Then, answer: Answer, world: &World<'_>) -> Envelope {
        let reply = self.passed(stream, answer);
        if reply.opcode == Opcode::Error {
            return match then {
                // Why a tracing failed is not what was asked.
                Then::Trace(message) => self.reply(stream, Opcode::Result, message),
                _ => reply,
            };
        }
        match then {
            Then::Pass => {
                self.follow(&reply);
                reply
            }
            Then::Learn(text) => {
                // What cannot be read here can be read there, and is told as unknown later.
                let _ = text.learn(&reply, world);
                reply
            }
            Then::Enter(keyspace) => self.enter(reply, keyspace),
            Then::Trace(message) => traced(&reply, &message),
        }
    }

    /// The schema versions of the nodes, for a driver that waits until they are one.
    pub(crate) fn agreed(
        &mut self,
        stream: i16,
        agreement: &Agreement,
        versions: &[[u8; 16]],
        world: &World<'_>,
    ) -> Envelope {
        self.leave(stream);
        let &[version] = versions else {
            let words = match versions.len() {
                0 => "no node says which version of the schema it has".to_owned(),
                count => format!(
                    "the nodes have {count} versions of the schema and did not agree in time \
                     (is one of them cut off from the others?)"
                ),
            };
            return self.refused(stream, &Refusal::overloaded(words));
        };
        let cluster = Cluster { schema_version: Some(version), ..(*(world.cluster)()).clone() };
        match agreement.asked.answer(&self.view(&cluster)) {
            Ok(message) => self.reply(stream, Opcode::Result, message),
            Err(refusal) => self.refused(stream, &refusal),
        }
    }

    /// Gives a stream free: its request is answered.
    fn leave(&mut self, stream: i16) {
        let size = self.streams.remove(&stream).expect("answers are of requests in flight");
        self.bytes_in_flight -= size;
    }

    fn view<'a>(&'a self, cluster: &'a Cluster) -> View<'a> {
        View { cluster, proxies: &self.proxies, own: &self.own }
    }

    /// An answer of a node as the client's.
    fn passed(&self, stream: i16, answer: Answer) -> Envelope {
        let Answer { opcode, flags, body, .. } = answer;
        Envelope { flags, ..Envelope::new(self.dialect.version, stream, opcode, body) }
    }

    fn reply(&self, stream: i16, opcode: Opcode, message: Bytes) -> Envelope {
        Envelope::new(self.dialect.version, stream, opcode, message)
    }

    /// An error of ours after which the connection ends.
    pub(crate) fn end(&self, stream: i16, refusal: &Refusal) -> Step {
        Step::End(self.refused(stream, refusal))
    }

    fn refused(&self, stream: i16, refusal: &Refusal) -> Envelope {
        self.reply(stream, Opcode::Error, refusal.body())
    }

    fn malformed(&self, stream: i16, malformed: Malformed) -> Step {
        Step::Reply(self.refused(stream, &Refusal::protocol(malformed.to_string())))
    }

    /// A statement that is not known to set the keyspace may have set it.
    fn follow(&mut self, reply: &Envelope) {
        if !has_kind(reply, SET_KEYSPACE) {
            return;
        }
        let Ok(parts) = payload::split(reply) else { return };
        let read = response::Result::read(parts.message, reply.version);
        if let Ok(response::Result::SetKeyspace(keyspace)) = read {
            self.dialect.keyspace = Some(keyspace.into());
        }
    }

    /// The client wants to use this keyspace, and the reply says whether it is there.
    fn enter(&mut self, reply: Envelope, keyspace: Arc<str>) -> Envelope {
        let Ok(parts) = payload::split(&reply) else { return reply };
        let read = response::Result::read(parts.message, reply.version);
        let is_there = match read {
            Ok(response::Result::Rows(Rows { count, .. })) => count > 0,
            _ => return reply,
        };
        if !is_there {
            // In the words of a node.
            let refusal = Refusal::invalid(format!("Keyspace '{keyspace}' does not exist"));
            return self.refused(reply.stream, &refusal);
        }
        let mut message = BytesMut::new();
        response::Result::write_set_keyspace(&keyspace, &mut message);
        self.dialect.keyspace = Some(keyspace);
        traced(&reply, &message)
    }
}

/// What RESULTs of these kinds begin with.
const SET_KEYSPACE: [u8; 4] = 3_i32.to_be_bytes();
const SCHEMA_CHANGE: [u8; 4] = 5_i32.to_be_bytes();

fn has_kind(reply: &Envelope, kind: [u8; 4]) -> bool {
    let starts = |message: &[u8]| message.starts_with(&kind);
    reply.opcode == Opcode::Result && payload::split(reply).is_ok_and(|parts| starts(parts.message))
}

/// A RESULT of ours with the tracing of a node's.
fn traced(reply: &Envelope, message: &[u8]) -> Envelope {
    let tracing = payload::split(reply).ok().and_then(|parts| parts.tracing_id);
    let (flags, tracing) = match &tracing {
        Some(tracing) => (Flags::TRACING, &tracing[..]),
        None => (Flags::NONE, &[][..]),
    };
    let body = Bytes::from([tracing, message].concat());
    Envelope { flags, ..Envelope::new(reply.version, reply.stream, Opcode::Result, body) }
}
