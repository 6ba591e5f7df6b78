//! A measure as a row: its names, its unit, and how it is taken of a run and of windows.

use core::time::Duration;

use crate::unit::Unit;
use evenkeel_sim::duplicates::DuplicatesReport;
use evenkeel_sim::placement::day::PlacementReport;
use evenkeel_sim::redirect::RedirectReport;
use evenkeel_sim::report::RunReport;
use evenkeel_sim::sampler::WindowReport;

/// A measure: its name as people write it, its words, its unit, and how it is taken.
#[derive(Debug)]
pub(crate) struct Row {
    pub(super) name: &'static str,
    pub(super) words: &'static str,
    pub(super) unit: Unit,
    pub(super) take: Take,
    pub(super) within: Within,
}

/// How a measure is taken of a whole run.
#[derive(Debug)]
pub(super) enum Take {
    Run(fn(&RunReport) -> Option<f64>),
    /// Of one whose first phase begins then.
    Joined(fn(&RunReport, Duration) -> Option<f64>),
    Sites(fn(&RedirectReport) -> Option<f64>),
    Placement(fn(&PlacementReport) -> Option<f64>),
    Duplicates(fn(&DuplicatesReport) -> Option<f64>),
    /// Only of a span.
    UntilFull,
    /// Of all runs along the axis.
    AlongAxis,
}

/// How it is taken of windows.
#[derive(Debug)]
pub(super) enum Within {
    Nothing,
    /// A value of each, by its length in seconds.
    Value(fn(&WindowReport, f64) -> Option<f64>),
    /// Calls of each that a share counts, and of how many.
    Counted(Counted),
}

/// How many calls of a window, of how many.
pub(super) type Counted = fn(&WindowReport) -> (u64, u64);

pub(crate) const fn row(name: &'static str, words: &'static str, unit: Unit) -> Row {
    Row { name, words, unit, take: Take::UntilFull, within: Within::Nothing }
}

pub(super) const fn ms(name: &'static str, words: &'static str) -> Row {
    row(name, words, Unit::Ms)
}

pub(crate) const fn share_of(name: &'static str, words: &'static str) -> Row {
    row(name, words, Unit::Share)
}

impl Row {
    pub(super) const fn run(self, of: fn(&RunReport) -> Option<f64>) -> Self {
        Self { take: Take::Run(of), ..self }
    }

    pub(super) const fn joined(self, of: fn(&RunReport, Duration) -> Option<f64>) -> Self {
        Self { take: Take::Joined(of), ..self }
    }

    pub(super) const fn redirected(self, of: fn(&RedirectReport) -> Option<f64>) -> Self {
        Self { take: Take::Sites(of), ..self }
    }

    pub(super) const fn placed(self, of: fn(&PlacementReport) -> Option<f64>) -> Self {
        Self { take: Take::Placement(of), ..self }
    }

    pub(crate) const fn duplicated(self, of: fn(&DuplicatesReport) -> Option<f64>) -> Self {
        Self { take: Take::Duplicates(of), ..self }
    }

    pub(super) const fn along_axis(self) -> Self {
        Self { take: Take::AlongAxis, ..self }
    }

    pub(super) const fn seen(self, value: fn(&WindowReport, f64) -> Option<f64>) -> Self {
        Self { within: Within::Value(value), ..self }
    }

    pub(super) const fn counting(self, counted: Counted) -> Self {
        Self { within: Within::Counted(counted), ..self }
    }
}
