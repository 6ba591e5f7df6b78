//! `/api/v1/brownout`: the hand on the dimmers of this process's agents.
//!
//! `POST {"switch": "full"}` sets the switch of every agent with a dimmer, and with
//! `"agent": "127.0.0.1:9001"` that of one; the answer, as that of `GET`, lists them all.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::agent_state::AgentStates;
use crate::config::{AgentConfig, Switch};

/// Where the switches are.
pub(crate) const PATH: &str = "/api/v1/brownout";

/// What a request asks for.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wish {
    agent: Option<String>,
    switch: String,
}

#[derive(Serialize)]
struct Switches {
    agents: Vec<AgentSwitch>,
}

#[derive(Serialize)]
struct AgentSwitch {
    agent: String,
    app: String,
    switch: &'static str,
}

/// Where the switches stand, as JSON.
pub(crate) fn list(agents: &[AgentConfig], states: &AgentStates) -> String {
    let switches = dimmed(agents).map(|place| AgentSwitch {
        agent: agents[place].address.to_string(),
        app: agents[place].app.to_string(),
        switch: states.switch(place).name(),
    });
    let switches = Switches { agents: switches.collect() };
    serde_json::to_string(&switches).expect("strings are always JSON")
}

/// Carries out what a body asks for.
///
/// # Errors
/// The status and words of the refusal.
pub(crate) fn set(
    agents: &[AgentConfig],
    states: &AgentStates,
    body: &[u8],
) -> Result<(), (StatusCode, String)> {
    let wish: Wish = serde_json::from_slice(body).map_err(|error| {
        let words = format!(
            "got no wish ({error}), expected such as \
             {{\"switch\": \"full\", \"agent\": \"127.0.0.1:9001\"}}\n"
        );
        (StatusCode::BAD_REQUEST, words)
    })?;
    let named = Switch::NAMES.iter().find(|(name, _)| *name == wish.switch);
    let (_, switch) = named.ok_or_else(|| {
        let came: String = wish.switch.chars().take(50).collect();
        let words = format!("got the switch {came:?}, expected auto, full or lean\n");
        (StatusCode::BAD_REQUEST, words)
    })?;
    let is_meant = |place: &usize| {
        wish.agent.as_ref().is_none_or(|agent| *agent == agents[*place].address.to_string())
    };
    let meant: Vec<usize> = dimmed(agents).filter(is_meant).collect();
    if meant.is_empty() {
        return Err((StatusCode::NOT_FOUND, nobody(agents, wish.agent.as_deref())));
    }
    meant.into_iter().for_each(|place| states.set_switch(place, *switch));
    Ok(())
}

/// The places of agents with a dimmer.
fn dimmed(agents: &[AgentConfig]) -> impl Iterator<Item = usize> {
    agents.iter().enumerate().filter(|(_, agent)| agent.dimmer.is_some()).map(|(place, _)| place)
}

fn nobody(agents: &[AgentConfig], agent: Option<&str>) -> String {
    let known: Vec<String> =
        dimmed(agents).map(|place| agents[place].address.to_string()).collect();
    let known = if known.is_empty() {
        "this process has none with [agent.dimmer]".to_owned()
    } else {
        format!("expected one of {}", known.join(", "))
    };
    let agent: String = agent.unwrap_or("any").chars().take(50).collect();
    format!("there is no agent {agent:?} with a dimmer here; {known}\n")
}
