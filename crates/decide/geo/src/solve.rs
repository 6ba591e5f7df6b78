//! From a question to its answer.

use super::bound::Domain;
use super::model::{Flow, Model, loads};
use super::pairs::Pairs;
use super::place::place;
use super::problem::{ALL_PPM, Problem, ProblemError};
use super::question::{Answer, Effort, Objective, Overload, Question, Status};
use super::search::{Found, Search};
use super::shed::Shedding;

/// Answers a question about a problem. The same problem and question have the same answer, on every
/// machine.
///
/// # Errors
/// When the question does not fit the problem: targets or weights of another length or too large.
pub fn solve(problem: &Problem, question: &Question) -> Result<Answer, ProblemError> {
    question.check(problem)?;
    let shedding = (question.overload == Overload::Capped).then(|| Shedding::new(problem));
    let model = Model::new(problem, question, shedding.as_ref());
    let demand = problem.demand();
    let local = Pairs::from_fn(demand.len(), |i, j| if i == j { demand[i] } else { 0 });
    let (model, mut verdict) = match (&question.objective, &shedding) {
        (Objective::Violations, _) => {
            let verdict = search(&model, &local, question.effort);
            (model, verdict)
        }
        (Objective::Cost(_), None) => {
            let verdict = within_target(&model, &local, question);
            (model, verdict)
        }
        (Objective::Cost(_), Some(of)) => {
            // Who can keep the target without shedding sheds nothing to save redirects.
            let unshed = Model::new(problem, question, Some(&of.refused()));
            let first = within_target(&unshed, &local, question);
            if unshed.score(&first.flow).excess == 0 {
                (unshed, first)
            } else {
                let second = within_target(&model, &local, question);
                (model, Verdict { work: first.work + second.work, ..second })
            }
        }
    };
    // Without a dimmer what is shed is load like any other: not even then is it worse than no plan.
    let unshed = |flow: &Flow| late(problem, flow, &loads(problem.sites(), flow));
    let is_of_violations = question.objective == Objective::Violations;
    if shedding.is_some() && is_of_violations && unshed(&verdict.flow) > unshed(&local) {
        verdict.flow = local;
    }
    Ok(answer(problem, question, &model, shedding.as_ref(), verdict))
}

/// An allocation and what is known about it.
#[derive(Debug)]
struct Verdict {
    flow: Flow,
    bound: u64,
    excess_bound: u64,
    work: u64,
}

fn search(model: &Model, start: &Flow, effort: Effort) -> Verdict {
    let Found { flow, bound, work } = Search::new(model, effort).run(start);
    let bound = model.objective_above(bound).max(0) as u64;
    let flow = flow.expect("the search began with an allocation that keeps the budgets");
    Verdict { flow, bound, excess_bound: 0, work }
}

/// The cheapest allocation within the target, or the one with the least excess.
fn within_target(model: &Model, start: &Flow, question: &Question) -> Verdict {
    let effort = question.effort;
    let by_excess = model.of_excess();
    // How much is in excess tells a person how far to scale; that there is some is what counts.
    let excess_effort = Effort { work_max: effort.work_max.min(effort.work_exact), ..effort };
    let least = search(&by_excess, start, Effort { tolerance: 0, ..excess_effort });
    if by_excess.score(&least.flow).excess > 0 {
        return Verdict { bound: 0, excess_bound: least.bound, ..least };
    }
    let is_local = model.side_rows() == model.sites;
    let narrowed = if is_local && !model.relay { model.with_roles() } else { model.clone() };
    let found = search(&narrowed, &least.flow, effort);
    Verdict { work: least.work + found.work, ..found }
}

fn answer(
    problem: &Problem,
    question: &Question,
    model: &Model,
    shedding: Option<&Shedding>,
    verdict: Verdict,
) -> Answer {
    let excess = model.score(&verdict.flow).excess as u64;
    let mut flow = canonical(model, verdict.flow);
    let mut loads = loads(problem.sites(), &flow);
    let objective = match question.objective {
        Objective::Violations => sum(&flow, |i, j| u64::from(model.ppm(i, j, loads[j]))),
        Objective::Cost(_) => sum(&flow, |i, j| u64::from(problem.price(i, j))),
    };
    let shed = shedding.map_or_else(|| vec![0; loads.len()], |of| of.shed(&flow, &loads));
    for (site, &quanta) in shed.iter().enumerate() {
        flow[(site, site)] -= quanta;
        loads[site] -= quanta;
    }
    let lost = u64::from(shed.iter().sum::<u32>()) * u64::from(ALL_PPM);
    let violations = lost + late(problem, &flow, &loads);
    let lower_bound = verdict.bound.min(objective);
    let gap = objective - lower_bound;
    let status = match (excess, gap) {
        (1.., _) => Status::Infeasible,
        (0, 0) => Status::Optimal,
        (0, _) => Status::Bounded,
    };
    Answer {
        objective,
        lower_bound,
        proven: match status {
            Status::Infeasible => verdict.excess_bound > 0,
            Status::Optimal | Status::Bounded => gap <= question.effort.tolerance,
        },
        status,
        redirected: sum(&flow, |i, j| u64::from(i != j)) as u32,
        rates: flow.rows().map(<[u32]>::to_vec).collect(),
        loads,
        shed,
        violations,
        excess,
        excess_bound: verdict.excess_bound.min(excess),
        work: verdict.work,
    }
}

/// Requests that miss the objective under these loads, in quanta times parts per million.
fn late(problem: &Problem, flow: &Flow, loads: &[u32]) -> u64 {
    sum(flow, |i, j| u64::from(problem.violation_ppm(i, j, loads[j])))
}

/// Flows times values, over all pairs.
fn sum(flow: &Flow, value: impl Fn(usize, usize) -> u64) -> u64 {
    let cells = flow.rows().enumerate().flat_map(|(i, row)| {
        row.iter().enumerate().map(move |(j, &amount)| (i, j, u64::from(amount)))
    });
    cells.map(|(i, j, amount)| if amount == 0 { 0 } else { amount * value(i, j) }).sum()
}

/// Among equally good flows with the same loads, the smallest in lexicographic order. With a
/// target, who serves whom was part of the search.
fn canonical(model: &Model, flow: Flow) -> Flow {
    if model.side.is_some() {
        return flow;
    }
    let loads = loads(model.sites, &flow);
    place(model, &Domain::whole(model), &[], &loads, true).unwrap_or(flow)
}
