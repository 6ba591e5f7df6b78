//! How a dimmer fights with what else relieves a replica, and the rules that keep it from it: each
//! shown without its rule too.
//!
//! **Source**: joint study, section 4. F2, F3, F9 and F11 are here, F6 and F7 are
//! with hedges (`request/redundancy/load.rs`, `evenkeel-sim`, `tests/hedging.rs`), the others with
//! plans (`evenkeel-geo`, `planner/tests/fights.rs`).

use super::world::{Likeness, Serving, World};
use super::*;
use crate::rng::Rng;

const SEEDS: core::ops::Range<u64> = 0..3;
/// The study's lowest: hardly above what the percentile is without any overload.
const SETPOINT: Duration = Duration::from_millis(40);
const LATE_S: f64 = 0.08;

/// Sixteen servers as the study's data centre, at 0.6 of what they can do. The published law is
/// what there is without the rule.
fn calm(law: Law, seed: u64) -> World {
    calm_with(SETPOINT, law, seed)
}

fn calm_with(setpoint: Duration, law: Law, seed: u64) -> World {
    let like = Likeness { serving: Serving::Slots(16), cv: 0.96, ..Likeness::SHOP };
    let mut world = World::new(like, setpoint, seed);
    let config = BrownoutConfig { law, setpoint, cores: Some(16.0), ..BrownoutConfig::default() };
    world.brownout = Brownout::new(config, Instant::ZERO, seed);
    // Both kinds of requests have been seen.
    world.load(1.2, 10.0);
    world.load(0.6, 60.0);
    world
}

/// F2: another site takes the load away, and a dimmer that integrates stays low.
#[test]
fn once_relieved_the_law_by_arrivals_serves_everything_and_the_published_one_goes_on_dimming() {
    let full_after = |law: Law, seed: u64| {
        let mut world = calm(law, seed);
        world.load(1.3, 30.0);
        world.load(0.6, 2.5);
        let relieved_s = world.now_s();
        world.load(0.6, 5.0);
        world.full_since(relieved_s)
    };
    for seed in SEEDS {
        let (by_arrivals, published) =
            (full_after(Law::FeedForward, seed), full_after(Law::PublishedExact, seed));
        assert!(by_arrivals > 0.98, "{seed}: {by_arrivals}");
        assert!(published < 0.95, "{seed}: {published}");
    }
}

/// F3: a dimmer that waits for a percentile acts after the harm, and plans are made meanwhile as if
/// it had not.
#[test]
fn in_the_first_interval_of_a_step_the_law_by_arrivals_is_hardly_late_and_the_published_one_is() {
    let late_in = |law: Law, seed: u64| {
        let mut world = calm(law, seed);
        let from = world.ended.len();
        world.load(1.3, 2.5);
        let ended = &world.ended[from..];
        ended.iter().filter(|it| it.time_s > LATE_S).count() as f64 / ended.len() as f64
    };
    for seed in SEEDS {
        let (by_arrivals, published) =
            (late_in(Law::FeedForward, seed), late_in(Law::Published, seed));
        // The study: 8 % at this period, and 42 to 49 %.
        assert!(by_arrivals < 0.12, "{seed}: {by_arrivals}");
        assert!(published > 0.3, "{seed}: {published}");
    }
}

/// F9: arrivals tell of a plan only when they have come.
#[test]
fn in_the_first_interval_told_by_a_plan_fewer_are_late_than_untold() {
    // Much traffic, whose rate is known after a period; and little, where backlog tells first.
    for (name, slots, full_ms, most) in [("1,600/s", 16, 10.0, 0.5), ("100/s", 4, 40.0, 1.0)] {
        let late_s = 8e-3 * full_ms;
        let late_in = |is_told: bool, seed: u64| {
            let serving = Serving::Slots(slots);
            let like = Likeness { serving, full_ms, cv: 0.96, ..Likeness::SHOP };
            let setpoint = from_millis_f64(5.0 * full_ms);
            let mut world = World::new(like, setpoint, seed);
            let cores = Some(slots as f64);
            let config = BrownoutConfig { setpoint, cores, ..BrownoutConfig::default() };
            world.brownout = Brownout::new(config, Instant::ZERO, seed);
            world.load(1.2, 10.0);
            // Plans come at any moment of a period.
            world.load(0.6, 20.0 + 0.029 * seed as f64);
            if is_told {
                let inflow = Inflow::new(1, 1.3 / 0.6).unwrap();
                world.brownout.expect(Instant::from_secs_f64(world.now_s()), inflow);
            }
            let from = world.ended.len();
            world.load(1.3, 2.5);
            let ended = &world.ended[from..];
            ended.iter().filter(|it| it.time_s > late_s).count() as f64 / ended.len() as f64
        };
        let of = |is_told: bool| -> f64 {
            (0..20).map(|seed| late_in(is_told, seed)).sum::<f64>() / 20.0
        };
        let (untold, told) = (of(false), of(true));
        println!("{name}: {:.1} % late untold, {:.1} % told", untold * 1e2, told * 1e2);
        assert!(told < most * untold, "{name}: {told} told, {untold} untold");
    }
}

/// F11: at the knee the dimmer trembles with the arrivals; a coin for each request makes that the
/// users' business, a place for each session does not.
#[test]
fn a_session_hardly_sees_the_dimmer_tremble_and_a_coin_shows_it_every_time() {
    let mut world = calm_with(Duration::from_secs(1), Law::FeedForward, 1);
    let mut rng = Rng::stream(1, "sessions");
    let places: Vec<f64> = (0..200).map(|_| rng.unit()).collect();
    let (mut seen, mut changes) = ([vec![true; 200], vec![true; 200]], [0_u32; 2]);
    world.load(1.1, 10.0);
    for _ in 0..100 {
        world.load(1.1, 0.25);
        let dimmer = world.brownout.dimmer();
        for (session, place) in places.iter().enumerate() {
            for (kind, choice) in [Choice::Session(*place), Choice::Coin].into_iter().enumerate() {
                let is_full = choice.content(dimmer, 1, &mut rng).is_full();
                changes[kind] += u32::from(seen[kind][session] != is_full);
                seen[kind][session] = is_full;
            }
        }
    }
    let [sticky, coin] = changes.map(|changes| f64::from(changes) / (200.0 * 100.0));
    assert!(coin > 0.1, "{coin}");
    assert!(sticky < 0.6 * coin, "{sticky}, by coin {coin}");
}
