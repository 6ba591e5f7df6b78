//! Waking up on time, or when there is nothing left to wait for.
//!
//! The runtime's own timers tick in milliseconds: at 10,000 requests/s ten would leave in one
//! burst. The crate's [`Timer`] wakes within tens of microseconds without spinning, also when the
//! process has nothing else to do, and leaves the core to the server that runs beside the
//! generator in tests.

use std::io;
use std::time::Instant;

use tokio::sync::Notify;

use evenkeel_runtime::timer::Timer;

/// What one task sleeps on and any may end.
pub(super) struct Pacer {
    timer: Timer,
    bell: Notify,
}

impl Pacer {
    /// Must be called within a worker's runtime.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { timer: Timer::new()?, bell: Notify::new() })
    }

    /// Ends the sleep, or the next one if there is none.
    pub(super) fn wake(&self) {
        self.bell.notify_one();
    }

    /// Sleeps until this time or until woken.
    pub(super) async fn sleep_until(&self, at: Instant) {
        tokio::select! {
            biased;
            () = self.bell.notified() => {}
            () = self.timer.at(at) => {}
        }
    }
}
