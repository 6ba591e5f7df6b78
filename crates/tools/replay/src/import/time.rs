//! Times of logs as nanoseconds.

pub(super) const DAY_NS: u64 = 86_400_000_000_000;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// No duration of a request is longer, ms: a day.
const LONGEST_MS: f64 = 86_400_000.0;

/// A number of seconds with decimals, as ns; times since 1970 too.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if part.len() > 9 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits: u64 = if part.is_empty() { 0 } else { part.parse().ok()? };
    let part_ns = digits.checked_mul(10_u64.pow(9 - part.len() as u32))?;
    whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(part_ns)
}

/// A duration in seconds, as ns.
pub(super) fn duration(text: &str) -> Option<u64> {
    seconds(text).filter(|ns| *ns <= DAY_NS)
}

/// A duration in milliseconds, as ns.
pub(super) fn millis(text: &str) -> Option<u64> {
    let ms: f64 = text.parse().ok()?;
    (0.0..=LONGEST_MS).contains(&ms).then_some((ms * 1e6) as u64)
}

/// `2016-04-15T20:17:00.310Z`, as ns since 1970; the zone is left out, as only differences count.
pub(super) fn iso(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T')?;
    let mut parts = date.splitn(3, '-');
    let mut part = || parts.next()?.parse::<u64>().ok();
    let (year, month, day) = (part()?, part()?, part()?);
    let end = time.find(['Z', '+', '-']).unwrap_or(time.len());
    Some(days(year, month, day)?.checked_mul(DAY_NS)? + clock(&time[..end])?)
}

/// `06/Feb/2009:12:14:14.655`, as HAProxy writes it.
pub(super) fn accept(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(':')?;
    let mut parts = date.splitn(3, '/');
    let day = parts.next()?.parse().ok()?;
    let name = parts.next()?;
    let month = MONTHS.iter().position(|month| *month == name)? as u64 + 1;
    let year = parts.next()?.parse().ok()?;
    Some(days(year, month, day)?.checked_mul(DAY_NS)? + clock(time)?)
}

/// `12:14:14.655` as ns since midnight.
fn clock(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let hour = parts.next()?.parse::<u64>().ok().filter(|hour| *hour < 24)?;
    let minute = parts.next()?.parse::<u64>().ok().filter(|minute| *minute < 60)?;
    let second_ns = seconds(parts.next()?).filter(|ns| *ns < 61_000_000_000)?;
    Some((hour * 60 + minute) * 60_000_000_000 + second_ns)
}

/// Days since 1970 of a date (Howard Hinnant, days_from_civil).
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=2200).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let all = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    all.checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_nanoseconds_since_1970() {
        // date -u -d 2016-04-15T20:17:00Z +%s; date -u -d '2009-02-06 12:14:14' +%s
        assert_eq!(iso("2016-04-15T20:17:00.310Z"), Some(1_460_751_420_310_000_000));
        assert_eq!(accept("06/Feb/2009:12:14:14.655"), Some(1_233_922_454_655_000_000));
        assert_eq!(seconds("1460751420.310"), Some(1_460_751_420_310_000_000));
        assert_eq!(iso("1970-01-01T00:00:00Z"), Some(0));
        assert_eq!(millis("0.25"), Some(250_000));
        for wrong in ["", "2016", "2016-13-01T00:00:00Z", "2016-01-01T24:00:00Z", "1-1-1T::"] {
            assert_eq!(iso(wrong), None, "{wrong}");
        }
        assert_eq!(
            (accept("06/Foo/2009:12:14:14.655"), seconds("1.2.3"), millis("-1")),
            (None, None, None)
        );
        assert_eq!((seconds("-1"), seconds("99999999999999")), (None, None));
        assert_eq!((millis("-1"), millis("nan")), (None, None));
    }
}
