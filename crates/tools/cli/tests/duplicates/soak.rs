//! All failures, for long: duplicates die, stand still, are wiped, emptied, falsified; fronts die
//! in each state and are stopped; disks are full; commands take long; clocks jump; etcd is away
//! longer than the lease. Two fronts take turns by it.
//!
//! Strong reads and writes must be linearizable, no acknowledged write may be lost, what clients do
//! besides (`deeds.rs`) must hold, all duplicates must be equal at the end, and whoever leads is
//! replaced in time.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::disk::SmallDisk;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::http;
use evenkeel_testkit::redis::{self, Client, Reply};

use super::deeds::{self, Deeds};
use super::history::{Access, What};
use super::in_memory::KEPT;
use super::leadership::Etcd;
use super::mixed::{Ledger, write_to};
use super::outcome::Outcome;
use super::random::Random;
use super::strong::{STRONG, Shared, report, run};
use super::world::{Front, World};

/// The default.
const LEASE: Duration = Duration::from_secs(4);
/// Of the lease, what a takeover takes, and what a command does that takes long for all.
const OUTAGE_MAX: Duration = LEASE.saturating_mul(3);
const QUARANTINED: &str = "a duplicate is quarantined";
const DISK_MIB: u32 = 160;
const LOG: &str = "log_bytes_max = \"96MiB\"\nlog_segment_bytes = \"16MiB\"";
/// Members of the set that is sorted.
const MEMBERS: usize = 100_000;
const WRITERS: usize = 2;
const READERS: u64 = 4;

/// How much is to be done, at least.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) lasts: Duration,
    pub(crate) operations: u64,
    pub(crate) faults: usize,
    /// Where the logs of the fronts are.
    pub(crate) in_memory: bool,
}

/// How long anything may take where all of it fails, on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(180);

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Scene {
    world: World,
    other: Front,
    /// Files that say by how much the clocks of duplicates and fronts are ahead, in ms.
    clocks: Vec<std::path::PathBuf>,
    _folder: Folder,
    /// Of the logs of both.
    disks: Option<[SmallDisk; 2]>,
    etcd: Etcd,
    /// How often each failure was made, and the longest outage of those that came alone.
    done: BTreeMap<&'static str, (usize, Duration)>,
    begun: Instant,
    journal: Vec<(Duration, &'static str)>,
    /// The failure before this one was over.
    is_calm: bool,
}

/// How long nobody was told of a write, at most.
#[derive(Default)]
struct Outage {
    last: Option<Instant>,
    /// All that lasted a while.
    all: Vec<(Duration, Instant)>,
}

impl Outage {
    fn told(&mut self) {
        let now = Instant::now();
        let Some(last) = self.last.replace(now) else { return };
        if now - last > Duration::from_millis(20) {
            self.all.push((now - last, last));
        }
    }

    /// The longest that began at this time or later.
    fn since(&self, since: Option<Instant>) -> Duration {
        let later = self.all.iter().rev().take_while(|(_, began)| Some(*began) >= since);
        later.map(|(lasted, _)| *lasted).max().unwrap_or_default()
    }

    fn longest(&self) -> Vec<(Duration, Instant)> {
        let mut all = self.all.clone();
        all.sort_by(|one, other| other.cmp(one));
        all.truncate(6);
        all
    }
}

impl Scene {
    fn set(seed: u64, wanted: Wanted) -> Option<Self> {
        let etcd = Etcd::start(&format!("soak-{seed}"))?;
        // A short run has no time for a long lease.
        let is_long = wanted.lasts > 5 * LEASE || wanted.faults > 20;
        let lease = if is_long { "\"4s\"" } else { "\"2s\"" };
        let lease = etcd.settings.replace("\"2s\"", lease);
        // By the default of 100 keys a second the thousands of a long run take half a minute.
        let place = if wanted.in_memory { "log = \"memory\"" } else { LOG };
        let settings = format!("{STRONG}\n{place}\ncheck_rate = 1000\n{lease}");
        let mut world = World::of(&format!("soak-{seed}"), &settings, &[3], 0)?;
        let mut other = world.other_front("two");
        let folder = Folder::new(&format!("soak-clocks-{seed}"));
        let clocks = with_clocks(&folder, &mut world, &mut other);
        for redis in &mut world.redises {
            redis.kill();
            redis.arguments = KEPT.iter().map(|&it| it.to_owned()).collect();
            redis.start();
        }
        let disk = |front: &Front| {
            std::fs::create_dir_all(&front.directory).unwrap();
            SmallDisk::mount(&front.directory, DISK_MIB)
        };
        let disks = disk(&world.front).and_then(|one| Some([one, disk(&other)?]));
        let disks = disks.filter(|_| !wanted.in_memory);
        world.front.start();
        world.front.wait_live(3);
        other.start();
        let (done, begun, journal) = (BTreeMap::new(), Instant::now(), Vec::new());
        let is_calm = true;
        let _folder = folder;
        let scene =
            Self { world, other, clocks, _folder, disks, etcd, done, begun, journal, is_calm };
        scene.fill();
        Some(scene)
    }

    /// The set that is sorted.
    fn fill(&self) {
        let mut client = self.world.front.client();
        let members: Vec<String> = (0..MEMBERS).map(|n| format!("m{n}")).collect();
        for some in members.chunks(1_000) {
            let words = ["SADD", "{t}set"].into_iter().chain(some.iter().map(String::as_str));
            let words: Vec<&str> = words.collect();
            until("they are taken", || matches!(client.ask(&words), Reply::Integer(_)));
        }
    }

    fn fronts(&mut self) -> [&mut Front; 2] {
        [&mut self.world.front, &mut self.other]
    }

    fn leader(&self) -> Option<usize> {
        let leads = |front: &Front| {
            http::try_get(front.admin.0, "/api/v1/duplicates")
                .is_ok_and(|answer| answer.contains("\"role\":\"leads\""))
        };
        [&self.world.front, &self.other].into_iter().position(leads)
    }

    /// Who has ended is started again.
    fn supervise(&mut self) {
        for front in self.fronts() {
            if front.process.has_ended() {
                front.start();
            }
        }
    }

    /// Asks this whoever leads; what comes does not matter.
    fn ask_leader(&mut self, command: &[&str]) {
        let Some(leader) = self.leader() else { return };
        let address = self.fronts()[leader].address;
        let client = Client::try_connect(address, Duration::from_secs(20));
        let _ = client.and_then(|mut client| client.try_ask(command));
    }

    /// Asks this one duplicate directly.
    fn ask_directly(&self, one: usize, command: &[&str]) -> Option<Reply> {
        let client = Client::try_connect(self.world.redises[one].address, LEASE);
        client.and_then(|mut client| client.try_ask(command)).ok()
    }

    /// The disk of whoever leads is full until it leads no more.
    fn fill_disk(&mut self) {
        let (Some(leader), Some(disks)) = (self.leader(), &self.disks) else { return };
        disks[leader].fill(30_000);
        let begun = Instant::now();
        while begun.elapsed() < LEASE && self.leader() == Some(leader) {
            std::thread::sleep(Duration::from_millis(20));
        }
        disks[leader].clear();
    }

    /// One more failure. Every other one is waited for until writes are acknowledged again, so that
    /// it is known which outage is whose.
    fn fail(&mut self, which: usize, outage: &Mutex<Outage>, random: &mut Random) {
        let before = outage.lock().unwrap().last;
        let one = random.below(3);
        let lasts = Duration::from_millis(30 + random.below(500) as u64);
        let long = "x".repeat(40 << 20);
        let sorting = ["SORT", "{t}set", "ALPHA", "STORE", "{t}sorted"];
        let name = match which {
            0 => "emptied",
            1 => "disk full",
            2 => "SORT",
            3 => "40 MB",
            4 => "falsified",
            5 => "front killed",
            6 => "duplicate killed",
            7 => "duplicate stopped",
            8 => "two away",
            9 => "front stopped",
            10 => "clock jumps",
            11 => "lease lost",
            12 => "killed standing by",
            13 => "killed taking over",
            14 => "duplicate wiped",
            _ => "killed while one is filled",
        };
        self.journal.push((self.begun.elapsed(), name));
        match which {
            0 => {
                self.calm(); // with another one emptied before, a majority would be lost
                self.ask_directly(one, &["FLUSHALL"]);
            }
            1 => self.fill_disk(),
            2 => [&sorting[..], &["DEL", "{t}sorted"]].iter().for_each(|it| self.ask_leader(it)),
            3 => [&["SET", "long", &long][..], &["DEL", "long"]]
                .iter()
                .for_each(|it| self.ask_leader(it)),
            4 => self.falsify(one),
            10..=KIND_LAST => self.fail_otherwise(which, one, lasts, random),
            5 => {
                let front = self.leader().unwrap_or(one % 2);
                self.fronts()[front].process.kill();
            }
            6 => {
                self.world.redises[one].kill();
                std::thread::sleep(lasts);
                self.world.redises[one].start();
            }
            7 | 8 => {
                let next = (one + 1) % 3;
                self.world.redises[one].program.signal("-STOP");
                if which == 8 {
                    self.world.redises[next].kill();
                }
                std::thread::sleep(lasts);
                self.world.redises[one].program.signal("-CONT");
                if which == 8 {
                    self.world.redises[next].start();
                }
            }
            _ => {
                let front = self.leader().unwrap_or(one % 2);
                // One in three longer than its lease.
                let lasts = if random.below(3) == 0 { LEASE + LEASE / 2 } else { lasts };
                self.fronts()[front].process.signal("-STOP");
                let until = Instant::now() + lasts;
                while Instant::now() < until {
                    // The other one may just have ended, since it led no more.
                    self.supervise();
                    std::thread::sleep(Duration::from_millis(20));
                }
                self.fronts()[front].process.signal("-CONT");
            }
        }
        self.supervise();
        let (over, is_alone) = (Instant::now(), std::mem::replace(&mut self.is_calm, false));
        if random.below(2) == 0 {
            until("writes are acknowledged again", || {
                self.supervise();
                outage.lock().unwrap().last.is_some_and(|last| last > over)
            });
            self.is_calm = true;
        }
        let lasted = match (before, outage.lock().unwrap().since(before)) {
            (Some(_), lasted) if is_alone && self.is_calm => lasted,
            _ => Duration::ZERO,
        };
        let (count, longest) = self.done.entry(name).or_default();
        (*count, *longest) = (*count + 1, lasted.max(*longest));
        std::thread::sleep(Duration::from_millis(50 + random.below(400) as u64));
    }

    fn fail_otherwise(&mut self, which: usize, one: usize, lasts: Duration, random: &mut Random) {
        match which {
            10 => {
                let Some(clock) = self.clocks.get(random.below(self.clocks.len().max(1))) else {
                    return;
                };
                let ms = random.below(120_000) as i64 - 60_000;
                // In place: those who look at it must not find it empty.
                let file = std::fs::File::options().write(true).open(clock).unwrap();
                file.write_all_at(&ms.to_ne_bytes(), 0).unwrap();
            }
            11 => {
                self.etcd.signal("-STOP");
                std::thread::sleep(LEASE + lasts);
                self.etcd.signal("-CONT");
            }
            12 => {
                let front = 1 - self.leader().unwrap_or(one % 2);
                self.fronts()[front].process.kill();
            }
            13 => {
                let front = self.leader().unwrap_or(one % 2);
                self.fronts()[front].process.kill();
                let (begun, after) = (Instant::now(), random.below(4_000) as u64);
                // Some time after the other one could take over, if not in the middle of that.
                while begun.elapsed() < LEASE && self.leader() != Some(1 - front) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                std::thread::sleep(Duration::from_millis(after / 40));
                self.fronts()[1 - front].process.kill();
            }
            14 => self.wipe(one),
            _ => {
                self.wipe(one);
                let front = self.leader().unwrap_or(one % 2);
                std::thread::sleep(lasts / 4);
                self.fronts()[front].process.kill();
            }
        }
    }

    /// A duplicate loses its data and comes back.
    fn wipe(&mut self, one: usize) {
        self.calm(); // with another one emptied before, a majority would be lost
        self.world.redises[one].kill();
        self.world.redises[one].wipe();
        self.world.redises[one].start();
    }

    /// Another client writes to one duplicate. That is waited for until all are equal again: a
    /// front that begins without a log may take any duplicate for the history.
    fn falsify(&mut self, one: usize) {
        self.calm();
        let right = self.journal.len().to_string();
        self.ask_leader(&["SET", "falsified", &right]);
        self.ask_directly(one, &["SET", "falsified", "wrong"]);
        until("all hold the same again", || {
            self.supervise();
            let ask = |one| self.ask_directly(one, &["GET", "falsified"]);
            let said = [0, 1, 2].map(ask);
            said[0].is_some() && said.iter().all(|it| *it == said[0])
        });
    }

    /// Nothing fails any more.
    fn calm(&mut self) -> usize {
        until("somebody leads all three", || {
            self.supervise();
            self.leader().is_some_and(|leader| self.fronts()[leader].live() == 3)
        });
        self.leader().unwrap()
    }

    /// Every key once more: what was acknowledged long ago is there still.
    fn look_again(&self, front: &Front, shared: &Shared, accesses: &mut Vec<Access>) {
        let mut client = front.client();
        let last = accesses.iter().map(|access| access.key).max().unwrap();
        for key in 0..=last {
            let called = shared.now();
            let value = match client.ask(&["GET", &format!("k{key}")]) {
                Reply::Null => 0,
                ref value @ Reply::Bulk(_) => value.text().unwrap().parse().unwrap(),
                other => panic!("{other:?}"),
            };
            let answered = Some(shared.now());
            accesses.push(Access { key, what: What::Read(value), called, answered });
        }
    }
}

/// The last kind of failure.
const KIND_LAST: usize = 15;

/// Gives duplicates and fronts clocks that can be set; none where that is not possible.
fn with_clocks(folder: &Folder, world: &mut World, other: &mut Front) -> Vec<std::path::PathBuf> {
    let Some(library) = redis::clock_library(&folder.file("")) else { return Vec::new() };
    let places = world.redises.iter_mut().map(|it| &mut it.environment);
    let all = places.chain([&mut world.front.environment, &mut other.environment]);
    all.enumerate()
        .map(|(number, environment)| {
            let clock = folder.file(&format!("clock-{number}"));
            std::fs::write(&clock, 0_i64.to_ne_bytes()).unwrap();
            environment.push(("LD_PRELOAD".to_owned(), library.clone()));
            environment.push(("CLOCK_FILE".to_owned(), clock.clone()));
            clock
        })
        .collect()
}

/// Writes again and again and notes how long that was not possible.
fn probe(shared: &Shared, outage: &Mutex<Outage>, address: std::net::SocketAddr) {
    let (mut client, mut n) = (None, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        if client.is_none() {
            client = Client::try_connect(address, LEASE).ok();
        }
        n += 1;
        let value = n.to_string();
        let asked = client.as_mut().map(|it| it.try_ask(&["SET", "probe", &value]));
        match asked.map(Outcome::of) {
            Some(Outcome::Done(Reply::Simple(_))) => {
                outage.lock().unwrap().told();
            }
            Some(Outcome::Refused(_)) => {}
            _ => client = None,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Failures until so much is done, each kind once at least, then the reckoning.
pub(crate) fn runs(wanted: Wanted, seed: u64) {
    let Some(mut scene) = Scene::set(seed, wanted) else { return };
    let (shared, left) = (Shared::new(), AtomicU64::new(u64::MAX));
    let (outage, operations) = (Mutex::new(Outage::default()), AtomicU64::new(0));
    let addresses = [scene.world.front.address, scene.other.address];
    let (mut ledger, mut accesses) = (Ledger::default(), Vec::new());
    let mut deeds = Deeds::default();
    // What writes that are sent many at once come to, of all.
    let batch = if wanted.operations > 0 { 30 } else { 10 };
    let leader = std::thread::scope(|scope| {
        let (shared, left, outage, addresses) = (&shared, &left, &outage, &addresses);
        let operations = &operations;
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| {
                let seed = seed * 10 + id as u64;
                scope.spawn(move || write_to(addresses, id, seed, left, batch))
            })
            .collect();
        let readers: Vec<_> = (0..READERS)
            .map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n)))
            .collect();
        let doers: Vec<_> = (0..deeds::CLIENTS)
            .map(|n| {
                scope.spawn(move || deeds::run(n, (addresses, seed), (&shared.stop, operations)))
            })
            .collect();
        for address in addresses {
            scope.spawn(move || probe(shared, outage, *address));
        }
        let mut random = Random(seed);
        let told = catch_unwind(AssertUnwindSafe(|| {
            let mut kinds = (0..8).chain(if wanted.faults > 20 { 8..KIND_LAST + 1 } else { 8..8 });
            let is_enough = |scene: &Scene| {
                let asked = u64::MAX - left.load(Ordering::Relaxed)
                    + operations.load(Ordering::Relaxed)
                    + shared.asked.load(Ordering::Relaxed);
                scene.begun.elapsed() >= wanted.lasts
                    && scene.journal.len() >= wanted.faults
                    && asked >= wanted.operations
            };
            loop {
                let Some(which) = kinds.next() else {
                    if is_enough(&scene) {
                        break;
                    }
                    scene.fail(random.below(KIND_LAST + 1), outage, &mut random);
                    continue;
                };
                scene.fail(which, outage, &mut random);
            }
            scene.calm()
        }));
        shared.stop.store(true, Ordering::Relaxed);
        left.store(0, Ordering::Relaxed);
        let leader = told.unwrap_or_else(|failed| resume_unwind(failed));
        writers.into_iter().for_each(|it| ledger.merge(it.join().unwrap()));
        accesses.extend(readers.into_iter().flat_map(|it| it.join().unwrap()));
        doers.into_iter().for_each(|it| deeds.merge(it.join().unwrap()));
        leader
    });
    println!(
        "{} operations: {} writes counted, {} accesses of registers, {} of these: {}",
        ledger.writes + accesses.len() as u64 + operations.load(Ordering::Relaxed),
        ledger.writes,
        accesses.len(),
        operations.load(Ordering::Relaxed),
        deeds.told()
    );
    let journals = format!("{}\n{}", scene.world.front.journal(), scene.other.journal());
    let front = [&scene.world.front, &scene.other][leader];
    front.settle(3);
    scene.look_again(front, &shared, &mut accesses);
    front.settle(3);
    let state = scene.world.converged_or(|| journals.clone());
    let mut violations = ledger.violations(&state);
    violations.extend(deeds.violations(&state));
    let outage = outage.into_inner().unwrap();
    println!("{:?}: {} failures", scene.begun.elapsed(), scene.journal.len());
    for (name, (count, longest)) in &scene.done {
        println!("{name}: {count} times, no write for {longest:?} at most where it came alone");
    }
    println!(
        "{} writes counted: {} acknowledged, {} refused, {} unknown; {} lost or there twice",
        ledger.writes,
        ledger.acknowledged,
        ledger.refused,
        ledger.unknown,
        violations.len()
    );
    for (lasted, since) in &outage.longest() {
        let since = since.saturating_duration_since(scene.begun);
        let near =
            scene.journal.iter().filter(|(at, _)| *at + LEASE > since && *at < since + *lasted);
        println!("no write for {lasted:?} from {since:?} on: {:?}", near.collect::<Vec<_>>());
    }
    println!("quarantined: {}", journals.matches(QUARANTINED).count());
    println!("violations: {:#?}", &violations[..violations.len().min(10)]);
    report(&accesses, &format!("everything at once, seed {seed}"));
    assert!(violations.is_empty(), "{:#?}", &violations[..violations.len().min(10)]);
    // A long run shares its machine: there it is told.
    let singles = scene.done.values().filter(|_| wanted.operations == 0);
    let longest = singles.map(|it| it.1).max().unwrap_or_default();
    assert!(longest < OUTAGE_MAX, "no write for {longest:?}\n{journals}");
}
