//! All kinds of writes, pipelined, under kills and pauses: what was acknowledged is there, what was
//! refused is not, and all duplicates are equal.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_testkit::redis::{Client, Redis, Reply, State, encoded};
use evenkeel_testkit::wait::AtEnd;

use super::outcome::Outcome;
use super::random::Random;
use super::trouble::Troubles;
use super::world::World;

pub(crate) const SILENCE: &str = "reply_timeout = \"500ms\"\nlog_sync = \"never\"";
const PATIENCE: Duration = Duration::from_secs(3);
const COUNTERS: usize = 8;

/// What became of writes of one name: how often it must be there, and how often it may.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Fate {
    must: i64,
    may: i64,
}

impl Fate {
    fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) | Outcome::Uncertain => self.must += 1,
            Outcome::Unknown => self.may += 1,
            Outcome::Refused(_) => {}
        }
    }

    fn holds(self, found: i64) -> bool {
        (self.must..=self.must + self.may).contains(&found)
    }
}

/// What one client knows of what it wrote.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// By counter.
    counters: BTreeMap<String, Fate>,
    /// By key and member, each written once.
    members: BTreeMap<(String, String), Fate>,
    pub(crate) writes: u64,
    pub(crate) acknowledged: u64,
    pub(crate) refused: u64,
    pub(crate) uncertain: u64,
    pub(crate) unknown: u64,
}

/// One write: its bytes, how many answers it has, and what must be counted.
struct Order {
    answers: usize,
    effect: Effect,
}

enum Effect {
    Nothing,
    Add(Vec<String>),
    Member(String, String),
}

fn order(random: &mut Random, client: usize, serial: u64, out: &mut Vec<u8>) -> Order {
    let member = format!("{client}.{serial};");
    let place = random.below(COUNTERS);
    let one = |effect| Order { answers: 1, effect };
    let mut write = |command: &[&str]| out.extend(encoded(command));
    match random.below(12) {
        0 => {
            write(&["SET", &format!("v{place}"), &member]);
            one(Effect::Nothing)
        }
        1 | 2 => {
            let name = format!("n{place}");
            write(&["INCR", &name]);
            one(Effect::Add(vec![name]))
        }
        3 => {
            let key = format!("h{place}");
            write(&["HSET", &key, &member, "1"]);
            one(Effect::Member(key, member))
        }
        4 => {
            let key = format!("s{place}");
            write(&["SADD", &key, &member]);
            one(Effect::Member(key, member))
        }
        5 => {
            let key = format!("l{place}");
            write(&["LPUSH", &key, &member]);
            one(Effect::Member(key, member))
        }
        6 => {
            let key = format!("a{place}");
            write(&["APPEND", &key, &member]);
            one(Effect::Member(key, member))
        }
        7 => {
            write(&["EXPIRE", &format!("v{place}"), "1000"]);
            one(Effect::Nothing)
        }
        8 => {
            write(&["DEL", &format!("v{place}")]);
            one(Effect::Nothing)
        }
        9 => {
            let (a, b) = (format!("{{g{place}}}a"), format!("{{g{place}}}b"));
            write(&["MULTI"]);
            write(&["INCR", &a]);
            write(&["INCR", &b]);
            write(&["EXEC"]);
            Order { answers: 4, effect: Effect::Add(vec![a, b]) }
        }
        10 => {
            let (a, b) = (format!("{{m{place}}}a"), format!("{{m{place}}}b"));
            write(&["MSET", &a, &member, &b, &member]);
            one(Effect::Nothing)
        }
        // What may fail: of the wrong kind, when somebody has set it.
        _ => {
            write(&["INCRBY", &format!("v{place}"), "3"]);
            one(Effect::Nothing)
        }
    }
}

impl Ledger {
    fn count(&mut self, outcome: &Outcome, effect: Effect) {
        self.writes += 1;
        match outcome {
            Outcome::Done(_) => self.acknowledged += 1,
            Outcome::Refused(_) => self.refused += 1,
            Outcome::Uncertain => self.uncertain += 1,
            Outcome::Unknown => self.unknown += 1,
        }
        match effect {
            Effect::Nothing => {}
            Effect::Add(names) => {
                for name in names {
                    self.counters.entry(name).or_default().count(outcome);
                }
            }
            Effect::Member(key, member) => {
                self.members.entry((key, member)).or_default().count(outcome);
            }
        }
    }

    /// Takes in another's.
    pub(crate) fn merge(&mut self, other: Self) {
        for (name, fate) in other.counters {
            let all = self.counters.entry(name).or_default();
            all.must += fate.must;
            all.may += fate.may;
        }
        self.members.extend(other.members);
        self.writes += other.writes;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.uncertain += other.uncertain;
        self.unknown += other.unknown;
    }

    /// What the final state contradicts.
    pub(crate) fn violations(&self, state: &State) -> Vec<String> {
        let mut found = Vec::new();
        for (name, fate) in &self.counters {
            let value = match state.get(name) {
                Some((value @ Reply::Bulk(_), _)) => value.text().unwrap().parse().unwrap(),
                _ => 0,
            };
            if !fate.holds(value) {
                found.push(format!("{name} is {value}, expected {fate:?}"));
            }
            // Of a group both or none.
            if let Some(group) = name.strip_suffix('a') {
                let of = |name: &str| state.get(name).map(|(value, _)| value);
                if of(name) != of(&format!("{group}b")) {
                    found.push(format!("{group} was torn apart"));
                }
            }
        }
        let mut counted: BTreeMap<(&str, &str), i64> = BTreeMap::new();
        for (key, (value, _)) in state {
            for member in members(key, value) {
                *counted.entry((key, member)).or_default() += 1;
            }
        }
        for ((key, member), fate) in &self.members {
            let count = counted.remove(&(key.as_str(), member.as_str())).unwrap_or(0);
            if !fate.holds(count) {
                found.push(format!("{member} is {count} times in {key}, expected {fate:?}"));
            }
        }
        let strangers: BTreeSet<_> = counted.into_keys().collect();
        if let Some(stranger) = strangers.first() {
            found.push(format!("nobody wrote {stranger:?} ({} such)", strangers.len()));
        }
        found
    }
}

/// The members of sets, hashes, lists and strings that were appended to.
fn members<'a>(key: &str, value: &'a Reply) -> Vec<&'a str> {
    let text = |reply: &'a Reply| reply.text().unwrap_or_else(|| panic!("{reply:?}"));
    match (key.as_bytes()[0], value) {
        (b's' | b'l', Reply::Array(items)) => items.iter().map(text).collect(),
        (b'h', Reply::Array(items)) => items.iter().step_by(2).map(text).collect(),
        (b'a', all @ Reply::Bulk(_)) => text(all).split_inclusive(';').collect(),
        _ => Vec::new(),
    }
}

/// Writes batches until as many writes are out as were wanted.
pub(crate) fn write(
    address: SocketAddr,
    id: usize,
    seed: u64,
    left: &AtomicU64,
    batch: usize,
) -> Ledger {
    write_to(&[address], id, seed, left, batch)
}

/// The same where fronts take turns: one that led may not apply what it was uncertain of.
pub(crate) fn write_to(
    addresses: &[SocketAddr],
    id: usize,
    seed: u64,
    left: &AtomicU64,
    batch: usize,
) -> Ledger {
    let (mut ledger, mut random) = (Ledger::default(), Random(seed));
    let (mut client, mut serial, mut place) = (None, 0, id);
    let (mut text, mut orders) = (Vec::new(), Vec::new());
    while left
        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(batch as u64))
        .is_ok()
    {
        while client.is_none() {
            client = Client::try_connect(addresses[place % addresses.len()], PATIENCE).ok();
            if client.is_none() {
                place += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let connected = client.as_mut().unwrap();
        text.clear();
        for _ in 0..batch {
            serial += 1;
            orders.push(order(&mut random, id, serial, &mut text));
        }
        let mut is_broken = connected.try_send(&text).is_err();
        let mut is_refused = false;
        for Order { answers, effect } in orders.drain(..) {
            let mut outcome = Outcome::Unknown;
            for _ in 0..answers {
                if !is_broken {
                    outcome = Outcome::of(connected.try_read());
                    is_broken = outcome == Outcome::Unknown;
                }
            }
            if is_broken {
                outcome = Outcome::Unknown;
            }
            if !matches!(effect, Effect::Nothing)
                && let Outcome::Done(Reply::Error(text)) = &outcome
            {
                panic!("refused, but why? {text}");
            }
            is_refused |= matches!(outcome, Outcome::Refused(_));
            if outcome == Outcome::Uncertain && addresses.len() > 1 {
                outcome = Outcome::Unknown;
            }
            ledger.count(&outcome, effect);
        }
        if is_broken {
            (client, place) = (None, place + 1);
        }
        // A soak lasts long: values must not grow without end.
        if is_refused || addresses.len() > 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    ledger
}

/// So many writes under trouble, then the reckoning.
pub(crate) fn under_trouble(level: &str, writes: u64, batch: usize, seed: u64) {
    let settings = format!("acknowledge = \"{level}\"\n{SILENCE}");
    let Some(mut world) = World::start(&format!("mixed-{level}-{seed}"), &settings) else { return };
    let (address, left, begun) = (world.front.address, AtomicU64::new(writes), Instant::now());
    let (mut troubles, mut ledger) = (Troubles::default(), Ledger::default());
    std::thread::scope(|scope| {
        let left = &left;
        let _over = AtEnd(|| left.store(0, Ordering::Relaxed));
        let clients: Vec<_> = (0..4)
            .map(|id| scope.spawn(move || write(address, id, seed * 10 + id as u64, left, batch)))
            .collect();
        let mut random = Random(seed);
        while left.load(Ordering::Relaxed) >= batch as u64
            && !clients.iter().any(std::thread::ScopedJoinHandle::is_finished)
        {
            troubles.make(&mut world, &mut random);
        }
        for client in clients {
            ledger.merge(client.join().unwrap());
        }
    });
    let (lasted, ended) = (begun.elapsed(), Instant::now());
    world.front.settle(3);
    let converged = ended.elapsed();
    let state = world.converged();
    let violations = ledger.violations(&state);
    println!(
        "mixed at {level}: {} writes in {lasted:?} ({} acknowledged, {} refused, {} uncertain, \
         {} unknown) under {troubles:?}; {} violations; all live and settled {converged:?} later",
        ledger.writes,
        ledger.acknowledged,
        ledger.refused,
        ledger.uncertain,
        ledger.unknown,
        violations.len()
    );
    assert!(violations.is_empty(), "{:#?}", &violations[..violations.len().min(10)]);
    assert_eq!(world.front.disagreements(), 0);
}

/// Level `one`: only one duplicate takes the last writes, and is lost with its disk; then, in
/// another life, the front's log with it. What is lost is counted and printed.
pub(crate) fn what_one_loses(with_log: bool) {
    let settings = format!("acknowledge = \"one\"\n{SILENCE}");
    let name = format!("one-{with_log}");
    let Some(mut world) = World::start(&name, &settings) else { return };
    let mut client = world.front.client();
    for n in 0..500 {
        client.ask(&["SADD", "s", &format!("before{n}")]);
    }
    world.front.settle(3);
    std::thread::sleep(Duration::from_millis(250)); // watermarks
    for stopped in [1, 2] {
        world.redises[stopped].program.signal("-STOP");
    }
    let mut acknowledged = 0;
    for n in 0..500 {
        let asked = Outcome::of(client.try_ask(&["SADD", "s", &format!("after{n}")]));
        acknowledged += usize::from(matches!(asked, Outcome::Done(_)));
    }
    world.front.process.kill();
    world.redises[0].program.kill();
    world.redises[0].wipe();
    // What waits in their sockets was sent to them, and is not what is asked about: they are
    // killed too.
    for stopped in [1, 2] {
        world.redises[stopped].program.kill();
    }
    if with_log {
        std::fs::remove_dir_all(&world.front.directory).unwrap();
    }
    world.redises.iter_mut().for_each(Redis::start);
    world.front.start();
    world.front.settle(3);
    let state = world.converged();
    let Some((Reply::Array(members), _)) = state.get("s") else { panic!("{state:?}") };
    let lost = 500 + acknowledged - members.len();
    let what =
        if with_log { "a duplicate, its disk and the log" } else { "a duplicate and its disk" };
    println!("level one, without {what}: {lost} of {acknowledged} acknowledged writes are lost");
    assert_eq!(acknowledged, 500);
    if with_log {
        assert!(lost <= 500, "what three had is lost: {lost}");
    } else {
        assert_eq!(lost, 0);
    }
}

/// A duplicate dies after its first write and before anybody told it its watermark.
pub(crate) fn killed_before_the_first_watermark() {
    let settings = format!("acknowledge = \"one\"\n{SILENCE}");
    let Some(mut world) = World::start("unmarked", &settings) else { return };
    let mut client = world.front.client();
    assert!(matches!(client.try_ask(&["SET", "a", "1"]), Ok(Reply::Simple(_))));
    for redis in &mut world.redises {
        redis.kill();
    }
    world.redises.iter_mut().for_each(Redis::start);
    world.front.settle(3);
    assert!(world.converged().contains_key("a"));
}

/// How long a duplicate that missed so many writes takes to be live again.
pub(crate) fn rejoin(writes: u64) -> Option<Duration> {
    let settings = format!("acknowledge = \"majority\"\n{SILENCE}");
    let mut world = World::start("rejoin", &settings)?;
    world.redises[1].program.kill();
    let (address, left) = (world.front.address, AtomicU64::new(writes));
    let begun = Instant::now();
    let ledgers: Vec<Ledger> = std::thread::scope(|scope| {
        let left = &left;
        let clients: Vec<_> = (0..2)
            .map(|id| scope.spawn(move || write(address, id, id as u64, left, 100)))
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    let wrote = begun.elapsed();
    world.redises[1].start();
    let begun = Instant::now();
    world.front.wait_live(3);
    let lasted = begun.elapsed();
    println!("rejoin: {writes} writes in {wrote:?}, live again after {lasted:?}");
    world.front.settle(3);
    let state = world.converged();
    let mut ledger = Ledger::default();
    ledgers.into_iter().for_each(|other| ledger.merge(other));
    assert_eq!(ledger.violations(&state), Vec::<String>::new());
    Some(lasted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_there_twice_is_found() {
        let bulk = |text: &str| Reply::bulk(text);
        let with = |counter: &str, members: &[&str]| {
            let members = members.iter().map(|it| bulk(it)).collect();
            State::from([
                ("n1".to_owned(), (bulk(counter), Reply::Integer(-1))),
                ("l1".to_owned(), (Reply::Array(members), Reply::Integer(-1))),
            ])
        };
        let mut ledger = Ledger::default();
        let done = Outcome::Done(Reply::Integer(1));
        for outcome in [&done, &done, &Outcome::Unknown, &Outcome::Uncertain] {
            ledger.count(outcome, Effect::Add(vec!["n1".to_owned()]));
        }
        let member = |name: &str| Effect::Member("l1".to_owned(), name.to_owned());
        ledger.count(&done, member("1;"));
        ledger.count(&Outcome::Unknown, member("2;"));
        ledger.count(&Outcome::Refused(String::new()), member("3;"));
        for (counter, members, is_good) in [
            ("3", &["1;"][..], true),
            ("4", &["2;", "1;"], true),
            ("2", &["1;"], false),             // an acknowledged one is lost
            ("5", &["1;"], false),             // one was counted twice
            ("3", &[], false),                 // lost
            ("3", &["1;", "1;"], false),       // twice
            ("3", &["1;", "2;", "2;"], false), // once at most
            ("3", &["1;", "3;"], false),       // it was refused
            ("3", &["1;", "4;"], false),       // nobody wrote it
        ] {
            let violations = ledger.violations(&with(counter, members));
            assert_eq!(violations.is_empty(), is_good, "{counter} {members:?}: {violations:?}");
        }
    }

    #[test]
    fn a_group_that_was_torn_apart_is_found() {
        let mut ledger = Ledger::default();
        let both = vec!["{g0}a".to_owned(), "{g0}b".to_owned()];
        ledger.count(&Outcome::Unknown, Effect::Add(both));
        let one = (Reply::bulk("1"), Reply::Integer(-1));
        let mut state = State::from([("{g0}a".to_owned(), one.clone())]);
        assert_eq!(ledger.violations(&state), ["{g0} was torn apart"]);
        state.insert("{g0}b".to_owned(), one);
        assert!(ledger.violations(&state).is_empty());
    }
}
