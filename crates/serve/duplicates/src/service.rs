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
use super::nodes::{self, Doors};
use super::turns::{Opened, Turns, open_connectors, open_log};
use evenkeel_duplicates_engine::state::DuplicatesState;
use evenkeel_leadership::layout::Layout;
use evenkeel_leadership::{Holder, Known, Sentinel};
use evenkeel_redis_acl::Users;
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
    known: Arc<watch::Sender<Known>>,
    /// Where all clients connect; of a group, those within the process.
    listener: Listener,
    /// Where plain clients of a service of several groups come, of the first.
    front: Option<Listener>,
    sentinel: Option<Listener>,
    cluster: Option<Listener>,
    address: SocketAddr,
    tls: Option<ServerTls>,
    users: Arc<Users>,
    log: Log,
    recovered: Recovered,
    configured: Layout,
    control: Control,
    changes: UnboundedReceiver<Asked>,
    opener: SessionOpener,
}

impl Service {
    /// Opens all groups of a service.
    ///
    /// # Errors
    /// As [`Service::open`].
    pub fn open_all(config: &DuplicatesConfig) -> io::Result<Vec<Self>> {
        let known = Arc::new(watch::Sender::new(Known::nothing(config.group.of)));
        config.split().iter().map(|group| Self::open_group(group, Arc::clone(&known))).collect()
    }

    /// Binds the address of a service that is one group and opens the log.
    ///
    /// # Errors
    /// When the address is taken, the log is damaged or in use, or a store of ours cannot be
    /// opened.
    pub fn open(config: &DuplicatesConfig) -> io::Result<Self> {
        Self::open_group(config, Arc::new(watch::Sender::new(Known::nothing(1))))
    }

    fn open_group(config: &DuplicatesConfig, known: Arc<watch::Sender<Known>>) -> io::Result<Self> {
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
        let users = Arc::new(config.access.load().map_err(of_service)?);
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
            known,
            listener,
            front,
            sentinel,
            cluster,
            address,
            tls,
            users,
            log,
            recovered,
            configured,
            control,
            changes,
            opener,
        })
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
        let Self { config, state, known, .. } = self;
        let accepting = accept_config(&config, &self.users, self.tls.clone());
        let of_sentinel = sentinel_config(&config, &self.users, self.tls);
        let of_front = AcceptConfig::clone(&accepting);
        let accepting = watch::Sender::new(Arc::new(accepting));
        let holder = watch::Sender::default();
        let sentinel = self.sentinel.zip(Some(of_sentinel));
        let _sentinel = answer_clients(&config, sentinel, &holder, &stop);
        let _front = groups::turn_away(&config, self.front.zip(Some(of_front)), &stop);
        let (cluster, _announcing) = nodes::view(&config, &known, stop.clone());
        let door = self.cluster.zip(cluster.clone());
        let mut turns = Turns {
            clock,
            address: self.address.to_string(),
            doors: Doors::new(self.listener, door, accepting.subscribe(), Arc::clone(&self.users)),
            configured: self.configured,
            changes: Rc::new(Mutex::new(self.changes)),
            config,
            state,
            known,
            holder,
            accepting,
            cluster,
            users: self.users,
            leaves: 0,
        };
        let opened = Opened { log: self.log, recovered: self.recovered, at: self.connectors };
        match turns.config.group.is_whole() {
            true => turns.take(opened, stop).await.map(drop),
            false => turns.take_all(opened, stop).await,
        }
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
        let (service, holder) = (config.name.clone(), holder.subscribe());
        let sentinel = Rc::new(Sentinel { service, holder });
        answering.spawn_local(accept(listener, accepting.fixed(), sentinel, stop.clone()));
    }
    answering
}
