//! A recorded day made ready: its rows, the world rebuilt from them, what is known of the proxy.

mod agents;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use evenkeel_records::manifest::{BY_AGENT, BY_RUN};
use evenkeel_records::{Manifest, Recorded, RecordsError, read, read_manifest, read_parts};
use evenkeel_settings::{Node, Problem, Problems};
use evenkeel_sim::Scenario;
use evenkeel_twin::join::JoinError;
use evenkeel_twin::rows::Day;
use evenkeel_twin::twin::RebuildError;
use evenkeel_twin::{Rebuilder, Twin};
use thiserror::Error;

use crate::answer::{Refusal, Setup, WHOLE_MAX};
use crate::causes::{Causes, Slowest};
use crate::observed::Observed;

/// The seed that draws the works of copies which were given up: the same for every replay.
const SEED: u64 = 1;
/// Rows of a part of a long day: a day of up to a million is one part.
const PART_ROWS: usize = 500_000;
/// Each client has a dispatcher in every replay.
const CLIENTS_MAX: usize = 1_024;

/// A day that can be asked about.
#[derive(Debug)]
pub struct Ready {
    /// What is known of it beside its rows.
    pub manifest: Manifest,
    /// What users saw of it.
    pub observed: Observed,
    /// The world that they tell of.
    pub twin: Twin,
    /// What is known of the proxy.
    pub like: Scenario,
    /// Files that were still written, or whose writer was killed.
    pub unfinished: usize,
    /// Days of agents that joined it.
    pub agents: usize,
}

/// Why nothing can be asked.
#[derive(Debug, Error)]
pub enum ReadyError {
    /// The files are wrong.
    #[error(transparent)]
    Records(#[from] RecordsError),
    /// What the manifest says of the proxy is wrong.
    #[error("{0}")]
    Like(Problems),
    /// A setting is wrong.
    #[error("{0}")]
    Setting(#[from] Problem),
    /// A day is of one site and of one service.
    #[error("manifest.json (like): got sites or tiers, expected one site without tiers")]
    Shape,
    /// A setting that a replay does not have, with what was expected.
    #[error("--set {0}: expected {1}")]
    Set(String, &'static str),
    /// Requests of groups of replicas that the simulator cannot form.
    #[error(
        "no answer: rows-*.parquet (group): got group {0} of {1} replicas, expected {2}: days of \
         Cassandra with more nodes than replicas of a row, and of partitioned duplicates, have \
         groups that the simulator has not"
    )]
    Groups(u16, usize, &'static str),
    /// More clients than are played.
    #[error(
        "rows-*.parquet (client): got more than {0} clients, expected at most as many: was the day \
         written by hand?"
    )]
    Clients(usize),
    /// A day that completes another one.
    #[error("{0}: got the day of an agent, expected that of a proxy (give it as --agents)")]
    Agent(String),
    /// Agents' days cannot be found.
    #[error("--agents {0}: got {1}, expected folders with days of agents: {2}")]
    Agents(String, String, &'static str),
    /// An agent's day says of it what no agent writes.
    #[error(
        "--agents: manifest.json (like) of an agent: got {0:?}, expected lines that begin \
        with {1}: was it written by hand?"
    )]
    Dimmer(String, &'static str),
    /// Agents' rows do not fit.
    #[error("--agents: {0}")]
    Join(#[from] JoinError),
    /// There is no answer.
    #[error("no answer: {0}")]
    Refused(#[from] Refusal),
    /// The rows tell of no world.
    #[error("no answer: {0}")]
    Rebuild(#[from] RebuildError),
}

impl From<Problems> for ReadyError {
    fn from(problems: Problems) -> Self {
        Self::Like(problems)
    }
}

impl ReadyError {
    /// Whether the question was right and only has no answer.
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::Rebuild(_) | Self::Groups(..))
    }
}

impl Ready {
    /// Reads a day and rebuilds its world: a long one part by part.
    ///
    /// # Errors
    /// When the files are wrong, the day is too short, or it has groups that cannot be replayed.
    pub fn read(directory: &Path) -> Result<Self, ReadyError> {
        if read_manifest(directory)?.by == BY_AGENT {
            return Err(ReadyError::Agent(directory.display().to_string()));
        }
        let mut making = Making::new();
        let (manifest, unfinished) =
            read_parts(directory, PART_ROWS, |manifest, part| making.add(manifest, part))?;
        making.finish(manifest, unfinished)
    }

    /// The same with what agents saw, whose days are in these folders or below; the day is in
    /// memory as a whole then.
    ///
    /// # Errors
    /// As [`read`](Self::read), and when one has nothing of the day, or all have too little.
    pub fn read_with(directory: &Path, agents: &[PathBuf]) -> Result<Self, ReadyError> {
        if agents.is_empty() {
            return Self::read(directory);
        }
        let (recorded, agents) = joined(directory, agents)?;
        Ok(Self { agents, ..Self::of(recorded)? })
    }

    /// Rebuilds the world of a day.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of(recorded: Recorded) -> Result<Self, ReadyError> {
        let Recorded { manifest, day, unfinished } = recorded;
        let mut making = Making::new();
        making.add(&manifest, day)?;
        making.finish(manifest, unfinished)
    }

    /// What a manifest says of the proxy, if a day of it can be replayed.
    ///
    /// # Errors
    /// When it is no scenario of one site, or names a policy that there is not.
    pub fn check(manifest: &Manifest) -> Result<Scenario, ReadyError> {
        let mut node = like(manifest)?;
        let like = proxy(&node, manifest)?;
        if like.geography.is_some() || !like.tiers.is_empty() {
            return Err(ReadyError::Shape);
        }
        for policy in &manifest.policies {
            node.set(&format!("run.policies=[{policy:?}]"))?;
            Scenario::read(&node)?;
        }
        Ok(like)
    }

    /// The same with other settings of what is known of the proxy, as in `run.policies=[c3]`.
    ///
    /// # Errors
    /// When a setting is wrong.
    pub fn with(mut self, sets: &[String]) -> Result<Self, ReadyError> {
        let mut node = like(&self.manifest)?;
        for set in sets {
            node.set(set)?;
        }
        self.like = believed(proxy(&node, &self.manifest)?, &self.twin);
        Ok(self)
    }

    /// How it is replayed.
    ///
    /// # Errors
    /// When nobody knows its policy.
    pub fn setup(&self) -> Result<Setup<'_>, Refusal> {
        let recorded = self.manifest.policies.first().ok_or(Refusal::NoPolicy)?;
        let explores = self.twin.requests.iter().any(|request| request.policy == 1);
        let explored = self.manifest.policies.get(1).filter(|_| explores);
        Ok(Setup {
            like: &self.like,
            recorded,
            explored: explored.map(String::as_str),
            pairs: self.manifest.pairs,
            whole_max: WHOLE_MAX,
        })
    }

    /// What was found, for people.
    pub fn described(&self) -> String {
        described(&self.twin)
    }
}

/// A day with what agents saw, whose days are in these folders or below, and how many days of
/// agents that are.
///
/// # Errors
/// When the files are wrong, one folder has nothing of the day, or all have too little.
pub fn joined(directory: &Path, agents: &[PathBuf]) -> Result<(Recorded, usize), ReadyError> {
    let recorded = read(directory)?;
    if recorded.manifest.by == BY_AGENT {
        return Err(ReadyError::Agent(directory.display().to_string()));
    }
    agents::joined(recorded, agents)
}

/// The groups of a day are those of the simulator: as many as replicas, neighbours on a ring.
fn check_groups(manifest: &Manifest, day: &Day) -> Result<(), ReadyError> {
    let replicas = manifest.replicas.len();
    // A proxy has one group of all its replicas, 0, or groups of its own.
    let (groups, expected) = match manifest.by == BY_RUN {
        true => (1, "0, as every replica answers every request"),
        false => (replicas, "fewer groups than replicas"),
    };
    let wrong = day.rows.iter().find(|row| usize::from(row.group) >= groups);
    wrong.map_or(Ok(()), |row| Err(ReadyError::Groups(row.group, replicas, expected)))
}

/// A day that is made ready part by part.
struct Making {
    /// What is known of the proxy, once the first part has come.
    like: Option<Scenario>,
    clients: BTreeMap<u16, u16>,
    rebuilder: Rebuilder,
    slowest: Slowest,
    has_agents: bool,
}

impl Making {
    fn new() -> Self {
        Self {
            like: None,
            clients: BTreeMap::new(),
            rebuilder: Rebuilder::new(SEED),
            slowest: Slowest::default(),
            has_agents: false,
        }
    }

    fn add(&mut self, manifest: &Manifest, mut part: Day) -> Result<(), ReadyError> {
        if self.like.is_none() {
            self.like = Some(Ready::check(manifest)?);
        }
        check_groups(manifest, &part)?;
        self.number_clients(&mut part)?;
        self.rebuilder.add(&part)?;
        self.slowest.add(&part);
        self.has_agents |= part.rows.iter().any(|row| row.served.is_some());
        Ok(())
    }

    /// Gives clients numbers from 0 on, without gaps.
    fn number_clients(&mut self, part: &mut Day) -> Result<(), ReadyError> {
        let all: BTreeSet<u16> = part.rows.iter().map(|row| row.client).collect();
        for client in all {
            let next = self.clients.len() as u16;
            self.clients.entry(client).or_insert(next);
            if self.clients.len() > CLIENTS_MAX {
                return Err(ReadyError::Clients(CLIENTS_MAX));
            }
        }
        for row in &mut part.rows {
            row.client = self.clients.get(&row.client).copied().unwrap_or(0);
        }
        Ok(())
    }

    fn finish(self, manifest: Manifest, unfinished: usize) -> Result<Ready, ReadyError> {
        let like = match self.like {
            Some(like) => like,
            None => Ready::check(&manifest)?,
        };
        let twin = self.rebuilder.finish()?;
        let like = believed(like, &twin);
        let causes = self.has_agents.then(|| Causes::of_slowest(self.slowest, &twin));
        let observed = Observed::new(&twin, causes);
        Ok(Ready { manifest, observed, twin, like, unfinished, agents: 0 })
    }
}

/// What the manifest says of the proxy, as a scenario.
pub(crate) fn like(manifest: &Manifest) -> Result<Node, ReadyError> {
    let mut node = Node::parse(&manifest.like, "manifest.json (like)")?;
    for set in &manifest.set {
        node.set(set)?;
    }
    Ok(node)
}

/// The same read, with the replicas that the manifest tells of.
pub(crate) fn proxy(node: &Node, manifest: &Manifest) -> Result<Scenario, ReadyError> {
    let mut like = Scenario::read(node)?;
    like.cluster.servers = manifest.replicas.len();
    like.cluster.replication_factor = manifest.group_size;
    Ok(like)
}

/// The same with what the day's rows say of replicas: whether they work on what is given up, where
/// a proxy that closes a connection believes that they do not; and whether agents report their
/// load.
pub(crate) fn believed(mut like: Scenario, twin: &Twin) -> Scenario {
    like.workload.cancel &= twin.works_on != Some(true);
    like.cluster.agents &= twin.has_agents;
    like.cluster.notices &= twin.has_agents;
    like
}

/// What was found of a world, for people.
pub(crate) fn described(twin: &Twin) -> String {
    let pauses: usize = twin.pauses.iter().map(Vec::len).sum();
    let paused_ns: u64 =
        twin.pauses.iter().flatten().map(|pause| pause.to_ns - pause.from_ns).sum();
    let common = twin.correlation.map_or("unknown".to_owned(), |common| {
        format!("{:.2} (error {:.2})", common.value, common.error)
    });
    let given_up = match twin.works_on {
        Some(true) => "is worked on",
        Some(false) => "is left off",
        None => "is not looked into",
    };
    let away_ms = 2e-6 * (twin.network.one_way_ns + twin.network.jitter_ns);
    format!(
        "slots {} ({:.2} % early), {away_ms:.2} ms away, what is given up {given_up}, {pauses} \
         pauses ({:.1} s, {:.0} % shared), windows of {:.1} s, copies in common {common}, crowds \
         take {:+.1} % (error {:.1}), unseen {:.1} %",
        twin.slots,
        100.0 * twin.early,
        paused_ns as f64 * 1e-9,
        100.0 * twin.pauses_shared,
        twin.speeds.width_ns as f64 * 1e-9,
        100.0 * twin.crowding.value.exp_m1(),
        100.0 * twin.crowding.error,
        100.0 * twin.unseen,
    )
}
