//! What a connection and the state of the load hand to each other: requests, and the end.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::task::Waker;

use evenkeel_core::Instant;
use tokio::task::AbortHandle;

/// A request on its way.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) number: u64,
    pub(super) key: u64,
    /// When it was to be sent.
    pub(super) due: Instant,
    /// When the generator saw that.
    pub(super) noticed: Instant,
    /// When it got a connection.
    pub(super) assigned: Instant,
    /// How often it met a new connection that was closed before it was sent.
    pub(super) unsent: u8,
}

/// The place where a connection that waits for work is given some.
#[derive(Default)]
pub(super) struct Slot {
    job: Cell<Option<Job>>,
    waker: RefCell<Option<Waker>>,
    task: OnceCell<AbortHandle>,
}

impl Slot {
    /// A connection that lives in a task of its own; `live` is that task, given its slot.
    pub(super) fn spawn<F: Future<Output = ()> + 'static>(live: impl FnOnce(Rc<Self>) -> F) {
        let slot = Rc::new(Self::default());
        let task = tokio::task::spawn_local(live(Rc::clone(&slot)));
        slot.task.set(task.abort_handle()).expect("a new slot has no task");
    }

    /// Gives the connection a request to send.
    pub(super) fn assign(&self, job: Job) {
        let unsent = self.job.replace(Some(job));
        assert!(unsent.is_none(), "a connection is given one request at a time");
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Closes the connection in the middle of whatever it does.
    pub(super) fn abort(&self) {
        self.task.get().expect("a slot has a task from its beginning").abort();
    }

    /// Takes the request that was given, or is woken up when there is one.
    pub(super) fn take(&self, waker: &Waker) -> Option<Job> {
        self.job.take().or_else(|| {
            self.wake_with(waker);
            None
        })
    }

    fn wake_with(&self, waker: &Waker) {
        let mut kept = self.waker.borrow_mut();
        if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
            *kept = Some(waker.clone());
        }
    }
}
