//! What stories of real stores share: orders, the service that moves them, what is seen of them.

#![allow(dead_code, reason = "each story takes what it needs")]

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_placement::act::audit::Audit;
use evenkeel_placement::act::mover::{Mode, Mover, Order, Outcome, Rules};
use evenkeel_placement::act::{Cluster, Observed, RemoteError};
use evenkeel_placement::config::PlacementConfig;
use evenkeel_placement::{PlacementState, Service};
use evenkeel_planner::model::Layout;
use evenkeel_planner::steps::{Abilities, Step};
use evenkeel_settings::{Node, Table};
use evenkeel_testkit::story::{MS, Running};
use evenkeel_testkit::wait;
use tokio::sync::{Notify, watch};

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

/// When a mover is cut off, as by SIGKILL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// A step is written down and not asked for.
    Before,
    /// It is being asked for.
    During,
    /// It was asked for; nobody has looked.
    After,
}

/// A cluster whose mover is cut off at one of its requests.
struct Cut<'a, C: Cluster> {
    cluster: &'a C,
    /// After so many.
    requests: Cell<usize>,
    when: When,
    hold: RefCell<Option<Rc<C::Hold>>>,
    is_cut: Notify,
}

impl<C: Cluster> Cut<'_, C> {
    async fn cut<T>(&self) -> T {
        self.is_cut.notify_one();
        std::future::pending().await
    }
}

impl<C: Cluster> Cluster for Cut<'_, C> {
    type Hold = Rc<C::Hold>;

    fn name(&self) -> &str {
        self.cluster.name()
    }
    fn site_name(&self, site: usize) -> String {
        self.cluster.site_name(site)
    }
    fn abilities(&self) -> Abilities {
        self.cluster.abilities()
    }
    fn is_reached(&self, seen: &Layout, wanted: &Layout) -> bool {
        self.cluster.is_reached(seen, wanted)
    }
    async fn observe(&self) -> Result<Observed, RemoteError> {
        self.cluster.observe().await
    }
    async fn say(&self, step: Step) -> String {
        self.cluster.say(step).await
    }
    async fn apply(&self, step: Step) -> Result<(), RemoteError> {
        let left = self.requests.get();
        match (left, self.when) {
            (0, When::Before) => self.cut().await,
            (0, When::During) => tokio::select! {
                biased;
                _ = self.cluster.apply(step) => self.cut().await,
                () = tokio::time::sleep(MS * 20) => self.cut().await,
            },
            // What is refused for now, such as a learner's vote, is asked for again.
            _ => match (self.cluster.apply(step).await, left) {
                (Ok(()), 0) => self.cut().await,
                (applied, _) => {
                    self.requests.set(left.saturating_sub(usize::from(applied.is_ok())));
                    applied
                }
            },
        }
    }
    async fn hold(&self, who: &str) -> Result<Self::Hold, RemoteError> {
        let hold = Rc::new(self.cluster.hold(who).await?);
        self.hold.replace(Some(Rc::clone(&hold)));
        Ok(hold)
    }
    async fn keep(&self, hold: &Self::Hold) -> Result<(), RemoteError> {
        self.cluster.keep(hold).await
    }
    async fn release(&self, _: Self::Hold) {}
}

/// Moves a cluster, cut off after so many requests, and finishes that as the next process does; the
/// layout that comes of it, or none where the move needs no more requests. `is_held` is whether
/// the hold ends by itself, which takes its time. `asked` is the cluster for who is cut off.
pub(crate) async fn cut_and_finished<C: Cluster>(
    [asked, cluster]: [&C; 2],
    goal: &Layout,
    (requests, when): (usize, When),
    is_held: bool,
    (rules, audit): (Rules, &Audit),
) -> Option<Layout> {
    let start = seen(cluster, "where it begins", |_| true).await.layout;
    let (hold, is_cut) = (RefCell::new(None), Notify::new());
    let dying = Cut { cluster: asked, requests: Cell::new(requests), when, hold, is_cut };
    let mover = Mover { cluster: &dying, rules, audit };
    let order = order(goal, "to be cut off");
    let is_cut = tokio::select! {
        outcome = mover.run(&order) => {
            // A store that gave no answer for a while ends a mover too; the next one finishes that.
            let is_silent = matches!(&outcome, Err(error) if error.may_pass);
            assert!(is_silent || matches!(outcome, Ok(Outcome::Reached(_))), "{outcome:?}");
            is_silent
        }
        () = dying.is_cut.notified() => true,
    };
    let hold = dying.hold.take().and_then(Rc::into_inner);
    match hold {
        Some(hold) if !is_held => cluster.release(hold).await,
        hold => drop(hold),
    }
    let finish = Order { from: Some(&start), mode: Mode::Finish, ..order };
    let began = Instant::now();
    if is_cut {
        let outcome = loop {
            match (Mover { cluster, rules, audit }).run(&finish).await {
                Ok(outcome) => break outcome,
                Err(error) => assert!(error.may_pass, "{error:?}"),
            }
        };
        println!("cut off {when:?} {requests}: {outcome:?} in {:?}", began.elapsed());
        if let Outcome::Stopped(stop) = outcome {
            assert_eq!(stop.stuck, None, "{stop}");
        }
    }
    let seen = seen(cluster, "where it ends", |_| true).await.layout;
    let members = |layout: &Layout| (layout.voters().to_vec(), layout.replicas().to_vec());
    assert!([&start, goal].map(members).contains(&members(&seen)), "{seen:?}");
    is_cut.then_some(seen)
}

/// A service of its own thread with this `[placement]`, whose files are in a folder.
pub(crate) struct Placing {
    state: watch::Receiver<Arc<PlacementState>>,
    _running: Running,
}

impl Placing {
    pub(crate) fn start(folder: &Path, placement: &str) -> Self {
        Self::start_every(folder, placement, None)
    }

    /// The same with intervals shorter than a file may say.
    pub(crate) fn start_every(folder: &Path, placement: &str, interval: Option<Duration>) -> Self {
        let file = folder.join("run.toml").display().to_string();
        let node = Node::parse(placement, &file).unwrap_or_else(|found| panic!("{found}"));
        let read = |table: &mut Table<'_>| {
            table.key("placement").section(|table| PlacementConfig::read(table, None))
        };
        let mut config = node.read(read).unwrap_or_else(|found| panic!("{found}"));
        config.interval = interval.unwrap_or(config.interval);
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
