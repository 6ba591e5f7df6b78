//! The driver's default policy, the adaptive one, and the driver through a proxy, in turns in one
//! process, with the same requests at the same times and the same pauses.
//!
//! ```text
//! cargo run --release -p evenkeel-scylla --features driver --example compare -- \
//!     node=127.0.0.1:9042 proxy=127.0.0.1:9142 rate=500 seconds=20 updates=0.05 pause=PID,PID
//! ```
//!
//! Requests come whether earlier ones are answered or not (open loop) and their latency counts from
//! when they should have been sent. The first round warms up and is not counted. A process that is
//! paused gets SIGSTOP for 50 to 200 ms about once a second; interrupted in such a moment, it stays
//! stopped until `kill -CONT`.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_core::Rng;
use evenkeel_scylla::AdaptivePolicy;
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::load_balancing::LoadBalancingPolicy;
use scylla::statement::Consistency;
use scylla::statement::prepared::PreparedStatement;

type Problem = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "flags: node=ADDRESS[,ADDRESS] proxy=ADDRESS policy=c3 rate=500 (requests/s) \
    seconds=20 rounds=3 updates=0.05 (share) keys=10000 bytes=100 pause=PID[,PID] seed=1 \
    consistency=ONE|LOCAL_ONE|QUORUM|LOCAL_QUORUM";

#[derive(Clone, Debug)]
struct Flags {
    nodes: Vec<String>,
    proxy: Option<String>,
    policy: String,
    rate: f64,
    seconds: f64,
    rounds: usize,
    updates: f64,
    keys: usize,
    bytes: usize,
    pause: Vec<i32>,
    seed: u64,
    consistency: Consistency,
}

impl Flags {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Problem> {
        let mut flags = Self {
            nodes: vec!["127.0.0.1:9042".to_owned()],
            proxy: None,
            policy: "c3".to_owned(),
            rate: 500.0,
            seconds: 20.0,
            rounds: 3,
            updates: 0.05,
            keys: 10_000,
            bytes: 100,
            pause: Vec::new(),
            seed: 1,
            consistency: Consistency::One,
        };
        for argument in arguments {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            flags.set(name, value).map_err(|why| format!("\"{argument}\": {why}\n{USAGE}"))?;
        }
        Ok(flags)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Problem> {
        match name {
            "node" => self.nodes = value.split(',').map(str::to_owned).collect(),
            "proxy" => self.proxy = Some(value.to_owned()),
            "policy" => value.clone_into(&mut self.policy),
            "rate" => self.rate = value.parse()?,
            "seconds" => self.seconds = value.parse()?,
            "rounds" => self.rounds = value.parse()?,
            "updates" => self.updates = value.parse()?,
            "keys" => self.keys = value.parse()?,
            "bytes" => self.bytes = value.parse()?,
            "pause" => self.pause = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "seed" => self.seed = value.parse()?,
            "consistency" => {
                self.consistency = match value {
                    "ONE" => Consistency::One,
                    "LOCAL_ONE" => Consistency::LocalOne,
                    "QUORUM" => Consistency::Quorum,
                    "LOCAL_QUORUM" => Consistency::LocalQuorum,
                    _ => return Err("no such consistency level here".into()),
                }
            }
            _ => return Err("there is no such flag".into()),
        }
        Ok(())
    }
}

/// One way to the cluster, and what came of it.
struct Way {
    name: String,
    session: Arc<Session>,
    read: PreparedStatement,
    write: PreparedStatement,
    policy: Option<Arc<AdaptivePolicy>>,
    latencies_us: Vec<u64>,
    errors: u64,
    elapsed: Duration,
    cpu: Duration,
}

async fn connect(
    nodes: &[String],
    flags: &Flags,
    policy: Option<Arc<dyn LoadBalancingPolicy>>,
) -> Result<Session, Problem> {
    let profile = ExecutionProfile::builder()
        .consistency(flags.consistency)
        .request_timeout(Some(Duration::from_secs(5)));
    let profile = match policy {
        Some(policy) => profile.load_balancing_policy(policy),
        None => profile,
    };
    let session = SessionBuilder::new()
        .known_nodes(nodes)
        .default_execution_profile_handle(profile.build().into_handle());
    Ok(session.build().await?)
}

impl Way {
    async fn new(
        name: String,
        session: Session,
        policy: Option<Arc<AdaptivePolicy>>,
    ) -> Result<Self, Problem> {
        let read = "select value from evenkeel_compare.records where id = ?";
        let write = "insert into evenkeel_compare.records (id, value) values (?, ?)";
        let mut read = session.prepare(read).await?;
        let mut write = session.prepare(write).await?;
        read.set_is_idempotent(true);
        write.set_is_idempotent(true);
        let session = Arc::new(session);
        let (latencies_us, elapsed, cpu) = (Vec::new(), Duration::ZERO, Duration::ZERO);
        Ok(Self { name, session, read, write, policy, latencies_us, errors: 0, elapsed, cpu })
    }
}

/// Makes the records, in each data centre on as many nodes as it has, at most three.
async fn fill(session: &Session, flags: &Flags) -> Result<(), Problem> {
    let mut nodes = BTreeMap::new();
    for node in session.get_cluster_state().get_nodes_info() {
        *nodes.entry(node.datacenter.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    let factors: Vec<_> =
        nodes.iter().map(|(name, n)| format!("'{name}': {}", 3.min(*n))).collect();
    let keyspace = format!(
        "create keyspace if not exists evenkeel_compare with replication = \
         {{'class': 'NetworkTopologyStrategy', {}}}",
        factors.join(", ")
    );
    session.query_unpaged(keyspace, ()).await?;
    let table = "create table if not exists evenkeel_compare.records \
                 (id bigint primary key, value blob) with speculative_retry = 'NEVER'";
    session.query_unpaged(table, ()).await?;
    session.await_schema_agreement().await?;
    let insert = "insert into evenkeel_compare.records (id, value) values (?, ?)";
    let mut insert = session.prepare(insert).await?;
    insert.set_consistency(Consistency::All);
    let value = vec![7_u8; flags.bytes];
    for id in 0..flags.keys as i64 {
        session.execute_unpaged(&insert, (id, &value)).await?;
    }
    Ok(())
}

/// What the requests of a turn have in common.
#[derive(Default)]
struct Turn {
    latencies_us: Mutex<Vec<u64>>,
    errors: AtomicU64,
}

async fn ask(way: Asking, turn: Arc<Turn>, key: i64, value: Option<Arc<[u8]>>, due: Instant) {
    let answered = match value {
        None => way.session.execute_unpaged(&way.read, (key,)).await,
        Some(value) => way.session.execute_unpaged(&way.write, (key, &*value)).await,
    };
    let latency_us = due.elapsed().as_micros() as u64;
    match answered {
        Ok(_) => turn.latencies_us.lock().expect("nobody panics with it").push(latency_us),
        Err(_) => _ = turn.errors.fetch_add(1, Relaxed),
    }
}

/// What one request needs of its way.
#[derive(Clone)]
struct Asking {
    session: Arc<Session>,
    read: PreparedStatement,
    write: PreparedStatement,
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sends the requests of one turn from a thread of its own: a runtime's timers are too coarse.
fn send_all(
    way: &Asking,
    flags: &Flags,
    turn: &Arc<Turn>,
    seed: u64,
) -> Vec<tokio::task::JoinHandle<()>> {
    let runtime = tokio::runtime::Handle::current();
    let mut rng = Rng::seeded(seed);
    let value: Arc<[u8]> = vec![7; flags.bytes].into();
    let begin = Instant::now();
    let mut at_s = 0.0;
    let mut asked = Vec::with_capacity((flags.rate * flags.seconds) as usize);
    loop {
        at_s -= (1.0 - rng.unit()).ln() / flags.rate;
        if at_s > flags.seconds {
            return asked;
        }
        let due = begin + Duration::from_secs_f64(at_s);
        let key = rng.below(flags.keys) as i64;
        let written = (rng.unit() < flags.updates).then(|| Arc::clone(&value));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        asked.push(runtime.spawn(ask(way.clone(), Arc::clone(turn), key, written, due)));
    }
}

/// Pauses processes at the same times in every turn of a round.
fn pause(processes: &[Pid], seed: u64, is_over: &AtomicBool) {
    let mut rng = Rng::seeded(seed);
    while !is_over.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(500 + rng.below(1_000) as u64));
        let length = Duration::from_millis(50 + rng.below(151) as u64);
        let process = processes[rng.below(processes.len())];
        let _ = kill_process(process, Signal::STOP);
        std::thread::sleep(length);
        let _ = kill_process(process, Signal::CONT);
    }
}

async fn take_turn(way: &mut Way, flags: &Flags, round: usize) -> Result<(), Problem> {
    let seed = flags.seed.wrapping_mul(1_000).wrapping_add(round as u64);
    let turn = Arc::new(Turn::default());
    let is_over = Arc::new(AtomicBool::new(false));
    let processes: Vec<_> = flags.pause.iter().filter_map(|&id| Pid::from_raw(id)).collect();
    let pauser = (!processes.is_empty()).then(|| {
        let is_over = Arc::clone(&is_over);
        std::thread::spawn(move || pause(&processes, seed, &is_over))
    });
    let (cpu, began) = (cpu_time(), Instant::now());
    let asking = Asking {
        session: Arc::clone(&way.session),
        read: way.read.clone(),
        write: way.write.clone(),
    };
    let sending = tokio::task::spawn_blocking({
        let (flags, turn) = (flags.clone(), Arc::clone(&turn));
        move || send_all(&asking, &flags, &turn, seed)
    });
    for asked in sending.await? {
        asked.await?;
    }
    let (cpu, elapsed) = (cpu_time() - cpu, began.elapsed());
    is_over.store(true, Relaxed);
    if let Some(pauser) = pauser {
        tokio::task::spawn_blocking(move || pauser.join()).await?.expect("it does not panic");
    }
    if round > 0 {
        way.latencies_us.append(&mut turn.latencies_us.lock().expect("nobody panics with it"));
        way.errors += turn.errors.load(Relaxed);
        way.elapsed += elapsed;
        way.cpu += cpu;
    }
    Ok(())
}

/// The least latency that so great a share of the requests did not exceed, in milliseconds.
fn quantile_ms(sorted_us: &[u64], share: f64) -> f64 {
    let rank = (sorted_us.len() as f64 * share).ceil() as usize;
    sorted_us.get(rank.saturating_sub(1)).map_or(f64::NAN, |&us| us as f64 / 1_000.0)
}

fn report(ways: &mut [Way]) {
    println!(
        "way                    answered/s   p50 ms   p99 ms p99.9 ms   errors  CPU us/request"
    );
    for way in &mut *ways {
        way.latencies_us.sort_unstable();
        let answered = way.latencies_us.len() as f64;
        println!(
            "{:<22} {:>10.1} {:>8.3} {:>8.3} {:>8.3} {:>8} {:>15.1}",
            way.name,
            answered / way.elapsed.as_secs_f64(),
            quantile_ms(&way.latencies_us, 0.5),
            quantile_ms(&way.latencies_us, 0.99),
            quantile_ms(&way.latencies_us, 0.999),
            way.errors,
            way.cpu.as_secs_f64() * 1e6 / answered,
        );
    }
    for way in &ways[1..] {
        let ratio = |share| {
            quantile_ms(&way.latencies_us, share) / quantile_ms(&ways[0].latencies_us, share)
        };
        let (median, tail) = (ratio(0.5), ratio(0.999));
        println!("{}: {median:.2} of the default's p50, {tail:.2} of its p99.9", way.name);
    }
    for way in &*ways {
        let Some(policy) = &way.policy else { continue };
        let state = way.session.get_cluster_state();
        let nodes = state.get_nodes_info().iter();
        let left: u32 = nodes.map(|node| policy.in_flight(node.host_id.as_u128())).sum();
        println!("{}: {:?}, {left} left in flight", way.name, policy.counts());
    }
}

async fn compare(flags: &Flags) -> Result<(), Problem> {
    let default = connect(&flags.nodes, flags, None).await?;
    fill(&default, flags).await?;
    let adaptive = AdaptivePolicy::builder().policy(&flags.policy).seed(flags.seed).build()?;
    let session = connect(&flags.nodes, flags, Some(adaptive.clone())).await?;
    let mut ways = vec![
        Way::new("driver's default".to_owned(), default, None).await?,
        Way::new(adaptive.name(), session, Some(adaptive)).await?,
    ];
    if let Some(proxy) = &flags.proxy {
        let session = connect(std::slice::from_ref(proxy), flags, None).await?;
        ways.push(Way::new("through the proxy".to_owned(), session, None).await?);
    }
    for round in 0..=flags.rounds {
        for turn in 0..ways.len() {
            let place = (turn + round) % ways.len(); // none is always first
            take_turn(&mut ways[place], flags, round).await?;
        }
    }
    report(&mut ways);
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let compared = match Flags::read(std::env::args().skip(1)) {
        Ok(flags) => compare(&flags).await,
        Err(problem) => Err(problem),
    };
    match compared {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("compare: {problem}");
            ExitCode::FAILURE
        }
    }
}
