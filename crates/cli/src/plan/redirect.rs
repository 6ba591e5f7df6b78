//! `evenkeel plan redirect`: who sends how much to whom.

use std::path::PathBuf;
use std::process::ExitCode;

use evenkeel_core::site::redirect::{
    ALL_PPM, Answer, Effort, Objective, Overload, Problem, Question, Status, solve,
};
use serde::Serialize;

use super::instance::{self, Instance};
use crate::terminal::Table;

/// Share load between data centres: who sends how much to whom?
///
/// INPUT is a JSON object with `demand` in quanta and `curves_ppm`: parts per million that miss the
/// objective, by origin, destination and load. `target_ppm` is needed for `--objective cost`;
/// `capacity_rps` with `quantum_rps`, or `saturation` in quanta, for `--cap-at-saturation` (what is
/// served is in time only if saturation is set where it still is). Optional: `rtt_ms`, `prices`,
/// `limits`, `weights`.
///
/// Example: evenkeel plan redirect instance.json --objective cost --json
#[derive(Debug, clap::Args)]
pub(crate) struct RedirectArguments {
    /// The instance's file.
    input: PathBuf,
    /// What is to be small: requests that miss the objective, or the cost of redirecting while
    /// every data centre keeps its target.
    #[arg(long, value_enum, default_value_t = Aim::Violations)]
    objective: Aim,
    /// Let data centres send requests away while they serve others'.
    #[arg(long)]
    relay: bool,
    /// End loads at saturation and shed what nobody can serve, from all in equal shares.
    #[arg(long)]
    cap_at_saturation: bool,
    /// Count each quantum beyond saturation as so many parts per million more violations there.
    #[arg(long, value_name = "PPM", conflicts_with = "cap_at_saturation")]
    overload_price: Option<u32>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Aim {
    Violations,
    Cost,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    objective: u64,
    lower_bound: u64,
    proven: bool,
    status: &'static str,
    rates: &'a [Vec<u32>],
    loads: &'a [u32],
    shed: &'a [u32],
    redirected: u32,
    violation_fraction: f64,
    all_local_violation_fraction: f64,
    excess: u64,
    excess_lower_bound: u64,
    cpu_ms: f64,
}

pub(crate) fn run(arguments: &RedirectArguments) -> anyhow::Result<ExitCode> {
    let instance = instance::load(&arguments.input)?;
    let name = arguments.input.display();
    let refuse = |error| anyhow::anyhow!("{name}: {error}");
    let question = question(arguments, &instance).map_err(refuse)?;
    let start = cpu_time::ThreadTime::now();
    let answer = solve(&instance.problem, &question).map_err(refuse)?;
    let cpu_ms = 1e3 * start.elapsed().as_secs_f64();
    if arguments.json {
        let document = document(&instance.problem, &answer, cpu_ms);
        println!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        print!("{}", table(&instance.problem, &answer));
        println!("\n{}", summary(&instance.problem, &question, &answer, cpu_ms));
    }
    Ok(ExitCode::SUCCESS)
}

type Refused = evenkeel_core::site::redirect::ProblemError;

fn question(arguments: &RedirectArguments, instance: &Instance) -> Result<Question, Refused> {
    let (objective, effort) = match arguments.objective {
        Aim::Violations => (Objective::Violations, Effort::one_in_a_million(&instance.problem)),
        Aim::Cost => (instance.cost()?, Effort::default()),
    };
    let overload = match arguments.overload_price {
        Some(ppm) => Overload::Priced(ppm),
        None if arguments.cap_at_saturation => Overload::Capped,
        None => Overload::Curve,
    };
    let has_saturation = instance.problem.saturation().iter().any(|&load| load < u32::MAX);
    if overload != Overload::Curve && !has_saturation {
        return Err(Refused {
            place: "saturation".to_owned(),
            came: "nothing".to_owned(),
            expected: "quanta for each data centre, or capacity_rps and quantum_rps".to_owned(),
        });
    }
    Ok(Question { objective, relay: arguments.relay, overload, effort })
}

fn document<'a>(problem: &Problem, answer: &'a Answer, cpu_ms: f64) -> Document<'a> {
    Document {
        objective: answer.objective,
        lower_bound: answer.lower_bound,
        proven: answer.proven,
        status: match answer.status {
            Status::Optimal => "optimal",
            Status::Bounded => "bounded",
            Status::Infeasible => "infeasible",
        },
        rates: &answer.rates,
        loads: &answer.loads,
        shed: &answer.shed,
        redirected: answer.redirected,
        violation_fraction: answer.violation_fraction(problem),
        all_local_violation_fraction: all_local(problem),
        excess: answer.excess,
        excess_lower_bound: answer.excess_bound,
        cpu_ms,
    }
}

fn table(problem: &Problem, answer: &Answer) -> Table {
    let has_shed = answer.shed.iter().any(|&quanta| quanta > 0);
    let mut header = vec!["data centre", "demand", "load", "saturation", "late if local", "late"];
    header.extend(has_shed.then_some("shed"));
    header.push("sends");
    let mut table = Table::new(&header);
    for site in 0..problem.sites() {
        let demand = problem.demand()[site];
        let saturation = match problem.saturation()[site] {
            u32::MAX => "-".to_owned(),
            load => load.to_string(),
        };
        let mut cells = vec![
            site.to_string(),
            demand.to_string(),
            answer.loads[site].to_string(),
            saturation,
            percent(violations_if_local(problem, site), demand),
            percent(violations(problem, answer, site), demand),
        ];
        cells.extend(has_shed.then(|| answer.shed[site].to_string()));
        cells.push(sends(&answer.rates[site], site));
        table.row(cells);
    }
    table
}

/// `3 to 1, 14 to 2`
fn sends(row: &[u32], site: usize) -> String {
    let away = row.iter().enumerate().filter(|&(to, &quanta)| to != site && quanta > 0);
    let parts: Vec<String> = away.map(|(to, quanta)| format!("{quanta} to {to}")).collect();
    parts.join(", ")
}

fn violations_if_local(problem: &Problem, site: usize) -> u64 {
    let demand = problem.demand()[site];
    u64::from(demand) * u64::from(problem.violation_ppm(site, site, demand))
}

/// Of the requests that arrive at a data centre, shed ones included.
fn violations(problem: &Problem, answer: &Answer, site: usize) -> u64 {
    let at = |(to, &quanta): (usize, &u32)| {
        u64::from(quanta) * u64::from(problem.violation_ppm(site, to, answer.loads[to]))
    };
    let served: u64 = answer.rates[site].iter().enumerate().map(at).sum();
    served + u64::from(ALL_PPM) * u64::from(answer.shed[site])
}

fn all_local(problem: &Problem) -> f64 {
    let violations: u64 = (0..problem.sites()).map(|site| violations_if_local(problem, site)).sum();
    share(violations, problem.demand_total())
}

fn share(violations: u64, demand: u32) -> f64 {
    if demand == 0 { 0.0 } else { violations as f64 / f64::from(ALL_PPM) / f64::from(demand) }
}

fn percent(violations: u64, demand: u32) -> String {
    format!("{:.3} %", 100.0 * share(violations, demand))
}

fn summary(problem: &Problem, question: &Question, answer: &Answer, cpu_ms: f64) -> String {
    let late = 100.0 * answer.violation_fraction(problem);
    let local = 100.0 * all_local(problem);
    let (redirected, all) = (answer.redirected, problem.demand_total());
    let shed: u32 = answer.shed.iter().sum();
    let shed = if shed > 0 { format!(", {shed} shed") } else { String::new() };
    let verdict = match (answer.status, &question.objective) {
        (Status::Optimal, Objective::Violations) => "no allocation has fewer".to_owned(),
        (Status::Optimal, Objective::Cost(_)) => {
            "no cheaper allocation keeps the target".to_owned()
        }
        (Status::Bounded, _) => {
            format!("objective {}, none is below {}", answer.objective, answer.lower_bound)
        }
        (Status::Infeasible, _) => format!(
            "no allocation found keeps the target: {:.3} % of requests beyond it, at least {:.3} % \
             in any (is it time to scale out?)",
            100.0 * share(answer.excess, all),
            100.0 * share(answer.excess_bound, all)
        ),
    };
    format!(
        "late: {late:.4} % of requests, {local:.4} % if all stay local; {redirected} of {all} \
         quanta redirected{shed}\n{verdict} ({cpu_ms:.1} ms of CPU)"
    )
}

#[cfg(test)]
mod tests;
