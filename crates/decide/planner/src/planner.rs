//! One decision for one database: what a service asks every interval and a command once.
//!
//! ```
//! use std::sync::Arc;
//! use evenkeel_planner::history::{History, Interval};
//! use evenkeel_planner::model::{Counts, Layout, RoundTrips};
//! use evenkeel_planner::planner::{Config, Planner};
//! use evenkeel_planner::steady::{Steady, Verdict};
//!
//! // Two sites 20 ms apart, and a client at the second that writes 50 000 times in an interval.
//! let between = [vec![0.0, 20.0], vec![20.0, 0.0]];
//! let trips = Arc::new(RoundTrips::new(&[vec![20.0, 0.0]], &between)?);
//! let counts = Counts::new(vec![[0.0, 0.0, 0.0, 5e4, 0.0]])?;
//! let mut history = History::default();
//! history.push(Interval::new(counts, trips)?)?;
//!
//! let steady = Steady { intervals: 1, ..Steady::default() };
//! let planner = Planner::new(Config { steady, ..Config::default() });
//! let today = Layout::new(0, vec![0, 1], vec![0, 1])?;
//! let decision = planner.decide(&history, &today)?;
//! assert_eq!((decision.today_ms, decision.goal_ms), (Some(40.0), Some(20.0)));
//! assert!(matches!(decision.verdict, Verdict::Move { to, .. } if to.leader() == 1));
//! # Ok::<(), Box<dyn core::error::Error>>(())
//! ```

use super::domains::{Diversity, Domains, TooFew, VoterRule};
use super::explain::Explanation;
use super::folded::{Alone, Folded};
use super::history::{History, Past};
use super::leader::{self, Ranked};
use super::model::{BadInput, Layout, Route};
use super::steady::{Because, Steady, Verdict, Why, gain};
use super::tail;
use super::voters;
use evenkeel_core::units::Probability;

/// What a decision may change. Tier 3 comes as [candidates](Planner::decide_among).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Tier {
    /// Who of the voters leads.
    #[default]
    Leader,
    /// Who of the replicas votes and leads.
    Voters,
}

/// What is to be small.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Objective {
    /// The mean latency of all operations.
    #[default]
    Mean,
    /// A percentile of the latency of all operations together (section 3.1). Needs
    /// [distributions](History::adopt_tails) of round trips.
    Percentile(Probability),
}

/// How decisions are made.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// What may change.
    pub tier: Tier,
    /// What is to be small.
    pub objective: Objective,
    /// Which replica clients read from.
    pub route: Route,
    /// Which failure domain each site is in; none: each in its own.
    pub domains: Option<Domains>,
    /// How far voters must be spread; none: at least as far as they are today.
    pub diversity: Option<Diversity>,
    /// Whether the leader stays where it is: the system lets nobody move it.
    pub leader_stays: bool,
    /// When to move.
    pub steady: Steady,
    /// How many intervals a decision explains; 0 where nobody looks, which saves most of the time.
    pub explain_intervals: usize,
}

/// Makes decisions.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Planner {
    config: Config,
}

/// What to do with a database.
#[derive(Clone, PartialEq, Debug)]
pub struct Decision {
    /// Where it should move if the verdict is to move; otherwise the best layout there is, today's
    /// if there were no operations.
    pub goal: Layout,
    /// What operations take today, in milliseconds; none if there were none.
    pub today_ms: Option<f64>,
    /// What they would take under the goal, in milliseconds; none if there were none.
    pub goal_ms: Option<f64>,
    /// All layouts that were looked at and allowed, the best first; today's among them if it is
    /// allowed.
    pub ranked: Vec<Ranked>,
    /// Candidates that were handed in and spread their voters too little.
    pub refused: Vec<Layout>,
    /// Whether to move.
    pub verdict: Verdict,
    /// Why, if that was asked for.
    pub explanation: Explanation,
}

/// Why there is no decision.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Undecided {
    /// What came makes no problem.
    #[error("{0}")]
    Input(#[from] BadInput),
    /// No voter set is allowed.
    #[error("{0}")]
    TooFew(#[from] TooFew),
    /// A percentile was asked for, and no distributions of round trips were measured.
    #[error(
        "a percentile was asked for, distributions of round trips were expected and there are \
         only means: measure them or ask for the mean"
    )]
    NoTails,
}

impl Planner {
    /// A planner that decides by this.
    pub const fn new(config: Config) -> Self {
        Self { config }
    }

    /// What it decides by.
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// Decides by tiers 1 or 2.
    ///
    /// # Errors
    /// When the layout or the domains do not fit the history, no voter set is allowed, or there are
    /// no distributions for a percentile.
    pub fn decide(&self, history: &History, today: &Layout) -> Result<Decision, Undecided> {
        self.decide_among(history, today, &[])
    }

    /// Decides by tiers 1 or 2, and among these layouts, which tier 3 supplies.
    ///
    /// # Errors
    /// As [`decide`](Self::decide), and when a candidate has a site that there is not.
    pub fn decide_among(
        &self,
        history: &History,
        today: &Layout,
        candidates: &[Layout],
    ) -> Result<Decision, Undecided> {
        let Some(past) = history.past(0) else {
            return Ok(Decision::nothing(today));
        };
        let sites = past.newest().trips().sites();
        for layout in candidates.iter().chain([today]) {
            layout.check(sites)?;
        }
        let own =
            if self.config.domains.is_none() { Some(Domains::each_its_own(sites)) } else { None };
        let domains = self.config.domains.as_ref().or(own.as_ref()).expect("one of both is there");
        domains.check(sites)?;
        let rule = self.rule(domains, today);
        let (candidates, refused): (Vec<Layout>, Vec<Layout>) =
            candidates.iter().cloned().partition(|layout| self.admits(layout, today, &rule));
        let ranked = self.rank(&past, today, &candidates, &rule)?;
        // What was ranked is known; scoring it again is most of the time of a decision.
        let known_ms = |layout: &Layout| match ranked.iter().find(|one| one.layout == *layout) {
            Some(one) => Ok(one.latency_ms),
            None => self.latency_ms(&past, layout),
        };
        let today_ms = known_ms(today)?;
        let verdict = self.verdict(history, &past, today, today_ms, &ranked, &rule);
        let explanation = self.explain(history, today, &candidates, &rule);
        let goal = match &verdict {
            Verdict::Move { to, .. } => to,
            Verdict::Stay { why: Why::Best } => today,
            Verdict::Stay { .. } => ranked.first().map_or(today, |best| &best.layout),
        };
        Ok(Decision {
            today_ms: Some(today_ms),
            goal_ms: Some(known_ms(goal)?),
            goal: goal.clone(),
            ranked,
            refused,
            verdict,
            explanation,
        })
    }

    /// What the operations of a past take under a layout by the objective, in milliseconds.
    ///
    /// # Errors
    /// When there are no distributions for a percentile.
    pub fn latency_ms(&self, past: &Past<'_>, layout: &Layout) -> Result<f64, Undecided> {
        match self.config.objective {
            Objective::Mean => Ok(past.mean_ms(layout, self.config.route)),
            Objective::Percentile(p) => {
                tail::percentile_ms(past, layout, self.config.route, p).ok_or(Undecided::NoTails)
            }
        }
    }

    /// How far so many voters must be spread: what tier 3 has to keep for its candidates to be
    /// taken. Where nobody configured how far, it is as far as today's, if that can be: fewer
    /// voters are in fewer domains, and more of them may have to share one.
    ///
    /// # Panics
    /// When a voter of today is at none of the configured domains' sites.
    pub fn diversity_of(&self, today: &Layout, voters: usize) -> Diversity {
        let kept = self.diversity(today);
        match (&self.config.diversity, &self.config.domains) {
            (Some(_), _) => kept,
            (None, Some(domains)) => domains.relaxed(kept, voters),
            (None, None) => Diversity { domains_min: kept.domains_min.min(voters), ..kept },
        }
    }

    /// How far today's voters, or as many, must be spread.
    fn diversity(&self, today: &Layout) -> Diversity {
        let voters = today.voters();
        self.config.diversity.unwrap_or_else(|| match &self.config.domains {
            Some(domains) => domains.level(voters),
            None => Diversity { domains_min: voters.len(), per_domain_max: 1 },
        })
    }

    /// Whether a candidate of tier 3 spreads its voters enough.
    fn admits(&self, layout: &Layout, today: &Layout, rule: &VoterRule<'_>) -> bool {
        let wanted = self.diversity_of(today, layout.voters().len());
        rule.domains.level(layout.voters()).meets(wanted)
    }

    fn rule<'a>(&self, domains: &'a Domains, today: &Layout) -> VoterRule<'a> {
        VoterRule { count: today.voters().len(), domains, diversity: self.diversity(today) }
    }

    fn rank(
        &self,
        past: &Past<'_>,
        today: &Layout,
        candidates: &[Layout],
        rule: &VoterRule<'_>,
    ) -> Result<Vec<Ranked>, Undecided> {
        let (route, replicas, keep) = (self.config.route, today.replicas(), today.voters());
        let is_mean = self.config.objective == Objective::Mean;
        let folded = is_mean.then(|| Folded::of(past, replicas, route));
        let sums = || folded.as_ref().expect("they are made for means");
        let mean_ms = |layout: &Layout| {
            let folded = folded.as_ref().filter(|_| layout.replicas() == replicas)?;
            Some(folded.mean_ms(layout.leader(), layout.voters()))
        };
        let mut ranked = match (self.config.tier, self.config.objective) {
            (Tier::Leader, Objective::Mean) => leader::rank_folded(sums(), today),
            (Tier::Voters, Objective::Mean) => {
                voters::rank_folded(sums(), past.newest().trips(), rule, keep)?
            }
            (Tier::Leader, Objective::Percentile(p)) => {
                tail::rank_leaders(past, today, route, p).ok_or(Undecided::NoTails)?
            }
            (Tier::Voters, Objective::Percentile(p)) => {
                tail::rank_voters(past, replicas, rule, route, keep, p)?
                    .ok_or(Undecided::NoTails)?
            }
        };
        let leader = today.leader();
        let today = Some(today).filter(|today| rule.admits_spread(today.voters()));
        for layout in candidates.iter().chain(today) {
            if ranked.iter().all(|option| option.layout != *layout) {
                let latency_ms = match mean_ms(layout) {
                    Some(ms) => ms,
                    None => self.latency_ms(past, layout)?,
                };
                ranked.push(Ranked { layout: layout.clone(), latency_ms });
            }
        }
        if self.config.leader_stays {
            ranked.retain(|option| option.layout.leader() == leader);
        }
        if is_mean {
            Ranked::sort(&mut ranked);
            return Ok(ranked);
        }
        // Percentiles fall on steps: the layout of the lesser mean comes first of equal ones.
        Ok(tail::sorted(past, route, ranked.into_iter()))
    }

    fn verdict(
        &self,
        history: &History,
        past: &Past<'_>,
        today: &Layout,
        today_ms: f64,
        ranked: &[Ranked],
        rule: &VoterRule<'_>,
    ) -> Verdict {
        let steady = &self.config.steady;
        let spread = |option: &&Ranked| rule.admits_spread(option.layout.voters());
        if let Some(best) = ranked.iter().find(spread)
            && !rule.admits_spread(today.voters())
        {
            if let Some(why) = steady.cooling(history) {
                return Verdict::Stay { why };
            }
            let saves_ms = (today_ms - best.latency_ms) * past.operations_per_interval();
            return Verdict::Move {
                to: best.layout.clone(),
                because: Because::Spread,
                gain_share: gain(today_ms, best.latency_ms),
                saves_ms_per_s: saves_ms / steady.interval_s,
                cost_ms: steady.cost.of(today, &best.layout),
            };
        }
        let mut alone = Alone::new(history, today.replicas(), self.config.route);
        let per_interval = past.operations_per_interval();
        steady.judge_past(history, per_interval, today, today_ms, ranked, |layout, ago| match self
            .config
            .objective
        {
            Objective::Mean => alone.mean_ms(layout, ago),
            Objective::Percentile(_) => self.latency_ms(&history.alone(ago)?, layout).ok(),
        })
    }

    fn explain(
        &self,
        history: &History,
        today: &Layout,
        candidates: &[Layout],
        rule: &VoterRule<'_>,
    ) -> Explanation {
        if self.config.explain_intervals == 0 {
            return Explanation::default();
        }
        Explanation::of(history, today, self.config.explain_intervals, |past| {
            let ranked = self.rank(past, today, candidates, rule).ok()?;
            Some((ranked, self.latency_ms(past, today).ok()?))
        })
    }
}

impl Decision {
    /// What is decided without operations.
    fn nothing(today: &Layout) -> Self {
        Self {
            goal: today.clone(),
            today_ms: None,
            goal_ms: None,
            ranked: Vec::new(),
            refused: Vec::new(),
            verdict: Verdict::Stay { why: Why::NoOperations },
            explanation: Explanation::default(),
        }
    }
}
