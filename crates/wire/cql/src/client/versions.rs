//! Which versions of TLS are spoken with drivers and with nodes.

use rustls::SupportedProtocolVersion;
use rustls::version::{TLS12, TLS13};

/// Both that are in use: Cassandra on an early Java 8 and many drivers know 1.2 only. Two ends that
/// know 1.3 agree on that. What Evenkeels say to each other is 1.3 (`redirect::identity`).
pub static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
