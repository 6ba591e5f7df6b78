//! `adaptive`: the least expected delay by what the replicas say of themselves, as fresh as it has
//! to be.
//!
//! **Signal**: each replica reports what it has to do, how long that takes and how much arrives, on
//! every answer and to questions. **Why questions**: where others send requests too, a report is
//! history after a few arrivals that one did not see; three questions before the request then cut
//! the 99th percentile by a third, and no formula over old reports did. So a request waits for
//! answers where two foreign arrivals or more are to be expected since the report of the best
//! replica, and where the round trip is short beside the service time. A lone dispatcher sees all
//! arrivals itself and hardly waits after its first request. **Why a squared load**: among idle
//! replicas noise in service times must not decide. **Why not always the best**: what cannot be
//! asked in time is old for all clients alike, and all would run to the same replica; where even
//! the way is longer than service takes, the report counts less than what is on that way (own
//! requests in flight, times the share of others' arrivals). Requests are spread so that the
//! foreign arrivals to be expected and this request together level the replicas (water-filling:
//! fresh reports give the best one, old ones shares by speed). **When it misleads**: a replica that
//! lies about its queue attracts requests until its own answers, in flight for long, count against
//! it. **Cold start**: replicas never heard of are taken for typical, and own requests in flight
//! count from the first. **Recovery**: reports fade to the typical one within seconds; a replica
//! that can be asked is, once a second.
//! **Without reports** (no agent beside the replica) the latency stands for the service time, and
//! the load is what is in flight there of one's own.
//! **Source**: the adaptive selection study, section 3; "load interpretation" after Dahlin,
//! "Interpreting Stale Load Information", ICDCS 1999.

use arrayvec::ArrayVec;

use crate::fleet::{Feedback, Fleet, GroupId, ReplicaId};
use crate::request::call::{Attempt, Kind, Outcome};
use crate::request::select::{ASKED_MAX, Asked, Candidates, Choice, Selector, cheapest, same_kind};
use crate::rng::Rng;
use crate::time::{Duration, Instant, from_millis_f64, millis};

/// Replicas that are compared for one request; of larger groups the freshest and a few at random.
const COMPARED_MAX: usize = 12;
/// Of them, those at random; they are the ones that are asked.
const AT_RANDOM: usize = 3;
/// Replicas that were heard last, of which large groups are compared.
const FRESHEST: usize = COMPARED_MAX - AT_RANDOM;
/// Own sends of which the moments are kept, for each replica.
const SENDS: usize = 6;
/// An answer that takes longer than this beyond the longest round trip that is waited for is not
/// waited for.
const LATE_AFTER: Duration = Duration::from_millis(1);
/// How long answers are waited for before anybody ever answered.
const PATIENCE_AT_FIRST: Duration = Duration::from_millis(10);
/// Exponent of the load where it is little more than what this dispatcher has in flight itself: it
/// says too little (C3's exponent, for the same reason).
const UNREPORTED: f64 = 3.0;
/// Weight of a new sample in the means of one replica.
const GAIN: f64 = 0.1;
/// A report is renewed after this time, where its replica can be asked.
const RENEW_AFTER: Duration = Duration::from_secs(1);

/// The constants.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveConfig {
    /// The longest round trip that is waited for, in mean service times: 2.5. Zero = nobody is
    /// asked.
    pub wait: f64,
    /// Foreign arrivals since the report of the best replica that make it history: 2.
    pub stale: f64,
    /// Share of the foreign arrivals that are levelled before one's own request: 0.5.
    pub spread: f64,
    /// Exponent of the load in the expected delay, where replicas report it: 2.
    pub exponent: f64,
    /// What one own request in flight adds to a replica's cost, in loads of a slot: 2.
    pub own: f64,
    /// Time constant with which old estimates fade to the typical one, milliseconds: 4 000.
    pub fade_ms: f64,
    /// Questions beside a request that does not wait: 3.
    pub probes: f64,
    /// Free slots of a report count for this long, milliseconds: 5. Later, others have taken them.
    pub free_ms: f64,
    /// What a replica whose answers all fail costs more, in typical service times: 50.
    pub failing: f64,
    /// Whether replicas are asked before a request.
    pub ask: bool,
    /// Whether own sends count that a report cannot contain.
    pub unseen: bool,
    /// Whether a report counts less where the way is longer than what is waited for.
    pub far: bool,
    /// Whether who does not answer questions in time is avoided.
    pub late: bool,
    /// Whether requests move that must wait at their replica.
    pub moves: bool,
}

impl Default for AdaptiveConfig {
    fn default() -> Self {
        Self {
            wait: 2.5,
            stale: 2.0,
            spread: 0.5,
            exponent: 2.0,
            own: 2.0,
            fade_ms: 4_000.0,
            probes: 3.0,
            free_ms: 5.0,
            failing: 50.0,
            ask: true,
            unseen: true,
            far: true,
            late: true,
            moves: true,
        }
    }
}

/// What is known of one replica beyond the fleet's facts. At most 100 bytes.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its mean service time; without reports, of its latency. Zero before it was heard.
    service_ms: f64,
    /// When it was last heard.
    at: Instant,
    /// Requests it reported, and slots; zero slots = it does not report.
    load: f32,
    slots: f32,
    /// Requests that reach it each millisecond, by others than this dispatcher and by it.
    arrivals_per_ms: f32,
    /// Mean gap between own sends, milliseconds; a long one before the first.
    own_gap_ms: f32,
    /// The last own sends, and the place of the oldest.
    sends: [Instant; SENDS],
    oldest: u8,
}

impl Known {
    const NOTHING: Self = Self {
        service_ms: 0.0,
        at: Instant::ZERO,
        load: 0.0,
        slots: 0.0,
        arrivals_per_ms: 0.0,
        own_gap_ms: Self::GAP_MS_MAX as f32,
        sends: [Instant::ZERO; SENDS],
        oldest: 0,
    };
    /// A gap between own sends counts as this long at the most, in milliseconds.
    const GAP_MS_MAX: f64 = 1_000.0;

    #[inline]
    const fn reports(&self) -> bool {
        self.slots > 0.0
    }

    fn sent(&mut self, now: Instant) {
        let newest = self.sends[(usize::from(self.oldest) + SENDS - 1) % SENDS];
        self.sends[usize::from(self.oldest)] = now;
        self.oldest = (self.oldest + 1) % SENDS as u8;
        let gap_ms = now.millis_since(newest).min(Self::GAP_MS_MAX);
        self.own_gap_ms = mean(self.own_gap_ms.into(), gap_ms) as f32;
    }

    /// Own sends that its report cannot contain.
    #[inline]
    fn unseen(&self, since: Instant) -> f64 {
        self.sends.iter().filter(|at| **at > since).count() as f64
    }

    /// Requests of others that reach it each millisecond.
    #[inline]
    fn foreign_per_ms(&self) -> f64 {
        (f64::from(self.arrivals_per_ms) - 1.0 / f64::from(self.own_gap_ms)).max(0.0)
    }

    /// What it has to do by its report, and by what was sent since.
    fn load_near(
        &self,
        now: Instant,
        round_trip: Duration,
        kept: f64,
        config: &AdaptiveConfig,
    ) -> Load {
        let slots = f64::from(self.slots);
        let free = match now.millis_since(self.at) < config.free_ms {
            true => (slots - f64::from(self.load)).max(0.0),
            false => 0.0,
        };
        let unseen = match config.unseen {
            true => (self.unseen(self.at.minus(round_trip)) - free).max(0.0),
            false => 0.0,
        };
        Load { slots, load: f64::from(self.load) * kept, unseen, exponent: 2.0, own: 0.0 }
    }

    /// What it has to do where most of it is on the way: others have as many requests in flight for
    /// each of one's own as they send for each of one's own.
    fn load_far(&self, own: f64, kept: f64) -> Load {
        let all_for_own = f64::from(self.arrivals_per_ms) * f64::from(self.own_gap_ms);
        let load = f64::from(self.load) * kept + own * all_for_own.clamp(1.0, 1e4);
        Load { slots: 1.0, load, unseen: 0.0, exponent: UNREPORTED, own: 0.0 }
    }

    /// How long it takes, in milliseconds, to serve a request that is sent now.
    fn takes_ms(&self, round_trip: Duration, service_ms: f64, kept: f64) -> f64 {
        let slots = f64::from(self.slots);
        let unseen = self.unseen(self.at.minus(round_trip));
        let ahead = f64::from(self.load) * kept + unseen + 1.0 - slots;
        service_ms * (1.0 + ahead.max(0.0) / slots)
    }

    fn hear(&mut self, now: Instant, report: &Feedback) {
        let load = f64::from(report.queue_length) + f64::from(report.in_service);
        // Who does not know serves all at once, and each request makes the others slower.
        let slots = report.concurrency.map_or(1.0, |slots| f64::from(slots.max(1)));
        if let Some(service_ms) = usual_ms(report, load) {
            let is_sample = report.latency.is_none() && self.service_ms > 0.0;
            let with_it = || mean(self.service_ms, service_ms);
            self.service_ms = if is_sample { with_it() } else { service_ms };
        }
        (self.load, self.slots, self.at) = (load as f32, slots as f32, now);
        self.arrivals_per_ms = report.arrival_rate.map_or(0.0, |rate| rate.value() / 1e3) as f32;
    }

    fn answered(&mut self, now: Instant, latency_ms: f64) {
        let is_first = self.service_ms == 0.0;
        self.service_ms = if is_first { latency_ms } else { mean(self.service_ms, latency_ms) };
        self.at = now;
    }
}

/// A mean with a new sample in it.
fn mean(mean: f64, sample: f64) -> f64 {
    mean + GAIN * (sample - mean)
}

/// The usual service time of a replica, where its report tells: its latency is that times one plus
/// the load of a slot (`report.rs`).
fn usual_ms(report: &Feedback, load: f64) -> Option<f64> {
    let Some(latency) = report.latency else { return report.service_time.map(millis) };
    let slots = report.concurrency.map_or(f64::INFINITY, |slots| f64::from(slots.max(1)));
    Some(millis(latency) / (1.0 + load / slots))
}

/// One candidate as it is compared.
#[derive(Clone, Copy, Debug)]
struct Rated {
    id: ReplicaId,
    /// The root of its cost: grows evenly with each request it gets.
    level: f64,
    /// Requests that raise the level by one.
    width: f64,
    /// Foreign arrivals that are to be expected before one's own request.
    arrivals: f64,
    cost: f64,
}

/// What a replica has to do, as far as one knows.
#[derive(Clone, Copy, Debug)]
struct Load {
    slots: f64,
    load: f64,
    /// Own sends that its report does not contain.
    unseen: f64,
    exponent: f64,
    /// What own requests in flight there add, in loads.
    own: f64,
}

impl Load {
    /// Service time × ((load of a slot + 1) ^ exponent + unseen sends) × (own requests + 1).
    #[inline]
    fn cost(self, service_ms: f64) -> f64 {
        let filled = 1.0 + self.load / self.slots;
        let powered = match self.exponent {
            2.0 => filled * filled,
            3.0 => filled * filled * filled,
            exponent => filled.powf(exponent),
        };
        service_ms * (powered + self.unseen / self.slots) * (1.0 + self.own / self.slots)
    }
}

/// Chooses so that foreign arrivals and this request level the candidates: each is filled from its
/// own level to the common one, and chosen by its share of what that takes.
fn fill(rated: &mut [Rated], spread: f64, rng: &mut Rng) -> ReplicaId {
    let arrivals = spread * rated.iter().map(|one| one.arrivals).sum::<f64>();
    if arrivals < 1e-3 {
        let best = rated.iter().map(|one| one.level).fold(f64::INFINITY, f64::min);
        let mut equals = 0;
        let mut chosen = rated[0].id;
        for one in rated.iter().filter(|one| one.level <= best || best.is_infinite()) {
            equals += 1;
            if equals == 1 || rng.below(equals) == 0 {
                chosen = one.id;
            }
        }
        return chosen;
    }
    rated.sort_unstable_by(|a, b| a.level.total_cmp(&b.level));
    let (mut filled, mut width, mut wet, mut level) = (0.0, 0.0, 0, 0.0);
    for (place, one) in rated.iter().enumerate() {
        filled += spread * one.arrivals + one.width * one.level;
        width += one.width;
        (wet, level) = (place + 1, filled / width);
        if rated.get(wet).is_none_or(|next| level <= next.level) {
            break;
        }
    }
    let share = |one: &Rated| one.width * (level - one.level).max(0.0);
    let mut left = rng.unit() * rated[..wet].iter().map(share).sum::<f64>();
    for one in &rated[..wet] {
        left -= share(one);
        if left < 0.0 {
            return one.id;
        }
    }
    rated[0].id
}

/// The policy.
#[derive(Clone, Debug)]
pub struct Adaptive {
    config: AdaptiveConfig,
    known: Vec<Known>,
    /// The mean service time of all that was heard; zero before that.
    typical_ms: f64,
    /// Requests of others that reach a replica each millisecond, over all of them.
    foreign_per_ms: f64,
    /// Replicas heard last, newest last.
    freshest: ArrayVec<ReplicaId, FRESHEST>,
    wanted: ArrayVec<ReplicaId, AT_RANDOM>,
    /// What was compared to find that a request need not wait.
    prepared: Option<(Instant, GroupId, ArrayVec<Rated, COMPARED_MAX>)>,
    /// Replicas that report.
    reporting: usize,
}

impl Adaptive {
    /// Weight of one answer in the typical service time: a memory of about fifty answers.
    const TYPICAL_GAIN: f64 = 0.02;

    /// With these constants.
    pub const fn new(config: AdaptiveConfig) -> Self {
        Self {
            config,
            known: Vec::new(),
            typical_ms: 0.0,
            foreign_per_ms: 0.0,
            freshest: ArrayVec::new_const(),
            wanted: ArrayVec::new_const(),
            prepared: None,
            reporting: 0,
        }
    }

    fn typical(&self) -> f64 {
        // Before the first answer all are equal; any time lets requests in flight count.
        if self.typical_ms > 0.0 { self.typical_ms } else { 1.0 }
    }

    /// How much of an estimate is left: 1 = all, 0 = it has faded to the typical one.
    #[inline]
    fn kept(&self, now: Instant, at: Instant) -> f64 {
        let age = now.millis_since(at) / self.config.fade_ms;
        if age < 0.01 { 1.0 } else { (-age).exp() }
    }

    /// The service time of a replica, of whose estimate so much is left.
    #[inline]
    fn service_ms(&self, known: &Known, kept: f64) -> f64 {
        match known.service_ms {
            0.0 => self.typical(),
            known_ms => self.typical() + kept * (known_ms - self.typical()),
        }
    }

    #[inline]
    fn rate_one(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> Rated {
        let (replica, known) = (fleet.replica(id), &self.known[id.index()]);
        let own = replica.burden(now);
        let kept = self.kept(now, known.at);
        let service_ms = self.service_ms(known, kept);
        let round_trip = fleet.round_trip(id).unwrap_or_default();
        let load = match known.reports() {
            false => Load { slots: 1.0, load: own, unseen: 0.0, exponent: UNREPORTED, own: 0.0 },
            true if self.config.far && self.is_far(round_trip) => known.load_far(own, kept),
            true => Load {
                exponent: self.config.exponent,
                own: self.config.own * own,
                ..known.load_near(now, round_trip, kept, &self.config)
            },
        };
        let arrivals = match known.reports() {
            true => {
                let age_ms = now.millis_since(known.at) + millis(round_trip);
                self.foreign_at(known) * age_ms * kept
            }
            false => 0.0,
        };
        let mut cost = load.cost(service_ms);
        cost += replica.failure_share(now) * self.config.failing * self.typical();
        if self.config.late && fleet.is_late_with_answer(now, id) {
            cost *= 1e6; // it stands still: it is chosen where all do
        }
        let width = load.slots / service_ms.max(1e-6).sqrt();
        Rated { id, level: cost.sqrt(), width, arrivals, cost }
    }

    /// Whether what a replica reports is over before a request gets there.
    #[inline]
    fn is_far(&self, round_trip: Duration) -> bool {
        millis(round_trip) > self.config.wait * self.typical()
    }

    /// The candidates that are compared for one request: of a large group those at random, who may
    /// be asked, then the freshest.
    fn compared(
        &self,
        now: Instant,
        from: Candidates<'_>,
        at_random: usize,
        rng: &mut Rng,
    ) -> ArrayVec<Rated, COMPARED_MAX> {
        let rate = |&id: &ReplicaId| self.rate_one(now, from.fleet, id);
        if from.ids.len() <= COMPARED_MAX {
            return from.ids.iter().map(rate).collect();
        }
        let mut ids = ArrayVec::<ReplicaId, COMPARED_MAX>::new();
        while ids.len() < at_random {
            let id = from.ids[rng.below(from.ids.len())];
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        for id in &self.freshest {
            if !ids.contains(id) && from.ids.contains(id) {
                ids.push(*id);
            }
        }
        ids.iter().map(rate).collect()
    }

    fn heard(&mut self, now: Instant, id: ReplicaId, report: Option<&Feedback>, latency_ms: f64) {
        let known = &mut self.known[id.index()];
        match report {
            Some(report) => {
                self.reporting += usize::from(!known.reports());
                known.hear(now, report);
                let foreign = known.foreign_per_ms();
                self.foreign_per_ms += Self::TYPICAL_GAIN * (foreign - self.foreign_per_ms);
            }
            None if known.reports() => return,
            None => known.answered(now, latency_ms),
        }
        let sample = known.service_ms;
        if sample > 0.0 {
            let gain = if self.typical_ms == 0.0 { 1.0 } else { Self::TYPICAL_GAIN };
            self.typical_ms += gain * (sample - self.typical_ms);
        }
        if self.known.len() > COMPARED_MAX {
            self.freshest.retain(|other| *other != id);
            if self.freshest.is_full() {
                self.freshest.remove(0);
            }
            self.freshest.push(id);
        }
    }

    /// Foreign arrivals at a replica since its report.
    fn history(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> f64 {
        let known = &self.known[id.index()];
        let round_trip = fleet.round_trip(id).unwrap_or_default();
        let age_ms = now.millis_since(known.at) + millis(round_trip) / 2.0;
        self.foreign_at(known) * age_ms
    }

    /// Requests of others that are to be expected at a replica each millisecond: as many as come
    /// to others, too. One that stood still had none for a while; then all hear at once that it has
    /// little to do.
    #[inline]
    fn foreign_at(&self, known: &Known) -> f64 {
        known.foreign_per_ms().max(self.foreign_per_ms)
    }

    /// Whether it pays to wait for answers: where nobody was heard yet, or the report of the best
    /// is history and the way is short.
    fn pays(&self, now: Instant, fleet: &Fleet, compared: &[Rated]) -> bool {
        if self.typical_ms == 0.0 {
            return true;
        }
        let best = compared.iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
        best.is_some_and(|best| {
            fleet.round_trip(best.id).is_some_and(|it| !self.is_far(it))
                && (self.history(now, fleet, best.id) >= self.config.stale
                    || !self.known[best.id.index()].reports())
        })
    }

    /// Notes whom to ask beside a request that does not wait: those whose reports are history.
    fn want(&mut self, now: Instant, fleet: &Fleet, compared: &[Rated]) {
        self.wanted.clear();
        let most = (self.config.probes as usize).min(AT_RANDOM);
        for one in compared {
            let known = &self.known[one.id.index()];
            let is_old = match known.reports() {
                true => {
                    now.since(known.at) >= RENEW_AFTER
                        || fleet.round_trip(one.id).is_none()
                        || self.history(now, fleet, one.id) >= self.config.stale
                }
                // Where nobody reports, an application is not asked again what it does not know.
                false => self.reporting > 0,
            };
            if self.wanted.len() < most && is_old && fleet.may_be_asked(one.id) {
                self.wanted.push(one.id);
            }
        }
    }
}

impl Selector for Adaptive {
    fn name(&self) -> &'static str {
        "adaptive"
    }

    fn asks(&self) -> bool {
        self.config.ask && self.config.wait > 0.0
    }

    fn ask(
        &mut self,
        now: Instant,
        from: Candidates<'_>,
        rng: &mut Rng,
        whom: &mut Asked,
    ) -> Option<Instant> {
        let fleet = from.fleet;
        let may_ask = |id: &ReplicaId| fleet.may_be_asked(*id);
        if self.reporting == 0 && !from.ids.iter().any(may_ask) {
            return None;
        }
        let compared = self.compared(now, from, AT_RANDOM, rng);
        if !self.pays(now, fleet, &compared) {
            self.want(now, fleet, &compared);
            self.prepared = Some((now, from.group, compared));
            return None;
        }
        let is_large = from.ids.len() > COMPARED_MAX;
        let mut longest = Duration::ZERO;
        for one in compared.iter().take(if is_large { AT_RANDOM } else { ASKED_MAX }) {
            if fleet.is_late_with_answer(now, one.id) {
                let _ = self.wanted.try_push(one.id); // it is asked, and not waited for
            } else if fleet.may_be_asked(one.id) {
                whom.push(one.id);
                longest = longest.max(fleet.patience(one.id).unwrap_or(PATIENCE_AT_FIRST));
            }
        }
        let most = match self.typical_ms > 0.0 {
            true => from_millis_f64(self.config.wait * self.typical_ms) + LATE_AFTER,
            false => PATIENCE_AT_FIRST,
        };
        Some(now + longest.min(most))
    }

    fn select(&mut self, now: Instant, from: Candidates<'_>, rng: &mut Rng) -> Choice {
        if self.reporting == 0 {
            let cost = |id| self.rate_one(now, from.fleet, id).cost;
            return Choice::Send(cheapest(from.ids, rng, cost));
        }
        let prepared = self.prepared.take().filter(|(at, group, compared)| {
            let are_candidates = || compared.iter().all(|one| from.ids.contains(&one.id));
            (*at, *group) == (now, from.group) && are_candidates()
        });
        let mut compared = match prepared {
            Some((_, _, compared)) => compared,
            // Those who were asked are among the freshest.
            None => match self.compared(now, from, 0, rng) {
                known if known.len() >= AT_RANDOM.min(from.ids.len()) => known,
                _ => self.compared(now, from, AT_RANDOM, rng),
            },
        };
        Choice::Send(fill(&mut compared, self.config.spread, rng))
    }

    fn cost(&self, now: Instant, fleet: &Fleet, replica: ReplicaId) -> Option<f64> {
        Some(self.rate_one(now, fleet, replica).cost)
    }

    fn moves(&self) -> bool {
        self.config.moves
    }

    fn quickest(&self, now: Instant, from: Candidates<'_>) -> Option<(ReplicaId, f64)> {
        let fleet = from.fleet;
        let is_large = from.ids.len() > COMPARED_MAX;
        let ids = if is_large { &self.freshest[..] } else { from.ids };
        let takes_ms = |id: &ReplicaId| {
            let known = &self.known[id.index()];
            let is_meant = !is_large || from.ids.contains(id);
            if !is_meant || !known.reports() || fleet.is_late_with_answer(now, *id) {
                return None;
            }
            let kept = self.kept(now, known.at);
            let round_trip = fleet.round_trip(*id).unwrap_or_default();
            let takes_ms = known.takes_ms(round_trip, self.service_ms(known, kept), kept);
            Some((*id, takes_ms + self.typical()))
        };
        ids.iter().filter_map(takes_ms).min_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn on_send(&mut self, now: Instant, replica: ReplicaId, _kind: Kind, _fleet: &Fleet) {
        self.known[replica.index()].sent(now);
    }

    fn on_outcome(&mut self, now: Instant, of: &Attempt, outcome: &Outcome, _fleet: &Fleet) {
        // A failure says nothing of how long answers take, or of a queue.
        if let Outcome::Replied(report) = outcome {
            self.heard(now, of.replica(), report.as_ref(), now.millis_since(of.sent_at()));
        }
    }

    fn on_membership(&mut self, _now: Instant, fleet: &Fleet) {
        self.known.resize(fleet.len(), Known::NOTHING);
        self.count_reporting();
    }

    fn on_reassigned(&mut self, _now: Instant, replica: ReplicaId, _fleet: &Fleet) {
        if let Some(known) = self.known.get_mut(replica.index()) {
            *known = Known::NOTHING;
        }
        self.count_reporting();
    }

    fn inherit(&mut self, _now: Instant, before: &mut dyn Selector) {
        let Some(before) = same_kind::<Self>(before) else { return };
        self.known = core::mem::take(&mut before.known);
        self.typical_ms = before.typical_ms;
        self.foreign_per_ms = before.foreign_per_ms;
        self.freshest = before.freshest.clone();
        self.count_reporting();
    }

    fn next_probe(&mut self) -> Option<ReplicaId> {
        self.wanted.pop()
    }

    fn on_probe(&mut self, now: Instant, replica: ReplicaId, answer: Option<&Feedback>) {
        if answer.is_some() {
            self.heard(now, replica, answer, 0.0);
        }
    }
}

impl Adaptive {
    fn count_reporting(&mut self) {
        self.reporting = self.known.iter().filter(|known| known.reports()).count();
    }
}

#[cfg(test)]
mod tests;
