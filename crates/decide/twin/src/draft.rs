//! A day, or a part of one, while it is rebuilt: what is known of it grows in rounds.

use evenkeel_core::Rng;

use crate::common::Score;
use crate::pauses::{self, Pause};
use crate::rows::{Day, End, Why};
use crate::slots;
use crate::speeds::{Service, Speeds};
use crate::twin::Request;
use crate::visits::{Network, Visit, visits};
use crate::works::{Seen, Works};

/// Pauses are found by the law of works, and works are known once pauses are taken out of them.
const ROUNDS: usize = 3;

/// What is known between two rounds.
pub(crate) struct Draft {
    replicas: Vec<Vec<Visit>>,
    starts: Vec<Vec<Option<u64>>>,
    pub(crate) pauses: Vec<Vec<Pause>>,
    pub(crate) speeds: Speeds,
    pub(crate) works: Works,
    pub(crate) network: Network,
    /// Requests that each replica serves at once.
    pub(crate) slots: u32,
    /// Share of copies that left before they could have begun in so many slots.
    pub(crate) early: f64,
}

impl Draft {
    /// What the rows tell, where replicas have at least so many slots.
    pub(crate) fn new(day: &Day, slots_min: u32) -> Self {
        let (replicas, network) = visits(day);
        let (slots, early) = slots::concurrency(&replicas, slots_min);
        let starts = replicas.iter().map(|visits| slots::starts(visits, slots).0).collect();
        let pauses = vec![Vec::new(); replicas.len()];
        let (speeds, works) = (Speeds::default(), Works::default());
        let mut draft = Self { replicas, starts, pauses, speeds, works, network, slots, early };
        draft.weigh(day);
        for _ in 0..ROUNDS {
            draft.find_pauses();
            draft.weigh(day);
        }
        draft
    }

    /// Copies that each replica served, or tried to.
    pub(crate) fn visits(&self) -> impl Iterator<Item = usize> + '_ {
        self.replicas.iter().map(Vec::len)
    }

    /// Each visit that began, with the time for which its replica worked on it, as a logarithm.
    fn services(&self, replica: usize) -> impl Iterator<Item = (Visit, u64, f64)> + '_ {
        let began = self.replicas[replica].iter().zip(&self.starts[replica]);
        began.filter_map(move |(visit, start)| {
            let start = (*start)?;
            let paused = pauses::overlap_ns(&self.pauses[replica], start, visit.left_ns);
            let worked = (visit.left_ns - start).saturating_sub(paused).max(1_000);
            Some((*visit, start, (worked as f64).ln()))
        })
    }

    /// Learns speeds, then works. A copy that was given up counts for its speed as those do that
    /// took longer.
    fn weigh(&mut self, day: &Day) {
        let replicas = 0..self.replicas.len();
        let services: Vec<Vec<(Visit, u64, f64)>> =
            replicas.map(|replica| self.services(replica).collect()).collect();
        let mut all = Vec::with_capacity(self.replicas.len());
        for (replica, services) in services.iter().enumerate() {
            let service = |(visit, start, log): &(Visit, u64, f64)| -> Option<Service> {
                if !visit.is_cut {
                    return Some((*start, *log));
                }
                let scale = self.speeds.log(replica, *start);
                (!self.works.is_empty())
                    .then(|| (*start, scale + self.works.mean_beyond(log - scale)))
            };
            all.push(services.iter().filter_map(service).collect::<Vec<_>>());
        }
        self.speeds = Speeds::new(&all);
        drop(all);
        let mut seen = Vec::with_capacity(day.rows.len());
        for (replica, services) in services.iter().enumerate() {
            let firsts = services.iter();
            let firsts = firsts.filter(|(visit, ..)| day.rows[visit.row].why == Why::First);
            seen.extend(firsts.map(|(visit, start, log)| Seen {
                log: log - self.speeds.log(replica, *start),
                is_cut: visit.is_cut,
            }));
        }
        self.works = Works::new(seen);
    }

    fn find_pauses(&mut self) {
        for replica in 0..self.replicas.len() {
            self.pauses[replica] = pauses::find(
                &self.replicas[replica],
                &self.starts[replica],
                &self.works,
                |at_ns| self.speeds.log(replica, at_ns).exp(),
            );
        }
    }

    /// The work of each row that was served, or what it exceeds.
    pub(crate) fn logs(&self, rows: usize) -> Vec<Option<Seen>> {
        let mut logs = vec![None; rows];
        for replica in 0..self.replicas.len() {
            for (visit, start, log) in self.services(replica) {
                let log = log - self.speeds.log(replica, start);
                logs[visit.row] = Some(Seen { log, is_cut: visit.is_cut });
            }
        }
        logs
    }

    /// The scores of the copies of each request that went to two replicas on purpose.
    pub(crate) fn pairs(&self, day: &Day, logs: &[Option<Seen>]) -> Vec<Vec<Score>> {
        let paired = day.rows.iter().filter(|row| row.why == Why::Pair);
        let mut paired: Vec<u64> = paired.map(|row| row.request).collect();
        paired.sort_unstable();
        paired.dedup();
        let mut copies = vec![Vec::new(); paired.len()];
        // With several clients other rows come between the copies of a request.
        for (row, seen) in day.rows.iter().zip(logs) {
            if let (Ok(place), Some(seen)) = (paired.binary_search(&row.request), seen) {
                copies[place].push((self.works.score(seen.log), seen.is_cut));
            }
        }
        // Of copies that were all broken off nothing is known but that they took longer.
        copies.retain(|copies| copies.len() > 1 && copies.iter().any(|(_, is_cut)| !is_cut));
        copies
    }

    /// Whether requests take longer where more are present: a correlation, of so many.
    pub(crate) fn crowding(&self) -> (f64, usize) {
        let mut all = Vec::new();
        for (replica, visits) in self.replicas.iter().enumerate() {
            let mut left: Vec<u64> = visits.iter().map(|visit| visit.left_ns).collect();
            left.sort_unstable();
            let mut come = 0;
            let mut present = vec![0_usize; visits.len()];
            for (number, visit) in visits.iter().enumerate() {
                while left.get(come).is_some_and(|left_ns| *left_ns <= visit.at_ns) {
                    come += 1;
                }
                present[number] = number.saturating_sub(come);
            }
            let began = visits.iter().zip(&self.starts[replica]).zip(&present);
            let began = began.filter(|((_, start), _)| start.is_some()).map(|(_, there)| *there);
            for ((visit, start, log), there) in self.services(replica).zip(began) {
                if !visit.is_cut {
                    let log = log - self.speeds.log(replica, start);
                    all.push((log, (there as f64 + 1.0).ln()));
                }
            }
        }
        (pearson(&all), all.len())
    }

    /// The requests in the order of their arrival; `score` is the logarithm of the first copy's
    /// work until works of all parts are known. `common` is what copies have in common. A part that
    /// is not the first has no requests whose first copy was sent before it.
    pub(crate) fn requests(
        &self,
        day: &Day,
        logs: &[Option<Seen>],
        common: f64,
        is_first: bool,
        rng: &mut Rng,
    ) -> Vec<Request> {
        let mut copies: Vec<(u64, usize, u64)> = day
            .rows
            .iter()
            .zip(day.sent_ns())
            .enumerate()
            .map(|(number, (row, sent_ns))| (row.request, number, sent_ns))
            .collect();
        if !copies.is_sorted() {
            copies.sort_unstable();
        }
        let of_one = copies.chunk_by(|a, b| a.0 == b.0);
        let has_first =
            |copies: &&[(u64, usize, u64)]| is_first || day.rows[copies[0].1].why == Why::First;
        let request = |copies: &[(u64, usize, u64)]| {
            let (_, first, sent_ns) = copies[0];
            let row = &day.rows[first];
            let others = copies[1..].iter().filter_map(|copy| logs[copy.1]);
            let other = others.filter(|seen| !seen.is_cut).map(|seen| seen.log).next();
            let other = other.map(|log| (self.works.score(log), common));
            let mut beyond = |log| self.works.log(self.works.score_beyond(log, other, rng));
            let log = match logs[first] {
                Some(seen) if !seen.is_cut => seen.log,
                Some(seen) => beyond(seen.log),
                None => beyond(f64::NEG_INFINITY),
            };
            let answers = copies.iter().map(|copy| &day.rows[copy.1]);
            let answers = answers.filter(|row| row.end == End::Answered && row.why != Why::Pair);
            let latency_ns = answers.map(|row| row.after_ns.saturating_add(row.latency_ns)).min();
            Request {
                at_ns: sent_ns.saturating_sub(row.after_ns),
                client: row.client,
                group: row.group,
                policy: row.policy,
                score: log as f32,
                latency_ns: latency_ns.map_or(0, |latency_ns| latency_ns.max(1)),
            }
        };
        let mut requests: Vec<Request> = of_one.filter(has_first).map(request).collect();
        requests.sort_by_key(|request| request.at_ns);
        requests
    }
}

fn pearson(pairs: &[(f64, f64)]) -> f64 {
    let count = pairs.len().max(1) as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (a, b) = (mean(|pair| pair.0), mean(|pair| pair.1));
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (x, y) in pairs {
        both += (x - a) * (y - b);
        of_a += (x - a) * (x - a);
        of_b += (y - b) * (y - b);
    }
    let scale = (of_a * of_b).sqrt();
    if scale > 0.0 { both / scale } else { 0.0 }
}
