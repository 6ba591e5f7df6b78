//! Priced curves against every joint decision there is, and prices against differences of costs.

mod effort;

use super::*;
use crate::tests::instances::{Family, instance};

/// Nothing can be left out.
const RIGID: Service = Service { full_us: 10_000, lean_us: 10_000 };
const CALM: Service = Service { full_us: 10_000, lean_us: 1_000 };

/// Late requests as a power of the work, all of them at the capacity; `far` more elsewhere.
fn steep(sites: usize, capacity: u32, loads: u32, far: u32) -> Vec<Vec<Vec<u32>>> {
    let curve = |more: u32| {
        let ppm = |load: u32| {
            let load = f64::from(load) / f64::from(capacity);
            (1e6 * load.powi(12) + f64::from(more)).min(1e6) as u32
        };
        (0..=loads).map(ppm).collect()
    };
    let row = |from| (0..sites).map(|to| curve(if from == to { 0 } else { far })).collect();
    (0..sites).map(row).collect()
}

fn steep_problem(demand: &[u32], capacity: u32, far: u32) -> Problem {
    let loads = 2 * capacity + demand.iter().sum::<u32>();
    let curves = steep(demand.len(), capacity, loads, far);
    let problem = Problem::new(demand.to_vec(), curves).unwrap();
    problem.with_saturation(vec![capacity; demand.len()]).unwrap()
}

fn joint(problem: &Problem, hedged: Option<&Hedged>, prices: &Prices) -> Joint {
    Joint::new(problem, hedged, &vec![CALM; problem.sites()], prices).unwrap()
}

fn plan(joint: &Joint) -> Planned {
    joint.plan(Effort::default()).unwrap()
}

/// Every way to split a demand among three.
fn splits(demand: u32) -> Vec<[u32; 3]> {
    let pairs = (0..=demand).flat_map(|a| (0..=demand - a).map(move |b| (a, b)));
    pairs.map(|(a, b)| [a, b, demand - a - b]).collect()
}

/// The least of a sum over three destinations, of all flows there are; `at(to, users)` is what
/// these users from everywhere cost there.
fn brute(demand: &[u32], at: impl Fn(usize, [u32; 3]) -> u64) -> u64 {
    let [first, second, third] = [0, 1, 2].map(|site| demand[site] as usize + 1);
    let place = |users: [u32; 3]| {
        (users[0] as usize * second + users[1] as usize) * third + users[2] as usize
    };
    let users = |place: usize| {
        [place / third / second, place / third % second, place % third].map(|n| n as u32)
    };
    let table =
        |to: usize| -> Vec<u64> { (0..first * second * third).map(|n| at(to, users(n))).collect() };
    let tables = [table(0), table(1), table(2)];
    let [a, b, c] = [0, 1, 2].map(|site| splits(demand[site]));
    let cost = |a: &[u32; 3], b: &[u32; 3], c: &[u32; 3]| -> u64 {
        (0..3).map(|to| tables[to][place([a[to], b[to], c[to]])]).sum()
    };
    let pairs = a.iter().flat_map(|a| b.iter().map(move |b| (a, b)));
    pairs.map(|(a, b)| c.iter().map(|c| cost(a, b, c)).min().unwrap()).min().unwrap()
}

/// The least that these users cost at a data centre, of every whole percent of content, with
/// hedges and without.
fn cheapest_of_all(pricing: &Pricing, to: usize, users: [u32; 3]) -> u64 {
    let load = users.iter().sum();
    let users = [0, 1, 2].map(|from| (from, users[from]));
    let states = (0..=FULL)
        .flat_map(|dimmer| [false, true].map(|is_hedged| State { dimmer, is_hedged }))
        .map(|state| pricing.sum(to, load, &users, state));
    states.min().unwrap()
}

/// How much more a plan costs than the best of all joint decisions, as a share.
fn gap(family: Family, quantum: u32, seed: u64, prices: &Prices) -> f64 {
    let instance = instance(family, 3, quantum, seed);
    let problem = Problem::new(instance.demand, instance.curves).unwrap();
    let problem = problem.with_distances(&instance.rtt_us).unwrap();
    let problem = problem.with_saturation(instance.capacity).unwrap();
    let joint = joint(&problem, Some(&hedged(&problem)), prices);
    let planned = plan(&joint);
    assert!(planned.cost <= planned.answer.objective, "states chosen again cost no more");
    for (from, to) in (0..9).map(|pair| (pair / 3, pair % 3)) {
        let (last, here) = (planned.last[from][to], planned.more[from][from]);
        assert!(from == to || last <= here, "{family:?} {seed}: {from} would stay");
    }
    // The solver is exact on the priced curves.
    let priced = brute(problem.demand(), |to, users| {
        let load = users.iter().sum();
        let cost = |from: usize| u64::from(users[from]) * u64::from(joint.cost_ppm(from, to, load));
        (0..3).map(cost).sum()
    });
    assert_eq!(planned.answer.objective, priced, "{family:?} {seed}");
    let pricing = &joint.pricing;
    let best = brute(problem.demand(), |to, users| cheapest_of_all(pricing, to, users));
    assert!(best <= planned.cost, "{family:?} {seed}: better than the best there is");
    (planned.cost - best) as f64 / best as f64
}

const FAMILIES: [Family; 6] =
    [Family::Hot, Family::Tight, Family::Unequal, Family::Mixed, Family::Overload, Family::Down];

/// The mean gap, the worst, and where that is, of this many instances of each family with default
/// prices, and as many with prices drawn from the study's ranges (section 3.3).
fn gaps(quantum: u32, seeds: u64) -> (f64, f64, String) {
    let (mut sum, mut worst, mut place, mut count) = (0.0, 0.0, String::new(), 0.0);
    for (seed, family) in (1..=seeds).flat_map(|seed| FAMILIES.map(|family| (seed, family))) {
        let mut random = evenkeel_core::Rng::stream(seed, family_name(family));
        let mut between = |low: f64, high: f64| (low * (high / low).powf(random.unit())) as u32;
        let drawn = Prices {
            optional: between(20e3, 1e6),
            wan: between(1e3, 150e3),
            node_second: between(50e3, 2e6),
        };
        for prices in [Prices::default(), drawn] {
            let gap = gap(family, quantum, seed, &prices);
            (sum, count) = (sum + gap, count + 1.0);
            if gap > worst {
                (worst, place) = (gap, format!("{family:?} {seed} {prices:?}"));
            }
        }
    }
    (sum / count, worst, place)
}

fn family_name(family: Family) -> &'static str {
    match family {
        Family::Hot => "hot",
        Family::Tight => "tight",
        Family::Unequal => "unequal",
        Family::Mixed => "mixed",
        Family::Overload => "overload",
        Family::Down => "down",
    }
}

/// Half as many late while there is room, and a knee at less load.
fn hedged(problem: &Problem) -> Hedged {
    let sites = problem.sites();
    let curve = |from: usize, to: usize| {
        let ppm = |load: u32| {
            let same = problem.violation_ppm(from, to, load) / 2;
            same.max(problem.violation_ppm(from, to, load * 11 / 10) / 2).max(same)
        };
        let mut highest = 0;
        let curve = (0..=2 * problem.demand_total()).map(|load| {
            highest = ppm(load).max(highest);
            highest
        });
        curve.collect()
    };
    let row = |from| (0..sites).map(|to| curve(from, to)).collect();
    Hedged { curves: (0..sites).map(row).collect(), extra_ppm: 60_000 }
}

#[test]
fn three_small_data_centres_are_planned_as_well_as_if_every_joint_decision_was_tried() {
    let (mean, worst, place) = gaps(20, 7);
    assert!(mean < 0.001 && worst < 0.01, "mean gap {mean}, worst {worst} at {place}");
}

/// `cargo test -p evenkeel-geo every_joint -- --ignored --nocapture` prints the gaps.
#[test]
#[ignore = "takes a minute and a half without optimisation"]
fn every_joint_decision_of_960_plans_was_tried() {
    for quantum in [20, 10] {
        let (mean, worst, place) = gaps(quantum, 40);
        eprintln!("quantum {quantum} %: mean gap {mean:.5}, worst {worst:.5} at {place}");
        assert!(mean < 0.001 && worst < 0.05, "mean gap {mean}, worst {worst} at {place}");
    }
}

/// The study's R2, by the differences of the solved cost.
#[test]
fn one_more_request_costs_what_the_rule_says() {
    let prices = Prices::default();
    let solved = |demand: u32| {
        let planned = plan(&joint(&steep_problem(&[demand], 1_000, 0), None, &prices));
        (planned.answer.objective as f64, planned)
    };
    let over = 20;
    for demand in [500_u32, 600, 700, 900, 1_100, 1_500] {
        let ((below, _), (above, _)) = (solved(demand - over / 2), solved(demand + over / 2));
        let difference = (above - below) / f64::from(over) / 1e6;
        let (_, planned) = solved(demand);
        let u = planned.utilisation_ppm[0].unwrap() as f64 / 1e6;
        let (f, slope) = (u.powi(12), 12.0 * u.powi(11));
        let expected = if planned.states[0].dimmer == FULL {
            f + u * slope
        } else {
            f + 0.1 * 10.0 / (10.0 - 1.0)
        };
        assert!((difference / expected - 1.0).abs() < 0.03, "{demand}: {difference}, {expected}");
        // R1: dimmed to the load at which less content would save as much as it costs.
        if planned.states[0].dimmer < FULL {
            let rule = 0.1 * 1_000.0 * 10.0 / (f64::from(demand) * 9.0);
            assert!((slope / rule - 1.0).abs() < 0.15, "{demand}: {slope}, {rule}");
        }
        let more = planned.more[0][0] as f64 / 1e6;
        assert!((more / expected - 1.0).abs() < 0.25, "{demand}: {more}, {expected}");
    }
    assert_eq!(solved(500).1.states[0].dimmer, FULL);
    assert!(solved(1_100).1.states[0].dimmer < FULL);
}

/// The study's R3: sent away exactly where the difference of the prices is more than the way.
#[test]
fn requests_are_sent_away_where_it_is_cheaper_by_more_than_the_way() {
    let far = 9_000;
    let redirected = |optional: u32, wan: u32| {
        let prices = Prices { optional, wan, ..Prices::default() };
        let problem = steep_problem(&[1_100, 300], 1_000, far);
        plan(&joint(&problem, None, &prices)).answer.redirected
    };
    for optional in [20_000_u32, 100_000, 300_000] {
        // Alone: the price of the one that dims; the other has room, and one more costs nothing.
        let prices = Prices { optional, ..Prices::default() };
        let alone = plan(&joint(&steep_problem(&[1_100], 1_000, far), None, &prices));
        let u = alone.utilisation_ppm[0].unwrap() as f64 / 1e6;
        let here = 1e6 * (u.powi(12) + f64::from(optional) * 1e-6 * 10.0 / 9.0);
        let worth = (here - f64::from(far)) as u32;
        assert_eq!(redirected(optional, worth * 11 / 10), 0, "{optional}: dimming is cheaper");
        assert!(redirected(optional, worth * 9 / 10) > 50, "{optional}: the way is cheaper");
    }
}

#[test]
fn overload_is_priced_and_nobody_is_given_up() {
    let problem = steep_problem(&[190, 90], 100, 0);
    let prices = Prices { wan: 0, ..Prices::default() };
    let planned = plan(&Joint::new(&problem, None, &[RIGID; 2], &prices).unwrap());
    assert_eq!(planned.answer.loads, [140, 140], "overload is shared");
    // 1 + 2 · 0.4 each.
    assert_eq!(planned.answer.objective, 280 * 1_800_000);
    assert_eq!(planned.violations, 280 * 1_000_000);
}

/// Each would be broken by the moves that make a plan cheaper, were they not asked.
#[test]
fn limits_bounds_and_writes_hold_when_quanta_are_moved() {
    let problem = steep_problem(&[150, 20, 20], 100, 0);
    let prices = Prices { wan: 0, ..Prices::default() };
    let rates = |problem: &Problem| plan(&joint(problem, None, &prices)).answer.rates;
    let free = rates(&problem);
    assert!(free[0][1] > 10 && free[0][2] > 10, "{free:?}");
    let limit = u32::MAX;
    let limits = [vec![limit, 5, 0], vec![limit; 3], vec![limit; 3]];
    let limited = rates(&problem.clone().with_limits(&limits).unwrap());
    assert_eq!(limited[0][1..], [5, 0]);
    let kept = rates(&problem.clone().with_movable(vec![3, limit, limit]).unwrap());
    assert_eq!(kept[0][0], 147, "{kept:?}");
    let bounded = rates(&problem.with_bounds(vec![limit, 24, 22]).unwrap());
    let load = |site: usize| bounded.iter().map(|row| row[site]).sum::<u32>();
    assert!(load(1) <= 24 && load(2) <= 22, "{bounded:?}");
}

/// The users of a site that is full with others' are not taken home beyond its bound.
#[test]
fn a_bound_holds_when_users_are_taken_home() {
    let mut curves = steep(3, 1_000, 300, 0);
    curves[0][0].fill(1_000_000); // nobody serves them there
    let limit = u32::MAX;
    let limits = [vec![limit, limit, 0], vec![limit; 3], vec![limit; 3]];
    let problem = Problem::new(vec![20, 90, 10], curves).unwrap();
    let problem = problem.with_saturation(vec![1_000; 3]).unwrap();
    let problem = problem.with_bounds(vec![limit, 100, limit]).unwrap();
    let planned = plan(&joint(&problem.with_limits(&limits).unwrap(), None, &Prices::default()));
    assert_eq!(planned.answer.loads[1], 100, "{:?}", planned.answer.rates);
}

/// What one more request costs is not asked of a way that takes no more.
#[test]
fn the_price_of_a_demand_is_of_a_place_that_may_serve_one_more() {
    let problem = steep_problem(&[130, 20], 100, 1_000);
    let price = |problem: &Problem| {
        let planned = plan(&joint(problem, None, &Prices::default()));
        (planned.price[0], planned.more[0].clone(), planned.answer.rates[0].clone())
    };
    let (open, more, _) = price(&problem);
    assert_eq!(open, more[0].min(more[1]));
    let limited = problem.clone().with_limits(&[vec![130, 5], vec![20, 20]]).unwrap();
    let (closed, more, rates) = price(&limited);
    assert_eq!(rates[1], 5, "as many as may go");
    assert!(more[1] < more[0] && closed == more[0], "{closed} {more:?}");
    let bounded = problem.with_bounds(vec![u32::MAX, 25]).unwrap();
    let (closed, more, rates) = price(&bounded);
    assert!(rates[1] == 5 && closed == more[0] && more[1] < more[0], "{closed} {more:?}");
}

/// What is foretold is for the content and the hedges that the plan has.
#[test]
fn lateness_is_foretold_with_content_and_hedges() {
    let problem = steep_problem(&[130, 0], 100, 1_000_000);
    let planned = plan(&joint(&problem, None, &Prices { wan: 10_000_000, ..Prices::default() }));
    assert!(planned.states[0].dimmer < 100, "{planned:?}");
    let load = planned.answer.loads[0];
    assert_eq!(problem.violation_ppm(0, 0, load), 1_000_000, "full requests would all be late");
    assert!(planned.late[0][0] < 500_000, "{planned:?}");
    let pairs = || [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter();
    let late = |(i, j): (usize, usize)| planned.late[i][j] * u64::from(planned.answer.rates[i][j]);
    assert_eq!(pairs().map(late).sum::<u64>(), planned.violations);
}

#[test]
fn hedges_are_for_loads_with_room() {
    let problem = steep_problem(&[100], 100, 0);
    let mut other = hedged(&problem);
    // Copies halve what is late below 0.7 and cost everything above.
    other.curves = vec![vec![
        (0..400)
            .map(|load| match problem.violation_ppm(0, 0, load) {
                late if load < 70 => late / 2,
                late => (late * 2).min(ALL_PPM),
            })
            .collect(),
    ]];
    let hedging = Joint::new(&problem, Some(&other), &[RIGID], &Prices::default()).unwrap();
    assert!(hedging.state(0, 60).is_hedged && !hedging.state(0, 80).is_hedged);
    assert!(!hedging.state(0, 30).is_hedged, "nothing is late: copies cost nodes");
    let dear = Prices { node_second: JOINT_PRICE_MAX, ..Prices::default() };
    assert!(!Joint::new(&problem, Some(&other), &[RIGID], &dear).unwrap().state(0, 60).is_hedged);
}

/// F10: around a break-even the demand of every plan is another one, and hedges would begin and end
/// with it.
#[test]
fn hedges_stay_as_they_are_near_their_break_even() {
    let flips = |has_memory: bool| {
        let mut rng = evenkeel_core::Rng::stream(1, "demand near a break-even");
        let (mut is_on, mut flips) = (true, 0);
        for _ in 0..200 {
            // 0.7 is where copies begin to cost more than they save.
            let problem = steep_problem(&[8.0f64.mul_add(rng.normal(), 700.0) as u32], 1_000, 0);
            let curve = (0..2_700).map(|load| match problem.violation_ppm(0, 0, load) {
                late if load < 700 => late / 2,
                late => (late * 2).min(ALL_PPM),
            });
            let hedged = Hedged { curves: vec![vec![curve.collect()]], extra_ppm: 60_000 };
            let prices = Prices { node_second: 0, ..Prices::default() };
            let joint = Joint::new(&problem, Some(&hedged), &[RIGID], &prices).unwrap();
            let planned = plan(&joint);
            let next = match has_memory {
                true => planned.hedging[0].follow(is_on),
                false => planned.states[0].is_hedged,
            };
            flips += u32::from(next != is_on);
            is_on = next;
        }
        flips
    };
    assert!(flips(false) > 50, "{} times without", flips(false));
    assert!(flips(true) <= 2, "{} times with", flips(true));
}

#[test]
fn a_plan_has_one_hash_and_another_plan_another() {
    let at = |demand| plan(&joint(&steep_problem(&[demand, 50], 100, 0), None, &Prices::default()));
    assert_eq!(at(120), at(120));
    assert_ne!(at(120).hash, at(121).hash);
}

#[test]
fn what_cannot_be_priced_is_told() {
    let problem = steep_problem(&[50, 50], 100, 0);
    let refused = |services: &[Service], prices: Prices, hedged: Option<&Hedged>| {
        Joint::new(&problem, hedged, services, &prices).unwrap_err().to_string()
    };
    let prices = Prices::default();
    assert!(refused(&[CALM], prices, None).contains("2, one for each data centre"));
    let wan = Prices { wan: JOINT_PRICE_MAX + 1, ..prices };
    assert!(refused(&[CALM; 2], wan, None).contains("price wan"));
    let upside_down = Service { full_us: 1, lean_us: 2 };
    assert!(refused(&[CALM, upside_down], prices, None).contains("service 1"));
    let none = Hedged { curves: Vec::new(), extra_ppm: 0 };
    assert!(refused(&[CALM; 2], prices, Some(&none)).contains("curves"));
}

/// The bar is ten milliseconds of CPU at eight data centres. Work is counted, the same on every
/// machine, and is about a nanosecond; `cargo bench -p evenkeel-geo --bench redirect joint` has the
/// time.
#[test]
fn eight_data_centres_are_planned_within_the_effort_and_close_to_the_optimum() {
    for family in [Family::Hot, Family::Mixed, Family::Tight, Family::Overload] {
        let instance = instance(family, 8, 2, 1);
        let problem = Problem::new(instance.demand, instance.curves).unwrap();
        let problem = problem.with_distances(&instance.rtt_us).unwrap();
        let problem = problem.with_saturation(instance.capacity).unwrap();
        let joint = joint(&problem, None, &Prices::default());
        let planned = joint.plan(joint.effort()).unwrap();
        let answer = &planned.answer;
        assert!(answer.work < 9_000_000, "{family:?}: {}", answer.work);
        let gap = answer.objective as f64 / answer.lower_bound as f64 - 1.0;
        assert!(gap < 0.005, "{family:?}: {gap}");
    }
}
