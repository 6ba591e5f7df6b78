//! `evenkeel plan forecast`: how wrong rules are that foretell demand, on a series of rates.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use evenkeel_geo::demand::forecast::{Choice, Errors, Rule, back_test};
use evenkeel_settings::parse_duration;
use evenkeel_sim::trace::{Made, RateSeries, TraceError, match_days, one_hot, shifting};
use serde::Serialize;

use crate::output;
use crate::terminal::Table;

/// Steps of a made-up series: two weeks by the minute.
const MADE_STEPS: usize = 14 * 24 * 60;

/// Compare rules that foretell the demand of the next step, on a series of rates.
///
/// FILE is a CSV file with a column of times and one of rates for each site (t_s,London,Paris), or
/// period,count. Each step is foretold from those before it. The first tenth is not counted. Plans
/// follow `tested`: the rule that was the least wrong lately.
///
/// Example: evenkeel plan forecast --made match-days
#[derive(Debug, clap::Args)]
pub(crate) struct ForecastArguments {
    /// The file of rates.
    #[arg(required_unless_present = "made", conflicts_with = "made")]
    file: Option<PathBuf>,
    /// A made-up series in place of a file, two weeks by the minute.
    #[arg(long, value_name = "match-days|one-hot|shifting")]
    made: Option<Shape>,
    /// Take longer steps than the file has, such as 5m.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    step: Option<Duration>,
    /// The random seed of a made-up series.
    #[arg(long, default_value = "1")]
    seed: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shape {
    MatchDays,
    OneHot,
    Shifting,
}

/// How wrong one rule was, over all sites; shares of the mean rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Line {
    rule: &'static str,
    absolute: f64,
    squared: f64,
    bias: f64,
    /// Share of steps in which a tenth or more of what came was not foretold.
    short: f64,
}

pub(crate) fn run(arguments: &ForecastArguments) -> anyhow::Result<ExitCode> {
    let mut series = series(arguments)?;
    if let Some(step) = arguments.step {
        series = series.in_steps_of(step)?;
    }
    if series.steps() < 20 {
        bail!("got {} steps, expected 20 or more: a forecast needs a past", series.steps());
    }
    let lines = lines(&series);
    if arguments.json {
        output::json(&lines)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::text!("{}", table(&lines))?;
    output::line!("\n{}", summary(&series, &lines))?;
    Ok(ExitCode::SUCCESS)
}

fn series(arguments: &ForecastArguments) -> Result<RateSeries, TraceError> {
    let made = |seed| Made {
        sites: 3,
        step: Duration::from_secs(60),
        steps: MADE_STEPS,
        full: 1_000.0,
        seed,
    };
    match (&arguments.file, arguments.made) {
        (Some(file), _) => RateSeries::load(file),
        (None, Some(Shape::OneHot)) => one_hot(&made(arguments.seed)),
        (None, Some(Shape::Shifting)) => shifting(&made(arguments.seed)),
        (None, Some(Shape::MatchDays) | None) => match_days(&made(arguments.seed)),
    }
}

fn lines(series: &RateSeries) -> Vec<Line> {
    let choices = Rule::ALL.map(Choice::Fixed).into_iter().chain([Choice::Tested]);
    let of = |choice: Choice| {
        let sites = series.rates.iter();
        let first = series.steps() / 10;
        let sites: Vec<Errors> =
            sites.map(|rates| back_test(choice, series.step, rates, first)).collect();
        let mean = |of: fn(&Errors) -> f64| sites.iter().map(of).sum::<f64>() / sites.len() as f64;
        Line {
            rule: choice.name(),
            absolute: mean(|errors| errors.absolute),
            squared: mean(|errors| errors.squared),
            bias: mean(|errors| errors.bias),
            short: mean(|errors| errors.short),
        }
    };
    choices.map(of).collect()
}

fn table(lines: &[Line]) -> Table {
    let mut table =
        Table::of("rule | mean error | root of mean square | bias | short by a tenth or more");
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    for line in lines {
        let errors = [line.absolute, line.squared, line.bias, line.short].map(percent);
        table.row([vec![line.rule.to_owned()], errors.into()].concat());
    }
    table
}

fn summary(series: &RateSeries, lines: &[Line]) -> String {
    let best = lines.iter().min_by(|a, b| a.absolute.total_cmp(&b.absolute));
    let best = best.map_or("none", |line| line.rule);
    format!(
        "{} steps of {:?}, {} sites; errors are shares of the mean rate. Least wrong: {best}",
        series.steps(),
        series.step,
        series.sites(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_foretold_by_its_trend_and_the_table_says_so() {
        let rates = vec![(0..200).map(|step| 100.0 + f64::from(step)).collect(); 2];
        let series = RateSeries::new(Duration::from_secs(60), rates).unwrap();
        let lines = lines(&series);
        let names: Vec<&str> = lines.iter().map(|line| line.rule).collect();
        assert_eq!(names, ["last", "mean", "trend", "damped", "season", "tested"]);
        assert!(lines[2].absolute < 1e-9 && lines[5].absolute < lines[0].absolute, "{lines:?}");
        // A rising line is always foretold too low by the past.
        assert!(lines[1].bias < 0.0 && lines[1].short < 1e-9, "{lines:?}");
        assert!(summary(&series, &lines).ends_with("trend"), "{}", summary(&series, &lines));
        assert!(table(&lines).to_string().contains("short by a tenth"));
    }
}
