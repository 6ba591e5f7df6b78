//! What clients get.

use std::collections::BTreeMap;

use evenkeel_cql::request::{AuthResponse, Register};
use evenkeel_cql::response::{self, Event, SchemaChange, SchemaTarget};
use evenkeel_cql::{Inet, value};

use super::*;
use crate::cluster::{ClusterEvent, Notice};
use crate::front::accept::pass_events;

#[test]
fn answers_come_to_who_asked_however_bytes_are_cut() {
    for (number, (version, compression)) in FRAMINGS.into_iter().enumerate() {
        run(async {
            let front = Front::new(|_| {});
            let mut client = front.client(version, number as u64);
            client.start(compression).await;
            for round in 0..8_i16 {
                let asked: Vec<_> = (0..40)
                    .map(|n| {
                        let long = n % 13 == 5;
                        let text =
                            format!("ECHO {}{n}", "x".repeat(if long { 150_000 } else { 9 }));
                        (round * 40 + n, text)
                    })
                    .collect();
                let envelopes: Vec<_> =
                    asked.iter().map(|(stream, text)| query(version, *stream, text)).collect();
                client.send(&envelopes).await;
                let mut reported = BTreeMap::new();
                for _ in &asked {
                    let reply = client.next().await.unwrap();
                    reported.insert(reply.stream, reply.body);
                }
                for (stream, text) in asked {
                    assert_eq!(reported[&stream], text.as_bytes(), "{version} stream {stream}");
                }
            }
            let big = client.ask(query(version, 7, "LONG 5000000")).await;
            assert_eq!(big.body.len(), 12 + 5_000_000);
            assert_eq!(front.fake.in_flight.get(), 0);
        });
    }
}

#[test]
fn options_are_asked_for_once_and_a_client_may_go_on_after_them() {
    run(async {
        let front = Front::new(|_| {});
        for seed in 0..3 {
            let mut client = front.client(Version::V5, seed);
            let options = Envelope::new(Version::V5, 2, Opcode::Options, Bytes::new());
            let reply = client.ask(options.clone()).await;
            let supported = response::Supported::read(&reply.body).unwrap();
            assert_eq!(supported.option("PROTOCOL_VERSIONS"), ["4/v4", "5/v5"]);
            client.start(None).await;
            assert_eq!(client.ask(options).await.opcode, Opcode::Supported);
        }
        assert_eq!(front.fake.greeted.get(), 4, "one OPTIONS, three STARTUP");
    });
}

#[test]
fn a_password_is_for_the_cluster_to_judge() {
    run(async {
        let front = Front::new(|_| {});
        *front.fake.password.borrow_mut() = Some("s3cret");
        let mut client = front.client(Version::V5, 1);
        assert_eq!(client.startup(Some(Compression::Lz4)).await.opcode, Opcode::Authenticate);
        let say = |password: &str| {
            let mut body = BytesMut::new();
            let token = AuthResponse::plain("me", password);
            AuthResponse { token: Some(&token) }.write(&mut body);
            Envelope::new(Version::V5, 1, Opcode::AuthResponse, body.freeze())
        };
        let reply = client.ask(say("guess")).await;
        assert_eq!(error_in(&reply).0, ErrorCode::BadCredentials);
        assert_eq!(client.ask(say("s3cret")).await.opcode, Opcode::AuthSuccess);
        client.ask(query(Version::V5, 1, "ECHO 1")).await;
        let login = front.fake.asked.borrow()[0].dialect.login.clone().unwrap();
        assert_eq!(&login.token[..], b"\0me\0s3cret");
        // Who has not logged in asks nothing.
        let mut stranger = front.client(Version::V5, 2);
        stranger.startup(None).await;
        let reply = stranger.ask(query(Version::V5, 1, "ECHO 1")).await;
        assert_eq!(error_in(&reply).0, ErrorCode::ProtocolError);
        assert_eq!(stranger.next().await, None);
    });
}

#[test]
fn a_connection_begins_at_the_first_node_that_answers() {
    run(async {
        let front = Front::new(|_| {});
        front.fake.deaf.set(2);
        front.client(Version::V5, 1).start(None).await;
        assert_eq!(front.fake.greeted.get(), 3);
        front.fake.deaf.set(3);
        let reply = front.client(Version::V5, 2).startup(None).await;
        assert_eq!(error_in(&reply).0, ErrorCode::Overloaded);
        assert_eq!(front.fake.greeted.get(), 6);
    });
}

#[test]
fn changes_of_the_schema_reach_who_asked_for_them_and_nodes_reach_nobody() {
    run(async {
        let front = Front::new(|_| {});
        let events = tokio::task::spawn_local(pass_events(Rc::clone(&front.worker)));
        let mut clients = Vec::new();
        for (version, kind) in [
            (Version::V4, Event::SCHEMA_CHANGE),
            (Version::V5, Event::SCHEMA_CHANGE),
            (Version::V5, Event::STATUS_CHANGE),
        ] {
            let mut client = front.client(version, 1);
            client.start(None).await;
            let mut body = BytesMut::new();
            Register { kinds: vec![kind, Event::TOPOLOGY_CHANGE] }.write(&mut body);
            let register = Envelope::new(version, 1, Opcode::Register, body.freeze());
            assert_eq!(client.ask(register).await.opcode, Opcode::Ready);
            clients.push(client);
        }
        let node = Inet { address: "10.0.0.1".parse().unwrap(), port: 9042 };
        let target = SchemaTarget::Table("t");
        let change = SchemaChange { change: "CREATED", keyspace: "k", target };
        for event in [
            Event::Status { change: "DOWN", node },
            Event::Topology { change: "NEW_NODE", node },
            Event::Schema(change.clone()),
        ] {
            let mut body = BytesMut::new();
            event.write(&mut body);
            let event = ClusterEvent::read(&body).unwrap();
            front.fake.events.send(Notice::Event(event)).unwrap();
        }
        for (number, client) in clients.iter_mut().enumerate() {
            if number < 2 {
                let event = client.next().await.unwrap();
                assert_eq!((event.opcode, event.stream), (Opcode::Event, -1));
                let read = Event::read(&event.body).unwrap();
                assert_eq!(read, Event::Schema(change.clone()));
            }
            let reply = client.ask(query(client.version, 1, "ECHO 1")).await;
            assert_eq!(reply.opcode, Opcode::Result, "no other event came before");
        }
        events.abort();
    });
}

#[test]
fn who_missed_a_change_of_the_schema_begins_anew_when_what_it_asked_is_answered() {
    run(async {
        let front = Front::new(|_| {});
        let events = tokio::task::spawn_local(pass_events(Rc::clone(&front.worker)));
        let mut clients = Vec::new();
        for kinds in [vec![Event::SCHEMA_CHANGE], vec![Event::STATUS_CHANGE]] {
            let mut client = front.client(Version::V5, 1);
            client.start(None).await;
            let mut body = BytesMut::new();
            Register { kinds }.write(&mut body);
            let register = Envelope::new(Version::V5, 1, Opcode::Register, body.freeze());
            assert_eq!(client.ask(register).await.opcode, Opcode::Ready);
            clients.push(client);
        }
        let [mut waiting, mut other] = <[_; 2]>::try_from(clients).ok().unwrap();
        waiting.send(&[query(Version::V5, 7, "HOLD 1")]).await;
        while front.fake.in_flight.get() == 0 {
            tokio::task::yield_now().await;
        }
        front.fake.events.send(Notice::SchemaMissed).unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        front.fake.release.notify_waiters();
        assert_eq!(waiting.next().await.unwrap().stream, 7);
        assert_eq!(waiting.next().await, None);
        let reply = other.ask(query(Version::V5, 1, "ECHO 1")).await;
        assert_eq!(reply.opcode, Opcode::Result);
        events.abort();
    });
}

#[test]
fn a_driver_that_waits_for_agreement_waits_until_there_is_one() {
    const TEXT: &str = "SELECT schema_version FROM system.local WHERE key='local'";
    run(async {
        let wait = Duration::from_millis(500);
        let front = Front::new(|settings| (settings.settle, settings.agreement) = (wait, wait));
        let mut client = front.client(Version::V5, 1);
        client.start(None).await;
        let split = vec![[1; 16], [2; 16]];
        *front.fake.versions.borrow_mut() = [split.clone(), split.clone(), vec![[2; 16]]].into();
        let reply = client.ask(query(Version::V5, 1, TEXT)).await;
        let response::Result::Rows(rows) =
            response::Result::read(&reply.body, Version::V5).unwrap()
        else {
            panic!("{reply:?}")
        };
        let version = rows.iter().next().unwrap().at(0).and_then(value::uuid);
        assert_eq!(version, Some([2; 16]));
        // A change is told when it is known to all, or after a while.
        *front.fake.versions.borrow_mut() = [split.clone(), split.clone(), vec![[2; 16]]].into();
        let reply = client.ask(query(Version::V5, 1, "CREATE 1")).await;
        assert_eq!(reply.opcode, Opcode::Result);
        assert_eq!(front.fake.versions.borrow().len(), 1, "it was waited for");
        *front.fake.versions.borrow_mut() = [split].into();
        let reply = client.ask(query(Version::V5, 1, TEXT)).await;
        assert_eq!(error_in(&reply).0, ErrorCode::Overloaded);
        let reply = client.ask(query(Version::V5, 1, "CREATE 1")).await;
        assert_eq!(reply.opcode, Opcode::Result);
    });
}

#[test]
fn a_driver_hears_nothing_while_nodes_disagree_until_it_is_to_leave() {
    const TEXT: &str = "SELECT schema_version FROM system.local WHERE key='local'";
    run_paused(async {
        let front = Front::new(|_| {});
        let mut client = front.client(Version::V5, 1);
        client.start(None).await;
        let split = vec![[1; 16], [2; 16]];
        // Drivers that wait long for an answer take an error for the end of their connection, so
        // it is not said before they have given up asking: 59 s here.
        *front.fake.versions.borrow_mut() = [split].into();
        let asked = tokio::time::Instant::now();
        client.send(&[query(Version::V5, 1, TEXT)]).await;
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(client.ask(query(Version::V5, 2, "ECHO 1")).await.stream, 2);
        assert_eq!(error_in(&client.next().await.unwrap()).0, ErrorCode::Overloaded);
        assert!(asked.elapsed() <= Duration::from_secs(60));
        // Nobody waits for the answer where the process ends.
        client.send(&[query(Version::V5, 3, TEXT)]).await;
        assert_eq!(client.ask(query(Version::V5, 4, "ECHO 1")).await.stream, 4);
        let told = tokio::time::Instant::now();
        front.stop.enter(Stage::Draining { until: told + Duration::from_secs(60) });
        assert_eq!(error_in(&client.next().await.unwrap()).0, ErrorCode::Overloaded);
        assert!(told.elapsed() < Duration::from_secs(1), "{:?}", told.elapsed());
    });
}
