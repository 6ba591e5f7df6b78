//! What an operator is told of a request: decisions of core's dispatcher, kept as they are made,
//! in virtual time. The sentences are written by hand.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::cell::RefCell;
use std::rc::Rc;

use evenkeel_core::fleet::GroupId;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Hedge, HedgeConfig, ObjectiveConfig};
use evenkeel_core::request::select::adaptive::{Adaptive, AdaptiveConfig};
use evenkeel_core::request::select::least_outstanding::LeastOutstanding;
use evenkeel_core::request::select::{Candidates, Choice, Selector};
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Outcome, Replay,
    Request, Step,
};
use evenkeel_core::time::Duration;
use evenkeel_core::units::Dimmer;
use evenkeel_core::{Feedback, Fleet, Health, Instant, ReplicaId, Rng};
use evenkeel_proxy::requests::event::Event;
use evenkeel_proxy::requests::log::{RequestLog, Which};
use evenkeel_proxy::requests::record::{Place, Remarks, RequestRecord};
use evenkeel_proxy::requests::recorder::{Draft, Recorder, Sinks};
use evenkeel_proxy::requests::words::{Names, explain};
use evenkeel_runtime::clock::Clock;

const READ: Request = Request::new(GroupId::new(0), Replay::Always);
const ANSWERED: Outcome = Outcome::Replied(None);
const A: ReplicaId = ReplicaId::new(0);
const B: ReplicaId = ReplicaId::new(1);
const C: ReplicaId = ReplicaId::new(2);

/// Replicas at home are a, b and c, those of the other data centre A, B and C.
struct Letters;

impl Names for Letters {
    fn replica(&self, place: Place) -> String {
        let letter = char::from(b'a' + place.slot as u8).to_string();
        if place.datacenter == 0 { letter } else { letter.to_uppercase() }
    }

    fn datacenter(&self, _: u8) -> String {
        "ams".to_owned()
    }
}

fn at(ms: u64) -> Instant {
    Instant::from_millis(ms)
}

/// A dispatcher and its requests.
struct World {
    dispatcher: Dispatcher,
    recorder: Rc<Recorder>,
    log: RequestLog,
    calls: u64,
    datacenter: usize,
}

/// A request on its way.
struct Ask {
    call: Call,
    attempts: Vec<Option<Attempt>>,
    draft: Draft,
}

impl World {
    fn new(replicas: usize) -> Self {
        Self::of(replicas, Box::new(LeastOutstanding), HedgeConfig::default())
    }

    fn of(replicas: usize, policy: Box<dyn Selector>, hedge: HedgeConfig) -> Self {
        let can_ask = policy.asks();
        let config =
            DispatcherConfig { backlog_calls_max: 0, can_ask, ..DispatcherConfig::default() };
        let dispatcher = Dispatcher::new(Fleet::single_group(replicas), policy, config);
        let objective = hedge.objective.map(|it| it.objective);
        let mut dispatcher = dispatcher.with_redundancy(Box::new(Hedge::new(hedge)));
        dispatcher.keep_decisions();
        let log = RequestLog::new(1);
        let writer = Rc::new(RefCell::new(log.writer(0)));
        let recorder = Recorder::new(Clock::start(), 0, objective, (writer, Sinks::default()));
        Self { dispatcher, recorder, log, calls: 0, datacenter: 0 }
    }

    fn ask(&mut self, now: Instant) -> Ask {
        let draft = self.recorder.begin(now);
        self.ask_with(now, READ, draft)
    }

    fn ask_with(&mut self, now: Instant, request: Request, draft: Draft) -> Ask {
        self.calls += 1;
        let call = self.dispatcher.open(now, CallId(self.calls), request);
        let mut ask = Ask { call, attempts: Vec::new(), draft };
        self.step(now, &mut ask);
        ask
    }

    /// Steps until there is nothing more to do, as an exchange does.
    fn step(&mut self, now: Instant, ask: &mut Ask) {
        loop {
            let step = self.dispatcher.step(now, &mut ask.call);
            ask.draft.decided(self.datacenter, self.dispatcher.decisions().unwrap());
            match step {
                Step::Send(attempt) => {
                    let (replica, kind) = (attempt.replica(), attempt.kind());
                    let datacenter = self.datacenter;
                    ask.draft.event(now, Event::Sent { datacenter, replica, kind });
                    ask.attempts.push(Some(attempt));
                }
                Step::Cancel(copy) => {
                    let mut attempt = ask.attempts[copy].take().unwrap();
                    ask.draft.event(now, Event::Left { copy });
                    ask.call.settle(self.dispatcher.give_up(now, &mut attempt));
                    self.dispatcher.finish(now, attempt, BodyEnd::ClientGone);
                }
                Step::Answered(copy) => return ask.draft.event(now, Event::Answered { copy }),
                Step::Refused(refusal) => return ask.draft.event(now, Event::Refused(refusal)),
                Step::Wait { .. } => return,
            }
        }
    }

    fn learn(&mut self, now: Instant, ask: &mut Ask, copy: usize, outcome: Outcome) {
        let mut attempt = ask.attempts[copy].take().unwrap();
        let settled = self.dispatcher.learn(now, &mut attempt, &outcome);
        ask.draft.event(now, Event::Learnt { copy, outcome });
        ask.call.settle(settled);
        self.dispatcher.finish(now, attempt, BodyEnd::Complete);
        self.step(now, ask);
    }

    fn end(&mut self, now: Instant, ask: Ask) -> RequestRecord {
        let Ask { call, mut draft, attempts } = ask;
        self.dispatcher.close(now, call);
        for attempt in attempts.into_iter().flatten() {
            self.dispatcher.finish(now, attempt, BodyEnd::ClientGone);
        }
        let began = draft.record().began;
        draft.event(now, Event::Ended(BodyEnd::Complete));
        drop(draft);
        self.log.select(Which::All, |it| it.began == began).pop().unwrap()
    }

    /// A request that is answered after so many milliseconds.
    fn answer(&mut self, sent_ms: u64, after_ms: u64) -> RequestRecord {
        let mut ask = self.ask(at(sent_ms));
        self.learn(at(sent_ms + after_ms), &mut ask, 0, ANSWERED);
        self.end(at(sent_ms + after_ms), ask)
    }

    /// Teaches that answers take 40 ms; the last one comes at 10 s.
    fn teach(&mut self) {
        for n in 0..200 {
            self.answer(n * 50, 40);
        }
    }

    /// Gives a replica so much to do for others.
    fn occupy(&mut self, now: Instant, replica: ReplicaId, times: usize) -> Vec<Attempt> {
        (0..times).map(|_| self.dispatcher.mirror(now, CallId(0), replica)).collect()
    }
}

fn told(record: &RequestRecord) -> String {
    explain(record, &Letters)
}

#[test]
fn a_hedged_request() {
    let mut world = World::new(3);
    world.teach();
    // Four times the slowest answer: c is silent after 160 ms.
    let silent = world.occupy(at(20_000), C, 1);
    let busy = [world.occupy(at(20_169), A, 6), world.occupy(at(20_169), B, 3)];
    let mut ask = world.ask(at(20_170));
    world.step(at(20_211), &mut ask);
    world.learn(at(20_214), &mut ask, 0, ANSWERED);
    let record = world.end(at(20_214), ask);
    assert_eq!(
        told(&record),
        "sent to b (cost 3; a 6 because 6 in flight, c suspected for 170 ms), hedged to a after \
         41 ms (p95 40 ms), b answered first at 44 ms"
    );
    assert!(record.remarks.has(Remarks::HEDGED) && !record.remarks.has(Remarks::FAILED));
    drop((silent, busy));
}

#[test]
fn a_request_that_moved() {
    let adaptive = Adaptive::new(AdaptiveConfig::default());
    let mut world = World::of(2, Box::new(adaptive), HedgeConfig::default());
    let mut ask = world.ask(at(1_000)); // it waits for what the replicas say
    let report = |waiting, in_service, ms| Feedback {
        concurrency: Some(4),
        ..Feedback::measured(waiting, in_service, Duration::from_millis(ms))
    };
    let questions: Vec<_> = std::iter::from_fn(|| world.dispatcher.probe(at(1_000))).collect();
    for it in questions {
        let ms = if it.replica() == A { 5 } else { 10 };
        world.dispatcher.learn_probe(at(1_001), &it, Some(&report(0, 0, ms)));
    }
    world.step(at(1_001), &mut ask);
    let first = ask.attempts[0].as_ref().unwrap();
    world.dispatcher.hear_queued(at(1_003), &mut ask.call, first, &report(60, 4, 5));
    world.step(at(1_003), &mut ask);
    world.learn(at(1_013), &mut ask, 1, ANSWERED);
    let record = world.end(at(1_013), ask);
    assert_eq!(
        told(&record),
        "sent to a (cost 5; b 10), moved to b at 2 ms because a had no slot free, b answered at \
         13 ms"
    );
    let whys: Vec<_> = record.tries().iter().map(|it| it.why.name()).collect();
    assert_eq!((&*whys, record.remarks.is_empty()), (&["first", "moved"][..], true));
}

#[test]
fn a_hedge_that_did_not_leave() {
    let poor = HedgeConfig { budget_share: 0.0, burst_max: 0.0, ..HedgeConfig::default() };
    let mut world = World::of(2, Box::new(LeastOutstanding), poor);
    world.teach();
    let busy = world.occupy(at(20_000), A, 1);
    let mut ask = world.ask(at(20_000));
    world.step(at(20_041), &mut ask);
    world.learn(at(20_090), &mut ask, 0, ANSWERED);
    let record = world.end(at(20_090), ask);
    assert_eq!(
        told(&record),
        "sent to b (cost 0; a 1 because 1 in flight), not hedged after 40 ms: the budget was \
         spent, b answered at 90 ms"
    );
    assert!(record.remarks.has(Remarks::SLOW), "all before it took 40 ms");
    drop(busy);
}

#[test]
fn an_ejected_candidate() {
    let mut world = World::new(2);
    for mut attempt in world.occupy(at(1_000), A, 5) {
        let failed = Outcome::Failed(Failure::Broken);
        let _ = world.dispatcher.learn(at(1_000), &mut attempt, &failed);
        world.dispatcher.finish(at(1_000), attempt, BodyEnd::UpstreamBroke);
    }
    // Ejected for a second at first.
    let record = world.answer(1_200, 5);
    assert_eq!(
        told(&record),
        "sent to b, the only candidate (cost 0; a ejected for 800 ms more), b answered at 5 ms"
    );
}

#[test]
fn a_request_that_was_redirected_and_one_that_came_back() {
    let mut away = World { datacenter: 1, ..World::new(1) };
    let record = away.answer(1_000, 30);
    assert_eq!(
        told(&record),
        "redirected to ams: sent to A, the only replica (cost 0), A answered at 30 ms"
    );
    assert!(record.remarks.has(Remarks::REDIRECTED));

    let mut home = World::new(2);
    let busy = home.occupy(at(2_000), A, 1);
    let mut ask = away.ask(at(2_000));
    away.learn(at(2_030), &mut ask, 0, Outcome::Failed(Failure::Unavailable));
    let Ask { call, mut draft, .. } = ask;
    away.dispatcher.close(at(2_030), call);
    draft.event(at(2_030), Event::BegunAgain { datacenter: 0 });
    let mut ask = home.ask_with(at(2_030), READ, draft);
    // Copies are numbered anew.
    home.learn(at(2_044), &mut ask, 0, ANSWERED);
    let record = {
        let Ask { call, mut draft, .. } = ask;
        home.dispatcher.close(at(2_044), call);
        draft.event(at(2_044), Event::Ended(BodyEnd::Complete));
        drop(draft);
        away.log.select(Which::All, |it| it.began == at(2_000)).pop().unwrap()
    };
    assert_eq!(
        told(&record),
        "redirected to ams: sent to A, the only replica (cost 0), came back from ams, sent to b \
         at 30 ms because A was unavailable, b answered at 44 ms"
    );
    drop(busy);
}

#[test]
fn an_answer_without_its_optional_content() {
    let mut world = World::new(1);
    let mut ask = world.ask(at(1_000));
    let attempt = ask.attempts[0].as_ref().unwrap();
    world.dispatcher.receive_dimmer(at(1_012), attempt, Dimmer::clamped(0.35));
    world.learn(at(1_012), &mut ask, 0, ANSWERED);
    ask.draft.record().is_reduced = true;
    ask.draft.set_dimmer(|_, replica| {
        world.dispatcher.fleet().replica(replica).dimmer().map(|(dimmer, _)| dimmer.value())
    });
    let record = world.end(at(1_012), ask);
    assert_eq!(
        told(&record),
        "sent to a, the only replica (cost 0), a answered at 12 ms without all optional content \
         (dimmer 0.35)"
    );
    assert!(record.remarks.has(Remarks::DIMMED));
}

#[test]
fn a_request_that_no_replica_may_have() {
    let mut world = World::new(2);
    let plan = RoutePlan {
        version: 1,
        health: vec![Health::Draining, Health::Draining],
        generations: Vec::new(),
        groups: vec![vec![A, B]],
    };
    world.dispatcher.adopt(at(1_000), &plan);
    let ask = world.ask(at(2_000));
    let record = world.end(at(2_000), ask);
    assert_eq!(told(&record), "refused at 0 ms: no replica may be used (a draining, b draining)");
    assert!(record.remarks.has(Remarks::FAILED));
}

/// Never sends anything.
#[derive(Debug)]
struct Holding;

impl Selector for Holding {
    fn name(&self) -> &'static str {
        "holding"
    }

    fn select(&mut self, _: Instant, _: Candidates<'_>, _: &mut Rng) -> Choice {
        Choice::Hold { until: Instant::FAR }
    }
}

#[test]
fn a_request_that_found_the_queue_full() {
    let mut world = World::of(2, Box::new(Holding), HedgeConfig::default());
    let ask = world.ask(at(2_000));
    let record = world.end(at(2_000), ask);
    assert_eq!(told(&record), "refused at 0 ms: too many requests wait already");
}

#[test]
fn a_request_that_failed_everywhere() {
    let mut world = World::new(2);
    let busy = world.occupy(at(1_000), B, 1);
    let mut ask = world.ask(at(1_000));
    world.learn(at(1_003), &mut ask, 0, Outcome::Failed(Failure::Unsent));
    world.learn(at(1_010), &mut ask, 1, Outcome::Failed(Failure::Broken));
    let record = world.end(at(1_010), ask);
    assert_eq!(
        told(&record),
        "sent to a (cost 0; b 1 because 1 in flight), sent again to b at 3 ms because a could not \
         be reached, failed at 10 ms: b broke off"
    );
    drop(busy);
}

#[test]
fn what_takes_longer_than_the_objective_or_most_is_kept_for_longer() {
    let objective = Some(ObjectiveConfig::new(Duration::from_millis(100)));
    let hedge = HedgeConfig { objective, ..HedgeConfig::default() };
    let mut world = World::of(1, Box::new(LeastOutstanding), hedge);
    assert!(world.answer(0, 90).remarks.is_empty(), "nobody knows yet what is slow");
    assert!(world.answer(200, 101).remarks.has(Remarks::OVER_OBJECTIVE));
    let mut world = World::new(1);
    world.teach();
    assert!(world.answer(20_000, 39).remarks.is_empty());
    assert!(world.answer(20_100, 60).remarks.has(Remarks::SLOW));
}
