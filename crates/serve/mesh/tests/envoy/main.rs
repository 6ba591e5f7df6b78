//! The real Envoy follows the plan, by a file and over gRPC, and its reports are the demand.
//!
//! The bootstraps are those of `docs/envoy.md`. Without an Envoy the tests say so and pass by.

#![expect(clippy::unwrap_used, reason = "a test may fail")]

mod server;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::units::Probability;
use evenkeel_geo::demand::SiteTally;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::{PlanRow, SplitWindow};
use evenkeel_geo::traffic::Directive;
use evenkeel_mesh::envoy::{Cluster, Feed, Locality, Plane, Sources};
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_runtime::clock::Clock;
use server::{Backend, Client, Envoy, bootstraps, find, scratch};
use tokio::sync::watch;

const MS: Duration = Duration::from_millis(1);
/// Longer than this nothing here takes on the busiest machine: an answer, an update, a report.
const LATE: Duration = Duration::from_secs(10);
const NAMES: [&str; 3] = ["london", "ireland", "frankfurt"];
/// How often Envoys report here.
const INTERVAL: Duration = Duration::from_millis(300);
/// Standard errors by which what was measured may differ from the plan.
const ERRORS_MAX: f64 = 4.0;

/// Demand, and what became of it, as it is handed up.
#[derive(Default)]
struct PlanPart {
    window: Option<SplitWindow>,
    by_site: [SiteTally; 3],
}

/// Three sites with a replica each, and the plane that tells Envoys of them.
struct World {
    backends: [Backend; 3],
    plane: Arc<Plane>,
    reported: Arc<Mutex<PlanPart>>,
    directives: watch::Sender<Option<Arc<Directive>>>,
    plans: watch::Sender<Arc<RoutePlan>>,
    clock: Clock,
    epoch: u64,
    directory: PathBuf,
    /// Where gRPC is served.
    port: u16,
    stop: watch::Sender<bool>,
    control: Option<JoinHandle<()>>,
}

impl World {
    fn start(name: &str) -> Self {
        let backends = NAMES.map(Backend::start);
        let locality = |site: usize| Locality {
            name: NAMES[site].to_owned(),
            endpoints: vec![backends[site].address],
            slots: site..site + 1,
        };
        let localities = (0..3).map(locality).collect();
        let cluster = Cluster { name: "shop".to_owned(), home: SiteId::new(0), localities };
        let reported = Arc::new(Mutex::new(PlanPart::default()));
        let tell = {
            let reported = Arc::clone(&reported);
            move |window: &SplitWindow, by_site: &[SiteTally]| {
                let mut reported = reported.lock().unwrap();
                reported.window.get_or_insert_with(|| SplitWindow::empty(3)).merge(window);
                for (sum, counts) in reported.by_site.iter_mut().zip(by_site) {
                    sum.ended += counts.ended;
                    sum.missed += counts.missed;
                }
            }
        };
        let plane = Plane::new(vec![Feed::new(cluster, INTERVAL, Box::new(tell))], INTERVAL);
        let directives = watch::Sender::new(None);
        let plans = watch::Sender::new(Arc::new(RoutePlan::single_group(3)));
        let sources = Sources { directives: directives.subscribe(), plans: plans.subscribe() };
        let (directory, clock) = (scratch(&format!("{name}-eds")), Clock::start());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, mut stopping) = watch::channel(false);
        let control = {
            let (plane, directory) = (Arc::clone(&plane), directory.clone());
            std::thread::spawn(move || {
                worker_runtime().unwrap().block_on(async {
                    plane.spawn(vec![sources], clock, Some(&directory));
                    tokio::task::spawn_local(evenkeel_mesh::envoy::serve(plane, listener));
                    let _ = stopping.wait_for(|stop| *stop).await;
                });
            })
        };
        let control = Some(control);
        let epoch = 0;
        Self {
            backends,
            plane,
            reported,
            directives,
            plans,
            clock,
            epoch,
            directory,
            port,
            stop,
            control,
        }
    }

    /// Hands down a plan with these rates, in requests per 1,000 s.
    fn direct(&mut self, rates: [u64; 3]) {
        self.epoch += 1;
        let row = PlanRow {
            epoch: self.epoch,
            origin: SiteId::new(0),
            demand_per_1000_s: rates.iter().sum(),
            rates_per_1000_s: rates.to_vec(),
        };
        let good_until = self.clock.now() + 600_000 * MS;
        let directive = Directive {
            row,
            parts: vec![Probability::ONE],
            good_until,
            spare_per_1000_s: Vec::new(),
            hedges: evenkeel_geo::epoch::SiteSet::first(2),
            inflow: None,
        };
        self.directives.send_replace(Some(Arc::new(directive)));
    }

    /// The document's bootstrap for file EDS, with this world's directory.
    fn by_file(&self) -> String {
        bootstraps()[1].replace("/run/evenkeel", self.directory.to_str().unwrap())
    }

    fn over_grpc(&self) -> String {
        let port = format!("port_value: {}", self.port);
        bootstraps()[0].replace("port_value: 18000", &port)
    }

    /// Waits for a truth; these Envoys tell why when it does not come.
    fn wait(&self, envoys: &[&Envoy], what: &str, mut is_true: impl FnMut() -> bool) {
        let began = Instant::now();
        while !is_true() {
            let is_late = began.elapsed() > LATE;
            assert!(!is_late, "{what} does not come true\n{}", self.stages(envoys));
            std::thread::sleep(MS);
        }
    }

    /// Waits until Envoy has taken the last plan.
    fn arrive(&self, envoy: &Envoy) {
        let epoch = format!("{}.", self.epoch);
        self.wait(&[envoy], "the last plan's arrival", || envoy.version().starts_with(&epoch));
    }

    /// Sends requests until all of the plan's destinations, and only they, answer.
    fn settle(&self, envoy: &Envoy, client: &mut Client, expected: &[&str]) {
        let expected: BTreeSet<String> = expected.iter().map(|&name| name.to_owned()).collect();
        let mut answers = BTreeSet::new();
        self.wait(&[envoy], &format!("that only {expected:?} answer"), || {
            answers = (0..60).map(|_| client.get("/")).collect();
            answers == expected
        });
    }

    /// How far the last plan has come, stage by stage: for the message of a failure.
    fn stages(&self, envoys: &[&Envoy]) -> String {
        let feed = &self.plane.feeds()[0];
        let file = std::fs::read_to_string(self.directory.join("shop.json")).unwrap_or_default();
        let in_file = file.lines().find(|line| line.contains("version_info")).unwrap_or("none");
        let states: Vec<_> = envoys.iter().map(|envoy| envoy.state()).collect();
        let reported =
            self.reported.lock().unwrap().window.as_ref().map_or(0, |window| window.arrived);
        let served: Vec<u64> = self.backends.iter().map(Backend::served).collect();
        format!(
            "directed: epoch {}\nto be told: {:?}\n{:?}\nin the file: {in_file}\n\
             served: {served:?}, in reports: {reported}\n{}",
            self.epoch,
            feed.assignment(),
            self.plane.counts(),
            states.join("\n"),
        )
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(control) = self.control.take() {
            let _ = control.join();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// By site, how many of `requests` it answered.
fn drive(client: &mut Client, requests: usize) -> [u64; 3] {
    let mut counts = [0; 3];
    for _ in 0..requests {
        let body = client.get("/");
        counts[NAMES.iter().position(|name| *name == body).expect("a site's name")] += 1;
    }
    counts
}

/// Checks counts against shares, in parts of their sum; prints both.
fn expect_shares(what: &str, counts: [u64; 3], rates: [u64; 3]) {
    let (n, sum) = (counts.iter().sum::<u64>() as f64, rates.iter().sum::<u64>() as f64);
    println!("{what}: {counts:?} of {n} by rates {rates:?}");
    for (count, rate) in counts.iter().zip(rates) {
        let share = rate as f64 / sum;
        let error = (n * share * (1.0 - share)).sqrt();
        let off = (*count as f64 - n * share).abs();
        assert!(off <= ERRORS_MAX * error, "{what}: {counts:?}, {rates:?}: off by {off}");
    }
}

/// Two plans, measured; then how long a change takes to act, in ms: median and worst of six.
fn follow(world: &mut World, envoy: &Envoy, client: &mut Client, way: &str) {
    for rates in [[600, 300, 100], [100, 850, 50]] {
        world.direct(rates);
        world.arrive(envoy);
        world.settle(envoy, client, &NAMES);
        expect_shares(way, drive(client, 3_000), rates);
    }
    let mut delays = Vec::new();
    for round in 0..6 {
        let (rates, name) =
            if round % 2 == 0 { ([1, 0, 0], NAMES[0]) } else { ([0, 1, 0], NAMES[1]) };
        let began = Instant::now();
        world.direct(rates);
        let mut last_wrong = began;
        while last_wrong.elapsed() < 150 * MS {
            let answer = client.get("/");
            if answer != name {
                last_wrong = Instant::now();
                let is_late = began.elapsed() > LATE;
                assert!(!is_late, "{way}: {answer}, not {name}\n{}", world.stages(&[envoy]));
            }
        }
        delays.push((last_wrong - began).as_secs_f64() * 1_000.0);
    }
    delays.sort_by(f64::total_cmp);
    println!("{way}: last answer by the old plan, ms after the new one: {delays:.1?}");
    // The planner makes a plan every few seconds: what acts within a tenth of that is at once.
    assert!(delays[3] < 250.0, "{way}: {delays:?}\n{}", world.stages(&[envoy]));
}

#[test]
fn envoy_follows_a_plan_by_file() {
    let Some(binary) = find() else { return };
    let mut world = World::start("file");
    let envoy = Envoy::start(&binary, "file", &world.by_file());
    let mut client = Client::connect(envoy.users);
    world.settle(&envoy, &mut client, &NAMES[..1]); // no plan: all at home
    follow(&mut world, &envoy, &mut client, "file EDS");
    assert_eq!((envoy.stat("update_rejected"), envoy.stat("update_failure")), (0, 0));
    let mut plan = RoutePlan::single_group(3);
    plan.health[1] = evenkeel_core::Health::Down;
    world.direct([0, 600, 400]);
    world.plans.send_replace(Arc::new(plan));
    world.settle(&envoy, &mut client, &[NAMES[0], NAMES[2]]);
    expect_shares("a dead site", drive(&mut client, 1_000), [600, 0, 400]);
}

/// Envoy begins its turns anew with every change: a share that is due once in twenty requests must
/// get its part even when changes come every ten.
#[test]
fn frequent_changes_do_not_starve_a_small_share() {
    let Some(binary) = find() else { return };
    let mut world = World::start("frequent");
    let envoy = Envoy::start(&binary, "frequent", &world.by_file());
    let mut client = Client::connect(envoy.users);
    let mut counts = [0; 3];
    for round in 0..300 {
        world.direct([950 - round % 2, 50 + round % 2, 0]);
        world.arrive(&envoy);
        counts.iter_mut().zip(drive(&mut client, 10)).for_each(|(sum, count)| *sum += count);
    }
    assert!(envoy.stat("update_success") > 300, "{}", world.stages(&[&envoy]));
    expect_shares("a change in every ten requests", counts, [949, 51, 0]);
}

/// Why no weight of 0 is ever written, and why none at all is.
#[test]
fn envoy_refuses_a_weight_of_zero_and_sends_nothing_without_a_weight() {
    let Some(binary) = find() else { return };
    let mut world = World::start("zero");
    let envoy = Envoy::start(&binary, "zero", &world.by_file());
    let mut client = Client::connect(envoy.users);
    world.direct([500, 500, 0]);
    world.settle(&envoy, &mut client, &NAMES[..2]);
    let path = world.directory.join("shop.json");
    let accepted = envoy.stat("update_success");
    rewrite(&path, "500000", "0");
    world.wait(&[&envoy], "that 0 is refused", || envoy.stat("update_rejected") > 0);
    assert_eq!(envoy.stat("update_success"), accepted);
    expect_shares("weight 0 refused", drive(&mut client, 1_000), [500, 500, 0]);
    // The second locality's weight is struck out.
    rewrite(&path, "\"load_balancing_weight\": 0,", "");
    world.settle(&envoy, &mut client, &NAMES[..1]);
    assert_eq!(drive(&mut client, 500), [500, 0, 0], "no weight, no requests");
}

/// Replaces the last occurrence, whole, as an editor of a running Envoy's file must.
fn rewrite(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    let at = text.rfind(from).expect("it is in the file");
    let text = format!("{}{to}{}", &text[..at], &text[at + from.len()..]);
    let temporary = path.with_extension("by-hand");
    std::fs::write(&temporary, text).unwrap();
    std::fs::rename(temporary, path).unwrap();
}

mod grpc {
    use super::*;

    #[test]
    fn envoy_follows_a_plan_over_ads_and_reports_every_request() {
        let Some(binary) = find() else { return };
        let mut world = World::start("ads");
        let envoy = Envoy::start(&binary, "ads", &world.over_grpc());
        let mut client = Client::connect(envoy.users);
        // What Envoy sends before it has been asked for reports is in none.
        let feed = &world.plane.feeds()[0];
        world.wait(&[&envoy], "it is heard", || feed.reporters(Instant::now()) == 1);
        world.settle(&envoy, &mut client, &NAMES[..1]);
        follow(&mut world, &envoy, &mut client, "ADS");
        world.direct([500, 300, 200]);
        world.arrive(&envoy);
        world.settle(&envoy, &mut client, &NAMES);
        for _ in 0..50 {
            let _ = client.get("/fail");
        }
        let served: Vec<u64> = world.backends.iter().map(Backend::served).collect();
        let all: u64 = served.iter().sum();
        // A request may be in one report as sent and in the next as ended.
        world.wait(&[&envoy], "the sum of the reports", || {
            let reported = world.reported.lock().unwrap();
            let ended: u64 = reported.by_site.iter().map(|counts| counts.ended).sum();
            reported.window.as_ref().is_some_and(|window| window.arrived >= all) && ended >= all
        });
        let reported = world.reported.lock().unwrap();
        let window = reported.window.as_ref().expect("it was just there");
        let sent: Vec<u64> = window.by_site.iter().map(|counts| counts.sent).collect();
        println!("served {served:?}, reported {sent:?}");
        assert_eq!((window.arrived, &sent), (all, &served));
        let missed: u64 = reported.by_site.iter().map(|counts| counts.missed).sum();
        let ended: u64 = reported.by_site.iter().map(|counts| counts.ended).sum();
        assert_eq!((ended, missed), (all, 50));
        let counts = world.plane.counts();
        println!("{counts:?}");
        assert!(counts.sent >= 9 && counts.accepted == counts.sent, "{counts:?}");
        assert_eq!((counts.refused, counts.streams, counts.reported_elsewhere), (0, 1, 0));
    }

    #[test]
    fn two_envoys_follow_the_same_plan_and_their_reports_add_up() {
        let Some(binary) = find() else { return };
        let mut world = World::start("two");
        let bootstrap = world.over_grpc();
        let envoys = ["two-a", "two-b"]
            .map(|name| Envoy::start(&binary, name, &bootstrap.replace("edge-1", name)));
        let mut clients = [0, 1].map(|envoy: usize| Client::connect(envoys[envoy].users));
        let rates = [700, 200, 100];
        world.direct(rates);
        let feed = &world.plane.feeds()[0];
        let both = [&envoys[0], &envoys[1]];
        world.wait(&both, "both are heard", || feed.reporters(Instant::now()) == 2);
        for (envoy, client) in envoys.iter().zip(&mut clients) {
            world.arrive(envoy);
            world.settle(envoy, client, &NAMES);
            expect_shares("one of two", drive(client, 1_000), rates);
        }
        let all: u64 = world.backends.iter().map(Backend::served).sum();
        let arrived =
            || world.reported.lock().unwrap().window.as_ref().map_or(0, |one| one.arrived);
        world.wait(&both, "the sum of both", || arrived() == all);
        // While one is driven alone, what is heard of both is what it sends: on the average over
        // eight reports, for a busy machine may send next to nothing in one of them.
        let (mut heard, began) = (0.0, Instant::now());
        let (mut sent, mut last) = (0, began);
        while began.elapsed() < 8 * INTERVAL {
            sent += drive(&mut clients[0], 20).iter().sum::<u64>();
            let now = Instant::now();
            let rate = feed.rates(now).iter().map(|one| one.issued_per_s).sum::<f64>();
            heard += rate * (now - last).as_secs_f64();
            last = now;
        }
        println!("{sent} requests sent, {heard:.0} by the rates heard");
        assert!((0.3..3.0).contains(&(heard / sent as f64)), "{heard} {sent}");
        drop(envoys);
        world.wait(&[], "nobody is heard any more", || feed.reporters(Instant::now()) == 0);
        world.wait(&[], "and no stream is open", || world.plane.counts().streams == 0);
        assert_eq!(world.plane.counts().refused, 0);
    }
}
