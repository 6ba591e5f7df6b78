//! Questions about the cluster.

use evenkeel_cql::request::{Execute, Prepare};
use evenkeel_cql::response::{Result as QueryResult, Rows};
use evenkeel_cql::rows::write_prepared;
use evenkeel_cql::types::Type;
use evenkeel_cql::value;

use super::*;

const LOCAL: &str = "SELECT * FROM system.local WHERE key='local'";

fn three() -> Small {
    let mut small = Small::at(vec![
        proxy("east", "127.0.0.1:9042"),
        proxy("east", "127.0.0.2:9042"),
        proxy("west", "127.0.0.3:9043"),
    ]);
    small.start(Version::V5);
    small
}

fn rows_of(reply: &Envelope) -> Rows<'_> {
    assert_eq!(reply.opcode, Opcode::Result, "{reply:?}");
    match QueryResult::read(&reply.body, reply.version).unwrap() {
        QueryResult::Rows(rows) => rows,
        other => panic!("{other:?}"),
    }
}

/// The rows of a column.
fn column(reply: &Envelope, name: &str) -> Vec<Option<Vec<u8>>> {
    let rows = rows_of(reply);
    let place = rows.position(name).unwrap_or_else(|| panic!("no column {name}"));
    rows.iter().map(|row| row.at(place).map(<[u8]>::to_vec)).collect()
}

fn texts(reply: &Envelope, name: &str) -> Vec<String> {
    let text = |cell: Option<Vec<u8>>| String::from_utf8(cell.unwrap()).unwrap();
    column(reply, name).into_iter().map(text).collect()
}

impl Small {
    fn reported(&mut self, text: &str) -> Envelope {
        match self.query(text) {
            Step::Reply(reply) => reply,
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn local_is_the_proxy_and_the_cluster_is_the_nodes() {
    let mut small = three();
    let reply = small.reported(LOCAL);
    assert_eq!(rows_of(&reply).count, 1);
    assert_eq!(texts(&reply, "key"), ["local"]);
    assert_eq!(texts(&reply, "cluster_name"), ["the cluster"]);
    assert_eq!(texts(&reply, "data_center"), ["east"]);
    assert_eq!(texts(&reply, "rack"), ["r1"]);
    assert_eq!(texts(&reply, "release_version"), ["5.0.9"]);
    let partitioner = "org.apache.cassandra.dht.Murmur3Partitioner";
    assert_eq!(texts(&reply, "partitioner"), [partitioner]);
    for address in ["rpc_address", "broadcast_address", "listen_address"] {
        assert_eq!(column(&reply, address), [Some(vec![127, 0, 0, 1])]);
    }
    assert_eq!(column(&reply, "rpc_port"), [Some(9042_i32.to_be_bytes().to_vec())]);
    assert_eq!(column(&reply, "schema_version"), [Some(vec![7; 16])]);
    assert_eq!(column(&reply, "truncated_at"), [None]);
    let tokens = column(&reply, "tokens")[0].clone().unwrap();
    let tokens = value::texts(&tokens).unwrap();
    assert_eq!(tokens.len(), 1);
    tokens[0].parse::<i64>().unwrap();
    // As wide as Cassandra 5.0's own.
    assert_eq!(rows_of(&reply).metadata.count, 20);
}

#[test]
fn peers_are_the_other_proxies() {
    let mut small = three();
    let reply = small.reported("SELECT * FROM system.peers_v2");
    let addresses = [Some(vec![127, 0, 0, 2]), Some(vec![127, 0, 0, 3])];
    assert_eq!(column(&reply, "peer"), addresses);
    assert_eq!(column(&reply, "native_address"), addresses);
    let ports = [9042_i32, 9043].map(|port| Some(port.to_be_bytes().to_vec()));
    assert_eq!(column(&reply, "native_port"), ports);
    assert_eq!(texts(&reply, "data_center"), ["east", "west"]);
    assert_eq!(rows_of(&reply).metadata.count, 12);
    let own = small.reported(LOCAL);
    let ids: Vec<_> =
        [&own, &reply].into_iter().flat_map(|reply| column(reply, "host_id")).collect();
    let tokens: Vec<_> =
        [&own, &reply].into_iter().flat_map(|reply| column(reply, "tokens")).collect();
    for of_all in [ids, tokens] {
        assert!(of_all[0] != of_all[1] && of_all[1] != of_all[2] && of_all[0] != of_all[2]);
    }
    // A table without ports has only those that are reached at the port that is known.
    let reply = small.reported("SELECT peer, data_center, tokens FROM system.peers");
    assert_eq!(column(&reply, "peer"), [Some(vec![127, 0, 0, 2])]);
}

#[test]
fn statements_of_drivers_are_answered_as_they_are_written() {
    let mut small = three();
    for text in [
        "SELECT host_id, cluster_name, data_center, rack, partitioner, release_version, \
         schema_version FROM system.local WHERE key='local'",
        "SELECT cluster_name FROM system.local",
        "select host_id, rpc_address, data_center, rack, tokens from system.local WHERE \
         key='local'",
        "SELECT rpc_address FROM system.local WHERE key='local'",
    ] {
        assert_eq!(rows_of(&small.reported(text)).count, 1, "{text}");
    }
    let reply = small.reported("SELECT count(*) FROM system.peers_v2");
    assert_eq!(column(&reply, "count"), [Some(2_i64.to_be_bytes().to_vec())]);
    let reply = small.reported("SELECT data_center AS dc FROM system.peers_v2 LIMIT 1");
    assert_eq!(texts(&reply, "dc"), ["east"]);
    for (condition, count) in [
        ("peer = '127.0.0.3'", 1),
        ("peer = '127.0.0.3' AND peer_port = 9043", 1),
        ("peer = '127.0.0.3' AND peer_port = 1", 0),
        ("peer IN ('127.0.0.2', '127.0.0.3')", 2),
        ("peer = '10.0.0.1'", 0),
    ] {
        let text = format!("SELECT * FROM system.peers_v2 WHERE {condition}");
        assert_eq!(rows_of(&small.reported(&text)).count, count, "{text}");
    }
    let came =
        query(Version::V5, 1, "SELECT * FROM system.peers_v2 WHERE peer = ?", &[&[127, 0, 0, 3]]);
    let Step::Reply(reply) = small.receive(came) else { panic!() };
    assert_eq!(texts(&reply, "data_center"), ["west"]);
}

#[test]
fn mistakes_are_told_as_cassandra_tells_them() {
    let mut small = three();
    let (code, words) = error_in(&small.reported("SELECT nothing FROM system.local"));
    assert_eq!(code, ErrorCode::Invalid);
    assert!(words.contains("Undefined column name nothing in table system.local"), "{words}");
    let (code, _) = error_in(&small.reported("SELECT * FROM system.peers WHERE peer = 'nonsense'"));
    assert_eq!(code, ErrorCode::Invalid);
    let (code, words) = error_in(&small.reported("SELECT JSON * FROM system.peers"));
    assert_eq!(code, ErrorCode::Invalid);
    assert!(words.contains("simple statements"), "{words}");
}

#[test]
fn everything_else_goes_to_a_node() {
    let mut small = three();
    for text in [
        "SELECT now() FROM system.local",
        "SELECT * FROM system_schema.keyspaces",
        "SELECT * FROM system.size_estimates",
        "SELECT * FROM system_views.thread_pools",
        "SELECT * FROM local", // of no keyspace
        "SELECT * FROM mine.peers",
    ] {
        assert!(matches!(small.query(text), Step::Ask(..)), "{text}");
        small.session.leave(1);
    }
    // A release before peers_v2: its node has the words that drivers wait for.
    small.cluster = Arc::new(Cluster { release_version: "3.11.19".to_owned(), ..cluster() });
    assert!(matches!(small.query("SELECT * FROM system.peers_v2"), Step::Ask(..)));
    small.session.leave(1);
    let reply = small.reported(LOCAL);
    assert_eq!(rows_of(&reply).position("rpc_port"), None);
    small.session.dialect.keyspace = Some("system".into());
    assert_eq!(rows_of(&small.reported("SELECT * FROM local")).count, 1);
}

#[test]
fn a_cluster_that_is_not_known_yet_is_not_made_up() {
    let mut small = three();
    small.cluster = Arc::default();
    assert_eq!(error_in(&small.reported(LOCAL)).0, ErrorCode::Overloaded);
}

#[test]
fn prepared_questions_have_the_columns_that_the_node_prepared() {
    let mut small = three();
    let text =
        "SELECT host_id AS id, data_center, of_the_future FROM system.local WHERE key = 'local'";
    let prepare = Prepare { text, keyspace: None };
    let came = envelope(Version::V5, 1, Opcode::Prepare, |body| prepare.write(Version::V5, body));
    let Step::Ask(stream, _, then) = small.receive(came) else { panic!() };
    let columns =
        [("id", Type::Uuid), ("data_center", Type::Text), ("of_the_future", Type::Double)];
    let node = write_prepared(Version::V5, b"id", b"meta", "system", "local", &columns);
    let reply = small.answered(stream, then, answer(Opcode::Result, node.clone().freeze()));
    assert_eq!(reply.body, node, "as the node said it");

    let parameters = QueryParameters::new(Consistency::One);
    let execute = Execute { id: b"id", result_metadata_id: b"meta", parameters };
    let came = envelope(Version::V5, 1, Opcode::Execute, |body| execute.write(Version::V5, body));
    let Step::Reply(reply) = small.receive(came) else { panic!() };
    let names: Vec<_> = rows_of(&reply).columns().map(|column| column.name.to_owned()).collect();
    assert_eq!(names, ["id", "data_center", "of_the_future"]);
    assert_eq!(texts(&reply, "data_center"), ["east"]);
    assert_eq!(column(&reply, "id"), column(&small.reported(LOCAL), "host_id"));
    assert_eq!(column(&reply, "of_the_future"), [None]);
}

#[test]
fn a_traced_question_has_a_nodes_tracing_and_our_rows() {
    let mut small = three();
    let traced = |mut envelope: Envelope| {
        envelope.flags = Flags::TRACING;
        envelope
    };
    let came = traced(query(Version::V5, 1, LOCAL, &[]));
    let Step::Ask(stream, request, then) = small.receive(came) else { panic!() };
    assert_eq!(request.ask.flags, Flags::TRACING);
    let body = Bytes::from([&[3; 16][..], b"the node's rows"].concat());
    let node = Answer { opcode: Opcode::Result, flags: Flags::TRACING, body, feedback: None };
    let reply = small.answered(stream, then, node);
    assert_eq!(reply.flags, Flags::TRACING);
    assert_eq!(&reply.body[..16], [3; 16]);
    let rest = Envelope { body: reply.body.slice(16..), ..reply };
    assert_eq!(texts(&rest, "data_center"), ["east"]);
}

#[test]
fn agreement_is_claimed_only_when_there_is_one() {
    let mut small = three();
    let text = "SELECT schema_version FROM system.local WHERE key='local'";
    let mut agreed = |versions: &[[u8; 16]]| {
        let Step::Agree(stream, agreement) = small.query(text) else { panic!() };
        small.with_world(|session, world| session.agreed(stream, &agreement, versions, world))
    };
    assert_eq!(column(&agreed(&[[1; 16]]), "schema_version"), [Some(vec![1; 16])]);
    let (code, words) = error_in(&agreed(&[[1; 16], [2; 16]]));
    assert_eq!(code, ErrorCode::Overloaded);
    assert!(words.contains("2 versions"), "{words}");
    assert_eq!(error_in(&agreed(&[])).0, ErrorCode::Overloaded);
    assert_eq!(small.session.in_flight(), 0);
}
