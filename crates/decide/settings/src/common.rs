//! What the tables of `evenkeel run` have in common: bounds, names, files, lists of tables.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Mismatch, Place, Setting, Table, Value, format_duration};

/// A millisecond.
pub const MS: Duration = Duration::from_millis(1);
/// A second.
pub const SECOND: Duration = Duration::from_secs(1);
/// An hour.
pub const HOUR: Duration = Duration::from_secs(3_600);
/// A day.
pub const DAY: Duration = Duration::from_secs(86_400);

/// Bounds on what a file may ask for, so that a slip of the pen does not fill the memory.
pub const CONNECTIONS: RangeInclusive<usize> = 1..=1_000_000;
/// Tables of one kind.
pub const TABLES_MAX: usize = 256;
/// What a list of more tables is told.
pub const FEW_TABLES: &str = "at most 256 tables";
/// Replicas of one upstream.
pub const REPLICAS_MAX: usize = 1_000;
/// The length of a name, in bytes: names are labels of metrics.
pub const NAME_BYTES_MAX: usize = 64;

/// A list of tables, each with a header of its own, such as `[[listen]]`.
pub fn tables<'a, T: 'a>(
    setting: Setting<'a>,
    header: &str,
    item: impl FnMut(Setting<'a>) -> T,
) -> Vec<T> {
    if matches!(setting.value(), Some(Value::Table(_))) {
        let wrong = Mismatch::new("a table", "a list of tables");
        setting.problem(wrong.with_hint(format!("write {header}, in double brackets")));
        return Vec::new();
    }
    setting.list(item).check(FEW_TABLES, |tables| tables.len() <= TABLES_MAX).or(Vec::new())
}

/// Tables by name, such as `[upstream.NAME]`. Too many are one problem, and `None`: what refers to
/// them is then neither right nor wrong.
pub fn named_tables<'a, T: 'a>(
    setting: Setting<'a>,
    item: impl FnMut(&'a str, Setting<'a>) -> T,
) -> Option<Vec<T>> {
    let count = match setting.value() {
        Some(Value::Table(entries)) => entries.len(),
        _ => 0,
    };
    if count > TABLES_MAX {
        setting.problem(Mismatch::new(format!("{count} tables"), FEW_TABLES));
        return None;
    }
    Some(setting.named(item).or(BTreeMap::new()).into_values().collect())
}

/// Reports a name that cannot be a label of metrics; `what` says what it names.
pub fn check_name(name: &str, what: &str, setting: &Setting<'_>) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
        let expected = format!("1 to {NAME_BYTES_MAX} letters, digits, hyphens, _ or .");
        let wrong = Mismatch::new(what, expected);
        setting.problem(wrong.with_hint("it is a label of metrics"));
    }
}

/// Reports a duration that is longer than the whole which it is a part of; each with its name.
pub fn at_most(table: &mut Table<'_>, part: (&str, Duration), whole: (&str, Duration)) {
    let ((key, part), (name, whole)) = (part, whole);
    if part > whole {
        let came = format_duration(part);
        let expected = format!("at most {name}, which is {}", format_duration(whole));
        table.problem(key, Mismatch::new(came, expected));
    }
}

/// A file; one that is not absolute is beside the file it is written in.
pub fn file(setting: Setting<'_>) -> PathBuf {
    let place = setting.place().clone();
    let written = setting.text().check("the name of a file", |text| !text.is_empty()).required();
    match place {
        Place::File { file, .. } => {
            let beside = Path::new(&*file).parent().unwrap_or(Path::new(""));
            beside.join(written)
        }
        Place::Flag(_) => written.into(),
    }
}
