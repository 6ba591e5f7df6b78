//! Who waits for a key that is empty, and whose turn it is when it is filled.
//!
//! A command that waits (`BLPOP`) is *tried*: whether there was something for it is known a round
//! trip later. Meanwhile its key may be filled, by writes of which nobody knows yet whether they
//! did. **Turn**: for each key the order in which commands came ([`Waiters::join`]). Right behind a
//! fill, as many of those who wait are tried as it can serve ([`Waiters::fill`]), so nothing comes
//! between. **Under way**: a fill is noted for who is under way at its first try, which was sent
//! before it; if that finds nothing it is tried again, first of all ([`Waiters::next_again`]). Who
//! is under way behind another fill most likely finds that one, so the next one is tried; only if
//! it does not, it is tried again. Who comes while a fill is noted for one before it stands
//! *behind* that one, and is not tried before, or it would take what the other waits for. **When it
//! misleads**: where a fill fills nothing (an error) and another one comes within a round trip, the
//! second in line may be served first. **Nothing is forgotten**: each fill ends at somebody, or
//! when nobody waits.
//!
//! What does not take (`XREAD`) needs no turn: all of its kind are tried.
//!
//! **Source**: `blocked.c` of Redis, where trying takes no time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use evenkeel_core::time::Instant;

/// Who waits, by the order in which they came.
#[derive(Clone, Debug)]
pub struct Waiters<K> {
    all: BTreeMap<u64, Waiter<K>>,
    of_key: BTreeMap<Box<[u8]>, BTreeSet<u64>>,
    dues: BTreeSet<(Instant, u64)>,
    /// Those to be tried again.
    again: BTreeSet<u64>,
    /// Those that others stand behind: a fill is noted for their first try, or they stand behind
    /// somebody themselves.
    first: BTreeSet<u64>,
    /// How many stand behind another one.
    behind: usize,
    idle: usize,
    keys: usize,
    last: u64,
}

/// What a command waits for.
#[derive(Clone, Debug)]
pub struct Wanted<K> {
    /// Only fills of this kind are for it.
    pub kind: K,
    /// Whether it takes what it finds.
    pub takes: bool,
    /// Any of these, each once.
    pub keys: Vec<Box<[u8]>>,
    /// Until when.
    pub due: Option<Instant>,
}

#[derive(Clone, Debug)]
struct Waiter<K> {
    wanted: Wanted<K>,
    is_under_way: bool,
    /// The try under way is the first one.
    is_first: bool,
    /// Fills that were noted for it since its try.
    again: usize,
    is_behind: bool,
}

impl<K> Default for Waiters<K> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            of_key: BTreeMap::new(),
            dues: BTreeSet::new(),
            again: BTreeSet::new(),
            first: BTreeSet::new(),
            behind: 0,
            idle: 0,
            keys: 0,
            last: 0,
        }
    }
}

impl<K: Copy + PartialEq> Waiters<K> {
    /// Whether nobody waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether anybody waits for a key.
    pub fn is_waited_for(&self, key: &[u8]) -> bool {
        self.of_key.contains_key(key)
    }

    /// The kinds of those who wait for a key, each once.
    pub fn kinds(&self, key: &[u8]) -> Vec<K> {
        let mut kinds = Vec::new();
        let orders = self.of_key.get(key).into_iter().flatten();
        for waiter in orders.filter_map(|order| self.all.get(order)) {
            if !kinds.contains(&waiter.wanted.kind) {
                kinds.push(waiter.wanted.kind);
            }
        }
        kinds
    }

    /// Those who wait for a key, in the order in which they came.
    pub fn of(&self, key: &[u8]) -> impl Iterator<Item = u64> {
        self.of_key.get(key).into_iter().flatten().copied()
    }

    /// How many wait and are not under way.
    pub const fn idle(&self) -> usize {
        self.idle
    }

    /// How many keys are waited for, each as often as it is.
    pub const fn keys(&self) -> usize {
        self.keys
    }

    /// Whether somebody is to be tried again.
    pub fn has_again(&self) -> bool {
        !self.again.is_empty()
    }

    /// Whether a command is tried at the moment; none that is not there is.
    pub fn is_under_way(&self, order: u64) -> bool {
        self.all.get(&order).is_some_and(|waiter| waiter.is_under_way)
    }

    /// When the first of them has waited long enough.
    pub fn deadline(&self) -> Option<Instant> {
        self.dues.first().map(|&(at, _)| at)
    }

    /// One that has waited long enough; it is named once.
    pub fn next_overdue(&mut self, now: Instant) -> Option<u64> {
        let &(at, order) = self.dues.first().filter(|(at, _)| *at <= now)?;
        self.dues.remove(&(at, order));
        Some(order)
    }

    /// A command comes: its number, and whether it may be tried now. Those of [`Self::next_again`]
    /// were tried before. `is_asking`: its first try is
    /// sent later, and counts as under way until then.
    pub fn join(&mut self, wanted: Wanted<K>, is_asking: bool) -> (u64, bool) {
        self.last += 1;
        let order = self.last;
        let is_behind = wanted.takes && self.is_reserved(&wanted.keys, order);
        for key in &wanted.keys {
            self.of_key.entry(key.clone()).or_default().insert(order);
        }
        if let Some(due) = wanted.due {
            self.dues.insert((due, order));
        }
        self.keys += wanted.keys.len();
        self.idle += usize::from(!is_asking);
        self.behind += usize::from(is_behind);
        let waiter =
            Waiter { wanted, is_under_way: is_asking, is_first: true, again: 0, is_behind };
        self.all.insert(order, waiter);
        self.note(order);
        (order, !is_behind)
    }

    /// Whether somebody before it, who waits for one of these keys, is to be tried first.
    fn is_reserved(&self, keys: &[Box<[u8]>], before: u64) -> bool {
        let waits = |order: &u64| {
            keys.iter().any(|key| self.of_key.get(key).is_some_and(|it| it.contains(order)))
        };
        self.first.range(..before).any(waits)
    }

    /// Notes whether others wait until this one is tried.
    fn note(&mut self, order: u64) {
        let is_first = self.all.get(&order).is_some_and(|it| {
            it.wanted.takes && (it.is_behind || it.is_under_way && it.is_first && it.again > 0)
        });
        match is_first {
            true => self.first.insert(order),
            false => self.first.remove(&order),
        };
    }

    /// A command is tried, with all its keys.
    pub fn send(&mut self, order: u64) {
        self.begin(order, false);
    }

    fn begin(&mut self, order: u64, is_of_one_key: bool) {
        let Some(waiter) = self.all.get_mut(&order) else { return };
        self.idle -= usize::from(!std::mem::replace(&mut waiter.is_under_way, true));
        waiter.is_first &= !is_of_one_key;
        if !waiter.is_first {
            waiter.again = 0;
        }
        self.behind -= usize::from(std::mem::take(&mut waiter.is_behind));
        let keys = (self.behind > 0).then(|| waiter.wanted.keys.clone());
        self.note(order);
        if self.again.remove(&order)
            && let Some(keys) = keys
        {
            self.pass_on(order, &keys, 0);
        }
    }

    /// A write was sent that may fill a key with so much, of any kind or of this one. Those that
    /// are tried now, in this order, with this key alone. Those of [`Self::next_again`] were tried
    /// before the write.
    pub fn fill(&mut self, key: &[u8], kind: Option<K>, mut most: usize) -> Vec<u64> {
        let (mut tried, mut at) = (Vec::new(), 0);
        while most > 0
            && let Some(order) = self.next_of(key, at)
        {
            at = order;
            let Some(waiter) = self.all.get_mut(&order) else { continue };
            if kind.is_some_and(|kind| kind != waiter.wanted.kind) {
                continue;
            }
            let takes = usize::from(waiter.wanted.takes);
            if waiter.is_under_way || waiter.is_behind {
                waiter.again += 1;
                most -= if waiter.is_first { takes } else { 0 };
                self.note(order);
            } else {
                most -= takes;
                tried.push(order);
                self.begin(order, true);
            }
        }
        tried
    }

    /// A try found something: its command waits no more.
    pub fn found(&mut self, order: u64) {
        self.leave(order);
    }

    /// A try found nothing. It goes on waiting, or is tried again.
    pub fn found_nothing(&mut self, order: u64) {
        let Some(waiter) = self.all.get_mut(&order) else { return };
        self.idle += usize::from(std::mem::take(&mut waiter.is_under_way));
        let is_first = std::mem::take(&mut waiter.is_first);
        let (again, takes) = (waiter.again, waiter.wanted.takes);
        let keys = waiter.wanted.keys.clone();
        if again > 0 {
            self.again.insert(order);
        }
        self.note(order);
        if is_first && takes {
            self.pass_on(order, &keys, again.saturating_sub(1));
        }
    }

    /// What a command was to find was not taken: it is for the next one.
    pub fn failed(&mut self, order: u64) {
        if let Some(waiter) = self.all.get_mut(&order) {
            (waiter.is_first, waiter.again) = (true, waiter.again + 1);
        }
        self.leave(order);
    }

    /// A command is to be tried again, because nobody knows what its try found.
    pub fn repeat(&mut self, order: u64) {
        if let Some(waiter) = self.all.get_mut(&order) {
            self.idle += usize::from(std::mem::take(&mut waiter.is_under_way));
            self.again.insert(order);
        }
    }

    /// One that is to be tried again, with all its keys, or to leave; of this number or above.
    pub fn next_again(&mut self, from: u64) -> Option<u64> {
        while let Some(&order) = self.again.range(from..).next() {
            let Some(waiter) = self.all.get(&order) else { return Some(order) };
            if !waiter.is_first || !self.is_reserved(&waiter.wanted.keys, order) {
                return Some(order);
            }
            // A fill came meanwhile that is noted for one before it.
            self.again.remove(&order);
            self.behind += 1;
            let waiter = self.all.get_mut(&order)?;
            (waiter.is_behind, waiter.again) = (true, waiter.again + 1);
            self.note(order);
        }
        None
    }

    /// A command waits no more. What was noted for it is for those behind it.
    pub fn leave(&mut self, order: u64) {
        let Some(waiter) = self.all.remove(&order) else { return };
        for key in &waiter.wanted.keys {
            if let Some(orders) = self.of_key.get_mut(key) {
                orders.remove(&order);
                if orders.is_empty() {
                    self.of_key.remove(key);
                }
            }
        }
        if let Some(due) = waiter.wanted.due {
            self.dues.remove(&(due, order));
        }
        let is_due = self.again.remove(&order);
        self.first.remove(&order);
        self.idle -= usize::from(!waiter.is_under_way);
        self.behind -= usize::from(waiter.is_behind);
        self.keys -= waiter.wanted.keys.len();
        if waiter.wanted.takes {
            let fills = if waiter.is_first || is_due { waiter.again } else { 0 };
            self.pass_on(order, &waiter.wanted.keys, fills);
        }
    }

    /// The next one that waits for a key.
    fn next_of(&self, key: &[u8], after: u64) -> Option<u64> {
        let behind = (Bound::Excluded(after), Bound::Unbounded);
        self.of_key.get(key)?.range(behind).next().copied()
    }

    /// So many behind this one are to be tried, and those that stood behind it.
    fn pass_on(&mut self, order: u64, keys: &[Box<[u8]>], fills: usize) {
        for key in keys {
            let (mut fills, mut at) = (fills, order);
            while (fills > 0 || self.behind > 0)
                && let Some(next) = self.next_of(key, at)
            {
                at = next;
                let Some(waiter) = self.all.get(&next) else { continue };
                let may_be_tried = !self.is_reserved(&waiter.wanted.keys, next);
                let Some(waiter) = self.all.get_mut(&next) else { continue };
                let (is_behind, is_first) = (waiter.is_behind, waiter.is_first);
                if is_behind && may_be_tried {
                    waiter.is_behind = false;
                    self.behind -= 1;
                    self.again.insert(next);
                } else if fills > 0 && (is_behind || waiter.is_under_way) {
                    waiter.again += 1;
                } else if fills > 0 {
                    self.again.insert(next);
                }
                self.note(next);
                fills -= usize::from(fills > 0 && (is_first || self.again.contains(&next)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    const KEYS: [&[u8]; 2] = [b"a", b"b"];

    /// A server that does what it is sent in order, and answers later.
    #[derive(Default)]
    struct World {
        waiters: Waiters<()>,
        /// What is on its way: a push of so many, or a try of these keys.
        sent: VecDeque<Sent>,
        lists: [u64; 2],
        served: Vec<u64>,
    }

    enum Sent {
        Push(usize, u64),
        Try(u64, Vec<usize>),
    }

    impl World {
        fn attempt(&mut self, order: u64, keys: Vec<usize>) {
            self.waiters.send(order);
            self.sent.push_back(Sent::Try(order, keys));
        }

        fn again(&mut self) {
            while let Some(order) = self.waiters.next_again(0) {
                let keys = &self.waiters.all[&order].wanted.keys;
                let keys = (0..2).filter(|&it| keys.iter().any(|key| **key == *KEYS[it])).collect();
                self.attempt(order, keys);
            }
        }

        fn join(&mut self, keys: Vec<usize>) {
            self.again();
            let names = keys.iter().map(|&key| KEYS[key].into()).collect();
            let wanted = Wanted { kind: (), takes: true, keys: names, due: None };
            if let (order, true) = self.waiters.join(wanted, false) {
                self.attempt(order, keys);
            }
        }

        /// `fails`: it may fill as far as is known, and does not.
        fn push(&mut self, key: usize, count: u64, fails: bool) {
            self.again();
            self.sent.push_back(Sent::Push(key, if fails { 0 } else { count }));
            for order in self.waiters.fill(KEYS[key], None, count as usize) {
                self.sent.push_back(Sent::Try(order, vec![key]));
            }
        }

        fn answer(&mut self) {
            match self.sent.pop_front() {
                Some(Sent::Push(key, count)) => self.lists[key] += count,
                Some(Sent::Try(order, keys)) => {
                    let full = keys.into_iter().find(|&key| self.lists[key] > 0);
                    match full {
                        Some(key) => {
                            self.lists[key] -= 1;
                            self.served.push(order);
                            self.waiters.found(order);
                        }
                        None => self.waiters.found_nothing(order),
                    }
                }
                None => {}
            }
        }

        fn settle(&mut self) {
            self.again();
            while !self.sent.is_empty() {
                self.answer();
                self.again();
            }
        }
    }

    #[derive(Clone, Debug)]
    enum Act {
        Join(Vec<usize>),
        Push(usize, u64, bool),
        Leave(u64),
        Answer,
        Again,
    }

    fn act() -> impl Strategy<Value = Act> {
        let keys = prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![0, 1]), Just(vec![1, 0])];
        prop_oneof![
            3 => keys.prop_map(Act::Join),
            3 => (0_usize..2, 1_u64..4, prop::bool::weighted(0.2))
                .prop_map(|(key, count, fails)| Act::Push(key, count, fails)),
            1 => (1_u64..20).prop_map(Act::Leave),
            5 => Just(Act::Answer),
            3 => Just(Act::Again),
        ]
    }

    proptest! {
        /// Whatever comes when: in the end nobody waits for a list that has something.
        #[test]
        fn nobody_waits_for_what_is_there(acts in prop::collection::vec(act(), 1..80)) {
            let mut world = World::default();
            for act in acts {
                match act {
                    Act::Join(keys) => world.join(keys),
                    Act::Push(key, count, fails) => world.push(key, count, fails),
                    Act::Answer => world.answer(),
                    Act::Again => world.again(),
                    Act::Leave(order) => {
                        if !world.waiters.is_under_way(order) {
                            world.waiters.leave(order);
                        }
                    }
                }
            }
            world.settle();
            for (list, key) in world.lists.into_iter().zip(KEYS) {
                prop_assert!(list == 0 || !world.waiters.is_waited_for(key), "{list} are left");
            }
            let waiters = &world.waiters;
            prop_assert_eq!((waiters.idle, waiters.behind), (waiters.all.len(), 0));
        }

        /// Of one key, where every push pushes, those are served first who came first.
        #[test]
        fn who_came_first_is_served_first(acts in prop::collection::vec(act(), 1..80)) {
            let mut world = World::default();
            for act in acts {
                match act {
                    Act::Join(_) => world.join(vec![0]),
                    Act::Push(_, count, _) => world.push(0, count, false),
                    Act::Answer => world.answer(),
                    Act::Again => world.again(),
                    Act::Leave(_) => {}
                }
            }
            world.settle();
            prop_assert!(world.served.is_sorted(), "{:?}", world.served);
        }
    }

    #[test]
    fn who_does_not_take_leaves_it_to_all() {
        let mut waiters = Waiters::default();
        let wanted =
            |takes| Wanted { kind: takes, takes, keys: vec![b"k".as_slice().into()], due: None };
        let orders = [false, true, false].map(|takes| waiters.join(wanted(takes), false).0);
        assert_eq!(waiters.fill(b"k", Some(false), 1), [orders[0], orders[2]]);
        assert_eq!(waiters.fill(b"k", Some(true), 1), [orders[1]]);
        assert_eq!(waiters.fill(b"other", None, 1), [0; 0]);
    }

    #[test]
    fn who_has_waited_long_enough_is_named_once() {
        let mut waiters = Waiters::default();
        let at = Instant::from_millis;
        let wanted = |due| Wanted { kind: (), takes: true, keys: vec![], due: Some(at(due)) };
        let (late, _) = waiters.join(wanted(20), false);
        let (early, _) = waiters.join(wanted(10), true);
        assert_eq!(waiters.deadline(), Some(at(10)));
        assert_eq!(waiters.next_overdue(at(9)), None);
        assert_eq!(waiters.next_overdue(at(10)), Some(early));
        assert_eq!((waiters.next_overdue(at(10)), waiters.deadline()), (None, Some(at(20))));
        waiters.leave(late);
        assert_eq!(waiters.deadline(), None);
    }
}
