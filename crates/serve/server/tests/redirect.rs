//! Requests between data centres, with real sockets: what a plan sends where, what stops it, what
//! comes back, and what no request may do.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::{PlanRow, SplitWindow, parts};
use evenkeel_geo::traffic::Directive;
use evenkeel_geo::traffic::SplitSetup;
use evenkeel_http::{Body, Request, Response, serve};
use evenkeel_http_proxy::config::Edge;
use evenkeel_http_proxy::redirected::ORIGIN;
use evenkeel_proxy::config::{SiteReplicas, SiteSetup};
use evenkeel_proxy::upstream_state::SplitStats;
use evenkeel_runtime::accept::Listener;
use evenkeel_runtime::accept::StopSignal;
use evenkeel_runtime::limits::ServerLimits;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_settings::address::ServerAddress;
use evenkeel_testkit::story::{LIMITS, nobody, story};
use evenkeel_testkit::wait::until;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LONDON: SiteId = SiteId::new(0);
const IRELAND: SiteId = SiteId::new(1);
const NAMES: [&str; 2] = ["london", "ireland"];
const OBJECTIVE: Duration = Duration::from_millis(500);

/// What a replica does with a request.
#[derive(Clone, Copy)]
struct Manner {
    status: u16,
    delay_ms: u64,
}

const WELL: Manner = Manner { status: 200, delay_ms: 0 };

/// A replica that answers with its name and what origin it was told; notes each request.
struct Replica {
    address: SocketAddr,
    /// The origins it was told: `-` for none.
    seen: Rc<RefCell<Vec<String>>>,
}

impl Replica {
    fn start(name: &'static str, manner: Manner) -> Self {
        let limits = ServerLimits { drain: Duration::ZERO, ..LIMITS };
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let seen = Rc::<RefCell<Vec<String>>>::default();
        let seeing = Rc::clone(&seen);
        let handler = move |request: Request<Body>, _| {
            let origins = request.headers().get_all(ORIGIN);
            let origin: Vec<_> = origins.map(|origin| origin.to_str().unwrap()).collect();
            let origin = if origin.is_empty() { "-".to_owned() } else { origin.join("+") };
            let body = format!("{name} {origin}");
            seeing.borrow_mut().push(origin);
            async move {
                tokio::time::sleep(Duration::from_millis(manner.delay_ms)).await;
                let mut response = Response::new(Body::full(body));
                *response.status_mut() = StatusCode::from_u16(manner.status).unwrap();
                response
            }
        };
        tokio::task::spawn_local(serve(listener, limits, handler, StopSignal::never()));
        Self { address, seen }
    }

    fn count(&self) -> usize {
        self.seen.borrow().len()
    }
}

/// A proxy for users, one for those it believes, and an upstream with these replicas.
fn config(workers: u32, replicas: &[SocketAddr], more: &str) -> Config {
    let text = format!(
        "[process]\nworkers = {workers}\ndrain = '1s'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\nforwarded_requests = 'trust'\n\
         [admin]\naddress = '127.0.0.1:0'\n\
         [upstream.web]\npolicy = 'round-robin'\nreplicas = {}\n{more}",
        list(replicas)
    );
    let node = Node::parse(&text, "test.toml").unwrap_or_else(|p| panic!("{p}\n{text}"));
    Config::read(&node).unwrap_or_else(|p| panic!("{p}\n{text}"))
}

fn list(addresses: &[SocketAddr]) -> String {
    let quoted: Vec<_> = addresses.iter().map(|address| format!("'{address}'")).collect();
    format!("[{}]", quoted.join(", "))
}

/// The sites, of which the other one is the second data centre if there is a way there.
fn site_setup(sites: SplitSetup, has_way: bool) -> SiteSetup {
    let place = |site| if site == sites.home.index() { Some(0) } else { has_way.then_some(1) };
    SiteSetup { places: (0..sites.names.len()).map(place).collect(), sites }
}

/// The proxies of one site: `listens` are the users' address and the one that believes others.
struct Site {
    process: Process,
    started: Instant,
}

impl Site {
    /// `way` is where requests for the other site go; `more` is TOML that follows the first lines
    /// of the upstream.
    fn start(
        home: SiteId,
        workers: u32,
        replicas: &[SocketAddr],
        way: &[SocketAddr],
        more: &str,
    ) -> Self {
        let mut config = config(workers, replicas, more);
        let names = NAMES.map(str::to_owned).to_vec();
        let other = names[1 - home.index()].clone();
        let upstream = &mut config.upstreams[0].common;
        upstream.split = Some(site_setup(
            SplitSetup { home, names, objective: OBJECTIVE, writes_stay: false, bound_stay: false },
            !way.is_empty(),
        ));
        if !way.is_empty() {
            let replicas = way.iter().copied().map(Into::into).collect();
            upstream.sites = vec![SiteReplicas { name: other, replicas }];
        }
        Self::run(config)
    }

    fn run(config: Config) -> Self {
        let started = Instant::now();
        Self { process: Process::start(config).unwrap(), started }
    }

    fn users(&self) -> SocketAddr {
        self.process.listens()[0]
    }

    fn peers(&self) -> SocketAddr {
        self.process.listens()[1]
    }

    /// Sends this many requests per second, of so many, to the other site. Waits until that is
    /// done: with a plan in force, workers follow within a moment.
    async fn direct(&self, epoch: u64, per_s: (u64, u64), parts: &[f64]) {
        self.direct_until(epoch, per_s, parts, evenkeel_core::Instant::FAR).await;
    }

    async fn direct_until(
        &self,
        epoch: u64,
        (rate, demand): (u64, u64),
        parts: &[f64],
        good_until: evenkeel_core::Instant,
    ) {
        let home = self.split().setup.home;
        let mut rates_per_1000_s = vec![rate * 1_000; NAMES.len()];
        rates_per_1000_s[home.index()] = (demand - rate) * 1_000;
        let row =
            PlanRow { epoch, origin: home, demand_per_1000_s: demand * 1_000, rates_per_1000_s };
        let parts = parts.iter().map(|part| Probability::clamped(*part)).collect();
        let spare_per_1000_s = Vec::new();
        let (hedges, inflow) = (evenkeel_geo::epoch::SiteSet::first(NAMES.len()), None);
        let plan = Directive { row, parts, good_until, spare_per_1000_s, hedges, inflow };
        self.process.upstreams().direct(0, plan);
        until("all workers follow the plan", || {
            let following = self.split().following;
            following.iter().all(|following| *following == Some(epoch))
        })
        .await;
    }

    /// Sends nothing away; this is what each site could serve beyond that.
    async fn spare(&self, epoch: u64, demand: u64, spare_per_1000_s: [u64; 2]) {
        let rates_per_1000_s = vec![demand * 1_000, 0];
        let row =
            PlanRow { epoch, origin: LONDON, demand_per_1000_s: demand * 1_000, rates_per_1000_s };
        let (parts, good_until) = (vec![Probability::ONE], evenkeel_core::Instant::FAR);
        let (spare_per_1000_s, inflow) = (spare_per_1000_s.into(), None);
        let hedges = evenkeel_geo::epoch::SiteSet::first(NAMES.len());
        let plan = Directive { row, parts, good_until, spare_per_1000_s, hedges, inflow };
        self.process.upstreams().direct(0, plan);
        until("the plan is followed", || self.split().following == [Some(epoch)]).await;
    }

    fn split(&self) -> SplitStats {
        self.process.upstreams().stats(0).split.unwrap()
    }

    /// All that was counted, once that many requests of our own users have ended.
    async fn counted(&self, ended: u64) -> SplitStats {
        let tally = || self.process.upstreams().split_tally(0);
        until("all are counted", || {
            tally().by_site.iter().map(|counts| counts.ended).sum::<u64>() >= ended
        })
        .await;
        // Requests of others may still be between two counts.
        let total = || self.process.upstreams().stats(0).total;
        until("each has one end", || {
            let total = total();
            total.opened == total.answered + total.refused + total.abandoned
        })
        .await;
        let split = self.split();
        let by_site = split.by_site.iter().map(|counts| counts.tally.ended).sum::<u64>();
        assert_eq!((by_site, split.total().arrived), (ended, ended), "each counts once");
        split
    }

    async fn metric(&self, series: &str) -> f64 {
        let mut client = Client::connect(self.process.admin().unwrap()).await;
        let (_, text) = client.get("/metrics", "host: 127.0.0.1\r\n").await;
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.unwrap_or_else(|| panic!("no {series} in\n{text}")).trim().parse().unwrap()
    }
}

struct Client(TcpStream);

impl Client {
    async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    async fn get(&mut self, path: &str, headers: &str) -> (u16, String) {
        self.ask(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n")).await
    }

    /// The status and the body of an answer.
    async fn ask(&mut self, request: &str) -> (u16, String) {
        self.0.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        loop {
            let read = self.0.read_buf(&mut bytes).await.unwrap();
            assert!(read > 0, "cut off after {:?}", String::from_utf8_lossy(&bytes));
            let text = String::from_utf8_lossy(&bytes);
            let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let length = lines.into_iter().find(|line| line.0 == "content-length").unwrap().1;
            if body.len() >= length.parse().unwrap() {
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                return (status, body.to_owned());
            }
        }
    }

    /// Asks so often, every time with success; how often each body came.
    async fn ask_well(&mut self, times: u64) -> BTreeMap<String, u64> {
        let mut bodies = BTreeMap::new();
        for _ in 0..times {
            let (status, body) = self.get("/", "host: web\r\n").await;
            assert_eq!(status, 200, "{body}");
            *bodies.entry(body).or_default() += 1;
        }
        bodies
    }
}

const POST: &str = "POST / HTTP/1.1\r\nhost: web\r\ncontent-length: 2\r\n\r\nhi";

/// London's proxies before a replica, and Ireland's before another; the plan is empty.
struct Two {
    london: Site,
    ireland: Site,
    at_london: Replica,
    at_ireland: Replica,
}

impl Two {
    fn start(workers: u32, more: &str) -> Self {
        let at_london = Replica::start("london", WELL);
        let at_ireland = Replica::start("ireland", WELL);
        let ireland = Site::start(IRELAND, 1, &[at_ireland.address], &[], "");
        let way = [ireland.peers()];
        let london = Site::start(LONDON, workers, &[at_london.address], &way, more);
        Self { london, ireland, at_london, at_ireland }
    }
}

#[test]
fn a_plan_of_thirty_per_cent_sends_thirty_per_cent_and_says_from_where() {
    story(async {
        let two = Two::start(1, "");
        let mut client = Client::connect(two.london.users()).await;
        assert_eq!(client.ask_well(50).await["london -"], 50, "no plan: all stay");
        two.london.direct(1, (300_000, 1_000_000), &[1.0]).await;
        let bodies = client.ask_well(1_000).await;
        let away = bodies["ireland london"];
        // Of any run of requests every share gets its part to within four.
        assert!(away.abs_diff(300) <= 4, "{bodies:?}");
        assert_eq!(bodies["london -"], 1_000 - away, "{bodies:?}");
        let split = two.london.counted(1_050).await;
        let total = split.total();
        assert_eq!((total.no_plan, total.by_site[1].sent), (50, away));
        assert_eq!(split.by_site[1].tally.ended, away);
        assert_eq!(split.by_site[1].latency.count(), away);
        assert_eq!(
            (two.at_london.count(), two.at_ireland.count()),
            (1_050 - away as usize, away as usize)
        );
        // Ireland served them and counts none of them as demand of its own.
        until("inflow is counted", || two.ireland.split().by_site[0].inflow == away).await;
        let tally = two.ireland.process.upstreams().split_tally(0);
        assert_eq!((tally.inflow, tally.workers), (away, vec![SplitWindow::empty(2)]));
        assert_eq!(two.ireland.process.upstreams().stats(0).total.answered, away);
    });
}

#[test]
fn metrics_tell_what_was_planned_sent_and_missed() {
    story(async {
        let two = Two::start(1, "");
        two.london.direct(4, (500, 1_000), &[1.0]).await;
        let mut client = Client::connect(two.london.users()).await;
        let away = client.ask_well(20).await["ireland london"] as f64;
        two.london.direct(5, (250, 1_000), &[1.0]).await;
        two.london.counted(20).await;
        let to = |name: &str, site: &str| {
            format!("evenkeel_redirect_{name}{{upstream=\"web\",datacenter=\"{site}\"}}")
        };
        for (series, expected) in [
            (to("requests_total", "ireland"), away),
            (to("served_total", "london"), 20.0 - away),
            (to("missed_total", "ireland"), 0.0),
            (to("over_cap_total", "ireland"), 0.0),
            (to("unhealthy_total", "ireland"), 0.0),
            (to("fallback_total", "ireland"), 0.0),
            (to("planned_rate", "ireland"), 250.0),
            (to("planned_rate", "london"), 750.0),
            // Epoch 4 is over: half of 20 were due.
            (to("error_requests", "ireland"), away - 10.0),
            (to("duration_seconds_count", "ireland"), away),
            ("evenkeel_redirect_epoch_enforced{upstream=\"web\"}".to_owned(), 5.0),
        ] {
            assert_eq!(two.london.metric(&series).await, expected, "{series}");
        }
        let inflow = "evenkeel_redirect_inflow_total{upstream=\"web\",origin=\"london\"}";
        assert_eq!(two.ireland.metric(inflow).await, away);
    });
}

#[test]
fn a_surge_is_not_passed_on_beyond_the_cap() {
    story(async {
        let two = Two::start(1, "");
        let began = Instant::now();
        two.london.direct(1, (30, 100), &[1.0]).await;
        let mut client = Client::connect(two.london.users()).await;
        let mut asked = 0;
        // A bucket that is full gains nothing while a busy machine lets nobody ask.
        let mut stood_still = Duration::ZERO;
        // A bucket's burst: two, 35 for a share of 1, and 10 ms of the rate (core, `split`).
        let burst = 2.0 + 35.0 * 0.3 + 33.0 * 0.01;
        // Nor is it a surge before more was asked than the cap lets pass meanwhile.
        let is_surge = |asked: u64, elapsed: Duration| {
            asked as f64 * 0.3 > burst + 33.0 * elapsed.as_secs_f64() + 5.0
        };
        while began.elapsed() < Duration::from_millis(1_200) + stood_still
            || !is_surge(asked, began.elapsed()) && began.elapsed() < Duration::from_secs(30)
        {
            let turn = Instant::now();
            client.ask_well(20).await;
            asked += 20;
            stood_still += turn.elapsed().saturating_sub(Duration::from_millis(100));
        }
        let elapsed_s = began.elapsed().as_secs_f64();
        let total = two.london.counted(asked).await.total();
        let (sent, over_cap) = (total.by_site[1].sent, total.by_site[1].over_cap);
        assert!(sent as f64 <= burst + 33.0 * elapsed_s, "{sent} in {elapsed_s} s");
        let used_s = elapsed_s - stood_still.as_secs_f64() - 0.3;
        assert!(sent as f64 >= 33.0 * used_s, "it is used: {sent} in {elapsed_s} s");
        assert!((sent + over_cap).abs_diff(asked * 3 / 10) <= 4, "{sent} + {over_cap} of {asked}");
        assert!(over_cap > 0, "that was no surge: {asked} requests");
        assert_eq!(two.at_ireland.count() as u64, sent);
    });
}

#[test]
fn workers_share_the_cap_by_their_parts() {
    story(async {
        let two = Two::start(2, "");
        let began = Instant::now();
        let halves: Vec<f64> = parts(&[5, 5]).iter().map(|part| part.value()).collect();
        two.london.direct(1, (6, 20), &halves).await;
        let mut clients = Vec::new();
        for _ in 0..12 {
            clients.push(Client::connect(two.london.users()).await);
        }
        // Each of the two: half of 6.6 per second, and a burst of its own.
        let allowed = |elapsed_s: f64| 2.0 + 35.0 * 0.3 + 3.3 * 0.01 + 3.3 * elapsed_s;
        let surge = |elapsed_s: f64| 2.0 * (allowed(elapsed_s) + 4.0);
        let elapsed_s = || began.elapsed().as_secs_f64();
        let mut asked = 0;
        while elapsed_s() < 1.0 || (asked as f64 * 0.3) < surge(elapsed_s()) {
            for client in &mut clients {
                client.ask_well(2).await;
                asked += 2;
            }
        }
        let elapsed_s = elapsed_s();
        let split = two.london.counted(asked).await;
        assert_eq!(split.workers.len(), 2);
        for window in &split.workers {
            let counts = window.by_site[1];
            assert!(counts.sent as f64 <= allowed(elapsed_s), "{window:?} in {elapsed_s} s");
            let due = window.arrived as f64 * 0.3;
            assert!(((counts.sent + counts.over_cap) as f64 - due).abs() < 4.0, "{window:?}");
        }
        assert!(split.total().by_site[1].over_cap > 0, "that was no surge: {asked} requests");
        // A worker without a part keeps all at home.
        two.london.direct(2, (6, 20), &[]).await;
        let before = two.at_ireland.count();
        tokio::time::sleep(Duration::from_millis(50)).await;
        let mut served = 0;
        for client in &mut clients {
            served += client.ask_well(10).await.get("ireland london").copied().unwrap_or(0);
        }
        // Each bucket may still hold a token of less than a burst; none is filled any more.
        assert!(served as f64 <= 2.0 * (2.0 + 35.0 * 0.3), "{served}");
        assert_eq!(two.at_ireland.count() - before, served as usize);
    });
}

#[test]
fn a_plan_that_is_too_old_sends_nothing() {
    story(async {
        let two = Two::start(1, "");
        // The process's clock began a little after ours.
        let lasts = two.london.started.elapsed() + Duration::from_millis(900);
        let good_until = evenkeel_core::Instant::ZERO + lasts;
        two.london.direct_until(1, (1_000_000, 1_000_000), &[1.0], good_until).await;
        let mut client = Client::connect(two.london.users()).await;
        assert_eq!(client.ask_well(10).await["ireland london"], 10);
        while client.ask_well(1).await.contains_key("ireland london") {
            assert!(two.london.started.elapsed() < lasts + Duration::from_secs(1));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(two.london.started.elapsed() >= lasts, "it was believed until then");
        assert_eq!(client.ask_well(20).await["london -"], 20);
        until("counted", || two.london.split().total().stale == 21).await;
        until("none is in force", || two.london.split().plan().is_none()).await;
    });
}

#[test]
fn where_nobody_listens_requests_come_back_home_and_soon_stay_there() {
    story(async {
        let at_london = Replica::start("london", WELL);
        let london = Site::start(LONDON, 1, &[at_london.address], &[nobody()], "");
        london.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
        let mut client = Client::connect(london.users()).await;
        assert_eq!(client.ask_well(3).await["london -"], 3, "and it says nothing of origin");
        let (status, body) = client.ask(POST).await;
        assert_eq!((status, body.as_str()), (200, "london -"), "nothing of it had left");
        assert_eq!(client.ask_well(60).await["london -"], 60);
        let split = london.counted(64).await;
        let (fallbacks, total) = (split.by_site[1].fallbacks, split.total());
        // Five failures in a row eject it for a second; then one is sent on trial.
        assert!((5..=7).contains(&fallbacks), "{fallbacks}");
        assert_eq!(total.by_site[1].sent, fallbacks);
        assert_eq!(total.by_site[1].unhealthy, 64 - fallbacks);
        assert_eq!((split.by_site[0].tally.ended, split.by_site[1].tally.ended), (64, 0));
        let tally = london.process.upstreams().split_tally(0);
        assert_eq!(tally.returned.ended, fallbacks, "which tell nothing of London");
        let window = london.process.upstreams().stats(0).total;
        assert_eq!((window.answered, window.refused), (64, 0), "each was one request");
    });
}

#[test]
fn after_an_ejection_one_request_tries_the_other_site_and_not_all_of_them() {
    story(async {
        let at_london = Replica::start("london", WELL);
        // Slow enough for others to come while one is on trial.
        let failing = Replica::start("ireland", Manner { status: 503, delay_ms: 500 });
        let london = Site::start(LONDON, 1, &[at_london.address], &[failing.address], "");
        london.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(Client::connect(london.users()).await);
        }
        let all_ask = async |clients: &mut Vec<Client>| {
            let mut asking = tokio::task::JoinSet::new();
            for mut client in clients.drain(..) {
                asking.spawn_local(async move {
                    assert_eq!(client.ask_well(1).await["london -"], 1);
                    client
                });
            }
            *clients = asking.join_all().await;
        };
        all_ask(&mut clients).await;
        assert_eq!(failing.count(), 6, "five of these failures eject it for a second");
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        all_ask(&mut clients).await;
        assert_eq!(failing.count(), 7, "one on trial, the others stay");
        let split = london.counted(12).await;
        assert_eq!((split.by_site[1].fallbacks, split.total().by_site[1].unhealthy), (7, 5));
    });
}

#[test]
fn what_another_site_refuses_comes_back_only_if_it_may_be_sent_again() {
    story(async {
        let unavailable = Replica::start("ireland", Manner { status: 503, delay_ms: 0 });
        let broken = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let breaks_off = broken.local_addr().unwrap();
        tokio::task::spawn_local(async move {
            loop {
                let (mut stream, _) = broken.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4_096]).await;
            }
        });
        for (address, status) in [(unavailable.address, 503), (breaks_off, 502)] {
            let at_london = Replica::start("london", WELL);
            let london = Site::start(LONDON, 1, &[at_london.address], &[address], "");
            london.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
            let mut client = Client::connect(london.users()).await;
            assert_eq!(client.ask_well(2).await["london -"], 2);
            assert_eq!(client.ask(POST).await.0, status, "it may have been done already");
            assert_eq!(at_london.count(), 2);
            let split = london.counted(3).await;
            assert_eq!(split.by_site[1].fallbacks, 2);
            let away = split.by_site[1].tally;
            assert_eq!((away.ended, away.missed), (1, 1), "a failure is a miss");
            let window = london.process.upstreams().stats(0).total;
            assert_eq!(window.opened, 3, "each was one request");
        }
    });
}

#[test]
fn health_checks_ask_other_sites_too_and_are_no_demand_there() {
    story(async {
        let health = "health = { interval = '20ms', timeout = '500ms' }\n";
        let two = Two::start(1, health);
        two.london.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
        until("it is asked", || two.at_ireland.seen.borrow().contains(&"london".into())).await;
        let mut client = Client::connect(two.london.users()).await;
        assert_eq!(client.ask_well(5).await["ireland london"], 5);
        let Two { london, ireland, at_london, at_ireland: _kept } = two;
        assert!(at_london.seen.borrow().iter().all(|origin| origin == "-"));
        assert_eq!(ireland.process.upstreams().split_tally(0).workers[0].arrived, 0);
        tokio::task::spawn_blocking(|| ireland.process.stop()).await.unwrap().unwrap();
        let down = || london.process.upstreams().plan(0).health[1] == evenkeel_core::Health::Down;
        until("it is found down", down).await;
        tokio::time::sleep(Duration::from_millis(20)).await; // workers hear of it
        assert_eq!(client.ask_well(30).await["london -"], 30);
        let split = london.counted(35).await;
        assert_eq!((split.by_site[1].fallbacks, split.total().by_site[1].unhealthy), (0, 30));
    });
}

#[test]
fn no_request_makes_two_hops() {
    story(async {
        let at_london = Replica::start("london", WELL);
        let at_ireland = Replica::start("ireland", WELL);
        // Each needs the other's address: Ireland's way to London leads through a relay.
        let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to_london = [relay.local_addr().unwrap()];
        let ireland = Site::start(IRELAND, 1, &[at_ireland.address], &to_london, "");
        let london = Site::start(LONDON, 1, &[at_london.address], &[ireland.peers()], "");
        let peers = london.peers();
        tokio::task::spawn_local(async move {
            loop {
                let (mut near, _) = relay.accept().await.unwrap();
                tokio::task::spawn_local(async move {
                    let mut far = TcpStream::connect(peers).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        for site in [&london, &ireland] {
            site.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
        }
        let mut client = Client::connect(london.users()).await;
        assert_eq!(client.ask_well(40).await["ireland london"], 40);
        let mut client = Client::connect(ireland.users()).await;
        assert_eq!(client.ask_well(30).await["london ireland"], 30);
        for (site, own, others) in [(&london, 40, 30), (&ireland, 30, 40)] {
            site.counted(own).await;
            let inflow = || site.split().by_site.iter().map(|counts| counts.inflow).sum::<u64>();
            until("inflow is counted", || inflow() == others).await;
            assert_eq!(site.split().inflow_unknown, 0);
        }
        // Who is believed may name a site that nobody knows: served here and counted as such.
        let mut stranger = Client::connect(london.peers()).await;
        let (_, body) = stranger.get("/", "host: web\r\nevenkeel-origin: paris\r\n").await;
        assert_eq!(body, "london paris");
        until("it is counted", || london.split().inflow_unknown == 1).await;
        // Without the header a request there is one of our own users.
        let (_, body) = stranger.get("/", "host: web\r\n").await;
        assert_eq!(body, "ireland london");
    });
}

#[test]
fn users_cannot_say_that_they_come_from_elsewhere() {
    story(async {
        let claims = "host: web\r\nevenkeel-origin: ireland\r\nEvenkeel_Origin: ireland\r\n";
        let two = Two::start(1, "");
        let mut client = Client::connect(two.london.users()).await;
        assert_eq!(client.get("/", claims).await, (200, "london -".to_owned()));
        two.london.counted(1).await;
        two.london.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
        assert_eq!(client.get("/", claims).await, (200, "ireland london".to_owned()));
        // Nor where nothing is redirected; there, too, those we trust may.
        let alone = Site::run(config(1, &[two.at_london.address], ""));
        let mut client = Client::connect(alone.users()).await;
        assert_eq!(client.get("/", claims).await, (200, "london -".to_owned()));
        let mut peer = Client::connect(alone.peers()).await;
        assert_eq!(peer.get("/", claims).await, (200, "london ireland".to_owned()));
        assert!(alone.process.upstreams().stats(0).split.is_none());
    });
}

#[test]
fn what_is_late_is_missed_where_it_was_served() {
    story(async {
        let at_london = Replica::start("london", WELL);
        let slow = Replica::start("ireland", Manner { status: 200, delay_ms: 600 });
        let london = Site::start(LONDON, 1, &[at_london.address], &[slow.address], "");
        london.direct(1, (1_000_000, 2_000_000), &[1.0]).await;
        let mut client = Client::connect(london.users()).await;
        // What may not be sent again waits for its answer.
        let mut away = 0;
        for _ in 0..6 {
            let (status, body) = client.ask(POST).await;
            assert_eq!(status, 200, "{body}");
            away += u64::from(body == "ireland london");
        }
        let split = london.counted(6).await;
        let [home, remote] = [0, 1].map(|site| split.by_site[site].tally);
        assert_eq!((home.ended, home.missed), (6 - away, 0));
        assert_eq!((remote.ended, remote.missed), (away, away), "600 ms of 500");
        // A client that went away after the objective has missed it, too; before, nobody knows.
        london.direct(2, (1_000_000, 1_000_000), &[1.0]).await;
        for patience_ms in [100, 550] {
            let mut client = Client::connect(london.users()).await;
            let asked = client.ask(POST);
            let patience = Duration::from_millis(patience_ms);
            assert!(tokio::time::timeout(patience, asked).await.is_err());
        }
        until("it is counted", || london.split().by_site[1].tally.ended > away).await;
        tokio::time::sleep(Duration::from_millis(250)).await;
        let tally = london.split().by_site[1].tally;
        assert_eq!((tally.ended, tally.missed), (away + 1, away + 1));
    });
}

#[test]
fn requests_that_travel_are_not_hedged_by_the_measure_of_those_that_stay() {
    story(async {
        let near = [(); 2].map(|()| Replica::start("london", WELL));
        let far = [(); 2].map(|()| Replica::start("ireland", Manner { status: 200, delay_ms: 30 }));
        let hedge = "hedge = { quantile = 0.9, budget = 1.0, late_ratio_max = 1.0 }\n";
        let [near, way] =
            [&near, &far].map(|replicas| replicas.each_ref().map(|replica| replica.address));
        let london = Site::start(LONDON, 1, &near, &way, hedge);
        london.direct(1, (40_000, 1_000_000), &[1.0]).await;
        let mut client = Client::connect(london.users()).await;
        let away = client.ask_well(1_500).await["ireland london"];
        let copies = far.iter().map(Replica::count).sum::<usize>() as u64;
        // One in ten by its own measure; by the measure of all together, every one.
        assert!(copies - away <= away / 2, "{copies} copies of {away} requests");
    });
}

#[test]
fn what_home_cannot_serve_is_rescued_by_others_within_what_they_spare() {
    story(async {
        let at_ireland = Replica::start("ireland", WELL);
        let ireland = Site::start(IRELAND, 1, &[at_ireland.address], &[], "");
        // Nobody listens where London's two replicas are written; no checks say so.
        let replicas = [nobody(), nobody()];
        let london = Site::start(LONDON, 1, &replicas, &[ireland.peers()], "");
        let mut client = Client::connect(london.users()).await;
        assert_eq!(client.get("/", "host: web\r\n").await.0, 502, "without a plan nobody helps");
        // A plan that sends nothing away, and what Ireland could serve beyond it: 20/s.
        london.spare(1, 1_000, [0, 20_000]).await;
        let began = Instant::now();
        assert_eq!(client.ask_well(30).await["ireland london"], 30, "in one hop, and says so");
        let (status, body) = client.ask(POST).await;
        assert_eq!((status, body.as_str()), (200, "ireland london"), "nothing of it had left");
        let (mut failed_over, mut failed) = (31_u64, 0_u64);
        for _ in 0..100 {
            match client.get("/", "host: web\r\n").await.0 {
                200 => failed_over += 1,
                _ => failed += 1,
            }
        }
        let seconds = began.elapsed().as_secs_f64();
        // A burst of 2, 35 for all of it and 10 ms of the rate, and the rate.
        let most = 2.0 + 35.0 + 0.2 + 20.0 * seconds;
        assert!(failed_over as f64 <= most, "{failed_over} of at most {most}");
        assert!(failed >= 50, "{failed} failed: Ireland is not asked for more than it can");
        let split = london.counted(132).await;
        let by_site = split.total().by_site;
        assert_eq!(
            (by_site[1].failed_over, by_site[1].sent, by_site[0].sent),
            (failed_over, 0, 132)
        );
        assert_eq!(split.by_site[1].tally.ended, failed_over, "they were served there");
        assert_eq!(
            london
                .metric(
                    "evenkeel_redirect_failover_total{upstream=\"web\",\
            datacenter=\"ireland\"}"
                )
                .await,
            failed_over as f64
        );
        // Those that others send here are not sent on.
        let mut peer = Client::connect(london.peers()).await;
        let forwarded = peer.get("/", "host: web\r\nevenkeel-origin: ireland\r\n").await;
        assert_eq!(forwarded.0, 502);
        assert_eq!(at_ireland.count() as u64, failed_over);
    });
}

#[test]
fn other_sites_are_written_once_and_only_where_they_are_of_use() {
    let problems = |more: &str| {
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:80'\nupstream = 'web'\nforwarded_requests = 'trust'\n\
             [upstream.web]\nreplicas = ['127.0.0.1:81']\n{more}"
        );
        let read = Node::parse(&text, "test.toml").and_then(|node| Config::read(&node));
        read.map_err(|problems| problems.to_string())
    };
    assert_eq!(problems("").unwrap().listens[0].http.redirected, Edge::Trust);
    for (more, said) in [
        ("sites = { ireland = ['127.0.0.1:82'] }", "expected [redirect] with upstream = \"web\""),
        ("sites = { ireland = ['127.0.0.1:81'] }", "expected each replica once"),
        ("sites = { a = ['127.0.0.1:82'], b = ['127.0.0.1:82'] }", "expected each replica once"),
        ("sites = { ireland = ['127.0.0.1:80'] }", "requests would loop"),
        ("sites = { 'a b' = ['127.0.0.1:82'] }", "got a data centre of this name"),
        ("sites = { ireland = [] }", "expected 1 to 1000 addresses"),
        ("sites = ['127.0.0.1:82']", "expected a table"),
    ] {
        let problems = problems(more).unwrap_err();
        assert!(problems.contains(said), "{problems}\nlacks {said:?}");
    }
}

#[test]
fn writes_are_counted_by_their_method_and_stay_where_they_came_when_told_to() {
    story(async {
        let (at_london, at_ireland) =
            (Replica::start("london", WELL), Replica::start("ireland", WELL));
        let ireland = Site::start(IRELAND, 1, &[at_ireland.address], &[], "");
        for writes_stay in [false, true] {
            let mut config = config(1, &[at_london.address], "");
            let (names, replicas) = (
                NAMES.map(str::to_owned).to_vec(),
                vec![ServerAddress::name("localhost", ireland.peers().port())],
            );
            let upstream = &mut config.upstreams[0].common;
            upstream.sites = vec![SiteReplicas { name: names[1].clone(), replicas }];
            let objective = OBJECTIVE;
            upstream.split = Some(site_setup(
                SplitSetup { home: LONDON, names, objective, writes_stay, bound_stay: writes_stay },
                true,
            ));
            let london = Site::run(config);
            london.direct(1, (1_000_000, 1_000_000), &[1.0]).await;
            let mut client = Client::connect(london.users()).await;
            let expected = if writes_stay { "london -" } else { "ireland london" };
            for method in ["POST", "PUT", "PATCH", "DELETE", "MKCOL"] {
                let (status, body) = client.ask(&POST.replace("POST", method)).await;
                assert_eq!((status, body.as_str()), (200, expected), "{method}");
            }
            for method in ["GET", "OPTIONS", "TRACE"] {
                let request = format!("{method} / HTTP/1.1\r\nhost: web\r\n\r\n");
                let (status, body) = client.ask(&request).await;
                assert_eq!((status, body.as_str()), (200, "ireland london"), "{method}");
            }
            let total = london.counted(8).await.total();
            let kept = if writes_stay { 5 } else { 0 };
            assert_eq!((total.arrived, total.writes, total.writes_kept), (8, 5, kept));
        }
    });
}
