//! What is measured of duplicated stores, and of what models say of them.
//!
//! **Error in shares and in nines.** At a level of many nines any two models are right to within
//! a thousandth of a point: 99.99 % predicted as 99.999999 % is a hundredth of a point off and four
//! nines. So both are measured. A share that is 0 has no ratio; how many nines a run without a
//! violation has is told in [`report`](evenkeel_sim::duplicates::report).

use crate::measure::row::{Row, row, share_of};
use crate::unit::Unit;
use evenkeel_sim::duplicates::DuplicatesReport;
use evenkeel_sim::duplicates::report::nines;

/// Measures of duplicated stores.
pub(crate) static DUPLICATED: [Row; 26] = [
    // `-log10` of the share of violations.
    row("duplicates_nines", "service level", Unit::Nines).duplicated(|run| Some(run.nines)),
    share_of("duplicates_paper", "violations, the paper's model")
        .duplicated(|run| Some(run.predicted.paper)),
    share_of("duplicates_lindley", "violations, lindley").duplicated(|run| run.predicted.lindley),
    row("duplicates_paper_nines", "the paper's model", Unit::Nines)
        .duplicated(|run| Some(nines(run.predicted.paper))),
    row("duplicates_lindley_nines", "lindley", Unit::Nines)
        .duplicated(|run| run.predicted.lindley.map(nines)),
    // The distance of the shares, predicted and measured; first by one duplicate's law alone.
    share_of("duplicates_single_error", "error, one duplicate")
        .duplicated(|run| Some(error(run, run.predicted.single))),
    share_of("duplicates_series_error", "error, geometric series")
        .duplicated(|run| Some(error(run, run.predicted.series))),
    share_of("duplicates_window_error", "error, with sliding window")
        .duplicated(|run| Some(error(run, run.predicted.window))),
    share_of("duplicates_paper_error", "error, the paper's full model")
        .duplicated(|run| Some(error(run, run.predicted.paper))),
    share_of("duplicates_lindley_error", "error, lindley")
        .duplicated(|run| Some(error(run, run.predicted.lindley?))),
    // Nines that a model promises, less those there are.
    row("duplicates_paper_nines_over", "too many promised, the paper's model", Unit::Nines)
        .duplicated(|run| Some(nines(run.predicted.paper) - run.nines)),
    row("duplicates_lindley_nines_over", "too many promised, lindley", Unit::Nines)
        .duplicated(|run| Some(nines(run.predicted.lindley?) - run.nines)),
    row("duplicates_paper_ratio", "violations, the paper's model over measured", Unit::Times)
        .duplicated(|run| ratio(run, run.predicted.paper)),
    row("duplicates_lindley_ratio", "violations, lindley over measured", Unit::Times)
        .duplicated(|run| ratio(run, run.predicted.lindley?)),
    // Nodes and violations.
    row("duplicates_cost", "cost of an hour", Unit::Dollars)
        .duplicated(|run| Some(run.cost_per_hour)),
    row("duplicates_paper_cost", "cost of an hour, the paper's model", Unit::Dollars)
        .duplicated(|run| Some(run.paper_cost_per_hour)),
    // Coefficients of variation, up to the 70th percentile and of all.
    row("duplicates_body_variation", "variation up to p70", Unit::Deviations)
        .duplicated(|run| Some(run.principles.as_ref()?.body_variation)),
    row("duplicates_variation", "variation", Unit::Deviations)
        .duplicated(|run| Some(run.principles.as_ref()?.variation)),
    // Share of accesses.
    share_of("duplicates_within_three_means", "within three means")
        .duplicated(|run| Some(run.principles.as_ref()?.within_three_means)),
    row("duplicates_last_over_mean", "p99.99 over mean", Unit::Times)
        .duplicated(|run| Some(run.principles.as_ref()?.last_over_mean)),
    // Of a plot of one duplicate against another.
    share_of("duplicates_emptiest_quarter", "in the emptiest quarter")
        .duplicated(|run| Some(run.principles.as_ref()?.emptiest_quarter)),
    share_of("duplicates_slow_on_both", "of the slowest tenth, slow on the other too")
        .duplicated(|run| Some(run.principles.as_ref()?.slow_on_both)),
    share_of("duplicates_diverges_calmly", "windows that diverge for nothing")
        .duplicated(|run| Some(run.divergences.as_ref()?.calm_ratio)),
    share_of("duplicates_divergence_found", "changes seen")
        .duplicated(|run| Some(run.divergences.as_ref()?.found_ratio)),
    // At most, until they no longer diverge.
    row("duplicates_divergence_lasts", "windows that diverge after a change", Unit::Windows)
        .duplicated(|run| Some(run.divergences.as_ref()?.lasts_windows as f64)),
    // Share of the time in which a server serves.
    share_of("duplicates_utilisation", "utilisation of a server")
        .duplicated(|run| Some(run.utilisation)),
];

fn error(run: &DuplicatesReport, share: f64) -> f64 {
    (share - run.violation_ratio).abs()
}

fn ratio(run: &DuplicatesReport, share: f64) -> Option<f64> {
    (share > 0.0 && run.violation_ratio > 0.0).then(|| share / run.violation_ratio)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::fixtures::any_run;
    use crate::measure::{Asked, Measure};
    use evenkeel_sim::RunReport;
    use evenkeel_sim::duplicates::report::Predictions;

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
        let of = |run: &DuplicatesReport, name: &str| {
            let run = RunReport { duplicates: Some(run.clone()), ..any_run() };
            Asked::of(Measure::of(name)).of_run(&run, Duration::ZERO)
        };
        assert!(of(&run, "duplicates_paper_error").unwrap() < 1e-4);
        assert!((of(&run, "duplicates_paper_nines_over").unwrap() - 4.0).abs() < 1e-9);
        assert!((of(&run, "duplicates_paper_ratio").unwrap() - 1e-4).abs() < 1e-9);
        assert_eq!(of(&run, "duplicates_lindley_ratio").unwrap(), 1.0);
        assert_eq!(of(&run, "duplicates_variation"), None);
        let none = DuplicatesReport { violation_ratio: 0.0, ..run };
        assert_eq!(of(&none, "duplicates_paper_ratio"), None);
    }
}
