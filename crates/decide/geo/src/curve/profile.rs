//! What a profile of a real data centre measured: response times, load step by load step.

use core::num::NonZeroU32;

use evenkeel_core::distribution::Bucket;
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// Load steps of a profile at most.
pub const STEPS_MAX: usize = 4_096;

/// One load step: an open-loop load was offered, and this is how long requests took from their
/// intended start, as seen inside the data centre.
#[derive(Clone, PartialEq, Debug)]
pub struct LoadStep {
    /// Requests per second offered to the whole data centre.
    pub load: Rate,
    /// The share of writes among them.
    pub write_share: Probability,
    /// Response times of the answered requests, for example of a
    /// [`Recorder`](evenkeel_core::distribution::Recorder).
    pub latencies: Vec<Bucket>,
    /// Requests that failed or were never answered: they miss every objective.
    pub unanswered: u64,
}

/// From which load on the queues grew during the profile.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Saturation {
    /// The share of writes it was measured with.
    pub write_share: Probability,
    /// Requests per second of the whole data centre.
    pub load: Rate,
}

/// The profile of one data centre for one class of request sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// How many servers it had.
    pub servers: NonZeroU32,
    /// In any order; steps of equal write share make one curve, and steps of equal load and write
    /// share are taken together.
    pub steps: Vec<LoadStep>,
    /// Where it was reached. Without it a write share counts as saturated at its last load step:
    /// what nobody measured is not promised.
    pub saturations: Vec<Saturation>,
}

/// Why numbers are no profile.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("profile, {place}: {source}")]
pub struct ProfileError {
    /// Where: `step 3`, `saturation 0`, `write share 0.5`, …
    pub place: String,
    /// What came there and what was expected.
    pub source: OutOfRange,
}

impl ProfileError {
    pub(super) fn new(place: impl Into<String>, came: f64, expected: &'static str) -> Self {
        Self { place: place.into(), source: OutOfRange { came, expected } }
    }
}

impl LoadStep {
    /// How many requests were sent.
    pub fn requests(&self) -> u64 {
        let answered = self.latencies.iter().map(|bucket| bucket.count);
        answered.fold(self.unanswered, u64::saturating_add)
    }
}

impl Profile {
    pub(super) fn check(&self) -> Result<(), ProfileError> {
        if !(1..=STEPS_MAX).contains(&self.steps.len()) {
            let expected = "1 to 4096 load steps";
            return Err(ProfileError::new("steps", self.steps.len() as f64, expected));
        }
        for (index, step) in self.steps.iter().enumerate() {
            if step.requests() == 0 {
                let expected = "at least one request (was the step cut short?)";
                return Err(ProfileError::new(format!("step {index}"), 0.0, expected));
            }
        }
        for (index, saturation) in self.saturations.iter().enumerate() {
            self.check_saturation(index, saturation)?;
        }
        Ok(())
    }

    fn check_saturation(&self, index: usize, of: &Saturation) -> Result<(), ProfileError> {
        let place = format!("saturation {index}");
        if of.load.value() <= 0.0 {
            return Err(ProfileError::new(place, of.load.value(), "a load above zero"));
        }
        if !self.steps.iter().any(|step| step.write_share == of.write_share) {
            let expected = "the write share of a load step";
            return Err(ProfileError::new(place, of.write_share.value(), expected));
        }
        let same_share = |other: &&Saturation| other.write_share == of.write_share;
        if self.saturations.iter().filter(same_share).count() > 1 {
            let expected = "each write share once";
            return Err(ProfileError::new(place, of.write_share.value(), expected));
        }
        Ok(())
    }
}
