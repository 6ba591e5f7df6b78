//! A running Evenkeel: worker threads, a control thread for health checks, one for administration,
//! one for the mesh between data centres, one for the placement of databases and one for each
//! service of duplicates.
//!
//! Each table of the configuration is a part (`component`) that brings its jobs; here they are put
//! on threads. A configuration that comes later goes to all parts or to none ([`Reloader`]).

mod access_log;
mod agents;
mod clusters;
mod connections;
mod discovery;
mod files;
mod fixed;
mod hand_over;
mod manager;
mod names;
pub(crate) mod record;
pub(crate) mod reload;
mod requests;
mod signals;
pub(crate) mod tls;
mod traces;
pub(crate) mod upstreams;
mod watched;
mod workers;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use evenkeel_settings::address::ListenAddress;

use crate::adapters::{self, EnvoySide, MeshPaths, UpstreamHome};
use crate::admin::{self, access::Access};
use crate::config::{AdminConfig, Config, ReplicaSource, TracesConfig, UpstreamEntry};
use access_log::AccessLog;
use clusters::Clusters;
use evenkeel_cassandra::cluster_state::ClusterStates;
use evenkeel_cassandra::{self as cassandra, ClusterHandle, Watcher};
use evenkeel_dns::{Names, Resolver};
use evenkeel_duplicates::{self as duplicates, DuplicatesState};
use evenkeel_http_proxy::agent_state::AgentStates;
use evenkeel_mesh::{self as redirect, Member, RedirectState, envoy};
use evenkeel_placement::{PlacementState, Service};
use evenkeel_proxy::requests::recorder::Sinks;
use evenkeel_proxy::requests::traces::Traces;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_record::Recorder;
use evenkeel_runtime::accept::{Gate, Listener, Sharing, Stop, StopSignal, first, worker_runtime};
use evenkeel_runtime::clock::Clock;
pub use evenkeel_runtime::component::ReloadError;
use evenkeel_runtime::component::{AnyComponent, Job, Mounted, Parts, Place, Readiness, Surface};
pub use evenkeel_runtime::files::Limit;
use evenkeel_settings::Node;
use fixed::{Fixed, Section};
pub use hand_over::Outcome;
use hand_over::{Claim, Door, Offer, OpenDoor};
pub use manager::Manager;
use record::Days;
pub use reload::{LastReload, ReloadStatus, Reloaded, Reloader};
pub use signals::{Signals, Wake};
use tls::LoadedTls;
use traces::TraceExport;
pub use watched::Watch;
use workers::{Bound, Workers, bind_for_all};

/// The threads of a running process. Dropping it stops them without waiting; see
/// [`Process::stop`].
#[derive(Debug)]
pub struct Process {
    states: Arc<UpstreamStates>,
    agent_states: Arc<AgentStates>,
    /// By upstream of the start; `None` where HTTP is spoken.
    clusters: Vec<Option<Arc<ClusterStates>>>,
    listens: Bound,
    agents: Vec<SocketAddr>,
    admin: Option<ListenAddress>,
    files: (Option<Limit>, Option<String>),
    sides: Sides,
    reloader: Reloader,
    stop: Arc<Stop>,
    drain: Duration,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Told whenever a thread ends, which none does by itself while all is well, and when another
    /// process has replaced this one.
    ended: Arc<Notify>,
    /// The number of that process.
    replaced: Arc<OnceLock<u32>>,
    /// The process that this one is to replace.
    claim: Option<(Claim, Gates)>,
    /// Only what `/readyz` asks.
    readiness: Surface,
}

/// What keeps a process that replaces another one from serving before its time.
#[derive(Clone, Debug)]
struct Gates {
    /// Before clients, until everything is ready.
    clients: Gate,
    /// Before what only one process may have or do, until the other one is told.
    rest: Gate,
}

/// How the loops beside the workers stand.
#[derive(Debug)]
struct Sides {
    redirect: Option<watch::Receiver<Arc<RedirectState>>>,
    placement: Option<watch::Receiver<Arc<PlacementState>>>,
    duplicates: Vec<DuplicatesSide>,
}

/// Where a service of duplicates takes clients, and how it stands.
type DuplicatesSide = (SocketAddr, watch::Receiver<Arc<DuplicatesState>>);

/// Everything bound and read, and nothing running yet.
struct Opened {
    listens: workers::ForAll,
    agents: Vec<Listener>,
    admin: Option<AdminListener>,
    mesh: Option<Member>,
    placement: Option<Service>,
    duplicates: Vec<duplicates::Service>,
    watchers: Vec<Option<Watcher>>,
    clusters: Vec<Option<ClusterHandle>>,
}

impl Opened {
    /// `config` is told which ports its agents were given: they are known by them.
    fn open(config: &mut Config, gates: Option<&Gates>) -> io::Result<Self> {
        let (clients, rest) = (gates.map(|gates| &gates.clients), gates.map(|gates| &gates.rest));
        let admin = config.admin.as_ref();
        let admin = admin.map(|admin| AdminListener::open(admin, rest)).transpose()?;
        let workers = config.process.workers.max(1);
        let listens = config.listens.iter().map(|listen| (&listen.address, Sharing::Claimed));
        let listens = bind_for_all(listens, workers, clients)?;
        let agents = config.agents.iter().map(|agent| {
            let listener = Listener::bind_as(agent.common.address, Sharing::Claimed)?;
            Ok(listener.behind(clients))
        });
        let agents = agents.collect::<io::Result<Vec<Listener>>>()?;
        for (agent, listener) in config.agents.iter_mut().zip(&agents) {
            agent.common.address = listener.address()?;
        }
        let mesh = config.redirect.as_ref().map(redirect::open).transpose()?;
        let round_trips = mesh.as_ref().map(Member::state);
        let placement = config.placement.as_ref();
        let placement = placement.map(|placement| {
            let paths = round_trips.clone().map(|state| Arc::new(MeshPaths(state)) as _);
            Service::open(placement, paths)
        });
        let placement = placement.transpose()?;
        let duplicates = config.duplicates.iter().map(duplicates::Service::open_all);
        let duplicates =
            duplicates.collect::<io::Result<Vec<_>>>()?.into_iter().flatten().collect();
        let (watchers, clusters) = open_clusters(config)?;
        Ok(Self { listens, agents, admin, mesh, placement, duplicates, watchers, clusters })
    }

    fn sides(&self) -> Sides {
        let duplicates = self.duplicates.iter();
        let duplicates = duplicates.map(|service| (service.address(), service.state()));
        Sides {
            redirect: self.mesh.as_ref().map(Member::state),
            placement: self.placement.as_ref().map(Service::state),
            duplicates: duplicates.collect(),
        }
    }

    fn cluster_states(&self) -> Vec<Option<Arc<ClusterStates>>> {
        let clusters = self.clusters.iter().map(Option::as_ref);
        clusters.map(|handle| handle.map(|handle| Arc::clone(handle.states()))).collect()
    }
}

impl Process {
    /// Binds every address, then starts the threads: either all of it runs or none.
    ///
    /// # Errors
    /// When an address cannot be bound, a file of `[redirect]` or `[placement]` cannot be used or a
    /// thread cannot be started, with the likely cause. What breaks later ends
    /// [`Signals::wait_beside`], and [`Process::stop`] tells it.
    pub fn start(config: Config) -> io::Result<Self> {
        Self::open(config, None, false)
    }

    /// The same with a configuration that was read from this file, which can be reloaded.
    ///
    /// # Errors
    /// As [`Process::start`].
    pub fn start_from(file: &Path, config: Config) -> io::Result<Self> {
        Self::open(config, Some(file.to_owned()), false)
    }

    /// The same with the sockets of the process of this user that runs with this file, if there is
    /// one. No client is accepted before [`Signals::take_over`].
    ///
    /// # Errors
    /// As [`Process::start`], and when the other process refuses. It goes on.
    pub fn replace(file: &Path, config: Config) -> io::Result<Self> {
        Self::open(config, Some(file.to_owned()), true)
    }

    fn open(mut config: Config, file: Option<PathBuf>, does_replace: bool) -> io::Result<Self> {
        let files = files::open(&config);
        let (door, claim) = enter(&config, file.as_deref(), does_replace)?;
        let mut opened = Opened::open(&mut config, claim.as_ref().map(|(_, gates)| gates))?;
        let (stop, drain) = (Arc::new(Stop::new()), config.process.drain);
        let resolver = Resolver::new(config.process.resolvers.clone());
        let mut whole = Whole::new(config, Names::new(resolver.clone()))?;
        let (config, states, clock) = (Arc::clone(&whole.config), &whole.states, whole.clock);
        let tls = Arc::new(LoadedTls::load(&config, &LoadedTls::default())?);
        discovery::ask_first(&resolver, states, &config, clock);
        let (sides, clusters) = (opened.sides(), opened.cluster_states());
        let admin = opened.admin.as_ref().map(|admin| admin.listener.place()).transpose()?;
        let listens = std::mem::take(&mut opened.listens);
        let (access, access_log) = AccessLog::open(&config.log);
        let (traces, trace_export) = TraceExport::open(config.traces.as_ref())?;
        let sinks = Sinks { access: Some(access), traces: Some(traces.clone()) };
        let (recorder, days) = Days::open(config.record.as_ref(), clock)?;
        let workers = Workers::open(
            (config, Arc::clone(&tls)),
            listens,
            &opened.clusters,
            states,
            (clock, sinks, recorder.clone()),
        );
        let (listens, configs) = (workers.bound(), workers.configs());
        let reloader = Reloader::new(file, configs, Arc::downgrade(&stop));
        let gates = claim.as_ref().map(|(_, gates)| gates.clone());
        let rest = gates.map(|gates| gates.rest);
        let (mut parts, readiness) = whole.parts(
            Ends { workers, access_log, trace_export, traces, days, recorder },
            &tls,
            (opened, rest.clone()),
            &reloader,
        );
        let mut jobs: Vec<Job> = parts.iter_mut().flat_map(|part| part.jobs()).collect();
        reloader.mount(parts);
        let (ended, replaced) = (Arc::<Notify>::default(), Arc::<OnceLock<u32>>::default());
        if let Some(door) = door {
            let (stop, replaced) = (Arc::downgrade(&stop), Arc::clone(&replaced));
            let woken = Arc::clone(&ended);
            let offer = Offer { door, stop, gate: rest, replaced, woken };
            jobs.push(Job::new(Place::Control, move |stop| offer.run(stop)));
        }
        let threads = start_all(jobs, &whole.names, &stop, &ended)?;
        let agents = whole.config.agents.iter().map(|agent| agent.common.address).collect();
        let Whole { states, agent_states, .. } = whole;
        Ok(Self {
            states,
            agent_states,
            clusters,
            listens,
            agents,
            admin,
            files,
            sides,
            reloader,
            stop,
            drain,
            threads,
            ended,
            replaced,
            claim,
            readiness,
        })
    }

    /// Where the `[[listen]]` entries listen, in order, with the ports the system chose.
    #[must_use]
    pub fn places(&self) -> Vec<ListenAddress> {
        self.listens.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Those of them that are ports.
    #[must_use]
    pub fn listens(&self) -> Vec<SocketAddr> {
        self.places().iter().filter_map(ListenAddress::inet).collect()
    }

    async fn take_over(&mut self) -> io::Result<Option<Outcome>> {
        let Some((claim, gates)) = self.claim.take() else { return Ok(None) };
        let readiness = || {
            let of_parts = self.readiness.readiness.iter().map(|of_part| of_part());
            of_parts.fold(Readiness::Ready, |whole, part| match whole {
                Readiness::Ready => part,
                Readiness::NotReady(why) => Readiness::NotReady(why),
            })
        };
        let outcome = claim.complete(readiness, &gates.clients).await?;
        gates.rest.open();
        Ok(Some(outcome))
    }

    /// To give it another configuration while it runs.
    #[must_use]
    pub const fn reloader(&self) -> &Reloader {
        &self.reloader
    }

    /// Where the `[[agent]]` entries listen, in order.
    #[must_use]
    pub fn agents(&self) -> &[SocketAddr] {
        &self.agents
    }

    /// Where `[admin]` listens.
    #[must_use]
    pub const fn admin_place(&self) -> Option<&ListenAddress> {
        self.admin.as_ref()
    }

    /// The same, if it is a port.
    #[must_use]
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(ListenAddress::inet)
    }

    /// The limit of open files, where it is known.
    #[must_use]
    pub const fn files(&self) -> Option<Limit> {
        self.files.0
    }

    /// Why the limit of open files is too low for the configuration of the start, if it is.
    #[must_use]
    pub fn files_shortfall(&self) -> Option<&str> {
        self.files.1.as_deref()
    }

    /// How the mesh between data centres stands; `None` without `[redirect]`.
    #[must_use]
    pub const fn redirect(&self) -> Option<&watch::Receiver<Arc<RedirectState>>> {
        self.sides.redirect.as_ref()
    }

    /// How databases stand; `None` without `[placement]`.
    #[must_use]
    pub const fn placement(&self) -> Option<&watch::Receiver<Arc<PlacementState>>> {
        self.sides.placement.as_ref()
    }

    /// Where each group of each `[duplicates.NAME]` takes clients, and how it stands; by name.
    #[must_use]
    pub fn duplicates(&self) -> &[(SocketAddr, watch::Receiver<Arc<DuplicatesState>>)] {
        &self.sides.duplicates
    }

    /// How the agents stand, in the order of the configuration.
    #[must_use]
    pub const fn agent_states(&self) -> &Arc<AgentStates> {
        &self.agent_states
    }

    /// How the Cassandra cluster behind an upstream stands; `None` where HTTP is spoken.
    #[must_use]
    pub fn cluster(&self, upstream: usize) -> Option<&Arc<ClusterStates>> {
        self.clusters.get(upstream)?.as_ref()
    }

    /// What the workers counted, and the plans.
    #[must_use]
    pub const fn upstreams(&self) -> &Arc<UpstreamStates> {
        &self.states
    }

    /// Is a lame duck for a moment, then stops accepting and lets requests in flight finish, all
    /// within the drain time, and waits.
    ///
    /// # Errors
    /// The first error a thread ended with, a panic included.
    pub fn stop(self) -> io::Result<()> {
        let Self { stop, drain, threads, .. } = self;
        // On a thread of its own, since whoever calls may be in a runtime.
        let stages = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
            runtime.block_on(stop.stop(drain));
            Ok(())
        });
        let mut result = Ok(());
        for thread in threads.into_iter().chain([stages]) {
            let name = thread.thread().name().unwrap_or("a thread").to_owned();
            let panicked = |_| io::Error::other(format!("{name} panicked: please report it"));
            result = result.and(thread.join().map_err(panicked).and_then(|ended| ended));
        }
        result
    }
}

/// Who may replace this process asks at its door; whom this one replaces is asked now.
type Entered = (Option<OpenDoor>, Option<(Claim, Gates)>);

fn enter(config: &Config, file: Option<&Path>, does_replace: bool) -> io::Result<Entered> {
    let configured = config.process.hand_over.as_deref();
    let door = file.map(|file| Door::of(file, configured)).transpose()?.flatten();
    let Some(door) = door else {
        return match does_replace {
            true => Err(io::Error::other(
                "a process is replaced by process.hand_over, which is \
                                          not set",
            )),
            false => Ok((None, None)),
        };
    };
    let claim = if does_replace { Claim::ask(&door)? } else { None };
    if let Some(mut claim) = claim {
        refuse_what_is_single(config)?;
        let gates = Gates { clients: Gate::closed(), rest: Gate::closed() };
        return Ok((claim.door.take(), Some((claim, gates))));
    }
    let open = door.open().inspect_err(|error| {
        tracing::warn!(%error, "no other process can take over from this one");
    });
    Ok((open.ok(), None))
}

/// Two processes at once would contradict each other, or have one file.
fn refuse_what_is_single(config: &Config) -> io::Result<()> {
    let tables = [
        ("duplicates", !config.duplicates.is_empty()),
        ("redirect", config.redirect.is_some()),
        ("envoy", config.envoy.is_some()),
    ];
    match tables.into_iter().find(|(_, is_there)| *is_there) {
        Some((table, _)) => Err(io::Error::other(format!(
            "cannot take over: [{table}] has one process; stop the other one, then start this one \
             without --take-over"
        ))),
        None => Ok(()),
    }
}

/// The address of administration, which two processes never serve at once: half of the answers
/// would be of the wrong one.
struct AdminListener {
    access: Access,
    listener: Listener,
}

impl AdminListener {
    fn open(config: &AdminConfig, gate: Option<&Gate>) -> io::Result<Self> {
        let access = Access::load(config)?;
        let mut bound = Listener::bind_all(&config.address, Sharing::Alone, 1)?;
        let listener = bound.pop().expect("as many as were asked for");
        Ok(Self { access, listener: listener.outside_limits().behind(gate) })
    }

    async fn serve(self, surface: Surface, stop: StopSignal) -> io::Result<()> {
        admin::serve(surface, self.access, self.listener, stop).await
    }
}

/// Reads the certificates, keys, tokens and lists of replicas that a configuration names, for
/// `evenkeel check`. `file` is what it was read from.
///
/// # Errors
/// When one cannot be used; the error names it and its table, or where it is written.
pub fn check_files(config: &Config, file: &Node) -> io::Result<()> {
    LoadedTls::load(&Arc::new(config.clone()), &LoadedTls::default())?;
    let at = |path: &[&str], key: &str, error: &io::Error| {
        io::Error::new(error.kind(), format!("{}: {key}{error}", file.place_of(path)))
    };
    config.log.check_files().map_err(|error| at(&["log", "access", "path"], "", &error))?;
    config.traces.as_ref().map(TracesConfig::load_tls).transpose()?;
    config.duplicates.iter().try_for_each(|service| service.load_tls().map(drop))?;
    config.admin.as_ref().map(Access::load).transpose()?;
    let sources = config.upstreams.iter().flat_map(|upstream| {
        upstream.common.sources.iter().map(move |source| (&upstream.common.name, source))
    });
    for (name, source) in sources {
        if let ReplicaSource::File(path) = source {
            let key = ["upstream", name, "discover", "file"];
            let named = format!("{}: ", key.join("."));
            evenkeel_proxy::discovery::check_file(path).map_err(|it| at(&key, &named, &it))?;
        }
    }
    Ok(())
}

/// By upstream, who watches its Cassandra cluster, and what workers have of it.
type Watched = (Vec<Option<Watcher>>, Vec<Option<ClusterHandle>>);

/// Reads the files of upstreams that are Cassandra clusters.
fn open_clusters(config: &Config) -> io::Result<Watched> {
    let open = |upstream: &UpstreamEntry| {
        let Some(cql) = &upstream.cql else { return Ok((None, None)) };
        let (watcher, handle) = cassandra::open(&upstream.common, cql)?;
        Ok((Some(watcher), Some(handle)))
    };
    config.upstreams.iter().map(open).collect()
}

/// What takes from workers, and the workers.
struct Ends {
    workers: Workers,
    access_log: AccessLog,
    trace_export: TraceExport,
    traces: Traces,
    days: Days,
    recorder: Recorder,
}

/// What all parts of a process are opened with.
struct Whole {
    config: Arc<Config>,
    states: Arc<UpstreamStates>,
    agent_states: Arc<AgentStates>,
    envoys: Option<EnvoySide>,
    names: Arc<Names>,
    clock: Clock,
}

impl Whole {
    fn new(config: Config, names: Arc<Names>) -> io::Result<Self> {
        let upstreams = config.upstreams.iter().map(|upstream| &upstream.common);
        let states = Arc::new(UpstreamStates::new(upstreams, config.process.workers));
        let agents = config.agents.iter().map(|agent| &agent.common);
        let agent_states = Arc::new(AgentStates::new(agents));
        let envoys = adapters::open(&config, &states)?;
        let (config, clock) = (Arc::new(config), Clock::start());
        Ok(Self { config, states, agent_states, envoys, names, clock })
    }

    /// One for each table. Those that say what needs a restart are asked first.
    fn parts(
        &mut self,
        Ends { workers, access_log, trace_export, traces, days, recorder }: Ends,
        tls: &LoadedTls,
        (opened, gate): (Opened, Option<Gate>),
        reloader: &Reloader,
    ) -> (Parts<Config>, Surface) {
        let (config, envoys) = (Arc::clone(&self.config), self.envoys.take());
        let Opened { agents, admin, mesh, placement, duplicates, watchers, .. } = opened;
        let clusters = Clusters::open(Arc::clone(&config), watchers, &self.states);
        let entries = config.agents.iter().cloned().zip(tls.agents.iter().cloned());
        let agents: Vec<_> =
            entries.zip(agents).map(|((entry, tls), listener)| (entry, tls, listener)).collect();
        let states = Arc::clone(&self.agent_states);
        let recorder_of_agents = config.record.is_some().then(|| recorder.clone());
        let with = agents::AgentMeans { traces, recorder: recorder_of_agents, clock: self.clock };
        let agents = (!agents.is_empty()).then(|| agents::job(agents, states, with));
        let agents = agents.into_iter().collect();
        let fixed = |jobs: Vec<Job>, surface, of: OfSection| -> Box<dyn AnyComponent<Config>> {
            Box::new(Mounted::new(Fixed::new(of(&config), jobs, surface), of))
        };
        let (mesh, mesh_surface) = self.mesh(mesh);
        let (placement, placement_surface) = placed(placement, gate);
        let (services, services_surface) = self.duplicates(duplicates, &recorder);
        let (envoys, envoys_surface) = self.envoys(envoys);
        let agents_surface = self.agents_surface();
        let mut parts: Parts<Config> = vec![
            fixed(agents, agents_surface, |config| Section::of(config, "agent")),
            fixed(mesh, mesh_surface, |config| Section::of(config, "redirect")),
            fixed(Vec::new(), Surface::default(), |config| Section::of(config, "prices")),
            fixed(envoys, envoys_surface, |config| Section::of(config, "envoy")),
            fixed(placement, placement_surface, |config| Section::of(config, "placement")),
            fixed(services, services_surface, |config| Section::of(config, "duplicates")),
            Box::new(Mounted::new(access_log, |config: &Arc<Config>| Arc::new(config.log.clone()))),
            Box::new(Mounted::new(trace_export, |config: &Arc<Config>| {
                Arc::new(config.traces.clone())
            })),
            Box::new(Mounted::new(days, |config: &Arc<Config>| Arc::new(config.record.clone()))),
            Box::new(Mounted::new(clusters, Arc::clone)),
            Box::new(Mounted::new(workers, Arc::clone)),
        ];
        let mut surface = admin::reload::surface(reloader.clone());
        surface.merge(files::surface());
        surface.merge(connections::surface());
        surface.merge(names::surface(Arc::clone(&self.names)));
        parts.iter_mut().for_each(|part| surface.merge(part.surface()));
        let readiness = Surface { readiness: surface.readiness.clone(), ..Surface::default() };
        let admin = admin.map(|listener| {
            Job::new(Place::Own("admin".to_owned()), move |stop| listener.serve(surface, stop))
        });
        let admin = fixed(admin.into_iter().collect(), Surface::default(), |config| {
            Section::of(config, "admin")
        });
        parts.insert(0, admin);
        (parts, readiness)
    }

    fn agents_surface(&self) -> Surface {
        let configs = self.config.agents.iter().map(|agent| agent.common.clone()).collect();
        evenkeel_http_proxy::agent_surface::surface(configs, Arc::clone(&self.agent_states))
    }

    /// On a thread of its own: an echo that waited for anything else would look like distance.
    fn mesh(&self, mesh: Option<Member>) -> (Vec<Job>, Surface) {
        let redirect = self.config.redirect.as_ref();
        let Some((mesh, upstream)) = mesh.zip(redirect.map(|redirect| redirect.upstream)) else {
            return (Vec::new(), redirect::metrics::surface(None));
        };
        let name = self.config.upstreams[upstream].common.name.clone();
        let surface = redirect::metrics::surface(Some((mesh.state(), name)));
        let cluster = adapters::cluster_of(&self.config.upstreams[upstream].common);
        let home = UpstreamHome { states: Arc::clone(&self.states), upstream, cluster };
        let clock = self.clock;
        let run = move |stop| mesh.run(clock, Rc::new(home), stopped(stop));
        (vec![Job::new(Place::Own("redirect".to_owned()), run)], surface)
    }

    fn duplicates(
        &self,
        services: Vec<duplicates::Service>,
        recorder: &Recorder,
    ) -> (Vec<Job>, Surface) {
        let is_recorded = self.config.record.is_some();
        let shown = services.iter().map(|service| (service.state(), service.control()));
        let surface = duplicates::admin::surface(shown.collect());
        let (clock, workers) = (self.clock, self.config.process.workers);
        let job = |service: duplicates::Service| {
            let service = if is_recorded { service.recorded(recorder.clone()) } else { service };
            let place = Place::Own(format!("keys-{}", service.thread(workers)));
            Job::new(place, move |stop| service.run(clock, stop))
        };
        (services.into_iter().map(job).collect(), surface)
    }

    fn envoys(&self, envoys: Option<EnvoySide>) -> (Vec<Job>, Surface) {
        let Some(envoys) = envoys else { return Default::default() };
        let surface = envoy::metrics::surface(Arc::clone(envoys.plane()));
        let (config, states) = (Arc::clone(&self.config), Arc::clone(&self.states));
        let clock = self.clock;
        let run = Job::new(Place::Control, move |stop| async move {
            envoys.spawn(&config, &states, clock);
            stopped(stop).await;
            Ok(())
        });
        (vec![run], surface)
    }
}

/// Two processes would move the same leader: this one waits for its time.
fn placed(placement: Option<Service>, gate: Option<Gate>) -> (Vec<Job>, Surface) {
    let surface = evenkeel_placement::metrics::surface(placement.as_ref().map(Service::state));
    let job = placement.map(|service| {
        let place = Place::Own("placement".to_owned());
        Job::new(place, move |stop| async move {
            if let Some(gate) = gate {
                first(gate.opened(), stopped(stop.clone())).await;
            }
            service.run(stopped(stop)).await
        })
    });
    (job.into_iter().collect(), surface)
}

type OfSection = fn(&Arc<Config>) -> Arc<Section>;

/// Puts every job in its place: one thread for each.
fn start_all(
    jobs: Vec<Job>,
    names: &Arc<Names>,
    stop: &Stop,
    ended: &Arc<Notify>,
) -> io::Result<Vec<JoinHandle<io::Result<()>>>> {
    let mut places: BTreeMap<Place, Vec<Job>> = BTreeMap::new();
    for job in jobs {
        places.entry(job.place.clone()).or_default().push(job);
    }
    let start = |(place, jobs): (Place, Vec<Job>)| {
        let name = match place {
            Place::Worker(number) => format!("worker-{number}"),
            Place::Own(name) => name,
            Place::Control => "control".to_owned(),
        };
        let (stop, names) = (stop.signal(), Arc::clone(names));
        spawn(name, ended, move || {
            names.enter();
            run_all(jobs, stop)
        })
    };
    places.into_iter().map(start).collect()
}

/// What writes to a disk when its jobs have ended is waited for so long.
const HUNG_WITHIN: Duration = Duration::from_secs(5);

/// Runs the jobs of one place until all have ended, or one of them has broken.
fn run_all(jobs: Vec<Job>, stop: StopSignal) -> io::Result<()> {
    let runtime = worker_runtime()?;
    let ended: io::Result<()> = runtime.block_on(async {
        let mut running = JoinSet::new();
        for job in jobs {
            running.spawn_local((job.start)(stop.clone()));
        }
        drop(stop); // whoever keeps a signal is waited for
        while let Some(ended) = running.join_next().await {
            ended.map_err(io::Error::other)??;
        }
        Ok(())
    });
    runtime.shutdown_timeout(HUNG_WITHIN); // a disk that hangs would hold up the end for ever
    ended
}

/// For what serves no clients: resolves when the process begins to stop.
async fn stopped(mut stop: StopSignal) {
    stop.stopping().await;
}

/// Starts a thread whose end is told, whether it returns or panics.
fn spawn(
    name: String,
    ended: &Arc<Notify>,
    body: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let teller = Teller(Arc::clone(ended));
    std::thread::Builder::new().name(name).spawn(move || {
        let _teller = teller;
        body()
    })
}

struct Teller(Arc<Notify>);

impl Drop for Teller {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_of_a_thread_ends_the_waiting_and_is_told() {
        let upstreamless = Config {
            process: crate::config::ProcessConfig {
                workers: 2,
                drain: Duration::ZERO,
                buffers_max: evenkeel_runtime::buffers::BYTES_MAX,
                resolvers: Vec::new(),
                hand_over: None,
                engine: evenkeel_runtime::limits::Engine::default(),
            },
            listens: Vec::new(),
            upstreams: Vec::new(),
            agents: Vec::new(),
            admin: None,
            log: crate::config::LogConfig::default(),
            traces: None,
            record: None,
            redirect: None,
            envoy: None,
            placement: None,
            duplicates: Vec::new(),
            source: crate::config::Source::default(),
        };
        let mut process = Process::start(upstreamless).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(process.threads.iter().all(|thread| !thread.is_finished()), "idle, not ended");
        let broken = spawn("broken".to_owned(), &process.ended, || panic!("in a test")).unwrap();
        process.threads.push(broken);
        assert_eq!(Signals::catch().unwrap().wait_beside(&process, None), Wake::Stop);
        let error = process.stop().unwrap_err().to_string();
        assert!(error.contains("broken panicked"), "{error}");
    }
}
