//! What is judged idempotent is executed once and twice on a real node, with another write between
//! the copies: the rows are the same.
//!
//! Writes are drawn from Cassandra's grammar (`Parser.g` of 5.0: every kind of assignment, deletion
//! and value, also values in parentheses, casts and values of the wrong type) and judged as a
//! session judges them. `EVENKEEL_CASSANDRA_STATEMENTS=50000` for more than a few hundred, and
//! `EVENKEEL_CASSANDRA_SEED=73` for others.

use std::collections::BTreeMap;

use evenkeel_core::Rng;
use evenkeel_cql::statement::{Bound, Idempotence, Why, read};
use evenkeel_cql::{Envelope, Opcode, Version};
use evenkeel_testkit::cassandra;
use evenkeel_testkit::cassandra::client::{Client, Row, reported};
use evenkeel_testkit::statements::{Asked, Form, Given, Part};

use crate::differential::Side;

const KEYSPACE: &str = "twice";
const STATEMENTS: usize = 500;

/// What the columns hold before, and the timestamps of a write and of what comes between copies.
const BEFORE: i64 = 1_700_000_000_000_000;
const WRITTEN: i64 = BEFORE + 1_000;
const BETWEEN: i64 = BEFORE + 2_000;

/// Stands for the key in a text.
const KEY: &str = "KEY";

/// A type of CQL.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Int,
    Text,
    Double,
    Blob,
    Uuid,
    Time,
    Bool,
    Vector,
    Place,
    List(&'static Kind),
    Set(&'static Kind),
    Map(&'static Kind, &'static Kind),
    Tuple(&'static [Kind]),
    Frozen(&'static Kind),
}

use Kind::{
    Blob, Bool, Double, Frozen, Int, List, Map, Place, Set, Text, Time, Tuple, Uuid, Vector,
};

const COLUMNS: [(&str, Kind); 18] = [
    ("n", Int),
    ("v", Text),
    ("d", Double),
    ("b", Blob),
    ("id", Uuid),
    ("at", Time),
    ("o", Bool),
    ("e", Vector),
    ("u", Place),
    ("l", List(&Int)),
    ("lt", List(&Text)),
    ("s", Set(&Int)),
    ("m", Map(&Text, &Int)),
    ("mi", Map(&Int, &Text)),
    ("f", Frozen(&List(&Int))),
    ("ml", Map(&Text, &Frozen(&List(&Int)))),
    ("t", Tuple(&[Int, Text])),
    ("tl", Tuple(&[Frozen(&List(&Int))])),
];

impl Kind {
    fn name(self) -> String {
        match self {
            Int => "int".into(),
            Text => "text".into(),
            Double => "double".into(),
            Blob => "blob".into(),
            Uuid => "uuid".into(),
            Time => "timestamp".into(),
            Bool => "boolean".into(),
            Vector => "vector<float, 2>".into(),
            Place => format!("{KEYSPACE}.place"),
            List(of) => format!("list<{}>", of.name()),
            Set(of) => format!("set<{}>", of.name()),
            Map(key, value) => format!("map<{}, {}>", key.name(), value.name()),
            Tuple(of) => {
                let names: Vec<String> = of.iter().map(|kind| kind.name()).collect();
                format!("tuple<{}>", names.join(", "))
            }
            Frozen(of) => format!("frozen<{}>", of.name()),
        }
    }
}

/// A write of one row or partition, whose key is left open.
#[derive(Clone, Debug)]
struct Write {
    text: String,
    /// By marker; `None` is the key.
    values: Vec<Option<Given>>,
    is_prepared: bool,
    is_counter: bool,
}

impl Write {
    fn asked(&self, key: i32, timestamp: i64) -> Asked {
        let given = |value: &Option<Given>| match value {
            Some(given) => given.clone(),
            None => Given::Bytes(key.to_be_bytes().into()),
        };
        let values = self.values.iter().map(given).collect();
        let text = self.text.replace(KEY, &key.to_string());
        let part = Part { text: text.replace("STAMP", &timestamp.to_string()), values };
        Asked {
            form: if self.is_prepared { Form::Prepared(part) } else { Form::Query(part) },
            consistency: 1,
            serial: None,
            page_size: None,
            timestamp: (!self.is_counter).then_some(timestamp),
            skip_metadata: false,
            repeats: false,
            is_wrong: false,
        }
    }
}

/// Draws writes.
struct Writes {
    rng: Rng,
    is_prepared: bool,
    values: Vec<Option<Given>>,
}

impl Writes {
    fn draw(&mut self) -> Write {
        self.is_prepared = self.rng.below(2) == 0;
        self.values.clear();
        let is_counter = self.rng.below(20) == 0;
        let text = match self.rng.below(10) {
            _ if is_counter => self.count(),
            0..2 => self.batch(),
            2..5 => self.insert(true),
            5..8 => self.update(true),
            _ => self.delete(true),
        };
        let (is_prepared, values) = (self.is_prepared, std::mem::take(&mut self.values));
        Write { text, values, is_prepared, is_counter }
    }

    fn is_one_of(&mut self, many: usize) -> bool {
        self.rng.below(many) == 0
    }

    fn column(&mut self) -> (&'static str, Kind) {
        COLUMNS[self.rng.below(COLUMNS.len())]
    }

    fn key(&mut self) -> String {
        if !self.is_prepared {
            return if self.is_one_of(4) { format!("({KEY})") } else { KEY.into() };
        }
        self.values.push(None);
        "?".into()
    }

    fn clustering(&mut self) -> String {
        ["'a'", "'b'", "('a')", "$$b$$"][self.rng.below(4)].into()
    }

    /// A value as the grammar has it.
    fn term(&mut self, kind: Kind) -> String {
        // What Cassandra refuses proves nothing; what it takes was to be judged.
        let kind = if self.is_one_of(20) { self.column().1 } else { kind };
        match self.rng.below(40) {
            0..7 => format!("({})", self.term(kind)),
            7..10 => format!("({}) {}", kind.name(), self.term(kind)),
            10 => format!("CAST({} AS {})", self.literal(kind), kind.name()),
            11 => self.call(kind),
            12 => format!("{} + {}", self.term(kind), self.term(kind)),
            13 => format!("-{}", self.literal(kind)),
            14 => "null".into(),
            15..26 if self.is_prepared => self.marker(kind),
            _ => self.literal(kind),
        }
    }

    fn call(&mut self, kind: Kind) -> String {
        let calls = match kind {
            Int => ["system.blob_as_int(0x00000000)", "blob_as_int(0x00000001)"],
            Text => ["system.blob_as_text(0x61)", "system.to_json(1)"],
            Uuid => ["uuid()", "system.min_timeuuid('2026-01-01')"],
            Time => ["'now'", "system.to_timestamp(now())"],
            _ => ["now()", "system.from_json('[1]')"],
        };
        calls[self.rng.below(2)].into()
    }

    fn marker(&mut self, kind: Kind) -> String {
        let given = match self.rng.below(20) {
            0 => Given::Null,
            1 => Given::Unset,
            _ => Given::Bytes(self.bytes(kind)),
        };
        self.values.push(Some(given));
        if self.is_one_of(3) { format!(":v{}", self.values.len()) } else { "?".into() }
    }

    fn several(&mut self, kind: Kind) -> Vec<String> {
        (0..self.rng.below(3)).map(|_| self.term(kind)).collect()
    }

    fn literal(&mut self, kind: Kind) -> String {
        let number = self.rng.below(3);
        match kind {
            Int => number.to_string(),
            Text => ["'a'", "'b'", "$$k$$"][number].into(),
            Double => ["0.0", "1", "2.5e1"][number].into(),
            Blob => ["0x", "0x00000001", "0xCAFE"][number].into(),
            Uuid => format!("7d444840-9dc0-11d1-b245-5ffdce74fad{number}"),
            Time => ["0", "'2026-01-01'", "1700000000000"][number].into(),
            Bool => ["true", "FALSE", "True"][number].into(),
            Vector => format!("[1.5, {number}]"),
            Place => format!("{{street: {}, no: {}}}", self.term(Text), self.term(Int)),
            List(of) => format!("[{}]", self.several(*of).join(", ")),
            Set(of) => format!("{{{}}}", self.several(*of).join(", ")),
            Map(key, value) => {
                let many = self.rng.below(3);
                let pair = |this: &mut Self| format!("{}: {}", this.term(*key), this.term(*value));
                let pairs: Vec<String> = (0..many).map(|_| pair(self)).collect();
                format!("{{{}}}", pairs.join(", "))
            }
            Tuple(of) => {
                let items: Vec<String> = of.iter().map(|kind| self.term(*kind)).collect();
                format!("({})", items.join(", "))
            }
            Frozen(of) => self.literal(*of),
        }
    }

    fn bytes(&mut self, kind: Kind) -> Vec<u8> {
        let number = self.rng.below(3) as u8;
        let joined = |items: Vec<Vec<u8>>| {
            let item = |item: Vec<u8>| [&(item.len() as u32).to_be_bytes()[..], &item].concat();
            items.into_iter().flat_map(item).collect::<Vec<u8>>()
        };
        let counted = |count: u32, items| [&count.to_be_bytes()[..], &joined(items)].concat();
        match kind {
            Int => i32::from(number).to_be_bytes().into(),
            Text => vec![b'a' + number],
            Double => f64::from(number).to_be_bytes().into(),
            Blob => vec![0; number.into()],
            Uuid => u128::from(number).to_be_bytes().into(),
            Time => i64::from(number).to_be_bytes().into(),
            Bool => vec![number % 2],
            Vector => [1.5_f32, number.into()].iter().flat_map(|part| part.to_be_bytes()).collect(),
            Place => joined(vec![self.bytes(Text), self.bytes(Int)]),
            List(of) | Set(of) => {
                let mut items: Vec<_> = (0..number).map(|_| self.bytes(*of)).collect();
                if let Set(_) = kind {
                    items.sort();
                    items.dedup();
                }
                counted(items.len() as u32, items)
            }
            Map(key, value) => counted(1, vec![self.bytes(*key), self.bytes(*value)]),
            Tuple(of) => joined(of.iter().map(|kind| self.bytes(*kind)).collect()),
            Frozen(of) => self.bytes(*of),
        }
    }

    fn using(&mut self) -> &'static str {
        [
            "",
            "",
            "",
            "",
            "USING TIMESTAMP STAMP",
            "USING TTL 86400",
            "USING TTL 86400 AND TIMESTAMP STAMP",
        ][self.rng.below(7)]
    }

    fn condition(&mut self) -> &'static str {
        if self.is_one_of(40) { "IF EXISTS" } else { "" }
    }

    fn insert(&mut self, is_alone: bool) -> String {
        if is_alone && self.is_one_of(20) {
            return format!(
                "INSERT INTO {KEYSPACE}.things JSON '{{\"k\": {KEY}, \"c\": \"a\", \"l\": [1]}}'"
            );
        }
        let mut columns: Vec<(&str, Kind)> = COLUMNS.to_vec();
        self.rng.shuffle(&mut columns);
        columns.truncate(1 + self.rng.below(3));
        let names: String = columns.iter().map(|(name, _)| format!(", {name}")).collect();
        let mut row = vec![self.key(), self.clustering()];
        row.extend(columns.iter().map(|(_, kind)| self.term(*kind)));
        let condition = if is_alone && self.is_one_of(40) { " IF NOT EXISTS" } else { "" };
        format!(
            "INSERT INTO {KEYSPACE}.things (k, c{names}) VALUES ({}){condition} {}",
            row.join(", "),
            if is_alone { self.using() } else { "" }
        )
    }

    fn assignment(&mut self) -> String {
        let (name, kind) = self.column();
        match (self.rng.below(9), kind) {
            (0, List(_) | Set(_) | Map(..)) => format!("{name} = {name} + {}", self.term(kind)),
            (1, Map(key, _)) => format!("{name} = {name} - {}", self.term(Set(key))),
            (1, List(_) | Set(_)) => format!("{name} = {name} - {}", self.term(kind)),
            (2, List(_) | Set(_) | Map(..)) => format!("{name} += {}", self.term(kind)),
            (3, List(_) | Set(_)) => format!("{name} -= {}", self.term(kind)),
            (4, List(_) | Set(_) | Map(..)) => format!("{} = {} + {name}", name, self.term(kind)),
            (5 | 6, Map(key, value)) => {
                format!("{name}[{}] = {}", self.term(*key), self.term(*value))
            }
            (5 | 6, List(of)) => format!("{name}[{}] = {}", self.term(Int), self.term(*of)),
            (5, Place) => format!("{name}.street = {}", self.term(Text)),
            _ => format!("{name} = {}", self.term(kind)),
        }
    }

    fn update(&mut self, is_alone: bool) -> String {
        let using = if is_alone { self.using() } else { "" };
        let changes: Vec<String> = (0..1 + self.rng.below(2)).map(|_| self.assignment()).collect();
        let (changes, key) = (changes.join(", "), self.key());
        let place = match self.rng.below(4) {
            0 => "c IN ('a', 'b')".to_owned(),
            1 => format!("(c) = ({})", self.clustering()),
            _ => format!("c = {}", self.clustering()),
        };
        let end = if is_alone { self.condition() } else { "" };
        format!("UPDATE {KEYSPACE}.things {using} SET {changes} WHERE k = {key} AND {place} {end}")
    }

    fn delete(&mut self, is_alone: bool) -> String {
        let what: Vec<String> = (0..self.rng.below(3))
            .map(|_| {
                let (name, kind) = self.column();
                match (kind, self.rng.below(3)) {
                    (List(_), 0 | 1) => format!("{name}[{}]", self.term(Int)),
                    (Map(key, _), 0 | 1) => format!("{name}[{}]", self.term(*key)),
                    (Set(of), 0) => format!("{name}[{}]", self.term(*of)),
                    (Place, 0) => format!("{name}.no"),
                    _ => name.to_owned(),
                }
            })
            .collect();
        let using = ["", "USING TIMESTAMP STAMP"][usize::from(is_alone && self.is_one_of(3))];
        let key = self.key();
        let compared = if what.is_empty() { ["=", ">=", "<"][self.rng.below(3)] } else { "=" };
        let (what, place) = (what.join(", "), self.clustering());
        format!(
            "DELETE {what} FROM {KEYSPACE}.things {using} WHERE k = {key} AND c {compared} {place}"
        )
    }

    fn batch(&mut self) -> String {
        let begin = ["BEGIN BATCH", "BEGIN UNLOGGED BATCH", "BEGIN BATCH USING TIMESTAMP STAMP"];
        let mut text = begin[self.rng.below(3)].to_owned();
        for _ in 0..1 + self.rng.below(3) {
            let part = match self.rng.below(3) {
                0 => self.insert(false),
                1 => self.update(false),
                _ => self.delete(false),
            };
            text += &format!(" {part};");
        }
        text + " APPLY BATCH"
    }

    fn count(&mut self) -> String {
        let by = self.term(Int);
        let change = ["n = n + ", "n = n - ", "n += ", "n -= "][self.rng.below(4)];
        format!("UPDATE {KEYSPACE}.counts SET {change}{by} WHERE k = {}", self.key())
    }
}

/// A node, and what it was seen to do.
struct Bench {
    side: Side,
    next_key: i32,
}

impl Bench {
    fn new(mut client: Client) -> Self {
        let columns: String =
            COLUMNS.iter().map(|(name, kind)| format!("{name} {}, ", kind.name())).collect();
        for text in [
            format!("DROP KEYSPACE IF EXISTS {KEYSPACE}"),
            format!(
                "CREATE KEYSPACE {KEYSPACE} WITH replication = \
                 {{'class': 'NetworkTopologyStrategy', 'east': 1}}"
            ),
            format!("CREATE TYPE {KEYSPACE}.place (street text, no int)"),
            format!("CREATE TABLE {KEYSPACE}.things (k int, c text, {columns} PRIMARY KEY (k, c))"),
            format!("CREATE TABLE {KEYSPACE}.counts (k int PRIMARY KEY, n counter)"),
        ] {
            client.change(&text);
        }
        Self { side: Side::of(client, KEYSPACE), next_key: 0 }
    }

    /// What a session would say of it, with what a PREPARED told of its markers.
    fn judge(&mut self, write: &Write) -> Option<Idempotence> {
        let asked = write.asked(0, WRITTEN);
        let (part, shapes) = match &asked.form {
            Form::Prepared(part) => {
                if !self.side.prepare(&part.text, &mut Vec::new()) {
                    return None;
                }
                (part, Some(self.side.shapes(&part.text)))
            }
            Form::Query(part) => (part, None),
            Form::Batch { .. } => unreachable!("no batch is drawn as a message"),
        };
        let bound = Bound { shapes, has_unset: part.values.contains(&Given::Unset) };
        Some(read(&part.text).idempotence(bound, asked.timestamp.is_some()))
    }

    fn run(&mut self, write: &Write, key: i32, timestamp: i64) -> Result<(), String> {
        let asked = write.asked(key, timestamp);
        if let Form::Prepared(part) = &asked.form
            && !self.side.prepare(&part.text, &mut Vec::new())
        {
            return Err(format!("not prepared: {}", part.text));
        }
        let answer: Envelope = self.side.ask_prepared(&asked, None);
        if answer.opcode == Opcode::Error { Err(reported(&answer)) } else { Ok(()) }
    }

    /// A row that has every column, and one that has few.
    fn fill(&mut self, key: i32) {
        let row = format!(
            "INSERT INTO {KEYSPACE}.things (k, c, n, v, u, l, lt, s, m, mi, f, ml, t, tl) VALUES \
             ({key}, 'a', 7, 'v', {{street: 's', no: 7}}, [0, 1, 2, 7], ['a', 'z'], {{0, 1, 7}}, \
             {{'a': 0, 'z': 7}}, {{0: 'a', 7: 'z'}}, [7], {{'a': [7]}}, (7, 'z'), ([7]))"
        );
        let text = format!(
            "BEGIN UNLOGGED BATCH USING TIMESTAMP {BEFORE} {row}; INSERT INTO {KEYSPACE}.things \
             (k, c, l, m) VALUES ({key}, 'b', [7], {{'b': 7}}); APPLY BATCH"
        );
        self.side.client.rows(&text);
    }

    fn rows(&mut self, key: i32) -> Vec<Row> {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let names = names.join(", ");
        let things = format!("SELECT c, {names} FROM {KEYSPACE}.things WHERE k = {key}");
        let counts = format!("SELECT n FROM {KEYSPACE}.counts WHERE k = {key}");
        [things, counts].iter().flat_map(|text| self.side.client.rows(text)).collect()
    }

    /// How two copies of a write, with another in between, differ from one; an error when the node
    /// refuses the write.
    fn difference(&mut self, write: &Write, between: &Write) -> Result<Option<String>, String> {
        let [once, twice] = [self.next_key, self.next_key + 1];
        self.next_key += 2;
        self.fill(once);
        self.fill(twice);
        self.run(write, once, WRITTEN)?;
        let expected = (self.run(between, once, BETWEEN), Ok(()), self.rows(once));
        self.run(write, twice, WRITTEN)?;
        let came = self.run(between, twice, BETWEEN);
        let came = (came, self.run(write, twice, WRITTEN), self.rows(twice));
        Ok((expected != came).then(|| format!("{expected:?}\n{came:?}")))
    }
}

#[test]
fn what_is_judged_idempotent_leaves_the_same_rows_when_it_runs_twice() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let _calm = cluster.calm();
    let number = |name: &str| std::env::var(name).ok().map(|number| number.parse().unwrap());
    let statements = number("EVENKEEL_CASSANDRA_STATEMENTS").unwrap_or(STATEMENTS);
    let seed = number("EVENKEEL_CASSANDRA_SEED").unwrap_or(1);
    let mut writes =
        Writes { rng: Rng::stream(seed as u64, "twice"), is_prepared: false, values: Vec::new() };
    let client = Client::connect(cluster.address(0), Version::V4, None).unwrap();
    let mut bench = Bench::new(client);
    let mut between = Vec::new();
    // By verdict: how many ran, and how many of them left something else.
    let mut tally: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    let (mut ran, mut refused) = (0, 0);
    while ran < statements {
        let write = writes.draw();
        let Some(verdict) = bench.judge(&write) else {
            refused += 1;
            continue;
        };
        let other = between.last().unwrap_or(&write).clone();
        let of_lists = [Why::ListWhole, Why::ListOperation, Why::ListElement];
        let of_lists = of_lists.map(Idempotence::No).contains(&verdict);
        // What comes between leaves the same each time.
        let is_unsteady = ["{", "now", "uuid"].iter().any(|what| write.text.contains(what));
        let has_one_effect = verdict.is_proven() || of_lists && !is_unsteady;
        if has_one_effect && writes.is_one_of(3) {
            between.push(write.clone());
        }
        let Ok(difference) = bench.difference(&write, &other) else {
            refused += 1;
            continue;
        };
        ran += 1;
        let counts = tally.entry(verdict.to_string()).or_default();
        *counts = [counts[0] + 1, counts[1] + usize::from(difference.is_some())];
        if let Some(difference) = difference.filter(|_| verdict.is_proven()) {
            panic!("seed {seed}: {write:?}, with this in between: {other:?}: {difference}");
        }
    }
    eprintln!("{ran} ran, {refused} were refused; ran and left something else: {tally:?}");
    let count = |verdict: Idempotence| tally.get(&verdict.to_string()).copied().unwrap_or_default();
    assert!(count(Idempotence::Yes)[0] > ran / 4, "{tally:?}");
    // The bench sees what a second copy does.
    for why in [Why::ListWhole, Why::Counter] {
        assert!(count(Idempotence::No(why))[1] > 0, "{why:?}: {tally:?}");
    }
    bench.side.client.change(&format!("DROP KEYSPACE {KEYSPACE}"));
}
