//! The report as a page: verdicts, figures, and the numbers behind each claim. One file, no outside
//! resources, light or dark as the reader prefers.

use std::fmt::Write as _;

use evenkeel_papers::figure::{AxisFigure, Figure, MeasuresFigure, MeasuresPanel, TimeFigure};
use evenkeel_papers::judge::Finding;
use evenkeel_papers::stats::Verdict;
use evenkeel_papers::unit::Unit;
use evenkeel_papers::{ClaimReport, PaperReport};

use super::chart::{Colours, forest, panel};
use super::number::{claimed, result, result_unit, with_half};
use super::{scatter, standing, timeline};
use crate::html::escape;

const STYLE: &str = include_str!("page.css");
const WIDTH: f64 = 960.0;
/// Colours there are in the style.
const COLOURS: usize = 13;
/// More rows than this open on demand.
const ROWS_SHOWN: usize = 16;

/// The whole page.
pub(super) fn page(report: &PaperReport) -> String {
    let policies = policies(report);
    let colours = |policy: &str| {
        policies.iter().position(|known| *known == policy).unwrap_or_default() % COLOURS
    };
    let title = escape(&report.title);
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE}</style><main class='paper-{}'><p class=kicker>evenkeel paper {}</p>\
         <h1>{title}</h1>{}{}",
        escape(&report.paper),
        escape(&report.paper),
        lead(report),
        verdicts(report),
    );
    page += "<h2>What was measured</h2>";
    for figure in &report.figures {
        page += &figure_section(figure, &colours);
    }
    page += "<h2>What was claimed</h2>";
    for claim in &report.claims {
        page += &claim_section(claim);
    }
    page + "</main></html>\n"
}

/// The policies of all figures, in the order in which they first come.
fn policies(report: &PaperReport) -> Vec<&str> {
    let mut policies = Vec::new();
    for (policy, _) in report.figures.iter().flat_map(Figure::policies) {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    policies
}

fn lead(report: &PaperReport) -> String {
    let count = |verdict| report.claims.iter().filter(|claim| claim.verdict == verdict).count();
    let is_bar = report.claims.iter().any(|claim| claim.is_bar);
    let chips: String = Verdict::NAMED
        .iter()
        .map(|(_, verdict)| format!("<li>{} {}", count(*verdict), chip(*verdict, is_bar)))
        .collect();
    let quick = if report.quick {
        "<p class=warning>A quick check: few settings, half the requests. The intervals are wide \
         and the verdicts preliminary."
    } else {
        ""
    };
    format!(
        "<p>Every policy met the same requests at the same seed, so policies are compared as \
         paired runs: {} seeds, Student’s 95 % interval of the difference, or of the logarithm of \
         the ratio. A claim \
         is <em>reproduced</em> when every interval lies wholly within what was claimed, \
         <em>not reproduced</em> when all lie wholly outside, and otherwise it <em>depends</em>. \
         Intervals cover the luck of seeds, not the difference between a simulation and a \
         cluster.</p>{quick}<ul class=counts>{chips}</ul>",
        report.seeds.len(),
    )
}

fn chip(verdict: Verdict, is_bar: bool) -> String {
    format!("<span class='chip v{verdict:?}'>{}</span>", verdict.words(is_bar))
}

fn verdicts(report: &PaperReport) -> String {
    let row = |claim: &ClaimReport| {
        let record = match (claim.as_recorded, claim.verdict == claim.recorded) {
            (true, true) => String::new(),
            (true, false) => {
                format!("<small>on record: {}</small>", claim.recorded.words(claim.is_bar))
            }
            (false, _) => {
                format!("<strong>on record: {}</strong>", claim.recorded.words(claim.is_bar))
            }
        };
        format!(
            "<tr><td>{}<td><a href='#{}'>{}</a><small>{}</small><td class=number>{}",
            chip(claim.verdict, claim.is_bar) + &record,
            escape(&claim.id),
            escape(&claim.claimed),
            escape(&claim.source),
            escape(&span(&claim.findings, claim.unit.unwrap_or(Unit::Times))),
        )
    };
    let rows: String = report.claims.iter().map(row).collect();
    format!(
        "<table class=verdicts><tr><th>verdict<th>claim<th class=number>found \
         <small>(claimed)</small>{rows}</table>"
    )
}

/// The least and the greatest result among the findings, and the range claimed if it is one.
fn span(findings: &[Finding], unit: Unit) -> String {
    let results = || findings.iter().filter_map(|finding| Some(finding.result?.mean));
    if results().next().is_none() {
        return String::new();
    }
    let low = results().fold(f64::INFINITY, f64::min);
    let high = results().fold(f64::NEG_INFINITY, f64::max);
    let kind = findings[0].kind;
    let [low, high] = [low, high].map(|number| result(number, kind, unit));
    let found = if low == high { low } else { format!("{low} – {high}") };
    let found = match result_unit(kind, unit) {
        "times" => found,
        unit => format!("{found} {unit}"),
    };
    let first = &findings[0];
    let is_one = findings.iter().all(|finding| finding.claimed == first.claimed);
    if is_one { format!("{found} ({})", claimed(first, unit)) } else { found }
}

fn figure_section(figure: &Figure, colours: &Colours<'_>) -> String {
    let (title, body) = match figure {
        Figure::Axis(figure) => (&figure.title, axis_body(figure, colours)),
        Figure::Time(figure) => (&figure.title, time_body(figure, colours)),
        Figure::Measures(figure) => (&figure.title, measures_body(figure, colours)),
        Figure::Standing(figure) => {
            (&figure.title, format!("<pre>{}</pre>", escape(&standing::text(figure))))
        }
    };
    let id = escape(figure.id());
    format!("<section id='figure-{id}'><h3>{}</h3>{body}</section>", escape(title))
}

fn axis_body(figure: &AxisFigure, colours: &Colours<'_>) -> String {
    let is_alone = figure.panels.len() == 1;
    let width = if is_alone { WIDTH } else { 470.0 };
    let has_lines = figure.points.len() > 2;
    let band = if has_lines { "bands" } else { "whiskers" };
    let mut section = format!(
        "<p class=note>{}, {}; logarithmic; {band} are 95 % intervals</p>",
        escape(&figure.measure.words),
        escape(figure.measure.unit.name()),
    );
    if has_lines && !is_alone {
        let series = figure.panels[0].series.iter();
        section += &legend(series.map(|one| (one.policy.as_str(), one.label.as_str())), colours);
    }
    if !has_lines && figure.points.len() == 2 {
        let _ = write!(
            section,
            "<p class=note>{}: ● {} &nbsp; ○ {}</p>",
            escape(&figure.axis),
            escape(&figure.points[0]),
            escape(&figure.points[1]),
        );
    }
    section += if is_alone { "<div>" } else { "<div class=panels>" };
    for one in &figure.panels {
        let _ = write!(
            section,
            "<figure>{}<figcaption>{}</figcaption></figure>",
            panel(figure, one, width, colours),
            escape(&one.label),
        );
    }
    section + "</div>"
}

fn time_body(figure: &TimeFigure, colours: &Colours<'_>) -> String {
    let mut body = "<p class=note>means of all seeds, bands are 95 % intervals; shaded: \
                    replicas missing, or more load</p>"
        .to_owned();
    for panel in &figure.panels {
        let _ = write!(
            body,
            "<h4>{}</h4><figure>{}</figure>",
            escape(&panel.label),
            timeline::drawing(figure, panel, WIDTH, colours),
        );
    }
    body
}

fn measures_body(figure: &MeasuresFigure, colours: &Colours<'_>) -> String {
    let mut body = String::new();
    if figure.is_scatter {
        body += "<p class=note>a dot for each run, a ring at each mean</p>";
        let rows = figure.panels[0].rows.iter();
        body += &legend(rows.map(|row| (row.policy.as_str(), row.label.as_str())), colours);
    }
    for panel in &figure.panels {
        let _ = write!(body, "<h4>{}</h4>", escape(&panel.label));
        if figure.is_scatter {
            body += "<div class=panels>";
            for across in 0..figure.measures.len() - 1 {
                let drawing = scatter::drawing(figure, panel, across, 470.0, colours);
                let _ = write!(body, "<figure>{drawing}</figure>");
            }
            body += "</div>";
        }
        let table = measures_table(figure, panel, colours);
        body += &if figure.is_scatter {
            format!("<details><summary>as a table</summary>{table}</details>")
        } else {
            table
        };
    }
    body
}

/// A row for each policy; shares with a bar behind them.
fn measures_table(figure: &MeasuresFigure, panel: &MeasuresPanel, colours: &Colours<'_>) -> String {
    let head = |measure: &evenkeel_papers::figure::Named| {
        let unit = measure.unit.name();
        format!("<th class=number>{}, {}", escape(&measure.words), escape(unit))
    };
    let head: String = figure.measures.iter().map(head).collect();
    let mut table = format!("<table class=measures><tr><th>policy{head}");
    for row in &panel.rows {
        let colour = colours(&row.policy);
        let _ = write!(table, "<tr class=c{colour}><td class=label>{}", escape(&row.label));
        for (mean, measure) in row.means.iter().zip(&figure.measures) {
            let Some(mean) = mean else {
                table += "<td class=number>–";
                continue;
            };
            let bar = match measure.unit {
                Unit::Share => format!(" style='--bar:{:.1}%'", 100.0 * mean.mean),
                _ => String::new(),
            };
            let _ = write!(table, "<td class=number{bar}>{}", with_half(mean, measure.unit));
        }
    }
    table + "</table>"
}

fn legend<'a>(policies: impl Iterator<Item = (&'a str, &'a str)>, colours: &Colours<'_>) -> String {
    let entry = |(policy, label): (&str, &str)| {
        format!(
            "<li class='c{}'><svg viewBox='0 0 28 10'><line class=line x1=0 x2=28 y1=5 y2=5 />\
             </svg>{}",
            colours(policy),
            escape(label),
        )
    };
    let entries: String = policies.map(entry).collect();
    format!("<ul class=legend>{entries}</ul>")
}

fn claim_section(claim: &ClaimReport) -> String {
    let note = |label: &str, text: &str| {
        if text.is_empty() {
            return String::new();
        }
        format!("<dt>{label}<dd>{}", escape(text))
    };
    let mut section = format!(
        "<section id='{}'><h3>{} {}</h3><dl>{}{}{}{}</dl>",
        escape(&claim.id),
        chip(claim.verdict, claim.is_bar),
        escape(&claim.claimed),
        note("source", &claim.source),
        note("setting", &claim.setting),
        note("measure", &claim.measure),
        note("because", &claim.reason),
    );
    let drawings = drawings(&claim.findings, claim.unit.unwrap_or(Unit::Times));
    section += &if claim.findings.len() > ROWS_SHOWN {
        format!("<details><summary>{} results</summary>{drawings}</details>", claim.findings.len())
    } else {
        drawings
    };
    section + "</section>"
}

/// A drawing for each panel.
fn drawings(findings: &[Finding], unit: Unit) -> String {
    let mut panels: Vec<&str> = findings.iter().map(|finding| finding.panel.as_str()).collect();
    panels.sort_unstable();
    panels.dedup();
    let drawing = |panel: &&str| {
        let here: Vec<&Finding> =
            findings.iter().filter(|finding| finding.panel == **panel).collect();
        let title = if panels.len() > 1 { escape(panel) } else { String::new() };
        format!("<h4>{title}</h4>{}", forest(&here, findings, unit, WIDTH))
    };
    panels.iter().map(drawing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_papers::judge::Kind;
    use evenkeel_papers::stats::{Interval, Range};

    fn finding(mean: f64, at_most: f64) -> Finding {
        let interval = Interval { mean, low: mean * 0.9, high: mean * 1.1, seeds: 10 };
        let claimed = Range { at_least: f64::NEG_INFINITY, at_most };
        Finding {
            what: "a / b".to_owned(),
            panel: String::new(),
            point: String::new(),
            of: Some(interval),
            over: None,
            kind: Kind::Ratio,
            result: Some(interval),
            welch: None,
            claimed,
            verdict: Verdict::of(&interval, &claimed),
        }
    }

    #[test]
    fn a_span_tells_the_extremes_and_what_was_claimed() {
        let of = |findings: &[Finding]| span(findings, Unit::Ms);
        assert_eq!(of(&[finding(0.5, 1.0), finding(0.75, 1.0)]), "0.50 – 0.75 (< 1)");
        assert_eq!(of(&[finding(0.5, 1.0), finding(0.5, 2.0)]), "0.50");
        assert_eq!(of(&[]), "");
        let share = Finding { kind: Kind::Value, ..finding(0.5, 1.0) };
        assert_eq!(span(&[share], Unit::Share), "50.0 % (< 100)");
    }

    #[test]
    fn a_page_needs_nothing_from_outside_and_escapes_what_people_wrote() {
        let claim = ClaimReport {
            id: "order".to_owned(),
            source: "slide <3>".to_owned(),
            claimed: "C3 < LOR".to_owned(),
            setting: String::new(),
            measure: "p99".to_owned(),
            unit: Some(Unit::Ms),
            verdict: Verdict::Reproduced,
            recorded: Verdict::Depends,
            as_recorded: false,
            is_bar: false,
            reason: String::new(),
            findings: vec![finding(0.5, 1.0)],
        };
        let report = PaperReport {
            paper: "x".to_owned(),
            title: "X & Y".to_owned(),
            seeds: (1..=10).collect(),
            quick: false,
            as_recorded: false,
            claims: vec![claim],
            figures: Vec::new(),
        };
        let page = page(&report);
        assert!(page.contains("X &amp; Y") && page.contains("slide &lt;3&gt;"));
        assert!(page.contains("<strong>on record: depends</strong>"));
        assert!(!page.contains("http") && !page.contains("<script"));
    }
}
