//! Moves leaders, voters and replicas of real stores, one safe step at a time.
//!
//! | part | what it is |
//! |---|---|
//! | [`Cluster`] | what a store must offer: look, say, do one step, be held by one at a time |
//! | [`mover`] | runs a plan: dry unless told otherwise, health between steps, taking back |
//! | [`etcd`] | etcd through its JSON gateway |
//! | [`patroni`] | PostgreSQL under Patroni, through its REST interface |
//! | [`zookeeper`] | ZooKeeper through its client protocol |
//! | [`nats`] | the leader of a JetStream stream, through its API |
//! | [`statements`] | what an administrator types for CockroachDB, YugabyteDB and TiDB |
//! | [`audit`] | who did what, when and why: JSON lines on disk before and after each step |
//! | [`window`] | when moves may begin |
//! | [`lock`] | one mover per cluster, for stores that offer no lock of their own |
//! | [`StepError`] | what is wrong before anybody is asked |
//!
//! Which steps lead to a goal is decided in [`evenkeel_planner::steps`].

pub mod audit;
mod error;
pub mod etcd;
pub mod lock;
pub mod mover;
pub mod nats;
pub mod patroni;
pub mod statements;
#[cfg(test)]
mod tests;
pub mod window;
pub mod zookeeper;

use std::future::Future;

use evenkeel_planner::model::{Layout, majority};
use evenkeel_planner::steps::{Abilities, Step};

pub use error::StepError;
pub use evenkeel_stores::clients::error::RemoteError;

/// One replica, as it was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Why it does not serve, if it does not.
    pub ill: Option<String>,
    /// How far its data is behind the leader's, in the store's own unit (etcd: log entries).
    pub lag: u64,
}

/// Why a replica must not lead or be counted on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unwell {
    /// There is none at the site.
    #[error("no replica is seen")]
    Unseen,
    /// It does not serve: why.
    #[error("{0}")]
    Ill(String),
    /// Its data is too far behind the leader's, in the store's own unit.
    #[error("{lag} behind the leader, at most {lag_max} is allowed")]
    Behind {
        /// So far it is.
        lag: u64,
        /// So far it may be.
        lag_max: u64,
    },
}

/// A cluster at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observed {
    /// Where leader, voters and replicas are.
    pub layout: Layout,
    /// By site; `None` where there is no replica.
    pub replicas: Vec<Option<Seen>>,
}

impl Observed {
    /// Whether the replica at a site serves and is not farther behind than `lag_max`.
    ///
    /// # Errors
    /// With what is wrong.
    pub fn is_well(&self, site: usize, lag_max: u64) -> Result<(), Unwell> {
        match self.replicas.get(site).and_then(Option::as_ref) {
            None => Err(Unwell::Unseen),
            Some(Seen { ill: Some(why), .. }) => Err(Unwell::Ill(why.clone())),
            Some(Seen { lag, .. }) if *lag > lag_max => Err(Unwell::Behind { lag: *lag, lag_max }),
            Some(_) => Ok(()),
        }
    }

    /// The first voter that is not well, and why.
    pub fn ill_voter(&self, lag_max: u64) -> Option<(usize, Unwell)> {
        let ill = |site: &usize| self.is_well(*site, lag_max).err().map(|why| (*site, why));
        self.layout.voters().iter().find_map(ill)
    }

    /// Whether enough of a layout's voters serve to commit.
    pub fn has_quorum(&self, of: &Layout) -> bool {
        let well = of.voters().iter().filter(|site| self.is_well(**site, u64::MAX).is_ok()).count();
        well >= majority(of.voters().len())
    }
}

/// A store whose leader, voters and replicas can be moved. Every call ends within a time of its
/// own, whatever the store does.
pub trait Cluster {
    /// Being the only one who moves this cluster.
    type Hold;

    /// Its name in logs and errors.
    fn name(&self) -> &str;

    /// The name of a site in logs and errors.
    fn site_name(&self, site: usize) -> String;

    /// A step with the names of its sites.
    fn words(&self, step: Step) -> String {
        step.named(&|site| self.site_name(site))
    }

    /// What can be done to it.
    fn abilities(&self) -> Abilities;

    /// Whether what is seen is what was wanted. Stores that choose their voters themselves say so
    /// when the rest is right.
    fn is_reached(&self, seen: &Layout, wanted: &Layout) -> bool {
        seen == wanted
    }

    /// Looks at it.
    ///
    /// # Errors
    /// When nobody answers who knows, or its members are none of the sites.
    fn observe(&self) -> impl Future<Output = Result<Observed, RemoteError>>;

    /// Exactly what [`apply`](Self::apply) would do, as requests or commands.
    fn say(&self, step: Step) -> impl Future<Output = String>;

    /// Does one step. Whether it took effect is seen by looking.
    ///
    /// # Errors
    /// When the store refuses or does not answer.
    fn apply(&self, step: Step) -> impl Future<Output = Result<(), RemoteError>>;

    /// Becomes the only one who moves it: on all machines where the store itself keeps the hold
    /// (etcd, ZooKeeper), on this one where a file does.
    ///
    /// # Errors
    /// When somebody else is, with who.
    fn hold(&self, who: &str) -> impl Future<Output = Result<Self::Hold, RemoteError>>;

    /// Says that it is still held; called between steps and while waiting.
    ///
    /// # Errors
    /// When it is held no more.
    fn keep(&self, hold: &Self::Hold) -> impl Future<Output = Result<(), RemoteError>>;

    /// Lets others move it.
    fn release(&self, hold: Self::Hold) -> impl Future<Output = ()>;
}
