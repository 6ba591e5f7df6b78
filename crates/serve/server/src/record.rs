//! What the dispatchers of a worker, and agents, are given where days are recorded.

use std::sync::Arc;

use evenkeel_core::dimmer::BrownoutConfig;
use evenkeel_core::request::copies::ServedSink;
use evenkeel_core::request::select::{Policy, Selector};
use evenkeel_http_proxy::config::{AgentConfig, DimmerConfig, Inbound, Switch};
use evenkeel_proxy::calls::CopyRecording;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_record::like::{self, Proxy};
use evenkeel_record::{BY_AGENT, BY_RUN, RecordConfig, Recorder, Stream};

/// What is tried out in the windows for that: simple, good, and unlike most.
const TRIED_OUT: &str = "two-choices";
/// The same for upstreams whose policy that is.
const TRIED_OUT_ELSE: &str = "least-outstanding";

/// Of one worker's calls of an upstream that has so many replicas now, and whose replicas stop
/// working on what is given up, or not.
pub(crate) fn recording(
    recorder: &Recorder,
    record: &RecordConfig,
    (config, replicas, cancels): (&UpstreamConfig, usize, bool),
    worker: u16,
) -> CopyRecording {
    let windows = recorder.windows(record.explore);
    let tried_out = tried_out(&config.policy).filter(|_| record.explore.value() > 0.0);
    let policies = [Some(config.policy.text()), tried_out.as_ref().map(Policy::text)];
    let hedged = if config.hedge.is_some() { "+hedge" } else { "" };
    let proxy = Proxy {
        cancels,
        hedge: config.hedge.as_ref(),
        retries_max: config.retries_max,
        timeout: config.timeouts.total,
    };
    let stream = Stream {
        name: format!("upstream.{}", config.name),
        by: BY_RUN,
        policies: policies.into_iter().flatten().map(|name| format!("{name}{hedged}")).collect(),
        pairs: record.pairs.value(),
        like: proxy.like(),
        replicas: replicas.max(1),
    };
    let make = |policy: Policy| -> Box<dyn Selector> { policy.make(config.proxies) };
    CopyRecording {
        sink: recorder.sink(&Arc::new(stream), worker),
        pairs: record.pairs,
        explore: tried_out.map(|policy| (make(policy), windows)),
    }
}

/// What an agent is given, by its place among all. Its day says how it dims.
pub(crate) fn of_agent(
    recorder: &Recorder,
    place: usize,
    config: &AgentConfig,
) -> Box<dyn ServedSink> {
    let stream = Stream {
        name: format!("agent.{}", place + 1),
        by: BY_AGENT,
        policies: Vec::new(),
        pairs: 0.0,
        like: alone(config).map_or_else(String::new, like::dims),
        replicas: 1,
    };
    recorder.served_sink(&Arc::new(stream))
}

/// The dimmer whose law decides for every request, of one part, and that knows as many cores as
/// requests are served at once: what a replay can do again.
fn alone(config: &AgentConfig) -> Option<&BrownoutConfig> {
    let dimmer = config.dimmer.as_ref()?;
    let DimmerConfig { brownout, session, inbound, routes, switch, .. } = dimmer;
    let is_usual = *inbound == Inbound::Decide && *switch == Switch::Auto;
    let is_one = brownout.parts <= 1 && session.is_none() && routes.is_empty();
    let has_its_slots = brownout.cores == config.concurrency.map(f64::from);
    (is_usual && is_one && has_its_slots).then_some(brownout)
}

fn tried_out(usual: &Policy) -> Option<Policy> {
    let name = if usual.text() == TRIED_OUT { TRIED_OUT_ELSE } else { TRIED_OUT };
    name.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use evenkeel_settings::{Node, Table};

    use super::*;

    fn agent(more: &str) -> AgentConfig {
        let text = format!("listen = '127.0.0.1:9001'\napp = '127.0.0.1:9101'\n{more}");
        let read = |table: &mut Table<'_>| AgentConfig::read(table, Duration::from_secs(5)).0;
        Node::parse(&text, "agent.toml").unwrap().read(read).unwrap()
    }

    #[test]
    fn only_a_dimmer_that_decides_alone_is_told() {
        let told = |more: &str| alone(&agent(more)).is_some();
        assert!(told("concurrency = 4\ndimmer = { setpoint = '80ms' }"));
        assert!(told("dimmer = {}"), "cores and slots are both unknown");
        assert!(!told(""), "none");
        for other in [
            "law = 'off'",
            "cores = 2",
            "parts = ['a', 'b']",
            "session = { cookie = 'sid' }",
            "inbound = 'obey'",
            "routes = ['/item']",
            "switch = 'lean'",
        ] {
            assert!(!told(&format!("concurrency = 4\ndimmer = {{ {other} }}")), "{other}");
        }
    }
}
