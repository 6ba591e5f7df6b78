//! Waiting until nodes agree on the schema.
//!
//! A driver that sees several nodes waits after each change of the schema until they agree, since
//! its next request may go to any of them. One that sees a single proxy believes that there is
//! nobody to wait for, so the proxy waits: it keeps back answers to changes of the schema, events
//! that tell of them, and the answer to a driver that asks whether nodes agree.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::backend::Backend;
use super::subscriber::Subscriber;
use evenkeel_runtime::accept::Order;

/// How often nodes are asked meanwhile.
const EVERY: Duration = Duration::from_millis(50);
/// Twice as late each time, but no later than this: a driver may ask for a minute.
const EVERY_MAX: Duration = Duration::from_millis(400);

/// The schema versions of all nodes: as soon as they are one, or after a while, or when the client
/// is to leave, whatever they are.
pub(super) async fn agree<B: Backend>(
    backend: &Rc<B>,
    subscriber: &Subscriber,
    wait: Duration,
) -> Vec<[u8; 16]> {
    let until = Instant::now() + wait;
    let mut pause = EVERY;
    loop {
        let asked = tokio::time::timeout_at(until, backend.schema_versions());
        let versions = asked.await.unwrap_or_default();
        let is_leaving = subscriber.link().order() >= Order::Drain;
        if versions.len() == 1 || is_leaving || Instant::now() + pause >= until {
            return versions;
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(EVERY_MAX);
    }
}

/// The same for a change that a node told: it does so a moment before it counts the change, so the
/// first look would find all of them at the version before.
pub(super) async fn settle_event<B: Backend>(backend: &Rc<B>, wait: Duration) {
    tokio::time::sleep(EVERY).await;
    settle(backend, wait).await;
}

/// Waits until the nodes have a change of the schema, for a while, unless none of them tells:
/// whoever made it, or is told of it, asks for it at once, and may be sent to any node.
pub(super) async fn settle<B: Backend>(backend: &Rc<B>, wait: Duration) {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        match tokio::time::timeout_at(until, backend.schema_versions()).await {
            Ok(versions) if versions.len() > 1 => tokio::time::sleep(EVERY).await,
            Ok(_) | Err(_) => return,
        }
    }
}
