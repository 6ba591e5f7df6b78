//! How databases stand, for people and programs: a picture that the service replaces.
//!
//! Every key carries its unit. `null` means that nobody knows.

use std::fmt;

use evenkeel_planner::explain::{Overhead, Row, Shift};
use evenkeel_planner::model::Layout;
use evenkeel_planner::planner::Decision;
use evenkeel_planner::steady::Verdict;
use serde::{Deserialize, Serialize};

/// How the placement of one process stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlacementState {
    /// Time between decisions.
    pub interval_s: f64,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// What every `_ms` is, and what is to be small: `mean`, or a percentile such as `p99`.
    pub objective: String,
    /// When moves may begin, in words; `None` = always.
    pub window: Option<String>,
    /// Intervals that were decided about since the start.
    pub rounds: u64,
    /// When the last one was, in milliseconds since 1970; `None` before the first.
    pub decided_unix_ms: Option<u64>,
    /// How long it took from the first question to the last decision, moves left out.
    pub round_ms: Option<f64>,
    /// CPU time of its decisions, all threads together, as far as one clock tells.
    pub decisions_ms: Option<f64>,
    /// The databases, in the order of the configuration.
    pub databases: Vec<DatabaseState>,
}

/// How one database stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatabaseState {
    /// Its name.
    pub name: String,
    /// `etcd`, `patroni`, `zookeeper`, `nats`, or `none`: moves are only recommended.
    pub system: &'static str,
    /// What may change: 1 the leader, 2 voters too, 3 replicas too.
    pub tier: u8,
    /// Where everything is, as it was seen last.
    pub layout: Option<LayoutState>,
    /// Where it should be, if anywhere else; else the best of all others.
    pub goal: Option<LayoutState>,
    /// What operations take today by all that is known: on average, or the percentile.
    pub now_ms: Option<f64>,
    /// What they would take under the goal.
    pub goal_ms: Option<f64>,
    /// `move`, `stay`, or `undecided`: something is missing.
    pub verdict: &'static str,
    /// Why, in a sentence or two.
    pub why: String,
    /// What a move waits for, or why it did not come true, in a sentence.
    pub waits_for: Option<String>,
    /// What would be done in a dry run: requests or commands, in order.
    pub would_do: Vec<String>,
    /// What would have been said at the end of each interval, the newest first: figure 2.
    pub intervals: Vec<IntervalState>,
    /// The clients whose share of operations changed most since the last move.
    pub clients: Vec<ShiftState>,
    /// The share of each kind of operation, then and now.
    pub operations: Vec<ShiftState>,
    /// What was done to it last, the newest first.
    pub moves: Vec<MoveState>,
    /// Why the last interval is not known; `None` when it is.
    pub problem: Option<String>,
    /// Replicas that were not well when they were seen last.
    pub unwell: u64,
    /// What somebody should mend.
    pub warnings: Vec<String>,
    /// What was counted since the start.
    pub counts: CountsState,
}

/// Where leader, voters and replicas are, by the names of sites.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutState {
    /// Who leads.
    pub leader: String,
    /// Who votes, the leader among them.
    pub voters: Vec<String>,
    /// Who has the data, the voters among them.
    pub replicas: Vec<String>,
}

/// One line of figure 2.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct IntervalState {
    /// How many intervals ago.
    pub ago: usize,
    /// The best, the second and the third.
    pub best: Vec<OptionState>,
    /// The layout of today.
    pub today: OptionState,
}

/// A layout against the best of its time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OptionState {
    /// The layout.
    #[serde(flatten)]
    pub layout: LayoutState,
    /// What operations take under it.
    pub latency_ms: f64,
    /// By what share that is more than the best: 0 for the best itself.
    pub overhead: f64,
}

/// A share of all operations, then and now.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ShiftState {
    /// Whose.
    pub of: String,
    /// At the last move, or else in the oldest interval that is kept.
    pub before: f64,
    /// Now.
    pub now: f64,
}

/// Something that was done, from the audit log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MoveState {
    /// When: RFC 3339 in UTC.
    pub at: String,
    /// `reached`, `stopped`, `refused`, `unfinished` or `interrupted`.
    pub event: String,
    /// The reason that was given for it.
    pub why: String,
    /// Where it ended, if not at its goal.
    pub result: String,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CountsState {
    /// Intervals whose operations are known.
    pub collected: u64,
    /// Intervals that were skipped, since their operations are not.
    pub collect_failures: u64,
    /// Looks at the store that saw nothing.
    pub store_failures: u64,
    /// Decisions to move.
    pub decided_to_move: u64,
    /// Decisions to stay.
    pub decided_to_stay: u64,
    /// Intervals without a decision: nothing was known, or the store could not be seen.
    pub undecided: u64,
    /// Moves that reached their goal.
    pub moves: u64,
    /// Moves that stopped before it.
    pub stopped: u64,
}

impl LayoutState {
    /// A layout with the names of its sites.
    pub fn of(layout: &Layout, sites: &[String]) -> Self {
        Self::named(layout, &|site| sites.get(site).cloned().unwrap_or_default())
    }

    /// A layout whose sites are called like this.
    pub(super) fn named(layout: &Layout, name: &dyn Fn(usize) -> String) -> Self {
        let names = |sites: &[usize]| sites.iter().map(|site| name(*site)).collect();
        let (voters, replicas) = (names(layout.voters()), names(layout.replicas()));
        Self { leader: name(layout.leader()), voters, replicas }
    }

    /// The layout that has these names, if each is one's.
    pub(super) fn layout(&self, site: &dyn Fn(&str) -> Option<usize>) -> Option<Layout> {
        let sites = |names: &[String]| names.iter().map(|name| site(name)).collect::<Option<_>>();
        Layout::new(site(&self.leader)?, sites(&self.voters)?, sites(&self.replicas)?).ok()
    }
}

impl fmt::Display for LayoutState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (voters, replicas) = (self.voters.join(", "), self.replicas.join(", "));
        write!(f, "{} leads, {voters} vote, {replicas} have the data", self.leader)
    }
}

impl OptionState {
    fn of(option: &Overhead, sites: &[String]) -> Self {
        Self {
            layout: LayoutState::of(&option.layout, sites),
            latency_ms: rounded(option.latency_ms),
            overhead: rounded(option.overhead),
        }
    }
}

impl DatabaseState {
    /// Takes over what was decided; `clients` and `sites` are names.
    pub(super) fn adopt(&mut self, decision: &Decision, clients: &[String], sites: &[String]) {
        self.verdict = match decision.verdict {
            Verdict::Move { .. } => "move",
            Verdict::Stay { .. } => "stay",
        };
        let goal = LayoutState::of(&decision.goal, sites);
        self.goal = Some(goal).filter(|goal| self.layout.as_ref() != Some(goal));
        self.now_ms = decision.today_ms.map(rounded);
        self.goal_ms = decision.goal_ms.map(rounded);
        let row = |row: &Row| IntervalState {
            ago: row.ago,
            best: row.best.iter().map(|option| OptionState::of(option, sites)).collect(),
            today: OptionState::of(&row.today, sites),
        };
        let explanation = &decision.explanation;
        self.intervals = explanation.rows.iter().map(row).collect();
        self.clients = (explanation.clients.iter())
            .map(|shift| shift_state(shift, clients.get(shift.of).map_or("", String::as_str)))
            .collect();
        self.operations = explanation
            .operations
            .iter()
            .map(|shift| shift_state(shift, shift.of.name()))
            .collect();
    }

    /// Forgets what was decided, since nothing can be. What was said of earlier intervals stays.
    pub(super) fn undecide(&mut self, why: String) {
        self.verdict = "undecided";
        self.why = why;
        (self.goal, self.now_ms, self.goal_ms) = (None, None, None);
    }
}

fn shift_state<T>(shift: &Shift<T>, of: &str) -> ShiftState {
    let (before, now) = (rounded(shift.before), rounded(shift.now));
    ShiftState { of: of.to_owned(), before, now }
}

/// To the millionth: digits beyond what was measured only make the answer longer.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}
