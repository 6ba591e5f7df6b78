//! What is asked about a day, and the reply.

use evenkeel_sim::Scenario;
use evenkeel_sim::scenario::Spelling;
use evenkeel_twin::rows::percentile;
use evenkeel_twin::twin::Estimate;

use crate::answer::{Answer, Refusal, Setup, Test, backtest_alone, predict, tests};
use crate::causes::Causes;
use crate::day::{Ready, ReadyError, believed, like, proxy};
use crate::world::Change;

/// The percentiles that are told.
pub const SHARES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];
/// A usual answer takes at least so many steps of the source's clock.
const STEPS_MIN: u64 = 5;
const KEYS: &str = "policy, hedge (on, off or a budget as 5%), hedge.quantile and its kin, \
     replicas (a number), load (a multiple, or +20%), dimmer.setpoint";

/// What is changed.
#[derive(Clone, Debug)]
pub struct Question {
    /// Policy, replicas, load.
    pub change: Change,
    /// What is known of the proxy, hedges as asked.
    pub like: Scenario,
}

/// What would have been, beside what was.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// How well the rebuilt world does what the day did.
    pub backtest: Test,
    /// The same for slices; `None` where there were none.
    pub slice: Option<Test>,
    /// The recorded percentiles of [`SHARES`], ns.
    pub recorded_ns: [Option<u64>; SHARES.len()],
    /// The 99th percentile of each part of the recorded day, ns.
    pub recorded_parts: Vec<Option<u64>>,
    /// What the slowest requests waited for on that day; `None` without agents.
    pub recorded_causes: Option<Causes>,
    /// Share of the recorded answers with all content; `None` where all had it.
    pub recorded_full: Option<f64>,
    /// What would have been.
    pub answer: Answer,
    /// Why the answer is a range and no number.
    pub range: Option<Refusal>,
}

impl Question {
    /// Reads what is to be changed: `policy=c3`, `hedge=5%`, `replicas=4`, `load=+20%`.
    ///
    /// # Errors
    /// When a key or a value is none that a replay has; and what cannot be asked.
    pub fn read(ready: &Ready, sets: &[String]) -> Result<Self, ReadyError> {
        let recorded = ready.setup()?.recorded;
        let mut policy = recorded.strip_suffix("+hedge").unwrap_or(recorded).to_owned();
        let mut is_hedged = policy != recorded;
        let mut change = Change::policy(recorded);
        let mut node = like(&ready.manifest)?;
        for set in sets {
            let wrong = |expected: &'static str| ReadyError::Set(set.clone(), expected);
            let (key, value) = set.split_once('=').ok_or(wrong(
                "KEY=VALUE, with one of the keys \
                policy, hedge, replicas, load, dimmer.setpoint",
            ))?;
            match (key.trim(), value.trim()) {
                ("policy", name) => {
                    is_hedged |= name.ends_with("+hedge");
                    name.strip_suffix("+hedge").unwrap_or(name).clone_into(&mut policy);
                }
                ("hedge", "on") => is_hedged = true,
                ("hedge", "off") => is_hedged = false,
                ("hedge", budget) => {
                    is_hedged = true;
                    node.set(&format!("run.hedge.budget={budget}"))?;
                }
                ("replicas", count) => {
                    let count: usize = count.parse().map_err(|_| wrong("a number of replicas"))?;
                    // Of those that never had a request nobody knows what they can do.
                    let all = ready.twin.pauses.len();
                    if count > all {
                        return Err(Refusal::MoreReplicas(count, all).into());
                    }
                    change.fewer = if count == 0 {
                        return Err(wrong("at least one replica"));
                    } else {
                        all - count
                    };
                }
                ("load", text) => {
                    change.load = load(text).ok_or(wrong("0.1 to 10, or a change as +20%"))?;
                }
                (key, value) if key.starts_with("dimmer.") => {
                    if ready.twin.content.is_none() {
                        return Err(Refusal::NoContent.into());
                    }
                    if ready.like.dimmer.is_none() {
                        return Err(Refusal::NoDimmer.into());
                    }
                    node.set(&format!("{key}={value}"))?;
                }
                (key, value) if key.starts_with("hedge.") => {
                    node.set(&format!("run.{key}={value}"))?;
                }
                _ => return Err(wrong(KEYS)),
            }
        }
        change.policy = if is_hedged { format!("{policy}+hedge") } else { policy };
        node.set(&format!("run.policies=[{:?}]", change.policy))?;
        let like = believed(proxy(&node, &ready.manifest)?, &ready.twin);
        Ok(Self { change, like })
    }
}

/// A multiple of the day's load, or a change of it in percent.
fn load(text: &str) -> Option<f64> {
    let load = match text.strip_suffix('%') {
        Some(percent) => 1.0 + percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.1..=10.0).contains(&load).then_some(load)
}

/// Asks a question about a day. With `unproven`, a day without slices is answered by a range.
///
/// # Errors
/// When there is no answer that can be trusted.
pub fn ask(ready: &Ready, question: &Question, unproven: bool) -> Result<Reply, Refusal> {
    let setup = ready.setup()?;
    let (twin, observed) = (&ready.twin, &ready.observed);
    coarse(ready)?;
    let (backtest, slice) = if unproven && setup.explored.is_none() {
        (backtest_alone(twin, &setup, observed)?, None)
    } else {
        let [backtest, slice] = tests(twin, &setup, observed)?;
        (backtest, Some(slice))
    };
    let asked = Setup { like: &question.like, ..setup };
    let change = &question.change;
    let hedges_blindly = Spelling::of(&change.policy).is_hedged && twin.correlation.is_none();
    let (answer, sure) = if hedges_blindly {
        (between(ready, &asked, change)?, Err(Refusal::NoPairs))
    } else {
        let answer = predict(twin, &asked, observed, change, &SHARES)?;
        let sure = answer.is_sure(twin, change);
        (answer, sure)
    };
    Ok(Reply {
        backtest,
        slice,
        recorded_ns: SHARES.map(|share| percentile(&observed.latencies[0], share)),
        recorded_parts: observed.parts.clone(),
        recorded_causes: observed.causes,
        recorded_full: twin.content.as_ref().map(|content| content.full),
        answer,
        range: sure.err().or(slice.is_none().then_some(Refusal::NoSlice)),
    })
}

/// From where copies have nothing in common to where they are the same work.
fn between(ready: &Ready, setup: &Setup<'_>, change: &Change) -> Result<Answer, Refusal> {
    let mut twin = ready.twin.clone();
    let mut answers = Vec::new();
    for value in [0.0, 1.0] {
        twin.correlation = Some(Estimate { value, error: 0.0 });
        answers.push(predict(&twin, setup, &ready.observed, change, &SHARES)?);
    }
    let (Some(other), Some(mut answer)) = (answers.pop(), answers.pop()) else {
        return Err(Refusal::NoPairs);
    };
    for (one, other) in answer.percentiles.iter_mut().zip(other.percentiles) {
        let [low, high] = one.interval_ns;
        one.interval_ns = [low.min(other.interval_ns[0]), high.max(other.interval_ns[1])];
        one.value_ns = (one.value_ns * other.value_ns).sqrt();
    }
    Ok(answer)
}

/// Whether the source's clock is fine enough for what it tells.
fn coarse(ready: &Ready) -> Result<(), Refusal> {
    let median_ns = percentile(&ready.observed.latencies[0], 0.5).unwrap_or(0);
    let step_ns = ready.manifest.resolution_ns;
    // A microsecond is as fine as files hold.
    if step_ns > 1_000 && median_ns < STEPS_MIN * step_ns {
        return Err(Refusal::Coarse(step_ns / 1_000, STEPS_MIN * step_ns / 1_000));
    }
    Ok(())
}
