//! What is told of agents, and the hand on their dimmers.

use evenkeel_core::dimmer::{DimmerState, Law};

use super::*;
use evenkeel_http_proxy::agent_state::{AgentProbes, BrownoutState, InflowCounts};
use evenkeel_http_proxy::config::Switch;

/// How the first agent stands: it dims, since more is asked than is there.
pub(super) fn dimming() -> AgentState {
    let state = DimmerState {
        dimmer: Dimmer::clamped(0.625),
        is_held: false,
        law: Law::FeedForward,
        percentile: Some(Duration::from_millis(480)),
        full: 700,
        reduced: 300,
        present: 9,
        full_work: Some(Duration::from_millis(12)),
        lean_ratio: 0.125,
        asked_per_s: 55.0,
        asked_cores: Some(5.5),
        cores: Some(4.0),
        cores_seen: None,
        capacity_per_s: None,
        tolerated_backlog: Duration::from_millis(125),
    };
    let inflows = InflowCounts { taken: 20, old: 21, invalid: 22 };
    let brownout = Some(BrownoutState { state, switch: Switch::Auto, inflows });
    let probes = AgentProbes {
        answered_http: 11,
        answered: 12,
        unsent: 13,
        malformed: 14,
        foreign: 15,
        replayed: 16,
        pauses: 17,
        notices: 18,
        notices_left_out: 19,
    };
    AgentState { waiting: 5, in_service: 4, brownout, probes }
}

#[test]
fn metrics_say_how_agents_dim() {
    let config = config();
    let exposed = Exposed::read(&metrics_of(&config, &busy(&config))).unwrap();
    let [first, second] = ["127.0.0.1:9001", "127.0.0.1:9002"].map(|at| ("agent", at));
    let of = |name: &str| exposed.value(&format!("evenkeel_{name}"), &[first]);
    assert_eq!([of("agent_waiting"), of("agent_in_service")], [Some(5.0), Some(4.0)]);
    assert_eq!([of("brownout_dimmer"), of("brownout_manual")], [Some(0.625), Some(0.0)]);
    let seconds = ["brownout_percentile_seconds", "brownout_setpoint_seconds"].map(of);
    assert_eq!(seconds, [Some(0.48), Some(0.5)]);
    let probes =
        |channel| exposed.value("evenkeel_agent_probes_total", &[first, ("channel", channel)]);
    assert_eq!(["http", "udp"].map(probes), [Some(11.0), Some(12.0)]);
    let name = "evenkeel_agent_probe_datagrams_dropped_total";
    let dropped = |reason| exposed.value(name, &[first, ("reason", reason)]);
    let reasons = ["unsent", "malformed", "foreign", "replayed"].map(dropped);
    assert_eq!(reasons, [Some(13.0), Some(14.0), Some(15.0), Some(16.0)]);
    assert_eq!(of("agent_probe_pauses_total"), Some(17.0));
    let name = "evenkeel_agent_notices_total";
    let notices = |result| exposed.value(name, &[first, ("result", result)]);
    assert_eq!(["sent", "left_out"].map(notices), [Some(18.0), Some(19.0)]);
    let requests =
        |content| exposed.value("evenkeel_brownout_requests_total", &[first, ("content", content)]);
    assert_eq!(["full", "reduced"].map(requests), [Some(700.0), Some(300.0)]);
    let name = "evenkeel_brownout_inflow_total";
    let inflows = |result| exposed.value(name, &[first, ("result", result)]);
    assert_eq!(["taken", "old", "invalid"].map(inflows), [Some(20.0), Some(21.0), Some(22.0)]);
    assert_eq!(exposed.value("evenkeel_agent_in_service", &[second]), Some(2.0));
    assert_eq!(exposed.value("evenkeel_brownout_dimmer", &[second]), None, "it has none");
}

#[test]
fn the_status_says_how_agents_stand() {
    let config = config();
    let status = status_of(&config, &busy(&config));
    let [first, second] = [0, 1].map(|agent| &status["agents"][agent]);
    assert_eq!((&first["address"], &first["waiting"]), (&"127.0.0.1:9001".into(), &5.into()));
    let brownout = &first["brownout"];
    assert_eq!(brownout["why"], "dims: 5.50 cores of full work asked, 4 there");
    assert_eq!((&brownout["law"], &brownout["switch"]), (&"feed-forward".into(), &"auto".into()));
    assert_eq!(
        (&brownout["percentile_ms"], &brownout["setpoint_ms"], &brownout["percentile"]),
        (&480.0.into(), &500.0.into(), &0.95.into())
    );
    let series = &brownout["series"];
    assert_eq!((&series["ago_s"][0], &series["dimmer"][0]), (&1.0.into(), &0.625.into()));
    assert_eq!((&second["brownout"], &second["in_service"]), (&Value::Null, &2.into()));
}

#[test]
fn the_switch_is_set_by_programs_and_not_by_pages_of_others() {
    let running = Running::start();
    let (host, json) = (format!("Host: {}\r\n", running.address), "content-type: application/json");
    let post = |headers: &str, body: &str| {
        let length = format!("content-length: {}\r\nconnection: close", body.len());
        let head = format!("POST /api/v1/brownout HTTP/1.1\r\n{host}{headers}\r\n{length}");
        running.send(&format!("{head}\r\n\r\n{body}"))
    };
    let full = "{\"switch\": \"full\"}";
    let set = post(json, full);
    assert_eq!(set.status, 200, "{set:?}");
    let expected = "{\"agents\":[{\"agent\":\"127.0.0.1:9001\",\"app\":\"127.0.0.1:9101\",\
                    \"switch\":\"full\"}]}";
    assert_eq!((set.body.as_str(), running.world.agents.switch(0)), (expected, Switch::Full));
    assert_eq!(running.get("/api/v1/brownout").body, expected);
    let lean = "{\"switch\": \"lean\", \"agent\": \"127.0.0.1:9001\"}";
    let charset = "content-type: Application/JSON; charset=utf-8";
    assert_eq!((post(charset, lean).status, running.world.agents.switch(0)), (200, Switch::Lean));

    for (headers, body, status, says) in [
        ("x: y", full, 415, "without Content-Type: application/json"),
        ("content-type: text/plain", full, 415, "pages of others cannot send it"),
        ("content-type: application/x-www-form-urlencoded", full, 415, ""),
        ("content-type: application/json\r\norigin: http://evil.example", full, 403, "another"),
        ("content-type: application/json\r\norigin: null", full, 403, "another origin"),
        ("content-type: application/json\r\nsec-fetch-site: cross-site", full, 403, "another"),
        ("content-type: application/json\r\nsec-fetch-site: same-site", full, 403, "another"),
        (json, "", 400, "expected such as"),
        (json, "{\"switch\": \"off\"}", 400, "\"off\", expected auto, full or lean"),
        (json, "{\"switch\": \"full\", \"agnet\": \"x\"}", 400, "unknown field `agnet`"),
        (json, "{\"switch\": \"full\", \"agent\": \"x\"}", 404, "expected one of 127.0.0.1:9001"),
        (json, "{\"switch\": \"full\", \"agent\": \"127.0.0.1:9002\"}", 404, "no agent"),
    ] {
        let refused = post(headers, body);
        assert_eq!(refused.status, status, "{headers} {body}: {refused:?}");
        assert!(refused.body.contains(says), "{refused:?} lacks {says:?}");
        assert_eq!(running.world.agents.switch(0), Switch::Lean, "{headers} {body}");
    }
    let long = format!("{{\"switch\": \"full\"{}}}", " ".repeat(5_000));
    assert!([400, 413].contains(&post(json, &long).status));
    let own = format!("{json}\r\norigin: http://localhost:9901\r\nsec-fetch-site: same-origin");
    assert_eq!((post(&own, full).status, running.world.agents.switch(0)), (200, Switch::Full));
    let wrong = running.ask("DELETE", "/api/v1/brownout", &host);
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("get, head, post")));
    running.stop();
}
