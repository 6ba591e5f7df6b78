//! One worker thread: sockets, dispatchers and connections of its own, shared with nobody.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::board::{Board, Directive, Observation};
use crate::calls::Seat;
use crate::cassandra::agent::{NodeAgent, NodeAgentSettings};
use crate::cassandra::{self, Share};
use crate::clock::{self, Clock};
use crate::config::{AgentConfig, Config, ListenConfig, Protocol, Switch, UpstreamConfig};
use crate::http::engine::{self, Listener, worker_runtime};
use crate::http::proxy;
use crate::http::route::Route;
use crate::replica::{Agent, AgentState};

/// How often a worker hands up what it counted. Metrics and dashboard are as old as this.
const REPORT_EVERY: Duration = Duration::from_millis(200);

type Plans = watch::Receiver<Arc<RoutePlan>>;

/// What a worker thread starts with.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) board: Arc<Board>,
    /// By upstream; `None` where HTTP is spoken.
    pub(crate) clusters: Vec<Option<Share>>,
    /// One per `[[listen]]`.
    pub(crate) listeners: Vec<Listener>,
    /// One per `[[agent]]`; empty in all workers but the first, which counts for all.
    pub(crate) agents: Vec<Listener>,
    pub(crate) stop: watch::Receiver<bool>,
}

impl Worker {
    /// Runs until told to stop and everything in flight is done.
    pub(crate) fn run(self) -> io::Result<()> {
        worker_runtime()?.block_on(self.serve())
    }

    async fn serve(self) -> io::Result<()> {
        let Self { number, config, clock, board, clusters, listeners, agents, stop } = self;
        let routes = open_routes(number, &config, &clusters, clock)?;
        let mut keeping = JoinSet::new();
        for (upstream, route) in routes.iter().enumerate() {
            route.keep(&mut keeping, board.plans(upstream), clusters[upstream].as_ref());
            if let Some(directives) = board.directives(upstream) {
                keeping.spawn_local(follow_directives(number, route.clone(), directives));
            }
        }
        // None where this worker has no listeners for them.
        let opened = config.agents.iter().zip(agents);
        let opened = opened.map(|(agent, listener)| Ok((AnyAgent::new(agent, clock)?, listener)));
        let agents: Vec<(AnyAgent, Listener)> = opened.collect::<io::Result<_>>()?;
        let seats = Rc::new(Seats {
            number,
            routes: routes.clone(),
            agents: agents.iter().map(|(agent, _)| agent.clone()).collect(),
            board: Arc::clone(&board),
        });
        for (place, agent) in seats.agents.iter().enumerate() {
            if let AnyAgent::Http(agent) = agent {
                keeping.spawn_local(follow_switch(Rc::clone(agent), board.switches(place)));
            }
        }
        keeping.spawn_local(report(Rc::clone(&seats)));
        let mut serving = JoinSet::new();
        for (listen, listener) in config.listens.iter().zip(listeners) {
            let cluster = clusters[listen.upstream].as_ref();
            let stop = stopped(stop.clone());
            routes[listen.upstream].serve(&mut serving, listen, listener, cluster, stop)?;
        }
        for (agent, listener) in agents {
            agent.serve(&mut serving, listener, stopped(stop.clone()));
        }
        serving.spawn_local(async {
            stopped(stop).await; // also where nothing listens
            Ok(())
        });
        let result = until_served(serving, keeping).await;
        seats.hand_up();
        result
    }
}

/// What a worker hands up, and where to.
struct Seats {
    number: usize,
    routes: Vec<AnyRoute>,
    agents: Vec<AnyAgent>,
    board: Arc<Board>,
}

impl Seats {
    fn hand_up(&self) {
        for (upstream, route) in self.routes.iter().enumerate() {
            self.board.note(upstream, self.number, route.observe());
        }
        for (place, agent) in self.agents.iter().enumerate() {
            self.board.note_agent(place, agent.state());
        }
        self.board.note_cpu(self.number, clock::thread_cpu());
    }
}

/// Waits until everything is served. A task that panics ends the worker: one that went on without
/// its timekeeper or its listener would only pretend to work.
async fn until_served(
    mut serving: JoinSet<io::Result<()>>,
    mut keeping: JoinSet<()>,
) -> io::Result<()> {
    std::future::poll_fn(|context| {
        while let Poll::Ready(Some(ended)) = keeping.poll_join_next(context) {
            if let Err(panicked) = ended {
                return Poll::Ready(Err(io::Error::other(panicked)));
            }
        }
        while let Some(ended) = ready!(serving.poll_join_next(context)) {
            let result = ended.map_err(io::Error::other).and_then(|result| result);
            if result.is_err() {
                return Poll::Ready(result);
            }
        }
        Poll::Ready(Ok(()))
    })
    .await
}

fn open_routes(
    number: usize,
    config: &Config,
    clusters: &[Option<Share>],
    clock: Clock,
) -> io::Result<Vec<AnyRoute>> {
    let open = |(upstream, cluster): (&UpstreamConfig, &Option<Share>)| {
        let seat = Seat { clients: config.clients(upstream), seed: number as u64 + 1 };
        Ok(match cluster {
            None => AnyRoute::Http(Route::new(upstream, clock, seat)?),
            Some(cluster) => AnyRoute::Cql(cluster.route(upstream, clock, seat)?),
        })
    };
    config.upstreams.iter().zip(clusters).map(open).collect()
}

/// An upstream as this worker sees it, by what it speaks.
#[derive(Clone)]
enum AnyRoute {
    Http(Rc<Route>),
    Cql(Rc<cassandra::Route>),
}

impl AnyRoute {
    /// Spawns what keeps it up to date.
    fn keep(&self, keeping: &mut JoinSet<()>, plans: Plans, cluster: Option<&Share>) {
        match self {
            Self::Http(route) => {
                keeping.spawn_local(Rc::clone(&route.calls).keep_time());
                keeping.spawn_local(follow_plans(Rc::clone(route), plans));
            }
            Self::Cql(route) => {
                keeping.spawn_local(Rc::clone(&route.calls).keep_time());
                if let Some(cluster) = cluster {
                    keeping.spawn_local(Rc::clone(route).follow(cluster.members()));
                    keeping.spawn_local(Rc::clone(route).hear());
                }
            }
        }
    }

    /// Spawns the serving of one of its listeners.
    fn serve(
        &self,
        serving: &mut JoinSet<io::Result<()>>,
        listen: &ListenConfig,
        listener: Listener,
        cluster: Option<&Share>,
        stop: impl Future<Output = ()> + 'static,
    ) -> io::Result<()> {
        match self {
            Self::Http(route) => {
                let (route, entrance) = (Rc::clone(route), Rc::new(route.entrance(listen)));
                let handler = move |request, client| {
                    proxy::serve(Rc::clone(&route), Rc::clone(&entrance), request, client)
                };
                let served = engine::serve(listener, listen.limits, handler, stop);
                serving.spawn_local(async { served.await.map(drop) });
            }
            Self::Cql(route) => {
                let Some(cluster) = cluster.cloned() else { return Ok(()) };
                let tls = cassandra::front_tls(listen.cql.identity.as_ref())?;
                let (route, listen) = (Rc::clone(route), listen.clone());
                serving.spawn_local(serve_cql(route, cluster, listen, tls, listener, stop));
            }
        }
        Ok(())
    }

    fn observe(&self) -> Observation {
        match self {
            Self::Http(route) => route.observe(),
            Self::Cql(route) => route.observe(),
        }
    }

    fn direct(&self, worker: usize, directive: &Directive) {
        match self {
            Self::Http(route) => route.calls.direct(worker, directive),
            Self::Cql(route) => route.calls.direct(worker, directive),
        }
    }
}

/// Serves clients of Cassandra as soon as it is known where home is; until then they wait in the
/// kernel's backlog.
async fn serve_cql(
    route: Rc<cassandra::Route>,
    cluster: Share,
    listen: ListenConfig,
    tls: Option<Arc<ServerConfig>>,
    listener: Listener,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let (mut home, mut stop) = (pin!(cluster.home()), pin!(stop));
    let first = std::future::poll_fn(|context| match stop.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => home.as_mut().poll(context).map(Some),
    });
    let Some(home) = first.await else { return Ok(()) };
    let cql = route.config.cql.clone().unwrap_or_default();
    let settings = Rc::new(cluster.front(&listen, &cql, tls, &home));
    let counts = route.new_front();
    cassandra::serve(listener, settings, route, counts, stop).await.map(drop)
}

/// What stands before a server, by what that speaks.
#[derive(Clone)]
enum AnyAgent {
    Http(Rc<Agent>),
    Cql(Rc<NodeAgent>),
}

impl AnyAgent {
    fn new(config: &AgentConfig, clock: Clock) -> io::Result<Self> {
        Ok(match config.protocol {
            Protocol::Http => Self::Http(Agent::new(config, clock)),
            Protocol::Cql => {
                let settings = NodeAgentSettings {
                    concurrency: config.concurrency,
                    client_tls: cassandra::front_tls(config.cql.identity.as_ref())?,
                    node_tls: cassandra::node_tls(config.cql.tls.as_ref())?,
                    handshake: config.limits.head,
                    drain: config.limits.drain,
                    ..NodeAgentSettings::new(config.app)
                };
                Self::Cql(NodeAgent::new(settings, clock))
            }
        })
    }

    fn serve(
        self,
        serving: &mut JoinSet<io::Result<()>>,
        listener: Listener,
        stop: impl Future<Output = ()> + 'static,
    ) {
        match self {
            Self::Http(agent) => {
                let served = agent.serve(listener, stop);
                serving.spawn_local(async { served.await.map(drop) });
            }
            Self::Cql(agent) => {
                serving.spawn_local(async { agent.serve(listener.into_std(), stop).await });
            }
        }
    }

    fn state(&self) -> AgentState {
        match self {
            Self::Http(agent) => agent.state(),
            Self::Cql(agent) => agent.state(),
        }
    }
}

/// Resolves when the process is told to stop, or has forgotten this worker.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn follow_plans(route: Rc<Route>, mut plans: Plans) {
    loop {
        let plan = Arc::clone(&plans.borrow_and_update());
        route.adopt(&plan);
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

async fn follow_switch(agent: Rc<Agent>, mut switches: watch::Receiver<Switch>) {
    loop {
        let switch = *switches.borrow_and_update();
        agent.set_switch(switch);
        if switches.changed().await.is_err() {
            return;
        }
    }
}

async fn report(seats: Rc<Seats>) {
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        seats.hand_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                tokio::time::timeout(limit, until_served(serving, keeping)).await
            });
            assert!(ended.expect("it does not go on").is_err());
        }
    }
}
