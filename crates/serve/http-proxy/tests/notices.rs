//! Requests that wait at a real agent, and move as it tells so: with a real proxy, and through a
//! relay that does to datagrams what networks do.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use evenkeel_http::{Body, Client, Request, Response, Upstream, serve};
use evenkeel_http_proxy::agent_state::AgentState;
use evenkeel_http_proxy::config::AgentConfig;
use evenkeel_http_proxy::replica::Agent;
use evenkeel_http_proxy::route::Route;
use evenkeel_proxy::upstream_state::ProbeCounts;
use evenkeel_runtime::accept::{Listener, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::limits::{Engine, ServerLimits, UpstreamLimits};
use evenkeel_settings::{Node, Table};
use evenkeel_testkit::relay::Relay;
use evenkeel_testkit::story::{LIMITS, MS, UPSTREAM, story};
use evenkeel_testkit::wait::until;
use http::{Method, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use self::common::proxy_before;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// By which a request asks for a notice, and which is nobody else's business.
const HEADER: &str = "evenkeel-notice";
/// In the place of the kind of a datagram.
const NOTICE: u8 = 3;
/// Requests of others at the replica that the policy prefers.
const OTHERS: u32 = 90;
/// It never asks before a request, never spreads and forgives: who has the lower service time is
/// chosen as long as nobody says that it has much to do.
const POLICY: &str = "adaptive:stale=1e6,spread=0,failing=0";

/// An application that serves one request after the other, and stands still where it is told to.
struct App {
    name: &'static str,
    takes: Duration,
    came: RefCell<Vec<String>>,
    /// While it stands still.
    is_held: Cell<bool>,
    go_on: Semaphore,
}

impl App {
    async fn answer(self: Rc<Self>, request: Request<Body>) -> Response<Body> {
        assert!(!request.headers().contains(HEADER), "{:?}", request.headers());
        self.came.borrow_mut().push(request.uri().path().to_owned());
        tokio::time::sleep(self.takes).await;
        if self.is_held.get() {
            drop(self.go_on.acquire().await);
        }
        Response::new(Body::full(self.name))
    }

    fn hold(&self) {
        self.is_held.set(true);
    }

    fn release(&self) {
        self.is_held.set(false);
        self.go_on.close();
    }

    fn has_seen(&self, path: &str) -> bool {
        self.came.borrow().iter().any(|came| came == path)
    }
}

/// An agent before an application. Dropping it kills both.
struct Replica {
    app: Rc<App>,
    agent: Rc<Agent>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Replica {
    fn start(name: &'static str, takes: Duration, engine: Engine) -> Self {
        Self::at(Listener::bind((V4, 0).into()).unwrap(), (name, takes, engine))
    }

    fn at(listener: Listener, (name, takes, engine): (&'static str, Duration, Engine)) -> Self {
        let mut tasks = JoinSet::new();
        let app_at = Listener::bind((V4, 0).into()).unwrap();
        let (address, app_address) = (listener.address().unwrap(), app_at.address().unwrap());
        let config = AgentConfig {
            address,
            app: app_address.into(),
            concurrency: Some(1),
            queue_max: 100,
            queue_timeout: Duration::from_secs(30),
            timeout: Duration::from_secs(30),
            dimmer: None,
            udp_probes: true,
            limits: ServerLimits { engine, ..LIMITS },
            upstream_limits: UPSTREAM,
            tls: None,
            app_tls: None,
        };
        let (came, go_on) = (RefCell::default(), Semaphore::new(0));
        let app = Rc::new(App { name, takes, came, is_held: Cell::new(false), go_on });
        let its = Rc::clone(&app);
        let answer = move |request, _: Rc<Client>| Rc::clone(&its).answer(request);
        tasks.spawn_local(async move {
            drop(serve(app_at, LIMITS, answer, StopSignal::never()).await);
        });
        let agent = Agent::new(&config, Clock::start());
        let its = Rc::clone(&agent);
        tasks.spawn_local(async move { drop(its.serve(listener, StopSignal::never()).await) });
        Self { app, agent, address, _tasks: tasks }
    }

    fn state(&self) -> AgentState {
        self.agent.state()
    }

    /// Takes the only slot, and fills the queue, without the proxy's knowing.
    async fn occupy(&self) -> Vec<JoinHandle<StatusCode>> {
        self.occupy_by(OTHERS).await
    }

    async fn occupy_by(&self, others: u32) -> Vec<JoinHandle<StatusCode>> {
        self.app.hold();
        let client = Upstream::new(self.address, UPSTREAM);
        let asking = (0..others).map(|_| {
            let client = client.clone();
            let asking =
                async move { ask(&client, (Method::GET, "/other"), Body::empty()).await.0 };
            tokio::task::spawn_local(asking)
        });
        let asking = asking.collect();
        let is_full = || (self.state().in_service, self.state().waiting) == (1, others - 1);
        until("others wait", is_full).await;
        asking
    }

    /// Lets it go on until nobody waits.
    async fn finish(&self, others: Vec<JoinHandle<StatusCode>>) {
        self.app.release();
        for other in others {
            assert_eq!(other.await.unwrap(), StatusCode::OK, "requests of others are served");
        }
        until("all is done", || (self.state().in_service, self.state().waiting) == (0, 0)).await;
    }
}

/// Two replicas, of which the first is faster, hence preferred.
struct Pair {
    fast: Replica,
    slow: Replica,
}

impl Pair {
    fn start() -> Self {
        Self::of(Engine::Hyper)
    }

    fn of(engine: Engine) -> Self {
        let fast = Replica::start("fast", 3 * MS, engine);
        Self { fast, slow: Replica::start("slow", 60 * MS, engine) }
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        [self.fast.address, self.slow.address]
    }

    fn notices(&self) -> [u64; 2] {
        [&self.fast, &self.slow].map(|it| it.state().probes.notices)
    }
}

/// A proxy, and a client of it.
struct Proxy {
    route: Rc<Route>,
    client: Upstream,
    counted: RefCell<(ProbeCounts, [u64; 3])>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    fn before(replicas: &[SocketAddr]) -> Self {
        Self::with(replicas, POLICY, |_| ())
    }

    fn with(replicas: &[SocketAddr], policy: &str, change: impl Fn(&mut UpstreamLimits)) -> Self {
        // Nobody is asked beside a replica that takes long: on a busy machine all do.
        let lines = format!("policy = '{policy}'\nretries_max = 0\n");
        let (route, client, tasks) = proxy_before(replicas, &lines, change);
        Self { route, client, counted: RefCell::default(), _tasks: tasks }
    }

    /// What came of datagrams so far; and moves, retries and requests in flight.
    fn counts(&self) -> (ProbeCounts, [u64; 3]) {
        let report = self.route.observe();
        let (probes, [moves, retries, in_flight]) = &mut *self.counted.borrow_mut();
        probes.merge(&report.probes);
        *moves += report.window.moves;
        *retries += report.window.retries;
        *in_flight = report.replicas.iter().map(|it| u64::from(it.in_flight)).sum();
        (*probes, [*moves, *retries, *in_flight])
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        ask(&self.client, (Method::GET, path), Body::empty()).await
    }

    fn begin(&self, method: Method, path: &'static str) -> JoinHandle<(StatusCode, String)> {
        let client = self.client.clone();
        tokio::task::spawn_local(async move { ask(&client, (method, path), Body::empty()).await })
    }

    /// Sends requests until something holds, with pauses: who has just answered is asked for
    /// nothing, and the policy asks after a second. Others show meanwhile how fast the fast one is,
    /// which a busy machine may have made slow once.
    async fn until(&self, what: &str, pair: &Pair, holds: impl Fn(&str) -> bool) {
        let direct = Upstream::new(pair.fast.address, UPSTREAM);
        for _ in 0..20 {
            for _ in 0..3 {
                let other = ask(&direct, (Method::GET, "/other"), Body::empty()).await;
                assert_eq!(other.0, StatusCode::OK);
            }
            until("nobody is served", || pair.fast.state().in_service == 0).await;
            let (status, by) = self.get("/next").await;
            assert_eq!(status, StatusCode::OK);
            for _ in 0..250 {
                if holds(&by) {
                    return;
                }
                tokio::time::sleep(5 * MS).await;
            }
        }
        panic!("not {what}: {:?}", self.counts());
    }

    /// Both agents have answered datagrams, and the fast one is preferred. Counts begin anew.
    async fn until_ready(&self, pair: &Pair) {
        let asked = || [&pair.fast, &pair.slow].map(|it| it.state().probes.answered);
        let (before, heard_before) = (asked(), self.counts().0.udp.answered);
        let is_ready = |by: &str| {
            let [fast, slow] = [0, 1].map(|it| asked()[it] - before[it]);
            let heard = self.counts().0.udp.answered - heard_before;
            fast.min(slow) > 0 && heard > fast.max(slow) && by == "fast"
        };
        // The last thing that is heard of the fast one is that it has nothing to do: answers to
        // questions may be of the moment when it served the request beside which they were asked.
        loop {
            self.until("ready", pair, is_ready).await;
            if self.get("/next").await.1 == "fast" {
                break;
            }
        }
        until("nobody is served", || pair.fast.state().in_service == 0).await;
        self.counted.take();
    }
}

async fn ask(
    client: &Upstream,
    (method, path): (Method, &str),
    body: Body,
) -> (StatusCode, String) {
    let request = http::Request::builder().method(method).uri(path).header("host", "web");
    let answer = client.send(request.body(body).unwrap().into()).await.unwrap();
    let (head, body) = answer.into_parts();
    let body = body.collect(1 << 20).await.unwrap();
    (head.status, String::from_utf8(body.to_vec()).unwrap())
}

/// Passes on as it is.
fn at_once(bytes: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
    vec![(Duration::ZERO, bytes)]
}

fn is_notice(is_to_agent: bool, bytes: &[u8]) -> bool {
    !is_to_agent && bytes[3] == NOTICE
}

/// A request that must wait is answered elsewhere, and its first replica's application never sees
/// it.
async fn moves_and_is_given_up(engine: Engine, http2: &str) {
    let pair = Pair::of(engine);
    let text = format!("http2 = {http2}");
    let read = |table: &mut Table<'_>| evenkeel_runtime::limits::Http2::read(table.key("http2"));
    let http2 = Node::parse(&text, "test.toml").unwrap().read(read).unwrap();
    let change = |limits: &mut UpstreamLimits| (limits.engine, limits.http2) = (engine, http2);
    let proxy = Proxy::with(&pair.addresses(), POLICY, change);
    proxy.until_ready(&pair).await;
    let others = pair.fast.occupy().await;
    pair.slow.app.hold();
    let moving = proxy.begin(Method::GET, "/moved");
    until("it has moved", || pair.slow.app.has_seen("/moved")).await;
    let is_gone = || pair.fast.state().waiting == OTHERS - 1;
    until("it has left the queue before anybody answers", is_gone).await;
    pair.fast.finish(others).await;
    pair.slow.app.release();
    assert_eq!(moving.await.unwrap(), (StatusCode::OK, "slow".to_owned()));
    assert!(!pair.fast.app.has_seen("/moved") && pair.slow.app.has_seen("/moved"));
    let (probes, counts) = proxy.counts();
    assert_eq!((pair.notices(), probes.notices, counts), ([1, 0], 1, [1, 0, 0]));
    assert_eq!(probes.invalid, 0);
}

#[test]
fn a_request_that_must_wait_moves_and_never_reaches_its_first_application() {
    for (engine, http2) in
        [(Engine::Hyper, "false"), (Engine::Native, "false"), (Engine::Hyper, "true")]
    {
        story(moves_and_is_given_up(engine, http2));
    }
}

/// A request is answered where it waits, and nobody was asked to tell.
async fn waits_where_it_is(policy: &str, method: Method) {
    let pair = Pair::start();
    let proxy = Proxy::with(&pair.addresses(), policy, |_| ());
    proxy.until_ready(&pair).await;
    let others = pair.fast.occupy().await;
    let waiting = proxy.begin(method, "/waits");
    until("it waits", || pair.fast.state().waiting == OTHERS).await;
    pair.fast.finish(others).await;
    assert_eq!(waiting.await.unwrap(), (StatusCode::OK, "fast".to_owned()));
    assert!(!pair.slow.app.has_seen("/waits"));
    assert_eq!((pair.notices(), proxy.counts().1), ([0, 0], [0, 0, 0]));
}

#[test]
fn a_request_that_may_not_be_sent_twice_asks_for_no_notice_and_waits() {
    story(waits_where_it_is(POLICY, Method::POST));
}

#[test]
fn policies_that_move_nothing_ask_for_no_notices() {
    story(waits_where_it_is(&format!("{POLICY},moves=off"), Method::GET));
    story(async {
        for policy in ["c3", "prequal"] {
            let pair = Pair::start();
            let proxy = Proxy::with(&pair.addresses(), policy, |_| ());
            (0..30).for_each(|_| drop(proxy.begin(Method::GET, "/first")));
            until("some wait", || pair.fast.state().waiting + pair.slow.state().waiting > 0).await;
            until("all is done", || proxy.counts().1[2] == 0).await;
            assert_eq!((pair.notices(), proxy.counts().1[0]), ([0, 0], 0), "{policy}");
        }
    });
}

#[test]
fn without_datagrams_no_notice_is_asked_for_and_requests_wait() {
    story(async {
        let pair = Pair::start();
        let relays = [&pair.fast, &pair.slow].map(|it| Relay::before(it.address));
        let [fast, slow] = relays;
        let (fast, slow) = (fast.await, slow.await);
        fast.change(|_, _| Vec::new());
        slow.change(|_, _| Vec::new());
        let proxy = Proxy::before(&[fast.address(), slow.address()]);
        for _ in 0..50 {
            assert_eq!(proxy.get("/first").await.0, StatusCode::OK);
        }
        let others = pair.fast.occupy().await;
        let waiting = proxy.begin(Method::GET, "/waits");
        until("it waits", || pair.fast.state().waiting == OTHERS).await;
        pair.fast.finish(others).await;
        assert_eq!(waiting.await.unwrap(), (StatusCode::OK, "fast".to_owned()));
        assert_eq!((pair.notices(), proxy.counts().1[0]), ([0, 0], 0));
    });
}

/// A pair, with a relay before the fast one, and a proxy.
async fn behind_a_relay() -> (Pair, Relay, Proxy) {
    let pair = Pair::start();
    let relay = Relay::before(pair.fast.address).await;
    let proxy = Proxy::before(&[relay.address(), pair.slow.address]);
    proxy.until_ready(&pair).await;
    (pair, relay, proxy)
}

#[test]
fn a_request_whose_notice_is_lost_waits_and_one_that_comes_late_changes_nothing() {
    story(async {
        let (pair, relay, proxy) = behind_a_relay().await;
        let kept: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let (keeping, is_late) = (Rc::clone(&kept), Rc::new(Cell::new(false)));
        let comes = Rc::clone(&is_late);
        relay.change(move |is_to_agent, bytes| {
            if is_notice(is_to_agent, &bytes) {
                keeping.borrow_mut().push(bytes);
                return Vec::new();
            }
            let late = if comes.get() && !is_to_agent { keeping.take() } else { Vec::new() };
            late.into_iter().chain([bytes]).flat_map(at_once).collect()
        });
        let others = pair.fast.occupy().await;
        let waiting = proxy.begin(Method::GET, "/waits");
        until("it waits, and its notice is lost", || kept.borrow().len() == 1).await;
        assert_eq!(pair.fast.state().waiting, OTHERS);
        pair.fast.finish(others).await;
        assert_eq!(waiting.await.unwrap(), (StatusCode::OK, "fast".to_owned()));
        is_late.set(true);
        proxy.until("too late", &pair, |_| proxy.counts().0.unexpected > 0).await;
        let (probes, counts) = proxy.counts();
        assert_eq!((probes.notices, counts), (0, [0, 0, 0]));
        assert!(kept.borrow().is_empty() && !pair.slow.app.has_seen("/waits"));
    });
}

#[test]
fn forged_and_doubled_notices_move_nothing_and_the_true_one_moves_once() {
    story(async {
        let (pair, relay, proxy) = behind_a_relay().await;
        relay.change(|is_to_agent, bytes| {
            if !is_notice(is_to_agent, &bytes) {
                return at_once(bytes);
            }
            let changed = |place: usize| {
                let mut changed = bytes.clone();
                changed[place] ^= 4;
                changed
            };
            // Another version, kind, key, report, tag; too short, too long; of another request.
            let mut forged: Vec<_> = [2, 3, 5, 30, 80, 15].map(changed).to_vec();
            forged.push(bytes[..bytes.len() - 1].to_vec());
            forged.push([&bytes[..], b"x"].concat());
            let mut sent: Vec<_> = forged.into_iter().flat_map(at_once).collect();
            sent.extend([10, 20, 30].map(|ms| (ms * MS, bytes.clone())));
            sent
        });
        let others = pair.fast.occupy().await;
        assert_eq!(proxy.get("/moved").await, (StatusCode::OK, "slow".to_owned()));
        let dropped = || (proxy.counts().0.invalid, proxy.counts().0.unexpected);
        until("all came", || dropped().0 == 7 && dropped().1 >= 3).await;
        let (probes, counts) = proxy.counts();
        assert_eq!((probes.notices, counts), (1, [1, 0, 0]));
        pair.fast.finish(others).await;
        assert!(!pair.fast.app.has_seen("/moved"));
    });
}

#[test]
fn a_notice_that_comes_twice_is_heard_once() {
    story(async {
        let (pair, relay, proxy) = behind_a_relay().await;
        relay.change(|is_to_agent, bytes| match is_notice(is_to_agent, &bytes) {
            true => [at_once(bytes.clone()), at_once(bytes)].concat(),
            false => at_once(bytes),
        });
        // One is before it: it is served sooner than elsewhere.
        let others = pair.fast.occupy_by(1).await;
        let waiting = proxy.begin(Method::GET, "/waits");
        let heard = || proxy.counts().0;
        until("both came", || heard().notices + heard().unexpected >= 2).await;
        assert_eq!((heard().notices, pair.fast.state().waiting), (1, 1));
        pair.fast.finish(others).await;
        assert_eq!(waiting.await.unwrap(), (StatusCode::OK, "fast".to_owned()));
        assert_eq!(proxy.counts().1, [0, 0, 0]);
    });
}

#[test]
fn an_agent_that_is_killed_and_restarted_gives_notices_again_and_old_ones_are_dropped() {
    story(async {
        let (pair, relay, proxy) = behind_a_relay().await;
        let kept: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
        let keeping = Rc::clone(&kept);
        relay.change(move |is_to_agent, bytes| {
            if is_notice(is_to_agent, &bytes) {
                keeping.borrow_mut().push(bytes);
                return Vec::new();
            }
            at_once(bytes)
        });
        let others = pair.fast.occupy().await;
        let waiting = proxy.begin(Method::GET, "/waits");
        until("it waits", || kept.borrow().len() == 1).await;
        let Pair { fast, slow } = pair;
        let address = fast.address;
        drop(fast);
        others.iter().for_each(JoinHandle::abort);
        assert_eq!(waiting.await.unwrap().0, StatusCode::BAD_GATEWAY);
        let again = Listener::bind(address).unwrap();
        let pair = Pair { fast: Replica::at(again, ("fast", 3 * MS, Engine::Hyper)), slow };
        // What the agent before it said comes with all that this one says.
        let stale = kept.take();
        relay.change(move |is_to_agent, bytes| {
            let stale = if is_to_agent { Vec::new() } else { stale.clone() };
            stale.into_iter().chain([bytes]).flat_map(at_once).collect()
        });
        proxy.until_ready(&pair).await;
        assert_eq!(proxy.counts().1[0], 0);
        let others = pair.fast.occupy().await;
        assert_eq!(proxy.get("/moved").await, (StatusCode::OK, "slow".to_owned()));
        pair.fast.finish(others).await;
        assert!(!pair.fast.app.has_seen("/moved"));
        let (probes, counts) = proxy.counts();
        assert_eq!((probes.notices, counts[0], pair.notices()), (1, 1, [1, 0]));
        assert!(probes.unexpected > 0 && probes.invalid == 0, "{probes:?}");
    });
}

#[test]
fn who_has_no_agent_is_asked_for_no_notice_and_strangers_get_none() {
    story(async {
        // The application is the replica, and would see the header.
        let pair = Pair::start();
        let app = Rc::clone(&pair.fast.app);
        let plain = Listener::bind((V4, 0).into()).unwrap();
        let address = plain.address().unwrap();
        let answer = move |request, _: Rc<Client>| Rc::clone(&app).answer(request);
        let serving = serve(plain, LIMITS, answer, StopSignal::never());
        let serving = tokio::task::spawn_local(async move { drop(serving.await) });
        let proxy = Proxy::before(&[address, pair.slow.address]);
        for _ in 0..100 {
            assert_eq!(proxy.get("/plain").await.0, StatusCode::OK);
        }
        assert!(pair.fast.app.has_seen("/plain"));
        serving.abort();
        // What is no wish of a key's owner is taken off all the same.
        let others = pair.fast.occupy().await;
        let client = Upstream::new(pair.fast.address, UPSTREAM);
        for wish in ["", "1", "00000000 0000000000000000 0000000000000001"] {
            let request =
                http::Request::get("/stranger").header("host", "web").header(HEADER, wish);
            let request = request.body(Body::empty()).unwrap();
            let client = client.clone();
            tokio::task::spawn_local(async move { drop(client.send(request.into()).await) });
        }
        until("they wait", || pair.fast.state().waiting == OTHERS + 2).await;
        pair.fast.finish(others).await;
        assert!(pair.fast.app.has_seen("/stranger"));
        assert_eq!((pair.notices(), proxy.counts().1[0]), ([0, 0], 0));
    });
}
