//! What the last hour cost: against curves, against hindsight, and within its bounds.

use super::super::super::epoch::{COUNT_MAX, RATE_MAX};
use super::super::super::joint::{Prices, Service};
use super::super::super::past::{EPOCHS_KEPT, Hour, Past, REPLAY_EVERY};
use super::*;
use evenkeel_core::time::Instant;

const CALM: Service = Service { full_us: 1_000, lean_us: 100 };
const RIGID: Service = Service { full_us: 1_000, lean_us: 1_000 };
const NO_HEDGES: SiteSet = SiteSet::first(0);

fn planner(sites: usize, service: Service, prices: Prices) -> Planner {
    let planner = planner_of(sites, |config| (config.growth, config.load_bias) = (None, 1.0));
    let services = vec![service; sites];
    planner.with_prices(Pricing { hedged: None, services, prices }).unwrap()
}

/// What comes after an epoch in which so many requests a second ended.
fn after(told: &Snapshot, ended: &[u64]) -> Snapshot {
    let mut came = told.clone();
    came.epoch += 1;
    for (site, per_s) in ended.iter().enumerate() {
        report(&mut came, site).ended_requests = per_s * 5 / 2;
    }
    came
}

/// What one epoch cost that was planned for one demand when another one came, in requests/s.
fn hour(planner: &Planner, planned: &[u64], came: &[u64], hedges: SiteSet) -> Hour {
    let told = snapshot_of(planned, 10);
    let plan = planner.plan(&told);
    let mut past = Past::new(planner.config().period);
    assert_eq!(past.due(Instant::ZERO, Duration::ZERO), None);
    // One in two is kept.
    for epoch in [7, 8] {
        let (mut told, mut plan) = (told.clone(), plan.clone());
        (told.epoch, plan.epoch) = (epoch, epoch);
        past.note(&told, &plan, hedges, &after(&told, came));
    }
    let epochs = past.due(Instant::ZERO, Duration::ZERO).expect("there is one");
    assert_eq!(epochs.len(), 1);
    past.take(Instant::ZERO, planner.replay(&epochs));
    past.hour(Instant::ZERO).expect("requests came")
}

fn assert_near(came: f64, expected: f64, what: &str) {
    assert!((came - expected).abs() <= 0.02 * expected.abs() + 1e-4, "{what}: {came} {expected}");
}

#[test]
fn who_cannot_do_otherwise_costs_what_the_curve_says() {
    let hour = hour(&planner(1, RIGID, Prices::default()), &[5_000], &[9_900], NO_HEDGES);
    let family = Family::local(&curves(30));
    let conditions = Conditions {
        servers: 10,
        write_share: Probability::ZERO,
        background: Rate::new(0.0).unwrap(),
        load_bias: 1.0,
        learnt: Learnt::AS_PROFILED,
    };
    let late = family.miss(Duration::ZERO, Rate::new(9_900.0).unwrap(), &conditions).value();
    assert!(late > 0.001, "{late}");
    assert_near(hour.requests_per_s, 9_900.0, "requests");
    for parts in [hour.now, hour.loops, hour.hindsight] {
        assert_near(parts.late, late, "late");
        assert_eq!((parts.content, parts.elsewhere, parts.copies), (0.0, 0.0, 0.0));
    }
}

#[test]
fn a_demand_that_was_foreseen_costs_what_it_costs_in_hindsight() {
    let planner = planner(2, CALM, Prices::default());
    let hour = hour(&planner, &[12_000, 3_000], &[12_000, 3_000], NO_HEDGES);
    assert_near(hour.now.total(), hour.hindsight.total(), "now and in hindsight");
    let share = hour.hindsight.elsewhere / 0.015;
    assert!((0.1..0.4).contains(&share), "{share} served elsewhere, of 12,000 2,000 at least");
}

/// A plan does not know of a step: those who come are served at home, with less content. In
/// hindsight the other site helps.
#[test]
fn a_step_costs_content_that_hindsight_would_have_served_elsewhere() {
    let planner = planner(2, CALM, Prices::default());
    let hour = hour(&planner, &[5_000, 3_000], &[13_000, 3_000], NO_HEDGES);
    assert_eq!(hour.now.elsewhere, 0.0);
    // 13 (θ + (1 − θ) / 10) ≤ 10: a fourth of the content and more, of 13 in 16 requests.
    assert!(hour.now.content > 0.1 * 0.25 * 13.0 / 16.0, "{hour:?}");
    assert!(hour.hindsight.elsewhere > 0.0, "{hour:?}");
    assert!(hour.hindsight.total() < 0.7 * hour.now.total(), "{hour:?}");
}

/// Loops move what is too much and dim what is left by its latency, and hedge whatever it costs.
#[test]
fn loops_pay_for_copies_wherever_they_are_sent() {
    let curves = vec![SiteCurves::single(curves(30)); 2];
    let planner = planner_of(2, |config| config.growth = None);
    let (hedged, services) = (Some((curves, 50_000)), vec![CALM; 2]);
    let pricing = Pricing { hedged, services, prices: Prices::default() };
    let planner = planner.with_prices(pricing).unwrap();
    let hour = |hedges| hour(&planner, &[12_000, 3_000], &[12_000, 3_000], hedges);
    let (plain, hedged) = (hour(NO_HEDGES), hour(SiteSet::first(2)));
    assert_eq!((plain.now.copies, plain.hindsight.copies), (0.0, 0.0), "they help nobody");
    // 5 % more work of 1 ms, dimmed a little, at 0.35 a node-second.
    assert_near(hedged.now.copies, 0.05 * 0.001 * 0.35, "copies of the plan");
    assert!(plain.loops.copies > 0.0 && plain.loops.elsewhere > 0.0, "{plain:?}");
    assert!(plain.loops.total() >= plain.hindsight.total(), "{plain:?}");
}

#[test]
fn an_epoch_that_is_not_known_whole_is_passed_over() {
    let planner = planner(2, CALM, Prices::default());
    let told = snapshot_of(&[5_000, 3_000], 10);
    let plan = planner.plan(&told);
    let came = after(&told, &[5_000, 3_000]);
    let noted = |plan: &Plan, came: &Snapshot| {
        let mut past = Past::new(Duration::from_secs(60));
        past.note(&told, plan, NO_HEDGES, came);
        past.due(Instant::ZERO, Duration::ZERO).is_some()
    };
    assert!(noted(&plan, &came));
    let (mut later, mut held, mut down) = (came.clone(), came.clone(), came.clone());
    later.epoch += 1;
    held.sites[1].liveness = SiteLiveness::Held;
    down.sites[1].liveness = SiteLiveness::Down;
    for came in [&later, &held, &down] {
        assert!(!noted(&plan, came), "{came:?}");
    }
    let without_prices = planner_of(2, |_| {}).plan(&told);
    assert!(!noted(&without_prices, &came));
}

#[test]
fn few_epochs_are_kept_and_as_few_are_replayed_as_they_are_slow() {
    let planner = planner(2, CALM, Prices::default());
    let told = snapshot_of(&[5_000, 3_000], 10);
    let (plan, came) = (planner.plan(&told), after(&told, &[5_000, 3_000]));
    let replayed = |cpu: Duration| {
        let mut past = Past::new(Duration::from_millis(100));
        for epoch in 1..=10_000 {
            let (mut told, mut plan, mut came) = (told.clone(), plan.clone(), came.clone());
            (told.epoch, plan.epoch, came.epoch) = (epoch, epoch, epoch + 1);
            past.note(&told, &plan, NO_HEDGES, &came);
            // The first epoch is replayed at once.
            assert_eq!(past.due(Instant::ZERO, cpu).is_some(), epoch == 1);
        }
        let early = Instant::ZERO + (REPLAY_EVERY - Duration::from_millis(1));
        assert_eq!(past.due(early, cpu), None);
        past.due(Instant::ZERO + REPLAY_EVERY, cpu).map_or(0, |epochs| epochs.len())
    };
    assert_eq!(replayed(Duration::from_millis(1)), EPOCHS_KEPT);
    assert_eq!(replayed(Duration::from_millis(150)), 4, "in 600 ms");
    assert_eq!(replayed(Duration::from_secs(60)), 1);
}

/// Also where the period is no part of five seconds: else the minute's end is never looked at.
#[test]
fn a_whole_minute_has_room_for_the_epochs_that_are_kept() {
    let planner = planner(1, CALM, Prices::default());
    let told = snapshot_of(&[5_000], 10);
    let plan = planner.plan(&told);
    for period_ms in [500, 2_500, 2_600, 3_000, 4_900, 5_000, 9_000] {
        let mut past = Past::new(Duration::from_millis(period_ms));
        let (epochs, apart) = (60_000 / period_ms, 5_000_u64.div_ceil(period_ms));
        for epoch in 7..7 + epochs {
            let (mut told, mut plan) = (told.clone(), plan.clone());
            (told.epoch, plan.epoch) = (epoch, epoch);
            past.note(&told, &plan, NO_HEDGES, &after(&told, &[1_000]));
        }
        let kept = past.due(Instant::ZERO, Duration::ZERO).unwrap().len();
        assert_eq!(kept as u64, epochs.div_ceil(apart), "{period_ms} ms");
        assert!(kept <= EPOCHS_KEPT, "{period_ms} ms: {kept}");
    }
}

#[test]
fn what_is_older_than_an_hour_is_forgotten() {
    let planner = planner(1, CALM, Prices::default());
    let told = snapshot_of(&[5_000], 10);
    let plan = planner.plan(&told);
    let mut past = Past::new(Duration::from_millis(2_500));
    for minute in 1..=120 {
        let (mut told, mut plan) = (told.clone(), plan.clone());
        (told.epoch, plan.epoch) = (24 * minute, 24 * minute);
        past.note(&told, &plan, NO_HEDGES, &after(&told, &[1_000 + minute]));
        let now = Instant::ZERO + REPLAY_EVERY * minute as u32;
        let epochs = past.due(now, Duration::ZERO).unwrap();
        past.take(now, planner.replay(&epochs));
    }
    let now = Instant::ZERO + 120 * REPLAY_EVERY;
    let hour = past.hour(now).unwrap();
    assert_eq!(hour.epochs, 60);
    assert_eq!(past.hour(now + 60 * REPLAY_EVERY), None, "nothing is replayed any more");
    // Minutes 61 to 120; a quantum is 100.
    assert!((hour.requests_per_s - 1_090.5).abs() < 100.0, "{hour:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whoever knows what comes is never dearer than who does not, but for whole quanta.
    #[test]
    fn hindsight_is_the_cheapest(
        planned in prop::collection::vec(0..15_000_u64, 3),
        came in prop::collection::vec(1..15_000_u64, 3),
        wan in 0..300_000_u32,
        optional in 0..1_000_000_u32,
    ) {
        let planner = planner(3, CALM, Prices { wan, optional, ..Prices::default() });
        let hour = hour(&planner, &planned, &came, NO_HEDGES);
        let least = 0.95 * hour.hindsight.total() - 1e-4;
        prop_assert!(hour.now.total() >= least, "{:?}", hour);
        prop_assert!(hour.loops.total() >= least, "{:?}", hour);
    }

    /// Whatever sites say, within the ranges that are checked where it comes in.
    #[test]
    fn junk_is_harmless(
        numbers in prop::collection::vec((0..=RATE_MAX, 0..=RATE_MAX, 0..=COUNT_MAX), 2),
        writes in 0..=ALL_PPM,
        hedges: u64,
    ) {
        let planner = planner(2, CALM, Prices::default());
        let mut told = snapshot_of(&[5_000, 3_000], 10);
        for (site, (demand, capacity, ended)) in numbers.into_iter().enumerate() {
            let report = report(&mut told, site);
            (report.demand_per_1000_s, report.capacity_per_1000_s) = (demand, capacity);
            (report.ended_requests, report.backlog_requests) = (ended, ended);
            (report.violations, report.writes_ppm) = (ended / 2, writes);
        }
        told.epoch = 24;
        let plan = planner.plan(&told);
        let mut came = told.clone();
        came.epoch += 1;
        let mut past = Past::new(planner.config().period);
        past.note(&told, &plan, SiteSet::from_bits(hedges), &came);
        let epochs = past.due(Instant::ZERO, Duration::ZERO).unwrap();
        past.take(Instant::ZERO, planner.replay(&epochs));
        if let Some(hour) = past.hour(Instant::ZERO) {
            for parts in [hour.now, hour.loops, hour.hindsight] {
                prop_assert!(parts.total().is_finite() && parts.total() >= 0.0, "{:?}", parts);
            }
        }
    }
}
