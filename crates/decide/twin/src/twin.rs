//! The world of a day, rebuilt.

use evenkeel_core::Rng;
use thiserror::Error;

use crate::pauses::{self, Pause};
use crate::rows::{Day, End, Row, Why};
use crate::slots;
use crate::speeds::{Service, Speeds};
use crate::visits::{Network, Visit, visits};
use crate::works::{Seen, Works};

/// Pauses are found by the law of works, and works are known once pauses are taken out of them.
const ROUNDS: usize = 3;
/// Fewer pairs say nothing of what copies have in common.
const PAIRS_MIN: usize = 30;
/// Fewer answers are no day.
const ANSWERS_MIN: usize = 1_000;

/// A week and a day, s.
const DAY_MAX_S: u64 = 8 * 86_400;

/// A number with its standard error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

/// A request of the day.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Request {
    /// When it arrived, ns from the start of the day.
    pub at_ns: u64,
    /// The dispatcher at which it arrived.
    pub client: u16,
    /// Its replica group.
    pub group: u16,
    /// Which policy decided: 0 is that of the day.
    pub policy: u8,
    /// Where its first copy's work stands among all: a normal score.
    pub score: f32,
}

/// The world of a day, rebuilt.
#[derive(Clone, PartialEq, Debug)]
pub struct Twin {
    /// The requests in the order of their arrival.
    pub requests: Vec<Request>,
    /// Requests that each replica serves at once.
    pub slots: u32,
    /// Share of copies that left before they could have begun in so many slots.
    pub early: f64,
    /// Correlation of works with how many were there before: near 0 in slots, high where all share
    /// the replica's cores.
    pub crowding: Estimate,
    /// The pauses of each replica.
    pub pauses: Vec<Vec<Pause>>,
    /// The share of pauses that struck all replicas at once.
    pub pauses_shared: f64,
    /// Speeds of the replicas.
    pub speeds: Speeds,
    /// The law of works.
    pub works: Works,
    /// Correlation of the scores of two copies of a request; `None` without pairs.
    pub correlation: Option<Estimate>,
    /// What lies between client and replicas.
    pub network: Network,
    /// Share of what agents served that nobody recorded.
    pub unseen: f64,
    /// Share of windows that were lost to overload.
    pub dropped: f64,
}

/// Why a day cannot be rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RebuildError {
    /// Too few answers.
    #[error("got {0} answered copies, expected at least {ANSWERS_MIN}: record longer")]
    TooShort(usize),
    /// Longer than any day: a gap between rows is wrong.
    #[error("got a day of {0} s, expected at most {DAY_MAX_S}: are gaps between rows in ns?")]
    TooLong(u64),
}

/// What is known between two rounds.
struct Draft {
    replicas: Vec<Vec<Visit>>,
    starts: Vec<Vec<Option<u64>>>,
    pauses: Vec<Vec<Pause>>,
    speeds: Speeds,
    works: Works,
}

impl Twin {
    /// Rebuilds the world of a day. The seed draws the works of copies that were given up.
    ///
    /// # Errors
    /// When the day is too short.
    pub fn rebuild(day: &Day, seed: u64) -> Result<Self, RebuildError> {
        let answers = day.rows.iter().filter(|row| row.end == End::Answered).count();
        if answers < ANSWERS_MIN {
            return Err(RebuildError::TooShort(answers));
        }
        let longest_ns = day.sent_ns().zip(&day.rows).map(|(sent_ns, row)| {
            let served = row.served.map_or(0, |it| it.wait_ns.saturating_add(it.service_ns));
            sent_ns.saturating_add(row.latency_ns.max(served))
        });
        let length_s = longest_ns.max().unwrap_or(0) / 1_000_000_000;
        if length_s > DAY_MAX_S {
            return Err(RebuildError::TooLong(length_s));
        }
        let (replicas, network) = visits(day);
        let (slots, early) = slots::concurrency(&replicas);
        let starts = replicas.iter().map(|visits| slots::starts(visits, slots).0).collect();
        let pauses = vec![Vec::new(); replicas.len()];
        let (speeds, works) = (Speeds::default(), Works::default());
        let mut draft = Draft { replicas, starts, pauses, speeds, works };
        draft.weigh(day);
        for _ in 0..ROUNDS {
            draft.find_pauses();
            draft.weigh(day);
        }
        let logs = draft.logs(day.rows.len());
        let correlation = draft.correlation(day, &logs);
        let common = correlation.map_or(0.0, |estimate| estimate.value);
        Ok(Self {
            requests: draft.requests(day, &logs, common, seed),
            slots,
            early,
            crowding: draft.crowding(),
            pauses_shared: pauses::shared(&draft.pauses),
            pauses: draft.pauses,
            speeds: draft.speeds,
            works: draft.works,
            correlation,
            network,
            unseen: day.unseen(),
            dropped: day.dropped.0 as f64 / day.dropped.1.max(1) as f64,
        })
    }
}

impl Twin {
    /// When the last request arrived, ns from the start of the day.
    pub fn length_ns(&self) -> u64 {
        self.requests.last().map_or(0, |request| request.at_ns)
    }
}

impl Draft {
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
        let mut all = Vec::with_capacity(self.replicas.len());
        for replica in 0..self.replicas.len() {
            let service = |(visit, start, log): (Visit, u64, f64)| -> Option<Service> {
                if !visit.is_cut {
                    return Some((start, log));
                }
                let scale = self.speeds.log(replica, start);
                (!self.works.is_empty())
                    .then(|| (start, scale + self.works.mean_beyond(log - scale)))
            };
            all.push(self.services(replica).filter_map(service).collect::<Vec<_>>());
        }
        self.speeds = Speeds::new(&all);
        let mut seen = Vec::with_capacity(day.rows.len());
        for replica in 0..self.replicas.len() {
            let firsts = self.services(replica);
            let firsts = firsts.filter(|(visit, ..)| day.rows[visit.row].why == Why::First);
            seen.extend(firsts.map(|(visit, start, log)| Seen {
                log: log - self.speeds.log(replica, start),
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
    fn logs(&self, rows: usize) -> Vec<Option<Seen>> {
        let mut logs = vec![None; rows];
        for replica in 0..self.replicas.len() {
            for (visit, start, log) in self.services(replica) {
                let log = log - self.speeds.log(replica, start);
                logs[visit.row] = Some(Seen { log, is_cut: visit.is_cut });
            }
        }
        logs
    }

    /// Pearson's correlation of the scores of pairs, corrected for the noise of speeds.
    fn correlation(&self, day: &Day, logs: &[Option<Seen>]) -> Option<Estimate> {
        let score = |row: usize| {
            let seen = logs[row].filter(|seen| !seen.is_cut)?;
            Some(self.works.score(seen.log))
        };
        let is_pair = |(_, row): &(usize, &Row)| row.why == Why::Pair;
        let paired = day.rows.iter().enumerate().filter(is_pair);
        let mut paired: Vec<(u64, usize)> = paired.map(|(at, row)| (row.request, at)).collect();
        paired.sort_unstable();
        // With several clients other rows come between the two.
        let firsts = day.rows.iter().enumerate().filter(|(_, row)| row.why == Why::First);
        let scores: Vec<(f64, f64)> = firsts
            .filter_map(|(first, row)| {
                let place = paired.binary_search_by_key(&row.request, |(request, _)| *request);
                let (_, pair) = paired[place.ok()?];
                Some((score(first)?, score(pair)?))
            })
            .collect();
        if scores.len() < PAIRS_MIN {
            return None;
        }
        let raw = pearson(&scores);
        let noise = (self.speeds.noise / self.works.variance().max(1e-9)).min(0.5);
        let value = (raw / (1.0 - noise)).clamp(0.0, 1.0);
        let error = (1.0 - raw * raw) / (scores.len() as f64 - 1.0).sqrt();
        Some(Estimate { value, error })
    }

    /// Whether requests take longer where more are present.
    fn crowding(&self) -> Estimate {
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
        Estimate { value: pearson(&all), error: 1.0 / (all.len().max(1) as f64).sqrt() }
    }

    fn requests(&self, day: &Day, logs: &[Option<Seen>], common: f64, seed: u64) -> Vec<Request> {
        let mut rng = Rng::stream(seed, "works of copies that were given up");
        let mut copies: Vec<(u64, usize, u64)> = day
            .rows
            .iter()
            .zip(day.sent_ns())
            .enumerate()
            .map(|(number, (row, sent_ns))| (row.request, number, sent_ns))
            .collect();
        copies.sort_unstable();
        let mut requests: Vec<Request> = copies
            .chunk_by(|a, b| a.0 == b.0)
            .map(|copies| {
                let (_, first, sent_ns) = copies[0];
                let row = &day.rows[first];
                let others = copies[1..].iter().filter_map(|copy| logs[copy.1]);
                let other = others.filter(|seen| !seen.is_cut).map(|seen| seen.log).next();
                let other = other.map(|log| (self.works.score(log), common));
                let score = match logs[first] {
                    Some(seen) if !seen.is_cut => self.works.score(seen.log),
                    Some(seen) => self.works.score_beyond(seen.log, other, &mut rng),
                    None => self.works.score_beyond(f64::NEG_INFINITY, other, &mut rng),
                };
                Request {
                    at_ns: sent_ns.saturating_sub(row.after_ns),
                    client: row.client,
                    group: row.group,
                    policy: row.policy,
                    score: score as f32,
                }
            })
            .collect();
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
