//! What the last hour cost: by the plans that were in force, had each mechanism had a loop of its
//! own, and had demand been known beforehand.
//!
//! **Signal**: of one epoch in a few, what the plan was made from, what it sent where, and what the
//! next reports say that came: requests of each site's users that ended. **Statistic**: the three
//! are priced alike, by the curves that are believed when the epoch is over, with the demand that
//! came, and added up over an hour ([`Parts`]):
//!
//! - *now*: requests go by the shares of the plan that was in force, up to its caps; content is the
//!   cheapest for what came, since dimmers go by their own arrivals; hedges as planned.
//! - *loops*, as the simulator's: by the plan by [aim](crate::planner::Aim) alone, from the same
//!   forecast; content by latency, hedges always.
//! - *hindsight*, as the simulator's: the plan by price of what came.
//!
//! **When it misleads.** The costs are those that the curves foretell: compare [`Hour::late_seen`]
//! with `now`. Loops cost rather more than this: their dimmer is taken to have settled, with the
//! one of four setpoints that was cheapest in the hour, and it needs many seconds for that.
//! Flows are whole quanta. What an overload leaves for the next epoch is a price, and not work
//! that this one would find.
//!
//! **Bounds.** No more than [`EPOCHS_KEPT`] epochs wait for a replay, which is due once in
//! [`REPLAY_EVERY`] and takes so few of them that it costs about a hundredth of a core; behind it
//! stay sixty sums.

use std::collections::VecDeque;

use super::ALL_PPM;
use super::epoch::{RATE_MAX, SiteId, SiteSet, Snapshot};
use super::joint::{Parts, SETPOINTS, Serving};
use super::planner::{Came, Plan, Planner};
use super::split::SplitConfig;
use evenkeel_core::time::{Duration, Instant, nanos};

/// Time between two replays.
pub const REPLAY_EVERY: Duration = Duration::from_secs(60);
/// Epochs that wait for a replay at most.
pub const EPOCHS_KEPT: usize = 12;
/// How long costs are kept.
const KEPT_FOR: Duration = Duration::from_secs(3_600);
/// CPU time of one replay, as far as the one before tells it: 1 % of a core.
const CPU_MAX: Duration = Duration::from_millis(600);

/// One epoch that is over.
#[derive(Clone, PartialEq, Debug)]
pub struct Epoch {
    /// What its plan was made from.
    told: Snapshot,
    /// What came, and what is believed of the sites since.
    came: Snapshot,
    /// What the plan in force sent.
    plan: Sent,
    /// Whether requests were hedged, by site.
    hedged: Vec<bool>,
    /// The share of requests that were late.
    late: f64,
}

/// What a plan sends.
#[derive(Clone, PartialEq, Debug)]
struct Sent {
    /// By site, requests per 1,000 s that were planned for.
    demand: Vec<u64>,
    /// `[origin][destination]`, of these.
    rates: Vec<Vec<u64>>,
}

impl Sent {
    fn of(plan: &Plan) -> Self {
        let sites = (0..plan.demand_per_1000_s.len()).map(SiteId::new);
        Self {
            demand: plan.demand_per_1000_s.clone(),
            rates: sites.map(|site| plan.rates_per_1000_s(site)).collect(),
        }
    }

    /// Of this demand of a site, what goes to another: the plan's share of it, up to the cap.
    fn of_what_came(&self, from: usize, to: usize, came: u64) -> u64 {
        let (rate, demand) = (u128::from(self.rates[from][to]), u128::from(self.demand[from]));
        let slack = SplitConfig::default().slack.value();
        let slack_ppm = u128::from((slack * f64::from(ALL_PPM)) as u32);
        let cap = rate * (u128::from(ALL_PPM) + slack_ppm) / u128::from(ALL_PPM);
        let share = u128::from(came) * rate / demand.max(1);
        u64::try_from(share.min(cap)).unwrap_or(u64::MAX)
    }
}

/// What epochs cost, summed over them, in requests per second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Costs {
    epochs: u32,
    requests: f64,
    late_seen: f64,
    now: Parts,
    /// By setpoint of the dimmer.
    loops: [Parts; SETPOINTS],
    hindsight: Parts,
}

impl Costs {
    fn add(&mut self, of: &Self) {
        self.epochs = self.epochs.saturating_add(of.epochs);
        self.requests += of.requests;
        self.late_seen += of.late_seen;
        self.now.add(1.0, &of.now);
        self.hindsight.add(1.0, &of.hindsight);
        for (sum, of) in self.loops.iter_mut().zip(&of.loops) {
            sum.add(1.0, of);
        }
    }
}

/// What the last hour cost. Costs are for one request, in requests that miss the objective.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hour {
    /// Epochs that were replayed.
    pub epochs: u32,
    /// Requests per second in them.
    pub requests_per_s: f64,
    /// The share of requests that were late, as it was counted: 0 – 1.
    pub late_seen: f64,
    /// By the plans that were in force.
    pub now: Parts,
    /// With three loops.
    pub loops: Parts,
    /// By plans that knew what would come.
    pub hindsight: Parts,
}

/// The last hour of one process.
#[derive(Clone, Debug)]
pub struct Past {
    period: Duration,
    waiting: Vec<Epoch>,
    /// The last epoch that was kept.
    kept: Option<u64>,
    since: Option<Instant>,
    replayed: VecDeque<(Instant, Costs)>,
}

impl Past {
    /// Nothing was planned yet.
    pub fn new(period: Duration) -> Self {
        Self { period, waiting: Vec::new(), kept: None, since: None, replayed: VecDeque::new() }
    }

    /// An epoch with this plan is over: `came` is the next snapshot, and `hedges` where requests
    /// were hedged. Epochs of which not every member told what came, and those between two that
    /// are kept, are passed over.
    pub fn note(&mut self, told: &Snapshot, plan: &Plan, hedges: SiteSet, came: &Snapshot) {
        let apart = nanos(REPLAY_EVERY) / EPOCHS_KEPT as u64;
        let apart = apart.div_ceil(nanos(self.period).max(1));
        let is_next = (plan.epoch, plan.epoch.checked_add(1)) == (told.epoch, Some(came.epoch));
        let has_all = came.members() == plan.members && came.fresh() == plan.members;
        let is_soon = self.kept.is_some_and(|kept| plan.epoch.abs_diff(kept) < apart);
        let has_room = self.waiting.len() < EPOCHS_KEPT && !is_soon;
        if !(is_next && has_all && has_room && plan.priced.is_some()) {
            return;
        }
        self.kept = Some(plan.epoch);
        let mut came = came.clone();
        let (mut ended, mut late) = (0, 0);
        for row in came.sites.iter_mut().filter_map(|entry| entry.last.as_mut()) {
            let report = &mut row.report;
            ended += report.ended_requests;
            late += report.violations;
            let per_1000_s = u128::from(report.ended_requests) * 1_000_000_000_000;
            let per_1000_s = per_1000_s / u128::from(nanos(self.period).max(1));
            report.demand_per_1000_s = per_1000_s.min(u128::from(RATE_MAX)) as u64;
            report.backlog_requests = 0; // what had waited is among those that ended
        }
        let hedged = (0..came.sites.len()).map(|site| hedges.contains(SiteId::new(site)));
        self.waiting.push(Epoch {
            told: told.clone(),
            hedged: hedged.collect(),
            plan: Sent::of(plan),
            late: late as f64 / ended.max(1) as f64,
            came,
        });
    }

    /// The epochs to replay now, if it is time; `epoch_cpu` is what each took lately. The first one
    /// is replayed as soon as it is there.
    pub fn due(&mut self, now: Instant, epoch_cpu: Duration) -> Option<Vec<Epoch>> {
        let is_early = self.since.is_some_and(|since| now.since(since) < REPLAY_EVERY);
        if is_early || self.waiting.is_empty() {
            return None;
        }
        self.since = Some(now);
        let epochs = core::mem::take(&mut self.waiting);
        let most = nanos(CPU_MAX) / nanos(epoch_cpu).max(1);
        let most = (most as usize).clamp(1, epochs.len());
        let last_of = |part: usize| (part + 1) * epochs.len() / most - 1;
        let chosen: Vec<usize> = (0..most).map(last_of).collect();
        let epochs = epochs.into_iter().enumerate();
        Some(epochs.filter(|(at, _)| chosen.contains(at)).map(|(_, epoch)| epoch).collect())
    }

    /// Takes what a replay came to.
    pub fn take(&mut self, now: Instant, costs: Costs) {
        self.replayed.push_back((now, costs));
        while self.replayed.front().is_some_and(|(at, _)| now.since(*at) >= KEPT_FOR) {
            self.replayed.pop_front();
        }
    }

    /// What the last hour cost; `None` before anything was replayed, and without requests.
    pub fn hour(&self, now: Instant) -> Option<Hour> {
        let mut sum = Costs::default();
        let lately = self.replayed.iter().filter(|(at, _)| now.since(*at) < KEPT_FOR);
        lately.for_each(|(_, costs)| sum.add(costs));
        let best = sum.loops.iter().min_by(|a, b| a.total().total_cmp(&b.total()))?;
        let each = |of: &Parts| {
            let mut parts = Parts::default();
            parts.add(1.0 / sum.requests, of);
            parts
        };
        (sum.requests > 0.0).then(|| Hour {
            epochs: sum.epochs,
            requests_per_s: sum.requests / f64::from(sum.epochs),
            late_seen: sum.late_seen / sum.requests,
            now: each(&sum.now),
            loops: each(best),
            hindsight: each(&sum.hindsight),
        })
    }
}

impl Planner {
    /// Replays epochs of plans by price; all zero without prices. Takes as much time as some plans
    /// for each of them.
    pub fn replay(&self, epochs: &[Epoch]) -> Costs {
        let mut sum = Costs::default();
        for costs in epochs.iter().filter_map(|epoch| self.replay_one(epoch)) {
            sum.add(&costs);
        }
        sum
    }

    fn replay_one(&self, epoch: &Epoch) -> Option<Costs> {
        let came = self.came(&epoch.came)?;
        let planned = came.joint.plan(came.joint.effort()).ok()?;
        let loops = came.flows(&Sent::of(&self.plan_by_aim(&epoch.told)));
        let per_s = came.unit_per_1000_s as f64 * 1e-3;
        let parts = |rates: &[Vec<u32>], serving: Serving<'_>| {
            let mut parts = Parts::default();
            parts.add(per_s, &came.joint.parts(rates, serving));
            parts
        };
        let quanta = came.demand_quanta.iter().copied().map(f64::from).sum::<f64>();
        let requests = quanta * per_s;
        Some(Costs {
            epochs: 1,
            requests,
            late_seen: requests * epoch.late,
            now: parts(&came.flows(&epoch.plan), Serving::Hedged(&epoch.hedged)),
            loops: core::array::from_fn(|setpoint| parts(&loops, Serving::Loops { setpoint })),
            hindsight: parts(&planned.answer.rates, Serving::Cheapest),
        })
    }
}

impl Came {
    /// What a plan would have sent, in quanta: what is not sent stays.
    fn flows(&self, sent: &Sent) -> Vec<Vec<u32>> {
        let sites = 0..self.demand_quanta.len();
        let row = |from: usize| -> Vec<u32> {
            let (demand, mut left) = (self.demand_per_1000_s[from], self.demand_quanta[from]);
            let mut row = vec![0; sites.len()];
            for to in sites.clone().filter(|to| *to != from) {
                let rate = sent.of_what_came(from, to, demand);
                let quanta = (rate + self.unit_per_1000_s / 2) / self.unit_per_1000_s;
                row[to] = u32::try_from(quanta).unwrap_or(u32::MAX).min(left);
                left -= row[to];
            }
            row[from] = left;
            row
        };
        sites.clone().map(row).collect()
    }
}
