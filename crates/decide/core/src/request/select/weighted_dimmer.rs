//! `weighted-dimmer`: at random, by weights that follow the dimmers (Dürango et al., CDC 2014).
//!
//! Every `period_s` a weight moves with the change of its replica's dimmer since the last time:
//! w ← max(w + gain·ΔΘ, `weight_min`), and then all are scaled to a sum of 1. A replica whose
//! dimmer stays at 1 has room to spare that no change would show; it is taken to have risen by
//! 0.01.
//!
//! The baseline that the queue offsets were measured against (`theta-diff` in the authors'
//! simulator, whose constants these are). **Signal**: dimmers alone. **When it misleads**: between
//! periods and answers nothing is known of a replica that stalls or hangs, and by chance one gets
//! several requests while another idles. **Cold start**: equal weights and dimmers of 0.5, anew
//! whenever replicas join, leave or change health; a replica that never tells a dimmer keeps its
//! weight but for the scaling.

use crate::fleet::{Fleet, Health, ReplicaId};
use crate::request::call::{Attempt, Outcome};
use crate::request::select::{Candidates, Choice, Selector, same_kind};
use crate::rng::Rng;
use crate::time::{Duration, Instant};

/// The constants.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedDimmerConfig {
    /// Weight gained per change of the dimmer by 1: 0.25.
    pub gain: f64,
    /// Time between two changes of the weights, in seconds: 1.
    pub period_s: f64,
    /// The lowest weight before scaling: 0.01.
    pub weight_min: f64,
}

impl Default for WeightedDimmerConfig {
    fn default() -> Self {
        Self { gain: 0.25, period_s: 1.0, weight_min: 0.01 }
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    weight: f64,
    dimmer: f64,
    /// The dimmer at the last change of weights.
    dimmer_before: f64,
    health: Health,
}

/// Random by weights that follow the dimmers.
#[derive(Clone, Debug)]
pub struct WeightedDimmer {
    config: WeightedDimmerConfig,
    period: Duration,
    slots: Vec<Slot>,
    due: Instant,
}

/// The weight after one period, before scaling.
fn moved(slot: &Slot, config: &WeightedDimmerConfig) -> f64 {
    let stays_full = slot.dimmer == 1.0 && slot.dimmer_before == 1.0;
    let change = if stays_full { 0.01 } else { slot.dimmer - slot.dimmer_before };
    (slot.weight + config.gain * change).max(config.weight_min)
}

impl WeightedDimmer {
    const DIMMER_INITIAL: f64 = 0.5;
    /// After a silence so many periods are made up for.
    const PERIODS_MAX: u32 = 60;

    /// With these constants.
    pub fn new(config: WeightedDimmerConfig) -> Self {
        let period = Duration::from_secs_f64(config.period_s);
        Self { config, period, slots: Vec::new(), due: Instant::ZERO + period }
    }

    /// Changes the weights for the periods that are over.
    #[inline]
    fn catch_up(&mut self, now: Instant) {
        let mut periods = 0;
        while now >= self.due {
            self.change_weights();
            self.due += self.period;
            periods += 1;
            if periods == Self::PERIODS_MAX {
                self.due = now + self.period;
            }
        }
    }

    fn change_weights(&mut self) {
        let mut sum = 0.0;
        for slot in &mut self.slots {
            slot.weight = moved(slot, &self.config);
            slot.dimmer_before = slot.dimmer;
            sum += slot.weight;
        }
        self.slots.iter_mut().for_each(|slot| slot.weight /= sum);
    }

    fn begin_anew(&mut self) {
        let weight = 1.0 / self.slots.len() as f64;
        let dimmer = Self::DIMMER_INITIAL;
        for slot in &mut self.slots {
            *slot = Slot { weight, dimmer, dimmer_before: dimmer, health: slot.health };
        }
    }
}

impl Selector for WeightedDimmer {
    fn name(&self) -> &'static str {
        "weighted-dimmer"
    }

    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        self.catch_up(now);
        let weight = |id: ReplicaId| self.slots[id.index()].weight;
        let sum: f64 = candidates.ids.iter().map(|&id| weight(id)).sum();
        let mut left = rng.unit() * sum;
        for &id in candidates.ids {
            left -= weight(id);
            if left < 0.0 {
                return Choice::Send(id);
            }
        }
        // Only by rounding.
        Choice::Send(candidates.ids[candidates.ids.len() - 1])
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, fleet: &Fleet) {
        self.catch_up(now);
        if let (Outcome::Replied(_), Some((dimmer, _))) =
            (outcome, fleet.replica(of.replica()).dimmer())
        {
            self.slots[of.replica().index()].dimmer = dimmer.value();
        }
    }

    fn on_reassigned(&mut self, now: Instant, _replica: ReplicaId, _fleet: &Fleet) {
        self.catch_up(now);
        self.begin_anew();
    }

    fn inherit(&mut self, now: Instant, before: &mut dyn Selector) {
        if let Some(before) = same_kind::<Self>(before) {
            before.catch_up(now);
            self.slots = core::mem::take(&mut before.slots);
            self.due = before.due.min(now + self.period);
        }
    }

    fn on_membership(&mut self, now: Instant, fleet: &Fleet) {
        self.catch_up(now);
        let mut changed = self.slots.len() != fleet.len();
        let empty = Slot { weight: 0.0, dimmer: 0.0, dimmer_before: 0.0, health: Health::Up };
        self.slots.resize(fleet.len(), empty);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let health = fleet.replica(ReplicaId::new(index)).health();
            changed |= slot.health != health;
            slot.health = health;
        }
        if changed {
            self.begin_anew();
        }
    }
}
