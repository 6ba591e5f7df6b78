//! The agents of a process. They run on one worker's thread: what an agent counts is of the whole
//! agent, and two on one address would each count their own half.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{AgentEntry, Protocol};
use crate::record;
use crate::worker::{REPORT_EVERY, until_served};
use evenkeel_cassandra::agent::{NodeAgent, NodeAgentSettings, NodeAgentState};
use evenkeel_http_proxy::agent_state::{AgentState, AgentStates};
use evenkeel_http_proxy::config::Switch;
use evenkeel_http_proxy::replica::Agent;
use evenkeel_proxy::requests::traces::Traces;
use evenkeel_record::Recorder;
use evenkeel_runtime::accept::{Listener, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::component::{Job, Place};
use evenkeel_runtime::tls::{ClientTls, ServerTls};

/// Encryption of an agent: towards proxies and towards its application.
pub(super) type AgentTls = (Option<ServerTls>, Option<ClientTls>);

/// What agents tell of requests, and the time.
pub(super) struct AgentMeans {
    pub(super) traces: Traces,
    /// Where a day is recorded.
    pub(super) recorder: Option<Recorder>,
    pub(super) clock: Clock,
}

/// The job of all agents, each with its listener.
pub(super) fn job(
    agents: Vec<(AgentEntry, AgentTls, Listener)>,
    states: Arc<AgentStates>,
    with: AgentMeans,
) -> Job {
    Job::new(Place::Worker(0), move |stop| serve(agents, states, with, stop))
}

async fn serve(
    agents: Vec<(AgentEntry, AgentTls, Listener)>,
    states: Arc<AgentStates>,
    AgentMeans { traces, recorder, clock }: AgentMeans,
    stop: StopSignal,
) -> io::Result<()> {
    let (mut serving, mut keeping) = (JoinSet::new(), JoinSet::new());
    let mut open = Vec::new();
    for (place, (config, tls, listener)) in agents.into_iter().enumerate() {
        let agent = AnyAgent::new(&config, tls, traces.clone(), clock);
        if let AnyAgent::Http(agent) = &agent {
            let recorder = recorder.iter();
            recorder.for_each(|recorder| {
                agent.record(record::of_agent(recorder, place, &config.common));
            });
            keeping.spawn_local(follow_switch(Rc::clone(agent), states.switches(place)));
        }
        agent.clone().serve(&mut serving, listener, stop.clone());
        open.push(agent);
    }
    drop(stop); // whoever keeps a signal is waited for
    let open: Rc<[AnyAgent]> = open.into();
    let hand_up = move || {
        let agents = open.iter().map(AnyAgent::state).enumerate();
        agents.for_each(|(place, state)| states.note(place, state));
    };
    let last = hand_up.clone();
    keeping.spawn_local(async move {
        loop {
            tokio::time::sleep(REPORT_EVERY).await;
            hand_up();
        }
    });
    let result = until_served(&mut serving, &mut keeping).await;
    last();
    result
}

/// What stands before a server, by what that speaks.
#[derive(Clone)]
enum AnyAgent {
    Http(Rc<Agent>),
    Cql(Rc<NodeAgent>),
}

impl AnyAgent {
    fn new(entry: &AgentEntry, tls: AgentTls, traces: Traces, clock: Clock) -> Self {
        let config = &entry.common;
        match entry.protocol {
            Protocol::Http => Self::Http(Agent::with_tls(config, tls, Some(traces), clock)),
            Protocol::Cql => {
                let (client_tls, node_tls) = tls;
                let settings = NodeAgentSettings {
                    concurrency: config.concurrency,
                    client_tls,
                    node_tls,
                    handshake: config.limits.head,
                    drain: config.limits.drain,
                    ..NodeAgentSettings::new(config.app)
                };
                Self::Cql(NodeAgent::new(settings, clock))
            }
        }
    }

    fn serve(self, serving: &mut JoinSet<io::Result<()>>, listener: Listener, stop: StopSignal) {
        match self {
            Self::Http(agent) => {
                let served = agent.serve(listener, stop);
                serving.spawn_local(async { served.await.map(drop) });
            }
            Self::Cql(agent) => {
                serving.spawn_local(agent.serve(listener, stop));
            }
        }
    }

    fn state(&self) -> AgentState {
        match self {
            Self::Http(agent) => agent.state(),
            Self::Cql(agent) => {
                let NodeAgentState { waiting, in_service } = agent.state();
                AgentState { waiting, in_service, ..AgentState::default() }
            }
        }
    }
}

async fn follow_switch(agent: Rc<Agent>, mut switches: watch::Receiver<Switch>) {
    loop {
        let switch = *switches.borrow_and_update();
        agent.set_switch(switch);
        if switches.changed().await.is_err() {
            return;
        }
    }
}
