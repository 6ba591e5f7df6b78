//! `evenkeel plan redirect`: who sends how much to whom.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::joint::Prices;
use evenkeel_geo::planner::QUANTA_MIN;
use evenkeel_geo::split::{Flow, Predicted};
use evenkeel_geo::{
    ALL_PPM, Answer, Effort, Objective, Overload, Problem, Question, Status, Target, solve,
};
use serde::Serialize;

use super::instance::{self, Instance};
use super::page::View;
use super::priced::{self, Priceable};
use super::snapshot::{self, Wish};
use super::violations::{percent, share, violations, violations_if_local};
use crate::output;
use crate::terminal::Table;

/// Compute how much load each data centre sends to each other one.
///
/// INPUT is a JSON object with `demand` in quanta and `curves_ppm`: parts per million of late
/// requests, by origin, destination and load. `--objective cost` needs `target_ppm`;
/// `--cap-at-saturation` needs `capacity_rps` with `quantum_rps`, or `saturation` in quanta
/// (requests are in time only if they are at this load). Optional: `rtt_ms`, `prices`, `limits`,
/// `weights`.
///
/// Or INPUT is a TOML file with sites, their demand, servers and profiles, the round trips between
/// them and the objective; see plans/three-sites.toml. Loads then always end before saturation,
/// unless overload has a price. Both formats: docs/plan-redirect.md.
///
/// Example: evenkeel plan redirect plans/three-sites.toml --html plan.html
#[derive(Debug, clap::Args)]
pub(crate) struct RedirectArguments {
    /// The input file.
    input: PathBuf,
    /// What to minimise: late requests, or the cost of redirects while every data centre keeps its
    /// target.
    #[arg(long, value_enum, default_value_t = Aim::Violations)]
    objective: Aim,
    /// Let a data centre send requests away while it serves requests of others.
    #[arg(long)]
    relay: bool,
    /// Limit loads to those at which most requests are in time, below saturation; each data centre
    /// sheds what is left of its own.
    #[arg(long)]
    cap_at_saturation: bool,
    /// Count each quantum beyond saturation as this many ppm more violations there.
    #[arg(long, value_name = "PPM", conflicts_with = "cap_at_saturation")]
    overload_price: Option<u32>,
    /// Redirect, dim or hedge by price, in late requests: optional content that is left out, a
    /// redirected request, a node for a second. Unnamed prices are those of the example. A site
    /// may relay. Needs the work of requests with and without optional content (`work` and `lean`
    /// of a site, `work_ms` in JSON); otherwise nothing is dimmed.
    ///
    /// Example: --price optional=0.1,wan=0.015,node=0.35
    #[arg(
        long,
        value_name = "NAME=PRICE,…",
        value_parser = priced::prices,
        conflicts_with_all = ["objective", "relay", "cap_at_saturation", "overload_price", "html"],
    )]
    price: Option<Prices>,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Write the plan as a page to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
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

/// A plan and what it answers.
struct Planned {
    instance: Instance,
    question: Question,
    answer: Answer,
    /// The largest flow first.
    sentences: Vec<String>,
    cpu_ms: f64,
}

pub(crate) fn run(arguments: &RedirectArguments) -> anyhow::Result<ExitCode> {
    let is_toml = arguments.input.extension().is_some_and(|end| end == "toml");
    if let Some(prices) = &arguments.price {
        priced::run(&priceable(arguments, is_toml)?, prices, arguments.json)
            .with_context(|| arguments.input.display().to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    let planned = if is_toml { of_sites(arguments)? } else { of_curves(arguments)? };
    let Planned { instance, question, answer, sentences, cpu_ms } = planned;
    let summary = summary(&instance.problem, &question, &answer);
    if let Some(path) = &arguments.html {
        let name = arguments.input.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let view = View {
            title: instance.title.as_ref().unwrap_or(&name),
            names: &instance.names,
            problem: &instance.problem,
            answer: &answer,
            quantum_rps: instance.quantum_rps,
            summary: summary.clone(),
            sentences,
            facts: facts(&question, &answer, cpu_ms),
        };
        std::fs::write(path, view.page())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if arguments.json {
        let document = document(&instance.problem, &answer, cpu_ms);
        output::json(&document)?;
    } else {
        output::text!("{}", table(&instance, &answer))?;
        output::line!("\n{summary} ({cpu_ms:.1} ms of CPU)")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What prices need, from either kind of file.
fn priceable(arguments: &RedirectArguments, is_toml: bool) -> anyhow::Result<Priceable> {
    if is_toml {
        let wish = Wish { by_cost: false, relay: true, overload_price: None };
        let snapshot::Planned { names, services, coarse, plan, .. } =
            snapshot::plan(&arguments.input, wish)?;
        warn_of(coarse);
        return Ok(Priceable { problem: plan.problem, names, services, hedged: None });
    }
    let Instance { problem, names, services, hedged, .. } = instance::load(&arguments.input)?;
    Ok(Priceable { problem, names, services, hedged })
}

/// A plan for curves in a file.
fn of_curves(arguments: &RedirectArguments) -> anyhow::Result<Planned> {
    let instance = instance::load(&arguments.input)?;
    let refuse = |error| anyhow::anyhow!("{}: {error}", arguments.input.display());
    let question = question(arguments, &instance).map_err(refuse)?;
    let start = cpu_time::ThreadTime::now();
    let answer = solve(&instance.problem, &question).map_err(refuse)?;
    let cpu_ms = 1e3 * start.elapsed().as_secs_f64();
    let sentences = sentences(&instance, &answer);
    Ok(Planned { instance, question, answer, sentences, cpu_ms })
}

/// A plan for sites as they stand: what each of them would plan for itself.
fn of_sites(arguments: &RedirectArguments) -> anyhow::Result<Planned> {
    let by_cost = arguments.objective == Aim::Cost;
    let wish = Wish { by_cost, relay: arguments.relay, overload_price: arguments.overload_price };
    let start = cpu_time::ThreadTime::now();
    let snapshot::Planned { names, target_ppm, coarse, snapshot, plan, .. } =
        snapshot::plan(&arguments.input, wish)?;
    warn_of(coarse);
    // Curves are part of it: sites make them anew when ways change.
    let cpu_ms = 1e3 * start.elapsed().as_secs_f64();
    let mut flows = plan.flows(&snapshot);
    flows.sort_by_key(|flow| std::cmp::Reverse(flow.rate_per_1000_s));
    let objective = match by_cost {
        true => Objective::Cost(Target::Local(vec![target_ppm; names.len()])),
        false => Objective::Violations,
    };
    let overload = arguments.overload_price.map_or(Overload::Capped, Overload::Priced);
    let question = Question { objective, relay: wish.relay, overload, ..Question::violations() };
    let sentences = flows.iter().map(|flow| said(flow, &names)).collect();
    let quantum_rps = plan.unit_per_1000_s as f64 * 1e-3;
    let instance = Instance::planned(plan.problem, names, quantum_rps);
    Ok(Planned { instance, question, answer: plan.answer, sentences, cpu_ms })
}

/// Sites with these few quanta are too small beside the others.
fn warn_of(coarse: Vec<(String, u64)>) {
    for (name, quanta) in coarse {
        eprintln!(
            "warning: {name} is {quanta} quanta, fewer than {QUANTA_MIN}: a plan moves a large \
             part of its load or none (the sites are too unequal)"
        );
    }
}

/// A plan for numbers in a file is of no epoch.
fn said(flow: &Flow, names: &[String]) -> String {
    flow.sentence(names).replace(" in epoch 0", "")
}

type Refused = evenkeel_geo::ProblemError;

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
        status: answer.status.name(),
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

fn table(instance: &Instance, answer: &Answer) -> Table {
    let Instance { problem, names, .. } = instance;
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
            names[site].clone(),
            demand.to_string(),
            answer.loads[site].to_string(),
            saturation,
            percent(violations_if_local(problem, site), demand),
            percent(violations(problem, answer, site), demand),
        ];
        cells.extend(has_shed.then(|| answer.shed[site].to_string()));
        cells.push(sends(&answer.rates[site], site, names));
        table.row(cells);
    }
    table
}

/// `3 to 1, 14 to 2`
fn sends(row: &[u32], site: usize, names: &[String]) -> String {
    let away = row.iter().enumerate().filter(|&(to, &quanta)| to != site && quanta > 0);
    let parts: Vec<String> =
        away.map(|(to, quanta)| format!("{quanta} to {}", names[to])).collect();
    parts.join(", ")
}

fn all_local(problem: &Problem) -> f64 {
    let violations: u64 = (0..problem.sites()).map(|site| violations_if_local(problem, site)).sum();
    share(violations, problem.demand_total())
}

/// Among which allocations an answer is the best.
fn among(question: &Question) -> &'static str {
    match question.overload {
        Overload::Capped => " that sends no site beyond its saturation",
        Overload::Priced(_) => " at this price of overload",
        Overload::Curve => "",
    }
}

fn summary(problem: &Problem, question: &Question, answer: &Answer) -> String {
    let late = 100.0 * answer.violation_fraction(problem);
    let local = 100.0 * all_local(problem);
    let (redirected, all) = (answer.redirected, problem.demand_total());
    let shed: u32 = answer.shed.iter().sum();
    let shed = if shed > 0 { format!(", {shed} shed") } else { String::new() };
    let among = among(question);
    let verdict = match (answer.status, &question.objective) {
        (Status::Optimal, Objective::Violations) => format!("no allocation{among} has fewer"),
        (Status::Optimal, Objective::Cost(_)) => {
            format!("no cheaper allocation{among} keeps the target")
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
         quanta redirected{shed}\n{verdict}"
    )
}

/// Why each flow is there, the largest first.
fn sentences(instance: &Instance, answer: &Answer) -> Vec<String> {
    let Instance { problem, names, .. } = instance;
    let sites = || 0..problem.sites();
    let pairs = sites().flat_map(|from| sites().map(move |to| (from, to)));
    let is_sent = |&(from, to): &(usize, usize)| from != to && answer.rates[from][to] > 0;
    let mut pairs: Vec<(usize, usize)> = pairs.filter(is_sent).collect();
    pairs.sort_by_key(|&(from, to)| std::cmp::Reverse(answer.rates[from][to]));
    let sentence = |(from, to): (usize, usize)| match instance.quantum_rps {
        Some(rps) => said(&flow(instance, answer, from, to, rps), names),
        None => {
            let load = answer.loads[to];
            format!(
                "{} sends {} of its {} quanta to {}: alone it would serve {} too late, so it \
                 is {}. Of those sent {} are too late; {}’s own users go from {} to {}.",
                names[from],
                answer.rates[from][to],
                problem.demand()[from],
                names[to],
                percent(violations_if_local(problem, from), problem.demand()[from]),
                percent(violations(problem, answer, from), problem.demand()[from]),
                percent(problem.violation_ppm(from, to, load).into(), 1),
                names[to],
                percent(violations_if_local(problem, to), problem.demand()[to]),
                percent(violations(problem, answer, to), problem.demand()[to]),
            )
        }
    };
    pairs.into_iter().map(sentence).collect()
}

fn flow(instance: &Instance, answer: &Answer, from: usize, to: usize, rps: f64) -> Flow {
    let problem = &instance.problem;
    let per_1000_s = |quanta: u32| (1e3 * rps * f64::from(quanta)).round() as u64;
    let ppm = |violations: u64, site: usize| {
        (violations / u64::from(problem.demand()[site].max(1))).try_into().unwrap_or(ALL_PPM)
    };
    let predicted = |site: usize| Predicted {
        alone_ppm: ppm(violations_if_local(problem, site), site),
        planned_ppm: ppm(violations(problem, answer, site), site),
    };
    Flow {
        epoch: 0,
        from: SiteId::new(from),
        to: SiteId::new(to),
        demand_per_1000_s: per_1000_s(problem.demand()[from]),
        rate_per_1000_s: per_1000_s(answer.rates[from][to]),
        base_rtt_us: instance.rtt_us.as_ref().map(|rows| rows[from][to]),
        origin: predicted(from),
        destination: predicted(to),
        redirected_ppm: problem.violation_ppm(from, to, answer.loads[to]),
    }
}

/// How it was asked and searched, for the page.
fn facts(question: &Question, answer: &Answer, cpu_ms: f64) -> Vec<(&'static str, String)> {
    let objective = match &question.objective {
        Objective::Violations => "the fewest requests that miss the objective",
        Objective::Cost(_) => "the cheapest redirects that keep the target",
    };
    let relay = if question.relay { "yes" } else { "no" };
    let overload = match question.overload {
        Overload::Curve => "as the curves say".to_owned(),
        Overload::Priced(ppm) => format!("{ppm} ppm more for each quantum beyond saturation"),
        Overload::Capped => "loads end before saturation, each site sheds what is left".to_owned(),
    };
    let sure = match (answer.status, answer.proven) {
        (Status::Optimal, _) => format!("proven: no allocation{} is better", among(question)),
        (Status::Bounded, is_near) => {
            let gap = answer.objective - answer.lower_bound;
            let gap = 100.0 * gap as f64 / answer.objective.max(1) as f64;
            let near = if is_near { ", within the tolerance" } else { "" };
            format!("at most {gap:.2} % above the best there can be{near}")
        }
        (Status::Infeasible, true) => "proven: no allocation keeps the target".to_owned(),
        (Status::Infeasible, false) => "no allocation found keeps the target".to_owned(),
    };
    vec![
        ("asked for", objective.to_owned()),
        ("relaying", relay.to_owned()),
        ("overload", overload),
        ("objective", answer.objective.to_string()),
        ("lower bound", answer.lower_bound.to_string()),
        ("proof", sure),
        ("search", format!("{cpu_ms:.1} ms of CPU, {} units of work", answer.work)),
    ]
}

#[cfg(test)]
mod tests;
