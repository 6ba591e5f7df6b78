//! `evenkeel profile`: a real service under one load after another, as a file of SLO curves.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail};
use evenkeel_load::profile::{
    CurveSummary, End, LoadSummary, Observer, ProfileConfig, ResumeError, StepDone, Summary,
    Upcoming, begin, profile, resume,
};
use evenkeel_load::{Progress, Stop};
use evenkeel_settings::profile::{Record, save};
use evenkeel_settings::{format_duration, parse_duration};

use crate::load::stop_on_interrupt;
use crate::output;
use crate::terminal::{Canvas, Table, ms, ms_if_known};

/// Measure the latency of a real service at each load, up to saturation.
///
/// Raises the load until the service is overloaded, then measures more points near saturation.
/// Writes the file after every step: Ctrl-C keeps the results, and the same command continues.
/// Example: evenkeel profile docs/profile-example.toml --objective 30ms
#[derive(Debug, clap::Args)]
pub(crate) struct ProfileArguments {
    /// The configuration; docs/profile.md describes every key.
    config: PathBuf,
    /// The file to write or to continue. Default: the name in the configuration, with
    /// `.profile.toml`, in the current folder.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Show the share of requests slower than this. Default: the one in the configuration.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    objective: Option<Duration>,
    /// Set a value of the configuration, as in `steps.duration=30s`; repeatable.
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// Ignore the results in the file and measure everything again.
    #[arg(long)]
    restart: bool,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &ProfileArguments) -> anyhow::Result<ExitCode> {
    let config = ProfileConfig::load(&arguments.config, &arguments.set)?;
    let objective = arguments.objective.or(config.objective);
    let default = || PathBuf::from(format!("{}.profile.toml", config.name));
    let out = arguments.out.clone().unwrap_or_else(default);
    let mut record = if arguments.restart { begin(&config) } else { earlier(&out, &config)? };
    let stop = Stop::new();
    stop_on_interrupt(&stop)?;
    let mut watch = Watch::new(&config, &record, &out, objective);
    let end = profile(&config, &mut record, &stop, &mut watch);
    watch.canvas.clear();
    let end = end.with_context(|| kept(&record, &out))?;
    if end == End::Interrupted {
        eprintln!("{}; the same command goes on from there", kept(&record, &out));
    }
    if !record.steps.is_empty() {
        show(arguments, &config, &record, objective, &out)?;
    }
    if watch.doubtful > 0 {
        eprintln!(
            "{} of {} steps were doubtful: before planning with this file, measure again with \
             --restart, from a machine that does nothing else",
            watch.doubtful, watch.measured
        );
    }
    Ok(if end == End::Complete { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

/// What an earlier run left, or nothing.
fn earlier(out: &Path, config: &ProfileConfig) -> anyhow::Result<Record> {
    match resume(out, config) {
        Ok(record) => Ok(record),
        Err(ResumeError::OtherConfig) => bail!(
            "{}: got a profile of another configuration, expected none or one of this; --restart \
             measures anew, --out names another file",
            out.display()
        ),
        Err(error) => {
            bail!("{error}\n(--restart replaces {}, --out names another file)", out.display())
        }
    }
}

fn kept(record: &Record, out: &Path) -> String {
    match record.steps.len() {
        0 => "nothing was measured".to_owned(),
        1 => format!("1 step is kept in {}", out.display()),
        steps => format!("{steps} steps are kept in {}", out.display()),
    }
}

fn show(
    arguments: &ProfileArguments,
    config: &ProfileConfig,
    record: &Record,
    objective: Option<Duration>,
    out: &Path,
) -> anyhow::Result<()> {
    let summary = Summary::of(&config.name, record, objective);
    let summary = match summary {
        // Only the first steps of an interrupted run are saturated and nothing else.
        Err(error) if !record.run.is_some_and(|run| run.is_complete) => {
            eprintln!("no curve yet: {error}");
            Summary::of(&config.name, record, None)
        }
        summary => summary,
    }?;
    if arguments.json {
        output::json(&summary)?;
    } else {
        output::text!("{}", words(&summary))?;
        if summary.complete {
            output::line!("\n{} (hash {})", out.display(), summary.hash)?;
        }
    }
    Ok(())
}

fn words(summary: &Summary) -> String {
    let curves = summary.curves.iter().map(|curve| {
        let head = head(summary, curve);
        format!("{head}\n{}", table(summary, curve))
    });
    curves.collect::<Vec<_>>().join("\n")
}

/// One sentence on a write share.
fn head(summary: &Summary, curve: &CurveSummary) -> String {
    let writes = writes(curve.write_share);
    let saturation = match curve.saturation_per_s {
        Some(load) => format!("saturated from {}/s on", ms(load)),
        None => "no saturation found".to_owned(),
    };
    let Some(objective_ms) = summary.objective_ms else {
        return format!("{}, {writes}: {saturation}", summary.name);
    };
    let objective = objective_words(objective_ms);
    let point = match (curve.five_percent_per_s, curve.saturation_per_s) {
        (Some(load), Some(end)) => {
            let share = load / end * 100.0;
            format!("5 % miss {objective} at {}/s, which is {share:.0} % of that", ms(load))
        }
        (Some(load), None) => format!("at most 5 % miss {objective} up to {}/s", ms(load)),
        (None, _) => format!("more than 5 % miss {objective} at any load"),
    };
    format!("{}, {writes}: {saturation}; {point}", summary.name)
}

fn table(summary: &Summary, curve: &CurveSummary) -> Table {
    let misses = summary.objective_ms.map(|ms| format!("miss {}", objective_words(ms)));
    let mut header = vec!["load", "requests", "unanswered", "p50 ms", "p95 ms", "p99 ms"];
    header.extend(misses.as_deref());
    header.push("");
    let mut table = Table::new(&header);
    for load in &curve.loads {
        let mut cells = vec![
            format!("{}/s", ms(load.load_per_s)),
            load.requests.to_string(),
            load.unanswered.to_string(),
        ];
        cells.extend([load.p50_ms, load.p95_ms, load.p99_ms].map(ms_if_known));
        cells.extend(load.violation.map(percent));
        let mark = if load.saturated { "saturated".to_owned() } else { bar(load.violation) };
        cells.push(format!("{mark:<BAR_WIDTH$}"));
        table.row(cells);
    }
    table
}

const BAR_WIDTH: usize = 20;

fn bar(share: Option<f64>) -> String {
    let filled = (share.unwrap_or(0.0) * BAR_WIDTH as f64).round() as usize;
    "█".repeat(filled.min(BAR_WIDTH))
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent >= 10.0 => format!("{percent:.0} %"),
        percent => format!("{percent:.1} %"),
    }
}

fn writes(share: f64) -> String {
    match share {
        0.0 => "reads only".to_owned(),
        1.0 => "writes only".to_owned(),
        share => format!("{} writes", percent(share)),
    }
}

fn objective_words(objective_ms: f64) -> String {
    format_duration(Duration::from_secs_f64(objective_ms / 1e3))
}

/// What a person sees while it runs: a line for each step, and on a terminal how the step goes.
struct Watch {
    canvas: Canvas,
    objective: Option<Duration>,
    warm_up: Duration,
    upcoming: Option<Upcoming>,
    out: PathBuf,
    /// Steps of this run, and those of them whose numbers may not be the service's.
    measured: usize,
    doubtful: usize,
}

impl Watch {
    fn new(
        config: &ProfileConfig,
        record: &Record,
        out: &Path,
        objective: Option<Duration>,
    ) -> Self {
        let steps = &config.steps;
        let mut canvas = Canvas::new();
        if !record.run.is_some_and(|run| run.is_complete) {
            let going_on = match record.steps.len() {
                0 => String::new(),
                1 => ", going on after 1 step".to_owned(),
                done => format!(", going on after {done} steps"),
            };
            canvas.keep(&format!(
                "profiling {}: steps of {} after {} of warm-up, into {}{going_on}",
                config.name,
                format_duration(steps.duration),
                format_duration(steps.warm_up),
                out.display()
            ));
        }
        let (warm_up, out) = (steps.warm_up, out.to_owned());
        Self { canvas, objective, warm_up, upcoming: None, out, measured: 0, doubtful: 0 }
    }

    fn step_line(&self, load: &LoadSummary, write_share: f64) -> String {
        let mut line = format!(
            "{:>9}/s  {:>13}  p50 {:>6} ms  p99 {:>6} ms",
            ms(load.load_per_s),
            writes(write_share),
            ms_if_known(load.p50_ms),
            ms_if_known(load.p99_ms)
        );
        if let (Some(missed), Some(objective)) = (load.violation, self.objective) {
            line += &format!("  {:>6} miss {}", percent(missed), format_duration(objective));
        }
        if load.unanswered > 0 {
            let share = load.unanswered as f64 / load.requests as f64;
            line += &format!("  {} unanswered", percent(share));
        }
        if load.saturated {
            line += "  saturated";
        }
        line
    }
}

impl Observer for Watch {
    fn begins(&mut self, upcoming: &Upcoming) {
        self.upcoming = Some(*upcoming);
    }

    fn goes(&mut self, progress: &Progress) {
        let Some(upcoming) = &self.upcoming else { return };
        let of_step = progress.elapsed.as_secs_f64() / upcoming.length.as_secs_f64().max(1e-9);
        let of_step = of_step.min(1.0);
        let all = (upcoming.done + upcoming.left) as f64;
        let share = (upcoming.done as f64 + of_step) / all;
        let left = upcoming.length.mul_f64(upcoming.left as f64 - of_step);
        let filled = (share * 30.0) as usize;
        let what = format!("{}/s, {}", ms(upcoming.load), writes(upcoming.write_share.value()));
        let in_flight = progress.in_flight + progress.waiting;
        let doing = match (progress.recent_p50_ms, progress.recent_p99_ms) {
            _ if progress.elapsed < self.warm_up => format!("warming up with {what}"),
            (Some(p50), Some(p99)) => {
                format!("measuring {what}: p50 {} ms, p99 {} ms", ms(p50), ms(p99))
            }
            _ => format!("measuring {what}"),
        };
        self.canvas.draw(&[
            format!(
                "{}{} step {} of about {all}, about {} left",
                "█".repeat(filled),
                "░".repeat(30 - filled),
                upcoming.done + 1,
                in_words(left)
            ),
            format!("  {doing}, {in_flight} in flight"),
        ]);
    }

    fn done(&mut self, done: &StepDone, record: &Record) -> io::Result<()> {
        let step = &done.step;
        let load = LoadSummary::of_step(&step.measured, step.is_saturated, self.objective);
        let mut line = self.step_line(&load, step.measured.write_share.value());
        let doubt = done.doubt.as_ref();
        line.push_str(if doubt.is_some() { "  (doubtful)" } else { "" });
        self.canvas.keep(&line);
        self.measured += 1;
        self.doubtful += usize::from(doubt.is_some());
        if let Some(failure) = done.failure.as_ref().filter(|_| done.failed > 0) {
            self.canvas.keep(&format!("           failed: {} × {failure}", done.failed));
        }
        // One reason is enough: where one step is doubtful, most are.
        if let Some(doubt) = doubt.filter(|_| self.doubtful == 1) {
            self.canvas.keep(&format!("           doubtful: {doubt}"));
        }
        save(&self.out, record)
    }
}

/// How long something will take, in words that promise no precision.
fn in_words(time: Duration) -> String {
    match time.as_secs() {
        0..90 => format!("{} s", time.as_secs()),
        90..5_400 => format!("{} min", (time.as_secs() + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!([1_240.0, 15.83, 2.5].map(ms), ["1240", "15.8", "2.50"]);
        assert_eq!([0.0, 0.0042, 0.5, 1.0].map(percent), ["0.0 %", "0.4 %", "50 %", "100 %"]);
        assert_eq!((writes(0.0), writes(0.1)), ("reads only".to_owned(), "10 % writes".to_owned()));
        let seconds = [5, 100, 7_200].map(|s| in_words(Duration::from_secs(s)));
        assert_eq!(seconds, ["5 s", "2 min", "2.0 h"]);
        assert_eq!(bar(Some(0.5)).chars().count(), BAR_WIDTH / 2);
    }
}
