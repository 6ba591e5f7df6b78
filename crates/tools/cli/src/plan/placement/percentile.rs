//! Which percentile, as people write it and as reports name it.

use evenkeel_core::units::Probability;
use serde::Serialize;

use crate::flag::FlagError;

/// A percentile, such as p99.9.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Percentile {
    /// Two digits or more: those of the percentage, without the point.
    digits: String,
    p: Probability,
}

/// What reports say of percentiles.
#[derive(Serialize)]
pub(super) struct PercentileReport {
    /// As a share of all operations.
    pub(super) p: f64,
    /// What is known of how round trips vary.
    pub(super) round_trips: &'static str,
    /// The steps that latencies are rounded up to.
    pub(super) step_ms: f64,
}

impl Percentile {
    /// `99`, `99.9`, `p99.9`, or the same as a share: `0.999`.
    pub(super) fn parse(text: &str) -> Result<Self, FlagError> {
        let wrong = || FlagError::came(text, "10 to 99.99, such as 99 or 99.9");
        let number = text.strip_prefix('p').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(part) || whole.is_empty() {
            return Err(wrong());
        }
        let digits = match whole {
            "0" => part.to_owned(),
            _ if whole.len() == 2 => format!("{whole}{part}"),
            _ => return Err(wrong()),
        };
        let digits = format!("{:0<2}", digits.trim_end_matches('0'));
        let p = format!("0.{digits}").parse::<f64>().ok().filter(|p| (0.1..=0.9999).contains(p));
        let p = p.and_then(|p| Probability::new(p).ok()).ok_or_else(wrong)?;
        Ok(Self { digits, p })
    }

    pub(super) const fn p(&self) -> Probability {
        self.p
    }

    /// As a key of JSON, with its unit: `p99_ms`, `p999_ms`.
    pub(super) fn key(&self) -> String {
        format!("p{}_ms", self.digits)
    }
}

impl std::fmt::Display for Percentile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = self.digits.split_at(2);
        let point = if part.is_empty() { "" } else { "." };
        write!(f, "p{whole}{point}{part}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_read_as_percentages_and_shares() {
        for (text, p, key, shown) in [
            ("99", 0.99, "p99_ms", "p99"),
            ("p99.9", 0.999, "p999_ms", "p99.9"),
            ("0.999", 0.999, "p999_ms", "p99.9"),
            ("50.0", 0.5, "p50_ms", "p50"),
            ("0.5", 0.5, "p50_ms", "p50"),
        ] {
            let read = Percentile::parse(text).unwrap();
            assert_eq!((read.p().value(), &*read.key(), &*read.to_string()), (p, key, shown));
        }
        for text in ["", "100", "5", "0", "1", "-9", "99,9", "p", "nan", "99.999999", "0.00"] {
            assert!(Percentile::parse(text).is_err(), "{text}");
        }
    }
}
