//! Whether a response body still comes, while its replica is waited for.
//!
//! The time limit is divided into four ticks. A body has stalled when the last four together
//! brought too little, so a stall is seen after one limit at the earliest and a quarter more at
//! the latest, for one timer per body that ever waits and nothing per piece. Nobody looks while
//! the client takes nothing: a slow client is no stall.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use evenkeel_runtime::limits::BodyLimits;
use tokio::time::{Instant, Sleep, sleep};

use super::body::Upload;

const TICKS: usize = 4;

/// The progress of one response body.
pub(super) struct Stall {
    limits: BodyLimits,
    /// Of a request that may still be on its way: a server that reads it may well be silent.
    upload: Option<Upload>,
    /// `None` until the body is waited for.
    tick: Option<Pin<Box<Sleep>>>,
    ticks: usize,
    bytes: [u64; TICKS],
    uploaded: u64,
}

impl Stall {
    pub(super) fn new(limits: BodyLimits, upload: Option<Upload>) -> Self {
        Self { limits, upload, tick: None, ticks: 0, bytes: [0; TICKS], uploaded: 0 }
    }

    pub(super) fn limits(&self) -> BodyLimits {
        self.limits
    }

    /// A piece came.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes[self.ticks % TICKS] += bytes as u64;
    }

    /// There is nothing to pass on. Ready when that has been so for too long.
    pub(super) fn poll_wait(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let period = (self.limits.idle / TICKS as u32).max(Duration::from_millis(1));
        loop {
            let tick = self.tick.get_or_insert_with(|| Box::pin(sleep(period)));
            std::task::ready!(tick.as_mut().poll(cx));
            if self.has_stalled() {
                return Poll::Ready(());
            }
            // From now on, not from when it was due: the time a slow client took does not count.
            self.tick.iter_mut().for_each(|tick| tick.as_mut().reset(Instant::now() + period));
        }
    }

    /// Ends a tick. If it is a client that does not go on with its request, that is noted.
    fn has_stalled(&mut self) -> bool {
        let uploaded = self.upload.as_ref().map_or(0, Upload::bytes);
        self.moved((uploaded - self.uploaded) as usize);
        self.uploaded = uploaded;
        let moved: u64 = self.bytes.iter().sum();
        self.ticks += 1;
        self.bytes[self.ticks % TICKS] = 0;
        let wanted = self.limits.rate_min as f64 * self.limits.idle.as_secs_f64();
        let has_stalled = self.ticks >= TICKS && (moved as f64) < wanted.max(1.0);
        if has_stalled {
            let waits = self.upload.iter().filter(|upload| upload.waits_for_client());
            waits.for_each(Upload::break_off);
        }
        has_stalled
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const IDLE: Duration = Duration::from_secs(8);

    /// Runs a test in virtual time.
    fn virtual_time(test: impl Future<Output = ()>) {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_time().start_paused(true).build().unwrap().block_on(test);
    }

    /// When a body stalls of which so many bytes come every so often, within the hour.
    async fn stalls_after(rate_min: u64, piece: usize, period: Duration) -> Option<Duration> {
        let mut stall =
            Stall::new(BodyLimits { idle: IDLE, rate_min, ..BodyLimits::DEFAULT }, None);
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(3_600) {
            let wait = poll_fn(|cx| stall.poll_wait(cx));
            if tokio::time::timeout(period, wait).await.is_ok() {
                return Some(begin.elapsed());
            }
            stall.moved(piece);
        }
        None
    }

    #[test]
    fn silence_is_a_stall_after_the_limit_and_at_most_a_quarter_more() {
        virtual_time(async {
            let never = Duration::from_secs(7_200);
            let after = stalls_after(0, 0, never).await.unwrap();
            assert!(after >= IDLE && after <= IDLE + IDLE / 4, "{after:?}");
        });
    }

    #[test]
    fn a_byte_within_the_limit_is_no_stall() {
        virtual_time(async {
            for period in [1, 3, 5, 7] {
                let stalled = stalls_after(0, 1, Duration::from_secs(period)).await;
                assert_eq!(stalled, None, "a byte every {period} s");
            }
            assert!(stalls_after(0, 1, Duration::from_secs(13)).await.is_some());
        });
    }

    #[test]
    fn a_body_below_the_least_rate_is_a_stall_and_one_above_is_not() {
        virtual_time(async {
            let second = Duration::from_secs(1);
            assert_eq!(stalls_after(100, 130, second).await, None);
            let after = stalls_after(100, 70, second).await.unwrap();
            assert!(after <= IDLE + IDLE / 4, "{after:?}");
        });
    }

    #[test]
    fn a_request_still_on_its_way_is_no_stall() {
        virtual_time(async {
            let upload = Upload::default();
            let limits = BodyLimits { idle: IDLE, ..BodyLimits::DEFAULT };
            let mut stall = Stall::new(limits, Some(upload.clone()));
            for second in 0..60_u64 {
                let wait = poll_fn(|cx| stall.poll_wait(cx));
                let stalled = tokio::time::timeout(Duration::from_secs(1), wait).await.is_ok();
                assert!(!stalled, "after {second} s");
                upload.note(second + 1);
            }
            poll_fn(|cx| stall.poll_wait(cx)).await; // then it stops
            assert!(!upload.is_broken(), "the client has sent all that was asked of it");
        });
    }
}
