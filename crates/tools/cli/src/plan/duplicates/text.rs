//! A plan as text: tables, and sentences below them.

use std::fmt::Write as _;

use evenkeel_planner::duplicates::night::Setup;
use evenkeel_planner::duplicates::policy::Candidate;
use evenkeel_planner::duplicates::{Prediction, Reads};
use evenkeel_settings::format_duration;

use super::{Judged, Plan};
use crate::terminal::{Table, count};

/// Policies of a table at most: the best.
const ROWS_MAX: usize = 24;

pub(super) fn describe(plan: &Plan) -> String {
    let mut text = format!("{}\n{}\n", table(plan), summary(plan));
    if plan.input.objective.prices.per_violation == 0.0 {
        text += "(without a price of violations the fewest nodes are the cheapest)\n";
    }
    let _ = write!(text, "\nwhat violations may cost\n{}", sweep(plan));
    if let Some((outlook, steps)) = &plan.today {
        let level = level(outlook.violations);
        let _ = writeln!(text, "\ntoday: {level} in time on {} nodes", outlook.nodes);
        for (number, step) in steps.iter().enumerate() {
            let _ = writeln!(text, "{:>4}. {}", number + 1, step.why);
        }
        if steps.is_empty() {
            text += "  nothing to move\n";
        }
    }
    if let Some(setups) = &plan.night {
        let _ = write!(text, "\nat night\n{}", night(setups));
    }
    text
}

/// The policies that are shown, by nodes: all, or the best.
pub(super) fn shown(judged: &Judged) -> Vec<Candidate> {
    let mut best = judged.candidates.clone();
    best.sort_by(Candidate::compare);
    best.truncate(ROWS_MAX);
    best.sort_by_key(|one| (one.policy.nodes(), one.policy.partitions));
    best
}

fn table(plan: &Plan) -> Table {
    let first = plan.first();
    let mut header = vec!["policy", "nodes", "busy", "in time", "nines", "cost", ""];
    if plan.other().is_some() {
        header = vec!["policy", "nodes", "busy", "lindley", "nines", "cost", "paper", "nines", ""];
    }
    let has_reads = plan.input.read_share.value() > 0.0;
    if has_reads {
        header.insert(1, "reads");
    }
    let mut table = Table::new(&header);
    for one in shown(first) {
        let mut row = vec![
            one.policy.to_string(),
            one.policy.nodes().to_string(),
            format!("{:.0} %", 100.0 * one.prediction.utilisation),
            level(one.prediction.violations),
            nines(&one.prediction),
            cost(plan.cost(one.cost)),
        ];
        if let Some(other) = plan.other() {
            let beside = other.candidates.iter().find(|candidate| candidate.policy == one.policy);
            let beside = beside.map(|candidate| candidate.prediction);
            row.push(beside.map_or_else(String::new, |reported| level(reported.violations)));
            row.push(beside.map_or_else(String::new, |reported| nines(&reported)));
        }
        if has_reads {
            row.insert(1, one.reads.name().to_owned());
        }
        let chosen = first.best.is_some_and(|best| best.policy == one.policy);
        row.push(
            match (chosen, one.meets, one.is_sure) {
                (true, ..) => "best",
                (_, _, false) => "too near to say",
                (_, true, _) => "meets",
                _ => "",
            }
            .to_owned(),
        );
        table.row(row);
    }
    table
}

/// What follows, in sentences.
pub(super) fn summary(plan: &Plan) -> String {
    let (input, first) = (&plan.input, plan.first());
    let target = format!(
        "{} within {}",
        share(input.objective.target.value()),
        format_duration(input.bound)
    );
    let mut text = match &first.best {
        Some(best) => format!(
            "{}: {} in time where {target} is wanted, on {} {}, for {}.",
            best.policy,
            level(best.prediction.violations),
            best.policy.nodes(),
            if best.policy.nodes() == 1 { "node" } else { "nodes" },
            cost(plan.cost(best.cost)),
        ),
        None => {
            let near = first.candidates.iter().min_by(|a, b| a.compare(b));
            let near = near.map_or_else(String::new, |near| {
                format!(
                    " The nearest is {} with {}.",
                    near.policy,
                    level(near.prediction.violations)
                )
            });
            format!(
                "No policy of at most {} nodes keeps {target}.{near}",
                input.objective.nodes_max
            )
        }
    };
    if let Some((best, otherwise)) = first.best.and_then(|it| Some((it, it.otherwise?))) {
        let (how, other) = match best.reads {
            Reads::Hedged => ("to one duplicate, hedged", "to all"),
            Reads::All => ("to all duplicates", "to one, hedged"),
        };
        let level = level(otherwise.violations);
        let _ = write!(text, " Its reads go {how}: {other} {level} would be in time.");
    }
    if first.best.is_some_and(|best| !best.is_sure) {
        text += " That is within two standard errors of the target: a larger accesses_max tells.";
    }
    if let Some(other) = plan.other() {
        text.push(' ');
        text += &disagreement(first, other);
    }
    if let Some(outliers) = &plan.outliers {
        let reported = outliers.describe();
        let mut letters = reported.chars();
        let begin: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        let _ = write!(text, " {begin}{}.", letters.as_str());
    }
    text
}

fn disagreement(first: &Judged, other: &Judged) -> String {
    let name = other.model.name();
    let chosen = |judged: &Judged| judged.best.map(|best| best.policy);
    if chosen(first) == chosen(other) {
        return format!("The {name} model chooses the same.");
    }
    let Some(theirs) = chosen(other) else {
        return format!("The {name} model finds none.");
    };
    let ours = first.candidates.iter().find(|candidate| candidate.policy == theirs);
    let promised = other.best.map_or(0.0, |best| best.prediction.violations);
    let kept = ours.map_or(0.0, |candidate| candidate.prediction.violations);
    format!(
        "The {name} model chooses {theirs} and promises {}; with its queues that is {}.",
        level(promised),
        level(kept)
    )
}

fn sweep(plan: &Plan) -> Table {
    let mut table =
        Table::new(&["a violation costs", "cheapest", "cost", "keeps the target", "cost"]);
    for (per_violation, cheapest, best) in plan.sweep() {
        table.row([
            cost(per_violation),
            cheapest.policy.to_string(),
            cost(plan.cost(cheapest.cost)),
            best.map_or_else(|| "none".to_owned(), |best| best.policy.to_string()),
            best.map_or_else(String::new, |best| cost(plan.cost(best.cost))),
        ]);
    }
    table
}

fn night(setups: &[Setup]) -> Table {
    let header = ["setup", "nodes", "in time", "late", "copies", "cost", "with migration"];
    let mut table = Table::new(&header);
    for setup in setups {
        table.row([
            setup.idea.name().to_owned(),
            setup.nodes.to_string(),
            level(setup.violations),
            count(setup.late),
            format!("{}+{}", setup.copies_down, setup.copies_back),
            cost(setup.cost),
            cost(setup.cost_with_migration),
        ]);
    }
    table
}

/// A share as somebody wrote it: 98 %, 99.95 %.
fn share(value: f64) -> String {
    let text = format!("{:.8}", 100.0 * value);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// A share of violations as a level, with as many digits as say something.
pub(super) fn level(violations: f64) -> String {
    let digits = if violations > 0.0 { (-violations.log10()).ceil() } else { 0.0 };
    let digits = (digits as usize).clamp(1, 10);
    // 99.99996 % must not read 100 %.
    let percent = 100.0 * (1.0 - violations);
    format!("{percent:.digits$} %")
}

pub(super) fn nines(reported: &Prediction) -> String {
    let nines = reported.nines();
    if nines.is_finite() { format!("{nines:.2}") } else { "all".to_owned() }
}

/// Four significant digits, of whatever size.
pub(super) fn cost(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = 3 - value.abs().log10().floor() as i32;
    let text = format!("{value:.*}", digits.clamp(0, 12) as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
