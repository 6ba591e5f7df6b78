//! The arrows that point down, from the slow loops to the request loop.
//!
//! A plan is immutable and replaced whole; the dispatcher adopts it between calls.

use crate::fleet::{Health, ReplicaId};

/// Which replicas exist, which of them may be used, and the groups they form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Grows with every plan; a plan that is not newer than the adopted one is ignored.
    pub version: u64,
    /// The health of every seat, in order. Seats are never removed: a replica that left stays
    /// [`Health::Draining`]. New seats are appended and begin with a slow start.
    pub health: Vec<Health>,
    /// The members of each group.
    pub groups: Vec<Vec<ReplicaId>>,
}

impl RoutePlan {
    /// The first plan of an upstream: all `replicas` up, in one group.
    #[must_use]
    pub fn single_group(replicas: usize) -> Self {
        Self {
            version: 0,
            health: vec![Health::Up; replicas],
            groups: vec![(0..replicas).map(ReplicaId::new).collect()],
        }
    }
}
