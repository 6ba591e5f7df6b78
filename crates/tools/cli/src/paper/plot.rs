//! Plots made of characters: strips over time, dots in a grid.

use evenkeel_papers::figure::{MeasuresFigure, MeasuresPanel, Phase, Strip, TimeFigure};
use evenkeel_papers::unit::Unit;

use super::number::value;

const NAMES: usize = 26;
const COLUMNS: usize = 72;
const ROWS: usize = 14;

/// Every strip of a figure in time: a row of bars for each policy, the phases beneath.
pub(super) fn timeline(figure: &TimeFigure) -> String {
    let mut text = String::new();
    let end_s = figure.until_s.last().copied().unwrap_or_default();
    for panel in &figure.panels {
        if !panel.label.is_empty() {
            text += &format!("\n{}\n", panel.label);
        }
        for strip in &panel.strips {
            text += &bars(strip);
        }
        text += &format!("{:NAMES$} {}\n", "", ruler(&panel.phases, end_s));
        let ends =
            format!("{:<half$}{:>half$}", "0 s", format!("{end_s:.0} s"), half = COLUMNS / 2);
        text += &format!("{:NAMES$} {ends}\n", "");
    }
    text
}

fn bars(strip: &Strip) -> String {
    let unit = strip.measure.unit;
    let all = strip.series.iter().flat_map(|series| series.values.iter().flatten());
    let high = all.map(|interval| interval.mean).fold(0.0, f64::max);
    let full = if unit == Unit::Share { 1.0 } else { high };
    let top = format!("full bar = {} {}", value(full, unit), unit.name());
    let mut text = format!("\n{} ({top})\n", strip.measure.words);
    for series in &strip.series {
        let values: Vec<Option<f64>> =
            series.values.iter().map(|interval| interval.map(|interval| interval.mean)).collect();
        let row: String = squeezed(&values).into_iter().map(|value| bar(value, full)).collect();
        let row = format!("{:>NAMES$} {row}", clipped(&series.label, NAMES));
        text += &format!("{}\n", row.trim_end());
    }
    text
}

/// At most as many values as there are columns: averages of neighbours.
fn squeezed(values: &[Option<f64>]) -> Vec<Option<f64>> {
    let column = |column: usize| {
        let from = column * values.len() / COLUMNS;
        let to = ((column + 1) * values.len() / COLUMNS).max(from + 1).min(values.len());
        let known: Vec<f64> = values.get(from..to)?.iter().filter_map(|value| *value).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    };
    (0..COLUMNS).map(column).collect()
}

fn bar(value: Option<f64>, full: f64) -> char {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let Some(value) = value else { return '·' };
    let share = if full > 0.0 { (value / full).clamp(0.0, 1.0) } else { 0.0 };
    // What is not nothing is seen.
    let least = usize::from(value > 0.0);
    BARS[((share * 8.0).round() as usize).max(least)]
}

/// Where each phase begins, and what it is, as far as there is room.
fn ruler(phases: &[Phase], end_s: f64) -> String {
    let mut ruler = String::new();
    let mut used = 0;
    for (number, phase) in phases.iter().enumerate() {
        let at = |time_s: f64| (time_s / end_s * COLUMNS as f64).round() as usize;
        let (from, to) = (at(phase.from_s), at(phase.to_s));
        let room = to.saturating_sub(from.max(used));
        if from < used || room < 2 {
            continue;
        }
        ruler += &" ".repeat(from - used);
        let is_followed = phases.get(number + 1).is_some_and(|next| next.from_s <= phase.to_s);
        let text = format!("└{}", clipped(&phase.label, room - 1 - usize::from(!is_followed)));
        used = from + text.chars().count();
        ruler += &text;
        if !is_followed && used < to {
            ruler += &format!("{:>width$}", "┘", width = to - used);
            used = to;
        }
    }
    ruler
}

fn clipped(text: &str, width: usize) -> String {
    text.chars().take(width).collect()
}

/// A panel's runs as letters in a grid: the last measure upwards, one of the others to the right.
pub(super) fn scatter(figure: &MeasuresFigure, panel: &MeasuresPanel) -> String {
    let last = figure.measures.len() - 1;
    (0..last).map(|across| grid(figure, panel, across, last)).collect()
}

fn grid(figure: &MeasuresFigure, panel: &MeasuresPanel, across: usize, up: usize) -> String {
    let x = ends(panel, across);
    let y = ends(panel, up);
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    for (letter, row) in ('a'..='z').zip(&panel.rows) {
        for (right, above) in row.runs[across].iter().zip(&row.runs[up]) {
            let column = place(*right, x, COLUMNS);
            cells[ROWS - 1 - place(*above, y, ROWS)][column] = letter;
        }
    }
    let unit = |measure: usize| figure.measures[measure].unit;
    let tick = |end: f64, measure: usize| format!("{:>8}", value(end, unit(measure)));
    let mut text = format!("\n{} {}\n", figure.measures[up].words, unit(up).name());
    for (number, row) in cells.iter().enumerate() {
        let label = match number {
            0 => tick(y.1, up),
            n if n == ROWS - 1 => tick(y.0, up),
            _ => String::new(),
        };
        let row: String = row.iter().collect();
        text += &format!("{label:>8} │{}\n", row.trim_end());
    }
    let ends = [tick(x.0, across), tick(x.1, across)].map(|text| text.trim().to_owned());
    let name = format!("{} {}", figure.measures[across].words, unit(across).name());
    let width = COLUMNS.saturating_sub(ends[0].len() + ends[1].len());
    text += &format!("{:>8} └{}\n", "", "─".repeat(COLUMNS));
    text + &format!("{:>8}  {}{name:^width$}{}\n", "", ends[0], ends[1])
}

/// The least and the greatest value of a measure in a panel.
fn ends(panel: &MeasuresPanel, measure: usize) -> (f64, f64) {
    let all = panel.rows.iter().flat_map(|row| &row.runs[measure]);
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(*value), high.max(*value))
    });
    if low <= high { (low, high) } else { (0.0, 1.0) }
}

fn place(value: f64, (low, high): (f64, f64), count: usize) -> usize {
    let share = if high > low { (value - low) / (high - low) } else { 0.5 };
    ((share * (count - 1) as f64).round() as usize).min(count - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_papers::figure::{MeasuresRow, Named, Series, TimePanel};
    use evenkeel_papers::stats::Interval;

    fn named(unit: Unit) -> Named {
        Named { words: "m".to_owned(), unit }
    }

    #[test]
    fn bars_are_as_high_as_their_values() {
        let interval = |mean: f64| Some(Interval { mean, low: mean, high: mean, seeds: 2 });
        let values = (0..COLUMNS * 2).map(|n| interval(if n < COLUMNS { 0.5 } else { 1.0 }));
        let values = values.collect();
        let series = Series { policy: "p".to_owned(), label: "P".to_owned(), values };
        let strips = vec![Strip { measure: named(Unit::Share), series: vec![series] }];
        let phase =
            |from_s, to_s, label: &str| Phase { from_s, to_s, label: label.to_owned(), depth: 0.5 };
        let phases = vec![phase(16.0, 32.0, "4 of 5"), phase(32.0, 48.0, "3 of 5")];
        let panels = vec![TimePanel { label: String::new(), phases, strips }];
        let until_s = (1..=COLUMNS).map(|n| n as f64).collect();
        let figure = TimeFigure { id: "f".to_owned(), title: "t".to_owned(), until_s, panels };
        let text = timeline(&figure);
        let bars = "▄".repeat(COLUMNS / 2) + &"█".repeat(COLUMNS / 2);
        assert!(text.contains(&format!("P {bars}\n")), "{text}");
        let line = text.lines().find(|line| line.contains('└')).unwrap();
        let column = |c: char| line.chars().position(|known| known == c).unwrap() - NAMES - 1;
        assert_eq!((column('└'), column('┘')), (16, 47), "{text}");
    }

    #[test]
    fn dots_are_where_their_values_are() {
        let row = |label: &str, runs: [[f64; 2]; 2]| MeasuresRow {
            policy: label.to_owned(),
            label: label.to_owned(),
            means: vec![None, None],
            runs: runs.map(Vec::from).to_vec(),
        };
        let rows = vec![row("A", [[10.0, 10.0], [0.5, 0.5]]), row("B", [[20.0, 20.0], [0.9, 0.9]])];
        let panel = MeasuresPanel { label: String::new(), rows };
        let figure = MeasuresFigure {
            id: "f".to_owned(),
            title: "t".to_owned(),
            is_scatter: true,
            measures: vec![named(Unit::Ms), named(Unit::Share)],
            panels: vec![],
        };
        let text = scatter(&figure, &panel);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].starts_with("    90.0 │") && lines[2].ends_with('b'), "{text}");
        assert_eq!(lines[ROWS + 1], "    50.0 │a", "{text}");
    }
}
