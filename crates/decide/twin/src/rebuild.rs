//! A day is rebuilt, as a whole or part by part: a long one does not fit into memory with all that
//! is needed on the way.

use evenkeel_core::Rng;

use crate::common::{self, Score};
use crate::content::Content;
use crate::crowding::Crowding;
use crate::draft::{Draft, Known};
use crate::given_up::Followers;
use crate::pauses::{self, Pause};
use crate::rows::{Day, End};
use crate::speeds::Speeds;
use crate::twin::{ANSWERS_MIN, DAY_MAX_S, Estimate, RebuildError, Request, Twin};
use crate::visits::Network;
use crate::works::Works;

/// Fewer pairs say nothing of what copies have in common.
const PAIRS_MIN: usize = 30;

/// What is kept of a part.
#[derive(Debug)]
struct Part {
    /// When it begins, ns from the start of the day.
    from_ns: u64,
    requests: usize,
    /// Copies at each replica.
    visits: Vec<usize>,
    pauses: Vec<Vec<Pause>>,
    speeds: Speeds,
    works: Works,
    /// Works without content, how much lighter they are, and how many.
    lean: (Works, f64, usize),
    network: Network,
    early: f64,
    crowding: Crowding,
}

/// A day that is rebuilt part by part.
#[derive(Debug)]
pub struct Rebuilder {
    rng: Rng,
    slots: u32,
    /// By how much works were lighter without content so far.
    lighter: f64,
    followers: Followers,
    parts: Vec<Part>,
    requests: Vec<Request>,
    pairs: Vec<Vec<Score>>,
    answers: usize,
    /// Answers with all content, and those of which it is known.
    full: (u64, u64),
    served: u64,
    strangers: u64,
    dropped: (u64, u64),
}

impl Twin {
    /// Rebuilds the world of a day. The seed draws the works of copies that were given up.
    ///
    /// # Errors
    /// When the day is too short, or longer than days are.
    pub fn rebuild(day: &Day, seed: u64) -> Result<Self, RebuildError> {
        let mut rebuilder = Rebuilder::new(seed);
        rebuilder.add(day)?;
        rebuilder.finish()
    }
}

impl Rebuilder {
    /// Nothing yet. The seed draws the works of copies that were given up.
    pub fn new(seed: u64) -> Self {
        Self {
            rng: Rng::stream(seed, "works of copies that were given up"),
            slots: 1,
            lighter: 0.0,
            followers: Followers::default(),
            parts: Vec::new(),
            requests: Vec::new(),
            pairs: Vec::new(),
            answers: 0,
            full: (0, 0),
            served: 0,
            strangers: 0,
            dropped: (0, 0),
        }
    }

    /// The next part of the day; the gap of its first row is the time from the start of the day.
    /// Parts should have some 100,000 rows and more: each has speeds, pauses and works of its own.
    ///
    /// # Errors
    /// When it ends later than any day.
    pub fn add(&mut self, part: &Day) -> Result<(), RebuildError> {
        let ends_ns = part.sent_ns().zip(&part.rows).map(|(sent_ns, row)| {
            let served = row.served.map_or(0, |it| it.wait_ns.saturating_add(it.service_ns));
            sent_ns.saturating_add(row.latency_ns.max(served))
        });
        let length_s = ends_ns.max().unwrap_or(0) / 1_000_000_000;
        if length_s > DAY_MAX_S {
            return Err(RebuildError::TooLong(length_s));
        }
        self.strangers += part.strangers.iter().sum::<u64>();
        self.dropped.0 += part.dropped.0;
        self.dropped.1 += part.dropped.1;
        self.served += part.rows.iter().filter(|row| row.served.is_some()).count() as u64;
        let answers = part.rows.iter().filter(|row| row.end == End::Answered).count();
        self.answers += answers;
        if answers == 0 {
            return Ok(());
        }
        let (full, known) = part.full();
        self.full = (self.full.0 + full, self.full.1 + known);
        let (slots_min, lighter) = (self.slots, self.lighter);
        let earlier = Known { slots_min, lighter, followers: self.followers };
        let mut draft = Draft::new(part, earlier, &mut self.rng);
        (self.slots, self.lighter) = (draft.slots, draft.lighter);
        self.followers = draft.followers;
        let logs = draft.logs(part.rows.len());
        let mut pairs = draft.pairs(part, &logs);
        let noise = noise(&draft.speeds, &draft.works);
        self.pairs.append(&mut pairs);
        let common = correlation(&self.pairs, noise).map_or(0.0, |estimate| estimate.value);
        let is_first = self.parts.is_empty();
        let mut requests = draft.requests(part, &logs, common, is_first, &mut self.rng);
        drop(logs);
        let (count, crowding) = (requests.len(), draft.crowding(part));
        draft.works.forget_means();
        self.requests.append(&mut requests);
        self.parts.push(Part {
            from_ns: if is_first { 0 } else { part.sent_ns().next().unwrap_or(0) },
            requests: count,
            visits: draft.visits().collect(),
            crowding,
            early: draft.early,
            lean: (draft.lean, draft.lighter, (known - full) as usize),
            network: draft.network,
            pauses: draft.pauses,
            speeds: draft.speeds,
            works: draft.works,
        });
        Ok(())
    }

    /// The world of the whole day.
    ///
    /// # Errors
    /// When the day is too short.
    pub fn finish(mut self) -> Result<Twin, RebuildError> {
        if self.answers < ANSWERS_MIN {
            return Err(RebuildError::TooShort(self.answers));
        }
        let mean = |of: fn(&Part) -> (f64, usize)| {
            let parts = self.parts.iter().map(of);
            let (sum, count) = parts.fold((0.0, 0), |(sum, count), (value, weight)| {
                (sum + value * weight as f64, count + weight)
            });
            (sum / count.max(1) as f64, count)
        };
        let (early, _) = mean(|part| (part.early, part.visits.iter().sum()));
        let crowding = self.parts.iter().map(|part| part.crowding);
        let crowding = crowding.fold(Crowding::default(), Crowding::with).estimate();
        let (noise, _) = mean(|part| (noise(&part.speeds, &part.works), part.requests));
        let network = network(&self.parts);
        let content = content(&self.parts, self.full);
        let works = works(&mut self.parts);
        let replicas = self.parts.iter().map(|part| part.visits.len()).max().unwrap_or(0);
        let length_ns = self.requests.iter().map(|request| request.at_ns).max().unwrap_or(0);
        let speeds = speeds(&mut self.parts, replicas, length_ns);
        let mut pauses = vec![Vec::new(); replicas];
        for part in &mut self.parts {
            pauses.iter_mut().zip(&mut part.pauses).for_each(|(all, more)| all.append(more));
        }
        works.score_all(&mut self.requests, |request| &mut request.score);
        // Copies that were recorded late come with the next part.
        if !self.requests.is_sorted_by_key(|request| request.at_ns) {
            self.requests.sort_by_key(|request| request.at_ns);
        }
        let all = self.strangers + self.served;
        Ok(Twin {
            slots: self.slots,
            early,
            has_agents: self.served > 0,
            works_on: self.followers.are_behind_work(),
            crowding,
            pauses_shared: pauses::shared(&pauses),
            pauses,
            speeds,
            works,
            content,
            correlation: correlation(&self.pairs, noise),
            network,
            unseen: self.strangers as f64 / all.max(1) as f64,
            dropped: self.dropped.0 as f64 / self.dropped.1.max(1) as f64,
            requests: self.requests,
        })
    }
}

/// What copies have in common, corrected for the noise of speeds, which is a share of variance.
fn correlation(pairs: &[Vec<Score>], noise: f64) -> Option<Estimate> {
    if pairs.len() < PAIRS_MIN {
        return None;
    }
    let raw = common::correlation(pairs);
    let value = (raw / (1.0 - noise)).clamp(0.0, 1.0);
    let error = (1.0 - raw * raw) / (pairs.len() as f64 - 1.0).sqrt();
    Some(Estimate { value, error })
}

/// How much of the variance of works is that of wrong speeds.
fn noise(speeds: &Speeds, works: &Works) -> f64 {
    (speeds.noise / works.variance().max(1e-9)).min(0.5)
}

fn network(parts: &[Part]) -> Network {
    let one_way_ns = parts.iter().map(|part| part.network.one_way_ns).fold(f64::MAX, f64::min);
    let (mut sum, mut count) = (0.0, 0.0);
    for part in parts {
        let weight = part.requests as f64;
        sum += weight * (part.network.one_way_ns + part.network.jitter_ns);
        count += weight;
    }
    let one_way_ns = if parts.is_empty() { 0.0 } else { one_way_ns };
    Network { one_way_ns, jitter_ns: (sum / f64::max(count, 1.0) - one_way_ns).max(0.0) }
}

/// The law of all parts together.
fn works(parts: &mut [Part]) -> Works {
    if let [one] = parts {
        return core::mem::take(&mut one.works);
    }
    let laws: Vec<(&Works, usize)> =
        parts.iter().map(|part| (&part.works, part.requests)).collect();
    Works::joined(&laws)
}

/// What content costs, by all parts that left some out.
fn content(parts: &[Part], (full, known): (u64, u64)) -> Option<Content> {
    let some: Vec<&Part> = parts.iter().filter(|part| !part.lean.0.is_empty()).collect();
    let count = some.iter().map(|part| part.lean.2).sum::<usize>().max(1) as f64;
    let lighter = some.iter().map(|part| part.lean.1 * part.lean.2 as f64).sum::<f64>() / count;
    let laws: Vec<(&Works, usize)> = some.iter().map(|part| (&part.lean.0, part.lean.2)).collect();
    let lean = match laws[..] {
        [] => return None,
        [(one, _)] => one.clone(),
        _ => Works::joined(&laws),
    };
    Some(Content { lighter, lean, full: full as f64 / known.max(1) as f64 })
}

/// The speeds of all parts one after the other, in the narrowest windows of any.
fn speeds(parts: &mut [Part], replicas: usize, length_ns: u64) -> Speeds {
    if let [one] = parts {
        return core::mem::take(&mut one.speeds);
    }
    let all: Vec<(u64, &[usize], &Speeds)> =
        parts.iter().map(|part| (part.from_ns, &*part.visits, &part.speeds)).collect();
    Speeds::joined(&all, replicas, length_ns)
}
