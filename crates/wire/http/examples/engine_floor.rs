//! The engine's floor: a round-robin proxy with nothing between listener and upstream.
//!
//! `engine_floor hyper|native LISTEN REPLICA…` serves on one thread until it is killed. Its CPU
//! time per request against HAProxy's and nginx's on the same machine, in interleaved rounds, says
//! how much room the decisions have.

use std::cell::Cell;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_http::head::{Forwarding, Refusal, prepare_request, prepare_response};
use evenkeel_http::{Body, Client, Request, Response, Upstream, serve};
use evenkeel_runtime::accept::StopSignal;
use evenkeel_runtime::accept::{Listener, worker_runtime};
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, ServerLimits, UpstreamLimits};
use http::HeaderValue;

const SERVER: ServerLimits = ServerLimits {
    head_bytes_max: 32 * 1024,
    body_bytes_max: 1 << 40,
    connections_max: 10_000,
    head: Duration::from_secs(10),
    idle: Duration::from_secs(60),
    write: Duration::from_secs(30),
    connection_age: Duration::MAX,
    drain: Duration::from_secs(10),
    engine: Engine::Hyper,
};

const UPSTREAM: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: 1024,
    idle_connections_max: 256,
    idle: Duration::from_secs(30),
    head_bytes_max: 64 * 1024,
    body: BodyLimits::DEFAULT,
    http2: Http2::Auto,
    engine: Engine::Hyper,
};

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: engine_floor hyper|native LISTEN REPLICA…";
    let mut arguments = std::env::args().skip(1);
    let engine = match arguments.next().as_deref() {
        Some("hyper") => Engine::Hyper,
        Some("native") => Engine::Native,
        _ => return Err(usage.into()),
    };
    let mut arguments = arguments.map(|argument| argument.parse::<SocketAddr>());
    let listen = arguments.next().ok_or(usage)??;
    let replicas = arguments.collect::<Result<Vec<_>, _>>()?;
    let listener = Listener::bind(listen)?;
    worker_runtime()?.block_on(async move {
        let limits = UpstreamLimits { engine, ..UPSTREAM };
        let upstreams = replicas.into_iter().map(|address| Upstream::new(address, limits));
        let proxy = Rc::new(Proxy {
            upstreams: upstreams.collect(),
            turn: Cell::new(0),
            forwarding: Forwarding {
                trusted_proxies: None,
                append_forwarded_for: false,
                is_https: false,
                host_default: HeaderValue::from_static("localhost"),
            },
        });
        let handler = move |request, client| Rc::clone(&proxy).pass_on(request, client);
        let server = ServerLimits { engine, ..SERVER };
        serve(listener, server, handler, StopSignal::never()).await
    })?;
    Ok(())
}

struct Proxy {
    upstreams: Vec<Upstream>,
    turn: Cell<usize>,
    forwarding: Forwarding,
}

impl Proxy {
    async fn pass_on(
        self: Rc<Self>,
        mut request: Request<Body>,
        client: Rc<Client>,
    ) -> Response<Body> {
        if let Err(refusal) = prepare_request(&mut request, &client, &self.forwarding) {
            return refusal.into_response();
        }
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        match self.upstreams[turn % self.upstreams.len()].send(request).await {
            Ok(mut response) => match prepare_response(&mut response) {
                Ok(()) => response,
                Err(refusal) => refusal.into_response(),
            },
            Err(error) => Refusal::new(error.status(), error.to_string()).into_response(),
        }
    }
}
