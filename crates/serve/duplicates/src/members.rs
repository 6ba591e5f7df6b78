//! The tasks that end the service when they fail: one for each duplicate, and the mover.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::task::JoinSet;

use super::member;
use evenkeel_duplicates_engine::Engine;

/// The running ones; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Rc<RefCell<JoinSet<io::Result<()>>>>);

impl Members {
    /// Begins to keep a duplicate.
    pub(super) fn keep(&self, engine: &Rc<Engine>, server: usize) {
        self.spawn(member::keep(Rc::clone(engine), server));
    }

    /// Runs a task whose error ends the service.
    pub(super) fn spawn(&self, task: impl Future<Output = io::Result<()>> + 'static) {
        self.0.borrow_mut().spawn_local(task);
    }

    /// The first that failed; those of duplicates that were removed just end.
    pub(super) fn poll_failed(&self, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut tasks = self.0.borrow_mut();
        while let Poll::Ready(Some(ended)) = tasks.poll_join_next(context) {
            if let Err(failed) = ended.map_err(io::Error::other).and_then(|result| result) {
                return Poll::Ready(failed);
            }
        }
        Poll::Pending
    }

    /// Ends all of them.
    pub(super) fn end(&self) {
        drop(self.0.take()); // not while it is borrowed: one of them may add others
    }
}
