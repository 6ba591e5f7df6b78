//! A server is given every key, one by one, while writes go on.
//!
//! A key is asked for on the source's *ordered* connection (`DUMP`), so what comes is the key after
//! an exact write; the target then needs exactly the later writes to that key and none of the
//! earlier ones. So writes to keys nobody has asked for yet are left out (the copy will have them),
//! writes to a key on its way are held until it arrives, writes to copied keys are sent. A write to
//! a key not asked for yet makes it asked for at once: thus keys made or removed while the source
//! is enumerated are not missed, which an enumeration alone does not promise. Nothing stops, and
//! writes that must not be repeated (`INCR`) are applied once.
//!
//! Where everything is removed, at the source and in the same order at the target, both are equal
//! in all keys at once ([`Copying::emptied`]): what was asked for before is forgotten when it
//! comes.
//!
//! **Cost**: one hash of 16 bytes for each key of the source, until the copy is done.

use std::collections::{BTreeMap, BTreeSet};

/// A name for a key that no other key of a store has: 128 bits of a good hash of it.
pub type Hash = u128;

/// Where a key is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Nobody has asked for it.
    Unseen,
    /// The source was asked.
    OnItsWay,
    /// The target has it.
    Copied,
}

/// What becomes of a write at the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// It is sent like to everybody.
    Send,
    /// It is kept here until its key arrives.
    Hold,
    /// It is not sent; each of its keys is asked for after it, on the source's ordered connection.
    Ask,
}

#[derive(Clone, Debug, Default)]
struct OnItsWay {
    /// Times it was asked for and has not come. Only the last one counts.
    asked: u32,
    held: Vec<Box<[u8]>>,
}

/// One copy from a source to a target.
#[derive(Clone, Debug, Default)]
pub struct Copying {
    copied: BTreeSet<Hash>,
    on_their_way: BTreeMap<Hash, OnItsWay>,
    held_bytes: usize,
    /// Everything was removed: keys that were not asked for since are equal.
    is_emptied: bool,
    /// Times keys were asked for before that, and have not come.
    forgotten: BTreeMap<Hash, u32>,
}

impl Copying {
    /// Nothing is copied yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where a key is.
    pub fn key(&self, key: Hash) -> Key {
        if self.on_their_way.contains_key(&key) {
            Key::OnItsWay
        } else if self.is_emptied || self.copied.contains(&key) {
            Key::Copied
        } else {
            Key::Unseen
        }
    }

    /// The source was seen to have this key: true when it is to be asked for.
    pub fn seen(&mut self, key: Hash) -> bool {
        let is_unseen = self.key(key) == Key::Unseen;
        if is_unseen {
            self.ask(key);
        }
        is_unseen
    }

    /// A write to these keys was sent to the source: what the target gets of it.
    pub fn write(&mut self, keys: &[Hash], command: &[u8]) -> Treatment {
        if keys.iter().all(|&key| self.key(key) == Key::Copied) {
            return Treatment::Send;
        }
        if let [key] = keys
            && let Some(pending) = self.on_their_way.get_mut(key)
        {
            self.held_bytes += command.len();
            pending.held.push(command.into());
            return Treatment::Hold;
        }
        // What was held is in the new copies.
        keys.iter().for_each(|&key| self.ask(key));
        Treatment::Ask
    }

    /// Everything but `kept` was removed at the source; the target is told the same, in its order.
    /// False, and nothing is changed, where nobody has asked for `kept` yet.
    pub fn emptied(&mut self, kept: Hash) -> bool {
        if self.key(kept) == Key::Unseen {
            return false;
        }
        let its = self.on_their_way.remove(&kept);
        for (key, pending) in std::mem::take(&mut self.on_their_way) {
            *self.forgotten.entry(key).or_default() += pending.asked;
        }
        self.on_their_way.extend(its.map(|it| (kept, it)));
        let held = self.on_their_way.values().flat_map(|it| &it.held);
        self.held_bytes = held.map(|command| command.len()).sum();
        self.copied.clear();
        self.is_emptied = true;
        true
    }

    fn ask(&mut self, key: Hash) {
        self.copied.remove(&key);
        let pending = self.on_their_way.entry(key).or_default();
        pending.asked += 1;
        let freed: usize = pending.held.drain(..).map(|command| command.len()).sum();
        self.held_bytes -= freed;
    }

    /// The source has answered with a key. `None`: it was asked for again since, and this answer
    /// is to be forgotten. Otherwise it goes to the target, then these writes in their order.
    ///
    /// # Panics
    /// When it was not asked for.
    pub fn arrived(&mut self, key: Hash) -> Option<Vec<Box<[u8]>>> {
        if let Some(times) = self.forgotten.get_mut(&key) {
            *times -= 1;
            if *times == 0 {
                self.forgotten.remove(&key);
            }
            return None;
        }
        let pending = self.on_their_way.get_mut(&key).expect("a key that was asked for");
        pending.asked -= 1;
        if pending.asked > 0 {
            return None;
        }
        let held = self.on_their_way.remove(&key).expect("it is there").held;
        self.held_bytes -= held.iter().map(|command| command.len()).sum::<usize>();
        self.copied.insert(key);
        Some(held)
    }

    /// Keys that were asked for and have not come.
    pub fn on_their_way(&self) -> usize {
        self.on_their_way.len()
    }

    /// Bytes of the writes held for them.
    pub const fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Keys the target has.
    pub fn copied(&self) -> usize {
        self.copied.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A store of counters, whose commands are told by text: `add K`, `del K`, `move K L`.
    type Store = BTreeMap<u8, u64>;

    fn apply(store: &mut Store, command: &[u8]) {
        match *command {
            [b'a', key] => *store.entry(key).or_default() += 1,
            [b'd', key] => drop(store.remove(&key)),
            [b'm', from, to] => {
                if let Some(value) = store.remove(&from) {
                    store.insert(to, value);
                }
            }
            _ => unreachable!("{command:?}"),
        }
    }

    fn keys_of(command: &[u8]) -> Vec<Hash> {
        command[1..].iter().map(|&key| Hash::from(key)).collect()
    }

    #[derive(Clone, Debug)]
    enum Event {
        Write(Vec<u8>),
        /// The enumeration goes on by one key.
        Scan,
        /// The source's next answer comes.
        Answer,
        /// All but the last key are removed.
        Empty,
    }

    const KEPT: u8 = 5;

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let key = 0_u8..6;
        let event = prop_oneof![
            key.clone().prop_map(|key| Event::Write(vec![b'a', key])),
            key.clone().prop_map(|key| Event::Write(vec![b'd', key])),
            (key.clone(), key).prop_map(|(from, to)| Event::Write(vec![b'm', from, to])),
            Just(Event::Scan),
            Just(Event::Answer),
            Just(Event::Empty),
        ];
        prop::collection::vec(event, 0..200)
    }

    struct World {
        source: Store,
        target: Store,
        copying: Copying,
        scan: VecDeque<u8>,
        /// Answers of the source in their order.
        answers: VecDeque<(u8, Option<u64>)>,
    }

    impl World {
        fn ask(&mut self, key: u8) {
            self.answers.push_back((key, self.source.get(&key).copied()));
        }

        fn write(&mut self, command: &[u8]) {
            apply(&mut self.source, command);
            match self.copying.write(&keys_of(command), command) {
                Treatment::Send => apply(&mut self.target, command),
                Treatment::Hold => {}
                Treatment::Ask => command[1..].iter().for_each(|&key| self.ask(key)),
            }
        }

        fn scan(&mut self) {
            if let Some(key) = self.scan.pop_front()
                && self.copying.seen(Hash::from(key))
            {
                self.ask(key);
            }
        }

        fn empty(&mut self) {
            if self.copying.emptied(Hash::from(KEPT)) {
                self.source.retain(|&key, _| key == KEPT);
                self.target.retain(|&key, _| key == KEPT);
            }
        }

        fn answer(&mut self) {
            let Some((key, value)) = self.answers.pop_front() else { return };
            let Some(held) = self.copying.arrived(Hash::from(key)) else { return };
            match value {
                Some(value) => drop(self.target.insert(key, value)),
                None => drop(self.target.remove(&key)),
            }
            held.iter().for_each(|command| apply(&mut self.target, command));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Whatever comes in between, the copy equals the original, also in what must be applied
        /// exactly once.
        #[test]
        fn the_copy_is_equal_when_it_is_done(begins in prop::collection::btree_map(
            0_u8..6, 1_u64..9, 0..6), events in events())
        {
            let mut world = World {
                scan: begins.keys().copied().collect(),
                source: begins,
                target: Store::new(),
                copying: Copying::new(),
                answers: VecDeque::new(),
            };
            for event in events {
                match event {
                    Event::Write(command) => world.write(&command),
                    Event::Scan => world.scan(),
                    Event::Answer => world.answer(),
                    Event::Empty => world.empty(),
                }
            }
            while !world.scan.is_empty() {
                world.scan();
            }
            while !world.answers.is_empty() {
                world.answer();
            }
            prop_assert_eq!(&world.source, &world.target);
            prop_assert_eq!((world.copying.on_their_way(), world.copying.held_bytes()), (0, 0));
        }
    }

    #[test]
    fn what_is_on_its_way_holds_its_writes() {
        let mut copying = Copying::new();
        assert!(copying.seen(1) && !copying.seen(1));
        assert_eq!(copying.write(&[1], b"one"), Treatment::Hold);
        assert_eq!(copying.write(&[2], b"two"), Treatment::Ask);
        assert_eq!(copying.write(&[1, 2], b"both"), Treatment::Ask, "held writes are in the copy");
        assert_eq!(copying.held_bytes(), 0);
        assert_eq!(copying.arrived(1), None, "asked for twice");
        assert_eq!(copying.write(&[1], b"again"), Treatment::Hold);
        assert_eq!(copying.arrived(1).unwrap(), [Box::from(*b"again") as Box<[u8]>]);
        assert_eq!(copying.write(&[1], b"now"), Treatment::Send);
        assert_eq!(copying.key(2), Key::OnItsWay);
    }
    #[test]
    fn what_was_asked_for_before_all_was_removed_is_forgotten() {
        let mut copying = Copying::new();
        assert!(!copying.emptied(9), "nobody has asked for what is kept");
        assert!(copying.seen(9) && copying.seen(1));
        assert_eq!(copying.write(&[1], b"before"), Treatment::Hold);
        assert!(copying.emptied(9));
        assert_eq!((copying.on_their_way(), copying.held_bytes()), (1, 0));
        assert_eq!(copying.write(&[1], b"after"), Treatment::Send);
        assert!(!copying.seen(1) && !copying.seen(2), "there is nothing to be copied");
        assert_eq!(copying.arrived(9), Some(Vec::new()));
        assert_eq!(copying.arrived(1), None, "it was removed");
    }
}
