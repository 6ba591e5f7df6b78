//! Numbers as people read them, with their unit.

use evenkeel_papers::judge::{Finding, Kind};
use evenkeel_papers::stats::{Interval, Range};
use evenkeel_papers::unit::Unit;
use evenkeel_papers::welch::Welch;

use crate::terminal::ms;

/// A value of a measure, without its unit.
pub(super) fn value(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Share => percent(value),
        Unit::Seconds | Unit::Windows => format!("{value:.1}"),
        Unit::Nines => format!("{value:.2}"),
        Unit::Ms
        | Unit::Times
        | Unit::Deviations
        | Unit::PerSecond
        | Unit::PerRequest
        | Unit::PerDay
        | Unit::Dollars => ms(value),
    }
}

/// A mean with half its interval.
pub(super) fn with_half(interval: &Interval, unit: Unit) -> String {
    let half = (interval.high - interval.low) / 2.0;
    let half = match unit {
        Unit::Share => percent(half),
        Unit::Nines => value(half, unit),
        _ if half >= 9.95 => format!("{half:.0}"),
        _ => format!("{half:.1}"),
    };
    format!("{} ±{half}", value(interval.mean, unit))
}

/// A result: a value, a ratio, or a difference, of which shares are told in points.
pub(super) fn result(number: f64, kind: Kind, unit: Unit) -> String {
    match (kind, unit) {
        (Kind::Value, Unit::Share | Unit::Seconds | Unit::Windows | Unit::Nines) => {
            value(number, unit)
        }
        (Kind::Value, Unit::Ms) if number >= 100.0 => format!("{number:.0}"),
        (Kind::Ratio, Unit::Share) => format!("{number:.3}"),
        (Kind::Value | Kind::Ratio, _) => format!("{number:.2}"),
        (Kind::Difference, Unit::Share) => signed(number, percent),
        (Kind::Difference, Unit::Nines) => signed(number, |number| format!("{number:.2}")),
        (Kind::Difference, _) => signed(number, |number| format!("{number:.1}")),
    }
}

/// A share in percent to a tenth, or to two digits where a tenth would show nothing.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    match percent.abs() {
        size if size == 0.0 || size >= 0.095 => format!("{percent:.1}"),
        size if size < 1e-5 => format!("{percent:.0e}"),
        size => format!("{percent:.*}", (-size.log10()).ceil() as usize + 1),
    }
}

fn signed(number: f64, shown: impl Fn(f64) -> String) -> String {
    let sign = if number < 0.0 { '−' } else { '+' };
    format!("{sign}{}", shown(number.abs()))
}

/// The unit of a finding's result.
pub(super) fn result_unit(kind: Kind, unit: Unit) -> &'static str {
    match (kind, unit) {
        (Kind::Ratio, _) => "times",
        (Kind::Difference, Unit::Share) => "points",
        (Kind::Value | Kind::Difference, _) => unit.name(),
    }
}

/// A round number, such as beside an axis.
pub(super) fn tick_text(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').replace('-', "−")
}

/// The range claimed, in few characters.
pub(super) fn range(range: &Range, kind: Kind, unit: Unit) -> String {
    let factor = if unit == Unit::Share && kind != Kind::Ratio { 100.0 } else { 1.0 };
    let [low, high] = [range.at_least, range.at_most].map(|end| tick_text(end * factor));
    match (range.at_least.is_finite(), range.at_most.is_finite()) {
        (true, true) if low == high => high,
        (true, true) => format!("{low} – {high}"),
        (true, false) => format!("> {low}"),
        (false, true) => format!("< {high}"),
        (false, false) => "anything".to_owned(),
    }
}

/// A finding's range.
pub(super) fn claimed(finding: &Finding, unit: Unit) -> String {
    range(&finding.claimed, finding.kind, unit)
}

/// Welch's test in the words of those who use it.
pub(super) fn welch(test: &Welch) -> String {
    let p = match test.p {
        p if p < 1e-15 => "p < 1e-15".to_owned(),
        p if p < 0.001 => format!("p = {p:.0e}"),
        p => format!("p = {p:.3}"),
    };
    format!("{}, {p}", test.words())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages_and_their_differences_points() {
        assert_eq!(value(0.8123, Unit::Share), "81.2");
        assert_eq!(result(-0.0512, Kind::Difference, Unit::Share), "−5.1");
        assert_eq!(result(1.0534, Kind::Ratio, Unit::Share), "1.053");
        assert_eq!(result(648.4, Kind::Value, Unit::Ms), "648");
        assert_eq!(result_unit(Kind::Difference, Unit::Share), "points");
        let interval = Interval { mean: 0.5, low: 0.49, high: 0.51, seeds: 3 };
        assert_eq!(with_half(&interval, Unit::Share), "50.0 ±1.0");
    }

    #[test]
    fn small_shares_keep_two_digits() {
        let reported = [0.0, 0.001, 0.00084, 9e-5, 8.4e-6, 1e-8].map(|it| value(it, Unit::Share));
        assert_eq!(reported, ["0.0", "0.1", "0.084", "0.0090", "0.00084", "1e-6"]);
        assert_eq!(result(-0.00021, Kind::Difference, Unit::Share), "−0.021");
        assert_eq!(result(4.37, Kind::Difference, Unit::Nines), "+4.37");
    }

    #[test]
    fn ranges_are_short() {
        let open = f64::INFINITY;
        let of = |at_least, at_most| range(&Range { at_least, at_most }, Kind::Ratio, Unit::Times);
        assert_eq!([of(-open, 1.0), of(2.0, 3.0), of(3.0, open)], ["< 1", "2 – 3", "> 3"]);
        let points = Range { at_least: -0.005, at_most: open };
        assert_eq!(range(&points, Kind::Difference, Unit::Share), "> −0.5");
        let share = Range { at_least: 0.99, at_most: open };
        assert_eq!(range(&share, Kind::Value, Unit::Share), "> 99");
    }

    #[test]
    fn a_test_says_which_is_greater_and_how_sure_it_is() {
        let of = |t, p| welch(&Welch { t, degrees_of_freedom: 9.0, p });
        assert_eq!(of(3.0, 1e-20), "higher, p < 1e-15");
        assert_eq!(of(-3.0, 2.3e-5), "lower, p = 2e-5");
        assert_eq!(of(-0.3, 0.2265), "similar, p = 0.227");
    }
}
