//! What happens to a request.

use evenkeel_core::ReplicaId;
use evenkeel_core::request::{BodyEnd, Kind, Outcome, Refusal};

/// What happens to a request, in the order in which it happens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Event {
    /// A copy leaves for a replica of a data centre.
    Sent {
        /// The data centre, home being 0.
        datacenter: usize,
        /// The replica, among those of its data centre.
        replica: ReplicaId,
        /// Why.
        kind: Kind,
    },
    /// The copy with this number has an outcome: its head came, or none will.
    Learnt {
        /// The copy.
        copy: usize,
        /// What became of it.
        outcome: Outcome,
    },
    /// The copy with this number lost, or is late, and nobody waits for it any more.
    Left {
        /// The copy.
        copy: usize,
    },
    /// What one data centre did not serve goes to this one.
    BegunAgain {
        /// The data centre.
        datacenter: usize,
    },
    /// The client is given the answer of this copy.
    Answered {
        /// The copy.
        copy: usize,
    },
    /// There is no answer.
    Refused(Refusal),
    /// The last byte of the answer has passed, or none will any more.
    Ended(BodyEnd),
}
