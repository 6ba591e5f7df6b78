//! One question to one server, for commands: it blocks, and keeps no connection.

use evenkeel_settings::address::ServerAddress;
use std::io;
use std::time::Duration;

use evenkeel_runtime::accept::worker_runtime;
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, UpstreamLimits};
use evenkeel_runtime::tls::ClientTls;
use http::StatusCode;

use super::body::Body;
use super::message::Request;
use super::upstream::Upstream;

/// The status and the body of the answer to a request, at most `bytes_max` of it. Blocks for at
/// most `limit`.
///
/// # Errors
/// When the server cannot be reached, does not answer in time or answers more.
pub fn fetch(
    (address, tls): (impl Into<ServerAddress>, Option<ClientTls>),
    request: Request<Body>,
    limit: Duration,
    bytes_max: u64,
) -> io::Result<(StatusCode, Vec<u8>)> {
    let limits = UpstreamLimits {
        connect: limit,
        connections_max: 1,
        idle_connections_max: 0,
        idle: limit,
        head_bytes_max: 16 * 1024,
        body: BodyLimits { idle: limit, ..BodyLimits::DEFAULT },
        http2: Http2::Never,
        engine: Engine::Hyper,
    };
    let exchange = async {
        let upstream = Upstream::with_tls(address, limits, tls);
        let response =
            upstream.send(request).await.map_err(|it| io::Error::other(it.to_string()))?;
        let status = response.status();
        let body = response.into_body().collect(bytes_max).await.map_err(io::Error::other)?;
        Ok((status, body.to_vec()))
    };
    let within = async { tokio::time::timeout(limit, exchange).await };
    worker_runtime()?.block_on(within).unwrap_or_else(|_| {
        Err(io::Error::new(io::ErrorKind::TimedOut, format!("no answer within {limit:?}")))
    })
}
