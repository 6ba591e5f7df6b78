//! A running Evenkeel: worker threads, a control thread for health checks and administration, one
//! for the mesh between data centres, one for the placement of databases and one for each service
//! of duplicates.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::thread::JoinHandle;

use tokio::sync::{Notify, watch};

use crate::admin::{self, Told};
use crate::board::Board;
use crate::cassandra::{self, Keeper, Share};
use crate::clock::Clock;
use crate::config::Config;
use crate::duplicates::{self, DuplicatesState};
use crate::envoy;
use crate::health;
use crate::http::engine::{Listener, worker_runtime};
use crate::placement::{PlacementState, Service};
use crate::redirect::{self, BoardHome, Member, RedirectState};
use crate::worker::{Worker, stopped};

/// The threads of a running process. Dropping it stops them without waiting; see
/// [`Process::stop`].
#[derive(Debug)]
pub struct Process {
    board: Arc<Board>,
    listens: Vec<SocketAddr>,
    agents: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
    sides: Sides,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
    /// Told whenever a thread ends, which none does by itself while all is well.
    ended: Arc<Notify>,
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

impl Process {
    /// Binds every address, then starts the threads: either all of it runs or none.
    ///
    /// # Errors
    /// When an address cannot be bound, a file of `[redirect]` or `[placement]` cannot be used or a
    /// thread cannot be started, with the likely cause. What breaks later ends
    /// [`Signals::wait_beside`], and [`Process::stop`] tells it.
    pub fn start(mut config: Config) -> io::Result<Self> {
        let (stop, stopping) = watch::channel(false);
        let workers = config.process.workers.max(1);
        let addresses = config.listens.iter().map(|listen| listen.address);
        let (listens, mut listeners) = bind_for_all(addresses, workers)?;
        let agent_addresses = config.agents.iter().map(|agent| agent.address);
        let (agents, mut agent_listeners) = bind_for_all(agent_addresses, 1)?;
        for (agent, bound) in config.agents.iter_mut().zip(&agents) {
            agent.address = *bound; // by which it is known, also where any port would do
        }
        let admin = config.admin.as_ref().map(|admin| Listener::bind(admin.address)).transpose()?;
        let admin_address = admin.as_ref().map(Listener::address).transpose()?;
        let mesh = config.redirect.as_ref().map(redirect::open).transpose()?;
        let redirect = mesh.as_ref().map(Member::state);
        let service = config.placement.as_ref();
        let service = service.map(|placement| Service::open(placement, redirect.clone()));
        let service = service.transpose()?;
        let placement = service.as_ref().map(Service::state);
        let (services, duplicates) = open_duplicates(&config)?;
        let controls = services.iter().map(duplicates::Service::control).collect();
        let (keepers, clusters) = open_clusters(&config)?;

        let (config, clock) = (Arc::new(config), Clock::start());
        let board = Arc::new(Board::new(&config));
        let envoys = envoy::open(&config, &board)?;
        let (mut threads, ended) = (Vec::new(), Arc::<Notify>::default());
        for number in 0..workers {
            let worker = Worker {
                number,
                config: Arc::clone(&config),
                clock,
                board: Arc::clone(&board),
                clusters: clusters.clone(),
                listeners: listeners.remove(0),
                agents: if number == 0 { agent_listeners.remove(0) } else { Vec::new() },
                stop: stopping.clone(),
            };
            threads.push(spawn(format!("worker-{number}"), &ended, move || worker.run())?);
        }
        if let Some(mesh) = mesh {
            let (config, board) = (Arc::clone(&config), Arc::clone(&board));
            let stop = stopping.clone();
            let run = move || run_mesh(mesh, &config, board, clock, stop);
            threads.push(spawn("redirect".to_owned(), &ended, run)?);
        }
        if let Some(service) = service {
            let stop = stopping.clone();
            let run = move || worker_runtime()?.block_on(service.run(stopped(stop)));
            threads.push(spawn("placement".to_owned(), &ended, run)?);
        }
        for service in services {
            let stop = stopping.clone();
            let name = format!("keys-{}", service.name());
            let run = move || worker_runtime()?.block_on(service.run(clock, stopped(stop)));
            threads.push(spawn(name, &ended, run)?);
        }
        let told = Told {
            redirect: redirect.clone(),
            placement: placement.clone(),
            duplicates: duplicates.iter().map(|(_, state)| state.clone()).collect(),
            controls,
        };
        let its = Arc::clone(&board);
        let stop_control = stopping;
        let control =
            Control { config, board: its, keepers, admin, told, envoys, clock, stop: stop_control };
        threads.push(spawn("control".to_owned(), &ended, move || control.run())?);
        let sides = Sides { redirect, placement, duplicates };
        Ok(Self { board, listens, agents, admin: admin_address, sides, stop, threads, ended })
    }

    /// Where the `[[listen]]` entries listen, in order, with the ports the system chose.
    #[must_use]
    pub fn listens(&self) -> &[SocketAddr] {
        &self.listens
    }

    /// Where the `[[agent]]` entries listen, in order.
    #[must_use]
    pub fn agents(&self) -> &[SocketAddr] {
        &self.agents
    }

    /// Where `[admin]` listens.
    #[must_use]
    pub const fn admin(&self) -> Option<SocketAddr> {
        self.admin
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

    /// Where each `[duplicates.NAME]` takes clients, and how it stands; by name.
    #[must_use]
    pub fn duplicates(&self) -> &[(SocketAddr, watch::Receiver<Arc<DuplicatesState>>)] {
        &self.sides.duplicates
    }

    /// What the workers counted, and the plans.
    #[must_use]
    pub const fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Stops accepting, lets requests in flight finish within the drain time, and waits.
    ///
    /// # Errors
    /// The first error a thread ended with, a panic included.
    pub fn stop(self) -> io::Result<()> {
        self.stop.send_replace(true);
        let mut result = Ok(());
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or("a thread").to_owned();
            let panicked = |_| io::Error::other(format!("{name} panicked: please report it"));
            result = result.and(thread.join().map_err(panicked).and_then(|ended| ended));
        }
        result
    }
}

/// Binds the addresses of `[duplicates]` and opens the logs.
fn open_duplicates(config: &Config) -> io::Result<(Vec<duplicates::Service>, Vec<DuplicatesSide>)> {
    let services = config.duplicates.iter().map(duplicates::Service::open);
    let services = services.collect::<io::Result<Vec<duplicates::Service>>>()?;
    let sides = services.iter().map(|service| Ok((service.address()?, service.state())));
    let sides = sides.collect::<io::Result<_>>()?;
    Ok((services, sides))
}

type Clusters = (Vec<Option<Keeper>>, Vec<Option<Share>>);

/// Reads the files of upstreams that are Cassandra clusters.
fn open_clusters(config: &Config) -> io::Result<Clusters> {
    let opened = cassandra::open_all(config)?.into_iter();
    Ok(opened.map(|cluster| cluster.map_or((None, None), |(a, b)| (Some(a), Some(b)))).unzip())
}

/// The thread that is not in a hurry.
struct Control {
    config: Arc<Config>,
    board: Arc<Board>,
    /// By upstream; `None` where HTTP is spoken.
    keepers: Vec<Option<Keeper>>,
    admin: Option<Listener>,
    told: Told,
    envoys: Option<envoy::Entrance>,
    clock: Clock,
    stop: watch::Receiver<bool>,
}

impl Control {
    fn run(self) -> io::Result<()> {
        worker_runtime()?.block_on(async move {
            let Self { config, board, keepers, admin, told, envoys, clock, stop } = self;
            health::spawn_checks(&config, &board);
            for (upstream, keeper) in keepers.into_iter().enumerate() {
                if let Some(keeper) = keeper {
                    keeper.spawn(upstream, Arc::clone(&board));
                }
            }
            if let Some(envoys) = envoys {
                envoys.spawn(&config, &board, clock);
            }
            match admin {
                Some(listener) => admin::serve(config, board, told, listener, stopped(stop)).await,
                None => {
                    stopped(stop).await;
                    Ok(())
                }
            }
        })
    }
}

/// The thread of the mesh: an echo that waited for anything else would look like distance.
fn run_mesh(
    mesh: Member,
    config: &Config,
    board: Arc<Board>,
    clock: Clock,
    stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let Some(redirect) = &config.redirect else { return Ok(()) };
    let home = BoardHome { board, upstream: redirect.upstream };
    worker_runtime()?.block_on(mesh.run(clock, Rc::new(home), stopped(stop)))
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

type ForAll = (Vec<SocketAddr>, Vec<Vec<Listener>>);

/// Binds every address once for each of `shares` threads; the first bind settles the port.
fn bind_for_all(addresses: impl Iterator<Item = SocketAddr>, shares: usize) -> io::Result<ForAll> {
    let mut listeners: Vec<Vec<Listener>> = (0..shares).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    for address in addresses {
        let first = Listener::bind(address)?;
        let address = first.address()?;
        bound.push(address);
        let mut first = Some(first);
        for share in &mut listeners {
            share.push(match first.take() {
                Some(listener) => listener,
                None => Listener::bind(address)?,
            });
        }
    }
    Ok((bound, listeners))
}

/// SIGTERM and SIGINT, caught instead of ending the process at once.
#[derive(Debug)]
pub struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Catches the signals from now on.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub fn catch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        drop(entered);
        Ok(Self { runtime, terminate, interrupt })
    }

    /// Waits for one of them.
    pub fn wait(&mut self) {
        self.wait_or(std::future::pending());
    }

    /// Waits for one of them, or until something in the process broke: a thread of it has ended.
    pub fn wait_beside(&mut self, process: &Process) {
        self.wait_or(process.ended.notified());
    }

    fn wait_or(&mut self, end: impl Future<Output = ()>) {
        let mut end = pin!(end);
        self.runtime.block_on(std::future::poll_fn(|context| {
            let terminated = self.terminate.poll_recv(context).is_ready();
            let interrupted = self.interrupt.poll_recv(context).is_ready();
            let ended = end.as_mut().poll(context).is_ready();
            if terminated || interrupted || ended { Poll::Ready(()) } else { Poll::Pending }
        }));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_of_a_thread_ends_the_waiting_and_is_told() {
        let upstreamless = Config {
            process: crate::config::ProcessConfig { workers: 2, drain: Duration::ZERO },
            listens: Vec::new(),
            upstreams: Vec::new(),
            agents: Vec::new(),
            admin: None,
            redirect: None,
            envoy: None,
            placement: None,
            duplicates: Vec::new(),
        };
        let mut process = Process::start(upstreamless).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        assert!(process.threads.iter().all(|thread| !thread.is_finished()), "idle, not ended");
        let broken = spawn("broken".to_owned(), &process.ended, || panic!("in a test")).unwrap();
        process.threads.push(broken);
        Signals::catch().unwrap().wait_beside(&process);
        let error = process.stop().unwrap_err().to_string();
        assert!(error.contains("broken panicked"), "{error}");
    }
}
