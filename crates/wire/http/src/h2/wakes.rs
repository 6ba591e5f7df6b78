//! Wake-ups of the two parts of a client's task: its connection, and the handlers of its streams.
//!
//! Each wakes the other all the time: a request that was read its handler, an answer to write the
//! connection. The task that both are of runs at that moment, and would run once more for nothing.
//! Here a part that is woken is noted, the task looks only at parts that were, and it is woken
//! itself only where it does not run. So a turn reads all there is, lets all handlers go on, and
//! writes all they have to say at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};

use crate::relay::Target;

/// Looks at each part in one turn of the task: who has still more to do lets others have theirs.
const ROUNDS_MAX: usize = 8;

/// A part of the task, as a bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Connection = 1,
    Streams = 2,
}

/// The wakers of one task's parts, for its whole life.
pub(crate) struct Wakes {
    task: Arc<Task>,
    connection: Waker,
    streams: Waker,
}

/// What wakes may come from other threads, as a handler may have asked one for something.
#[derive(Default)]
struct Task {
    waker: Target,
    is_running: AtomicBool,
    /// Parts that were woken.
    due: AtomicU8,
}

struct Waking(Arc<Task>, Part);

impl Wakes {
    /// Both parts are due.
    pub(crate) fn new() -> Self {
        let task = Arc::<Task>::default();
        let waker = |part| Waker::from(Arc::new(Waking(Arc::clone(&task), part)));
        let (connection, streams) = (waker(Part::Connection), waker(Part::Streams));
        let wakes = Self { task, connection, streams };
        wakes.note(Part::Connection);
        wakes.note(Part::Streams);
        wakes
    }

    /// A part has something to do, though nothing has woken it.
    pub(crate) fn note(&self, part: Part) {
        self.task.due.fetch_or(part as u8, SeqCst);
    }

    /// With what a part is polled, if it is due; it is no longer then.
    pub(crate) fn take(&self, part: Part) -> Option<Context<'_>> {
        let was_due = self.task.due.fetch_and(!(part as u8), SeqCst) & part as u8 != 0;
        was_due.then(|| match part {
            Part::Connection => Context::from_waker(&self.connection),
            Part::Streams => Context::from_waker(&self.streams),
        })
    }

    /// One turn of the task: `round` is called until nothing is due after it, or it is ready.
    pub(crate) fn turn<T>(
        &self,
        cx: &mut Context<'_>,
        mut round: impl FnMut() -> Poll<T>,
    ) -> Poll<T> {
        let Task { is_running, due, .. } = &*self.task;
        self.task.waker.aim(cx.waker());
        is_running.store(true, SeqCst);
        let mut result = Poll::Pending;
        for _ in 0..ROUNDS_MAX {
            result = round();
            if result.is_ready() || due.load(SeqCst) == 0 {
                break;
            }
        }
        is_running.store(false, SeqCst);
        if result.is_pending() && due.load(SeqCst) != 0 {
            cx.waker().wake_by_ref();
        }
        result
    }
}

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let Self(task, part) = &**self;
        let was_due = task.due.fetch_or(*part as u8, SeqCst) & *part as u8 != 0;
        if was_due || task.is_running.load(SeqCst) {
            return;
        }
        task.waker.wake();
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
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn is_due(wakes: &Wakes, part: Part) -> bool {
        wakes.take(part).is_some()
    }

    #[test]
    fn a_part_that_is_woken_during_a_turn_is_looked_at_in_the_same_one() {
        let (wakes, count) = (Wakes::new(), Arc::<Count>::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut looks = 0;
        let result: Poll<()> = wakes.turn(&mut Context::from_waker(&waker), || {
            looks += 1;
            if is_due(&wakes, Part::Connection) {
                wakes.streams.wake_by_ref();
            }
            if is_due(&wakes, Part::Streams) && looks < 4 {
                wakes.connection.wake_by_ref();
            }
            Poll::Pending
        });
        assert!(result.is_pending());
        assert_eq!((looks, count.0.load(SeqCst)), (4, 0));
    }

    #[test]
    fn between_turns_the_task_is_woken_once_and_knows_for_whom() {
        let (wakes, count) = (Wakes::new(), Arc::<Count>::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut seen = Vec::new();
        for _ in 0..2 {
            let _: Poll<()> = wakes.turn(&mut Context::from_waker(&waker), || {
                seen.push((is_due(&wakes, Part::Connection), is_due(&wakes, Part::Streams)));
                Poll::Pending
            });
            wakes.streams.wake_by_ref();
            wakes.streams.wake_by_ref();
        }
        assert_eq!((&*seen, count.0.load(SeqCst)), (&[(true, true), (false, true)][..], 2));
    }

    #[test]
    fn who_never_has_enough_lets_others_have_their_turn() {
        let (wakes, count) = (Wakes::new(), Arc::<Count>::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut looks = 0;
        let _: Poll<()> = wakes.turn(&mut Context::from_waker(&waker), || {
            looks += 1;
            wakes.streams.wake_by_ref();
            Poll::Pending
        });
        assert_eq!((looks, count.0.load(SeqCst)), (ROUNDS_MAX, 1));
    }
}
