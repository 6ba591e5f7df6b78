//! The plan for whoever sends requests and is not one of our proxies: Istio, Kubernetes, DNS.
//!
//! | room | does |
//! |---|---|
//! | this file | tells each of them what has changed, and again what failed |
//! | [`config`] | `[redirect.istio]`, `[redirect.kubernetes]`, `[redirect.dns]` |
//! | `istio` `kubernetes` | a plan as an object for the cluster, in a file |
//! | `dns` | a plan as SRV records, told to a server |
//! | `file` | files that are there whole or not at all |
//!
//! **What is told** are shares, never rates: none of them can hold back a surge, send a request a
//! second time, or tell how long it took. So what they send beyond the plan is not cut off, and
//! demand is counted by our own proxies or by Envoys alone.
//!
//! **A plan that is too old** is taken back: all stays at home, as with our own proxies. So it is
//! when the process ends in order. A process that is killed leaves what it told last.
//!
//! **What fails** is tried again in a second, with what is right by then. Each has a task of its
//! own: a server that hangs holds up no file.

pub mod config;

mod dns;
pub(crate) mod file;
mod istio;
mod kubernetes;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_geo::epoch::SiteId;
use evenkeel_geo::split::PlanRow;
use evenkeel_runtime::clock::Clock;
use serde::Serialize;
use tokio::sync::watch;

use crate::Home;
use crate::hub::is_worth_telling;
use config::ExportsConfig;

/// How often it is looked whether what was told is still right; and when a failure is tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is right is told again so often: a server may have been set up anew, a file removed. The
/// first time after a failure at once: what a server that hung was told before may come after it.
const AGAIN_EVERY: Duration = Duration::from_secs(60);
/// Nobody waits longer for a process that ends.
const WITHDRAWN_WITHIN: Duration = Duration::from_secs(2);

/// What a site has to serve with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Whether a replica there is up, as far as this process knows.
    pub is_usable: bool,
    /// The addresses of those that are up.
    pub up: Vec<SocketAddr>,
    /// Those of all that are configured there.
    pub all: Vec<SocketAddr>,
}

/// A plan for all sites.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) rows: Vec<PlanRow>,
    pub(super) good_until: Instant,
}

/// Where a plan is told from.
pub(super) struct Here {
    pub(super) clock: Clock,
    pub(super) site: SiteId,
    /// How many sites there are.
    pub(super) sites: usize,
    pub(super) home: Rc<dyn Home>,
    /// Tells people.
    pub(super) tell: Box<dyn Fn(String)>,
}

impl Here {
    /// By site; where nobody knows, all can be sent to.
    fn standing(&self) -> Vec<Standing> {
        let mut standing = self.home.standing();
        standing.resize_with(self.sites, || Standing { is_usable: true, ..Standing::default() });
        standing
    }
}

/// What is to be told now.
struct Now<'a> {
    home: SiteId,
    /// By site; `None`: there is no plan, or it is too old.
    rows: Option<&'a [PlanRow]>,
    /// By site.
    sites: &'a [Standing],
}

impl Now<'_> {
    /// By site, its parts of `total` of an origin's requests.
    fn parts(&self, origin: SiteId, total: u32) -> Vec<u32> {
        let is_usable: Vec<bool> = self.sites.iter().map(|site| site.is_usable).collect();
        let row = self.rows.and_then(|rows| rows.get(origin.index()));
        crate::shares::parts(row, origin, &is_usable, total)
    }
}

/// Why somebody has not what the plan says.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    /// Its file cannot be written; what was there still is.
    #[error("{}: {error}", .path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Dns(evenkeel_dns::update::UpdateError),
}

/// How it went with one of those that are told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ExportState {
    /// `istio`, `kubernetes` or `dns`.
    pub to: &'static str,
    /// Times that it was told something, and has it.
    pub told: u64,
    /// Times that this failed; each is tried again.
    pub failed: u64,
    /// Why it has not what the plan says, if so.
    pub problem: Option<String>,
}

/// What somebody is told.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    File(String),
    Records(evenkeel_dns::update::Update),
}

/// Somebody who is told.
#[derive(Debug)]
enum Target {
    Istio(config::IstioConfig),
    Kubernetes(config::KubernetesConfig),
    Dns(Box<dns::Dns>),
}

impl Target {
    const fn name(&self) -> &'static str {
        match self {
            Self::Istio(_) => "istio",
            Self::Kubernetes(_) => "kubernetes",
            Self::Dns(_) => "dns",
        }
    }

    fn say(&self, now: &Now<'_>) -> Said {
        match self {
            Self::Istio(config) => Said::File(istio::rule(config, now)),
            Self::Kubernetes(config) => Said::File(kubernetes::slices(config, now)),
            Self::Dns(dns) => Said::Records(dns.records(now)),
        }
    }

    async fn tell(&self, said: Said, writing: &Arc<Mutex<()>>) -> Result<(), ExportError> {
        let path = match self {
            Self::Istio(config) => &config.file,
            Self::Kubernetes(config) => &config.file,
            Self::Dns(dns) => {
                let Said::Records(records) = said else { return Ok(()) };
                return dns.tell(&records).await.map_err(ExportError::Dns);
            }
        };
        let Said::File(text) = said else { return Ok(()) };
        let (to, writing) = (path.clone(), Arc::clone(writing));
        let write = move || {
            let _alone = writing.lock().unwrap_or_else(PoisonError::into_inner);
            file::replace(&to, &text)
        };
        let written = tokio::task::spawn_blocking(write).await;
        let written = written.unwrap_or_else(|error| Err(io::Error::other(error)));
        written.map_err(|error| ExportError::File { path: path.clone(), error })
    }
}

/// Somebody who is told, and how that went.
#[derive(Debug)]
struct Told {
    target: Target,
    state: RefCell<ExportState>,
    /// Held while its file is written: what it is told last may not find the one before at it.
    writing: Arc<Mutex<()>>,
}

impl Told {
    fn new(target: Target) -> Self {
        let state = ExportState { to: target.name(), ..ExportState::default() };
        Self { target, state: RefCell::new(state), writing: Arc::default() }
    }

    async fn tell(&self, said: Said) -> Result<(), ExportError> {
        self.target.tell(said, &self.writing).await
    }
}

/// All who are told.
#[derive(Debug, Default)]
pub(super) struct Exports {
    targets: Vec<Told>,
    plans: watch::Sender<Option<Planned>>,
}

impl Exports {
    /// Reads the key of DNS, if there is one.
    pub(super) fn open(config: &ExportsConfig) -> io::Result<Self> {
        let istio = config.istio.clone().map(Target::Istio);
        let kubernetes = config.kubernetes.clone().map(Target::Kubernetes);
        let dns = config.dns.as_ref().map(dns::Dns::open).transpose()?;
        let dns = dns.map(|dns| Target::Dns(Box::new(dns)));
        let targets = istio.into_iter().chain(kubernetes).chain(dns).map(Told::new).collect();
        Ok(Self { targets, ..Self::default() })
    }

    /// Takes over a plan.
    pub(super) fn plan(&self, planned: Planned) {
        self.plans.send_replace(Some(planned));
    }

    pub(super) fn states(&self) -> Vec<ExportState> {
        self.targets.iter().map(|told| told.state.borrow().clone()).collect()
    }

    /// Keeps all of them told, for ever.
    pub(super) async fn keep(self: Rc<Self>, here: Rc<Here>) -> io::Result<()> {
        let mut keeping = tokio::task::JoinSet::new();
        for number in 0..self.targets.len() {
            keeping.spawn_local(one(Rc::clone(&self), number, Rc::clone(&here)));
        }
        match keeping.join_next().await {
            Some(ended) => ended.map_err(io::Error::other),
            None => std::future::pending().await,
        }
    }

    /// Says once more that all stays at home, before the process ends: to all at the same time, so
    /// that a disk that hangs keeps nothing from a DNS server.
    pub(super) async fn withdraw(self: &Rc<Self>, here: &Here) {
        let sites = here.standing();
        let now = Now { home: here.site, rows: None, sites: &sites };
        let mut telling = tokio::task::JoinSet::new();
        for (number, told) in self.targets.iter().enumerate() {
            let (exports, said) = (Rc::clone(self), told.target.say(&now));
            telling.spawn_local(async move {
                let told = &exports.targets[number];
                if let Err(why) = told.tell(said).await {
                    tracing::warn!("{} keeps the last plan: {why}", told.target.name());
                }
            });
        }
        let withdrawing = async { while telling.join_next().await.is_some() {} };
        if tokio::time::timeout(WITHDRAWN_WITHIN, withdrawing).await.is_err() {
            tracing::warn!(within = ?WITHDRAWN_WITHIN, "some may keep the last plan: no answer");
        }
    }
}

/// Keeps one of them told, for ever.
async fn one(exports: Rc<Exports>, number: usize, here: Rc<Here>) {
    let it = &exports.targets[number];
    let (target, state) = (&it.target, &it.state);
    let mut plans = exports.plans.subscribe();
    let (mut told, mut is_failing) = (None::<(Said, Instant)>, false);
    loop {
        let plan = plans.borrow_and_update().clone();
        let sites = here.standing();
        let believed = plan.as_ref().filter(|plan| here.clock.now() < plan.good_until);
        let rows = believed.map(|plan| plan.rows.as_slice());
        let said = target.say(&Now { home: here.site, rows, sites: &sites });
        let is_told = |said: &Said| {
            let of = |(it, until): &(Said, Instant)| it == said && here.clock.now() < *until;
            told.as_ref().is_some_and(of)
        };
        let result = match said {
            said if is_told(&said) => None,
            said => Some(it.tell(said.clone()).await.map(|()| said)),
        };
        match result {
            None => {}
            Some(Ok(said)) => {
                let again = if is_failing { LOOK_EVERY } else { AGAIN_EVERY };
                told = Some((said, here.clock.now() + again));
                is_failing = false;
                let mut state = state.borrow_mut();
                (state.told, state.problem) = (state.told + 1, None);
            }
            Some(Err(why)) => {
                (told, is_failing) = (None, true); // it may have been heard all the same
                let mut state = state.borrow_mut();
                state.failed += 1;
                let (name, times) = (target.name(), state.failed);
                if is_worth_telling(times) {
                    (here.tell)(format!("{name} has not this plan ({times} times so far): {why}"));
                }
                state.problem = Some(why.to_string());
            }
        }
        let changed = tokio::time::timeout(LOOK_EVERY, plans.changed());
        if told.is_none() {
            tokio::time::sleep(LOOK_EVERY).await;
        } else {
            let _ = changed.await; // whether a plan came or a second is over
        }
    }
}

#[cfg(test)]
mod tests;
