//! Placement problems as people and programs write them: who asks how often, how far sites are.
//!
//! Three forms, see docs/plan-placement.md: an instance in JSON, a TOML file that names tables in
//! CSV beside it, or a folder with `rtt.csv`, `counts.csv` and perhaps `domains.csv` and
//! `distributions.csv`. A folder of TOML files is many databases ([`Fleet`]). In a problem with a
//! table the column is the number of the field.

mod fleet;
mod instance;
#[cfg(feature = "parquet")]
mod parquet;
mod plan;
mod spread;
mod tables;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_planner::model::{Counts, Layout, RoundTrips};
use evenkeel_planner::replicas::Site;

use crate::problem::{Mismatch, Place, Problem, Problems};

pub use fleet::{Database, Fleet};
pub use instance::parse as parse_instance;
pub use spread::{Distributions, Varying, parse_distributions};
pub use tables::{
    Matrix, parse_capacities, parse_counts, parse_domains, parse_intervals, parse_matrix,
};

/// Sites or clients at most.
pub const PLACES_MAX: usize = 2_000;
/// Intervals at most.
pub const INTERVALS_MAX: usize = 10_000;
/// Files are not read further than this.
pub const BYTES_MAX: u64 = 64 << 20;
/// Longer round trips are none.
pub const RTT_MS_MAX: f64 = 600_000.0;
/// Higher counts are none.
pub const COUNT_MAX: f64 = 1e15;

/// A placement problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Input {
    /// What people call it.
    pub title: Option<String>,
    /// Where replicas can be.
    pub sites: Vec<String>,
    /// Where operations come from.
    pub clients: Vec<String>,
    /// In milliseconds, those of the newest interval.
    pub trips: RoundTrips,
    /// By interval; those of one table are the same [`Arc`].
    pub trips_by_interval: Vec<Arc<RoundTrips>>,
    /// The oldest first; at least one.
    pub intervals: Vec<Counts>,
    /// How long an interval is, if that was said.
    pub interval: Option<Duration>,
    /// How round trips vary, if that was measured.
    pub distributions: Option<Distributions>,
    /// What one operation takes of the capacity of the leader's site.
    pub leader_cost: f64,
    /// How fast the past fades: τ of equation 2.
    pub tau: f64,
    /// Numbers of replicas and voters that are asked for.
    pub sizes: Vec<Size>,
    /// Where everything is now, if that is known.
    pub today: Option<Layout>,
    /// By site.
    pub rules: Vec<Site>,
    /// The failure domain of every site, as a name.
    pub domains: Option<Vec<String>>,
    /// Voters are in at least so many domains.
    pub voter_domains: Option<usize>,
    /// Voters in one domain at most.
    pub domain_voters_max: Option<usize>,
    /// Replicas in one domain at most.
    pub domain_replicas_max: Option<usize>,
}

/// How many replicas, how many of them vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Replicas, the voters among them.
    pub replicas: usize,
    /// Voters, the leader among them.
    pub voters: usize,
}

impl Input {
    /// Reads a file or folder by what it is.
    ///
    /// # Errors
    /// Every problem with its file, row and column.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        if path.is_dir() {
            return plan::load_folder(path);
        }
        let is = |kind: &str| path.extension().is_some_and(|found| found == kind);
        if is("toml") {
            return plan::load(path);
        }
        if is("json") {
            let text = read(path)?;
            return instance::parse(text.as_bytes(), &path.display().to_string())
                .map_err(Problems::from);
        }
        let came = format!("the file {}", path.display());
        let expected = "a .json instance, a .toml plan, or a folder with rtt.csv and counts.csv";
        Err(whole(&path.display().to_string(), Mismatch::new(came, expected)).into())
    }
}

/// Reads failure domains: the domain of every one of these sites.
///
/// # Errors
/// As [`parse_domains`], and when the file cannot be read.
pub fn load_domains(path: &Path, sites: &[String]) -> Result<Vec<String>, Problems> {
    Ok(parse_domains(&read(path)?, &path.display().to_string(), sites)?)
}

/// A text of bounded length.
fn read(path: &Path) -> Result<String, Problem> {
    if path.extension().is_some_and(|kind| kind == "parquet") {
        return table(path);
    }
    let file = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let came = format!("no readable file ({error})");
        let what = Mismatch::new(came, "a file").with_hint("is the path right?");
        whole(&file, what)
    };
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(unreadable)?;
    opened.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > BYTES_MAX {
        return Err(whole(&file, Mismatch::new("more than 64 MiB", "at most 64 MiB")));
    }
    Ok(text)
}

#[cfg(feature = "parquet")]
fn table(path: &Path) -> Result<String, Problem> {
    parquet::text_of(path)
}

#[cfg(not(feature = "parquet"))]
fn table(path: &Path) -> Result<String, Problem> {
    let what = Mismatch::new("a table in Parquet", "CSV: this program was built without Parquet");
    let hint = "build it with --features parquet, or write CSV from it";
    Err(whole(&path.display().to_string(), what.with_hint(hint)))
}

fn whole(file: &str, what: Mismatch) -> Problem {
    Problem { at: Place::whole(file), path: String::new(), what }
}

#[cfg(test)]
mod tests;
