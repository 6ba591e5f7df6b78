//! What a plan between data centres brings a replica, told before it comes.
//!
//! Arrivals tell of a plan only after a control period, and where a plan sends a site twice its
//! load, that is a period of backlog (joint study, F9). So who enforces the plan tells the replicas
//! a *factor*: how many times as many requests come from now on as would without it. It is no rate:
//! where the plan did not see a surge, the arrivals still count.
//!
//! **Until when it holds**: until the arrivals show it, and by as much as they do not yet. A rate
//! is measured over one control period or some; where a share `a` of that time is after the plan,
//! the rate shows the factor `f` in part, and what is left of it is `f / (1 + a (f − 1))`.
//!
//! On the wire it is an Integer with a parameter (RFC 9651), `708412345;factor=2.4`:
//!
//! ```text
//! inflow = epoch ";factor=" factor        epoch = 1*15DIGIT
//! factor = 1*3DIGIT [ "." 1*3DIGIT ]
//! ```
//!
//! **Whom it believes.** Several proxies tell the same, and late ones what was: an epoch counts
//! once, and one before the last not at all. After [`FORGOTTEN`] a lower epoch counts again: plans
//! of another period are numbered otherwise, and one lie must not make a replica deaf.

use core::fmt;
use core::ops::RangeInclusive;

use crate::time::{Duration, Instant};

/// After which the epoch of a plan makes no lower one old.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// The most bytes of its text: 15 digits, the parameter's name, seven for the number.
const BYTES_MAX: usize = 30;
const PARAMETER: &str = ";factor=";

/// What the plan of an epoch brings a site.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inflow {
    epoch: u64,
    factor: f64,
}

impl Inflow {
    /// The factors that count; what is beyond is taken for the nearest.
    pub const FACTORS: RangeInclusive<f64> = 0.125..=8.0;

    /// So many times as many requests come from this epoch on; `None` when that is no such number.
    pub fn new(epoch: u64, factor: f64) -> Option<Self> {
        let factor = factor.clamp(*Self::FACTORS.start(), *Self::FACTORS.end());
        (!factor.is_nan()).then_some(Self { epoch, factor })
    }

    /// Reads the value of a header; `None` when it is no inflow.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = str::from_utf8(value).ok().filter(|text| text.len() <= BYTES_MAX)?;
        let (epoch, factor) = text.split_once(PARAMETER)?;
        let (whole, fraction) = factor.split_once('.').unwrap_or((factor, "0"));
        let are_digits = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        let is_one = are_digits(epoch, 15) && are_digits(whole, 3) && are_digits(fraction, 3);
        let numbers = is_one.then(|| Some((epoch.parse().ok()?, factor.parse().ok()?)));
        let (epoch, factor) = numbers.flatten()?;
        Self::FACTORS.contains(&factor).then_some(Self { epoch, factor })
    }

    /// The epoch of the plan.
    pub const fn epoch(self) -> u64 {
        self.epoch
    }

    /// How many times as many requests come as without it: one of [`Inflow::FACTORS`].
    pub const fn factor(self) -> f64 {
        self.factor
    }
}

/// As the value of a header.
impl fmt::Display for Inflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{PARAMETER}{:.3}", self.epoch, self.factor)
    }
}

/// The time that a rate was measured over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Over {
    pub(super) until: Instant,
    pub(super) length: Duration,
}

/// What plans bring that the arrivals do not show yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    factor: f64,
    since: Instant,
    /// The epoch told last.
    last: Option<u64>,
}

impl Expected {
    /// No plan yet.
    pub(super) const fn nothing() -> Self {
        Self { factor: 1.0, since: Instant::ZERO, last: None }
    }

    /// Takes what a plan brings beyond the one before; false where that epoch is known or old. Of
    /// that one there may be something left which the rate, measured over this time, does not show.
    pub(super) fn take(&mut self, now: Instant, inflow: Inflow, over: Over) -> bool {
        let is_recent = now.since(self.since) < FORGOTTEN;
        let is_old = |last| inflow.epoch == last || (inflow.epoch < last && is_recent);
        if self.last.is_some_and(is_old) {
            return false;
        }
        let factor = self.left(over) * inflow.factor;
        let factor = factor.clamp(*Inflow::FACTORS.start(), *Inflow::FACTORS.end());
        *self = Self { factor, since: now, last: Some(inflow.epoch) };
        true
    }

    /// By what a rate that was measured over this time must be multiplied.
    pub(super) fn left(&self, over: Over) -> f64 {
        let after_s = over.until.since(self.since).as_secs_f64();
        let shown = (after_s / over.length.as_secs_f64().max(1e-9)).min(1.0);
        self.factor / (self.factor - 1.0).mul_add(shown, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(100_000 + millis)
    }

    /// A second that ended so many milliseconds after the begin.
    fn second_until(millis: u64) -> Over {
        Over { until: at(millis), length: SECOND }
    }

    fn of(epoch: u64, factor: f64) -> Inflow {
        Inflow::new(epoch, factor).unwrap()
    }

    #[test]
    fn a_factor_is_left_by_as_much_as_the_arrivals_do_not_show() {
        for factor in [0.2, 0.9, 1.0, 2.0, 8.0] {
            let mut expected = Expected::nothing();
            assert!(expected.take(at(0), of(1, factor), second_until(0)));
            for (after, share) in [(0, 0.0), (250, 0.25), (500, 0.5), (1_000, 1.0), (9_000, 1.0)] {
                // What a rate of 100 before and 100 times the factor after it comes to.
                let measured = 100.0 * (1.0 - share) + 100.0 * factor * share;
                let rate = measured * expected.left(second_until(after));
                assert!((rate - 100.0 * factor).abs() < 1e-9, "{factor} {share}: {rate}");
            }
        }
    }

    #[test]
    fn an_epoch_counts_once_and_an_old_one_only_when_the_last_is_forgotten() {
        let mut expected = Expected::nothing();
        let told = |expected: &mut Expected, millis: u64, epoch: u64| {
            expected.take(at(millis), of(epoch, 2.0), second_until(millis))
        };
        assert!(told(&mut expected, 0, 7));
        for (millis, epoch) in [(0, 7), (100, 7), (300, 6), (59_999, 1), (70_000, 7)] {
            assert!(!told(&mut expected, millis, epoch), "{epoch} at {millis}");
        }
        // What was not believed left no trace: 60 s are since the seventh.
        assert!(told(&mut expected, 60_000, 1));
        assert!(told(&mut expected, 60_001, 2));
    }

    #[test]
    fn a_plan_that_is_replaced_at_once_leaves_what_both_bring() {
        let mut expected = Expected::nothing();
        assert!(expected.take(at(0), of(1, 4.0), second_until(0)));
        assert!(expected.take(at(10), of(2, 0.25), second_until(0)));
        assert!((expected.left(second_until(0)) - 1.0).abs() < 1e-9);
        // And however often, it stays within what counts.
        for epoch in 3..40 {
            assert!(expected.take(at(10 + epoch), of(epoch, 8.0), second_until(0)));
        }
        assert_eq!(expected.left(second_until(0)), *Inflow::FACTORS.end());
    }

    #[test]
    fn what_is_read() {
        for (text, epoch, factor) in [
            ("0;factor=1", 0, 1.0),
            ("708412345;factor=2.4", 708_412_345, 2.4),
            ("999999999999999;factor=0.125", 999_999_999_999_999, 0.125),
            ("007;factor=008.000", 7, 8.0),
        ] {
            assert_eq!(Inflow::parse(text.as_bytes()), Inflow::new(epoch, factor), "{text}");
        }
        for text in [
            "",
            ";",
            "7",
            "7;factor",
            "7;factor=",
            ";factor=2",
            "7;factor=2.",
            "7;factor=.5",
            "7;f=2",
            "-7;factor=2",
            "7;factor=-2",
            "7;factor=+2",
            "7;factor=2e0",
            "7;factor=nan",
            "7;factor=inf",
            "7;factor=2;factor=2",
            "7; factor=2",
            " 7;factor=2",
            "7;factor=2 ",
            "7;factor=2, 8;factor=2",
            "7;factor=0",
            "7;factor=0.124",
            "7;factor=8.001",
            "7;factor=999.999",
            "7;factor=2.0001",
            "1234567890123456;factor=2",
            "7;factor=\u{662}",
        ] {
            assert_eq!(Inflow::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Inflow::parse(b"7;factor=\xff"), None);
    }

    #[test]
    fn what_is_no_factor_is_none_and_what_is_beyond_is_the_nearest() {
        assert_eq!(Inflow::new(1, f64::NAN), None);
        for (came, counts) in [(-1.0, 0.125), (0.0, 0.125), (f64::INFINITY, 8.0), (1e300, 8.0)] {
            assert_eq!(Inflow::new(1, came).unwrap().factor(), counts);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch in 0..1_000_000_000_000_000_u64, factor in 0.1..9.0) {
            let inflow = Inflow::new(epoch, factor).unwrap();
            let read = Inflow::parse(inflow.to_string().as_bytes()).unwrap();
            prop_assert_eq!(read.epoch(), epoch);
            prop_assert!((read.factor() - inflow.factor()).abs() <= 5e-4);
        }

        #[test]
        fn any_bytes_are_an_inflow_that_counts_or_none(
            value in r"[0-9]{0,17}(;factor=)?[0-9.;=e+-]{0,9}",
        ) {
            if let Some(inflow) = Inflow::parse(value.as_bytes()) {
                prop_assert!(Inflow::FACTORS.contains(&inflow.factor()), "{}", inflow);
            }
        }
    }
}
