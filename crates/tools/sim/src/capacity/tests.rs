//! Bills by hand, controllers at their thresholds, and bounds on random traces.

use std::num::NonZeroU32;

use evenkeel_core::Rng;
use evenkeel_core::units::Rate;
use evenkeel_geo::Elastic;
use evenkeel_geo::curve::ResponseCurves;

use super::fleet::Fleet;
use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);

fn fleet(unit: Duration, boot: Duration) -> Fleet {
    Fleet::new(MINUTE, unit, boot)
}

fn pass(fleet: &mut Fleet, steps: usize) {
    (0..steps).for_each(|_| fleet.pass());
}

#[test]
fn a_unit_that_was_begun_is_paid() {
    for (unit, minutes, units) in
        [(1, 3, 3), (60, 1, 1), (60, 60, 1), (60, 61, 2), (60, 150, 3), (2, 3, 2)]
    {
        let mut fleet = fleet(unit * MINUTE, Duration::ZERO);
        fleet.become_of(1, true);
        pass(&mut fleet, minutes);
        assert_eq!(fleet.close(), units, "{minutes} minutes by {unit}");
    }
}

#[test]
fn servers_go_only_when_their_paid_time_ends() {
    let mut fleet = fleet(HOUR, Duration::ZERO);
    fleet.become_of(1, true);
    pass(&mut fleet, 20);
    fleet.become_of(2, false);
    pass(&mut fleet, 39);
    assert_eq!(fleet.free(), 0);
    fleet.become_of(0, false);
    assert_eq!(fleet.servers(), 2);
    pass(&mut fleet, 1);
    assert_eq!(fleet.free(), 1, "the first, after an hour");
    fleet.become_of(0, false);
    assert_eq!(fleet.servers(), 1);
    pass(&mut fleet, 10);
    assert_eq!((fleet.close(), fleet.orders()), (2, 2));
}

#[test]
fn a_server_goes_before_a_step_in_which_a_unit_would_begin() {
    // Units of 90 s end at 90, 180, 270 s: in steps of 60 s that is before 120, 180, 300 s.
    let mut fleet = fleet(90 * SECOND, Duration::ZERO);
    fleet.become_of(1, true);
    let mut free = Vec::new();
    for _ in 0..5 {
        fleet.pass();
        free.push(fleet.free());
    }
    assert_eq!(free, [1, 0, 1, 1, 0]);
}

#[test]
fn a_server_that_boots_neither_serves_nor_goes() {
    let mut fleet = fleet(MINUTE, 90 * SECOND);
    fleet.become_of(1, true);
    assert_eq!(fleet.serving(), 1);
    pass(&mut fleet, 1);
    fleet.become_of(3, false);
    assert_eq!((fleet.servers(), fleet.serving(), fleet.free()), (3, 1, 1));
    pass(&mut fleet, 1);
    assert_eq!((fleet.serving(), fleet.free()), (1, 1));
    pass(&mut fleet, 1);
    assert_eq!((fleet.serving(), fleet.free()), (3, 3));
    // 3 minutes of the first and 2 of each other: booting is paid.
    assert_eq!(fleet.close(), 7);
}

/// Servers that serve 99 requests/s in time each, or nearly 100: up to saturation all take 1 ms.
fn sharp() -> ResponseCurves {
    let law = evenkeel_core::distribution::LogNormal::with_mean_cv(MS, 0.0).unwrap();
    let rate = |rate: f64| Rate::new(rate).unwrap();
    let laws: [(Rate, &dyn evenkeel_core::distribution::Distribution); 2] =
        [(rate(0.0), &law), (rate(99.5), &law)];
    ResponseCurves::of_laws(30 * MS, NonZeroU32::MIN, rate(100.0), &laws).unwrap()
}

/// Sites 5 ms apart; a server costs 60 an hour, which is 1 a minute, and a request 0.001.
fn capacity(curves: ResponseCurves, rates: &[&[f64]]) -> Capacity {
    let sites = rates.len();
    let trip = |from, to| if from == to { Duration::ZERO } else { 5 * MS };
    let rates = rates.iter().map(|row| row.to_vec()).collect();
    Capacity {
        names: (0..sites).map(|site| format!("site {site}")).collect(),
        demand: RateSeries::new(MINUTE, rates).unwrap(),
        round_trips: (0..sites).map(|from| (0..sites).map(|to| trip(from, to)).collect()).collect(),
        curves,
        load_bias: 1.0,
        quantum: 1.0,
        target_ppm: 50_000,
        elastic: Elastic { out_ppm: 50_000, in_ppm: 50_000, servers_min: 1, servers_max: 50 },
        boot: Duration::ZERO,
        prices: Prices { server_hour: 60.0, wan_gb: 1.0, request_bytes: 1e6 },
        billing: vec![MINUTE, HOUR],
    }
}

const DEMAND: [&[f64]; 2] = [&[150.0, 150.0, 90.0, 90.0], &[30.0, 30.0, 90.0, 90.0]];

#[test]
fn a_small_case_costs_what_it_costs_by_hand() {
    let capacity = capacity(sharp(), &DEMAND);
    let outcome = |strategy| capacity.simulate(strategy, MINUTE).unwrap();
    let cost = |strategy| {
        let Outcome { server_cost, wan_cost, .. } = outcome(strategy);
        (server_cost.round(), wan_cost)
    };
    // 2 + 1 servers for two minutes, 1 + 1 for two more.
    assert_eq!(cost(Strategy::Local), (10.0, 0.0));
    assert_eq!(cost(Strategy::Peak), (12.0, 0.0));
    assert_eq!(cost(Strategy::Shared), (8.0, 0.0));
    // 51 requests/s that the first site's one server cannot take go to the second, for 120 s.
    let (servers, wan) = cost(Strategy::Redirect);
    assert_eq!(servers, 8.0);
    assert!((wan - 51.0 * 120.0 * 0.001).abs() < 1e-9, "{wan}");
    let redirect = outcome(Strategy::Redirect);
    assert_eq!((redirect.servers, redirect.orders), (vec![2; 4], 2));
    assert_eq!((redirect.violations, redirect.steps_within_target), (0.0, 1.0));
    assert!((redirect.cost_per_day / redirect.cost - 360.0).abs() < 1e-9);
}

#[test]
fn by_the_hour_whoever_was_begun_is_paid() {
    let capacity = capacity(sharp(), &DEMAND);
    let hours = |strategy| capacity.simulate(strategy, HOUR).unwrap().server_hours;
    assert_eq!(hours(Strategy::Local), 3.0);
    assert_eq!(hours(Strategy::Redirect), 2.0);
    assert_eq!(hours(Strategy::Shared), 2.0);
}

#[test]
fn while_servers_boot_redirects_keep_the_target() {
    let demand: [&[f64]; 2] = [&[90.0, 120.0, 150.0, 150.0], &[30.0; 4]];
    let capacity = Capacity { boot: 2 * MINUTE, ..capacity(sharp(), &demand) };
    let local = capacity.simulate(Strategy::Local, MINUTE).unwrap();
    // Ordered in the second minute, serving in the fourth; until then the first site is lost.
    assert_eq!(local.servers, [2, 2, 2, 3]);
    assert!((local.violations - 270.0 / 630.0).abs() < 1e-9, "{}", local.violations);
    assert_eq!(local.steps_within_target, 6.0 / 8.0);
    let redirect = capacity.simulate(Strategy::Redirect, MINUTE).unwrap();
    assert_eq!((redirect.servers, redirect.violations), (vec![2; 4], 0.0));
    assert_eq!(redirect.wan_requests, (21.0 + 51.0 + 51.0) * 60.0);
}

#[test]
fn too_far_is_not_redirected() {
    let mut far = capacity(sharp(), &DEMAND);
    far.round_trips = vec![vec![40 * MS; 2]; 2];
    let redirect = far.simulate(Strategy::Redirect, MINUTE).unwrap();
    assert_eq!(redirect.cost, far.simulate(Strategy::Local, MINUTE).unwrap().cost);
    assert_eq!(redirect.wan_requests, 0.0);
}

#[test]
fn the_lower_threshold_holds_servers_that_the_upper_one_would_not_order() {
    // Violations of M/M/c rise slowly enough to see the distance of the thresholds.
    let curves = ResponseCurves::markov(30 * MS, NonZeroU32::new(2).unwrap(), 8 * MS).unwrap();
    let wave: Vec<f64> = (0..120).map(|step| if step % 2 == 0 { 120.0 } else { 150.0 }).collect();
    let orders = |in_ppm| {
        let mut capacity = capacity(curves.clone(), &[&wave]);
        capacity.elastic.in_ppm = in_ppm;
        capacity.simulate(Strategy::Local, MINUTE).unwrap().orders
    };
    assert!(orders(50_000) > 40, "{}: a server for each crest", orders(50_000));
    assert!(orders(1_000) < 10, "{}: kept through the troughs", orders(1_000));
}

/// Random traces to try: with 60, for longer, the same held.
const CASES: usize = 5;

/// Three sites that wander, each on its own.
fn random(rng: &mut Rng) -> Capacity {
    let servers = NonZeroU32::new(1 + rng.below(4) as u32).unwrap();
    let curves = ResponseCurves::markov(30 * MS, servers, (4 + rng.below(5) as u32) * MS).unwrap();
    let site = |rng: &mut Rng| {
        let mut rate = 300.0 + 900.0 * rng.unit();
        let speed = 0.3 * rng.unit();
        let step = |_| {
            rate = (rate * (speed * rng.normal()).exp()).clamp(1.0, 1_500.0);
            rate
        };
        (0..24).map(step).collect::<Vec<f64>>()
    };
    let rates: Vec<Vec<f64>> = (0..3).map(|_| site(rng)).collect();
    let rates: Vec<&[f64]> = rates.iter().map(Vec::as_slice).collect();
    let mut capacity = capacity(curves, &rates);
    capacity.quantum = 20.0;
    capacity.elastic.servers_max = 200;
    capacity.elastic.in_ppm = [50_000, 30_000][rng.below(2)];
    capacity.elastic.servers_min = rng.below(2) as u32;
    // The paper's ratio: a server's minute costs what redirecting its load for one does.
    capacity.prices = Prices { server_hour: 0.133, wan_gb: 0.01, request_bytes: 10_000.0 };
    capacity
}

#[test]
fn no_strategy_is_cheaper_than_one_pool_or_misses_the_target() {
    let mut rng = Rng::seeded(12);
    for case in 0..CASES {
        let capacity = random(&mut rng);
        for unit in [MINUTE, 10 * MINUTE] {
            let outcome = |strategy| capacity.simulate(strategy, unit).unwrap();
            let shared = outcome(Strategy::Shared);
            for (name, strategy) in Strategy::NAMED {
                let other = outcome(strategy);
                assert!(
                    shared.cost <= other.cost + 1e-9,
                    "case {case}, billed by {unit:?}: {name} {} under {}",
                    other.cost,
                    shared.cost
                );
                assert_eq!(other.steps_within_target, 1.0, "case {case}: {name}");
            }
            assert_eq!(shared, outcome(Strategy::Shared), "same input, same outcome");
        }
    }
}

/// No theorem, but what redirects are for: by the minute they take no more servers on any of these
/// traces.
#[test]
fn redirecting_takes_no_more_servers_than_staying_local() {
    let mut rng = Rng::seeded(13);
    for case in 0..CASES {
        let capacity = random(&mut rng);
        let hours = |strategy| capacity.simulate(strategy, MINUTE).unwrap().server_hours;
        let (redirect, local) = (hours(Strategy::Redirect), hours(Strategy::Local));
        assert!(redirect <= local + 1e-9, "case {case}: {redirect} hours over {local}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let good = || capacity(sharp(), &DEMAND);
    let error =
        |capacity: Capacity| capacity.simulate(Strategy::Local, MINUTE).unwrap_err().to_string();
    assert!(error(Capacity { quantum: 0.0, ..good() }).starts_with("quantum: got 0"));
    assert!(error(Capacity { quantum: 1e-3, ..good() }).contains("at most 20000"));
    assert!(error(Capacity { names: vec![], ..good() }).starts_with("sites"));
    assert!(error(Capacity { load_bias: f64::NAN, ..good() }).contains("load bias"));
    let dear = Prices { server_hour: -1.0, ..good().prices };
    assert!(error(Capacity { prices: dear, ..good() }).starts_with("prices"));
    assert!(good().simulate(Strategy::Local, Duration::ZERO).is_err());
}
