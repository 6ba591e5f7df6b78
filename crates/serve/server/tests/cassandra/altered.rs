//! A table that is altered while clients have statements on it prepared.

use bytes::{BufMut, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::request::{Execute, Prepare, QueryParameters};
use evenkeel_cql::response::Result as Outcome;
use evenkeel_cql::{Envelope, ErrorCode, Flags, Opcode, Version};

use crate::proxy::Proxy;
use evenkeel_testkit::cassandra;
use evenkeel_testkit::cassandra::client::{Client, message, reported};

/// So many that each node is asked.
const TIMES: usize = 12;

fn prepare(client: &mut Client, text: &str) -> Vec<u8> {
    let mut body = BytesMut::new();
    Prepare { text, keyspace: None }.write(client.version, &mut body);
    let answer = client.ask(Opcode::Prepare, Flags::NONE, body.freeze()).unwrap();
    match Outcome::read(message(&answer), answer.version).unwrap() {
        Outcome::Prepared(prepared) => prepared.id.to_vec(),
        other => panic!("{other:?}"),
    }
}

/// Rows without metadata, and with a custom payload before the message, as some clients have.
fn execute(client: &mut Client, id: &[u8]) -> Envelope {
    let mut body = BytesMut::new();
    body.put_slice(&[0, 1, 0, 1, b'k', 0, 0, 0, 1, b'v']);
    let parameters = QueryParameters::new(Consistency::One);
    let parameters = QueryParameters { skip_metadata: true, ..parameters };
    Execute { id, result_metadata_id: &[], parameters }.write(client.version, &mut body);
    client.ask(Opcode::Execute, Flags::CUSTOM_PAYLOAD, body.freeze()).unwrap()
}

/// The names of the columns that rows come with; `None` where the client is to know them.
fn columns(answer: &Envelope) -> Option<Vec<String>> {
    match Outcome::read(message(answer), answer.version).unwrap() {
        Outcome::Rows(rows) => {
            let columns = rows.metadata.columns?;
            Some(columns.iter().map(|column| column.name.to_owned()).collect())
        }
        other => panic!("{other:?}: {}", reported(answer)),
    }
}

/// A client that is not told of other columns reads the rows by those it knows.
#[test]
fn rows_of_an_altered_table_come_with_their_columns() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let _calm = cluster.calm();
    let proxy = Proxy::start(cluster, "");
    let mut client = Client::connect(proxy.address(), Version::V4, None).unwrap();
    client.change("DROP KEYSPACE IF EXISTS altered");
    let replication = "{'class': 'NetworkTopologyStrategy', 'east': 2}";
    client.change(&format!("CREATE KEYSPACE altered WITH replication = {replication}"));
    client.change("CREATE TABLE altered.t (k int PRIMARY KEY, v int)");
    client.query("INSERT INTO altered.t (k, v) VALUES (1, 2)", Consistency::All).unwrap();
    let id = prepare(&mut client, "SELECT * FROM altered.t");
    for _ in 0..TIMES {
        assert_eq!(columns(&execute(&mut client, &id)), None, "the client knows them");
    }
    client.change("ALTER TABLE altered.t ADD a int");
    // As at a node: the client is told, by each of them until it prepares the statement again.
    let mut forgotten = 0;
    for _ in 0..TIMES {
        let answer = execute(&mut client, &id);
        if reported(&answer).starts_with(ErrorCode::Unprepared.name()) {
            forgotten += 1;
        } else {
            assert_eq!(columns(&answer), Some(["k", "a", "v"].map(str::to_owned).to_vec()));
        }
    }
    assert!((1..=2).contains(&forgotten), "{forgotten}");
    // Another client that prepares it anew does not take that from the first.
    let mut other = Client::connect(proxy.address(), Version::V4, None).unwrap();
    assert_eq!(prepare(&mut other, "SELECT * FROM altered.t"), id);
    assert_eq!(columns(&execute(&mut client, &id)).map(|columns| columns.len()), Some(3));
    client.change("DROP KEYSPACE altered");
}
