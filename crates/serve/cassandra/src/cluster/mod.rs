//! Who is there: the nodes of a cluster, its keyspaces, and what changes.
//!
//! One connection, to one node at a time, reads the cluster's tables and hears its events; the
//! next node is asked when it breaks, or when that node is found to be down. What a cluster says of
//! its nodes' health is gossip: whether a node is up *here* is found out by asking it (`OPTIONS`),
//! every node, every interval.
//!
//! **What nobody told.** Between two such connections a cluster's events are told to nobody. The
//! schema's version says whether one was about the schema: a node sends the event of a change
//! before its `system.local` has the change's version, so a version that was read on a connection
//! with events is one whose events have come. When another is read and no event of this connection
//! explains it, changes were missed ([`Notice::SchemaMissed`]). **When it misleads**: a change that
//! was told right before the connection broke is taken for one that was not, until the version is
//! read after it; whoever hears of it reads the schema once more than needed.
//!
//! Runs on the control thread ([`keep`]); workers see the newest [`Cluster`] whole ([`View`]).

mod checks;
mod polls;
mod read;
mod watcher;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_core::Feedback;
use evenkeel_core::request::ring::{Replication, Token};
use evenkeel_cql::Malformed;
use evenkeel_cql::response::Event;
use evenkeel_settings::address::ServerAddress;
use tokio::sync::{broadcast, watch};

use evenkeel_cql::client::{Login, NodeLimits};

pub use watcher::keep;

/// Events that a slow reader may be behind before it misses some.
const EVENTS_KEPT: usize = 256;

/// Where a cluster is found, and how it is watched.
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// Native addresses of some of its nodes, or names that lead to some; the others are learnt.
    pub contact_points: Vec<ServerAddress>,
    /// Who reads the cluster's tables; `None` where nodes let everybody in.
    pub login: Option<Arc<Login>>,
    /// Limits and TLS of the connection that reads them.
    pub limits: NodeLimits,
    /// Where nodes are reached, where that is not the address they tell: behind a network's
    /// border, a relay or an agent.
    pub reached_at: BTreeMap<SocketAddr, SocketAddr>,
    /// How often everything is read again when no event said so; 60 s is usual.
    pub refresh: Duration,
    /// How long events are gathered before everything is read again; 300 ms is usual.
    pub settle: Duration,
    /// How often every node is checked.
    pub check_every: Duration,
    /// How long a check may take.
    pub check_timeout: Duration,
    /// Failed checks in a row after which a node is down.
    pub fall: u32,
    /// Checks in a row after which it is up again.
    pub rise: u32,
    /// How often every node's thread pools are read, for reports of nodes without an agent; `None`
    /// does without. From 100 ms to 1 s is usual.
    pub poll_every: Option<Duration>,
    /// For the pauses between attempts.
    pub seed: u64,
}

impl ClusterSettings {
    /// The usual settings for these contact points.
    pub fn new(contact_points: Vec<impl Into<ServerAddress>>) -> Self {
        Self {
            contact_points: contact_points.into_iter().map(Into::into).collect(),
            login: None,
            limits: NodeLimits::default(),
            reached_at: BTreeMap::new(),
            refresh: Duration::from_secs(60),
            settle: Duration::from_millis(300),
            check_every: Duration::from_secs(1),
            check_timeout: Duration::from_secs(1),
            fall: 3,
            rise: 2,
            poll_every: None,
            seed: 1,
        }
    }
}

/// A cluster as its nodes describe it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Cluster {
    /// Its name; empty while nothing is known.
    pub name: String,
    /// The class that makes tokens of keys.
    pub partitioner: String,
    /// The release of the node that was asked.
    pub release_version: String,
    /// The version of CQL of that node.
    pub cql_version: String,
    /// The schema's version at that node.
    pub schema_version: Option<[u8; 16]>,
    /// All nodes with tokens, by the number of their host, down or not.
    pub nodes: Vec<Member>,
    /// The keyspaces whose replication could be read.
    pub keyspaces: BTreeMap<String, Replication>,
}

impl Cluster {
    /// Whether anything is known.
    pub fn is_known(&self) -> bool {
        !self.nodes.is_empty()
    }
}

/// One node of a cluster.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// Where it is reached.
    pub address: SocketAddr,
    /// Where it says that it listens: what events name.
    pub reported: SocketAddr,
    /// The number it keeps for life.
    pub host_id: [u8; 16],
    /// Its data centre.
    pub datacenter: String,
    /// Its rack.
    pub rack: String,
    /// Its release.
    pub release_version: String,
    /// Its tokens, ascending.
    pub tokens: Vec<Token>,
    /// Whether it answers.
    pub is_up: bool,
}

/// Something changed, in the words of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterEvent {
    body: Bytes,
}

impl ClusterEvent {
    /// An event of which this is the message.
    ///
    /// # Errors
    /// When it is none.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        Event::read(message)?;
        Ok(Self { body: Bytes::copy_from_slice(message) })
    }

    /// What changed.
    ///
    /// # Panics
    /// Never: it was read when it came.
    pub fn event(&self) -> Event<'_> {
        Event::read(&self.body).expect("an event that was read is read again")
    }

    /// The body of its `EVENT`; v4 and v5 write it alike.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

/// What whoever waits for events has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// What a node told.
    Event(ClusterEvent),
    /// The schema is another, and no node told how: the one that tells had gone.
    SchemaMissed,
}

/// What there is to know of a cluster; clones share it.
#[derive(Clone, Debug)]
pub struct View {
    cluster: watch::Receiver<Arc<Cluster>>,
    events: broadcast::Sender<Notice>,
    state: watch::Receiver<Watching>,
    reports: watch::Receiver<Arc<Reports>>,
}

/// The newest polled report of each node, by where it is reached.
pub type Reports = BTreeMap<SocketAddr, Feedback>;

impl View {
    /// The newest state; empty while nothing is known.
    #[must_use]
    pub fn cluster(&self) -> Arc<Cluster> {
        Arc::clone(&self.cluster.borrow())
    }

    /// To wait for changes of the state.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<Cluster>> {
        self.cluster.clone()
    }

    /// Events from now on.
    pub fn events(&self) -> broadcast::Receiver<Notice> {
        self.events.subscribe()
    }

    /// Polled reports, to be read and waited for ([`ClusterSettings::poll_every`]).
    pub fn reports(&self) -> watch::Receiver<Arc<Reports>> {
        self.reports.clone()
    }

    /// How the watching itself goes.
    pub fn watching(&self) -> Watching {
        self.state.borrow().clone()
    }
}

/// How the watching of a cluster goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// The node that tells; `None` while none does.
    pub node: Option<SocketAddr>,
    /// Times that everything was read.
    pub reads: u64,
    /// Connections that broke or could not be opened.
    pub failures: u64,
    /// What went wrong last, while it does.
    pub error: Option<Arc<str>>,
}

impl fmt::Display for Watching {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.node, &self.error) {
            (Some(node), _) => write!(formatter, "told by {node}"),
            (None, Some(error)) => write!(formatter, "told by nobody: {error}"),
            (None, None) => formatter.write_str("told by nobody yet"),
        }
    }
}

/// Where [`keep`] puts what it finds.
#[derive(Debug)]
pub struct Publisher {
    cluster: watch::Sender<Arc<Cluster>>,
    events: broadcast::Sender<Notice>,
    state: watch::Sender<Watching>,
    reports: watch::Sender<Arc<Reports>>,
}

/// Both ends of what is known of one cluster.
pub fn channel() -> (Publisher, View) {
    let (cluster, seen) = watch::channel(Arc::default());
    let (state, watching) = watch::channel(Watching::default());
    let (reports, reported) = watch::channel(Arc::default());
    let events = broadcast::Sender::new(EVENTS_KEPT);
    let view = View { cluster: seen, events: events.clone(), state: watching, reports: reported };
    (Publisher { cluster, events, state, reports }, view)
}
