//! Random statements with their values, for asking Cassandra directly and through Evenkeel.
//!
//! A seed makes the same statements every time. Answers are comparable byte by byte when both ways
//! ask in the same order with what is written at a level that the reads see. So that they are:
//! every write but of counters has a timestamp of its own from the client; conditional writes have
//! a table of their own, which nothing else writes; nothing asks for what depends on the time
//! (`now()`, `ttl()`) or on who asks (tracing).
//!
//! About one in ten is an error: of syntax, of names, of types, of values.

use std::fmt::Write as _;

use evenkeel_core::Rng;

/// The first timestamp of a client, in microseconds: in 2023.
const TIMESTAMP_FIRST: i64 = 1_700_000_000_000_000;

/// Values of the first column of partition keys, few enough to meet again.
const KEYS: usize = 20;

/// What one bind marker gets.
#[derive(Clone, PartialEq, Debug)]
pub enum Given {
    /// The value's bytes.
    Bytes(Vec<u8>),
    /// Null: length -1.
    Null,
    /// Unset: length -2.
    Unset,
}

/// A text with what is bound to its markers.
#[derive(Clone, PartialEq, Debug)]
pub struct Part {
    /// With its markers.
    pub text: String,
    /// By marker.
    pub values: Vec<Given>,
}

/// In which messages a statement is asked.
#[derive(Clone, PartialEq, Debug)]
pub enum Form {
    /// QUERY.
    Query(Part),
    /// PREPARE and EXECUTE.
    Prepared(Part),
    /// BATCH.
    Batch {
        /// 0 logged, 1 unlogged, 2 counter.
        kind: u8,
        /// Each with whether it is prepared.
        parts: Vec<(Part, bool)>,
    },
}

/// One statement with what its message says besides.
#[derive(Clone, PartialEq, Debug)]
pub struct Asked {
    /// The messages.
    pub form: Form,
    /// A level of the protocol's numbers.
    pub consistency: u16,
    /// SERIAL (8) or LOCAL_SERIAL (9).
    pub serial: Option<u16>,
    /// Pages are to be followed to the end.
    pub page_size: Option<i32>,
    /// The default timestamp.
    pub timestamp: Option<i64>,
    /// Of an EXECUTE: the answer need not describe its columns.
    pub skip_metadata: bool,
    /// Whether the same statement asked twice in a row is answered the same.
    pub repeats: bool,
    /// Whether Cassandra must refuse it.
    pub is_wrong: bool,
}

/// What there must be before the first statement: one text each, apart from the keyspace itself.
#[must_use]
pub fn schema(keyspace: &str) -> Vec<String> {
    vec![
        format!("CREATE TYPE IF NOT EXISTS {keyspace}.place (street text, no int)"),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.things (k int, c text, v text, n bigint, \
             d double, s set<text>, m map<text, int>, l list<int>, f frozen<list<int>>, \
             t tuple<int, text>, at timestamp, id uuid, b blob, u place, o boolean, i inet, \
             z int static, PRIMARY KEY (k, c))"
        ),
        format!(
            "CREATE TABLE IF NOT EXISTS {keyspace}.pairs (a text, b int, v text, \
             PRIMARY KEY ((a, b)))"
        ),
        format!("CREATE TABLE IF NOT EXISTS {keyspace}.counts (k int PRIMARY KEY, c counter)"),
        format!("CREATE TABLE IF NOT EXISTS {keyspace}.locks (k int PRIMARY KEY, v int)"),
    ]
}

/// A column that is written whole: its name, and a value as text and as bytes.
type Column = (&'static str, fn(&mut Rng) -> (String, Vec<u8>));

const COLUMNS: [Column; 15] = [
    ("v", text),
    ("n", |rng| {
        let number = rng.bits().cast_signed();
        (number.to_string(), number.to_be_bytes().into())
    }),
    ("d", |rng| {
        let number = rng.unit() * 1e3 - 500.0;
        (format!("{number:?}"), number.to_be_bytes().into())
    }),
    ("s", |rng| {
        let mut items = (0..rng.below(4)).map(|_| text(rng)).collect::<Vec<_>>();
        items.sort();
        items.dedup();
        (braces(items.iter().map(|item| item.0.clone())), counted(items.len(), &bytes_of(&items)))
    }),
    ("m", |rng| {
        let count = rng.below(4);
        let items = (0..count).map(|index| (quoted(&format!("k{index}")), int(rng)));
        let items = items.collect::<Vec<_>>();
        let mut bytes = Vec::new();
        for (index, (_, value)) in items.iter().enumerate() {
            bytes.push(format!("k{index}").into_bytes());
            bytes.push(value.1.clone());
        }
        (
            braces(items.iter().map(|(key, value)| format!("{key}: {}", value.0))),
            counted(count, &bytes),
        )
    }),
    ("l", list),
    ("f", list),
    ("t", |rng| {
        let (number, word) = (int(rng), text(rng));
        let bytes = [number.1, word.1].iter().flat_map(|item| with_length(item)).collect();
        (format!("({}, {})", number.0, word.0), bytes)
    }),
    ("at", |rng| {
        let milliseconds = i64::from(rng.bits() as u32) * 1_000;
        (milliseconds.to_string(), milliseconds.to_be_bytes().into())
    }),
    ("id", |rng| {
        let number = u128::from(rng.bits()) << 64 | u128::from(rng.bits());
        let digits = format!("{number:032x}");
        let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        (parts.join("-"), number.to_be_bytes().into())
    }),
    ("b", |rng| {
        let bytes = (0..rng.below(40)).map(|_| rng.bits() as u8).collect::<Vec<_>>();
        (format!("0x{}", hex(&bytes)), bytes)
    }),
    ("u", |rng| {
        let (street, number) = (text(rng), int(rng));
        let bytes = [street.1, number.1].iter().flat_map(|item| with_length(item)).collect();
        (format!("{{street: {}, no: {}}}", street.0, number.0), bytes)
    }),
    ("o", |rng| {
        let holds = rng.below(2) == 1;
        (holds.to_string(), vec![u8::from(holds)])
    }),
    ("i", |rng| {
        let address = (rng.bits() as u32).to_be_bytes();
        let [a, b, c, d] = address;
        (format!("'{a}.{b}.{c}.{d}'"), address.into())
    }),
    ("z", int),
];

const PROJECTIONS: [&str; 12] = [
    "*",
    "k, c, v",
    "JSON *",
    "JSON k, s, m",
    "count(*)",
    "DISTINCT k, z",
    "k, c AS name, m['k1'], u.street",
    "CAST(n AS text), d + 1, toJson(s)",
    "writetime(v), v",
    "max(n), min(d), sum(k), avg(d)",
    "token(k), k",
    "(int) 5, k",
];

const ENDS: [&str; 9] = [
    "",
    "",
    "",
    " LIMIT 3",
    " PER PARTITION LIMIT 2",
    " PER PARTITION LIMIT 1 LIMIT 5",
    " ALLOW FILTERING",
    " LIMIT 100 ALLOW FILTERING",
    " LIMIT 1",
];

/// Makes statements.
#[derive(Debug)]
pub struct Statements {
    rng: Rng,
    keyspace: String,
    reads: Vec<u16>,
    writes: Vec<u16>,
    timestamp: i64,
}

impl Statements {
    /// Statements on the tables of [`schema`] in `keyspace`, which a third of them names; the
    /// others mean the connection's. What is written at any level of `writes` must be seen at any
    /// of `reads` (levels by the protocol's numbers).
    #[must_use]
    pub fn new(seed: u64, keyspace: &str, reads: &[u16], writes: &[u16]) -> Self {
        Self {
            rng: Rng::stream(seed, "statements"),
            keyspace: keyspace.into(),
            reads: reads.into(),
            writes: writes.into(),
            timestamp: TIMESTAMP_FIRST,
        }
    }

    /// The next statement.
    pub fn draw(&mut self) -> Asked {
        match self.rng.below(100) {
            0..35 => self.read(),
            35..65 => {
                let part = self.write();
                self.asked(part, true)
            }
            65..72 => self.counter(),
            72..80 => self.batch(),
            80..90 => self.conditional(),
            _ => self.wrong(),
        }
    }

    fn table(&mut self, name: &str) -> String {
        if self.rng.below(3) == 0 { format!("{}.{name}", self.keyspace) } else { name.into() }
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.rng.below(choices.len())].clone()
    }

    /// A write as QUERY or EXECUTE, with a timestamp.
    fn asked(&mut self, part: Part, repeats: bool) -> Asked {
        self.timestamp += 1;
        let is_prepared = self.rng.below(2) == 0;
        Asked {
            form: if is_prepared { Form::Prepared(part) } else { Form::Query(part) },
            consistency: self.one_of(&self.writes.clone()),
            serial: None,
            page_size: None,
            timestamp: Some(self.timestamp),
            skip_metadata: is_prepared && self.rng.below(2) == 0,
            repeats,
            is_wrong: false,
        }
    }

    /// A value as a literal in the text or bound to a marker.
    fn value(&mut self, (literal, bytes): (String, Vec<u8>), values: &mut Vec<Given>) -> String {
        if self.rng.below(2) == 0 {
            return literal;
        }
        values.push(Given::Bytes(bytes));
        "?".into()
    }

    fn read(&mut self) -> Asked {
        let mut values = Vec::new();
        let mut text = if self.rng.below(6) == 0 {
            let table = self.table("pairs");
            let (a, b) = (pair(&mut self.rng), key(&mut self.rng));
            let (a, b) = (self.value(a, &mut values), self.value(b, &mut values));
            format!("SELECT * FROM {table} WHERE a = {a} AND b = {b}")
        } else {
            let table = self.table("things");
            let projection = self.one_of(&PROJECTIONS);
            let limits = self.range(&mut values, projection.starts_with("DISTINCT"));
            format!("SELECT {projection} FROM {table}{limits}")
        };
        if !text.contains("DISTINCT") {
            text += self.one_of(&ENDS);
        }
        let part = Part { text, values };
        let page_size = self.one_of(&[None, Some(1), Some(2), Some(7), Some(5_000)]);
        let consistency = self.one_of(&self.reads.clone());
        Asked { page_size, consistency, timestamp: None, ..self.asked(part, true) }
    }

    /// What rows of `things` are meant.
    fn range(&mut self, values: &mut Vec<Given>, is_partitions_only: bool) -> String {
        let key_value = key(&mut self.rng);
        let choices = if is_partitions_only { 2 } else { 6 };
        match self.rng.below(choices) {
            0 => String::new(),
            1 => format!(" WHERE k = {}", self.value(key_value, values)),
            2 => {
                let k = self.value(key_value, values);
                let c = clustering(&mut self.rng);
                format!(" WHERE k = {k} AND c = {}", self.value(c, values))
            }
            3 => {
                let k = self.value(key_value, values);
                let c = clustering(&mut self.rng);
                format!(" WHERE k = {k} AND c >= {} ORDER BY c DESC", self.value(c, values))
            }
            4 => {
                let other = key(&mut self.rng);
                let first = self.value(key_value, values);
                let second = self.value(other, values);
                format!(" WHERE k IN ({first}, {second})")
            }
            _ => " WHERE token(k) > 0".into(),
        }
    }

    fn write(&mut self) -> Part {
        match self.rng.below(10) {
            0..4 => self.insert(),
            4..8 => self.update(),
            8 => self.delete(),
            _ => {
                let table = self.table("pairs");
                let mut values = Vec::new();
                let row = [pair(&mut self.rng), key(&mut self.rng), text(&mut self.rng)];
                let row = row.map(|item| self.value(item, &mut values)).join(", ");
                Part { text: format!("INSERT INTO {table} (a, b, v) VALUES ({row})"), values }
            }
        }
    }

    /// Some columns of `things`, each at most once.
    fn columns(&mut self) -> Vec<Column> {
        let mut columns = COLUMNS.to_vec();
        self.rng.shuffle(&mut columns);
        columns.truncate(1 + self.rng.below(5));
        columns
    }

    fn insert(&mut self) -> Part {
        let mut values = Vec::new();
        let mut names = String::from("k, c");
        let row = [key(&mut self.rng), clustering(&mut self.rng)];
        let mut row = row.map(|item| self.value(item, &mut values)).to_vec();
        for (name, make) in self.columns() {
            write!(names, ", {name}").expect("memory");
            if self.rng.below(10) == 0 {
                row.push("?".into());
                values.push(self.one_of(&[Given::Null, Given::Unset]));
            } else {
                let value = make(&mut self.rng);
                row.push(self.value(value, &mut values));
            }
        }
        let table = self.table("things");
        let end = self.one_of(&["", "", "", " USING TTL 864000"]);
        let row = row.join(", ");
        Part { text: format!("INSERT INTO {table} ({names}) VALUES ({row}){end}"), values }
    }

    fn update(&mut self) -> Part {
        let mut values = Vec::new();
        let mut changes = Vec::new();
        for (name, make) in self.columns() {
            let value = make(&mut self.rng);
            let is_collection = matches!(name, "s" | "m" | "l");
            let value = self.value(value, &mut values);
            // A map takes keys away, not pairs.
            match self.rng.below(4) {
                0 if is_collection => changes.push(format!("{name} = {name} + {value}")),
                1 if matches!(name, "s" | "l") => changes.push(format!("{name} -= {value}")),
                _ => changes.push(format!("{name} = {value}")),
            }
        }
        let place = [key(&mut self.rng), clustering(&mut self.rng)];
        let [k, c] = place.map(|item| self.value(item, &mut values));
        let table = self.table("things");
        let changes = changes.join(", ");
        Part { text: format!("UPDATE {table} SET {changes} WHERE k = {k} AND c = {c}"), values }
    }

    fn delete(&mut self) -> Part {
        let mut values = Vec::new();
        let what = self.one_of(&["", "v ", "s, m ", "m['k1'] ", "u.street, b "]);
        let k = key(&mut self.rng);
        let k = self.value(k, &mut values);
        let table = self.table("things");
        let mut text = format!("DELETE {what}FROM {table} WHERE k = {k}");
        let compared = if what.is_empty() { self.one_of(&["=", ">", "<="]) } else { "=" };
        let c = clustering(&mut self.rng);
        write!(text, " AND c {compared} {}", self.value(c, &mut values)).expect("memory");
        Part { text, values }
    }

    fn count(&mut self) -> Part {
        let mut values = Vec::new();
        let table = self.table("counts");
        let by = self.rng.below(9) as i64;
        let by = self.value((by.to_string(), by.to_be_bytes().into()), &mut values);
        let k = key(&mut self.rng);
        let k = self.value(k, &mut values);
        Part { text: format!("UPDATE {table} SET c = c + {by} WHERE k = {k}"), values }
    }

    fn counter(&mut self) -> Asked {
        if self.rng.below(2) == 0 {
            let table = self.table("counts");
            let part = Part { text: format!("SELECT * FROM {table}"), values: Vec::new() };
            let consistency = self.one_of(&self.reads.clone());
            return Asked { consistency, timestamp: None, ..self.asked(part, true) };
        }
        let part = self.count();
        Asked { timestamp: None, ..self.asked(part, true) }
    }

    fn batch(&mut self) -> Asked {
        let kind = self.one_of(&[0, 1, 1, 2]);
        let count = 1 + self.rng.below(4);
        let parts = (0..count).map(|_| {
            let part = if kind == 2 { self.count() } else { self.write() };
            (part, self.rng.below(2) == 0)
        });
        let form = Form::Batch { kind, parts: parts.collect() };
        let empty = Part { text: String::new(), values: Vec::new() };
        let asked = self.asked(empty, true);
        let timestamp = asked.timestamp.filter(|_| kind != 2);
        Asked { form, timestamp, skip_metadata: false, ..asked }
    }

    fn conditional(&mut self) -> Asked {
        let mut values = Vec::new();
        let table = self.table("locks");
        let (k, v, was) = (key(&mut self.rng), int(&mut self.rng), int(&mut self.rng));
        let kind = self.rng.below(4);
        let k = self.value(k, &mut values);
        let text = match kind {
            0 => {
                let v = self.value(v, &mut values);
                format!("INSERT INTO {table} (k, v) VALUES ({k}, {v}) IF NOT EXISTS")
            }
            1 => format!("UPDATE {table} SET v = {} WHERE k = {k} IF v = {}", v.0, was.0),
            2 => format!("DELETE FROM {table} WHERE k = {k} IF EXISTS"),
            _ => format!("SELECT * FROM {table} WHERE k = {k}"),
        };
        let serial = Some(self.one_of(&[8, 9]));
        let asked = self.asked(Part { text, values }, kind == 3);
        let consistency = if kind == 3 { 8 } else { asked.consistency };
        Asked { serial, consistency, timestamp: None, ..asked }
    }

    /// What Cassandra refuses, and always with the same words.
    fn wrong(&mut self) -> Asked {
        let things = self.table("things");
        let bytes = |bytes: &[u8]| Given::Bytes(bytes.to_vec());
        let (text, values) = match self.rng.below(14) {
            0 => (String::new(), vec![]),
            1 => ("SELEC * FROM things".into(), vec![]),
            2 => (format!("SELECT * FROM {things} WHERE"), vec![]),
            3 => (format!("SELECT nothing FROM {things}"), vec![]),
            4 => (format!("SELECT * FROM {}.nothing", self.keyspace), vec![]),
            5 => ("SELECT * FROM nowhere.things".into(), vec![]),
            6 => (format!("SELECT * FROM {things} LIMIT 0"), vec![]),
            7 => (format!("SELECT * FROM {things} WHERE v = 'x'"), vec![]),
            8 => (format!("INSERT INTO {things} (k, c) VALUES ('one', 'c')"), vec![]),
            9 => (format!("INSERT INTO {things} (c) VALUES ('c')"), vec![]),
            10 => (format!("UPDATE {things} SET k = 1 WHERE k = 1 AND c = 'c'"), vec![]),
            11 => (format!("SELECT * FROM {things} WHERE k = ?"), vec![bytes(&[1, 2, 3])]),
            12 => (format!("SELECT * FROM {things} WHERE k = ?"), vec![Given::Null]),
            _ => (format!("DELETE FROM {things} WHERE k = ? AND c = ?"), vec![bytes(&[0; 4])]),
        };
        Asked { is_wrong: true, ..self.asked(Part { text, values }, true) }
    }
}

fn int(rng: &mut Rng) -> (String, Vec<u8>) {
    let number = rng.below(1_000) as i32 - 500;
    (number.to_string(), number.to_be_bytes().into())
}

fn key(rng: &mut Rng) -> (String, Vec<u8>) {
    let number = rng.below(KEYS) as i32;
    (number.to_string(), number.to_be_bytes().into())
}

fn clustering(rng: &mut Rng) -> (String, Vec<u8>) {
    let word = format!("c{}", rng.below(10));
    (quoted(&word), word.into_bytes())
}

fn pair(rng: &mut Rng) -> (String, Vec<u8>) {
    let word = format!("it's {}", rng.below(KEYS));
    (quoted(&word), word.into_bytes())
}

fn text(rng: &mut Rng) -> (String, Vec<u8>) {
    let words = ["", "x", "it's", "naïve", "日本", "IF -- not", "a longer text with ? and :v"];
    let mut word = words[rng.below(words.len())].to_owned();
    if rng.below(20) == 0 {
        // Larger than a segment of protocol v5 may be, 128 KiB.
        word += &"long ".repeat(30_000);
    }
    (quoted(&word), word.into_bytes())
}

fn list(rng: &mut Rng) -> (String, Vec<u8>) {
    let items = (0..rng.below(4)).map(|_| int(rng)).collect::<Vec<_>>();
    let texts = items.iter().map(|item| item.0.clone()).collect::<Vec<_>>();
    (format!("[{}]", texts.join(", ")), counted(items.len(), &bytes_of(&items)))
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "''"))
}

fn braces(items: impl Iterator<Item = String>) -> String {
    format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
}

fn bytes_of(items: &[(String, Vec<u8>)]) -> Vec<Vec<u8>> {
    items.iter().map(|item| item.1.clone()).collect()
}

fn with_length(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).expect("small");
    [&length.to_be_bytes()[..], bytes].concat()
}

/// A collection of this many elements, whose parts are these.
fn counted(count: usize, parts: &[Vec<u8>]) -> Vec<u8> {
    let count = i32::try_from(count).expect("small");
    let parts = parts.iter().flat_map(|part| with_length(part));
    count.to_be_bytes().into_iter().chain(parts).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("memory");
        text
    })
}
