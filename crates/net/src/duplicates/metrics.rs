//! Duplicates in `/metrics`.

use super::state::{DuplicateState, DuplicatesState};
use crate::exposition::{Exposition, Number, counter, gauge};

const SERVICE: [Number<DuplicatesState>; 21] = [
    gauge("evenkeel_duplicates_clients", "Connections of clients.", |it| Some(it.clients as f64)),
    counter("evenkeel_duplicates_writes_total", "Writes that were acknowledged.", |it| {
        Some(it.writes.count as f64)
    }),
    counter("evenkeel_duplicates_reads_total", "Reads that were answered.", |it| {
        Some(it.reads.count as f64)
    }),
    gauge("evenkeel_duplicates_write_p99_seconds", "99 of a hundred writes.", |it| {
        it.writes.p99_ms.map(|ms| ms * 1e-3)
    }),
    gauge("evenkeel_duplicates_read_p99_seconds", "99 of a hundred reads.", |it| {
        it.reads.p99_ms.map(|ms| ms * 1e-3)
    }),
    counter("evenkeel_duplicates_refused_total", "Commands answered with our error.", |it| {
        Some(it.refused as f64)
    }),
    counter(
        "evenkeel_duplicates_uncertain_writes_total",
        "Writes that too few duplicates had answered when others were dropped.",
        |it| Some(it.uncertain_writes as f64),
    ),
    counter("evenkeel_duplicates_lost_reads_total", "Reads whose duplicates went away.", |it| {
        Some(it.lost_reads as f64)
    }),
    counter(
        "evenkeel_duplicates_disagreements_total",
        "Writes that duplicates answered differently: their data are not equal.",
        |it| Some(it.disagreements as f64),
    ),
    gauge("evenkeel_duplicates_sequence", "The last write.", |it| Some(it.sequence as f64)),
    gauge("evenkeel_duplicates_epoch", "The reign of this process.", |it| Some(it.epoch as f64)),
    gauge("evenkeel_duplicates_log_bytes", "Length of the log.", |it| Some(it.log.bytes as f64)),
    gauge("evenkeel_duplicates_layout_version", "Rises with every change of the layout.", |it| {
        Some(it.moves.layout as f64)
    }),
    gauge("evenkeel_duplicates_moving", "1 while a move or another change is under way.", |it| {
        Some(if it.moves.now.is_some() { 1.0 } else { 0.0 })
    }),
    counter("evenkeel_duplicates_moves_total", "Moves and other changes that were done.", |it| {
        Some(it.moves.done as f64)
    }),
    counter("evenkeel_duplicates_moves_failed_total", "Changes given up for good.", |it| {
        Some(it.moves.failed as f64)
    }),
    counter("evenkeel_duplicates_moves_again_total", "Times a move had to begin again.", |it| {
        Some(it.moves.begun_again as f64)
    }),
    counter("evenkeel_duplicates_moved_keys_total", "Keys copied to another partition.", |it| {
        Some(it.moves.keys as f64)
    }),
    gauge(
        "evenkeel_duplicates_within_objective_ratio",
        "First answers within the objective, of the manager's last window.",
        |it| it.advice.as_ref().filter(|advice| advice.rows > 0).map(|it| it.measured_within),
    ),
    gauge(
        "evenkeel_duplicates_predicted_within_objective_ratio",
        "What the manager predicts of the present partitions and duplicates.",
        |it| it.advice.as_ref().and_then(|advice| advice.predicted_within),
    ),
    gauge(
        "evenkeel_duplicates_objective_target_ratio",
        "First answers that should be within the objective.",
        |it| it.advice.as_ref().map(|advice| advice.target),
    ),
];

const DUPLICATE: [Number<DuplicateState>; 8] = [
    gauge("evenkeel_duplicate_live", "1 while it is live, 0 otherwise.", |it| {
        Some(if it.standing == "live" { 1.0 } else { 0.0 })
    }),
    gauge("evenkeel_duplicate_applied", "The last write it has answered.", |it| {
        Some(it.applied as f64)
    }),
    gauge("evenkeel_duplicate_owed", "Answers it owes.", |it| Some(it.owed as f64)),
    gauge("evenkeel_duplicate_answer_p99_seconds", "99 of a hundred of its answers.", |it| {
        it.answers.p99_ms.map(|ms| ms * 1e-3)
    }),
    counter("evenkeel_duplicate_lost_total", "Times its connection broke.", |it| {
        Some(it.dropped.lost as f64)
    }),
    counter("evenkeel_duplicate_silent_total", "Times it was silent for too long.", |it| {
        Some(it.dropped.silent as f64)
    }),
    counter("evenkeel_duplicate_full_total", "Times it owed too many answers.", |it| {
        Some(it.dropped.full as f64)
    }),
    counter("evenkeel_duplicate_failed_total", "Times it could not do what others can.", |it| {
        Some(it.dropped.failed as f64)
    }),
];

/// Appends how services of duplicates stand.
pub(crate) fn write<'s>(states: impl Iterator<Item = &'s DuplicatesState>, text: &mut String) {
    let states: Vec<&DuplicatesState> = states.collect();
    let services: Vec<_> =
        states.iter().map(|state| ([("service", state.name.as_str())], *state)).collect();
    let mut exposition = Exposition(text);
    exposition.table(&SERVICE, &services);
    let numbers: Vec<String> = (0..states.iter().map(|it| it.partitions.len()).max().unwrap_or(0))
        .map(|number| number.to_string())
        .collect();
    let mut duplicates = Vec::new();
    for state in &states {
        for (partition, number) in state.partitions.iter().zip(&numbers) {
            for duplicate in &partition.duplicates {
                let labels = [
                    ("service", state.name.as_str()),
                    ("partition", number.as_str()),
                    ("duplicate", duplicate.address.as_str()),
                ];
                duplicates.push((labels, duplicate));
            }
        }
    }
    exposition.table(&DUPLICATE, &duplicates);
}
