//! `evenkeel replay`: a recorded day again, with changes.

mod page;

use std::path::PathBuf;
use std::process::ExitCode;

use evenkeel_replay::answer::{Predicted, Test};
use evenkeel_replay::causes::Causes;
use evenkeel_replay::day::{Ready, ReadyError};
use evenkeel_replay::question::{Question, Reply, SHARES, ask};
use serde_json::{Value, json};

use crate::output;
use crate::terminal::Table;

/// No answer can be trusted.
pub(crate) const REFUSED: u8 = 3;

/// Replay a recorded day with a change: what its tail would have been, or why nobody can tell.
///
/// A day is recorded by `evenkeel run` with `[record]` or by `evenkeel sim --record`, or imported
/// from a log by `evenkeel import`. The answer is refused (exit 3) where the rebuilt world does not
/// do what the day did. See docs/replay.md.
///
/// Example: evenkeel replay DAY --set policy=c3 --set hedge=5%
#[derive(Debug, clap::Args)]
pub(crate) struct ReplayArguments {
    /// The directory of the day.
    day: PathBuf,
    /// What is changed: policy=c3, hedge=on|off|5%, hedge.quantile=0.9, replicas=4, load=+20%,
    /// dimmer.setpoint=200ms; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folders of agents' days, as `[record]` of the agents wrote them (the whole directory, one
    /// agent or one day): what they saw completes the day; repeatable.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    agents: Vec<PathBuf>,
    /// Answer by a range where no slice of the day ran under another policy: the backtest alone
    /// proves next to nothing.
    #[arg(long)]
    unproven: bool,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// Write a page with charts to this file.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

pub(crate) fn run(arguments: &ReplayArguments) -> anyhow::Result<ExitCode> {
    match replayed(arguments) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => match error.downcast_ref::<ReadyError>() {
            Some(refusal) if refusal.is_refusal() => {
                if arguments.json {
                    output::json(&json!({ "refused": refusal.to_string() }))?;
                }
                eprintln!("evenkeel: {refusal}");
                Ok(ExitCode::from(REFUSED))
            }
            _ => Err(error),
        },
    }
}

fn replayed(arguments: &ReplayArguments) -> anyhow::Result<()> {
    let ready = Ready::read_with(&arguments.day, &arguments.agents)?;
    let question = Question::read(&ready, &arguments.set)?;
    let reply = ask(&ready, &question, arguments.unproven).map_err(ReadyError::from)?;
    if let Some(file) = &arguments.html {
        output::page("report", file, &page::page(&ready, &question, &reply))?;
    }
    if arguments.json {
        output::json(&document(&ready, &question, &reply))
    } else {
        output::text!("{}", text(&ready, &question, &reply))
    }
}

fn ms(ns: f64) -> String {
    crate::terminal::ms(ns * 1e-6)
}

fn percentile(share: f64) -> String {
    format!("p{}", (share * 1e4).round() / 100.0)
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", 100.0 * share.exp_m1())
}

/// What is changed, in a few words.
fn asked(question: &Question, reply: &Reply) -> String {
    let mut text = question.change.policy.clone();
    if question.change.fewer > 0 {
        text += &format!(", {} fewer", question.change.fewer);
    }
    if question.change.load != 1.0 {
        text += &format!(", load {}", (question.change.load * 1e4).round() / 1e4);
    }
    if let (Some(_), Some(dimmer)) = (reply.answer.full, &question.like.dimmer) {
        let setpoint_ms = dimmer.setpoint.as_secs_f64() * 1e3;
        text += &format!(", dimmed to {} ms", (setpoint_ms * 1e3).round() / 1e3);
    }
    text
}

/// The answer to a percentile, if the day has enough answers above it.
fn found(reply: &Reply, share: f64) -> Option<&Predicted> {
    reply.answer.percentiles.iter().find(|one| one.share == share)
}

/// What the rebuilt world is and how well it does what the day did: lines of a name and words.
fn facts(ready: &Ready, reply: &Reply) -> Vec<(&'static str, String)> {
    let manifest = &ready.manifest;
    let policy = manifest.policies.first().map_or("?", String::as_str);
    let mut facts = vec![
        (
            "day",
            format!(
                "{} requests in {:.1} min, {} replicas, {policy}, recorded by {}",
                ready.twin.requests.len(),
                ready.twin.length_ns() as f64 / 60e9,
                manifest.replicas.len(),
                manifest.by,
            ),
        ),
        ("world", ready.described()),
    ];
    if ready.agents > 0 {
        facts.push(("agents", format!("{} days joined the proxy's", ready.agents)));
    }
    if ready.unfinished > 0 {
        facts.push(("left out", format!("{} files that were not closed", ready.unfinished)));
    }
    let mut backtest = format!(
        "p99 of {policy} {} (noise {})",
        percent(reply.backtest.off),
        percent(reply.backtest.noise)
    );
    if let (Some(slice), Some(explored)) = (reply.slice, manifest.policies.get(1)) {
        backtest += &format!(
            ", of slices under {explored} {} (noise {})",
            percent(slice.off),
            percent(slice.noise)
        );
    }
    facts.push(("backtest", backtest));
    facts.push(("busiest", format!("slots {:.0} % busy in a minute", 100.0 * reply.answer.busy)));
    if let (Some(recorded), Some(full)) = (reply.recorded_full, reply.answer.full) {
        let words = format!("{:.1} % of answers, recorded {:.1} %", 100.0 * full, 100.0 * recorded);
        facts.push(("full", words));
    }
    if let Some(range) = reply.range {
        facts.push(("a range", range.to_string()));
    }
    facts
}

fn table(question: &Question, reply: &Reply) -> Table {
    let asked = format!("{} ms", asked(question, reply));
    let mut table = Table::new(&["", "recorded ms", &asked, "90 % interval", "sure"]);
    for (share, recorded_ns) in SHARES.into_iter().zip(reply.recorded_ns) {
        let recorded = recorded_ns.map_or("-".to_owned(), |ns| ms(ns as f64));
        let mut cells = vec![percentile(share), recorded];
        match found(reply, share) {
            None => cells.extend(["-", "too few answers", "no"].map(str::to_owned)),
            Some(one) => {
                let [low, high] = one.interval_ns;
                let is_sure = reply.range.is_none();
                cells.push(if is_sure { ms(one.value_ns) } else { "a range".to_owned() });
                cells.push(format!("{} to {}", ms(low), ms(high)));
                cells.push(if is_sure { "yes" } else { "no" }.to_owned());
            }
        }
        table.row(cells);
    }
    table
}

/// What the slowest waited for, on that day and in the answer.
fn slowest(reply: &Reply) -> Table {
    let mut table = Table::new(&["the slowest 0.1 % waited for", "recorded", "then"]);
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let recorded = reply.recorded_causes.map(|causes| causes.named());
    for (place, (name, share)) in reply.answer.causes.named().into_iter().enumerate() {
        let recorded = recorded.map_or("-".to_owned(), |named| percent(named[place].1));
        table.row(vec![name.to_owned(), recorded, percent(share)]);
    }
    table
}

fn text(ready: &Ready, question: &Question, reply: &Reply) -> String {
    let facts = facts(ready, reply);
    let facts: String = facts.iter().map(|(name, words)| format!("{name:<9} {words}\n")).collect();
    format!("{facts}\n{}\n{}", table(question, reply), slowest(reply))
}

fn tested(test: Test) -> Value {
    let (off, noise) = (test.off.exp_m1(), test.noise.exp_m1());
    json!({ "off_ratio": off, "noise_ratio": noise })
}

fn document(ready: &Ready, question: &Question, reply: &Reply) -> Value {
    let in_ms = |ns: f64| ns * 1e-6;
    let percentiles = SHARES.into_iter().zip(reply.recorded_ns).map(|(share, recorded_ns)| {
        let one = found(reply, share);
        json!({
            "percentile": percentile(share),
            "recorded_ms": recorded_ns.map(|ns| in_ms(ns as f64)),
            "predicted_ms": one.filter(|_| reply.range.is_none()).map(|one| in_ms(one.value_ns)),
            "interval_ms": one.map(|one| one.interval_ns.map(in_ms)),
        })
    });
    let causes = |causes: Causes| -> Value {
        let pairs = causes.named().map(|(name, share)| (name.to_owned(), json!(share)));
        Value::Object(pairs.into_iter().collect())
    };
    json!({
        "asked": asked(question, reply),
        "agents_days": ready.agents,
        "requests": ready.twin.requests.len(),
        "world": ready.described(),
        "backtest": tested(reply.backtest),
        "slices": reply.slice.map(tested),
        "busy_ratio": reply.answer.busy,
        "full_ratio": reply.answer.full,
        "full_recorded_ratio": reply.recorded_full,
        "range": reply.range.map(|refusal| refusal.to_string()),
        "percentiles": percentiles.collect::<Vec<_>>(),
        "slowest_recorded": reply.recorded_causes.map(causes),
        "slowest": causes(reply.answer.causes),
    })
}
