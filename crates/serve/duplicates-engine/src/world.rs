//! The engine without sockets, at times of our own: for tests.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use evenkeel_core::Instant;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_ordered::{
    Acknowledge, ConnectionKind, Consistency, Dropped, Epoch, History, MembersConfig, Position,
    Sequence,
};

use super::Engine;
use super::types::{ClientId, ParsedCommand};
use evenkeel_duplicates_config::{Connector, DuplicatesConfig, Target};
use evenkeel_leadership::layout::{Layout, MapPlace};
use evenkeel_runtime::clock::Clock;
use evenkeel_stores::resp::encode;
use evenkeel_stores::resp::request::{Limits, RequestParser};
use evenkeel_wal::{Log, LogSettings};

const CONNECTIONS: [ConnectionKind; 2] = [ConnectionKind::Ordered, ConnectionKind::Free];

/// One partition of duplicates, each a map of numbers that answers when it is told to.
pub struct World {
    /// The service.
    pub engine: Rc<Engine>,
    directory: PathBuf,
    /// By duplicate: what it holds, and what it was sent and has not answered, by connection.
    pub(super) holds: Vec<BTreeMap<Vec<u8>, u64>>,
    pub(super) sent: Vec<[VecDeque<Vec<Vec<u8>>>; 2]>,
    /// Every write there ever was.
    pub(super) all: BTreeMap<Vec<u8>, u64>,
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

fn config(servers: usize, directory: &std::path::Path) -> DuplicatesConfig {
    let address = |n: usize| SocketAddr::from(([127, 0, 0, 1], 7_000 + n as u16));
    let target = |n| Target::Tcp { address: address(n).into(), access: Arc::default() };
    DuplicatesConfig {
        name: "test".to_owned(),
        listen: address(servers),
        tls: None,
        advertise: None,
        sentinel: None,
        cluster: None,
        group: Default::default(),
        relay_tls: None,
        partitions: vec![(0..servers).map(target).collect()],
        shards: 4,
        consistency: Consistency::default(),
        read_copies: 1,
        policy: "least-outstanding".parse().unwrap(),
        hedge: None,
        safeguards: Safeguards { slow_start: Duration::ZERO, ..Safeguards::default() },
        members: MembersConfig { acknowledge: Acknowledge::One, ..MembersConfig::default() },
        log_directory: directory.join("log"),
        map: MapPlace::File(directory.join("layout")),
        spares: Vec::new(),
        log: LogSettings::default(),
        access: Default::default(),
        limits: Limits::default(),
        clients_max: 10,
        drain: Duration::from_secs(10),
        idle_max: None,
        check_rate: 0,
        manager: None,
        etcd: None,
    }
}

impl World {
    /// One with so many duplicates, whose settings are changed before it begins.
    pub fn start(servers: usize, change: impl FnOnce(&mut DuplicatesConfig)) -> Self {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("evenkeel-engine-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let mut config = config(servers, &directory);
        change(&mut config);
        let (log, _) = Log::open(&config.log_directory, config.log.clone()).unwrap();
        let connectors =
            config.targets().map(Target::open).collect::<Result<Vec<Connector>, _>>().unwrap();
        let users = Arc::new(watch::Sender::new(Arc::new(config.access.load().unwrap())));
        let layout = Layout::configured(config.shards, &config.places()).unwrap();
        let begins = Position { epoch: Epoch(1), sequence: Sequence(0) };
        let begun = (log, History::from_watermark(begins));
        let engine = Engine::new((config, users), connectors, Clock::start(), begun, layout, None);
        let holds = vec![BTreeMap::new(); servers];
        let sent = (0..servers).map(|_| Default::default()).collect();
        let mut world = Self { engine, directory, holds, sent, all: BTreeMap::new() };
        world.at(0);
        world.engine.borrow().expiry.deadlines.complete(0);
        (0..servers).for_each(|server| world.reach(server));
        world
    }

    pub(super) fn at(&self, ms: u64) {
        self.engine.borrow().now = Instant::from_millis(ms);
    }

    pub(super) fn pass(&self, time: Duration) {
        let mut inner = self.engine.borrow();
        inner.now += time;
        inner.wake_reads();
    }

    /// A duplicate that was away has everything.
    pub(super) fn reach(&mut self, server: usize) {
        let mut inner = self.engine.borrow();
        let last = inner.history.last().sequence;
        inner.members.reached(server, last);
        inner.servers[server].open();
        inner.members.caught_up(server, last);
        inner.replan_reads();
        inner.ask_anew(server);
        self.holds[server] = self.all.clone();
        self.sent[server] = Default::default();
    }

    pub(super) fn lose(&mut self, server: usize, why: Dropped) {
        self.engine.borrow().drop_server(server, why);
        self.sent[server] = Default::default();
    }

    pub(super) fn client(&self) -> ClientId {
        self.engine.borrow().welcome()
    }

    /// Sends a command; false when it was not taken yet.
    pub(super) fn tell(&mut self, id: ClientId, words: &[&str]) -> bool {
        let mut inner = self.engine.borrow();
        let mut buffer = Vec::new();
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        encode::command(&mut buffer, &bytes);
        let mut parser = RequestParser::new(Limits::default());
        let length = parser.parse(&buffer).unwrap().expect("it is whole");
        let before = inner.history.last();
        let is_taken = inner.submit(id, ParsedCommand { parser: &parser, buffer: &buffer, length });
        if let (true, ["SET", key, value]) = (inner.history.last() > before, words) {
            self.all.insert(key.as_bytes().to_vec(), value.parse().unwrap());
        }
        is_taken
    }

    /// Whether a client's next command would be taken.
    pub(super) fn would_take(&self, id: ClientId) -> bool {
        self.engine.borrow().client(id).is_some_and(|client| !client.is_held())
    }

    /// What a client was answered since it was last asked.
    pub(super) fn heard(&self, id: ClientId) -> String {
        let mut inner = self.engine.borrow();
        inner.exec_ready(); // as at the end of a turn
        inner.redo_late();
        inner.try_groups();
        let out = inner.client(id).map(|client| std::mem::take(&mut client.out));
        String::from_utf8(out.unwrap_or_default()).unwrap()
    }

    /// Takes over what the engine has sent.
    pub(super) fn fetch(&mut self) {
        let mut inner = self.engine.borrow();
        inner.exec_ready(); // as at the end of a turn
        inner.redo_late();
        inner.try_groups();
        for (server, sent) in self.sent.iter_mut().enumerate() {
            for (kind, sent) in CONNECTIONS.into_iter().zip(sent) {
                let buffer = inner.servers[server].connection(kind).take();
                let mut rest = &buffer[..];
                let mut parser = RequestParser::new(Limits::default());
                while let Some(length) = parser.parse(rest).unwrap() {
                    sent.push_back(
                        (0..parser.len()).map(|n| parser.argument(rest, n).into()).collect(),
                    );
                    rest = &rest[length..];
                    parser.reset();
                }
            }
        }
    }

    /// How many commands wait at a duplicate, ordered and free.
    pub(super) fn waiting(&mut self, server: usize) -> [usize; 2] {
        self.fetch();
        [self.sent[server][0].len(), self.sent[server][1].len()]
    }

    /// A duplicate does the next thing on a connection, if there is one.
    pub(super) fn serve(&mut self, server: usize, kind: ConnectionKind) -> bool {
        self.answer(server, kind, None)
    }

    pub(super) fn answer(
        &mut self,
        server: usize,
        kind: ConnectionKind,
        error: Option<&str>,
    ) -> bool {
        self.fetch();
        let Some(words) = self.sent[server][kind as usize].pop_front() else { return false };
        let reply = match (words[0].as_slice(), error) {
            (_, Some(error)) => format!("-{error}\r\n"),
            (b"SET", None) => {
                if let Ok(value) = String::from_utf8_lossy(&words[2]).parse() {
                    self.holds[server].insert(words[1].clone(), value);
                }
                "+OK\r\n".to_owned()
            }
            (_, None) => match self.holds[server].get(&words[1]) {
                Some(value) => format!("${}\r\n{value}\r\n", value.to_string().len()),
                None => "_\r\n".to_owned(),
            },
        };
        let mut inner = self.engine.borrow();
        let connection = inner.servers[server].connection;
        if let Err(why) = inner.answered(server, connection, kind, reply.as_bytes()) {
            inner.drop_server(server, why.expect("the connection is the present one"));
        }
        true
    }

    /// A duplicate says this to the next thing on a connection; what it was.
    pub(super) fn say(&mut self, server: usize, kind: ConnectionKind, reply: &str) -> Vec<String> {
        self.fetch();
        let words = self.sent[server][kind as usize].pop_front().expect("it was sent something");
        let mut inner = self.engine.borrow();
        let connection = inner.servers[server].connection;
        if let Err(why) = inner.answered(server, connection, kind, reply.as_bytes()) {
            inner.drop_server(server, why.expect("the connection is the present one"));
        }
        words.into_iter().map(|word| String::from_utf8(word).unwrap()).collect()
    }

    /// What a duplicate was sent and has not answered, each command as one text.
    pub(super) fn asked(&mut self, server: usize, kind: ConnectionKind) -> Vec<String> {
        self.fetch();
        let text = |words: &Vec<Vec<u8>>| String::from_utf8_lossy(&words.join(&b' ')).into_owned();
        self.sent[server][kind as usize].iter().map(text).collect()
    }

    /// All duplicates do all that they were sent.
    pub(super) fn serve_all(&mut self) {
        let servers = self.holds.len();
        let every = || (0..servers).flat_map(|server| CONNECTIONS.map(|kind| (server, kind)));
        while every().any(|(server, kind)| self.serve(server, kind)) {}
    }
}
