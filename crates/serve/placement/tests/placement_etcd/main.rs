//! Real etcd members, as far apart as regions of AWS: what is predicted is measured, moves are
//! safe, and what fails is taken back.
//!
//! Needs `etcd` and root (mount namespaces); says so and passes by where they are missing.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "../common/mod.rs"]
mod common;
mod load;
mod secure;
mod world;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use evenkeel_placement::act::audit::Audit;
use evenkeel_placement::act::etcd::{Etcd, Lease, linearizable_ms};
use evenkeel_placement::act::mover::{Mode, Mover, Order, Outcome, Rules};
use evenkeel_placement::act::{Cluster, Observed};
use evenkeel_planner::model::{Counts, Layout, RoundTrips, Route};
use evenkeel_planner::score::{Score, quorum_ms};
use evenkeel_planner::steps::{Abilities, Step};
use evenkeel_stores::clients::error::RemoteError;
use evenkeel_testkit::story::{MS, possible_story};
use evenkeel_testkit::wait::found;

use crate::common::{When, cut_and_finished, order};
use crate::load::{Kind, Log, Measured, Mix};
use crate::world::{SITES, World, keys, up};

const RULES: Rules = Rules { step: Duration::from_secs(6), ..common::RULES };

/// Stories that measure are alone: two at once would measure each other.
static MEASURING: RwLock<()> = RwLock::new(());

fn measuring(reported: impl AsyncFnOnce()) {
    let _alone = MEASURING.write().unwrap_or_else(PoisonError::into_inner);
    tell_story(reported);
}

fn story(reported: impl AsyncFnOnce()) {
    let _others = MEASURING.read().unwrap_or_else(PoisonError::into_inner);
    tell_story(reported);
}

fn tell_story(reported: impl AsyncFnOnce()) {
    possible_story(world::possible(), Duration::from_secs(120), reported);
}

fn all_vote(leader: usize) -> Layout {
    Layout::new(leader, (0..5).collect(), (0..5).collect()).unwrap()
}

/// Milliseconds of a mean operation, as equation 1 says.
fn predicted_ms(counts: &Counts, trips: &RoundTrips, leader: usize) -> f64 {
    Score::of(counts, trips, &all_vote(leader), Route::Nearest).total_ms() / counts.total()
}

fn best(counts: &Counts, trips: &RoundTrips) -> usize {
    let by = |a: &usize, b: &usize| {
        predicted_ms(counts, trips, *a).total_cmp(&predicted_ms(counts, trips, *b))
    };
    (0..5).min_by(by).unwrap()
}

/// Clients that are where members are, and measured round trips.
async fn round_trips(world: &World) -> RoundTrips {
    let from_clients = world.measure_ms().await;
    let mut between = from_clients.clone();
    for (site, row) in between.iter_mut().enumerate() {
        row[site] = 0.0; // its own vote
    }
    RoundTrips::new(&from_clients, &between).unwrap()
}

/// Weak gets take a member's own time and nothing else; a machine that is busy with other things
/// makes them slow, and then distances are not what is measured.
const WEAK_GET_MS_MAX: f64 = 6.0;

fn is_calm(measured: &Measured) -> bool {
    measured.of(Kind::WeakGet).1 < WEAK_GET_MS_MAX
}

/// Measures, and again if the machine was disturbed.
async fn measure(log: &Log, settle: Duration, length: Duration) -> Measured {
    for again in (0..3).rev() {
        tokio::time::sleep(settle).await;
        let from = Instant::now();
        tokio::time::sleep(length).await;
        let to = Instant::now();
        tokio::time::sleep(700 * MS).await; // what began before ends
        let measured = Measured::between(log, from, to);
        if again == 0 || is_calm(&measured) {
            return measured;
        }
        println!("a weak get took {:.1} ms: measured again", measured.of(Kind::WeakGet).1);
    }
    unreachable!("the last round returns")
}

fn tell(what: &str, measured: &Measured, expected_ms: f64) {
    let kinds = [Kind::Put, Kind::WeakGet, Kind::Get].map(|kind| measured.of(kind));
    let (mean_ms, failed) = (measured.mean_ms, measured.failed);
    println!(
        "{what}: {mean_ms:.1} ms measured, {expected_ms:.1} ms predicted ({:+.1} %), {failed} \
         failed; puts {:?}, weak gets {:?}, gets {:?}",
        (mean_ms / expected_ms - 1.0) * 100.0,
        kinds[0],
        kinds[1],
        kinds[2]
    );
}

/// Within 10 %, unless the machine is too busy to tell.
fn assert_near(measured: &Measured, came_ms: f64, expected_ms: f64) {
    let ratio = came_ms / expected_ms;
    if is_calm(measured) {
        assert!((0.9..=1.1).contains(&ratio), "{came_ms} ms for {expected_ms} ms");
    } else if !(0.9..=1.1).contains(&ratio) {
        eprintln!("SKIPPED: {came_ms:.1} ms for {expected_ms:.1} ms on a machine that is busy");
    }
}

#[test]
fn the_leader_follows_the_load_and_the_latency_is_the_one_predicted() {
    measuring(async || {
        let world = World::start(5);
        up(&world, 5).await;
        let etcd = world.cluster(0);
        let audit = Audit::open(&world.audit_path()).unwrap();
        let mover = Mover { cluster: &etcd, rules: RULES, audit: &audit };
        let reached = mover.run(&order(&all_vote(4), "to begin where it is worst")).await.unwrap();
        assert!(matches!(reached, Outcome::Reached(_) | Outcome::Nothing), "{reached:?}");
        let trips = round_trips(&world).await;

        let log = Rc::new(Log::default());
        let european = Mix { puts: [1, 1, 6, 4, 1], weak_gets: [2; 5], gets: [1, 1, 1, 1, 0] };
        let pacific = Mix { puts: [3, 5, 1, 1, 4], weak_gets: [2; 5], gets: [0, 1, 1, 0, 1] };
        let every = 700 * MS;
        let mut leader = 4;
        for (mix, name, expected) in [(european, "Europe", 2), (pacific, "Pacific", 0)] {
            let clients = load::start(&world, mix, every, &log);
            let before = measure(&log, 1_000 * MS, 3_500 * MS).await;
            let expected_ms = predicted_ms(&before.counts, &trips, leader);
            tell(&format!("{name}, {} leads", SITES[leader]), &before, expected_ms);
            assert_near(&before, before.mean_ms, expected_ms);

            let next = best(&before.counts, &trips);
            assert_eq!(next, expected, "{}", SITES[next]);
            let goal = all_vote(next);
            let promised_ms = predicted_ms(&before.counts, &trips, next);
            let dry = Order { mode: Mode::DryRun, ..order(&goal, name) };
            let Outcome::WouldDo(planned) = mover.run(&dry).await.unwrap() else { panic!("acts") };
            assert!(planned[0].how.starts_with("POST /v3/maintenance/transfer-leadership"));
            assert_eq!(etcd.observe().await.unwrap().layout, all_vote(leader), "dry is dry");
            let began = Instant::now();
            let outcome = mover.run(&order(&goal, name)).await.unwrap();
            assert_eq!(
                outcome,
                Outcome::Reached(vec![Step::MoveLeader { from: leader, to: next }])
            );
            println!("moved to {} in {:?}", SITES[next], began.elapsed());
            leader = next;

            let after = measure(&log, 1_500 * MS, 3_500 * MS).await;
            tell(&format!("{name}, {} leads", SITES[leader]), &after, promised_ms);
            assert_near(&after, after.mean_ms, promised_ms);
            assert!(after.mean_ms < before.mean_ms || !(is_calm(&before) && is_calm(&after)));
            drop(clients);
        }
        let there = keys(&world, 0).await;
        let acknowledged = log.acknowledged.borrow();
        let lost = acknowledged.iter().filter(|key| !there.contains(key)).count();
        println!("{} puts acknowledged, {lost} lost", acknowledged.len());
        assert!(acknowledged.len() > 200);
        assert_eq!(lost, 0);
    });
}

/// A cluster that loses a member while one of its steps is done.
struct Sabotaged<'a> {
    etcd: &'a Etcd,
    steps_before: Cell<usize>,
    process: u32,
}

impl Cluster for Sabotaged<'_> {
    type Hold = Lease;

    fn name(&self) -> &str {
        self.etcd.name()
    }
    fn site_name(&self, site: usize) -> String {
        self.etcd.site_name(site)
    }
    fn abilities(&self) -> Abilities {
        self.etcd.abilities()
    }
    async fn observe(&self) -> Result<Observed, RemoteError> {
        self.etcd.observe().await
    }
    async fn say(&self, step: Step) -> String {
        self.etcd.say(step).await
    }
    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        if self.steps_before.get() == 0 {
            let process = self.process.to_string();
            std::process::Command::new("kill").args(["-9", &process]).status().unwrap();
        }
        self.steps_before.set(self.steps_before.get().wrapping_sub(1));
        self.etcd.apply(step).await
    }
    async fn hold(&self, who: &str) -> Result<Lease, RemoteError> {
        self.etcd.hold(who).await
    }
    async fn keep(&self, hold: &Lease) -> Result<(), RemoteError> {
        self.etcd.keep(hold).await
    }
    async fn release(&self, hold: Lease) {
        self.etcd.release(hold).await;
    }
}

#[test]
fn a_member_that_dies_under_a_plan_stops_it_and_what_was_done_is_taken_back() {
    story(async || {
        let mut world = World::start(5);
        up(&world, 5).await;
        let etcd = world.cluster(0);
        let audit = Audit::open(&world.audit_path()).unwrap();
        let mover = Mover { cluster: &etcd, rules: RULES, audit: &audit };
        mover.run(&order(&all_vote(0), "to begin somewhere")).await.unwrap();

        // Somebody else is moving it: refused, and told who.
        let held = etcd.hold("somebody").await.unwrap();
        let refused = mover.run(&order(&all_vote(1), "at the same time")).await.unwrap_err();
        assert!(refused.message.contains("is being moved by somebody"), "{refused}");
        etcd.release(held).await;

        // The leader moves, then the member at 3 is to go, and the one at 2 dies meanwhile.
        let cluster =
            Sabotaged { etcd: &etcd, steps_before: Cell::new(1), process: world.process(2) };
        let rules = Rules { step: Duration::from_secs(3), ..RULES };
        let mover = Mover { cluster: &cluster, rules, audit: &audit };
        let goal = Layout::new(1, vec![0, 1, 2], vec![0, 1, 2]).unwrap();
        let outcome = mover.run(&order(&goal, "to fail")).await.unwrap();
        let Outcome::Stopped(stop) = outcome else { panic!("{outcome:?}") };
        println!("{stop}");
        assert_eq!(stop.done, [Step::MoveLeader { from: 0, to: 1 }]);
        let seen = etcd.observe().await.unwrap();
        assert_eq!(Some(&seen.layout), stop.layout.as_ref());
        assert!(seen.has_quorum(&seen.layout), "{seen:?}");
        assert_eq!(seen.layout.leader(), 0, "the leader is back");
        if seen.layout.has_voter(3) {
            assert_eq!(stop.stuck, None, "{stop}");
        } else {
            // It went before the other died; etcd takes no member while one does not answer.
            let stuck = stop.stuck.as_deref().unwrap_or_default();
            assert!(stuck.contains("unhealthy cluster"), "{stop}");
        }
        let log = std::fs::read_to_string(world.audit_path()).unwrap();
        let ended = if stop.stuck.is_none() { "stopped" } else { "unfinished" };
        for event in ["begins", "done", "failed", "taken-back", ended] {
            assert!(log.contains(&format!("\"event\":\"{event}\"")), "{event} in {log}");
        }

        // Without all voters nothing is begun, and without a quorum neither.
        let mover = Mover { cluster: &etcd, rules: RULES, audit: &audit };
        let refused = mover.run(&order(&all_vote(2), "too early")).await.unwrap_err();
        assert!(refused.message.contains("while a voter is not well: eu-west-1"), "{refused}");
        world.kill(1);
        if !seen.layout.has_voter(3) {
            // Two of four are left: the leader notices within two election timeouts.
            found("no leader", async || etcd.observe().await.err()).await;
        }
        let refused = mover.run(&order(&all_vote(2), "without a quorum")).await.unwrap_err();
        println!("{refused}");
        assert!(refused.may_pass);
    });
}

#[test]
fn a_voter_moves_to_a_new_site_by_way_of_a_learner() {
    story(async || {
        let world = World::start(3);
        up(&world, 3).await;
        let etcd = world.cluster(0);
        let audit = Audit::open(&world.audit_path()).unwrap();
        let rules = Rules { step: Duration::from_secs(15), ..RULES };
        let mover = Mover { cluster: &etcd, rules, audit: &audit };
        let now = etcd.observe().await.unwrap().layout;
        assert_eq!(now.voters(), [0, 1, 2]);
        let goal = Layout::new(3, vec![1, 2, 3], vec![1, 2, 3]).unwrap();
        let began = Instant::now();
        let outcome = mover.run(&order(&goal, "users are there")).await.unwrap();
        let Outcome::Reached(steps) = outcome else { panic!("{outcome:?}") };
        println!("{steps:?} in {:?}", began.elapsed());
        assert_eq!(steps[..2], [Step::AddReplica(3), Step::Promote(3)]);
        // Seen from another site, since the first has no member left.
        assert_eq!(world.cluster(1).observe().await.unwrap().layout, goal);
    });
}

#[test]
fn a_mover_that_is_cut_off_at_any_request_leaves_nothing_that_the_next_does_not_finish() {
    story(async || {
        let world = World::start_near(3);
        up(&world, 3).await;
        let (etcd, unstarted) = (world.cluster(1), world.cluster_of(1, false));
        let audit = Audit::open(&world.audit_path()).unwrap();
        let rules = Rules { step: Duration::from_secs(10), poll: 20 * MS, ..RULES };
        let mover = Mover { cluster: &etcd, rules, audit: &audit };
        // Sites 0 and 3 take turns: whichever way it ends, the next goes to the other.
        let ends = [(0, vec![0, 1, 2]), (3, vec![1, 2, 3])]
            .map(|(leader, members)| Layout::new(leader, members.clone(), members).unwrap());
        let mut now = etcd.observe().await.unwrap().layout;
        // Three requests follow the one that adds a learner: its vote, the leader, the old voter.
        for (requests, when, is_started, is_there) in [
            (0, When::After, false, Some(false)), // a learner whose process nobody started
            (0, When::After, true, None),         // whether it serves already
            (1, When::After, true, Some(true)),
            (2, When::After, true, Some(true)),
            (3, When::Before, true, Some(true)),
            (3, When::After, true, Some(true)),
        ] {
            let to = usize::from(now.has_voter(0));
            mover.run(&order(&ends[1 - to], "to begin at one end")).await.unwrap();
            let asked = if is_started { &etcd } else { &unstarted };
            let cut = (requests, when);
            let seen = cut_and_finished([asked, &etcd], &ends[to], cut, false, (rules, &audit));
            let Some(seen) = seen.await else {
                // The leader is moved by a request, unless an election has just done that.
                assert_eq!(requests, 3, "{cut:?}");
                now = etcd.observe().await.unwrap().layout;
                continue;
            };
            now = seen;
            let expected = is_there.unwrap_or(now == ends[to]);
            assert_eq!(now == ends[to], expected, "{cut:?}: {now:?}");
        }
    });
}

/// How long a linearizable get takes at a member that is not the leader, alone and in a crowd.
#[test]
fn a_linearizable_get_asks_the_leader_and_the_leader_a_majority() {
    measuring(async || {
        let world = World::start(5);
        up(&world, 5).await;
        let etcd = world.cluster(0);
        let audit = Audit::open(&world.audit_path()).unwrap();
        let mover = Mover { cluster: &etcd, rules: RULES, audit: &audit };
        mover.run(&order(&all_vote(0), "to begin somewhere")).await.unwrap();
        let trips = round_trips(&world).await;
        let quorum_ms = quorum_ms(&trips, 0, &[0, 1, 2, 3, 4]);
        let log = Rc::new(Log::default());

        let alone = Mix { puts: [0; 5], weak_gets: [1; 5], gets: [1; 5] };
        let clients = load::start(&world, alone, 500 * MS, &log);
        let measured = measure(&log, Duration::ZERO, 3_000 * MS).await;
        drop(clients);
        for (site, name) in SITES.into_iter().enumerate() {
            let of_site = |log: &Log| {
                let done = log.done.borrow();
                let mut of: Vec<f64> = done
                    .iter()
                    .filter(|one| one.site == site && one.is_ok && one.kind == Kind::Get)
                    .map(|one| one.took.as_secs_f64() * 1e3)
                    .collect();
                of.sort_by(f64::total_cmp);
                of[of.len() / 2]
            };
            let median_ms = of_site(&log);
            let to_leader_ms = trips.from_site(site)[0];
            let round_ms = to_leader_ms + quorum_ms;
            println!(
                "{name}: {median_ms:.1} ms; to the leader {to_leader_ms:.1}, with a quorum \
                 {round_ms:.1}"
            );
            assert_near(&measured, median_ms, round_ms);
        }

        let log = Rc::new(Log::default());
        let crowd = Mix { puts: [0; 5], weak_gets: [1; 5], gets: [0, 0, 0, 40, 0] };
        let clients = load::start(&world, crowd, 1_000 * MS, &log);
        let measured = measure(&log, 500 * MS, 2_500 * MS).await;
        drop(clients);
        let round_ms = trips.from_site(3)[0] + quorum_ms;
        let (_, mean_ms) = measured.of(Kind::Get);
        let expected_ms = linearizable_ms(round_ms, 40.0);
        println!(
            "40 a second at one member: {mean_ms:.1} ms; {round_ms:.1} alone, {expected_ms:.1} \
             by the loop"
        );
        assert_near(&measured, mean_ms, expected_ms);
    });
}
