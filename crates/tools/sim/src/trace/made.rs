//! Series that need no file, with the shapes that the Kurma paper describes (section 7, figure 7).
//!
//! They are made up: the shape is the paper's, the numbers are ours. Whoever has the logs reads
//! them with [`LogCounter`](super::LogCounter).

use std::f64::consts::TAU;
use std::time::Duration;

use evenkeel_core::Rng;

use super::split::Drift;
use super::{RateSeries, TraceError, VALUES_MAX};

/// What a made-up series is to be like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Made {
    /// Sites.
    pub sites: usize,
    /// How long a step lasts.
    pub step: Duration,
    /// How many there are.
    pub steps: usize,
    /// The load of a site that is wholly used, in requests per second: rates are parts of it.
    pub full: f64,
    /// Equal seeds make equal series.
    pub seed: u64,
}

impl Made {
    /// The share of a deviation that is left after a step, of what is forgotten within `memory_s`.
    fn kept(&self, memory_s: f64) -> f64 {
        (-self.step.as_secs_f64() / memory_s).exp()
    }

    /// The series whose sites have these parts of full.
    fn series(&self, site: impl FnMut(usize) -> Vec<f64>) -> Result<RateSeries, TraceError> {
        self.check()?;
        RateSeries::new(self.step, (0..self.sites).map(site).collect())?.scaled(self.full)
    }

    /// Before anything is made: whether it fits.
    fn check(&self) -> Result<(), TraceError> {
        let (sites, steps) = (self.sites, self.steps);
        if sites > 0 && steps > 0 && sites.saturating_mul(steps) <= VALUES_MAX {
            return Ok(());
        }
        let came = format!("{steps} steps of {sites} sites");
        let expected = format!("one of each or more, and at most {VALUES_MAX} rates in all");
        Err(TraceError::new("series", came, expected))
    }

    fn stream(&self, shape: &str, site: usize) -> Rng {
        Rng::stream(self.seed, &format!("{shape} {site}"))
    }
}

/// Like the paper's Trace-1: the first site is offered more than it can serve in time (1.15 of
/// full), the others hold about half (0.55); all vary by 6 % over five minutes and 5 % from step to
/// step.
///
/// # Errors
/// When `made` asks for no sites, no steps, or too many.
pub fn one_hot(made: &Made) -> Result<RateSeries, TraceError> {
    let kept = made.kept(300.0);
    made.series(|site| {
        let mut rng = made.stream("one hot", site);
        let mut drift = Drift::new(kept, 0.06, &mut rng);
        let mean = if site == 0 { 1.15 } else { 0.55 };
        (0..made.steps).map(|_| mean * drift.next(&mut rng) * noise(0.05, &mut rng)).collect()
    })
}

/// Like the paper's Trace-2: all sites together hold a steady 0.93 of full, and who is hot changes
/// within two minutes by about 12 %: spare capacity is scarce and never where it was.
///
/// # Errors
/// When `made` asks for no sites, no steps, or too many.
pub fn shifting(made: &Made) -> Result<RateSeries, TraceError> {
    made.check()?;
    let kept = made.kept(120.0);
    let site = |site| {
        let mut rng = made.stream("shifting", site);
        let mut drift = Drift::new(kept, 0.12, &mut rng);
        (0..made.steps).map(|_| drift.next(&mut rng)).collect::<Vec<f64>>()
    };
    let shares: Vec<Vec<f64>> = (0..made.sites).map(site).collect();
    made.series(|site| {
        let mut rng = made.stream("noise", site);
        let part = |step: usize| {
            let all: f64 = shares.iter().map(|of_site| of_site[step]).sum();
            0.93 * shares[site][step] * made.sites as f64 / all
        };
        (0..made.steps).map(|step| part(step) * noise(0.03, &mut rng)).collect()
    })
}

/// A factor around one that forgets at once.
fn noise(sigma: f64, rng: &mut Rng) -> f64 {
    (1.0 + sigma * rng.normal()).max(0.0)
}

/// Days of a tournament: a day's wave, two matches on most days with a crowd four times as large
/// for two hours, some days without; sites have the same day no, one and four hours later (then
/// again), each with a slow drift of its own by a quarter. The highest rates are about `full`.
///
/// The shape follows the total of the 1998 World Cup's logs in June (by the minute: mean about an
/// eighth of the peak); days and matches are drawn.
///
/// # Errors
/// When `made` asks for no sites, no steps, or too many.
pub fn match_days(made: &Made) -> Result<RateSeries, TraceError> {
    const SHIFT_H: [f64; 3] = [0.0, 1.0, 4.0];
    made.check()?;
    let step_h = made.step.as_secs_f64() / 3_600.0;
    let mut rng = Rng::stream(made.seed, "match days");
    let days = (made.steps as f64 * step_h / 24.0) as usize + 2;
    let days: Vec<Day> = (0..days.min(100_000)).map(|_| Day::new(&mut rng)).collect();
    let kept = made.kept(900.0);
    made.series(|site| {
        let mut rng = made.stream("share", site);
        let mut drift = Drift::new(kept, 0.25, &mut rng);
        // Sites that are later begin in the day before.
        let begins_h = 24.0 - SHIFT_H[site % SHIFT_H.len()];
        let rate = |step: usize| {
            let hour = begins_h + step as f64 * step_h;
            let day = &days[((hour / 24.0) as usize).min(days.len() - 1)];
            day.rate(hour % 24.0) * drift.next(&mut rng) * noise(0.03, &mut rng)
        };
        (0..made.steps).map(rate).collect()
    })
}

/// A day, in parts of a full site.
struct Day {
    level: f64,
    /// When a match begins, and how many times more come at its height.
    matches: Vec<(f64, f64)>,
}

impl Day {
    fn new(rng: &mut Rng) -> Self {
        let is_quiet = rng.unit() < 0.3;
        let level = 0.06 + 0.05 * rng.unit();
        let matches = if is_quiet { vec![] } else { vec![16.5, 21.0] };
        let crowd = |begins| (begins, 2.0 + 3.0 * rng.unit());
        Self { level, matches: matches.into_iter().map(crowd).collect() }
    }

    /// At this hour.
    fn rate(&self, hour: f64) -> f64 {
        let wave = 1.0 - 0.5 * (TAU * (hour - 4.0) / 24.0).cos();
        let crowds = self.matches.iter().map(|(begins, height)| height * crowd(hour - begins));
        self.level * (wave + crowds.sum::<f64>())
    }
}

/// How much of a match's crowd is there, hours after it began: they come within half an hour, stay
/// for two with a break at half-time, and leave within an hour.
fn crowd(after: f64) -> f64 {
    let rise = ((after + 0.5) / 0.5).clamp(0.0, 1.0);
    let fall = (3.0 - after).clamp(0.0, 1.0);
    let pause = if (0.75..1.0).contains(&after) { 0.7 } else { 1.0 };
    rise * fall * pause
}
