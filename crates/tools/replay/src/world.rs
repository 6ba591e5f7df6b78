//! A rebuilt world as a scenario of the simulator: the same dispatchers, other requests.

use std::sync::Arc;

use evenkeel_core::{Duration, Instant, Rng};
use evenkeel_sim::Scenario;
use evenkeel_sim::scenario::{Arrivals, Fluctuation, Replica, Work};
use evenkeel_sim::script::{Arrival, Effect, Script, Strike};
use evenkeel_twin::Twin;
use evenkeel_twin::twin::Request;

use crate::share::Share;

/// Neighbours among which works are dealt anew for all twins but the first.
const NEIGHBOURS: usize = 16;
/// Works of a table: it is looked into for every request, so it should stay near the core. Two
/// neighbours differ by less than a thousandth of the logarithm's deviation.
const WORKS: usize = 1 << 14;
/// Speeds relate to this service time: any would do.
const BASE: Duration = Duration::from_millis(1);

/// Twins with works dealt anew.
pub const TWINS: u64 = 8;
/// Days of up to so many requests are played by every world from beginning to end: some sixteen
/// seconds of CPU for backtest and answer.
pub const WHOLE_MAX: usize = 1_000_000;

/// How a day is replayed.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// What is known of the proxy.
    pub like: &'a Scenario,
    /// The day's policy.
    pub recorded: &'a str,
    /// The policy that was explored, if any.
    pub explored: Option<&'a str>,
    /// Share of requests that were sent to two replicas.
    pub pairs: f64,
    /// Days of more requests are dealt among the worlds.
    pub whole_max: usize,
}

/// What is changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The policy, as scenarios spell it: `c3+hedge`.
    pub policy: String,
    /// Replicas that are left out, from the last one.
    pub fewer: usize,
    /// The load as a multiple of the day's: 0.1 to 10.
    pub load: f64,
}

impl Change {
    /// Another policy, or the same.
    pub fn policy(name: &str) -> Self {
        Self { policy: name.to_owned(), fewer: 0, load: 1.0 }
    }
}

/// Whether content is left out in the world of a day, by a dimmer that is known.
pub(crate) fn dims(twin: &Twin, like: &Scenario) -> bool {
    twin.content.is_some() && like.dimmer.is_some()
}

/// The world of a whole day as a scenario. `like` is what is known of the proxy: hedges, retries,
/// safeguards, clients. `number` 0 has the works as they were; others deal them anew among
/// neighbours. With `explores`, other policies decide where they did.
pub fn scenario(
    twin: &Twin,
    like: &Scenario,
    change: &Change,
    number: u64,
    explores: bool,
) -> Scenario {
    scenario_of(twin, like, change, &Share::whole(), number, explores)
}

/// The same of a part of the day.
pub(crate) fn scenario_of(
    twin: &Twin,
    like: &Scenario,
    change: &Change,
    share: &Share,
    number: u64,
    explores: bool,
) -> Scenario {
    let mut scenario = like.clone();
    let replicas = twin.pauses.len().saturating_sub(change.fewer).max(1);
    let requests = requests(twin, share, change.load, number, explores);
    let cluster = &mut scenario.cluster;
    cluster.replication_factor = cluster.replication_factor.min(replicas);
    cluster.servers = replicas;
    cluster.concurrency = twin.slots;
    cluster.service_mean = BASE;
    (cluster.service_cv, cluster.service_law) = (1.0, None);
    (cluster.work_shared, cluster.same_work, cluster.racks) = (0.0, false, 0);
    scenario.fluctuation = Fluctuation { interval: Duration::ZERO, range: 1.0, by_rack: false };
    scenario.faults = Vec::new();
    if dims(twin, like) {
        // So many cores as slots, and a request on each: the same, behind a dimmer.
        let replica = Replica { cores: twin.slots, speed: 1.0, workers: Some(twin.slots) };
        scenario.replicas = vec![replica; replicas];
        scenario.work = Some(Work::constant(BASE));
    } else {
        (scenario.replicas, scenario.work, scenario.dimmer) = (Vec::new(), None, None);
    }
    scenario.network.one_way = Duration::from_nanos(twin.network.one_way_ns as u64);
    scenario.network.jitter = Duration::from_nanos(twin.network.jitter_ns as u64);
    let workload = &mut scenario.workload;
    workload.requests = requests.len() as u64;
    workload.arrivals = Arrivals::Poisson;
    workload.phases = Vec::new();
    let clients = twin.requests.iter().map(|request| usize::from(request.client) + 1).max();
    workload.clients = clients.unwrap_or(1);
    let works = twin.works.table(WORKS).into();
    let lean = twin.content.as_ref().map_or(Vec::new(), |content| content.table(WORKS)).into();
    let correlation = twin.correlation.map_or(0.0, |estimate| estimate.value);
    let strikes = strikes(twin, share, replicas);
    scenario.script = Some(Arc::new(Script { requests, strikes, works, lean, correlation }));
    scenario
}

/// Speeds and pauses in the order of time.
fn strikes(twin: &Twin, share: &Share, replicas: usize) -> Vec<Strike> {
    let base_ns = BASE.as_nanos() as f64;
    let mut strikes = Vec::new();
    for server in 0..replicas {
        let mut last = f64::NAN;
        for (window, log) in twin.speeds.logs[server].iter().enumerate() {
            let width_ns = twin.speeds.width_ns;
            let from_ns = (window as u64).saturating_mul(width_ns);
            let from_ns = from_ns.saturating_add(twin.speeds.from_ns);
            let to_ns = from_ns.saturating_add(width_ns);
            if *log != last && share.meets(from_ns, to_ns) {
                let at = Instant::from_nanos(from_ns);
                strikes.push(Strike { at, server, effect: Effect::Speed(base_ns / log.exp()) });
                last = *log;
            }
        }
        let pauses = twin.pauses[server].iter();
        let met = pauses.filter(|pause| share.meets(pause.from_ns, pause.to_ns));
        strikes.extend(met.map(|pause| Strike {
            at: Instant::from_nanos(pause.from_ns),
            server,
            effect: Effect::Pause(Duration::from_nanos(pause.to_ns - pause.from_ns)),
        }));
    }
    strikes.sort_by_key(|strike| strike.at);
    strikes
}

fn requests(
    twin: &Twin,
    share: &Share,
    load: f64,
    number: u64,
    explores: bool,
) -> Vec<(Instant, Arrival)> {
    let mut rng = Rng::stream(number, "works are dealt anew");
    let mut all = Vec::new();
    for played in share.played(&twin.requests) {
        all.append(&mut with_load(played, load, &mut rng));
    }
    if explores {
        foretold(&mut all, &mut rng);
    }
    if number > 0 {
        for neighbours in all.chunks_mut(NEIGHBOURS) {
            for last in (1..neighbours.len()).rev() {
                let other = rng.below(last + 1);
                let score = neighbours[last].score;
                neighbours[last].score = neighbours[other].score;
                neighbours[other].score = score;
            }
        }
    }
    let arrival = |request: Request| {
        let arrival = Arrival {
            client: u32::from(request.client),
            group: u32::from(request.group),
            everywhere: false,
            work_seed: rng.bits(),
            score: request.score,
            explores: explores && request.policy > 0,
        };
        (Instant::from_nanos(request.at_ns), arrival)
    };
    // In the same memory: both are as large.
    all.into_iter().map(arrival).collect()
}

/// Gives requests that were explored the works of others that were not, from before and behind: a
/// slice is foretold by the rest of the day, as otherwise its own works would foretell it, also
/// where the world is wrong.
fn foretold(requests: &mut [Request], rng: &mut Rng) {
    let others: Vec<(usize, f32)> = requests
        .iter()
        .enumerate()
        .filter(|(_, request)| request.policy == 0)
        .map(|(place, request)| (place, request.score))
        .collect();
    let mut slices = 0..0;
    for place in 0..requests.len() {
        if requests[place].policy == 0 || others.is_empty() {
            continue;
        }
        if !slices.contains(&place) {
            let rest = requests[place..].iter().position(|request| request.policy == 0);
            slices = place..rest.map_or(requests.len(), |length| place + length);
        }
        // As many as the slice has, on either side of it.
        let after = others.partition_point(|(other, _)| *other < place);
        let (from, to) = (after.saturating_sub(slices.len()), after + slices.len());
        let near = &others[from..to.min(others.len())];
        requests[place].score = near[rng.below(near.len())].1;
    }
}

/// Some requests more or fewer: copies of others that come between them and their neighbours.
fn with_load(requests: &[Request], load: f64, rng: &mut Rng) -> Vec<Request> {
    if load == 1.0 {
        return requests.to_vec();
    }
    let mut all = Vec::with_capacity((requests.len() as f64 * load) as usize + 1);
    for (number, request) in requests.iter().enumerate() {
        let next = requests.get(number + 1).unwrap_or(request);
        let mut copies = load.floor() as usize + usize::from(rng.unit() < load.fract());
        if copies > 0 {
            all.push(*request);
            copies -= 1;
        }
        for _ in 0..copies {
            let gap_ns = next.at_ns.saturating_sub(request.at_ns) as f64;
            let at_ns = request.at_ns + (gap_ns * rng.unit()) as u64;
            let near = (number + rng.below(NEIGHBOURS)).min(requests.len() - 1);
            all.push(Request { at_ns, score: requests[near].score, ..*request });
        }
    }
    all.sort_by_key(|request| request.at_ns);
    all
}
