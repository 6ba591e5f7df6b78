//! Time as data: core never reads a clock, it is told what time it is.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
pub use core::time::Duration;

/// A point in time: nanoseconds since the run (process or simulation) began.
///
/// A plain number, so that runs print, serialise, compare and replay identically.
/// The range is 584 years; arithmetic saturates at the ends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The beginning of the run.
    pub const ZERO: Self = Self(0);
    /// Later than anything that happens.
    pub const FAR: Self = Self(u64::MAX);

    /// The instant `nanos` nanoseconds after the run began.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The instant `millis` milliseconds after the run began.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The instant `seconds` seconds after the run began; negative and NaN become zero.
    pub fn from_secs_f64(seconds: f64) -> Self {
        Self((seconds * 1e9) as u64)
    }

    /// Nanoseconds since the run began.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the run began.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time passed since `earlier`; zero when `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Nanoseconds passed since `earlier`; zero when it is later. Unlike [`Instant::since`] it
    /// costs no division.
    #[inline]
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Milliseconds passed since `earlier`, as a float for estimators; zero when it is later.
    #[inline]
    pub fn millis_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-6
    }

    /// The instant `duration` earlier, at the earliest zero.
    #[inline]
    #[must_use]
    pub const fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }

    /// The instant `nanos` later.
    #[inline]
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;
    #[inline]
    fn add(self, later: Duration) -> Self {
        self.plus_nanos(nanos(later))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, later: Duration) {
        *self = *self + later;
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

/// A duration in whole nanoseconds, saturating at 584 years.
#[inline]
pub const fn nanos(duration: Duration) -> u64 {
    // Wrapping cannot happen below 584 years; as_nanos() would cost a 128-bit multiplication.
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

/// A duration in milliseconds, as a float for estimators.
#[inline]
pub fn millis(duration: Duration) -> f64 {
    nanos(duration) as f64 * 1e-6
}

/// The duration of `millis` milliseconds; negative and NaN become zero.
#[inline]
pub fn from_millis_f64(millis: f64) -> Duration {
    Duration::from_nanos((millis * 1e6) as u64)
}

/// When to wake up, and why. Every wake-up of a driver carries its reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline {
    /// The moment to wake up at.
    pub at: Instant,
    /// What is due then.
    pub why: Why,
}

/// The reason of a [`Deadline`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// A further copy of a request may be sent (a hedge).
    Hedge,
    /// A sending rate opens: a held call may be sent.
    RateOpens,
    /// A duplicate that owes an answer has been silent for long.
    Silence,
    /// Answers to questions are not waited for any longer.
    Probes,
}

impl Deadline {
    /// The earlier of two deadlines that may be absent.
    pub fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Instant::ZERO.since(Instant::from_millis(5)), Duration::ZERO);
        assert_eq!(Instant::FAR + Duration::from_secs(1), Instant::FAR);
        assert_eq!(nanos(Duration::MAX), u64::MAX);
        assert_eq!(Instant::from_secs_f64(-1.0), Instant::ZERO);
        assert_eq!(from_millis_f64(f64::NAN), Duration::ZERO);
    }

    #[test]
    fn debug_prints_seconds() {
        assert_eq!(format!("{:?}", Instant::from_millis(1_500)), "1.500000000s");
    }
}
