//! What placement shows: its metrics, and `/api/v1/placement`.

use std::sync::Arc;

use tokio::sync::watch;

use super::state::{DatabaseState, PlacementState};
use evenkeel_runtime::component::{Endpoint, Surface};
use evenkeel_runtime::metrics::{Metric, Scrape, Value, counter, counter_by, gauge, gauge_by};

/// What the placement of a process shows, or nothing where there is none.
#[must_use]
pub fn surface(state: Option<watch::Receiver<Arc<PlacementState>>>) -> Surface {
    let reported = state.clone();
    let get = move || {
        let state = reported.as_ref().map(|state| Arc::clone(&state.borrow()));
        serde_json::to_string(&state.as_deref()).expect("numbers and names are JSON")
    };
    let metrics = move |scrape: &mut _| {
        if let Some(state) = &state {
            collect(scrape, &state.borrow());
        }
    };
    let endpoints = vec![Endpoint::get("/api/v1/placement", get)];
    Surface { endpoints, ..Surface::of_metrics(metrics) }
}

/// Adds how databases stand.
pub fn collect(scrape: &mut Scrape, state: &PlacementState) {
    let databases = state.databases.iter();
    scrape.table(&OF_DATABASES, databases.map(|it| (vec![("database", it.name.as_str())], it)));
    scrape.single(&OF_ALL, state);
}

const OF_ALL: [Metric<PlacementState>; 1] =
    [counter("evenkeel_placement_rounds_total", "Intervals that were decided about.", |it| {
        it.rounds.into()
    })];

const OF_DATABASES: [Metric<DatabaseState>; 8] = [
    gauge_by(
        "evenkeel_placement_latency_seconds",
        "Latency of operations by counts and round trips, now and under the goal: the mean, or the \
         percentile that is configured.",
        "layout",
        |it| vec![("now", seconds(it.now_ms)), ("goal", seconds(it.goal_ms))],
    ),
    counter_by(
        "evenkeel_placement_decisions_total",
        "Intervals by the decision at their end.",
        "verdict",
        |it| {
            vec![
                ("move", it.counts.decided_to_move.into()),
                ("stay", it.counts.decided_to_stay.into()),
                ("undecided", it.counts.undecided.into()),
            ]
        },
    ),
    counter("evenkeel_placement_moves_total", "Moves that reached their goal.", |it| {
        it.counts.moves.into()
    }),
    counter("evenkeel_placement_stopped_total", "Moves that stopped before their goal.", |it| {
        it.counts.stopped.into()
    }),
    counter("evenkeel_placement_collected_total", "Intervals with known operations.", |it| {
        it.counts.collected.into()
    }),
    counter(
        "evenkeel_placement_collect_failures_total",
        "Intervals that were skipped because their operations are unknown.",
        |it| it.counts.collect_failures.into(),
    ),
    counter(
        "evenkeel_placement_store_failures_total",
        "Looks at the store at which no member could tell how it is.",
        |it| it.counts.store_failures.into(),
    ),
    gauge(
        "evenkeel_placement_unwell_replicas",
        "Replicas that do not serve, when they were seen last.",
        |it| it.unwell.into(),
    ),
];

fn seconds(ms: Option<f64>) -> Value {
    ms.map(|ms| ms * 1e-3).into()
}
