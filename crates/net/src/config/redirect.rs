//! `[redirect]`: data centres that share their load.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::site::redirect::Overload;
use evenkeel_core::site::redirect::epoch::SiteId;
use evenkeel_core::site::redirect::planner::{Aim, PlannerConfig};

use crate::http::redirected::SplitSetup;

/// `[redirect]`: with which other data centres an upstream's load is shared, and by what plan.
#[derive(Debug, Clone)]
pub struct RedirectConfig {
    /// Index into [`Config::upstreams`](super::Config::upstreams).
    pub upstream: usize,
    /// The data centre of this process.
    pub site: SiteId,
    /// `[[redirect.sites]]`: all of them, in the order that is the same everywhere.
    pub sites: Vec<RedirectSite>,
    /// A request whose answer begins later than this after its arrival missed it.
    pub objective: Duration,
    /// Where the other sites' meshes are taken.
    pub listen: SocketAddr,
    /// This site's certificate, PEM.
    pub certificate: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
    /// The authority or authorities of all certificates, PEM.
    pub authority: PathBuf,
    /// Time between plans; default 2.5 s.
    pub period: Duration,
    /// Time for what is done with a row before it can be planned from; default 20 ms.
    pub margin: Duration,
    /// How far any site's clock is from the true time; default 10 ms.
    pub clock_offset_max: Duration,
    /// What is to be small.
    pub aim: Aim,
    /// Whether a site may send requests away while it serves others'; default no.
    pub relay: bool,
    /// What a load beyond saturation means.
    pub overload: Overload,
    /// The quantum of plans, in parts per million of the largest capacity; default 1 %.
    pub quantum_ppm: u32,
    /// How many times a load is assumed to weigh.
    pub load_bias: f64,
    /// Connections to each other site; default 3.
    pub connections: usize,
    /// Time between probes on one connection; default 200 ms.
    pub probe_interval: Duration,
}

/// `[[redirect.sites]]`: one data centre.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedirectSite {
    /// Its name, which is in its certificate.
    pub name: String,
    /// Where its mesh listens.
    pub peer: SocketAddr,
    /// Its profile, and others that may replace it while something interferes.
    pub curves: Vec<PathBuf>,
}

impl RedirectConfig {
    /// How plans are made.
    #[must_use]
    pub fn planner(&self) -> PlannerConfig {
        PlannerConfig {
            aim: self.aim.clone(),
            relay: self.relay,
            overload: self.overload,
            quantum_ppm: self.quantum_ppm,
            load_bias: self.load_bias,
            ..PlannerConfig::new(self.period)
        }
    }

    /// How the upstream's requests are split.
    #[must_use]
    pub fn split(&self) -> SplitSetup {
        SplitSetup {
            home: self.site,
            names: self.sites.iter().map(|site| site.name.clone()).collect(),
            objective: self.objective,
        }
    }
}
