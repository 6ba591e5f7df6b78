//! A replica in virtual time, for tests of the laws: workers with a line in front of them, or cores
//! that all its requests share; of any speed, with work that varies, behind which a downstream may
//! be waited for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;
use crate::rng::Rng;

/// How requests are served.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Serving {
    /// So many at once, first come, first served.
    Slots(usize),
    /// So many cores that all requests share.
    Sharing(f64),
}

/// What a replica is like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Likeness {
    pub(super) serving: Serving,
    /// Work of a full request in milliseconds, and of a lean one relative to it.
    pub(super) full_ms: f64,
    pub(super) lean: f64,
    /// Standard deviation of the work over its mean; 0 is always the same.
    pub(super) cv: f64,
}

impl Likeness {
    pub(super) const SHOP: Self =
        Self { serving: Serving::Slots(4), full_ms: 10.0, lean: 0.1, cv: 1.0 };

    /// Full requests per second that it can serve at speed 1.
    pub(super) fn capacity(&self) -> f64 {
        self.cores() * 1e3 / self.full_ms
    }

    /// Requests that it works on at once without slowing down.
    pub(super) fn cores(&self) -> f64 {
        match self.serving {
            Serving::Slots(slots) => slots as f64,
            Serving::Sharing(cores) => cores,
        }
    }
}

/// An ended request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) at_s: f64,
    pub(super) time_s: f64,
    pub(super) is_full: bool,
}

/// A replica and its brownout.
pub(super) struct World {
    pub(super) brownout: Brownout,
    pub(super) like: Likeness,
    /// Work done per time; 0 is a pause.
    pub(super) speed: f64,
    /// Mean time of the downstream, seconds, and whether it is always the same.
    pub(super) downstream_s: f64,
    pub(super) downstream_varies: bool,
    /// Answers are given together, once in this time, seconds; 0 gives each when it is ready.
    pub(super) batch_s: f64,
    /// Share of requests that fail once their work is done.
    pub(super) failing: f64,
    pub(super) ended: Vec<Ended>,
    rng: Rng,
    now_s: f64,
    next_arrival_s: f64,
    /// Work that each request in service was given so far, milliseconds.
    given_ms: f64,
    line: VecDeque<Ticket>,
    served: BinaryHeap<Reverse<(u64, usize)>>,
    downstream: BinaryHeap<Reverse<(u64, usize)>>,
    tickets: Vec<Option<Ticket>>,
}

impl World {
    /// Nobody told its cores.
    pub(super) fn new(like: Likeness, setpoint: Duration, seed: u64) -> Self {
        Self::told(like, setpoint, seed, None)
    }

    /// Its brownout was told these cores, if any.
    pub(super) fn told(like: Likeness, setpoint: Duration, seed: u64, cores: Option<f64>) -> Self {
        let period = setpoint.min(Duration::from_millis(250));
        let config = BrownoutConfig { setpoint, period, cores, ..BrownoutConfig::default() };
        Self {
            brownout: Brownout::new(config, Instant::ZERO, seed),
            like,
            speed: 1.0,
            downstream_s: 0.0,
            downstream_varies: false,
            batch_s: 0.0,
            failing: 0.0,
            ended: Vec::new(),
            rng: Rng::stream(seed, "world"),
            now_s: 0.0,
            next_arrival_s: 0.0,
            given_ms: 0.0,
            line: VecDeque::new(),
            served: BinaryHeap::new(),
            downstream: BinaryHeap::new(),
            tickets: Vec::new(),
        }
    }

    pub(super) fn now_s(&self) -> f64 {
        self.now_s
    }

    /// Requests come at this share of what it could serve in full at speed 1.
    pub(super) fn load(&mut self, load: f64, seconds: f64) {
        self.rate(load * self.like.capacity(), seconds);
    }

    /// Requests come at this rate.
    pub(super) fn rate(&mut self, per_s: f64, seconds: f64) {
        let end_s = self.now_s + seconds;
        self.next_arrival_s = self.now_s + self.rng.exponential() / per_s;
        while self.now_s < end_s {
            let pace = self.pace();
            let done_s = self.served.peek().filter(|_| pace > 0.0).map(|Reverse((at, _))| {
                self.now_s + (from_key(*at) - self.given_ms).max(0.0) / (pace * 1e3)
            });
            let back_s = self.downstream.peek().map(|Reverse((at, _))| from_key(*at));
            let (done_s, back_s) = (done_s.unwrap_or(f64::MAX), back_s.unwrap_or(f64::MAX));
            let next_s = self.next_arrival_s.min(done_s).min(back_s).min(end_s);
            self.given_ms += pace * 1e3 * (next_s - self.now_s);
            self.now_s = next_s;
            if next_s == self.next_arrival_s {
                self.next_arrival_s += self.rng.exponential() / per_s;
                self.arrive();
            } else if next_s == done_s {
                self.done();
            } else if next_s == back_s {
                let Some(Reverse((_, place))) = self.downstream.pop() else { return };
                self.end(place);
            }
        }
    }

    fn instant(&self) -> Instant {
        Instant::from_secs_f64(self.now_s)
    }

    fn pace(&self) -> f64 {
        match self.like.serving {
            Serving::Slots(_) => self.speed,
            Serving::Sharing(cores) => {
                self.speed * (cores / self.served.len().max(1) as f64).min(1.0)
            }
        }
    }

    fn arrive(&mut self) {
        let ticket = self.brownout.arrive(self.instant(), Choice::Coin);
        self.line.push_back(ticket);
        self.start();
    }

    fn start(&mut self) {
        let slots = match self.like.serving {
            Serving::Slots(slots) => slots,
            Serving::Sharing(_) => usize::MAX,
        };
        while self.served.len() < slots {
            let Some(mut ticket) = self.line.pop_front() else { return };
            self.brownout.begin(self.instant(), &mut ticket);
            let mean_ms = self.like.full_ms * if is_full(&ticket) { 1.0 } else { self.like.lean };
            // Lognormal of this mean.
            let variance = (self.like.cv * self.like.cv).ln_1p();
            let work_ms = mean_ms * (variance.sqrt() * self.rng.normal() - variance / 2.0).exp();
            self.tickets.push(Some(ticket));
            let place = self.tickets.len() - 1;
            self.served.push(Reverse((key(self.given_ms + work_ms), place)));
        }
    }

    fn done(&mut self) {
        let Some(Reverse((_, place))) = self.served.pop() else { return };
        if self.served.is_empty() && self.line.is_empty() {
            self.given_ms = 0.0; // keeps the digits
        }
        if self.batch_s > 0.0 {
            let given_s = (self.now_s / self.batch_s).ceil() * self.batch_s;
            self.downstream.push(Reverse((key(given_s), place)));
        } else if self.downstream_s > 0.0 {
            let by = if self.downstream_varies { self.rng.exponential() } else { 1.0 };
            self.downstream.push(Reverse((key(self.now_s + self.downstream_s * by), place)));
        } else {
            self.end(place);
        }
        self.start();
    }

    fn end(&mut self, place: usize) {
        let Some(ticket) = self.tickets[place].take() else { return };
        let time_s = self.instant().since(ticket.arrived_at).as_secs_f64();
        self.ended.push(Ended { at_s: self.now_s, time_s, is_full: is_full(&ticket) });
        let fails = self.failing > 0.0 && self.rng.unit() < self.failing;
        let end = if fails { End::Failed } else { End::Answered(None) };
        self.brownout.end(self.instant(), ticket, end);
    }

    /// Of those that ended from then on, the share that was served in full.
    pub(super) fn full_since(&self, from_s: f64) -> f64 {
        let (mut full, mut all) = (0_u32, 0_u32);
        for it in self.since(from_s) {
            (full, all) = (full + u32::from(it.is_full), all + 1);
        }
        assert!(all > 0, "nothing ended");
        f64::from(full) / f64::from(all)
    }

    /// The 95th percentile of their times, seconds.
    pub(super) fn p95_since(&self, from_s: f64) -> f64 {
        let mut times: Vec<f64> = self.since(from_s).map(|it| it.time_s).collect();
        assert!(!times.is_empty(), "nothing ended");
        percentile(&mut times, Probability::clamped(0.95))
    }

    fn since(&self, from_s: f64) -> impl Iterator<Item = &Ended> {
        self.ended.iter().rev().take_while(move |it| it.at_s > from_s)
    }
}

fn is_full(ticket: &Ticket) -> bool {
    ticket.content().is_full()
}

/// Positive numbers in an order that a heap knows.
fn key(value: f64) -> u64 {
    value.max(0.0).to_bits()
}

fn from_key(key: u64) -> f64 {
    f64::from_bits(key)
}
