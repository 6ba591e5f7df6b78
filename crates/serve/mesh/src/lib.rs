//! The mesh between data centres: who is how far, what everybody told, and the plan from it.
//!
//! Every site has connections of its own to every other one, over TLS that authenticates both
//! ends. Probes measure the way; rows tell demand, capacity and distances once per epoch; core's
//! `EpochSync` says when, core's planner says what, and `UpstreamStates` take it to the workers.
//!
//! ```text
//!   other sites                                   workers
//!       │ rows, probes                               ▲ Directive     │ counts
//!       ▼                                            │               ▼
//!    accept ── rows ──►  EpochSync ─ Snapshot ──► Planner ◄────── demand
//!    dial  ◄── row ───      ▲                        ▲               │
//!       │ echoes            └──────── Report ────────┼───────────────┘
//!       ▼                                  ▲         │ version
//!      Wan ─────────── path ───────────────┘    interference
//! ```
//!
//! | file | does |
//! |---|---|
//! | this file | [`Mesh`]: opened, then run on a thread of its own |
//! | [`config`] | `[redirect]`: read and checked; `setup` makes a mesh of it |
//! | [`frame`] | messages as bytes |
//! | `identity` | certificates: who we are, who they are; read again when they change |
//! | `dial` `accept` `wire` `pace` | connections, and waiting before another try |
//! | `hub` | what they share and count |
//! | `settings` | what must be set alike, told one by one |
//! | `driver` | the loop around core's `EpochSync` |
//! | `followers` `controller` | further processes of this site: what they counted, talking with them |
//! | `follower` `message` | such a process itself, and the words of both |
//! | `interference` | do the curves still hold, and what are they by now? |
//! | `state` [`metrics`] `follower_metrics` | for people |
//! | [`envoy`] | Envoy as a data plane: the plan as assignments, its reports as demand |
//! | [`export`] `shares` | the plan for Istio, Kubernetes and DNS |
//!
//! **A thread of its own**: an echo that waits for a dashboard or a solver looks like distance.
//! The solver runs on another one beside it.

pub mod config;
pub mod envoy;
pub mod export;

mod accept;
mod content;
mod controller;
mod dial;
mod driver;
mod follower;
mod follower_metrics;
mod followers;
pub mod frame;
mod hour;
mod hub;
mod identity;
mod interference;
mod message;
pub mod metrics;
mod pace;
mod settings;
mod setup;
mod shares;
mod state;
mod wire;

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::time::nanos;
use evenkeel_core::units::Probability;
use evenkeel_geo::curve::Prior;
use evenkeel_geo::epoch::{EpochConfig, EpochSync, SITES_MAX, SiteId, StableHash};
use evenkeel_geo::joint::Service;
use evenkeel_geo::planner::Planner;
use evenkeel_geo::wan::{CONNECTIONS_MAX, Wan, WanConfig};
use tokio::sync::watch;
use tokio::task::JoinSet;

use driver::Driver;
use evenkeel_geo::demand::SplitTally;
use evenkeel_geo::traffic::{Directive, Ended};
use evenkeel_runtime::clock::Clock;
use evenkeel_settings::address::ServerAddress;
use export::config::ExportsConfig;
use export::{Exports, Here};
pub use follower::{Follower, FollowerConfig};
use hub::Hub;
pub use identity::Files;
use identity::{Identity, server_name};
pub use setup::{check, open};
pub use state::{
    AlarmState, ControllerState, CostState, CountsState, CurvePoint, DestinationState,
    EnforcedState, FollowerState, HourState, LearntState, PairState, PathState, PlanState,
    PricedSiteState, PricedState, RedirectState, SiteState,
};

/// The site that a mesh runs in: where its counts come from and its plans go.
pub trait Home {
    /// What was counted since the process began.
    fn counts(&self) -> SplitTally;
    /// How many replicas of the site are healthy.
    fn replicas_up(&self) -> u32;
    /// How much optional content its replicas serve, as they told last, and which share of them
    /// leaves some out; `None` where nobody tells.
    fn content(&self) -> Option<(Probability, Probability)> {
        None
    }
    /// By site, what is up there as far as this process knows, for whoever else is told the plan.
    fn standing(&self) -> Vec<export::Standing> {
        Vec::new()
    }
    /// Enforces a plan.
    fn direct(&self, directive: Directive);
    /// What its workers did in the last epoch that is over; `None` when nobody knows.
    fn ended(&self) -> Option<Ended> {
        None
    }
}

/// What a mesh is made of.
#[derive(Clone, Debug)]
pub struct MeshConfig {
    /// The site this is.
    pub site: SiteId,
    /// The names of all sites, which are those in their certificates; in the same order
    /// everywhere.
    pub names: Vec<String>,
    /// Where the mesh of each site listens; that of this one is not used.
    pub peers: Vec<ServerAddress>,
    /// Its certificates.
    pub files: Files,
    /// How often the files are looked at; default 30 s.
    pub reload_every: Duration,
    /// Time for what is done with a row before it can be planned from; default 20 ms.
    pub margin: Duration,
    /// How far any site's clock is from the true time; default 10 ms.
    pub clock_offset_max: Duration,
    /// Connections to each other site; default 3.
    pub connections: usize,
    /// Time between probes on one connection; default 200 ms.
    pub probe_interval: Duration,
    /// How the curves of this site learn; default from a profile. `None`: they do not.
    pub learns: Option<Prior>,
    /// Node time of this site's requests with optional content and without; zero, as by default,
    /// where nobody said.
    pub work: Service,
    /// Who else is told the plan; default nobody.
    pub exports: ExportsConfig,
}

impl MeshConfig {
    /// The defaults for these sites.
    pub fn new(
        site: SiteId,
        names: Vec<String>,
        peers: Vec<impl Into<ServerAddress>>,
        files: Files,
    ) -> Self {
        Self {
            site,
            names,
            peers: peers.into_iter().map(Into::into).collect(),
            files,
            reload_every: Duration::from_secs(30),
            margin: Duration::from_millis(20),
            clock_offset_max: Duration::from_millis(10),
            connections: 3,
            probe_interval: Duration::from_millis(200),
            learns: Some(Prior::Profile),
            work: Service::default(),
            exports: ExportsConfig::default(),
        }
    }

    fn check(&self) -> io::Result<()> {
        let sites = self.names.len();
        if !(1..=SITES_MAX).contains(&sites) || self.peers.len() != sites {
            let addresses = self.peers.len();
            return Err(wrong(format!(
                "got {sites} sites with {addresses} addresses, expected 1 to {SITES_MAX} sites \
                 with an address each"
            )));
        }
        if self.site.index() >= sites || !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            return Err(wrong("the site is none of the sites, or connections are not 1 to 16"));
        }
        if self.probe_interval < Duration::from_millis(10) {
            return Err(wrong("probes are at least 10 ms apart on one connection"));
        }
        self.names.iter().try_for_each(|name| server_name(name).map(drop))
    }

    /// What a mesh is made of beside its addresses, once all is in its range.
    fn parts(&self, planner: &Planner) -> io::Result<(EpochSync, Identity)> {
        self.check()?;
        let sync = EpochSync::new(self.epochs(planner));
        let sync = sync.map_err(|error| wrong(format!("redirect: {error}")))?;
        Ok((sync, self.files.load(&self.names, self.site)?))
    }

    fn wan(&self) -> Wan {
        Wan::new(self.connections, WanConfig::default()).expect("connections were checked")
    }

    fn epochs(&self, planner: &Planner) -> EpochConfig {
        let period = planner.config().period;
        EpochConfig {
            period,
            margin: self.margin,
            clock_offset_max: self.clock_offset_max,
            settings: self.fingerprint(planner),
            ..EpochConfig::new(self.site, self.names.len())
        }
    }

    /// Of all that must be set alike: the names of the sites in their order, and what the planner
    /// goes by, curves and period among it.
    fn fingerprint(&self, planner: &Planner) -> u32 {
        let mut hash = StableHash::default();
        for name in &self.names {
            hash.number(name.len() as u64);
            hash.bytes(name.to_ascii_lowercase().as_bytes());
        }
        hash.number(nanos(planner.config().period));
        hash.number(planner.fingerprint().into());
        let hash = hash.finish();
        (hash ^ (hash >> 32)) as u32
    }
}

/// What a process takes part with: the mesh itself, or a controller that has one.
#[derive(Debug)]
pub enum Member {
    /// It plans for its site.
    Controller(Box<Mesh>),
    /// It takes its part of what the controller of its site plans.
    Follower(Box<Follower>),
}

impl Member {
    /// How it stands, as that changes.
    pub fn state(&self) -> watch::Receiver<Arc<RedirectState>> {
        match self {
            Self::Controller(mesh) => mesh.state(),
            Self::Follower(follower) => follower.state(),
        }
    }

    /// Runs until `stop`, as [`Mesh::run`].
    ///
    /// # Errors
    /// As [`Mesh::run`].
    pub async fn run(
        self,
        clock: Clock,
        home: Rc<dyn Home>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        match self {
            Self::Controller(mesh) => mesh.run(clock, home, stop).await,
            Self::Follower(follower) => follower.run(clock, home, stop).await,
        }
    }
}

/// The mesh of one site, ready to run.
pub struct Mesh {
    config: MeshConfig,
    planner: Planner,
    sync: EpochSync,
    identity: Identity,
    exports: Exports,
    listener: TcpListener,
    state: watch::Sender<Arc<RedirectState>>,
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mesh").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Mesh {
    /// A mesh that takes its peers on this listener. Reads and checks the certificates.
    ///
    /// # Errors
    /// When the settings are outside of their ranges or peers could not believe the certificates,
    /// with the file and the likely cause.
    pub fn open(config: MeshConfig, planner: Planner, listener: TcpListener) -> io::Result<Self> {
        let (sync, identity) = config.parts(&planner)?;
        let exports = Exports::open(&config.exports)?;
        let state = watch::Sender::new(Arc::default());
        Ok(Self { config, planner, sync, identity, exports, listener, state })
    }

    /// How the mesh stands, as it changes.
    pub fn state(&self) -> watch::Receiver<Arc<RedirectState>> {
        self.state.subscribe()
    }

    /// The fingerprint of what must be set alike at all sites.
    pub fn fingerprint(&self) -> u32 {
        self.config.fingerprint(&self.planner)
    }

    /// Runs until `stop`. Call it in a worker runtime, best in one of its own.
    ///
    /// # Errors
    /// When the listener cannot be used, or a part of the mesh panicked.
    pub async fn run(
        self,
        clock: Clock,
        home: Rc<dyn Home>,
        stop: impl Future<Output = ()>,
    ) -> io::Result<()> {
        let Self { config, planner, sync, identity, exports, listener, state } = self;
        let hub = Rc::new(Hub::new(config, clock, sync, identity, &planner));
        let exports = Rc::new(exports);
        let told = Rc::clone(&exports);
        let mut parts = JoinSet::new();
        parts.spawn_local(accept::take(Rc::clone(&hub), listener.into()));
        for line in lines(&hub.config) {
            // Each RandomState is keyed by the operating system's randomness.
            let seed = RandomState::new().hash_one(line.number);
            let keeping = dial::keep(Rc::clone(&hub), line, seed);
            parts.spawn_local(async {
                keeping.await;
                Ok(())
            });
        }
        parts.spawn_local(reload(Rc::clone(&hub)));
        let here = Rc::new(here(&hub, &home));
        parts.spawn_local(Rc::clone(&exports).keep(Rc::clone(&here)));
        let driver = Driver::new(hub, home, planner, (state, exports));
        parts.spawn_local(driver.run());
        let running = async {
            let ended = parts.join_next().await.expect("it has parts");
            ended.map_err(io::Error::other).and_then(|result| result)
        };
        let ended = evenkeel_runtime::accept::first(running, async {
            stop.await;
            Ok(())
        })
        .await;
        parts.shutdown().await; // nothing else is told after this
        told.withdraw(&here).await;
        ended
    }
}

/// Where others are told the plan from.
fn here(hub: &Rc<Hub>, home: &Rc<dyn Home>) -> Here {
    let of = Rc::clone(hub);
    let tell = Box::new(move |words| of.tell(words));
    let (clock, site, sites) = (hub.clock, hub.config.site, hub.peers.len());
    Here { clock, site, sites, home: Rc::clone(home), tell }
}

/// The connections that a site has to others.
fn lines(config: &MeshConfig) -> Vec<dial::Line> {
    let others = config.peers.iter().enumerate().filter(|(site, _)| *site != config.site.index());
    let line = |(site, address): (usize, &ServerAddress)| {
        let (to, address) = (SiteId::new(site), *address);
        (0..config.connections).map(move |number| dial::Line { to, address, number })
    };
    others.flat_map(line).collect()
}

async fn reload(hub: Rc<Hub>) -> io::Result<()> {
    loop {
        tokio::time::sleep(hub.config.reload_every).await;
        hub.reload();
    }
}

fn wrong(words: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, words.into())
}
