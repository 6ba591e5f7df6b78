//! What is sent, what is read and what is journaled, without a server.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::request::{Bound, Execute};
use evenkeel_cql::types::Type;
use evenkeel_cql::{ErrorCode, Flags, Opcode, Value as Term, Version, rows as table, value, write};
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_assert, prop_assert_eq};
use proptest::proptest;

use super::journal::{self, Record};
use super::link::{execute, rows};
use super::schema::{generation, replication};
use super::{CassandraAccess, JOURNAL_BYTES_MAX, parts, swept_after};
use crate::store::{Change, Entry, Value};
use evenkeel_cql::client::{Answer, Known, ResultColumns};

fn text(text: impl Into<Vec<u8>>) -> Entry {
    Entry { value: Value::Text(text.into()), expires_ms: None }
}

fn change() -> impl Strategy<Value = Change> {
    let bytes = || vec(any::<u8>(), 0..20);
    let entry = (bytes(), any::<Option<u64>>());
    let entry = entry.prop_map(|(text, expires_ms)| Entry { value: Value::Text(text), expires_ms });
    (bytes(), proptest::option::of(entry))
}

proptest! {
    #[test]
    fn what_is_journaled_is_read(changes in vec(change(), 0..6)) {
        let bytes = journal::encode(&changes);
        let most: usize = changes.iter().map(journal::size).sum();
        prop_assert!(bytes.len() <= 1 + most);
        prop_assert_eq!(journal::decode(&bytes), Some(Record { changes }));
        // Not a part of it, but where a change ends.
        for end in 1..bytes.len() {
            if let Some(part) = journal::decode(&bytes[..end]) {
                prop_assert_eq!(journal::encode(&part.changes), &bytes[..end]);
            }
        }
    }

    #[test]
    fn any_bytes_are_read(mut bytes in vec(any::<u8>(), 0..60)) {
        let _ = journal::decode(&bytes);
        bytes.insert(0, 1);
        let _ = journal::decode(&bytes);
    }
}

/// As it is written down in the module: a key, then what it holds, lowest bytes first.
#[test]
fn a_journal_of_today_is_read_tomorrow() {
    let changes = vec![(b"k".to_vec(), Some(text("v"))), (b"gone".to_vec(), None)];
    let expected =
        [&b"\x01"[..], b"\x01\0\0\0k", b"\x02\0\0\0\0v", b"\x04\0\0\0gone", b"\xff\xff\xff\xff"];
    assert_eq!(journal::encode(&changes), expected.concat());
    assert_eq!(journal::decode(b""), Some(Record::default()), "before the first batch");
    assert_eq!(journal::decode(b"\x02"), None, "of another version");
}

#[test]
fn what_does_not_fit_into_the_journal_is_cut_and_the_watermark_comes_last() {
    let large = |key: &str| (key.as_bytes().to_vec(), Some(text(vec![b'x'; 1 << 20])));
    let mark = (b"evenkeel:watermark".to_vec(), Some(text("3 8")));
    let mut changes: Vec<Change> = ["a", "b", "c", "z"].map(large).to_vec();
    assert_eq!(parts(&changes[..3]).len(), 1);
    changes.insert(1, mark.clone());
    let parts = parts(&changes);
    assert_eq!(parts.len(), 2);
    assert_eq!(parts[1].last(), Some(&mark));
    let keys: Vec<&[u8]> = parts.iter().flatten().map(|(key, _)| key.as_slice()).collect();
    assert_eq!(keys, [&b"a"[..], b"b", b"c", b"z", b"evenkeel:watermark"]);
    let sizes = parts.iter().map(|part| journal::encode(part).len());
    assert!(sizes.max().unwrap() <= JOURNAL_BYTES_MAX);
    assert_eq!(journal::doubtful(&text("3 8")), text("0 8"));
    assert_eq!(journal::doubtful(&text("3 0")), text("filling"));
    assert_eq!(journal::doubtful(&text("filling")), text("filling"));
}

#[test]
fn rows_are_swept_a_day_after_they_expire() {
    assert_eq!(swept_after(None, 5), 0, "never");
    assert_eq!(swept_after(Some(10_000), 10_000), 86_400);
    assert_eq!(swept_after(Some(3), 10_000), 86_400, "it has expired");
    assert_eq!(swept_after(Some(10_001), 10_000), 86_401);
    assert_eq!(swept_after(Some(400 * 86_400_000), 0), 0, "too far away for servers");
}

#[test]
fn a_keyspace_is_kept_as_often_as_is_said() {
    let mut access = CassandraAccess::default();
    let alone = "it's".to_owned();
    let expected = "{'class': 'NetworkTopologyStrategy', 'it''s': 1}";
    assert_eq!(replication(&access, Some(&alone)).unwrap(), expected);
    assert_eq!(replication(&access, None), None, "nobody can know");
    access.replicas = BTreeMap::from([("east".to_owned(), 3), ("west".to_owned(), 2)]);
    let expected = "{'class': 'NetworkTopologyStrategy', 'east': 3, 'west': 2}";
    assert_eq!(replication(&access, None).unwrap(), expected);
    let numbers = ["entries_1", "entries_27", "journal", "entries_", "entries_-1", "entries_x"];
    let numbers = numbers.map(generation);
    assert_eq!(numbers, [Some(1), Some(27), None, None, None, None]);
}

#[test]
fn statements_say_what_is_bound_and_how_serial_they_are() {
    let id = Bytes::from_static(b"\x01\x02");
    let known =
        Known { id, text: "SELECT".into(), keyspace: None, result: ResultColumns::default() };
    let mut values = Bound::new();
    values.push(Term::Bytes(b"\0key")).push(Term::Bytes(&7_i32.to_be_bytes()));
    for (level, serial) in [
        (Consistency::Quorum, Consistency::Serial),
        (Consistency::LocalQuorum, Consistency::LocalSerial),
        (Consistency::LocalSerial, Consistency::LocalSerial),
    ] {
        let body = execute(&known, &values, level);
        let read = Execute::read(&body, Version::V4).unwrap();
        assert_eq!(read.id, b"\x01\x02");
        assert_eq!(read.parameters.consistency, level);
        assert_eq!(read.parameters.serial_consistency, Some(serial));
        let bound: Vec<_> = read.parameters.values.iter().map(|(_, value)| value).collect();
        assert_eq!(bound, [Term::Bytes(b"\0key"), Term::Bytes(b"\0\0\0\x07")]);
    }
}

#[test]
fn answers_are_rows_or_errors_with_words() {
    let answer = |opcode, body: Bytes| Answer { opcode, flags: Flags::NONE, body, feedback: None };
    let mut writer =
        table::Writer::new("k", "t", &[("[applied]", Type::Boolean), ("stamp", Type::Bigint)]);
    writer.value(Some(&[0])).value(Some(&9_i64.to_be_bytes())).end_row();
    let body = answer(Opcode::Result, writer.finish().freeze()).result(Version::V4).unwrap();
    let read = rows(&body, |row| Some((row.at(0).and_then(value::boolean)?, row.at(1)?.len())));
    assert_eq!(read.unwrap(), [(false, 8)]);
    let strange = rows(&body, |row| row.at(2).map(drop)).unwrap_err();
    assert!(strange.to_string().contains("who else writes?"), "{strange}");
    let refused = write::error(ErrorCode::Invalid, "unconfigured table entries_1");
    let refused =
        answer(Opcode::Error, refused.into()).result(Version::V4).unwrap_err().to_string();
    assert!(refused.ends_with(": unconfigured table entries_1"), "{refused}");
    assert!(answer(Opcode::Ready, Bytes::new()).result(Version::V4).is_err());
    assert!(rows(b"\0\0\0\x01", |_| Some(())).is_err(), "VOID has no rows");
    assert!(rows(b"\0\0", |_| Some(())).is_err());
}
