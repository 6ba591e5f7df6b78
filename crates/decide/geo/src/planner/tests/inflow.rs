//! What is told of a plan before it comes: for whom, and against what.

use super::super::super::Problem;
use super::*;
use evenkeel_core::dimmer::Inflow;

/// A plan in which sites with these rates in requests/s, by origin and by who serves, take part.
fn plan(epoch: u64, rates: &[[u64; 2]; 2]) -> Plan {
    let snapshot = snapshot_of(&[1_000, 1_000], 10);
    let mut plan = planner_of(2, |_| {}).plan(&Snapshot { epoch, ..snapshot.clone() });
    // The quantum is one request/s, so that any rates are whole quanta.
    plan.unit_per_1000_s = 1_000;
    let demand = rates.map(|row| row.iter().sum::<u64>());
    let quanta = demand.map(|demand| demand as u32);
    plan.demand_per_1000_s = demand.map(|demand| demand * 1_000).to_vec();
    plan.problem = Problem::new(quanta.to_vec(), vec![vec![vec![0]; 2]; 2]).unwrap();
    plan.answer.rates = rates.iter().map(|row| row.map(|rate| rate as u32).to_vec()).collect();
    plan
}

/// The factors that both sites are told of the last of these plans, in epochs one after the other.
fn told(plans: &[[[u64; 2]; 2]]) -> [Option<f64>; 2] {
    [0, 1].map(|site| {
        let mut inflows = Inflows::default();
        let mut follow = |(epoch, rates): (u64, &[[u64; 2]; 2])| {
            inflows.follow(&plan(epoch, rates), SiteId::new(site))
        };
        let all: Vec<_> = (1..).zip(plans).map(&mut follow).collect();
        all.last().copied().flatten().map(Inflow::factor)
    })
}

fn assert_told(plans: &[[[u64; 2]; 2]], expected: [Option<f64>; 2]) {
    let told = told(plans);
    for (told, expected) in told.iter().zip(expected) {
        let is_near = match (told, expected) {
            (Some(told), Some(expected)) => (told - expected).abs() < 1e-9,
            (told, expected) => told.is_none() && expected.is_none(),
        };
        assert!(is_near, "{told:?} of {plans:?}, expected {expected:?}");
    }
}

#[test]
fn a_receiver_is_told_what_it_gets_and_a_sender_what_it_keeps() {
    let alone = [[1_000, 0], [400, 400]];
    assert_told(&[alone], [None, None]);
    assert_told(&[alone, alone], [None, None]);
    // 1,400 at the first site become 900, 400 at the other 900.
    assert_told(&[alone, [[500, 500], [400, 400]]], [Some(900.0 / 1_400.0), Some(900.0 / 400.0)]);
}

#[test]
fn what_the_arrivals_show_by_themselves_is_not_told() {
    // Twice as many users: the first site's arrivals have doubled before the plan that sends half
    // of them away.
    let before = [[1_000, 0], [0, 400]];
    assert_told(&[before, [[2_000, 0], [0, 400]]], [None, None]);
    assert_told(&[before, [[1_000, 1_000], [0, 400]]], [Some(0.5), Some(1_400.0 / 400.0)]);
    // Shares follow demand down, and up to the cap: of 200 that were sent 100 come, or 220.
    let sends = [[800, 200], [0, 400]];
    assert_told(&[sends, [[400, 100], [0, 400]]], [None, None]);
    assert_told(&[sends, [[1_600, 400], [0, 400]]], [Some(1_600.0 / 1_780.0), Some(800.0 / 620.0)]);
}

#[test]
fn without_a_plan_in_force_nobody_knows_what_comes() {
    let (alone, sent) = ([[1_000, 0], [0, 400]], [[500, 500], [0, 400]]);
    let told = |epochs: [u64; 2]| {
        let mut inflows = Inflows::default();
        assert_eq!(inflows.follow(&plan(epochs[0], &alone), SiteId::new(1)), None);
        inflows.follow(&plan(epochs[1], &sent), SiteId::new(1)).map(Inflow::epoch)
    };
    assert_eq!((told([7, 8]), told([7, 9])), (Some(8), Some(9)));
    assert_eq!((told([7, 10]), told([7, 7]), told([7, 6])), (None, None, None));
    // Nor does a site that is no member, or to which nothing comes.
    let mut inflows = Inflows::default();
    inflows.follow(&plan(1, &alone), SiteId::new(1));
    let mut without = plan(2, &sent);
    without.members = SiteSet::first(1);
    assert_eq!(inflows.follow(&without, SiteId::new(1)), None);
    let (idle, first) = ([[1_000, 0], [0, 0]], [[500, 500], [0, 0]]);
    assert_told(&[idle, first], [Some(0.5), None]);
    assert_told(&[first, idle], [Some(2.0), None]);
}
