//! What is told when, and what becomes of it on disk.

use std::net::SocketAddr;
use std::path::Path;

use evenkeel_core::Health;
use evenkeel_core::units::Probability;
use evenkeel_geo::epoch::SiteId;

use super::super::assignment::{Locality, WEIGHT_TOTAL};
use super::*;
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::wait::until;

const MS: Duration = Duration::from_millis(1);

fn cluster() -> Cluster {
    let locality = |site: usize| Locality {
        name: format!("dc{site}"),
        endpoints: vec![SocketAddr::from(([127, 0, 0, 1], 9000 + site as u16))],
        slots: site..site + 1,
    };
    Cluster {
        name: "shop".to_owned(),
        home: SiteId::new(0),
        localities: (0..2).map(locality).collect(),
    }
}

fn directive(epoch: u64, rates: [u64; 2], good_until: evenkeel_core::Instant) -> Directive {
    let origin = SiteId::new(0);
    let demand_per_1000_s = rates.iter().sum();
    let rates_per_1000_s = rates.to_vec();
    let row = PlanRow { epoch, origin, demand_per_1000_s, rates_per_1000_s };
    let (parts, hedges) = (vec![Probability::ONE], evenkeel_geo::epoch::SiteSet::first(2));
    Directive { row, parts, good_until, spare_per_1000_s: Vec::new(), hedges, inflow: None }
}

/// A plane with one feed, and the ends it is fed by.
struct World {
    plane: Arc<Plane>,
    directives: watch::Sender<Option<Arc<Directive>>>,
    plans: watch::Sender<Arc<RoutePlan>>,
    clock: Clock,
}

impl World {
    /// Call it in a runtime, whose time is its own.
    fn start(directory: Option<&Path>) -> Self {
        let feed = Feed::new(cluster(), Duration::from_secs(1), Box::new(|_, _| {}));
        let plane = Plane::new(vec![feed], Duration::from_secs(1));
        let directives = watch::Sender::new(None);
        let plans = watch::Sender::new(Arc::new(RoutePlan::single_group(2)));
        let sources = Sources { directives: directives.subscribe(), plans: plans.subscribe() };
        let clock = Clock::virtual_time();
        plane.spawn(vec![sources], clock, directory);
        Self { plane, directives, plans, clock }
    }

    fn direct(&self, epoch: u64, rates: [u64; 2], good_for: Duration) {
        let directive = directive(epoch, rates, self.clock.now() + good_for);
        self.directives.send_replace(Some(Arc::new(directive)));
    }

    /// Version and weights, once they are these.
    async fn expect(&self, version: &str, weights: &[u32]) {
        let feed = &self.plane.feeds()[0];
        let mut assignments = feed.assignment.subscribe();
        let is_it = |assignment: &Arc<Assignment>| {
            let reported = assignment.localities.iter().map(|locality| locality.weight);
            assignment.version == version && reported.eq(weights.iter().copied())
        };
        let waited = tokio::time::timeout(5_000 * MS, assignments.wait_for(is_it)).await;
        assert!(waited.is_ok(), "{version} {weights:?}: {:?}", feed.assignment());
    }
}

/// In virtual time: it jumps to the next deadline whenever nobody has anything to do.
fn run_paused(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build_local(Default::default());
    runtime.unwrap().block_on(test);
}

#[test]
fn a_plan_is_told_and_forgotten_when_it_is_stale() {
    run_paused(async {
        let world = World::start(None);
        world.expect("none.0", &[WEIGHT_TOTAL, 0]).await;
        world.direct(7, [900, 100], 50 * MS);
        world.expect("7.1", &[900_000, 100_000]).await;
        world.expect("stale.2", &[WEIGHT_TOTAL, 0]).await;
        world.direct(9, [500, 500], 60_000 * MS);
        world.expect("9.3", &[500_000, 500_000]).await;
    });
}

#[test]
fn what_changes_nothing_is_not_told_again() {
    run_paused(async {
        let world = World::start(None);
        world.direct(7, [900, 100], 60_000 * MS);
        world.expect("7.1", &[900_000, 100_000]).await;
        // Twice the demand and the same shares; then other shares.
        world.direct(8, [1_800, 200], 60_000 * MS);
        tokio::time::sleep(1_000 * MS).await;
        world.expect("7.1", &[900_000, 100_000]).await;
        world.direct(9, [800, 200], 60_000 * MS);
        world.expect("9.2", &[800_000, 200_000]).await;
    });
}

#[test]
fn the_death_of_a_site_is_told_within_the_epoch() {
    run_paused(async {
        let world = World::start(None);
        world.direct(7, [900, 100], 60_000 * MS);
        world.expect("7.1", &[900_000, 100_000]).await;
        let mut plan = RoutePlan::single_group(2);
        plan.health[1] = Health::Down;
        world.plans.send_replace(Arc::new(plan));
        world.expect("7.2", &[WEIGHT_TOTAL]).await;
    });
}

#[test]
fn a_plan_for_another_origin_is_no_plan() {
    run_paused(async {
        let world = World::start(None);
        let mut foreign = directive(7, [0, 100], world.clock.now() + 60_000 * MS);
        foreign.row.origin = SiteId::new(1);
        world.directives.send_replace(Some(Arc::new(foreign)));
        tokio::time::sleep(1_000 * MS).await;
        world.expect("none.0", &[WEIGHT_TOTAL, 0]).await;
    });
}

fn version_in(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    Some(file["version_info"].as_str()?.to_owned())
}

#[test]
fn the_file_follows_and_a_directory_that_comes_late_is_found() {
    let folder = Folder::new("eds");
    let (directory, path) = (folder.file("late"), folder.file("late/shop.json"));
    worker_runtime().unwrap().block_on(async {
        let world = World::start(Some(&directory));
        until("there is no directory yet", || world.plane.counts().files_failed > 0).await;
        std::fs::create_dir_all(&directory).unwrap();
        for (epoch, rates, version) in [(7, [900, 100], "7.1"), (8, [100, 900], "8.2")] {
            world.direct(epoch, rates, 60_000 * MS);
            world.expect(version, &rates.map(|rate| rate as u32 * 1_000)).await;
            // It is counted once it is there.
            let counted = || world.plane.counts().files >= epoch - 6;
            until(version, || version_in(&path).as_deref() == Some(version) && counted()).await;
        }
        let names = std::fs::read_dir(&directory).unwrap().count();
        assert_eq!((names, world.plane.counts().files), (1, 2), "nothing else stays behind");
    });
}

/// Nobody reads the pipe in the place of the temporary file, so opening it waits, as a disk may.
#[test]
fn a_disk_that_waits_holds_up_the_file_and_nothing_else() {
    let folder = Folder::new("slow-disk");
    let (pipe, path) = (folder.file(".shop.json.new"), folder.file("shop.json"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let (let_go, reported) = std::sync::mpsc::channel();
    let reading = std::thread::spawn(move || {
        reported.recv().unwrap();
        std::fs::read(pipe).unwrap() // what was to be written goes here
    });
    worker_runtime().unwrap().block_on(async {
        let world = World::start(Some(folder.path()));
        tokio::task::yield_now().await; // it tries
        world.direct(7, [900, 100], 60_000 * MS);
        world.expect("7.1", &[900_000, 100_000]).await;
        world.direct(8, [800, 200], 60_000 * MS);
        world.expect("8.2", &[800_000, 200_000]).await;
        assert_eq!(world.plane.counts().files, 0);
        let_go.send(()).unwrap();
        reading.join().unwrap();
        // The pipe itself was moved into place; the newest assignment replaces it.
        let is_written = || path.is_file() && version_in(&path).as_deref() == Some("8.2");
        // It is counted once it is there.
        until("8.2", || is_written() && world.plane.counts().files >= 2).await;
        assert_eq!(world.plane.counts().files, 2, "what is out of date is not written any more");
    });
}
