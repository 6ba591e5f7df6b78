//! What a probe costs a proxy and an agent, over HTTP and in a datagram.
//!
//! `probe_cost [REQUESTS] [CONNECTIONS] [ROUNDS] [AGENTS]` (20 000, 64, 12, 256): three proxies of
//! one worker, each before its agents on one thread, on loopback: `prequal` without probes, and
//! with three for each request over either channel. They are measured in turn within each round.
//! What a probe costs is the CPU time of a thread beyond that without probes in the same round;
//! shown are medians, and the second least and second largest round.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use evenkeel_http::{Body, Client, LiveLimits, Response, Upstream, serve, serve_within};
use evenkeel_http_proxy::config::{AgentConfig, HttpListenConfig};
use evenkeel_http_proxy::proxy;
use evenkeel_http_proxy::replica::serve_agent;
use evenkeel_http_proxy::route::Route;
use evenkeel_http_proxy::routes::{RouteTable, Target};
use evenkeel_proxy::calls::DispatcherSeed;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::upstream_state::ProbeCounts;
use evenkeel_runtime::accept::{Listener, ListenerFilters, StopSignal, worker_runtime};
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::{Node, Table};
use evenkeel_testkit::story::{LIMITS, UPSTREAM};
use tokio::task::JoinSet;

type Failure = Box<dyn Error>;

const MODES: [(&str, &str, bool); 3] =
    [("no probes", "prequal:probes=0", true), ("HTTP", "prequal", false), ("UDP", "prequal", true)];

/// A proxy, its agents, and the folders in `/proc` of their threads.
struct World {
    proxy: SocketAddr,
    threads: [String; 2],
    counts: Arc<Mutex<ProbeCounts>>,
}

fn main() -> Result<(), Failure> {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|word| word.parse()).collect::<Result<_, _>>()?;
    let number = |place: usize, default| numbers.get(place).copied().unwrap_or(default);
    let (requests, connections, rounds) = (number(0, 20_000), number(1, 64), number(2, 12));
    let agents = number(3, 256);
    let app = start("app".to_owned(), |listener| async {
        let answer = |_, _: Rc<Client>| async { Response::new(Body::full("hello")) };
        serve(listener, LIMITS, answer, StopSignal::never()).await?;
        Ok(())
    })?;
    let worlds = MODES.iter().map(|mode| World::start(app.0, mode, agents));
    let worlds: Vec<World> = worlds.collect::<Result<_, _>>()?;
    // By mode, of each round: nanoseconds of proxy and agents, and probes, each by request.
    let mut found: [Vec<[f64; 3]>; 3] = Default::default();
    for round in 0..=rounds {
        for turn in 0..MODES.len() {
            let mode = (round + turn) % MODES.len();
            let measured = worlds[mode].measure(requests, connections)?;
            if round > 0 {
                found[mode].push(measured); // the first warms up
            }
        }
    }
    for (mode, (name, ..)) in MODES.iter().enumerate() {
        let column = |place: usize| found[mode].iter().map(|row| row[place]).collect();
        let [proxy, agents, probes] = [0, 1, 2].map(|place| middle(column(place)).1);
        println!(
            "{name}: by request {probes:.2} probes, proxy {proxy:.0} ns, agents {agents:.0} ns"
        );
        if mode > 0 {
            for (place, side) in ["proxy", "agent"].iter().enumerate() {
                let beyond = |round: usize| {
                    let row = found[mode][round];
                    (row[place] - found[0][round][place]) / row[2]
                };
                let (low, median, high) = middle((0..rounds).map(beyond).collect());
                println!("  a probe costs the {side} {median:.0} ns ({low:.0} to {high:.0})");
            }
        }
    }
    Ok(())
}

/// The second least, the median and the second largest.
fn middle(mut values: Vec<f64>) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let last = values.len() - 1;
    (values[1.min(last)], values[values.len() / 2], values[last.saturating_sub(1)])
}

/// Serves on a thread of its own; answers where, and the thread's folder in `/proc`.
fn start<F>(
    name: String,
    service: impl FnOnce(Listener) -> F + Send + 'static,
) -> Result<(SocketAddr, String), Failure>
where
    F: Future<Output = Result<(), Failure>>,
{
    let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let address = listener.address()?;
    let (tell, told) = mpsc::channel();
    let thread = std::thread::Builder::new().name(name);
    thread.spawn(move || {
        let folder = std::fs::read_link("/proc/thread-self").expect("it is Linux");
        tell.send(folder.display().to_string()).expect("somebody waits");
        let ended = worker_runtime().expect("a runtime").block_on(service(listener));
        ended.expect("it serves until the end");
    })?;
    Ok((address, told.recv()?))
}

impl World {
    fn start(
        app: SocketAddr,
        &(name, policy, has_udp): &(&str, &str, bool),
        agents: usize,
    ) -> Result<Self, Failure> {
        let bind = |_| Listener::bind((Ipv4Addr::LOCALHOST, 0).into());
        let listeners = (0..agents).map(bind).collect::<Result<Vec<_>, _>>()?;
        let address = |it: &Listener| it.address().map(|address| address.to_string());
        let replicas = listeners.iter().map(address).collect::<Result<Vec<_>, _>>()?;
        let agents = start(format!("agents {name}"), move |_| async move {
            let mut serving = JoinSet::new();
            for listener in listeners {
                let config = agent(listener.address()?, app, has_udp);
                serving.spawn_local(async move {
                    serve_agent(&config, listener, Clock::start(), StopSignal::never()).await
                });
            }
            while serving.join_next().await.is_some() {}
            Ok(())
        })?;
        let text = format!("replicas = {replicas:?}\npolicy = '{policy}'\n");
        let counts = Arc::<Mutex<ProbeCounts>>::default();
        let told = Arc::clone(&counts);
        let (proxy, thread) =
            start(format!("proxy {name}"), move |listener| proxy_of(text, listener, told))?;
        Ok(Self { proxy, threads: [thread, agents.1], counts })
    }

    fn measure(&self, requests: usize, connections: usize) -> Result<[f64; 3], Failure> {
        let (cpu_before, probes_before) = (self.cpu()?, self.probes());
        worker_runtime()?.block_on(async {
            let client = Upstream::new(self.proxy, UPSTREAM);
            let mut clients = JoinSet::new();
            for _ in 0..connections {
                let client = client.clone();
                clients.spawn_local(async move {
                    for _ in 0..requests / connections {
                        let request =
                            http::Request::get("/").header("host", "web").body(Body::empty())?;
                        let answer = client.send(request.into()).await?;
                        answer.into_body().collect(100).await?;
                    }
                    Ok::<(), Failure>(())
                });
            }
            while let Some(ended) = clients.join_next().await {
                ended??;
            }
            Ok::<(), Failure>(())
        })?;
        std::thread::sleep(Duration::from_millis(150)); // what was counted is handed up
        let (cpu, probes) = (self.cpu()?, self.probes());
        let by_request =
            |difference: f64| difference / (requests / connections * connections) as f64;
        let [proxy, agents] = [0, 1].map(|thread| by_request(cpu[thread] - cpu_before[thread]));
        Ok([proxy, agents, by_request(probes - probes_before)])
    }

    fn cpu(&self) -> Result<[f64; 2], Failure> {
        let mut nanos = [0.0; 2];
        for (thread, nanos) in self.threads.iter().zip(&mut nanos) {
            let text = std::fs::read_to_string(format!("/proc/{thread}/schedstat"))?;
            *nanos = text.split(' ').next().unwrap_or_default().parse()?;
        }
        Ok(nanos)
    }

    fn probes(&self) -> f64 {
        let counts = self.counts.lock().expect("nobody panics");
        (counts.http.answered + counts.udp.answered) as f64
    }
}

fn agent(address: SocketAddr, app: SocketAddr, udp_probes: bool) -> AgentConfig {
    AgentConfig {
        address,
        app: app.into(),
        concurrency: Some(64),
        queue_max: 1_000,
        queue_timeout: Duration::from_secs(10),
        timeout: Duration::from_secs(10),
        dimmer: None,
        udp_probes,
        limits: LIMITS,
        upstream_limits: UPSTREAM,
        tls: None,
        app_tls: None,
    }
}

async fn proxy_of(
    text: String,
    listener: Listener,
    counts: Arc<Mutex<ProbeCounts>>,
) -> Result<(), Failure> {
    let read = |table: &mut Table<'_>| UpstreamConfig::read("web", table, false).0;
    let config = Node::parse(&text, "example.toml")?.read(read)?;
    let route =
        Route::new(&config, Clock::start(), DispatcherSeed { clients: 1, seed: 1, can_ask: true })?;
    let target = |_| {
        let policy = route.policy(&HttpListenConfig::default(), false);
        Target::new(Rc::clone(&route), policy)
    };
    let routes = RouteTable::new(target(0), &[], target);
    let handler = move |request, client: Rc<Client>| proxy::serve(&routes, request, &client);
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            counts.lock().expect("nobody panics").merge(&route.observe().probes);
        }
    });
    let limits = LiveLimits::new(LIMITS, ListenerFilters::NONE);
    serve_within(listener, &limits, handler, StopSignal::never()).await?;
    Ok(())
}
