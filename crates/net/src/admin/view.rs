//! One upstream or agent at one moment, as `/metrics`, `/readyz` and `/api/v1/status` all see it.

use std::net::SocketAddr;
use std::sync::Arc;

use evenkeel_core::Health;
use evenkeel_core::plan::RoutePlan;
use evenkeel_core::window::{ReplicaWindow, RequestWindow};

use crate::board::{Board, ReplicaState, Standing};
use crate::config::{AgentConfig, Config, DimmerConfig, Switch, UpstreamConfig};

use crate::replica::AgentState;

/// An upstream: what was configured, what was counted, what is planned.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) config: &'a UpstreamConfig,
    pub(super) standing: Standing,
    plan: Arc<RoutePlan>,
    /// By seat.
    pub(super) home: Arc<[SocketAddr]>,
}

/// A replica of it, over all workers.
#[derive(Debug)]
pub(super) struct ReplicaView {
    /// Its address: the `replica` label.
    pub(super) address: String,
    pub(super) health: Health,
    pub(super) state: ReplicaState,
    pub(super) counted: ReplicaWindow,
}

/// An agent: what was configured, how it stands.
#[derive(Debug)]
pub(super) struct AgentView {
    pub(super) app: SocketAddr,
    pub(super) dimmer: Option<DimmerConfig>,
    /// Where it listens: the `agent` label.
    pub(super) address: String,
    pub(super) state: AgentState,
    /// Where the switch shall stand; the agent follows at once.
    pub(super) switch: Switch,
}

impl AgentView {
    /// Every agent, in the order of the configuration.
    pub(super) fn of_all(config: &Config, board: &Board) -> Vec<Self> {
        let view = |(place, config): (usize, &AgentConfig)| Self {
            app: config.app,
            dimmer: config.dimmer.clone(),
            address: config.address.to_string(),
            state: board.agent(place),
            switch: board.switch(place),
        };
        config.agents.iter().enumerate().map(view).collect()
    }
}

impl<'a> View<'a> {
    /// Every upstream, in the order of the configuration.
    pub(super) fn of_all(config: &'a Config, board: &Board) -> Vec<Self> {
        let view = |(number, config)| Self {
            config,
            standing: board.standing(number),
            plan: board.plan(number),
            home: board.home(number),
        };
        config.upstreams.iter().enumerate().map(view).collect()
    }

    /// What was counted since the process began.
    pub(super) const fn total(&self) -> &RequestWindow {
        &self.standing.total
    }

    /// The replicas, by seat. All of them from the first moment, when no worker has reported.
    pub(super) fn replicas(&self) -> Vec<ReplicaView> {
        let view = |(seat, address): (usize, &SocketAddr)| ReplicaView {
            address: address.to_string(),
            health: self.health(seat),
            state: self.standing.replica(seat),
            counted: self.total().replicas.get(seat).copied().unwrap_or_default(),
        };
        self.home.iter().enumerate().map(view).collect()
    }

    /// Whether some replica may get requests.
    pub(super) fn is_ready(&self) -> bool {
        (0..self.home.len()).any(|seat| self.health(seat) == Health::Up)
    }

    fn health(&self, seat: usize) -> Health {
        self.plan.health.get(seat).copied().unwrap_or(Health::Draining)
    }
}
