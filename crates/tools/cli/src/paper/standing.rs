//! How policies stand, as text: all settings together first, then each.

use evenkeel_papers::figure::Named;
use evenkeel_papers::standing::{
    Extreme, Latency, Overall, OverallLatency, StandingFigure, StandingPanel, StandingSetting,
};
use evenkeel_papers::stats::Interval;

use super::number::value;
use crate::terminal::{Table, ms};

pub(super) fn text(figure: &StandingFigure) -> String {
    let mut text = format!(
        "ratios are paired, geometric means ± half the 95 % interval; beside {} and beside the best \
         peer of each\nsetting, chosen afterwards\n",
        figure.yardstick
    );
    for panel in &figure.panels {
        text += &format!("\n{}\n{}", overall_title(panel), overall(figure, panel));
    }
    for panel in &figure.panels {
        for setting in &panel.settings {
            text += &format!("\n{}", each(figure, panel, setting));
        }
    }
    text
}

fn overall_title(panel: &StandingPanel) -> String {
    let comma = if panel.label.is_empty() { "" } else { ", " };
    format!("{}{comma}all {} settings", panel.label, panel.settings.len())
}

fn overall(figure: &StandingFigure, panel: &StandingPanel) -> Table {
    let mut header = vec!["".to_owned()];
    for latency in &figure.latencies {
        header.push(format!("{} / {}", short(latency), figure.yardstick));
        header.push("worst".to_owned());
    }
    for latency in figure.latencies.iter().skip(1) {
        header.push(format!("{} / peer, worst", short(latency)));
    }
    header.extend(figure.costs.iter().map(cost_name));
    let mut table = table(&header);
    for row in &panel.overall {
        table.row(overall_row(figure, row));
    }
    table
}

fn overall_row(figure: &StandingFigure, row: &Overall) -> Vec<String> {
    let mut cells = vec![row.label.clone()];
    for OverallLatency { over_yardstick, worst, .. } in &row.latencies {
        cells.extend([ratio(over_yardstick.as_ref()), extreme(worst.as_ref())]);
    }
    for OverallLatency { worst_beside_peer, .. } in row.latencies.iter().skip(1) {
        cells.push(extreme(worst_beside_peer.as_ref()));
    }
    cells.extend(costs(figure, &row.costs));
    cells
}

fn each(figure: &StandingFigure, panel: &StandingPanel, setting: &StandingSetting) -> Table {
    let comma = if panel.label.is_empty() { "" } else { ", " };
    let mut header = vec![format!("{}{comma}{}", setting.name, panel.label)];
    header.extend(figure.latencies.iter().map(short));
    for latency in figure.latencies.iter().skip(1) {
        header.push(format!("{} / {}", short(latency), figure.yardstick));
        header.push("/ best peer".to_owned());
    }
    header.extend(figure.costs.iter().map(cost_name));
    let mut table = table(&header);
    for row in &setting.rows {
        let mut cells = vec![row.label.clone()];
        let shown = |latency: &Latency| latency.value.map_or_else(dash, |value| ms(value.mean));
        cells.extend(row.latencies.iter().map(shown));
        for latency in row.latencies.iter().skip(1) {
            cells.push(ratio(latency.over_yardstick.as_ref()));
            cells.push(ratio(latency.over_best_peer.as_ref()));
        }
        cells.extend(costs(figure, &row.costs));
        table.row(cells);
    }
    table
}

fn table(header: &[String]) -> Table {
    Table::new(&header.iter().map(String::as_str).collect::<Vec<_>>())
}

fn costs<'a>(
    figure: &'a StandingFigure,
    costs: &'a [Option<Interval>],
) -> impl Iterator<Item = String> + 'a {
    costs
        .iter()
        .zip(&figure.costs)
        .map(|(cost, named)| cost.map_or_else(dash, |cost| value(cost.mean, named.unit)))
}

/// `p99` of `p99 latency`, and `p50` of the median.
fn short(latency: &Named) -> String {
    match latency.words.split(' ').next() {
        Some("median") => "p50".to_owned(),
        Some(word) => word.to_owned(),
        None => String::new(),
    }
}

fn cost_name(cost: &Named) -> String {
    match cost.unit {
        evenkeel_papers::unit::Unit::Share => format!("{}, %", cost.words),
        _ => cost.words.clone(),
    }
}

fn ratio(interval: Option<&Interval>) -> String {
    interval.map_or_else(dash, |it| format!("{} ±{:.2}", two(it.mean), (it.high - it.low) / 2.0))
}

fn extreme(extreme: Option<&Extreme>) -> String {
    extreme.map_or_else(dash, |it| {
        let name = it.setting.split(':').next().unwrap_or_default();
        format!("{} {name}", two(it.ratio.mean))
    })
}

fn two(number: f64) -> String {
    if number < 100.0 { format!("{number:.2}") } else { format!("{number:.0}") }
}

fn dash() -> String {
    "–".to_owned()
}
