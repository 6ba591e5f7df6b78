//! A day, or a part of one, while it is rebuilt: what is known of it grows in rounds.

use evenkeel_core::Rng;

use crate::away;
use crate::common::Score;
use crate::content;
use crate::crowding::{Crowding, Met};
use crate::given_up::{Followers, Law};
use crate::order::sort;
use crate::pauses::{self, Pause, Times};
use crate::rows::{Day, End, Why};
use crate::slots;
use crate::speeds::{Service, Speeds};
use crate::twin::Request;
use crate::visits::{Network, Visit, visits};
use crate::works::{Seen, Works};

/// Pauses are found by the law of works, and works are known once pauses are taken out of them.
const ROUNDS: usize = 3;
/// So many times are passed by one by one.
const NEAR: usize = 32;

/// What is known between two rounds.
pub(crate) struct Draft {
    replicas: Vec<Vec<Visit>>,
    starts: Vec<Vec<Option<u64>>>,
    times: Vec<Times>,
    /// For how long its replica worked on each visit that began, as a logarithm.
    worked: Vec<Vec<f64>>,
    has_lean: bool,
    pub(crate) pauses: Vec<Vec<Pause>>,
    pub(crate) speeds: Speeds,
    pub(crate) works: Works,
    /// The law of works without content, each made this much heavier as a logarithm; empty where
    /// everything had it.
    pub(crate) lean: Works,
    pub(crate) lighter: f64,
    pub(crate) network: Network,
    /// Requests that each replica serves at once.
    pub(crate) slots: u32,
    /// Share of copies that left before they could have begun in so many slots.
    pub(crate) early: f64,
    /// Of this part and those before it.
    pub(crate) followers: Followers,
}

/// What is known of a day by its earlier parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known {
    /// Slots that replicas have at least.
    pub(crate) slots_min: u32,
    /// By how much works are lighter without content, if no rows tell.
    pub(crate) lighter: f64,
    pub(crate) followers: Followers,
}

impl Draft {
    /// What the rows tell, beside what is known of earlier parts. Draws what was left of works that
    /// were given up.
    pub(crate) fn new(day: &Day, known: Known, rng: &mut Rng) -> Self {
        let Known { slots_min, lighter, mut followers } = known;
        let (mut replicas, mut network) = visits(day);
        let (slots, early) = slots::concurrency(&replicas, slots_min);
        let has_agents = day.rows.iter().any(|row| row.served.is_some());
        if !has_agents {
            network = leave_out_ways(&mut replicas, slots);
            followers = followers.with(Followers::of(&replicas, slots, rng));
        }
        let works_on = followers.are_behind_work().unwrap_or(false);
        let law = works_on.then(|| Law::of(&replicas, slots));
        let starts_of = |visits: &Vec<Visit>| {
            let held = |visit: &Visit, start| Some(law.as_ref()?.until_ns(visit, start, rng));
            slots::starts_where(visits, slots, held).at_ns
        };
        let starts: Vec<Vec<Option<u64>>> = replicas.iter().map(starts_of).collect();
        let both = || replicas.iter().zip(&starts);
        let mut draft = Self {
            times: both().map(|(visits, starts)| Times::new(visits, starts)).collect(),
            worked: both().map(|(visits, starts)| worked(visits, starts)).collect(),
            has_lean: replicas.iter().flatten().any(|visit| visit.is_lean),
            pauses: vec![Vec::new(); replicas.len()],
            speeds: Speeds::default(),
            works: Works::default(),
            lean: Works::default(),
            replicas,
            starts,
            lighter,
            network,
            slots,
            early,
            followers,
        };
        draft.weigh();
        for _ in 0..ROUNDS {
            if !draft.find_pauses() {
                break;
            }
            draft.weigh();
        }
        draft
    }

    /// Copies that each replica served, or tried to.
    pub(crate) fn visits(&self) -> impl Iterator<Item = usize> + '_ {
        self.replicas.iter().map(Vec::len)
    }

    /// Each visit that began, with the time for which its replica worked on it, or would have with
    /// all content, as a logarithm.
    fn services(&self, replica: usize) -> impl Iterator<Item = (Visit, u64, f64)> + '_ {
        let began = self.replicas[replica].iter().zip(&self.starts[replica]);
        let began = began.filter_map(|(visit, start)| Some((*visit, (*start)?)));
        began.zip(&self.worked[replica]).map(move |((visit, start), worked)| {
            let paused = pauses::overlap_ns(&self.pauses[replica], start, visit.left_ns);
            let log = if paused == 0 { *worked } else { logarithm(&visit, start, paused) };
            (visit, start, log + if visit.is_lean { self.lighter } else { 0.0 })
        })
    }

    /// Learns what content costs, where it was left out.
    fn weigh_content(&mut self) {
        if !self.has_lean {
            return;
        }
        let services = |replica: usize| {
            let answered = self.services(replica).filter(|(visit, ..)| !visit.is_cut);
            let own = |(visit, start, log): (Visit, u64, f64)| {
                let log = if visit.is_lean { log - self.lighter } else { log };
                ((start, log), visit.is_lean)
            };
            answered.map(own).collect()
        };
        let all: Vec<_> = (0..self.replicas.len()).map(services).collect();
        self.lighter = content::lighter(&all).unwrap_or(self.lighter);
    }

    /// Learns speeds, then works. A copy that was given up counts for its speed as those do that
    /// took longer.
    fn weigh(&mut self) {
        self.weigh_content();
        let replicas = 0..self.replicas.len();
        let service = |replica: usize, (visit, start, log): (Visit, u64, f64)| -> Option<Service> {
            if !visit.is_cut {
                return Some((start, log));
            }
            (!self.works.is_empty()).then(|| (start, self.beyond(replica, start, log)))
        };
        let of = |replica: usize| {
            self.services(replica).filter_map(move |one| service(replica, one)).collect()
        };
        self.speeds = Speeds::new(&replicas.clone().map(of).collect::<Vec<_>>());
        let (mut full, mut lean) = (Vec::with_capacity(self.visits().sum()), Vec::new());
        for replica in replicas {
            let services = self.services(replica);
            for (visit, start, log) in services.filter(|(visit, ..)| visit.is_first) {
                let log = log - self.speeds.log(replica, start);
                let seen = if visit.is_lean { &mut lean } else { &mut full };
                seen.push(Seen { log, is_cut: visit.is_cut });
            }
        }
        if lean.is_empty() {
            self.works = Works::new(full);
        } else {
            (self.works, self.lean) = content::laws(full, lean);
        }
    }

    /// Says whether they are others than before.
    fn find_pauses(&mut self) -> bool {
        let mean = self.works.mean();
        let mut is_new = false;
        for replica in 0..self.replicas.len() {
            let scale_ns = |at_ns| self.speeds.log(replica, at_ns).exp();
            let laws = (mean, self.lighter);
            let found = pauses::find(&self.times[replica], &self.works, laws, scale_ns);
            is_new |= found != self.pauses[replica];
            self.pauses[replica] = found;
        }
        is_new
    }

    /// The work of each row that was served, or what it exceeds; without content, the work with it
    /// that stands as high among its kind.
    pub(crate) fn logs(&self, rows: usize) -> Vec<Option<Seen>> {
        let mut logs = vec![None; rows];
        for replica in 0..self.replicas.len() {
            for (visit, start, log) in self.services(replica) {
                let mut log = log - self.speeds.log(replica, start);
                if visit.is_lean {
                    log = self.works.log(self.lean.score(log));
                }
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

    /// What crowds cost. Services are those of first copies: others are sent where first ones took
    /// long, and those that were given up count as those do that took longer.
    pub(crate) fn crowding(&self, day: &Day) -> Crowding {
        let first = day.rows.iter().zip(day.sent_ns()).filter(|(row, _)| row.why == Why::First);
        let mut come: Vec<u64> =
            first.map(|(row, sent_ns)| sent_ns.saturating_sub(row.after_ns)).collect();
        sort(&mut come, |at_ns| *at_ns);
        let mut crowding = Crowding::default();
        for (replica, visits) in self.replicas.iter().enumerate() {
            let mut left: Vec<u64> = visits.iter().map(|visit| visit.left_ns).collect();
            sort(&mut left, |left_ns| *left_ns);
            // Those who came for so long before it are there, more or less.
            let stays = visits.iter().map(|visit| visit.left_ns - visit.at_ns);
            let stay_ns = (stays.map(|ns| ns as f64).sum::<f64>() / visits.len() as f64) as u64;
            let (mut gone, mut until, mut from) = (0, 0, 0);
            let began = visits.iter().zip(&self.starts[replica]).enumerate();
            let began = began.filter(|(_, (_, start))| start.is_some());
            let met = began.zip(self.services(replica)).filter(|(_, (visit, ..))| visit.is_first);
            let met = met.map(|((number, _), (visit, start, log))| {
                let log = if visit.is_cut { self.beyond(replica, start, log) } else { log };
                seek(&left, &mut gone, visit.at_ns);
                seek(&come, &mut until, visit.at_ns);
                seek(&come, &mut from, visit.at_ns.saturating_sub(stay_ns));
                Met {
                    come: (until - from) as f64,
                    there: number.saturating_sub(gone) as f64,
                    log: log - self.speeds.log(replica, start),
                }
            });
            crowding.add(&met.collect::<Vec<_>>());
        }
        crowding
    }

    /// How long a service that was given up would have taken on average.
    fn beyond(&self, replica: usize, start_ns: u64, log: f64) -> f64 {
        let scale = self.speeds.log(replica, start_ns);
        scale + self.works.mean_beyond(log - scale)
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
        sort(&mut copies, |copy| copy.0);
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

/// Lets visits come as much later as is no service: what lies between the proxy and the replicas.
fn leave_out_ways(replicas: &mut [Vec<Visit>], slots: u32) -> Network {
    let away_ns = away::time_ns(replicas, slots);
    for visit in replicas.iter_mut().flatten() {
        // Some of them were quicker than most.
        visit.at_ns += away_ns.min(visit.left_ns.saturating_sub(visit.at_ns) / 2);
    }
    Network { one_way_ns: away_ns as f64 / 2.0, jitter_ns: 0.0 }
}

/// For how long its replica worked on each visit that began, if it never paused, as a logarithm.
fn worked(visits: &[Visit], starts: &[Option<u64>]) -> Vec<f64> {
    let began = visits.iter().zip(starts).filter_map(|(visit, start)| Some((visit, (*start)?)));
    began.map(|(visit, start)| logarithm(visit, start, 0)).collect()
}

fn logarithm(visit: &Visit, start_ns: u64, paused_ns: u64) -> f64 {
    ((visit.left_ns - start_ns).saturating_sub(paused_ns).max(1_000) as f64).ln()
}

/// Moves a place to the first of ascending times that is not before this one. It is near, unless
/// rows are nonsense.
fn seek(ascending: &[u64], place: &mut usize, at_ns: u64) {
    for _ in 0..NEAR {
        if *place > 0 && ascending[*place - 1] >= at_ns {
            *place -= 1;
        } else if ascending.get(*place).is_some_and(|other| *other < at_ns) {
            *place += 1;
        } else {
            return;
        }
    }
    *place = ascending.partition_point(|other| *other < at_ns);
}
