//! Several processes of one site: a controller and its followers, over TLS, each with splitters of
//! its own that really choose.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_geo::curve::ResponseCurves;
use evenkeel_geo::demand::{SiteTally, SplitTally};
use evenkeel_geo::epoch::{SiteId, SiteSet};
use evenkeel_geo::planner::{Planner, PlannerConfig, SiteCurves};
use evenkeel_geo::split::{PlanRow, SplitConfig, SplitWindow, Splitter};
use evenkeel_geo::traffic::{Directive, Ended};
use evenkeel_mesh::frame::Frame;
use evenkeel_mesh::{Follower, FollowerConfig, Home, Mesh, MeshConfig, RedirectState};
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::ServerAddress;
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::wait::until_within as until;
use tokio::sync::watch;

use super::outsider::Outsider;
use super::world::{directory, files, metrics_of, on_one_thread};

const SITES: [&str; 2] = ["london", "ireland"];
const PERIOD: Duration = Duration::from_millis(600);
const OBJECTIVE: Duration = Duration::from_millis(20);
const SOON: Duration = Duration::from_secs(15);

/// Four servers a site that take 2 ms for a request: 2,000 requests/s.
fn planner(change: impl FnOnce(&mut PlannerConfig)) -> Planner {
    let service = Duration::from_millis(2);
    let curves = ResponseCurves::markov(OBJECTIVE, 4.try_into().unwrap(), service).unwrap();
    let mut config = PlannerConfig::new(PERIOD);
    change(&mut config);
    Planner::new(config, vec![SiteCurves::single(curves); 2]).unwrap()
}

/// One process of a site: workers whose users ask at these rates, and whose splitters choose.
struct BusyHome {
    site: SiteId,
    clock: Clock,
    began: Instant,
    per_s: Vec<Cell<f64>>,
    workers: RefCell<Vec<Worker>>,
    rows: RefCell<BTreeMap<u64, PlanRow>>,
    /// What was done in each epoch, and how long it was.
    epochs: RefCell<BTreeMap<u64, (SplitWindow, Duration)>>,
    in_force: Cell<Option<(u64, Instant)>>,
}

struct Worker {
    splitter: Splitter,
    asked_until: Duration,
    part: f64,
    /// What was handed up, and when.
    sum: SplitWindow,
    handed_up: Option<evenkeel_core::Instant>,
}

impl BusyHome {
    fn start(site: usize, per_s: &[f64]) -> (Rc<Self>, Running) {
        let site = SiteId::new(site);
        let worker = |seed: usize| Worker {
            splitter: Splitter::new(site, 2, SplitConfig::default(), seed as u64),
            asked_until: Duration::ZERO,
            part: 0.0,
            sum: SplitWindow::empty(2),
            handed_up: None,
        };
        let home = Rc::new(Self {
            site,
            clock: Clock::start(),
            began: Instant::now(),
            per_s: per_s.iter().map(|per_s| Cell::new(*per_s)).collect(),
            workers: RefCell::new((0..per_s.len()).map(worker).collect()),
            rows: RefCell::default(),
            epochs: RefCell::default(),
            in_force: Cell::new(None),
        });
        let asking = Rc::clone(&home);
        let running = tokio::task::spawn_local(async move {
            let mut ticks = 0;
            loop {
                asking.ask();
                ticks += 1;
                if ticks % 100 == 0 {
                    (0..asking.per_s.len()).for_each(|worker| asking.hand_up(worker));
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        (home, Running(running))
    }

    /// The requests of the time since this was called last, at equal distances, each when it is
    /// due: a machine that does other things too makes no surge.
    fn ask(&self) {
        let now = self.began.elapsed();
        for (worker, per_s) in self.workers.borrow_mut().iter_mut().zip(&self.per_s) {
            let distance = Duration::from_secs_f64(1.0 / per_s.get().max(1e-3));
            while worker.asked_until + distance <= now {
                worker.asked_until += distance;
                let at = evenkeel_core::Instant::ZERO + worker.asked_until;
                let _ = worker.splitter.choose(at, SiteSet::first(2));
            }
        }
    }

    fn hand_up(&self, number: usize) {
        self.ask();
        let worker = &mut self.workers.borrow_mut()[number];
        let window = worker.splitter.window();
        worker.sum.merge(&window);
        worker.handed_up = Some(self.clock.now());
        if let Some((epoch, _)) = self.in_force.get() {
            let mut epochs = self.epochs.borrow_mut();
            let entry = epochs.entry(epoch);
            entry.or_insert((SplitWindow::empty(2), Duration::ZERO)).0.merge(&window);
        }
    }

    fn parts(&self) -> f64 {
        self.workers.borrow().iter().map(|worker| worker.part).sum()
    }

    fn last(&self) -> PlanRow {
        self.rows.borrow().values().next_back().cloned().unwrap()
    }

    fn total(&self) -> SplitWindow {
        let mut sum = SplitWindow::empty(2);
        for worker in &mut *self.workers.borrow_mut() {
            sum.merge(&worker.sum);
        }
        sum
    }
}

impl Home for BusyHome {
    fn counts(&self) -> SplitTally {
        let workers = self.workers.borrow();
        let total = self.total_of(&workers);
        let destination = |site: usize| SiteTally { ended: total.by_site[site].sent, missed: 0 };
        SplitTally {
            workers: workers.iter().map(|worker| worker.sum.clone()).collect(),
            counted_at: workers.iter().map(|worker| worker.handed_up).collect(),
            by_site: vec![destination(0), destination(1)],
            ..SplitTally::default()
        }
    }

    fn replicas_up(&self) -> u32 {
        4
    }

    fn direct(&self, directive: Directive) {
        let Directive { row, parts, good_until, spare_per_1000_s, .. } = directive;
        let now = Instant::now();
        (0..self.per_s.len()).for_each(|worker| self.hand_up(worker));
        if let Some((epoch, began)) = self.in_force.get() {
            let mut epochs = self.epochs.borrow_mut();
            epochs.get_mut(&epoch).unwrap().1 = now - began;
        }
        for (number, worker) in self.workers.borrow_mut().iter_mut().enumerate() {
            let none = evenkeel_core::units::Probability::ZERO;
            let part = parts.get(number).copied().unwrap_or(none);
            let at = self.clock.now();
            worker.splitter.adopt(at, &row, part, good_until).unwrap();
            worker.splitter.set_spare(at, &spare_per_1000_s, part);
            worker.part = part.value();
        }
        assert_eq!(row.origin, self.site);
        self.in_force.set(Some((row.epoch, now)));
        self.epochs.borrow_mut().insert(row.epoch, (SplitWindow::empty(2), Duration::ZERO));
        self.rows.borrow_mut().insert(row.epoch, row);
    }

    fn ended(&self) -> Option<Ended> {
        let in_force = self.in_force.get()?.0;
        let epochs = self.epochs.borrow();
        let (epoch, (window, over)) = epochs.range(..in_force).next_back()?;
        Some(Ended { epoch: *epoch, over: *over, window: window.clone() })
    }
}

impl BusyHome {
    fn total_of(&self, workers: &[Worker]) -> SplitWindow {
        let mut sum = SplitWindow::empty(2);
        workers.iter().for_each(|worker| sum.merge(&worker.sum));
        sum
    }
}

/// A task that ends with this.
struct Running(tokio::task::JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A process that runs: its users, and its part of the mesh.
struct Member {
    home: Rc<BusyHome>,
    state: watch::Receiver<Arc<RedirectState>>,
    _running: [Running; 2],
}

impl Member {
    fn state(&self) -> Arc<RedirectState> {
        Arc::clone(&self.state.borrow())
    }
}

fn names() -> Vec<String> {
    SITES.map(str::to_owned).into()
}

struct Ground<'a> {
    authority: &'a Authority,
    directory: std::path::PathBuf,
    addresses: Vec<SocketAddr>,
}

impl<'a> Ground<'a> {
    /// Two sites whose addresses are free.
    fn new(authority: &'a Authority, test: &str) -> (Self, Vec<TcpListener>) {
        let listeners: Vec<TcpListener> =
            SITES.iter().map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|it| it.local_addr().unwrap()).collect();
        (Self { authority, directory: directory(test), addresses }, listeners)
    }

    fn files(&self, who: &str, name: &str) -> evenkeel_mesh::Files {
        files(self.authority, &Path::new(&self.directory).join(who), name)
    }

    fn controller(
        &self,
        site: usize,
        listener: TcpListener,
        per_s: &[f64],
        planner: Planner,
    ) -> Member {
        let files = self.files(&format!("controller-{site}"), SITES[site]);
        let config = MeshConfig {
            margin: Duration::from_millis(100),
            clock_offset_max: Duration::from_millis(5),
            learns: None, // this home is never late, whatever it is asked for
            ..MeshConfig::new(SiteId::new(site), names(), self.addresses.clone(), files)
        };
        let mesh = Mesh::open(config, planner, listener).unwrap();
        let (home, asking) = BusyHome::start(site, per_s);
        let (state, clock, its) = (mesh.state(), home.clock, Rc::clone(&home));
        let running = tokio::task::spawn_local(async move {
            mesh.run(clock, its, std::future::pending()).await.unwrap();
        });
        Member { home, state, _running: [asking, Running(running)] }
    }

    fn follower(&self, who: &str, per_s: &[f64], objective: Duration) -> Member {
        let config = FollowerConfig {
            site: SiteId::new(0),
            names: names(),
            objective,
            writes_stay: false,
            controller: ServerAddress::name("localhost", self.addresses[0].port()),
            files: self.files(who, SITES[0]),
            reload_every: Duration::from_secs(30),
        };
        let follower = Follower::open(config).unwrap();
        let (home, asking) = BusyHome::start(0, per_s);
        let (state, clock, its) = (follower.state(), home.clock, Rc::clone(&home));
        let running = tokio::task::spawn_local(async move {
            follower.run(clock, its, std::future::pending()).await.unwrap();
        });
        Member { home, state, _running: [asking, Running(running)] }
    }
}

fn demand_of(row: &PlanRow) -> f64 {
    row.demand_per_1000_s as f64 * 1e-3
}

fn is_near(came: f64, expected: f64, share: f64) -> bool {
    (came - expected).abs() <= share * expected
}

/// The burst of one bucket, by the formula of core's `split`.
fn burst(rate: f64, share: f64) -> f64 {
    2.0 + 35.0 * share + rate * 1.1 * 0.01
}

#[test]
fn processes_of_a_site_send_together_what_was_planned_for_the_site() {
    on_one_thread(async {
        let authority = Authority::new();
        let (ground, mut listeners) = Ground::new(&authority, "followers");
        let ireland = listeners.pop().unwrap();
        let controller = ground.controller(0, listeners.pop().unwrap(), &[300.0], planner(|_| {}));
        let _ireland = ground.controller(1, ireland, &[200.0], planner(|_| {}));
        let one = ground.follower("one", &[400.0], OBJECTIVE);
        let other = ground.follower("other", &[900.0, 300.0], OBJECTIVE);
        let all = [&controller, &one, &other];
        // Of all users' requests, not of the controller's alone.
        let is_whole = || {
            let has_plan = all.iter().all(|member| !member.home.rows.borrow().is_empty());
            has_plan && is_near(demand_of(&controller.home.last()), 1_900.0, 0.03)
        };
        until(SOON, "a plan for the users of all processes", is_whole).await;
        let from = controller.home.last().epoch + 1;
        let until_epoch = from + 9;
        until(SOON, "nine epochs", || controller.home.last().epoch > until_epoch).await;

        let (mut planned, mut sent, mut due, mut worst) = (0.0, 0, 0.0, 0.0_f64);
        for epoch in from..until_epoch {
            let row = controller.home.rows.borrow()[&epoch].clone();
            let mut window = SplitWindow::empty(2);
            for member in all {
                assert_eq!(member.home.rows.borrow()[&epoch], row, "all follow the same plan");
                window.merge(&member.home.epochs.borrow()[&epoch].0);
            }
            let over = controller.home.epochs.borrow()[&epoch].1.as_secs_f64();
            let rate = row.rates_per_1000_s[1] as f64 * 1e-3;
            let (share, came) = (row.share(SiteId::new(1)).value(), window.by_site[1].sent);
            planned += rate * over;
            due += share * window.arrived as f64;
            sent += came;
            worst = worst.max((came as f64 - rate * over).abs() / (rate * over));
            let bursts = 4.0 * burst(0.0, share) + rate * 0.011;
            assert!(came as f64 <= 1.1 * rate * over + bursts, "{came} of {rate} in {over} s");
        }
        let error = (sent as f64 - planned) / planned;
        println!(
            "3 processes, 4 workers: {sent} sent in 9 epochs of 0.6 s, {planned:.0} planned \
             ({:+.2} %; the worst epoch {:.2} %), {due:.0} due ({:+.2} %)",
            100.0 * error,
            100.0 * worst,
            100.0 * (sent as f64 - due) / due
        );
        assert!(planned > 500.0, "that was no redirect: {planned}");
        assert!(error.abs() < 0.02, "{sent} of {planned}");
        // Parts go by demand and are one together as soon as all three were told the same epoch's
        // (read just after an epoch began, one of them may still be the last epoch's).
        let parts = || all.map(|member| member.home.parts());
        let is_one = || (parts().iter().sum::<f64>() - 1.0).abs() < 1e-6;
        until(SOON, "parts that are one together", is_one).await;
        let parts = parts();
        for (part, (demand, workers)) in
            parts.into_iter().zip([(300.0, 1), (400.0, 1), (1_200.0, 2)])
        {
            let expected = 0.95 * demand / 1_900.0 + 0.05 * f64::from(workers) / 4.0;
            assert!(is_near(part, expected, 0.05), "{part}, {expected} expected");
        }
        // The same for people: three processes, and how far they are from the plan.
        let state = controller.state();
        let enforced = state.enforced.clone().unwrap();
        assert_eq!((enforced.processes, enforced.to.len()), (3, 1));
        let destination = &enforced.to[0];
        let off = destination.sent_requests as f64 - destination.planned_requests;
        assert_eq!((destination.name.as_str(), destination.error_requests), ("ireland", off));
        assert!(off.abs() < 0.06 * destination.planned_requests, "{destination:?}");
        assert_eq!(state.followers.len(), 2);
        let demand = |of: usize| state.followers[of].demand_per_s;
        assert!(is_near(demand(0) + demand(1), 1_600.0, 0.05), "{:?}", state.followers);
        let text = metrics_of(&state);
        for series in [
            "evenkeel_redirect_site_error_requests{datacenter=\"ireland\"} ",
            "evenkeel_redirect_follower_part_ratio{follower=\"127.0.0.1/",
            "evenkeel_redirect_followers_joined_total 2\n",
        ] {
            assert!(text.contains(series), "{series} is not in {text}");
        }
        let reported = one.state();
        let reported = reported.controller.as_ref().unwrap();
        assert!(
            reported.is_heard && reported.is_in_force && reported.rejected.is_empty(),
            "{reported:?}"
        );
        assert!(is_near(reported.part_ratio.unwrap(), one.home.parts(), 1e-6), "{reported:?}");
    });
}

#[test]
fn a_follower_that_dies_is_no_demand_and_comes_back_as_another_run() {
    on_one_thread(async {
        let authority = Authority::new();
        let (ground, mut listeners) = Ground::new(&authority, "follower-dies");
        let ireland = listeners.pop().unwrap();
        let controller = ground.controller(0, listeners.pop().unwrap(), &[800.0], planner(|_| {}));
        let _ireland = ground.controller(1, ireland, &[200.0], planner(|_| {}));
        let stays = ground.follower("stays", &[300.0], OBJECTIVE);
        let dies = ground.follower("dies", &[700.0], OBJECTIVE);
        let demand =
            || controller.home.rows.borrow().values().next_back().map(demand_of).unwrap_or(0.0);
        until(SOON, "a plan for all", || is_near(demand(), 1_800.0, 0.04)).await;
        let before = controller.home.last().epoch;
        drop(dies);
        until(SOON, "a plan without it", || is_near(demand(), 1_100.0, 0.05)).await;
        let rows = controller.home.rows.borrow().clone();
        for (epoch, row) in rows.range(before + 1..) {
            // Never less than those who are there, never more than there were.
            let demand = demand_of(row);
            assert!((1_040.0..1_890.0).contains(&demand), "{demand} in {epoch}");
        }
        let without = controller.home.last().epoch;
        assert!(
            without - before <= 3,
            "an epoch and the one that was under way: {before} {without}"
        );
        let parts = controller.home.parts() + stays.home.parts();
        until(SOON, "parts of those that are left", || {
            (controller.home.parts() + stays.home.parts() - 1.0).abs() < 1e-6
        })
        .await;
        assert!(parts <= 1.0 + 1e-6);
        assert_eq!(controller.state().counts.followers_gone["left"], 1);
        let again = ground.follower("again", &[700.0], OBJECTIVE);
        until(SOON, "a plan for all again", || is_near(demand(), 1_800.0, 0.04)).await;
        until(SOON, "its part", || again.home.parts() > 0.2).await;
    });
}

#[test]
fn without_the_controller_followers_serve_at_home_until_it_is_back() {
    on_one_thread(async {
        let authority = Authority::new();
        let (ground, mut listeners) = Ground::new(&authority, "controller-dies");
        let ireland = listeners.pop().unwrap();
        let controller = ground.controller(0, listeners.pop().unwrap(), &[900.0], planner(|_| {}));
        let _ireland = ground.controller(1, ireland, &[200.0], planner(|_| {}));
        let follower = ground.follower("one", &[1_000.0], OBJECTIVE);
        let away = || follower.home.total().by_site[1].sent;
        until(SOON, "requests sent away by the follower", || away() > 20).await;
        drop(controller);
        until(SOON, "a plan that nobody believes", || {
            let state = follower.state();
            let reported = state.controller.as_ref().unwrap();
            !reported.is_heard && !reported.is_in_force && reported.lost == 1
        })
        .await;
        let state = follower.state();
        assert!(state.alarms.iter().any(|alarm| alarm.words.contains("is lost")), "{state:?}");
        follower.home.hand_up(0); // what was counted before
        let (before, total) = (away(), follower.home.total());
        tokio::time::sleep(Duration::from_millis(500)).await;
        follower.home.hand_up(0);
        let after = follower.home.total();
        assert_eq!(away(), before, "all stays at home");
        assert!(after.stale > total.stale, "and says why");
        let listener = TcpListener::bind(ground.addresses[0]).unwrap();
        let _controller = ground.controller(0, listener, &[900.0], planner(|_| {}));
        until(SOON, "requests sent away again", || away() > before + 20).await;
    });
}

/// The first words of a follower, by hand.
fn hello(sites: u32) -> Vec<u8> {
    let mut hello = vec![3]; // the version
    hello.extend(7_u64.to_le_bytes());
    hello.push(1);
    hello.extend([sites, 0, 0].into_iter().flat_map(u32::to_le_bytes));
    Frame::Hello(&hello).bytes()
}

#[test]
fn strangers_and_nonsense_are_no_followers() {
    on_one_thread(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let (ground, mut listeners) = Ground::new(&authority, "no-followers");
        let controller = ground.controller(0, listeners.remove(0), &[900.0], planner(|_| {}));
        // A forecast from the first, short counts may be off for some epochs.
        let is_known = || {
            let rows = controller.home.rows.borrow();
            let mut last = rows.values().rev().take(3);
            rows.len() > 3 && last.all(|row| is_near(demand_of(row), 900.0, 0.05))
        };
        until(SOON, "the demand known", is_known).await;
        let (to, pem) = (ground.addresses[0], authority.pem());
        let refused = |reason: &str| controller.state().counts.refused[reason];
        let rejected = |reason: &str| controller.state().counts.followers_rejected[reason];
        // The site's name on a certificate of another authority; no certificate at all.
        for shown in [Some(other.issue(&["london"])), None] {
            let before = refused("tls");
            if let Ok(mut stranger) = Outsider::connect(to, SITES[0], &pem, shown.as_ref()).await {
                let _ = stranger.send(&hello(0)).await;
                assert!(stranger.rest().await.is_empty(), "not a word");
            }
            until(SOON, "a stranger refused", || refused("tls") > before).await;
        }
        // Another site is a peer, and no follower whatever it says.
        let shown = authority.issue(&["ireland"]);
        let mut peer = Outsider::connect(to, SITES[0], &pem, Some(&shown)).await.unwrap();
        peer.send(&hello(0)).await.unwrap();
        assert!(peer.rest().await.is_empty());
        let of_peer = || controller.state().sites[1].rejected.get("frame-unexpected").copied();
        until(SOON, "a peer's hello rejected", || of_peer() == Some(1)).await;

        let shown = authority.issue(&["london"]);
        let own = || async { Outsider::connect(to, SITES[0], &pem, Some(&shown)).await.unwrap() };
        let nonsense: [(&str, Vec<u8>); 5] = [
            ("malformed", Frame::Probe { sequence: 1 }.bytes()),
            ("malformed", Frame::Hello(b"hi").bytes()),
            ("malformed", u32::MAX.to_be_bytes().to_vec()),
            ("malformed", Frame::Counts(&[0; 40]).bytes()),
            ("malformed", vec![0, 0, 0, 1, 99]),
        ];
        for (reason, bytes) in &nonsense {
            let before = rejected(reason);
            let mut outsider = own().await;
            outsider.send(bytes).await.unwrap();
            assert!(outsider.rest().await.is_empty());
            until(SOON, "nonsense counted", || rejected(reason) > before).await;
        }
        // Set differently: it is told in what, and gets nothing.
        let mut unlike = own().await;
        unlike.send(&hello(0)).await.unwrap();
        assert_eq!(unlike.rest().await, Frame::Unlike(&[0]).bytes());
        until(SOON, "other settings counted", || rejected("other-settings") == 1).await;
        let other = ground.follower("other", &[500.0], 2 * OBJECTIVE);
        let words = "this process has another objective than the controller";
        until(SOON, "the follower says in what it differs", || {
            other.state().alarms.iter().any(|alarm| alarm.words.contains(words))
        })
        .await;
        until(SOON, "so does the controller", || {
            let alarms = controller.state().alarms.clone();
            alarms.iter().any(|alarm| alarm.words.contains("it has another objective"))
        })
        .await;
        assert!(other.home.rows.borrow().is_empty());
        let state = controller.state();
        assert_eq!((state.followers.len(), state.counts.followers_joined), (0, 0));
        let demand = demand_of(&controller.home.last());
        assert!(is_near(demand, 900.0, 0.05), "nothing has changed: {demand}");
    });
}

#[test]
fn a_site_that_is_set_differently_is_told_in_what() {
    on_one_thread(async {
        let authority = Authority::new();
        let (ground, mut listeners) = Ground::new(&authority, "differs");
        let ireland = listeners.pop().unwrap();
        let london = ground.controller(0, listeners.pop().unwrap(), &[100.0], planner(|_| {}));
        let change = |config: &mut PlannerConfig| {
            (config.relay, config.quantum_ppm) = (true, 20_000);
        };
        let ireland = ground.controller(1, ireland, &[100.0], planner(change));
        for (member, other, name) in [(&london, 1, "ireland"), (&ireland, 0, "london")] {
            let words = format!("rejected from {name}");
            until(SOON, "a row of other settings", || {
                let state = member.state();
                let mut reported = state.alarms.iter().map(|alarm| &alarm.words);
                reported.any(|reported| {
                    reported.starts_with(&words)
                        && reported.contains("other settings in relay, quantum")
                })
            })
            .await;
            assert_eq!(member.state().sites[other].differs, ["relay", "quantum"]);
            assert_eq!(member.state().sites[other].standing, "unheard");
        }
    });
}
