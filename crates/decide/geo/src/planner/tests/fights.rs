//! How mechanisms fight, and the rules that keep them from it: each shown without its rule too.
//!
//! **Source**: joint study, section 4. F1, F4, F5 and F8 are here, F2, F3, F9 and F11 are with the
//! dimmer (`evenkeel-core`, `dimmer/fights.rs`), F6 and F7 with hedges
//! (`request/redundancy/load.rs` there; `evenkeel-sim`, `tests/hedging.rs`), F10 with plans by
//! price (`joint/tests.rs`).

use super::super::super::joint::Service;
use super::*;

const CALM: Service = Service { full_us: 1_000, lean_us: 100 };

fn by_price(sites: usize) -> Planner {
    let planner = planner_of(sites, |config| config.growth = None);
    let pricing = Pricing { services: vec![CALM; sites], ..Pricing::default() };
    planner.with_prices(pricing).unwrap()
}

fn rates(plan: &Plan) -> Vec<Vec<u64>> {
    let sites = 0..plan.answer.rates.len();
    sites.map(|site| plan.rates_per_1000_s(SiteId::new(site))).collect()
}

/// Requests of the first site that are served elsewhere, of all of it.
fn away(plan: &Plan) -> f64 {
    let row = &rates(plan)[0];
    row[1..].iter().sum::<u64>() as f64 / row.iter().sum::<u64>() as f64
}

/// F1: a dimmer hides overload from who plans by measured work.
#[test]
fn plans_by_arrivals_relieve_a_site_that_dims_and_plans_by_work_do_not() {
    let planner = by_price(3);
    let by_arrivals = planner.plan(&snapshot_of(&[13_000, 5_000, 5_000], 10));
    assert!(away(&by_arrivals) > 0.2, "{}", away(&by_arrivals));
    // Its dimmer leaves 0.86 of the capacity, whatever comes.
    let by_work = planner.plan(&snapshot_of(&[8_600, 5_000, 5_000], 10));
    assert!(away(&by_work) < 0.05, "{}", away(&by_work));
}

/// F4: who plans by the load that it sees plans by its own plans.
#[test]
fn plans_by_arrivals_stand_still_and_plans_by_what_is_served_swing() {
    let demand = [13_000_u64, 5_000, 5_000];
    let changes = |by_arrivals: bool| {
        let planner = by_price(3);
        let mut seen = demand.to_vec();
        let (mut before, mut changes) = (None, 0);
        for _ in 0..10 {
            let plan = planner.plan(&snapshot_of(&seen, 10));
            let share = away(&plan);
            changes += u32::from(before.is_some_and(|before: f64| (share - before).abs() > 0.1));
            before = Some(share);
            if !by_arrivals {
                // By shares: what the plan makes of the demand there is.
                let part = |from: usize, to: usize| {
                    let row = &rates(&plan)[from];
                    demand[from] as f64 * row[to] as f64 / row.iter().sum::<u64>().max(1) as f64
                };
                seen = (0..3)
                    .map(|to| (0..3).map(|from| part(from, to)).sum::<f64>() as u64)
                    .collect();
            }
        }
        changes
    };
    assert_eq!(changes(true), 0);
    assert!(changes(false) >= 8, "{}", changes(false));
}

/// F5: sites that each plan from what they know of themselves now and of others a while ago send
/// to each other.
#[test]
fn plans_from_one_snapshot_send_one_way_and_plans_from_several_both_ways() {
    let planner = by_price(2);
    // Both were calm; then each sees that it has become hot, and not yet that the other has.
    let [calm, hot] = [6_000, 11_000];
    let crossing = |of_first: [u64; 2], of_second: [u64; 2]| {
        let there = rates(&planner.plan(&snapshot_of(&of_first, 10)))[0][1];
        let back = rates(&planner.plan(&snapshot_of(&of_second, 10)))[1][0];
        there.min(back)
    };
    assert!(crossing([hot, calm], [calm, hot]) > 500_000);
    for both in [[hot, hot], [hot, calm], [calm, hot]] {
        assert_eq!(crossing(both, both), 0);
    }
}

/// F8: curves end at all requests late, so that one site is given everything that is too much.
#[test]
fn overload_is_shared_by_price_and_heaped_on_one_site_by_curves() {
    let demand = [12_000, 12_000];
    let heaviest = |plan: &Plan| {
        let loads = (0..2).map(|site| plan.load_per_1000_s(SiteId::new(site)));
        loads.max().unwrap_or(0)
    };
    let curves = planner_of(2, |config| {
        config.growth = None;
        config.overload = Overload::Curve;
        config.relay = true;
    });
    let heaped = heaviest(&curves.plan(&snapshot_of(&demand, 1)));
    let shared = heaviest(&by_price(2).plan(&snapshot_of(&demand, 1)));
    assert!(heaped > 13_500_000, "{heaped}");
    assert!(shared < 12_500_000, "{shared}");
}
