//! How much of each data centre's load to send where.
//!
//! [`solve()`] answers a [`Question`] about a [`Problem`]: demand in whole quanta, and for every
//! pair of data centres a curve: the share of requests that miss the objective, over the load of
//! the one that serves. It is the seconds loop of Kurma (Bogdanov et al., SoCC'18, section 5):
//! every data centre collects the same problem, solves it for itself, and enforces its own row.
//!
//! | room | does |
//! |---|---|
//! | [`curve`] | how many requests miss the objective, over the load of who serves them |
//! | [`demand`] | what a site counts → what it tells of itself |
//! | [`wan`] | how far the others are, and how much that varies |
//! | [`epoch`] | agreement: what every data centre knows when it plans, the same everywhere |
//! | [`planner`] | what all told → the problem → a plan for each |
//! | [`split`] | enforcement: which data centre one request goes to, by the plan |
//! | [`joint`] | redirect, dim or hedge by one price: curves that are costs |
//! | [`past`] | what the last hour cost, with loops of their own, and with hindsight |
//! | [`traffic`] | what workers are told of a plan, and what they tell of it |
//!
//! | file of the plan | does |
//! |---|---|
//! | `problem.rs` `question.rs` | what is given, asked and answered |
//! | `shed.rs` | what a data centre cannot serve in time, where loads are capped |
//! | `model.rs` | the question as prices of flows, ties included |
//! | `solve.rs` | which searches answer which question |
//! | `search.rs` `tighten.rs` | branch and bound over loads; column generation in its parts |
//! | `bound.rs` `master.rs` `trust.rs` `prices.rs` | the Lagrangian bound, and where it is best |
//! | `elastic.rs` | how many servers each data centre should have, when they can share load |
//! | `local.rs` | a good allocation soon |
//! | `transport.rs` `place.rs` | loads given: who serves whom, exactly |
//!
//! **Why loads.** How many requests miss the objective depends on loads in ways that are neither
//! convex nor concave, but once loads are fixed all prices are constants and a transportation
//! problem is left, which is easy. So there is one decision for each data centre, not for each
//! pair, and a bound that treats data centres one by one is nearly tight.
//!
//! **When it misleads.** The answer is as good as its curves: they are steady-state shares, so a
//! load beyond saturation costs more than they say ([`Overload`]); with little room the quantum
//! matters (1 % against 8 %: 1.1 % against 3.7 % violations on one of the published instances).
//! Demand must be requests counted where they arrive, never measured work or utilisation: those
//! follow what was redirected before.
//!
//! **Units.** Loads and flows are whole quanta of a rate, violations parts per million; objectives
//! are products of the two. All that decides is integers; effort is counted, not timed.
//!
//! ```
//! use evenkeel_geo::{Problem, Question, Status, solve};
//!
//! // Up to a load of 2 nothing is late, with 3 a tenth, then all; 1 % more over the distance.
//! let near = vec![0, 0, 0, 100_000, 1_000_000];
//! let far = vec![10_000, 10_000, 10_000, 110_000, 1_000_000];
//! let curves = vec![vec![near.clone(), far.clone()], vec![far, near]];
//! let problem = Problem::new(vec![4, 0], curves)?;
//! let answer = solve(&problem, &Question::violations())?;
//! assert_eq!(answer.status, Status::Optimal);
//! assert_eq!(answer.rates, [[2, 2], [0, 0]]);
//! assert_eq!(answer.objective, 2 * 10_000);
//! # Ok::<(), evenkeel_geo::ProblemError>(())
//! ```

mod bound;
pub mod curve;
pub mod demand;
mod elastic;
pub mod epoch;
pub mod joint;
mod learnt;
mod local;
mod master;
mod model;
mod pairs;
pub mod past;
mod place;
pub mod planner;
mod prices;
mod problem;
mod question;
mod search;
mod shed;
pub mod solve;
pub mod split;
#[cfg(test)]
mod tests;
mod tighten;
pub mod traffic;
mod transport;
mod trust;
pub mod wan;

pub use elastic::{Elastic, Outlook};
pub use learnt::{LEARNT_PPM, Learnt};
pub use problem::{ALL_PPM, PRICE_MAX, Problem, ProblemError, QUANTA_MAX, SITES_MAX};
pub use question::{
    Answer, Effort, OVERLOAD_PPM_MAX, Objective, Overload, Question, Status, Target, WEIGHT_MAX,
};
pub use solve::solve;
