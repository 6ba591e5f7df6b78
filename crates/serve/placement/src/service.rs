//! Every interval: look where databases are, count what was asked of them, decide, move.
//!
//! One thread. Databases are asked and counted a few at a time, decided in parallel on as many
//! threads as there are cores, and moved one after another, so that two moves never overlap; while
//! one is under way nothing else is decided. What is not known of an interval is skipped: the
//! history keeps what it has, and the next interval is judged with it.
//!
//! After a start the history is filled from where operations are counted, and the last move is
//! taken from the audit log, so that a restart neither forgets nor hurries. A move that was cut off
//! is finished before anything else is decided about its database.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use evenkeel_core::time::millis;
use evenkeel_planner::history::{History, INTERVALS_MAX, Interval};
use evenkeel_planner::model::{Layout, RoundTrips};
use evenkeel_planner::planner::{Config, Decision, Objective, Planner, Tier, Undecided};
use evenkeel_planner::replicas::{DomainLimits, Question};
use evenkeel_planner::steady::Verdict;
use evenkeel_planner::tier3::{self, Unplaced};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use super::act::audit::{Audit, moment};
use super::act::mover::{Mode, Order, Outcome};
use super::collect::Collector;
use super::collected::CollectErrorKind;
use super::journal::{self, Past};
use super::state::{DatabaseState, LayoutState, PlacementState};
use super::store::Store;
use super::ways::{Measured, RoundTripSource, Ways};
use super::words::{About, percent_of};
use crate::config::{DatabaseConfig, PlacementConfig, PlacementTier};

/// Time that asking all databases may take at least, however short intervals are.
const ASKING_MIN: Duration = Duration::from_secs(10);
/// Databases that are asked at once.
const ASKED_AT_ONCE: usize = 32;
/// Intervals that are explained, and with how many databases fewer are.
const EXPLAINED: usize = 8;
const EXPLAINED_OF_MANY: usize = 3;
const MANY: usize = 200;
/// Nodes of tier 3's search for one database: seconds at most.
const NODES_MAX: u64 = 20_000;

/// What is logged when it changes, not every interval.
const UNSEEN: &str = "the store cannot be seen";
const SKIPPED: &str = "the interval is skipped";
const NOT_MOVED: &str = "not moved";
const UNREAD: &str = "the last moves cannot be read";

/// Decides where databases should be, and moves them there.
#[derive(Debug)]
pub struct Service {
    config: Arc<PlacementConfig>,
    desks: Vec<Desk>,
    audit: Option<(PathBuf, Audit)>,
    state: watch::Sender<Arc<PlacementState>>,
    rounds: u64,
}

/// One database.
#[derive(Debug)]
struct Desk {
    config: DatabaseConfig,
    clients: Arc<[String]>,
    planner: Planner,
    collector: Collector,
    store: Option<Store>,
    history: History,
    /// The round trips that are known last.
    trips: Option<Arc<RoundTrips>>,
    /// Where they are measured; `None` where they are written.
    ways: Option<Ways>,
    /// Where everything is; `None` while that is not known.
    today: Option<Layout>,
    /// Of this interval.
    decision: Option<Decision>,
    /// For which goal a dry run was written down last.
    tried: Option<Layout>,
    /// When it was moved last, or that was tried.
    moved_at: Option<SystemTime>,
    /// A move that was cut off: from where to where, and why.
    unfinished: Option<(Layout, Layout, String)>,
    /// Who moves it, for the audit log and whoever finds it held.
    who: Arc<str>,
    /// What is wrong, of what is logged when it changes.
    wrong: BTreeSet<String>,
    state: DatabaseState,
}

/// Why nothing is decided of an interval, as people read it.
#[derive(Debug, thiserror::Error)]
enum NoDecision {
    #[error("It is not known where leader, voters and replicas are.")]
    NoLayout,
    #[error("The last interval is not known.")]
    NoInterval,
    #[error("A move was cut off, and is finished first.")]
    Unfinished,
    #[error("Nothing can be decided: {0}.")]
    Planner(Undecided),
    #[error("Tier 3: {0}.")]
    Tier3(Unplaced),
}

impl Service {
    /// Reads passwords and certificates and opens the audit log; asks nobody. `mesh` is that of
    /// this process, if it has one.
    ///
    /// # Errors
    /// When a file is not what it should be, with its path.
    pub fn open(
        config: &PlacementConfig,
        mesh: Option<Arc<dyn RoundTripSource + Send + Sync>>,
    ) -> io::Result<Self> {
        let mesh = mesh.filter(|_| config.is_mesh);
        let ways = mesh.map(|mesh| Ways::new(mesh, config.percentile.is_some()));
        let config = Arc::new(config.clone());
        let open = |path: &PathBuf| Ok::<_, io::Error>((path.clone(), Audit::open(path)?));
        let audit = config.audit.as_ref().map(open).transpose()?;
        let past = config.audit.as_ref().map(|path| journal::read(path)).transpose()?;
        let mut past = past.unwrap_or_default();
        let who = who();
        let mut desks = Vec::with_capacity(config.databases.len());
        for database in &config.databases {
            let mut desk = Desk::new(database, &config, ways.as_ref(), &who).map_err(|error| {
                io::Error::other(format!("[placement], database {}: {error}", database.name))
            })?;
            desk.recall(past.remove(&database.name).unwrap_or_default(), config.dry_run);
            let done = desk.state.moves.iter().find(|done| done.event != "refused");
            desk.moved_at = done.and_then(|done| moment(&done.at));
            desks.push(desk);
        }
        let service = Self { config, desks, audit, state: watch::Sender::default(), rounds: 0 };
        service.publish(None);
        Ok(service)
    }

    /// How databases stand, now and later.
    pub fn state(&self) -> watch::Receiver<Arc<PlacementState>> {
        self.state.subscribe()
    }

    /// Works until `stop`; a move that is under way is finished first, questions are not. Call it
    /// in a worker runtime.
    ///
    /// # Errors
    /// None today: what goes wrong is part of the state.
    pub async fn run(mut self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let mut stop = std::pin::pin!(stop);
        let mut ticks = tokio::time::interval(self.config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                _ = ticks.tick() => {}
            }
            let began = Instant::now();
            let time = self.config.interval.max(ASKING_MIN);
            let looked = look_and_count(std::mem::take(&mut self.desks), time);
            let desks = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                desks = looked => desks?,
            };
            self.finish_round(desks, began).await?;
            for place in self.to_move() {
                // A move under way is finished, a further one is not begun.
                tokio::select! {
                    biased;
                    () = &mut stop => return Ok(()),
                    () = std::future::ready(()) => {}
                }
                self.carry_out(place).await;
                self.publish(None);
            }
        }
    }

    /// Decides about an interval that was counted.
    async fn finish_round(&mut self, desks: Vec<Desk>, began: Instant) -> io::Result<()> {
        let (desks, took) = tokio::task::spawn_blocking(move || decide(desks)).await?;
        self.desks = desks;
        self.rounds += 1;
        self.publish(Some((began.elapsed(), took)));
        Ok(())
    }

    /// Databases that should move: those whose last move was cut off, then the one that saves most.
    fn to_move(&self) -> Vec<usize> {
        let saves = |(place, desk): (usize, &Desk)| {
            if desk.unfinished.is_some() {
                return Some((place, f64::INFINITY));
            }
            match desk.decision.as_ref()?.verdict {
                Verdict::Move { saves_ms_per_s, .. } if desk.store.is_some() => {
                    Some((place, saves_ms_per_s))
                }
                _ => None,
            }
        };
        let mut wanted: Vec<(usize, f64)> =
            self.desks.iter().enumerate().filter_map(saves).collect();
        wanted.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        wanted.into_iter().map(|(place, _)| place).collect()
    }

    /// Moves one database, or says what that would be.
    async fn carry_out(&mut self, place: usize) {
        let desk = &mut self.desks[place];
        let Some((path, audit)) = &self.audit else {
            desk.state.waits_for = Some("a dry run without an audit log".to_owned());
            return;
        };
        let window = self.config.window.filter(|window| !window.is_open(SystemTime::now()));
        if let Some(window) = window.filter(|_| !self.config.dry_run) {
            desk.state.waits_for = Some(format!("the maintenance window ({window})"));
            return;
        }
        let mode = if self.config.dry_run { Mode::DryRun } else { Mode::Act };
        desk.carry_out(audit, mode).await;
        if mode == Mode::Act {
            match journal::read(path) {
                Ok(mut past) => {
                    let past = past.remove(&desk.config.name).unwrap_or_default();
                    desk.recall(past, self.config.dry_run);
                    desk.tell(UNREAD, None);
                }
                // What is known of a move that was cut off is not forgotten.
                Err(error) => desk.tell(UNREAD, Some(&error.to_string())),
            }
        }
    }

    fn publish(&self, took: Option<(Duration, Duration)>) {
        let before = Arc::clone(&self.state.borrow());
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.state.send_replace(Arc::new(PlacementState {
            interval_s: self.config.interval.as_secs_f64(),
            dry_run: self.config.dry_run,
            objective: match self.config.percentile {
                None => "mean".to_owned(),
                Some(p) => format!("p{}", percent_of(p)),
            },
            window: self.config.window.map(|window| window.to_string()),
            rounds: self.rounds,
            decided_unix_ms: took.map(|_| now).or(before.decided_unix_ms),
            round_ms: took.map(|(round, _)| millis(round)).or(before.round_ms),
            decisions_ms: took.map(|(_, decisions)| millis(decisions)).or(before.decisions_ms),
            databases: self.desks.iter().map(|desk| desk.state.clone()).collect(),
        }));
    }
}

/// Who moves databases: this process, wherever it is.
fn who() -> Arc<str> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let host = host.or_else(|_| std::env::var("HOSTNAME")).unwrap_or_default();
    let host = if host.trim().is_empty() { "a host without a name" } else { host.trim() };
    format!("evenkeel run on {host}, process {}", std::process::id()).into()
}

/// Looks at all databases and counts their operations, a few at a time. Those that were not asked
/// within this time are not asked at all: where every answer is a time-out, thousands of them would
/// take hours.
async fn look_and_count(desks: Vec<Desk>, time: Duration) -> io::Result<Vec<Desk>> {
    let began = Instant::now();
    let mut done: Vec<Option<Desk>> = desks.iter().map(|_| None).collect();
    let mut waiting = desks.into_iter().enumerate();
    let mut under_way = JoinSet::new();
    loop {
        while under_way.len() < ASKED_AT_ONCE
            && let Some((place, mut desk)) = waiting.next()
        {
            if began.elapsed() >= time {
                desk.count_failed("not asked: the others took too long (who does not answer?)");
                done[place] = Some(desk);
                continue;
            }
            under_way.spawn_local(async move {
                desk.look().await;
                desk.count().await;
                (place, desk)
            });
        }
        match under_way.join_next().await {
            Some(ended) => {
                let (place, desk) = ended?;
                done[place] = Some(desk);
            }
            None => return Ok(done.into_iter().flatten().collect()),
        }
    }
}

/// Decides about all databases on all cores, and how long that took.
fn decide(mut desks: Vec<Desk>) -> (Vec<Desk>, Duration) {
    let began = Instant::now();
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = desks.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        for some in desks.chunks_mut(share) {
            scope.spawn(|| some.iter_mut().for_each(Desk::decide_or_say));
        }
    });
    (desks, began.elapsed())
}

impl Desk {
    fn new(
        database: &DatabaseConfig,
        config: &PlacementConfig,
        ways: Option<&Ways>,
        who: &Arc<str>,
    ) -> io::Result<Self> {
        let store = database.system.as_ref().map(|system| Store::new(system, config.window));
        let store = store.transpose().map_err(io::Error::other)?;
        let collector = Collector::new(database, Arc::clone(&config.clients), config.interval);
        let collector = collector.map_err(io::Error::other)?;
        let is_many = config.databases.len() > MANY;
        let planner = Planner::new(Config {
            tier: match database.tier {
                PlacementTier::Leader => Tier::Leader,
                PlacementTier::Voters | PlacementTier::Replicas => Tier::Voters,
            },
            objective: config.percentile.map_or(Objective::Mean, Objective::Percentile),
            route: config.route,
            domains: database.domains.clone(),
            diversity: database.diversity,
            leader_stays: database.system.as_ref().is_some_and(|system| system.store.elects()),
            steady: config.steady,
            explain_intervals: if is_many { EXPLAINED_OF_MANY } else { EXPLAINED },
        });
        let today = database.today.clone();
        let state = DatabaseState {
            name: database.name.clone(),
            system: store.as_ref().map_or("none", Store::kind),
            tier: database.tier as u8,
            layout: today.as_ref().map(|layout| LayoutState::of(layout, &database.sites)),
            verdict: "undecided",
            why: "No interval has ended yet.".to_owned(),
            ..DatabaseState::default()
        };
        let clients = Arc::clone(&config.clients);
        let mut history = History::new(config.tau, INTERVALS_MAX).map_err(io::Error::other)?;
        if let Some(tails) = &database.tails {
            history.adopt_tails(Arc::clone(tails)).map_err(io::Error::other)?;
        }
        Ok(Self {
            planner,
            collector,
            history,
            trips: database.trips.clone(),
            ways: ways.cloned(),
            config: database.clone(),
            clients,
            store,
            today,
            decision: None,
            tried: None,
            moved_at: None,
            unfinished: None,
            who: Arc::clone(who),
            wrong: BTreeSet::new(),
            state,
        })
    }

    /// Takes over what the audit log has.
    fn recall(&mut self, past: Past, is_dry_run: bool) {
        self.state.moves = past.moves.into();
        let (Some(cut), Some(store)) = (past.unfinished, &self.store) else {
            self.unfinished = None;
            return;
        };
        let sites = self.config.sites.len();
        let site = |name: &str| (0..sites).find(|site| store.site_name(*site) == name);
        let why_not = match (cut.from.layout(&site), cut.goal.layout(&site)) {
            (Some(from), Some(goal)) if !is_dry_run => {
                self.unfinished = Some((from, goal, cut.why));
                return;
            }
            (Some(_), Some(_)) => "with dry_run nothing is changed",
            _ => "its sites are not all configured",
        };
        let (name, from, goal) = (&self.config.name, &cut.from, &cut.goal);
        warn!(
            database = name,
            "placement: a move was cut off and is not finished ({why_not}): it began where {from}, \
             and was to end where {goal}"
        );
    }

    /// Logs what goes wrong, and what is well again, when it changes.
    fn tell(&mut self, about: &str, wrong: Option<&str>) {
        let name = &self.config.name;
        match wrong {
            Some(why) if self.wrong.insert(about.to_owned()) => {
                warn!(database = name, "placement: {about}: {why}");
            }
            None if self.wrong.remove(about) => {
                info!(database = name, "placement: {about}: no longer");
            }
            _ => {}
        }
    }

    /// Where everything is.
    async fn look(&mut self) {
        let Some(store) = &self.store else { return };
        let seen = match store.observe().await {
            Ok(seen) => seen,
            Err(error) => {
                self.state.counts.store_failures += 1;
                self.tell(UNSEEN, Some(&error.message));
                (self.today, self.state.problem) = (None, Some(error.message));
                return;
            }
        };
        self.tell(UNSEEN, None);
        self.state.unwell = 0;
        for (site, name) in Arc::clone(&self.config.sites).iter().enumerate() {
            let ill = seen.replicas.get(site).and_then(Option::as_ref);
            let ill = ill.and_then(|seen| seen.ill.as_deref());
            self.state.unwell += u64::from(ill.is_some());
            self.tell(&format!("the replica at {name} is not well"), ill);
        }
        self.state.layout = Some(LayoutState::of(&seen.layout, &self.config.sites));
        self.today = Some(seen.layout);
    }

    /// The operations of the interval that has just ended; of all intervals that are kept when it
    /// is the first.
    async fn count(&mut self) {
        // Before operations are counted, which are told only once.
        let trips = match self.measure() {
            Ok(trips) => trips,
            Err(error) => return self.count_failed(&error.to_string()),
        };
        let wanted = if self.history.is_empty() { INTERVALS_MAX } else { 1 };
        let collected = match self.collector.collect(wanted).await {
            Ok(collected) => collected,
            Err(error) => return self.count_failed(&error.to_string()),
        };
        if collected.warnings != self.state.warnings {
            for words in &collected.warnings {
                warn!(database = self.config.name, "placement: {words}");
            }
        }
        self.state.warnings = collected.warnings;
        let many = collected.intervals.len();
        for (place, counts) in collected.intervals.into_iter().enumerate() {
            self.recall_move(many - place);
            let interval = Interval::new(counts, Arc::clone(&trips));
            if let Err(error) = interval.and_then(|interval| self.history.push(interval)) {
                return self.count_failed(&error.to_string());
            }
        }
        self.recall_move(0);
        self.state.counts.collected += 1;
        self.tell(SKIPPED, None);
        if self.today.is_some() {
            self.state.problem = None;
        }
    }

    /// The round trips of now.
    fn measure(&mut self) -> Result<Arc<RoundTrips>, CollectErrorKind> {
        if let Some(ways) = &self.ways {
            let Measured { trips, tails } = ways.measured(&self.clients, &self.config.sites)?;
            if let Some(tails) = tails {
                self.history.adopt_tails(tails).map_err(CollectErrorKind::Input)?;
            }
            self.trips = Some(trips);
        }
        self.trips.clone().ok_or(CollectErrorKind::NoRoundTrips)
    }

    fn count_failed(&mut self, error: &str) {
        self.state.counts.collect_failures += 1;
        self.tell(SKIPPED, Some(error));
        if self.today.is_some() {
            self.state.problem = Some(error.to_owned());
        }
    }

    /// Tells the history of a move before this process, when it comes to the interval before which
    /// it was: so many intervals ago.
    fn recall_move(&mut self, ago: usize) {
        let since = Duration::from_secs_f64(self.planner.config().steady.interval_s * ago as f64);
        let Some(then) = SystemTime::now().checked_sub(since) else { return };
        if self.history.since_move().is_none() && self.moved_at.is_some_and(|at| at <= then) {
            self.history.moved();
        }
    }

    /// The cooldown begins.
    fn moved(&mut self) {
        self.moved_at = Some(SystemTime::now());
        self.history.moved();
    }

    /// Decides; a defect of ours about one database must not end the process, which serves others.
    fn decide_or_say(&mut self) {
        let decided = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.decide()));
        if decided.is_err() {
            self.decision = None;
            self.state.counts.undecided += 1;
            self.state.undecide("Deciding failed by a defect: please report it.".to_owned());
        }
    }

    /// What to do, by all that is known.
    fn decide(&mut self) {
        self.decision = None;
        self.state.waits_for = None;
        // A clock that was set back lets the cooldown begin anew, not last as long as that.
        let now = SystemTime::now();
        self.moved_at = self.moved_at.map(|at| at.min(now));
        if let Some(rest) = self.moved_at.and_then(|at| now.duration_since(at).ok()) {
            self.history.rested(rest);
        }
        let decided = match &self.today {
            _ if self.unfinished.is_some() => Err(NoDecision::Unfinished),
            None => Err(NoDecision::NoLayout),
            Some(_) if self.state.problem.is_some() => Err(NoDecision::NoInterval),
            Some(today) => self.decision(today),
        };
        match (decided, &self.today) {
            (Ok(decision), Some(today)) => {
                let (steady, objective) =
                    (&self.planner.config().steady, self.planner.config().objective);
                let (sites, clients) = (&self.config.sites, &self.clients);
                self.state.adopt(&decision, clients, sites);
                let about = About { sites, clients, steady, objective };
                self.state.why = about.why(today, &decision);
                match decision.verdict {
                    Verdict::Move { .. } => self.state.counts.decided_to_move += 1,
                    Verdict::Stay { .. } => {
                        self.state.counts.decided_to_stay += 1;
                        self.state.would_do.clear();
                        self.tried = None;
                        self.wrong.remove(NOT_MOVED);
                    }
                }
                self.decision = Some(decision);
            }
            (Err(why), _) => {
                self.state.counts.undecided += 1;
                self.state.undecide(why.to_string());
            }
            (Ok(_), None) => unreachable!("nothing is decided without a layout"),
        }
    }

    fn decision(&self, today: &Layout) -> Result<Decision, NoDecision> {
        let candidates = match self.config.tier {
            PlacementTier::Replicas => self.candidates(today)?,
            PlacementTier::Leader | PlacementTier::Voters => Vec::new(),
        };
        let decided = self.planner.decide_among(&self.history, today, &candidates);
        decided.map_err(NoDecision::Planner)
    }

    /// The best of tier 3, if there were operations.
    fn candidates(&self, today: &Layout) -> Result<Vec<Layout>, NoDecision> {
        let Some(past) = self.history.past(0) else { return Ok(Vec::new()) };
        let replicas = self.config.replicas.unwrap_or(today.replicas().len());
        let voters = self.config.voters.unwrap_or(today.voters().len()).min(replicas);
        let sites = self.config.sites.len();
        let of = |site| self.config.domains.as_ref().map_or(site, |domains| domains.of(site));
        let wanted = self.planner.diversity_of(today, voters);
        let domains = DomainLimits {
            of: (0..sites).map(of).collect(),
            voters_min: wanted.domains_min,
            // Learners may share a domain with whomever.
            replicas_max: None,
        };
        let route = self.planner.config().route;
        let question = Question {
            nodes_max: NODES_MAX,
            domains: Some(domains),
            ..Question::new(replicas, voters, route)
        };
        let placed = tier3::rank(&past, &question, Some(wanted.per_domain_max), 1);
        let placed = placed.map_err(NoDecision::Tier3)?;
        Ok(placed.into_iter().map(|placed| placed.layout).collect())
    }

    /// Moves, or says what that would be, or finishes what was cut off; a dry run for one goal is
    /// written down once.
    async fn carry_out(&mut self, audit: &Audit, mode: Mode) {
        let (from, goal, why, mode) = match (&self.unfinished, &self.decision) {
            (Some((from, goal, why)), _) => {
                (Some(from.clone()), goal.clone(), why.clone(), Mode::Finish)
            }
            (None, Some(decision)) => {
                (self.today.clone(), decision.goal.clone(), self.state.why.clone(), mode)
            }
            (None, None) => return,
        };
        if mode == Mode::DryRun && self.tried.as_ref() == Some(&goal) {
            return;
        }
        self.state.would_do.clear();
        let Some(store) = &self.store else { return };
        let from = from.as_ref();
        let order = Order { from, goal: &goal, who: &self.who, why: &why, mode };
        let outcome = store.run(audit, &order).await;
        let name = self.config.name.clone();
        if matches!(outcome, Ok(Outcome::Nothing | Outcome::WouldDo(_) | Outcome::Reached(_))) {
            self.wrong.remove(NOT_MOVED);
        }
        match outcome {
            Ok(Outcome::Nothing) => {}
            Ok(Outcome::WouldDo(planned)) => {
                self.state.would_do = planned.into_iter().map(|step| step.how).collect();
                self.tried = Some(goal);
            }
            Ok(Outcome::Reached(steps)) => {
                info!(database = name, "placement: moved in {} steps: {why}", steps.len());
                self.state.counts.moves += 1;
                self.state.layout = Some(LayoutState::of(&goal, &self.config.sites));
                self.moved();
            }
            Ok(Outcome::Stopped(stop)) => {
                match mode {
                    Mode::Finish if stop.stuck.is_some() => self.tell(NOT_MOVED, Some(&stop.words)),
                    _ => warn!(database = name, "placement: {stop}"),
                }
                self.state.counts.stopped += 1;
                self.state.waits_for = Some(stop.to_string());
                // Not tried again at once: whatever stopped it needs time, or a person.
                self.moved();
            }
            Err(error) => {
                self.tell(NOT_MOVED, Some(&error.message));
                self.state.waits_for = Some(error.message);
            }
        }
    }
}
