//! Placement in `/metrics` (Prometheus text exposition format 0.0.4).
//!
//! What is not known has no sample rather than a zero. Names of databases are plain text:
//! configuration is checked where it is read.

use std::fmt::Write as _;

use super::state::{DatabaseState, PlacementState};

type Family = (&'static str, &'static str, &'static str, &'static [Series]);
type Series = (&'static str, fn(&DatabaseState) -> Option<f64>);

const FAMILIES: [Family; 6] = [
    (
        "evenkeel_placement_latency_seconds",
        "gauge",
        "What operations take by counts and round trips, now and under the goal: the mean, or the \
         percentile that is configured.",
        &[
            (",layout=\"now\"", |database| database.now_ms.map(|ms| ms * 1e-3)),
            (",layout=\"goal\"", |database| database.goal_ms.map(|ms| ms * 1e-3)),
        ],
    ),
    (
        "evenkeel_placement_decisions_total",
        "counter",
        "Intervals by what was decided at their end.",
        &[
            (",verdict=\"move\"", |database| Some(database.counts.decided_to_move as f64)),
            (",verdict=\"stay\"", |database| Some(database.counts.decided_to_stay as f64)),
            (",verdict=\"undecided\"", |database| Some(database.counts.undecided as f64)),
        ],
    ),
    (
        "evenkeel_placement_moves_total",
        "counter",
        "Moves that reached their goal.",
        &[("", |database| Some(database.counts.moves as f64))],
    ),
    (
        "evenkeel_placement_stopped_total",
        "counter",
        "Moves that stopped before their goal.",
        &[("", |database| Some(database.counts.stopped as f64))],
    ),
    (
        "evenkeel_placement_collected_total",
        "counter",
        "Intervals whose operations are known.",
        &[("", |database| Some(database.counts.collected as f64))],
    ),
    (
        "evenkeel_placement_collect_failures_total",
        "counter",
        "Intervals that were skipped, since their operations are not known.",
        &[("", |database| Some(database.counts.collect_failures as f64))],
    ),
];

const INFALLIBLE: &str = "writing to a string cannot fail";

/// Appends how databases stand.
pub(crate) fn write(state: &PlacementState, text: &mut String) {
    for (name, kind, help, series) in &FAMILIES {
        writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}").expect(INFALLIBLE);
        for database in &state.databases {
            for (label, value) in *series {
                let Some(value) = value(database) else { continue };
                let of = &database.name;
                writeln!(text, "{name}{{database=\"{of}\"{label}}} {value}").expect(INFALLIBLE);
            }
        }
    }
    let name = "evenkeel_placement_rounds_total";
    let help = "Intervals that were decided about.";
    let rounds = state.rounds;
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {rounds}")
        .expect(INFALLIBLE);
}
