//! `[placement]`: databases whose leader, voters and replicas shall be where the work is.

pub mod read;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_planner::domains::{Diversity, Domains};
use evenkeel_planner::model::{Layout, RoundTrips, Route};
use evenkeel_planner::steady::Steady;
use evenkeel_planner::tail::Tails;

use crate::act::window::Window;
use crate::act::{etcd, nats, patroni, zookeeper};

/// `[placement]`: how and how often it is decided where databases live.
#[derive(Debug, Clone)]
pub struct PlacementConfig {
    /// Time between decisions, and what one interval of counts covers; default half an hour.
    pub interval: Duration,
    /// What is to be small: this percentile of what operations take; `None` = the mean.
    pub percentile: Option<Probability>,
    /// Whether round trips are those that the mesh of `[redirect]` measures.
    pub is_mesh: bool,
    /// What may change; default the leader.
    pub tier: PlacementTier,
    /// How fast the past fades: τ of equation 2; default 2.
    pub tau: f64,
    /// Which replica clients read from.
    pub route: Route,
    /// When to move.
    pub steady: Steady,
    /// Whether nothing is changed; default yes.
    pub dry_run: bool,
    /// Where all that is done is written down; there is one wherever something may be done.
    pub audit: Option<PathBuf>,
    /// When moves may begin; `None` = always.
    pub window: Option<Window>,
    /// Where operations come from: the rows of the round trips.
    pub clients: Arc<[String]>,
    /// `[[placement.databases]]`
    pub databases: Vec<DatabaseConfig>,
}

/// What decisions may change: the tiers of the paper.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum PlacementTier {
    /// Who of the voters leads.
    Leader = 1,
    /// Who of the replicas votes, too.
    Voters = 2,
    /// Which sites have a replica, too.
    Replicas = 3,
}

/// `[[placement.databases]]`: one database.
#[derive(Debug, Clone)]
pub struct DatabaseConfig {
    /// Its name in metrics, logs and on the dashboard.
    pub name: String,
    /// Where replicas can be.
    pub sites: Arc<[String]>,
    /// From all clients to these sites, and between the sites; `None` = the mesh's.
    pub trips: Option<Arc<RoundTrips>>,
    /// How these vary, where a percentile is to be small.
    pub tails: Option<Arc<Tails>>,
    /// Which failure domain each of these sites is in, if that is known.
    pub domains: Option<Domains>,
    /// How far voters must be spread; `None` = as far as they are.
    pub diversity: Option<Diversity>,
    /// Where operations are counted.
    pub operations: OperationsConfig,
    /// Where everything is, for a database that nobody looks at.
    pub today: Option<Layout>,
    /// Who moves it; `None` = nobody, moves are only recommended.
    pub system: Option<SystemConfig>,
    /// What may change of this one: not more than its system can.
    pub tier: PlacementTier,
    /// For tier 3: how many replicas; `None` = as many as there are.
    pub replicas: Option<usize>,
    /// For tier 3: how many of them vote; `None` = as many as do.
    pub voters: Option<usize>,
}

/// Where operations are counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationsConfig {
    /// In Prometheus.
    Prometheus {
        /// Where it is, `http://host:port` or `https://…`.
        server: String,
        /// What is asked, in PromQL. `$database` and `$interval` stand for the name of the database
        /// and the time between decisions.
        query: String,
        /// The authority that it is believed by, for `https`, PEM.
        authority: Option<PathBuf>,
        /// A file with a token that it wants.
        token_file: Option<PathBuf>,
    },
    /// In a file that somebody appends to: CSV as for `evenkeel plan placement`.
    Csv(PathBuf),
}

/// `[placement.databases.system]`: the store that holds a database.
#[derive(Debug, Clone)]
pub struct SystemConfig {
    /// Which store, and its members in the order of the database's sites.
    pub store: StoreConfig,
    /// For one step, until it is seen and all are well; default 60 s.
    pub step: Duration,
    /// How far a replica may be behind the leader, in the store's unit.
    pub lag_max: u64,
    /// A file with the password of the user, where there is one.
    pub password_file: Option<PathBuf>,
}

/// Stores that can be moved, without their passwords.
#[derive(Debug, Clone)]
pub enum StoreConfig {
    /// etcd.
    Etcd(etcd::Settings),
    /// PostgreSQL under Patroni.
    Patroni(patroni::Settings),
    /// ZooKeeper.
    ZooKeeper(zookeeper::Settings),
    /// A stream of NATS JetStream.
    Nats(nats::Settings),
}

impl StoreConfig {
    /// Its name in files.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Etcd(_) => "etcd",
            Self::Patroni(_) => "patroni",
            Self::ZooKeeper(_) => "zookeeper",
            Self::Nats(_) => "nats",
        }
    }

    /// Whether its leader stays where an election puts it.
    pub const fn elects(&self) -> bool {
        matches!(self, Self::ZooKeeper(_))
    }
}
