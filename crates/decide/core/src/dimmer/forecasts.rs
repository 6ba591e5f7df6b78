//! What a forecast of its own would give a dimmer, whose replica is asked for more and less all
//! the time: the law goes by the rate of the period that ended, and here by what is foretold of
//! the next.
//!
//! `cargo test --profile ci -p evenkeel-core --lib a_forecast_would -- --ignored --nocapture`
//! prints it.

use super::world::{Likeness, Serving, World};
use super::*;

const PERIOD_S: f64 = 0.25;
const SECONDS: f64 = 120.0;
const SEEDS: u64 = 10;

/// Where the next period's rate comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Rule {
    /// It is that of the last one, or of some where there is little traffic.
    Last,
    /// Level and trend, both moving averages, the trend damped: as `evenkeel_geo` has it.
    Trend,
    /// The true one.
    Known,
}

/// Load, in what can be served in full, at a time.
type Course = fn(f64, &mut Rng) -> f64;

/// Slowly up and down, as a day is in two minutes.
fn diurnal(at_s: f64, _: &mut Rng) -> f64 {
    0.5f64.mul_add((core::f64::consts::TAU * at_s / 60.0).sin(), 1.0)
}

/// Up within three seconds to more than three times as much, and down in five.
fn spiky(at_s: f64, _: &mut Rng) -> f64 {
    let at_s = at_s % 20.0;
    0.6 + 1.5 * (at_s / 3.0).min((8.0 - at_s) / 5.0).max(0.0)
}

/// From 60 % to 130 % at once, and back.
fn steps(at_s: f64, _: &mut Rng) -> f64 {
    if at_s % 20.1 < 10.0 { 0.6 } else { 1.3 }
}

/// Every quarter of a second another one, about a level.
fn noisy(_: f64, rng: &mut Rng) -> f64 {
    (0.3 * rng.normal()).exp()
}

#[derive(Default)]
struct Forecast {
    level: f64,
    trend: f64,
}

impl Forecast {
    /// `evenkeel_geo::demand::forecast`: `Damped`.
    fn next(&mut self, rate: f64) -> f64 {
        const DAMPED: f64 = 0.8;
        let expected = DAMPED.mul_add(self.trend, self.level);
        let level = 0.6f64.mul_add(rate - expected, expected);
        self.trend = 0.2f64.mul_add(level - self.level - DAMPED * self.trend, DAMPED * self.trend);
        self.level = level;
        DAMPED.mul_add(self.trend, level).max(0.0)
    }
}

/// Shares of late and of lean requests.
fn run((slots, full_ms): (usize, f64), course: Course, rule: Rule, seed: u64) -> [f64; 2] {
    let like = Likeness { serving: Serving::Slots(slots), full_ms, cv: 0.96, ..Likeness::SHOP };
    let setpoint = from_millis_f64(5.0 * full_ms);
    let mut world = World::new(like, setpoint, seed);
    let cores = Some(slots as f64);
    let config = BrownoutConfig { setpoint, cores, ..BrownoutConfig::default() };
    let period = config.period;
    world.brownout = Brownout::new(config, Instant::ZERO, seed);
    let (mut rng, mut forecast) = (Rng::stream(seed, "course"), Forecast::default());
    world.load(0.6, 5.0);
    for step in 0..(SECONDS / PERIOD_S) as u64 {
        let rate = course(step as f64 * PERIOD_S, &mut rng) * like.capacity();
        let now = Instant::from_secs_f64(world.now_s());
        let brownout = &mut world.brownout;
        brownout.expected = Expected::nothing();
        brownout.tick(now);
        let arrivals = &brownout.arrivals;
        let last = (arrivals.now + Arrivals::PERIODS - 1) % Arrivals::PERIODS;
        let trend = forecast.next(f64::from(arrivals.counts[last]) / PERIOD_S);
        let told = match rule {
            Rule::Last => None,
            Rule::Trend => Some(trend),
            Rule::Known => Some(rate),
        };
        if let Some(told) = told {
            let factor = told / arrivals.per_second(period).max(1.0);
            brownout.expect(now, Inflow::new(step, factor).unwrap());
        }
        world.rate(rate, PERIOD_S);
    }
    let ended = world.ended.iter().filter(|it| it.at_s > 5.0);
    let share = |is: &dyn Fn(&world::Ended) -> bool| {
        ended.clone().filter(|it| is(it)).count() as f64 / ended.clone().count() as f64
    };
    [share(&|it| it.time_s > 8e-3 * full_ms), share(&|it| !it.is_full)]
}

/// Mean and half of the interval that has the true one in 95 of 100 cases.
fn interval(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // 2.262: the 97.5th percentile of Student's t with 9 degrees of freedom.
    (mean, 2.262 * (variance / n).sqrt())
}

#[test]
#[ignore = "a comparison, not a bar: takes half a minute"]
fn what_a_forecast_would_give() {
    for (size, replica) in [("1,600/s", (16, 10.0)), ("100/s", (4, 40.0))] {
        for (name, course) in
            [("diurnal", diurnal as Course), ("spiky", spiky), ("steps", steps), ("noisy", noisy)]
        {
            let of = |rule: Rule| {
                (0..SEEDS).map(|it| run(replica, course, rule, it)).collect::<Vec<_>>()
            };
            let (last, others) = (of(Rule::Last), [Rule::Trend, Rule::Known].map(of));
            for (kind, place) in [("late", 0), ("lean", 1)] {
                let percent = |it: &[f64; 2]| it[place] * 1e2;
                print!("{size} {name} {kind}: {:.2} %", interval(last.iter().map(percent)).0);
                for (rule, those) in ["trend", "known"].iter().zip(&others) {
                    let pairs = those.iter().zip(&last);
                    let (mean, half) =
                        interval(pairs.map(|(it, last)| percent(it) - percent(last)));
                    print!("; {rule} {mean:+.2} ±{half:.2}");
                }
                println!();
            }
        }
    }
}
