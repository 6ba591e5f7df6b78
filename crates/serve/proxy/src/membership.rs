//! Who requests may be sent to: one slot for each address, for as long as it is needed.
//!
//! Dispatchers, pools and counts know replicas by slot. **Who leaves** drains: it gets no new
//! requests, and what is in flight ends. **Who comes back** within [`REUSED_AFTER`] has its slot
//! again, and with it what was learnt and counted of it. **Who is new** has a new slot, or the one
//! that has been empty for longest, under its next *generation*; so a fleet whose addresses change
//! all the time needs no more slots than it had members within that time, and a late reply of the
//! one before is not taken for one of the new member ([`RoutePlan::generations`]).
//!
//! Sources: the configuration, DNS and files ([`crate::upstream_state::UpstreamStates`]), and the
//! nodes of a Cassandra cluster.

use evenkeel_settings::address::ServerAddress;
use std::collections::BTreeSet;
use std::time::Duration;

use evenkeel_core::plan::RoutePlan;
use evenkeel_core::{Health, Instant, ReplicaId};

/// How long a slot stays its member's after that has left: 10 minutes. Longer than a restart, a
/// deployment or a partition that heals.
pub const REUSED_AFTER: Duration = Duration::from_secs(600);

/// Slots of one group, unless it has more members at once: 4,096. Who tells of others all the time
/// fills them; then the one that has been empty for longest is given away before its time.
const SLOTS_MAX: usize = 4_096;

/// The slots of one group of replicas.
#[derive(Clone, Debug, Default)]
pub struct Membership {
    slots: Vec<Slot>,
}

/// One slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    address: ServerAddress,
    /// How many members had it before.
    generation: u32,
    /// `None` while its member is there.
    left_at: Option<Instant>,
}

impl Membership {
    /// Slots for the first members, in their order.
    pub(crate) fn of(members: impl IntoIterator<Item = ServerAddress>) -> Self {
        let mut membership = Self::default();
        membership.follow(Instant::ZERO, members);
        membership
    }

    /// Takes over who is a member from now on; true when that is a change. An address counts once,
    /// however often it is named.
    pub fn follow(
        &mut self,
        now: Instant,
        members: impl IntoIterator<Item = ServerAddress>,
    ) -> bool {
        let members: Vec<ServerAddress> = members.into_iter().collect();
        let named: BTreeSet<ServerAddress> = members.iter().copied().collect();
        let mut has_changed = false;
        for slot in &mut self.slots {
            let left_at = match (named.contains(&slot.address), slot.left_at) {
                (true, _) => None,
                (false, None) => Some(now),
                (false, left_at) => left_at,
            };
            has_changed |= left_at.is_some() != slot.left_at.is_some();
            slot.left_at = left_at;
        }
        let mut known: BTreeSet<ServerAddress> = self.addresses().collect();
        for address in members {
            if known.insert(address) {
                self.assign(now, address);
                has_changed = true;
            }
        }
        let placed = self.slots.iter().filter(|slot| slot.left_at.is_none()).count();
        assert_eq!(placed, named.len(), "every member has one slot, and nobody else has");
        has_changed
    }

    /// Gives a newcomer the slot that has been empty for longest, or a new one.
    fn assign(&mut self, now: Instant, address: ServerAddress) {
        let is_full = self.slots.len() >= SLOTS_MAX;
        let is_free = |slot: &&mut Slot| {
            slot.left_at.is_some_and(|left_at| is_full || now.since(left_at) >= REUSED_AFTER)
        };
        match self.slots.iter_mut().filter(is_free).min_by_key(|slot| slot.left_at) {
            Some(slot) => {
                let generation = slot.generation + 1;
                *slot = Slot { address, generation, left_at: None };
            }
            None => self.slots.push(Slot { address, generation: 0, left_at: None }),
        }
    }

    /// Whose each slot is, or was last.
    pub fn addresses(&self) -> impl Iterator<Item = ServerAddress> {
        self.slots.iter().map(|slot| slot.address)
    }

    /// How many members had each slot before.
    pub fn generations(&self) -> impl Iterator<Item = u32> {
        self.slots.iter().map(|slot| slot.generation)
    }

    /// Who is there, with slot and generation.
    pub(crate) fn members(&self) -> impl Iterator<Item = (usize, ServerAddress, u32)> {
        let there = self.slots.iter().enumerate().filter(|(_, slot)| slot.left_at.is_none());
        there.map(|(place, slot)| (place, slot.address, slot.generation))
    }

    /// Whether a slot is still that member's, and the member is there.
    pub(crate) fn is_member(&self, slot: usize, generation: u32) -> bool {
        let is_it = |slot: &Slot| slot.left_at.is_none() && slot.generation == generation;
        self.slots.get(slot).is_some_and(is_it)
    }

    /// The plan after this one: who was there is as healthy as before, who joins or returns is as
    /// `joining` says, leavers drain. One group of all members.
    pub(crate) fn plan(&self, before: &RoutePlan, joining: Health) -> RoutePlan {
        let health = self.slots.iter().enumerate().map(|(place, slot)| {
            let known = before.generations.get(place).copied().unwrap_or_default();
            let known = before.health.get(place).filter(|_| known == slot.generation);
            match (slot.left_at, known) {
                (Some(_), _) => Health::Draining,
                (None, Some(Health::Down)) => Health::Down,
                (None, Some(Health::Up)) => Health::Up,
                (None, Some(Health::Draining) | None) => joining,
            }
        });
        RoutePlan {
            version: before.version + 1,
            health: health.collect(),
            generations: self.generations().collect(),
            groups: vec![self.members().map(|(slot, ..)| ReplicaId::new(slot)).collect()],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn at(host: u8) -> ServerAddress {
        SocketAddr::from(([127, 0, 0, host], 80)).into()
    }

    fn placed(membership: &Membership) -> Vec<(usize, ServerAddress, u32)> {
        membership.members().collect()
    }

    #[test]
    fn who_leaves_drains_and_has_its_slot_and_health_when_it_returns() {
        let mut membership = Membership::of([at(1), at(2), at(3)]);
        let mut plan = membership.plan(&RoutePlan::single_group(3), Health::Up);
        plan.health[1] = Health::Down;
        assert!(membership.follow(Instant::from_millis(5), [at(1), at(2)]));
        let plan = membership.plan(&plan, Health::Up);
        assert_eq!(plan.health, [Health::Up, Health::Down, Health::Draining]);
        assert_eq!(plan.groups, [[0, 1].map(ReplicaId::new)]);
        assert!(membership.follow(Instant::from_millis(599_999), [at(4), at(3)]));
        let plan = membership.plan(&plan, Health::Up);
        assert_eq!(placed(&membership), [(2, at(3), 0), (3, at(4), 0)]);
        let out = Health::Draining;
        assert_eq!(plan.health, [out, out, Health::Up, Health::Up]);
        assert!(!membership.follow(Instant::from_millis(600_000), [at(3), at(4), at(3)]));
    }

    #[test]
    fn a_newcomer_has_the_slot_that_was_empty_for_longest_under_the_next_generation() {
        let mut membership = Membership::of([at(1), at(2), at(3)]);
        membership.follow(Instant::from_millis(1_000), [at(1), at(3)]);
        membership.follow(Instant::from_millis(2_000), [at(3)]);
        let later = Instant::from_millis(1_000) + REUSED_AFTER;
        membership.follow(later, [at(3), at(7), at(8)]);
        // The first slot has been empty for a second less than that.
        assert_eq!(placed(&membership), [(1, at(7), 1), (2, at(3), 0), (3, at(8), 0)]);
        assert!(membership.is_member(1, 1) && !membership.is_member(1, 0));
        assert!(!membership.is_member(0, 0), "its member has left");
        let before = RoutePlan { health: vec![Health::Down; 3], ..RoutePlan::single_group(3) };
        let plan = membership.plan(&before, Health::Up);
        assert_eq!(plan.generations, [0, 1, 0, 0]);
        let [out, down, up] = [Health::Draining, Health::Down, Health::Up];
        assert_eq!(plan.health, [out, up, down, up], "health is a member's, not a slot's");
    }

    #[test]
    fn one_who_tells_of_others_all_the_time_fills_no_memory() {
        let mut membership = Membership::default();
        for round in 0..6_u16 {
            let others =
                (0..1_000).map(|port| SocketAddr::from(([10, 0, 0, round as u8], port + 1)).into());
            membership.follow(Instant::from_millis(u64::from(round)), others);
            assert_eq!(membership.members().count(), 1_000);
        }
        assert_eq!(membership.slots.len(), SLOTS_MAX);
    }

    proptest! {
        /// Beside a model that remembers everything.
        #[test]
        fn every_member_has_one_slot_and_keeps_it(
            history in prop::collection::vec(
                (prop::collection::btree_set(0..12_u8, 0..7), 0..400_u64), 1..40),
        ) {
            let (mut membership, mut now) = (Membership::default(), Instant::ZERO);
            let mut slots: BTreeMap<ServerAddress, (usize, u32, Instant)> = BTreeMap::new();
            let mut plan = RoutePlan::single_group(0);
            let (mut most, mut there) = (0, BTreeSet::new());
            for (hosts, seconds) in history {
                now += Duration::from_secs(seconds);
                membership.follow(now, hosts.iter().map(|host| at(*host)));
                let next = membership.plan(&plan, Health::Up);
                prop_assert!(next.version > plan.version);
                prop_assert!(next.health.len() >= plan.health.len(), "slots never go");
                let grown = next.generations.iter().zip(&plan.generations);
                prop_assert!(grown.into_iter().all(|(next, before)| next >= before));
                plan = next;
                let members = placed(&membership);
                prop_assert_eq!(members.len(), hosts.len());
                for (slot, address, generation) in members {
                    prop_assert_eq!(plan.health[slot], Health::Up);
                    if let Some((known, before, seen)) = slots.get(&address)
                        && now.since(*seen) < REUSED_AFTER
                    {
                        prop_assert_eq!((slot, generation), (*known, *before), "it returned");
                    }
                    slots.insert(address, (slot, generation, now));
                }
                let here: BTreeSet<_> = membership.members().map(|(_, at, _)| at).collect();
                for left in there.difference(&here) {
                    slots.entry(*left).and_modify(|slot| slot.2 = now);
                }
                there = here;
                let recent = slots.values().filter(|slot| now.since(slot.2) < REUSED_AFTER);
                most = most.max(recent.count());
                prop_assert!(plan.health.len() <= most, "no more slots than were needed at once");
            }
        }
    }
}
