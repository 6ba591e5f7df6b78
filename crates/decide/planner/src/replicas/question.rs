//! What tier 3 is asked, and what it answers.

use super::super::model::{BadInput, Layout, Route};

evenkeel_core::named! {
    /// How to search.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub enum Method {
        /// Branch and bound under every leader: the optimum, proven, or the best found and a bound.
        #[default]
        Exact = "exact",
        /// Exchange one site at a time, from where the paper's two end, until nothing is gained.
        Swap = "swap",
        /// The better of the paper's two.
        BestOf = "best",
        /// The paper's algorithm 4: replicas by k-means, then leader and voters among them.
        Kq = "kq",
        /// The paper's algorithm 5: for every leader its quorum, then the rest by k-means.
        Qk = "qk",
        /// Every set; refused when there are more than [`Method::SETS_MAX`].
        Brute = "brute",
    }
}

impl Method {
    /// Sets that [`Method::Brute`] looks through at most.
    pub const SETS_MAX: u64 = 20_000_000;
}

/// Whether a site may, must or must not have a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Site {
    /// It may.
    #[default]
    Free,
    /// It must.
    Fixed,
    /// It must not: it is full, or the data may not go there.
    Forbidden,
}

/// Sites that fail together, and what placements owe to that. The paper keeps the diversity that a
/// database has in tiers 1 and 2 and leaves it out of tier 3.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainLimits {
    /// The failure domain of every site, as a number.
    pub of: Vec<usize>,
    /// Voters are in at least so many domains.
    pub voters_min: usize,
    /// Replicas in one domain at most, if that is limited.
    pub replicas_max: Option<usize>,
}

/// A question to [`place`](super::place).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// Exactly so many replicas, the voters among them.
    pub replicas: usize,
    /// Exactly so many voters, the leader among them.
    pub voters: usize,
    /// Which replica clients read from.
    pub route: Route,
    /// How to search.
    pub method: Method,
    /// Nodes that [`Method::Exact`] examines at most, over all leaders.
    pub nodes_max: u64,
    /// By site; empty: all are free.
    pub sites: Vec<Site>,
    /// Limits by failure domain, if there are any.
    pub domains: Option<DomainLimits>,
}

impl Question {
    /// Nodes that are enough for every instance that was looked at, by far: about a minute.
    pub const NODES_MAX: u64 = 200_000;

    /// The optimum for so many replicas and voters, without limits.
    pub const fn new(replicas: usize, voters: usize, route: Route) -> Self {
        Self {
            replicas,
            voters,
            route,
            method: Method::Exact,
            nodes_max: Self::NODES_MAX,
            sites: Vec::new(),
            domains: None,
        }
    }

    /// The failure domain of a site, when placements owe anything to domains.
    pub(super) fn domain(&self, site: usize) -> Option<usize> {
        self.domains.as_ref().map(|domains| domains.of[site])
    }

    /// Domains that voters must be in beside the leader's.
    pub(super) fn new_domains(&self) -> usize {
        self.domains.as_ref().map_or(0, |domains| domains.voters_min.saturating_sub(1))
    }

    pub(super) fn replicas_max_in_domain(&self) -> usize {
        self.domains.as_ref().and_then(|domains| domains.replicas_max).unwrap_or(usize::MAX)
    }
}

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// Where everything should be.
    pub layout: Layout,
    /// Its value by equation 1, in milliseconds × operations.
    pub score_ms: f64,
    /// No layout that keeps the limits is below, in milliseconds × operations.
    pub lower_bound_ms: f64,
    /// Whether the two agree to 1e-10 of the value.
    pub proven: bool,
    /// Nodes examined.
    pub nodes: u64,
}

impl Placed {
    /// How far the value may be above the optimum, as a part of the value.
    pub fn gap(&self) -> f64 {
        if self.score_ms <= 0.0 {
            return 0.0;
        }
        ((self.score_ms - self.lower_bound_ms) / self.score_ms).max(0.0)
    }
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum NoPlacement {
    /// Numbers that are none.
    #[error(transparent)]
    Input(#[from] BadInput),
    /// A list has not one entry for each.
    #[error("{what}: {came} came, {expected} were expected")]
    Length {
        /// Of what.
        what: &'static str,
        /// How many there are.
        came: usize,
        /// How many there should be.
        expected: usize,
    },
    /// Not as many replicas as are allowed: at least the voters and the fixed sites, at most the
    /// sites that are not forbidden.
    #[error(
        "{came} replicas were asked for, {least} to {most} were expected: at least the voters and \
         the fixed sites, at most the sites that are not forbidden"
    )]
    Replicas {
        /// How many were asked for.
        came: usize,
        /// At least.
        least: usize,
        /// At most.
        most: usize,
    },
    /// Nobody votes.
    #[error("0 voters were asked for, 1 or more were expected")]
    NoVoters,
    /// Voters cannot be in as many domains as they should.
    #[error(
        "voters in {wanted} failure domains were asked for, {possible} are possible (too few \
         voters, or too few domains among the sites that are allowed?)"
    )]
    TooFewDomains {
        /// How many they should be in.
        wanted: usize,
        /// How many they can be in at most.
        possible: usize,
    },
    /// Domains hold fewer replicas than there should be, or fixed sites alone are too many.
    #[error(
        "{wanted} replicas were asked for with at most {replicas_max} in a failure domain, \
         {possible} are possible (are fixed sites in one domain?)"
    )]
    DomainsFull {
        /// The limit of each.
        replicas_max: usize,
        /// How many replicas they hold together.
        possible: usize,
        /// How many were asked for.
        wanted: usize,
    },
    /// More sets than [`Method::Brute`] looks through.
    #[error(
        "{replicas} of {sites} sites: more than {} sets (method exact needs no list of them)",
        Method::SETS_MAX
    )]
    TooManySets {
        /// How many replicas.
        replicas: usize,
        /// Of how many sites.
        sites: usize,
    },
}
