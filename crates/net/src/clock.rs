//! The process's clock: the only place where core's instants meet the machine's.

use std::time::Duration;

use evenkeel_core::Instant;

/// Tells the time since the process began, on the machine's monotonic clock.
///
/// Copies agree with each other, so that every worker of a process shares one time line. It never
/// goes back; it stands still while the machine sleeps, and knows nothing of the time of day.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: std::time::Instant,
}

impl Clock {
    /// A clock that shows [`Instant::ZERO`].
    #[must_use]
    pub fn start() -> Clock {
        Clock { began: std::time::Instant::now() }
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    /// The same moment on the machine's clock, for [`Timer::at`](crate::timer::Timer::at).
    ///
    /// What the machine's clock cannot show (such as [`Instant::FAR`]) becomes a moment thirty
    /// years from the beginning.
    #[must_use]
    pub fn std_instant(&self, at: Instant) -> std::time::Instant {
        const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 86_400);
        let after = at.since(Instant::ZERO).min(THIRTY_YEARS);
        self.began.checked_add(after).unwrap_or(self.began)
    }
}

/// CPU time, user and system, that the calling thread has used since it began.
#[must_use]
pub fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_show_the_same_moment() {
        let clock = Clock::start();
        let before = std::time::Instant::now();
        let now = clock.std_instant(clock.now());
        let after = std::time::Instant::now();
        assert!(before <= now && now <= after);
        let later = Instant::ZERO + Duration::from_millis(7);
        let passed = clock.std_instant(later).duration_since(clock.std_instant(Instant::ZERO));
        assert_eq!(passed, Duration::from_millis(7));
    }

    #[test]
    fn the_end_of_time_is_a_moment_far_ahead() {
        let clock = Clock::start();
        let year = Duration::from_secs(365 * 86_400);
        assert!(clock.std_instant(Instant::FAR) > std::time::Instant::now() + 29 * year);
    }
}
