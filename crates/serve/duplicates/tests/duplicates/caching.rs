//! Clients that keep what they read (`CLIENT TRACKING`) while keys expire, shards move, and
//! duplicates are lost, emptied or differ: at rest nobody keeps what is not so.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use evenkeel_duplicates::changes::ChangeRequest;
use evenkeel_ordered::Consistency;
use evenkeel_testkit::caching::CachingClient;
use evenkeel_testkit::redis::{Client, Reply};
use evenkeel_testkit::wait::{OverAtEnd, block_until};

use super::ok;
use super::world::World;

/// How clients track, one each.
const WAYS: [&[&str]; 4] = [&[], &["NOLOOP"], &["BCAST"], &["BCAST", "NOLOOP", "PREFIX", "key:"]];
const KEYS: usize = 30;
/// Commands that a client sends at once.
const AT_ONCE: usize = 8;
const SCRIPT: &str = "return redis.call('set', KEYS[1], ARGV[1])";

fn key(number: usize) -> String {
    format!("key:{}", number % KEYS)
}

/// What a client writes, by a number that never comes again: the key, and the command.
type Writes = fn(usize) -> (String, Vec<String>);

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// Values of all kinds of writes that tell.
fn values(number: usize) -> (String, Vec<String>) {
    let (key, value) = (key(number / 7), number.to_string());
    let command = match number % 7 {
        0 => words(&["EVAL", SCRIPT, "1", &key, &value]),
        1 => words(&["DEL", &key]),
        2 => words(&["GETSET", &key, &value]),
        3 => words(&["SETRANGE", &key, "0", &value]),
        _ => words(&["SET", &key, &value]),
    };
    (key, command)
}

/// Values that are soon gone.
fn expiring(number: usize) -> (String, Vec<String>) {
    let (key, value) = (key(number / 3), number.to_string());
    let ms = (20 + number % 7 * 60).to_string();
    let command = match number % 3 {
        0 => words(&["PEXPIRE", &key, &ms]),
        _ => words(&["SET", &key, &value, "PX", &ms]),
    };
    (key, command)
}

/// Reads and writes in turn, by chance, until told to stop.
fn work(
    (address, client): (SocketAddr, usize),
    writes: Writes,
    is_over: &AtomicBool,
    rounds: &AtomicUsize,
) -> CachingClient {
    let (mut one, mut chance) = (CachingClient::connect(address, WAYS[client]), client as u64 + 1);
    let mut next = move || {
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (chance >> 33) as usize
    };
    let mut number = client * 1_000_000;
    while !is_over.load(Ordering::Relaxed) {
        for _ in 0..AT_ONCE {
            let sent = if next().is_multiple_of(5) {
                number += 1 + next() % 40;
                let (key, words) = writes(number);
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                one.try_write(&key, &words)
            } else {
                one.try_get(&key(next()))
            };
            sent.unwrap_or_else(|error| panic!("{:?}: {error}", WAYS[client]));
        }
        one.try_hear().unwrap_or_else(|error| panic!("{:?}: {error}", WAYS[client]));
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    one
}

/// Has a client of each kind work while something happens; they were told something.
fn under_load(
    world: &World,
    writes: Writes,
    happens: impl FnOnce(&dyn Fn(usize)),
) -> Vec<CachingClient> {
    let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
    let clients: Vec<CachingClient> = std::thread::scope(|scope| {
        let over = OverAtEnd(&is_over);
        let working: Vec<_> = (0..WAYS.len())
            .map(|client| {
                let (is_over, rounds, address) = (&is_over, &rounds, world.address);
                scope.spawn(move || work((address, client), writes, is_over, rounds))
            })
            .collect();
        happens(&|more| {
            let before = rounds.load(Ordering::Relaxed);
            block_until("clients go on", || {
                let failed = working.iter().any(std::thread::ScopedJoinHandle::is_finished);
                failed || rounds.load(Ordering::Relaxed) >= before + more
            });
        });
        drop(over);
        working.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(clients.iter().all(|it| it.told > 20), "{:?}", clients.iter().map(|it| it.told));
    clients
}

/// Waits until nobody keeps what is not so.
fn agree(world: &World, clients: &mut [CachingClient]) {
    let mut other = world.client();
    assert_eq!(other.ask(&["EK.SESSION", "strong"]), ok());
    let kept: usize = clients.iter().map(|it| it.keeps.len()).sum();
    println!("{kept} values are kept");
    let mut stale = Vec::new();
    block_until("nobody keeps what is not so", || {
        stale = clients.iter_mut().map(|it| it.try_stale(&mut other).unwrap()).collect();
        if !stale.iter().all(Vec::is_empty) {
            println!("{stale:?}"); // shown where it fails
        }
        stale.iter().all(Vec::is_empty)
    });
}

/// Nobody asks for the keys any more when they expire.
#[test]
fn what_has_expired_is_kept_by_nobody_though_nobody_asks_for_it() {
    let Some(world) = World::start("caching-expiry", 3, |_| {}) else { return };
    let mut clients = under_load(&world, expiring, |go_on| go_on(600));
    let is_value = |reply: &&Reply| **reply != Reply::Null;
    block_until("no value is kept", || {
        clients.iter_mut().for_each(|it| drop(it.try_hear().unwrap()));
        !clients.iter().any(|it| it.keeps.values().any(|reply| is_value(&reply)))
    });
    agree(&world, &mut clients);
    assert!(world.state_now().expired_keys > 0);
}

#[test]
fn nobody_keeps_what_is_not_so_while_shards_move_and_all_is_emptied() {
    let world = World::of_partitions("caching-moves", 2, 2, |config| {
        (config.shards, config.read_copies) = (4, 1);
        config.consistency = Consistency::Eventual;
    });
    let Some(world) = world else { return };
    let mut clients = under_load(&world, values, |go_on| {
        for round in 0..3 {
            for shard in 0..4 {
                let to = 1 - usize::from(world.owners()[shard]);
                world.request_change(ChangeRequest::MoveShard { shard, to }).unwrap();
                go_on(20);
            }
            if round == 1 {
                assert_eq!(world.client().ask(&["FLUSHALL"]), ok());
            }
        }
    });
    agree(&world, &mut clients);
}

/// Somebody writes to one duplicate behind the front's back, and one that is lost comes back empty.
#[test]
fn nobody_keeps_what_a_duplicate_that_differed_has_answered() {
    let world = World::start("caching-differs", 3, |config| {
        (config.read_copies, config.check_rate) = (1, 1_000);
    });
    let Some(mut world) = world else { return };
    let servers: Vec<SocketAddr> = world.redises.iter().map(|redis| redis.address).collect();
    let directly = |server: usize, command: &[&str]| Client::connect(servers[server]).ask(command);
    // Clients that read alone, and nobody writes: what is wrong stays so until it is found.
    let mut clients: Vec<_> =
        WAYS.iter().map(|way| CachingClient::connect(world.address, way)).collect();
    assert_eq!(world.client().ask(&["SET", "key:1", "right"]), ok());
    world.settle();
    for round in 0..3 {
        assert_eq!(directly(round, &["SET", "key:1", "wrong"]), ok());
        let wrong = Reply::bulk("wrong");
        block_until("somebody keeps it, or it is found", || {
            clients.iter_mut().for_each(|it| drop(it.get("key:1")));
            clients.iter().any(|it| it.keeps.get("key:1") == Some(&wrong))
                || world.state().disagreements > round as u64
        });
        agree(&world, &mut clients);
        world.wait_live(3, 2 * evenkeel_testkit::wait::PATIENCE);
    }
    drop(clients);
    let mut lost = world.redises.remove(2);
    let mut clients = under_load(&world, values, |go_on| {
        for round in 0..4 {
            directly(round % 2, &["FLUSHALL"]);
            go_on(40);
            lost.kill();
            lost.wipe();
            go_on(40);
            lost.start();
            world.wait_live(3, 2 * evenkeel_testkit::wait::PATIENCE);
            go_on(40);
        }
    });
    agree(&world, &mut clients);
    world.redises.push(lost);
}
