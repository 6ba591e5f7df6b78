//! `[process]`, `[[listen]]` and `[upstream.NAME]`: the workers, their frontends, and the checks of
//! their replicas.
//!
//! A reload binds new addresses first, once for each worker, where it may still fail. Then the
//! `UpstreamStates` have the new slots and plans, and every worker is given its order; it swaps
//! between two requests.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use super::clusters::{changes_of, is_shared};
use super::discovery::{ask_first, keep_discovering};
use super::requests::Requests;
use super::tls::LoadedTls;
use super::upstreams::Upstreams;
use super::{files, stopped};
use crate::config::{Config, ListenConfig};
use crate::worker::{FrontendFrom, Order, Worker};
use evenkeel_cassandra::ClusterHandle;
use evenkeel_cassandra::cluster_state::ClusterStates;
use evenkeel_dns::Resolver;
use evenkeel_http_proxy::health::Checks;
use evenkeel_proxy::requests::log::RequestLog;
use evenkeel_proxy::requests::recorder::Sinks;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_record::Recorder;
use evenkeel_runtime::accept::{Gate, Listener, Sharing};
use evenkeel_runtime::clock::Clock;
use evenkeel_runtime::component::{Component, Job, Place, ReloadError, Surface};
use evenkeel_settings::address::ListenAddress;

/// How long a reload waits until all workers have obeyed. They obey between two polls of their
/// event queue; what takes longer is told and not waited for.
const OBEYED_WITHIN: Duration = Duration::from_secs(5);

/// Where `[[listen]]` entries listen, in order, with the ports the system chose.
pub(super) type Bound = Arc<Mutex<Vec<ListenAddress>>>;

/// The workers of a process.
pub(super) struct Workers {
    config: Arc<Config>,
    tls: Arc<LoadedTls>,
    states: Arc<UpstreamStates>,
    resolver: Resolver,
    clock: Clock,
    bound: Bound,
    /// Every port this process listened on at any time.
    ports: BTreeSet<u16>,
    /// By worker.
    orders: Vec<UnboundedSender<Order>>,
    /// The configuration in force, for whoever follows it.
    configs: watch::Sender<Arc<Config>>,
    /// The same with what was loaded of its certificates.
    checked: watch::Sender<(Arc<Config>, Arc<LoadedTls>)>,
    /// By upstream of the start, how its Cassandra cluster stands.
    clusters: Vec<Option<Arc<ClusterStates>>>,
    jobs: Vec<Job>,
    requests: RequestLog,
}

/// Addresses, each bound once for each worker.
pub(super) type ForAll = (Vec<ListenAddress>, Vec<Vec<Listener>>);

/// What a reload has prepared.
pub(super) struct Staged {
    config: Arc<Config>,
    tls: Arc<LoadedTls>,
    /// By `[[listen]]`: where it listens, and the frontend that is there.
    frontends: Vec<(ListenAddress, Option<usize>)>,
    /// By worker: the new listeners, in order.
    listeners: Vec<Vec<Listener>>,
}

impl Workers {
    /// `listens` is what [`bind_for_all`] bound of the configuration's listeners.
    pub(super) fn open(
        (config, tls): (Arc<Config>, Arc<LoadedTls>),
        (listens, listeners): ForAll,
        clusters: &[Option<ClusterHandle>],
        states: &Arc<UpstreamStates>,
        (clock, sinks, recorder): (Clock, Sinks, Recorder),
    ) -> Self {
        let requests = RequestLog::new(listeners.len());
        let (mut orders, mut jobs) = (Vec::new(), Vec::new());
        for (number, listeners) in listeners.into_iter().enumerate() {
            let (order, receiver) = unbounded_channel();
            let worker = Worker {
                number,
                config: Arc::clone(&config),
                tls: Arc::clone(&tls),
                clock,
                states: Arc::clone(states),
                clusters: clusters.to_vec(),
                listeners,
                orders: receiver,
                requests: requests.clone(),
                sinks: sinks.clone(),
                recorder: recorder.clone(),
            };
            orders.push(order);
            jobs.push(Job::new(Place::Worker(number), move |stop| worker.serve(stop)));
        }
        let configs = watch::Sender::new(Arc::clone(&config));
        let checked = watch::Sender::new((Arc::clone(&config), Arc::clone(&tls)));
        let (in_force, its) = (checked.subscribe(), Arc::clone(states));
        let resolver = Resolver::new(config.process.resolvers.clone());
        let (asks, of, tells) = (resolver.clone(), checked.subscribe(), Arc::clone(states));
        jobs.push(Job::new(Place::Control, move |stop| async move {
            tokio::task::spawn_local(keep_checking(in_force, its)); // also in the drain
            tokio::task::spawn_local(keep_discovering(asks, of, tells, clock));
            tokio::task::spawn_local(evenkeel_runtime::tls::keep_fresh());
            stopped(stop).await;
            Ok(())
        }));
        let ports = listens.iter().filter_map(port).collect();
        let (states, bound) = (Arc::clone(states), Arc::new(Mutex::new(listens)));
        let cluster = |share: &ClusterHandle| Arc::clone(share.states());
        let clusters = clusters.iter().map(|share| share.as_ref().map(cluster)).collect();
        Self {
            config,
            tls,
            states,
            resolver,
            clock,
            bound,
            ports,
            orders,
            configs,
            checked,
            clusters,
            jobs,
            requests,
        }
    }

    /// Where clients come in, as it is from now on.
    pub(super) fn bound(&self) -> Bound {
        Arc::clone(&self.bound)
    }

    /// The configuration in force, as it is from now on.
    pub(super) fn configs(&self) -> watch::Receiver<Arc<Config>> {
        self.configs.subscribe()
    }

    /// The first key that needs a restart.
    fn first_fixed(&self, next: &Config) -> Option<String> {
        let changes = self.config.source.changes(&next.source);
        let process = |key: &&String| *key == "process" || key.starts_with("process.");
        if let Some(key) = changes.iter().find(process) {
            return Some(key.clone());
        }
        let is_other_mode = |before: &ListenConfig| {
            let is_it = |after: &&ListenConfig| after.address.is_same_place(&before.address);
            next.listens.iter().find(is_it).is_some_and(|after| after.address != before.address)
        };
        if self.config.listens.iter().any(is_other_mode) {
            return Some("listen.mode".to_owned());
        }
        // Other sites and Envoys know its replicas by their places.
        let shared =
            self.config.named_upstreams().filter(|(_, upstream)| is_shared(&upstream.common));
        for (_, upstream) in shared {
            let places = |key: &String| {
                ["replicas", "sites"].contains(&key.split('.').next().unwrap_or_default())
            };
            let name = &upstream.common.name;
            if let Some(key) = changes_of(&self.config, next, name).into_iter().find(places) {
                return Some(format!("upstream.{name}.{key}"));
            }
        }
        None
    }

    /// How a new address is bound. Of a port that is or was ours, a worker may still have a socket:
    /// `0.0.0.0` that becomes `127.0.0.1`, or an address that comes back.
    fn sharing(&self, address: &ListenAddress) -> Sharing {
        match port(address).is_some_and(|port| self.ports.contains(&port)) {
            true => Sharing::Shared,
            false => Sharing::Claimed,
        }
    }

    /// By new listener, the frontend that is there already: that of the same address.
    fn frontends(&self, next: &[ListenConfig]) -> Vec<(ListenAddress, Option<usize>)> {
        let bound = self.bound.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: Vec<Option<&ListenAddress>> =
            self.config.listens.iter().map(|listen| Some(&listen.address)).collect();
        let frontend = |listen: &ListenConfig| {
            let is_it = |other: &Option<&ListenAddress>| *other == Some(&listen.address);
            let same = left.iter().position(is_it);
            if let Some(number) = same {
                left[number] = None; // port 0 may be asked for more than once
            }
            let address = same.map_or(&listen.address, |number| &bound[number]);
            (address.clone(), same)
        };
        next.iter().map(frontend).collect()
    }
}

impl Component for Workers {
    type Config = Config;
    type Staged = Staged;

    fn jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    fn surface(&mut self) -> Surface {
        let (configs, states) = (self.configs.subscribe(), Arc::clone(&self.states));
        let asked = Requests {
            configs: self.configs.subscribe(),
            states: Arc::clone(&states),
            clock: self.clock,
            log: self.requests.clone(),
        };
        let mut surface = Upstreams::new(configs, states, self.clusters.clone()).surface();
        surface.merge(asked.surface());
        surface
    }

    fn stage(&mut self, next: Arc<Config>) -> Result<Staged, ReloadError> {
        if let Some(key) = self.first_fixed(&next) {
            return Err(ReloadError::needs_restart(key));
        }
        next.log.check_files().map_err(ReloadError::Unusable)?;
        let tls = LoadedTls::load(&next, &self.tls).map_err(ReloadError::Unusable)?;
        let mut frontends = self.frontends(&next.listens);
        let new: Vec<usize> =
            (0..frontends.len()).filter(|place| frontends[*place].1.is_none()).collect();
        let addresses = new.iter().map(|place| &frontends[*place].0);
        let addresses = addresses.map(|address| (address, self.sharing(address)));
        let bound = bind_for_all(addresses, self.orders.len(), None);
        let bound = bound.map_err(ReloadError::Unusable)?;
        for (place, address) in new.into_iter().zip(bound.0) {
            frontends[place].0 = address;
        }
        Ok(Staged { config: next, tls: Arc::new(tls), frontends, listeners: bound.1 })
    }

    fn apply(&mut self, staged: Staged) {
        let Staged { config, tls, frontends, listeners } = staged;
        self.config = Arc::clone(&config);
        self.tls = Arc::clone(&tls);
        let upstreams = config.upstreams.iter().map(|upstream| &upstream.common);
        self.states.adopt(self.clock.now(), upstreams);
        ask_first(&self.resolver, &self.states, &config, self.clock);
        let (obeyed, all_obeyed) = mpsc::channel();
        for (worker, listeners) in self.orders.iter().zip(listeners) {
            let mut new = listeners.into_iter();
            let from = |(_, frontend): &(ListenAddress, Option<usize>)| match frontend {
                Some(number) => FrontendFrom::Before(*number),
                None => FrontendFrom::New(new.next().expect("every new address is bound")),
            };
            let frontends = frontends.iter().map(from).collect();
            let (config, obeyed) = (Arc::clone(&config), obeyed.clone());
            let tls = Arc::clone(&tls);
            // A worker that has ended ends the process.
            let _ = worker.send(Order { config, tls, frontends, obeyed });
        }
        drop(obeyed);
        self.ports.extend(frontends.iter().filter_map(|(address, _)| port(address)));
        let discovered = |place| self.states.members(place).len();
        if let Some(shortfall) = files::follow(&config, discovered) {
            tracing::warn!("{shortfall}");
        }
        *self.bound.lock().unwrap_or_else(PoisonError::into_inner) =
            frontends.into_iter().map(|(address, _)| address).collect();
        self.checked.send_replace((Arc::clone(&config), tls));
        self.configs.send_replace(config);
        if all_obeyed.recv_timeout(OBEYED_WITHIN) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "a worker has not taken over the configuration within {OBEYED_WITHIN:?}"
            );
        }
    }
}

/// Checks the replicas of the configuration in force, for as long as it is polled.
async fn keep_checking(
    mut in_force: watch::Receiver<(Arc<Config>, Arc<LoadedTls>)>,
    states: Arc<UpstreamStates>,
) {
    let mut checks = Checks::default();
    let mut changes = states.changes();
    loop {
        let (config, tls) = in_force.borrow_and_update().clone();
        changes.borrow_and_update();
        let checked = config.named_upstreams().map(|(place, upstream)| {
            (place, &upstream.common, tls.upstreams.get(place).and_then(Option::as_ref))
        });
        checks.follow(checked, &states);
        tokio::select! {
            changed = in_force.changed() => if changed.is_err() {
                return; // with all checks
            },
            _ = changes.changed() => {} // there as long as the states are
        }
    }
}

fn port(address: &ListenAddress) -> Option<u16> {
    address.inet().map(|address| address.port())
}

/// Binds every address once for each of `shares` threads.
pub(super) fn bind_for_all<'a>(
    addresses: impl Iterator<Item = (&'a ListenAddress, Sharing)>,
    shares: usize,
    gate: Option<&Gate>,
) -> io::Result<ForAll> {
    let mut listeners: Vec<Vec<Listener>> = (0..shares).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    for (address, sharing) in addresses {
        let all = Listener::bind_all(address, sharing, shares)?;
        bound.push(match address {
            ListenAddress::Inet(_) => all[0].place()?,
            ListenAddress::Unix { .. } => address.clone(),
        });
        for (share, listener) in listeners.iter_mut().zip(all) {
            share.push(listener.behind(gate));
        }
    }
    Ok((bound, listeners))
}
