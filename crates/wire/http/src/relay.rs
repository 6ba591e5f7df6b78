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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// One per connection: the waker hyper sees, for the connection's whole life.
pub(super) struct Relay {
    shared: Arc<Shared>,
    waker: Waker,
}

/// Used by one thread; `Waker` demands more, hence the lock and the atomics.
#[derive(Default)]
struct Shared {
    target: Target,
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
            self.shared.target.aim(cx.waker());
            if was_woken.load(Relaxed) {
                cx.waker().wake_by_ref();
            }
        }
        result
    }

    /// Wakes nobody until the next poll.
    pub(super) fn rest(&self) {
        self.shared.target.clear();
    }
}

/// Who is woken, if anybody is.
#[derive(Default)]
pub(crate) struct Target(Mutex<Option<Waker>>);

impl Target {
    pub(crate) fn aim(&self, waker: &Waker) {
        match &mut *self.locked() {
            Some(target) => target.clone_from(waker), // no clone if it is the same
            nobody => *nobody = Some(waker.clone()),
        }
    }

    pub(crate) fn wake(&self) {
        if let Some(target) = &*self.locked() {
            target.wake_by_ref();
        }
    }

    fn clear(&self) {
        *self.locked() = None;
    }

    fn locked(&self) -> MutexGuard<'_, Option<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_polling.load(Relaxed) {
            self.was_woken.store(true, Relaxed);
        } else {
            self.target.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn task() -> (Arc<Count>, Waker) {
        let count = Arc::<Count>::default();
        (Arc::clone(&count), Waker::from(count))
    }

    /// Polls once, waking itself `wakes` times; returns the waker the inside saw.
    fn poll(relay: &Relay, waker: &Waker, wakes: usize, result: Poll<()>) -> Waker {
        let mut seen = None;
        let got = relay.poll(&Context::from_waker(waker), |cx| {
            (0..wakes).for_each(|_| cx.waker().wake_by_ref());
            seen = Some(cx.waker().clone());
            result
        });
        assert_eq!(got, result);
        seen.unwrap()
    }

    #[test]
    fn a_wake_up_during_a_poll_counts_only_if_the_poll_ends_without_a_result() {
        let (relay, (count, waker)) = (Relay::new(), task());
        poll(&relay, &waker, 2, Poll::Ready(()));
        assert_eq!(count.0.load(Relaxed), 0);
        poll(&relay, &waker, 0, Poll::Pending);
        assert_eq!(count.0.load(Relaxed), 0);
        poll(&relay, &waker, 2, Poll::Pending);
        assert_eq!(count.0.load(Relaxed), 1);
    }

    #[test]
    fn between_polls_the_last_task_to_poll_is_woken_and_nobody_at_rest() {
        let (relay, (first, first_waker), (last, last_waker)) = (Relay::new(), task(), task());
        let inside = poll(&relay, &first_waker, 0, Poll::Pending);
        assert!(inside.will_wake(&poll(&relay, &last_waker, 0, Poll::Pending)));
        inside.wake_by_ref();
        assert_eq!((first.0.load(Relaxed), last.0.load(Relaxed)), (0, 1));
        relay.rest();
        inside.wake_by_ref();
        assert_eq!((first.0.load(Relaxed), last.0.load(Relaxed)), (0, 1));
    }
}
