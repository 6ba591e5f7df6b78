//! Charts as SVG: lines with interval bands, dots with whiskers, ratios beside what was claimed.
//!
//! Latencies and ratios are drawn on logarithmic axes: a tail twice as long is the same step
//! everywhere, and an interval of ratios is as long to the left as to the right.

use std::fmt::Write as _;

use evenkeel_papers::figure::{AxisFigure, FigurePanel, Series};
use evenkeel_papers::judge::{Finding, Kind};
use evenkeel_papers::stats::{Interval, Range};
use evenkeel_papers::unit::Unit;

use super::number::{result as result_text, result_unit, tick_text, value, welch};
use super::text::mark;
use crate::html::{escape, svg};

/// A number of each policy, the same on the whole page: it chooses the colour.
pub(super) type Colours<'a> = dyn Fn(&str) -> usize + 'a;

/// A panel as a drawing: lines along three or more points, dots along fewer.
pub(super) fn panel(
    figure: &AxisFigure,
    panel: &FigurePanel,
    width: f64,
    colours: &Colours<'_>,
) -> String {
    if figure.points.len() > 2 {
        lines(figure, panel, width, colours)
    } else {
        dots(figure, panel, width, colours)
    }
}

/// Where values are on a line.
pub(super) struct Scale {
    low: f64,
    high: f64,
    /// Where it begins on the drawing.
    pub(super) from: f64,
    /// Where it ends.
    pub(super) to: f64,
    /// Equal factors are equal lengths; equal differences otherwise.
    is_logarithmic: bool,
}

impl Scale {
    /// A logarithmic one that spans what is given, with a little room at both ends.
    pub(super) fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let positive = values.filter(|value| value.is_finite() && *value > 0.0);
        let (low, high) = positive
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        let (low, high) = if high > 0.0 { (low, high) } else { (0.5, 2.0) };
        let room = (high / low).max(1.2).powf(0.04);
        Self { low: low / room, high: high * room, from, to, is_logarithmic: true }
    }

    /// A linear one from `low` to `high`.
    pub(super) fn linear(low: f64, high: f64, from: f64, to: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, from, to, is_logarithmic: false }
    }

    /// A linear one that spans what is given, with a little room at both ends.
    pub(super) fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if low > high {
            return Self::linear(0.0, 1.0, from, to);
        }
        let room = ((high - low) * 0.06).max(high.abs() * 1e-3).max(1e-9);
        Self::linear(low - room, high + room, from, to)
    }

    /// Where a value is; what lies outside is at an end.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        self.from + (self.to - self.from) * share.clamp(0.0, 1.0)
    }

    /// Round numbers on it.
    pub(super) fn ticks(&self) -> Vec<f64> {
        if self.is_logarithmic { self.factors() } else { self.steps() }
    }

    /// 1, 2 and 5 of each decade, more finely when that is less than three; equal steps when the
    /// whole scale is too short for any of that.
    fn factors(&self) -> Vec<f64> {
        let within = |steps: &[f64]| -> Vec<f64> {
            let decades = -4..7;
            let all = decades.flat_map(|decade| steps.iter().map(move |s| s * 10_f64.powi(decade)));
            all.filter(|tick| (self.low..=self.high).contains(tick)).collect()
        };
        let coarse = within(&[1.0, 2.0, 5.0]);
        let fine: &[f64] = &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0];
        let fine = if coarse.len() >= 3 { coarse } else { within(fine) };
        if fine.len() >= 2 { fine } else { self.steps() }
    }

    /// Multiples of the least round step that makes at most six of them.
    fn steps(&self) -> Vec<f64> {
        let span = self.high - self.low;
        let decade = 10_f64.powf((span / 6.0).log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|step| step * decade);
        let step = step.into_iter().find(|step| span / step <= 6.0).unwrap_or(span);
        let (first, last) = ((self.low / step - 1e-9).ceil(), (self.high / step + 1e-9).floor());
        let count = (last - first) as i64;
        (0..=count).map(|number| (first + number as f64) * step).collect()
    }
}

/// As [`tick_text`], shares in percent.
pub(super) fn tick_in(value: f64, unit: Unit) -> String {
    tick_text(if unit == Unit::Share { value * 100.0 } else { value })
}

/// Lines across at the round numbers of an upright scale, each with its number at the left.
pub(super) fn levels(y: &Scale, (left, right): (f64, f64), unit: Unit) -> String {
    let level = |tick: f64| {
        let at = y.at(tick);
        format!(
            "<line class=grid x1={left} x2={right} y1={at:.1} y2={at:.1} />\
             <text class='tick end' x={} y={:.1}>{}</text>",
            left - 6.0,
            at + 4.0,
            tick_in(tick, unit),
        )
    };
    y.ticks().into_iter().map(level).collect()
}

/// Upright lines at the round numbers of a scale, each with its number in words beneath.
pub(super) fn uprights(
    x: &Scale,
    (top, bottom): (f64, f64),
    words: impl Fn(f64) -> String,
) -> String {
    let line = |tick: f64| {
        let (at, text, below) = (x.at(tick), words(tick), bottom + 18.0);
        format!(
            "<line class=grid x1={at:.1} x2={at:.1} y1={top} y2={bottom} />\
             <text class=tick x={at:.1} y={below}>{text}</text>"
        )
    };
    x.ticks().into_iter().map(line).collect()
}

/// A line through means, on a band of their intervals; each with its place from the left.
pub(super) fn banded(known: &[(f64, Interval)], y: &Scale) -> String {
    let point = |x: f64, value: f64| format!("{x:.1},{:.1} ", y.at(value));
    let upper = known.iter().map(|(x, i)| point(*x, i.high));
    let lower = known.iter().rev().map(|(x, i)| point(*x, i.low));
    let band: String = upper.chain(lower).collect();
    let line: String = known.iter().map(|(x, i)| point(*x, i.mean)).collect();
    format!("<polygon class=band points='{band}' /><polyline class=line points='{line}' />")
}

/// The ends of all intervals of a figure: its panels have one scale, so that they can be compared.
fn ends(figure: &AxisFigure) -> impl Iterator<Item = f64> {
    let series = figure.panels.iter().flat_map(|panel| &panel.series);
    let all = series.flat_map(|series| series.values.iter().flatten());
    all.flat_map(|interval| [interval.low.max(interval.mean / 3.0), interval.high])
}

const LINES_HEIGHT: f64 = 300.0;

fn lines(figure: &AxisFigure, panel: &FigurePanel, width: f64, colours: &Colours<'_>) -> String {
    let is_alone = figure.panels.len() == 1;
    let right = width - if is_alone { 190.0 } else { 16.0 };
    let bottom = LINES_HEIGHT - 42.0;
    let y = Scale::over(ends(figure), bottom, 12.0);
    let count = figure.points.len();
    let x = |point: usize| 52.0 + (right - 64.0) * point as f64 / (count - 1) as f64;
    let mut svg = svg(width, LINES_HEIGHT, &format!("{} {}", figure.title, panel.label));
    svg += &levels(&y, (44.0, right), figure.measure.unit);
    let every = count.div_ceil(10);
    for (point, label) in figure.points.iter().enumerate().step_by(every) {
        let (x, y) = (x(point), bottom + 18.0);
        let _ = write!(svg, "<text class=tick x={x:.1} y={y}>{label}</text>");
    }
    let (middle, low) = ((right + 44.0) / 2.0, LINES_HEIGHT - 6.0);
    let _ = write!(svg, "<text class=tick x={middle} y={low}>{}</text>", escape(&figure.axis));
    for series in &panel.series {
        draw_line(&mut svg, figure, series, colours(&series.policy), &x, &y);
    }
    if is_alone {
        svg += &end_labels(&panel.series, right + 10.0, (14.0, LINES_HEIGHT - 42.0), &y, colours);
    }
    svg + "</svg>"
}

fn draw_line(
    svg: &mut String,
    figure: &AxisFigure,
    series: &Series,
    colour: usize,
    x: &impl Fn(usize) -> f64,
    y: &Scale,
) {
    let known = || series.values.iter().enumerate().filter_map(|(n, i)| Some((n, (*i)?)));
    let places: Vec<(f64, Interval)> = known().map(|(n, interval)| (x(n), interval)).collect();
    let _ = write!(svg, "<g class='series c{colour}'>{}", banded(&places, y));
    for (n, interval) in known() {
        let _ = write!(
            svg,
            "<circle cx={:.1} cy={:.1} r=3><title>{} at {}: {}</title></circle>",
            x(n),
            y.at(interval.mean),
            escape(&series.label),
            escape(&figure.points[n]),
            reported(&interval, figure.measure.unit),
        );
    }
    *svg += "</g>";
}

fn reported(interval: &Interval, unit: Unit) -> String {
    let Interval { mean, low, high, seeds } = interval;
    let [mean, low, high] = [mean, low, high].map(|number| value(*number, unit));
    format!("{mean} {}, 95 % interval {low} to {high}, {seeds} seeds", unit.name())
}

/// The policies' names at the ends of their lines, moved apart where they would overlap.
pub(super) fn end_labels(
    all: &[Series],
    x: f64,
    (top, bottom): (f64, f64),
    y: &Scale,
    colours: &Colours<'_>,
) -> String {
    const APART: f64 = 16.0;
    let last = |series: &Series| series.values.iter().rev().flatten().next().map(|i| y.at(i.mean));
    let mut labels: Vec<(f64, &Series)> =
        all.iter().filter_map(|series| Some((last(series)?, series))).collect();
    labels.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free_from = top;
    for (at, _) in &mut labels {
        *at = at.max(free_from);
        free_from = *at + APART;
    }
    let mut free_to = bottom;
    for (at, _) in labels.iter_mut().rev() {
        *at = at.min(free_to);
        free_to = *at - APART;
    }
    let text = |(at, series): &(f64, &Series)| {
        let colour = colours(&series.policy);
        let at = at + 4.0;
        format!("<text class='label c{colour}' x={x} y={at:.1}>{}</text>", escape(&series.label))
    };
    labels.iter().map(text).collect()
}

const ROW: f64 = 26.0;
const NAMES: f64 = 190.0;

fn dots(figure: &AxisFigure, panel: &FigurePanel, width: f64, colours: &Colours<'_>) -> String {
    let height = ROW * panel.series.len() as f64 + 34.0;
    let x = Scale::over(ends(figure), NAMES + 10.0, width - 16.0);
    let mut svg = svg(width, height, &format!("{} {}", figure.title, panel.label));
    let bottom = height - 26.0;
    svg += &uprights(&x, (0.0, bottom), tick_text);
    for (row, series) in panel.series.iter().enumerate() {
        let middle = ROW * (row as f64 + 0.5);
        let _ = write!(
            svg,
            "<g class='series c{}'><text class='name' x={NAMES} y={:.1}>{}</text>",
            colours(&series.policy),
            middle + 4.0,
            escape(&series.label),
        );
        for (point, interval) in series.values.iter().enumerate() {
            let Some(interval) = interval else { continue };
            let apart = if series.values.len() > 1 { 5.0 } else { 0.0 };
            let y = middle + apart * (2.0 * point as f64 - 1.0);
            let _ = write!(
                svg,
                "<line class=whisker x1={:.1} x2={:.1} y1={y} y2={y} />\
                 <circle class=dot{point} cx={:.1} cy={y} r=4.5><title>{}: {}</title></circle>",
                x.at(interval.low),
                x.at(interval.high),
                x.at(interval.mean),
                escape(&figure.points[point]),
                reported(interval, figure.measure.unit),
            );
        }
        svg += "</g>";
    }
    svg + "</svg>"
}

const FOREST_ROW: f64 = 22.0;
const FOREST_NAMES: f64 = 430.0;

/// Results with their intervals, over the range claimed; `all` sets the scale, so that the drawings
/// of one claim can be compared.
pub(super) fn forest(findings: &[&Finding], all: &[Finding], unit: Unit, width: f64) -> String {
    let height = FOREST_ROW * findings.len() as f64 + 30.0;
    let bottom = height - 26.0;
    let has_tests = all.iter().any(|finding| finding.welch.is_some());
    let right = width - if has_tests { 310.0 } else { 150.0 };
    let x = forest_scale(all, unit, right);
    let mut svg = svg(width, height, "results beside what was claimed");
    for (row, finding) in findings.iter().enumerate() {
        svg += &claimed_range(&x, &finding.claimed, FOREST_ROW * row as f64);
    }
    svg += &forest_grid(&x, bottom, all, unit);
    for (row, finding) in findings.iter().enumerate() {
        forest_row(&mut svg, finding, unit, &x, FOREST_ROW * (row as f64 + 0.5), width);
    }
    svg + "</svg>"
}

/// Ratios and latencies in factors, shares and differences in steps.
fn forest_scale(all: &[Finding], unit: Unit, right: f64) -> Scale {
    let results = all.iter().filter_map(|finding| finding.result);
    let claimed = all.iter().flat_map(|f| [f.claimed.at_least, f.claimed.at_most]);
    let values = results.flat_map(|interval| [interval.low, interval.high]).chain(claimed);
    if all.iter().any(|finding| is_linear(finding.kind, unit)) {
        Scale::around(values, FOREST_NAMES + 12.0, right)
    } else {
        Scale::over(values, FOREST_NAMES + 12.0, right)
    }
}

fn is_linear(kind: Kind, unit: Unit) -> bool {
    match kind {
        Kind::Value => matches!(unit, Unit::Share | Unit::Seconds | Unit::PerSecond),
        Kind::Difference => true,
        Kind::Ratio => false,
    }
}

/// The grid in what the results are shown in: percentages, points.
fn forest_grid(x: &Scale, bottom: f64, all: &[Finding], unit: Unit) -> String {
    let kind = all.first().map_or(Kind::Value, |finding| finding.kind);
    let factor = if unit == Unit::Share && kind != Kind::Ratio { 100.0 } else { 1.0 };
    let unit = result_unit(kind, unit);
    let lines = uprights(x, (0.0, bottom), |tick| tick_text(tick * factor));
    let (at, below) = (x.from - 12.0, bottom + 18.0);
    lines + &format!("<text class='tick end' x={at} y={below}>{unit}</text>")
}

fn claimed_range(x: &Scale, range: &Range, top: f64) -> String {
    let at = |end: f64, open: f64| if end.is_finite() { x.at(end) } else { open };
    let from =
        if x.is_logarithmic && range.at_least <= 0.0 { x.from } else { at(range.at_least, x.from) };
    let to = at(range.at_most, x.to);
    let width = (to - from).max(2.0);
    format!("<rect class=claimed x={from:.1} y={top} width={width:.1} height={FOREST_ROW} />")
}

fn forest_row(svg: &mut String, finding: &Finding, unit: Unit, x: &Scale, y: f64, width: f64) {
    let name = if finding.point.is_empty() {
        finding.what.clone()
    } else {
        format!("{} · {}", finding.what, finding.point)
    };
    let (text_y, verdict) = (y + 4.0, finding.verdict);
    let _ = write!(svg, "<text class=name x={FOREST_NAMES} y={text_y:.1}>{}</text>", escape(&name));
    let Some(result) = finding.result else {
        let _ = write!(svg, "<text class=value x={width} y={text_y:.1}>no value</text>");
        return;
    };
    let shown = |number: f64| result_text(number, finding.kind, unit);
    let [mean, low, high] = [result.mean, result.low, result.high].map(shown);
    let _ = write!(
        svg,
        "<g class='v{verdict:?}'><line class=whisker x1={:.1} x2={:.1} y1={y} y2={y} />\
         <rect class=mean x={:.1} y={:.1} width=7 height=7>\
         <title>{mean} {}, 95 % interval {low} to {high}, {} seeds</title></rect>\
         <text class=value x={width} y={text_y:.1}>{}{mean} [{low}, {high}] {}</text></g>",
        x.at(result.low),
        x.at(result.high),
        x.at(result.mean) - 3.5,
        y - 3.5,
        result_unit(finding.kind, unit),
        result.seeds,
        finding.welch.as_ref().map_or_else(String::new, |test| welch(test) + " · "),
        mark(verdict),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_makes_equal_factors_equal_lengths() {
        let scale = Scale::over([10.0, 1_000.0].into_iter(), 0.0, 100.0);
        let steps = [10.0, 100.0, 1_000.0].map(|value| scale.at(value));
        assert!((steps[1] - steps[0] - (steps[2] - steps[1])).abs() < 1e-9, "{steps:?}");
        assert_eq!(scale.ticks(), [10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0]);
        assert_eq!((scale.at(1e-9), scale.at(1e9)), (0.0, 100.0), "nothing leaves the drawing");
        let short = Scale::over([1.03, 1.08].into_iter(), 0.0, 100.0).ticks();
        assert!(short.len() >= 3, "{short:?}");
    }

    #[test]
    fn a_scale_over_nothing_is_still_a_scale() {
        let scale = Scale::over([f64::INFINITY, -1.0].into_iter(), 0.0, 100.0);
        assert!(scale.at(1.0).is_finite() && !scale.ticks().is_empty());
        assert!(Scale::over([3.0].into_iter(), 0.0, 1.0).at(3.0).is_finite());
    }

    #[test]
    fn a_linear_scale_has_round_steps() {
        let ticks = |low, high| Scale::linear(low, high, 0.0, 100.0).ticks();
        assert_eq!(ticks(0.0, 1_000.0), [0.0, 200.0, 400.0, 600.0, 800.0, 1_000.0]);
        assert_eq!(ticks(0.0, 1.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(-0.03, 0.021).len(), 6);
        let scale = Scale::linear(-1.0, 1.0, 100.0, 0.0);
        assert_eq!([scale.at(-1.0), scale.at(0.0), scale.at(9.0)], [100.0, 50.0, 0.0]);
        assert!(Scale::around([].into_iter(), 0.0, 1.0).at(3.0).is_finite());
    }

    #[test]
    fn text_cannot_end_its_attribute() {
        assert_eq!(escape("a<b>'&"), "a&lt;b&gt;&#39;&amp;");
    }
}
