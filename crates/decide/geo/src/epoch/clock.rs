//! The epoch it is, from a clock that is shared, drifts and sometimes jumps.
//!
//! **Signal**: the wall clock, since epochs are numbered alike everywhere without a word being
//! exchanged: epoch = floor(unix time / period). **When it misleads**: when it is stepped (a leap
//! second, a machine that slept, an operator). Then the steady clock of the process says so: the
//! two advance alike within the bound of the offset, or one of them was stepped. A step is ridden
//! through on the steady clock for two epochs; a clock that is set right again within that time
//! has done nothing. After that the wall clock is believed: all sites that were stepped together
//! move together, and one that was stepped alone is alone, which the others see as its silence.

use evenkeel_core::time::{Duration, Instant, nanos};

/// Epochs for which a step of the wall clock is not believed.
const RIDDEN_EPOCHS: u64 = 2;

/// A wall clock without small jumps.
#[derive(Clone, Debug)]
pub struct EpochClock {
    period_ns: u64,
    tolerance_ns: u64,
    /// Both clocks, when they were last believed.
    anchor: Option<(Instant, u64)>,
    stepped_at: Option<Instant>,
    steps: u64,
}

impl EpochClock {
    /// A clock for epochs of `period`, whose wall clock is within `offset_max` of the true time.
    pub fn new(period: Duration, offset_max: Duration) -> Self {
        Self {
            period_ns: nanos(period).max(1),
            // From one end of the bound to the other is no step yet.
            tolerance_ns: nanos(offset_max).saturating_mul(2),
            anchor: None,
            stepped_at: None,
            steps: 0,
        }
    }

    /// Unix time in nanoseconds, from the steady clock of the process and the wall clock.
    pub fn read(&mut self, now: Instant, unix_ns: u64) -> u64 {
        let Some((at, anchor_ns)) = self.anchor else {
            self.anchor = Some((now, unix_ns));
            return unix_ns;
        };
        let expected_ns = anchor_ns.saturating_add(now.nanos_since(at));
        if unix_ns.abs_diff(expected_ns) <= self.tolerance_ns {
            self.stepped_at = None;
        } else {
            let since = *self.stepped_at.get_or_insert(now);
            if now.nanos_since(since) < RIDDEN_EPOCHS * self.period_ns {
                return expected_ns;
            }
            self.stepped_at = None;
            self.steps += 1;
        }
        self.anchor = Some((now, unix_ns));
        unix_ns
    }

    /// The epoch of a unix time.
    pub const fn epoch(&self, unix_ns: u64) -> u64 {
        unix_ns / self.period_ns
    }

    /// The unix time in nanoseconds at which an epoch begins.
    pub const fn start_ns(&self, epoch: u64) -> u64 {
        epoch.saturating_mul(self.period_ns)
    }

    /// Steps of the wall clock that were believed.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether it rides through a step.
    #[cfg(test)]
    pub const fn is_riding(&self) -> bool {
        self.stepped_at.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_790_000_000 * SECOND;

    fn clock() -> EpochClock {
        EpochClock::new(Duration::from_millis(2_500), Duration::from_millis(10))
    }

    /// Reads once a second; the wall clock is ahead by what `step` says at each second.
    fn read(clock: &mut EpochClock, seconds: core::ops::Range<u64>, ahead_ns: i64) -> Vec<i64> {
        let read = |second: u64| {
            let truth = START + second * SECOND;
            let wall = truth.checked_add_signed(ahead_ns).unwrap();
            let steady = Instant::from_nanos(7 + second * SECOND);
            i64::try_from(i128::from(clock.read(steady, wall)) - i128::from(truth)).unwrap()
        };
        seconds.map(read).collect()
    }

    #[test]
    fn a_clock_within_its_bound_is_followed() {
        let mut clock = clock();
        assert_eq!(read(&mut clock, 0..3, 0), [0; 3]);
        assert_eq!(read(&mut clock, 3..5, 9_000_000), [9_000_000; 2]);
        assert_eq!(read(&mut clock, 5..7, -10_000_000), [-10_000_000; 2]);
        assert_eq!((clock.steps(), clock.is_riding()), (0, false));
    }

    #[test]
    fn a_step_that_is_taken_back_has_done_nothing() {
        for ahead in [1, -1, 3_600, -3_600] {
            let mut clock = clock();
            assert_eq!(read(&mut clock, 0..3, 0), [0; 3]);
            assert_eq!(read(&mut clock, 3..8, ahead * SECOND as i64), [0; 5]);
            assert!(clock.is_riding());
            assert_eq!(read(&mut clock, 8..10, 0), [0; 2]);
            assert_eq!((clock.steps(), clock.is_riding()), (0, false));
        }
    }

    #[test]
    fn a_step_that_stays_is_believed_after_two_epochs() {
        let mut clock = clock();
        read(&mut clock, 0..3, 0);
        let second = SECOND as i64;
        assert_eq!(read(&mut clock, 3..10, second), [0, 0, 0, 0, 0, second, second]);
        assert_eq!(clock.steps(), 1);
    }

    #[test]
    fn epochs_are_numbered_from_1970() {
        let clock = clock();
        assert_eq!(clock.epoch(START), 1_790_000_000 * 2 / 5);
        assert_eq!(clock.start_ns(clock.epoch(START + 1_234)), START);
    }
}
