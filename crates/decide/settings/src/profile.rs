//! The file of a profile: what `evenkeel profile` measured, as TOML of its own format.
//!
//! ```toml
//! format = "evenkeel-profile"
//! version = 1
//! servers = 4                  # that the measured service had
//!
//! [run]                        # who measured; without it the file counts as complete
//! config = "8f14e45fceea167a"  # hash of the configuration, with which alone a run goes on
//! complete = true
//!
//! [[saturation]]               # once for each write share whose saturation was reached
//! write_share = 0.0
//! load = 1240.0                # requests per second
//!
//! [[step]]
//! load = 100.0                 # requests per second, offered to the whole service
//! write_share = 0.0
//! unanswered = 0               # requests that failed or were not answered in time
//! saturated = false            # whether the queue grew during the step; false when left out
//! latencies_ns = [[1048575, 31], [1056767, 12]]   # [longest of the bucket, requests in it]
//! ```
//!
//! Reading is strict: unknown keys, numbers out of range, buckets out of order, saturations without
//! a step, each with its line. Writing is canonical: equal profiles are equal texts, whatever the
//! order of their steps, so that [`hash`] tells whether two data centres plan with the same curves.
//! Floats are written as the shortest text that reads as the same number.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Write as _};
use std::num::NonZeroU32;
use std::path::Path;

use evenkeel_core::distribution::{Bucket, RECORDED_MAX};
use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::{LoadStep, Profile, STEPS_MAX, Saturation};
use evenkeel_geo::epoch::StableHash;

use crate::{Mismatch, Node, Problems, Setting, Table};

/// What `format` says.
pub const FORMAT: &str = "evenkeel-profile";
/// What `version` says.
pub const VERSION: u32 = 1;
/// Servers of a profiled service at most.
pub const SERVERS_MAX: u32 = 1_000_000;
/// Buckets of one step at most; a recording of two significant digits has 3800 at most.
pub const BUCKETS_MAX: usize = 4_096;
/// Requests in one bucket, or unanswered in one step, at most.
pub const COUNT_MAX: u64 = 1_000_000_000_000;
/// The least load of a step, in requests per second.
pub const LOAD_MIN: f64 = 1e-6;
/// The greatest load of a step, in requests per second.
pub const LOAD_MAX: f64 = 1e9;

/// Pairs of bucket and count in one line of the file.
const PAIRS_PER_LINE: usize = 6;

/// A profile as its file holds it, finished or not.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    /// How many servers the service has.
    pub servers: NonZeroU32,
    /// Who measured, where the file says it.
    pub run: Option<Run>,
    /// In the order of write share and load when it was read.
    pub steps: Vec<Step>,
    /// Where it was reached, at most once for each write share.
    pub saturations: Vec<Saturation>,
}

/// The `[run]` of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// A hash of the configuration it was measured with.
    pub config: u64,
    /// Whether it came to its end.
    pub is_complete: bool,
}

/// A measured load step.
#[derive(Clone, PartialEq, Debug)]
pub struct Step {
    /// What was measured.
    pub measured: LoadStep,
    /// Whether the queue grew during it: then its latencies depend on how long it lasted.
    pub is_saturated: bool,
}

/// Loads a finished profile.
///
/// # Errors
/// When the file cannot be read, is longer than [`DOCUMENT_BYTES_MAX`](crate::DOCUMENT_BYTES_MAX),
/// or as [`read`]: every problem with its line.
pub fn load(path: &Path) -> Result<Profile, Problems> {
    read(&Node::load(path)?)
}

/// Reads a finished profile.
///
/// # Errors
/// When it is not of this format and version, a number is out of its range, or the run that wrote
/// it was interrupted: every problem with its line.
pub fn read(node: &Node) -> Result<Profile, Problems> {
    node.read(|root| {
        let record = record(root);
        if record.run.is_some_and(|run| !run.is_complete) {
            let wrong = Mismatch::new("a profile that was interrupted", "a complete one");
            let hint = "run `evenkeel profile` again with the same configuration to finish it";
            root.problem("run", wrong.with_hint(hint));
        }
        record
    })
    .map(Profile::from)
}

/// Writes a profile in the canonical form. It can be read when it is within the bounds of this
/// module, has a step and a request in each step, and the text is not too long.
pub fn write(profile: &Profile) -> String {
    let step = |step: &LoadStep| Step { measured: step.clone(), is_saturated: false };
    write_record(&Record {
        servers: profile.servers,
        run: None,
        steps: profile.steps.iter().map(step).collect(),
        saturations: profile.saturations.clone(),
    })
}

/// A hash of what [`write()`] writes: the same on every machine and for every order of the steps.
pub fn hash(profile: &Profile) -> u32 {
    let mut hash = StableHash::default();
    hash.bytes(write(profile).as_bytes());
    hash.finish() as u32
}

/// Reads a profile with everything its file says, finished or not.
///
/// # Errors
/// As [`read`], but for interrupted runs.
pub fn read_record(node: &Node) -> Result<Record, Problems> {
    node.read(record)
}

/// Writes a profile and what is known of its run in the canonical form, as [`write()`].
pub fn write_record(record: &Record) -> String {
    let mut text = String::with_capacity(64 + 1_024 * record.steps.len());
    let intro = "# How long a service takes at each load, measured by `evenkeel profile`.";
    let servers = record.servers;
    put(&mut text, format_args!("{intro}\nformat = \"{FORMAT}\"\nversion = {VERSION}\n"));
    put(&mut text, format_args!("servers = {servers}\n"));
    if let Some(Run { config, is_complete }) = record.run {
        put(&mut text, format_args!("\n[run]\nconfig = \"{config:016x}\"\n"));
        put(&mut text, format_args!("complete = {is_complete}\n"));
    }
    let mut saturations = record.saturations.clone();
    saturations.sort_by(|a, b| a.write_share.value().total_cmp(&b.write_share.value()));
    for Saturation { write_share, load } in &saturations {
        let (share, load) = (positive_zero(write_share.value()), positive_zero(load.value()));
        let lines = format_args!("\n[[saturation]]\nwrite_share = {share:?}\nload = {load:?}\n");
        put(&mut text, lines);
    }
    for step in &in_order(&record.steps) {
        write_step(&mut text, step);
    }
    text
}

/// Writes a file whole or not at all: a new one beside it takes its place once it is on disk.
///
/// # Errors
/// When the folder cannot be written to.
pub fn save(path: &Path, record: &Record) -> io::Result<()> {
    let name = path.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
    let mut beside = name.to_owned();
    beside.push(".new");
    let beside = path.with_file_name(beside);
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(write_record(record).as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&beside, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&beside); // the first error is the one to tell
    })
}

impl From<Record> for Profile {
    fn from(record: Record) -> Self {
        let steps = record.steps.into_iter().map(|step| step.measured).collect();
        Self { servers: record.servers, steps, saturations: record.saturations }
    }
}

/// Puts text at the end of a text.
fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("writing to a String cannot fail");
}

fn write_step(text: &mut String, step: &Step) {
    let Step { measured, is_saturated } = step;
    let load = positive_zero(measured.load.value());
    let share = positive_zero(measured.write_share.value());
    put(text, format_args!("\n[[step]]\nload = {load:?}\nwrite_share = {share:?}\n"));
    put(text, format_args!("unanswered = {}\n", measured.unanswered));
    if *is_saturated {
        text.push_str("saturated = true\n");
    }
    text.push_str("latencies_ns = [");
    for (number, bucket) in measured.latencies.iter().enumerate() {
        text.push_str(if number % PAIRS_PER_LINE == 0 { "\n  " } else { " " });
        put(text, format_args!("[{}, {}],", bucket.upper.as_nanos(), bucket.count));
    }
    text.push_str(if measured.latencies.is_empty() { "]\n" } else { "\n]\n" });
}

/// A zero has one text.
fn positive_zero(number: f64) -> f64 {
    number + 0.0
}

/// By write share, load and then everything else: one order for each set of steps.
fn in_order(steps: &[Step]) -> Vec<Step> {
    let buckets = |step: &Step| -> Vec<_> {
        step.measured.latencies.iter().map(|bucket| (bucket.upper, bucket.count)).collect()
    };
    let mut steps = steps.to_vec();
    steps.sort_by(|a, b| {
        let (x, y) = (&a.measured, &b.measured);
        let numbers = positive_zero(x.write_share.value())
            .total_cmp(&positive_zero(y.write_share.value()))
            .then(positive_zero(x.load.value()).total_cmp(&positive_zero(y.load.value())));
        numbers
            .then(x.unanswered.cmp(&y.unanswered))
            .then(a.is_saturated.cmp(&b.is_saturated))
            .then_with(|| buckets(a).cmp(&buckets(b)))
    });
    steps
}

fn record(root: &mut Table<'_>) -> Record {
    let _ = root.key("format").choice(&[FORMAT]).required();
    let version = root.key("version").integer::<u32>();
    version.check("1, the version this release reads", |version| *version == VERSION).required();
    let servers = root.key("servers").integer().between(1..=SERVERS_MAX).required();
    let run = root.key("run").table(run).optional();
    let saturations = root.key("saturation");
    let saturations = saturations.list(|item| item.table(saturation).required()).or(Vec::new());
    let count = |steps: &Vec<Step>| (1..=STEPS_MAX).contains(&steps.len());
    let steps = root.key("step").list(|item| item.table(step).required());
    let steps = steps.check("1 to 4096 load steps", count).required();
    let record = Record {
        servers: NonZeroU32::new(servers).unwrap_or(NonZeroU32::MIN),
        run,
        steps: in_order(&steps),
        saturations,
    };
    if root.is_sound() {
        check_saturations(root, &record);
    }
    record
}

/// Each belongs to a step, and to a write share of its own.
fn check_saturations(root: &mut Table<'_>, record: &Record) {
    let mut place = 0;
    let _ = root.key("saturation").list(|item| {
        let share = record.saturations[place].write_share;
        let before = &record.saturations[..place];
        let came = || format!("the write share {}", share.value());
        if !record.steps.iter().any(|step| step.measured.write_share == share) {
            item.problem(Mismatch::new(came(), "that of a step"));
        }
        if before.iter().any(|other| other.write_share == share) {
            item.problem(Mismatch::new(format!("{} again", came()), "each once"));
        }
        place += 1;
    });
}

fn run(table: &mut Table<'_>) -> Run {
    let expected = "16 hexadecimal digits";
    let config = table.key("config").parsed(expected, 0, |text| {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        number.ok_or_else(|| Mismatch::new(format!("{} characters", text.len()), expected))
    });
    Run { config: config.required(), is_complete: table.key("complete").boolean().required() }
}

fn saturation(table: &mut Table<'_>) -> Saturation {
    Saturation { write_share: write_share(table), load: load_of(table) }
}

fn step(table: &mut Table<'_>) -> Step {
    let measured = LoadStep {
        load: load_of(table),
        write_share: write_share(table),
        latencies: latencies(table.key("latencies_ns")),
        unanswered: table.key("unanswered").integer().between(0..=COUNT_MAX).required(),
    };
    if table.is_sound() && measured.requests() == 0 {
        let wrong = Mismatch::new("a step without a request", "at least one request");
        table.problem("latencies_ns", wrong.with_hint("was the step cut short?"));
    }
    Step { measured, is_saturated: table.key("saturated").boolean().or(false) }
}

fn load_of(table: &mut Table<'_>) -> Rate {
    let load = table.key("load").rate().between(LOAD_MIN..=LOAD_MAX).required();
    Rate::new(load).expect("the range has no rate that is none")
}

fn write_share(table: &mut Table<'_>) -> Probability {
    // A negative zero is as good a share as zero, and must be equal to it in every way.
    Probability::clamped(positive_zero(table.key("write_share").probability().required()))
}

fn latencies(setting: Setting<'_>) -> Vec<Bucket> {
    let mut last = None;
    let buckets = setting.list(|item| {
        let bucket = bucket(&item);
        if let (Some(last), Some(bucket)) = (last, bucket)
            && bucket.upper <= last
        {
            let came = format!("{} ns after {} ns", bucket.upper.as_nanos(), last.as_nanos());
            item.problem(Mismatch::new(came, "buckets in ascending order, each once"));
        }
        last = bucket.map(|bucket| bucket.upper).or(last);
        bucket
    });
    let few = |buckets: &Vec<_>| buckets.len() <= BUCKETS_MAX;
    let buckets = buckets.check("a list of 4096 buckets at most", few).required();
    buckets.into_iter().flatten().collect()
}

fn bucket(item: &Setting<'_>) -> Option<Bucket> {
    const EXPECTED: &str = "a bucket [longest latency in nanoseconds, requests]";
    let mut place = 0;
    let longest = RECORDED_MAX.as_nanos() as u64;
    let pair = item.clone().list(|number| {
        let range = if place == 0 { 0..=longest } else { 1..=COUNT_MAX };
        place += 1;
        (place <= 2).then(|| number.integer::<u64>().between(range).required())
    });
    let pair = pair.check(EXPECTED, |pair| pair.len() == 2).required();
    let [Some(upper), Some(count)] = pair[..] else { return None };
    Some(Bucket { upper: std::time::Duration::from_nanos(upper), count })
}

#[cfg(test)]
mod tests;
