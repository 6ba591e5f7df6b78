//! Duplicates with clocks of their own, and one front that decides when a key has expired: each
//! reply is the same at all of them, and so is what they hold in the end.

use std::collections::BTreeMap;

use evenkeel_ordered::{Answered, Clocks, Deadlines, Judgement, ServerSet};
use proptest::prelude::*;

const DUPLICATES: usize = 3;
/// What a command takes to a duplicate that is not late.
const WAY_US_MAX: i64 = 1_000;
/// Longer than any deadline.
const LONG_MS: i64 = 100_000;

#[derive(Clone, Copy, Debug)]
enum Command {
    SetFor(u64, i64),
    Set(u64),
    SetIfNone(u64),
    Increment(u64),
    ExpireIn(u64, i64),
    Persist(u64),
    Rename(u64, u64),
    Remove(u64),
    Get(u64),
}

/// As it is sent: with absolute times.
#[derive(Clone, Copy, Debug)]
enum Sent {
    SetUntil(u64, i64),
    Plain(Command),
    ExpireAt(u64, i64),
    ExpireAtIfNever(u64, i64),
}

use Command as C;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Duplicate(BTreeMap<u64, (i64, Option<i64>)>);

impl Duplicate {
    /// What Redis does at this time of its clock.
    fn act(&mut self, sent: Sent, now: i64) -> i64 {
        self.0.retain(|_, (_, at)| at.is_none_or(|at| now <= at));
        match sent {
            Sent::SetUntil(key, at) => self.0.insert(key, (5, Some(at))).map_or(0, |_| 0),
            Sent::ExpireAt(key, at) => match self.0.get_mut(&key) {
                Some(held) => {
                    held.1 = Some(at);
                    1
                }
                None => 0,
            },
            Sent::ExpireAtIfNever(key, at) => match self.0.get_mut(&key) {
                Some(held) if held.1.is_none() => {
                    held.1 = Some(at);
                    1
                }
                _ => 0,
            },
            Sent::Plain(command) => self.act_plain(command),
        }
    }

    fn act_plain(&mut self, command: Command) -> i64 {
        match command {
            C::Set(key) => self.0.insert(key, (7, None)).map_or(0, |_| 0),
            C::SetIfNone(key) if self.0.contains_key(&key) => 0,
            C::SetIfNone(key) => self.0.insert(key, (9, None)).map_or(1, |_| 1),
            C::Increment(key) => {
                let held = self.0.entry(key).or_insert((0, None));
                held.0 += 1;
                held.0
            }
            C::Persist(key) => {
                i64::from(self.0.get_mut(&key).is_some_and(|held| held.1.take().is_some()))
            }
            C::Rename(from, to) => match self.0.remove(&from) {
                Some(held) => self.0.insert(to, held).map_or(1, |_| 1),
                None => -1,
            },
            C::Remove(key) => i64::from(self.0.remove(&key).is_some()),
            C::Get(key) => self.0.get(&key).map_or(-1, |held| held.0),
            C::SetFor(..) | C::ExpireIn(..) => unreachable!("sent with their times"),
        }
    }

    /// Whether a key had expired for a write behind this time, of one that keeps no time itself.
    fn is_over(&self, known: &Deadlines, key: u64, passed: i64) -> bool {
        match known.before_write(key, passed) {
            Judgement::Leave => false,
            Judgement::Remove => true,
            Judgement::Ask => {
                self.0.get(&key).and_then(|held| held.1).is_some_and(|at| at <= passed)
            }
        }
    }

    /// As `PEXPIRETIME`.
    fn deadline(&mut self, key: u64, now: i64) -> i64 {
        self.0.retain(|_, (_, at)| at.is_none_or(|at| now <= at));
        self.0.get(&key).map_or(-2, |(_, at)| at.unwrap_or(-1))
    }
}

/// What is known of deadlines behind a command.
fn note(deadlines: &mut Deadlines, sent: Sent, now: i64) {
    match sent {
        Sent::SetUntil(key, at) => deadlines.set(key, at),
        Sent::ExpireAt(key, at) => deadlines.moved(key, at, now),
        Sent::Plain(C::Set(key) | C::Persist(key) | C::Remove(key)) => deadlines.cleared(key),
        Sent::Plain(C::SetIfNone(key)) => deadlines.if_absent(key, None, now),
        Sent::Plain(C::Increment(key)) => deadlines.kept(key, now),
        Sent::Plain(C::Rename(from, to)) => deadlines.carried(from, to),
        Sent::Plain(_) | Sent::ExpireAtIfNever(..) => {}
    }
}

/// The keys on whose being there it depends what a command does.
fn depends_on(sent: Sent) -> Vec<u64> {
    match sent {
        Sent::ExpireAt(key, _) | Sent::ExpireAtIfNever(key, _) => vec![key],
        Sent::Plain(C::Rename(from, to)) => vec![from, to],
        Sent::Plain(C::SetIfNone(key) | C::Increment(key) | C::Persist(key)) => vec![key],
        Sent::SetUntil(..) | Sent::Plain(_) => vec![],
    }
}

/// A front and its duplicates; `ahead` is by how many µs each clock is ahead.
struct World {
    deadlines: Deadlines,
    clocks: Clocks,
    duplicates: Vec<Duplicate>,
    ahead_us: [i64; DUPLICATES],
    now_us: i64,
    /// What the last one is behind the others.
    late_us: i64,
    removed: usize,
    /// Every write, and up to when deadlines had passed before it, where that was told.
    log: Vec<(Option<i64>, Sent)>,
}

impl World {
    fn new(ahead_us: [i64; DUPLICATES], is_complete: bool) -> Self {
        let (now_us, duplicates) = (1_000_000_000, vec![Duplicate::default(); DUPLICATES]);
        let (mut deadlines, mut clocks) = (Deadlines::default(), Clocks::default());
        let all: ServerSet = (0..DUPLICATES).collect();
        for (server, ahead) in ahead_us.iter().enumerate() {
            clocks.told(server, (now_us, now_us + 400), now_us + 200 + ahead);
        }
        deadlines.read(&clocks, all);
        if is_complete {
            deadlines.complete(now_us / 1_000);
        }
        let log = Vec::new();
        Self { deadlines, clocks, duplicates, ahead_us, now_us, late_us: 0, removed: 0, log }
    }

    const fn now(&self) -> i64 {
        self.now_us / 1_000
    }

    /// What all say to a command that comes to each after a while.
    fn send(&mut self, sent: Sent, ways: [i64; DUPLICATES]) -> Vec<i64> {
        if !matches!(sent, Sent::Plain(C::Get(_))) {
            self.log.push((self.deadlines.take_passed(), sent));
        }
        let late = [0, 0, self.late_us];
        let at = |n: usize| (self.now_us + self.ahead_us[n] + ways[n] + late[n]) / 1_000;
        let each = self.duplicates.iter_mut().enumerate();
        each.map(|(n, duplicate)| duplicate.act(sent, at(n))).collect()
    }

    /// Before a command: its keys are looked at.
    fn look(&mut self, key: u64, is_read: bool, who: usize) {
        let deadlines = &self.deadlines;
        let judgement = match is_read {
            true => deadlines.before_read(key, self.now()),
            false => deadlines.before_write(key, self.now()),
        };
        let is_over = match judgement {
            Judgement::Leave => return,
            Judgement::Remove => true,
            Judgement::Ask => {
                let number = self.deadlines.ask(key);
                self.asked(key, number, who)
            }
        };
        if is_over {
            self.removed += 1;
            self.send(Sent::Plain(C::Remove(key)), [0; DUPLICATES]);
            self.deadlines.cleared(key);
        }
    }

    /// One after the other is asked, from this one on; whether the key has expired.
    fn asked(&mut self, key: u64, number: u64, who: usize) -> bool {
        for n in 0..DUPLICATES {
            let who = (who + n) % DUPLICATES;
            let at = (self.now_us + self.ahead_us[who]) / 1_000;
            let said = self.duplicates[who].deadline(key, at);
            match self.deadlines.answered(key, number, said, self.now()) {
                Answered::Settled => return false,
                Answered::Expired => return true,
                Answered::GoneThere => {}
            }
        }
        let now = self.now();
        self.deadlines.gone(key, number, now);
        false
    }

    /// One command of a client; what each duplicate answers.
    fn ask(&mut self, command: Command, who: usize, ways: [i64; DUPLICATES]) -> Vec<i64> {
        let (keys, is_read) = match command {
            C::SetFor(..) | C::Set(_) => (vec![], false),
            C::Rename(from, to) => (vec![from, to], false),
            C::Get(key) | C::Remove(key) => (vec![key], true),
            C::SetIfNone(key) | C::Increment(key) | C::ExpireIn(key, _) | C::Persist(key) => {
                (vec![key], false)
            }
        };
        self.deadlines.is_quiet(self.now());
        keys.iter().for_each(|key| self.look(*key, is_read, who));
        let all: ServerSet = (0..DUPLICATES).collect();
        let from = self.now() + self.clocks.ahead_ms(all);
        let sent = match command {
            C::SetFor(key, ms) => Sent::SetUntil(key, from + ms),
            C::ExpireIn(key, ms) => Sent::ExpireAt(key, from + ms),
            other => Sent::Plain(other),
        };
        let again = match command {
            C::Increment(key) => Some(key).zip(self.deadlines.restated(key, self.now(), false)),
            _ => None,
        };
        let answers = self.send(sent, ways);
        if let Some((key, at)) = again {
            self.send(Sent::ExpireAtIfNever(key, at), ways);
        }
        let now = self.now();
        note(&mut self.deadlines, sent, now);
        answers
    }

    /// One that does all writes again, and keeps no time until it has done them.
    fn restored(&self) -> Duplicate {
        let (mut one, mut known, mut passed) = (Duplicate::default(), Deadlines::of_one(), None);
        for &(told, sent) in &self.log {
            passed = passed.max(told);
            for key in depends_on(sent) {
                let is_over = passed.is_some_and(|passed| one.is_over(&known, key, passed));
                if is_over {
                    one.0.remove(&key);
                    known.cleared(key);
                }
            }
            one.act(sent, i64::MIN);
            note(&mut known, sent, passed.unwrap_or(0));
        }
        let now = (self.now_us + self.ahead_us[0]) / 1_000;
        one.0.retain(|_, (_, at)| at.is_none_or(|at| now <= at));
        one
    }

    /// What each holds when all deadlines are past.
    fn end(&mut self) -> Vec<Duplicate> {
        self.now_us += LONG_MS * 1_000;
        self.send(Sent::Plain(C::Get(u64::MAX)), [0; DUPLICATES]);
        self.duplicates.clone()
    }
}

fn key() -> impl Strategy<Value = u64> {
    0..3_u64
}

fn ttl() -> impl Strategy<Value = i64> {
    1..120_i64
}

/// Commands that leave a value where its deadline is.
fn staying() -> impl Strategy<Value = Command> {
    prop_oneof![
        (key(), ttl()).prop_map(|(key, ms)| C::SetFor(key, ms)),
        key().prop_map(C::Set),
        key().prop_map(C::Increment),
        key().prop_map(C::Increment),
        key().prop_map(C::Remove),
        key().prop_map(C::Get),
    ]
}

fn any_command() -> impl Strategy<Value = Command> {
    prop_oneof![
        staying(),
        (key(), ttl()).prop_map(|(key, ms)| C::SetFor(key, ms)),
        key().prop_map(C::SetIfNone),
        (key(), ttl()).prop_map(|(key, ms)| C::ExpireIn(key, ms)),
        key().prop_map(C::Persist),
        (key(), key()).prop_map(|(from, to)| C::Rename(from, to)),
    ]
}

type Step = (Command, i64, usize, [i64; DUPLICATES]);

fn steps(command: impl Strategy<Value = Command>) -> impl Strategy<Value = Vec<Step>> {
    let ways = [0..WAY_US_MAX, 0..WAY_US_MAX, 0..WAY_US_MAX];
    prop::collection::vec((command, 0..30_000_i64, 0..DUPLICATES, ways), 1..60)
}

/// Clocks up to 50 ms apart; all of them may be far from the front's.
fn ahead() -> impl Strategy<Value = [i64; DUPLICATES]> {
    let all = prop_oneof![Just(0), Just(3_600_000_000_i64), Just(-900_000_000_i64)];
    let each = [-25_000..25_000_i64, -25_000..25_000_i64, -25_000..25_000_i64];
    (all, each).prop_map(|(all, each)| each.map(|one| all + one))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    /// With clocks 50 ms apart.
    #[test]
    fn all_answer_the_same_and_hold_the_same(
        ahead_us in ahead(), is_complete: bool, steps in steps(any_command())
    ) {
        let mut world = World::new(ahead_us, is_complete);
        for (command, after_us, who, ways) in steps {
            world.now_us += after_us;
            let answers = world.ask(command, who, ways);
            let is_same = answers.windows(2).all(|two| two[0] == two[1]);
            prop_assert!(is_same, "{command:?}: {answers:?}");
        }
        let held = world.end();
        prop_assert!(held.windows(2).all(|two| two[0] == two[1]), "{held:?}");
        // Also where deadlines are to come when all is done again.
        prop_assert_eq!(world.restored(), held[0].clone(), "{:?}", world.log);
    }

    /// One stands still now and then, for less than a second.
    #[test]
    fn who_is_late_holds_the_same_in_the_end(
        ahead_us in ahead(), late in prop::collection::vec(0..900_000_i64, 60),
        steps in steps(staying())
    ) {
        let (mut world, mut done_us) = (World::new(ahead_us, true), 0);
        for ((command, after_us, who, ways), late_us) in steps.into_iter().zip(late) {
            world.now_us += after_us;
            // It does one after the other.
            done_us = (world.now_us + if late_us < 300_000 { 0 } else { late_us }).max(done_us);
            world.late_us = done_us - world.now_us;
            if world.late_us > 900_000 {
                world.late_us = 0;
                done_us = world.now_us;
            }
            world.ask(command, who.min(1), ways);
        }
        world.late_us = 0;
        let held = world.end();
        prop_assert!(held.windows(2).all(|two| two[0] == two[1]), "{held:?}");
    }
}

/// Without the front's decision they would differ: the model can fail.
#[test]
fn without_looking_they_differ() {
    let mut world = World::new([25_000, 0, -25_000], true);
    let all = [0; DUPLICATES];
    world.ask(C::SetFor(1, 50), 0, all);
    world.now_us += 60_000; // past at the first, not at the last
    let answers = world.send(Sent::Plain(C::Increment(1)), all);
    assert_eq!(answers, [1, 6, 6]);
    let mut world = World::new([25_000, 0, -25_000], true);
    world.ask(C::SetFor(1, 50), 0, all);
    world.now_us += 40_000;
    assert_eq!(world.ask(C::Increment(1), 0, all), [6, 6, 6], "nobody has lost it");
    world.now_us += 20_000;
    assert_eq!(world.ask(C::Increment(1), 0, all), [1, 1, 1]);
    assert_eq!(world.removed, 1);
}
