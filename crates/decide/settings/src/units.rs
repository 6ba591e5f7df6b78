//! Quantities as people write them: `30ms`, `64KiB`, `3000/min`, `5%`.
//!
//! A number without a unit is an error where two units are plausible: a timeout of `30` has been
//! read as seconds and meant as milliseconds often enough. Durations and sizes are computed in
//! whole numbers, so `2.3s` is exactly 2300000000 ns and formatting returns the same duration.

use std::time::Duration;

use crate::problem::{Mismatch, quoted};

pub(crate) const DURATION: &str = "a duration such as 30ms, 2.5s or 1m30s";
pub(crate) const BYTES: &str = "a size such as 1000, 64KiB or 1MiB";
pub(crate) const RATE: &str = "a rate such as 500/s, 30k/s or 3000/min";
pub(crate) const SHARE: &str = "a share from 0 to 1 such as 0.05 or 5%";

/// From the coarsest: the parts of a duration come in this order.
const DURATION_UNITS: [(&str, u128); 10] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, the micro sign
    ("μs", 1_000), // U+03BC, the Greek letter
    ("ns", 1),
];

const SIZE_UNITS: [(&str, u128); 11] = [
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const RATE_MULTIPLES: [(&str, f64); 4] = [("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)];
const RATE_PERIODS_S: [(&str, f64); 5] =
    [("s", 1.0), ("m", 60.0), ("min", 60.0), ("h", 3_600.0), ("ms", 1e-3)];

/// Parses a duration such as `30ms`, `2.5s`, `250us` or `1m30s`.
///
/// Units are `d h m s ms us ns`, the coarser first; what is finer than a nanosecond is rounded.
///
/// # Errors
/// When it is not a duration, has no unit, or is longer than [`Duration::MAX`].
pub fn parse_duration(text: &str) -> Result<Duration, Mismatch> {
    let wrong = || Mismatch::new(quoted(text), DURATION);
    let mut rest = text.trim();
    if let Some(number) = Decimal::parse(rest) {
        let zero = if number.digits == 0 { "0s".to_owned() } else { String::new() };
        let either = format!("{rest}ms or {rest}s");
        let meant = if zero.is_empty() { either } else { zero };
        return Err(wrong().with_hint(format!("did you mean {meant}?")));
    }
    let mut nanos = 0_u128;
    let mut coarser = u128::MAX;
    while !rest.is_empty() || coarser == u128::MAX {
        let (part, after) = duration_part(rest, coarser).ok_or_else(wrong)?;
        let part_nanos = part.0.times(part.1).ok_or_else(wrong)?;
        nanos = nanos.checked_add(part_nanos).ok_or_else(wrong)?;
        (coarser, rest) = (part.1, after);
    }
    duration_of_nanos(nanos).ok_or_else(|| wrong().with_hint("too long"))
}

/// Writes a duration as [`parse_duration`] reads it, exactly: `0s`, `250us`, `2.5s`, `1m30s`.
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}us", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        1_000_000_000..60_000_000_000 => format!("{}s", decimal(nanos, 1_000_000_000)),
        _ => format_minutes(nanos),
    }
}

/// Parses a size in bytes such as `1000`, `64KiB` or `10MB`.
///
/// # Errors
/// When it is not a whole number of bytes below 2^64, or `k` or `M` leave open which multiple.
pub fn parse_bytes(text: &str) -> Result<u64, Mismatch> {
    let wrong = || Mismatch::new(quoted(text), BYTES);
    let (number, unit) = split_number(text.trim());
    let Some(&(_, size)) = SIZE_UNITS.iter().find(|(name, _)| *name == unit) else {
        let multiple = unit.strip_suffix(['b', 'B']).unwrap_or(unit);
        let hint = match multiple.to_ascii_uppercase().as_str() {
            "K" | "KI" => "did you mean KiB (1024) or kB (1000)?",
            "M" | "MI" => "did you mean MiB (1024 × 1024) or MB (1000 × 1000)?",
            "G" | "GI" => "did you mean GiB (1024³) or GB (1000³)?",
            _ => return Err(wrong()),
        };
        return Err(wrong().with_hint(hint));
    };
    let bytes = Decimal::parse(number).and_then(|number| number.times_exactly(size));
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).ok_or_else(wrong)
}

/// Parses a rate such as `500/s`, `30k/s` or `3000/min`, per second; a bare number is per second.
///
/// # Errors
/// When it is not a rate, or is negative or not finite.
pub fn parse_rate(text: &str) -> Result<f64, Mismatch> {
    let (amount, period) = text.split_once('/').unwrap_or((text, "s"));
    let amount = amount.trim();
    let digits = amount.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let multiple = named(&RATE_MULTIPLES, &amount[digits.len()..]);
    let period_s = named(&RATE_PERIODS_S, period.trim());
    let rate = digits.trim().parse::<f64>().ok().zip(multiple).zip(period_s);
    let rate = rate.map(|((number, multiple), period_s)| number * multiple / period_s);
    let valid = rate.filter(|rate| rate.is_finite() && *rate >= 0.0);
    valid.ok_or_else(|| Mismatch::new(quoted(text), RATE))
}

/// Parses a share such as `5%` or `0.05`, between 0 and 1.
///
/// # Errors
/// When it is not a share, or is out of range.
pub fn parse_share(text: &str) -> Result<f64, Mismatch> {
    let (number, divisor) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 100.0),
        None => (text.trim(), 1.0),
    };
    let wrong = Mismatch::new(quoted(text), SHARE);
    match number.parse::<f64>().map(|number| number / divisor) {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        Ok(share) if divisor == 1.0 && share > 1.0 && share <= 100.0 => {
            Err(wrong.with_hint(format!("did you mean {number}%?")))
        }
        _ => Err(wrong),
    }
}

/// The first `2.5s` of a duration, with a unit finer than the last, and what follows it.
fn duration_part(text: &str, coarser: u128) -> Option<((Decimal, u128), &str)> {
    let (number, rest) = split_number(text);
    let unit_end = rest.find(|c: char| !c.is_alphabetic()).unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(unit_end);
    let &(_, size) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
    (size < coarser).then_some(((Decimal::parse(number)?, size), rest.trim_start()))
}

fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    (number, rest.trim_start())
}

fn named(table: &[(&str, f64)], name: &str) -> Option<f64> {
    table.iter().find(|(known, _)| *known == name).map(|&(_, value)| value)
}

fn duration_of_nanos(nanos: u128) -> Option<Duration> {
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    let below_second = u32::try_from(nanos % 1_000_000_000).ok()?;
    Some(Duration::new(seconds, below_second))
}

fn format_minutes(nanos: u128) -> String {
    let minutes = nanos / 60_000_000_000;
    let rest = nanos % 60_000_000_000;
    let parts = [(minutes / 60, "h"), (minutes % 60, "m")];
    let mut text: String = parts
        .iter()
        .filter(|(amount, _)| *amount > 0)
        .map(|(amount, unit)| format!("{amount}{unit}"))
        .collect();
    if rest > 0 {
        text.push_str(&decimal(rest, 1_000_000_000));
        text.push('s');
    }
    text
}

/// `amount / unit` as an exact decimal; `unit` is a power of ten.
fn decimal(amount: u128, unit: u128) -> String {
    let whole = amount / unit;
    let places = unit.ilog10() as usize;
    let fraction = format!("{:0places$}", amount % unit);
    match fraction.trim_end_matches('0') {
        "" => whole.to_string(),
        digits => format!("{whole}.{digits}"),
    }
}

/// An exact decimal number: `digits / 10^places`.
struct Decimal {
    digits: u128,
    places: u32,
}

impl Decimal {
    /// Parses `12` or `1.5`; no sign, no exponent, digits on both sides of the point.
    fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let digits_only = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !digits_only(whole) || !digits_only(fraction) {
            return None;
        }
        let fraction = fraction.trim_end_matches('0');
        let digits = format!("{whole}{fraction}").parse().ok()?;
        Some(Self { digits, places: u32::try_from(fraction.len()).ok()? })
    }

    /// The product, rounded half up.
    fn times(&self, unit: u128) -> Option<u128> {
        let divisor = 10_u128.checked_pow(self.places)?;
        let product = self.digits.checked_mul(unit)?;
        Some(product.checked_add(divisor / 2)? / divisor)
    }

    /// The product, when it is a whole number.
    fn times_exactly(&self, unit: u128) -> Option<u128> {
        let divisor = 10_u128.checked_pow(self.places)?;
        let product = self.digits.checked_mul(unit)?;
        product.is_multiple_of(divisor).then_some(product / divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nanos(text: &str) -> u128 {
        parse_duration(text).unwrap_or_else(|error| panic!("{error}")).as_nanos()
    }

    #[test]
    fn durations() {
        let known = [
            ("0s", 0),
            ("30ms", 30_000_000),
            ("2.5s", 2_500_000_000),
            ("1m30s", 90_000_000_000),
            ("1m 30s", 90_000_000_000),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("250\u{3bc}s", 250_000),
            ("0.5h", 1_800_000_000_000),
            ("1d", 86_400_000_000_000),
            ("5min", 300_000_000_000),
            ("2.3s", 2_300_000_000),
            (" 7 ns ", 7),
            ("0.6ns", 1),
        ];
        for (text, expected) in known {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_duration() {
        for text in ["", " ", "s", "-1s", "+1s", "1.s", ".5s", "1e3s", "1s1s", "1s1m", "30 mss"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
        for text in ["99999999999999999999d", &"9".repeat(100_000), &format!("{}s", u64::MAX)] {
            assert_eq!(parse_duration(text).is_ok(), text.starts_with("1844"), "{text}");
        }
        let bare = parse_duration("30").unwrap_err();
        assert_eq!(bare.hint.as_deref(), Some("did you mean 30ms or 30s?"));
        assert_eq!(parse_duration("0").unwrap_err().hint.as_deref(), Some("did you mean 0s?"));
    }

    #[test]
    fn durations_print_as_people_write_them() {
        let ms = Duration::from_millis;
        let printed = [
            (Duration::ZERO, "0s"),
            (Duration::from_nanos(999), "999ns"),
            (Duration::from_nanos(1_500), "1.5us"),
            (ms(30), "30ms"),
            (ms(2_500), "2.5s"),
            (ms(90_000), "1m30s"),
            (ms(3_600_000), "1h"),
            (ms(3_600_500), "1h0.5s"),
            (ms(60_000), "1m"),
        ];
        for (duration, text) in printed {
            assert_eq!(format_duration(duration), text);
        }
    }

    #[test]
    fn sizes() {
        let known = [("1000", 1_000), ("64KiB", 65_536), ("1MiB", 1_048_576), ("10MB", 10_000_000)];
        for (text, expected) in known {
            assert_eq!(parse_bytes(text), Ok(expected), "{text}");
        }
        assert_eq!(parse_bytes("1.5 KiB"), Ok(1_536));
        assert_eq!(parse_bytes("18446744073709551615"), Ok(u64::MAX));
        for text in ["", "KiB", "-1", "0.3B", "18446744073709551616", "1e3", "1 XB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        let hint = parse_bytes("64k").unwrap_err().hint;
        assert_eq!(hint.as_deref(), Some("did you mean KiB (1024) or kB (1000)?"));
    }

    #[test]
    fn rates() {
        let known = [("500/s", 500.0), ("30k/s", 30_000.0), ("3000/min", 50.0), ("7", 7.0)];
        for (text, expected) in known {
            assert_eq!(parse_rate(text), Ok(expected), "{text}");
        }
        assert_eq!(parse_rate("1.5 M / s"), Ok(1_500_000.0));
        assert_eq!(parse_rate("1e6"), Ok(1_000_000.0));
        for text in ["", "/s", "-1/s", "inf", "nan", "5/", "5/fortnight", "5q/s", "1e999", "1/s/s"]
        {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_share("0.05"), Ok(0.05));
        assert_eq!(parse_share("100 %"), Ok(1.0));
        for text in ["", "%", "-1%", "101%", "1.01", "nan", "nan%", "inf"] {
            assert!(parse_share(text).is_err(), "{text}");
        }
        assert_eq!(parse_share("5").unwrap_err().hint.as_deref(), Some("did you mean 5%?"));
    }

    proptest! {
        #[test]
        fn every_duration_survives_printing(seconds: u64, nanos in 0_u32..1_000_000_000) {
            let duration = Duration::new(seconds, nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn short_durations_survive_printing(nanos in 0_u64..200_000_000_000) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC*|[0-9.]{0,50}[a-zµ%/ ]{0,5}[0-9.]{0,3}") {
            let _ = parse_duration(&text);
            let _ = parse_bytes(&text);
            prop_assert!(parse_rate(&text).is_ok_and(f64::is_finite) || parse_rate(&text).is_err());
            prop_assert!(parse_share(&text).map_or(true, |share| (0.0..=1.0).contains(&share)));
        }
    }
}
