//! The life of a request at the server, and what befalls servers.

use std::collections::VecDeque;

use evenkeel_core::request::{BodyEnd, Failure, Kind, Outcome};
use evenkeel_core::time::{millis, nanos};
use evenkeel_core::{Duration, Feedback, Health, Instant};

use crate::events::Lane;
use crate::fault::What;
use crate::guard::Pass;
use crate::server::{Discipline, JobId, Server, done_at};
use crate::weather::{Effect, Strike};
use crate::workload::{FAILS, hiccup, luck, recorded_work, work_in_slot};
use crate::world::{ATTEMPT_ENDS_AFTER, Event, FAILS_AFTER, FlyingProbe, Job, NOT_THERE, World};

/// Whether a job is of this share. Drawn from the request, so that every policy meets the same bad
/// luck, and from a number for each kind of it.
fn is_struck(job: &Job, kind: u32, share: f64) -> bool {
    share > 0.0 && luck(job.seed, job.copy, kind) < share
}

/// The life of a request.
impl World<'_> {
    pub(super) fn reach(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        if job.attempt.is_none() && self.scenario.workload.cancel {
            self.jobs.remove(id as usize); // its client left while it was on its way
            return self.truth.moved(number, -1);
        }
        let server = &mut self.servers[number];
        if !server.is_alive() {
            return self.fail(id, Failure::Unsent, Duration::ZERO);
        }
        let ills = server.ills;
        if is_struck(job, 0, ills.hang) {
            return self.fail(id, Failure::TimedOut, ATTEMPT_ENDS_AFTER);
        }
        if is_struck(job, 1, ills.break_off) {
            job.body = BodyEnd::UpstreamBroke;
        } else if is_struck(job, 2, ills.stall) {
            job.body = BodyEnd::TimedOut;
        }
        if is_struck(job, FAILS, ills.fail) {
            if let Some(pass) = self.guards[number].admit(self.now, server.load()) {
                self.guards[number].failed(self.now, pass);
            }
            return self.fail(id, Failure::Unavailable, FAILS_AFTER);
        }
        let life = server.life();
        let start = server.starts_at(self.now);
        server.estimates.arrived(start);
        let load = server.load();
        self.reach_row(id, load);
        let (server, job) = (&mut self.servers[number], &mut self.jobs[id as usize]);
        let Discipline::Slots(slots) = &mut server.discipline else { return self.enter(id) };
        self.truth.arrived(number, 1);
        job.life = life;
        job.entered_at = self.now;
        if slots.arrive(id) {
            self.start(id, start);
        } else {
            self.tell_queued(id, start);
        }
    }

    /// A request joins those that share its server's cores, if the guard lets it.
    fn enter(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        let (server, guard) = (&mut self.servers[number], &mut self.guards[number]);
        let Some(pass) = guard.admit(self.now, server.load()) else {
            return self.fail(id, Failure::Unavailable, FAILS_AFTER);
        };
        job.is_full = pass.is_full();
        job.dimmer = guard.dimmer();
        job.pass = pass;
        job.life = server.life();
        job.entered_at = self.now;
        let copy = if self.scenario.cluster.same_work { 0 } else { job.copy };
        let work = match (&self.scenario.script, &self.core_time) {
            (Some(script), _) => {
                let multiple = recorded_work(script, job.score, (job.seed, copy), job.is_full);
                nanos(self.scenario.cluster.service_mean) as f64 * multiple
            }
            (None, Some(core_time)) => core_time.nanos(job.seed, copy, job.is_full),
            (None, None) => 0.0, // shared cores come with the work for them
        };
        if job.attempt.as_ref().is_some_and(|attempt| attempt.kind() == Kind::Hedge) {
            self.tally.copies_s += work * 1e-9;
        } else if let Some(sites) = &mut self.sites {
            sites.came(number, job.dimmer, job.is_full);
        }
        if let Discipline::Sharing(sharing) = &mut server.discipline
            && sharing.enter(self.now, id, work)
        {
            guard.begin(self.now, &mut job.pass);
            job.sent_at = self.now;
            server.estimates.sent(self.now);
        }
        self.truth.arrived(number, 1);
        self.look_ahead(number);
    }

    /// Looks which requests are done on shared cores.
    pub(super) fn look(&mut self, number: u32) {
        let number = number as usize;
        let Discipline::Sharing(sharing) = &mut self.servers[number].discipline else { return };
        if !sharing.is_woken(self.now) {
            return;
        }
        while let Discipline::Sharing(sharing) = &mut self.servers[number].discipline
            && let Some(id) = sharing.take_done(self.now)
        {
            self.answer(id);
        }
        self.call_up(number);
        self.look_ahead(number);
    }

    /// Those first in line start, as many as there are workers for.
    fn call_up(&mut self, number: usize) {
        while let Discipline::Sharing(sharing) = &mut self.servers[number].discipline
            && let Some(id) = sharing.start_next(self.now)
        {
            let job = &mut self.jobs[id as usize];
            self.guards[number].begin(self.now, &mut job.pass);
            job.sent_at = self.now;
            self.servers[number].estimates.sent(self.now);
        }
    }

    /// Sees to it that somebody looks when the next request is done on shared cores.
    fn look_ahead(&mut self, number: usize) {
        if let Discipline::Sharing(sharing) = &mut self.servers[number].discipline
            && let Some(at) = sharing.wakes_earlier()
        {
            self.events.push(Lane::Mixed, at, Event::Look(number as u32));
        }
    }

    /// A request is done on shared cores.
    fn answer(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        self.truth.moved(number, -1);
        self.truth.arrived(number, -1);
        let guard = &mut self.guards[number];
        let pass = core::mem::replace(&mut job.pass, Pass::Spent);
        guard.answered(self.now, pass, job.entered_at);
        let service = self.now.since(job.sent_at);
        self.servers[number].estimates.served(service);
        self.serve_row(id);
        let job = &mut self.jobs[id as usize];
        if job.attempt.is_none() {
            self.jobs.remove(id as usize); // nobody waits for it any more
            return;
        }
        let dimmer = self.guards[number].told_dimmer(job.dimmer);
        let report = self.report(number, Some(service));
        let report = report.map(|report| Feedback { dimmer, ..report });
        let job = &mut self.jobs[id as usize];
        job.outcome = Outcome::Replied(report);
        let hiccups = self.scenario.work.as_ref().and_then(|work| work.hiccup.as_ref());
        let longer = hiccups.map_or(Duration::ZERO, |of| hiccup(of, job.seed, job.copy));
        let at = self.now + self.delay_of(id) + longer;
        self.events.push(Lane::ToClients, at, Event::Back(id));
    }

    /// The balancer goes on waiting, but whoever counts successes has a time limit of its own.
    pub(super) fn overdue(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        if matches!(job.pass, Pass::Counted) {
            let pass = core::mem::replace(&mut job.pass, Pass::Spent);
            job.pass = self.guards[job.server as usize].given_up(self.now, pass, false);
        }
    }

    /// The client of a request has left. What is on its way comes home by itself.
    pub(super) fn abandon(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        let is_here = job.life == self.servers[number].life();
        if !is_here || !matches!(job.outcome, Outcome::Cancelled) || job.called_on.is_some() {
            return; // it comes home by itself
        }
        let is_cancelled = self.scenario.workload.cancel;
        let pass = core::mem::replace(&mut job.pass, Pass::Spent);
        job.pass = self.guards[number].given_up(self.now, pass, is_cancelled);
        if is_cancelled {
            self.truth.moved(number, -1);
            self.truth.arrived(number, -1);
            self.take_off(id, number);
        }
    }

    /// Takes a request off its server.
    fn take_off(&mut self, id: JobId, number: usize) {
        self.serve_row(id);
        match &mut self.servers[number].discipline {
            Discipline::Sharing(sharing) => {
                let left = sharing.withdraw(self.now, id);
                debug_assert!(left.is_some(), "a request is on the server it has reached");
                let job = self.jobs.remove(id as usize);
                if job.has_lost {
                    self.tally.copies_s -= left.unwrap_or(0.0) * 1e-9;
                }
                self.call_up(number);
                self.look_ahead(number);
            }
            Discipline::Slots(slots) => {
                if slots.withdraw(id) {
                    self.jobs.remove(id as usize);
                    return;
                }
                let job = &mut self.jobs[id as usize];
                job.life = NOT_THERE; // the event of its end finds it gone
                self.tally.executed.extra += self.now.since(job.sent_at).min(job.service);
                let start = slots.starts_at(self.now);
                if let Some(next) = slots.leave() {
                    self.start(next, start);
                }
            }
        }
    }

    fn start(&mut self, id: JobId, start: Instant) {
        let job = &mut self.jobs[id as usize];
        let server = &mut self.servers[job.server as usize];
        server.estimates.sent(start);
        let Discipline::Slots(slots) = &server.discipline else { return };
        let work = match &self.scenario.script {
            None => work_in_slot(&self.scenario.cluster, job.seed, job.copy),
            Some(script) => recorded_work(script, job.score, (job.seed, job.copy), true),
        };
        job.service = Duration::from_nanos((nanos(slots.mean()) as f64 * work) as u64);
        job.sent_at = start;
        job.paused_then = slots.paused_total();
        self.events.push(Lane::Mixed, start + job.service, Event::Done(id));
    }

    /// A request is done in its slot, unless a pause made that later.
    pub(super) fn done(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let number = job.server as usize;
        let server = &mut self.servers[number];
        if job.life != server.life() {
            self.jobs.remove(id as usize); // it died with its server, or was taken off
            return;
        }
        let Discipline::Slots(slots) = &mut server.discipline else { return };
        let due = done_at(job.sent_at, job.service, job.paused_then, slots.paused_total());
        if due > self.now {
            self.events.push(Lane::Mixed, due, Event::Done(id));
            return;
        }
        let next = slots.leave();
        self.truth.moved(number, -1);
        self.truth.arrived(number, -1);
        if let Some(next) = next {
            self.start(next, self.now);
        }
        // What the agent can see of the service: a pause is part of it.
        let service = self.now.since(self.jobs[id as usize].sent_at);
        self.servers[number].estimates.served(service);
        self.serve_row(id);
        if self.call_on(id, service) {
            return;
        }
        self.jobs[id as usize].outcome = Outcome::Replied(self.report(number, Some(service)));
        let at = self.now + self.delay_of(id);
        self.events.push(Lane::ToClients, at, Event::Back(id));
    }

    fn fail(&mut self, id: JobId, failure: Failure, after: Duration) {
        let job = &mut self.jobs[id as usize];
        job.outcome = Outcome::Failed(failure);
        self.truth.moved(job.server as usize, -1);
        let at = self.now + after + self.delay_of(id);
        self.events.push(Lane::Mixed, at, Event::Back(id));
    }

    /// What its agent says to a request that took this long, or to a probe; without one, nothing.
    pub(super) fn report(&self, number: usize, service: Option<Duration>) -> Option<Feedback> {
        let has_agent = self.scenario.cluster.agents;
        has_agent.then(|| self.servers[number].report(self.now, service))
    }

    /// A probe is at its server, which answers once no pause holds it.
    pub(super) fn probe_reach(&mut self, id: u32) {
        let FlyingProbe { probe, client, .. } = &self.probes[id as usize];
        let (client, number) = (*client, probe.replica().index());
        let server = &mut self.servers[number];
        let at = server.starts_at(self.now);
        if at > self.now + ATTEMPT_ENDS_AFTER {
            return self.events.push(
                Lane::Mixed,
                self.now + ATTEMPT_ENDS_AFTER,
                Event::ProbeBack(id),
            );
        }
        if at > self.now && server.is_alive() {
            return self.events.push(Lane::ToServers, at, Event::ProbeReach(id));
        }
        if server.is_alive() {
            server.work_aside(self.now, self.scenario.cluster.probe_cost);
            self.probes[id as usize].answer = self.report(number, None);
        }
        let back_at = self.now + self.delay(client, number as u32);
        self.events.push(Lane::Mixed, back_at, Event::ProbeBack(id));
    }
}

/// What befalls servers.
impl World<'_> {
    /// What befalls servers now.
    pub(super) fn weather(&mut self) {
        if self.is_over() {
            return;
        }
        let now = self.now;
        while let Some(strike) = self.weather.next_if(|strike| strike.at <= now) {
            self.strike(strike);
        }
        self.await_weather();
    }

    /// Asks to be woken when the weather changes next.
    pub(super) fn await_weather(&mut self) {
        if let Some(next) = self.weather.peek() {
            self.events.push(Lane::Mixed, next.at, Event::Weather);
        }
    }

    fn strike(&mut self, Strike { server: number, effect, .. }: Strike) {
        let server = &mut self.servers[number];
        match effect {
            Effect::Speed(factor) => {
                server.fluctuate(self.now, self.scenario.cluster.service_mean, factor);
            }
            Effect::Pause(length) => server.pause(self.now, length),
            Effect::Fault(what) => self.fault(number, what),
        }
        self.tell_truth(number);
        self.look_ahead(number);
    }

    fn fault(&mut self, number: usize, what: What) {
        let server = &mut self.servers[number];
        match what {
            What::Crash if server.is_alive() => self.crash(number),
            What::Crash => {}
            What::Restore if server.is_alive() => {}
            What::Restore => {
                server.restore();
                self.guards[number].restarted(self.now);
            }
            What::Pause { .. } => debug_assert!(false, "its length is drawn"),
            What::Slow { factor } => server.slow(self.now, factor),
            What::Fail { share } => server.ills.fail = share,
            What::Hang { share } => server.ills.hang = share,
            What::Break { share } => server.ills.break_off = share,
            What::Stall { share } => server.ills.stall = share,
        }
        let within = self.scenario.run.health_checks;
        if matches!(what, What::Crash | What::Restore) && !within.is_zero() {
            self.events.push(Lane::Mixed, self.now + within, Event::Checked);
        }
    }

    /// Tells every client which servers live.
    pub(super) fn checked(&mut self) {
        let health = |server: &Server| if server.is_alive() { Health::Up } else { Health::Down };
        self.plan.version += 1;
        self.plan.health = self.servers.iter().map(health).collect();
        if let Some(sites) = &mut self.sites {
            sites.set_up(&self.servers);
        }
        for client in 0..self.clients.len() {
            self.clients[client].dispatcher.adopt(self.now, &self.plan);
            self.resume(client as u32);
        }
    }

    /// Everything on the server is lost and its clients' connections break.
    fn crash(&mut self, number: usize) {
        let life = self.servers[number].life();
        self.servers[number].die();
        match &mut self.servers[number].discipline {
            Discipline::Sharing(sharing) => {
                let lost = sharing.empty(self.now);
                lost.into_iter().for_each(|id| self.break_off(id));
            }
            Discipline::Slots(slots) => {
                let waiting = slots.empty();
                self.empty_slots(number, life, waiting);
            }
        }
        self.truth.emptied(number);
    }

    /// A request dies with the cores it was on.
    fn break_off(&mut self, id: JobId) {
        let job = &mut self.jobs[id as usize];
        let pass = core::mem::replace(&mut job.pass, Pass::Spent);
        self.guards[job.server as usize].failed(self.now, pass);
        if job.attempt.is_none() {
            self.jobs.remove(id as usize);
            return;
        }
        job.outcome = Outcome::Failed(Failure::Broken);
        let at = self.now + self.delay_of(id);
        self.events.push(Lane::Mixed, at, Event::Back(id));
    }

    /// A job in service still has an event to come, so its attempt goes home with a job of its own.
    fn empty_slots(&mut self, number: usize, life: u32, waiting: VecDeque<JobId>) {
        let lost = |job: &Job| job.server as usize == number && job.life == life;
        let on_it: Vec<_> =
            self.jobs.iter().filter(|(_, job)| lost(job)).map(|(id, _)| id).collect();
        for id in on_it {
            let job = &mut self.jobs[id];
            let is_back = !matches!(job.outcome, Outcome::Cancelled);
            let Some(attempt) = job.attempt.take_if(|_| !is_back) else { continue };
            let (call, client, copy) = (job.call, job.client, attempt.copy());
            let row = job.row;
            let mirror = attempt.kind() == Kind::Mirror;
            let outcome = Outcome::Failed(Failure::Broken);
            let messenger = Job { outcome, row, ..Job::new(attempt, call, client) };
            let messenger = self.jobs.insert(messenger) as JobId;
            if let Some(slot) = self.slot(call)
                && !mirror
            {
                self.calls[slot].jobs[copy] = messenger;
            }
            let at = self.now + self.delay_of(messenger);
            self.events.push(Lane::Mixed, at, Event::Back(messenger));
        }
        for id in waiting {
            self.jobs.remove(id as usize); // never started: no event will come for it
        }
    }

    pub(super) fn tell_truth(&self, number: usize) {
        let server = &self.servers[number];
        let until = server.starts_at(Instant::ZERO);
        self.truth.changed(number, millis(server.mean()), until, server.is_alive());
    }
}
