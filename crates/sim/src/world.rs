//! The virtual world: clients with dispatchers, a network, replicas, and the order of events.
//!
//! The life of a request here has the same arms as in the proxy: `World::drive` steps the call,
//! `Send` puts a job on its way, and what comes back is learnt. The decisions in between are
//! core's own lines.

use std::rc::Rc;

use arrayvec::ArrayVec;
use evenkeel_core::request::call::ATTEMPTS_MAX;
use evenkeel_core::request::redundancy::Hedge;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::{Policy, Selector};
use evenkeel_core::request::{
    Attempt, Call, CallId, Dispatcher, DispatcherConfig, Failure, Kind, Outcome, Probe, Refusal,
    Replay, Request, Step,
};
use evenkeel_core::time::{millis, nanos};
use evenkeel_core::{Duration, Feedback, Fleet, GroupId, Instant, ReplicaId, Rng};
use slab::Slab;

use crate::events::{EventQueue, Lane};
use crate::fault::{Target, What};
use crate::oracle::{Oracle, TrueState};
use crate::report::{RunReport, Tally};
use crate::scenario::{Scenario, split_hedge};
use crate::server::{JobId, Server, done_at};
use crate::workload::{Arrival, Arriving, work};

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A generator's next request.
    Arrive(u32),
    /// A job reaches its server, or finds it dead.
    Reach(JobId),
    /// A job's service ends, unless a pause made it later.
    Done(JobId),
    /// A job's answer reaches the client.
    Back(JobId),
    /// A call has a deadline.
    Due(CallId),
    /// The caller gives up.
    Expire(CallId),
    /// A client's dispatcher has a deadline.
    Wake(u32),
    ProbeReach(u32),
    ProbeBack(u32),
    Fluctuate,
    /// A fault of the scenario strikes, at one server when it is of the kind that strikes each.
    Fault(u32, u32),
    Phase(u32),
    /// The loads of the servers are sampled.
    Sample,
}

/// No server in particular.
const ANY: u32 = u32::MAX;
/// The life of a server in which a job that has not reached it lives.
const NOT_THERE: u32 = u32::MAX;
/// How long a replica that fails at once takes to do so.
const FAILS_AFTER: Duration = Duration::from_micros(100);

#[derive(Debug)]
struct Client {
    dispatcher: Dispatcher,
    wakes_at: Instant,
}

#[derive(Debug)]
struct OpenCall {
    id: CallId,
    call: Option<Call>,
    client: u32,
    arrival: Arrival,
    arrived_at: Instant,
    /// The job of each copy, by the copy's number.
    jobs: ArrayVec<JobId, ATTEMPTS_MAX>,
    /// Copies that failed: a caller who is given the answer of one was not served.
    errors: ArrayVec<usize, ATTEMPTS_MAX>,
}

impl OpenCall {
    /// How a call ends that this copy answered.
    fn served_by(&self, copy: usize) -> Result<(), Refusal> {
        let is_error = self.errors.contains(&copy);
        if is_error { Err(Refusal::Failed(Failure::Unavailable)) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct Job {
    /// `None` once the client gave it up; the server works on.
    attempt: Option<Attempt>,
    call: CallId,
    client: u32,
    server: u32,
    work: f64,
    /// Seed of whether it meets a failure.
    luck: u64,
    service: Duration,
    started_at: Instant,
    paused_then: Duration,
    /// The life of its server in which it arrived there.
    life: u32,
    outcome: Outcome,
}

#[derive(Debug)]
struct FlyingProbe {
    probe: Probe,
    client: u32,
    answer: Option<Feedback>,
}

/// One run of a scenario with one policy and one seed.
#[derive(Debug)]
pub struct World<'a> {
    scenario: &'a Scenario,
    now: Instant,
    events: EventQueue<Event>,
    arriving: Arriving,
    clients: Vec<Client>,
    servers: Vec<Server>,
    truth: Rc<TrueState>,
    calls: Slab<OpenCall>,
    jobs: Slab<Job>,
    probes: Slab<FlyingProbe>,
    arrived: u64,
    speeds: Rng,
    faults: Rng,
    jitter: Rng,
    tally: Tally,
}

/// Runs a scenario with one of its policies.
///
/// # Panics
/// When the policy's text is neither an oracle nor in the registry ([`Scenario::read`] checks
/// it), or when an invariant of the world breaks.
#[must_use]
pub fn run(scenario: &Scenario, policy: &str, seed: u64) -> RunReport {
    let mut world = World::new(scenario, policy, seed);
    world.begin();
    while let Some((at, event)) = world.events.pop() {
        debug_assert!(at >= world.now, "time runs forward");
        world.now = at;
        world.tally.note_event(at, core::mem::discriminant(&event));
        world.happen(event);
    }
    world.end(policy, seed)
}

fn make_selector(policy: &str, clients: usize, truth: &Rc<TrueState>) -> Box<dyn Selector> {
    if let Some(oracle) = Oracle::named(policy, truth) {
        return Box::new(oracle);
    }
    let policy: Policy = policy.parse().expect("the scenario's policies were checked");
    policy.make(clients as u32)
}

fn ring(servers: usize, replicas: usize) -> Vec<Vec<ReplicaId>> {
    let group = |first| (0..replicas).map(|k| ReplicaId::new((first + k) % servers)).collect();
    (0..servers).map(group).collect()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, policy: &str, seed: u64) -> Self {
        let cluster = &scenario.cluster;
        let truth = TrueState::new(cluster.servers, cluster.concurrency);
        let server = Server::new(cluster.concurrency, cluster.service_mean);
        let groups = ring(cluster.servers, cluster.replication_factor);
        let clients = scenario.clients_max();
        let safeguards =
            if scenario.run.safeguards { Safeguards::default() } else { Safeguards::none() };
        let (plain, is_hedged) = split_hedge(policy);
        let client = |number: usize| {
            let config = DispatcherConfig {
                safeguards: safeguards.clone(),
                retries_max: scenario.run.retries_max,
                backlog_calls_max: 1 << 20,
                seed: seed ^ (number as u64) << 32,
                ..DispatcherConfig::default()
            };
            let fleet = Fleet::new(cluster.servers, groups.clone());
            let selector = make_selector(plain, clients, &truth);
            let dispatcher = Dispatcher::new(fleet, selector, config);
            let dispatcher = if is_hedged {
                let hedge = Hedge::new(scenario.run.hedge.clone());
                dispatcher.with_redundancy(Box::new(hedge))
            } else {
                dispatcher
            };
            Client { dispatcher, wakes_at: Instant::FAR }
        };
        Self {
            scenario,
            now: Instant::ZERO,
            events: EventQueue::default(),
            arriving: Arriving::new(scenario, seed),
            clients: (0..clients).map(client).collect(),
            servers: vec![server; cluster.servers],
            truth,
            calls: Slab::new(),
            jobs: Slab::new(),
            probes: Slab::new(),
            arrived: 0,
            speeds: Rng::stream(seed, "fluctuation"),
            faults: Rng::stream(seed, "faults"),
            jitter: Rng::stream(seed, "network"),
            tally: Tally::new(&scenario.run),
        }
    }

    fn begin(&mut self) {
        for server in 0..self.servers.len() {
            self.tell_truth(server);
        }
        if !self.scenario.fluctuation.interval.is_zero() {
            self.events.push(Lane::Mixed, Instant::ZERO, Event::Fluctuate);
        }
        for (number, fault) in self.scenario.faults.iter().enumerate() {
            let number = number as u32;
            let start = Instant::ZERO + fault.at;
            if fault.target == Target::Each && !fault.every.is_zero() {
                for server in 0..self.servers.len() as u32 {
                    let at = start + fault.every.mul_f64(self.faults.exponential());
                    self.events.push(Lane::Mixed, at, Event::Fault(number, server));
                }
            } else {
                self.events.push(Lane::Mixed, start, Event::Fault(number, ANY));
            }
        }
        for (number, phase) in self.scenario.workload.phases.iter().enumerate() {
            let at = Instant::ZERO + phase.at;
            self.events.push(Lane::Mixed, at, Event::Phase(number as u32));
        }
        if !self.scenario.run.load_every.is_zero() {
            let at = Instant::ZERO + self.scenario.run.load_every;
            self.events.push(Lane::Mixed, at, Event::Sample);
        }
        for generator in 0..self.arriving.generators() {
            let at = self.arriving.first();
            self.events.push(Lane::Arrivals, at, Event::Arrive(generator));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(generator) => self.arrive(generator),
            Event::Reach(job) => self.reach(job),
            Event::Done(job) => self.done(job),
            Event::Back(job) => self.back(job),
            Event::Due(call) => self.advance(call),
            Event::Expire(call) => self.expire(call),
            Event::Wake(client) => self.wake(client),
            Event::ProbeReach(probe) => self.probe_reach(probe),
            Event::ProbeBack(probe) => self.probe_back(probe),
            Event::Fluctuate => self.fluctuate(),
            Event::Fault(number, server) => self.fault(number, server),
            Event::Phase(number) => {
                let phase = &self.scenario.workload.phases[number as usize];
                self.arriving.join(phase.clients_join, phase.writes);
            }
            Event::Sample => self.sample(),
        }
    }

    fn sample(&mut self) {
        if self.arrived == self.scenario.workload.requests {
            return;
        }
        if self.is_warm(self.arrived) {
            self.tally.loads.note(self.servers.iter().map(Server::load));
        }
        self.events.push(Lane::Mixed, self.now + self.scenario.run.load_every, Event::Sample);
    }

    /// Whether the n-th request counts, or is of the warm-up.
    fn is_warm(&self, number: u64) -> bool {
        number as f64 > self.scenario.run.warmup * self.scenario.workload.requests as f64
    }

    fn is_over(&self) -> bool {
        self.arrived == self.scenario.workload.requests && self.calls.is_empty()
    }

    fn delay(&mut self) -> Duration {
        let network = &self.scenario.network;
        if network.jitter.is_zero() {
            return network.one_way;
        }
        network.one_way + network.jitter.mul_f64(self.jitter.exponential())
    }
}

/// The life of a request, at the client.
impl World<'_> {
    fn arrive(&mut self, generator: u32) {
        if self.arrived == self.scenario.workload.requests {
            return;
        }
        self.arrived += 1;
        let next = self.arriving.next_after(self.now);
        self.events.push(Lane::Arrivals, next, Event::Arrive(generator));

        let arrival = self.arriving.draw();
        let request =
            Request { group: GroupId::new(arrival.group as usize), replay: Replay::Always };
        let entry = self.calls.vacant_entry();
        let id = CallId(self.arrived << 24 | entry.key() as u64);
        let client = &mut self.clients[arrival.client as usize];
        let call = client.dispatcher.open(self.now, id, request);
        entry.insert(OpenCall {
            id,
            call: Some(call),
            client: arrival.client,
            arrival,
            arrived_at: self.now,
            jobs: ArrayVec::new(),
            errors: ArrayVec::new(),
        });
        if !self.scenario.workload.timeout.is_zero() {
            let at = self.now + self.scenario.workload.timeout;
            self.events.push(Lane::Mixed, at, Event::Expire(id));
        }
        self.advance(id);
    }

    /// The slot of a call, if it is still open.
    fn slot(&self, id: CallId) -> Option<usize> {
        let slot = (id.0 & 0xff_ffff) as usize;
        self.calls.get(slot).is_some_and(|open| open.id == id).then_some(slot)
    }

    /// Steps a call, then whatever its steps set free at the same client.
    fn advance(&mut self, id: CallId) {
        let Some(slot) = self.slot(id) else { return };
        let client = self.calls[slot].client;
        self.drive(slot);
        self.resume(client);
    }

    fn resume(&mut self, client: u32) {
        while let Some(id) = self.clients[client as usize].dispatcher.resumed() {
            if let Some(slot) = self.slot(id) {
                self.drive(slot);
            }
        }
        let Client { dispatcher, wakes_at } = &mut self.clients[client as usize];
        if let Some(deadline) = dispatcher.deadline()
            && deadline.at < *wakes_at
        {
            *wakes_at = deadline.at;
            self.events.push(Lane::Mixed, deadline.at.max(self.now), Event::Wake(client));
        }
    }

    fn wake(&mut self, client: u32) {
        let Client { dispatcher, wakes_at } = &mut self.clients[client as usize];
        if *wakes_at > self.now {
            return; // an earlier wake-up took its place
        }
        *wakes_at = Instant::FAR;
        dispatcher.wake(self.now);
        self.resume(client);
    }

    /// The loop around the dispatcher: the same arms as in the proxy.
    fn drive(&mut self, slot: usize) {
        let open = &mut self.calls[slot];
        let client = open.client;
        let Some(mut call) = open.call.take() else { return };
        let ended = loop {
            let step = self.clients[client as usize].dispatcher.step(self.now, &mut call);
            match step {
                Step::Send(attempt) => self.send(slot, attempt),
                Step::Cancel(copy) => self.cancel(slot, copy, &mut call),
                Step::Wait { until } => {
                    if let Some(deadline) = until {
                        self.events.push(Lane::Mixed, deadline.at, Event::Due(call.id()));
                    }
                    break None;
                }
                Step::Answered(copy) => break Some(self.calls[slot].served_by(copy)),
                Step::Refused(refusal) => break Some(Err(refusal)),
            }
        };
        self.ask_probes(client);
        match ended {
            None => self.calls[slot].call = Some(call),
            Some(end) => self.close(slot, call, end),
        }
    }

    fn close(&mut self, slot: usize, call: Call, end: Result<(), Refusal>) {
        let open = self.calls.remove(slot);
        self.clients[open.client as usize].dispatcher.close(self.now, call);
        let warm = self.is_warm(open.id.0 >> 24);
        self.tally.note_end(self.now, warm, self.now.since(open.arrived_at), end);
    }

    fn send(&mut self, slot: usize, attempt: Attempt) {
        let first = attempt.kind() == Kind::First;
        let chosen = attempt.replica();
        let job = self.launch(slot, attempt);
        let open = &mut self.calls[slot];
        open.jobs.push(job);
        if !(first && open.arrival.everywhere) {
            return;
        }
        let (id, client, group) = (open.id, open.client, open.arrival.group as usize);
        let factor = self.scenario.cluster.replication_factor;
        for offset in 0..factor {
            let member = ReplicaId::new((group + offset) % self.servers.len());
            if member != chosen {
                let dispatcher = &mut self.clients[client as usize].dispatcher;
                let mirror = dispatcher.mirror(self.now, id, member);
                self.launch(slot, mirror);
            }
        }
    }

    fn launch(&mut self, slot: usize, attempt: Attempt) -> JobId {
        let open = &self.calls[slot];
        let server = attempt.replica().index();
        let copy = match attempt.kind() {
            Kind::Mirror => 64 + server as u32, // a draw of its own for each mirror
            Kind::First | Kind::Retry | Kind::Hedge => attempt.copy() as u32,
        };
        let seed = open.arrival.work_seed;
        let job = self.jobs.insert(Job {
            attempt: Some(attempt),
            call: open.id,
            client: open.client,
            server: server as u32,
            work: work(seed, copy, self.scenario.cluster.service_cv),
            luck: seed.rotate_left(32) ^ u64::from(copy),
            service: Duration::ZERO,
            started_at: self.now,
            paused_then: Duration::ZERO,
            life: NOT_THERE,
            outcome: Outcome::Cancelled,
        }) as JobId;
        self.tally.note_choice(server);
        self.truth.moved(server, 1);
        let at = self.now + self.delay();
        self.events.push(Lane::ToServers, at, Event::Reach(job));
        job
    }

    /// Gives a copy up. Its server works on: HTTP has no way to take a queued request back.
    fn cancel(&mut self, slot: usize, copy: usize, call: &mut Call) {
        let job = &mut self.jobs[self.calls[slot].jobs[copy] as usize];
        let Some(mut attempt) = job.attempt.take() else { return };
        let dispatcher = &mut self.clients[job.client as usize].dispatcher;
        call.settle(dispatcher.learn(self.now, &mut attempt, &Outcome::Cancelled));
        dispatcher.finish(self.now, attempt);
    }

    fn expire(&mut self, id: CallId) {
        let Some(slot) = self.slot(id) else { return };
        let Some(call) = self.calls[slot].call.take() else { return };
        let client = self.calls[slot].client;
        for copy in 0..self.calls[slot].jobs.len() {
            // The job of a copy that has failed is gone; its number may be another's by now.
            let job = self.jobs.get_mut(self.calls[slot].jobs[copy] as usize);
            if let Some(job) = job.filter(|job| job.call == id)
                && let Some(mut attempt) = job.attempt.take()
            {
                let dispatcher = &mut self.clients[client as usize].dispatcher;
                let timed_out = Outcome::Failed(Failure::TimedOut);
                let _ = dispatcher.learn(self.now, &mut attempt, &timed_out);
                dispatcher.finish(self.now, attempt);
            }
        }
        self.close(slot, call, Err(Refusal::Failed(Failure::TimedOut)));
        self.resume(client);
    }

    fn back(&mut self, job: JobId) {
        let job = self.jobs.remove(job as usize);
        let Some(mut attempt) = job.attempt else { return };
        let mirror = attempt.kind() == Kind::Mirror;
        let copy = attempt.copy();
        let dispatcher = &mut self.clients[job.client as usize].dispatcher;
        let settled = dispatcher.learn(self.now, &mut attempt, &job.outcome);
        dispatcher.finish(self.now, attempt);
        if mirror {
            return;
        }
        let Some(slot) = self.slot(job.call) else { return };
        let open = &mut self.calls[slot];
        if let Some(call) = &mut open.call {
            if matches!(job.outcome, Outcome::Failed(_)) {
                open.errors.push(copy);
            }
            call.settle(settled);
            self.advance(job.call);
        }
    }

    fn ask_probes(&mut self, client: u32) {
        while let Some(probe) = self.clients[client as usize].dispatcher.probe(self.now) {
            let probe = self.probes.insert(FlyingProbe { probe, client, answer: None });
            let at = self.now + self.delay();
            self.events.push(Lane::ToServers, at, Event::ProbeReach(probe as u32));
        }
    }

    fn probe_back(&mut self, probe: u32) {
        let FlyingProbe { probe, client, answer } = self.probes.remove(probe as usize);
        let dispatcher = &mut self.clients[client as usize].dispatcher;
        dispatcher.learn_probe(self.now, &probe, answer.as_ref());
    }
}

/// The life of a request, at the server, and what befalls servers.
impl World<'_> {
    fn reach(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        let server = &mut self.servers[number];
        if !server.is_alive() {
            return self.fail(id, Failure::Unsent, Duration::ZERO);
        }
        // Drawn from the request, so that every policy meets the same bad luck.
        if server.failing_share() > 0.0
            && work(job.luck, 0, 1.0) < -(-server.failing_share()).ln_1p()
        {
            return self.fail(id, Failure::Unavailable, FAILS_AFTER);
        }
        self.truth.arrived(number, 1);
        job.life = server.life();
        if server.arrive(id) {
            let start = server.starts_at(self.now);
            self.start(id, start);
        }
    }

    fn start(&mut self, id: JobId, start: Instant) {
        let job = &mut self.jobs[id as usize];
        let server = &self.servers[job.server as usize];
        job.service = Duration::from_nanos((nanos(server.mean()) as f64 * job.work) as u64);
        job.started_at = start;
        job.paused_then = server.paused_total();
        self.events.push(Lane::Mixed, start + job.service, Event::Done(id));
    }

    fn done(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        let server = &mut self.servers[number];
        if job.life != server.life() {
            self.jobs.remove(id as usize); // it died with its server; see `crash`
            return;
        }
        let due = done_at(job.started_at, job.service, job.paused_then, server.paused_total());
        if due > self.now {
            self.events.push(Lane::Mixed, due, Event::Done(id));
            return;
        }
        let next = server.leave();
        self.truth.moved(number, -1);
        self.truth.arrived(number, -1);
        if let Some(next) = next {
            self.start(next, self.now);
        }
        let job = &mut self.jobs[id as usize];
        // What the client can see of the service: a pause is part of it.
        let service = self.now.since(job.started_at);
        job.outcome = Outcome::Replied(Some(self.servers[number].feedback(self.now, service)));
        let at = self.now + self.delay();
        self.events.push(Lane::ToClients, at, Event::Back(id));
    }

    fn fail(&mut self, id: JobId, failure: Failure, after: Duration) {
        let job = &mut self.jobs[id as usize];
        job.outcome = Outcome::Failed(failure);
        self.truth.moved(job.server as usize, -1);
        let at = self.now + after + self.delay();
        self.events.push(Lane::Mixed, at, Event::Back(id));
    }

    fn probe_reach(&mut self, id: u32) {
        let flying = &mut self.probes[id as usize];
        let server = &self.servers[flying.probe.replica().index()];
        let at = server.starts_at(self.now); // a paused replica answers late
        if server.is_alive() {
            flying.answer = Some(server.feedback(at, server.mean()));
        }
        let back_at = at + self.delay();
        self.events.push(Lane::Mixed, back_at, Event::ProbeBack(id));
    }

    fn fluctuate(&mut self) {
        if self.is_over() {
            return;
        }
        let base = self.scenario.cluster.service_mean;
        let fast = base.div_f64(self.scenario.fluctuation.range);
        for number in 0..self.servers.len() {
            let mean = if self.speeds.unit() < 0.5 { base } else { fast };
            self.servers[number].set_mean(mean);
            self.tell_truth(number);
        }
        let at = self.now + self.scenario.fluctuation.interval;
        self.events.push(Lane::Mixed, at, Event::Fluctuate);
    }

    fn fault(&mut self, number: u32, server: u32) {
        if self.is_over() {
            return;
        }
        let fault = &self.scenario.faults[number as usize];
        match fault.target {
            Target::Server(target) => self.strike(target, fault.what),
            Target::Random => {
                let target = self.faults.below(self.servers.len());
                self.strike(target, fault.what);
            }
            Target::Each if server == ANY => {
                for target in 0..self.servers.len() {
                    self.strike(target, fault.what);
                }
            }
            Target::Each => self.strike(server as usize, fault.what),
        }
        if !fault.every.is_zero() {
            let at = self.now + fault.every.mul_f64(self.faults.exponential());
            self.events.push(Lane::Mixed, at, Event::Fault(number, server));
        }
    }

    fn strike(&mut self, number: usize, what: What) {
        let server = &mut self.servers[number];
        match what {
            What::Crash if server.is_alive() => self.crash(number),
            What::Crash => {}
            What::Restore => server.restore(),
            What::Pause { shortest, longest } => {
                let length = shortest + (longest - shortest).mul_f64(self.faults.unit());
                server.pause(self.now, length);
            }
            What::Slow { factor } => server.set_slowdown(factor),
            What::Fail { share } => server.set_failing_share(share),
        }
        self.tell_truth(number);
    }

    /// Everything on the server is lost and its clients' connections break. A job in service
    /// still has an event to come, so its attempt goes home with a job of its own.
    fn crash(&mut self, number: usize) {
        let life = self.servers[number].life();
        let waiting = self.servers[number].crash();
        let lost = |job: &Job| job.server as usize == number && job.life == life;
        let on_it: Vec<_> =
            self.jobs.iter().filter(|(_, job)| lost(job)).map(|(id, _)| id).collect();
        for id in on_it {
            let job = &mut self.jobs[id];
            let is_back = !matches!(job.outcome, Outcome::Cancelled);
            let Some(attempt) = job.attempt.take_if(|_| !is_back) else { continue };
            let (call, client, copy) = (job.call, job.client, attempt.copy());
            let mirror = attempt.kind() == Kind::Mirror;
            let messenger = self.jobs.insert(Job {
                attempt: Some(attempt),
                call,
                client,
                server: number as u32,
                work: 0.0,
                luck: 0,
                service: Duration::ZERO,
                started_at: self.now,
                paused_then: Duration::ZERO,
                life: NOT_THERE,
                outcome: Outcome::Failed(Failure::Broken),
            }) as JobId;
            if let Some(slot) = self.slot(call)
                && !mirror
            {
                self.calls[slot].jobs[copy] = messenger;
            }
            let at = self.now + self.delay();
            self.events.push(Lane::Mixed, at, Event::Back(messenger));
        }
        for id in waiting {
            self.jobs.remove(id as usize); // never started: no event will come for it
        }
        self.truth.emptied(number);
    }

    fn tell_truth(&self, number: usize) {
        let server = &self.servers[number];
        let until = server.starts_at(Instant::ZERO);
        self.truth.changed(number, millis(server.mean()), until, server.is_alive());
    }
}

impl World<'_> {
    /// Checks what must hold when all is quiet, and reports.
    fn end(mut self, policy: &str, seed: u64) -> RunReport {
        assert!(self.calls.is_empty(), "every call ends");
        assert!(self.jobs.is_empty() && self.probes.is_empty(), "every job comes home");
        for client in &mut self.clients {
            assert_eq!(client.dispatcher.fleet().in_flight(), 0, "nothing stays in flight");
            assert_eq!(client.dispatcher.held(), 0, "nothing stays held");
            self.tally.add_window(&client.dispatcher.window());
        }
        self.tally.into_report(policy, seed, self.now)
    }
}
