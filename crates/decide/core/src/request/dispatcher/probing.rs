//! Questions to replicas for their state, which some policies ask between requests.

use super::Dispatcher;
use crate::fleet::{Feedback, Probing, ReplicaId};
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

impl Dispatcher {
    /// A question the policy wants asked of a replica that owes no answer to another. Drain it
    /// after every `step`; each ends in [`Dispatcher::learn_probe`] or
    /// [`Dispatcher::probe_is_unknown`].
    #[inline]
    pub fn probe(&mut self, now: Instant) -> Option<Probe> {
        loop {
            let replica = self.selector.next_probe()?;
            let asked = self.fleet.replica_mut(replica);
            if asked.probing == Probing::Idle {
                asked.probing = Probing::Asked;
                return Some(Probe { replica, generation: asked.generation, sent_at: now });
            }
        }
    }

    /// The replica answered a probe as one that knows none: it is not asked again.
    pub fn probe_is_unknown(&mut self, now: Instant, probe: &Probe) {
        self.learn_probe(now, probe, None);
        if self.fleet.is_current(probe.replica, probe.generation) {
            self.fleet.replica_mut(probe.replica).probing = Probing::Unknown;
        }
    }

    /// Learns the answer to a probe; `None` when there was none.
    pub fn learn_probe(&mut self, now: Instant, probe: &Probe, answer: Option<&Feedback>) {
        if !self.fleet.is_current(probe.replica, probe.generation) {
            return;
        }
        self.fleet.replica_mut(probe.replica).probing = Probing::Idle;
        if answer.is_some() {
            self.fleet.note_answer(now, probe.replica, answer);
        }
        self.selector.on_probe(now, probe.replica, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Fleet, GroupId};
    use crate::request::select::prequal::{Prequal, PrequalConfig};
    use crate::request::{CallId, DispatcherConfig, Replay, Request};

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
}
