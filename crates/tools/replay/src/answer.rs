//! What a day's tail would have been, or why nobody can tell.

use evenkeel_sim::Scenario;
use evenkeel_sim::scenario::Spelling;
use evenkeel_twin::Twin;
use evenkeel_twin::rows::percentile;
use thiserror::Error;

use crate::causes::Causes;
use crate::observed::{Observed, TESTED};
use crate::played::{self, Worlds};
use crate::world::{Change, dims};
pub use crate::world::{Setup, TWINS, WHOLE_MAX};

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
/// A slice whose own luck is more than this refutes nothing: who is off by half of twice as much
/// would pass.
const LUCK_MAX: f64 = 0.10;
/// Works may take this much longer in a crowd, as a logarithm, beside three standard errors: in
/// slots they do not. Where four cores are shared, crowds of a busy day take 9 % longer.
const CROWDING_MAX: f64 = 0.02;
/// Slots are busy for at most this share of any minute.
const BUSY_MAX: f64 = 0.9;
/// Where less of all answers than this have all content, dimmers have nothing left to leave out.
const FULL_MIN: f64 = 0.02;
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
    /// Share of answers with all content; `None` where all have it.
    pub full: Option<f64>,
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
    /// Its standard deviation by luck alone: that of the recorded answers, and of the worlds.
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
    /// Slices by which nobody is refuted.
    #[error(
        "slices: by luck alone p99 of {0} answers differs by {1:.0} %, expected at most 10 %: that \
        proves nothing; it takes some {2} answers of the explored policy: record longer, or \
        explore more"
    )]
    Luck(usize, f64, usize),
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
        "services take {:.0} % longer where many are present, expected next to nothing: replicas \
        serve all at once, which is not replayed yet", 100.0 * .0.exp_m1()
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
    /// Nobody knows what an answer with less content would cost.
    #[error(
        "the dimmer: all answers of the day that agents tell of had all their content, so nobody \
        knows what less of it saves; record with agents, on a day that dims (and name their \
        folders: --agents)"
    )]
    NoContent,
    /// Content was left out, and nobody knows by which rule.
    #[error(
        "answers had less content, and nobody knows by which dimmer: the agents' days must all \
        tell the same one (the law decides for each request, of one part, with as many cores as \
        `concurrency`), or the manifest's `like` must have a [dimmer]"
    )]
    NoDimmer,
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
fn known(twin: &Twin, like: &Scenario) -> Result<(), Refusal> {
    if twin.unseen > UNSEEN_MAX {
        return Err(Refusal::Unseen(twin.unseen));
    }
    if twin.dropped > DROPPED_MAX {
        return Err(Refusal::Dropped(twin.dropped));
    }
    if twin.content.is_some() && like.dimmer.is_none() {
        return Err(Refusal::NoDimmer);
    }
    if twin.crowding.value > CROWDING_MAX + 3.0 * twin.crowding.error {
        return Err(Refusal::Crowding(twin.crowding.value));
    }
    Ok(())
}

/// Whether the worlds do what was recorded: the day's policy, then the explored one.
///
/// # Errors
/// When they do not, when slices are too few to tell, or when too little is known.
pub fn tests(twin: &Twin, setup: &Setup<'_>, observed: &Observed) -> Result<[Test; 2], Refusal> {
    known(twin, setup.like)?;
    if setup.explored.is_none() {
        return Err(Refusal::NoSlice);
    }
    let (backtest, worlds) = backtest(twin, setup, observed)?;
    let slice = test(observed, &worlds, 1, ABOVE_SLICE_MIN)?;
    if !slice.passes() {
        return Err(Refusal::Slice(slice));
    }
    if slice.noise > LUCK_MAX {
        let answers = observed.latencies[1].len();
        // Luck goes with the root of how many there are.
        let needed = answers as f64 * (slice.noise / LUCK_MAX).powi(2);
        return Err(Refusal::Luck(answers, 100.0 * slice.noise, needed.ceil() as usize));
    }
    Ok([backtest, slice])
}

/// The first of these alone, which proves next to nothing.
///
/// # Errors
/// As [`tests`], except for slices.
pub fn backtest_alone(
    twin: &Twin,
    setup: &Setup<'_>,
    observed: &Observed,
) -> Result<Test, Refusal> {
    known(twin, setup.like)?;
    backtest(twin, setup, observed).map(|(backtest, _)| backtest)
}

fn backtest(
    twin: &Twin,
    setup: &Setup<'_>,
    observed: &Observed,
) -> Result<(Test, Worlds), Refusal> {
    let worlds = played::play(twin, setup, &Change::policy(setup.recorded), observed, true);
    let backtest = test(observed, &worlds, 0, ABOVE_MIN)?;
    if backtest.passes() { Ok((backtest, worlds)) } else { Err(Refusal::Backtest(backtest)) }
}

fn test(
    observed: &Observed,
    worlds: &Worlds,
    policy: usize,
    above_min: f64,
) -> Result<Test, Refusal> {
    let recorded = &observed.latencies[policy];
    let enough = recorded.len() as f64 * (1.0 - TESTED) >= above_min;
    let recorded_ns = percentile(recorded, TESTED).filter(|_| enough);
    let recorded_ns = recorded_ns.ok_or(Refusal::TooFew(recorded.len()))?;
    let law = worlds.law(policy, TESTED).ok_or(Refusal::TooFew(0))?;
    let noise = observed.blocks[policy].noise(&worlds.above(policy), law.days, recorded);
    Ok(Test { off: law.log - (recorded_ns as f64).ln(), noise })
}

/// What these percentiles would have been, for a day that has passed its [`tests`].
///
/// # Errors
/// When nobody can tell.
pub fn answer(
    twin: &Twin,
    setup: &Setup<'_>,
    observed: &Observed,
    change: &Change,
    shares: &[f64],
) -> Result<Answer, Refusal> {
    let answer = predict(twin, setup, observed, change, shares)?;
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
        // A dimmer keeps slots busy and queues short, for as long as there is content to leave out.
        let has_room = self.full.is_some_and(|full| full > FULL_MIN);
        if self.busy > BUSY_MAX && !has_room { Err(Refusal::Busy(self.busy)) } else { Ok(()) }
    }
}

/// What the twins say, sure or not.
///
/// # Errors
/// When there are too few answers for any of these percentiles.
pub fn predict(
    twin: &Twin,
    setup: &Setup<'_>,
    observed: &Observed,
    change: &Change,
    shares: &[f64],
) -> Result<Answer, Refusal> {
    let worlds = played::play(twin, setup, change, observed, false);
    let answers = worlds.answers(0);
    let enough = |share: &&f64| (1.0 - **share) * answers as f64 >= ABOVE_MIN - 0.5;
    let predicted = |share: &f64| {
        let law = worlds.law(0, *share)?;
        let scatter = STUDENT * law.deviation * (1.0 + 1.0 / law.days).sqrt();
        let half = scatter.hypot(MODEL);
        let value_ns = law.log.exp();
        let interval_ns = [(law.log - half).exp(), (law.log + half).exp()];
        Some(Predicted { share: *share, value_ns, interval_ns })
    };
    let percentiles: Vec<Predicted> = shares.iter().filter(enough).filter_map(predicted).collect();
    if percentiles.is_empty() {
        return Err(Refusal::TooFew(answers));
    }
    let (busy, causes, parts) = (worlds.busy, worlds.causes(), worlds.parts());
    let full = dims(twin, setup.like).then(|| worlds.full());
    Ok(Answer { percentiles, busy, full, causes, parts })
}
