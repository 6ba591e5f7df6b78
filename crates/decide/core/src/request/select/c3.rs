//! `c3`: rank replicas by expected delay, with the queue cubed (Suresh et al., C3, NSDI 2015).
//!
//! **Signal**: on every answer the replica reports its queue and the service time; the client adds
//! what it has in flight there itself, times the number of clients (each of them may have as much).
//! **Why cubed**: with a linear queue a replica four times as fast is given a queue four times as
//! long, and a pause of that replica then hurts four times as many; the cube keeps queues nearly
//! equal. **When it misleads**: a report is as old as the last answer; with many clients and few
//! requests per pair it is history, and own requests in flight (times w, cubed) decide alone.
//! **Without reports** (no agent beside the replica) the latency stands for the service time.
//!
//! | constant | `c3` | `c3-paper` | `c3-absim` | `c3-cassandra` |
//! |---|---|---|---|---|
//! | exponent b | 3 | 3 (sec. 3.2) | 3 | 3 |
//! | weight w of own requests in flight | number of clients | number of clients (sec. 3.2) | number of clients | number of known nodes |
//! | weight of a new sample | 0.9 | 0.9 (absim) | 0.9 | 0.9 |
//! | averages begin | with the first sample | with the first sample | with the first sample | at 0 |
//! | replica never heard from | typical, own requests count | score 0 | score 0 | score 0 |
//! | old estimates | fade to typical, τ = 10 s | stay | stay | stay |
//! | copies given up unanswered | count until forgotten | do not count | do not count | do not count |
//! | ties | random | random | order of the group | order of the group |
//! | rate control | off | on | on | on |
//! | interval δ | (20 ms) | 20 ms (sec. 3.3) | 20 ms | 20 ms |
//! | initial rate per δ | (5) | 5 (absim) | 5 | 1 |
//! | tokens at the start / at most | (0 / 50) | 0 / 50 (absim) | 0 / 50 | 200 / 200 |
//! | γ | (4·10⁻⁶) | 4·10⁻⁶ (absim; "saddle ≈ 100 ms") | 4·10⁻⁶ | 4·10⁻⁶ |
//! | s_max | (10) | 10 (sec. 3.3) | 10 | 10 |
//! | β (rate × β) | (0.2) | 0.2 (sec. 3.3) | 0.2 | 0.2 |
//! | hysteresis | (2 δ) | 2 δ (sec. 3.3) | 2 δ | 4 δ |
//! | lowest rate | (10⁻⁴) | 10⁻⁴ (absim) | 10⁻⁴ | 0.1 |
//! | saddle at the start | (10) | 10 (absim) | 10 | 0 |
//! | received rate at the start | (10) | 10 (absim) | 10 | 100 |
//! | received rate begun anew after | (20 δ) | 20 δ (absim) | 20 δ | 2 δ |
//! | counts over several δ are divided, the one that ends a silence counts | (yes) | yes | no | no |
//! | a wait mints a token | (no) | no | yes | no |
//!
//! absim: the paper's simulator at 348dac6; cassandra: the paper's Cassandra at 756c0fea. Values in
//! brackets apply when rate control is switched on (`c3:rate_control=on`).

use crate::fleet::{Feedback, Fleet, ReplicaId};
use crate::request::call::{Attempt, Kind, Outcome};
use crate::request::decision::Candidate;
use crate::request::select::cubic::{CubicConfig, Limiter};
use crate::request::select::{Candidates, Choice, Selector, Told, cheapest, same_kind};
use crate::rng::Rng;
use crate::time::{Duration, Instant, from_millis_f64, millis, nanos};

/// What is assumed of a replica that never answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unheard {
    /// It is like the others: its own requests in flight count from the first.
    Typical,
    /// It is better than all others, whatever is in flight there (floods a slow newcomer).
    Best,
    /// Its averages begin at zero, and so does its score.
    Zero,
}

/// The constants; see the table above.
#[derive(Clone, Debug, PartialEq)]
pub struct C3Config {
    /// The name users chose.
    pub name: &'static str,
    /// The exponent b of the queue.
    pub exponent: f64,
    /// The weight w of own requests in flight.
    pub weight: f64,
    /// Weight of a new sample in the averages, 0 to 1.
    pub alpha: f64,
    /// What is assumed of a replica that never answered.
    pub unheard: Unheard,
    /// Time constant with which old estimates fade to the typical one, milliseconds; infinite =
    /// never.
    pub fade_ms: f64,
    /// Ties are broken at random instead of by the order of the group.
    pub random_ties: bool,
    /// Whether copies that were given up unanswered count as requests in flight until they are
    /// forgotten ([`Replica::burden`](crate::fleet::Replica::burden)).
    pub counts_given_up: bool,
    /// Whether replicas are ranked at all; without it any candidate that has a token is taken.
    pub ranking: bool,
    /// Whether requests are held back when a replica is at its rate.
    pub rate_control: bool,
    /// The constants of rate control.
    pub cubic: CubicConfig,
}

impl C3Config {
    /// Evenkeel's own: the ranking, without what users of its descendants complain about.
    pub const fn recommended(clients: u32) -> Self {
        Self {
            name: "c3",
            unheard: Unheard::Typical,
            fade_ms: 10_000.0,
            counts_given_up: true,
            rate_control: false,
            ..Self::paper(clients)
        }
    }

    /// The paper's.
    pub const fn paper(clients: u32) -> Self {
        Self {
            name: "c3-paper",
            exponent: 3.0,
            weight: clients as f64,
            alpha: 0.9,
            unheard: Unheard::Best,
            fade_ms: f64::INFINITY,
            random_ties: true,
            counts_given_up: false,
            ranking: true,
            rate_control: true,
            cubic: CubicConfig::paper(),
        }
    }

    /// The paper's simulator's.
    pub const fn absim(clients: u32) -> Self {
        Self {
            name: "c3-absim",
            random_ties: false,
            cubic: CubicConfig::absim(),
            ..Self::paper(clients)
        }
    }

    /// The paper's Cassandra's.
    pub const fn cassandra(nodes: u32) -> Self {
        Self {
            name: "c3-cassandra",
            unheard: Unheard::Zero,
            random_ties: false,
            cubic: CubicConfig::cassandra(),
            ..Self::paper(nodes)
        }
    }
}

/// The averages of one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Estimate {
    /// R̄ − 1/µ̄: response time less service time, milliseconds.
    waiting_ms: f64,
    /// 1/µ̄, milliseconds.
    service_ms: f64,
    /// q̄, the replica's queue.
    queue: f64,
}

impl Estimate {
    const ZERO: Self = Self { waiting_ms: 0.0, service_ms: 0.0, queue: 0.0 };

    fn towards(self, other: Self, weight: f64) -> Self {
        let mix = |mine: f64, theirs: f64| mine + (theirs - mine) * weight;
        Self {
            waiting_ms: mix(self.waiting_ms, other.waiting_ms),
            service_ms: mix(self.service_ms, other.service_ms),
            queue: mix(self.queue, other.queue),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    estimate: Estimate,
    /// `None` until the first answer.
    at: Option<Instant>,
}

impl Heard {
    const NEVER: Self = Self { estimate: Estimate::ZERO, at: None };
}

/// One candidate as it is compared.
#[derive(Clone, Copy, Debug)]
struct Rated {
    score: f64,
    /// How long answers take, by the estimate of the score; NaN before the first one.
    latency_ms: f64,
}

impl Rated {
    const NEVER: Self = Self { score: f64::NAN, latency_ms: f64::NAN };

    /// Writes it down for people.
    #[inline]
    fn tell(&self, of: &mut Candidate) {
        (of.cost, of.latency_ms) = (self.score as f32, self.latency_ms as f32);
    }
}

/// C3 eq. (1) and (2): Ψ = R̄ − 1/µ̄ + q̂ᵇ·(1/µ̄) with q̂ = 1 + os·w + q̄, in milliseconds.
#[inline]
fn score(estimate: &Estimate, burden: f64, weight: f64, exponent: f64) -> f64 {
    let queue = 1.0 + burden * weight + estimate.queue;
    let powered = if exponent == 3.0 { queue * queue * queue } else { queue.powf(exponent) };
    estimate.waiting_ms + powered * estimate.service_ms
}

/// C3: ranking, and if configured, rate control.
#[derive(Clone, Debug)]
pub struct C3 {
    config: C3Config,
    heard: Vec<Heard>,
    /// By slot, as computed for the last choice where no rate is kept.
    rated: Vec<Rated>,
    limiters: Vec<Limiter>,
    /// The average over all answers of all replicas.
    typical: Option<Estimate>,
    /// How long an estimate stands as it is: a hundredth of `fade_ms`.
    fresh_nanos: u64,
    /// Per group, whose token it waits for (see `mint_on_wake`).
    waits: Vec<Option<(ReplicaId, Instant)>>,
    ranking: Vec<(f64, ReplicaId)>,
}

impl C3 {
    /// Weight of one answer in the typical estimate: a memory of about fifty answers.
    const TYPICAL_ALPHA: f64 = 0.02;
    /// A held call asks again after this time at the latest: meanwhile rates change. (absim sleeps
    /// to the end.)
    const WAIT_MAX: Duration = Duration::from_millis(100);

    /// With these constants.
    pub fn new(config: C3Config) -> Self {
        Self {
            fresh_nanos: nanos(from_millis_f64(config.fade_ms * 0.01)),
            config,
            heard: Vec::new(),
            rated: Vec::new(),
            limiters: Vec::new(),
            typical: None,
            waits: Vec::new(),
            ranking: Vec::new(),
        }
    }

    #[inline]
    fn score_of(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> f64 {
        self.rate_one(now, fleet, id).score
    }

    #[inline]
    fn rate_one(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> Rated {
        let heard = &self.heard[id.index()];
        let (estimate, latency_ms) = match (heard.at, self.config.unheard) {
            (Some(at), _) => {
                let estimate = self.faded(now, heard.estimate, at);
                (estimate, estimate.waiting_ms + estimate.service_ms)
            }
            (None, Unheard::Typical) => (self.typical(), f64::NAN),
            (None, Unheard::Best | Unheard::Zero) => {
                return Rated { score: 0.0, latency_ms: f64::NAN };
            }
        };
        let replica = fleet.replica(id);
        let burden = match self.config.counts_given_up {
            true => replica.load(now),
            false => f64::from(replica.in_flight_of_all()),
        };
        let score = score(&estimate, burden, self.config.weight, self.config.exponent);
        Rated { score, latency_ms }
    }

    fn typical(&self) -> Estimate {
        // Before the first answer all are equal; any service time lets requests in flight count.
        self.typical.unwrap_or(Estimate { service_ms: 1.0, ..Estimate::ZERO })
    }

    /// Old estimates fade, so that a replica that was slow once is visited again.
    #[inline]
    fn faded(&self, now: Instant, estimate: Estimate, at: Instant) -> Estimate {
        if now <= at.plus_nanos(self.fresh_nanos) {
            return estimate; // the usual case costs one comparison
        }
        self.fade(now, estimate, at)
    }

    #[cold]
    fn fade(&self, now: Instant, estimate: Estimate, at: Instant) -> Estimate {
        let age = now.millis_since(at) / self.config.fade_ms;
        estimate.towards(self.typical(), 1.0 - (-age).exp())
    }

    fn learn(&mut self, now: Instant, id: ReplicaId, sample: Estimate) {
        self.learn_mean(now, id, sample, (self.config.alpha, Self::TYPICAL_ALPHA));
    }

    /// Learns the mean of answers; `weights`: theirs in the averages.
    #[inline]
    fn learn_mean(&mut self, now: Instant, id: ReplicaId, mean: Estimate, weights: (f64, f64)) {
        let heard = &mut self.heard[id.index()];
        let whole = heard.at.is_none() && self.config.unheard != Unheard::Zero;
        let weight = if whole { 1.0 } else { weights.0 };
        heard.estimate = heard.estimate.towards(mean, weight);
        heard.at = Some(now);
        if self.config.unheard == Unheard::Typical {
            let typical = self.typical.unwrap_or(mean);
            self.typical = Some(typical.towards(mean, weights.1));
        }
    }

    /// The best replica that has a token, or the time at which the first one opens.
    fn select_at_rate(&mut self, now: Instant, from: Candidates<'_>, rng: &mut Rng) -> Choice {
        self.mint_if_waited(now, from);
        let ranking = self.rank(now, from, rng);
        let mut choice = None;
        for &(_, id) in &ranking {
            if self.limiters[id.index()].try_take(&self.config.cubic, now) {
                choice = Some(Choice::Send(id));
                break;
            }
        }
        self.ranking = ranking;
        choice.unwrap_or_else(|| self.wait(now, from))
    }

    /// The candidates by score. The vector is the policy's own, lent: give it back.
    fn rank(&mut self, now: Instant, from: Candidates<'_>, rng: &mut Rng) -> Vec<(f64, ReplicaId)> {
        let mut ranking = core::mem::take(&mut self.ranking);
        ranking.clear();
        let score = |id| if self.config.ranking { self.score_of(now, from.fleet, id) } else { 0.0 };
        ranking.extend(from.ids.iter().map(|&id| (score(id), id)));
        if self.config.random_ties {
            rng.shuffle(&mut ranking); // the sort leaves equal scores in this order
        }
        ranking.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        ranking
    }

    fn wait(&mut self, now: Instant, from: Candidates<'_>) -> Choice {
        let opens = |&id: &ReplicaId| {
            let limiter = &self.limiters[id.index()];
            (limiter.opens_at(&self.config.cubic, now), id)
        };
        let Some((until, id)) = from.ids.iter().map(opens).min_by_key(|&(until, _)| until) else {
            return Choice::Refuse;
        };
        if self.config.cubic.mint_on_wake {
            self.waits[from.group.index()] = Some((id, until));
            return Choice::Hold { until };
        }
        Choice::Hold { until: until.min(now + Self::WAIT_MAX) }
    }

    fn mint_if_waited(&mut self, now: Instant, from: Candidates<'_>) {
        if self.config.cubic.mint_on_wake
            && let Some((id, until)) = self.waits[from.group.index()]
            && until <= now
        {
            self.waits[from.group.index()] = None;
            self.limiters[id.index()].mint(now);
        }
    }
}

/// One answer as C3 sees it.
fn sample(latency_ms: f64, feedback: Option<&Feedback>) -> Estimate {
    let Some((feedback, service_time)) = feedback.and_then(|it| Some((it, it.service_time?)))
    else {
        return Estimate { waiting_ms: 0.0, service_ms: latency_ms, queue: 0.0 };
    };
    let service_ms = millis(service_time);
    let queue = f64::from(feedback.queue_length);
    Estimate { waiting_ms: latency_ms - service_ms, service_ms, queue }
}

impl Selector for C3 {
    fn name(&self) -> &'static str {
        self.config.name
    }

    #[inline]
    fn select(&mut self, now: Instant, candidates: Candidates<'_>, rng: &mut Rng) -> Choice {
        if self.config.rate_control {
            return self.select_at_rate(now, candidates, rng);
        }
        if !self.config.ranking {
            return Choice::Send(candidates.ids[rng.below(candidates.ids.len())]);
        }
        for &id in candidates.ids {
            self.rated[id.index()] = self.rate_one(now, candidates.fleet, id);
        }
        let score = |id: ReplicaId| self.rated[id.index()].score;
        if self.config.random_ties {
            return Choice::Send(cheapest(candidates.ids, rng, score));
        }
        let by_score = |&a: &ReplicaId, &b: &ReplicaId| score(a).total_cmp(&score(b));
        let best = candidates.ids.iter().copied().min_by(by_score);
        best.map_or(Choice::Refuse, Choice::Send)
    }

    fn holds(&self) -> bool {
        self.config.rate_control
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        self.config.ranking.then(|| self.score_of(now, fleet, replica))
    }

    fn rate(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        for one in candidates {
            let rated = self.rate_one(now, fleet, one.replica());
            match self.config.ranking {
                true => rated.tell(one),
                false => one.latency_ms = rated.latency_ms as f32,
            }
        }
    }

    fn rate_chosen_among(&self, now: Instant, fleet: &Fleet, candidates: &mut [Candidate]) {
        if self.config.rate_control || !self.config.ranking {
            return self.rate(now, fleet, candidates);
        }
        for one in candidates {
            self.rated[one.replica().index()].tell(one);
        }
    }

    fn on_siblings(&mut self, now: Instant, replica: ReplicaId, told: &Told) {
        let Told { latency_ms, service_ms, queue, .. } = *told;
        let waiting_ms = latency_ms - service_ms;
        // Of that many samples, one after the other.
        let weight = |of_one: f64| 1.0 - (1.0 - of_one).powf(f64::from(told.answers));
        let weights = (weight(self.config.alpha), weight(Self::TYPICAL_ALPHA));
        self.learn_mean(now, replica, Estimate { waiting_ms, service_ms, queue }, weights);
    }

    #[inline]
    fn on_send(&mut self, _now: Instant, replica: ReplicaId, kind: Kind, _fleet: &Fleet) {
        if kind == Kind::Mirror && self.config.rate_control {
            self.limiters[replica.index()].take_by_force();
        }
    }

    #[inline]
    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        // Failures say nothing about speed: a refused connection is not a fast answer.
        let Outcome::Replied(feedback) = outcome else { return };
        let id = of.replica();
        self.learn(now, id, sample(now.millis_since(of.sent_at()), feedback.as_ref()));
        if self.config.rate_control {
            self.limiters[id.index()].on_response(&self.config.cubic, now);
        }
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        self.heard[replica.index()] = Heard::NEVER;
        self.limiters[replica.index()] = Limiter::new(&self.config.cubic);
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        let Some(before) = same_kind::<Self>(before) else { return };
        self.heard = core::mem::take(&mut before.heard);
        if self.config.unheard == before.config.unheard {
            self.typical = before.typical;
        }
        let limits = |config: &C3Config| (config.rate_control, config.cubic.clone());
        if limits(&self.config) == limits(&before.config) {
            self.limiters = core::mem::take(&mut before.limiters);
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.heard.resize(fleet.len(), Heard::NEVER);
        self.rated.resize(fleet.len(), Rated::NEVER);
        self.limiters.resize(fleet.len(), Limiter::new(&self.config.cubic));
        self.waits.clear(); // the replica waited for may be of the group no more
        self.waits.resize(fleet.groups(), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::GroupId;

    #[test]
    fn the_score_is_the_papers() {
        let estimate = Estimate { waiting_ms: 2.0, service_ms: 4.0, queue: 5.0 };
        // q̂ = 1 + 2·150 + 5 = 306; Ψ = 2 + 306³·4.
        let expected = 2.0 + 306.0_f64.powi(3) * 4.0;
        assert_eq!(score(&estimate, 2.0, 150.0, 3.0), expected);
        assert!((score(&estimate, 2.0, 150.0, 3.0000001) / expected - 1.0).abs() < 1e-4);
    }

    #[test]
    fn queues_equalise_as_in_the_talk() {
        // Talk: with a linear queue, servers of 4 and 20 ms cost the same at 100 and 20 requests;
        // cubed, the fast one's queue may be only ∛5 times as long.
        let at = |service_ms, queue: f64, exponent| {
            score(&Estimate { waiting_ms: 0.0, service_ms, queue: queue - 1.0 }, 0.0, 1.0, exponent)
        };
        assert_eq!(at(4.0, 100.0, 1.0), at(20.0, 20.0, 1.0));
        let fast_queue = 20.0 * 5.0_f64.cbrt();
        assert!((at(4.0, fast_queue, 3.0) / at(20.0, 20.0, 3.0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_old_bad_estimate_fades_to_the_typical_one() {
        let fleet = Fleet::single_group(2);
        let mut c3 = C3::new(C3Config::recommended(1));
        c3.on_membership(Instant::ZERO, &fleet);
        let (slow, fast) = (ReplicaId::new(0), ReplicaId::new(1));
        let answer = |service_ms| Estimate { waiting_ms: 0.0, service_ms, queue: 0.0 };
        for _ in 0..500 {
            c3.learn(Instant::ZERO, fast, answer(1.0));
        }
        c3.learn(Instant::ZERO, slow, answer(100.0));
        let cost = |at_ms| c3.cost(Instant::from_millis(at_ms), &fleet, slow).expect("ranks");
        assert!(cost(0) > 90.0 && cost(1_000) < cost(0));
        assert!(cost(60_000) < 4.0, "{}", cost(60_000));
    }

    #[test]
    fn what_is_written_down_after_a_choice_is_what_a_new_rating_would_say() {
        let mut fleet = Fleet::single_group(3);
        let mut c3 = C3::new(C3Config::recommended(1));
        c3.on_membership(Instant::ZERO, &fleet);
        let mut rng = Rng::seeded(1);
        let ids: Vec<_> = (0..3).map(ReplicaId::new).collect();
        for n in 0..50_u64 {
            let (now, id) = (Instant::from_millis(n * 40), ids[n as usize % 3]);
            let answer = Estimate { waiting_ms: n as f64, service_ms: 1.0, queue: 0.0 };
            c3.learn(now, id, answer);
            fleet.replica_mut(id).in_flight = n as u32 % 5;
            let from = Candidates { fleet: &fleet, group: GroupId::new(0), ids: &ids };
            c3.select(now, from, &mut rng);
            let mut again = ids
                .clone()
                .into_iter()
                .map(|id| Candidate { slot: id.index() as u16, ..Candidate::NOBODY })
                .collect::<Vec<_>>();
            let mut afresh = again.clone();
            c3.rate_chosen_among(now, &fleet, &mut again);
            c3.rate(now, &fleet, &mut afresh);
            assert!(again.iter().all(|one| one.cost.is_finite()), "{n}");
            let told = |all: &[Candidate]| {
                all.iter().map(|one| (one.cost, one.latency_us())).collect::<Vec<_>>()
            };
            assert_eq!(told(&again), told(&afresh), "{n}");
        }
    }
}
