//! The stages in which a process stops, and who is told.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::first;

/// How long a process that stops still accepts clients, at most: one that does not know yet and
/// sends its next request is answered, and told to close.
const LAME_DUCK: Duration = Duration::from_millis(250);

/// How far a process is with stopping. It only goes forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It serves.
    Running,
    /// It is not ready any more, but still accepts, and tells clients to go elsewhere.
    LameDuck,
    /// Another process has its sockets and accepts; clients are told to go there.
    Replaced,
    /// It accepts no one and finishes what is in flight.
    Draining {
        /// When what is not finished is cut off.
        until: Instant,
    },
    /// It cuts off what is left.
    Closing,
}

/// Tells everything that runs to stop. Dropped in the middle, each listener drains within its own
/// limit.
#[derive(Debug)]
pub struct Stop(watch::Sender<Stage>);

/// Hears how far the process is with stopping.
#[derive(Debug, Clone)]
pub struct StopSignal {
    stage: watch::Receiver<Stage>,
    /// Only of a signal that never comes: its sender.
    _never: Option<Arc<Stop>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Nothing stops yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(Stage::Running))
    }

    /// For one that is to stop with the others.
    pub fn signal(&self) -> StopSignal {
        StopSignal { stage: self.0.subscribe(), _never: None }
    }

    /// Goes to the next stage.
    ///
    /// # Panics
    /// When it would go back.
    pub fn enter(&self, next: Stage) {
        let before = self.0.send_replace(next);
        assert!(before <= next, "stopping goes forward, not from {before:?} to {next:?}");
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        *self.0.borrow()
    }

    /// Goes to this stage, unless it is further already.
    fn advance(&self, next: Stage) {
        self.0.send_if_modified(|stage| {
            let is_later = next > *stage;
            *stage = next.max(*stage);
            is_later
        });
    }

    /// Another process accepts from now on, unless this one stops already.
    pub fn replace(&self) {
        self.advance(Stage::Replaced);
    }

    /// Goes through all stages: a lame duck for a quarter of a second (half of `drain` at most),
    /// then what is left of `drain`. A process that was replaced has half of `drain` to tell idle
    /// clients with their next answer that they are to connect anew: nobody waits for its end.
    ///
    /// Done as soon as nobody hears the signal any more, so nobody may keep one longer than it
    /// runs.
    pub async fn stop(&self, drain: Duration) {
        let lame_duck = match self.stage() {
            Stage::Replaced => drain / 2,
            _ => LAME_DUCK.min(drain / 2),
        };
        self.advance(Stage::LameDuck);
        let _ = tokio::time::timeout(lame_duck, self.0.closed()).await;
        let until = Instant::now() + (drain - lame_duck);
        self.advance(Stage::Draining { until });
        let _ = tokio::time::timeout_at(until, self.0.closed()).await;
        self.advance(Stage::Closing);
    }

    /// For a part that may end before the whole: stops as the whole does, stage by stage, or on its
    /// own within `drain` from when `closed` resolves. Done as soon as nobody hears the signal any
    /// more.
    pub async fn stop_with(
        self,
        mut whole: StopSignal,
        closed: impl Future<Output = ()>,
        drain: Duration,
    ) {
        let with_the_whole = async {
            loop {
                let stage = *whole.stage.borrow_and_update();
                self.advance(stage);
                if whole.stage.changed().await.is_err() {
                    return; // dropped in the middle, as the whole was
                }
            }
        };
        let alone = async {
            closed.await;
            self.stop(drain).await;
        };
        first(first(with_the_whole, alone), self.0.closed()).await;
    }
}

impl StopSignal {
    /// A signal that never comes.
    pub fn never() -> Self {
        let stop = Arc::new(Stop::new());
        Self { _never: Some(Arc::clone(&stop)), ..stop.signal() }
    }

    /// The present stage.
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// Waits until the process begins to stop, or has forgotten whoever waits.
    pub async fn stopping(&mut self) {
        let _ = self.stage.wait_for(|stage| *stage > Stage::Running).await;
    }

    /// Waits until this process is to accept nobody any more.
    pub async fn accepting_ends(&mut self) {
        let _ = self.stage.wait_for(|stage| *stage > Stage::LameDuck).await;
    }

    /// Waits until another process accepts in place of this one; for ever where none does.
    pub async fn replaced(&mut self) {
        if self.stage.wait_for(|stage| *stage == Stage::Replaced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until clients are to leave.
    pub async fn draining(&mut self) {
        let _ = self.stage.wait_for(|stage| *stage > Stage::Replaced).await;
    }

    /// Waits until the time to drain is over; for ever when nobody is there to tell it.
    pub(super) async fn over(&mut self) {
        let stage = self.stage.wait_for(|stage| *stage > Stage::Replaced).await.map(|it| *it);
        let until = match stage {
            Ok(Stage::Draining { until }) => until,
            Ok(_) => return,
            Err(_) => return std::future::pending().await,
        };
        let closing = self.stage.wait_for(|stage| *stage == Stage::Closing);
        if let Ok(Err(_)) = tokio::time::timeout_at(until, closing).await {
            tokio::time::sleep_until(until).await;
        }
    }
}
