//! The groups of one data centre's dispatcher: its replica sets, bounded in number.
//!
//! Group 0 is every node of the data centre: for requests that name no key, for keyspaces and keys
//! that have no replica here, and for what is not known. Any node can coordinate any request, so a
//! group is advice that saves a hop, never a question of being right.
//!
//! **Bounded**: a large ring of many virtual nodes has as many replica sets as ranges, and each
//! dispatcher keeps a little for each group. Beyond [`GROUPS_MAX`] those with the smallest parts of
//! the ring have no group of their own and fall back to the whole data centre;
//! [`Layout::left_out`] says how many and how much that is.
//!
//! **Numbers stay**: calls are open or held while a plan is replaced, and know their group by its
//! number. [`Layout::next`] gives every set that lives on its number again. The number of a set
//! that is gone stands for the whole data centre, and is given away a change later, sooner only
//! when the bound leaves no other: a call that is held meanwhile goes to somebody who can answer
//! it, whatever becomes of the ring. Numbers never become fewer.

use core::fmt;
use std::collections::BTreeMap;

use crate::fleet::{GroupId, Health, ReplicaId};
use crate::plan::RoutePlan;
use crate::request::ring::replicas::Ring;
use crate::request::ring::replication::Replication;
use crate::request::ring::token::{Ranges, Token};
use crate::request::ring::travel::Presence;

/// Groups one dispatcher should have at most. Each costs it about a hundred bytes.
pub const GROUPS_MAX: usize = 16_384;

/// In place of a group: no node of the data centre holds it.
const ABSENT: u32 = u32::MAX;

/// What a layout is made of.
#[derive(Clone, Copy, Debug)]
pub struct LayoutInputs<'a> {
    /// The whole cluster.
    pub ring: &'a Ring,
    /// The keyspaces whose replication is known, by name.
    pub keyspaces: &'a BTreeMap<String, Replication>,
    /// Of each slot of the data centre's dispatcher, its node's number in the ring; `None` for a
    /// slot whose node is gone. Nodes without a slot are not of this data centre.
    pub slots: &'a [Option<usize>],
    /// How many groups there may be, at least 1 ([`GROUPS_MAX`]).
    pub groups_max: usize,
}

/// The groups of one data centre's dispatcher, and where each key's group is found.
#[derive(Clone, Debug)]
pub struct Layout {
    /// By name.
    keyspaces: Vec<(Box<str>, Table)>,
    tables: Vec<Ranges>,
    groups: Vec<Vec<ReplicaId>>,
    /// Which groups are somebody's; the others stand for everybody.
    is_used: Vec<bool>,
    left_out: LeftOut,
}

/// Where a keyspace's groups are.
#[derive(Clone, Copy, Debug)]
enum Table {
    /// Each node has data of its own.
    Own,
    /// In the table with this number.
    At(usize),
}

impl Layout {
    /// All nodes of the data centre.
    pub const EVERYBODY: GroupId = GroupId::new(0);

    /// The first layout.
    ///
    /// # Panics
    /// When a slot names a node that is not in the ring, or two the same.
    pub fn new(inputs: &LayoutInputs<'_>) -> Self {
        Self::after(&[], &[], inputs)
    }

    /// The layout that follows this one: sets that live on keep their numbers.
    ///
    /// # Panics
    /// As [`Layout::new`].
    #[must_use]
    pub fn next(&self, inputs: &LayoutInputs<'_>) -> Self {
        Self::after(&self.groups, &self.is_used, inputs)
    }

    fn after(old: &[Vec<ReplicaId>], was_used: &[bool], inputs: &LayoutInputs<'_>) -> Self {
        let everybody: Vec<_> = taken(inputs.slots).map(|(slot, _)| slot).collect();
        let (tables, replications) = local_tables(inputs);
        let mut numbering = Numbering::new(old, was_used, everybody, inputs.groups_max);
        let (kept, left_out) = choose(&tables, &numbering.everybody, inputs.groups_max);
        let numbers = numbering.assign(&kept);
        let numbered = |table: &LocalTable| {
            let number = |set: u32| match &table.sets[set as usize] {
                members if members.is_empty() => ABSENT,
                members => numbers.get(members).copied().unwrap_or(0), // left out, or everybody
            };
            Ranges::new(table.ranges.iter().map(|(end, set)| (end, number(set))))
        };
        let place = |replication: &Replication| match replication {
            Replication::Local => Table::Own,
            other => Table::At(replications[other]),
        };
        let named = |(name, replication): (&String, &Replication)| {
            (name.as_str().into(), place(replication))
        };
        Self {
            keyspaces: inputs.keyspaces.iter().map(named).collect(),
            tables: tables.iter().map(numbered).collect(),
            groups: numbering.groups,
            is_used: numbering.is_used,
            left_out,
        }
    }

    /// The group of a request: that of its key's replicas in this data centre; otherwise, and when
    /// it names no key, group 0, which is all nodes.
    #[inline]
    pub fn group(&self, keyspace: &str, token: Option<Token>) -> GroupId {
        let Some(token) = token else { return Self::EVERYBODY };
        match self.table(keyspace) {
            Some(Table::At(table)) => match self.tables[table].of(token) {
                Some(ABSENT) | None => Self::EVERYBODY,
                Some(number) => GroupId::new(number as usize),
            },
            Some(Table::Own) | None => Self::EVERYBODY,
        }
    }

    /// Whether this data centre holds the key; without one, whether it holds every key.
    pub fn presence(&self, keyspace: &str, token: Option<Token>) -> Presence {
        let at = |table: usize| match token {
            Some(token) => self.tables[table].of(token).is_some_and(|number| number != ABSENT),
            None => {
                let table = &self.tables[table];
                table.len() > 0 && table.iter().all(|(_, number)| number != ABSENT)
            }
        };
        match self.table(keyspace) {
            None => Presence::Unknown,
            Some(Table::Own) => Presence::Own,
            Some(Table::At(table)) if at(table) => Presence::There,
            Some(Table::At(_)) => Presence::Absent,
        }
    }

    #[inline]
    fn table(&self, keyspace: &str) -> Option<Table> {
        let place = self.keyspaces.binary_search_by(|(name, _)| (**name).cmp(keyspace)).ok()?;
        Some(self.keyspaces[place].1)
    }

    /// The members of each group.
    pub fn groups(&self) -> &[Vec<ReplicaId>] {
        &self.groups
    }

    /// The plan that makes a dispatcher have these groups.
    pub fn plan(&self, version: u64, health: Vec<Health>) -> RoutePlan {
        RoutePlan { version, health, generations: Vec::new(), groups: self.groups.clone() }
    }

    /// What has no group of its own because there would be too many.
    pub const fn left_out(&self) -> LeftOut {
        self.left_out
    }
}

/// Replica sets without a group of their own: their requests choose among all nodes.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LeftOut {
    /// How many.
    pub sets: usize,
    /// How many there are with those that have a group.
    pub of: usize,
    /// Which part of the ring is theirs, 0 to 1; of the replication that has most of them.
    pub share: f64,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sets, of, share } = self;
        if *sets == 0 {
            return write!(formatter, "each of the {of} replica sets has a group of its own");
        }
        write!(
            formatter,
            "{sets} of {of} replica sets have no group of their own, because there would be too \
             many: requests for {:.1} % of the ring choose among all nodes of the data centre",
            share * 100.0,
        )
    }
}

/// One replication's ranges, with what this data centre has of its sets.
struct LocalTable {
    /// Numbers are places in `sets`.
    ranges: Ranges,
    sets: Vec<Vec<ReplicaId>>,
}

/// The slots that a node has taken.
fn taken(slots: &[Option<usize>]) -> impl Iterator<Item = (ReplicaId, usize)> + '_ {
    let each = slots.iter().enumerate();
    each.filter_map(|(slot, node)| Some((ReplicaId::new(slot), (*node)?)))
}

/// A table for each replication that a keyspace has, and which it is.
fn local_tables<'a>(
    inputs: &LayoutInputs<'a>,
) -> (Vec<LocalTable>, BTreeMap<&'a Replication, usize>) {
    let mut slot_of = vec![None; inputs.ring.len()];
    for (slot, node) in taken(inputs.slots) {
        let earlier = slot_of[node].replace(slot);
        assert_eq!(earlier, None, "a node has one seat");
    }
    let mut tables = Vec::new();
    let mut places = BTreeMap::new();
    for replication in inputs.keyspaces.values() {
        if *replication == Replication::Local || places.contains_key(replication) {
            continue;
        }
        let replicas = inputs.ring.replicas(replication);
        let here = |set: &[usize]| {
            let mut members: Vec<_> = set.iter().filter_map(|&node| slot_of[node]).collect();
            members.sort_unstable();
            members
        };
        let sets = replicas.sets.iter().map(|set| here(set)).collect();
        places.insert(replication, tables.len());
        tables.push(LocalTable { ranges: replicas.ranges, sets });
    }
    (tables, places)
}

/// The sets that get a group: all of them, or those with the largest parts of the ring.
fn choose(
    tables: &[LocalTable],
    everybody: &[ReplicaId],
    groups_max: usize,
) -> (Vec<Vec<ReplicaId>>, LeftOut) {
    let has_own = |members: &Vec<ReplicaId>| !members.is_empty() && members != everybody;
    let mut parts: BTreeMap<&Vec<ReplicaId>, u128> = BTreeMap::new();
    for table in tables {
        for (length, set) in table.ranges.lengths() {
            let members = &table.sets[set as usize];
            if has_own(members) {
                let part = parts.entry(members).or_default();
                *part = part.saturating_add(length);
            }
        }
    }
    let of = parts.len();
    let mut chosen: Vec<_> = parts.into_iter().collect();
    chosen.sort_by_key(|&(_, part)| core::cmp::Reverse(part)); // stable: equals stay in order
    let dropped = chosen.split_off(of.min(groups_max.saturating_sub(1)));
    let mut chosen: Vec<_> = chosen.into_iter().map(|(members, _)| members.clone()).collect();
    chosen.sort_unstable();
    let lost = |table: &LocalTable| -> f64 {
        let is_lost = |set: u32| {
            let members = &table.sets[set as usize];
            has_own(members) && chosen.binary_search(members).is_err()
        };
        let lost = table.ranges.lengths().filter(|&(_, set)| is_lost(set));
        lost.map(|(length, _)| length).sum::<u128>() as f64 / 2_f64.powi(64)
    };
    let sets = dropped.len();
    let share = if sets == 0 { 0.0 } else { tables.iter().map(lost).fold(0.0, f64::max) };
    (chosen, LeftOut { sets, of, share })
}

/// Who gets which number.
struct Numbering<'a> {
    old: &'a [Vec<ReplicaId>],
    was_used: &'a [bool],
    everybody: Vec<ReplicaId>,
    groups_max: usize,
    groups: Vec<Vec<ReplicaId>>,
    is_used: Vec<bool>,
}

impl<'a> Numbering<'a> {
    fn new(
        old: &'a [Vec<ReplicaId>],
        was_used: &'a [bool],
        everybody: Vec<ReplicaId>,
        groups_max: usize,
    ) -> Self {
        let count = old.len().max(1);
        let groups = vec![everybody.clone(); count];
        let mut is_used = vec![false; count];
        is_used[0] = true;
        Self { old, was_used, everybody, groups_max, groups, is_used }
    }

    /// Numbers the sets: the old ones as before, others with numbers that were free already, then
    /// with new ones, and with those that became free just now only when there are no others.
    fn assign(&mut self, sets: &[Vec<ReplicaId>]) -> BTreeMap<Vec<ReplicaId>, u32> {
        let mut numbers = BTreeMap::new();
        for (number, members) in self.old.iter().enumerate().skip(1) {
            if self.was_used[number] && sets.binary_search(members).is_ok() {
                self.take(number, members, &mut numbers);
            }
        }
        let fresh: Vec<_> = sets.iter().filter(|set| !numbers.contains_key(*set)).collect();
        let unused = |&number: &usize| !self.is_used[number];
        let free = (1..self.groups.len()).filter(unused);
        let (just_now, before): (Vec<_>, Vec<_>) = free.partition(|&number| self.was_used[number]);
        let new = self.groups.len()..self.groups_max.max(self.groups.len());
        let places = before.into_iter().chain(new).chain(just_now);
        for (members, number) in fresh.into_iter().zip(places) {
            self.take(number, members, &mut numbers);
        }
        numbers
    }

    fn take(
        &mut self,
        number: usize,
        members: &[ReplicaId],
        numbers: &mut BTreeMap<Vec<ReplicaId>, u32>,
    ) {
        if number == self.groups.len() {
            self.groups.push(Vec::new());
            self.is_used.push(false);
        }
        self.groups[number] = members.to_vec();
        self.is_used[number] = true;
        numbers.insert(members.to_vec(), number as u32);
    }
}
