//! Keyspaces of a real Cassandra as duplicates: what each must do, whole batches, fencing, and the
//! same story as over every other store.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use evenkeel_cql::Version;
use evenkeel_cql::client::config::CqlUser;
use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_ordered::Acknowledge;
use evenkeel_runtime::tls::ClientTlsFiles;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::reply::{ReplyScanner, elements, payload};
use evenkeel_stores::store::Host;
use evenkeel_stores::store::cassandra::{Cassandra, CassandraAccess, CassandraSettings};
use evenkeel_stores::store::embedded::EmbeddedSettings;
use evenkeel_testkit::cassandra::{self, Cluster, Spec};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::Reply;
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::block_until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::runtime::Runtime;

use super::stores::{state, story};
use super::world::World;
use super::{bulk, ok};

/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(60);

fn cluster() -> Option<&'static Cluster> {
    cassandra::shared(|| Spec { password: true, ..Spec::of(&[("east", 1)]) })
}

fn password_file() -> PathBuf {
    static FOLDER: OnceLock<Folder> = OnceLock::new();
    let make = || {
        let folder = Folder::new("stores-password");
        std::fs::write(folder.file("password"), "cassandra\nof the first line only\n").unwrap();
        folder
    };
    FOLDER.get_or_init(make).file("password")
}

fn keyspace(address: SocketAddr, keyspace: &str) -> CassandraSettings {
    let user = CqlUser { name: "cassandra".to_owned(), password_file: password_file() };
    let access = CassandraAccess { user: Some(user), ..CassandraAccess::default() };
    let keyspace = keyspace.to_owned();
    CassandraSettings { contact_points: vec![address], keyspace, access: Arc::new(access) }
}

fn open(settings: &CassandraSettings) -> Host {
    Cassandra::start("cassandra", settings.clone(), None).unwrap()
}

/// A connection to a store, past any front.
struct Session {
    runtime: Runtime,
    stream: DuplexStream,
    inbox: Vec<u8>,
}

impl Session {
    fn to(host: &Host) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Self { runtime, stream: host.connect().unwrap(), inbox: Vec::new() }
    }

    fn tell(&mut self, commands: &[&[&[u8]]]) {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| encode::command(&mut bytes, command));
        self.runtime.block_on(self.stream.write_all(&bytes)).unwrap();
    }

    /// The next reply, or `None` when the store has ended the connection.
    fn hear(&mut self) -> Option<Vec<u8>> {
        let mut scanner = ReplyScanner::default();
        loop {
            if let Some(length) = scanner.scan(&self.inbox).unwrap() {
                return Some(self.inbox.drain(..length).collect());
            }
            let (stream, inbox) = (&mut self.stream, &mut self.inbox);
            let reading = async { tokio::time::timeout(PATIENCE, stream.read_buf(inbox)).await };
            if self.runtime.block_on(reading).expect("no answer").unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    fn raw(&mut self, command: &[&[u8]]) -> Vec<u8> {
        self.tell(&[command]);
        self.hear().expect("the store ended the connection")
    }

    /// Words without spaces in them.
    fn ask(&mut self, words: &str) -> String {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        let reply = self.raw(&words);
        match payload(&reply) {
            Some(bytes) if reply[0] == b'$' => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::from_utf8_lossy(&reply).trim_end().to_owned(),
        }
    }

    /// A transaction that counts its write, as the engine sends what must not be repeated.
    fn count(&mut self, writes: &[&[&[u8]]], watermark: &str) {
        let mark: &[&[u8]] = &[b"SET", b"evenkeel:watermark", watermark.as_bytes()];
        let (multi, exec): (&[&[u8]], &[&[u8]]) = (&[b"MULTI"], &[b"EXEC"]);
        let transaction = [&[multi], writes, &[mark, exec]].concat();
        self.tell(&transaction);
    }

    /// Whether a command ends the connection.
    fn is_ended_by(&mut self, words: &str) -> bool {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        self.tell(&[&words]);
        self.hear().is_none()
    }

    fn keys(&mut self, count: &str) -> Vec<Vec<u8>> {
        let (mut keys, mut cursor) = (Vec::new(), b"0".to_vec());
        loop {
            let page = self.raw(&[b"SCAN", &cursor, b"COUNT", count.as_bytes()]);
            let parts: Vec<&[u8]> = elements(&page).collect();
            keys.extend(elements(parts[1]).map(|key| payload(key).unwrap().to_vec()));
            cursor = payload(parts[0]).unwrap().to_vec();
            if cursor == b"0" {
                return keys;
            }
        }
    }
}

#[test]
fn a_keyspace_is_a_duplicate() {
    let Some(cluster) = cluster() else { return };
    let _calm = cluster.calm();
    let host = open(&keyspace(cluster.address(0), "plain"));
    let mut one = Session::to(&host);
    assert_eq!(one.ask("GET evenkeel:watermark"), "$-1");
    assert_eq!(one.ask("SET evenkeel:watermark 1,2"), "+OK");
    one.count(&[&[b"INCR", b"n"]], "1 3");
    let replies: Vec<_> = (0..4).map(|_| one.hear().unwrap()).collect();
    assert_eq!(replies[3], b"*2\r\n:1\r\n+OK\r\n");
    let odd: [&[u8]; 3] = [b"a key/with % .\xff", b".", b"line\r\nend\0"];
    for key in odd {
        assert_eq!(one.raw(&[b"SET", key, key]), b"+OK\r\n");
        assert_eq!(payload(&one.raw(&[b"GET", key])), Some(key));
    }
    assert_eq!(one.ask("MSET a 1 b 2 c 3"), "+OK");
    assert_eq!(one.ask("DEL b nothing"), ":1");
    assert_eq!(one.ask("MGET a b c"), "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n3");
    assert_eq!(one.ask("DBSIZE"), ":7");
    let mut keys = one.keys("2");
    keys.sort();
    assert_eq!(keys.len(), 7);
    assert!(odd.iter().all(|key| keys.contains(&key.to_vec())));
    // Hashes, sets and expiries, and a copy of each.
    assert_eq!(one.ask("HSET h x 1 y 2"), ":2");
    assert_eq!(one.ask("SADD s p q"), ":2");
    assert_eq!(one.ask("SET e 1 PX 100000"), "+OK");
    assert_eq!(one.ask("SET gone 1 PX 1"), "+OK");
    block_until("it expires", || one.ask("GET gone") == "$-1");
    for key in [b"h", b"s", b"e"] {
        let dump = one.raw(&[b"DUMP", key]);
        let copy = [b"copy:", &key[..]].concat();
        let restore = [&b"RESTORE"[..], &copy, b"0", payload(&dump).unwrap(), b"REPLACE"];
        assert_eq!(one.raw(&restore), b"+OK\r\n");
    }
    assert_eq!(one.ask("HGET copy:h y"), "2");
    assert_eq!(one.ask("SISMEMBER copy:s q"), ":1");
    let mut direct = cassandra::client::Client::connect(cluster.address(0), Version::V4, None);
    let direct = direct.as_mut().unwrap();
    let swept = direct.rows("SELECT TTL(entry) FROM plain.entries_1 WHERE key = 0x65");
    let swept = i32::from_be_bytes(swept[0][0].as_deref().unwrap().try_into().unwrap());
    assert!((86_401..=86_500).contains(&swept), "a day after it has expired: {swept} s");
    // Many at once, a large one, and what it does not take.
    let many: Vec<String> = (0..500).map(|key| format!("many:{key}")).collect();
    let filler = [b'x'; 300];
    let pairs = many.iter().flat_map(|key| [key.as_bytes(), &filler]);
    let set: Vec<&[u8]> = [&b"MSET"[..]].into_iter().chain(pairs).collect();
    assert_eq!(one.raw(&set), b"+OK\r\n");
    let large = vec![b'y'; 1 << 20];
    assert_eq!(one.raw(&[b"SET", b"large", &large]), b"+OK\r\n");
    assert_eq!(one.ask("STRLEN large"), ":1048576");
    assert_eq!(one.ask("LPUSH a b"), "-ERR store 'cassandra' has no command 'LPUSH'");
    let long = [b'k'; 8_193];
    let refused = one.raw(&[b"SET", &long, b"1"]);
    assert!(String::from_utf8_lossy(&refused).contains("keys of 1 to 8192"));
    assert_eq!(one.keys("100").len(), 7 + 3 + 3 + 500 + 1);
    // As the next process finds it.
    let successor = open(&keyspace(cluster.address(0), "plain"));
    let mut next = Session::to(&successor);
    assert_eq!(next.ask("GET many:499"), "x".repeat(300));
    // Emptied, but for the epoch.
    assert_eq!(one.ask("SET evenkeel:epoch 5"), "+OK");
    assert_eq!(one.ask("FLUSHALL"), "+OK");
    assert_eq!(one.keys("100"), [b"evenkeel:epoch"]);
    assert_eq!(one.ask("MGET a evenkeel:epoch"), "*2\r\n$-1\r\n$1\r\n5");
    let tables = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'plain'";
    let tables: Vec<_> = direct.rows(tables).concat().into_iter().flatten().collect();
    assert_eq!(tables, [&b"entries_2"[..], b"journal"]);
}

#[test]
fn who_does_not_know_of_a_later_epoch_is_fenced_off() {
    let Some(cluster) = cluster() else { return };
    let _calm = cluster.calm();
    let settings = keyspace(cluster.address(0), "fenced");
    let (first, second) = (open(&settings), open(&settings));
    let (mut old, mut new) = (Session::to(&first), Session::to(&second));
    assert_eq!(old.ask("SET evenkeel:epoch 1"), "+OK");
    assert_eq!(old.ask("MSET a 1 b 1"), "+OK");
    // The second has looked before the first wrote: it must look again.
    assert!(new.is_ended_by("SET b 2"));
    let mut new = Session::to(&second);
    assert_eq!(new.ask("GET evenkeel:epoch"), "1");
    assert_eq!(new.ask("SET evenkeel:epoch 2"), "+OK");
    assert_eq!(new.ask("SET b 2"), "+OK");
    // Keys that its successor has not touched are not the old one's either.
    assert!(old.is_ended_by("MSET a 9 b 9 c 9"));
    assert_eq!(new.ask("MGET a b c"), "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$-1");
    // Nor may it empty, or sign what it does not know.
    let mut old = Session::to(&first);
    assert_eq!(old.ask("GET evenkeel:epoch"), "2");
    assert_eq!(new.ask("SET evenkeel:epoch 3"), "+OK");
    assert!(old.is_ended_by("SET evenkeel:epoch 2"), "the epoch is never lowered");
    let mut old = Session::to(&first);
    assert_eq!(old.ask("GET evenkeel:epoch"), "3");
    assert_eq!(new.ask("SET b 3"), "+OK");
    assert!(old.is_ended_by("FLUSHALL"));
    assert_eq!(new.ask("MGET a b"), "*2\r\n$1\r\n1\r\n$1\r\n3");
}

/// A new epoch comes through while the old one goes on writing, and is the end of that.
#[test]
fn a_later_epoch_needs_no_gap_between_writes() {
    let Some(cluster) = cluster() else { return };
    let _calm = cluster.calm();
    let settings = keyspace(cluster.address(0), "busy");
    let first = open(&settings);
    let mut old = Session::to(&first);
    assert_eq!(old.ask("SET evenkeel:epoch 1"), "+OK");
    let second = open(&settings);
    let (reported, heard) = std::sync::mpsc::channel();
    let writing = std::thread::spawn(move || {
        let mut count = 0;
        loop {
            old.tell(&[&[b"INCR", b"n"]]);
            let Some(reply) = old.hear() else { return count };
            count += 1;
            assert_eq!(reply, format!(":{count}\r\n").into_bytes());
            let _ = reported.send(()); // nobody listens after the first ones
        }
    });
    (0..5).for_each(|_| heard.recv_timeout(PATIENCE).unwrap());
    let mut new = Session::to(&second);
    assert_eq!(new.ask("GET evenkeel:epoch"), "1");
    assert_eq!(new.ask("SET evenkeel:epoch 2"), "+OK");
    let count = writing.join().unwrap();
    assert_eq!(new.ask("GET n"), count.to_string(), "what was answered, and no more");
}

/// In front of a node: lets so many `EXECUTE`s through, holds what comes then, and lets it go or
/// forgets it, as if its sender had slept, or been killed.
struct Gate {
    address: SocketAddr,
    left: Arc<AtomicUsize>,
    state: Arc<AtomicUsize>,
}

const OPEN: usize = 0;
const HOLDS: usize = 1;
const RELEASED: usize = 2;
const CUT: usize = 3;
const EXECUTE: u8 = 0x0A;

impl Gate {
    fn before(node: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let state = Arc::new(AtomicUsize::new(OPEN));
        let gate = Self { address, left, state };
        let (left, state) = (Arc::clone(&gate.left), Arc::clone(&gate.state));
        std::thread::spawn(move || {
            for coming in listener.incoming().map_while(Result::ok) {
                if state.load(SeqCst) == CUT {
                    return; // it stays dead
                }
                let going = TcpStream::connect(node).unwrap();
                let (mut from, mut to) = (going.try_clone().unwrap(), coming.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                let (left, state) = (Arc::clone(&left), Arc::clone(&state));
                std::thread::spawn(move || forward(coming, going, &left, &state));
            }
        });
        gate
    }

    fn close_after(&self, executes: usize) {
        self.left.store(executes, SeqCst);
    }

    fn wait_until_it_holds(&self) {
        block_until("something comes to be held", || self.state.load(SeqCst) == HOLDS);
    }

    fn set(&self, state: usize) {
        self.state.store(state, SeqCst);
    }
}

/// Frames of version 4: nine bytes of header, the last four of them the length.
fn forward(mut from: TcpStream, mut to: TcpStream, left: &AtomicUsize, state: &AtomicUsize) {
    let mut header = [0; 9];
    while from.read_exact(&mut header).is_ok() {
        let length = u32::from_be_bytes(header[5..].try_into().unwrap());
        let mut frame = header.to_vec();
        frame.resize(header.len() + length as usize, 0);
        if from.read_exact(&mut frame[header.len()..]).is_err() {
            break;
        }
        let is_counted = header[4] == EXECUTE && state.load(SeqCst) == OPEN;
        if is_counted && left.load(SeqCst) == 0 {
            state.store(HOLDS, SeqCst);
            while state.load(SeqCst) == HOLDS {
                std::thread::sleep(Duration::from_millis(5));
            }
        } else if is_counted && left.load(SeqCst) != usize::MAX {
            left.fetch_sub(1, SeqCst);
        }
        if state.load(SeqCst) == CUT || to.write_all(&frame).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

/// The one moment that a condition does not see: what is journaled is written late, after others.
#[test]
fn one_that_wakes_between_journal_and_entries_changes_nothing() {
    let Some(cluster) = cluster() else { return };
    let _calm = cluster.calm();
    let gate = Gate::before(cluster.address(0));
    let sleeper = open(&keyspace(gate.address, "sleeper"));
    let mut old = Session::to(&sleeper);
    assert_eq!(old.ask("SET evenkeel:epoch 1"), "+OK");
    assert_eq!(old.ask("MSET a 1 b 1 c 1"), "+OK");
    // What is there, three times, and the journal.
    gate.close_after(4);
    old.tell(&[&[b"MSET", b"a", b"2", b"b", b"2", b"c", b"2"]]);
    gate.wait_until_it_holds();
    let successor = open(&keyspace(cluster.address(0), "sleeper"));
    let mut new = Session::to(&successor);
    let journaled = "*3\r\n$1\r\n2\r\n$1\r\n2\r\n$1\r\n2";
    assert_eq!(new.ask("MGET a b c"), journaled, "it is completed");
    assert_eq!(new.ask("SET evenkeel:epoch 2"), "+OK");
    assert_eq!(new.ask("MSET a 3 n 0"), "+OK");
    assert_eq!(new.ask("DEL b"), ":1");
    gate.set(RELEASED);
    assert_eq!(old.hear().unwrap(), b"+OK\r\n", "it was before the epoch");
    assert_eq!(new.ask("MGET a b c"), "*3\r\n$1\r\n3\r\n$-1\r\n$1\r\n2");
    assert!(old.is_ended_by("SET c 9"));
    assert_eq!(new.ask("GET c"), "2");
    // The same into a table that is no more.
    let gate = Gate::before(cluster.address(0));
    let sleeper = open(&keyspace(gate.address, "sleeper"));
    let mut old = Session::to(&sleeper);
    assert_eq!(old.ask("GET a"), "3");
    gate.close_after(2);
    old.tell(&[&[b"SET", b"a", b"8"]]);
    gate.wait_until_it_holds();
    let successor = open(&keyspace(cluster.address(0), "sleeper"));
    let mut new = Session::to(&successor);
    assert_eq!(new.ask("FLUSHALL"), "+OK");
    assert_eq!(new.ask("SET b 4"), "+OK");
    gate.set(RELEASED);
    assert!(old.hear().is_none());
    assert_eq!(new.ask("MGET a b"), "*2\r\n$-1\r\n$1\r\n4");
}

/// Killed at every step of a batch, it has all of it or nothing; of one that is too large for the
/// journal the watermark says so.
#[test]
fn a_batch_that_was_cut_is_whole_or_not_there() {
    let Some(cluster) = cluster() else { return };
    let _calm = cluster.calm();
    let direct = || open(&keyspace(cluster.address(0), "cut"));
    assert_eq!(Session::to(&direct()).ask("MSET n 0 m 0 evenkeel:watermark 3_0"), "+OK");
    // Three are read, one is journaled, three are written.
    let mut expected = 0;
    for executes in 0..=7 {
        let gate = Gate::before(cluster.address(0));
        let host = open(&keyspace(gate.address, "cut"));
        let mut one = Session::to(&host);
        assert_eq!(one.ask("GET n"), expected.to_string());
        gate.close_after(executes);
        one.count(&[&[b"INCR", b"n"], &[b"INCR", b"m"]], &format!("3_{}", executes + 1));
        if executes == 7 {
            (0..5).for_each(|_| drop(one.hear().expect("it gets through")));
        } else {
            gate.wait_until_it_holds();
        }
        gate.set(CUT);
        drop((one, host));
        let mark = if executes < 4 { "3_0".to_owned() } else { format!("3_{}", executes + 1) };
        expected += usize::from(executes >= 4);
        let values = [expected.to_string(), expected.to_string(), mark];
        let values = values.map(|value| format!("${}\r\n{value}", value.len())).join("\r\n");
        let found = Session::to(&direct()).ask("MGET n m evenkeel:watermark");
        assert_eq!(found, format!("*3\r\n{values}"), "cut after {executes}");
    }
    let gate = Gate::before(cluster.address(0));
    let host = open(&keyspace(gate.address, "cut"));
    let mut one = Session::to(&host);
    assert_eq!(one.ask("GET n"), "4");
    let value = vec![b'v'; 1 << 20];
    let keys = ["p", "q", "r", "s", "t"].map(str::as_bytes);
    let writes = keys.map(|key| [&b"SET"[..], key, &value]);
    let writes: Vec<&[&[u8]]> = writes.iter().map(<[_; 3]>::as_slice).collect();
    // Six are read; the doubt, and the first part of what is too large.
    gate.close_after(6 + 2 + 1);
    one.count(&writes, "3 9");
    gate.wait_until_it_holds();
    gate.set(CUT);
    let successor = direct();
    let mut next = Session::to(&successor);
    assert_eq!(next.ask("GET evenkeel:watermark"), "0 9", "nobody's: filled anew");
    let is_there = next.ask("EXISTS p q r s t");
    assert_eq!(is_there, ":3", "a part of it");
}

#[test]
fn keyspaces_are_duplicates() {
    let Some(cluster) = cluster() else { return };
    let _calm = cluster.calm();
    let target = |n: usize| Target::Cassandra {
        settings: keyspace(cluster.address(0), &format!("story_{n}")),
    };
    let targets: Vec<Target> = (0..4).map(target).collect();
    story("cassandra", &targets, || {
        let mut direct =
            cassandra::client::Client::connect(cluster.address(0), Version::V4, None).unwrap();
        direct.rows("DROP KEYSPACE story_0");
    });
}

/// A keyspace and a file as duplicates, both of which must have every write.
struct Beside {
    targets: [Target; 2],
    world: World,
    written: i64,
    _folder: Folder,
}

impl Beside {
    fn start(name: &str, settings: CassandraSettings) -> Self {
        let folder = Folder::new(&format!("stores-beside-{name}"));
        let beside = EmbeddedSettings::at(&folder.file("beside.redb"));
        let targets =
            [Target::Cassandra { settings }, Target::Embedded { settings: beside, pauses: None }];
        let change = |config: &mut DuplicatesConfig| config.members.acknowledge = Acknowledge::All;
        let world = World::over(name, vec![targets.to_vec()], 2, change);
        Self { targets, world, written: 0, _folder: folder }
    }

    /// Forty counts more, and values of seven keys.
    fn write(&mut self) {
        let mut client = self.world.client();
        for n in self.written..self.written + 40 {
            assert_eq!(client.ask(&["INCR", "n"]), Reply::Integer(n + 1));
            assert_eq!(client.ask(&["SET", &format!("k{}", n % 7), &n.to_string()]), ok());
        }
        self.written += 40;
    }

    /// Both hold the same in the end, which is all that was written.
    fn assert_equal(&mut self) {
        let count = self.written.to_string();
        assert_eq!(self.world.client().ask(&["GET", "n"]), bulk(&count));
        // One that was slow may have been dropped, and comes back.
        block_until("both are live and have everything", || {
            let info = self.world.info();
            let has_all = |line: &&str| line.contains("in-sync") && line.ends_with("pending=0");
            info.lines().filter(has_all).count() == 2
        });
        assert_eq!(self.world.state().disagreements, 0);
        self.world.stop();
        let [one, other] = self.targets.each_ref().map(state);
        assert_eq!(one, other);
        assert_eq!((one.len(), one.get(&b"n"[..])), (8, Some(&count.into_bytes())));
    }
}

/// The service goes on while a node is dead, and the node gets what it missed.
#[test]
fn a_node_that_was_killed_is_brought_up_to_date() {
    let Some(cluster) = cluster() else { return };
    let disturbed = cluster.disturb();
    let mut beside = Beside::start("killed", keyspace(cluster.address(0), "killed"));
    beside.write();
    disturbed.kill(0);
    beside.write();
    assert_eq!(beside.world.live(), 1);
    disturbed.restart(0);
    beside.world.wait_live(2, PATIENCE);
    beside.write();
    beside.assert_equal();
}

/// A duplicate that is a cluster of its own, behind TLS, with a majority of one data centre. The
/// node that is connected to dies, and the others go on.
#[test]
#[ignore = "a minute: a cluster of its own, of four nodes"]
fn a_cluster_behind_tls_is_a_duplicate() {
    if let Err(missing) = cassandra::possible() {
        return skipped(&missing);
    }
    let places = [("east", 3), ("west", 1)];
    let cluster = Cluster::start(&Spec { password: true, tls: true, ..Spec::of(&places) });
    let folder = Folder::new("stores-cluster");
    let authority = folder.file("authority.pem");
    std::fs::write(&authority, cluster.authority().unwrap()).unwrap();
    let user = CqlUser { name: "cassandra".to_owned(), password_file: password_file() };
    let access = CassandraAccess {
        user: Some(user),
        tls: Some(ClientTlsFiles { ca: Some(authority), name: None, identity: None }),
        replicas: [("east".to_owned(), 3), ("west".to_owned(), 1)].into(),
        is_local: true,
    };
    let settings = CassandraSettings {
        contact_points: (0..3).map(|node| cluster.address(node)).collect(),
        keyspace: "clustered".to_owned(),
        access: Arc::new(access),
    };
    let mut beside = Beside::start("cluster", settings);
    beside.write();
    let disturbed = cluster.disturb();
    // Of the other data centre nobody is asked.
    disturbed.kill(3);
    beside.write();
    beside.world.settle();
    assert_eq!(beside.world.live(), 2);
    // Two of three are a majority; the next contact point is one of them.
    disturbed.kill(0);
    beside.write();
    beside.world.wait_live(2, PATIENCE);
    beside.write();
    beside.assert_equal();
    drop(disturbed);
}
