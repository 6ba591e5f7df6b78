//! What was foretold beside what came.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Result;
use evenkeel_replay::answer::Test;
use evenkeel_replay::day::{Ready, ReadyError};
use evenkeel_replay::question::{Question, ask};
use evenkeel_twin::rows::{Day, percentile};

use crate::turn::{Arm, Ran};
use crate::worlds::{Fault, Kind, faults};

/// The percentiles that are told, and by how much an answer may be off, as shares.
const BARS: [(f64, f64); 2] = [(0.99, 0.10), (0.999, 0.15)];
/// The same for a replica fewer.
const FEWER: f64 = 0.15;
/// Answers that a percentile needs above it, as in a replay.
const ABOVE_MIN: f64 = 100.0;
/// The first minute of a process is the slice.
const SLICE_NS: u64 = crate::SLICE_S * 1_000_000_000;

/// One question of one round.
struct Outcome {
    arm: Arm,
    /// Logarithms of what was foretold to what came, by percentile; none where it was refused.
    off: [Option<f64>; BARS.len()],
    /// Whether the interval holds the truth.
    is_held: [bool; BARS.len()],
    /// The same of the recorded policy's two runs of that round: below it nobody can be right.
    floor: [f64; BARS.len()],
    is_refused: bool,
    words: String,
}

/// All rounds of a world.
pub(crate) struct Report {
    kind: Kind,
    seconds: u64,
    rate: u64,
    outcomes: Vec<Outcome>,
}

impl Report {
    pub(crate) const fn new(kind: Kind, seconds: u64, rate: u64) -> Self {
        Self { kind, seconds, rate, outcomes: Vec::new() }
    }

    pub(crate) fn beginning(&self, rounds: u64) -> String {
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split_whitespace().next().unwrap_or("unknown");
        format!(
            "{}: {rounds} rounds, runs of {} s with {} requests/s; load average {load}",
            self.kind.name(),
            self.seconds,
            self.rate,
        )
    }

    /// Asks the day of a round, and compares with what its other runs were.
    pub(crate) fn judge(&mut self, round: u64, day: &Path, taken: &[(Arm, Ran)]) -> Result<()> {
        let ready = Ready::read(day);
        match &ready {
            Ok(ready) => println!("round {round}: {}", ready.described()),
            Err(error) => println!("round {round}: {error}"),
        }
        let faults = faults(self.kind, round, self.seconds);
        let stops = faults.iter().filter(|(.., fault)| matches!(fault, Fault::Stop(_)));
        let stops: Vec<f64> = stops.map(|(.., fault)| fault.length().as_secs_f64()).collect();
        println!("  truly {} stops ({:.1} s)", stops.len(), stops.iter().sum::<f64>());
        let mut taken: Vec<&(Arm, Ran)> =
            taken.iter().filter(|(arm, _)| *arm != Arm::Recorded).collect();
        // What two real runs differ by is the floor of all others.
        taken.sort_by_key(|(arm, _)| *arm != Arm::Again);
        let mut floor = [0.0; BARS.len()];
        for (arm, ran) in taken {
            let truth = evenkeel_records::read(&ran.day)?.day;
            let mut outcome = match arm {
                Arm::Again => again(&evenkeel_records::read(day)?.day, &truth),
                _ => foretold(ready.as_ref().map_err(ToString::to_string), *arm, &truth),
            };
            if *arm == Arm::Again {
                floor = outcome.off.map(|off| off.unwrap_or(0.0).abs());
            }
            outcome.floor = floor;
            println!("  {:<11}{}", arm.name(), outcome.words);
            self.outcomes.push(outcome);
        }
        Ok(())
    }

    /// Medians of all rounds, beside the bars.
    pub(crate) fn summary(&self) -> String {
        let mut text = format!("{}, medians of all rounds:\n", self.kind.name());
        for arm in Arm::ALL {
            let of_arm: Vec<&Outcome> = self.outcomes.iter().filter(|it| it.arm == arm).collect();
            if of_arm.is_empty() {
                continue;
            }
            let refused = of_arm.iter().filter(|it| it.is_refused).count();
            let _ = write!(text, "  {:<11}", arm.name());
            for (place, (share, bar)) in BARS.iter().enumerate() {
                let given = of_arm.iter().filter(|it| !it.is_refused);
                let off = given.filter_map(|it| Some(it.off[place]?.exp_m1().abs()));
                let mut off: Vec<f64> = off.collect();
                off.sort_by(f64::total_cmp);
                let bar = if arm == Arm::Fewer { FEWER } else { *bar };
                let Some(median) = median(&off) else { continue };
                let (least, most) = (off[0], off[off.len() - 1]);
                let _ = write!(
                    text,
                    "  p{} off by {:.1} % ({:.1}–{:.1}; bar {:.0} %",
                    share * 100.0,
                    100.0 * median,
                    100.0 * least,
                    100.0 * most,
                    100.0 * bar,
                );
                if arm == Arm::Again {
                    text.push(')');
                    continue;
                }
                let given = || of_arm.iter().filter(|it| !it.is_refused);
                let right = given().filter(|it| it.is_right(place, bar)).count();
                let held = given().filter(|it| it.is_held[place]).count();
                let _ = write!(text, " or as real runs differ: {right}, in the interval: {held})");
            }
            let what = if arm == Arm::Again { "real runs differ" } else { "refused" };
            let count = if arm == Arm::Again { of_arm.len() } else { refused };
            let _ = writeln!(text, "  {what}: {count} of {}", of_arm.len());
        }
        text
    }
}

/// What two real runs differ by: behind the slice, where both have the recorded policy.
fn again(day: &Day, other: &Day) -> Outcome {
    let [day, other] = [day, other].map(|day| {
        let requests = day.requests();
        let first_ns = requests.iter().map(|one| one.at_ns).min().unwrap_or(0);
        let behind = requests.iter().filter(|one| one.at_ns >= first_ns + SLICE_NS);
        let mut all: Vec<u64> = behind.filter_map(|one| one.latency_ns).collect();
        all.sort_unstable();
        all
    });
    let mut outcome = Outcome::new(Arm::Again);
    for (place, (share, _)) in BARS.iter().enumerate() {
        let both = enough(&day, *share).zip(enough(&other, *share));
        both.into_iter().for_each(|(one, other)| outcome.note(place, one, other));
    }
    outcome
}

/// What a replay says of an arm, beside its truth.
fn foretold(ready: Result<&Ready, String>, arm: Arm, truth: &Day) -> Outcome {
    let all = truth.latencies(0);
    let sets: Vec<String> = arm.asked().iter().map(|set| (*set).to_owned()).collect();
    let reply = ready.and_then(|ready| {
        let question = Question::read(ready, &sets).map_err(|error| error.to_string())?;
        ask(ready, &question, false).map_err(|refusal| ReadyError::from(refusal).to_string())
    });
    let mut outcome = Outcome::new(arm);
    let reply = match reply {
        Ok(reply) => reply,
        Err(refusal) => {
            let ms = enough(&all, BARS[0].0).map_or(f64::NAN, |ns| ns * 1e-6);
            outcome.is_refused = true;
            outcome.words = format!("  truly p99 {ms:.2} ms; {refusal}");
            return outcome;
        }
    };
    for (place, (share, _)) in BARS.iter().enumerate() {
        let mut told = reply.answer.percentiles.iter().filter(|one| one.share == *share);
        if let Some((told, truth)) = told.next().zip(enough(&all, *share)) {
            outcome.note(place, told.value_ns, truth);
            let [low, high] = told.interval_ns;
            outcome.is_held[place] = (low..=high).contains(&truth);
            let below = all.partition_point(|ns| (*ns as f64) < told.value_ns);
            let _ = write!(
                outcome.words,
                " [{:.2}–{:.2}], truly p{:.2}",
                low * 1e-6,
                high * 1e-6,
                100.0 * below as f64 / all.len() as f64
            );
        }
    }
    if let Some(range) = reply.range {
        outcome.is_refused = true;
        let _ = write!(outcome.words, "  a range: {range}");
    }
    let off = |test: Test| 100.0 * test.off.exp_m1();
    let _ = write!(outcome.words, "  backtest {:+.1} %", off(reply.backtest));
    if let Some(slice) = reply.slice {
        let _ = write!(outcome.words, ", slices {:+.1} %", off(slice));
    }
    outcome
}

impl Outcome {
    const fn new(arm: Arm) -> Self {
        Self {
            arm,
            off: [None; BARS.len()],
            is_held: [false; BARS.len()],
            floor: [0.0; BARS.len()],
            is_refused: false,
            words: String::new(),
        }
    }

    /// Whether a percentile is within its bar, or within what real runs differ by.
    fn is_right(&self, place: usize, bar: f64) -> bool {
        let off = self.off[place].unwrap_or(f64::INFINITY);
        off.exp_m1().abs() <= bar || off.abs() <= self.floor[place]
    }

    /// A percentile as it was told, and as it was, ns.
    fn note(&mut self, place: usize, told: f64, truth: f64) {
        self.off[place] = Some((told / truth).ln());
        let (percentile, off) = (100.0 * BARS[place].0, 100.0 * (told / truth - 1.0));
        let [told, truth] = [told, truth].map(|ns| ns * 1e-6);
        let _ = write!(self.words, "  p{percentile}: {told:.2} ms, truly {truth:.2} ({off:+.1} %)");
    }
}

/// A percentile with enough answers above it, ns.
fn enough(ascending: &[u64], share: f64) -> Option<f64> {
    let above = (1.0 - share) * ascending.len() as f64;
    percentile(ascending, share).filter(|_| above >= ABOVE_MIN - 0.5).map(|ns| ns as f64)
}

/// Of ascending values.
fn median(values: &[f64]) -> Option<f64> {
    let low = values.get(values.len().checked_sub(1)? / 2)?;
    Some(low.midpoint(values[values.len() / 2]))
}
