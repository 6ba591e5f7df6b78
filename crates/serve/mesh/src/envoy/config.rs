//! `[envoy]`: Envoys that send a site's requests where the plan says.

pub mod read;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// `[envoy]`: how Envoys are told the plan of `[redirect]`, and report their requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvoyConfig {
    /// Where files for file EDS are kept, one for each upstream: `NAME.json`; `None` = no files.
    pub directory: Option<PathBuf>,
    /// Where ADS, EDS and LRS are served; `None` = nothing is, and Envoys' requests are not
    /// counted.
    pub listen: Option<SocketAddr>,
    /// How often Envoys report; default 1 s.
    pub report_interval: Duration,
}
