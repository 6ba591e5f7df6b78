//! Runs as dots: one measure over another, a colour for each policy, a ring at each mean.

use std::fmt::Write as _;

use evenkeel_papers::figure::{MeasuresFigure, MeasuresPanel, MeasuresRow, Named};

use super::chart::{Colours, Scale, levels, tick_in, uprights};
use super::number::value;
use crate::html::{escape, svg};

const HEIGHT: f64 = 310.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 46.0;

/// The last measure over the one at `across`.
pub(super) fn drawing(
    figure: &MeasuresFigure,
    panel: &MeasuresPanel,
    across: usize,
    width: f64,
    colours: &Colours<'_>,
) -> String {
    let up = figure.measures.len() - 1;
    let runs = |measure: usize| panel.rows.iter().flat_map(move |row| &row.runs[measure]).copied();
    let x = Scale::around(runs(across), LEFT, width - RIGHT);
    let y = Scale::around(runs(up), HEIGHT - BOTTOM, 10.0);
    let (right, above) = (&figure.measures[across], &figure.measures[up]);
    let mut svg = svg(width, HEIGHT, &format!("{} over {}", above.words, right.words));
    svg += &grid(&x, &y, right, above);
    for row in &panel.rows {
        svg += &cloud(row, (across, right), (up, above), &x, &y, colours(&row.policy));
    }
    svg + "</svg>"
}

fn grid(x: &Scale, y: &Scale, right: &Named, above: &Named) -> String {
    let mut svg = levels(y, (x.from, x.to), above.unit);
    svg += &uprights(x, (y.to, y.from), |tick| tick_in(tick, right.unit));
    let name = |named: &Named| escape(&format!("{}, {}", named.words, named.unit.name()));
    let (middle, low) = (f64::midpoint(x.from, x.to), HEIGHT - 8.0);
    let _ = write!(svg, "<text class=tick x={middle} y={low}>{}</text>", name(right));
    let (left, high) = (x.from + 6.0, y.to + 12.0);
    let _ = write!(svg, "<text class=strip x={left} y={high}>{}</text>", name(above));
    svg
}

fn cloud(
    row: &MeasuresRow,
    (across, right): (usize, &Named),
    (up, above): (usize, &Named),
    x: &Scale,
    y: &Scale,
    colour: usize,
) -> String {
    let mut svg = format!("<g class='series c{colour}'>");
    let reported = |name: &Named, number: f64| {
        format!("{} {} {}", name.words, value(number, name.unit), name.unit.name())
    };
    for (one, other) in row.runs[across].iter().zip(&row.runs[up]) {
        let _ = write!(
            svg,
            "<circle class=run cx={:.1} cy={:.1} r=3.6><title>{}: {}, {}</title></circle>",
            x.at(*one),
            y.at(*other),
            escape(&row.label),
            escape(&reported(right, *one)),
            escape(&reported(above, *other)),
        );
    }
    if let (Some(one), Some(other)) = (&row.means[across], &row.means[up]) {
        let (x, y) = (x.at(one.mean), y.at(other.mean));
        let _ = write!(svg, "<circle class=ring cx={x:.1} cy={y:.1} r=8.5 />");
    }
    svg + "</g>"
}
