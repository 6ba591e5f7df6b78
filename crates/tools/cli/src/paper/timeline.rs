//! Measures over time as a drawing: strips one above the other, on shaded phases.

use std::fmt::Write as _;

use evenkeel_papers::figure::{Phase, Series, Strip, TimeFigure, TimePanel};
use evenkeel_papers::stats::Interval;
use evenkeel_papers::unit::Unit;

use super::chart::{Colours, Scale, banded, end_labels, levels};
use super::number::{tick_text, value};
use crate::html::{escape, svg};

const STRIP: f64 = 178.0;
const GAP: f64 = 34.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 40.0;
const LEFT: f64 = 52.0;
const NAMES: f64 = 190.0;

/// One panel.
pub(super) fn drawing(
    figure: &TimeFigure,
    panel: &TimePanel,
    width: f64,
    colours: &Colours<'_>,
) -> String {
    let strips = panel.strips.len() as f64;
    let height = TOP + strips * STRIP + (strips - 1.0) * GAP + BOTTOM;
    let end_s = figure.until_s.last().copied().unwrap_or(1.0);
    let x = Scale::linear(0.0, end_s, LEFT, width - NAMES);
    let mut svg = svg(width, height, &format!("{} {}", figure.title, panel.label));
    for (number, strip) in panel.strips.iter().enumerate() {
        let top = TOP + number as f64 * (STRIP + GAP);
        let is_first = number == 0;
        svg += &shades(&panel.phases, &x, top, is_first);
        svg += &strip_drawing(figure, strip, &x, top, colours);
    }
    let bottom = height - BOTTOM;
    for tick in x.ticks() {
        let (at, below) = (x.at(tick), bottom + 17.0);
        let _ = write!(svg, "<text class=tick x={at:.1} y={below}>{}</text>", tick_text(tick));
    }
    let (middle, low) = (f64::midpoint(x.from, x.to), height - 5.0);
    let _ = write!(svg, "<text class=tick x={middle} y={low}>time, s</text>");
    svg + "</svg>"
}

/// The phases behind a strip, darker the graver; their names above the first.
fn shades(phases: &[Phase], x: &Scale, top: f64, is_named: bool) -> String {
    let shade = |phase: &Phase| {
        let (from, to) = (x.at(phase.from_s), x.at(phase.to_s));
        let mut svg = format!(
            "<rect class=phase x={from:.1} y={top} width={:.1} height={STRIP} opacity={:.2} />",
            to - from,
            phase.depth,
        );
        if is_named {
            let (middle, above) = (f64::midpoint(from, to), top - 8.0);
            let label = escape(&phase.label);
            let _ = write!(svg, "<text class=tick x={middle:.1} y={above}>{label}</text>");
        }
        svg
    };
    phases.iter().map(shade).collect()
}

fn strip_drawing(
    figure: &TimeFigure,
    strip: &Strip,
    x: &Scale,
    top: f64,
    colours: &Colours<'_>,
) -> String {
    let y = upward(strip, top);
    let unit = strip.measure.unit;
    let mut svg = levels(&y, (x.from, x.to), unit);
    let name = format!("{}, {}", strip.measure.words, unit.name());
    // Above the strip, and above the names of the phases where these stand.
    let above = if top > TOP { top - 10.0 } else { top - 28.0 };
    let _ = write!(svg, "<text class=strip x={} y={above:.1}>{}</text>", x.from, escape(&name));
    for series in &strip.series {
        svg += &line(figure, series, unit, colours(&series.policy), x, &y);
    }
    svg + &end_labels(&strip.series, x.to + 10.0, (top + 8.0, top + STRIP), &y, colours)
}

/// Shares from 0 to all, counts from 0 up, latencies in factors.
fn upward(strip: &Strip, top: f64) -> Scale {
    let (bottom, top) = (top + STRIP, top + 4.0);
    let values = || strip.series.iter().flat_map(|series| series.values.iter().flatten());
    match strip.measure.unit {
        Unit::Share => Scale::linear(0.0, 1.0, bottom, top),
        Unit::Ms => Scale::over(values().flat_map(|i| [i.low, i.high]), bottom, top),
        _ => {
            let high = values().map(|interval| interval.high).fold(0.0, f64::max);
            Scale::linear(0.0, if high > 0.0 { high * 1.05 } else { 1.0 }, bottom, top)
        }
    }
}

fn line(
    figure: &TimeFigure,
    series: &Series,
    unit: Unit,
    colour: usize,
    x: &Scale,
    y: &Scale,
) -> String {
    let starts = core::iter::once(0.0).chain(figure.until_s.iter().copied());
    let middles = starts.zip(&figure.until_s).map(|(from, to)| f64::midpoint(from, *to));
    let known: Vec<(f64, Interval)> =
        middles.zip(&series.values).filter_map(|(at, i)| Some((x.at(at), (*i)?))).collect();
    let values = || known.iter().map(|(_, interval)| interval.mean);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    format!(
        "<g class='series c{colour}'><title>{}: {} to {} {}</title>{}</g>",
        escape(&series.label),
        value(low, unit),
        value(high, unit),
        unit.name(),
        banded(&known, y),
    )
}
