//! Active health checks: one prober for the process, whose verdict reaches every worker as a plan.
//!
//! A replica goes down after `fall` failures in a row and comes back after `rise` successes, so
//! one lost answer moves nothing. Failures of real requests are judged elsewhere (core's
//! safeguards), within milliseconds and per worker.

use evenkeel_settings::address::ServerAddress;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_core::Health;
use http::header::HOST;
use http::{HeaderValue, Uri};
use tokio::task::JoinHandle;

use crate::redirected::{self, ORIGIN};
use evenkeel_http::{Body, Request, Upstream};
use evenkeel_proxy::config::{HealthConfig, UpstreamConfig};
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_proxy::verdict::Verdict;
use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_runtime::tls::ClientTls;

/// Checks of the replicas of upstreams with a `health` table, those of other data centres too. They
/// run until they are dropped. By upstream and slot.
#[derive(Default)]
pub struct Checks(BTreeMap<(usize, usize), Check>);

/// A check that runs until it is dropped.
struct Check {
    subject: Subject,
    task: JoinHandle<()>,
}

impl Drop for Check {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Whom a check is of, and how it is made.
#[derive(Clone, PartialEq)]
struct Subject {
    address: ServerAddress,
    generation: u32,
    health: HealthConfig,
    limits: UpstreamLimits,
    tls: Option<ClientTls>,
}

impl Checks {
    /// Checks the replicas of these upstreams from now on, each with its place among all. A
    /// check whose replica and settings are as before goes on where it was; one that begins takes
    /// over the verdict in force. Call it in a worker runtime.
    pub fn follow<'a>(
        &mut self,
        upstreams: impl Iterator<Item = (usize, &'a UpstreamConfig, Option<&'a ClientTls>)>,
        states: &Arc<UpstreamStates>,
    ) {
        let mut before = std::mem::take(&mut self.0);
        for (upstream, settings, tls) in upstreams {
            // Who discovers the members of a cluster watches them, too.
            let health = settings.health.clone().filter(|_| !settings.is_discovered);
            let Some(health) = health else { continue };
            for (slot, address, generation) in states.members(upstream) {
                let (health, limits) = (health.clone(), settings.limits);
                let tls = tls.cloned();
                let subject = Subject { address, generation, health, limits, tls };
                let key = (upstream, slot);
                let same = before.remove(&key).filter(|check| check.subject == subject);
                let check = same.unwrap_or_else(|| begin(subject, settings, key, states));
                self.0.insert(key, check);
            }
        }
        // Nobody would ever find out that one of these is well again.
        for ((upstream, slot), check) in before {
            states.judge(upstream, (slot, check.subject.generation), Health::Up);
        }
    }
}

fn begin(
    subject: Subject,
    settings: &UpstreamConfig,
    (upstream, slot): (usize, usize),
    states: &Arc<UpstreamStates>,
) -> Check {
    let is_remote = slot >= settings.replicas.len() && settings.split.is_some();
    let split = settings.split.as_ref().filter(|_| is_remote);
    let origin = split.map(|split| redirected::origin_of(&split.sites));
    let is_down = states.plan(upstream).health.get(slot) == Some(&Health::Down);
    let checker = Checker {
        health: Rc::new(subject.health.clone()),
        upstream: Upstream::with_tls(subject.address, subject.limits, subject.tls.clone()),
        address: subject.address,
        origin,
        verdict: Verdict::begin(is_down),
    };
    let (states, name, generation) =
        (Arc::clone(states), settings.name.clone(), subject.generation);
    let task = tokio::task::spawn_local(async move {
        let tell = |health| {
            tracing::warn!(upstream = name, slot, ?health, "health check changed its verdict");
            states.judge(upstream, (slot, generation), health);
        };
        checker.watch(tell).await;
    });
    Check { subject, task }
}

struct Checker {
    health: Rc<HealthConfig>,
    upstream: Upstream,
    address: ServerAddress,
    /// Told to another data centre: its proxy then asks its own replicas and counts no demand.
    origin: Option<HeaderValue>,
    verdict: Verdict,
}

impl Checker {
    async fn watch(mut self, mut tell: impl FnMut(Health)) {
        let mut ticks = tokio::time::interval(self.health.interval);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let is_healthy = self.check().await;
            let (fall, rise) = (self.health.fall, self.health.rise);
            if let Some(health) = self.verdict.after(is_healthy, fall, rise) {
                tell(health);
            }
        }
    }

    async fn check(&self) -> bool {
        let mut request = Request::new(Body::empty());
        let path = Uri::try_from(self.health.path.as_str());
        *request.uri_mut() = path.unwrap_or(Uri::from_static("/"));
        if let Ok(host) = HeaderValue::try_from(self.address.authority()) {
            request.headers_mut().insert(HOST, &host);
        }
        if let Some(origin) = &self.origin {
            request.headers_mut().insert(ORIGIN, origin);
        }
        let answer = self.upstream.send(request);
        match tokio::time::timeout(self.health.timeout, answer).await {
            Ok(Ok(response)) => !response.status().is_server_error(),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}
