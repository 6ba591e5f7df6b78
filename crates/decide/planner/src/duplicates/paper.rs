//! Zoolander's analytic model (ICAC 2013, section 2.2), for reproduction.
//!
//! ```text
//! τ_n = τ - (1 + C_v²)/2 · ρ/(1-ρ) · μ_n - μ_net - N·μ_rep        ρ = λ·μ_n
//! ŝ   = 1 - Π_n (1 - Φ_n(τ_n))
//! ```
//!
//! The paper writes ŝ as a sum over the duplicate that saves the access, `Σ Φ_n Π_{i<n} (1 - Φ_i)`;
//! that is this product, whatever the order of duplicates. λ is the rate at one duplicate: all of
//! its partition's accesses.
//!
//! **Slips of the paper, read as meant.** Utilisation is rate × mean service time, not "the mean
//! arrival rate divided by the mean service time". A bound that the deductions leave nothing of is
//! met by nobody (Φ = 0), and so it is from ρ = 1 on.
//!
//! **When it misleads**: with queues and two duplicates or more, see [`super`].

use core::num::NonZeroU32;

use super::{Prediction, Question, Times};
use evenkeel_core::units::Rate;

/// Pollaczek and Khinchine's mean wait in nanoseconds before one server with Poisson arrivals:
/// `(1 + C_v²)/2 · ρ/(1-ρ) · μ`; infinite from ρ = 1 on.
pub fn mean_wait(times: &Times, rate: Rate) -> f64 {
    let utilisation = rate.value() * times.mean_nanos() / 1e9;
    if utilisation >= 1.0 {
        return f64::INFINITY;
    }
    if utilisation == 0.0 {
        return 0.0;
    }
    (1.0 + times.cv_squared()) / 2.0 * utilisation / (1.0 - utilisation) * times.mean_nanos()
}

pub(super) fn predict(question: &Question<'_>, rate: Rate, duplicates: NonZeroU32) -> Prediction {
    let left = question.left_nanos(duplicates);
    let late = |times: &Times| match left {
        None => 1.0,
        Some(left) => {
            let left = left as f64 - mean_wait(times, rate);
            if left < 0.0 { 1.0 } else { times.late(left as u64) }
        }
    };
    let all = (0..duplicates.get() as usize).map(|n| question.service.of(n));
    let busiest = all.clone().map(Times::mean_nanos).fold(0.0, f64::max);
    Prediction {
        violations: all.map(late).product::<f64>().clamp(0.0, 1.0),
        standard_error: 0.0,
        utilisation: rate.value() * busiest / 1e9,
        accesses: 0,
    }
}
