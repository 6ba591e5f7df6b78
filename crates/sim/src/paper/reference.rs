//! Runs of a paper's own simulator, beside ours.
//!
//! The file is a table with a header (CSV without quotes), one run in each row. Rows that differ in
//! their seed alone are one group. Seeds of another program mean nothing here, so a group is
//! compared as a whole: its mean should lie where, judging by our own seeds, the mean of as many
//! further runs would lie ([`prediction`]). That alone proves little: one row against ten seeds
//! with much luck in them agrees with almost anything. So a group counts as reproduced only when
//! that interval is also [`CLOSE`], and otherwise it depends. **When it misleads**: of a hundred
//! intervals five miss, and a few dozen groups are compared.

use core::ops::Range;

use evenkeel_settings::{Mismatch, Place, Problem, Problems};

use crate::paper::stats::{Interval, Range as Claimed, Verdict, prediction};
use crate::report::RunReport;

/// Ours over theirs that counts as the same: a quarter more or less.
pub const CLOSE: Claimed = Claimed { at_least: 0.8, at_most: 1.25 };

/// All rows of the file, grouped.
#[derive(Clone, Debug)]
pub struct Reference {
    /// The groups, in the order of their first rows.
    pub groups: Vec<Group>,
}

/// Runs that differ in their seed alone.
#[derive(Clone, Debug)]
pub struct Group {
    /// The strategy, as the file names it.
    pub strategy: String,
    /// What tells it apart from other groups of the strategy, for people.
    pub label: String,
    /// `path=value` of every parameter.
    pub sets: Vec<String>,
    /// Results of each run.
    pub rows: Vec<Row>,
    /// Our runs of it; none when no policy here stands for the strategy.
    pub jobs: Option<Range<usize>>,
}

/// Results of one run, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Mean latency.
    pub mean_ms: f64,
    /// 99th percentile.
    pub p99_ms: f64,
}

/// One statistic of a group beside ours.
#[derive(Clone, Copy, Debug)]
pub struct Beside {
    /// Theirs, averaged over the rows.
    pub theirs_ms: f64,
    /// Where ours would lie, averaged over as many runs.
    pub ours_ms: Interval,
}

impl Beside {
    /// Whether theirs lies where ours would, and whether that says something.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if !(self.ours_ms.low..=self.ours_ms.high).contains(&self.theirs_ms) {
            return Verdict::NotReproduced;
        }
        match Verdict::of(&self.ratio(), &CLOSE) {
            Verdict::Reproduced => Verdict::Reproduced,
            _ => Verdict::Depends,
        }
    }

    /// Ours over theirs, with the interval within which 1 should lie.
    #[must_use]
    pub fn ratio(&self) -> Interval {
        let Interval { mean, low, high, seeds } = self.ours_ms;
        let by = self.theirs_ms;
        Interval { mean: mean / by, low: low / by, high: high / by, seeds }
    }
}

/// Columns that set a parameter, and the unit they are in.
const COLUMNS: [(&str, &str, &str); 11] = [
    ("servers", "cluster.servers", ""),
    ("server_concurrency", "cluster.concurrency", ""),
    ("mean_service_ms_slow", "cluster.service_mean", "ms"),
    ("rf", "cluster.replication_factor", ""),
    ("nw_one_way_ms", "network.one_way", "ms"),
    ("fluct_interval_T_ms", "fluctuation.interval", "ms"),
    ("range_D", "fluctuation.range", ""),
    ("clients", "workload.clients", ""),
    ("shadow_read_ratio", "workload.read_repair", ""),
    ("utilisation_of_mean_rate", "workload.utilisation", ""),
    ("requests_done", "workload.requests", ""),
];

const OTHER_COLUMNS: [&str; 4] = ["strategy", "arrival_gaps", "mean_ms", "p99_ms"];

impl Reference {
    /// Reads the file's text; `file` is its name, for problems.
    ///
    /// # Errors
    /// When a column is missing, a row has another number of cells than the header, or a result
    /// is no positive number; when there is no row.
    pub fn read(file: &str, text: &str) -> Result<Self, Problems> {
        let mut lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
        let (header, _) = lines.next().ok_or_else(|| {
            wrong(file, 0, "", Mismatch::new("an empty file", "a header and a row for each run"))
        })?;
        let header: Vec<&str> = header.split(',').map(str::trim).collect();
        let columns = COLUMNS.iter().map(|(column, ..)| *column).chain(OTHER_COLUMNS);
        if let Some(missing) = columns.into_iter().find(|column| !header.contains(column)) {
            let what = Mismatch::new("no such column", format!("a column {missing}"));
            return Err(wrong(file, 1, missing, what.with_hint("is it another file?")));
        }
        let mut reference = Self { groups: Vec::new() };
        for (line, number) in lines {
            let cells: Vec<&str> = line.split(',').map(str::trim).collect();
            if cells.len() != header.len() {
                let came = format!("{} cells", cells.len());
                let expected = format!("{} as in the header", header.len());
                return Err(wrong(file, number, "", Mismatch::new(came, expected)));
            }
            reference.add(&Cells { file, number, header: &header, cells: &cells })?;
        }
        if reference.groups.is_empty() {
            return Err(wrong(file, 0, "", Mismatch::new("a header alone", "a row for each run")));
        }
        Ok(reference)
    }

    fn add(&mut self, cells: &Cells<'_>) -> Result<(), Problems> {
        let strategy = cells.text("strategy");
        let mut sets = Vec::new();
        for (column, path, unit) in COLUMNS {
            sets.push(format!("{path}={}{unit}", cells.number(column)?));
        }
        let arrivals = match cells.text("arrival_gaps") {
            "intpoisson" => "ticks",
            "exp" => "poisson",
            other => {
                let what = Mismatch::new(format!("{other:?}"), "intpoisson or exp");
                return Err(wrong(cells.file, cells.number, "arrival_gaps", what));
            }
        };
        sets.push(format!("workload.arrivals={arrivals}"));
        let row = Row { mean_ms: cells.number("mean_ms")?, p99_ms: cells.number("p99_ms")? };
        let same = |group: &&mut Group| group.strategy == strategy && group.sets == sets;
        if let Some(group) = self.groups.iter_mut().find(same) {
            group.rows.push(row);
            return Ok(());
        }
        let interval = cells.number("fluct_interval_T_ms")?;
        let requests = cells.number("requests_done")? / 1e3;
        let label = format!("T = {interval} ms, {requests}k, {arrivals}");
        let strategy = strategy.to_owned();
        self.groups.push(Group { strategy, label, sets, rows: vec![row], jobs: None });
        Ok(())
    }
}

impl Group {
    /// Mean latency and 99th percentile of the group beside those of our runs; `None` without
    /// such runs.
    #[must_use]
    pub fn beside(&self, reports: &[RunReport]) -> Option<[Beside; 2]> {
        let ours = &reports[self.jobs.clone()?];
        let beside = |theirs: fn(&Row) -> f64, ours_of: fn(&RunReport) -> f64| {
            let values: Vec<f64> = ours.iter().map(ours_of).collect();
            let logarithms: f64 = self.rows.iter().map(|row| theirs(row).ln()).sum();
            let theirs_ms = (logarithms / self.rows.len() as f64).exp();
            Some(Beside { theirs_ms, ours_ms: prediction(&values, self.rows.len())? })
        };
        Some([
            beside(|row| row.mean_ms, |report| report.mean_ms)?,
            beside(|row| row.p99_ms, |report| report.p99_ms)?,
        ])
    }
}

/// One row as text.
struct Cells<'a> {
    file: &'a str,
    number: u32,
    header: &'a [&'a str],
    cells: &'a [&'a str],
}

impl<'a> Cells<'a> {
    fn text(&self, column: &str) -> &'a str {
        let place = self.header.iter().position(|known| *known == column);
        self.cells[place.expect("the header was checked for every column")]
    }

    fn number(&self, column: &str) -> Result<f64, Problems> {
        let text = self.text(column);
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
            _ => {
                let what = Mismatch::new(format!("{text:?}"), "a number above 0");
                Err(wrong(self.file, self.number, column, what))
            }
        }
    }
}

fn wrong(file: &str, line: u32, column: &str, what: Mismatch) -> Problems {
    let at = Place::File { file: file.into(), line, column: u32::from(line > 0) };
    Problem { at, path: column.to_owned(), what }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "strategy,servers,server_concurrency,mean_service_ms_slow,rf,\
                          nw_one_way_ms,fluct_interval_T_ms,range_D,clients,shadow_read_ratio,\
                          utilisation_of_mean_rate,requests_done,arrival_gaps,seed,mean_ms,p99_ms";

    fn row(strategy: &str, gaps: &str, seed: u32, p99: &str) -> String {
        format!("\n{strategy},50,4,4.0,3,0.25,100.0,3.0,150,0.1,0.7,60000,{gaps},{seed},9,{p99}")
    }

    #[test]
    fn rows_that_differ_in_their_seed_alone_are_a_group() {
        let text = [
            HEADER.to_owned(),
            row("LOR", "exp", 1, "80"),
            row("LOR", "intpoisson", 1, "90"),
            row("LOR", "exp", 2, "125"),
        ]
        .concat();
        let reference = Reference::read("x.csv", &text).unwrap();
        let rows: Vec<_> = reference.groups.iter().map(|group| group.rows.len()).collect();
        assert_eq!(rows, [2, 1]);
        let first = &reference.groups[0];
        assert!(first.sets.contains(&"network.one_way=0.25ms".to_owned()), "{:?}", first.sets);
        assert!(first.sets.contains(&"workload.arrivals=poisson".to_owned()));
        assert_eq!(first.label, "T = 100 ms, 60k, poisson");
    }

    #[test]
    fn a_file_that_is_something_else_is_one_clear_error() {
        let told = |text: &str| Reference::read("x.csv", text).unwrap_err().to_string();
        assert!(told("").contains("a header and a row for each run"), "{}", told(""));
        assert!(told("a,b\n1,2").contains("a column servers; is it another file?"));
        assert!(told(HEADER).contains("a header alone"), "{}", told(HEADER));
        let text = format!("{HEADER}\nLOR,50");
        assert!(told(&text).contains("x.csv:2:1") && told(&text).contains("2 cells"));
        let text = [HEADER.to_owned(), row("LOR", "exp", 1, "-4")].concat();
        assert!(told(&text).contains("\"-4\"") && told(&text).contains("p99_ms"));
        let text = [HEADER.to_owned(), row("LOR", "weekly", 1, "4")].concat();
        assert!(told(&text).contains("intpoisson or exp"));
    }

    #[test]
    fn theirs_should_lie_where_ours_would() {
        let beside = |low, theirs_ms, high| {
            let ours_ms = Interval { mean: 100.0, low, high, seeds: 10 };
            Beside { theirs_ms, ours_ms }.verdict()
        };
        assert_eq!(beside(90.0, 100.0, 110.0), Verdict::Reproduced);
        assert_eq!(beside(90.0, 89.0, 110.0), Verdict::NotReproduced);
        assert_eq!(beside(90.0, 111.0, 110.0), Verdict::NotReproduced);
        assert_eq!(beside(50.0, 100.0, 200.0), Verdict::Depends, "agreement by vagueness");
        let ours_ms = Interval { mean: 100.0, low: 80.0, high: 125.0, seeds: 10 };
        let ratio = Beside { theirs_ms: 50.0, ours_ms }.ratio();
        assert_eq!((ratio.mean, ratio.low, ratio.high), (2.0, 1.6, 2.5));
    }
}
