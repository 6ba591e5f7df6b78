//! Tables in CSV: round trips, counts, failure domains.

use std::sync::Arc;

use csv::{ReaderBuilder, StringRecord, Trim};
use evenkeel_planner::model::{Counts, Operation};

use super::{COUNT_MAX, INTERVALS_MAX, PLACES_MAX, RTT_MS_MAX, whole};
use crate::problem::{Mismatch, Place, Problem, quoted};

/// Round trips between places with names.
#[derive(Clone, PartialEq, Debug)]
pub struct Matrix {
    /// Rows: where they begin.
    pub from: Vec<String>,
    /// Columns: where they lead.
    pub to: Vec<String>,
    /// In milliseconds, `[from][to]`.
    pub ms: Vec<Vec<f64>>,
}

/// Records of a table with their lines.
pub(super) struct Rows {
    pub(super) file: Arc<str>,
    rows: Vec<(u32, StringRecord)>,
}

impl Rows {
    pub(super) fn read(text: &str, file: &str) -> Result<Self, Problem> {
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .comment(Some(b'#'))
            .from_reader(text.strip_prefix('\u{feff}').unwrap_or(text).as_bytes());
        let mut rows = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| {
                whole(file, Mismatch::new(format!("no CSV ({error})"), "CSV in UTF-8"))
            })?;
            let line = record.position().map_or(0, csv::Position::line);
            rows.push((u32::try_from(line).unwrap_or(u32::MAX), record));
        }
        if rows.len() < 2 {
            let came = format!("{} rows", rows.len());
            return Err(whole(file, Mismatch::new(came, "a header and at least one row")));
        }
        Ok(Self { file: file.into(), rows })
    }

    pub(super) fn header(&self) -> &StringRecord {
        &self.rows[0].1
    }

    pub(super) fn body(&self) -> impl Iterator<Item = (u32, &StringRecord)> {
        self.rows[1..].iter().map(|(line, record)| (*line, record))
    }

    pub(super) fn problem(&self, line: u32, column: usize, what: Mismatch) -> Problem {
        let column = u32::try_from(column + 1).unwrap_or(u32::MAX);
        let at = Place::File { file: Arc::clone(&self.file), line, column };
        Problem { at, path: String::new(), what }
    }

    /// The places of columns with one of these names each.
    pub(super) fn columns<const N: usize>(&self, names: [&[&str]; N]) -> Option<[usize; N]> {
        let place = |names: &[&str]| self.header().iter().position(|name| names.contains(&name));
        let places: Vec<usize> = names.into_iter().map_while(place).collect();
        places.try_into().ok()
    }

    pub(super) fn field<'a>(
        &self,
        line: u32,
        record: &'a StringRecord,
        column: usize,
    ) -> Result<&'a str, Problem> {
        match record.get(column) {
            Some(text) if !text.is_empty() => Ok(text),
            _ => {
                let name = quoted(self.header().get(column).unwrap_or(""));
                let what = Mismatch::new("nothing", format!("a value for {name}"));
                Err(self.problem(line, column, what.with_hint("is the row cut short?")))
            }
        }
    }

    pub(super) fn number(
        &self,
        line: u32,
        column: usize,
        text: &str,
        expected: &str,
        most: f64,
    ) -> Result<f64, Problem> {
        match text.parse::<f64>() {
            Ok(value) if (0.0..=most).contains(&value) => Ok(value),
            parsed => {
                let hint = match parsed {
                    Ok(value) if value < 0.0 => "a measurement that failed?",
                    Ok(_) => "a different unit?",
                    Err(_) => "a decimal comma, a unit, or a gap in the measurements?",
                };
                let what = Mismatch::new(quoted(text), expected).with_hint(hint);
                Err(self.problem(line, column, what))
            }
        }
    }
}

pub(super) const MILLISECONDS: &str = "a round trip in milliseconds, 0 to 600000";

/// Parses round trips, wide or long.
///
/// Wide: the header is any word and the names of columns, each row a name and its round trips.
/// Long:
/// columns `from`, `to` and one of `avg_ms`, `rtt_ms`, `avg`, `rtt`; others are not looked at.
///
/// # Errors
/// The first thing wrong: a short row, a missing pair, what is no round trip, a name twice.
pub fn parse_matrix(text: &str, file: &str) -> Result<Matrix, Problem> {
    let rows = Rows::read(text, file)?;
    match rows.columns([&["from"], &["to"], &["avg_ms", "rtt_ms", "avg", "rtt"]]) {
        Some(columns) => long_matrix(&rows, columns),
        None => wide_matrix(&rows),
    }
}

fn wide_matrix(rows: &Rows) -> Result<Matrix, Problem> {
    let header_line = rows.rows[0].0;
    let mut to: Vec<String> = Vec::new();
    for (column, name) in rows.header().iter().enumerate().skip(1) {
        enter(rows, &mut to, name, header_line, column)?;
    }
    let (mut from, mut ms) = (Vec::new(), Vec::new());
    for (line, record) in rows.body() {
        enter(rows, &mut from, record.get(0).unwrap_or(""), line, 0)?;
        if record.len() != to.len() + 1 {
            let came = format!("{} round trips from {}", record.len() - 1, quoted(&record[0]));
            let what = Mismatch::new(came, format!("{}, as many as the header has", to.len()));
            let hint = "is the matrix cut off, or a name with a comma not in quotes?";
            return Err(rows.problem(line, record.len().min(to.len() + 1), what.with_hint(hint)));
        }
        let mut row = Vec::with_capacity(to.len());
        for (column, text) in record.iter().enumerate().skip(1) {
            let expected = format!(
                "{MILLISECONDS}, from {} to {}",
                quoted(&record[0]),
                quoted(&to[column - 1])
            );
            row.push(rows.number(line, column, text, &expected, RTT_MS_MAX)?);
        }
        ms.push(row);
    }
    Ok(Matrix { from, to, ms })
}

fn long_matrix(rows: &Rows, columns: [usize; 3]) -> Result<Matrix, Problem> {
    let (mut from, mut to) = (Vec::new(), Vec::new());
    let mut cells = std::collections::BTreeMap::new();
    for (line, record) in rows.body() {
        let place = |column: usize, names: &mut Vec<String>| {
            let name = rows.field(line, record, column)?;
            match names.iter().position(|known| known == name) {
                Some(place) => Ok(place),
                None => enter(rows, names, name, line, column).map(|()| names.len() - 1),
            }
        };
        let pair = (place(columns[0], &mut from)?, place(columns[1], &mut to)?);
        let text = rows.field(line, record, columns[2])?;
        let ms = rows.number(line, columns[2], text, MILLISECONDS, RTT_MS_MAX)?;
        if cells.insert(pair, ms).is_some() {
            let came = format!("{} to {} again", quoted(&from[pair.0]), quoted(&to[pair.1]));
            return Err(rows.problem(line, columns[0], Mismatch::new(came, "each pair once")));
        }
    }
    let mut ms = vec![vec![0.0; to.len()]; from.len()];
    for (i, row) in ms.iter_mut().enumerate() {
        for (j, cell) in row.iter_mut().enumerate() {
            *cell = cells.get(&(i, j)).copied().ok_or_else(|| {
                let came = format!("no row from {} to {}", quoted(&from[i]), quoted(&to[j]));
                let what = Mismatch::new(came, "every pair once, a place with itself too");
                whole(&rows.file, what.with_hint("was this pair never measured?"))
            })?;
        }
    }
    Ok(Matrix { from, to, ms })
}

/// Adds a name that is new.
fn enter(
    rows: &Rows,
    names: &mut Vec<String>,
    name: &str,
    line: u32,
    column: usize,
) -> Result<(), Problem> {
    if name.is_empty() || names.len() == PLACES_MAX {
        let came = if name.is_empty() { "an empty name" } else { "one more name" };
        let expected = format!("a name, at most {PLACES_MAX} of them");
        return Err(rows.problem(line, column, Mismatch::new(came, expected)));
    }
    if names.iter().any(|known| known == name) {
        let what = Mismatch::new(format!("{} again", quoted(name)), "each name once");
        return Err(rows.problem(line, column, what));
    }
    names.push(name.to_owned());
    Ok(())
}

/// Parses operations by interval and client, in the order in which intervals first appear.
///
/// Long: columns `interval`, `client`, `operation`, `count`. Wide: `interval`, `client` and a
/// column
/// for some of the operations, such as `weak-read`. What is not said is 0; what is said twice adds
/// up.
///
/// # Errors
/// The first thing wrong: an unknown client or operation, a negative count, too many intervals.
pub fn parse_counts(text: &str, file: &str, clients: &[String]) -> Result<Vec<Counts>, Problem> {
    let intervals = parse_intervals(text, file, clients)?;
    Ok(intervals.into_iter().map(|(_, counts)| counts).collect())
}

/// As [`parse_counts`], each interval with its name.
///
/// # Errors
/// As [`parse_counts`].
pub fn parse_intervals(
    text: &str,
    file: &str,
    clients: &[String],
) -> Result<Vec<(String, Counts)>, Problem> {
    let rows = Rows::read(text, file)?;
    let header_line = rows.rows[0].0;
    let wrong_header = || {
        let came = quoted(&rows.header().iter().collect::<Vec<_>>().join(","));
        let expected = "columns interval,client,operation,count or interval,client and some of \
                        weak-read,bounded-read,strong-read,single-group,multi-group";
        rows.problem(header_line, 0, Mismatch::new(came, expected))
    };
    let [interval, client] = rows.columns([&["interval"], &["client"]]).ok_or_else(wrong_header)?;
    let long = rows.columns([&["operation"], &["count"]]);
    let wide: Vec<(usize, Operation)> = (rows.header().iter().enumerate())
        .filter_map(|(column, name)| Some((column, Operation::named(name)?)))
        .collect();
    if long.is_none() && wide.is_empty() {
        return Err(wrong_header());
    }
    let mut names: Vec<String> = Vec::new();
    let mut sums: Vec<Vec<[f64; 5]>> = Vec::new();
    for (line, record) in rows.body() {
        let name = rows.field(line, record, interval)?;
        let place = match names.iter().rposition(|known| known == name) {
            Some(place) => place,
            None if names.len() < INTERVALS_MAX => {
                names.push(name.to_owned());
                sums.push(vec![[0.0; 5]; clients.len()]);
                names.len() - 1
            }
            None => {
                let what = Mismatch::new("one more interval", format!("at most {INTERVALS_MAX}"));
                return Err(rows.problem(line, interval, what));
            }
        };
        let known: Vec<&str> = clients.iter().map(String::as_str).collect();
        let name = rows.field(line, record, client)?;
        let row = known.iter().position(|known| *known == name).ok_or_else(|| {
            let came = format!("the unknown client {}", quoted(name));
            rows.problem(line, client, Mismatch::unknown(came, name, &known))
        })?;
        let mut add = |column: usize, operation: Operation| {
            let text = rows.field(line, record, column)?;
            let expected = "a number of operations, 0 or more";
            sums[place][row][operation as usize] +=
                rows.number(line, column, text, expected, COUNT_MAX)?;
            Ok(())
        };
        match long {
            None => wide.iter().try_for_each(|&(column, operation)| add(column, operation))?,
            Some([kind, count]) => {
                let name = rows.field(line, record, kind)?;
                let known = Operation::ALL.map(Operation::name);
                let operation = Operation::named(name).ok_or_else(|| {
                    let came = format!("the unknown operation {}", quoted(name));
                    rows.problem(line, kind, Mismatch::unknown(came, name, &known))
                })?;
                add(count, operation)?;
            }
        }
    }
    let sound = |(name, sums)| match Counts::new(sums) {
        Ok(counts) => Ok((name, counts)),
        Err(error) => Err(whole(file, Mismatch::new(error.to_string(), "numbers of operations"))),
    };
    names.into_iter().zip(sums).map(sound).collect()
}

/// Parses what the leaders at each site can take together, columns `site` and `capacity_per_s`, in
/// the order of the rows. `inf` is no limit.
///
/// # Errors
/// When a column is missing, a site is named twice or a capacity is negative or no number.
pub fn parse_capacities(text: &str, file: &str) -> Result<Vec<(String, f64)>, Problem> {
    let rows = Rows::read(text, file)?;
    let columns = rows.columns([&["site"], &["capacity_per_s"]]);
    let [site, capacity] = columns.ok_or_else(|| {
        let came = quoted(&rows.header().iter().collect::<Vec<_>>().join(","));
        rows.problem(rows.rows[0].0, 0, Mismatch::new(came, "columns site,capacity_per_s"))
    })?;
    let mut found: Vec<(String, f64)> = Vec::new();
    for (line, record) in rows.body() {
        let name = rows.field(line, record, site)?;
        if found.iter().any(|(known, _)| known == name) {
            let what = Mismatch::new(format!("{} again", quoted(name)), "each site once");
            return Err(rows.problem(line, site, what));
        }
        let text = rows.field(line, record, capacity)?;
        let expected = "operations per second that leaders there may take, 0 or more, or inf";
        let value = rows.number(line, capacity, text, expected, f64::INFINITY)?;
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

/// Parses failure domains, columns `site` and `domain`: the domain of every one of these sites.
/// Sites that are not asked about may be there too.
///
/// # Errors
/// When a column or a site is missing, or a site is named twice.
pub fn parse_domains(text: &str, file: &str, sites: &[String]) -> Result<Vec<String>, Problem> {
    let rows = Rows::read(text, file)?;
    let [site, domain] = rows.columns([&["site"], &["domain"]]).ok_or_else(|| {
        let came = quoted(&rows.header().iter().collect::<Vec<_>>().join(","));
        rows.problem(rows.rows[0].0, 0, Mismatch::new(came, "columns site,domain"))
    })?;
    let mut found: Vec<Option<String>> = vec![None; sites.len()];
    for (line, record) in rows.body() {
        let name = rows.field(line, record, site)?;
        let of = rows.field(line, record, domain)?;
        let Some(place) = sites.iter().position(|known| known == name) else { continue };
        if found[place].replace(of.to_owned()).is_some() {
            let what = Mismatch::new(format!("{} again", quoted(name)), "each site once");
            return Err(rows.problem(line, site, what));
        }
    }
    let each = sites.iter().zip(found).map(|(name, found)| {
        found.ok_or_else(|| {
            let came = format!("no row for the site {}", quoted(name));
            whole(file, Mismatch::new(came, "a domain for every site").with_hint("misspelt?"))
        })
    });
    each.collect()
}
