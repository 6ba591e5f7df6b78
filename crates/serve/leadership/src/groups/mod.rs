//! Groups of partitions: parts of a service that are led apart from each other, by several
//! processes and on several cores.
//!
//! Each has a run of the slots of Redis Cluster, its partitions, and a lease, epochs, numbers and a
//! log of its own. A process has a door for each group: the port of `cluster`, plus the group's
//! number. So where one process is known, all its doors are.
//!
//! **Spread.** A process that leads at least two groups more than another one that is there hands
//! one over: of those that lead most, the last by its address, and of its groups the last. All
//! others wait, so there is one hand-over at a time as long as all see the same; where they do not,
//! two groups move at once, which harms nobody. The difference never grows by it and no hand-over
//! turns back another one, since the two differ by less afterwards. It must have been so for a
//! while ([`until_due`]): a process that dies soon after each start is given nothing.
//!
//! **Who takes a group that nobody leads?** Who leads least, at once; others wait a little longer
//! for each group that they lead more than that ([`Known::waits`]), in case it cannot.

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
}

/// What a process knows of who leads which group, and who is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Of each group.
    pub holders: Vec<Holder>,
    /// Those that are there; each by its first door.
    pub processes: Processes,
}

impl Known {
    /// Nothing, of so many groups.
    pub fn nothing(groups: usize) -> Self {
        Self { holders: vec![Holder::default(); groups], processes: Processes::default() }
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

    /// The group that the process with this first door is to hand over to another one.
    pub fn hands_over(&self, own: &Endpoint) -> Option<usize> {
        to_hand_over(&self.leaders(), &self.processes.at, own)
    }

    /// How many looks at a lease that nobody has this process leaves to others.
    pub fn waits(&self, own: &Endpoint) -> usize {
        let leaders = self.leaders();
        let led = |by: &Endpoint| leaders.iter().flatten().filter(|it| *it == by).count();
        let least = self.processes.at.iter().map(led).min().unwrap_or_default();
        led(own).saturating_sub(least).min(WAITS_MAX)
    }
}

/// The group that a process is to hand over, by who leads each and who is there.
///
/// None while somebody leads a group who is not there, or nobody does: something is under way.
fn to_hand_over<P: Ord>(leaders: &[Option<P>], there: &[P], own: &P) -> Option<usize> {
    if leaders.iter().any(|leader| leader.as_ref().is_none_or(|it| !there.contains(it))) {
        return None;
    }
    let led = |by: &P| leaders.iter().flatten().filter(|it| *it == by).count();
    let least = there.iter().map(led).min()?;
    let most = there.iter().max_by_key(|it| (led(it), *it))?;
    (most == own && led(own) >= least + 2)
        .then(|| leaders.iter().rposition(|leader| leader.as_ref() == Some(own)))?
}

/// Waits until this process, which has its first door here and leads the group, is to hand it over,
/// and has been for so long.
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
        let changed = known.wait_for(|known| !is_wanted(known));
        if timeout(settled, changed).await.is_err() {
            return;
        }
    }
}
