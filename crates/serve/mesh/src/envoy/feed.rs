//! What Envoys shall be told now, and what they said.
//!
//! A [`Feed`] belongs to one upstream. It makes a new assignment when a plan comes, when the one in
//! force is too old to be believed (then all stays at home, as in the splitter), and when a health
//! check changes its verdict; Envoys are told only when that changes what they should do.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_core::plan::RoutePlan;
use evenkeel_geo::split::{PlanRow, SplitWindow};
use tokio::sync::watch;

use super::assignment::{Assignment, Cluster};
use super::demand::{Demand, LocalityRates, Report};
use super::file;
use evenkeel_geo::demand::SiteTally;
use evenkeel_geo::traffic::Directive;
use evenkeel_runtime::clock::Clock;

/// Takes over what Envoys counted, as if our own proxy had: requests that came and went, and what
/// became of them, by site.
pub type Tell = Box<dyn Fn(&SplitWindow, &[SiteTally]) + Send + Sync>;

/// Where a feed learns what to tell.
#[derive(Debug)]
pub struct Sources {
    /// The plans for this origin.
    pub directives: watch::Receiver<Option<Arc<Directive>>>,
    /// Which replicas may be used.
    pub plans: watch::Receiver<Arc<RoutePlan>>,
}

/// One upstream, as Envoys see it.
pub struct Feed {
    cluster: Cluster,
    assignment: watch::Sender<Arc<Assignment>>,
    demand: Mutex<Demand>,
    tell: Tell,
}

/// All upstreams that Envoys are told of.
#[derive(Debug)]
pub struct Plane {
    feeds: Vec<Feed>,
    interval: Duration,
    /// Grows whenever any assignment changes.
    revision: watch::Sender<u64>,
    counts: Mutex<Counts>,
}

/// What happened since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Files written.
    pub files: u64,
    /// Files that could not be written; each is tried again.
    pub files_failed: u64,
    /// Discovery streams that are open.
    pub streams: u64,
    /// Responses sent on them.
    pub sent: u64,
    /// Responses that Envoys accepted (ACK).
    pub accepted: u64,
    /// Responses that Envoys refused (NACK); they go on with what they had.
    pub refused: u64,
    /// The last of those.
    pub last_refusal: Option<Nack>,
    /// Load reports taken in, one for each cluster in it.
    pub reports: u64,
    /// Requests in load reports for localities that are none of ours.
    pub reported_elsewhere: u64,
}

/// An Envoy's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nack {
    /// The Envoy's `node.id`.
    pub node: String,
    /// What it refused.
    pub version: String,
    /// Why, in its words.
    pub message: String,
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

impl Feed {
    /// A feed that tells Envoys to keep all at home until a plan comes. `interval` is how often
    /// they report.
    pub fn new(cluster: Cluster, interval: Duration, tell: Tell) -> Self {
        let localities = cluster.weigh(None, &[]);
        let (name, version) = (cluster.name.clone(), "none.0".to_owned());
        let first = Assignment { cluster: name, version, localities };
        let demand = Mutex::new(Demand::new(cluster.localities.len(), interval));
        Self { cluster, assignment: watch::Sender::new(Arc::new(first)), demand, tell }
    }

    /// The upstream and its sites.
    #[must_use]
    pub const fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What Envoys shall do now.
    pub fn assignment(&self) -> Arc<Assignment> {
        Arc::clone(&self.assignment.borrow())
    }

    /// By site, what the Envoys that are heard send there.
    pub fn rates(&self, now: Instant) -> Vec<LocalityRates> {
        self.lock().rates(now)
    }

    /// Envoys that are heard.
    pub fn reporters(&self, now: Instant) -> usize {
        self.lock().reporters(now)
    }

    /// Whether this changed anything.
    fn weigh(&self, sources: &mut Sources, clock: Clock) -> (bool, Option<Instant>) {
        let directive = sources.directives.borrow_and_update().clone();
        let plan = Arc::clone(&sources.plans.borrow_and_update());
        let sites = self.cluster.localities.len();
        let is_ours =
            |row: &PlanRow| row.origin == self.cluster.home && row.rates_per_1000_s.len() == sites;
        let directive = directive.filter(|directive| is_ours(&directive.row));
        let believed = directive.as_ref().filter(|one| clock.now() < one.good_until);
        let epoch = match (believed, &directive) {
            (Some(directive), _) => directive.row.epoch.to_string(),
            (None, Some(_)) => "stale".to_owned(),
            (None, None) => "none".to_owned(),
        };
        let row = believed.map(|directive| &directive.row);
        let localities = self.cluster.weigh(row, &plan.health);
        let is_new = self.assignment.send_if_modified(|present| {
            if present.localities == localities {
                return false;
            }
            let serial = present.version.rsplit('.').next().and_then(|serial| serial.parse().ok());
            let version = format!("{epoch}.{}", serial.unwrap_or(0_u64) + 1);
            let cluster = present.cluster.clone();
            *present = Arc::new(Assignment { cluster, version, localities });
            true
        });
        (is_new, believed.map(|directive| clock.std_instant(directive.good_until)))
    }

    fn lock(&self) -> MutexGuard<'_, Demand> {
        self.demand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plane {
    /// A plane of these feeds, whose Envoys report once in an `interval`.
    pub fn new(feeds: Vec<Feed>, interval: Duration) -> Arc<Self> {
        Arc::new(Self {
            feeds,
            interval,
            revision: watch::Sender::new(0),
            counts: Mutex::default(),
        })
    }

    /// Its upstreams.
    pub fn feeds(&self) -> &[Feed] {
        &self.feeds
    }

    /// How often Envoys are told to report.
    pub const fn interval(&self) -> Duration {
        self.interval
    }

    /// What happened since the process began.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    /// Keeps all assignments up to date, and their files in `directory`, for as long as the
    /// runtime lives. `sources` are those of the feeds, in order. Call it in a worker runtime.
    pub fn spawn(self: &Arc<Self>, sources: Vec<Sources>, clock: Clock, directory: Option<&Path>) {
        for (place, sources) in sources.into_iter().enumerate().take(self.feeds.len()) {
            tokio::task::spawn_local(Arc::clone(self).follow(place, sources, clock));
            if let Some(directory) = directory.map(Path::to_path_buf) {
                let assignments = self.feeds[place].assignment.subscribe();
                let plane = Arc::clone(self);
                let wrote = move |is_written| {
                    plane.count(|counts| match is_written {
                        true => counts.files += 1,
                        false => counts.files_failed += 1,
                    });
                };
                tokio::task::spawn_local(file::keep(directory, assignments, wrote));
            }
        }
    }

    async fn follow(self: Arc<Self>, place: usize, mut sources: Sources, clock: Clock) {
        loop {
            let (is_new, good_until) = self.feeds[place].weigh(&mut sources, clock);
            if is_new {
                self.revision.send_modify(|revision| *revision += 1);
            }
            let changed = changed(&mut sources);
            let is_over = match good_until {
                Some(until) => match tokio::time::timeout_at(until.into(), changed).await {
                    Ok(is_open) => !is_open,
                    Err(_) => false, // it is stale now
                },
                None => !changed.await,
            };
            if is_over {
                return;
            }
        }
    }

    /// Grows whenever any assignment changes.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    /// Takes in what one Envoy reported of a feed of this plane.
    pub fn report(&self, feed: &Feed, reporter: u64, report: &Report) {
        feed.lock().note(Instant::now(), reporter, report);
        let (window, by_site) = report.counts(feed.cluster.home);
        (feed.tell)(&window, &by_site);
        self.count(|counts| counts.reports += 1);
    }

    /// A reporter has gone.
    pub fn forget(&self, reporter: u64) {
        for feed in &self.feeds {
            feed.lock().forget(reporter);
        }
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a plan or a verdict on a replica has changed; false when none will any more.
async fn changed(sources: &mut Sources) -> bool {
    tokio::select! {
        biased;
        changed = sources.directives.changed() => changed.is_ok(),
        changed = sources.plans.changed() => changed.is_ok(),
    }
}

#[cfg(test)]
mod tests;
