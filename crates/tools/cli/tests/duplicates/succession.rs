//! Shards that move where fronts take turns: whoever takes over has the layout that was in force,
//! from a real etcd, and nothing that was acknowledged is lost on the way.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Reply, encoded};
use evenkeel_testkit::wait::block_until as until;

use super::history::{Access, What};
use super::leadership::{Etcd, serves_after};
use super::random::Random;
use super::strong::{STRONG, Shared, report, run};
use super::world::{Front, World};

const SHARDS: usize = 8;
/// Written before anything moves, so that a move takes a while.
const KEYS: usize = 12_000;

/// Two fronts before two partitions of three; the first leads.
struct Scene {
    world: World,
    other: Front,
    /// Whether it is the other one that leads.
    is_other: bool,
    shared: Shared,
    _etcd: Etcd,
}

impl Scene {
    fn set(name: &str) -> Option<Self> {
        let etcd = Etcd::start(name)?;
        let settings = format!("shards = {SHARDS}\n{STRONG}\n{}", etcd.settings);
        let mut world = World::of(name, &settings, &[3, 3], 0)?;
        world.front.start();
        world.front.wait_live(6);
        let mut other = world.other_front("two");
        other.start();
        until("the second stands by", || other.has_role("stands by"));
        fill(&world.front);
        Some(Self { world, other, is_other: false, shared: Shared::new(), _etcd: etcd })
    }

    fn leads(&self) -> &Front {
        if self.is_other { &self.other } else { &self.world.front }
    }

    fn stands_by(&self) -> &Front {
        if self.is_other { &self.world.front } else { &self.other }
    }

    fn owners(&self) -> Vec<u64> {
        let mut owners = Vec::new();
        until("it is told who holds what", || {
            let moves = self.leads().admin.moves().unwrap();
            let reported = moves["owners"].as_array().unwrap();
            owners = reported.iter().map(|it| it.as_u64().unwrap()).collect();
            owners.len() == SHARDS
        });
        owners
    }

    /// A shard goes to whichever partition it is not in: which one, and from where to where.
    fn order(&self, random: &mut Random) -> (usize, u64, u64) {
        self.order_of(random.below(SHARDS))
    }

    /// The same, waited for.
    fn move_of(&self, shard: usize) {
        let admin = self.leads().admin;
        let ended = || {
            let moves = admin.moves().unwrap();
            moves["done"].as_u64().unwrap() + moves["failed"].as_u64().unwrap()
        };
        let before = ended();
        let (_, _, to) = self.order_of(shard);
        until("it is carried out", || ended() > before);
        admin.wait_moved();
        let moves = admin.moves().unwrap();
        assert!(moves["last"]["error"].is_null(), "{moves}\n{}", self.leads().journal());
        assert_eq!(self.owners()[shard], to, "{moves}\n{}", self.leads().journal());
    }

    fn order_of(&self, shard: usize) -> (usize, u64, u64) {
        let from = self.owners()[shard];
        let to = 1 - from;
        let json = format!("{{\"shard\": {shard}, \"to\": {to}}}");
        let (status, said) = self.leads().admin.order(&json).unwrap();
        assert_eq!(status, 202, "{json}: {said}");
        (shard, from, to)
    }

    /// Whoever leads is killed, and the other one takes over; it is started anew and stands by.
    fn kill(&mut self) {
        let begun = Instant::now();
        match self.is_other {
            true => self.other.process.kill(),
            false => self.world.front.process.kill(),
        }
        self.is_other = !self.is_other;
        println!("killed: the other one served after {:?}", serves_after(self.leads(), begun));
        self.leads().wait_live(6);
        match self.is_other {
            true => self.world.front.start(),
            false => self.other.start(),
        }
        until("the killed one stands by", || self.stands_by().has_role("stands by"));
    }

    /// Clients write and read meanwhile; what they saw, and what is there at the end.
    fn under_load(&mut self, seed: u64, story: impl FnOnce(&mut Self)) {
        let shared = Shared::new();
        let addresses = [self.world.front.address, self.other.address];
        let mut accesses: Vec<Access> = std::thread::scope(|scope| {
            let (shared, addresses) = (&shared, &addresses);
            let clients: Vec<_> = (0..4)
                .map(|n| scope.spawn(move || run(shared, addresses, seed * 100 + n)))
                .collect();
            // A story that fails must not wait for the clients for ever.
            let reported = catch_unwind(AssertUnwindSafe(|| story(self)));
            shared.stop.store(true, Ordering::Relaxed);
            reported.unwrap_or_else(|failed| resume_unwind(failed));
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
        });
        self.shared = shared;
        self.reckon(&mut accesses, seed);
    }

    fn reckon(&self, accesses: &mut Vec<Access>, seed: u64) {
        let front = self.leads();
        front.wait_live(6);
        front.admin.wait_moved();
        front.settle(6);
        // Every key once more: what was acknowledged long ago is there still.
        let mut client = front.client();
        let last = accesses.iter().map(|access| access.key).max().unwrap();
        for key in 0..=last {
            let called = self.shared.now();
            let value = match client.ask(&["GET", &format!("k{key}")]) {
                Reply::Null => 0,
                ref value @ Reply::Bulk(_) => value.text().unwrap().parse().unwrap(),
                other => panic!("{other:?}"),
            };
            let answered = Some(self.shared.now());
            accesses.push(Access { key, what: What::Read(value), called, answered });
        }
        report(accesses, &format!("succession, seed {seed}"));
        for n in 0..KEYS {
            let value = client.ask(&["GET", &format!("f{n}")]);
            assert_eq!(value, Reply::bulk(&n.to_string()), "f{n}\n{}", front.journal());
        }
        self.world.converged_in(&self.world.partitions);
        assert_eq!(front.disagreements(), 0);
    }
}

fn fill(front: &Front) {
    let mut client = front.client();
    for first in (0..KEYS).step_by(500) {
        let mut text = Vec::new();
        for n in first..first + 500 {
            text.extend(encoded(&["SET", &format!("f{n}"), &n.to_string()]));
        }
        client.send(&text);
        for n in first..first + 500 {
            assert_eq!(client.read(), Reply::Simple("OK".to_owned()), "f{n}");
        }
    }
}

/// Moves come to their end; then whoever leads is killed, and later the one that took over.
pub(crate) fn after_moves(seed: u64) {
    let Some(mut scene) = Scene::set(&format!("succession-{seed}")) else { return };
    let refused = scene.other.admin.order("{\"shard\": 0, \"to\": 1}").unwrap();
    assert!(refused.0 == 422 && refused.1.contains("stands by"), "{refused:?}");
    scene.under_load(seed, |scene| {
        let mut random = Random(seed);
        for _ in 0..2 {
            for _ in 0..3 {
                scene.move_of(random.below(SHARDS));
            }
            let owners = scene.owners();
            let layout = scene.leads().admin.moves().unwrap()["layout"].clone();
            scene.kill();
            assert_eq!(scene.owners(), owners, "{}", scene.leads().journal());
            assert_eq!(scene.leads().admin.moves().unwrap()["layout"], layout);
        }
    });
}

/// Whoever leads is killed while a shard moves: the shard is here or there, and moves again.
pub(crate) fn in_the_middle(seed: u64) {
    let Some(mut scene) = Scene::set(&format!("succession-{seed}")) else { return };
    scene.under_load(seed, |scene| {
        let mut random = Random(seed);
        for _ in 0..3 {
            let before = scene.owners();
            let (shard, from, to) = scene.order(&mut random);
            let delay = Duration::from_millis(random.below(250) as u64);
            std::thread::sleep(delay);
            scene.kill();
            let mut after = scene.owners();
            println!("killed {delay:?} into a move of shard {shard}: it is in {}", after[shard]);
            assert!(after[shard] == from || after[shard] == to, "{after:?}");
            after[shard] = before[shard];
            assert_eq!(after, before, "no other one has moved");
            scene.leads().admin.wait_moved();
            scene.move_of(shard);
        }
    });
}

/// Whoever leads is stopped in the middle of a move and wakes when another one has moved the shard
/// elsewhere: it ends, and the layout is the other's.
pub(crate) fn wakes_in_the_middle(seed: u64) {
    let Some(mut scene) = Scene::set(&format!("succession-{seed}")) else { return };
    scene.under_load(seed, |scene| {
        let (shard, ..) = scene.order_of(3);
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        scene.world.front.process.signal("-STOP");
        println!("stopped: the other one served after {:?}", serves_after(&scene.other, begun));
        scene.is_other = true;
        scene.other.wait_live(6);
        scene.other.admin.wait_moved();
        scene.move_of((shard + 1) % SHARDS);
        let owners = scene.owners();
        let layout = scene.other.admin.moves().unwrap()["layout"].clone();
        scene.world.front.process.signal("-CONT");
        until("the first front ends", || scene.world.front.process.has_ended());
        // By whichever it meets first: a duplicate that refuses it, or the layout in etcd.
        let journal = scene.world.front.journal();
        let reasons = ["another process has taken over", "another process has changed it"];
        assert!(reasons.iter().any(|reason| journal.contains(reason)), "{journal}");
        assert_eq!(scene.other.admin.moves().unwrap()["layout"], layout);
        // Its turn comes again, by the layout as it is then.
        scene.world.front.start();
        until("the first stands by", || scene.world.front.has_role("stands by"));
        scene.kill();
        assert_eq!(scene.owners(), owners);
    });
}
