//! Changes from other threads: judged on the service's own, answered at once.

use std::rc::Rc;

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::changes::{ChangeRequest, MovesState};
use super::rejected::ChangeRejected;
use evenkeel_duplicates_engine::Engine;

/// A change, and where its answer goes.
pub(super) struct Asked {
    change: ChangeRequest,
    answer: oneshot::Sender<Result<MovesState, ChangeRejected>>,
}

impl Asked {
    /// It is not taken, for this reason.
    pub(super) fn refuse(self, why: ChangeRejected) {
        let _ = self.answer.send(Err(why)); // who asked has gone
    }
}

/// Where a service takes changes; from any thread.
#[derive(Clone, Debug)]
pub struct Control(UnboundedSender<Asked>);

impl Control {
    pub(super) fn new() -> (Self, UnboundedReceiver<Asked>) {
        let (sender, receiver) = unbounded_channel();
        (Self(sender), receiver)
    }

    /// Requests a change. It is under way when this returns how changes stand; the state of the
    /// service tells how it goes on.
    ///
    /// # Errors
    /// When another one is under way, or it cannot be done.
    pub async fn request_change(
        &self,
        change: ChangeRequest,
    ) -> Result<MovesState, ChangeRejected> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Asked { change, answer }).map_err(|_| ChangeRejected::NotRunning)?;
        answered.await.map_err(|_| ChangeRejected::NotRunning)?
    }
}

/// Answers for as long as the service runs.
pub(super) async fn answer(engine: Rc<Engine>, changes: Rc<Mutex<UnboundedReceiver<Asked>>>) {
    let mut changes = changes.lock().await;
    while let Some(Asked { change, answer }) = changes.recv().await {
        let answered = {
            let mut inner = engine.borrow();
            inner.read_clock();
            inner.take_change(change).map(|()| inner.moves_state())
        };
        let _ = answer.send(answered); // who asked has gone
    }
}
