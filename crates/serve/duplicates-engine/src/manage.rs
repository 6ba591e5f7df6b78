//! The manager's advice as requests for changes: what it says, one after the other.
//!
//! **When.** The first advice is taken only once a second window agrees with it, as people would;
//! after each change the manager watches the new arrangement from nothing, which is a rest as well.
//! What needs a new duplicate needs a spare one: where there are fewer, the best of what can be
//! done is done, and the cheapest policy in the advice says what nodes would be good for.
//! Partitions are closed once they hold nothing.

use evenkeel_ordered::ReplicaState;
use evenkeel_planner::duplicates::moves::Move;

use super::Inner;
use evenkeel_duplicates_config::Target;
use evenkeel_duplicates_config::changes::ChangeRequest;

/// Windows without which nothing is done.
const WINDOWS_MIN: u64 = 3;

impl Inner {
    /// What the manager would have done next, if it may and nobody else is at it; with spares that
    /// are not among the `silent`.
    pub fn change_of_manager(&self, silent: &[String]) -> Option<ChangeRequest> {
        let manager = self.manager.as_ref()?;
        let advice = manager.advice().filter(|advice| advice.windows >= WINDOWS_MIN)?;
        if !self.config.manager.is_some_and(|settings| settings.acts) || self.changes.now.is_some()
        {
            return None;
        }
        if let Some(empty) = self.empty_partition() {
            return Some(ChangeRequest::RemovePartition { partition: empty });
        }
        if advice.what == "wait" {
            return None;
        }
        manager.steps().first().and_then(|step| self.change_of(step, silent))
    }

    fn change_of(&self, step: &Move, silent: &[String]) -> Option<ChangeRequest> {
        let mut spares = self.spares().filter(|place| !silent.contains(place));
        Some(match *step {
            Move::Shard { shard, from, to } => {
                let is_there = shard < self.map.shards() && self.map.partition(shard) == from;
                is_there.then_some(ChangeRequest::MoveShard { shard, to })?
            }
            Move::Open { shard, duplicates, .. } => {
                let count = duplicates.get() as usize;
                let addresses: Vec<String> = spares.take(count).collect();
                if addresses.len() < count && !self.makes_its_own() {
                    return None;
                }
                let duplicates = self.makes_its_own().then_some(count);
                ChangeRequest::AddPartition { addresses, duplicates, shard: Some(shard) }
            }
            Move::Add { partition } => {
                let address = spares.next();
                (address.is_some() || self.makes_its_own())
                    .then_some(ChangeRequest::AddDuplicate { partition, address })?
            }
            Move::Remove { partition } => {
                // One that is away is missed least; else the last that came.
                let of = self.members.configured(partition);
                let away = of.without(self.members.live(partition));
                let server = away.first().or_else(|| of.iter().last())?;
                ChangeRequest::RemoveDuplicate {
                    partition,
                    address: self.connectors[server].place(),
                }
            }
        })
    }

    /// Whether further duplicates are files of this process.
    pub fn makes_its_own(&self) -> bool {
        let first = self.config.targets().next();
        matches!(first, Some(Target::Embedded { .. }))
    }

    /// Once in a while: it may advise something.
    pub(super) fn tick_manager(&mut self) {
        let Some(manager) = &mut self.manager else { return };
        let is_serving = |server| self.members.state(server) == ReplicaState::InSync;
        let is_away = (0..self.members.partitions())
            .any(|of| !self.members.configured(of).iter().all(is_serving));
        manager.tick(self.now, is_away, |shard| self.map.partition(shard));
        self.changes.came.notify_one();
    }

    /// Duplicates that the manager may take itself, where they are counted.
    pub fn spares_left(&self) -> Option<usize> {
        let acts = self.config.manager.is_some_and(|settings| settings.acts);
        // What is left empty is closed before anything else is done, and is spare then.
        let has_nights = self.config.manager.is_some_and(|settings| settings.night.is_some());
        let emptied = self.changes.emptied.filter(|_| has_nights);
        let freed = emptied.map_or(0, |partition| self.members.configured(partition).len());
        (acts && !self.makes_its_own()).then(|| self.spares().count() + freed)
    }

    /// Those that are no duplicates yet, or none any more. Where nodes go at night, all that are
    /// configured: also after a start they are known by that.
    fn spares(&self) -> impl Iterator<Item = String> + '_ {
        let has_nights = self.config.manager.is_some_and(|settings| settings.night.is_some());
        let of_night = self.config.targets().filter(move |_| has_nights);
        let spares = self.config.spares.iter().chain(of_night).map(Target::place);
        spares.filter(|place| self.layout.partition_of(place).is_none())
    }

    /// One that lost its last shard to another.
    fn empty_partition(&self) -> Option<usize> {
        let partition = self.changes.emptied?;
        let is_left = self.layout.left.iter().any(|it| it.partition == partition);
        let is_open = !self.members.configured(partition).is_empty();
        let holds_none = self.map.shards_of(partition).next().is_none();
        (is_open && holds_none && !is_left).then_some(partition)
    }
}
