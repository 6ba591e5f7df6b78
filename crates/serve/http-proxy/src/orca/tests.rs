//! Reports in every form, reports that lie, and what reading and writing cost.

use std::time::Instant as Watch;

use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn taken(name: &'static str, value: &[u8]) -> Result<Option<Feedback>, OrcaError> {
    let mut headers = Fields::new();
    headers.insert(HeaderName::from_static(name), &HeaderValue::from_bytes(value).unwrap());
    headers.insert(http::header::CONTENT_LENGTH, &HeaderValue::from_static("3"));
    let feedback = take_feedback(&mut headers);
    assert_eq!(headers.len(), 1, "the report is stripped and nothing else");
    feedback
}

fn of_text(value: &str) -> Result<Option<Feedback>, OrcaError> {
    taken("endpoint-load-metrics", value.as_bytes())
}

#[test]
fn every_form_reads_the_same_report() {
    let expected = Feedback {
        dimmer: Some(Dimmer::clamped(0.73)),
        concurrency: Some(4),
        latency: Some(9 * MS / 2),
        arrival_rate: Some(Rate::new(512.5).unwrap()),
        reported_at: Some(Instant::from_millis(60_000)),
        ..Feedback::measured(3, 4, 5 * MS / 4)
    };
    let named = [
        ("evenkeel.queue", 3.0),
        ("evenkeel.in_service", 4.0),
        ("evenkeel.service_ms", 1.25),
        ("evenkeel.concurrency", 4.0),
        ("evenkeel.latency_ms", 4.5),
        ("evenkeel.at_ms", 60_000.0),
        ("brownout.dimmer", 0.73),
        ("kv_cache", f64::NAN),
    ];
    let text = |sign: &str, comma: &str| {
        let named = named.map(|(name, value)| format!("named_metrics.{name}{sign}{value}"));
        format!("rps_fractional{sign}512.5{comma}{}", named.join(comma))
    };
    let json = named[..7].iter().map(|(name, value)| format!("\"{name}\": {value}"));
    let json = json.collect::<Vec<_>>().join(", ");
    let message = base64(&message(512.5, &named));
    let values = [
        format!("TEXT {}", text("=", ", ")),
        format!("TEXT {}", text("=", ",")),
        format!("TEXT {}", text(":", ",")),
        text(":", ","),
        format!("JSON {{\"rps_fractional\": 512.5, \"named_metrics\": {{{json}}}, \"eps\": 0}}"),
        format!("JSON {{\"rpsFractional\": 512.5, \"namedMetrics\": {{{json}}}}}"),
        format!("BIN {message}"),
    ];
    for value in values {
        assert_eq!(of_text(&value), Ok(Some(expected)), "{value}");
    }
    for value in [message.as_str(), message.trim_end_matches('=')] {
        assert_eq!(taken("endpoint-load-metrics-bin", value.as_bytes()), Ok(Some(expected)));
    }
}

#[test]
fn a_report_of_somebody_else_is_no_report_and_no_error() {
    let others = [
        // From the format's description.
        "TEXT cpu_utilization=0.3, mem_utilization=0.8, rps_fractional=10.0, eps=1, \
         named_metrics.custom_metric_util=0.4",
        // As vLLM sends it.
        "JSON {\"named_metrics\": {\"kv_cache_usage_perc\": 0.4}}",
        "TEXT ",
    ];
    for value in others {
        assert_eq!(of_text(value), Ok(None), "{value}");
    }
    // As grpc-go sends it: cpu_utilization 0.5, rps_fractional 100, eps 2, named metric rif 4.
    let captured = "CQAAAAAAAOA/MQAAAAAAAFlAOQAAAAAAAABAQg4KA3JpZhEAAAAAAAAQQA";
    assert_eq!(taken("endpoint-load-metrics-bin", captured.as_bytes()), Ok(None));
    assert_eq!(take_feedback(&mut Fields::new()), Ok(None));
}

#[test]
fn numbers_that_cannot_be_are_not_believed() {
    let with = |metric: &str, value: &str| {
        let mut named = [("queue", "1"), ("in_service", "1"), ("service_ms", "1")];
        if let Some(known) = named.iter_mut().find(|(name, _)| *name == metric) {
            known.1 = value;
        }
        let named = named.map(|(name, value)| format!("named_metrics.evenkeel.{name}={value}"));
        of_text(&format!("TEXT {},named_metrics.evenkeel.x=1", named.join(",")))
    };
    assert!(with("none", "").unwrap().is_some());
    for metric in ["queue", "in_service", "service_ms"] {
        for value in ["NaN", "inf", "-inf", "-1", "1e99", "1e999", "-0.001"] {
            assert!(matches!(with(metric, value), Err(OrcaError::Absurd { .. })), "{value}");
        }
        for value in ["", "x", "1 2", "0x10", "\"1\"", "1,5", "1:1"] {
            assert!(matches!(with(metric, value), Err(OrcaError::Malformed { .. })), "{value}");
        }
    }
    assert!(matches!(with("service_ms", "0"), Err(OrcaError::Absurd { .. })));
    let message = with("queue", "-1").unwrap_err().to_string();
    let expected = "named_metrics.evenkeel.queue came as -1, expected a number from 0 to 10000000";
    assert_eq!(message, expected);
}

#[test]
fn what_is_repeated_missing_or_oversized_is_not_believed() {
    let queue = "named_metrics.evenkeel.queue=1";
    let whole = format!(
        "TEXT {queue},named_metrics.evenkeel.in_service=1,named_metrics.evenkeel.service_ms=1"
    );
    assert!(of_text(&whole).unwrap().is_some());
    let repeated = OrcaError::Repeated("named_metrics.evenkeel.queue");
    assert_eq!(of_text(&format!("{whole},{queue}")), Err(repeated));
    let missing = OrcaError::Missing("named_metrics.evenkeel.in_service");
    assert_eq!(of_text(&format!("TEXT {queue}")), Err(missing));
    let long = format!("{whole},{}=1", "x".repeat(REPORT_BYTES_MAX));
    assert_eq!(of_text(&long), Err(OrcaError::TooLong { bytes: long.len() }));
    assert!(of_text("BAD value").is_err());
    assert!(of_text("JSON [1, [1, 1, 1]]").is_err());
    assert!(of_text("JSON {\"rps_fractional\": 1, \"rps_fractional\": 1}").is_err());
    assert!(of_text("BIN ????").is_err());

    let mut twice = Fields::new();
    twice.append(HEADER, &whole.parse().unwrap());
    twice.append(HEADER, &whole.parse().unwrap());
    assert_eq!(take_feedback(&mut twice), Err(OrcaError::Repeated("the header")));
    assert!(twice.is_empty());
}

#[test]
fn a_dimmer_is_written_with_a_shortfall_that_is_never_nothing() {
    let written = |dimmer: f64| {
        let report = Feedback::measured(0, 0, MS);
        let report = Feedback { dimmer: Some(Dimmer::clamped(dimmer)), ..report };
        let value = write(&report);
        let text = value.to_str().unwrap();
        let metric = |name: &str| {
            let metric = text.split(',').find_map(|item| item.strip_prefix(name));
            metric.unwrap().parse::<f64>().unwrap()
        };
        (metric("named_metrics.brownout.dimmer="), metric("named_metrics.brownout.shortfall="))
    };
    assert_eq!(written(0.73), (0.73, 0.27));
    assert_eq!(written(0.0), (0.0, 1.0));
    assert_eq!(written(1.0), (1.0, 1e-6));
    let without = write(&Feedback::measured(0, 0, MS));
    assert!(!without.to_str().unwrap().contains("brownout"), "no dimmer is not a dimmer of zero");
    for (value, is_dimmer) in [("1.5", true), ("-1", true), ("NaN", true), ("0.5", false)] {
        let whole = "named_metrics.evenkeel.queue=1,named_metrics.evenkeel.in_service=1,\
                     named_metrics.evenkeel.service_ms=1";
        let read = of_text(&format!("TEXT {whole},named_metrics.brownout.dimmer={value}"));
        assert_eq!(read.is_err_and(|error| error.is_of_dimmer()), is_dimmer, "{value}");
    }
}

#[test]
fn binary_goes_before_text_and_both_are_stripped() {
    let named =
        [("evenkeel.queue", 7.0), ("evenkeel.in_service", 0.0), ("evenkeel.service_ms", 1.0)];
    let mut headers = Fields::new();
    headers.insert(HEADER, &HeaderValue::from_static("TEXT named_metrics.evenkeel.queue=-1"));
    headers.insert(HEADER_BINARY, &base64(&message(1.0, &named)).parse().unwrap());
    let feedback = take_feedback(&mut headers).unwrap().unwrap();
    assert_eq!((feedback.queue_length, feedback.service_time), (7, Some(MS)));
    assert!(headers.is_empty());
}

#[test]
fn a_cut_off_message_is_malformed() {
    let whole = message(1.0, &[("evenkeel.queue", 7.0)]);
    let cut = |bytes: usize| binary::parse(base64(&whole[..bytes]).as_bytes()).is_err();
    let cuts: Vec<usize> = (0..=whole.len()).filter(|bytes| !cut(*bytes)).collect();
    assert_eq!(cuts, [0, 9, whole.len()], "a message may end only after a field");
}

/// In a release build under a microsecond; in any, a few times what splitting the text and reading
/// its numbers takes (9 as CI builds it), measured in turns with it.
#[test]
fn reading_and_writing_take_less_than_a_microsecond() {
    let report = Feedback {
        concurrency: Some(4),
        latency: Some(Duration::from_nanos(4_567_891)),
        arrival_rate: Some(Rate::new(512.5).unwrap()),
        reported_at: Some(Instant::from_nanos(86_400_123_456_789)),
        ..Feedback::measured(3, 4, Duration::from_nanos(1_234_567))
    };
    let written = write(&report);
    let text = written.to_str().unwrap().to_owned();
    let headers: Fields = [(HEADER, written)].into_iter().collect();
    let copies = |headers: &Fields| vec![headers.clone(); 100];
    let split = |text: &str| text.split(',').filter_map(|pair| pair.split_once('=')).fold(0.0, sum);
    let mut fastest = [f64::INFINITY; 4];
    for _ in 0..300 {
        let now = [
            batch_ns(vec![&*text; 100], |text| split(text) > 9.0),
            batch_ns(copies(&headers), |mut headers| take_feedback(&mut headers).is_ok()),
            batch_ns(copies(&Fields::new()), |mut h| take_feedback(&mut h).is_ok()),
            batch_ns(vec![report; 100], |report| write(&report).len() > 9),
        ];
        fastest = std::array::from_fn(|which| fastest[which].min(now[which]));
    }
    let [split, read, absent, write] = fastest;
    println!("split {split} ns, read {read} ns, absent {absent} ns, write {write} ns");
    assert!(read < 20.0 * split && write < 20.0 * split && absent < split, "{fastest:?}");
    let is_built_to_be_fast = !cfg!(debug_assertions);
    assert!(!is_built_to_be_fast || read.max(write) < 1_000.0 && absent < 100.0, "{fastest:?}");
}

fn sum(sum: f64, (name, value): (&str, &str)) -> f64 {
    sum + name.len() as f64 + value.parse::<f64>().unwrap()
}

/// Time of one `run`: the fastest of many batches tells, as what disturbs only makes slower.
fn batch_ns<T>(items: Vec<T>, run: impl Fn(T) -> bool) -> f64 {
    let (runs, began) = (items.len(), Watch::now());
    assert!(items.into_iter().all(|item| std::hint::black_box(run(item))));
    began.elapsed().as_nanos() as f64 / runs as f64
}

prop_compose! {
    fn reports()(
        queue_length in 0_u32..=10_000_000,
        in_service in 0_u32..=10_000_000,
        concurrency in prop::option::of(1_u32..=10_000_000),
        service in prop::option::of(1_u64..86_400_000_000_000),
        latency in prop::option::of(0_u64..86_400_000_000_000),
        rate in prop::option::of(0.0..1e9),
        at in prop::option::of(0..49 * 86_400_000_000_000_u64),
        dimmer in prop::option::of(0_u32..=1_000_000),
    ) -> Feedback {
        Feedback {
            queue_length,
            in_service,
            concurrency,
            service_time: service.map(Duration::from_nanos),
            latency: latency.map(Duration::from_nanos),
            arrival_rate: rate.map(|rate| Rate::new(rate).unwrap()),
            dimmer: dimmer.map(|millionths| Dimmer::clamped(f64::from(millionths) / 1e6)),
            reported_at: at.map(Instant::from_nanos),
        }
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(report in reports()) {
        let mut headers: Fields = [(HEADER, write(&report))].into_iter().collect();
        let read = take_feedback(&mut headers).unwrap().unwrap();
        let rates = (read.arrival_rate.map(Rate::value), report.arrival_rate.map(Rate::value));
        if let (Some(read), Some(written)) = rates {
            // Thousandths, and what a float of this size can tell apart.
            prop_assert!((read - written).abs() <= 0.000_501 + written * 1e-15);
        }
        prop_assert_eq!(rates.0.is_some(), rates.1.is_some());
        prop_assert_eq!(Feedback { arrival_rate: report.arrival_rate, ..read }, report);
    }

    #[test]
    fn whatever_is_written_is_a_report(
        counts in any::<(u32, u32, Option<u32>)>(),
        times in any::<(Duration, Option<Duration>, Option<u64>)>(),
        rate in prop::option::of(0.0..f64::MAX),
    ) {
        let report = Feedback {
            concurrency: counts.2,
            latency: times.1,
            arrival_rate: rate.map(|rate| Rate::new(rate).unwrap()),
            reported_at: times.2.map(Instant::from_nanos),
            ..Feedback::measured(counts.0, counts.1, times.0)
        };
        let mut headers: Fields = [(HEADER, write(&report))].into_iter().collect();
        prop_assert!(take_feedback(&mut headers).unwrap().is_some());
    }

    #[test]
    fn no_bytes_make_it_panic(
        form in prop::sample::select(vec!["", "TEXT ", "JSON ", "BIN "]),
        bytes in prop::collection::vec(prop_oneof![0x20_u8..0x7f, 0x80_u8..], 0..400),
        protobuf in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let value = [form.as_bytes(), &bytes].concat();
        let _ = taken("endpoint-load-metrics", &value);
        let _ = taken("endpoint-load-metrics-bin", &bytes);
        let _ = taken("endpoint-load-metrics-bin", base64(&protobuf).as_bytes());
    }

    #[test]
    fn a_damaged_report_is_read_or_refused(
        report in reports(),
        places in prop::collection::vec((any::<prop::sample::Index>(), 0x20_u8..0x7f), 1..4),
    ) {
        let mut value = write(&report).as_bytes().to_vec();
        for (place, byte) in places {
            let place = place.index(value.len());
            value[place] = byte;
        }
        if let Ok(Some(read)) = taken("endpoint-load-metrics", &value) {
            prop_assert!(read.queue_length <= 10_000_000);
            prop_assert!(read.service_time != Some(Duration::ZERO));
        }
    }
}

/// `OrcaLoadReport` with `rps_fractional` and `named_metrics`, encoded field by field.
fn message(rps_fractional: f64, named: &[(&str, f64)]) -> Vec<u8> {
    let mut message = vec![6 << 3 | 1];
    message.extend(rps_fractional.to_le_bytes());
    for (key, value) in named {
        let mut entry = vec![1 << 3 | 2, u8::try_from(key.len()).unwrap()];
        entry.extend(key.bytes());
        entry.push(2 << 3 | 1);
        entry.extend(value.to_le_bytes());
        message.extend([8 << 3 | 2, u8::try_from(entry.len()).unwrap()]);
        message.extend(entry);
    }
    message
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bit = |index: usize| bytes.get(index / 8).map_or(0, |byte| byte >> (7 - index % 8) & 1);
    let digit = |first: usize| {
        let value = (first..first + 6).fold(0, |value, index| value << 1 | bit(index));
        char::from(ALPHABET[usize::from(value)])
    };
    let mut text: String = (0..bytes.len() * 8).step_by(6).map(digit).collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    text
}
