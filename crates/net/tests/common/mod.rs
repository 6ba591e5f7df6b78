//! What stories between real sockets share: limits, waiting, and a time after which they hang.

#![allow(dead_code, reason = "each story takes what it needs")]

pub(crate) mod real;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

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

pub(crate) async fn pause(milliseconds: u64) {
    tokio::time::sleep(Duration::from_millis(milliseconds)).await;
}

/// Waits until something becomes true, at most three seconds.
pub(crate) async fn until(what: &str, is_true: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_true() {
        assert!(began.elapsed() < Duration::from_secs(3), "still not true: {what}");
        pause(5).await;
    }
}

/// An address where nobody listens.
pub(crate) fn nobody() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}
