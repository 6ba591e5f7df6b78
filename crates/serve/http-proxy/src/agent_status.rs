//! The part of `/api/v1/status` that is about agents and their dimmers.

use std::time::Instant;

use evenkeel_core::dimmer::{DimmerState, Law};
use evenkeel_core::time::millis;
use serde::Serialize;

use super::agent_series::{AgentPoint, AgentSeries};
use super::agent_view::AgentView;
use crate::config::{DimmerConfig, Switch};
use evenkeel_proxy::series::{rounded, seconds};

/// One agent.
#[derive(Serialize)]
pub(crate) struct Agent<'a> {
    address: &'a str,
    app: String,
    waiting: u32,
    in_service: u32,
    /// `null` without a dimmer, and until the agent has reported.
    brownout: Option<Brownout>,
}

#[derive(Serialize)]
struct Brownout {
    dimmer: f64,
    switch: &'static str,
    is_held: bool,
    law: &'static str,
    /// Why the dimmer stands where it does, in a sentence without a subject.
    why: String,
    setpoint_ms: f64,
    percentile: f64,
    percentile_ms: Option<f64>,
    /// Requests decided to be served in full.
    full: u64,
    /// Requests decided to be served with something left out.
    reduced: u64,
    present: u32,
    full_work_ms: Option<f64>,
    lean_ratio: f64,
    asked_cores: Option<f64>,
    cores: Option<f64>,
    /// Where so many as `cores` cannot be, how many there seem to be.
    cores_seen: Option<f64>,
    /// Requests that come per second, and full ones that can be served where this was learnt.
    asked_per_s: f64,
    capacity_per_s: Option<f64>,
    series: Columns,
}

/// Oldest first.
#[derive(Serialize)]
struct Columns {
    ago_s: Vec<f64>,
    dimmer: Vec<f64>,
    percentile_ms: Vec<Option<f64>>,
}

impl<'a> Agent<'a> {
    /// An agent's state, and what it measured until `now`, for `/api/v1/status`.
    pub(crate) fn new(view: &'a AgentView, series: &AgentSeries, now: Instant) -> Self {
        let brownout = view.state.brownout.zip(view.dimmer.as_ref());
        let switch = view.switch;
        Self {
            address: &view.address,
            app: view.app.to_string(),
            waiting: view.state.waiting,
            in_service: view.state.in_service,
            brownout: brownout.map(|(state, config)| {
                Brownout::new(&state.state, config, switch, Columns::of(series, now))
            }),
        }
    }
}

impl Brownout {
    fn new(state: &DimmerState, config: &DimmerConfig, switch: Switch, series: Columns) -> Self {
        let thousandths = |value: f64| rounded(value, 1_000.0);
        Self {
            dimmer: thousandths(state.dimmer.value()),
            switch: switch.name(),
            is_held: state.is_held,
            law: law_word(state.law),
            why: why(state, config),
            setpoint_ms: millis(config.brownout.setpoint),
            percentile: config.brownout.percentile.value(),
            percentile_ms: state.percentile.map(|time| thousandths(millis(time))),
            full: state.full,
            reduced: state.reduced,
            present: state.present,
            full_work_ms: state.full_work.map(|work| thousandths(millis(work))),
            lean_ratio: thousandths(state.lean_ratio),
            asked_cores: state.asked_cores.map(thousandths),
            cores: state.cores,
            cores_seen: state.cores_seen.map(thousandths),
            asked_per_s: thousandths(state.asked_per_s),
            capacity_per_s: state.capacity_per_s.map(thousandths),
            series,
        }
    }
}

impl Columns {
    fn of(series: &AgentSeries, now: Instant) -> Self {
        let points = series.points();
        let age = |point: &AgentPoint| seconds(now.saturating_duration_since(point.at));
        let thousandths = |value: f64| rounded(value, 1_000.0);
        Self {
            ago_s: points.iter().map(age).collect(),
            dimmer: points.iter().map(|point| thousandths(point.dimmer)).collect(),
            percentile_ms: points.iter().map(|at| at.percentile_ms.map(thousandths)).collect(),
        }
    }
}

const fn law_word(law: Law) -> &'static str {
    match law {
        Law::FeedForward => "feed-forward",
        Law::Published => "published",
        Law::PublishedExact => "published-exact",
    }
}

/// What a person wants to know first: does it dim, and for which numbers.
fn why(state: &DimmerState, config: &DimmerConfig) -> String {
    if state.is_held {
        return "held by hand".to_owned();
    }
    let is_full = state.dimmer.value() >= 0.9995;
    let verdict = if is_full { "serves everything" } else { "dims" };
    if let (Law::FeedForward, Some(capacity)) = (state.law, state.capacity_per_s) {
        let asked = state.asked_per_s;
        let waits = state.present > 0 && asked <= capacity && !is_full;
        let backlog = if waits { ", and a backlog to work off" } else { "" };
        return format!(
            "{verdict}: {asked:.0} requests per second asked, about {capacity:.0} can be served in \
             full{backlog}"
        );
    }
    match (state.law, state.asked_cores, state.cores) {
        (Law::FeedForward, Some(asked), Some(cores)) => {
            let waits = state.present > 0 && asked <= cores && !is_full;
            let backlog = if waits { ", and a backlog to work off" } else { "" };
            let seen = state.cores_seen.map_or_else(String::new, |seen| {
                format!(" by the configuration, but about {seen:.1} as requests slow each other")
            });
            format!("{verdict}: {asked:.2} cores of full work asked, {cores} there{seen}{backlog}")
        }
        _ => why_by_percentile(state, config, verdict),
    }
}

fn why_by_percentile(state: &DimmerState, config: &DimmerConfig, verdict: &str) -> String {
    let setpoint_ms = millis(config.brownout.setpoint);
    let percent = rounded(config.brownout.percentile.value() * 100.0, 100.0);
    match state.percentile.map(millis) {
        None => format!("{verdict}: nothing was measured yet"),
        Some(came_ms) => format!(
            "{verdict}: {percent} % of requests were answered within {came_ms:.0} ms, \
             the setpoint is {setpoint_ms:.0} ms"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evenkeel_core::dimmer::BrownoutConfig;
    use evenkeel_core::units::Dimmer;

    use super::*;
    use crate::config::Inbound;

    fn reported(change: impl FnOnce(&mut DimmerState)) -> String {
        let config = DimmerConfig {
            brownout: BrownoutConfig { cores: Some(1.0), ..BrownoutConfig::default() },
            parts: Vec::new(),
            session: None,
            inbound: Inbound::Decide,
            routes: Vec::new(),
            switch: Switch::Auto,
        };
        let mut state = DimmerState {
            dimmer: Dimmer::clamped(0.6),
            is_held: false,
            law: Law::FeedForward,
            percentile: Some(Duration::from_millis(1_250)),
            full: 6,
            reduced: 4,
            present: 3,
            full_work: Some(Duration::from_millis(10)),
            lean_ratio: 0.1,
            asked_per_s: 142.4,
            asked_cores: Some(1.424),
            cores: Some(1.0),
            cores_seen: None,
            capacity_per_s: None,
            tolerated_backlog: Duration::from_millis(250),
        };
        change(&mut state);
        why(&state, &config)
    }

    #[test]
    fn why_says_the_numbers_that_the_law_in_force_goes_by() {
        assert_eq!(reported(|_| ()), "dims: 1.42 cores of full work asked, 1 there");
        let calm = reported(|state| {
            (state.dimmer, state.asked_cores) = (Dimmer::FULL, Some(0.3));
        });
        assert_eq!(calm, "serves everything: 0.30 cores of full work asked, 1 there");
        let after = reported(|state| state.asked_cores = Some(0.9));
        assert_eq!(
            after,
            "dims: 0.90 cores of full work asked, 1 there, and a backlog to work off"
        );
        let learnt = reported(|state| {
            (state.cores, state.asked_cores, state.capacity_per_s) = (None, None, Some(100.3));
        });
        assert_eq!(learnt, "dims: 142 requests per second asked, about 100 can be served in full");
        let wrong = reported(|state| state.cores_seen = Some(0.52));
        assert_eq!(
            wrong,
            "dims: 1.42 cores of full work asked, 1 there by the configuration, but about 0.5 as \
             requests slow each other"
        );
        let published = reported(|state| state.law = Law::Published);
        assert_eq!(
            published,
            "dims: 95 % of requests were answered within 1250 ms, the setpoint is 1000 ms"
        );
        let young = reported(|state| (state.law, state.percentile) = (Law::Published, None));
        assert_eq!(young, "dims: nothing was measured yet");
        assert_eq!(reported(|state| state.is_held = true), "held by hand");
    }
}
