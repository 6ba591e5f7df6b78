//! Random statements, asked of a node and through Evenkeel, are answered alike byte by byte.
//!
//! Both have a keyspace of their own with the same tables, under names of the same length; and
//! both are asked the same in the same order. What may differ is the number of a stream (each
//! connection has its own) and what is computed from a keyspace's name: the name itself and ids of
//! prepared statements and their results.
//!
//! A thousand statements for each version; `EVENKEEL_CASSANDRA_STATEMENTS=50000` for more, and
//! `EVENKEEL_CASSANDRA_SEED=73` to begin with the thousand of that seed, which a failure names.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use evenkeel_cql::codec::Compression;
use evenkeel_cql::response::Result as Outcome;
use evenkeel_cql::statement::Shape;
use evenkeel_cql::{Envelope, ErrorCode, Flags, Opcode, Version};

use crate::proxy::Proxy;
use evenkeel_testkit::cassandra;
use evenkeel_testkit::cassandra::client::{Client, message, reported};
use evenkeel_testkit::statements::{Asked, Form, Given, Part, Statements, schema};

const STATEMENTS: usize = 1_000;

/// ALL: what is written is seen at any level.
const WRITES: [u16; 1] = [5];
/// ONE, QUORUM, ALL, LOCAL_QUORUM, LOCAL_ONE.
const READS: [u16; 5] = [1, 4, 5, 6, 10];

/// Pages of one statement that are followed.
const PAGES_MAX: usize = 500;

/// One side: a connection, its keyspace, and what is prepared on it.
pub(crate) struct Side {
    pub(crate) client: Client,
    keyspace: String,
    prepared: BTreeMap<String, Known>,
}

/// What an answer to PREPARE told: its ids, and the types of its markers.
struct Known {
    id: Vec<u8>,
    result_id: Vec<u8>,
    shapes: Vec<Shape>,
}

/// An answer without what may differ.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    flags: u8,
    opcode: Opcode,
    body: Vec<u8>,
    reported: String,
}

impl Side {
    fn new(mut client: Client, keyspace: &str) -> Self {
        let replication = "{'class': 'NetworkTopologyStrategy', 'east': 2, 'west': 1}";
        client.change(&format!("DROP KEYSPACE IF EXISTS {keyspace}"));
        client.change(&format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"));
        for statement in schema(keyspace) {
            client.change(&statement);
        }
        client.rows(&format!("USE {keyspace}"));
        Self::of(client, keyspace)
    }

    /// One whose keyspace has all that there must be.
    pub(crate) fn of(client: Client, keyspace: &str) -> Self {
        Self { client, keyspace: keyspace.to_owned(), prepared: BTreeMap::new() }
    }

    /// The types of a prepared text's markers.
    pub(crate) fn shapes(&self, text: &str) -> &[Shape] {
        &self.prepared[text].shapes
    }

    fn ask(&mut self, opcode: Opcode, body: BytesMut) -> Envelope {
        self.client.ask(opcode, Flags::NONE, body.freeze()).unwrap()
    }

    /// All answers to one statement: to its preparation, and a page each.
    fn answers(&mut self, asked: &Asked) -> Vec<Seen> {
        let mut seen = Vec::new();
        for part in prepared_parts(asked) {
            if !self.prepare(&part.text, &mut seen) {
                return seen;
            }
        }
        let mut state = None;
        for _ in 0..PAGES_MAX {
            let answer = self.ask_prepared(asked, state.as_deref());
            state = paging_state(&answer);
            seen.push(self.seen(&answer));
            if state.is_none() {
                break;
            }
        }
        seen
    }

    /// The answer to one page. A node may have forgotten a statement since: clients that know a
    /// node prepare it again, and Evenkeel does that for its own.
    pub(crate) fn ask_prepared(&mut self, asked: &Asked, state: Option<&[u8]>) -> Envelope {
        let (opcode, body) = self.request(asked, state);
        let answer = self.ask(opcode, body);
        if !reported(&answer).starts_with(ErrorCode::Unprepared.name()) {
            return answer;
        }
        for part in prepared_parts(asked) {
            self.prepared.remove(&part.text);
            self.prepare(&part.text, &mut Vec::new());
        }
        let (opcode, body) = self.request(asked, state);
        self.ask(opcode, body)
    }

    /// Whether a text is prepared now; its first preparation is an answer.
    pub(crate) fn prepare(&mut self, text: &str, seen: &mut Vec<Seen>) -> bool {
        if self.prepared.contains_key(text) {
            return true;
        }
        let mut body = BytesMut::new();
        put_long(&mut body, text.as_bytes());
        if self.client.version == Version::V5 {
            body.put_u32(0);
        }
        let answer = self.ask(Opcode::Prepare, body);
        if answer.opcode == Opcode::Result {
            let Outcome::Prepared(it) = Outcome::read(message(&answer), answer.version).unwrap()
            else {
                panic!("PREPARE {text}: {}", reported(&answer));
            };
            let shapes = it.variables.iter().map(|column| Shape::of(column.kind.id())).collect();
            let (id, result_id) = (it.id.to_vec(), it.result_metadata_id.to_vec());
            self.prepared.insert(text.to_owned(), Known { id, result_id, shapes });
        }
        seen.push(self.seen(&answer));
        answer.opcode == Opcode::Result
    }

    fn request(&self, asked: &Asked, state: Option<&[u8]>) -> (Opcode, BytesMut) {
        let mut body = BytesMut::new();
        let version = self.client.version;
        match &asked.form {
            Form::Query(part) => {
                put_long(&mut body, part.text.as_bytes());
                put_parameters(&mut body, version, asked, &part.values, state);
                (Opcode::Query, body)
            }
            Form::Prepared(part) => {
                let Known { id, result_id, .. } = &self.prepared[&part.text];
                put_short(&mut body, id);
                if version == Version::V5 {
                    put_short(&mut body, result_id);
                }
                put_parameters(&mut body, version, asked, &part.values, state);
                (Opcode::Execute, body)
            }
            Form::Batch { kind, parts } => {
                body.put_u8(*kind);
                body.put_u16(parts.len() as u16);
                for (part, is_prepared) in parts {
                    body.put_u8(u8::from(*is_prepared));
                    match is_prepared {
                        true => put_short(&mut body, &self.prepared[&part.text].id),
                        false => put_long(&mut body, part.text.as_bytes()),
                    }
                    put_values(&mut body, &part.values);
                }
                put_batch_end(&mut body, version, asked);
                (Opcode::Batch, body)
            }
        }
    }

    /// An answer without what is computed from the keyspace's name, and without a warning that a
    /// node gives now and then only.
    fn seen(&self, answer: &Envelope) -> Seen {
        let mut plain = answer.clone();
        if find(&answer.body, OF_USE.as_bytes()).is_some() {
            plain.flags = answer.flags.without(Flags::WARNING);
            plain.body = message(answer).to_vec().into();
        }
        let answer = &plain;
        let mut body = answer.body.to_vec();
        let mut masked = vec![(self.keyspace.clone().into_bytes(), b'k')];
        if answer.opcode == Opcode::Result {
            match Outcome::read(message(answer), answer.version).unwrap() {
                Outcome::Prepared(it) => {
                    masked.extend([(it.id.to_vec(), 0), (it.result_metadata_id.to_vec(), 0)]);
                    // A warning has it as text.
                    let hex: String = it.id.iter().map(|byte| format!("{byte:02x}")).collect();
                    masked.push((hex.into_bytes(), b'0'));
                }
                Outcome::Rows(rows) => {
                    masked.extend(rows.metadata.new_id.map(|id| (id.to_vec(), 0)));
                }
                _ => {}
            }
        }
        for (bytes, with) in masked.iter().filter(|(bytes, _)| !bytes.is_empty()) {
            let mut at = 0;
            while let Some(found) = find(&body[at..], bytes) {
                body[at + found..at + found + bytes.len()].fill(*with);
                at += found + bytes.len();
            }
        }
        Seen {
            flags: answer.flags.0,
            opcode: answer.opcode,
            body,
            reported: reported(answer).replace(&self.keyspace, "KEYSPACE"),
        }
    }
}

/// The parts of a statement that are prepared.
fn prepared_parts(asked: &Asked) -> Vec<&Part> {
    match &asked.form {
        Form::Query(_) => Vec::new(),
        Form::Prepared(part) => vec![part],
        Form::Batch { parts, .. } => {
            parts.iter().filter(|(_, prepared)| *prepared).map(|(part, _)| part).collect()
        }
    }
}

/// What a node says of `USE` and prepared statements, at most once in a while.
const OF_USE: &str = "is considered to be an anti-pattern due to ambiguity";

fn find(body: &[u8], bytes: &[u8]) -> Option<usize> {
    body.windows(bytes.len()).position(|window| window == bytes)
}

fn paging_state(answer: &Envelope) -> Option<Vec<u8>> {
    if answer.opcode != Opcode::Result {
        return None;
    }
    match Outcome::read(message(answer), answer.version).unwrap() {
        Outcome::Rows(rows) => rows.metadata.paging_state.map(<[u8]>::to_vec),
        _ => None,
    }
}

fn put_long(body: &mut BytesMut, bytes: &[u8]) {
    body.put_i32(bytes.len() as i32);
    body.put_slice(bytes);
}

fn put_short(body: &mut BytesMut, bytes: &[u8]) {
    body.put_u16(bytes.len() as u16);
    body.put_slice(bytes);
}

fn put_values(body: &mut BytesMut, values: &[Given]) {
    body.put_u16(values.len() as u16);
    for value in values {
        match value {
            Given::Bytes(bytes) => put_long(body, bytes),
            Given::Null => body.put_i32(-1),
            Given::Unset => body.put_i32(-2),
        }
    }
}

/// Flags are a byte in version 4 and four in version 5.
fn put_flags(body: &mut BytesMut, version: Version, flags: u8) {
    match version {
        Version::V4 => body.put_u8(flags),
        Version::V5 => body.put_u32(flags.into()),
    }
}

/// native_protocol_v5.spec, 4.1.4: the query's parameters.
fn put_parameters(
    body: &mut BytesMut,
    version: Version,
    asked: &Asked,
    values: &[Given],
    state: Option<&[u8]>,
) {
    let bits = [
        (0x01, !values.is_empty()),
        (0x02, asked.skip_metadata),
        (0x04, asked.page_size.is_some()),
        (0x08, state.is_some()),
        (0x10, asked.serial.is_some()),
        (0x20, asked.timestamp.is_some()),
    ];
    body.put_u16(asked.consistency);
    put_flags(body, version, bits.iter().filter(|(_, on)| *on).map(|(bit, _)| bit).sum());
    if !values.is_empty() {
        put_values(body, values);
    }
    if let Some(size) = asked.page_size {
        body.put_i32(size);
    }
    if let Some(state) = state {
        put_long(body, state);
    }
    put_end(body, asked);
}

/// The same document, 4.1.7: what a batch ends with.
fn put_batch_end(body: &mut BytesMut, version: Version, asked: &Asked) {
    let bits = [(0x10, asked.serial.is_some()), (0x20, asked.timestamp.is_some())];
    body.put_u16(asked.consistency);
    put_flags(body, version, bits.iter().filter(|(_, on)| *on).map(|(bit, _)| bit).sum());
    put_end(body, asked);
}

fn put_end(body: &mut BytesMut, asked: &Asked) {
    if let Some(serial) = asked.serial {
        body.put_u16(serial);
    }
    if let Some(timestamp) = asked.timestamp {
        body.put_i64(timestamp);
    }
}

fn compare(version: Version, compression: Option<Compression>, names: [&str; 2], seed: u64) {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let _calm = cluster.calm();
    let proxy = Proxy::start(cluster, "hedge = {}");
    let count = std::env::var("EVENKEEL_CASSANDRA_STATEMENTS");
    let count = count.map_or(STATEMENTS, |count| count.parse().unwrap());
    let seed = std::env::var("EVENKEEL_CASSANDRA_SEED").map_or(seed, |seed| seed.parse().unwrap());
    let connect = |to| Client::connect(to, version, compression).unwrap();
    let (mut errors, mut answers) = (0, 0);
    // A node forgets prepared statements of a keyspace that is gone; those of more rounds than one
    // it could not keep.
    for first in (0..count).step_by(STATEMENTS) {
        let mut sides = [
            Side::new(connect(cluster.address(0)), names[0]),
            Side::new(connect(proxy.address()), names[1]),
        ];
        let some = STATEMENTS.min(count - first);
        let counts = compare_some(&mut sides, some, seed + 2 * (first / STATEMENTS) as u64);
        (errors, answers) = (errors + counts[0], answers + counts[1]);
        for side in &mut sides {
            let drop = format!("DROP KEYSPACE {}", side.keyspace);
            side.client.change(&drop);
        }
    }
    eprintln!("{version:?}: {count} statements, {answers} answers alike, {errors} of them errors");
    assert!(errors < count / 3, "{errors} of {count} were errors");
}

/// How many errors and answers were alike.
fn compare_some(sides: &mut [Side; 2], count: usize, seed: u64) -> [usize; 2] {
    let [direct, proxied] = sides;
    let version = direct.client.version;
    let statements = |side: &Side| Statements::new(seed, &side.keyspace, &READS, &WRITES);
    let [mut first, mut second] = [statements(direct), statements(proxied)];
    let (mut errors, mut answers) = (0, 0);
    for number in 0..count {
        let (one, other) = (first.draw(), second.draw());
        let (expected, came) = (direct.answers(&one), proxied.answers(&other));
        let is_error = expected.last().is_some_and(|last| last.opcode == Opcode::Error);
        assert!(is_error || !one.is_wrong, "{number}: {one:?} is not refused");
        (errors, answers) = (errors + usize::from(is_error), answers + expected.len());
        if expected == came {
            continue;
        }
        let tell = |seen: &[Seen]| {
            let lines = seen.iter().map(|one| {
                format!(
                    "  {:#04x} {}\n    {:?}\n",
                    one.flags,
                    one.reported,
                    String::from_utf8_lossy(&one.body)
                )
            });
            lines.collect::<String>()
        };
        panic!(
            "statement {number} of seed {seed}, {version:?}: {one:?}\na node:\n{}Evenkeel:\n{}",
            tell(&expected),
            tell(&came)
        );
    }
    [errors, answers]
}

#[test]
fn answers_of_version_4_are_alike() {
    compare(Version::V4, None, ["four_direct", "four_proxed"], 4);
}

#[test]
fn answers_of_version_5_with_lz4_are_alike() {
    compare(Version::V5, Some(Compression::Lz4), ["five_direct", "five_proxed"], 5);
}
