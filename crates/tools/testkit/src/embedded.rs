//! A replicated service of its own, for when no server is at hand: real sockets, real agents,
//! service times, speeds and pauses by a plan.
//!
//! Every replica is an application that takes its time to answer, mostly fronted by the agent that
//! users run beside theirs; without one it queues by itself. Its speed, its pauses and what each
//! request costs are given, so policies that are tried one after the other meet the same weather,
//! and the simulator too.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_core::Rng;
use http::{HeaderName, HeaderValue, StatusCode};
use tokio::net::TcpSocket;
use tokio::sync::{Notify, Semaphore, watch};

use crate::fault::{Mishap, What};
use evenkeel_http::{self as engine, Body, Request, Response};
use evenkeel_http_proxy::config::AgentConfig;
use evenkeel_http_proxy::replica;
use evenkeel_runtime::accept::{Listener, worker_runtime};
use evenkeel_runtime::accept::{Stop, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::limits::{BodyLimits, Engine, Http2, ServerLimits, UpstreamLimits};
use evenkeel_runtime::timer::Timer;

/// What the service is like.
#[derive(Clone, Debug)]
pub struct EmbeddedConfig {
    /// Replicas, 1 or more.
    pub replicas: usize,
    /// Requests each serves at once.
    pub concurrency: u32,
    /// Whether an agent is in front of each, which queues for it and reports its load.
    pub agents: bool,
    /// Mean service time at base speed.
    pub service_mean: Duration,
    /// What goes wrong, in the order of time from [`Embedded::begin`].
    pub mishaps: Vec<Mishap>,
    /// What requests cost.
    pub draws: Draws,
}

/// What requests cost: by the path and the replica, for each time that one asks.
#[derive(Clone)]
pub struct Draws(Arc<DrawOf>);

type DrawOf = dyn Fn(&str, usize) -> Draw + Send + Sync;

/// What a request costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Draw {
    /// Work, as a multiple of the mean service time; a request without any takes no slot.
    pub work: f64,
    /// The same without optional content, where it has some.
    pub lean: Option<f64>,
    /// Its luck in [0, 1): below the share of [`What::Fail`] it fails.
    pub luck: f64,
}

impl Draws {
    /// As the function says.
    pub fn by(draw: impl Fn(&str, usize) -> Draw + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    /// Exponential, by a generator of each replica's own.
    pub fn exponential(replicas: usize, seed: u64) -> Self {
        let stream = |number| Rng::stream(seed, &format!("work of replica {number}"));
        let streams: Vec<_> = (0..replicas).map(|number| Mutex::new(stream(number))).collect();
        Self::by(move |_, replica| {
            let mut draws = streams[replica].lock().unwrap_or_else(PoisonError::into_inner);
            Draw { luck: draws.unit(), work: draws.exponential(), lean: None }
        })
    }

    /// What a request at a replica costs.
    pub fn draw(&self, path: &str, replica: usize) -> Draw {
        (self.0)(path, replica)
    }
}

impl fmt::Debug for Draws {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Draws(…)")
    }
}

/// The running service. Dropping it stops it.
#[derive(Debug)]
pub struct Embedded {
    addresses: Vec<SocketAddr>,
    begun: Arc<Notify>,
    stop: Option<Stop>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Embedded {
    /// Starts the replicas on loopback ports that the system chooses, all on one thread.
    ///
    /// # Errors
    /// When a port or a thread is refused.
    pub fn start(config: EmbeddedConfig) -> io::Result<Self> {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bind = |count: usize| -> io::Result<Vec<Listener>> {
            (0..count).map(|_| Listener::bind(any_port)).collect()
        };
        let apps = bind(config.replicas)?;
        let agents = bind(if config.agents { config.replicas } else { 0 })?;
        let fronts = if config.agents { &agents } else { &apps };
        let addresses = fronts.iter().map(Listener::address).collect::<io::Result<Vec<_>>>()?;
        let (begun, stop) = (Arc::new(Notify::new()), Stop::new());
        let (begins, signal) = (Arc::clone(&begun), stop.signal());
        let name = "replicas".to_owned();
        let body = move || worker_runtime()?.block_on(serve(config, apps, agents, begins, signal));
        let thread = std::thread::Builder::new().name(name).spawn(body)?;
        Ok(Self { addresses, begun, stop: Some(stop), thread: Some(thread) })
    }

    /// Begins the plan of mishaps.
    pub fn begin(&self) {
        self.begun.notify_one();
    }

    /// Where the replicas, or their agents, listen, by replica.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its error, if any, showed in the requests that failed.
            let _ = thread.join();
        }
    }
}

/// The body every replica answers a path with: what a test compares with, byte for byte.
pub fn body_of(path: &str) -> String {
    format!("{{\"path\":\"{path}\",\"note\":\"served by an embedded replica of evenkeel\"}}\n")
}

async fn serve(
    config: EmbeddedConfig,
    apps: Vec<Listener>,
    agents: Vec<Listener>,
    begins: Arc<Notify>,
    stop: StopSignal,
) -> io::Result<()> {
    let (clock, timer) = (Clock::start(), Timer::new()?);
    let mut serving = Vec::new();
    let mut replicas = Vec::new();
    let mut agents = agents.into_iter();
    for (number, app) in apps.into_iter().enumerate() {
        let replica = Rc::new(App::new(number, &config, timer.clone()));
        replicas.push(Rc::clone(&replica));
        let address = app.address()?;
        serving.push(tokio::task::spawn_local(live(replica, app, stop.clone())));
        if let Some(agent) = agents.next() {
            let (agent_config, stop) = (agent_of(&config, agent.address()?, address), stop.clone());
            serving.push(tokio::task::spawn_local(async move {
                replica::serve_agent(&agent_config, agent, clock, stop).await.map(drop)
            }));
        }
    }
    tokio::task::spawn_local(follow_plan(replicas, config.mishaps, begins));
    for server in serving {
        server.await.map_err(io::Error::other)??;
    }
    Ok(())
}

/// The life of a replica's process: it serves until it dies, and again when it is restored.
async fn live(app: Rc<App>, mut listener: Listener, mut stop: StopSignal) -> io::Result<()> {
    let address = listener.address()?;
    let mut alive = app.alive.subscribe();
    loop {
        let replica = Rc::clone(&app);
        let handler = move |request, _| Rc::clone(&replica).answer(request);
        // Dropped in the middle, it closes all connections, as a kernel does for a dead process.
        let serving = engine::serve(listener, LIMITS, handler, stop.clone());
        tokio::select! {
            served = serving => return served.map(drop),
            _ = alive.wait_for(|alive| !alive) => {}
        }
        // Nobody listens, and nobody else gets the port: a connection from it would reach itself.
        let held = TcpSocket::new_v4()?;
        held.set_reuseaddr(true)?;
        held.bind(address)?;
        tokio::select! {
            () = stop.stopping() => return Ok(()),
            _ = alive.wait_for(|alive| *alive) => {}
        }
        drop(held);
        listener = Listener::bind(address)?;
    }
}

const MINUTE: Duration = Duration::from_secs(60);

/// Limits that no test or demo of replicas meets.
pub const LIMITS: ServerLimits = ServerLimits {
    head_bytes_max: 16 * 1024,
    body_bytes_max: 1024 * 1024,
    connections_max: 10_000,
    head: MINUTE,
    idle: MINUTE,
    write: MINUTE,
    connection_age: Duration::MAX,
    drain: Duration::from_millis(100),
    engine: Engine::Hyper,
};

/// The same, towards servers.
pub const UPSTREAM_LIMITS: UpstreamLimits = UpstreamLimits {
    connect: Duration::from_secs(1),
    connections_max: 10_000,
    idle_connections_max: 1_000,
    idle: MINUTE,
    head_bytes_max: 16 * 1024,
    body: BodyLimits::DEFAULT,
    http2: Http2::Auto,
    engine: Engine::Hyper,
};

fn agent_of(config: &EmbeddedConfig, address: SocketAddr, app: SocketAddr) -> AgentConfig {
    AgentConfig {
        address,
        app: app.into(),
        concurrency: Some(config.concurrency),
        queue_max: 10_000,
        queue_timeout: MINUTE,
        timeout: MINUTE,
        dimmer: None,
        udp_probes: true,
        limits: LIMITS,
        upstream_limits: UPSTREAM_LIMITS,
        tls: None,
        app_tls: None,
    }
}

/// Whether optional content is wanted, and whether it was served.
const OPTIONAL: &str = "brownout-optional";
const SERVED: HeaderName = HeaderName::from_static("brownout-served");

/// One replica's application.
#[derive(Debug)]
struct App {
    timer: Timer,
    base: Duration,
    speed: Cell<f64>,
    slowdown: Cell<f64>,
    failing_share: Cell<f64>,
    alive: watch::Sender<bool>,
    paused_until: Cell<Instant>,
    /// Time spent paused so far, up to the end of the current pause.
    paused_total: Cell<Duration>,
    number: usize,
    draws: Draws,
    /// What it serves at once, where no agent holds the rest back.
    slots: Option<Semaphore>,
}

impl App {
    fn new(number: usize, config: &EmbeddedConfig, timer: Timer) -> Self {
        Self {
            timer,
            base: config.service_mean,
            speed: Cell::new(1.0),
            slowdown: Cell::new(1.0),
            failing_share: Cell::new(0.0),
            alive: watch::Sender::new(true),
            paused_until: Cell::new(Instant::now()),
            paused_total: Cell::default(),
            number,
            draws: config.draws.clone(),
            slots: (!config.agents).then(|| Semaphore::new(config.concurrency as usize)),
        }
    }

    async fn answer(self: Rc<Self>, request: Request<Body>) -> Response<Body> {
        let Draw { work, lean, luck } = self.draws.draw(request.uri().path(), self.number);
        if luck < self.failing_share.get() {
            let mut response = Response::new(Body::full("this replica fails on purpose\n"));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return response;
        }
        let _slot = match self.slots.as_ref().filter(|_| work > 0.0) {
            Some(slots) => Some(slots.acquire().await.expect("nobody closes it")),
            None => None,
        };
        let is_lean = request.headers().get(OPTIONAL).is_some_and(|wanted| wanted == "?0");
        let work = lean.filter(|_| is_lean).unwrap_or(work);
        let mean = self.base.mul_f64(self.slowdown.get() / self.speed.get());
        let mut due = Instant::now().max(self.paused_until.get()) + mean.mul_f64(work);
        let mut paused = self.paused_total.get();
        self.timer.at(due).await;
        while self.paused_total.get() > paused {
            due += self.paused_total.get() - paused; // pauses struck in the middle
            paused = self.paused_total.get();
            self.timer.at(due).await;
        }
        let mut response = Response::new(Body::full(body_of(request.uri().path())));
        if lean.is_some() {
            let served = HeaderValue::from_static(if is_lean { "?0" } else { "?1" });
            response.headers_mut().insert(SERVED, &served);
        }
        response
    }

    /// Overlapping pauses end at the later end.
    fn pause(&self, at: Instant, length: Duration) {
        let until = at + length;
        let from = self.paused_until.get().max(at);
        if until > from {
            self.paused_total.set(self.paused_total.get() + (until - from));
            self.paused_until.set(until);
        }
    }

    fn suffer(&self, at: Instant, what: What) {
        match what {
            What::Speed(factor) => self.speed.set(factor),
            What::Pause(length) => self.pause(at, length),
            What::Slow(factor) => self.slowdown.set(factor),
            What::Fail(share) => self.failing_share.set(share),
            What::Crash => _ = self.alive.send_replace(false),
            What::Restore => _ = self.alive.send_replace(true),
        }
    }
}

/// Lets happen what was planned, by the clock.
async fn follow_plan(replicas: Vec<Rc<App>>, mishaps: Vec<Mishap>, begins: Arc<Notify>) {
    begins.notified().await;
    let began = Instant::now();
    for Mishap { at, replica, what } in mishaps {
        let at = began + at;
        tokio::time::sleep_until(at.into()).await;
        replicas[replica].suffer(at, what);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    /// A pause delays what it strikes by its length, also when it is over long before the answer.
    #[test]
    fn a_pause_in_the_middle_of_a_request_is_added_to_it() {
        let (mean, length) = (Duration::from_millis(300), Duration::from_millis(100));
        let (at, what) = (Duration::from_millis(100), What::Pause(length));
        let config = EmbeddedConfig {
            replicas: 1,
            concurrency: 1,
            agents: true,
            service_mean: mean,
            mishaps: vec![Mishap { at, replica: 0, what }],
            draws: Draws::by(|_, _| Draw { work: 1.1, lean: None, luck: 0.0 }),
        };
        let service = Embedded::start(config).unwrap();
        let mut stream = TcpStream::connect(service.addresses()[0]).unwrap();
        service.begin();
        let began = Instant::now();
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (spent, expected) = (began.elapsed(), mean.mul_f64(1.1) + length);
        assert!(answer.ends_with(&body_of("/")), "{answer}");
        assert!(spent >= expected, "{spent:?}, expected {expected:?}");
    }

    #[test]
    fn a_replica_without_an_agent_serves_as_many_at_once_as_it_may() {
        let mean = Duration::from_millis(50);
        let config = EmbeddedConfig {
            replicas: 1,
            concurrency: 1,
            agents: false,
            service_mean: mean,
            mishaps: Vec::new(),
            draws: Draws::exponential(1, 1),
        };
        let mut draws = Rng::stream(1, "work of replica 0");
        let mut work = || (draws.unit(), draws.exponential()).1;
        let expected = mean.mul_f64(work()) + mean.mul_f64(work()) + mean.mul_f64(work());
        let service = Embedded::start(config).unwrap();
        let began = Instant::now();
        let mut streams: Vec<_> =
            (0..3).map(|_| TcpStream::connect(service.addresses()[0]).unwrap()).collect();
        for stream in &mut streams {
            stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
        }
        for stream in &mut streams {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with(&body_of("/")), "{answer}");
        }
        let spent = began.elapsed();
        assert!(spent >= expected, "{spent:?}, expected {expected:?} one after another");
    }

    fn ask(address: SocketAddr, header: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(format!("GET /item/1 HTTP/1.0\r\n{header}\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    }

    #[test]
    fn a_replica_that_dies_breaks_its_connections_and_comes_back_at_its_address() {
        let mishap = |at_ms, what| Mishap { at: Duration::from_millis(at_ms), replica: 0, what };
        let config = EmbeddedConfig {
            replicas: 1,
            concurrency: 1,
            agents: false,
            service_mean: Duration::from_secs(3_600),
            mishaps: vec![mishap(200, What::Crash), mishap(3_000, What::Restore)],
            draws: Draws::by(|_, _| Draw { work: 1.0, lean: Some(0.0), luck: 1.0 }),
        };
        let service = Embedded::start(config).unwrap();
        let address = service.addresses()[0];
        let lean = ask(address, "Brownout-Optional: ?0\r\n").unwrap().to_ascii_lowercase();
        assert!(lean.contains("brownout-served: ?0") && lean.ends_with(&body_of("/item/1")));
        service.begin();
        // It would take an hour, and the connection breaks when the replica dies.
        let broken = ask(address, "");
        assert!(broken.as_ref().map_or(true, String::is_empty), "{broken:?}");
        let dead = TcpStream::connect(address).unwrap_err();
        assert_eq!(dead.kind(), io::ErrorKind::ConnectionRefused);
        let began = Instant::now();
        while ask(address, "Brownout-Optional: ?0\r\n").is_err() {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not come back");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
