//! Replicas that DNS and files tell of: asked for before the first request, and for as long as the
//! process runs. Where they go is the same as for those of a reload: `UpstreamStates`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::files;
use super::tls::LoadedTls;
use crate::config::Config;
use evenkeel_dns::Resolver;
use evenkeel_proxy::discovery::{self, Discovery};
use evenkeel_proxy::upstream_state::UpstreamStates;
use evenkeel_runtime::clock::Clock;

/// How long a start or a reload waits for the first answers.
const FIRST_WITHIN: Duration = Duration::from_secs(2);

fn places(config: &Config) -> impl Iterator<Item = usize> {
    config.named_upstreams().map(|(place, _)| place)
}

/// Asks once for what nobody knows yet of a configuration that is about to be served.
pub(super) fn ask_first(
    resolver: &Resolver,
    states: &UpstreamStates,
    config: &Config,
    clock: Clock,
) {
    let places: Vec<usize> = places(config).collect();
    discovery::ask_first(resolver, states, &places, clock, FIRST_WITHIN);
}

/// Asks on behalf of the configuration in force, for as long as it is polled. Clients are given the
/// files that the replicas leave.
pub(super) async fn keep_discovering(
    resolver: Resolver,
    mut in_force: watch::Receiver<(Arc<Config>, Arc<LoadedTls>)>,
    states: Arc<UpstreamStates>,
    clock: Clock,
) {
    let mut discovery = Discovery::new(resolver, Arc::clone(&states), clock);
    let (mut changes, mut said) = (states.changes(), None);
    loop {
        let (config, _) = in_force.borrow_and_update().clone();
        changes.borrow_and_update();
        discovery.follow(places(&config));
        if config.upstreams.iter().any(|upstream| !upstream.common.sources.is_empty()) {
            let shortfall = files::follow(&config, |place| states.members(place).len());
            if let (Some(words), true) = (&shortfall, said.is_none()) {
                tracing::warn!("{words}");
            }
            said = shortfall;
        }
        tokio::select! {
            changed = in_force.changed() => if changed.is_err() {
                return;
            },
            _ = changes.changed() => {} // there as long as the states are
        }
    }
}
