//! The report as a page: what each strategy costs, how many servers it has when, and the numbers.
//! One file, no outside resources, light or dark as the reader prefers.

use std::fmt::Write as _;

use evenkeel_sim::capacity::{Capacity, Outcome, Strategy};

use super::{percent, saving, summary, unit};
use crate::html::{escape, svg};
use crate::terminal::count;

const STYLE: &str = include_str!("../../paper/page.css");
const WIDTH: f64 = 960.0;
const LEFT: f64 = 170.0;
const ROW: f64 = 30.0;
/// Points of a line at most.
const POINTS: usize = 480;
const STRIP: f64 = 62.0;
/// Room for the words behind the longest bar.
const WORDS: f64 = 240.0;
/// Height of the axis below the strips.
const AXIS: f64 = 14.0;

/// The whole page.
pub(super) fn page(capacity: &Capacity, outcomes: &[Outcome]) -> String {
    let title = "What it costs to serve this trace";
    let sites = escape(&capacity.names.join(", "));
    let days = capacity.demand.duration().as_secs_f64() / 86_400.0;
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE}</style><main><p class=kicker>evenkeel plan capacity</p><h1>{title}</h1>\
         <p>{sites}: {days:.1} days, {mean:.0} requests/s on average, {peak:.0} at the highest of \
         a site. Servers that were begun to be billed are paid for the whole unit. Demand is known \
         when a step begins, and violations are those of the curves.</p><p>{summary}.</p>",
        mean = capacity.demand.mean_total(),
        peak = capacity.demand.peak(),
        summary = escape(&summary(outcomes)).replace('\n', ".<br>"),
    );
    let mut units: Vec<f64> = outcomes.iter().map(|outcome| outcome.billing_s).collect();
    units.dedup();
    for billing_s in units {
        let here: Vec<&Outcome> =
            outcomes.iter().filter(|outcome| outcome.billing_s == billing_s).collect();
        let name = escape(&unit(here[0]));
        let _ = write!(page, "<h2>Billed by {name}</h2>{}", bars(&here, outcomes));
        let _ = write!(page, "<h3>Servers that serve</h3>{}", strips(&here, days));
        page += &table(&here, outcomes);
    }
    page + "</main></html>\n"
}

/// A bar for each strategy: servers, then WAN.
fn bars(here: &[&Outcome], all: &[Outcome]) -> String {
    let highest = here.iter().map(|outcome| outcome.cost_per_day).fold(0.0, f64::max).max(1e-12);
    let height = ROW * here.len() as f64 + 8.0;
    let mut svg = svg(WIDTH, height, "cost per day by strategy");
    for (row, outcome) in here.iter().enumerate() {
        let y = ROW * row as f64 + 4.0;
        let long = |cost: f64| cost / outcome.cost.max(1e-12) * outcome.cost_per_day / highest;
        let long = |cost: f64| (WIDTH - LEFT - WORDS) * long(cost);
        let (servers, wan) = (long(outcome.server_cost), long(outcome.wan_cost));
        let _ = write!(
            svg,
            "<g><text class=name x={name} y={text}>{}</text>\
             <rect x={LEFT} y={y} width={servers:.1} height=20 fill='var(--c2)' />\
             <rect x={after:.1} y={y} width={wan:.1} height=20 fill='var(--c5)' />\
             <text x={end:.1} y={text}>{:.2} a day{}</text></g>",
            escape(outcome.strategy),
            outcome.cost_per_day,
            against_local(saving(all, outcome)),
            name = LEFT - 10.0,
            text = y + 15.0,
            after = LEFT + servers,
            end = LEFT + servers + wan + 8.0,
        );
    }
    svg + "</svg><p class=note>Blue: servers. Orange: redirected requests. Savings are against \
           each site alone (local); shared is the lower bound, without any way between sites.</p>"
}

fn against_local(saving: f64) -> String {
    match percent(saving.abs()) {
        nothing if nothing == percent(0.0) => String::new(),
        part if saving < 0.0 => format!(", {part} more"),
        part => format!(", saves {part}"),
    }
}

/// A strip for each strategy that scales: serving servers over time, on one scale.
fn strips(here: &[&Outcome], days: f64) -> String {
    let scaled: Vec<&&Outcome> =
        here.iter().filter(|outcome| outcome.strategy != Strategy::Peak.name()).collect();
    let most = scaled.iter().flat_map(|outcome| outcome.servers.iter().copied()).max();
    let most = f64::from(most.unwrap_or(1).max(1));
    let end = STRIP * scaled.len() as f64;
    let mut svg = svg(WIDTH, end + AXIS, "servers over time by strategy");
    for (row, outcome) in scaled.iter().enumerate() {
        let bottom = STRIP * (row + 1) as f64 - 6.0;
        let y = |servers: u32| bottom - (STRIP - 14.0) * f64::from(servers) / most;
        let each = outcome.servers.len().div_ceil(POINTS).max(1);
        let highest = |part: &[u32]| part.iter().copied().max().unwrap_or_default();
        let points: Vec<u32> = outcome.servers.chunks(each).map(highest).collect();
        let wide = (WIDTH - LEFT - 40.0) / points.len() as f64;
        let at = |(n, &servers): (usize, &u32)| {
            let (from, to) = (LEFT + wide * n as f64, LEFT + wide * (n + 1) as f64);
            format!("{from:.1},{y:.1} {to:.1},{y:.1} ", y = y(servers))
        };
        let line: String = points.iter().enumerate().map(at).collect();
        let _ = write!(
            svg,
            "<g class='series c{colour}'><line class=grid x1={LEFT} x2={right} y1={bottom} \
             y2={bottom} /><polyline class=line style='stroke-width:1.3' points='{line}' /></g>\
             <text class=name x={name} y={middle}>{}</text>\
             <text class=tick x={tick} y={top}>{most}</text>",
            escape(outcome.strategy),
            colour = row + 2,
            right = WIDTH - 40.0,
            name = LEFT - 10.0,
            middle = bottom - 16.0,
            tick = WIDTH - 20.0,
            top = bottom - STRIP + 18.0,
        );
    }
    let (right, y) = (WIDTH - 40.0, end + AXIS - 5.0);
    let _ = write!(
        svg,
        "<text class=tick x={LEFT} y={y}>start</text>\
         <text class='tick end' x={right} y={y}>{days:.1} days later</text>"
    );
    svg + "</svg><p class=note>The number beside each line is where it would touch the top; all \
           have the same scale.</p>"
}

fn table(here: &[&Outcome], all: &[Outcome]) -> String {
    let row = |outcome: &&Outcome| {
        format!(
            "<tr><td>{}<td class=number>{:.3}<td class=number>{}<td class=number>{:.1}\
             <td class=number>{:.2}<td class=number>{:.2}<td class=number>{}<td class=number>{}\
             <td class=number>{}",
            escape(outcome.strategy),
            outcome.cost_per_day,
            percent(saving(all, outcome)),
            outcome.server_hours,
            outcome.server_cost,
            outcome.wan_cost,
            count(outcome.wan_requests),
            percent(outcome.violations),
            percent(outcome.steps_within_target),
        )
    };
    let rows: String = here.iter().map(row).collect();
    format!(
        "<table class=measures><tr><th>strategy<th class=number>cost a day<th class=number>saving\
         <th class=number>server-hours<th class=number>for servers<th class=number>for WAN\
         <th class=number>redirected requests<th class=number>late\
         <th class=number>steps within target{rows}</table>"
    )
}
