//! Plans by price from snapshots.

use super::super::super::joint::{Prices, Service};
use super::*;

const CALM: Service = Service { full_us: 1_000, lean_us: 100 };

fn joint(prices: Prices, hedged: Option<u32>) -> JointPlanner {
    let planner = planner_of(2, |config| config.growth = None);
    let curves = vec![SiteCurves::single(curves(30)); 2];
    let hedged = hedged.map(|extra_ppm| (curves, extra_ppm));
    JointPlanner::new(planner, hedged, vec![CALM; 2], prices).unwrap()
}

#[test]
fn what_is_too_much_goes_where_it_is_cheaper_or_is_dimmed() {
    let snapshot = snapshot_of(&[12_000, 3_000], 10);
    let (plan, planned) = joint(Prices::default(), None).plan(&snapshot).unwrap();
    let rates = |plan: &Plan, site: usize| plan.rates_per_1000_s(SiteId::new(site));
    let [home, away] = rates(&plan, 0)[..] else { panic!("two sites") };
    assert_eq!(home + away, 12_000_000, "all demand has a place");
    assert!((2_000_000..6_000_000).contains(&away), "{away}");
    assert_eq!(rates(&plan, 1), [0, 3_000_000]);
    assert!(planned.states.iter().all(|state| state.dimmer > 90), "{:?}", planned.states);
    // No way is worth ten requests that are late.
    let (plan, planned) =
        joint(Prices { wan: 10_000_000, ..Prices::default() }, None).plan(&snapshot).unwrap();
    assert_eq!(rates(&plan, 0), [12_000_000, 0]);
    // 12 (θ + (1 - θ) / 10) is at most 10.
    assert!(planned.states[0].dimmer <= 81, "{:?}", planned.states);
    assert_eq!(planned.states[1].dimmer, 100);
}

#[test]
fn a_site_that_is_down_is_sent_nothing_and_its_users_go_elsewhere() {
    let mut snapshot = snapshot_of(&[5_000, 3_000], 10);
    report(&mut snapshot, 0).capacity_per_1000_s = 0;
    let (plan, _) = joint(Prices::default(), None).plan(&snapshot).unwrap();
    assert_eq!(plan.rates_per_1000_s(SiteId::new(1)), [0, 3_000_000]);
    assert_eq!(plan.rates_per_1000_s(SiteId::new(0)), [0, 5_000_000]);
}

#[test]
fn equal_snapshots_have_equal_plans_and_copies_that_help_nobody_are_not_sent() {
    let snapshot = snapshot_of(&[9_000, 6_000], 10);
    let planner = joint(Prices::default(), Some(50_000));
    let ((plan, planned), again) =
        (planner.plan(&snapshot).unwrap(), planner.plan(&snapshot).unwrap());
    assert_eq!((&plan, &planned), (&again.0, &again.1));
    // The hedged curves are the same curves, and copies take node time.
    assert!(planned.states.iter().all(|state| !state.is_hedged), "{:?}", planned.states);
}

#[test]
fn services_of_other_sites_are_refused() {
    let planner = planner_of(2, |_| {});
    let joint = JointPlanner::new(planner, None, vec![CALM; 3], Prices::default()).unwrap();
    let error = joint.plan(&snapshot_of(&[1, 1], 10)).unwrap_err().to_string();
    assert!(error.contains("2, one for each data centre"), "{error}");
}
