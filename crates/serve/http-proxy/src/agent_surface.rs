//! What the agents of a process show: metrics, their part of the status, and the switches of their
//! dimmers.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::agent_series::AgentSeries;
use crate::agent_state::AgentStates;
use crate::agent_status::Agent;
use crate::agent_view::AgentView;
use crate::config::AgentConfig;
use crate::{agent_metrics, switch};
use evenkeel_runtime::component::{Answer, Content, Endpoint, Surface};

struct Agents {
    configs: Vec<AgentConfig>,
    states: Arc<AgentStates>,
    /// By agent.
    series: Mutex<Vec<AgentSeries>>,
}

/// That of these agents, which stand so.
#[must_use]
pub fn surface(configs: Vec<AgentConfig>, states: Arc<AgentStates>) -> Surface {
    let series = Mutex::new(configs.iter().map(|_| AgentSeries::default()).collect());
    let all = Arc::new(Agents { configs, states, series });
    let [metrics, status, sampled, listed, set] = [(); 5].map(|()| Arc::clone(&all));
    let switches =
        Endpoint::get(switch::PATH, move || switch::list(&listed.configs, &listed.states))
            .and_post(move |body| {
                let done = switch::set(&set.configs, &set.states, &body);
                let answer = match done {
                    Ok(()) => {
                        let json = switch::list(&set.configs, &set.states);
                        Answer { status: 200, content: Content::Json(json) }
                    }
                    Err((status, words)) => {
                        Answer { status: status.as_u16(), content: Content::Text(words) }
                    }
                };
                std::future::ready(answer)
            });
    Surface {
        status: vec![("agents", Box::new(move |now| status.status(now)))],
        endpoints: vec![switches],
        samplers: vec![Box::new(move |now| sampled.sample(now))],
        ..Surface::of_metrics(move |scrape: &mut _| {
            agent_metrics::collect(scrape, &metrics.views());
        })
    }
}

impl Agents {
    fn views(&self) -> Vec<AgentView> {
        AgentView::of_all(self.configs.iter(), &self.states)
    }

    fn sample(&self, now: Instant) {
        let mut series = self.series.lock().unwrap_or_else(PoisonError::into_inner);
        for (agent, series) in series.iter_mut().enumerate() {
            series.sample(now, &self.states.state(agent));
        }
    }

    fn status(&self, now: Instant) -> String {
        let (views, series) =
            (self.views(), self.series.lock().unwrap_or_else(PoisonError::into_inner));
        let agents = views.iter().zip(&*series).map(|(view, series)| Agent::new(view, series, now));
        let agents: Vec<Agent<'_>> = agents.collect();
        serde_json::to_string(&agents).expect("numbers and strings are always JSON")
    }
}
