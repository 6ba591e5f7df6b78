//! The page that `evenkeel replay --html` writes: the day's p99 beside the predicted one, and the
//! tables of the command. No outside resources.

use std::fmt::Write as _;

use evenkeel_replay::day::Ready;
use evenkeel_replay::question::{Question, Reply};

use super::{asked, facts, slowest, table};
use crate::html::{escape, svg};

const STYLE: &str = include_str!("../report.css");
const HEIGHT: f64 = 260.0;
const WIDTH: f64 = 960.0;
const LEFT: f64 = 70.0;

/// The whole page.
pub(super) fn page(ready: &Ready, question: &Question, reply: &Reply) -> String {
    let title = escape(&format!("A recorded day, replayed: {}", asked(question, reply)));
    let mut words = String::new();
    for (name, text) in facts(ready, reply) {
        let _ = write!(words, "<tr><th>{name}<td>{}", escape(&text));
    }
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE} .day {{ fill: none; stroke: var(--q0); stroke-width: 2 }} \
         .then {{ fill: none; stroke: var(--q3); stroke-width: 2 }}</style>\
         <main><h1>{title}</h1><table>{words}</table>\
         <p>p99 over the day, milliseconds on a logarithmic scale: \
         <span style='color:var(--q0)'>recorded</span>, \
         <span style='color:var(--q3)'>{asked}</span>.</p>{chart}\
         <pre>{table}</pre><pre>{slowest}</pre></main></html>\n",
        asked = escape(&asked(question, reply)),
        chart = chart(reply, ready.twin.length_ns()),
        table = escape(&table(question, reply).to_string()),
        slowest = escape(&slowest(reply).to_string()),
    )
}

/// Both days as lines, with gaps where there were too few answers.
fn chart(reply: &Reply, length_ns: u64) -> String {
    let lines = [("day", &reply.recorded_parts), ("then", &reply.answer.parts)];
    let all = || lines.iter().flat_map(|(_, parts)| parts.iter().flatten().map(|ns| *ns as f64));
    let low = all().fold(f64::INFINITY, f64::min).max(1e3);
    let high = all().fold(low * 1.1, f64::max);
    let y = |ns: f64| 10.0 + (HEIGHT - 40.0) * (high / ns).ln() / (high / low).ln();
    let mut svg = svg(WIDTH, HEIGHT, "p99 over the day, recorded and predicted");
    for (ns, align) in [(low, HEIGHT - 32.0), (high, 16.0)] {
        let _ = write!(svg, "<text x=4 y={align:.0}>{} ms</text>", super::ms(ns));
    }
    for (class, parts) in lines {
        let width = (WIDTH - LEFT) / parts.len().max(1) as f64;
        let (mut path, mut is_down) = (String::new(), false);
        for (number, part) in parts.iter().enumerate() {
            let Some(ns) = part else {
                is_down = false;
                continue;
            };
            let (x, y) = (LEFT + width * (number as f64 + 0.5), y(*ns as f64));
            let _ = write!(path, "{}{x:.1} {y:.1}", if is_down { 'L' } else { 'M' });
            is_down = true;
        }
        let _ = write!(svg, "<path class={class} d='{path}' />");
    }
    let minutes = length_ns as f64 / 60e9;
    let bottom = HEIGHT - 8.0;
    let _ = write!(
        svg,
        "<text x={LEFT} y={bottom}>0</text>\
         <text class=name x={WIDTH} y={bottom}>{minutes:.1} min</text></svg>"
    );
    svg
}
