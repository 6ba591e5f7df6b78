//! The arrows that point down, from the slow loops to the request loop.
//!
//! A plan is immutable and replaced whole; the dispatcher adopts it between calls.

use crate::fleet::{Health, ReplicaId};

/// Which replicas exist, which of them may be used, and the groups they form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutePlan {
    /// Grows with every plan; a plan that is not newer than the adopted one is ignored.
    pub version: u64,
    /// The health of every slot, in order. Slots are never removed: a replica that left stays
    /// [`Health::Draining`]. New slots are appended and begin with a slow start.
    pub health: Vec<Health>,
    /// Which replica has each slot, counted from 0: a slot that was long empty may be given to
    /// another replica, under the next generation. Slots beyond the end are of generation 0.
    pub generations: Vec<u32>,
    /// The members of each group.
    pub groups: Vec<Vec<ReplicaId>>,
}

impl RoutePlan {
    /// The first plan of an upstream: all `replicas` up, in one group.
    pub fn single_group(replicas: usize) -> Self {
        Self {
            version: 0,
            health: vec![Health::Up; replicas],
            generations: Vec::new(),
            groups: vec![(0..replicas).map(ReplicaId::new).collect()],
        }
    }
}
