//! Plans from snapshots, against enumeration over the curves themselves.

use core::num::NonZeroU32;

use super::super::curve::{Family, Residual};
use super::super::epoch::{Path, Report, Row, SiteEntry, SiteLiveness, SiteSet};
use super::super::problem::CURVE_VALUES_MAX;
use super::super::{QUANTA_MAX, Status};
use super::*;
use evenkeel_core::units::Rate;
use proptest::prelude::*;

mod fights;
mod inflow;
mod past;
mod priced;
mod unequal;

/// Ten servers that take 1 ms for a request: saturated at 10,000 requests/s.
const CAPACITY: u64 = 10_000_000;

fn curves(objective_ms: u64) -> ResponseCurves {
    let ten = NonZeroU32::new(10).unwrap();
    ResponseCurves::markov(Duration::from_millis(objective_ms), ten, Duration::from_millis(1))
        .unwrap()
}

fn planner_of(sites: usize, set: impl Fn(&mut PlannerConfig)) -> Planner {
    let mut config = PlannerConfig::new(Duration::from_millis(2_500));
    set(&mut config);
    Planner::new(config, vec![SiteCurves::single(curves(30)); sites]).unwrap()
}

/// A way of this base round trip without residual latency.
fn path(base_ms: u32) -> Path {
    Path::summary(base_ms * 1_000, &[1_000_000], 0)
}

/// All sites fresh, this many milliseconds from each other, with this demand in requests/s.
fn snapshot_of(demand: &[u64], base_ms: u32) -> Snapshot {
    let sites = demand.len();
    let entry = |site: usize| {
        let mut report = Report::empty(sites);
        report.demand_per_1000_s = demand[site] * 1_000;
        report.capacity_per_1000_s = CAPACITY;
        report.in_time_per_1000_s[site] = CAPACITY;
        report.paths = vec![Some(path(base_ms)); sites];
        report.paths[site] = None;
        let row = Row {
            site: SiteId::new(site),
            epoch: 7,
            settings: 0,
            received: SiteSet::first(sites),
            answers: [None; 2],
            report,
        };
        SiteEntry { liveness: SiteLiveness::Fresh, last: Some(row) }
    };
    Snapshot { epoch: 7, sites: (0..sites).map(entry).collect() }
}

fn report(snapshot: &mut Snapshot, site: usize) -> &mut Report {
    &mut snapshot.sites[site].last.as_mut().unwrap().report
}

fn sent(plan: &Plan, from: usize, to: usize) -> u64 {
    plan.row(SiteId::new(from)).rates_per_1000_s[to]
}

#[test]
fn a_hot_site_sends_and_the_plan_says_why() {
    let snapshot = snapshot_of(&[9_900, 3_000, 5_000], 10);
    let plan = planner_of(3, |_| {}).plan(&snapshot);
    assert_eq!(plan.answer.status, Status::Optimal);
    assert!(sent(&plan, 0, 1) > 0 && sent(&plan, 1, 0) == 0);
    let row = plan.row(SiteId::new(0));
    assert_eq!(row.rates_per_1000_s.iter().sum::<u64>(), 9_900_000);
    assert_eq!(plan.inflow_per_1000_s(SiteId::new(1)), sent(&plan, 0, 1));
    let hot = plan.predicted(SiteId::new(0));
    assert!(hot.planned_ppm < hot.alone_ppm / 2, "{hot:?}");
    let flows = plan.flows(&snapshot);
    assert_eq!((flows[0].from, flows[0].base_rtt_us), (SiteId::new(0), Some(10_000)));
    let flown: u64 = flows.iter().map(|flow| flow.rate_per_1000_s).sum();
    assert_eq!(flown, sent(&plan, 0, 1) + sent(&plan, 0, 2));
    assert!(!plan.wants_capacity());
}

#[test]
fn nobody_sends_where_all_is_well() {
    let plan = planner_of(3, |_| {}).plan(&snapshot_of(&[4_000, 3_000, 5_000], 10));
    assert_eq!(plan.answer.redirected, 0);
    assert_eq!(plan.row(SiteId::new(2)).rates_per_1000_s, [0, 0, 5_000_000]);
}

#[test]
fn who_is_silent_or_has_no_replica_or_no_way_receives_nothing() {
    let planner = planner_of(3, |_| {});
    let demand = [9_900, 1_000, 1_000];
    let mut without_replicas = snapshot_of(&demand, 10);
    report(&mut without_replicas, 1).capacity_per_1000_s = 0;
    let mut without_path = snapshot_of(&demand, 10);
    report(&mut without_path, 0).paths[1] = None;
    let mut silent = snapshot_of(&demand, 10);
    silent.sites[1].liveness = SiteLiveness::Down;
    let mut strange = snapshot_of(&demand, 10);
    report(&mut strange, 1).curve_version = 1;
    for snapshot in [&without_replicas, &without_path, &silent, &strange] {
        let plan = planner.plan(snapshot);
        assert_eq!(sent(&plan, 0, 1), 0, "{snapshot:?}");
        assert!(sent(&plan, 0, 2) > 0);
    }
    let plan = planner.plan(&without_replicas);
    assert_eq!(sent(&plan, 1, 1), 0, "its users are served elsewhere");
    let plan = planner.plan(&silent);
    assert_eq!(plan.row(SiteId::new(1)).demand_per_1000_s, 0, "it serves its own");
    assert_eq!(plan.members.len(), 2);
}

#[test]
fn the_nearer_of_two_alike_is_taken() {
    let mut snapshot = snapshot_of(&[9_900, 1_000, 1_000], 10);
    report(&mut snapshot, 0).paths[1] = Some(path(11));
    let plan = planner_of(3, |_| {}).plan(&snapshot);
    assert!(sent(&plan, 0, 1) == 0 && sent(&plan, 0, 2) > 0);
}

#[test]
fn limits_are_shares_of_the_demand() {
    let limits = vec![vec![0, 20_000, 0], vec![0; 3], vec![0; 3]];
    let planner = planner_of(3, |config| config.limits_ppm = Some(limits.clone()));
    let plan = planner.plan(&snapshot_of(&[9_900, 1_000, 1_000], 10));
    // 2 % of 99 quanta is one whole quantum of 1 % of 10,000 requests/s.
    assert_eq!((sent(&plan, 0, 1), sent(&plan, 0, 2)), (100_000, 0));
}

#[test]
fn what_nobody_can_serve_is_shed_where_it_comes() {
    let plan = planner_of(2, |_| {}).plan(&snapshot_of(&[15_000, 15_000], 10));
    assert!(plan.wants_capacity());
    let [one, other] = [plan.answer.shed[0], plan.answer.shed[1]];
    assert!(one.abs_diff(other) <= 1 && one > 50, "{one} {other}");
    assert!(plan.answer.loads.iter().all(|&load| load < 100), "below saturation, with the bias");
}

#[test]
fn a_backlog_counts_as_demand_of_one_period() {
    let planner = planner_of(2, |_| {});
    let mut snapshot = snapshot_of(&[4_000, 4_000], 10);
    report(&mut snapshot, 0).backlog_requests = 2_500;
    assert_eq!(planner.plan(&snapshot).demand_per_1000_s, [5_000_000, 4_000_000]);
}

#[test]
fn what_waits_is_at_home_already_so_shares_are_of_what_arrives() {
    let planner = planner_of(2, |_| {});
    let mut snapshot = snapshot_of(&[9_000, 1_000], 10);
    report(&mut snapshot, 0).backlog_requests = 2_500; // 1,000/s for a period of 2.5 s
    let plan = planner.plan(&snapshot);
    let (all, row) = (plan.rates_per_1000_s(SiteId::new(0)), plan.row(SiteId::new(0)));
    assert!(all[1] > 0, "{all:?}");
    assert_eq!(row.rates_per_1000_s[1], all[1], "as much is sent as was planned");
    assert_eq!(row.rates_per_1000_s[0], all[0] - 1_000_000, "the rest of home is what waits");
    assert_eq!(row.demand_per_1000_s, 9_000_000);
}

#[test]
fn writes_that_go_everywhere_are_load_everywhere_and_not_redirected() {
    let everywhere = planner_of(2, |config| config.writes = Writes::Everywhere);
    let mut snapshot = snapshot_of(&[8_000, 1_000], 10);
    report(&mut snapshot, 0).writes_ppm = 500_000;
    let plan = everywhere.plan(&snapshot);
    assert_eq!(plan.demand_per_1000_s, [4_000_000, 1_000_000]);
    // Both do the 4,000 writes: 1.04 * (4,000 + reads) is below 10,000 up to 56 quanta of reads.
    assert_eq!(plan.problem.saturation(), [57, 57]);
}

#[test]
fn writes_that_stay_are_load_at_home_and_bound_what_is_sent() {
    let home = planner_of(3, |config| {
        (config.writes, config.overload) = (Writes::Home, Overload::Curve);
    });
    let of = |writes_ppm: u32| {
        let mut snapshot = snapshot_of(&[9_900, 1_000, 1_000], 10);
        report(&mut snapshot, 0).writes_ppm = writes_ppm;
        home.plan(&snapshot)
    };
    let (origin, free) = (SiteId::new(0), of(0));
    let moved = |plan: &Plan| sent(plan, 0, 1) + sent(plan, 0, 2);
    assert_eq!(free.kept_per_1000_s, [0, 0, 0]);
    assert!(moved(&free) > 400_000, "{}", moved(&free));
    // 95 % writes leave 495 reads/s: four whole quanta of 100/s, over all destinations together.
    let bound = of(950_000);
    assert_eq!(moved(&bound), 400_000);
    assert_eq!(bound.demand_per_1000_s, [9_900_000, 1_000_000, 1_000_000], "writes are load");
    let row = bound.row(origin);
    assert_eq!((row.demand_per_1000_s, row.rates_per_1000_s[0]), (495_000, 95_000));
    assert_eq!(bound.rates_per_1000_s(origin)[0], 9_500_000);
    assert_eq!(moved(&of(1_000_000)), 0);
}

#[test]
fn the_quantum_grows_until_the_solver_takes_all_quanta() {
    let planner = planner_of(2, |config| config.quantum_ppm = 1);
    let plan = planner.plan(&snapshot_of(&[9_000, 9_000], 10));
    assert_eq!(plan.unit_per_1000_s, 18_000_000_u64.div_ceil(19_998));
    let empty = planner.plan(&snapshot_of(&[0, 0], 10));
    assert_eq!((empty.unit_per_1000_s, empty.answer.redirected), (10, 0));
}

#[test]
fn tables_of_many_sites_stay_within_what_a_problem_holds() {
    // Each table is at most as long as all demand is quanta, and none.
    for sites in [2_usize, 29, 64] {
        let planner = planner_of(sites, |config| config.quantum_ppm = 1);
        let demand = vec![9_000_001; sites];
        let unit = planner.unit(&vec![CAPACITY; sites], &demand);
        let quanta: u64 = demand.iter().map(|demand| demand.div_ceil(unit)).sum();
        let values = (quanta + 1) * (sites * sites) as u64;
        assert!(values <= CURVE_VALUES_MAX as u64 && quanta <= u64::from(QUANTA_MAX), "{sites}");
        assert!(quanta > 3_900, "{sites}: as fine as can be, not {quanta}");
    }
}

#[test]
fn the_search_is_a_part_of_the_period_and_of_ten_seconds_at_most() {
    let work_max = |period: Duration| PlannerConfig::new(period).effort.work_max;
    assert_eq!(work_max(Duration::from_millis(2_500)), 500_000_000);
    assert_eq!(work_max(Duration::from_secs(3_600)), 2_000_000_000);
}

#[test]
fn every_setting_is_in_the_fingerprint() {
    let of = |set: &dyn Fn(&mut PlannerConfig)| planner_of(2, |config| set(config)).fingerprint();
    let square = || Some(vec![vec![1; 2]; 2]);
    let mut prints = vec![
        of(&|_| {}),
        of(&|config| config.aim = Aim::Cost { target_ppm: 50_000 }),
        of(&|config| config.aim = Aim::GlobalCost { target_ppm: 50_000, weights: vec![1, 2] }),
        of(&|config| config.relay = true),
        of(&|config| config.overload = Overload::Curve),
        of(&|config| config.overload = Overload::Priced(5)),
        of(&|config| config.quantum_ppm = 20_000),
        of(&|config| config.load_bias = 1.0),
        of(&|config| config.period = Duration::from_secs(5)),
        of(&|config| config.writes = Writes::Everywhere),
        of(&|config| config.writes = Writes::Home),
        of(&|config| config.prices = square()),
        of(&|config| config.limits_ppm = square()),
        of(&|config| config.effort.work_exact += 1),
        planner_of(3, |_| {}).fingerprint(),
    ];
    let config = PlannerConfig::new(Duration::from_millis(2_500));
    let other_curves = vec![SiteCurves::single(curves(29)); 2];
    prints.push(Planner::new(config, other_curves).unwrap().fingerprint());
    assert_eq!(prints[0], of(&|_| {}));
    prints.sort_unstable();
    assert!(prints.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn settings_out_of_range_are_refused() {
    let two = || vec![SiteCurves::single(curves(30)); 2];
    let refused = |set: &dyn Fn(&mut PlannerConfig), sites: Vec<SiteCurves>| {
        let mut config = PlannerConfig::new(Duration::from_millis(2_500));
        set(&mut config);
        Planner::new(config, sites).unwrap_err().place
    };
    assert_eq!(refused(&|config| config.quantum_ppm = 0, two()), "quantum");
    assert_eq!(refused(&|config| config.period = Duration::ZERO, two()), "period");
    assert_eq!(refused(&|config| config.load_bias = f64::NAN, two()), "load bias");
    let dear = |config: &mut PlannerConfig| config.overload = Overload::Priced(100_001);
    assert_eq!(refused(&dear, two()), "overload price");
    assert_eq!(refused(&|config| config.prices = Some(vec![vec![0; 2]]), two()), "prices");
    let high = |config: &mut PlannerConfig| config.limits_ppm = Some(vec![vec![2_000_000; 2]; 2]);
    assert_eq!(refused(&high, two()), "limits");
    let weights = |config: &mut PlannerConfig| {
        config.aim = Aim::GlobalCost { target_ppm: 0, weights: vec![1] }
    };
    assert_eq!(refused(&weights, two()), "weights");
    assert_eq!(refused(&|_| {}, Vec::new()), "sites");
    let mixed = vec![SiteCurves::single(curves(30)), SiteCurves::single(curves(31))];
    assert_eq!(refused(&|_| {}, mixed), "curves of site 1");
    let none = vec![SiteCurves { versions: Vec::new() }; 2];
    assert_eq!(refused(&|_| {}, none), "curves of site 0");
}

/// The curves of both sites, asked directly.
struct Direct {
    inside: Family,
    outside: Family,
}

impl Direct {
    /// Violations in requests per second when `moved` requests/s go from the first to the second.
    fn violations(&self, demand: [f64; 2], moved: f64, base: Duration) -> f64 {
        let conditions = Conditions::with_servers(10);
        let miss = |family: &Family, base, load: f64| {
            family.miss(base, Rate::new(load).unwrap(), &conditions).value()
        };
        let [home, away] = [demand[0] - moved, demand[1] + moved];
        let inside = miss(&self.inside, Duration::ZERO, away);
        home * miss(&self.inside, Duration::ZERO, home)
            + demand[1] * inside
            + moved * miss(&self.outside, base, away).max(inside)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn no_other_number_of_quanta_is_better(
        hot in 85..99_u64,
        cool in 10..95_u64,
        base in 1..29_u32,
    ) {
        let planner = planner_of(2, |config| config.overload = Overload::Curve);
        let plan = planner.plan(&snapshot_of(&[hot * 100, cool * 100], base));
        let base = Duration::from_millis(base.into());
        let (hot, cool) = (hot as f64 * 100.0, cool as f64 * 100.0);
        let curves = curves(30);
        let outside = Family::new(&curves, &Residual::none(), 1).unwrap();
        let direct = Direct { inside: Family::local(&curves), outside };
        // Either may send, not both.
        let of = |moved: f64| match moved >= 0.0 {
            true => direct.violations([hot, cool], moved, base),
            false => direct.violations([cool, hot], -moved, base),
        };
        let moved = sent(&plan, 0, 1) as f64 * 1e-3 - sent(&plan, 1, 0) as f64 * 1e-3;
        let quanta = |most: f64| (0..=(most / 100.0) as u32).map(|k| f64::from(k) * 100.0);
        let least = quanta(hot).chain(quanta(cool).map(|k| -k)).map(of).fold(f64::MAX, f64::min);
        // Misses are whole parts per million of 20,000 requests/s at most.
        prop_assert!(of(moved) <= least + 0.02, "{} {least} {moved}", of(moved));
    }

    #[test]
    fn rows_are_shares_of_the_demand_whatever_is_reported(
        reported in prop::collection::vec(
            (0..40_000_000_u64, 0..20_000_000_u64, 0..9_u64, 0..=1_000_000_u32, 0..40_u32, 0..4_u8),
            1..6,
        ),
        relay in any::<bool>(),
        writes in 0..3_usize,
    ) {
        let mut snapshot = snapshot_of(&vec![0; reported.len()], 5);
        for (site, reported) in reported.iter().enumerate() {
            let &(demand, capacity, backlog, writes_ppm, base, liveness) = reported;
            let report = report(&mut snapshot, site);
            report.demand_per_1000_s = demand;
            report.capacity_per_1000_s = capacity;
            report.backlog_requests = backlog * 100;
            report.writes_ppm = writes_ppm;
            report.paths.iter_mut().flatten().for_each(|path| path.base_rtt_us = base * 1_000 + 1);
            snapshot.sites[site].liveness = match liveness {
                0 => SiteLiveness::Down,
                1 => SiteLiveness::Held,
                _ => SiteLiveness::Fresh,
            };
        }
        let planner = planner_of(reported.len(), |config| {
            config.relay = relay;
            config.writes = [Writes::Redirected, Writes::Everywhere, Writes::Home][writes];
            config.effort.work_max = 20_000_000;
        });
        let plan = planner.plan(&snapshot);
        prop_assert_eq!(&plan, &planner.clone().plan(&snapshot.clone()));
        for site in (0..reported.len()).map(SiteId::new) {
            let row = plan.row(site);
            let unit = plan.unit_per_1000_s;
            let sum: u64 = plan.rates_per_1000_s(site).iter().sum();
            let shed = u64::from(plan.answer.shed[site.index()]) * unit;
            prop_assert!(sum + shed < plan.demand_per_1000_s[site.index()] + unit);
            let moved: u64 = row.rates_per_1000_s.iter().sum();
            prop_assert!(moved < row.demand_per_1000_s + unit);
            let away = moved - row.rates_per_1000_s[site.index()];
            prop_assert!(away <= row.demand_per_1000_s || writes != 2, "more than its reads");
            let remote = row.rates_per_1000_s.iter().enumerate();
            let remote = remote.filter(|(to, rate)| *to != site.index() && **rate > 0);
            for (to, _) in remote {
                prop_assert!(plan.members.contains(site) && plan.members.contains(SiteId::new(to)));
                prop_assert!(reported[to].1 > 0);
            }
        }
    }

    #[test]
    fn a_capacity_is_as_many_servers_as_reported_it(
        servers in 1..10_000_u32,
        writes in 0.0..1.0_f64,
        scale_ppm in 10_000..100_000_000_u32,
    ) {
        let planner = planner_of(2, |_| {});
        let writes_ppm = (writes * 1e6) as u32;
        let writes = Probability::clamped(f64::from(writes_ppm) * 1e-6);
        let mut report = Report::empty(2);
        report.writes_ppm = writes_ppm;
        let site = SiteId::new(1);
        report.learnt = Learnt { scale_ppm, odds_ppm: 2_000_000 };
        let curve = (0, report.learnt);
        report.capacity_per_1000_s = planner.capacity_per_1000_s(site, curve, writes, servers);
        prop_assert_eq!(planner.servers(1, &report), servers);
    }
}
