//! Money, dates, names and text as a page shows them.

use std::fmt;

/// Text that cannot end the element or the quoted attribute it stands in.
pub(crate) fn text(content: &str) -> Escaped<'_> {
    Escaped(content)
}

/// See [`text`].
#[derive(Debug)]
pub(crate) struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(['&', '<', '>', '"', '\'']) {
            formatter.write_str(&rest[..at])?;
            formatter.write_str(match rest.as_bytes()[at] {
                b'&' => "&amp;",
                b'<' => "&lt;",
                b'>' => "&gt;",
                b'"' => "&quot;",
                _ => "&#39;",
            })?;
            rest = &rest[at + 1..];
        }
        formatter.write_str(rest)
    }
}

/// "€1,240" or "€12.50".
pub(crate) fn money(cents: i64) -> String {
    match cents % 100 {
        0 => format!("€{}", grouped(cents / 100)),
        rest => format!("€{}.{:02}", grouped(cents / 100), rest.abs()),
    }
}

/// "30,000".
pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut grouped = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// "5 Oct, 18:40", in UTC, of seconds since 1970.
pub(crate) fn date(seconds: i64) -> String {
    const MONTHS: [&str; 12] =
        ["Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb"];
    let (day, month) = day_and_month(seconds.div_euclid(86_400));
    let minute = seconds.rem_euclid(86_400) / 60;
    let month = MONTHS[usize::try_from(month).expect("months are 0 to 11")];
    format!("{day} {month}, {:02}:{:02}", minute / 60, minute % 60)
}

/// Day from 1 and month from March = 0, of days since 1970. Years begin in March here, so that the
/// leap day is their last and months have a regular length of 153 days in five (H. Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms").
fn day_and_month(days: i64) -> (i64, i64) {
    let of_era = (days + 719_468).rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    (of_year - (153 * month + 2) / 5 + 1, month)
}

/// "ML" of "Marta Lindqvist".
pub(crate) fn initials(name: &str) -> String {
    name.split(' ').filter_map(|word| word.chars().next()).take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        let escaped = text("<b a=\"1\" c='2'>R&D ü</b>").to_string();
        assert_eq!(escaped, "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;R&amp;D ü&lt;/b&gt;");
        assert_eq!(text("").to_string(), "");
    }

    #[test]
    fn money_is_grouped_and_shows_cents_only_if_there_are_any() {
        let shown = [0, 50, 1_250, 99_900, 100_000, 123_456_705].map(money);
        assert_eq!(shown, ["€0", "€0.50", "€12.50", "€999", "€1,000", "€1,234,567.05"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        // From `date -u -d @SECONDS`.
        for (seconds, expected) in [
            (0, "1 Jan, 00:00"),
            (951_782_399, "28 Feb, 23:59"), // 2000, before the leap day
            (951_782_400, "29 Feb, 00:00"),
            (1_709_251_199, "29 Feb, 23:59"), // 2024
            (1_709_251_200, "1 Mar, 00:00"),
            (1_791_201_600, "5 Oct, 12:00"),
            (-60, "31 Dec, 23:59"),
        ] {
            assert_eq!(date(seconds), expected, "{seconds}");
        }
    }
}
