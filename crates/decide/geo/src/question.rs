//! What is asked and what is answered.

use super::problem::{Problem, ProblemError};

/// What is to be as small as possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Objective {
    /// Requests that miss the objective, everywhere together (KurmaPerf, eq. 1).
    Violations,
    /// Redirected requests by their prices, while violations stay within a target (KurmaCost,
    /// eq. 2).
    Cost(Target),
}

/// How many requests may miss the objective.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Of the requests that arrive at each data centre, in parts per million.
    Local(Vec<u32>),
    /// Of all requests together, each data centre's with its weight (the paper's footnote 6).
    Global {
        /// Parts per million of the weighted demand.
        ppm: u32,
        /// Weight of each data centre's requests, at most [`WEIGHT_MAX`].
        weights: Vec<u32>,
    },
}

/// The highest weight of a data centre in a global target.
pub const WEIGHT_MAX: u32 = 1_000;
/// The highest price of overload, in parts per million.
pub const OVERLOAD_PPM_MAX: u32 = 100_000;

/// What a load beyond saturation means. A curve is a steady-state number: beyond saturation the
/// backlog grows for as long as the load lasts and outlives the plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overload {
    /// Nothing beside its curve, as in the paper. When the demand is more than all can serve, the
    /// fewest violations are reached by giving one data centre up.
    #[default]
    Curve,
    /// Each quantum beyond saturation adds so many parts per million to the violations of all
    /// requests served there, at most [`OVERLOAD_PPM_MAX`].
    Priced(u32),
    /// Loads end below saturation, and nobody is sent where requests are shed: a data centre sheds
    /// of its own what it cannot serve in time, beyond the load at which most requests are. Shed
    /// requests count as late.
    Capped,
}

/// How long to search. No clock: every data centre must come to the same answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Effort {
    /// Units of work at most; one is about a nanosecond on a core of 2020.
    pub work_max: u64,
    /// Units of work after which an answer within `tolerance` is good enough.
    pub work_exact: u64,
    /// Distance from the optimum, in units of the objective, that counts as proven.
    pub tolerance: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { work_max: 1_500_000_000, work_exact: 200_000_000, tolerance: 0 }
    }
}

impl Effort {
    /// The tolerance of one request in a million for this problem's demand.
    pub fn one_in_a_million(problem: &Problem) -> Self {
        Self { tolerance: u64::from(problem.demand_total()), ..Self::default() }
    }
}

/// What is asked about a [`Problem`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// What is to be small.
    pub objective: Objective,
    /// Whether a data centre may send requests away while it serves others' (the paper forbids
    /// it). No request makes two hops; from about five data centres on it pays.
    pub relay: bool,
    /// What a load beyond saturation means.
    pub overload: Overload,
    /// How long to search.
    pub effort: Effort,
}

impl Question {
    /// The fewest violations, as the paper asks.
    pub fn violations() -> Self {
        Self {
            objective: Objective::Violations,
            relay: false,
            overload: Overload::Curve,
            effort: Effort::default(),
        }
    }

    /// The cheapest redirects that keep violations of every data centre within `target_ppm`.
    pub fn cost(problem: &Problem, target_ppm: u32) -> Self {
        let target = Target::Local(vec![target_ppm; problem.sites()]);
        Self { objective: Objective::Cost(target), ..Self::violations() }
    }

    pub(super) fn check(&self, problem: &Problem) -> Result<(), ProblemError> {
        let values = match &self.objective {
            Objective::Violations => None,
            Objective::Cost(Target::Local(ppm)) => Some(("target", ppm, super::ALL_PPM)),
            Objective::Cost(Target::Global { weights, .. }) => {
                Some(("weights", weights, WEIGHT_MAX))
            }
        };
        let place = |name: &str| name.to_owned();
        if let Some((name, values, max)) = values {
            if values.len() != problem.sites() {
                return Err(ProblemError {
                    place: place(name),
                    came: format!("{} values", values.len()),
                    expected: format!("{}, one for each data centre", problem.sites()),
                });
            }
            if let Some(value) = values.iter().find(|&&value| value > max) {
                let (came, expected) = (value.to_string(), format!("at most {max}"));
                return Err(ProblemError { place: place(name), came, expected });
            }
        }
        match self.overload {
            Overload::Priced(ppm) if ppm > OVERLOAD_PPM_MAX => Err(ProblemError {
                place: place("overload price"),
                came: format!("{ppm} ppm"),
                expected: format!("at most {OVERLOAD_PPM_MAX}"),
            }),
            _ => Ok(()),
        }
    }
}

evenkeel_core::named! {
    /// How sure an [`Answer`] is.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Status {
        /// No allocation is better.
        Optimal = "optimal",
        /// The effort ended before the last doubt; the bound says how much there is left to gain.
        Bounded = "bounded",
        /// No allocation was found that keeps violations within the target ([`Answer::proven`]:
        /// there is none); this one has the least excess found. A signal to scale out.
        Infeasible = "infeasible",
    }
}

/// How much of each origin's requests to serve where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// The objective: quanta times parts per million for [`Objective::Violations`] (a shed request
    /// counts as violated, and the share of a data centre that sheds is rounded up to whole parts;
    /// the price of overload is in it), quanta times price for [`Objective::Cost`].
    pub objective: u64,
    /// No allocation has a smaller objective.
    pub lower_bound: u64,
    /// Whether the objective is within the effort's tolerance of the bound, or, when infeasible,
    /// that it is so.
    pub proven: bool,
    /// How sure it is.
    pub status: Status,
    /// `rates[i][j]` quanta of origin `i` to be served at `j`.
    pub rates: Vec<Vec<u32>>,
    /// Quanta served at each data centre.
    pub loads: Vec<u32>,
    /// Quanta of each origin that nobody serves.
    pub shed: Vec<u32>,
    /// Quanta served away from their origin.
    pub redirected: u32,
    /// Requests that miss the objective, shed ones included: quanta times parts per million.
    pub violations: u64,
    /// Violations beyond the target, quanta times parts per million (times weight, for a global
    /// target): 0 when it is kept.
    pub excess: u64,
    /// No allocation has a smaller excess.
    pub excess_bound: u64,
    /// Units of work spent.
    pub work: u64,
}

impl Answer {
    /// The share of all requests that miss the objective, shed ones included; 0 without demand.
    pub fn violation_fraction(&self, problem: &Problem) -> f64 {
        let all = f64::from(super::ALL_PPM) * f64::from(problem.demand_total());
        if all == 0.0 { 0.0 } else { self.violations as f64 / all }
    }
}
