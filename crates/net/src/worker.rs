//! One worker thread: sockets, dispatchers and connections of its own, shared with nobody.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::board::Board;
use crate::clock::{self, Clock};
use crate::config::Config;
use crate::http::engine::{self, Listener, worker_runtime};
use crate::http::proxy;
use crate::http::route::{Route, Seat};
use crate::replica;

/// How often a worker hands up what it counted. Metrics and dashboard are as old as this.
const REPORT_EVERY: Duration = Duration::from_millis(200);

/// What a worker thread starts with.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) number: usize,
    pub(crate) config: Arc<Config>,
    pub(crate) clock: Clock,
    pub(crate) board: Arc<Board>,
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
        let Self { number, config, clock, board, listeners, agents, stop } = self;
        let routes = open_routes(number, &config, clock)?;
        for (upstream, route) in routes.iter().enumerate() {
            tokio::task::spawn_local(Rc::clone(route).keep_time());
            tokio::task::spawn_local(follow_plans(Rc::clone(route), board.plans(upstream)));
        }
        let reporter = tokio::task::spawn_local(report(number, routes.clone(), Arc::clone(&board)));
        let mut serving = Vec::new();
        for (listen, listener) in config.listens.iter().zip(listeners) {
            let route = Rc::clone(&routes[listen.upstream]);
            let forwarding = Rc::new(route.forwarding(listen));
            let handler = move |request, client| {
                proxy::serve(Rc::clone(&route), Rc::clone(&forwarding), request, client)
            };
            let stop = stopped(stop.clone());
            let served = engine::serve(listener, listen.limits, handler, stop);
            serving.push(tokio::task::spawn_local(async { served.await.map(drop) }));
        }
        for (agent, listener) in config.agents.iter().cloned().zip(agents) {
            let stop = stopped(stop.clone());
            let served = async move { replica::serve_agent(&agent, listener, clock, stop).await };
            serving.push(tokio::task::spawn_local(async { served.await.map(drop) }));
        }
        for server in serving {
            server.await.map_err(io::Error::other)??;
        }
        reporter.abort();
        hand_up(number, &routes, &board);
        Ok(())
    }
}

fn open_routes(number: usize, config: &Config, clock: Clock) -> io::Result<Vec<Rc<Route>>> {
    let open = |upstream| {
        let seat = Seat { clients: config.clients(upstream), seed: number as u64 + 1 };
        Route::new(upstream, clock, seat)
    };
    config.upstreams.iter().map(open).collect()
}

/// Resolves when the process is told to stop, or has forgotten this worker.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

async fn follow_plans(
    route: Rc<Route>,
    mut plans: watch::Receiver<Arc<evenkeel_core::plan::RoutePlan>>,
) {
    loop {
        let plan = Arc::clone(&plans.borrow_and_update());
        route.adopt(&plan);
        if plans.changed().await.is_err() {
            return;
        }
    }
}

async fn report(number: usize, routes: Vec<Rc<Route>>, board: Arc<Board>) {
    loop {
        tokio::time::sleep(REPORT_EVERY).await;
        hand_up(number, &routes, &board);
    }
}

fn hand_up(number: usize, routes: &[Rc<Route>], board: &Board) {
    for (upstream, route) in routes.iter().enumerate() {
        board.note(upstream, number, route.observe());
    }
    board.note_cpu(number, clock::thread_cpu());
}
