//! A world of one dispatcher and a few replicas, small enough to be obviously right: events in a
//! sorted map, replicas with a queue and slots, one driver loop. Deterministic from its seed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use evenkeel_core::Rng;
use evenkeel_core::fleet::{Feedback, Fleet, GroupId, Health, ReplicaId};
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::Redundancy;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Probe,
    Replay, Request, Step,
};
use evenkeel_core::time::{Duration, Instant, from_millis_f64};
use evenkeel_core::units::{Dimmer, Probability};

use crate::policies;

const GROUP: GroupId = GroupId::new(0);
const REQUEST: Request = Request::new(GROUP, Replay::Always);
const PROBE_TAKES: Duration = Duration::from_micros(200);

/// `seconds` after the beginning.
pub(crate) fn secs(seconds: f64) -> Instant {
    Instant::from_secs_f64(seconds)
}

/// What a replica does with a request that reaches it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Behaviour {
    /// Serves it, in exponentially distributed time with this mean.
    Serves { mean_ms: f64 },
    /// Fails it at once, without queue or slot.
    Fails { after_ms: f64, failure: Failure },
    /// Serves it as soon, but the body of its answer breaks off this much after the head.
    Breaks { mean_ms: f64, body_ms: f64 },
    /// Never answers, nor probes.
    Hangs,
}

struct Replica {
    behaviour: Behaviour,
    dimmer: Option<Dimmer>,
    slots: usize,
    in_service: usize,
    queue: VecDeque<usize>,
}

struct Job {
    call: u64,
    slot: usize,
    /// Taken when it is learnt from.
    attempt: Option<Attempt>,
    /// While its body is on the way.
    answered: Option<Attempt>,
    service_ms: f64,
    failure: Option<Failure>,
}

struct OpenCall {
    call: Call,
    jobs: Vec<usize>,
}

enum Event {
    Arrival,
    /// A slot is done with this job.
    Served(usize),
    /// This job failed on arrival.
    Failed(usize),
    TryTimeout(usize),
    /// The body of this job's answer broke off.
    Broke(usize),
    HedgeDue(u64),
    RateOpens,
    ProbeAnswered(Probe),
}

/// One attempt that was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Instant,
    pub(crate) slot: usize,
    pub(crate) kind: Kind,
}

/// One call that ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub(crate) opened_at: Instant,
    pub(crate) at: Instant,
    /// Why it was refused, or with which failure the replica answered; `None` is a good answer.
    pub(crate) wrong: Option<&'static str>,
}

pub(crate) struct World {
    pub(crate) dispatcher: Dispatcher,
    pub(crate) sent: Vec<Sent>,
    pub(crate) ended: Vec<Ended>,
    now: Instant,
    events: BTreeMap<(Instant, u64), Event>,
    events_made: u64,
    replicas: Vec<Replica>,
    jobs: Vec<Job>,
    calls: BTreeMap<u64, OpenCall>,
    calls_made: u64,
    rate_per_s: f64,
    read_repair: Probability,
    try_timeout: Duration,
    plan: RoutePlan,
    arrivals: Rng,
    service: Rng,
    mirrors: Rng,
}

impl World {
    /// `replicas` replicas with four slots and a mean service time of 10 ms each, and 300 requests
    /// per second, a quarter of what three of them can do.
    pub(crate) fn new(policy: &str, replicas: usize, seed: u64) -> Self {
        let config = DispatcherConfig { seed, ..DispatcherConfig::default() };
        let fleet = Fleet::single_group(replicas);
        let mut world = Self {
            dispatcher: Dispatcher::new(fleet, policies::make(policy), config),
            sent: Vec::new(),
            ended: Vec::new(),
            now: Instant::ZERO,
            events: BTreeMap::new(),
            events_made: 0,
            replicas: Vec::new(),
            jobs: Vec::new(),
            calls: BTreeMap::new(),
            calls_made: 0,
            rate_per_s: 300.0,
            read_repair: Probability::ZERO,
            try_timeout: Duration::from_secs(1),
            plan: RoutePlan::single_group(replicas),
            arrivals: Rng::stream(seed, "arrivals"),
            service: Rng::stream(seed, "service"),
            mirrors: Rng::stream(seed, "mirrors"),
        };
        (0..replicas).for_each(|_| world.add_replica());
        world.after(Duration::ZERO, Event::Arrival);
        world
    }

    pub(crate) fn with_redundancy(mut self, redundancy: impl Redundancy + 'static) -> Self {
        self.dispatcher = self.dispatcher.with_redundancy(Box::new(redundancy));
        self
    }

    pub(crate) fn with_rate(mut self, rate_per_s: f64) -> Self {
        self.rate_per_s = rate_per_s;
        self
    }

    /// From this moment on requests come at this rate.
    pub(crate) fn set_rate(&mut self, rate_per_s: f64) {
        self.rate_per_s = rate_per_s;
    }

    /// This share of requests also goes to all the other replicas (mirrors).
    pub(crate) fn with_read_repair(mut self, share: f64) -> Self {
        self.read_repair = Probability::clamped(share);
        self
    }

    /// From this moment on the replica behaves like this.
    pub(crate) fn replica_does(&mut self, slot: usize, behaviour: Behaviour) {
        self.replicas[slot].behaviour = behaviour;
    }

    /// From this moment on the replica tells this dimmer on its answers; `None`: none.
    pub(crate) fn replica_tells(&mut self, slot: usize, dimmer: Option<f64>) {
        self.replicas[slot].dimmer = dimmer.map(Dimmer::clamped);
    }

    /// A further replica joins the group.
    pub(crate) fn join(&mut self) -> usize {
        self.add_replica();
        let slot = self.replicas.len() - 1;
        self.plan.health.push(Health::Up);
        self.plan.groups[0].push(ReplicaId::new(slot));
        self.adopt();
        slot
    }

    /// The slow loops say this of a replica's health.
    pub(crate) fn health(&mut self, slot: usize, health: Health) {
        self.plan.health[slot] = health;
        self.adopt();
    }

    pub(crate) fn run_until(&mut self, end: Instant) {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end {
                break;
            }
            let ((at, _), event) = entry.remove_entry();
            self.now = at;
            self.happen(event);
            self.resume();
        }
        self.now = end;
    }

    /// The share of the requests of a time span that a replica was sent (mirrors apart).
    pub(crate) fn share(&self, slot: usize, span: Range<Instant>) -> f64 {
        let chosen = |sent: &&Sent| span.contains(&sent.at) && sent.kind != Kind::Mirror;
        let all = self.sent.iter().filter(chosen).count();
        let its = self.sent.iter().filter(chosen).filter(|sent| sent.slot == slot).count();
        its as f64 / all.max(1) as f64
    }

    /// Calls opened in a time span that ended, with the time each took in milliseconds.
    pub(crate) fn latencies_ms(&self, span: Range<Instant>) -> Vec<f64> {
        let ended = self.ended.iter().filter(|ended| span.contains(&ended.opened_at));
        ended.map(|ended| ended.at.millis_since(ended.opened_at)).collect()
    }

    /// Calls opened in a time span that ended otherwise than with a good answer.
    pub(crate) fn wrong(&self, span: Range<Instant>) -> usize {
        let ended = self.ended.iter().filter(|ended| span.contains(&ended.opened_at));
        ended.filter(|ended| ended.wrong.is_some()).count()
    }

    fn add_replica(&mut self) {
        let behaviour = Behaviour::Serves { mean_ms: 10.0 };
        let queue = VecDeque::new();
        self.replicas.push(Replica { behaviour, dimmer: None, slots: 4, in_service: 0, queue });
    }

    fn adopt(&mut self) {
        self.plan.version += 1;
        self.dispatcher.adopt(self.now, &self.plan);
        self.resume();
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.at(self.now + delay, event);
    }

    fn at(&mut self, at: Instant, event: Event) {
        self.events_made += 1;
        self.events.insert((at.max(self.now), self.events_made), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival => self.arrive(),
            Event::Served(job) => self.served(job),
            Event::Failed(job) => {
                let failure = self.jobs[job].failure.expect("it failed");
                self.learn(job, &Outcome::Failed(failure));
            }
            Event::TryTimeout(job) => self.learn(job, &Outcome::Failed(Failure::TimedOut)),
            Event::Broke(job) => {
                let attempt = self.jobs[job].answered.take().expect("it was answered");
                self.dispatcher.finish(self.now, attempt, BodyEnd::UpstreamBroke);
            }
            Event::HedgeDue(call) => self.drive(call),
            Event::RateOpens => self.dispatcher.wake(self.now),
            Event::ProbeAnswered(probe) => {
                let slot = probe.replica().index();
                let hangs = matches!(self.replicas[slot].behaviour, Behaviour::Hangs);
                let answer = (!hangs).then(|| self.report(slot, 0.0));
                self.dispatcher.learn_probe(self.now, &probe, answer.as_ref());
            }
        }
    }
}

/// The driver: the same arms as in the simulator and the proxy.
impl World {
    fn arrive(&mut self) {
        let gap_ms = self.arrivals.exponential() * 1e3 / self.rate_per_s;
        self.after(from_millis_f64(gap_ms), Event::Arrival);
        self.calls_made += 1;
        let id = self.calls_made;
        let call = self.dispatcher.open(self.now, CallId(id), REQUEST);
        self.calls.insert(id, OpenCall { call, jobs: Vec::new() });
        self.drive(id);
        if self.mirrors.chance(self.read_repair) {
            self.mirror(id);
        }
    }

    fn drive(&mut self, id: u64) {
        let Some(mut open) = self.calls.remove(&id) else { return };
        loop {
            match self.dispatcher.step(self.now, &mut open.call) {
                Step::Send(attempt) => open.jobs.push(self.send(attempt)),
                Step::Cancel(copy) => self.cancel(&mut open, copy),
                Step::Wait { until } => {
                    if let Some(deadline) = until {
                        self.at(deadline.at, Event::HedgeDue(id));
                    }
                    self.calls.insert(id, open);
                    break;
                }
                Step::Answered(copy) => {
                    let wrong = self.jobs[open.jobs[copy]].failure.map(|_| "error reply");
                    self.close(open.call, wrong);
                    break;
                }
                Step::Refused(_) => {
                    self.close(open.call, Some("refused"));
                    break;
                }
            }
        }
        while let Some(probe) = self.dispatcher.probe(self.now) {
            self.after(PROBE_TAKES, Event::ProbeAnswered(probe));
        }
    }

    fn resume(&mut self) {
        while let Some(CallId(id)) = self.dispatcher.resumed() {
            self.drive(id);
        }
        if let Some(deadline) = self.dispatcher.deadline() {
            self.at(deadline.at, Event::RateOpens);
        }
    }

    fn close(&mut self, call: Call, wrong: Option<&'static str>) {
        self.ended.push(Ended { opened_at: call.opened_at(), at: self.now, wrong });
        self.dispatcher.close(self.now, call);
    }

    fn cancel(&mut self, open: &mut OpenCall, copy: usize) {
        let job = &mut self.jobs[open.jobs[copy]];
        let mut attempt = job.attempt.take().expect("only attempts on their way are cancelled");
        open.call.settle(self.dispatcher.give_up(self.now, &mut attempt));
        self.dispatcher.finish(self.now, attempt, BodyEnd::Complete);
    }

    fn mirror(&mut self, id: u64) {
        let first = self.sent.last().map(|sent| sent.slot);
        for slot in (0..self.replicas.len()).filter(|&slot| Some(slot) != first) {
            let mirror = self.dispatcher.mirror(self.now, CallId(id), ReplicaId::new(slot));
            self.send(mirror);
        }
    }

    fn learn(&mut self, job: usize, outcome: &Outcome) {
        let Job { call, attempt, slot, .. } = &mut self.jobs[job];
        let (call, behaviour) = (*call, self.replicas[*slot].behaviour);
        let Some(mut attempt) = attempt.take() else { return };
        let settled = self.dispatcher.learn(self.now, &mut attempt, outcome);
        match (behaviour, outcome) {
            (Behaviour::Breaks { body_ms, .. }, Outcome::Replied(_)) => {
                self.jobs[job].answered = Some(attempt);
                self.after(from_millis_f64(body_ms), Event::Broke(job));
            }
            _ => self.dispatcher.finish(self.now, attempt, BodyEnd::Complete),
        }
        if let Some(open) = self.calls.get_mut(&call) {
            open.call.settle(settled);
            self.drive(call);
        }
    }
}

/// The replicas.
impl World {
    fn send(&mut self, attempt: Attempt) -> usize {
        let (job, slot) = (self.jobs.len(), attempt.replica().index());
        self.sent.push(Sent { at: self.now, slot, kind: attempt.kind() });
        let CallId(call) = attempt.call();
        let attempt = Some(attempt);
        let answered = None;
        self.jobs.push(Job { call, slot, attempt, answered, service_ms: 0.0, failure: None });
        self.after(self.try_timeout, Event::TryTimeout(job));
        match self.replicas[slot].behaviour {
            Behaviour::Serves { .. } | Behaviour::Breaks { .. } => {
                self.replicas[slot].queue.push_back(job);
                self.serve(slot);
            }
            Behaviour::Fails { after_ms, failure } => {
                self.jobs[job].failure = Some(failure);
                self.after(from_millis_f64(after_ms), Event::Failed(job));
            }
            Behaviour::Hangs => {}
        }
        job
    }

    fn serve(&mut self, slot: usize) {
        let replica = &mut self.replicas[slot];
        let (Behaviour::Serves { mean_ms } | Behaviour::Breaks { mean_ms, .. }) = replica.behaviour
        else {
            return;
        };
        if replica.in_service == replica.slots {
            return;
        }
        let Some(job) = replica.queue.pop_front() else { return };
        replica.in_service += 1;
        let service_ms = mean_ms * self.service.exponential();
        self.jobs[job].service_ms = service_ms;
        self.after(from_millis_f64(service_ms), Event::Served(job));
    }

    fn served(&mut self, job: usize) {
        let Job { slot, service_ms, .. } = self.jobs[job];
        self.replicas[slot].in_service -= 1;
        self.serve(slot);
        let report = self.report(slot, service_ms);
        self.learn(job, &Outcome::Replied(Some(report)));
    }

    fn report(&self, slot: usize, service_ms: f64) -> Feedback {
        let replica = &self.replicas[slot];
        let (queue, in_service) = (replica.queue.len() as u32, replica.in_service as u32);
        let latency_ms = match replica.behaviour {
            Behaviour::Serves { mean_ms } | Behaviour::Breaks { mean_ms, .. } => {
                mean_ms * (1.0 + f64::from(queue) / 4.0)
            }
            Behaviour::Fails { after_ms, .. } => after_ms,
            Behaviour::Hangs => 0.0,
        };
        Feedback {
            latency: Some(from_millis_f64(latency_ms)),
            dimmer: replica.dimmer,
            reported_at: Some(self.now),
            ..Feedback::measured(queue, in_service, from_millis_f64(service_ms))
        }
    }
}
