//! When partitions and duplicates go for quiet hours, and when they must be back.
//!
//! By day every node is needed; at night [`moves`](super::moves) would keep the target with fewer.
//! What is closed must be there again *before* the morning's rise: copying shards takes a while and
//! costs most when load is high. So this asks of demand what it will be over some hours, not over
//! the next window as the manager does by day.
//!
//! **Signal.** The most accesses per second in each of [`SLOTS`] slots of a day, of the last
//! [`DAYS`] days. A forecast is the *most* of those days, so that Monday's rise is expected though
//! Sunday had none; it is higher where this day is busier than those were, never lower.
//!
//! **Close.** With the rates forecast for the next [`Settings::stays`] the planner of the day, with
//! the same prices, is asked for a step. One that frees nodes and keeps the target with room to
//! spare becomes the *goal*; the arrangement of before is *home*. No partition gets fewer
//! duplicates than [`Settings::duplicates_min`].
//!
//! **Return.** When the arrangement would miss the target with what is forecast of the next
//! [`Settings::lead`] (or twice as long as the way down took), when nothing is forecast of it, or
//! when answers are late in two windows in a row, home is the goal until it is reached. After late
//! answers nothing is closed for half a day: what was closed for would be closed for again.
//!
//! **One step at a time.** Steps are the first difference between what there is and the goal, so
//! one that failed is said again, and one that is done is not. An arrangement that no step of ours
//! leads to is somebody else's: it is the new home, nothing is undone.
//!
//! **When it misleads.** A day unlike the last seven: then answers are late before nodes are back.
//! **Cold start**: nothing is closed before each slot ahead was seen once, which takes a day; so it
//! is with each process that takes over, which also does not know home: what it needs by day it
//! takes from the spare nodes. **Recovery**: a peak is forgotten after [`DAYS`] days.
//!
//! **Source**: Zoolander (ICAC 2013), section 5.4, moves at set hours; the return by forecast is
//! ours.

use std::collections::VecDeque;

use core::num::NonZeroU32;

use super::moves::{Arrangement, Move, Planner, Steadiness};
use evenkeel_core::time::{Duration, Instant, nanos};
use evenkeel_core::units::{OutOfRange, Rate};

/// Parts of a day: quarters of an hour.
pub const SLOTS: usize = 96;
/// Days that are remembered.
pub const DAYS: usize = 7;
/// How much busier than before a day is believed to be.
const GROWTH_MAX: f64 = 2.0;
/// Windows with late answers that end the quiet hours.
const LATE_WINDOWS: u32 = 2;

/// When nodes may go.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// After which time demand repeats. Default a day.
    pub day: Duration,
    /// Quiet for so long, or nothing is closed. Default two hours.
    pub stays: Duration,
    /// So long before demand rises, nodes begin to return, at least. Default half an hour.
    pub lead: Duration,
    /// What durability asks for: no partition is left with fewer.
    pub duplicates_min: NonZeroU32,
}

impl Settings {
    /// A day, two hours, half an hour.
    pub fn new(duplicates_min: NonZeroU32) -> Self {
        Self::of_days(Duration::from_secs(24 * 3_600), duplicates_min)
    }

    /// The same for days of another length: a twelfth of one is quiet, a 48th is the lead.
    pub fn of_days(day: Duration, duplicates_min: NonZeroU32) -> Self {
        Self { day, stays: day / 12, lead: day / 48, duplicates_min }
    }
}

evenkeel_core::named! {
    /// What the hour is for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Stage {
        /// No day has been seen yet.
        Learning = "learning",
        /// All nodes are there.
        Day = "day",
        /// Some are closed, or being closed.
        Quiet = "quiet",
        /// They come back.
        Returning = "returning",
    }
}

/// What a window showed.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// When the window began.
    pub from: Instant,
    /// When it ended.
    pub now: Instant,
    /// How everything is arranged; empty partitions do not count.
    pub arrangement: &'a Arrangement,
    /// Accesses per second, by shard.
    pub rates: &'a [Rate],
    /// Nodes that can be taken; `None`: as many as are wanted.
    pub spares: Option<usize>,
    /// More answers were late than the target allows.
    pub is_late: bool,
    /// Why nothing may be closed: a duplicate is away, predictions do not hold.
    pub unsound: Option<&'static str>,
}

/// What to do, if anything.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// What the hour is for.
    pub stage: Stage,
    /// The next move; none where nothing is to be done now.
    pub step: Option<Move>,
    /// For people.
    pub why: String,
}

/// Demand by the time of day.
#[derive(Clone, Debug)]
struct Days {
    day: Duration,
    /// The most of each slot, NaN where nothing was seen; today is the last one.
    seen: VecDeque<(u64, [f64; SLOTS])>,
    until: Instant,
}

impl Days {
    fn slot(&self, at: Instant) -> u64 {
        let slot = nanos(self.day).max(SLOTS as u64) / SLOTS as u64;
        nanos(at.since(Instant::ZERO)) / slot
    }

    /// Takes what a window had. A gap between two windows, while something was changed, is filled.
    fn note(&mut self, from: Instant, now: Instant, per_s: f64) {
        let is_near = from.since(self.until) <= self.day / 24;
        let from = if is_near { from.min(self.until) } else { from };
        let last = self.slot(now);
        for slot in self.slot(from).max(last.saturating_sub(SLOTS as u64 - 1))..=last {
            let (day, place) = (slot / SLOTS as u64, slot as usize % SLOTS);
            if self.seen.back().is_none_or(|(seen, _)| *seen < day) {
                self.seen.push_back((day, [f64::NAN; SLOTS]));
            }
            if let Some((_, today)) = self.seen.back_mut() {
                today[place] = today[place].max(per_s); // of NaN and a number the number
            }
        }
        while self.seen.len() > DAYS + 1 {
            self.seen.pop_front();
        }
        self.until = now;
    }

    /// The most that is expected until then, this moment included; none where a slot is unknown.
    fn peak(&self, now: Instant, ahead: Duration, per_s: f64) -> Option<f64> {
        let here = self.slot(now);
        // Today's slots tell of tomorrow's, but not of themselves.
        let known = |slot: u64| {
            let (day, place) = (slot / SLOTS as u64, slot as usize % SLOTS);
            let before = self.seen.iter().filter(|(seen, _)| *seen < day);
            let most = before.map(|(_, of)| of[place]).fold(f64::NAN, f64::max);
            (!most.is_nan()).then_some(most)
        };
        let level = known(here).filter(|&before| before > 0.0).map_or(1.0, |before| per_s / before);
        let level = level.clamp(1.0, GROWTH_MAX);
        let until = self.slot(now + ahead).min(here + SLOTS as u64 - 1);
        (here..=until).try_fold(per_s, |most, slot| Some(most.max(level * known(slot)?)))
    }
}

/// What is closed for quiet hours, and how it comes back.
#[derive(Clone, Debug)]
pub struct Nights {
    settings: Settings,
    days: Days,
    /// What there was before anything was closed.
    home: Option<Arrangement>,
    /// What is being gone to.
    goal: Option<Arrangement>,
    is_returning: bool,
    /// What there was when a step was said, and what there is after it.
    expected: Option<[Arrangement; 2]>,
    /// When the goal was set, and how long ways down took.
    begun: Instant,
    took: Duration,
    late: u32,
    /// Before that nothing is closed.
    closes_from: Instant,
}

impl Nights {
    /// One that has seen nothing.
    pub fn new(settings: Settings) -> Self {
        let days = Days { day: settings.day, seen: VecDeque::new(), until: Instant::ZERO };
        Self {
            settings,
            days,
            home: None,
            goal: None,
            is_returning: false,
            expected: None,
            begun: Instant::ZERO,
            took: Duration::ZERO,
            late: 0,
            closes_from: Instant::ZERO,
        }
    }

    /// Whether something is closed, being closed, or coming back.
    pub const fn is_under_way(&self) -> bool {
        self.home.is_some()
    }

    /// Nodes that there were before anything was closed.
    pub fn home_nodes(&self) -> Option<u64> {
        self.home.as_ref().map(Arrangement::nodes)
    }

    /// The most accesses per second that are forecast while nodes would be closed, with this many
    /// now; none before a day was seen.
    pub fn forecast(&self, now: Instant, per_s: f64) -> Option<f64> {
        self.days.peak(now, self.settings.stays, per_s)
    }

    /// Takes a window that does not tell enough to decide by: demand is learnt all the same.
    pub fn note(&mut self, from: Instant, now: Instant, per_s: f64) {
        self.days.note(from, now, per_s);
    }

    /// What a window asks for. `planner` predicts as by day; its floor is not looked at.
    ///
    /// # Errors
    /// When a shard has no rate, or the service times of so many duplicates are not known.
    pub fn decide(&mut self, planner: &Planner<'_>, seen: &Seen<'_>) -> Result<Choice, OutOfRange> {
        let per_s: f64 = seen.rates.iter().map(|rate| rate.value()).sum();
        self.days.note(seen.from, seen.now, per_s);
        self.late = if seen.is_late { self.late + 1 } else { 0 };
        if self.is_others(seen.arrangement) {
            self.forget();
            let why = "somebody else changed the arrangement, which is kept".to_owned();
            return Ok(self.choice(None, why));
        }
        if self.home.is_some()
            && !self.is_returning
            && let Some(why) = self.must_return(planner, seen, per_s)?
        {
            (self.is_returning, self.goal) = (true, self.home.clone());
            self.expected = None;
            if self.late >= LATE_WINDOWS {
                self.closes_from = seen.now + self.settings.day / 2;
            }
            return Ok(self.go_on(seen, &why));
        }
        if self.goal.is_some() && (self.is_returning || seen.unsound.is_none()) {
            let choice = self.go_on(seen, "");
            if choice.step.is_some() || self.is_returning || self.home.is_none() {
                return Ok(choice);
            }
        }
        match seen.unsound {
            Some(why) => Ok(self.choice(None, why.to_owned())),
            None => self.close(planner, seen, per_s),
        }
    }

    fn choice(&self, step: Option<Move>, why: String) -> Choice {
        let stage = match (&self.home, self.is_returning) {
            (Some(_), true) => Stage::Returning,
            (Some(_), false) => Stage::Quiet,
            (None, _) => Stage::Day,
        };
        Choice { stage, step, why }
    }

    fn forget(&mut self) {
        (self.home, self.goal, self.expected, self.is_returning) = (None, None, None, false);
        (self.took, self.late) = (Duration::ZERO, 0);
    }

    /// Whether the arrangement is neither what it was nor what a step of ours makes of it.
    fn is_others(&self, now: &Arrangement) -> bool {
        let expected = self.expected.as_ref();
        expected.is_some_and(|ours| ours.iter().all(|one| alike(one) != alike(now)))
    }

    fn must_return(
        &self,
        planner: &Planner<'_>,
        seen: &Seen<'_>,
        per_s: f64,
    ) -> Result<Option<String>, OutOfRange> {
        if self.late >= LATE_WINDOWS {
            return Ok(Some("answers are late".to_owned()));
        }
        let lead = self.settings.lead.max(2 * self.took);
        let Some(peak) = self.days.peak(seen.now, lead, per_s) else {
            return Ok(Some("nothing is known of the demand ahead".to_owned()));
        };
        let outlook = planner.outlook(seen.arrangement, &scaled(seen.rates, peak, per_s))?;
        let why = || format!("{peak:.0} accesses/s are forecast within {lead:?}");
        Ok((!outlook.meets).then(why))
    }

    /// The next step to the goal; without one it is reached.
    fn go_on(&mut self, seen: &Seen<'_>, why: &str) -> Choice {
        let Some(goal) = &self.goal else { return self.choice(None, why.to_owned()) };
        let Some(step) = toward(seen.arrangement, goal) else {
            self.goal = None;
            if self.is_returning {
                self.forget();
                return self.choice(None, "all nodes are back".to_owned());
            }
            self.took += seen.now.since(self.begun);
            self.expected = Some([seen.arrangement.clone(), seen.arrangement.clone()]);
            return self.choice(None, "the nodes that were not needed are closed".to_owned());
        };
        let wanted = match step {
            Move::Open { duplicates, .. } => duplicates.get() as usize,
            Move::Add { .. } => 1,
            Move::Shard { .. } | Move::Remove { .. } => 0,
        };
        if seen.spares.is_some_and(|spares| spares < wanted) {
            self.forget();
            let why = format!("{wanted} spare nodes are needed to return, and there are fewer");
            return self.choice(None, why);
        }
        let Ok(after) = seen.arrangement.after(&step) else {
            self.forget();
            return self.choice(None, "the arrangement is not what it was".to_owned());
        };
        self.expected = Some([seen.arrangement.clone(), after]);
        let nodes = goal.nodes();
        let why = if why.is_empty() { "it goes on".to_owned() } else { why.to_owned() };
        let why = format!("{why}; to {nodes} nodes: {}", step.describe());
        self.choice(Some(step), why)
    }

    fn close(
        &mut self,
        planner: &Planner<'_>,
        seen: &Seen<'_>,
        per_s: f64,
    ) -> Result<Choice, OutOfRange> {
        let stays = self.settings.stays;
        if seen.now < self.closes_from {
            let why = "answers were late with fewer nodes less than half a day ago".to_owned();
            return Ok(self.choice(None, why));
        }
        let Some(peak) = self.days.peak(seen.now, stays, per_s) else {
            let choice = self.choice(None, "a whole day has not been seen yet".to_owned());
            return Ok(Choice { stage: Stage::Learning, ..choice });
        };
        // What is moved is moved back.
        let migration = 2.0 * planner.steadiness.migration;
        let steadiness = Steadiness { payback: stays, migration, ..planner.steadiness };
        let duplicates_min = self.settings.duplicates_min;
        let planner = Planner { steadiness, duplicates_min, ..planner.clone() };
        let rates = scaled(seen.rates, peak, per_s);
        let step = planner.next(seen.arrangement, &rates, None)?;
        let Some(step) = step.filter(|step| step.after.nodes < step.before.nodes) else {
            let why = format!("no node is too many for the {peak:.0} accesses/s within {stays:?}");
            return Ok(self.choice(None, why));
        };
        self.home.get_or_insert_with(|| seen.arrangement.clone());
        (self.goal, self.begun) = (Some(step.arrangement), seen.now);
        let why = format!("at most {peak:.0} accesses/s within {stays:?}; {}", step.why);
        Ok(self.go_on(seen, &why))
    }
}

/// Rates of the shards when all together are the peak.
fn scaled(rates: &[Rate], peak: f64, per_s: f64) -> Vec<Rate> {
    let times = if per_s > 0.0 { peak / per_s } else { 1.0 };
    let even = if per_s > 0.0 { 0.0 } else { peak / rates.len().max(1) as f64 };
    rates.iter().map(|rate| Rate::new(times.mul_add(rate.value(), even)).unwrap_or(*rate)).collect()
}

/// The same for arrangements that differ in the numbers of their partitions only.
fn alike(arrangement: &Arrangement) -> Vec<(Vec<usize>, NonZeroU32)> {
    let held = arrangement.partitions.iter().filter(|part| !part.shards.is_empty());
    let mut all: Vec<_> = held
        .map(|part| {
            let mut shards = part.shards.clone();
            shards.sort_unstable();
            (shards, part.duplicates)
        })
        .collect();
    all.sort_unstable();
    all
}

/// The first difference: partitions are opened and get duplicates, then shards move, and only then
/// duplicates go.
fn toward(now: &Arrangement, goal: &Arrangement) -> Option<Move> {
    let becomes = matched(now, goal);
    let owner = |shard: usize| now.partitions.iter().position(|it| it.shards.contains(&shard));
    let wanted = || goal.partitions.iter().zip(&becomes);
    let opened = wanted().find(|(_, place)| place.is_none()).and_then(|(part, _)| {
        let shard = *part.shards.first()?;
        Some(Move::Open { shard, from: owner(shard)?, duplicates: part.duplicates })
    });
    let count = |place: usize| now.partitions.get(place).map(|part| part.duplicates);
    let thin = wanted().find_map(|(part, place)| {
        let partition = (*place)?;
        (count(partition)? < part.duplicates).then_some(Move::Add { partition })
    });
    let moved = wanted().find_map(|(part, place)| {
        let to = (*place)?;
        let away = part.shards.iter().find(|&&shard| owner(shard) != Some(to));
        away.and_then(|&shard| Some(Move::Shard { shard, from: owner(shard)?, to }))
    });
    let thick = wanted().find_map(|(part, place)| {
        let partition = (*place)?;
        (count(partition)? > part.duplicates).then_some(Move::Remove { partition })
    });
    opened.or(thin).or(moved).or(thick)
}

/// By partition of the goal: the one that becomes it, which has most of its shards.
fn matched(now: &Arrangement, goal: &Arrangement) -> Vec<Option<usize>> {
    let mut pairs = Vec::new();
    for (to, wanted) in goal.partitions.iter().enumerate() {
        for (from, part) in now.partitions.iter().enumerate() {
            let common = part.shards.iter().filter(|shard| wanted.shards.contains(shard)).count();
            if common > 0 {
                pairs.push((core::cmp::Reverse(common), to, from));
            }
        }
    }
    pairs.sort_unstable();
    let mut becomes = vec![None; goal.partitions.len()];
    for (_, to, from) in pairs {
        if becomes[to].is_none() && !becomes.contains(&Some(from)) {
            becomes[to] = Some(from);
        }
    }
    becomes
}
