//! `evenkeel demo`: a scenario on real sockets, policy after policy, with the simulator's word
//! beside each measurement.

mod brownout;
mod course;
mod ground;
mod price;
mod redirect;
mod shop;
mod shops;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_core::Rng;
use evenkeel_core::request::redundancy::Budget;
use evenkeel_http_proxy::config::{AgentConfig, HttpListenConfig};
use evenkeel_load::{Arrivals, Expectation, Load, Outcome, Stop, Target};
use evenkeel_proxy::config::{Timeouts, UpstreamConfig};
use evenkeel_runtime::buffers::BYTES_MAX;
use evenkeel_runtime::limits::{BodyLimits, Http2, ServerLimits, UpstreamLimits};
use evenkeel_runtime::networks::Networks;
use evenkeel_server::config::{
    AdminConfig, AgentEntry, Config, ListenConfig, LogConfig, ProcessConfig, Protocol, Source,
    UpstreamEntry,
};
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_sim::fault::{Fault, Target as Struck, What};
use evenkeel_sim::scenario::{Real, Spelling};
use evenkeel_sim::{RunReport, Scenario};
use evenkeel_testkit::embedded::{self, Embedded, EmbeddedConfig};
use evenkeel_testkit::fault::{self, Mishap};
use evenkeel_testkit::nginx::{self, Nginx, NginxConfig};
use serde::Serialize;

use crate::live::Live;
use crate::output;
use crate::terminal::{Table, ms, ms_if_known};

/// The built-in scenarios: name, file, text.
const BUILT_IN: [(&str, &str, &str); 3] = [
    ("demo", "scenarios/demo.toml", include_str!("../../../../scenarios/demo.toml")),
    (
        "brownout",
        "scenarios/brownout-shop.toml",
        include_str!("../../../../scenarios/brownout-shop.toml"),
    ),
    (
        "redirect",
        "scenarios/redirect-demo.toml",
        include_str!("../../../../scenarios/redirect-demo.toml"),
    ),
];

/// Compare policies on a replicated service on loopback sockets.
///
/// Starts replicas, sends the same load through the proxy with one policy after the other, and
/// prints a table. `demo`: embedded replicas with varying speed. `brownout`: five shops, of which
/// two are killed; exit 1 if brownout serves fewer than 99 %. `redirect`: three data centres, one
/// overloaded, one disconnected at the end; exit 1 if they had different plans.
/// Example: evenkeel demo brownout
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArguments {
    /// A built-in scenario (demo, brownout or redirect) or the file of a scenario.
    #[arg(default_value = "demo", value_name = "NAME|FILE")]
    scenario: PathBuf,
    /// Set a parameter of the scenario; repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Random seed of load and replicas.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

/// What was measured of one policy, and what the simulator had foretold.
#[derive(Debug, Serialize)]
struct Run {
    #[serde(flatten)]
    measured: evenkeel_load::Report,
    /// CPU time of the proxy per request: accepting, deciding, passing on.
    proxy_cpu_us_per_request: f64,
    /// Copies sent, as a share of requests.
    hedged_share: f64,
    simulated: RunReport,
}

#[derive(Serialize)]
struct Document<'a> {
    runs: &'a [Run],
    scenario: &'a Scenario,
}

pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<ExitCode> {
    let scenario = load_scenario(arguments)?;
    if scenario.cluster.real == Real::Shop {
        return brownout::run(arguments, &scenario);
    }
    if scenario.geography.is_some() {
        return redirect::run(arguments, &scenario);
    }
    let mut live = Live::new(&scenario);
    let mut runs = Vec::new();
    for policy in &scenario.run.policies {
        let run = run_policy(&scenario, policy, arguments.seed, &mut live)
            .with_context(|| format!("the demo of {policy} could not run"))?;
        live.keep(&format!(
            "{policy:<18} p50 {:>5} ms   p99 {:>5} ms   p99.9 {:>5} ms",
            ms_if_known(run.measured.latency.p50_ms),
            ms_if_known(run.measured.latency.p99_ms),
            ms_if_known(run.measured.latency.p999_ms),
        ));
        runs.push(run);
    }
    live.clear();
    if arguments.json {
        let document = Document { runs: &runs, scenario: &scenario };
        output::json(&document)?;
    } else {
        output::text!("{}", closing_words(&scenario, &runs))?;
    }
    let all_served = runs.iter().all(|run| run.measured.served == run.measured.requests);
    Ok(if all_served { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn load_scenario(arguments: &DemoArguments) -> anyhow::Result<Scenario> {
    let mut node = open_scenario(&arguments.scenario)?;
    for assignment in &arguments.set {
        node.set(assignment)?;
    }
    let scenario = Scenario::read(&node)?;
    let is_real = |policy: &&String| !policy.starts_with("oracle");
    anyhow::ensure!(
        scenario.run.policies.iter().all(|policy| is_real(&policy)),
        "run.policies: an oracle knows what no real proxy can; it runs in `evenkeel sim` only"
    );
    anyhow::ensure!(
        scenario.geography.is_some()
            || scenario.cluster.replication_factor == scenario.cluster.servers,
        "cluster.replication_factor: {} of {} servers; over HTTP every replica answers everything",
        scenario.cluster.replication_factor,
        scenario.cluster.servers,
    );
    if scenario.cluster.real != Real::Shop {
        ensure_slots(&scenario)?;
        scenario.faults.iter().try_for_each(|fault| ensure_real(fault, scenario.cluster.real))?;
    }
    Ok(scenario)
}

fn open_scenario(named: &Path) -> anyhow::Result<Node> {
    let built_in = BUILT_IN.iter().find(|(name, ..)| named.as_os_str() == *name);
    if let Some((_, file, text)) = built_in {
        return Ok(Node::parse(text, file)?);
    }
    let is_name = named.extension().is_none() && named.components().count() == 1;
    if is_name && !named.exists() {
        let names = BUILT_IN.map(|(name, ..)| name).join(", ");
        anyhow::bail!("no scenario {named:?}: expected one of {names}, or the path of a file");
    }
    Ok(Node::load(named)?)
}

/// Requests that share cores, and what guards them, need shops.
fn ensure_slots(scenario: &Scenario) -> anyhow::Result<()> {
    let guarded = scenario.run.policies.iter().find(|policy| Spelling::of(policy).guard.is_some());
    anyhow::ensure!(
        guarded.is_none() && scenario.replicas.is_empty(),
        "replicas: what shares cores or dims needs cluster.real = shop, or `evenkeel sim`"
    );
    Ok(())
}

/// What cannot be done to the demo's replicas must not be left out in silence: the simulator's
/// word beside the measurement would be about something else.
fn ensure_real(fault: &Fault, real: Real) -> anyhow::Result<()> {
    let problem = match (fault.what, real) {
        (What::Crash, Real::Embedded) => {
            "a crash needs a process of its own: cluster.real = nginx or shop"
        }
        (What::Restore, _) => {
            "a restore is for cluster.real = shop, or `evenkeel sim`: here the dead stay dead"
        }
        (What::Hang { .. } | What::Break { .. } | What::Stall { .. }, _) => {
            "hang, break and stall are for `evenkeel sim`"
        }
        (What::Fail { .. }, Real::Nginx) => "fail needs embedded replicas: nginx does not lie",
        (What::Slow { .. }, Real::Nginx) if !matches!(fault.target, Struck::Server(_)) => {
            "slow needs the number of one server when cluster.real = nginx"
        }
        _ => return Ok(()),
    };
    anyhow::bail!("faults: at {:?}: {problem}", fault.at)
}

fn run_policy(
    scenario: &Scenario,
    policy: &str,
    seed: u64,
    live: &mut Live,
) -> anyhow::Result<Run> {
    let simulated = evenkeel_sim::run(scenario, policy, seed);
    let service = Service::start(scenario, seed)?;
    let process = Process::start(proxy_config(scenario, policy, service.replicas())?)?;
    let url = format!("http://{}/item/{{n}}", process.listens()[0]);

    let mut load = Load::new(Target::new([url.as_str()])?, Arrivals::poisson(scenario.rate())?);
    policy.clone_into(&mut load.plan.policy);
    load.plan.seed = seed;
    load.plan.requests_max = Some(scenario.workload.requests);
    let body_of = service.body_of();
    load.expectation = Expectation::Computed(Box::new(move |facts| body_of(facts.path).into()));
    let cpu_before = process.upstreams().cpu();
    live.begin(policy, process.admin());
    let outcome: Outcome = load.run(&Stop::new(), |progress| {
        live.show(progress, &process.upstreams().stats(0));
    })?;
    std::thread::sleep(Duration::from_millis(250)); // the workers' last report
    let cpu = process.upstreams().cpu().saturating_sub(cpu_before);
    let requests = outcome.report.requests.max(1) as f64;
    let hedges = process.upstreams().stats(0).total.hedges as f64;
    process.stop()?;
    Ok(Run {
        measured: outcome.report,
        proxy_cpu_us_per_request: cpu.as_secs_f64() * 1e6 / requests,
        hedged_share: hedges / requests,
        simulated,
    })
}

/// What stands behind the proxy.
enum Service {
    Embedded(Embedded),
    /// nginx servers, and the agents before them.
    Nginx(#[expect(dead_code, reason = "dropping it ends the servers")] Nginx, Box<Process>),
}

impl Service {
    fn start(scenario: &Scenario, seed: u64) -> anyhow::Result<Self> {
        match scenario.cluster.real {
            Real::Embedded => Ok(Self::Embedded(Embedded::start(embedded_config(scenario, seed))?)),
            Real::Shop => anyhow::bail!("shops are started by the demo of brownout"),
            Real::Nginx => {
                let servers = Nginx::start(nginx_config(scenario, seed)?)?;
                let agents = Process::start(agents_config(servers.addresses()))?;
                Ok(Self::Nginx(servers, Box::new(agents)))
            }
        }
    }

    fn replicas(&self) -> &[SocketAddr] {
        match self {
            Self::Embedded(service) => service.addresses(),
            Self::Nginx(_, agents) => agents.agents(),
        }
    }

    /// What each path must be answered with, byte for byte.
    const fn body_of(&self) -> fn(&str) -> String {
        match self {
            Self::Embedded(_) => embedded::body_of,
            Self::Nginx(..) => nginx::body_of,
        }
    }
}

fn find_nginx() -> anyhow::Result<PathBuf> {
    nginx::find().context(
        "cluster.real: no nginx found in PATH or /usr/sbin (Debian: apt-get install nginx-light)",
    )
}

fn nginx_config(scenario: &Scenario, seed: u64) -> anyhow::Result<NginxConfig> {
    let binary = find_nginx()?;
    let slots = f64::from(scenario.cluster.concurrency);
    let limit = |server| {
        let slowed = scenario.faults.iter().find_map(|fault| match fault.what {
            What::Slow { factor } if fault.target == Struck::Server(server) => Some(factor),
            _ => None,
        })?;
        Some(slots / (scenario.cluster.service_mean.as_secs_f64() * slowed))
    };
    Ok(NginxConfig {
        binary,
        directory: std::env::temp_dir().join(format!("evenkeel-demo-{}", std::process::id())),
        rate_limits: (0..scenario.cluster.servers).map(limit).collect(),
        apps: Vec::new(),
        mishaps: mishaps(scenario, seed),
        seed,
    })
}

/// An agent beside every server.
fn agents_config(apps: &[SocketAddr]) -> Config {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let agent = |&app| AgentConfig {
        address: any_port,
        app,
        concurrency: None,
        queue_max: 10_000,
        queue_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(60),
        dimmer: None,
        limits: server_limits(),
        upstream_limits: upstream_limits(),
        tls: None,
        app_tls: None,
    };
    Config {
        process: ProcessConfig {
            workers: 1,
            drain: Duration::from_secs(1),
            buffers_max: BYTES_MAX,
            resolvers: Vec::new(),
            hand_over: None,
        },
        listens: Vec::new(),
        upstreams: Vec::new(),
        agents: apps.iter().map(agent).map(agent_entry).collect(),
        admin: None,
        log: LogConfig::default(),
        traces: None,
        redirect: None,
        envoy: None,
        placement: None,
        duplicates: Vec::new(),
        source: Source::default(),
    }
}

/// An agent before an application that speaks HTTP.
const fn agent_entry(common: AgentConfig) -> AgentEntry {
    AgentEntry { common, protocol: Protocol::Http }
}

/// The scenario's faults, as what really happens.
fn mishaps(scenario: &Scenario, seed: u64) -> Vec<Mishap> {
    let servers = scenario.cluster.servers;
    let mut rng = Rng::stream(seed, "whom faults strike");
    let mut mishap = |fault: &Fault| {
        let what = match fault.what {
            What::Pause { shortest, longest } => fault::What::Pause(shortest, longest),
            What::Slow { factor } => fault::What::Slow(factor),
            What::Fail { share } => fault::What::Fail(share),
            What::Crash => fault::What::Crash,
            // Refused when the scenario was read.
            What::Restore | What::Hang { .. } | What::Break { .. } | What::Stall { .. } => {
                return None;
            }
        };
        let (replica, every) = match fault.target {
            Struck::Server(number) => (Some(number), fault.every),
            Struck::Random if fault.every.is_zero() => (Some(rng.below(servers)), fault.every),
            // Random times at random replicas: at each of them as much rarer as there are many.
            Struck::Random => (None, fault.every.saturating_mul(servers as u32)),
            Struck::Each => (None, fault.every),
        };
        Some(Mishap { at: fault.at, every, replica, what })
    };
    scenario.faults.iter().filter_map(&mut mishap).collect()
}

/// The scenario's replicas, as the embedded service makes them.
fn embedded_config(scenario: &Scenario, seed: u64) -> EmbeddedConfig {
    EmbeddedConfig {
        replicas: scenario.cluster.servers,
        concurrency: scenario.cluster.concurrency,
        agents: true,
        service_mean: scenario.cluster.service_mean,
        fluctuation_interval: scenario.fluctuation.interval,
        fluctuation_range: scenario.fluctuation.range,
        mishaps: mishaps(scenario, seed),
        seed,
    }
}

/// A proxy with one worker before these replicas.
fn proxy_config(
    scenario: &Scenario,
    policy: &str,
    replicas: &[SocketAddr],
) -> anyhow::Result<Config> {
    let spelling = Spelling::of(policy);
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let safeguards = scenario.safeguards();
    let upstream = UpstreamConfig {
        name: "demo".to_owned(),
        replicas: replicas.to_vec(),
        sources: Vec::new(),
        is_discovered: false,
        sites: Vec::new(),
        split: None,
        policy: spelling.policy.parse()?,
        proxies: 1,
        timeouts: Timeouts { attempt: Duration::from_secs(15), total: Duration::from_secs(30) },
        retries_max: scenario.run.retries_max,
        retry_budget: Budget::of_retries(0.2),
        replay_bytes_max: 64 * 1024,
        hedge: spelling.hedge(&scenario.run.hedge),
        safeguards,
        held_max: 10_000,
        health: None,
        operations: None,
        limits: upstream_limits(),
        tls: None,
    };
    let listen = ListenConfig {
        tls: None,
        address: any_port.into(),
        upstream: 0,
        routes: Vec::new(),
        proxy_protocol: Networks::NONE,
        limits: server_limits(),
        http: HttpListenConfig::default(),
    };
    Ok(Config {
        process: ProcessConfig {
            workers: 1,
            drain: Duration::from_secs(1),
            buffers_max: BYTES_MAX,
            resolvers: Vec::new(),
            hand_over: None,
        },
        listens: vec![listen],
        upstreams: vec![UpstreamEntry { common: upstream, cql: None }],
        agents: Vec::new(),
        admin: Some(AdminConfig::open(any_port)),
        log: LogConfig::default(),
        traces: None,
        redirect: None,
        envoy: None,
        placement: None,
        duplicates: Vec::new(),
        source: Source::default(),
    })
}

const MINUTE: Duration = Duration::from_secs(60);

fn upstream_limits() -> UpstreamLimits {
    UpstreamLimits {
        connect: Duration::from_secs(1),
        connections_max: 10_000,
        idle_connections_max: 1_000,
        idle: MINUTE,
        head_bytes_max: 16 * 1024,
        body: BodyLimits::DEFAULT,
        http2: Http2::Auto,
    }
}

fn server_limits() -> ServerLimits {
    ServerLimits {
        head_bytes_max: 16 * 1024,
        body_bytes_max: 1024 * 1024,
        connections_max: 10_000,
        head: MINUTE,
        idle: MINUTE,
        write: MINUTE,
        drain: Duration::from_secs(1),
    }
}

fn closing_words(scenario: &Scenario, runs: &[Run]) -> String {
    let mut table = Table::of(
        "policy | p50 ms | p95 | p99 | p99.9 | served | hedged | CPU us/req | simulated p99 | \
         p99.9",
    );
    for run in runs {
        let measured = &run.measured;
        let late = &measured.latency;
        let quantiles = [late.p50_ms, late.p95_ms, late.p99_ms, late.p999_ms];
        let mut cells = vec![measured.policy.clone()];
        cells.extend(quantiles.map(ms_if_known));
        cells.push(format!("{}/{}", measured.served, measured.requests));
        cells.push(format!("{:.1} %", run.hedged_share * 100.0));
        cells.push(format!("{:.1}", run.proxy_cpu_us_per_request));
        cells.extend([run.simulated.p99_ms, run.simulated.p999_ms].map(ms));
        table.row(cells);
    }
    let late: Vec<_> = runs.iter().filter_map(|run| run.measured.doubt()).collect();
    let doubt = late.first().map_or_else(String::new, |doubt| format!("\nNote: {doubt}\n"));
    format!(
        "{} replicas, {:.0} requests/s, the same arrivals and the same faults for every policy.\n\
         The last two columns are the simulator's results for the same scenario, with the same \
         decision code.\n\n{table}{doubt}",
        scenario.cluster.servers,
        scenario.rate(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(sets: &[&str]) -> anyhow::Result<Scenario> {
        let set = sets.iter().map(ToString::to_string).collect();
        load_scenario(&DemoArguments { scenario: "demo".into(), set, seed: 1, json: false })
    }

    #[test]
    fn what_cannot_be_done_to_the_replicas_is_refused() {
        for (sets, word) in [
            (["faults=[{at = '1s', crash = 0}]", "run.warmup=0"], "a crash needs"),
            (["faults=[{at = '1s', restore = 0}]", "run.warmup=0"], "a restore is for"),
            (["faults=[{at = '1s', hang = 0}]", "run.warmup=0"], "are for `evenkeel sim`"),
            (["faults=[{at = '1s', fail = 0}]", "cluster.real='nginx'"], "fail needs"),
        ] {
            let error = load(&sets).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }

    #[test]
    fn built_in_scenarios_are_sound_and_unknown_names_are_told_them() {
        for (name, ..) in BUILT_IN {
            let arguments =
                DemoArguments { scenario: name.into(), set: Vec::new(), seed: 1, json: false };
            load_scenario(&arguments).unwrap();
        }
        let error = open_scenario(Path::new("brownuot")).unwrap_err().to_string();
        assert!(
            error.contains("brownuot") && error.contains("demo, brownout, redirect"),
            "{error}"
        );
        let error = open_scenario(Path::new("none.toml")).unwrap_err().to_string();
        assert!(error.contains("none.toml") && !error.contains("one of"), "{error}");
    }

    #[test]
    fn faults_at_random_strike_as_often_as_in_the_simulator() {
        let often = "faults=[{at = '0s', every = '2s', pause = 'random', for = '5ms'}]";
        let [often] = mishaps(&load(&[often]).unwrap(), 1)[..] else { panic!("one fault") };
        // Five replicas, each every 10 s, are one every 2 s.
        assert_eq!((often.replica, often.every), (None, Duration::from_secs(10)));
        let once = load(&["faults=[{at = '1s', pause = 'random', for = '5ms'}]"]).unwrap();
        let struck = |seed| mishaps(&once, seed)[0].replica.expect("one replica only");
        let struck: std::collections::BTreeSet<_> = (0..50).map(struck).collect();
        assert_eq!(struck.len(), 5, "each can be the one");
    }
}
