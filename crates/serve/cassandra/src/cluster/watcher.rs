//! Keeps what is known of a cluster: connects, reads, listens, and begins again elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_core::{Health, Rng};
use evenkeel_cql::request::Register;
use evenkeel_cql::response::Event;
use evenkeel_cql::{Envelope, Opcode, Version};
use evenkeel_runtime::dial;
use evenkeel_settings::address::ServerAddress;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::checks::{Change, Checks};
use super::polls::Polls;
use super::{Cluster, ClusterEvent, ClusterSettings, Member, Notice, Publisher, read};
use evenkeel_cql::client::{Dialect, NodeLimits, SendError, Single};

/// Pauses between attempts to find a node that tells; each is drawn from this and doubles.
const BACKOFF: std::ops::Range<Duration> = Duration::from_millis(100)..Duration::from_secs(10);
/// What a node tells at the moment of an event may be half of it: it is asked once more.
const AGAIN: Duration = Duration::from_secs(2);
/// For so long after an event about the schema, another version of it is no surprise: longer than
/// a node takes to change its tables, and than it is until everything is read again.
const EXPLAINED: Duration = Duration::from_secs(10);

/// More troubles at once are not logged.
const SAID_MAX: usize = 64;

/// Keeps what is known of a cluster, for ever. Dropping it ends all connections.
///
/// # Panics
/// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
pub async fn keep(settings: ClusterSettings, publisher: Publisher) {
    let settings = Rc::new(settings);
    let (checks, changes) = Checks::new(&settings);
    let polls = Polls::new(&settings, &publisher);
    let rng = Rng::seeded(settings.seed);
    let limits = Rc::new(settings.limits.clone());
    let down = BTreeMap::new();
    let (read, said) = (Cluster::default(), BTreeSet::new());
    let mut watcher =
        Watcher { settings, limits, publisher, checks, polls, changes, down, read, rng, said };
    watcher.run().await;
}

struct Watcher {
    settings: Rc<ClusterSettings>,
    limits: Rc<NodeLimits>,
    publisher: Publisher,
    checks: Checks,
    polls: Polls,
    changes: mpsc::UnboundedReceiver<Change>,
    /// What checks say of nodes; of others nothing is known yet.
    down: BTreeMap<[u8; 16], Health>,
    /// What was read last.
    read: Cluster,
    rng: Rng,
    /// Troubles that were logged since a node told everything; each is logged once.
    said: BTreeSet<Arc<str>>,
}

/// When something is to be done on the connection that tells.
struct Timetable {
    refresh_at: Instant,
    /// When what events said is read.
    settle_at: Option<Instant>,
    heard_at: Instant,
    /// When a change of the schema was last told.
    schema_at: Option<Instant>,
}

impl Watcher {
    async fn run(&mut self) {
        let mut pause = BACKOFF.start;
        loop {
            let mut asked = Vec::new();
            for server in self.candidates() {
                for address in self.addresses(server).await {
                    if asked.contains(&address) {
                        continue;
                    }
                    asked.push(address);
                    let began = Instant::now();
                    let Err(error) = self.follow(address).await;
                    self.note_failure(&error);
                    if began.elapsed() > BACKOFF.end {
                        pause = BACKOFF.start;
                    }
                }
            }
            let jitter = 0.5 + self.rng.unit();
            self.rest(pause.mul_f64(jitter)).await;
            pause = (pause * 2).min(BACKOFF.end);
        }
    }

    /// Who is asked, in this order: nodes that are up, by chance, then all others, then the contact
    /// points, for a cluster that has moved.
    fn candidates(&mut self) -> Vec<ServerAddress> {
        let cluster = Arc::clone(&self.publisher.cluster.borrow());
        let mut ups: Vec<ServerAddress> = Vec::new();
        let mut others: Vec<ServerAddress> = Vec::new();
        for member in &cluster.nodes {
            if member.is_up { &mut ups } else { &mut others }.push(member.address.into());
        }
        self.rng.shuffle(&mut ups);
        ups.extend(others);
        ups.extend(&self.settings.contact_points);
        ups
    }

    /// Where a node is, or the nodes are that a name leads to; nowhere while nobody knows.
    async fn addresses(&mut self, server: ServerAddress) -> Vec<SocketAddr> {
        let looked_up = tokio::time::timeout(self.limits.connect, dial::addresses(server)).await;
        let late = |_| Err(io::Error::other(format!("{server}: DNS has not answered yet")));
        looked_up.unwrap_or_else(late).unwrap_or_else(|error| {
            self.note_failure(&error);
            Vec::new()
        })
    }

    fn note_failure(&mut self, error: &impl fmt::Display) {
        let words: Arc<str> = error.to_string().into();
        if self.said.len() < SAID_MAX && self.said.insert(Arc::clone(&words)) {
            tracing::warn!(%error, "a node tells nothing of its cluster: the next is asked");
        }
        self.publisher.state.send_modify(|state| {
            state.node = None;
            state.failures += 1;
            state.error = Some(words);
        });
    }

    /// Waits, and still takes in what checks find.
    async fn rest(&mut self, pause: Duration) {
        let until = Instant::now() + pause;
        while let Ok(Some(change)) = tokio::time::timeout_at(until, self.changes.recv()).await {
            self.judge(change);
        }
    }

    /// Connects to one node and listens to it until that breaks.
    async fn follow(&mut self, address: SocketAddr) -> Result<Never, SendError> {
        let dialect =
            Dialect { version: Version::V4, keyspace: None, login: self.settings.login.clone() };
        let mut link = Single::open(address, &self.limits, &dialect).await?;
        let kinds = vec![Event::TOPOLOGY_CHANGE, Event::STATUS_CHANGE, Event::SCHEMA_CHANGE];
        let mut body = BytesMut::new();
        Register { kinds }.write(&mut body);
        let answer = link.ask(Opcode::Register, body.freeze()).await?;
        if answer.opcode != Opcode::Ready {
            return Err(link.nonsense(format!("{} came to REGISTER", answer.opcode)));
        }
        let now = Instant::now();
        let mut times =
            Timetable { refresh_at: now, settle_at: None, heard_at: now, schema_at: None };
        self.read(&mut link, address, &mut times).await?;
        // A change that was being made right then was told to others and is in no table yet.
        times.refresh_at = Instant::now() + AGAIN.min(self.settings.refresh);
        loop {
            self.turn(&mut link, address, &mut times).await?;
        }
    }

    async fn turn(
        &mut self,
        link: &mut Single,
        address: SocketAddr,
        times: &mut Timetable,
    ) -> Result<(), SendError> {
        match self.next(link, times).await {
            Next::Event(event) => {
                self.take_event(link, &event?, times)?;
            }
            Next::Change((id, health)) => {
                self.judge((id, health));
                let is_it = |member: &Member| member.host_id == id && member.address == address;
                if health == Health::Down && self.read.nodes.iter().any(is_it) {
                    return Err(link.silent("its checks fail"));
                }
            }
            Next::Due => {
                let now = Instant::now();
                if times.settle_at.is_some_and(|at| at <= now) || times.refresh_at <= now {
                    let pause =
                        if times.settle_at.take().is_some() { AGAIN } else { Duration::MAX };
                    self.read(link, address, times).await?;
                    times.refresh_at = Instant::now() + pause.min(self.settings.refresh);
                } else {
                    let answer = link.ask(Opcode::Options, Bytes::new()).await?;
                    if answer.opcode != Opcode::Supported {
                        return Err(link.nonsense(format!("{} came to OPTIONS", answer.opcode)));
                    }
                }
                times.heard_at = Instant::now();
            }
        }
        Ok(())
    }

    /// Waits for whatever comes first.
    async fn next(&mut self, link: &mut Single, times: &Timetable) -> Next {
        let beat_at = times.heard_at + self.limits.heartbeat;
        let due_at = beat_at.min(times.refresh_at).min(times.settle_at.unwrap_or(beat_at));
        let mut event = std::pin::pin!(link.event());
        let changes = &mut self.changes;
        let first = std::future::poll_fn(|context| {
            if let std::task::Poll::Ready(event) = event.as_mut().poll(context) {
                return std::task::Poll::Ready(Next::Event(event));
            }
            match changes.poll_recv(context) {
                std::task::Poll::Ready(Some(change)) => {
                    std::task::Poll::Ready(Next::Change(change))
                }
                _ => std::task::Poll::Pending,
            }
        });
        tokio::time::timeout_at(due_at, first).await.unwrap_or(Next::Due)
    }

    fn take_event(
        &mut self,
        link: &Single,
        event: &Envelope,
        times: &mut Timetable,
    ) -> Result<(), SendError> {
        times.heard_at = Instant::now();
        times.settle_at.get_or_insert(times.heard_at + self.settings.settle);
        // An event of a kind that is not known is of no use, and no harm.
        let Ok(event) = ClusterEvent::read(&event.body) else { return Ok(()) };
        match event.event() {
            Event::Schema(_) => times.schema_at = Some(times.heard_at),
            Event::Status { node, .. } => {
                let port = u16::try_from(node.port)
                    .map_err(|_| link.nonsense(format!("port {} came in an event", node.port)))?;
                let reported = SocketAddr::new(node.address, port);
                for member in self.read.nodes.iter().filter(|member| member.reported == reported) {
                    self.checks.hurry(&member.host_id);
                }
            }
            Event::Topology { .. } => {}
        }
        let _ = self.publisher.events.send(Notice::Event(event));
        Ok(())
    }

    /// Whether the schema that is known changes into this one without anybody having told so.
    fn is_schema_missed(&self, read: &Cluster, times: &Timetable) -> bool {
        let is_told = times.schema_at.is_some_and(|at| at.elapsed() < EXPLAINED);
        let before = self.read.schema_version;
        before.is_some() && before != read.schema_version && !is_told
    }

    async fn read(
        &mut self,
        link: &mut Single,
        address: SocketAddr,
        times: &mut Timetable,
    ) -> Result<(), SendError> {
        let is_first = self.publisher.state.borrow().node != Some(address);
        let read = read::read(link, address, &self.settings).await?;
        // On a new connection an event that came already explains nothing: others may not have.
        let mut is_missed = is_first && self.is_schema_missed(&read, times);
        while let Some(event) = link.kept_event() {
            self.take_event(link, &event, times)?;
        }
        is_missed |= self.is_schema_missed(&read, times);
        self.read = read;
        if is_missed {
            tracing::info!(%address, "the schema has changed, and no node has told how");
            let _ = self.publisher.events.send(Notice::SchemaMissed);
        }
        self.checks.follow(&self.read.nodes);
        self.polls.follow(&self.read.nodes);
        let nodes = &self.read.nodes;
        self.down.retain(|id, _| nodes.iter().any(|member| member.host_id == *id));
        self.publish();
        self.said.clear();
        self.publisher.state.send_modify(|state| {
            if state.node != Some(address) {
                let (nodes, name) = (nodes.len(), &self.read.name);
                tracing::info!(%address, nodes, name, "a node tells what its cluster is");
            }
            state.node = Some(address);
            state.reads += 1;
            state.error = None;
        });
        Ok(())
    }

    fn judge(&mut self, (id, health): Change) {
        self.down.insert(id, health);
        self.publish();
    }

    fn publish(&self) {
        let mut cluster = self.read.clone();
        for member in &mut cluster.nodes {
            member.is_up = self.down.get(&member.host_id) != Some(&Health::Down);
        }
        self.publisher.cluster.send_if_modified(|published| {
            let is_new = **published != cluster;
            if is_new {
                *published = Arc::new(cluster);
            }
            is_new
        });
    }
}

/// What comes first on the connection that tells.
enum Next {
    Event(Result<Envelope, SendError>),
    Change(Change),
    Due,
}

/// There is no end but an error.
enum Never {}
