//! Random lives: every policy is driven through histories of calls, failures, cancels, abandoned
//! clients, strays, mirrors and plans, beside a slow model that keeps its books in vectors.
//!
//! `PROPTEST_CASES` sets the number of histories per policy.

#[path = "common/policies.rs"]
mod policies;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use evenkeel_core::fleet::{Feedback, Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, Redundancy};
use evenkeel_core::request::select::{Candidates, Choice, Selector};
use evenkeel_core::request::{
    Attempt, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Probe, Refusal,
    Replay, Request, Settled, Step,
};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::Dimmer;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Replica, Rng};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

const HELD_MAX: usize = 5;
const RETRIES_MAX: u8 = 2;
const RETRY_SHARE: f64 = 0.25;
const HEDGE_SHARE: f64 = 0.125;
const BURST: f64 = 2.0;
const SEATS_MAX: usize = 7;
const HISTORIES: u32 = 64;
/// Policies with so few tokens that calls are held most of the time.
const SCARCE: [&str; 3] = [
    "c3:rate_control=on,tokens_max=1,rate_initial=2,step_max=0.1,rate_min=0.01",
    "c3:ranking=off,rate_control=on,tokens_max=2,rate_initial=1,step_max=0.1,rate_min=0.01",
    "c3-absim:tokens_max=1,rate_initial=2,step_max=0.1,rate_min=0.01",
];

/// A moment in the life of a fleet. Numbers choose among what there is, modulo how many there are.
#[derive(Clone, Debug)]
enum Moment {
    Open { group: usize, idempotent: bool },
    StepAgain(usize),
    Reply { attempt: usize, queue: u32, service_us: u32 },
    Fail { attempt: usize, failure: Failure },
    GiveUp(usize),
    Finish(usize),
    Abandon(usize),
    Mirror { call: usize, seat: usize },
    AnswerProbe { probe: usize, rif: Option<u32> },
    Pass { micros: u64 },
    ClockOfAnotherThread { micros: u64 },
    WakeAtDeadline,
    Join,
    SetHealth { seat: usize, health: Health },
    Regroup { seed: u64 },
    StalePlan,
    TakeWindow,
}

fn failures() -> impl Strategy<Value = Failure> {
    prop::sample::select(vec![
        Failure::Unsent,
        Failure::Broken,
        Failure::TimedOut,
        Failure::Unavailable,
        Failure::ErrorReply,
    ])
}

fn moments() -> impl Strategy<Value = Moment> {
    let n = 0..64_usize;
    prop_oneof![
        12 => (n.clone(), prop::bool::weighted(0.8))
            .prop_map(|(group, idempotent)| Moment::Open { group, idempotent }),
        8 => n.clone().prop_map(Moment::StepAgain),
        8 => (n.clone(), prop_oneof![0..20_u32, Just(u32::MAX)], 0..50_000_u32)
            .prop_map(|(attempt, queue, service_us)| Moment::Reply { attempt, queue, service_us }),
        5 => (n.clone(), failures())
            .prop_map(|(attempt, failure)| Moment::Fail { attempt, failure }),
        1 => n.clone().prop_map(Moment::GiveUp),
        8 => n.clone().prop_map(Moment::Finish),
        2 => n.clone().prop_map(Moment::Abandon),
        2 => (n.clone(), n.clone()).prop_map(|(call, seat)| Moment::Mirror { call, seat }),
        4 => (n.clone(), prop::option::of(prop_oneof![0..20_u32, Just(u32::MAX)]))
            .prop_map(|(probe, rif)| Moment::AnswerProbe { probe, rif }),
        8 => (0..6_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_000_u64).prop_map(|micros| Moment::Pass { micros }),
        1 => (0..3_000_u64).prop_map(|micros| Moment::ClockOfAnotherThread { micros }),
        4 => Just(Moment::WakeAtDeadline),
        1 => Just(Moment::Join),
        1 => (n, prop::sample::select(vec![Health::Up, Health::Down, Health::Draining]))
            .prop_map(|(seat, health)| Moment::SetHealth { seat, health }),
        1 => any::<u64>().prop_map(|seed| Moment::Regroup { seed }),
        1 => Just(Moment::StalePlan),
        1 => Just(Moment::TakeWindow),
    ]
}

/// Hedges after a fixed time: the real one needs a hundred answers before its first copy.
#[derive(Debug)]
struct HedgeAfter(Duration, Budget);

impl Redundancy for HedgeAfter {
    fn on_open(&mut self, _now: Instant) {
        self.1.deposit();
    }

    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
        (copies_sent <= 2).then_some(self.0)
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        self.1.withdraw()
    }
}

/// A policy that is watched: what it is asked and told.
#[derive(Debug)]
struct Watched {
    policy: Box<dyn Selector>,
    /// Sends and outcomes it was told of.
    told: Rc<Cell<(u64, u64)>>,
}

impl Selector for Watched {
    fn name(&self) -> &'static str {
        self.policy.name()
    }

    fn select(&mut self, now: Instant, from: Candidates<'_>, rng: &mut Rng) -> Choice {
        let different: BTreeSet<_> = from.ids.iter().collect();
        assert!(!from.ids.is_empty() && different.len() == from.ids.len(), "{:?}", from.ids);
        for &id in from.ids {
            if let Some(cost) = self.policy.cost(now, from.fleet, id) {
                assert!(cost >= 0.0, "cost {cost}");
            }
        }
        let choice = self.policy.select(now, from, rng);
        match choice {
            Choice::Send(id) => assert!(from.ids.contains(&id), "{id:?} of {:?}", from.ids),
            Choice::Hold { until } => assert!(until > now, "a wait must make progress"),
            Choice::Refuse => panic!("there were candidates"),
        }
        choice
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        self.policy.cost(now, fleet, replica)
    }

    fn on_send(&mut self, now: Instant, replica: ReplicaId, kind: Kind, fleet: &Fleet) {
        let (sends, outcomes) = self.told.get();
        self.told.set((sends + 1, outcomes));
        self.policy.on_send(now, replica, kind, fleet);
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, fleet: &Fleet) {
        let (sends, outcomes) = self.told.get();
        self.told.set((sends, outcomes + 1));
        assert!(fleet.replica(of.replica()).in_flight() > 0, "it still counts as in flight");
        self.policy.on_outcome(now, of, outcome, fleet);
    }

    fn on_membership(&mut self, now: Instant, fleet: &Fleet) {
        self.policy.on_membership(now, fleet);
    }

    fn next_probe(&mut self) -> Option<ReplicaId> {
        self.policy.next_probe()
    }

    fn on_probe(&mut self, now: Instant, replica: ReplicaId, answer: Option<&Feedback>) {
        self.policy.on_probe(now, replica, answer);
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fate {
    Flying,
    Good,
    Unavailable,
    ErrorReply,
    Failed,
    Cancelled,
}

#[derive(Clone, Copy, Debug)]
struct Copy {
    seat: usize,
    kind: Kind,
    fate: Fate,
    cancel_asked: bool,
}

struct OpenCall {
    call: Call,
    id: u64,
    group: usize,
    idempotent: bool,
    copies: Vec<Copy>,
    /// The copy whose answer the caller must get, once that is certain.
    answer: Option<usize>,
    first_error: Option<usize>,
    /// The last copy whose replica could not serve: the answer when all else fails.
    unavailable: Option<usize>,
    last_failure: Option<Failure>,
    retries: u8,
}

impl OpenCall {
    fn flying(&self) -> usize {
        self.copies.iter().filter(|copy| copy.fate == Fate::Flying).count()
    }

    fn settle(&mut self, settled: Settled, copy: usize, fate: Fate, failure: Option<Failure>) {
        self.call.settle(settled);
        self.copies[copy].fate = fate;
        if self.answer.is_some() {
            return;
        }
        match fate {
            Fate::Good => self.answer = Some(copy),
            Fate::ErrorReply => self.first_error = self.first_error.or(Some(copy)),
            Fate::Failed => self.last_failure = failure,
            Fate::Unavailable => (self.unavailable, self.last_failure) = (Some(copy), failure),
            Fate::Cancelled => self.last_failure = Some(Failure::Broken), // it may have arrived
            Fate::Flying => {}
        }
        if self.flying() == 0 && self.answer.is_none() {
            self.answer = self.first_error;
        }
    }
}

struct InFlight {
    attempt: Attempt,
    mirror: bool,
}

/// The dispatcher, a driver that obeys its protocol, and the model's books.
struct History {
    dispatcher: Dispatcher,
    told: Rc<Cell<(u64, u64)>>,
    may_hold: bool,
    now: Instant,
    calls: Vec<OpenCall>,
    in_flight: Vec<InFlight>,
    probes: Vec<Probe>,
    plan: RoutePlan,
    /// Held calls per group, in order.
    queues: Vec<Vec<u64>>,
    opened: u64,
    expected: RequestWindow,
    counted: RequestWindow,
}

impl History {
    fn new(policy: &str, hedging: bool) -> Self {
        let seats = |ids: &[usize]| ids.iter().copied().map(ReplicaId::new).collect::<Vec<_>>();
        let groups = vec![seats(&[0, 1, 2]), seats(&[1, 2, 3]), seats(&[2])];
        let told = Rc::new(Cell::new((0, 0)));
        let selector = Watched { policy: policies::make(policy), told: Rc::clone(&told) };
        let config = DispatcherConfig {
            retries_max: RETRIES_MAX,
            retry_budget: Budget::share(RETRY_SHARE, BURST),
            backlog_calls_max: HELD_MAX,
            ..DispatcherConfig::default()
        };
        let fleet = Fleet::new(4, groups.clone());
        let mut dispatcher = Dispatcher::new(fleet, Box::new(selector), config);
        if hedging {
            let budget = Budget::share(HEDGE_SHARE, BURST);
            let hedge = HedgeAfter(Duration::from_millis(1), budget);
            dispatcher = dispatcher.with_redundancy(Box::new(hedge));
        }
        Self {
            dispatcher,
            told,
            may_hold: policy.contains("rate_control=on") || policy.starts_with("c3-"),
            now: Instant::from_millis(1_000),
            calls: Vec::new(),
            in_flight: Vec::new(),
            probes: Vec::new(),
            plan: RoutePlan { version: 0, health: vec![Health::Up; 4], groups },
            queues: vec![Vec::new(); 3],
            opened: 0,
            expected: RequestWindow::default(),
            counted: RequestWindow::default(),
        }
    }

    fn live(&mut self, moment: &Moment) {
        match *moment {
            Moment::Open { group, idempotent } => self.open(group % 4, idempotent),
            Moment::StepAgain(call) => {
                if let Some(call) = nth(&self.calls, call) {
                    self.step(call);
                }
            }
            Moment::Reply { attempt, queue, service_us } => {
                let service = Duration::from_micros(service_us.into());
                let dimmer = Dimmer::clamped(f64::from(service_us) / 50_000.0);
                let feedback = Feedback {
                    dimmer: (queue % 4 > 0).then_some(dimmer),
                    ..Feedback::measured(queue, 1, service)
                };
                let report = (service_us % 3 > 0).then_some(feedback);
                self.learn(attempt, &Outcome::Replied(report));
            }
            Moment::Fail { attempt, failure } => self.learn(attempt, &Outcome::Failed(failure)),
            Moment::GiveUp(attempt) => self.learn(attempt, &Outcome::Cancelled),
            Moment::Finish(attempt) => self.finish(attempt),
            Moment::Abandon(call) => {
                if let Some(call) = nth(&self.calls, call) {
                    self.expected.abandoned += 1;
                    self.close(call);
                }
            }
            Moment::Mirror { call, seat } => self.mirror(call, seat),
            Moment::AnswerProbe { probe, rif } => self.answer_probe(probe, rif),
            Moment::Pass { micros } => self.now += Duration::from_micros(micros),
            Moment::ClockOfAnotherThread { micros } => {
                self.now = Instant::from_nanos(self.now.as_nanos() - micros * 1_000);
            }
            Moment::WakeAtDeadline => self.wake(),
            Moment::Join | Moment::SetHealth { .. } | Moment::Regroup { .. } => self.plan(moment),
            Moment::StalePlan => {
                let stale = RoutePlan { version: self.plan.version, ..RoutePlan::single_group(1) };
                self.dispatcher.adopt(self.now, &stale);
            }
            Moment::TakeWindow => self.take_window(),
        }
        self.resume();
        while let Some(probe) = self.dispatcher.probe(self.now) {
            self.probes.push(probe);
        }
        self.check();
    }

    fn open(&mut self, group: usize, idempotent: bool) {
        self.opened += 1;
        self.expected.opened += 1;
        let replay = if idempotent { Replay::Always } else { Replay::IfUnsent };
        let request = Request { group: GroupId::new(group), replay };
        let call = self.dispatcher.open(self.now, CallId(self.opened), request);
        self.calls.push(OpenCall {
            call,
            id: self.opened,
            group,
            idempotent,
            copies: Vec::new(),
            answer: None,
            first_error: None,
            unavailable: None,
            last_failure: None,
            retries: 0,
        });
        self.step(self.calls.len() - 1);
    }

    /// Steps a call until it rests or ends.
    fn step(&mut self, place: usize) {
        for _ in 0..20 {
            let open = &mut self.calls[place];
            match self.dispatcher.step(self.now, &mut open.call) {
                Step::Send(attempt) => self.sent(place, attempt),
                Step::Cancel(copy) => self.cancel(place, copy),
                Step::Wait { until } => return self.rests(place, until.is_some()),
                Step::Answered(copy) => {
                    let open = &self.calls[place];
                    assert_eq!(Some(copy), open.answer.or(open.unavailable));
                    assert!(open.answer.is_some() || open.flying() == 0, "others may do better");
                    self.expected.answered += 1;
                    let won = self.calls[place].copies[copy].kind == Kind::Hedge;
                    self.expected.hedges_won += u64::from(won);
                    return self.close(place);
                }
                Step::Refused(refusal) => {
                    self.refused(place, refusal);
                    self.expected.refused += 1;
                    return self.close(place);
                }
            }
        }
        panic!("a call steps for ever");
    }

    fn sent(&mut self, place: usize, attempt: Attempt) {
        let seat = attempt.replica().index();
        self.check_send(place, seat, attempt.kind());
        let open = &mut self.calls[place];
        assert_eq!((attempt.call(), attempt.copy()), (CallId(open.id), open.copies.len()));
        let kind = attempt.kind();
        open.copies.push(Copy { seat, kind, fate: Fate::Flying, cancel_asked: false });
        if kind == Kind::Retry {
            open.retries += 1;
        }
        if kind != Kind::Hedge && self.queues[open.group].first() == Some(&open.id) {
            self.queues[open.group].remove(0);
        }
        self.expected.retries += u64::from(kind == Kind::Retry);
        self.expected.hedges += u64::from(kind == Kind::Hedge);
        self.in_flight.push(InFlight { attempt, mirror: false });
        self.seat(seat).sent += 1;
    }

    fn check_send(&self, place: usize, seat: usize, kind: Kind) {
        let open = &self.calls[place];
        let untried = self.untried(place);
        assert!(untried.contains(&seat), "{seat} is no candidate of {untried:?}");
        assert_ne!(self.plan.health[seat], Health::Draining);
        let others_up = untried.iter().any(|&other| self.plan.health[other] == Health::Up);
        assert!(self.plan.health[seat] == Health::Up || !others_up, "down, and others are up");
        assert!(open.answer.is_none(), "sent after it was answered");
        let queue = &self.queues[open.group];
        match kind {
            Kind::First => assert!(open.copies.is_empty()),
            Kind::Retry => {
                assert!(open.flying() == 0 && open.retries < RETRIES_MAX);
                assert!(open.idempotent || open.last_failure == Some(Failure::Unsent));
            }
            Kind::Hedge => {
                assert!(open.idempotent && open.flying() > 0, "a hedge is a further copy");
                assert!(self.plan.health[seat] == Health::Up && queue.is_empty());
            }
            Kind::Mirror => panic!("step sends no mirrors"),
        }
        assert!(queue.first().is_none_or(|&head| head == open.id), "{} overtook", open.id);
    }

    /// Members of its group that a call may still be sent to.
    fn untried(&self, place: usize) -> Vec<usize> {
        let open = &self.calls[place];
        let members = self.plan.groups.get(open.group).into_iter().flatten();
        let tried = |seat: usize| open.copies.iter().any(|copy| copy.seat == seat);
        members
            .map(|id| id.index())
            .filter(|&seat| !tried(seat) && self.plan.health[seat] != Health::Draining)
            .collect()
    }

    fn rests(&mut self, place: usize, has_deadline: bool) {
        let open = &self.calls[place];
        if open.flying() > 0 {
            return;
        }
        assert!(self.may_hold && !has_deadline, "nothing flies and it waits for nothing");
        let queue = &mut self.queues[open.group];
        if !queue.contains(&open.id) {
            assert!(queue.len() < HELD_MAX);
            queue.push(open.id);
            self.expected.held += 1;
        }
    }

    fn refused(&self, place: usize, refusal: Refusal) {
        let open = &self.calls[place];
        assert!(open.flying() == 0 && open.answer.or(open.unavailable).is_none());
        match refusal {
            Refusal::NoReplica => {
                assert!(self.untried(place).is_empty() && open.last_failure.is_none());
            }
            Refusal::BacklogFull => {
                let queue = &self.queues[open.group];
                assert!(queue.len() == HELD_MAX && !queue.contains(&open.id));
            }
            Refusal::Failed(failure) => {
                assert!(!open.copies.is_empty());
                assert_eq!(failure, open.last_failure.unwrap_or(Failure::Broken));
            }
        }
    }

    /// Obeys a cancel; every third time the answer is on its way already and comes as a stray.
    fn cancel(&mut self, place: usize, copy: usize) {
        let open = &mut self.calls[place];
        assert!(open.answer.is_some_and(|answer| answer != copy), "only losers are cancelled");
        let loser = &mut open.copies[copy];
        assert!(loser.fate == Fate::Flying && !loser.cancel_asked, "asked once");
        loser.cancel_asked = true;
        let id = CallId(open.id);
        if open.id.is_multiple_of(3) {
            return;
        }
        let is_it = |flight: &InFlight| {
            !flight.mirror && flight.attempt.call() == id && flight.attempt.copy() == copy
        };
        let flight = self.in_flight.iter().position(is_it).expect("it is in flight");
        let mut flight = self.in_flight.remove(flight);
        let settled = self.dispatcher.learn(self.now, &mut flight.attempt, &Outcome::Cancelled);
        self.calls[place].settle(settled, copy, Fate::Cancelled, None);
        self.seat(flight.attempt.replica().index()).cancelled += 1;
        self.dispatcher.finish(self.now, flight.attempt);
    }

    fn learn(&mut self, attempt: usize, outcome: &Outcome) {
        let Some(place) = nth(&self.in_flight, attempt) else { return };
        let flight = &mut self.in_flight[place];
        if flight.attempt.is_learnt() {
            return;
        }
        let settled = self.dispatcher.learn(self.now, &mut flight.attempt, outcome);
        let (id, copy) = (flight.attempt.call(), flight.attempt.copy());
        let (seat, mirror) = (flight.attempt.replica().index(), flight.mirror);
        let (fate, failure) = match outcome {
            Outcome::Replied(_) => (Fate::Good, None),
            Outcome::Failed(Failure::ErrorReply) => (Fate::ErrorReply, None),
            Outcome::Failed(Failure::Unavailable) => {
                (Fate::Unavailable, Some(Failure::Unavailable))
            }
            Outcome::Failed(failure) => (Fate::Failed, Some(*failure)),
            Outcome::Cancelled => (Fate::Cancelled, None),
        };
        match fate {
            Fate::Good => self.seat(seat).succeeded += 1,
            Fate::ErrorReply | Fate::Unavailable | Fate::Failed => self.seat(seat).failed += 1,
            Fate::Cancelled | Fate::Flying => self.seat(seat).cancelled += 1,
        }
        let Some(place) = self.calls.iter().position(|open| CallId(open.id) == id) else { return };
        if mirror {
            self.calls[place].call.settle(settled); // changes nothing
        } else {
            self.calls[place].settle(settled, copy, fate, failure);
        }
        self.step(place);
    }

    fn finish(&mut self, attempt: usize) {
        let Some(place) = nth(&self.in_flight, attempt) else { return };
        let serves_open_call = |id| self.calls.iter().any(|open| CallId(open.id) == id);
        let flight = &self.in_flight[place];
        if !flight.attempt.is_learnt() && serves_open_call(flight.attempt.call()) {
            return; // its call would wait for ever
        }
        let flight = self.in_flight.remove(place);
        if !flight.attempt.is_learnt() {
            self.seat(flight.attempt.replica().index()).cancelled += 1;
        }
        self.dispatcher.finish(self.now, flight.attempt);
    }

    fn mirror(&mut self, call: usize, seat: usize) {
        let Some(place) = nth(&self.calls, call) else { return };
        let seat = seat % self.plan.health.len();
        let id = CallId(self.calls[place].id);
        let attempt = self.dispatcher.mirror(self.now, id, ReplicaId::new(seat));
        assert_eq!(attempt.kind(), Kind::Mirror);
        self.in_flight.push(InFlight { attempt, mirror: true });
        self.seat(seat).sent += 1;
    }

    fn answer_probe(&mut self, probe: usize, rif: Option<u32>) {
        let Some(place) = nth(&self.probes, probe) else { return };
        let probe = self.probes.swap_remove(place);
        let answer = rif.map(|rif| Feedback::measured(rif, 1, Duration::from_millis(3)));
        self.dispatcher.learn_probe(self.now, &probe, answer.as_ref());
    }

    fn plan(&mut self, moment: &Moment) {
        self.plan.version += 1;
        let seats = self.plan.health.len();
        match *moment {
            Moment::Join if seats < SEATS_MAX => {
                self.plan.health.push(Health::Up);
                let group = seats % self.plan.groups.len();
                self.plan.groups[group].push(ReplicaId::new(seats));
            }
            Moment::SetHealth { seat, health } => self.plan.health[seat % seats] = health,
            Moment::Regroup { seed } => {
                let mut rng = Rng::seeded(seed);
                let mut ids: Vec<_> = (0..seats).map(ReplicaId::new).collect();
                for group in &mut self.plan.groups {
                    rng.shuffle(&mut ids);
                    *group = ids[..rng.below(seats.min(5))].to_vec();
                }
            }
            _ => {}
        }
        self.dispatcher.adopt(self.now, &self.plan);
    }

    fn wake(&mut self) {
        if let Some(deadline) = self.dispatcher.deadline() {
            self.now = self.now.max(deadline.at);
            self.dispatcher.wake(self.now);
        }
    }

    fn resume(&mut self) {
        for _ in 0..1_000 {
            let Some(CallId(id)) = self.dispatcher.resumed() else { return };
            if let Some(place) = self.calls.iter().position(|open| open.id == id) {
                self.step(place);
            }
        }
        panic!("calls are resumed for ever");
    }

    fn close(&mut self, place: usize) {
        let open = self.calls.remove(place);
        if let Some(queue) = self.queues.get_mut(open.group) {
            queue.retain(|&id| id != open.id);
        }
        self.dispatcher.close(self.now, open.call);
    }

    fn seat(&mut self, seat: usize) -> &mut evenkeel_core::window::ReplicaWindow {
        let replicas = &mut self.expected.replicas;
        replicas.resize(replicas.len().max(seat + 1), Default::default());
        &mut replicas[seat]
    }

    fn take_window(&mut self) {
        let window = self.dispatcher.window();
        self.counted.merge(&window);
        let (counted, expected) = (&self.counted, &self.expected);
        let totals = |w: &RequestWindow| {
            [
                w.opened,
                w.answered,
                w.refused,
                w.abandoned,
                w.held,
                w.retries,
                w.hedges,
                w.hedges_won,
            ]
        };
        assert_eq!(totals(counted), totals(expected));
        let ended = counted.answered + counted.refused + counted.abandoned;
        assert_eq!(counted.opened, ended + self.calls.len() as u64);
        for (seat, expected) in expected.replicas.iter().enumerate() {
            let counted = counted.replicas[seat];
            let outcomes = |w: evenkeel_core::window::ReplicaWindow| {
                [w.sent, w.succeeded, w.failed, w.cancelled]
            };
            assert_eq!(outcomes(counted), outcomes(*expected), "replica {seat}");
        }
        let allowed = |share: f64| BURST + share * counted.opened as f64;
        assert!(counted.retries as f64 <= allowed(RETRY_SHARE), "retries beyond the budget");
        assert!(counted.hedges as f64 <= allowed(HEDGE_SHARE), "hedges beyond the budget");
    }

    fn check(&self) {
        let fleet = self.dispatcher.fleet();
        for seat in 0..fleet.len() {
            let here = |flight: &&InFlight| flight.attempt.replica().index() == seat;
            let expected = self.in_flight.iter().filter(here).count();
            let counted = Replica::in_flight(fleet.replica(ReplicaId::new(seat)));
            assert_eq!(counted as usize, expected, "in flight at {seat}");
        }
        assert_eq!(self.dispatcher.held(), self.queues.iter().map(Vec::len).sum::<usize>());
        let learnt = self.in_flight.iter().filter(|flight| flight.attempt.is_learnt()).count();
        let (sends, outcomes) = self.told.get();
        assert_eq!(sends - outcomes, (self.in_flight.len() - learnt) as u64);
    }

    /// From here on all goes well: every call must end, and nothing may be left.
    fn drain(mut self) -> RequestWindow {
        for round in 0.. {
            assert!(round < 5_000, "calls are starved: {:?}", self.queues);
            while !self.in_flight.is_empty() {
                self.learn(0, &Outcome::Replied(None));
                let flight = self.in_flight.remove(0);
                self.dispatcher.finish(self.now, flight.attempt);
                self.resume();
                self.check();
            }
            if self.calls.is_empty() {
                break;
            }
            assert!(self.dispatcher.deadline().is_some(), "a held call waits for nothing");
            self.wake();
            self.resume();
        }
        self.take_window();
        let (sends, outcomes) = self.told.get();
        assert_eq!(sends, outcomes, "every attempt is learnt from once");
        assert_eq!((self.dispatcher.fleet().in_flight(), self.dispatcher.held()), (0, 0));
        assert_eq!(self.dispatcher.deadline(), None);
        self.counted
    }
}

/// The place of the n-th item, counting round and round.
fn nth<T>(items: &[T], n: usize) -> Option<usize> {
    (!items.is_empty()).then(|| n % items.len())
}

fn histories(hedging: bool) {
    let from_environment = ProptestConfig::default().cases;
    let untouched = 256;
    let cases = if from_environment == untouched { HISTORIES } else { from_environment };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    for policy in policies::all().into_iter().chain(SCARCE) {
        let mut runner = TestRunner::new(config.clone());
        let seen = Cell::new((0, 0, 0));
        let lived = runner.run(&prop::collection::vec(moments(), 1..250), |moments| {
            let mut history = History::new(policy, hedging);
            moments.iter().for_each(|moment| history.live(moment));
            let counted = history.drain();
            let (held, retries, hedges) = seen.get();
            seen.set((held + counted.held, retries + counted.retries, hedges + counted.hedges));
            Ok(())
        });
        if let Err(failure) = lived {
            panic!("{policy}: {failure}");
        }
        let (held, retries, hedges) = seen.get();
        let cases = u64::from(cases);
        assert!(retries > cases / 4, "{policy}: {retries} retries were put to the test");
        assert!(hedges > cases / 8 || !hedging, "{policy}: {hedges} hedges");

        assert!(held > cases || !SCARCE.contains(&policy), "{policy}: {held} were held");
    }
}

#[test]
fn every_policy_keeps_its_books_through_random_histories() {
    histories(false);
}

#[test]
fn every_policy_keeps_its_books_when_requests_are_hedged() {
    histories(true);
}

/// The few protocol promises that deserve a sentence of their own.
mod promises {
    use super::*;

    const NOW: Instant = Instant::from_millis(5);
    const REPLIED: Outcome = Outcome::Replied(None);

    fn dispatcher(policy: &str) -> Dispatcher {
        let hedge = HedgeAfter(Duration::from_millis(2), Budget::share(1.0, 10.0));
        let config = DispatcherConfig { backlog_calls_max: 2, ..DispatcherConfig::default() };
        Dispatcher::new(Fleet::single_group(3), policies::make(policy), config)
            .with_redundancy(Box::new(hedge))
    }

    fn open(dispatcher: &mut Dispatcher, id: u64) -> Call {
        let request = Request { group: GroupId::new(0), replay: Replay::Always };
        dispatcher.open(NOW, CallId(id), request)
    }

    fn sent(step: Step) -> Attempt {
        match step {
            Step::Send(attempt) => attempt,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    #[should_panic(expected = "an attempt is learnt from once")]
    fn an_attempt_is_learnt_from_once() {
        let mut dispatcher = dispatcher("c3");
        let mut call = open(&mut dispatcher, 1);
        let mut attempt = sent(dispatcher.step(NOW, &mut call));
        let _ = dispatcher.learn(NOW, &mut attempt, &REPLIED);
        let _ = dispatcher.learn(NOW, &mut attempt, &REPLIED);
    }

    #[test]
    fn a_good_answer_is_preferred_to_an_error_that_came_first() {
        for good_answer_comes in [true, false] {
            let mut dispatcher = dispatcher("c3");
            let mut call = open(&mut dispatcher, 1);
            let mut first = sent(dispatcher.step(NOW, &mut call));
            let mut hedge = sent(dispatcher.step(NOW + Duration::from_millis(3), &mut call));
            let error = Outcome::Failed(Failure::ErrorReply);
            call.settle(dispatcher.learn(NOW, &mut hedge, &error));
            assert!(matches!(dispatcher.step(NOW, &mut call), Step::Wait { .. }));
            let then = if good_answer_comes { REPLIED } else { Outcome::Failed(Failure::Broken) };
            call.settle(dispatcher.learn(NOW, &mut first, &then));
            let answer = if good_answer_comes { first.copy() } else { hedge.copy() };
            let step = dispatcher.step(NOW, &mut call);
            assert!(matches!(step, Step::Answered(copy) if copy == answer), "{step:?}");
            dispatcher.close(NOW, call);
            dispatcher.finish(NOW, first);
            dispatcher.finish(NOW, hedge);
        }
    }

    /// A request that must not be sent twice may have left with an attempt that was given up.
    #[test]
    fn an_attempt_given_up_forbids_what_an_unsent_one_before_it_allowed() {
        let config = DispatcherConfig { retries_max: 6, ..DispatcherConfig::default() };
        let mut dispatcher =
            Dispatcher::new(Fleet::single_group(3), policies::make("round-robin"), config);
        let request = Request { group: GroupId::new(0), replay: Replay::IfUnsent };
        let mut call = dispatcher.open(NOW, CallId(1), request);
        for outcome in [Outcome::Failed(Failure::Unsent), Outcome::Cancelled] {
            let mut attempt = sent(dispatcher.step(NOW, &mut call));
            call.settle(dispatcher.learn(NOW, &mut attempt, &outcome));
            dispatcher.finish(NOW, attempt);
        }
        let step = dispatcher.step(NOW, &mut call);
        assert!(matches!(step, Step::Refused(Refusal::Failed(Failure::Broken))), "{step:?}");
        dispatcher.close(NOW, call);
    }

    #[test]
    fn a_held_call_that_asks_too_often_keeps_its_one_place() {
        // No tokens at the beginning: all calls are held, and two fill the queue.
        let mut dispatcher = dispatcher("c3-absim");
        let now = Instant::ZERO;
        let mut calls: Vec<_> = (1..=2).map(|id| open(&mut dispatcher, id)).collect();
        for _ in 0..3 {
            for call in &mut calls {
                let step = dispatcher.step(now, call);
                assert!(matches!(step, Step::Wait { until: None }), "{step:?}");
            }
            assert_eq!(dispatcher.held(), 2);
        }
        for call in calls {
            dispatcher.close(now, call);
        }
        assert_eq!((dispatcher.held(), dispatcher.deadline()), (0, None));
    }

    #[test]
    fn a_held_call_asks_again_soon_because_rates_change() {
        // The first token comes in 200 s.
        let mut dispatcher = dispatcher("c3:rate_control=on,rate_initial=0.0001");
        let mut call = open(&mut dispatcher, 1);
        assert!(matches!(dispatcher.step(NOW, &mut call), Step::Wait { .. }));
        let asks_at = dispatcher.deadline().expect("it is held").at;
        assert!(asks_at <= NOW + Duration::from_millis(100), "{asks_at:?}");
        // Meanwhile answers to mirrors show that there is room.
        for millis in 0..50 {
            let at = NOW + Duration::from_millis(millis);
            let mut mirror = dispatcher.mirror(at, CallId(9), ReplicaId::new(0));
            let _ = dispatcher.learn(at, &mut mirror, &REPLIED);
            dispatcher.finish(at, mirror);
        }
        dispatcher.wake(asks_at);
        assert_eq!(dispatcher.resumed(), Some(CallId(1)));
        let attempt = sent(dispatcher.step(asks_at, &mut call));
        dispatcher.finish(asks_at, attempt);
        dispatcher.close(asks_at, call);
    }

    #[test]
    fn a_new_plan_wakes_held_calls() {
        let mut dispatcher = dispatcher("c3-absim");
        let mut call = open(&mut dispatcher, 1);
        assert!(matches!(dispatcher.step(Instant::ZERO, &mut call), Step::Wait { .. }));
        let health = vec![Health::Draining; 3];
        let plan = RoutePlan { version: 1, health, ..RoutePlan::single_group(3) };
        dispatcher.adopt(Instant::ZERO, &plan);
        assert_eq!(dispatcher.resumed(), Some(CallId(1)));
        let step = dispatcher.step(Instant::ZERO, &mut call);
        assert!(matches!(step, Step::Refused(Refusal::NoReplica)), "{step:?}");
        dispatcher.close(Instant::ZERO, call);
    }

    #[test]
    fn a_mirror_changes_nothing_about_its_call() {
        let mut dispatcher = dispatcher("c3");
        let mut call = open(&mut dispatcher, 1);
        let mut first = sent(dispatcher.step(NOW, &mut call));
        let mut mirror = dispatcher.mirror(NOW, CallId(1), ReplicaId::new(0));
        call.settle(dispatcher.learn(NOW, &mut mirror, &REPLIED));
        assert!(matches!(dispatcher.step(NOW, &mut call), Step::Wait { .. }));
        call.settle(dispatcher.learn(NOW, &mut first, &REPLIED));
        assert!(matches!(dispatcher.step(NOW, &mut call), Step::Answered(0)));
        dispatcher.close(NOW, call);
        dispatcher.finish(NOW, mirror);
        dispatcher.finish(NOW, first);
        assert_eq!(dispatcher.fleet().in_flight(), 0);
    }

    #[test]
    fn fast_failures_do_not_teach_the_hedge_that_answers_are_fast() {
        use evenkeel_core::request::redundancy::{Hedge, HedgeConfig};
        #[derive(Debug)]
        struct Noted(Hedge, Rc<Cell<u32>>);
        impl Redundancy for Noted {
            fn on_latency(&mut self, now: Instant, latency: Duration) {
                self.1.set(self.1.get() + 1);
                self.0.on_latency(now, latency);
            }
            fn copy_due(&mut self, copies_sent: usize) -> Option<Duration> {
                self.0.copy_due(copies_sent)
            }
            fn permits_copy(&mut self, now: Instant) -> bool {
                self.0.permits_copy(now)
            }
        }
        let noted = Rc::new(Cell::new(0));
        let hedge = Noted(Hedge::new(HedgeConfig::default()), Rc::clone(&noted));
        let mut dispatcher = dispatcher("random").with_redundancy(Box::new(hedge));
        for (failure, expected) in [
            (Failure::Unsent, 0),
            (Failure::Broken, 0),
            (Failure::Unavailable, 0),
            (Failure::ErrorReply, 0),
            (Failure::TimedOut, 1),
        ] {
            let mut call = open(&mut dispatcher, 1);
            let mut attempt = sent(dispatcher.step(NOW, &mut call));
            call.settle(dispatcher.learn(NOW, &mut attempt, &Outcome::Failed(failure)));
            dispatcher.finish(NOW, attempt);
            dispatcher.close(NOW, call);
            assert_eq!(noted.get(), expected, "{failure:?}");
        }
    }
}
