//! `[record]`: where days are recorded, how much is kept, and what is tried out for them.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_core::units::Probability;
use evenkeel_settings::common::file;
use evenkeel_settings::{Mismatch, Table};

const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// More than so many requests twice, or so many minutes under another policy, is no sample.
const SHARE_MAX: f64 = 0.05;

/// `[record]`
#[derive(Debug, Clone, PartialEq)]
pub struct RecordConfig {
    /// Where each upstream has a folder with its days.
    pub directory: PathBuf,
    /// How long a file has rows before the next one begins: what a killed process loses.
    pub rotate: Duration,
    /// Older files are removed.
    pub keep: Duration,
    /// Bytes of all files; the oldest ones are removed.
    pub bytes_max: u64,
    /// Share of the minutes in which another policy decides: 0 to 0.05.
    pub explore: Probability,
    /// Share of the requests that are sent to two replicas: 0 to 0.05.
    pub pairs: Probability,
}

impl RecordConfig {
    /// Reads the table.
    pub fn read(table: &mut Table<'_>) -> Self {
        let directory = file(table.key("directory"));
        let rotate = table.key("rotate").duration().between(10 * MINUTE / 60..=60 * MINUTE);
        let rotate = rotate.or(5 * MINUTE);
        let keep = table.key("keep").duration().between(60 * MINUTE..=366 * DAY).or(7 * DAY);
        let bytes_max = table.key("max").bytes().between(1 << 20..=1 << 50).or(20 << 30);
        let explore = table.key("explore").probability().or(0.0);
        let pairs = table.key("pairs").probability().or(0.0);
        for (key, share) in [("explore", explore), ("pairs", pairs)] {
            if share > SHARE_MAX && table.is_sound() {
                let expected = format!("at most {} %", SHARE_MAX * 100.0);
                let hint = "1 % is enough to test a replay, 0.1 % of pairs to measure requests";
                let wrong = Mismatch::new(format!("{} %", share * 100.0), expected);
                table.problem(key, wrong.with_hint(hint));
            }
        }
        Self {
            directory,
            rotate,
            keep,
            bytes_max,
            explore: Probability::clamped(explore),
            pairs: Probability::clamped(pairs),
        }
    }
}
