//! Strong reads under kills and pauses, and with two fronts that both believe to be the one.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{OverAtEnd, block_until};

use super::history::{Access, What, linearizable};
use super::outcome::Outcome;
use super::random::Random;
use super::trouble::Troubles;
use super::world::World;

pub(crate) const STRONG: &str =
    "consistency = \"strong\"\nreply_timeout = \"300ms\"\nlog_sync = \"never\"";
/// Keys at a time.
const KEYS: u64 = 3;
/// Accesses of one generation of keys, so that the checker stays quick.
const GENERATION: u64 = 1_200;
const PATIENCE: Duration = Duration::from_millis(1_500);

/// What clients share.
pub(crate) struct Shared {
    pub(crate) stop: AtomicBool,
    pub(crate) asked: AtomicU64,
    values: AtomicU64,
    pub(crate) begun: Instant,
}

impl Shared {
    pub(crate) fn new() -> Self {
        Self {
            stop: AtomicBool::new(false),
            asked: AtomicU64::new(0),
            values: AtomicU64::new(1),
            begun: Instant::now(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }
}

/// One client until it is told to stop; it asks now this front, now that.
pub(crate) fn run(shared: &Shared, addresses: &[SocketAddr], seed: u64) -> Vec<Access> {
    let (mut random, mut accesses) = (Random(seed), Vec::new());
    let (mut client, mut place) = (None, seed as usize);
    while !shared.stop.load(Ordering::Relaxed) {
        let address = addresses[place % addresses.len()];
        if client.is_none() {
            client = Client::try_connect(address, PATIENCE).ok();
        }
        let Some(connected) = &mut client else {
            place += 1;
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        let generation = shared.asked.fetch_add(1, Ordering::Relaxed) / GENERATION;
        let key = generation * KEYS + random.below(KEYS as usize) as u64;
        let name = format!("k{key}");
        let is_read = random.below(2) == 0;
        let value = if is_read { 0 } else { shared.values.fetch_add(1, Ordering::Relaxed) };
        let called = shared.now();
        let asked = match is_read {
            true => connected.try_ask(&["GET", &name]),
            false => connected.try_ask(&["SET", &name, &value.to_string()]),
        };
        let now = shared.now();
        let (what, answered) = match Outcome::of(asked) {
            Outcome::Done(Reply::Null) => (What::Read(0), Some(now)),
            Outcome::Done(value @ Reply::Bulk(_)) => {
                (What::Read(value.text().unwrap().parse().unwrap()), Some(now))
            }
            Outcome::Done(Reply::Simple(_)) => (What::Write(value), Some(now)),
            Outcome::Done(other) => panic!("{other:?}"),
            outcome @ (Outcome::Refused(_) | Outcome::Uncertain | Outcome::Unknown) => {
                if outcome == Outcome::Unknown {
                    client = None;
                    place += 1;
                }
                if is_read || matches!(outcome, Outcome::Refused(_)) {
                    std::thread::sleep(Duration::from_millis(5));
                    continue;
                }
                (What::Write(value), None)
            }
        };
        accesses.push(Access { key, what, called, answered });
        std::thread::sleep(Duration::from_micros(random.below(2_000) as u64));
    }
    accesses
}

pub(crate) fn report(accesses: &[Access], what: &str) {
    let pending = accesses.iter().filter(|access| access.answered.is_none()).count();
    let began = Instant::now();
    let verdict = linearizable(accesses);
    println!(
        "{what}: {} accesses, {pending} writes of unknown outcome, checked in {:?}: {verdict:?}",
        accesses.len(),
        began.elapsed()
    );
    assert!(accesses.len() > 200, "hardly anything was asked");
    assert_eq!(verdict, Ok(()));
}

pub(crate) fn under_trouble(lasts: Duration, seed: u64) {
    let Some(mut world) = World::start(&format!("strong-{seed}"), STRONG) else { return };
    let (shared, mut troubles) = (Shared::new(), Troubles::default());
    let addresses = [world.front.address];
    let accesses: Vec<Access> = std::thread::scope(|scope| {
        let (shared, addresses) = (&shared, &addresses);
        let over = OverAtEnd(&shared.stop);
        let clients: Vec<_> =
            (0..5).map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n))).collect();
        let mut random = Random(seed);
        while shared.begun.elapsed() < lasts {
            troubles.make(&mut world, &mut random);
        }
        world.front.wait_live(3);
        drop(over);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    world.front.settle(3);
    report(&accesses, &format!("strong, seed {seed}, {troubles:?}"));
    world.converged();
    assert_eq!(world.front.disagreements(), 0);
}

/// A front is stopped, another is started on the same duplicates, the first wakes. `lagging`: one
/// duplicate is stopped before the first front is, so that it lacks writes a majority has.
pub(crate) fn with_two_fronts(seed: u64, lagging: bool) {
    let Some(mut world) = World::start(&format!("fronts-{seed}-{lagging}"), STRONG) else { return };
    let mut other = world.other_front("two");
    let shared = Shared::new();
    let addresses = [world.front.address, other.address];
    let accesses: Vec<Access> = std::thread::scope(|scope| {
        let (shared, addresses) = (&shared, &addresses);
        let over = OverAtEnd(&shared.stop);
        let clients: Vec<_> =
            (0..6).map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n))).collect();
        std::thread::sleep(Duration::from_millis(400 + seed * 37 % 200));
        if lagging {
            world.redises[2].program.signal("-STOP");
            std::thread::sleep(Duration::from_millis(60));
        }
        world.front.process.signal("-STOP");
        if lagging {
            std::thread::sleep(Duration::from_millis(20));
        }
        other.start();
        if lagging {
            // The new front writes to two while the third still knows the old one only.
            other.wait_live(2);
            std::thread::sleep(Duration::from_millis(100));
            world.redises[2].program.signal("-CONT");
        } else {
            other.wait_live(3);
            std::thread::sleep(Duration::from_millis(100));
        }
        world.front.process.signal("-CONT");
        block_until("the first front ends", || world.front.process.has_ended());
        other.wait_live(3);
        std::thread::sleep(Duration::from_millis(200));
        drop(over);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let journal = world.front.journal();
    assert!(journal.contains("another process has taken over"), "{journal}");
    other.settle(3);
    report(&accesses, &format!("two fronts, seed {seed}, lagging {lagging}"));
    world.converged_or(|| format!("{journal}\n{}", other.journal()));
    assert_eq!(other.disagreements(), 0);
}

/// One duplicate lacks writes that the other two have acknowledged, and whose watermarks nobody may
/// have been told; the front dies and its log is not where the next one is started.
pub(crate) fn without_the_log() {
    let Some(mut world) = World::start("without-log", STRONG) else { return };
    let mut client = world.front.client();
    client.ask(&["SET", "k0", "1"]);
    world.front.settle(3);
    std::thread::sleep(Duration::from_millis(250)); // watermarks
    world.redises[0].program.signal("-STOP");
    let mut acknowledged = Vec::new();
    for n in 1..40 {
        let key = format!("k{n}");
        let asked = Outcome::of(client.try_ask(&["SET", &key, "1"]));
        if let Outcome::Done(Reply::Simple(_)) = asked {
            acknowledged.push(key);
        }
    }
    world.front.process.kill();
    world.redises[0].program.kill(); // with what waits in its sockets
    world.redises[0].start();
    assert!(acknowledged.len() > 10, "{acknowledged:?}");
    let mut other = world.other_front("two");
    other.start();
    other.settle(3);
    let state = world.converged();
    acknowledged.retain(|key| !state.contains_key(key));
    assert!(acknowledged.is_empty(), "acknowledged by a majority and lost: {acknowledged:?}");
    // It is killed before it has written anything: what it took over it still knows.
    other.process.kill();
    other.start();
    other.settle(3);
    assert_eq!(world.converged(), state);
    // The first one is started anew, by its supervisor: its log is old and must not be believed.
    let mut client = other.client();
    client.ask(&["SET", "k0", "2"]);
    let ended = world.front.started_in_vain();
    assert!(ended.contains("another process has taken over"), "{ended}");
    assert_eq!(client.ask(&["GET", "k0"]), Reply::bulk("2"));
    other.settle(3);
    world.converged();
}

/// Whatever is done to a duplicate, it always says whose it is: one that was emptied and not yet
/// signed would be taken by a front that wakes in that moment, for nobody's. The second front is
/// far from the third duplicate, so that there is time to look.
pub(crate) fn emptied_duplicates_say_whose_they_are() {
    let Some(mut world) = World::start("signed", STRONG) else { return };
    let far = super::world::relay(world.redises[2].address, Duration::from_millis(15));
    let mut other = world.other_front("two");
    other.replace_in_config(world.redises[2].address, far);
    let mut client = world.front.client();
    for n in 0..20 {
        client.ask(&["SET", &format!("k{n}"), "1"]);
    }
    world.front.settle(3);
    world.front.process.signal("-STOP");
    let mut third = world.redises[2].client();
    // Places in its stream are behind that, in the same value.
    let mut epoch = || {
        let signed = third.ask(&["GET", "evenkeel:epoch"]);
        signed.text().and_then(|text| text.lines().next()).map(str::to_owned)
    };
    let first = epoch();
    other.start();
    let (stop, mut seen) = (AtomicBool::new(false), Vec::new());
    std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let now = epoch();
                if seen.last() != Some(&now) {
                    seen.push(now);
                }
            }
        });
        other.wait_live(3);
        stop.store(true, Ordering::Relaxed);
        looking.join().unwrap();
    });
    assert!(seen.len() == 2 && seen[0] == first, "one epoch, then the next: {seen:?}");
    assert!(seen.iter().all(Option::is_some), "{seen:?}");
    world.front.process.signal("-CONT");
    block_until("the first front ends", || world.front.process.has_ended());
    other.settle(3);
    world.converged();
}
