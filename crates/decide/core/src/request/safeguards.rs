//! What every policy needs and none should have to think of: traffic is kept from replicas that
//! fail, that are dead, or that have just come.
//!
//! **Signal**: outcomes of attempts, silence where replies are owed, and the health that active
//! checks report. **Why not latency**:
//! a replica that fails at once looks fast and idle and would attract everything (a sinkhole), so
//! failures are counted, and never enter a latency estimate. **When it misleads**: if all replicas
//! fail together the cause is elsewhere; then every suspicion is dropped and the policy chooses
//! among all. **Cold start**: the replicas of the first plan are trusted at once; later ones get a
//! share of requests that grows over the slow start. **Recovery**: suspicion fades within seconds,
//! ejection ends by itself, with one request on trial; silence with whatever the replica says.

use crate::fleet::{Fleet, Health, Replica, ReplicaId};
use crate::request::call::{CopyRecord, Request};
use crate::rng::Rng;
use crate::time::{Duration, Instant, nanos};

/// The limits. [`Safeguards::none`] switches all of it off, for reproducing a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Safeguards {
    /// A replica that joins or comes back gets its full share only after this time; zero = at once.
    pub slow_start: Duration,
    /// Share of recent answers that may be failures before a replica is suspect: 0.2 (adaptive
    /// selection study, section 3). Above 1 = never.
    pub failure_share_max: f64,
    /// Failures in a row after which a replica is ejected: 5, as in Envoy. Zero = never.
    pub ejection_failures: u32,
    /// The first ejection lasts this long, each further one twice as long: 1 s.
    pub ejection_base: Duration,
    /// The longest ejection: 8 s. It bounds how long a replica that is well again waits for its
    /// next trial; one failed request every 8 s is a price nobody notices.
    pub ejection_max: Duration,
    /// The shortest time after which a replica that owes replies and says nothing is silent; longer
    /// for one whose replies take long. It gets no requests until it says something. 100 ms; zero =
    /// never.
    pub silence_min: Duration,
    /// How long a policy may hold a request back, from when it came: 100 ms. Then it is sent to
    /// the candidate of the lowest cost, whatever the rates: after an outage nobody knows them, and
    /// they are learnt again only from what is sent.
    pub hold_max: Duration,
}

impl Default for Safeguards {
    fn default() -> Self {
        Self {
            slow_start: Duration::from_secs(10),
            failure_share_max: 0.2,
            ejection_failures: 5,
            ejection_base: Duration::from_secs(1),
            ejection_max: Duration::from_secs(8),
            silence_min: Duration::from_millis(100),
            hold_max: Duration::from_millis(100),
        }
    }
}

/// Why a replica gets no requests while others may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Distrust {
    /// It failed several times in a row.
    Ejected,
    /// It owes replies and sends none.
    Silent,
    /// Too many of its recent replies were failures.
    Failing,
}

impl Safeguards {
    /// No protection at all, as in the papers.
    pub fn none() -> Self {
        Self {
            slow_start: Duration::ZERO,
            failure_share_max: 2.0,
            ejection_failures: 0,
            silence_min: Duration::ZERO,
            hold_max: Duration::MAX,
            ..Self::default()
        }
    }

    /// True when the group can be used as it stands; the usual case, decided in two comparisons.
    #[inline]
    pub(crate) fn nothing_to_examine(&self, now: Instant, fleet: &Fleet) -> bool {
        fleet.unhealthy == 0 && fleet.silent == 0 && now >= fleet.examine_until
    }

    /// Notes who has become silent.
    #[inline]
    pub(crate) fn listen(&self, now: Instant, fleet: &mut Fleet) {
        if now >= fleet.listen_at && self.silence_min > Duration::ZERO {
            fleet.listen(now, self.silence_min);
        }
    }

    /// Whether a replica may be given requests as far as its silence goes, and until when that
    /// stands if it says nothing. One that is silent and owes nothing is good for one on trial.
    pub(crate) fn hears(&self, now: Instant, replica: &Replica) -> (bool, Instant) {
        let silence = &replica.silence;
        match silence.due(self.silence_min) {
            _ if self.silence_min.is_zero() => (true, Instant::FAR),
            _ if silence.is_silent() => (silence.may_be_tried(now), now),
            Some(due) => (now < due, due),
            // Who begins to owe a reply after this look is not silent before that.
            None => (true, now + self.silence_min),
        }
    }

    /// How long a request waits for a replica that may not answer, before another one is asked
    /// beside it; `None` for a replica that nothing speaks against.
    pub(crate) fn patience(&self, now: Instant, replica: &Replica) -> Option<Duration> {
        let is_doubtful = replica.is_silent() || replica.needs_trial(now, self.ejection_failures);
        is_doubtful.then(|| replica.silence.limit(self.silence_min).unwrap_or(self.ejection_base))
    }

    /// Ejects a replica that keeps failing. True when it was ejected by this failure.
    pub(crate) fn eject_if_failing(&self, now: Instant, fleet: &mut Fleet, id: ReplicaId) -> bool {
        let replica = fleet.replica_mut(id);
        let limit = self.ejection_failures;
        if limit == 0 || replica.consecutive_failures() < limit || replica.ejected_until > now {
            return false;
        }
        let doubled = self.ejection_base.saturating_mul(1 << replica.ejections.min(20));
        replica.ejected_until = now + doubled.min(self.ejection_max);
        replica.ejections = replica.ejections.saturating_add(1);
        let until = replica.ejected_until;
        fleet.examine(until + Replica::TRIAL_WITHIN);
        true
    }

    /// Writes who may be used for a request into `out`, leaving out those in `tried`.
    ///
    /// Distrust is given up in steps when it would leave nobody: first the suspicions (failing,
    /// ejected, slow start), then, where there is no fallback, the health checks. Draining and
    /// tried replicas stay out, and so does whoever may not answer it ([`Request::among`]).
    pub(crate) fn narrow(
        &self,
        now: Instant,
        (fleet, request): (&Fleet, &Request),
        tried: &[CopyRecord],
        rng: &mut Rng,
        out: &mut Vec<ReplicaId>,
    ) {
        self.trusted(now, (fleet, request), tried, rng, out);
        let members = || untried((fleet, request), tried);
        if out.is_empty() {
            out.extend(members().filter(|&id| fleet.replica(id).health == Health::Up));
        }
        if out.is_empty() && request.fallback.is_none_or(|fallback| fallback == request.group) {
            out.extend(members().filter(|&id| fleet.replica(id).health != Health::Draining));
        }
    }

    /// Writes the untried replicas of a request that nothing speaks against into `out`.
    pub(crate) fn trusted(
        &self,
        now: Instant,
        (fleet, request): (&Fleet, &Request),
        tried: &[CopyRecord],
        rng: &mut Rng,
        out: &mut Vec<ReplicaId>,
    ) {
        out.clear();
        out.extend(untried((fleet, request), tried).filter(|&id| self.trusts(now, fleet, id)));
        if out.len() > 1 && self.slow_start > Duration::ZERO {
            self.hold_back_young(now, fleet, rng, out);
        }
    }

    fn trusts(&self, now: Instant, fleet: &Fleet, id: ReplicaId) -> bool {
        let replica = fleet.replica(id);
        let is_well = match self.distrust(now, replica) {
            None => true,
            Some(Distrust::Silent) => replica.silence.may_be_tried(now),
            Some(Distrust::Ejected | Distrust::Failing) => false,
        };
        is_well && replica.health == Health::Up && !self.is_on_trial(now, replica)
    }

    /// What speaks against a replica, the health checks aside.
    pub(crate) fn distrust(&self, now: Instant, replica: &Replica) -> Option<Distrust> {
        if replica.ejected_until > now {
            Some(Distrust::Ejected)
        } else if replica.failure_share(now) > self.failure_share_max {
            Some(Distrust::Failing)
        } else {
            let is_silent = replica.is_silent() && self.silence_min > Duration::ZERO;
            is_silent.then_some(Distrust::Silent)
        }
    }

    /// True while a replica that was ejected and has not succeeded since has a request in flight:
    /// one request tells whether it is well again, a burst would all fail with it.
    fn is_on_trial(&self, now: Instant, replica: &Replica) -> bool {
        replica.in_flight > 0 && replica.needs_trial(now, self.ejection_failures)
    }

    /// Leaves young replicas out with a probability that falls linearly over the slow start. A
    /// floor keeps a little traffic on them from the first moment, so that something is learnt.
    fn hold_back_young(
        &self,
        now: Instant,
        fleet: &Fleet,
        rng: &mut Rng,
        out: &mut Vec<ReplicaId>,
    ) {
        const SHARE_MIN: f64 = 0.05;
        let share = |id: ReplicaId| {
            let Some(joined) = fleet.replica(id).joined else { return 1.0 };
            let age = nanos(now.since(joined)) as f64 / nanos(self.slow_start) as f64;
            age.clamp(SHARE_MIN, 1.0)
        };
        if !out.iter().any(|&id| share(id) >= 1.0) {
            return; // all are young together: there is nobody to spare them
        }
        out.retain(|&id| {
            let share = share(id);
            share >= 1.0 || rng.unit() < share
        });
    }
}

/// Those that may answer a request and were not asked yet.
#[inline]
pub(crate) fn untried<'a>(
    (fleet, request): (&'a Fleet, &'a Request),
    tried: &'a [CopyRecord],
) -> impl Iterator<Item = ReplicaId> + 'a {
    let may_answer = |id: &ReplicaId| request.among.is_none_or(|among| among.contains(id.index()));
    let untried = |id: &ReplicaId| !tried.iter().any(|copy| copy.replica == *id);
    fleet.group(request.group).iter().copied().filter(move |id| may_answer(id) && untried(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::GroupId;
    use crate::request::call::Replay;

    const REQUEST: Request = Request::new(GroupId::new(0), Replay::Always);
    const FAILING: ReplicaId = ReplicaId::new(0);

    fn failing(at: Instant) -> Fleet {
        let mut fleet = Fleet::single_group(2);
        for _ in 0..5 {
            fleet.failed(at, FAILING);
        }
        assert!(Safeguards::default().eject_if_failing(at, &mut fleet, FAILING));
        fleet
    }

    fn trusted(now: Instant, fleet: &Fleet) -> Vec<usize> {
        let mut out = Vec::new();
        let rng = &mut Rng::seeded(1);
        Safeguards::default().trusted(now, (fleet, &REQUEST), &[], rng, &mut out);
        out.iter().map(|id| id.index()).collect()
    }

    #[test]
    fn after_its_ejection_a_replica_is_given_one_request_on_trial() {
        // Five failures leave a share of 0.83, which fades below 0.2 within 2.9 s.
        let (ejected, later) = (Instant::from_millis(900), Instant::from_millis(3_000));
        let mut fleet = failing(Instant::ZERO);
        assert_eq!(trusted(ejected, &fleet), [1]);
        assert_eq!(trusted(later, &fleet), [0, 1]);
        fleet.replica_mut(FAILING).in_flight = 1;
        assert_eq!(trusted(later, &fleet), [1], "its trial is under way");
        fleet.succeeded(later, FAILING);
        assert_eq!(trusted(later, &fleet), [0, 1], "one success clears its name");
    }

    #[test]
    fn one_failure_is_distrusted_until_it_fades_or_successes_outweigh_it() {
        // A share of 0.3, which falls to 0.2 in 2 s · ln 1.5 = 0.81 s, or after two successes.
        let mut fleet = Fleet::single_group(2);
        fleet.failed(Instant::ZERO, FAILING);
        assert_eq!(trusted(Instant::from_millis(800), &fleet), [1]);
        assert_eq!(trusted(Instant::from_millis(820), &fleet), [0, 1]);
        fleet.succeeded(Instant::ZERO, FAILING);
        assert_eq!(trusted(Instant::ZERO, &fleet), [1]);
        fleet.succeeded(Instant::ZERO, FAILING);
        assert_eq!(trusted(Instant::ZERO, &fleet), [0, 1]);
    }

    #[test]
    fn a_newcomer_is_a_candidate_from_the_first_moment_and_always_after_the_slow_start() {
        let mut fleet = Fleet::single_group(1);
        let new = fleet.add(Some(Instant::ZERO));
        fleet.regroup(vec![vec![FAILING, new]]);
        let mut rng = Rng::seeded(2);
        let mut share = |age_ms| {
            let (mut out, mut times) = (Vec::new(), 0.0);
            for _ in 0..10_000 {
                let now = Instant::from_millis(age_ms);
                Safeguards::default().trusted(now, (&fleet, &REQUEST), &[], &mut rng, &mut out);
                times += f64::from(u8::from(out.contains(&new)));
            }
            times / 10_000.0
        };
        // Binomial: standard deviation 0.0022 and 0.005; five of them.
        assert!((share(0) - 0.05).abs() < 0.011);
        assert!((share(5_000) - 0.5).abs() < 0.025);
        assert_eq!(share(10_000), 1.0);
    }

    #[test]
    fn ejections_grow_to_the_longest_and_a_return_to_health_forgives_them() {
        let safeguards = Safeguards::default();
        let mut now = Instant::ZERO;
        let mut fleet = Fleet::single_group(2);
        let mut lengths = Vec::new();
        while lengths.len() < 6 {
            fleet.failed(now, FAILING);
            if safeguards.eject_if_failing(now, &mut fleet, FAILING) {
                let until = fleet.replica(FAILING).ejected_until;
                lengths.push(until.since(now).as_secs());
                now = until;
            }
        }
        assert_eq!(lengths, [1, 2, 4, 8, 8, 8]);
        fleet.set_health(now, FAILING, Health::Down);
        fleet.set_health(now, FAILING, Health::Up);
        (0..5).for_each(|_| fleet.failed(now, FAILING));
        assert!(safeguards.eject_if_failing(now, &mut fleet, FAILING));
        assert_eq!(fleet.replica(FAILING).ejected_until, now + Duration::from_secs(1));
    }
}
