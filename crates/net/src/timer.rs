//! Wake-ups more precise than tokio's millisecond, for hedges.
//!
//! A hedge is sent when a request has taken longer than, say, the 95th percentile, which for a
//! service that answers in half a millisecond is far below tokio's timer resolution. One
//! `timerfd` per worker thread, watched by the same event queue as the sockets, wakes within the
//! kernel's high-resolution timer error (tens of microseconds on an idle machine; a busy worker
//! adds the time until it looks at its event queue).
//!
//! Almost every hedge timer is cancelled, because almost every request is answered in time, so
//! cancelling must be free: a cancelled entry stays in the heap until it surfaces or until dead
//! entries outnumber live ones. The kernel is told only when the earliest deadline becomes
//! earlier; as deadlines mostly arrive in increasing order, the usual request costs no system
//! call. The price is a wake-up for nothing now and then, at most one per shortest wait.
//!
//! Elsewhere than on Linux the same interface rests on tokio's timer.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

/// The precise timer of one worker thread. Clones share it.
#[derive(Clone)]
pub struct Timer(Rc<Shared>);

/// Resolves at its deadline, never before. Dropping it cancels.
pub struct Wait {
    timer: Rc<Shared>,
    deadline: Instant,
    entry: Option<Entry>,
}

impl Timer {
    /// A timer without deadlines.
    ///
    /// # Errors
    ///
    /// When the operating system refuses a `timerfd`, e.g. for want of file descriptors.
    ///
    /// # Panics
    ///
    /// Outside a [worker runtime](crate::http::engine::worker_runtime).
    pub fn new() -> io::Result<Timer> {
        Ok(Timer(Rc::new(Shared::new()?)))
    }

    /// Waits until `deadline`; at once if it has passed.
    pub fn at(&self, deadline: Instant) -> Wait {
        Wait { timer: Rc::clone(&self.0), deadline, entry: None }
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Wait { timer, deadline, entry } = &mut *self;
        timer.poll(*deadline, entry, cx)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            self.timer.forget(&entry);
        }
    }
}

use platform::{Entry, Shared};

#[cfg(target_os = "linux")]
mod platform {
    use std::cell::{Cell, RefCell};
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use std::io;
    use std::os::fd::OwnedFd;
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};
    use std::time::{Duration, Instant};

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::unix::AsyncFd;
    use tokio::task::AbortHandle;

    /// Dead entries tolerated in the heap whatever the number of live ones.
    const DEAD_MIN: usize = 64;

    /// A place in the table and the generation it was taken in.
    pub(super) struct Entry {
        slot: usize,
        generation: u32,
    }

    pub(super) struct Shared {
        state: Rc<State>,
        driver: AbortHandle,
    }

    impl Shared {
        pub(super) fn new() -> io::Result<Shared> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let clock = watch(timerfd_create(TimerfdClockId::Monotonic, flags)?)?;
            let (armed, queue) = (Cell::new(None), RefCell::default());
            let state = Rc::new(State { clock, armed, queue });
            let driver = tokio::task::spawn_local(Rc::clone(&state).drive()).abort_handle();
            Ok(Shared { state, driver })
        }

        pub(super) fn poll(
            &self,
            deadline: Instant,
            entry: &mut Option<Entry>,
            cx: &Context<'_>,
        ) -> Poll<()> {
            let mut queue = self.state.queue.borrow_mut();
            match entry {
                Some(entry) => queue.poll(entry, cx.waker()),
                None => {
                    *entry = Some(queue.insert(deadline, cx.waker().clone()));
                    drop(queue);
                    self.state.arm(deadline);
                    Poll::Pending
                }
            }
        }

        pub(super) fn forget(&self, entry: &Entry) {
            self.state.queue.borrow_mut().remove(entry);
        }
    }

    impl Drop for Shared {
        fn drop(&mut self) {
            self.driver.abort();
        }
    }

    #[expect(
        deprecated,
        reason = "its successor is unsafe because some type might lie about its descriptor; \
                  an OwnedFd keeps its descriptor open and the same for life"
    )]
    fn watch(clock: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
        AsyncFd::new(clock)
    }

    struct State {
        clock: AsyncFd<OwnedFd>,
        /// The deadline the kernel knows, if it lies ahead.
        armed: Cell<Option<Instant>>,
        queue: RefCell<Queue>,
    }

    impl State {
        async fn drive(self: Rc<Self>) {
            let mut due = Vec::new();
            loop {
                match self.clock.readable().await {
                    // The expiry count stays unread: arming resets it, and each expiry is a new
                    // edge for the event queue.
                    Ok(mut ready) => ready.clear_ready(),
                    Err(_) => return, // the runtime shuts down
                }
                self.armed.set(None);
                let next = self.queue.borrow_mut().take_due(Instant::now(), &mut due);
                due.drain(..).for_each(Waker::wake);
                if let Some(next) = next {
                    self.arm(next);
                }
            }
        }

        /// Tells the kernel, unless it will wake us early enough as it is.
        fn arm(&self, deadline: Instant) {
            if self.armed.get().is_some_and(|armed| armed <= deadline) {
                return;
            }
            let wait = deadline.saturating_duration_since(Instant::now());
            let wait = wait.max(Duration::from_nanos(1)); // zero would disarm
            let it_value = Timespec::try_from(wait).unwrap_or(FAR);
            let timer = Itimerspec { it_interval: Timespec::default(), it_value };
            timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &timer)
                .expect("arming an open timerfd with a valid time does not fail");
            self.armed.set(Some(deadline));
        }
    }

    /// Stands for any time beyond the range of the kernel's clock: 30 years.
    const FAR: Timespec = Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 };

    /// The deadlines, dead ones included, and who waits for them.
    #[derive(Default)]
    struct Queue {
        heap: BinaryHeap<Reverse<(Instant, usize, u32)>>,
        slots: Vec<Slot>,
        free: Vec<usize>,
    }

    #[derive(Default)]
    struct Slot {
        generation: u32,
        /// `None` once the deadline has been told.
        waker: Option<Waker>,
    }

    impl Queue {
        fn insert(&mut self, deadline: Instant, waker: Waker) -> Entry {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            });
            self.slots[slot].waker = Some(waker);
            let generation = self.slots[slot].generation;
            self.heap.push(Reverse((deadline, slot, generation)));
            Entry { slot, generation }
        }

        fn poll(&mut self, entry: &Entry, waker: &Waker) -> Poll<()> {
            debug_assert_eq!(self.slots[entry.slot].generation, entry.generation);
            match &mut self.slots[entry.slot].waker {
                None => Poll::Ready(()),
                Some(waiting) => {
                    waiting.clone_from(waker);
                    Poll::Pending
                }
            }
        }

        fn remove(&mut self, entry: &Entry) {
            let slot = &mut self.slots[entry.slot];
            assert_eq!(slot.generation, entry.generation, "an entry is removed once");
            slot.generation = slot.generation.wrapping_add(1);
            slot.waker = None;
            self.free.push(entry.slot);
            let live = self.slots.len() - self.free.len();
            if self.heap.len() > 2 * live + DEAD_MIN {
                let slots = &self.slots;
                self.heap.retain(|Reverse(entry)| is_live(slots, entry));
            }
        }

        /// Moves out the wakers of all deadlines up to `now`; returns the next deadline.
        fn take_due(&mut self, now: Instant, due: &mut Vec<Waker>) -> Option<Instant> {
            while let Some(Reverse(first)) = self.heap.peek() {
                let is_due = first.0 <= now;
                if is_due {
                    due.extend(waker_of(&mut self.slots, first));
                } else if is_live(&self.slots, first) {
                    return Some(first.0);
                }
                self.heap.pop();
            }
            None
        }
    }

    fn is_live(slots: &[Slot], (_, slot, generation): &(Instant, usize, u32)) -> bool {
        slots[*slot].generation == *generation
    }

    fn waker_of(slots: &mut [Slot], entry: &(Instant, usize, u32)) -> Option<Waker> {
        if is_live(slots, entry) { slots[entry.1].waker.take() } else { None }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Instant;

    pub(super) type Entry = Pin<Box<tokio::time::Sleep>>;

    pub(super) struct Shared;

    impl Shared {
        pub(super) fn new() -> io::Result<Shared> {
            Ok(Shared)
        }

        pub(super) fn poll(
            &self,
            deadline: Instant,
            entry: &mut Option<Entry>,
            cx: &mut Context<'_>,
        ) -> Poll<()> {
            let sleep = || Box::pin(tokio::time::sleep_until(deadline.into()));
            entry.get_or_insert_with(sleep).as_mut().poll(cx)
        }

        pub(super) fn forget(&self, _entry: &Entry) {}
    }
}
