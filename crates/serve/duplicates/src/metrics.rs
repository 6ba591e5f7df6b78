//! Duplicates, for the registry of metrics.

use evenkeel_duplicates_state::{DuplicateState, DuplicatesState};
use evenkeel_proxy::metrics::collect_balanced;
use evenkeel_runtime::metrics::{Metric, Scrape, counter, counter_by, gauge, histogram};

const OF_SERVICES: [Metric<DuplicatesState>; 27] = [
    gauge("evenkeel_duplicates_clients", "Connected clients.", |it| it.clients.into()),
    counter("evenkeel_duplicates_writes_total", "Acknowledged writes.", |it| {
        it.writes.latencies.count().into()
    }),
    counter("evenkeel_duplicates_reads_total", "Answered reads.", |it| {
        it.reads.latencies.count().into()
    }),
    histogram("evenkeel_duplicates_write_seconds", "Latency of acknowledged writes.", |it| {
        Some(&it.writes.latencies)
    }),
    histogram("evenkeel_duplicates_read_seconds", "Latency of answered reads.", |it| {
        Some(&it.reads.latencies)
    }),
    counter("evenkeel_duplicates_refused_total", "Commands answered with our own error.", |it| {
        it.refused.into()
    }),
    counter(
        "evenkeel_duplicates_uncertain_writes_total",
        "Writes with too few answers when their duplicates were disconnected.",
        |it| it.uncertain_writes.into(),
    ),
    counter("evenkeel_duplicates_lost_reads_total", "Reads whose duplicates disconnected.", |it| {
        it.lost_reads.into()
    }),
    counter(
        "evenkeel_duplicates_subscribers_cut_off_total",
        "Clients that were disconnected because they did not read their messages.",
        |it| it.subscribers_cut_off.into(),
    ),
    counter(
        "evenkeel_duplicates_disagreements_total",
        "Writes with different answers, and keys or duplicates found to differ from the others.",
        |it| it.disagreements.into(),
    ),
    counter("evenkeel_duplicates_compared_keys_total", "Keys compared between duplicates.", |it| {
        it.compared_keys.into()
    }),
    counter(
        "evenkeel_duplicates_expired_keys_total",
        "Keys used at their deadline, and removed from all duplicates at one place.",
        |it| it.expired_keys.into(),
    ),
    gauge(
        "evenkeel_duplicates_undecided_keys",
        "Keys that differ while no majority tells who is right. Alert on it.",
        |it| (it.undecided_keys as u64).into(),
    ),
    gauge("evenkeel_duplicates_sequence", "Sequence number of the last write.", |it| {
        it.sequence.into()
    }),
    gauge("evenkeel_duplicates_leads", "1 while this process leads, 0 while it stands by.", |it| {
        ["alone", "leads"].contains(&it.role).into()
    }),
    gauge("evenkeel_duplicates_term", "Term of this leader.", |it| it.term.into()),
    gauge("evenkeel_duplicates_log_bytes", "Length of the log.", |it| it.log.bytes.into()),
    gauge(
        "evenkeel_duplicates_log_failed",
        "1 while the log cannot be written: reads only. Alert on it.",
        |it| it.log.failed.into(),
    ),
    gauge("evenkeel_duplicates_layout_version", "Version of the layout of partitions.", |it| {
        it.moves.layout.into()
    }),
    gauge("evenkeel_duplicates_moving", "1 while a change of the layout is under way.", |it| {
        it.moves.now.is_some().into()
    }),
    counter("evenkeel_duplicates_moves_total", "Completed changes of the layout.", |it| {
        it.moves.done.into()
    }),
    counter("evenkeel_duplicates_moves_failed_total", "Failed changes of the layout.", |it| {
        it.moves.failed.into()
    }),
    counter("evenkeel_duplicates_moves_restarted_total", "Restarts of moves.", |it| {
        it.moves.begun_again.into()
    }),
    counter("evenkeel_duplicates_moved_keys_total", "Keys copied to another partition.", |it| {
        it.moves.keys.into()
    }),
    gauge(
        "evenkeel_duplicates_within_objective_ratio",
        "First answers within the objective, in the manager's last window.",
        |it| {
            let advice = it.advice.as_ref().filter(|advice| advice.rows > 0);
            advice.map(|advice| advice.measured_within).into()
        },
    ),
    gauge(
        "evenkeel_duplicates_predicted_within_objective_ratio",
        "The manager's prediction for the present partitions and duplicates.",
        |it| it.advice.as_ref().and_then(|advice| advice.predicted_within).into(),
    ),
    gauge(
        "evenkeel_duplicates_objective_target_ratio",
        "First answers that should be within the objective.",
        |it| it.advice.as_ref().map(|advice| advice.target).into(),
    ),
];

const OF_DUPLICATES: [Metric<DuplicateState>; 6] = [
    gauge("evenkeel_duplicate_in_sync", "1 while it is in sync.", |it| {
        (it.state == "in-sync").into()
    }),
    gauge("evenkeel_duplicate_applied", "Sequence number of its last answered write.", |it| {
        it.applied.into()
    }),
    gauge(
        "evenkeel_duplicate_quarantined",
        "1 from when it was found to differ from the others until it is filled again.",
        |it| it.quarantine.is_some().into(),
    ),
    gauge("evenkeel_duplicate_pending", "Replies that it has not sent yet.", |it| {
        it.pending.into()
    }),
    histogram("evenkeel_duplicate_answer_seconds", "Latency of its own answers.", |it| {
        Some(&it.answers.latencies)
    }),
    counter_by(
        "evenkeel_duplicate_dropped_total",
        "Disconnections by reason: lost (its connection broke), silent (no reply in time), full \
         (too many pending replies), failed (it cannot do what others can), diverged (its data \
         differ).",
        "reason",
        |it| {
            vec![
                ("lost", it.dropped.lost.into()),
                ("silent", it.dropped.silent.into()),
                ("full", it.dropped.full.into()),
                ("failed", it.dropped.failed.into()),
                ("diverged", it.dropped.diverged.into()),
            ]
        },
    ),
];

/// Adds how a service stands.
pub fn collect(scrape: &mut Scrape, state: &DuplicatesState) {
    let service = ("service", &*state.name);
    scrape.table(&OF_SERVICES, [(vec![service], state)]);
    for (number, partition) in state.partitions.iter().enumerate() {
        let number = number.to_string();
        let duplicates = partition.duplicates.iter();
        let rows = duplicates
            .map(|it| (vec![service, ("partition", &*number), ("duplicate", &*it.address)], it));
        scrape.table(&OF_DUPLICATES, rows);
    }
    collect_balanced(scrape, &[state.balanced()]);
}
