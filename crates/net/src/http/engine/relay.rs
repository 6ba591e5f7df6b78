//! Wake-ups of an upstream connection, passed to whoever drives it and not one more.
//!
//! hyper connects the two halves of a client connection with channels, and each message wakes
//! the other half. Here both halves are polled one after the other by the same task, so those
//! wake-ups are old news by the time they would be served; and a kept connection still holds
//! the waker of the task that used it last, which is none of its business any more. Unfiltered
//! they cost 1.4 needless polls of a client connection per request (counted with callgrind).
//!
//! The rule: what wakes us while we poll counts only if the poll ends without a result; what
//! wakes us between polls goes to the task that polled last; an idle connection wakes nobody.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One per connection: the waker hyper sees, for the connection's whole life.
pub(super) struct Relay {
    shared: Arc<Shared>,
    waker: Waker,
}

/// Used by one thread; `Waker` demands more, hence the lock and the atomics.
#[derive(Default)]
struct Shared {
    target: Mutex<Option<Waker>>,
    is_polling: AtomicBool,
    was_woken: AtomicBool,
}

impl Relay {
    pub(super) fn new() -> Relay {
        let shared = Arc::<Shared>::default();
        Relay { waker: Waker::from(Arc::clone(&shared)), shared }
    }

    /// Polls both halves of a connection on behalf of `cx`.
    ///
    /// `poll` must look at everything that the connection's own wake-ups could announce.
    pub(super) fn poll<T>(
        &self,
        cx: &Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Shared { is_polling, was_woken, .. } = &*self.shared;
        is_polling.store(true, Relaxed);
        was_woken.store(false, Relaxed);
        let result = poll(&mut Context::from_waker(&self.waker));
        is_polling.store(false, Relaxed);
        if result.is_pending() {
            self.shared.aim(cx.waker());
            if was_woken.load(Relaxed) {
                cx.waker().wake_by_ref();
            }
        }
        result
    }

    /// Wakes nobody until the next poll.
    pub(super) fn rest(&self) {
        *self.shared.target.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Shared {
    fn aim(&self, waker: &Waker) {
        let mut target = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *target {
            Some(target) => target.clone_from(waker), // no clone if it is the same
            None => *target = Some(waker.clone()),
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_polling.load(Relaxed) {
            self.was_woken.store(true, Relaxed);
        } else if let Some(target) = &*self.target.lock().unwrap_or_else(PoisonError::into_inner) {
            target.wake_by_ref();
        }
    }
}
