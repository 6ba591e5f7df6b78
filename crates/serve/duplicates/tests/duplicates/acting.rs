//! `mode = "move"`: real Redis servers under a load that makes the model want another arrangement,
//! and the manager then really has it, online; nothing that was acknowledged is lost on the way.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_core::Rng;
use evenkeel_core::units::Probability;
use evenkeel_duplicates::{
    DuplicatesConfig, DuplicatesState, ManagerSettings, NightSettings, Target,
};
use evenkeel_settings::address::ServerAddress;
use evenkeel_stores::resp::request::RequestParser;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::story::MS;
use evenkeel_testkit::wait::block_until_within;

use super::bulk;
use super::world::World;

const PATIENCE: Duration = Duration::from_secs(60);
/// Of eight shards these are in the first four, one in each, and those in the others.
pub(super) const BUSY: [&str; 4] = ["k3", "k2", "k1", "k0"];
const QUIET: [&str; 4] = ["k7", "k6", "k5", "k4"];

fn acts(objective: Duration, target: f64, window: Duration) -> Option<ManagerSettings> {
    let target = Probability::new(target).unwrap();
    Some(ManagerSettings { target, window, acts: true, ..ManagerSettings::new(objective) })
}

/// What is asked of a key: `INCR` of every twentieth, `GET` of the others.
#[derive(Clone, Copy)]
struct Load {
    keys: &'static [&'static str],
    per_s: f64,
    seed: u64,
    /// After so long it is night, a tenth of that, or day again; it begins with a night.
    half_day: Option<Duration>,
}

impl Load {
    fn rate(&self, since: Duration) -> f64 {
        let half = |half: Duration| (since.as_secs_f64() / half.as_secs_f64()) as u64;
        let is_night = self.half_day.is_some_and(|it| half(it).is_multiple_of(2));
        self.per_s * if is_night { 0.1 } else { 1.0 }
    }
}

/// Asks at random times, whatever comes back, until it is told to stop; each count is exactly what
/// it must be, and no read misses one. How often each key was counted up.
fn ask(address: SocketAddr, load: Load, stop: &AtomicBool) -> BTreeMap<&'static str, i64> {
    let mut client = Client::connect(address);
    let mut reader = client.reader();
    let (tell, reported) = std::sync::mpsc::channel::<(&'static str, bool)>();
    let reading = std::thread::spawn(move || {
        let mut counts = BTreeMap::<&'static str, i64>::new();
        for (key, is_write) in reported {
            let count = counts.entry(key).or_default();
            *count += i64::from(is_write);
            let came = reader.read();
            if is_write {
                assert_eq!(came, Reply::Integer(*count), "{key}");
                continue;
            }
            let seen = match &came {
                Reply::Bulk(_) => came.text().unwrap().parse().unwrap(),
                other => {
                    assert_eq!(*other, Reply::Null, "{key}");
                    0
                }
            };
            assert_eq!(seen, *count, "{key}");
        }
        counts
    });
    let mut rng = Rng::seeded(load.seed);
    let begun = Instant::now();
    let mut next = begun;
    while !stop.load(Ordering::Relaxed) && !reading.is_finished() {
        next += Duration::from_secs_f64(rng.exponential() / load.rate(next - begun));
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let (key, is_write) = (load.keys[rng.below(load.keys.len())], rng.below(20) == 0);
        client.tell(&[if is_write { "INCR" } else { "GET" }, key]);
        let _ = tell.send((key, is_write)); // who reads has said why it ended
    }
    drop(tell);
    reading.join().unwrap()
}

/// Under these loads the story is told; then every key is what was acknowledged of it: that.
fn under_load(world: &World, loads: &[Load], story: impl FnOnce()) -> Vec<(&'static str, Reply)> {
    let stop = AtomicBool::new(false);
    let address = world.address;
    let counts: Vec<BTreeMap<_, _>> = std::thread::scope(|scope| {
        let asking: Vec<_> = loads
            .iter()
            .map(|&load| {
                let stop = &stop;
                scope.spawn(move || ask(address, load, stop))
            })
            .collect();
        let reported = std::panic::catch_unwind(std::panic::AssertUnwindSafe(story));
        stop.store(true, Ordering::Relaxed);
        reported.unwrap_or_else(|failed| std::panic::resume_unwind(failed));
        asking.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let mut client = world.client();
    let counts = counts.into_iter().flatten();
    let holds: Vec<_> = counts
        .map(|(key, count)| (key, if count == 0 { Reply::Null } else { bulk(&count.to_string()) }))
        .collect();
    for (key, holds) in &holds {
        assert_eq!(client.ask(&["GET", key]), *holds, "{key}");
    }
    holds
}

/// Waits for this, and shows what the manager says meanwhile.
fn until(world: &World, what: &str, is_so: impl Fn(&DuplicatesState) -> bool) {
    let (begun, mut windows) = (Instant::now(), 0);
    block_until_within(PATIENCE, what, || {
        let state = world.state();
        if let Some(advice) = state.advice.as_ref().filter(|advice| advice.windows != windows) {
            windows = advice.windows;
            println!("window {windows}: {} ({}) {:?}", advice.what, advice.why, advice.night);
        }
        is_so(&state)
    });
    println!("{what}: after {:?}", begun.elapsed());
}

/// Stops and wakes a process at random times: 100 ms of some 250 it does nothing.
struct Stumbles {
    end: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Stumbles {
    fn of(process: u32, seed: u64) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&end);
        let thread = std::thread::spawn(move || {
            let signal = |name: &str| {
                let done = Command::new("kill").args([name, &process.to_string()]).status();
                assert!(done.unwrap().success());
            };
            let mut rng = Rng::seeded(seed);
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep((150 * MS).mul_f64(0.5 + rng.unit()));
                signal("-STOP");
                std::thread::sleep(100 * MS);
                signal("-CONT");
            }
        });
        Self { end, thread: Some(thread) }
    }
}

impl Drop for Stumbles {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One duplicate that stumbles is not enough: a spare one is taken, the first that answers. Where
/// nothing stumbles any more, one is: the other goes.
#[test]
fn a_duplicate_comes_where_one_stumbles_and_goes_where_none_does() {
    let act = |config: &mut DuplicatesConfig| {
        config.manager = acts(20 * MS, 0.9, Duration::from_millis(1_500));
        config.shards = 1; // so that there is nothing to part
    };
    let Some(mut world) = World::with_spares("acts", 1, 2, act) else { return };
    world.redises[1].kill();
    let load =
        Load { keys: &["a", "b", "c", "d", "e", "f"], per_s: 400.0, seed: 1, half_day: None };
    let stumbles = Mutex::new(Some(Stumbles::of(world.redises[0].program.id().unwrap(), 1)));
    let holds = under_load(&world, &[load], || {
        let live = |state: &DuplicatesState| {
            let all = state.partitions.iter().flat_map(|it| &it.duplicates);
            all.filter(|it| it.state == "in-sync").count()
        };
        until(&world, "the spare one is a duplicate", |state| {
            state.moves.done == 1 && live(state) == 2
        });
        stumbles.lock().unwrap().take();
        until(&world, "one of them is none", |state| state.moves.done == 2 && live(state) == 1);
        assert_eq!(world.state().moves.failed, 0);
    });
    world.settle();
    assert_eq!(world.state().disagreements, 0);
    world.stop();
    // Also without the one that went.
    world.redises[2].kill();
    world.restart();
    let (mut client, mut direct) = (world.client(), world.redises[0].client());
    for (key, holds) in holds {
        assert_eq!((client.ask(&["GET", key]), direct.ask(&["GET", key])), (holds.clone(), holds));
    }
}

/// Before a Redis that takes so long for each of these commands, one after the other.
pub(super) fn slow(server: SocketAddr, command: &'static [u8], each: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let Ok(server) = TcpStream::connect(server) else { continue };
            server.set_nodelay(true).unwrap();
            client.set_nodelay(true).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(std::net::Shutdown::Both); // it may be gone
            });
            std::thread::spawn(move || forward(client, server, command, each));
        }
    });
    address
}

fn forward(mut from: TcpStream, mut to: TcpStream, slow: &[u8], each: Duration) {
    let (mut parser, mut inbox, mut some) = (RequestParser::default(), Vec::new(), [0; 16_384]);
    while let Ok(count @ 1..) = from.read(&mut some) {
        inbox.extend_from_slice(&some[..count]);
        while let Some(length) = parser.parse(&inbox).unwrap() {
            let is_slow = parser.arguments(&inbox).iter().next().is_some_and(|it| it == slow);
            let command: Vec<u8> = inbox.drain(..length).collect();
            if is_slow {
                std::thread::sleep(each);
            }
            if to.write_all(&command).is_err() {
                return;
            }
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both); // it may be gone
}

/// Keys of the first partition are asked for so often that its queue is too long, those of the
/// second are not: shards move until it is bearable, to where there is room, since there are no
/// spare servers.
#[test]
fn shards_move_away_from_where_the_queue_is_too_long() {
    let act = |config: &mut DuplicatesConfig| {
        config.manager = acts(10 * MS, 0.92, Duration::from_millis(2_500));
        let Target::Tcp { address, .. } = config.partitions[0][0] else { unreachable!("a Redis") };
        let Some(Target::Tcp { address: other, .. }) = config.spares.pop() else {
            unreachable!("a Redis")
        };
        let target = |server: ServerAddress| {
            let address = slow(server.inet().unwrap(), b"GET", 3 * MS).into();
            Target::Tcp { address, access: Arc::default() }
        };
        config.partitions = vec![vec![target(address)], vec![target(other)]];
        config.shards = 8;
    };
    let Some(mut world) = World::with_spares("balances", 1, 1, act) else { return };
    let owner = |state: &DuplicatesState, shard: usize| state.moves.owners[shard];
    world.wait_live(2, PATIENCE);
    let first = world.owners();
    let busy = Load { keys: &BUSY, per_s: 235.0, seed: 2, half_day: None };
    let quiet = Load { keys: &QUIET, per_s: 110.0, seed: 3, half_day: None };
    let moved = AtomicU64::new(0);
    let holds = under_load(&world, &[busy, quiet], || {
        until(&world, "a shard has moved", |state| {
            state.moves.done > 0 && (0..8).any(|shard| owner(state, shard) != first[shard])
        });
        // How much that helps is a matter of the machine's load; that nothing is lost is not.
        until(&world, "another window is judged", |state| state.advice.is_some());
        let now = world.state();
        assert_eq!(now.moves.failed, 0, "{now:#?}");
        let away = (0..8).filter(|&shard| first[shard] == 0 && owner(&now, shard) == 1);
        moved.store(away.count() as u64, Ordering::Relaxed);
    });
    assert!(moved.load(Ordering::Relaxed) > 0);
    world.settle();
    assert_eq!(world.state().disagreements, 0);
    world.stop();
    // Each key is in one of them, with all that was acknowledged.
    let mut direct = [0, 1].map(|n| world.redises[n].client());
    for (key, holds) in holds {
        let mut found = direct.each_mut().map(|it| it.ask(&["GET", key]));
        found.sort();
        let mut expected = [Reply::Null, holds];
        expected.sort();
        assert_eq!(found, expected, "{key}");
    }
}

/// A day of 40 s whose first half is night. In a night after the first one of two partitions goes,
/// since the other has room for both; it comes back before the morning, keys are what they were.
#[test]
fn a_partition_goes_for_the_night_and_is_back_before_the_morning() {
    const HALF: Duration = Duration::from_secs(20);
    let act = |config: &mut DuplicatesConfig| {
        let night = NightSettings {
            stays: Duration::from_secs(8),
            lead: Duration::from_secs(6),
            ..NightSettings::of_days(2 * HALF, std::num::NonZeroU32::MIN)
        };
        let manager = acts(50 * MS, 0.85, Duration::from_millis(1_500));
        config.manager = manager.map(|it| ManagerSettings { night: Some(night), ..it });
        let servers: Vec<Target> = config.partitions.concat();
        let servers = servers.into_iter().chain(config.spares.drain(..)).map(|target| {
            let Target::Tcp { address, .. } = target else { unreachable!("a Redis") };
            let address = slow(address.inet().unwrap(), b"GET", 2 * MS).into();
            vec![Target::Tcp { address, access: Arc::default() }]
        });
        config.partitions = servers.collect();
        config.shards = 2;
    };
    let Some(mut world) = World::with_spares("nights", 1, 1, act) else { return };
    world.wait_live(2, PATIENCE);
    let begun = Instant::now();
    let load = |keys, seed| Load { keys, per_s: 300.0, seed, half_day: Some(HALF) };
    let nodes = |state: &DuplicatesState| -> usize {
        state.partitions.iter().map(|it| it.duplicates.len()).sum()
    };
    let holds = under_load(&world, &[load(&BUSY, 4), load(&QUIET, 5)], || {
        std::thread::sleep((2 * HALF).saturating_sub(begun.elapsed()));
        assert_eq!(nodes(&world.state()), 2, "no whole day has been seen");
        until(&world, "a partition is closed", |state| nodes(state) == 1);
        until(&world, "it comes back", |state| {
            state
                .advice
                .as_ref()
                .and_then(|it| it.night.as_ref())
                .is_some_and(|night| night.stage == "returning" || night.home_nodes.is_none())
        });
        let time =
            Duration::from_nanos((begun.elapsed().as_nanos() % (2 * HALF).as_nanos()) as u64);
        assert!(time < HALF, "{time:?} after midnight it is morning");
        until(&world, "it is back", |state| {
            nodes(state) == 2
                && state.moves.now.is_none()
                && state.moves.owners[0] != state.moves.owners[1]
        });
        assert_eq!(world.state().moves.failed, 0);
    });
    world.settle();
    assert_eq!(world.state().disagreements, 0);
    world.stop();
    // Also for a process that starts anew.
    world.restart();
    let mut client = world.client();
    for (key, holds) in holds {
        assert_eq!(client.ask(&["GET", key]), holds, "{key}");
    }
}
