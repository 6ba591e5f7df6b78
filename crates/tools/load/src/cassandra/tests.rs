//! Loads against a small server that speaks the native protocol and has known faults.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use evenkeel_core::request::ring::Consistency;
use evenkeel_cql::codec::{Decoder, Encoder, Limits, Side};
use evenkeel_cql::request::{Execute, Prepare, Query};
use evenkeel_cql::response::{Error, Fields, Result as Answered, Supported};
use evenkeel_cql::{Envelope, ErrorCode, Opcode, Version, rows};

use super::super::{Arrivals, Outcome, Stop};
use super::{CassandraLoad, CassandraTarget, Popularity, RecordSize, Workload};
use evenkeel_cql::client::testing::tls::Certificate;
use evenkeel_runtime::accept::worker_runtime;

/// A request as it came.
#[derive(Clone, PartialEq, Debug)]
struct Seen {
    text: String,
    values: Vec<Vec<u8>>,
    timestamp: Option<i64>,
    consistency: Option<Consistency>,
    connection: usize,
}

/// What the server does with a request.
#[derive(Clone, Copy)]
enum Reply {
    Rows(u32),
    /// One row with this.
    Row(u8),
    Void,
    Error(ErrorCode),
    /// It does not know the statement, whatever it was told.
    Forgotten,
    Silence,
}

type Answer = dyn Fn(&Seen) -> Reply + Send + Sync;

struct Server {
    address: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    ended: Arc<AtomicBool>,
}

impl Server {
    fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (seen, ended) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let server = Self { address, seen: Arc::clone(&seen), ended: Arc::clone(&ended) };
        let answer: Arc<Answer> = Arc::new(answer);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                thread::spawn(move || {
                    Client::new(connection, stream.unwrap()).serve(&seen, &*answer);
                });
            }
        });
        server
    }

    /// One that has what is asked for.
    fn healthy() -> Self {
        Self::start(usual)
    }

    fn load(&self, workload: Workload, rate: f64, duration_ms: u64) -> CassandraLoad {
        let target = CassandraTarget::parse(&format!("cql://{}/shop", self.address)).unwrap();
        let mut load = CassandraLoad::new(target, Arrivals::constant(rate).unwrap());
        load.workload = workload;
        load.plan.duration = Some(Duration::from_millis(duration_ms));
        load
    }

    fn executed(&self, first_word: &str) -> Vec<Seen> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|one| one.text.starts_with(first_word)).cloned().collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(&self.address);
    }
}

fn usual(seen: &Seen) -> Reply {
    if seen.text.starts_with("SELECT") { Reply::Rows(1) } else { Reply::Void }
}

struct Client {
    connection: usize,
    stream: TcpStream,
    decoder: Decoder,
    encoder: Encoder,
}

impl Client {
    fn new(connection: usize, stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        let decoder = Decoder::new(Side::Client, Limits::default());
        Self { connection, stream, decoder, encoder: Encoder::new() }
    }

    /// Until the client goes, which it may.
    fn serve(mut self, seen: &Mutex<Vec<Seen>>, answer: &Answer) {
        let (mut buffer, mut chunk) = (BytesMut::new(), [0; 65_536]);
        while let Ok(length @ 1..) = self.stream.read(&mut chunk) {
            buffer.extend_from_slice(&chunk[..length]);
            while let Some(request) = self.decoder.decode(&mut buffer).unwrap() {
                let Some((opcode, body)) = self.answer(&request, seen, answer) else { continue };
                let Envelope { version, stream, .. } = request;
                let mut out = BytesMut::new();
                self.encoder.encode(&Envelope::new(version, stream, opcode, body), &mut out);
                if opcode == Opcode::Ready {
                    self.decoder.start(version, None);
                    self.encoder.start(version, None);
                }
                if self.stream.write_all(&out).is_err() {
                    return;
                }
            }
        }
    }

    fn answer(
        &self,
        request: &Envelope,
        seen: &Mutex<Vec<Seen>>,
        answer: &Answer,
    ) -> Option<(Opcode, Bytes)> {
        let Envelope { version, opcode, body, .. } = request;
        let (text, parameters) = match opcode {
            Opcode::Startup => return Some((Opcode::Ready, Bytes::new())),
            Opcode::Options => {
                let mut out = BytesMut::new();
                Supported { options: vec![] }.write(&mut out);
                return Some((Opcode::Supported, out.freeze()));
            }
            Opcode::Prepare => {
                // The id of a statement is its text here.
                let id = Prepare::read(body, *version).unwrap().text.as_bytes();
                let out = rows::write_prepared(*version, id, b"m", "shop", "usertable", &[]);
                return Some((Opcode::Result, out.freeze()));
            }
            Opcode::Execute => {
                let execute = Execute::read(body, *version).unwrap();
                (String::from_utf8(execute.id.to_vec()).unwrap(), execute.parameters)
            }
            Opcode::Query => {
                let query = Query::read(body, *version).unwrap();
                (query.text.to_owned(), query.parameters)
            }
            other => panic!("{other} came"),
        };
        let values = parameters.values.iter().filter_map(|(_, value)| value.bytes());
        let one = Seen {
            text,
            values: values.map(<[u8]>::to_vec).collect(),
            timestamp: parameters.timestamp,
            consistency: Some(parameters.consistency),
            connection: self.connection,
        };
        let reply = answer(&one);
        let text = one.text.clone();
        seen.lock().unwrap().push(one);
        written(reply, *version, &text)
    }
}

fn written(reply: Reply, version: Version, text: &str) -> Option<(Opcode, Bytes)> {
    let mut out = BytesMut::new();
    let error = |error: Error<'_>| {
        let mut out = BytesMut::new();
        error.write(version, &mut out);
        Some((Opcode::Error, out.freeze()))
    };
    match reply {
        Reply::Silence => return None,
        Reply::Void => out.extend_from_slice(&Answered::void()),
        Reply::Rows(count) => {
            // Rows of one column, without metadata.
            for number in [2, 4, 1, count] {
                out.put_u32(number);
            }
            (0..count).for_each(|_| out.put_slice(b"\0\0\0\x01x"));
        }
        Reply::Row(value) => {
            [2, 4, 1, 1, 1].iter().for_each(|number| out.put_u32(*number));
            out.put_u8(value);
        }
        Reply::Error(code) => return error(Error::new(code, "in the node's words")),
        Reply::Forgotten => {
            let fields = Fields::Unprepared { id: text.as_bytes() };
            return error(Error { fields, ..Error::new(ErrorCode::Unprepared, "who?") });
        }
    }
    Some((Opcode::Result, out.freeze()))
}

fn run(load: CassandraLoad) -> Outcome {
    load.run(&Stop::new(), |_| {}).unwrap()
}

#[test]
fn reads_and_updates_are_sent_as_the_workload_says() {
    let server = Server::healthy();
    let report = run(server.load(Workload::A, 1_000.0, 500)).report;
    assert_eq!((report.requests, report.served, report.failed), (500, 500, 0), "{report:?}");
    let (reads, updates) = (server.executed("SELECT"), server.executed("UPDATE"));
    let counts = report.operations.iter().map(|one| (one.operation, one.requests));
    let expected = [("read", reads.len() as u64), ("update", updates.len() as u64)];
    assert_eq!(counts.collect::<Vec<_>>(), expected);
    assert_eq!(reads[0].text, "SELECT * FROM \"shop\".usertable WHERE y_id = ?");
    assert!(reads.iter().all(|one| one.timestamp.is_none() && one.values.len() == 1));
    assert!(updates.iter().all(|one| one.text.ends_with("= ? WHERE y_id = ?")));
    assert!(updates.iter().all(|one| one.values[0].len() == 100));
    assert!(updates.iter().all(|one| one.values[1].starts_with(b"user")));
    let mut stamps = updates.iter().map(|one| one.timestamp.unwrap()).collect::<Vec<_>>();
    stamps.sort_unstable();
    stamps.dedup();
    assert_eq!(stamps.len(), updates.len(), "no two updates have one timestamp");
    assert!(reads.iter().all(|one| one.consistency == Some(Consistency::LocalQuorum)));
    for connection in 0..4 {
        let its = reads.iter().chain(&updates).filter(|one| one.connection == connection);
        assert_eq!(its.count(), 125, "connections take turns");
    }
}

#[test]
fn the_older_protocol_and_other_settings_are_obeyed() {
    let server = Server::healthy();
    let mut load = server.load(Workload { read_share: 0.0 }, 500.0, 200);
    load.version = Version::V4;
    load.connections = 1;
    load.consistency = Consistency::One;
    load.has_timestamps = false;
    load.size = RecordSize { bytes: 2_000, is_skewed: true };
    load.popularity = Popularity::Uniform;
    load.records = 3;
    let report = run(load).report;
    assert_eq!((report.served, report.connections_opened), (100, 1));
    let updates = server.executed("UPDATE");
    assert!(updates.iter().all(|one| one.timestamp.is_none()));
    assert!(updates.iter().all(|one| one.consistency == Some(Consistency::One)));
    assert!(updates.iter().any(|one| one.values[0].len() < 20));
    let mut keys = updates.iter().map(|one| &one.values[1]).collect::<Vec<_>>();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3);
}

#[test]
fn a_seed_asks_for_the_same() {
    let asked = |seed| {
        let server = Server::healthy();
        let mut load = server.load(Workload::A, 500.0, 200);
        load.plan.seed = seed;
        load.has_timestamps = false;
        run(load);
        let mut seen = server.seen.lock().unwrap().clone();
        // Connections are read side by side.
        seen.sort_by(|a, b| (&a.text, &a.values).cmp(&(&b.text, &b.values)));
        seen.iter_mut().for_each(|one| one.connection = 0);
        seen
    };
    assert_eq!(asked(3), asked(3));
    assert_ne!(asked(3), asked(4));
}

#[test]
fn failures_are_counted_by_their_kind() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(move |_| match turn.fetch_add(1, Ordering::Relaxed) % 4 {
        0 => Reply::Rows(1),
        1 => Reply::Rows(0),
        2 => Reply::Error(ErrorCode::Overloaded),
        _ => Reply::Error(ErrorCode::Invalid),
    });
    let mut load = server.load(Workload::C, 500.0, 200);
    load.connections = 1;
    load.plan.objective = Some(Duration::from_secs(1));
    let report = run(load).report;
    assert_eq!((report.served, report.failed, report.missed_share), (25, 75, Some(0.75)));
    let failures = report.failures.iter().map(|one| (one.message.as_str(), one.count));
    let expected = [
        ("no such record (is the table filled? --fill does)", 25),
        ("the node answered: overloaded (0x1001)", 25),
        ("the node answered: invalid request (0x2200): in the node's words", 25),
    ];
    assert_eq!(failures.collect::<Vec<_>>(), expected);
}

#[test]
fn what_is_not_answered_times_out() {
    let server = Server::start(|_| Reply::Silence);
    let mut load = server.load(Workload::C, 200.0, 100);
    load.plan.timeout = Duration::from_millis(150);
    let report = run(load).report;
    assert_eq!((report.requests, report.timeouts), (20, 20));
    assert_eq!(report.latency.p50_ms.map(f64::round), Some(150.0));
}

#[test]
fn a_stall_shows_in_all_the_requests_it_hit() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        if turn.fetch_add(1, Ordering::Relaxed) == 50 {
            thread::sleep(Duration::from_millis(400));
        }
        Reply::Rows(1)
    });
    let mut load = server.load(Workload::C, 500.0, 1_000);
    load.connections = 1;
    let report = run(load).report;
    assert_eq!(report.served, 500);
    // 200 requests were due while it slept; half of them waited for more than 200 ms.
    assert!(report.latency.p95_ms.unwrap() > 250.0, "{report:?}");
    assert!(report.latency.max_ms.unwrap() >= 390.0, "{report:?}");
}

#[test]
fn a_statement_that_a_node_forgot_is_told_it_again() {
    let turn = AtomicUsize::new(0);
    let server = Server::start(move |_| match turn.fetch_add(1, Ordering::Relaxed) {
        0 => Reply::Forgotten,
        _ => Reply::Rows(1),
    });
    let report = run(server.load(Workload::C, 100.0, 100)).report;
    assert_eq!((report.served, report.failed), (10, 0), "{:?}", report.failures);
}

#[test]
fn filling_creates_the_table_and_writes_each_record_once() {
    let server = Server::healthy();
    let mut load = server.load(Workload::C, 1.0, 1);
    load.records = 300;
    let mut reported = 0;
    load.fill(Some("{'class': 'SimpleStrategy'}"), &Stop::new(), |done| reported = done).unwrap();
    assert_eq!(reported, 300);
    let created = server.executed("CREATE");
    let keyspace = "CREATE KEYSPACE IF NOT EXISTS \"shop\" WITH replication = \
                    {'class': 'SimpleStrategy'}";
    assert_eq!((created.len(), created[0].text.as_str()), (2, keyspace));
    assert!(created[1].text.contains("\"shop\".usertable (y_id text PRIMARY KEY, field0 text"));
    let inserted = server.executed("INSERT");
    assert!(inserted.iter().all(|one| one.values.len() == 11 && one.timestamp.is_some()));
    let mut keys = inserted.iter().map(|one| one.values[0].clone()).collect::<Vec<_>>();
    keys.sort();
    let mut expected = (0..300).map(|n| super::workload::key(n).into_bytes()).collect::<Vec<_>>();
    expected.sort();
    assert_eq!(keys, expected);
}

#[test]
fn nothing_is_written_before_all_nodes_have_the_table() {
    let looks = AtomicUsize::new(0);
    let server = Server::start(move |seen| match seen.text.as_str() {
        "SELECT schema_version FROM system.local" => Reply::Row(b'2'),
        "SELECT schema_version FROM system.peers" => {
            let is_late = (1..5).contains(&looks.fetch_add(1, Ordering::Relaxed));
            Reply::Row(if is_late { b'1' } else { b'2' })
        }
        _ => Reply::Void,
    });
    let mut load = server.load(Workload::C, 1.0, 1);
    load.records = 10;
    load.fill(Some("{'class': 'SimpleStrategy'}"), &Stop::new(), |_| ()).unwrap();
    let seen = server.seen.lock().unwrap();
    let count = |of: &str| seen.iter().filter(|one| one.text.contains(of)).count();
    // Once after the keyspace, and after the table until the fifth look finds it everywhere.
    assert_eq!((count("peers"), count("INSERT")), (6, 10));
    let at = |of: &str| seen.iter().position(|one| one.text.contains(of)).unwrap();
    let last_look = seen.iter().rposition(|one| one.text.contains("peers")).unwrap();
    assert!(at("CREATE TABLE") < last_look && last_look < at("INSERT"));
    let changes = seen.iter().filter(|one| !one.text.starts_with("INSERT"));
    let connections: BTreeSet<usize> = changes.skip(3).map(|one| one.connection).collect();
    assert_eq!(connections.len(), 1, "who made the table is the first to know its version");
}

#[test]
fn a_load_that_cannot_begin_says_why() {
    let server = Server::start(|_| Reply::Void);
    let error = |load: CassandraLoad| load.run(&Stop::new(), |_| {}).unwrap_err().to_string();
    let load = || server.load(Workload::C, 100.0, 100);
    assert!(error(CassandraLoad { records: 0, ..load() }).starts_with("records: got 0"));
    assert!(error(CassandraLoad { connections: 0, ..load() }).starts_with("connections: got 0"));
    let serial = CassandraLoad { consistency: Consistency::Serial, ..load() };
    assert!(error(serial).starts_with("consistency: got \"SERIAL\""));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let target = CassandraTarget::parse(&format!("cql://{nobody}/shop")).unwrap();
    let refused = error(CassandraLoad { target, ..load() });
    assert!(refused.starts_with("cannot connect: node 127.0.0.1:"), "{refused}");
    assert!(refused.contains("is it running"), "{refused}");
}

#[test]
fn over_tls_it_is_the_same() {
    let (server, certificate) = (Server::healthy(), Arc::new(Certificate::new()));
    let (sender, encrypted) = std::sync::mpsc::channel();
    let (behind, own) = (server.address.parse().unwrap(), Arc::clone(&certificate));
    thread::spawn(move || {
        worker_runtime().unwrap().block_on(async {
            let (address, _agreed) = own.before(behind, rustls::ALL_VERSIONS).await;
            sender.send(address).unwrap();
            std::future::pending::<()>().await;
        });
    });
    let target = format!("cql://{}/shop", encrypted.recv().unwrap());
    let target = CassandraTarget::parse(&target).unwrap();
    let load = CassandraLoad { target, ..server.load(Workload::A, 200.0, 300) };
    let plain = load.clone().run(&Stop::new(), |_| {}).unwrap_err().to_string();
    assert!(plain.starts_with("cannot connect"), "{plain}");
    let other = CassandraLoad { tls: Some(Certificate::new().of_nodes()), ..load.clone() };
    let other = other.run(&Stop::new(), |_| {}).unwrap_err().to_string();
    assert!(other.contains("certificate"), "{other}");
    let load = CassandraLoad { tls: Some(certificate.of_nodes()), ..load };
    let report = load.run(&Stop::new(), |_| {}).unwrap().report;
    assert!(report.requests > 20 && report.served == report.requests, "{report:?}");
}

#[test]
fn urls_are_read_or_refused() {
    let parse = |url: &str| CassandraTarget::parse(url);
    let target = parse("cql://10.0.0.1,[::1]:9043/Shop_1").unwrap();
    assert_eq!(target.addresses, ["10.0.0.1:9042", "[::1]:9043"]);
    assert_eq!(target.keyspace, "Shop_1");
    assert!(CassandraTarget::is_meant("CQL://a/b") && !CassandraTarget::is_meant("http://a/b"));
    for url in [
        "cql://a",
        "cql://a/",
        "cql:///k",
        "cql://a:0x/k",
        "cql://a:99999/k",
        "cql://u@a/k",
        "cql://a,/k",
        "cql://a/k;drop",
        "cql://a/k/t",
        "http://a/k",
    ] {
        let error = parse(url).unwrap_err().to_string();
        assert!(error.contains("expected a URL such as cql://"), "{url}: {error}");
    }
}
