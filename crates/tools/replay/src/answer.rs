//! What a day's tail would have been, or why nobody can tell.

use evenkeel_sim::scenario::Spelling;
use evenkeel_twin::Twin;
use evenkeel_twin::rows::{Day, percentile};
use thiserror::Error;

use crate::causes::Causes;
use crate::played::{self, Played};
use crate::world::Change;
pub use crate::world::{Setup, TWINS};

/// A backtest or slice may be off by this share.
const OFF_MAX: f64 = 0.10;
/// The agents may see this share of requests that nobody recorded.
const UNSEEN_MAX: f64 = 0.02;
/// This share of windows may be lost.
const DROPPED_MAX: f64 = 0.05;
/// Answers above a percentile, at least.
const ABOVE_MIN: f64 = 100.0;
/// Answers of a slice above its 99th percentile, at least.
const ABOVE_SLICE_MIN: f64 = 20.0;
/// Works may go with the number of requests present this much: in slots they do not.
const CROWDING_MAX: f64 = 0.1;
/// Slots are busy for at most this share of any minute.
const BUSY_MAX: f64 = 0.9;
/// The quantile of Student's t with seven degrees of freedom that leaves 5 % above: its interval
/// for one more value of eight's kind holds it in 90 %.
const STUDENT: f64 = 1.895;
/// What the rebuilt world itself is off by, as a share, beside the scatter of twins.
const MODEL: f64 = 0.03;

/// A percentile as it would have been.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Predicted {
    /// The share of answers below it.
    pub share: f64,
    /// The median of the twins, ns.
    pub value_ns: f64,
    /// A nominal 90 % interval, ns.
    pub interval_ns: [f64; 2],
}

/// What would have been.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The percentiles asked for that have enough answers above them.
    pub percentiles: Vec<Predicted>,
    /// The share of slots that are busy in the busiest minute.
    pub busy: f64,
    /// What the slowest requests would have waited for.
    pub causes: Causes,
    /// The 99th percentile of each part of the day, ns; none where it has too few answers.
    pub parts: Vec<Option<u64>>,
}

/// How well twins reproduce what was recorded, as shares of p99.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Test {
    /// How far off: 0.02 is 2 % above, as a logarithm.
    pub off: f64,
    /// Standard deviation of the same among twins.
    pub noise: f64,
}

impl Test {
    fn passes(self) -> bool {
        self.off.abs() <= OFF_MAX.ln_1p().max(2.0 * self.noise)
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Refusal {
    /// The twin does not do what the day did.
    #[error("backtest: p99 of the recorded policy is {:.0} % off", 100.0 * .0.off)]
    Backtest(Test),
    /// Nor what the slices did.
    #[error("slices: p99 of the explored policy is {:.0} % off", 100.0 * .0.off)]
    Slice(Test),
    /// Without slices a backtest proves next to nothing.
    #[error("no slice of the day ran under another policy: record with explore")]
    NoSlice,
    /// Others send requests too.
    #[error("{:.1} % of what agents served was recorded by nobody, expected at most 2 %: do all \
        proxies record?", 100.0 * .0)]
    Unseen(f64),
    /// Too much of the day is missing.
    #[error("{:.1} % of the day's windows were lost to overload, expected at most 5 %", 100.0 * .0)]
    Dropped(f64),
    /// Requests share cores.
    #[error(
        "works grow with the requests present (correlation {0:.2}): replicas serve all at \
        once, which is not replayed yet"
    )]
    Crowding(f64),
    /// The law of second copies is not known.
    #[error(
        "hedging without pairs: what two copies have in common is not known; record with pairs"
    )]
    NoPairs,
    /// Near saturation a coin decides.
    #[error("slots would be {:.0} % busy in a minute, expected at most 90 %", 100.0 * .0)]
    Busy(f64),
    /// Nobody knows what the day ran under.
    #[error("nobody knows the day's policy: import with --policy")]
    NoPolicy,
    /// Nothing is known of a replica that was not there.
    #[error("{0} replicas where the day had {1}: no row says how fast another one would be")]
    MoreReplicas(usize, usize),
    /// Content that is left out is not part of the rebuilt world yet.
    #[error("the dimmer's setpoint: content that is left out is not replayed yet")]
    Dimmer,
    /// Times are told too roughly.
    #[error(
        "times are told in steps of {0} us and half of all answers take less than {1} us: a log \
        must tell at least five steps of a usual answer"
    )]
    Coarse(u64, u64),
    /// Too few answers.
    #[error("{0} answers, too few for the percentiles asked for")]
    TooFew(usize),
}

/// What must be known before anything is foretold.
fn known(twin: &Twin) -> Result<(), Refusal> {
    if twin.unseen > UNSEEN_MAX {
        return Err(Refusal::Unseen(twin.unseen));
    }
    if twin.dropped > DROPPED_MAX {
        return Err(Refusal::Dropped(twin.dropped));
    }
    if twin.crowding.value.abs() > CROWDING_MAX {
        return Err(Refusal::Crowding(twin.crowding.value));
    }
    Ok(())
}

/// Whether twins do what was recorded: the day's policy, then the explored one.
///
/// # Errors
/// When they do not, or when too little is known.
pub fn tests(twin: &Twin, setup: &Setup<'_>, day: &Day) -> Result<[Test; 2], Refusal> {
    known(twin)?;
    if setup.explored.is_none() {
        return Err(Refusal::NoSlice);
    }
    let (backtest, twins) = backtest(twin, setup, day)?;
    let slice = test(day, &twins, 1, ABOVE_SLICE_MIN)?;
    if slice.passes() { Ok([backtest, slice]) } else { Err(Refusal::Slice(slice)) }
}

/// The first of these alone, which proves next to nothing.
///
/// # Errors
/// As [`tests`], except for slices.
pub fn backtest_alone(twin: &Twin, setup: &Setup<'_>, day: &Day) -> Result<Test, Refusal> {
    known(twin)?;
    backtest(twin, setup, day).map(|(backtest, _)| backtest)
}

fn backtest(twin: &Twin, setup: &Setup<'_>, day: &Day) -> Result<(Test, Vec<Played>), Refusal> {
    let twins = played::play(twin, setup, &Change::policy(setup.recorded), true);
    let backtest = test(day, &twins, 0, ABOVE_MIN)?;
    if backtest.passes() { Ok((backtest, twins)) } else { Err(Refusal::Backtest(backtest)) }
}

fn test(day: &Day, twins: &[Played], policy: u8, above_min: f64) -> Result<Test, Refusal> {
    let recorded = day.latencies(policy);
    let enough = recorded.len() as f64 * 0.01 >= above_min;
    let recorded_ns = percentile(&recorded, 0.99).filter(|_| enough);
    let recorded_ns = recorded_ns.ok_or(Refusal::TooFew(recorded.len()))?;
    let (mean, noise) = logs(twins, policy, 0.99).ok_or(Refusal::TooFew(0))?;
    Ok(Test { off: mean - (recorded_ns as f64).ln(), noise })
}

/// Mean and standard deviation of the logarithms of the twins' percentiles.
fn logs(twins: &[Played], policy: u8, share: f64) -> Option<(f64, f64)> {
    let latencies = |twin: &Played| percentile(&twin.latencies[usize::from(policy)], share);
    let log = |twin: &Played| Some((latencies(twin)?.max(1) as f64).ln());
    let logs: Option<Vec<f64>> = twins.iter().map(log).collect();
    let logs = logs.filter(|logs| logs.len() > 1)?;
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let squares = logs.iter().map(|log| (log - mean) * (log - mean)).sum::<f64>();
    Some((mean, (squares / (count - 1.0)).sqrt()))
}

/// What these percentiles would have been, for a day that has passed its [`tests`].
///
/// # Errors
/// When nobody can tell.
pub fn answer(
    twin: &Twin,
    setup: &Setup<'_>,
    change: &Change,
    shares: &[f64],
) -> Result<Answer, Refusal> {
    let answer = predict(twin, setup, change, shares)?;
    answer.is_sure(twin, change)?;
    Ok(answer)
}

impl Answer {
    /// Whether the question itself has an answer.
    ///
    /// # Errors
    /// When it hedges and nobody knows what copies have in common; and near saturation.
    pub fn is_sure(&self, twin: &Twin, change: &Change) -> Result<(), Refusal> {
        if Spelling::of(&change.policy).is_hedged && twin.correlation.is_none() {
            return Err(Refusal::NoPairs);
        }
        if self.busy > BUSY_MAX { Err(Refusal::Busy(self.busy)) } else { Ok(()) }
    }
}

/// What the twins say, sure or not.
///
/// # Errors
/// When there are too few answers for any of these percentiles.
pub fn predict(
    twin: &Twin,
    setup: &Setup<'_>,
    change: &Change,
    shares: &[f64],
) -> Result<Answer, Refusal> {
    let twins = played::play(twin, setup, change, false);
    let Some(first) = twins.first() else { return Err(Refusal::TooFew(0)) };
    let answers = first.latencies[0].len();
    let enough = |share: &&f64| (1.0 - **share) * answers as f64 >= ABOVE_MIN - 0.5;
    let predicted = |share: &f64| {
        let (mean, deviation) = logs(&twins, 0, *share)?;
        let count = twins.len() as f64;
        let scatter = STUDENT * deviation * (1.0 + 1.0 / count).sqrt();
        let half = scatter.hypot(MODEL);
        let value_ns = mean.exp();
        let interval_ns = [(mean - half).exp(), (mean + half).exp()];
        Some(Predicted { share: *share, value_ns, interval_ns })
    };
    let percentiles: Vec<Predicted> = shares.iter().filter(enough).filter_map(predicted).collect();
    if percentiles.is_empty() {
        return Err(Refusal::TooFew(answers));
    }
    let (busy, causes, parts) = (first.busy, first.causes, first.parts.clone());
    Ok(Answer { percentiles, busy, causes, parts })
}
