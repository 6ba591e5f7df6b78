//! Brownout-aware policies: beside models written down from the papers' formulas, by hand, and in
//! the stories they were made for.

#[path = "common/policies.rs"]
#[allow(dead_code, reason = "only single policies are made here")]
mod policies;
#[path = "common/world.rs"]
#[allow(dead_code, reason = "each test file tells its stories with a part of the world")]
mod world;

use std::cell::Cell;
use std::ops::Range;

use evenkeel_core::fleet::{Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Replay,
    Request, Step,
};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::Dimmer;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use world::{Behaviour, World, secs};

const PUBLISHED: [&str; 4] = ["pibh-2014-03", "pibh-2014-07", "pibh-printed", "epbh-2014"];
const REQUEST: Request = Request::new(GroupId::new(0), Replay::IfUnsent);

/// Requests sent one by one and answered when the test says so, without any safeguard around.
struct Desk {
    dispatcher: Dispatcher,
    now: Instant,
    plan: RoutePlan,
    open: Vec<(Attempt, Call)>,
    opened: u64,
}

impl Desk {
    fn new(policy: &str, replicas: usize) -> Self {
        let config = DispatcherConfig {
            safeguards: Safeguards::none(),
            retries_max: 0,
            ..DispatcherConfig::default()
        };
        let fleet = Fleet::single_group(replicas);
        Self {
            dispatcher: Dispatcher::new(fleet, policies::make(policy), config),
            now: Instant::ZERO,
            plan: RoutePlan::single_group(replicas),
            open: Vec::new(),
            opened: 0,
        }
    }

    /// Sends a request, and says where it went.
    fn request(&mut self) -> usize {
        self.opened += 1;
        let mut call = self.dispatcher.open(self.now, CallId(self.opened), REQUEST);
        match self.dispatcher.step(self.now, &mut call) {
            Step::Send(attempt) => {
                let slot = attempt.replica().index();
                self.open.push((attempt, call));
                slot
            }
            other => panic!("{other:?}"),
        }
    }

    /// An open request ends, and if it is answered it may bring a dimmer. Returns its replica.
    fn end(&mut self, place: usize, outcome: &Outcome, dimmer: Option<f64>) -> usize {
        self.now = self.now.plus_nanos(1); // no two answers at the same instant
        let (mut attempt, mut call) = self.open.remove(place);
        let slot = attempt.replica().index();
        if let Some(dimmer) = dimmer {
            self.dispatcher.receive_dimmer(self.now, &attempt, Dimmer::clamped(dimmer));
        }
        call.settle(self.dispatcher.learn(self.now, &mut attempt, outcome));
        self.dispatcher.finish(self.now, attempt, BodyEnd::Complete);
        let step = self.dispatcher.step(self.now, &mut call);
        assert!(matches!(step, Step::Answered(_) | Step::Refused(_)), "{step:?}");
        self.dispatcher.close(self.now, call);
        slot
    }

    /// A replica tells a dimmer, on an answer to a request that it was sent past the policy.
    fn tells(&mut self, slot: usize, dimmer: f64) {
        self.now = self.now.plus_nanos(1);
        let mut mirror = self.dispatcher.mirror(self.now, CallId(0), ReplicaId::new(slot));
        self.dispatcher.receive_dimmer(self.now, &mirror, Dimmer::clamped(dimmer));
        let _ = self.dispatcher.learn(self.now, &mut mirror, &Outcome::Replied(None));
        self.dispatcher.finish(self.now, mirror, BodyEnd::Complete);
    }

    /// A request to a replica past the policy, which stays in flight.
    fn occupy(&mut self, slot: usize) {
        let _flies_on = self.dispatcher.mirror(self.now, CallId(0), ReplicaId::new(slot));
    }

    fn health(&mut self, slot: usize, health: Health) {
        self.plan.version += 1;
        self.plan.health[slot] = health;
        self.dispatcher.adopt(self.now, &self.plan);
    }

    fn cost(&self, slot: usize) -> f64 {
        self.dispatcher.cost(self.now, ReplicaId::new(slot)).expect("it ranks")
    }

    fn queues(&self) -> Vec<f64> {
        let queue = |slot| self.dispatcher.fleet().replica(ReplicaId::new(slot)).in_flight();
        (0..self.plan.health.len()).map(|slot| f64::from(queue(slot))).collect()
    }

    /// The slots a request may go to: those that are up, or all when none is.
    fn candidates(&self) -> Vec<usize> {
        let slots = 0..self.plan.health.len();
        let up: Vec<_> =
            slots.clone().filter(|&slot| self.plan.health[slot] == Health::Up).collect();
        if up.is_empty() { slots.collect() } else { up }
    }
}

/// Replica 0 tells 0.5 and then 1, replica 1 tells 0.4 twice. The first decision stands for a
/// second, the next is made half a second later.
fn two_decisions(policy: &str, in_flight: usize) -> [(usize, f64, f64); 2] {
    let mut desk = Desk::new(policy, 2);
    for (slot, dimmer) in [(0, 0.5), (0, 1.0), (1, 0.4), (1, 0.4)] {
        desk.tells(slot, dimmer);
    }
    for slot in (0..2).cycle().take(2 * in_flight) {
        desk.occupy(slot);
    }
    let mut decision = |at_ms| {
        desk.now = Instant::from_millis(at_ms);
        (desk.request(), desk.cost(0), desk.cost(1))
    };
    [decision(0), decision(500)]
}

#[test]
fn the_published_steps_by_hand() {
    // u₀ = (γp·0.5 + γi·1)·1 s, less γ = 1 %; u₁ = (γi·0.4)·1 s, less 1 %. Costs are counted from
    // the highest u, which is u₀; one request is then in flight at 0.
    // Half a second later u₀ gains half as much, and moves towards q = 1 by 0.5 % of what is
    // missing; u₁ gains half as much and loses 0.5 %.
    let pibh = |policy, steps: [f64; 2]| (policy, 0, steps);
    for (policy, in_flight, [first, second]) in [
        // 0.35·0.99 − 0.04·0.99; then 0.3465 + 0.175 + 0.0023925 − (0.0396 + 0.02)·0.995
        pibh("pibh-2014-03", [0.3069, 0.523_892_5 - 0.059_302]),
        // 1·0.99 − 0.2·0.99; then 0.99 + 0.5 − 0.005·0.49 − (0.198 + 0.1)·0.995
        pibh("pibh-2014-07", [0.792, 1.487_55 - 0.296_51]),
        // 5.25·0.99 − 2·0.99; then 5.1975 + 2.625 − 0.005·6.8225 − (1.98 + 1)·0.995
        pibh("pibh-printed", [3.2175, 7.788_387_5 - 2.9651]),
        // The mean is 0.7: ±0.03, then ±0.045. One request in flight at each: nobody is idle.
        ("epbh-2014", 1, [1.06, 1.09]),
    ] {
        let decisions = two_decisions(policy, in_flight);
        let queue = in_flight as f64;
        // Cut off to whole requests both cost the same or 0 less, and the first is taken.
        for (decision, other, more) in [(decisions[0], first, 1.0), (decisions[1], second, 2.0)] {
            let (chosen, cost_0, cost_1) = decision;
            assert_eq!((chosen, cost_0), (0, queue + more), "{policy}");
            assert!((cost_1 - other).abs() < 1e-12, "{policy}: {cost_1}, not {other}");
        }
    }
}

#[test]
fn our_own_steps_by_hand() {
    // pibh: gathered are 0.3·1·0.99 and 0.3·0.4·0.99, ±0.0891 around their mean, and with
    // 0.5·±0.3 that is ±0.2391. Half a second later 0.0891 + 0.15 and −0.0891 + 0.06, less 0.5 %,
    // are ±0.13342950 around their mean, and with ±0.15 that is ±0.2834295.
    let later = (0.0891 + 0.0891 + 0.09) * 0.995 / 2.0 + 0.15;
    // The first decision stands for the longest time, a second, only if so much has passed.
    let mut desk = Desk::new("pibh", 2);
    desk.now = Instant::from_millis(3_000);
    desk.tells(0, 1.0);
    desk.tells(1, 0.4);
    assert_eq!(desk.request(), 0);
    assert!((desk.cost(1) - 0.4782).abs() < 1e-12 && desk.cost(0) == 1.0, "{}", desk.cost(1));
    desk.now += Duration::from_millis(500);
    assert_eq!(desk.request(), 1, "one more request outweighs the offset");
    assert!((desk.cost(1) - 1.0 - 2.0 * later).abs() < 1e-12, "{}", desk.cost(1));

    // epbh: 0.1·±0.3 each second, no forgetting.
    let mut desk = Desk::new("epbh", 2);
    for seconds in 1..=10 {
        desk.now = secs(f64::from(seconds));
        desk.tells(0, 1.0);
        desk.tells(1, 0.4);
        let _ = desk.request();
        desk.end(0, &Outcome::Replied(None), None);
    }
    assert!((desk.cost(1) - 2.0 * 0.3).abs() < 1e-12 && desk.cost(0) == 0.0, "{}", desk.cost(1));
}

#[derive(Clone, Debug)]
enum Moment {
    Request,
    Answer { place: usize, dimmer: Option<f64> },
    Fail { place: usize, failure: Failure },
    GiveUp { place: usize },
    Pass { micros: u64 },
    StepBack { micros: u64 },
    Health { slot: usize, health: Health },
}

fn moments() -> impl Strategy<Value = Moment> {
    let place = 0..64_usize;
    let dimmer = prop_oneof![Just(0.0), Just(1.0), 0.0..=1.0_f64];
    let failure = prop::sample::select(vec![Failure::Unsent, Failure::Broken, Failure::TimedOut]);
    prop_oneof![
        12 => Just(Moment::Request),
        9 => (place.clone(), prop::option::weighted(0.8, dimmer))
            .prop_map(|(place, dimmer)| Moment::Answer { place, dimmer }),
        2 => (place.clone(), failure)
            .prop_map(|(place, failure)| Moment::Fail { place, failure }),
        1 => place.clone().prop_map(|place| Moment::GiveUp { place }),
        8 => (0..40_000_u64).prop_map(|micros| Moment::Pass { micros }),
        2 => (0..4_000_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_u64).prop_map(|micros| Moment::StepBack { micros }),
        1 => (place, prop::sample::select(vec![Health::Up, Health::Up, Health::Down]))
            .prop_map(|(slot, health)| Moment::Health { slot, health }),
    ]
}

/// What a model is told; it asks nobody.
trait Model {
    fn decide(&mut self, now: Instant, queues: &[f64], up: &[bool]);
    fn answered(&mut self, now: Instant, slot: usize, dimmer: Option<f64>);
    fn failed(&mut self, _slot: usize) {}
    fn health(&mut self, _slot: usize, _came_back: bool) {}
    /// q − u.
    fn offsets(&self) -> &[f64];
    /// Whether this candidate may be the one.
    fn permits(&self, chosen: usize, candidates: &[usize], queues: &[f64]) -> bool;
}

fn seconds(later: Instant, earlier: Instant) -> f64 {
    (later.as_secs_f64() - earlier.as_secs_f64()).max(0.0)
}

/// The pseudo-code of 2014, with each replica's two last dimmers.
struct As2014 {
    kp: f64,
    ki: f64,
    leak: f64,
    equality: bool,
    theta: Vec<[f64; 2]>,
    u: Vec<f64>,
    last_decision: Option<Instant>,
}

impl As2014 {
    fn new(policy: &str, replicas: usize) -> Self {
        let (kp, ki, leak, equality) = match policy {
            "pibh-2014-03" => (0.5, 0.5 / 5.0, 0.01, false),
            "pibh-2014-07" => (1.0, 1.0 / 2.0, 0.01, false),
            "pibh-printed" => (0.5, 5.0, 0.01, false),
            "epbh-2014" => (0.0, 0.1, 0.0, true),
            other => panic!("{other} was not published"),
        };
        let (theta, u) = (vec![[0.0; 2]; replicas], vec![0.0; replicas]);
        Self { kp, ki, leak, equality, theta, u, last_decision: None }
    }
}

impl Model for As2014 {
    fn decide(&mut self, now: Instant, queues: &[f64], _up: &[bool]) {
        let mut dt = self.last_decision.map_or(1.0, |last| seconds(now, last));
        if dt > 1.0 {
            dt = 1.0;
        }
        self.last_decision = self.last_decision.max(Some(now));
        let mean: f64 = self.theta.iter().map(|theta| theta[0]).sum::<f64>() / self.u.len() as f64;
        for ((u, &[theta, theta_before]), q) in self.u.iter_mut().zip(&self.theta).zip(queues) {
            if self.equality {
                *u += self.ki * dt * (theta - mean);
            } else {
                *u += (self.kp * (theta - theta_before) + self.ki * theta) * dt;
                *u -= self.leak * (*u - q) * dt;
            }
        }
    }

    fn answered(&mut self, _now: Instant, slot: usize, dimmer: Option<f64>) {
        if let Some(dimmer) = dimmer {
            self.theta[slot] = [dimmer, self.theta[slot][0]];
        }
    }

    fn offsets(&self) -> &[f64] {
        &self.u
    }

    fn permits(&self, chosen: usize, candidates: &[usize], queues: &[f64]) -> bool {
        let idle: Vec<_> = candidates.iter().filter(|&&i| queues[i] == 0.0).collect();
        if self.equality && !idle.is_empty() {
            return idle.contains(&&chosen);
        }
        // Rounding may fall to either side of a whole number, unless it is one.
        let cost = |i: usize, error: f64| {
            let exact = queues[i] - self.u[i];
            if exact.fract() == 0.0 { exact } else { (exact + error).trunc() }
        };
        let at_least = cost(chosen, -1e-9);
        candidates.iter().filter(|&&other| other != chosen).all(|&other| {
            let at_most = cost(other, 1e-9);
            if other < chosen { at_least < at_most } else { at_least <= at_most }
        })
    }
}

/// What the documentation of `pibh` and `epbh` says, word by word.
struct Documented {
    kp: f64,
    ki: f64,
    leak: f64,
    track: bool,
    empty_first: bool,
    reported: Vec<Option<(f64, Instant)>>,
    failures: Vec<u32>,
    gone: Vec<bool>,
    gathered: Vec<f64>,
    offsets: Vec<f64>,
    stepped: Instant,
}

impl Documented {
    fn new(policy: &str, n: usize) -> Self {
        let (kp, ki, leak, track, empty_first) = match policy {
            "pibh" => (0.5, 0.3, 0.01, false, false),
            "pibh:track=on,ki=5,leak=0.5" => (0.5, 5.0, 0.5, true, false),
            "epbh" => (0.0, 0.1, 0.0, false, true),
            "epbh:gain=5" => (0.0, 5.0, 0.0, false, true),
            other => panic!("{other} has no model"),
        };
        Self {
            kp,
            ki,
            leak,
            track,
            empty_first,
            reported: vec![None; n],
            failures: vec![0; n],
            gone: vec![false; n],
            gathered: vec![0.0; n],
            offsets: vec![0.0; n],
            stepped: Instant::ZERO,
        }
    }

    fn forget(&mut self, slot: usize) {
        (self.gathered[slot], self.offsets[slot]) = (0.0, 0.0);
    }
}

impl Model for Documented {
    fn decide(&mut self, now: Instant, queues: &[f64], up: &[bool]) {
        if now < self.stepped + Duration::from_millis(1) {
            return;
        }
        let dt = seconds(now, self.stepped).min(1.0);
        self.stepped = now;
        (0..queues.len()).for_each(|i| self.offsets[i] = 0.0);
        let fresh = |reported: Option<(f64, Instant)>| {
            reported
                .filter(|&(_, at)| now.since(at) <= Duration::from_secs(5))
                .map(|(theta, _)| theta)
        };
        let theta: Vec<_> = (0..queues.len())
            .map(|i| fresh(self.reported[i]).filter(|_| up[i] && !self.gone[i]))
            .collect();
        let known: Vec<_> = (0..queues.len()).filter(|&i| theta[i].is_some()).collect();
        let mean = |of: &dyn Fn(usize) -> f64| {
            known.iter().map(|&i| of(i)).sum::<f64>() / known.len() as f64
        };
        let theta: Vec<_> = theta.into_iter().map(|theta| theta.unwrap_or(f64::NAN)).collect();
        let next: Vec<_> = (0..queues.len())
            .map(|i| {
                let towards = if self.track { queues[i] } else { 0.0 };
                let kept = 1.0 - self.leak * dt;
                kept * (self.gathered[i] + self.ki * theta[i] * dt) + self.leak * dt * towards
            })
            .collect();
        let (mean_next, bound) = (mean(&|i| next[i]), 1.5 * (1.0 + mean(&|i| queues[i])));
        let mean_theta = mean(&|i| theta[i]);
        self.gathered.fill(0.0);
        for &i in &known {
            self.gathered[i] = (next[i] - mean_next).max(-bound).min(bound);
            self.offsets[i] = self.gathered[i] + self.kp * (theta[i] - mean_theta);
        }
    }

    fn answered(&mut self, now: Instant, slot: usize, dimmer: Option<f64>) {
        self.reported[slot] = dimmer.map(|dimmer| (dimmer, now)).or(self.reported[slot]);
        (self.failures[slot], self.gone[slot]) = (0, false);
    }

    fn failed(&mut self, slot: usize) {
        self.failures[slot] += 1;
        if self.failures[slot] >= 3 {
            self.gone[slot] = true;
            self.forget(slot);
        }
    }

    fn health(&mut self, slot: usize, came_back: bool) {
        (0..self.reported.len()).for_each(|i| self.forget(i));
        if came_back {
            (self.reported[slot], self.failures[slot]) = (None, 0);
        }
    }

    fn offsets(&self) -> &[f64] {
        &self.offsets
    }

    fn permits(&self, chosen: usize, candidates: &[usize], queues: &[f64]) -> bool {
        let idle: Vec<_> = candidates.iter().filter(|&&i| queues[i] == 0.0).collect();
        if self.empty_first && !idle.is_empty() {
            return idle.contains(&&chosen);
        }
        let cost = |i: usize| queues[i] - self.offsets[i];
        candidates.iter().all(|&other| cost(chosen) <= cost(other) + 1e-9)
    }
}

/// Lives through a history beside a model; returns how many requests went elsewhere than to one of
/// the replicas with the fewest in flight.
fn live(policy: &str, mut model: impl Model, replicas: usize, moments: &[Moment]) -> u64 {
    let mut desk = Desk::new(policy, replicas);
    desk.now = Instant::from_millis(10);
    let mut moved = 0;
    for moment in moments {
        let nth = |place: usize| (!desk.open.is_empty()).then(|| place % desk.open.len());
        match *moment {
            Moment::Request => {
                let (queues, candidates) = (desk.queues(), desk.candidates());
                let up: Vec<_> = desk.plan.health.iter().map(|&h| h == Health::Up).collect();
                model.decide(desk.now, &queues, &up);
                let chosen = desk.request();
                assert!(
                    model.permits(chosen, &candidates, &queues),
                    "{chosen} of {candidates:?}: {queues:?} less {:?}",
                    model.offsets()
                );
                let shortest = candidates.iter().map(|&i| queues[i]).fold(f64::MAX, f64::min);
                moved += u64::from(queues[chosen] > shortest);
                check_costs(&desk, model.offsets());
            }
            Moment::Answer { place, dimmer } => {
                if let Some(place) = nth(place) {
                    let slot = desk.open[place].0.replica().index();
                    // Every second replica has more room than those between them.
                    let side = if slot.is_multiple_of(2) { f64::max } else { f64::min };
                    let dimmer = dimmer.map(|dimmer| side(dimmer, 1.0 - dimmer));
                    desk.end(place, &Outcome::Replied(None), dimmer);
                    model.answered(desk.now, slot, dimmer);
                }
            }
            Moment::Fail { place, failure } => {
                if let Some(place) = nth(place) {
                    let slot = desk.end(place, &Outcome::Failed(failure), None);
                    model.failed(slot);
                }
            }
            Moment::GiveUp { place } => {
                if let Some(place) = nth(place) {
                    let _ = desk.end(place, &Outcome::Cancelled, None);
                }
            }
            Moment::Pass { micros } => desk.now += Duration::from_micros(micros),
            Moment::StepBack { micros } => {
                desk.now = Instant::from_nanos(desk.now.as_nanos() - micros * 1_000);
            }
            Moment::Health { slot, health } => {
                let slot = slot % replicas;
                if desk.plan.health[slot] != health {
                    desk.health(slot, health);
                    model.health(slot, health == Health::Up);
                }
            }
        }
    }
    moved
}

/// Costs are q − u up to a shift that makes the best offset count as 0.
fn check_costs(desk: &Desk, offsets: &[f64]) {
    let highest = offsets.iter().copied().fold(f64::MIN, f64::max);
    for (slot, (queue, offset)) in desk.queues().iter().zip(offsets).enumerate() {
        let expected = queue + highest - offset;
        let cost = desk.cost(slot);
        let near = (cost - expected).abs() <= 1e-9 * expected.abs().max(1.0);
        assert!(near, "replica {slot}: {cost}, not {expected}");
    }
}

/// Returns how many choices in all histories were not least-outstanding's.
fn histories(policy: &str, lived: impl Fn(usize, &[Moment]) -> u64) -> u64 {
    let from_environment = ProptestConfig::default().cases;
    let untouched = 256;
    let cases = if from_environment == untouched { 48 } else { from_environment };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let moved = Cell::new(0);
    let history = (2..6_usize, prop::collection::vec(moments(), 1..600));
    let result = TestRunner::new(config).run(&history, |(replicas, moments)| {
        moved.set(moved.get() + lived(replicas, &moments));
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{policy}: {failure}");
    }
    moved.get()
}

#[test]
fn published_policies_choose_as_the_pseudo_code_does() {
    for policy in PUBLISHED {
        let moved = histories(policy, |replicas, moments| {
            live(policy, As2014::new(policy, replicas), replicas, moments)
        });
        assert!(moved > 40, "{policy}: {moved} choices show anything");
    }
}

#[test]
fn our_policies_choose_as_documented() {
    for policy in ["pibh", "pibh:track=on,ki=5,leak=0.5", "epbh", "epbh:gain=5"] {
        let moved = histories(policy, |replicas, moments| {
            live(policy, Documented::new(policy, replicas), replicas, moments)
        });
        let slow = ["pibh", "epbh"].contains(&policy); // costs are compared all the same
        assert!(slow || moved > 40, "{policy}: {moved} choices show anything");
    }
}

#[test]
fn weights_by_hand() {
    // After a second 0.5 + 0.25·(1 − 0.5) = 0.625 and 0.5 + 0.25·(0 − 0.5) = 0.375. From then on
    // nothing changes but that a dimmer that stays at 1 counts as risen by 0.01: each second the
    // other weight is divided by 1.0025.
    let later = 1.0 - 0.375 / 1.0025_f64.powi(59);
    for (seconds, expected) in [(0.5, 0.5), (1.5, 0.625), (60.5, later)] {
        let mut desk = Desk::new("weighted-dimmer", 2);
        desk.tells(0, 1.0);
        desk.tells(1, 0.0);
        desk.now = secs(seconds);
        let all = 20_000;
        let first = (0..all).filter(|_| desk.request() == 0).count();
        let share = first as f64 / f64::from(all);
        // Binomial: standard deviation 0.0035; four of them.
        assert!((share - expected).abs() < 0.014, "{share} after {seconds} s, not {expected}");
    }
}

#[test]
fn a_weight_falls_to_the_floor_and_no_further() {
    // 0.5 + 1·(0 − 0.5) is below 0.01, beside 0.5.
    let mut desk = Desk::new("weighted-dimmer:gain=1", 2);
    desk.tells(1, 0.0);
    desk.now = secs(10.0);
    let share = (0..20_000).filter(|_| desk.request() == 1).count() as f64 / 2e4;
    // Binomial: standard deviation 0.001; five of them.
    assert!((share - 0.01 / 0.51).abs() < 0.005, "{share}");
}

fn from(start: f64, end: f64) -> Range<Instant> {
    secs(start)..secs(end)
}

/// Five replicas; the first has to leave nearly everything out before it dies, and is well again
/// after two hundred seconds.
fn restarted(policy: &str) -> World {
    let mut world = World::new(policy, 5, 1);
    (1..5).for_each(|slot| world.replica_tells(slot, Some(0.8)));
    world.replica_tells(0, Some(0.1));
    world.run_until(secs(30.0));
    world.health(0, Health::Down);
    world.run_until(secs(230.0));
    world.health(0, Health::Up);
    world.replica_tells(0, Some(0.8));
    world.run_until(secs(270.0));
    world
}

#[test]
fn a_restarted_replica_gets_its_share_after_the_slow_start() {
    for policy in ["pibh", "epbh"] {
        let world = restarted(policy);
        // The slow start takes ten seconds.
        let share = world.share(0, from(242.0, 246.0));
        assert!((0.15..0.25).contains(&share), "{policy}: {share} of a fair fifth");
    }
    // What the others gathered meanwhile, and the last word of the one that died.
    for policy in ["pibh-2014-03", "pibh-2014-07", "pibh-printed"] {
        let world = restarted(policy);
        let share = world.share(0, from(242.0, 270.0));
        assert!(share < 0.01, "{policy}: {share}, it is starved as published");
    }
}

#[test]
fn a_replica_that_failed_gets_its_share_although_no_plan_said_so() {
    for policy in ["pibh", "epbh"] {
        let mut world = World::new(policy, 5, 1).with_rate(1_500.0);
        (1..5).for_each(|slot| world.replica_tells(slot, Some(0.8)));
        world.replica_tells(0, Some(0.1));
        world.run_until(secs(20.0));
        let before = world.share(0, from(15.0, 20.0));
        assert!(before < 0.17, "{policy}: {before} with a low dimmer");
        let failure = Failure::Unsent;
        world.replica_does(0, Behaviour::Fails { after_ms: 0.1, failure });
        world.run_until(secs(23.0));
        world.replica_does(0, Behaviour::Serves { mean_ms: 10.0 });
        world.replica_tells(0, Some(0.8));
        world.run_until(secs(40.0));
        let share = world.share(0, from(35.0, 40.0));
        assert!((0.17..0.23).contains(&share), "{policy}: {share} of a fair fifth");
    }
}

/// Where every request of a run went.
fn slots(policy: &str, telling: &[(usize, f64)]) -> Vec<usize> {
    let mut world = World::new(policy, 4, 2).with_rate(1_200.0);
    telling.iter().for_each(|&(slot, dimmer)| world.replica_tells(slot, Some(dimmer)));
    world.run_until(secs(20.0));
    world.sent.iter().map(|sent| sent.slot).collect()
}

#[test]
fn with_nothing_to_compare_it_is_least_outstanding_exactly() {
    let expected = slots("least-outstanding", &[]);
    assert!(expected.len() > 20_000);
    assert_eq!(slots("pibh", &[]), expected);
    assert_eq!(slots("epbh:empty_first=off", &[]), expected);
    // One alone, and all alike.
    assert_eq!(slots("pibh", &[(2, 0.1)]), expected);
    assert_eq!(slots("pibh", &[(0, 0.0)]), expected);
    assert_ne!(slots("pibh", &[(0, 1.0), (1, 0.0)]), expected);
}

#[test]
fn replicas_without_brownout_are_neither_starved_nor_flooded() {
    // Two of four tell a dimmer, one has room and the other has not.
    let shares = |policy, rate_per_s| {
        let mut world = World::new(policy, 4, 3).with_rate(rate_per_s);
        world.replica_tells(0, Some(1.0));
        world.replica_tells(1, Some(0.2));
        world.run_until(secs(60.0));
        [0, 1, 2, 3].map(|slot| world.share(slot, from(20.0, 60.0)))
    };
    for rate_per_s in [300.0, 1_200.0] {
        for policy in ["pibh", "epbh"] {
            let [roomy, full, without, other] = shares(policy, rate_per_s);
            println!("{policy} {rate_per_s}/s: {roomy:.2} {full:.2} {without:.2} {other:.2}");
            assert!(roomy > full, "{policy}: {roomy} {full}");
            for share in [without, other] {
                assert!((0.15..0.3).contains(&share), "{policy}: {share} of a fair quarter");
            }
        }
    }
    // As published a dimmer that was never told is taken for 0.
    let [_, _, without, other] = shares("pibh-2014-07", 300.0);
    assert!(without + other < 0.01, "{without} {other}");
}

#[test]
fn a_replica_that_hangs_loses_its_offset_when_its_word_is_stale() {
    let mut desk = Desk::new("pibh", 2);
    for second in 1..=20 {
        desk.now = secs(f64::from(second));
        desk.tells(0, 1.0);
        desk.tells(1, 0.0);
        let _ = desk.request();
        desk.end(0, &Outcome::Replied(None), None);
    }
    assert!(
        desk.cost(1) > 3.0,
        "bounded by 1.5 on either side, and half a request: {}",
        desk.cost(1)
    );
    for (later_s, expected) in [(5.0, true), (5.1, false)] {
        desk.now = secs(20.0 + later_s);
        desk.tells(1, 0.0);
        let _ = desk.request();
        let place = desk.open.len() - 1;
        desk.end(place, &Outcome::Replied(None), None);
        assert_eq!(desk.cost(1) > 0.0, expected, "{later_s} s after its last word");
    }
}

/// The greatest difference of offsets over a time with dimmers of 1 and 0, one request each
/// `gap`, answered at once.
fn spread(policy: &str, requests: u64, gap: Duration) -> f64 {
    let mut desk = Desk::new(policy, 3);
    let mut spread = 0.0_f64;
    for _ in 0..requests {
        desk.now += gap;
        desk.tells(0, 1.0);
        desk.tells(1, 0.0);
        desk.tells(2, 0.5);
        let _ = desk.request();
        desk.end(0, &Outcome::Replied(None), None);
        let costs = [desk.cost(0), desk.cost(1), desk.cost(2)];
        assert!(costs.iter().all(|cost| cost.is_finite()), "{policy}: {costs:?}");
        spread = costs.into_iter().fold(spread, f64::max);
    }
    spread
}

#[test]
fn offsets_stay_bounded_for_days() {
    let (second, two_days) = (Duration::from_secs(1), 2 * 86_400);
    // Nothing is in flight when it is decided: 1.5 on either side, and half a request for pibh.
    for (policy, bound) in [("pibh", 3.5), ("pibh:leak=0,ki=5", 3.5), ("epbh", 3.0)] {
        let spread = spread(policy, two_days, second);
        assert!(spread <= bound + 1e-9 && spread > 0.9 * bound, "{policy}: {spread}");
    }
    // As published they drift: 0.1 per second between dimmers of 1 and 0.
    let drift = spread("epbh-2014", two_days, second);
    assert!((drift - 0.1 * two_days as f64).abs() < 1.0, "{drift}");
    // And with γ they stop at γi/γ.
    let stops = spread("pibh-2014-03", two_days, second);
    assert!((9.0..=10.1).contains(&stops), "{stops}");
    // The rate makes no difference: ten minutes at 400 a second.
    let gap = Duration::from_micros(2_500);
    assert!(spread("pibh", 240_000, gap) <= 3.5 + 1e-9);
}

#[test]
fn a_dimmer_that_is_no_number_cannot_be_told() {
    assert!(Dimmer::new(f64::NAN).is_err() && Dimmer::new(f64::INFINITY).is_err());
    assert_eq!(Dimmer::clamped(f64::NAN), Dimmer::FULL);
    for policy in
        ["pibh", "epbh", "pibh:bound=1e6,ki=100,kp=100,leak=1"].into_iter().chain(PUBLISHED)
    {
        let mut desk = Desk::new(policy, 3);
        for (second, dimmer) in (1..).zip([f64::NAN, f64::INFINITY, -f64::INFINITY, 1e308]) {
            desk.now = secs(f64::from(second));
            desk.tells(second as usize % 3, dimmer);
            let _ = desk.request();
            let costs = [desk.cost(0), desk.cost(1), desk.cost(2)];
            assert!(costs.iter().all(|cost| cost.is_finite()), "{policy}: {costs:?}");
        }
    }
}
