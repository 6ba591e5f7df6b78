//! What is kept of the recorded day beside its rebuilt world: rows are many.

use evenkeel_twin::Twin;
use evenkeel_twin::rows::percentile;
use evenkeel_twin::twin::Request;

use crate::causes::Causes;

/// Parts of a day whose percentiles are told apart.
pub(crate) const PARTS: usize = 48;
/// Fewer answers of a part have no 99th percentile.
pub(crate) const PART_MIN: usize = 100;
/// The percentile by which worlds are tested.
pub(crate) const TESTED: f64 = 0.99;
/// Blocks of a policy's answers: pauses and slow times last for many requests, so neighbours are
/// no independent evidence, and blocks nearly are.
const BLOCKS: usize = 20;

/// The recorded day, as its users saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Latencies in ascending order, of the day's policy and of the explored one, ns.
    pub latencies: [Vec<u64>; 2],
    /// The 99th percentile of each part of the day, ns; none where it has too few answers.
    pub parts: Vec<Option<u64>>,
    /// What the slowest requests waited for; `None` without agents.
    pub causes: Option<Causes>,
    /// By policy.
    pub(crate) blocks: [Blocks; 2],
}

/// How many answers of each block were above the policy's tested percentile.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Blocks {
    /// When blocks begin, ns.
    from_ns: Vec<u64>,
    above_ns: u64,
    above: Vec<f64>,
}

impl Observed {
    /// The day that a world was rebuilt from. `causes` need its rows.
    pub fn new(twin: &Twin, causes: Option<Causes>) -> Self {
        let latencies = [0, 1].map(|policy| {
            let mut all: Vec<u64> =
                answers(&twin.requests, policy).map(|one| one.latency_ns).collect();
            all.sort_unstable();
            all
        });
        let blocks = [0, 1].map(|policy| {
            let ascending = &latencies[usize::from(policy)];
            Blocks::new(&twin.requests, policy, ascending)
        });
        let answered = twin.requests.iter().filter(|one| one.latency_ns > 0);
        let mut parts = Parts::new(twin.length_ns());
        answered.for_each(|one| parts.add(one.at_ns, one.latency_ns));
        Self { latencies, parts: parts.finish(), causes, blocks }
    }
}

fn answers(requests: &[Request], policy: u8) -> impl Iterator<Item = &Request> {
    requests.iter().filter(move |one| one.policy == policy && one.latency_ns > 0)
}

impl Blocks {
    fn new(requests: &[Request], policy: u8, ascending: &[u64]) -> Self {
        let Some(above_ns) = percentile(ascending, TESTED) else { return Self::default() };
        let length = ascending.len().div_ceil(BLOCKS);
        let from_ns = answers(requests, policy).step_by(length).map(|one| one.at_ns).collect();
        let blocks = Self { from_ns, above_ns, above: Vec::new() };
        let mut above = blocks.none();
        let seen = answers(requests, policy).map(|one| (one.at_ns, one.latency_ns));
        seen.for_each(|seen| blocks.count(seen, &mut above));
        Self { above, ..blocks }
    }

    /// No answers above, by block.
    pub(crate) fn none(&self) -> Vec<f64> {
        vec![0.0; self.from_ns.len()]
    }

    /// Counts an answer, when it arrived and how long it took, in its block if it is above.
    pub(crate) fn count(&self, (at_ns, latency_ns): (u64, u64), above: &mut [f64]) {
        if latency_ns > self.above_ns {
            let place = self.from_ns.partition_point(|from_ns| *from_ns <= at_ns);
            if let Some(block) = above.get_mut(place.saturating_sub(1)) {
                *block += 1.0;
            }
        }
    }

    /// Standard deviation of how far off a world's tested percentile is by luck, as a logarithm.
    ///
    /// The world has the day's own arrivals, pauses and speeds, so what differs by luck is what
    /// blocks of the two have more or less than each other. Were they not alike at all it would be
    /// the scatter of the recorded blocks and of the worlds', which are the mean of so many days:
    /// a wrong world cannot have more luck than that. What it is as a share of answers is turned
    /// into a latency by the recorded distribution (Woodruff, 1952).
    pub(crate) fn noise(&self, world: &[f64], days: f64, ascending: &[u64]) -> f64 {
        let differences: Vec<f64> =
            self.above.iter().zip(world).map(|(own, other)| own - other).collect();
        let scatter =
            variance(&differences).min(variance(&self.above) * (1.0 + 1.0 / days.max(1.0)));
        let error = (self.above.len() as f64 * scatter).sqrt() / ascending.len().max(1) as f64;
        let log = |share: f64| {
            let value_ns = percentile(ascending, share.clamp(0.0, 1.0)).unwrap_or(1);
            (value_ns.max(1) as f64).ln()
        };
        (log(TESTED + error) - log(TESTED - error)) / 2.0
    }
}

/// The variance of values that are some of many.
pub(crate) fn variance(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>();
    squares / (count - 1.0).max(1.0)
}

/// Answers by the part of the day in which they arrived.
#[derive(Debug)]
pub(crate) struct Parts {
    length_ns: u64,
    latencies: Vec<Vec<u64>>,
}

impl Parts {
    /// None yet, of a day of this length.
    pub(crate) fn new(length_ns: u64) -> Self {
        Self { length_ns: length_ns.max(1), latencies: vec![Vec::new(); PARTS] }
    }

    /// Another answer: when it arrived and how long it took, ns.
    pub(crate) fn add(&mut self, at_ns: u64, latency_ns: u64) {
        let part = u128::from(at_ns) * PARTS as u128 / u128::from(self.length_ns);
        self.latencies[(part as usize).min(PARTS - 1)].push(latency_ns);
    }

    /// The 99th percentile of each part, ns; none where it has too few answers.
    pub(crate) fn finish(self) -> Vec<Option<u64>> {
        let p99 = |mut all: Vec<u64>| {
            let rank = (all.len() as f64 * 0.99).ceil() as usize;
            (all.len() >= PART_MIN).then(|| *all.select_nth_unstable(rank - 1).1)
        };
        self.latencies.into_iter().map(p99).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    /// A policy's answers: bursts in which all take three times as long, and luck of their own.
    fn answers(bursts: &mut Rng, luck: &mut Rng, count: usize) -> Vec<Request> {
        let mut factor = 1.0;
        let request = |number: usize| {
            if number.is_multiple_of(25) {
                factor = if bursts.unit() < 0.1 { 3.0 } else { 1.0 };
            }
            Request {
                at_ns: number as u64 * 1_000,
                client: 0,
                group: 0,
                policy: 1,
                score: 0.0,
                latency_ns: (1e6 * factor * (0.5 * luck.normal()).exp()) as u64,
            }
        };
        (0..count).map(request).collect()
    }

    fn ascending(requests: &[Request]) -> Vec<u64> {
        let mut all: Vec<u64> = requests.iter().map(|one| one.latency_ns).collect();
        all.sort_unstable();
        all
    }

    /// Over many slices the told error is that by which worlds are off, with the same bursts as in
    /// the record and with others.
    #[test]
    fn the_luck_of_a_slice_is_told_whether_its_world_shares_its_bursts_or_not() {
        for shares_bursts in [true, false] {
            let (mut squares, mut told) = (0.0, 0.0);
            for seed in 0..150 {
                let own = answers(&mut Rng::seeded(seed), &mut Rng::stream(seed, "a"), 3_000);
                let bursts = if shares_bursts { seed } else { seed + 1_000 };
                let other = answers(&mut Rng::seeded(bursts), &mut Rng::stream(seed, "b"), 3_000);
                let latencies = ascending(&own);
                let blocks = Blocks::new(&own, 1, &latencies);
                let mut world = blocks.none();
                other.iter().for_each(|one| blocks.count((one.at_ns, one.latency_ns), &mut world));
                let log = |all: &[u64]| (percentile(all, TESTED).unwrap() as f64).ln();
                let off = log(&ascending(&other)) - log(&latencies);
                squares += off * off;
                told += blocks.noise(&world, 1.0, &latencies).powi(2);
            }
            let ratio = f64::sqrt(told / squares);
            assert!((0.75..1.35).contains(&ratio), "{ratio}, shared {shares_bursts}");
        }
    }

    #[test]
    fn a_world_that_is_wrong_has_no_more_luck_than_the_record() {
        let own = answers(&mut Rng::seeded(1), &mut Rng::seeded(2), 3_000);
        let latencies = ascending(&own);
        let blocks = Blocks::new(&own, 1, &latencies);
        let mut wild = vec![0.0; blocks.above.len()];
        wild[3] = 150.0;
        let bound = blocks.noise(&vec![0.0; wild.len()], 8.0, &latencies);
        assert!(blocks.noise(&wild, 8.0, &latencies) < 1.2 * bound, "{bound}");
        assert_eq!(Blocks::default().noise(&[], 8.0, &[]), 0.0);
    }
}
