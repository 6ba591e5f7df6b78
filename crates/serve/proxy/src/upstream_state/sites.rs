//! The split of an upstream's requests between data centres: what workers are told, what they
//! counted.
//!
//! The planner hands a [`Directive`] down once in an epoch; workers hand up what they did with it.
//! Counts are as old as the last hand-up (0.2 s). Windows come with the epoch they were counted
//! under, so that what is compared with a plan was done under that plan.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_core::Instant;
use evenkeel_core::distribution::Recorder;
use evenkeel_geo::demand::{SiteTally, SplitTally};
use evenkeel_geo::split::{Enforced, PlanRow, SplitConfig, SplitWindow, enforced};
use evenkeel_geo::traffic::{Directive, Ended, SplitSetup};
use tokio::sync::watch;

/// Epochs whose counts are kept: the one in force and the one before it.
const EPOCHS_KEPT: usize = 2;

/// What one worker counted about one site since it last handed up.
#[derive(Clone, Debug, Default)]
pub struct SiteCounts {
    /// Requests of our own users that it served.
    pub tally: SiteTally,
    /// Requests it was given and that home served in the end.
    pub fallbacks: u64,
    /// Requests of its users that it sent here.
    pub inflow: u64,
    /// Of our own users' requests that it served: arrival to head of the answer.
    pub latency: Recorder,
}

impl SiteCounts {
    /// Adds what was counted elsewhere or later.
    fn merge(&mut self, other: &Self) {
        self.tally.add(other.tally);
        self.fallbacks += other.fallbacks;
        self.inflow += other.inflow;
        self.latency.merge(&other.latency).expect("lanes record with the default digits");
    }
}

/// What one worker hands up of its split.
#[derive(Clone, Debug)]
pub struct SplitReport {
    /// The epoch of the plan it follows; `None` when it has none that is believed.
    pub epoch: Option<u64>,
    /// What its splitter counted, with the epoch of the plan it had adopted.
    pub windows: Vec<(Option<u64>, SplitWindow)>,
    /// By site.
    pub by_site: Vec<SiteCounts>,
    /// Of those that home served, the ones that came back from another site.
    pub returned: SiteTally,
    /// Requests that say they were sent from a site that is none of the plan's.
    pub inflow_unknown: u64,
    /// Calls that wait for a replica now.
    pub waiting: u64,
}

/// How the split of an upstream stands, over all workers.
#[derive(Clone, Debug)]
pub struct SplitStats {
    /// The sites, and which of them this is.
    pub setup: SplitSetup,
    /// By worker, everything its splitter counted since the process began.
    pub workers: Vec<SplitWindow>,
    /// By site, everything counted since the process began.
    pub by_site: Vec<SiteCounts>,
    /// What came through other data planes (Envoy), and what became of it by site; `None` as long
    /// as nothing did.
    pub foreign: Option<(SplitWindow, Vec<SiteTally>)>,
    /// Of those that home served, the ones that came back from another site.
    pub returned: SiteTally,
    /// Requests that say they were sent from a site that is none of the plan's.
    pub inflow_unknown: u64,
    /// By worker, the epoch of the plan it follows; `None` when it has none that is believed.
    pub following: Vec<Option<u64>>,
    /// By worker, calls that waited for a replica when it handed up last.
    pub waiting: Vec<u64>,
    /// By worker, and behind them for other data planes, when they handed up last; since `opened`.
    counted_at: Vec<Option<Instant>>,
    opened: std::time::Instant,
    epochs: VecDeque<Epoch>,
}

/// A plan that was handed down, and what was done under it.
#[derive(Clone, Debug)]
struct Epoch {
    directive: Arc<Directive>,
    began: std::time::Instant,
    ended: Option<std::time::Instant>,
    window: SplitWindow,
}

impl SplitStats {
    fn new(setup: SplitSetup, workers: usize) -> Self {
        let sites = setup.names.len();
        Self {
            setup,
            workers: vec![SplitWindow::empty(sites); workers],
            by_site: vec![SiteCounts::default(); sites],
            foreign: None,
            returned: SiteTally::default(),
            inflow_unknown: 0,
            following: vec![None; workers],
            waiting: vec![0; workers],
            counted_at: vec![None; workers + 1],
            opened: std::time::Instant::now(),
            epochs: VecDeque::new(),
        }
    }

    /// What all splitters counted since the process began.
    pub fn total(&self) -> SplitWindow {
        let mut sum = SplitWindow::empty(self.setup.names.len());
        self.workers.iter().for_each(|window| sum.merge(window));
        sum
    }

    /// The newest plan that a worker follows.
    pub fn plan(&self) -> Option<&PlanRow> {
        let plans = self.epochs.iter().rev().map(|epoch| &epoch.directive.row);
        plans.into_iter().find(|row| self.following.contains(&Some(row.epoch)))
    }

    /// The last epoch that is over, and what became of its plan for each site beside this one.
    pub fn enforced(&self) -> Option<(u64, Vec<Enforced>)> {
        let epoch = self.over()?;
        let over = epoch.ended.map_or(Duration::ZERO, |ended| ended - epoch.began);
        let slack = SplitConfig::default().slack;
        let row = &epoch.directive.row;
        Some((row.epoch, enforced(row, slack, over, &epoch.window)))
    }

    fn over(&self) -> Option<&Epoch> {
        self.epochs.iter().rev().find(|epoch| epoch.ended.is_some())
    }

    fn begin(&mut self, directive: Arc<Directive>) {
        let now = std::time::Instant::now();
        if let Some(last) = self.epochs.back_mut() {
            if last.directive.row.epoch == directive.row.epoch {
                return; // no splitter takes an epoch's plan twice
            }
            last.ended = Some(now);
        }
        if self.epochs.len() >= EPOCHS_KEPT {
            self.epochs.pop_front();
        }
        let window = SplitWindow::empty(self.setup.names.len());
        self.epochs.push_back(Epoch { directive, began: now, ended: None, window });
    }

    fn note(&mut self, worker: usize, report: &SplitReport) {
        for (epoch, window) in &report.windows {
            self.workers[worker].merge(window);
            let is_of = |known: &&mut Epoch| Some(known.directive.row.epoch) == *epoch;
            if let Some(known) = self.epochs.iter_mut().find(is_of) {
                known.window.merge(window);
            }
        }
        for (mine, theirs) in self.by_site.iter_mut().zip(&report.by_site) {
            mine.merge(theirs);
        }
        self.returned.add(report.returned);
        self.inflow_unknown += report.inflow_unknown;
        self.following[worker] = report.epoch;
        self.waiting[worker] = report.waiting;
        self.counted_at[worker] = Some(self.now());
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.opened.elapsed()
    }
}

/// The entry for an upstream whose requests are split.
#[derive(Debug)]
pub(super) struct SplitEntry {
    stats: Mutex<SplitStats>,
    directive: watch::Sender<Option<Arc<Directive>>>,
}

impl SplitEntry {
    pub(super) fn new(setup: SplitSetup, workers: usize) -> Self {
        let stats = Mutex::new(SplitStats::new(setup, workers));
        Self { stats, directive: watch::Sender::new(None) }
    }

    pub(super) fn direct(&self, directive: Directive) {
        let directive = Arc::new(directive);
        self.lock().begin(Arc::clone(&directive));
        self.directive.send_replace(Some(directive));
    }

    pub(super) fn directives(&self) -> watch::Receiver<Option<Arc<Directive>>> {
        self.directive.subscribe()
    }

    pub(super) fn note(&self, worker: usize, report: &SplitReport) {
        self.lock().note(worker, report);
    }

    pub(super) fn note_foreign(&self, window: &SplitWindow, by_site: &[SiteTally]) {
        let stats = &mut *self.lock();
        let now = stats.now();
        let sites = stats.setup.names.len();
        let nothing = || (SplitWindow::empty(sites), vec![SiteTally::default(); sites]);
        let (sum, tallies) = stats.foreign.get_or_insert_with(nothing);
        sum.merge(window);
        for (mine, theirs) in tallies.iter_mut().zip(by_site) {
            mine.add(*theirs);
        }
        if let Some(at) = stats.counted_at.last_mut() {
            *at = Some(now);
        }
    }

    pub(super) fn stats(&self) -> SplitStats {
        self.lock().clone()
    }

    /// What the workers did under the last plan that is over.
    pub(super) fn ended(&self) -> Option<Ended> {
        let stats = self.lock();
        let epoch = stats.over()?;
        let over = epoch.ended? - epoch.began;
        Some(Ended { epoch: epoch.directive.row.epoch, over, window: epoch.window.clone() })
    }

    pub(super) fn tally(&self) -> SplitTally {
        let stats = self.lock();
        let mut workers = stats.workers.clone();
        let mut by_site: Vec<SiteTally> = stats.by_site.iter().map(|counts| counts.tally).collect();
        let mut foreign = SiteTally::default();
        if let Some((window, tallies)) = &stats.foreign {
            workers.push(window.clone());
            foreign.add(tallies[stats.setup.home.index()]);
            by_site.iter_mut().zip(tallies).for_each(|(counts, tally)| counts.add(*tally));
        }
        let inflow = stats.by_site.iter().map(|counts| counts.inflow).sum::<u64>();
        SplitTally {
            workers,
            counted_at: stats.counted_at.clone(),
            by_site,
            returned: stats.returned,
            foreign,
            inflow: inflow + stats.inflow_unknown,
            waiting: stats.waiting.iter().sum(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SplitStats> {
        // A worker that panicked left whole numbers behind: they are still worth showing.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_geo::epoch::SiteId;

    use super::*;

    #[test]
    fn what_other_data_planes_served_at_home_is_counted_and_told_apart() {
        let names = vec!["london".to_owned(), "ireland".to_owned()];
        let objective = Duration::from_millis(100);
        let setup = SplitSetup {
            home: SiteId::new(0),
            names,
            objective,
            writes_stay: false,
            bound_stay: false,
        };
        let entry = SplitEntry::new(setup, 2);
        let of = |ended, missed| SiteTally { ended, missed };
        let mut by_site = vec![SiteCounts::default(); 2];
        (by_site[0].tally, by_site[1].inflow) = (of(70, 9), 5);
        let report = SplitReport {
            epoch: None,
            windows: Vec::new(),
            by_site,
            returned: of(4, 3),
            inflow_unknown: 2,
            waiting: 9,
        };
        entry.note(0, &report);
        let nothing = SplitReport { by_site: vec![SiteCounts::default(); 2], ..report };
        let nothing = SplitReport { returned: of(0, 0), inflow_unknown: 0, ..nothing };
        entry.note(1, &nothing);
        entry.note(0, &SplitReport { waiting: 2, ..nothing });
        entry.note_foreign(&SplitWindow::empty(2), &[of(20, 1), of(10, 0)]);
        let tally = entry.tally();
        assert_eq!(tally.by_site, [of(90, 10), of(10, 0)]);
        assert_eq!((tally.returned, tally.foreign, tally.inflow), (of(4, 3), of(20, 1), 7));
        assert_eq!(tally.waiting, 2 + 9, "of each worker what it said last");
    }
}
