//! The delay that is chosen, beside every other on a grid.

use proptest::prelude::*;

use super::*;
use crate::request::redundancy::{Hedge, HedgeConfig, Redundancy};
use crate::rng::Rng;
use crate::units::Probability;

const OBJECTIVE: Duration = Duration::from_millis(30);

/// Any curve: some steps down from one.
fn curve() -> impl Strategy<Value = Survival> {
    let drops = prop::collection::vec((0..=STEPS, 0.0..1.0_f64), 1..12);
    drops.prop_map(|drops| {
        let mut drops = drops;
        drops.sort_by_key(|&(step, _)| step);
        Survival::from_fn(|step| {
            drops.iter().filter(|drop| drop.0 <= step).fold(1.0, |share, drop| share * drop.1)
        })
    })
}

fn terms() -> impl Strategy<Value = Terms> {
    let shares = (0.0..=1.0_f64, 0.0..0.5_f64, 0.0..=1.0_f64, 0..STEPS / 2);
    shares.prop_map(|(budget_share, worth_min, shared, step_min)| Terms {
        budget_share,
        worth_min,
        shared,
        step_min,
    })
}

/// What the model says of a delay, written out: late, and the copy too, for those who get one.
fn cost(curve: &Survival, terms: &Terms, step: usize) -> f64 {
    let (alone, due) = (curve.beyond(STEPS), curve.beyond(step));
    let both_late =
        alone * terms.shared + alone * (1.0 - terms.shared) * curve.beyond(STEPS - step);
    if due <= terms.budget_share {
        return both_late + terms.worth_min * due;
    }
    let granted = terms.budget_share / due;
    granted * both_late + (1.0 - granted) * alone + terms.worth_min * terms.budget_share
}

proptest! {
    #[test]
    fn the_choice_is_the_best_of_all_delays(curve in curve(), terms in terms()) {
        let all = (terms.step_min..STEPS).map(|step| cost(&curve, &terms, step));
        let least = all.fold(curve.late(), f64::min);
        match choose(&curve, &terms) {
            Some(plan) => {
                prop_assert!(plan.copies <= terms.budget_share);
                prop_assert!(plan.step >= terms.step_min);
                prop_assert!((cost(&curve, &terms, plan.step) - least).abs() < 1e-12);
                prop_assert!(plan.worth() >= terms.worth_min - 1e-9, "{}", plan.worth());
            }
            None => prop_assert!(least >= curve.late() - 1e-12, "{least}"),
        }
    }

    /// More budget never costs more, and copies never leave later for it.
    #[test]
    fn the_choice_is_monotone_in_the_budget(
        curve in curve(), terms in terms(), more in 0.0..1.0_f64,
    ) {
        let richer = Terms { budget_share: terms.budget_share + more, ..terms };
        let total = |terms: &Terms| {
            choose(&curve, terms).map_or(curve.late(), |plan| cost(&curve, terms, plan.step))
        };
        prop_assert!(total(&richer) <= total(&terms) + 1e-12);
        if let (Some(plan), Some(rich)) = (choose(&curve, &terms), choose(&curve, &richer)) {
            prop_assert!(rich.step <= plan.step);
            prop_assert!(rich.violations <= plan.violations + 1e-12);
        }
    }
}

/// A world of requests that are mostly quick and now and then stumble.
struct Play {
    hedge: Hedge,
    rng: Rng,
    now: Instant,
    /// The chance that a copy stumbles just as its first did.
    shared: f64,
    requests: u64,
    copies: u64,
    late: u64,
    late_alone: u64,
}

impl Play {
    fn new(config: HedgeConfig, seed: u64) -> Self {
        Self {
            hedge: Hedge::new(config),
            rng: Rng::seeded(seed),
            now: Instant::ZERO,
            shared: 0.0,
            requests: 0,
            copies: 0,
            late: 0,
            late_alone: 0,
        }
    }

    fn draw_ms(&mut self) -> f64 {
        let body = 2.0 + 2.0 * self.rng.exponential();
        if self.rng.unit() < 0.02 { body + 40.0 * self.rng.exponential() } else { body }
    }

    /// So many requests, a millisecond apart, none in the way of another.
    fn run(&mut self, requests: u64) -> &mut Self {
        (0..requests).for_each(|_| self.request());
        self
    }

    fn request(&mut self) {
        self.now += Duration::from_millis(1);
        self.requests += 1;
        self.hedge.on_open(self.now);
        let alone_ms = self.draw_ms();
        let objective_ms = crate::time::millis(OBJECTIVE);
        self.late_alone += u64::from(alone_ms > objective_ms);
        let due_ms = self.hedge.copy_due(1).map(crate::time::millis);
        let due_ms = due_ms.filter(|&due| alone_ms > due && self.hedge.permits_copy(self.now));
        let copy_ms = due_ms.map(|due_ms| {
            let fresh_ms = self.draw_ms();
            let same = self.rng.unit() < self.shared;
            (due_ms, if same { alone_ms + 1.0 - due_ms } else { fresh_ms })
        });
        let end_ms = copy_ms.map_or(alone_ms, |(due, copy)| alone_ms.min(due + copy));
        self.late += u64::from(end_ms > objective_ms);
        let end = |kind, sent_ms: f64, is_answered| Lasted {
            kind,
            latency: crate::time::from_millis_f64(end_ms - sent_ms),
            is_answered,
            behind: crate::time::from_millis_f64(sent_ms),
            in_flight: 1,
            report: None,
        };
        self.hedge.on_end(self.now, &end(Kind::First, 0.0, end_ms >= alone_ms));
        if let Some((due_ms, _)) = copy_ms {
            self.copies += 1;
            self.hedge.on_end(self.now, &end(Kind::Hedge, due_ms, end_ms < alone_ms));
        }
    }

    fn forget(&mut self) -> &mut Self {
        (self.requests, self.copies, self.late, self.late_alone) = (0, 0, 0, 0);
        self
    }
}

fn config(worth_min: f64) -> HedgeConfig {
    let objective = ObjectiveConfig { worth_min, ..ObjectiveConfig::new(OBJECTIVE) };
    HedgeConfig { objective: Some(objective), ..HedgeConfig::default() }
}

/// The world's own tail: hypoexponential stumbles on an exponential body.
fn tail(ms: f64) -> f64 {
    let body = |ms: f64| if ms <= 2.0 { 1.0 } else { (-(ms - 2.0) / 2.0).exp() };
    let stumbled = |ms: f64| {
        let over = ms - 2.0;
        if over <= 0.0 {
            1.0
        } else {
            (40.0 * (-over / 40.0).exp() - 2.0 * (-over / 2.0).exp()) / 38.0
        }
    };
    0.98 * body(ms) + 0.02 * stumbled(ms)
}

#[test]
fn violations_fall_as_foretold_and_stay_low() {
    let mut play = Play::new(config(0.01), 1);
    play.run(20_000).forget().run(300_000);
    // The model's own optimum, from the world's law in place of what was recorded.
    let law = Survival::from_fn(|step| tail(30.0 * step as f64 / STEPS as f64));
    let terms = Terms { budget_share: 0.05, worth_min: 0.01, shared: 0.0, step_min: 0 };
    let best = choose(&law, &terms).unwrap();
    // One in 64 is kept for comparison.
    let predicted = best.violations + (best.late - best.violations) / 64.0;
    let share = |count: u64| count as f64 / play.requests as f64;
    let (late, alone) = (share(play.late), share(play.late_alone));
    assert!((alone / best.late - 1.0).abs() < 0.05, "{alone}, law {}", best.late);
    assert!(late < 1.4 * predicted && late > 0.6 * predicted, "{late}, foretold {predicted}");
    assert!((share(play.copies) / best.copies - 1.0).abs() < 0.3, "{} {best:?}", play.copies);
    let stats = play.hedge.stats().unwrap();
    assert!(!stats.is_futile && stats.shared < 0.05, "{stats:?}");
    let worth = stats.worth.unwrap();
    assert!((worth / best.worth() - 1.0).abs() < 0.3, "{worth}, law {}", best.worth());
}

#[test]
fn a_high_price_spends_fewer_copies_and_too_high_a_price_none() {
    let copies = |worth_min| Play::new(config(worth_min), 2).run(60_000).copies;
    let (cheap, dear, too_dear) = (copies(0.0), copies(0.1), copies(0.999));
    assert!(dear * 3 < cheap * 2 && dear > 300 && too_dear == 0, "{cheap}, {dear}, {too_dear}");
}

#[test]
fn copies_stay_within_the_bucket_whatever_is_learnt() {
    for seed in 0..5 {
        let budget_share = 0.01;
        let mut play = Play::new(HedgeConfig { budget_share, ..config(0.0) }, seed);
        play.run(50_000);
        let allowed = budget_share * play.requests as f64 + play.hedge_burst();
        assert!(play.copies as f64 <= allowed && play.copies > 100, "{} copies", play.copies);
    }
}

impl Play {
    fn hedge_burst(&self) -> f64 {
        HedgeConfig::default().burst_max
    }
}

#[test]
fn copies_that_share_the_trouble_stop_and_come_back() {
    let mut play = Play::new(config(0.01), 3);
    let usual = play.run(50_000).forget().run(50_000).copies;
    play.shared = 1.0;
    play.run(60_000).forget().run(50_000);
    let stats = play.hedge.stats().unwrap();
    assert!(stats.is_futile && stats.kept.as_futile > 100, "{stats:?}");
    let wasted = play.copies;
    assert!(wasted * 8 < usual, "{wasted} copies although futile, {usual} before");
    play.shared = 0.0;
    // One in 64 of the due leaves: it takes some hundred of them to be sure.
    play.run(300_000).forget().run(50_000);
    let again = play.copies;
    let stats = play.hedge.stats();
    assert!(again * 10 > usual * 8, "{again} copies after, {usual} before: {stats:?}");
}

#[test]
fn a_bucket_that_refuses_raises_the_price_and_one_that_does_not_lowers_it() {
    let mut scarcity = Scarcity::default();
    let mut ticks = |granted: u32, refused: u32, ticks: u32| {
        for _ in 0..ticks {
            (0..granted).for_each(|_| scarcity.note(true));
            (0..refused).for_each(|_| scarcity.note(false));
            scarcity.tick();
        }
        scarcity.level
    };
    assert_eq!(ticks(96, 4, 20), 0.0, "one in 25 is borne");
    assert_eq!(ticks(9, 1, 4), 4.0 * Scarcity::UP);
    assert_eq!(ticks(0, 1, 100), Scarcity::LEVEL_MAX);
    assert_eq!(ticks(0, 0, 16), Scarcity::LEVEL_MAX - 16.0 * Scarcity::DOWN);
    assert_eq!(ticks(1, 0, 1_000), 0.0);
}

#[test]
fn a_delay_min_is_kept_and_one_beyond_the_objective_means_none() {
    let delay_min = Duration::from_millis(12);
    let mut play = Play::new(HedgeConfig { delay_min, ..config(0.01) }, 4);
    play.run(5_000);
    assert!(play.hedge.delay().unwrap() >= delay_min);
    let delay_min = Duration::from_millis(31);
    let mut play = Play::new(HedgeConfig { delay_min, ..config(0.01) }, 4);
    assert_eq!(play.run(5_000).copies, 0);
}

#[test]
fn nothing_leaves_before_a_hundred_requests_or_where_all_are_in_time() {
    let mut play = Play::new(config(0.0), 5);
    assert_eq!(play.run(99).hedge.delay(), None);
    let objective = Some(ObjectiveConfig::new(Duration::from_secs(10)));
    let mut play = Play::new(HedgeConfig { objective, ..config(0.01) }, 5);
    assert_eq!(play.run(10_000).copies, 0);
}

#[test]
fn the_quantile_is_not_asked_where_there_is_an_objective() {
    let delays = [0.5, 0.999].map(|quantile| {
        let quantile = Probability::clamped(quantile);
        Play::new(HedgeConfig { quantile, ..config(0.01) }, 6).run(5_000).hedge.delay()
    });
    assert_eq!(delays[0], delays[1]);
}
