//! The report as a page: verdicts, figures, and the numbers behind each claim. One file, no outside
//! resources, light or dark as the reader prefers.

use std::fmt::Write as _;

use evenkeel_sim::paper::judge::{Figure, Finding};
use evenkeel_sim::paper::stats::Verdict;
use evenkeel_sim::paper::{ClaimReport, PaperReport};

use super::chart::{Colours, escape, forest, panel};
use super::text::range;

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
         <style>{STYLE}</style><main><p class=kicker>evenkeel paper {}</p><h1>{title}</h1>{}{}",
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
    let panels = report.figures.iter().flat_map(|figure| &figure.panels);
    for series in panels.flat_map(|panel| &panel.series) {
        if !policies.contains(&series.policy.as_str()) {
            policies.push(series.policy.as_str());
        }
    }
    policies
}

fn lead(report: &PaperReport) -> String {
    let count = |verdict| report.claims.iter().filter(|claim| claim.verdict == verdict).count();
    let chips: String = Verdict::NAMED
        .iter()
        .map(|(_, verdict)| format!("<li>{} {}", count(*verdict), chip(*verdict)))
        .collect();
    let quick = if report.quick {
        "<p class=warning>A quick check: few settings, half the requests. The intervals are wide \
         and the verdicts preliminary."
    } else {
        ""
    };
    format!(
        "<p>Every policy met the same requests at the same seed, so policies are compared as \
         ratios of paired runs: {} seeds, Student’s 95 % interval of the logarithm of the ratio. \
         A claim \
         is <em>reproduced</em> when every interval lies wholly within what was claimed, \
         <em>not reproduced</em> when all lie wholly outside, and otherwise it <em>depends</em>. \
         Intervals cover the luck of seeds, not the difference between a simulation and a \
         cluster.</p>{quick}<ul class=counts>{chips}</ul>",
        report.seeds.len(),
    )
}

fn chip(verdict: Verdict) -> String {
    format!("<span class='chip v{verdict:?}'>{}</span>", verdict.words())
}

fn verdicts(report: &PaperReport) -> String {
    let row = |claim: &ClaimReport| {
        let record = match (claim.as_recorded, claim.verdict == claim.recorded) {
            (true, true) => String::new(),
            (true, false) => format!("<small>on record: {}</small>", claim.recorded.words()),
            (false, _) => format!("<strong>on record: {}</strong>", claim.recorded.words()),
        };
        format!(
            "<tr><td>{}<td><a href='#{}'>{}</a><small>{}</small><td class=number>{}",
            chip(claim.verdict) + &record,
            escape(&claim.id),
            escape(&claim.claimed),
            escape(&claim.source),
            escape(&span(&claim.findings)),
        )
    };
    let rows: String = report.claims.iter().map(row).collect();
    format!(
        "<table class=verdicts><tr><th>verdict<th>claim<th class=number>found \
         <small>(claimed)</small>{rows}</table>"
    )
}

/// The least and the greatest result among the findings, and the range claimed if it is one.
fn span(findings: &[Finding]) -> String {
    let results = || findings.iter().filter_map(|finding| Some(finding.result?.mean));
    if results().next().is_none() {
        return String::new();
    }
    let (low, high) = results()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let found =
        if high / low < 1.005 { format!("{low:.2}") } else { format!("{low:.2} – {high:.2}") };
    let first = findings[0].claimed;
    let is_one = findings.iter().all(|finding| finding.claimed == first);
    if is_one { format!("{found} ({})", range(&first)) } else { found }
}

fn figure_section(figure: &Figure, colours: &Colours<'_>) -> String {
    let is_alone = figure.panels.len() == 1;
    let width = if is_alone { WIDTH } else { 470.0 };
    let has_lines = figure.points.len() > 2;
    let band = if has_lines { "bands" } else { "whiskers" };
    let mut section = format!(
        "<section id='figure-{}'><h3>{}</h3><p class=note>{}, {}; logarithmic; {band} are 95 % \
         intervals</p>",
        escape(&figure.id),
        escape(&figure.title),
        escape(&figure.measure),
        escape(&figure.unit),
    );
    if has_lines && !is_alone {
        section += &legend(figure, colours);
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
    section + "</div></section>"
}

fn legend(figure: &Figure, colours: &Colours<'_>) -> String {
    let entry = |(policy, label): (&str, &str)| {
        format!(
            "<li class='c{}'><svg viewBox='0 0 28 10'><line class=line x1=0 x2=28 y1=5 y2=5 />\
             </svg>{}",
            colours(policy),
            escape(label),
        )
    };
    let series = figure.panels[0].series.iter();
    let entries: String = series.map(|series| entry((&series.policy, &series.label))).collect();
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
        chip(claim.verdict),
        escape(&claim.claimed),
        note("source", &claim.source),
        note("setting", &claim.setting),
        note("measure", &claim.measure),
        note("because", &claim.reason),
    );
    let drawings = drawings(&claim.findings);
    section += &if claim.findings.len() > ROWS_SHOWN {
        format!("<details><summary>{} results</summary>{drawings}</details>", claim.findings.len())
    } else {
        drawings
    };
    section + "</section>"
}

/// A drawing for each panel.
fn drawings(findings: &[Finding]) -> String {
    let mut panels: Vec<&str> = findings.iter().map(|finding| finding.panel.as_str()).collect();
    panels.sort_unstable();
    panels.dedup();
    let drawing = |panel: &&str| {
        let here: Vec<&Finding> =
            findings.iter().filter(|finding| finding.panel == **panel).collect();
        let title = if panels.len() > 1 { escape(panel) } else { String::new() };
        format!("<h4>{title}</h4>{}", forest(&here, findings, WIDTH))
    };
    panels.iter().map(drawing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_sim::paper::stats::{Interval, Range};

    fn finding(mean: f64, at_most: f64) -> Finding {
        let interval = Interval { mean, low: mean * 0.9, high: mean * 1.1, seeds: 10 };
        let claimed = Range { at_least: f64::NEG_INFINITY, at_most };
        Finding {
            what: "a / b".to_owned(),
            panel: String::new(),
            point: String::new(),
            of: Some(interval),
            over: None,
            result: Some(interval),
            claimed,
            verdict: Verdict::of(&interval, &claimed),
        }
    }

    #[test]
    fn a_span_tells_the_extremes_and_what_was_claimed() {
        assert_eq!(span(&[finding(0.5, 1.0), finding(0.75, 1.0)]), "0.50 – 0.75 (< 1)");
        assert_eq!(span(&[finding(0.5, 1.0), finding(0.5, 2.0)]), "0.50");
        assert_eq!(span(&[]), "");
    }

    #[test]
    fn a_page_needs_nothing_from_outside_and_escapes_what_people_wrote() {
        let claim = ClaimReport {
            id: "order".to_owned(),
            source: "slide <3>".to_owned(),
            claimed: "C3 < LOR".to_owned(),
            setting: String::new(),
            measure: "p99".to_owned(),
            verdict: Verdict::Reproduced,
            recorded: Verdict::Depends,
            as_recorded: false,
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
