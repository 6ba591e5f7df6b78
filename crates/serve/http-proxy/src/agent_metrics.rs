//! What agents counted, for the registry of metrics.

use super::agent_view::AgentView;
use evenkeel_runtime::metrics::{Metric, Scrape, counter, counter_by, gauge};

/// Adds all agents.
pub(crate) fn collect(scrape: &mut Scrape, agents: &[AgentView]) {
    scrape.table(&OF_AGENTS, agents.iter().map(|agent| (vec![("agent", &*agent.address)], agent)));
}

const OF_AGENTS: [Metric<AgentView>; 13] = [
    gauge("evenkeel_agent_waiting", "Requests that wait in the agent.", |it| {
        it.state.waiting.into()
    }),
    gauge("evenkeel_agent_in_service", "Requests that the application serves.", |it| {
        it.state.in_service.into()
    }),
    counter_by("evenkeel_agent_probes_total", "Probes answered, by channel.", "channel", |it| {
        let probes = &it.state.probes;
        vec![("http", probes.answered_http.into()), ("udp", probes.answered.into())]
    }),
    counter_by(
        "evenkeel_agent_probe_datagrams_dropped_total",
        "Datagrams that an agent did not answer: malformed (another length, version or kind), \
         foreign (of no key that holds), replayed (come before), unsent (no room to answer).",
        "reason",
        |it| {
            let probes = &it.state.probes;
            vec![
                ("malformed", probes.malformed.into()),
                ("foreign", probes.foreign.into()),
                ("replayed", probes.replayed.into()),
                ("unsent", probes.unsent.into()),
            ]
        },
    ),
    counter(
        "evenkeel_agent_probe_pauses_total",
        "Pauses in reading datagrams because 50 000 a second came.",
        |it| it.state.probes.pauses.into(),
    ),
    counter_by(
        "evenkeel_agent_notices_total",
        "Notices to proxies that their request waits here: sent, or left out (more than 10 000 a \
         second, or no room to send).",
        "result",
        |it| {
            let probes = &it.state.probes;
            vec![("sent", probes.notices.into()), ("left_out", probes.notices_left_out.into())]
        },
    ),
    gauge("evenkeel_brownout_dimmer", "Share of optional content that is served: 0 to 1.", |it| {
        it.state().map(|state| state.dimmer.value()).into()
    }),
    counter_by(
        "evenkeel_brownout_requests_total",
        "Requests for optional content: served in full, or with less (reduced).",
        "content",
        |it| {
            let Some(state) = it.state() else { return Vec::new() };
            vec![("full", state.full.into()), ("reduced", state.reduced.into())]
        },
    ),
    gauge(
        "evenkeel_brownout_percentile_seconds",
        "The percentile of response times that controls the dimmer.",
        |it| it.state().and_then(|state| state.percentile).into(),
    ),
    gauge("evenkeel_brownout_setpoint_seconds", "The setpoint of that percentile.", |it| {
        it.dimmer.as_ref().map(|dimmer| dimmer.brownout.setpoint).into()
    }),
    gauge(
        "evenkeel_brownout_capacity_requests_per_second",
        "Full requests that the application can serve each second, where its cores were not told \
         and this was learnt.",
        |it| it.state().and_then(|state| state.capacity_per_s).into(),
    ),
    counter_by(
        "evenkeel_brownout_inflow_total",
        "What proxies told of the requests that a plan brings: taken, old (another proxy told it, \
         or the plan is over), invalid.",
        "result",
        |it| {
            let Some(state) = &it.state.brownout else { return Vec::new() };
            let counts = state.inflows;
            let (taken, old) = (counts.taken.into(), counts.old.into());
            vec![("taken", taken), ("old", old), ("invalid", counts.invalid.into())]
        },
    ),
    gauge("evenkeel_brownout_manual", "1 while the dimmer is set by hand.", |it| {
        it.state().map(|state| state.is_held).into()
    }),
];
