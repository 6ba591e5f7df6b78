//! A few sites on the loopback in one thread, with certificates, relays that can be cut, and homes
//! whose demand is made up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_geo::curve::{Prior, ResponseCurves};
use evenkeel_geo::demand::{SiteTally, SplitTally};
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::joint::Service;
use evenkeel_geo::planner::{Planner, PlannerConfig, Pricing, SiteCurves};
use evenkeel_geo::split::{PlanRow, SplitWindow};
use evenkeel_geo::traffic::Directive;
use evenkeel_mesh::{Files, Home, Mesh, MeshConfig, RedirectState, SiteState};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::metrics::{Format, Scrape};
use evenkeel_testkit::certificates::Authority;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Short, and long enough for a machine that does other things too.
pub(crate) const PERIOD: Duration = Duration::from_millis(400);
pub(crate) const NAMES: [&str; 3] = ["london", "ireland", "frankfurt"];

/// Runs a test as a worker thread runs: one thread, local tasks.
pub(crate) fn on_one_thread<T>(test: impl Future<Output = T>) -> T {
    evenkeel_runtime::accept::worker_runtime().unwrap().block_on(test)
}

/// A directory of its own for a test.
pub(crate) fn directory(test: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redirect_mesh").join(test);
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// The files of a site.
pub(crate) fn files(authority: &Authority, directory: &Path, name: &str) -> Files {
    let files = authority.write(directory, &[name]);
    Files { certificate: files.certificate, key: files.key, authority: files.authority }
}

/// A planner for sites of four servers that serve 200 requests/s at most, 100 ms being the
/// objective.
pub(crate) fn planner(sites: usize, period: Duration) -> Planner {
    let (objective, service) = (Duration::from_millis(100), Duration::from_millis(20));
    let curves = ResponseCurves::markov(objective, 4.try_into().unwrap(), service).unwrap();
    let curves = vec![SiteCurves::single(curves); sites];
    Planner::new(PlannerConfig::new(period), curves).unwrap()
}

/// The same by price, where a tenth of a request's work cannot be left out.
fn priced(planner: Planner, sites: usize) -> Planner {
    let services = vec![Service { full_us: 20_000, lean_us: 2_000 }; sites];
    planner.with_prices(Pricing { services, ..Pricing::default() }).unwrap()
}

/// A site whose users ask for so many requests per second, all of which are served there.
pub(crate) struct FakeHome {
    site: usize,
    sites: usize,
    per_s: f64,
    /// The share of them that is late.
    late: f64,
    began: Instant,
    pub(crate) directed: Rc<RefCell<BTreeMap<u64, PlanRow>>>,
}

impl FakeHome {
    /// A site without users.
    pub(crate) fn idle(site: usize, sites: usize) -> Self {
        Self { site, sites, per_s: 0.0, late: 0.0, began: Instant::now(), directed: Rc::default() }
    }
}

impl Home for FakeHome {
    fn counts(&self) -> SplitTally {
        let arrived = (self.began.elapsed().as_secs_f64() * self.per_s) as u64;
        let mut worker = SplitWindow::empty(self.sites);
        worker.arrived = arrived;
        worker.by_site[self.site].sent = arrived;
        let mut by_site = vec![SiteTally::default(); self.sites];
        by_site[self.site] =
            SiteTally { ended: arrived, missed: (arrived as f64 * self.late) as u64 };
        SplitTally { workers: vec![worker], by_site, ..SplitTally::default() }
    }

    fn replicas_up(&self) -> u32 {
        4
    }

    fn direct(&self, directive: Directive) {
        let sum: f64 = directive.parts.iter().map(|part| part.value()).sum();
        assert!((sum - 1.0).abs() < 1e-9, "the parts of the caps are one together: {sum}");
        self.directed.borrow_mut().insert(directive.row.epoch, directive.row);
    }
}

/// A way that can be cut: bytes are passed on in both directions until then.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) is_cut: watch::Sender<bool>,
}

impl Relay {
    fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let is_cut = watch::Sender::new(false);
        let cut = is_cut.subscribe();
        tokio::task::spawn_local(async move {
            loop {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::task::spawn_local(pass(stream, to, cut.clone()));
            }
        });
        Self { address, is_cut }
    }
}

async fn pass(mut from: TcpStream, to: SocketAddr, mut cut: watch::Receiver<bool>) {
    if *cut.borrow() {
        return;
    }
    let Ok(mut to) = TcpStream::connect(to).await else { return };
    from.set_nodelay(true).unwrap();
    to.set_nodelay(true).unwrap();
    let passing = tokio::task::spawn_local(async move {
        let _ = tokio::io::copy_bidirectional(&mut from, &mut to).await;
    });
    let _ = cut.wait_for(|cut| *cut).await;
    passing.abort();
}

/// A running site.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) files: Files,
    pub(crate) fingerprint: u32,
    state: watch::Receiver<Arc<RedirectState>>,
    pub(crate) directed: Rc<RefCell<BTreeMap<u64, PlanRow>>>,
    running: tokio::task::JoinHandle<()>,
}

impl Site {
    pub(crate) fn state(&self) -> Arc<RedirectState> {
        Arc::clone(&self.state.borrow())
    }

    /// Connections that it refused for this reason.
    pub(crate) fn refused(&self, reason: &str) -> u64 {
        self.state().counts.refused.get(reason).copied().unwrap_or(0)
    }

    /// How it sees another site.
    pub(crate) fn sees(&self, site: usize) -> SiteState {
        self.state().sites.get(site).cloned().unwrap_or_default()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// How a world is made.
pub(crate) struct Setup<'a> {
    pub(crate) names: Vec<String>,
    pub(crate) authority: &'a Authority,
    pub(crate) directory: PathBuf,
    pub(crate) period: Duration,
    /// By site, requests per second.
    pub(crate) demand: Vec<f64>,
    /// Sites that are not started, but known to the others.
    pub(crate) absent: Vec<usize>,
    pub(crate) reload_every: Duration,
    pub(crate) is_relayed: bool,
    pub(crate) is_priced: bool,
    /// How curves learn. Not by default: a home that is never late serves whatever it is asked for.
    pub(crate) learns: Option<Prior>,
    /// The share of each site's requests that is late; none where it does not say.
    pub(crate) late: Vec<f64>,
}

impl<'a> Setup<'a> {
    /// Three sites, the first of which is hot: 190 of at most 200 requests/s.
    pub(crate) fn three(authority: &'a Authority, test: &str) -> Self {
        Self {
            names: NAMES.map(str::to_owned).into(),
            authority,
            directory: directory(test),
            period: PERIOD,
            demand: vec![190.0, 40.0, 40.0],
            absent: Vec::new(),
            reload_every: Duration::from_secs(30),
            is_relayed: false,
            is_priced: false,
            learns: None,
            late: Vec::new(),
        }
    }
}

/// Sites and the ways between them.
pub(crate) struct World {
    /// By site; `None` where it is absent.
    pub(crate) sites: Vec<Option<Site>>,
    /// `relays[from][to]`, where ways are relayed.
    pub(crate) relays: Vec<Vec<Relay>>,
}

impl World {
    /// Starts all sites. Call it in a worker runtime.
    pub(crate) fn start(setup: &Setup<'_>) -> Self {
        let bind = |_: &String| TcpListener::bind("127.0.0.1:0").unwrap();
        let listeners: Vec<TcpListener> = setup.names.iter().map(bind).collect();
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let ways = |_| addresses.iter().map(|to| Relay::new(*to)).collect();
        let relays: Vec<Vec<Relay>> =
            if setup.is_relayed { (0..addresses.len()).map(ways).collect() } else { Vec::new() };
        let peers = |site: usize| match relays.get(site) {
            Some(relays) => relays.iter().map(|relay| relay.address).collect(),
            None => addresses.clone(),
        };
        let start = |(site, listener): (usize, TcpListener)| {
            (!setup.absent.contains(&site)).then(|| start(setup, site, listener, peers(site)))
        };
        let sites = listeners.into_iter().enumerate().map(start).collect();
        Self { sites, relays }
    }

    pub(crate) fn site(&self, site: usize) -> &Site {
        self.sites[site].as_ref().unwrap()
    }

    /// Cuts or restores all ways to and from a site.
    pub(crate) fn cut(&self, site: usize, is_cut: bool) {
        for (from, relays) in self.relays.iter().enumerate() {
            for (to, relay) in relays.iter().enumerate() {
                if from == site || to == site {
                    relay.is_cut.send_replace(is_cut);
                }
            }
        }
    }
}

fn start(setup: &Setup<'_>, site: usize, listener: TcpListener, peers: Vec<SocketAddr>) -> Site {
    let name = setup.names[site].as_str();
    let address = listener.local_addr().unwrap();
    let files = files(setup.authority, &setup.directory.join(name), name);
    let sites = setup.names.len();
    let config = MeshConfig {
        reload_every: setup.reload_every,
        margin: (setup.period / 4).min(Duration::from_millis(100)),
        clock_offset_max: Duration::from_millis(5),
        learns: setup.learns,
        ..MeshConfig::new(SiteId::new(site), setup.names.clone(), peers, files.clone())
    };
    let planner = planner(sites, setup.period);
    let planner = if setup.is_priced { priced(planner, sites) } else { planner };
    let mesh = Mesh::open(config, planner, listener).unwrap();
    let (state, fingerprint) = (mesh.state(), mesh.fingerprint());
    let directed = Rc::default();
    let home = FakeHome {
        site,
        sites,
        per_s: setup.demand[site],
        late: setup.late.get(site).copied().unwrap_or(0.0),
        began: Instant::now(),
        directed: Rc::clone(&directed),
    };
    let running = tokio::task::spawn_local(async move {
        mesh.run(Clock::start(), Rc::new(home), std::future::pending()).await.unwrap();
    });
    Site { address, files, fingerprint, state, directed, running }
}

/// The epoch of now.
pub(crate) fn epoch(period: Duration) -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    (since.as_nanos() / period.as_nanos()) as u64
}

/// Who takes part in a plan, the hash of the rows, and that of the plan.
type Planned = (Vec<String>, String, String);

/// What sites planned, by epoch and site.
#[derive(Default)]
pub(crate) struct Diary(BTreeMap<u64, BTreeMap<usize, Planned>>);

impl Diary {
    /// Notes the plans in force at these sites.
    pub(crate) fn note(&mut self, world: &World, sites: &[usize]) {
        for &site in sites {
            let state = world.site(site).state();
            let Some(plan) = &state.plan else { continue };
            let entry = (plan.members.clone(), plan.inputs.clone(), plan.hash.clone());
            self.0.entry(plan.epoch).or_default().insert(site, entry);
        }
    }

    /// Who planned an epoch from the same rows came to the same plan.
    pub(crate) fn assert_that_equal_rows_made_equal_plans(&self) {
        for (epoch, plans) in &self.0 {
            for (_, inputs, hash) in plans.values() {
                for (_, other_inputs, other_hash) in plans.values() {
                    assert!(inputs != other_inputs || hash == other_hash, "{epoch}: {plans:?}");
                }
            }
        }
    }

    /// Epochs in which all of these sites had the same plan from the same rows of exactly these
    /// members.
    pub(crate) fn agreed(&self, sites: &[usize], members: &[&str]) -> usize {
        let is_agreed = |plans: &&BTreeMap<usize, Planned>| {
            let mut of = sites.iter().map(|site| plans.get(site));
            let Some(Some(first)) = of.next() else { return false };
            first.0 == members && of.all(|plan| plan == Some(first))
        };
        self.0.values().filter(is_agreed).count()
    }
}

/// How a mesh stands, as Prometheus reads it.
pub(crate) fn metrics_of(state: &RedirectState) -> String {
    let mut scrape = Scrape::default();
    evenkeel_mesh::metrics::collect(&mut scrape, state);
    scrape.text(Format::Text)
}
