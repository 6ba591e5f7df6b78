//! Pods of a Service of Kubernetes: who they are is told whenever that changes.

use std::pin::pin;

use evenkeel_core::discovery::Answer;
use evenkeel_dns::Resolver;
use evenkeel_kubernetes::{Limits, Offer, WatchError, Watcher};

use super::{CONFIRMED_WITHIN, TTL, chance, failed, nobody, pause};
use crate::config::Cluster;
use crate::upstream_state::Heard;

/// Whom the Service offers now.
pub(super) async fn list(cluster: &Cluster, resolver: &Resolver) -> Heard {
    heard(watcher(cluster).next(resolver).await)
}

/// Follows the Service for as long as it is polled.
pub(super) async fn follow(cluster: &Cluster, resolver: &Resolver, mut learn: impl FnMut(&Heard)) {
    let (mut watcher, mut failures) = (watcher(cluster), 0);
    let mut last = None;
    loop {
        let heard = {
            let mut next = pin!(watcher.next(resolver));
            loop {
                let said = tokio::time::timeout(CONFIRMED_WITHIN, &mut next).await;
                match (said, &last) {
                    (Ok(said), _) => break heard(said),
                    // It goes on saying so as long as its watch is open.
                    (Err(_), Some(empty)) => learn(empty),
                    (Err(_), None) => {}
                }
            }
        };
        learn(&heard);
        failures = if heard.answer == Answer::Failed { failures + 1 } else { 0 };
        if failures > 0 {
            tokio::time::sleep(pause(&heard, failures, false, chance())).await;
        }
        last = Some(heard).filter(|heard| heard.answer == Answer::Empty);
    }
}

fn watcher(cluster: &Cluster) -> Watcher {
    Watcher::new(cluster.api.clone(), cluster.service.clone(), Limits::default())
}

fn heard(said: Result<Offer, WatchError>) -> Heard {
    match said {
        Ok(Offer::These(who)) => {
            Heard { answer: Answer::Whole(who), ttl: TTL.0, why: String::new() }
        }
        Ok(Offer::Nobody(why)) => nobody(&why),
        Ok(Offer::NoPort { wanted, known }) => {
            failed(WatchError::NoPort { wanted, known }.to_string())
        }
        Err(error) => failed(error.to_string()),
    }
}
