//! Core's controller behind one lock and one clock.
//!
//! **Why one lock**: a dimmer is one number for one service, set from all of its requests; a
//! controller for each thread would see a part of them, too few for a percentile. A request takes
//! the lock twice, when it comes and when its head is ready, for some tens of nanoseconds, with the
//! clock read before. **Measured** (`cargo bench -p evenkeel-brownout`, two cores): the whole layer
//! costs a request 0.26 µs, and the same with two threads whose requests take 10 µs each; threads
//! that do nothing but pass the layer get in each other's way and need 1.2 µs. So there is one lock
//! and no shards. Once in a period the control step is done under it too, over that period's
//! samples.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use evenkeel_core::Instant;
use evenkeel_core::dimmer::{Brownout, BrownoutConfig, Choice, DimmerState, End, Ticket};
use evenkeel_core::units::Dimmer;

/// What a person may see and do while the service runs: for a metrics page or an admin route.
/// All clones are handles of one layer.
#[derive(Clone)]
pub struct BrownoutHandle {
    controller: Arc<Controller>,
}

impl BrownoutHandle {
    pub(crate) const fn new(controller: Arc<Controller>) -> Self {
        Self { controller }
    }

    /// What the controller knows and does now.
    #[must_use]
    pub fn state(&self) -> DimmerState {
        self.controller.look(Brownout::state)
    }

    /// The dimmer in force: 1 is full content.
    #[must_use]
    pub fn dimmer(&self) -> Dimmer {
        self.controller.look(Brownout::dimmer)
    }

    /// Holds the dimmer by hand: [`Dimmer::FULL`] switches brownout off, [`Dimmer::LEAN`] leaves
    /// out all it can; `None` lets the controller go on, which has measured all the while.
    /// What was decided at the edge and is obeyed stays as it is.
    pub fn hold(&self, at: Option<Dimmer>) {
        self.controller.lock().hold(at);
    }

    /// Lets the controller go on: the same as `hold(None)`.
    pub fn release(&self) {
        self.hold(None);
    }
}

impl fmt::Debug for BrownoutHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BrownoutHandle").field(&self.state()).finish()
    }
}

/// The controller of one layer.
pub(crate) struct Controller {
    started_at: std::time::Instant,
    brownout: Mutex<Brownout>,
}

impl Controller {
    pub(crate) fn new(config: BrownoutConfig) -> Self {
        // Replicas that start together must not throw the same coins.
        let seed = RandomState::new().hash_one(0);
        let brownout = Mutex::new(Brownout::new(config, Instant::ZERO, seed));
        Self { started_at: std::time::Instant::now(), brownout }
    }

    /// A request arrives, and its service begins: nobody holds it back.
    pub(crate) fn arrive(&self, choice: Choice) -> Ticket {
        let now = self.now();
        let mut brownout = self.lock();
        let mut ticket = brownout.arrive(now, choice);
        brownout.begin(now, &mut ticket);
        ticket
    }

    /// A request ends; returns the dimmer in force.
    pub(crate) fn end(&self, ticket: Ticket, end: End) -> Dimmer {
        let now = self.now();
        let mut brownout = self.lock();
        brownout.end(now, ticket, end);
        brownout.dimmer()
    }

    fn look<T>(&self, at: impl FnOnce(&Brownout) -> T) -> T {
        let now = self.now();
        let mut brownout = self.lock();
        brownout.tick(now);
        at(&brownout)
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.started_at.elapsed()
    }

    /// A panic under the lock would be a defect of the controller; pages are served all the same.
    fn lock(&self) -> MutexGuard<'_, Brownout> {
        self.brownout.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
