//! What the dispatchers of a worker, and agents, are given where days are recorded.

use std::sync::Arc;

use evenkeel_core::request::copies::ServedSink;
use evenkeel_core::request::select::{Policy, Selector};
use evenkeel_proxy::calls::CopyRecording;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_record::like::Proxy;
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

/// What an agent is given, by its place among all.
pub(crate) fn of_agent(recorder: &Recorder, place: usize) -> Box<dyn ServedSink> {
    let stream = Stream {
        name: format!("agent.{}", place + 1),
        by: BY_AGENT,
        policies: Vec::new(),
        pairs: 0.0,
        like: String::new(),
        replicas: 1,
    };
    recorder.served_sink(&Arc::new(stream))
}

fn tried_out(usual: &Policy) -> Option<Policy> {
    let name = if usual.text() == TRIED_OUT { TRIED_OUT_ELSE } else { TRIED_OUT };
    name.parse().ok()
}
