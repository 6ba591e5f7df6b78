//! From what a site probes to what it tells of the ways to others.
//!
//! Both drivers, on sockets and in the simulator, make their paths with these lines; what they
//! count is measured in [`demand`](super::super::demand).

use super::super::curve::{NetworkPath, RESIDUAL_BIN, RESIDUAL_BINS_MAX, Residual};
use super::{DELAY_US_MAX, Path};
use evenkeel_core::time::nanos;

impl Path {
    /// The connections to one site, as they are estimated, as one path; `None` when none is heard.
    ///
    /// Requests hash to any of them (ECMP), so what counts is the average of *violations* over
    /// them, never of latencies: half of the requests at 22 ms and half at 27 ms are not all at
    /// 24.5 ms. A mixture says exactly that: over the shortest base the residual of each way, with
    /// the excess of its own base on top, each way with the same weight. For every objective the
    /// share of the mixture that misses it is the mean of the ways' shares, up to the 0.1 ms that
    /// an excess is rounded up to, and the microsecond of the base.
    pub fn of_paths(paths: &[NetworkPath]) -> Option<Self> {
        let base = paths.iter().map(|path| path.base).min()?;
        let base_us = nanos(base).div_ceil(1_000).clamp(1, DELAY_US_MAX.into());
        let mut bins: Vec<f64> = Vec::new();
        let mut beyond = 0.0;
        for path in paths {
            let excess = nanos(path.base).saturating_sub(base_us * 1_000);
            let further = excess.div_ceil(nanos(RESIDUAL_BIN)) as usize;
            beyond += f64::from(path.residual.beyond_ppm());
            for (bin, &ppm) in path.residual.bins_ppm().iter().enumerate() {
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
    use evenkeel_core::time::Duration;

    fn network_path(base_us: u64, bins_ppm: &[u32], beyond_ppm: u32) -> NetworkPath {
        let residual = Residual::new(bins_ppm.to_vec(), beyond_ppm).unwrap();
        NetworkPath { base: Duration::from_micros(base_us), residual }
    }

    #[test]
    fn connections_over_two_routes_are_one_path_whose_residual_tells_them_apart() {
        let path = |paths: &[NetworkPath]| Path::of_paths(paths).unwrap();
        let two = path(&[
            network_path(22_000, &[0, 1_000_000], 0),
            network_path(27_000, &[0, 1_000_000], 0),
        ]);
        assert_eq!((two.base_rtt_us, two.beyond_ppm), (22_000, 0));
        // Half within one bin, the others 5 ms later.
        assert_eq!(two.residual_bins, [1, 51, 51, 51, 51, 51]);
        assert_eq!(Path::of_paths(&[]), None);
        // One route thrice as often as another: three quarters are within 22 ms.
        let near = || network_path(22_000, &[1_000_000], 0);
        let four = path(&[network_path(27_000, &[1_000_000], 0), near(), near(), near()]);
        assert_eq!(four.residual_bins, [0, 0, 50, 50, 50, 50]);
    }

    #[test]
    fn what_is_lost_on_one_way_is_lost_on_its_part() {
        let path = |paths: &[NetworkPath]| Path::of_paths(paths).unwrap();
        let lossy =
            path(&[network_path(1_000, &[998_000], 2_000), network_path(1_000, &[1_000_000], 0)]);
        assert_eq!(lossy.beyond_ppm, 1_000);
        // A way that takes half a second longer misses every objective that curves are told for.
        let far =
            path(&[network_path(501_000, &[1_000_000], 0), network_path(1_000, &[1_000_000], 0)]);
        assert_eq!((far.beyond_ppm, far.residual_bins[5]), (500_000, 0));
    }

    #[test]
    fn no_way_is_told_shorter_than_it_is() {
        let whole = &[1_000_000];
        let path = Path::of_paths(&[network_path(1_000, whole, 0), network_path(1_010, whole, 0)])
            .unwrap();
        assert_eq!(path.residual_bins, [0, 1, 1, 1, 1, 1]);
        let odd = NetworkPath { base: Duration::from_nanos(1_234_567), residual: Residual::none() };
        assert_eq!(Path::of_paths(&[odd]).unwrap().base_rtt_us, 1_235);
    }
}
