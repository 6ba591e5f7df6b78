//! The last five minutes of one upstream: what the dashboard draws.
//!
//! **Signal**: the counts that workers hand up, sampled once a second. **Statistic**: each point
//! describes the ten seconds before it, quantiles and rates alike, as differences of what was
//! counted since the start; so a burst between two samples is in some point, and nothing depends
//! on who asks how often. Ten seconds, because one second of a modest service is too short for
//! its p99, and because workers report only five times a second. **When it misleads**: an incident
//! shows for ten seconds after it ended, and a quantile that too few requests back is left out
//! rather than guessed: p99.9 needs a thousand in ten seconds.
//!
//! **Memory**: 300 points of about 100 bytes and 32 bytes per replica, and eleven recorders of
//! 30 KiB.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use evenkeel_core::distribution::{Bucket, Recorder};
use evenkeel_core::time::millis;
use evenkeel_core::window::{ReplicaWindow, RequestWindow};
use serde::Serialize;

/// Time between samples.
pub const SAMPLED_EVERY: Duration = Duration::from_secs(1);

/// Samples that a point looks back over.
pub const WINDOW_SAMPLES: usize = 10;

/// Points kept.
pub const POINTS_MAX: usize = 300;

/// An upstream over the last five minutes.
#[derive(Debug, Default)]
pub struct Series {
    /// Up to eleven: the newest, and the one that its point is compared with.
    recent: VecDeque<Sample>,
    points: VecDeque<Point>,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    total: RequestWindow,
}

/// An upstream during the ten seconds before a moment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    #[serde(skip)]
    pub(super) at: Instant,
    /// The time it covers: less than ten seconds while the process is young.
    pub(super) covers_s: f64,
    pub(super) requests_per_s: f64,
    /// Requests that ended without an answer from a replica.
    pub(super) refused_per_s: f64,
    /// Requests whose client went away.
    pub(super) abandoned_per_s: f64,
    pub(super) held_per_s: f64,
    pub(super) retries_per_s: f64,
    pub(super) hedges_per_s: f64,
    /// Attempts that failed, as a share of those that ended: error replies included.
    pub(super) failure_share: Option<f64>,
    #[serde(flatten)]
    pub(super) latency: Latency,
    #[serde(skip)]
    pub(super) replicas: Vec<ReplicaPoint>,
}

/// A replica during the same time.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct ReplicaPoint {
    pub(super) attempts_per_s: f32,
    /// Its share of the attempts sent; `None` when none were.
    pub(super) share: Option<f32>,
    /// Failed attempts as a share of those that ended; `None` when none did.
    pub(super) failure_share: Option<f32>,
    /// Mean latency. Attempts that were cancelled or timed out count with the time they lasted, as
    /// answers would have taken longer: it is at least this.
    pub(super) mean_ms: Option<f32>,
    /// Share of such attempts in that.
    pub(super) censored_share: Option<f32>,
}

/// Latencies from the opening of a request to the head of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Latency {
    /// Requests that it is of.
    pub(super) samples: u64,
    pub(super) mean_ms: Option<f64>,
    pub(super) p50_ms: Option<f64>,
    pub(super) p95_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) p999_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
}

impl Series {
    /// Adds a sample: everything counted since the process began.
    pub fn sample(&mut self, now: Instant, total: RequestWindow) {
        if self.recent.len() > WINDOW_SAMPLES {
            self.recent.pop_front();
        }
        if let Some(before) = self.recent.front() {
            if self.points.len() == POINTS_MAX {
                self.points.pop_front();
            }
            self.points.push_back(Point::between(before, now, &total));
        }
        self.recent.push_back(Sample { at: now, total });
    }

    /// The points, oldest first.
    pub(super) const fn points(&self) -> &VecDeque<Point> {
        &self.points
    }

    /// The newest point: how things are.
    pub(super) fn now(&self) -> Option<&Point> {
        self.points.back()
    }
}

impl Point {
    fn between(before: &Sample, now: Instant, total: &RequestWindow) -> Self {
        let covers = now.saturating_duration_since(before.at).as_secs_f64().max(0.001);
        let earlier = &before.total;
        let rate = |count: fn(&RequestWindow) -> u64| {
            rounded(count(total).saturating_sub(count(earlier)) as f64 / covers, 100.0)
        };
        let replicas = replica_differences(earlier, total);
        let sent: u64 = replicas.iter().map(|replica| replica.sent).sum();
        let failed = replicas.iter().map(|replica| replica.failed).sum();
        let succeeded: u64 = replicas.iter().map(|replica| replica.succeeded).sum();
        Self {
            at: now,
            covers_s: rounded(covers, 100.0),
            requests_per_s: rate(|window| window.opened),
            refused_per_s: rate(|window| window.refused),
            abandoned_per_s: rate(|window| window.abandoned),
            held_per_s: rate(|window| window.held),
            retries_per_s: rate(|window| window.retries),
            hedges_per_s: rate(|window| window.hedges),
            failure_share: share(failed, failed + succeeded),
            latency: Latency::between(earlier.latency.as_ref(), total.latency.as_ref()),
            replicas: replicas.iter().map(|it| ReplicaPoint::new(it, sent, covers)).collect(),
        }
    }
}

impl ReplicaPoint {
    fn new(counted: &ReplicaWindow, sent_to_all: u64, covers_s: f64) -> Self {
        let ReplicaWindow { sent, succeeded, failed, censored, .. } = *counted;
        Self {
            attempts_per_s: (sent as f64 / covers_s) as f32,
            share: share(sent, sent_to_all).map(|share| share as f32),
            failure_share: share(failed, failed + succeeded).map(|share| share as f32),
            mean_ms: counted.mean_latency_us().map(|mean_us| (mean_us / 1e3) as f32),
            censored_share: share(censored, succeeded + censored).map(|share| share as f32),
        }
    }
}

impl Latency {
    /// Of everything recorded.
    pub(super) fn of(recorder: Option<&Recorder>) -> Self {
        Self::between(None, recorder)
    }

    /// Of what `later` recorded and `earlier` had not: the same recording, at two moments.
    fn between(earlier: Option<&Recorder>, later: Option<&Recorder>) -> Self {
        let Some(later) = later else { return Self::default() };
        let buckets = bucket_differences(earlier, later);
        let samples: u64 = buckets.iter().map(|bucket| bucket.count).sum();
        let sum = later.sum().saturating_sub(earlier.map_or(Duration::ZERO, Recorder::sum));
        let at_most = |latency: Duration| rounded(millis(latency.min(later.max())), 1_000.0);
        let quantile = |one_in| quantile(&buckets, samples, one_in).map(at_most);
        Self {
            samples,
            mean_ms: (samples > 0).then(|| rounded(millis(sum) / samples as f64, 1_000.0)),
            p50_ms: quantile(2),
            p95_ms: quantile(20),
            p99_ms: quantile(100),
            p999_ms: quantile(1_000),
            max_ms: buckets.last().map(|bucket| at_most(bucket.upper)),
        }
    }
}

/// The latency that all but one in `one_in` requests stayed within; `None` when there were fewer
/// requests than that, except for the median, which one request has.
fn quantile(buckets: &[Bucket], samples: u64, one_in: u64) -> Option<Duration> {
    if samples == 0 || (samples < one_in && one_in > 2) {
        return None;
    }
    let rank = samples - samples / one_in;
    let mut seen = 0;
    let reaches = |bucket: &&Bucket| {
        seen += bucket.count;
        seen >= rank
    };
    buckets.iter().find(reaches).map(|bucket| bucket.upper)
}

fn bucket_differences(earlier: Option<&Recorder>, later: &Recorder) -> Vec<Bucket> {
    let mut known = earlier.into_iter().flat_map(Recorder::buckets).peekable();
    let fresh = |bucket: Bucket| {
        let before = known.next_if(|known| known.upper == bucket.upper);
        let count = bucket.count.saturating_sub(before.map_or(0, |known| known.count));
        (count > 0).then_some(Bucket { upper: bucket.upper, count })
    };
    later.buckets().filter_map(fresh).collect()
}

fn replica_differences(earlier: &RequestWindow, later: &RequestWindow) -> Vec<ReplicaWindow> {
    let difference = |(slot, now): (usize, &ReplicaWindow)| {
        // Of another replica that had the slot before, nothing is to be taken off.
        let before = earlier.replicas.get(slot).filter(|it| it.generation == now.generation);
        let before = before.copied().unwrap_or_default();
        ReplicaWindow {
            generation: now.generation,
            sent: now.sent.saturating_sub(before.sent),
            succeeded: now.succeeded.saturating_sub(before.succeeded),
            failed: now.failed.saturating_sub(before.failed),
            broken_bodies: now.broken_bodies.saturating_sub(before.broken_bodies),
            cancelled: now.cancelled.saturating_sub(before.cancelled),
            latency_us_sum: now.latency_us_sum.saturating_sub(before.latency_us_sum),
            latencies: now.latencies, // nobody asks for those of a window
            censored: now.censored.saturating_sub(before.censored),
            censored_us_sum: now.censored_us_sum.saturating_sub(before.censored_us_sum),
            ejections: now.ejections.saturating_sub(before.ejections),
        }
    };
    later.replicas.iter().enumerate().map(difference).collect()
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// To a fraction of one in `parts`: digits beyond what was measured only make the answer longer.
pub fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

/// To the hundredth: finer is the scheduler's noise.
pub fn seconds(duration: Duration) -> f64 {
    rounded(duration.as_secs_f64(), 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recorded(latencies_us: &[u64]) -> Recorder {
        let mut recorder = Recorder::default();
        latencies_us.iter().for_each(|&us| recorder.record(Duration::from_micros(us)));
        recorder
    }

    /// Everything counted after `requests` of equal latency, half to each of two replicas.
    fn total(requests: u64, latency: Duration, before: Option<&Recorder>) -> RequestWindow {
        let mut recorder = before.cloned().unwrap_or_default();
        let fresh = requests - recorder.count();
        (0..fresh).for_each(|_| recorder.record(latency));
        let replica = ReplicaWindow {
            sent: requests / 2,
            succeeded: requests / 2,
            latency_us_sum: recorder.sum().as_micros() as u64 / 2,
            ..ReplicaWindow::default()
        };
        RequestWindow {
            opened: requests,
            answered: requests,
            replicas: vec![replica; 2],
            latency: Some(recorder),
            ..RequestWindow::default()
        }
    }

    #[test]
    fn a_point_covers_ten_seconds_and_no_more() {
        let (mut series, start) = (Series::default(), Instant::now());
        let mut last = None;
        for second in 0..=30_u64 {
            // 100 requests a second: of 1 ms until the twentieth second, of 9 ms after it.
            let latency = Duration::from_millis(if second <= 20 { 1 } else { 9 });
            let sample = total(100 * second, latency, last.as_ref());
            last.clone_from(&sample.latency);
            series.sample(start + Duration::from_secs(second), sample);
        }
        assert_eq!(series.points().len(), 30);
        let at = |second: usize| &series.points()[second - 1];
        assert_eq!((at(1).covers_s, at(5).covers_s, at(10).covers_s), (1.0, 5.0, 10.0));
        assert!(series.points().iter().all(|point| point.requests_per_s == 100.0));
        assert_eq!(at(20).latency.samples, 1_000);
        let p50 = |second| at(second).latency.p50_ms.unwrap();
        assert!((1.0..1.011).contains(&p50(20)), "{}", p50(20));
        assert!((9.0..9.091).contains(&p50(30)), "{}", p50(30));
        assert_eq!(at(25).latency.mean_ms, Some(5.0), "half of them took 1 ms, half 9 ms");
        assert_eq!(at(30).latency.mean_ms, Some(9.0), "the slow start has left the window");
        assert_eq!(at(30).replicas[1].share, Some(0.5));
        assert_eq!(at(30).replicas[1].attempts_per_s, 50.0);
        assert_eq!(at(30).replicas[1].mean_ms, Some(9.0));
    }

    #[test]
    fn memory_is_bounded() {
        let (mut series, start) = (Series::default(), Instant::now());
        for second in 0..1_000 {
            series.sample(start + Duration::from_secs(second), RequestWindow::default());
        }
        assert_eq!((series.points().len(), series.recent.len()), (300, 11));
        let ages = (start + Duration::from_secs(999)) - series.points()[0].at;
        assert_eq!(ages, Duration::from_secs(299));
    }

    #[test]
    fn nothing_is_made_of_nothing() {
        let (mut series, start) = (Series::default(), Instant::now());
        assert!(series.now().is_none());
        series.sample(start, RequestWindow::default());
        assert!(series.now().is_none(), "one sample is no difference");
        series.sample(start, total(0, Duration::ZERO, None)); // even at the same instant
        let now = series.now().unwrap();
        assert_eq!((now.requests_per_s, now.failure_share), (0.0, None));
        assert_eq!(now.latency, Latency::default());
        assert_eq!(now.replicas[0].share, None);
    }

    #[test]
    fn failures_are_a_share_of_what_ended() {
        let (mut series, start) = (Series::default(), Instant::now());
        series.sample(start, RequestWindow::default());
        let counted = |sent, succeeded, failed, cancelled| ReplicaWindow {
            sent,
            succeeded,
            failed,
            cancelled,
            ..ReplicaWindow::default()
        };
        let replicas = vec![counted(60, 30, 10, 20), counted(20, 0, 0, 0), counted(0, 0, 0, 0)];
        let window = RequestWindow { replicas, ..RequestWindow::default() };
        series.sample(start + Duration::from_secs(1), window);
        let now = series.now().unwrap();
        assert_eq!(now.failure_share, Some(0.25));
        let replica = |slot: usize| now.replicas[slot];
        assert_eq!((replica(0).share, replica(0).failure_share), (Some(0.75), Some(0.25)));
        assert_eq!((replica(1).share, replica(1).failure_share), (Some(0.25), None));
        assert_eq!((replica(2).share, replica(2).mean_ms), (Some(0.0), None));
    }

    #[test]
    fn quantiles_wait_for_enough_requests() {
        let latency = |samples: u64| Latency::of(Some(&recorded(&vec![500; samples as usize])));
        assert!(latency(1).p50_ms.is_some() && latency(1).p95_ms.is_none());
        assert!(latency(99).p99_ms.is_none() && latency(100).p99_ms.is_some());
        assert!(latency(999).p999_ms.is_none() && latency(1_000).p999_ms.is_some());
        assert_eq!(latency(1).max_ms, Some(0.5));
    }

    proptest! {
        #[test]
        fn a_difference_is_as_if_only_the_rest_were_recorded(
            before in prop::collection::vec(1..5_000_000_u64, 0..200),
            after in prop::collection::vec(1..5_000_000_u64, 1..300),
        ) {
            let earlier = recorded(&before);
            let later = recorded(&[before, after.clone()].concat());
            let told = Latency::between(Some(&earlier), Some(&later));
            let mut sorted = after;
            sorted.sort_unstable();
            let truth_ms = |rank: usize| sorted[rank - 1] as f64 / 1_000.0;
            let count = sorted.len();
            prop_assert_eq!(told.samples, count as u64);
            let near = |told: Option<f64>, truth: f64| {
                told.is_some_and(|told| truth - 0.001 <= told && told <= truth * 1.01 + 0.001)
            };
            prop_assert!(near(told.p50_ms, truth_ms(count.div_ceil(2))), "{told:?}");
            prop_assert!(near(told.max_ms, truth_ms(count)), "{told:?}");
            if count >= 100 {
                prop_assert!(near(told.p99_ms, truth_ms((count * 99).div_ceil(100))), "{told:?}");
            }
            let mean = sorted.iter().sum::<u64>() as f64 / 1_000.0 / count as f64;
            prop_assert!((told.mean_ms.unwrap() - mean).abs() < 0.001, "{told:?} {mean}");
        }
    }
}
