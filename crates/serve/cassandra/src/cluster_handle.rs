//! What the threads of a process share of one cluster: who is in it, and what clients prepared.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_cql::codec::Compression;
use tokio::sync::watch;

use super::cluster::{self, ClusterSettings, Publisher, View};
use super::cluster_state::ClusterStates;
use super::front::{FrontSettings, Own};
use super::members::{self, Members, SlotAssigner};
use super::prepared::PreparedStatements;
use super::route::Route;
use super::system::{Proxies, Proxy};
use crate::config::CqlConfig;
use evenkeel_cql::client::config::CqlUser;
use evenkeel_cql::client::{Login, NodeLimits};
use evenkeel_proxy::calls::DispatcherSeed;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::site_setup::HOME;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_runtime::accept::ListenerFilters;
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::limits::ServerLimits;
use evenkeel_runtime::tls::ClientTls;

/// The rack that clients are told: proxies have none, and drivers want one.
const RACK: &str = "evenkeel";

/// What every worker needs of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterHandle {
    limits: NodeLimits,
    login: Option<Arc<Login>>,
    view: View,
    members: watch::Receiver<Arc<Members>>,
    statements: Arc<PreparedStatements>,
    states: Arc<ClusterStates>,
}

/// What the control thread needs to watch it.
#[derive(Debug)]
pub struct Watcher {
    assigner: SlotAssigner,
    settings: ClusterSettings,
    publisher: Publisher,
    view: View,
    members: watch::Sender<Arc<Members>>,
}

/// Reads the files of a cluster.
///
/// # Errors
/// When a file cannot be read or is not what it should be, with its path.
pub fn open(upstream: &UpstreamConfig, cql: &CqlConfig) -> io::Result<(Watcher, ClusterHandle)> {
    let login = cql.user.as_ref().map(login).transpose()?.map(Arc::new);
    let limits = limits(upstream, cql)?;
    let (publisher, view) = cluster::channel();
    let (sender, members) = watch::channel(Arc::new(Members::nobody(upstream, cql)));
    let statements = Arc::new(PreparedStatements::new(cql.prepared_bytes_max));
    let mut settings = ClusterSettings::new(upstream.replicas.clone());
    settings.login.clone_from(&login);
    settings.limits = limits.clone();
    settings.poll_every = cql.poll;
    settings.reached_at.clone_from(&cql.reached_at);
    if let Some(health) = &upstream.health {
        (settings.check_every, settings.check_timeout) = (health.interval, health.timeout);
        (settings.fall, settings.rise) = (health.fall, health.rise);
    }
    let assigner = SlotAssigner::new(upstream, cql);
    let (view, ours) = (view.clone(), view);
    let watcher = Watcher { assigner, settings, publisher, view, members: sender };
    Ok((
        watcher,
        ClusterHandle { limits, login, view: ours, members, statements, states: Arc::default() },
    ))
}

fn limits(upstream: &UpstreamConfig, cql: &CqlConfig) -> io::Result<NodeLimits> {
    Ok(NodeLimits {
        connect: upstream.limits.connect,
        connections_max: cql.connections_max,
        streams_max: cql.streams_max,
        heartbeat: cql.heartbeat,
        silence_max: upstream.timeouts.attempt,
        frame_bytes_max: cql.frame_bytes_max,
        compression: cql.is_compressed.then_some(Compression::Lz4),
        tls: upstream.tls.as_ref().map(|files| ClientTls::load(files, &[])).transpose()?,
        asks_for_feedback: true,
        ..NodeLimits::default()
    })
}

/// The password is the first line of its file.
fn login(user: &CqlUser) -> io::Result<Login> {
    let text = read(&user.password_file)?;
    Ok(Login::plain(&user.name, text.lines().next().unwrap_or_default()))
}

fn read(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path)
        .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
}

impl Watcher {
    /// Watches the cluster from now on. Call it on the control thread.
    pub fn spawn(self, upstream: usize, states: Arc<UpstreamStates>) {
        let Self { assigner, settings, publisher, view, members } = self;
        tokio::task::spawn_local(cluster::keep(settings, publisher));
        tokio::task::spawn_local(async move {
            let publish = |members: &Arc<Members>| {
                let home = &members.datacenters[HOME];
                let slots: Vec<_> = home.slots.iter().copied().map(Into::into).collect();
                states.set_home(upstream, &slots, &home.plan);
            };
            members::keep(assigner, view, publish, members).await;
        });
    }
}

impl ClusterHandle {
    /// The route of one worker. Must be made on its thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub fn route(
        &self,
        config: &UpstreamConfig,
        cql: &CqlConfig,
        clock: Clock,
        seed: DispatcherSeed,
    ) -> io::Result<Rc<Route>> {
        let towards_nodes = (self.limits.clone(), self.login.clone());
        Route::new((config, cql), towards_nodes, self.view.clone(), clock, seed)
    }

    /// How the cluster stands, where its workers say so.
    pub fn states(&self) -> &Arc<ClusterStates> {
        &self.states
    }

    /// Who is in the cluster, as it changes.
    pub fn members(&self) -> watch::Receiver<Arc<Members>> {
        self.members.clone()
    }

    /// The name of the data centre of this process: as configured, or as soon as the cluster tells
    /// where its first contact point is.
    pub async fn home(&self) -> Arc<str> {
        let mut members = self.members.clone();
        let is_known = |members: &Arc<Members>| !members.datacenters[HOME].name.is_empty();
        match members.wait_for(is_known).await {
            Ok(members) => members.datacenters[HOME].name.as_str().into(),
            Err(_) => std::future::pending().await, // the process is ending
        }
    }

    /// What one listener offers its clients in this data centre, encrypted or not.
    pub fn front(
        &self,
        limits: &ServerLimits,
        cql: &CqlConfig,
        filters: ListenerFilters,
        home: &Arc<str>,
    ) -> FrontSettings {
        let rack: Arc<str> = RACK.into();
        let proxy =
            |&address: &_| Proxy { datacenter: Arc::clone(home), address, rack: Arc::clone(&rack) };
        FrontSettings {
            connections_max: limits.connections_max,
            frame_bytes_max: cql.frame_bytes_max,
            in_flight_max: cql.requests_max,
            in_flight_bytes_max: cql.waiting_bytes_max,
            handshake: limits.head,
            idle: limits.idle,
            write: limits.write,
            drain: limits.drain,
            filters,
            proxies: Proxies::new(cql.proxies.iter().map(proxy).collect()),
            own: Own { datacenter: Arc::clone(home), rack, address: None },
            statements: Arc::clone(&self.statements),
            ..FrontSettings::new(home)
        }
    }
}
