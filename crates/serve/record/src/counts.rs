//! What is counted of the recording.

use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_runtime::metrics::{Metric, counter, counter_by};

/// Counts of all streams.
#[derive(Debug, Default)]
pub struct RecordCounts {
    /// Rows that were given to files.
    pub rows: AtomicU64,
    /// Of these, second copies of pairs.
    pub pairs: AtomicU64,
    /// Of these, those that another policy decided.
    pub explored: AtomicU64,
    /// Files that are whole and on the disk.
    pub files: AtomicU64,
    /// Bytes of these.
    pub bytes: AtomicU64,
    /// Windows that are over.
    pub windows: AtomicU64,
    /// Of these, those whose rows are missing, all or some.
    pub windows_dropped: AtomicU64,
    /// Rows that are missing as there were too many to write.
    pub overload: AtomicU64,
    /// Rows that are missing as the disk did not take them.
    pub disk: AtomicU64,
    /// Rows of copies that took longer than their day.
    pub late: AtomicU64,
    /// Times that files could not be written.
    pub failures: AtomicU64,
}

impl RecordCounts {
    /// The metrics of `/metrics`.
    pub const METRICS: [Metric<Self>; 8] = [
        counter(
            "evenkeel_record_rows_total",
            "Copies of requests in files that were closed.",
            |it| get(&it.rows).into(),
        ),
        counter("evenkeel_record_pairs_total", "Second copies of pairs.", |it| {
            get(&it.pairs).into()
        }),
        counter("evenkeel_record_explored_total", "Copies that the other policy sent.", |it| {
            get(&it.explored).into()
        }),
        counter("evenkeel_record_files_total", "Files that were closed.", |it| {
            get(&it.files).into()
        }),
        counter("evenkeel_record_bytes_total", "Bytes of files that were closed.", |it| {
            get(&it.bytes).into()
        }),
        counter_by(
            "evenkeel_record_windows_total",
            "Windows of ten seconds that are whole (kept), or lack rows (dropped).",
            "state",
            |it| {
                let dropped = get(&it.windows_dropped);
                let kept = get(&it.windows).saturating_sub(dropped);
                vec![("kept", kept.into()), ("dropped", dropped.into())]
            },
        ),
        counter_by(
            "evenkeel_record_rows_lost_total",
            "Copies that are missing: there were too many to write (overload), the disk did not \
             take them (disk), or they took longer than their day (late).",
            "reason",
            |it| {
                vec![
                    ("overload", get(&it.overload).into()),
                    ("disk", get(&it.disk).into()),
                    ("late", get(&it.late).into()),
                ]
            },
        ),
        counter("evenkeel_record_failures_total", "Times that no file could be written.", |it| {
            get(&it.failures).into()
        }),
    ];
}

pub(crate) fn add(to: &AtomicU64, count: u64) {
    to.fetch_add(count, Ordering::Relaxed);
}

pub(crate) fn get(of: &AtomicU64) -> u64 {
    of.load(Ordering::Relaxed)
}
