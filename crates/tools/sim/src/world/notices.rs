//! What servers and clients tell each other of requests that wait for a slot.
//!
//! As datagrams do, these travel by themselves: a notice may find its call closed, and a request
//! that is given up may have started before its server hears of that.

use evenkeel_core::request::CallId;
use evenkeel_core::{Feedback, Instant};

use crate::events::Lane;
use crate::server::{Discipline, JobId};
use crate::world::{Event, Job, World};

/// A message about one job. Its number may be another's by the time it arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    job: JobId,
    call: CallId,
    copy: u32,
    client: u32,
    server: u32,
    /// What the server has to do, if it tells.
    report: Option<Feedback>,
}

impl World<'_> {
    fn notice(&self, id: JobId, report: Option<Feedback>) -> Notice {
        let job = &self.jobs[id as usize];
        let (call, copy, client, server) = (job.call, job.copy, job.client, job.server);
        Notice { job: id, call, copy, client, server, report }
    }

    /// Whether its job is still the one it is about.
    fn is_there(&self, Notice { job, call, copy, .. }: Notice) -> bool {
        let job = self.jobs.get(job as usize);
        job.is_some_and(|job| (job.call, job.copy) == (call, copy))
    }

    /// A request waits for a slot, and its client is told if agents do and it wants to know.
    pub(super) fn tell_queued(&mut self, id: JobId, from: Instant) {
        let Job { attempt, is_told, server, .. } = &self.jobs[id as usize];
        if !self.scenario.cluster.notices || !is_told || attempt.is_none() {
            return;
        }
        let number = *server as usize;
        self.servers[number].work_aside(from, self.scenario.cluster.probe_cost);
        let notice = self.notice(id, self.report(number, None));
        let at = from + self.delay(notice.client, notice.server);
        let notice = self.notices.insert(notice) as u32;
        self.events.push(Lane::ToClients, at, Event::Queued(notice));
    }

    pub(super) fn queued(&mut self, notice: u32) {
        let notice = self.notices.remove(notice as usize);
        if !self.is_there(notice) {
            return;
        }
        let Notice { job, call: id, client, report: Some(report), .. } = notice else { return };
        let Some(slot) = self.slot(id) else { return };
        let Some(attempt) = &self.jobs[job as usize].attempt else { return };
        let Some(call) = &mut self.calls[slot].call else { return };
        let dispatcher = &mut self.clients[client as usize].dispatcher;
        dispatcher.hear_queued(self.now, call, attempt, &report);
        self.advance(id);
    }

    /// The client gave a request up, and lets its server know.
    pub(super) fn ask_back(&mut self, id: JobId) {
        if !self.scenario.cluster.withdraws {
            return;
        }
        let notice = self.notice(id, None);
        let at = self.now + self.delay(notice.client, notice.server);
        let notice = self.notices.insert(notice) as u32;
        self.events.push(Lane::ToServers, at, Event::Withdraw(notice));
    }

    pub(super) fn withdraw(&mut self, number: u32) {
        let notice = self.notices[number as usize];
        let server = notice.server as usize;
        let at = self.servers[server].starts_at(self.now);
        if at > self.now {
            return self.events.push(Lane::ToServers, at, Event::Withdraw(number)); // paused
        }
        self.notices.remove(number as usize);
        let is_there = self.is_there(notice);
        let Discipline::Slots(slots) = &mut self.servers[server].discipline else { return };
        if is_there && slots.withdraw(notice.job) {
            self.jobs.remove(notice.job as usize);
            self.truth.moved(server, -1);
            self.truth.arrived(server, -1);
        }
    }
}
