//! Plans by price from snapshots.

use super::super::super::joint::{Hedging, Prices, Service};
use super::*;

const CALM: Service = Service { full_us: 1_000, lean_us: 100 };

fn priced(prices: Prices, hedged: Option<u32>) -> Planner {
    let curves = vec![SiteCurves::single(curves(30)); 2];
    let hedged = hedged.map(|extra_ppm| (curves, extra_ppm));
    let planner = planner_of(2, |config| config.growth = None);
    planner.with_prices(Pricing { hedged, services: vec![CALM; 2], prices }).unwrap()
}

fn states(plan: &Plan) -> &[crate::joint::State] {
    &plan.priced.as_ref().unwrap().states
}

#[test]
fn what_is_too_much_goes_where_it_is_cheaper_or_is_dimmed() {
    let snapshot = snapshot_of(&[12_000, 3_000], 10);
    let plan = priced(Prices::default(), None).plan(&snapshot);
    let rates = |plan: &Plan, site: usize| plan.rates_per_1000_s(SiteId::new(site));
    let [home, away] = rates(&plan, 0)[..] else { panic!("two sites") };
    assert_eq!(home + away, 12_000_000, "all demand has a place");
    assert!((2_000_000..6_000_000).contains(&away), "{away}");
    assert_eq!(rates(&plan, 1), [0, 3_000_000]);
    assert_eq!(plan.load_per_1000_s(SiteId::new(1)), away + 3_000_000, "what London expects");
    assert!(states(&plan).iter().all(|state| state.dimmer > 90), "{:?}", states(&plan));
    // No way is worth ten requests that are late.
    let prices = Prices { wan: 10_000_000, ..Prices::default() };
    let plan = priced(prices, None).plan(&snapshot);
    assert_eq!(rates(&plan, 0), [12_000_000, 0]);
    // 12 (θ + (1 - θ) / 10) is at most 10.
    assert!(states(&plan)[0].dimmer <= 81, "{:?}", states(&plan));
    assert_eq!(states(&plan)[1].dimmer, 100);
    // What is dimmed is in time: the prediction is with dimmers, not of full requests.
    let late = plan.predicted(SiteId::new(0));
    assert!(late.planned_ppm < 200_000 && late.alone_ppm == ALL_PPM, "{late:?}");
}

/// Each load of each site is priced with all dimmers, with hedges and without.
#[test]
fn one_tiny_site_does_not_make_loads_as_fine_as_can_be() {
    let demand = [9_000_000, 9_000_000, 100];
    let capacity = [CAPACITY, CAPACITY, 0];
    let quanta = |planner: &Planner| {
        let unit = planner.unit(&capacity, &demand);
        demand.iter().map(|demand| demand.div_ceil(unit)).sum::<u64>()
    };
    let planner = planner_of(3, |config| config.growth = None);
    assert!(quanta(&planner) > 15_000, "{}", quanta(&planner));
    let pricing = Pricing { services: vec![CALM; 3], ..Pricing::default() };
    let by_price = planner.with_prices(pricing).unwrap();
    assert!(quanta(&by_price) < 6_000, "{}", quanta(&by_price));
}

#[test]
fn a_site_that_is_down_is_sent_nothing_and_its_users_go_elsewhere() {
    let mut snapshot = snapshot_of(&[5_000, 3_000], 10);
    report(&mut snapshot, 0).capacity_per_1000_s = 0;
    let plan = priced(Prices::default(), None).plan(&snapshot);
    assert_eq!(plan.rates_per_1000_s(SiteId::new(1)), [0, 3_000_000]);
    assert_eq!(plan.rates_per_1000_s(SiteId::new(0)), [0, 5_000_000]);
}

#[test]
fn equal_snapshots_have_equal_plans_and_copies_that_help_nobody_are_not_sent() {
    let snapshot = snapshot_of(&[9_000, 6_000], 10);
    let planner = priced(Prices::default(), Some(50_000));
    let (plan, again) = (planner.plan(&snapshot), planner.plan(&snapshot));
    assert_eq!((&plan, plan.hashes()), (&again, again.hashes()));
    // The hedged curves are the same curves, and copies take node time.
    let planned = plan.priced.as_ref().unwrap();
    assert_eq!(planned.hedging, [Hedging::Off; 2]);
    // Equal rates with other dimmers are another plan.
    let dear = priced(Prices { optional: 1, ..Prices::default() }, None).plan(&snapshot);
    let mut plain = dear.clone();
    plain.priced = None;
    assert_ne!(dear.hashes().plan, plain.hashes().plan);
}

/// As if hedges were worth nothing, all of them were switched off.
#[test]
fn without_curves_of_hedges_nothing_is_said_of_them() {
    for load in [1_000, 6_000, 9_900] {
        let plan = priced(Prices::default(), None).plan(&snapshot_of(&[load, load], 10));
        assert_eq!(plan.priced.as_ref().unwrap().hedging, [Hedging::AsBefore; 2], "{load}");
    }
}

#[test]
fn what_must_be_set_alike_names_prices_and_work() {
    let differing = |a: &Planner, b: &Planner| -> Vec<Setting> {
        let pairs = a.settings().into_iter().zip(b.settings());
        pairs.filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0).collect()
    };
    let ours = priced(Prices::default(), None);
    let dear = priced(Prices { wan: 1, ..Prices::default() }, None);
    assert_eq!(differing(&ours, &dear), [Setting::Aim]);
    assert_eq!(differing(&ours, &planner_of(2, |config| config.growth = None))[0], Setting::Aim);
    let services = vec![CALM, Service { lean_us: 99, ..CALM }];
    let other = planner_of(2, |config| config.growth = None);
    let other = other.with_prices(Pricing { services, ..Pricing::default() }).unwrap();
    assert_eq!(differing(&ours, &other), [Setting::Curves(SiteId::new(1))]);
    for other in [dear, other] {
        assert_ne!(ours.fingerprint(), other.fingerprint());
    }
}

#[test]
fn what_cannot_be_priced_is_told() {
    let refused = |pricing: Pricing| {
        let priced = planner_of(2, |_| {}).with_prices(pricing);
        priced.unwrap_err().to_string()
    };
    let sound = Pricing { services: vec![CALM; 2], ..Pricing::default() };
    let other = Pricing { services: vec![CALM; 3], ..sound.clone() };
    assert!(refused(other).contains("services: 3"));
    let prices = Prices { wan: 10_000_001, ..Prices::default() };
    assert!(refused(Pricing { prices, ..sound.clone() }).contains("price: 10.000001"));
    let upside_down = Service { full_us: 1, lean_us: 2 };
    assert!(refused(Pricing { services: vec![upside_down; 2], ..sound.clone() }).contains("work"));
    let of_three = Some((vec![SiteCurves::single(curves(30)); 3], 0));
    assert!(refused(Pricing { hedged: of_three, ..sound.clone() }).contains("hedged curves"));
    let two = SiteCurves::of_versions([curves(30), curves(30)]);
    let hedged = Some((vec![two; 2], 0));
    assert!(refused(Pricing { hedged, ..sound }).contains("as many versions"));
}
