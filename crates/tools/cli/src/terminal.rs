//! What a person sees: aligned tables on stdout, progress on stderr.

use std::io::{IsTerminal, Write};

/// Rows of text in columns; the first column is left-aligned, the others right-aligned.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()] }
    }

    /// One whose header is written as a row: `policy | p50 ms | p99`.
    pub(crate) fn of(header: &str) -> Self {
        Self::new(&header.split(" | ").collect::<Vec<_>>())
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let columns = self.rows[0].len();
        let cell_width = |row: &Vec<String>, column| {
            row.get(column).map_or(0, |cell: &String| cell.chars().count())
        };
        let width = |column| self.rows.iter().map(|row| cell_width(row, column)).max();
        let widths: Vec<usize> = (0..columns).filter_map(width).collect();
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 {
                    line += &format!("{cell:<width$}");
                } else {
                    line += &format!("  {cell:>width$}");
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// Milliseconds, or a rate, with three significant digits.
pub(crate) fn ms(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// As [`ms`], and a dash for what is not known.
pub(crate) fn ms_if_known(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), ms)
}

/// A share in percent with one decimal.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Large numbers as people read them: 1.7 M, 230 k.
pub(crate) fn count(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e4 => format!("{:.0} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Values in time, one character each; `highest` fills the line.
pub(crate) fn sparkline(values: impl IntoIterator<Item = f64>, highest: f64) -> String {
    let bar = |value: f64| BARS[((value / highest * 7.0).round() as usize).min(7)];
    values.into_iter().map(bar).collect()
}

/// Lines on stderr that are drawn over themselves, if somebody is looking.
#[derive(Debug)]
pub(crate) struct Canvas {
    is_seen: bool,
    lines: usize,
}

impl Canvas {
    pub(crate) fn new() -> Self {
        Self { is_seen: std::io::stderr().is_terminal(), lines: 0 }
    }

    /// Whether somebody is looking.
    pub(crate) const fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// Replaces what was drawn.
    pub(crate) fn draw(&mut self, lines: &[String]) {
        if !self.is_seen {
            return;
        }
        let mut text = String::new();
        if self.lines > 0 {
            text += &format!("\x1b[{}A\x1b[J", self.lines);
        }
        for line in lines {
            text += line;
            text.push('\n');
        }
        self.lines = lines.len();
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()); // a view that cannot be drawn stops nothing
        let _ = stderr.flush();
    }

    /// Writes a line that stays, also where nobody is looking.
    pub(crate) fn keep(&mut self, line: &str) {
        self.clear();
        eprintln!("{line}");
    }

    /// Removes what was drawn.
    pub(crate) fn clear(&mut self) {
        if self.is_seen && self.lines > 0 {
            eprint!("\x1b[{}A\x1b[J", self.lines);
        }
        self.lines = 0;
    }
}

/// A progress bar on stderr, if somebody is looking.
#[derive(Debug)]
pub(crate) struct Progress {
    what: String,
    total: usize,
    is_seen: bool,
}

impl Progress {
    pub(crate) fn new(what: impl Into<String>, total: usize) -> Self {
        Self { what: what.into(), total, is_seen: std::io::stderr().is_terminal() }
    }

    pub(crate) fn show(&self, done: usize) {
        if !self.is_seen {
            return;
        }
        const WIDTH: usize = 30;
        let filled = done * WIDTH / self.total.max(1);
        let bar: String = (0..WIDTH).map(|n| if n < filled { '█' } else { '░' }).collect();
        let mut stderr = std::io::stderr().lock();
        // A progress bar that cannot be written is no reason to stop.
        let _ = write!(stderr, "\r{} {bar} {done}/{}", self.what, self.total);
        let _ = stderr.flush();
    }

    pub(crate) fn clear(&self) {
        if self.is_seen {
            eprint!("\r\x1b[2K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["policy", "p99"]);
        table.row(["c3".to_owned(), "12.3".to_owned()]);
        table.row(["round-robin".to_owned(), "4".to_owned()]);
        assert_eq!(table.to_string(), "policy        p99\nc3           12.3\nround-robin     4\n");
    }

    #[test]
    fn a_sparkline_runs_from_nothing_to_the_highest() {
        assert_eq!(sparkline([0.0, 3.5, 7.0, 70.0, f64::NAN], 7.0), "▁▅██▁");
    }

    #[test]
    fn numbers_keep_three_digits() {
        assert_eq!([123.4, 12.34, 1.234].map(ms), ["123", "12.3", "1.23"]);
        assert_eq!([1_670_000.0, 23_456.0, 999.0].map(count), ["1.67 M", "23 k", "999"]);
    }
}
