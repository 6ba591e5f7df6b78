//! What the manager says, from windows of samples.
//!
//! Which model: [`Model::Lindley`] on service times as they were measured at the duplicates. How
//! duplicates are put together depends on whether their outliers coincide, which is asked first:
//! independent ones are multiplied, dependent ones drawn in the rows they were measured in, and
//! duplicates whose outliers coincide count as one.
//!
//! **Independent rows.** A pause meets many accesses in a row, all of which say the same. So for
//! the test only accesses further apart than the longest answer of the window are looked at, and
//! they are collected over windows.
//!
//! **Steady.** Advice changes when two windows in a row say so. It says `wait` while predictions do
//! not come true: what was predicted for a window is compared with what was measured in it. It
//! says so too before it wants more nodes, until outliers are enough to know whether they coincide.
//!
//! **Demand that grows.** A step takes a while and is for the windows after this one: partitions
//! are planned for what is forecast of the next window, where that is more
//! ([`evenkeel_geo::demand::forecast`], the rule that was the least wrong lately). Where less is
//! forecast they are planned for what there is: a node that goes too early costs more than one
//! that goes a window later.
//!
//! **When it misleads.** Measured is the *first* answer, which is what duplicates are for; a write
//! that waits for more than one takes longer, and [`Advice::clients_within`] has that. Pauses come
//! in time, not by access, so what is said of more partitions errs on the bright side.

use std::num::NonZeroU32;
use std::time::Duration;

use evenkeel_core::units::{OutOfRange, Rate};
use evenkeel_geo::demand::forecast::{Choice, Forecaster};
use evenkeel_ordered::SERVERS_MAX;
use evenkeel_planner::duplicates::correlation::{Correlation, Verdict};
use evenkeel_planner::duplicates::moves::{
    Arrangement, Move, Partition, Planner, Steadiness, Step,
};
use evenkeel_planner::duplicates::policy::{self, Candidate, Objective};
use evenkeel_planner::duplicates::window::Rows;
use evenkeel_planner::duplicates::{
    Effort, Model, Prediction, Question, Service, Times, predict_partition,
};
use serde::Serialize;

use crate::night::{self, NightAdvice, SharedNights};
use crate::{ManagerSettings, Sample, Window};

/// Rows of a partition without which nothing is said.
const ROWS_MIN: usize = 200;
/// Samples far enough apart that are needed before a window's answers count as late.
const LATE_ROWS_MIN: usize = 20;
/// Rows that are kept for the test, of each partition.
const ROWS_MAX: usize = 4_096;
/// A forecast is believed up to so many times what there is.
const GROWTH_MAX: f64 = 2.0;
/// Windows in a row that must say the same before advice changes.
const AGREE: u32 = 2;

/// What the manager says.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Advice {
    /// `wait`, `stay`, or what to do, one step after the other.
    pub what: String,
    /// A sentence with the numbers that it rests on.
    pub why: String,
    /// The same for `mode = "move"`, once it is said.
    #[serde(skip)]
    pub steps: Vec<Move>,
    /// Windows that were looked at.
    pub windows: u64,
    /// Accesses per second that are planned for: those of the window, or more if more are forecast.
    pub planned_per_s: f64,
    /// An access whose first answer takes longer is late.
    pub objective_ms: f64,
    /// The share of accesses that must not be late, 0 to 1.
    pub target: f64,
    /// All accesses.
    pub accesses_per_s: f64,
    /// Sampled accesses of the window that every duplicate answered.
    pub rows: usize,
    /// The share of them whose first answer was within the objective.
    pub measured_within: f64,
    /// The share that would have been with one duplicate, whichever.
    pub measured_within_alone: f64,
    /// The share of samples whose client had its answer within it; writes wait for more than one.
    pub clients_within: f64,
    /// What is predicted of the present partitions and duplicates from this window.
    pub predicted_within: Option<f64>,
    /// What had been predicted for this window from the one before.
    pub predicted_before: Option<f64>,
    /// Whether that was true, as far as chance lets one see.
    pub holds: Option<bool>,
    /// Of the busiest duplicate, 0 to 1.
    pub utilisation: f64,
    /// Whether duplicates help.
    pub outliers: Option<OutliersAdvice>,
    /// The cheapest policy that is predicted to meet the target.
    pub cheapest: Option<PolicyAdvice>,
    /// What becomes of nodes in quiet hours, where they may go.
    pub night: Option<NightAdvice>,
}

/// Whether outliers of duplicates coincide.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OutliersAdvice {
    /// `unknown`, `independent`, `dependent` or `coincide`.
    pub verdict: &'static str,
    /// Whether duplicates help; `None` when it is not known.
    pub duplicates_help: Option<bool>,
    /// How likely independent duplicates have as many joint outliers.
    pub by_chance: f64,
    /// The share of outliers that another duplicate masks.
    pub masked: f64,
    /// It is below this with 99 % confidence.
    pub masked_max: f64,
    /// In words.
    pub told: String,
}

/// A policy and what is expected of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct PolicyAdvice {
    /// Partitions, each with an equal part of the accesses.
    pub partitions: u32,
    /// Duplicates of each.
    pub duplicates: u32,
    /// The share of accesses within the objective.
    pub within: f64,
    /// Nodes and late accesses, in a second.
    pub cost: f64,
}

/// Computes advice; remembers what makes it steady.
#[derive(Debug)]
pub(super) struct Adviser {
    settings: ManagerSettings,
    duplicates: Vec<usize>,
    /// Responses far apart, by partition; none where there is one duplicate.
    apart: Vec<Option<Rows>>,
    windows: u64,
    predicted: Option<f64>,
    demand: Forecaster,
    /// Duplicates that may be taken; `None`: people decide that, or there are enough.
    spares: Option<usize>,
    /// Where nodes may go in quiet hours.
    nights: Option<SharedNights>,
    /// What is said, and what would be said but for how many windows.
    current: Option<Wanted>,
    pending: Option<(Wanted, u32)>,
}

/// What a window says is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    pub(super) what: String,
    /// None where it is no step.
    pub(super) steps: Vec<Move>,
}

/// What a window has of one partition.
struct Part {
    rate: Rate,
    service: Vec<Vec<Duration>>,
    response: Vec<Vec<Duration>>,
}

/// Of all samples, in shares.
struct Measured {
    rows: usize,
    apart: usize,
    late: f64,
    late_alone: f64,
    clients_within: f64,
}

/// What follows from a model.
struct Outlook {
    now: Prediction,
    best: Option<Candidate>,
    step: Option<Step>,
}

impl Adviser {
    pub(super) fn new(
        settings: ManagerSettings,
        duplicates: &[usize],
        spares: Option<usize>,
        nights: Option<SharedNights>,
    ) -> Self {
        let rows = |&count: &usize| (count > 1).then(|| Rows::new(count, ROWS_MAX).ok()).flatten();
        Self {
            settings,
            duplicates: duplicates.to_vec(),
            apart: duplicates.iter().map(rows).collect(),
            windows: 0,
            predicted: None,
            demand: Forecaster::new(Choice::Tested),
            spares,
            nights,
            current: None,
            pending: None,
        }
    }

    /// What a window says.
    pub(super) fn learn(&mut self, window: &Window) -> Advice {
        self.windows += 1;
        let parts = self.parts(window);
        let measured = self.measure(window, &parts);
        let mut advice = self.by_day(window, &parts, &measured);
        let Some(nights) = &self.nights else { return advice };
        let allowed = 1.0 - self.settings.target.value();
        let said = nights.learn(&night::Told {
            settings: &self.settings,
            window,
            arrangement: &self.arrangement(window),
            rates: &shard_rates(window, &parts, 1.0),
            spares: self.spares,
            // A few accesses far apart say nothing.
            is_late: measured.apart >= LATE_ROWS_MIN
                && measured.late > allowed + noise(&measured, allowed),
            holds: advice.holds,
        });
        if let Some(step) = said.step {
            (advice.what, advice.steps) = (step.describe(), vec![step]);
            advice.why = format!("{}; {}", said.advice.why, advice.why);
        } else if said.is_under_way {
            // Shards of a night are not moved about as by day: they go back soon.
            (advice.what, advice.steps) = ("stay".to_owned(), Vec::new());
        }
        advice.night = Some(said.advice);
        advice
    }

    fn by_day(&mut self, window: &Window, parts: &[Part], measured: &Measured) -> Advice {
        let accesses: u64 = window.accesses.iter().sum();
        let accesses_per_s = accesses as f64 / seconds(window);
        let length = window.until.since(window.from);
        let forecast = self.demand.next(window.until, length, accesses_per_s);
        let planned_per_s = forecast.clamp(accesses_per_s, GROWTH_MAX * accesses_per_s);
        let growth = if accesses_per_s > 0.0 { planned_per_s / accesses_per_s } else { 1.0 };
        let mut advice = Advice {
            windows: self.windows,
            objective_ms: self.settings.objective.as_secs_f64() * 1e3,
            target: self.settings.target.value(),
            accesses_per_s,
            planned_per_s,
            rows: measured.rows,
            measured_within: 1.0 - measured.late,
            measured_within_alone: 1.0 - measured.late_alone,
            clients_within: measured.clients_within,
            ..Advice::default()
        };
        let fewest = parts.iter().map(|part| part.service.len()).min().unwrap_or(0);
        if fewest < ROWS_MIN {
            self.predicted = None;
            let why = format!(
                "a partition had {fewest} sampled accesses that all of its duplicates answered, \
                 expected {ROWS_MIN} in a window (too few accesses, or a duplicate is away)"
            );
            return Advice { what: "wait".to_owned(), why, ..advice };
        }
        let correlation = self.correlation();
        let verdict = correlation.as_ref().map_or(Verdict::Independent, |it| it.verdict);
        advice.outliers = correlation.as_ref().map(OutliersAdvice::of);
        match self.outlook(window, parts, (verdict, growth)) {
            Ok(outlook) => self.say(advice, measured, &outlook, correlation.as_ref()),
            Err(error) => {
                let why = format!("no model fits what was measured: {error}");
                Advice { what: "wait".to_owned(), why, ..advice }
            }
        }
    }

    fn parts(&self, window: &Window) -> Vec<Part> {
        let seconds = seconds(window);
        let part = |(partition, &count): (usize, &usize)| {
            let mut part = Part {
                // What one duplicate gets, where reads go to some of them only.
                rate: rate(window.copies[partition] as f64 / count as f64 / seconds),
                service: Vec::new(),
                response: Vec::new(),
            };
            for sample in window.samples.iter().filter(|it| it.partition == partition) {
                let row: Option<Vec<_>> = sample.times.iter().copied().collect();
                if let Some(row) = row {
                    part.service.push(row.iter().map(|took| took.service).collect());
                    part.response.push(row.iter().map(|took| took.response).collect());
                }
            }
            part
        };
        self.duplicates.iter().enumerate().map(part).collect()
    }

    fn measure(&mut self, window: &Window, parts: &[Part]) -> Measured {
        let objective = self.settings.objective;
        let (mut late, mut alone, mut rows) = (0, 0.0, 0);
        for row in parts.iter().flat_map(|part| &part.response) {
            let misses = row.iter().filter(|&&time| time > objective).count();
            late += usize::from(misses == row.len());
            alone += misses as f64 / row.len() as f64;
            rows += 1;
        }
        let in_time = |it: &&Sample| it.client.is_some_and(|time| time <= objective);
        let clients = window.samples.iter().filter(in_time).count();
        let of = |count: f64, all: usize| count / all.max(1) as f64;
        Measured {
            rows,
            apart: self.collect_apart(window, parts),
            late: of(late as f64, rows),
            late_alone: of(alone, rows),
            clients_within: match window.samples.len() {
                0 => 1.0, // nobody was late
                all => of(clients as f64, all),
            },
        }
    }

    /// Keeps rows that are further apart than the longest answer; how many there were.
    fn collect_apart(&mut self, window: &Window, parts: &[Part]) -> usize {
        let mut count = 0;
        for (partition, part) in parts.iter().enumerate() {
            let gap = part.response.iter().flatten().max().copied().unwrap_or_default();
            let mut of_partition: Vec<&Sample> =
                window.samples.iter().filter(|it| it.partition == partition).collect();
            of_partition.sort_by_key(|sample| sample.sent);
            let mut next = window.from;
            for sample in of_partition {
                let row: Option<Vec<Duration>> =
                    sample.times.iter().map(|took| took.map(|took| took.response)).collect();
                if let Some(row) = row
                    && sample.sent >= next
                {
                    next = sample.sent + gap;
                    count += 1;
                    if let Some(apart) = &mut self.apart[partition] {
                        apart.push(&row);
                    }
                }
            }
        }
        count
    }

    /// Of the partition that knows most.
    fn correlation(&self) -> Option<Correlation> {
        let beyond = |rows: &Rows| rows.correlation_beyond(self.settings.objective);
        let known = |it: &Correlation| it.outliers.iter().min().copied();
        self.apart.iter().flatten().filter_map(beyond).max_by_key(known)
    }

    fn outlook(
        &self,
        window: &Window,
        parts: &[Part],
        (verdict, growth): (Verdict, f64),
    ) -> Result<Outlook, OutOfRange> {
        let now = self.now(parts, verdict)?;
        let service = planning_service(parts, verdict)?;
        if let Some(nights) = &self.nights {
            nights.note(&service, verdict);
        }
        let total = parts.iter().map(|part| growth * part.rate.value()).sum::<f64>();
        let effort = Effort { accesses: 20_000, accesses_max: 20_000, ..Effort::default() };
        let question = Question::new(&service, rate(total), self.settings.objective);
        let question = Question { effort, ..question };
        let (target, prices) = (self.settings.target, self.settings.prices);
        let nodes: usize = self.duplicates.iter().sum();
        let nodes_max = (nodes + 2).max(nodes * 3 / 2).min(SERVERS_MAX) as u32;
        let objective = Objective { target, nodes_max, prices };
        let candidates = policy::candidates(Model::Lindley, &question, &objective)?;
        let best = policy::best(&candidates).copied();
        let step = if verdict == Verdict::Coincide {
            None // what to do then is no step of the model's
        } else {
            let steadiness = Steadiness::default();
            let model = Model::Lindley;
            // A step that cannot be made keeps none from being made that can.
            let spares = self.spares.map(|spares| (nodes + spares) as u32);
            let nodes_max = spares.map_or(nodes_max, |most| most.min(nodes_max));
            let duplicates_min = self.settings.night.map(|night| night.duplicates_min);
            let duplicates_min = duplicates_min.unwrap_or(NonZeroU32::MIN);
            let planner =
                Planner { model, question, target, nodes_max, prices, steadiness, duplicates_min };
            let rates = shard_rates(window, parts, growth);
            let step = planner.next(&self.arrangement(window), &rates, None)?;
            // By the forecast of hours, where there is one; not of the next window.
            step.filter(|step| self.nights.is_none() || step.after.nodes >= step.before.nodes)
        };
        Ok(Outlook { now, best, step })
    }

    /// What is expected of the present partitions, all together.
    fn now(&self, parts: &[Part], verdict: Verdict) -> Result<Prediction, OutOfRange> {
        let effort = Effort { accesses: 50_000, accesses_max: 200_000, precision: 0.1, seed: 1 };
        let (mut violations, mut utilisation, mut accesses, mut all) = (0.0, 0.0_f64, 0, 0.0);
        for (part, &count) in parts.iter().zip(&self.duplicates) {
            let (service, count) = match verdict {
                Verdict::Coincide => (Service::each(vec![pooled([part])?])?, 1),
                Verdict::Dependent => (Service::together(&part.service)?, count),
                Verdict::Unknown | Verdict::Independent => (each(part, count)?, count),
            };
            let question = Question::new(&service, part.rate, self.settings.objective);
            let question = Question { effort, ..question };
            let count = duplicates(count);
            let reported = predict_partition(Model::Lindley, &question, part.rate, count)?;
            violations += part.rate.value() * reported.violations;
            utilisation = utilisation.max(reported.utilisation);
            accesses += reported.accesses;
            all += part.rate.value();
        }
        let violations = if all > 0.0 { violations / all } else { 0.0 };
        Ok(Prediction { violations, standard_error: 0.0, utilisation, accesses })
    }

    fn arrangement(&self, window: &Window) -> Arrangement {
        let shards = |partition: usize| {
            let owners = window.owners.iter().enumerate();
            owners.filter(|&(_, &owner)| owner == partition).map(|(shard, _)| shard).collect()
        };
        let part = |(partition, &count): (usize, &usize)| Partition {
            shards: shards(partition),
            duplicates: duplicates(count),
        };
        Arrangement { partitions: self.duplicates.iter().enumerate().map(part).collect() }
    }

    fn say(
        &mut self,
        mut advice: Advice,
        measured: &Measured,
        outlook: &Outlook,
        correlation: Option<&Correlation>,
    ) -> Advice {
        advice.predicted_within = Some(1.0 - outlook.now.violations);
        advice.utilisation = outlook.now.utilisation;
        advice.cheapest = outlook.best.as_ref().map(PolicyAdvice::of);
        let before = self.predicted.replace(outlook.now.violations);
        advice.predicted_before = before.map(|late| 1.0 - late);
        advice.holds = before.map(|late| (late - measured.late).abs() <= noise(measured, late));
        let what = self.wanted(&advice, outlook, correlation);
        let step = outlook.step.as_ref().filter(|step| describe(&step.moves) == what);
        let steps = step.map(|step| step.moves.clone()).unwrap_or_default();
        (advice.what, advice.steps) = self.steadied(Wanted { what, steps });
        advice.why = self.why(&advice, outlook, correlation);
        advice
    }

    fn wanted(
        &self,
        advice: &Advice,
        outlook: &Outlook,
        correlation: Option<&Correlation>,
    ) -> String {
        if advice.holds == Some(false) {
            return "wait".to_owned();
        }
        if correlation.is_some_and(|it| it.verdict == Verdict::Coincide) {
            return match &advice.cheapest {
                Some(best) => format!(
                    "duplicates do not help: one for each of {} partitions would do",
                    best.partitions
                ),
                None => "duplicates do not help: find what makes all of them slow at once".into(),
            };
        }
        let is_known = correlation.is_none_or(|it| it.verdict != Verdict::Unknown);
        match &outlook.step {
            // Where the target is missed, outliers are soon enough to know whether more would help.
            Some(step) if !is_known && step.after.nodes > step.before.nodes => "wait".to_owned(),
            Some(step) => describe(&step.moves),
            None => "stay".to_owned(),
        }
    }

    /// What was said before, until enough windows in a row say something else; and its steps,
    /// unless this window says something else.
    pub(super) fn steadied(&mut self, wanted: Wanted) -> (String, Vec<Move>) {
        let current = self.current.get_or_insert_with(|| wanted.clone());
        if current.is_like(&wanted) {
            self.pending = None;
            return (current.what.clone(), current.steps.clone());
        }
        let times = match self.pending.take() {
            Some((pending, times)) if pending.is_like(&wanted) => times + 1,
            _ => 1,
        };
        if times >= AGREE {
            *current = wanted;
            return (current.what.clone(), current.steps.clone());
        }
        self.pending = Some((wanted, times));
        (current.what.clone(), Vec::new())
    }

    fn why(&self, advice: &Advice, outlook: &Outlook, correlation: Option<&Correlation>) -> String {
        let percent = |share: f64| format!("{:.3} %", 100.0 * share);
        let mut words = format!(
            "{} of first answers came within {:?} (target {}; one duplicate alone: {}), {} is \
             predicted at {:.0} accesses/s and utilisation {:.2}",
            percent(advice.measured_within),
            self.settings.objective,
            percent(advice.target),
            percent(advice.measured_within_alone),
            percent(1.0 - outlook.now.violations),
            advice.accesses_per_s,
            advice.utilisation,
        );
        if let (Some(false), Some(before)) = (advice.holds, advice.predicted_before) {
            words += &format!("; {} had been predicted, so models do not fit now", percent(before));
        }
        if let Some(correlation) = correlation {
            words += &format!("; {}", correlation.describe());
        } else {
            words += "; whether outliers of duplicates would coincide is not known";
        }
        if let Some(best) = &advice.cheapest {
            words += &format!(
                "; the cheapest that meets the target is {}p/{}d ({})",
                best.partitions,
                best.duplicates,
                percent(best.within)
            );
        } else {
            words += "; nothing within half as many nodes again meets the target";
        }
        if let Some(step) = &outlook.step {
            words += &format!("; {}", step.why);
        }
        if let Some((Wanted { what, .. }, _)) = &self.pending {
            words += &format!("; the last window alone says: {what}");
        }
        words
    }
}

impl Wanted {
    /// Whether both want the same, whichever shards are moved: where shards are alike, chance says
    /// which of them is the best, and another one in each window.
    fn is_like(&self, other: &Self) -> bool {
        let of = |steps: &[Move]| -> Vec<Move> { steps.iter().map(shardless).collect() };
        match (self.steps.is_empty(), other.steps.is_empty()) {
            (false, false) => of(&self.steps) == of(&other.steps),
            _ => self.what == other.what,
        }
    }
}

fn shardless(step: &Move) -> Move {
    match *step {
        Move::Shard { from, to, .. } => Move::Shard { shard: 0, from, to },
        Move::Open { from, duplicates, .. } => Move::Open { shard: 0, from, duplicates },
        same @ (Move::Add { .. } | Move::Remove { .. }) => same,
    }
}

fn describe(moves: &[Move]) -> String {
    let moves: Vec<String> = moves.iter().map(Move::describe).collect();
    moves.join(", ")
}

/// How far a prediction may be off: a quarter, or three standard errors of what was measured in
/// samples far enough apart. A window later the load is another one, too.
fn noise(measured: &Measured, predicted: f64) -> f64 {
    let late = measured.late.max(predicted);
    let chance = (late * (1.0 - late) / measured.apart.max(1) as f64).sqrt();
    (3.0 * chance).max(late / 4.0)
}

fn seconds(window: &Window) -> f64 {
    window.until.since(window.from).as_secs_f64().max(1e-9)
}

fn rate(per_s: f64) -> Rate {
    Rate::new(per_s).expect("a count over a time above zero is a rate")
}

fn duplicates(count: usize) -> NonZeroU32 {
    NonZeroU32::new(count as u32).expect("a partition has a duplicate")
}

/// Rates of shards; what a duplicate gets of them, where reads go to some duplicates only.
/// What is planned for, by shard.
fn shard_rates(window: &Window, parts: &[Part], growth: f64) -> Vec<Rate> {
    let mut accesses = vec![0_u64; parts.len()];
    for (count, &owner) in window.accesses.iter().zip(&window.owners) {
        accesses[owner] += count;
    }
    let of = |(&count, &owner): (&u64, &usize)| {
        let share = count as f64 / accesses[owner].max(1) as f64;
        rate(growth * parts[owner].rate.value() * share)
    };
    window.accesses.iter().zip(&window.owners).map(of).collect()
}

fn pooled<'p>(parts: impl IntoIterator<Item = &'p Part>) -> Result<Times, OutOfRange> {
    let all: Vec<Duration> =
        parts.into_iter().flat_map(|part| part.service.iter().flatten().copied()).collect();
    Times::recorded(&all)
}

fn each(part: &Part, count: usize) -> Result<Service, OutOfRange> {
    let column = |n: usize| -> Vec<Duration> { part.service.iter().map(|row| row[n]).collect() };
    Service::each((0..count).map(|n| Times::recorded(&column(n))).collect::<Result<_, _>>()?)
}

/// What is believed of duplicates that there may be: no more than was seen, where they depend on
/// each other.
fn planning_service(parts: &[Part], verdict: Verdict) -> Result<Service, OutOfRange> {
    match verdict {
        Verdict::Unknown | Verdict::Independent => Ok(Service::alike(pooled(parts)?)),
        Verdict::Coincide => Service::each(vec![pooled(parts)?]),
        Verdict::Dependent => {
            let widest = parts.iter().max_by_key(|part| part.service.first().map_or(0, Vec::len));
            Service::together(widest.map_or(&[][..], |part| &part.service))
        }
    }
}

impl OutliersAdvice {
    fn of(correlation: &Correlation) -> Self {
        let (verdict, duplicates_help) = match correlation.verdict {
            Verdict::Unknown => ("unknown", None),
            Verdict::Independent => ("independent", Some(true)),
            Verdict::Dependent => ("dependent", Some(true)),
            Verdict::Coincide => ("coincide", Some(false)),
        };
        Self {
            verdict,
            duplicates_help,
            by_chance: correlation.by_chance.value(),
            masked: correlation.masked.value(),
            masked_max: correlation.masked_max.value(),
            told: correlation.describe(),
        }
    }
}

impl PolicyAdvice {
    fn of(candidate: &Candidate) -> Self {
        Self {
            partitions: candidate.policy.partitions.get(),
            duplicates: candidate.policy.duplicates.get(),
            within: 1.0 - candidate.prediction.violations,
            cost: candidate.cost,
        }
    }
}
