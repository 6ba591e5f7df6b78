//! Profiling: a real service under one load after another, from idle to saturation.
//!
//! *Signal.* Response times from the moment requests were due ([`crate`]): a service that
//! falls behind must not be asked less for it. *Statistic.* A histogram for each load and write
//! share, and what was not answered beside it; no quantile is stored, because an SLO curve asks a
//! histogram again for every objective and every distance.
//!
//! | file | does |
//! |---|---|
//! | `config`, `cassandra` | what people write |
//! | `offer` | one load, over HTTP or Cassandra's protocol |
//! | `search` | which load next: up by a factor, halving near saturation, then the steep part |
//! | `step` | one load: warm-up, measurement, verdict |
//! | `summary` | the curve: violations by load, saturation, the 5 % point |
//!
//! Arrivals are Poisson. Whatever is measured is measured at a *constant* load: a service whose
//! caches are cold after a surge, or that scales itself, is another service then.
//!
//! Source: Bogdanov et al., "Fast and accurate load balancing for geo-distributed storage systems"
//! (Kurma), SoCC 2018, section 4.1, which profiles by exponentially spaced loads up to saturation.

mod cassandra;
mod config;
mod offer;
mod search;
mod step;
mod summary;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use evenkeel_core::units::{Probability, Rate};
use evenkeel_geo::curve::Saturation;
use evenkeel_settings::profile::{Record, Run, Step, read_record};
use evenkeel_settings::{DOCUMENT_BYTES_MAX, Node, Problems};

pub use config::{HttpRequests, ProfileConfig, Requests, StepConfig, WRITE_SHARES_MAX};
pub use search::{Next, STEPS_PER_SHARE_MAX, SearchConfig, Tried};
pub use step::StepDone;
pub use summary::{CurveSummary, LoadSummary, Summary};

use crate::{LoadError, Progress, Stop};

/// Without another bound, the first load keeps the servers this busy if each does one at a time.
const FIRST_UTILISATION: f64 = 0.05;
/// How often a pause looks whether it shall end.
const PAUSE_LOOK: Duration = Duration::from_millis(20);

/// Who watches a profile grow.
pub trait Observer {
    /// A step begins.
    fn begins(&mut self, upcoming: &Upcoming);
    /// How it goes, about five times a second.
    fn goes(&mut self, progress: &Progress);
    /// A step is done and in the record, which is to be saved now.
    ///
    /// # Errors
    /// When it cannot be saved: profiling ends.
    fn done(&mut self, done: &StepDone, record: &Record) -> io::Result<()>;
}

/// A step that begins.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Upcoming {
    /// Requests per second.
    pub load: f64,
    /// The share of writes among them.
    pub write_share: Probability,
    /// Steps that are done.
    pub done: usize,
    /// Steps left, this one included, as far as one can tell.
    pub left: usize,
    /// How long it will take: warm-up and measurement.
    pub length: Duration,
}

/// How profiling ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Everything is measured.
    Complete,
    /// It was stopped; the record holds the steps before.
    Interrupted,
}

/// Why profiling could not go on. The record holds the steps before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The load generator could not start.
    #[error("{0}")]
    Load(LoadError),
    /// No request was answered.
    #[error(
        "no request of {load}/s was answered, expected answers with a status of 2xx: {failure}"
    )]
    Silent {
        /// The load, in requests per second.
        load: f64,
        /// What the first failure was.
        failure: String,
    },
    /// Even this load is not sustained.
    #[error(
        "the service does not even sustain {load}/s: more requests fail or wait with every second \
         (is it overloaded by others, or do its answers fail?)"
    )]
    Hopeless {
        /// The load, in requests per second.
        load: f64,
    },
    /// The result could not be saved.
    #[error("cannot save the profile: {0}")]
    Save(io::Error),
}

/// Why a file cannot be gone on with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(Problems),
    /// It was measured with another configuration.
    #[error("it was measured with another configuration")]
    OtherConfig,
}

/// An empty record, or what an earlier run with the same configuration left in this file.
///
/// # Errors
/// When there is a file that is no profile of this configuration.
pub fn resume(path: &Path, config: &ProfileConfig) -> Result<Record, ResumeError> {
    if !path.exists() {
        return Ok(begin(config));
    }
    let record = Node::load(path).and_then(|node| read_record(&node));
    let record = record.map_err(ResumeError::Unreadable)?;
    match record.run {
        Some(run) if run.config == config.hash => Ok(record),
        _ => Err(ResumeError::OtherConfig),
    }
}

/// A record without a step.
pub fn begin(config: &ProfileConfig) -> Record {
    Record {
        servers: config.servers,
        run: Some(Run { config: config.hash, is_complete: false }),
        steps: Vec::new(),
        saturations: Vec::new(),
    }
}

/// Measures what the record lacks, step by step.
///
/// # Errors
/// When the service answers nothing, sustains nothing, or a step cannot be made or saved.
pub fn profile(
    config: &ProfileConfig,
    record: &mut Record,
    stop: &Stop,
    observer: &mut dyn Observer,
) -> Result<End, ProfileError> {
    let Some(first) = first_load(config, record, stop)? else { return Ok(End::Interrupted) };
    for (place, &share) in config.write_shares.iter().enumerate() {
        while let Next::Offer(load) = next(config, record, share, first)? {
            let left = steps_left(config, record, place, first);
            let length = config.steps.warm_up + step::measured_for(config, load);
            let done = record.steps.len();
            observer.begins(&Upcoming { load, write_share: share, done, left, length });
            let seed = config.seed.wrapping_add(done as u64);
            let measured = step::measure(config, load, share, seed, stop, |progress| {
                observer.goes(progress);
            });
            let Some(measured) = measured? else { return Ok(End::Interrupted) };
            check_answered(load, &measured)?;
            record.steps.push(measured.step.clone());
            settle(config, record, first);
            check_size(record)?;
            observer.done(&measured, record).map_err(ProfileError::Save)?;
            // What an overload left behind belongs to no other step.
            let pause =
                if measured.step.is_saturated { config.steps.warm_up } else { Duration::ZERO };
            if !paused(pause, stop) {
                return Ok(End::Interrupted);
            }
        }
    }
    Ok(End::Complete)
}

/// `None` when it was stopped.
fn first_load(
    config: &ProfileConfig,
    record: &Record,
    stop: &Stop,
) -> Result<Option<f64>, ProfileError> {
    let lowest = record.steps.iter().map(|step| step.measured.load.value()).reduce(f64::min);
    if let Some(known) = config.search.rate_min.or(lowest) {
        return Ok(Some(known));
    }
    let Some(alone) = step::alone(config, stop)? else { return Ok(None) };
    let each = 1.0 / alone.as_secs_f64().max(1e-6);
    let load = FIRST_UTILISATION * f64::from(config.servers.get()) * each;
    let end = config.search.rate_max.unwrap_or(f64::INFINITY);
    Ok(Some(load.clamp(0.1, 10_000.0).min(end / 10.0)))
}

fn next(
    config: &ProfileConfig,
    record: &Record,
    share: Probability,
    first: f64,
) -> Result<Next, ProfileError> {
    match config.search.next(first, &tried(record, share)) {
        Next::Hopeless(load) => Err(ProfileError::Hopeless { load }),
        next => Ok(next),
    }
}

fn tried(record: &Record, share: Probability) -> Vec<Tried> {
    let of_share = record.steps.iter().filter(|step| step.measured.write_share == share);
    let tried =
        |step: &Step| Tried { load: step.measured.load.value(), is_saturated: step.is_saturated };
    of_share.map(tried).collect()
}

/// Notes the saturations that are known, and whether all is.
fn settle(config: &ProfileConfig, record: &mut Record, first: f64) {
    let ends: Vec<(Probability, Next)> = config
        .write_shares
        .iter()
        .map(|&share| (share, config.search.next(first, &tried(record, share))))
        .collect();
    let saturation = |&(write_share, end): &(Probability, Next)| match end {
        Next::Done(Some(load)) => {
            Some(Saturation { write_share, load: Rate::new(load).expect("a load is a rate") })
        }
        _ => None,
    };
    record.saturations = ends.iter().filter_map(saturation).collect();
    let is_complete = ends.iter().all(|(_, end)| matches!(end, Next::Done(_)));
    record.run = Some(Run { config: config.hash, is_complete });
}

/// Of the write share at `place` and those after it, if all saturate where the last one did.
fn steps_left(config: &ProfileConfig, record: &Record, place: usize, first: f64) -> usize {
    let highest = |is_saturated: bool| {
        let steps = record.steps.iter().filter(move |step| step.is_saturated == is_saturated);
        steps.map(|step| step.measured.load.value())
    };
    let known = record.saturations.last().map(|of| of.load.value());
    let saturated = highest(true).reduce(f64::min);
    let sustained = highest(false).reduce(f64::max).unwrap_or(first);
    // A factor of ten above what is known is a guess as good as any.
    let guess = known.or(saturated).unwrap_or(sustained * 10.0);
    let left = |&share| config.search.steps_left(first, &tried(record, share), guess);
    config.write_shares[place..].iter().map(left).sum::<usize>().max(1)
}

fn check_answered(load: f64, done: &StepDone) -> Result<(), ProfileError> {
    if done.step.measured.latencies.is_empty() {
        let failure = done.failure.clone().unwrap_or_else(|| "no request became due".to_owned());
        return Err(ProfileError::Silent { load, failure });
    }
    Ok(())
}

/// A file that could not be read again would lose everything.
fn check_size(record: &Record) -> Result<(), ProfileError> {
    let bytes = evenkeel_settings::profile::write_record(record).len();
    if bytes <= DOCUMENT_BYTES_MAX {
        return Ok(());
    }
    let problem = format!(
        "the profile would be {bytes} bytes long, expected at most {DOCUMENT_BYTES_MAX} (fewer \
         write shares, or loads per decade?)"
    );
    Err(ProfileError::Save(io::Error::other(problem)))
}

/// Whether a pause came to its end.
fn paused(pause: Duration, stop: &Stop) -> bool {
    let end = Instant::now() + pause;
    while !stop.is_stopped() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(PAUSE_LOOK));
    }
    false
}

impl From<LoadError> for ProfileError {
    fn from(error: LoadError) -> Self {
        Self::Load(error)
    }
}
