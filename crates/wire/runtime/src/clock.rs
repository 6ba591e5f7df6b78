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
    is_virtual: bool,
}

impl Clock {
    /// A clock that shows [`Instant::ZERO`].
    pub fn start() -> Clock {
        Clock { began: std::time::Instant::now(), is_virtual: false }
    }

    /// A clock that shows [`Instant::ZERO`] and follows tokio's time, which tests can pause and
    /// move. Without a pause it goes like any other.
    pub fn virtual_time() -> Clock {
        Clock { began: tokio::time::Instant::now().into_std(), is_virtual: true }
    }

    pub(crate) const fn is_virtual(&self) -> bool {
        self.is_virtual
    }

    /// The present.
    pub fn now(&self) -> Instant {
        let now = match self.is_virtual {
            true => tokio::time::Instant::now().into_std(),
            false => std::time::Instant::now(),
        };
        Instant::ZERO + now.duration_since(self.began)
    }

    /// The same moment on the machine's clock, for `Timer::at`.
    ///
    /// What the machine's clock cannot show (such as [`Instant::FAR`]) becomes a moment thirty
    /// years from the beginning.
    pub fn std_instant(&self, at: Instant) -> std::time::Instant {
        const THIRTY_YEARS: Duration = Duration::from_secs(30 * 365 * 86_400);
        let after = at.since(Instant::ZERO).min(THIRTY_YEARS);
        self.began.checked_add(after).unwrap_or(self.began)
    }
}

/// CPU time, user and system, that the calling thread has used since it began.
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
