//! Why a decision is what it is, as numbers: the listing of figure 2 and what changed.

use super::history::{History, Past};
use super::leader::Ranked;
use super::model::{Counts, Layout, Operation, Route};
use super::score::{ClientTrips, quorum_ms};

/// How many layouts a row shows: the best, the second, the third, as figure 2.
const SHOWN: usize = 3;

/// How many clients [`Explanation::clients`] names at most.
const CLIENTS_MAX: usize = 5;

/// What led to a decision.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Explanation {
    /// What would have been said at the end of each interval, the newest first; intervals before
    /// which there were no operations are left out.
    pub rows: Vec<Row>,
    /// How many intervals ago [`operations`](Self::operations) and [`clients`](Self::clients)
    /// begin: at the last move, or else at the oldest interval that is kept.
    pub since: usize,
    /// The share of each kind of operation then and now.
    pub operations: Vec<Shift<Operation>>,
    /// The clients whose share of all operations changed most, at most five.
    pub clients: Vec<Shift<usize>>,
}

/// One line of figure 2: what was best by what was known at the end of one interval.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// How many intervals ago.
    pub ago: usize,
    /// The best, the second and the third layout (fewer where there are fewer).
    pub best: Vec<Overhead>,
    /// The layout of today.
    pub today: Overhead,
}

/// A layout against the best of its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Overhead {
    /// Leader, voters, replicas.
    pub layout: Layout,
    /// What operations take under it, in milliseconds.
    pub latency_ms: f64,
    /// By what share that is more than the best: 0 for the best itself.
    pub overhead: f64,
}

/// A share of all operations, then and now.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shift<T> {
    /// Whose.
    pub of: T,
    /// Then.
    pub before: f64,
    /// Now.
    pub now: f64,
}

impl<T> Shift<T> {
    /// By how much it changed, up or down.
    fn size(&self) -> f64 {
        (self.now - self.before).abs()
    }
}

impl Explanation {
    /// Explains the last intervals of a history, at most so many; `rank` ranks all layouts by a
    /// past and tells what the one of today takes.
    pub(super) fn of(
        history: &History,
        today: &Layout,
        intervals_max: usize,
        mut rank: impl FnMut(&Past<'_>) -> Option<(Vec<Ranked>, f64)>,
    ) -> Self {
        let row = |ago| {
            let (ranked, today_ms) = rank(&history.past(ago)?)?;
            Some(Row::of(ago, ranked, today, today_ms))
        };
        let rows = (0..history.len().min(intervals_max)).filter_map(row).collect();
        let oldest = history.len().saturating_sub(1);
        let since = history.since_move().map_or(oldest, |moved| oldest.min(moved as usize));
        let (Some(before), Some(now)) = (history.past(since), history.past(0)) else {
            return Self { rows, since, ..Self::default() };
        };
        let (before, now) = (before.counts(), now.counts());
        Self { rows, since, operations: operations(&before, &now), clients: clients(&before, &now) }
    }
}

impl Row {
    fn of(ago: usize, ranked: Vec<Ranked>, today: &Layout, today_ms: f64) -> Self {
        let best_ms = ranked.first().map_or(today_ms, |best| best.latency_ms);
        let overhead = |layout: Layout, latency_ms: f64| Overhead {
            layout,
            latency_ms,
            overhead: if best_ms > 0.0 { latency_ms / best_ms - 1.0 } else { 0.0 },
        };
        let best = ranked.into_iter().take(SHOWN);
        let best = best.map(|option| overhead(option.layout, option.latency_ms)).collect();
        Self { ago, best, today: overhead(today.clone(), today_ms) }
    }
}

fn operations(before: &Counts, now: &Counts) -> Vec<Shift<Operation>> {
    let share = |counts: &Counts, of| counts.total_of(of) / counts.total();
    let shift = |of| Shift { of, before: share(before, of), now: share(now, of) };
    Operation::ALL.into_iter().map(shift).collect()
}

fn clients(before: &Counts, now: &Counts) -> Vec<Shift<usize>> {
    let share = |counts: &Counts, total: f64, of| counts.of(of).iter().sum::<f64>() / total;
    let (before_all, now_all) = (before.total(), now.total());
    let mut shifts: Vec<Shift<usize>> = (0..now.clients())
        .map(|of| Shift { of, before: share(before, before_all, of), now: share(now, now_all, of) })
        .filter(|shift| shift.size() > 0.0)
        .collect();
    shifts.sort_by(|one, other| other.size().total_cmp(&one.size()).then(one.of.cmp(&other.of)));
    shifts.truncate(CLIENTS_MAX);
    shifts
}

/// What one client, or one kind of operation, waits under two layouts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Wait<T> {
    /// Whose.
    pub of: T,
    /// How many operations it has, faded as those of the past.
    pub operations: f64,
    /// Their mean latency under the first layout, in milliseconds.
    pub before_ms: f64,
    /// The same under the second.
    pub after_ms: f64,
}

impl<T> Wait<T> {
    /// What all its operations save together, in milliseconds × operations; negative where they
    /// lose.
    pub fn saved_ms(&self) -> f64 {
        self.operations * (self.before_ms - self.after_ms)
    }
}

/// Who waits how long under two layouts: clients with operations and kinds of operations, those
/// that save most first.
#[derive(Clone, PartialEq, Debug)]
pub struct Waits {
    /// By client.
    pub clients: Vec<Wait<usize>>,
    /// By kind of operation.
    pub operations: Vec<Wait<Operation>>,
}

impl Waits {
    /// Compares two layouts on the operations of a past.
    ///
    /// # Panics
    /// When a replica is at none of the sites of the past.
    pub fn between(past: &Past<'_>, before: &Layout, after: &Layout, route: Route) -> Self {
        let clients = past.newest().trips().clients();
        let mut by_client = vec![Sums::default(); clients];
        let mut by_operation = [Sums::default(); Operation::ALL.len()];
        for part in past.parts() {
            let quorums =
                [before, after].map(|one| quorum_ms(part.trips, one.leader(), one.voters()));
            for (client, counts) in part.counts.iter().enumerate() {
                let client_trips = [before, after].map(|one| {
                    ClientTrips::of(part.trips, client, one.replicas(), one.leader(), route)
                });
                for operation in Operation::ALL {
                    let count = counts[operation as usize];
                    let took =
                        [0, 1].map(|k| count * client_trips[k].latency_ms(operation, quorums[k]));
                    by_client[client].add(count, took);
                    by_operation[operation as usize].add(count, took);
                }
            }
        }
        Self {
            clients: listed(by_client.into_iter().enumerate()),
            operations: listed(Operation::ALL.into_iter().zip(by_operation)),
        }
    }
}

#[derive(Clone, Copy, Default)]
struct Sums {
    operations: f64,
    took_ms: [f64; 2],
}

impl Sums {
    fn add(&mut self, operations: f64, took_ms: [f64; 2]) {
        self.operations += operations;
        (0..2).for_each(|k| self.took_ms[k] += took_ms[k]);
    }
}

fn listed<T: Ord>(sums: impl Iterator<Item = (T, Sums)>) -> Vec<Wait<T>> {
    let wait = |(of, Sums { operations, took_ms: [before, after] })| Wait {
        of,
        operations,
        before_ms: before / operations,
        after_ms: after / operations,
    };
    let mut list: Vec<Wait<T>> = sums.filter(|(_, sums)| sums.operations > 0.0).map(wait).collect();
    list.sort_by(|one, other| {
        other.saved_ms().total_cmp(&one.saved_ms()).then_with(|| one.of.cmp(&other.of))
    });
    list
}
