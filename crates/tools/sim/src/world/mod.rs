//! The virtual world: clients with dispatchers, a network, replicas, and the order of events.
//!
//! The life of a request here has the same arms as in the proxy: `World::drive` steps the call,
//! `Send` puts a job on its way, and what comes back is learnt. The decisions in between are
//! core's own lines.

mod client;
mod notices;
mod parts;
mod record;
mod server;
mod sites;

use std::iter::Peekable;
use std::sync::Arc;

use arrayvec::ArrayVec;
use evenkeel_core::dimmer::BrownoutConfig;
use evenkeel_core::distribution::Recorder;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::call::ATTEMPTS_MAX;
use evenkeel_core::request::redundancy::Hedge;
use evenkeel_core::request::select::{Policy, Selector};
use evenkeel_core::request::siblings::Siblings;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Dispatcher, DispatcherConfig, Outcome, Probe,
};
use evenkeel_core::units::Dimmer;
use evenkeel_core::{Duration, Feedback, Fleet, Health, Instant, ReplicaId, Rng};
use slab::Slab;

use crate::ends::End;
use crate::events::{EventQueue, Lane};
use crate::guard::{self, Guard, Pass};
use crate::oracle::{Oracle, TrueState};
use crate::peers::LatencyAware;
use crate::report::{RunReport, Tally};
use crate::scenario::{Replica, Scenario, Spelling};
use crate::server::{Discipline, JobId, Server, Sharing, Slots};
use crate::weather::Weather;
use crate::workload::{Arrival, Arriving, CoreTime};
use crate::world::notices::Notice;
use crate::world::parts::Whole;
use crate::world::record::Recording;
pub use crate::world::record::{RecordConfig, record, record_parts, windows};
use crate::world::sites::Sites;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A generator's next request.
    Arrive(u32),
    /// A job reaches its server, or finds it dead.
    Reach(JobId),
    /// A job's service in a slot ends, unless a pause made it later.
    Done(JobId),
    /// A job may be done on a server's shared cores.
    Look(u32),
    /// A job's answer reaches the client.
    Back(JobId),
    /// A body that stood still is given up.
    BodyEnds(JobId),
    /// A call has a deadline.
    Due(CallId),
    /// The caller gives up.
    Expire(CallId),
    /// A client's dispatcher has a deadline.
    Wake(u32),
    ProbeReach(u32),
    ProbeBack(u32),
    /// Something befalls servers.
    Weather,
    Phase(u32),
    /// Health checks find out who lives.
    Checked,
    /// The loads of the servers are sampled.
    Sample,
    /// A data centre's control loop steps.
    Control(u32),
    /// A row of one data centre arrives at another.
    Letter(u32),
    /// A data centre probes its ways.
    ProbeWays(u32),
    /// The echo of such a probe.
    Echo(u32),
    /// The way between a pair of data centres changes.
    Reroute(u32),
    /// Servers tell how busy they are.
    Busy,
    /// A client hears that a request of its own waits for a slot.
    Queued(u32),
    /// A server hears that a request was given up.
    Withdraw(u32),
}

/// The life of a server in which a job that has not reached it lives.
const NOT_THERE: u32 = u32::MAX;
/// How long a replica that fails at once takes to do so.
const FAILS_AFTER: Duration = Duration::from_micros(100);
/// The proxy's time limit of an attempt without an answer.
const ATTEMPT_ENDS_AFTER: Duration = Duration::from_secs(15);
/// The proxy's time limit of a body that stands still.
const BODY_ENDS_AFTER: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Client {
    dispatcher: Dispatcher,
    wakes_at: Instant,
}

#[derive(Debug)]
struct OpenCall {
    id: CallId,
    /// Which request of the run it is, or is a part of.
    number: u64,
    /// What it is a part of, where there are tiers.
    whole: Option<usize>,
    call: Option<Call>,
    client: u32,
    arrival: Arrival,
    arrived_at: Instant,
    /// The job of each copy, by the copy's number.
    jobs: ArrayVec<JobId, ATTEMPTS_MAX>,
    /// Copies that failed: a caller who is given the answer of one was not served.
    errors: ArrayVec<usize, ATTEMPTS_MAX>,
    /// Copies that were answered with all optional content, a bit for each.
    full: u8,
    /// Where its last copy went.
    server: Option<u32>,
    /// Whether it was sent twice at once.
    hedged: bool,
    /// Whether it came home from another site.
    has_returned: bool,
    /// Whether it waits at another site for as long as it takes.
    waits_on: bool,
}

impl OpenCall {
    /// How a call ends that this copy answered.
    fn served_by(&self, copy: usize) -> End {
        if self.errors.contains(&copy) {
            return End::Failed;
        }
        End::Served { is_full: self.full >> copy & 1 == 1 }
    }
}

/// The slot of a call, if it is still open.
#[inline]
fn slot(calls: &Slab<OpenCall>, id: CallId) -> Option<usize> {
    let slot = (id.0 & 0xff_ffff) as usize;
    calls.get(slot).is_some_and(|open| open.id == id).then_some(slot)
}

#[derive(Debug)]
struct Job {
    /// `None` once the client gave it up; the server works on, unless giving up cancels.
    attempt: Option<Attempt>,
    call: CallId,
    client: u32,
    server: u32,
    /// Whether the client wants to hear if it must wait for a slot.
    is_told: bool,
    /// Seed of its work, and of whether it meets a failure.
    seed: u64,
    /// Which draw of that seed is its own.
    copy: u32,
    /// Where its work stands among all, where that was recorded: a normal score.
    score: f32,
    /// Its row in what is recorded, and when it was sent.
    row: Option<(u32, Instant)>,
    /// The life of its server in which it arrived there.
    life: u32,
    /// Which request of the run it is for.
    number: u64,
    /// What its server needed for it, while the next tier works on it.
    called_on: Option<Duration>,
    service: Duration,
    /// When it joined those on shared cores, or their line.
    entered_at: Instant,
    /// When its agent sent it to the server.
    sent_at: Instant,
    paused_then: Duration,
    pass: Pass,
    is_full: bool,
    /// Whether another copy answered before it: what is left of its work is no cost of copies.
    has_lost: bool,
    /// The dimmer of its server when it came.
    dimmer: Option<Dimmer>,
    /// Cancelled until it has another.
    outcome: Outcome,
    /// How the body of its answer ends.
    body: BodyEnd,
}

impl Job {
    fn new(attempt: Attempt, call: CallId, client: u32) -> Self {
        Self {
            server: attempt.replica().index() as u32,
            attempt: Some(attempt),
            call,
            client,
            is_told: false,
            seed: 0,
            copy: 0,
            score: 0.0,
            row: None,
            life: NOT_THERE,
            number: 0,
            called_on: None,
            service: Duration::ZERO,
            entered_at: Instant::ZERO,
            sent_at: Instant::ZERO,
            paused_then: Duration::ZERO,
            pass: Pass::Free,
            is_full: false,
            has_lost: false,
            dimmer: None,
            outcome: Outcome::Cancelled,
            body: BodyEnd::Complete,
        }
    }
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
    /// What stands before each server.
    guards: Vec<Guard>,
    /// What requests cost on shared cores.
    core_time: Option<CoreTime>,
    truth: Arc<TrueState>,
    calls: Slab<OpenCall>,
    wholes: Slab<Whole>,
    jobs: Slab<Job>,
    probes: Slab<FlyingProbe>,
    notices: Slab<Notice>,
    arrived: u64,
    /// Calls that were opened: of each request one, or its parts.
    opened: u64,
    /// What health checks have found out so far.
    plan: RoutePlan,
    /// The data centres, when there is more than one.
    sites: Option<Box<Sites>>,
    weather: Peekable<Weather>,
    jitter: Rng,
    tally: Tally,
    window_ends: Instant,
    recording: Option<Box<Recording>>,
}

/// Runs a scenario with one of its policies.
///
/// # Panics
/// When the policy's text is neither an oracle nor in the registry ([`Scenario::read`] checks
/// it), or when an invariant of the world breaks.
pub fn run(scenario: &Scenario, policy: &str, seed: u64) -> RunReport {
    let mut world = World::new(scenario, policy, seed);
    world.play();
    world.end(policy, seed)
}

/// Runs a scenario and gives the latencies of the served requests in place of a report.
pub(crate) fn latencies(scenario: &Scenario, policy: &str, seed: u64) -> Recorder {
    let mut world = World::new(scenario, policy, seed);
    world.play();
    world.tally.into_latencies()
}

fn make_selector(policy: &str, clients: usize, truth: &Arc<TrueState>) -> Box<dyn Selector> {
    if let Some(oracle) = Oracle::named(policy, truth) {
        return Box::new(oracle);
    }
    if policy == LatencyAware::NAME {
        return Box::new(LatencyAware::default());
    }
    let policy: Policy = policy.parse().expect("the scenario's policies were checked");
    policy.make(clients as u32)
}

fn make_clients(
    scenario: &Scenario,
    spelling: Spelling<'_>,
    truth: &Arc<TrueState>,
    seed: u64,
) -> Vec<Client> {
    let cluster = &scenario.cluster;
    let groups = groups(scenario);
    let clients = scenario.clients_max();
    let workers = scenario.workload.workers;
    let processes: Vec<_> =
        (0..clients.div_ceil(workers)).map(|_| Siblings::new(workers)).collect();
    let client = |number: usize| {
        let config = DispatcherConfig {
            safeguards: scenario.safeguards(),
            retries_max: scenario.run.retries_max,
            backlog_calls_max: 1 << 20,
            can_ask: true,
            seed: seed ^ (number as u64) << 32,
            ..DispatcherConfig::default()
        };
        let fleet = Fleet::new(cluster.servers, groups.clone());
        let selector = make_selector(spelling.policy, peers(scenario, number), truth);
        let seat = processes.get(number / workers).and_then(|it| it.seat(number % workers));
        let mut dispatcher = Dispatcher::new(fleet, selector, config);
        dispatcher.take_seat(seat);
        let dispatcher = match spelling.hedge(&scenario.run.hedge) {
            Some(hedge) => dispatcher.with_redundancy(Box::new(Hedge::new(hedge))),
            None => dispatcher,
        };
        Client { dispatcher, wakes_at: Instant::FAR }
    };
    (0..clients + scenario.callers()).map(client).collect()
}

/// Processes with clients of the servers that this client calls: servers call those of the next
/// tier.
fn peers(scenario: &Scenario, client: usize) -> usize {
    match client.checked_sub(scenario.clients_max()) {
        Some(server) => scenario.tiers[scenario.tier_of(server)].servers,
        None => scenario.clients_max().div_ceil(scenario.workload.workers),
    }
}

fn groups(scenario: &Scenario) -> Vec<Vec<ReplicaId>> {
    match &scenario.geography {
        Some(geography) => sites::groups(geography),
        None => {
            let replicas = scenario.cluster.replication_factor;
            let tiers = (0..scenario.tiers.len()).map(|tier| scenario.tier_servers(tier));
            let whole = scenario.tiers.is_empty().then_some((0, scenario.cluster.servers));
            tiers.chain(whole).flat_map(|(first, end)| ring(first, end - first, replicas)).collect()
        }
    }
}

/// Neighbours on a ring of servers from `base` on.
fn ring(base: usize, servers: usize, replicas: usize) -> impl Iterator<Item = Vec<ReplicaId>> {
    let member = move |number: usize| ReplicaId::new(base + number % servers);
    (0..servers).map(move |first| (0..replicas).map(|k| member(first + k)).collect())
}

fn make_servers(scenario: &Scenario) -> Vec<Server> {
    let cluster = &scenario.cluster;
    if scenario.replicas.is_empty() {
        let slots = Slots::new(cluster.concurrency, cluster.service_mean);
        return vec![Server::new(Discipline::Slots(slots)); cluster.servers];
    }
    let shared = scenario.replicas.iter().map(|replica| {
        let sharing = Sharing::new(replica.cores, replica.speed, cluster.service_mean);
        let sharing = match replica.workers {
            Some(workers) => sharing.with_workers(workers),
            None => sharing,
        };
        Server::new(Discipline::Sharing(sharing))
    });
    shared.collect()
}

fn make_guards(scenario: &Scenario, kind: Option<guard::Kind>, seed: u64) -> Vec<Guard> {
    let Some(dimmer) = &scenario.dimmer else {
        return (0..scenario.cluster.servers).map(|_| Guard::Full).collect();
    };
    let kind = kind.unwrap_or_else(|| dimmer.guard());
    let guard = |(number, replica): (usize, &Replica)| {
        let config = match kind {
            guard::Kind::Brownout(law) => dimmer.brownout(law, replica.cores),
            _ => BrownoutConfig::default(),
        };
        Guard::new(kind, replica.cores, config, seed ^ (number as u64) << 32)
    };
    scenario.replicas.iter().enumerate().map(guard).collect()
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, policy: &str, seed: u64) -> Self {
        let spelling = Spelling::of(policy);
        let concurrency: Vec<u32> = if scenario.replicas.is_empty() {
            vec![scenario.cluster.concurrency; scenario.cluster.servers]
        } else {
            scenario.replicas.iter().map(|replica| replica.cores).collect()
        };
        let truth = TrueState::new(&concurrency);
        let tally = Tally::new(scenario);
        Self {
            scenario,
            now: Instant::ZERO,
            events: EventQueue::default(),
            arriving: Arriving::new(scenario, seed),
            clients: make_clients(scenario, spelling, &truth, seed),
            servers: make_servers(scenario),
            guards: make_guards(scenario, spelling.guard, seed),
            core_time: scenario.work.as_ref().map(CoreTime::new),
            truth,
            calls: Slab::new(),
            wholes: Slab::new(),
            jobs: Slab::new(),
            probes: Slab::new(),
            notices: Slab::new(),
            arrived: 0,
            opened: 0,
            plan: RoutePlan {
                version: 0,
                health: vec![Health::Up; scenario.cluster.servers],
                generations: Vec::new(),
                groups: groups(scenario),
            },
            sites: Sites::new(scenario, spelling, seed),
            weather: Weather::new(scenario, seed).peekable(),
            jitter: Rng::stream(seed, "network"),
            window_ends: tally.window_ends(),
            tally,
            recording: None,
        }
    }

    fn play(&mut self) {
        self.begin();
        while self.go_on() {}
    }

    /// The next event happens; false when there is none.
    #[inline]
    fn go_on(&mut self) -> bool {
        let calls = &self.calls;
        let is_in_vain = |it: &Event| matches!(it, Event::Due(id) if slot(calls, *id).is_none());
        let Some((at, event)) = self.events.pop(is_in_vain) else { return false };
        debug_assert!(at >= self.now, "time runs forward");
        if let Event::Due(call) = event
            && slot(&self.calls, call).is_none()
        {
            return true; // it was answered in time, like nearly all
        }
        while at >= self.window_ends && !self.is_over() {
            self.end_window();
        }
        self.now = at;
        // Who is recorded has no report.
        if self.recording.is_none() {
            self.tally.note_event(at, core::mem::discriminant(&event));
        }
        self.happen(event);
        true
    }

    fn begin(&mut self) {
        for server in 0..self.servers.len() {
            self.tell_truth(server);
        }
        self.await_weather();
        for (number, phase) in self.scenario.workload.phases.iter().enumerate() {
            let at = Instant::ZERO + phase.at;
            self.events.push(Lane::Mixed, at, Event::Phase(number as u32));
        }
        if !self.scenario.run.load_every.is_zero() {
            let at = Instant::ZERO + self.scenario.run.load_every;
            self.events.push(Lane::Mixed, at, Event::Sample);
        }
        self.begin_sites();
        for generator in 0..self.arriving.generators() {
            let at = self.arriving.first(generator);
            self.events.push(Lane::Arrivals, at, Event::Arrive(generator));
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(generator) => self.arrive(generator),
            Event::Reach(job) => self.reach(job),
            Event::Done(job) => self.done(job),
            Event::Look(server) => self.look(server),
            Event::Back(job) => self.back(job),
            Event::BodyEnds(job) => self.body_ends(job),
            Event::Due(call) => self.advance(call),
            Event::Expire(call) => self.expire(call),
            Event::Wake(client) => self.wake(client),
            Event::ProbeReach(probe) => self.probe_reach(probe),
            Event::ProbeBack(probe) => self.probe_back(probe),
            Event::Weather => self.weather(),
            Event::Phase(number) => {
                let phase = &self.scenario.workload.phases[number as usize];
                if phase.clients_join > 0 {
                    self.arriving.join(phase.clients_join, phase.writes);
                }
                if let Some(factor) = phase.rate_factor {
                    self.arriving.set_rate_factor(factor);
                }
            }
            Event::Checked => self.checked(),
            Event::Sample => self.sample(),
            Event::Control(site) => self.control(site),
            Event::Letter(letter) => self.letter(letter),
            Event::ProbeWays(site) => self.probe_ways(site),
            Event::Echo(probe) => self.echo(probe),
            Event::Reroute(pair) => self.reroute(pair),
            Event::Busy => self.look_who_is_busy(),
            Event::Queued(notice) => self.queued(notice),
            Event::Withdraw(notice) => self.withdraw(notice),
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

    fn end_window(&mut self) {
        let living = self.servers.iter().zip(&self.guards).filter(|(server, _)| server.is_alive());
        let dimmers = living.filter_map(|(_, guard)| guard.dimmer());
        let (sum, count) =
            dimmers.fold((0.0, 0.0), |(sum, count), dimmer| (sum + dimmer.value(), count + 1.0));
        self.tally.end_window((count > 0.0).then_some(sum / count));
        if let Some(sites) = &mut self.sites {
            sites.tally.end_window();
        }
        self.window_ends = self.tally.window_ends();
    }

    /// Whether the n-th request counts, or is of the warm-up.
    fn is_warm(&self, number: u64) -> bool {
        number as f64 > self.scenario.run.warmup * self.scenario.workload.requests as f64
    }

    fn is_over(&self) -> bool {
        self.arrived == self.scenario.workload.requests && self.calls.is_empty()
    }

    /// How long a message takes between a client and a server.
    fn delay(&mut self, client: u32, server: u32) -> Duration {
        let network = &self.scenario.network;
        let mut delay = network.one_way;
        if !network.jitter.is_zero() {
            delay += network.jitter.mul_f64(self.jitter.exponential());
        }
        match &mut self.sites {
            Some(sites) => delay + sites.delay(client as usize, server as usize),
            None => delay,
        }
    }

    /// How long the answer to a job takes, or the job itself.
    fn delay_of(&mut self, job: JobId) -> Duration {
        let Job { client, server, .. } = self.jobs[job as usize];
        self.delay(client, server)
    }
}

impl World<'_> {
    /// Checks what must hold when all is quiet.
    fn check_end(&self) {
        assert!(self.calls.is_empty() && self.wholes.is_empty(), "every call ends");
        assert!(self.jobs.is_empty() && self.probes.is_empty(), "every job comes home");
        assert!(self.notices.is_empty(), "every notice arrives");
        for client in &self.clients {
            assert_eq!(client.dispatcher.fleet().in_flight(), 0, "nothing stays in flight");
            assert_eq!(client.dispatcher.held(), 0, "nothing stays held");
        }
    }

    /// Checks the same, and reports.
    fn end(mut self, policy: &str, seed: u64) -> RunReport {
        self.check_end();
        for client in &mut self.clients {
            self.tally.add_window(&client.dispatcher.window());
        }
        self.tally.arrived = self.arrived;
        let sites = self.sites.map(Sites::into_report);
        self.tally.into_report(policy, seed, self.now, sites)
    }
}
