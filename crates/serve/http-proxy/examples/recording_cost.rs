//! What keeping a record of each request costs.
//!
//! `recording_cost LISTEN on|off REPLICA…` proxies on one thread until it is killed, with the
//! default policy; `off` keeps no records. The difference in CPU time or instructions per request,
//! in interleaved rounds, is the price.

use std::cell::RefCell;
use std::error::Error;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use evenkeel_http::{Client, LiveLimits, serve_within};
use evenkeel_http_proxy::config::HttpListenConfig;
use evenkeel_http_proxy::proxy;
use evenkeel_http_proxy::route::Route;
use evenkeel_http_proxy::routes::{RouteTable, Target};
use evenkeel_proxy::calls::DispatcherSeed;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::requests::log::RequestLog;
use evenkeel_proxy::requests::recorder::Sinks;
use evenkeel_runtime::accept::{Listener, ListenerFilters, StopSignal, worker_runtime};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::limits::{Engine, ServerLimits};
use evenkeel_settings::{Node, Table};

const LIMITS: ServerLimits = ServerLimits {
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

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, mode, replicas @ ..] = arguments.as_slice() else {
        return Err("usage: recording_cost LISTEN on|off REPLICA…".into());
    };
    let node = Node::parse(&format!("replicas = {replicas:?}\nhedge = {{}}\n"), "example.toml")?;
    let read = |table: &mut Table<'_>| UpstreamConfig::read("web", table, false).0;
    let config = node.read(read)?;
    let listener = Listener::bind(listen.parse::<SocketAddr>()?)?;
    worker_runtime()?.block_on(async move {
        let seed = DispatcherSeed { clients: 1, seed: 1, can_ask: false };
        let route = Route::new(&config, Clock::start(), seed)?;
        if mode == "on" {
            let writer = Rc::new(RefCell::new(RequestLog::new(1).writer(0)));
            route.calls.record(0, &config, (writer, Sinks::default()));
        }
        let target = |_| {
            let policy = route.policy(&HttpListenConfig::default(), false);
            Target::new(Rc::clone(&route), policy)
        };
        let routes = RouteTable::new(target(0), &[], target);
        let handler = move |request, client: Rc<Client>| proxy::serve(&routes, request, &client);
        let limits = LiveLimits::new(LIMITS, ListenerFilters::NONE);
        serve_within(listener, &limits, handler, StopSignal::never()).await
    })?;
    Ok(())
}
