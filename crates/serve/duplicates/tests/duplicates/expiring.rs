//! Keys that are used at their deadlines, at duplicates whose clocks differ: all stay equal, and
//! each client's replies have one moment at which the key expired.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evenkeel_duplicates::{DuplicatesConfig, Target};
use evenkeel_ordered::{Acknowledge, Consistency};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::redis::{self, Client, Redis, Reply, clock_library, contents};
use evenkeel_testkit::story::skipped;
use evenkeel_testkit::wait::{PATIENCE, block_until, block_until_within};

use super::world::World;
use super::{bulk, ok};

/// By how many ms the clocks of the three are ahead.
const CLOCKS_MS: [i64; 3] = [0, 25, -25];
/// A database beside the first.
const OTHER: &str = "3";
/// A key may go so many ms before its deadline by the machine's clock: readings of clocks are as
/// exact as a round trip, and the margin.
const EARLY_MS: i64 = 200;

struct Clocks {
    redises: Vec<Redis>,
    world: World,
    _folder: Folder,
}

fn start(name: &str, change: impl FnOnce(&mut DuplicatesConfig)) -> Option<Clocks> {
    if let Err(missing) = redis::possible() {
        skipped(&missing);
        return None;
    }
    let folder = Folder::new(&format!("duplicates-{name}-clocks"));
    let library = clock_library(folder.path())?;
    let begin =
        |(n, ms): (usize, &i64)| Redis::ahead(folder.file(&format!("redis-{n}")), &library, *ms);
    let redises: Vec<Redis> = CLOCKS_MS.iter().enumerate().map(begin).collect();
    let target =
        |redis: &Redis| Target::Tcp { address: redis.address.into(), access: Arc::default() };
    let world = World::over(name, vec![redises.iter().map(target).collect()], 3, |config| {
        config.check_rate = 0;
        change(config);
    });
    Some(Clocks { redises, world, _folder: folder })
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    since.as_millis().try_into().unwrap()
}

/// A value, and between which times its deadline is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Held {
    value: Value,
    deadline: Option<(i64, i64)>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Value {
    Text(String),
    List(i64),
}

/// What one client's keys may be, as Redis does it: keys that are there, by name.
type Possible = BTreeMap<&'static str, Held>;

/// Everything that may be so: by every key that can have expired, twice as much.
struct Model {
    possible: BTreeSet<Possible>,
    /// What was asked last, for people.
    last: Vec<String>,
}

impl Model {
    /// The command was sent and answered at these times.
    fn asked(&mut self, words: &[String], reply: &Reply, (sent, came): (i64, i64)) {
        let said = format!("{sent} {words:?}: {reply:?} {came}");
        self.last.push(said);
        if self.last.len() > 20 {
            self.last.remove(0);
        }
        let before = self.possible.clone();
        let mut open: Vec<Possible> = before.iter().cloned().collect();
        let mut possible = BTreeSet::new();
        while let Some(one) = open.pop() {
            if !possible.insert(one.clone()) {
                continue;
            }
            for (name, held) in &one {
                if held.deadline.is_some_and(|(first, _)| first - EARLY_MS <= came) {
                    let mut without = one.clone();
                    without.remove(name);
                    open.push(without);
                }
            }
        }
        // What is past by the machine's clock when it is sent is gone.
        let is_over = |held: &Held| held.deadline.is_some_and(|(_, last)| last < sent);
        possible.retain(|one| !one.values().any(is_over));
        self.possible = possible
            .into_iter()
            .filter_map(|mut one| (act(&mut one, words, (sent, came)) == *reply).then_some(one))
            .collect();
        assert!(
            !self.possible.is_empty(),
            "possible was {before:#?} before the last of {:#?}",
            self.last
        );
    }
}

fn number(value: i64) -> Reply {
    Reply::Integer(value)
}

fn text(held: Option<&Held>) -> Reply {
    match held.map(|held| &held.value) {
        Some(Value::Text(text)) => bulk(text),
        _ => Reply::Null,
    }
}

/// What Redis does with a command, if all these keys are there.
fn act(keys: &mut Possible, words: &[String], (sent, came): (i64, i64)) -> Reply {
    let names = ["{x}a", "{x}b", "{x}l"];
    let named = |at: usize| names.into_iter().find(|name| *name == words[at]).unwrap();
    let within = |at: usize| -> Option<(i64, i64)> {
        let ms: i64 = words[at].parse().unwrap();
        // A duplicate's clock that is ahead is added, and how exactly it was read.
        Some((sent + ms, came + ms + 25 + 1))
    };
    let increased = |held: Option<Held>| -> (i64, Held) {
        let mut held = held.unwrap_or(Held { value: Value::Text("0".into()), deadline: None });
        let Value::Text(text) = &held.value else { panic!("no text") };
        let n = text.parse::<i64>().unwrap() + 1;
        held.value = Value::Text(n.to_string());
        (n, held)
    };
    match words[0].as_str() {
        "GET" => text(keys.get(named(1))),
        "SET" => {
            let deadline = if words.len() > 3 { within(4) } else { None };
            keys.insert(named(1), Held { value: Value::Text(words[2].clone()), deadline });
            ok()
        }
        "SETNX" if keys.contains_key(named(1)) => number(0),
        "SETNX" => {
            keys.insert(named(1), Held { value: Value::Text(words[2].clone()), deadline: None });
            number(1)
        }
        "INCR" | "EVAL" => {
            let name = named(if words[0] == "EVAL" { 3 } else { 1 });
            let (n, held) = increased(keys.remove(name));
            keys.insert(name, held);
            number(n)
        }
        "APPEND" => {
            let name = named(1);
            let held = keys.remove(name);
            let mut held = held.unwrap_or(Held { value: Value::Text("".into()), deadline: None });
            let Value::Text(text) = &mut held.value else { panic!("no text") };
            text.push_str(&words[2]);
            let length = text.len();
            keys.insert(name, held);
            number(length as i64)
        }
        "PEXPIRE" => match keys.get_mut(named(1)) {
            Some(held) => {
                held.deadline = within(2);
                number(1)
            }
            None => number(0),
        },
        "PERSIST" => {
            let held = keys.get_mut(named(1));
            number(held.is_some_and(|held| held.deadline.take().is_some()).into())
        }
        "GETEX" => {
            let reply = text(keys.get(named(1)));
            if let Some(held) = keys.get_mut(named(1)) {
                held.deadline = within(3);
            }
            reply
        }
        "LPUSH" => {
            let held =
                keys.entry(named(1)).or_insert(Held { value: Value::List(0), deadline: None });
            let Value::List(length) = &mut held.value else { panic!("no list") };
            *length += 1;
            number(*length)
        }
        "LLEN" => match keys.get(named(1)).map(|held| &held.value) {
            Some(Value::List(length)) => number(*length),
            _ => number(0),
        },
        "RENAME" => match keys.remove(named(1)) {
            Some(held) => {
                keys.insert(named(2), held);
                ok()
            }
            None => Reply::Error("ERR no such key".into()),
        },
        "COPY" => match keys.get(named(1)).cloned() {
            Some(held) => {
                keys.insert(named(2), held);
                number(1)
            }
            None => number(0),
        },
        "DEL" => number(keys.remove(named(1)).is_some().into()),
        other => panic!("{other}"),
    }
}

/// Numbers that differ from run to run only with the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

const SCRIPT: &str = "return redis.call('INCR', KEYS[1])";

fn command(dice: &mut Dice) -> Vec<String> {
    let ttl = 20 + dice.roll(100);
    let key = ["{x}a", "{x}b"][dice.roll(2) as usize];
    let line = match dice.roll(21) {
        0..=3 => format!("SET {key} 5 PX {ttl}"),
        4..=6 => format!("INCR {key}"),
        7 => format!("APPEND {key} 1"),
        8 => format!("SETNX {key} 7"),
        9..=10 => format!("PEXPIRE {key} {ttl}"),
        11 => format!("PERSIST {key}"),
        12 => format!("GETEX {key} PX {ttl}"),
        13 => "LPUSH {x}l v".to_owned(),
        14 => format!("PEXPIRE {{x}}l {ttl}"),
        15 => "LLEN {x}l".to_owned(),
        16 => "RENAME {x}a {x}b".to_owned(),
        17 => "COPY {x}a {x}b REPLACE".to_owned(),
        18 => format!("DEL {key}"),
        19 => format!("EVAL {SCRIPT:?} 1 {key}"),
        _ => format!("GET {key}"),
    };
    if line.starts_with("EVAL") {
        return ["EVAL", SCRIPT, "1", key].map(str::to_owned).to_vec();
    }
    line.split(' ').map(str::to_owned).collect()
}

/// One client's commands in a database, each at some time around the deadlines; `tag` makes its
/// keys its own.
fn history(
    mut client: Client,
    (level, database, tag): (&str, &str, &str),
    seed: u64,
    count: usize,
) {
    assert_eq!(client.ask(&["EK.SESSION", level]), ok());
    assert_eq!(client.ask(&["SELECT", database]), ok());
    let mut dice = Dice(seed);
    let mut model = Model { possible: [Possible::new()].into(), last: Vec::new() };
    for _ in 0..count {
        if dice.roll(3) == 0 {
            thread::sleep(Duration::from_millis(dice.roll(60)));
        }
        let words = command(&mut dice);
        let own: Vec<String> = words.iter().map(|word| word.replace("{x}", tag)).collect();
        let own: Vec<&str> = own.iter().map(String::as_str).collect();
        let sent = now_ms();
        let reply = client.ask(&own);
        model.asked(&words, &reply, (sent, now_ms()));
    }
}

fn seed() -> u64 {
    let seed = std::env::var("EXPIRING_SEED").ok().and_then(|it| it.parse().ok());
    let seed = seed.unwrap_or_else(|| now_ms() as u64);
    println!("EXPIRING_SEED={seed}"); // shown where it fails
    seed
}

fn are_equal(clocks: &Clocks) {
    let of = |redis: &Redis| {
        ["0", OTHER].map(|database| {
            let mut client = redis.client();
            assert_eq!(client.ask(&["SELECT", database]), ok());
            contents(&mut client)
        })
    };
    clocks.world.settle();
    let mut states = Vec::new();
    block_until("all hold the same", || {
        states = clocks.redises.iter().map(of).collect();
        states.windows(2).all(|two| two[0] == two[1])
    });
}

#[test]
fn a_history_at_deadlines_leaves_all_equal_and_each_key_expires_once() {
    for (name, level) in [("expiring", "read-my-own-writes"), ("expiring-strong", "strong")] {
        let Some(clocks) = start(name, |_| {}) else { return };
        let seed = seed();
        let clients: Vec<_> = (0..4_u64)
            .map(|n| {
                let client = clocks.world.client();
                let tag = format!("{{{}}}", n / 2); // two have keys of the same names
                let database = ["0", OTHER][(n % 2) as usize];
                let seed = seed + n * 7_919 + 1;
                thread::spawn(move || history(client, (level, database, &tag), seed, 1_500))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        are_equal(&clocks);
        let state = clocks.world.state_now();
        let duplicates = state.partitions[0].duplicates.iter();
        let diverged: u64 = duplicates.map(|it| it.dropped.diverged).sum();
        println!(
            "{level}: {} expired at one place, {} disagreements, {diverged} filled again",
            state.expired_keys, state.disagreements
        );
        assert!(state.expired_keys > 20, "nothing was at its deadline");
    }
}

/// A front that begins knows no deadlines: it asks, and lists all keys.
#[test]
fn a_front_that_begins_learns_the_deadlines() {
    let Some(mut clocks) = start("expiring-again", |_| {}) else { return };
    let mut client = clocks.world.client();
    for n in 0..300 {
        let ttl = if n % 2 == 0 { "1500" } else { "3000" };
        assert_eq!(client.ask(&["SET", &format!("k{n}"), "5", "PX", ttl]), ok());
    }
    clocks.world.restart();
    let mut client = clocks.world.client();
    let begun = now_ms();
    let mut n = 0;
    while now_ms() < begun + 3_200 {
        let reply = client.ask(&["INCR", &format!("k{}", n % 300)]);
        assert!(matches!(reply, Reply::Integer(_)), "{reply:?}");
        n += 1;
    }
    block_until_within(Duration::from_secs(5), "deadlines have passed", || {
        now_ms() > begun + 3_500
    });
    are_equal(&clocks);
    assert_eq!(clocks.world.live(), 3);
}

/// A duplicate that stands still does late what others did before a deadline: it keeps nothing.
#[test]
fn a_duplicate_that_stands_still_across_a_deadline_ends_equal() {
    let Some(clocks) = start("expiring-late", |config| {
        config.consistency = Consistency::Strong;
    }) else {
        return;
    };
    let mut client = clocks.world.client();
    for n in 0..10 {
        let key = format!("k{n}");
        assert_eq!(client.ask(&["SET", &key, "5", "PX", "150"]), ok());
        clocks.world.settle();
        clocks.redises[2].program.signal("-STOP");
        assert_eq!(client.ask(&["INCR", &key]), Reply::Integer(6), "a majority has it");
        block_until("its deadline has passed", || client.ask(&["GET", &key]) == Reply::Null);
        clocks.redises[2].program.signal("-CONT");
        clocks.world.settle();
    }
    are_equal(&clocks);
    assert_eq!(clocks.redises[2].client().ask(&["EXISTS", "k0", "k1", "k2"]), Reply::Integer(0));
}

/// Increments a key until after its deadline; whether no duplicate can have stood still across it.
/// All acknowledge, so what is answered before anybody's clock is there was not late.
fn incremented(client: &mut Client, key: &str) -> bool {
    const TTL: Duration = Duration::from_millis(60);
    let begun = Instant::now();
    assert_eq!(client.ask(&["SET", key, "5", "PX", &TTL.as_millis().to_string()]), ok());
    let (mut last, mut expired, mut is_steady) = (5, 0, true);
    block_until("its deadline has passed everywhere", || {
        let Reply::Integer(now) = client.ask(&["INCR", key]) else { panic!("{key}") };
        assert!(now == last + 1 || now == 1, "{key}: {now} behind {last}");
        expired += u32::from(now == 1);
        is_steady &= expired > 0 || begun.elapsed() < TTL;
        last = now;
        client.ask(&["PTTL", key]) == Reply::Integer(-1) && last > 20
    });
    assert_eq!(expired, 1, "{key} expired once");
    is_steady
}

/// Each key is written until after its deadline: some duplicate has it no more, and others do.
/// Where one stands still across it, as on a busy machine, it is done with another key.
#[test]
fn keys_of_another_database_expire_alike_where_clocks_are_50_ms_apart() {
    let Some(clocks) = start("expiring-elsewhere", |config| {
        config.members.acknowledge = Acknowledge::All;
    }) else {
        return;
    };
    let mut client = clocks.world.client();
    assert_eq!(client.ask(&["SELECT", OTHER]), ok());
    let (mut steady, mut all, mut before) = (0, 0, clocks.world.state_now());
    while steady < 20 {
        assert!(all < 400, "{steady} of {all} keys were removed while nobody stood still");
        let is_steady = incremented(&mut client, &format!("k{all}"));
        let now = clocks.world.state_now();
        let disagreements = now.disagreements - before.disagreements;
        assert!(!is_steady || disagreements == 0, "k{all}: {disagreements} disagreements");
        steady += u32::from(is_steady && now.expired_keys > before.expired_keys);
        (all, before) = (all + 1, now);
        clocks.world.wait_live(3, PATIENCE);
    }
    println!("{all} keys, {} disagreements where somebody stood still", before.disagreements);
    are_equal(&clocks);
}

/// All stand still across a deadline: an increment of before it would make a new key, which then
/// goes. So it is done again.
#[test]
fn a_write_that_all_do_too_late_is_done_again() {
    let Some(clocks) = start("expiring-too-late", |_| {}) else { return };
    let mut client = clocks.world.client();
    assert_eq!(client.ask(&["SELECT", OTHER]), ok());
    assert_eq!(client.ask(&["SET", "k", "5", "PX", "400"]), ok());
    clocks.world.settle();
    let set = now_ms();
    clocks.redises.iter().for_each(|redis| redis.program.signal("-STOP"));
    client.tell(&["INCR", "k"]);
    block_until("its deadline has passed everywhere", || now_ms() > set + 500);
    clocks.redises.iter().for_each(|redis| redis.program.signal("-CONT"));
    assert_eq!(client.read(), Reply::Integer(1), "it has expired, for all");
    assert_eq!(client.ask(&["GET", "k"]), bulk("1"), "and the new one has no deadline");
    are_equal(&clocks);
}

/// What a script does too late makes a new key at its executor, where the old one had gone before:
/// the others must have it as well.
#[test]
fn what_a_script_makes_behind_a_deadline_stays() {
    let Some(clocks) = start("expiring-script", |_| {}) else { return };
    let mut client = clocks.world.client();
    for n in 0..5 {
        let key = format!("k{n}");
        assert_eq!(client.ask(&["SET", &key, "5", "PX", "300"]), ok());
        clocks.world.settle();
        let set = now_ms();
        clocks.redises.iter().for_each(|redis| redis.program.signal("-STOP"));
        client.tell(&["EVAL", "return redis.call('INCR', KEYS[1])", "1", &key]);
        block_until("its deadline has passed everywhere", || now_ms() > set + 400);
        clocks.redises.iter().for_each(|redis| redis.program.signal("-CONT"));
        assert_eq!(client.read(), number(1), "it has expired");
        assert_eq!(client.ask(&["GET", &key]), bulk("1"), "and the new one has no deadline");
        clocks.world.settle();
    }
    are_equal(&clocks);
}

/// Nobody looks at the key when its deadline passes, so the log has no `DEL` of it: done again
/// behind it, the second increment would make a new key that never expires.
#[test]
fn what_has_expired_does_not_come_back_with_who_lost_it() {
    let Some(mut clocks) = start("expired-comes-back", |_| {}) else { return };
    let mut client = clocks.world.client();
    let mut until = 0;
    for key in ["a", "b"] {
        assert_eq!(client.ask(&["INCR", key]), number(1));
        assert_eq!(client.ask(&["PEXPIRE", key, "1500"]), number(1));
        assert_eq!(client.ask(&["INCR", key]), number(2));
        until = now_ms() + 1_500;
    }
    clocks.world.settle();
    clocks.redises[0].kill();
    block_until("it is gone", || clocks.world.live() == 2);
    assert_eq!(client.ask(&["INCR", "stays"]), number(1));
    block_until("the deadlines have passed", || now_ms() > until + 100);
    clocks.redises[0].wipe();
    clocks.redises[0].start();
    clocks.world.wait_live(3, super::beside::SOON);
    are_equal(&clocks);
    let held = contents(&mut clocks.redises[0].client());
    assert!(!held.contains_key("a") && held.contains_key("stays"), "{held:?}");
}
