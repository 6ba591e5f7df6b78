//! Three data centres of one real Cassandra cluster with a process of Evenkeel in each, and ways
//! between them that take time.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_cassandra::cluster_state::ClusterState;
use evenkeel_core::distribution::Recorder;
use evenkeel_core::request::ring::Consistency;
use evenkeel_core::units::{Probability, Rate};
use evenkeel_cql::Version;
use evenkeel_geo::curve::{LoadStep, Saturation};
use evenkeel_load::{
    Arrivals, CassandraLoad, CassandraTarget, Outcome, Popularity, RecordSize, Stop, Workload,
};
use evenkeel_proxy::upstream_state::UpstreamStats;
use evenkeel_server::config::Config;
use evenkeel_server::process::Process;
use evenkeel_settings::profile::{Record, Step, save};
use evenkeel_testkit::cassandra::client::Client;
use evenkeel_testkit::cassandra::{Cluster, Disturbed, Spec};
use evenkeel_testkit::certificates::Authority;
use evenkeel_testkit::distance::{Lane, Lanes};
use evenkeel_testkit::folder::Folder;
use evenkeel_testkit::story::{MS, free_addresses};
use evenkeel_testkit::wait::block_until;

/// Sites by their names for Evenkeel, and what the cluster calls them.
pub(crate) const SITES: [(&str, &str); 3] =
    [("london", "east"), ("ireland", "west"), ("frankfurt", "far")];
/// Time between plans.
pub(crate) const PERIOD: Duration = Duration::from_millis(500);

/// One node in each data centre.
pub(crate) fn spec() -> Spec {
    Spec::of(&SITES.map(|(_, datacenter)| (datacenter, 1)))
}

/// How sites are made.
pub(crate) struct Setup<'a> {
    name: &'a str,
    /// The profile of a site.
    curves: &'a Record,
}

/// Shall be kept.
const OBJECTIVE: Duration = Duration::from_millis(50);
/// The round trip between two sites.
const WAY: Duration = Duration::from_millis(4);

impl<'a> Setup<'a> {
    pub(crate) const fn new(name: &'a str, curves: &'a Record) -> Self {
        Self { name, curves }
    }
}

/// Running sites. Dropping them stops them.
pub(crate) struct Sites<'a> {
    processes: Vec<Process>,
    _lanes: Lanes,
    turn: Disturbed<'a>,
    _folder: Folder,
}

impl<'a> Sites<'a> {
    /// Starts a process in each data centre; the cluster is theirs alone.
    pub(crate) fn start(cluster: &'a Cluster, setup: &Setup<'_>) -> Self {
        let turn = cluster.disturb();
        let folder = Folder::new(&format!("cassandra-sites-{}", setup.name));
        save(&folder.file("store.profile.toml"), setup.curves).unwrap();
        let authority = Authority::new();
        SITES.iter().for_each(|(name, _)| _ = authority.write(&folder.file(name), &[name]));
        let meshes = free_addresses::<3>();
        let lanes = lanes(cluster, &meshes);
        let start = |site: usize| {
            let text = config(cluster, site, &meshes, &lanes);
            let path = folder.file(&format!("{}.toml", SITES[site].0));
            std::fs::write(&path, text).unwrap();
            let config = Config::load(&path).unwrap_or_else(|found| panic!("{found}"));
            Process::start(config).unwrap()
        };
        let processes = (0..SITES.len()).map(start).collect();
        let this = Self { processes, _lanes: lanes, turn, _folder: folder };
        for site in 0..SITES.len() {
            block_until("a site serves", || {
                Client::connect(this.entrance(site), Version::V4, None).is_ok()
            });
        }
        this
    }

    /// Where the users of a site ask.
    pub(crate) fn entrance(&self, site: usize) -> SocketAddr {
        self.processes[site].listens()[0]
    }

    /// The right to pause and kill nodes.
    pub(crate) const fn turn(&self) -> &Disturbed<'a> {
        &self.turn
    }

    /// How the upstream of a site stands.
    pub(crate) fn cluster(&self, site: usize) -> ClusterState {
        self.processes[site].cluster(0).unwrap().total()
    }

    pub(crate) fn stats(&self, site: usize) -> UpstreamStats {
        self.processes[site].upstreams().stats(0)
    }

    /// Requests per second that a site sends another by the plan in force; none without a plan of
    /// all three.
    pub(crate) fn planned(&self, from: usize, to: usize) -> Option<f64> {
        let state = self.processes[from].redirect()?.borrow().clone();
        let plan = state.plan.as_ref().filter(|plan| plan.members.len() == SITES.len())?;
        let is_it =
            |pair: &&evenkeel_mesh::PairState| pair.from == SITES[from].0 && pair.to == SITES[to].0;
        Some(plan.pairs.iter().find(is_it).map_or(0.0, |pair| pair.rate_per_s))
    }

    /// The sentences of the plan in force at a site.
    pub(crate) fn flows(&self, site: usize) -> Vec<String> {
        let Some(redirect) = self.processes[site].redirect() else { return Vec::new() };
        redirect.borrow().plan.as_ref().map_or_else(Vec::new, |plan| plan.flows.clone())
    }

    /// Waits until all sites plan together.
    pub(crate) fn wait_for_a_common_plan(&self) {
        block_until("all sites plan together", || {
            (0..SITES.len()).all(|site| self.planned(site, site).is_some())
        });
    }
}

impl Drop for Sites<'_> {
    fn drop(&mut self) {
        self.processes.drain(..).for_each(|process| process.stop().unwrap());
    }
}

/// What `evenkeel run` reads at a site.
fn config(cluster: &Cluster, site: usize, meshes: &[SocketAddr], lanes: &Lanes) -> String {
    let (name, datacenter) = SITES[site];
    let others = || (0..SITES.len()).filter(|other| *other != site);
    let reached = others().map(|other| {
        format!("'{}' = '{}'", cluster.address(other), lanes.address(lane(site, other, 0)))
    });
    let mut text = format!(
        "[process]\nworkers = 1\ndrain = '1s'\n\
         [[listen]]\naddress = '127.0.0.1:0'\nupstream = 'store'\n\
         [upstream.store]\nprotocol = 'cql'\nreplicas = ['{}']\n\
         [upstream.store.cql]\ndatacenter = '{datacenter}'\nreached_at = {{ {} }}\n",
        cluster.address(site),
        reached.collect::<Vec<_>>().join(", "),
    );
    text += &format!(
        "[redirect]\nupstream = 'store'\nsite = '{name}'\nobjective = '{}ms'\nlisten = '{}'\n\
         certificate = '{name}/site.pem'\nkey = '{name}/site.key'\n\
         ca_file = '{name}/authority.pem'\nperiod = '{}ms'\nmargin = '{}ms'\n",
        OBJECTIVE.as_millis(),
        meshes[site],
        PERIOD.as_millis(),
        (PERIOD / 5).as_millis(),
    );
    for (other, (name, datacenter)) in SITES.iter().enumerate() {
        let peer = if other == site { meshes[site] } else { lanes.address(lane(site, other, 1)) };
        text += &format!(
            "[[redirect.sites]]\nname = '{name}'\ndatacenter = '{datacenter}'\npeer = '{peer}'\n\
             curves = ['store.profile.toml']\n"
        );
    }
    text
}

/// The number of the way from one site to another: of requests (0) or of the mesh (1).
const fn lane(from: usize, to: usize, kind: usize) -> usize {
    2 * (from * SITES.len() + to) + kind
}

fn lanes(cluster: &Cluster, meshes: &[SocketAddr]) -> Lanes {
    let mut lanes = Vec::new();
    for from in 0..SITES.len() {
        for (to, mesh) in meshes.iter().enumerate() {
            let base = if from == to { Duration::ZERO } else { WAY };
            for target in [cluster.address(to), *mesh] {
                lanes.push(Lane { target, base, residual: None });
            }
        }
    }
    Lanes::start(lanes, 1).unwrap()
}

/// A made-up profile: loads per second, and which share of requests takes 5 ms there rather than
/// 200 ms.
pub(crate) fn curves(steps: &[(f64, f64)], saturation: f64) -> Record {
    let step = |&(load, quick): &(f64, f64)| {
        let mut recorder = Recorder::default();
        let quick = (quick * 1_000.0) as usize;
        (0..1_000).for_each(|n| recorder.record(if n < quick { 5 * MS } else { 200 * MS }));
        let measured = LoadStep {
            load: Rate::new(load).unwrap(),
            write_share: Probability::ZERO,
            latencies: recorder.buckets().collect(),
            unanswered: 0,
        };
        Step { measured, is_saturated: load >= saturation }
    };
    let load = Rate::new(saturation).unwrap();
    Record {
        servers: NonZeroU32::MIN,
        run: None,
        steps: steps.iter().map(step).collect(),
        saturations: vec![Saturation { write_share: Probability::ZERO, load }],
    }
}

/// Records that all data centres have, or `east` alone.
pub(crate) fn load(at: SocketAddr, keyspace: &str, per_s: f64) -> CassandraLoad {
    let target = CassandraTarget::parse(&format!("cql://{at}/{keyspace}")).unwrap();
    let mut load = CassandraLoad {
        workload: Workload::C,
        records: 200,
        popularity: Popularity::Uniform,
        size: RecordSize { bytes: 100, is_skewed: false },
        consistency: Consistency::One,
        connections: 2,
        ..CassandraLoad::new(target, Arrivals::poisson(per_s).unwrap())
    };
    load.plan.timeout = Duration::from_secs(5);
    load
}

/// Makes and fills the table, in these data centres.
pub(crate) fn fill(cluster: &Cluster, keyspace: &str, datacenters: &[&str]) {
    let factors: Vec<String> =
        datacenters.iter().map(|datacenter| format!("'{datacenter}': 1")).collect();
    let replication = format!("{{'class': 'NetworkTopologyStrategy', {}}}", factors.join(", "));
    let mut load = load(cluster.address(0), keyspace, 1.0);
    load.consistency = Consistency::All;
    load.fill(Some(&replication), &Stop::new(), |_| ()).unwrap();
}

/// A load that goes on until it is stopped.
pub(crate) struct Users {
    stop: Stop,
    running: JoinHandle<Outcome>,
}

impl Users {
    pub(crate) fn begin(load: CassandraLoad) -> Self {
        let stop = Stop::new();
        let its = stop.clone();
        let running = std::thread::spawn(move || load.run(&its, |_| ()).unwrap());
        Self { stop, running }
    }

    pub(crate) fn end(self) -> Outcome {
        self.stop.stop();
        self.running.join().unwrap()
    }
}

/// Requests that a node has had from clients whose connections are still open, as it says itself.
pub(crate) fn asked(cluster: &Cluster, node: usize) -> i64 {
    let mut client = Client::connect(cluster.address(node), Version::V4, None).unwrap();
    let rows = client.rows("select request_count from system_views.clients");
    let count = |row: &Vec<Option<Vec<u8>>>| {
        i64::from_be_bytes(row[0].as_deref().unwrap().try_into().unwrap())
    };
    rows.iter().map(count).sum()
}
