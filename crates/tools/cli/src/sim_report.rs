//! The page that `evenkeel sim --html` writes: one chart, one table, no outside resources.

use std::fmt::Write as _;

use evenkeel_sim::{RunReport, Scenario};

use crate::html::{escape, svg};
use crate::terminal::{count, ms};

const STYLE: &str = include_str!("report.css");
const ROW: f64 = 34.0;
const LEFT: f64 = 250.0;
const WIDTH: f64 = 640.0;
type Quantile = (&'static str, fn(&RunReport) -> f64);
const QUANTILES: [Quantile; 4] = [
    ("p50", |run| run.p50_ms),
    ("p95", |run| run.p95_ms),
    ("p99", |run| run.p99_ms),
    ("p99.9", |run| run.p999_ms),
];

/// The whole page.
pub(crate) fn page(scenario: &Scenario, runs: &[RunReport]) -> String {
    let parameters = serde_json::to_string_pretty(scenario).unwrap_or_default();
    page_of(&scenario.description, &parameters, runs)
}

/// The page of these runs, whatever was simulated; the parameters are JSON.
pub(crate) fn page_of(description: &str, parameters: &str, runs: &[RunReport]) -> String {
    let title = escape(description);
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE}</style><main><h1>{title}</h1>\
         <p>Latency from arrival to answer, milliseconds on a logarithmic scale; \
         every policy met the same requests.</p>{chart}{table}\
         <details><summary>Every parameter as resolved</summary><pre>{parameters}</pre></details>\
         </main></html>\n",
        chart = chart(runs),
        table = table(runs),
        parameters = escape(parameters),
    )
}

/// A line per run from p50 to p99.9, with a mark at each quantile.
fn chart(runs: &[RunReport]) -> String {
    let all = || runs.iter().flat_map(|run| QUANTILES.map(|(_, of)| of(run)));
    let low = all().fold(f64::INFINITY, f64::min).max(1e-3);
    let high = all().fold(low * 1.01, f64::max);
    let x = |value: f64| LEFT + WIDTH * (value.max(low) / low).ln() / (high / low).ln();
    let height = ROW * (runs.len() as f64 + 1.5);
    let mut svg = svg(960.0, height, "latency quantiles by policy");
    for decade in -3..7 {
        for step in [1.0, 2.0, 5.0] {
            let value = step * 10_f64.powi(decade);
            if (low..=high).contains(&value) {
                let (x, bottom) = (x(value), height - ROW);
                let _ = write!(
                    svg,
                    "<line class=grid x1={x:.1} x2={x:.1} y1=0 y2={bottom} />\
                     <text class=tick x={x:.1} y={y}>{value}</text>",
                    y = height - 12.0,
                );
            }
        }
    }
    for (number, run) in runs.iter().enumerate() {
        draw_run(&mut svg, run, ROW * (number as f64 + 0.7), &x);
    }
    svg + "</svg>"
}

fn draw_run(svg: &mut String, run: &RunReport, y: f64, x: &impl Fn(f64) -> f64) {
    let (from, to) = (x(run.p50_ms), x(run.p999_ms));
    let name = format!("{} · seed {}", run.policy, run.seed);
    let _ = write!(
        svg,
        "<text class=name x={left} y={text_y}>{name}</text>\
         <line class=range x1={from:.1} x2={to:.1} y1={y} y2={y} />",
        left = LEFT - 14.0,
        text_y = y + 4.0,
        name = escape(&name),
    );
    for (number, (label, of)) in QUANTILES.iter().enumerate() {
        let _ = write!(
            svg,
            "<circle class=q{number} cx={:.1} cy={y} r=5.5><title>{label} {} ms</title></circle>",
            x(of(run)),
            ms(of(run)),
        );
    }
}

fn table(runs: &[RunReport]) -> String {
    let mut rows = String::new();
    for run in runs {
        let cells = QUANTILES.map(|(_, of)| format!("<td>{}", ms(of(run)))).concat();
        let speed = run.requests_per_cpu_s.map_or_else(String::new, count);
        let _ = write!(
            rows,
            "<tr><th>{}<td>{}<td>{}<td>{}<td>{}<td>{:.1} %<td>{}{cells}<td>{}<td>{speed}",
            escape(&run.policy),
            run.seed,
            run.requests,
            run.served,
            run.failed + run.timeouts,
            100.0 * run.optional_ratio,
            ms(run.mean_ms),
            ms(run.max_ms),
        );
    }
    format!(
        "<table><tr><th>policy<th>seed<th>requests<th>served<th>failed<th>optional\
         <th>mean\
         <th class=q0>p50<th class=q1>p95<th class=q2>p99<th class=q3>p99.9<th>max\
         <th>requests per CPU s{rows}</table>"
    )
}
