//! Which requests may have their coordinator in another data centre.
//!
//! Loop 2 says how much load goes where; this says which requests may be part of it. Whoever
//! coordinates, a request asks the replicas that its consistency level names, so most levels mean
//! the same anywhere: `QUORUM` and `ALL` count over all data centres, `EACH_QUORUM` in each, and
//! `ONE`, `TWO`, `THREE` and `ANY` are content with any replicas (an away coordinator prefers those
//! near it, which may be behind by as much as the level permits). What stays at home: levels that
//! count in the coordinator's data centre; conditional requests, whose rounds of Paxos would each
//! cross the distance and contend for longer; and what the other data centre has no replica of,
//! since its coordinator would ask back over the same distance (this is how partial replication
//! bounds the rates). When in doubt, home. **Source**: Kurma (SoCC 2018), section 4; Cassandra's
//! consistency levels.

use crate::request::ring::consistency::Consistency;

/// What a request asks for, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// The consistency level.
    pub consistency: Consistency,
    /// The serial consistency level, if one came. It means something in conditional requests only.
    pub serial: Option<Consistency>,
    /// Whether it has an `IF`.
    pub is_conditional: bool,
    /// Whether it changes anything.
    pub is_write: bool,
    /// Whether the operator wants writes to stay.
    pub writes_stay: bool,
}

/// What is known of a key in a data centre; see [`Layout::presence`](super::Layout::presence).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// The request names no keyspace, or one that is not known.
    Unknown,
    /// Each node has data of its own under this name.
    Own,
    /// No replica there; of a request without a key: not for every key.
    Absent,
    /// A replica is there.
    There,
}

/// Whether the coordinator may be in another data centre, of which `away` is known.
///
/// # Errors
/// Why it may not: the first reason in the order of [`Stays::ALL`].
pub const fn travel(asked: &Asked, away: Presence) -> Result<(), Stays> {
    if asked.consistency.is_local() {
        return Err(Stays::LocalConsistency);
    }
    if asked.is_conditional {
        return Err(Stays::Conditional);
    }
    if asked.consistency.is_serial() {
        return Err(Stays::SerialRead);
    }
    if asked.is_write && asked.writes_stay {
        return Err(Stays::Write);
    }
    match away {
        Presence::Unknown => Err(Stays::KeyspaceUnknown),
        Presence::Own => Err(Stays::OwnData),
        Presence::Absent => Err(Stays::NoReplica),
        Presence::There => Ok(()),
    }
}

/// Whether the coordinator may be in another data centre when none at home can be reached.
///
/// Distance keeps nothing at home then: a coordinator that asks back over it is better than none.
/// What a request means, and what the operator wants, do.
pub const fn may_fail_over(asked: &Asked) -> bool {
    let is_serial_at_home =
        asked.is_conditional && matches!(asked.serial, Some(Consistency::LocalSerial));
    let is_kept = asked.is_write && asked.writes_stay;
    !asked.consistency.is_local() && !is_serial_at_home && !is_kept
}

crate::named! {
    /// Why a request stays in its data centre.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
    #[repr(u8)]
    pub enum Stays {
        /// Its consistency level counts replicas of the coordinator's data centre.
        #[error(
            "its consistency level (LOCAL_ONE, LOCAL_QUORUM or LOCAL_SERIAL) counts replicas of \
             the coordinator's data centre: elsewhere it would ask others"
        )]
        LocalConsistency = "local_consistency",
        /// It is conditional.
        #[error(
            "it is conditional (IF): each round of its Paxos would start from farther away and \
             contend for longer"
        )]
        Conditional = "conditional",
        /// It reads at a serial level.
        #[error("it reads at SERIAL, which may have to finish a round of Paxos")]
        SerialRead = "serial_read",
        /// It writes, and the operator wants writes to stay.
        #[error("it is a write, and writes are configured to stay")]
        Write = "write",
        /// Nothing is known of where its data is.
        #[error(
            "its keyspace, or how that is replicated, is not known: perhaps it was made just now, \
             or the statement could not be read"
        )]
        KeyspaceUnknown = "keyspace_unknown",
        /// It asks a node for what is that node's own.
        #[error("its keyspace is local: each node answers from data of its own")]
        OwnData = "own_data",
        /// The other data centre has no replica.
        #[error(
            "the other data centre has no replica of it: a coordinator there would ask back over \
             the same distance"
        )]
        NoReplica = "no_replica",
    }
}

impl Stays {
    /// Its place in [`Stays::ALL`], to count by.
    pub const fn index(self) -> usize {
        self as usize
    }
}
