//! What clients of a proxy learn of the schema: nothing is left out, and nothing is told too soon.

use std::io;
use std::time::{Duration, Instant};

use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::request::Register;
use evenkeel_cql::response::{Event, SchemaChange, SchemaTarget};
use evenkeel_cql::{Flags, Opcode, Version};

use crate::proxy::Proxy;
use evenkeel_testkit::cassandra::client::{Client, message, reported};
use evenkeel_testkit::cassandra::{self, Cluster};

/// Longer than it takes to find out that a node is gone.
const HEARD_MAX: Duration = Duration::from_secs(20);

fn keyspace(cluster: &Cluster, name: &str) {
    let mut client = Client::connect(cluster.address(0), Version::V4, None).unwrap();
    client.change(&format!("DROP KEYSPACE IF EXISTS {name}"));
    client.change(&format!(
        "CREATE KEYSPACE {name} WITH replication = \
         {{'class': 'NetworkTopologyStrategy', 'east': 2}}"
    ));
}

fn create(keyspace: &str, table: &str) -> String {
    format!("CREATE TABLE {keyspace}.{table} (k int PRIMARY KEY)")
}

/// A client of the proxy that waits for changes of the schema.
fn listener(proxy: &Proxy, version: Version) -> Client {
    let mut client = Client::connect(proxy.address(), version, None).unwrap();
    let mut body = Vec::new();
    Register { kinds: vec![Event::SCHEMA_CHANGE] }.write(&mut body);
    let answer = client.ask(Opcode::Register, Flags::NONE, body.into()).unwrap();
    assert_eq!(answer.opcode, Opcode::Ready, "{}", reported(&answer));
    client
}

/// Waits until the client is told of a table; an error when its connection ends instead.
fn hear(client: &mut Client, table: &str) -> io::Result<()> {
    loop {
        let envelope = client.receive()?;
        assert_eq!(envelope.opcode, Opcode::Event, "{}", reported(&envelope));
        let event = Event::read(message(&envelope)).unwrap();
        let target = SchemaTarget::Table(table);
        if matches!(event, Event::Schema(SchemaChange { target: of, .. }) if of == target) {
            return Ok(());
        }
    }
}

/// Whether a node has a table.
fn has(client: &mut Client, keyspace: &str, table: &str) -> bool {
    let text = format!(
        "SELECT table_name FROM system_schema.tables \
         WHERE keyspace_name = '{keyspace}' AND table_name = '{table}'"
    );
    !client.rows(&text).is_empty()
}

#[test]
fn a_change_that_no_node_told_the_proxy_makes_its_clients_begin_anew() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let disturbed = cluster.disturb();
    keyspace(cluster, "untold");
    let proxy = Proxy::start(cluster, "");
    let mut listeners = [Version::V4, Version::V5].map(|version| listener(&proxy, version));
    let mut other = Client::connect(proxy.address(), Version::V4, None).unwrap();
    let mut node = Client::connect(cluster.address(1), Version::V4, None).unwrap();
    node.rows(&create("untold", "before"));
    for listener in &mut listeners {
        hear(listener, "before").expect("an event while all is well");
    }
    // The proxy is told by its first contact point, which takes the news to its grave.
    disturbed.pause(0);
    node.rows(&create("untold", "meanwhile"));
    std::thread::sleep(Duration::from_millis(300));
    disturbed.kill(0);
    let killed = Instant::now();
    for listener in &mut listeners {
        let heard = hear(listener, "meanwhile");
        assert_eq!(heard.map_err(|end| end.kind()), Err(io::ErrorKind::UnexpectedEof));
        assert!(killed.elapsed() < HEARD_MAX, "{:?}", killed.elapsed());
    }
    eprintln!("clients that wait for changes began anew after {:?}", killed.elapsed());
    assert!(has(&mut other, "untold", "meanwhile"), "who waits for nothing stays");
    // Who has begun anew hears of the next one, from another node.
    let mut again = listener(&proxy, Version::V5);
    node.rows(&create("untold", "after"));
    hear(&mut again, "after").expect("an event from another node");
}

#[test]
fn a_change_is_answered_when_nodes_of_other_data_centres_have_it() {
    let Some(cluster) = cassandra::shared(crate::spec) else { return };
    let disturbed = cluster.disturb();
    keyspace(cluster, "elsewhere");
    assert_eq!(cluster.place(2).0, "west");
    let proxy = Proxy::start(cluster, "");
    let mut listener = listener(&proxy, Version::V5);
    let mut client = Client::connect(proxy.address(), Version::V4, None).unwrap();
    let mut west = Client::connect(cluster.address(2), Version::V4, None).unwrap();
    // By the answer to a change the proxy has met all nodes.
    client.rows(&create("elsewhere", "before"));
    hear(&mut listener, "before").unwrap();
    // Shorter than it takes to find out that it is gone.
    let pause = Duration::from_millis(1_500);
    let began = Instant::now();
    disturbed.pause(2);
    let answered = std::thread::scope(|threads| {
        let change = threads.spawn(|| {
            let answer = client.query(&create("elsewhere", "t"), Consistency::One).unwrap();
            assert_eq!(answer.opcode, Opcode::Result, "{}", reported(&answer));
            began.elapsed()
        });
        std::thread::sleep(pause);
        disturbed.resume(2);
        change.join().unwrap()
    });
    assert!(has(&mut west, "elsewhere", "t"), "answered after {answered:?}, and it is not there");
    eprintln!("a node paused for {pause:?} held up the answer for {answered:?}");
    assert!(answered >= pause, "{answered:?}");
    hear(&mut listener, "t").unwrap();
    // One that is gone holds up nobody.
    disturbed.kill(2);
    let ends = Instant::now() + HEARD_MAX;
    for turn in 0.. {
        let began = Instant::now();
        client.rows(&create("elsewhere", &format!("later_{turn}")));
        if began.elapsed() < Duration::from_secs(2) {
            break;
        }
        assert!(Instant::now() < ends, "a node that is gone is waited for");
    }
}
