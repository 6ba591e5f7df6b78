//! Administration from outside: every answer, over a socket where that matters.

mod agents;
mod exposition;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;

use evenkeel_core::Health;
use evenkeel_core::distribution::Recorder;
use evenkeel_core::request::redundancy::HedgeStats;
use evenkeel_core::request::redundancy::objective::Kept;
use evenkeel_core::units::{Dimmer, Probability};
use evenkeel_core::window::{Latencies, ReplicaWindow, RequestWindow};
use evenkeel_proxy::requests::record::RequestRecord;
use evenkeel_proxy::requests::shown::ShownRequest;
use evenkeel_record::RecordConfig;
use evenkeel_record::counts::RecordCounts;
use evenkeel_settings::Node;
use proptest::prelude::*;
use serde_json::Value;
use tokio::sync::watch;

use super::*;
use crate::config::Config;
use crate::process::upstreams::Upstreams;
use crate::process::{LastReload, ReloadStatus};
use agents::dimming;
use evenkeel_duplicates as duplicates;
use evenkeel_duplicates::state::{
    Advice, DuplicateState, DuplicatesState, NightAdvice, PartitionState, PolicyAdvice, ReadBalance,
};
use evenkeel_http_proxy::agent_state::{AgentState, AgentStates};
use evenkeel_http_proxy::agent_surface;
use evenkeel_mesh::{
    AlarmState, ControllerState, CurvePoint, DestinationState, EnforcedState, FollowerState,
    LearntState, PairState, PathState, PlanState, PricedSiteState, PricedState, RedirectState,
    SiteState,
};
use evenkeel_placement::state::{
    DatabaseState, IntervalState, MoveState, OptionState, PlacementState,
};
use evenkeel_proxy::upstream_state::{
    BrownoutSeen, ProbeCounts, ProbeResults, ReplicaState, UpstreamStates, WorkerReport,
};
use evenkeel_runtime::accept::Stop;
use evenkeel_runtime::accept::worker_runtime;
use evenkeel_runtime::metrics::Scrape;
use exposition::Exposed;

const CONFIG: &str = r#"
[process]
workers = 1

[[listen]]
address = "127.0.0.1:8080"
upstream = "shop"

[[listen]]
address = "127.0.0.1:8081"
upstream = "search"

[upstream.shop]
replicas = ["127.0.0.1:9001", "127.0.0.1:9002"]
policy = "c3"

[upstream.search]
replicas = ["127.0.0.1:9003"]
policy = "round-robin"

[[agent]]
listen = "127.0.0.1:9001"
app = "127.0.0.1:9101"
concurrency = 4
[agent.dimmer]
setpoint = "500ms"

[[agent]]
listen = "127.0.0.1:9002"
app = "127.0.0.1:9102"
"#;

fn config() -> Arc<Config> {
    Arc::new(Config::read(&Node::parse(CONFIG, "test.toml").unwrap()).unwrap())
}

fn number_of(config: &Config, name: &str) -> usize {
    config.upstreams.iter().position(|upstream| upstream.common.name == name).unwrap()
}

/// What a worker of `shop` hands up: 90 requests of 4 ms and 10 of 40 ms, one refused.
fn report() -> WorkerReport {
    let mut latency = Recorder::default();
    (0..100).for_each(|i| latency.record(Duration::from_millis(if i < 90 { 4 } else { 40 })));
    let well = ReplicaWindow {
        sent: 95,
        succeeded: 90,
        cancelled: 2,
        latency_us_sum: 360_000,
        latencies: {
            let mut latencies = Latencies::default();
            (0..90).for_each(|_| latencies.add(4_000));
            latencies
        },
        ..ReplicaWindow::default()
    };
    let failing = ReplicaWindow {
        sent: 14,
        succeeded: 10,
        failed: 4,
        ejections: 1,
        ..ReplicaWindow::default()
    };
    let window = RequestWindow {
        opened: 104,
        answered: 100,
        refused: 1,
        abandoned: 2,
        held: 5,
        retries: 3,
        rescues: 1,
        retries_denied: 1,
        hedges: 7,
        hedges_won: 4,
        hedges_denied: 2,
        moves: 6,
        replicas: vec![well, failing],
        latency: Some(latency),
    };
    let busy = ReplicaState {
        in_flight: 3,
        connections: 8,
        cost: Some(12.5),
        queue_length: Some(2),
        service_time: Some(Duration::from_micros(3_500)),
        dimmer: Some((Dimmer::clamped(0.73), evenkeel_core::Instant::from_millis(5))),
        ..ReplicaState::default()
    };
    let out = ReplicaState {
        failure_share: 0.25,
        is_ejected: true,
        cost: Some(f64::INFINITY),
        ..ReplicaState::default()
    };
    let seen = BrownoutSeen { full: 60, reduced: 30, dimmers_invalid: 3 };
    let hedge = HedgeStats {
        delay: Some(Duration::from_millis(8)),
        is_futile: true,
        utilisation: Some(0.4),
        worth: Some(0.25),
        kept: Kept { by_load: 11, as_futile: 12, for_comparison: 13 },
        ..HedgeStats::default()
    };
    let hedge = Some(hedge);
    WorkerReport {
        window,
        replicas: vec![busy, out],
        held: 6,
        hedge,
        seen,
        split: None,
        operations: [5, 2],
        responses: [0, 80, 3, 9, 2],
        mirrored: [7, 1],
        probes: ProbeCounts {
            http: ProbeResults { answered: 21, unanswered: 22, unknown: 23 },
            udp: ProbeResults { answered: 24, unanswered: 25, unknown: 0 },
            unexpected: 26,
            invalid: 27,
            notices: 28,
        },
    }
}

/// What workers have handed up.
struct World {
    states: Arc<UpstreamStates>,
    agents: Arc<AgentStates>,
}

impl World {
    fn new(config: &Config) -> Self {
        let upstreams = config.upstreams.iter().map(|upstream| &upstream.common);
        let agents = config.agents.iter().map(|agent| &agent.common);
        let states = Arc::new(UpstreamStates::new(upstreams, config.process.workers));
        Self { states, agents: Arc::new(AgentStates::new(agents)) }
    }

    /// What the components of such a process show.
    fn surface(&self, config: &Config) -> Surface {
        let configs = watch::Sender::new(Arc::new(config.clone())).subscribe();
        let upstreams = Upstreams::new(configs, Arc::clone(&self.states), Vec::new());
        let agents = config.agents.iter().map(|agent| agent.common.clone()).collect();
        let mut surface = upstreams.surface();
        surface.merge(agent_surface::surface(agents, Arc::clone(&self.agents)));
        surface
    }

    fn desk(&self, surface: Surface) -> Desk {
        let bound = IpAddr::from([127, 0, 0, 1]);
        Desk::new(surface, Access::default(), bound, StopSignal::never()).unwrap()
    }
}

fn busy(config: &Config) -> World {
    let world = World::new(config);
    let states = &world.states;
    let shop = number_of(config, "shop");
    states.note(shop, 0, report());
    states.set_health(shop, 1, Health::Down);
    world.agents.note(0, dimming());
    world.agents.note(1, AgentState { in_service: 2, ..AgentState::default() });
    world
}

fn metrics_of(config: &Config, world: &World) -> String {
    world.states.note_cpu(0, Duration::from_millis(1_500));
    world.desk(world.surface(config)).registry.text(Format::Text)
}

// ---- metrics -----------------------------------------------------------------------------------

#[test]
fn metrics_say_what_was_counted() {
    let config = config();
    let exposed = Exposed::read(&metrics_of(&config, &busy(&config))).unwrap();
    let shop = ("upstream", "shop");
    let of_shop = |name: &str, more: &[(&str, &str)]| {
        exposed.value(name, &[&[shop], more].concat()).unwrap_or_else(|| panic!("{name} {more:?}"))
    };
    let requests = |outcome| of_shop("evenkeel_requests_total", &[("outcome", outcome)]);
    assert_eq!(["answered", "refused", "abandoned"].map(requests), [100.0, 1.0, 2.0]);
    let hedges = |result| of_shop("evenkeel_hedges_total", &[("result", result)]);
    assert_eq!(["sent", "won", "denied"].map(hedges), [7.0, 4.0, 2.0]);
    let kept = |reason| of_shop("evenkeel_hedges_kept_total", &[("reason", reason)]);
    assert_eq!(["load", "ineffective", "comparison"].map(kept), [11.0, 12.0, 13.0]);
    let probes = |channel, result| {
        of_shop("evenkeel_probes_total", &[("channel", channel), ("result", result)])
    };
    let results = |channel| ["answered", "unanswered", "unknown"].map(|it| probes(channel, it));
    assert_eq!(["http", "udp"].map(results), [[21.0, 22.0, 23.0], [24.0, 25.0, 0.0]]);
    let dropped = |reason| of_shop("evenkeel_probe_datagrams_dropped_total", &[("reason", reason)]);
    assert_eq!(["unexpected", "invalid"].map(dropped), [26.0, 27.0]);
    let moving = ["notices_total", "moves_total"];
    assert_eq!(moving.map(|it| of_shop(&format!("evenkeel_{it}"), &[])), [28.0, 6.0]);
    let gauges = ["ineffective", "delay_seconds", "benefit_ratio", "utilisation"];
    let gauges = gauges.map(|name| of_shop(&format!("evenkeel_hedge_{name}"), &[]));
    assert_eq!(gauges, [1.0, 0.008, 0.25, 0.4]);
    let counts = [
        "upstream_queued",
        "upstream_queue_entries_total",
        "retries_total",
        "retries_denied_total",
    ];
    let count = |name| of_shop(&format!("evenkeel_{name}"), &[]);
    assert_eq!(counts.map(count), [6.0, 5.0, 3.0, 1.0]);

    let [first, second] = ["127.0.0.1:9001", "127.0.0.1:9002"].map(|at| ("replica", at));
    let attempts =
        |replica, outcome| of_shop("evenkeel_attempts_total", &[replica, ("outcome", outcome)]);
    assert_eq!(
        ["succeeded", "failed", "cancelled"].map(|it| attempts(first, it)),
        [90.0, 0.0, 2.0]
    );
    assert_eq!(attempts(second, "failed"), 4.0);
    let of = |replica, name| of_shop(&format!("evenkeel_{name}"), &[replica]);
    assert_eq!(
        [of(first, "attempt_seconds_sum"), of(first, "attempt_seconds_count")],
        [0.36, 90.0]
    );
    let bucket = |le| of_shop("evenkeel_attempt_seconds_bucket", &[first, ("le", le)]);
    assert_eq!(["0.0025", "0.005", "10", "+Inf"].map(bucket), [0.0, 90.0, 90.0, 90.0]);
    assert_eq!(["in_flight", "connections", "replica_up"].map(|it| of(first, it)), [3.0, 8.0, 1.0]);
    assert_eq!([of(first, "replica_cost"), of(first, "replica_queue")], [12.5, 2.0]);
    assert_eq!(of(first, "replica_service_seconds"), 0.0035);
    assert_eq!([of(second, "replica_up"), of(second, "replica_ejected")], [0.0, 1.0]);
    assert_eq!(
        [of(second, "replica_ejections_total"), of(second, "replica_cost")],
        [1.0, f64::INFINITY]
    );
    let queue = exposed.value("evenkeel_replica_queue", &[shop, second]);
    assert_eq!(queue, None, "nobody reported a queue, so there is none");
    assert_eq!(of(first, "replica_dimmer"), 0.73);
    let dimmer = exposed.value("evenkeel_replica_dimmer", &[shop, second]);
    assert_eq!(dimmer, None, "a dimmer that nobody told is not zero");
    let answers = |content| of_shop("evenkeel_answers_total", &[("content", content)]);
    assert_eq!(["full", "reduced"].map(answers), [60.0, 30.0]);
    assert_eq!(of_shop("evenkeel_dimmer_invalid_total", &[]), 3.0);
    assert_eq!(exposed.value("evenkeel_workers_cpu_seconds_total", &[]), Some(1.5));
    let version = ("version", env!("CARGO_PKG_VERSION"));
    assert_eq!(exposed.value("evenkeel_build_info", &[version]), Some(1.0));
}

/// Also where a service has the name of an upstream.
#[test]
fn reads_of_duplicates_have_the_series_of_upstreams() {
    let config = config();
    let world = busy(&config);
    let stats = world.states.stats(number_of(&config, "shop"));
    let replica = |slot, health| (slot, format!("10.0.0.{slot}:6379"), health);
    // The slot in between is nobody's any more.
    let replicas = vec![replica(0, Health::Up), replica(2, Health::Down)];
    let policy = "least-outstanding".to_owned();
    let reads_balance = Arc::new(ReadBalance { policy, stats, replicas });
    let service =
        DuplicatesState { name: "shop".to_owned(), reads_balance, ..DuplicatesState::default() };
    let mut surface = world.surface(&config);
    let services = move |scrape: &mut Scrape| duplicates::metrics::collect(scrape, &service);
    surface.merge(Surface::of_metrics(services));
    let exposed = world.desk(surface).registry.text(Format::Text);
    let exposed = Exposed::read(&exposed).unwrap();
    let of = |name: &str, more: &[(&str, &str)]| {
        exposed.value(&format!("evenkeel_{name}"), &[&[("service", "shop")], more].concat())
    };
    assert_eq!(of("requests_total", &[("outcome", "answered")]), Some(100.0));
    assert_eq!(of("hedges_total", &[("result", "sent")]), Some(7.0));
    assert_eq!(of("retries_total", &[]), Some(3.0));
    let policy = ("policy", "least-outstanding");
    assert_eq!(of("request_duration_seconds_count", &[policy]), Some(100.0));
    let [first, gap, last] = ["10.0.0.0:6379", "10.0.0.1:6379", "10.0.0.2:6379"];
    let at = |name, replica| of(name, &[("replica", replica)]);
    assert_eq!((at("in_flight", first), at("replica_up", first)), (Some(3.0), Some(1.0)));
    assert_eq!((at("in_flight", gap), at("replica_up", last)), (None, Some(0.0)));
    assert_eq!(at("replica_ejected", first), Some(0.0));
}

#[test]
fn the_histogram_is_of_the_recorded_latencies() {
    let config = config();
    let exposed = Exposed::read(&metrics_of(&config, &busy(&config))).unwrap();
    let name = "evenkeel_request_duration_seconds";
    let labels = [("upstream", "shop"), ("policy", "c3")];
    let of = |suffix: &str| exposed.value(&format!("{name}{suffix}"), &labels).unwrap();
    assert_eq!((of("_count"), of("_sum")), (100.0, 90.0 * 0.004 + 10.0 * 0.04));
    let own = |(label, value): (&str, &str)| (label.to_owned(), value.to_owned());
    let buckets = exposed.buckets(name, &labels.map(own).into());
    let within = |at: f64| buckets.iter().find(|(le, _)| *le == at).unwrap().1;
    assert_eq!(
        [0.0005, 0.003, 0.005, 0.03, 0.05, 30.0].map(within),
        [0.0, 0.0, 90.0, 90.0, 100.0, 100.0]
    );
}

#[test]
fn metrics_are_there_before_the_first_request_and_come_in_the_same_order() {
    let config = config();
    let empty = metrics_of(&config, &World::new(&config));
    let exposed = Exposed::read(&empty).unwrap();
    let quiet = [("upstream", "search"), ("outcome", "answered")];
    assert_eq!(exposed.value("evenkeel_requests_total", &quiet), Some(0.0));
    let replica = [("upstream", "search"), ("replica", "127.0.0.1:9003")];
    assert_eq!(exposed.value("evenkeel_replica_up", &replica), Some(1.0));
    let world = busy(&config);
    assert_eq!(metrics_of(&config, &world), metrics_of(&config, &world));
    let names = |text: &str| -> Vec<String> {
        let families = text.lines().filter(|line| line.starts_with("# TYPE"));
        families.map(str::to_owned).collect()
    };
    assert_eq!(names(&empty), names(&metrics_of(&config, &world)));
}

proptest! {
    #[test]
    fn any_name_survives_as_a_label(name in any::<String>()) {
        let mut config = Config::clone(&config());
        config.upstreams.truncate(1);
        config.upstreams[0].common.name.clone_from(&name);
        let exposed = Exposed::read(&metrics_of(&config, &World::new(&config))).unwrap();
        let labels = [("upstream", name.as_str())];
        prop_assert_eq!(exposed.value("evenkeel_upstream_queued", &labels), Some(0.0));
    }
}

#[test]
fn promtool_agrees() {
    let mut command = Command::new("promtool");
    let command = command.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut promtool) = command.stderr(Stdio::piped()).spawn() else {
        eprintln!("skipped: promtool is not installed (Debian package prometheus)");
        return;
    };
    let config = config();
    let text = metrics_of(&config, &busy(&config));
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "promtool says {said}");
}

// ---- the API and the page ----------------------------------------------------------------------

/// Five seconds after the start: sampled at first, before anything was counted, and after four.
fn status_of(config: &Config, world: &World) -> Value {
    let (start, now) = (Instant::now(), World::new(config));
    let mut surface = now.surface(config);
    let at = |seconds| start + Duration::from_secs(seconds);
    surface.samplers.iter().for_each(|sample| sample(at(0)));
    let shop = number_of(config, "shop");
    now.states.note(shop, 0, report());
    now.states.set_health(shop, 1, world.states.plan(shop).health[1]);
    (0..config.agents.len()).for_each(|agent| now.agents.note(agent, world.agents.state(agent)));
    surface.samplers.iter().for_each(|sample| sample(at(4)));
    surface.status.push(("config", Box::new(|_| reload::status_json(reloads()))));
    let desk = Desk { started_at: start, ..now.desk(surface) };
    serde_json::from_str(&desk.status(at(5))).unwrap()
}

/// One reload was taken over, and then one was not.
fn reloads() -> ReloadStatus {
    let results = [("applied", 1), ("invalid", 1)].into();
    let last = LastReload { at_unix_ms: 1_500, error: Some("no policy".to_owned()) };
    ReloadStatus { generation: 2, results, last: Some(last) }
}

#[test]
fn the_status_says_how_things_stand() {
    let config = config();
    let status = status_of(&config, &busy(&config));
    assert_eq!(status["uptime_s"], 5.0);
    let reloads = &status["config"];
    assert_eq!((&reloads["generation"], &reloads["last_error"]), (&2.into(), &"no policy".into()));
    assert_eq!(reloads["last_reload_unix_ms"], 1_500);
    let shop = &status["upstreams"][number_of(&config, "shop")];
    assert_eq!((&shop["name"], &shop["policy"]), (&"shop".into(), &"c3".into()));
    assert_eq!((&shop["held"], &shop["is_ready"]), (&6.into(), &true.into()));
    let now = &shop["now"];
    assert_eq!((&now["covers_s"], &now["requests_per_s"]), (&4.0.into(), &26.0.into()));
    assert_eq!(now["failure_share"], 4.0 / 104.0);
    let near = |value: &Value, truth: f64| {
        value.as_f64().is_some_and(|value| truth <= value && value <= truth * 1.01)
    };
    assert!(near(&now["p50_ms"], 4.0) && near(&now["p95_ms"], 40.0), "{now}");
    assert_eq!((&now["mean_ms"], &now["p999_ms"]), (&7.6.into(), &Value::Null));
    assert_eq!(
        (&shop["total"]["requests"], &shop["total"]["hedges_won"]),
        (&104.into(), &4.into())
    );
    assert!(near(&shop["total"]["p99_ms"], 40.0));
    let hedge = &shop["hedge"];
    assert_eq!((&hedge["delay_ms"], &hedge["is_futile"]), (&8.0.into(), &true.into()));
    assert_eq!((&hedge["kept_by_load"], &hedge["utilisation"]), (&11.into(), &0.4.into()));

    let [first, second] = [0, 1].map(|slot| &shop["replicas"][slot]);
    assert_eq!((&first["address"], &first["health"]), (&"127.0.0.1:9001".into(), &"up".into()));
    assert_eq!((&second["health"], &second["is_ejected"]), (&"down".into(), &true.into()));
    assert_eq!((&first["cost"], &second["cost"]), (&12.5.into(), &Value::Null));
    assert_eq!((&first["queue_reported"], &first["service_reported_ms"]), (&2.into(), &3.5.into()));
    assert_eq!((&first["mean_ms"], &first["total"]["attempts"]), (&4.0.into(), &95.into()));
    let series = &shop["series"];
    assert_eq!((&series["ago_s"][0], &series["requests_per_s"][0]), (&1.0.into(), &26.0.into()));
    assert_eq!(series["replicas"][1]["share"][0], 0.1284, "14 of 109 attempts");

    assert_eq!((&first["dimmer"], &second["dimmer"]), (&0.73.into(), &Value::Null));
    assert_eq!(shop["total"]["answers_reduced"], 30);
    let quiet = &status["upstreams"][number_of(&config, "search")];
    assert_eq!(
        (&quiet["now"]["p50_ms"], &quiet["now"]["requests_per_s"]),
        (&Value::Null, &0.0.into())
    );
    assert_eq!(quiet["series"]["replicas"][0]["share"][0], Value::Null);
}

fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.keys().cloned());
            fields.values().for_each(|value| keys(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, found)),
        _ => {}
    }
}

/// Replicas without names.
struct Numbers;

impl evenkeel_proxy::requests::words::Names for Numbers {
    fn replica(&self, place: evenkeel_proxy::requests::record::Place) -> String {
        place.slot.to_string()
    }

    fn datacenter(&self, datacenter: u8) -> String {
        datacenter.to_string()
    }
}

/// The script writes its own names in camel case, so every word with an underscore is the API's.
#[test]
fn the_page_asks_for_nothing_that_the_api_does_not_give() {
    let config = config();
    let mut given = BTreeSet::new();
    keys(&status_of(&config, &busy(&config)), &mut given);
    let named = "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'named'\n\
                 [upstream.named]\nreplicas = ['named.test:1']\n";
    let node = Node::parse(&format!("{CONFIG}\n{named}"), "test.toml").unwrap();
    let with_source = Config::read(&node).unwrap();
    keys(&status_of(&with_source, &World::new(&with_source)), &mut given);
    let site = SiteState { path: Some(PathState::default()), ..SiteState::default() };
    let priced = PricedState { sites: vec![PricedSiteState::default()], ..Default::default() };
    let (pairs, priced) = (vec![PairState::default()], Some(priced));
    let plan = PlanState { pairs, priced, ..PlanState::default() };
    let mesh = RedirectState {
        sites: vec![site],
        plan: Some(plan),
        alarms: vec![AlarmState::default()],
        followers: vec![FollowerState::default()],
        enforced: Some(EnforcedState {
            to: vec![DestinationState::default()],
            ..Default::default()
        }),
        controller: Some(ControllerState::default()),
        learnt: Some(LearntState { curves: vec![CurvePoint::default()], ..Default::default() }),
        ..RedirectState::default()
    };
    keys(&serde_json::from_str(&mesh.json("shop")).unwrap(), &mut given);
    let interval = IntervalState { best: vec![OptionState::default()], ..IntervalState::default() };
    let database = DatabaseState {
        intervals: vec![interval],
        moves: vec![MoveState::default()],
        ..DatabaseState::default()
    };
    let placement = PlacementState { databases: vec![database], ..PlacementState::default() };
    keys(&serde_json::to_value(placement).unwrap(), &mut given);
    let partition =
        PartitionState { duplicates: vec![DuplicateState::default()], ..Default::default() };
    let advice = Advice {
        cheapest: Some(PolicyAdvice::default()),
        night: Some(NightAdvice::default()),
        ..Advice::default()
    };
    let (partitions, advice) = (vec![partition], Some(advice));
    let service = DuplicatesState { partitions, advice, ..DuplicatesState::default() };
    keys(&serde_json::to_value(service).unwrap(), &mut given);
    let day = RecordConfig {
        directory: "days".into(),
        rotate: Duration::from_secs(60),
        keep: Duration::from_secs(3_600),
        bytes_max: 1 << 20,
        explore: Probability::ZERO,
        pairs: Probability::ZERO,
    };
    let status = crate::process::record::status(&day, &RecordCounts::default(), false);
    keys(&serde_json::from_str(&status).unwrap(), &mut given);
    let record = RequestRecord::new(evenkeel_core::Instant::ZERO, 0);
    let shown = ShownRequest::new(&record, "shop".to_owned(), 0, &Numbers);
    keys(&serde_json::to_value(shown).unwrap(), &mut given);
    let (_, script) = DASHBOARD.split_once("<script").unwrap();
    let words = script.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_key = |word: &&str| word.contains('_') && word.chars().any(|c| c.is_ascii_lowercase());
    let asked: BTreeSet<&str> = words.filter(is_key).collect();
    assert!(asked.len() > 20, "{asked:?}");
    let missing: Vec<_> = asked.iter().filter(|&&word| !given.contains(word)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// Two of one name are a syntax error, and the page stays empty.
#[test]
fn the_page_declares_every_name_once() {
    let name = |line: &'static str| {
        let words = ["const ", "let ", "function ", "async function "];
        let rest = words.iter().find_map(|word| line.strip_prefix(word))?;
        rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
    };
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = DASHBOARD.lines().filter_map(name).filter(|it| !seen.insert(*it)).collect();
    assert!(seen.len() > 50 && twice.is_empty(), "{twice:?} of {}", seen.len());
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let outside: Vec<_> = DASHBOARD.split("://").skip(1).map(|rest| &rest[..10]).collect();
    assert!(outside.iter().all(|host| host.starts_with("www.w3.org")), "{outside:?}");
    assert!(!DASHBOARD.contains(" src=") && !DASHBOARD.contains("innerHTML"));
    assert_eq!(DASHBOARD.matches("<script").count() + DASHBOARD.matches("<style").count(), 2);
    assert_eq!(DASHBOARD.matches(NONCE_PLACE).count(), 2, "of the script and of the style");
    assert!(!DASHBOARD.contains("style="), "the policy forbids style attributes");
}

// ---- over a socket -----------------------------------------------------------------------------

struct Running {
    address: SocketAddr,
    world: World,
    shop: usize,
    stop: Stop,
    thread: JoinHandle<io::Result<()>>,
}

impl Running {
    fn start() -> Self {
        let config = config();
        let world = busy(&config);
        let shop = number_of(&config, "shop");
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.address().unwrap();
        let stop = Stop::new();
        let signal = stop.signal();
        let surface = world.surface(&config);
        let thread = std::thread::spawn(move || {
            let serving = serve(surface, Access::default(), listener, signal);
            worker_runtime()?.block_on(serving)
        });
        Self { address, world, shop, stop, thread }
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &format!("Host: {}\r\n", self.address))
    }

    fn ask(&self, method: &str, path: &str, headers: &str) -> Reply {
        self.send(&format!("{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n"))
    }

    fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// A client that was answered once and stays.
    fn kept(&self) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.write_all(b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
        assert!(stream.read(&mut [0; 1024]).unwrap() > 0);
        stream
    }

    fn stop(self) {
        drop(self.stop);
        self.thread.join().unwrap().unwrap();
    }
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(header, _)| *header == name).map(|(_, value)| value)
    }
}

#[test]
fn idle_clients_keep_no_probe_out() {
    let running = Running::start();
    let idle: Vec<TcpStream> = (0..LIMITS.connections_max).map(|_| running.kept()).collect();
    for path in ["/healthz", "/readyz", "/metrics", "/api/v1/brownout"] {
        assert_eq!(running.get(path).status, 200, "{path}");
    }
    drop(idle);
    running.stop();
}

#[test]
fn every_path_answers_and_nothing_is_stored() {
    let running = Running::start();
    for (path, content_type) in [
        ("/", "text/html; charset=utf-8"),
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz?verbose", "text/plain; charset=utf-8"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
        ("/api/v1/status", "application/json"),
        ("/api/v1/brownout", "application/json"),
    ] {
        let got = running.get(path);
        assert_eq!((got.status, got.header("content-type")), (200, Some(content_type)), "{path}");
        assert_eq!(got.header("cache-control"), Some("no-store"));
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(got.header("access-control-allow-origin"), None, "no other page may read it");
        let host = format!("Host: {}\r\n", running.address);
        let head = running.ask("HEAD", path, &host);
        assert_eq!((head.status, head.body.as_str()), (200, ""), "{path}");
        assert_eq!(head.header("content-type"), Some(content_type));
        if path != "/api/v1/status" {
            // Its length changes with the time of day.
            let length = got.body.len().to_string();
            assert_eq!(head.header("content-length"), Some(length.as_str()), "{path}");
        }
    }
    Exposed::read(&running.get("/metrics").body).unwrap();
    running.stop();
}

#[test]
fn readiness_names_the_upstream_without_a_replica() {
    let running = Running::start();
    assert_eq!(running.get("/readyz").body, "ready\n", "one of two replicas is up");
    running.world.states.set_health(running.shop, 0, Health::Draining);
    let got = running.get("/readyz");
    let words = "not ready: upstream shop has no replica up and well (it has 2 in all)\n";
    assert_eq!((got.status, got.body.as_str()), (503, words));
    assert_eq!(running.get("/healthz").status, 200, "the process lives all the same");
    running.world.states.set_health(running.shop, 1, Health::Up);
    assert_eq!(running.get("/readyz").status, 200);
    running.stop();
}

#[test]
fn what_is_not_there_is_said_clearly() {
    let running = Running::start();
    let got = running.get("/metricz");
    assert_eq!(got.status, 404);
    assert!(got.body.starts_with("there is no /metricz here, expected one of / /healthz"));
    let host = format!("Host: {}\r\n", running.address);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "BREW"] {
        let got = running.ask(method, "/metrics", &host);
        assert_eq!((got.status, got.header("allow")), (405, Some("get, head")), "{method}");
        assert_eq!(got.body, format!("{method} does nothing here, expected GET or HEAD\n"));
    }
    running.stop();
}

#[test]
fn only_this_host_is_answered() {
    let running = Running::start();
    let port = running.address.port();
    let asked_as = |host: &str| running.ask("GET", "/healthz", &format!("Host: {host}\r\n"));
    for host in ["localhost", "LocalHost:1", "localhost.:80", "127.0.0.1", "127.9.9.9:5", "[::1]"] {
        assert_eq!(asked_as(host).status, 200, "{host}");
    }
    for host in [
        format!("evil.example:{port}"),
        "localhost.evil.example".to_owned(),
        "127.0.0.1.evil.example".to_owned(),
        "evil@localhost".to_owned(),
        "192.0.2.1".to_owned(),
        "0.0.0.0".to_owned(),
        "[::2]".to_owned(),
        String::new(),
    ] {
        let got = asked_as(&host);
        assert_eq!(got.status, 421, "{host}");
        assert!(
            got.body.contains("expected localhost, a loopback address or 127.0.0.1"),
            "{got:?}"
        );
        assert_eq!(asked_as(&format!("localhost\r\nHost: {host}")).status, 421, "two hosts");
    }
    assert_eq!(running.ask("GET", "/healthz", "").status, 421, "HTTP/1.1 asks for a Host");
    assert_eq!(running.send("GET /healthz HTTP/1.0\r\n\r\n").status, 200, "a health checker");
    let absolute = running.ask("GET", "http://evil.example/healthz", "Host: localhost\r\n");
    assert_eq!(absolute.status, 421, "the target counts, not the header");
    running.stop();
}

#[test]
fn the_page_carries_a_fresh_nonce_each_time() {
    let running = Running::start();
    let nonce = || {
        let got = running.get("/");
        let policy = got.header("content-security-policy").unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"));
        let nonce = policy.split("'nonce-").nth(1).unwrap().split('\'').next().unwrap().to_owned();
        assert_eq!(got.body.matches(&format!(" nonce=\"{nonce}\"")).count(), 2);
        assert!(!got.body.contains(NONCE_PLACE));
        nonce
    };
    assert_ne!(nonce(), nonce());
    running.stop();
}

#[test]
fn the_series_grows_while_it_serves() {
    let running = Running::start();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let status: Value = serde_json::from_str(&running.get("/api/v1/status").body).unwrap();
        let shop = &status["upstreams"][running.shop];
        if shop["now"].is_object() {
            // All of it was counted before the first sample.
            assert_eq!(
                (&shop["now"]["requests_per_s"], &shop["total"]["requests"]),
                (&0.0.into(), &104.into())
            );
            assert_eq!(shop["series"]["ago_s"].as_array().unwrap().len(), 1);
            break;
        }
        assert!(Instant::now() < deadline, "no point in ten seconds");
        std::thread::sleep(Duration::from_millis(100));
    }
    running.stop();
}
