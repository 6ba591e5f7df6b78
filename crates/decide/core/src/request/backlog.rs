//! Held calls, first in first out per replica group.
//!
//! A call is held when every replica it may go to is at its sending rate. Only the head of a
//! group's queue asks again, so order is kept and nothing stampedes when a rate opens.

use std::collections::VecDeque;

use crate::fleet::GroupId;
use crate::request::call::CallId;
use crate::time::{Deadline, Instant, Why};

/// The held calls of one dispatcher.
#[derive(Debug)]
pub struct Backlog {
    queues: Vec<Queue>,
    /// Groups with a held call, in the order in which they came to hold.
    holding: Vec<GroupId>,
    ready: VecDeque<CallId>,
    calls_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    calls: VecDeque<CallId>,
    /// When the head may ask again.
    opens_at: Instant,
    /// The head was told to ask again and has not done so yet.
    woken: bool,
}

impl Backlog {
    /// An empty backlog that holds at most `calls_max` calls of each group.
    pub fn new(calls_max: usize) -> Self {
        Self { queues: Vec::new(), holding: Vec::new(), ready: VecDeque::new(), calls_max }
    }

    /// Changes how many calls of each group may be held. Those that are held stay.
    pub const fn set_calls_max(&mut self, calls_max: usize) {
        self.calls_max = calls_max;
    }

    /// True when no earlier call of the group waits before this one.
    #[inline]
    pub fn is_turn(&self, group: GroupId, call: CallId) -> bool {
        let queue = self.queues.get(group.index());
        queue.is_none_or(|queue| queue.calls.front().is_none_or(|&head| head == call))
    }

    /// Holds a call at the end of its group's queue, or in its place when it is there already.
    /// A head may ask again at `until`. False when the queue is full.
    #[must_use]
    pub fn hold(&mut self, group: GroupId, call: CallId, until: Instant) -> bool {
        if self.queues.len() <= group.index() {
            self.queues.resize_with(group.index() + 1, Queue::default);
        }
        let queue = &mut self.queues[group.index()];
        if queue.calls.front() == Some(&call) {
            queue.opens_at = until;
            queue.woken = false;
            return true;
        }
        if queue.calls.len() >= self.calls_max {
            return false;
        }
        if queue.calls.is_empty() {
            queue.opens_at = until;
            queue.woken = false;
            self.holding.push(group);
        }
        queue.calls.push_back(call);
        true
    }

    /// Takes a call out: it was sent, or its caller left. The next one becomes ready.
    pub fn leave(&mut self, group: GroupId, call: CallId) {
        let Some(queue) = self.queues.get_mut(group.index()) else { return };
        let Some(place) = queue.calls.iter().position(|&held| held == call) else { return };
        queue.calls.remove(place);
        if place > 0 {
            return;
        }
        self.ready.retain(|&ready| ready != call);
        match queue.calls.front() {
            Some(&head) => {
                queue.woken = true;
                self.ready.push_back(head);
            }
            None => self.holding.retain(|&holding| holding != group),
        }
    }

    /// Makes the heads ready whose rate has opened by `now`.
    pub fn wake(&mut self, now: Instant) {
        for group in &self.holding {
            let queue = &mut self.queues[group.index()];
            if queue.opens_at <= now && !queue.woken {
                queue.woken = true;
                self.ready.extend(queue.calls.front());
            }
        }
    }

    /// Makes every head ready: something changed that no deadline knew of.
    pub fn wake_all(&mut self) {
        self.wake(Instant::FAR);
    }

    /// Makes a call ready that waited for something else than its turn.
    pub fn resume(&mut self, call: CallId) {
        self.ready.push_back(call);
    }

    /// A call that should be stepped again.
    pub fn resumed(&mut self) -> Option<CallId> {
        self.ready.pop_front()
    }

    /// When the next head may ask again.
    pub fn deadline(&self) -> Option<Deadline> {
        let queues = self.holding.iter().map(|group| &self.queues[group.index()]);
        let at = queues.filter(|queue| !queue.woken).map(|queue| queue.opens_at).min()?;
        Some(Deadline { at, why: Why::RateOpens })
    }

    /// Calls held at the moment.
    pub fn len(&self) -> usize {
        self.holding.iter().map(|group| self.queues[group.index()].calls.len()).sum()
    }

    /// True when no call is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.holding.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId::new(3);
    const AT: Instant = Instant::from_millis(5);

    fn holding(calls: &[u64]) -> Backlog {
        let mut backlog = Backlog::new(4);
        for &call in calls {
            assert!(backlog.hold(GROUP, CallId(call), AT));
        }
        backlog
    }

    #[test]
    fn calls_resume_in_order_and_only_the_head_asks() {
        let mut backlog = holding(&[1, 2, 3]);
        assert!(backlog.is_turn(GROUP, CallId(1)) && !backlog.is_turn(GROUP, CallId(2)));
        assert_eq!(backlog.deadline().map(|d| d.at), Some(AT));
        backlog.wake(Instant::from_millis(4));
        assert_eq!(backlog.resumed(), None);
        backlog.wake(AT);
        assert_eq!((backlog.resumed(), backlog.resumed()), (Some(CallId(1)), None));
        assert_eq!(backlog.deadline(), None, "the head is awake");
        backlog.leave(GROUP, CallId(1));
        assert_eq!(backlog.resumed(), Some(CallId(2)));
    }

    #[test]
    fn a_call_whose_caller_left_does_not_block_the_others() {
        let mut backlog = holding(&[1, 2, 3]);
        backlog.leave(GROUP, CallId(2));
        backlog.wake(AT);
        backlog.leave(GROUP, CallId(1));
        assert_eq!((backlog.resumed(), backlog.resumed()), (Some(CallId(3)), None));
        backlog.leave(GROUP, CallId(3));
        assert!(backlog.is_empty() && backlog.deadline().is_none());
    }

    #[test]
    fn a_full_queue_says_so() {
        let mut backlog = holding(&[1, 2, 3, 4]);
        assert!(!backlog.hold(GROUP, CallId(5), AT));
        assert!(backlog.hold(GROUP, CallId(1), AT), "the head keeps its place");
        assert_eq!(backlog.len(), 4);
    }
}
