//! Sites of very different sizes, and profiles that are wrong by any factor.

use super::super::super::demand::{DemandMeter, SiteTally, SplitTally};
use super::super::super::split::SplitWindow;
use super::*;
use evenkeel_core::time::Instant;

/// So many servers that take 1 ms for a request, so many times faster in their profile.
fn profiled(servers: u32, factor: u32) -> SiteCurves {
    let servers = NonZeroU32::new(servers).unwrap();
    let service = Duration::from_millis(1) / factor;
    let objective = Duration::from_millis(30);
    SiteCurves::single(ResponseCurves::markov(objective, servers, service).unwrap())
}

/// Two sites of so many servers, `base_ms` apart, with this demand in requests per 1,000 s.
fn two(servers: [u32; 2], demand: [u64; 2], base_ms: u32) -> (Planner, Snapshot) {
    let curves = servers.map(|servers| profiled(servers, 1)).into();
    let planner = Planner::new(PlannerConfig::new(Duration::from_millis(2_500)), curves).unwrap();
    let mut snapshot = snapshot_of(&[0, 0], base_ms);
    for site in 0..2 {
        let capacity = u64::from(servers[site]) * 1_000_000;
        let report = report(&mut snapshot, site);
        (report.demand_per_1000_s, report.capacity_per_1000_s) = (demand[site], capacity);
        report.in_time_per_1000_s[site] = capacity;
    }
    (planner, snapshot)
}

/// Requests per second that are late at one of two sites, its own and those it is sent.
fn late(servers: u32, own: f64, sent: f64, base_ms: u32) -> (f64, f64) {
    let curves = &profiled(servers, 1).versions[0][0].curves;
    let conditions = Conditions::with_servers(servers);
    let load = Rate::new(own + sent).unwrap();
    let inside = Family::local(curves).miss(Duration::ZERO, load, &conditions).value();
    let base = Duration::from_millis(base_ms.into());
    let outside = Family::new(curves, &Residual::none(), 1).unwrap();
    let outside = outside.miss(base, load, &conditions).value().max(inside);
    (own * inside, sent * outside)
}

#[test]
fn a_site_of_one_server_beside_a_hundred_keeps_what_it_can_serve() {
    for large in [100, 1_000] {
        let (planner, snapshot) = two([1, large], [500_000, u64::from(large) * 500_000], 28);
        let plan = planner.plan(&snapshot);
        assert_eq!(plan.answer.redirected, 0, "beside {large}");
        let quanta = u64::from(plan.problem.demand()[0]);
        assert!(quanta >= QUANTA_MIN / 2, "half of its load is {quanta} quanta");
    }
}

#[test]
fn sites_too_unequal_for_one_plan_are_told() {
    let mut sites = vec![profiled(1, 1), profiled(10, 1)];
    let planner = |sites: &[SiteCurves]| {
        Planner::new(PlannerConfig::new(Duration::from_millis(2_500)), sites.into()).unwrap()
    };
    let coarse = |planner: &Planner| {
        let capacity: Vec<u64> = (0..planner.sites.len())
            .map(|site| planner.profiled_per_1000_s(SiteId::new(site)))
            .collect();
        planner.coarse(&capacity, &capacity)
    };
    assert_eq!(coarse(&planner(&sites)), []);
    sites.push(profiled(5_000, 1));
    assert_eq!(coarse(&planner(&sites)), [(SiteId::new(0), 4)]);
}

#[test]
fn a_profile_that_no_server_can_keep_is_refused_with_its_site() {
    let sites = vec![profiled(10, 1), profiled(10, 1_000_000)];
    let config = PlannerConfig::new(Duration::from_millis(2_500));
    let error = Planner::new(config, sites).unwrap_err();
    assert_eq!(error.site, Some(SiteId::new(1)));
    let words = error.to_string();
    assert!(
        words.contains("1000000000 is out of range, expected at most 10000000 requests/s"),
        "{words}"
    );
}

/// What the second site serves in time of what the first sends it, for 40 epochs, with a profile
/// that promises `factor` times what it serves; in how many of the last 20 it had too much.
fn forty_epochs(factor: u32, growth: Option<u32>) -> (f64, usize) {
    let config = PlannerConfig { growth, ..PlannerConfig::new(Duration::from_millis(2_500)) };
    let planner = Planner::new(config, vec![profiled(10, 1), profiled(10, factor)]).unwrap();
    let (own, most) = ([25_000, 2_000], 9_700);
    let mut meters = [DemandMeter::default(), DemandMeter::default()];
    let nothing = SplitTally {
        workers: vec![SplitWindow::empty(2)],
        by_site: vec![SiteTally::default(); 2],
        ..SplitTally::default()
    };
    let mut tallies = [nothing.clone(), nothing];
    let (mut flooded, mut in_time_sum) = (0, 0.0);
    for epoch in 0..40_u64 {
        let at = Instant::ZERO + Duration::from_millis(2_500) * epoch as u32;
        let mut snapshot = snapshot_of(&own, 5);
        for site in 0..2 {
            let lately = meters[site].note(at, tallies[site].clone(), site);
            let paths = snapshot.sites[site].last.as_ref().unwrap().report.paths.clone();
            let capacity = planner.profiled_per_1000_s(SiteId::new(site));
            let mut measured = lately.report(capacity, (0, Learnt::AS_PROFILED), paths);
            measured.demand_per_1000_s = own[site] * 1_000;
            *report(&mut snapshot, site) = measured;
        }
        let plan = planner.plan(&snapshot);
        let row = plan.row(SiteId::new(0));
        let sent = row.rates_per_1000_s[1] / 1_000;
        assert!(sent * 1_000 <= plan.bound_per_1000_s[1], "{epoch}: {sent}");
        let is_flooded = own[1] + sent > most;
        flooded += usize::from(is_flooded && epoch >= 20);
        let ended = |count: u64, missed: u64| SiteTally { ended: count, missed };
        let of = |count: u64| count * 5 / 2;
        let missed = |count: u64| if is_flooded { count * 9 / 10 } else { 0 };
        tallies[0].by_site[0].add(ended(of(9_000), 0));
        tallies[0].by_site[1].add(ended(of(sent), missed(of(sent))));
        tallies[1].by_site[1].add(ended(of(own[1]), missed(of(own[1]))));
        in_time_sum += (sent - missed(sent)) as f64;
    }
    (in_time_sum / 40.0, flooded)
}

#[test]
fn a_site_whose_profile_is_absurd_is_given_what_it_serves_in_time() {
    let (_, flooded) = forty_epochs(1_000, None);
    assert_eq!(flooded, 20, "with nothing but the profile to go by it drowns");
    let (in_time, flooded) = forty_epochs(1_000, Some(4));
    assert!(flooded <= 2, "{flooded} of 20 epochs");
    assert!(in_time > 1_000.0, "{in_time}/s of 7,700 that there is room for");
    // A profile that is right loses nothing by it.
    let (free, bound) = (forty_epochs(1, None), forty_epochs(1, Some(4)));
    assert_eq!((free.1, bound.1), (0, 0));
    assert!(bound.0 > 0.95 * free.0, "{bound:?} {free:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_small_site_is_no_worse_off_than_alone_beside_one_that_is_well(
        large in 1..1_000_u32,
        busy in 0.05..1.3_f64,
        other in 0.1..0.7_f64,
        base_ms in 1..29_u32,
    ) {
        let demand = [busy * 1e6, other * f64::from(large) * 1e6].map(|demand| demand as u64);
        let (planner, snapshot) = two([1, large], demand, base_ms);
        let plan = planner.plan(&snapshot);
        let per_s = |per_1000_s: u64| per_1000_s as f64 * 1e-3;
        let (own, away) = (per_s(demand[0]), per_s(sent(&plan, 0, 1)));
        let away = away.min(own);
        let received = per_s(sent(&plan, 1, 0));
        let alone = late(1, own, 0.0, base_ms).0;
        let planned = late(1, own - away, received, base_ms).0
            + late(large, per_s(demand[1]), away, base_ms).1;
        let quantum = per_s(plan.unit_per_1000_s);
        prop_assert!(planned <= alone + quantum, "{planned} {alone} {quantum} {plan:?}");
        if alone < 2e-7 * own {
            prop_assert!(away == 0.0, "what is served in time stays: {away} of {own}");
        }
    }

    #[test]
    fn no_site_is_sent_more_than_its_bound(
        servers in prop::collection::vec(1..1_000_u32, 2..6),
        busy in prop::collection::vec(0.0..1.5_f64, 6),
        seen in prop::collection::vec(0.0..1.2_f64, 36),
        factor in prop::collection::vec(1..2_000_u32, 6),
        overload in 0..3_usize,
        relay in any::<bool>(),
    ) {
        let count = servers.len();
        let curves = servers.iter().zip(&factor);
        let curves = curves.map(|(servers, factor)| profiled(*servers, *factor));
        let mut config = PlannerConfig::new(Duration::from_millis(2_500));
        config.overload = [Overload::Capped, Overload::Curve, Overload::Priced(1_000)][overload];
        config.relay = relay;
        config.effort.work_max = 20_000_000;
        let planner = Planner::new(config, curves.collect()).unwrap();
        let mut snapshot = snapshot_of(&vec![0; count], 5);
        for site in 0..count {
            let most = f64::from(servers[site]) * 1e6;
            let report = report(&mut snapshot, site);
            report.demand_per_1000_s = (busy[site] * most) as u64;
            report.capacity_per_1000_s = (f64::from(factor[site]) * most).min(1e12) as u64;
            let served = (0..count).map(|to| (seen[site * 6 + to] * most / 8.0) as u64);
            report.in_time_per_1000_s = served.collect();
        }
        let plan = planner.plan(&snapshot);
        let all: u64 = plan.demand_per_1000_s.iter().sum();
        for to in 0..count {
            let reports = (0..count).filter_map(|from| snapshot.report(SiteId::new(from)));
            let seen: u64 = reports.map(|report| report.in_time_per_1000_s[to]).sum();
            let most = (4 * seen).max(all / 20).max(plan.demand_per_1000_s[to]);
            let inflow = plan.inflow_per_1000_s(SiteId::new(to));
            let load = plan.rates_per_1000_s(SiteId::new(to))[to] + inflow;
            prop_assert!(inflow == 0 || load <= most, "{to}: {load} of {most}: {plan:?}");
        }
    }
}
