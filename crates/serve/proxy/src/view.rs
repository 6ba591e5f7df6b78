//! One upstream or agent at one moment, as `/metrics`, `/readyz` and `/api/v1/status` all see it.

use evenkeel_settings::address::ServerAddress;
use std::sync::Arc;

use evenkeel_core::Health;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::safeguards::Distrust;
use evenkeel_core::window::{ReplicaWindow, RequestWindow};

use crate::config::UpstreamConfig;
use crate::upstream_state::{ReplicaState, SourceState, UpstreamStates, UpstreamStats};

/// An upstream: what was configured, what was counted, what is planned.
#[derive(Debug)]
pub struct View<'a> {
    /// Its place among all that the process has had.
    pub place: usize,
    /// What was configured.
    pub config: &'a UpstreamConfig,
    /// What all workers counted, and how the replicas are.
    pub stats: UpstreamStats,
    plan: Arc<RoutePlan>,
    /// The addresses of the replicas at home, by slot.
    pub home: Arc<[ServerAddress]>,
    /// Who tells of them, beside the configuration.
    pub sources: Vec<SourceState>,
}

/// A replica of it, over all workers.
#[derive(Debug)]
pub struct ReplicaView {
    /// Its address: the `replica` label.
    pub address: String,
    /// Whether it may get requests.
    pub health: Health,
    /// What workers know of it at this moment.
    pub state: ReplicaState,
    /// What was counted since the process began.
    pub counted: ReplicaWindow,
}

impl ReplicaView {
    /// Whether a worker finds that it owes replies and sends none.
    pub fn is_silent(&self) -> bool {
        self.state.distrust == Some(Distrust::Silent)
    }
}

impl<'a> View<'a> {
    /// These upstreams, each with its place among all.
    pub fn of_all(
        upstreams: impl Iterator<Item = (usize, &'a UpstreamConfig)>,
        states: &UpstreamStates,
    ) -> Vec<Self> {
        let view = |(place, config)| Self {
            place,
            config,
            stats: states.stats(place),
            plan: states.plan(place),
            home: states.home(place),
            sources: states.sources(place),
        };
        upstreams.map(view).collect()
    }

    /// What was counted since the process began.
    pub const fn total(&self) -> &RequestWindow {
        &self.stats.total
    }

    /// The replicas, by slot. All of them from the first moment, when no worker has reported.
    pub fn replicas(&self) -> Vec<ReplicaView> {
        let view = |(slot, address): (usize, &ServerAddress)| ReplicaView {
            address: address.to_string(),
            health: self.health(slot),
            state: self.stats.replica(slot),
            counted: self.total().replicas.get(slot).copied().unwrap_or_default(),
        };
        self.home.iter().enumerate().map(view).collect()
    }

    /// Whether some replica may get requests: its checks pass, and not every worker finds it
    /// failing or silent.
    pub fn is_ready(&self) -> bool {
        let up = |slot: &usize| self.health(*slot) == Health::Up;
        (0..self.home.len()).filter(up).any(|slot| self.stats.is_trusted(slot))
    }

    fn health(&self, slot: usize) -> Health {
        self.plan.health.get(slot).copied().unwrap_or(Health::Draining)
    }
}
