//! The range of request rates.

use super::LoadError;

/// The largest rate a plan may reach, in requests per second: far above what one core can send,
/// and small enough that counting what it could not send ends in time.
pub const RATE_MAX: f64 = 10_000_000.0;

pub(super) fn checked_rate(name: &'static str, rate: f64) -> Result<f64, LoadError> {
    if rate > 0.0 && rate <= RATE_MAX {
        return Ok(rate);
    }
    let expected = format!("requests per second above 0 and at most {RATE_MAX}");
    Err(LoadError::setting(name, rate, expected))
}
