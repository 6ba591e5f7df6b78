//! Brownout between real sockets: who decides, what is told, what a slow, a hung and a lying
//! replica do, and that every request that came has also left.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_http::{Body, Client, Fields, Request, Response, Upstream, serve};
use evenkeel_http_proxy::agent_state::BrownoutState;
use evenkeel_http_proxy::config::Switch;
use evenkeel_http_proxy::replica::{Agent, PROBE_PATH};
use evenkeel_runtime::accept::Listener;
use evenkeel_runtime::accept::{Stop, StopSignal};
use evenkeel_runtime::clock::Clock;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::story::{LIMITS, MS, UPSTREAM, story};
use evenkeel_testkit::wait::found;
use http::{HeaderName, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

async fn until(what: &str, is_true: impl AsyncFn() -> bool) {
    found(what, async || is_true().await.then_some(())).await;
}

// ---- the application ---------------------------------------------------------------------------

/// An application with one core that obeys the header.
#[derive(Clone)]
struct App(Rc<AppState>);

struct AppState {
    address: SocketAddr,
    core: Semaphore,
    full: Cell<Duration>,
    lean: Cell<Duration>,
    is_hung: Cell<bool>,
    status: Cell<StatusCode>,
    /// What it puts on its answers.
    says: RefCell<Fields>,
    came: RefCell<Vec<Fields>>,
}

impl App {
    fn start() -> App {
        App::start_at((Ipv4Addr::LOCALHOST, 0).into(), StopSignal::never()).0
    }

    /// An application, and who waits until it has stopped.
    fn start_at(address: SocketAddr, stop: StopSignal) -> (App, JoinHandle<()>) {
        let listener = Listener::bind(address).unwrap();
        let app = App(Rc::new(AppState {
            address: listener.address().unwrap(),
            core: Semaphore::new(1),
            full: Cell::default(),
            lean: Cell::default(),
            is_hung: Cell::new(false),
            status: Cell::default(),
            says: RefCell::default(),
            came: RefCell::default(),
        }));
        let state = Rc::clone(&app.0);
        let handler = move |request, _: Rc<Client>| Rc::clone(&state).answer(request);
        let serving = tokio::task::spawn_local(async move {
            drop(serve(listener, LIMITS, handler, stop).await);
        });
        (app, serving)
    }

    /// What its answers say from now on.
    fn say(&self, lines: &[(&'static str, &'static str)]) {
        let mut says = Fields::new();
        for (name, value) in lines {
            says.append(HeaderName::from_static(name), &value.parse().unwrap());
        }
        *self.0.says.borrow_mut() = says;
    }

    /// The lines of the header that decides on the last request that came.
    fn reported(&self) -> Vec<String> {
        let came = self.0.came.borrow();
        let lines = came.last().unwrap().get_all("brownout-optional");
        lines.map(|line| line.to_str().unwrap().to_owned()).collect()
    }

    fn came(&self) -> usize {
        self.0.came.borrow().len()
    }
}

impl AppState {
    async fn answer(self: Rc<Self>, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        self.came.borrow_mut().push(head.headers.clone());
        let is_lean = head.headers.get("brownout-optional").is_some_and(|value| value == "?0");
        drop(body.collect(1 << 20).await);
        let core = self.core.acquire().await.unwrap();
        if self.is_hung.get() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(if is_lean { self.lean.get() } else { self.full.get() }).await;
        drop(core);
        let mut response = Response::new(Body::full(if is_lean { "lean" } else { "full" }));
        *response.status_mut() = self.status.get();
        *response.headers_mut() = self.says.borrow().clone();
        response
    }
}

// ---- whoever asks ------------------------------------------------------------------------------

#[derive(Clone)]
struct Asker(Upstream);

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Fields,
    body: String,
}

impl Answer {
    fn says(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    fn dimmer(&self) -> f64 {
        self.says("brownout-dimmer").expect("an agent with a dimmer tells it").parse().unwrap()
    }
}

impl Asker {
    fn of(address: SocketAddr) -> Asker {
        Asker(Upstream::new(address, UPSTREAM))
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let (head, body) = self.0.send(request).await.unwrap().into_parts();
        let body = body.collect(1 << 20).await.unwrap();
        let body = String::from_utf8(body.to_vec()).unwrap();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    async fn with(&self, path: &str, lines: &[(&str, &str)]) -> Answer {
        let request = http::Request::get(path).header("host", "localhost");
        let request =
            lines.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        self.send(request.body(Body::empty()).unwrap().into()).await
    }

    async fn ask(&self) -> Answer {
        self.with("/item/1", &[]).await
    }

    fn spawn(&self) -> JoinHandle<Answer> {
        let asker = self.clone();
        tokio::task::spawn_local(async move { asker.ask().await })
    }

    /// Asks at this pace for this long, whether answers come or not.
    async fn load(&self, gap: Duration, length: Duration) -> Vec<Answer> {
        let (began, mut asked) = (Instant::now(), Vec::new());
        while began.elapsed() < length {
            asked.push(self.spawn());
            let next = began + gap * asked.len() as u32;
            tokio::time::sleep_until(next.into()).await;
        }
        let mut answers = Vec::new();
        for answer in asked {
            answers.push(answer.await.unwrap());
        }
        answers
    }
}

// ---- what runs ---------------------------------------------------------------------------------

fn config(text: &str) -> Config {
    Config::read(&Node::parse(text, "test.toml").unwrap()).unwrap_or_else(|all| panic!("{all}"))
}

fn agent_text(app: SocketAddr, more: &str) -> String {
    format!("[[agent]]\nlisten = '127.0.0.1:0'\napp = '{app}'\n{more}\n")
}

/// An agent on this thread, and who asks it.
fn agent_before(app: SocketAddr, more: &str) -> (Rc<Agent>, Asker) {
    let config = config(&agent_text(app, more));
    let listener = Listener::bind(config.agents[0].common.address).unwrap();
    let asker = Asker::of(listener.address().unwrap());
    let agent = Agent::new(&config.agents[0].common, Clock::start());
    let serving = Rc::clone(&agent).serve(listener, StopSignal::never());
    tokio::task::spawn_local(async { drop(serving.await) });
    (agent, asker)
}

fn state(agent: &Agent) -> BrownoutState {
    agent.state().brownout.unwrap()
}

/// A proxy before these replicas.
fn proxy_before(replicas: &[SocketAddr], listen: &str, upstream: &str) -> (Process, Asker) {
    let replicas: Vec<_> = replicas.iter().map(|replica| format!("'{replica}'")).collect();
    let text = format!(
        "[process]\nworkers = 1\ndrain = '1s'\n[[listen]]\naddress = '127.0.0.1:0'\n\
         upstream = 'shop'\n{listen}\n[upstream.shop]\nreplicas = [{}]\n{upstream}\n\
         [admin]\naddress = '127.0.0.1:0'\n",
        replicas.join(", ")
    );
    let process = Process::start(config(&text)).unwrap();
    let asker = Asker::of(process.listens()[0]);
    (process, asker)
}

/// The value of a series in what the process exposes.
async fn metric(process: &Process, series: &str) -> Option<f64> {
    let admin = Asker::of(process.admin().unwrap());
    let answer = admin.with("/metrics", &[]).await;
    let line = answer.body.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

// ---- who decides -------------------------------------------------------------------------------

#[test]
fn a_listener_strips_decisions_unless_it_trusts_its_clients() {
    story(async {
        let app = App::start();
        let came = [("brownout-optional", "?0;comments"), ("brownout_optional", "?0")];
        let (strict, asker) = proxy_before(&[app.0.address], "", "");
        assert_eq!(asker.with("/", &came).await.status, 200);
        assert!(app.reported().is_empty(), "{:?}", app.reported());
        assert!(!app.0.came.borrow()[0].contains("brownout_optional"), "nor its lookalike");
        let (trusting, asker) = proxy_before(&[app.0.address], "brownout = 'trust'", "");
        asker.with("/", &came).await;
        assert_eq!(app.reported(), ["?0;comments"]);
        strict.stop().unwrap();
        trusting.stop().unwrap();
    });
}

#[test]
fn an_agent_decides_itself_unless_it_is_told_to_obey() {
    story(async {
        let app = App::start();
        let (_agent, deciding) = agent_before(app.0.address, "[agent.dimmer]");
        for came in [&[("brownout-optional", "?0"), ("brownout_optional", "?0")][..], &[]] {
            assert_eq!(deciding.with("/", came).await.dimmer(), 1.0);
            assert_eq!(app.reported(), ["?1"], "{came:?}");
            assert!(!app.0.came.borrow()[0].contains("brownout_optional"));
        }
        let obeying = "[agent.dimmer]\ninbound = 'obey'\nparts = ['recommendations', 'comments']";
        let (agent, obeying) = agent_before(app.0.address, obeying);
        for (came, reported) in [
            (&[("brownout-optional", "?0;comments")][..], "?0;comments"),
            (&[("brownout-optional", "?1;advertising=?0")], "?1;advertising=?0"),
            (&[("brownout-optional", "?0")], "?0"),
            (&[("brownout-optional", "?0"), ("brownout-optional", "?0")], "?1"),
            (&[("brownout-optional", "no")], "?1"),
            (&[], "?1"),
        ] {
            obeying.with("/", came).await;
            assert_eq!(app.reported(), [reported], "{came:?}");
        }
        let state = state(&agent).state;
        assert_eq!((state.full, state.reduced), (4, 2), "what it knows no part of is full");
        // The switch is about its own decisions.
        agent.set_switch(Switch::Lean);
        obeying.with("/", &[("brownout-optional", "?1")]).await;
        assert_eq!(app.reported(), ["?1"]);
        obeying.ask().await;
        assert_eq!(app.reported(), ["?0"]);
    });
}

#[test]
fn an_agent_without_a_dimmer_says_and_changes_nothing() {
    story(async {
        let app = App::start();
        app.say(&[("brownout-dimmer", "0.4"), ("brownout-served", "?0"), ("etag", "\"1\"")]);
        let (agent, asker) = agent_before(app.0.address, "");
        let answer = asker.with("/", &[("brownout-optional", "?0")]).await;
        assert_eq!(app.reported(), ["?0"]);
        assert_eq!(answer.says("brownout-dimmer"), Some("0.4"), "the application's own");
        assert_eq!((answer.says("etag"), answer.says("cache-control")), (Some("\"1\""), None));
        assert!(agent.state().brownout.is_none());
    });
}

#[test]
fn only_routes_with_optional_content_are_decided_for() {
    story(async {
        let app = App::start();
        app.say(&[("etag", "\"1\"")]);
        let dimmer = "[agent.dimmer]\nroutes = ['/item/', '/search']\nswitch = 'lean'";
        let (agent, asker) = agent_before(app.0.address, dimmer);
        for (path, reported) in [
            ("/item/5?page=2", Some("?0")),
            ("/searching", Some("?0")),
            ("/item", None),
            ("/style.css", None),
        ] {
            let answer = asker.with(path, &[("brownout-optional", "?1")]).await;
            assert_eq!(app.reported().first().map(String::as_str), reported, "{path}");
            assert_eq!(answer.says("etag").is_some(), reported.is_none(), "{path}");
        }
        let state = state(&agent).state;
        assert_eq!((state.full, state.reduced, state.present), (0, 2, 0));
    });
}

// ---- what is told ------------------------------------------------------------------------------

#[test]
fn the_dimmer_is_told_to_proxies_and_the_rest_to_clients() {
    story(async {
        let app = App::start();
        app.say(&[("x-dimmer", "0.2"), ("x-withoptional", "1")]);
        let (agent, direct) = agent_before(app.0.address, "concurrency = 4\n[agent.dimmer]");
        let answer = direct.ask().await;
        assert_eq!((answer.says("brownout-dimmer"), answer.says("x-dimmer")), (Some("1.0"), None));
        let report = answer.says("endpoint-load-metrics").unwrap();
        assert!(report.contains("named_metrics.brownout.dimmer=1,"), "{report}");
        assert!(report.ends_with("named_metrics.brownout.shortfall=0.000001"), "{report}");
        assert_eq!(answer.says("brownout-served"), Some("?1"), "in the words of today");
        agent.set_switch(Switch::Lean);
        let probe = direct.with(PROBE_PATH, &[]).await;
        assert_eq!((probe.status, probe.dimmer()), (204, 0.0));
        let report = probe.says("endpoint-load-metrics").unwrap();
        assert!(
            report.ends_with("brownout.dimmer=0,named_metrics.brownout.shortfall=1"),
            "{report}"
        );

        let (process, asker) =
            proxy_before(&[direct.0.address().inet().unwrap()], "", "policy = 'round-robin'");
        app.say(&[("brownout-served", "?0")]);
        let answer = asker.ask().await;
        assert_eq!((answer.body.as_str(), answer.says("brownout-served")), ("lean", Some("?0")));
        for hidden in ["brownout-dimmer", "x-dimmer", "endpoint-load-metrics"] {
            assert_eq!(answer.says(hidden), None, "{hidden} is not for clients");
        }
        let replica = direct.0.address();
        let series = format!("evenkeel_replica_dimmer{{upstream=\"shop\",replica=\"{replica}\"}}");
        until("the proxy shows the dimmer", async || metric(&process, &series).await == Some(0.0))
            .await;
        let reduced = "evenkeel_answers_total{upstream=\"shop\",content=\"reduced\"}";
        assert_eq!(metric(&process, reduced).await, Some(1.0));
        process.stop().unwrap();
    });
}

#[test]
fn a_lean_answer_is_not_stored_and_a_full_one_stays_as_it_is() {
    story(async {
        let app = App::start();
        let (agent, asker) = agent_before(app.0.address, "[agent.dimmer]");
        let cached = [("cache-control", "public, max-age=60"), ("etag", "\"1\""), ("expires", "0")];
        app.say(&cached);
        let about = |answer: &Answer| {
            let etag = answer.says("etag").map(ToOwned::to_owned);
            (answer.says("cache-control").unwrap().to_owned(), etag)
        };
        let (stored, etag) = ("public, max-age=60".to_owned(), Some("\"1\"".to_owned()));
        assert_eq!(about(&asker.ask().await), (stored.clone(), etag.clone()));
        agent.set_switch(Switch::Lean);
        let lean = asker.ask().await;
        assert_eq!(about(&lean), ("no-store".to_owned(), None));
        assert_eq!((lean.status, lean.says("expires"), lean.says("vary")), (200, None, None));
        // The application knows better what it did, but not what caches may do with it.
        app.say(&[&cached[..], &[("brownout-served", "?1")]].concat());
        assert_eq!(about(&asker.ask().await), (stored.clone(), etag.clone()));
        app.say(&[("cache-control", "private, max-age=9"), ("etag", "\"1\"")]);
        assert_eq!(about(&asker.ask().await), ("no-store".to_owned(), None));
        app.0.status.set(StatusCode::NOT_MODIFIED);
        app.say(&cached);
        assert_eq!(about(&asker.ask().await), (stored.clone(), etag), "it has the full page");
        app.0.status.set(StatusCode::OK);
        agent.set_switch(Switch::Full);
        app.say(&[&cached[..], &[("brownout-served", "?0")]].concat());
        assert_eq!(about(&asker.ask().await).0, "no-store", "it was left out all the same");
    });
}

// ---- replicas in need --------------------------------------------------------------------------

/// One core, 40 ms for a full page and 2 ms for a lean one.
fn small_app() -> App {
    let app = App::start();
    app.0.full.set(40 * MS);
    app.0.lean.set(2 * MS);
    app
}

const SMALL: &str = "concurrency = 1\n[agent.dimmer]\nsetpoint = '300ms'\nperiod = '100ms'";

#[test]
fn a_replica_that_is_asked_too_much_dims_and_recovers() {
    story(async {
        let app = small_app();
        let (agent, asker) = agent_before(app.0.address, SMALL);
        // A core of full work for 0.4 s, then twice that.
        asker.load(60 * MS, 1_500 * MS).await;
        assert_eq!(asker.ask().await.dimmer(), 1.0, "it can do that");
        let answers = asker.load(20 * MS, 4_000 * MS).await;
        let late = &answers[answers.len() / 2..];
        let lean = late.iter().filter(|answer| answer.body == "lean").count() as f64;
        // 50 requests/s: a share θ of full pages takes 50 (40 θ + 2 (1 − θ)) ms a second, so
        // that 0.47 fit one core; sleeping takes longer than it should, so somewhat less do.
        let share = 1.0 - lean / late.len() as f64;
        assert!((0.15..0.6).contains(&share), "{share} of {} were full", late.len());
        assert!(answers.iter().all(|answer| answer.status == 200));
        let state = state(&agent).state;
        assert!(state.asked_cores.unwrap() > 1.4, "{state:?}");
        assert!(state.percentile.unwrap() < 900 * MS, "{state:?}");
        assert_eq!(state.present, 0);
        asker.load(80 * MS, 1_500 * MS).await;
        assert_eq!(asker.ask().await.dimmer(), 1.0, "there is room again");
    });
}

#[test]
fn a_replica_that_hangs_dims_and_an_idle_one_recovers_by_itself() {
    story(async {
        let app = App::start();
        app.0.is_hung.set(true);
        for law in ["feed-forward", "published"] {
            let dimmer =
                format!("[agent.dimmer]\nlaw = '{law}'\nsetpoint = '40ms'\nperiod = '50ms'");
            let (agent, asker) = agent_before(app.0.address, &dimmer);
            let asked = RefCell::new(Vec::new());
            until("it dims", async || {
                asked.borrow_mut().push(asker.spawn());
                asker.with(PROBE_PATH, &[]).await.dimmer() < 0.9
            })
            .await;
            assert_eq!(state(&agent).state.present as usize, asked.borrow().len());
            // Read before they are gone: on a machine that stands still it may have recovered
            // by the time that it is seen that they are.
            let now = || state(&agent).state.dimmer.value();
            let then = now();
            assert!(then < 1.0, "{then}");
            asked.borrow().iter().for_each(JoinHandle::abort);
            until("all are gone", async || state(&agent).state.present == 0).await;
            // Nobody asks; only the agent's own timer can move it.
            until("it recovers", async || now() > then).await;
        }
    });
}

#[test]
fn a_replica_that_comes_back_from_a_restart_begins_anew() {
    story(async {
        let stop = Stop::new();
        let (app, serving) = App::start_at((Ipv4Addr::LOCALHOST, 0).into(), stop.signal());
        let address = app.0.address;
        app.0.full.set(20 * MS);
        let (agent, asker) = agent_before(address, SMALL);
        for _ in 0..25 {
            assert_eq!(asker.ask().await.status, 200);
        }
        drop(stop);
        serving.await.unwrap();
        until("connections are refused", async || asker.ask().await.status == 502).await;
        // Two cores of full work are asked, and there is one, if there is any at all.
        let refused = asker.load(10 * MS, 1_000 * MS).await;
        assert!(refused.iter().all(|answer| answer.status == 502));
        let before = refused.last().unwrap().dimmer();
        assert!(before < 0.9, "{before}");
        let _again = App::start_at(address, StopSignal::never());
        let back = asker.ask().await;
        assert_eq!((back.status, back.dimmer()), (200, 1.0), "it was {before}");
        assert_eq!(state(&agent).state.present, 0);
    });
}

#[test]
fn whoever_came_has_left_whatever_happened() {
    story(async {
        let app = App::start();
        let text = "concurrency = 2\nqueue_max = 3\ntimeout = '200ms'\n\
                    [agent.dimmer]\nsetpoint = '50ms'\nperiod = '50ms'";
        let (agent, asker) = agent_before(app.0.address, text);
        app.0.is_hung.set(true);
        let asked: Vec<_> = (0..12).map(|_| asker.spawn()).collect();
        until("all are there", async || agent.state().waiting == 3).await;
        asked[..3].iter().for_each(JoinHandle::abort);
        let mut statuses = Vec::new();
        for answer in asked.into_iter().skip(3) {
            statuses.push(answer.await.unwrap().status);
        }
        assert!(statuses.contains(&503) && statuses.contains(&504), "{statuses:?}");
        until("the others are gone", async || agent.state().in_service == 0).await;
        assert_eq!(state(&agent).state.present, 0);
        let served = state(&agent).state;
        assert_eq!(served.full + served.reduced, 12, "refused ones were asked for, too");
        // Bodies of unknown length are decided for; their time is the client's.
        let body = http::Request::post("/item/1").header("host", "shop");
        let body = body.header("content-length", "100000").body(Body::full("x".repeat(100_000)));
        let _given_up = tokio::time::timeout(300 * MS, asker.send(body.unwrap().into())).await;
        assert_eq!(state(&agent).state.present, 0);
        assert_eq!(app.reported().len(), 1);
    });
}

// ---- the kill switch ---------------------------------------------------------------------------

#[test]
fn the_switch_is_thrown_while_it_runs() {
    story(async {
        let app = small_app();
        let text = format!(
            "[process]\nworkers = 1\ndrain = '1s'\n{}\n[admin]\naddress = '127.0.0.1:0'",
            agent_text(app.0.address, SMALL)
        );
        let process = Process::start(config(&text)).unwrap();
        let (asker, admin) = (Asker::of(process.agents()[0]), process.admin().unwrap());
        let throw = async |switch: &str| {
            let body = format!("{{\"switch\": \"{switch}\"}}");
            let request = http::Request::post("/api/v1/brownout")
                .header("host", "localhost")
                .header("content-type", "application/json")
                .header("content-length", body.len())
                .body(Body::full(body));
            Asker::of(admin).send(request.unwrap().into()).await
        };
        let agent = process.agents()[0];
        let held = format!("evenkeel_brownout_manual{{agent=\"{agent}\"}}");
        for (switch, reported, dimmer) in [("lean", "?0", 0.0), ("full", "?1", 1.0)] {
            let answer = throw(switch).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(answer.body.contains(&format!("\"switch\":\"{switch}\"")), "{answer:?}");
            until("the agent follows", async || asker.ask().await.dimmer() == dimmer).await;
            asker.ask().await;
            assert_eq!(app.reported(), [reported]);
            until("it is shown", async || metric(&process, &held).await == Some(1.0)).await;
        }
        // Nothing dims while it is held at full, however long the queue.
        let answers = asker.load(20 * MS, 600 * MS).await;
        assert!(answers.iter().all(|answer| answer.body == "full"));
        assert_eq!(throw("auto").await.status, 200);
        until("it dims", async || {
            asker.load(10 * MS, 100 * MS).await;
            asker.ask().await.dimmer() < 1.0
        })
        .await;
        process.stop().unwrap();
    });
}

// ---- dimmers that lie --------------------------------------------------------------------------

/// Asks until the proxy has sent this many requests, few at a time; the share of each replica.
async fn shares(asker: &Asker, apps: &[App], requests: usize) -> Vec<f64> {
    apps.iter().for_each(|app| app.0.came.borrow_mut().clear());
    for _ in 0..requests / 6 {
        let asked: Vec<_> = (0..6).map(|_| asker.spawn()).collect();
        for answer in asked {
            let answer = answer.await.unwrap();
            assert_eq!((answer.status, answer.says("brownout-dimmer")), (200, None));
            assert_eq!(answer.says("x-dimmer"), None);
        }
    }
    apps.iter().map(|app| app.came() as f64 / requests as f64).collect()
}

#[test]
fn malformed_dimmers_are_counted_and_neither_starve_nor_flood() {
    const LIES: [&[(&str, &str)]; 6] = [
        &[("brownout-dimmer", "NaN")],
        &[("brownout-dimmer", "-1")],
        &[("brownout-dimmer", "1e9")],
        &[("brownout-dimmer", "0.5"), ("brownout-dimmer", "0.5")],
        &[("x-dimmer", "inf")],
        &[("x-dimmer", "0.50000000000000000000000000000000000000")],
    ];
    story(async {
        for policy in ["pibh", "epbh", "least-outstanding"] {
            let apps: Vec<App> = (0..3).map(|_| App::start()).collect();
            apps.iter().for_each(|app| app.0.full.set(3 * MS));
            let addresses: Vec<_> = apps.iter().map(|app| app.0.address).collect();
            let policy = format!("policy = '{policy}'\nretries_max = 0");
            let (process, asker) = proxy_before(&addresses, "", &policy);
            apps[1].say(&[("brownout-dimmer", "0.8")]);
            apps[2].say(&[("brownout-dimmer", "0.8")]);
            let mut lies = 0;
            for lie in LIES {
                apps[0].say(lie);
                let shares = shares(&asker, &apps, 60).await;
                // A third each, give or take; nothing and all are far away.
                assert!((0.15..0.55).contains(&shares[0]), "{policy} {lie:?}: {shares:?}");
                lies += apps[0].came();
            }
            let counted = "evenkeel_dimmer_invalid_total{upstream=\"shop\"}";
            until("every lie is counted", async || {
                metric(&process, counted).await == Some(lies as f64)
            })
            .await;
            let lying = addresses[0];
            let shown = format!("evenkeel_replica_dimmer{{upstream=\"shop\",replica=\"{lying}\"}}");
            assert_eq!(metric(&process, &shown).await, None, "unknown is not zero");
            process.stop().unwrap();
        }
    });
}

#[test]
fn replicas_without_a_dimmer_stand_beside_replicas_with_one() {
    story(async {
        for policy in ["pibh", "epbh"] {
            let apps: Vec<App> = (0..3).map(|_| App::start()).collect();
            apps.iter().for_each(|app| app.0.full.set(3 * MS));
            apps[0].say(&[("brownout-dimmer", "1.0")]);
            apps[1].say(&[("x-dimmer", "0.999")]);
            let addresses: Vec<_> = apps.iter().map(|app| app.0.address).collect();
            let (process, asker) = proxy_before(&addresses, "", &format!("policy = '{policy}'"));
            let shares = shares(&asker, &apps, 240).await;
            assert!(
                shares.iter().all(|share| (0.15..0.55).contains(share)),
                "{policy}: {shares:?}"
            );
            let known = "evenkeel_dimmer_invalid_total{upstream=\"shop\"}";
            assert_eq!(metric(&process, known).await, Some(0.0), "absent is not invalid");
            process.stop().unwrap();
        }
    });
}
