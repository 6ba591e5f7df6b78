//! The folders of days: `DIRECTORY/UPSTREAM/20261128T210507Z`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use time::{OffsetDateTime, PrimitiveDateTime};

/// The length of a day's name.
const NAME_BYTES: usize = 16;

/// A folder for a day that begins now, which nobody has yet.
pub(crate) fn folder(of: &Path, now: SystemTime) -> PathBuf {
    let mut at = OffsetDateTime::from(now);
    loop {
        let (date, hour, minute, second) = (at.date(), at.hour(), at.minute(), at.second());
        let (year, month, day) = (date.year(), u8::from(date.month()), date.day());
        let name = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z");
        let path = of.join(name);
        if !path.exists() {
            return path;
        }
        at += time::Duration::SECOND; // two within one second
    }
}

/// When a day began, by its name; `None` where it is no day's.
fn began(name: &str) -> Option<SystemTime> {
    let is_one = name.len() == NAME_BYTES && name.is_ascii() && name.as_bytes()[8] == b'T';
    let number = |from: usize, to: usize| name.get(from..to)?.parse::<u16>().ok();
    let part = |from: usize, to: usize| u8::try_from(number(from, to)?).ok();
    if !is_one || !name.ends_with('Z') {
        return None;
    }
    let month = time::Month::try_from(part(4, 6)?).ok()?;
    let date = time::Date::from_calendar_date(number(0, 4)?.into(), month, part(6, 8)?).ok()?;
    let at = time::Time::from_hms(part(9, 11)?, part(11, 13)?, part(13, 15)?).ok()?;
    Some(PrimitiveDateTime::new(date, at).assume_utc().into())
}

/// Bytes of the files in a folder, and when one of them was last written.
fn files_of(folder: &Path) -> io::Result<(u64, SystemTime)> {
    let (mut bytes, mut written) = (0, SystemTime::UNIX_EPOCH);
    for file in fs::read_dir(folder)? {
        let file = file?.metadata()?;
        bytes += file.len();
        written = written.max(file.modified()?);
    }
    Ok((bytes, written))
}

/// A day of a folder.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Found {
    /// By its name.
    began: SystemTime,
    path: PathBuf,
    bytes: u64,
    /// When its last file was written.
    ended: SystemTime,
}

/// The days of a folder, the eldest first. What is no day is left out.
fn days_of(folder: &Path) -> io::Result<Vec<Found>> {
    let mut days = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (name, path) = (entry.file_name(), entry.path());
        let Some(began) = name.to_str().and_then(began) else { continue };
        if path.join(evenkeel_records::manifest::NAME).exists() {
            let (bytes, ended) = files_of(&path)?;
            days.push(Found { began, path, bytes, ended });
        }
    }
    days.sort();
    Ok(days)
}

/// Removes days whose last file was written longer ago, and the eldest ones while all have more
/// bytes. Nothing else is touched, nor the day that is written.
///
/// # Errors
/// When a folder cannot be read or removed.
pub(crate) fn remove_old(
    of: &Path,
    written: Option<&Path>,
    since: SystemTime,
    bytes_max: u64,
) -> io::Result<()> {
    let days = days_of(of)?;
    let mut bytes: u64 = days.iter().map(|day| day.bytes).sum();
    for day in days {
        let is_written = Some(day.path.as_path()) == written;
        if !is_written && (day.ended < since || bytes > bytes_max) {
            fs::remove_dir_all(&day.path)?;
            bytes -= day.bytes;
        }
    }
    Ok(())
}

/// Whether a folder with this name is that of a stream. One that somebody renamed
/// (`upstream.shop.kept`) or linked is not.
fn is_stream(name: &str) -> bool {
    let kinds = ["upstream.", "duplicates.", "agent."];
    let of = kinds.iter().find_map(|kind| name.strip_prefix(kind));
    of.is_some_and(|of| !of.is_empty() && !of.contains('.'))
}

/// The same for the folders of streams that are recorded no more, which have what the others leave
/// of the bytes: those that ended first go first.
///
/// # Errors
/// When a folder cannot be read or removed.
pub(crate) fn remove_gone(
    directory: &Path,
    is_recorded: impl Fn(&str) -> bool,
    since: SystemTime,
    bytes_max: u64,
) -> io::Result<()> {
    let (mut bytes, mut gone, mut folders) = (0, Vec::new(), Vec::new());
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (name, folder) = (entry.file_name(), entry.path());
        let Some(name) = name.to_str().filter(|name| is_stream(name)) else { continue };
        // What cannot be read is left alone: others go on being removed.
        let (true, Ok(days)) = (entry.file_type()?.is_dir(), days_of(&folder)) else { continue };
        bytes += days.iter().map(|day| day.bytes).sum::<u64>();
        if !is_recorded(name) {
            gone.extend(days);
            folders.push(folder);
        }
    }
    gone.sort_by_key(|day| day.ended);
    for day in gone {
        if day.ended < since || bytes > bytes_max {
            fs::remove_dir_all(&day.path)?;
            bytes -= day.bytes;
        }
    }
    for folder in folders {
        if fs::read_dir(&folder)?.next().is_none() {
            fs::remove_dir(&folder)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_day_has_the_time_of_its_beginning_for_a_name_and_no_two_have_one() {
        let root = std::env::temp_dir().join(format!("evenkeel-day-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400);
        let day = folder(&root, now);
        assert_eq!(day.file_name().unwrap(), "20000229T000000Z");
        assert_eq!(began("20000229T000000Z"), Some(now));
        fs::create_dir(&day).unwrap();
        assert_eq!(folder(&root, now).file_name().unwrap(), "20000229T000001Z");
        for wrong in ["20000229T000000", "20000230T000000Z", "tmp", "2000-02-29T00:00Z"] {
            assert_eq!(began(wrong), None, "{wrong}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    /// A day with so many bytes that ended when it began, by its name.
    fn made(folder: &Path, name: &str, bytes: usize) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(&path).unwrap();
        let file = path.join("manifest.json");
        fs::write(&file, vec![b' '; bytes]).unwrap();
        let file = fs::File::options().write(true).open(file).unwrap();
        file.set_modified(began(name).unwrap_or(SystemTime::UNIX_EPOCH)).unwrap();
        path
    }

    #[test]
    fn folders_of_streams_that_are_gone_have_what_the_others_leave() {
        let root = std::env::temp_dir().join(format!("evenkeel-gone-{}", std::process::id()));
        let [shop, cart, cache] = ["upstream.shop", "upstream.cart", "duplicates.cache"];
        let day = |folder: &str, name: &str| made(&root.join(folder), name, 1_000);
        let lives = day(shop, "20200101T000000Z");
        let (old, next) = (day(cart, "20260101T000000Z"), day(cart, "20260103T000000Z"));
        let other = day(cache, "20260102T000000Z");
        let (photos, file) = (day("photos", "20260101T000000Z"), root.join("agent.1"));
        fs::write(&file, "no folder").unwrap();
        let remove = |since: &str, bytes_max| {
            remove_gone(&root, |name| name == shop, began(since).unwrap(), bytes_max).unwrap();
        };
        let left = || [&old, &other, &next].map(|day| day.exists());
        remove("20200101T000000Z", 4_000);
        assert_eq!(left(), [true; 3], "there is room for all");
        remove("20200101T000000Z", 3_999);
        assert_eq!(left(), [false, true, true], "what ended first goes first");
        remove("20260102T000001Z", 4_000);
        assert_eq!(left(), [false, false, true], "it is too old");
        assert!(!root.join(cache).exists(), "nothing is in it any more");
        remove("20200101T000000Z", 10);
        assert_eq!(left(), [false; 3]);
        assert!(lives.exists() && photos.exists() && file.exists(), "these are not its own");
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn old_days_are_removed_and_nothing_else() {
        let root = std::env::temp_dir().join(format!("evenkeel-old-{}", std::process::id()));
        let day = |name: &str, bytes: usize| made(&root, name, bytes);
        let old = day("20200101T000000Z", 10);
        let large = day("20260101T000000Z", 1_000);
        let (next, written) = (day("20260102T000000Z", 400), day("20260103T000000Z", 500));
        let other = day("photos", 5_000);
        // It began long ago, and was written until yesterday.
        let long = day("20200102T000000Z", 20);
        fs::write(long.join("rows-000001.parquet"), "rows").unwrap();
        let no_day = root.join("20190101T000000Z");
        fs::create_dir(&no_day).unwrap();
        let since = began("20250101T000000Z").unwrap();
        remove_old(&root, Some(&written), since, 2_000).unwrap();
        assert!(!old.exists() && large.exists(), "it is too old");
        assert!(long.exists(), "its last file is new");
        remove_old(&root, Some(&written), since, 900).unwrap();
        assert!(!large.exists() && next.exists() && written.exists(), "they are too large");
        remove_old(&root, Some(&written), since, 10).unwrap();
        assert!(!next.exists() && written.exists() && other.exists() && no_day.exists());
        fs::remove_dir_all(&root).unwrap();
    }
}
