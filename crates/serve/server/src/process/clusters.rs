//! Cassandra clusters: who watches them, and what of them changes while they are served.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::stopped;
use crate::config::{Config, ListenConfig};
use evenkeel_cassandra::Watcher;
use evenkeel_proxy::config::UpstreamConfig;
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_runtime::component::{Component, Job, Place, ReloadError};

/// What dispatchers go by, which is taken over at once. All else is of connections and of what
/// clients were told.
const LIVE: [&str; 7] =
    ["policy", "proxies", "retries_max", "retry_budget", "hedge", "safeguards", "queue_max"];

/// The upstreams that are clusters, and the listeners before them.
pub(super) struct Clusters {
    config: Arc<Config>,
    jobs: Vec<Job>,
}

impl Clusters {
    /// `keepers` by upstream; `None` where HTTP is spoken.
    pub(super) fn open(
        config: Arc<Config>,
        watchers: Vec<Option<Watcher>>,
        states: &Arc<UpstreamStates>,
    ) -> Self {
        let states = Arc::clone(states);
        let job = Job::new(Place::Control, move |stop| async move {
            for (upstream, watcher) in watchers.into_iter().enumerate() {
                if let Some(watcher) = watcher {
                    watcher.spawn(upstream, Arc::clone(&states));
                }
            }
            stopped(stop).await;
            Ok(())
        });
        Self { config, jobs: vec![job] }
    }

    /// The first key of a cluster that needs a restart.
    fn first_fixed(&self, next: &Config) -> Option<String> {
        let of = |config: &Config| -> BTreeSet<String> {
            let clusters = config.named_upstreams().filter(|(_, upstream)| upstream.cql.is_some());
            clusters.map(|(_, upstream)| upstream.common.name.clone()).collect()
        };
        let (before, after) = (of(&self.config), of(next));
        if let Some(name) = before.symmetric_difference(&after).next() {
            return Some(format!("upstream.{name}"));
        }
        let fixed = |name: &String| {
            let changes = changes_of(&self.config, next, name);
            let is_fixed =
                |key: &String| !LIVE.contains(&key.split('.').next().unwrap_or_default());
            changes.into_iter().find(is_fixed).map(|key| format!("upstream.{name}.{key}"))
        };
        before.iter().find_map(fixed).or_else(|| self.first_fixed_listener(next))
    }

    fn first_fixed_listener(&self, next: &Config) -> Option<String> {
        let is_cql = |config: &Config, listen: &ListenConfig| {
            config.upstreams[listen.upstream].cql.is_some()
        };
        let odd = |mine: &Config, others: &Config| {
            let known = |listen: &ListenConfig| others.listens.contains(listen);
            let listens = mine.listens.iter();
            listens.clone().position(|listen| is_cql(mine, listen) && !known(listen))
        };
        let place = odd(&self.config, next).or_else(|| odd(next, &self.config))?;
        Some(format!("listen.{place}"))
    }
}

/// The keys of an upstream that are written differently, within its table.
pub(super) fn changes_of(before: &Config, next: &Config, name: &str) -> Vec<String> {
    let table = |config: &Config| {
        let document = config.source.document()?;
        document.entry("upstream")?.entry(name).cloned()
    };
    match (table(before), table(next)) {
        (Some(before), Some(after)) => before.changes(&after),
        (None, _) | (_, None) => Vec::new(),
    }
}

impl Component for Clusters {
    type Config = Config;
    type Staged = Arc<Config>;

    fn jobs(&mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }

    fn stage(&mut self, next: Arc<Config>) -> Result<Arc<Config>, ReloadError> {
        self.first_fixed(&next).map_or(Ok(next), |key| Err(ReloadError::needs_restart(key)))
    }

    /// Dispatchers are the workers' and follow their orders.
    fn apply(&mut self, staged: Arc<Config>) {
        self.config = staged;
    }
}

/// Whether requests of an upstream are shared between data centres.
pub(super) const fn is_shared(upstream: &UpstreamConfig) -> bool {
    upstream.split.is_some()
}
