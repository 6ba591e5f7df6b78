//! Fronts whose log is in their memory: whoever leads next begins with none, and has what the
//! duplicates keep of their replication streams.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Reply, encoded};
use evenkeel_testkit::wait::{OverAtEnd, block_until as until};

use super::leadership::{Etcd, serves_after};
use super::mixed::{Ledger, write_to};
use super::random::Random;
use super::strong::{Shared, report, run};
use super::world::{Front, World};

const IN_MEMORY: &str = "consistency = \"strong\"\nreply_timeout = \"300ms\"\nlog = \"memory\"";
/// What a Redis is started with so that it keeps its stream.
pub(crate) const KEPT: [&str; 4] = ["--repl-backlog-ttl", "0", "--repl-backlog-size", "67108864"];
/// What a front says that has taken over what duplicates tell of their streams.
const TAKEN_OVER: &str = "the log is what duplicates have of it";
const FILLED: &str = "a duplicate was filled";

/// Two fronts before three duplicates; the first leads.
struct Scene {
    world: World,
    other: Front,
    _etcd: Etcd,
}

/// Three duplicates that were started with these arguments, and a front that was not.
fn world(name: &str, settings: &str, arguments: &[&str]) -> Option<World> {
    let mut world = World::of(name, settings, &[3], 0)?;
    for redis in &mut world.redises {
        redis.kill();
        redis.arguments = arguments.iter().map(|&it| it.to_owned()).collect();
        redis.start();
    }
    Some(world)
}

impl Scene {
    fn set(name: &str, arguments: &[&str]) -> Option<Self> {
        let etcd = Etcd::start(name)?;
        let mut world = world(name, &format!("{IN_MEMORY}\n{}", etcd.settings), arguments)?;
        let mut other = world.other_front("two");
        world.front.start();
        world.front.wait_live(3);
        other.start();
        until("the second stands by", || other.has_role("stands by"));
        Some(Self { world, other, _etcd: etcd })
    }

    /// One duplicate stands still and is left behind by so many writes of so many bytes, which are
    /// acknowledged.
    fn leave_behind(&mut self, writes: usize, bytes: usize) {
        write(&self.world.front, "before", 50, 10);
        self.world.front.settle(3);
        // Where its stream was is noted once a second.
        std::thread::sleep(Duration::from_millis(1_200));
        self.world.redises[2].program.signal("-STOP");
        write(&self.world.front, "behind", writes, bytes);
    }

    /// The first front is killed, and the second one leads two duplicates.
    fn replace(&mut self) {
        self.world.front.process.kill();
        println!("it took {:?}", serves_after(&self.other, Instant::now()));
        self.other.wait_live(2);
    }

    fn journals(&self) -> String {
        format!("{}\n{}", self.world.front.journal(), self.other.journal())
    }

    /// All three are equal and hold what was written.
    fn reckon(&self, writes: usize) {
        self.other.settle(3);
        let state = self.world.converged_or(|| self.journals());
        for (name, count) in [("before", 50), ("behind", writes)] {
            for n in 0..count {
                assert!(state.contains_key(&format!("{name}{n}")), "{name}{n} is lost");
            }
            let counted = &state[&format!("{name}-count")].0;
            assert_eq!(counted.text(), Some(&*count.to_string()), "{name}: each once");
        }
    }
}

/// Writes so many keys of so many bytes and counts them, many at once.
fn write(front: &Front, name: &str, count: usize, bytes: usize) {
    let (mut client, value) = (front.client(), "x".repeat(bytes));
    let counter = format!("{name}-count");
    for first in (0..count).step_by(50) {
        let mut text = Vec::new();
        let numbers = first..count.min(first + 50);
        for n in numbers.clone() {
            text.extend(encoded(&["SET", &format!("{name}{n}"), &value]));
            text.extend(encoded(&["INCR", &counter]));
        }
        client.send(&text);
        for n in numbers {
            assert_eq!(client.read(), Reply::Simple("OK".to_owned()), "{name}{n}");
            assert_eq!(client.read(), Reply::Integer(n as i64 + 1));
        }
    }
}

/// Whoever leads is killed, again and again, under all kinds of writes; duplicates stand still
/// meanwhile.
pub(crate) fn leaders_are_killed(seed: u64) {
    let Some(mut scene) = Scene::set(&format!("in-memory-{seed}"), &KEPT) else { return };
    let (shared, left) = (Shared::new(), AtomicU64::new(u64::MAX));
    let addresses = [scene.world.front.address, scene.other.address];
    let (mut ledger, mut accesses) = (Ledger::default(), Vec::new());
    let is_other = std::thread::scope(|scope| {
        let (shared, left, addresses) = (&shared, &left, &addresses);
        let over = OverAtEnd(&shared.stop);
        let writers: Vec<_> = (0..2)
            .map(|id| scope.spawn(move || write_to(addresses, id, seed * 10 + id as u64, left, 30)))
            .collect();
        let readers: Vec<_> =
            (0..3).map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n))).collect();
        let (mut random, mut is_other) = (Random(seed), false);
        for _ in 0..4 {
            std::thread::sleep(Duration::from_millis(700 + random.below(600) as u64));
            let one = random.below(3);
            scene.world.redises[one].program.signal("-STOP");
            std::thread::sleep(Duration::from_millis(random.below(400) as u64));
            let (leader, next) = match is_other {
                false => (&mut scene.world.front, &scene.other),
                true => (&mut scene.other, &scene.world.front),
            };
            leader.process.kill();
            let since = Instant::now();
            println!("killed: the other one served after {:?}", serves_after(next, since));
            scene.world.redises[one].program.signal("-CONT");
            next.wait_live(3);
            if is_other {
                scene.other.start();
            } else {
                scene.world.front.start();
            }
            is_other = !is_other;
        }
        drop(over);
        left.store(0, Ordering::Relaxed);
        writers.into_iter().for_each(|it| ledger.merge(it.join().unwrap()));
        accesses.extend(readers.into_iter().flat_map(|it| it.join().unwrap()));
        is_other
    });
    let leader = if is_other { &scene.other } else { &scene.world.front };
    leader.settle(3);
    let state = scene.world.converged_or(|| scene.journals());
    let violations = ledger.violations(&state);
    println!("{} writes, {} acknowledged", ledger.writes, ledger.acknowledged);
    let journals = scene.journals();
    println!("{} filled", journals.matches(FILLED).count());
    report(&accesses, &format!("without a disk, seed {seed}"));
    assert!(violations.is_empty(), "{:#?}\n{journals}", &violations[..violations.len().min(10)]);
    // The first one of all began with nothing.
    assert!(journals.matches(TAKEN_OVER).count() >= 4, "{journals}");
    assert!(ledger.acknowledged > 1_000, "hardly anything was written");
}

pub(crate) fn who_lags_is_not_filled() {
    let Some(mut scene) = Scene::set("in-memory-lags", &KEPT) else { return };
    scene.leave_behind(400, 100);
    scene.replace();
    scene.world.redises[2].program.signal("-CONT");
    scene.reckon(400);
    let journal = scene.other.journal();
    assert!(journal.contains(TAKEN_OVER) && !journal.contains(FILLED), "{journal}");
}

pub(crate) fn who_was_restarted_is_filled() {
    let Some(mut scene) = Scene::set("in-memory-restarted", &KEPT) else { return };
    scene.leave_behind(100, 100);
    scene.replace();
    scene.world.redises[2].kill();
    scene.world.redises[2].start();
    scene.reckon(100);
    let journal = scene.other.journal();
    assert_eq!(journal.matches(FILLED).count(), 1, "{journal}");
}

pub(crate) fn who_lags_behind_the_backlog_is_filled() {
    let short = ["--repl-backlog-ttl", "0", "--repl-backlog-size", "16384"];
    let Some(mut scene) = Scene::set("in-memory-short", &short) else { return };
    let warned = "with less than 64mb";
    assert!(scene.world.front.journal().contains(warned), "{}", scene.journals());
    scene.leave_behind(400, 10_000);
    scene.replace();
    scene.world.redises[2].program.signal("-CONT");
    scene.reckon(400);
    let journal = scene.other.journal();
    assert!(journal.contains(FILLED), "{journal}");
}

/// One of three may lack what the others have acknowledged: it is no history.
pub(crate) fn a_majority_is_waited_for() {
    let Some(mut scene) = Scene::set("in-memory-waits", &KEPT) else { return };
    scene.leave_behind(100, 100);
    scene.world.front.process.kill();
    scene.world.redises[0].kill();
    scene.world.redises[1].kill();
    scene.world.redises[2].program.signal("-CONT");
    let waits = "waiting for duplicates, one of which must have everything";
    until("the second waits", || scene.other.journal().contains(waits));
    assert!(!scene.other.has_role("leads"), "{}", scene.other.api());
    scene.world.redises[0].start();
    scene.other.wait_live(2);
    scene.world.redises[1].start();
    scene.reckon(100);
}

pub(crate) fn settings_are_checked() {
    let Some(mut world) = world("in-memory-settings", IN_MEMORY, &[]) else { return };
    world.front.replace_words("log = ", "acknowledge = \"one\"\nlog = ");
    let said = world.front.started_in_vain();
    assert!(said.contains("acknowledge = \"majority\""), "{said}");
    world.front.replace_words("acknowledge = \"one\"\n", "");
    world.front.start();
    let refused = |words: &str| {
        until(words, || world.front.journal().matches(words).count() >= 3);
        assert_eq!(world.front.live(), 0);
    };
    refused("expected repl-backlog-ttl 0");
    for redis in &world.redises {
        redis.client().ask(&["CONFIG", "SET", "repl-backlog-ttl", "0", "appendonly", "no"]);
    }
    refused("expected appendonly yes");
    for redis in &world.redises {
        redis.client().ask(&["CONFIG", "SET", "appendonly", "yes"]);
    }
    world.front.wait_live(3);
}
