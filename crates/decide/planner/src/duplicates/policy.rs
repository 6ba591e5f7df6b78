//! Every number of partitions and duplicates that the nodes allow, and which of them is best.
//!
//! The best policy is the cheapest of those that meet the target; where costs are equal, the one
//! with the fewest nodes, then the one with the higher service level, then the one with fewer
//! partitions. The paper asks for the fewest nodes alone and leaves ties open: with 4 nodes its
//! table 4 names 4p/1d where 2p/2d meets the target too, and 4p/1d, by its own section 4, does not
//! (a misprint).
//!
//! Cost is that of section 4, `N·cpn + λ_vio·cpv` with `λ_vio = λ·(1 - ŝ)`: nodes, and violations.
//! Without a price of violations it is the number of nodes.
//!
//! **When it misleads.** A service level is a prediction: [`Candidate::is_sure`] says whether it is
//! farther from the target than chance explains. And evenly loaded partitions are the best case of
//! partitioning; a hot shard is worse.

use core::num::NonZeroU32;

use super::{Model, Policy, Prediction, Question, Reads, predict_hedged};
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// What nodes and violations cost.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prices {
    /// Of a node in a second.
    pub per_node: f64,
    /// Of one violation.
    pub per_violation: f64,
}

impl Default for Prices {
    /// Nodes alone, each 1: the fewest nodes are the cheapest.
    fn default() -> Self {
        Self { per_node: 1.0, per_violation: 0.0 }
    }
}

impl Prices {
    /// What so many nodes and violations cost in a second.
    pub fn cost(&self, nodes: u64, violations_per_s: f64) -> f64 {
        self.per_violation.mul_add(violations_per_s, self.per_node * nodes as f64)
    }
}

/// What is wanted.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Objective {
    /// The least share of accesses within the bound.
    pub target: Probability,
    /// Nodes at most: partitions × duplicates.
    pub nodes_max: u32,
    /// What cheap means.
    pub prices: Prices,
}

/// A policy and what is expected of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Candidate {
    /// Partitions and duplicates.
    pub policy: Policy,
    /// To whom reads go: the way with fewer violations.
    pub reads: Reads,
    /// The share of violations, and how busy duplicates are, with that.
    pub prediction: Prediction,
    /// The same if reads went the other way, where that was looked at.
    pub otherwise: Option<Prediction>,
    /// What it costs in a second.
    pub cost: f64,
    /// Whether the target is met, by the prediction.
    pub meets: bool,
    /// Whether the prediction is at least two standard errors away from the target.
    pub is_sure: bool,
}

impl Candidate {
    /// Judges a prediction.
    pub fn of(policy: Policy, prediction: Prediction, rate: Rate, objective: &Objective) -> Self {
        let allowed = 1.0 - objective.target.value();
        Self {
            policy,
            reads: Reads::All,
            prediction,
            otherwise: None,
            cost: objective.prices.cost(policy.nodes(), rate.value() * prediction.violations),
            meets: meets(&prediction, objective.target),
            is_sure: (prediction.violations - allowed).abs() >= 2.0 * prediction.standard_error,
        }
    }

    /// The same where reads are hedged, if fewer violations are expected then.
    #[must_use]
    pub fn or_hedged(self, hedged: Prediction, rate: Rate, objective: &Objective) -> Self {
        if hedged.violations >= self.prediction.violations {
            return Self { otherwise: Some(hedged), ..self };
        }
        let otherwise = Some(self.prediction);
        Self { reads: Reads::Hedged, otherwise, ..Self::of(self.policy, hedged, rate, objective) }
    }

    /// The same for another objective.
    #[must_use]
    pub fn priced(&self, rate: Rate, objective: &Objective) -> Self {
        let (reads, otherwise) = (self.reads, self.otherwise);
        Self { reads, otherwise, ..Self::of(self.policy, self.prediction, rate, objective) }
    }

    /// Better first: of two that meet the target as the module says; one that meets it before one
    /// that does not; of two that do not, the higher service level, then the cheaper.
    pub fn compare(&self, other: &Self) -> core::cmp::Ordering {
        let level = || self.prediction.violations.total_cmp(&other.prediction.violations);
        let cost = || self.cost.total_cmp(&other.cost);
        let nodes = || self.policy.nodes().cmp(&other.policy.nodes());
        let tie = || self.policy.partitions.cmp(&other.policy.partitions);
        other.meets.cmp(&self.meets).then_with(|| {
            if self.meets {
                cost().then_with(nodes).then_with(level).then_with(tie)
            } else {
                level().then_with(cost).then_with(nodes).then_with(tie)
            }
        })
    }
}

/// Whether a prediction keeps a target, up to the rounding of `1 - target`.
pub(super) fn meets(prediction: &Prediction, target: Probability) -> bool {
    prediction.violations <= (1.0 - target.value()) * (1.0 + 1e-12)
}

/// All policies of at most so many nodes and duplicates, by nodes and then partitions.
pub fn policies(nodes_max: u32, duplicates_max: Option<usize>) -> Vec<Policy> {
    let most = duplicates_max.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX));
    let with = |partitions: NonZeroU32| {
        let duplicates = (1..=most.min(nodes_max / partitions)).filter_map(NonZeroU32::new);
        duplicates.map(move |duplicates| Policy { partitions, duplicates })
    };
    let mut all: Vec<Policy> = (1..=nodes_max).filter_map(NonZeroU32::new).flat_map(with).collect();
    all.sort_by_key(|policy| (policy.nodes(), policy.partitions));
    all
}

/// Judges every policy of at most `objective.nodes_max` nodes, by nodes and then partitions.
///
/// # Errors
/// When the nodes are none.
pub fn candidates(
    model: Model,
    question: &Question<'_>,
    objective: &Objective,
) -> Result<Vec<Candidate>, OutOfRange> {
    if objective.nodes_max == 0 {
        return Err(OutOfRange { came: 0.0, expected: "one node or more" });
    }
    let judged = |policy: Policy| judge(model, question, objective, policy);
    policies(objective.nodes_max, question.service.duplicates_max())
        .into_iter()
        .map(judged)
        .collect()
}

/// Judges one policy.
///
/// # Errors
/// As [`predict`](super::predict).
pub fn judge(
    model: Model,
    question: &Question<'_>,
    objective: &Objective,
    policy: Policy,
) -> Result<Candidate, OutOfRange> {
    let prediction = super::predict(model, question, policy)?;
    let candidate = Candidate::of(policy, prediction, question.rate, objective);
    let hedged = (model == Model::Lindley).then(|| predict_hedged(question, policy)).flatten();
    Ok(match hedged {
        Some(hedged) => candidate.or_hedged(hedged, question.rate, objective),
        None => candidate,
    })
}

/// The best policy that meets the target; none when none meets it.
pub fn best(candidates: &[Candidate]) -> Option<&Candidate> {
    candidates.iter().filter(|candidate| candidate.meets).min_by(|a, b| a.compare(b))
}

/// How many duplicates a partition at this rate should have at most: from the next on, a duplicate
/// masks less than it is worth. It is worth its node when the violations that it avoids cost as
/// much; without a price of violations, when it avoids a tenth of those there are. `most` is where
/// the search ends.
///
/// With a multicast that costs time, `N·μ_rep` of the bound, there is always such a number: each
/// copy delays all. It falls as load rises, since a queue leaves less of the bound.
///
/// # Errors
/// As [`predict`](super::predict).
#[cfg(test)]
pub fn duplicates_worthwhile(
    model: Model,
    question: &Question<'_>,
    rate: Rate,
    prices: Prices,
    most: NonZeroU32,
) -> Result<NonZeroU32, OutOfRange> {
    let mut useful = NonZeroU32::MIN;
    let mut now = super::predict_partition(model, question, rate, useful)?;
    let known = question.service.duplicates_max().unwrap_or(usize::MAX);
    while useful < most && (useful.get() as usize) < known {
        let more = useful.saturating_add(1);
        let next = super::predict_partition(model, question, rate, more)?;
        let avoided = now.violations - next.violations;
        let is_worth = if prices.per_violation > 0.0 {
            rate.value() * avoided * prices.per_violation > prices.per_node
        } else {
            avoided > 0.1 * now.violations
        };
        if !is_worth {
            break;
        }
        (useful, now) = (more, next);
    }
    Ok(useful)
}

/// Up to which rate `first` has fewer violations than `second`, to a thousandth of the range: with
/// equal nodes, where duplicates cease to pay and partitions begin to. None when it has not even
/// at the lowest rate looked at, `rate_max / 1000`; `rate_max` when it has up to there.
///
/// # Errors
/// As [`predict`](super::predict).
#[cfg(test)]
pub fn better_up_to(
    model: Model,
    question: &Question<'_>,
    first: Policy,
    second: Policy,
    rate_max: Rate,
) -> Result<Option<Rate>, OutOfRange> {
    let is_better = |rate: f64| -> Result<bool, OutOfRange> {
        let at = Question { rate: Rate::new(rate)?, ..*question };
        let of = |policy| super::predict(model, &at, policy);
        Ok(of(first)?.violations < of(second)?.violations)
    };
    let step = rate_max.value() / 1000.0;
    if !is_better(step)? {
        return Ok(None);
    }
    if is_better(rate_max.value())? {
        return Ok(Some(rate_max));
    }
    // Invariant: better at `low`, not at `high`.
    let (mut low, mut high) = (1_u32, 1000_u32);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if is_better(step * f64::from(middle))? {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(Some(Rate::new(step * f64::from(low))?))
}
