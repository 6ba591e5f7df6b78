//! The event queue: what happens next, in virtual time.
//!
//! Events at the same instant happen in the order in which they were scheduled, so a run has one
//! order only. Most events of a simulation come in order by themselves (every message takes the
//! same network delay), so they are kept in lanes, plain queues; only the others need a heap.

use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use evenkeel_core::Instant;

/// Which stream of events an event belongs to. A lane costs least when its events are scheduled
/// in the order in which they happen; any order is correct.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Arrivals of requests.
    Arrivals = 0,
    /// Messages to servers.
    ToServers = 1,
    /// Messages to clients.
    ToClients = 2,
    /// Callers who give up, all after the same time.
    Timeouts = 3,
    /// Everything else.
    Mixed = 4,
}

const LANES: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    at: Instant,
    order: u64,
    event: E,
}

impl<E> Entry<E> {
    const fn key(&self) -> (Instant, u64) {
        (self.at, self.order)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// Events by time, then by the order of scheduling.
#[derive(Debug)]
pub struct EventQueue<E> {
    lanes: [VecDeque<Entry<E>>; LANES],
    heap: BinaryHeap<Reverse<Entry<E>>>,
    scheduled: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            lanes: core::array::from_fn(|_| VecDeque::new()),
            heap: BinaryHeap::new(),
            scheduled: 0,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Schedules an event.
    #[inline]
    pub fn push(&mut self, lane: Lane, at: Instant, event: E) {
        let entry = Entry { at, order: self.scheduled, event };
        self.scheduled += 1;
        if let Some(lane) = self.lanes.get_mut(lane as usize)
            && lane.back().is_none_or(|last| last.at <= at)
        {
            lane.push_back(entry);
            return;
        }
        self.heap.push(Reverse(entry));
    }

    /// Takes the next event.
    #[inline]
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        let mut next = self.heap.peek().map(|Reverse(entry)| entry.key());
        let mut lane = None;
        for (number, queue) in self.lanes.iter().enumerate() {
            if let Some(front) = queue.front()
                && next.is_none_or(|best| front.key() < best)
            {
                (next, lane) = (Some(front.key()), Some(number));
            }
        }
        let entry = match lane {
            Some(number) => self.lanes[number].pop_front()?,
            None => self.heap.pop()?.0,
        };
        Some((entry.at, entry.event))
    }

    /// Events waiting.
    pub fn len(&self) -> usize {
        self.heap.len() + self.lanes.iter().map(VecDeque::len).sum::<usize>()
    }

    /// True when nothing more will happen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    #[test]
    fn events_come_by_time_then_by_order_of_scheduling_whatever_their_lane() {
        let mut rng = Rng::seeded(3);
        let lanes = [Lane::Arrivals, Lane::ToServers, Lane::Timeouts, Lane::Mixed];
        let mut queue = EventQueue::default();
        let mut expected = Vec::new();
        for number in 0..2_000_u32 {
            let at = Instant::from_nanos(rng.below(50) as u64);
            queue.push(lanes[rng.below(4)], at, number);
            expected.push((at, number));
        }
        expected.sort_unstable();
        let popped: Vec<_> = core::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(popped, expected);
        assert!(queue.is_empty());
    }
}
