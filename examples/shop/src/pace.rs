//! A slower machine than this one, for the threads that do the work.
//!
//! Several replicas on one computer share its cores: when one is idle the others run faster, which
//! replicas on machines of their own never do. With a speed S below 1 a piece of work that took c
//! seconds of *its thread's CPU time* holds the thread for c/S seconds, so that a replica's
//! capacity is its own as long as the real cores are not the limit.
//!
//! CPU time and not time on the wall, because waiting for a core is the crowd's doing and must not
//! count twice. What this does not show: the work's CPU time itself grows when neighbours evict
//! its caches; parsing and sending HTTP are not slowed; a slow machine's memory is as fast as ours.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// A sleep ends a little late. Up to this much is taken off the next piece, else a replica of many
/// small pieces would lose a tenth of its capacity; more would let a thread that was stopped for
/// a while make up for it in a burst.
const LATENESS_MAX: Duration = Duration::from_millis(1);

/// The CPU time that the calling thread has used so far.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's CPU time is not negative")
}

/// When the slower machine is done, piece after piece. One for each thread.
#[derive(Debug)]
pub(crate) struct Pace {
    free_at: Instant,
}

impl Pace {
    /// `now` is when the thread begins to take work.
    pub(crate) fn new(now: Instant) -> Self {
        Self { free_at: now }
    }

    /// When a piece is done that came at `since`, was begun at `begun` and takes so long.
    pub(crate) fn done_at(&mut self, since: Instant, begun: Instant, length: Duration) -> Instant {
        let earliest = begun.checked_sub(LATENESS_MAX).unwrap_or(begun);
        let start = self.free_at.max(since).max(earliest).min(begun);
        self.free_at = start + length;
        self.free_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::Speed;

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn at_full_speed_nothing_is_held() {
        assert_eq!(Speed::FULL.slowed(ms(5)), None);
        assert_eq!("0.1".parse::<Speed>().unwrap().slowed(ms(5)), Some(ms(50)));
    }

    #[test]
    fn pieces_in_line_end_one_after_the_other_in_spite_of_late_sleeps() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let mut woken = start;
        for piece in 1..=50 {
            let done = pace.done_at(start, woken, ms(10));
            assert_eq!(done, start + ms(10) * piece);
            woken = done + Duration::from_micros(300);
        }
    }

    #[test]
    fn idle_and_stopped_time_is_not_made_up_for() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        let later = start + ms(1_000);
        assert_eq!(pace.done_at(later, later, ms(20)), later + ms(20));
        // The process was stopped for five seconds while a second piece waited.
        let resumed = later + ms(5_000);
        assert_eq!(pace.done_at(later, resumed, ms(20)), resumed + ms(19));
    }
}
