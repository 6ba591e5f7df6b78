//! What the path between two data centres takes beyond its base propagation latency.

use crate::ALL_PPM;
use evenkeel_core::time::{Duration, nanos};
use evenkeel_core::units::OutOfRange;

/// The width of a bin.
pub const RESIDUAL_BIN: Duration = Duration::from_micros(100);
/// Bins at most: residuals above 0.4096 s are *beyond* and miss every objective.
pub const RESIDUAL_BINS_MAX: usize = 4_096;

/// A distribution of residual latency in whole parts per million: sites exchange it and must
/// compute the same curves from it, bit by bit.
///
/// Bin `k` holds residuals above `k - 1` and up to `k` bin widths, and counts as its upper end:
/// predicted latencies are never too short, and at most a bin too long.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Residual {
    bins_ppm: Vec<u32>,
    beyond_ppm: u32,
}

/// A path between two data centres.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkPath {
    /// The round trip of an empty path.
    pub base: Duration,
    /// What round trips take beyond it.
    pub residual: Residual,
}

impl NetworkPath {
    /// From a data centre to itself.
    pub fn inside() -> Self {
        Self { base: Duration::ZERO, residual: Residual::none() }
    }
}

impl Residual {
    /// No residual latency at all.
    pub fn none() -> Self {
        Self { bins_ppm: vec![ALL_PPM], beyond_ppm: 0 }
    }

    /// The distribution that another site told.
    ///
    /// # Errors
    /// When there are more than [`RESIDUAL_BINS_MAX`] bins or the parts do not sum to a million.
    pub fn new(bins_ppm: Vec<u32>, beyond_ppm: u32) -> Result<Self, OutOfRange> {
        if bins_ppm.len() > RESIDUAL_BINS_MAX {
            let expected = "at most 4096 bins of residual latency";
            return Err(OutOfRange { came: bins_ppm.len() as f64, expected });
        }
        let parts = bins_ppm.iter().map(|&ppm| u64::from(ppm));
        let sum = parts.sum::<u64>() + u64::from(beyond_ppm);
        if sum != u64::from(ALL_PPM) {
            let expected = "residual latencies that sum to 1000000 parts per million";
            return Err(OutOfRange { came: sum as f64, expected });
        }
        Ok(Self::trimmed(bins_ppm, beyond_ppm))
    }

    /// The distribution of weighted bins, rounded so that the cumulative shares are the nearest
    /// whole parts. `None` when all weights are zero.
    pub fn from_weights(bins: &[f64], beyond: f64) -> Option<Self> {
        let total = bins.iter().sum::<f64>() + beyond;
        if total <= 0.0 || !total.is_finite() {
            return None;
        }
        let (mut below, mut reported) = (0.0, 0_u32);
        let bins_ppm = bins.iter().take(RESIDUAL_BINS_MAX).map(|weight| {
            below += weight;
            let cumulative = ((below / total * 1e6).round() as u32).clamp(reported, ALL_PPM);
            cumulative - core::mem::replace(&mut reported, cumulative)
        });
        let bins_ppm: Vec<u32> = bins_ppm.collect();
        Some(Self::trimmed(bins_ppm, ALL_PPM - reported))
    }

    /// The same with at least this much beyond every objective, taken from all bins alike: losses
    /// and retransmissions that are too rare for the probes to have met.
    #[must_use]
    pub fn with_beyond_at_least(&self, floor_ppm: u32) -> Self {
        let floor_ppm = floor_ppm.min(ALL_PPM);
        if self.beyond_ppm >= floor_ppm {
            return self.clone();
        }
        let kept = f64::from(ALL_PPM - floor_ppm) / f64::from(ALL_PPM - self.beyond_ppm);
        let bins: Vec<f64> = self.bins_ppm.iter().map(|&ppm| f64::from(ppm) * kept).collect();
        Self::from_weights(&bins, f64::from(floor_ppm)).unwrap_or_else(|| self.clone())
    }

    /// Parts per million in each bin; none beyond the end.
    pub fn bins_ppm(&self) -> &[u32] {
        &self.bins_ppm
    }

    /// Parts per million beyond all bins.
    pub fn beyond_ppm(&self) -> u32 {
        self.beyond_ppm
    }

    /// The bin of a residual; `None` beyond all bins.
    pub fn bin(residual: Duration) -> Option<usize> {
        let bin = nanos(residual).div_ceil(nanos(RESIDUAL_BIN));
        (bin < RESIDUAL_BINS_MAX as u64).then_some(bin as usize)
    }

    fn trimmed(mut bins_ppm: Vec<u32>, beyond_ppm: u32) -> Self {
        while bins_ppm.last() == Some(&0) {
            bins_ppm.pop();
        }
        Self { bins_ppm, beyond_ppm }
    }
}
