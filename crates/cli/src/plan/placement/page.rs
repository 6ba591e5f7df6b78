//! A placement as a page: who is where, what each client waits before and after, what further
//! replicas are worth. One file, no outside resources.

use std::fmt::Write as _;

use evenkeel_core::placement::model::{Layout, Operation};
use evenkeel_core::placement::score::{Way, quorum_ms};

use super::{Line, Plan, proof};

const STYLE: &str = include_str!("../../paper/page.css");
const OWN_STYLE: &str = include_str!("../page.css");
/// More clients than this, those of most operations, are not shown.
const CLIENTS_MAX: usize = 60;

pub(super) fn page(
    plan: &Plan<'_>,
    today: Option<&Line>,
    results: &[Line],
    worth: &[Line],
) -> String {
    let title = escape(&plan.title);
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8>\
         <meta name=viewport content='width=device-width'><title>{title}</title>\
         <style>{STYLE}{OWN_STYLE}</style><main class=plan>\
         <p class=kicker>evenkeel plan placement</p><h1>{title}</h1>"
    );
    let Some(best) = results.first() else { return page + "</main></html>\n" };
    if let Some(today) = today {
        let _ = write!(page, "<p>{}</p>", escape(&plan.moves(today, best)));
    }
    page += "<h2>Who is where</h2>";
    page += &sites(plan, today, best);
    page += "<h2>What clients wait</h2>";
    page += &clients(plan, today, best);
    if !worth.is_empty() {
        page += "<h2>What a further replica is worth</h2>";
        page += &curve(worth);
    }
    let _ = write!(page, "<h2>How sure that is</h2><dl class=facts><dt>proof<dd>{}", proof(best));
    let _ = write!(page, "<dt>nodes<dd>{}<dt>CPU<dd>{:.1} ms</dl>", best.nodes, best.cpu_ms);
    page + "</main></html>\n"
}

fn role(layout: &Layout, site: usize) -> &'static str {
    match () {
        () if layout.leader() == site => "leader",
        () if layout.has_voter(site) => "voter",
        () if layout.has_replica(site) => "replica",
        () => "",
    }
}

fn sites(plan: &Plan<'_>, today: Option<&Line>, best: &Line) -> String {
    let mut table = "<table class=measures><tr><th>site<th>today<th>planned".to_owned();
    for (site, name) in plan.input.sites.iter().enumerate() {
        let before = today.map_or("", |today| role(&today.layout, site));
        let after = role(&best.layout, site);
        if !before.is_empty() || !after.is_empty() {
            let _ = write!(table, "<tr><td class=label>{}<td>{before}<td>{after}", escape(name));
        }
    }
    table + "</table>"
}

/// Clients of most operations first.
fn clients(plan: &Plan<'_>, today: Option<&Line>, best: &Line) -> String {
    let weight = |client: usize| plan.counts.of(client).iter().sum::<f64>();
    let mut order: Vec<usize> = (0..plan.counts.clients()).collect();
    order.retain(|&client| weight(client) > 0.0);
    order.sort_by(|a, b| weight(*b).total_cmp(&weight(*a)));
    order.truncate(CLIENTS_MAX);
    let mut table = "<table class='measures late'><tr><th>client<th class=number>operations\
                     <th class=number>today<th class=number>planned"
        .to_owned();
    let lines = [today, Some(best)];
    let waits = |client: usize| lines.map(|line| line.map(|line| mean_ms(plan, line, client)));
    let most = order.iter().flat_map(|&client| waits(client)).flatten().fold(1e-9, f64::max);
    for client in order {
        let name = escape(&plan.input.clients[client]);
        let _ = write!(table, "<tr><td class=label>{name}<td class=number>{:.0}", weight(client));
        for ms in waits(client) {
            match ms {
                None => table += "<td class=number>",
                Some(ms) => {
                    let bar = 100.0 * ms / most;
                    let _ = write!(table, "<td class=number style='--bar:{bar:.1}%'>{ms:.1} ms");
                }
            }
        }
    }
    table + "</table>"
}

fn mean_ms(plan: &Plan<'_>, line: &Line, client: usize) -> f64 {
    let (trips, layout) = (&plan.input.trips, &line.layout);
    let quorum = quorum_ms(trips, layout.leader(), layout.voters());
    let way = Way::of(trips, client, layout.replicas(), layout.leader(), plan.arguments.route);
    let counts = plan.counts.of(client);
    let of =
        |&operation: &Operation| counts[operation as usize] * way.latency_ms(operation, quorum);
    Operation::ALL.iter().map(of).sum::<f64>() / counts.iter().sum::<f64>()
}

fn curve(worth: &[Line]) -> String {
    let most = worth.iter().map(|line| line.mean_ms).fold(1e-9, f64::max);
    let mut table = "<table class='measures late'><tr><th class=number>replicas\
                     <th class=number>mean<th>proof"
        .to_owned();
    for line in worth {
        let _ = write!(
            table,
            "<tr><td class=number>{}<td class=number style='--bar:{:.1}%'>{:.2} ms<td>{}",
            line.num_replicas,
            100.0 * line.mean_ms / most,
            line.mean_ms,
            proof(line)
        );
    }
    table + "</table>"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&#39;")
}
