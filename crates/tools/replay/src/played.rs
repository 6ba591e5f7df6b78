//! Days of rebuilt worlds, and what is kept of each: rows are many, and worlds are several.

use std::thread;

use evenkeel_sim::world::{RecordConfig, record_parts};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::{Day, percentile};

use crate::causes::{Causes, Slowest};
use crate::observed::{Observed, Parts, variance};
use crate::share::Share;
use crate::world::{Change, Setup, TWINS, scenario_of};

const MINUTE_NS: u64 = 60_000_000_000;
/// Rows that are there before they are looked at: 4 MB.
const PART_ROWS: usize = 1 << 16;

/// What is kept of what one world played.
#[derive(Clone, Debug)]
struct Played {
    /// Latencies in ascending order, of the day's policy and of the explored one, ns.
    latencies: [Vec<u64>; 2],
    /// For how long slots served, by minute, ns.
    worked_ns: Vec<f64>,
    parts: Vec<Option<u64>>,
    causes: Causes,
    /// Answers with all content, and all.
    full: (u64, u64),
    /// Answers above what was observed, by block, of each policy.
    above: [Vec<f64>; 2],
}

/// All worlds.
#[derive(Clone, Debug)]
pub(crate) struct Worlds {
    each: Vec<Played>,
    /// Whether each played a share of the day, and all together the day once.
    is_shared: bool,
    /// The share of slots that served in the busiest minute.
    pub(crate) busy: f64,
}

/// A percentile as worlds have it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Law {
    /// The logarithm of its best estimate, ns.
    pub(crate) log: f64,
    /// By how much the logarithms of days differ by luck: a standard deviation.
    pub(crate) deviation: f64,
    /// How many days were played.
    pub(crate) days: f64,
}

/// All worlds' days under a change, on all cores. With `explores`, what was explored is explored
/// again, and pairs are sent as on the day.
pub(crate) fn play(
    twin: &Twin,
    setup: &Setup<'_>,
    change: &Change,
    observed: &Observed,
    explores: bool,
) -> Worlds {
    let explores = explores && setup.explored.is_some();
    let is_shared = twin.requests.len() > setup.whole_max;
    let one = |number: u64| {
        let share = match is_shared {
            true => Share::of(&twin.requests, number, TWINS),
            false => Share::whole(),
        };
        let world = scenario_of(twin, setup.like, change, &share, number, explores);
        let explore = setup.explored.filter(|_| explores);
        let config = RecordConfig {
            explore: explore.map(|policy| (policy.to_owned(), Vec::new())),
            pairs: if explores { setup.pairs } else { 0.0 },
            ..RecordConfig::default()
        };
        let mut playing = Playing::new(twin.length_ns(), observed);
        record_parts(&world, &change.policy, number, config, PART_ROWS, |part| {
            part.keep(|at_ns| share.counts(at_ns));
            playing.add(part, observed);
        });
        playing.finish(twin)
    };
    let threads = thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let threads = threads.clamp(1, TWINS);
    let of_thread = |thread: u64| (thread..TWINS).step_by(threads as usize);
    let mut played: Vec<(u64, Played)> = thread::scope(|scope| {
        let one = &one;
        let spawn = |thread| scope.spawn(move || of_thread(thread).map(|n| (n, one(n))).collect());
        let threads: Vec<thread::ScopedJoinHandle<'_, Vec<_>>> = (0..threads).map(spawn).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("twins do not panic")).collect()
    });
    played.sort_by_key(|(number, _)| *number);
    let each: Vec<Played> = played.into_iter().map(|(_, played)| played).collect();
    let replicas = twin.pauses.len().saturating_sub(change.fewer).max(1);
    let slots = replicas as f64 * f64::from(twin.slots);
    let busy = busy(if is_shared { &each } else { &each[..1] }, slots, twin.length_ns());
    Worlds { each, is_shared, busy }
}

/// A day that is played, and looked at part by part.
#[derive(Debug)]
struct Playing {
    latencies: [Vec<u64>; 2],
    worked_ns: Vec<f64>,
    parts: Parts,
    slowest: Slowest,
    full: (u64, u64),
    above: [Vec<f64>; 2],
}

impl Playing {
    fn new(length_ns: u64, observed: &Observed) -> Self {
        Self {
            latencies: [Vec::new(), Vec::new()],
            worked_ns: Vec::new(),
            parts: Parts::new(length_ns),
            slowest: Slowest::default(),
            full: (0, 0),
            above: [0, 1].map(|policy| observed.blocks[policy].none()),
        }
    }

    fn add(&mut self, part: &Day, observed: &Observed) {
        for one in part.requests() {
            let Some(latency_ns) = one.latency_ns else { continue };
            self.parts.add(one.at_ns, latency_ns);
            let policy = usize::from(one.policy);
            if let Some(latencies) = self.latencies.get_mut(policy) {
                latencies.push(latency_ns);
                observed.blocks[policy].count((one.at_ns, latency_ns), &mut self.above[policy]);
            }
        }
        add_worked(&mut self.worked_ns, part);
        self.slowest.add(part);
        let (full, known) = part.full();
        self.full = (self.full.0 + full, self.full.1 + known);
    }

    fn finish(mut self, twin: &Twin) -> Played {
        self.latencies.iter_mut().for_each(|all| all.sort_unstable());
        Played {
            latencies: self.latencies,
            worked_ns: self.worked_ns,
            parts: self.parts.finish(),
            causes: Causes::of_slowest(self.slowest, twin),
            full: self.full,
            above: self.above,
        }
    }
}

impl Worlds {
    /// Answers of a whole day that a policy decided.
    pub(crate) fn answers(&self, policy: usize) -> usize {
        let worlds = if self.is_shared { self.each.len() } else { 1 };
        self.each.iter().take(worlds).map(|one| one.latencies[policy].len()).sum()
    }

    /// Answers of a whole day above what was observed, by block.
    pub(crate) fn above(&self, policy: usize) -> Vec<f64> {
        let days = if self.is_shared { 1.0 } else { self.each.len() as f64 };
        let mut sums = vec![0.0; self.each.first().map_or(0, |one| one.above[policy].len())];
        for one in &self.each {
            sums.iter_mut().zip(&one.above[policy]).for_each(|(sum, above)| *sum += above / days);
        }
        sums
    }

    /// What the slowest requests waited for.
    pub(crate) fn causes(&self) -> Causes {
        let worlds = if self.is_shared { self.each.len() } else { 1 };
        Causes::mean(self.each.iter().take(worlds).map(|one| one.causes))
    }

    /// Share of answers with all content.
    pub(crate) fn full(&self) -> f64 {
        let add = |sum: (u64, u64), one: &Played| (sum.0 + one.full.0, sum.1 + one.full.1);
        let (full, all) = self.each.iter().fold((0, 0), add);
        full as f64 / all.max(1) as f64
    }

    /// The 99th percentile of each part of the day, ns: of shares the one in the middle.
    pub(crate) fn parts(&self) -> Vec<Option<u64>> {
        let worlds = if self.is_shared { self.each.len() } else { 1 };
        let count = self.each.first().map_or(0, |one| one.parts.len());
        let middle = |part: usize| {
            let mut all: Vec<u64> =
                self.each.iter().take(worlds).filter_map(|one| one.parts[part]).collect();
            all.sort_unstable();
            percentile(&all, 0.5)
        };
        (0..count).map(middle).collect()
    }

    /// A percentile of the answers that a policy decided; `None` of none.
    pub(crate) fn law(&self, policy: usize, share: f64) -> Option<Law> {
        let each: Vec<&[u64]> = self.each.iter().map(|one| &*one.latencies[policy]).collect();
        if self.is_shared { Law::of_shares(&each, share) } else { Law::of_days(&each, share) }
    }
}

impl Law {
    /// Of worlds that each played the day: middle and scatter of their percentiles. The middle, as
    /// hedges that answer each other, once, would move a mean of eight by half.
    fn of_days(each: &[&[u64]], share: f64) -> Option<Self> {
        let log = |one: &&[u64]| Some((percentile(one, share)?.max(1) as f64).ln());
        let logs: Option<Vec<f64>> = each.iter().map(log).collect();
        let mut logs = logs.filter(|logs| logs.len() > 1)?;
        logs.sort_by(f64::total_cmp);
        let days = logs.len() as f64;
        let log = logs[(logs.len() - 1) / 2].midpoint(logs[logs.len() / 2]);
        Some(Self { log, deviation: variance(&logs).sqrt(), days })
    }

    /// Of worlds that each played a share: the percentile of all together. What its rank is off by
    /// follows from the shares (batch means): how much of each lies above. Windows are dealt in
    /// turns, so that shares are alike but for luck and for what befell single windows; the latter
    /// makes this error too large rather than too small. From rank to latency by the distribution
    /// itself (Woodruff, 1952), which holds far out in the tail, where it is not normal.
    fn of_shares(each: &[&[u64]], share: f64) -> Option<Self> {
        let value_ns = pooled(each, share)?;
        let above = |one: &&[u64]| {
            let below = one.partition_point(|latency_ns| *latency_ns <= value_ns);
            1.0 - below as f64 / one.len() as f64
        };
        let above: Vec<f64> = each.iter().filter(|one| !one.is_empty()).map(above).collect();
        let error = (variance(&above) / above.len() as f64).sqrt();
        let log = |share: f64| pooled(each, share).map(|ns| (ns.max(1) as f64).ln());
        let deviation = (log(share + error)? - log(share - error)?) / 2.0;
        Some(Self { log: (value_ns.max(1) as f64).ln(), deviation, days: 1.0 })
    }
}

/// The value below which this share of all these lies, each of them in ascending order.
fn pooled(each: &[&[u64]], share: f64) -> Option<u64> {
    let all = each.iter().map(|one| one.len()).sum::<usize>();
    let rank = ((share.clamp(0.0, 1.0) * all as f64).ceil() as usize).max(1);
    let (mut low, mut high) = (0, each.iter().filter_map(|one| one.last().copied()).max()?);
    while low < high {
        let middle = low.midpoint(high);
        let up_to = |one: &&[u64]| one.partition_point(|value| *value <= middle);
        let enough = each.iter().map(up_to).sum::<usize>() >= rank;
        if enough { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

/// Adds for how long slots served in each minute, ns.
fn add_worked(worked: &mut Vec<f64>, day: &Day) {
    for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
        let minute = (sent_ns / MINUTE_NS) as usize;
        if worked.len() <= minute {
            worked.resize(minute + 1, 0.0);
        }
        worked[minute] += row.served.map_or(0.0, |served| served.service_ns as f64);
    }
}

/// The share of slots that served in the busiest minute of a day of this length.
fn busy(each: &[Played], slots: f64, length_ns: u64) -> f64 {
    let minutes = each.iter().map(|one| one.worked_ns.len()).max().unwrap_or(0);
    let share = |minute: usize| {
        let worked_ns = each.iter().filter_map(|one| one.worked_ns.get(minute)).sum::<f64>();
        // The last minute is shorter; of a few seconds of it nothing follows.
        let left_ns = length_ns.saturating_sub(minute as u64 * MINUTE_NS);
        worked_ns / (left_ns.clamp(MINUTE_NS / 12, MINUTE_NS) as f64 * slots)
    };
    (0..minutes).map(share).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    #[test]
    fn a_pooled_percentile_is_that_of_all_in_one() {
        let mut rng = Rng::seeded(1);
        for _ in 0..50 {
            let mut each: Vec<Vec<u64>> = (0..8)
                .map(|_| (0..rng.below(40)).map(|_| rng.below(1_000) as u64).collect())
                .collect();
            each.iter_mut().for_each(|one: &mut Vec<u64>| one.sort_unstable());
            let mut all = each.concat();
            all.sort_unstable();
            let slices: Vec<&[u64]> = each.iter().map(|one| &**one).collect();
            for share in [0.0, 0.3, 0.5, 0.99, 1.0] {
                assert_eq!(pooled(&slices, share), percentile(&all, share));
            }
        }
        assert_eq!(pooled(&[&[], &[]], 0.5), None);
    }

    /// The 5 and 95 % points of normal works' 99.9th percentile are known; shares of independent
    /// draws must tell them.
    #[test]
    fn shares_tell_how_far_off_their_percentile_is() {
        let mut rng = Rng::seeded(2);
        let truth = 3.090_232;
        let (mut held, mut squares, mut told) = (0, 0.0, 0.0);
        let rounds = 200;
        for _ in 0..rounds {
            let mut each: Vec<Vec<u64>> = (0..8)
                .map(|_| (0..2_500).map(|_| (1e6 * rng.normal().exp()) as u64).collect())
                .collect();
            each.iter_mut().for_each(|one| one.sort_unstable());
            let slices: Vec<&[u64]> = each.iter().map(|one| &**one).collect();
            let law = Law::of_shares(&slices, 0.999).unwrap();
            let off = law.log - 1e6_f64.ln() - truth;
            squares += off * off / f64::from(rounds);
            told += law.deviation * law.deviation / f64::from(rounds);
            held += i32::from(off.abs() <= 1.895 * law.deviation);
        }
        // Twenty answers above: within a fifth of the true error, over 200 rounds.
        assert!((told / squares).sqrt() > 0.8 && (told / squares).sqrt() < 1.3, "{told} {squares}");
        assert!((160..=194).contains(&held), "{held} of 200 intervals of 90 % hold the truth");
    }
}
