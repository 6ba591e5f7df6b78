//! The process that leads ends or is killed under load, with much data and its log on a disk: what
//! the next one copies, and how long nobody takes writes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Client, Reply, encoded};
use evenkeel_testkit::wait::{OverAtEnd, block_until as until};

use super::leadership::{Etcd, LEASE, serves_after};
use super::outcome::Outcome;
use super::strong::STRONG;
use super::world::{Front, World, relay};

/// What a process says that has copied one duplicate to another.
const FILLED: &str = "a duplicate was filled";

/// Two fronts before three duplicates; the first leads.
struct Scene {
    world: World,
    other: Front,
    _etcd: Etcd,
}

impl Scene {
    /// With so many keys, before the second process is started.
    fn set(name: &str, keys: usize, change: impl FnOnce(&World, &Front)) -> Option<Self> {
        let etcd = Etcd::start(name)?;
        let mut world = World::of(name, &format!("{STRONG}\n{}", etcd.settings), &[3], 0)?;
        let mut other = world.other_front("two");
        change(&world, &other);
        world.front.start();
        world.front.wait_live(3);
        fill(&world.front, keys);
        other.start();
        until("the second stands by", || other.has_role("stands by"));
        Some(Self { world, other, _etcd: etcd })
    }

    fn journals(&self) -> String {
        format!("{}\n{}", self.world.front.journal(), self.other.journal())
    }
}

/// Writes so many keys, many at once.
fn fill(front: &Front, keys: usize) {
    let mut client = front.client();
    for first in (0..keys).step_by(500) {
        let numbers = first..keys.min(first + 500);
        let text = |n| encoded(&["SET", &format!("filled{n}"), "some value"]);
        // On a busy machine the lease may not be renewed for a moment.
        until("they are acknowledged", || {
            client.send(&numbers.clone().flat_map(text).collect::<Vec<u8>>());
            numbers.clone().filter(|_| client.read() == Reply::Simple("OK".to_owned())).count()
                == numbers.len()
        });
    }
}

/// Counts on a key of its own until told to stop, at whoever leads: what was acknowledged, and how
/// often it was refused.
fn count(addresses: &[SocketAddr], key: &str, stop: &AtomicBool, refused: &AtomicUsize) -> i64 {
    let (mut client, mut place, mut acknowledged) = (None, 0, 0);
    while !stop.load(Ordering::Relaxed) {
        let address = addresses[place % addresses.len()];
        let connected = match client.take() {
            Some(connected) => Ok(connected),
            None => Client::try_connect(address, Duration::from_secs(20)),
        };
        let asked = connected.and_then(|mut connected| {
            let answer = connected.try_ask(&["INCR", key])?;
            client = Some(connected);
            Ok(answer)
        });
        match Outcome::of(asked) {
            Outcome::Done(Reply::Integer(value)) => acknowledged = value,
            Outcome::Done(other) => panic!("{other:?}"),
            Outcome::Refused(why) => {
                println!("refused: {why}");
                refused.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Uncertain => {}
            Outcome::Unknown => place += 1,
        }
    }
    acknowledged
}

/// The first process goes as this says; the second one copies nothing.
fn goes(name: &str, goes: impl FnOnce(&mut Front), most: Duration) {
    const KEYS: usize = 36_000;
    let Some(mut scene) = Scene::set(name, KEYS, |_, _| {}) else { return };
    let (stop, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let addresses = [scene.world.front.address, scene.other.address];
    let acknowledged: Vec<i64> = std::thread::scope(|scope| {
        let over = OverAtEnd(&stop);
        let (addresses, stop, refused) = (&addresses, &stop, &refused);
        let of = |n: usize| scope.spawn(move || count(addresses, &format!("n{n}"), stop, refused));
        let clients: Vec<_> = (0..4).map(of).collect();
        until("they count", || {
            let counted = scene.world.front.client().ask(&["GET", "n0"]);
            counted.text().is_some_and(|text| text.len() > 2)
        });
        let begun = Instant::now();
        goes(&mut scene.world.front);
        let lasted = serves_after(&scene.other, begun);
        println!("{name}: the other one served after {lasted:?}");
        assert!(lasted < most, "{lasted:?}\n{}", scene.journals());
        scene.other.wait_live(3);
        drop(over);
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    scene.other.settle(3);
    let state = scene.world.converged_or(|| scene.journals());
    for (n, acknowledged) in acknowledged.iter().enumerate() {
        let value: i64 = state[&format!("n{n}")].0.text().unwrap().parse().unwrap();
        println!("{name}: n{n} is {value}, {acknowledged} was acknowledged");
        assert!(value >= *acknowledged, "n{n}: {value} < {acknowledged}\n{}", scene.journals());
    }
    assert!((0..KEYS).all(|n| state.contains_key(&format!("filled{n}"))), "some are lost");
    assert!(!scene.other.journal().contains(FILLED), "{}", scene.other.journal());
    assert_eq!(refused.load(Ordering::Relaxed), 0, "{}", scene.journals());
}

pub(crate) fn told_to_end() {
    goes("told-to-end", |front| front.process.signal("-TERM"), LEASE);
}

pub(crate) fn killed() {
    goes("killed", |front| front.process.kill(), LEASE + LEASE / 2);
}

/// How long a duplicate takes to answer the process that takes over: each page of keys that are
/// copied is asked for twice as long.
const AWAY: Duration = Duration::from_millis(20);

/// The second process has to copy so many keys to take writes: nobody lets it read a stream, and
/// its way to the duplicates is long. Ends the first one; when, and what the second told a client.
fn copies(name: &str, keys: usize, lease: &str) -> Option<(Instant, Outcome, Scene)> {
    let prepare = |world: &World, other: &Front| {
        for redis in &world.redises {
            redis.client().ask(&["ACL", "SETUSER", "default", "-psync"]);
            other.replace_in_config(redis.address, relay(redis.address, AWAY));
        }
        [&world.front, other].iter().for_each(|front| front.replace_words("\"2s\"", lease));
    };
    let scene = Scene::set(name, keys, prepare)?;
    let begun = Instant::now();
    scene.world.front.process.signal("-TERM");
    until("the second leads", || scene.other.has_role("leads"));
    let told = loop {
        // One that was held while nobody led is cut off when this process does.
        let asked = Client::try_connect(scene.other.address, Duration::from_secs(20))
            .and_then(|mut client| client.try_ask(&["SET", "held", "1"]));
        match Outcome::of(asked) {
            Outcome::Unknown => {}
            told => break told,
        }
    };
    Some((begun, told, scene))
}

/// Clients of the process that takes over wait until a majority is filled.
pub(crate) fn clients_wait_for_a_majority() {
    let Some((begun, told, scene)) = copies("held", 12_000, "\"8s\"") else { return };
    let lasted = begun.elapsed();
    println!("held: answered after {lasted:?}");
    assert_eq!(told, Outcome::Done(Reply::Simple("OK".to_owned())), "{}", scene.journals());
    assert!(scene.other.journal().contains(FILLED), "{}", scene.journals());
    assert!(lasted > Duration::from_secs(2), "nobody had to wait for it: {lasted:?}");
}

/// But not for ever.
pub(crate) fn clients_are_refused_after_two_leases() {
    let Some((begun, told, scene)) = copies("held-long", 60_000, "\"2s\"") else { return };
    let lasted = begun.elapsed();
    println!("held-long: {told:?} after {lasted:?}");
    let Outcome::Refused(why) = told else { panic!("{told:?}\n{}", scene.journals()) };
    assert!(why.contains("acknowledgement needs 2"), "{why}");
    assert!(lasted >= 2 * LEASE, "{lasted:?}");
    assert!(!scene.other.journal().contains(FILLED), "it had not to wait");
}
