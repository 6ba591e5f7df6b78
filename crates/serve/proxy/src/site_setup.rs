//! The data centres of an upstream: which there are, which is ours, what may leave it.

use evenkeel_geo::epoch::SiteSet;

/// The data centre of this process, among those of an upstream.
pub const HOME: usize = 0;

/// What decides where a request may be served.
#[derive(Clone, Copy, Debug)]
pub struct Constraints {
    /// Whether it is one of those that a plan may be told to leave where they come: over HTTP one
    /// that may change something, over Cassandra's protocol one that no other site may serve.
    pub is_bound: bool,
    /// The sites that may serve it, by number; home always may.
    pub allowed: SiteSet,
    /// The sites that may take it over when home cannot serve it.
    pub failover: SiteSet,
}

impl Constraints {
    /// Of a request that any site may serve, unless it is a write and these stay.
    pub const fn of_write(is_write: bool, writes_stay: bool) -> Self {
        let all = SiteSet::from_bits(u64::MAX);
        let failover = if is_write && writes_stay { SiteSet::EMPTY } else { all };
        Self { is_bound: is_write, allowed: all, failover }
    }
}
