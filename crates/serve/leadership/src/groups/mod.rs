//! Groups of partitions: parts of a service that are led apart from each other, by several
//! processes and on several cores.
//!
//! Each has a run of the slots of Redis Cluster, its partitions, and a lease, epochs, numbers and a
//! log of its own. A process has a door for each group: the port of `cluster`, plus the group's
//! number. So where one process is known, all its doors are.
//!
//! **Spread.** Each process says how many commands a second its groups have ([`Loads`]). The one
//! with most hands over a group to the one with least, where both are more alike afterwards: the
//! group by which they come closest, of such the last; of processes with as many, the last by its
//! address. A service with hardly any load is spread by the number of groups. All others wait, so
//! there is one hand-over at a time as long as all see the same; where they do not, two groups move
//! at once, which harms nobody. The greater of the two becomes smaller by it, by a tenth where
//! loads are known, so that hand-overs end and none turns back another one. It must have been so
//! for a while ([`until_due`]): a process that dies soon after each start is given nothing, and a
//! burst moves nothing.
//!
//! **Who takes a group that nobody leads?** Who leads least, at once; others wait a little longer
//! for each process that leads less than they ([`Known::waits`]), in case it cannot.

#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::relay::{Holder, endpoint};
use evenkeel_stores::resp::cluster::{Endpoint, SlotGroup};
use evenkeel_stores::resp::hash::SLOTS;

/// Looks at the lease that somebody who leads more leaves to others, at most.
const WAITS_MAX: usize = 2;

/// Commands a second that a service has at least where it is spread by load.
const BUSY_PER_S: u64 = 1_000;

/// How long a load must have called for a hand-over, at least.
const LOAD_SETTLED: Duration = Duration::from_secs(30);

/// Commands a second of each group, as far as they are known.
pub type Loads = Vec<Option<u64>>;

/// One of the groups of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// From 0 on.
    pub number: usize,
    /// How many there are, at least one.
    pub of: usize,
}

impl Default for Group {
    /// The one of a service that has no others.
    fn default() -> Self {
        Self { number: 0, of: 1 }
    }
}

impl Group {
    /// All of a service.
    pub fn all(of: usize) -> impl Iterator<Item = Self> {
        (0..of).map(move |number| Self { number, of })
    }

    /// Whether it is the only one.
    pub const fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Its run of so many things that are dealt to all groups: contiguous, and of equal length
    /// but for one.
    pub const fn share(self, count: usize) -> Range<usize> {
        self.number * count / self.of..(self.number + 1) * count / self.of
    }

    /// Its slots, first and last.
    ///
    /// # Panics
    /// When there are more groups than slots.
    pub fn slots(self) -> (u16, u16) {
        let Range { start, end } = self.share(usize::from(SLOTS));
        assert!(start < end, "a slot for each group");
        (start as u16, (end - 1) as u16) // at most SLOTS
    }

    /// The number of the group, of so many, that has this slot.
    pub const fn of_slot(slot: u16, of: usize) -> usize {
        ((slot as usize + 1) * of - 1) / SLOTS as usize
    }

    /// Its door of the process whose first door is here.
    fn door(self, first: &Endpoint) -> Option<Endpoint> {
        let port = u16::try_from(usize::from(first.port) + self.number).ok()?;
        Some(Endpoint { host: first.host.clone(), port })
    }

    /// The first door of the process that has this group's here.
    pub fn first_door(self, at: &Endpoint) -> Option<Endpoint> {
        let port = usize::from(at.port).checked_sub(self.number).filter(|port| *port > 0)?;
        Some(Endpoint { host: at.host.clone(), port: port as u16 }) // less than it was
    }
}

/// What is known of the processes of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Processes {
    /// Where their clients of Redis Cluster connect.
    pub at: Vec<Endpoint>,
    /// The last epoch that was given to one of them; of all groups together, where there are
    /// several.
    pub epoch: u64,
    /// What was last said of each group, by whoever led it.
    pub loads: Loads,
}

/// What a process knows of who leads which group, and who is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Of each group.
    pub holders: Vec<Holder>,
    /// Those that are there; each by its first door.
    pub processes: Processes,
    /// Of the groups that this process leads, as far as it has measured them.
    pub measured: Loads,
}

impl Known {
    /// Nothing, of so many groups.
    pub fn nothing(groups: usize) -> Self {
        Self {
            holders: vec![Holder::default(); groups],
            processes: Processes::default(),
            measured: vec![None; groups],
        }
    }

    /// Where a group is led, as clients of Redis Cluster are told.
    fn leader(&self, group: Group) -> Option<Endpoint> {
        self.holders.get(group.number)?.cluster.and_then(endpoint)
    }

    /// Slots and nodes of all groups.
    pub(super) fn slot_groups(&self) -> Vec<SlotGroup> {
        let of = |group: Group| SlotGroup {
            slots: group.slots(),
            leader: self.leader(group),
            nodes: self.processes.at.iter().filter_map(|first| group.door(first)).collect(),
        };
        Group::all(self.holders.len()).map(of).collect()
    }

    /// By group, the first door of the process that leads it.
    fn leaders(&self) -> Vec<Option<Endpoint>> {
        let of = |group: Group| group.first_door(&self.leader(group)?);
        Group::all(self.holders.len()).map(of).collect()
    }

    /// By group, who leads it and what it weighs.
    fn led(&self) -> Vec<(Option<Endpoint>, u64)> {
        let weights = weights(&self.processes.loads, self.holders.len());
        self.leaders().into_iter().zip(weights).collect()
    }

    /// The group that the process with this first door is to hand over to another one.
    pub fn hands_over(&self, own: &Endpoint) -> Option<usize> {
        to_hand_over(&self.led(), &self.processes.at, own)
    }

    /// Whether that is so by the number of groups alone, as it is for a process that has come.
    fn leads_too_many(&self, own: &Endpoint) -> bool {
        let alike: Vec<_> = self.leaders().into_iter().map(|leader| (leader, 1)).collect();
        to_hand_over(&alike, &self.processes.at, own).is_some()
    }

    /// How many looks at a lease that nobody has this process leaves to others.
    pub fn waits(&self, own: &Endpoint) -> usize {
        let groups = self.led();
        let weight = |by: &Endpoint| weight_of(&groups, by);
        let lesser = self.processes.at.iter().filter(|it| weight(it) < weight(own)).count();
        lesser.min(WAITS_MAX)
    }
}

/// What each of so many groups weighs: its load, and a twentieth of the average load, so that those
/// without any are spread too. One each, where there is hardly any load.
fn weights(loads: &[Option<u64>], groups: usize) -> Vec<u64> {
    let load = |group: usize| loads.get(group).copied().flatten().unwrap_or_default();
    let total = (0..groups).map(load).fold(0, u64::saturating_add);
    if total < BUSY_PER_S {
        return vec![1; groups];
    }
    let least = (total / (20 * groups as u64)).max(1);
    (0..groups).map(|group| load(group).saturating_add(least)).collect()
}

/// What all groups weigh that a process leads.
fn weight_of<P: Ord>(groups: &[(Option<P>, u64)], by: &P) -> u64 {
    let led = groups.iter().filter(|(leader, _)| leader.as_ref() == Some(by));
    led.map(|(_, weight)| *weight).fold(0, u64::saturating_add)
}

/// The group that a process is to hand over, by who leads each, what each weighs and who is there.
///
/// None while somebody leads a group who is not there, or nobody does: something is under way.
fn to_hand_over<P: Ord>(groups: &[(Option<P>, u64)], there: &[P], own: &P) -> Option<usize> {
    if groups.iter().any(|(leader, _)| leader.as_ref().is_none_or(|it| !there.contains(it))) {
        return None;
    }
    let weight = |by: &P| weight_of(groups, by);
    let least = there.iter().map(weight).min()?;
    let most = there.iter().max_by_key(|it| (weight(it), *it)).filter(|most| *most == own)?;
    let (most, above) = (weight(most), weight(most) - least);
    // By how much less the greater of the two has afterwards.
    let gain = |weight: u64| weight.min(above.saturating_sub(weight));
    let led = groups.iter().enumerate().filter(|(_, (leader, _))| leader.as_ref() == Some(own));
    let (group, gain) = led
        .map(|(group, (_, weight))| (group, gain(*weight)))
        .max_by_key(|(group, gain)| (*gain, *group))?;
    let is_alike = groups.iter().all(|(_, weight)| *weight == 1);
    (gain > 0 && (is_alike || gain >= most / 10)).then_some(group)
}

/// Waits until this process, which has its first door here and leads the group, is to hand it over,
/// and has been for so long, or half a minute where it is only for its load.
pub async fn until_due(
    mut known: watch::Receiver<Known>,
    (group, own): (Group, &Endpoint),
    settled: Duration,
) {
    let is_wanted = |known: &Known| known.hands_over(own) == Some(group.number);
    loop {
        if known.wait_for(is_wanted).await.is_err() {
            std::future::pending::<()>().await; // nothing is known any more
        }
        let is_load = !known.borrow().leads_too_many(own);
        let settled = if is_load { settled.max(LOAD_SETTLED) } else { settled };
        let changed = known.wait_for(|known| !is_wanted(known));
        if timeout(settled, changed).await.is_err() {
            return;
        }
    }
}
