//! What goes wrong with servers that are made to stumble.

use std::time::Duration;

/// Something that goes wrong, once or again and again.
#[derive(Clone, Copy, Debug)]
pub struct Mishap {
    /// When it happens first.
    pub at: Duration,
    /// Mean time between repetitions (exponential); zero = once.
    pub every: Duration,
    /// The replica it happens to; `None` = each, independently when repeated.
    pub replica: Option<usize>,
    /// What happens.
    pub what: What,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The application stands still for a time drawn between the two.
    Pause(Duration, Duration),
    /// Service times are multiplied by this from now on.
    Slow(f64),
    /// This share of requests is answered at once with "cannot serve" (503).
    Fail(f64),
    /// The process dies. Only real servers ([`crate::nginx`]) can.
    Crash,
}
