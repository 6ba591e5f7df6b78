//! C3: Cutting Tail Latency in Cloud Data Stores via Adaptive Replica Selection (Suresh, Canini,
//! Schmid, Feldmann; NSDI 2015).
//!
//! The claims, how each is checked and why some cannot be are in `papers/c3/`; the scenarios of its
//! two simulated figures are the shipped ones.

use crate::Paper;
use crate::reference::absim;

/// The paper.
pub const PAPER: Paper = Paper {
    name: "c3",
    claims: include_str!("../../../../papers/c3/claims.toml"),
    scenarios: &[
        ("c3-fluctuation", include_str!("../../../../scenarios/c3-fluctuation.toml")),
        ("c3-skew", include_str!("../../../../scenarios/c3-skew.toml")),
        ("c3-dynamic", include_str!("../../../../scenarios/c3-dynamic.toml")),
        ("absim", include_str!("../../../../papers/c3/absim.toml")),
        ("cassandra", include_str!("../../../../papers/c3/cassandra.toml")),
        ("two-servers", include_str!("../../../../papers/c3/two-servers.toml")),
    ],
    reference: Some(absim::SOURCE),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    /// Queue lengths at which two servers cost the same: q·µ⁻¹ alike, or q³·µ⁻¹ alike.
    #[test]
    fn the_deck_example_follows_from_its_formula() {
        let (fast_ms, slow_ms) = (4.0_f64, 20.0_f64);
        assert_eq!(100.0 * fast_ms, 20.0 * slow_ms, "the deck: 100 requests against 20");
        let claims = PAPER.read().unwrap();
        let claim = claims.claims.iter().find(|claim| claim.id == "deck-queue").unwrap();
        let crate::claims::Check::Measured { comparisons, .. } = &claim.check else {
            panic!("the claim is measured")
        };
        for (comparison, exponent) in comparisons.iter().zip([1.0, 3.0]) {
            let truth = (slow_ms / fast_ms).powf(1.0 / exponent);
            let range = comparison.range;
            assert!(range.at_least < truth && truth < range.at_most, "{range:?} and {truth}");
        }
    }

    /// Figures of others, each for a claim that there is.
    #[test]
    fn what_is_expected_belongs_to_a_claim() {
        let expected = include_str!("../../../../papers/c3/expected.csv");
        let claims = PAPER.read().unwrap();
        let mut rows = expected.lines();
        assert_eq!(rows.next(), Some("claim,quantity,setting,value,unit,source"));
        for row in rows {
            let id = row.split(',').next().unwrap();
            assert!(claims.claims.iter().any(|claim| claim.id == id), "{row}");
            let value = row.rsplit(',').nth(2).unwrap().parse::<f64>();
            assert!(value.is_ok_and(|value| value > 0.0), "{row}");
        }
    }

    #[test]
    fn a_full_check_covers_the_figure_as_the_paper_has_it() {
        let options = Options { seeds: (1..=10).collect(), quick: false, ..Options::default() };
        let plan = PAPER.plan(&options).unwrap();
        let claims = PAPER.read().unwrap();
        let figure = claims.experiment("figure").unwrap();
        assert_eq!(figure.axis.values, ["10ms", "50ms", "100ms", "200ms", "300ms", "500ms"]);
        let of_figure = 6 * 2 * 2 * figure.policies.len() * 10;
        assert!(plan.jobs().len() > of_figure, "{} jobs", plan.jobs().len());
    }
}
