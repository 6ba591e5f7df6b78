//! The placement of a running process with a real Prometheus and three real members of etcd: what
//! is counted by the one moves the other, and a dry run does not. What our own proxies count is
//! read from Prometheus too.
//!
//! Skipped, and says so, where `prometheus` or `etcd` is not installed.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_placement::PlacementState;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::regions::succeeds;
use evenkeel_testkit::story::{free_addresses, nobody};
use evenkeel_testkit::wait::{block_for, block_state};
use serde_json::Value;

const SITES: [&str; 3] = ["east", "mid", "west"];
const ROUND_TRIPS: &str = "x,east,mid,west\neast,0.5,60,80\nmid,60,0.5,30\nwest,80,30,0.5\n";
const RATE: f64 = 20_000.0;

/// Programs, which end before their files go away.
struct World {
    programs: Vec<Program>,
    folder: Folder,
}

impl World {
    fn new() -> Self {
        static WORLDS: AtomicUsize = AtomicUsize::new(0);
        let world = WORLDS.fetch_add(1, Ordering::Relaxed);
        let folder = Folder::new(&format!("placement-real-{world}"));
        std::fs::write(folder.file("rtt.csv"), ROUND_TRIPS).unwrap();
        Self { programs: Vec::new(), folder }
    }

    fn spawn(&mut self, command: &mut Command) {
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        self.programs.push(Program::start(quiet));
    }

    /// Three members; client and peer ports by site.
    fn start_etcd(&mut self) -> ([u16; 3], [u16; 3]) {
        let ports = || free_addresses::<3>().map(|free| free.port());
        let (clients, peers) = (ports(), ports());
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let all: Vec<String> =
            SITES.iter().zip(peers).map(|(name, port)| format!("{name}={}", url(port))).collect();
        for (place, name) in SITES.iter().enumerate() {
            let data = self.folder.file(name).display().to_string();
            let (client, peer) = (url(clients[place]), url(peers[place]));
            self.spawn(Command::new("etcd").args([
                "--name",
                name,
                "--data-dir",
                &data,
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
                "--initial-cluster",
                &all.join(","),
            ]));
        }
        (clients, peers)
    }

    fn start_prometheus(&mut self, exporters: &[SocketAddr]) -> u16 {
        let port = nobody().port();
        let file = self.folder.file("prometheus.yml");
        let exporters: Vec<String> = exporters.iter().map(|at| format!("'{at}'")).collect();
        let exporters = exporters.join(", ");
        let text = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n- \
             {{job_name: a, static_configs: [{{targets: [{exporters}]}}]}}\n"
        );
        std::fs::write(&file, text).unwrap();
        self.spawn(Command::new("prometheus").args([
            format!("--config.file={}", file.display()),
            format!("--storage.tsdb.path={}", self.folder.file("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
        ]));
        port
    }

    fn run(&self, head: &str, databases: &str) -> Process {
        let file = self.folder.file("run.toml").display().to_string();
        let text = format!("[placement]\nround_trips = 'rtt.csv'\n{head}{databases}");
        let config = Config::read(&Node::parse(&text, &file).unwrap())
            .unwrap_or_else(|problems| panic!("{problems}"));
        Process::start(config).unwrap()
    }
}

/// Strong reads of clients at one site, at a steady rate from when it is started on; the site is
/// a number that can be changed, every site's counter goes on from where it was.
fn export(site: &Arc<AtomicUsize>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let site = Arc::clone(site);
    std::thread::spawn(move || {
        let (mut counts, mut last) = ([0.0; 3], Instant::now());
        for stream in listener.incoming() {
            counts[site.load(Ordering::Relaxed)] += RATE * last.elapsed().as_secs_f64();
            last = Instant::now();
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let line = |(at, count): (&&str, f64)| {
                format!(
                    "evenkeel_operations_total{{database=\"orders\",datacenter=\"{at}\",\
                     operation=\"strong-read\"}} {count}\n"
                )
            };
            let body: String = SITES.iter().zip(counts).map(line).collect();
            let length = body.len();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/plain; version=0.0.4\r\n\
                        connection: close";
            let _ = write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}");
        }
    });
    address
}

/// Who leads, as a member itself says.
fn leader(clients: [u16; 3]) -> Option<usize> {
    let is_leader = |port: u16| -> Option<bool> {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        let head = "POST /v3/maintenance/status HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}";
        write!(stream, "{head}").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let body: Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
        Some(body["leader"].is_string() && body["leader"] == body["header"]["member_id"])
    };
    clients.into_iter().position(|port| is_leader(port) == Some(true))
}

fn until_state(process: &Process, wanted: fn(&PlacementState) -> bool) -> Arc<PlacementState> {
    block_state(process.placement().unwrap(), wanted)
}

fn databases(prometheus: u16, (clients, peers): ([u16; 3], [u16; 3])) -> String {
    let mut text = format!(
        "[[placement.databases]]\nname = 'orders'\n\
         operations = {{ prometheus = 'http://127.0.0.1:{prometheus}' }}\n\
         [placement.databases.system]\nkind = 'etcd'\n"
    );
    for ((site, client), peer) in SITES.iter().zip(clients).zip(peers) {
        text.push_str(&format!(
            "members.{site} = {{ client = 'http://127.0.0.1:{client}', \
             peer = 'http://127.0.0.1:{peer}' }}\n"
        ));
    }
    text
}

fn audit(folder: &Folder) -> String {
    std::fs::read_to_string(folder.file("audit.jsonl")).unwrap_or_default()
}

#[test]
fn what_prometheus_counts_moves_the_leader_of_etcd_and_a_dry_run_does_not() {
    for program in ["prometheus", "etcd"] {
        if !succeeds(program, &["--version"]) {
            eprintln!("SKIPPED: no `{program}`");
            return;
        }
    }
    let mut world = World::new();
    let ports = world.start_etcd();
    let before = block_for("a leader", || leader(ports.0));
    let site = Arc::new(AtomicUsize::new((before + 1) % 3));
    let prometheus = world.start_prometheus(&[export(&site)]);
    let databases = databases(prometheus, ports);
    let usual = "interval = '2s'\nintervals = 1\ncooldown = '2s'\naudit = 'audit.jsonl'\n";

    let dry = world.run(usual, &databases);
    let state = until_state(&dry, |state| !state.databases[0].would_do.is_empty());
    let orders = &state.databases[0];
    let users = SITES[(before + 1) % 3];
    assert_eq!(orders.goal.as_ref().unwrap().leader, users, "{orders:#?}");
    assert_eq!(orders.goal_ms, Some(0.5), "strong reads of clients beside the leader");
    assert!(orders.would_do[0].contains("transfer-leadership"), "{orders:#?}");
    dry.stop().unwrap();
    assert_eq!(leader(ports.0), Some(before), "nothing was changed");
    assert!(audit(&world.folder).lines().all(|line| line.contains("\"would-do\"")));

    let began = Instant::now();
    let acting = world.run(&format!("{usual}dry_run = false\n"), &databases);
    let state = until_state(&acting, |state| state.databases[0].counts.moves > 0);
    println!("moved {:?} after the start: {}", began.elapsed(), state.databases[0].moves[0].why);
    assert_eq!(leader(ports.0), Some((before + 1) % 3));
    let last = &state.databases[0].moves[0];
    assert_eq!(last.event, "reached");
    assert!(last.why.contains(&format!("the leader from {} to {users}", SITES[before])));

    // The users move on, and so does it, after the cooldown.
    site.store((before + 2) % 3, Ordering::Relaxed);
    let state = until_state(&acting, |state| state.databases[0].counts.moves > 1);
    assert_eq!(leader(ports.0), Some((before + 2) % 3), "{state:#?}");
    acting.stop().unwrap();

    // What was done outlives the process.
    let again = world.run(usual, &databases);
    let state = until_state(&again, |state| state.rounds > 0);
    assert_eq!(state.databases[0].moves.len(), 2);
    println!("{}", state.databases[0].why);
    again.stop().unwrap();
    assert_eq!(audit(&world.folder).matches("\"reached\"").count(), 2);
}

/// Answers every request with nothing.
fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            let head = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
        }
    });
    address
}

/// One request on a connection of its own; what came back.
fn ask(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = "host: localhost\r\nconnection: close\r\ncontent-length: 0";
    write!(stream, "{method} {path} HTTP/1.1\r\n{head}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// A proxy of a site whose requests are operations of `orders`.
fn proxy(site: &str, backend: SocketAddr, more: &str) -> Process {
    let text = format!(
        "[process]\nworkers = 1\n[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'app'\n\
         [admin]\naddress = '127.0.0.1:0'\n[upstream.app]\nreplicas = ['{backend}']\n\
         [upstream.app.operations]\ndatabase = 'orders'\ndatacenter = '{site}'\n{more}"
    );
    let config = Config::read(&Node::parse(&text, "proxy.toml").unwrap());
    Process::start(config.unwrap_or_else(|problems| panic!("{problems}"))).unwrap()
}

#[test]
fn what_our_own_proxies_count_says_where_the_leader_should_be() {
    if !succeeds("prometheus", &["--version"]) {
        eprintln!("SKIPPED: no `prometheus`");
        return;
    }
    let (mut world, backend) = (World::new(), backend());
    let east = proxy("east", backend, "");
    let west = proxy("west", backend, "reads = 'strong-read'\n");
    let prometheus = world.start_prometheus(&[east.admin().unwrap(), west.admin().unwrap()]);
    let users = east.listens()[0];
    let operations = format!("operations = {{ prometheus = 'http://127.0.0.1:{prometheus}' }}\n");
    let today = "today = { leader = 'west', voters = ['east', 'mid', 'west'] }\n";
    let database = format!("[[placement.databases]]\nname = 'orders'\n{operations}{today}");
    let is_over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ends = Arc::clone(&is_over);
    // Two reads for every write, all of users in the east.
    let load = std::thread::spawn(move || {
        while !ends.load(Ordering::Relaxed) {
            for method in ["GET", "HEAD", "POST"] {
                ask(users, method, "/");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let process = world.run("interval = '2s'\nintervals = 1\n", &database);
    // Led from the west a weak read takes 0.5 ms and a write 80 + 30; from the east 0.5 + 60.
    let near =
        |ms: Option<f64>, expected: f64| ms.is_some_and(|ms| (ms / expected - 1.0).abs() < 0.1);
    let counted = block_for("the operations of both sites", || {
        let state = Arc::clone(&process.placement().unwrap().borrow());
        let orders = state.databases[0].clone();
        let is_seen = near(orders.now_ms, (2.0 * 0.5 + 110.0) / 3.0);
        (is_seen && near(orders.goal_ms, (2.0 * 0.5 + 60.5) / 3.0)).then_some(orders)
    });
    assert_eq!(counted.goal.as_ref().unwrap().leader, "east", "{counted:#?}");
    is_over.store(true, Ordering::Relaxed);
    load.join().unwrap();
    // Nobody asked in the west: its counters are there all the same, so that 0 is known.
    let silent = ask(west.admin().unwrap(), "GET", "/metrics");
    let series = "evenkeel_operations_total{database=\"orders\",datacenter=\"west\",operation=";
    for operation in ["strong-read", "single-group"] {
        assert!(silent.contains(&format!("{series}\"{operation}\"}} 0\n")), "{silent}");
    }
    for process in [process, east, west] {
        process.stop().unwrap();
    }
}
