//! A proxy's day and its agents' days, each in files of its own and by a clock of its own, are one
//! day again.

use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_records::manifest::{BY_AGENT, BY_RUN};
use evenkeel_records::{DayWriter, Limits, Manifest};
use evenkeel_replay::answer::Refusal;
use evenkeel_replay::day::{Ready, ReadyError, joined};
use evenkeel_replay::question::{Question, ask};
use evenkeel_settings::Node;
use evenkeel_sim::Scenario;
use evenkeel_sim::world::{RecordConfig, record};
use evenkeel_twin::join::REQUEST_BITS;
use evenkeel_twin::rows::{Day, End, Row, percentile};

const WORLD: &str = "\
[run]
policies = ['least-outstanding+hedge']
[cluster]
servers = 3
concurrency = 4
service_mean = '6ms'
replication_factor = 3
[network]
one_way = '100us'
jitter = '20us'
[workload]
clients = 1
requests = 14000
utilisation = 0.4
cancel = true
";
const POLICY: &str = "least-outstanding+hedge";
const SEED: u64 = 4;

/// A folder of the test, which is removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("evenkeel-agents-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn whole() -> Day {
    played(&Node::parse(WORLD, "world").expect("TOML"), POLICY)
}

/// A day of a proxy and agents, with numbers as a process gives them.
fn played(world: &Node, policy: &str) -> Day {
    let scenario = Scenario::read(world).expect("a scenario");
    let mut day = record(&scenario, policy, SEED, RecordConfig::default());
    for row in &mut day.rows {
        row.request = (row.request + 1) | 77 << REQUEST_BITS;
        row.group = 0; // every replica answers every request
    }
    day
}

fn write(directory: &Path, manifest: &Manifest, rows: impl Iterator<Item = (u64, Row)>) {
    let mut writer = DayWriter::create(directory, manifest, Limits::keep_all()).expect("a day");
    rows.for_each(|(at_ns, row)| writer.push(at_ns, &row).expect("room on the disk"));
    writer.close().expect("room on the disk");
}

fn proxy(folder: &Path, day: &Day) -> PathBuf {
    proxy_like(folder, day, WORLD, POLICY)
}

/// Writes the proxy's part of a day.
fn proxy_like(folder: &Path, day: &Day, like: &str, policy: &str) -> PathBuf {
    let new = Manifest::new(BY_RUN, vec![policy.to_owned()], 3);
    let manifest = Manifest { like: like.to_owned(), ..new };
    let directory = folder.join("upstream.shop/20261128T000000Z");
    let rows = day.sent_ns().zip(&day.rows);
    write(&directory, &manifest, rows.map(|(at_ns, row)| (at_ns, Row { served: None, ..*row })));
    directory
}

fn agents(folder: &Path, day: &Day, strange: usize) {
    agents_like(folder, day, strange, [""; 3]);
}

/// Writes the agents' parts, each by a clock that is hours off and goes wrong, with what it says of
/// itself; every so many of the requests are followed by one of somebody else.
fn agents_like(folder: &Path, day: &Day, strange: usize, likes: [&str; 3]) {
    for replica in 0..3_u16 {
        let skew = 1.0 + 0.03 * f64::from(replica);
        let hours_ns = 3_600_000_000_000 * u64::from(replica);
        let mut rows = Vec::new();
        let sent = day.sent_ns().zip(&day.rows).filter(|(_, row)| row.replica == replica);
        for (number, (at_ns, row)) in sent.filter(|(_, row)| row.served.is_some()).enumerate() {
            let at_ns = hours_ns + (at_ns as f64 * skew) as u64;
            let seen = Row { replica: 0, client: 0, after_ns: 0, ..*row };
            rows.push((at_ns, seen));
            if strange > 0 && number % strange == 0 {
                rows.push((at_ns + 1_000, Row { request: 0, ..seen }));
            }
        }
        // The names of replicas and agents have nothing to do with each other.
        let directory = folder.join(format!("agent.{}/20261128T100000Z", 3 - replica));
        let like = likes[usize::from(replica)].to_owned();
        let manifest = Manifest { like, ..Manifest::new(BY_AGENT, Vec::new(), 1) };
        write(&directory, &manifest, rows.into_iter());
    }
}

#[test]
fn days_of_proxy_and_agents_are_one_day_whatever_their_clocks_say() {
    let (folder, day) = (Folder::new("one"), whole());
    let directory = proxy(&folder.0, &day);
    agents(&folder.0, &day, 0);
    let ready = Ready::read_with(&directory, std::slice::from_ref(&folder.0)).unwrap();
    assert_eq!((ready.agents, ready.twin.unseen), (3, 0.0));
    let rows = joined(&directory, std::slice::from_ref(&folder.0)).unwrap().0.day.rows;
    // Only the beginning and the end, which not all agents saw, are missing.
    let first = rows.first().unwrap().request;
    let begin = day.rows.iter().position(|row| row.request == first).unwrap();
    assert!(begin < 20 && day.rows.len() - rows.len() < 40, "{begin}");
    let us = |ns: u64| (ns + 500) / 1_000;
    let told = |row: &Row| {
        row.served.map(|served| (us(served.wait_ns), us(served.service_ns), served.queue))
    };
    let mut cancelled = 0;
    for (joined, true_one) in rows.iter().zip(&day.rows[begin..]) {
        let of = |row: &Row| (row.request, row.replica, row.why, told(row));
        assert_eq!(of(joined), of(true_one));
        cancelled += usize::from(joined.end == End::Cancelled && joined.served.is_some());
    }
    assert!(cancelled > 50, "copies that lost are known by their agents: {cancelled}");
}

#[test]
fn what_agents_served_for_others_is_seen_and_refuses_the_answer() {
    let (folder, day) = (Folder::new("strangers"), whole());
    let directory = proxy(&folder.0, &day);
    agents(&folder.0, &day, 20);
    let ready = Ready::read_with(&directory, std::slice::from_ref(&folder.0)).unwrap();
    assert!((ready.twin.unseen - 1.0 / 21.0).abs() < 0.002, "{}", ready.twin.unseen);
    let question = Question::read(&ready, &["load=-10%".to_owned()]).unwrap();
    let refused = ask(&ready, &question, true).unwrap_err();
    assert!(matches!(refused, Refusal::Unseen(_)), "{refused}");
}

#[test]
fn folders_that_do_not_belong_to_the_day_are_told() {
    let (folder, day) = (Folder::new("wrong"), whole());
    let directory = proxy(&folder.0, &day);
    let problem = |folders: &[PathBuf]| match Ready::read_with(&directory, folders) {
        Ok(_) => panic!("it must be refused"),
        Err(error) => {
            assert!(!error.is_refusal(), "the question is wrong, not the day");
            error.to_string()
        }
    };
    let none = problem(std::slice::from_ref(&folder.0));
    assert!(none.contains("got 0 days of agents"), "{none}");
    let absent = problem(&[folder.0.join("nowhere")]);
    assert!(absent.contains("nowhere") && absent.contains("looking for days"), "{absent}");
    // Another process has other numbers.
    let mut other = day.clone();
    other.rows.iter_mut().for_each(|row| row.request ^= 1 << 60);
    agents(&folder.0, &other, 0);
    let other = problem(std::slice::from_ref(&folder.0));
    assert!(other.contains("got 3 days of agents, none with a request of this day"), "{other}");
    let agent = folder.0.join("agent.1/20261128T100000Z");
    let wrong = Ready::read(&agent).unwrap_err();
    assert!(matches!(wrong, ReadyError::Agent(_)), "{wrong}");
    // One of three is missing.
    fs::remove_dir_all(folder.0.join("agent.1")).unwrap();
    fs::remove_dir_all(folder.0.join("agent.2")).unwrap();
    fs::remove_dir_all(folder.0.join("agent.3")).unwrap();
    agents(&folder.0, &day, 0);
    fs::remove_dir_all(folder.0.join("agent.2")).unwrap();
    let one_less = problem(std::slice::from_ref(&folder.0));
    assert!(one_less.contains("replica-1: the agents' rows have 0 of its"), "{one_less}");
}

/// Overload of a sixth more than all content takes.
const DIMMED: &str = "\
replicas = [{ cores = 4, workers = 4 }, { cores = 4, workers = 4 }, { cores = 4, workers = 4 }]
[run]
policies = ['least-outstanding']
[work]
optional = '12ms'
mandatory = '3ms'
cv = 0.8
[dimmer]
setpoint = '80ms'
[network]
one_way = '100us'
jitter = '20us'
[workload]
clients = 1
cancel = true
requests = 30000
utilisation = 1.16
";
/// What `evenkeel run` says of a proxy.
const PROXY: &str = "[workload]\ncancel = true\ntimeout = \"30s\"\n[run]\nretries_max = 1\n";
/// And of an agent that dims.
const AGENT: &str = "\
dimmer.law = \"feed-forward\"
dimmer.setpoint = \"80ms\"
dimmer.percentile = 0.95
dimmer.cores = \"known\"
";
const PLAIN: &str = "least-outstanding";

/// A world that dims to this.
fn dimmed(setpoint: &str) -> Day {
    let mut node = Node::parse(DIMMED, "world").expect("TOML");
    node.set(&format!("dimmer.setpoint={setpoint}")).expect("a sound setting");
    played(&node, PLAIN)
}

#[test]
fn a_day_of_agents_that_dim_is_replayed_with_another_setpoint() {
    let (folder, day) = (Folder::new("dimmed"), dimmed("80ms"));
    let directory = proxy_like(&folder.0, &day, PROXY, PLAIN);
    agents_like(&folder.0, &day, 0, [AGENT; 3]);
    let ready = Ready::read_with(&directory, std::slice::from_ref(&folder.0)).unwrap();
    for setpoint in ["40ms", "160ms"] {
        let asked = [format!("dimmer.setpoint={setpoint}")];
        let question = Question::read(&ready, &asked).unwrap();
        let reply = ask(&ready, &question, true).unwrap();
        let truth = dimmed(setpoint);
        let (full, known) = truth.full();
        let off = reply.answer.full.unwrap() - full as f64 / known as f64;
        assert!(off.abs() <= 0.05, "{setpoint}: {off}");
        let p95 = reply.answer.percentiles.iter().find(|one| one.share == 0.95).unwrap();
        let true_ns = percentile(&truth.latencies(0), 0.95).unwrap() as f64;
        assert!((p95.value_ns / true_ns - 1.0).abs() <= 0.1, "{setpoint}: {p95:?} {true_ns}");
    }
}

#[test]
fn dimmers_that_nobody_tells_or_that_differ_are_refused_and_forged_ones_are_errors() {
    let day = dimmed("80ms");
    let other = AGENT.replace("80ms", "90ms");
    for (name, likes) in [("untold", [""; 3]), ("others", [AGENT, AGENT, &other])] {
        let folder = Folder::new(name);
        let directory = proxy_like(&folder.0, &day, PROXY, PLAIN);
        agents_like(&folder.0, &day, 0, likes);
        let ready = Ready::read_with(&directory, std::slice::from_ref(&folder.0)).unwrap();
        let asked = Question::read(&ready, &["dimmer.setpoint=40ms".to_owned()]).unwrap_err();
        assert!(matches!(asked, ReadyError::Refused(Refusal::NoDimmer)), "{name}: {asked}");
    }
    for (name, like, expected) in [
        ("foreign", "workload.requests = 1\n", "expected lines that begin with dimmer."),
        ("no-law", "dimmer.law = \"none\"\n", "feed-forward"),
    ] {
        let folder = Folder::new(name);
        let directory = proxy_like(&folder.0, &day, PROXY, PLAIN);
        agents_like(&folder.0, &day, 0, [like; 3]);
        let wrong = Ready::read_with(&directory, std::slice::from_ref(&folder.0)).unwrap_err();
        assert!(!wrong.is_refusal() && wrong.to_string().contains(expected), "{wrong}");
    }
}
