//! What stories between real sockets share: their limits, and a time after which they hang.

use std::time::Duration;

use evenkeel_net::http::engine::{ServerLimits, UpstreamLimits, worker_runtime};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) const LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 64 * 1024,
    body_bytes_max: 1 << 30,
    connections_max: 1_000,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(30),
    drain: Duration::from_secs(1),
};

pub(crate) const UPSTREAM: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: 1_000,
    idle_connections_max: 1_000,
    idle: Duration::from_secs(30),
    head_bytes_max: 64 * 1024,
};

/// Tells a story on a worker of its own, within a time that no story needs.
pub(crate) fn story(told: impl Future<Output = ()>) {
    worker_runtime().unwrap().block_on(async {
        tokio::time::timeout(Duration::from_secs(40), told).await.expect("the story hangs");
    });
}
