//! Envoy as the data plane: the redirect rates of a site, as locality weights.
//!
//! Where a site's requests already pass through Envoy, they need not pass through our own proxy to
//! be redirected. Each data centre becomes a *locality* of an Envoy cluster, the rates of the plan
//! become `load_balancing_weight`, and Envoy's load reports (LRS) become the demand that plans are
//! made from. Weights reach Envoy by a file it watches (file EDS; always built) or over gRPC (ADS
//! or EDS; feature `envoy`).
//!
//! | room | does |
//! |---|---|
//! | `assignment` | plan and replicas into weights; a pure function |
//! | `feed` | what Envoy shall be told now, as plans come, grow stale, and replicas die |
//! | `file` | that, as a file |
//! | `demand` | what Envoys report, added up |
//! | `grpc` | discovery and load reports over gRPC (feature `envoy`) |
//!
//! **What is lost** beside our own proxy: the cap of each destination (Envoy has no token bucket
//! for a locality, and circuit breakers count for a whole cluster, so a surge at the origin is
//! passed on in full until the next epoch), the second try at home when the other site fails, and
//! latencies (load reports have none, so only failures count as misses). `docs/envoy.md` says more.

mod assignment;
mod demand;
mod feed;
mod file;
#[cfg(feature = "envoy")]
mod grpc;
pub(crate) mod metrics;
#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use crate::board::Board;
use crate::clock::Clock;
use crate::config::{Config, UpstreamConfig};

pub use assignment::{Assignment, Cluster, Locality, LocalityWeight, WEIGHT_TOTAL};
pub use demand::{Demand, LocalityRates, LocalityReport, Report};
pub use feed::{Counts, Feed, Nack, Plane, Sources, Tell};
#[cfg(feature = "envoy")]
pub use grpc::serve;

/// What Envoys find this process by: bound, not served yet.
#[derive(Debug)]
pub(crate) struct Entrance {
    plane: Arc<Plane>,
    /// By feed, the upstream it is of.
    upstreams: Vec<usize>,
    listener: Option<TcpListener>,
}

impl Cluster {
    /// An upstream as Envoys see it; `None` where all requests stay at home.
    #[must_use]
    pub fn of(upstream: &UpstreamConfig) -> Option<Self> {
        let split = upstream.split.as_ref()?;
        let groups = upstream.groups();
        let locality = |(site, name): (usize, &String)| {
            let is_home = site == split.home.index();
            let remote = || upstream.sites.iter().position(|remote| remote.name == *name);
            let group = if is_home { Some(0) } else { remote().map(|place| place + 1) };
            // Without a way there nothing is sent there.
            let seats = group.map_or(0..0, |group| groups[group].clone());
            let endpoints = upstream.seats().skip(seats.start).take(seats.len()).collect();
            Locality { name: name.clone(), endpoints, seats }
        };
        let localities = split.names.iter().enumerate().map(locality).collect();
        Some(Self { name: upstream.name.clone(), home: split.home, localities })
    }
}

/// Makes a plane of the upstreams whose requests are split, and binds its address.
///
/// # Errors
/// When the address cannot be bound, or this program was built without gRPC.
pub(crate) fn open(config: &Config, board: &Arc<Board>) -> io::Result<Option<Entrance>> {
    let Some(envoy) = &config.envoy else { return Ok(None) };
    let (mut upstreams, mut feeds) = (Vec::new(), Vec::new());
    for (number, upstream) in config.upstreams.iter().enumerate() {
        let Some(cluster) = Cluster::of(upstream) else { continue };
        let board = Arc::downgrade(board); // which keeps the plane
        let tell: Tell = Box::new(move |window, lanes| {
            if let Some(board) = board.upgrade() {
                board.note_foreign(number, window, lanes);
            }
        });
        upstreams.push(number);
        feeds.push(Feed::new(cluster, envoy.report_interval, tell));
    }
    let bind = |address| {
        if !cfg!(feature = "envoy") {
            let words = "[envoy] listen: this program was built without gRPC: build it with \
                         --features envoy, or write directory instead";
            return Err(io::Error::new(io::ErrorKind::Unsupported, words));
        }
        TcpListener::bind(address).map_err(|error| {
            let hint = format!("[envoy] cannot listen on {address}: {error}");
            io::Error::new(error.kind(), hint)
        })
    };
    let listener = envoy.listen.map(bind).transpose()?;
    let plane = Plane::new(feeds, envoy.report_interval);
    board.set_envoy(Arc::clone(&plane));
    Ok(Some(Entrance { plane, upstreams, listener }))
}

impl Entrance {
    /// Tells Envoys, for as long as the runtime lives. Call it in a worker runtime.
    pub(crate) fn spawn(self, config: &Config, board: &Board, clock: Clock) {
        let sources = self.upstreams.iter().filter_map(|&upstream| {
            Some(Sources { directives: board.directives(upstream)?, plans: board.plans(upstream) })
        });
        let directory = config.envoy.as_ref().and_then(|envoy| envoy.directory.as_deref());
        self.plane.spawn(sources.collect(), clock, directory);
        #[cfg(not(feature = "envoy"))]
        drop(self.listener); // there is none
        #[cfg(feature = "envoy")]
        if let Some(listener) = self.listener {
            tokio::task::spawn_local(async move {
                if let Err(error) = serve(self.plane, listener).await {
                    tracing::error!(%error, "Envoys are told nothing more over gRPC");
                }
            });
        }
    }
}
