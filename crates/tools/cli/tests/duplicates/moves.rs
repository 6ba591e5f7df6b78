//! Shards that move between partitions of real Redis servers while clients write and read and
//! processes are killed and stopped; duplicates and partitions that come and go under load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Redis, Reply, encoded};
use evenkeel_testkit::wait::{AtEnd, OverAtEnd, block_until as until};

use super::history::Access;
use super::mixed::{self, Ledger, SILENCE};
use super::random::Random;
use super::strong::{self, STRONG, Shared};
use super::trouble::Troubles;
use super::world::{Admin, World};

const SHARDS: usize = 8;

/// What became of orders.
#[derive(Debug, Default)]
struct Ordered {
    taken: usize,
    busy: usize,
    impossible: usize,
    away: usize,
    abandoned: usize,
}

/// Orders one move after the other until it is told to stop.
fn order_moves(admin: Admin, partitions: usize, stop: &AtomicBool, seed: u64) -> Ordered {
    let (mut ordered, mut random) = (Ordered::default(), Random(seed));
    while !stop.load(Ordering::Relaxed) {
        let (shard, to) = (random.below(SHARDS), random.below(partitions));
        let json = match random.below(12) {
            0 => "{\"abandon\": {}}".to_owned(),
            _ => format!("{{\"shard\": {shard}, \"to\": {to}}}"),
        };
        match admin.order(&json) {
            Some((202, _)) if json.contains("abandon") => ordered.abandoned += 1,
            Some((202, _)) => ordered.taken += 1,
            Some((409, _)) => ordered.busy += 1,
            Some((422, _)) => ordered.impossible += 1,
            Some(other) => panic!("{json}: {other:?}"),
            None => ordered.away += 1,
        }
        std::thread::sleep(Duration::from_millis(10 + random.below(60) as u64));
    }
    ordered
}

/// All is live, no move is under way, nothing is left behind: what all partitions hold.
fn reckon(world: &World, seen: Option<&Ledger>, what: &str) {
    let count = world.partitions.iter().map(Vec::len).sum();
    world.front.wait_live(count);
    world.front.admin.wait_moved();
    world.front.settle(count);
    let state = world.converged_in(&world.partitions);
    assert_eq!(world.front.disagreements(), 0);
    let Some(seen) = seen else { return };
    let violations = seen.violations(&state);
    println!(
        "{what}: {} writes ({} acknowledged, {} refused, {} uncertain, {} unknown), {} violations",
        seen.writes,
        seen.acknowledged,
        seen.refused,
        seen.uncertain,
        seen.unknown,
        violations.len()
    );
    assert!(violations.is_empty(), "{:#?}", &violations[..violations.len().min(10)]);
}

fn settings(more: &str) -> String {
    format!("shards = {SHARDS}\n{more}")
}

/// All kinds of writes while shards move and everything is killed and stopped.
pub(crate) fn under_trouble(level: &str, writes: u64, seed: u64) {
    let settings = settings(&format!("acknowledge = \"{level}\"\n{SILENCE}"));
    let name = format!("moves-{level}-{seed}");
    let Some(mut world) = World::of(&name, &settings, &[3, 2, 2], 0) else { return };
    world.front.start();
    world.front.wait_live(7);
    let (address, admin) = (world.front.address, world.front.admin);
    let (left, stop) = (AtomicU64::new(writes), AtomicBool::new(false));
    let (mut troubles, mut ledger) = (Troubles::default(), Ledger::default());
    let ordered = std::thread::scope(|scope| {
        let (left, stop) = (&left, &stop);
        let _over = (AtEnd(|| left.store(0, Ordering::Relaxed)), OverAtEnd(stop));
        let clients: Vec<_> = (0..4)
            .map(|id| {
                scope.spawn(move || mixed::write(address, id, seed * 10 + id as u64, left, 10))
            })
            .collect();
        let orders = scope.spawn(move || order_moves(admin, 3, stop, seed));
        let mut random = Random(seed);
        while left.load(Ordering::Relaxed) >= 10
            && !clients.iter().any(std::thread::ScopedJoinHandle::is_finished)
        {
            // Between troubles a while in which moves come to their end.
            std::thread::sleep(Duration::from_millis(random.below(900) as u64));
            troubles.make(&mut world, &mut random);
        }
        for client in clients {
            ledger.merge(client.join().unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        orders.join().unwrap()
    });
    reckon(&world, Some(&ledger), &format!("moves at {level}, {ordered:?}, {troubles:?}"));
    assert!(ordered.taken > 3, "hardly anything moved: {ordered:?}");
}

/// Linearizable also across hand-overs; keys are few, so that most accesses meet one.
pub(crate) fn strong(lasts: Duration, seed: u64) {
    let settings = settings(STRONG);
    let Some(mut world) = World::of(&format!("moves-strong-{seed}"), &settings, &[3, 3], 0) else {
        return;
    };
    world.front.start();
    world.front.wait_live(6);
    let (shared, stop) = (Shared::new(), AtomicBool::new(false));
    let (addresses, admin) = ([world.front.address], world.front.admin);
    let mut troubles = Troubles::default();
    let (accesses, ordered) = std::thread::scope(|scope| {
        let (shared, addresses, stop) = (&shared, &addresses, &stop);
        let _over = (OverAtEnd(&shared.stop), OverAtEnd(stop));
        let clients: Vec<_> = (0..5)
            .map(|n| scope.spawn(move || strong::run(shared, addresses, seed * 100 + n)))
            .collect();
        let orders = scope.spawn(move || order_moves(admin, 2, stop, seed));
        let mut random = Random(seed);
        while shared.begun.elapsed() < lasts {
            std::thread::sleep(Duration::from_millis(random.below(700) as u64));
            troubles.make(&mut world, &mut random);
        }
        world.front.wait_live(6);
        stop.store(true, Ordering::Relaxed);
        let ordered = orders.join().unwrap();
        shared.stop.store(true, Ordering::Relaxed);
        let accesses: Vec<Access> =
            clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (accesses, ordered)
    });
    strong::report(&accesses, &format!("strong while shards move, {ordered:?}, {troubles:?}"));
    reckon(&world, None, "strong");
}

/// Own writes, no way back, tokens, while the keys' shards move.
pub(crate) fn sessions(lasts: Duration, seed: u64) {
    let settings = settings("reply_timeout = \"300ms\"\nread_copies = 1\nlog_sync = \"never\"");
    let Some(mut world) = World::of(&format!("moves-sessions-{seed}"), &settings, &[2, 2], 0)
    else {
        return;
    };
    world.front.start();
    world.front.wait_live(4);
    let (address, end) = (world.front.address, Instant::now() + lasts);
    let (stop, admin) = (AtomicBool::new(false), world.front.admin);
    let mut ordered = Ordered::default();
    let histories = super::sessions::histories(address, end, || {
        std::thread::scope(|scope| {
            let _over = OverAtEnd(&stop);
            let orders = scope.spawn(|| order_moves(admin, 2, &stop, seed));
            while Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Ordering::Relaxed);
            ordered = orders.join().unwrap();
        });
    });
    super::sessions::judge(&histories, &format!("sessions while shards move, {ordered:?}"));
    reckon(&world, None, "sessions");
    assert!(ordered.taken > 5, "{ordered:?}");
}

/// A partition is opened, shards go there, a duplicate comes and another one goes, the partition is
/// closed; and all of that is there after a restart.
pub(crate) fn come_and_go() {
    let settings = settings(&format!("acknowledge = \"majority\"\n{SILENCE}"));
    let Some(mut world) = World::of("come-and-go", &settings, &[2], 4) else { return };
    world.front.start();
    world.front.wait_live(2);
    let (address, admin) = (world.front.address, world.front.admin);
    let spare: Vec<_> = world.redises[2..].iter().map(|it| it.address).collect();
    let (left, mut ledger) = (AtomicU64::new(u64::MAX), Ledger::default());
    let ended = || {
        let moves = admin.moves().unwrap();
        moves["done"].as_u64().unwrap() + moves["failed"].as_u64().unwrap()
    };
    let carried_out = |json: &str| {
        let before = ended();
        let reported = admin.order(json).unwrap();
        assert_eq!(reported.0, 202, "{json}: {}", reported.1);
        until("it is carried out", || ended() > before);
        admin.wait_moved();
        let moves = admin.moves().unwrap();
        assert!(moves["last"]["error"].is_null(), "{json}: {moves}");
    };
    std::thread::scope(|scope| {
        let left = &left;
        let _over = AtEnd(|| left.store(0, Ordering::Relaxed));
        let clients: Vec<_> =
            (0..2).map(|id| scope.spawn(move || mixed::write(address, id, 50, left, 10))).collect();
        carried_out(&format!("{{\"add_partition\": {{\"addresses\": [\"{}\"]}}}}", spare[0]));
        world.front.wait_live(3);
        for shard in 0..SHARDS / 2 {
            carried_out(&format!("{{\"shard\": {shard}, \"to\": 1}}"));
        }
        carried_out(&duplicate("add", 1, spare[1]));
        carried_out(&duplicate("add", 1, spare[2]));
        world.front.wait_live(5);
        carried_out(&duplicate("remove", 1, spare[0]));
        // Refused, with words.
        for (json, words) in [
            (&*format!("{{\"shard\": {SHARDS}, \"to\": 1}}"), "there is no shard"),
            ("{\"shard\": 0, \"to\": 1}", "is in partition 1 already"),
            ("{\"shard\": 0, \"to\": 7}", "there is no partition 7"),
            ("{\"remove_partition\": {\"partition\": 1}}", "holds 4 shards"),
            (&duplicate("add", 0, spare[1]), "is a duplicate already"),
            (&duplicate("remove", 0, spare[3]), "is no duplicate of partition 0"),
            (&duplicate("add", 0, "nonsense"), "expected an address"),
            ("{\"shard\": 0}", "expected such as"),
        ] {
            let (status, said) = admin.order(json).unwrap();
            assert!(status == 422 && said.contains(words), "{json}: {status} {said}");
        }
        left.store(0, Ordering::Relaxed);
        clients.into_iter().for_each(|client| ledger.merge(client.join().unwrap()));
    });
    let first = vec![world.redises[0].address, world.redises[1].address];
    world.partitions = vec![first.clone(), vec![spare[1], spare[2]]];
    reckon(&world, Some(&ledger), "after partitions and duplicates came and went");
    let owners = admin.moves().unwrap()["owners"].clone();
    world.front.process.kill();
    world.front.start();
    world.front.wait_live(4);
    reckon(&world, Some(&ledger), "after a restart");
    assert_eq!(admin.moves().unwrap()["owners"], owners);
    // Back again, under load.
    left.store(u64::MAX, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let left = &left;
        let _over = AtEnd(|| left.store(0, Ordering::Relaxed));
        let client = scope.spawn(move || mixed::write(address, 7, 70, left, 10));
        for shard in 0..SHARDS / 2 {
            carried_out(&format!("{{\"shard\": {shard}, \"to\": 0}}"));
        }
        carried_out("{\"remove_partition\": {\"partition\": 1}}");
        left.store(0, Ordering::Relaxed);
        ledger.merge(client.join().unwrap());
    });
    world.partitions = vec![first];
    reckon(&world, Some(&ledger), "after the partition was closed");
    // The log of the closed partition's writes is of no use to anybody, and of no harm.
    world.redises[1].program.kill();
    world.redises[1].wipe();
    world.redises[1].start();
    reckon(&world, Some(&ledger), "after a duplicate was filled anew");
}

/// A partition is opened behind writes that nobody ever got. Their numbers are given again when the
/// log is lost: a duplicate of that partition that comes late lacks nothing nonetheless.
pub(crate) fn opened_in_an_earlier_term() {
    const LOST: usize = 600;
    let settings = settings("reply_timeout = \"20s\"\nlog_sync = \"never\"");
    let Some(mut world) = World::of("earlier", &settings, &[1], 3) else { return };
    world.front.start();
    world.front.wait_live(1);
    let mut client = world.front.client();
    assert_eq!(client.ask(&["SET", "before", "1"]), Reply::Simple("OK".to_owned()));
    world.front.settle(1);
    world.redises[0].program.signal("-STOP");
    let mut text = Vec::new();
    (0..LOST).for_each(|n| text.extend(encoded(&["SET", &format!("lost{n}"), "1"])));
    client.send(&text);
    let owes = || {
        let info = world.front.info();
        let (_, rest) = info.split_once("pending=")?;
        rest.split_whitespace().next()?.parse::<usize>().ok()
    };
    until("writes are on their way", || owes() >= Some(LOST));
    world.redises[1..].iter_mut().for_each(Redis::kill);
    let added: Vec<String> = world.redises[1..].iter().map(|it| it.address.to_string()).collect();
    let order = format!("{{\"add_partition\": {{\"addresses\": {added:?}}}}}");
    let (status, said) = world.front.admin.order(&order).unwrap();
    assert_eq!(status, 202, "{said}");
    until("it is opened", || world.front.admin.moves().unwrap()["done"] == 1);
    // The log is gone, and of the duplicate what it had not taken yet.
    world.front.process.kill();
    world.redises[0].program.kill();
    std::fs::remove_dir_all(world.front.directory.join("log")).unwrap();
    world.redises[..3].iter_mut().for_each(Redis::start);
    world.front.start();
    world.front.wait_live(3);
    let mut client = world.front.client();
    for shard in 0..3 {
        let order = format!("{{\"shard\": {shard}, \"to\": 1}}");
        let (status, said) = world.front.admin.order(&order).unwrap();
        assert_eq!(status, 202, "{said}");
        until("it has moved", || world.front.admin.moves().unwrap()["owners"][shard] == 1);
        world.front.admin.wait_moved();
    }
    for n in 0..100 {
        let set = client.ask(&["SET", &format!("v{n}"), &n.to_string()]);
        assert_eq!(set, Reply::Simple("OK".to_owned()));
    }
    world.redises[3].start();
    world.partitions = vec![
        vec![world.redises[0].address],
        world.redises[1..].iter().map(|it| it.address).collect(),
    ];
    reckon(&world, None, "a partition that was opened in an earlier term");
    let state = world.converged_in(&world.partitions);
    assert_eq!(state.len(), 101, "what was acknowledged, and nothing of what was lost: {state:?}");
}

fn duplicate(what: &str, partition: usize, address: impl std::fmt::Display) -> String {
    format!("{{\"{what}_duplicate\": {{\"partition\": {partition}, \"address\": \"{address}\"}}}}")
}
