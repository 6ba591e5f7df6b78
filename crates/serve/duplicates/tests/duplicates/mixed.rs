//! Scripts beside what else the front orders: pops that wait, `WATCH`, `FLUSHALL`, while duplicates
//! die and stand still.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_testkit::redis::{Client, Reply, contents};
use evenkeel_testkit::wait::{OverAtEnd, PATIENCE, block_until};

use super::world::World;
use super::{bulk, ok};

const SILENCE: Duration = Duration::from_millis(400);

/// How often something was done, and may have been.
#[derive(Default)]
struct Tally {
    done: AtomicU64,
    unknown: AtomicU64,
    not_done: AtomicU64,
}

impl Tally {
    fn count(&self, is_done: Option<bool>) {
        let to = match is_done {
            Some(true) => &self.done,
            Some(false) => &self.not_done,
            None => &self.unknown,
        };
        to.fetch_add(1, Ordering::Relaxed);
    }

    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    fn range(&self) -> std::ops::RangeInclusive<u64> {
        self.done()..=self.done() + self.unknown.load(Ordering::Relaxed)
    }
}

/// Whether a command was done; `None` where nobody knows.
fn is_done(reply: &Reply) -> Option<bool> {
    match reply {
        Reply::Null => Some(false),
        Reply::Error(text) if text.starts_with("UNCERTAIN") => None,
        Reply::Error(text) => {
            // Who does a script and stands still is busy with it for all that is known.
            let busy = ["BUSY", "EXECABORT Transaction discarded because of"];
            let known = ["UNAVAILABLE", "TRYAGAIN"].into_iter().chain(busy);
            assert!(known.into_iter().any(|it| text.starts_with(it)), "{text}");
            Some(false)
        }
        _ => Some(true),
    }
}

/// Counts, and hands something on.
const WORK: &str = "redis.call('INCR', KEYS[2]) redis.call('RPUSH', KEYS[3], ARGV[1]) \
    return redis.call('INCR', KEYS[1])";
const ADD: &str = "return redis.call('INCR', KEYS[1])";

fn work(
    address: SocketAddr,
    number: usize,
    scripts: &[Tally; 2],
    is_over: &AtomicBool,
) -> Vec<String> {
    let (mut client, mut pushed) = (Client::try_connect(address, 2 * PATIENCE).unwrap(), vec![]);
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        count += 1;
        let item = format!("{number}.{count}");
        // Now and then it writes what others watch, who would else never commit.
        let (second, tally) = match count % 16 {
            0 => ("{t}w", &scripts[1]),
            _ => ("{t}v", &scripts[0]),
        };
        let reply = client.ask(&["EVAL", WORK, "3", "{t}n", second, "{t}q", &item]);
        let is_done = is_done(&reply);
        tally.count(is_done);
        if is_done == Some(true) {
            pushed.push(item);
        }
    }
    pushed
}

fn pop(address: SocketAddr, lost: &AtomicU64, is_over: &AtomicBool) -> Vec<String> {
    let (mut client, mut taken) = (Client::try_connect(address, 2 * PATIENCE).unwrap(), vec![]);
    loop {
        let is_last = is_over.load(Ordering::Relaxed);
        match client.ask(&["BLPOP", "{t}q", "{t}other", "0.3"]) {
            Reply::Array(parts) => taken.push(parts[1].text().unwrap().to_owned()),
            Reply::Null if is_last => return taken,
            reply if is_done(&reply).is_none() => drop(lost.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

/// Increments what it watches: with a script, or by what it has read.
fn watch(address: SocketAddr, number: u64, commits: &Tally, is_over: &AtomicBool) {
    let mut client = Client::try_connect(address, 2 * PATIENCE).unwrap();
    let mut round = number;
    while !is_over.load(Ordering::Relaxed) {
        round += 1;
        if client.ask(&["WATCH", "{t}w"]) != ok() {
            continue;
        }
        let before: u64 = match client.ask(&["GET", "{t}w"]) {
            Reply::Bulk(text) => String::from_utf8(text).unwrap().parse().unwrap(),
            Reply::Null => 0,
            _ => {
                client.ask(&["UNWATCH"]);
                continue;
            }
        };
        assert_eq!(client.ask(&["MULTI"]), ok());
        client.ask(&["PING"]);
        let next = (before + 1).to_string();
        match round % 2 {
            0 => client.ask(&["EVAL", ADD, "1", "{t}w"]),
            _ => client.ask(&["SET", "{t}w", &next]),
        };
        let reply = client.ask(&["EXEC"]);
        if let (Reply::Array(parts), 0) = (&reply, round % 2) {
            assert_eq!(parts[0], Reply::Simple("PONG".to_owned()));
            assert_eq!(parts[1], Reply::Integer(before as i64 + 1), "it was not written since");
        }
        commits.count(is_done(&reply));
    }
}

#[test]
fn scripts_pops_and_watchers_agree_while_duplicates_die_and_stand_still() {
    let change = |config: &mut evenkeel_duplicates::DuplicatesConfig| {
        config.members.silence_max = SILENCE;
    };
    let Some(mut world) = World::start("mixed", 3, change) else { return };
    let (scripts, commits) = (&<[Tally; 2]>::default(), &Tally::default());
    let (lost, is_over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let address = world.address;
    let (pushed, mut taken) = std::thread::scope(|scope| {
        let over = OverAtEnd(is_over);
        let working = [1, 2].map(|it| scope.spawn(move || work(address, it, scripts, is_over)));
        let popping = [(); 2].map(|()| scope.spawn(move || pop(address, lost, is_over)));
        for number in 0..2 {
            scope.spawn(move || watch(address, number, commits, is_over));
        }
        for fault in 0..6 {
            let goes_on = |what| {
                let before = [scripts[0].done(), scripts[1].done(), commits.done()];
                block_until(what, || {
                    let now = [scripts[0].done(), scripts[1].done(), commits.done()];
                    now.iter().zip(before).all(|(now, before)| *now > before + 3)
                });
            };
            goes_on("all go on");
            let victim = fault * 5 % 3;
            match fault % 2 {
                0 => {
                    world.redises[victim].kill();
                    goes_on("two go on");
                    world.redises[victim].start();
                }
                _ => {
                    world.redises[victim].program.signal("-STOP");
                    goes_on("two go on");
                    world.redises[victim].program.signal("-CONT");
                }
            }
            world.wait_live(3, 2 * PATIENCE);
        }
        drop(over);
        let pushed: Vec<String> = working.into_iter().flat_map(|it| it.join().unwrap()).collect();
        let taken: Vec<String> = popping.into_iter().flat_map(|it| it.join().unwrap()).collect();
        (pushed, taken)
    });
    world.settle();
    assert_eq!(world.states().len(), 1, "duplicates differ");
    let mut client = world.client();
    let mut number = |key| client.ask(&["GET", key]).text().unwrap().parse::<u64>().unwrap();
    let (counted, other, watched) = (number("{t}n"), number("{t}v"), number("{t}w"));
    assert!(scripts[0].range().contains(&other), "{other}, {:?}", scripts[0].range());
    assert!(scripts[1].range().contains(&(counted - other)), "{counted}, {other}");
    let range = commits.range();
    let by_commits = watched - (counted - other);
    assert!(range.contains(&by_commits), "{by_commits}, {range:?}");
    let Reply::Array(left) = client.ask(&["LRANGE", "{t}q", "0", "-1"]) else { panic!("a list") };
    taken.extend(left.iter().map(|it| it.text().unwrap().to_owned()));
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    taken.iter().for_each(|item| *times.entry(item).or_default() += 1);
    assert!(times.values().all(|it| *it == 1), "popped twice: {times:?}");
    let missing = pushed.iter().filter(|it| !times.contains_key(it.as_str())).count() as u64;
    let lost = lost.load(Ordering::Relaxed);
    println!("scripts {counted}, commits {range:?}, popped {}, {missing} of {lost}", taken.len());
    assert!(missing <= lost, "{missing} lost, {lost} pops without an answer");
}

/// Two counters of a partition are written by scripts alone, so they are equal at every place in
/// the order; nobody sees one half of a script, or of `FLUSHALL`.
#[test]
fn flushall_gets_its_turn_among_scripts_of_all_partitions() {
    let Some(mut world) = World::of_partitions("mixedflush", 2, 3, |_| {}) else { return };
    let (scripts, is_over) = (&[Tally::default(), Tally::default()], &AtomicBool::new(false));
    let (flushes, address) = (&Tally::default(), world.address);
    let keys = [["{a}1", "{a}2"], ["{b}1", "{b}2"]];
    std::thread::scope(|scope| {
        let over = OverAtEnd(is_over);
        for number in 0..4 {
            let (keys, tally) = (keys[number % 2], &scripts[number % 2]);
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let both = "redis.call('INCR', KEYS[1]) return redis.call('INCR', KEYS[2])";
                while !is_over.load(Ordering::Relaxed) {
                    let reply = client.ask(&["EVAL", both, "2", keys[0], keys[1]]);
                    tally.count(is_done(&reply));
                }
            });
        }
        scope.spawn(move || {
            let mut client = Client::connect(address);
            while !is_over.load(Ordering::Relaxed) {
                for keys in keys {
                    if let Reply::Array(both) = client.ask(&["MGET", keys[0], keys[1]]) {
                        assert_eq!(both[0], both[1], "half of a script");
                    }
                }
                client.ask(&["MSET", "{a}x", "1", "{b}x", "1"]);
            }
        });
        scope.spawn(move || {
            let mut client = Client::connect(address);
            while !is_over.load(Ordering::Relaxed) {
                flushes.count(is_done(&client.ask(&["FLUSHALL"])));
            }
        });
        for victim in [0, 4] {
            let goes_on = |what| {
                let before = [scripts[0].done(), scripts[1].done(), flushes.done()];
                block_until(what, || {
                    let now = [scripts[0].done(), scripts[1].done(), flushes.done()];
                    now.iter().zip(before).all(|(now, before)| *now > before + 5)
                });
            };
            goes_on("all go on");
            world.redises[victim].kill();
            goes_on("the others go on");
            world.redises[victim].start();
            world.wait_live(6, 2 * PATIENCE);
        }
        drop(over);
    });
    world.settle();
    println!("{} flushes, {} and {} scripts", flushes.done(), scripts[0].done(), scripts[1].done());
    let mut client = world.client();
    assert_eq!(client.ask(&["FLUSHALL"]), ok());
    assert_eq!(client.ask(&["EVAL", ADD, "1", "{a}1"]), Reply::Integer(1));
    assert_eq!(client.ask(&["GET", "{a}1"]), bulk("1"));
    world.settle();
    let states: Vec<_> = world.redises.iter().map(|it| contents(&mut it.client())).collect();
    let is_equal = |of: &[_]| of.windows(2).all(|two| two[0] == two[1]);
    assert!(states.chunks(3).all(is_equal), "duplicates differ");
}
