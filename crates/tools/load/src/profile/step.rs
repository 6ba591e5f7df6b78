//! One load step: a load is offered for a while, and what became of it is judged.
//!
//! **Saturated** is a step in which either
//!
//! 1. more than `unanswered_max` of the requests failed or were not answered in time, or
//! 2. the backlog grew: the requests that are due and undecided, on average over the last third of
//!    the measured time against the first, grew by more than 2 % of the requests that became due
//!    between the middles of the two, *and* by more than the square root of twice as many.
//!
//! The first part of (2) says that throughput is 2 % below what is offered. The second is what a
//! queue at the edge of saturation does by chance: arrivals and services differ by a random walk
//! whose variance is their number. So a step of few requests cannot tell an overload of some
//! percent from bad luck: with 470 requests that is 8 %, with 7,500 it is 2 %.

use std::time::Duration;

use evenkeel_core::distribution::{Bucket, Recorder};
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::LoadStep;
use evenkeel_settings::profile::Step;

use super::ProfileError;
use super::config::ProfileConfig;
use super::offer::Offer;
use crate::{Arrivals, LoadError, Outcome, Progress, Stop};

/// Throughput this far below the offered load is saturation.
const SHORTFALL_MAX: f64 = 0.02;
/// A generator that uses more than this of its core may be what saturates.
const GENERATOR_CPU_MAX: f64 = 0.9;

/// A step as it was measured.
#[derive(Clone, Debug)]
pub struct StepDone {
    /// What goes into the file.
    pub step: Step,
    /// Of the unanswered: those that came back as failures rather than not in time.
    pub failed: u64,
    /// One sentence when the generator, not the service, may have been what was measured.
    pub doubt: Option<String>,
    /// What failed first, with its likely cause.
    pub failure: Option<String>,
}

/// Offers a load and measures; `None` when it was stopped before its end.
pub(super) fn measure(
    config: &ProfileConfig,
    load: f64,
    write_share: Probability,
    seed: u64,
    stop: &Stop,
    mut on_progress: impl FnMut(&Progress),
) -> Result<Option<StepDone>, LoadError> {
    let measured = measured_for(config, load);
    let warm_up = config.steps.warm_up;
    let mut offer = Offer { write_share, ..Offer::new(config, Arrivals::poisson(load)?) };
    offer.plan.warm_up = warm_up;
    offer.plan.duration = Some(warm_up + measured);
    offer.plan.seed = seed;
    let mut backlog = Backlog::new(warm_up, measured);
    let outcome = offer.make(config, stop, |progress| {
        backlog.look(progress);
        on_progress(progress);
    })?;
    if outcome.report.cancelled {
        return Ok(None);
    }
    let measured = load_step(&outcome, load, write_share, config.steps.timeout);
    let lost = measured.unanswered as f64 / measured.requests().max(1) as f64;
    let is_saturated = lost > config.steps.unanswered_max || backlog.grew(load);
    let report = &outcome.report;
    Ok(Some(StepDone {
        step: Step { measured, is_saturated },
        failed: report.failed,
        doubt: doubt(&outcome, is_saturated),
        failure: failure(&outcome),
    }))
}

/// How long a load is measured.
pub(super) fn measured_for(config: &ProfileConfig, load: f64) -> Duration {
    let enough_s = f64::from(config.steps.requests_min) / load;
    config.steps.duration.max(Duration::try_from_secs_f64(enough_s).unwrap_or(Duration::MAX))
}

/// How long one request takes when there are no others: the median of some, one after another.
///
/// `None` when it was stopped.
pub(super) fn alone(config: &ProfileConfig, stop: &Stop) -> Result<Option<Duration>, ProfileError> {
    const REQUESTS: u64 = 20;
    const PER_SECOND: f64 = 20.0;
    let mut offer =
        Offer { connections_max: 1, ..Offer::new(config, Arrivals::constant(PER_SECOND)?) };
    offer.plan.requests_max = Some(REQUESTS);
    let outcome = offer.make(config, stop, |_| ())?;
    if outcome.report.cancelled {
        return Ok(None);
    }
    let Some(median_ms) = outcome.service.quantile_ms(0.5) else {
        let failure = failure(&outcome).unwrap_or_else(|| "no answer".to_owned());
        return Err(ProfileError::Silent { load: PER_SECOND, failure });
    };
    Ok(Some(Duration::from_secs_f64(median_ms / 1e3)))
}

fn load_step(
    outcome: &Outcome,
    load: f64,
    write_share: Probability,
    timeout: Duration,
) -> LoadStep {
    let report = &outcome.report;
    LoadStep {
        load: Rate::new(load).expect("a load that was offered is a rate"),
        write_share,
        latencies: answered(outcome, timeout),
        unanswered: report.failed + report.timeouts,
    }
}

/// The latencies of answered requests, in the buckets of a recorder of two digits. The generator
/// counts timeouts among them, as long as the timeout.
fn answered(outcome: &Outcome, timeout: Duration) -> Vec<Bucket> {
    let histogram = outcome.latency.histogram();
    let of_timeouts = histogram.highest_equivalent(timeout.as_nanos() as u64);
    let mut recorder = Recorder::default();
    for value in histogram.iter_recorded() {
        let upper = value.value_iterated_to();
        let timeouts = if upper == of_timeouts { outcome.report.timeouts } else { 0 };
        for _ in 0..value.count_at_value().saturating_sub(timeouts) {
            recorder.record(Duration::from_nanos(upper));
        }
    }
    recorder.buckets().collect()
}

fn doubt(outcome: &Outcome, is_saturated: bool) -> Option<String> {
    let share = outcome.report.generator_cpu_share;
    if is_saturated && share > GENERATOR_CPU_MAX {
        let percent = share * 100.0;
        return Some(format!(
            "the generator used {percent:.0} % of its core: this may be its own limit, not the \
             service's (load from several machines, or take fewer servers)"
        ));
    }
    outcome.report.doubt()
}

fn failure(outcome: &Outcome) -> Option<String> {
    let report = &outcome.report;
    if let Some(first) = report.failures.first() {
        return Some(first.message.clone());
    }
    (report.timeouts > 0).then(|| "no answer in time".to_owned())
}

/// The undecided requests in the course of a step.
struct Backlog {
    from: Duration,
    third: Duration,
    first: Mean,
    last: Mean,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn value(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

impl Backlog {
    fn new(from: Duration, measured: Duration) -> Self {
        Self { from, third: measured / 3, first: Mean::default(), last: Mean::default() }
    }

    fn look(&mut self, progress: &Progress) {
        let Some(at) = progress.elapsed.checked_sub(self.from) else { return };
        let mean = match at {
            at if at <= self.third => &mut self.first,
            at if at > self.third * 2 && at <= self.third * 3 => &mut self.last,
            _ => return,
        };
        mean.sum += (progress.in_flight + progress.waiting) as f64;
        mean.count += 1.0;
    }

    fn grew(&self, load: f64) -> bool {
        let between = load * (self.third * 2).as_secs_f64();
        let growth = self.last.value() - self.first.value();
        growth > SHORTFALL_MAX * between && growth > (2.0 * between).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A backlog that grows by so many requests per second from what it began with.
    fn grew(load: f64, measured_s: u64, start: f64, per_second: f64) -> bool {
        let warm_up = Duration::from_secs(1);
        let mut backlog = Backlog::new(warm_up, Duration::from_secs(measured_s));
        for tick in 1..(measured_s + 3) * 5 {
            let elapsed = Duration::from_millis(tick * 200);
            let undecided = start + per_second * elapsed.as_secs_f64();
            backlog.look(&Progress {
                elapsed,
                end: None,
                due: 0,
                served: 0,
                failed: 0,
                timeouts: 0,
                in_flight: undecided as usize / 2,
                waiting: undecided as usize - undecided as usize / 2,
                connections: 0,
                recent: 0,
                recent_p50_ms: None,
                recent_p99_ms: None,
            });
        }
        backlog.grew(load)
    }

    #[test]
    fn a_backlog_that_grows_with_the_overload_is_saturation() {
        // 1,000/s for 30 s: 20,000 requests between the thirds; 2 % are 400, a random walk 200.
        assert!(grew(1_000.0, 30, 10.0, 30.0));
        assert!(!grew(1_000.0, 30, 10.0, 10.0));
        // 100/s for 3 s: 200 requests; 2 % are 4, a random walk is 20, which is 10 %.
        assert!(grew(100.0, 3, 10.0, 15.0));
        assert!(!grew(100.0, 3, 10.0, 5.0));
    }

    #[test]
    fn a_long_queue_that_stays_is_none() {
        assert!(!grew(1_000.0, 10, 5_000.0, 0.0));
        assert!(!grew(1_000.0, 10, 5_000.0, -100.0));
    }
}
