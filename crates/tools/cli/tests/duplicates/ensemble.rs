//! Three members of etcd, of which one dies at a time while fronts lead by a lease there.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::free_addresses;
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_for, block_until as until};

use super::leadership::{is_installed, serves_after, started};
use super::outcome::Outcome;
use super::strong::STRONG;
use super::world::{Front, World};

/// An election of etcd takes 1 to 2 s: the lease outlives it, also on a busy machine.
const LEASE: Duration = Duration::from_secs(6);
/// Commands that are acknowledged before a story goes on.
const COMMANDS: i64 = 300;

struct Member {
    address: SocketAddr,
    arguments: Vec<String>,
    folder: Folder,
    process: Program,
}

impl Member {
    fn start(&mut self) {
        self.process = started(&self.folder, &self.arguments);
    }

    /// Itself and the member that leads, by number; `None` while it knows none.
    fn status(&self) -> Option<(String, String)> {
        let answer = http::try_post(self.address, "/v3/maintenance/status", "{}").ok()?;
        let (_, body) = answer.split_once("\r\n\r\n")?;
        let said: serde_json::Value = serde_json::from_str(body).ok()?;
        let text = |pointer: &str| Some(said.pointer(pointer)?.as_str()?.to_owned());
        Some((text("/header/member_id")?, text("/leader").filter(|leader| leader != "0")?))
    }
}

struct Ensemble {
    members: [Member; 3],
}

impl Ensemble {
    /// `None`, said aloud, where etcd is not installed.
    fn start() -> Option<Self> {
        is_installed().then_some(())?;
        let peers: [SocketAddr; 3] = free_addresses();
        let clients: [SocketAddr; 3] = free_addresses();
        let all: Vec<String> =
            peers.iter().enumerate().map(|(n, peer)| format!("m{n}=http://{peer}")).collect();
        let mut members = [0, 1, 2].map(|n| {
            let folder = Folder::new(&format!("ensemble-{n}"));
            let (peer, client) = (format!("http://{}", peers[n]), format!("http://{}", clients[n]));
            let data = folder.file("data").display().to_string();
            let named = [
                ("--name", format!("m{n}")),
                ("--log-level", "error".to_owned()),
                ("--data-dir", data),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer.clone()),
                ("--initial-advertise-peer-urls", peer),
                ("--initial-cluster", all.join(",")),
            ];
            let named = named.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
            let arguments = named.chain(["--unsafe-no-fsync".to_owned()]).collect();
            Member { address: clients[n], arguments, folder, process: Program::default() }
        });
        members.iter_mut().for_each(Member::start);
        let ensemble = Self { members };
        until("all members know who leads", || {
            ensemble.members.iter().all(|member| member.status().is_some())
        });
        Some(ensemble)
    }

    /// The lines of a service that takes turns there.
    fn settings(&self) -> String {
        let endpoints: Vec<String> =
            self.members.iter().map(|member| format!("http://{}", member.address)).collect();
        format!(
            "{STRONG}\nstandby = true\ncoordination = {{store = \"etcd\", endpoints = \
             {endpoints:?}, lease = \"{}s\"}}",
            LEASE.as_secs()
        )
    }

    /// The member that leads the others.
    fn leader(&self) -> usize {
        block_for("a member leads", || {
            let leads =
                |member: &Member| member.status().is_some_and(|(own, leader)| own == leader);
            self.members.iter().position(leads)
        })
    }
}

/// Clients that count, each by a key of its own.
#[derive(Default)]
struct Counting {
    stop: AtomicBool,
    /// The last answer to each.
    counts: Mutex<Vec<i64>>,
    failed: Mutex<Vec<String>>,
}

impl Counting {
    fn count(&self, client: usize, address: SocketAddr) {
        let mut connected = Client::try_connect(address, PATIENCE).unwrap();
        while !self.stop.load(Ordering::Relaxed) {
            match Outcome::of(connected.try_ask(&["INCR", &format!("n{client}")])) {
                Outcome::Done(Reply::Integer(count)) => self.counts.lock().unwrap()[client] = count,
                other => return self.failed.lock().unwrap().push(format!("{other:?}")),
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn sum(&self) -> i64 {
        self.counts.lock().unwrap().iter().sum()
    }

    /// Waits until so many more are acknowledged, none having failed.
    fn goes_on(&self, what: &str) {
        let (begun, before) = (Instant::now(), self.sum());
        until(what, || {
            let failed = self.failed.lock().unwrap();
            assert!(failed.is_empty(), "{what}: {failed:?}");
            self.sum() >= before + COMMANDS
        });
        println!("{what}: {COMMANDS} commands took {:?}", begun.elapsed());
    }
}

/// In which term a front leads.
fn term(front: &Front) -> String {
    let info = front.info();
    let line = info.lines().find(|line| line.starts_with("epoch:"));
    line.unwrap_or_else(|| panic!("no epoch: {info}")).to_owned()
}

/// A follower of etcd dies and comes back, then its leader dies: the front that leads has its lease
/// still, and no command fails. Then that front dies too, and the other takes over by the two
/// members that are left.
pub(crate) fn members_die() {
    let Some(mut etcd) = Ensemble::start() else { return };
    let Some(mut world) = World::start("ensemble", &etcd.settings()) else { return };
    let mut other = world.other_front("two");
    other.start();
    until("the second stands by", || other.has_role("stands by"));
    let first = term(&world.front);
    let counting = Counting { counts: Mutex::new(vec![0; 4]), ..Counting::default() };
    std::thread::scope(|scope| {
        let counting = &counting;
        let over = OverAtEnd(&counting.stop);
        for client in 0..4 {
            let address = [world.front.address, other.address][client % 2];
            scope.spawn(move || counting.count(client, address));
        }
        counting.goes_on("with all members");
        let follower = (etcd.leader() + 1) % 3;
        etcd.members[follower].process.kill();
        // Longer than a lease: it is renewed without that member.
        std::thread::sleep(LEASE + LEASE / 2);
        counting.goes_on("without a follower");
        etcd.members[follower].start();
        until("it is back", || etcd.members[follower].status().is_some());
        let leader = etcd.leader();
        etcd.members[leader].process.kill();
        std::thread::sleep(LEASE + LEASE / 2);
        counting.goes_on("without the one that led");
        assert_ne!(etcd.leader(), leader);
        drop(over);
    });
    assert!(counting.failed.lock().unwrap().is_empty(), "{:?}", counting.failed);
    assert!(world.front.has_role("leads") && other.has_role("stands by"));
    assert_eq!(term(&world.front), first, "it is the same lease");

    let begun = Instant::now();
    world.front.process.kill();
    println!("by two members the other served after {:?}", serves_after(&other, begun));
    assert_ne!(term(&other), first);
    let mut client = other.client();
    for (n, count) in counting.counts.lock().unwrap().iter().enumerate() {
        assert_eq!(client.ask(&["GET", &format!("n{n}")]), Reply::bulk(&count.to_string()));
    }
    other.settle(3);
    world.converged();
}
