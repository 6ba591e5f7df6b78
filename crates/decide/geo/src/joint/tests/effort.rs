//! What a plan of eight data centres takes, and what is lost by taking no more.

use rustix::time::{ClockId, clock_gettime};

use super::*;

/// The default quantum, in percent.
const QUANTUM: u32 = 1;

fn eight(family: Family, seed: u64) -> (Problem, Hedged) {
    let instance = instance(family, 8, QUANTUM, seed);
    let problem = Problem::new(instance.demand, instance.curves).unwrap();
    let problem = problem.with_distances(&instance.rtt_us).unwrap();
    let problem = problem.with_saturation(instance.capacity).unwrap();
    let hedged = hedged(&problem);
    (problem, hedged)
}

/// The same with every dimmer tried at every load.
fn tried(joint: &Joint, problem: &Problem) -> Joint {
    let (pricing, sites) = (joint.pricing.clone(), 0..problem.sites());
    let states = |site: usize| -> Vec<State> {
        let state = |load| pricing.cheapest(site, load, &users(problem, site, load));
        (0..=problem.demand_total() + 1).map(state).collect()
    };
    let states: Vec<Vec<State>> = sites.clone().map(states).collect();
    let row = |from| sites.clone().map(|to| pricing.curve(from, to, &states[to])).collect();
    let priced = problem.clone().with_costs(sites.clone().map(row).collect()).unwrap();
    Joint { priced, states, pricing }
}

/// Nanoseconds of CPU that a unit of the search and the price of a state take at most, where
/// `eight_data_centres_take_ten_milliseconds` was measured.
const WORK_NS: u64 = 1;
const PRICE_NS: u64 = 20;

/// The bar is ten milliseconds of CPU. What is counted is the same on every machine. The last three
/// were the longest searches of 240.
#[test]
fn eight_data_centres_with_hedges_are_planned_within_the_effort() {
    let some = (1..=2).flat_map(|seed| FAMILIES.map(|family| (seed, family)));
    let long = [(35, Family::Mixed), (11, Family::Down), (15, Family::Tight)];
    for (seed, family) in some.chain(long) {
        let (problem, hedged) = eight(family, seed);
        let before = PRICED.get();
        let joint = joint(&problem, Some(&hedged), &Prices::default());
        let planned = joint.plan(joint.effort()).unwrap();
        let (work, priced) = (planned.answer.work, PRICED.get() - before);
        let nanos = work * WORK_NS + priced * PRICE_NS;
        assert!(nanos < 10_000_000, "{family:?} {seed}: {work} of the search, {priced} prices");
    }
}

/// `cargo test -p evenkeel-geo --profile dist ten_milliseconds -- --ignored --nocapture` prints
/// CPU times of this thread, the best of three, and what is lost against a search of everything.
#[test]
#[ignore = "measures CPU time, with optimisation"]
fn eight_data_centres_take_ten_milliseconds() {
    let cpu_ms = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 * 1e-6
    };
    let (mut times, mut losses) = (Vec::new(), Vec::new());
    for (seed, family) in (1..=40).flat_map(|seed| FAMILIES.map(|family| (seed, family))) {
        let (problem, hedged) = eight(family, seed);
        let one = || {
            let began = cpu_ms();
            let joint = joint(&problem, Some(&hedged), &Prices::default());
            let made = cpu_ms();
            let planned = joint.plan(joint.effort()).unwrap();
            (cpu_ms() - began, made - began, planned, joint)
        };
        let all = [one(), one(), one()];
        let [.., (_, _, planned, joint)] = &all;
        let least = |of: &dyn Fn(usize) -> f64| (0..3).map(of).fold(f64::INFINITY, f64::min);
        let everything = Effort { work_max: 100_000_000, work_exact: 100_000_000, tolerance: 0 };
        let best = tried(joint, &problem).plan(everything).unwrap();
        let place = format!("{family:?} {seed}");
        losses.push((planned.cost as f64 / best.cost as f64 - 1.0, place.clone()));
        times.push((least(&|n| all[n].0), least(&|n| all[n].1), planned.answer.work, place));
    }
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    losses.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (n, mean) = (times.len(), |sum: f64| sum / 240.0);
    let at = |part: usize| &times[n * part / 100];
    eprintln!("ms of CPU: median {:.1}, p90 {:.1}, most {:?}", at(50).0, at(90).0, &times[n - 5..]);
    eprintln!("of these for curves by price: mean {:.2}", mean(times.iter().map(|it| it.1).sum()));
    let sum = losses.iter().map(|it| it.0).sum();
    eprintln!("loss: mean {:.6}, most {:?}", mean(sum), &losses[n - 5..]);
    assert!(times[n - 1].0 < 10.0, "{:?}", times[n - 1]);
    assert!(losses[n - 1].0 < 0.001, "{:?}", losses[n - 1]);
}
