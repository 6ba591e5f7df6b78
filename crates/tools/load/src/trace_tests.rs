//! What is read from traces, against arithmetic done by hand and an obvious model.

use std::io::Cursor;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_assert, prop_assert_eq, prop_oneof, proptest};

use super::{
    Arrivals, LINE_BYTES_MAX, LoadError, Scale, Segment, Spacing, Trace, TraceOptions, TraceStart,
    Values,
};

fn read(text: &str, options: &TraceOptions) -> Result<Trace, LoadError> {
    Trace::read("t.csv", Cursor::new(text), options)
}

fn plain(text: &str) -> Trace {
    read(text, &TraceOptions::default()).unwrap()
}

fn segments(trace: &Trace) -> Vec<(f64, f64)> {
    trace.segments().iter().map(|&Segment { end_s, rate }| (end_s, rate)).collect()
}

#[test]
fn one_rate_per_line_lasts_a_second_or_the_given_step() {
    assert_eq!(segments(&plain("10\n20\n\n# note\n30\n")), [(1.0, 10.0), (2.0, 20.0), (3.0, 30.0)]);
    let step = Some(Duration::from_secs(5));
    let trace = read("10\n20\n", &TraceOptions { step, ..TraceOptions::default() }).unwrap();
    assert_eq!(segments(&trace), [(5.0, 10.0), (10.0, 20.0)]);
    assert_eq!(trace.requests(), 150.0);
}

#[test]
fn seconds_and_rates_hold_until_the_next_row() {
    let trace = plain("seconds,rate\n100,10\n102,20\n110,5\n");
    assert_eq!(segments(&trace), [(2.0, 10.0), (10.0, 20.0), (12.0, 5.0)]);
}

#[test]
fn periods_and_counts_become_rates_and_missing_rows_are_silence() {
    let text = "period,count\n1998-04-30 21:30:00,60\n1998-04-30 21:31:00,120\n\
                1998-04-30 21:34:00,30\n";
    let trace = plain(text);
    assert_eq!(segments(&trace), [(60.0, 1.0), (120.0, 2.0), (240.0, 0.0), (300.0, 0.5)]);
    assert_eq!(trace.requests(), 210.0);
    assert_eq!((trace.rate_mean(), trace.rate_peak()), (0.7, 2.0));
}

#[test]
fn columns_are_chosen_by_header_and_values_by_name_or_option() {
    let text = "t_s,r0,r1\n0,1,2\n1,3,4\n";
    let options =
        |column: &str| TraceOptions { column: Some(column.into()), ..TraceOptions::default() };
    assert_eq!(segments(&read(text, &options("R1")).unwrap()), [(1.0, 2.0), (2.0, 4.0)]);
    let counts = TraceOptions { values: Some(Values::Counts), ..options("r0") };
    let trace = read("t_s,r0\n0,10\n10,30\n", &counts).unwrap();
    assert_eq!(segments(&trace), [(10.0, 1.0), (20.0, 3.0)]);
    let error = read(text, &options("r9")).unwrap_err().to_string();
    assert_eq!(error, "t.csv:1: got `t_s,r0,r1`, expected a header with the column `r9`");
    let error = read(text, &TraceOptions::default()).unwrap_err().to_string();
    assert!(error.starts_with("t.csv:1: got `t_s,r0,r1`, expected at most two columns"), "{error}");
}

#[test]
fn a_part_is_taken_by_row_or_time() {
    let text = "0,1\n10,2\n20,3\n30,4\n";
    let part = |start| TraceOptions { start, rows: Some(2), ..TraceOptions::default() };
    assert_eq!(
        segments(&read(text, &part(TraceStart::Row(1))).unwrap()),
        [(10.0, 2.0), (20.0, 3.0)]
    );
    let by_time = part(TraceStart::Time("15".into()));
    assert_eq!(segments(&read(text, &by_time).unwrap()), [(10.0, 3.0), (20.0, 4.0)]);
    let late = read(text, &part(TraceStart::Row(9))).unwrap_err().to_string();
    assert!(late.contains("no row at or after the start among 4"), "{late}");
    let wrong = read(text, &part(TraceStart::Time("noon".into()))).unwrap_err().to_string();
    assert!(wrong.contains("got start time `noon`, expected seconds or a time"), "{wrong}");
}

#[test]
fn compression_shortens_time_and_scaling_sets_rates() {
    let text = "0,1\n60,3\n";
    let options = |scale| TraceOptions { compression: 60.0, scale, ..TraceOptions::default() };
    let scaled = |scale| segments(&read(text, &options(scale)).unwrap());
    assert_eq!(scaled(Scale::Factor(1.0)), [(1.0, 1.0), (2.0, 3.0)]);
    assert_eq!(scaled(Scale::Mean(20.0)), [(1.0, 10.0), (2.0, 30.0)]);
    assert_eq!(scaled(Scale::Peak(60.0)), [(1.0, 20.0), (2.0, 60.0)]);
    for (compression, scale) in [(0.0, 1.0), (-1.0, 1.0), (1e300, 1.0), (1.0, 0.0), (1.0, f64::NAN)]
    {
        let scale = Scale::Factor(scale);
        let options = TraceOptions { compression, scale, ..TraceOptions::default() };
        assert!(read(text, &options).is_err(), "{options:?}");
    }
    assert!(read(text, &options(Scale::Peak(1e9))).is_err());
    assert!(read(text, &options(Scale::Factor(1e9))).is_err());
}

#[test]
fn errors_say_where_what_came_and_what_was_expected() {
    let error = |text: &str| read(text, &TraceOptions::default()).unwrap_err().to_string();
    let number = "expected a number of requests, 0 or more";
    assert_eq!(error("1\ntwo\n"), format!("t.csv:2: got `two`, {number}"));
    assert_eq!(error("0,1\n1,-2\n"), format!("t.csv:2: got `-2`, {number}"));
    assert_eq!(error("0,1\n1,inf\n"), format!("t.csv:2: got `inf`, {number}"));
    assert_eq!(error("12,abc\n"), format!("t.csv:1: got `abc`, {number}"));
    assert_eq!(error("0,1\n1\n"), "t.csv:2: got `1`, expected at least 2 comma-separated fields");
    assert!(error("5,1\n5,1\n").starts_with("t.csv:2: got a time 0 s before the row above"));
    assert!(error("").starts_with("t.csv: got no row of numbers"));
    assert!(error("0\n0\n").starts_with("t.csv: got no request in the part used"));
    assert!(error(&"1".repeat(LINE_BYTES_MAX + 1)).starts_with("t.csv:1: got a line of more"));
    let binary = Trace::read("t.csv", Cursor::new([0xff, 0xfe]), &TraceOptions::default());
    assert!(binary.unwrap_err().to_string().contains("got bytes that are no text"));
    let missing = Trace::open(Path::new("/nowhere/t.csv"), &TraceOptions::default());
    assert!(missing.unwrap_err().to_string().starts_with("/nowhere/t.csv: got no readable file"));
    let step = Some(Duration::ZERO);
    assert!(read("1\n", &TraceOptions { step, ..TraceOptions::default() }).is_err());
}

#[test]
fn a_generated_day_has_its_mean_a_trough_before_dawn_and_an_evening_peak() {
    let trace = Trace::diurnal(200.0, Duration::from_secs(24), 3).unwrap();
    assert_eq!(trace.duration(), Duration::from_secs(24));
    assert!((trace.rate_mean() - 200.0).abs() < 1e-6);
    let hour = |hour: usize| {
        let minutes = &trace.segments()[hour * 60..(hour + 1) * 60];
        minutes.iter().map(|segment| segment.rate).sum::<f64>() / 60.0
    };
    let (night, noon, evening) = (hour(4), hour(11), hour(20));
    assert!(night < 0.6 * noon && noon < evening, "{night} {noon} {evening}");
    assert!((300.0..600.0).contains(&trace.rate_peak()), "{}", trace.rate_peak());
    assert_eq!(trace, Trace::diurnal(200.0, Duration::from_secs(24), 3).unwrap());
    assert_ne!(trace, Trace::diurnal(200.0, Duration::from_secs(24), 4).unwrap());
    assert!(Trace::diurnal(200.0, Duration::ZERO, 3).is_err());
}

/// Counts per row, and how many rows are missing after each.
fn counted_rows() -> impl Strategy<Value = Vec<(u32, u32)>> {
    let gap = prop_oneof![4 => Just(0_u32), 1 => 0_u32..5];
    proptest::collection::vec((0_u32..500, gap), 1..60)
}

proptest! {
    /// Scaled by nothing, every row of counts gets exactly its requests, in its own time.
    #[test]
    fn every_step_of_a_trace_gets_its_own_requests(
        rows in counted_rows(),
        step_s in 1_u32..100,
        compression in prop_oneof![Just(1.0), Just(7.0), 0.1_f64..100.0],
    ) {
        let mut text = String::from("period,count\n");
        let mut expected = Vec::new();
        let mut slot = 0_u32;
        for (count, gap) in &rows {
            text.push_str(&format!("{},{count}\n", slot * step_s));
            expected.push((slot, *count));
            slot += 1 + gap;
        }
        let step = Some(Duration::from_secs(step_s.into()));
        // Time is compressed but rates are not: a factor brings the counts back.
        let scale = Scale::Factor(compression);
        let options = TraceOptions { step, compression, scale, ..TraceOptions::default() };
        let total = rows.iter().map(|(count, _)| u64::from(*count)).sum::<u64>();
        if total == 0 {
            prop_assert!(read(&text, &options).is_err());
            return Ok(());
        }
        let trace = read(&text, &options).unwrap();
        prop_assert!((trace.requests() - total as f64).abs() < 1e-6 * total as f64);
        let moments = Arrivals::trace(trace, Spacing::Even).schedule(0).collect::<Vec<_>>();
        prop_assert_eq!(moments.len() as u64, total);
        prop_assert!(moments.is_sorted());
        let mut rest = moments.as_slice();
        for (slot, count) in expected {
            let (own, later) = rest.split_at(count as usize);
            rest = later;
            let start_s = f64::from(slot * step_s) / compression;
            let end_s = f64::from((slot + 1) * step_s) / compression;
            let inside = |due_s: f64| due_s >= start_s - 1e-6 && due_s <= end_s + 1e-6;
            prop_assert!(own.iter().all(|due| inside(due.as_secs_f64())));
        }
    }

    /// Poisson arrivals of any trace have its integral as their mean.
    #[test]
    fn poisson_arrivals_of_a_trace_have_its_mean(rows in counted_rows(), seed in any::<u64>()) {
        let text = rows.iter().map(|(count, _)| format!("{count}\n")).collect::<String>();
        let total = rows.iter().map(|(count, _)| f64::from(*count)).sum::<f64>();
        if total > 0.0 {
            let plan = Arrivals::trace(plain(&text), Spacing::Poisson);
            let count = plan.schedule(seed).count() as f64;
            // Six standard deviations, and room for the skew of small means.
            prop_assert!((count - total).abs() <= 6.0 * total.sqrt() + 10.0, "{} {}", count, total);
        }
    }

    /// Whatever a file holds, it is read or refused.
    #[test]
    fn no_text_breaks_the_reader(text in "[0-9a-z,.:\\- \"#\n\u{feff}é]{0,200}") {
        let _ = read(&text, &TraceOptions::default());
    }
}
