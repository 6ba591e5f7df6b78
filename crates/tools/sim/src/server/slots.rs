//! A queue in front of slots, with a speed that varies: a data store's replica, as in C3.

use std::collections::VecDeque;

use evenkeel_core::report::Present;
use evenkeel_core::time::nanos;
use evenkeel_core::{Duration, Instant};

use crate::server::JobId;

/// A first-in-first-out queue in front of `concurrency` slots.
#[derive(Clone, Debug)]
pub struct Slots {
    concurrency: u32,
    /// Mean service time of a request that starts now.
    mean: Duration,
    /// Multiplies `mean` while the replica is degraded.
    slowdown: f64,
    queue: VecDeque<JobId>,
    in_service: u32,
    paused_until: Instant,
    /// Time spent paused so far, up to the end of the current pause.
    paused_total: Duration,
}

impl Slots {
    /// An idle replica.
    pub fn new(concurrency: u32, mean: Duration) -> Self {
        Self {
            concurrency,
            mean,
            slowdown: 1.0,
            queue: VecDeque::new(),
            in_service: 0,
            paused_until: Instant::ZERO,
            paused_total: Duration::ZERO,
        }
    }

    /// Mean service time of a request that starts now, degradation included.
    #[inline]
    pub fn mean(&self) -> Duration {
        if self.slowdown == 1.0 { self.mean } else { self.mean.mul_f64(self.slowdown) }
    }

    /// Sets the mean service time of requests that start from now on.
    pub fn set_mean(&mut self, mean: Duration) {
        self.mean = mean;
    }

    /// Degrades the replica by a factor; 1 ends it.
    pub fn set_slowdown(&mut self, factor: f64) {
        self.slowdown = factor;
    }

    /// Requests in service or waiting.
    #[inline]
    pub fn load(&self) -> u32 {
        self.in_service + self.queue.len() as u32
    }

    /// The share of the slots that are taken.
    pub fn busy(&self) -> f64 {
        f64::from(self.in_service) / f64::from(self.concurrency)
    }

    /// A request arrives; true when it starts at once.
    #[inline]
    pub fn arrive(&mut self, job: JobId) -> bool {
        if self.in_service < self.concurrency {
            self.in_service += 1;
            return true;
        }
        self.queue.push_back(job);
        false
    }

    /// A request leaves its slot; returns the one that takes it over.
    #[inline]
    pub fn leave(&mut self) -> Option<JobId> {
        debug_assert!(self.in_service > 0, "a request leaves that was not in service");
        let next = self.queue.pop_front();
        if next.is_none() {
            self.in_service -= 1;
        }
        next
    }

    /// What an agent that lets in as many as there are slots can count.
    #[inline]
    pub fn present(&self, now: Instant) -> Present {
        let waiting = self.queue.len() as u32;
        let concurrency = Some(self.concurrency);
        Present { now, waiting, in_service: self.in_service, concurrency }
    }

    /// What answering a probe takes from the requests.
    pub fn work_aside(&mut self, now: Instant, cost: Duration) {
        self.pause(now, cost / self.concurrency);
    }

    /// Stops everything on the replica for a while; overlapping pauses end at the later end.
    pub fn pause(&mut self, now: Instant, length: Duration) {
        let until = now + length;
        let from = self.paused_until.max(now);
        if until > from {
            self.paused_total += until.since(from);
            self.paused_until = until;
        }
    }

    /// How long the replica was (or, for the current pause, will have been) paused. The work of a
    /// request that started when this was `then` is late by the difference.
    #[inline]
    pub const fn paused_total(&self) -> Duration {
        self.paused_total
    }

    /// When a request that arrives now can start.
    #[inline]
    pub fn starts_at(&self, now: Instant) -> Instant {
        self.paused_until.max(now)
    }

    /// Takes a waiting request out of the queue; false when it is not there.
    pub fn withdraw(&mut self, job: JobId) -> bool {
        let place = self.queue.iter().position(|&waiting| waiting == job);
        place.and_then(|place| self.queue.remove(place)).is_some()
    }

    /// Loses everything it has. Returns the waiting jobs.
    pub fn empty(&mut self) -> VecDeque<JobId> {
        self.in_service = 0;
        core::mem::take(&mut self.queue)
    }
}

/// When work that started at `start` and needs `service` is done, given that the replica was
/// paused for `paused_then` in total at the start and for `paused_now` in total now.
#[inline]
pub fn done_at(
    start: Instant,
    service: Duration,
    paused_then: Duration,
    paused_now: Duration,
) -> Instant {
    start.plus_nanos(nanos(service) + nanos(paused_now.saturating_sub(paused_then)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn slots_then_queue_first_in_first_out() {
        let mut server = Slots::new(2, MS);
        assert_eq!([1, 2, 3, 4].map(|job| server.arrive(job)), [true, true, false, false]);
        assert_eq!(server.load(), 4);
        assert_eq!((server.leave(), server.leave()), (Some(3), Some(4)));
        assert_eq!((server.leave(), server.leave(), server.load()), (None, None, 0));
    }

    #[test]
    fn overlapping_pauses_count_once() {
        let mut server = Slots::new(1, MS);
        server.pause(Instant::from_millis(10), 100 * MS);
        server.pause(Instant::from_millis(50), 100 * MS);
        assert_eq!(server.paused_total(), 140 * MS);
        server.pause(Instant::from_millis(60), MS);
        assert_eq!(server.paused_total(), 140 * MS);
        assert_eq!(server.starts_at(Instant::from_millis(70)), Instant::from_millis(150));
    }

    #[test]
    fn a_report_counts_the_waiting_without_those_in_service() {
        let mut server = Slots::new(2, MS);
        for job in 0..5 {
            server.arrive(job);
        }
        let present = server.present(Instant::ZERO);
        assert_eq!((present.waiting, present.in_service, present.concurrency), (3, 2, Some(2)));
    }
}
