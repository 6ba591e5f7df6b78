//! The mesh between data centres: who is how far, what everybody told, and the plan from it.
//!
//! Every site has connections of its own to every other one, over TLS that authenticates both
//! ends. Probes measure the way; rows tell demand, capacity and distances once per epoch; core's
//! exchange says when, core's planner says what, and the board takes it to the workers.
//!
//! ```text
//!   other sites                                   workers
//!       │ rows, probes                               ▲ Directive     │ counts
//!       ▼                                            │               ▼
//!    accept ── rows ──►  Exchange ── Snapshot ──► Planner ◄────── demand
//!    dial  ◄── row ───      ▲                        ▲               │
//!       │ echoes            └──────── Report ────────┼───────────────┘
//!       ▼                                  ▲         │ version
//!      Wan ─────────── path ───────────────┘    interference
//! ```
//!
//! | file | does |
//! |---|---|
//! | this file | [`Mesh`]: opened, then run on a thread of its own |
//! | [`frame`] | messages as bytes |
//! | `identity` | certificates: who we are, who they are; read again when they change |
//! | `dial` `accept` `wire` `pace` | connections, and what a peer may ask for |
//! | `hub` | what they share and count |
//! | `settings` | what must be set alike, told one by one |
//! | `driver` | the loop around core's exchange |
//! | `companions` `seat` | further processes of this site: what they counted, talking with them |
//! | `companion` `message` | such a process itself, and the words of both |
//! | `interference` | do the curves still hold? |
//! | `state` [`metrics`] | for people |
//!
//! **A thread of its own**: an echo that waits for a dashboard or a solver looks like distance.
//! The solver runs on another one beside it.

mod accept;
mod companion;
mod companion_metrics;
mod companions;
mod dial;
mod driver;
pub mod frame;
mod hub;
mod identity;
mod interference;
mod message;
pub mod metrics;
mod pace;
mod seat;
mod settings;
mod setup;
mod state;
mod wire;

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_core::site::redirect::epoch::{EpochConfig, Exchange, SITES_MAX, SiteId, StableHash};
use evenkeel_core::site::redirect::planner::Planner;
use evenkeel_core::site::redirect::wan::{CONNECTIONS_MAX, Wan, WanConfig};
use evenkeel_core::time::nanos;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::board::{Board, Directive, Ended, SplitTally};
use crate::clock::Clock;
pub use companion::{Companion, CompanionConfig};
use driver::Driver;
use hub::Hub;
pub use identity::Files;
use identity::{Identity, server_name};
pub use setup::{check, open};
pub use state::{
    AlarmState, CompanionState, CountsState, EnforcedState, LaneState, PairState, PathState,
    PlanState, RedirectState, SeatState, SiteState,
};

/// The site that a mesh runs in: where its counts come from and its plans go.
pub trait Home {
    /// What was counted since the process began.
    fn counts(&self) -> SplitTally;
    /// How many replicas of the site are healthy.
    fn replicas_up(&self) -> u32;
    /// Enforces a plan.
    fn direct(&self, directive: Directive);
    /// What its workers did in the last epoch that is over; `None` when nobody knows.
    fn ended(&self) -> Option<Ended> {
        None
    }
}

/// An upstream of this process as the home of a mesh.
#[derive(Debug)]
pub struct BoardHome {
    /// The board of the process.
    pub board: Arc<Board>,
    /// The upstream, by its place in the configuration.
    pub upstream: usize,
}

impl Home for BoardHome {
    fn counts(&self) -> SplitTally {
        self.board.split_tally(self.upstream)
    }

    fn replicas_up(&self) -> u32 {
        self.board.home_up(self.upstream) as u32
    }

    fn direct(&self, directive: Directive) {
        self.board.direct(self.upstream, directive);
    }

    fn ended(&self) -> Option<Ended> {
        self.board.split_ended(self.upstream)
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
    pub peers: Vec<SocketAddr>,
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
}

impl MeshConfig {
    /// The defaults for these sites.
    #[must_use]
    pub fn new(site: SiteId, names: Vec<String>, peers: Vec<SocketAddr>, files: Files) -> Self {
        Self {
            site,
            names,
            peers,
            files,
            reload_every: Duration::from_secs(30),
            margin: Duration::from_millis(20),
            clock_offset_max: Duration::from_millis(10),
            connections: 3,
            probe_interval: Duration::from_millis(200),
        }
    }

    fn check(&self) -> io::Result<()> {
        let sites = self.names.len();
        if !(1..=SITES_MAX).contains(&sites) || self.peers.len() != sites {
            let addresses = self.peers.len();
            return Err(wrong(format!(
                "came {sites} sites with {addresses} addresses, expected 1 to {SITES_MAX} sites \
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
    fn parts(&self, planner: &Planner) -> io::Result<(Exchange, Identity)> {
        self.check()?;
        let exchange = Exchange::new(self.epochs(planner));
        let exchange = exchange.map_err(|error| wrong(format!("redirect: {error}")))?;
        Ok((exchange, self.files.load(&self.names, self.site)?))
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

/// What a process takes part with: the mesh itself, or a seat that has one.
#[derive(Debug)]
pub enum Member {
    /// It plans for its site.
    Seat(Box<Mesh>),
    /// It takes its part of what the seat of its site plans.
    Companion(Box<Companion>),
}

impl Member {
    /// How it stands, as that changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Arc<RedirectState>> {
        match self {
            Self::Seat(mesh) => mesh.state(),
            Self::Companion(companion) => companion.state(),
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
            Self::Seat(mesh) => mesh.run(clock, home, stop).await,
            Self::Companion(companion) => companion.run(clock, home, stop).await,
        }
    }
}

/// The mesh of one site, ready to run.
pub struct Mesh {
    config: MeshConfig,
    planner: Planner,
    exchange: Exchange,
    identity: Identity,
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
        let (exchange, identity) = config.parts(&planner)?;
        let state = watch::Sender::new(Arc::default());
        Ok(Self { config, planner, exchange, identity, listener, state })
    }

    /// How the mesh stands, as it changes.
    #[must_use]
    pub fn state(&self) -> watch::Receiver<Arc<RedirectState>> {
        self.state.subscribe()
    }

    /// The fingerprint of what must be set alike at all sites.
    #[must_use]
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
        let Self { config, planner, exchange, identity, listener, state } = self;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let hub = Rc::new(Hub::new(config, clock, exchange, identity, &planner));
        let mut parts = JoinSet::new();
        let accepting = accept::take(Rc::clone(&hub), listener);
        parts.spawn_local(async {
            accepting.await;
            Ok(())
        });
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
        parts.spawn_local(Driver::new(hub, home, planner, state).run());
        let running = async {
            let ended = parts.join_next().await.expect("it has parts");
            ended.map_err(io::Error::other).and_then(|result| result)
        };
        wire::first(running, async {
            stop.await;
            Ok(())
        })
        .await
    }
}

/// The connections that a site has to others.
fn lines(config: &MeshConfig) -> Vec<dial::Line> {
    let others = config.peers.iter().enumerate().filter(|(site, _)| *site != config.site.index());
    let line = |(site, address): (usize, &SocketAddr)| {
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
