//! Which load to offer next: a function of what was measured, so that a run that was interrupted
//! goes on where it was.
//!
//! Three parts, for each write share. *Up*: loads grow by a constant factor until one is saturated.
//! *Between*: the bracket of the highest load that was sustained and the lowest that was not is
//! halved until it is narrow. *Near*: loads at fixed shares of the saturation that was found, where
//! the curve is steep. A verdict of saturation needs two steps: one pause of the machine in a step
//! must not cost half the capacity, and a load that was sustained outweighs one below it that was
//! not.

/// Steps of one write share at most.
pub const STEPS_PER_SHARE_MAX: usize = 80;

/// Where the loads of the last part lie, in shares of the saturation.
const NEAR: [f64; 8] = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97];
/// A load within this of one that was measured is not measured again.
const NEAR_ENOUGH: f64 = 0.02;
/// After this many loads the way up takes strides of two, and the way down always does: a first
/// load far from the saturation must not use all steps up.
const UP_LOADS_MAX: usize = 24;
/// The least factor of such a stride.
const STRIDE: f64 = 2.0;
/// How far below the first load the search goes when that is saturated.
const DOWN_MAX: f64 = 1_000.0;

/// Which loads are tried.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SearchConfig {
    /// The first load, in requests per second; `None`: from how long a request takes.
    pub rate_min: Option<f64>,
    /// No load above this; `None`: up to saturation, however far that is.
    pub rate_max: Option<f64>,
    /// Loads on the way up for each factor of ten.
    pub per_decade: u32,
    /// How far the lowest saturated load may lie above the highest sustained one, as a share.
    pub precision: f64,
}

/// A load that was offered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tried {
    /// Requests per second.
    pub load: f64,
    /// Whether the queue grew.
    pub is_saturated: bool,
}

/// What to do next.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Next {
    /// Offer this load, in requests per second.
    Offer(f64),
    /// All is known: the saturation, if it was reached.
    Done(Option<f64>),
    /// Even this load, far below the first, is not sustained.
    Hopeless(f64),
}

/// What two steps, or one, said of a load.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Verdict {
    load: f64,
    steps: usize,
    saturated: usize,
}

impl Verdict {
    fn is_sustained(&self) -> bool {
        self.saturated < self.steps
    }
}

impl SearchConfig {
    /// What to do after these steps of one write share, which began at `first` requests per second.
    pub fn next(&self, first: f64, tried: &[Tried]) -> Next {
        let verdicts = verdicts(tried);
        let sustained = verdicts.iter().rfind(|verdict| verdict.is_sustained());
        let sustained = sustained.map(|verdict| verdict.load);
        let above = verdicts.iter().find(|verdict| Some(verdict.load) > sustained);
        if tried.len() >= STEPS_PER_SHARE_MAX {
            let known = above.filter(|_| sustained.is_some());
            return Next::Done(known.map(|verdict| verdict.load));
        }
        match (sustained, above) {
            (_, Some(once)) if once.steps < 2 => Next::Offer(once.load),
            (None, None) => Next::Offer(rounded(first)),
            (None, Some(lowest)) => self.down(first, lowest.load),
            (Some(highest), None) => self.up(highest, verdicts.len()),
            (Some(low), Some(high)) => self.between(low, high.load, &verdicts),
        }
    }

    /// How many more steps there will be if the saturation is at `guess`.
    pub fn steps_left(&self, first: f64, tried: &[Tried], guess: f64) -> usize {
        let mut tried = tried.to_vec();
        let before = tried.len();
        while let Next::Offer(load) = self.next(first, &tried) {
            tried.push(Tried { load, is_saturated: load >= guess });
        }
        tried.len() - before
    }

    fn factor(&self) -> f64 {
        10.0_f64.powf(1.0 / f64::from(self.per_decade))
    }

    fn up(&self, highest: f64, loads: usize) -> Next {
        let end = self.rate_max.unwrap_or(crate::RATE_MAX);
        // Rounding may leave the last load a little below its end.
        if highest >= end * (1.0 - 1e-3) {
            return Next::Done(None);
        }
        let stride = if loads < UP_LOADS_MAX { 1.0 } else { STRIDE };
        let next = rounded(highest * self.factor().max(stride));
        Next::Offer(if next > end * (1.0 - 1e-3) { end } else { next })
    }

    fn down(&self, first: f64, lowest: f64) -> Next {
        let next = rounded(lowest / self.factor().powi(2).max(STRIDE));
        if next * DOWN_MAX < first { Next::Hopeless(lowest) } else { Next::Offer(next) }
    }

    fn between(&self, low: f64, high: f64, verdicts: &[Verdict]) -> Next {
        let middle = rounded((low * high).sqrt());
        let is_wide = high > low * (1.0 + self.precision);
        if is_wide && middle > low && middle < high {
            return Next::Offer(middle);
        }
        let is_known = |load: f64| {
            verdicts.iter().any(|verdict| (verdict.load / load - 1.0).abs() <= NEAR_ENOUGH)
        };
        let near = NEAR.iter().map(|share| rounded(share * high));
        match near.into_iter().find(|&load| load < low && !is_known(load)) {
            Some(load) => Next::Offer(load),
            None => Next::Done(Some(high)),
        }
    }
}

/// One for each load, ascending.
fn verdicts(tried: &[Tried]) -> Vec<Verdict> {
    let mut tried = tried.to_vec();
    tried.sort_by(|a, b| a.load.total_cmp(&b.load));
    let verdict = |steps: &[Tried]| Verdict {
        load: steps[0].load,
        steps: steps.len(),
        saturated: steps.iter().filter(|step| step.is_saturated).count(),
    };
    tried.chunk_by(|a, b| a.load == b.load).map(verdict).collect()
}

/// Three significant digits: loads that people can read and compare.
fn rounded(load: f64) -> f64 {
    let unit = 10.0_f64.powi(load.log10().floor() as i32 - 2);
    // Through text, so that 0.1 × 3 is 0.3.
    format!("{:.6}", (load / unit).round() * unit).parse().expect("a number was just written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const USUAL: SearchConfig =
        SearchConfig { rate_min: None, rate_max: None, per_decade: 5, precision: 0.03 };

    /// The steps of a search on a service that is as it says.
    fn search(
        config: &SearchConfig,
        first: f64,
        is_saturated: impl Fn(f64, usize) -> bool,
    ) -> (Vec<Tried>, Next) {
        let mut tried = Vec::new();
        loop {
            match config.next(first, &tried) {
                Next::Offer(load) => {
                    let is_saturated = is_saturated(load, tried.len());
                    tried.push(Tried { load, is_saturated });
                }
                end => return (tried, end),
            }
        }
    }

    proptest! {
        #[test]
        fn the_saturation_is_found_within_the_precision_wherever_it_is(
            first in (-2.0..9.0_f64).prop_map(f64::exp),
            times in (-3.0..7.0_f64).prop_map(f64::exp),
            per_decade in 1..=20_u32,
            precision in 0.005..0.3_f64,
        ) {
            let capacity = first * times;
            let config = SearchConfig { per_decade, precision, ..USUAL };
            let (tried, end) = search(&config, first, |load, _| load >= capacity);
            let Next::Done(Some(found)) = end else { panic!("{end:?} after {tried:?}") };
            // Three digits of rounding, at both ends of the bracket.
            prop_assert!(found >= capacity && found <= capacity * (1.01 + precision), "{found}");
            prop_assert!(tried.len() < STEPS_PER_SHARE_MAX);
            let below = tried.iter().filter(|tried| tried.load < capacity);
            let steep = below.filter(|tried| tried.load >= 0.49 * capacity).count();
            prop_assert!(steep >= 4, "{tried:?}");
        }

        #[test]
        fn a_search_that_was_interrupted_goes_on_the_same(
            capacity in 20.0..5_000.0_f64,
            shuffled in any::<prop::sample::Index>(),
        ) {
            let (whole, end) = search(&USUAL, 10.0, |load, _| load >= capacity);
            let kept = shuffled.index(whole.len());
            let mut part = whole[..kept].to_vec();
            // A file has its steps in another order.
            part.sort_by(|a, b| a.load.total_cmp(&b.load));
            let next = USUAL.next(10.0, &part);
            prop_assert_eq!(next, Next::Offer(whole[kept].load));
            prop_assert!(matches!(end, Next::Done(Some(_))));
        }

        #[test]
        fn every_search_ends(seed in any::<u64>(), share in 0.0..1.0_f64) {
            let mut rng = evenkeel_core::Rng::seeded(seed);
            let draws: Vec<f64> = (0..STEPS_PER_SHARE_MAX).map(|_| rng.unit()).collect();
            let (tried, _) = search(&USUAL, 100.0, |_, step| draws[step] < share);
            prop_assert!(tried.len() <= STEPS_PER_SHARE_MAX);
        }
    }

    #[test]
    fn one_bad_step_costs_one_step_and_nothing_else() {
        let (clean, end) = search(&USUAL, 100.0, |load, _| load >= 1_000.0);
        let (hit, end_hit) = search(&USUAL, 100.0, |load, step| load >= 1_000.0 || step == 2);
        assert_eq!(end, end_hit);
        assert_eq!(hit.len(), clean.len() + 1);
    }

    #[test]
    fn a_greatest_load_ends_the_search_and_is_offered_itself() {
        let config = SearchConfig { rate_max: Some(500.0), ..USUAL };
        let (tried, end) = search(&config, 100.0, |_, _| false);
        assert_eq!(end, Next::Done(None));
        let loads: Vec<f64> = tried.iter().map(|tried| tried.load).collect();
        assert_eq!(loads, [100.0, 158.0, 250.0, 396.0, 500.0]);
    }

    #[test]
    fn what_sustains_nothing_is_given_up() {
        let (tried, end) = search(&USUAL, 100.0, |_, _| true);
        assert!(matches!(end, Next::Hopeless(load) if load < 1.0), "{end:?}");
        assert!(tried.len() < 20);
    }

    #[test]
    fn the_steps_left_are_those_that_come() {
        let (tried, _) = search(&USUAL, 10.0, |load, _| load >= 300.0);
        for done in 0..tried.len() {
            let left = USUAL.steps_left(10.0, &tried[..done], 300.0);
            assert_eq!(left, tried.len() - done);
        }
    }
}
