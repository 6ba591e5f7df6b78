//! What the Python driver sends is read, and what is written here for the same request is the same
//! bytes. `vectors/python_driver.py` says how its bytes were made.

use crate::common::{decode, decode_all, encode, encoder, started, vectors};
use bytes::{Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::codec::{Compression, Side};
use evenkeel_cql::request::{
    AuthResponse, Batch, BatchKind, Batched, Bound, Execute, Prepare, Query, QueryParameters,
    Register, Startup, Statement, Statements, Values,
};
use evenkeel_cql::{Envelope, Flags, Opcode, Reader, Value, Version, payload};

const VECTORS: &str = include_str!("../vectors/python_driver.txt");
const TEXT: &str = "SELECT v, grüße FROM ks.t WHERE k = ?";

fn named(name: &str) -> Vec<Vec<u8>> {
    let found = vectors(VECTORS).into_iter().filter(|(other, _)| *other == name);
    found.map(|(_, bytes)| bytes).collect()
}

/// The message that is read is the one that is written, and its envelope the driver's bytes.
fn check(name: &str, opcode: Opcode, message: &[u8]) {
    let vector = &named(name)[0];
    let envelope = decode(Side::Client, vector);
    assert_eq!((envelope.opcode, envelope.stream), (opcode, 5), "{name}");
    assert_eq!(envelope.body, message, "{name}");
    let written = Envelope::new(envelope.version, 5, opcode, Bytes::copy_from_slice(message));
    assert_eq!(encode(&[written]), vector, "{name}");
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn versions() -> [(Version, Option<&'static str>); 2] {
    [(Version::V4, None), (Version::V5, Some("ks"))]
}

#[test]
fn a_connection_begins() {
    for (version, _) in versions() {
        let startup = Startup {
            options: vec![("COMPRESSION", "lz4"), ("NO_COMPACT", "true"), ("CQL_VERSION", "3.4.7")],
        };
        let message = written(|out| startup.write(out));
        assert_eq!(Startup::read(&message), Ok(startup.clone()));
        assert_eq!(startup.compression(version), Ok(Some(Compression::Lz4)));
        check(&format!("{version}.startup"), Opcode::Startup, &message);
        check(&format!("{version}.options"), Opcode::Options, &[]);
        let message = written(|out| {
            AuthResponse { token: Some(&AuthResponse::plain("user", "secret")) }.write(out);
        });
        check(&format!("{version}.auth_response"), Opcode::AuthResponse, &message);
        let kinds = vec!["TOPOLOGY_CHANGE", "STATUS_CHANGE", "SCHEMA_CHANGE"];
        let message = written(|out| Register { kinds: kinds.clone() }.write(out));
        assert_eq!(Register::read(&message).unwrap().kinds, kinds);
        check(&format!("{version}.register"), Opcode::Register, &message);
    }
}

#[test]
fn queries() {
    for (version, keyspace) in versions() {
        let plain = Query { text: TEXT, parameters: QueryParameters::new(Consistency::One) };
        let full = Query {
            text: TEXT,
            parameters: QueryParameters {
                page_size: Some(5000),
                paging_state: Some(b"\x01\x02page"),
                serial_consistency: Some(Consistency::LocalSerial),
                timestamp: Some(1_700_000_000_000_001),
                keyspace,
                ..QueryParameters::new(Consistency::LocalQuorum)
            },
        };
        for (name, query) in [("plain", plain), ("full", full)] {
            let message = written(|out| query.write(version, out));
            assert_eq!(Query::read(&message, version), Ok(query));
            check(&format!("{version}.query.{name}"), Opcode::Query, &message);
        }
        for (name, keyspace) in [("prepare", keyspace), ("prepare.plain", None)] {
            let prepare = Prepare { text: TEXT, keyspace };
            let message = written(|out| prepare.write(version, out));
            assert_eq!(Prepare::read(&message, version), Ok(prepare));
            check(&format!("{version}.{name}"), Opcode::Prepare, &message);
        }
    }
}

#[test]
fn prepared_statements() {
    for (version, _) in versions() {
        let metadata_id = [0xAA; 16];
        let result_metadata_id = if version == Version::V5 { &metadata_id[..] } else { &[] };
        let mut bound = Bound::new();
        bound.push(Value::Bytes(b"key")).push(Value::Null);
        bound.push(Value::Unset).push(Value::Bytes(b""));
        let parameters = QueryParameters {
            values: bound.values(),
            page_size: Some(100),
            paging_state: Some(&[0xFF; 40]),
            serial_consistency: Some(Consistency::Serial),
            timestamp: Some(1),
            ..QueryParameters::new(Consistency::LocalQuorum)
        };
        // The driver says that there are values, and that there are none of them.
        let none = Values::read(&mut Reader::new(&[0, 0]), false).unwrap();
        let empty =
            QueryParameters { values: none, ..QueryParameters::new(Consistency::LocalQuorum) };
        for (name, parameters) in [("full", parameters), ("empty", empty)] {
            let execute = Execute { id: &[0x11; 16], result_metadata_id, parameters };
            let message = written(|out| execute.write(version, out));
            let read = Execute::read(&message, version).unwrap();
            assert_eq!(read, execute);
            assert!(read.parameters.values.iter().eq(parameters.values.iter()));
            check(&format!("{version}.execute.{name}"), Opcode::Execute, &message);
        }
    }
}

#[test]
fn batches() {
    for (version, keyspace) in versions() {
        let (mut first, mut second) = (Bound::new(), Bound::new());
        first.push(Value::Bytes(b"a")).push(Value::Null);
        second.push(Value::Bytes(&[b'x'; 300]));
        let expected = [
            Batched { statement: Statement::Text(TEXT), values: Values::default() },
            Batched { statement: Statement::Prepared(&[0x22; 16]), values: first.values() },
            Batched { statement: Statement::Text("DELETE"), values: second.values() },
        ];
        let mut statements = Statements::new();
        for statement in &expected {
            statements.push(statement);
        }
        let parameters = QueryParameters {
            serial_consistency: Some(Consistency::Serial),
            timestamp: Some(1_700_000_000_000_002),
            keyspace,
            ..QueryParameters::new(Consistency::LocalQuorum)
        };
        let batch = statements.batch(BatchKind::Logged, parameters);
        let message = written(|out| batch.write(version, out));
        let read = Batch::read(&message, version).unwrap();
        assert_eq!((read.kind, read.len(), read.parameters), (batch.kind, 3, parameters));
        for (read, expected) in read.iter().zip(&expected) {
            assert_eq!(read.statement, expected.statement);
            assert!(read.values.iter().eq(expected.values.iter()));
        }
        check(&format!("{version}.batch.logged"), Opcode::Batch, &message);
        let parameters = QueryParameters::new(Consistency::Quorum);
        let none = Statements::new();
        let batch = none.batch(BatchKind::Counter, parameters);
        let message = written(|out| batch.write(version, out));
        check(&format!("{version}.batch.counter"), Opcode::Batch, &message);
    }
}

#[test]
fn a_custom_payload_is_read_added_and_stripped() {
    for (version, _) in versions() {
        let vector = &named(&format!("{version}.payload"))[0];
        let envelope = decode(Side::Client, vector);
        assert_eq!(envelope.stream, 32767);
        assert_eq!(envelope.flags, Flags::CUSTOM_PAYLOAD | Flags::TRACING);
        let parts = payload::split(&envelope).unwrap();
        assert_eq!(parts.tracing_id, None, "only responses have its number");
        let entries: Vec<_> = parts.payload.iter().collect();
        assert_eq!(entries, [("a", Some(&b"1"[..])), ("evenkeel", Some(&b"\0\xff"[..]))]);
        assert_eq!(Query::read(parts.message, version).unwrap().text, TEXT);
        let stripped = payload::strip(&envelope, "evenkeel").unwrap();
        assert_eq!(payload::split(&stripped).unwrap().payload.named("evenkeel"), None);
        let again = payload::add(&stripped, "evenkeel", b"\0\xff").unwrap();
        assert_eq!(encode(&[again]), vector);
        let bare = payload::strip(&stripped, "a").unwrap();
        assert_eq!(bare.flags, Flags::TRACING);
        assert_eq!(bare.body, parts.message);
    }
}

#[test]
fn compressed_bodies() {
    let text = format!("SELECT {}k FROM t", "column, ".repeat(500));
    for (name, compression) in [("v4.lz4", Compression::Lz4), ("v4.snappy", Compression::Snappy)] {
        let mut decoder = started(Side::Client, Version::V4, Some(compression));
        let envelopes = decode_all(&mut decoder, &named(name)[0], 7);
        let [envelope] = &envelopes[..] else { panic!("{envelopes:?}") };
        assert_eq!(envelope.flags, Flags::NONE);
        assert_eq!(Query::read(&envelope.body, Version::V4).unwrap().text, text);
    }
}

fn query(text: &str) -> Envelope {
    let query = Query { text, parameters: QueryParameters::new(Consistency::One) };
    let body = written(|out| query.write(Version::V5, out));
    Envelope::new(Version::V5, 5, Opcode::Query, body.into())
}

#[test]
fn segments() {
    let options = Envelope::new(Version::V5, 6, Opcode::Options, Bytes::new());
    let long = query(&format!("SELECT {}", "column, ".repeat(40_000)));
    let small = [query(TEXT), options];
    for (name, compression) in [("plain", None), ("lz4", Some(Compression::Lz4))] {
        let mut decoder = started(Side::Client, Version::V5, compression);
        let mut encoder = encoder(Version::V5, compression);
        for (which, envelopes) in [("small", &small[..]), ("options", &small[1..])] {
            let vector = &named(&format!("segment.{name}.{which}"))[0];
            assert_eq!(decode_all(&mut decoder, vector, 5), envelopes, "{name} {which}");
            let mut out = BytesMut::new();
            encoder.encode_all(envelopes, &mut out);
            // Another LZ4 compresses the longer one to other bytes.
            if compression.is_none() || which == "options" {
                assert_eq!(out, vector, "{name} {which}");
            }
        }
    }
    let mut decoder = started(Side::Client, Version::V5, Some(Compression::Lz4));
    let vector = &named("segment.lz4.long")[0];
    assert_eq!(decode_all(&mut decoder, vector, 1000), std::slice::from_ref(&long));
    let mut out = BytesMut::new();
    encoder(Version::V5, None).encode(&long, &mut out);
    for edges in named("segment.plain.long") {
        let length = 6 + (usize::from(edges[0]) | usize::from(edges[1]) << 8);
        let length = length + (usize::from(edges[2] & 1) << 16) + 4;
        let segment = out.split_to(length);
        assert_eq!(segment[..16], edges[..16]);
        assert_eq!(segment[length - 4..], edges[16..]);
    }
    assert!(out.is_empty());
}
