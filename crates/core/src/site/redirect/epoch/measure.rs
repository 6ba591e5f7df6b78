//! From what a site counts and probes to what it tells: demand and paths.
//!
//! Both drivers, on sockets and in the simulator, make their [`Report`](super::Report) with these
//! lines.

use std::collections::VecDeque;

use super::super::curve::{RESIDUAL_BIN, RESIDUAL_BINS_MAX, Residual, Way};
use super::{DELAY_US_MAX, Path, per_1000_s};
use crate::time::{Duration, Instant, nanos};
use crate::units::Rate;

/// Counts kept at most; with the shortest period of 100 ms they span 25 s.
const COUNTS_MAX: usize = 256;

/// The demand of a site: requests that came lately, over a sliding time.
///
/// **Signal**: requests counted where they arrive. **Statistic**: their mean rate over a few
/// seconds, 5 s in the paper (section 7.1): long enough that the noise of single requests is small,
/// short enough to follow a surge. **When it misleads**: it is half its time late, on average.
#[derive(Clone, Debug)]
pub struct DemandMeter {
    over: Duration,
    /// Requests counted up to each of these moments, from the first on.
    counts: VecDeque<(Instant, u64)>,
}

impl DemandMeter {
    /// A meter over this time, whose counting begins now.
    #[must_use]
    pub fn new(over: Duration, now: Instant) -> Self {
        Self { over, counts: VecDeque::from([(now, 0)]) }
    }

    /// So many requests came since this was called last.
    pub fn count(&mut self, now: Instant, arrived: u64) {
        let (_, before) = self.newest();
        self.counts.push_back((now, before.saturating_add(arrived)));
        // The oldest count that is kept is the last one that is old enough.
        while self.counts.len() > COUNTS_MAX
            || self.counts.get(1).is_some_and(|(at, _)| now.since(*at) >= self.over)
        {
            self.counts.pop_front();
        }
    }

    /// The mean rate, in requests per 1,000 s; over less time while the meter is young.
    #[must_use]
    pub fn per_1000_s(&self) -> u64 {
        let (newest, all) = self.newest();
        let (oldest, before) = self.counts.front().copied().unwrap_or((newest, all));
        let seconds = newest.since(oldest).as_secs_f64();
        let rate = Rate::new((all - before) as f64 / seconds);
        rate.map_or(0, per_1000_s)
    }

    fn newest(&self) -> (Instant, u64) {
        self.counts.back().copied().unwrap_or_default()
    }
}

impl Path {
    /// The connections to one site, as they are estimated, as one path; `None` when none is heard.
    ///
    /// Requests hash to any of them (ECMP), so what counts is the average of *violations* over
    /// them, never of latencies: half of the requests at 22 ms and half at 27 ms are not all at
    /// 24.5 ms. A mixture says exactly that: over the shortest base the residual of each way, with
    /// the excess of its own base on top, each way with the same weight. For every objective the
    /// share of the mixture that misses it is the mean of the ways' shares, up to the 0.1 ms that
    /// an excess is rounded up to, and the microsecond of the base.
    #[must_use]
    pub fn of_ways(ways: &[Way]) -> Option<Self> {
        let base = ways.iter().map(|way| way.base).min()?;
        let base_us = nanos(base).div_ceil(1_000).clamp(1, DELAY_US_MAX.into());
        let mut bins: Vec<f64> = Vec::new();
        let mut beyond = 0.0;
        for way in ways {
            let excess = nanos(way.base).saturating_sub(base_us * 1_000);
            let further = excess.div_ceil(nanos(RESIDUAL_BIN)) as usize;
            beyond += f64::from(way.residual.beyond_ppm());
            for (bin, &ppm) in way.residual.bins_ppm().iter().enumerate() {
                let bin = bin.saturating_add(further);
                if bin >= RESIDUAL_BINS_MAX {
                    beyond += f64::from(ppm);
                    continue;
                }
                bins.resize(bins.len().max(bin + 1), 0.0);
                bins[bin] += f64::from(ppm);
            }
        }
        let residual = Residual::from_weights(&bins, beyond)?;
        Some(Self::summary(base_us as u32, residual.bins_ppm(), residual.beyond_ppm()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(at: f64) -> Instant {
        Instant::from_secs_f64(at)
    }

    #[test]
    fn demand_is_a_mean_over_the_last_seconds() {
        let mut meter = DemandMeter::new(Duration::from_secs(5), Instant::ZERO);
        assert_eq!(meter.per_1000_s(), 0);
        meter.count(seconds(2.5), 1_000);
        assert_eq!(meter.per_1000_s(), 400_000, "over the time there was");
        meter.count(seconds(5.0), 2_000);
        assert_eq!(meter.per_1000_s(), 600_000);
        meter.count(seconds(7.5), 0);
        assert_eq!(meter.per_1000_s(), 400_000, "the first 2.5 s are forgotten");
        meter.count(seconds(107.5), 50_000);
        assert_eq!(meter.per_1000_s(), 500_000, "the last count was 100 s ago");
    }

    #[test]
    fn a_meter_that_is_asked_all_the_time_stays_small() {
        let mut meter = DemandMeter::new(Duration::from_secs(3_600), Instant::ZERO);
        for n in 1..10_000 {
            meter.count(Instant::from_millis(n), 3);
        }
        assert!(meter.counts.len() <= COUNTS_MAX);
        assert_eq!(meter.per_1000_s(), 3_000_000);
    }

    fn way(base_us: u64, bins_ppm: &[u32], beyond_ppm: u32) -> Way {
        let residual = Residual::new(bins_ppm.to_vec(), beyond_ppm).unwrap();
        Way { base: Duration::from_micros(base_us), residual }
    }

    #[test]
    fn connections_over_two_routes_are_one_path_whose_residual_tells_them_apart() {
        let path = |ways: &[Way]| Path::of_ways(ways).unwrap();
        let two = path(&[way(22_000, &[0, 1_000_000], 0), way(27_000, &[0, 1_000_000], 0)]);
        assert_eq!((two.base_rtt_us, two.beyond_ppm), (22_000, 0));
        // Half within one bin, the others 5 ms later.
        assert_eq!(two.residual_bins, [1, 51, 51, 51, 51, 51]);
        assert_eq!(Path::of_ways(&[]), None);
        // One route thrice as often as another: three quarters are within 22 ms.
        let near = || way(22_000, &[1_000_000], 0);
        let four = path(&[way(27_000, &[1_000_000], 0), near(), near(), near()]);
        assert_eq!(four.residual_bins, [0, 0, 50, 50, 50, 50]);
    }

    #[test]
    fn what_is_lost_on_one_way_is_lost_on_its_part() {
        let path = |ways: &[Way]| Path::of_ways(ways).unwrap();
        let lossy = path(&[way(1_000, &[998_000], 2_000), way(1_000, &[1_000_000], 0)]);
        assert_eq!(lossy.beyond_ppm, 1_000);
        // A way that takes half a second longer misses every objective that curves are told for.
        let far = path(&[way(501_000, &[1_000_000], 0), way(1_000, &[1_000_000], 0)]);
        assert_eq!((far.beyond_ppm, far.residual_bins[5]), (500_000, 0));
    }

    #[test]
    fn no_way_is_told_shorter_than_it_is() {
        let whole = &[1_000_000];
        let path = Path::of_ways(&[way(1_000, whole, 0), way(1_010, whole, 0)]).unwrap();
        assert_eq!(path.residual_bins, [0, 1, 1, 1, 1, 1]);
        let odd = Way { base: Duration::from_nanos(1_234_567), residual: Residual::none() };
        assert_eq!(Path::of_ways(&[odd]).unwrap().base_rtt_us, 1_235);
    }
}
