//! Counts in a file that somebody appends to: what is new since it was read last.
//!
//! **When an interval counts.** Once, when it is over: when another one follows it, or when the
//! file ends with a whole line and was left alone for a moment. A line that does not end is not
//! read yet, so that 12 of 1234 is never a count. What comes for an interval that was counted
//! already is left out and told: a history cannot take back what was decided by it.
//!
//! **How much is read.** What was appended, in bounded pieces, however long the file has become. At
//! the start the last [`TAIL_BYTES_MAX`] are enough: a history keeps few intervals. A file that was
//! replaced or cut off is read from its beginning; intervals up to the one that counted last are
//! passed over if it is still there, so that a file may be rewritten whole with every interval.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
use std::fs::{File, Metadata};
use std::hash::{Hash as _, Hasher as _};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use evenkeel_planner::history::INTERVALS_MAX;
use evenkeel_planner::model::Counts;
use evenkeel_settings::placement::{INTERVALS_MAX as LINES_MAX, parse_intervals};
use evenkeel_settings::{Place, Problem};

use super::collected::{CollectError, CollectErrorKind, Collected};

/// At the start a longer file is not read from its beginning.
const TAIL_BYTES_MAX: u64 = 16 << 20;
/// Read at once; a longer line is none.
const PIECE_BYTES: u64 = 1 << 20;
/// Nobody must have written for so long, or a quarter of the interval if that is less.
const QUIET: Duration = Duration::from_millis(500);
/// How often it is looked whether somebody still writes.
const LOOKS: usize = 4;
/// Intervals held at once, whose rows may come in any order.
const HELD_MAX: usize = 64;
/// Names of intervals that are remembered.
const NAMES_MAX: usize = 100_000;
/// Bytes before the place that was reached, by which a file is known again.
const KNOWN_BYTES: u64 = 256;

/// A file and how far it was read.
#[derive(Debug)]
pub(super) struct Appended {
    path: PathBuf,
    quiet: Duration,
    at: Reached,
}

/// How far a file was read.
#[derive(Clone, Debug, Default)]
struct Reached {
    /// Device and number of the file.
    file: Option<(u64, u64)>,
    header: String,
    /// Bytes and lines before this place were read.
    bytes: u64,
    lines: u32,
    /// Whether lines are counted from the beginning of the file.
    is_tail: bool,
    /// What stood right before this place.
    known: Vec<u8>,
    /// The last interval, of which more may come.
    open: Option<Interval>,
    counted: Names,
    /// The interval that counted last, also of a file that was there before.
    last: Option<String>,
}

type Interval = (String, Counts);

/// Names that were seen, as numbers; the oldest are forgotten.
#[derive(Clone, Debug, Default)]
struct Names {
    set: BTreeSet<u64>,
    order: VecDeque<u64>,
}

impl Names {
    fn has(&self, name: &str) -> bool {
        self.set.contains(&number(name))
    }

    fn add(&mut self, name: &str) {
        if self.set.insert(number(name)) {
            self.order.push_back(number(name));
        }
        if self.order.len() > NAMES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }
}

fn number(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// What came since the last time.
#[derive(Default)]
struct Fresh {
    intervals: VecDeque<Interval>,
    /// Names of those that were dropped again, being too many.
    dropped: Names,
    /// Intervals of which rows came too late.
    late: BTreeSet<String>,
}

impl Appended {
    pub(super) fn new(path: PathBuf, interval: Duration) -> Self {
        Self { path, quiet: QUIET.min(interval / 4), at: Reached::default() }
    }

    /// The intervals that are over and were not told yet, the oldest first.
    ///
    /// # Errors
    /// When there is none, or something in the file is no count.
    pub(super) async fn collect(&mut self, clients: &[String]) -> Result<Collected, CollectError> {
        let shown = self.path.display().to_string();
        let named = |error: io::Error| CollectErrorKind::File(error).at(&shown);
        let (length, is_quiet) = self.wait_until_quiet().await.map_err(named)?;
        // Taken over only as a whole: what is wrong is wrong until somebody mends it.
        let mut at = self.at.clone();
        let read = at.read(&self.path, length, clients)?;
        let Fresh { mut intervals, late, .. } = read;
        let has_ended = at.bytes == length;
        at.open = if is_quiet && has_ended { None } else { intervals.pop_back() };
        if let Some(last) = &at.last
            && let Some(place) = intervals.iter().position(|(name, _)| name == last)
        {
            intervals.drain(..=place);
        }
        for (name, _) in &intervals {
            at.counted.add(name);
            at.last = Some(name.clone());
        }
        let is_open = at.open.is_some();
        self.at = at;
        let too_late = too_late(&late);
        if intervals.is_empty() {
            let kind = match (too_late, is_open, has_ended) {
                (Some(late), ..) => late,
                (None, _, false) => CollectErrorKind::Unended,
                (None, true, true) => CollectErrorKind::BeingWritten,
                (None, false, true) => CollectErrorKind::NothingNew,
            };
            return Err(kind.at(shown));
        }
        let skipped = intervals.len().saturating_sub(INTERVALS_MAX);
        let intervals = intervals.into_iter().skip(skipped).map(|(_, counts)| counts).collect();
        let warnings = too_late.map(|late| late.at(shown).to_string()).into_iter().collect();
        Ok(Collected { intervals, warnings })
    }

    /// How long the file is, and whether somebody may be writing to it.
    async fn wait_until_quiet(&self) -> io::Result<(u64, bool)> {
        let look = || -> io::Result<Metadata> {
            let seen = std::fs::metadata(&self.path)?;
            if !seen.is_file() {
                return Err(io::Error::other("it is no file"));
            }
            Ok(seen)
        };
        let mut seen = look()?;
        for _ in 0..LOOKS {
            let age = seen.modified()?.elapsed();
            if age.is_ok_and(|age| age >= self.quiet) {
                return Ok((seen.len(), true));
            }
            tokio::time::sleep(self.quiet).await;
            let before = std::mem::replace(&mut seen, look()?);
            let state = |seen: &Metadata| (seen.len(), seen.mtime(), seen.mtime_nsec(), seen.ino());
            if state(&before) == state(&seen) {
                return Ok((seen.len(), true));
            }
        }
        Ok((seen.len(), false))
    }
}

fn too_late(late: &BTreeSet<String>) -> Option<CollectErrorKind> {
    let first = late.first()?.clone();
    Some(CollectErrorKind::Late { first, more: late.len() - 1 })
}

impl Reached {
    /// Reads on up to a length.
    fn read(
        &mut self,
        path: &PathBuf,
        length: u64,
        clients: &[String],
    ) -> Result<Fresh, CollectError> {
        let shown = path.display().to_string();
        let named = |error: io::Error| CollectErrorKind::File(error).at(&shown);
        let mut file = File::open(path).map_err(named)?;
        let (header, begins_at, lines) = header(&mut file, length).map_err(named)?;
        if !self.is_of(&mut file, &header, length).map_err(named)? {
            let seen = file.metadata().map_err(named)?;
            let last = self.last.take();
            *self = Self { file: Some((seen.dev(), seen.ino())), header, last, ..Self::default() };
            self.skip_to_tail(&mut file, (begins_at, lines), length).map_err(named)?;
        }
        let mut fresh = Fresh::default();
        // A tail begins within an interval, which does not count.
        let cut_off = self.is_tail && self.known.is_empty();
        fresh.intervals.extend(self.open.take());
        loop {
            let piece = self.piece(&mut file, length).map_err(named)?;
            let Some(piece) = piece else { break };
            let mut rest = piece.as_str();
            while !rest.is_empty() {
                let (lines, after) = some_lines(rest);
                for (name, counts) in self.parse(lines, &shown, clients)? {
                    fresh.add(name, counts, self).map_err(|kind| kind.at(&shown))?;
                }
                self.lines = self.lines.saturating_add(count_lines(lines));
                rest = after;
            }
        }
        if cut_off && fresh.dropped.order.is_empty() {
            fresh.intervals.pop_front();
        }
        self.remember(&mut file).map_err(named)?;
        if fresh.intervals.is_empty() && self.counted.order.is_empty() && fresh.late.is_empty() {
            return Err(CollectErrorKind::NoInterval.at(shown));
        }
        Ok(fresh)
    }

    /// Whether a file is the one that was read up to here.
    fn is_of(&self, file: &mut File, header: &str, length: u64) -> io::Result<bool> {
        let seen = file.metadata()?;
        if self.file != Some((seen.dev(), seen.ino()))
            || self.header != header
            || length < self.bytes
        {
            return Ok(false);
        }
        Ok(before(file, self.bytes)? == self.known)
    }

    /// Begins behind the header, or near the end of a long file.
    fn skip_to_tail(
        &mut self,
        file: &mut File,
        (begins_at, lines): (u64, u32),
        length: u64,
    ) -> io::Result<()> {
        (self.bytes, self.lines) = (begins_at, lines);
        let tail_at = length.saturating_sub(TAIL_BYTES_MAX);
        if tail_at > begins_at {
            file.seek(SeekFrom::Start(tail_at))?;
            let mut cut = Vec::new();
            BufReader::new(file.take(PIECE_BYTES)).read_until(b'\n', &mut cut)?;
            (self.bytes, self.lines, self.is_tail) = (tail_at + cut.len() as u64, 0, true);
        }
        Ok(())
    }

    /// The next whole lines.
    fn piece(&mut self, file: &mut File, length: u64) -> io::Result<Option<String>> {
        let left = length.saturating_sub(self.bytes);
        file.seek(SeekFrom::Start(self.bytes))?;
        let mut piece = Vec::new();
        file.take(left.min(PIECE_BYTES)).read_to_end(&mut piece)?;
        let Some(end) = piece.iter().rposition(|byte| *byte == b'\n') else {
            return match piece.len() as u64 == PIECE_BYTES {
                true => Err(io::Error::other("a line of more than 1 MiB: is it CSV?")),
                false => Ok(None),
            };
        };
        piece.truncate(end + 1);
        self.bytes += piece.len() as u64;
        let piece = String::from_utf8(piece);
        Ok(Some(piece.map_err(|_| io::Error::other("it is no text in UTF-8"))?))
    }

    fn parse(
        &self,
        lines: &str,
        file: &str,
        clients: &[String],
    ) -> Result<Vec<Interval>, CollectErrorKind> {
        if lines.lines().all(|line| line.trim().is_empty() || line.starts_with('#')) {
            return Ok(Vec::new());
        }
        let text = format!("{}\n{lines}", self.header);
        let parsed = parse_intervals(&text, file, clients);
        parsed.map_err(|problem| CollectErrorKind::Row(Box::new(self.reported(problem))))
    }

    /// A problem with its line in the file.
    fn reported(&self, mut problem: Problem) -> Problem {
        if let Place::File { file, line, .. } = &mut problem.at
            && *line > 1
        {
            *line += self.lines - 1;
            if self.is_tail {
                *file = format!("{file} (lines counted within its last 16 MiB)").into();
                *line += 1;
            }
        }
        problem
    }

    fn remember(&mut self, file: &mut File) -> io::Result<()> {
        self.known = before(file, self.bytes)?;
        Ok(())
    }
}

impl Fresh {
    fn add(&mut self, name: String, counts: Counts, at: &Reached) -> Result<(), CollectErrorKind> {
        if let Some((_, sums)) = self.intervals.iter_mut().find(|(known, _)| *known == name) {
            sums.add(&counts, 1.0);
            return Ok(());
        }
        if self.dropped.has(&name) {
            return Err(CollectErrorKind::Again { interval: name, held_max: HELD_MAX });
        }
        if at.counted.has(&name) {
            if self.late.len() < HELD_MAX {
                self.late.insert(name);
            }
            return Ok(());
        }
        self.intervals.push_back((name, counts));
        if self.intervals.len() > HELD_MAX
            && let Some((name, _)) = self.intervals.pop_front()
        {
            self.dropped.add(&name);
        }
        Ok(())
    }
}

/// What stands before a place.
fn before(file: &mut File, place: u64) -> io::Result<Vec<u8>> {
    let length = place.min(KNOWN_BYTES);
    file.seek(SeekFrom::Start(place - length))?;
    let mut bytes = Vec::new();
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The first line that is no remark, where the next one begins, and how many there were.
fn header(file: &mut File, length: u64) -> io::Result<(String, u64, u32)> {
    let mut reader = BufReader::new(file.take(length.min(PIECE_BYTES)));
    let (mut bytes, mut lines) = (0, 0);
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(io::Error::other("a header and at least one row were expected"));
        }
        (bytes, lines) = (bytes + read as u64, lines + 1);
        let text = line.trim_start_matches('\u{feff}').trim();
        if !text.is_empty() && !text.starts_with('#') {
            return Ok((text.to_owned(), bytes, lines));
        }
    }
}

/// As many lines as may all be intervals of their own, and the rest.
fn some_lines(text: &str) -> (&str, &str) {
    let mut ends = text.match_indices('\n');
    let end = ends.nth(LINES_MAX - 1).map_or(text.len(), |(place, _)| place + 1);
    text.split_at(end)
}

fn count_lines(text: &str) -> u32 {
    u32::try_from(text.matches('\n').count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
