//! What the Java driver's library says nodes send is read, and what is written here for the same
//! answer is the same bytes. `vectors/JavaDriver.java` says how its bytes were made.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::codec::Side;
use evenkeel_cql::key::KeyPlan;
use evenkeel_cql::request::{Bound, Execute, Query, QueryParameters};
use evenkeel_cql::response::{
    Answered, AuthToken, Authenticate, Error, Event, Failures, Fields, Prepared, Result,
    SchemaChange, SchemaTarget, Supported,
};
use evenkeel_cql::rows::{Writer, write_prepared};
use evenkeel_cql::types::Type;
use evenkeel_cql::{Envelope, ErrorCode, Flags, Inet, Opcode, Value, Version, payload, value};

use crate::common::{bytes, decode, decode_all, encode, encoder, started, vectors};

const VECTORS: &str = include_str!("../vectors/java_driver.txt");
const ID: [u8; 16] = 0x0011_2233_4455_6677_8899_AABB_CCDD_EEFF_u128.to_be_bytes();
const METADATA_ID: [u8; 16] = 0xFFEE_DDCC_BBAA_9988_7766_5544_3322_1100_u128.to_be_bytes();

fn vector(version: Version, name: &str) -> Vec<u8> {
    let name = format!("{version}.{name}");
    vectors(VECTORS).into_iter().find(|(other, _)| *other == name).expect(&name).1
}

fn read(version: Version, name: &str, opcode: Opcode) -> Envelope {
    let envelope = decode(Side::Server, &vector(version, name));
    assert_eq!((envelope.version, envelope.opcode), (version, opcode), "{name}");
    envelope
}

/// This message is the vector's body, and its envelope the vector.
fn check(version: Version, name: &str, opcode: Opcode, message: Vec<u8>) {
    let stream = if opcode == Opcode::Event { -1 } else { 7 };
    assert_eq!(read(version, name, opcode).body, message, "{name}");
    let envelope = Envelope::new(version, stream, opcode, message.into());
    assert_eq!(encode(&[envelope]), vector(version, name), "{name}");
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

const VERSIONS: [Version; 2] = [Version::V4, Version::V5];

fn failures(version: Version) -> Failures {
    match version {
        Version::V4 => Failures::Count(2),
        Version::V5 => Failures::Reasons(vec![
            (IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            (IpAddr::V6(Ipv6Addr::LOCALHOST), 3),
        ]),
    }
}

fn error(version: Version, name: &str, code: ErrorCode, message: &str, fields: Fields<'_>) {
    let error = Error { code, message, fields };
    let written = written(|out| error.write(version, out));
    assert_eq!(Error::read(&written, version), Ok(error));
    check(version, &format!("error.{name}"), Opcode::Error, written);
}

/// Writes a `uuid` as people do.
fn uuid_text(uuid: [u8; 16]) -> String {
    let number = u128::from_be_bytes(uuid);
    let part = |shift: u32, bits: u32| number >> shift & ((1 << bits) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 32),
        part(80, 16),
        part(64, 16),
        part(48, 16),
        part(0, 48)
    )
}

#[test]
fn errors() {
    let answered = |consistency, received, required| Answered { consistency, received, required };
    for version in VERSIONS {
        error(version, "plain", ErrorCode::Overloaded, "überlastet", Fields::None);
        let fields =
            Fields::Unavailable { consistency: Consistency::LocalQuorum, required: 2, alive: 1 };
        error(version, "unavailable", ErrorCode::Unavailable, "few", fields);
        let quorum = answered(Consistency::Quorum, 1, 2);
        let fields =
            Fields::WriteTimeout { answered: quorum, write_type: "SIMPLE", contentions: None };
        error(version, "write_timeout", ErrorCode::WriteTimeout, "late", fields);
        let one = answered(Consistency::One, 0, 1);
        let fields = Fields::ReadTimeout { answered: one, is_data_present: true };
        error(version, "read_timeout", ErrorCode::ReadTimeout, "late", fields);
        let fields = Fields::ReadFailure {
            answered: answered(Consistency::All, 1, 3),
            failures: failures(version),
            is_data_present: false,
        };
        error(version, "read_failure", ErrorCode::ReadFailure, "bad", fields);
        let fields = Fields::WriteFailure {
            answered: answered(Consistency::EachQuorum, 1, 3),
            failures: failures(version),
            write_type: "BATCH_LOG",
        };
        error(version, "write_failure", ErrorCode::WriteFailure, "bad", fields);
        let argument_types = vec!["int", "list<text>"];
        let fields = Fields::FunctionFailure { keyspace: "ks", function: "f", argument_types };
        error(version, "function", ErrorCode::FunctionFailure, "no", fields);
        let fields = Fields::AlreadyExists { keyspace: "ks", table: "t" };
        error(version, "exists", ErrorCode::AlreadyExists, "there", fields);
        error(version, "unprepared", ErrorCode::Unprepared, "what", Fields::Unprepared { id: &ID });
    }
    let fields = Fields::CasWriteUnknown(answered(Consistency::Serial, 1, 2));
    error(Version::V5, "cas_unknown", ErrorCode::CasWriteUnknown, "perhaps", fields);
}

fn event(name: &str, event: &Event<'_>) {
    for version in VERSIONS {
        let message = written(|out| event.write(out));
        assert_eq!(Event::read(&message).as_ref(), Ok(event));
        check(version, &format!("event.{name}"), Opcode::Event, message);
    }
}

#[test]
fn events() {
    let node = Inet { address: IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3)), port: 9042 };
    event("topology", &Event::Topology { change: "NEW_NODE", node });
    let node = Inet { address: "fd00::7".parse().unwrap(), port: 65535 };
    event("status", &Event::Status { change: "DOWN", node });
    let schema = |name, change, target| {
        event(name, &Event::Schema(SchemaChange { change, keyspace: "ks", target }));
    };
    schema("keyspace", "CREATED", SchemaTarget::Keyspace);
    schema("table", "UPDATED", SchemaTarget::Table("t"));
    schema("type", "DROPPED", SchemaTarget::Type("u"));
    schema("function", "CREATED", SchemaTarget::Function("f", vec!["int", "text"]));
    schema("aggregate", "CREATED", SchemaTarget::Aggregate("a", vec![]));
}

#[test]
fn what_a_connection_begins_with() {
    for version in VERSIONS {
        check(version, "ready", Opcode::Ready, Vec::new());
        let authenticate = Authenticate { authenticator: "org.example.PasswordAuthenticator" };
        let message = written(|out| authenticate.write(out));
        assert_eq!(Authenticate::read(&message), Ok(authenticate));
        check(version, "authenticate", Opcode::Authenticate, message);
        let challenge = AuthToken { token: Some(b"who") };
        check(
            version,
            "auth_challenge",
            Opcode::AuthChallenge,
            written(|out| challenge.write(out)),
        );
        let success = AuthToken { token: None };
        let message = written(|out| success.write(out));
        assert_eq!(AuthToken::read(&message), Ok(success));
        check(version, "auth_success", Opcode::AuthSuccess, message);
        let versions = vec!["3/v3", "4/v4", "5/v5", "6/v6-beta"];
        let options = vec![
            ("COMPRESSION", vec!["snappy", "lz4"]),
            ("PROTOCOL_VERSIONS", versions.clone()),
            ("NOTHING", vec![]),
        ];
        let supported = Supported { options };
        let message = written(|out| supported.write(out));
        assert_eq!(Supported::read(&message), Ok(supported.clone()));
        assert_eq!(supported.option("PROTOCOL_VERSIONS"), versions);
        check(version, "supported", Opcode::Supported, message);
    }
}

fn local() -> [(&'static str, Type); 6] {
    [
        ("key", Type::Text),
        ("host_id", Type::Uuid),
        ("tokens", Type::set(Type::Text)),
        ("truncated_at", Type::map(Type::Text, Type::Text)),
        ("rpc_address", Type::Inet),
        ("gossip_generation", Type::Int),
    ]
}

#[test]
fn rows_are_read_and_written() {
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for version in VERSIONS {
        let mut writer = Writer::new("system", "local", &local());
        writer.value(Some(b"local")).value(Some(&ID)).value(Some(&value::write_texts(&["-", "1"])));
        writer.value(None).value(Some(&value::write_inet(address)));
        writer.value(Some(&(-2_i32).to_be_bytes())).end_row();
        writer.value(Some(b""));
        for _ in 0..5 {
            writer.value(None);
        }
        writer.end_row();
        check(version, "result.rows", Opcode::Result, writer.finish().to_vec());

        let envelope = read(version, "result.rows", Opcode::Result);
        let Ok(Result::Rows(rows)) = Result::read(&envelope.body, version) else { panic!() };
        assert_eq!((rows.count, rows.metadata.count, rows.position("tokens")), (2, 6, Some(2)));
        assert!(
            rows.columns().all(|column| (column.keyspace, column.table) == ("system", "local"))
        );
        let [first, second] = rows.iter().collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!(first.at(0).and_then(value::text), Some("local"));
        assert_eq!(
            first.at(1).and_then(value::uuid).map(uuid_text).as_deref(),
            Some("00112233-4455-6677-8899-aabbccddeeff")
        );
        assert_eq!(first.at(2).and_then(value::texts), Some(vec!["-", "1"]));
        assert_eq!(first.at(3), None);
        assert_eq!(first.at(4).and_then(value::inet), Some(address));
        assert_eq!(first.at(5).and_then(value::int), Some(-2));
        assert_eq!((second.at(0), second.at(1), second.at(6)), (Some(&b""[..]), None, None));
    }
}

#[test]
fn types_of_every_kind() {
    for version in VERSIONS {
        let envelope = read(version, "result.mixed", Opcode::Result);
        let Ok(Result::Rows(rows)) = Result::read(&envelope.body, version) else { panic!() };
        assert_eq!(rows.metadata.paging_state, Some(&b"next page"[..]));
        let new_id = (version == Version::V5).then_some(&METADATA_ID[..]);
        assert_eq!(rows.metadata.new_id, new_id);
        let columns: Vec<_> = rows.columns().collect();
        assert_eq!(columns.len(), 3);
        let ids: Vec<_> = columns.iter().map(|column| column.kind.id()).collect();
        assert_eq!(ids, [0x31, 0x00, 0x30]);
        let tables: Vec<_> = columns.iter().map(|column| (column.table, column.name)).collect();
        assert_eq!(tables, [("a", "tuple"), ("b", "custom"), ("b", "udt")]);
        let list = Type::List(Box::new(Type::Text));
        let tuple = written(|out| Type::Tuple(vec![Type::Int, list]).write(out));
        assert_eq!(columns[0].kind.bytes(), tuple);

        let envelope = read(version, "result.skipped", Opcode::Result);
        let Ok(Result::Rows(rows)) = Result::read(&envelope.body, version) else { panic!() };
        assert_eq!((rows.metadata.count, rows.metadata.columns), (2, None));
        assert_eq!(rows.metadata.paging_state, Some(&b"page"[..]));
    }
}

#[test]
fn results_without_rows() {
    for version in VERSIONS {
        check(version, "result.void", Opcode::Result, Result::void());
        let message = written(|out| Result::write_set_keyspace("ks", out));
        assert_eq!(Result::read(&message, version), Ok(Result::SetKeyspace("ks")));
        check(version, "result.keyspace", Opcode::Result, message);
        let change =
            SchemaChange { change: "CREATED", keyspace: "ks", target: SchemaTarget::Table("t") };
        let body = read(version, "result.schema", Opcode::Result).body;
        assert_eq!(Result::read(&body, version), Ok(Result::SchemaChange(change)));
    }
}

fn prepared<'a>(body: &'a Bytes, version: Version) -> Prepared<'a> {
    let Ok(Result::Prepared(prepared)) = Result::read(body, version) else { panic!() };
    assert_eq!(prepared.id, ID);
    let metadata_id = if version == Version::V5 { &METADATA_ID[..] } else { &[] };
    assert_eq!(prepared.result_metadata_id, metadata_id);
    prepared
}

#[test]
fn prepared_statements_say_where_their_key_is() {
    for version in VERSIONS {
        let body = read(version, "result.prepared", Opcode::Result).body;
        let prepared = prepared(&body, version);
        assert_eq!(prepared.partition_key, [2, 0]);
        assert_eq!(prepared.variables.table(), Some(("system", "local")));
        let names: Vec<_> = prepared.variables.iter().map(|column| column.name).collect();
        assert_eq!(names, ["key", "host_id", "tokens"]);
        assert_eq!(prepared.result.columns.unwrap().len(), 6);

        let plan = KeyPlan::new(&prepared.partition_key, &prepared.variables).unwrap();
        let mut bound = Bound::new();
        bound.push(Value::Bytes(b"k")).push(Value::Null).push(Value::Bytes(b"tok"));
        let mut scratch = Vec::new();
        let key = plan.key(&bound.values(), &mut scratch);
        // CompositeType: the length, the bytes, a zero; of each component in the key's order.
        assert_eq!(key, Some(&b"\0\x03tok\0\0\x01k\0"[..]));
    }
}

#[test]
fn a_statement_prepared_here() {
    for version in VERSIONS {
        let body = read(version, "result.prepared.write", Opcode::Result).body;
        let vector = prepared(&body, version);
        assert!(vector.partition_key.is_empty() && vector.variables.is_empty());
        assert_eq!(KeyPlan::new(&vector.partition_key, &vector.variables), None);
        let metadata_id = vector.result_metadata_id;
        let written = write_prepared(version, &ID, metadata_id, "system", "local", &local());
        // The vector has no columns of a result: eight bytes of flags and count at its end.
        let (ours, theirs) = (&written[..], &body[..body.len() - 8]);
        assert_eq!(&ours[..theirs.len()], theirs);
        let rows = read(version, "result.rows", Opcode::Result).body;
        assert!(rows[4..].starts_with(&ours[theirs.len()..]), "metadata as rows have it");
    }
}

#[test]
fn what_comes_before_the_message() {
    for version in VERSIONS {
        let envelope = read(version, "prelude.payload", Opcode::Result);
        assert_eq!(envelope.flags, Flags::TRACING | Flags::CUSTOM_PAYLOAD);
        let parts = payload::split(&envelope).unwrap();
        assert_eq!((parts.tracing_id, parts.message), (Some(ID), &Result::void()[..]));
        let entries: Vec<_> = parts.payload.iter().collect();
        assert_eq!(entries, [("evenkeel", Some(&b"q=3"[..])), ("other", None)]);
        let stripped = payload::strip(&envelope, "evenkeel").unwrap();
        let stripped = payload::strip(&stripped, "other").unwrap();
        assert_eq!(stripped.flags, Flags::TRACING);
        assert_eq!(stripped.body, [&ID[..], &Result::void()].concat());

        let envelope = read(version, "prelude.warnings", Opcode::Result);
        let parts = payload::split(&envelope).unwrap();
        assert_eq!(parts.warnings(), ["be careful", "ä"]);
        assert_eq!(payload::message(&envelope).unwrap(), Result::void());
        // Warnings stay before the payload, as the specification has it.
        let added = payload::add(&envelope, "e", b"1").unwrap();
        let expected = bytes("0001000165000000013100000001");
        assert!(added.body.ends_with(&expected));
        assert_eq!(added.body.len(), envelope.body.len() + expected.len() - 4);
    }
}

#[test]
fn requests() {
    for version in VERSIONS {
        let envelope = decode(Side::Client, &vector(version, "query.named"));
        let query = Query::read(&envelope.body, version).unwrap();
        let values = query.parameters.values;
        assert!(values.has_names());
        assert_eq!(values.named("k"), Some(Value::Bytes(b"key")));
        assert_eq!(values.iter().nth(1), Some((Some("v"), Value::Null)));
        let is_v5 = version == Version::V5;
        let expected = QueryParameters {
            values,
            skip_metadata: true,
            page_size: Some(100),
            paging_state: Some(b"state"),
            timestamp: Some(-5),
            keyspace: is_v5.then_some("ks"),
            now_in_seconds: is_v5.then_some(1_700_000_000),
            ..QueryParameters::new(Consistency::One)
        };
        assert_eq!(query.parameters, expected);
        assert_eq!(written(|out| query.write(version, out)), envelope.body);

        let envelope = decode(Side::Client, &vector(version, "execute.skip"));
        let execute = Execute::read(&envelope.body, version).unwrap();
        assert_eq!((execute.id, execute.parameters.skip_metadata), (&ID[..], true));
        assert_eq!(execute.parameters.values.at(0), Some(Value::Bytes(b"key")));
        assert_eq!(written(|out| execute.write(version, out)), envelope.body);
    }
}

/// The envelopes of `JavaDriver.segments`: rows of one text, of 1, 4, 16 … bytes.
fn growing() -> Vec<Envelope> {
    let lengths = (0..10).map(|power| 4_usize.pow(power));
    let envelope = |length: usize| {
        let mut body = BytesMut::new();
        body.put_slice(&bytes("00000002000000040000000100000001"));
        body.put_i32(length as i32);
        body.put_bytes(b'x', length);
        Envelope::new(Version::V5, (length % 997) as i16, Opcode::Result, body.freeze())
    };
    lengths.map(envelope).collect()
}

#[test]
fn segments_are_filled_alike() {
    let envelopes = growing();
    let mut out = BytesMut::new();
    encoder(Version::V5, None).encode_all(&envelopes, &mut out);
    let mut decoder = started(Side::Server, Version::V5, None);
    assert_eq!(decode_all(&mut decoder, &out, 4099), envelopes);
    // The library sends long envelopes before short ones that wait; here the order is kept.
    let mut edges = vectors(VECTORS);
    edges.retain(|(name, _)| name.starts_with("segment."));
    edges.rotate_right(1);
    for (name, edges) in edges {
        let segment = out.split_to(name["segment.".len()..].parse().unwrap());
        assert_eq!(segment[..20], edges[..20]);
        assert_eq!(segment[segment.len() - 4..], edges[20..]);
    }
    assert!(!out.has_remaining());
}
