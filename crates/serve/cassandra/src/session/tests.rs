//! Conversations without sockets.

mod greeting;
mod requests;
mod system;

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::request::{Query, QueryParameters, Startup};
use evenkeel_cql::response::Error;
use evenkeel_cql::{Envelope, ErrorCode, Flags, Opcode, Version, write};

use super::{Session, Step, Supported, Then, World};
use crate::cluster::{Cluster, Member};
use crate::front::Request;
use crate::prepared::{PreparedStatements, StatementView};
use crate::system::{Proxies, Proxy};
use evenkeel_cql::client::Answer;

/// A session in a small world.
struct Small {
    session: Session,
    statements: StatementView,
    cluster: Arc<Cluster>,
    supported: Option<Supported>,
}

fn proxy(datacenter: &str, address: &str) -> Proxy {
    let address = address.parse().unwrap();
    Proxy { datacenter: datacenter.into(), address, rack: "r1".into() }
}

fn cluster() -> Cluster {
    let node = Member {
        address: "127.0.0.9:9042".parse().unwrap(),
        reported: "127.0.0.9:9042".parse().unwrap(),
        host_id: [9; 16],
        datacenter: "east".to_owned(),
        rack: "rack9".to_owned(),
        release_version: "5.0.9".to_owned(),
        tokens: Vec::new(),
        is_up: true,
    };
    Cluster {
        name: "the cluster".to_owned(),
        partitioner: "org.apache.cassandra.dht.Murmur3Partitioner".to_owned(),
        release_version: "5.0.9".to_owned(),
        cql_version: "3.4.7".to_owned(),
        schema_version: Some([7; 16]),
        nodes: vec![node],
        ..Cluster::default()
    }
}

impl Small {
    /// Connected to the first of these.
    fn at(proxies: Vec<Proxy>) -> Self {
        let own = proxies[0].clone();
        Self {
            session: Session::new(own, Proxies::new(proxies)),
            statements: StatementView::new(Arc::new(PreparedStatements::new(1 << 20))),
            cluster: Arc::new(cluster()),
            supported: None,
        }
    }

    fn new() -> Self {
        Self::at(vec![proxy("east", "127.0.0.1:9042")])
    }

    /// Logged in where nobody is asked for a password.
    fn ready(version: Version) -> Self {
        let mut small = Self::new();
        small.start(version);
        small
    }

    fn start(&mut self, version: Version) {
        let Step::Say(stream, says) = self.receive(startup(version, 1, &[])) else { panic!() };
        let (step, _) = self.session.said(stream, &says, Ok(answer(Opcode::Ready, Bytes::new())));
        assert!(matches!(step, Step::Started(..)), "{step:?}");
    }

    fn with_world<T>(&mut self, tell: impl FnOnce(&mut Session, &World<'_>) -> T) -> T {
        let cluster = || Arc::clone(&self.cluster);
        let supported = || self.supported.clone();
        let world = World {
            statements: &self.statements,
            cluster: &cluster,
            supported: &supported,
            is_murmur: true,
        };
        tell(&mut self.session, &world)
    }

    fn receive(&mut self, envelope: Envelope) -> Step {
        self.with_world(|session, world| session.receive(envelope, world))
    }

    fn answered(&mut self, stream: i16, then: Then, answer: Answer) -> Envelope {
        match self.with_world(|session, world| session.answered(stream, then, answer, world)) {
            Step::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// What goes to the nodes of a statement as text.
    fn query(&mut self, text: &str) -> Step {
        let version = self.session.dialect().version;
        self.receive(query(version, 1, text, &[]))
    }

    /// The same, where it must go there.
    fn asked(&mut self, envelope: Envelope) -> (Request, Then) {
        let stream = envelope.stream;
        match self.receive(envelope) {
            Step::Ask(_, request, then) => {
                self.session.leave(stream);
                (*request, then)
            }
            other => panic!("{other:?}"),
        }
    }
}

fn answer(opcode: Opcode, body: Bytes) -> Answer {
    Answer { opcode, flags: Flags::NONE, body, feedback: None }
}

fn envelope(
    version: Version,
    stream: i16,
    opcode: Opcode,
    put: impl FnOnce(&mut BytesMut),
) -> Envelope {
    let mut body = BytesMut::new();
    put(&mut body);
    Envelope::new(version, stream, opcode, body.freeze())
}

fn startup(version: Version, stream: i16, options: &[(&str, &str)]) -> Envelope {
    let options = [&[Startup::CQL_VERSION], options].concat();
    envelope(version, stream, Opcode::Startup, |body| Startup { options }.write(body))
}

/// A QUERY with these values bound.
fn query(version: Version, stream: i16, text: &str, values: &[&[u8]]) -> Envelope {
    let bound = bound(values);
    let mut reader = evenkeel_cql::Reader::new(&bound);
    let mut parameters = QueryParameters::new(Consistency::LocalQuorum);
    parameters.values = evenkeel_cql::request::Values::read(&mut reader, false).unwrap();
    let query = Query { text, parameters };
    envelope(version, stream, Opcode::Query, |body| query.write(version, body))
}

/// Values as requests have them.
fn bound(values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_u16(values.len() as u16);
    for value in values {
        write::bytes(&mut bytes, Some(value));
    }
    bytes
}

/// The code and the words of the ERROR that a step is.
fn error_of(step: &Step) -> (ErrorCode, String) {
    match step {
        Step::Reply(reply) | Step::End(reply) | Step::NotStarted(reply) => error_in(reply),
        other => panic!("{other:?}"),
    }
}

fn error_in(reply: &Envelope) -> (ErrorCode, String) {
    assert_eq!(reply.opcode, Opcode::Error, "{reply:?}");
    let error = Error::read(&reply.body, reply.version).unwrap();
    (error.code, error.message.to_owned())
}
