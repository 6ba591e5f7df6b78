//! What is told from the text of statements: one line each.
//!
//! Expected are Cassandra's documentation and what Cassandra 5.0.9 was seen to do; see
//! `docs/cassandra-idempotence.md`.

use evenkeel_cql::statement::{
    Bound, Column, Columns, Condition, Idempotence, Kind, Shape, Statement, SystemSelect,
    SystemTable, Table, Value, Why, read,
};

/// The verdicts of a text without values: from the text alone, and with a client's timestamp.
fn verdicts(text: &str) -> (Idempotence, Idempotence) {
    let statement = read(text);
    let bound = Bound { shapes: None, has_unset: false };
    (statement.idempotence(bound, false), statement.idempotence(bound, true))
}

const YES: Idempotence = Idempotence::Yes;
const STAMP: Idempotence = Idempotence::WithTimestamp;

#[test]
fn each_form_has_its_verdict() {
    let lines = include_str!("statements.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut reasons = Vec::new();
    let mut count = 0;
    for line in lines {
        let (expected, text) = line.split_once(' ').expect("a verdict and a text");
        let expected = match expected {
            "yes" => (YES, YES),
            "stamp" => (STAMP, YES),
            why => {
                let why = Why::ALL.into_iter().find(|known| known.name() == why);
                let why = why.unwrap_or_else(|| panic!("no verdict: {line}"));
                reasons.push(why);
                (Idempotence::No(why), Idempotence::No(why))
            }
        };
        assert_eq!(verdicts(text), expected, "{text}");
        count += 1;
    }
    assert!(count > 150, "{count}");
    for why in Why::ALL {
        assert!(reasons.contains(&why), "{why:?} has no line");
    }
}

#[test]
fn types_of_bound_values_decide() {
    use Shape::{Counter, Int, List, Map, Other, Set};
    let no = Idempotence::No;
    let lines: [(&str, &[Shape], Idempotence); 27] = [
        ("INSERT INTO t (k, v) VALUES (?, ?)", &[Other, Other], YES),
        ("INSERT INTO t (k, v) VALUES (?, ?)", &[Int, Set], YES),
        ("INSERT INTO t (k, v) VALUES (?, ?)", &[Int, Map], YES),
        ("INSERT INTO t (k, v) VALUES (?, ?)", &[Int, List], no(Why::ListWhole)),
        ("INSERT INTO t (k, v) VALUES (?, {1: ?})", &[Int, List], YES),
        ("UPDATE t SET v = ? WHERE k IN ?", &[Other, List], YES),
        ("UPDATE t SET v = ? WHERE k = ?", &[List, Int], no(Why::ListWhole)),
        ("UPDATE t SET v = v + ? WHERE k = ?", &[Set, Int], YES),
        ("UPDATE t SET v = v + ? WHERE k = ?", &[Map, Int], YES),
        ("UPDATE t SET v = v - ? WHERE k = ?", &[Set, Int], YES),
        ("UPDATE t SET v = v + ? WHERE k = ?", &[List, Int], no(Why::ListOperation)),
        ("UPDATE t SET v = v - ? WHERE k = ?", &[List, Int], no(Why::ListOperation)),
        ("UPDATE t SET v += ? WHERE k = ?", &[Counter, Int], no(Why::Counter)),
        ("UPDATE t SET v -= ? WHERE k = ?", &[Int, Int], no(Why::Counter)),
        ("UPDATE t SET v[?] = ? WHERE k = ?", &[Int, Other, Int], no(Why::ListElement)),
        ("UPDATE t SET v[?] = ? WHERE k = ?", &[Other, List, Int], YES),
        ("DELETE v[?] FROM t WHERE k = ?", &[Int, Int], no(Why::ListElement)),
        ("DELETE v[?] FROM t WHERE k = ?", &[Other, Int], YES),
        ("INSERT INTO t (k, v) VALUES (?, (?))", &[Int, List], no(Why::ListWhole)),
        ("UPDATE t SET v = (?) WHERE k = ?", &[List, Int], no(Why::ListWhole)),
        ("UPDATE t SET v = ((?)) WHERE k = ?", &[Set, Int], YES),
        ("UPDATE t SET v = (?, ?) WHERE k = ?", &[List, List, Int], YES),
        ("UPDATE t SET v = v - (?) WHERE k = ?", &[List, Int], no(Why::ListOperation)),
        ("UPDATE t SET v[(?)] = 5 WHERE k = ?", &[Int, Int], no(Why::ListElement)),
        ("UPDATE t SET v[((int) ?)] = 5 WHERE k = ?", &[Int, Int], no(Why::ListElement)),
        ("DELETE v[(?)] FROM t WHERE k = ?", &[Int, Int], no(Why::ListElement)),
        (
            "UPDATE t USING TTL ? SET a = :a, b = :b WHERE k = :k",
            &[Int, Other, List, Int],
            no(Why::ListWhole),
        ),
    ];
    for (text, shapes, expected) in lines {
        let bound = Bound { shapes: Some(shapes), has_unset: true };
        assert_eq!(read(text).idempotence(bound, true), expected, "{text} {shapes:?}");
        let unstamped = if expected == YES { STAMP } else { expected };
        assert_eq!(read(text).idempotence(bound, false), unstamped, "{text} {shapes:?}");
    }
}

#[test]
fn types_that_do_not_fit_the_markers_are_no_types() {
    // Two markers of one name: Cassandra may describe them once.
    let statement = read("UPDATE t SET a = :x, b = :y WHERE k = :x");
    for shapes in [&[Shape::Other; 2][..], &[Shape::Other; 4], &[]] {
        let bound = Bound { shapes: Some(shapes), has_unset: false };
        let expected = Idempotence::No(Why::UnknownType);
        assert_eq!(statement.idempotence(bound, true), expected, "{}", shapes.len());
    }
    // Where no marker's type matters, their number does not either.
    let bound = Bound { shapes: Some(&[]), has_unset: false };
    assert_eq!(read("DELETE FROM t WHERE k = ?").idempotence(bound, true), YES);
}

#[test]
fn a_bound_timestamp_counts_unless_it_may_be_unset() {
    let text = "UPDATE t USING TIMESTAMP ? SET v = ? WHERE k = ?";
    let shapes = Some(&[Shape::Other; 3][..]);
    let unset = Bound { shapes, has_unset: true };
    let set = Bound { shapes, has_unset: false };
    assert_eq!(read(text).idempotence(set, false), YES);
    assert_eq!(read(text).idempotence(unset, false), STAMP);
    assert_eq!(read(text).idempotence(unset, true), YES);
}

#[test]
fn parts_of_a_batch_message_are_joined() {
    let no = Idempotence::No(Why::Counter);
    assert_eq!(YES.and(YES), YES);
    assert_eq!(YES.and(STAMP), STAMP);
    assert_eq!(STAMP.and(no), no);
    assert_eq!(no.and(Idempotence::No(Why::Json)), no);
    assert!(YES.is_proven() && !STAMP.is_proven() && !no.is_proven());
}

fn table(keyspace: Option<&str>, name: &str) -> Option<Table> {
    Some(Table { keyspace: keyspace.map(Into::into), name: name.into() })
}

#[test]
fn kinds_and_tables_are_told() {
    let lines = [
        ("select * from KS.Tab where k = 1", Kind::Select, table(Some("ks"), "tab")),
        ("SELECT DISTINCT k FROM \"KS\".\"T\"\"x\"", Kind::Select, table(Some("KS"), "T\"x")),
        ("SELECT json a, 'FROM x' FROM t", Kind::Select, table(None, "t")),
        (
            "SELECT a[1..2], CAST(b AS text) FROM ks . t ORDER BY v ANN OF ? LIMIT 2",
            Kind::Select,
            table(Some("ks"), "t"),
        ),
        ("SELECT 1", Kind::Select, None),
        ("SELECT a FROM ?", Kind::Select, None),
        ("INSERT INTO ks.t JSON ?", Kind::Insert, table(Some("ks"), "t")),
        ("UPDATE t SET a = 1 WHERE k = 1", Kind::Update, table(None, "t")),
        ("UPDATE t oops", Kind::Update, table(None, "t")),
        ("DELETE a, b['x'] FROM ks.t WHERE k = 1", Kind::Delete, table(Some("ks"), "t")),
        ("TRUNCATE t", Kind::Truncate, table(None, "t")),
        ("TRUNCATE TABLE ks.t", Kind::Truncate, table(Some("ks"), "t")),
        ("TRUNCATE ks.t;", Kind::Truncate, table(Some("ks"), "t")),
        (
            "BEGIN BATCH INSERT INTO a.t (k) VALUES (1); DELETE FROM a.u WHERE k = 1 APPLY BATCH",
            Kind::Batch,
            table(Some("a"), "t"),
        ),
        (
            "BEGIN BATCH INSERT INTO a.t (k) VALUES (1); DELETE FROM b.t WHERE k = 1 APPLY BATCH",
            Kind::Batch,
            None,
        ),
        ("BEGIN BATCH INSERT INTO a.t (k) VALUES (1); DELETE FROM b.t oops", Kind::Batch, None),
        ("USE KS", Kind::Use("ks".into()), None),
        ("use \"KS\" ;", Kind::Use("KS".into()), None),
        ("USE a b", Kind::Other, None),
        ("CREATE MATERIALIZED VIEW v AS SELECT * FROM t", Kind::Schema, None),
        ("ALTER TABLE t ADD role text", Kind::Schema, None),
        ("DROP ROLE IF EXISTS r", Kind::Role, None),
        ("ADD IDENTITY 'x' TO ROLE 'r'", Kind::Role, None),
        ("GRANT SELECT ON ALL KEYSPACES TO r", Kind::Role, None),
        ("LIST ROLES", Kind::Describe, None),
        ("DESC KEYSPACES", Kind::Describe, None),
        ("EXPLAIN SELECT 1", Kind::Other, None),
        ("", Kind::Other, None),
        ("(SELECT * FROM t)", Kind::Other, None),
    ];
    for (text, kind, table) in lines {
        let Statement { kind: found_kind, table: found_table, .. } = read(text);
        assert_eq!((found_kind, found_table), (kind, table), "{text}");
    }
}

#[test]
fn what_reads_and_what_is_conditional_is_told() {
    let lines = [
        ("SELECT * FROM t", false, false),
        ("USE ks", false, false),
        ("LIST USERS", false, false),
        ("INSERT INTO t (k) VALUES (1)", true, false),
        ("INSERT INTO t (k) VALUES (1) IF NOT EXISTS", true, true),
        ("INSERT INTO t (\"if\") VALUES ('IF') -- IF\n", true, false),
        ("UPDATE t SET a = 1 WHERE k = 1 IF EXISTS", true, true),
        ("UPDATE t SET a = 1 WHERE k = 1 IF a IN (1, 2) AND b[1] != 3", true, true),
        ("DELETE FROM t WHERE k = 1 if a contains 3", true, true),
        ("DELETE FROM t WHERE oops (k) = 1 IF EXISTS", true, true),
        ("BEGIN BATCH UPDATE t SET a = 1 WHERE k = 1 IF a = 2; APPLY BATCH", true, true),
        ("CREATE TABLE IF NOT EXISTS t (k int PRIMARY KEY)", true, false),
        ("anything else", true, false),
    ];
    for (text, writes, is_conditional) in lines {
        let statement = read(text);
        assert_eq!(
            (statement.writes(), statement.is_conditional),
            (writes, is_conditional),
            "{text}"
        );
    }
}

fn select(text: &str) -> (SystemTable, Option<SystemSelect>) {
    let query = read(text).system.unwrap_or_else(|| panic!("no system table: {text}"));
    (query.table, query.select)
}

fn column(name: &str, alias: Option<&str>) -> Column {
    Column { name: name.into(), alias: alias.map(Into::into) }
}

#[test]
fn what_drivers_ask_of_the_system_tables_is_told() {
    let all = |conditions| Some(SystemSelect { columns: Columns::All, conditions, limit: None });
    let text = |text: &str| Value::Text(text.into());
    let condition = |column: &str, values| Condition { column: column.into(), values };
    assert_eq!(
        select("SELECT * FROM system.local WHERE key='local'"),
        (SystemTable::Local, all(vec![condition("key", vec![text("local")])]))
    );
    assert_eq!(select("select * from SYSTEM.peers_v2;"), (SystemTable::PeersV2, all(vec![])));
    assert_eq!(
        select(
            "SELECT * FROM peers WHERE peer IN ('::1', $$it$$) AND peer_port = ? \
                AND data_center = :dc AND host_id = 7d444840-9dc0-11d1-b245-5ffdce74fad2"
        ),
        (
            SystemTable::Peers,
            all(vec![
                condition("peer", vec![text("::1"), text("it")]),
                condition("peer_port", vec![Value::Marker(0)]),
                condition("data_center", vec![Value::Marker(1)]),
                condition(
                    "host_id",
                    vec![Value::Written("7d444840-9dc0-11d1-b245-5ffdce74fad2".into())]
                ),
            ])
        )
    );
    let (_, found) = select(
        "SELECT Peer, rack AS \"R\", count FROM system.peers LIMIT 1 \
                             ALLOW FILTERING",
    );
    let named = vec![column("peer", None), column("rack", Some("R")), column("count", None)];
    let expected =
        SystemSelect { columns: Columns::Named(named), conditions: vec![], limit: Some(1) };
    assert_eq!(found, Some(expected));
    for (query, alias) in [("count(*)", None), ("COUNT ( 1 ) AS n", Some("n".to_owned()))] {
        let (_, found) = select(&format!("SELECT {query} FROM system.peers"));
        assert_eq!(found.map(|found| found.columns), Some(Columns::Count { alias }), "{query}");
    }
}

#[test]
fn other_questions_to_the_system_tables_are_known_to_be_such() {
    for text in [
        "SELECT JSON * FROM system.local",
        "SELECT DISTINCT key FROM system.local",
        "SELECT toJson(peer) FROM system.peers",
        "SELECT count(rack) FROM system.peers",
        "SELECT peer, count(*) FROM system.peers",
        "SELECT tokens['1'] FROM system.local",
        "SELECT * FROM system.peers WHERE token(peer) > 1",
        "SELECT * FROM system.peers WHERE peer IN ?",
        "SELECT * FROM system.peers LIMIT 0",
        "SELECT * FROM system.peers LIMIT ?",
        "SELECT * FROM system.local WHERE key = 'local' oops",
    ] {
        assert_eq!(select(text).1, None, "{text}");
    }
    for text in [
        "SELECT * FROM ks.local",
        "SELECT * FROM \"System\".local",
        "SELECT * FROM \"LOCAL\"",
        "SELECT * FROM system.peer_events",
        "SELECT * FROM system_schema.tables",
        "UPDATE system.local SET rack = 'r' WHERE key = 'local'",
    ] {
        assert_eq!(read(text).system, None, "{text}");
    }
}

#[test]
fn many_columns_of_a_system_table_are_bounded() {
    let ask = |columns| format!("SELECT {} FROM system.local", vec!["key"; columns].join(", "));
    assert!(select(&ask(256)).1.is_some());
    assert!(select(&ask(257)).1.is_none());
}

#[test]
fn reasons_have_names_and_words_of_their_own() {
    for why in Why::ALL {
        let words = why.to_string();
        let same = Why::ALL
            .iter()
            .filter(|other| other.name() == why.name() || other.to_string() == words);
        assert_eq!(same.count(), 1, "{why:?}");
        assert!(Idempotence::No(why).to_string().ends_with(&words));
    }
}
