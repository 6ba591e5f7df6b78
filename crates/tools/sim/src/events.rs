//! The event queue: what happens next, in virtual time.
//!
//! Events at the same instant happen in the order in which they were scheduled, so a run has one
//! order only. Most events of a simulation come nearly in order by themselves (messages take nearly
//! the same time), so they are kept in lanes, plain queues in which a new one passes the few that
//! are later. Most deadlines are in vain, as what they are for happens before: they are kept
//! roughly by time (a timing wheel; Varghese and Lauck, 1987), and those in vain are left out once
//! their time has nearly come. Only the others need a heap.

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
    /// Deadlines, after any time, and nearly all of them in vain.
    Deadlines,
    /// Everything else.
    Mixed,
}

const LANES: usize = 4;
/// Places of events that are in no lane.
const WHEEL: usize = LANES;
const HEAP: usize = LANES + 1;
/// An event passes so many later ones of its lane; one that would pass more goes to the heap.
const PASSED_MAX: usize = 8;
/// When nothing happens.
const NEVER: u128 = u128::MAX;

#[derive(Clone, Copy, Debug)]
struct Entry<E> {
    /// The time, then the order of scheduling: one number is compared without a branch.
    key: u128,
    event: E,
}

impl<E> Entry<E> {
    const fn at_ns(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
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
        self.key.cmp(&other.key)
    }
}

/// Events by time, then by the order of scheduling.
#[derive(Debug)]
pub struct EventQueue<E> {
    lanes: [VecDeque<Entry<E>>; LANES],
    wheel: Wheel<E>,
    heap: BinaryHeap<Reverse<Entry<E>>>,
    /// The first key of each lane, of the wheel and of the heap.
    firsts: [u128; HEAP + 1],
    /// When the last event was that was taken.
    now_ns: u64,
    scheduled: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            lanes: core::array::from_fn(|_| VecDeque::new()),
            wheel: Wheel::default(),
            heap: BinaryHeap::new(),
            firsts: [NEVER; HEAP + 1],
            now_ns: 0,
            scheduled: 0,
        }
    }
}

impl<E: Copy> EventQueue<E> {
    /// Schedules an event.
    #[inline]
    pub fn push(&mut self, lane: Lane, at: Instant, event: E) {
        let key = u128::from(at.as_nanos()) << 64 | u128::from(self.scheduled);
        self.scheduled += 1;
        let entry = Entry { key, event };
        let is_held = match self.lanes.get_mut(lane as usize) {
            Some(queue) => insert(queue, entry),
            None if lane == Lane::Deadlines => {
                let is_held = self.wheel.insert(self.now_ns, entry);
                self.firsts[WHEEL] = self.wheel.first;
                is_held
            }
            None => false,
        };
        if !is_held {
            self.heap.push(Reverse(entry));
            self.firsts[HEAP] = self.firsts[HEAP].min(key);
        } else if lane != Lane::Deadlines {
            self.firsts[lane as usize] = self.firsts[lane as usize].min(key);
        }
    }

    /// Takes the next event. A deadline may be left out for which `is_in_vain` is true at any time
    /// until then.
    #[inline]
    pub fn pop(&mut self, is_in_vain: impl Fn(&E) -> bool) -> Option<(Instant, E)> {
        loop {
            let (mut place, mut first) = (HEAP, self.firsts[HEAP]);
            for (other, key) in self.firsts[..HEAP].iter().enumerate() {
                if *key < first {
                    (place, first) = (other, *key);
                }
            }
            if place == WHEEL {
                self.turn(&is_in_vain);
                continue;
            }
            let (entry, next) = match self.lanes.get_mut(place) {
                Some(queue) => (queue.pop_front()?, queue.front().map(|entry| entry.key)),
                None => (self.heap.pop()?.0, self.heap.peek().map(|Reverse(entry)| entry.key)),
            };
            self.firsts[place] = next.unwrap_or(NEVER);
            self.now_ns = entry.at_ns();
            return Some((Instant::from_nanos(self.now_ns), entry.event));
        }
    }

    /// The next deadlines nearly come.
    fn turn(&mut self, is_in_vain: impl Fn(&E) -> bool) {
        let due = self.wheel.turn();
        for entry in due.drain(..).filter(|entry| !is_in_vain(&entry.event)) {
            self.heap.push(Reverse(entry));
        }
        self.firsts[WHEEL] = self.wheel.first;
        self.firsts[HEAP] = self.heap.peek().map_or(NEVER, |Reverse(entry)| entry.key);
    }

    /// Events waiting.
    pub fn len(&self) -> usize {
        let in_lanes = self.lanes.iter().map(VecDeque::len).sum::<usize>();
        in_lanes + self.wheel.slots.iter().map(Vec::len).sum::<usize>() + self.heap.len()
    }

    /// True when nothing more will happen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Puts an event into its lane, unless it would pass too many.
#[inline]
fn insert<E>(queue: &mut VecDeque<Entry<E>>, entry: Entry<E>) -> bool {
    if queue.back().is_none_or(|last| last.key < entry.key) {
        queue.push_back(entry);
        return true;
    }
    let later = queue.iter().rev().take(PASSED_MAX + 1).take_while(|it| it.key > entry.key);
    let passed = later.count();
    if passed > PASSED_MAX {
        return false;
    }
    queue.insert(queue.len() - passed, entry);
    true
}

/// Slots of a wheel, and how much time each has: about a millisecond, together a second.
const SLOTS: usize = 1_024;
const SLOT_NS_LOG2: u32 = 20;
const WORDS: usize = SLOTS / 64;

/// Events by the slot of time in which they happen.
#[derive(Debug)]
struct Wheel<E> {
    slots: Box<[Vec<Entry<E>>]>,
    /// A bit for each slot that is not empty.
    used: [u64; WORDS],
    /// The key of the first event that may be in the first slot that is not empty.
    first: u128,
}

impl<E> Default for Wheel<E> {
    fn default() -> Self {
        let slots = (0..SLOTS).map(|_| Vec::new()).collect();
        Self { slots, used: [0; WORDS], first: NEVER }
    }
}

impl<E> Wheel<E> {
    /// False where its slot is the one of now, or further away than there are slots.
    #[inline]
    fn insert(&mut self, now_ns: u64, entry: Entry<E>) -> bool {
        let (slot, now) = (entry.at_ns() >> SLOT_NS_LOG2, now_ns >> SLOT_NS_LOG2);
        if slot <= now || slot - now >= SLOTS as u64 {
            return false;
        }
        let place = slot as usize % SLOTS;
        self.used[place / 64] |= 1 << (place % 64);
        self.slots[place].push(entry);
        self.first = self.first.min(u128::from(slot << SLOT_NS_LOG2) << 64);
        true
    }

    /// The events of the first slot that is not empty; the next such slot is the first one then.
    fn turn(&mut self) -> &mut Vec<Entry<E>> {
        let slot = (self.first >> 64) as u64 >> SLOT_NS_LOG2;
        let place = slot as usize % SLOTS;
        self.used[place / 64] &= !(1 << (place % 64));
        let further = (1..SLOTS as u64).find(|further| {
            let place = (slot + further) as usize % SLOTS;
            self.used[place / 64] >> (place % 64) & 1 == 1
        });
        let key = |further| u128::from((slot + further) << SLOT_NS_LOG2) << 64;
        self.first = further.map_or(NEVER, key);
        &mut self.slots[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    /// A queue, and the same events in order.
    #[derive(Default)]
    struct Both {
        queue: EventQueue<u32>,
        expected: std::collections::BTreeSet<(Instant, u32)>,
        scheduled: u32,
    }

    impl Both {
        fn push(&mut self, lane: Lane, at_ns: u64) {
            let at = Instant::from_nanos(at_ns);
            self.queue.push(lane, at, self.scheduled);
            self.expected.insert((at, self.scheduled));
            self.scheduled += 1;
        }

        fn pop(&mut self) -> u64 {
            assert_eq!(self.queue.len(), self.expected.len());
            let popped = self.queue.pop(|_| false);
            assert_eq!(popped, self.expected.pop_first());
            popped.map_or(0, |(at, _)| at.as_nanos())
        }
    }

    #[test]
    fn events_come_by_time_then_by_order_of_scheduling_whatever_their_lane() {
        let mut rng = Rng::seeded(3);
        let lanes = [Lane::Arrivals, Lane::ToServers, Lane::Deadlines, Lane::Mixed];
        let mut both = Both::default();
        let mut now_ns = 0;
        for _ in 0..20_000 {
            if rng.unit() < 0.51 {
                // In order, nearly in order, and in none: within a slot of the wheel, around it and
                // beyond it.
                let spread = [1, 4, 50, 5_000_000, 3_000_000_000][rng.below(5)];
                both.push(lanes[rng.below(4)], now_ns + rng.below(spread) as u64);
            } else {
                now_ns = now_ns.max(both.pop());
            }
        }
        assert!(both.expected.len() > 100, "many wait at a time");
        while !both.expected.is_empty() {
            both.pop();
        }
        assert_eq!(both.queue.pop(|_| false), None);
        assert!(both.queue.is_empty());
    }
}
