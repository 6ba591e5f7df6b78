//! Plans by price in a run: curves with hedges, the work of requests, prices.

use evenkeel_core::Duration;
use evenkeel_core::time::nanos;
use evenkeel_geo::curve::Prior;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::joint::Service;
use evenkeel_geo::planner::{Planner, Pricing};

use super::learning::Learning;
use super::profile;
use crate::scenario::{Geography, Redirect, Scenario, Spelling};

/// The planner by price of a scenario, from the planner without.
pub(crate) fn planner(
    scenario: &Scenario,
    geography: &Geography,
    spelling: Spelling<'_>,
    planner: Planner,
) -> Planner {
    let extra_ppm = (scenario.run.hedge.budget_share * 1e6).round() as u32;
    // A guess says nothing of hedges.
    let hedged = (spelling.is_hedged && geography.redirect.profiled)
        .then(|| (profile::hedged_curves(scenario, geography, spelling.policy), extra_ppm));
    let services = vec![service(scenario); geography.sites.len()];
    let prices = geography.prices.map(|prices| prices.of_plans()).unwrap_or_default();
    let pricing = Pricing { hedged, services, prices };
    planner.with_prices(pricing).expect("simulated profiles are sound")
}

/// What requests are at every site.
fn service(scenario: &Scenario) -> Service {
    let us = |time: Duration| u32::try_from(nanos(time) / 1_000).unwrap_or(u32::MAX);
    match &scenario.work {
        Some(work) => Service { full_us: us(work.optional), lean_us: us(work.mandatory) },
        None => {
            let work_us = us(scenario.cluster.service_mean);
            Service { full_us: work_us, lean_us: work_us }
        }
    }
}

/// What a site learns from, of its curves with and without hedges.
pub(crate) fn learning(
    scenario: &Scenario,
    redirect: &Redirect,
    planner: &Planner,
    site: usize,
) -> Learning {
    let kind = if redirect.profiled { Prior::Profile } else { Prior::Guess };
    let site = SiteId::new(site);
    Learning::new(kind, planner.curves(site), planner.hedged(site), service(scenario))
}
