//! How policies stand, as text: all settings together first, then each.

use evenkeel_papers::figure::Named;
use evenkeel_papers::figure::standing::{
    Extreme, Overall, OverallLatency, StandingFigure, StandingPanel, StandingSetting,
};
use evenkeel_papers::stats::Interval;
use evenkeel_papers::unit::Unit;

use super::number::value;
use crate::terminal::{Table, ms};

pub(super) fn text(figure: &StandingFigure) -> String {
    let mut text =
        "ratios are of paired runs: geometric means ± half the 95 % interval; a peer is the \
         best other\npolicy of the setting, chosen afterwards\n"
            .to_owned();
    for panel in &figure.panels {
        text += &format!("\n{}{}", beside_yardstick(figure, panel), beside_peers(figure, panel));
    }
    for panel in &figure.panels {
        for setting in &panel.settings {
            text += &format!("\n{}", each(figure, panel, setting));
        }
    }
    text
}

fn comma(panel: &StandingPanel) -> String {
    if panel.label.is_empty() { String::new() } else { format!(", {}", panel.label) }
}

/// Each policy over the yardstick, and what it costs.
fn beside_yardstick(figure: &StandingFigure, panel: &StandingPanel) -> Table {
    let corner = format!("{} settings{}", panel.settings.len(), comma(panel));
    let name = |one: &Named| format!("{} / {}", short(one), figure.yardstick);
    let mut table = overall(figure, corner, name, true);
    for row in &panel.overall {
        let ratios = row.latencies.iter().flat_map(|latency| {
            let OverallLatency { over_yardstick, worst, .. } = latency;
            [ratio(over_yardstick.as_ref()), extreme(worst.as_ref())]
        });
        let cells = core::iter::once(row.label.clone()).chain(ratios);
        table.row(cells.chain(costs(figure, &row.costs)));
    }
    table
}

/// Each policy over the best other one of each setting.
fn beside_peers(figure: &StandingFigure, panel: &StandingPanel) -> Table {
    let name = |one: &Named| format!("{} / best peer", short(one));
    let mut table = overall(figure, String::new(), name, false);
    for Overall { label, latencies, .. } in &panel.overall {
        let ratios = latencies.iter().flat_map(|latency| {
            let OverallLatency { over_best_peer, worst_beside_peer, .. } = latency;
            [ratio(over_best_peer.as_ref()), extreme(worst_beside_peer.as_ref())]
        });
        table.row(core::iter::once(label.clone()).chain(ratios));
    }
    table
}

fn overall(
    figure: &StandingFigure,
    corner: String,
    name: impl Fn(&Named) -> String,
    with_costs: bool,
) -> Table {
    let pairs = figure.latencies.iter().flat_map(|one| [name(one), "worst".to_owned()]);
    let costs = figure.costs.iter().filter(|_| with_costs).map(cost_name);
    table(&core::iter::once(corner).chain(pairs).chain(costs).collect::<Vec<_>>())
}

fn each(figure: &StandingFigure, panel: &StandingPanel, setting: &StandingSetting) -> Table {
    let latencies = figure.latencies.iter().flat_map(|one| {
        [short(one).to_owned(), format!("/ {}", figure.yardstick), "/ peer".to_owned()]
    });
    let header = core::iter::once(format!("{}{}", setting.name, comma(panel))).chain(latencies);
    let mut table = table(&header.chain(figure.costs.iter().map(cost_name)).collect::<Vec<_>>());
    for row in &setting.rows {
        let latencies = row.latencies.iter().flat_map(|latency| {
            [
                latency.value.map_or_else(dash, |value| ms(value.mean)),
                ratio(latency.over_yardstick.as_ref()),
                ratio(latency.over_best_peer.as_ref()),
            ]
        });
        let cells = core::iter::once(row.label.clone()).chain(latencies);
        table.row(cells.chain(costs(figure, &row.costs)));
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
    let shown = |(cost, named): (&Option<Interval>, &Named)| {
        cost.map_or_else(dash, |cost| value(cost.mean, named.unit))
    };
    costs.iter().zip(&figure.costs).map(shown)
}

/// `p99` of `p99 latency`: there are many columns.
fn short(measured: &Named) -> &str {
    measured.words.split(' ').next().unwrap_or_default()
}

fn cost_name(cost: &Named) -> String {
    let is_share = cost.unit == Unit::Share;
    format!("{}{}", short(cost), if is_share { " %" } else { "" })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_setting_is_named_by_what_stands_before_its_colon() {
        let ratio = Interval { mean: 1.234, low: 1.2, high: 1.3, seeds: 10 };
        let of = |setting: &str| Extreme { setting: setting.to_owned(), ratio };
        assert_eq!(extreme(Some(&of("7: any, 34 × 4"))), "1.23 7");
        assert_eq!(extreme(Some(&of("pause"))), "1.23 pause");
        assert_eq!(super::ratio(Some(&ratio)), "1.23 ±0.05");
        assert_eq!(extreme(None), "–");
    }
}
