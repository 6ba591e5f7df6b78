//! Where a duplicate is, and how it is reached.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_core::request::ring::Consistency;

use evenkeel_cql::client::config::CqlUser;
use evenkeel_runtime::tls::ClientTlsFiles;

/// Names of keyspaces are parts of names of files.
const KEYSPACE_BYTES_MAX: usize = 48;

/// A node or cluster, and where in it the keys are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CassandraSettings {
    /// Nodes of one cluster that are connected to: the first that answers is used.
    pub contact_points: Vec<SocketAddr>,
    /// What it has for itself: lowercase letters, digits and `_`, 48 at most. It is made if it is
    /// missing.
    pub keyspace: String,
    /// How nodes are reached and asked.
    pub access: Arc<CassandraAccess>,
}

/// How nodes are reached and asked, the same for all duplicates of a service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CassandraAccess {
    /// As whom; `None` where nodes let everybody in.
    pub user: Option<CqlUser>,
    /// Encryption towards the nodes; `None` = none.
    pub tls: Option<ClientTlsFiles>,
    /// Replicas in each data centre, for keyspaces that are made. Empty: one, in a cluster of one
    /// node; in others the keyspace must be there.
    pub replicas: BTreeMap<String, usize>,
    /// Whether a majority is one of the contact point's data centre, not one of all.
    pub is_local: bool,
}

impl CassandraSettings {
    /// What [`CassandraSettings::parse`] reads.
    pub const EXPECTED: &'static str = "addresses of nodes of one cluster and perhaps a keyspace \
                                        of up to 48 lowercase letters, digits and _, such as \
                                        10.0.1.1:9042,10.0.1.2:9042/evenkeel_cart";

    /// `address,…[/keyspace]`; the keyspace of a service is `evenkeel_NAME` if it is left out.
    /// `None`: it is something else.
    pub fn parse(text: &str, service: &str, access: &Arc<CassandraAccess>) -> Option<Self> {
        let (nodes, keyspace) = match text.split_once('/') {
            Some((nodes, keyspace)) => (nodes, keyspace.to_owned()),
            None => {
                let name = service.to_ascii_lowercase();
                (text, format!("evenkeel_{}", name.replace(|letter| !is_plain(letter), "_")))
            }
        };
        let address = |node: &str| node.parse().ok().filter(|node: &SocketAddr| node.port() != 0);
        let contact_points = nodes.split(',').map(address).collect::<Option<_>>()?;
        let settings = Self { contact_points, keyspace, access: Arc::clone(access) };
        Some(settings).filter(Self::is_sound)
    }

    /// Whether it can be where a duplicate is.
    pub(super) fn is_sound(&self) -> bool {
        !self.contact_points.is_empty()
            && (1..=KEYSPACE_BYTES_MAX).contains(&self.keyspace.len())
            && self.keyspace.chars().all(|letter| is_plain(letter) || letter == '_')
    }
}

const fn is_plain(letter: char) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}

impl fmt::Display for CassandraSettings {
    /// As [`CassandraSettings::parse`] reads it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.contact_points.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(formatter, "{comma}{node}")?;
        }
        write!(formatter, "/{}", self.keyspace)
    }
}

impl CassandraAccess {
    /// Of reads and writes.
    pub(super) const fn quorum(&self) -> Consistency {
        if self.is_local { Consistency::LocalQuorum } else { Consistency::Quorum }
    }

    /// Of conditions.
    pub(super) const fn serial(&self) -> Consistency {
        if self.is_local { Consistency::LocalSerial } else { Consistency::Serial }
    }
}
