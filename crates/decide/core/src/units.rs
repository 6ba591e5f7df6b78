//! Numbers that carry their unit and range.

/// Why a number is not of its unit: what came and what was expected.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{came} is out of range, expected {expected}")]
pub struct OutOfRange {
    /// The number that came.
    pub came: f64,
    /// The range that was expected, in words.
    pub expected: &'static str,
}

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident, $range:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
        pub struct $name(f64);

        impl $name {
            #[doc = concat!("Checks that the number is ", $expected, ".")]
            ///
            /// # Errors
            /// When it is not, or is NaN.
            pub fn new(value: f64) -> Result<Self, OutOfRange> {
                if value.is_finite() && $range.contains(&value) {
                    Ok(Self(value))
                } else {
                    Err(OutOfRange { came: value, expected: $expected })
                }
            }

            /// The number.
            #[inline]
            pub const fn value(self) -> f64 {
                self.0
            }
        }
    };
}

unit!(
    /// A probability or share.
    Probability, (0.0..=1.0), "a share between 0 and 1");
unit!(
    /// A rate, per second.
    Rate, (0.0..=f64::MAX), "a rate per second, zero or more");
unit!(
    /// The probability with which a replica serves optional content: 1 is full content.
    Dimmer, (0.0..=1.0), "a dimmer between 0 and 1");
unit!(
    /// A relative weight.
    Weight, (f64::MIN_POSITIVE..=f64::MAX), "a weight above 0");

impl Dimmer {
    /// Every request with all its optional content.
    pub const FULL: Self = Self(1.0);
    /// No optional content at all.
    pub const LEAN: Self = Self(0.0);

    /// The nearest dimmer. NaN becomes full: what is not known to be in need is not dimmed.
    pub fn clamped(value: f64) -> Self {
        Self(if value.is_nan() { 1.0 } else { value.clamp(0.0, 1.0) })
    }
}

impl Probability {
    /// Never.
    pub const ZERO: Self = Self(0.0);
    /// Always.
    pub const ONE: Self = Self(1.0);

    /// The nearest probability; NaN becomes zero.
    pub fn clamped(value: f64) -> Self {
        Self(if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) })
    }

    /// The probability of the opposite.
    #[must_use]
    pub fn complement(self) -> Self {
        Self(1.0 - self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_says_what_came_and_what_was_expected() {
        let error = Probability::new(1.5).unwrap_err().to_string();
        assert_eq!(error, "1.5 is out of range, expected a share between 0 and 1");
        assert!(Weight::new(0.0).is_err());
        assert!(Rate::new(f64::NAN).is_err());
        assert_eq!(Probability::clamped(f64::NAN), Probability::ZERO);
    }
}
