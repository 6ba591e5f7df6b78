//! `[upstream.NAME]`: replicas any of which can answer a request, and how to choose.

pub mod read;

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::redundancy::{Budget, HedgeConfig};
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::Policy;
use evenkeel_core::{Health, ReplicaId};
use evenkeel_geo::traffic::SplitSetup;
use evenkeel_kubernetes::{Api, Service};

use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::tls::ClientTlsFiles;
use evenkeel_settings::address::{HostPort, ServerAddress};

/// Who tells of replicas, beside the addresses that are written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplicaSource {
    /// A name of `replicas`: all its addresses (A and AAAA records).
    Name(HostPort),
    /// `discover.dns`: the hosts and ports of a service (SRV records).
    Service(String),
    /// `discover.file`: a file as Prometheus reads it (`file_sd`).
    File(PathBuf),
    /// `discover.kubernetes`: the endpoints of a Service.
    Kubernetes(Cluster),
}

/// A Service of Kubernetes, and the API server that knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cluster {
    /// The Service.
    pub service: Service,
    /// Where it is asked for.
    pub api: Api,
}

impl fmt::Display for ReplicaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Service(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
            Self::Kubernetes(cluster) => cluster.service.fmt(f),
        }
    }
}

/// The sites between which an upstream's requests are split, and where they are among its data
/// centres.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteSetup {
    /// The sites.
    pub sites: SplitSetup,
    /// By site, its place among the data centres of the upstream, home first; `None` for one that
    /// no way is known to.
    pub places: Vec<Option<usize>>,
}

/// `[upstream.NAME]`: replicas any of which can answer a request, and how to choose.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamConfig {
    /// Its name in the file, in metrics and on the dashboard.
    pub name: String,
    /// The replicas at home that are written by address: the first slots. Where they are
    /// discovered: servers that tell of them.
    pub replicas: Vec<ServerAddress>,
    /// Who tells of more replicas at home, each once.
    pub sources: Vec<ReplicaSource>,
    /// Whether the cluster itself tells who is in it; `replicas` are then only whom to ask first.
    pub is_discovered: bool,
    /// `[upstream.NAME.sites]`: who serves in other data centres, in the order of their names.
    pub sites: Vec<SiteReplicas>,
    /// Between which data centres requests are split, from `[redirect]`; `None` = all stay at home.
    pub split: Option<SiteSetup>,
    /// The policy; default `c3`.
    pub policy: Policy,
    /// Other Evenkeel processes before the same replicas, this one included; default 1. Times the
    /// workers it is C3's number of clients.
    pub proxies: u32,
    /// Time limits.
    pub timeouts: Timeouts,
    /// Retries one request may make on other replicas: default 1.
    pub retries_max: u8,
    /// Retries as a share of requests: default 20 %.
    pub retry_budget: Budget,
    /// Bodies up to this many bytes are kept so that the request can be sent again; default 64 KiB.
    pub replay_bytes_max: u64,
    /// `[upstream.NAME.hedge]`; absent = no hedging.
    pub hedge: Option<HedgeConfig>,
    /// `[upstream.NAME.safeguards]`
    pub safeguards: Safeguards,
    /// Requests that may be held for a sending rate; default 1024 per worker.
    pub held_max: usize,
    /// `[upstream.NAME.health]`; absent = only failures of requests count.
    pub health: Option<HealthConfig>,
    /// `[upstream.NAME.operations]`; absent = its requests are no operations of a database.
    pub operations: Option<CountedAs>,
    /// What each worker allows itself towards each replica.
    pub limits: UpstreamLimits,
    /// Encryption towards the replicas; `None` = none.
    pub tls: Option<ClientTlsFiles>,
}

/// An entry of `[upstream.NAME.sites]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteReplicas {
    /// The data centre.
    pub name: String,
    /// Where requests for it go: its proxies, or its replicas.
    pub replicas: Vec<ServerAddress>,
}

impl UpstreamConfig {
    /// Everyone requests may be sent to, by slot: the replicas at home, then those of each site.
    pub fn slots(&self) -> impl Iterator<Item = ServerAddress> {
        let remote = self.sites.iter().flat_map(|site| &site.replicas);
        self.replicas.iter().chain(remote).copied()
    }

    /// The slots of each data centre: home, then the sites.
    pub fn groups(&self) -> Vec<Range<usize>> {
        let sites = self.sites.iter().map(|site| site.replicas.len());
        let lengths = std::iter::once(self.replicas.len()).chain(sites);
        let mut end = 0;
        let next = |length| {
            end += length;
            end - length..end
        };
        lengths.map(next).collect()
    }

    /// The plan before anything is known: all up, in one group for each data centre.
    pub fn first_plan(&self) -> RoutePlan {
        let groups = self.groups().into_iter();
        RoutePlan {
            version: 0,
            health: vec![Health::Up; self.slots().count()],
            generations: Vec::new(),
            groups: groups.map(|slots| slots.map(ReplicaId::new).collect()).collect(),
        }
    }
}

/// `[upstream.NAME.timeouts]`
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// One attempt, from sending to the head of the answer; default 15 s.
    pub attempt: Duration,
    /// The whole request, retries and waiting included, to the head of the answer; default 30 s.
    pub total: Duration,
}

/// `[upstream.NAME.operations]`: as what operations of a database requests are counted, for
/// whoever places it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedAs {
    /// The database.
    pub database: String,
    /// Where the users of this process are.
    pub datacenter: String,
    /// What a request with a safe method waits for, as the label of its metric; default a weak
    /// read.
    pub reads: &'static str,
    /// What any other request waits for; default a transaction within a group.
    pub writes: &'static str,
}

/// `[upstream.NAME.health]`: active checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// What to ask for; an answer below 500 is healthy. Default `/`.
    pub path: String,
    /// Time between checks of one replica; default 1 s.
    pub interval: Duration,
    /// Time limit of a check; default 1 s.
    pub timeout: Duration,
    /// Failures in a row before a replica counts as down; default 2.
    pub fall: u32,
    /// Successes in a row before it counts as up again; default 2.
    pub rise: u32,
}
