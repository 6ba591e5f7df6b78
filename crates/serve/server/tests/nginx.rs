//! The proxy in front of three real nginx servers with agents: one paused again and again, one
//! rate-limited, one killed under load; driven by a real request-rate series when it is at hand.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_load::{
    Arrivals, Expectation, Load, Report, Scale, Spacing, Stop, Target, Trace, TraceOptions,
    TraceStart,
};
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_testkit::fault::{Mishap, What};
use evenkeel_testkit::nginx::{self, Nginx, NginxConfig};

const SERIES: &str = "../../../../shared/data/traces/wc98_total_per_minute_88days.csv";

/// nginx, or a visible word that the test is skipped.
fn binary() -> Option<PathBuf> {
    let found = nginx::find();
    if found.is_none() {
        println!("SKIPPED: no nginx here (Debian: apt-get install nginx-light)");
    }
    found
}

fn start_servers(test: &str, binary: PathBuf, mishaps: Vec<Mishap>) -> Nginx {
    start_limited(test, binary, mishaps, vec![None, None, Some(100.0)])
}

fn start_limited(
    test: &str,
    binary: PathBuf,
    mishaps: Vec<Mishap>,
    rate_limits: Vec<Option<f64>>,
) -> Nginx {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    Nginx::start(NginxConfig { binary, directory, rate_limits, apps: Vec::new(), mishaps }).unwrap()
}

/// Agents before the servers, and a proxy before the agents, as `evenkeel run` would have them.
struct Stack {
    proxy: Process,
    agents: Process,
}

impl Stack {
    fn start(servers: &[SocketAddr], policy: &str) -> Self {
        let mut text = String::from("[process]\nworkers = 1\n");
        for app in servers {
            text += &format!("[[agent]]\nlisten = '127.0.0.1:0'\napp = '{app}'\n");
        }
        let agents = start(&text);
        let replicas: Vec<_> = agents.agents().iter().map(|a| format!("'{a}'")).collect();
        let proxy = start(&format!(
            "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
             [upstream.web]\nreplicas = [{}]\npolicy = '{policy}'\nretries_max = 2\n\
             [upstream.web.hedge]\nquantile = 0.9\nbudget = '10%'\n",
            replicas.join(", ")
        ));
        Self { proxy, agents }
    }

    fn load(&self, arrivals: Arrivals, duration: Duration) -> Load {
        load(&self.proxy, arrivals, duration)
    }

    /// Stops both and checks that nothing stayed in flight.
    fn stop(self) {
        let states = std::sync::Arc::clone(self.proxy.upstreams());
        self.proxy.stop().unwrap();
        self.agents.stop().unwrap();
        let stats = states.stats(0);
        let in_flight: u32 = (0..3).map(|slot| stats.replica(slot).in_flight).sum();
        assert_eq!(in_flight, 0, "nothing stays in flight");
        let total = &stats.total;
        assert_eq!(total.opened, total.answered + total.refused + total.abandoned);
    }
}

fn load(proxy: &Process, arrivals: Arrivals, duration: Duration) -> Load {
    let url = format!("http://{}/item/{{n}}?q={{key}}", proxy.listens()[0]);
    let mut load = Load::new(Target::new([url.as_str()]).unwrap(), arrivals);
    load.target.keys.count = 1_000;
    load.plan.duration = Some(duration);
    load.expectation = Expectation::Computed(Box::new(|facts| nginx::body_of(facts.path).into()));
    load
}

fn start(text: &str) -> Process {
    let node = Node::parse(text, "test.toml").unwrap();
    let config = Config::read(&node).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    Process::start(config).unwrap()
}

/// The opening match day of a real series, a minute in a tenth of a second; a generated day
/// where the series is not at hand.
fn arrivals(rate_mean: f64) -> Arrivals {
    let options = TraceOptions {
        start: TraceStart::Time("1998-06-10 12:00:00".to_owned()),
        rows: Some(120),
        compression: 600.0,
        scale: Scale::Mean(rate_mean),
        ..TraceOptions::default()
    };
    if Path::new(SERIES).exists() {
        let trace = Trace::open(Path::new(SERIES), &options).unwrap();
        return Arrivals::trace(trace, Spacing::Poisson);
    }
    println!("SKIPPED: the real series is not here; a generated day takes its place");
    Arrivals::diurnal(rate_mean, Duration::from_secs(12), 1).unwrap()
}

fn assert_all_served(report: &Report) {
    assert_eq!(report.mismatches, 0, "{:?}", report.mismatch_examples);
    assert_eq!(report.served, report.requests, "{report:?}");
    assert!(report.requests > 1_000, "{report:?}");
}

#[test]
fn a_paused_and_a_limited_replica_cost_no_request_and_little_tail() {
    let Some(binary) = binary() else { return };
    let ms = Duration::from_millis;
    let pauses = (0..1_000).map(|n| Mishap {
        at: ms(600) * n,
        replica: 1,
        what: What::Pause(ms(50 + u64::from(n % 4) * 50)),
    });
    let servers = start_servers("paused", binary, pauses.collect());
    servers.begin();
    let p99 = |policy: &str| {
        let stack = Stack::start(servers.addresses(), policy);
        let load = stack.load(arrivals(400.0), Duration::from_secs(10));
        let outcome = load.run(&Stop::new(), |_| {}).unwrap();
        stack.stop();
        assert_all_served(&outcome.report);
        println!("{policy}: {:?}", outcome.report);
        outcome.report.latency.p99_ms.unwrap()
    };
    // A third of 400/s is more than the limited replica lets through, so turns pile up there;
    // a policy that looks sends it what it can take.
    let (blind, adaptive) = (p99("round-robin"), p99("c3"));
    assert!(adaptive < 0.5 * blind, "p99 c3 {adaptive} ms, round-robin {blind} ms");
}

#[test]
fn a_replica_killed_under_load_loses_no_idempotent_request() {
    let Some(binary) = binary() else { return };
    let servers = start_servers("killed", binary, Vec::new());
    let stack = Stack::start(servers.addresses(), "c3");
    let load = stack.load(Arrivals::poisson(400.0).unwrap(), Duration::from_secs(8));
    let mut ticks = 0;
    let outcome = load
        .run(&Stop::new(), |_| {
            ticks += 1;
            match ticks {
                8 => servers.kill(0),
                16 => servers.restart(0).unwrap(),
                24 => servers.kill(1),
                _ => {}
            }
        })
        .unwrap();
    stack.stop();
    assert_all_served(&outcome.report);
}

/// Also those that wait for it at the moment when it stops are answered, by others.
#[test]
fn a_replica_that_hangs_holds_nobody_up() {
    let Some(binary) = binary() else { return };
    let servers = start_limited("hung", binary, Vec::new(), vec![None; 5]);
    let replicas: Vec<_> = servers.addresses().iter().map(|it| format!("'{it}'")).collect();
    let proxy = start(&format!(
        "[[listen]]\naddress = '127.0.0.1:0'\nupstream = 'web'\n\
         [upstream.web]\nreplicas = [{}]\n",
        replicas.join(", ")
    ));
    let load = load(&proxy, Arrivals::poisson(300.0).unwrap(), Duration::from_secs(10));
    let mut ticks = 0;
    let outcome = load
        .run(&Stop::new(), |_| {
            ticks += 1;
            if ticks == 12 {
                servers.pause(0, true);
            }
        })
        .unwrap();
    let total = proxy.upstreams().stats(0).total;
    proxy.stop().unwrap();
    assert_all_served(&outcome.report);
    let max_ms = outcome.report.latency.max_ms.unwrap();
    println!("{max_ms} ms, {} rescues", total.rescues);
    assert!(max_ms < 1_000.0 && total.rescues > 0, "{max_ms} ms, {} rescues", total.rescues);
}
