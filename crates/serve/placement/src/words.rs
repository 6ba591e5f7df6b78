//! Why a database moves or stays, as a sentence.

use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_planner::explain::Shift;
use evenkeel_planner::model::Layout;
use evenkeel_planner::planner::{Decision, Objective};
use evenkeel_planner::steady::{Because, Steady, Verdict, Why};
use evenkeel_settings::format_duration;

/// A change of a client's share below this is no cause.
const SHIFT_MIN: f64 = 0.01;

/// What words are about.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) sites: &'a [String],
    pub(super) clients: &'a [String],
    pub(super) steady: &'a Steady,
    pub(super) objective: Objective,
}

impl About<'_> {
    /// Why, with names and numbers.
    pub(super) fn why(&self, today: &Layout, decision: &Decision) -> String {
        let refused = match decision.refused.is_empty() {
            true => "",
            false => " What tier 3 found spreads its voters too little and was left out.",
        };
        self.verdict(today, decision) + refused
    }

    fn verdict(&self, today: &Layout, decision: &Decision) -> String {
        let steady = self.steady;
        let change = self.change(today, &decision.goal);
        match &decision.verdict {
            Verdict::Move { because, gain_share, .. } => {
                let reason = match because {
                    Because::Faster => format!(
                        "{}, {} less; it was so in {}.",
                        self.latencies(decision),
                        percent(*gain_share),
                        match steady.intervals {
                            0 | 1 => "the last interval".to_owned(),
                            many => format!("each of the last {many} intervals"),
                        }
                    ),
                    Because::Spread => format!(
                        "the voters of today are not spread over as many failure domains as was \
                         asked for; {}.",
                        self.latencies(decision)
                    ),
                };
                format!("Move {change}: {reason}{}", self.cause(decision))
            }
            Verdict::Stay { why } => self.why_not(*why, &change, decision),
        }
    }

    fn why_not(&self, why: Why, change: &str, decision: &Decision) -> String {
        let if_moved = format!("It stays. Moving {change}: {}", self.latencies(decision));
        let reason = match why {
            Why::NoOperations => return "It stays: no operations were counted yet.".to_owned(),
            Why::Best => {
                let now = decision.today_ms.map_or(String::new(), |ms| format!(", {}", millis(ms)));
                return format!("It stays: no other layout that is allowed is faster{now}.");
            }
            Why::SmallGain { gain_share, gain_min } => format!(
                ", {} less: a move must save at least {}.",
                percent(gain_share),
                percent(gain_min)
            ),
            Why::TooSoon { intervals, wanted } => format!(
                ": that was so in {intervals} of the last {wanted} intervals, and must be in each \
                 of them."
            ),
            Why::NotWorthIt { saves_ms, cost_ms } => format!(
                ": that saves all operations together {} until a move must have paid for itself, \
                 and the move costs them {}.",
                seconds(saves_ms),
                seconds(cost_ms)
            ),
            Why::Cooldown { left } => {
                let left = format_duration(Duration::from_secs(left.as_secs_f64().ceil() as u64));
                format!(": the last move was a short while ago, the next may come after {left}.")
            }
        };
        format!("{if_moved}{reason}{}", self.cause(decision))
    }

    fn latencies(&self, decision: &Decision) -> String {
        let (Some(today), Some(goal)) = (decision.today_ms, decision.goal_ms) else {
            return "how long operations take is not known".to_owned();
        };
        let (today, goal) = (millis(today), millis(goal));
        match self.objective {
            Objective::Mean => format!("operations take {today} now and would take {goal}"),
            Objective::Percentile(p) => {
                let of = percent_of(p);
                format!("{of} % of operations take at most {today} now and would take {goal}")
            }
        }
    }

    /// What a move changes.
    fn change(&self, today: &Layout, goal: &Layout) -> String {
        let name = |site: usize| self.sites.get(site).map_or("?", String::as_str);
        let names = |of: &[usize], not: &[usize]| -> Vec<&str> {
            of.iter().filter(|site| !not.contains(site)).map(|site| name(*site)).collect()
        };
        let mut parts = Vec::new();
        if today.leader() != goal.leader() {
            let (from, to) = (name(today.leader()), name(goal.leader()));
            parts.push(format!("the leader from {from} to {to}"));
        }
        let mut moved = |what: &str, before: &[usize], after: &[usize]| {
            let (gone, come) = (names(before, after), names(after, before));
            if !(gone.is_empty() && come.is_empty()) {
                let (gone, come) = (listed(&gone), listed(&come));
                parts.push(format!("{what} from {gone} to {come}"));
            }
        };
        moved("votes", today.voters(), goal.voters());
        moved("replicas", today.replicas(), goal.replicas());
        if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
    }

    /// Whose share of the operations grew most.
    fn cause(&self, decision: &Decision) -> String {
        let growth = |shift: &Shift<usize>| shift.now - shift.before;
        let grown = decision.explanation.clients.iter();
        let grown = grown.max_by(|one, other| growth(one).total_cmp(&growth(other)));
        let Some(Shift { of, before, now }) = grown else {
            return String::new();
        };
        if now - before < SHIFT_MIN {
            return String::new();
        }
        let client = self.clients.get(*of).map_or("?", String::as_str);
        let since = decision.explanation.since;
        format!(
            " {client} makes {} of all operations; {} ago it made {}.",
            percent(*now),
            intervals(since),
            percent(*before)
        )
    }
}

/// A percentile as people write it: 99, 99.9.
pub(super) fn percent_of(p: Probability) -> String {
    format!("{}", (p.value() * 1e5).round() / 1e3)
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nowhere".to_owned() } else { names.join(" and ") }
}

fn intervals(number: usize) -> String {
    if number == 1 { "1 interval".to_owned() } else { format!("{number} intervals") }
}

fn millis(ms: f64) -> String {
    if ms < 9.95 { format!("{ms:.2} ms") } else { format!("{ms:.1} ms") }
}

fn seconds(ms: f64) -> String {
    format!("{:.1} s", ms / 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
