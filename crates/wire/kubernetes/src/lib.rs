//! Where the pods of a Kubernetes Service are: its EndpointSlices (`discovery.k8s.io/v1`).
//!
//! [`Watcher`] lists them once and then watches: the API server sends each change as a line of
//! JSON, and bookmarks while nothing changes. It says what the API server says. Who asks again
//! when, and what to believe, is for others to decide (`evenkeel_core::discovery`).
//!
//! Two requests over HTTP/1.1 and a dozen fields of JSON are all that is needed, so this is no
//! general client of Kubernetes: one has more code than the rest of the program.
//!
//! | file | does |
//! |---|---|
//! | `api.rs` | the API server: where it is, who we are there, one request |
//! | `slices.rs` | EndpointSlices as JSON, and whom they offer |
//! | `watcher.rs` | list, watch, and list again |

mod api;
mod slices;
mod watcher;

use std::io;
use std::time::Duration;

use evenkeel_dns::LookupError;

pub use api::Api;
pub use slices::{Offer, Port};
pub use watcher::{Limits, Watcher};

/// A Service of a cluster, and which of its ports.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its namespace; `None` = that of the pod that asks.
    pub namespace: Option<String>,
    /// Which port of its pods; `None` = the only one.
    pub port: Option<Port>,
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name)?,
            None => f.write_str(&self.name)?,
        }
        self.port.iter().try_for_each(|port| write!(f, ":{port}"))
    }
}

/// Why nothing is known of a Service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// The process is in no pod, and nothing says where the API server is.
    #[error(
        "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: outside of a cluster \
         `api` is needed, such as api = \"https://10.0.0.1:6443\""
    )]
    NoCluster,
    /// Neither the configuration nor the pod has a namespace.
    #[error("no namespace: set `namespace`; {0}")]
    NoNamespace(io::Error),
    /// A file cannot be read or is not what it should be; the error names it.
    #[error("{0}")]
    File(io::Error),
    /// The name of the API server has no address.
    #[error("the API server {host} has no address{}", because(.error.as_ref()))]
    Lookup {
        /// Its name.
        host: String,
        /// Why; `None` where DNS says that there is none.
        error: Option<LookupError>,
    },
    /// No connection, or one that broke.
    #[error("the API server {server}: {error}")]
    Broken {
        /// Which.
        server: String,
        /// How.
        error: io::Error,
    },
    /// It was silent for too long.
    #[error("the API server {server} sent nothing within {} s", .within.as_secs_f64())]
    Silent {
        /// Which.
        server: String,
        /// The time it had.
        within: Duration,
    },
    /// It answered no.
    #[error("the API server {server} answered {status}: {message}{}", hint(*.status))]
    Refused {
        /// Which.
        server: String,
        /// The status of HTTP, or that of the event.
        status: u16,
        /// Its own words.
        message: String,
    },
    /// It sent what is no answer.
    #[error("the API server {server} sent what is no {expected}: {why}")]
    Malformed {
        /// Which.
        server: String,
        /// What was expected.
        expected: &'static str,
        /// What is wrong.
        why: String,
    },
    /// No slice has the port.
    #[error("the service has no port {wanted}; its EndpointSlices have {known}")]
    NoPort {
        /// What was asked for.
        wanted: String,
        /// Those that there are.
        known: String,
    },
}

impl WatchError {
    /// Whether it no longer knows the version that was asked for: a new list is needed.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status: 410, .. })
    }
}

fn because(error: Option<&LookupError>) -> String {
    error.map(|error| format!(": {error}")).unwrap_or_default()
}

const fn hint(status: u16) -> &'static str {
    match status {
        401 => " (is the token of this cluster?)",
        403 => {
            " (the service account needs a Role with get, list and watch for endpointslices of \
             discovery.k8s.io)"
        }
        404 => " (does it have discovery.k8s.io/v1, Kubernetes 1.21 or later?)",
        _ => "",
    }
}
