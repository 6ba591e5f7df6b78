//! The rows of a trace file: which column is which, and what a field means.

use std::time::Duration;

use time::{Date, Month};

use super::trace_options::{TraceOptions, TraceStart, Values};

/// What came and what was expected; the reader of the file adds where.
type Problem = (String, String);

const VALUE_HEADERS: [&str; 4] = ["rate", "rps", "count", "requests"];
const COUNT_HEADERS: [&str; 2] = ["count", "requests"];

/// 1970-01-01.
const JULIAN_DAY_OF_1970: i32 = 2_440_588;

/// One row that is used: when, and the value of the chosen column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) at_s: f64,
    pub(super) value: f64,
}

/// Reads rows line by line and keeps the part that is used.
pub(super) struct Rows<'a> {
    options: &'a TraceOptions,
    columns: Option<Columns>,
    pub(super) kept: Vec<Row>,
    /// Rows of numbers seen, used or not.
    pub(super) seen: u64,
}

/// Where the fields of a row stand.
struct Columns {
    value: usize,
    time: Option<usize>,
    /// The header of the value column, in lower case; empty without a header.
    header: String,
}

impl<'a> Rows<'a> {
    pub(super) fn new(options: &'a TraceOptions) -> Self {
        Self { options, columns: None, kept: Vec::new(), seen: 0 }
    }

    pub(super) fn wants_more(&self) -> bool {
        self.options.rows.is_none_or(|rows| self.kept.len() < rows)
    }

    /// Takes one line of the file.
    pub(super) fn line(&mut self, line: &str) -> Result<(), Problem> {
        let line = line.trim_start_matches('\u{feff}').trim();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        let Some(columns) = &self.columns else {
            return self.first_line(line);
        };
        let row = columns.row(line, self.seen, self.options.step)?;
        self.keep(row)
    }

    /// What the values are, going by the header of their column.
    pub(super) fn values(&self) -> Values {
        let header = self.columns.as_ref().map_or("", |columns| columns.header.as_str());
        if COUNT_HEADERS.contains(&header) { Values::Counts } else { Values::Rates }
    }

    /// How long a row lasts, in seconds.
    pub(super) fn step_s(&self, given: Option<Duration>) -> f64 {
        if let Some(step) = given {
            return step.as_secs_f64();
        }
        let smallest =
            self.kept.windows(2).map(|pair| pair[1].at_s - pair[0].at_s).fold(f64::MAX, f64::min);
        if smallest == f64::MAX { 1.0 } else { smallest }
    }

    fn first_line(&mut self, line: &str) -> Result<(), Problem> {
        if self.options.step.is_some_and(|step| step.is_zero()) {
            return Err(("a step of 0s".into(), "a step above zero".into()));
        }
        let fields = fields(line).collect::<Vec<_>>();
        let is_header = fields.iter().all(|field| moment_s(field).is_none());
        let columns = Columns::find(&fields, is_header, self.options.column.as_deref())?;
        self.columns = Some(columns);
        if is_header { Ok(()) } else { self.line(line) }
    }

    fn keep(&mut self, row: Row) -> Result<(), Problem> {
        let number = self.seen;
        self.seen += 1;
        let wanted = match &self.options.start {
            TraceStart::Row(first) => number >= *first,
            TraceStart::Time(text) => row.at_s >= start_s(text)?,
        };
        if !wanted {
            return Ok(());
        }
        if let Some(before) = self.kept.last().filter(|before| row.at_s <= before.at_s) {
            let came = format!("a time {} s before the row above", before.at_s - row.at_s);
            return Err((came, "times that increase from row to row".into()));
        }
        self.kept.push(row);
        Ok(())
    }
}

impl Columns {
    fn find(fields: &[&str], is_header: bool, wanted: Option<&str>) -> Result<Self, Problem> {
        let names = fields.iter().map(|field| field.to_lowercase()).collect::<Vec<_>>();
        let position = |name: &str| names.iter().position(|other| other == name);
        let value = match wanted {
            Some(name) if is_header => position(&name.to_lowercase()),
            Some(_) => None,
            None if is_header => VALUE_HEADERS
                .iter()
                .find_map(|name| position(name))
                .or_else(|| (fields.len() <= 2).then(|| fields.len() - 1)),
            None => (fields.len() <= 2).then(|| fields.len() - 1),
        };
        let Some(value) = value else {
            let expected = match wanted {
                Some(name) => format!("a header with the column `{name}`"),
                None => "at most two columns, or a column chosen by its header".into(),
            };
            return Err((format!("`{}`", excerpt(&fields.join(","))), expected));
        };
        let header = if is_header { names[value].clone() } else { String::new() };
        Ok(Self { value, time: (value > 0).then_some(0), header })
    }

    fn row(&self, line: &str, number: u64, step: Option<Duration>) -> Result<Row, Problem> {
        let field = |index| {
            fields(line).nth(index).ok_or_else(|| {
                let expected = format!("at least {} comma-separated fields", index + 1);
                (format!("`{}`", excerpt(line)), expected)
            })
        };
        let text = field(self.value)?;
        let value = text.parse::<f64>().ok().filter(|value| *value >= 0.0 && value.is_finite());
        let value = value.ok_or_else(|| {
            (format!("`{}`", excerpt(text)), "a number of requests, 0 or more".to_owned())
        })?;
        let at_s = match self.time {
            None => number as f64 * step.map_or(1.0, |step| step.as_secs_f64()),
            Some(time) => {
                let text = field(time)?;
                moment_s(text).ok_or_else(|| {
                    let expected = "seconds or a time such as 1998-06-13 10:00:00";
                    (format!("`{}`", excerpt(text)), expected.to_owned())
                })?
            }
        };
        Ok(Row { at_s, value })
    }
}

/// The moment of [`TraceStart::Time`] in seconds.
fn start_s(text: &str) -> Result<f64, Problem> {
    moment_s(text).ok_or_else(|| {
        let expected = "seconds or a time such as 1998-06-13 10:00:00";
        (format!("start time `{text}`"), expected.to_owned())
    })
}

/// Seconds, from a number or from a date and time (without zone, `Z` allowed) since 1970.
fn moment_s(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse::<f64>() {
        return seconds.is_finite().then_some(seconds);
    }
    let (date, clock) = text.trim_end_matches('Z').split_once([' ', 'T']).unwrap_or((text, "0:0"));
    let mut date = date.splitn(3, '-').map(|part| part.parse::<u32>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut clock = clock.splitn(3, ':');
    let hour = clock.next()?.parse::<u32>().ok().filter(|hour| *hour < 24)?;
    let minute = clock.next()?.parse::<u32>().ok().filter(|minute| *minute < 60)?;
    let second = match clock.next() {
        None => 0.0,
        Some(text) => text.parse::<f64>().ok().filter(|second| (0.0..61.0).contains(second))?,
    };
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(i32::try_from(year).ok()?, month, u8::try_from(day).ok()?);
    let days = date.ok().filter(|date| date.year() >= 1970)?.to_julian_day() - JULIAN_DAY_OF_1970;
    Some(f64::from(days) * 86_400.0 + f64::from(hour * 3_600 + minute * 60) + second)
}

fn fields(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(|field| field.trim().trim_matches('"'))
}

/// Enough of a text to recognise it.
fn excerpt(text: &str) -> String {
    let mut short = text.chars().take(60).collect::<String>();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_agree_with_known_epochs() {
        // `date -u -d '1998-06-13 10:00:00' +%s` and friends.
        assert_eq!(moment_s("1998-06-13 10:00:00"), Some(897_732_000.0));
        assert_eq!(moment_s("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(moment_s("2000-02-29 00:01"), Some(951_782_460.0));
        assert_eq!(moment_s("2024-03-01"), Some(1_709_251_200.0));
        assert_eq!(moment_s("12.5"), Some(12.5));
    }

    #[test]
    fn moments_that_do_not_exist_are_refused() {
        for text in ["1999-02-29", "1998-13-01", "1998-06-00", "period", "", "NaN", "1-1-1 25:00"] {
            assert_eq!(moment_s(text), None, "{text}");
        }
    }
}
