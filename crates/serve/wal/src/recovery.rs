//! What is found when a log is opened.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};

use super::LogError;
use super::background_writer::{sync, sync_directory};
use super::segment::{HEAD_BYTES, Landmark, NoHead, Rest, Survey, Tag, survey};

/// What a log held when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovered {
    /// The sequence number of the last write; 0 = none ever.
    pub last_sequence: u64,
    /// The first sequence number whose write can still be read.
    pub first_sequence: u64,
    /// Epochs and the first sequence number of each, ascending; the first may have begun before
    /// what is left of the log.
    pub epochs: Vec<(u64, u64)>,
    /// The sequence number at which the latest whole state begins, if one is in the log.
    pub state: Option<u64>,
    /// The latest version of the layout that came into use, as far as the log reaches back; 0 =
    /// none.
    pub layout: u64,
    /// Bytes that a crash had cut off within a record, and that are gone.
    pub torn_bytes: u64,
}

/// A segment that is known.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    /// Offset of its first byte in the whole log; also its name.
    pub begins: u64,
    /// The last sequence number before it.
    pub base: u64,
    pub landmarks: Vec<Landmark>,
}

/// Where a state of everything begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StatePlace {
    /// Offset of its segment in the whole log: without that one the state lacks keys.
    pub begins: u64,
    /// The write it is as of, or of a later one.
    pub sequence: u64,
}

/// A log as it lies in its directory.
pub(super) struct Found {
    /// Of the last segment's format.
    pub version: u32,
    pub segments: Vec<Segment>,
    /// The latest that is complete.
    pub state: Option<StatePlace>,
    /// Offset behind the last record in the whole log.
    pub end: u64,
    pub salt: u32,
    pub recovered: Recovered,
}

/// The file of a segment.
pub(super) fn path_of(directory: &Path, begins: u64) -> PathBuf {
    directory.join(format!("{begins:020}.log"))
}

/// Reads the whole log and cuts off what is torn; `None` = there is none yet.
pub(super) fn recover(directory: &Path) -> Result<Option<Found>, LogError> {
    let mut names = segments_in(directory)?;
    let mut torn_bytes = cut_head(directory, &mut names)?;
    let mut surveys: Vec<Survey> = Vec::with_capacity(names.len());
    for (index, &begins) in names.iter().enumerate() {
        let path = path_of(directory, begins);
        let segment = fs::read(&path).map_err(|error| LogError::system(&path, "read it", error))?;
        let read = survey(&segment).map_err(|none| no_head(&path, none))?;
        check_place(&path, begins, surveys.last(), &read)?;
        if let Some(rest) = &read.rest {
            let is_last = index + 1 == names.len();
            check_torn(&path, &read, rest, is_last)?;
            torn_bytes += segment.len() as u64 - read.length;
            cut(&path, read.length)?;
        }
        surveys.push(read);
    }
    forget(directory, &mut surveys)?;
    Ok(found(surveys, torn_bytes))
}

/// What lies before writes that the log knows nothing of is of no use, and was to be removed.
fn forget(directory: &Path, surveys: &mut Vec<Survey>) -> Result<(), LogError> {
    let gap = surveys.windows(2).rposition(|two| two[1].head.base > two[0].last);
    for before in surveys.drain(..gap.map_or(0, |index| index + 1)) {
        let path = path_of(directory, before.head.begins);
        fs::remove_file(&path).map_err(|error| LogError::system(&path, "remove it", error))?;
    }
    Ok(())
}

fn found(surveys: Vec<Survey>, torn_bytes: u64) -> Option<Found> {
    let (first, last) = (surveys.first()?, surveys.last()?);
    let mut recovered = Recovered {
        last_sequence: last.last,
        first_sequence: first.head.base.saturating_add(1),
        epochs: Vec::new(),
        state: None,
        layout: surveys.iter().map(|survey| survey.layout).max().unwrap_or(0),
        torn_bytes,
    };
    if first.head.epoch > 0 {
        recovered.epochs.push((first.head.epoch, first.head.epoch_since));
    }
    let (end, salt, version) = (last.head.begins + last.length, last.head.salt, last.head.version);
    let (mut begun, mut state) = (None::<StatePlace>, None);
    for survey in &surveys {
        recovered.epochs.extend_from_slice(&survey.epochs);
        for &(tag, sequence) in &survey.states {
            if tag == Tag::StateBegins {
                begun = Some(StatePlace { begins: survey.head.begins, sequence });
            } else if begun.is_some_and(|begun| begun.sequence == sequence) {
                state = begun;
            }
        }
    }
    recovered.state = state.map(|state| state.sequence);
    let segments = surveys.into_iter().map(|Survey { head, landmarks, .. }| Segment {
        begins: head.begins,
        base: head.base,
        landmarks,
    });
    Some(Found { version, segments: segments.collect(), state, end, salt, recovered })
}

/// Offsets that the segments are named by, ascending. Other files are not ours to judge.
fn segments_in(directory: &Path) -> Result<Vec<u64>, LogError> {
    let failed = |error| LogError::system(directory, "list the directory", error);
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
        let number = number.filter(|digits| digits.len() == 20 && !digits.starts_with('+'));
        names.extend(number.and_then(|digits| digits.parse::<u64>().ok()));
    }
    names.sort_unstable();
    Ok(names)
}

/// A last segment whose head was never written whole holds nothing: it goes.
fn cut_head(directory: &Path, names: &mut Vec<u64>) -> Result<u64, LogError> {
    let Some(&begins) = names.last() else { return Ok(0) };
    let path = path_of(directory, begins);
    let failed = |error| LogError::system(&path, "read it", error);
    let length = fs::metadata(&path).map_err(failed)?.len();
    let is_torn = length < HEAD_BYTES as u64
        || fs::read(&path).map_err(failed)?.iter().all(|&byte| byte == 0);
    if !is_torn {
        return Ok(0);
    }
    if names.len() == 1 && begins > 0 {
        // What was before it has been removed, so the log's place and numbers are lost.
        return Err(LogError::Damaged {
            path,
            offset: 0,
            found: format!("{length} bytes without a head, and no segment before it"),
            expected: "a head".to_owned(),
            cause: "were segments removed by hand, or was power lost while `sync` was off?",
        });
    }
    fs::remove_file(&path).map_err(|error| LogError::system(&path, "remove it", error))?;
    sync_directory(directory)?;
    names.pop();
    Ok(length)
}

fn no_head(path: &Path, none: NoHead) -> LogError {
    let (offset, found, expected) = match none {
        NoHead::Version(found) => return LogError::Version { path: path.to_owned(), found },
        NoHead::Torn => (0, "no head".to_owned(), format!("a head of {HEAD_BYTES} bytes")),
        NoHead::Damaged { offset, found, expected } => (offset, found, expected),
    };
    let cause = "is it a segment of this log, and is the disk sound?";
    LogError::Damaged { path: path.to_owned(), offset, found, expected, cause }
}

/// Whether a segment goes on where the one before it ended.
fn check_place(
    path: &Path,
    name: u64,
    before: Option<&Survey>,
    read: &Survey,
) -> Result<(), LogError> {
    let head = &read.head;
    let damaged = |offset, found: String, expected: String, cause| {
        Err(LogError::Damaged { path: path.to_owned(), offset, found, expected, cause })
    };
    if head.begins != name {
        let found = format!("a segment that begins at {}", head.begins);
        return damaged(16, found, format!("{name}, as its name says"), "was the file renamed?");
    }
    let Some(before) = before else { return Ok(()) };
    let end = before.head.begins + before.length;
    if head.begins != end {
        let found = format!("a segment that begins at {}", head.begins);
        let expected = format!("{end}, where the one before it ends");
        return damaged(16, found, expected, "was a segment removed, cut or copied in?");
    }
    if head.base < before.last {
        let found = format!("a segment that follows the sequence number {}", head.base);
        let expected = format!("at least {}, the last one before it", before.last);
        return damaged(24, found, expected, "was a segment of another log copied in?");
    }
    if head.salt != before.head.salt {
        let found = format!("a segment of the log {:08x}", head.salt);
        let expected = format!("{:08x}, as before it", before.head.salt);
        return damaged(48, found, expected, "was a segment of another log copied in?");
    }
    Ok(())
}

/// Whether bytes that are no record are what a crash leaves.
fn check_torn(path: &Path, read: &Survey, rest: &Rest, is_last: bool) -> Result<(), LogError> {
    let cause = match rest.next {
        Some(_) => "a crash leaves nothing behind what it cuts off: is the disk sound?",
        None if !is_last => "a crash cuts off only the last segment: is the disk sound?",
        None => return Ok(()),
    };
    let next = rest.next.map_or(String::new(), |at| format!("; the next record is at {at}"));
    Err(LogError::Damaged {
        path: path.to_owned(),
        offset: read.length,
        found: rest.found.clone(),
        expected: format!("{}{next}", rest.expected),
        cause,
    })
}

fn cut(path: &Path, length: u64) -> Result<(), LogError> {
    let failed = |error| LogError::system(path, "cut off what is torn", error);
    let file: File = OpenOptions::new().write(true).open(path).map_err(failed)?;
    file.set_len(length).map_err(failed)?;
    sync(&file, path)
}
