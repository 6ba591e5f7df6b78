//! Whether a better layout is worth a move: the "second level of defence" against oscillation that
//! section 6.1 asks for and does not give.
//!
//! **The rule.** A layout is moved to if, against the one of today,
//!
//! 1. it gains at least [`gain_min`](Steady::gain_min) by all that is known, and in each of the
//!    last [`intervals`](Steady::intervals) intervals that had operations, each alone;
//! 2. what it saves within [`payback_intervals`](Steady::payback_intervals) is more than the move
//!    costs ([`MoveCost`]);
//! 3. the last move is at least [`cooldown`](Steady::cooldown) ago, by the clock.
//!
//! **Each alone**, since faded means of neighbouring intervals share most of what they are made of:
//! a spike of 20 times the usual load is still half of what counts three intervals later (τ = 2),
//! and would be its own witness for as long.
//!
//! **Which layout.** The best of those that pass, looked for from the best on. It need not have
//! been the best in each of the intervals: where two far better ones take turns at the top (figure
//! 2), each has gained all the time, and asking for the same winner every time would keep the worst
//! of the three for ever. What it must have is evidence of its own.
//!
//! **No oscillation.** If noise changes the ratio of two layouts' latencies by less than
//! `gain_min`, neither ever passes the first point. Larger noise must agree with itself for several
//! intervals, and the cooldown bounds how often that can happen. A database with a few operations
//! in an interval moves late: its intervals seldom agree.
//!
//! **No state.** Evidence comes from the history, scored anew; a planner that was restarted decides
//! the same. Only when the last move was is noted there.

use std::time::Duration;

use super::history::History;
use super::leader::Ranked;
use super::model::Layout;

/// What changes of a layout cost, each in milliseconds × operations: how much longer all operations
/// together take because of it. Our own numbers, the paper has none.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct MoveCost {
    /// Another leader: operations that wait while nobody leads.
    pub leader: f64,
    /// For each replica that begins or ceases to vote.
    pub voter: f64,
    /// For each new replica, which copies the data.
    pub replica: f64,
}

impl Default for MoveCost {
    /// As if 100 operations waited a second for a leader or a vote, and 1000 for a copy.
    fn default() -> Self {
        Self { leader: 1e5, voter: 1e5, replica: 1e6 }
    }
}

impl MoveCost {
    /// What it costs to come from one layout to another, in milliseconds × operations.
    pub fn of(&self, from: &Layout, to: &Layout) -> f64 {
        let added = |to: &[usize], from: &[usize]| {
            to.iter().filter(|site| from.binary_search(site).is_err()).count() as f64
        };
        let votes = added(to.voters(), from.voters()) + added(from.voters(), to.voters());
        let leads = if from.leader() == to.leader() { 0.0 } else { self.leader };
        let copies = added(to.replicas(), from.replicas());
        self.replica.mul_add(copies, self.voter.mul_add(votes, leads))
    }
}

/// When to move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Steady {
    /// The least share of the latency that a move must save: θ. Section 6.1 names 2 % as a gain
    /// that may not be worth a move.
    pub gain_min: f64,
    /// In how many intervals in a row it must have been saved, the newest among them; 0 counts as
    /// 1.
    pub intervals: usize,
    /// The time that must pass between two moves.
    pub cooldown: Duration,
    /// Within how many intervals a move must have paid for itself.
    pub payback_intervals: f64,
    /// How long an interval is, in seconds.
    pub interval_s: f64,
    /// What moves cost.
    pub cost: MoveCost,
}

impl Default for Steady {
    /// 2 % in three half hours in a row, paid back within four hours, two hours between moves.
    fn default() -> Self {
        Self {
            gain_min: 0.02,
            intervals: 3,
            cooldown: Duration::from_secs(7_200),
            payback_intervals: 8.0,
            interval_s: 1800.0,
            cost: MoveCost::default(),
        }
    }
}

/// Latencies that differ by less than this share are the same, added up in another order.
const ROUNDING: f64 = 1e-9;

/// Whether to move.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict {
    /// Move.
    Move {
        /// There.
        to: Layout,
        /// Why.
        because: Because,
        /// The share of the latency that it saves; below 0 when it costs latency.
        gain_share: f64,
        /// Milliseconds saved in each second, of all operations together.
        saves_ms_per_s: f64,
        /// What the move costs, in milliseconds × operations.
        cost_ms: f64,
    },
    /// Stay.
    Stay {
        /// Why.
        why: Why,
    },
}

/// Why to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Because {
    /// Operations take less long there.
    Faster,
    /// The voters of today are not spread as far as was asked for.
    Spread,
}

/// Why to stay. With several reasons it is the one of the layout that came closest to a move.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Why {
    /// There were no operations.
    NoOperations,
    /// Nothing is better than what there is.
    Best,
    /// The best gains too little.
    SmallGain {
        /// The share of the latency that it saves.
        gain_share: f64,
        /// The least that is asked for.
        gain_min: f64,
    },
    /// It has not been better for long enough.
    TooSoon {
        /// For how many intervals in a row.
        intervals: usize,
        /// How many are asked for.
        wanted: usize,
    },
    /// It saves less than the move costs.
    NotWorthIt {
        /// What it saves until it must have paid, in milliseconds × operations.
        saves_ms: f64,
        /// What the move costs, in the same.
        cost_ms: f64,
    },
    /// The last move was a short while ago.
    Cooldown {
        /// After this time the next one may come.
        left: Duration,
    },
}

impl Why {
    /// How far a layout that was refused for this came.
    const fn stage(&self) -> u8 {
        match self {
            Self::NoOperations => 0,
            Self::Best => 1,
            Self::SmallGain { .. } => 2,
            Self::TooSoon { .. } => 3,
            Self::NotWorthIt { .. } => 4,
            Self::Cooldown { .. } => 5,
        }
    }
}

impl Steady {
    /// Judges layouts, the best first, against the one of today, which takes `today_ms` by all that
    /// is known. `alone_ms` tells what a layout would have taken in the interval of so many
    /// intervals ago alone; it is asked about intervals with operations only.
    pub fn judge(
        &self,
        history: &History,
        today: &Layout,
        today_ms: f64,
        ranked: &[Ranked],
        alone_ms: impl FnMut(&Layout, usize) -> Option<f64>,
    ) -> Verdict {
        let Some(past) = history.past(0) else {
            return Verdict::Stay { why: Why::NoOperations };
        };
        let per_interval = past.operations_per_interval();
        self.judge_past(history, per_interval, today, today_ms, ranked, alone_ms)
    }

    /// The same where it is known that there were operations, so many in an interval.
    pub(super) fn judge_past(
        &self,
        history: &History,
        per_interval: f64,
        today: &Layout,
        today_ms: f64,
        ranked: &[Ranked],
        mut alone_ms: impl FnMut(&Layout, usize) -> Option<f64>,
    ) -> Verdict {
        let mut today_alone: Vec<Option<f64>> = Vec::new();
        let mut why = Why::Best;
        for option in ranked.iter().filter(|option| option.layout != *today) {
            let gain_share = gain(today_ms, option.latency_ms);
            if gain_share < ROUNDING {
                break;
            }
            let busy = history.busy().take(self.intervals.max(1)).enumerate();
            let mut gains = busy.map(|(place, ago)| {
                if place == today_alone.len() {
                    today_alone.push(alone_ms(today, ago));
                }
                match (today_alone[place], alone_ms(&option.layout, ago)) {
                    (Some(today_ms), Some(goal_ms)) => gain(today_ms, goal_ms),
                    _ => 0.0,
                }
            });
            let saves_ms = (today_ms - option.latency_ms) * per_interval;
            let cost_ms = self.cost.of(today, &option.layout);
            match self.refusal(history, gain_share, &mut gains, saves_ms, cost_ms) {
                None => {
                    return Verdict::Move {
                        to: option.layout.clone(),
                        because: Because::Faster,
                        gain_share,
                        saves_ms_per_s: saves_ms / self.interval_s,
                        cost_ms,
                    };
                }
                Some(refusal) if refusal.stage() > why.stage() => why = refusal,
                Some(_) => {}
            }
        }
        Verdict::Stay { why }
    }

    /// Why not to move to one layout.
    fn refusal(
        &self,
        history: &History,
        gain_share: f64,
        gains: &mut dyn Iterator<Item = f64>,
        saves_ms: f64,
        cost_ms: f64,
    ) -> Option<Why> {
        if gain_share < self.gain_min {
            return Some(Why::SmallGain { gain_share, gain_min: self.gain_min });
        }
        let wanted = self.intervals.max(1);
        let held = gains.take_while(|gain| *gain >= self.gain_min).count();
        if held < wanted {
            return Some(Why::TooSoon { intervals: held, wanted });
        }
        let saves_ms = saves_ms * self.payback_intervals;
        if saves_ms <= cost_ms {
            return Some(Why::NotWorthIt { saves_ms, cost_ms });
        }
        self.cooling(history)
    }

    /// Whether the last move was a short while ago.
    pub(super) fn cooling(&self, history: &History) -> Option<Why> {
        let left = self.cooldown.saturating_sub(history.rest()?);
        (!left.is_zero()).then_some(Why::Cooldown { left })
    }
}

/// The share of a latency that another saves; 0 where there is nothing to save.
pub(super) fn gain(today_ms: f64, goal_ms: f64) -> f64 {
    if today_ms > 0.0 { 1.0 - goal_ms / today_ms } else { 0.0 }
}
