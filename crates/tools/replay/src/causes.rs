//! What the slowest requests of a day waited for.

use std::borrow::Borrow;
use std::cmp::Reverse;

use evenkeel_twin::Twin;
use evenkeel_twin::pauses::overlap_ns;
use evenkeel_twin::rows::{Day, End, Row, Why};

/// The slowest share of requests whose time is told apart.
pub const SLOWEST: f64 = 0.001;

/// Where time went, as shares of it: together 1, or all 0 where no request was that slow.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Causes {
    /// Before the copy that answered was sent: held back, or earlier copies took long.
    pub earlier: f64,
    /// On the network, and at clients.
    pub network: f64,
    /// In a pause of the replica, waiting or served.
    pub pauses: f64,
    /// In the replica's queue.
    pub queue: f64,
    /// Served, for as long as it took longer than on a replica of the day's mean speed.
    pub slow: f64,
    /// The rest: the work itself.
    pub work: f64,
}

impl Causes {
    /// Behind their names, for people.
    pub fn named(&self) -> [(&'static str, f64); 6] {
        [
            ("pauses of a replica", self.pauses),
            ("a queue", self.queue),
            ("a slow replica", self.slow),
            ("their own work", self.work),
            ("an earlier copy, or held", self.earlier),
            ("the network", self.network),
        ]
    }

    /// The mean of several.
    pub(crate) fn mean(all: impl Iterator<Item = Self>) -> Self {
        let (mut sum, mut count) = ([0.0; 6], 0.0);
        for one in all {
            let Self { earlier, network, pauses, queue, slow, work } = one;
            let shares = [earlier, network, pauses, queue, slow, work];
            sum.iter_mut().zip(shares).for_each(|(sum, share)| *sum += share);
            count += 1.0;
        }
        let [earlier, network, pauses, queue, slow, work] =
            sum.map(|sum| sum / f64::max(count, 1.0));
        Self { earlier, network, pauses, queue, slow, work }
    }

    /// Of the slowest of all parts of a day with agents; pauses and speeds are those of its
    /// replicas.
    pub(crate) fn of_slowest(mut all: Slowest, twin: &Twin) -> Self {
        let count = (all.answers as f64 * SLOWEST).ceil() as usize;
        let mut sums = [0.0; 6];
        let mean = mean_log(twin);
        slowest(&mut all.rows, count);
        for (_, sent_ns, row) in &all.rows {
            let Some(served) = row.served else { continue };
            let there_ns = served.wait_ns.saturating_add(served.service_ns).min(row.latency_ns);
            let away_ns = row.latency_ns - there_ns;
            let at_ns = sent_ns.saturating_add(away_ns / 2);
            let replica = usize::from(row.replica);
            let none = Vec::new();
            let pauses = twin.pauses.get(replica).unwrap_or(&none);
            let starts_ns = at_ns.saturating_add(served.wait_ns);
            let waiting_ns = overlap_ns(pauses, at_ns, starts_ns).min(served.wait_ns);
            let left_ns = starts_ns.saturating_add(served.service_ns);
            let serving_ns = overlap_ns(pauses, starts_ns, left_ns).min(served.service_ns);
            let worked = (served.service_ns - serving_ns) as f64;
            let factor = (twin.speeds.log(replica, starts_ns) - mean).exp();
            let slow = if factor > 1.0 { worked * (1.0 - 1.0 / factor) } else { 0.0 };
            let parts = [
                row.after_ns as f64,
                away_ns as f64,
                (waiting_ns + serving_ns) as f64,
                (served.wait_ns - waiting_ns) as f64,
                slow,
                worked - slow,
            ];
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += part;
            }
        }
        let all = sums.iter().sum::<f64>().max(1.0);
        let [earlier, network, pauses, queue, slow, work] = sums.map(|sum| sum / all);
        Self { earlier, network, pauses, queue, slow, work }
    }
}

/// The slowest answers of parts of a day.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slowest {
    answers: usize,
    /// From the request's arrival until its answer, ns; when the copy was sent; the copy.
    rows: Vec<(u64, u64, Row)>,
}

impl Slowest {
    /// Another part: ten times as many of it as would count if all parts were alike.
    pub(crate) fn add(&mut self, day: &Day) {
        let rows = day.rows.iter().zip(day.sent_ns());
        let answered = rows.filter(|(row, _)| row.end == End::Answered && row.why != Why::Pair);
        let mut more: Vec<(u64, u64, &Row)> = answered
            .map(|(row, sent_ns)| (row.after_ns.saturating_add(row.latency_ns), sent_ns, row))
            .collect();
        self.answers += more.len();
        let count = (more.len() as f64 * SLOWEST * 10.0).ceil() as usize;
        slowest(&mut more, count);
        let own = |(latency_ns, sent_ns, row): (u64, u64, &Row)| (latency_ns, sent_ns, *row);
        self.rows.extend(more.into_iter().map(own));
    }
}

/// Leaves all but so many of the slowest, in order: sums of floats depend on it.
fn slowest<R: Borrow<Row>>(rows: &mut Vec<(u64, u64, R)>, count: usize) {
    let key = |(latency_ns, sent_ns, row): &(u64, u64, R)| {
        let row = row.borrow();
        (Reverse(*latency_ns), *sent_ns, row.request, row.why as u8)
    };
    if (1..rows.len()).contains(&count) {
        rows.select_nth_unstable_by_key(count - 1, key);
    }
    rows.truncate(count);
    rows.sort_unstable_by_key(key);
}

/// The mean logarithm of a service time over all replicas and the day.
fn mean_log(twin: &Twin) -> f64 {
    let logs = twin.speeds.logs.iter().flatten();
    let (sum, count) = logs.fold((0.0, 0.0), |(sum, count), log| (sum + log, count + 1.0));
    sum / f64::max(count, 1.0)
}
