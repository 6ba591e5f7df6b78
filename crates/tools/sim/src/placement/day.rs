//! A day of a fleet, interval by interval: every strategy places leaders by what it knows from
//! before, and is scored by what then happened (sections 6.1 and 6.3 of the paper); or, for tier 3,
//! the whole day at once (section 6.4).
//!
//! **When it misleads.** Latency is the sum of round trips; a leader's load, queues and the time of
//! a move are not in it.

use std::sync::Arc;

use evenkeel_planner::domains::{Domains, VoterRule};
use evenkeel_planner::history::{History, Interval};
use evenkeel_planner::model::{Counts, Layout, Route};
use evenkeel_planner::replicas::{Method, Question, place};
use evenkeel_planner::score::Score;
use evenkeel_planner::{leader, voters};
use serde::Serialize;

use super::baselines::{closest_to_writes, smallest_quorum};
use super::fleet::{Database, FleetSpec, INTERVALS_PER_DAY};
use super::geography::{Continent, Geography};

/// What is simulated.
#[derive(Clone, PartialEq, Debug)]
pub struct Day {
    /// The databases.
    pub fleet: FleetSpec,
    /// How fast the past fades, τ of equation 2; 1 and more.
    pub tau: f64,
    /// Which replica clients read from.
    pub route: Route,
}

impl Default for Day {
    fn default() -> Self {
        Self { fleet: FleetSpec::default(), tau: 2.0, route: Route::Nearest }
    }
}

/// Who decides where leaders are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Nobody: the leader an administrator chose, or any voter.
    ByHand,
    /// Any voter leads: the mean over them (equation 4).
    Average,
    /// Where most transactions of the first interval came from.
    ClosestToWrites,
    /// The voter with the fastest quorum.
    SmallestQuorum,
    /// Tier 1: the best voter for the faded past (equation 2).
    Optimized,
    /// Tier 2: the best leader and voters among the replicas, for the faded past.
    Voters,
    /// Tier 1 with the interval that is scored: what cannot be known.
    Oracle,
    /// Tier 3 by this method, for the whole day, scored on the same day (figures 8 to 11).
    Replicas(Method),
}

impl Strategy {
    /// The strategies by the names that people write.
    pub const NAMED: [(&'static str, Self); 12] = [
        ("by-hand", Self::ByHand),
        ("average", Self::Average),
        ("closest-to-writes", Self::ClosestToWrites),
        ("smallest-quorum", Self::SmallestQuorum),
        ("optimized", Self::Optimized),
        ("voters", Self::Voters),
        ("oracle", Self::Oracle),
        ("kq", Self::Replicas(Method::Kq)),
        ("qk", Self::Replicas(Method::Qk)),
        ("best", Self::Replicas(Method::BestOf)),
        ("swap", Self::Replicas(Method::Swap)),
        ("exact", Self::Replicas(Method::Exact)),
    ];

    /// The strategy of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, strategy)| *strategy)
    }
}

/// What a strategy came to.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PlacementReport {
    /// How many databases there are.
    pub databases: u64,
    /// Mean latency of a database, the geometric mean over databases: as many times as slow counts
    /// the same for each.
    pub latency_ms: f64,
    /// Latency of an interval over the oracle's, less one; the mean over intervals and databases.
    pub overhead_ratio: f64,
    /// Latency of a database that the strategy saves, as a share of what it was by hand; the mean.
    pub reduction_ratio: f64,
    /// The most of any database.
    pub reduction_max_ratio: f64,
    /// Share of databases that save at least half.
    pub halved_share: f64,
    /// Share of databases that save at least a tenth.
    pub tenth_share: f64,
    /// Share of databases that save less than a hundredth.
    pub hundredth_share: f64,
    /// How often a database's leader moves in a day.
    pub moves_per_day: f64,
    /// Share of the intervals in which one of the first two continents has over a tenth more
    /// operations than the other, and the leader is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busier_side_share: Option<f64>,
    /// Tier 3: latency over the optimum with 13 replicas (figure 11), less one; the mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_thirteen_ratio: Option<f64>,
    /// Tier 3: share of databases for which the answer is proven to be the optimum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proven_share: Option<f64>,
}

/// One database under one strategy.
#[derive(Default)]
struct Course {
    /// Sums over intervals, milliseconds × operations.
    spent_ms: f64,
    by_hand_ms: f64,
    operations: f64,
    overheads: Vec<f64>,
    moves: usize,
    led_by: Option<usize>,
    on_busier_side: usize,
    one_side_is_busier: usize,
    over_thirteen: Option<f64>,
    is_proven: Option<bool>,
}

impl Day {
    /// Lets a strategy place leaders for a day; equal seeds make equal fleets.
    pub fn run(&self, strategy: Strategy, seed: u64) -> PlacementReport {
        let geography = Geography::azure();
        let databases = self.fleet.make(geography, seed);
        let course = |database: &Database| match strategy {
            Strategy::Replicas(method) => self.placed(geography, database, method),
            _ => self.course(geography, database, strategy),
        };
        let courses: Vec<Course> = databases.iter().map(course).collect();
        self.report(&courses)
    }

    fn course(&self, geography: &Geography, database: &Database, strategy: Strategy) -> Course {
        let mut history = History::new(self.tau, INTERVALS_KEPT).expect("checked when read");
        let mut course = Course::default();
        for counts in &database.intervals {
            let interval = Interval::new(counts.clone(), Arc::clone(&geography.trips));
            let interval = interval.expect("as many clients as regions");
            if !history.is_empty() && counts.total() > 0.0 {
                self.interval(geography, database, &history, &interval, strategy, &mut course);
            }
            history.push(interval).expect("one geography");
        }
        course
    }

    /// Tier 3 for the whole day.
    fn placed(&self, geography: &Geography, database: &Database, method: Method) -> Course {
        let mut day = Counts::none(geography.len());
        database.intervals.iter().for_each(|counts| day.add(counts, 1.0));
        let (replicas, voters) = (self.fleet.replicas, self.fleet.voters);
        let asked = |replicas, method| {
            let question = Question { method, ..Question::new(replicas, voters, self.route) };
            place(&day, &geography.trips, &question).expect("the question was checked when read")
        };
        let placed = asked(replicas, method);
        let thirteen = asked(REPLICAS_MANY.max(replicas), Method::Exact);
        let score =
            |layout: &Layout| Score::of(&day, &geography.trips, layout, self.route).total_ms();
        let today = &database.layout;
        let voting = today.voters();
        let led_by = |voter: &usize| score(&today.led_by(*voter).expect("it votes"));
        let average_ms = voting.iter().map(led_by).sum::<f64>() / voting.len() as f64;
        Course {
            spent_ms: placed.score_ms,
            by_hand_ms: if database.is_preferred { score(today) } else { average_ms },
            operations: day.total(),
            over_thirteen: Some(placed.score_ms / thirteen.score_ms - 1.0),
            is_proven: Some(placed.proven),
            ..Course::default()
        }
    }

    fn interval(
        &self,
        geography: &Geography,
        database: &Database,
        history: &History,
        interval: &Interval,
        strategy: Strategy,
        course: &mut Course,
    ) {
        let score = |layout: &Layout| {
            Score::of(interval.counts(), &geography.trips, layout, self.route).total_ms()
        };
        let today = &database.layout;
        let of_voters: Vec<(usize, f64)> = today
            .voters()
            .iter()
            .map(|voter| (*voter, score(&today.led_by(*voter).expect("it votes"))))
            .collect();
        let average_ms = of_voters.iter().map(|(_, ms)| ms).sum::<f64>() / of_voters.len() as f64;
        let oracle_ms = of_voters.iter().map(|(_, ms)| *ms).fold(f64::INFINITY, f64::min);
        let by_hand_ms = if database.is_preferred { score(today) } else { average_ms };
        let chosen = self.choose(geography, database, history, strategy);
        let spent_ms = match (strategy, &chosen) {
            (_, Some(layout)) => score(layout),
            (Strategy::Oracle, None) => oracle_ms,
            (Strategy::Average, None) => average_ms,
            (_, None) => by_hand_ms,
        };
        course.spent_ms += spent_ms;
        course.by_hand_ms += by_hand_ms;
        course.operations += interval.counts().total();
        course.overheads.push(spent_ms / oracle_ms - 1.0);
        if let Some(layout) = chosen {
            let leader = layout.leader();
            course.moves += usize::from(course.led_by.is_some_and(|before| before != leader));
            course.led_by = Some(leader);
            self.look_at_sides(geography, interval.counts(), leader, course);
        }
    }

    /// The layout of a strategy that has one of its own.
    fn choose(
        &self,
        geography: &Geography,
        database: &Database,
        history: &History,
        strategy: Strategy,
    ) -> Option<Layout> {
        let today = &database.layout;
        let led_by = |leader: usize| today.led_by(leader).ok();
        let best = |mut ranked: Vec<leader::Ranked>| {
            (!ranked.is_empty()).then(|| ranked.swap_remove(0).layout)
        };
        match strategy {
            Strategy::ByHand | Strategy::Average | Strategy::Oracle | Strategy::Replicas(_) => None,
            Strategy::ClosestToWrites => {
                let first = &database.intervals[0];
                led_by(closest_to_writes(first, &geography.trips, today.voters())?)
            }
            Strategy::SmallestQuorum => led_by(smallest_quorum(&geography.trips, today.voters())?),
            Strategy::Optimized => best(leader::rank(&history.past(0)?, today, self.route)),
            Strategy::Voters => {
                let domains = Domains::each_its_own(geography.len());
                let rule = VoterRule::as_today(&domains, today.voters());
                let past = history.past(0)?;
                best(
                    voters::rank(&past, today.replicas(), &rule, self.route, today.voters())
                        .ok()?,
                )
            }
        }
    }

    fn look_at_sides(
        &self,
        geography: &Geography,
        counts: &Counts,
        leader: usize,
        course: &mut Course,
    ) {
        let &[one, other] = self.fleet.continents.as_slice() else { return };
        let side = |wanted: Continent| -> f64 {
            let places = 0..geography.len();
            let there = places.filter(|place| geography.regions[*place].continent == wanted);
            there.map(|place| counts.of(place).iter().sum::<f64>()).sum()
        };
        let (at_one, at_other) = (side(one), side(other));
        if at_one.max(at_other) > 1.1 * at_one.min(at_other) {
            let busier = if at_one > at_other { one } else { other };
            course.one_side_is_busier += 1;
            course.on_busier_side += usize::from(geography.regions[leader].continent == busier);
        }
    }

    fn report(&self, courses: &[Course]) -> PlacementReport {
        let served: Vec<&Course> =
            courses.iter().filter(|course| course.operations > 0.0).collect();
        let many = served.len().max(1) as f64;
        let mean = |of: &dyn Fn(&Course) -> f64| {
            served.iter().map(|course| of(course)).sum::<f64>() / many
        };
        let reduction = |course: &Course| 1.0 - course.spent_ms / course.by_hand_ms;
        let share = |passes: &dyn Fn(f64) -> bool| {
            mean(&|course| f64::from(u8::from(passes(reduction(course)))))
        };
        let overheads = || served.iter().flat_map(|course| &course.overheads);
        let days = self.fleet.intervals as f64 / INTERVALS_PER_DAY as f64;
        let sides: usize = served.iter().map(|course| course.one_side_is_busier).sum();
        let on_busier: usize = served.iter().map(|course| course.on_busier_side).sum();
        PlacementReport {
            databases: served.len() as u64,
            latency_ms: mean(&|course| (course.spent_ms / course.operations).ln()).exp(),
            overhead_ratio: overheads().sum::<f64>() / overheads().count().max(1) as f64,
            reduction_ratio: mean(&reduction),
            reduction_max_ratio: served
                .iter()
                .map(|course| reduction(course))
                .fold(f64::NEG_INFINITY, f64::max),
            halved_share: share(&|reduction| reduction >= 0.5),
            tenth_share: share(&|reduction| reduction >= 0.1),
            hundredth_share: share(&|reduction| reduction < 0.01),
            moves_per_day: mean(&|course| course.moves as f64) / days,
            busier_side_share: (sides > 0).then(|| on_busier as f64 / sides as f64),
            over_thirteen_ratio: mean_of(served.iter().map(|course| course.over_thirteen)),
            proven_share: mean_of(
                served.iter().map(|course| course.is_proven.map(|is| f64::from(u8::from(is)))),
            ),
        }
    }
}

/// The mean, if there is one of every database.
fn mean_of(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Vec<f64> = values.collect::<Option<_>>()?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Replicas that the paper compares fewer with (figure 11).
const REPLICAS_MANY: usize = 13;
/// Intervals that a strategy remembers: half of 2⁻¹⁵ is nothing at τ = 2.
const INTERVALS_KEPT: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn day(change: impl FnOnce(&mut Day)) -> Day {
        let mut day = Day::default();
        day.fleet.databases = 30;
        change(&mut day);
        day
    }

    #[test]
    fn nobody_beats_the_oracle_with_todays_voters() {
        let day = day(|_| {});
        let tiers_1_and_2 =
            Strategy::NAMED.iter().filter(|(_, of)| !matches!(of, Strategy::Replicas(_)));
        for (name, strategy) in tiers_1_and_2.copied() {
            let report = day.run(strategy, 3);
            let overhead = report.overhead_ratio;
            if strategy == Strategy::Oracle {
                assert_eq!(overhead, 0.0);
            } else if strategy != Strategy::Voters {
                assert!(overhead > -1e-9, "{name}: {overhead}");
            }
        }
    }

    #[test]
    fn better_voters_are_never_worse_than_todays_where_nothing_changes() {
        let calm = day(|day| {
            day.fleet.spikes_per_day = 0.0;
            day.fleet.mixes = vec![[0.0, 0.0, 0.0, 1.0, 0.0]];
        });
        let (tier_1, tier_2) = (calm.run(Strategy::Optimized, 1), calm.run(Strategy::Voters, 1));
        assert!(tier_2.latency_ms < tier_1.latency_ms, "{tier_1:?} {tier_2:?}");
    }

    #[test]
    fn the_leader_follows_the_sun_when_both_coasts_write() {
        let coasts = day(|day| {
            day.fleet.continents = vec![Continent::NorthAmericaEast, Continent::NorthAmericaWest];
            day.fleet.mixes = vec![[0.0, 0.0, 1.0, 0.0, 0.0]];
            day.fleet.spikes_per_day = 0.0;
        });
        let report = coasts.run(Strategy::Oracle, 1);
        assert_eq!(report.busier_side_share, None, "the oracle has no layout of its own");
        assert!(coasts.run(Strategy::Optimized, 1).busier_side_share.is_some());
    }
}
