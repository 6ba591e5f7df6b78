//! Fronts that take turns by a lease in a real etcd: the one that leads is killed and stopped
//! under load.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::program::Program;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::nobody;
use evenkeel_testkit::wait::{OverAtEnd, block_until as until};

use super::history::Access;
use super::outcome::Outcome;
use super::random::Random;
use super::strong::{STRONG, Shared, report, run};
use super::world::{Front, World, relay};

const ETCD: &str = "/usr/bin/etcd";
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// One member, which is a cluster.
pub(crate) struct Etcd {
    process: Program,
    arguments: Vec<String>,
    pub(crate) address: SocketAddr,
    pub(crate) settings: String,
    pub(crate) folder: Folder,
}

/// Whether etcd is there; said aloud if not.
pub(crate) fn is_installed() -> bool {
    let is_there = Path::new(ETCD).exists();
    if !is_there {
        println!("SKIPPED: {ETCD} is missing (apt-get install etcd-server)");
    }
    is_there
}

pub(crate) fn started(folder: &Folder, arguments: &[String]) -> Program {
    let log = std::fs::File::create(folder.file("log")).unwrap();
    Program::start(Command::new(ETCD).args(arguments).stdout(Stdio::null()).stderr(log))
}

impl Etcd {
    /// `None`, said aloud, where etcd is not installed.
    pub(crate) fn start(name: &str) -> Option<Self> {
        Self::with(name, "http", |_| Vec::new(), |_, _| String::new())
    }

    /// With these further arguments, and words of the settings; given where its files may be, and
    /// for the words its URL too.
    pub(crate) fn with(
        name: &str,
        scheme: &str,
        arguments: impl FnOnce(&Folder) -> Vec<String>,
        settings: impl FnOnce(&Folder, &str) -> String,
    ) -> Option<Self> {
        is_installed().then_some(())?;
        let folder = Folder::new(&format!("etcd-{name}"));
        let address = nobody();
        let client = format!("{scheme}://{address}");
        let peer = format!("http://{}", nobody());
        let data = folder.file("data").display().to_string();
        let named = [
            ("--name", "one"),
            ("--log-level", "error"),
            ("--data-dir", &data),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("one={peer}")),
        ];
        let named = named.iter().flat_map(|(name, value)| [*name, value]).map(str::to_owned);
        let quick = "--unsafe-no-fsync".to_owned();
        let arguments: Vec<_> = named.chain([quick]).chain(arguments(&folder)).collect();
        let process = started(&folder, &arguments);
        let more = settings(&folder, &client);
        let settings = format!(
            "standby = true\ncoordination = {{store = \"etcd\", endpoints = [\"{client}\"], \
             lease = \"2s\"{more}}}"
        );
        Some(Self { process, arguments, address, settings, folder })
    }

    /// It refuses connections from now on, and forgets nothing.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    pub(crate) fn start_again(&mut self) {
        self.process = started(&self.folder, &self.arguments);
    }

    /// Stops it, or has it go on.
    pub(crate) fn signal(&self, signal: &str) {
        self.process.signal(signal);
    }

    /// Two fronts before three duplicates: one leads, one stands by.
    fn world(&self, name: &str) -> Option<(World, Front)> {
        let world = World::start(name, &format!("{STRONG}\n{}", self.settings))?;
        let mut other = world.other_front("two");
        other.start();
        until("the second stands by", || other.has_role("stands by"));
        Some((world, other))
    }
}

/// How long until this front takes a write.
pub(crate) fn serves_after(front: &Front, since: Instant) -> Duration {
    let begun = Instant::now();
    loop {
        let asked = Client::try_connect(front.address, LEASE)
            .and_then(|mut client| client.try_ask(&["SET", "probe", "1"]));
        let said = format!("{asked:?}");
        if matches!(Outcome::of(asked), Outcome::Done(Reply::Simple(_))) {
            return since.elapsed();
        }
        assert!(begun.elapsed() < 10 * LEASE, "the other one says {said}:\n{}", front.journal());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The first front goes, under load, and the second takes over by itself; what became of it.
fn taken_over(world: &mut World, other: &Front, seed: u64, stopped: bool) -> Vec<Access> {
    let shared = Shared::new();
    let addresses = [world.front.address, other.address];
    std::thread::scope(|scope| {
        let (shared, addresses) = (&shared, &addresses);
        let over = OverAtEnd(&shared.stop);
        let clients: Vec<_> =
            (0..6).map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n))).collect();
        std::thread::sleep(Duration::from_millis(400 + seed * 37 % 200));
        let begun = Instant::now();
        match stopped {
            true => world.front.process.signal("-STOP"),
            false => world.front.process.kill(),
        }
        let lasted = serves_after(other, begun);
        let how = if stopped { "stopped" } else { "killed" };
        println!("the front that led was {how}: the other served after {lasted:?}");
        assert!(lasted < 5 * LEASE, "{lasted:?}");
        if stopped {
            std::thread::sleep(Duration::from_millis(100));
            world.front.process.signal("-CONT");
            until("the first front ends", || world.front.process.has_ended());
        }
        other.wait_live(3);
        std::thread::sleep(Duration::from_millis(300));
        drop(over);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// `stopped`: it wakes when another one leads; otherwise it is killed.
pub(crate) fn goes(seed: u64, stopped: bool) {
    let name = format!("reign-{seed}-{stopped}");
    let Some(etcd) = Etcd::start(&name) else { return };
    let Some((mut world, mut other)) = etcd.world(&name) else { return };
    let accesses = taken_over(&mut world, &other, seed, stopped);
    if stopped {
        let journal = world.front.journal();
        assert!(journal.contains("another process has taken over"), "{journal}");
    }
    other.settle(3);
    report(&accesses, &format!("a lease, seed {seed}, stopped {stopped}"));
    let state = world.converged();
    assert_eq!(other.disagreements(), 0);
    // Its supervisor starts the first one again. Its log is old, and its turn comes nonetheless.
    world.front.start();
    until("the first stands by", || world.front.has_role("stands by"));
    let begun = Instant::now();
    other.process.kill();
    let lasted = serves_after(&world.front, begun);
    println!("and back after {lasted:?}");
    world.front.settle(3);
    assert_eq!(world.converged(), state);
    assert!(world.front.directory.join("log/aside").is_dir());
}

/// Strong reads go to one duplicate, with a hedge, while duplicates are killed and stopped; then
/// the front that leads is stopped until another has taken over, and wakes.
pub(crate) fn one_copy_under_trouble(seed: u64) {
    let name = format!("one-copy-{seed}");
    let Some(etcd) = Etcd::start(&name) else { return };
    let settings = format!("{STRONG}\nread_copies = 1\nhedge = {{}}\n{}", etcd.settings);
    let Some(mut world) = World::start(&name, &settings) else { return };
    let mut other = world.other_front("two");
    other.start();
    until("the second stands by", || other.has_role("stands by"));
    let (shared, mut random) = (Shared::new(), Random(seed));
    let addresses = [world.front.address, other.address];
    let accesses: Vec<Access> = std::thread::scope(|scope| {
        let (shared, addresses) = (&shared, &addresses);
        let over = OverAtEnd(&shared.stop);
        let clients: Vec<_> =
            (0..6).map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n))).collect();
        for n in 0..8 {
            let duplicate = &mut world.redises[random.below(3)];
            let lasts = Duration::from_millis(30 + random.below(300) as u64);
            match n % 2 {
                0 => duplicate.program.signal("-STOP"),
                _ => duplicate.program.kill(),
            }
            std::thread::sleep(lasts);
            match n % 2 {
                0 => duplicate.program.signal("-CONT"),
                _ => duplicate.start(),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        world.front.wait_live(3);
        // One lags when the leader is stopped: it owes what a majority has acknowledged.
        world.redises[2].program.signal("-STOP");
        std::thread::sleep(Duration::from_millis(60));
        let begun = Instant::now();
        world.front.process.signal("-STOP");
        world.redises[2].program.signal("-CONT");
        let lasted = serves_after(&other, begun);
        println!("the front that led was stopped: the other served after {lasted:?}");
        std::thread::sleep(Duration::from_millis(100));
        world.front.process.signal("-CONT");
        until("the first front ends", || world.front.process.has_ended());
        other.wait_live(3);
        std::thread::sleep(Duration::from_millis(300));
        drop(over);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    other.settle(3);
    report(&accesses, &format!("strong reads of one, seed {seed}"));
    world.converged();
    assert_eq!(other.disagreements(), 0);
}

/// etcd does not answer: whoever leads stops telling clients anything before its lease can be
/// another's.
pub(crate) fn without_etcd() {
    let Some(etcd) = Etcd::start("silent") else { return };
    let Some((world, _other)) = etcd.world("silent") else { return };
    let mut client = world.front.client();
    let mut asked = |command: &[&str]| Outcome::of(client.try_ask(command));
    assert!(matches!(asked(&["SET", "k", "1"]), Outcome::Done(_)));
    let mut waiting = world.front.client();
    waiting.tell(&["BLPOP", "queue", "0"]);
    until("it waits", || {
        let info = world.front.client().ask(&["INFO"]);
        info.text().is_some_and(|info| info.contains("blocked_clients:1\r\n"))
    });
    etcd.process.signal("-STOP");
    let stopped = Instant::now();
    let why = loop {
        let outcome = asked(&["SET", "k", "2"]);
        let at = stopped.elapsed();
        match outcome {
            Outcome::Done(_) => assert!(at < LEASE, "acknowledged after {at:?}"),
            Outcome::Uncertain => {}
            Outcome::Refused(why) => break why,
            Outcome::Unknown => panic!("it ended"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    println!("etcd silent: refused after {:?}: {why}", stopped.elapsed());
    assert!(why.contains("the lease in etcd") && why.contains("not renewed in time"), "{why}");
    let told = waiting.read();
    assert!(
        matches!(&told, Reply::Error(it) if it.starts_with("UNAVAILABLE the lease")),
        "{told:?}"
    );
    assert!(matches!(asked(&["GET", "k"]), Outcome::Refused(_)), "a strong read");
    asked(&["EK.SESSION", "eventual"]);
    assert!(matches!(asked(&["GET", "k"]), Outcome::Done(Reply::Bulk(_))), "some earlier value");
    etcd.process.signal("-CONT");
}

/// etcd is busy and takes long to answer: nobody is refused.
pub(crate) fn slow_etcd() {
    let Some(etcd) = Etcd::start("busy") else { return };
    let way = relay(etcd.address, LEASE / 11).to_string();
    let settings = etcd.settings.replace(&etcd.address.to_string(), &way);
    let Some(world) = World::start("busy", &format!("{STRONG}\n{settings}")) else { return };
    let (mut client, begun, mut written) = (world.front.client(), Instant::now(), 0);
    while begun.elapsed() < 4 * LEASE {
        written += 1;
        assert_eq!(
            client.ask(&["INCR", "n"]),
            Reply::Integer(written),
            "{}",
            world.front.journal()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(!world.front.journal().contains("not renewed"), "{}", world.front.journal());
}

/// Two that are not to wait: the second ends and says who leads.
pub(crate) fn nobody_waits() {
    let Some(etcd) = Etcd::start("nobody") else { return };
    let settings = etcd.settings.replace("standby = true", "standby = false");
    let Some(world) = World::start("nobody", &format!("{STRONG}\n{settings}")) else { return };
    let said = world.other_front("two").started_in_vain();
    let holder = world.front.address.to_string();
    assert!(said.contains(&holder) && said.contains("standby = true waits"), "{said}");
}
