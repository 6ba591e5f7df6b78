//! Connections to real nodes of Cassandra, the watching of a real cluster, and what nodes report:
//! everything below the proxy's decisions.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use evenkeel_cassandra::agent::{NodeAgent, NodeAgentSettings};
use evenkeel_cassandra::cluster::{Cluster, ClusterSettings, Notice, View, channel, keep};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::client::{
    Answer, Ask, Dialect, FeedbackSource, Known, Login, Node, NodeLimits, Prepared, ResultColumns,
    SendErrorKind,
};
use evenkeel_cql::codec::Compression;
use evenkeel_cql::request::{Execute, Prepare, Query, QueryParameters};
use evenkeel_cql::response::{Event, Result as Answered};
use evenkeel_cql::{Envelope, Flags, Opcode, Reader, Version, payload};
use evenkeel_runtime::accept::StopSignal;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles};
use evenkeel_testkit::cassandra::client::Client;
use evenkeel_testkit::cassandra::{self, Spec};
use evenkeel_testkit::story::{skipped, story_within};
use evenkeel_testkit::wait::block_until;

fn spec() -> Spec {
    Spec::of(&[("east", 2)])
}

fn both(cluster: &cassandra::Cluster) -> [SocketAddr; 2] {
    [cluster.address(0), cluster.address(1)]
}

/// Runs a test as a worker runs.
fn run(test: impl Future<Output = ()>) {
    story_within(Duration::from_secs(120), test);
}

fn dialect(version: Version, keyspace: Option<&str>) -> Dialect {
    Dialect { version, keyspace: keyspace.map(Arc::from), login: None }
}

fn node(address: SocketAddr, limits: NodeLimits) -> Rc<Node> {
    Node::new(address, Rc::new(limits))
}

fn query(version: Version, text: &str) -> Ask {
    let mut body = BytesMut::new();
    Query { text, parameters: QueryParameters::new(Consistency::One) }.write(version, &mut body);
    let body = body.freeze();
    Ask { opcode: Opcode::Query, flags: Flags::NONE, body, prepared: Prepared::None }
}

fn envelope(version: Version, answer: Answer) -> Envelope {
    let Answer { opcode, flags, body, .. } = answer;
    Envelope { flags, ..Envelope::new(version, 0, opcode, body) }
}

/// The first value of each row.
#[track_caller]
fn first_column(version: Version, answer: Answer) -> Vec<Vec<u8>> {
    let envelope = envelope(version, answer);
    let message = payload::split(&envelope).unwrap().message;
    assert_eq!(envelope.opcode, Opcode::Result, "{}", String::from_utf8_lossy(message));
    match Answered::read(message, version).unwrap() {
        Answered::Rows(rows) => {
            rows.iter().filter_map(|row| row.at(0).map(<[u8]>::to_vec)).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn code_of(answer: &Answer) -> i32 {
    Reader::new(&answer.body).int("code").unwrap()
}

/// Every node shall have it, so that each can answer alone; waits until each knows it.
fn keyspace(addresses: &[SocketAddr], name: &str) {
    let mut clients: Vec<Client> = addresses
        .iter()
        .map(|&address| Client::connect(address, Version::V4, None).unwrap())
        .collect();
    let replication = "{'class': 'NetworkTopologyStrategy', 'east': 2}";
    clients[0].rows(&format!("CREATE KEYSPACE \"{name}\" WITH replication = {replication}"));
    clients[0].rows(&format!("CREATE TABLE \"{name}\".t (k int PRIMARY KEY, v blob)"));
    for client in &mut clients {
        let text = format!("SELECT k FROM \"{name}\".t");
        block_until("the schema has come to every node", || {
            client.query(&text, Consistency::One).unwrap().opcode == Opcode::Result
        });
    }
}

#[test]
fn many_requests_share_a_connection_in_every_version_and_compression() {
    let Some(cluster) = cassandra::shared(spec) else { return };
    let _calm = cluster.calm();
    keyspace(&both(cluster), "Many");
    for (version, compression) in [
        (Version::V4, None),
        (Version::V4, Some(Compression::Lz4)),
        (Version::V4, Some(Compression::Snappy)),
        (Version::V5, None),
        (Version::V5, Some(Compression::Lz4)),
    ] {
        run(async move {
            let limits = NodeLimits { compression, ..NodeLimits::default() };
            let node = node(cluster.address(0), limits);
            let many = dialect(version, Some("Many"));
            // Unqualified names: the keyspace is in use, letter by letter. Some values are longer
            // than a segment of v5.
            let value = |k: usize| format!("{k:04x}").repeat([1, 200, 40_000][k % 3]);
            let ask = |text: String| {
                let (node, many) = (Rc::clone(&node), many.clone());
                let ask = query(version, &text);
                tokio::task::spawn_local(async move { node.ask(&many, ask).await.unwrap() })
            };
            let writes: Vec<_> = (0..60)
                .map(|k| ask(format!("INSERT INTO t (k, v) VALUES ({k}, 0x{})", value(k))))
                .collect();
            for write in writes {
                assert_eq!(write.await.unwrap().opcode, Opcode::Result);
            }
            let reads: Vec<_> =
                (0..60).map(|k| ask(format!("SELECT v FROM t WHERE k = {k}"))).collect();
            for (k, read) in reads.into_iter().enumerate() {
                let came = first_column(version, read.await.unwrap());
                let bytes: Vec<u8> = (k as u16).to_be_bytes().repeat([1, 200, 40_000][k % 3]);
                assert!(came == [bytes], "k = {k}: another's answer");
            }
            assert_eq!((node.connections(), node.in_flight(), node.orphans()), (1, 0, 0));
            // A keyspace that is not there is the client's mistake, in the node's words.
            let error = node.ask(&dialect(version, Some("none")), query(version, "SELECT 1")).await;
            let error = error.unwrap_err();
            assert_eq!(
                (error.kind(), error.was_sent()),
                (SendErrorKind::Refused, false),
                "{error}"
            );
            assert_eq!(code_of(error.answer().unwrap()), 0x2200, "{error}");
        });
    }
}

#[test]
fn a_statement_is_prepared_where_it_is_used() {
    let Some(cluster) = cassandra::shared(spec) else { return };
    let _calm = cluster.calm();
    keyspace(&both(cluster), "prepared");
    for version in [Version::V4, Version::V5] {
        run(async move {
            let limits = NodeLimits::default();
            let (first, second) =
                (node(cluster.address(0), limits.clone()), node(cluster.address(1), limits));
            let inside = dialect(version, Some("prepared"));
            let text = format!("INSERT INTO t (k) VALUES ({})", version.number());
            let mut body = BytesMut::new();
            Prepare { text: &text, keyspace: None }.write(version, &mut body);
            let prepare =
                Ask { opcode: Opcode::Prepare, body: body.freeze(), ..query(version, "") };
            let answer = envelope(version, first.ask(&inside, prepare).await.unwrap());
            // Cassandra warns of names without a keyspace, as it warns every client.
            let message = payload::split(&answer).unwrap().message;
            let (id, metadata_id) = match Answered::read(message, version).unwrap() {
                Answered::Prepared(it) => (it.id.to_vec(), it.result_metadata_id.to_vec()),
                other => panic!("{other:?}"),
            };
            let mut body = BytesMut::new();
            let parameters = QueryParameters::new(Consistency::One);
            Execute { id: &id, result_metadata_id: &metadata_id, parameters }
                .write(version, &mut body);
            let body = body.freeze();
            let known = Arc::new(Known {
                id: Bytes::from(id),
                text: Arc::from(text),
                keyspace: Some(Arc::from("prepared")),
                result: ResultColumns::default(),
            });
            let execute = |prepared| Ask {
                opcode: Opcode::Execute,
                body: body.clone(),
                prepared,
                ..query(version, "")
            };
            // Nobody told it to the second node; without the text that is an answer.
            let nowhere = dialect(version, None);
            let answer = second.ask(&nowhere, execute(Prepared::None)).await.unwrap();
            assert_eq!((answer.opcode, code_of(&answer)), (Opcode::Error, 0x2500));
            let asks: Vec<_> = (0..20)
                .map(|_| {
                    let ask = execute(Prepared::One(Arc::clone(&known)));
                    let (second, nowhere) = (Rc::clone(&second), nowhere.clone());
                    tokio::task::spawn_local(
                        async move { second.ask(&nowhere, ask).await.unwrap() },
                    )
                })
                .collect();
            for ask in asks {
                assert_eq!(ask.await.unwrap().opcode, Opcode::Result);
            }
            assert_eq!(second.counts().prepared_again, 1);
            let rows = format!("SELECT k FROM t WHERE k = {}", version.number());
            let rows = second.ask(&inside, query(version, &rows)).await.unwrap();
            let expected = i32::from(version.number()).to_be_bytes().to_vec();
            assert_eq!(first_column(version, rows), [expected]);
        });
    }
}

#[test]
fn a_paused_node_is_silent_and_a_killed_one_breaks_off() {
    let Some(cluster) = cassandra::shared(spec) else { return };
    let disturbed = cluster.disturb();
    run(async {
        let limits = NodeLimits {
            heartbeat: Duration::from_millis(300),
            silence_max: Duration::from_millis(700),
            ..NodeLimits::default()
        };
        let node = node(cluster.address(1), limits);
        let v5 = dialect(Version::V5, None);
        let ask = || query(Version::V5, "SELECT key FROM system.local");
        node.ask(&v5, ask()).await.unwrap();
        // A pause shorter than the limits is waited for.
        disturbed.pause(1);
        let (asking, dialect) = (Rc::clone(&node), v5.clone());
        let during = tokio::task::spawn_local({
            let ask = ask();
            async move { asking.ask(&dialect, ask).await }
        });
        tokio::time::sleep(Duration::from_millis(500)).await;
        disturbed.resume(1);
        assert_eq!(during.await.unwrap().unwrap().opcode, Opcode::Result);
        assert_eq!((node.connections(), node.counts().opened), (1, 1));
        // A longer one is not.
        disturbed.pause(1);
        let began = Instant::now();
        let error = node.ask(&v5, ask()).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Silent, true), "{error}");
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        disturbed.resume(1);
        node.ask(&v5, ask()).await.unwrap();
        disturbed.kill(1);
        let error = node.ask(&v5, ask()).await.unwrap_err();
        let kinds = [SendErrorKind::Reset, SendErrorKind::Connect];
        assert!(kinds.contains(&error.kind()), "{error}");
        let error = node.ask(&v5, ask()).await.unwrap_err();
        assert_eq!((error.kind(), error.was_sent()), (SendErrorKind::Connect, false), "{error}");
        disturbed.restart(1);
        node.ask(&v5, ask()).await.unwrap();
    });
}

fn watch(settings: ClusterSettings) -> View {
    let (publisher, view) = channel();
    tokio::task::spawn_local(keep(settings, publisher));
    view
}

async fn until(view: &View, what: &str, is_so: impl Fn(&Cluster) -> bool) -> Arc<Cluster> {
    let mut changes = view.changes();
    let so = changes.wait_for(|cluster| is_so(cluster));
    match tokio::time::timeout(Duration::from_secs(30), so).await {
        Ok(cluster) => Arc::clone(&cluster.unwrap()),
        Err(_) => panic!("not {what}: {:?}, {}", view.cluster(), view.watching()),
    }
}

#[test]
fn a_cluster_is_known_heard_and_seen_to_fail() {
    let Some(cluster) = cassandra::shared(spec) else { return };
    let disturbed = cluster.disturb();
    run(async {
        let settings = ClusterSettings {
            check_every: Duration::from_millis(200),
            check_timeout: Duration::from_millis(500),
            ..ClusterSettings::new(vec![cluster.address(1)])
        };
        let view = watch(settings);
        let known = until(&view, "known", |known| known.nodes.len() == 2).await;
        assert_eq!(known.release_version, "5.0.9");
        assert_eq!(known.partitioner, "org.apache.cassandra.dht.Murmur3Partitioner");
        let mut addresses: Vec<_> = known.nodes.iter().map(|node| node.address).collect();
        addresses.sort();
        assert_eq!(addresses, [cluster.address(0), cluster.address(1)]);
        for node in &known.nodes {
            assert_eq!((&*node.datacenter, node.tokens.len()), ("east", 4));
            assert!(node.is_up && node.release_version == "5.0.9", "{node:?}");
        }
        assert!(known.keyspaces.contains_key("system_schema"), "{:?}", known.keyspaces);
        let mut events = view.events();
        let (first, all) = (cluster.address(0), both(cluster));
        tokio::task::spawn_blocking(move || keyspace(&all, "heard")).await.unwrap();
        // What other tests created may still be told.
        let heard = async {
            loop {
                let Notice::Event(event) = events.recv().await.unwrap() else { continue };
                if matches!(event.event(), Event::Schema(change) if change.keyspace == "heard") {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), heard).await.expect("an event came");
        until(&view, "told of the keyspace", |known| known.keyspaces.contains_key("heard")).await;
        // The very node that tells: another one does, and says who is gone.
        disturbed.kill(1);
        let is_down = |known: &Cluster| {
            known.nodes.iter().any(|node| node.address == cluster.address(1) && !node.is_up)
        };
        until(&view, "without the killed node", is_down).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(view.watching().node, Some(first), "{}", view.watching());
        disturbed.restart(1);
        let are_up = |known: &Cluster| known.nodes.iter().all(|node| node.is_up);
        let whole = until(&view, "whole again", are_up).await;
        assert_eq!(whole.nodes.len(), 2);
    });
}

#[test]
fn an_agent_beside_a_node_reports_with_every_answer_to_those_who_ask() {
    let Some(cluster) = cassandra::shared(spec) else { return };
    let _calm = cluster.calm();
    for (version, compression) in [
        (Version::V4, Some(Compression::Lz4)),
        (Version::V5, None),
        (Version::V5, Some(Compression::Lz4)),
    ] {
        run(async move {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let settings = NodeAgentSettings {
                concurrency: Some(32),
                ..NodeAgentSettings::new(cluster.address(0))
            };
            let agent = NodeAgent::new(settings, Clock::start());
            tokio::task::spawn_local(Rc::clone(&agent).serve(listener.into(), StopSignal::never()));
            let of_system = "WHERE keyspace_name = 'system_schema'";
            let text = format!("SELECT table_name FROM system_schema.tables {of_system}");
            let text = text.as_str();
            let direct = node(cluster.address(0), NodeLimits::default());
            let plainly = direct.ask(&dialect(version, None), query(version, text)).await.unwrap();
            for asks_for_feedback in [true, false] {
                let limits = NodeLimits { compression, asks_for_feedback, ..NodeLimits::default() };
                let node = node(address, limits);
                for _ in 0..10 {
                    let answer = node.ask(&dialect(version, None), query(version, text)).await;
                    let answer = answer.unwrap();
                    assert_eq!((answer.flags, &answer.body), (plainly.flags, &plainly.body));
                    assert_eq!(answer.feedback.is_some(), asks_for_feedback);
                }
                let (source, report) = node.feedback();
                if asks_for_feedback {
                    assert_eq!(source, FeedbackSource::Agent);
                    let service = report.unwrap().service_time.unwrap();
                    let possible = Duration::from_micros(50)..Duration::from_secs(2);
                    assert!(possible.contains(&service), "{service:?}");
                    assert_eq!((node.counts().reports, node.counts().reports_refused), (10, 0));
                } else {
                    assert_eq!((source, report), (FeedbackSource::None, None));
                }
            }
            assert_eq!((agent.state().waiting, agent.state().in_service), (0, 0));
        });
    }
}

#[test]
fn nodes_without_an_agent_are_polled() {
    let Some(cluster) = cassandra::shared(spec) else { return };
    let _calm = cluster.calm();
    run(async {
        let settings = ClusterSettings {
            poll_every: Some(Duration::from_millis(100)),
            ..ClusterSettings::new(vec![cluster.address(0)])
        };
        let view = watch(settings);
        let node = node(cluster.address(1), NodeLimits::default());
        let began = Instant::now();
        let mut reports = view.reports();
        // Reads of a table that is stored: they go through the stages that are polled.
        while began.elapsed() < Duration::from_secs(20) {
            let text = "SELECT * FROM system_schema.tables";
            node.ask(&dialect(Version::V4, None), query(Version::V4, text)).await.unwrap();
            let polled = reports.borrow_and_update().get(&cluster.address(1)).copied();
            if let Some(report) = polled {
                node.receive_report(FeedbackSource::Polled, report);
                break;
            }
        }
        let (source, report) = node.feedback();
        assert_eq!(source, FeedbackSource::Polled);
        let report = report.unwrap();
        assert!(report.service_time < Some(Duration::from_secs(10)), "{report:?}");
        assert!(report.concurrency.is_some_and(|at_once| at_once >= 32), "{report:?}");
    });
}

#[test]
fn nodes_that_want_tls_and_a_login_get_both() {
    if let Err(missing) = cassandra::possible() {
        return skipped(&missing);
    }
    let own =
        cassandra::Cluster::start(&Spec { password: true, tls: true, ..Spec::of(&[("east", 1)]) });
    run(async {
        let folder = std::env::temp_dir().join(format!("evenkeel-nodes-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let authority = folder.join("authority.pem");
        std::fs::write(&authority, own.authority().unwrap()).unwrap();
        let files = ClientTlsFiles { ca: Some(authority), identity: None, name: None };
        let tls = Some(ClientTls::load(&files, &[]).unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        let limits = NodeLimits { tls, ..NodeLimits::default() };
        let as_user = |password: &str| Dialect {
            login: Some(Arc::new(Login::plain("cassandra", password))),
            ..dialect(Version::V5, None)
        };
        let encrypted = node(own.address(0), limits.clone());
        let ask = || query(Version::V5, "SELECT key FROM system.local");
        let answer = encrypted.ask(&as_user("cassandra"), ask()).await.unwrap();
        assert_eq!(first_column(Version::V5, answer), [b"local".to_vec()]);
        let error = encrypted.ask(&as_user("wrong"), ask()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Authentication, "{error}");
        assert_eq!(code_of(error.answer().unwrap()), 0x0100);
        let error = encrypted.ask(&dialect(Version::V5, None), ask()).await.unwrap_err();
        assert_eq!(error.kind(), SendErrorKind::Authentication, "{error}");
        assert!(error.to_string().contains("PasswordAuthenticator"), "{error}");
        let plain = node(own.address(0), NodeLimits::default());
        let error = plain.ask(&as_user("cassandra"), ask()).await.unwrap_err();
        assert!(!error.was_sent(), "{error}");
        let view = watch(ClusterSettings {
            login: Some(Arc::new(Login::plain("cassandra", "cassandra"))),
            limits,
            ..ClusterSettings::new(vec![own.address(0)])
        });
        let known = until(&view, "known", Cluster::is_known).await;
        assert_eq!(known.nodes.len(), 1);
        // A client's own login, passed through.
        let mut talk = encrypted.converse(Version::V4).await.unwrap();
        let supported = talk.ask(Opcode::Options, Flags::NONE, Bytes::new()).await.unwrap();
        assert_eq!(supported.opcode, Opcode::Supported);
        let startup = Bytes::from_static(b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0");
        let asked = talk.ask(Opcode::Startup, Flags::NONE, startup).await.unwrap();
        assert_eq!(asked.opcode, Opcode::Authenticate);
        let token = Bytes::from_static(b"\0\0\0\x14\0cassandra\0cassandra");
        let welcome = talk.ask(Opcode::AuthResponse, Flags::NONE, token).await.unwrap();
        assert_eq!(welcome.opcode, Opcode::AuthSuccess);
    });
}
