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
//! Elsewhere than on Linux, and in [virtual time](Clock::virtual_time), the same interface rests
//! on tokio's timer.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

use crate::clock::Clock;

/// The precise timer of one worker thread. Clones share it.
#[derive(Clone)]
pub struct Timer(Source);

#[derive(Clone)]
enum Source {
    #[cfg(target_os = "linux")]
    Kernel(Rc<kernel::Shared>),
    Tokio,
}

/// Resolves at its deadline, never before. Dropping it cancels.
pub struct Wait {
    deadline: Instant,
    waiting: Waiting,
}

/// What is set once it is polled.
enum Waiting {
    #[cfg(target_os = "linux")]
    Kernel(Rc<kernel::Shared>, Option<kernel::Entry>),
    Tokio(Option<Pin<Box<Sleep>>>),
}

impl Timer {
    /// A timer without deadlines.
    ///
    /// # Errors
    /// When the operating system refuses a `timerfd`, e.g. for want of file descriptors.
    ///
    /// # Panics
    /// Outside a [worker runtime](crate::accept::worker_runtime).
    pub fn new() -> io::Result<Timer> {
        #[cfg(target_os = "linux")]
        return Ok(Timer(Source::Kernel(Rc::new(kernel::Shared::new()?))));
        #[cfg(not(target_os = "linux"))]
        return Ok(Timer(Source::Tokio));
    }

    /// A timer on the time line of a clock: precise, or virtual with it.
    ///
    /// # Errors
    /// As [`Timer::new`].
    pub fn of(clock: &Clock) -> io::Result<Timer> {
        if clock.is_virtual() { Ok(Timer(Source::Tokio)) } else { Timer::new() }
    }

    /// Waits until `deadline`; at once if it has passed.
    pub fn at(&self, deadline: Instant) -> Wait {
        let waiting = match &self.0 {
            #[cfg(target_os = "linux")]
            Source::Kernel(timer) => Waiting::Kernel(Rc::clone(timer), None),
            Source::Tokio => Waiting::Tokio(None),
        };
        Wait { deadline, waiting }
    }
}

impl Wait {
    /// What it waits for.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Timer")
    }
}

impl Future for Wait {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Wait { deadline, waiting } = &mut *self;
        match waiting {
            #[cfg(target_os = "linux")]
            Waiting::Kernel(timer, entry) => timer.poll(*deadline, entry, cx),
            Waiting::Tokio(sleep) => {
                let new = || Box::pin(tokio::time::sleep_until((*deadline).into()));
                sleep.get_or_insert_with(new).as_mut().poll(cx)
            }
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        #[cfg(target_os = "linux")]
        if let Waiting::Kernel(timer, Some(entry)) = &self.waiting {
            timer.forget(entry);
        }
    }
}

#[cfg(target_os = "linux")]
mod kernel {
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

    #[cfg(test)]
    mod tests {
        use std::collections::BTreeMap;
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::task::Wake;

        use proptest::collection::vec;
        use proptest::prelude::{Strategy, any, prop_oneof, proptest};
        use proptest::{prop_assert, prop_assert_eq};

        use super::*;

        struct Count(AtomicUsize);

        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }

        #[derive(Debug, Clone)]
        enum Action {
            Insert(u64),
            Remove(usize),
            Advance(u64),
        }

        fn an_action() -> impl Strategy<Value = Action> {
            prop_oneof![
                (0..100u64).prop_map(Action::Insert),
                any::<usize>().prop_map(Action::Remove),
                (0..20u64).prop_map(Action::Advance),
            ]
        }

        proptest! {
            /// Against a plain map of what waits: the same wake-ups, the same next deadline, and
            /// memory in proportion to the largest number waiting at once.
            #[test]
            fn the_queue_does_what_a_sorted_map_does(actions in vec(an_action(), 0..600)) {
                let start = Instant::now();
                let at = |offset: u64| start + Duration::from_micros(offset);
                let (mut queue, mut now, mut live_max) = (Queue::default(), 0, 0);
                let mut model = BTreeMap::new();
                let mut due = Vec::new();
                for (id, action) in actions.into_iter().enumerate() {
                    match action {
                        Action::Insert(wait) => {
                            let count = Arc::new(Count(AtomicUsize::new(0)));
                            let waker = Waker::from(Arc::clone(&count));
                            let entry = queue.insert(at(now + wait), waker);
                            model.insert((now + wait, id), (entry, count));
                        }
                        Action::Remove(choice) if !model.is_empty() => {
                            let key = *model.keys().nth(choice % model.len()).unwrap();
                            let (entry, count) = model.remove(&key).unwrap();
                            queue.remove(&entry);
                            due.drain(..).for_each(Waker::wake);
                            prop_assert_eq!(count.0.load(Ordering::Relaxed), 0);
                        }
                        Action::Remove(_) => {}
                        Action::Advance(step) => {
                            now += step;
                            let next = queue.take_due(at(now), &mut due);
                            due.drain(..).for_each(Waker::wake);
                            let later = model.split_off(&(now + 1, 0));
                            for (entry, count) in std::mem::replace(&mut model, later).values() {
                                prop_assert_eq!(count.0.load(Ordering::Relaxed), 1);
                                prop_assert!(queue.poll(entry, Waker::noop()).is_ready());
                                queue.remove(entry);
                            }
                            prop_assert_eq!(next, model.keys().next().map(|key| at(key.0)));
                        }
                    }
                    live_max = live_max.max(model.len());
                    prop_assert!(queue.slots.len() <= live_max.max(1));
                    prop_assert!(queue.heap.len() <= 2 * live_max + DEAD_MIN + 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;
    use crate::accept::worker_runtime;

    fn run(test: impl Future<Output = ()>) {
        let limited = async { tokio::time::timeout(Duration::from_secs(20), test).await };
        worker_runtime().unwrap().block_on(limited).expect("the test ends within 20 s");
    }

    #[test]
    fn deadlines_come_in_order_and_never_early() {
        run(async {
            let timer = Timer::new().unwrap();
            let start = Instant::now();
            let fired = Rc::<RefCell<Vec<Duration>>>::default();
            // A fixed scramble of 0..200: later deadlines are set before earlier ones.
            let waits = (0..200u64).map(|i| Duration::from_micros((i * 73 % 200) * 150));
            let tasks = waits.map(|wait| {
                let (timer, fired) = (timer.clone(), Rc::clone(&fired));
                tokio::task::spawn_local(async move {
                    timer.at(start + wait).await;
                    let spent = start.elapsed();
                    assert!(spent >= wait, "{spent:?} is before {wait:?}");
                    fired.borrow_mut().push(wait);
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.unwrap();
            }
            let fired = fired.take();
            assert_eq!(fired.len(), 200);
            assert!(fired.is_sorted(), "{fired:?}");
        });
    }

    #[test]
    fn an_earlier_deadline_overtakes_and_a_passed_one_comes_at_once() {
        run(async {
            let timer = Timer::new().unwrap();
            let start = Instant::now();
            let far = timer.at(start + Duration::from_secs(3600));
            let task = tokio::task::spawn_local(far);
            tokio::task::yield_now().await;
            timer.at(start + Duration::from_millis(5)).await;
            timer.at(start).await;
            assert!(start.elapsed() < Duration::from_secs(1));
            task.abort();
        });
    }

    #[test]
    fn a_cancelled_deadline_wakes_nobody_and_leaves_the_others_alone() {
        run(async {
            let timer = Timer::new().unwrap();
            let start = Instant::now();
            let polls = Rc::new(std::cell::Cell::new(0));
            let count = Rc::clone(&polls);
            let mut cancelled = Some(timer.at(start + Duration::from_millis(5)));
            let mut kept = std::pin::pin!(timer.at(start + Duration::from_millis(20)));
            std::future::poll_fn(|cx| {
                count.set(count.get() + 1);
                if let Some(mut wait) = cancelled.take() {
                    assert!(Pin::new(&mut wait).poll(cx).is_pending());
                }
                kept.as_mut().poll(cx)
            })
            .await;
            assert!(start.elapsed() >= Duration::from_millis(20));
            assert_eq!(polls.get(), 2, "one poll to start, one at the deadline that was kept");
        });
    }

    #[test]
    fn a_wait_that_moves_to_another_task_wakes_that_one() {
        run(async {
            let timer = Timer::new().unwrap();
            let mut wait = Box::pin(timer.at(Instant::now() + Duration::from_millis(10)));
            std::future::poll_fn(|cx| {
                assert!(wait.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            tokio::task::spawn_local(wait).await.unwrap();
        });
    }

    #[test]
    fn wake_ups_are_far_more_precise_than_a_millisecond() {
        run(async {
            let timer = Timer::new().unwrap();
            // In batches: a machine that stands still spoils those that it meets and no others.
            let mut batches = Vec::new();
            for _ in 0..10 {
                let mut errors = Vec::new();
                for i in 0..30 {
                    let deadline = Instant::now() + Duration::from_micros(200 + i * 30);
                    timer.at(deadline).await;
                    errors.push(deadline.elapsed());
                }
                errors.sort();
                batches.push((errors[15], errors[29]));
            }
            let (p50, _) = *batches.iter().min().unwrap();
            let longest = batches.iter().map(|(_, longest)| *longest).min().unwrap();
            println!("wake-up error: p50 {p50:?}, longest {longest:?}");
            // Measured 0.06 ms and 0.2 ms; rounding up to milliseconds would be 0.5 ms.
            assert!(p50 < Duration::from_micros(400), "p50 {p50:?}");
            assert!(longest < Duration::from_millis(20), "longest {longest:?}");
        });
    }
}
