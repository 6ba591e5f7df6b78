//! The last five minutes of one agent's dimmer: what the dashboard draws.
//!
//! One point a second, each a reading of that moment; the percentile is of the law's own window,
//! up to five of its periods. **Memory**: 300 points of 40 bytes.

use std::collections::VecDeque;
use std::time::Instant;

use evenkeel_core::time::millis;

use crate::agent_state::AgentState;
use evenkeel_proxy::series::POINTS_MAX;

/// An agent's dimmer over the last five minutes.
#[derive(Debug, Default)]
pub(crate) struct AgentSeries(VecDeque<AgentPoint>);

/// An agent at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct AgentPoint {
    pub(super) at: Instant,
    pub(super) dimmer: f64,
    pub(super) percentile_ms: Option<f64>,
}

impl AgentSeries {
    /// Adds a point, if the agent has a dimmer.
    pub(crate) fn sample(&mut self, at: Instant, state: &AgentState) {
        let Some(brownout) = &state.brownout else { return };
        if self.0.len() == POINTS_MAX {
            self.0.pop_front();
        }
        let dimmer = brownout.state.dimmer.value();
        let percentile_ms = brownout.state.percentile.map(millis);
        self.0.push_back(AgentPoint { at, dimmer, percentile_ms });
    }

    /// The points, oldest first.
    pub(super) const fn points(&self) -> &VecDeque<AgentPoint> {
        &self.0
    }
}
