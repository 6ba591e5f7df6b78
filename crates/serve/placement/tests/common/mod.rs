//! What stories of real stores share: orders, the service that moves them, what is seen of them.

#![allow(dead_code, reason = "each story takes what it needs")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_placement::act::mover::{Mode, Order, Rules};
use evenkeel_placement::act::{Cluster, Observed};
use evenkeel_placement::config::PlacementConfig;
use evenkeel_placement::{PlacementState, Service};
use evenkeel_planner::model::Layout;
use evenkeel_settings::{Node, Table};
use evenkeel_testkit::story::Running;
use evenkeel_testkit::wait;
use tokio::sync::watch;

/// How a test moves a store that is slow to change.
pub(crate) const RULES: Rules = Rules {
    step: Duration::from_secs(20),
    poll: Duration::from_millis(100),
    lag_max: 1_000,
    window: None,
};

/// What a test wants of whatever there is.
pub(crate) fn order<'a>(goal: &'a Layout, why: &'a str) -> Order<'a> {
    Order { from: None, goal, who: "a test", why, mode: Mode::Act }
}

/// A service of its own thread with this `[placement]`, whose files are in a folder.
pub(crate) struct Placing {
    state: watch::Receiver<Arc<PlacementState>>,
    _running: Running,
}

impl Placing {
    pub(crate) fn start(folder: &Path, placement: &str) -> Self {
        let file = folder.join("run.toml").display().to_string();
        let node = Node::parse(placement, &file).unwrap_or_else(|found| panic!("{found}"));
        let read = |table: &mut Table<'_>| {
            table.key("placement").section(|table| PlacementConfig::read(table, None))
        };
        let config = node.read(read).unwrap_or_else(|found| panic!("{found}"));
        let service = Service::open(&config, None).unwrap();
        let state = service.state();
        let running = Running::start(|mut stop| service.run(async move { stop.stopping().await }));
        Self { state, _running: running }
    }

    /// Waits until the placement is as wanted.
    pub(crate) async fn until(
        &self,
        wanted: impl Fn(&PlacementState) -> bool,
    ) -> Arc<PlacementState> {
        wait::state(&self.state, wanted).await
    }
}

/// Waits until a cluster is as wanted.
pub(crate) async fn seen<C: Cluster>(
    cluster: &C,
    what: &str,
    wanted: impl Fn(&Observed) -> bool,
) -> Observed {
    let look = async || cluster.observe().await.ok().filter(&wanted);
    wait::found_within(wait::PATIENCE * 2, what, look).await
}

/// Whether the first members are well, of those whose log may be so far behind.
pub(crate) fn are_well(seen: &Observed, members: usize) -> bool {
    (0..members).all(|site| seen.is_well(site, 10).is_ok())
}
