//! What to do at night with nodes that the load does not need.
//!
//! By day every node is needed; at night the rate of each shard falls. Four setups (figure 9), for
//! any numbers of nodes, shards and rates:
//!
//! - **as by day**: nothing moves;
//! - **saving**: shards share as few nodes as carry no more than a node does by day, the rest is
//!   switched off;
//! - **naive**: the same partitions, with the idle nodes as their duplicates (what SCADS did);
//! - **sparing**: some of the day's partitions stay alone and get duplicates, so that duplicates
//!   are where load is low; the others share nodes as in *saving*. Of six nodes the paper packs
//!   four shards on two nodes and gives two shards two nodes each. Here every split that the nodes
//!   allow is tried, and the cheapest is taken (the one with the fewest violations where violations
//!   have no price).
//!
//! **Migration.** A setup is begun by copying shards to nodes that do not have them and ended by
//! copying back those that left their node. In the paper's setup that is 4 and 2 for six nodes.
//! Each copy makes some accesses late; how many is measured, not modelled.
//!
//! **When it misleads.** Shards are asked evenly, by day and by night, as in the paper's test; and
//! nodes are paid while they serve, which is true of energy and of clouds, not of a bought rack.

use core::num::NonZeroU32;

use super::policy::Prices;
use super::{Model, Question, predict_partition};
use evenkeel_core::time::Duration;
use evenkeel_core::units::{OutOfRange, Rate};

/// A service at night. `question.rate` is not looked at.
#[derive(Clone, Copy, Debug)]
pub struct Night<'a> {
    /// Service times, bound, network, multicast.
    pub question: Question<'a>,
    /// Nodes that there are by day.
    pub nodes: NonZeroU32,
    /// Shards, by day spread evenly over the nodes; at least as many as nodes.
    pub shards: NonZeroU32,
    /// Of each shard, at the day's peak.
    pub day_rate: Rate,
    /// Of each shard, at night.
    pub night_rate: Rate,
    /// Duplicates of a partition at most.
    pub duplicates_max: NonZeroU32,
    /// Of nodes and violations.
    pub prices: Prices,
    /// How long the night is.
    pub length: Duration,
    /// How many accesses are late because one shard is copied to one node.
    pub migration_violations: f64,
}

/// Partitions that are alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// How many partitions.
    pub partitions: u32,
    /// Shards of each.
    pub shards: u32,
    /// Duplicates of each.
    pub duplicates: NonZeroU32,
}

impl Group {
    fn nodes(&self) -> u64 {
        u64::from(self.partitions) * u64::from(self.duplicates.get())
    }

    /// Copies to begin, given how many shards a node has already.
    fn copies_down(&self, home: u32) -> u64 {
        let held = u64::from(self.shards) * u64::from(self.duplicates.get());
        u64::from(self.partitions) * (held - self.at_home(home))
    }

    /// Copies to end.
    fn copies_back(&self, home: u32) -> u64 {
        u64::from(self.partitions) * (u64::from(self.shards) - self.at_home(home))
    }

    /// Shards that stay on a node they are on by day.
    fn at_home(&self, home: u32) -> u64 {
        u64::from(self.shards).min(u64::from(home) * u64::from(self.duplicates.get()))
    }
}

evenkeel_core::named! {
    /// Which idea a setup follows.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Idea {
        /// Nothing moves.
        AsByDay = "as by day",
        /// As few nodes as possible.
        Saving = "saving",
        /// Those, and idle nodes as duplicates.
        Naive = "naive",
        /// Duplicates only where load stays low.
        Sparing = "sparing",
    }
}

/// A setup for the night and what is expected of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Setup {
    /// Which idea it follows.
    pub idea: Idea,
    /// Its partitions.
    pub groups: Vec<Group>,
    /// Nodes that serve.
    pub nodes: u64,
    /// The share of accesses that miss the bound, migrations apart.
    pub violations: f64,
    /// The standard error of that.
    pub standard_error: f64,
    /// Violations of the night, migrations apart.
    pub late: f64,
    /// Copies of shards to begin.
    pub copies_down: u64,
    /// Copies of shards to end.
    pub copies_back: u64,
    /// What the night costs, migrations apart.
    pub cost: f64,
    /// What it costs with the violations of the migrations.
    pub cost_with_migration: f64,
}

impl Night<'_> {
    /// All four setups, in the order of [`Idea`]; without the last where the nodes allow no
    /// duplicate beside the others.
    ///
    /// # Errors
    /// When there are fewer shards than nodes, shards are asked more at night than by day, or the
    /// service times of so many duplicates are not known.
    pub fn setups(&self, model: Model) -> Result<Vec<Setup>, OutOfRange> {
        let (nodes, shards) = (self.nodes.get(), self.shards.get());
        if shards < nodes {
            let expected = "at least as many shards as nodes";
            return Err(OutOfRange { came: f64::from(shards), expected });
        }
        if self.night_rate > self.day_rate {
            let expected = "a rate at night of at most the rate by day";
            return Err(OutOfRange { came: self.night_rate.value(), expected });
        }
        let shared = spread(shards, shards.div_ceil(self.packed()), NonZeroU32::MIN);
        let mut setups = vec![
            self.setup(model, Idea::AsByDay, spread(shards, nodes, NonZeroU32::MIN))?,
            self.setup(model, Idea::Saving, shared.clone())?,
            self.setup(model, Idea::Naive, self.naive(&shared))?,
        ];
        let mut best: Option<Setup> = None;
        for groups in self.sparing() {
            let setup = self.setup(model, Idea::Sparing, groups)?;
            let key = |setup: &Setup| match self.prices.per_violation > 0.0 {
                true => setup.cost_with_migration,
                false => setup.violations,
            };
            if best.as_ref().is_none_or(|best| key(&setup) < key(best)) {
                best = Some(setup);
            }
        }
        setups.extend(best);
        Ok(setups)
    }

    /// Shards of the fullest node by day.
    fn home(&self) -> u32 {
        self.shards.get().div_ceil(self.nodes.get())
    }

    /// Shards on one node at night, so that it has no more to do than by day.
    fn packed(&self) -> u32 {
        let peak = self.day_rate.value() * f64::from(self.home());
        let most = peak / self.night_rate.value() * (1.0 + 1e-9);
        if most.is_nan() { self.shards.get() } else { (most as u32).min(self.shards.get()) }
    }

    /// Idle nodes become duplicates, of the first partitions one more where they are no multiple.
    fn naive(&self, shared: &[Group]) -> Vec<Group> {
        let partitions: u32 = shared.iter().map(|group| group.partitions).sum();
        let most = self.duplicates_max;
        let each = NonZeroU32::new(self.nodes.get() / partitions).unwrap_or(NonZeroU32::MIN);
        let mut more = self.nodes.get() % partitions;
        let mut groups = Vec::with_capacity(shared.len() + 1);
        for group in shared {
            let with = more.min(group.partitions);
            more -= with;
            let duplicates = each.saturating_add(1).min(most);
            groups.push(Group { partitions: with, duplicates, ..*group });
            let partitions = group.partitions - with;
            groups.push(Group { partitions, duplicates: each.min(most), ..*group });
        }
        groups.retain(|group| group.partitions > 0);
        groups
    }

    /// Every number of partitions that stay alone, with every number of duplicates.
    fn sparing(&self) -> Vec<Vec<Group>> {
        let (nodes, shards, home) = (self.nodes.get(), self.shards.get(), self.home());
        let mut all = Vec::new();
        for duplicates in (2..=self.duplicates_max.get()).filter_map(NonZeroU32::new) {
            for alone in 1..=(nodes / duplicates).min(shards / home) {
                let rest = shards - alone * home;
                let shared = rest.div_ceil(self.packed());
                if alone * duplicates.get() + shared > nodes {
                    break;
                }
                let mut groups = spread(rest, shared, NonZeroU32::MIN);
                groups.push(Group { partitions: alone, shards: home, duplicates });
                all.push(groups);
            }
        }
        all
    }

    fn setup(&self, model: Model, idea: Idea, groups: Vec<Group>) -> Result<Setup, OutOfRange> {
        let shards = f64::from(self.shards.get());
        let total = Rate::new(self.night_rate.value() * shards)?;
        let question = Question { rate: total, ..self.question };
        let (mut violations, mut error) = (0.0, 0.0);
        for group in &groups {
            let rate = Rate::new(self.night_rate.value() * f64::from(group.shards))?;
            let part = f64::from(group.partitions) * f64::from(group.shards) / shards;
            let reported = predict_partition(model, &question, rate, group.duplicates)?;
            violations += part * reported.violations;
            error += part * reported.standard_error;
        }
        let seconds = self.length.as_secs_f64();
        let late = violations * total.value() * seconds;
        let home = self.home();
        let copies_down: u64 = groups.iter().map(|group| group.copies_down(home)).sum();
        let copies_back: u64 = groups.iter().map(|group| group.copies_back(home)).sum();
        let nodes = groups.iter().map(Group::nodes).sum();
        let cost = self.prices.cost(nodes, violations * total.value()) * seconds;
        let moved = (copies_down + copies_back) as f64 * self.migration_violations;
        let cost_with_migration = cost + moved * self.prices.per_violation;
        Ok(Setup {
            idea,
            groups,
            nodes,
            violations,
            standard_error: error,
            late,
            copies_down,
            copies_back,
            cost,
            cost_with_migration,
        })
    }
}

/// Shards evenly over partitions: some have one more than others.
fn spread(shards: u32, partitions: u32, duplicates: NonZeroU32) -> Vec<Group> {
    if partitions == 0 {
        return Vec::new();
    }
    let (each, more) = (shards / partitions, shards % partitions);
    let groups = [
        Group { partitions: more, shards: each + 1, duplicates },
        Group { partitions: partitions - more, shards: each, duplicates },
    ];
    groups.into_iter().filter(|group| group.partitions > 0 && group.shards > 0).collect()
}
