//! A placement as text: what is best, what to do, who gains and who loses, what comes next.

use evenkeel_planner::explain::{Wait, Waits};
use evenkeel_planner::model::Route;

use super::asked::{Line, Plan};
use crate::terminal::{count, ms, percent};

/// How many clients a sentence names.
const NAMED: usize = 4;
/// Clients whose operations change by less than this part of all time together go without saying.
const MENTIONED: f64 = 0.005;

const PLACES: [&str; 3] = ["best", "second", "third"];

pub(super) fn describe(
    plan: &Plan<'_>,
    today: Option<&Line>,
    results: &[Line],
    worth: &[Line],
) -> String {
    let mut text = format!("{}: {}\n\n", plan.title, about(plan));
    let Some(best) = results.first() else { return text };
    let tier = plan.arguments.tier;
    let is_one = tier < 3 || results.len() == 1;
    let answers = answers(results, tier);
    if is_one {
        text += &layouts(plan, today, &answers);
    } else {
        text += &by_size(plan, results);
    }
    if let Some(today) = today.filter(|_| is_one) {
        text += "\n";
        text += &gain(today, best);
        text += "\n";
        for step in steps(plan, today, best) {
            text += &format!("  {step}\n");
        }
        text += "\n";
        text += &who(plan, today, best);
    }
    if is_one && answers.len() > 1 {
        text += "\n";
        text += &answers[1..].iter().map(|other| runner_up(plan, best, other)).collect::<String>();
    }
    if !worth.is_empty() {
        text += "\nwhat a further replica is worth:\n";
        for (place, line) in worth.iter().enumerate() {
            let gain = place.checked_sub(1).map(|before| worth[before].mean_ms - line.mean_ms);
            let gain = gain.map_or(String::new(), |gain| format!(", {gain:.2} ms less"));
            let replicas = line.num_replicas;
            text += &format!("{replicas:>4}  {:.2} ms{gain}{}\n", line.mean_ms, tail(plan, line));
        }
    }
    text
}

/// The best and its runners-up, whichever tier.
pub(super) fn answers(results: &[Line], tier: u8) -> Vec<&Line> {
    match (tier, results.first()) {
        (3, Some(best)) => std::iter::once(best).chain(&best.runners_up).collect(),
        _ => results.iter().collect(),
    }
}

/// What was asked, in a line or a few.
pub(super) fn about(plan: &Plan<'_>) -> String {
    let (past, input) = (plan.past(), &plan.input);
    let what = match plan.arguments.tier {
        1 => "the leader may change",
        2 => "leader and voters may change",
        _ => "everything may change",
    };
    let mut text = format!(
        "{} sites, {} clients, {} operations",
        input.sites.len(),
        input.clients.len(),
        count(past.operations())
    );
    if input.intervals.len() > 1 {
        text += &format!(" in {} intervals, older ones faded", input.intervals.len());
    }
    text += &format!("\ntier {}: {what}; bounded reads go {}", plan.arguments.tier, way(plan));
    if let (Some(percentile), Some(reported)) =
        (&plan.arguments.percentile, plan.percentile_report())
    {
        text += &match reported.round_trips {
            "constant" => {
                format!("\n{percentile} of round trips taken as constant, without their variation")
            }
            how => {
                format!("\n{percentile} of {how} round trips, in steps of {} ms", reported.step_ms)
            }
        };
    }
    text
}

fn way(plan: &Plan<'_>) -> &'static str {
    match plan.arguments.route {
        Route::Nearest => "over the nearest replica",
        Route::BestPath => "the shortest way",
    }
}

/// Rows of cells, numbers to the right and all else to the left.
pub(super) fn aligned(rows: &[Vec<String>], is_number: &[bool]) -> String {
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..is_number.len()).filter_map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for ((cell, &width), is_number) in row.iter().zip(&widths).zip(is_number) {
            let cell =
                if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line += &format!("{cell}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Today and the answers, a line for each.
fn layouts(plan: &Plan<'_>, today: Option<&Line>, answers: &[&Line]) -> String {
    let percentile = plan.arguments.percentile.as_ref().map(ToString::to_string);
    let mut header = vec![String::new(), "mean".to_owned()];
    header.extend(percentile.clone());
    header.extend(["leader", "other voters", "further replicas"].map(str::to_owned));
    let mut is_number = vec![false, true];
    is_number.extend(percentile.map(|_| true));
    is_number.extend([false; 3]);
    let named = today.map(|line| ("today", line)).into_iter();
    let named = named.chain(PLACES.into_iter().zip(answers.iter().copied()));
    let row = |(name, line): (&str, &Line)| {
        let mut row = vec![name.to_owned(), format!("{:.2} ms", line.mean_ms)];
        row.extend(line.percentile_ms().map(|value| format!("{} ms", ms(value))));
        row.push(plan.name(line.leader).to_owned());
        row.push(plan.names(&other_voters(line)));
        row.push(plan.names(&learners(line)));
        row
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(named.map(row)).collect();
    let proof = answers.first().map_or(String::new(), |best| proof(best));
    aligned(&rows, &is_number) + &format!("proof: {proof}\n")
}

/// An instance with several numbers of replicas and voters, a line for each.
fn by_size(plan: &Plan<'_>, results: &[Line]) -> String {
    let mut header = ["replicas", "voters", "mean"].map(str::to_owned).to_vec();
    let percentile = plan.arguments.percentile.as_ref().map(ToString::to_string);
    header.extend(percentile.clone());
    let names = ["leader", "other voters", "further replicas", "proof"];
    header.extend(names.map(str::to_owned));
    let mut is_number = vec![true, true, true];
    is_number.extend(percentile.map(|_| true));
    is_number.extend([false; 4]);
    let row = |line: &Line| {
        let mut row = vec![line.num_replicas.to_string(), line.num_voters.to_string()];
        row.push(format!("{:.2} ms", line.mean_ms));
        row.extend(line.percentile_ms().map(|value| format!("{} ms", ms(value))));
        row.push(plan.name(line.leader).to_owned());
        row.extend([plan.names(&other_voters(line)), plan.names(&learners(line)), proof(line)]);
        row
    };
    let rows: Vec<Vec<String>> = std::iter::once(header).chain(results.iter().map(row)).collect();
    aligned(&rows, &is_number)
}

fn other_voters(line: &Line) -> Vec<usize> {
    line.voters.iter().copied().filter(|voter| *voter != line.leader).collect()
}

fn learners(line: &Line) -> Vec<usize> {
    line.replicas.iter().copied().filter(|site| !line.voters.contains(site)).collect()
}

fn tail(plan: &Plan<'_>, line: &Line) -> String {
    let percentile = plan.arguments.percentile.as_ref().zip(line.percentile_ms());
    percentile.map_or(String::new(), |(name, value)| format!(" ({name} {} ms)", ms(value)))
}

/// What a move gains: 41.4 % less.
pub(super) fn gain(today: &Line, best: &Line) -> String {
    let less = |before: f64, after: f64| match 100.0 * (1.0 - after / before) {
        less if less >= 0.0 => format!("{less:.1} % less"),
        more => format!("{:.1} % more", -more),
    };
    let (before, after) = (today.mean_ms, best.mean_ms);
    let mut text = format!("{before:.2} ms → {after:.2} ms, {}", less(before, after));
    if let (Some(key), Some(before), Some(after)) =
        (best.percentile.keys().next(), today.percentile_ms(), best.percentile_ms())
    {
        let name = key.trim_end_matches("_ms");
        text += &format!("; {name} {} ms → {} ms, {}", ms(before), ms(after), less(before, after));
    }
    text
}

/// What to do, in an order that never has fewer voters than there are to be.
pub(super) fn steps(plan: &Plan<'_>, today: &Line, best: &Line) -> Vec<String> {
    let beside = |these: &[usize], those: &[usize]| -> Vec<usize> {
        these.iter().copied().filter(|site| !those.contains(site)).collect()
    };
    let mut steps = Vec::new();
    let mut step = |words: &str, sites: &[usize]| {
        if !sites.is_empty() {
            steps.push(format!("{}. {words} {}", steps.len() + 1, plan.names(sites)));
        }
    };
    step("add replicas at", &beside(&best.replicas, &today.replicas));
    step("let vote", &beside(&best.voters, &today.voters));
    step("move the leader to", &beside(&[best.leader], &[today.leader]));
    step("let no longer vote", &beside(&today.voters, &best.voters));
    step("remove replicas at", &beside(&today.replicas, &best.replicas));
    if steps.is_empty() {
        steps.push("nothing to move".to_owned());
    }
    steps
}

/// Which clients gain and lose by a move, and which kinds of operations.
fn who(plan: &Plan<'_>, today: &Line, best: &Line) -> String {
    let past = plan.past();
    let waits = Waits::between(&past, &today.layout, &best.layout, plan.arguments.route);
    let row = |name: &str, operations: f64, before: f64, after: f64| {
        let share = percent(operations / past.operations());
        vec![
            format!("  {name}"),
            share,
            format!("{} ms", ms(before)),
            "→".to_owned(),
            ms(after) + " ms",
        ]
    };
    let (gain, lose) = gainers_and_losers(&waits, past.operations() * today.mean_ms);
    let mut rows = Vec::new();
    for (word, list) in [("who gains most", &gain), ("who loses most", &lose)] {
        if list.is_empty() {
            continue;
        }
        let more = list.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
        rows.push(vec![format!("{word}{more}")]);
        for wait in list.iter().take(NAMED) {
            let name = &plan.input.clients[wait.of];
            rows.push(row(name, wait.operations, wait.before_ms, wait.after_ms));
        }
    }
    rows.push(vec!["by operation".to_owned()]);
    for wait in &waits.operations {
        rows.push(row(wait.of.name(), wait.operations, wait.before_ms, wait.after_ms));
    }
    aligned(&rows, &[false, true, true, false, true])
}

/// Clients that gain, those that gain most first, and clients that lose, in the same way.
pub(super) fn gainers_and_losers(
    waits: &Waits,
    all_ms: f64,
) -> (Vec<&Wait<usize>>, Vec<&Wait<usize>>) {
    let worth = |wait: &&Wait<usize>| wait.saved_ms().abs() >= MENTIONED * all_ms;
    let gain = waits.clients.iter().filter(|wait| wait.saved_ms() > 0.0).filter(worth);
    let lose = waits.clients.iter().rev().filter(|wait| wait.saved_ms() < 0.0).filter(worth);
    (gain.collect(), lose.collect())
}

/// What a runner-up costs, and who would pay it.
pub(super) fn runner_up(plan: &Plan<'_>, best: &Line, other: &Line) -> String {
    let past = plan.past();
    let more = |before: f64, after: f64| 100.0 * (after / before - 1.0);
    let leader = plan.name(other.leader);
    let by_percentile = plan.arguments.percentile.as_ref().filter(|_| plan.arguments.tier < 3);
    let what = match by_percentile {
        Some(percentile) => {
            let over = more(best.ranked_ms(), other.ranked_ms());
            format!("{over:.2} % more at {percentile}, {:.2} ms on average", other.mean_ms)
        }
        None => {
            let over = more(best.mean_ms, other.mean_ms);
            let is_open = plan.arguments.tier == 3 && !other.proven;
            let open = if is_open {
                format!(", {} with other leaders", proof(other))
            } else {
                String::new()
            };
            format!("{over:.2} % more{open}")
        }
    };
    let waits = Waits::between(&past, &best.layout, &other.layout, plan.arguments.route);
    let name = |wait: &Wait<usize>| {
        let (before, after) = (ms(wait.before_ms), ms(wait.after_ms));
        format!("{} {before} → {after} ms", plan.input.clients[wait.of])
    };
    let (gain, lose) = gainers_and_losers(&waits, past.operations() * best.mean_ms);
    let mut text = format!("led by {leader}: {what}");
    for (word, wait) in [("lose", lose.first()), ("gain", gain.first())] {
        text += &wait.map_or(String::new(), |wait| format!("; most {word}s {}", name(wait)));
    }
    text + "\n"
}

pub(super) fn proof(line: &Line) -> String {
    if line.proven {
        "optimal".to_owned()
    } else {
        format!("at most {:.3} % above the best", 100.0 * line.gap / (1.0 - line.gap).max(1e-9))
    }
}
