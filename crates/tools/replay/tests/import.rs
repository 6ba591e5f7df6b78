//! Logs of others, as they write them.

use evenkeel_replay::import::{Format, ImportError, Imported, Options, import};
use evenkeel_twin::rows::{End, Row, Why};

fn imported(format: Format, log: &str) -> Result<Imported, ImportError> {
    import(format, log.as_bytes(), &Options { policy: Some("round-robin".to_owned()) })
}

/// Replica, held, latency in ms, why and end of each row.
fn told(rows: &[Row]) -> Vec<(u16, u64, u64, Why, End)> {
    let ms = |ns: u64| ns / 1_000_000;
    let told = |row: &Row| (row.replica, ms(row.after_ns), ms(row.latency_ns), row.why, row.end);
    rows.iter().map(told).collect()
}

const NGINX: &str = include_str!("logs/nginx.log");

#[test]
fn nginx_tells_each_attempt() {
    let Imported { manifest, day, skipped, .. } = imported(Format::Nginx, NGINX).unwrap();
    let first = (0, 0, 11, Why::First, End::Answered);
    let failed = (1, 0, 10, Why::First, End::Failed);
    let retry = (0, 10, 20, Why::Retry, End::Answered);
    let given_up = (2, 0, 100, Why::First, End::Cancelled);
    // 420.298, 420.300 and 10 ms later, 420.250.
    assert_eq!(told(&day.rows), [given_up, first, failed, retry]);
    assert_eq!((manifest.replicas.len(), skipped, manifest.resolution_ns), (3, 1, 1_000_000));
    assert_eq!(manifest.policies, ["round-robin"]);
    assert!(!format!("{manifest:?}").contains("10.0.0"), "no address is kept");
    assert_eq!(day.rows[1].size, 10);
    let json = r#"{
        "msec": "1460751420.310", "request_time": 0.012, "upstream_addr": "a:80",
        "upstream_response_time": "0.011", "upstream_status": "200"}"#;
    assert_eq!(told(&imported(Format::Nginx, &json.replace('\n', " ")).unwrap().day.rows), [first]);
}

#[test]
fn lines_that_name_their_policy_are_slices() {
    let line = |second: u32, policy: &str| {
        format!(
            "msec={second}.000 request_time=0.010 upstream_addr=a:80 upstream_response_time=0.010 \
             upstream_status=200 policy={policy}\n"
        )
    };
    let lines = |policies: &[&str]| -> String {
        policies.iter().zip(1_000..).map(|(policy, second)| line(second, policy)).collect()
    };
    let Imported { manifest, day, .. } =
        imported(Format::Nginx, &lines(&["two-choices", "c3", "c3"])).unwrap();
    assert_eq!(manifest.policies, ["c3", "two-choices"]);
    let policies: Vec<u8> = day.rows.iter().map(|row| row.policy).collect();
    assert_eq!(policies, [1, 0, 0]);
    let three =
        imported(Format::Nginx, &lines(&["c3", "two-choices", "random"])).unwrap_err().to_string();
    assert!(three.contains("one more that was explored"), "{three}");
}

#[test]
fn haproxy_tells_the_queue_at_the_proxy_apart() {
    let log = include_str!("logs/haproxy.log");
    let Imported { day, skipped, .. } = imported(Format::HaProxy, log).unwrap();
    let expected = [
        (0, 0, 99, Why::First, End::Answered),
        (1, 40, 21, Why::First, End::Answered),
        (1, 0, 51, Why::First, End::Failed),
    ];
    assert_eq!((told(&day.rows).as_slice(), skipped), (&expected[..], 1));
    // Accepted 655 and read 10 ms later; 660 and queued for 40 ms; a step is a millisecond.
    let gap_ms = day.rows[1].gap_ns as f64 * 1e-6;
    assert!((34.0..36.0).contains(&gap_ms), "{gap_ms}");
}

#[test]
fn envoy_tells_its_last_attempt_in_text_and_in_json() {
    let log = include_str!("logs/envoy.log");
    let Imported { day, skipped, .. } = imported(Format::Envoy, log).unwrap();
    let good = (0, 0, 100, Why::First, End::Answered);
    let failed = (1, 0, 226, Why::First, End::Failed);
    assert_eq!((told(&day.rows), skipped), (vec![good, failed], 1));
    let json = r#"{
        "start_time": "2016-04-15T20:17:00.310Z", "duration": 226,
        "upstream_service_time": "100", "upstream_host": "a", "response_flags": "-"}"#;
    assert_eq!(told(&imported(Format::Envoy, &json.replace('\n', " ")).unwrap().day.rows), [good]);
}

fn span(kind: u8, span: &str, parent: &str, times: (u64, u64), more: &str) -> String {
    let service = r#"{"attributes":[{"key":"service.name","value":{"stringValue":"shop"}}]}"#;
    let ids = format!(r#""traceId":"t","spanId":"{span}","parentSpanId":"{parent}","kind":{kind}"#);
    let [start, end] = [times.0, times.1].map(|ms| ms * 1_000_000);
    let times = format!(r#""startTimeUnixNano":"{start}","endTimeUnixNano":"{end}""#);
    let spans = format!(r#"[{{"spans":[{{{ids},{times}{more}}}]}}]"#);
    format!(r#"{{"resourceSpans":[{{"resource":{service},"scopeSpans":{spans}}}]}}"#) + "\n"
}

const PEER: &str = r#","attributes":[{"key":"server.address","value":{"stringValue":"10.1.1.1"}}]"#;

#[test]
fn client_spans_are_copies_and_server_spans_below_them_their_service() {
    let again =
        PEER.replace("[{", r#"[{"key":"http.request.resend_count","value":{"intValue":"1"}},{"#);
    let failed = format!(r#"{PEER},"status":{{"code":2}}"#);
    let log = [
        span(3, "a", "root", (100, 112), &failed),
        span(3, "b", "root", (115, 140), &again),
        span(3, "c", "root", (150, 160), PEER),
        span(2, "x", "b", (118, 138), ""),
        span(2, "y", "elsewhere", (118, 138), ""),
        span(1, "z", "", (0, 1), ""),
    ];
    let Imported { day, .. } = imported(Format::Spans, &log.concat()).unwrap();
    let expected = [
        (0, 0, 12, Why::First, End::Failed),
        (0, 15, 25, Why::Retry, End::Answered),
        (0, 0, 10, Why::First, End::Answered),
    ];
    assert_eq!(told(&day.rows), expected);
    let requests: Vec<u64> = day.rows.iter().map(|row| row.request).collect();
    assert_eq!(requests, [0, 0, 1]);
    assert_eq!(day.rows[1].served.unwrap().service_ns, 20_000_000);
    assert_eq!((day.rows[0].served, day.strangers), (None, vec![1]));
}

#[test]
fn slow_logs_and_sampled_spans_are_refused_with_the_reason() {
    for format in [Format::CassandraSlow, Format::RedisSlow] {
        let refused = imported(format, "anything").unwrap_err();
        assert!(refused.is_refusal() && refused.to_string().contains("only what was slow"));
    }
    let slow = "DEBUG [ScheduledTasks:1] 3 operations were slow in the last 5000 msecs:";
    assert!(matches!(imported(Format::Nginx, slow), Err(ImportError::OnlySlow(_))));
    for more in [
        r#","traceState":"ot=th:c""#,
        r#","traceState":"other=1,ot=p:8;r:62""#,
        r#","attributes":[{"key":"sampler.param","value":{"doubleValue":0.1}}]"#,
    ] {
        let refused = imported(Format::Spans, &span(3, "a", "", (1, 2), more)).unwrap_err();
        assert!(matches!(refused, ImportError::Sampled(1)), "{more}: {refused}");
        assert!(refused.is_refusal());
    }
    let all = format!(r#","traceState":"ot=th:0"{PEER}"#);
    imported(Format::Spans, &span(3, "a", "", (1, 2), &all)).unwrap();
}

#[test]
fn a_log_of_another_format_is_refused_with_its_first_wrong_line() {
    let wrong = imported(Format::HaProxy, NGINX).unwrap_err().to_string();
    assert!(wrong.starts_with("line 2: got \"msec=1460751420.310"), "{wrong}");
    assert!(wrong.contains("option httplog") && wrong.contains("4 of 5 lines"), "{wrong}");
    let combined = r#"10.0.0.1 - - [15/Apr/2016:20:17:00 +0000] "GET /secret HTTP/1.1" 200 12"#;
    let wrong = imported(Format::Nginx, combined).unwrap_err().to_string();
    assert!(wrong.contains("key=value") && !wrong.contains("secret HTTP/1.1\" 200"), "{wrong}");
    let none = imported(Format::Nginx, "msec=1.0 request_time=0.1").unwrap_err();
    assert!(matches!(none, ImportError::Nothing(1)), "{none}");
    // One torn line of many is left out.
    let mut many = NGINX.lines().nth(1).unwrap_or("").to_owned() + "\n";
    many = many.repeat(200) + "msec=14607\n";
    assert_eq!(imported(Format::Nginx, &many).unwrap().wrong, 1);
    let long = "x".repeat(100_000) + "\n" + &many;
    assert_eq!(imported(Format::Nginx, &long).unwrap().lines, 202);
}

#[test]
fn a_torn_name_of_a_policy_is_a_wrong_line_and_no_policy() {
    let line = NGINX.lines().nth(1).unwrap();
    let many = format!("{line} policy=c3\n").repeat(200) + &format!("{line} policy=c\n");
    let Imported { manifest, wrong, .. } = imported(Format::Nginx, &many).unwrap();
    assert_eq!((manifest.policies, wrong), (vec!["c3".to_owned()], 1));
    let torn = imported(Format::Nginx, &format!("{line} policy=c\n")).unwrap_err().to_string();
    assert!(torn.contains("policy=c") && torn.contains("a policy"), "{torn}");
}

#[test]
fn the_name_of_a_group_is_no_replica_and_comments_of_a_slow_log_are_seen() {
    let log = "msec=10.000 request_time=0.010 upstream_addr=\"a:80, shop\" \
               upstream_response_time=\"0.010, 0.000\" upstream_status=\"502, 502\"\n";
    let Imported { manifest, day, .. } = imported(Format::Nginx, log).unwrap();
    assert_eq!((manifest.replicas.len(), day.rows.len()), (1, 1));
    let slow = imported(Format::Nginx, "# Query_time: 3.2  Lock_time: 0.0\n").unwrap_err();
    assert!(matches!(slow, ImportError::OnlySlow(_)), "{slow}");
}

#[test]
fn a_log_of_more_than_eight_days_is_refused() {
    let line = |second: u64| {
        format!(
            "msec={second}.000 request_time=0.010 upstream_addr=a:80 \
             upstream_response_time=0.010 upstream_status=200\n"
        )
    };
    let day = 86_400;
    assert_eq!(imported(Format::Nginx, &(line(day) + &line(8 * day))).unwrap().day.rows.len(), 2);
    let long = imported(Format::Nginx, &(line(day) + &line(20 * day))).unwrap_err();
    assert!(matches!(long, ImportError::TooLong(19 | 18)), "{long}");
}
