//! Cores that all requests share: an application server's replica, as in the brownout paper.
//!
//! Egalitarian processor sharing on m cores: of k requests each runs at min(1, m/k) of a core. All
//! run equally fast, so the core time that each was given since the server was idle is one clock,
//! and a request is done when that clock has advanced by its work. Its *due* reading never changes,
//! whatever comes and goes; only the moment at which the clock gets there does. Where only so
//! many are served at once (an application's workers, an agent's `concurrency`) the others stand in
//! line.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use evenkeel_core::report::Present;
use evenkeel_core::time::nanos;
use evenkeel_core::{Duration, Instant};

use crate::server::JobId;

/// Requests on shared cores.
#[derive(Clone, Debug)]
pub struct Sharing {
    cores: u32,
    /// Core-seconds of work that one core does per second when nothing ails it.
    speed: f64,
    /// Factor by which the speed varies with time.
    fluctuation: f64,
    /// Divides the speed while the replica is degraded.
    slowdown: f64,
    /// Mean core time of a full request, nanoseconds.
    work_mean: f64,
    /// Core time that a request which is here since the server was idle was given, nanoseconds.
    given: f64,
    read_at: Instant,
    paused_until: Instant,
    present: BinaryHeap<Reverse<Due>>,
    /// Requests served at once.
    workers: usize,
    /// Those who wait for a worker, with their work.
    line: VecDeque<(JobId, f64)>,
    entered: u32,
    wakes_at: Instant,
    /// Core time given to all requests together, nanoseconds.
    done: f64,
}

/// When a request is done: the bits of a reading of the clock (they order as the readings do, since
/// none is negative), then the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Due {
    reading: u64,
    order: u32,
    job: JobId,
}

/// Work that may be left when a request counts as done, nanoseconds of core time.
const ROUNDING: f64 = 1.0;

impl Sharing {
    /// Idle cores of this speed, for requests of this mean work.
    pub fn new(cores: u32, speed: f64, work_mean: Duration) -> Self {
        assert!(cores > 0 && speed > 0.0, "a server has cores");
        Self {
            cores,
            speed,
            fluctuation: 1.0,
            slowdown: 1.0,
            work_mean: nanos(work_mean) as f64,
            given: 0.0,
            read_at: Instant::ZERO,
            paused_until: Instant::ZERO,
            present: BinaryHeap::new(),
            workers: usize::MAX,
            line: VecDeque::new(),
            entered: 0,
            wakes_at: Instant::FAR,
            done: 0.0,
        }
    }

    /// The same with so many requests served at once, and the others in line.
    #[must_use]
    pub fn with_workers(self, workers: u32) -> Self {
        assert!(workers > 0, "somebody serves");
        Self { workers: workers as usize, ..self }
    }

    /// A request of this work, in nanoseconds of core time, arrives; true when it starts at once.
    #[inline]
    pub fn enter(&mut self, now: Instant, job: JobId, work: f64) -> bool {
        debug_assert!(work.is_finite() && work >= 0.0, "work is an amount");
        let starts = self.present.len() < self.workers;
        if starts {
            self.start(now, job, work);
        } else {
            self.line.push_back((job, work));
        }
        starts
    }

    /// The first in line starts, if there is a worker for it.
    #[inline]
    pub fn start_next(&mut self, now: Instant) -> Option<JobId> {
        if self.present.len() >= self.workers {
            return None;
        }
        let (job, work) = self.line.pop_front()?;
        self.start(now, job, work);
        Some(job)
    }

    fn start(&mut self, now: Instant, job: JobId, work: f64) {
        self.settle(now);
        self.entered = self.entered.wrapping_add(1);
        let reading = (self.given + work).to_bits();
        self.present.push(Reverse(Due { reading, order: self.entered, job }));
    }

    /// Takes out a request that is done by now, if there is one.
    #[inline]
    pub fn take_done(&mut self, now: Instant) -> Option<JobId> {
        self.settle(now);
        let Reverse(first) = self.present.peek()?;
        if f64::from_bits(first.reading) > self.given + ROUNDING {
            return None;
        }
        self.present.pop().map(|Reverse(due)| due.job)
    }

    /// When somebody should look for done requests, if that is earlier than what was asked for
    /// before. A moment that has become too early is kept: looking in vain costs less than taking
    /// events back.
    #[inline]
    pub fn wakes_earlier(&mut self) -> Option<Instant> {
        let at = self.first_done_at()?;
        if at >= self.wakes_at {
            return None;
        }
        self.wakes_at = at;
        Some(at)
    }

    /// Whether the one who looks now was asked to, and not replaced by somebody earlier.
    #[inline]
    pub fn is_woken(&mut self, now: Instant) -> bool {
        let awaited = now == self.wakes_at;
        if awaited {
            self.wakes_at = Instant::FAR;
        }
        awaited
    }

    /// Takes a request out before it is done: its work that is left, in nanoseconds of core time;
    /// `None` when it is not there.
    pub fn withdraw(&mut self, now: Instant, job: JobId) -> Option<f64> {
        self.settle(now);
        let mut left = None;
        self.present.retain(|Reverse(due)| {
            let is_it = due.job == job;
            if is_it {
                left = Some((f64::from_bits(due.reading) - self.given).max(0.0));
            }
            !is_it
        });
        if let Some(place) = self.line.iter().position(|(other, _)| *other == job) {
            left = self.line.remove(place).map(|(_, work)| work);
        }
        left
    }

    /// Loses everything it has, and says what that was.
    pub fn empty(&mut self, now: Instant) -> Vec<JobId> {
        self.settle(now);
        self.wakes_at = Instant::FAR;
        let present = core::mem::take(&mut self.present).into_iter().map(|Reverse(due)| due.job);
        let waiting = core::mem::take(&mut self.line).into_iter().map(|(job, _)| job);
        present.chain(waiting).collect()
    }

    /// Degrades the cores by a factor; 1 ends it.
    pub fn set_slowdown(&mut self, now: Instant, factor: f64) {
        self.settle(now);
        self.slowdown = factor;
    }

    /// Makes the cores this many times as fast as they were made.
    pub fn set_fluctuation(&mut self, now: Instant, factor: f64) {
        self.settle(now);
        self.fluctuation = factor;
    }

    /// Stops the cores for a while; overlapping pauses end at the later end.
    pub fn pause(&mut self, now: Instant, length: Duration) {
        self.settle(now);
        self.paused_until = self.paused_until.max(now + length);
    }

    /// When the cores work: now, or at the end of the pause.
    #[inline]
    pub fn works_at(&self, now: Instant) -> Instant {
        self.paused_until.max(now)
    }

    /// Requests present.
    #[inline]
    pub fn load(&self) -> u32 {
        (self.present.len() + self.line.len()) as u32
    }

    /// The cores.
    pub const fn cores(&self) -> u32 {
        self.cores
    }

    /// Mean time of a full request that has a core for itself.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.mean_nanos() as u64)
    }

    /// Work done since the beginning, at the speed the cores were made with.
    #[cfg(test)]
    pub const fn work_done(&self) -> Duration {
        Duration::from_nanos(self.done as u64)
    }

    /// What an agent can count: those in line where it lets in as many as there are workers, else
    /// nothing but who is there.
    #[inline]
    pub fn present(&self, now: Instant) -> Present {
        let (waiting, in_service) = (self.line.len() as u32, self.present.len() as u32);
        let concurrency = u32::try_from(self.workers).ok();
        Present { now, waiting, in_service, concurrency }
    }

    /// What answering a probe takes from the requests.
    pub fn work_aside(&mut self, now: Instant, cost: Duration) {
        self.pause(now, cost / self.cores);
    }

    fn mean_nanos(&self) -> f64 {
        self.work_mean / self.core_speed()
    }

    fn core_speed(&self) -> f64 {
        self.speed * self.fluctuation / self.slowdown
    }

    /// Nanoseconds of core time that each request is given per nanosecond.
    #[inline]
    fn rate(&self) -> f64 {
        let share = f64::from(self.cores) / self.present.len() as f64;
        self.core_speed() * share.min(1.0)
    }

    /// Brings the clock up to now.
    #[inline]
    fn settle(&mut self, now: Instant) {
        if self.present.is_empty() {
            self.given = 0.0;
        } else {
            let given = self.rate() * now.nanos_since(self.works_at(self.read_at)) as f64;
            self.given += given;
            self.done += given * self.present.len() as f64;
        }
        self.read_at = now;
    }

    #[inline]
    fn first_done_at(&self) -> Option<Instant> {
        let Reverse(first) = self.present.peek()?;
        let left = (f64::from_bits(first.reading) - self.given).max(0.0);
        let wait = left / self.rate();
        let whole = wait as u64;
        let rounded_up = whole + u64::from((whole as f64) < wait);
        Some(self.works_at(self.read_at).plus_nanos(rounded_up))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    const MS: f64 = 1e6;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn cores(cores: u32) -> Sharing {
        Sharing::new(cores, 1.0, Duration::from_millis(10))
    }

    /// The next to be done, and when.
    fn next(sharing: &mut Sharing) -> Option<(Instant, JobId)> {
        loop {
            let when = sharing.first_done_at()?;
            if let Some(job) = sharing.take_done(when) {
                return Some((when, job));
            }
        }
    }

    #[test]
    fn as_many_as_cores_do_not_feel_each_other_and_more_do() {
        let mut two = cores(2);
        two.enter(at(0), 1, 10.0 * MS);
        two.enter(at(0), 2, 20.0 * MS);
        assert_eq!(next(&mut two), Some((at(10), 1)));
        two.enter(at(10), 3, 10.0 * MS);
        two.enter(at(10), 4, 40.0 * MS);
        // Three on two cores: 2 and 3 need 10 ms more each, at two thirds of a core.
        let (when, first) = next(&mut two).unwrap();
        assert_eq!((when.as_nanos(), first), (25_000_000, 2));
        assert_eq!(next(&mut two), Some((at(25), 3)));
        assert_eq!(next(&mut two), Some((at(55), 4))); // alone: 30 ms
        assert_eq!(next(&mut two), None);
        assert_eq!(two.work_done(), Duration::from_millis(80));
    }

    #[test]
    fn a_pause_a_slowdown_and_a_withdrawal_move_the_end() {
        let mut one = cores(1);
        one.enter(at(0), 1, 10.0 * MS);
        one.pause(at(5), Duration::from_millis(100));
        one.pause(at(50), Duration::from_millis(20)); // within the first
        assert_eq!(one.first_done_at(), Some(at(110)));
        one.set_slowdown(at(107), 2.0);
        assert_eq!(one.first_done_at(), Some(at(113)));
        one.enter(at(107), 2, 10.0 * MS);
        assert_eq!(one.first_done_at(), Some(at(119)));
        // A quarter of a core for 4 ms.
        assert_eq!((one.withdraw(at(111), 2), one.withdraw(at(111), 2)), (Some(9.0 * MS), None));
        assert_eq!(one.first_done_at(), Some(at(115)));
        one.set_slowdown(at(111), 1.0);
        one.set_fluctuation(at(111), 2.0);
        assert_eq!(one.first_done_at(), Some(at(112)));
        assert_eq!(one.empty(at(111)), [1]);
        assert_eq!((one.first_done_at(), one.load()), (None, 0));
    }

    #[test]
    fn who_finds_no_worker_stands_in_line() {
        let mut one = cores(4).with_workers(1);
        assert!(one.enter(at(0), 1, 10.0 * MS));
        assert!(!one.enter(at(0), 2, 10.0 * MS) && !one.enter(at(1), 3, 5.0 * MS));
        assert_eq!((one.load(), one.start_next(at(1))), (3, None));
        assert_eq!(next(&mut one), Some((at(10), 1)));
        assert_eq!((one.withdraw(at(10), 2), one.withdraw(at(10), 2)), (Some(10.0 * MS), None));
        assert_eq!((one.start_next(at(10)), next(&mut one)), (Some(3), Some((at(15), 3))));
        one.enter(at(20), 4, MS);
        one.enter(at(20), 5, MS);
        assert_eq!((one.empty(at(20)), one.load()), (vec![4, 5], 0));
    }

    #[test]
    fn one_look_is_asked_for_at_a_time_unless_an_earlier_is_needed() {
        let mut one = cores(1);
        one.enter(at(0), 1, 10.0 * MS);
        assert_eq!(one.wakes_earlier(), Some(at(10)));
        one.enter(at(1), 2, 30.0 * MS);
        assert_eq!(one.wakes_earlier(), None, "the first look comes too early and looks again");
        one.enter(at(2), 3, 1.0 * MS);
        assert_eq!(one.wakes_earlier(), Some(at(5)));
        assert!(one.is_woken(at(5)) && !one.is_woken(at(10)));
    }

    /// The obvious model gives each request its share, a microsecond at a time.
    #[test]
    fn it_is_what_giving_each_its_share_would_be() {
        let mut rng = Rng::seeded(5);
        let works: Vec<(u64, f64)> =
            (0..40).map(|_| (rng.below(200) as u64, 1.0 + 20.0 * rng.exponential())).collect();
        let mut left: Vec<(u64, f64)> = works.clone();
        let mut ends = vec![0.0; works.len()];
        for step in 0..2_000_000_u32 {
            let now_ms = f64::from(step) * 1e-3;
            let here = |n: &usize| left[*n].0 as f64 <= now_ms && left[*n].1 > 0.0;
            let present: Vec<usize> = (0..works.len()).filter(here).collect();
            let share = (3.0 / present.len().max(1) as f64).min(1.0) * 0.5;
            for n in present {
                left[n].1 -= share * 1e-3;
                ends[n] = now_ms;
            }
        }
        let mut sharing = Sharing::new(3, 0.5, Duration::from_millis(10));
        let mut arrivals: Vec<usize> = (0..works.len()).collect();
        arrivals.sort_by_key(|&n| works[n].0);
        let mut done = 0;
        let mut check = |(when, job): (Instant, JobId)| {
            let (ours, model) = (when.as_secs_f64() * 1e3, ends[job as usize]);
            assert!((ours - model).abs() < 0.1, "{job}: {ours} and {model} ms");
            done += 1;
        };
        for n in arrivals {
            let comes = at(works[n].0);
            while sharing.first_done_at().is_some_and(|when| when <= comes) {
                check(next(&mut sharing).unwrap());
            }
            sharing.enter(comes, n as JobId, works[n].1 * MS);
        }
        while let Some(one) = next(&mut sharing) {
            check(one);
        }
        assert_eq!(done, works.len());
    }
}
