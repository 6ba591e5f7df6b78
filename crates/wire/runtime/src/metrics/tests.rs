//! What a scrape says, to the letter: the texts were written by hand after the two formats.

use std::time::Duration;

use super::protobuf::MetricFamily;
use super::*;
use prost::Message as _;

struct Door {
    name: &'static str,
    opened: u64,
    open_for: Option<Duration>,
    refused: BTreeMap<&'static str, u64>,
    times: Recorder,
}

const DOORS: [Metric<Door>; 5] = [
    counter("door_opened_total", "Times it was \"opened\".", |door| door.opened.into()),
    gauge("door_open_seconds", "Since when.", |door| door.open_for.into()),
    counter_by("door_refused_total", "Refusals.", "reason", |door| by_reason(&door.refused)),
    summary("door_passing_seconds", "Passing.", |door| (door.times.sum(), door.times.count())),
    histogram("door_seconds", "The same.", |door| Some(&door.times)),
];

fn door(name: &'static str) -> Door {
    let mut times = Recorder::default();
    [1, 4, 40_000].into_iter().for_each(|ms| times.record(Duration::from_millis(ms)));
    Door { name, opened: 3, open_for: None, refused: [("full", 1), ("late", 0)].into(), times }
}

fn doors() -> Arc<dyn Collect> {
    Arc::new(|scrape: &mut Scrape| {
        let doors = [door("front"), Door { open_for: Some(Duration::MAX), ..door("a\"b\\c\nd") }];
        scrape.table(&DOORS, doors.iter().map(|door| (vec![("door", door.name)], door)));
    })
}

fn registry(collectors: impl IntoIterator<Item = Arc<dyn Collect>>) -> Registry {
    let mut registry = Registry::default();
    collectors.into_iter().for_each(|collector| registry.register(collector).unwrap());
    registry
}

#[test]
fn a_scrape_is_written_in_both_formats() {
    let doors = registry([doors()]);
    let text = doors.text(Format::Text);
    let begin = "# HELP door_opened_total Times it was \"opened\".\n\
                 # TYPE door_opened_total counter\n\
                 door_opened_total{door=\"front\"} 3\n\
                 door_opened_total{door=\"a\\\"b\\\\c\\nd\"} 3\n\
                 # HELP door_open_seconds Since when.\n\
                 # TYPE door_open_seconds gauge\n\
                 door_open_seconds{door=\"a\\\"b\\\\c\\nd\"} 18446744073709552000\n\
                 # HELP door_refused_total Refusals.\n";
    assert!(text.starts_with(begin), "{text}");
    let lines = |text: &str, of: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains(of)).map(str::to_owned).collect()
    };
    let front = |rest: &str| format!("door_{rest}");
    assert_eq!(
        lines(&text, "refused_total{door=\"front\""),
        [
            front("refused_total{door=\"front\",reason=\"full\"} 1"),
            front("refused_total{door=\"front\",reason=\"late\"} 0"),
        ]
    );
    assert_eq!(
        lines(&text, "passing_seconds_")[..2],
        [
            front("passing_seconds_sum{door=\"front\"} 40.005"),
            front("passing_seconds_count{door=\"front\"} 3"),
        ]
    );
    let buckets = lines(&text, "door_seconds_bucket{door=\"front\"");
    assert_eq!(buckets.len(), 31);
    assert_eq!(buckets[0], front("seconds_bucket{door=\"front\",le=\"0.0005\"} 0"));
    assert_eq!(buckets[6], front("seconds_bucket{door=\"front\",le=\"0.005\"} 2"));
    assert_eq!(buckets[20], front("seconds_bucket{door=\"front\",le=\"1\"} 2"));
    assert_eq!(buckets[30], front("seconds_bucket{door=\"front\",le=\"+Inf\"} 3"));

    let open = doors.text(Format::OpenMetrics);
    let begin = "# HELP door_opened Times it was \\\"opened\\\".\n\
                 # TYPE door_opened counter\n\
                 door_opened_total{door=\"front\"} 3\n";
    assert!(open.starts_with(begin) && open.ends_with("\n# EOF\n"), "{open}");
    let buckets = lines(&open, "door_seconds_bucket{door=\"front\"");
    assert_eq!(buckets[20], front("seconds_bucket{door=\"front\",le=\"1.0\"} 2"));
}

#[test]
fn collectors_share_a_family_that_they_describe_alike() {
    let more = Arc::new(|scrape: &mut Scrape| {
        scrape.table(&DOORS, [(vec![("gate", "back")], &door("back"))]);
    });
    let text = registry([doors(), more]).text(Format::Text);
    assert_eq!(text.matches("# TYPE door_opened_total counter\n").count(), 1);
    let families: Vec<&str> = text.split("# HELP ").collect();
    assert!(families[1].contains("door_opened_total{gate=\"back\"} 3\n"), "{}", families[1]);
}

#[test]
fn a_family_is_not_described_in_two_ways() {
    const OTHER: [Metric<u64>; 1] =
        [gauge("door_opened", "Doors that are open.", |count| (*count).into())];
    let mut registry = registry([doors()]);
    let before = registry.text(Format::Text);
    let other = Arc::new(|scrape: &mut Scrape| scrape.single(&OTHER, &7));
    let clash = registry.register(other).unwrap_err();
    assert_eq!(
        clash.to_string(),
        "a metric is described twice: door_opened_total as a Counter (Times it was \"opened\".) \
         and door_opened as a Gauge (Doors that are open.)"
    );
    assert_eq!(registry.text(Format::Text), before, "it was not added");
}

#[test]
fn the_format_is_the_one_that_the_scraper_prefers() {
    // As Prometheus 2.4x, a browser and curl ask.
    let prometheus = "application/openmetrics-text;version=1.0.0,\
                      application/openmetrics-text;version=0.0.1;q=0.75,\
                      text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                  encoding=delimited, application/openmetrics-text;version=1.0.0;q=0.8,\
                  text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(Format::accepted(native), Format::Protobuf);
    let other = native.replace("delimited", "text");
    assert_eq!(Format::accepted(&other), Format::OpenMetrics, "that encoding is not known here");
    for text in [
        "",
        "*/*",
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "text/plain;version=0.0.4;q=1,application/openmetrics-text;q=0.4",
        "application/openmetrics-text;q=0",
        "application/openmetrics-text;q=x",
    ] {
        assert_eq!(Format::accepted(text), Format::Text, "{text}");
    }
}

#[test]
fn a_bucket_has_the_latest_exemplar_for_who_asks_and_no_other_series_has_it() {
    const TABLE: [Metric<[u64; 3]>; 1] =
        [histogram_of("door_seconds", "How long doors were open.", |counts| Buckets {
            bounds_us: &[1_000, 10_000],
            counts,
            sum: Duration::from_millis(14),
        })];
    let doors = |scrape: &mut Scrape| {
        let rows = [(vec![("gate", "a")], &[1, 2, 1]), (vec![("gate", "b")], &[0, 0, 0])];
        scrape.table(&TABLE, rows);
        if !scrape.wants_exemplars() {
            return;
        }
        for (trace_id, millis, second) in [(1, 2, 20), (2, 3, 10), (0xabc, 60_000, 30)] {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
            let exemplar = Exemplar { trace_id, value: Duration::from_millis(millis), at };
            scrape.exemplify("door_seconds", &[("gate", "a")], exemplar);
            scrape.exemplify("window_seconds", &[("gate", "a")], exemplar);
        }
    };
    let mut registry = Registry::default();
    registry.register(Arc::new(doors)).unwrap();
    let of_a = |line: &&str| line.contains("gate=\"a\"");
    let text = registry.text(Format::OpenMetrics);
    let lines: Vec<&str> = text.lines().filter(of_a).collect();
    assert_eq!(
        lines,
        [
            "door_seconds_bucket{gate=\"a\",le=\"0.001\"} 1",
            "door_seconds_bucket{gate=\"a\",le=\"0.01\"} 3 \
         # {trace_id=\"00000000000000000000000000000001\"} 0.002 20.000",
            "door_seconds_bucket{gate=\"a\",le=\"+Inf\"} 4 \
         # {trace_id=\"00000000000000000000000000000abc\"} 60 30.000",
            "door_seconds_sum{gate=\"a\"} 0.014",
            "door_seconds_count{gate=\"a\"} 4",
        ]
    );
    assert_eq!(text.matches("trace_id").count(), 2);
    assert!(!registry.text(Format::Text).contains("trace_id"));
}

#[test]
fn in_protobuf_a_distribution_has_native_buckets_beside_the_others() {
    const TABLE: [Metric<Recorder>; 1] =
        [histogram("door_seconds", "How long doors were open.", |recorder| Some(recorder))];
    let doors = |scrape: &mut Scrape| {
        let mut recorder = Recorder::default();
        for millis in [100, 100, 130, 4_000] {
            recorder.record(Duration::from_millis(millis));
        }
        scrape.table(&TABLE, [(vec![("gate", "a")], &recorder)]);
    };
    let mut registry = Registry::default();
    registry.register(Arc::new(doors)).unwrap();
    let bytes = registry.encode(Format::Protobuf);
    let family = MetricFamily::decode_length_delimited(&*bytes).unwrap();
    assert_eq!((family.name.as_str(), family.kind), ("door_seconds", 4));
    let metric = &family.metric[0];
    assert_eq!((metric.label[0].name.as_str(), metric.label[0].value.as_str()), ("gate", "a"));
    let histogram = metric.histogram.as_ref().unwrap();
    assert_eq!((histogram.sample_count, histogram.bucket.len()), (4, 31));
    assert_eq!(histogram.bucket[30].upper_bound, f64::INFINITY);
    assert!((histogram.sample_sum - 4.33).abs() < 1e-9);
    assert_eq!(histogram.schema, Some(3));
    // Bucket i ends at 2^(i/8) s: 0.1 s lies in (0.0964, 0.1051], which is -26, 0.13 s in
    // (0.125, 0.1363], which is -23, and 4 s in (4, 4.36] as the end of its own bucket is a little
    // above it.
    let spans: Vec<_> =
        histogram.positive_span.iter().map(|span| (span.offset, span.length)).collect();
    assert_eq!(spans, [(-26, 1), (2, 1), (39, 1)]);
    assert_eq!(histogram.positive_delta, [2, -1, 0]);
}
