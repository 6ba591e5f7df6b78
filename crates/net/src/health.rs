//! Active health checks: one prober for the process, whose verdict reaches every worker as a plan.
//!
//! A replica goes down after `fall` failures in a row and comes back after `rise` successes, so
//! one lost answer moves nothing. Failures of real requests are judged elsewhere (core's
//! safeguards), within milliseconds and per worker.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use evenkeel_core::Health;
use http::header::HOST;
use http::{HeaderValue, Request, Uri};

use crate::board::Board;
use crate::config::{Config, HealthConfig};
use crate::http::engine::{Body, Upstream};
use crate::http::redirected::{self, ORIGIN};

/// Starts a checker for every replica of every upstream with a `health` table, those of other data
/// centres too. Call it in a worker runtime.
pub(crate) fn spawn_checks(config: &Config, board: &Arc<Board>) {
    for (upstream, settings) in config.upstreams.iter().enumerate() {
        // A Cassandra cluster is watched by its keeper.
        let health = settings.health.clone().filter(|_| settings.cql.is_none());
        let Some(health) = health else { continue };
        let health = Rc::new(health);
        let origin = settings.split.as_ref().map(redirected::origin_of);
        for (seat, address) in settings.seats().enumerate() {
            let is_remote = seat >= settings.replicas.len();
            let checker = Checker {
                health: Rc::clone(&health),
                upstream: Upstream::new(address, settings.limits),
                address,
                origin: origin.clone().filter(|_| is_remote),
                verdict: Verdict::default(),
            };
            let board = Arc::clone(board);
            let name = settings.name.clone();
            tokio::task::spawn_local(async move {
                checker.watch(|health| report(&board, &name, (upstream, seat), health)).await;
            });
        }
    }
}

fn report(board: &Board, name: &str, (upstream, seat): (usize, usize), health: Health) {
    tracing::warn!(upstream = name, replica = seat, ?health, "health check changed its verdict");
    board.set_health(upstream, seat, health);
}

struct Checker {
    health: Rc<HealthConfig>,
    upstream: Upstream,
    address: SocketAddr,
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
        if let Ok(host) = HeaderValue::try_from(self.address.to_string()) {
            request.headers_mut().insert(HOST, host);
        }
        if let Some(origin) = &self.origin {
            request.headers_mut().insert(ORIGIN, origin.clone());
        }
        let answer = self.upstream.send(request);
        match tokio::time::timeout(self.health.timeout, answer).await {
            Ok(Ok(response)) => !response.status().is_server_error(),
            Ok(Err(_)) | Err(_) => false,
        }
    }
}

/// Counts towards the next change of mind.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    is_down: bool,
    against: u32,
}

impl Verdict {
    /// Takes a check's result in; says the new health when it changes.
    pub(crate) fn after(&mut self, is_healthy: bool, fall: u32, rise: u32) -> Option<Health> {
        if is_healthy != self.is_down {
            self.against = 0;
            return None;
        }
        self.against += 1;
        let needed = if self.is_down { rise } else { fall };
        if self.against < needed.max(1) {
            return None;
        }
        self.against = 0;
        self.is_down = !self.is_down;
        Some(if self.is_down { Health::Down } else { Health::Up })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_falls_to_go_down_and_rises_to_come_back() {
        let mut verdict = Verdict::default();
        let mut after = |is_healthy| verdict.after(is_healthy, 3, 2);
        assert_eq!([false, false, true, false, false].map(&mut after), [None; 5]);
        assert_eq!(after(false), Some(Health::Down));
        assert_eq!([false, true, false, true].map(&mut after), [None; 4]);
        assert_eq!(after(true), Some(Health::Up));
    }
}
