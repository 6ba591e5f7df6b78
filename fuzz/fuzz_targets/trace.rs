//! Any text as a request trace, read with any options.
//!
//! Promise: a trace or an error, never a panic; in a trace that is accepted time advances, rates
//! are within bounds and some requests come.

#![no_main]

use std::time::Duration;

use arbitrary::Arbitrary;
use evenkeel_load::{RATE_MAX, Scale, Trace, TraceOptions, TraceStart, Values};
use libfuzzer_sys::fuzz_target;

const SCALES: [fn(f64) -> Scale; 3] = [Scale::Factor, Scale::Mean, Scale::Peak];

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    start: Option<Result<u8, &'a str>>,
    rows: Option<u8>,
    step: Option<Duration>,
    compression: Option<f64>,
    scale: Option<(u8, f64)>,
    counts: Option<bool>,
    column: Option<&'a str>,
    text: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    check(&input, &TraceOptions::default());
    check(&input, &options(&input));
});

fn options(input: &Input<'_>) -> TraceOptions {
    TraceOptions {
        column: input.column.map(str::to_owned),
        values: input.counts.map(|yes| if yes { Values::Counts } else { Values::Rates }),
        start: match input.start {
            Some(Err(time)) => TraceStart::Time(time.to_owned()),
            row => TraceStart::Row(row.and_then(Result::ok).unwrap_or(0).into()),
        },
        rows: input.rows.map(usize::from),
        step: input.step,
        compression: input.compression.unwrap_or(1.0),
        scale: input
            .scale
            .map_or(Scale::Factor(1.0), |(kind, by)| SCALES[usize::from(kind % 3)](by)),
    }
}

fn check(input: &Input<'_>, options: &TraceOptions) {
    let Ok(trace) = Trace::read("fuzz.csv", input.text, options) else { return };
    let (mut end_s, requests) = (0.0, trace.requests());
    for segment in &**trace.segments() {
        assert!(segment.end_s.is_finite() && segment.end_s > end_s, "{segment:?} after {end_s}");
        assert!((0.0..=RATE_MAX).contains(&segment.rate), "{segment:?}");
        end_s = segment.end_s;
    }
    assert!(requests.is_finite() && requests > 0.0, "{requests} requests");
    let _ = trace.duration();
}
