//! Service times as written: recorded in files, or by formulas.

use std::path::{Path, PathBuf};
use std::time::Duration;

use evenkeel_core::units::{OutOfRange, Weight};
use evenkeel_planner::duplicates::{Law, Service, Times};

use super::samples;
use crate::document::Value;
use crate::problem::{Mismatch, Place, Problem, Problems};
use crate::reader::{Setting, Table};

/// Where service times come from.
pub(super) enum Source {
    /// One file: a column is of all duplicates, several are of one each, together.
    File(PathBuf),
    /// A file for each duplicate.
    Files(Vec<PathBuf>),
    /// A formula, or several by weight, with the place where it is written.
    Formula(Vec<(f64, Law)>, Place),
}

/// Service times, and the rows that were recorded together.
pub(super) struct Loaded {
    pub(super) service: Service,
    pub(super) together: Option<Vec<Vec<Duration>>>,
}

const EXPECTED: &str = "a file of times, a list of one file for each duplicate, a formula such as \
                        {law = \"log-normal\", mean = \"3ms\", cv = 1.5}, or a list of formulas";

/// What stands there until files are read.
pub(super) fn stand_in() -> Service {
    let times = Times::recorded(&[Duration::ZERO]).expect("one time is one");
    Service::alike(times)
}

pub(super) fn read(setting: Setting<'_>) -> Source {
    let place = setting.place().clone();
    match setting.value() {
        Some(Value::Text(_)) => Source::File(setting.text().required().into()),
        Some(Value::Table(_)) => {
            let part = setting.table(formula).required();
            Source::Formula(vec![part], place)
        }
        Some(Value::List(items)) if items.is_empty() => {
            setting.problem(Mismatch::new("an empty list", EXPECTED));
            Source::Files(Vec::new())
        }
        Some(Value::List(items)) if matches!(items[0].value, Value::Text(_)) => {
            let files = setting.list(|item| PathBuf::from(item.text().required()));
            Source::Files(files.required())
        }
        Some(Value::List(_)) => {
            let parts = setting.list(|item| item.table(formula).required()).required();
            Source::Formula(parts, place)
        }
        other => {
            let came = other.map_or_else(|| "nothing".to_owned(), Value::described);
            setting.problem(Mismatch::new(came, EXPECTED));
            Source::Files(Vec::new())
        }
    }
}

const LAWS: [(&str, &str); 4] = [
    ("constant", "constant"),
    ("exponential", "exponential"),
    ("log-normal", "log-normal"),
    ("pareto", "pareto"),
];

fn formula(table: &mut Table<'_>) -> (f64, Law) {
    let weight = table.key("weight").number().between(1e-9..=1e9).or(1.0);
    let name = table.key("law").variant(&LAWS).required();
    let times = Duration::from_nanos(1)..=Duration::from_secs(3_600);
    let mut time = |key: &str| table.key(key).duration().between(times.clone()).required();
    let law = match name {
        "exponential" => Law::Exponential { mean: time("mean") },
        "log-normal" => {
            let mean = time("mean");
            Law::LogNormal { mean, cv: table.key("cv").number().between(0.0..=1e3).required() }
        }
        "pareto" => {
            let minimum = time("minimum");
            let shape = table.key("shape").number().between(0.01..=1e3).required();
            let maximum = table.key("maximum").duration().between(times).optional();
            Law::Pareto { minimum, shape, maximum }
        }
        _ => Law::Constant(time("mean")),
    };
    (weight, law)
}

/// A file that has one column.
pub(super) fn single_column(path: &Path, what: &str) -> Result<Vec<Duration>, Problem> {
    let samples = samples::load(path)?;
    if samples.columns() != 1 {
        let came = format!("{} columns", samples.columns());
        let expected = format!("one column of {what} in milliseconds");
        let at = Place::whole(&path.display().to_string());
        return Err(Problem { at, path: String::new(), what: Mismatch::new(came, expected) });
    }
    Ok(samples.rows.into_iter().flatten().collect())
}

impl Source {
    pub(super) fn load(&self, folder: &Path) -> Result<Loaded, Problems> {
        let sound = |result: Result<Service, OutOfRange>, at: Place| {
            result.map_err(|error| {
                let what = Mismatch::new(error.came.to_string(), error.expected);
                Problems::from(Problem { at, path: "service".to_owned(), what })
            })
        };
        match self {
            Self::File(name) => {
                let path = folder.join(name);
                let at = Place::whole(&path.display().to_string());
                let samples = samples::load(&path)?;
                if samples.columns() == 1 {
                    let times: Vec<Duration> = samples.rows.into_iter().flatten().collect();
                    let service = sound(Times::recorded(&times).map(Service::alike), at)?;
                    return Ok(Loaded { service, together: None });
                }
                let service = sound(Service::together(&samples.rows), at)?;
                Ok(Loaded { service, together: Some(samples.rows) })
            }
            Self::Files(names) => {
                let mut all = Vec::with_capacity(names.len());
                for name in names {
                    let times = single_column(&folder.join(name), "times")?;
                    all.push(Times::recorded(&times).expect("a file of times has one"));
                }
                let service = sound(Service::each(all), Place::whole("service"))?;
                Ok(Loaded { service, together: None })
            }
            Self::Formula(parts, at) => {
                let part = |&(weight, law): &(f64, Law)| Ok((Weight::new(weight)?, law));
                let parts: Result<Vec<_>, OutOfRange> = parts.iter().map(part).collect();
                let times = parts.and_then(|parts| Times::mixed(&parts));
                let service = sound(times.map(Service::alike), at.clone())?;
                Ok(Loaded { service, together: None })
            }
        }
    }
}
