//! What is measured of duplicated stores, and of what models say of them.
//!
//! **Error in shares and in nines.** At a level of many nines any two models are right to within
//! a thousandth of a point: 99.99 % predicted as 99.999999 % is a hundredth of a point off and four
//! nines. So both are measured. A share that is 0 has no ratio; how many nines a run without a
//! violation has is told in [`report`](crate::duplicates::report).

use serde::Serialize;

use super::super::measure::Unit;
use crate::duplicates::DuplicatesReport;
use crate::duplicates::report::{Divergences, Principles, nines};

/// A measure of duplicated stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Duplicated {
    /// `-log10` of the share of violations.
    Nines,
    /// The paper's model, share of violations.
    Paper,
    /// Queues behind shared arrivals, the same.
    Lindley,
    /// The paper's model in nines.
    PaperNines,
    /// Ours.
    LindleyNines,
    /// Predicted by one duplicate's law alone, against measured: the distance of the shares.
    SingleError,
    /// The same for the geometric series.
    SeriesError,
    /// With the law of the sliding window.
    WindowError,
    /// For the paper's full model.
    PaperError,
    /// For ours.
    LindleyError,
    /// Nines that the paper's model promises, less those there are.
    PaperNinesOver,
    /// Nines that ours promises, less those there are.
    LindleyNinesOver,
    /// Violations the paper's model expects over those there are.
    PaperRatio,
    /// The same for ours.
    LindleyRatio,
    /// Nodes and violations of an hour.
    Cost,
    /// The same by the paper's model.
    PaperCost,
    /// Coefficient of variation up to the 70th percentile.
    BodyVariation,
    /// Coefficient of variation.
    Variation,
    /// Share of accesses within three means.
    WithinThreeMeans,
    /// The 99.99th percentile over the mean.
    LastOverMean,
    /// The emptiest of four quarters of a plot of one duplicate against another.
    EmptiestQuarter,
    /// Of a duplicate's slowest tenth, the share that is slow on the other too.
    SlowOnBoth,
    /// Share of windows that diverge though nothing changed.
    DivergesCalmly,
    /// Share of changes that are seen.
    DivergenceFound,
    /// Windows until they no longer diverge, at most, after a change.
    DivergenceLasts,
    /// Share of the time in which a server serves.
    Utilisation,
}

impl Duplicated {
    /// The measure in words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nines => "service level",
            Self::Paper => "violations, the paper's model",
            Self::Lindley => "violations, lindley",
            Self::PaperNines => "the paper's model",
            Self::LindleyNines => "lindley",
            Self::SingleError => "error, one duplicate",
            Self::SeriesError => "error, geometric series",
            Self::WindowError => "error, with sliding window",
            Self::PaperError => "error, the paper's full model",
            Self::LindleyError => "error, lindley",
            Self::PaperNinesOver => "too many promised, the paper's model",
            Self::LindleyNinesOver => "too many promised, lindley",
            Self::PaperRatio => "violations, the paper's model over measured",
            Self::LindleyRatio => "violations, lindley over measured",
            Self::Cost => "cost of an hour",
            Self::PaperCost => "cost of an hour, the paper's model",
            Self::BodyVariation => "variation up to p70",
            Self::Variation => "variation",
            Self::WithinThreeMeans => "within three means",
            Self::LastOverMean => "p99.99 over mean",
            Self::EmptiestQuarter => "in the emptiest quarter",
            Self::SlowOnBoth => "of the slowest tenth, slow on the other too",
            Self::DivergesCalmly => "windows that diverge for nothing",
            Self::DivergenceFound => "changes seen",
            Self::DivergenceLasts => "windows that diverge after a change",
            Self::Utilisation => "utilisation of a server",
        }
    }

    /// What it is counted in.
    #[must_use]
    pub const fn unit(self) -> Unit {
        match self {
            Self::Nines
            | Self::PaperNines
            | Self::LindleyNines
            | Self::PaperNinesOver
            | Self::LindleyNinesOver => Unit::Nines,
            Self::PaperRatio | Self::LindleyRatio | Self::LastOverMean => Unit::Times,
            Self::Cost | Self::PaperCost => Unit::Dollars,
            Self::BodyVariation | Self::Variation => Unit::Deviations,
            Self::DivergenceLasts => Unit::Windows,
            _ => Unit::Share,
        }
    }

    /// Its value in one run; `None` when it has none.
    #[must_use]
    pub fn of(self, run: &DuplicatesReport) -> Option<f64> {
        let predicted = &run.predicted;
        let error = |share: f64| (share - run.violation_ratio).abs();
        let ratio = |share: f64| {
            (share > 0.0 && run.violation_ratio > 0.0).then(|| share / run.violation_ratio)
        };
        match self {
            Self::Nines => Some(run.nines),
            Self::Paper => Some(predicted.paper),
            Self::Lindley => predicted.lindley,
            Self::PaperNines => Some(nines(predicted.paper)),
            Self::LindleyNines => predicted.lindley.map(nines),
            Self::SingleError => Some(error(predicted.single)),
            Self::SeriesError => Some(error(predicted.series)),
            Self::WindowError => Some(error(predicted.window)),
            Self::PaperError => Some(error(predicted.paper)),
            Self::LindleyError => predicted.lindley.map(error),
            Self::PaperNinesOver => Some(nines(predicted.paper) - run.nines),
            Self::LindleyNinesOver => predicted.lindley.map(|share| nines(share) - run.nines),
            Self::PaperRatio => ratio(predicted.paper),
            Self::LindleyRatio => ratio(predicted.lindley?),
            Self::Cost => Some(run.cost_per_hour),
            Self::PaperCost => Some(run.paper_cost_per_hour),
            Self::Utilisation => Some(run.utilisation),
            Self::DivergesCalmly | Self::DivergenceFound | Self::DivergenceLasts => {
                Some(self.of_divergences(run.divergences.as_ref()?))
            }
            _ => self.of_principles(run.principles.as_ref()?),
        }
    }

    const fn of_divergences(self, of: &Divergences) -> f64 {
        match self {
            Self::DivergesCalmly => of.calm_ratio,
            Self::DivergenceFound => of.found_ratio,
            _ => of.lasts_windows as f64,
        }
    }

    const fn of_principles(self, of: &Principles) -> Option<f64> {
        match self {
            Self::BodyVariation => Some(of.body_variation),
            Self::Variation => Some(of.variation),
            Self::WithinThreeMeans => Some(of.within_three_means),
            Self::LastOverMean => Some(of.last_over_mean),
            Self::EmptiestQuarter => Some(of.emptiest_quarter),
            Self::SlowOnBoth => Some(of.slow_on_both),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::duplicates::report::Predictions;

    /// 99.991 % measured, 99.999999 % predicted: the paper's own case.
    #[test]
    fn a_small_error_may_be_many_nines() {
        let predicted = Predictions { paper: 1e-8, lindley: Some(1e-4), ..Predictions::default() };
        let run = DuplicatesReport {
            violation_ratio: 1e-4,
            nines: 4.0,
            predicted,
            ..DuplicatesReport::default()
        };
        let of = |measure: Duplicated| measure.of(&run).unwrap();
        assert!(of(Duplicated::PaperError) < 1e-4);
        assert!((of(Duplicated::PaperNinesOver) - 4.0).abs() < 1e-9);
        assert!((of(Duplicated::PaperRatio) - 1e-4).abs() < 1e-9);
        assert_eq!(of(Duplicated::LindleyRatio), 1.0);
        assert_eq!(Duplicated::Variation.of(&run), None);
        let none = DuplicatesReport { violation_ratio: 0.0, ..run };
        assert_eq!(Duplicated::PaperRatio.of(&none), None);
    }
}
