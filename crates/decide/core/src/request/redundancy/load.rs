//! Whether there is room for copies.
//!
//! Where requests wait for each other, a copy helps one and delays all behind it: at 80 % load a
//! second copy for one request in twenty saves nothing any more, above it harms (the joint study
//! measured a break-even of 0.78).
//!
//! **Signal**, where replicas report their concurrency: the slots found busy on each answer, over
//! those there are. What a request leaves behind is what an arriving one finds, and what Poisson
//! arrivals find is the mean over time, so this is the utilisation. Copies are taken out by their
//! share of what was sent: counted in, they close the gate by their own load, open it by their
//! absence, and so on 12 to 23 times a minute (F6).
//! **Where they do not**: how latency grows with the requests in flight. With a free slot for
//! everyone it does not grow at all; where all wait for all it is proportional. The elasticity
//! between (slope of latency over first copies in flight, times mean over mean) is the share of
//! requests that have to wait: in a queue before c slots latency is constant below c and
//! proportional above, and for single slots chosen at random it is the utilisation itself.
//! Latencies count as the hedge's delay at most, because a stall of one replica makes both numbers
//! grow without any load.
//! **When it misleads**: first copies of *this* dispatcher only are counted, so one of very many
//! proxies sees little growth and leaves its gate open longer. Large pools wait only near
//! saturation; then the second signal closes later than the first, when waiting really begins.
//! A slow round of feedback (everything slow, so more in flight, latency growing) looks like load;
//! copies would not help there either.
//! **Hysteresis**: ± 0.02 around the limit (F6). **Cold start**: the gate is open; the token bucket
//! bounds what that can cost. **Source**: joint study, section 4 (F6, F7); departures see what
//! arrivals see: Burke, Operations Research 4 (1956); the mean over time: Wolff, "Poisson Arrivals
//! See Time Averages", Operations Research 30 (1982).

use crate::request::call::Kind;
use crate::request::redundancy::Lasted;
use crate::time::{Duration, millis};

/// Where copies begin to cost more than they save, by the joint study.
pub const UTILISATION_MAX: f64 = 0.78;
/// How often in a window of latencies the gate is moved.
pub const TICKS_PER_WINDOW: u32 = 16;
/// How far around its limit the gate changes its mind.
const HYSTERESIS: f64 = 0.02;
/// What must have been seen before anything is said.
const SEEN_MIN: f64 = 100.0;
/// What stays of everything after a sixteenth of the window.
const FADE: f64 = 15.0 / 16.0;

/// Sums for the slope of latency over what is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Growth {
    weight: f64,
    flying: f64,
    flying_squared: f64,
    latency: f64,
    product: f64,
}

impl Growth {
    fn add(&mut self, flying: f64, latency: f64) {
        self.weight += 1.0;
        self.flying += flying;
        self.flying_squared += flying * flying;
        self.latency += latency;
        self.product += flying * latency;
    }

    fn fade(&mut self) {
        for sum in [
            &mut self.weight,
            &mut self.flying,
            &mut self.flying_squared,
            &mut self.latency,
            &mut self.product,
        ] {
            *sum *= FADE;
        }
    }

    /// Slope times mean over mean: 0 to 1.
    fn elasticity(&self) -> Option<f64> {
        if self.weight < SEEN_MIN || self.latency <= 0.0 {
            return None;
        }
        let (flying, latency) = (self.flying / self.weight, self.latency / self.weight);
        let variance = self.flying_squared / self.weight - flying * flying;
        let covariance = self.product / self.weight - flying * latency;
        if variance <= 1e-9 * flying * flying {
            return None; // always as many in flight: nothing can be seen to grow
        }
        Some((covariance / variance * flying / latency).clamp(0.0, 1.0))
    }
}

/// What is known of the load, and the gate before copies.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    utilisation_max: f64,
    busy: f64,
    slots: f64,
    reports: f64,
    firsts: f64,
    copies: f64,
    growth: Growth,
    utilisation: Option<f64>,
    is_closed: bool,
}

impl Load {
    /// Nothing is known, the gate is open. Around `utilisation_max` (0 to 1) it closes.
    pub fn new(utilisation_max: f64) -> Self {
        Self {
            utilisation_max,
            busy: 0.0,
            slots: 0.0,
            reports: 0.0,
            firsts: 0.0,
            copies: 0.0,
            growth: Growth::default(),
            utilisation: None,
            is_closed: false,
        }
    }

    /// A copy ended; its latency counts as `latency_max` at most.
    #[inline]
    pub fn note(&mut self, copy: &Lasted<'_>, latency_max: Duration) {
        if let Some(report) = copy.report
            && let Some(slots) = report.concurrency
        {
            self.busy += f64::from(report.in_service.min(slots));
            self.slots += f64::from(slots);
            self.reports += 1.0;
        }
        if copy.kind == Kind::First {
            self.firsts += 1.0;
            let latency = millis(copy.latency.min(latency_max));
            self.growth.add(f64::from(copy.in_flight), latency);
        } else {
            self.copies += 1.0;
        }
    }

    /// Says how it stands, moves the gate and lets what is old fade. Sixteen times in a window.
    pub fn tick(&mut self) {
        let firsts = self.firsts / (self.firsts + self.copies).max(1.0);
        self.utilisation = if self.reports >= SEEN_MIN && self.slots > 0.0 {
            Some(self.busy / self.slots * firsts)
        } else {
            self.growth.elasticity()
        };
        let limit = match self.is_closed {
            true => self.utilisation_max - HYSTERESIS,
            false => self.utilisation_max + HYSTERESIS,
        };
        self.is_closed = self.utilisation.is_some_and(|utilisation| utilisation > limit);
        for sum in
            [&mut self.busy, &mut self.slots, &mut self.reports, &mut self.firsts, &mut self.copies]
        {
            *sum *= FADE;
        }
        self.growth.fade();
    }

    /// Utilisation by first copies, or the share of them that have to wait for others.
    pub const fn utilisation(&self) -> Option<f64> {
        self.utilisation
    }

    /// Whether copies would hurt more than help.
    pub const fn is_closed(&self) -> bool {
        self.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Feedback;
    use crate::rng::Rng;

    const AT_MOST: Duration = Duration::from_secs(10);

    fn lasted(kind: Kind, latency_ms: f64, in_flight: usize) -> Lasted<'static> {
        Lasted {
            kind,
            latency: Duration::from_secs_f64(latency_ms / 1e3),
            is_answered: true,
            behind: Duration::ZERO,
            in_flight: in_flight as u32,
            report: None,
        }
    }

    /// Requests through `queues` queues (one at random), each before `slots` slots, all with
    /// exponential service of mean 1 ms; what each found in flight, and how long it took.
    fn queue(queues: usize, slots: usize, load: f64, seed: u64) -> Vec<(usize, f64)> {
        let mut rng = Rng::seeded(seed);
        let mut free = vec![vec![0.0_f64; slots]; queues];
        let mut ends: Vec<f64> = Vec::new();
        let mut now = 0.0;
        let gap = 1.0 / (load * (queues * slots) as f64);
        let request = |_| {
            now += rng.exponential() * gap;
            ends.retain(|&end| end > now);
            let slots = &mut free[rng.below(queues)];
            let first = slots.iter_mut().min_by(|a, b| a.total_cmp(b)).expect("there are slots");
            *first = first.max(now) + rng.exponential();
            ends.push(*first);
            (ends.len(), *first - now)
        };
        (0..60_000).map(request).collect()
    }

    fn measured(queues: usize, slots: usize, load: f64) -> f64 {
        let mut known = Load::new(0.78);
        for (in_flight, latency_ms) in queue(queues, slots, load, 7) {
            known.note(&lasted(Kind::First, latency_ms, in_flight), AT_MOST);
        }
        known.tick();
        known.utilisation().unwrap()
    }

    /// Erlang's formula C.
    fn waiting(slots: u32, load: f64) -> f64 {
        let offered = load * f64::from(slots);
        let term = |n: u32| (1..=n).fold(1.0, |product, k| product * offered / f64::from(k));
        let all_busy = term(slots) / (1.0 - load);
        all_busy / ((0..slots).map(term).sum::<f64>() + all_busy)
    }

    #[test]
    fn growth_is_utilisation_for_single_slots_at_random() {
        for load in [0.2, 0.5, 0.8] {
            let found = measured(8, 1, load);
            assert!((found - load).abs() < 0.1, "{found} at {load}");
        }
    }

    #[test]
    fn growth_in_one_pool_is_low_while_few_wait_and_high_when_most_do() {
        for (load, at_most) in [(0.2, 0.05_f64), (0.5, 0.25)] {
            let (found, wait) = (measured(1, 8, load), waiting(8, load));
            assert!(found <= at_most.max(1.5 * wait), "{found} at {load}, {wait} wait");
        }
        let (found, wait) = (measured(1, 8, 0.95), waiting(8, 0.95));
        assert!(found > 0.78 && wait > 0.78, "{found} at 0.95, {wait} wait");
    }

    #[test]
    fn reports_say_it_directly_and_copies_are_taken_out() {
        let mut known = Load::new(0.78);
        for n in 0..1_000_u32 {
            // Three of four slots are busy; every fourth of what was sent is a copy.
            let kind = if n % 4 == 3 { Kind::Hedge } else { Kind::First };
            let report = Feedback {
                concurrency: Some(4),
                ..Feedback::measured(0, 2 + n % 3, Duration::from_millis(1))
            };
            let copy = Lasted { report: Some(&report), ..lasted(kind, 1.0, 1) };
            known.note(&copy, AT_MOST);
        }
        known.tick();
        let found = known.utilisation().unwrap();
        assert!((found - 0.75 * 0.75).abs() < 0.01, "{found}");
    }

    #[test]
    fn the_gate_has_two_limits_and_is_open_at_first() {
        let mut known = Load::new(0.78);
        known.tick();
        assert!(!known.is_closed() && known.utilisation().is_none());
        let mut at = |busy: u32| {
            for _ in 0..200 {
                let report = Feedback {
                    concurrency: Some(100),
                    ..Feedback::measured(0, busy, Duration::from_millis(1))
                };
                let copy = Lasted { report: Some(&report), ..lasted(Kind::First, 1.0, 1) };
                known.note(&copy, AT_MOST);
            }
            (0..200).for_each(|_| known.growth.fade());
            (known.busy, known.slots) = (f64::from(busy) * 200.0, 20_000.0);
            known.tick();
            known.is_closed()
        };
        let gate = [79, 81, 79, 77, 75, 79].map(&mut at);
        assert_eq!(gate, [false, true, true, true, false, false]);
    }

    /// A gate at 0.4 before a copy of every request, with first copies at 0.3: how often it changes
    /// its mind. Without the rule a copy counts as a request.
    fn changes_of_mind(copies_count: bool) -> usize {
        let mut known = Load::new(0.4);
        let (mut was_closed, mut changes) = (false, 0);
        for _ in 0..400 {
            let is_open = !known.is_closed();
            let report = Feedback {
                concurrency: Some(10),
                ..Feedback::measured(0, if is_open { 6 } else { 3 }, Duration::from_millis(1))
            };
            for _ in 0..200 {
                let first = Lasted { report: Some(&report), ..lasted(Kind::First, 1.0, 1) };
                known.note(&first, AT_MOST);
                if is_open {
                    let kind = if copies_count { Kind::First } else { Kind::Hedge };
                    known.note(&Lasted { kind, ..first }, AT_MOST);
                }
            }
            known.tick();
            changes += usize::from(known.is_closed() != was_closed);
            was_closed = known.is_closed();
        }
        changes
    }

    /// The joint study's F6: a gate that counts copies is closed by them and opened by their
    /// absence.
    #[test]
    fn the_gate_stands_still_where_copies_do_not_count_and_flaps_where_they_do() {
        assert_eq!(changes_of_mind(false), 0);
        assert!(changes_of_mind(true) > 20, "{}", changes_of_mind(true));
    }

    /// F6 again: near the limit a gate without a band goes with every breath of the load.
    #[test]
    fn near_its_limit_the_gate_changes_its_mind_less_than_the_load_passes_it() {
        let (mut rng, mut known) = (Rng::seeded(3), Load::new(0.75));
        let (mut gate, mut bare) = ((false, 0), (false, 0));
        for _ in 0..2_000 {
            let busy = 65.0 + 20.0 * rng.unit();
            for _ in 0..100 {
                let report = Feedback {
                    concurrency: Some(100),
                    ..Feedback::measured(0, busy as u32, Duration::from_millis(1))
                };
                let copy = Lasted { report: Some(&report), ..lasted(Kind::First, 1.0, 1) };
                known.note(&copy, AT_MOST);
            }
            known.tick();
            let is_above = known.utilisation().is_some_and(|utilisation| utilisation > 0.75);
            for (of, now) in [(&mut gate, known.is_closed()), (&mut bare, is_above)] {
                of.1 += usize::from(of.0 != now);
                of.0 = now;
            }
        }
        assert!(bare.1 > 50 && 10 * gate.1 < bare.1, "{gate:?} {bare:?}");
    }

    #[test]
    fn always_as_many_in_flight_tells_nothing() {
        let mut known = Load::new(0.78);
        (0..500).for_each(|_| known.note(&lasted(Kind::First, 1.0, 4), AT_MOST));
        known.tick();
        assert_eq!(known.utilisation(), None);
    }
}
