//! Questions to replicas for their state, which some policies ask: between requests, or before one
//! that then waits for the answers.
//!
//! A call waits at most as long as its policy says. All that it waits for may be answers to
//! questions of calls before it: a replica owes one answer at a time.

use std::collections::VecDeque;

use super::Dispatcher;
use crate::fleet::{Feedback, Probing, ReplicaId};
use crate::request::call::{Call, CallId, Listening};
use crate::request::select::{Asked, Candidates};
use crate::time::Instant;

/// A question to a replica about its state, sent beside the requests.
///
/// A token like [`Attempt`](crate::request::Attempt): its answer is learnt from at most once.
#[derive(Debug, PartialEq, Eq)]
pub struct Probe {
    replica: ReplicaId,
    generation: u32,
    sent_at: Instant,
}

impl Probe {
    /// The replica to ask.
    pub const fn replica(&self) -> ReplicaId {
        self.replica
    }
}

/// A call that waits for answers before its first copy.
#[derive(Debug)]
pub(super) struct Listener {
    call: CallId,
    /// Whose answers are still to come.
    open: Asked,
}

/// The questions of calls, and who waits for their answers.
#[derive(Debug, Default)]
pub(super) struct Questions {
    /// Whom the driver is to ask.
    to_ask: VecDeque<ReplicaId>,
    listeners: Vec<Listener>,
}

impl Questions {
    /// Has a replica asked.
    pub(super) fn put(&mut self, replica: ReplicaId) {
        self.to_ask.push_back(replica);
    }
}

impl Dispatcher {
    /// A question the policy wants asked of a replica that owes no answer to another. Drain it
    /// after every `step`; each ends in [`Dispatcher::learn_probe`] or
    /// [`Dispatcher::probe_is_unknown`].
    #[inline]
    pub fn probe(&mut self, now: Instant) -> Option<Probe> {
        loop {
            let first = self.questions.to_ask.pop_front();
            let replica = first.or_else(|| self.selector.next_probe())?;
            let asked = self.fleet.replica_mut(replica);
            if asked.probing == Probing::Idle {
                asked.probing = Probing::Asked(now);
                return Some(Probe { replica, generation: asked.generation, sent_at: now });
            }
        }
    }

    /// The replica answered a probe as one that knows none: it is not asked again.
    pub fn probe_is_unknown(&mut self, now: Instant, probe: &Probe) {
        self.learn_probe(now, probe, None);
        if self.fleet.is_current(probe.replica, probe.generation) {
            let replica = self.fleet.replica_mut(probe.replica);
            (replica.probing, replica.is_mute) = (Probing::Unknown, false);
        }
    }

    /// Learns the answer to a probe; `None` when there was none. The policy is told of none, too,
    /// when it comes far too late. Then drain
    /// [`Dispatcher::resumed`]: calls may have waited for it.
    pub fn learn_probe(&mut self, now: Instant, probe: &Probe, answer: Option<&Feedback>) {
        self.tell_listeners(probe.replica);
        if !self.fleet.is_current(probe.replica, probe.generation) {
            return;
        }
        // The answers of a replica that stood still come to all who asked at once, and it has
        // little to do as it got nothing meanwhile: all would send their next requests there.
        let is_late = self.fleet.is_late_with_answer(now, probe.replica);
        let replica = self.fleet.replica_mut(probe.replica);
        // Who never answered a question may not know any: that speaks not against it.
        replica.is_mute = answer.is_none() && replica.has_answered_questions();
        replica.probing = Probing::Idle;
        if answer.is_some() {
            self.fleet.note_round_trip(probe.replica, now.nanos_since(probe.sent_at));
            self.fleet.note_answer(now, probe.replica, answer);
        }
        self.selector.on_probe(now, probe.replica, answer.filter(|_| !is_late));
    }

    /// Until when a call waits for what the policy wants to hear before its first copy; `None` when
    /// it may be sent.
    #[inline]
    pub(super) fn listens(&mut self, now: Instant, call: &mut Call) -> Option<Instant> {
        match call.listening {
            Listening::Over => return None,
            Listening::NotYet if !self.asks || !call.copies.is_empty() => return None,
            Listening::NotYet => {}
            Listening::Until(until) => {
                let is_open = |one: &Listener| one.call == call.id;
                if now < until && self.questions.listeners.iter().any(is_open) {
                    return Some(until);
                }
                self.stop_listening(call);
                return None;
            }
        }
        call.listening = Listening::Over;
        let open = self.ask(now, call)?;
        let (until, open) = (open.0, open.1);
        self.questions.listeners.push(Listener { call: call.id, open });
        call.listening = Listening::Until(until);
        Some(until)
    }

    /// Has those asked that the policy wants to hear for a call.
    fn ask(&mut self, now: Instant, call: &Call) -> Option<(Instant, Asked)> {
        let narrowed = self.narrow(now, call);
        let group = call.request.group;
        let ids = narrowed.ids(&self.fleet, group, &self.room);
        if ids.len() < 2 {
            return None;
        }
        let candidates = Candidates { fleet: &self.fleet, group, ids };
        let mut whom = Asked::new();
        let until = self.selector.ask(now, candidates, &mut self.rng, &mut whom)?;
        let fleet = &self.fleet;
        whom.retain(|id| fleet.replica(*id).probing != Probing::Unknown);
        let idle = whom.iter().filter(|id| fleet.replica(**id).probing == Probing::Idle);
        self.questions.to_ask.extend(idle);
        (!whom.is_empty() && until > now).then_some((until, whom))
    }

    /// Ends a call's wait: it is sent or closed.
    pub(super) fn stop_listening(&mut self, call: &mut Call) {
        call.listening = Listening::Over;
        self.questions.listeners.retain(|one| one.call != call.id);
    }

    /// A replica answered, or will not: calls that wait for nobody else go on.
    fn tell_listeners(&mut self, replica: ReplicaId) {
        let backlog = &mut self.backlog;
        self.questions.listeners.retain_mut(|one| {
            one.open.retain(|id| *id != replica);
            let waits = !one.open.is_empty();
            if !waits {
                backlog.resume(one.call);
            }
            waits
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Fleet, GroupId};
    use crate::request::call::{Attempt, Kind};
    use crate::request::select::prequal::{Prequal, PrequalConfig};
    use crate::request::{CallId, DispatcherConfig, Replay, Request, Step};
    use crate::time::Why;

    const NOW: Instant = Instant::ZERO;

    fn dispatcher() -> Dispatcher {
        let policy = Box::new(Prequal::new(PrequalConfig::default()));
        Dispatcher::new(Fleet::single_group(3), policy, DispatcherConfig::default())
    }

    /// The replicas that a policy with three questions beside each request asks for its sake.
    fn asked(dispatcher: &mut Dispatcher) -> Vec<Probe> {
        let request = Request::new(GroupId::new(0), Replay::IfUnsent);
        let mut call = dispatcher.open(NOW, CallId(0), request);
        dispatcher.step(NOW, &mut call);
        let asked = std::iter::from_fn(|| dispatcher.probe(NOW)).collect();
        dispatcher.close(NOW, call);
        asked
    }

    #[test]
    fn a_replica_owes_one_answer_at_a_time() {
        let mut dispatcher = dispatcher();
        let first = asked(&mut dispatcher);
        assert_eq!(first.len(), 3);
        assert_eq!(asked(&mut dispatcher), [], "all three are being asked");
        let report = Feedback::measured(0, 0, crate::time::Duration::from_millis(1));
        dispatcher.learn_probe(NOW, &first[0], Some(&report));
        dispatcher.learn_probe(NOW, &first[1], None);
        let mut again: Vec<_> = asked(&mut dispatcher).iter().map(Probe::replica).collect();
        let mut free = vec![first[0].replica(), first[1].replica()];
        again.sort();
        free.sort();
        assert_eq!(again, free, "an answer and none both end a question");
    }

    #[test]
    fn who_knows_no_questions_is_asked_once() {
        let mut dispatcher = dispatcher();
        let first = asked(&mut dispatcher);
        first.iter().for_each(|probe| dispatcher.probe_is_unknown(NOW, probe));
        assert_eq!(asked(&mut dispatcher), []);
    }

    /// A dispatcher whose policy waits for three answers, and a call that does.
    fn listening() -> (Dispatcher, Call, Vec<Probe>) {
        let config = PrequalConfig { sync: true, ..PrequalConfig::default() };
        let can_ask = DispatcherConfig { can_ask: true, ..DispatcherConfig::default() };
        let policy = Box::new(Prequal::new(config));
        let mut dispatcher = Dispatcher::new(Fleet::single_group(3), policy, can_ask);
        let request = Request::new(GroupId::new(0), Replay::IfUnsent);
        let mut call = dispatcher.open(NOW, CallId(0), request);
        let step = dispatcher.step(NOW, &mut call);
        assert!(matches!(step, Step::Wait { until: Some(due) } if due.why == Why::Probes));
        let asked: Vec<_> = std::iter::from_fn(|| dispatcher.probe(NOW)).collect();
        assert_eq!(asked.len(), 3);
        (dispatcher, call, asked)
    }

    fn is_sent(step: &Step) -> bool {
        matches!(step, Step::Send(_))
    }

    #[test]
    fn a_call_goes_on_when_all_have_answered_or_will_not() {
        let (mut dispatcher, mut call, asked) = listening();
        let report = Feedback::measured(0, 0, crate::time::Duration::from_millis(1));
        dispatcher.learn_probe(NOW, &asked[0], Some(&report));
        dispatcher.learn_probe(NOW, &asked[1], None);
        assert_eq!(dispatcher.resumed(), None);
        assert!(!is_sent(&dispatcher.step(NOW, &mut call)), "one answer is still to come");
        dispatcher.probe_is_unknown(NOW, &asked[2]);
        assert_eq!(dispatcher.resumed(), Some(CallId(0)));
        assert!(is_sent(&dispatcher.step(NOW, &mut call)));
        dispatcher.close(NOW, call);
    }

    #[test]
    fn a_call_does_not_wait_longer_than_its_policy_says() {
        let (mut dispatcher, mut call, asked) = listening();
        let Listening::Until(until) = call.listening else { panic!("{call:?}") };
        assert!(is_sent(&dispatcher.step(until, &mut call)));
        let report = Feedback::measured(0, 0, crate::time::Duration::from_millis(1));
        asked.iter().for_each(|probe| dispatcher.learn_probe(until, probe, Some(&report)));
        assert_eq!(dispatcher.resumed(), None, "nobody waits any more");
        dispatcher.close(until, call);
    }

    #[test]
    fn who_did_not_answer_is_late_until_it_says_something() {
        let (mut dispatcher, call, asked) = listening();
        dispatcher.close(NOW, call);
        let id = asked[0].replica();
        dispatcher.fleet.note_round_trip(id, 1_000_000);
        dispatcher.learn_probe(NOW, &asked[0], None);
        assert!(dispatcher.fleet().is_late_with_answer(NOW, id));
        dispatcher.learn_probe(NOW, &asked[2], None);
        let never = asked[2].replica();
        assert!(!dispatcher.fleet().is_late_with_answer(NOW, never), "it may know no questions");
        dispatcher.probe_is_unknown(NOW, &asked[1]);
        assert!(!dispatcher.fleet().is_late_with_answer(NOW, asked[1].replica()));
        let mut attempt = dispatcher.mirror(NOW, CallId(1), id);
        let _ = dispatcher.learn(NOW, &mut attempt, &crate::request::Outcome::Replied(None));
        dispatcher.finish(NOW, attempt, crate::request::BodyEnd::Complete);
        assert!(!dispatcher.fleet().is_late_with_answer(NOW, id));
    }

    #[test]
    fn a_call_that_is_closed_is_not_resumed() {
        let (mut dispatcher, call, asked) = listening();
        dispatcher.close(NOW, call);
        asked.iter().for_each(|probe| dispatcher.learn_probe(NOW, probe, None));
        assert_eq!(dispatcher.resumed(), None);
    }

    /// A call that may be sent twice and has its first copy away, at 1 ms; it is old at 9 ms.
    fn sent() -> (Dispatcher, Call, Attempt) {
        let (mut dispatcher, mut call, asked) = listening();
        let report = Feedback::measured(0, 0, crate::time::Duration::from_millis(1));
        asked.iter().for_each(|probe| dispatcher.learn_probe(ms(1), probe, Some(&report)));
        call.request.replay = Replay::Always;
        dispatcher.old_age.add(8_000_000);
        let Step::Send(first) = dispatcher.step(ms(1), &mut call) else { panic!("{call:?}") };
        (dispatcher, call, first)
    }

    fn ms(at: u64) -> Instant {
        Instant::from_millis(at)
    }

    #[test]
    fn a_replica_that_does_not_answer_whether_it_lives_is_not_waited_for() {
        let (mut dispatcher, mut call, first) = sent();
        let Step::Wait { until: Some(due) } = dispatcher.step(ms(1), &mut call) else { panic!() };
        assert_eq!((due.at, due.why), (ms(9), Why::Probes), "when it is old");
        assert!(matches!(dispatcher.step(ms(9), &mut call), Step::Wait { .. }));
        let question = dispatcher.probe(ms(9)).unwrap();
        assert_eq!(question.replica(), first.replica());
        // The round trip of 1 ms, and four deviations of half of it.
        assert!(!is_sent(&dispatcher.step(ms(11), &mut call)), "it may still answer");
        let Step::Send(second) = dispatcher.step(ms(12), &mut call) else { panic!("{call:?}") };
        assert!(second.kind() == Kind::Retry && second.replica() != first.replica());
        dispatcher.close(ms(12), call);
        let _ = (first, second);
    }

    #[test]
    fn all_whom_a_call_waits_for_are_asked_and_one_that_answers_is_enough() {
        let (mut dispatcher, mut call, first) = sent();
        let other = ReplicaId::new((first.replica().index() + 1) % 3);
        let hedge = dispatcher.send(ms(2), &mut call, other, Kind::Hedge);
        assert!(!is_sent(&dispatcher.step(ms(10), &mut call)));
        let asked: Vec<_> = std::iter::from_fn(|| dispatcher.probe(ms(10))).collect();
        let ids: Vec<_> = asked.iter().map(Probe::replica).collect();
        assert_eq!(ids, [first.replica(), hedge.replica()]);
        let report = Feedback::measured(0, 0, crate::time::Duration::from_millis(1));
        dispatcher.learn_probe(ms(11), &asked[0], Some(&report));
        assert!(!is_sent(&dispatcher.step(ms(13), &mut call)), "the first one lives");
        dispatcher.close(ms(13), call);
        let _ = (first, hedge);
    }

    #[test]
    fn a_call_without_retries_left_asks_nobody_whether_he_lives() {
        let (mut dispatcher, mut call, first) = sent();
        call.retries = dispatcher.config.retries_max;
        let other = ReplicaId::new((first.replica().index() + 1) % 3);
        let hedge = dispatcher.send(ms(2), &mut call, other, Kind::Hedge);
        call.doubt(ms(10));
        assert!(!is_sent(&dispatcher.step(ms(10), &mut call)));
        assert_eq!(dispatcher.probe(ms(10)).map(|probe| probe.replica()), None);
        dispatcher.close(ms(10), call);
        let _ = (first, hedge);
    }
}
