//! A plan as a page: policies by nodes and nines, what load does to those of equal nodes, costs,
//! and the numbers. One file, no outside resources, light or dark as the reader prefers.

use std::fmt::Write as _;

use evenkeel_core::units::Rate;
use evenkeel_planner::duplicates::{Model, Policy, Question, predict};

use super::text::{cost, level, nines, shown, summary};
use super::{Judged, Plan};
use crate::html::{escape, svg};
use crate::jobs::run_all;
use crate::terminal::count;

const STYLE: &str = include_str!("../../paper/page.css");
const OWN_STYLE: &str = include_str!("../page.css");
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 140.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 40.0;
/// More nines than this are drawn at the top.
const NINES_MAX: f64 = 9.0;
/// Rates of the chart of loads, and the accesses simulated for each point.
const RATES: usize = 24;
const ACCESSES: u64 = 40_000;
/// Colours by number of duplicates, in an order in which neighbours differ.
const COLOURS: [usize; 8] = [2, 5, 4, 8, 6, 11, 12, 9];

pub(super) fn page(plan: &Plan) -> String {
    let title = escape(&plan.title);
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE}{OWN_STYLE}</style><main class=plan>\
         <p class=kicker>evenkeel plan duplicates</p><h1>{title}</h1><p>{}</p>\
         <h2>What each policy keeps</h2>{}{}",
        escape(&summary(plan)),
        by_nodes(plan),
        table(plan),
    );
    page += "<h2>What load does to them</h2>";
    page += &by_rate(plan);
    page += "<h2>What violations may cost</h2>";
    page += &sweep(plan);
    if let Some((outlook, steps)) = &plan.today {
        let level = level(outlook.violations);
        let _ = write!(page, "<h2>From today on</h2><p>{level} in time now.</p><ul class=why>");
        for step in steps {
            let _ = write!(page, "<li>{}", escape(&step.why));
        }
        page += if steps.is_empty() { "<li>nothing to move</ul>" } else { "</ul>" };
    }
    if let Some(setups) = &plan.night {
        page += "<h2>At night</h2>";
        page += &night(setups);
    }
    page + "</main></html>\n"
}

/// Room for a chart, with what its axes mean.
struct Chart {
    x_max: f64,
    y_max: f64,
    svg: String,
}

impl Chart {
    fn new(label: &str, x_max: f64, y_max: f64) -> Self {
        let svg = svg(WIDTH, HEIGHT, label);
        let mut chart = Self { x_max, y_max, svg };
        for nine in 0..=y_max as u32 {
            let y = chart.y(f64::from(nine));
            let name = match nine {
                0 => "0 %".to_owned(),
                1 => "90 %".to_owned(),
                more => {
                    format!("99{} %", &".9999999"[..(more as usize - 1).min(8)]).replace(". ", " ")
                }
            };
            let _ = write!(
                chart.svg,
                "<line class=grid x1={LEFT} x2={} y1={y:.1} y2={y:.1} />\
                 <text class='tick end' x={} y={:.1}>{name}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
            );
        }
        chart
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * value / self.x_max
    }

    fn y(&self, nines: f64) -> f64 {
        let part = nines.clamp(0.0, self.y_max) / self.y_max;
        HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * part
    }

    fn tick(&mut self, value: f64, name: &str) {
        let (x, y) = (self.x(value), HEIGHT - BOTTOM + 18.0);
        let _ = write!(self.svg, "<text class=tick x={x:.1} y={y}>{name}</text>");
    }

    /// The target as a line across.
    fn target(&mut self, nines: f64) {
        let y = self.y(nines);
        let _ = write!(
            self.svg,
            "<line class=full x1={LEFT} x2={} y1={y:.1} y2={y:.1} />\
             <text x={} y={:.1}>target</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT + 8.0,
            y + 4.0,
        );
    }

    fn closed(self) -> String {
        self.svg + "</svg>"
    }
}

fn target_nines(plan: &Plan) -> f64 {
    -(1.0 - plan.input.objective.target.value()).log10()
}

fn colour(duplicates: u32) -> usize {
    COLOURS[(duplicates as usize - 1) % COLOURS.len()]
}

/// A dot for each policy; the other model as a ring.
fn by_nodes(plan: &Plan) -> String {
    let nodes_max = f64::from(plan.input.objective.nodes_max);
    let drawn = |judged: &Judged| shown(judged);
    let all = plan.judged.iter().flat_map(drawn);
    let most = all.map(|one| one.prediction.nines().min(NINES_MAX)).fold(2.0, f64::max);
    let most = most.max(target_nines(plan) + 0.5).ceil().min(NINES_MAX);
    let mut chart = Chart::new("service level by nodes and policy", nodes_max + 0.5, most);
    chart.target(target_nines(plan));
    let step = (nodes_max / 16.0).ceil().max(1.0);
    let mut tick = step;
    while tick <= nodes_max {
        chart.tick(tick, &format!("{tick:.0}"));
        tick += step;
    }
    for (which, judged) in plan.judged.iter().enumerate() {
        for one in shown(judged) {
            let (x, y) = (chart.x(one.policy.nodes() as f64), chart.y(one.prediction.nines()));
            let duplicates = one.policy.duplicates.get();
            let ring = if which == 0 { "" } else { " class=ring" };
            let _ = write!(
                chart.svg,
                "<g class='series c{}'><circle{ring} cx={x:.1} cy={y:.1} r=5.5>\
                 <title>{} by {}: {}</title></circle></g>",
                colour(duplicates),
                one.policy,
                judged.model.name(),
                level(one.prediction.violations),
            );
        }
    }
    let rings = match plan.other() {
        Some(other) => format!(" Rings are the {} model's.", other.model.name()),
        None => String::new(),
    };
    let note = format!(
        "<p class=note>Nodes from left to right, nines upwards; a colour for each number of \
         duplicates.{rings}</p>"
    );
    legend(plan) + &chart.closed() + &note
}

fn legend(plan: &Plan) -> String {
    let mut counts: Vec<u32> =
        shown(plan.first()).iter().map(|one| one.policy.duplicates.get()).collect();
    counts.sort_unstable();
    counts.dedup();
    counts.truncate(COLOURS.len());
    let item = |count: &u32| {
        let word = if *count == 1 { "duplicate" } else { "duplicates" };
        format!(
            "<li class=c{}><svg viewBox='0 0 28 10'><circle cx=14 cy=5 r=4.5 /></svg>\
             {count} {word}",
            colour(*count)
        )
    };
    format!("<ul class=legend>{}</ul>", counts.iter().map(item).collect::<String>())
}

fn table(plan: &Plan) -> String {
    let paper = if plan.other().is_some() {
        "<th class=number>paper's level<th class=number>its nines"
    } else {
        ""
    };
    let mut table = format!(
        "<table class=measures><tr><th>policy<th class=number>nodes<th class=number>busy\
         <th class=number>in time<th class=number>nines<th class=number>cost{paper}<th>"
    );
    for one in shown(plan.first()) {
        let _ = write!(
            table,
            "<tr class=c{}><td class=label>{}<td class=number>{}<td class=number>{:.0} %\
             <td class=number>{}<td class=number>{}<td class=number>{}",
            colour(one.policy.duplicates.get()),
            one.policy,
            one.policy.nodes(),
            100.0 * one.prediction.utilisation,
            level(one.prediction.violations),
            nines(&one.prediction),
            cost(plan.cost(one.cost)),
        );
        if let Some(other) = plan.other() {
            let beside = other.candidates.iter().find(|candidate| candidate.policy == one.policy);
            if let Some(beside) = beside {
                let reported = &beside.prediction;
                let _ = write!(
                    table,
                    "<td class=number>{}<td class=number>{}",
                    level(reported.violations),
                    nines(reported)
                );
            }
        }
        let best = plan.first().best.is_some_and(|best| best.policy == one.policy);
        table += match (best, one.meets) {
            (true, _) => "<td>best",
            (_, true) => "<td>meets",
            _ => "<td>",
        };
    }
    table + "</table>"
}

/// Policies of as many nodes as the best: a line for each, by both models where both were asked.
fn by_rate(plan: &Plan) -> String {
    let first = plan.first();
    let near = first.candidates.iter().min_by(|a, b| a.compare(b));
    let Some(near) = near else { return String::new() };
    let nodes = near.policy.nodes();
    let of_nodes = |judged: &Judged| -> Vec<Policy> {
        let equal = judged.candidates.iter().filter(|one| one.policy.nodes() == nodes);
        equal.map(|one| one.policy).take(COLOURS.len()).collect()
    };
    let policies = of_nodes(first);
    let mean_s = plan.input.service.of(0).mean_nanos() / 1e9;
    let partitions = policies.iter().map(|policy| policy.partitions.get()).max().unwrap_or(1);
    let rate_max = (f64::from(partitions) / mean_s).max(plan.input.rate.value());
    if !rate_max.is_finite() {
        return "<p class=note>Service times have no mean: no load can be borne.</p>".to_owned();
    }
    let mut chart = Chart::new("service level by rate", rate_max, 4.0);
    for part in [0.0, 0.25, 0.5, 0.75, 1.0] {
        chart.tick(part * rate_max, &format!("{}/s", cost(part * rate_max)));
    }
    chart.target(target_nines(plan));
    let x = chart.x(plan.input.rate.value());
    let _ = write!(
        chart.svg,
        "<line class=asked x1={x:.1} x2={x:.1} y1={TOP} y2={} />",
        HEIGHT - BOTTOM
    );
    for judged in &plan.judged {
        for (place, policy) in policies.iter().enumerate() {
            chart.svg += &line(plan, &chart, judged.model, *policy, place);
        }
    }
    let dots = if plan.other().is_some() { "; dotted by the paper's model" } else { "" };
    chart.closed()
        + &format!(
            "<p class=note>Policies of {nodes} nodes over the rate of accesses, all partitions \
             together{dots}. The upright line is the rate asked about.</p>"
        )
}

fn line(plan: &Plan, chart: &Chart, model: Model, policy: Policy, place: usize) -> String {
    let asked = plan.input.question();
    let effort = evenkeel_planner::duplicates::Effort {
        accesses: ACCESSES,
        accesses_max: ACCESSES,
        ..asked.effort
    };
    let rates: Vec<f64> = (0..=RATES).map(|n| chart.x_max * n as f64 / RATES as f64).collect();
    let level = |&rate: &f64| {
        let rate = Rate::new(rate).ok()?;
        let question = Question { rate, effort, ..asked };
        Some((rate.value(), predict(model, &question, policy).ok()?.nines()))
    };
    let points = run_all(&rates, level, |_| ());
    let at = |(rate, nines): (f64, f64)| format!("{:.1},{:.1} ", chart.x(rate), chart.y(nines));
    let points: String = points.into_iter().flatten().map(at).collect();
    let dots = if model == Model::Paper && plan.other().is_some() {
        " style='stroke-dasharray:2 4'"
    } else {
        ""
    };
    let y = TOP + 18.0 * (place as f64 + 1.0);
    let name = if plan.judged[0].model == model {
        format!("<text class=label x={} y={y}>{policy}</text>", WIDTH - RIGHT + 60.0)
    } else {
        String::new()
    };
    format!(
        "<g class='series c{}'><polyline class=line{dots} points='{points}' />{name}</g>",
        colour(policy.duplicates.get())
    )
}

fn sweep(plan: &Plan) -> String {
    let mut table = "<table class=measures><tr><th>a violation costs<th>cheapest\
                     <th class=number>cost<th>cheapest that keeps the target<th class=number>cost"
        .to_owned();
    for (per_violation, cheapest, best) in plan.sweep() {
        let kept = best.map_or_else(
            || "<td>none<td class=number>".to_owned(),
            |best| {
                let price = cost(plan.cost(best.cost));
                format!("<td>{}<td class=number>{price}", best.policy)
            },
        );
        let _ = write!(
            table,
            "<tr><td>{}<td>{}<td class=number>{}{kept}",
            cost(per_violation),
            cheapest.policy,
            cost(plan.cost(cheapest.cost)),
        );
    }
    table + "</table>"
}

fn night(setups: &[evenkeel_planner::duplicates::night::Setup]) -> String {
    let mut table = "<table class=measures><tr><th>setup<th class=number>nodes\
                     <th class=number>in time<th class=number>late<th class=number>copies\
                     <th class=number>cost<th class=number>with migration"
        .to_owned();
    for setup in setups {
        let _ = write!(
            table,
            "<tr><td>{}<td class=number>{}<td class=number>{}<td class=number>{}\
             <td class=number>{} + {}<td class=number>{}<td class=number>{}",
            setup.idea.name(),
            setup.nodes,
            level(setup.violations),
            count(setup.late),
            setup.copies_down,
            setup.copies_back,
            cost(setup.cost),
            cost(setup.cost_with_migration),
        );
    }
    table + "</table>"
}
