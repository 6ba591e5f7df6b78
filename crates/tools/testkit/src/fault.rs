//! What goes wrong with servers that are made to stumble.

use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Copy, Debug)]
pub struct Mishap {
    /// When, from the start of the plan.
    pub at: Duration,
    /// The replica it happens to.
    pub replica: usize,
    /// What happens.
    pub what: What,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// From now on it is this many times as fast as at base speed.
    Speed(f64),
    /// The application stands still for so long.
    Pause(Duration),
    /// Service times are multiplied by this from now on.
    Slow(f64),
    /// This share of requests is answered at once with "cannot serve" (503).
    Fail(f64),
    /// The process dies: its connections break, and nobody listens.
    Crash,
    /// It is back, empty. nginx servers stay dead.
    Restore,
}
