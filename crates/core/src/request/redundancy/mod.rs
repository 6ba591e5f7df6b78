//! How many copies of a request, and when.
//!
//! Copies cure slowness that strikes one replica by chance; they worsen slowness that comes from
//! load. Hence a budget and a gate: see [`hedge`].

pub mod budget;
pub mod hedge;

use core::fmt::Debug;

use crate::time::{Duration, Instant};

pub use budget::Budget;
pub use hedge::{Hedge, HedgeConfig};

/// Decides when a further copy of a request leaves.
pub trait Redundancy: Debug {
    /// A call was opened.
    fn on_open(&mut self, _now: Instant) {}

    /// The first copy of a call was answered, or given up, after this time.
    fn on_latency(&mut self, _now: Instant, _latency: Duration) {}

    /// When the next copy leaves, counted from the sending of the one before; `None` means never.
    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration>;

    /// Asked when a copy is due: may it be sent? Granting it spends from the budget.
    fn permits_copy(&mut self, now: Instant) -> bool;
}

/// One copy, always.
#[derive(Clone, Copy, Debug, Default)]
pub struct Single;

impl Redundancy for Single {
    #[inline]
    fn copy_due(&mut self, _copies_sent: usize) -> Option<Duration> {
        None
    }

    fn permits_copy(&mut self, _now: Instant) -> bool {
        false
    }
}
