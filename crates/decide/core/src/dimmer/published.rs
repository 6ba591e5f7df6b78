//! The published law: an integral controller on the 95th percentile, with a gain it learns.
//!
//! **Source**: "Improving Cloud Service Resilience using Brownout-Aware Load-Balancing" (SRDS
//! 2014), equations 1–3, and the code it was measured with. Where the two differ the code is
//! followed: its step has the period as a factor, which equation 2 leaves out.
//!
//! With t the measured percentile, θ the dimmer, h the period, f = 0.95 and the pole 0.9:
//!
//! ```text
//! a = P·θ        g = 1 / (θ·a + f)
//! α ← α + g·a·(t − θ·α)          recursive least squares for t = α·θ
//! P ← (P − g·a²) / f
//! θ ← clip(θ + h·(1 − pole)/α · (setpoint − t), 0, 1)
//! ```
//!
//! **When it misleads**: it acts after the harm is done, and falls quickly only while α lags; once
//! α has settled θ moves by at most 5 % in a period. At θ = 0 nothing is learnt and P grows by 1/f
//! each period, to infinity within two hours and to NaN after. [`Published::hardened`] keeps P, α
//! and the regressor where they mean something; [`Published::exact`] does not.

use crate::time::Duration;
use crate::units::Dimmer;

const POLE: f64 = 0.9;
const FORGETTING: f64 = 0.95;
const COVARIANCE_START: f64 = 1_000.0;

/// State of the law.
#[derive(Clone, Debug)]
pub(super) struct Published {
    setpoint_s: f64,
    theta: f64,
    alpha: f64,
    covariance: f64,
    is_hardened: bool,
}

/// Bounds of the covariance. From below its floor the gain could not recover; above the ceiling one
/// sample sets α anew, which is what the ceiling is for.
const COVARIANCE: core::ops::RangeInclusive<f64> = 1e-6..=1e4;
/// Bounds of α, in setpoints. Below, one step would cross the whole range. Above, the way back from
/// darkness would take minutes: what was learnt in the last moments before θ reached 0, where the
/// service was saturated, says nothing of the time after.
const ALPHA: core::ops::RangeInclusive<f64> = 0.01..=5.0;
/// Below this dimmer the model t = α·θ says nothing about α.
const THETA_LEARNING_MIN: f64 = 0.01;

impl Published {
    /// As published, to the last operation.
    pub(super) fn exact(setpoint: Duration) -> Self {
        Self {
            setpoint_s: setpoint.as_secs_f64(),
            theta: 0.5,
            alpha: 1.0,
            covariance: COVARIANCE_START,
            is_hardened: false,
        }
    }

    /// The same law within bounds. It begins with full content: nothing is known to be in need.
    pub(super) fn hardened(setpoint: Duration) -> Self {
        Self { theta: 1.0, is_hardened: true, ..Self::exact(setpoint) }
    }

    pub(super) fn dimmer(&self) -> Dimmer {
        Dimmer::clamped(self.theta)
    }

    /// Goes on from a dimmer that another law has set.
    pub(super) fn follow(&mut self, dimmer: Dimmer) {
        self.theta = dimmer.value();
    }

    /// One control step after a period of this length whose percentile was `percentile_s`.
    pub(super) fn step(&mut self, period: Duration, percentile_s: f64) {
        if !self.is_hardened || self.theta >= THETA_LEARNING_MIN {
            self.learn(percentile_s);
        }
        let step = period.as_secs_f64() * (1.0 - POLE) / self.alpha;
        let theta = step.mul_add(self.setpoint_s - percentile_s, self.theta);
        self.theta = theta.clamp(0.0, 1.0);
    }

    fn learn(&mut self, percentile_s: f64) {
        let a = self.covariance * self.theta;
        let gain = 1.0 / self.theta.mul_add(a, FORGETTING);
        self.alpha += gain * a * (percentile_s - self.theta * self.alpha);
        self.covariance = (self.covariance - gain * a * a) / FORGETTING;
        if self.is_hardened {
            self.covariance = self.covariance.clamp(*COVARIANCE.start(), *COVARIANCE.end());
            let alpha = self.alpha / self.setpoint_s;
            self.alpha = alpha.clamp(*ALPHA.start(), *ALPHA.end()) * self.setpoint_s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(500);
    const SECOND: Duration = Duration::from_secs(1);

    /// The published code's loop in the words of the research notes, on plain numbers.
    fn model(steps: &[f64]) -> Vec<f64> {
        let (mut theta, mut alpha, mut p, f, h) = (0.5_f64, 1.0_f64, 1000.0_f64, 0.95, 0.5);
        let step = |t: &f64| {
            let a = p * theta;
            let g = 1.0 / (theta * a + f);
            let k = g * a;
            alpha += k * (t - theta * alpha);
            p = (p - g * a * a) / f;
            theta += h * (1.0 / alpha) * (1.0 - 0.9) * (1.0 - t);
            theta = theta.clamp(0.0, 1.0);
            theta
        };
        steps.iter().map(step).collect()
    }

    fn walk(law: &mut Published, steps: &[f64]) -> Vec<f64> {
        let step = |&t: &f64| {
            law.step(PERIOD, t);
            law.dimmer().value()
        };
        steps.iter().map(step).collect()
    }

    #[test]
    fn the_exact_law_is_the_published_one() {
        let steps: Vec<f64> = (0..400).map(|n| 0.2 + f64::from(n * 37 % 100) / 40.0).collect();
        let ours = walk(&mut Published::exact(SECOND), &steps);
        for (ours, model) in ours.iter().zip(model(&steps)) {
            assert!((ours - model).abs() < 1e-9, "{ours} and {model}");
        }
    }

    /// From full content at 0.3 s a step to 4 s brings θ to 0 in five periods, and a return to
    /// 0.1 s brings it back to 1 in sixteen (the recurrence in Python, to four digits).
    #[test]
    fn the_fall_is_quick_and_the_way_back_is_not() {
        let mut law = Published::exact(SECOND);
        walk(&mut law, &[0.3; 200]);
        assert_eq!(law.dimmer(), Dimmer::FULL);
        let near = |ours: &[f64], python: &[f64]| {
            assert!(ours.iter().zip(python).all(|(o, p)| (o - p).abs() < 1e-4), "{ours:?}");
        };
        near(&walk(&mut law, &[4.0; 12]), &[0.6907, 0.4468, 0.2337, 0.0349, 0.0, 0.0]);
        let back = walk(&mut law, &[0.1; 16]);
        near(&back, &[0.059, 0.118, 0.177, 0.236, 0.2952, 0.3547, 0.4148, 0.4757, 0.5379, 0.6018]);
        assert!(back[14] < 1.0 && back[15] == 1.0, "{back:?}");
    }

    /// 13 704 periods at θ = 0 (1.9 h) overflow the published covariance; then θ is NaN for ever.
    #[test]
    fn hours_of_darkness_break_the_published_law_and_not_ours() {
        let mut exact = Published::exact(SECOND);
        walk(&mut exact, &[9.0; 14_000]);
        assert!(exact.theta.is_nan() || exact.covariance.is_infinite());
        let mut ours = Published::hardened(SECOND);
        walk(&mut ours, &[9.0; 500_000]); // almost three days
        assert_eq!(ours.dimmer(), Dimmer::LEAN);
        let back = walk(&mut ours, &[0.1; 150]);
        assert_eq!(back.last(), Some(&1.0), "it comes back when the replica does");
    }

    #[test]
    fn a_short_setpoint_does_not_make_the_way_back_longer() {
        let mut ours = Published::hardened(Duration::from_millis(20));
        walk(&mut ours, &[0.01; 100]);
        walk(&mut ours, &[6.0; 100]);
        assert_eq!(ours.dimmer(), Dimmer::LEAN);
        let back = walk(&mut ours, &[0.002; 150]);
        assert_eq!(back.last(), Some(&1.0), "within 75 s");
    }
}
