//! Runs of other programs, beside ours.
//!
//! A file of them is a table with a header (comma-separated values). Seeds of another program mean
//! nothing here, so a group of their runs is compared as a whole with ours, in one of two ways
//! ([`Theirs`]). Agreement by vagueness does not count: a group is reproduced only when the whole
//! interval of the comparison is close to theirs, and otherwise it depends. **When it misleads**:
//! of a hundred intervals five miss, and a few dozen groups are compared.

pub mod absim;
pub mod fast_model;

use core::ops::Range;

use evenkeel_settings::{Mismatch, Place, Problem, Problems};

use crate::measure::{Asked, Measure};
use crate::stats::{self, Interval, Range as Claimed, Verdict, prediction};
use crate::welch::{StandardError, quantile_975};
use evenkeel_sim::report::RunReport;

/// Ours over theirs that counts as the same latency: a quarter more or less.
pub const CLOSE: Claimed = Claimed { at_least: 0.8, at_most: 1.25 };

/// Ours less theirs that counts as the same share: one and a half points.
pub const CLOSE_SHARE: Claimed = Claimed { at_least: -0.015, at_most: 0.015 };

/// Where a paper's reference runs are, and how they are read.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The file's name.
    pub file: &'static str,
    /// Reads it: its name, for problems, and its text.
    pub read: fn(&str, &str) -> Result<Reference, Problems>,
}

/// All rows of a file, grouped.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The groups, in the order of their first rows.
    pub groups: Vec<Group>,
}

/// Runs of another program that differ in their seed alone.
#[derive(Clone, Debug)]
pub struct Group {
    /// The strategy, as the file names it.
    pub strategy: String,
    /// The strategy with its variant, for people.
    pub name: String,
    /// The setting, for people.
    pub label: String,
    /// The scenario that mimics theirs.
    pub scenario: &'static str,
    /// `path=value` of every parameter.
    pub sets: Vec<String>,
    /// What was measured.
    pub statistics: Vec<Statistic>,
    /// The policy that stands for the strategy; `None` when there is none here.
    pub policy: Option<String>,
    /// Our runs of it, once they are planned.
    pub jobs: Option<Range<usize>>,
}

/// One statistic of their runs.
#[derive(Clone, Debug)]
pub struct Statistic {
    /// The measure.
    pub measure: Measure,
    /// What came out.
    pub theirs: Theirs,
}

/// What came out of another program's runs, and with it how it is compared.
#[derive(Clone, Debug)]
pub enum Theirs {
    /// One value for each run, positive. Their geometric mean should lie where that of as many
    /// further runs of ours would, and that interval should be [`CLOSE`].
    Runs(Vec<f64>),
    /// Mean and standard deviation of a share over some runs. The difference of the means, with
    /// the luck of both sides, should be [`CLOSE_SHARE`].
    Summary {
        /// The mean.
        mean: f64,
        /// The standard deviation over the runs.
        deviation: f64,
        /// How many runs.
        runs: usize,
    },
}

/// One statistic of a group beside ours.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// The measure.
    pub measure: Measure,
    /// Theirs, averaged.
    pub theirs: f64,
    /// Ours, averaged, with the interval that the comparison rests on.
    pub ours: Interval,
    /// Ours over theirs, or less theirs.
    pub result: Interval,
    /// What counts as the same.
    pub close: Claimed,
    /// Whether it is the same.
    pub verdict: Verdict,
}

impl Group {
    /// The group's statistics beside those of our runs; nothing without such runs.
    pub fn beside(&self, reports: &[RunReport]) -> Vec<Beside> {
        let Some(jobs) = self.jobs.clone() else { return Vec::new() };
        let runs = &reports[jobs];
        self.statistics.iter().filter_map(|statistic| statistic.beside(runs)).collect()
    }
}

impl Statistic {
    fn beside(&self, runs: &[RunReport]) -> Option<Beside> {
        let asked = Asked::of(self.measure);
        let ours = runs.iter().map(|run| asked.of_run(run, core::time::Duration::ZERO));
        let ours: Vec<f64> = ours.collect::<Option<_>>()?;
        match &self.theirs {
            Theirs::Runs(theirs) => self.as_ratio(&ours, theirs),
            Theirs::Summary { mean, deviation, runs } => {
                self.as_difference(&ours, *mean, StandardError::of(*deviation, *runs))
            }
        }
    }

    fn as_ratio(&self, ours: &[f64], theirs: &[f64]) -> Option<Beside> {
        let ours = prediction(ours, theirs.len())?;
        let logarithms: f64 = theirs.iter().map(|value| value.ln()).sum();
        let theirs = (logarithms / theirs.len() as f64).exp();
        let Interval { mean, low, high, seeds } = ours;
        let result =
            Interval { mean: mean / theirs, low: low / theirs, high: high / theirs, seeds };
        let is_compatible = (ours.low..=ours.high).contains(&theirs);
        let verdict = match Verdict::of(&result, &CLOSE) {
            _ if !is_compatible => Verdict::NotReproduced,
            Verdict::Reproduced => Verdict::Reproduced,
            _ => Verdict::Depends,
        };
        let measure = self.measure;
        Some(Beside { measure, theirs, ours, result, close: CLOSE, verdict })
    }

    fn as_difference(&self, ours: &[f64], theirs: f64, error: StandardError) -> Option<Beside> {
        let (mean, deviation) = stats::moments(ours)?;
        let error = error.plus(StandardError::of(deviation, ours.len()));
        let half = if error.variance > 0.0 {
            quantile_975(error.degrees_of_freedom()) * error.variance.sqrt()
        } else {
            0.0
        };
        let around =
            |mean: f64| Interval { mean, low: mean - half, high: mean + half, seeds: ours.len() };
        let (ours, result) = (around(mean), around(mean - theirs));
        let (measure, close) = (self.measure, CLOSE_SHARE);
        let verdict = Verdict::of(&result, &close);
        Some(Beside { measure, theirs, ours, result, close, verdict })
    }
}

/// A file's header and rows, quotes understood.
struct Rows<'a> {
    file: &'a str,
    header: csv::StringRecord,
    rows: Vec<csv::StringRecord>,
}

impl<'a> Rows<'a> {
    /// Takes a file apart that must have these columns, and a row.
    fn read<'c>(
        file: &'a str,
        text: &str,
        columns: impl IntoIterator<Item = &'c str>,
    ) -> Result<Self, Problems> {
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| broken(file, &error))?.clone();
        if header.is_empty() {
            let what = Mismatch::new("an empty file", "a header and a row for each run");
            return Err(wrong(file, 0, "", what));
        }
        let known: Vec<&str> = header.iter().collect();
        if let Some(missing) = columns.into_iter().find(|column| !known.contains(column)) {
            let what = Mismatch::new("no such column", format!("a column {missing}"));
            return Err(wrong(file, 1, missing, what.with_hint("is it another file?")));
        }
        let rows = reader.into_records().collect::<Result<Vec<_>, _>>();
        let rows = rows.map_err(|error| broken(file, &error))?;
        if rows.is_empty() {
            return Err(wrong(file, 0, "", Mismatch::new("a header alone", "a row for each run")));
        }
        Ok(Self { file, header, rows })
    }

    fn iter(&self) -> impl Iterator<Item = Cells<'_>> {
        let (file, header) = (self.file, &self.header);
        self.rows.iter().map(move |row| Cells { file, header, row })
    }
}

/// One row.
#[derive(Clone, Copy)]
struct Cells<'a> {
    file: &'a str,
    header: &'a csv::StringRecord,
    row: &'a csv::StringRecord,
}

impl<'a> Cells<'a> {
    fn text(&self, column: &str) -> &'a str {
        let place = self.header.iter().position(|known| known == column);
        &self.row[place.expect("the header was checked for every column")]
    }

    /// A number that is not negative.
    fn number(&self, column: &str) -> Result<f64, Problems> {
        number(self.text(column)).ok_or_else(|| self.wrong(column, "a number of at least 0"))
    }

    fn positive(&self, column: &str) -> Result<f64, Problems> {
        let number = number(self.text(column)).filter(|number| *number > 0.0);
        number.ok_or_else(|| self.wrong(column, "a number above 0"))
    }

    fn wrong(&self, column: &str, expected: &str) -> Problems {
        let line = self.row.position().map_or(0, |position| position.line() as u32);
        let came = format!("{:?}", self.text(column));
        wrong(self.file, line, column, Mismatch::new(came, expected))
    }
}

fn number(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite() && *number >= 0.0)
}

fn broken(file: &str, error: &csv::Error) -> Problems {
    let line = error.position().map_or(0, |position| position.line() as u32);
    let what = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Mismatch::new(format!("{len} cells"), format!("{expected_len} as in the header"))
        }
        other => Mismatch::new(format!("{other:?}"), "comma-separated values"),
    };
    wrong(file, line, "", what)
}

fn wrong(file: &str, line: u32, column: &str, what: Mismatch) -> Problems {
    let at = Place::File { file: file.into(), line, column: u32::from(line > 0) };
    Problem { at, path: column.to_owned(), what }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::any_run;

    fn latency(theirs: &[f64]) -> Statistic {
        Statistic { measure: Measure::of("p99_ms"), theirs: Theirs::Runs(theirs.to_vec()) }
    }

    fn ours(values: [f64; 4]) -> Vec<RunReport> {
        let run = |p99_ms| RunReport { p99_ms, optional_ratio: p99_ms, ..any_run() };
        values.map(run).to_vec()
    }

    #[test]
    fn theirs_should_lie_where_ours_would() {
        let steady = ours([99.0, 100.0, 101.0, 100.0]);
        let verdict = |runs: &[RunReport], theirs| latency(&[theirs]).beside(runs).unwrap().verdict;
        assert_eq!(verdict(&steady, 100.0), Verdict::Reproduced);
        assert_eq!(verdict(&steady, 90.0), Verdict::NotReproduced);
        assert_eq!(verdict(&steady, 111.0), Verdict::NotReproduced);
        let vague = ours([50.0, 200.0, 80.0, 120.0]);
        assert_eq!(verdict(&vague, 100.0), Verdict::Depends, "agreement by vagueness");
        let beside = latency(&[50.0, 50.0]).beside(&steady).unwrap();
        assert!((beside.result.mean - beside.ours.mean / 50.0).abs() < 1e-12);
    }

    #[test]
    fn shares_are_compared_in_points_with_the_luck_of_both() {
        let runs = ours([0.80, 0.81, 0.79, 0.80]);
        let beside = |mean, deviation| {
            let theirs = Theirs::Summary { mean, deviation, runs: 3 };
            Statistic { measure: Measure::of("optional_ratio"), theirs }.beside(&runs).unwrap()
        };
        assert_eq!(beside(0.804, 0.0).verdict, Verdict::Depends, "ours alone vary by 1.3 points");
        let steady = ours([0.800, 0.801, 0.799, 0.800]);
        let theirs = Theirs::Summary { mean: 0.805, deviation: 0.001, runs: 3 };
        let reported =
            Statistic { measure: Measure::of("optional_ratio"), theirs }.beside(&steady).unwrap();
        assert!((reported.result.mean + 0.005).abs() < 1e-12, "{reported:?}");
        assert_eq!(reported.verdict, Verdict::Reproduced);
        assert_eq!(beside(0.9, 0.01).verdict, Verdict::NotReproduced);
        assert_eq!(beside(0.81, 0.05).verdict, Verdict::Depends);
    }
}
