//! `evenkeel paper`: a paper's claims, each run again and judged.

mod chart;
mod number;
mod page;
mod plot;
mod scatter;
mod standing;
mod text;
mod timeline;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use evenkeel_papers::{Choice, Options, PAPERS, Paper, PaperReport};
use evenkeel_sim::RunReport;

use crate::flag::FlagError;
use crate::jobs::run_all;
use crate::output;
use crate::terminal::{Progress, count};

/// Check the claims of a paper: run its experiments and compare the results.
///
/// Exit 1 if a verdict differs from the one recorded in papers/NAME/claims.toml.
///
/// Example: evenkeel paper brownout --quick
#[derive(Debug, clap::Args)]
pub(crate) struct PaperArguments {
    /// The paper, or `all`.
    #[arg(value_parser = name)]
    name: String,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Write a report with charts to this folder, as NAME.html.
    #[arg(long, value_name = "DIR")]
    html: Option<PathBuf>,
    /// Random seeds, at least two; both ends included. Default 1..10, with --quick 1..3.
    #[arg(long, value_name = "FROM..TO", value_parser = crate::sim::seeds)]
    seeds: Option<RangeInclusive<u64>>,
    /// Fewer settings, half the requests, three seeds; only clear contradictions count.
    #[arg(long)]
    quick: bool,
    /// Run these experiments only, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    experiments: Vec<String>,
    /// Visit these settings of experiments only, such as `pause,any20`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    settings: Vec<String>,
    /// Run this policy in place of those that the paper compares; repeatable.
    #[arg(long = "policy", value_name = "POLICY")]
    policies: Vec<String>,
    /// Results of other programs for comparison: a folder with c3-absim.csv and brownout.csv, or
    /// the file of the paper. Without a file its comparison is skipped and reported as skipped.
    #[arg(long, value_name = "PATH", default_value = "../shared/data/reference")]
    reference: PathBuf,
}

/// A reference file is some hundred rows; more than this is another file.
const REFERENCE_BYTES_MAX: u64 = 16 << 20;

fn name(text: &str) -> Result<String, FlagError> {
    let known = PAPERS.map(|paper| paper.name).join(", ");
    let is_known = text == "all" || PAPERS.iter().any(|paper| paper.name == text);
    let wrong = || FlagError::Expected(format!("all or one of {known}"));
    is_known.then(|| text.to_owned()).ok_or_else(wrong)
}

pub(crate) fn run(arguments: &PaperArguments) -> anyhow::Result<ExitCode> {
    let seeds = seeds(arguments)?;
    let chosen = |paper: &&&Paper| arguments.name == "all" || arguments.name == paper.name;
    let mut reports = Vec::new();
    for paper in PAPERS.iter().filter(chosen) {
        let reference = read_reference(&arguments.reference, paper)?;
        let choice = Choice {
            experiments: arguments.experiments.clone(),
            settings: arguments.settings.clone(),
            policies: arguments.policies.clone(),
        };
        let options = Options { seeds: seeds.clone(), quick: arguments.quick, reference, choice };
        reports.push(reproduce(paper, &options)?);
    }
    for report in &reports {
        if let Some(folder) = &arguments.html {
            write_page(folder, report)?;
        }
        if !arguments.json {
            output::text!("{}", text::report(report))?;
        }
    }
    if arguments.json {
        output::json(&serde_json::json!({ "papers": reports }))?;
    }
    let as_recorded = reports.iter().all(|report| report.as_recorded);
    Ok(ExitCode::from(u8::from(!as_recorded)))
}

fn seeds(arguments: &PaperArguments) -> anyhow::Result<Vec<u64>> {
    let default = if arguments.quick { 1..=3 } else { 1..=10 };
    let seeds: Vec<u64> = arguments.seeds.clone().unwrap_or(default).collect();
    if seeds.len() < 2 {
        bail!("--seeds: got one seed, expected at least two (an interval takes two; 1..10)");
    }
    Ok(seeds)
}

/// The paper's reference runs: its file in the folder `path`, or the file `path` itself.
fn read_reference(path: &Path, paper: &Paper) -> anyhow::Result<Option<(String, String)>> {
    let Some(source) = paper.reference else { return Ok(None) };
    let file = if path.is_dir() { path.join(source.file) } else { path.to_owned() };
    let shown = file.display();
    let Ok(facts) = std::fs::metadata(&file) else {
        let name = paper.name;
        eprintln!("skipped: {name}'s comparison with other programs, for there is no {shown}");
        return Ok(None);
    };
    if facts.len() > REFERENCE_BYTES_MAX {
        bail!("{shown}: got {} bytes, expected at most {REFERENCE_BYTES_MAX}", facts.len());
    }
    let text = std::fs::read_to_string(&file);
    let text = text.with_context(|| format!("{shown}: cannot be read as text"))?;
    Ok(Some((file.file_name().unwrap_or_default().to_string_lossy().into_owned(), text)))
}

fn reproduce(paper: &Paper, options: &Options) -> anyhow::Result<PaperReport> {
    let plan = paper.plan(options)?;
    let progress = Progress::new(format!("paper {}", paper.name), plan.jobs().len());
    progress.show(0);
    let start = std::time::Instant::now();
    let runs: Vec<(RunReport, f64)> = run_all(
        plan.jobs(),
        |job| {
            let start = cpu_time::ThreadTime::now();
            let report = plan.run(job);
            (report, start.elapsed().as_secs_f64())
        },
        |done| progress.show(done),
    );
    progress.clear();
    let cpu_s: f64 = runs.iter().map(|(_, cpu_s)| cpu_s).sum();
    let requests: u64 = plan.jobs().iter().map(|job| plan.requests(job)).sum();
    let reports: Vec<RunReport> = runs.into_iter().map(|(report, _)| report).collect();
    let simulated = match requests {
        0 => String::new(),
        _ => format!(
            " for {} requests ({} per CPU second)",
            count(requests as f64),
            count(requests as f64 / cpu_s)
        ),
    };
    let (runs, took_s) = (reports.len(), start.elapsed().as_secs_f64());
    eprintln!("{runs} runs, {cpu_s:.0} s of CPU time in {took_s:.0} s{simulated}");
    Ok(plan.judge(&reports))
}

fn write_page(folder: &Path, report: &PaperReport) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let file = folder.join(format!("{}.html", report.paper));
    output::page("report", &file, &page::page(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paper_is_one_of_those_there_are() {
        assert_eq!(name("c3"), Ok("c3".to_owned()));
        assert_eq!(name("all"), Ok("all".to_owned()));
        assert_eq!(
            name("c4"),
            Err(FlagError::Expected(
                "all or one of c3, brownout, kurma, leader, zoolander, adaptive".to_owned()
            ))
        );
    }

    #[test]
    fn a_reference_that_is_not_there_is_skipped() {
        for paper in PAPERS {
            assert_eq!(read_reference(Path::new("no/such/file.csv"), paper).unwrap(), None);
        }
    }
}
