//! Writes down why, where a driver asks for it.

use super::Dispatcher;
use crate::fleet::{Health, ReplicaId};
use crate::request::call::{Call, Kind};
use crate::request::decision::{
    Candidate, Decision, Decisions, HedgeFate, HedgeNote, Standing, Verdict,
};
use crate::request::safeguards::Distrust;
use crate::time::{Duration, Instant};

impl Dispatcher {
    /// Keeps from now on what each step decides and why: see [`Dispatcher::decisions`].
    pub fn keep_decisions(&mut self) {
        self.decisions.get_or_insert_default();
    }

    /// What the last [`Dispatcher::step`] decided and why; `None` when nobody asked for it.
    #[inline]
    pub fn decisions(&self) -> Option<&Decisions> {
        self.decisions.as_deref()
    }

    #[inline]
    pub(super) fn forget_decisions(&mut self) {
        if let Some(decisions) = &mut self.decisions {
            decisions.has_chosen = false;
            decisions.hedge = None;
            decisions.is_retry_denied = false;
        }
    }

    /// Notes who is chosen for the next copy of a call (before it counts as in flight), or that
    /// nobody is.
    #[inline]
    pub(super) fn note_choice(
        &mut self,
        now: Instant,
        call: &Call,
        chosen: Option<ReplicaId>,
        verdict: Verdict,
    ) {
        let Some(mut decisions) = self.decisions.take() else { return };
        self.fill_in(now, call, chosen, &mut decisions.choice);
        decisions.choice.verdict = verdict;
        decisions.has_chosen = true;
        self.decisions = Some(decisions);
    }

    fn fill_in(&self, now: Instant, call: &Call, chosen: Option<ReplicaId>, into: &mut Decision) {
        let members = self.fleet.group(call.request.group);
        let is_plain = call.copies.is_empty()
            && call.request.among.is_none()
            && self.config.safeguards.nothing_to_examine(now, &self.fleet);
        into.members = u16::try_from(members.len()).unwrap_or(u16::MAX);
        let chosen_slot = chosen.map_or(usize::MAX, ReplicaId::index);
        let mut told = 0;
        if let Some(id) = chosen {
            self.fill_in_facts(id, &mut into.candidates[0]);
            told = 1;
        }
        for &id in members {
            if id.index() == chosen_slot {
                continue;
            }
            let Some(place) = into.candidates.get_mut(told) else { break };
            self.fill_in_facts(id, place);
            told += 1;
        }
        into.candidates_told = told as u8;
        let candidates = &mut into.candidates[..told];
        if !is_plain {
            self.fill_in_standings(now, call, candidates);
        }
        // Then the policy has chosen among all of them just now.
        match is_plain && chosen.is_some() && call.at_once == 0 {
            true => self.selector.rate_chosen_among(now, &self.fleet, candidates),
            false => self.selector.rate(now, &self.fleet, candidates),
        }
    }

    /// What is known of a replica that nothing speaks against, in place: a candidate that is made
    /// elsewhere would be copied here for each request.
    #[inline]
    fn fill_in_facts(&self, id: ReplicaId, into: &mut Candidate) {
        let facts = self.fleet.replica(id);
        *into = Candidate {
            slot: id.index() as u16,
            generation: facts.generation as u16,
            in_flight: facts.in_flight.min(u32::from(u16::MAX)) as u16,
            dimmer: facts.dimmer.map_or(u8::MAX, |(dimmer, _)| percent(dimmer.value())),
            ..Candidate::NOBODY
        };
    }

    #[inline(never)]
    fn fill_in_standings(&self, now: Instant, call: &Call, candidates: &mut [Candidate]) {
        for one in candidates {
            (one.standing, one.lasts_ms) = self.standing(now, call, one.replica());
        }
    }

    fn standing(&self, now: Instant, call: &Call, id: ReplicaId) -> (Standing, u32) {
        let (facts, safeguards) = (self.fleet.replica(id), &self.config.safeguards);
        let is_allowed = call.request.among.is_none_or(|among| among.contains(id.index()));
        let is_young = |joined| now.since(joined) < safeguards.slow_start;
        let standing = match (facts.health, safeguards.distrust(now, facts)) {
            _ if call.copies.iter().any(|copy| copy.replica == id) => Standing::Tried,
            _ if !is_allowed => Standing::NotAllowed,
            (Health::Draining, _) => Standing::Draining,
            (Health::Down, _) => Standing::Down,
            (Health::Up, Some(Distrust::Ejected)) => {
                return (Standing::Ejected, whole_ms(facts.ejected_until.since(now)));
            }
            (Health::Up, Some(Distrust::Silent)) => {
                return (Standing::Silent, whole_ms(now.since(facts.silence.since())));
            }
            (Health::Up, Some(Distrust::Failing)) => Standing::Failing,
            (Health::Up, None) if facts.needs_trial(now, safeguards.ejection_failures) => {
                Standing::OnTrial
            }
            (Health::Up, None) if facts.joined.is_some_and(is_young) => Standing::SlowStart,
            (Health::Up, None) => Standing::Ok,
        };
        (standing, 0)
    }

    /// Notes whether a hedge is foreseen for the copy that leaves.
    #[inline]
    pub(super) fn note_hedge(&mut self, now: Instant, call: &Call, kind: Kind, on_trial: bool) {
        if self.decisions.is_none() {
            return;
        }
        let delay_ns = call.hedge_due.map(|due| due.nanos_since(now));
        let fate = match kind {
            Kind::Hedge => HedgeFate::Sent,
            _ if !call.request.replay.is_allowed_in_haste() => HedgeFate::NotReplayable,
            _ if on_trial => HedgeFate::OnTrial,
            _ if !call.request.may_hedge => HedgeFate::Gated,
            _ if delay_ns.is_some() => HedgeFate::Due,
            _ => HedgeFate::None,
        };
        self.note_hedge_fate(fate, delay_ns);
    }

    #[inline]
    pub(super) fn note_hedge_fate(&mut self, fate: HedgeFate, delay_ns: Option<u64>) {
        if let Some(decisions) = &mut self.decisions {
            let quantile = delay_ns.and_then(|_| self.redundancy.quantile());
            decisions.hedge = Some(HedgeNote { fate, delay_ns, quantile });
        }
    }

    /// Why the redundancy forbids a copy that is due.
    pub(super) fn hedge_denial(&self) -> HedgeFate {
        match self.redundancy.stats() {
            Some(stats) if stats.is_gated => HedgeFate::Gated,
            Some(stats) if stats.is_futile => HedgeFate::Futile,
            _ => HedgeFate::NoBudget,
        }
    }

    pub(super) fn note_retry_denied(&mut self) {
        if let Some(decisions) = &mut self.decisions {
            decisions.is_retry_denied = true;
        }
    }
}

fn whole_ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

fn percent(share: f64) -> u8 {
    (share * 100.0).round() as u8
}
