//! How the agents of a process stand, and where their switches shall: what the thread that serves
//! them and the administration share.

use std::sync::{Mutex, PoisonError};

use evenkeel_core::dimmer::DimmerState;
use tokio::sync::watch;

use crate::config::{AgentConfig, Switch};

/// How an agent stands.
#[derive(Debug, Clone, Copy, Default)]
pub struct AgentState {
    /// Requests that wait for the application.
    pub waiting: u32,
    /// Requests with the application.
    pub in_service: u32,
    /// Its brownout, if it has one.
    pub brownout: Option<BrownoutState>,
    /// What became of the questions to it.
    pub probes: AgentProbes,
}

/// Questions to an agent since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentProbes {
    /// Answered over HTTP.
    pub answered_http: u64,
    /// Answered in a datagram.
    pub answered: u64,
    /// Not answered, as the socket took no more.
    pub unsent: u64,
    /// Datagrams of another length, version or kind.
    pub malformed: u64,
    /// Datagrams of no key, or of one that does not hold.
    pub foreign: u64,
    /// Datagrams that came before.
    pub replayed: u64,
    /// Times that reading paused, as too many came.
    pub pauses: u64,
    /// Notices of requests that wait.
    pub notices: u64,
    /// Notices that were asked for and not sent, as they were too many or the socket took no more.
    pub notices_left_out: u64,
}

/// How the brownout of an agent stands.
#[derive(Debug, Clone, Copy)]
pub struct BrownoutState {
    /// What the dimmer knows and does. Requests elsewhere than on routes with optional content are
    /// not among those served in full.
    pub state: DimmerState,
    /// Where the switch stands.
    pub switch: Switch,
    /// What became of the inflows of plans it was told.
    pub inflows: InflowCounts,
}

/// Inflows of plans that requests told an agent, since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct InflowCounts {
    /// The dimmer goes by it.
    pub taken: u64,
    /// Another proxy had told it, or the plan is over.
    pub old: u64,
    /// It came twice on a request, or cannot be read.
    pub invalid: u64,
}

/// All agents of a process, in the order of the configuration.
#[derive(Debug)]
pub struct AgentStates(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    state: Mutex<AgentState>,
    switch: watch::Sender<Switch>,
}

impl AgentStates {
    /// Those of these agents, of which nothing is known yet.
    pub fn new<'a>(agents: impl Iterator<Item = &'a AgentConfig>) -> Self {
        let entry = |agent: &AgentConfig| {
            let switch = agent.dimmer.as_ref().map(|dimmer| dimmer.switch).unwrap_or_default();
            Entry { state: Mutex::default(), switch: watch::Sender::new(switch) }
        };
        Self(agents.map(entry).collect())
    }

    /// How an agent stands.
    pub fn state(&self, agent: usize) -> AgentState {
        *self.0[agent].state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how an agent stands.
    pub fn note(&self, agent: usize, state: AgentState) {
        *self.0[agent].state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Where the switch of an agent's brownout shall stand.
    pub fn switch(&self, agent: usize) -> Switch {
        *self.0[agent].switch.borrow()
    }

    /// Sets the switch of an agent's brownout.
    pub fn set_switch(&self, agent: usize, switch: Switch) {
        self.0[agent].switch.send_replace(switch);
    }

    /// The positions of an agent's switch as they come.
    pub fn switches(&self, agent: usize) -> watch::Receiver<Switch> {
        self.0[agent].switch.subscribe()
    }
}
