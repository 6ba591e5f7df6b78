//! What looking up names brought, for metrics.

use std::sync::Arc;

use evenkeel_dns::{Lookups, Names};
use evenkeel_runtime::component::Surface;
use evenkeel_runtime::metrics::{Metric, Scrape, counter_by, gauge};

/// Of the names that connections are opened to.
pub(super) fn surface(names: Arc<Names>) -> Surface {
    Surface::of_metrics(move |scrape: &mut Scrape| scrape.single(&COUNTED, &names.lookups()))
}

const COUNTED: [Metric<Lookups>; 2] = [
    counter_by(
        "evenkeel_name_lookups_total",
        "Lookups of names to connect to: whole, partial (one kind of address is unknown), or \
         failed (no answer, SERVFAIL, no such name, no address).",
        "outcome",
        |it| {
            vec![
                ("whole", it.whole.into()),
                ("partial", it.partial.into()),
                ("failed", it.failed.into()),
            ]
        },
    ),
    gauge(
        "evenkeel_names_failing",
        "Names to connect to whose last lookup failed: their last addresses stay in use.",
        |it| it.failing.into(),
    ),
];
