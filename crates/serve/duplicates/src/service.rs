//! A service from its start to its end: what is bound and opened, before it waits for its turn.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;

use super::client::SessionOpener;
use super::config::{Connector, DuplicatesConfig, of_table};
use super::control::{Asked, Control};
use super::frontend::{accept_config, sentinel_config};
use super::groups;
use super::nodes::{self, Doors, Here};
use super::turns::{Opened, Turns, open_connectors, open_log};
use evenkeel_duplicates_engine::SharedUsers;
use evenkeel_duplicates_state::DuplicatesState;
use evenkeel_leadership::layout::Layout;
use evenkeel_leadership::{Holder, Known, Sentinel};
use evenkeel_record::Recorder;
use evenkeel_runtime::accept::{AcceptConfig, Listener, Served, Sharing, StopSignal, accept};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::tls::ServerTls;
use evenkeel_wal::{Log, Recovered};

/// `[duplicates.NAME]` or one group of it, with its address bound and its log open, not yet
/// running.
#[derive(Debug)]
pub struct Service {
    config: DuplicatesConfig,
    /// Those of the configuration.
    connectors: BTreeMap<String, Connector>,
    state: watch::Sender<Arc<DuplicatesState>>,
    shared: Shared,
    /// Where all clients connect; of a group, those within the process.
    listener: Listener,
    /// Where plain clients of a service of several groups come.
    front: Option<Listener>,
    sentinel: Option<Listener>,
    cluster: Option<Listener>,
    address: SocketAddr,
    tls: Option<ServerTls>,
    log: Log,
    recovered: Recovered,
    configured: Layout,
    control: Control,
    changes: UnboundedReceiver<Asked>,
    opener: SessionOpener,
    recorder: Option<Recorder>,
}

/// What all groups of a service have in common in this process.
#[derive(Debug, Clone)]
struct Shared {
    known: Arc<watch::Sender<Known>>,
    users: SharedUsers,
    here: Here,
}

impl Shared {
    fn of(config: &DuplicatesConfig) -> io::Result<Self> {
        let of_service = |error| of_table(&format!("duplicates.{}", config.name), &error);
        let users = config.access.load().map_err(of_service)?;
        Ok(Self {
            known: Arc::new(watch::Sender::new(Known::nothing(config.group.of))),
            users: Arc::new(watch::Sender::new(Arc::new(users))),
            here: Arc::new(watch::Sender::new(vec![None; config.group.of])),
        })
    }
}

impl Service {
    /// Opens all groups of a service.
    ///
    /// # Errors
    /// As [`Service::open`].
    pub fn open_all(config: &DuplicatesConfig) -> io::Result<Vec<Self>> {
        let shared = Shared::of(config)?;
        let groups = config.split();
        let mut all = groups
            .iter()
            .map(|group| Self::open_group(group, shared.clone()))
            .collect::<io::Result<Vec<_>>>()?;
        // Plain clients are shared out to the threads of all groups.
        let front = all.first().and_then(|first| first.front.as_ref()).map(Listener::again);
        for other in all.iter_mut().skip(1) {
            other.front = front.as_ref().map(Listener::again);
        }
        Ok(all)
    }

    /// Binds the address of a service that is one group and opens the log.
    ///
    /// # Errors
    /// When the address is taken, the log is damaged or in use, or a store of ours cannot be
    /// opened.
    pub fn open(config: &DuplicatesConfig) -> io::Result<Self> {
        Self::open_group(config, Shared::of(config)?)
    }

    fn open_group(config: &DuplicatesConfig, shared: Shared) -> io::Result<Self> {
        let of_service = |error| of_table(&format!("duplicates.{}", config.name), &error);
        let configured = Layout::configured(config.shards, &config.places());
        let configured = configured.ok_or_else(|| {
            let (shards, partitions) = (config.shards, config.partitions.len());
            io::Error::other(format!(
                "duplicates.{}: {shards} shards for {partitions} partitions, expected one for each \
                 at least",
                config.name
            ))
        })?;
        let tls = config.load_tls()?;
        let bind = |address| Listener::bind_as(address, Sharing::Alone);
        let plain = (config.group.number == 0).then(|| bind(config.listen)).transpose()?;
        let ((listener, dialer), front) = match plain {
            Some(plain) if config.group.is_whole() => (plain.with_memory(), None),
            plain => (Listener::memory(), plain),
        };
        let sentinel = config.sentinel.map(bind).transpose()?;
        let cluster = config.cluster.map(bind).transpose()?;
        let (log, recovered) = open_log(config).map_err(of_service)?;
        let connectors = open_connectors(config).map_err(of_service)?;
        let listen = front.as_ref().unwrap_or(&listener).address().unwrap_or(config.listen);
        let at = cluster.as_ref().map(Listener::address).transpose()?;
        let config = DuplicatesConfig { listen, cluster: at, ..config.clone() };
        let address = at.filter(|_| !config.group.is_whole()).unwrap_or(listen);
        let name = config.name.clone();
        let first = DuplicatesState { name, address: address.to_string(), ..Default::default() };
        let (state, _) = watch::channel(Arc::new(first));
        let opener = SessionOpener(dialer);
        let (control, changes) = Control::new();
        Ok(Self {
            config,
            connectors,
            state,
            shared,
            listener,
            front,
            sentinel,
            cluster,
            address,
            tls,
            log,
            recovered,
            configured,
            control,
            changes,
            opener,
            recorder: None,
        })
    }

    /// The same, which tells this one of each copy of a read.
    #[must_use]
    pub fn recorded(self, recorder: Recorder) -> Self {
        Self { recorder: Some(recorder), ..self }
    }

    /// Where changes are given, while it runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Where clients within this process enter; before [`Service::run`] they wait.
    pub fn opener(&self) -> SessionOpener {
        self.opener.clone()
    }

    /// How it stands, several times a second.
    pub fn state(&self) -> watch::Receiver<Arc<DuplicatesState>> {
        self.state.subscribe()
    }

    /// Its name in the configuration.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// [`DuplicatesConfig::thread`].
    pub fn thread(&self, workers: usize) -> String {
        self.config.thread(workers)
    }

    /// Where clients connect, with the port the system chose; of a group, those of Redis Cluster.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until told to stop, and every client has what it is owed or the drain's time is up.
    ///
    /// # Errors
    /// When another process has taken over the duplicates, or the log fails at the start. A group
    /// then waits for another turn.
    ///
    /// # Panics
    /// Outside a [`worker_runtime`](evenkeel_runtime::accept::worker_runtime).
    pub async fn run(self, clock: Clock, stop: StopSignal) -> io::Result<()> {
        let Self { config, state, shared: Shared { known, users, here }, .. } = self;
        let accepting = accept_config(&config, &users.borrow(), self.tls.clone());
        let of_sentinel = sentinel_config(&config, &users.borrow(), self.tls);
        let each = config.clients_max.div_ceil(config.group.of);
        let of_front = AcceptConfig { connections_max: each, ..accepting.clone() };
        let accepting = watch::Sender::new(Arc::new(accepting));
        let holder = watch::Sender::default();
        let sentinel = self.sentinel.zip(Some(of_sentinel));
        // Any process serves all keys, where there are several groups: so it tells of itself.
        let itself = watch::Sender::new(nodes::itself(&config));
        let told = if config.group.is_whole() { &holder } else { &itself };
        let _sentinel = answer_clients(&config, sentinel, told, &stop);
        let front = self.front.zip(Some(of_front));
        let mut plain = groups::serve_plain(&config, front, (&known, &here, &users), &stop)?;
        let (cluster, _announcing) = nodes::view(&config, &known, stop.clone());
        let door = self.cluster.zip(cluster.clone());
        let mut turns = Turns {
            clock,
            address: self.address.to_string(),
            doors: Doors::new(
                self.listener,
                door,
                here,
                (accepting.subscribe(), users.subscribe()),
            ),
            configured: self.configured,
            changes: Rc::new(Mutex::new(self.changes)),
            config,
            state,
            known,
            holder,
            accepting,
            cluster,
            users,
            recorder: self.recorder,
            leaves: 0,
        };
        let opened = Opened { log: self.log, recovered: self.recovered, at: self.connectors };
        let ended = match turns.config.group.is_whole() {
            true => turns.take(opened, stop).await.map(drop),
            false => turns.take_all(opened, stop).await,
        };
        if ended.is_ok() {
            while plain.join_next().await.is_some() {} // of other groups, they are owed answers too
        }
        ended // an error is told at once: the front ends with the process, which it ends
    }
}

/// Tells clients that ask by Sentinel's protocol who leads, as long as what it answers lives.
fn answer_clients(
    config: &DuplicatesConfig,
    listener: Option<(Listener, AcceptConfig)>,
    holder: &watch::Sender<Holder>,
    stop: &StopSignal,
) -> JoinSet<io::Result<Served>> {
    let mut answering = JoinSet::new();
    if let Some((listener, accepting)) = listener {
        let (service, holder) = (config.service().to_owned(), holder.subscribe());
        let sentinel = Rc::new(Sentinel { service, holder });
        answering.spawn_local(accept(listener, accepting.fixed(), sentinel, stop.clone()));
    }
    answering
}
