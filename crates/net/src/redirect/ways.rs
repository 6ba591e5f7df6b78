//! Several measured ways to one site, told as one.
//!
//! Requests hash to any of the ways (ECMP), so what counts is the average of *violations* over
//! them, never of latencies: half of the requests at 22 ms and half at 27 ms are not all at
//! 24.5 ms. A mixture says exactly that: over the shortest base, the residual of each way with the
//! excess of its own base on top, each way with the same weight. For every objective the share of
//! the mixture that misses it is the mean of the ways' shares, up to the 0.1 ms that an excess is
//! rounded up to.

use evenkeel_core::site::redirect::curve::{RESIDUAL_BIN, RESIDUAL_BINS_MAX, Residual, Way};
use evenkeel_core::site::redirect::epoch::{DELAY_US_MAX, Path};
use evenkeel_core::time::nanos;

/// The ways as one path to be told; `None` when there is none.
pub(super) fn mixture(ways: &[Way]) -> Option<Path> {
    let base = ways.iter().map(|way| way.base).min()?;
    let base_us = nanos(base).div_ceil(1_000).clamp(1, DELAY_US_MAX.into());
    let (mut bins, mut beyond) = (vec![0.0; 1], 0.0);
    for way in ways {
        let excess = nanos(way.base).saturating_sub(base_us * 1_000);
        let longer = excess.div_ceil(nanos(RESIDUAL_BIN)) as usize;
        beyond += f64::from(way.residual.beyond_ppm());
        for (bin, &ppm) in way.residual.bins_ppm().iter().enumerate() {
            let bin = bin.saturating_add(longer);
            if bin >= RESIDUAL_BINS_MAX {
                beyond += f64::from(ppm);
                continue;
            }
            if bins.len() <= bin {
                bins.resize(bin + 1, 0.0);
            }
            bins[bin] += f64::from(ppm);
        }
    }
    let whole = Residual::from_weights(&bins, beyond)?;
    Some(Path::summary(base_us as u32, whole.bins_ppm(), whole.beyond_ppm()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn way(base_us: u64, bins_ppm: &[u32], beyond_ppm: u32) -> Way {
        let residual = Residual::new(bins_ppm.to_vec(), beyond_ppm).unwrap();
        Way { base: Duration::from_micros(base_us), residual }
    }

    #[test]
    fn one_way_is_told_as_it_is() {
        let path = mixture(&[way(22_000, &[0, 900_000, 100_000], 0)]).unwrap();
        assert_eq!(path, Path::summary(22_000, &[0, 900_000, 100_000], 0));
        assert_eq!((path.base_rtt_us, path.residual_bins), (22_000, [1, 1, 1, 2, 2, 2]));
        assert_eq!(mixture(&[]), None);
    }

    #[test]
    fn two_routes_miss_as_often_as_both_on_average() {
        // 22 ms and 27 ms without any residual: 50 bins of 0.1 ms lie between them.
        let path = mixture(&[way(27_000, &[1_000_000], 0), way(22_000, &[1_000_000], 0)]).unwrap();
        assert_eq!(path.base_rtt_us, 22_000);
        assert_eq!(path.residual_bins, [0, 50, 50, 50, 50, 50]);
        // A third route thrice as often: three quarters are within 22 ms.
        let near = || way(22_000, &[1_000_000], 0);
        let path = mixture(&[near(), near(), near(), way(27_000, &[1_000_000], 0)]).unwrap();
        assert_eq!(path.residual_bins, [0, 0, 50, 50, 50, 50]);
    }

    #[test]
    fn what_is_lost_on_one_way_is_lost_on_its_part() {
        let path = mixture(&[way(1_000, &[998_000], 2_000), way(1_000, &[1_000_000], 0)]).unwrap();
        assert_eq!(path.beyond_ppm, 1_000);
        // A way that takes half a second longer misses every objective that curves are told for.
        let path = mixture(&[way(501_000, &[1_000_000], 0), way(1_000, &[1_000_000], 0)]).unwrap();
        assert_eq!((path.beyond_ppm, path.residual_bins[5]), (500_000, 0));
    }

    #[test]
    fn an_excess_is_rounded_up() {
        let path = mixture(&[way(1_000, &[1_000_000], 0), way(1_010, &[1_000_000], 0)]).unwrap();
        assert_eq!(path.residual_bins, [0, 1, 1, 1, 1, 1]);
    }
}
