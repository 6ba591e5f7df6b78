//! `[duplicates.NAME]`: what one service is made of, and how each of its duplicates is reached;
//! what somebody asks to change of that while it runs.

pub mod access;
pub mod changes;
pub mod read;
pub mod rejected;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_core::request::select::Policy;
use evenkeel_ordered::{Consistency, MembersConfig};

pub use access::ClientAccess;
use access::{Login, StoreLogin};
use evenkeel_leadership::layout::MapPlace;
use evenkeel_leadership::{EtcdSettings, Group};
use evenkeel_manager::ManagerSettings;
use evenkeel_runtime::dial::Names;
use evenkeel_runtime::tls::{ClientTls, ClientTlsFiles, ServerTls, ServerTlsFiles};
use evenkeel_settings::Mismatch;
use evenkeel_settings::address::ServerAddress;
use evenkeel_stores::resp::request::Limits;
use evenkeel_stores::store::cassandra::{Cassandra, CassandraSettings};
use evenkeel_stores::store::embedded::{Embedded, EmbeddedSettings};
use evenkeel_stores::store::keys::Servers;
use evenkeel_stores::store::memcached::Memcached;
use evenkeel_stores::store::zookeeper::{ZooKeeper, ZooKeeperSettings};
use evenkeel_stores::store::{Host, Pauses};
use evenkeel_wal::{LogSettings, Sync};

/// Whether duplicates may be memcached, ZooKeeper or Cassandra: what reaches them is left out of
/// the program without this feature, since nobody calls it.
pub(crate) const OTHER_STORES: bool = cfg!(feature = "other-stores");
/// How long the first connection to a store that is no Redis may take.
const OPENING: Duration = Duration::from_secs(10);

/// One service of partitions and duplicates.
#[derive(Debug, Clone)]
pub struct DuplicatesConfig {
    /// Its name in the file, in metrics and in the names of its connections.
    pub name: String,
    /// Where clients of Redis connect.
    pub listen: SocketAddr,
    /// With what they are spoken to, if encrypted. Clients within this process are not.
    pub tls: Option<ServerTlsFiles>,
    /// How clients and the other processes reach this process; default: where it listens.
    pub advertise: Option<ServerAddress>,
    /// Where clients ask by Sentinel's protocol who leads.
    pub sentinel: Option<SocketAddr>,
    /// Where clients of Redis Cluster connect.
    pub cluster: Option<SocketAddr>,
    /// Which group of partitions this is; as it is read, the first of all, which has everything
    /// until [`DuplicatesConfig::split`].
    pub group: Group,
    /// With what a process that stands by speaks to the one that leads, if encrypted.
    pub relay_tls: Option<ClientTlsFiles>,
    /// The duplicates of each partition.
    pub partitions: Vec<Vec<Target>>,
    /// Parts that keys are dealt to; what can move between partitions. Default 64.
    pub shards: usize,
    /// What reads see unless a session says otherwise.
    pub consistency: Consistency,
    /// Copies of a read that leave at once, at most; default: to all live duplicates.
    pub read_copies: u8,
    /// Who gets a read; default `least-outstanding`.
    pub policy: Policy,
    /// `[duplicates.NAME.hedge]`; absent = no hedging.
    pub hedge: Option<HedgeConfig>,
    /// `[duplicates.NAME.safeguards]`
    pub safeguards: Safeguards,
    /// When writes are acknowledged and duplicates dropped.
    pub members: MembersConfig,
    /// Where the log is.
    pub log_directory: PathBuf,
    /// How the log is kept.
    pub log: LogSettings,
    /// Where is kept who holds what, once that changes.
    pub map: MapPlace,
    /// Duplicates that nobody has yet: where the manager opens partitions and adds duplicates.
    pub spares: Vec<Target>,
    /// What clients must say before anything else, and what they may do.
    pub access: ClientAccess,
    /// What one command may be.
    pub limits: Limits,
    /// Connections of clients at once.
    pub clients_max: usize,
    /// How long a client may say nothing before its connection is closed; `None` = for ever.
    pub idle_max: Option<Duration>,
    /// How long clients may take to finish once the process is told to stop; that of the process.
    pub drain: Duration,
    /// Keys compared between duplicates per second, while clients ask; 0 = none but those whose
    /// answers differed. Default 100.
    pub check_rate: u32,
    /// What is promised and how closely it is watched; without it nothing is advised.
    pub manager: Option<ManagerSettings>,
    /// Where processes take turns; without it there is one, and nobody else. Groups have keys of
    /// their own there ([`EtcdSettings::of_group`]).
    pub etcd: Option<EtcdSettings>,
}

/// One duplicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A server that speaks RESP3: Redis 7 or later, or what does as it does.
    Tcp {
        /// Where it listens.
        address: ServerAddress,
        /// How it is spoken to; the same for all servers of a service.
        access: Arc<RedisAccess>,
    },
    /// A store in this process.
    Embedded {
        /// Its file.
        settings: EmbeddedSettings,
        /// When it stumbles, for demonstrations and tests.
        pauses: Option<Pauses>,
    },
    /// A memcached of this service alone: it is emptied when it has to be filled.
    Memcached {
        /// Where it listens.
        address: ServerAddress,
    },
    /// A part of a ZooKeeper ensemble.
    ZooKeeper {
        /// Its servers, and the node that everything is below.
        settings: ZooKeeperSettings,
    },
    /// A keyspace of a Cassandra node or cluster.
    Cassandra {
        /// Nodes of it, and the keyspace.
        settings: CassandraSettings,
    },
}

/// How servers of Redis are spoken to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RedisAccess {
    /// As whom, if they ask.
    pub login: Option<StoreLogin>,
    /// `store_tls`; `None` = without.
    pub tls: Option<ClientTlsFiles>,
    /// `store_cluster`: each is the only node with slots of a Redis Cluster of its own.
    pub is_cluster: bool,
}

impl RedisAccess {
    fn load_tls(&self) -> io::Result<Option<ClientTls>> {
        let tls = self.tls.as_ref().map(|files| ClientTls::load(files, &[])).transpose();
        tls.map_err(|error| of_table("store_tls", &error))
    }
}

/// A duplicate that can be connected to.
#[derive(Debug, Clone)]
pub enum Connector {
    /// A server of Redis.
    Tcp {
        /// Where it listens.
        address: ServerAddress,
        /// What it wants to hear first.
        login: Option<Login>,
        /// With what it is spoken to, if encrypted.
        tls: Option<ClientTls>,
        /// Whether it is a node of a Redis Cluster.
        is_cluster: bool,
    },
    /// A store in this process.
    Host(Host),
    /// One in another process, which is reached through one of ours.
    Remote(Arc<Remote>),
}

/// A store in another process that is reached through one of ours. It may be away when the service
/// starts, as a Redis may.
#[derive(Debug)]
pub struct Remote {
    target: Target,
    host: Mutex<Option<Host>>,
}

impl Connector {
    /// The store that we speak RESP for; `None` of Redis, which does so itself.
    pub fn store_in_between(&self) -> Option<&'static str> {
        let remote = match self {
            Self::Tcp { .. } => return None,
            Self::Host(_) => return Some("embedded"),
            Self::Remote(remote) => &remote.target,
        };
        match remote {
            Target::Memcached { .. } => Some("memcached"),
            Target::ZooKeeper { .. } => Some("zookeeper"),
            Target::Cassandra { .. } => Some("cassandra"),
            Target::Tcp { .. } | Target::Embedded { .. } => None,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Embedded { settings, .. } => settings.path.display().fmt(f),
            Self::Memcached { address } => write!(f, "memcached {address}"),
            Self::ZooKeeper { settings } => {
                write!(f, "ZooKeeper {}{}", settings.servers.join(","), settings.root)
            }
            Self::Cassandra { settings } => write!(f, "Cassandra {settings}"),
        }
    }
}

impl Target {
    /// As the configuration names it.
    pub fn place(&self) -> String {
        match self {
            Self::Tcp { address, .. } | Self::Memcached { address } => address.to_string(),
            Self::Embedded { settings, .. } => settings.path.display().to_string(),
            Self::ZooKeeper { settings } => {
                format!("{}{}", settings.servers.join(","), settings.root)
            }
            Self::Cassandra { settings } => settings.to_string(),
        }
    }

    /// Another one of the same kind, by the place where it is.
    ///
    /// # Errors
    /// What came and what was expected.
    pub fn beside(&self, service: &str, place: &str) -> Result<Self, Mismatch> {
        let wrong = |expected: &'static str| move || Mismatch::new(format!("{place:?}"), expected);
        let address = || {
            let expected = "an address or name with a port such as 10.0.1.4:6379";
            ServerAddress::parse(place).map_err(|_| wrong(expected)())
        };
        Ok(match self {
            Self::Tcp { access, .. } => {
                Self::Tcp { address: address()?, access: Arc::clone(access) }
            }
            Self::Memcached { .. } => Self::Memcached { address: address()? },
            Self::Embedded { settings, .. } => {
                let directory = settings.path.parent().unwrap_or(Path::new(""));
                let name = Path::new(place).file_name();
                let name = name.ok_or_else(wrong("a file"))?;
                let settings = EmbeddedSettings::at(&directory.join(name));
                Self::Embedded { settings, pauses: None }
            }
            Self::ZooKeeper { .. } => {
                let settings = ensemble(place, service);
                Self::ZooKeeper { settings: settings.ok_or_else(wrong(ENSEMBLE_EXPECTED))? }
            }
            Self::Cassandra { settings } => {
                let settings = CassandraSettings::parse(place, service, &settings.access);
                let expected = CassandraSettings::EXPECTED;
                Self::Cassandra { settings: settings.ok_or_else(wrong(expected))? }
            }
        })
    }

    /// Starts what runs in this process, and reads certificates.
    ///
    /// # Errors
    /// When a file of the store or of a certificate cannot be used; the error names it.
    pub fn open(&self) -> io::Result<Connector> {
        Ok(match self.clone() {
            Self::Tcp { address, access } => {
                let login = access.login.as_ref().map(StoreLogin::load).transpose();
                let login = login.map_err(|error| of_table("store_password_file", &error))?;
                let is_cluster = access.is_cluster;
                Connector::Tcp { address, login, tls: access.load_tls()?, is_cluster }
            }
            Self::Embedded { settings, pauses } => {
                let name = settings.path.display().to_string();
                Connector::Host(Host::start(&name, pauses, async move || {
                    Embedded::open(&settings)
                })?)
            }
            target @ (Self::Memcached { .. } | Self::ZooKeeper { .. } | Self::Cassandra { .. }) => {
                Connector::Remote(Arc::new(Remote { target, host: Mutex::new(None) }))
            }
        })
    }

    /// Reaches what runs elsewhere; waits for it.
    fn start(&self) -> io::Result<Host> {
        let name = self.to_string();
        if !OTHER_STORES {
            let why = format!("{name}: this program was built without such stores");
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        match self {
            Self::Memcached { address } => Memcached::start(&name, &address.to_string(), None),
            Self::ZooKeeper { settings } => ZooKeeper::start(&name, settings.clone(), None),
            Self::Cassandra { settings } => Cassandra::start(&name, settings.clone(), None),
            Self::Tcp { .. } | Self::Embedded { .. } => {
                unreachable!("it is connected to, or open from the start")
            }
        }
    }
}

impl Remote {
    /// The store, opened by whoever needs it first while it is there.
    ///
    /// # Errors
    /// When it cannot be reached; it may be later.
    pub async fn host(&self) -> io::Result<Host> {
        let opened = self.host.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(host) = opened {
            return Ok(host);
        }
        let (sender, opened) = tokio::sync::oneshot::channel();
        let (target, names) = (self.target.clone(), Names::of_thread());
        // It waits for the store's thread: not in ours, which serves clients.
        std::thread::Builder::new().name("opening".to_owned()).spawn(move || {
            names.enter();
            let _ = sender.send(target.start()); // nobody waits any more: it ends again
        })?;
        let late = || {
            let words = format!("{}: no answer within {} s", self.target, OPENING.as_secs());
            io::Error::new(io::ErrorKind::TimedOut, words)
        };
        let opened = tokio::time::timeout(OPENING, opened).await.map_err(|_| late())?;
        let host = opened.map_err(io::Error::other)??;
        let mut place = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(place.get_or_insert(host).clone())
    }
}

impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Host(host) => f.write_str(host.name()),
            Self::Remote(remote) => remote.target.fmt(f),
        }
    }
}

impl Connector {
    /// What it wants to hear first.
    pub const fn login(&self) -> Option<&Login> {
        match self {
            Self::Tcp { login, .. } => login.as_ref(),
            Self::Host(_) | Self::Remote(_) => None,
        }
    }
}

impl Connector {
    /// As the configuration names it.
    pub fn place(&self) -> String {
        match self {
            Self::Tcp { address, .. } => address.to_string(),
            Self::Host(host) => host.name().to_owned(),
            Self::Remote(remote) => remote.target.place(),
        }
    }
}

/// An error of a file that a table names.
pub fn of_table(table: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{table}: {error}"))
}

/// What [`ensemble`] reads.
pub const ENSEMBLE_EXPECTED: &str = "the servers of one ensemble and perhaps a node of \
                                            letters, digits, - and _, such as \
                                            10.0.1.1:2181,10.0.1.2:2181/evenkeel/cart";

/// `host:port,…[/node]`, as ZooKeeper's own clients are told where to connect.
pub fn ensemble(text: &str, name: &str) -> Option<ZooKeeperSettings> {
    let (servers, root) = match text.find('/') {
        Some(at) => (&text[..at], text[at..].to_owned()),
        None => (text, format!("/evenkeel/{}", name.replace('.', "_"))),
    };
    let is_server = |server: &str| {
        let parts = server.rsplit_once(':');
        parts.is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        })
    };
    let is_part = |part: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        !part.is_empty() && part.bytes().all(is_plain)
    };
    let is_right = servers.split(',').all(is_server) && root[1..].split('/').all(is_part);
    let servers = servers.split(',').map(str::to_owned).collect();
    is_right.then_some(ZooKeeperSettings { servers, root })
}

impl DuplicatesConfig {
    /// Reads the certificates of `tls`, and whether those of `store_tls` can be used.
    ///
    /// # Errors
    /// When one cannot; the error names it and its table.
    pub fn load_tls(&self) -> io::Result<Option<ServerTls>> {
        let of_service = |error| of_table(&format!("duplicates.{}", self.name), &error);
        if let Some(Target::Tcp { access, .. }) = self.targets().next() {
            access.load_tls().map_err(of_service)?;
        }
        self.load_relay_tls()?;
        let tls = self.tls.as_ref().map(|files| ServerTls::load(files, &[])).transpose();
        tls.map_err(|error| of_service(of_table("tls", &error)))
    }

    /// Reads the certificates of `relay_tls`.
    ///
    /// # Errors
    /// When one cannot be used; the error names it and its table.
    pub fn load_relay_tls(&self) -> io::Result<Option<ClientTls>> {
        let tls = self.relay_tls.as_ref().map(|files| ClientTls::load(files, &[])).transpose();
        let table = format!("duplicates.{}.relay_tls", self.name);
        tls.map_err(|error| of_table(&table, &error))
    }

    /// How clients of Redis Cluster reach this process: at the host that it advertises. `None`
    /// where they do not.
    pub fn cluster_address(&self) -> Option<ServerAddress> {
        let at = self.cluster?;
        let host = match self.advertise {
            Some(ServerAddress::Name { host, .. }) => {
                return Some(ServerAddress::name(host, at.port()));
            }
            Some(ServerAddress::Inet(advertised)) => advertised.ip(),
            _ if at.ip().is_unspecified() => self.listen.ip(),
            _ => at.ip(),
        };
        let is_somewhere = !host.is_unspecified();
        is_somewhere.then(|| ServerAddress::from(SocketAddr::new(host, at.port())))
    }

    /// The same with another port for clients of Redis Cluster.
    #[must_use]
    pub fn with_door(&self, port: u16) -> Self {
        let beside = |at: SocketAddr| SocketAddr::new(at.ip(), port);
        Self { cluster: self.cluster.map(beside), ..self.clone() }
    }

    /// What each group is made of, as a service of its own: partitions, spares, shards and slots
    /// in runs, a name, a folder and a door. The name is in every duplicate, and has
    /// the number of groups: duplicates of a service that was dealt otherwise are refused.
    pub fn split(&self) -> Vec<Self> {
        if self.group.is_whole() {
            return vec![self.clone()];
        }
        let of = |group: Group| {
            let Group { number, of } = group;
            let partitions = self.partitions[group.share(self.partitions.len())].to_vec();
            let directory = self.log_directory.parent().unwrap_or(Path::new(""));
            let directory = directory.join(number.to_string());
            let beside = |at: SocketAddr| SocketAddr::new(at.ip(), at.port() + number as u16);
            Self {
                name: format!("{}.{number}of{of}", self.name),
                cluster: self.cluster.map(beside),
                group,
                sentinel: self.sentinel.filter(|_| number == 0),
                shards: (self.shards / of).max(partitions.len()),
                partitions,
                log_directory: directory.join("log"),
                map: MapPlace::File(directory.join("layout")),
                spares: self.spares[group.share(self.spares.len())].to_vec(),
                ..self.clone()
            }
        };
        Group::all(self.group.of).map(of).collect()
    }

    /// The name of all groups together.
    pub fn service(&self) -> &str {
        let Group { number, of } = self.group;
        self.name.strip_suffix(&format!(".{number}of{of}")).unwrap_or(&self.name)
    }

    /// Names the thread that is to run it. The groups of a service share as many as there are
    /// workers: who serves several finds more commands each time it wakes, so that each costs less
    /// CPU. A group that waits for its disk before each send has a thread of its own.
    pub fn thread(&self, workers: usize) -> String {
        match self.group.is_whole() || self.log.sync == Sync::Always {
            true => self.name.clone(),
            false => format!("{}.{}", self.service(), self.group.number % workers.max(1)),
        }
    }

    /// Which kind of servers its duplicates are.
    pub fn servers(&self) -> Servers {
        match self.targets().next() {
            Some(Target::Tcp { access, .. }) if access.is_cluster => Servers::Nodes,
            _ => Servers::Plain,
        }
    }

    /// All duplicates, partition after partition.
    pub fn targets(&self) -> impl Iterator<Item = &Target> {
        self.partitions.iter().flatten()
    }

    /// Where the duplicates of each partition are.
    pub fn places(&self) -> Vec<Vec<String>> {
        let of = |targets: &Vec<Target>| targets.iter().map(Target::place).collect();
        self.partitions.iter().map(of).collect()
    }

    /// A duplicate of this service, by its place.
    ///
    /// # Errors
    /// What came and what was expected.
    pub fn target(&self, place: &str) -> Result<Target, Mismatch> {
        if let Some(known) = self.targets().find(|target| target.place() == place) {
            return Ok(known.clone()); // with its pauses
        }
        let none = || Mismatch::new("a service without duplicates", "one with some");
        let first = self.targets().next().ok_or_else(none)?;
        first.beside(&self.name, place)
    }
}
