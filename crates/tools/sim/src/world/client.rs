//! The life of a request at the client: it arrives, is sent, and ends.

use arrayvec::ArrayVec;
use evenkeel_core::request::{
    Attempt, BodyEnd, Call, CallId, Failure, Kind, Outcome, Replay, Request, Step,
};
use evenkeel_core::{Deadline, GroupId, Instant, ReplicaId};
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::patience::{Sent, Waits};
use evenkeel_twin::rows;

use crate::ends::End;
use crate::events::Lane;
use crate::server::JobId;
use crate::workload::Arrival;
use crate::world::parts::AskedBy;
use crate::world::{BODY_ENDS_AFTER, Client, Event, FlyingProbe, Job, OpenCall, World, slot};

impl World<'_> {
    pub(super) fn arrive(&mut self, generator: u32) {
        if self.arrived == self.scenario.workload.requests {
            return;
        }
        self.arrived += 1;
        let next = self.arriving.next_after(self.now, generator);
        self.events.push(Lane::Arrivals, next, Event::Arrive(generator));

        let mut arrival = self.arriving.draw(generator);
        self.divert(&mut arrival);
        if let Some(sites) = &mut self.sites {
            let (client, item) = (arrival.client as usize, arrival.work_seed);
            let request = (item, arrival.everywhere);
            let dispatcher = &mut self.clients[client].dispatcher;
            arrival.group = sites.route(self.now, client, request, dispatcher) as u32;
        }
        if !self.scenario.tiers.is_empty() {
            return self.ask_parts(0, arrival, self.arrived, AskedBy::User);
        }
        self.open(arrival, self.arrived, None);
    }

    /// Opens the call of a request or of a part.
    pub(super) fn open(&mut self, arrival: Arrival, number: u64, whole: Option<usize>) {
        let request = self.request(arrival.group as usize);
        let has_time_limit = !self.scenario.workload.timeout.is_zero() && self.is_of_user(whole);
        self.opened += 1;
        let entry = self.calls.vacant_entry();
        let id = CallId(self.opened << 24 | entry.key() as u64);
        let client = &mut self.clients[arrival.client as usize];
        let call = client.dispatcher.open(self.now, id, request);
        entry.insert(OpenCall {
            id,
            number,
            whole,
            call: Some(call),
            client: arrival.client,
            arrival,
            arrived_at: self.now,
            jobs: ArrayVec::new(),
            errors: ArrayVec::new(),
            full: 0,
            server: None,
            hedged: false,
            has_returned: false,
            waits_on: false,
        });
        if has_time_limit {
            let at = self.now + self.scenario.workload.timeout;
            self.events.push(Lane::Timeouts, at, Event::Expire(id));
        }
        self.advance(id);
    }

    /// A request to this group, which may be hedged unless the plan says otherwise.
    fn request(&self, group: usize) -> Request {
        let may_hedge = self.sites.as_ref().is_none_or(|sites| sites.may_hedge(group));
        Request { may_hedge, ..Request::new(GroupId::new(group), Replay::Always) }
    }

    /// The slot of a call, if it is still open.
    pub(super) fn slot(&self, id: CallId) -> Option<usize> {
        slot(&self.calls, id)
    }

    /// Steps a call, then whatever its steps set free at the same client.
    pub(super) fn advance(&mut self, id: CallId) {
        let Some(slot) = self.slot(id) else { return };
        let client = self.calls[slot].client;
        self.drive(slot);
        self.resume(client);
    }

    pub(super) fn resume(&mut self, client: u32) {
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

    pub(super) fn wake(&mut self, client: u32) {
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
                Step::Send(attempt) => {
                    let is_told = self.clients[client as usize].dispatcher.wants_notices(&call);
                    self.send(slot, attempt, is_told);
                }
                Step::Cancel(copy) => self.cancel(slot, copy, &mut call),
                Step::Wait { until } => {
                    if self.leave(slot, &mut call) {
                        continue;
                    }
                    if let Some(Deadline { at, .. }) = until {
                        self.events.push(Lane::Deadlines, at, Event::Due(call.id()));
                    }
                    break None;
                }
                Step::Answered(copy) => break Some(self.calls[slot].served_by(copy)),
                Step::Refused(_) => break Some(End::Failed),
            }
        };
        self.ask_probes(client);
        match ended {
            None => self.calls[slot].call = Some(call),
            Some(end) => self.close(slot, call, end),
        }
    }

    /// Comes home with a call that another site does not answer, as the proxy does; says else when
    /// to ask again.
    fn leave(&mut self, slot: usize, call: &mut Call) -> bool {
        let (now, open) = (self.now, &mut self.calls[slot]);
        let Some(sites) = self.sites.as_mut().filter(|_| !open.has_returned) else { return false };
        let to = SiteId::new(open.arrival.group as usize % evenkeel_geo::SITES_MAX);
        let mut sent = Sent { to, arrived_at: open.arrived_at, waits_on: open.waits_on };
        let client = open.client as usize;
        let silent_at = self.clients[client].dispatcher.silent_at(now, call);
        let waits = sites.waits(now, client, &mut sent, silent_at);
        open.waits_on = sent.waits_on;
        let Some((waits, home)) = waits else { return false };
        if let Waits::Until(at) = waits {
            if let Some(at) = at {
                self.events.push(Lane::Deadlines, at, Event::Due(call.id()));
            }
            return false;
        }
        for copy in 0..self.calls[slot].jobs.len() {
            // The job of a copy that has failed is gone; its number may be another's by now.
            let number = self.calls[slot].jobs[copy];
            let is_ours = |job: &Job| job.call == call.id() && job.attempt.is_some();
            if !self.jobs.get(number as usize).is_some_and(is_ours) {
                continue;
            }
            match waits {
                Waits::InVain => self.fail_late(number, call),
                _ => self.cancel(slot, copy, call),
            }
        }
        let request = self.request(home);
        let dispatcher = &mut self.clients[client].dispatcher;
        let left = core::mem::replace(call, dispatcher.open(now, call.id(), request));
        dispatcher.close(now, left);
        let open = &mut self.calls[slot];
        open.jobs.clear();
        open.errors.clear();
        (open.full, open.has_returned) = (0, true);
        open.arrival.group = home as u32;
        true
    }

    /// A copy was not answered in time.
    fn fail_late(&mut self, id: JobId, call: &mut Call) {
        let job = &mut self.jobs[id as usize];
        let Some(mut attempt) = job.attempt.take() else { return };
        let dispatcher = &mut self.clients[job.client as usize].dispatcher;
        let outcome = Outcome::Failed(Failure::TimedOut);
        call.settle(dispatcher.learn(self.now, &mut attempt, &outcome));
        dispatcher.finish(self.now, attempt, BodyEnd::Complete);
        self.end_row(self.jobs[id as usize].row, rows::End::Failed);
        self.leave_off(id);
    }

    /// The server may leave off what a client gave up.
    fn leave_off(&mut self, id: JobId) {
        if self.scenario.workload.cancel {
            self.abandon(id);
        }
        self.ask_back(id);
    }

    fn close(&mut self, slot: usize, call: Call, end: End) {
        let open = self.calls.remove(slot);
        self.clients[open.client as usize].dispatcher.close(self.now, call);
        if let Some(whole) = open.whole {
            return self.part_ended(whole, &open, end);
        }
        let warm = self.recording.is_none() && self.is_warm(open.number);
        let violation = self.tally.note_end(warm, self.now.since(open.arrived_at), end);
        if let Some(sites) = &mut self.sites {
            let server = open.server.map(|server| server as usize);
            let is_told = matches!(end, End::Served { .. }) && !open.has_returned;
            if let Some(server) = server.filter(|_| is_told) {
                sites.replied(open.client as usize, server, self.now.since(open.arrived_at));
            }
            sites.ended(open.client as usize, server, warm, violation);
        }
    }

    fn send(&mut self, slot: usize, attempt: Attempt, is_told: bool) {
        let first = attempt.kind() == Kind::First;
        let is_copy = attempt.kind() == Kind::Hedge;
        let chosen = attempt.replica();
        let job = self.launch(slot, attempt);
        self.jobs[job as usize].is_told = is_told;
        let open = &mut self.calls[slot];
        open.jobs.push(job);
        open.server = Some(chosen.index() as u32);
        open.hedged |= is_copy;
        if first {
            self.send_pair(slot, chosen);
        }
        let open = &self.calls[slot];
        // Copies are no load: a signal with them in it flaps.
        if let Some(sites) = &mut self.sites
            && !is_copy
        {
            sites.sent(open.client as usize, chosen.index());
        }
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

    pub(super) fn launch(&mut self, slot: usize, attempt: Attempt) -> JobId {
        let open = &self.calls[slot];
        let server = attempt.replica().index();
        let copy = match attempt.kind() {
            Kind::Mirror => 64 + server as u32, // a draw of its own for each mirror
            Kind::First | Kind::Retry | Kind::Hedge | Kind::Moved => attempt.copy() as u32,
        };
        let (id, client, arrival) = (open.id, open.client, open.arrival);
        let job = Job {
            seed: arrival.work_seed,
            score: arrival.score,
            copy,
            number: open.number,
            row: self.begin_row(slot, &attempt),
            ..Job::new(attempt, id, client)
        };
        let job = self.jobs.insert(job) as JobId;
        if self.recording.is_none() {
            self.tally.note_choice(server);
        }
        self.truth.moved(server, 1);
        let at = self.now + self.delay(client, server as u32);
        self.events.push(Lane::ToServers, at, Event::Reach(job));
        job
    }

    /// Gives a copy up.
    fn cancel(&mut self, slot: usize, copy: usize, call: &mut Call) {
        let id = self.calls[slot].jobs[copy];
        let job = &mut self.jobs[id as usize];
        let Some(mut attempt) = job.attempt.take() else { return };
        job.has_lost = self.calls[slot].hedged;
        let dispatcher = &mut self.clients[job.client as usize].dispatcher;
        call.settle(dispatcher.give_up(self.now, &mut attempt));
        dispatcher.finish(self.now, attempt, BodyEnd::Complete);
        self.end_row(self.jobs[id as usize].row, rows::End::Cancelled);
        self.leave_off(id);
    }

    /// The caller gives up. That is no failure of the replicas', so nothing is learnt of it.
    pub(super) fn expire(&mut self, id: CallId) {
        let Some(slot) = self.slot(id) else { return };
        let Some(call) = self.calls[slot].call.take() else { return };
        let client = self.calls[slot].client;
        let is_noticed = self.scenario.workload.noticed;
        for copy in 0..self.calls[slot].jobs.len() {
            // The job of a copy that has failed is gone; its number may be another's by now.
            let number = self.calls[slot].jobs[copy];
            let job = self.jobs.get_mut(number as usize).filter(|job| job.call == id);
            let Some(job) = job else { continue };
            if let Some(attempt) = job.attempt.take_if(|_| is_noticed) {
                self.clients[client as usize].dispatcher.finish(
                    self.now,
                    attempt,
                    BodyEnd::Complete,
                );
                self.end_row(self.jobs[number as usize].row, rows::End::Cancelled);
                self.abandon(number);
                self.ask_back(number);
            } else {
                self.overdue(number);
            }
        }
        self.close(slot, call, End::TimedOut);
        self.resume(client);
    }

    pub(super) fn back(&mut self, id: JobId) {
        let mut job = self.jobs.remove(id as usize);
        let Some(mut attempt) = job.attempt.take() else {
            self.tally.executed.extra += job.service;
            return;
        };
        let is_failed = matches!(job.outcome, Outcome::Failed(_)) || job.body.is_failure();
        self.end_row(job.row, if is_failed { rows::End::Failed } else { rows::End::Answered });
        let mirror = attempt.kind() == Kind::Mirror;
        if !mirror {
            self.tally.executed.answered += job.service;
        }
        let copy = attempt.copy();
        let dispatcher = &mut self.clients[job.client as usize].dispatcher;
        let settled = dispatcher.learn(self.now, &mut attempt, &job.outcome);
        let has_body = matches!(job.outcome, Outcome::Replied(_));
        if has_body && job.body == BodyEnd::TimedOut {
            let rest = Job { attempt: Some(attempt), ..job };
            let rest = self.jobs.insert(rest) as JobId;
            self.events.push(Lane::Mixed, self.now + BODY_ENDS_AFTER, Event::BodyEnds(rest));
        } else {
            dispatcher.finish(self.now, attempt, job.body);
        }
        if mirror {
            return;
        }
        let Some(slot) = self.slot(job.call) else { return };
        let open = &mut self.calls[slot];
        if let Some(call) = &mut open.call {
            if is_failed {
                open.errors.push(copy);
            }
            open.full |= u8::from(job.is_full) << copy;
            call.settle(settled);
            self.advance(job.call);
        }
    }

    /// The rest of an answer will not come any more.
    pub(super) fn body_ends(&mut self, job: JobId) {
        let Job { attempt, client, body, .. } = self.jobs.remove(job as usize);
        let dispatcher = &mut self.clients[client as usize].dispatcher;
        attempt.into_iter().for_each(|it| dispatcher.finish(self.now, it, body));
    }

    fn ask_probes(&mut self, client: u32) {
        while let Some(probe) = self.clients[client as usize].dispatcher.probe(self.now) {
            let server = probe.replica().index() as u32;
            self.tally.probes += 1;
            let probe = self.probes.insert(FlyingProbe { probe, client, answer: None });
            let at = self.now + self.delay(client, server);
            self.events.push(Lane::ToServers, at, Event::ProbeReach(probe as u32));
        }
    }

    pub(super) fn probe_back(&mut self, probe: u32) {
        let FlyingProbe { probe, client, answer } = self.probes.remove(probe as usize);
        let dispatcher = &mut self.clients[client as usize].dispatcher;
        if self.scenario.cluster.agents {
            dispatcher.learn_probe(self.now, &probe, answer.as_ref());
        } else {
            dispatcher.probe_is_unknown(self.now, &probe);
        }
        self.resume(client);
    }
}
