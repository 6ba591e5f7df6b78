//! `evenkeel demo`: a scenario on real sockets, policy after policy, with the simulator's word
//! beside each measurement.

mod brownout;
mod course;
mod ground;
mod redirect;
mod shop;
mod shops;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_core::Instant;
use evenkeel_core::request::redundancy::Budget;
use evenkeel_http_proxy::config::{AgentConfig, HttpListenConfig};
use evenkeel_load::{Arrivals, Expectation, Load, Outcome, Stop, Target};
use evenkeel_proxy::config::{Timeouts, UpstreamConfig};
use evenkeel_runtime::buffers::BYTES_MAX;
use evenkeel_runtime::limits::{Engine, ServerLimits};
use evenkeel_runtime::networks::Networks;
use evenkeel_server::config::{
    AdminConfig, AgentEntry, Config, ListenConfig, LogConfig, ProcessConfig, Protocol, Source,
    UpstreamEntry,
};
use evenkeel_server::process::Process;
use evenkeel_settings::Node;
use evenkeel_sim::fault::{Fault, Target as Struck, What};
use evenkeel_sim::scenario::{Real, Spelling};
use evenkeel_sim::weather::{Effect, RequestDraws, Strike, Weather};
use evenkeel_sim::{RunReport, Scenario};
use evenkeel_testkit::embedded::{self, Draw, Draws, Embedded, EmbeddedConfig, UPSTREAM_LIMITS};
use evenkeel_testkit::fault::{self, Mishap};
use evenkeel_testkit::nginx::{self, Nginx, NginxConfig};
use serde::Serialize;

use crate::live::Live;
use crate::output;
use crate::terminal::{Table, ms, ms_if_known};

/// The built-in scenarios: name, file, text.
const BUILT_IN: [(&str, &str, &str); 4] = [
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
    ("day", "scenarios/day.toml", include_str!("../../../../scenarios/day.toml")),
];

/// Compare policies on a replicated service on loopback sockets.
///
/// Starts replicas, sends the same load through the proxy with one policy after the other, and
/// prints a table. `demo`: embedded replicas with varying speed. `brownout`: five shops, of which
/// two are killed; exit 1 if brownout serves fewer than 99 %. `redirect`: three data centres, one
/// overloaded, one disconnected at the end; exit 1 if they had different plans. `day`: a spike, a
/// crash and a distant overload in two minutes, everything off beside everything on; exit 1 if a
/// request fails, if more than half as many are late, or if the simulator foretold something else.
/// Example: evenkeel demo brownout
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArguments {
    /// A built-in scenario (demo, brownout, redirect or day) or the file of a scenario.
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
    anyhow::ensure!(scenario.tiers.is_empty(), "tiers: they run in `evenkeel sim` only");
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
    anyhow::ensure!(
        scenario.cluster.agents
            || (scenario.cluster.real != Real::Shop && scenario.geography.is_none()),
        "cluster.agents: without agents there are demos of slots only, such as `evenkeel demo`"
    );
    if scenario.geography.is_some() && scenario.work.is_some() {
        ensure_playable(&scenario)?; // the story of sites says what else it cannot do
    } else if scenario.cluster.real != Real::Shop {
        ensure_slots(&scenario)?;
        ensure_playable(&scenario)?;
        scenario.faults.iter().try_for_each(|fault| ensure_real(fault, scenario.cluster.real))?;
        anyhow::ensure!(
            scenario.cluster.real == Real::Embedded || scenario.fluctuation.interval.is_zero(),
            "fluctuation.interval: nginx servers are as fast as they are: leave it out"
        );
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
    let mut counted_from_the_start = scenario.clone(); // as the load is
    counted_from_the_start.run.warmup = 0.0;
    let simulated = evenkeel_sim::run(&counted_from_the_start, policy, seed);
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
    service.begin();
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
    /// nginx servers, and the agents before them where there are any.
    Nginx(Nginx, Option<Box<Process>>),
}

impl Service {
    fn start(scenario: &Scenario, seed: u64) -> anyhow::Result<Self> {
        match scenario.cluster.real {
            Real::Embedded => {
                let draws = draws(scenario, seed);
                let config = embedded_config(scenario, scenario.cluster.servers, draws);
                let config =
                    EmbeddedConfig { mishaps: mishaps(scenario, seed).collect(), ..config };
                Ok(Self::Embedded(Embedded::start(config)?))
            }
            Real::Shop => anyhow::bail!("shops are started by the demo of brownout"),
            Real::Nginx => {
                let servers = Nginx::start(nginx_config(scenario, seed)?)?;
                let start = || Process::start(agents_config(servers.addresses())).map(Box::new);
                let agents = scenario.cluster.agents.then(start).transpose()?;
                Ok(Self::Nginx(servers, agents))
            }
        }
    }

    /// Begins the plan of what befalls them.
    fn begin(&self) {
        match self {
            Self::Embedded(service) => service.begin(),
            Self::Nginx(servers, _) => servers.begin(),
        }
    }

    fn replicas(&self) -> &[SocketAddr] {
        match self {
            Self::Embedded(service) => service.addresses(),
            Self::Nginx(servers, None) => servers.addresses(),
            Self::Nginx(_, Some(agents)) => agents.agents(),
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
        mishaps: mishaps(scenario, seed).collect(),
    })
}

/// An agent beside every server.
fn agents_config(apps: &[SocketAddr]) -> Config {
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let agent = |&app: &SocketAddr| AgentConfig {
        address: any_port,
        app: app.into(),
        concurrency: None,
        queue_max: 10_000,
        queue_timeout: Duration::from_secs(60),
        timeout: Duration::from_secs(60),
        dimmer: None,
        udp_probes: true,
        limits: SERVER_LIMITS,
        upstream_limits: UPSTREAM_LIMITS,
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
            engine: Engine::default(),
        },
        listens: Vec::new(),
        upstreams: Vec::new(),
        agents: apps.iter().map(agent).map(agent_entry).collect(),
        admin: None,
        log: LogConfig::default(),
        traces: None,
        record: None,
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

/// Twice as long as the run should take, and a minute: who is late meets weather too.
fn horizon(scenario: &Scenario) -> Instant {
    let expected_s = scenario.workload.requests as f64 / scenario.rate();
    Instant::ZERO + Duration::from_secs_f64(2.0 * expected_s) + Duration::from_secs(60)
}

/// What is drawn for each request, and what befalls replicas, is kept while a policy runs.
fn ensure_playable(scenario: &Scenario) -> anyhow::Result<()> {
    let requests = scenario.workload.requests;
    let length_s = requests as f64 / scenario.rate();
    anyhow::ensure!(
        requests <= REQUESTS_MAX && length_s <= LENGTH_S_MAX,
        "workload: {requests} requests in {length_s:.0} s; a demo has at most {REQUESTS_MAX} \
         requests in at most {LENGTH_S_MAX} s for each policy (`evenkeel sim` has no clock)"
    );
    let mishaps = mishaps(scenario, 1).take(MISHAPS_MAX + 1).count();
    anyhow::ensure!(
        mishaps <= MISHAPS_MAX,
        "fluctuation.interval and faults.every: more than {MISHAPS_MAX} changes in the demo; \
         servers on sockets cannot follow them: make them longer"
    );
    Ok(())
}

const REQUESTS_MAX: u64 = 10_000_000;
const LENGTH_S_MAX: f64 = 86_400.0;
const MISHAPS_MAX: usize = 1_000_000;

/// The simulator's weather, as what really happens.
fn mishaps(scenario: &Scenario, seed: u64) -> impl Iterator<Item = Mishap> {
    let until = horizon(scenario);
    let happens = |Strike { at, server, effect }| {
        let what = match effect {
            Effect::Speed(factor) => fault::What::Speed(factor),
            Effect::Pause(length) => fault::What::Pause(length),
            Effect::Fault(What::Slow { factor }) => fault::What::Slow(factor),
            Effect::Fault(What::Fail { share }) => fault::What::Fail(share),
            Effect::Fault(What::Crash) => fault::What::Crash,
            Effect::Fault(What::Restore) => fault::What::Restore,
            Effect::Fault(_) => return None, // refused when the scenario was read
        };
        Some(Mishap { at: at.since(Instant::ZERO), replica: server, what })
    };
    let weather = Weather::new(scenario, seed).take_while(move |strike| strike.at < until);
    weather.filter_map(happens)
}

/// What the simulator's requests cost, by the number in their path; a second copy costs what the
/// second does there.
fn draws(scenario: &Scenario, seed: u64) -> Draws {
    let requests = RequestDraws::new(scenario, seed);
    let seen: Vec<_> = (0..scenario.workload.requests).map(|_| AtomicU32::new(0)).collect();
    Draws::by(move |path, _| {
        let number = path.rsplit('/').next().and_then(|number| number.parse().ok());
        let copies = number.and_then(|number: u64| seen.get(number as usize));
        let copy = copies.map_or(0, |copies| copies.fetch_add(1, Ordering::Relaxed));
        let (work, luck) = number.and_then(|it| requests.of(it, copy)).unwrap_or((1.0, 1.0));
        Draw { work, lean: None, luck }
    })
}

/// The scenario's replicas, as the embedded service makes them.
fn embedded_config(scenario: &Scenario, replicas: usize, draws: Draws) -> EmbeddedConfig {
    EmbeddedConfig {
        replicas,
        concurrency: scenario.cluster.concurrency,
        agents: scenario.cluster.agents,
        service_mean: scenario.cluster.service_mean,
        mishaps: Vec::new(),
        draws,
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
        replicas: replicas.iter().map(|&it| it.into()).collect(),
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
        limits: UPSTREAM_LIMITS,
        tls: None,
    };
    let listen = ListenConfig {
        tls: None,
        address: any_port.into(),
        upstream: 0,
        routes: Vec::new(),
        proxy_protocol: Networks::NONE,
        limits: SERVER_LIMITS,
        http: HttpListenConfig::default(),
    };
    Ok(Config {
        process: ProcessConfig {
            workers: 1,
            drain: Duration::from_secs(1),
            buffers_max: BYTES_MAX,
            resolvers: Vec::new(),
            hand_over: None,
            engine: Engine::default(),
        },
        listens: vec![listen],
        upstreams: vec![UpstreamEntry { common: upstream, cql: None }],
        agents: Vec::new(),
        admin: Some(AdminConfig::open(any_port)),
        log: LogConfig::default(),
        traces: None,
        record: None,
        redirect: None,
        envoy: None,
        placement: None,
        duplicates: Vec::new(),
        source: Source::default(),
    })
}

const SERVER_LIMITS: ServerLimits =
    ServerLimits { drain: Duration::from_secs(1), ..embedded::LIMITS };

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
            (["faults=[]", "cluster.real='nginx'"], "leave it out"),
            (["workload.requests=20_000_000", "run.warmup=0"], "at most 10000000 requests"),
            (["workload.utilisation=0.001", "workload.requests=5_000_000"], "at most 86400 s"),
            (["fluctuation.interval='10us'", "run.warmup=0"], "more than 1000000 changes"),
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
            error.contains("brownuot") && error.contains("demo, brownout, redirect, day"),
            "{error}"
        );
        let error = open_scenario(Path::new("none.toml")).unwrap_err().to_string();
        assert!(error.contains("none.toml") && !error.contains("one of"), "{error}");
    }

    #[test]
    fn the_demo_has_the_weather_and_the_requests_of_the_simulator() {
        let scenario = load(&[]).unwrap();
        let there = Weather::new(&scenario, 7);
        let here: Vec<_> = mishaps(&scenario, 7).collect();
        assert!(here.len() > 100, "{}", here.len());
        for (strike, mishap) in there.zip(&here) {
            assert_eq!(strike.at.since(Instant::ZERO), mishap.at);
            assert_eq!(strike.server, mishap.replica);
        }
        let (draws, requests) = (draws(&scenario, 7), RequestDraws::new(&scenario, 7));
        for number in [0, 13_999] {
            for copy in 0..2 {
                let path = format!("/item/{number}");
                let Draw { work, luck, .. } = draws.draw(&path, copy as usize);
                assert_eq!(Some((work, luck)), requests.of(number, copy), "whichever replica");
            }
        }
    }
}
