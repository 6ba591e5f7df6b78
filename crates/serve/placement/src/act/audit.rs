//! Who did what to which cluster, when and why: one JSON object per line, on disk before the next
//! step.
//!
//! From where to where a move goes is written down before its first step, and each step before it
//! is tried and again with its result, so that after a crash the log says what was under way, and
//! the next process finishes it. Writing waits for the disk on the caller's thread,
//! which is the mover's own.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::Serialize;
use time::{Date, Month, OffsetDateTime};

use crate::state::LayoutState;

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Line<'a> {
    /// The cluster.
    pub cluster: &'a str,
    /// Who asked for it: a person or a service.
    pub who: &'a str,
    /// What they gave as the reason.
    pub why: &'a str,
    /// What happened.
    pub event: Event,
    /// The step, in words; none for what concerns the whole plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<&'a str>,
    /// Which step of the plan it is, counted from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<usize>,
    /// The layout where a move starts; of what is not finished too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<&'a LayoutState>,
    /// The layout where it is to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<&'a LayoutState>,
    /// More, in words.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub result: &'a str,
}

/// What a line tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// What would be done.
    WouldDo,
    /// Nothing was done, with why.
    Refused,
    /// A move begins, with where it starts and where it is to end.
    Starts,
    /// A step is about to be tried.
    Begins,
    /// It took effect and the cluster is well.
    Done,
    /// It did not.
    Failed,
    /// A step that takes back is about to be tried.
    TakesBack,
    /// It took effect.
    TakenBack,
    /// The plan ended before its goal, with where.
    Stopped,
    /// The same, with something left to be done: it will be finished.
    Unfinished,
    /// The plan reached its goal.
    Reached,
}

/// A log that is only appended to.
#[derive(Debug)]
pub struct Audit {
    path: PathBuf,
    file: File,
}

impl Audit {
    /// Opens a log, or begins it.
    ///
    /// # Errors
    /// When it cannot be written, with its path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let opened = OpenOptions::new().create(true).read(true).append(true).open(path);
        let ended = |file: File| end_last_line(&file).map(|()| file);
        let file = opened.and_then(ended).map_err(|error| named(path, &error))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Writes a line and waits until it is on disk.
    ///
    /// # Errors
    /// When that fails, with its path: what cannot be written down must not be done.
    pub fn note(&self, line: &Line<'_>) -> io::Result<()> {
        self.note_at(SystemTime::now(), line)
    }

    fn note_at(&self, at: SystemTime, line: &Line<'_>) -> io::Result<()> {
        #[derive(Serialize)]
        struct Dated<'a> {
            at: String,
            #[serde(flatten)]
            line: &'a Line<'a>,
        }
        let mut bytes = serde_json::to_vec(&Dated { at: date(at), line })?;
        bytes.push(b'\n');
        // One write, so that lines of two processes do not mix.
        let written = (&self.file).write_all(&bytes).and_then(|()| self.file.sync_data());
        written.map_err(|error| named(&self.path, &error))
    }
}

/// A line that a crash cut off must not swallow the next one.
fn end_last_line(mut file: &File) -> io::Result<()> {
    let length = file.metadata()?.len();
    let mut last = [b'\n'];
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        file.read_exact(&mut last)?;
    }
    if last == [b'\n'] { Ok(()) } else { file.write_all(b"\n") }
}

pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("the audit log {}: {error}", path.display()))
}

/// A moment as RFC 3339 in UTC, to the millisecond; what is before 1970 becomes 1970.
pub(crate) fn date(at: SystemTime) -> String {
    let at = OffsetDateTime::from(at.max(SystemTime::UNIX_EPOCH));
    let (date, (hour, minute, second, ms)) = (at.date(), at.time().as_hms_milli());
    let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// The moment of a [`date`], to the second.
pub(crate) fn moment(text: &str) -> Option<SystemTime> {
    let number = |range: Range<usize>| text.get(range)?.parse::<u8>().ok();
    let month = Month::try_from(number(5..7)?).ok()?;
    let day = Date::from_calendar_date(text.get(..4)?.parse().ok()?, month, number(8..10)?).ok()?;
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    Some(day.with_hms(hour, minute, second).ok()?.assume_utc().into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let known = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_200, "2024-03-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"), // no leap day in 2100
        ];
        for (seconds, expected) in known {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!((date(at).as_str(), moment(expected)), (expected, Some(at)));
        }
    }

    #[test]
    fn what_is_no_date_is_no_moment() {
        for wrong in ["", "2024", "2024-13-01T00:00:00.000Z", "2024-03-01T25:00:00Z", "ä024-03-01"]
        {
            assert_eq!(moment(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_cannot_be_opened_is_named() {
        let folder = std::env::temp_dir();
        let error = Audit::open(&folder).unwrap_err().to_string();
        assert!(error.contains(&folder.display().to_string()), "{error}");
    }

    #[test]
    fn a_line_that_was_cut_off_is_ended_first() {
        let name = format!("evenkeel-audit-cut-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "{\"at\":\"2").unwrap();
        drop(Audit::open(&path).unwrap());
        drop(Audit::open(&path).unwrap());
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "{\"at\":\"2\n");
    }

    #[test]
    fn lines_are_appended_and_name_only_what_they_know() {
        let path = std::env::temp_dir().join(format!("evenkeel-audit-{}", std::process::id()));
        let line = Line {
            cluster: "c",
            who: "w",
            why: "y",
            event: Event::TakesBack,
            step: Some("s"),
            number: None,
            from: None,
            goal: None,
            result: "",
        };
        for _ in 0..2 {
            Audit::open(&path).unwrap().note_at(SystemTime::UNIX_EPOCH, &line).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let expected = concat!(
            r#"{"at":"1970-01-01T00:00:00.000Z","cluster":"c","who":"w","why":"y","#,
            r#""event":"takes-back","step":"s"}"#,
        );
        assert_eq!(text.lines().collect::<Vec<_>>(), [expected; 2]);
    }
}
