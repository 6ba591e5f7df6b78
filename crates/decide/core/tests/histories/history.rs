//! The driver: it does what a moment says, obeys the dispatcher's protocol, and compares.

use evenkeel_core::fleet::{Feedback, Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, Redundancy, Single};
use evenkeel_core::request::{
    Attempt, BodyEnd, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Probe, Refusal,
    Replay, Request, Step,
};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::Dimmer;
use evenkeel_core::window::RequestWindow;
use evenkeel_core::{Replica, Rng};

use crate::model::{Copy, Fate, OpenCall};
use crate::moments::Moment;
use crate::watched::{HedgeAfter, Told, Watched};

const HELD_MAX: usize = 5;
const RETRIES_MAX: u8 = 2;
const RETRY_SHARE: f64 = 0.25;
const HEDGE_SHARE: f64 = 0.125;
const BURST: f64 = 2.0;
const SLOTS_MAX: usize = 7;
const GROUPS_MAX: usize = 4;

struct InFlight {
    attempt: Attempt,
    mirror: bool,
    is_answered: bool,
    /// Its slot was given to another replica since it left.
    stale: bool,
}

impl InFlight {
    /// Whether its outcome is counted: of an answer it is at the end.
    fn is_counted(&self) -> bool {
        self.attempt.is_learnt() && !self.is_answered
    }
}

/// The dispatcher, a driver that obeys its protocol, and the model's books.
pub(crate) struct History {
    dispatcher: Dispatcher,
    reported: Told,
    /// Attempts that the policy is never told the end of: their slot became another's.
    untold: u64,
    /// Policies that it may be given.
    policies: Vec<&'static str>,
    may_hold: bool,
    /// Whether a call may wait for answers to questions.
    may_ask: bool,
    held_max: usize,
    is_hedged: bool,
    now: Instant,
    calls: Vec<OpenCall>,
    in_flight: Vec<InFlight>,
    probes: Vec<Probe>,
    plan: RoutePlan,
    /// Held calls per group, in order.
    queues: Vec<Vec<u64>>,
    opened: u64,
    /// Retries that no budget pays for.
    free_retries: u64,
    expected: RequestWindow,
    counted: RequestWindow,
}

impl History {
    pub(crate) fn new(policy: &str, hedging: bool, policies: Vec<&'static str>) -> Self {
        let slots = |ids: &[usize]| ids.iter().copied().map(ReplicaId::new).collect::<Vec<_>>();
        let groups = vec![slots(&[0, 1, 2]), slots(&[1, 2, 3]), slots(&[2])];
        let reported = Told::default();
        let selector = Watched::new(policy, reported.clone());
        let config = config(HELD_MAX);
        let fleet = Fleet::new(4, groups.clone());
        let mut dispatcher = Dispatcher::new(fleet, Box::new(selector), config);
        if hedging {
            dispatcher = dispatcher.with_redundancy(Box::new(hedge(true)));
        }
        Self {
            dispatcher,
            reported,
            untold: 0,
            policies,
            may_hold: may_hold(policy),
            may_ask: may_ask(policy),
            held_max: HELD_MAX,
            is_hedged: hedging,
            now: Instant::from_millis(1_000),
            calls: Vec::new(),
            in_flight: Vec::new(),
            probes: Vec::new(),
            plan: RoutePlan { groups, ..RoutePlan::single_group(4) },
            queues: vec![Vec::new(); GROUPS_MAX],
            opened: 0,
            free_retries: 0,
            expected: RequestWindow::default(),
            counted: RequestWindow::default(),
        }
    }

    pub(crate) fn live(&mut self, moment: &Moment) {
        match *moment {
            Moment::Open { group, fallback, replay, among, copies } => {
                let group = GroupId::new(group % GROUPS_MAX);
                let fallback = fallback.map(|group| GroupId::new(group % GROUPS_MAX));
                let request = Request::new(group, replay);
                self.open(Request { among, fallback, copies, ..request });
            }
            Moment::Limit { call, among } => {
                if let Some(call) = nth(&self.calls, call) {
                    let open = &mut self.calls[call];
                    open.among = Some(among);
                    open.call.limit(among);
                }
            }
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
            Moment::Queued { attempt, queue, service_us } => {
                self.hear_queued(attempt, queue, service_us);
            }
            Moment::Fail { attempt, failure } => self.learn(attempt, &Outcome::Failed(failure)),
            Moment::GiveUp(attempt) => self.learn(attempt, &Outcome::Cancelled),
            Moment::Finish { attempt, end } => self.finish(attempt, end),
            Moment::Abandon(call) => {
                if let Some(call) = nth(&self.calls, call) {
                    self.expected.abandoned += 1;
                    self.close(call);
                }
            }
            Moment::Mirror { call, slot } => self.mirror(call, slot),
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
            Moment::Reconfigure { policy, held_max, hedged } => {
                self.reconfigure(policy, held_max, hedged);
            }
            Moment::Reassign { slot } => self.reassign(slot),
            Moment::TakeWindow => self.take_window(),
        }
        self.resume();
        while let Some(probe) = self.dispatcher.probe(self.now) {
            self.probes.push(probe);
        }
        self.check();
    }

    fn open(&mut self, request: Request) {
        self.opened += 1;
        self.expected.opened += 1;
        let call = self.dispatcher.open(self.now, CallId(self.opened), request);
        self.calls.push(OpenCall {
            call,
            id: self.opened,
            group: request.group.index(),
            fallback: request.fallback.map(GroupId::index),
            replay: request.replay,
            among: request.among,
            at_once: request.copies,
            copies: Vec::new(),
            answer: None,
            first_error: None,
            unavailable: None,
            last_failure: None,
            retries: 0,
        });
        self.step(self.calls.len() - 1);
    }

    fn reconfigure(&mut self, policy: usize, held_max: usize, hedged: bool) {
        let policy = self.policies[policy % self.policies.len()];
        let selector = Watched::new(policy, self.reported.clone());
        // Calls that are held were so before: they are told at once that they may ask again.
        self.may_hold |= may_hold(policy);
        self.may_ask |= may_ask(policy);
        self.held_max = held_max;
        let redundancy: Box<dyn Redundancy> = match self.is_hedged {
            true => Box::new(hedge(hedged)),
            false => Box::new(Single),
        };
        let (now, config) = (self.now, config(held_max));
        self.dispatcher.reconfigure(now, Box::new(selector), redundancy, config);
    }

    /// Its replica left; attempts may be on their way to it still.
    fn reassign(&mut self, slot: usize) {
        let slot = slot % self.plan.health.len();
        if self.plan.health[slot] != Health::Draining {
            return;
        }
        let to_it =
            |flight: &&mut InFlight| flight.attempt.replica().index() == slot && !flight.stale;
        for flight in self.in_flight.iter_mut().filter(to_it) {
            flight.stale = true;
            self.untold += u64::from(!flight.attempt.is_learnt());
        }
        self.plan.version += 1;
        self.plan.generations.resize(self.plan.health.len(), 0);
        self.plan.generations[slot] += 1;
        self.plan.health[slot] = Health::Up;
        self.expected.replicas.resize(self.plan.health.len(), Default::default());
        self.expected.replicas[slot] = Default::default();
        self.dispatcher.adopt(self.now, &self.plan);
        let facts = self.dispatcher.fleet().replica(ReplicaId::new(slot));
        assert_eq!((facts.in_flight(), facts.feedback()), (0, None), "nothing is known of it");
    }

    /// Steps a call until it rests or ends.
    fn step(&mut self, place: usize) {
        for _ in 0..20 {
            let open = &mut self.calls[place];
            match self.dispatcher.step(self.now, &mut open.call) {
                Step::Send(attempt) => {
                    self.fall_back(place);
                    self.sent(place, attempt);
                }
                Step::Cancel(copy) => self.cancel(place, copy),
                Step::Wait { until } => {
                    // Where it waits for answers nobody is chosen yet, nor a group.
                    let is_choosing = open.copies.is_empty() && until.is_some();
                    if !is_choosing {
                        self.fall_back(place);
                    }
                    return self.rests(place, until.is_some());
                }
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
                    self.fall_back(place);
                    self.refused(place, refusal);
                    self.expected.refused += 1;
                    return self.close(place);
                }
            }
        }
        panic!("a call steps for ever");
    }

    fn sent(&mut self, place: usize, attempt: Attempt) {
        let slot = attempt.replica().index();
        self.check_send(place, slot, attempt.kind());
        let open = &mut self.calls[place];
        assert_eq!((attempt.call(), attempt.copy()), (CallId(open.id), open.copies.len()));
        let kind = attempt.kind();
        open.copies.push(Copy { slot, kind, fate: Fate::Flying, cancel_asked: false });
        if kind == Kind::Retry && open.is_free() && open.flying() == 1 {
            self.free_retries += 1;
        } else if kind == Kind::Retry {
            open.retries += 1;
        }
        if kind != Kind::Hedge && self.queues[open.group].first() == Some(&open.id) {
            self.queues[open.group].remove(0);
        }
        self.expected.retries += u64::from(kind == Kind::Retry);
        self.expected.hedges += u64::from(kind == Kind::Hedge);
        self.expected.moves += u64::from(kind == Kind::Moved);
        self.in_flight.push(InFlight { attempt, mirror: false, is_answered: false, stale: false });
        self.slot(slot).sent += 1;
    }

    fn check_send(&self, place: usize, slot: usize, kind: Kind) {
        let open = &self.calls[place];
        let untried = self.untried(place);
        assert!(untried.contains(&slot), "{slot} is no candidate of {untried:?}");
        assert_ne!(self.plan.health[slot], Health::Draining);
        let others_up = untried.iter().any(|&other| self.plan.health[other] == Health::Up);
        assert!(self.plan.health[slot] == Health::Up || !others_up, "down, and others are up");
        let may_be_down = open.fallback.is_none_or(|fallback| fallback == open.group);
        assert!(self.plan.health[slot] == Health::Up || may_be_down, "down, with a fallback");
        assert!(open.answer.is_none(), "sent after it was answered");
        let queue = &self.queues[open.group];
        match kind {
            Kind::First if open.copies.is_empty() => {}
            Kind::First => {
                let firsts = open.copies.iter().filter(|copy| copy.kind == Kind::First).count();
                assert!(firsts < usize::from(open.at_once) && open.flying() > 0);
                assert!(self.plan.health[slot] == Health::Up && queue.is_empty());
            }
            // Beside replicas that are silent or on trial.
            Kind::Retry if open.flying() > 0 => {
                assert!(open.copies.iter().all(|copy| self.is_hopeless(open.id, copy)));
                assert!(open.replay == Replay::Always && open.retries < RETRIES_MAX);
                assert!(self.plan.health[slot] == Health::Up && queue.is_empty());
            }
            Kind::Retry => {
                assert!(open.is_free() || open.retries < RETRIES_MAX);
                let was_unsent = open.last_failure == Some(Failure::Unsent);
                assert!(open.replay != Replay::IfUnsent || was_unsent);
            }
            Kind::Hedge => {
                assert!(
                    open.replay == Replay::Always,
                    "only what may be in flight twice is hedged"
                );
                assert!(open.flying() > 0, "a hedge is a further copy");
                assert!(self.plan.health[slot] == Health::Up && queue.is_empty());
            }
            Kind::Moved => {
                assert!(open.replay == Replay::Always && open.flying() == 1);
                let moves = open.copies.iter().filter(|copy| copy.kind == Kind::Moved).count();
                assert!(self.plan.health[slot] == Health::Up && queue.is_empty() && moves < 2);
            }
            Kind::Mirror => panic!("step sends no mirrors"),
        }
        assert!(queue.first().is_none_or(|&head| head == open.id), "{} overtook", open.id);
    }

    /// Whether nothing is to be expected of a copy soon.
    fn is_hopeless(&self, call: u64, copy: &Copy) -> bool {
        let replica = self.dispatcher.fleet().replica(ReplicaId::new(copy.slot));
        let of_call = |flight: &&InFlight| flight.attempt.call() == CallId(call);
        let is_stale = self.in_flight.iter().filter(of_call).any(|flight| flight.stale);
        let ejection_failures = DispatcherConfig::default().safeguards.ejection_failures;
        let is_doubtful = replica.is_silent() || replica.needs_trial(self.now, ejection_failures);
        // It was asked whether it lives, and said nothing for the least that is waited for.
        let is_mute = self.now >= replica.received_at() + Duration::from_millis(1);
        copy.fate != Fate::Flying
            || copy.cancel_asked
            || is_doubtful
            || is_stale
            || (self.may_ask && is_mute)
    }

    /// A call whose turn it is goes to its fallback when nobody of its group is up.
    fn fall_back(&mut self, place: usize) {
        let is_up = |slot: &usize| self.plan.health[*slot] == Health::Up;
        let is_somebody_up = self.untried(place).iter().any(is_up);
        let open = &mut self.calls[place];
        let queue = &mut self.queues[open.group];
        let is_its_turn = queue.first().is_none_or(|&head| head == open.id);
        if let Some(fallback) = open.fallback.filter(|fallback| *fallback != open.group)
            && (open.flying() == 0 && is_its_turn && !is_somebody_up)
        {
            queue.retain(|&id| id != open.id);
            open.group = fallback;
        }
    }

    /// Members of its group that a call may still be sent to.
    fn untried(&self, place: usize) -> Vec<usize> {
        let open = &self.calls[place];
        let members = self.plan.groups.get(open.group).into_iter().flatten();
        let tried = |slot: usize| open.copies.iter().any(|copy| copy.slot == slot);
        let may_answer = |slot| open.among.is_none_or(|among| among.contains(slot));
        members
            .map(|id| id.index())
            .filter(|&slot| {
                may_answer(slot) && !tried(slot) && self.plan.health[slot] != Health::Draining
            })
            .collect()
    }

    fn rests(&mut self, place: usize, has_deadline: bool) {
        let open = &self.calls[place];
        if open.flying() > 0 {
            return;
        }
        if has_deadline && open.copies.is_empty() {
            return assert!(self.may_ask, "it waits for answers that nobody asked for");
        }
        assert!(self.may_hold && !has_deadline, "nothing flies and it waits for nothing");
        let queue = &mut self.queues[open.group];
        if !queue.contains(&open.id) {
            assert!(queue.len() < self.held_max);
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
                assert!(queue.len() >= self.held_max && !queue.contains(&open.id));
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
        // A loser, or the one before a copy that has just moved.
        let last = open.copies.last().expect("it was sent");
        let has_moved = last.kind == Kind::Moved && copy + 1 < open.copies.len();
        assert!(open.answer.map_or(has_moved, |answer| answer != copy), "nobody else is cancelled");
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
        let settled = self.dispatcher.give_up(self.now, &mut flight.attempt);
        self.calls[place].settle(settled, copy, Fate::Cancelled, None);
        if !flight.stale {
            self.slot(flight.attempt.replica().index()).cancelled += 1;
        }
        self.dispatcher.finish(self.now, flight.attempt, BodyEnd::ClientGone);
    }

    /// Hears that an attempt waits. Who is told of a call that is closed drops that.
    fn hear_queued(&mut self, attempt: usize, queue: u32, service_us: u32) {
        let Some(flight) = nth(&self.in_flight, attempt) else { return };
        let attempt = &self.in_flight[flight].attempt;
        let is_it = |open: &OpenCall| CallId(open.id) == attempt.call();
        let Some(place) = self.calls.iter().position(is_it) else { return };
        let report = Feedback::measured(queue, 1, Duration::from_micros(service_us.into()));
        self.dispatcher.hear_queued(self.now, &mut self.calls[place].call, attempt, &report);
        self.step(place);
    }

    fn learn(&mut self, attempt: usize, outcome: &Outcome) {
        let Some(place) = nth(&self.in_flight, attempt) else { return };
        let flight = &mut self.in_flight[place];
        if flight.attempt.is_learnt() {
            return;
        }
        let settled = self.dispatcher.learn(self.now, &mut flight.attempt, outcome);
        let (id, copy) = (flight.attempt.call(), flight.attempt.copy());
        let (slot, mirror) = (flight.attempt.replica().index(), flight.mirror);
        let is_counted = !flight.stale;
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
            _ if !is_counted => {}
            Fate::Good => self.in_flight[place].is_answered = true, // counted at its end
            Fate::ErrorReply | Fate::Unavailable | Fate::Failed => self.slot(slot).failed += 1,
            Fate::Cancelled | Fate::Flying => self.slot(slot).cancelled += 1,
        }
        let Some(place) = self.calls.iter().position(|open| CallId(open.id) == id) else { return };
        if mirror {
            self.calls[place].call.settle(settled); // changes nothing
        } else {
            self.calls[place].settle(settled, copy, fate, failure);
        }
        self.step(place);
    }

    fn finish(&mut self, attempt: usize, end: BodyEnd) {
        let Some(place) = nth(&self.in_flight, attempt) else { return };
        let serves_open_call = |id| self.calls.iter().any(|open| CallId(open.id) == id);
        let flight = &self.in_flight[place];
        if !flight.attempt.is_learnt() && serves_open_call(flight.attempt.call()) {
            return; // its call would wait for ever
        }
        let flight = self.in_flight.remove(place);
        let (slot, is_learnt) = (flight.attempt.replica().index(), flight.attempt.is_learnt());
        let counts = self.slot(slot);
        match (flight.is_answered, end) {
            _ if flight.stale => {}
            (true, BodyEnd::UpstreamBroke | BodyEnd::TimedOut) => {
                counts.failed += 1;
                counts.broken_bodies += 1;
            }
            (true, BodyEnd::Complete | BodyEnd::ClientGone) => counts.succeeded += 1,
            (false, _) => counts.cancelled += u64::from(!is_learnt),
        }
        self.dispatcher.finish(self.now, flight.attempt, end);
    }

    fn mirror(&mut self, call: usize, slot: usize) {
        let Some(place) = nth(&self.calls, call) else { return };
        let slot = slot % self.plan.health.len();
        let id = CallId(self.calls[place].id);
        let attempt = self.dispatcher.mirror(self.now, id, ReplicaId::new(slot));
        assert_eq!(attempt.kind(), Kind::Mirror);
        self.in_flight.push(InFlight { attempt, mirror: true, is_answered: false, stale: false });
        self.slot(slot).sent += 1;
    }

    fn answer_probe(&mut self, probe: usize, rif: Option<u32>) {
        let Some(place) = nth(&self.probes, probe) else { return };
        let probe = self.probes.swap_remove(place);
        let answer = rif.map(|rif| Feedback::measured(rif, 1, Duration::from_millis(3)));
        self.dispatcher.learn_probe(self.now, &probe, answer.as_ref());
    }

    fn plan(&mut self, moment: &Moment) {
        self.plan.version += 1;
        let slots = self.plan.health.len();
        match *moment {
            Moment::Join if slots < SLOTS_MAX => {
                self.plan.health.push(Health::Up);
                let group = slots % self.plan.groups.len();
                self.plan.groups[group].push(ReplicaId::new(slots));
            }
            Moment::SetHealth { slot, health } => self.plan.health[slot % slots] = health,
            Moment::Regroup { seed } => {
                let mut rng = Rng::seeded(seed);
                let mut ids: Vec<_> = (0..slots).map(ReplicaId::new).collect();
                // Groups go with the calls that are held in them, and others come.
                self.plan.groups.resize(1 + rng.below(GROUPS_MAX), Vec::new());
                for group in &mut self.plan.groups {
                    rng.shuffle(&mut ids);
                    *group = ids[..rng.below(slots.min(5))].to_vec();
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

    /// Each by its own time: the head of a queue may be among those that wait for answers.
    fn step_all(&mut self) {
        let ids: Vec<u64> = self.calls.iter().map(|open| open.id).collect();
        for id in ids {
            if let Some(place) = self.calls.iter().position(|open| open.id == id) {
                self.step(place);
            }
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

    fn slot(&mut self, slot: usize) -> &mut evenkeel_core::window::ReplicaWindow {
        let replicas = &mut self.expected.replicas;
        replicas.resize(replicas.len().max(slot + 1), Default::default());
        &mut replicas[slot]
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
                w.moves,
            ]
        };
        assert_eq!(totals(counted), totals(expected));
        let ended = counted.answered + counted.refused + counted.abandoned;
        assert_eq!(counted.opened, ended + self.calls.len() as u64);
        for (slot, expected) in expected.replicas.iter().enumerate() {
            let counted = counted.replicas[slot];
            let ended = counted.succeeded + counted.failed + counted.cancelled;
            let here =
                |flight: &&InFlight| flight.attempt.replica().index() == slot && !flight.stale;
            let open = self.in_flight.iter().filter(here).filter(|it| !it.is_counted()).count();
            assert_eq!(counted.sent, ended + open as u64, "one outcome each at replica {slot}");
            let outcomes = |w: evenkeel_core::window::ReplicaWindow| {
                [w.sent, w.succeeded, w.failed, w.cancelled, w.broken_bodies]
            };
            assert_eq!(outcomes(counted), outcomes(*expected), "replica {slot}");
        }
        let allowed = |share: f64| BURST + share * counted.opened as f64;
        let paid = counted.retries - self.free_retries;
        assert!(paid as f64 <= allowed(RETRY_SHARE), "retries beyond the budget");
        assert!(counted.moves as f64 <= 10.0 + 0.1 * counted.opened as f64, "too many moves");
        assert!(counted.hedges as f64 <= allowed(HEDGE_SHARE), "hedges beyond the budget");
    }

    fn check(&self) {
        let fleet = self.dispatcher.fleet();
        for slot in 0..fleet.len() {
            let here =
                |flight: &&InFlight| flight.attempt.replica().index() == slot && !flight.stale;
            let expected = self.in_flight.iter().filter(here).count();
            let counted = Replica::in_flight(fleet.replica(ReplicaId::new(slot)));
            assert_eq!(counted as usize, expected, "in flight at {slot}");
        }
        assert_eq!(self.dispatcher.held(), self.queues.iter().map(Vec::len).sum::<usize>());
        let open = |flight: &&InFlight| !flight.attempt.is_learnt() && !flight.stale;
        let open = self.in_flight.iter().filter(open).count() as u64;
        let (sends, outcomes) = self.reported.get();
        assert_eq!(sends - outcomes, open + self.untold);
    }

    /// From here on all goes well: every call must end, and nothing may be left.
    pub(crate) fn drain(mut self) -> RequestWindow {
        for round in 0.. {
            assert!(round < 5_000, "calls are starved: {:?}", self.queues);
            while !self.in_flight.is_empty() {
                self.learn(0, &Outcome::Replied(None));
                self.finish(0, BodyEnd::Complete);
                self.resume();
                self.check();
            }
            if self.calls.is_empty() {
                break;
            }
            if !self.probes.is_empty() {
                self.answer_probe(0, None);
                self.resume();
                continue;
            }
            if self.may_ask && self.dispatcher.deadline().is_none() {
                self.now += Duration::from_secs(1); // nobody waits longer for answers
                self.step_all();
                self.resume();
                continue;
            }
            assert!(self.dispatcher.deadline().is_some(), "a held call waits for nothing");
            self.wake();
            self.resume();
        }
        self.take_window();
        let (sends, outcomes) = self.reported.get();
        assert_eq!(sends, outcomes + self.untold, "every attempt is learnt from once");
        assert_eq!((self.dispatcher.fleet().in_flight(), self.dispatcher.held()), (0, 0));
        assert_eq!(self.dispatcher.deadline(), None);
        self.counted
    }
}

fn config(held_max: usize) -> DispatcherConfig {
    DispatcherConfig {
        retries_max: RETRIES_MAX,
        retry_budget: Budget::share(RETRY_SHARE, BURST),
        backlog_calls_max: held_max,
        can_ask: true,
        ..DispatcherConfig::default()
    }
}

/// Copies after a millisecond, or after so long that none leaves.
fn hedge(hedged: bool) -> HedgeAfter {
    let delay = Duration::from_millis(if hedged { 1 } else { 1_000_000 });
    HedgeAfter(delay, Budget::share(HEDGE_SHARE, BURST))
}

fn may_ask(policy: &str) -> bool {
    policy.starts_with("adaptive") || policy.contains("mode=sync")
}

fn may_hold(policy: &str) -> bool {
    policy.contains("rate_control=on") || policy.starts_with("c3-")
}

/// The place of the n-th item, counting round and round.
fn nth<T>(items: &[T], n: usize) -> Option<usize> {
    (!items.is_empty()).then(|| n % items.len())
}
