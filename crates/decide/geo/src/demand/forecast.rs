//! What demand will be while the next plan is in force.
//!
//! A plan goes by the demand of epochs that are over and is in force in the next one. A mean of two
//! epochs is of half an epoch before, so it is late by an epoch and a half where demand rises.
//!
//! **Signal**: requests counted where they arrive, as a rate per epoch, one after the other; never
//! what was served, which follows the plans. **Rules** are simple on purpose: each is a few lines
//! that are the same at every site, and none needs more of the past than some minutes, but the one
//! that looks for the same minute of the day before. **Which**: [`Choice::Tested`] runs all beside
//! each other and takes the one whose forecasts were the least wrong lately (absolute error, with a
//! memory of [`MEMORY`] epochs), and leaves it only for one that is better by [`MARGIN`]. **Cold
//! start**: with the first epoch all say what it says; a season is known from the second day on.
//! **When it misleads**: a step is known to none; after it every rule is late by an epoch, and one
//! with a trend shoots over it. A forecast is therefore held between half and twice what was seen
//! last. **Recovery**: errors fade, the trend with them.
//!
//! **Source**: Hyndman and Athanasopoulos, "Forecasting: Principles and Practice" (3rd edition),
//! chapters 5.2 (last, seasonal naive), 8.1 and 8.2 (Holt 1957; damped: Gardner and McKenzie 1985).
//! `evenkeel plan forecast` compares the rules on a file of rates.

use evenkeel_core::time::{Duration, Instant, nanos};

/// Epochs after which an error counts 1/e.
pub const MEMORY: f64 = 48.0;
/// The least share by which another rule must have been better.
pub const MARGIN: f64 = 0.05;
/// Weight of the newest rate in a level.
const LEVEL: f64 = 0.6;
/// Weight of the newest difference of levels in a trend.
const TREND: f64 = 0.2;
/// What of a trend is left an epoch later, where it is damped.
const DAMPED: f64 = 0.8;
/// How many times what was seen last a forecast is at most, and one over the least.
const STEP_MAX: f64 = 2.0;
const MINUTES: usize = 24 * 60;

evenkeel_core::named! {
    /// How the next rate is told from those before.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Rule {
        /// The last one.
        Last = "last",
        /// The mean of the last two.
        Mean = "mean",
        /// Level and trend, both moving averages (Holt).
        Trend = "trend",
        /// The same with a trend that ends.
        Damped = "damped",
        /// The last one, times how the same minute of the day before went on.
        Season = "season",
    }
}

/// Which rule is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// This one.
    Fixed(Rule),
    /// The one whose forecasts were the least wrong lately.
    Tested,
}

impl Choice {
    /// `tested`, or the name of a [`Rule`].
    pub fn named(name: &str) -> Option<Self> {
        if name == "tested" { Some(Self::Tested) } else { Rule::named(name).map(Self::Fixed) }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed(rule) => rule.name(),
            Self::Tested => "tested",
        }
    }
}

/// A level that goes on with a trend.
#[derive(Clone, Copy, Debug, Default)]
struct Holt {
    level: f64,
    trend: f64,
}

impl Holt {
    /// Takes a rate; the one after it. `damping` is 1 where the trend does not end.
    fn next(&mut self, rate: f64, damping: f64) -> f64 {
        let expected = damping.mul_add(self.trend, self.level);
        let level = LEVEL.mul_add(rate - expected, expected);
        let kept = damping * self.trend;
        self.trend = TREND.mul_add(level - self.level - kept, kept);
        self.level = level;
        damping.mul_add(self.trend, level)
    }
}

/// The last rate seen in each minute of a day, before this day: minutes of two days tell of no
/// change within one.
#[derive(Clone, Debug, Default)]
struct Season {
    minutes: Vec<f64>,
    today: Vec<f64>,
    /// The minute whose rates are being added up, their sum and number.
    now: (u64, f64, f64),
}

impl Season {
    fn note(&mut self, minute: u64, rate: f64) {
        if minute != self.now.0 {
            let (ended, sum, number) = self.now;
            if self.minutes.is_empty() {
                self.minutes = vec![f64::NAN; MINUTES];
                self.today = vec![f64::NAN; MINUTES];
            }
            if number > 0.0 {
                self.today[ended as usize % MINUTES] = sum / number;
            }
            if minute / MINUTES as u64 != ended / MINUTES as u64 {
                let seen = self.minutes.iter_mut().zip(&mut self.today);
                for (before, today) in seen.filter(|(_, today)| !today.is_nan()) {
                    *before = core::mem::replace(today, f64::NAN);
                }
            }
            self.now = (minute, 0.0, 0.0);
        }
        self.now.1 += rate;
        self.now.2 += 1.0;
    }

    /// Between the middles of minutes; NaN where nothing was seen.
    fn at(&self, minutes: f64) -> f64 {
        if self.minutes.is_empty() {
            return f64::NAN;
        }
        let minutes = minutes - 0.5;
        let before = libm::floor(minutes);
        let value = |minute: f64| self.minutes[minute.rem_euclid(MINUTES as f64) as usize];
        let (low, high) = (value(before), value(before + 1.0));
        (high - low).mul_add(minutes - before, low)
    }
}

/// All rules on one series of rates.
#[derive(Clone, Debug)]
pub struct Forecaster {
    choice: Choice,
    /// The rate before.
    last: Option<f64>,
    holt: [Holt; 2],
    season: Season,
    /// What each rule said of the next rate.
    said: [f64; Rule::ALL.len()],
    /// How wrong each was lately, in requests per second.
    errors: [f64; Rule::ALL.len()],
    chosen: Rule,
}

impl Default for Forecaster {
    fn default() -> Self {
        Self::new(Choice::Tested)
    }
}

impl Forecaster {
    /// One that has seen nothing.
    pub fn new(choice: Choice) -> Self {
        let chosen = match choice {
            Choice::Fixed(rule) => rule,
            Choice::Tested => Rule::Mean,
        };
        Self {
            choice,
            last: None,
            holt: [Holt::default(); 2],
            season: Season::default(),
            said: [0.0; Rule::ALL.len()],
            errors: [0.0; Rule::ALL.len()],
            chosen,
        }
    }

    /// Takes the rate, in requests per second, of an epoch of this length that ended now; the rate
    /// of the next one. What is no rate changes nothing, and the forecast stays.
    pub fn next(&mut self, now: Instant, epoch: Duration, rate: f64) -> f64 {
        if !(0.0..f64::INFINITY).contains(&rate) {
            return self.forecast();
        }
        if let Some(last) = self.last {
            let fade = libm::exp(-1.0 / MEMORY);
            for (error, said) in self.errors.iter_mut().zip(self.said) {
                *error = fade.mul_add(*error, (1.0 - fade) * (said - rate).abs());
            }
            self.said = self.rules(now, epoch, (last, rate));
        } else {
            self.holt = [Holt { level: rate, trend: 0.0 }; 2];
            self.said = [rate; Rule::ALL.len()];
        }
        self.season.note((minutes(now) - minutes_of(epoch) / 2.0).max(0.0) as u64, rate);
        self.last = Some(rate);
        self.choose();
        self.forecast()
    }

    fn forecast(&self) -> f64 {
        self.said[self.chosen as usize]
    }

    fn rules(&mut self, now: Instant, epoch: Duration, (last, rate): (f64, f64)) -> [f64; 5] {
        let (now, half) = (minutes(now), minutes_of(epoch) / 2.0);
        let (before, then) = (self.season.at(now - half), self.season.at(now + half));
        let season = if before > 0.0 && then >= 0.0 { rate * then / before } else { rate };
        let said = [
            rate,
            f64::midpoint(last, rate),
            self.holt[0].next(rate, 1.0),
            self.holt[1].next(rate, DAMPED),
            season,
        ];
        let (low, high) = (last.min(rate) / STEP_MAX, last.max(rate) * STEP_MAX);
        said.map(|said| said.clamp(low, high))
    }

    fn choose(&mut self) {
        if self.choice != Choice::Tested {
            return;
        }
        let error = |rule: Rule| self.errors[rule as usize];
        let best = Rule::ALL.into_iter().min_by(|a, b| error(*a).total_cmp(&error(*b)));
        let best = best.unwrap_or(self.chosen);
        if error(best) < (1.0 - MARGIN) * error(self.chosen) {
            self.chosen = best;
        }
    }
}

fn minutes(moment: Instant) -> f64 {
    minutes_of(moment.since(Instant::ZERO))
}

fn minutes_of(time: Duration) -> f64 {
    nanos(time) as f64 / 60e9
}

/// How wrong forecasts were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Errors {
    /// Mean absolute error, over the mean rate.
    pub absolute: f64,
    /// Root of the mean squared error, over the mean rate.
    pub squared: f64,
    /// Mean of forecast less rate, over the mean rate: above zero, too much was foretold.
    pub bias: f64,
    /// Share of steps in which a tenth or more of what came was not foretold.
    pub short: f64,
}

/// Forecasts every step of a series from those before it, and compares; steps of a first part are
/// not counted.
pub fn back_test(choice: Choice, step: Duration, rates: &[f64], first: usize) -> Errors {
    let mut forecaster = Forecaster::new(choice);
    let (mut sums, mut short, mut count, mut all) = ([0.0; 3], 0.0, 0.0, 0.0);
    let mut now = Instant::ZERO;
    for (place, two) in rates.windows(2).enumerate() {
        now += step;
        let error = forecaster.next(now, step, two[0]) - two[1];
        if place + 1 < first {
            continue;
        }
        for (sum, error) in sums.iter_mut().zip([error.abs(), error * error, error]) {
            *sum += error;
        }
        short += f64::from(u8::from(error <= -0.1 * two[1] && two[1] > 0.0));
        (count, all) = (count + 1.0, all + two[1]);
    }
    if count == 0.0 || all <= 0.0 {
        return Errors::default();
    }
    let mean = all / count;
    Errors {
        absolute: sums[0] / count / mean,
        squared: libm::sqrt(sums[1] / count) / mean,
        bias: sums[2] / count / mean,
        short: short / count,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_core::Rng;

    const EPOCH: Duration = Duration::from_secs(60);

    fn errors(choice: Choice, rate: impl Fn(f64) -> f64) -> f64 {
        let rates: Vec<f64> = (0..4_000).map(|step| rate(f64::from(step))).collect();
        back_test(choice, EPOCH, &rates, 3_000).absolute
    }

    fn each(rate: impl Fn(f64) -> f64 + Copy) -> [f64; 5] {
        Rule::ALL.map(|rule| errors(Choice::Fixed(rule), rate))
    }

    #[test]
    fn every_rule_is_right_where_nothing_changes_and_a_line_is_followed_by_a_trend_alone() {
        assert_eq!(each(|_| 100.0), [0.0; 5]);
        // The first day has no season, and what is seen after it is no day before.
        let [last, mean, trend, damped, _] = each(|step| 100.0 + step);
        assert!(trend < 1e-9 && damped < last, "{trend}, {damped}, {last}");
        // One step behind, and one and a half, of a mean of 3,600.
        let step = 1.0 / 3_599.5;
        assert!((last / step - 1.0).abs() < 0.01 && (mean / step - 1.5).abs() < 0.01);
    }

    #[test]
    fn the_day_before_is_followed_where_days_are_alike() {
        let day =
            |step: f64| 100.0 * (1.5 + (core::f64::consts::TAU * step / 1_440.0 * 24.0).sin());
        let [last, .., season] = each(day);
        assert!(season < 0.02 * last, "{season} and {last}");
        assert!(errors(Choice::Tested, day) < 0.02 * last);
    }

    /// Epochs are shorter than minutes, and the second day is twice the first.
    #[test]
    fn minutes_of_two_days_are_not_mixed() {
        const SHORT: Duration = Duration::from_millis(2_500);
        let mut forecaster = Forecaster::new(Choice::Fixed(Rule::Season));
        let mut now = Instant::ZERO;
        for step in 0..2 * 24 * 60 * 24 {
            now += SHORT;
            let rate = if step < 24 * 60 * 24 { 100.0 } else { 200.0 };
            let said = forecaster.next(now, SHORT, rate);
            assert!((said / rate - 1.0).abs() < 1e-6 || step <= 24 * 60 * 24, "{step}: {said}");
        }
    }

    #[test]
    fn the_rule_that_was_least_wrong_is_followed() {
        let noise =
            |step: f64| 100.0 + 10.0 * Rng::stream(step as u64, "noise").normal().clamp(-3.0, 3.0);
        let ramp = |step: f64| 100.0 + 5.0 * (500.0 - (step % 1_000.0 - 500.0).abs());
        for rate in [&noise as &dyn Fn(f64) -> f64, &ramp] {
            let best = each(rate).into_iter().fold(f64::INFINITY, f64::min);
            let tested = errors(Choice::Tested, rate);
            assert!(tested <= 1.06 * best, "{tested}, and the best {best}");
        }
        // What is independent of what was before is best told by the mean of most of it.
        let of_noise = each(noise);
        assert!(of_noise[Rule::Mean as usize] < of_noise[Rule::Last as usize], "{of_noise:?}");
    }

    #[test]
    fn a_step_is_followed_within_two_epochs_and_no_forecast_is_absurd() {
        for rule in Rule::ALL {
            let mut forecaster = Forecaster::new(Choice::Fixed(rule));
            let mut now = Instant::ZERO;
            let mut next = |rate: f64| {
                now += EPOCH;
                forecaster.next(now, EPOCH, rate)
            };
            (0..50).for_each(|_| assert!((next(100.0) - 100.0).abs() < 1e-9));
            assert!(next(200.0) > 140.0, "{}", rule.name());
            let then = next(200.0);
            assert!((170.0..=260.0).contains(&then), "{}: {then}", rule.name());
            for rate in [0.0, 1e12, 0.0, f64::NAN, -1.0, f64::INFINITY, 5.0, 5.0] {
                let said = next(rate);
                assert!((0.0..=2e12).contains(&said), "{}: {said} after {rate}", rule.name());
            }
            assert!(next(5.0) <= 10.0, "{}", rule.name());
        }
    }
}
