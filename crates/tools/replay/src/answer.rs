//! What a day's tail would have been, or why nobody can tell.

use evenkeel_sim::Scenario;
use evenkeel_sim::scenario::Spelling;
use evenkeel_sim::world::{RecordConfig, record};
use evenkeel_twin::Twin;
use evenkeel_twin::rows::{Day, percentile};
use thiserror::Error;

use crate::world::{Change, scenario};

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
/// Twins with works dealt anew.
pub const TWINS: u64 = 8;
/// The quantile of Student's t with seven degrees of freedom that leaves 5 % above: its interval
/// for one more value of eight's kind holds it in 90 %.
const STUDENT: f64 = 1.895;
/// What the rebuilt world itself is off by, as a share, beside the scatter of twins.
const MODEL: f64 = 0.03;

/// How a day is replayed.
#[derive(Clone, Debug)]
pub struct Setup<'a> {
    /// What is known of the proxy.
    pub like: &'a Scenario,
    /// The day's policy.
    pub recorded: &'a str,
    /// The policy that was explored, if any.
    pub explored: Option<&'a str>,
    /// Share of requests that were sent to two replicas.
    pub pairs: f64,
}

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
    /// Too few answers.
    #[error("{0} answers, too few for the percentiles asked for")]
    TooFew(usize),
}

/// The twins' days under a change.
pub fn days(twin: &Twin, setup: &Setup<'_>, change: &Change) -> Vec<Day> {
    let day = |number| {
        let scenario = scenario(twin, setup.like, change, number, false);
        record(&scenario, &change.policy, number, RecordConfig::default())
    };
    (0..TWINS).map(day).collect()
}

/// Whether twins do what was recorded: the day's policy, then the explored one.
///
/// # Errors
/// When they do not, or when too little is known.
pub fn tests(twin: &Twin, setup: &Setup<'_>, day: &Day) -> Result<[Test; 2], Refusal> {
    if twin.unseen > UNSEEN_MAX {
        return Err(Refusal::Unseen(twin.unseen));
    }
    if twin.dropped > DROPPED_MAX {
        return Err(Refusal::Dropped(twin.dropped));
    }
    if twin.crowding.value.abs() > CROWDING_MAX {
        return Err(Refusal::Crowding(twin.crowding.value));
    }
    let explored = setup.explored.ok_or(Refusal::NoSlice)?;
    let twins: Vec<Day> = (0..TWINS)
        .map(|number| {
            let change = Change::policy(setup.recorded);
            let scenario = scenario(twin, setup.like, &change, number, true);
            let explore = Some((explored.to_owned(), Vec::new()));
            let config = RecordConfig { explore, pairs: setup.pairs, ..RecordConfig::default() };
            record(&scenario, setup.recorded, number, config)
        })
        .collect();
    let backtest = test(day, &twins, 0, ABOVE_MIN)?;
    if !backtest.passes() {
        return Err(Refusal::Backtest(backtest));
    }
    let slice = test(day, &twins, 1, ABOVE_SLICE_MIN)?;
    if !slice.passes() {
        return Err(Refusal::Slice(slice));
    }
    Ok([backtest, slice])
}

fn test(day: &Day, twins: &[Day], policy: u8, above_min: f64) -> Result<Test, Refusal> {
    let recorded = day.latencies(policy);
    let enough = recorded.len() as f64 * 0.01 >= above_min;
    let recorded_ns = percentile(&recorded, 0.99).filter(|_| enough);
    let recorded_ns = recorded_ns.ok_or(Refusal::TooFew(recorded.len()))?;
    let (mean, noise) = logs(twins, policy, 0.99).ok_or(Refusal::TooFew(0))?;
    Ok(Test { off: mean - (recorded_ns as f64).ln(), noise })
}

/// Mean and standard deviation of the logarithms of the twins' percentiles.
fn logs(twins: &[Day], policy: u8, share: f64) -> Option<(f64, f64)> {
    let logs: Option<Vec<f64>> = twins
        .iter()
        .map(|day| Some((percentile(&day.latencies(policy), share)?.max(1) as f64).ln()))
        .collect();
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
    let days = days(twin, setup, change);
    let busy = days.first().map_or(0.0, |day| busy(day, twin.slots));
    let answers = days.first().map_or(0, |day| day.latencies(0).len());
    let enough = |share: &&f64| (1.0 - **share) * answers as f64 >= ABOVE_MIN - 0.5;
    let predicted = |share: &f64| {
        let (mean, deviation) = logs(&days, 0, *share)?;
        let twins = days.len() as f64;
        let scatter = STUDENT * deviation * (1.0 + 1.0 / twins).sqrt();
        let half = scatter.hypot(MODEL);
        let value_ns = mean.exp();
        let interval_ns = [(mean - half).exp(), (mean + half).exp()];
        Some(Predicted { share: *share, value_ns, interval_ns })
    };
    let percentiles: Vec<Predicted> = shares.iter().filter(enough).filter_map(predicted).collect();
    if percentiles.is_empty() {
        return Err(Refusal::TooFew(answers));
    }
    Ok(Answer { percentiles, busy })
}

/// The share of slots that served in the busiest minute.
fn busy(day: &Day, slots: u32) -> f64 {
    const MINUTE_NS: u64 = 60_000_000_000;
    let mut worked: Vec<(f64, u64)> = Vec::new();
    let mut replicas = 0;
    for (row, sent_ns) in day.rows.iter().zip(day.sent_ns()) {
        let minute = (sent_ns / MINUTE_NS) as usize;
        if worked.len() <= minute {
            worked.resize(minute + 1, (0.0, sent_ns));
        }
        worked[minute].0 += row.served.map_or(0.0, |served| served.service_ns as f64);
        worked[minute].1 = sent_ns;
        replicas = replicas.max(usize::from(row.replica) + 1);
    }
    let share = |(minute, (worked_ns, last_ns)): (usize, &(f64, u64))| {
        // The last minute is shorter; of a few seconds of it nothing follows.
        let length_ns = (last_ns - minute as u64 * MINUTE_NS).max(MINUTE_NS / 12) as f64;
        worked_ns / (length_ns * replicas as f64 * f64::from(slots))
    };
    worked.iter().enumerate().map(share).fold(0.0, f64::max)
}
