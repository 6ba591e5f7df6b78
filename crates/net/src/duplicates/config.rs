//! `[duplicates.NAME]`: what one service is made of.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use evenkeel_core::request::ordered::{Consistency, MembersConfig};

use super::log::LogSettings;
use super::store::embedded::{Embedded, EmbeddedSettings};
use super::store::{Host, Pauses};
use crate::resp::request::Limits;

/// One service of partitions and duplicates.
#[derive(Debug, Clone)]
pub struct DuplicatesConfig {
    /// Its name in the file, in metrics and in the names of its connections.
    pub name: String,
    /// Where clients of Redis connect.
    pub listen: SocketAddr,
    /// The duplicates of each partition.
    pub partitions: Vec<Vec<Target>>,
    /// Parts that keys are dealt to; what can move between partitions. Default 64.
    pub shards: usize,
    /// What reads see unless a session says otherwise.
    pub consistency: Consistency,
    /// Copies of a read, at most; default: all live duplicates.
    pub read_copies: usize,
    /// When writes are acknowledged and duplicates dropped.
    pub members: MembersConfig,
    /// Where the log is.
    pub log_directory: PathBuf,
    /// How the log is kept.
    pub log: LogSettings,
    /// What clients must say before anything else.
    pub password: Option<String>,
    /// What one command may be.
    pub limits: Limits,
    /// Connections of clients at once.
    pub clients_max: usize,
}

/// One duplicate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A server that speaks RESP3: Redis 6 or later, or what does as it does.
    Tcp {
        /// Where it listens.
        address: SocketAddr,
        /// Its password, if it has one.
        password: Option<String>,
    },
    /// A store in this process.
    Embedded {
        /// Its file.
        settings: EmbeddedSettings,
        /// When it stumbles, for demonstrations and tests.
        pauses: Option<Pauses>,
    },
}

/// A duplicate that can be connected to.
#[derive(Debug, Clone)]
pub(super) enum Door {
    Tcp { address: SocketAddr, password: Option<String> },
    Host(Host),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Embedded { settings, .. } => settings.path.display().fmt(f),
        }
    }
}

impl Target {
    /// Starts what runs in this process.
    ///
    /// # Errors
    /// When its store cannot be opened.
    pub(super) fn open(&self) -> io::Result<Door> {
        Ok(match self.clone() {
            Self::Tcp { address, password } => Door::Tcp { address, password },
            Self::Embedded { settings, pauses } => {
                let name = settings.path.display().to_string();
                Door::Host(Host::start(&name, pauses, async move || Embedded::open(&settings))?)
            }
        })
    }
}

impl fmt::Display for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, .. } => address.fmt(f),
            Self::Host(host) => f.write_str(host.name()),
        }
    }
}

impl Door {
    /// What it wants to hear first.
    pub(super) fn password(&self) -> Option<&str> {
        match self {
            Self::Tcp { password, .. } => password.as_deref(),
            Self::Host(_) => None,
        }
    }
}

impl DuplicatesConfig {
    /// All duplicates, partition after partition.
    pub(super) fn targets(&self) -> impl Iterator<Item = &Target> {
        self.partitions.iter().flatten()
    }
}
