//! CPU to a proven redistribution plan, for every family of problems by formula.
//!
//! `cargo bench -p evenkeel-core --bench redirect_families [-- MODES SIZES SEEDS]` asks for the
//! modes (`violations,capped,relay,cost,million` unless said) at these numbers of data centres
//! (`5,8`) over so many seeds (16), at a quantum of 1 %, and prints a line for each family: median
//! and worst CPU time of this thread over the seeds, each the least of three runs, the seed that
//! took longest, units of work, how many are unproven or infeasible, and the widest gaps: of the
//! objective, as a share of all requests, and of the excess, as a share of it. `million` takes
//! what is proven within one request in a million.
//!
//! The bars: 5 ms for 5 data centres, 10 ms for 8, 100 ms for 16 and for 8 that relay, 1 s for 32
//! within one request in a million.

#[path = "../src/tests/instances.rs"]
mod instances;

use evenkeel_geo::{Answer, Effort, Overload, Problem, Question, solve};
use instances::{Family, Instance, instance};
use rustix::time::{ClockId, clock_gettime};

const FAMILIES: [Family; 6] =
    [Family::Hot, Family::Tight, Family::Unequal, Family::Mixed, Family::Down, Family::Overload];
const MODES: &str = "violations,capped,relay,cost,million";
const RUNS: usize = 3;

/// An answer and the milliseconds of CPU it took.
struct Run {
    answer: Answer,
    total: u32,
    cpu_ms: f64,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let word = |place: usize, default: &str| words.get(place).map_or(default, |it| it).to_owned();
    let seeds: u64 = word(2, "16").parse().expect("how many seeds");
    for mode in word(0, MODES).split(',') {
        for sites in word(1, "5,8").split(',') {
            let sites = sites.parse().expect("how many data centres");
            for family in FAMILIES {
                let runs: Vec<Run> =
                    (1..=seeds).map(|seed| run(mode, family, sites, seed)).collect();
                println!("{mode:<10} {sites:>2} {:<9} {}", format!("{family:?}"), line(&runs));
            }
        }
    }
}

fn run(mode: &str, family: Family, sites: usize, seed: u64) -> Run {
    let Instance { demand, curves, rtt_us, capacity } = instance(family, sites, 1, seed);
    let problem = Problem::new(demand, curves).expect("it is sound");
    let problem = problem.with_distances(&rtt_us).expect("it is square");
    let problem = problem.with_saturation(capacity).expect("one for each");
    let violations = Question::violations();
    let question = match mode {
        "violations" => violations,
        "capped" => Question { overload: Overload::Capped, ..violations },
        "relay" => Question { relay: true, ..violations },
        "cost" => Question::cost(&problem, 50_000),
        "million" => {
            let effort = Effort { work_exact: 0, ..Effort::one_in_a_million(&problem) };
            Question { effort, ..violations }
        }
        other => panic!("mode: got `{other}`, expected some of {MODES}"),
    };
    let mut cpu_ms = f64::INFINITY;
    let mut answer = None;
    for _ in 0..RUNS {
        let start = clock_ms();
        answer = Some(solve(&problem, &question).expect("the question fits"));
        cpu_ms = cpu_ms.min(clock_ms() - start);
    }
    Run { answer: answer.expect("it ran"), total: problem.demand_total(), cpu_ms }
}

/// CPU time of this thread.
fn clock_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn line(runs: &[Run]) -> String {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by(|&a, &b| runs[a].cpu_ms.total_cmp(&runs[b].cpu_ms));
    let (median, worst) = (order[order.len() / 2], order[order.len() - 1]);
    let count = |is: fn(&Answer) -> bool| runs.iter().filter(|run| is(&run.answer)).count();
    let widest = |gap: fn(&Run) -> f64| runs.iter().map(gap).fold(0.0, f64::max);
    format!(
        "median {:>8.2} ms, worst {:>8.2} ms (seed {}, {:.1} M work), unproven {}, infeasible {}, \
         gap {:.1e}, excess gap {:.1e}",
        runs[median].cpu_ms,
        runs[worst].cpu_ms,
        worst + 1,
        runs[worst].answer.work as f64 / 1e6,
        count(|answer| !answer.proven),
        count(|answer| answer.excess > 0),
        widest(|Run { answer, total, .. }| {
            let gap = answer.objective - answer.lower_bound;
            if answer.excess > 0 { 0.0 } else { gap as f64 / 1e6 / f64::from(*total) }
        }),
        widest(|Run { answer, .. }| {
            let gap = answer.excess - answer.excess_bound;
            if answer.excess == 0 { 0.0 } else { gap as f64 / answer.excess as f64 }
        }),
    )
}
