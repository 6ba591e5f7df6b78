//! How many partitions, how many duplicates of each: replication for predictability by a model.
//!
//! Zoolander (ICAC 2013) sends every access to all duplicates of a partition and takes the first
//! answer. More partitions lower the load of each node, more duplicates mask the slow accesses that
//! are left; both cost nodes. A model says which share of accesses will miss the latency bound, so
//! that the cheapest policy that keeps the target can be chosen before any node is bought.
//!
//! | file | what it is |
//! |---|---|
//! | `service.rs` | service times of duplicates: recorded, by formulas, recorded together |
//! | `paper.rs` | the paper's model: a product, with the mean wait deducted from the bound |
//! | `lindley.rs` | ours: the queues of all duplicates behind the same arrivals |
//! | `hedged.rs` | the same where reads go to one duplicate, and late ones to a second |
//! | [`policy`] | every number of partitions and duplicates, what it costs, which is best |
//! | [`moves`] | from what there is to something better, one move at a time |
//! | [`night`] | what to do with the nodes that nobody needs at night |
//! | [`quiet`] | when they go and when they are back, by the forecast of demand |
//! | [`window`] | what is measured: sampled accesses, whether they changed |
//! | [`correlation`] | whether outliers of duplicates coincide: then they mask nothing |
//!
//! **Which model?** [`Model::Lindley`]. Duplicates see the same arrivals: they are busy at the same
//! time, so their waits are random *and* dependent. The paper deducts the *mean* wait from the
//! bound and multiplies as if the rest were independent. Without queues that is exact. At
//! utilisation 0.4 it promises violations some 35 times too rare for two duplicates and 20 000
//! times for four (simulated M/G/1), and at 0.6 it predicts a cliff where there is none.
//! [`Model::Paper`] is there to reproduce the paper.
//!
//! **When both mislead.** They know service times at a load where windows were recorded, first in
//! first out queues and one server for each duplicate. Partitions are assumed to share the load
//! evenly (the paper's bias for partitioning). Copies run to their end at every duplicate, as
//! writes must; a store that can withdraw copies does better. Reads need not go to all
//! ([`Reads::Hedged`]). Service times that depend on
//! each other in time (a pause that meets many accesses) are not known to either; the arrivals'
//! bursts are, where gaps were recorded.

pub mod correlation;
mod hedged;
mod lindley;
pub mod moves;
pub mod night;
mod paper;
pub mod policy;
pub mod quiet;
mod service;
pub mod window;

#[cfg(test)]
mod tests;

use core::num::NonZeroU32;

pub use paper::mean_wait;
pub use service::{Law, Service, Times};

use evenkeel_core::time::Duration;
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// How violations are predicted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Model {
    /// The paper's section 2.2: the mean wait is deducted from the bound. Instantaneous.
    Paper,
    /// Lindley's recursion for every duplicate, with the same arrivals. Some tens of milliseconds.
    Lindley,
}

impl Model {
    /// Both, ours first.
    pub const ALL: [Self; 2] = [Self::Lindley, Self::Paper];

    /// As people write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Lindley => "lindley",
        }
    }
}

/// Partitions, each with its duplicates: `2p/3d` are two partitions of three duplicates each.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Policy {
    /// Partitions; each has an equal part of the accesses.
    pub partitions: NonZeroU32,
    /// Duplicates of each partition; each has all accesses of its partition.
    pub duplicates: NonZeroU32,
}

impl Policy {
    /// So many partitions of so many duplicates.
    ///
    /// # Errors
    /// When either is zero.
    pub fn new(partitions: u32, duplicates: u32) -> Result<Self, OutOfRange> {
        let count = |count: u32, expected| {
            NonZeroU32::new(count).ok_or(OutOfRange { came: f64::from(count), expected })
        };
        Ok(Self {
            partitions: count(partitions, "one partition or more")?,
            duplicates: count(duplicates, "one duplicate or more")?,
        })
    }

    /// Partitions × duplicates: what the paper calls N. A node may itself be a cluster.
    pub fn nodes(self) -> u64 {
        u64::from(self.partitions.get()) * u64::from(self.duplicates.get())
    }
}

impl core::fmt::Display for Policy {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}p/{}d", self.partitions, self.duplicates)
    }
}

/// When accesses arrive, all partitions together.
#[derive(Clone, Copy, Debug, Default)]
pub enum Arrivals<'a> {
    /// Whenever: exponential gaps. What a partition gets of them is Poisson too.
    #[default]
    Poisson,
    /// With these gaps, in this order and then from the beginning, scaled to the rate asked about.
    /// Each access falls to a partition by chance. The paper's model does not look at them.
    Recorded(&'a [Duration]),
}

/// How long a simulation looks, and from which seed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Effort {
    /// Accesses of a partition that are simulated at least, after a twentieth to warm up.
    pub accesses: u64,
    /// Accesses at most: it goes on until the standard error is at most `precision`. Where
    /// violations are rarer than 1e-4 it ends after ten times `accesses`.
    pub accesses_max: u64,
    /// The standard error as a share of the violations at which it stops.
    pub precision: f64,
    /// Equal seeds have equal predictions. Different policies and rates at one seed see the same
    /// draws, so that their differences are surer than each number (common random numbers).
    pub seed: u64,
}

impl Default for Effort {
    /// 200 000 accesses, whatever the precision.
    fn default() -> Self {
        Self { accesses: 200_000, accesses_max: 200_000, precision: 0.05, seed: 1 }
    }
}

/// What is asked of a model, apart from the policy.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// How long duplicates serve.
    pub service: &'a Service,
    /// Accesses per second, all partitions together. Table 1 calls λ an "interarrival rate"; it is
    /// a rate everywhere.
    pub rate: Rate,
    /// τ: an access whose first answer takes longer is a violation.
    pub bound: Duration,
    /// μ_net: the mean time of a message between client and duplicate.
    pub net: Duration,
    /// μ_rep: the mean time to repeat a message once and to prune one tardy reply. It counts once
    /// for each duplicate of the partition, the first too (section 2.2).
    pub repeat: Duration,
    /// When accesses arrive.
    pub arrivals: Arrivals<'a>,
    /// Which share of accesses are reads, which need not go to all duplicates.
    pub read_share: Probability,
    /// For [`Model::Lindley`].
    pub effort: Effort,
}

impl<'a> Question<'a> {
    /// Poisson arrivals, a network and multicast that take no time, the default effort.
    pub fn new(service: &'a Service, rate: Rate, bound: Duration) -> Self {
        Self {
            service,
            rate,
            bound,
            net: Duration::ZERO,
            repeat: Duration::ZERO,
            arrivals: Arrivals::Poisson,
            read_share: Probability::clamped(0.0),
            effort: Effort::default(),
        }
    }

    /// What network and multicast leave of the bound, in nanoseconds; none when nothing.
    fn left_nanos(&self, duplicates: NonZeroU32) -> Option<u64> {
        use evenkeel_core::time::nanos;
        let repeated = nanos(self.repeat).saturating_mul(u64::from(duplicates.get()));
        nanos(self.bound).checked_sub(nanos(self.net).saturating_add(repeated))
    }
}

/// What a model expects.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// The share of accesses that miss the bound, from 0 to 1. Kept apart from its complement,
    /// where many nines would leave no digits.
    pub violations: f64,
    /// The standard error of `violations` by the means of 20 consecutive batches; 0 for formulas.
    /// Where it is not far below `violations`, look longer ([`Effort`]).
    pub standard_error: f64,
    /// ρ of the busiest duplicate: the partition's rate × its mean service time. From 1 on queues
    /// grow without end.
    pub utilisation: f64,
    /// Accesses that were simulated; 0 for formulas.
    pub accesses: u64,
}

impl Prediction {
    /// ŝ: the share of accesses within the bound. (The paper says percent and computes a share.)
    pub fn service_level(&self) -> Probability {
        Probability::clamped(1.0 - self.violations)
    }

    /// Where `violations` is with a confidence of 95 %, as far as batches are independent and many
    /// enough for the normal distribution: 2.09 standard errors (Student's t, 20 batches).
    pub fn interval(&self) -> (f64, f64) {
        let apart = 2.09 * self.standard_error;
        ((self.violations - apart).max(0.0), (self.violations + apart).min(1.0))
    }

    /// `-log10(violations)`: 2 for 99 %, 4 for 99.99 %, infinite where no violation is expected.
    /// Errors of a model are told in nines: at a level of many nines any model is absolutely right.
    pub fn nines(&self) -> f64 {
        0.0 - self.violations.log10() // not -0 where everything is late
    }
}

/// To whom a partition's reads go; writes go to all duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// To all, as writes: the first reply wins.
    All,
    /// To one, and to a second one when it takes long: far less load.
    Hedged,
}

impl Reads {
    /// As people read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Hedged => "hedged",
        }
    }
}

/// What our model expects where reads are [`Reads::Hedged`]; nothing where no access is a read,
/// where there is nobody else to ask, or without load, which is when copies cost nothing.
pub fn predict_hedged(question: &Question<'_>, policy: Policy) -> Option<Prediction> {
    let rate = question.rate.value() / f64::from(policy.partitions.get());
    let is_possible = question.read_share.value() > 0.0 && policy.duplicates.get() > 1;
    let rate = Rate::new(rate).ok().filter(|_| is_possible && rate > 0.0)?;
    Some(hedged::predict(question, rate, policy.duplicates))
}

/// What a model expects of a policy.
///
/// ```
/// use evenkeel_planner::duplicates::{Law, Model, Policy, Question, Service, predict};
/// use evenkeel_core::{Duration, units::Rate};
///
/// let law = Law::Exponential { mean: Duration::from_millis(1) };
/// let service = Service::alike(law.times()?);
/// let question = Question::new(&service, Rate::new(0.0)?, Duration::from_millis(2));
/// let idle = predict(Model::Paper, &question, Policy::new(1, 3)?)?;
/// // Three duplicates all miss twice the mean: e^-2 each.
/// assert!((idle.violations / (-6.0_f64).exp() - 1.0).abs() < 1e-12);
/// # Ok::<(), evenkeel_core::units::OutOfRange>(())
/// ```
///
/// # Errors
/// When there are more duplicates than the service times know ([`Service::duplicates_max`]).
pub fn predict(
    model: Model,
    question: &Question<'_>,
    policy: Policy,
) -> Result<Prediction, OutOfRange> {
    let rate = question.rate.value() / f64::from(policy.partitions.get());
    predict_partition(model, question, Rate::new(rate)?, policy.duplicates)
}

/// What a model expects of one partition that gets this part of the question's rate.
///
/// # Errors
/// As [`predict`].
pub fn predict_partition(
    model: Model,
    question: &Question<'_>,
    rate: Rate,
    duplicates: NonZeroU32,
) -> Result<Prediction, OutOfRange> {
    if question.service.duplicates_max().is_some_and(|most| duplicates.get() as usize > most) {
        let expected = "no more duplicates than there are service times of";
        return Err(OutOfRange { came: f64::from(duplicates.get()), expected });
    }
    Ok(match model {
        Model::Paper => paper::predict(question, rate, duplicates),
        Model::Lindley => lindley::predict(question, rate, duplicates),
    })
}
