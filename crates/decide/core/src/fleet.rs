//! The one table of facts about replicas.
//!
//! Facts are counted here once, for every policy: what is in flight, what the replica last said of
//! itself, how often it fails. Policies keep only *estimates* that are theirs alone (an average
//! with their own constant). Only the dispatcher changes this table.

use crate::silence::Silence;
use crate::time::{Duration, Instant};
use crate::units::{Dimmer, Rate};

/// A replica's slot in the fleet. A retired replica keeps its number; one that was away for long
/// may have to leave it to another, which has the slot under the next generation
/// ([`RoutePlan::generations`](crate::plan::RoutePlan::generations)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReplicaId(u32);

impl ReplicaId {
    /// The replica in this slot (at most 2³² − 1 replicas).
    #[inline]
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// The slot, as an index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A replica group: the replicas any of which can answer a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupId(u32);

impl GroupId {
    /// The group with this index.
    #[inline]
    pub const fn new(index: usize) -> Self {
        Self(index as u32)
    }

    /// The index of the group.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What a replica says about itself on a response or a probe's answer.
///
/// Everything a replica cannot know is absent, never zero-by-default.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Feedback {
    /// Requests waiting at the replica, without those in service (C3's q).
    pub queue_length: u32,
    /// Requests in service at the replica, after the answered one left.
    pub in_service: u32,
    /// Requests the replica serves at once; `None` when it does not know.
    pub concurrency: Option<u32>,
    /// Service time of the answered request, without waiting (C3's 1/µ); on a probe's answer the
    /// usual one. `None` while it has served nothing: it is idle, and nobody knows how fast.
    pub service_time: Option<Duration>,
    /// The replica's estimate of the latency of a request that arrives now (Prequal).
    pub latency: Option<Duration>,
    /// Requests arriving at the replica from all its clients together.
    pub arrival_rate: Option<Rate>,
    /// The replica's dimmer, when it has one.
    pub dimmer: Option<Dimmer>,
    /// When the replica made the report, on *its* clock: orders the reports of one replica,
    /// comparable with nothing else.
    pub reported_at: Option<Instant>,
}

impl Feedback {
    /// A report of the two facts every replica can measure.
    pub const fn measured(queue_length: u32, in_service: u32, service_time: Duration) -> Self {
        Self {
            queue_length,
            in_service,
            concurrency: None,
            service_time: Some(service_time),
            latency: None,
            arrival_rate: None,
            dimmer: None,
            reported_at: None,
        }
    }
}

/// Whether a replica may be given requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// It may.
    Up,
    /// Active checks found it dead; it is tried only when no other replica is left.
    Down,
    /// It is leaving: it finishes what is in flight and gets nothing more.
    Draining,
}

/// A report older than the known one was overtaken on the way, unless it is older by more than
/// any answer can be late: then the replica was restarted and its clock began anew.
const OVERTAKEN_WITHIN: Duration = Duration::from_secs(10);

/// Copies that were given up unanswered since the replica answered last.
///
/// A copy that is given up is not gone: the replica may work on it for a while, or stands still.
/// Taken off the books at once it would make a replica that has stopped look idle, and the next
/// request would follow it there. How much longer it will take nobody knows; what has taken long
/// already takes longer (Lindy's law: of service times with a Pareto tail of exponent 1, the chance
/// that one of age t is not over after another s is t / (t + s)), so that is how it is forgotten.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct GivenUp {
    pub(crate) copies: f64,
    /// How long the one that waited longest had waited.
    pub(crate) waited_ns: u64,
    pub(crate) at: Instant,
}

impl GivenUp {
    /// How many of them the replica still has to do with, as far as one can expect.
    #[inline]
    pub(crate) fn left(&self, now: Instant) -> f64 {
        if self.copies == 0.0 {
            return 0.0; // the usual case
        }
        let (waited, since) = (self.waited_ns as f64, now.nanos_since(self.at) as f64);
        self.copies * waited / (waited + since).max(1.0)
    }

    pub(crate) fn add(&mut self, now: Instant, waited_ns: u64) {
        self.copies = self.left(now) + 1.0;
        self.waited_ns = self.waited_ns.max(waited_ns);
        self.at = now;
    }
}

/// What a replica has to do for siblings of this dispatcher.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) in_flight: u32,
    pub(crate) given_up: f64,
}

/// Whether a replica is being asked for its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probing {
    /// It may be asked.
    Idle,
    /// A question is on its way since then. One at a time: a replica too slow to answer is not
    /// asked more and more.
    Asked(Instant),
    /// It answered as one that knows no probes, and is not asked again.
    Unknown,
}

/// How long a replica takes to answer a question: the smoothed time and its mean deviation, as TCP
/// keeps them (RFC 6298, with the gains 1/8 and 1/4).
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct RoundTrip {
    smoothed_ns: u64,
    deviation_ns: u64,
}

impl RoundTrip {
    /// A question that waits this much longer than usual, at the least, is late: 1 ms (adaptive
    /// selection study, section 3).
    const LATE_NS_MIN: u64 = 1_000_000;
    /// An answer that took longer than this many times the usual says that its replica stood
    /// still, not how far away it is.
    const TIMES_MAX: u64 = 4;

    fn add(&mut self, sample_ns: u64) {
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns) = (sample_ns.max(1), sample_ns / 2);
            return;
        }
        let sample_ns = sample_ns.clamp(1, self.smoothed_ns * Self::TIMES_MAX);
        if sample_ns < self.smoothed_ns / Self::TIMES_MAX {
            *self = Self { smoothed_ns: sample_ns, deviation_ns: sample_ns / 2 };
            return; // what was known was of a replica that stood still
        }
        let error_ns = sample_ns.abs_diff(self.smoothed_ns);
        self.deviation_ns = self.deviation_ns - self.deviation_ns / 4 + error_ns / 4;
        self.smoothed_ns = (self.smoothed_ns - self.smoothed_ns / 8 + sample_ns / 8).max(1);
    }

    fn patience_ns(self) -> u64 {
        self.smoothed_ns + (4 * self.deviation_ns).max(Self::LATE_NS_MIN)
    }
}

/// What is known about one replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// How many replicas have had this slot before.
    pub(crate) generation: u32,
    pub(crate) in_flight: u32,
    /// What siblings had in flight there at the last look, and what they had given up.
    pub(crate) elsewhere: Elsewhere,
    pub(crate) given_up: GivenUp,
    pub(crate) silence: Silence,
    pub(crate) probing: Probing,
    pub(crate) round_trip: RoundTrip,
    /// Whether its last question ended without an answer, and it said nothing since.
    pub(crate) is_mute: bool,
    /// Attempts that failed since it last answered.
    pub(crate) consecutive_failures: u32,
    /// Bodies that broke since one was complete: an answer's head alone does not clear its name.
    pub(crate) broken_bodies: u32,
    pub(crate) health: Health,
    pub(crate) feedback: Option<Feedback>,
    pub(crate) received_at: Instant,
    pub(crate) dimmer: Option<(Dimmer, Instant)>,
    pub(crate) failures: Decaying,
    pub(crate) ejected_until: Instant,
    pub(crate) ejections: u32,
    /// When it began to take part; `None` for those that were there from the start.
    pub(crate) joined: Option<Instant>,
}

impl Replica {
    const fn new(generation: u32, joined: Option<Instant>) -> Self {
        Self {
            generation,
            in_flight: 0,
            elsewhere: Elsewhere { in_flight: 0, given_up: 0.0 },
            given_up: GivenUp { copies: 0.0, waited_ns: 0, at: Instant::ZERO },
            silence: Silence::new(),
            probing: Probing::Idle,
            round_trip: RoundTrip { smoothed_ns: 0, deviation_ns: 0 },
            is_mute: false,
            consecutive_failures: 0,
            broken_bodies: 0,
            health: Health::Up,
            feedback: None,
            received_at: Instant::ZERO,
            dimmer: None,
            failures: Decaying { value: 0.0, at: Instant::ZERO },
            ejected_until: Instant::ZERO,
            ejections: 0,
            joined,
        }
    }

    /// How many replicas have had this slot before.
    #[inline]
    pub const fn generation(&self) -> u32 {
        self.generation
    }

    /// Attempts sent by this dispatcher and not finished.
    #[inline]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// What it has to do for this dispatcher: attempts in flight, and copies that were given up and
    /// may still be with it.
    #[inline]
    pub fn burden(&self, now: Instant) -> f64 {
        f64::from(self.in_flight) + self.given_up.left(now)
    }

    /// The same with what siblings have in flight there.
    #[inline]
    pub fn load(&self, now: Instant) -> f64 {
        self.burden(now) + f64::from(self.elsewhere.in_flight) + self.elsewhere.given_up
    }

    /// Attempts in flight of this dispatcher and, at the last look, of its siblings.
    #[inline]
    pub const fn in_flight_of_all(&self) -> u32 {
        self.in_flight + self.elsewhere.in_flight
    }

    /// The newest report, if it ever sent one.
    #[inline]
    pub const fn feedback(&self) -> Option<&Feedback> {
        self.feedback.as_ref()
    }

    /// When the newest report or answer came; [`Instant::ZERO`] when none did.
    #[inline]
    pub const fn received_at(&self) -> Instant {
        self.received_at
    }

    /// Whether it ever answered a question about its state.
    pub(crate) const fn has_answered_questions(&self) -> bool {
        self.round_trip.smoothed_ns > 0
    }

    /// The dimmer it last told and when it did. `None`: it has no brownout, or has not told yet;
    /// that is not a dimmer of zero.
    #[inline]
    pub const fn dimmer(&self) -> Option<(Dimmer, Instant)> {
        self.dimmer
    }

    /// Whether it may be given requests.
    pub const fn health(&self) -> Health {
        self.health
    }

    /// Share of its recent answers that were failures, forgotten within seconds.
    pub fn failure_share(&self, now: Instant) -> f64 {
        self.failures.value(now)
    }

    /// Failures since it last succeeded: attempts without an answer since one was answered, and
    /// bodies that broke since one was complete.
    pub const fn consecutive_failures(&self) -> u32 {
        self.consecutive_failures.saturating_add(self.broken_bodies)
    }

    /// How long after an ejection the replica is given one request at a time, at the most: bodies
    /// may be endless, and then none is ever complete.
    pub(crate) const TRIAL_WITHIN: Duration = Duration::from_secs(15);

    /// Whether it has failed this many times in a row (0 = never mind) and must show with one
    /// request at a time that it is well again.
    pub fn needs_trial(&self, now: Instant, failures: u32) -> bool {
        if failures == 0 || self.consecutive_failures() < failures {
            return false;
        }
        self.consecutive_failures >= failures || now < self.ejected_until + Self::TRIAL_WITHIN
    }

    /// Whether it owes replies and has said nothing for far longer than it takes.
    pub const fn is_silent(&self) -> bool {
        self.silence.is_silent()
    }

    /// Until when it is ejected for failing; in the past when it is not.
    pub const fn ejected_until(&self) -> Instant {
        self.ejected_until
    }
}

/// An average that fades when nothing new comes: one failed answer must not exclude a replica for
/// ever, since an excluded replica gets no request to clear its name with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Decaying {
    value: f64,
    at: Instant,
}

impl Decaying {
    /// Weight of a new sample (adaptive selection study, section 3).
    const GAIN: f64 = 0.3;
    /// Time constant of forgetting, in milliseconds (same source).
    const FORGET_MS: f64 = 2_000.0;

    fn value(&self, now: Instant) -> f64 {
        if self.value == 0.0 {
            return 0.0; // the usual case costs no exp()
        }
        self.value * (-now.millis_since(self.at) / Self::FORGET_MS).exp()
    }

    fn add(&mut self, now: Instant, sample: f64) {
        if self.value == 0.0 && sample == 0.0 {
            return;
        }
        let faded = self.value(now);
        let value = faded + Self::GAIN * (sample - faded);
        *self = Self { value: if value < 1e-3 { 0.0 } else { value }, at: now };
    }

    /// A sample of 0 that was added turns out to be a 1.
    fn turn(&mut self, now: Instant) {
        *self = Self { value: (self.value(now) + Self::GAIN).min(1.0), at: now };
    }
}

/// All replicas and the groups they form.
#[derive(Clone, Debug, Default)]
pub struct Fleet {
    replicas: Vec<Replica>,
    groups: Vec<Vec<ReplicaId>>,
    /// Until when some replica is young, failing or ejected: before it, candidates are examined
    /// one by one; after it, a group is used as it stands (the fast path).
    pub(crate) examine_until: Instant,
    /// Members of groups whose health is not `Up`. One that left and is in no group costs nothing.
    pub(crate) unhealthy: u32,
    /// Replicas that are silent.
    pub(crate) silent: u32,
    /// When to look again who is.
    pub(crate) listen_at: Instant,
    /// Over all replicas.
    round_trip: RoundTrip,
}

impl Fleet {
    /// A fleet of `replicas` replicas, all up, forming `groups`.
    ///
    /// # Panics
    /// When a group names a replica that does not exist, or one twice.
    pub fn new(replicas: usize, groups: Vec<Vec<ReplicaId>>) -> Self {
        let mut fleet = Self::default();
        for _ in 0..replicas {
            fleet.add(None);
        }
        fleet.regroup(groups);
        fleet
    }

    /// One group of all `replicas` replicas.
    pub fn single_group(replicas: usize) -> Self {
        Self::new(replicas, vec![(0..replicas).map(ReplicaId::new).collect()])
    }

    /// The number of slots, including those of retired replicas.
    pub fn len(&self) -> usize {
        self.replicas.len()
    }

    /// True when there is no replica at all.
    pub fn is_empty(&self) -> bool {
        self.replicas.is_empty()
    }

    /// What is known about a replica.
    ///
    /// # Panics
    /// When the fleet has no such slot.
    #[inline]
    #[must_use]
    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.replicas[id.index()]
    }

    /// The members of a group; empty for a group that does not exist.
    #[inline]
    pub fn group(&self, id: GroupId) -> &[ReplicaId] {
        self.groups.get(id.index()).map_or(&[], Vec::as_slice)
    }

    /// The generation of every slot.
    pub(crate) fn generations(&self) -> impl Iterator<Item = u32> + '_ {
        self.replicas.iter().map(|replica| replica.generation)
    }

    /// The number of groups.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Attempts in flight to all replicas together.
    pub fn in_flight(&self) -> u64 {
        self.replicas.iter().map(|replica| u64::from(replica.in_flight)).sum()
    }

    pub(crate) fn add(&mut self, joined: Option<Instant>) -> ReplicaId {
        self.replicas.push(Replica::new(0, joined));
        ReplicaId::new(self.replicas.len() - 1)
    }

    /// Gives a slot to another replica, of which nothing is known. What is in flight to the one
    /// before is on nobody's account any more.
    pub(crate) fn reassign(&mut self, now: Instant, id: ReplicaId, generation: u32) {
        let replica = self.replica_mut(id);
        assert!(generation > replica.generation, "a seat's generation only grows");
        *replica = Replica::new(generation, Some(now));
        self.count_silent();
        self.count_unhealthy();
    }

    /// Whether this slot is still that replica's.
    #[inline]
    pub(crate) fn is_current(&self, id: ReplicaId, generation: u32) -> bool {
        self.replica(id).generation == generation
    }

    pub(crate) fn regroup(&mut self, groups: Vec<Vec<ReplicaId>>) {
        let known = self.replicas.len();
        let all_known = groups.iter().flatten().all(|id| id.index() < known);
        assert!(all_known, "a group names a replica that is not in the fleet");
        let twice = |ids: &[ReplicaId]| (1..ids.len()).any(|n| ids[..n].contains(&ids[n]));
        assert!(!groups.iter().any(|ids| twice(ids)), "a group names a replica twice");
        self.groups = groups;
        self.count_unhealthy();
    }

    #[inline]
    pub(crate) fn replica_mut(&mut self, id: ReplicaId) -> &mut Replica {
        &mut self.replicas[id.index()]
    }

    /// Notes an answer; a report that was overtaken by the one known is not taken over.
    #[inline]
    pub(crate) fn note_answer(&mut self, now: Instant, id: ReplicaId, feedback: Option<&Feedback>) {
        let replica = self.replica_mut(id);
        replica.received_at = now;
        replica.is_mute = false;
        let Some(new) = feedback else { return };
        let known = replica.feedback.as_ref().and_then(|old| old.reported_at);
        if let (Some(known), Some(reported)) = (known, new.reported_at)
            && reported < known
            && known.since(reported) < OVERTAKEN_WITHIN
        {
            return;
        }
        replica.feedback = Some(*new);
        if replica.probing == Probing::Unknown {
            replica.probing = Probing::Idle; // an agent has come
        }
        if let Some(dimmer) = new.dimmer {
            replica.dimmer = Some((dimmer, now));
        }
    }

    /// Notes the dimmer a replica told on an answer, apart from any report.
    #[inline]
    pub(crate) fn note_dimmer(&mut self, now: Instant, id: ReplicaId, dimmer: Dimmer) {
        self.replica_mut(id).dimmer = Some((dimmer, now));
    }

    /// Looks who has become silent, and notes when that may next be so.
    pub(crate) fn listen(&mut self, now: Instant, least: Duration) {
        // Who begins to owe a reply after this look is not silent before that.
        let mut next = now + least;
        let slowest = self.replicas.iter().map(|replica| replica.silence.slowest()).max();
        for replica in &mut self.replicas {
            replica.silence.compare(slowest.unwrap_or_default(), least);
            next = replica.silence.look(now, least).map_or(next, |due| due.min(next));
        }
        self.listen_at = next;
        self.count_silent();
    }

    /// A replica said something at the end of an attempt; a reply also after what time.
    #[inline]
    pub(crate) fn heard(&mut self, now: Instant, id: ReplicaId, latency_ns: Option<u64>) {
        let silence = &mut self.replica_mut(id).silence;
        let was_silent = silence.is_silent();
        match latency_ns {
            Some(latency_ns) => silence.replied(now, latency_ns),
            None => silence.heard(now),
        }
        if was_silent {
            self.count_silent();
        }
    }

    fn count_silent(&mut self) {
        let silent = self.replicas.iter().filter(|replica| replica.silence.is_silent());
        self.silent = silent.count() as u32;
    }

    pub(crate) fn succeeded(&mut self, now: Instant, id: ReplicaId) {
        let replica = self.replica_mut(id);
        replica.consecutive_failures = 0;
        replica.given_up = GivenUp::default(); // whatever held it up is over
        if replica.broken_bodies == 0 {
            replica.ejections = 0;
        }
        replica.failures.add(now, 0.0);
    }

    /// The body of an answer has come to its end.
    #[inline]
    pub(crate) fn completed(&mut self, id: ReplicaId) {
        let replica = self.replica_mut(id);
        if replica.broken_bodies > 0 {
            (replica.broken_bodies, replica.ejections) = (0, 0);
        }
    }

    /// The body of an answer broke that had counted as a success.
    pub(crate) fn body_broke(&mut self, now: Instant, id: ReplicaId) {
        let replica = self.replica_mut(id);
        replica.broken_bodies = replica.broken_bodies.saturating_add(1);
        replica.failures.turn(now);
        self.examine_failure(now);
    }

    pub(crate) fn failed(&mut self, now: Instant, id: ReplicaId) {
        let replica = self.replica_mut(id);
        replica.consecutive_failures = replica.consecutive_failures.saturating_add(1);
        replica.failures.add(now, 1.0);
        self.examine_failure(now);
    }

    fn examine_failure(&mut self, now: Instant) {
        self.examine(now + Duration::from_secs(15)); // 7.5 time constants of forgetting
    }

    /// Whether a replica may answer questions: it never said that it knows none.
    #[inline]
    pub fn may_be_asked(&self, id: ReplicaId) -> bool {
        self.replica(id).probing != Probing::Unknown
    }

    /// How long a replica takes to answer a question about its state, or others do where it never
    /// answered one; `None` before anybody did.
    #[inline]
    pub fn round_trip(&self, id: ReplicaId) -> Option<Duration> {
        self.known_round_trip(id).map(|it| Duration::from_nanos(it.smoothed_ns))
    }

    /// How long its answer to a question is waited for, before it is late.
    #[inline]
    pub fn patience(&self, id: ReplicaId) -> Option<Duration> {
        self.known_round_trip(id).map(|it| Duration::from_nanos(it.patience_ns()))
    }

    /// Whether it owes the answer to a question for longer than it takes, or has owed one until
    /// nobody waited any more: it stands still.
    #[inline]
    pub fn is_late_with_answer(&self, now: Instant, id: ReplicaId) -> bool {
        let replica = self.replica(id);
        let Probing::Asked(at) = replica.probing else { return replica.is_mute };
        replica.is_mute || self.patience(id).is_some_and(|patience| now >= at + patience)
    }

    #[inline]
    fn known_round_trip(&self, id: ReplicaId) -> Option<RoundTrip> {
        let known = |it: &RoundTrip| it.smoothed_ns > 0;
        let its_own = Some(self.replica(id).round_trip).filter(known);
        its_own.or(Some(self.round_trip).filter(known))
    }

    /// A replica answered a question after this time.
    pub(crate) fn note_round_trip(&mut self, id: ReplicaId, sample_ns: u64) {
        let usual = self.round_trip;
        let its_own = &mut self.replica_mut(id).round_trip;
        if its_own.smoothed_ns == 0 {
            *its_own = usual;
        }
        its_own.add(sample_ns);
        self.round_trip.add(sample_ns);
    }

    pub(crate) fn examine(&mut self, until: Instant) {
        self.examine_until = self.examine_until.max(until);
    }

    pub(crate) fn set_health(&mut self, now: Instant, id: ReplicaId, health: Health) {
        let replica = self.replica_mut(id);
        let before = core::mem::replace(&mut replica.health, health);
        if before != Health::Up && health == Health::Up {
            replica.joined = Some(now);
        }
        if before == Health::Down && health == Health::Up {
            // Back from the dead with cold caches: as good as new. One that was taken out and
            // put back keeps what is known of it.
            replica.feedback = None;
            replica.dimmer = None;
            (replica.consecutive_failures, replica.broken_bodies) = (0, 0);
            replica.ejections = 0;
            replica.failures = Decaying::default();
            replica.ejected_until = Instant::ZERO;
            replica.silence.excuse(now);
            self.count_silent();
        }
        self.count_unhealthy();
    }

    fn count_unhealthy(&mut self) {
        let mut is_member = vec![false; self.replicas.len()];
        self.groups.iter().flatten().for_each(|id| is_member[id.index()] = true);
        let members = self.replicas.iter().zip(is_member).filter(|(_, is_member)| *is_member);
        let unhealthy = members.filter(|(replica, _)| replica.health != Health::Up);
        self.unhealthy = unhealthy.count() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_was_overtaken_is_not_taken_over() {
        let mut fleet = Fleet::single_group(1);
        let id = ReplicaId::new(0);
        let report = |queue, at| Feedback {
            reported_at: Some(Instant::from_millis(at)),
            ..Feedback::measured(queue, 0, Duration::from_millis(1))
        };
        fleet.note_answer(Instant::from_millis(10), id, Some(&report(5, 9)));
        fleet.note_answer(Instant::from_millis(11), id, Some(&report(2, 7)));
        assert_eq!(fleet.replica(id).feedback().map(|f| f.queue_length), Some(5));
        assert_eq!(fleet.replica(id).received_at(), Instant::from_millis(11));
    }

    #[test]
    fn a_replica_whose_clock_begins_anew_is_listened_to() {
        let mut fleet = Fleet::single_group(1);
        let id = ReplicaId::new(0);
        let report = |queue, at| Feedback {
            reported_at: Some(Instant::from_millis(at)),
            ..Feedback::measured(queue, 0, Duration::from_millis(1))
        };
        fleet.note_answer(Instant::ZERO, id, Some(&report(5, 86_400_000)));
        fleet.note_answer(Instant::ZERO, id, Some(&report(2, 7)));
        assert_eq!(fleet.replica(id).feedback().map(|f| f.queue_length), Some(2));
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn a_group_that_names_a_replica_twice_is_a_mistake() {
        let id = ReplicaId::new(0);
        let _ = Fleet::new(1, vec![vec![id, id]]);
    }

    #[test]
    fn what_was_given_up_is_forgotten_as_slowly_as_it_took() {
        let mut fleet = Fleet::single_group(1);
        let id = ReplicaId::new(0);
        let at = Instant::from_millis;
        fleet.replica_mut(id).given_up.add(at(50), 10_000_000);
        let burden = |fleet: &Fleet, ms| fleet.replica(id).burden(at(ms));
        // 10 / (10 + s): one half after as long again, a tenth after nine times as long.
        assert_eq!([50, 60, 140].map(|ms| burden(&fleet, ms)), [1.0, 0.5, 0.1]);
        // Half of the first is left when a second comes that had waited longer.
        fleet.replica_mut(id).given_up.add(at(60), 30_000_000);
        assert_eq!([60, 90].map(|ms| burden(&fleet, ms)), [1.5, 0.75]);
        fleet.replica_mut(id).in_flight = 2;
        assert_eq!(burden(&fleet, 60), 3.5);
        fleet.succeeded(at(61), id);
        assert_eq!(burden(&fleet, 61), 2.0, "who answers is not held up any more");
    }

    #[test]
    fn a_copy_given_up_at_once_is_forgotten_at_once() {
        let mut fleet = Fleet::single_group(1);
        let id = ReplicaId::new(0);
        fleet.replica_mut(id).given_up.add(Instant::ZERO, 0);
        assert_eq!(fleet.replica(id).burden(Instant::ZERO), 0.0);
    }

    #[test]
    fn failures_fade_with_time_and_with_successes() {
        let mut failures = Decaying::default();
        for _ in 0..10 {
            failures.add(Instant::ZERO, 1.0);
        }
        assert!(failures.value(Instant::ZERO) > 0.9);
        assert!(failures.value(Instant::from_millis(4_000)) < 0.2);
        for _ in 0..30 {
            failures.add(Instant::ZERO, 0.0);
        }
        assert_eq!(failures.value(Instant::ZERO), 0.0);
    }

    #[test]
    fn of_broken_bodies_the_share_is_that_of_failures() {
        // Every answer's head counts as a success; of one body in two or of all it is taken back.
        for (every, low, high) in [(1, 0.99, 1.0), (2, 0.35, 0.65)] {
            let mut failures = Decaying::default();
            for attempt in 0..40 {
                failures.add(Instant::ZERO, 0.0);
                if attempt % every == 0 {
                    failures.turn(Instant::ZERO);
                }
            }
            let share = failures.value(Instant::ZERO);
            assert!((low..=high).contains(&share), "one in {every}: {share}");
        }
    }
}
