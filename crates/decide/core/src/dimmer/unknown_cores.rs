//! What the dimmer does where nobody told it the cores: what it learns, what must not mislead it,
//! and that no state holds it.

use std::ops::Range;

use super::world::*;
use super::*;
use crate::rng::Rng;

const SECOND: Duration = Duration::from_secs(1);
const SEEDS: Range<u64> = 1..11;

/// A replica after a calm time and an overload of a third: its capacity is known.
fn learnt(like: Likeness, setpoint: Duration, seed: u64) -> World {
    let mut world = World::new(like, setpoint, seed);
    world.load(0.6, 10.0);
    world.load(1.3, 15.0);
    world
}

impl World {
    /// Capacity that it believes to be there, relative to what there is at speed 1.
    fn believed(&self) -> Option<f64> {
        self.brownout.state().capacity_per_s.map(|per_s| per_s / self.like.capacity())
    }

    /// Plays at this load; of the last seconds: the share that is served in full, and the 95th
    /// percentile in setpoints.
    fn last(&mut self, load: f64, seconds: f64, last_s: f64) -> (f64, f64) {
        self.load(load, seconds);
        let since_s = self.now_s() - last_s;
        let setpoint_s = self.brownout.config.setpoint.as_secs_f64();
        (self.full_since(since_s), self.p95_since(since_s) / setpoint_s)
    }
}

#[test]
fn after_a_slow_phase_everything_is_served_in_full_again() {
    for seed in SEEDS {
        let like = Likeness { lean: 0.5, ..Likeness::SHOP };
        let mut world = learnt(like, SECOND, seed);
        // So slow that everything must be lean.
        world.speed = 0.3;
        world.load(0.6, 30.0);
        world.speed = 1.0;
        let (full, late) = world.last(0.7, 30.0, 5.0);
        assert!(full > 0.99 && late < 0.5, "{seed}: {full} {late} {:?}", world.brownout.state());
    }
}

#[test]
fn lean_work_is_known_as_well_with_one_worker_as_with_many() {
    for slots in [1, 2, 4, 16] {
        for lean in [0.1, 0.5] {
            let like = Likeness { serving: Serving::Slots(slots), lean, ..Likeness::SHOP };
            let ratio = |seed: u64| {
                let mut world = learnt(like, SECOND, seed);
                world.load(1.3, 15.0);
                world.brownout.state().lean_ratio
            };
            let mean = SEEDS.map(ratio).sum::<f64>() / 10.0;
            assert!((mean - lean).abs() < 0.15, "{slots} workers: {mean}, it is {lean}");
        }
    }
}

#[test]
fn a_downstream_that_becomes_slow_is_no_lack_of_capacity() {
    for (seed, varies) in SEEDS.flat_map(|seed| [(seed, false), (seed, true)]) {
        let setpoint = Duration::from_secs(2);
        let mut world = World::new(Likeness::SHOP, setpoint, seed);
        (world.downstream_s, world.downstream_varies) = (0.02, varies);
        world.load(0.6, 10.0);
        world.load(1.3, 20.0);
        world.load(0.6, 10.0);
        let began_s = world.now_s();
        for downstream_s in [0.5, 0.02, 0.4, 0.02, 0.5] {
            world.downstream_s = downstream_s;
            world.load(0.6, 10.0);
        }
        // It may look like a lack of capacity at first: the backlog grows.
        let full = world.full_since(began_s);
        assert!(full > 0.9, "{seed} {varies}: {full} {:?}", world.brownout.state());
        let (full, _) = world.last(0.6, 40.0, 5.0);
        assert!(full > 0.99, "{seed} {varies}: {full} {:?}", world.brownout.state());
        let believed = world.believed();
        assert!(believed.is_some_and(|it| it > 0.7), "{seed} {varies}: {believed:?}");
    }
}

#[test]
fn requests_that_fail_are_work_too() {
    for seed in SEEDS {
        let mut world = World::new(Likeness::SHOP, SECOND, seed);
        world.failing = 0.4;
        world.load(0.6, 10.0);
        world.load(1.3, 15.0);
        let believed = world.believed();
        assert!(believed.is_some_and(|it| (0.8..1.3).contains(&it)), "{seed}: {believed:?}");
    }
}

#[test]
fn idle_times_say_nothing_of_the_capacity() {
    for seed in SEEDS {
        let mut world = learnt(Likeness::SHOP, SECOND, seed);
        world.load(0.6, 10.0);
        let before = world.believed();
        world.rate(3.0, 120.0);
        world.rate(40.0, 60.0);
        world.rate(1e-4, 3_600.0);
        world.load(0.6, 10.0);
        assert_eq!(world.believed(), before, "{seed}");
        assert_eq!(world.brownout.dimmer(), Dimmer::FULL);
        // And the next overload is felt at once.
        let (_, late) = world.last(1.3, 2.5, 2.5);
        assert!(late < 0.8, "{seed}: {late}");
    }
}

#[test]
fn a_pause_of_two_seconds_is_no_lack_of_capacity() {
    for (seed, is_known) in SEEDS.flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut world = World::new(Likeness::SHOP, SECOND, seed);
        if is_known {
            world = learnt(Likeness::SHOP, SECOND, seed);
        }
        world.load(0.6, 10.0);
        for _ in 0..4 {
            world.speed = 0.0;
            world.load(0.6, 2.0);
            world.speed = 1.0;
            let (full, late) = world.last(0.6, 20.0, 5.0);
            let state = world.brownout.state();
            assert!(full > 0.99 && late < 0.2, "{seed} {is_known}: {full} {late} {state:?}");
        }
        let believed = world.believed().unwrap_or(1.0);
        assert!((0.75..1.35).contains(&believed), "{seed} {is_known}: {believed}");
    }
}

#[test]
fn a_capacity_that_halves_or_doubles_is_followed() {
    for (seed, serving) in
        SEEDS.flat_map(|seed| [(seed, Serving::Slots(4)), (seed, Serving::Sharing(4.0))])
    {
        let mut world = learnt(Likeness { serving, ..Likeness::SHOP }, SECOND, seed);
        for (speed, load) in [(0.5, 0.7), (1.0, 1.4), (2.0, 2.8), (1.0, 1.4), (0.5, 0.7)] {
            world.speed = speed;
            let (full, late) = world.last(load, 20.0, 10.0);
            let state = world.brownout.state();
            // Of 1.4 in full at a lean ratio of a tenth: (1/1.4 − 0.1)/0.9 = 0.68.
            assert!((0.6..0.8).contains(&full), "{seed} {serving:?} {speed}: {full} {state:?}");
            assert!(late < 1.25, "{seed} {serving:?} {speed}: {late} {state:?}");
        }
        world.speed = 2.0;
        let (full, _) = world.last(1.4, 10.0, 3.0);
        assert!(full > 0.99, "{seed} {serving:?}: {full} {:?}", world.brownout.state());
    }
}

#[test]
fn every_kind_of_replica_keeps_the_setpoint_under_overload_and_serves_everything_after() {
    let shop = Likeness::SHOP;
    let kinds = [
        Likeness { serving: Serving::Slots(1), ..shop },
        Likeness { serving: Serving::Slots(64), full_ms: 80.0, ..shop },
        Likeness { serving: Serving::Sharing(1.0), ..shop },
        Likeness { serving: Serving::Sharing(16.0), full_ms: 40.0, ..shop },
        Likeness { cv: 3.0, ..shop },
        Likeness { cv: 0.0, ..shop },
        Likeness { lean: 0.01, ..shop },
        Likeness { lean: 0.7, ..shop },
        Likeness { lean: 0.7, serving: Serving::Sharing(4.0), ..shop },
        Likeness { lean: 0.95, ..shop },
    ];
    for (like, seed) in kinds.into_iter().flat_map(|like| SEEDS.map(move |seed| (like, seed))) {
        let over = (0.9 / like.lean).clamp(1.0, 1.3);
        let mut world = World::new(like, SECOND, seed);
        world.load(0.6, 10.0);
        let (_, late) = world.last(over, 40.0, 20.0);
        assert!(late < 1.3, "{like:?} {seed}: {late} {:?}", world.brownout.state());
        let (full, late) = world.last(0.7, 20.0, 5.0);
        let state = world.brownout.state();
        assert!(full > 0.97 && late < 1.0, "{like:?} {seed}: {full} {late} {state:?}");
    }
}

/// Any replica after any history whose overloads can be served with everything left out.
fn after_any_history(seed: u64, is_told: bool) -> World {
    let mut rng = Rng::stream(seed, "history");
    let mut between = |from: f64, to: f64| rng.unit().mul_add(to - from, from);
    let workers = 2_f64.powf(between(0.0, 6.0)).round();
    let full_ms = between(5.0, 20.0);
    let (lean, cv) = (between(0.05, 0.9), between(0.0, 1.5));
    let is_sharing = between(0.0, 1.0) < 0.5;
    let serving =
        if is_sharing { Serving::Sharing(workers) } else { Serving::Slots(workers as usize) };
    let setpoint_s = full_ms * 1e-3 * 20.0 * 10_f64.powf(between(0.0, 1.0));
    let like = Likeness { serving, full_ms, lean, cv };
    let told = is_told.then(|| like.cores());
    let mut world = World::told(like, Duration::from_secs_f64(setpoint_s), seed, told);
    let waits = between(0.0, 1.0) < 0.4;
    world.downstream_varies = between(0.0, 1.0) < 0.5;
    for _ in 0..between(2.0, 6.0) as usize {
        world.downstream_s = if waits { between(0.0, setpoint_s) } else { 0.0 };
        world.failing = if between(0.0, 1.0) < 0.1 { 0.3 } else { 0.0 };
        let is_pause = between(0.0, 1.0) < 0.1;
        world.speed = if is_pause { 0.0 } else { between(0.3, 2.0) };
        let load = between(0.05, (0.9 / lean).min(1.6)) * world.speed.max(0.3);
        world.load(load, if is_pause { 2.0 } else { between(2.0, 20.0) });
    }
    world.failing = 0.0;
    world.downstream_s = if waits { between(0.0, 0.15) * setpoint_s } else { 0.0 };
    world.speed = between(0.3, 2.0);
    world
}

/// Setpoints that the 95th percentile is after a minute of overload that follows any history.
fn late_after_any_history(seed: u64, is_told: bool) -> (f64, World) {
    let mut world = after_any_history(seed, is_told);
    let over = (0.85 / world.like.lean).min(1.5);
    let (_, late) = world.last(over * world.speed, 60.0, 20.0);
    (late, world)
}

/// A minute of calm, and everything is served in full; a minute of overload, and the 95th
/// percentile is at most one and a half setpoints.
#[test]
fn there_is_no_state_that_it_does_not_leave() {
    for seed in 0..16 {
        let load = [0.1, 0.3, 0.5, 0.7][seed as usize % 4];
        let mut calm = after_any_history(seed, false);
        let (full, _) = calm.last(load * calm.speed, 60.0, 10.0);
        let state = calm.brownout.state();
        assert!(full > 0.99, "{seed}: {full} in full of {:?}: {state:?}", calm.like);
        let (late, overload) = late_after_any_history(seed, false);
        let state = overload.brownout.state();
        assert!(late < 1.5, "{seed}: {late} setpoints with {:?}: {state:?}", overload.like);
    }
}

/// What not being told costs in the worst case: of 48 replicas and histories, one comes to one
/// and a half setpoints and one is beyond (35 and 30, where lean requests cost much of a full one).
#[test]
#[ignore = "a minute; for docs/brownout.md"]
fn told_and_untold_after_any_history() {
    let mut beyond = Vec::new();
    for seed in 0..48 {
        let [told, untold] = [true, false].map(|is_told| late_after_any_history(seed, is_told).0);
        println!("{seed}: {told:.2} setpoints told, {untold:.2} untold");
        assert!(told < 1.5, "{seed}: {told}");
        beyond.extend((untold >= 1.5).then_some((seed, untold)));
    }
    assert!(beyond.len() <= 2 && beyond.iter().all(|(_, late)| *late < 3.0), "{beyond:?}");
}

/// Answers that come together once in a while look like pauses, and are none.
#[test]
fn an_application_that_answers_in_batches_is_known_too() {
    for batch_s in [0.1, 0.2, 0.3, 0.4, 0.6] {
        for seed in SEEDS {
            let mut world = World::new(Likeness::SHOP, SECOND, seed);
            world.batch_s = batch_s;
            let (full, _) = world.last(0.6, 20.0, 10.0);
            assert!(full > 0.99, "{seed} {batch_s}: {full} {:?}", world.brownout.state());
            let (full, late) = world.last(1.3, 40.0, 20.0);
            let state = world.brownout.state();
            // A setpoint, and a batch. 0.74 of 1.3 can be in full; what waits for its batch looks
            // like a backlog.
            let is_well = late < 1.0 + batch_s && full > 0.45;
            assert!(is_well, "{seed} {batch_s}: {late} {full} {state:?}");
            assert!(state.capacity_per_s.is_some(), "{seed} {batch_s}: {state:?}");
            let (full, _) = world.last(0.6, 40.0, 10.0);
            assert!(full > 0.99, "{seed} {batch_s}: {full} {:?}", world.brownout.state());
        }
    }
}

#[test]
fn what_the_operator_told_is_not_overruled() {
    let config = BrownoutConfig { cores: Some(4.0), ..BrownoutConfig::default() };
    let mut world = World::new(Likeness::SHOP, SECOND, 1);
    world.brownout = Brownout::new(config, Instant::ZERO, 1);
    world.load(0.6, 10.0);
    world.load(1.3, 10.0);
    assert_eq!(world.believed(), None, "the cores are known");
}
