//! A scenario: one idea, written in TOML, of which every parameter can be set from outside.
//!
//! The shipped ones are in `scenarios/`; each says at its top what it shows.

mod bounds;
mod law;
mod priced;
mod service;
mod sites;
mod spelling;
mod tiers;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::dimmer::Law;
use evenkeel_core::request::redundancy::HedgeConfig;
use evenkeel_core::request::safeguards::Safeguards;
use evenkeel_settings::{Mismatch, Node, Problems, Setting, Table, Value, shared};
use serde::Serialize;

use crate::fault::{Fault, Target, What};
use crate::millis;
use crate::script::Script;
pub use law::ServiceLaw;
pub use priced::{Hiccup, Prices, Surge};
pub use service::{Dimmer, Replica, Work};
pub use sites::{Geography, Redirect, Series, Site, Wan, WanWay};
pub use spelling::Spelling;
pub use tiers::Tier;

/// Everything a run depends on, apart from policy and seed.
#[derive(Clone, Debug, Serialize)]
pub struct Scenario {
    /// The idea, in a sentence.
    pub description: String,
    /// What is run.
    pub run: Run,
    /// The replicas.
    pub cluster: Cluster,
    /// Replicas whose requests share their cores, in place of the cluster's slots; empty = slots.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<Replica>,
    /// What requests cost on shared cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// How replicas with shared cores dim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dimmer: Option<Dimmer>,
    /// Services that requests go through, in place of the cluster's one; empty = that one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<Tier>,
    /// The data centres, when there is more than one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub geography: Option<Geography>,
    /// How failing and new replicas are spared; see [`Scenario::safeguards`].
    #[serde(skip)]
    pub safeguards: Safeguards,
    /// How their speed varies.
    pub fluctuation: Fluctuation,
    /// What lies between clients and replicas.
    pub network: Network,
    /// The requests.
    pub workload: Workload,
    /// What goes wrong.
    pub faults: Vec<Fault>,
    /// What was recorded and happens again, in place of what is drawn.
    #[serde(skip)]
    pub script: Option<Arc<Script>>,
}

/// What is run.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// The policies to compare, as users write them.
    pub policies: Vec<String>,
    /// Share of requests at the beginning that are not counted: 0 to 0.9.
    pub warmup: f64,
    /// Whether failing and new replicas are spared; off as in the papers.
    pub safeguards: bool,
    /// Time in which active health checks find that a replica died or came back; zero = there are
    /// none.
    #[serde(with = "millis", rename = "health_checks_ms")]
    pub health_checks: Duration,
    /// How the policies hedge that are written with `+hedge`, as in `c3+hedge`.
    #[serde(skip)]
    pub hedge: HedgeConfig,
    /// Retries a request may make after failures.
    pub retries_max: u8,
    /// Length of the windows whose latencies are reported apart; zero = no such series.
    #[serde(with = "millis", rename = "window_ms")]
    pub window: Duration,
    /// Time between two samples of the replicas' loads; zero = none are taken.
    #[serde(with = "millis", rename = "load_every_ms")]
    pub load_every: Duration,
}

/// The replicas.
#[derive(Clone, Debug, Serialize)]
pub struct Cluster {
    /// How many.
    pub servers: usize,
    /// Requests each serves at once.
    pub concurrency: u32,
    /// Mean service time at base speed.
    #[serde(with = "millis", rename = "service_mean_ms")]
    pub service_mean: Duration,
    /// Coefficient of variation of the service time: 1 exponential, 0 constant, else lognormal.
    pub service_cv: f64,
    /// Their law, where that does not tell enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_law: Option<ServiceLaw>,
    /// The part of the variance of a request's work, as a logarithm, that is the request's own and
    /// the same in all its copies: 0 to 1. Only with a lognormal law.
    #[serde(skip_serializing_if = "is_no_share")]
    pub work_shared: f64,
    /// Whether all copies of a request are the same work, so that a copy of a heavy request is
    /// heavy too; else each copy has a draw of its own.
    pub same_work: bool,
    /// Whether agents stand before the replicas. Without them nobody reports anything.
    pub agents: bool,
    /// Whether the agents tell at once that a request must wait for a slot.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub notices: bool,
    /// Whether the replicas take out of their queue what a client gave up, as soon as they hear of
    /// it; they go on with what has started.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub withdraws: bool,
    /// What answering a probe takes of a replica's time, and telling that a request waits.
    #[serde(with = "millis", rename = "probe_cost_ms")]
    pub probe_cost: Duration,
    /// Replicas of each item; groups are neighbours on a ring.
    pub replication_factor: usize,
    /// Racks: server n stands in rack n modulo this, so that neighbours on the ring stand in
    /// different ones. Zero = there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub racks: usize,
    /// What stands behind the proxy when the scenario is played on sockets.
    pub real: Real,
}

evenkeel_core::named! {
    /// What stands behind the proxy when a scenario is played on sockets (`evenkeel demo`). The
    /// simulator simulates either.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Real {
        /// The embedded service, which takes the scenario's service times.
        Embedded = "embedded",
        /// nginx servers, which are as fast as they are; a pause is SIGSTOP, a crash SIGKILL, and a
        /// slow one lets through `concurrency / (service_mean × factor)` requests per second.
        Nginx = "nginx",
        /// Processes of the example shop with a database thread for each core of `replicas`, whose
        /// pages take what they take here; a crash is SIGKILL.
        Shop = "shop",
    }
}

/// How the replicas' speed varies: every interval each draws base speed or `range` times it.
#[derive(Clone, Debug, Serialize)]
pub struct Fluctuation {
    /// Time between draws; zero = the speed stays.
    #[serde(with = "millis", rename = "interval_ms")]
    pub interval: Duration,
    /// Fast rate over slow rate (the paper's D).
    pub range: f64,
    /// Whether all servers of a rack have the same draw.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub by_rack: bool,
}

/// What lies between clients and replicas.
#[derive(Clone, Debug, Serialize)]
pub struct Network {
    /// Delay of a message.
    #[serde(with = "millis", rename = "one_way_ms")]
    pub one_way: Duration,
    /// Mean of an exponential addition to it.
    #[serde(with = "millis", rename = "jitter_ms")]
    pub jitter: Duration,
}

/// The requests.
#[derive(Clone, Debug, Serialize)]
pub struct Workload {
    /// How many.
    pub requests: u64,
    /// Clients, each with a dispatcher of its own.
    pub clients: usize,
    /// Clients of one process: so many are siblings, which use what each of them learns.
    #[serde(skip_serializing_if = "is_one")]
    pub workers: usize,
    /// Offered load as a share of the capacity at *mean* speed, without copies; on shared cores
    /// as a share of the full requests they can serve.
    pub utilisation: f64,
    /// Requests per second, when they were written in place of the utilisation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Length of the arrivals, when it was written in place of the number of requests.
    #[serde(skip)]
    pub duration: Option<Duration>,
    /// How arrivals come.
    pub arrivals: Arrivals,
    /// Share of reads that are sent to every replica of the group (read repair).
    pub read_repair: f64,
    /// Share of clients that issue 80 % of the requests; 0 = all issue the same.
    pub skew: f64,
    /// Share of requests that are writes, sent to every replica of the group.
    pub writes: f64,
    /// After this the caller gives up; zero = never.
    #[serde(with = "millis", rename = "timeout_ms")]
    pub timeout: Duration,
    /// Whether the servers stop working on what a client gave up.
    pub cancel: bool,
    /// Whether the balancer notices that a client gave up. If not, the request counts as in flight
    /// until its server answers, as with the balancer of the brownout paper.
    pub noticed: bool,
    /// A request that takes longer, or is not served, is a violation; zero = none is.
    #[serde(with = "millis", rename = "objective_ms")]
    pub objective: Duration,
    /// Changes in the course of the run.
    pub phases: Vec<Phase>,
}

/// How arrivals come.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrivals {
    /// A Poisson process.
    Poisson,
    /// The C3 authors' simulator: this many generators with whole-millisecond Poisson gaps.
    Ticks {
        /// Generators, all starting at time zero.
        generators: u32,
    },
    /// A Poisson process whose rate follows a series, scaled so that its mean is the workload's.
    Trace {
        /// Relative rate of each step; repeated when the run is longer.
        rates: Vec<f64>,
        /// Length of a step.
        #[serde(with = "millis", rename = "step_ms")]
        step: Duration,
    },
}

/// From a time on, more clients, other requests, another load.
#[derive(Clone, Debug, Serialize)]
pub struct Phase {
    /// When it begins.
    #[serde(with = "millis", rename = "at_ms")]
    pub at: Duration,
    /// Clients that join; each brings as many requests per second as one had at the start.
    pub clients_join: usize,
    /// Share of writes among the requests of those that join.
    pub writes: f64,
    /// Multiplies the load of the start; absent = it stays as it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_factor: Option<f64>,
}

/// What an agent's answer to a probe in a datagram was measured to cost it: 8 to 12 µs on a busy
/// machine, over HTTP 12 to 19 (`cargo run --release -p evenkeel-http-proxy --example probe_cost`).
const PROBE_COST: Duration = Duration::from_micros(10);
const HOUR: Duration = Duration::from_secs(3_600);
/// Bounds on what a scenario may ask for, so that a slip of the pen does not fill the memory.
const SERVERS_MAX: usize = 100_000;
const REQUESTS_MAX: u64 = 10_000_000_000;

impl Scenario {
    /// Takes the scenario out of what was written.
    ///
    /// # Errors
    /// Every problem at once, each with its place.
    pub fn read(node: &Node) -> Result<Self, Problems> {
        node.read(|root| {
            let replicas = root.key("replicas").list(Replica::read);
            let replicas = replicas.check("one replica or more", |all| !all.is_empty()).or(vec![]);
            let shares = !replicas.is_empty();
            let geography = Geography::read(root);
            let has_sites = geography.is_some();
            let tiers = Tier::read_all(root.key("tiers"));
            let has_tiers = !tiers.is_empty();
            let mut scenario = Self {
                description: root.key("description").text().or(String::new()),
                run: root.key("run").section(Run::read),
                cluster: root.key("cluster").section(move |table| {
                    Cluster::reject(table, shares, "replicas and work", Cluster::OF_SLOTS);
                    Cluster::reject(table, has_sites, "sites", Cluster::OF_SITES);
                    Cluster::reject(table, has_tiers, "tiers", Cluster::OF_TIERS);
                    Cluster::read(table)
                }),
                work: shares.then(|| root.key("work").section(Work::read)),
                dimmer: shares.then(|| read_dimmer(root)),
                replicas,
                tiers,
                geography,
                safeguards: root.key("safeguards").section(shared::safeguards),
                fluctuation: root.key("fluctuation").section(Fluctuation::read),
                network: root.key("network").section(Network::read),
                workload: root.key("workload").section(Workload::read),
                faults: root
                    .key("faults")
                    .list(|item| item.table(Fault::read).required())
                    .or(vec![]),
                script: None,
            };
            scenario.resolve(root);
            scenario.check(root);
            scenario
        })
    }

    /// Fills in what follows from something else that was written.
    fn resolve(&mut self, root: &mut Table<'_>) {
        self.resolve_replicas();
        self.resolve_sites(root);
        self.resolve_tiers();
        if let Some(rate) = self.workload.rate {
            self.workload.utilisation = rate / self.capacity();
        }
        if let Some(duration) = self.workload.duration {
            self.workload.requests = self.workload.expected(self.rate(), duration);
        }
    }

    fn resolve_replicas(&mut self) {
        if let (Some(geography), [of_all]) = (&self.geography, &self.replicas[..]) {
            self.replicas = vec![*of_all; geography.servers()];
        }
        if let (Some(work), false) = (&self.work, self.replicas.is_empty()) {
            let cores: u32 = self.replicas.iter().map(|replica| replica.cores).sum();
            self.cluster.servers = self.replicas.len();
            self.cluster.replication_factor = self.replicas.len();
            self.cluster.concurrency = cores.div_ceil(self.replicas.len() as u32);
            self.cluster.service_mean = work.optional;
            self.cluster.service_cv = work.cv;
            // The page of an item costs what it costs, whichever shop makes it.
            self.cluster.same_work = self.cluster.real == Real::Shop;
        }
    }

    fn check(&self, root: &mut Table<'_>) {
        if !root.is_sound() {
            return;
        }
        let Cluster { servers, replication_factor, .. } = self.cluster;
        if replication_factor > servers {
            let came = format!("replication_factor {replication_factor} with {servers} servers");
            let expected = "a replication factor of at most the number of servers";
            root.problem("cluster", Mismatch::new(came, expected));
        }
        self.check_size(root);
        self.check_queues(root);
        self.check_sharing(root);
        self.check_sites(root);
        self.check_tiers(root);
        self.check_racks(root);
        for fault in &self.faults {
            if let Target::Server(server) = fault.target
                && server >= servers
            {
                let came = format!("server {server}");
                let expected = format!("a server from 0 to {}", servers - 1);
                root.problem("faults", Mismatch::new(came, expected));
            }
        }
    }

    fn check_racks(&self, root: &mut Table<'_>) {
        let Cluster { racks, servers, .. } = self.cluster;
        let mut problem = |key: &str, came: String, expected: String| {
            root.problem(key, Mismatch::new(came, expected));
        };
        if racks > servers {
            let came = format!("{racks} racks for {servers} servers");
            problem("cluster", came, "at most one rack for each server".to_owned());
        }
        for fault in self.faults.iter().filter(|fault| fault.target.is_of_racks()) {
            let is_there = matches!(fault.target, Target::Rack(rack) if rack < racks);
            if !is_there && (racks == 0 || matches!(fault.target, Target::Rack(_))) {
                let came = format!("a fault of racks with cluster.racks = {racks}");
                problem("faults", came, "racks that there are, counted from 0".to_owned());
            }
        }
        if self.fluctuation.by_rack && racks == 0 {
            problem("fluctuation", "by_rack without racks".to_owned(), "cluster.racks".to_owned());
        }
    }

    fn check_queues(&self, root: &mut Table<'_>) {
        let Cluster { notices, withdraws, agents, .. } = self.cluster;
        let problems = [
            (notices && !agents, "notices without agents", "agents = true: it is they who tell"),
            (
                self.cluster.work_shared > 0.0 && !self.has_lognormal_work(),
                "work_shared with a law that is not lognormal",
                "service_cv other than 0 and 1, and no service_law",
            ),
            (
                withdraws && self.workload.cancel,
                "withdraws beside workload.cancel",
                "one of the two: with cancel replicas stop working on what was given up, too",
            ),
        ];
        for (_, came, expected) in problems.into_iter().filter(|(is_wrong, ..)| *is_wrong) {
            root.problem("cluster", Mismatch::new(came, expected));
        }
    }

    fn has_lognormal_work(&self) -> bool {
        let Cluster { service_cv, service_law, .. } = &self.cluster;
        service_law.is_none() && *service_cv != 0.0 && *service_cv != 1.0
    }

    fn check_sharing(&self, root: &mut Table<'_>) {
        if !self.replicas.is_empty() {
            return;
        }
        let expected = "replicas too, such as replicas = [{cores = 4}, {cores = 4}]";
        for key in ["work", "dimmer"] {
            if root.key(key).value().is_some() {
                root.problem(key, Mismatch::new(format!("{key} without replicas"), expected));
            }
        }
        for policy in &self.run.policies {
            if Spelling::of(policy).guard.is_some() {
                root.problem("run.policies", Mismatch::new(format!("{policy:?}"), expected));
            }
        }
    }

    /// How failing and new replicas are spared: not at all, or as `[safeguards]` says.
    pub fn safeguards(&self) -> Safeguards {
        if self.run.safeguards { self.safeguards.clone() } else { Safeguards::none() }
    }

    /// Mean factor by which a replica is faster than its base speed: (1 + D) / 2.
    pub fn speed_mean(&self) -> f64 {
        if self.fluctuation.interval.is_zero() { 1.0 } else { (1.0 + self.fluctuation.range) / 2.0 }
    }

    /// Requests per second that all replicas together can serve, in full, at mean speed; with tiers
    /// those that the tier which is full first can.
    pub fn capacity(&self) -> f64 {
        let slots = if self.replicas.is_empty() {
            self.servers_for_a_request() * f64::from(self.cluster.concurrency)
        } else {
            self.replicas.iter().map(Replica::capacity).sum()
        };
        slots * (self.speed_mean() / self.cluster.service_mean.as_secs_f64())
    }

    /// Requests per second that all clients of the start offer together.
    pub fn rate(&self) -> f64 {
        self.workload.rate.unwrap_or_else(|| self.workload.utilisation * self.capacity())
    }

    /// Clients at the end of the run.
    pub fn clients_max(&self) -> usize {
        let joining = self.workload.phases.iter().map(|phase| phase.clients_join);
        joining.fold(self.workload.clients, usize::saturating_add)
    }
}

impl Run {
    fn read(table: &mut Table<'_>) -> Self {
        let policies = table
            .key("policies")
            .list(|item| item.parsed("a policy", "c3".to_owned(), spelling::checked).required());
        let policies = policies.check("at least one policy", |list| !list.is_empty());
        Self {
            policies: policies.or(vec!["c3".to_owned()]),
            warmup: table.key("warmup").probability().between(0.0..=0.9).or(0.0),
            safeguards: table.key("safeguards").boolean().or(true),
            health_checks: read_duration(table, "health_checks", Duration::ZERO..=HOUR),
            hedge: table.key("hedge").section(shared::hedge),
            retries_max: table.key("retries_max").integer().between(0..=6).or(1),
            window: sampling(table.key("window")),
            load_every: sampling(table.key("load_every")),
        }
    }
}

/// A time between samples. A run lasts hours of virtual time at most, so that ten milliseconds
/// keep the series within bounds.
fn sampling(setting: Setting<'_>) -> Duration {
    let sane = |every: &Duration| every.is_zero() || *every >= Duration::from_millis(10);
    setting.duration().check("0s, or at least 10ms", sane).or(Duration::ZERO)
}

/// Without a `[dimmer]` there is none; with one it is feed-forward unless it says otherwise.
fn read_dimmer(root: &mut Table<'_>) -> Dimmer {
    let setting = root.key("dimmer");
    let law = setting.value().map(|_| Law::FeedForward);
    setting.section(move |table| Dimmer::read(table, law))
}

impl Cluster {
    /// What replicas and work say instead.
    const OF_SLOTS: &[&str] = &[
        "servers",
        "concurrency",
        "service_mean",
        "service_cv",
        "service_law",
        "same_work",
        "work_shared",
        "notices",
        "withdraws",
        "replication_factor",
    ];
    /// What tiers say instead.
    const OF_TIERS: &[&str] = &["servers"];
    /// What sites say instead.
    const OF_SITES: &[&str] = &["servers", "replication_factor"];

    /// Reports keys that something else, if it is there, stands for.
    fn reject(table: &mut Table<'_>, is_there: bool, other: &str, keys: &[&str]) {
        for &key in keys.iter().filter(|_| is_there) {
            if table.key(key).value().is_some() {
                let first = other.split(' ').next().unwrap_or(other);
                let expected = format!("one of the two: {other} say what this would");
                table.problem(key, Mismatch::new(format!("{key} beside {first}"), expected));
            }
        }
    }

    fn read(table: &mut Table<'_>) -> Self {
        let shortest = Duration::from_micros(1);
        let service_law = table.key("service_law").table(ServiceLaw::read).or(None);
        if service_law.is_some() && table.key("service_cv").value().is_some() {
            let expected = "one of the two: service_law says what this would";
            table.problem("service_cv", Mismatch::new("service_cv beside service_law", expected));
        }
        Self {
            servers: table.key("servers").integer().between(1..=SERVERS_MAX).or(5),
            concurrency: table.key("concurrency").integer().between(1..=100_000).or(4),
            service_mean: table
                .key("service_mean")
                .duration()
                .between(shortest..=HOUR)
                .or(Duration::from_millis(4)),
            service_cv: table.key("service_cv").number().between(0.0..=10.0).or(1.0),
            service_law,
            work_shared: table.key("work_shared").probability().or(0.0),
            same_work: table.key("same_work").boolean().or(false),
            agents: table.key("agents").boolean().or(true),
            notices: table.key("notices").boolean().or(false),
            withdraws: table.key("withdraws").boolean().or(false),
            probe_cost: table
                .key("probe_cost")
                .duration()
                .between(Duration::ZERO..=Duration::from_secs(1))
                .or(PROBE_COST),
            replication_factor: table
                .key("replication_factor")
                .integer()
                .between(1..=SERVERS_MAX)
                .or(3),
            racks: table.key("racks").integer().between(1..=SERVERS_MAX).or(0),
            real: table.key("real").variant(&Real::NAMED).or(Real::Embedded),
        }
    }
}

impl Fluctuation {
    fn read(table: &mut Table<'_>) -> Self {
        Self {
            interval: table
                .key("interval")
                .duration()
                .between(Duration::ZERO..=HOUR)
                .or(Duration::ZERO),
            range: table.key("range").number().between(1.0..=100.0).or(3.0),
            by_rack: table.key("by_rack").boolean().or(false),
        }
    }
}

impl Network {
    fn read(table: &mut Table<'_>) -> Self {
        let minute = Duration::from_secs(60);
        let one_way = table.key("one_way").duration().between(Duration::ZERO..=minute);
        Self {
            one_way: one_way.or(Duration::from_micros(250)),
            jitter: table
                .key("jitter")
                .duration()
                .between(Duration::ZERO..=minute)
                .or(Duration::ZERO),
        }
    }
}

impl Workload {
    fn read(table: &mut Table<'_>) -> Self {
        let phases = table.key("phases").list(|item| item.table(Phase::read).required());
        for (one, other) in [("rate", "utilisation"), ("duration", "requests")] {
            if table.key(one).value().is_some() && table.key(other).value().is_some() {
                let expected = format!("one of the two: {other} follows from {one}");
                table.problem(one, Mismatch::new(format!("{one} beside {other}"), expected));
            }
        }
        let cancel = table.key("cancel").boolean().or(false);
        let noticed = table.key("noticed").boolean().or(true);
        if cancel && !noticed {
            let expected = "noticed = true: nobody takes back what nobody noticed";
            table.problem("cancel", Mismatch::new("true with noticed = false", expected));
        }
        let day = 24 * HOUR;
        let until_an_hour = Duration::ZERO..=HOUR;
        Self {
            requests: table.key("requests").integer().between(1..=REQUESTS_MAX).or(100_000),
            duration: table
                .key("duration")
                .duration()
                .between(Duration::from_millis(1)..=day)
                .optional(),
            clients: table.key("clients").integer().between(1..=100_000).or(20),
            workers: table.key("workers").integer().between(1..=1_000).or(1),
            utilisation: table.key("utilisation").number().between(0.001..=10.0).or(0.7),
            rate: table.key("rate").rate().between(1e-3..=1e9).optional(),
            arrivals: Arrivals::read(table.key("arrivals")),
            read_repair: table.key("read_repair").probability().or(0.0),
            skew: table.key("skew").probability().between(0.0..=0.8).or(0.0),
            writes: table.key("writes").probability().or(0.0),
            timeout: read_duration(table, "timeout", until_an_hour.clone()),
            cancel,
            noticed,
            objective: read_duration(table, "objective", until_an_hour),
            phases: phases.or(vec![]),
        }
    }

    /// Requests that arrive within this time, at this rate at the start, phases included.
    fn expected(&self, rate: f64, duration: Duration) -> u64 {
        let mut phases: Vec<&Phase> = self.phases.iter().collect();
        phases.sort_by_key(|phase| phase.at);
        let (mut at, mut factor, mut clients) = (Duration::ZERO, 1.0, self.clients);
        let mut seconds = 0.0;
        for phase in phases.into_iter().filter(|phase| phase.at < duration) {
            let share = clients as f64 / self.clients as f64;
            seconds += (phase.at - at).as_secs_f64() * factor * share;
            (at, clients) = (phase.at, clients + phase.clients_join);
            factor = phase.rate_factor.unwrap_or(factor);
        }
        let share = clients as f64 / self.clients as f64;
        seconds += (duration - at).as_secs_f64() * factor * share;
        (seconds * rate).round().max(1.0) as u64
    }
}

/// What is zero is left out where scenarios are printed.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// Whether nothing is shared, for what is not written then.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn is_no_share(share: &f64) -> bool {
    *share == 0.0
}

/// The same for what is one.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "what serde asks for")]
const fn is_one(number: &usize) -> bool {
    *number == 1
}

fn read_duration(table: &mut Table<'_>, key: &str, range: RangeInclusive<Duration>) -> Duration {
    table.key(key).duration().between(range).or(Duration::ZERO)
}

impl Arrivals {
    fn read(setting: Setting<'_>) -> Self {
        if matches!(setting.value(), Some(Value::Table(_))) {
            return setting.table(Self::read_trace).required();
        }
        let ticks = Self::Ticks { generators: 200 };
        setting.variant(&[("poisson", Self::Poisson), ("ticks", ticks)]).or(Self::Poisson)
    }

    fn read_trace(table: &mut Table<'_>) -> Self {
        let positive = |rates: &Vec<f64>| rates.iter().sum::<f64>() > 0.0;
        let rate = |item: Setting<'_>| item.number().between(0.0..=1e12).required();
        let rates = table.key("rates").list(rate).check("relative rates, not all 0", positive);
        let step = table.key("step").duration().between(Duration::from_millis(1)..=HOUR);
        Self::Trace { rates: rates.required(), step: step.required() }
    }
}

impl Phase {
    fn read(table: &mut Table<'_>) -> Self {
        Self {
            at: table.key("at").duration().between(Duration::ZERO..=24 * HOUR).required(),
            clients_join: table.key("clients_join").integer().between(0..=100_000).or(0),
            writes: table.key("writes").probability().or(0.0),
            rate_factor: table.key("rate_factor").number().between(1e-3..=1e3).optional(),
        }
    }
}

impl What {
    /// The name users write.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Restore => "restore",
            Self::Pause { .. } => "pause",
            Self::Slow { .. } => "slow",
            Self::Fail { .. } => "fail",
            Self::Hang { .. } => "hang",
            Self::Break { .. } => "break",
            Self::Stall { .. } => "stall",
        }
    }
}
