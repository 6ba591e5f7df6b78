//! `evenkeel run` with `[record]`: what is read back is what happened, and nothing else is there.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod common;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Running, replica};
use evenkeel_records::Recorded;
use evenkeel_records::manifest::BY_AGENT;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::{block_until, block_until_within};
use evenkeel_twin::join::Join;
use evenkeel_twin::rows::{End, Why};

const SECRETS: [&str; 6] = [
    "planted-path",
    "planted-query",
    "planted-header",
    "planted-key",
    "planted-value",
    "127.0.0.1",
];

/// A proxy before these replicas and a service of duplicates, both recorded.
struct World {
    folder: Folder,
    listen: SocketAddr,
    admin: SocketAddr,
    keys: SocketAddr,
    replicas: Vec<SocketAddr>,
}

impl World {
    fn new(name: &str, replicas: Vec<SocketAddr>) -> Self {
        let folder = Folder::new(&format!("record-{name}"));
        Self { folder, listen: nobody(), admin: nobody(), keys: nobody(), replicas }
    }

    fn write(&self, record: &str) -> PathBuf {
        let Self { folder, listen, admin, keys, replicas } = self;
        let replicas: Vec<String> = replicas.iter().map(|it| format!("'{it}'")).collect();
        let text = format!(
            "[process]\nworkers = 2\n[[listen]]\naddress = '{listen}'\nupstream = 'shop'\n\
             [upstream.shop]\nreplicas = [{}]\npolicy = 'round-robin'\n\
             [admin]\naddress = '{admin}'\n\
             [duplicates.cache]\nlisten = '{keys}'\ndirectory = '{}'\n{record}",
            replicas.join(", "),
            folder.path().join("cache").display(),
        );
        let file = folder.file("run.toml");
        fs::write(&file, text).unwrap();
        file
    }

    fn recorded(&self, more: &str) -> PathBuf {
        self.write(&format!("[record]\ndirectory = '{}'\n{more}", self.directory().display()))
    }

    fn directory(&self) -> PathBuf {
        self.folder.path().join("days")
    }

    fn days(&self, stream: &str) -> Vec<PathBuf> {
        let Ok(days) = fs::read_dir(self.directory().join(stream)) else { return Vec::new() };
        let mut days: Vec<PathBuf> = days.map(|day| day.unwrap().path()).collect();
        days.sort();
        days
    }

    fn get(&self) {
        let mut stream = TcpStream::connect(self.listen).unwrap();
        let head = "GET /planted-path?a=planted-query HTTP/1.1\r\nHost: shop\r\n\
                    X-A: planted-header\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = http::try_get(self.admin, "/metrics").unwrap();
        let line = metrics.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
    }
}

fn started(file: &Path) -> Running {
    let mut running = Running::start(file);
    running.until("SIGHUP reloads");
    running
}

fn ended(mut running: Running) {
    running.signal("TERM");
    assert!(running.child.wait().unwrap().success());
}

fn day(path: &Path) -> Recorded {
    evenkeel_records::read(path).unwrap()
}

/// All bytes of a folder, and the names in it.
fn bytes_of(folder: &Path, into: &mut Vec<u8>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        into.extend_from_slice(path.file_name().unwrap().as_encoded_bytes());
        match path.is_dir() {
            true => bytes_of(&path, into),
            false => into.extend(fs::read(&path).unwrap()),
        }
    }
}

#[test]
fn what_is_read_back_is_what_happened_and_no_secret_is_in_it() {
    let world = World::new("back", vec![nobody(), replica(), replica()]);
    let running = started(&world.recorded("pairs = 0.05\n"));
    const REQUESTS: usize = 600;
    (0..REQUESTS).for_each(|_| world.get());
    let mut client = TcpStream::connect(world.keys).unwrap();
    let mut answers = BufReader::new(client.try_clone().unwrap());
    let mut ask = |command: &str| {
        client.write_all(command.as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        answer
    };
    assert_eq!(ask("SET planted-key planted-value\r\n"), "+OK\r\n");
    for _ in 0..20 {
        assert_eq!(ask("GET planted-key\r\n"), "$13\r\n");
        assert_eq!(ask(""), "planted-value\r\n");
    }
    let status = http::try_get(world.admin, "/api/v1/status").unwrap();
    assert!(status.contains("\"record\":{"), "{status}");
    ended(running);

    let recorded = day(&world.days("upstream.shop")[0]);
    assert_eq!(recorded.manifest.replicas, ["replica-0", "replica-1", "replica-2"]);
    assert_eq!(recorded.manifest.policies, ["round-robin"]);
    let rows = &recorded.day.rows;
    let count = |why, end| rows.iter().filter(|row| (row.why, row.end) == (why, end)).count();
    assert_eq!(recorded.day.requests().len(), REQUESTS);
    let answered = count(Why::First, End::Answered) + count(Why::Retry, End::Answered);
    assert_eq!(answered, REQUESTS, "each request once: {rows:#?}");
    let dead = rows.iter().filter(|row| row.replica == 0);
    // Every other pair is given up when its request is answered.
    let given_up = (Why::Pair, End::Cancelled);
    let mut dead = dead.filter(|row| (row.why, row.end) != given_up).peekable();
    assert!(dead.peek().is_some() && dead.all(|row| row.end == End::Failed));
    let (failed, retries) = (count(Why::First, End::Failed), count(Why::Retry, End::Answered));
    assert_eq!(failed, retries, "what the dead one did not take another one did");
    let pairs: Vec<_> = rows.iter().filter(|row| row.why == Why::Pair).collect();
    // Binomial(600, 0.05): mean 30, standard deviation 5.3; five of them.
    assert!((4..=57).contains(&pairs.len()), "{}", pairs.len());
    for pair in pairs {
        let first = rows.iter().find(|row| row.request == pair.request && row.why == Why::First);
        assert_ne!(first.unwrap().replica, pair.replica, "at another replica");
    }
    assert!(rows.iter().all(|row| row.latency_ns < 30_000_000_000 && row.policy == 0));
    assert_eq!(recorded.day.dropped.0, 0);

    let keys = day(&world.days("duplicates.cache")[0]);
    assert_eq!(keys.day.requests().len(), 20, "of a service of duplicates, reads");
    assert!(keys.day.rows.iter().all(|row| row.end == End::Answered));

    let mut bytes = Vec::new();
    bytes_of(&world.directory(), &mut bytes);
    let ports = world.replicas.iter().map(|it| it.port().to_string());
    for secret in SECRETS.into_iter().map(str::to_owned).chain(ports) {
        let is_there = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
        assert!(!is_there, "{secret} is in a file or its name");
    }
}

#[test]
fn agents_record_what_they_served_and_the_proxys_day_is_joined_with_theirs() {
    let [one, other] = [nobody(), nobody()];
    let world = World::new("agents", vec![one, other]);
    let agents: Vec<String> = [one, other]
        .map(|at| format!("[[agent]]\nlisten = '{at}'\napp = '{}'\nconcurrency = 4\n", replica()))
        .into();
    let running = started(&world.recorded(&agents.concat()));
    const REQUESTS: usize = 200;
    (0..REQUESTS).for_each(|_| world.get());
    let answer = http::try_get(other, "/planted-path").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "past the proxy: {answer}");
    (0..REQUESTS).for_each(|_| world.get());
    ended(running);

    let proxys = day(&world.days("upstream.shop")[0]).day;
    assert!(proxys.rows.iter().all(|row| row.served.is_none()));
    let mut join = Join::new(proxys);
    let (mut strangers, mut unnumbered) = (0, 0);
    for agent in ["agent.1", "agent.2"] {
        let recorded = day(&world.days(agent)[0]);
        assert_eq!((&*recorded.manifest.by, recorded.manifest.replicas.len()), (BY_AGENT, 1));
        unnumbered += recorded.day.rows.iter().filter(|row| row.request == 0).count();
        strangers += join.add(&recorded.day.rows).unwrap().strangers;
    }
    // Until the first answer of each worker nobody knows that there are agents.
    assert!((1..=5).contains(&unnumbered) && strangers >= 1, "{unnumbered}, {strangers}");
    let joined = join.finish().unwrap();
    assert!(joined.rows.len() > REQUESTS, "{}", joined.rows.len());
    let served: Vec<_> = joined.rows.iter().filter_map(|row| row.served).collect();
    assert!(joined.rows.len() - served.len() < unnumbered, "only those are not joined");
    assert!(served.iter().all(|it| it.is_full && it.service_ns > 0));
    let secrets = |folder: &str| {
        let mut bytes = Vec::new();
        bytes_of(&world.directory().join(folder), &mut bytes);
        let is_there = |secret: &str| bytes.windows(secret.len()).any(|it| it == secret.as_bytes());
        SECRETS.into_iter().filter(|secret| is_there(secret)).count()
    };
    assert_eq!(secrets("agent.1") + secrets("agent.2"), 0);
}

#[test]
fn who_is_killed_loses_the_open_file_and_the_next_one_begins_another_day() {
    let world = World::new("killed", vec![replica(), replica()]);
    let file = world.recorded("rotate = '10s'\n");
    let mut running = started(&file);
    (0..50).for_each(|_| world.get());
    let is_closed = || {
        world.get();
        world.metric("evenkeel_record_files_total") > 0.0
    };
    block_until_within(Duration::from_secs(60), "a file is closed", is_closed);
    let closed = world.metric("evenkeel_record_rows_total") as usize;
    (0..50).for_each(|_| world.get());
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let first = world.days("upstream.shop").remove(0);
    let recorded = day(&first);
    assert!(recorded.day.rows.len() >= closed && closed >= 50, "{closed}");
    let running = started(&file);
    (0..7).for_each(|_| world.get());
    ended(running);
    let days = world.days("upstream.shop");
    assert_eq!(days.len(), 2);
    assert_eq!(day(&first), recorded, "nobody touches what was recorded before");
    assert_eq!(day(&days[1]).day.rows.len(), 7);
}

#[test]
fn without_a_directory_requests_go_on_and_a_reload_turns_it_off() {
    let world = World::new("gone", vec![replica()]);
    fs::create_dir(world.directory()).unwrap();
    // A file is where the folder of the upstream should be.
    fs::write(world.directory().join("upstream.shop"), "").unwrap();
    let running = started(&world.recorded("explore = 0.05\n"));
    let is_told = || {
        world.get();
        world.metric("evenkeel_record_failures_total") > 0.0
    };
    block_until_within(Duration::from_secs(60), "nothing can be written", is_told);
    assert!(world.metric("evenkeel_record_rows_lost_total{reason=\"disk\"}") > 0.0);
    world.write("");
    running.signal("HUP");
    let is_off = || {
        let status = http::try_get(world.admin, "/api/v1/status").unwrap();
        status.contains("\"record\":null")
    };
    block_until("recording is off", is_off);
    world.get();
    ended(running);
}
