//! One agent at one moment, as `/metrics` and `/api/v1/status` see it.

use evenkeel_settings::address::ServerAddress;

use evenkeel_core::dimmer::DimmerState;

use crate::agent_state::{AgentState, AgentStates};
use crate::config::{AgentConfig, DimmerConfig, Switch};

/// An agent: what was configured, how it stands.
#[derive(Debug)]
pub(crate) struct AgentView {
    pub(super) app: ServerAddress,
    pub(super) dimmer: Option<DimmerConfig>,
    /// Where it listens: the `agent` label.
    pub(super) address: String,
    pub(super) state: AgentState,
    /// Where the switch shall stand; the agent follows at once.
    pub(super) switch: Switch,
}

impl AgentView {
    /// Every agent, in the order of the configuration.
    pub(crate) fn of_all<'a>(
        agents: impl Iterator<Item = &'a AgentConfig>,
        states: &AgentStates,
    ) -> Vec<Self> {
        let view = |(place, config): (usize, &AgentConfig)| Self {
            app: config.app,
            dimmer: config.dimmer.clone(),
            address: config.address.to_string(),
            state: states.state(place),
            switch: states.switch(place),
        };
        agents.enumerate().map(view).collect()
    }

    /// How its brownout stands; `None` without a dimmer, and until it has reported.
    pub(super) fn state(&self) -> Option<&DimmerState> {
        self.state.brownout.as_ref().map(|brownout| &brownout.state)
    }
}
