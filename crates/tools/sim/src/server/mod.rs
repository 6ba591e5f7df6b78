//! A replica: its life and death, and one of two ways of serving.
//!
//! | discipline | what it is | whose world |
//! |---|---|---|
//! | [`Slots`] | a queue in front of slots | data stores (C3) |
//! | [`Sharing`] | all requests share the cores | application servers (brownout) |

mod sharing;
mod slots;

use evenkeel_core::{Duration, Feedback, Instant};

pub use sharing::Sharing;
pub use slots::{Slots, done_at};

/// A job's number in the world's table of jobs.
pub type JobId = u32;

/// How a replica serves.
#[derive(Clone, Debug)]
pub enum Discipline {
    /// First in, first out, in slots.
    Slots(Slots),
    /// All at once, on shared cores.
    Sharing(Sharing),
}

/// Shares of a replica's requests that something befalls, whatever its speed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ills {
    /// Answered at once with an error.
    pub fail: f64,
    /// Never answered.
    pub hang: f64,
    /// Answered with a body that breaks off.
    pub break_off: f64,
    /// Answered with a body that stands still.
    pub stall: f64,
}

/// A replica.
#[derive(Clone, Debug)]
pub struct Server {
    /// How it serves.
    pub discipline: Discipline,
    is_alive: bool,
    /// What befalls requests there.
    pub ills: Ills,
    /// Grows with every crash: jobs of an earlier life are lost.
    life: u32,
}

impl Server {
    /// A replica that lives and serves like this.
    pub fn new(discipline: Discipline) -> Self {
        Self { discipline, is_alive: true, ills: Ills::default(), life: 0 }
    }

    /// Mean service time of a request that starts now and has the replica for itself.
    #[inline]
    pub fn mean(&self) -> Duration {
        match &self.discipline {
            Discipline::Slots(slots) => slots.mean(),
            Discipline::Sharing(sharing) => sharing.mean(),
        }
    }

    /// Requests present.
    #[inline]
    pub fn load(&self) -> u32 {
        match &self.discipline {
            Discipline::Slots(slots) => slots.load(),
            Discipline::Sharing(sharing) => sharing.load(),
        }
    }

    /// What it reports about itself to a request that took `service_time`.
    #[inline]
    pub fn feedback(&self, now: Instant, service_time: Duration) -> Feedback {
        match &self.discipline {
            Discipline::Slots(slots) => slots.feedback(now, service_time),
            Discipline::Sharing(sharing) => sharing.feedback(now, service_time),
        }
    }

    /// When a request that arrives now can start.
    #[inline]
    pub fn starts_at(&self, now: Instant) -> Instant {
        match &self.discipline {
            Discipline::Slots(slots) => slots.starts_at(now),
            Discipline::Sharing(sharing) => sharing.works_at(now),
        }
    }

    /// Makes it `factor` times as fast as `base`, the mean service time it was made with.
    pub fn fluctuate(&mut self, now: Instant, base: Duration, factor: f64) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.set_mean(base.div_f64(factor)),
            Discipline::Sharing(sharing) => sharing.set_fluctuation(now, factor),
        }
    }

    /// Degrades it by a factor; 1 ends it.
    pub fn slow(&mut self, now: Instant, factor: f64) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.set_slowdown(factor),
            Discipline::Sharing(sharing) => sharing.set_slowdown(now, factor),
        }
    }

    /// Stops everything on it for a while; overlapping pauses end at the later end.
    pub fn pause(&mut self, now: Instant, length: Duration) {
        match &mut self.discipline {
            Discipline::Slots(slots) => slots.pause(now, length),
            Discipline::Sharing(sharing) => sharing.pause(now, length),
        }
    }

    /// Whether it answers at all.
    pub const fn is_alive(&self) -> bool {
        self.is_alive
    }

    /// How often it has died.
    pub const fn life(&self) -> u32 {
        self.life
    }

    /// It dies; what is on it must be taken from its discipline.
    pub const fn die(&mut self) {
        self.is_alive = false;
        self.life += 1;
    }

    /// It comes back, empty.
    pub const fn restore(&mut self) {
        self.is_alive = true;
    }
}
