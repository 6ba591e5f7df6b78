//! The report as text: a table for each claim and figure, 100 columns wide.

use std::collections::BTreeSet;

use evenkeel_papers::figure::{
    AxisFigure, Figure, FigurePanel, MeasuresFigure, MeasuresPanel, TimeFigure,
};
use evenkeel_papers::judge::{Finding, Kind};
use evenkeel_papers::stats::{Interval, Verdict};
use evenkeel_papers::unit::Unit;
use evenkeel_papers::{ClaimReport, PaperReport};

use super::number::{claimed, result, result_unit, value, welch, with_half};
use super::{plot, standing};
use crate::terminal::Table;

const COLUMNS: usize = 100;

/// Everything, figures first: they are what the claims are about.
pub(super) fn report(report: &PaperReport) -> String {
    let mut text = format!("{}\n", wrap(&report.title, ""));
    let seeds = report.seeds.len();
    let kind = if report.quick { "quick check, " } else { "" };
    text += &format!("{kind}{seeds} paired seeds, 95 % intervals\n");
    for figure in &report.figures {
        text += &figure_text(figure);
    }
    for claim in &report.claims {
        text += &claim_text(claim);
    }
    text + &summary(report)
}

/// A line for each claim, and what differs from the record.
pub(super) fn summary(report: &PaperReport) -> String {
    let mut table = Table::new(&["claim", "verdict", "on record", ""]);
    for claim in &report.claims {
        let mark = if claim.as_recorded { "" } else { "DIFFERS" };
        table.row([
            claim.id.clone(),
            claim.verdict.words(claim.is_bar).to_owned(),
            claim.recorded.words(claim.is_bar).to_owned(),
            mark.to_owned(),
        ]);
    }
    let differing = report.claims.iter().filter(|claim| !claim.as_recorded).count();
    let rule = if report.quick || report.seeds.len() < 10 {
        " (too few runs for a verdict: only flat contradictions count)"
    } else {
        ""
    };
    let outcome = match differing {
        0 => format!("every verdict is as on record{rule}"),
        1 => "1 verdict differs from the record".to_owned(),
        n => format!("{n} verdicts differ from the record"),
    };
    format!("\n{}{table}{outcome}\n", rule_line("summary"))
}

fn rule_line(title: &str) -> String {
    let rest = COLUMNS.saturating_sub(title.chars().count() + 4);
    format!("── {title} {}\n", "─".repeat(rest))
}

fn figure_text(figure: &Figure) -> String {
    let head = format!("\n{}", rule_line(&format!("figure {}", figure.id())));
    head + &match figure {
        Figure::Axis(figure) => axis_text(figure),
        Figure::Time(figure) => time_text(figure),
        Figure::Measures(figure) => measures_text(figure),
        Figure::Standing(figure) => wrap(&figure.title, "") + &standing::text(figure),
    }
}

fn axis_text(figure: &AxisFigure) -> String {
    let mut text = wrap(&figure.title, "");
    let unit = figure.measure.unit;
    let kind = if unit == Unit::Share { "mean" } else { "geometric mean" };
    text += &format!("{}, {}; {kind} ± half the interval\n", figure.measure.words, unit.name());
    for panel in &figure.panels {
        text += "\n";
        text += &panel_table(figure, panel).to_string();
    }
    text
}

fn time_text(figure: &TimeFigure) -> String {
    wrap(&figure.title, "") + &plot::timeline(figure)
}

fn measures_text(figure: &MeasuresFigure) -> String {
    let mut text = wrap(&figure.title, "");
    text += "mean ± half the interval, of latencies the geometric mean\n";
    for panel in &figure.panels {
        text += &format!("\n{}", measures_table(figure, panel));
        if figure.is_scatter {
            text += &plot::scatter(figure, panel);
        }
    }
    text
}

/// A row for each policy; where dots are drawn too, each begins with its letter.
fn measures_table(figure: &MeasuresFigure, panel: &MeasuresPanel) -> Table {
    let name = |measure: &evenkeel_papers::figure::Named| {
        format!("{}, {}", measure.words, measure.unit.name())
    };
    let names: Vec<String> = figure.measures.iter().map(name).collect();
    let header = core::iter::once(panel.label.as_str()).chain(names.iter().map(String::as_str));
    let mut table = Table::new(&header.collect::<Vec<_>>());
    for (letter, row) in ('a'..).zip(&panel.rows) {
        let label = match figure.is_scatter {
            true => format!("{letter} {}", row.label),
            false => row.label.clone(),
        };
        let cells = row.means.iter().zip(&figure.measures).map(|(mean, measure)| {
            mean.as_ref().map_or_else(dash, |mean| with_half(mean, measure.unit))
        });
        table.row(core::iter::once(label).chain(cells));
    }
    table
}

fn panel_table(figure: &AxisFigure, panel: &FigurePanel) -> Table {
    let corner = if panel.label.is_empty() { &figure.axis } else { &panel.label };
    let shown = shown_points(figure);
    let unit = figure.measure.unit;
    let is_alone = figure.points.len() == 1 && figure.points[0].is_empty();
    let header = shown
        .iter()
        .map(|&point| if is_alone { unit.name() } else { figure.points[point].as_str() });
    let header: Vec<&str> = core::iter::once(corner.as_str()).chain(header).collect();
    let mut table = Table::new(&header);
    for series in &panel.series {
        let cell = |&point: &usize| {
            series.values[point].as_ref().map_or_else(dash, |mean| with_half(mean, unit))
        };
        table.row(core::iter::once(series.label.clone()).chain(shown.iter().map(cell)));
    }
    table
}

/// At most seven columns fit; of more points every second, third, … is shown.
fn shown_points(figure: &AxisFigure) -> Vec<usize> {
    let step = figure.points.len().div_ceil(7).max(1);
    (0..figure.points.len()).skip((step - 1).min(1)).step_by(step).collect()
}

fn dash() -> String {
    "–".to_owned()
}

fn claim_text(claim: &ClaimReport) -> String {
    let mut text = format!("\n{}", rule_line(&format!("claim {}", claim.id)));
    text += &wrap(&claim.claimed, "");
    text += &wrap(&claim.source, "  source   ");
    text += &wrap(&claim.setting, "  setting  ");
    if !claim.findings.is_empty() {
        let kinds: BTreeSet<&str> = claim
            .findings
            .iter()
            .map(|finding| result_unit(finding.kind, claim.unit.unwrap_or(Unit::Times)))
            .collect();
        let kinds: Vec<&str> = kinds.into_iter().collect();
        text +=
            &wrap(&format!("{}; results in {}", claim.measure, kinds.join(", ")), "  measure  ");
        text += "\n";
        text += &findings_table(&claim.findings, claim.unit.unwrap_or(Unit::Times)).to_string();
        text += "\n";
    }
    let record = match (claim.as_recorded, claim.verdict) {
        (_, Verdict::NotMeasured) => format!("on record: {}", claim.recorded.words(claim.is_bar)),
        (true, verdict) if verdict == claim.recorded => "as on record".to_owned(),
        (true, _) => {
            format!("on record: {}; too few runs to differ", claim.recorded.words(claim.is_bar))
        }
        (false, _) => format!("DIFFERS from the record: {}", claim.recorded.words(claim.is_bar)),
    };
    text += &format!("  verdict  {} ({record})\n", claim.verdict.words(claim.is_bar));
    text + &wrap(&claim.reason, "  because  ")
}

/// Comparisons down and settings across when there are many settings; with numbers otherwise.
fn findings_table(findings: &[Finding], unit: Unit) -> Table {
    let points: Vec<&str> = in_order(findings.iter().map(|finding| finding.point.as_str()));
    let has_tests = findings.iter().any(|finding| finding.welch.is_some());
    if points.len() > 1 && !has_tests {
        grid(findings, &points, unit)
    } else {
        listed(findings, unit, has_tests)
    }
}

fn grid(findings: &[Finding], points: &[&str], unit: Unit) -> Table {
    let header: Vec<&str> = core::iter::once("").chain(points.iter().copied()).collect();
    let mut table = Table::new(&header);
    let has_room = points.len() <= 3;
    let panels = in_order(findings.iter().map(|finding| finding.panel.as_str()));
    for panel in &panels {
        if !panel.is_empty() {
            table.row([(*panel).to_owned()]);
        }
        let here = || findings.iter().filter(|finding| finding.panel == *panel);
        for what in in_order(here().map(|finding| finding.what.as_str())) {
            let at = |point: &&str| {
                here().find(|finding| finding.what == what && finding.point == **point)
            };
            let cell =
                |point| at(point).map_or_else(dash, |found| result_cell(found, unit, has_room));
            let cells = points.iter().map(cell);
            table.row(core::iter::once(format!("  {what}")).chain(cells));
        }
    }
    table
}

fn listed(findings: &[Finding], unit: Unit, has_tests: bool) -> Table {
    let mut header = vec!["", "first", "second", "result", "interval", "claimed", ""];
    if has_tests {
        header.push("Welch");
    }
    let mut table = Table::new(&header);
    let place = |finding: &Finding| match finding.point.as_str() {
        "" => finding.panel.clone(),
        point if finding.panel.is_empty() => point.to_owned(),
        point => format!("{}, {point}", finding.panel),
    };
    let places: Vec<String> = findings.iter().map(place).collect();
    let distinct = in_order(places.iter().map(String::as_str));
    for place in &distinct {
        if distinct.len() > 1 {
            table.row([(*place).to_owned()]);
        }
        let indent = if distinct.len() > 1 { "  " } else { "" };
        for (finding, _) in findings.iter().zip(&places).filter(|(_, known)| known == place) {
            table.row(listed_row(finding, unit, indent, has_tests));
        }
    }
    table
}

fn listed_row(finding: &Finding, unit: Unit, indent: &str, has_tests: bool) -> Vec<String> {
    let mean = |interval: &Option<Interval>| {
        interval.as_ref().map_or_else(dash, |interval| value(interval.mean, unit))
    };
    let is_alone = finding.kind == Kind::Value;
    let shown = |number: f64| result(number, finding.kind, unit);
    let mut row = vec![
        format!("{indent}{}", finding.what),
        mean(&finding.of),
        if is_alone { String::new() } else { mean(&finding.over) },
        finding.result.map_or_else(dash, |result| shown(result.mean)),
        finding.result.map_or_else(dash, |i| format!("{} – {}", shown(i.low), shown(i.high))),
        claimed(finding, unit),
        mark(finding.verdict).to_owned(),
    ];
    if has_tests {
        row.push(finding.welch.as_ref().map_or_else(String::new, welch));
    }
    row
}

fn result_cell(finding: &Finding, unit: Unit, has_room: bool) -> String {
    let Some(found) = &finding.result else { return dash() };
    let shown = |number: f64| result(number, finding.kind, unit);
    let mark = mark(finding.verdict);
    if !has_room {
        return format!("{} {mark}", shown(found.mean));
    }
    let half = shown((found.high - found.low) / 2.0);
    format!("{} ±{} {mark}", shown(found.mean), half.trim_start_matches('+'))
}

/// A sign for a verdict.
pub(super) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Reproduced => "✓",
        Verdict::NotReproduced => "✗",
        Verdict::Depends => "~",
        Verdict::NotMeasured => "–",
    }
}

fn in_order<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(*item)).collect()
}

/// Breaks a text into lines of 100 columns, the first behind `label`; nothing for no text.
fn wrap(text: &str, label: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let indent = " ".repeat(label.chars().count());
    let mut lines = vec![label.to_owned()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a first line");
        let is_empty = line.trim().is_empty() || *line == label;
        if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            lines.push(format!("{indent}{word}"));
        } else {
            *line += if is_empty { "" } else { " " };
            *line += word;
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_behind_its_label() {
        let text = "word ".repeat(30);
        let wrapped = wrap(&text, "  source   ");
        let lines: Vec<&str> = wrapped.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  source   word word") && lines[0].len() <= COLUMNS);
        assert!(lines[1].starts_with("           word"));
        assert_eq!(wrapped.split_whitespace().count(), 31);
        assert_eq!(wrap("", "x"), "");
    }
}
