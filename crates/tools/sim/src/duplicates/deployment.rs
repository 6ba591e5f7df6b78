//! Everything that is simulated, as values with defaults: ZooKeeper's writes, one after another.

use evenkeel_core::time::{Duration, nanos};

use super::law::{Law, Shape};

/// Duplicated stores, who accesses them, and what is promised.
#[derive(Clone, PartialEq, Debug)]
pub struct Deployment {
    /// How long accesses take: one law after the other, each from a share of the run on. The
    /// first is from the beginning.
    pub phases: Vec<(f64, Law)>,
    /// How long reads take, where they differ.
    pub reading: Option<Law>,
    /// The law that a manager knows from before: what the simplest models use.
    pub known: Option<Law>,
    /// Who asks, and when.
    pub workload: Workload,
    /// How copies reach duplicates.
    pub copies: Copies,
    /// What stops servers now and then.
    pub pauses: Option<Pauses>,
    /// What delays all copies of an access together.
    pub common: Common,
    /// An access (or a batch) whose answer takes longer is a violation.
    pub bound: Duration,
    /// What nodes and violations cost.
    pub cost: Cost,
    /// Service times in a window of the monitor; none is kept at 0.
    pub window: usize,
    /// Accesses of which the service times on the first two duplicates are compared; none at 0.
    pub compared: usize,
    /// Accesses that the lindley model looks at; it is not asked at 0.
    pub lindley_accesses: u64,
}

/// Who asks, and when.
#[derive(Clone, PartialEq, Debug)]
pub struct Workload {
    /// When the next comes.
    pub arrivals: Arrivals,
    /// Accesses per second in the first of the factors' times, over all shards.
    pub rate: f64,
    /// Accesses that come together; the batch is answered when all of them are.
    pub batch: usize,
    /// Share of accesses that read.
    pub reads: f64,
    /// Shards, all equally wanted.
    pub shards: usize,
    /// Accesses of a run.
    pub accesses: u64,
    /// Share of the batches, from the first, that nothing is counted of.
    pub warmup: f64,
    /// What the rate is multiplied with, each for an equal part of the run's accesses; empty for 1.
    pub factors: Vec<f64>,
}

evenkeel_core::named! {
    /// When the next batch comes.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Arrivals {
        /// Whenever: exponential gaps, whatever becomes of those before.
        Poisson = "poisson",
        /// When all duplicates have answered the one before.
        AfterAll = "after-all",
        /// When one duplicate has.
        AfterFirst = "after-first",
    }
}

/// How copies reach duplicates. The multicast is one worker for each partition: copies leave one
/// after another, in the order of accesses, and every answer that is not the first costs it time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Copies {
    /// From multicast to duplicate, and from there to the client.
    pub one_way: Duration,
    /// To send one copy.
    pub repeat: Duration,
    /// To prune one tardy answer.
    pub prune: Duration,
    /// Whether copies that still wait are dropped when the first answer is there. Reads may be,
    /// writes never are: every duplicate needs them.
    pub cancel: bool,
}

/// Background work that stops a server: whoever is in service goes on afterwards.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Pauses {
    /// The mean gap between two pauses of a server, exponential.
    pub every: Duration,
    /// The shortest.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
    /// Longer than `t` are `(least / t)^power` of them.
    pub power: f64,
    /// Share of pauses that stop all servers at once: then duplicates mask nothing.
    pub together: f64,
}

/// A delay of an access on all its copies: a client that stalls, a switch, the multicast itself.
/// Longer than `t` it is with probability `share × least / t`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Common {
    /// Share of accesses that meet one.
    pub share: f64,
    /// The shortest.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
}

/// What nodes and violations cost, section 4.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cost {
    /// A node for an hour.
    pub per_node: f64,
    /// A violation.
    pub per_violation: f64,
}

impl Default for Deployment {
    fn default() -> Self {
        Self {
            phases: vec![(0.0, Law::new(Shape::ZookeeperWrite, Duration::from_millis(3)))],
            reading: None,
            known: None,
            workload: Workload::default(),
            copies: Copies {
                one_way: Duration::ZERO,
                repeat: Duration::ZERO,
                prune: Duration::ZERO,
                cancel: false,
            },
            pauses: None,
            common: Common {
                share: 0.0,
                least: Duration::from_millis(1),
                most: Duration::from_secs(1),
            },
            bound: Duration::from_millis(5),
            cost: Cost { per_node: 1.0, per_violation: 0.01 },
            window: 0,
            compared: 0,
            lindley_accesses: 100_000,
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            arrivals: Arrivals::Poisson,
            rate: 50.0,
            batch: 1,
            reads: 0.0,
            shards: 24,
            accesses: 200_000,
            warmup: 0.05,
            factors: Vec::new(),
        }
    }
}

impl Deployment {
    /// The law of writes at the beginning.
    pub fn law(&self) -> &Law {
        &self.phases[0].1
    }

    /// The law of writes after this share of the run.
    pub fn law_at(&self, share: f64) -> &Law {
        let last = self.phases.iter().rev().find(|(from, _)| *from <= share);
        last.map_or(self.law(), |(_, law)| law)
    }

    /// Mean service time at the beginning, reads and writes together, in nanoseconds.
    pub fn mean_service_nanos(&self) -> f64 {
        use evenkeel_core::distribution::Distribution;
        let reads = self.workload.reads;
        let of = |law: &Law| nanos(law.mean()) as f64;
        let reading = self.reading.as_ref().map_or(of(self.law()), of);
        (1.0 - reads) * of(self.law()) + reads * reading
    }

    /// Accesses per second, averaged over the run's time.
    pub fn mean_rate(&self) -> f64 {
        let factors = &self.workload.factors;
        if factors.is_empty() {
            return self.workload.rate;
        }
        // Each factor has as many accesses: time is what differs.
        let time: f64 = factors.iter().map(|factor| 1.0 / factor).sum();
        self.workload.rate * factors.len() as f64 / time
    }
}
