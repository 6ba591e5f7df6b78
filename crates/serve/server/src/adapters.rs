//! What one component offers in the form that another one asks for.

#[cfg(test)]
mod tests;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;

use evenkeel_core::Health;
use evenkeel_core::units::Probability;
use evenkeel_geo::demand::SplitTally;
use evenkeel_geo::traffic::{Directive, Ended};
use tokio::sync::watch;

use crate::config::Config;
use evenkeel_mesh::envoy;
use evenkeel_mesh::envoy::{Cluster, Feed, Locality, Plane, Sources, Tell};
use evenkeel_mesh::export::Standing;
use evenkeel_mesh::{Home, RedirectState};
use evenkeel_placement::{RoundTripSource, SitePaths};
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::ServerAddress;

/// An upstream of this process as the home of a mesh.
#[derive(Debug)]
pub(crate) struct UpstreamHome {
    /// The upstreams of the process.
    pub(crate) states: Arc<UpstreamStates>,
    /// The upstream, by its place in the configuration.
    pub(crate) upstream: usize,
    /// The same as others see it who are told the plan.
    pub(crate) cluster: Option<Cluster>,
}

impl Home for UpstreamHome {
    fn counts(&self) -> SplitTally {
        self.states.split_tally(self.upstream)
    }

    fn replicas_up(&self) -> u32 {
        self.states.home_up(self.upstream) as u32
    }

    fn content(&self) -> Option<(Probability, Probability)> {
        self.states.home_content(self.upstream)
    }

    fn standing(&self) -> Vec<Standing> {
        let plans = self.states.plans(self.upstream);
        let health = &plans.borrow().health;
        let is_up = |slot: usize| health.get(slot).is_none_or(|health| *health == Health::Up);
        let localities = self.cluster.iter().flat_map(|cluster| &cluster.localities);
        let standing = |locality: &Locality| {
            let all = locality.endpoints.iter().copied().zip(locality.slots.clone());
            let up = all.filter(|(_, slot)| is_up(*slot)).map(|(address, _)| address).collect();
            let all = locality.endpoints.clone();
            Standing { is_usable: locality.slots.clone().any(is_up), up, all }
        };
        localities.map(standing).collect()
    }

    fn direct(&self, directive: Directive) {
        self.states.direct(self.upstream, directive);
    }

    fn ended(&self) -> Option<Ended> {
        self.states.split_ended(self.upstream)
    }
}

/// The mesh of this process, for whoever places databases.
#[derive(Clone, Debug)]
pub(crate) struct MeshPaths(pub(crate) watch::Receiver<Arc<RedirectState>>);

impl RoundTripSource for MeshPaths {
    fn snapshot(&self) -> SitePaths {
        let state = self.0.borrow();
        SitePaths {
            sites: state.sites.iter().map(|site| site.name.clone()).collect(),
            paths: state.paths.clone(),
        }
    }
}

/// What Envoys find this process by: bound, not served yet.
#[derive(Debug)]
pub(crate) struct EnvoySide {
    plane: Arc<Plane>,
    /// By feed, the upstream it is of.
    upstreams: Vec<usize>,
    listener: Option<TcpListener>,
}

/// An upstream as Envoys see it; `None` where all requests stay at home.
pub(crate) fn cluster_of(upstream: &UpstreamConfig) -> Option<Cluster> {
    let split = &upstream.split.as_ref()?.sites;
    let groups = upstream.groups();
    let locality = |(site, name): (usize, &String)| {
        let is_home = site == split.home.index();
        let remote = || upstream.sites.iter().position(|remote| remote.name == *name);
        let group = if is_home { Some(0) } else { remote().map(|place| place + 1) };
        // Without a way there nothing is sent there.
        let slots = group.map_or(0..0, |group| groups[group].clone());
        let servers = upstream.slots().skip(slots.start).take(slots.len());
        let endpoints = servers.filter_map(ServerAddress::inet).collect(); // it was checked: all
        Locality { name: name.clone(), endpoints, slots }
    };
    let localities = split.names.iter().enumerate().map(locality).collect();
    Some(Cluster { name: upstream.name.clone(), home: split.home, localities })
}

/// Makes a plane of the upstreams whose requests are split, and binds its address.
///
/// # Errors
/// When the address cannot be bound.
pub(crate) fn open(config: &Config, states: &Arc<UpstreamStates>) -> io::Result<Option<EnvoySide>> {
    let Some(envoy) = &config.envoy else { return Ok(None) };
    let (mut upstreams, mut feeds) = (Vec::new(), Vec::new());
    for (number, upstream) in config.upstreams.iter().enumerate() {
        let Some(cluster) = cluster_of(&upstream.common) else { continue };
        let states = Arc::clone(states);
        let tell: Tell =
            Box::new(move |window, by_site| states.note_foreign(number, window, by_site));
        upstreams.push(number);
        feeds.push(Feed::new(cluster, envoy.report_interval, tell));
    }
    let bind = |address| {
        TcpListener::bind(address).map_err(|error| {
            let hint = format!("[envoy] cannot listen on {address}: {error}");
            io::Error::new(error.kind(), hint)
        })
    };
    let listener = envoy.listen.map(bind).transpose()?;
    let plane = Plane::new(feeds, envoy.report_interval);
    Ok(Some(EnvoySide { plane, upstreams, listener }))
}

impl EnvoySide {
    /// What Envoys are told, and what they report.
    pub(crate) const fn plane(&self) -> &Arc<Plane> {
        &self.plane
    }

    /// Tells Envoys, for as long as the runtime lives. Call it in a worker runtime.
    pub(crate) fn spawn(self, config: &Config, states: &UpstreamStates, clock: Clock) {
        let sources = self.upstreams.iter().filter_map(|&upstream| {
            Some(Sources {
                directives: states.directives(upstream)?,
                plans: states.plans(upstream),
            })
        });
        let directory = config.envoy.as_ref().and_then(|envoy| envoy.directory.as_deref());
        self.plane.spawn(sources.collect(), clock, directory);
        if let Some(listener) = self.listener {
            tokio::task::spawn_local(async move {
                if let Err(error) = envoy::serve(self.plane, listener).await {
                    tracing::error!(%error, "Envoys are told nothing more over gRPC");
                }
            });
        }
    }
}
