//! Ratios, caps and their parts, over any arrivals.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use evenkeel_core::rng::Rng;
use evenkeel_core::time::Duration;

const HOME: SiteId = SiteId::new(0);
const ALL: SiteSet = SiteSet::first(SITES_MAX);

fn plan(epoch: u64, demand: u64, rates: &[u64]) -> PlanRow {
    let per_1000_s = |rate: &u64| rate * 1_000;
    PlanRow {
        epoch,
        origin: HOME,
        demand_per_1000_s: demand * 1_000,
        rates_per_1000_s: rates.iter().map(per_1000_s).collect(),
    }
}

/// A splitter with a plan from time zero on, for ever.
fn splitter(plan: &PlanRow, part: Probability, seed: u64) -> Splitter {
    let sites = plan.rates_per_1000_s.len();
    let mut splitter = Splitter::new(HOME, sites, SplitConfig::default(), seed);
    splitter.adopt(Instant::ZERO, plan, part, Instant::FAR).unwrap();
    splitter
}

/// Times of requests at this rate that come at random, until the end.
fn poisson(rate: f64, until_s: f64, rng: &mut Rng) -> Vec<Instant> {
    let mut time = 0.0;
    let times = core::iter::from_fn(|| {
        time += rng.exponential() / rate;
        (time < until_s).then(|| Instant::from_secs_f64(time))
    });
    times.collect()
}

/// The burst a bucket has, by the formula of the module.
fn burst(rate: f64, share: f64) -> f64 {
    2.0 + 35.0 * share + rate * 1.1 * 0.01
}

fn any_plan() -> impl Strategy<Value = PlanRow> {
    let rate = prop_oneof![Just(0), 0..20_u64, 0..50_000_u64];
    let epoch = 1..1_000_u64;
    (epoch, 0..200_000_u64, vec(rate, 1..12))
        .prop_map(|(epoch, demand, rates)| plan(epoch, demand, &rates))
}

proptest! {
    #[test]
    fn of_any_run_of_requests_every_share_gets_its_part(
        plan in any_plan(), seed in any::<u64>(), skipped in 0..5_000, length in 1..5_000_u64,
    ) {
        let mut splitter = splitter(&plan, Probability::ONE, seed);
        // Slowly: one in a second never meets a cap, unless its rate is that small.
        let mut now = Instant::ZERO;
        let mut wanted = vec![0_u64; plan.rates_per_1000_s.len()];
        for n in 0..skipped + length as i32 {
            now += Duration::from_secs(1);
            let route = splitter.choose(now, ALL);
            let to = match route.because {
                Because::OverCap { wanted } => wanted,
                _ => route.to,
            };
            if n >= skipped {
                wanted[to.index()] += 1;
            }
        }
        for (index, count) in wanted.into_iter().enumerate() {
            let due = plan.share(SiteId::new(index)).value() * length as f64;
            prop_assert!((count as f64 - due).abs() < 4.0, "site {index}: {count}, {due} due");
            prop_assert!(due > 0.0 || count == 0, "site {index} gets what it must not");
        }
    }

    #[test]
    fn no_cap_is_exceeded_in_any_window_beyond_its_burst(
        first in any_plan(),
        factors in vec(0.0..3.0_f64, 5),
        surge in 0.1..10.0_f64,
        seed in any::<u64>(),
    ) {
        // Four plans follow one another, each with its rates scaled.
        let plans: Vec<PlanRow> = factors.iter().enumerate().map(|(n, factor)| PlanRow {
            epoch: first.epoch + n as u64,
            demand_per_1000_s: first.demand_per_1000_s,
            rates_per_1000_s: first.rates_per_1000_s.iter()
                .map(|rate| (*rate as f64 * factor) as u64).collect(),
            ..first
        }).collect();
        let arrivals = (first.whole_per_1000_s() as f64 * 1e-3 * surge).clamp(1.0, 10_000.0);
        let mut rng = Rng::seeded(seed);
        let mut splitter = splitter(&plans[0], Probability::ONE, seed);
        let mut sent: Vec<Vec<f64>> = vec![Vec::new(); first.rates_per_1000_s.len()];
        let mut in_force = 0;
        for now in poisson(arrivals, 1.0, &mut rng) {
            let due = ((now.as_secs_f64() * 5.0) as usize).min(4);
            if due > in_force {
                in_force = due;
                let at = Instant::from_millis(200 * due as u64);
                splitter.adopt(at, &plans[due], Probability::ONE, Instant::FAR).unwrap();
            }
            let route = splitter.choose(now, ALL);
            sent[route.to.index()].push(now.as_secs_f64());
        }
        for (index, times) in sent.iter().enumerate().skip(1) {
            let to = SiteId::new(index);
            let rate = |plan: &PlanRow| plan.rates_per_1000_s[index] as f64 * 1e-3;
            let burst_max = plans.iter().map(|plan| burst(rate(plan), plan.share(to).value()));
            let burst_max = burst_max.fold(0.0, f64::max);
            // What the caps allow until a time, so that windows are differences.
            let allowed = |time: f64| {
                let part = |(n, plan)| rate(plan) * 1.1 * (time - 0.2 * n as f64).clamp(0.0, 0.2);
                plans.iter().enumerate().map(part).sum::<f64>()
            };
            // The largest excess of any window is that of the best beginning before each end.
            let mut least = f64::INFINITY;
            for (before, time) in times.iter().enumerate() {
                least = least.min(before as f64 - allowed(*time));
                let excess = before as f64 + 1.0 - allowed(*time) - least;
                prop_assert!(excess <= burst_max + 1e-3, "site {index}: {excess} > {burst_max}");
            }
        }
    }

    #[test]
    fn parts_are_one_and_caps_of_all_proxies_are_the_cap(
        arrived in vec(prop_oneof![Just(0), 0..1_000_000_000_u64], 1..64),
    ) {
        let parts = parts(&arrived);
        let sum: f64 = parts.iter().map(|part| part.value()).sum();
        prop_assert!((sum - 1.0).abs() < 1e-9, "{sum}");
        prop_assert!(parts.iter().all(|part| part.value() > 0.0), "none is shut out: {parts:?}");
    }

    #[test]
    fn many_proxies_enforce_together_what_was_planned(
        weights in vec(1..20_u64, 2..24), rate in 20..4_000_u64, seed in any::<u64>(),
    ) {
        // A tenth of 10 × rate; each proxy gets requests by its weight, all under the cap.
        let plan = plan(1, rate * 10, &[rate * 9, rate]);
        let sum: u64 = weights.iter().sum();
        let mut rng = Rng::seeded(seed);
        let mut window = SplitWindow::empty(2);
        for (index, (weight, part)) in weights.iter().zip(parts(&weights)).enumerate() {
            let mut splitter = splitter(&plan, part, index as u64);
            let mine = (rate * 10 * weight) as f64 / sum as f64;
            for now in poisson(mine, 2.5, &mut rng) {
                let _ = splitter.choose(now, ALL);
            }
            window.merge(&splitter.window());
        }
        let slack = SplitConfig::default().slack;
        let enforced = enforced(&plan, slack, Duration::from_millis(2_500), &window)[0];
        // Each proxy is off by its own error at most; not every one by all of it.
        prop_assert!(enforced.error().abs() < 3.0 * weights.len() as f64, "{enforced:?}");
        let bursts = weights.len() as f64 * burst(0.0, 0.1) + rate as f64 * 0.011;
        let cap = 1.1 * enforced.planned + bursts;
        prop_assert!(enforced.sent as f64 <= cap, "{enforced:?}");
    }
}

#[test]
fn the_ratio_follows_demand_down_and_the_cap_stops_it_going_up() {
    let plan = plan(1, 1_000, &[700, 300, 0]);
    for (rate, expected) in [(250.0, 75.0), (500.0, 150.0), (1_000.0, 300.0), (4_000.0, 330.0)] {
        let mut splitter = splitter(&plan, Probability::ONE, 3);
        for now in poisson(rate, 60.0, &mut Rng::seeded(8)) {
            let _ = splitter.choose(now, ALL);
        }
        let window = splitter.window();
        let per_s = window.by_site[1].sent as f64 / 60.0;
        // Arrivals: Poisson(60 · rate), five standard deviations of the redirected ones.
        let noise = 5.0 * (rate / 60.0_f64).sqrt() * 0.3 + 0.3;
        assert!((per_s - expected).abs() < noise, "{per_s} of {rate} requests/s");
        assert_eq!(window.by_site[2], DestinationCounts::default(), "a rate of zero gets nothing");
        let sum: u64 = window.by_site.iter().map(|counts| counts.sent).sum();
        assert_eq!(window.arrived, sum);
    }
}

#[test]
fn requests_that_are_all_sent_are_seldom_stopped_by_chance() {
    for rate in [10_u64, 100, 5_000] {
        let mut splitter = splitter(&plan(1, rate, &[0, rate]), Probability::ONE, 1);
        for now in poisson(rate as f64, 300_000.0 / rate as f64, &mut Rng::seeded(rate)) {
            let _ = splitter.choose(now, ALL);
        }
        let window = splitter.window();
        let stopped = window.by_site[1].over_cap as f64 / window.arrived as f64;
        assert!(stopped < 1.5e-3, "{stopped} at {rate} requests/s");
    }
}

#[test]
fn what_nobody_can_serve_stays_local_and_rates_beyond_the_demand_are_scaled() {
    let shares = |plan: &PlanRow| [0, 1, 2].map(|index| plan.share(SiteId::new(index)).value());
    assert_eq!(shares(&plan(1, 1_000, &[500, 200, 100])), [0.7, 0.2, 0.1]);
    assert_eq!(shares(&plan(1, 500, &[500, 250, 250])), [0.5, 0.25, 0.25]);
    assert_eq!(shares(&plan(1, 0, &[0, 0, 0])), [0.0; 3]);
}

#[test]
fn without_a_plan_or_with_a_stale_one_all_is_local() {
    let mut splitter = Splitter::new(HOME, 2, SplitConfig::default(), 1);
    let at = Instant::from_millis;
    let local = |because| Route { to: HOME, because };
    assert_eq!(splitter.choose(at(1), ALL), local(Because::NoPlan));
    let everything = plan(7, 100, &[0, 100]);
    splitter.adopt(at(2), &everything, Probability::ONE, at(5_002)).unwrap();
    assert_eq!(splitter.choose(at(5_001), ALL).to, SiteId::new(1));
    assert_eq!(splitter.choose(at(5_002), ALL), local(Because::Stale));
    assert_eq!((splitter.epoch(at(5_001)), splitter.epoch(at(5_002))), (Some(7), None));
    let window = splitter.window();
    assert_eq!((window.no_plan, window.stale, window.arrived), (1, 1, 3));
    // A stale one may be followed by any: the clock may have been set back.
    let earlier = plan(3, 100, &[0, 100]);
    assert_eq!(splitter.adopt(at(5_003), &earlier, Probability::ONE, at(9_000)), Ok(()));
}

#[test]
fn a_destination_without_healthy_replicas_is_left_out_and_reported() {
    let mut splitter = splitter(&plan(1, 100, &[0, 50, 50]), Probability::ONE, 1);
    let usable = SiteSet::from_iter([HOME, SiteId::new(2)]);
    for n in 1..=100 {
        let route = splitter.choose(Instant::from_millis(10 * n), usable);
        assert_ne!(route.to, SiteId::new(1));
    }
    let window = splitter.window();
    let unhealthy = window.by_site[1].unhealthy;
    assert!((48..=52).contains(&unhealthy), "{window:?}");
    assert_eq!(window.by_site[0].sent, unhealthy);
}

#[test]
fn a_plan_that_is_not_one_is_refused_and_the_old_one_stays() {
    let mut splitter = splitter(&plan(5, 100, &[0, 100]), Probability::ONE, 1);
    let mut adopt =
        |plan: &PlanRow| splitter.adopt(Instant::ZERO, plan, Probability::ONE, Instant::FAR);
    let not_newer = Err(Unadopted::NotNewer { came: 5, in_force: 5 });
    assert_eq!(adopt(&plan(5, 100, &[100, 0])), not_newer);
    let other = PlanRow { origin: SiteId::new(1), ..plan(6, 100, &[100, 0]) };
    assert_eq!(adopt(&other), Err(Unadopted::OtherOrigin { came: SiteId::new(1) }));
    for rates in [vec![1], vec![1, 2, 3], vec![0, u64::MAX]] {
        let bad = PlanRow { rates_per_1000_s: rates, ..plan(6, 100, &[100, 0]) };
        let error = adopt(&bad).unwrap_err();
        assert!(matches!(error, Unadopted::Range(_)), "{error}");
    }
    assert_eq!(splitter.choose(Instant::from_millis(1), ALL).to, SiteId::new(1));
}

#[test]
fn demand_that_moves_between_proxies_is_what_dividing_costs() {
    // Halves were measured, but one proxy gets three quarters: 75 · 0.2 of 55 · 0.2 allowed.
    let plan = plan(1, 1_000, &[800, 200]);
    let mut window = SplitWindow::empty(2);
    for (rate, part) in [750.0, 250.0].into_iter().zip(parts(&[500, 500])) {
        let mut splitter = splitter(&plan, part, 2);
        for now in poisson(rate, 20.0, &mut Rng::seeded(4)) {
            let _ = splitter.choose(now, ALL);
        }
        window.merge(&splitter.window());
    }
    let slack = SplitConfig::default().slack;
    let enforced = enforced(&plan, slack, Duration::from_secs(20), &window)[0];
    // 150/s wanted, 110/s allowed, 20 s.
    assert!((enforced.over_cap as f64 - 800.0).abs() < 100.0, "{enforced:?}");
    assert_eq!(enforced.divided, enforced.over_cap as f64, "together there was room: {enforced:?}");
}

/// A coin, the golden ratio and smooth weighted round robin, with the same shares.
struct Ways {
    shares: [f64; 4],
    rng: Rng,
    golden: Splitter,
    credits: [f64; 4],
}

impl Ways {
    fn new(percents: [u64; 4]) -> Self {
        Self {
            shares: percents.map(|percent| percent as f64 / 100.0),
            rng: Rng::seeded(6),
            golden: splitter(&plan(1, 100, &percents), Probability::ONE, 6),
            credits: [0.0; 4],
        }
    }

    /// The destination of one request, each way.
    fn choose(&mut self) -> [usize; 3] {
        let mut unit = self.rng.unit();
        let is_in = |share: &f64| {
            unit -= share;
            unit < 0.0
        };
        let coin = self.shares.iter().position(is_in).unwrap_or(3);
        let route = self.golden.choose(Instant::ZERO, ALL);
        let golden = match route.because {
            Because::OverCap { wanted } => wanted,
            _ => route.to,
        };
        self.credits.iter_mut().zip(self.shares).for_each(|(credit, share)| *credit += share);
        let credits = self.credits;
        let richest = (0..4).max_by(|a, b| credits[*a].total_cmp(&credits[*b])).unwrap();
        self.credits[richest] -= 1.0;
        [coin, golden.index(), richest]
    }
}

/// Error of three ways to choose, in requests of an epoch: the table of the module's docs.
#[test]
fn the_golden_ratio_is_nearer_to_the_plan_than_a_coin() {
    const EPOCHS: usize = 500;
    let mut ways = Ways::new([82, 11, 5, 2]);
    let mut rng = Rng::seeded(7);
    let mut errors = [const { Vec::new() }; 3];
    for _ in 0..EPOCHS {
        let requests = rng.poisson(2_500.0);
        let mut counts = [0_u32; 3];
        for _ in 0..requests {
            for (count, to) in counts.iter_mut().zip(ways.choose()) {
                *count += u32::from(to == 1);
            }
        }
        for (errors, count) in errors.iter_mut().zip(counts) {
            errors.push((f64::from(count) - 0.11 * requests as f64).abs());
        }
    }
    let worst = |errors: &[f64]| errors.iter().copied().fold(0.0, f64::max);
    let deviation = |errors: &[f64]| {
        (errors.iter().map(|error| error * error).sum::<f64>() / EPOCHS as f64).sqrt()
    };
    for (name, errors) in ["coin", "golden ratio", "weighted round robin"].iter().zip(&errors) {
        println!("{name}: {:.2}, worst {:.2}", deviation(errors), worst(errors));
    }
    // The coin's is sqrt(2,500 · 0.11 · 0.89) = 15.6.
    assert!((deviation(&errors[0]) - 15.6).abs() < 2.0);
    assert!(deviation(&errors[1]) < 1.0 && worst(&errors[1]) < 2.5);
}

/// Requests of which every n-th is alike: how evenly these are spread.
#[test]
fn a_rhythm_in_the_requests_does_not_meet_one_in_the_choice() {
    let worst = (1..=100_usize).map(|n| {
        let mut ways = Ways::new([70, 30, 0, 0]);
        let mut remote = [0.0; 3];
        for request in 0..1_000 * n {
            for (remote, to) in remote.iter_mut().zip(ways.choose()) {
                *remote += f64::from(u8::from(request.is_multiple_of(n) && to == 1));
            }
        }
        remote.map(|remote: f64| (remote - 300.0).abs())
    });
    let worst =
        worst.fold([0.0; 3], |worst, error| [0, 1, 2].map(|way| error[way].max(worst[way])));
    println!("worst errors of 300: {worst:?}");
    // A coin: sqrt(1,000 · 0.3 · 0.7) = 14.5, and at worst of a hundred tries 2.6 times that.
    assert!(worst[1] < 40.0, "{worst:?}");
    assert!(worst[2] > 250.0, "why round robin is not what is used: {worst:?}");
}

#[test]
fn writes_that_stay_are_counted_and_leave_reads_their_shares() {
    // The plan is of reads: half of them go away.
    let row = plan(1, 1_000, &[500, 500]);
    let config = SplitConfig { writes_stay: true, ..SplitConfig::default() };
    let mut splitter = Splitter::new(HOME, 2, config, 3);
    assert_eq!(splitter.choose_write(Instant::ZERO, ALL).because, Because::NoPlan);
    splitter.adopt(Instant::ZERO, &row, Probability::ONE, Instant::FAR).unwrap();
    for n in 1..=1_000_u64 {
        let now = Instant::from_millis(10 * n);
        let kept = splitter.choose_write(now, ALL);
        assert_eq!((kept.to, kept.because), (HOME, Because::Write));
        let _ = splitter.choose(now, ALL);
    }
    let window = splitter.window();
    assert_eq!((window.arrived, window.writes, window.writes_kept), (2_001, 1_001, 1_000));
    assert!(window.by_site[1].sent.abs_diff(500) <= 4, "{window:?}");
    let slack = SplitConfig::default().slack;
    let became = enforced(&row, slack, Duration::from_secs(10), &window);
    assert_eq!(became[0].due, 500.0, "of the reads that came under the plan");
}

#[test]
fn writes_go_where_reads_go_unless_they_stay() {
    let mut splitter = splitter(&plan(1, 100, &[0, 100]), Probability::ONE, 5);
    assert_eq!(splitter.choose_write(Instant::from_millis(1), ALL).to, SiteId::new(1));
    assert_eq!(splitter.window().writes, 1);
}

#[test]
fn what_home_cannot_serve_goes_where_the_plan_or_others_have_room_and_no_further() {
    let half = Probability::clamped(0.5);
    // The plan sends 100/s away to the first; 400/s and 100/s could be served beyond it.
    let plan = plan(1, 1_000, &[900, 100, 0]);
    let mut splitter = splitter(&plan, half, 5);
    let spare = [0, 400_000, 100_000];
    splitter.set_spare(Instant::ZERO, &spare, half);
    let mut failed_over = [0_u64; 3];
    // Ten seconds of 1,000/s, all of which home would have to serve.
    let times = 10_000;
    for n in 0..times {
        let now = Instant::from_millis(n);
        if let Some(to) = splitter.failover(now, ALL) {
            failed_over[to.index()] += 1;
        }
    }
    let window = splitter.window();
    assert_eq!(
        window.by_site.iter().map(|counts| counts.failed_over).collect::<Vec<_>>(),
        failed_over
    );
    assert_eq!((window.arrived, window.by_site[1].sent), (0, 0), "choosing is counted elsewhere");
    // Half of the site's cap of 110/s, and half of what is spared; bursts by the formula of the
    // module, with a slack for the site only.
    let counts = 55.0 * 10.0 + burst(50.0, 0.1);
    let spared = |per_s: f64, share: f64| per_s * 10.0 + 2.0 + 35.0 * share + per_s * 0.01;
    for (to, most) in [(1, counts + spared(200.0, 0.8)), (2, spared(50.0, 0.2))] {
        let came = failed_over[to] as f64;
        assert!(came <= most && came > 0.95 * most, "{to}: {came} of {most}");
    }
    assert_eq!(failed_over[0], 0);
}

#[test]
fn nobody_is_rescued_without_a_plan_in_force_or_a_site_that_is_usable() {
    let sites = |of: &[usize]| {
        let mut set = SiteSet::EMPTY;
        of.iter().for_each(|site| set.insert(SiteId::new(*site)));
        set
    };
    let mut splitter = Splitter::new(HOME, 3, SplitConfig::default(), 1);
    let at = Instant::from_millis;
    splitter.set_spare(at(0), &[9_000_000; 3], Probability::ONE);
    assert_eq!(splitter.failover(at(0), ALL), None, "no plan");
    splitter.adopt(at(0), &plan(1, 100, &[100, 0, 0]), Probability::ONE, at(1_000)).unwrap();
    assert_eq!(splitter.failover(at(10), ALL), None, "nothing is said of what is spared");
    splitter.set_spare(at(10), &[9_000_000; 5], Probability::ONE);
    let reached: Vec<_> = (20..520).filter_map(|ms| splitter.failover(at(ms), ALL)).collect();
    let to_second = reached.iter().filter(|to| to.index() == 2).count();
    assert_eq!(reached.len(), 500);
    assert!(to_second.abs_diff(250) <= 4, "in proportion: {to_second}");
    assert_eq!(splitter.failover(at(600), sites(&[2])), Some(SiteId::new(2)));
    assert_eq!(splitter.failover(at(600), sites(&[0])), None, "home is no rescue");
    assert_eq!(splitter.failover(at(1_000), ALL), None, "the plan is too old");
    // A new plan forgets what could be spared under the old one.
    splitter.adopt(at(1_000), &plan(2, 100, &[100, 0, 0]), Probability::ONE, at(9_000)).unwrap();
    assert_eq!(splitter.failover(at(1_001), ALL), None);
}
