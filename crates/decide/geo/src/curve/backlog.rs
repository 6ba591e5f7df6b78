//! The queue that an overload leaves behind: it makes requests late at a load that harms nobody.
//!
//! After periods in which most requests were late, requests at a lower load are late because of
//! those that came before. How long, nobody tells: after twice the load that can be served, and
//! half of it since, it takes twice the time of the overload. So much is left to it.
//!
//! **When it misleads.** A site that is late at any load is taken for one with a queue for a
//! minute. Who gets slower in the very moment in which the load falls is found so much later. An
//! overload that was not seen, such as one of other users, leaves a queue that looks like less
//! speed. So does one that comes again before hardly anybody was late: the time is not renewed.

use evenkeel_core::time::Duration;

/// A load below this share of that of the overload is one that lets a queue go.
const FALLEN: f64 = 0.9;
/// Late requests, one in so many, with which there is no queue left.
const GONE: u64 = 20;
/// So many times as long as the overload a queue may last, and how long it is believed in at most,
/// until hardly anybody is late.
const DRAINS: u32 = 2;
const DRAINS_MAX: Duration = Duration::from_secs(60);

/// What is known of the queue at a site.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Backlog {
    /// For how long most requests were late, and the highest load of that time.
    overloaded: Duration,
    load: f64,
    /// For how long requests were late at a lower load since.
    drained: Duration,
}

impl Backlog {
    /// None.
    pub(super) const NONE: Self =
        Self { overloaded: Duration::ZERO, load: 0.0, drained: Duration::ZERO };

    /// Takes over a period of this length and load, in which so many requests ended and so many of
    /// them were late; whether they may have been so for the periods before it.
    pub(super) fn is_felt(
        &mut self,
        over: Duration,
        load: f64,
        [requests, missed]: [u64; 2],
    ) -> bool {
        if missed.saturating_mul(GONE) <= requests {
            *self = Self::NONE;
            return false;
        }
        let drained = self.drained.saturating_add(over);
        if load < FALLEN * self.load && drained <= (self.overloaded * DRAINS).min(DRAINS_MAX) {
            self.drained = drained;
            return true;
        }
        if missed > requests / 2 {
            self.overloaded = self.overloaded.saturating_add(over);
            self.load = self.load.max(load);
        }
        false
    }
}
