//! One HTTP upstream as one worker sees it: its calls, and its replicas' connections.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::request::{Probe, Replay};
use evenkeel_core::{Feedback, ReplicaId};
use http::header::HOST;
use http::{HeaderMap, HeaderValue, StatusCode};

use crate::board::{BrownoutSeen, Observation, ReplicaState};
use crate::calls::{Calls, OpenAttempt, OpenCall, Seat, WHOLE};
use crate::clock::Clock;
use crate::config::{Edge, ListenConfig, UpstreamConfig};
use crate::http::engine::head::Forwarding;
use crate::http::engine::{Body, Upstream};
use crate::http::orca;
use crate::http::redirected::{self, ORIGIN};
use crate::replica::PROBE_PATH;
use crate::split::{Bonds, Journey};

/// One upstream as one worker sees it.
#[derive(Debug)]
pub struct Route {
    pub(crate) config: UpstreamConfig,
    pub(crate) calls: Rc<Calls>,
    /// By data centre, its seats.
    seats: Vec<Range<usize>>,
    /// By seat.
    replicas: Vec<Replica>,
    seen: Cell<BrownoutSeen>,
    /// What a request carries that goes to another data centre.
    origin: Option<HeaderValue>,
}

#[derive(Debug)]
struct Replica {
    upstream: Upstream,
    /// False once a probe was answered as by a server that knows no probes.
    answers_probes: Cell<bool>,
    probing: Cell<bool>,
}

/// How requests that come in at an address are passed on.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// What changes in their heads.
    pub forwarding: Forwarding,
    /// Whether their decisions about optional content are passed on.
    pub brownout: Edge,
    /// Whether they are believed to come from another data centre when they say so.
    pub redirected: Edge,
}

impl Route {
    /// A route without connections yet. Must be made on the worker's thread.
    ///
    /// # Errors
    /// When the operating system refuses a timer.
    pub fn new(config: &UpstreamConfig, clock: Clock, seat: Seat) -> std::io::Result<Rc<Self>> {
        let replica = |(number, address)| Replica {
            upstream: Upstream::new(address, config.limits),
            // What another site's proxy would pass on to one of its replicas says nothing of all.
            answers_probes: Cell::new(number < config.replicas.len()),
            probing: Cell::new(false),
        };
        let seats = config.groups();
        let numbers: Vec<usize> = seats.iter().map(Range::len).collect();
        Ok(Rc::new(Self {
            calls: Calls::new(config, &numbers, clock, seat)?,
            seats,
            replicas: config.seats().enumerate().map(replica).collect(),
            origin: config.split.as_ref().map(redirected::origin_of),
            config: config.clone(),
            seen: Cell::default(),
        }))
    }

    /// How requests that come in at an address are passed on.
    #[must_use]
    pub fn entrance(&self, listen: &ListenConfig) -> Entrance {
        let host = HeaderValue::try_from(self.config.name.as_str());
        let forwarding = Forwarding {
            append_forwarded_for: listen.forwarded_for,
            host_default: host.unwrap_or(HeaderValue::from_static("upstream")),
        };
        Entrance { forwarding, brownout: listen.brownout, redirected: listen.redirected }
    }

    /// The moment on the machine's clock this much after the clock was last read.
    pub(crate) fn after(&self, delay: Duration) -> std::time::Instant {
        self.calls.after(delay)
    }

    /// Begins a call in a data centre; the guard closes it.
    pub(crate) fn open(&self, datacenter: usize, replay: Replay) -> OpenCall {
        self.calls.open(datacenter, WHOLE, replay)
    }

    /// Chooses the data centre for a request and counts it, where requests are split. Those that
    /// another site sent here (guests) stay and are no demand of ours. `is_write` says whether it
    /// may change something.
    pub(crate) fn depart(
        &self,
        headers: &mut HeaderMap,
        is_guest: bool,
        is_write: bool,
    ) -> Option<Journey> {
        let split = self.calls.split()?;
        if is_guest {
            split.welcome(redirected::sender(headers));
            return None;
        }
        let journey = self.calls.depart(Bonds::of_write(is_write))?;
        self.mark(&journey, headers);
        Some(journey)
    }

    /// Writes on a request that goes to another site where it comes from, and nothing on one that
    /// stays or has come home.
    pub(crate) fn mark(&self, journey: &Journey, headers: &mut HeaderMap) {
        match self.origin.as_ref().filter(|_| journey.is_away()) {
            Some(origin) => drop(headers.insert(ORIGIN, origin.clone())),
            None => drop(headers.remove(ORIGIN)),
        }
    }

    pub(crate) fn replica(&self, attempt: &OpenAttempt) -> Upstream {
        let seat = self.seat(attempt.datacenter(), attempt.replica());
        self.replicas[seat].upstream.clone()
    }

    fn seat(&self, datacenter: usize, replica: ReplicaId) -> usize {
        self.seats[datacenter].start + replica.index()
    }

    /// Takes over which replicas may be used.
    pub fn adopt(&self, plan: &Arc<RoutePlan>) {
        for (datacenter, seats) in self.seats.iter().enumerate() {
            let members = (0..seats.len()).map(ReplicaId::new).collect();
            let part = RoutePlan {
                version: plan.version,
                health: plan.health[seats.clone()].to_vec(),
                groups: vec![members],
            };
            self.calls.adopt(datacenter, &part);
        }
    }

    /// Takes what was counted since the last time, and how things stand.
    pub fn observe(&self) -> Observation {
        self.calls.tick();
        let state = |datacenter: usize, local: usize, seat: usize| -> ReplicaState {
            self.calls.replica(datacenter, local, self.replicas[seat].upstream.connections())
        };
        let datacenters = self.seats.iter().cloned().enumerate();
        let states = datacenters.flat_map(|(datacenter, seats)| {
            seats.enumerate().map(move |(local, seat)| state(datacenter, local, seat))
        });
        Observation { seen: self.seen.take(), ..self.calls.observe(states.collect()) }
    }

    /// Notes what an answer said of brownout.
    pub(crate) fn note_seen(&self, seen: &BrownoutSeen) {
        let mut sum = self.seen.get();
        sum.merge(seen);
        self.seen.set(sum);
    }

    /// Sends the questions that the policy wants asked in a data centre.
    pub(crate) fn ask_probes(self: &Rc<Self>, datacenter: usize) {
        loop {
            let Some(probe) = self.calls.probe(datacenter) else { return };
            let replica = &self.replicas[self.seat(datacenter, probe.replica())];
            // One question at a time: a replica too slow to answer is not asked more and more.
            if replica.answers_probes.get() && !replica.probing.replace(true) {
                tokio::task::spawn_local(Rc::clone(self).ask(datacenter, probe));
            }
        }
    }

    /// Takes the replica's report out of the headers of its answer.
    pub(crate) fn feedback_of(&self, headers: &mut HeaderMap) -> Option<Feedback> {
        orca::take_feedback(headers).unwrap_or_else(|error| {
            let dimmers_invalid = u64::from(error.is_of_dimmer());
            self.note_seen(&BrownoutSeen { dimmers_invalid, ..BrownoutSeen::default() });
            None
        })
    }

    async fn ask(self: Rc<Self>, datacenter: usize, probe: Probe) {
        let replica = &self.replicas[self.seat(datacenter, probe.replica())];
        let mut request = http::Request::new(Body::empty());
        *request.uri_mut() = http::Uri::from_static(PROBE_PATH);
        let host = replica.upstream.address().to_string();
        if let Ok(host) = HeaderValue::try_from(host) {
            request.headers_mut().insert(HOST, host);
        }
        let limit = self.config.timeouts.attempt;
        let answer = tokio::time::timeout(limit, replica.upstream.send(request)).await;
        replica.probing.set(false);
        let feedback = match answer {
            Ok(Ok(mut response)) if response.status() == StatusCode::NO_CONTENT => {
                self.feedback_of(response.headers_mut())
            }
            // No agent there: do not ask again. An error of the moment says nothing of that.
            Ok(Ok(response)) if !response.status().is_server_error() => {
                replica.answers_probes.set(false);
                None
            }
            Ok(_) | Err(_) => None,
        };
        self.calls.learn_probe(datacenter, &probe, feedback.as_ref());
    }
}
