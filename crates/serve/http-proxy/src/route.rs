//! One HTTP upstream as one worker sees it: its calls, and its replicas' connections.

use evenkeel_settings::address::ServerAddress;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::Probe;
use evenkeel_core::{Feedback, Health, ReplicaId};
use http::header::HOST;
use http::{HeaderValue, StatusCode};

use crate::config::{Edge, HttpListenConfig};
use crate::datagram::{self, ProbeKey};
use crate::inflow;
use crate::orca;
use crate::prober::{AgentLine, Awaiting, Prober};
use crate::redirected::{self, ORIGIN};
use crate::replica::PROBE_PATH;
use evenkeel_http::head::Forwarding;
use evenkeel_http::{Body, Fields, Request, SendError, Upstream};
use evenkeel_proxy::calls::{Calls, DispatcherSeed, OpenAttempt};
use evenkeel_proxy::config::{Timeouts, UpstreamConfig};
use evenkeel_proxy::requests::context::Ids;
use evenkeel_proxy::site_choice::SiteChoice;
use evenkeel_proxy::site_setup::{Constraints, HOME};
use evenkeel_proxy::upstream_state::{BrownoutSeen, ReplicaState, WorkerReport};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::timer::Timer;
use evenkeel_runtime::tls::ClientTls;

/// One upstream as one worker sees it, under one configuration. A reload makes another route of it
/// that shares calls and connections with this one: requests that have begun keep theirs.
#[derive(Debug)]
pub struct Route {
    pub(crate) config: UpstreamConfig,
    /// Its requests on their way: dispatchers, attempts, the clock.
    pub calls: Rc<Calls>,
    connections: Rc<Connections>,
    /// What a request carries that goes to another data centre.
    origin: Option<HeaderValue>,
}

/// The connections to an upstream's replicas, whatever its configuration.
#[derive(Debug)]
struct Connections {
    way: RefCell<Way>,
    /// By data centre, its slots.
    slots: RefCell<Vec<Range<usize>>>,
    /// By slot.
    replicas: RefCell<Vec<Rc<Replica>>>,
    seen: Cell<BrownoutSeen>,
    /// Whether a replica has reported its load.
    has_agents: Cell<bool>,
    ids: Ids,
    prober: Prober,
}

/// How connections to replicas are opened.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    limits: UpstreamLimits,
    tls: Option<ClientTls>,
}

#[derive(Debug)]
struct Replica {
    upstream: Upstream,
    /// How its agent is asked, if it has one.
    agent: Rc<AgentLine>,
    /// Whether it was said that TLS cannot be agreed on with it.
    has_said_no_tls: Cell<bool>,
    /// The epoch of the plan whose inflow it was told last.
    told_epoch: Cell<Option<u64>>,
}

impl Replica {
    fn new(address: ServerAddress, way: &Way) -> Rc<Self> {
        Rc::new(Self {
            upstream: Upstream::with_tls(address, way.limits, way.tls.clone()),
            agent: Rc::default(),
            has_said_no_tls: Cell::new(false),
            told_epoch: Cell::default(),
        })
    }
}

impl Connections {
    fn to(&self, datacenter: usize, replica: ReplicaId) -> Rc<Replica> {
        let slot = self.slots.borrow()[datacenter].start + replica.index();
        Rc::clone(&self.replicas.borrow()[slot])
    }

    fn pool(&self, datacenter: usize, replica: ReplicaId) -> Upstream {
        let slot = self.slots.borrow()[datacenter].start + replica.index();
        self.replicas.borrow()[slot].upstream.clone()
    }

    /// Takes over whose each slot at home is. A slot that was given to another replica is reached
    /// there; what is in flight to the one before has its own hold on that connection.
    fn follow(&self, home: &[ServerAddress]) {
        let mut replicas = self.replicas.borrow_mut();
        for (slot, &address) in home.iter().enumerate() {
            if replicas.get(slot).is_some_and(|known| known.upstream.address() == address) {
                continue;
            }
            let replica = Replica::new(address, &self.way.borrow());
            match replicas.get_mut(slot) {
                Some(place) => *place = replica,
                None => replicas.push(replica),
            }
        }
        self.slots.borrow_mut()[HOME].end = replicas.len();
    }

    /// Opens connections in another way from now on. Those that are in use go on and are not kept.
    fn go(&self, way: Way) {
        if *self.way.borrow() == way {
            return;
        }
        for replica in &mut *self.replicas.borrow_mut() {
            *replica = Replica::new(replica.upstream.address(), &way);
        }
        self.way.replace(way);
    }
}

/// How requests that come in at an address are passed on.
#[derive(Clone, Debug)]
pub struct ListenerPolicy {
    /// What changes in their heads.
    pub forwarding: Forwarding,
    /// Whether their decisions about optional content are passed on.
    pub brownout: Edge,
    /// Whether they are believed to come from another data centre when they say so.
    pub redirected: Edge,
}

impl Route {
    /// A route without connections yet, without TLS. Must be made on the worker's thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub fn new(
        config: &UpstreamConfig,
        clock: Clock,
        seed: DispatcherSeed,
    ) -> std::io::Result<Rc<Self>> {
        Ok(Self::with_timer(config, None, (clock, Timer::of(&clock)?), seed))
    }

    /// The same, in TLS where so asked, with a timer that others use too.
    pub fn with_timer(
        config: &UpstreamConfig,
        tls: Option<ClientTls>,
        time: (Clock, Timer),
        seed: DispatcherSeed,
    ) -> Rc<Self> {
        let seed = DispatcherSeed { can_ask: true, ..seed };
        let way = Way { limits: config.limits, tls };
        let replica = |address| Replica::new(address, &way);
        let slots = config.groups();
        let numbers: Vec<usize> = slots.iter().map(Range::len).collect();
        let calls = Calls::with_timer(config, &numbers, time, seed);
        let connections = Connections {
            prober: Prober::new(Rc::clone(&calls)),
            replicas: RefCell::new(config.slots().map(replica).collect()),
            slots: RefCell::new(slots),
            way: RefCell::new(way),
            seen: Cell::default(),
            has_agents: Cell::default(),
            ids: Ids::new(),
        };
        Rc::new(Self {
            calls,
            connections: Rc::new(connections),
            origin: config.split.as_ref().map(|split| redirected::origin_of(&split.sites)),
            config: config.clone(),
        })
    }

    /// The same upstream under another configuration, for requests that begin from now on. Its
    /// replicas come with the next plan ([`Route::adopt`]).
    pub fn renewed(
        &self,
        config: &UpstreamConfig,
        tls: Option<ClientTls>,
        seed: DispatcherSeed,
    ) -> Rc<Self> {
        self.calls.reconfigure(config, DispatcherSeed { can_ask: true, ..seed });
        self.connections.go(Way { limits: config.limits, tls });
        Rc::new(Self {
            config: config.clone(),
            calls: Rc::clone(&self.calls),
            connections: Rc::clone(&self.connections),
            origin: self.origin.clone(),
        })
    }

    /// The same upstream for requests with other limits.
    pub(crate) fn with_timeouts(
        &self,
        attempt: Option<Duration>,
        total: Option<Duration>,
    ) -> Rc<Self> {
        let total = total.unwrap_or(self.config.timeouts.total);
        let attempt = attempt.unwrap_or(self.config.timeouts.attempt).min(total);
        Rc::new(Self {
            config: UpstreamConfig { timeouts: Timeouts { attempt, total }, ..self.config.clone() },
            calls: Rc::clone(&self.calls),
            connections: Rc::clone(&self.connections),
            origin: self.origin.clone(),
        })
    }

    /// Closes the connections that nothing is in flight on: no request will come.
    pub fn close_idle(&self) {
        self.connections.replicas.borrow().iter().for_each(|replica| replica.upstream.close_idle());
    }

    /// How requests that come in at an address are passed on; `is_https` where clients speak TLS.
    pub fn policy(&self, listen: &HttpListenConfig, is_https: bool) -> ListenerPolicy {
        let host = HeaderValue::try_from(self.config.name.as_str());
        let forwarding = Forwarding {
            append_forwarded_for: listen.forwarded_for,
            trusted_proxies: listen.trusted_proxies.clone(),
            is_https,
            host_default: host.unwrap_or(HeaderValue::from_static("upstream")),
        };
        ListenerPolicy { forwarding, brownout: listen.brownout, redirected: listen.redirected }
    }

    /// Chooses the data centre for a request and counts it, where requests are split. Those that
    /// another site sent here (forwarded requests) stay and are no demand of ours. `is_write` says
    /// whether it may change something.
    pub(crate) fn depart(
        &self,
        headers: &mut Fields,
        is_forwarded: bool,
        is_write: bool,
    ) -> Option<SiteChoice> {
        let split = self.calls.split()?;
        if is_forwarded {
            split.welcome(redirected::sender(headers));
            return None;
        }
        let constraints = Constraints::of_write(is_write, split.setup().writes_stay);
        let choice = SiteChoice::depart(&self.calls, constraints)?;
        self.mark(&choice, headers);
        Some(choice)
    }

    /// Writes on a request that goes to another site where it comes from, and nothing on one that
    /// stays or has come home.
    pub(crate) fn mark(&self, choice: &SiteChoice, headers: &mut Fields) {
        match self.origin.as_ref().filter(|_| choice.is_away()) {
            Some(origin) => headers.insert(ORIGIN, origin),
            None => drop(headers.remove(ORIGIN)),
        }
    }

    pub(crate) fn replica(&self, attempt: &OpenAttempt) -> Upstream {
        self.connections.pool(attempt.datacenter(), attempt.replica())
    }

    /// Asks the replica's agent to tell if a request must wait there, where the policy wants to
    /// hear that and there is a channel for it.
    pub(crate) fn listen(&self, attempt: &OpenAttempt, headers: &mut Fields) -> Option<Awaiting> {
        if !attempt.wants_notice() || attempt.datacenter() != HOME {
            return None; // elsewhere a proxy is
        }
        let replica = self.connections.to(HOME, attempt.replica());
        self.connections.prober.listen(&replica.agent, attempt, headers)
    }

    /// What the replica at home is told of a plan that has just taken force, if it dims and was not
    /// told.
    pub(crate) fn inflow(&self, attempt: &OpenAttempt) -> Option<HeaderValue> {
        let inflow = self.calls.split()?.inflow(self.calls.read_at())?;
        if attempt.datacenter() != HOME || !attempt.is_to_dimmer() {
            return None;
        }
        let replica = self.connections.to(HOME, attempt.replica());
        let epoch = Some(inflow.epoch());
        (replica.told_epoch.replace(epoch) != epoch).then(|| inflow::write(inflow))
    }

    /// Says once of a replica that it is there and cannot be spoken to: who sees that it "could not
    /// be reached" looks at the network.
    pub(crate) fn say_no_tls(&self, attempt: &OpenAttempt, error: &SendError) {
        if !error.is_of_tls() {
            return;
        }
        let replica = self.connections.to(attempt.datacenter(), attempt.replica());
        if !replica.has_said_no_tls.replace(true) {
            let upstream = self.config.name.as_str();
            tracing::warn!(upstream, %error, "TLS cannot be agreed on (is `tls.ca` right?)");
        }
    }

    /// Takes over which replicas may be used. `home` is who they are at home, by slot: at least
    /// those of the plan.
    pub fn adopt(&self, plan: &RoutePlan, home: &[ServerAddress]) {
        if self.config.split.is_none() {
            self.connections.follow(&home[..plan.health.len()]);
        }
        let all = self.connections.slots.borrow().clone();
        for (datacenter, slots) in all.into_iter().enumerate() {
            let is_left = |slot: &usize| plan.health[slots.start + slot] == Health::Draining;
            let (left, there): (Vec<_>, Vec<_>) = (0..slots.len()).partition(is_left);
            let members = there.into_iter().map(ReplicaId::new).collect();
            let part = RoutePlan {
                version: plan.version,
                health: plan.health[slots.clone()].to_vec(),
                generations: plan.generations.iter().copied().skip(slots.start).collect(),
                groups: vec![members],
            };
            self.calls.adopt(datacenter, &part);
            for slot in left {
                self.connections.to(datacenter, ReplicaId::new(slot)).upstream.close_idle();
            }
        }
    }

    /// Takes what was counted since the last time, and how things stand.
    pub fn observe(&self) -> WorkerReport {
        self.calls.tick();
        let slots = self.connections.slots.borrow();
        let state = |datacenter: usize, local: usize| -> ReplicaState {
            let replica = self.connections.to(datacenter, ReplicaId::new(local));
            self.calls.replica(datacenter, local, replica.upstream.connections())
        };
        let datacenters = slots.iter().cloned().enumerate();
        let states = datacenters.flat_map(|(datacenter, slots)| {
            (0..slots.len()).map(move |local| state(datacenter, local))
        });
        let (seen, probes) = (self.connections.seen.take(), self.connections.prober.take_counts());
        WorkerReport { seen, probes, ..self.calls.observe(states.collect()) }
    }

    /// The address of a replica, as long as there is one in its slot.
    pub(crate) fn address(&self, datacenter: usize, replica: usize) -> Option<ServerAddress> {
        let slots = self.connections.slots.borrow().get(datacenter).cloned()?;
        let slot = slots.start + replica;
        let replicas = self.connections.replicas.borrow();
        replicas.get(slot).filter(|_| slots.contains(&slot)).map(|it| it.upstream.address())
    }

    /// Makes the ids of its requests.
    pub(crate) fn ids(&self) -> &Ids {
        &self.connections.ids
    }

    /// Notes what an answer said of brownout.
    pub(crate) fn note_seen(&self, seen: &BrownoutSeen) {
        let mut sum = self.connections.seen.get();
        sum.merge(seen);
        self.connections.seen.set(sum);
    }

    /// Sends the questions that the policy wants asked in a data centre.
    pub(crate) fn ask_probes(self: &Rc<Self>, datacenter: usize) {
        while let Some(probe) = self.calls.probe(datacenter) {
            if datacenter != HOME {
                // A proxy is there, which would pass the question on to one of its replicas.
                self.calls.probe_is_unknown(datacenter, &probe);
                continue;
            }
            let replica = self.connections.to(datacenter, probe.replica());
            let prober = &self.connections.prober;
            let asked = match replica.upstream.address().inet() {
                Some(to) => prober.ask(&replica.agent, to, (datacenter, probe)),
                None => Err(probe), // a socket of this machine has no port for datagrams
            };
            if let Err(probe) = asked {
                tokio::task::spawn_local(Rc::clone(self).ask(replica, datacenter, probe));
            }
        }
    }

    /// Takes the replica's report out of the headers of its answer.
    pub(crate) fn feedback_of(&self, headers: &mut Fields) -> Option<Feedback> {
        let feedback = orca::take_feedback(headers).unwrap_or_else(|error| {
            let dimmers_invalid = u64::from(error.is_of_dimmer());
            self.note_seen(&BrownoutSeen { dimmers_invalid, ..BrownoutSeen::default() });
            None
        });
        if feedback.is_some() {
            self.connections.has_agents.set(true);
        }
        feedback
    }

    /// Whether a replica has reported its load: then they may have agents, who are told numbers.
    pub(crate) fn has_agents(&self) -> bool {
        self.connections.has_agents.get()
    }

    /// Asks over HTTP.
    async fn ask(self: Rc<Self>, replica: Rc<Replica>, datacenter: usize, probe: Probe) {
        let prober = &self.connections.prober;
        let asked_at = self.calls.clock.now();
        let wants_key = replica.agent.wants_key(asked_at);
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(PROBE_PATH);
        let host = replica.upstream.address().authority();
        if let Ok(host) = HeaderValue::try_from(host) {
            request.headers_mut().insert(HOST, &host);
        }
        if wants_key {
            request.headers_mut().insert(datagram::HEADER, &datagram::WANTED);
        }
        let limit = self.config.timeouts.attempt;
        let answer = tokio::time::timeout(limit, replica.upstream.send(request)).await;
        let feedback = match answer {
            Ok(Ok(mut response)) if response.status() == StatusCode::NO_CONTENT => {
                let (now, key) = (self.calls.tick(), ProbeKey::take(response.headers_mut()));
                if wants_key {
                    replica.agent.learn_key(now, key, now.since(asked_at));
                }
                prober.note_http(|results| &mut results.answered);
                self.feedback_of(response.headers_mut())
            }
            // No agent there: do not ask again. An error of the moment says nothing of that.
            Ok(Ok(response)) if !response.status().is_server_error() => {
                prober.note_http(|results| &mut results.unknown);
                return self.calls.probe_is_unknown(datacenter, &probe);
            }
            Ok(_) | Err(_) => {
                prober.note_http(|results| &mut results.unanswered);
                None
            }
        };
        self.calls.learn_probe(datacenter, &probe, feedback.as_ref());
    }
}
