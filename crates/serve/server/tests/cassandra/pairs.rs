//! Each statement asked of a node that lives and through Evenkeel, while other nodes are dead:
//! what the node serves Evenkeel serves, and where it does not its error is the node's own.

use bytes::BytesMut;
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::request::{Bound, Execute, Prepare, QueryParameters};
use evenkeel_cql::response::{Error, Fields, Result as Outcome};
use evenkeel_cql::{Envelope, Flags, Opcode, Value, Version};

use crate::proxy::Proxy;
use evenkeel_testkit::cassandra::Cluster;
use evenkeel_testkit::cassandra::client::{Client, message, reported};
use evenkeel_testkit::wait::block_until;

/// Of three nodes each has some keys alone; each has all keys.
const KEYSPACES: [(&str, &str); 2] = [
    ("pairs_1", "{'class': 'SimpleStrategy', 'replication_factor': 1}"),
    ("pairs_3", "{'class': 'NetworkTopologyStrategy', 'east': 2, 'west': 1}"),
];

/// Statements and the levels that they are asked at. The second one is not idempotent: it may be
/// sent on only if nothing of it was sent.
const STATEMENTS: [(&str, &[Consistency]); 4] = [
    ("INSERT INTO {}.t (k, v) VALUES (?, 7)", &WRITES),
    ("INSERT INTO {}.t (k, at) VALUES (?, now())", &WRITES),
    ("UPDATE {}.t SET v = 8 WHERE k = ? IF v = 7", &[Consistency::Quorum]),
    ("SELECT v FROM {}.t WHERE k = ?", &READS),
];
const WRITES: [Consistency; 8] = [
    Consistency::Any,
    Consistency::One,
    Consistency::Two,
    Consistency::Quorum,
    Consistency::All,
    Consistency::EachQuorum,
    Consistency::LocalOne,
    Consistency::LocalQuorum,
];
const READS: [Consistency; 6] = [
    Consistency::One,
    Consistency::Quorum,
    Consistency::All,
    Consistency::LocalOne,
    Consistency::LocalQuorum,
    Consistency::Serial,
];

/// A node, and Evenkeel.
pub(crate) struct Pair {
    ways: [Way; 2],
    keys: i32,
}

/// One connection, and the statements that are prepared on it, by keyspace.
struct Way {
    client: Client,
    prepared: Vec<Vec<Vec<u8>>>,
}

impl Pair {
    /// Makes the tables and prepares the statements. `keys` are enough that every node has some.
    pub(crate) fn new(cluster: &Cluster, node: usize, proxy: &Proxy, keys: i32) -> Self {
        let mut client = Client::connect(cluster.address(node), Version::V4, None).unwrap();
        for (keyspace, replication) in KEYSPACES {
            client.change(&format!("DROP KEYSPACE IF EXISTS {keyspace}"));
            client.change(&format!("CREATE KEYSPACE {keyspace} WITH replication = {replication}"));
            client.change(&format!(
                "CREATE TABLE {keyspace}.t (k int PRIMARY KEY, v int, at timeuuid)"
            ));
        }
        let proxied = Client::connect(proxy.address(), Version::V4, None).unwrap();
        Self { ways: [Way::new(client), Way::new(proxied)], keys }
    }

    /// Asks each statement both ways, once these nodes know that no other lives; how many the node
    /// served, and how many it did not.
    pub(crate) fn compare(&mut self, cluster: &Cluster, living: &[usize]) -> (usize, usize) {
        living.iter().for_each(|node| wait_until_known(cluster, *node, living.len()));
        let (mut served, mut refused) = (0, 0);
        for (keyspace, (name, _)) in KEYSPACES.iter().enumerate() {
            for (statement, (text, levels)) in STATEMENTS.iter().enumerate() {
                let keys = 0..self.keys;
                for (level, key) in
                    levels.iter().flat_map(|it| keys.clone().map(move |key| (*it, key)))
                {
                    let answers = self.ways.each_mut().map(|way| {
                        let id = way.prepared[keyspace][statement].clone();
                        way.execute(&id, key, level)
                    });
                    let [direct, proxied] = answers.each_ref();
                    let said = answers.each_ref().map(reported);
                    let of = format!("{text} in {name}, key {key}, {level}, nodes {living:?}");
                    assert_eq!(proxied.opcode, direct.opcode, "{of}: {said:?}");
                    if direct.opcode == Opcode::Error {
                        assert_eq!(words(proxied), words(direct), "{of}: {said:?}");
                        refused += 1;
                    } else {
                        served += 1;
                    }
                }
            }
        }
        (served, refused)
    }
}

/// An error as it is the same at every coordinator: of several data centres without enough replicas
/// it names any.
fn words(error: &Envelope) -> String {
    let words = reported(error);
    words.split(" in DC ").next().unwrap_or_default().to_owned()
}

impl Way {
    fn new(mut client: Client) -> Self {
        let prepared = KEYSPACES.map(|(keyspace, _)| {
            let texts = STATEMENTS.map(|(text, _)| text.replace("{}", keyspace));
            texts.map(|text| prepare(&mut client, &text)).to_vec()
        });
        Self { client, prepared: prepared.to_vec() }
    }

    fn execute(&mut self, id: &[u8], key: i32, consistency: Consistency) -> Envelope {
        let (mut bound, mut body) = (Bound::new(), BytesMut::new());
        bound.push(Value::Bytes(&key.to_be_bytes()));
        let parameters =
            QueryParameters { values: bound.values(), ..QueryParameters::new(consistency) };
        Execute { id, result_metadata_id: &[], parameters }.write(self.client.version, &mut body);
        self.client.ask(Opcode::Execute, Flags::NONE, body.freeze()).unwrap()
    }
}

fn prepare(client: &mut Client, text: &str) -> Vec<u8> {
    let mut body = BytesMut::new();
    Prepare { text, keyspace: None }.write(client.version, &mut body);
    let answer = client.ask(Opcode::Prepare, Flags::NONE, body.freeze()).unwrap();
    match Outcome::read(message(&answer), answer.version).unwrap() {
        Outcome::Prepared(prepared) => prepared.id.to_vec(),
        other => panic!("{other:?}: {}", reported(&answer)),
    }
}

/// Nodes find out by gossip that others are dead; until then they wait for them.
fn wait_until_known(cluster: &Cluster, node: usize, living: usize) {
    let text = "SELECT v FROM pairs_3.t WHERE k = 1";
    block_until(&format!("node {node} knows that {living} nodes live"), || {
        let connected = Client::connect(cluster.address(node), Version::V4, None);
        let Ok(mut client) = connected else { return false };
        let answer = client.query(text, Consistency::All).unwrap();
        let known = match answer.opcode {
            Opcode::Error => Error::read(message(&answer), answer.version).unwrap().fields,
            _ => return living == cluster.nodes(),
        };
        matches!(known, Fields::Unavailable { alive, .. } if usize::try_from(alive) == Ok(living))
    });
}
