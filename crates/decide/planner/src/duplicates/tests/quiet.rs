//! Nodes that go for the night and are back before the morning: days of a service in virtual time.

use std::collections::BTreeSet;

use super::{at, count, ms, quick, rate, share, store};
use crate::duplicates::moves::{Arrangement, Move, Partition, Planner, Steadiness};
use crate::duplicates::policy::Prices;
use crate::duplicates::quiet::{Nights, Seen, Settings, Stage};
use crate::duplicates::{Model, Question, Service};
use evenkeel_core::time::{Duration, Instant};
use evenkeel_core::units::Rate;

const WINDOW: Duration = Duration::from_secs(300);
const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
const SHARDS: usize = 6;

fn planner(service: &Service) -> Planner<'_> {
    Planner {
        model: Model::Paper, // at once, and the decision is the same
        question: Question { effort: quick(1_000), ..Question::new(service, rate(0.0), ms(7.0)) },
        target: share(0.99),
        nodes_max: 12,
        prices: Prices::default(),
        steadiness: Steadiness::default(),
        duplicates_min: count(1),
    }
}

fn partition(shards: impl IntoIterator<Item = usize>, duplicates: u32) -> Partition {
    Partition { shards: shards.into_iter().collect(), duplicates: count(duplicates) }
}

/// Three partitions of two duplicates.
fn home() -> Arrangement {
    Arrangement { partitions: (0..3).map(|n| partition([2 * n, 2 * n + 1], 2)).collect() }
}

/// From eight to twenty-two o'clock three partitions are busy; an eighth of that at night.
fn load(at: u64) -> f64 {
    if (8 * HOUR..22 * HOUR).contains(&(at % DAY)) { 1.6 } else { 0.2 }
}

/// What may go wrong in a window.
#[derive(Clone, Copy, Default)]
struct Trouble {
    /// The step that is said is not carried out.
    fails: bool,
    unsound: Option<&'static str>,
    is_late: bool,
}

/// A service, and what became of it.
struct Story {
    nights: Nights,
    now: Arrangement,
    at: u64,
    steps: Vec<(u64, Move)>,
    stages: Vec<(u64, Stage)>,
    spares: usize,
}

impl Story {
    fn new(duplicates_min: u32) -> Self {
        let nights = Nights::new(Settings::new(count(duplicates_min)));
        Self { nights, now: home(), at: 0, steps: vec![], stages: vec![], spares: 0 }
    }

    fn run(&mut self, until: u64, load: impl Fn(u64) -> f64, trouble: impl Fn(u64) -> Trouble) {
        let service = Service::alike(store());
        let planner = planner(&service);
        while self.at < until {
            let trouble = trouble(self.at);
            let each = at(load(self.at), &store()).value() / SHARDS as f64;
            let rates: Vec<Rate> = vec![rate(each); SHARDS];
            let from = Instant::ZERO + Duration::from_secs(self.at);
            self.at += WINDOW.as_secs();
            let seen = Seen {
                from,
                now: from + WINDOW,
                arrangement: &self.now,
                rates: &rates,
                spares: Some(self.spares),
                is_late: trouble.is_late,
                unsound: trouble.unsound,
            };
            let choice = self.nights.decide(&planner, &seen).unwrap();
            assert!(!choice.why.is_empty());
            if self.stages.last().is_none_or(|(_, last)| *last != choice.stage) {
                self.stages.push((self.at, choice.stage));
            }
            if let Some(step) = choice.step.filter(|_| !trouble.fails) {
                self.carry_out(step);
            }
        }
    }

    /// As the service does: empty partitions are closed, and their nodes are spare.
    fn carry_out(&mut self, step: Move) {
        let before = self.now.nodes();
        let mut after = self.now.after(&step).unwrap();
        after.partitions.retain(|part| !part.shards.is_empty());
        self.spares = (self.spares as u64 + before - after.nodes()) as usize;
        self.now = after;
        self.steps.push((self.at, step));
    }

    fn nodes(&self) -> u64 {
        self.now.nodes()
    }

    fn is_home(&self) -> bool {
        let set = |of: &Arrangement| -> BTreeSet<(BTreeSet<usize>, u32)> {
            let of = of.partitions.iter();
            of.map(|it| (it.shards.iter().copied().collect(), it.duplicates.get())).collect()
        };
        set(&self.now) == set(&home())
    }
}

fn well(_: u64) -> Trouble {
    Trouble::default()
}

#[test]
fn nodes_go_in_the_second_night_and_are_back_before_the_morning() {
    let mut story = Story::new(1);
    story.run(DAY - 600, load, well);
    assert!(story.steps.is_empty(), "nothing is known of a day: {:?}", story.steps);
    assert_eq!(story.stages[0].1, Stage::Learning);
    // Midnight, and the day before began so.
    story.run(DAY + 4 * HOUR, load, well);
    let night = story.nodes();
    assert!(night < 6, "{:?}", story.steps);
    // The last step before the rise, and none while it is day.
    story.run(DAY + 8 * HOUR, load, well);
    assert!(story.is_home(), "{:?}", story.now);
    let last = story.steps.last().unwrap().0;
    assert!((DAY + 6 * HOUR..=DAY + 8 * HOUR).contains(&last), "{last}");
    let done = story.steps.len();
    story.run(DAY + 21 * HOUR, load, well);
    assert_eq!(story.steps.len(), done, "{:?}", story.steps);
    // The next night as the one before.
    story.run(2 * DAY + 4 * HOUR, load, well);
    assert_eq!(story.nodes(), night);
    story.run(2 * DAY + 8 * HOUR, load, well);
    assert!(story.is_home(), "{:?}", story.now);
}

#[test]
fn no_partition_has_fewer_duplicates_than_durability_asks_for() {
    for (least, expected) in [(1, 1), (2, 2), (3, 2)] {
        let mut story = Story::new(least);
        story.run(DAY + 4 * HOUR, load, well);
        let fewest = story.now.partitions.iter().map(|it| it.duplicates.get()).min().unwrap();
        assert_eq!(fewest, expected, "at least {least}: {:?}", story.now);
        assert!(story.nodes() < 6, "partitions go all the same: {:?}", story.now);
    }
}

#[test]
fn nothing_goes_while_something_is_wrong_and_what_went_comes_back_all_the_same() {
    let away = |_| Trouble { unsound: Some("a duplicate is away"), ..Trouble::default() };
    let mut story = Story::new(1);
    story.run(2 * DAY, load, away);
    assert!(story.steps.is_empty(), "{:?}", story.steps);
    story.run(2 * DAY + 4 * HOUR, load, well);
    assert!(story.nodes() < 6);
    let done = story.steps.len();
    story.run(2 * DAY + 5 * HOUR, load, away);
    assert_eq!(story.steps.len(), done);
    story.run(2 * DAY + 8 * HOUR, load, away);
    assert!(story.is_home(), "{:?}", story.now);
}

#[test]
fn a_rise_that_nobody_foretold_brings_them_back_at_once() {
    let early = |at: u64| if at >= DAY + 3 * HOUR { 1.6 } else { load(at) };
    let mut story = Story::new(1);
    story.run(DAY + 3 * HOUR, early, well);
    assert!(story.nodes() < 6);
    story.run(DAY + 4 * HOUR, early, well);
    assert!(story.is_home(), "{:?}", story.now);
}

#[test]
fn answers_that_are_late_bring_them_back_though_the_model_promised_otherwise() {
    let mut story = Story::new(1);
    story.run(DAY + 3 * HOUR, load, well);
    assert!(story.nodes() < 6);
    let late = |at: u64| Trouble {
        is_late: (DAY + 3 * HOUR..DAY + 3 * HOUR + 1_200).contains(&at),
        unsound: Some("predictions do not hold"),
        ..Trouble::default()
    };
    story.run(DAY + 5 * HOUR, load, late);
    assert!(story.is_home(), "{:?}", story.now);
}

/// The forecast, and so the step, would be the same as before.
#[test]
fn what_made_answers_late_is_not_closed_again_in_the_same_night() {
    let mut story = Story::new(1);
    story.run(DAY + HOUR, load, well);
    assert!(story.nodes() < 6);
    let late = |at: u64| Trouble {
        is_late: (DAY + HOUR..DAY + HOUR + 1_200).contains(&at),
        ..Trouble::default()
    };
    story.run(DAY + 3 * HOUR, load, late);
    assert!(story.is_home(), "{:?}", story.now);
    let steps = story.steps.len();
    story.run(DAY + 8 * HOUR, load, well);
    assert_eq!(story.steps.len(), steps, "predictions held, and the night was quiet");
    story.run(2 * DAY + 3 * HOUR, load, well);
    assert!(story.nodes() < 6, "the next night");
}

#[test]
fn a_step_that_failed_is_said_again_and_a_half_done_night_is_undone() {
    let odd = |at: u64| Trouble {
        fails: !(at / WINDOW.as_secs()).is_multiple_of(3),
        ..Trouble::default()
    };
    let mut story = Story::new(1);
    story.run(DAY + 5 * HOUR, load, odd);
    assert!(story.nodes() < 6, "{:?}", story.steps);
    story.run(DAY + 10 * HOUR, load, odd);
    assert!(story.is_home(), "{:?}", story.now);
    // One step of the way down, and then none is carried out until it is late.
    let mut story = Story::new(1);
    while story.steps.is_empty() {
        story.run(story.at + 300, load, well);
    }
    story.run(DAY + 7 * HOUR, load, |_| Trouble { fails: true, ..Trouble::default() });
    story.run(DAY + 8 * HOUR, load, well);
    assert!(story.is_home(), "{:?}", story.now);
}

#[test]
fn what_somebody_else_changes_is_kept() {
    let mut story = Story::new(1);
    story.run(DAY + 3 * HOUR, load, well);
    let fewer = story.nodes();
    assert!(fewer < 6);
    story.now = story.now.after(&Move::Add { partition: 0 }).unwrap();
    let (by_hand, done) = (story.now.clone(), story.steps.len());
    story.run(story.at + 300, load, well);
    assert_eq!(story.stages.last().unwrap().1, Stage::Day);
    assert_eq!((&story.now, story.steps.len()), (&by_hand, done));
}

#[test]
fn nodes_that_are_taken_elsewhere_are_not_waited_for() {
    let mut story = Story::new(1);
    story.run(DAY + 4 * HOUR, load, well);
    assert!(story.nodes() < 6);
    (story.spares, story.steps) = (0, vec![]);
    story.run(DAY + 9 * HOUR, load, well);
    assert!(!story.nights.is_under_way());
    let adds = |step: &Move| matches!(step, Move::Add { .. } | Move::Open { .. });
    assert!(!story.steps.iter().any(|(_, step)| adds(step)), "{:?}", story.steps);
}

#[test]
fn the_busiest_morning_of_seven_days_is_expected() {
    // Day 3 and 4 are a weekend without a rise; the fifth morning is as the others.
    let week = |at: u64| if matches!(at / DAY, 3 | 4) { 0.2 } else { load(at) };
    let mut story = Story::new(1);
    story.run(5 * DAY + 4 * HOUR, week, well);
    assert!(story.nodes() < 6, "{:?}", story.now);
    story.run(5 * DAY + 8 * HOUR, week, well);
    assert!(story.is_home(), "{:?}", story.now);
}
