//! What the threads of a process share of one cluster: who is in it, and what clients prepared.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_cql::codec::Compression;
use rustls::ServerConfig;
use tokio::sync::watch;

use super::cluster::{self, ClusterSettings, Publisher, View};
use super::front::{FrontSettings, FrontTlsFiles, Own};
use super::members::{self, Members};
use super::node::{Login, NodeLimits, NodeTls, NodeTlsFiles};
use super::prepared::PreparedStatements;
use super::route::Route;
use super::system::{Proxies, Proxy};
use crate::board::Board;
use crate::calls::{HOME, Seat};
use crate::clock::Clock;
use crate::config::{Config, CqlConfig, CqlTls, CqlUser, ListenConfig, UpstreamConfig};

/// The rack that clients are told: proxies have none, and drivers want one.
const RACK: &str = "evenkeel";

/// What every worker needs of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Share {
    limits: NodeLimits,
    login: Option<Arc<Login>>,
    view: View,
    members: watch::Receiver<Arc<Members>>,
    statements: Arc<PreparedStatements>,
}

/// What the control thread needs to watch it.
#[derive(Debug)]
pub(crate) struct Keeper {
    config: UpstreamConfig,
    settings: ClusterSettings,
    publisher: Publisher,
    view: View,
    members: watch::Sender<Arc<Members>>,
}

/// Reads the files of every cluster of a configuration: by upstream, `None` where HTTP is spoken.
///
/// # Errors
/// When a file cannot be read or is not what it should be, with its path.
pub(crate) fn open_all(config: &Config) -> io::Result<Vec<Option<(Keeper, Share)>>> {
    let open = |upstream: &UpstreamConfig| {
        upstream.cql.as_ref().map(|cql| open(upstream, cql)).transpose()
    };
    config.upstreams.iter().map(open).collect()
}

fn open(upstream: &UpstreamConfig, cql: &CqlConfig) -> io::Result<(Keeper, Share)> {
    let login = cql.user.as_ref().map(login).transpose()?.map(Arc::new);
    let limits = limits(upstream, cql)?;
    let (publisher, view) = cluster::channel();
    let (sender, members) = watch::channel(Arc::new(Members::nobody(upstream)));
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
    let config = upstream.clone();
    let (view, ours) = (view.clone(), view);
    let keeper = Keeper { config, settings, publisher, view, members: sender };
    Ok((keeper, Share { limits, login, view: ours, members, statements }))
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
        tls: node_tls(cql.tls.as_ref())?,
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

impl Keeper {
    /// Watches the cluster from now on. Call it on the control thread.
    pub(crate) fn spawn(self, upstream: usize, board: Arc<Board>) {
        let Self { config, settings, publisher, view, members } = self;
        tokio::task::spawn_local(cluster::keep(settings, publisher));
        tokio::task::spawn_local(async move {
            let publish = |members: &Arc<Members>| {
                let home = &members.datacenters[HOME];
                board.set_home(upstream, &home.seats, &home.plan);
            };
            members::keep(config, view, publish, members).await;
        });
    }
}

impl Share {
    /// The route of one worker. Must be made on its thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub(crate) fn route(
        &self,
        config: &UpstreamConfig,
        clock: Clock,
        seat: Seat,
    ) -> io::Result<Rc<Route>> {
        let towards_nodes = (self.limits.clone(), self.login.clone());
        Route::new(config, towards_nodes, self.view.clone(), clock, seat)
    }

    /// Who is in the cluster, as it changes.
    pub(crate) fn members(&self) -> watch::Receiver<Arc<Members>> {
        self.members.clone()
    }

    /// The name of the data centre of this process: as configured, or as soon as the cluster tells
    /// where its first contact point is.
    pub(crate) async fn home(&self) -> Arc<str> {
        let mut members = self.members.clone();
        let is_known = |members: &Arc<Members>| !members.datacenters[HOME].name.is_empty();
        match members.wait_for(is_known).await {
            Ok(members) => members.datacenters[HOME].name.as_str().into(),
            Err(_) => std::future::pending().await, // the process is ending
        }
    }

    /// What one listener offers its clients in this data centre, encrypted or not.
    pub(crate) fn front(
        &self,
        listen: &ListenConfig,
        cql: &CqlConfig,
        tls: Option<Arc<ServerConfig>>,
        home: &Arc<str>,
    ) -> FrontSettings {
        let rack: Arc<str> = RACK.into();
        let proxy =
            |&address: &_| Proxy { datacenter: Arc::clone(home), address, rack: Arc::clone(&rack) };
        FrontSettings {
            connections_max: listen.limits.connections_max,
            frame_bytes_max: cql.frame_bytes_max,
            in_flight_max: cql.requests_max,
            in_flight_bytes_max: cql.waiting_bytes_max,
            handshake: listen.limits.head,
            idle: listen.limits.idle,
            write: listen.limits.write,
            drain: listen.limits.drain,
            tls,
            proxies: Proxies::new(cql.proxies.iter().map(proxy).collect()),
            own: Own { datacenter: Arc::clone(home), rack, address: None },
            statements: Arc::clone(&self.statements),
            ..FrontSettings::new(home)
        }
    }
}

/// How nodes are spoken to: `None` without encryption.
///
/// # Errors
/// When a file of it cannot be used, with the path.
pub(crate) fn node_tls(tls: Option<&CqlTls>) -> io::Result<Option<NodeTls>> {
    let load = |tls: &CqlTls| {
        let (authority, identity) = (tls.authority.clone(), tls.identity.clone());
        NodeTls::load(&NodeTlsFiles { authority, identity, name: tls.name.clone() })
    };
    tls.map(load).transpose()
}

/// How clients are spoken to, by our certificate and its key: `None` without encryption.
///
/// # Errors
/// When its certificate or key cannot be used, with the path.
pub(crate) fn front_tls(
    identity: Option<&(PathBuf, PathBuf)>,
) -> io::Result<Option<Arc<ServerConfig>>> {
    let load = |(certificate, key): &(PathBuf, PathBuf)| {
        let (certificate, key) = (certificate.clone(), key.clone());
        FrontTlsFiles { certificate, key, authority: None }.load()
    };
    identity.map(load).transpose()
}
