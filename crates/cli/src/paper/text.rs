//! The report as text: a table for each claim and figure, 100 columns wide.

use std::collections::BTreeSet;

use evenkeel_sim::paper::judge::{Figure, FigurePanel, Finding};
use evenkeel_sim::paper::stats::{Interval, Range, Verdict};
use evenkeel_sim::paper::{ClaimReport, PaperReport};

use crate::terminal::{Table, ms};

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
            claim.verdict.words().to_owned(),
            claim.recorded.words().to_owned(),
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
    let mut text = format!("\n{}", rule_line(&format!("figure {}", figure.id)));
    text += &wrap(&figure.title, "");
    text += &format!("{}, {}; geometric mean ± half the interval\n", figure.measure, figure.unit);
    for panel in &figure.panels {
        text += "\n";
        text += &panel_table(figure, panel).to_string();
    }
    text
}

fn panel_table(figure: &Figure, panel: &FigurePanel) -> Table {
    let corner = if panel.label.is_empty() { &figure.axis } else { &panel.label };
    let shown = shown_points(figure);
    let is_alone = figure.points.len() == 1 && figure.points[0].is_empty();
    let header = shown
        .iter()
        .map(|&point| if is_alone { figure.unit.as_str() } else { figure.points[point].as_str() });
    let header: Vec<&str> = core::iter::once(corner.as_str()).chain(header).collect();
    let mut table = Table::new(&header);
    for series in &panel.series {
        let cells =
            shown.iter().map(|&point| series.values[point].as_ref().map_or_else(dash, cell));
        table.row(core::iter::once(series.label.clone()).chain(cells));
    }
    table
}

/// At most seven columns fit; of more points every second, third, … is shown.
fn shown_points(figure: &Figure) -> Vec<usize> {
    let step = figure.points.len().div_ceil(7).max(1);
    (0..figure.points.len()).skip((step - 1).min(1)).step_by(step).collect()
}

fn cell(interval: &Interval) -> String {
    let half = (interval.high - interval.low) / 2.0;
    format!("{} ±{}", ms(interval.mean), short(half))
}

fn short(value: f64) -> String {
    if value >= 9.95 { format!("{value:.0}") } else { format!("{value:.1}") }
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
        text += &wrap(&claim.measure, "  measure  ");
        text += "\n";
        text += &findings_table(&claim.findings).to_string();
        text += "\n";
    }
    let record = match (claim.as_recorded, claim.verdict) {
        (_, Verdict::NotMeasured) => format!("on record: {}", claim.recorded.words()),
        (true, verdict) if verdict == claim.recorded => "as on record".to_owned(),
        (true, _) => format!("on record: {}; too few runs to differ", claim.recorded.words()),
        (false, _) => format!("DIFFERS from the record: {}", claim.recorded.words()),
    };
    text += &format!("  verdict  {} ({record})\n", claim.verdict.words());
    text + &wrap(&claim.reason, "  because  ")
}

/// Comparisons down and settings across when there are many settings; with numbers otherwise.
fn findings_table(findings: &[Finding]) -> Table {
    let points: Vec<&str> = in_order(findings.iter().map(|finding| finding.point.as_str()));
    if points.len() > 1 { grid(findings, &points) } else { listed(findings) }
}

fn grid(findings: &[Finding], points: &[&str]) -> Table {
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
            let cell = |point| at(point).map_or_else(dash, |found| ratio_cell(found, has_room));
            let cells = points.iter().map(cell);
            table.row(core::iter::once(format!("  {what}")).chain(cells));
        }
    }
    table
}

fn listed(findings: &[Finding]) -> Table {
    let mut table = Table::new(&["", "first", "second", "result", "interval", "claimed", ""]);
    let panels = in_order(findings.iter().map(|finding| finding.panel.as_str()));
    for panel in &panels {
        if panels.len() > 1 {
            table.row([(*panel).to_owned()]);
        }
        let indent = if panels.len() > 1 { "  " } else { "" };
        for finding in findings.iter().filter(|finding| finding.panel == *panel) {
            table.row(listed_row(finding, indent));
        }
    }
    table
}

fn listed_row(finding: &Finding, indent: &str) -> [String; 7] {
    let mean = |interval: &Option<Interval>| {
        interval.as_ref().map_or_else(dash, |interval| ms(interval.mean))
    };
    [
        format!("{indent}{}", finding.what),
        mean(&finding.of),
        if finding.over.is_some() { mean(&finding.over) } else { String::new() },
        finding.result.map_or_else(dash, |result| format!("{:.2}", result.mean)),
        finding.result.map_or_else(dash, |i| format!("{:.2} – {:.2}", i.low, i.high)),
        range(&finding.claimed),
        mark(finding.verdict).to_owned(),
    ]
}

fn ratio_cell(finding: &Finding, has_room: bool) -> String {
    let Some(result) = &finding.result else { return dash() };
    if !has_room {
        return format!("{:.2} {}", result.mean, mark(finding.verdict));
    }
    let half = (result.high - result.low) / 2.0;
    format!("{:.2} ±{half:.2} {}", result.mean, mark(finding.verdict))
}

/// The range claimed, in few characters.
pub(super) fn range(range: &Range) -> String {
    match (range.at_least.is_finite(), range.at_most.is_finite()) {
        (true, true) if range.at_least == range.at_most => format!("{}", range.at_most),
        (true, true) => format!("{} – {}", range.at_least, range.at_most),
        (true, false) => format!("> {}", range.at_least),
        (false, true) => format!("< {}", range.at_most),
        (false, false) => "anything".to_owned(),
    }
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

    #[test]
    fn ranges_are_short() {
        let of = |at_least, at_most| range(&Range { at_least, at_most });
        let open = f64::INFINITY;
        assert_eq!([of(-open, 1.0), of(2.0, 3.0), of(3.0, open)], ["< 1", "2 – 3", "> 3"]);
    }
}
