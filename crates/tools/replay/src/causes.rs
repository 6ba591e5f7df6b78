//! What the slowest requests of a day waited for.

use evenkeel_twin::Twin;
use evenkeel_twin::pauses::overlap_ns;
use evenkeel_twin::rows::{Day, End, Why};

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

    /// Of a day with agents; `pauses` and speeds are those of its replicas.
    pub fn of(day: &Day, twin: &Twin) -> Self {
        let mut answers: Vec<(u64, usize, u64)> = day
            .rows
            .iter()
            .zip(day.sent_ns())
            .enumerate()
            .filter(|(_, (row, _))| row.end == End::Answered && row.why != Why::Pair)
            .map(|(number, (row, sent_ns))| (row.after_ns + row.latency_ns, number, sent_ns))
            .collect();
        answers.sort_unstable();
        let count = (answers.len() as f64 * SLOWEST).ceil() as usize;
        let mut sums = [0.0; 6];
        let mean = mean_log(twin);
        for (_, number, sent_ns) in &answers[answers.len() - count..] {
            let row = &day.rows[*number];
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

/// The mean logarithm of a service time over all replicas and the day.
fn mean_log(twin: &Twin) -> f64 {
    let logs = twin.speeds.logs.iter().flatten();
    let (sum, count) = logs.fold((0.0, 0.0), |(sum, count), log| (sum + log, count + 1.0));
    sum / f64::max(count, 1.0)
}
