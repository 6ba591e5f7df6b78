//! One worker thread: sockets, dispatchers and connections of its own, shared with nobody. What its
//! dispatchers learn, those of its siblings read ([`evenkeel_core::request::siblings`]).

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_geo::traffic::Directive;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::config::{Config, ListenConfig, UpstreamEntry};
use crate::process::tls::LoadedTls;
use crate::record;
use evenkeel_cassandra::{self as cassandra, ClusterHandle};
use evenkeel_http::{self as engine, Client, LiveLimits};
use evenkeel_http_proxy::proxy;
use evenkeel_http_proxy::route::Route;
use evenkeel_http_proxy::routes::{RouteTable, Target};
use evenkeel_proxy::calls::{Calls, DispatcherSeed};
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::requests::log::{RequestLog, Writer};
use evenkeel_proxy::requests::recorder::Sinks;
use evenkeel_proxy::upstream_state::{UpstreamStates, WorkerReport};
use evenkeel_record::Recorder;
use evenkeel_runtime::accept::{Listener, ListenerFilters, Stop, StopSignal, first};
use evenkeel_runtime::clock::{self, Clock};
use evenkeel_runtime::timer::Timer;

/// How often a worker hands up what it counted. Metrics and dashboard are as old as this.
pub(crate) const REPORT_EVERY: Duration = Duration::from_millis(200);

/// What a worker thread starts with.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) tls: Arc<LoadedTls>,
    pub(crate) clock: Clock,
    pub(crate) states: Arc<UpstreamStates>,
    /// By upstream; `None` where HTTP is spoken.
    pub(crate) clusters: Vec<Option<ClusterHandle>>,
    /// One per `[[listen]]`.
    pub(crate) listeners: Vec<Listener>,
    pub(crate) orders: UnboundedReceiver<Order>,
    /// Where it keeps what became of each request.
    pub(crate) requests: RequestLog,
    /// Who is told of requests that have ended.
    pub(crate) sinks: Sinks,
    /// Who is told of copies, where days are recorded.
    pub(crate) recorder: Recorder,
}

/// Another configuration, for one worker.
#[derive(Debug)]
pub(crate) struct Order {
    pub(crate) config: Arc<Config>,
    pub(crate) tls: Arc<LoadedTls>,
    /// Where clients come in from now on, by `[[listen]]`.
    pub(crate) frontends: Vec<FrontendFrom>,
    /// Dropped once it is obeyed.
    pub(crate) obeyed: std::sync::mpsc::Sender<()>,
}

/// Where a worker has a frontend from.
#[derive(Debug)]
pub(crate) enum FrontendFrom {
    /// It has it, as the `[[listen]]` of this number before.
    Before(usize),
    /// A new address.
    New(Listener),
}

impl Worker {
    /// Runs until told to stop and everything in flight is done.
    pub(crate) async fn serve(self, mut stop: StopSignal) -> io::Result<()> {
        let Self {
            number,
            config,
            tls,
            clock,
            states,
            clusters,
            listeners,
            mut orders,
            requests,
            sinks,
            recorder,
        } = self;
        let mut floor = Floor {
            number,
            clock,
            timer: Timer::of(&clock)?,
            states,
            clusters,
            routes: Rc::default(),
            writer: Rc::new(RefCell::new(requests.writer(number))),
            sinks,
            recorder,
            frontends: Vec::new(),
            config: Arc::clone(&config),
            tls,
            stop: stop.clone(),
            keeping: JoinSet::new(),
            serving: JoinSet::new(),
        };
        floor.open_routes()?;
        for (place, listener) in listeners.into_iter().enumerate() {
            let frontend = floor.open_frontend(place, listener);
            floor.frontends.push(frontend);
        }
        floor.keeping.spawn_local(report(floor.reports()));
        floor.serving.spawn_local(async move {
            stop.stopping().await; // also where nothing listens
            Ok(())
        });
        let result = loop {
            match floor.next(&mut orders).await {
                Event::Order(order) => floor.obey(order),
                Event::Ended(result) => break result,
            }
        };
        floor.reports().hand_up();
        result
    }
}

/// What comes first: another configuration, or the end.
enum Event {
    Order(Order),
    Ended(io::Result<()>),
}

type Routes = Rc<RefCell<Vec<AnyRoute>>>;

/// Everything on a worker's thread.
struct Floor {
    number: usize,
    clock: Clock,
    timer: Timer,
    states: Arc<UpstreamStates>,
    clusters: Vec<Option<ClusterHandle>>,
    /// By upstream.
    routes: Routes,
    writer: Rc<RefCell<Writer>>,
    sinks: Sinks,
    recorder: Recorder,
    /// By `[[listen]]`.
    frontends: Vec<Frontend>,
    config: Arc<Config>,
    tls: Arc<LoadedTls>,
    stop: StopSignal,
    keeping: JoinSet<()>,
    serving: JoinSet<io::Result<()>>,
}

/// Where clients come in.
enum Frontend {
    Http(HttpFrontend),
    /// Does not change while the process runs.
    Cql,
}

/// Where clients of HTTP come in. Dropping it closes it: who is inside is served to the end.
struct HttpFrontend {
    /// Where requests go that come in now.
    routes: Rc<RefCell<Rc<RouteTable>>>,
    limits: LiveLimits,
    /// Told by being dropped.
    _open: oneshot::Sender<()>,
}

impl Floor {
    async fn next(&mut self, orders: &mut UnboundedReceiver<Order>) -> Event {
        tokio::select! {
            biased;
            // Without a sender nothing is reloaded any more.
            Some(order) = orders.recv() => Event::Order(order),
            ended = until_served(&mut self.serving, &mut self.keeping) => Event::Ended(ended),
        }
    }

    fn reports(&self) -> Reports {
        let (routes, states) = (Rc::clone(&self.routes), Arc::clone(&self.states));
        Reports { number: self.number, routes, clusters: self.clusters.clone(), states }
    }

    fn seed(&self, upstream: &UpstreamConfig) -> DispatcherSeed {
        DispatcherSeed { clients: upstream.proxies, seed: self.number as u64 + 1, can_ask: false }
    }

    fn open_routes(&mut self) -> io::Result<()> {
        let config = Arc::clone(&self.config);
        for (place, upstream) in config.upstreams.iter().enumerate() {
            let UpstreamEntry { common, cql } = upstream;
            let route = match (self.clusters.get(place).and_then(Option::as_ref), cql) {
                (Some(cluster), Some(cql)) => {
                    let seed = self.seed(common);
                    AnyRoute::Cql(cluster.route(common, cql, self.clock, seed)?)
                }
                _ => self.http_route(place, common),
            };
            self.take_in(place, route);
        }
        Ok(())
    }

    fn http_route(&self, place: usize, upstream: &UpstreamConfig) -> AnyRoute {
        let (time, tls) = ((self.clock, self.timer.clone()), self.tls.upstreams[place].clone());
        let route = Route::with_timer(upstream, tls, time, self.seed(upstream));
        // Those that are discovered are known before the first request.
        route.adopt(&self.states.plan(place), &self.states.home(place));
        AnyRoute::Http(route)
    }

    /// Keeps a route up to date from now on.
    fn take_in(&mut self, place: usize, route: AnyRoute) {
        let config = &self.config.upstreams[place].common;
        let into = (Rc::clone(&self.writer), self.sinks.clone());
        route.calls().record(place, config, into);
        if self.config.record.is_some() {
            self.record_copies(&route, place);
        }
        let siblings = self.states.siblings(place, route.calls().datacenters());
        route.calls().join(&siblings, self.number);
        let cluster = self.clusters.get(place).and_then(Option::as_ref);
        route.keep(&mut self.keeping, (&self.states, place), cluster);
        if let Some(directives) = self.states.directives(place) {
            self.keeping.spawn_local(follow_directives(self.number, route.clone(), directives));
        }
        self.routes.borrow_mut().push(route);
    }

    /// Has copies told of as `[record]` says now.
    fn record_copies(&self, route: &AnyRoute, place: usize) {
        let config = &self.config.upstreams[place].common;
        let recording = self.config.record.as_ref().map(|record| {
            let members = self.states.members(place).len();
            let cancels = matches!(route, AnyRoute::Http(_));
            let of = (config, members, cancels);
            record::recording(&self.recorder, record, of, self.number as u16)
        });
        route.calls().record_copies(recording);
    }

    /// Takes over another configuration: requests that begin from now on follow it.
    fn obey(&mut self, order: Order) {
        let Order { config, tls, frontends, obeyed } = order;
        self.tls = tls;
        let before = std::mem::replace(&mut self.config, Arc::clone(&config));
        for (place, upstream) in config.upstreams.iter().enumerate() {
            let route = self.routes.borrow().get(place).cloned();
            match route {
                None => {
                    let route = self.http_route(place, &upstream.common);
                    self.take_in(place, route);
                }
                Some(route) => {
                    self.renew(&route, place, &before.upstreams[place]);
                    let is_other_policy = upstream.common != before.upstreams[place].common;
                    if config.record != before.record || config.record.is_some() && is_other_policy
                    {
                        self.record_copies(&route, place);
                    }
                }
            }
        }
        let mut known: Vec<Option<Frontend>> =
            std::mem::take(&mut self.frontends).into_iter().map(Some).collect();
        for (place, from) in frontends.into_iter().enumerate() {
            let frontend = match from {
                FrontendFrom::Before(number) => {
                    let frontend = known[number].take().expect("a door is kept once");
                    self.change_frontend(&frontend, place);
                    frontend
                }
                FrontendFrom::New(listener) => self.open_http_frontend(place, listener),
            };
            self.frontends.push(frontend);
        }
        drop(known); // those that are closed
        drop(obeyed);
    }

    /// Takes over what changed of an upstream, its replicas among it.
    fn renew(&self, route: &AnyRoute, place: usize, before: &UpstreamEntry) {
        let upstream = &self.config.upstreams[place].common;
        let is_changed = *upstream != before.common;
        match route {
            AnyRoute::Cql(route) if is_changed => {
                route.calls.reconfigure(upstream, self.seed(upstream));
            }
            AnyRoute::Cql(_) => {}
            AnyRoute::Http(route) => {
                if is_changed {
                    let tls = self.tls.upstreams[place].clone();
                    let renewed = route.renewed(upstream, tls, self.seed(upstream));
                    renewed.adopt(&self.states.plan(place), &self.states.home(place));
                    self.routes.borrow_mut()[place] = AnyRoute::Http(renewed);
                }
                if self.config.is_removed(place) {
                    route.close_idle();
                }
            }
        }
    }

    /// Opens a frontend, before whatever its upstream speaks.
    fn open_frontend(&mut self, place: usize, listener: Listener) -> Frontend {
        let listen = &self.config.listens[place];
        let route = self.routes.borrow()[listen.upstream].clone();
        let (AnyRoute::Cql(route), Some(cluster)) = (route, &self.clusters[listen.upstream]) else {
            return self.open_http_frontend(place, listener);
        };
        let (cluster, stop) = (cluster.clone(), self.stop.clone());
        let (listen, filters) = (listen.clone(), self.filters(place));
        self.serving.spawn_local(serve_cql(route, cluster, listen, filters, listener, stop));
        Frontend::Cql
    }

    fn open_http_frontend(&mut self, place: usize, listener: Listener) -> Frontend {
        let listen = &self.config.listens[place];
        let routes = Rc::new(RefCell::new(self.route_table(listen)));
        let limits = LiveLimits::new(listen.limits, self.filters(place));
        let (open, closed) = oneshot::channel();
        let stop = Stop::new();
        let (signal, drain) = (stop.signal(), listen.limits.drain);
        let closed = async {
            let _ = closed.await;
        };
        self.keeping.spawn_local(stop.stop_with(self.stop.clone(), closed, drain));
        let (current, its) = (Rc::clone(&routes), limits.clone());
        self.serving.spawn_local(async move {
            let handler = move |request, client: Rc<Client>| {
                let routes = Rc::clone(&current.borrow()); // a reload may put others there
                proxy::serve(&routes, request, &client)
            };
            engine::serve_within(listener, &its, handler, signal).await.map(drop)
        });
        Frontend::Http(HttpFrontend { routes, limits, _open: open })
    }

    fn filters(&self, place: usize) -> ListenerFilters {
        let proxy_protocol = self.config.listens[place].proxy_protocol.clone();
        ListenerFilters { proxy_protocol, tls: self.tls.listens[place].clone() }
    }

    fn route_table(&self, listen: &ListenConfig) -> Rc<RouteTable> {
        let target = |upstream: usize| match &self.routes.borrow()[upstream] {
            AnyRoute::Http(route) => {
                let policy = route.policy(&listen.http, listen.tls.is_some());
                Target::new(Rc::clone(route), policy)
            }
            AnyRoute::Cql(_) => unreachable!("doors before a cluster do not change while it runs"),
        };
        RouteTable::new(target(listen.upstream), &listen.routes, target)
    }

    fn change_frontend(&self, frontend: &Frontend, place: usize) {
        if let Frontend::Http(frontend) = frontend {
            let listen = &self.config.listens[place];
            frontend.routes.replace(self.route_table(listen));
            frontend.limits.set(listen.limits, self.filters(place));
        }
    }
}

/// What a worker hands up, and where to.
struct Reports {
    number: usize,
    routes: Routes,
    clusters: Vec<Option<ClusterHandle>>,
    states: Arc<UpstreamStates>,
}

impl Reports {
    fn hand_up(&self) {
        for (upstream, route) in self.routes.borrow().iter().enumerate() {
            self.states.note(upstream, self.number, route.observe());
            if let (AnyRoute::Cql(route), Some(Some(cluster))) =
                (route, self.clusters.get(upstream))
            {
                cluster.states().note(self.number, route.cluster_state());
            }
        }
        self.states.note_cpu(self.number, clock::thread_cpu());
    }
}

/// Waits until everything is served. A task that panics ends the worker: one that went on without
/// its timekeeper or its listener would only pretend to work.
pub(crate) async fn until_served(
    serving: &mut JoinSet<io::Result<()>>,
    keeping: &mut JoinSet<()>,
) -> io::Result<()> {
    loop {
        tokio::select! {
            biased;
            Some(ended) = keeping.join_next() => ended.map_err(io::Error::other)?,
            ended = serving.join_next() => match ended {
                Some(ended) => ended.map_err(io::Error::other)??,
                None => return Ok(()),
            },
        }
    }
}

/// An upstream as this worker sees it, by what it speaks.
#[derive(Clone)]
enum AnyRoute {
    Http(Rc<Route>),
    Cql(Rc<cassandra::Route>),
}

impl AnyRoute {
    /// Spawns what keeps it up to date.
    fn keep(
        &self,
        keeping: &mut JoinSet<()>,
        (states, place): (&Arc<UpstreamStates>, usize),
        cluster: Option<&ClusterHandle>,
    ) {
        match self {
            Self::Http(route) => {
                keeping.spawn_local(Rc::clone(&route.calls).keep_time());
                keeping.spawn_local(follow_plans(Rc::clone(route), Arc::clone(states), place));
            }
            Self::Cql(route) => {
                keeping.spawn_local(Rc::clone(&route.calls).keep_time());
                if let Some(cluster) = cluster {
                    keeping.spawn_local(Rc::clone(route).follow(cluster.members()));
                    keeping.spawn_local(Rc::clone(route).receive_reports());
                }
            }
        }
    }

    fn calls(&self) -> &Calls {
        match self {
            Self::Http(route) => &route.calls,
            Self::Cql(route) => &route.calls,
        }
    }

    fn observe(&self) -> WorkerReport {
        match self {
            Self::Http(route) => route.observe(),
            Self::Cql(route) => route.observe(),
        }
    }

    fn direct(&self, worker: usize, directive: &Directive) {
        self.calls().direct(worker, directive);
    }
}

/// Serves clients of Cassandra as soon as it is known where home is; until then they wait in the
/// kernel's backlog.
async fn serve_cql(
    route: Rc<cassandra::Route>,
    cluster: ClusterHandle,
    listen: ListenConfig,
    filters: ListenerFilters,
    listener: Listener,
    mut stop: StopSignal,
) -> io::Result<()> {
    let stopped = async {
        stop.stopping().await;
        None
    };
    let Some(home) = first(stopped, async { Some(cluster.home().await) }).await else {
        return Ok(());
    };
    let settings = Rc::new(cluster.front(&listen.limits, &route.cql, filters, &home));
    let counts = route.new_front();
    cassandra::serve(listener, settings, route, counts, stop).await.map(drop)
}

/// Follows the plans of an upstream, whatever its configuration becomes.
async fn follow_plans(route: Rc<Route>, states: Arc<UpstreamStates>, place: usize) {
    let mut plans = states.plans(place);
    loop {
        let plan = Arc::clone(&plans.borrow_and_update());
        route.adopt(&plan, &states.home(place));
        if plans.changed().await.is_err() {
            return;
        }
    }
}

async fn follow_directives(
    worker: usize,
    route: AnyRoute,
    mut directives: watch::Receiver<Option<Arc<Directive>>>,
) {
    loop {
        let directive = directives.borrow_and_update().clone();
        if let Some(directive) = directive {
            route.direct(worker, &directive);
        }
        if directives.changed().await.is_err() {
            return;
        }
    }
}

async fn report(reports: Reports) {
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        reports.hand_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_runtime::accept::worker_runtime;

    #[test]
    fn a_panic_in_any_task_ends_the_worker_with_an_error() {
        for is_keeper in [true, false] {
            let ended = worker_runtime().unwrap().block_on(async {
                let (mut serving, mut keeping) = (JoinSet::new(), JoinSet::new());
                serving.spawn_local(std::future::pending());
                keeping.spawn_local(std::future::ready(()));
                if is_keeper {
                    keeping.spawn_local(async { panic!("in a test") });
                } else {
                    serving.spawn_local(async { panic!("in a test") });
                }
                let limit = Duration::from_secs(5);
                tokio::time::timeout(limit, until_served(&mut serving, &mut keeping)).await
            });
            assert!(ended.expect("it does not go on").is_err());
        }
    }
}
