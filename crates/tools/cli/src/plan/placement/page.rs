//! A placement as a page: what to do, who is where, what each client waits before and after, what
//! other leaders and further replicas are worth. One file, no outside resources.

use std::fmt::Write as _;

use evenkeel_planner::explain::{Wait, Waits};
use evenkeel_planner::model::Layout;

use super::asked::{Line, Plan};
use super::text::{about, answers, gain, proof, runner_up, steps};
use crate::html::escape;
use crate::terminal::{count, ms, percent};

const STYLE: &str = include_str!("../../paper/page.css");
const OWN_STYLE: &str = include_str!("../page.css");
const PLACED_STYLE: &str = include_str!("page.css");
/// How much of its cell the longest bar takes, in percent: the rest is for the number.
pub(super) const BAR: f64 = 60.0;
/// More clients than this, those of most operations, are not shown.
const CLIENTS_MAX: usize = 60;

/// The beginning of a page, up to its title.
pub(super) fn opened(title: &str, about: &str) -> String {
    let (title, about) = (escape(title), escape(about).replace('\n', "<br>"));
    format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE}{OWN_STYLE}{PLACED_STYLE}</style><main class='plan placed'>\
         <p class=kicker>evenkeel plan placement</p><h1>{title}</h1><p class=note>{about}</p>"
    )
}

pub(super) fn page(
    plan: &Plan<'_>,
    today: Option<&Line>,
    results: &[Line],
    worth: &[Line],
) -> String {
    let mut page = opened(&plan.title, &about(plan));
    let Some(best) = results.first() else { return page + "</main></html>\n" };
    let answers = answers(results, plan.arguments.tier);
    match today {
        Some(today) => {
            page += &headline(today, best);
            page += "<h2>What to do</h2><ol>";
            for step in steps(plan, today, best) {
                let words = step.split_once(". ").map_or(&*step, |(_, words)| words);
                let _ = write!(page, "<li>{}", escape(words));
            }
            page += "</ol>";
        }
        None => {
            let _ = write!(page, "<p class=big>{:.2} ms <small>on average</small>", best.mean_ms);
        }
    }
    page += "<h2>Who is where</h2>";
    page += &sites(plan, today, &answers);
    if answers.len() > 1 {
        page += "<ul class=why>";
        for other in &answers[1..] {
            let _ = write!(page, "<li>{}", escape(&runner_up(plan, best, other)));
        }
        page += "</ul>";
    }
    let before = today.unwrap_or(best);
    let past = plan.past();
    let route = plan.arguments.route;
    let waits = Waits::between(&past, &before.layout, &best.layout, route);
    page += "<h2>What clients wait</h2>";
    page += &clients(plan, &waits.clients, today.is_some());
    page += "<h2>What kinds of operations wait</h2>";
    let name = |wait: &Wait<_>| evenkeel_planner::model::Operation::name(wait.of).to_owned();
    let all = past.operations();
    page += &bars("operation", &waits.operations, name, all, today.is_some());
    if !worth.is_empty() {
        page += "<h2>What a further replica is worth</h2>";
        page += &curve(worth);
    }
    page += &sure(plan, best);
    page + "</main></html>\n"
}

fn headline(today: &Line, best: &Line) -> String {
    let text = gain(today, best);
    let mut page = String::new();
    for part in text.split("; ") {
        let (ways, change) = part.rsplit_once(", ").unwrap_or((part, ""));
        let class = if change.ends_with("more") { "more" } else { "less" };
        let _ = write!(
            page,
            "<p class=big>{} <small class={class}>{}</small>",
            escape(ways),
            escape(change)
        );
    }
    page
}

fn role(layout: &Layout, site: usize) -> &'static str {
    match () {
        () if layout.leader() == site => "<span class='role leader'>leader</span>",
        () if layout.has_voter(site) => "<span class='role voter'>voter</span>",
        () if layout.has_replica(site) => "<span class='role replica'>replica</span>",
        () => "",
    }
}

/// Sites by today and the answers.
fn sites(plan: &Plan<'_>, today: Option<&Line>, answers: &[&Line]) -> String {
    let names = ["best", "second", "third"];
    let mut columns: Vec<(&str, &Line)> = today.map(|line| ("today", line)).into_iter().collect();
    columns.extend(names.into_iter().zip(answers.iter().copied()));
    let class = |name: &str| if name == "best" { " class=best" } else { "" };
    let domains = plan.input.domains.as_ref();
    let mut table = "<table class='measures where'><tr><th>site".to_owned();
    table += if domains.is_some() { "<th>failure domain" } else { "" };
    for (name, _) in &columns {
        let _ = write!(table, "<th{}>{name}", class(name));
    }
    for (site, site_name) in plan.input.sites.iter().enumerate() {
        if columns.iter().all(|(_, line)| !line.layout.has_replica(site)) {
            continue;
        }
        let _ = write!(table, "<tr><td class=label>{}", escape(site_name));
        if let Some(domains) = domains {
            let _ = write!(table, "<td>{}", escape(&domains[site]));
        }
        for (name, line) in &columns {
            let _ = write!(table, "<td{}>{}", class(name), role(&line.layout, site));
        }
    }
    let span = if domains.is_some() { " colspan=2" } else { "" };
    let mut row = |what: &str, value: &dyn Fn(&Line) -> String| {
        let _ = write!(table, "<tr><td{span}>{what}");
        for (name, line) in &columns {
            let _ = write!(table, "<td{}>{}", class(name), value(line));
        }
    };
    row("<tfoot>mean", &|line| format!("{:.2} ms", line.mean_ms));
    if let Some(percentile) = &plan.arguments.percentile {
        let value =
            |line: &Line| line.percentile_ms().map_or(String::new(), |value| ms(value) + " ms");
        row(&percentile.to_string(), &value);
    }
    table.replacen(&format!("<tr><td{span}><tfoot>"), &format!("<tfoot><tr><td{span}>"), 1)
        + "</table>"
}

/// Clients of most operations first.
fn clients(plan: &Plan<'_>, waits: &[Wait<usize>], is_move: bool) -> String {
    let mut order: Vec<Wait<usize>> = waits.to_vec();
    order.sort_by(|one, other| other.operations.total_cmp(&one.operations));
    let left = order.len().saturating_sub(CLIENTS_MAX);
    order.truncate(CLIENTS_MAX);
    let name = |wait: &Wait<usize>| plan.input.clients[wait.of].clone();
    let mut text = bars("client", &order, name, plan.past().operations(), is_move);
    if left > 0 {
        let _ = write!(text, "<p class=note>and {left} more of fewer operations");
    }
    text
}

/// What some wait, today and as planned, as bars.
fn bars<T>(
    of: &str,
    waits: &[Wait<T>],
    name: impl Fn(&Wait<T>) -> String,
    all: f64,
    is_move: bool,
) -> String {
    let mut table = format!(
        "<table class='measures bars'><tr><th>{of}<th class=number>operations<th class=number>share"
    );
    table += if is_move { "<th class=number>today" } else { "" };
    table += "<th class=number>planned";
    table += if is_move { "<th class=number>change" } else { "" };
    let longest = waits.iter().flat_map(|wait| [wait.before_ms, wait.after_ms]);
    let longest = longest.fold(1e-9, f64::max);
    for wait in waits {
        let _ = write!(
            table,
            "<tr><td class=label>{}<td class=number>{}<td class=number>{}",
            escape(&name(wait)),
            count(wait.operations),
            percent(wait.operations / all)
        );
        let mut bar = |colour: &str, value: f64| {
            let part = BAR * value / longest;
            let value = ms(value);
            let style = format!("style='--bar:{part:.1}%'");
            let _ = write!(table, "<td class='number {colour}' {style}>{value} ms");
        };
        if is_move {
            bar("c0", wait.before_ms);
        }
        bar("c4", wait.after_ms);
        if is_move {
            let change = wait.after_ms - wait.before_ms;
            let class = if change > 0.0 { "more" } else { "less" };
            let sign = if change > 0.0 { "+" } else { "−" };
            let change = ms(change.abs());
            let _ = write!(table, "<td class='number {class}'>{sign}{change} ms");
        }
    }
    table + "</table>"
}

fn curve(worth: &[Line]) -> String {
    let most = worth.iter().map(|line| line.mean_ms).fold(1e-9, f64::max);
    let mut table = "<table class='measures bars'><tr><th>replicas<th class=number>mean\
                     <th class=number>gain<th class=number>proof"
        .to_owned();
    for (place, line) in worth.iter().enumerate() {
        let gain = place.checked_sub(1).map(|before| worth[before].mean_ms - line.mean_ms);
        let gain = gain.map_or(String::new(), |gain| format!("{gain:.2} ms"));
        let _ = write!(
            table,
            "<tr><td class=label>{}<td class='number c4' style='--bar:{:.1}%'>{:.2} ms\
             <td class=number>{gain}<td class=number>{}",
            line.num_replicas,
            BAR * line.mean_ms / most,
            line.mean_ms,
            proof(line)
        );
    }
    table + "</table>"
}

fn sure(plan: &Plan<'_>, best: &Line) -> String {
    let mut page = "<h2>How sure that is</h2><dl class=facts>".to_owned();
    let mut fact = |name: &str, value: &str| {
        let _ = write!(page, "<dt>{name}<dd>{}", escape(value));
    };
    fact("proof", &proof(best));
    if best.nodes > 0 {
        fact("nodes", &best.nodes.to_string());
    }
    fact("CPU", &format!("{} ms", ms(best.cpu_ms)));
    fact("left out", "load and queues at the leader");
    if let Some(reported) = plan.percentile_report() {
        fact(
            "round trips",
            match reported.round_trips {
                "constant" => {
                    "taken as constant, without their variation: true percentiles are longer"
                }
                "sampled" => {
                    "as sampled, each independent of the others: when links are slow together, \
                          true percentiles are longer"
                }
                _ => {
                    "taken as log-normal and independent: when links are slow together, true \
                  percentiles are longer"
                }
            },
        );
    }
    page + "</dl>"
}
