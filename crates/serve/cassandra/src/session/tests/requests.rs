//! Statements: what is told of them, and where they go.

use evenkeel_core::Rng;
use evenkeel_core::request::Replay;
use evenkeel_core::request::ring::Token;
use evenkeel_cql::request::{
    BatchKind, Batched, Execute, Prepare, Statement as Part, Statements, Values,
};
use evenkeel_cql::statement::{Idempotence, Why};
use evenkeel_cql::types::Type;
use evenkeel_cql::{Reader, rows};

use super::*;
use crate::front::{Asked, Refusal};
use evenkeel_cql::client::Prepared;

/// A PREPARED for variables of these types in `k.t`; the first is the partition key.
fn prepared(version: Version, id: &[u8], variables: &[(&str, Type)], key: &[u16]) -> Answer {
    let mut body = BytesMut::new();
    body.put_i32(4);
    write::short_bytes(&mut body, id);
    if version == Version::V5 {
        write::short_bytes(&mut body, b"metadata");
    }
    body.put_i32(1); // one table
    body.put_i32(variables.len() as i32);
    body.put_i32(key.len() as i32);
    key.iter().for_each(|&place| body.put_u16(place));
    write::string(&mut body, "k");
    write::string(&mut body, "t");
    for (name, kind) in variables {
        write::string(&mut body, name);
        kind.write(&mut body);
    }
    body.put_i32(4); // no metadata of the result
    body.put_i32(0);
    answer(Opcode::Result, body.freeze())
}

impl Small {
    fn prepare(&mut self, text: &str, node: Answer) {
        let version = self.session.dialect().version;
        let prepare = Prepare { text, keyspace: None };
        let came = envelope(version, 5, Opcode::Prepare, |body| prepare.write(version, body));
        let Step::Ask(stream, request, then) = self.receive(came) else { panic!() };
        assert_eq!(request.what.replay, Replay::Always);
        let body = node.body.clone();
        let reply = self.answered(stream, then, node);
        assert_eq!((reply.stream, reply.body), (5, body), "as the node said it");
    }

    fn execute(&mut self, id: &[u8], values: &[&[u8]], timestamp: Option<i64>) -> Request {
        let came = execute(self.session.dialect().version, id, values, timestamp);
        self.asked(came).0
    }

    fn batch(&mut self, kind: BatchKind, parts: &[(Part<'_>, &[&[u8]])]) -> Step {
        let version = self.session.dialect().version;
        let came = batch(version, kind, parts);
        self.receive(came)
    }
}

fn execute(version: Version, id: &[u8], values: &[&[u8]], timestamp: Option<i64>) -> Envelope {
    let bound = bound(values);
    let values = Values::read(&mut Reader::new(&bound), false).unwrap();
    let mut parameters = QueryParameters::new(Consistency::One);
    parameters = QueryParameters { values, timestamp, ..parameters };
    let execute = Execute { id, result_metadata_id: b"metadata", parameters };
    envelope(version, 6, Opcode::Execute, |body| execute.write(version, body))
}

fn batch(version: Version, kind: BatchKind, parts: &[(Part<'_>, &[&[u8]])]) -> Envelope {
    let mut statements = Statements::new();
    for (statement, values) in parts {
        let bound = bound(values);
        let values = Values::read(&mut Reader::new(&bound), false).unwrap();
        statements.push(&Batched { statement: *statement, values });
    }
    let batch = statements.batch(kind, QueryParameters::new(Consistency::Quorum));
    envelope(version, 7, Opcode::Batch, |body| batch.write(version, body))
}

fn one() -> [u8; 4] {
    1_i32.to_be_bytes()
}

/// `SELECT token(1)` of a table whose key is an int, as every cluster answers it.
const TOKEN_OF_ONE: Token = Token(-4_069_959_284_402_364_209);

#[test]
fn what_a_query_tells_goes_with_it() {
    let mut small = Small::ready(Version::V4);
    let came = query(Version::V4, 1, "SELECT * FROM k.t WHERE a = 1", &[]);
    let (request, then) = small.asked(came.clone());
    assert!(matches!(then, Then::Pass));
    assert_eq!(request.ask.body, came.body, "unchanged");
    let Asked { keyspace, token, consistency, is_write, replay, .. } = request.what;
    assert_eq!((keyspace.as_deref(), token), (Some("k"), None));
    assert_eq!(consistency, Consistency::LocalQuorum);
    assert_eq!((is_write, replay), (false, Replay::Always));

    for (consistency, expected) in [
        (Consistency::Quorum, Replay::Always),
        (Consistency::Serial, Replay::AfterFailure),
        (Consistency::LocalSerial, Replay::AfterFailure),
    ] {
        let parameters = QueryParameters::new(consistency);
        let read = Query { text: "SELECT * FROM k.t WHERE a = 1", parameters };
        let came = envelope(Version::V4, 1, Opcode::Query, |body| read.write(Version::V4, body));
        assert_eq!(small.asked(came).0.what.replay, expected, "{consistency:?}");
    }

    let lwt = "INSERT INTO k.t (a) VALUES (1) IF NOT EXISTS";
    let (request, _) = small.asked(query(Version::V4, 1, lwt, &[]));
    let Asked { is_conditional, is_write, idempotence, replay, .. } = request.what;
    assert!(is_conditional && is_write);
    assert_eq!(idempotence, Idempotence::No(Why::Conditional));
    assert_eq!(replay, Replay::IfUnsent);
}

#[test]
fn a_prepared_statement_finds_its_replicas_and_its_text() {
    for version in [Version::V4, Version::V5] {
        let mut small = Small::ready(version);
        let text = "UPDATE k.t SET b = ? WHERE a = ?";
        let variables = [("b", Type::Text), ("a", Type::Int)];
        small.prepare(text, prepared(version, b"id1", &variables, &[1]));
        let request = small.execute(b"id1", &[b"x", &one()], Some(7));
        assert_eq!(request.what.token, Some(TOKEN_OF_ONE));
        assert_eq!(request.what.keyspace.as_deref(), Some("k"));
        assert_eq!(request.what.idempotence, Idempotence::Yes);
        let Prepared::One(known) = &request.ask.prepared else { panic!() };
        assert_eq!((&known.id[..], &*known.text), (&b"id1"[..], text));
        // Without a timestamp of the client a late copy could win.
        let request = small.execute(b"id1", &[b"x", &one()], None);
        assert_eq!(request.what.idempotence, Idempotence::WithTimestamp);
        assert_eq!(request.what.replay, Replay::IfUnsent);
    }
}

#[test]
fn bound_types_decide_what_the_text_leaves_open() {
    let mut small = Small::ready(Version::V4);
    let text = "UPDATE k.t SET b = b + ? WHERE a = ?";
    let set = [("b", Type::set(Type::Int)), ("a", Type::Int)];
    small.prepare(text, prepared(Version::V4, b"set", &set, &[1]));
    let counter = [("b", Type::Bytes(vec![0, 5])), ("a", Type::Int)];
    small.prepare(text, prepared(Version::V4, b"counter", &counter, &[1]));
    let of = |small: &mut Small, id| small.execute(id, &[b"", &one()], Some(7)).what.idempotence;
    assert_eq!(of(&mut small, b"set"), Idempotence::Yes);
    assert_eq!(of(&mut small, b"counter"), Idempotence::No(Why::Counter));
}

#[test]
fn what_nobody_knows_is_unprepared() {
    let mut small = Small::ready(Version::V4);
    let step = small.receive(execute(Version::V4, b"\x01\xFE", &[], None));
    let Step::Reply(reply) = &step else { panic!() };
    let error = Error::read(&reply.body, Version::V4).unwrap();
    assert_eq!(error.code, ErrorCode::Unprepared);
    assert!(error.message.contains("01fe"), "{}", error.message);
    assert!(reply.body.ends_with(b"\x00\x02\x01\xFE"));
    let parts: [(Part<'_>, &[&[u8]]); 1] = [(Part::Prepared(b"\x02"), &[])];
    assert_eq!(error_of(&small.batch(BatchKind::Logged, &parts)).0, ErrorCode::Unprepared);
    assert_eq!(small.session.in_flight(), 0);
}

#[test]
fn a_batch_goes_where_its_first_key_is_and_is_as_its_parts_are() {
    let mut small = Small::ready(Version::V4);
    let insert = "INSERT INTO k.t (a) VALUES (?)";
    small.prepare(insert, prepared(Version::V4, b"id", &[("a", Type::Int)], &[0]));
    let text = Part::Text("INSERT INTO other.t (a) VALUES (1) USING TIMESTAMP 5");
    let key = one();
    let bound: &[&[u8]] = &[&key];
    let parts = [(text, &[][..]), (Part::Prepared(b"id"), bound), (Part::Prepared(b"id"), bound)];
    let Step::Ask(_, request, _) = small.batch(BatchKind::Unlogged, &parts) else { panic!() };
    small.session.leave(7);
    assert_eq!(
        (request.what.keyspace.as_deref(), request.what.token),
        (Some("k"), Some(TOKEN_OF_ONE))
    );
    assert_eq!(request.what.idempotence, Idempotence::WithTimestamp);
    assert_eq!(request.what.consistency, Consistency::Quorum);
    assert!(matches!(request.ask.prepared, Prepared::One(_)), "one statement, twice");

    let of = |small: &mut Small, kind, parts: &[(Part<'_>, &[&[u8]])]| {
        let Step::Ask(_, request, _) = small.batch(kind, parts) else { panic!() };
        small.session.leave(7);
        (request.what.idempotence, request.what.is_conditional)
    };
    assert_eq!(of(&mut small, BatchKind::Logged, &[(text, &[])]), (Idempotence::Yes, false));
    let counters = of(&mut small, BatchKind::Counter, &[(text, &[])]);
    assert_eq!(counters, (Idempotence::No(Why::Counter), false));
    let conditional = Part::Text("DELETE FROM k.t WHERE a = 1 IF EXISTS");
    let both = [(text, &[][..]), (conditional, &[][..])];
    let both = of(&mut small, BatchKind::Logged, &both);
    assert_eq!(both, (Idempotence::No(Why::Conditional), true));
    let none = of(&mut small, BatchKind::Logged, &[]);
    assert!(!none.0.is_proven());
}

#[test]
fn use_asks_whether_the_keyspace_is_there_and_reaches_no_shared_connection() {
    let mut small = Small::ready(Version::V5);
    let came = query(Version::V5, 1, "USE \"It's\"", &[]);
    let Step::Ask(stream, request, then) = small.receive(came) else { panic!() };
    let asked = Query::read(&request.ask.body, Version::V5).unwrap();
    assert_eq!(
        asked.text,
        "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = 'It''s'"
    );
    let rows = |count: usize| {
        let mut writer = rows::Writer::new("system_schema", "keyspaces", &[("n", Type::Text)]);
        (0..count).for_each(|_| writer.value(Some(b"It's")).end_row());
        answer(Opcode::Result, writer.finish().freeze())
    };
    let reply = small.answered(stream, then, rows(1));
    assert_eq!(&reply.body[..], b"\0\0\0\x03\0\x04It's");
    assert_eq!(small.session.dialect().keyspace.as_deref(), Some("It's"));
    // From now on that is the keyspace of tables that name none.
    let (request, _) = small.asked(query(Version::V5, 1, "SELECT * FROM t", &[]));
    assert_eq!(request.what.keyspace.as_deref(), Some("It's"));
    assert_eq!(request.dialect.keyspace.as_deref(), Some("It's"));

    let Step::Ask(stream, request, then) = small.query("USE nowhere") else { panic!() };
    assert_eq!(request.dialect.keyspace, None, "the one before may be gone");
    let reply = small.answered(stream, then, rows(0));
    let expected = (ErrorCode::Invalid, "Keyspace 'nowhere' does not exist".to_owned());
    assert_eq!(error_in(&reply), expected);
    assert_eq!(small.session.dialect().keyspace.as_deref(), Some("It's"));

    let (request, _) = small.asked(query(Version::V5, 1, "USE system_views", &[]));
    let asked = Query::read(&request.ask.body, Version::V5).unwrap();
    assert!(asked.text.contains("FROM system_virtual_schema.keyspaces"), "{}", asked.text);
}

#[test]
fn the_keyspace_of_a_request_is_before_that_of_the_connection() {
    let mut small = Small::ready(Version::V5);
    let mut parameters = QueryParameters::new(Consistency::One);
    parameters.keyspace = Some("mine");
    let text = "SELECT * FROM t";
    let came = envelope(Version::V5, 1, Opcode::Query, |body| {
        Query { text, parameters }.write(Version::V5, body);
    });
    assert_eq!(small.asked(came).0.what.keyspace.as_deref(), Some("mine"));
}

#[test]
fn what_is_no_message_is_an_error_of_the_request_alone() {
    let mut small = Small::ready(Version::V4);
    let step = small.receive(envelope(Version::V4, 1, Opcode::Query, |body| body.put_u8(1)));
    assert!(matches!(step, Step::Reply(_)), "the connection stays: {step:?}");
    assert_eq!(error_of(&step).0, ErrorCode::ProtocolError);
}

#[test]
fn errors_and_flags_of_nodes_pass() {
    let mut small = Small::ready(Version::V4);
    let Step::Ask(stream, _, then) = small.query("SELECT * FROM k.t") else { panic!() };
    let refusal = Refusal::overloaded("too much");
    let reply = small.answered(stream, then, refusal.answer());
    assert_eq!(error_in(&reply).0, ErrorCode::Overloaded);
    let Step::Ask(stream, _, then) = small.query("SELECT * FROM k.t") else { panic!() };
    let flags = Flags::WARNING | Flags::TRACING;
    let body = Bytes::from_static(b"whatever");
    let node = Answer { opcode: Opcode::Result, flags, body: body.clone(), feedback: None };
    let reply = small.answered(stream, then, node);
    assert_eq!((reply.flags, reply.body), (flags, body));
}

#[test]
fn a_change_of_the_schema_is_told_when_all_nodes_know() {
    let mut small = Small::ready(Version::V5);
    let Step::Ask(stream, _, then) = small.query("CREATE TABLE k.t (a int PRIMARY KEY)") else {
        panic!()
    };
    let mut body = BytesMut::new();
    body.put_i32(5);
    for word in ["CREATED", "TABLE", "k", "t"] {
        write::string(&mut body, word);
    }
    let node = answer(Opcode::Result, body.clone().freeze());
    let step = small.with_world(|session, world| session.answered(stream, then, node, world));
    let Step::Settle(1, reply) = step else { panic!("{step:?}") };
    assert_eq!((reply.body, small.session.in_flight()), (body.freeze(), 1));
    small.session.settled(1);
    assert_eq!(small.session.in_flight(), 0);
}

/// Whatever comes in an envelope, it is answered, or asked, and nothing else is in flight.
#[test]
fn messages_that_are_damaged_are_refused_and_harm_nothing() {
    let mut rng = Rng::seeded(7);
    for version in [Version::V4, Version::V5] {
        let mut small = Small::ready(version);
        let insert = "INSERT INTO k.t (a) VALUES (?)";
        small.prepare(insert, prepared(version, b"id", &[("a", Type::Int)], &[0]));
        let key = one();
        let bound: &[&[u8]] = &[&key];
        let prepare = Prepare { text: insert, keyspace: None };
        let whole = [
            query(version, 1, "SELECT * FROM system.peers_v2 WHERE peer = ?", &[&[127, 0, 0, 1]]),
            query(version, 1, "USE k", &[]),
            execute(version, b"id", &[&key], Some(7)),
            batch(
                version,
                BatchKind::Logged,
                &[
                    (Part::Prepared(b"id"), bound),
                    (Part::Text("INSERT INTO k.t (a) VALUES (?)"), bound),
                ],
            ),
            envelope(version, 1, Opcode::Prepare, |body| prepare.write(version, body)),
        ];
        for _ in 0..20_000 {
            let mut came = whole[rng.below(whole.len())].clone();
            let mut body = came.body.to_vec();
            for _ in 0..rng.below(4) {
                let place = rng.below(body.len());
                body[place] = rng.bits() as u8;
            }
            body.truncate(body.len() - rng.below(8).saturating_sub(4).min(body.len()));
            came.body = body.into();
            came.flags = Flags(rng.bits() as u8 & rng.bits() as u8 & rng.bits() as u8 & 0xFE);
            let stream = came.stream;
            let size = came.body.len();
            match small.receive(came) {
                Step::Reply(reply) => assert_eq!(reply.stream, stream),
                Step::Ask(..) | Step::Agree(..) => {
                    assert_eq!(
                        (small.session.in_flight(), small.session.bytes_in_flight()),
                        (1, size)
                    );
                    small.session.leave(stream);
                }
                other => panic!("{other:?}"),
            }
            assert_eq!((small.session.in_flight(), small.session.bytes_in_flight()), (0, 0));
        }
    }
}
