//! `/api/v1/brownout`: the hand on the dimmers of this process's agents.
//!
//! `POST {"switch": "full"}` sets the switch of every agent with a dimmer, and with
//! `"agent": "127.0.0.1:9001"` that of one; the answer, as that of `GET`, lists them all.
//!
//! It changes something without a password, so a web page in a browser of this machine must not
//! reach it: the body must be declared as JSON, for which a browser asks permission of whoever
//! serves the page's requests (a preflight, which gets none here), and what a browser says of the
//! page's origin must not be another one.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HeaderName, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};

use crate::board::Board;
use crate::config::{Config, Switch};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

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
pub(super) fn list(config: &Config, board: &Board) -> String {
    let agents = dimmed(config).map(|place| AgentSwitch {
        agent: config.agents[place].address.to_string(),
        app: config.agents[place].app.to_string(),
        switch: board.switch(place).name(),
    });
    let switches = Switches { agents: agents.collect() };
    serde_json::to_string(&switches).expect("strings are always JSON")
}

/// Carries out what a body asks for.
///
/// # Errors
/// The status and words of the refusal.
pub(super) fn set(config: &Config, board: &Board, body: &[u8]) -> Result<(), (StatusCode, String)> {
    let wish: Wish = serde_json::from_slice(body).map_err(|error| {
        let words = format!(
            "came no wish ({error}), expected such as \
             {{\"switch\": \"full\", \"agent\": \"127.0.0.1:9001\"}}\n"
        );
        (StatusCode::BAD_REQUEST, words)
    })?;
    let named = Switch::NAMES.iter().find(|(name, _)| *name == wish.switch);
    let (_, switch) = named.ok_or_else(|| {
        let came: String = wish.switch.chars().take(50).collect();
        let words = format!("came the switch {came:?}, expected auto, full or lean\n");
        (StatusCode::BAD_REQUEST, words)
    })?;
    let is_meant = |place: &usize| {
        wish.agent.as_ref().is_none_or(|agent| *agent == config.agents[*place].address.to_string())
    };
    let meant: Vec<usize> = dimmed(config).filter(is_meant).collect();
    if meant.is_empty() {
        return Err((StatusCode::NOT_FOUND, nobody(config, wish.agent.as_deref())));
    }
    meant.into_iter().for_each(|place| board.set_switch(place, *switch));
    Ok(())
}

/// Refuses what a page of another origin may have sent.
///
/// # Errors
/// The status and words of the refusal.
pub(super) fn check_sender(
    headers: &HeaderMap,
    is_own_host: impl Fn(&Authority, IpAddr) -> bool,
    bound: IpAddr,
) -> Result<(), (StatusCode, String)> {
    let site = headers.get(SEC_FETCH_SITE).map(http::HeaderValue::as_bytes);
    let is_own_page = site.is_none_or(|site| matches!(site, b"same-origin" | b"none"));
    let is_own_origin = headers.get_all(ORIGIN).iter().all(|origin| {
        let host = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let host = host.and_then(|(_, host)| host.parse::<Authority>().ok());
        host.is_some_and(|host| is_own_host(&host, bound))
    });
    if !is_own_page || !is_own_origin {
        let words = "came from a page of another origin, expected the dashboard or a program\n";
        return Err((StatusCode::FORBIDDEN, words.to_owned()));
    }
    let kind = headers.get(CONTENT_TYPE).map_or(&b""[..], http::HeaderValue::as_bytes);
    let essence = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if !essence.eq_ignore_ascii_case(b"application/json") {
        let words = "came without Content-Type: application/json, which is needed: \
                     pages of others cannot send it\n";
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, words.to_owned()));
    }
    Ok(())
}

/// The places of agents with a dimmer.
fn dimmed(config: &Config) -> impl Iterator<Item = usize> {
    let agents = config.agents.iter().enumerate();
    agents.filter(|(_, agent)| agent.dimmer.is_some()).map(|(place, _)| place)
}

fn nobody(config: &Config, agent: Option<&str>) -> String {
    let known: Vec<String> =
        dimmed(config).map(|place| config.agents[place].address.to_string()).collect();
    let known = if known.is_empty() {
        "this process has none with [agent.dimmer]".to_owned()
    } else {
        format!("expected one of {}", known.join(", "))
    };
    let agent: String = agent.unwrap_or("any").chars().take(50).collect();
    format!("there is no agent {agent:?} with a dimmer here; {known}\n")
}
