//! The law of works: what requests cost, as multiples of their replica's speed of the moment, and
//! where the work of each stands among all.
//!
//! The product-limit estimate (Kaplan and Meier, 1958): copies that were given up say only that
//! they would have taken longer.

use evenkeel_core::Rng;
use evenkeel_core::distribution::normal;

/// Fewer events say nothing of the tail beyond them.
const TAIL_EVENTS: f64 = 30.0;
/// Nor does what takes longest, as a share of all: that is those whom pauses held, as long as these
/// are not known. In a replica of one slot a pause is nothing but one service that takes long, and
/// a law with all of them would find none. So where one request in so many takes many times longer
/// by itself, and nobody else is in service, it is taken for a pause.
const TAIL_SHARE: f64 = 0.005;
/// Works that stand for those of all parts of a long day.
const JOINED: usize = 1_000_000;
/// Normal scores beyond this one are those of one work in fifty million.
pub const SCORE_MAX: f64 = 5.5;
/// Works that get their scores at a time: 8 MB.
const CHUNK: usize = 1 << 20;
/// Points of the curve of cumulative hazards.
const POINTS: usize = 400;

/// The logarithm of a work, or what it exceeds where the copy was given up.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Seen {
    /// Natural logarithm of the multiple.
    pub log: f64,
    /// Whether it would have been more.
    pub is_cut: bool,
}

/// The law.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Works {
    /// Logarithms of works in ascending order, with the share of all works that they end.
    steps: Vec<(f64, f64)>,
    /// Logarithms of works and the cumulative hazard there.
    hazards: Vec<(f64, f64)>,
    /// The mean logarithm of all works from each step on.
    means: Vec<f64>,
}

impl Works {
    /// The law of what was seen.
    pub fn new(seen: impl IntoIterator<Item = Seen>) -> Self {
        // As plain integers, which are sorted in a fifth of the time.
        let seen = seen.into_iter();
        let (mut ended, mut cut) = (Vec::with_capacity(seen.size_hint().0), Vec::new());
        for one in seen {
            if one.is_cut { &mut cut } else { &mut ended }.push(ordered(one.log));
        }
        ended.sort_unstable();
        cut.sort_unstable();
        let all = ended.len() + cut.len();
        let (mut left, mut alive, mut number) = (all as f64, 1.0, 0);
        let mut steps = Vec::with_capacity(ended.len());
        let (mut hazards, mut hazard) = (Vec::new(), 0.0);
        let every = all / POINTS + 1;
        let tail = TAIL_EVENTS.max(TAIL_SHARE * left);
        let mut cut = cut.into_iter().peekable();
        for log in ended {
            while cut.next_if(|beyond| *beyond < log).is_some() {
                (left, number) = (left - 1.0, number + 1);
            }
            let log = logarithm(log);
            let ended = alive / left;
            alive -= ended;
            steps.push((log, 1.0 - alive - ended / 2.0));
            hazard += 1.0 / left;
            if left > tail && (number % every == 0 || left < 10.0 * TAIL_EVENTS) {
                hazards.push((log, hazard));
            }
            (left, number) = (left - 1.0, number + 1);
        }
        let means = means(&steps);
        Self { steps, hazards, means }
    }

    /// Leaves off what only [`mean_beyond`](Self::mean_beyond) needs.
    pub(crate) fn forget_means(&mut self) {
        self.means = Vec::new();
    }

    /// Whether nothing was seen.
    pub const fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The share of works below this one: 0 to 1, neither of them.
    pub fn share(&self, log: f64) -> f64 {
        self.share_at(self.steps.partition_point(|(known, _)| *known < log))
    }

    fn share_at(&self, place: usize) -> f64 {
        let least = 0.5 / (self.steps.len() as f64 + 1.0);
        let near = self.steps.get(place).or(self.steps.last());
        near.map_or(0.5, |(_, share)| *share).clamp(least, 1.0 - least)
    }

    /// The same as a normal score.
    pub fn score(&self, log: f64) -> f64 {
        normal::quantile(self.share(log))
    }

    /// Replaces logarithms of works by their scores. In the order of works and not of their times,
    /// as a search for each through a table of millions would wait for memory every time.
    pub fn score_all<T>(&self, all: &mut [T], of: impl Fn(&mut T) -> &mut f32) {
        let scores = (0..=self.steps.len()).map(|place| normal::quantile(self.share_at(place)));
        let scores: Vec<f32> = scores.map(|score| score as f32).collect();
        for chunk in all.chunks_mut(CHUNK) {
            // A logarithm and a number in one integer, which is in the same order.
            let packed = |(one, number): (&mut T, u64)| {
                let bits = of(one).to_bits();
                let flip = if bits >> 31 == 1 { u32::MAX } else { 1 << 31 };
                u64::from(bits ^ flip) << 32 | number
            };
            let mut order: Vec<u64> = chunk.iter_mut().zip(0..).map(packed).collect();
            order.sort_unstable();
            let mut place = 0;
            for packed in order {
                let one = of(&mut chunk[packed as u32 as usize]);
                let log = f64::from(*one);
                while self.steps.get(place).is_some_and(|(known, _)| *known < log) {
                    place += 1;
                }
                *one = scores[place];
            }
        }
    }

    /// The logarithm of the work that has this normal score.
    pub fn log(&self, score: f64) -> f64 {
        let share = normal::cdf(score);
        let place = self.steps.partition_point(|(_, known)| *known < share);
        self.steps.get(place).or(self.steps.last()).map_or(0.0, |(log, _)| *log)
    }

    /// The law of several parts together, each with so many works.
    pub fn joined(parts: &[(&Self, usize)]) -> Self {
        let all = parts.iter().map(|(_, count)| count).sum::<usize>().max(1);
        let mut seen = Vec::new();
        for (works, count) in parts {
            let points = (JOINED as u128 * *count as u128 / all as u128) as usize;
            seen.extend(works.logs(points).map(|log| Seen { log, is_cut: false }));
        }
        Self::new(seen)
    }

    /// The score of a copy that was given up at this work, given what its request's other copy had
    /// and how much two copies have in common.
    pub fn score_beyond(&self, log: f64, other: Option<(f64, f64)>, rng: &mut Rng) -> f64 {
        let (mean, deviation) = match other {
            Some((score, common)) => (common * score, (1.0 - common * common).max(1e-6).sqrt()),
            None => (0.0, 1.0),
        };
        let below = normal::cdf((self.score(log) - mean) / deviation);
        let share = below + (1.0 - below) * rng.unit();
        mean + deviation * normal::quantile(share.clamp(1e-9, 1.0 - 1e-9))
    }

    /// The mean logarithm of all works above this one.
    pub fn mean_beyond(&self, log: f64) -> f64 {
        let place = self.steps.partition_point(|(known, _)| *known < log);
        self.means.get(place).copied().unwrap_or(log).max(log)
    }

    /// The cumulative hazard at a work: `-ln P(W > w)`. Beyond what is known it goes on as a power
    /// law of the tail would, so that a long service is not taken for a pause.
    pub fn hazard(&self, log: f64) -> f64 {
        let place = self.hazards.partition_point(|(known, _)| *known < log);
        let Some((above, at_above)) = self.hazards.get(place) else {
            let Some((last, at_last)) = self.hazards.last() else { return 0.0 };
            let before = self.hazards.partition_point(|(_, hazard)| *hazard < at_last - 2.0);
            let (from, at_from) = self.hazards[before.min(self.hazards.len() - 1)];
            let slope = if *last > from { (at_last - at_from) / (last - from) } else { 0.0 };
            return at_last + slope * (log - last);
        };
        let Some((below, at_below)) = place.checked_sub(1).map(|below| self.hazards[below]) else {
            return 0.0;
        };
        at_below + (at_above - at_below) * (log - below) / (above - below).max(1e-12)
    }

    /// The logarithm of the least known work with this cumulative hazard; infinite beyond them.
    pub fn at_hazard(&self, hazard: f64) -> f64 {
        let place = self.hazards.partition_point(|(_, known)| *known < hazard);
        match place.checked_sub(1).and_then(|before| self.hazards.get(before)) {
            Some((log, _)) if place < self.hazards.len() => *log,
            Some((last, _)) => *last,
            None => f64::NEG_INFINITY,
        }
    }

    /// Works of normal scores in so many equal steps from `-SCORE_MAX` to [`SCORE_MAX`], as
    /// multiples.
    pub fn table(&self, count: usize) -> Vec<f32> {
        let width = 2.0 * SCORE_MAX / count as f64;
        let score = |number: usize| (number as f64 + 0.5) * width - SCORE_MAX;
        (0..count).map(|number| self.log(score(number)).exp() as f32).collect()
    }

    /// Logarithms of works in ascending order, so many; none where nothing was seen.
    fn logs(&self, count: usize) -> impl Iterator<Item = f64> + '_ {
        let mut place = 0;
        (0..count).filter_map(move |number| {
            let share = (number as f64 + 0.5) / count as f64;
            while place + 1 < self.steps.len() && self.steps[place].1 < share - 1e-12 {
                place += 1;
            }
            self.steps.get(place).map(|(log, _)| *log)
        })
    }

    /// The mean work, as a multiple.
    pub fn mean(&self) -> f64 {
        let mut before = 0.0;
        let part = |(log, share): &(f64, f64)| {
            let weight = share - core::mem::replace(&mut before, *share);
            weight * log.exp()
        };
        self.steps.iter().map(part).sum()
    }

    /// The variance of the logarithms.
    pub fn variance(&self) -> f64 {
        let all = self.steps.len().max(1) as f64;
        let mean = self.steps.iter().map(|(log, _)| log).sum::<f64>() / all;
        self.steps.iter().map(|(log, _)| (log - mean) * (log - mean)).sum::<f64>() / all
    }
}

/// An integer that is in the same order (`f64::total_cmp`).
const fn ordered(log: f64) -> i64 {
    let bits = log.to_bits().cast_signed();
    bits ^ (((bits >> 63).cast_unsigned() >> 1).cast_signed())
}

/// Its inverse.
const fn logarithm(ordered: i64) -> f64 {
    f64::from_bits(
        (ordered ^ (((ordered >> 63).cast_unsigned() >> 1).cast_signed())).cast_unsigned(),
    )
}

fn means(steps: &[(f64, f64)]) -> Vec<f64> {
    let mut means = vec![0.0; steps.len()];
    let (mut sum, mut weight) = (0.0, 0.0);
    for place in (0..steps.len()).rev() {
        let before = if place == 0 { 0.0 } else { steps[place - 1].1 };
        let share = (steps[place].1 - before).max(1e-12);
        sum += share * steps[place].0;
        weight += share;
        means[place] = sum / weight;
    }
    means
}
