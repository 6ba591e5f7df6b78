//! Real clusters of Apache Cassandra: what a test asks of one, and what it may do to it.
//!
//! A cluster takes a quarter of a minute to start, so that a test binary has one ([`shared`]) and
//! its tests have keyspaces of their own. Tests that only ask take [`Cluster::calm`]; a test that
//! pauses or kills nodes takes [`Cluster::disturb`] and has the cluster to itself until it lets go.
//!
//! Nodes have loopback addresses of their own and the standard port, as drivers expect it. They end
//! with the process that started them, however that ends (see `files::Reaper`).

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

pub mod client;
mod files;
mod node;
mod quota;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use evenkeel_cql::Version;

use crate::program;
use crate::story::{Missing, skipped};
use crate::wait::block_until_within;
use files::Reaper;
use node::Node;
pub use node::processor_time;
pub use quota::{Quota, Way};

/// Where every node listens for clients.
pub const PORT: u16 = 9042;

/// How long a cluster may take to start, on a busy machine.
const START_MAX: Duration = Duration::from_secs(180);

/// The version that the rig is written for.
const VERSION: &str = "5.0.9";

/// What cluster a test wants.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The cluster's name.
    pub name: &'static str,
    /// The data centre and rack of each node, in the order of their addresses.
    pub places: Vec<(String, String)>,
    /// How many tokens each node has. They are spread evenly, and the same in every run.
    pub tokens: usize,
    /// Java's heap for each node, in MiB.
    pub heap_mib: usize,
    /// Whether clients log in (user and password `cassandra`).
    pub password: bool,
    /// Whether clients speak TLS, with [`Cluster::authority`].
    pub tls: bool,
    /// The one version of it that nodes know, such as `TLSv1.2`; by default all of Java's.
    pub tls_version: Option<&'static str>,
    /// Whether nodes themselves prefer replicas that were quick of late.
    pub dynamic_snitch: bool,
    /// Whether Java optimizes as it does in production: starts later, runs faster.
    pub optimized: bool,
    /// More lines of `cassandra.yaml`.
    pub yaml: String,
    /// More options of Java.
    pub options: Vec<String>,
    /// The first node's address, after which the others count up; by default a free one.
    pub first: Option<Ipv4Addr>,
}

impl Spec {
    /// Data centres with their numbers of nodes; every node has a rack of its own.
    #[must_use]
    pub fn of(data_centers: &[(&str, usize)]) -> Self {
        let mut places = Vec::new();
        for (name, nodes) in data_centers {
            places.extend((1..=*nodes).map(|rack| ((*name).to_owned(), format!("r{rack}"))));
        }
        Self {
            name: "keel",
            places,
            tokens: 4,
            heap_mib: 384,
            password: false,
            tls: false,
            tls_version: None,
            dynamic_snitch: false,
            optimized: false,
            yaml: String::new(),
            options: Vec::new(),
            first: None,
        }
    }
}

/// Where `cargo xtask needs --install` puts a part of what tests with Cassandra need.
#[must_use]
pub fn made(part: &str) -> PathBuf {
    program::made(&format!("cassandra/{part}"))
}

/// Java and the jars, or what is missing.
///
/// # Errors
/// What is missing.
pub fn possible() -> Result<PathBuf, Missing> {
    if !Command::new("java").arg("-version").output().is_ok_and(|done| done.status.success()) {
        return Err("no `java` (Debian package openjdk-17-jre-headless)".into());
    }
    let lib = match std::env::var_os("EVENKEEL_CASSANDRA") {
        Some(named) => PathBuf::from(named),
        None => made("lib"),
    };
    if !lib.join(format!("cassandra-all-{VERSION}.jar")).is_file() {
        let advice = "`cargo xtask needs --install` brings it from Maven Central";
        return Err(format!("no Cassandra {VERSION} in {}; {advice}", lib.display()).into());
    }
    if TcpListener::bind((Ipv4Addr::new(127, 160, 0, 1), 0)).is_err() {
        return Err("this machine's loopback is 127.0.0.1 alone".into());
    }
    Ok(lib)
}

/// The cluster of this test binary: started by the first that asks. `None` where there can be none,
/// which is said aloud.
pub fn shared(spec: impl FnOnce() -> Spec) -> Option<&'static Cluster> {
    static CLUSTER: OnceLock<Result<Cluster, Missing>> = OnceLock::new();
    let started = CLUSTER.get_or_init(|| possible().map(|_| Cluster::start(&spec())));
    started.as_ref().map_err(skipped).ok()
}

/// A running cluster. Ends when it is dropped, and with the process at the latest.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Mutex<Node>>,
    places: Vec<(String, String)>,
    addresses: Vec<Ipv4Addr>,
    folder: PathBuf,
    authority: Option<String>,
    turn: RwLock<()>,
    _reaper: Reaper,
}

impl Cluster {
    /// Starts all nodes at once and waits until each sees all others.
    ///
    /// # Panics
    /// When there is no Cassandra here (ask [`possible`]), or it does not start.
    pub fn start(spec: &Spec) -> Self {
        let lib = possible().unwrap_or_else(|missing| panic!("{missing}"));
        let count = spec.places.len();
        let addresses = spec.first.map_or_else(|| own_addresses(count), |it| following(it, count));
        let folder = files::own_folder(addresses[0]);
        let reaper = Reaper::start(&folder);
        let authority = spec.tls.then(|| files::write_certificates(&folder, &addresses));
        let mut nodes = Vec::new();
        for index in 0..addresses.len() {
            let home = files::write(spec, &folder, &addresses, index);
            let mut node = Node::new(home, addresses[index], files::java(spec, &lib));
            node.start();
            nodes.push(Mutex::new(node));
        }
        let places = spec.places.clone();
        let turn = RwLock::default();
        let this = Self { nodes, places, addresses, folder, authority, turn, _reaper: reaper };
        let marks = vec![0; this.nodes.len()];
        for index in 0..this.nodes.len() {
            this.wait_for(index, &marks);
        }
        if spec.password {
            let made = "Created default superuser role";
            this.wait("the first user", || this.any_log_has(made));
        }
        for index in 0..this.nodes.len() {
            let of = format!("node {index} to know the tokens of all others");
            this.wait(&of, || this.knows_all_tokens(index));
        }
        this
    }

    /// How many nodes it has.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Where clients reach a node.
    #[must_use]
    pub fn address(&self, node: usize) -> SocketAddr {
        SocketAddr::from((self.addresses[node], PORT))
    }

    /// The data centre and rack of a node.
    #[must_use]
    pub fn place(&self, node: usize) -> (&str, &str) {
        let (data_center, rack) = &self.places[node];
        (data_center, rack)
    }

    /// Who signed the nodes' certificates, as PEM, where clients speak TLS.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// A node's certificate and key, in one file as PEM, where clients speak TLS.
    #[must_use]
    pub fn identity(&self, node: usize) -> PathBuf {
        files::home(&self.folder, node).join("identity.pem")
    }

    /// The process of a node, while it runs.
    #[must_use]
    pub fn process(&self, node: usize) -> Option<u32> {
        self.node(node).process()
    }

    /// The processor time that a node has used since it started.
    #[must_use]
    pub fn processor_time(&self, node: usize) -> Duration {
        processor_time(self.process(node).expect("it runs"))
    }

    /// What a node has logged.
    #[must_use]
    pub fn log(&self, node: usize) -> String {
        self.node(node).log()
    }

    /// Cassandra's own tool, such as `["flush", "shop"]`; takes seconds.
    pub fn nodetool(&self, node: usize, arguments: &[&str]) -> String {
        let mut tool = self.node(node).nodetool(&self.folder);
        let done = tool.args(arguments).output().expect("nodetool");
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "nodetool {arguments:?}: {said}{error}");
        said
    }

    /// As long as this is held, all nodes are well.
    pub fn calm(&self) -> RwLockReadGuard<'_, ()> {
        // A test that failed while it disturbed has repaired the cluster all the same.
        self.turn.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The right to pause and kill nodes. Letting go makes all well again, as does this where a
    /// test that failed has left nodes dead.
    pub fn disturb(&self) -> Disturbed<'_> {
        let turn = self.turn.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        let disturbed = Disturbed { cluster: self, _turn: turn };
        disturbed.restart_dead();
        disturbed
    }

    fn node(&self, index: usize) -> std::sync::MutexGuard<'_, Node> {
        self.nodes[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Lengths of the logs.
    fn marks(&self) -> Vec<usize> {
        (0..self.nodes.len()).map(|index| self.log(index).len()).collect()
    }

    fn any_log_has(&self, text: &str) -> bool {
        (0..self.nodes.len()).any(|index| self.log(index).contains(text))
    }

    /// Waits until a node serves clients, and it and each other that runs have told that they see
    /// each other; only what logs say after `marks` counts.
    fn wait_for(&self, index: usize, marks: &[usize]) {
        let reported = |observer: usize, what: &str| {
            let log = self.log(observer);
            log.get(marks[observer]..).is_some_and(|new| new.contains(what))
        };
        let address = self.addresses[index];
        self.wait(&format!("node {index}, {address}, to listen"), || {
            self.node(index).expect_running();
            reported(index, "Starting listening for CQL clients")
        });
        for other in (0..self.nodes.len()).filter(|other| *other != index) {
            if self.process(other).is_none() {
                continue;
            }
            let is_up = |of: usize| format!("/{}:7000 is now UP", self.addresses[of]);
            self.wait(&format!("nodes {index} and {other} to see each other"), || {
                reported(index, &is_up(other)) && reported(other, &is_up(index))
            });
        }
    }

    /// Whether a node has the tokens of all others: it may see that they are up before it does, and
    /// refuse keyspaces that are to have replicas there.
    fn knows_all_tokens(&self, index: usize) -> bool {
        let address = self.address(index);
        let client = match self.authority() {
            Some(authority) => client::Client::connect_tls(address, authority, Version::V4),
            None => client::Client::connect(address, Version::V4, None),
        };
        let Ok(mut client) = client else { return false };
        let peers = client.rows("select tokens from system.peers");
        let known = peers.iter().filter(|peer| peer[0].is_some()).count();
        known + 1 == self.nodes.len()
    }

    fn wait(&self, what: &str, is_true: impl FnMut() -> bool) {
        let what = format!("{what}; logs are in {}", self.folder.display());
        block_until_within(START_MAX, &what, is_true);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.nodes.len() {
            self.node(index).kill();
        }
    }
}

/// The right to do harm.
#[derive(Debug)]
pub struct Disturbed<'a> {
    cluster: &'a Cluster,
    _turn: RwLockWriteGuard<'a, ()>,
}

impl Disturbed<'_> {
    /// SIGSTOP: connections stay, nothing answers.
    pub fn pause(&self, node: usize) {
        self.cluster.node(node).pause();
    }

    /// SIGCONT.
    pub fn resume(&self, node: usize) {
        self.cluster.node(node).resume();
    }

    /// SIGKILL.
    pub fn kill(&self, node: usize) {
        self.cluster.node(node).kill();
    }

    /// Starts a killed node with its data, and waits until it serves and is seen.
    pub fn restart(&self, node: usize) {
        let marks = self.cluster.marks();
        self.cluster.node(node).start();
        self.cluster.wait_for(node, &marks);
    }

    fn restart_dead(&self) {
        for index in 0..self.cluster.nodes() {
            if self.cluster.process(index).is_none() {
                self.restart(index);
            }
        }
    }

    /// Limits a node to a share of one processor until [`Self::unlimited`]; says by what means.
    pub fn quota(&self, node: usize, share: f64) -> Way {
        self.quota_each(node, share, quota::PERIOD)
    }

    /// The same for each period of this length: within one a node may work and then wait.
    pub fn quota_each(&self, node: usize, share: f64, period: Duration) -> Way {
        self.cluster.node(node).limit(share, period)
    }

    /// Lifts a quota.
    pub fn unlimited(&self, node: usize) {
        self.cluster.node(node).unlimited();
    }
}

impl Drop for Disturbed<'_> {
    fn drop(&mut self) {
        for index in 0..self.cluster.nodes() {
            self.unlimited(index);
            self.resume(index);
        }
        // A second panic would abort and hide the first.
        if !std::thread::panicking() {
            self.restart_dead();
        }
    }
}

/// So many addresses, from this on.
#[must_use]
pub fn following(first: Ipv4Addr, count: usize) -> Vec<Ipv4Addr> {
    (0..count as u32).map(|step| Ipv4Addr::from(u32::from(first) + step)).collect()
}

/// Loopback addresses on which nobody listens, unlike those of other processes.
fn own_addresses(nodes: usize) -> Vec<Ipv4Addr> {
    // Clusters of one process may start at once, before any of them has taken its ports.
    static STEPS: AtomicU32 = AtomicU32::new(0);
    let process = std::process::id();
    let free = |address: &Ipv4Addr| {
        [PORT, 7000].iter().all(|port| TcpListener::bind((*address, *port)).is_ok())
    };
    for _ in 0..250 {
        let third = (process + STEPS.fetch_add(1, Ordering::Relaxed)) % 250 + 1;
        let second = 160 + (process / 250) % 90;
        let address = |node| Ipv4Addr::new(127, second as u8, third as u8, node as u8 + 1);
        let addresses: Vec<Ipv4Addr> = (0..nodes).map(address).collect();
        if addresses.iter().all(free) {
            return addresses;
        }
    }
    panic!("no free loopback addresses");
}
