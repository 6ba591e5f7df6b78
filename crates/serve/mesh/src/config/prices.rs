//! Plans by price: `[redirect.prices]`, and what sites say for it.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::time::nanos;
use evenkeel_geo::joint::{Prices, Service};
use evenkeel_settings::common::file;
use evenkeel_settings::prices::prices;
use evenkeel_settings::{Mismatch, Table};

use super::{RedirectPrices, RedirectSite};

const PPM: f64 = 1e6;
/// Work of copies over that of first ones, unless said otherwise: the hedges' budget.
const COPIES: f64 = 0.05;
const WORK_MIN: Duration = Duration::from_micros(1);
/// Nobody works longer on one request.
const WORK_MAX: Duration = Duration::from_secs(600);

/// `[redirect.prices]`, with `aim = "price"` only; `None` with another aim. What it leaves out is
/// as in `unsaid`.
pub(super) fn read(table: &mut Table<'_>, is_aim: bool, unsaid: Prices) -> Option<RedirectPrices> {
    let said = table.key("prices");
    let is_said = said.value().is_some();
    let said = said.table(move |table| RedirectPrices {
        prices: prices(table, &unsaid),
        copies_ppm: ppm(table.key("copies").probability().or(COPIES)),
    });
    let prices = said.or(RedirectPrices { prices: unsaid, copies_ppm: ppm(COPIES) });
    if is_aim {
        for key in ["relay", "overload", "overload_price"] {
            if table.key(key).value().is_some() {
                let came = format!("{key} with aim = \"price\"");
                let expected = "nothing: by price every site may relay, and overload has a price";
                table.problem(key, Mismatch::new(came, expected));
            }
        }
        return Some(prices);
    }
    if is_said {
        let expected = "aim = \"price\" too: other aims have no prices";
        table.problem("prices", Mismatch::new("prices alone", expected));
    }
    None
}

/// What a site says for plans by price: the work of its requests, and its curves with hedges.
pub(super) fn of_site(table: &mut Table<'_>) -> (Service, Vec<PathBuf>) {
    let mut work = |key: &str| table.key(key).duration().between(WORK_MIN..=WORK_MAX).optional();
    let (full, lean) = (work("work"), work("lean_work"));
    let hedged = table.key("hedged_curves").list(file).optional();
    let us = |work: Duration| u32::try_from(nanos(work) / 1_000).unwrap_or(u32::MAX);
    if full.is_none() && (lean.is_some() || hedged.is_some()) {
        let key = if lean.is_some() { "lean_work" } else { "hedged_curves" };
        let expected = "work too: copies and optional content are priced by the work of a request";
        table.problem(key, Mismatch::new(format!("{key} alone"), expected));
    }
    if let (Some(full), Some(lean)) = (full, lean)
        && lean > full
    {
        let expected = format!("at most {full:?}, the work of a full request");
        table.problem("lean_work", Mismatch::new(format!("{lean:?}"), expected));
    }
    let full = full.map_or(0, us);
    let lean_us = lean.map_or(full, us);
    (Service { full_us: full, lean_us }, hedged.unwrap_or_default())
}

/// Sites that say something for plans by price where there are none, or not all alike.
pub(super) fn check(
    table: &mut Table<'_>,
    sites: &[RedirectSite],
    (is_priced, is_follower): (bool, bool),
) {
    let of = |site: &&RedirectSite| site.work != Service::default();
    if let Some(site) = sites.iter().find(of).filter(|_| !is_priced) {
        let expected = "aim = \"price\" too: other aims do not ask for it";
        table.problem("sites", Mismatch::new(format!("work of {}", site.name), expected));
    }
    // A follower has no curves, and asks for none.
    if is_follower || sites.iter().all(|site| site.hedged_curves.is_empty()) {
        return;
    }
    let differs = |site: &&RedirectSite| site.hedged_curves.len() != site.curves.len();
    if let Some(site) = sites.iter().find(differs) {
        let (came, expected) = (site.hedged_curves.len(), site.curves.len());
        let came = format!("{came} hedged_curves of {}", site.name);
        let expected = format!("{expected}, as many as its curves, at each site or at none");
        table.problem("sites", Mismatch::new(came, expected));
    }
}

fn ppm(share: f64) -> u32 {
    (share * PPM).round() as u32
}
