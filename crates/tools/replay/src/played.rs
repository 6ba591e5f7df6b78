//! Days of twins, and what is kept of each: rows are many, and twins are several.

use std::thread;

use evenkeel_sim::world::{RecordConfig, record};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::{Day, percentile};

use crate::causes::Causes;
use crate::world::{Change, Setup, TWINS, scenario};

/// Parts of a day whose percentiles are told apart.
const PARTS: usize = 48;
const MINUTE_NS: u64 = 60_000_000_000;

/// What is kept of a day.
#[derive(Clone, Debug)]
pub(crate) struct Played {
    /// Latencies in ascending order, of the day's policy and of the explored one, ns.
    pub(crate) latencies: [Vec<u64>; 2],
    /// The share of slots that served in the busiest minute.
    pub(crate) busy: f64,
    /// The 99th percentile of each part of the day, ns; none where there are too few answers.
    pub(crate) parts: Vec<Option<u64>>,
    /// What the slowest requests waited for.
    pub(crate) causes: Causes,
}

impl Played {
    fn new(day: &Day, twin: &Twin) -> Self {
        Self {
            latencies: [0, 1].map(|policy| day.latencies(policy)),
            busy: busy(day, twin.slots),
            parts: parts(day, twin.length_ns()),
            causes: Causes::of(day, twin),
        }
    }
}

/// All twins' days under a change, on all cores. With `explores`, what was explored is explored
/// again, and pairs are sent as on the day.
pub(crate) fn play(twin: &Twin, setup: &Setup<'_>, change: &Change, explores: bool) -> Vec<Played> {
    let one = |number: u64| {
        let explores = explores && setup.explored.is_some();
        let world = scenario(twin, setup.like, change, number, explores);
        let explore = setup.explored.filter(|_| explores);
        let config = RecordConfig {
            explore: explore.map(|policy| (policy.to_owned(), Vec::new())),
            pairs: if explores { setup.pairs } else { 0.0 },
            ..RecordConfig::default()
        };
        Played::new(&record(&world, &change.policy, number, config), twin)
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
    played.into_iter().map(|(_, played)| played).collect()
}

/// The 99th percentile of all answers in each part of a day of this length.
pub(crate) fn parts(day: &Day, length_ns: u64) -> Vec<Option<u64>> {
    let mut latencies = vec![Vec::new(); PARTS];
    for seen in day.requests() {
        let part = seen.at_ns as u128 * PARTS as u128 / u128::from(length_ns.max(1));
        if let Some(latency_ns) = seen.latency_ns {
            latencies[(part as usize).min(PARTS - 1)].push(latency_ns);
        }
    }
    let p99 = |mut all: Vec<u64>| {
        all.sort_unstable();
        percentile(&all, 0.99).filter(|_| all.len() >= 100)
    };
    latencies.into_iter().map(p99).collect()
}

/// The share of slots that served in the busiest minute.
fn busy(day: &Day, slots: u32) -> f64 {
    let mut worked: Vec<(f64, u64)> = Vec::new();
    let mut replicas = 0;
    for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
        let minute = (sent_ns / MINUTE_NS) as usize;
        if worked.len() <= minute {
            worked.resize(minute + 1, (0.0, sent_ns));
        }
        worked[minute].0 += row.served.map_or(0.0, |served| served.service_ns as f64);
        worked[minute].1 = sent_ns;
        replicas = replicas.max(usize::from(row.replica) + 1);
    }
    let share = |(minute, (worked_ns, last_ns)): (usize, &(f64, u64))| {
        // The last minute is shorter; of a few seconds of it nothing follows.
        let length_ns = (last_ns - minute as u64 * MINUTE_NS).max(MINUTE_NS / 12) as f64;
        worked_ns / (length_ns * replicas as f64 * f64::from(slots))
    };
    worked.iter().enumerate().map(share).fold(0.0, f64::max)
}
