//! Exemplars of the histograms of latency, from the records that are kept anyway.
//!
//! They tell of requests whose trace is sampled, so that there is something to read.

use std::time::SystemTime;

use evenkeel_core::Instant;
use evenkeel_core::time::Duration;
use evenkeel_runtime::metrics::{Exemplar, Scrape};

use super::log::{RequestLog, Which};
use super::record::{AttemptEnd, Place, Remarks};
use crate::metrics::{ATTEMPT_SECONDS, REQUEST_SECONDS};

/// Adds the exemplars of an upstream, at this moment; `address` is the `replica` label of a place.
pub fn collect(
    scrape: &mut Scrape,
    log: &RequestLog,
    now: Instant,
    (place, name): (usize, &str),
    address: impl Fn(Place) -> String,
) {
    if !scrape.wants_exemplars() {
        return;
    }
    let records = log.select(Which::Remarkable, |record| {
        usize::from(record.upstream) == place
            && record.remarks.has(Remarks::SAMPLED)
            && record.trace_id != 0
    });
    let clock = SystemTime::now();
    for record in records {
        let at = |us: u32| clock - now.since(record.began).saturating_sub(micros(us));
        let exemplar = |us: u32, until: u32| {
            let (trace_id, value) = (record.trace_id, micros(us));
            Exemplar { trace_id, value, at: at(until) }
        };
        let upstream = ("upstream", name);
        if record.head_us != u32::MAX {
            scrape.exemplify(
                REQUEST_SECONDS,
                &[upstream],
                exemplar(record.head_us, record.head_us),
            );
        }
        for it in record.tries().iter().filter(|it| it.end == AttemptEnd::Answered) {
            let address = address(it.place);
            let replica = ("replica", &*address);
            let lasted = exemplar(it.ended_us.saturating_sub(it.sent_us), it.ended_us);
            scrape.exemplify(ATTEMPT_SECONDS, &[upstream, replica], lasted);
        }
    }
}

const fn micros(us: u32) -> Duration {
    Duration::from_micros(us as u64)
}
