//! A proxy in this process, before replicas of a test.

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use evenkeel_http::{Client, LiveLimits, Upstream, serve_within};
use evenkeel_http_proxy::config::HttpListenConfig;
use evenkeel_http_proxy::proxy;
use evenkeel_http_proxy::route::Route;
use evenkeel_http_proxy::routes::{RouteTable, Target};
use evenkeel_proxy::calls::DispatcherSeed;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_runtime::accept::{Listener, ListenerFilters, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::limits::UpstreamLimits;
use evenkeel_settings::{Node, Table};
use evenkeel_testkit::story::{LIMITS, UPSTREAM};
use tokio::task::JoinSet;

/// A proxy before these replicas, with these further lines in its upstream: its route, a client of
/// it, and what serves it until that is dropped.
pub(crate) fn proxy_before(
    replicas: &[SocketAddr],
    lines: &str,
    change: impl FnOnce(&mut UpstreamLimits),
) -> (Rc<Route>, Upstream, JoinSet<()>) {
    let replicas: Vec<String> = replicas.iter().map(ToString::to_string).collect();
    let text = format!("replicas = {replicas:?}\n{lines}");
    let read = |table: &mut Table<'_>| UpstreamConfig::read("web", table, false).0;
    let mut config = Node::parse(&text, "test.toml").unwrap().read(read).unwrap();
    change(&mut config.limits);
    let seed = DispatcherSeed { clients: 1, seed: 1, can_ask: true };
    let route = Route::new(&config, Clock::start(), seed).unwrap();
    let target = |_| {
        let policy = route.policy(&HttpListenConfig::default(), false);
        Target::new(Rc::clone(&route), policy)
    };
    let routes = RouteTable::new(target(0), &[], target);
    let handler = move |request, client: Rc<Client>| proxy::serve(&routes, request, &client);
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let client = Upstream::new(listener.address().unwrap(), UPSTREAM);
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        let limits = LiveLimits::new(LIMITS, ListenerFilters::NONE);
        drop(serve_within(listener, &limits, handler, StopSignal::never()).await);
    });
    (route, client, tasks)
}
