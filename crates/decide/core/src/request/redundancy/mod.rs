//! How many copies of a request, and when.
//!
//! Copies cure slowness that strikes one replica by chance; they worsen slowness that comes from
//! load. Hence a budget and a gate: see [`hedge`]. Where an objective is set, [`objective`] chooses
//! when a copy is worth most, [`survival`] says how long requests last although those that a copy
//! beat were not waited for, [`trial`] finds out whether copies help at all, and [`load`] when
//! there is room for them.

pub mod budget;
pub mod hedge;
pub mod load;
pub mod objective;
pub mod survival;
pub mod trial;

use core::any::Any;
use core::fmt::Debug;

use crate::fleet::Feedback;
use crate::request::call::Kind;
use crate::time::{Duration, Instant};

pub use budget::Budget;
pub use hedge::{Hedge, HedgeConfig, HedgeStats};
pub use objective::ObjectiveConfig;

/// How long one copy of a call lasted. Failures that end early are none of these: they say nothing
/// of how long answers take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lasted<'a> {
    /// Why it was sent; never a mirror.
    pub kind: Kind,
    /// From its sending to its answer, or to when it was given up.
    pub latency: Duration,
    /// Whether it was answered; otherwise another copy won, the caller left or its time was over.
    pub is_answered: bool,
    /// From the sending of the call's first copy to its own.
    pub behind: Duration,
    /// First copies of this dispatcher on their way when it was sent, itself included if it is
    /// one: copies never count as load.
    pub in_flight: u32,
    /// What the replica said of itself.
    pub report: Option<&'a Feedback>,
}

/// Decides when a further copy of a request leaves.
pub trait Redundancy: Any + Debug + Send {
    /// A call was opened.
    fn on_open(&mut self, _now: Instant) {}

    /// A copy of a call was answered or given up. Once for each copy.
    fn on_end(&mut self, _now: Instant, _copy: &Lasted<'_>) {}

    /// When the next copy leaves, counted from the sending of the one before; `None` means never.
    fn copy_due(&mut self, copies_sent: usize) -> Option<Duration>;

    /// Asked when a copy is due: may it be sent? Granting it spends from the budget.
    fn permits_copy(&mut self, now: Instant) -> bool;

    /// May a request be sent to a second replica only to see what it costs there? Granting it
    /// spends from the budget of copies, where there is one.
    fn permits_pair(&mut self, _now: Instant) -> bool {
        true
    }

    /// Takes over what the redundancy before it has learnt, as far as that is of use under other
    /// settings. Budgets go on where they stand.
    fn inherit(&mut self, _before: &mut dyn Redundancy) {}

    /// The quantile of latency after which a copy leaves, where that is the rule.
    fn quantile(&self) -> Option<f64> {
        None
    }

    /// How it stands, for people; `None` where nothing is learnt.
    fn stats(&self) -> Option<HedgeStats> {
        None
    }
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
