//! Whether a replica that owes replies says nothing.
//!
//! **Signal**: the time since a replica was last heard while at least one attempt waited for its
//! reply, beside the slowest of its recent replies. **Why not failures alone**: a replica that
//! stands still fails nothing until the first attempt times out, and until then looks no worse
//! than busy. **When it misleads**: a request much slower than all before it, alone at its replica,
//! looks like silence; others then go elsewhere until it is answered, which costs balance and no
//! answer. **Cold start**: a replica that never replied is measured by the slowest reply of all,
//! and given more time, as it may be cold; where nobody ever replied nobody is silent.
//! **Recovery**: whatever it says ends the silence. Where nothing is owed any more (its attempts
//! timed out or were given up) a request is tried now and then, and another replica is asked beside
//! it in time.

use crate::time::{Duration, Instant, nanos};

/// How many times longer than its slowest recent reply a replica may say nothing.
const TIMES_SLOWEST: u32 = 4;
/// How many times longer than others one is given that never replied, at the least.
const TIMES_COLD: u32 = 5;
/// What each reply takes off the slowest known: half within 355 replies, so that what is left is
/// near their 99.8th percentile.
const FORGET: u64 = 512;

/// What a replica owes and when it was heard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Silence {
    /// Attempts that nothing was learnt of yet.
    owed: u32,
    /// When it was last heard, or began to owe again.
    since: Instant,
    slowest_ns: u64,
    /// How long it may say nothing before its first reply; zero while nobody knows.
    cold: Duration,
    is_silent: bool,
    /// Trials in this silence, and when there may be the next.
    trials: u32,
    trial_at: Instant,
}

impl Silence {
    pub(crate) const fn new() -> Self {
        Self {
            owed: 0,
            since: Instant::ZERO,
            slowest_ns: 0,
            cold: Duration::ZERO,
            is_silent: false,
            trials: 0,
            trial_at: Instant::ZERO,
        }
    }

    #[inline]
    pub(crate) fn sent(&mut self, now: Instant) {
        if self.owed == 0 {
            self.since = now;
        }
        self.owed += 1;
    }

    /// A reply came after this time.
    #[inline]
    pub(crate) fn replied(&mut self, now: Instant, latency_ns: u64) {
        self.heard(now);
        self.slowest_ns = latency_ns.max(self.slowest_ns - self.slowest_ns / FORGET);
    }

    /// An attempt ended with an error or a broken connection: it says something, if not well.
    #[inline]
    pub(crate) fn heard(&mut self, now: Instant) {
        self.given_up();
        self.since = now;
        (self.is_silent, self.trials) = (false, 0);
    }

    /// Somebody else says that it is well.
    pub(crate) fn excuse(&mut self, now: Instant) {
        (self.is_silent, self.trials, self.since) = (false, 0, now);
    }

    /// Nobody waits for an attempt any more.
    #[inline]
    pub(crate) fn given_up(&mut self) {
        assert!(self.owed > 0, "an attempt is learnt from once");
        self.owed -= 1;
    }

    /// When it was last heard, or began to owe replies again.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    /// The slowest of its recent replies; zero where it never replied.
    pub(crate) const fn slowest(&self) -> Duration {
        Duration::from_nanos(self.slowest_ns)
    }

    /// Says how long the slowest recent reply of all took: what one is measured by that never
    /// replied.
    pub(crate) fn compare(&mut self, slowest: Duration, least: Duration) {
        if self.slowest_ns == 0 && slowest > Duration::ZERO {
            self.cold = slowest.saturating_mul(TIMES_SLOWEST).max(least * TIMES_COLD);
        }
    }

    /// How long it may say nothing; `None` where nobody knows.
    pub(crate) fn limit(&self, least: Duration) -> Option<Duration> {
        self.limit_ns(least).map(Duration::from_nanos)
    }

    /// The same in nanoseconds: each copy asks for it, and durations cost divisions.
    #[inline]
    fn limit_ns(&self, least: Duration) -> Option<u64> {
        match (self.slowest_ns, self.cold) {
            (0, Duration::ZERO) => None,
            (0, cold) => Some(nanos(cold)),
            (slowest, _) => Some(slowest.saturating_mul(TIMES_SLOWEST.into()).max(nanos(least))),
        }
    }

    /// When it is silent, unless it says something before; `None` where it owes nothing or nobody
    /// knows.
    #[inline]
    pub(crate) fn due(&self, least: Duration) -> Option<Instant> {
        if self.owed == 0 { None } else { Some(self.since.plus_nanos(self.limit_ns(least)?)) }
    }

    /// Whether it owes replies and has said nothing for half of that time: it may be silent, too.
    pub(crate) fn is_quiet(&self, now: Instant, least: Duration) -> bool {
        self.owed > 0 && now >= self.since + self.limit(least).unwrap_or(least) / 2
    }

    /// Whether it owes replies and has said nothing for too long; or when that will be so.
    pub(crate) fn look(&mut self, now: Instant, least: Duration) -> Option<Instant> {
        let due = self.due(least).filter(|_| !self.is_silent)?;
        if now < due {
            return Some(due);
        }
        (self.is_silent, self.trial_at) = (true, now);
        None
    }

    pub(crate) const fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Whether it may be given a request, silent as it is.
    pub(crate) fn may_be_tried(&self, now: Instant) -> bool {
        self.owed == 0 && now >= self.trial_at
    }

    /// A request is sent to it on trial; the next one at the earliest after twice the time.
    pub(crate) fn try_it(&mut self, now: Instant, base: Duration, longest: Duration) {
        if !self.is_silent {
            return; // on trial for what it failed
        }
        let doubled = base.saturating_mul(1 << self.trials.min(20));
        self.trials = self.trials.saturating_add(1);
        self.trial_at = now + doubled.min(longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// Heard at 50 ms after a reply of that many.
    fn replied(slowest_ms: u64) -> Silence {
        let mut silence = Silence::new();
        silence.sent(at(0));
        silence.replied(at(50), slowest_ms * 1_000_000);
        silence
    }

    #[test]
    fn silence_is_four_times_the_slowest_reply_or_the_least() {
        for (slowest, limit) in [(5, 100), (25, 100), (40, 160)] {
            let mut silence = replied(slowest);
            assert_eq!(silence.look(at(9_000), LEAST), None, "it owes nothing");
            silence.sent(at(10_000));
            assert_eq!(silence.look(at(10_000), LEAST), Some(at(10_000 + limit)));
            assert_eq!(silence.look(at(10_000 + limit), LEAST), None);
            assert!(silence.is_silent());
        }
    }

    #[test]
    fn whatever_it_says_ends_the_silence_and_what_is_given_up_does_not() {
        let mut silence = replied(5);
        (0..3).for_each(|n| silence.sent(at(1_000 + n)));
        let _ = silence.look(at(2_000), LEAST);
        silence.given_up();
        assert!(silence.is_silent());
        silence.heard(at(2_100));
        assert!(!silence.is_silent());
        assert_eq!(silence.look(at(2_150), LEAST), Some(at(2_200)), "one is still owed");
    }

    #[test]
    fn one_that_never_replied_is_measured_by_others() {
        for (slowest, limit) in [(5, 500), (200, 800)] {
            let mut silence = Silence::new();
            silence.sent(at(0));
            silence.compare(Duration::ZERO, LEAST);
            assert_eq!(silence.look(at(100_000), LEAST), None);
            assert!(!silence.is_silent(), "nobody ever replied");
            silence.compare(Duration::from_millis(slowest), LEAST);
            assert_eq!(silence.look(at(limit - 1), LEAST), Some(at(limit)));
            assert!(silence.look(at(limit), LEAST).is_none() && silence.is_silent());
        }
    }

    #[test]
    fn trials_are_single_and_ever_rarer() {
        let mut silence = replied(5);
        silence.sent(at(1_000));
        let _ = silence.look(at(2_000), LEAST);
        assert!(!silence.may_be_tried(at(2_000)), "it owes a reply");
        silence.given_up();
        let second = Duration::from_secs(1);
        let mut now = at(2_000);
        for wait in [1, 2, 4, 4] {
            assert!(silence.may_be_tried(now));
            silence.try_it(now, second, 4 * second);
            silence.sent(now);
            assert!(!silence.may_be_tried(now + 100 * second), "one at a time");
            silence.given_up();
            let next = now + wait * second;
            assert!(!silence.may_be_tried(now + (wait * second - LEAST)));
            now = next;
        }
    }

    #[test]
    fn a_slow_reply_is_forgotten_within_some_hundred() {
        let mut silence = replied(1_000);
        for _ in 0..3_000 {
            silence.sent(at(100));
            silence.replied(at(101), 1_000_000);
        }
        assert_eq!(silence.limit(LEAST), Some(LEAST));
    }
}
