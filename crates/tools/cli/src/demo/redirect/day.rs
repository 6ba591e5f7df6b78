//! A story of sites that happens twice at the same time, once with the first policy of the scenario
//! and once with the last: the same users, the same requests, the same surges and crashes.
//!
//! Side by side, because a machine has no two equal minutes: what disturbs one side disturbs both.

use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_load::{Progress, Stop};
use evenkeel_sim::fault::{Fault, Target, What};
use evenkeel_sim::scenario::Geography;
use evenkeel_sim::{RunReport, Scenario};
use serde::Serialize;

use super::super::DemoArguments;
use super::super::ground::Folder;
use super::outcome::{Run, Watch};
use super::sites::Sites;
use super::{Stage, mode};
use crate::load::stop_on_interrupt;
use crate::output;
use crate::terminal::{Canvas, Table, ms, ms_if_known, percent, sparkline};

/// Late requests with everything on, at most, in those with everything off.
const LATE_MAX: f64 = 0.5;
/// What is foretold may be wrong by this part of it, or by so much where it is next to nothing.
const NEAR: f64 = 0.2;
const NEAR_ALWAYS: f64 = 0.02;
/// Time of one character of a timeline.
const COLUMN_S: f64 = 2.0;

#[derive(Serialize)]
struct Document<'a> {
    sides: &'a [Side],
    scenario: &'a Scenario,
}

/// One side of the story.
#[derive(Serialize)]
struct Side {
    #[serde(flatten)]
    run: Run,
    /// The highest of the sites' 99th percentiles, by columns of the timeline.
    p99_ms_series: Vec<f64>,
}

pub(super) fn run(
    arguments: &DemoArguments,
    scenario: &Scenario,
    geography: &Geography,
) -> anyhow::Result<ExitCode> {
    scenario.faults.iter().try_for_each(check)?;
    let [first, .., last] = scenario.run.policies.as_slice() else {
        anyhow::bail!("run.policies: one policy; a story compares two, the first and the last");
    };
    let series = geography.rates.as_ref().context("series: a story has rates that vary")?;
    eprintln!("{}", scenario.description);
    let _ = evenkeel_runtime::files::raise(); // else what opens no connection says so
    let (folder, stop) = (Folder::make()?, Stop::new());
    stop_on_interrupt(&stop)?;
    let stage = Stage { scenario, geography, seed: arguments.seed, folder: &folder, stop };
    // Before anything is measured, which would otherwise share the processors with it.
    let policies = [first.as_str(), last.as_str()];
    let simulated = policies.map(|policy| evenkeel_sim::run(scenario, policy, arguments.seed));
    let sides = stage.tell(policies, simulated, series.duration())?;
    if arguments.json {
        output::json(&Document { sides: &sides, scenario })?;
    } else {
        output::text!("{}", closing_words(&stage, &sides))?;
    }
    Ok(match stage.stop.is_stopped() {
        true => ExitCode::from(130),
        false if failings(&sides).is_empty() => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

/// What cannot be done to the servers of sites must not be left out in silence.
fn check(Fault { at, target, what, .. }: &Fault) -> anyhow::Result<()> {
    let is_possible = match what {
        What::Crash | What::Restore | What::Slow { .. } | What::Pause { .. } => true,
        What::Fail { .. } | What::Hang { .. } | What::Break { .. } | What::Stall { .. } => false,
    };
    anyhow::ensure!(
        is_possible && matches!(target, Target::Server(_)),
        "faults: at {at:?}: {} of {target:?}; servers of sites crash, are restored, slow down and \
         pause, by their number",
        what.name()
    );
    Ok(())
}

impl Stage<'_> {
    /// Plays both sides at once.
    fn tell(
        &self,
        policies: [&str; 2],
        simulated: [RunReport; 2],
        length: Duration,
    ) -> anyhow::Result<Vec<Side>> {
        let mut both = Vec::new();
        for (name, policy) in ["first", "last"].iter().zip(policies) {
            let folder = self.folder.0.join(name);
            std::fs::create_dir_all(&folder)?;
            let (scenario, geography) = (self.scenario, self.geography);
            let mode = mode(policy)?;
            both.push(Sites::open(scenario, geography, policy, mode, self.seed, &folder)?);
        }
        let watch = |(sites, policy)| Watch::new(sites, self.geography, policy);
        let mut watches: Vec<Watch<'_>> = both.iter().zip(policies).map(watch).collect();
        eprintln!("Dashboards: http://{}/ and, of", both[1].admin(0));
        eprintln!("{}, http://{}/", policies[0], both[0].admin(0));
        let courses = [(); 2].map(|()| Mutex::new(Vec::new()));
        let sites = self.geography.sites.len();
        let told = |number: usize, progress: &Progress| {
            let course =
                &mut courses[number / sites].lock().unwrap_or_else(PoisonError::into_inner);
            note(course, progress);
        };
        let mut canvas = Canvas::new();
        let began = Instant::now();
        both.iter().for_each(Sites::begin);
        let all: Vec<&Sites> = both.iter().collect();
        let outcomes = self.load_all(&all, length, Duration::ZERO, told, || {
            let mut lines = Vec::new();
            for (watch, course) in watches.iter_mut().zip(&courses) {
                watch.look(began.elapsed(), true);
                lines.extend(watch.lines());
                let course = course.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(timeline("  p99", &course, highest(&course)));
            }
            canvas.draw(&lines);
        })?;
        canvas.clear();
        let courses = courses.map(|it| it.into_inner().unwrap_or_else(PoisonError::into_inner));
        let sides = watches.into_iter().zip(outcomes.chunks(sites)).zip(simulated).zip(courses);
        let side = |(((watch, outcomes), simulated), p99_ms_series): (((Watch<'_>, _), _), _)| {
            Side { run: watch.end(self.scenario, outcomes, simulated), p99_ms_series }
        };
        let sides = sides.map(side).collect();
        both.into_iter().try_for_each(Sites::close)?;
        Ok(sides)
    }
}

/// Notes how slow a site was in the column that runs.
fn note(course: &mut Vec<f64>, progress: &Progress) {
    let column = (progress.elapsed.as_secs_f64() / COLUMN_S) as usize;
    if course.len() <= column {
        course.resize(column + 1, 0.0);
    }
    course[column] = course[column].max(progress.recent_p99_ms.unwrap_or(0.0));
}

fn highest(course: &[f64]) -> f64 {
    course.iter().copied().fold(1.0, f64::max)
}

fn timeline(name: &str, course: &[f64], highest_ms: f64) -> String {
    format!("{name}  {}", sparkline(course.iter().copied(), highest_ms))
}

/// What both sides were, in one form.
struct Figures {
    late: f64,
    lean: f64,
    away: f64,
}

impl Side {
    fn measured(&self) -> Figures {
        let Run { violation_ratio, lean_ratio, redirected_ratio, .. } = &self.run;
        Figures { late: *violation_ratio, lean: lean_ratio.unwrap_or(0.0), away: *redirected_ratio }
    }

    fn foretold(&self) -> Figures {
        let priced = self.run.simulated.priced.unwrap_or_default();
        Figures { late: priced.late, lean: priced.lean, away: priced.away }
    }

    /// That other than as many were late as was foretold. How much goes to other sites, and how
    /// much content is left out, differs more from seed to seed, and costs little.
    fn surprise(&self) -> Option<String> {
        let (here, foretold) = (self.measured().late, self.foretold().late);
        let is_off = (here - foretold).abs() > (NEAR * foretold).max(NEAR_ALWAYS);
        let [late, foretold] = [here, foretold].map(percent);
        is_off.then(|| format!("{}: {late} late, foretold were {foretold}", self.run.policy))
    }
}

/// What was not as it should be.
fn failings(sides: &[Side]) -> Vec<String> {
    let mut all: Vec<String> = sides.iter().filter_map(Side::surprise).collect();
    for Side { run, .. } in sides {
        let failed = run.failed + run.timeouts;
        if failed > 0 {
            all.push(format!("{}: {failed} requests failed, expected none", run.policy));
        }
    }
    if let [off, on] = sides
        && on.measured().late > LATE_MAX * off.measured().late
    {
        let (on, off) = (percent(on.measured().late), percent(off.measured().late));
        all.push(format!("{on} late, expected at most half of {off}"));
    }
    all
}

fn closing_words(stage: &Stage<'_>, sides: &[Side]) -> String {
    let mut table = Table::of(
        "policy | late | lean | away | failed | p50 ms | p99 | simulated late | lean | away | \
         p50 ms | p99",
    );
    for side in sides {
        let Side { run, .. } = side;
        let shares = |it: Figures| [it.late, it.lean, it.away].map(percent);
        let mut cells = vec![run.policy.clone()];
        cells.extend(shares(side.measured()));
        cells.push((run.failed + run.timeouts).to_string());
        cells.extend([run.p50_ms, run.p99_ms].map(ms_if_known));
        cells.extend(shares(side.foretold()));
        cells.extend([run.simulated.p50_ms, run.simulated.p99_ms].map(ms));
        table.row(cells);
    }
    let mut text = format!(
        "\n{} sites, {:.0} requests/s on each side, both at the same time, with the same users, \
         surges and\ncrashes. Late: longer than {:.0} ms or failed. Lean: without optional \
         content. Away: served by\nanother site. The last five columns are the simulator's \
         results.\n\n{table}\n",
        stage.geography.sites.len(),
        stage.scenario.rate(),
        stage.scenario.workload.objective.as_secs_f64() * 1e3,
    );
    text += &events(stage.scenario, stage.geography);
    let highest_ms = sides.iter().map(|side| highest(&side.p99_ms_series)).fold(1.0, f64::max);
    for Side { run, p99_ms_series } in sides {
        let windows = run.simulated.windows.iter().map(|window| window.p99_ms).collect::<Vec<_>>();
        text += &format!("{}\n", run.policy);
        let row = timeline("  p99", p99_ms_series, highest_ms);
        text += &format!("{row}  up to {:.1} s\n", highest_ms * 1e-3);
        text += &format!("{}  as simulated\n", timeline("     ", &windows, highest_ms));
    }
    let doubts =
        sides.iter().flat_map(|side| &side.run.sites).filter_map(|site| site.doubt.as_ref());
    text += &doubts.take(1).map(|doubt| format!("Note: {doubt}\n")).collect::<String>();
    text + &failings(sides).iter().map(|it| format!("NOT AS EXPECTED: {it}\n")).collect::<String>()
}

/// A row with what happens when, above the timelines.
fn events(scenario: &Scenario, geography: &Geography) -> String {
    let column = |at: Duration| (at.as_secs_f64() / COLUMN_S) as usize;
    let mut marks: Vec<(usize, String)> = Vec::new();
    for surge in &geography.surges {
        marks.push((column(surge.at), format!("{} ×{}", surge.site, surge.factor)));
    }
    for Fault { at, what, .. } in &scenario.faults {
        let mark = (column(*at), what.name().to_owned());
        if !marks.contains(&mark) {
            marks.push(mark);
        }
    }
    marks.sort();
    let mut row = String::from("       ");
    for (column, words) in marks {
        let place = column + 7;
        let gap = place.saturating_sub(row.chars().count());
        row += &" ".repeat(gap);
        row += &format!("╷{words} ");
    }
    row + "\n"
}
