//! What happens, event by event.
//!
//! **Common random numbers.** Arrivals, shards, delays, and the service times of the first, second,
//! third duplicate have generators of their own, drawn when an access arrives: all policies at one
//! seed meet the same accesses, and a duplicate more changes nothing for those there were.

use evenkeel_core::distribution::Distribution;
use evenkeel_core::time::nanos;
use evenkeel_core::{Duration, Instant, Rng};
use slab::Slab;

use super::deployment::{Arrivals, Deployment, Pauses};
use super::layout::Layout;
use super::notes::Notes;
use super::server::{Copy, Due, Server};
use crate::events::{EventQueue, Lane};

/// What can happen.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The next batch comes.
    Arrive,
    /// A copy is at its server.
    Reach { server: usize, copy: Copy },
    /// A service ends, unless the plan is void.
    End { server: usize, turn: u32 },
    /// The servers hear that the answer is there.
    Cancel { access: usize },
    /// The multicast hears a tardy answer.
    Tardy { partition: usize },
    /// A server stops; all of them without one.
    Pause { server: Option<usize> },
}

/// An access on its way.
#[derive(Debug)]
struct Access {
    partition: usize,
    batch: usize,
    number: u64,
    common_nanos: u64,
    is_answered: bool,
    is_cancelled: bool,
    /// Copies and messages that still point here.
    pending: usize,
}

/// Accesses that came together.
#[derive(Debug)]
struct Batch {
    arrived: Instant,
    /// Accesses without an answer.
    open: usize,
    /// When the last answer so far is at the client.
    answered: Instant,
    number: u64,
}

/// A partition: its servers, and the multicast before them.
#[derive(Debug)]
struct Partition {
    servers: core::ops::Range<usize>,
    multicast_free: Instant,
}

/// Generators, one for each purpose.
struct Draws {
    gaps: Rng,
    shards: Rng,
    reads: Rng,
    common: Rng,
    services: Vec<Rng>,
    pauses: Rng,
}

impl Draws {
    fn new(seed: u64, duplicates: usize) -> Self {
        let stream = |purpose: &str| Rng::stream(seed, purpose);
        Self {
            gaps: stream("gaps"),
            shards: stream("shards"),
            reads: stream("reads"),
            common: stream("common"),
            services: (0..duplicates).map(|one| stream(&format!("service {one}"))).collect(),
            pauses: stream("pauses"),
        }
    }
}

/// The world while it runs.
struct World<'a> {
    deployment: &'a Deployment,
    partitions: Vec<Partition>,
    of_shards: Vec<usize>,
    servers: Vec<Server>,
    events: EventQueue<Event>,
    accesses: Slab<Access>,
    batches: Slab<Batch>,
    draws: Draws,
    /// Accesses that have come.
    come: u64,
    notes: Notes,
}

/// Runs a layout on the accesses of a seed.
pub(crate) fn run(deployment: &Deployment, layout: &Layout, seed: u64) -> Notes {
    let mut world = World::new(deployment, layout, seed);
    world.first_pauses();
    world.events.push(Lane::Arrivals, Instant::ZERO, Event::Arrive);
    let mut end = Instant::ZERO;
    while let Some((now, event)) = world.events.pop(|_| false) {
        end = now;
        world.notes.note_event(now, event_kind(event));
        world.happen(now, event);
        if world.is_over() {
            break;
        }
    }
    let busy = world.servers.iter().map(Server::busy_nanos).collect();
    world.notes.close(end, busy);
    world.notes
}

const fn event_kind(event: Event) -> u64 {
    match event {
        Event::Arrive => 0,
        Event::Reach { server, .. } => 1 + 8 * server as u64,
        Event::End { server, .. } => 2 + 8 * server as u64,
        Event::Cancel { .. } => 3,
        Event::Tardy { .. } => 4,
        Event::Pause { .. } => 5,
    }
}

impl<'a> World<'a> {
    fn new(deployment: &'a Deployment, layout: &Layout, seed: u64) -> Self {
        let mut first = 0;
        let partition = |one: &super::layout::Partition| {
            let servers = first..first + one.duplicates;
            first = servers.end;
            Partition { servers, multicast_free: Instant::ZERO }
        };
        let partitions: Vec<Partition> = layout.partitions.iter().map(partition).collect();
        let most = layout.partitions.iter().map(|one| one.duplicates).max().unwrap_or(1);
        Self {
            deployment,
            of_shards: layout.of_shards(),
            servers: (0..layout.servers()).map(|_| Server::default()).collect(),
            partitions,
            events: EventQueue::default(),
            accesses: Slab::new(),
            batches: Slab::new(),
            draws: Draws::new(seed, most),
            come: 0,
            notes: Notes::new(deployment),
        }
    }

    fn is_over(&self) -> bool {
        self.come >= self.deployment.workload.accesses && self.accesses.is_empty()
    }

    fn happen(&mut self, now: Instant, event: Event) {
        match event {
            Event::Arrive => self.arrive(now),
            Event::Reach { server, copy } => {
                let due = self.servers[server].enqueue(now, copy);
                self.plan(server, due);
            }
            Event::End { server, turn } => self.end(now, server, turn),
            Event::Cancel { access } => {
                self.accesses[access].is_cancelled = true;
                self.let_go(now, access);
            }
            Event::Tardy { partition } => {
                let free = &mut self.partitions[partition].multicast_free;
                *free = now.max(*free) + self.deployment.copies.prune;
            }
            Event::Pause { server } => self.pause(now, server),
        }
    }

    fn arrive(&mut self, now: Instant) {
        let workload = &self.deployment.workload;
        let left = workload.accesses.saturating_sub(self.come);
        let size = (workload.batch as u64).min(left) as usize;
        if size == 0 {
            return;
        }
        let number = self.come / workload.batch as u64;
        let batch = Batch { arrived: now, open: size, answered: now, number };
        let batch = self.batches.insert(batch);
        for _ in 0..size {
            self.access(now, batch);
        }
        if workload.arrivals == Arrivals::Poisson {
            let gap = self.draws.gaps.exponential() * workload.batch as f64 / self.rate();
            let next = now.plus_nanos((gap * 1e9) as u64);
            self.events.push(Lane::Arrivals, next, Event::Arrive);
        }
    }

    /// Accesses per second by now.
    fn rate(&self) -> f64 {
        let factors = &self.deployment.workload.factors;
        let place = (self.share_come() * factors.len() as f64) as usize;
        let factor = factors.get(place.min(factors.len().saturating_sub(1)));
        self.deployment.workload.rate * factor.copied().unwrap_or(1.0)
    }

    fn share_come(&self) -> f64 {
        self.come as f64 / self.deployment.workload.accesses as f64
    }

    /// One access comes and its copies leave.
    fn access(&mut self, now: Instant, batch: usize) {
        let deployment = self.deployment;
        let (workload, copies) = (&deployment.workload, &deployment.copies);
        let partition = self.of_shards[self.draws.shards.below(workload.shards)];
        let is_read = workload.reads > 0.0 && self.draws.reads.unit() < workload.reads;
        let writing = deployment.law_at(self.share_come());
        let law = if is_read { deployment.reading.as_ref().unwrap_or(writing) } else { writing };
        let servers = self.partitions[partition].servers.clone();
        let common_nanos = self.common_delay();
        let access = self.accesses.insert(Access {
            partition,
            batch,
            number: self.come,
            common_nanos,
            is_answered: false,
            is_cancelled: false,
            pending: servers.len(),
        });
        let mut leaves = now.max(self.partitions[partition].multicast_free);
        for (server, rng) in servers.zip(&mut self.draws.services) {
            leaves += copies.repeat;
            let copy = Copy { access, service_nanos: nanos(law.sample(rng)) };
            let reaches = leaves + copies.one_way;
            self.events.push(Lane::ToServers, reaches, Event::Reach { server, copy });
        }
        self.partitions[partition].multicast_free = leaves;
        self.come += 1;
    }

    fn common_delay(&mut self) -> u64 {
        let common = &self.deployment.common;
        if common.share <= 0.0 || self.draws.common.unit() >= common.share {
            return 0;
        }
        let (least, most) = (nanos(common.least) as f64, nanos(common.most) as f64);
        (least / (1.0 - self.draws.common.unit())).min(most) as u64
    }

    fn end(&mut self, now: Instant, server: usize, turn: u32) {
        let Some(served) = self.servers[server].end(now, turn) else { return };
        let access = &mut self.accesses[served.access];
        let partition = access.partition;
        let duplicate = server - self.partitions[partition].servers.start;
        self.notes.note_service(access.number, duplicate, served.took_nanos);
        let is_first = !core::mem::replace(&mut access.is_answered, true);
        let copies = &self.deployment.copies;
        if is_first {
            self.answer(now, served.access);
        } else if !copies.prune.is_zero() {
            let heard = now + copies.one_way;
            self.events.push(Lane::ToClients, heard, Event::Tardy { partition });
        }
        self.let_go(now, served.access);
        self.next(now, server);
    }

    /// The server takes its next copy, skipping those that nobody waits for.
    fn next(&mut self, now: Instant, server: usize) {
        let accesses = &self.accesses;
        let (skipped, due) =
            self.servers[server].begin(now, |access| accesses[access].is_cancelled);
        for access in skipped {
            self.notes.note_skipped();
            self.let_go(now, access);
        }
        self.plan(server, due);
    }

    /// The first answer leaves for the client.
    fn answer(&mut self, now: Instant, number: usize) {
        let copies = &self.deployment.copies;
        let access = &mut self.accesses[number];
        let answered = (now + copies.one_way).plus_nanos(access.common_nanos);
        if copies.cancel && access.pending > 1 {
            access.pending += 1;
            let heard = answered + copies.one_way;
            self.events.push(Lane::Timeouts, heard, Event::Cancel { access: number });
        }
        let batch = &mut self.batches[access.batch];
        batch.open -= 1;
        batch.answered = batch.answered.max(answered);
        if batch.open == 0 {
            let batch = self.batches.remove(access.batch);
            self.notes.note_batch(batch.number, batch.answered.since(batch.arrived));
            if self.deployment.workload.arrivals == Arrivals::AfterFirst {
                self.events.push(Lane::Arrivals, batch.answered, Event::Arrive);
            }
        }
    }

    /// One copy or message less points to an access.
    fn let_go(&mut self, now: Instant, number: usize) {
        let access = &mut self.accesses[number];
        access.pending -= 1;
        if access.pending > 0 {
            return;
        }
        let access = self.accesses.remove(number);
        if self.deployment.workload.arrivals == Arrivals::AfterAll {
            let all_are_there =
                (now + self.deployment.copies.one_way).plus_nanos(access.common_nanos);
            self.events.push(Lane::Arrivals, all_are_there, Event::Arrive);
        }
    }

    fn plan(&mut self, server: usize, due: Option<Due>) {
        if let Some(due) = due {
            self.events.push(Lane::Mixed, due.at, Event::End { server, turn: due.turn });
        }
    }

    fn first_pauses(&mut self) {
        let Some(pauses) = self.deployment.pauses else { return };
        if pauses.together < 1.0 {
            for server in 0..self.servers.len() {
                self.next_pause(Instant::ZERO, &pauses, Some(server));
            }
        }
        if pauses.together > 0.0 {
            self.next_pause(Instant::ZERO, &pauses, None);
        }
    }

    fn next_pause(&mut self, now: Instant, pauses: &Pauses, server: Option<usize>) {
        let share = if server.is_some() { 1.0 - pauses.together } else { pauses.together };
        let gap = self.draws.pauses.exponential() * pauses.every.as_secs_f64() / share;
        let at = now.plus_nanos((gap * 1e9) as u64);
        self.events.push(Lane::Mixed, at, Event::Pause { server });
    }

    fn pause(&mut self, now: Instant, server: Option<usize>) {
        let pauses = self.deployment.pauses.expect("pauses come where there are some");
        let length = pause_length(&pauses, &mut self.draws.pauses);
        let stopped = server.map_or(0..self.servers.len(), |one| one..one + 1);
        for server in stopped {
            let due = self.servers[server].stop(now, nanos(length));
            self.plan(server, due);
        }
        self.next_pause(now, &pauses, server);
    }
}

/// Longer than `t` with probability `(least / t)^power`, and at most the longest.
fn pause_length(pauses: &Pauses, rng: &mut Rng) -> Duration {
    let share = 1.0 - rng.unit();
    let length = pauses.least.mul_f64(share.powf(-1.0 / pauses.power).min(1e6));
    length.min(pauses.most)
}
