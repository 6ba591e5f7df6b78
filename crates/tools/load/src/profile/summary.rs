//! A profile as people and scripts read it.

use std::time::Duration;

use evenkeel_core::distribution::{Bucket, Distribution, Empirical};
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{Conditions, Family, LoadStep, Profile, ProfileError, ResponseCurves};
use evenkeel_settings::profile::{Record, Step, hash};
use serde::Serialize;

/// The share of violations whose load is told.
const POINT: f64 = 0.05;

/// What a profile says: the JSON of `evenkeel profile --json`.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// What the service is called.
    pub name: String,
    /// How many servers it has.
    pub servers: u32,
    /// Whether everything was measured.
    pub complete: bool,
    /// The hash of the profile, in hexadecimal digits.
    pub hash: String,
    /// The objective that violations are counted for.
    pub objective_ms: Option<f64>,
    /// One for each write share.
    pub curves: Vec<CurveSummary>,
}

/// The loads of one write share.
#[derive(Clone, Debug, Serialize)]
pub struct CurveSummary {
    /// The share of writes.
    pub write_share: f64,
    /// From which load on the queues grew; `null` when that was not reached.
    pub saturation_per_s: Option<f64>,
    /// The highest load at which at most 5 % of the requests miss the objective; `null` without
    /// an objective, or when more miss it at any load.
    pub five_percent_per_s: Option<f64>,
    /// Ascending.
    pub loads: Vec<LoadSummary>,
}

/// All steps of one load and write share together.
#[derive(Clone, Debug, Serialize)]
pub struct LoadSummary {
    /// Requests per second.
    pub load_per_s: f64,
    /// Requests that were due.
    pub requests: u64,
    /// Those of them that failed or were not answered in time.
    pub unanswered: u64,
    /// Median latency of the answered ones.
    pub p50_ms: Option<f64>,
    /// 95th percentile.
    pub p95_ms: Option<f64>,
    /// 99th percentile.
    pub p99_ms: Option<f64>,
    /// Whether the queue grew in each of its steps.
    pub saturated: bool,
    /// The share that misses the objective as the fitted curve has it, 1 from saturation on.
    pub violation: Option<f64>,
}

impl Summary {
    /// Sums a record up, with violations of `objective` if there is one.
    ///
    /// # Errors
    /// When the record makes no curve: nothing was measured below saturation.
    pub fn of(
        name: &str,
        record: &Record,
        objective: Option<Duration>,
    ) -> Result<Self, ProfileError> {
        let profile = Profile::from(record.clone());
        let measured = |objective| ResponseCurves::measured(objective, &profile);
        let curves = objective.map(measured).transpose()?;
        let family = curves.as_ref().map(Family::local);
        let mut shares: Vec<Probability> =
            record.steps.iter().map(|step| step.measured.write_share).collect();
        shares.sort_by(|a, b| a.value().total_cmp(&b.value()));
        shares.dedup();
        let curve = |&share: &Probability| curve(record, share, family.as_ref());
        Ok(Self {
            name: name.to_owned(),
            servers: record.servers.get(),
            complete: record.run.is_some_and(|run| run.is_complete),
            hash: format!("{:08x}", hash(&profile)),
            objective_ms: objective.map(|objective| objective.as_secs_f64() * 1e3),
            curves: shares.iter().map(curve).collect(),
        })
    }
}

impl LoadSummary {
    /// Of one step, with the share that missed the objective as it was counted.
    pub fn of_step(step: &LoadStep, is_saturated: bool, objective: Option<Duration>) -> Self {
        let answered = |within: Duration| {
            let counted = step.latencies.iter().filter(|bucket| bucket.upper <= within);
            counted.map(|bucket| bucket.count).sum::<u64>()
        };
        let requests = step.requests();
        let missed = |objective| 1.0 - answered(objective) as f64 / requests.max(1) as f64;
        let violation = objective.map(missed);
        Self::of(step.load, requests, step.unanswered, &step.latencies, is_saturated, violation)
    }

    fn of(
        load: Rate,
        requests: u64,
        unanswered: u64,
        latencies: &[Bucket],
        saturated: bool,
        violation: Option<f64>,
    ) -> Self {
        let answered = Empirical::from_buckets(latencies.iter().copied()).ok();
        let quantile_ms = |share: f64| {
            let at = answered.as_ref()?.quantile(Probability::clamped(share));
            Some(at.as_secs_f64() * 1e3)
        };
        Self {
            load_per_s: load.value(),
            requests,
            unanswered,
            p50_ms: quantile_ms(0.5),
            p95_ms: quantile_ms(0.95),
            p99_ms: quantile_ms(0.99),
            saturated,
            violation,
        }
    }
}

fn curve(record: &Record, share: Probability, family: Option<&Family>) -> CurveSummary {
    let saturation = record.saturations.iter().find(|of| of.write_share == share);
    let mut steps: Vec<&Step> =
        record.steps.iter().filter(|step| step.measured.write_share == share).collect();
    steps.sort_by(|a, b| a.measured.load.value().total_cmp(&b.measured.load.value()));
    let conditions = Conditions {
        write_share: share,
        ..Conditions::with_servers(record.servers.get()).unbiased()
    };
    // Without a saturation a curve ends at its last load, which was sustained all the same.
    let is_open = saturation.is_none();
    let miss = |load: Rate| {
        let below = Rate::new(load.value().next_down()).ok().filter(|_| is_open);
        let at = below.unwrap_or(load);
        family.map(|family| family.miss(Duration::ZERO, at, &conditions).value())
    };
    let highest = steps.last().map_or(0.0, |step| step.measured.load.value());
    CurveSummary {
        write_share: share.value(),
        saturation_per_s: saturation.map(|of| of.load.value()),
        five_percent_per_s: highest_within(highest, &miss),
        loads: steps
            .chunk_by(|a, b| a.measured.load == b.measured.load)
            .map(|steps| of_load(steps, &miss))
            .collect(),
    }
}

fn of_load(steps: &[&Step], miss: &impl Fn(Rate) -> Option<f64>) -> LoadSummary {
    let load = steps[0].measured.load;
    let of_all = |of: fn(&LoadStep) -> u64| steps.iter().map(|step| of(&step.measured)).sum();
    let buckets = steps.iter().flat_map(|step| step.measured.latencies.iter().copied());
    let latencies: Vec<Bucket> = buckets.collect();
    let saturated = steps.iter().all(|step| step.is_saturated);
    let (requests, unanswered) = (of_all(LoadStep::requests), of_all(|step| step.unanswered));
    LoadSummary::of(load, requests, unanswered, &latencies, saturated, miss(load))
}

/// The highest load up to `end` with at most 5 % of violations.
fn highest_within(end: f64, miss: &impl Fn(Rate) -> Option<f64>) -> Option<f64> {
    let is_within = |load: f64| Some(miss(Rate::new(load).ok()?)? <= POINT);
    if !is_within(0.0)? {
        return None;
    }
    let (mut low, mut high) = (0.0, end);
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        if is_within(middle)? { low = middle } else { high = middle }
    }
    Some(low)
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use evenkeel_geo::curve::Saturation;

    use super::*;

    /// Of 100 requests at each load, so many take 60 ms and the others 10 ms.
    fn record(saturation: Option<f64>, late: &[(f64, u64)]) -> Record {
        let rate = |load| Rate::new(load).unwrap();
        let step = |&(load, late): &(f64, u64)| {
            let bucket = |ms, count| Bucket { upper: Duration::from_millis(ms), count };
            let measured = LoadStep {
                load: rate(load),
                write_share: Probability::ZERO,
                latencies: vec![bucket(10, 100 - late), bucket(60, late)],
                unanswered: 0,
            };
            Step { measured, is_saturated: false }
        };
        let of = |load| Saturation { write_share: Probability::ZERO, load: rate(load) };
        Record {
            servers: NonZeroU32::MIN,
            run: None,
            steps: late.iter().map(step).collect(),
            saturations: saturation.map(of).into_iter().collect(),
        }
    }

    fn curve_of(saturation: Option<f64>, late: &[(f64, u64)]) -> CurveSummary {
        let objective = Some(Duration::from_millis(30));
        Summary::of("s", &record(saturation, late), objective).unwrap().curves.remove(0)
    }

    #[test]
    fn the_five_percent_point_lies_on_the_line_between_loads() {
        let curve = curve_of(Some(400.0), &[(100.0, 1), (200.0, 3), (300.0, 7)]);
        let point = curve.five_percent_per_s.unwrap();
        assert!((point - 250.0).abs() < 1e-6, "{point}");
        let violations: Vec<f64> = curve.loads.iter().filter_map(|load| load.violation).collect();
        assert!(violations.iter().zip([0.01, 0.03, 0.07]).all(|(a, b)| (a - b).abs() < 1e-9));
        assert_eq!((curve.loads[0].p50_ms, curve.loads[0].p99_ms), (Some(10.0), Some(10.0)));
    }

    #[test]
    fn the_last_load_of_a_profile_without_saturation_is_shown_as_measured() {
        let curve = curve_of(None, &[(100.0, 1), (200.0, 3)]);
        let last = curve.loads[1].violation.unwrap();
        assert!((last - 0.03).abs() < 1e-6, "{last}");
        assert!((curve.five_percent_per_s.unwrap() - 200.0).abs() < 1e-6);
    }

    #[test]
    fn too_many_late_at_any_load_is_no_point_and_steps_of_one_load_count_together() {
        let curve = curve_of(Some(400.0), &[(100.0, 10), (100.0, 30)]);
        assert_eq!(curve.five_percent_per_s, None);
        assert_eq!((curve.loads.len(), curve.loads[0].requests), (1, 200));
        assert!((curve.loads[0].violation.unwrap() - 0.2).abs() < 1e-9);
    }
}
