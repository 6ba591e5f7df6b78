//! How a data centre's curve differs from its profile, in three whole numbers that travel.

/// The least and the most that a scale and odds may be, in millionths: a thousandth to a thousand.
pub const LEARNT_PPM: core::ops::RangeInclusive<u32> = 1_000..=1_000_000_000;
/// The most that a floor may be, in millionths: one request in twenty.
pub const FLOOR_PPM_MAX: u32 = 50_000;
/// No curve is more certain of a miss, or that there is none, where odds are above one.
pub(crate) const MISS_MIN: f64 = 1e-4;

const ONE_PPM: u32 = 1_000_000;

/// How a curve differs from the profile: what plans believe, or what is most likely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Learnt {
    /// How many times the profiled load is served alike, in millionths; in [`LEARNT_PPM`].
    pub scale_ppm: u32,
    /// How many times the profiled odds of a miss are met, in millionths; in [`LEARNT_PPM`].
    pub odds_ppm: u32,
    /// The share of requests, in millionths, that miss at any load, besides those that the curve
    /// tells of; at most [`FLOOR_PPM_MAX`].
    pub floor_ppm: u32,
}

impl Learnt {
    /// The profile.
    pub const AS_PROFILED: Self = Self { scale_ppm: ONE_PPM, odds_ppm: ONE_PPM, floor_ppm: 0 };

    /// These as whole millionths, the nearest that are in the range.
    pub(crate) fn of(scale: f64, odds: f64) -> Self {
        let (least, most) = (f64::from(*LEARNT_PPM.start()), f64::from(*LEARNT_PPM.end()));
        let ppm = |value: f64| (value * f64::from(ONE_PPM)).clamp(least, most).round() as u32;
        Self { scale_ppm: ppm(scale), odds_ppm: ppm(odds), floor_ppm: 0 }
    }

    /// The same with this share of requests that miss at any load.
    pub(crate) fn with_floor(self, share: f64) -> Self {
        let floor_ppm = (share * f64::from(ONE_PPM)).clamp(0.0, f64::from(FLOOR_PPM_MAX));
        Self { floor_ppm: floor_ppm.round() as u32, ..self }
    }

    /// The scale as a number.
    pub fn scale(self) -> f64 {
        f64::from(self.scale_ppm) / f64::from(ONE_PPM)
    }

    /// The odds as a number.
    pub fn odds(self) -> f64 {
        f64::from(self.odds_ppm) / f64::from(ONE_PPM)
    }

    /// The floor as a share.
    pub fn floor(self) -> f64 {
        f64::from(self.floor_ppm) / f64::from(ONE_PPM)
    }

    /// What the profile's probability of a miss is now. Never falls where that does not.
    pub(crate) fn miss(self, profiled: f64) -> f64 {
        let by_load =
            if self.odds_ppm == ONE_PPM { profiled } else { with_odds(profiled, self.odds()) };
        self.floor() + (1.0 - self.floor()) * by_load
    }
}

/// A probability of a miss at so many times its odds. Never falls where that does not.
pub(crate) fn with_odds(miss: f64, odds: f64) -> f64 {
    let miss = if odds > 1.0 { miss.max(MISS_MIN) } else { miss };
    odds * miss / (1.0 - miss + odds * miss)
}
