//! When moves may begin: a time of day in UTC, on some days of the week.

use std::time::{Duration, SystemTime};

use super::StepError;

const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const DAY_S: u64 = 86_400;

/// A maintenance window. One that ends before it begins goes over midnight and belongs to the day
/// on which it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Minutes of the day, the second one excluded.
    from: u64,
    to: u64,
    /// From Monday.
    days: [bool; 7],
}

impl Window {
    /// Reads `02:00-04:00` and days such as `sat`; no days are all days.
    ///
    /// # Errors
    /// With what came and what was expected.
    pub fn parse(hours: &str, days: &[impl AsRef<str>]) -> Result<Self, StepError> {
        let wrong = || StepError::Hours(hours.to_owned());
        let (from, to) = hours.split_once('-').ok_or_else(wrong)?;
        let from = minutes(from.trim()).ok_or_else(wrong)?;
        let to = minutes(to.trim()).ok_or_else(wrong)?;
        if from == to {
            return Err(wrong());
        }
        let mut named = [days.is_empty(); 7];
        for day in days {
            let day = day.as_ref();
            let place = DAYS.iter().position(|name| day.eq_ignore_ascii_case(name));
            named[place.ok_or_else(|| StepError::Day { name: day.to_owned(), known: &DAYS })?] =
                true;
        }
        Ok(Self { from, to, days: named })
    }

    /// Whether it is open at a moment; times before 1970 count as 1970.
    pub fn is_open(&self, at: SystemTime) -> bool {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        let (day, minute) = (since / DAY_S, since % DAY_S / 60);
        // 1 January 1970 was a Thursday.
        let is_named = |day: u64| self.days[usize::try_from((day + 3) % 7).unwrap_or(0)];
        if self.from < self.to {
            return is_named(day) && (self.from..self.to).contains(&minute);
        }
        is_named(day) && minute >= self.from || is_named(day + 6) && minute < self.to
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to) = (self.from, self.to);
        write!(f, "{:02}:{:02}-{:02}:{:02} UTC", from / 60, from % 60, to / 60, to % 60)?;
        let named = DAYS.iter().zip(self.days).filter(|(_, is_in)| *is_in).map(|(name, _)| *name);
        if self.days.contains(&false) {
            write!(f, " on {}", named.collect::<Vec<_>>().join(", "))?;
        }
        Ok(())
    }
}

fn minutes(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let read = |text: &str, most: u64| {
        let is_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number: &u64| is_two && *number <= most)
    };
    Some(read(hours, 23)? * 60 + read(minutes, 59)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 0] = [];

    /// Saturday, 21 November 2026, 00:00 UTC.
    const SATURDAY_S: u64 = 1_795_219_200;

    fn at(day: u64, hour: u64, minute: u64) -> SystemTime {
        let seconds = SATURDAY_S + day * DAY_S + hour * 3_600 + minute * 60;
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn it_is_open_from_its_first_minute_to_before_its_last() {
        let window = Window::parse("02:00-04:00", &ALL).unwrap();
        let open = [(1, 59), (2, 0), (3, 59), (4, 0)].map(|(h, m)| window.is_open(at(0, h, m)));
        assert_eq!(open, [false, true, true, false]);
    }

    #[test]
    fn over_midnight_it_belongs_to_the_day_on_which_it_begins() {
        let window = Window::parse("22:30-01:00", &["Sat"]).unwrap();
        let open = [(0, 0, 30), (0, 22, 29), (0, 22, 30), (1, 0, 59), (1, 1, 0), (1, 23, 0)]
            .map(|(day, hour, minute)| window.is_open(at(day, hour, minute)));
        assert_eq!(open, [false, false, true, true, false, false]);
        assert_eq!(window.to_string(), "22:30-01:00 UTC on sat");
    }

    #[test]
    fn what_is_no_window_is_refused() {
        for hours in ["2-4", "02:00", "02:00-24:00", "02:60-03:00", "02:00-02:00", "+2:00-04:00"] {
            let error = Window::parse(hours, &ALL).unwrap_err().to_string();
            assert!(error.contains(hours) && error.contains("was expected"), "{error}");
        }
        let error = Window::parse("02:00-04:00", &["funday"]).unwrap_err().to_string();
        assert!(error.contains("\"funday\"") && error.contains("mon, tue"), "{error}");
    }
}
