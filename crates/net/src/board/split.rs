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
pub use evenkeel_core::site::redirect::demand::{LaneTally, SplitTally};
use evenkeel_core::site::redirect::split::{Enforced, PlanRow, SplitConfig, SplitWindow, enforced};
use evenkeel_core::units::Probability;
use tokio::sync::watch;

use crate::split::SplitSetup;

/// Epochs whose counts are kept: the one in force and the one before it.
const EPOCHS_KEPT: usize = 2;

/// What the workers of an upstream shall enforce until the next one comes.
#[derive(Clone, Debug, PartialEq)]
pub struct Directive {
    /// The plan for this origin.
    pub row: PlanRow,
    /// By worker, its part of the caps; a worker without one has none, and keeps all at home.
    pub parts: Vec<Probability>,
    /// Until when the plan is believed, on the process's clock.
    pub good_until: Instant,
    /// By site, requests per 1,000 s that it could serve beyond the plan: where requests go that
    /// home has no replica for. May be empty.
    pub spare_per_1000_s: Vec<u64>,
}

/// What was done under a plan that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The epoch of the plan.
    pub epoch: u64,
    /// How long it was in force.
    pub over: Duration,
    /// What all workers of a process counted under it.
    pub window: SplitWindow,
}

/// What one worker counted about one site since it last handed up.
#[derive(Clone, Debug, Default)]
pub struct Lane {
    /// Requests of our own users that it served.
    pub tally: LaneTally,
    /// Requests it was given and that home served in the end.
    pub fallbacks: u64,
    /// Requests of its users that it sent here.
    pub inflow: u64,
    /// Of our own users' requests that it served: arrival to head of the answer.
    pub latency: Recorder,
}

impl Lane {
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
pub struct SplitObservation {
    /// The epoch of the plan it follows; `None` when it has none that is believed.
    pub epoch: Option<u64>,
    /// What its splitter counted, with the epoch of the plan it had adopted.
    pub windows: Vec<(Option<u64>, SplitWindow)>,
    /// By site.
    pub lanes: Vec<Lane>,
    /// Of those that home served, the ones that came back from another site.
    pub returned: LaneTally,
    /// Requests that say they were sent from a site that is none of the plan's.
    pub inflow_unknown: u64,
    /// Calls that wait for a replica now.
    pub waiting: u64,
}

/// How the split of an upstream stands, over all workers.
#[derive(Clone, Debug)]
pub struct SplitStanding {
    /// The sites, and which of them this is.
    pub setup: SplitSetup,
    /// By worker, everything its splitter counted since the process began.
    pub workers: Vec<SplitWindow>,
    /// By site, everything counted since the process began.
    pub lanes: Vec<Lane>,
    /// What came through other data planes (Envoy), and what became of it by site; `None` as long
    /// as nothing did.
    pub foreign: Option<(SplitWindow, Vec<LaneTally>)>,
    /// Of those that home served, the ones that came back from another site.
    pub returned: LaneTally,
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

impl SplitStanding {
    fn new(setup: SplitSetup, workers: usize) -> Self {
        let sites = setup.names.len();
        Self {
            setup,
            workers: vec![SplitWindow::empty(sites); workers],
            lanes: vec![Lane::default(); sites],
            foreign: None,
            returned: LaneTally::default(),
            inflow_unknown: 0,
            following: vec![None; workers],
            waiting: vec![0; workers],
            counted_at: vec![None; workers + 1],
            opened: std::time::Instant::now(),
            epochs: VecDeque::new(),
        }
    }

    /// What all splitters counted since the process began.
    #[must_use]
    pub fn total(&self) -> SplitWindow {
        let mut sum = SplitWindow::empty(self.setup.names.len());
        self.workers.iter().for_each(|window| sum.merge(window));
        sum
    }

    /// The newest plan that a worker follows.
    #[must_use]
    pub fn plan(&self) -> Option<&PlanRow> {
        let plans = self.epochs.iter().rev().map(|epoch| &epoch.directive.row);
        plans.into_iter().find(|row| self.following.contains(&Some(row.epoch)))
    }

    /// The last epoch that is over, and what became of its plan for each site beside this one.
    #[must_use]
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

    fn note(&mut self, worker: usize, observation: &SplitObservation) {
        for (epoch, window) in &observation.windows {
            self.workers[worker].merge(window);
            let is_of = |known: &&mut Epoch| Some(known.directive.row.epoch) == *epoch;
            if let Some(known) = self.epochs.iter_mut().find(is_of) {
                known.window.merge(window);
            }
        }
        for (mine, theirs) in self.lanes.iter_mut().zip(&observation.lanes) {
            mine.merge(theirs);
        }
        self.returned.add(observation.returned);
        self.inflow_unknown += observation.inflow_unknown;
        self.following[worker] = observation.epoch;
        self.waiting[worker] = observation.waiting;
        self.counted_at[worker] = Some(self.now());
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.opened.elapsed()
    }
}

/// The board's entry for an upstream whose requests are split.
#[derive(Debug)]
pub(super) struct SplitEntry {
    standing: Mutex<SplitStanding>,
    directive: watch::Sender<Option<Arc<Directive>>>,
}

impl SplitEntry {
    pub(super) fn new(setup: SplitSetup, workers: usize) -> Self {
        let standing = Mutex::new(SplitStanding::new(setup, workers));
        Self { standing, directive: watch::Sender::new(None) }
    }

    pub(super) fn direct(&self, directive: Directive) {
        let directive = Arc::new(directive);
        self.lock().begin(Arc::clone(&directive));
        self.directive.send_replace(Some(directive));
    }

    pub(super) fn directives(&self) -> watch::Receiver<Option<Arc<Directive>>> {
        self.directive.subscribe()
    }

    pub(super) fn note(&self, worker: usize, observation: &SplitObservation) {
        self.lock().note(worker, observation);
    }

    pub(super) fn note_foreign(&self, window: &SplitWindow, lanes: &[LaneTally]) {
        let standing = &mut *self.lock();
        let now = standing.now();
        let sites = standing.setup.names.len();
        let nothing = || (SplitWindow::empty(sites), vec![LaneTally::default(); sites]);
        let (sum, tallies) = standing.foreign.get_or_insert_with(nothing);
        sum.merge(window);
        for (mine, theirs) in tallies.iter_mut().zip(lanes) {
            mine.add(*theirs);
        }
        if let Some(at) = standing.counted_at.last_mut() {
            *at = Some(now);
        }
    }

    pub(super) fn standing(&self) -> SplitStanding {
        self.lock().clone()
    }

    /// What the workers did under the last plan that is over.
    pub(super) fn ended(&self) -> Option<Ended> {
        let standing = self.lock();
        let epoch = standing.over()?;
        let over = epoch.ended? - epoch.began;
        Some(Ended { epoch: epoch.directive.row.epoch, over, window: epoch.window.clone() })
    }

    pub(super) fn tally(&self) -> SplitTally {
        let standing = self.lock();
        let mut workers = standing.workers.clone();
        let mut lanes: Vec<LaneTally> = standing.lanes.iter().map(|lane| lane.tally).collect();
        let mut foreign = LaneTally::default();
        if let Some((window, tallies)) = &standing.foreign {
            workers.push(window.clone());
            foreign.add(tallies[standing.setup.home.index()]);
            lanes.iter_mut().zip(tallies).for_each(|(lane, tally)| lane.add(*tally));
        }
        let inflow = standing.lanes.iter().map(|lane| lane.inflow).sum::<u64>();
        SplitTally {
            workers,
            counted_at: standing.counted_at.clone(),
            lanes,
            returned: standing.returned,
            foreign,
            inflow: inflow + standing.inflow_unknown,
            waiting: standing.waiting.iter().sum(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, SplitStanding> {
        // A worker that panicked left whole numbers behind: they are still worth showing.
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_core::site::redirect::epoch::SiteId;

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
        let of = |ended, missed| LaneTally { ended, missed };
        let mut lanes = vec![Lane::default(); 2];
        (lanes[0].tally, lanes[1].inflow) = (of(70, 9), 5);
        let observation = SplitObservation {
            epoch: None,
            windows: Vec::new(),
            lanes,
            returned: of(4, 3),
            inflow_unknown: 2,
            waiting: 9,
        };
        entry.note(0, &observation);
        let nothing = SplitObservation { lanes: vec![Lane::default(); 2], ..observation };
        let nothing = SplitObservation { returned: of(0, 0), inflow_unknown: 0, ..nothing };
        entry.note(1, &nothing);
        entry.note(0, &SplitObservation { waiting: 2, ..nothing });
        entry.note_foreign(&SplitWindow::empty(2), &[of(20, 1), of(10, 0)]);
        let tally = entry.tally();
        assert_eq!(tally.lanes, [of(90, 10), of(10, 0)]);
        assert_eq!((tally.returned, tally.foreign, tally.inflow), (of(4, 3), of(20, 1), 7));
        assert_eq!(tally.waiting, 2 + 9, "of each worker what it said last");
    }
}
