//! Many databases as a page: where each goes, and how full sites become.

use std::fmt::Write as _;

use super::fleet_document::Document;
use super::page::{BAR, opened};
use crate::html::escape;

pub(super) fn page(document: &Document) -> String {
    let mut page = opened(&document.title, &document.about());
    if !document.capacity.is_empty() {
        page += "<h2>How full sites become</h2>";
        page += &sites(document);
    }
    page += "<h2>Where leaders go</h2>";
    page += &databases(document);
    page + "</main></html>\n"
}

fn sites(document: &Document) -> String {
    let mut table = "<table class='measures bars'><tr><th>site<th class=number>leaders\
                     <th class=number>load/s<th class=number>capacity/s<th class=number>used\
                     <th class=number>without capacities/s"
        .to_owned();
    for site in &document.capacity {
        let [name, leaders, load, capacity, used, alone] = site.cells();
        let part = BAR * site.used().unwrap_or(0.0).min(1.0);
        let is_over = site.capacity_per_s.is_some_and(|capacity| site.alone_per_s > capacity);
        let class = if is_over { "number more" } else { "number" };
        let _ = write!(
            table,
            "<tr><td class=label>{}<td class=number>{leaders}<td class=number>{load}\
             <td class=number>{capacity}<td class='number c4' style='--bar:{part:.1}%'>{used}\
             <td class='{class}'>{alone}",
            escape(&name)
        );
    }
    table + "</table>"
}

fn databases(document: &Document) -> String {
    let mut table = "<table class='measures bars'><tr><th>database<th class=number>today\
                     <th class=number>planned<th class=text>leader today<th>leader\
                     <th class=number>gives way"
        .to_owned();
    let shown = document.shown();
    let waits = |one: &&super::fleet_document::Decided| {
        let today = one.today.as_ref().map_or(0.0, |today| today.mean_ms);
        today.max(one.result.mean_ms)
    };
    let longest = shown.iter().map(waits).fold(1e-9, f64::max);
    for one in &shown {
        let [name, today, planned, led, leads, gives] = one.cells().map(|cell| escape(&cell));
        let part = |ms: f64| BAR * ms / longest;
        let before = one.today.as_ref().map_or(0.0, |today| part(today.mean_ms));
        let after = part(one.result.mean_ms);
        let _ = write!(
            table,
            "<tr><td class=label>{name}<td class='number c0' style='--bar:{before:.1}%'>{today}\
             <td class='number c4' style='--bar:{after:.1}%'>{planned}\
             <td class=text>{led}<td>{leads}\
             <td class='number more'>{gives}"
        );
    }
    let left = document.databases.len() - shown.len();
    let more = format!("<p class=note>and {left} more that give way less");
    table + "</table>" + if left > 0 { &more } else { "" }
}
