//! From the arrangement there is to a better one, one step at a time.
//!
//! Section 3 of the paper names three moves: a shard to another partition, a shard to a new
//! partition, a duplicate more or less; "it finds a policy by iteratively" making them. It does not
//! say which, when to stop, or what keeps it from going back and forth. This does:
//!
//! **Which.** Of all steps the one with the best outlook: first to meet the target, then the
//! cheapest; while none meets it, the one with the fewest violations. Some steps are several moves,
//! because half of one is worse than none: closing a partition frees its nodes only with its last
//! shard, and splitting one needs a second half that carries its weight.
//!
//! **When.** ([`Steadiness`]) A missed target is mended as soon as a step lowers violations by a
//! share worth the trouble, if possible so that it would be met with more load too
//! ([`room`](Steadiness::room)). Nodes are given back only where the rest would keep the target
//! with as much more load. So a load that changes by less than that leads nowhere and back: the
//! band is in load, not in violations, which double where load grows by a tenth. After each step
//! there is a rest, and what a step saves within the payback time must be more than its migration
//! costs.
//!
//! **How sure.** All outlooks of one decision see the same draws, and violations at a rate between
//! two that were simulated are interpolated on the scale of nines, where they are nearly straight.
//!
//! **When it misleads.** It takes one step after another and never a worse one, so it may end in an
//! arrangement that only a detour improves; [`policy`](super::policy) looks at all even ones and is
//! the yardstick. Rates of shards are those measured; a shard whose rate rises is moved after it
//! did.

use std::collections::BTreeMap;

use core::num::NonZeroU32;

use super::policy::Prices;
use super::{Model, Question, predict_partition};
use evenkeel_core::time::Duration;
use evenkeel_core::units::{OutOfRange, Probability, Rate};

/// A partition: shards that live together, on all of its duplicates.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Shards by number; may be empty only while it is opened or closed.
    pub shards: Vec<usize>,
    /// Nodes, each with all of the partition's shards.
    pub duplicates: NonZeroU32,
}

/// Where every shard is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Arrangement {
    /// By number.
    pub partitions: Vec<Partition>,
}

impl Arrangement {
    /// Nodes of all partitions.
    pub fn nodes(&self) -> u64 {
        self.partitions.iter().map(|partition| u64::from(partition.duplicates.get())).sum()
    }

    /// The arrangement after a move; the numbers of partitions stay, a new one is the last.
    ///
    /// # Errors
    /// When the move names what is not there, or takes the last duplicate of shards.
    pub fn after(&self, step: &Move) -> Result<Self, OutOfRange> {
        let mut after = self.clone();
        match *step {
            Move::Shard { shard, from, to } => {
                after.take(shard, from)?;
                after.of(to)?.shards.push(shard);
            }
            Move::Open { shard, from, duplicates } => {
                after.take(shard, from)?;
                after.partitions.push(Partition { shards: vec![shard], duplicates });
            }
            Move::Add { partition } => {
                let partition = after.of(partition)?;
                partition.duplicates = partition.duplicates.saturating_add(1);
            }
            Move::Remove { partition } => {
                let partition = after.of(partition)?;
                let fewer = NonZeroU32::new(partition.duplicates.get() - 1);
                partition.duplicates = fewer
                    .ok_or(OutOfRange { came: 1.0, expected: "a duplicate besides the last" })?;
            }
        }
        Ok(after)
    }

    fn of(&mut self, partition: usize) -> Result<&mut Partition, OutOfRange> {
        let expected = "the number of a partition";
        self.partitions.get_mut(partition).ok_or(OutOfRange { came: partition as f64, expected })
    }

    fn take(&mut self, shard: usize, from: usize) -> Result<(), OutOfRange> {
        let shards = &mut self.of(from)?.shards;
        let at = shards.iter().position(|&other| other == shard);
        let expected = "a shard of that partition";
        shards.remove(at.ok_or(OutOfRange { came: shard as f64, expected })?);
        Ok(())
    }

    /// Without partitions that have no shard left.
    fn tidied(mut self) -> Self {
        self.partitions.retain(|partition| !partition.shards.is_empty());
        self
    }
}

/// The three moves of section 3; partitions by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// A shard goes to another partition. One that loses its last shard is closed.
    Shard {
        /// Which.
        shard: usize,
        /// Where it was.
        from: usize,
        /// Where it goes.
        to: usize,
    },
    /// A shard goes to a new partition, the last one.
    Open {
        /// Which.
        shard: usize,
        /// Where it was.
        from: usize,
        /// Of the new partition.
        duplicates: NonZeroU32,
    },
    /// A partition gets a duplicate.
    Add {
        /// Which.
        partition: usize,
    },
    /// A partition loses a duplicate.
    Remove {
        /// Which.
        partition: usize,
    },
}

/// What is expected of an arrangement.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Outlook {
    /// The share of all accesses that miss the bound.
    pub violations: f64,
    /// Nodes.
    pub nodes: u64,
    /// Nodes and violations, per second.
    pub cost: f64,
    /// Whether the target is met.
    pub meets: bool,
    /// Whether it would be with more load, by [`Steadiness::room`].
    pub has_room: bool,
}

/// What keeps plans from going back and forth, and steps from costing more than they save.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Steadiness {
    /// Violations must fall by this share while the target is missed, costs by it while it is met.
    pub gain_min: f64,
    /// Nodes are given back only where the target would be met with so much more load, as a share.
    pub room: f64,
    /// How long after a step none is made, unless the target is missed.
    pub rest: Duration,
    /// Within which time a step that only saves must have paid for itself.
    pub payback: Duration,
    /// What moving or copying one shard to one node costs, in the unit of the prices.
    pub migration: f64,
}

impl Default for Steadiness {
    /// 5 %, a quarter more load, ten minutes, four hours, and migrations that cost nothing.
    fn default() -> Self {
        Self {
            gain_min: 0.05,
            room: 0.25,
            rest: Duration::from_secs(600),
            payback: Duration::from_secs(4 * 3_600),
            migration: 0.0,
        }
    }
}

/// What to do next, and why.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// In this order; the numbers of partitions stay what they are until all are done.
    pub moves: Vec<Move>,
    /// Then, without the partitions that were closed.
    pub arrangement: Arrangement,
    /// What is expected now.
    pub before: Outlook,
    /// What is expected then.
    pub after: Outlook,
    /// Copies of shards that are made: each from a duplicate that has it to one that has not.
    pub copies: u64,
    /// For people.
    pub why: String,
}

/// Decides steps for one service.
#[derive(Clone, Debug)]
pub struct Planner<'a> {
    /// How violations are predicted.
    pub model: Model,
    /// All but the rates, which are those of the shards.
    pub question: Question<'a>,
    /// The least share of accesses within the bound.
    pub target: Probability,
    /// Nodes at most; an arrangement that has more gets none on top.
    pub nodes_max: u32,
    /// What cheap means.
    pub prices: Prices,
    /// What prevents oscillation.
    pub steadiness: Steadiness,
    /// No step leaves a partition, or brings a shard to one, with fewer duplicates than this,
    /// unless it had fewer before: what durability asks for.
    pub duplicates_min: NonZeroU32,
}

impl Planner<'_> {
    /// What is expected of an arrangement with these rates of shards.
    ///
    /// # Errors
    /// When a shard has no rate, or the service times of so many duplicates are not known.
    pub fn outlook(
        &self,
        arrangement: &Arrangement,
        rates: &[Rate],
    ) -> Result<Outlook, OutOfRange> {
        Curves::new(self, rates)?.outlook(arrangement)
    }

    /// The next step, or none where the arrangement should stay as it is. `rested` is the time
    /// since the last step, if there was one.
    ///
    /// # Errors
    /// As [`outlook`](Self::outlook).
    pub fn next(
        &self,
        arrangement: &Arrangement,
        rates: &[Rate],
        rested: Option<Duration>,
    ) -> Result<Option<Step>, OutOfRange> {
        let mut curves = Curves::new(self, rates)?;
        let before = curves.outlook(arrangement)?;
        let rests = rested.is_some_and(|rested| rested < self.steadiness.rest);
        if before.meets && rests {
            return Ok(None);
        }
        let mut best: Option<Step> = None;
        for moves in options(arrangement, rates, self.nodes_max) {
            let Some(step) = self.judged(&mut curves, arrangement, before, moves)? else {
                continue;
            };
            if best.as_ref().is_none_or(|best| is_better(&step, best)) {
                best = Some(step);
            }
        }
        Ok(best.map(|step| Step { why: self.describe(&step), ..step }))
    }

    /// Steps until none is worth it, at most `steps_max`: what the manager would come to if nothing
    /// changed.
    ///
    /// # Errors
    /// As [`outlook`](Self::outlook).
    pub fn plan(
        &self,
        arrangement: &Arrangement,
        rates: &[Rate],
        steps_max: usize,
    ) -> Result<Vec<Step>, OutOfRange> {
        let mut steps: Vec<Step> = Vec::new();
        while steps.len() < steps_max {
            let now = steps.last().map_or(arrangement, |step| &step.arrangement);
            match self.next(now, rates, None)? {
                Some(step) => steps.push(step),
                None => break,
            }
        }
        Ok(steps)
    }

    /// The step of these moves, if it is worth it.
    fn judged(
        &self,
        curves: &mut Curves<'_, '_>,
        from: &Arrangement,
        before: Outlook,
        moves: Vec<Move>,
    ) -> Result<Option<Step>, OutOfRange> {
        let mut to = from.clone();
        for step in &moves {
            to = to.after(step)?;
        }
        let copies = copies(from, &to);
        let is_too_thin = self.thins(from, &to);
        let to = to.tidied();
        let known = self.question.service.duplicates_max().unwrap_or(usize::MAX);
        let too_many = |part: &Partition| part.duplicates.get() as usize > known;
        let nodes_max = from.nodes().max(self.nodes_max.into());
        if to.nodes() > nodes_max || to.partitions.iter().any(too_many) || is_too_thin {
            return Ok(None);
        }
        let after = curves.outlook(&to)?;
        let pays = self.is_worth(&before, &after, copies);
        let why = String::new();
        let step = || Step { moves, arrangement: to, before, after, copies, why };
        Ok(pays.then(step))
    }

    /// Whether a shard has fewer duplicates then, and too few. Partitions have their numbers still.
    fn thins(&self, from: &Arrangement, to: &Arrangement) -> bool {
        let count = |of: &Arrangement, shard: usize| {
            let holder = of.partitions.iter().find(|part| part.shards.contains(&shard));
            holder.map(|part| part.duplicates)
        };
        let mut shards = to
            .partitions
            .iter()
            .flat_map(|part| part.shards.iter().map(|&shard| (shard, part.duplicates)));
        self.duplicates_min > NonZeroU32::MIN
            && shards.any(|(shard, after)| {
                after < self.duplicates_min
                    && count(from, shard).is_some_and(|before| after < before)
            })
    }

    fn is_worth(&self, before: &Outlook, after: &Outlook, copies: u64) -> bool {
        let steady = &self.steadiness;
        if !before.meets {
            let falls = after.violations <= before.violations * (1.0 - steady.gain_min);
            return falls && before.violations > 0.0;
        }
        let needs_room = after.nodes < before.nodes || before.has_room;
        let keeps = if needs_room { after.has_room } else { after.meets };
        let saved = before.cost - after.cost;
        let paid = saved * steady.payback.as_secs_f64();
        keeps && saved > steady.gain_min * before.cost && paid > steady.migration * copies as f64
    }

    fn describe(&self, step: &Step) -> String {
        let did: Vec<String> = step.moves.iter().map(Move::describe).collect();
        let (before, after) = (&step.before, &step.after);
        let percent = |outlook: &Outlook| format!("{:.4} %", 100.0 * outlook.violations);
        let allowed = 100.0 * (1.0 - self.target.value());
        let reason = match (before.meets, after.meets) {
            (false, true) => "the target is missed now and met then",
            (false, false) => "the target is missed, then by less",
            _ if after.nodes < before.nodes => "fewer nodes keep the target with room to spare",
            _ => "it costs less in all",
        };
        format!(
            "{}: {reason} (violations {} → {}, allowed {allowed:.4} %; nodes {} → {}; cost {:.4} → \
             {:.4}; {} shard copies)",
            did.join(", "),
            percent(before),
            percent(after),
            before.nodes,
            after.nodes,
            before.cost,
            after.cost,
            step.copies,
        )
    }
}

impl Move {
    /// In words; partitions and shards by number, from 0.
    pub fn describe(&self) -> String {
        match self {
            Self::Shard { shard, from, to } => {
                format!("move shard {shard} from partition {from} to partition {to}")
            }
            Self::Open { shard, from, duplicates } => format!(
                "move shard {shard} from partition {from} to a new partition of {duplicates}"
            ),
            Self::Add { partition } => format!("add a duplicate to partition {partition}"),
            Self::Remove { partition } => format!("remove a duplicate of partition {partition}"),
        }
    }
}

/// Better: meets the target, with room; then cheaper, or else with fewer violations; then with
/// fewer copies.
fn is_better(one: &Step, other: &Step) -> bool {
    let (a, b) = (&one.after, &other.after);
    let met = (b.has_room, b.meets).cmp(&(a.has_room, a.meets));
    let order = met.then_with(|| {
        let cost = a.cost.total_cmp(&b.cost);
        let level = a.violations.total_cmp(&b.violations);
        if a.meets { cost.then(level) } else { level.then(cost) }
    });
    order.then(one.copies.cmp(&other.copies)).is_lt()
}

/// How many times a shard is copied to a node that did not have it.
fn copies(from: &Arrangement, to: &Arrangement) -> u64 {
    let mut copies = 0;
    for (n, after) in to.partitions.iter().enumerate() {
        let before = from.partitions.get(n);
        let had = before.map_or(0, |before| before.duplicates.get());
        for shard in &after.shards {
            let is_old = before.is_some_and(|before| before.shards.contains(shard));
            let old = if is_old { had } else { 0 };
            copies += u64::from(after.duplicates.get().saturating_sub(old));
        }
    }
    copies
}

/// Everything that could be done next.
fn options(now: &Arrangement, rates: &[Rate], nodes_max: u32) -> Vec<Vec<Move>> {
    let rate = |shard: &usize| rates.get(*shard).map_or(0.0, |rate| rate.value());
    let load = |part: &Partition| part.shards.iter().map(rate).sum::<f64>();
    let loads: Vec<f64> = now.partitions.iter().map(load).collect();
    let spare = u64::from(nodes_max).saturating_sub(now.nodes());
    let mut options = Vec::new();
    for (from, part) in now.partitions.iter().enumerate() {
        options.push(vec![Move::Add { partition: from }]);
        if part.duplicates.get() > 1 {
            options.push(vec![Move::Remove { partition: from }]);
        }
        for to in (0..now.partitions.len()).filter(|&to| to != from) {
            for shard in telling(part, rates, (loads[from] - loads[to]) / 2.0) {
                options.push(vec![Move::Shard { shard, from, to }]);
            }
            if now.partitions[to].duplicates.get() > 1 {
                options.push(vec![Move::Remove { partition: to }, Move::Add { partition: from }]);
            }
        }
        options.extend(closing(now, from, rates, &loads));
        if part.shards.len() > 1 {
            let most = spare.min(u64::from(part.duplicates.get()) + 1);
            for duplicates in (1..=most as u32).filter_map(NonZeroU32::new) {
                for shard in telling(part, rates, loads[from] / 2.0) {
                    options.push(vec![Move::Open { shard, from, duplicates }]);
                }
                options.extend(splitting(now, from, rates, duplicates));
            }
        }
    }
    options
}

/// The shards of a partition worth looking at: the one nearest to this rate, and the extremes.
fn telling(part: &Partition, rates: &[Rate], wanted: f64) -> Vec<usize> {
    let rate = |shard: usize| rates.get(shard).map_or(0.0, |rate| rate.value());
    let by = |key: &dyn Fn(usize) -> f64| {
        part.shards.iter().copied().min_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)))
    };
    let nearest = by(&|shard| (rate(shard) - wanted).abs());
    let (least, most) = (by(&|shard| rate(shard)), by(&|shard| -rate(shard)));
    let mut found: Vec<usize> = [nearest, least, most].into_iter().flatten().collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Shards by falling rate.
fn by_rate(part: &Partition, rates: &[Rate]) -> Vec<usize> {
    let rate = |shard: usize| rates.get(shard).map_or(0.0, |rate| rate.value());
    let mut shards = part.shards.clone();
    shards.sort_by(|&a, &b| rate(b).total_cmp(&rate(a)).then(a.cmp(&b)));
    shards
}

/// All shards of a partition to the others, the largest first, each to where least is.
fn closing(now: &Arrangement, from: usize, rates: &[Rate], loads: &[f64]) -> Option<Vec<Move>> {
    let mut loads = loads.to_vec();
    let mut moves = Vec::new();
    for shard in by_rate(&now.partitions[from], rates) {
        let others = (0..loads.len()).filter(|&to| to != from);
        let to = others.min_by(|&a, &b| loads[a].total_cmp(&loads[b]))?;
        loads[to] += rates.get(shard).map_or(0.0, |rate| rate.value());
        moves.push(Move::Shard { shard, from, to });
    }
    (moves.len() > 1).then_some(moves)
}

/// Half of a partition's load to a new one.
fn splitting(
    now: &Arrangement,
    from: usize,
    rates: &[Rate],
    duplicates: NonZeroU32,
) -> Option<Vec<Move>> {
    let to = now.partitions.len();
    let (mut stays, mut goes) = (0.0, 0.0);
    let mut moves = Vec::new();
    for shard in by_rate(&now.partitions[from], rates) {
        let rate = rates.get(shard).map_or(0.0, |rate| rate.value());
        if goes < stays {
            moves.push(match moves.is_empty() {
                true => Move::Open { shard, from, duplicates },
                false => Move::Shard { shard, from, to },
            });
            goes += rate;
        } else {
            stays += rate;
        }
    }
    (moves.len() > 1).then_some(moves)
}

/// Steps of utilisation between simulated rates.
const CURVE_STEPS: u32 = 40;

/// Violations by rate and number of duplicates, simulated where they are asked for.
struct Curves<'p, 'a> {
    planner: &'p Planner<'a>,
    question: Question<'a>,
    rates: &'p [Rate],
    known: BTreeMap<(NonZeroU32, u32), f64>,
}

impl<'p, 'a> Curves<'p, 'a> {
    fn new(planner: &'p Planner<'a>, rates: &'p [Rate]) -> Result<Self, OutOfRange> {
        let total = Rate::new(rates.iter().map(|rate| rate.value()).sum())?;
        let question = Question { rate: total, ..planner.question };
        Ok(Self { planner, question, rates, known: BTreeMap::new() })
    }

    fn outlook(&mut self, arrangement: &Arrangement) -> Result<Outlook, OutOfRange> {
        let violations = self.violations_at(arrangement, 1.0)?;
        let more = 1.0 + self.planner.steadiness.room.max(0.0);
        let allowed = (1.0 - self.planner.target.value()) * (1.0 + 1e-12);
        let nodes = arrangement.nodes();
        Ok(Outlook {
            violations,
            nodes,
            cost: self.planner.prices.cost(nodes, self.question.rate.value() * violations),
            meets: violations <= allowed,
            has_room: violations <= allowed && self.violations_at(arrangement, more)? <= allowed,
        })
    }

    /// The share of all accesses that are late with so many times the load.
    fn violations_at(&mut self, arrangement: &Arrangement, times: f64) -> Result<f64, OutOfRange> {
        let mut late = 0.0;
        for partition in &arrangement.partitions {
            let mut rate = 0.0;
            for &shard in &partition.shards {
                let expected = "a rate for every shard";
                let of =
                    self.rates.get(shard).ok_or(OutOfRange { came: shard as f64, expected })?;
                rate += of.value();
            }
            late += rate * self.violations(times * rate, partition.duplicates)?;
        }
        let total = self.question.rate.value();
        Ok(if total > 0.0 { late / total } else { 0.0 })
    }

    /// Interpolated between utilisations, on the scale of nines.
    fn violations(&mut self, rate: f64, duplicates: NonZeroU32) -> Result<f64, OutOfRange> {
        let service = self.question.service;
        let known = service.duplicates_max().unwrap_or(usize::MAX);
        let used = (duplicates.get() as usize).min(known);
        let fastest = (0..used).map(|n| service.of(n).mean_nanos()).fold(f64::INFINITY, f64::min);
        let position = rate * fastest / 1e9 * f64::from(CURVE_STEPS);
        if position >= f64::from(CURVE_STEPS) {
            return Ok(1.0);
        }
        let low = position as u32;
        let part = position - f64::from(low);
        let (at, next) = (self.point(low, fastest, duplicates)?, {
            if part == 0.0 { 1.0 } else { self.point(low + 1, fastest, duplicates)? }
        });
        if at <= 0.0 || next <= 0.0 {
            return Ok(at.mul_add(1.0 - part, next * part));
        }
        Ok((at.ln() * (1.0 - part) + next.ln() * part).exp())
    }

    fn point(
        &mut self,
        step: u32,
        mean_nanos: f64,
        duplicates: NonZeroU32,
    ) -> Result<f64, OutOfRange> {
        if step >= CURVE_STEPS {
            return Ok(1.0);
        }
        if let Some(&known) = self.known.get(&(duplicates, step)) {
            return Ok(known);
        }
        let rate = f64::from(step) / f64::from(CURVE_STEPS) * 1e9 / mean_nanos;
        let model = self.planner.model;
        let reported = predict_partition(model, &self.question, Rate::new(rate)?, duplicates)?;
        self.known.insert((duplicates, step), reported.violations);
        Ok(reported.violations)
    }
}
